//! What clients take of memory, for the caller that closes those that take too much (`maxmemory-clients`).
//!
//! The caller owns the buffers of connections and knows their sizes; here is what a session holds beside them, what
//! the setting says, and the count of those that were closed.

use crate::commands::client::describe;
use crate::control::ServerFacts;
use crate::counters::Transport;
use crate::executor::Executor;
use crate::session::{ConnectionId, Session};
use crate::settings::parse_percent;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierstone_base::Now;
use tierstone_engine::Engine;

/// The setting that says what all clients may take together.
pub const CLIENTS_BYTES_MAX: &str = "maxmemory-clients";

/// Nothing below this is set in effect, as in Redis: nobody could say anything to the server any more.
const SMALLEST_BYTES: u64 = 128 << 10;

/// What one client holds beside the buffers of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientMemory {
    /// Bytes: the arguments of a transaction that is being queued, and the names of its channels and its own.
    pub bytes: u64,
    /// Whether it is never closed to free memory (`CLIENT NO-EVICT on`).
    pub is_kept: bool,
}

/// What the buffers of a connection hold and could hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSizes {
    /// What came and is not carried out.
    pub unread: usize,
    /// The buffer of what comes.
    pub input: usize,
    /// Replies that the kernel has not taken.
    pub replies: usize,
    /// Their buffers.
    pub output: usize,
    /// What sealing and opening takes.
    pub tls: usize,
}

/// The sizes of a connection's buffers as their owner last told them, for `CLIENT LIST`. Only one thread writes and
/// reads.
#[derive(Debug, Default)]
pub struct ClientBuffers {
    unread: AtomicUsize,
    input: AtomicUsize,
    replies: AtomicUsize,
    output: AtomicUsize,
    tls: AtomicUsize,
}

impl ClientBuffers {
    /// So much is there to be carried out.
    #[inline]
    pub fn note_input(&self, unread: usize) {
        self.unread.store(unread, Ordering::Relaxed);
    }

    /// The sizes at the end of a turn.
    #[inline]
    pub fn note(&self, sizes: BufferSizes) {
        self.unread.store(sizes.unread, Ordering::Relaxed);
        self.input.store(sizes.input, Ordering::Relaxed);
        self.replies.store(sizes.replies, Ordering::Relaxed);
        self.output.store(sizes.output, Ordering::Relaxed);
        self.tls.store(sizes.tls, Ordering::Relaxed);
    }

    /// What was told last.
    pub fn sizes(&self) -> BufferSizes {
        BufferSizes {
            unread: self.unread.load(Ordering::Relaxed),
            input: self.input.load(Ordering::Relaxed),
            replies: self.replies.load(Ordering::Relaxed),
            output: self.output.load(Ordering::Relaxed),
            tls: self.tls.load(Ordering::Relaxed),
        }
    }
}

impl Session {
    fn memory(&self) -> ClientMemory {
        ClientMemory {
            bytes: (self.transaction_bytes() + self.channel_bytes() + self.name_bytes()) as u64,
            is_kept: self.is_kept,
        }
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

    /// Where the owner of a connection's buffers tells their sizes.
    pub fn client_buffers(&self, connection: ConnectionId) -> Arc<ClientBuffers> {
        let session = self.host.sessions.get(&connection);
        session.map(|session| Arc::clone(&session.buffers)).unwrap_or_default()
    }

    /// What the caller counts of its connections, as it last said.
    pub fn transport(&self) -> Transport {
        self.host.transport
    }

    /// What is known about the server.
    pub fn facts(&self) -> &ServerFacts {
        &self.host.facts
    }

    /// Takes note of what the caller has counted of its connections.
    pub fn note_transport(&mut self, transport: Transport) {
        self.host.transport = transport;
    }

    /// What a client holds. Cost: constant.
    pub fn client_memory(&self, connection: ConnectionId) -> ClientMemory {
        self.host.sessions.get(&connection).map(Session::memory).unwrap_or_default()
    }

    /// Whether a client listens to channels or to what others ask. Cost: constant.
    pub fn is_listening(&self, connection: ConnectionId) -> bool {
        let session = self.host.sessions.get(&connection);
        session.is_some_and(|session| session.is_monitor || !session.channels().is_empty())
    }

    /// A client is closed since all of them take too much memory. Gives its line of `CLIENT LIST`.
    pub fn note_evicted_client(&mut self, now: Now, connection: ConnectionId) -> String {
        self.host.counters.evicted_clients += 1;
        self.host.sessions.get(&connection).map(|session| describe(session, now, 0)).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "clients_test.rs"]
mod clients_test;
