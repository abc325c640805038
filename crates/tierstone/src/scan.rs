//! Walks through all keys: cursors, pages, and what the iterators share.
//!
//! Keys come in the order of their positions, which is an order of no meaning to a caller. The iterators
//! walk snapshots. A walk by cursor takes none: a key that exists during the whole walk is given at
//! least once (twice at times, when the index grew meanwhile); one that comes or goes during the walk
//! may be given or not.

use std::collections::VecDeque;
use tierstone_base::{Error, Position, Result};

/// Entries that the iterators fetch at a time.
pub(crate) const PAGE_ENTRIES: u32 = 256;

/// Where a walk goes on. It stays good when the store is closed and opened again, with any number of
/// shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub(crate) Position);

impl Cursor {
    /// The start.
    pub const START: Cursor = Cursor(Position(0));

    /// The cursor as a number, to keep it.
    pub fn to_u64(self) -> u64 {
        self.0.0
    }

    /// The cursor from its number; any number is a place to begin.
    pub fn from_u64(number: u64) -> Self {
        Cursor(Position(number))
    }

    /// Where a walk goes on after a page of `shard`.
    pub(crate) fn after(self, shard: u16, shards: u16, next: Option<Position>) -> Option<Cursor> {
        let following = (shard + 1 < shards).then(|| Position::first_of_shard(shard + 1, shards));
        // An index rounds up, beyond what its shard owns at times: the next shard's keys there are not
        // in it.
        next.filter(|next| next.shard(shards) == shard).or(following).map(Cursor)
    }
}

/// One key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

impl Entry {
    pub(crate) fn new(key: Vec<u8>, value: Vec<u8>, expiry_ms: u64) -> Self {
        Entry { key, value, expires_at_ms: (expiry_ms != 0).then_some(expiry_ms) }
    }
}

/// One page of a walk.
#[derive(Clone, Debug)]
pub struct Page {
    /// What was found.
    pub entries: Vec<Entry>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
    /// The first record that could not be read, if any; the others are given all the same.
    pub damaged: Option<Error>,
}

/// The entries of the last page, and where the next one begins.
#[derive(Debug)]
pub(crate) struct Buffered {
    entries: VecDeque<Result<Entry>>,
    cursor: Option<Cursor>,
}

impl Buffered {
    pub fn new() -> Self {
        Buffered { entries: VecDeque::new(), cursor: Some(Cursor::START) }
    }

    /// The next entry; `fetch` gets pages.
    pub fn next(&mut self, mut fetch: impl FnMut(Cursor) -> Result<Page>) -> Option<Result<Entry>> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(entry);
            }
            match fetch(self.cursor.take()?) {
                Ok(page) => {
                    self.cursor = page.next;
                    self.entries.extend(page.entries.into_iter().map(Ok));
                    self.entries.extend(page.damaged.map(Err));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
