//! What the transport is set to: plain data.

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result};

/// Which mechanism of the kernel a driver thread waits in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverKind {
    /// io_uring where the kernel allows it and is new enough (6.1), epoll elsewhere.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// epoll: two system calls for each connection heard in a turn instead of a share of one, and the
    /// device's on top; works everywhere.
    Epoll,
}

/// How much unsent output a connection may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputLimits {
    /// From this many bytes on no further request of the connection is executed until the client has
    /// taken some. One reply may go above. Default 1 MiB. More lets slow readers pipeline deeper, and
    /// costs that much memory for each of them.
    pub full_bytes: usize,
    /// The connection is closed at once above this (Redis: the hard `client-output-buffer-limit`); 0
    /// for never. Reached only by output that nobody asked for (messages of subscriptions) and by
    /// single replies of that size. Default 1 GiB.
    pub hard_bytes: usize,
    /// The connection is closed when it has held more than this for `soft_ms`; 0 for never.
    pub soft_bytes: usize,
    /// How long `soft_bytes` may be exceeded, in milliseconds, checked about once a second.
    pub soft_ms: u64,
}

impl Default for OutputLimits {
    fn default() -> Self {
        OutputLimits { full_bytes: 1 << 20, hard_bytes: 1 << 30, soft_bytes: 0, soft_ms: 60_000 }
    }
}

/// The settings of every driver thread of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportSettings {
    /// The mechanism. Default: io_uring where it can be had.
    pub driver: DriverKind,
    /// Length of the kernel's queue of connections that wait to be accepted. Default 511, like Redis;
    /// the kernel cuts it to `net.core.somaxconn`.
    pub backlog: u32,
    /// The most connections of one driver thread, 1 to 1,000,000. Default 10,000. Each takes about
    /// 400 bytes while idle, and one descriptor.
    pub connections_max: u32,
    /// Seconds of silence after which the kernel asks a TCP client whether it is still there; 0 for
    /// never. Default 300. Finds half-open connections within about twice that time.
    pub keepalive_s: u32,
    /// Seconds without a byte in or out after which a connection is closed that waits for no reply and listens to
    /// nothing; 0 for never, the default. Checked about once a second.
    pub idle_timeout_s: u32,
    /// Bytes that one connection may have sent without their being consumed; it is closed above that.
    /// Default 1 GiB (Redis: `client-query-buffer-limit`). Memory follows what came, not what was
    /// declared.
    pub input_limit_bytes: usize,
    /// Bytes that the buffers of all connections of a thread may take, beside 16 KiB each, before those that send large requests
    /// wait for each other; 0 for no bound, the default. A server sets it by its memory: an eighth of each
    /// shard's part, at least 2 MiB; and lets no single request grow longer (`input_limit_bytes`).
    pub buffer_bytes_max: usize,
    /// From this many unconsumed bytes on nothing is received from a connection whose requests are
    /// held up (by a full output, or by the service). Default 64 KiB.
    pub input_pause_bytes: usize,
    /// Unsent output.
    pub output: OutputLimits,
    /// Size of one receive buffer in bytes, 1 KiB to 1 MiB. Default 16 KiB. Larger ones mean fewer
    /// pieces for large requests; smaller ones stay in the processor's caches.
    pub receive_buffer_bytes: u32,
    /// How many receive buffers a thread shares among its connections with io_uring: a power of two
    /// up to 4096. Default 128. When all are in use, connections wait for the next turn, at the price
    /// of one more submission each.
    pub receive_buffers: u16,
    /// How long a stop waits for replies to leave, in milliseconds. Default 5000.
    pub stop_timeout_ms: u64,
}

impl Default for TransportSettings {
    fn default() -> Self {
        TransportSettings {
            driver: DriverKind::Auto,
            backlog: 511,
            connections_max: 10_000,
            keepalive_s: 300,
            idle_timeout_s: 0,
            input_limit_bytes: 1 << 30,
            buffer_bytes_max: 0,
            input_pause_bytes: 64 << 10,
            output: OutputLimits::default(),
            receive_buffer_bytes: 16 << 10,
            receive_buffers: 128,
            stop_timeout_ms: 5_000,
        }
    }
}

impl TransportSettings {
    /// # Errors
    /// [`ErrorKind::InvalidInput`] that names the setting and its range.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.backlog == 0 || self.backlog > i32::MAX as u32 {
            "backlog: 1 to 2147483647"
        } else if !(1..=1_000_000).contains(&self.connections_max) {
            "maxclients: 1 to 1000000"
        } else if self.keepalive_s > 32_767 {
            "tcp-keepalive: 0 to 32767 s"
        } else if self.input_pause_bytes == 0 || self.input_limit_bytes < self.input_pause_bytes {
            let message = format!("input-limit: at least {} bytes", self.input_pause_bytes.max(1));
            return Err(Error::new(ErrorKind::InvalidInput, message));
        } else if self.output.full_bytes == 0 {
            "output-pause: at least 1 byte"
        } else if self.output.hard_bytes != 0 && self.output.hard_bytes < self.output.full_bytes {
            "output-limit: 0 for none, or at least output-pause"
        } else if !(1 << 10..=1 << 20).contains(&self.receive_buffer_bytes) {
            "receive_buffer_bytes: 1 KiB to 1 MiB"
        } else if !self.receive_buffers.is_power_of_two() || self.receive_buffers > 4096 {
            "receive_buffers: a power of two, 1 to 4096"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidInput, wrong))
    }
}

/// A change of the settings of a driver thread that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChange {
    /// Of [`TransportSettings::connections_max`]; connections above it stay.
    ConnectionsMax(u32),
    /// Of [`TransportSettings::idle_timeout_s`].
    IdleTimeout(u32),
    /// Of [`TransportSettings::input_limit_bytes`], which stays within [`TransportSettings::buffer_bytes_max`].
    InputLimit(usize),
    /// Of the hard and the soft limits in [`TransportSettings::output`].
    Output {
        /// Bytes.
        hard_bytes: usize,
        /// Bytes.
        soft_bytes: usize,
        /// Milliseconds.
        soft_ms: u64,
    },
}

impl TransportSettings {
    /// Lets no single request grow longer than what all buffers of a thread may take, where that is bounded.
    pub(crate) fn bound_input(&mut self) {
        if self.buffer_bytes_max > 0 {
            self.input_limit_bytes = self.input_limit_bytes.min(self.buffer_bytes_max);
        }
    }

    /// Takes a change over; one that would make the settings wrong is left out.
    pub fn change(&mut self, change: TransportChange) {
        let mut changed = self.clone();
        match change {
            TransportChange::ConnectionsMax(most) => changed.connections_max = most,
            TransportChange::IdleTimeout(seconds) => changed.idle_timeout_s = seconds,
            TransportChange::InputLimit(bytes) => {
                changed.input_limit_bytes = bytes;
                changed.bound_input();
            }
            TransportChange::Output { hard_bytes, soft_bytes, soft_ms } => {
                changed.output = OutputLimits { hard_bytes, soft_bytes, soft_ms, ..changed.output };
            }
        }
        if changed.check().is_ok() {
            *self = changed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_taken_over_unless_they_are_wrong() {
        let mut settings = TransportSettings::default();
        settings.change(TransportChange::IdleTimeout(7));
        settings.change(TransportChange::ConnectionsMax(3));
        settings.change(TransportChange::Output { hard_bytes: 2 << 20, soft_bytes: 5, soft_ms: 9 });
        let before = settings.clone();
        assert_eq!((settings.idle_timeout_s, settings.connections_max), (7, 3));
        assert_eq!((settings.output.hard_bytes, settings.output.soft_bytes), (2 << 20, 5));
        for wrong in [
            TransportChange::ConnectionsMax(0),
            TransportChange::InputLimit(1),
            TransportChange::Output { hard_bytes: 1, soft_bytes: 0, soft_ms: 0 },
        ] {
            settings.change(wrong);
            assert_eq!(settings, before, "{wrong:?}");
        }
    }

    #[test]
    fn a_raised_input_limit_leaves_the_bound_of_all_buffers() {
        let mut settings = TransportSettings { buffer_bytes_max: 2 << 20, ..TransportSettings::default() };
        for (asked, limit) in [(1 << 30, 2 << 20), (1 << 20, 1 << 20), (usize::MAX, 2 << 20)] {
            settings.change(TransportChange::InputLimit(asked));
            assert_eq!(settings.input_limit_bytes, limit, "{asked}");
        }
        settings.buffer_bytes_max = 0;
        settings.change(TransportChange::InputLimit(1 << 30));
        assert_eq!(settings.input_limit_bytes, 1 << 30, "there is no bound");
    }

    #[test]
    fn the_defaults_are_legal_and_wrong_values_are_named() {
        assert!(TransportSettings::default().check().is_ok());
        let wrong = TransportSettings { receive_buffers: 100, ..TransportSettings::default() };
        assert!(wrong.check().is_err_and(|error| error.message().contains("receive_buffers")));
        let output = OutputLimits { hard_bytes: 5, ..OutputLimits::default() };
        let wrong = TransportSettings { output, ..TransportSettings::default() };
        assert!(wrong.check().is_err_and(|error| error.message().contains("output-limit")));
    }
}
