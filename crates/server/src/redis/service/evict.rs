//! Closing clients when all of them take too much memory: a shard's part of it.
//!
//! Invariants:
//! 1. Nothing is written down and nothing asked while `maxmemory-clients` is off.
//! 2. Whoever is closed is the largest of his shard, and no larger one that may be closed is at another shard, by the
//!    number of bits of the size. Who has said `CLIENT NO-EVICT on` is neither counted nor closed: to close others for
//!    what he takes would free nothing of it.

use super::super::clients::{ClientLedger, Verdict};
use super::super::mail::{ToNode, ToShard};
use super::{RedisConnection, RedisService};
use crate::connections::Connections;
use crate::service::{ConnectionId, ConnectionMemory};
use std::sync::Arc;
use tierstone_base::Now;
use tierstone_engine::Engine;

/// How often a shard tells of clients that it has closed, at most, in microseconds.
const TELL_INTERVAL_US: u64 = 1_000_000;
/// How many of them it tells the lines of, at most, and how many bytes of each.
const LINES_MAX: usize = 8;
const LINE_BYTES_MAX: usize = 512;

/// Clients that were closed and not told of yet.
#[derive(Debug, Default)]
struct Closed {
    count: u64,
    /// What they took.
    bytes: u64,
    /// What all took when the last one was closed.
    total_bytes: u64,
    /// The lines of the first ones.
    lines: Vec<String>,
}

impl Closed {
    fn add(&mut self, mut line: String, bytes: u64, total_bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.total_bytes = total_bytes;
        if self.lines.len() < LINES_MAX {
            line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
            self.lines.push(line);
        }
    }
}

/// What a shard's service has for it.
#[derive(Debug)]
pub(super) struct Eviction {
    ledger: Arc<ClientLedger>,
    /// What all clients may take; `None`: there is no bound.
    bytes_max: Option<u64>,
    /// Whether the bound has changed: everybody is looked at once.
    has_changed: bool,
    closed: Closed,
    tell_due_us: u64,
}

impl Eviction {
    pub fn new(ledger: Arc<ClientLedger>, bytes_max: Option<u64>) -> Self {
        Eviction { ledger, bytes_max, has_changed: false, closed: Closed::default(), tell_due_us: 0 }
    }

    /// When the shard is to tell of clients that it has closed.
    pub fn next_step_at_us(&self) -> Option<u64> {
        (self.closed.count > 0).then_some(self.tell_due_us)
    }

    /// The shard is stopping: what is to be told is told at the next step.
    pub fn stop(&mut self) {
        self.tell_due_us = 0;
    }
}

impl<E: Engine> RedisService<E> {
    /// Notes what the setting says now.
    pub(super) fn follow_clients_bytes_max(&mut self) {
        self.eviction.bytes_max = self.executor.clients_bytes_max();
        self.eviction.has_changed = true;
        self.eviction.ledger.tell(self.shard, 0, 0);
    }

    /// Another shard has found that a client of this one is to be closed: the end of the turn will see to it.
    pub(super) fn look_at_clients(&self) {
        self.eviction.ledger.has_looked(self.shard);
    }

    /// Has everybody looked at after a change, since nobody was while there was no bound.
    pub(super) fn look_at_all_clients(&mut self, connections: &mut Connections<RedisConnection>) {
        if std::mem::take(&mut self.eviction.has_changed) {
            connections.look_at_all();
        }
    }

    /// What is held for a connection beside its buffers.
    pub(super) fn client_memory(&self, connection: &RedisConnection) -> ConnectionMemory {
        if self.eviction.bytes_max.is_none() {
            return ConnectionMemory::default();
        }
        let memory = self.executor.client_memory(connection.name);
        let bytes = memory.bytes as usize + connection.incoming_bytes();
        ConnectionMemory { bytes, is_kept: memory.is_kept }
    }

    /// The client that is to be closed now, if any.
    pub(super) fn client_to_close(
        &mut self,
        now: Now,
        connections: &Connections<RedisConnection>,
    ) -> Option<ConnectionId> {
        let bytes_max = self.eviction.bytes_max?;
        let ledger = &self.eviction.ledger;
        ledger.tell(self.shard, connections.memory_bytes() as u64, connections.largest_class());
        let total_bytes = match ledger.judge(self.shard, bytes_max) {
            Verdict::Own { total_bytes } => total_bytes,
            Verdict::Wake(shard) => {
                if let Some(mail) = self.shards.get(usize::from(shard)) {
                    mail.send(&mut vec![ToShard::LookAtClients]);
                }
                return None;
            }
            Verdict::Fine | Verdict::Wait => return None,
        };
        let (id, bytes) = connections.largest()?;
        let line = self.executor.note_evicted_client(now, connections.state(id)?.name);
        self.eviction.closed.add(line, bytes as u64, total_bytes);
        Some(id)
    }

    /// Tells of the clients that were closed, together.
    pub(super) fn tell_closed(&mut self, now: Now) {
        if self.eviction.next_step_at_us().is_none_or(|due_us| due_us > now.monotonic_us) {
            return;
        }
        self.eviction.tell_due_us = now.monotonic_us + TELL_INTERVAL_US;
        let Closed { count, bytes, total_bytes, lines } = std::mem::take(&mut self.eviction.closed);
        let bytes_max = self.eviction.bytes_max.unwrap_or(0);
        let (shard, all) = (self.shard, self.executor.counters().evicted_clients);
        self.tell_node(ToNode::Evicted { shard, count, lines, bytes, total_bytes, bytes_max, all });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_are_named() {
        let mut closed = Closed::default();
        for number in 0..20 {
            closed.add(format!("id={number} name={}", "é".repeat(1_000)), 10, 1_000 + number);
        }
        assert_eq!((closed.count, closed.bytes, closed.total_bytes), (20, 200, 1_019));
        assert_eq!(closed.lines.len(), LINES_MAX);
        assert!(closed.lines.iter().all(|line| line.len() <= LINE_BYTES_MAX));
        assert!(closed.lines[7].starts_with("id=7 "));
    }
}
