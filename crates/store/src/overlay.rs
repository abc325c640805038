//! The writes that a command has collected and that nobody else sees yet.
//!
//! Invariants:
//! 1. Reads of the same command see the newest pending write of a key.
//! 2. Writes are applied in the order in which they were collected.
//! 3. Keys and values are copied into one arena that is reused: once warm, collecting allocates
//!    nothing.

use tierstone_base::collections::Map;
use tierstone_base::{KeyspaceId, Position};
use tierstone_engine::{Key, ValueKind, Write, WriteKind};

/// Pending writes up to which a search from the end beats an index.
const SEARCHED_WRITES: usize = 24;
/// Bytes of the arena that stay allocated from one command to the next.
const KEPT_ARENA_BYTES: usize = 256 << 10;
/// Pending writes whose place stays allocated from one command to the next.
const KEPT_WRITES: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Put { value: Span, expiry_ms: u64, kind: ValueKind },
    Delete,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    keyspace: KeyspaceId,
    position: Position,
    key: Span,
    change: Change,
}

/// A place to which [`Overlay::roll_back`] can return.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    writes: usize,
    arena: usize,
}

/// Pending writes, in order.
#[derive(Debug, Default)]
pub struct Overlay {
    arena: Vec<u8>,
    writes: Vec<Pending>,
    /// The newest write of each position among the first `indexed` ones.
    index: Map<(KeyspaceId, Position), usize>,
    indexed: usize,
}

impl Overlay {
    /// Whether nothing is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// How many writes are pending.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.roll_back(Mark { writes: 0, arena: 0 });
        if self.arena.capacity() > KEPT_ARENA_BYTES {
            self.arena = Vec::new();
        }
        if self.writes.capacity() > KEPT_WRITES {
            self.writes = Vec::new();
            self.index = Map::default();
        }
    }

    /// The present place.
    pub fn mark(&self) -> Mark {
        Mark { writes: self.writes.len(), arena: self.arena.len() }
    }

    /// Forgets what was collected since `mark`.
    pub fn roll_back(&mut self, mark: Mark) {
        self.writes.truncate(mark.writes);
        self.arena.truncate(mark.arena);
        if self.indexed > mark.writes {
            self.index.clear();
            self.indexed = 0;
        }
    }

    /// Collects a new value of `key`.
    pub fn put(&mut self, key: Key<'_>, value: &[u8], expiry_ms: u64, kind: ValueKind) {
        let value = self.keep(value);
        self.push(key, Change::Put { value, expiry_ms, kind });
    }

    /// Collects the loss of `key`.
    pub fn delete(&mut self, key: Key<'_>) {
        self.push(key, Change::Delete);
    }

    /// The newest pending change of `key`, if any.
    #[inline]
    pub fn find(&mut self, key: Key<'_>) -> Option<WriteKind<'_>> {
        if self.writes.is_empty() {
            return None;
        }
        let found = self.find_index(key)?;
        Some(self.kind(self.writes[found].change))
    }

    /// All pending writes in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Write<'_>> + ExactSizeIterator {
        self.writes.iter().map(|pending| Write { key: self.key(pending), kind: self.kind(pending.change) })
    }

    fn find_index(&mut self, key: Key<'_>) -> Option<usize> {
        let is_it = |overlay: &Overlay, at: usize| {
            let pending = &overlay.writes[at];
            pending.position == key.position
                && pending.keyspace == key.keyspace
                && overlay.bytes(pending.key) == key.bytes
        };
        if self.writes.len() > SEARCHED_WRITES {
            for (at, pending) in self.writes.iter().enumerate().skip(self.indexed) {
                self.index.insert((pending.keyspace, pending.position), at);
            }
            self.indexed = self.writes.len();
            let newest = *self.index.get(&(key.keyspace, key.position))?;
            if is_it(self, newest) {
                return Some(newest);
            }
            // Another key shares the position: rare enough for the search below.
        }
        (0..self.writes.len()).rev().find(|at| is_it(self, *at))
    }

    fn push(&mut self, key: Key<'_>, change: Change) {
        let span = self.keep(key.bytes);
        self.writes.push(Pending { keyspace: key.keyspace, position: key.position, key: span, change });
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        Span { start, len: bytes.len() }
    }

    fn bytes(&self, span: Span) -> &[u8] {
        &self.arena[span.start..span.start + span.len]
    }

    fn key(&self, pending: &Pending) -> Key<'_> {
        Key { keyspace: pending.keyspace, position: pending.position, bytes: self.bytes(pending.key) }
    }

    fn kind(&self, change: Change) -> WriteKind<'_> {
        match change {
            Change::Put { value, expiry_ms, kind } => {
                WriteKind::Put { value: self.bytes(value), expiry_ms, kind }
            }
            Change::Delete => WriteKind::Delete,
        }
    }
}

#[cfg(test)]
#[path = "overlay_test.rs"]
mod overlay_test;
