//! How a connection behaves, as plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tierstone_wire::resp::ReplyLimits;

/// Timeouts and bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectionSettings {
    /// How long to wait for the server to accept, for each of its addresses, in milliseconds; 0 waits
    /// as long as the system does. Default 5,000.
    pub connect_timeout_ms: u64,
    /// How long to wait without a byte of a reply arriving, in milliseconds; 0 waits for ever. Default
    /// 30,000. Commands that block on the server need more.
    pub read_timeout_ms: u64,
    /// How long to wait without the server taking a byte, in milliseconds; 0 waits for ever. Default
    /// 30,000.
    pub write_timeout_ms: u64,
    /// Push messages kept until they are taken; one more fails the call that receives it. Default 65,536.
    pub push_queue_max: usize,
    /// What the server may send.
    pub reply_limits: ReplyLimits,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        ConnectionSettings {
            connect_timeout_ms: 5_000,
            read_timeout_ms: 30_000,
            write_timeout_ms: 30_000,
            push_queue_max: 65_536,
            reply_limits: ReplyLimits::default(),
        }
    }
}

impl ConnectionSettings {
    /// The defaults, with `timeout` for connecting, reading and writing alike (zero: for ever; below a
    /// millisecond: one).
    pub fn with_timeout(timeout: Duration) -> Self {
        let timeout_ms = match timeout {
            Duration::ZERO => 0,
            _ => u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1),
        };
        ConnectionSettings {
            connect_timeout_ms: timeout_ms,
            read_timeout_ms: timeout_ms,
            write_timeout_ms: timeout_ms,
            ..ConnectionSettings::default()
        }
    }
}

/// A timeout in the form that sockets take; 0 is none.
pub(crate) fn timeout(timeout_ms: u64) -> Option<Duration> {
    (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms))
}
