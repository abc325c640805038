//! Walks through all keys: cursors, pages, and what the iterators share.
//!
//! Keys come in the order of their positions, which is an order of no meaning to a caller. The iterators
//! walk snapshots. A walk by cursor takes none: a key that exists during the whole walk is given at
//! least once (twice at times, when the index grew meanwhile); one that comes or goes during the walk
//! may be given or not.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use tierstone_base::{Error, Position, Result};

/// Entries that the iterators fetch at a time: few at first, for nobody knows how long values are, then as many as had
/// [`PAGE_BYTES`] together before.
const PAGE_ENTRIES: RangeInclusive<u32> = 4..=256;
const PAGE_ENTRIES_AT_FIRST: u32 = 16;
const PAGE_BYTES: usize = 4 << 20;

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
    /// Entries to ask for.
    count: u32,
}

impl Buffered {
    pub fn new() -> Self {
        Buffered { entries: VecDeque::new(), cursor: Some(Cursor::START), count: PAGE_ENTRIES_AT_FIRST }
    }

    /// The next entry; `fetch` gets pages of about so many entries.
    pub fn next(&mut self, mut fetch: impl FnMut(Cursor, u32) -> Result<Page>) -> Option<Result<Entry>> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(entry);
            }
            match fetch(self.cursor.take()?, self.count) {
                Ok(page) => {
                    self.count = count_after(&page, self.count);
                    self.cursor = page.next;
                    self.entries.extend(page.entries.into_iter().map(Ok));
                    self.entries.extend(page.damaged.map(Err));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// How many entries to ask for after a page that was asked for `count`.
fn count_after(page: &Page, count: u32) -> u32 {
    let bytes: usize = page.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    let fit = PAGE_BYTES.saturating_mul(page.entries.len()) / bytes.max(1);
    let fit = if page.entries.is_empty() { u32::MAX } else { u32::try_from(fit).unwrap_or(u32::MAX) };
    fit.min(2 * count).clamp(*PAGE_ENTRIES.start(), *PAGE_ENTRIES.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_as_long_as_their_bytes_allow() {
        let page = |entries: usize, value_bytes: usize| {
            let entry = Entry::new(b"key".to_vec(), vec![0; value_bytes], 0);
            Page { entries: vec![entry; entries], next: None, damaged: None }
        };
        for ((entries, value_bytes), count, after) in [
            ((16, 100), 16, 32),
            ((200, 100), 200, 256),
            ((0, 0), 16, 32),
            ((16, 4 << 20), 16, 4),
            ((4, 1 << 20), 4, 4),
            ((4, 1 << 16), 4, 8),
            ((256, 1 << 16), 256, 63),
        ] {
            assert_eq!(count_after(&page(entries, value_bytes), count), after, "{entries} of {value_bytes}");
        }
    }
}
