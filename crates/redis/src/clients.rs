//! What clients take of memory, for the caller that closes those that take too much (`maxmemory-clients`).
//!
//! The caller owns the buffers of connections and knows their sizes; here is what a session holds beside them, what
//! the setting says, and the count of those that were closed.

use crate::commands::client::describe;
use crate::executor::Executor;
use crate::session::{ConnectionId, Session};
use crate::settings::parse_percent;
use tierstone_base::Now;
use tierstone_engine::Engine;

/// The setting that says what all clients may take together.
pub const CLIENTS_BYTES_MAX: &str = "maxmemory-clients";

/// Nothing below this is set in effect, as in Redis: nobody could say anything to the server any more.
const SMALLEST_BYTES: u64 = 128 << 10;

/// What one client holds beside the buffers of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientMemory {
    /// Bytes: the arguments of a transaction that is being queued, and the names of its channels.
    pub bytes: u64,
    /// Whether it is never closed to free memory (`CLIENT NO-EVICT on`).
    pub is_kept: bool,
}

impl Session {
    fn memory(&self) -> ClientMemory {
        let queued = self.transaction.as_ref().map_or(0, |queue| queue.size_bytes);
        ClientMemory { bytes: (queued + self.channel_bytes()) as u64, is_kept: self.is_kept }
    }
}

impl<E: Engine> Executor<E> {
    /// What all clients may take together, in bytes; `None`: there is no bound. A percentage is one of the memory
    /// that the server was given, and means nothing where that is not known.
    pub fn clients_bytes_max(&self) -> Option<u64> {
        let text = &self.host.settings.get(CLIENTS_BYTES_MAX)?.value;
        let bytes = match parse_percent(text) {
            Some(percent) => (u128::from(self.host.facts.memory_bytes) * u128::from(percent) / 100) as u64,
            None => text.parse().ok()?,
        };
        (bytes > 0).then(|| bytes.max(SMALLEST_BYTES))
    }

    /// What a client holds. Cost: constant.
    pub fn client_memory(&self, connection: ConnectionId) -> ClientMemory {
        self.host.sessions.get(&connection).map(Session::memory).unwrap_or_default()
    }

    /// A client is closed since all of them take too much memory. Gives its line of `CLIENT LIST`.
    pub fn note_evicted_client(&mut self, now: Now, connection: ConnectionId) -> String {
        self.host.counters.evicted_clients += 1;
        self.host.sessions.get(&connection).map(|session| describe(session, now)).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "clients_test.rs"]
mod clients_test;
