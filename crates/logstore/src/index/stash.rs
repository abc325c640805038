//! Entries that no bucket can hold: those whose place in their region is no longer known, and
//! those beyond what a region of equal positions takes.
//!
//! Invariants:
//! 1. An entry knows the first `known` bits of its position; the others read as zero.
//! 2. It fits a position when these bits agree, so that none is missed.
//! 3. Equal entries are counted, not merged: insert adds, remove takes one.

use super::value::{IndexValue, VALUE_BITS};
use std::collections::BTreeMap;
use tierstone_base::Position;

/// Memory set down for an entry, in bytes: a tree node of 12 words and 11 entries of 20 bytes is at
/// least half full.
pub const STASH_ENTRY_BYTES: u64 = 56;

/// First position, then known bits and value in one word.
type Key = (u64, u64);

/// The entries outside of buckets.
#[derive(Default)]
pub struct Stash {
    entries: BTreeMap<Key, u32>,
    /// Distinct entries by known bits, 0 to 64.
    by_known: Vec<u32>,
    /// Bit `n` is set when entries that know `n` bits exist.
    present: u128,
    count: u64,
}

/// The first `known` bits of `position`.
pub fn prefix(position: u64, known: u32) -> u64 {
    if known == 0 { 0 } else { position >> (64 - known) << (64 - known) }
}

/// The last position that shares the first `known` bits of `first`.
pub fn last_of(first: u64, known: u32) -> u64 {
    first | u64::MAX.checked_shr(known).unwrap_or(0)
}

fn key(position: u64, known: u32, value: IndexValue) -> Key {
    (prefix(position, known), (u64::from(known) << VALUE_BITS) | value.raw())
}

/// An entry of the stash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StashEntry {
    pub first: u64,
    pub known: u32,
    pub value: IndexValue,
}

fn entry_of(key: Key) -> StashEntry {
    StashEntry { first: key.0, known: (key.1 >> VALUE_BITS) as u32, value: IndexValue::from_low_bits(key.1) }
}

impl Stash {
    /// Entries, equal ones counted each.
    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn bytes(&self) -> u64 {
        self.entries.len() as u64 * STASH_ENTRY_BYTES
    }

    /// Whether an entry knows less than its whole position.
    pub fn has_stale(&self) -> bool {
        self.present & !(1 << 64) != 0
    }

    pub fn stale_len(&self) -> u64 {
        let whole = self.by_known.get(64).copied().unwrap_or(0);
        (self.entries.len() as u64).saturating_sub(u64::from(whole))
    }

    pub fn insert(&mut self, position: u64, known: u32, value: IndexValue) {
        let copies = self.entries.entry(key(position, known, value)).or_insert(0);
        *copies += 1;
        self.count += 1;
        if *copies == 1 {
            self.by_known.resize(65, 0);
            self.by_known[known as usize] += 1;
            self.present |= 1 << known;
        }
    }

    /// Inserts all `entries`: position, known bits, value. Into an empty stash in one go, since one
    /// by one a full region takes longer than any single operation should.
    pub fn insert_all(&mut self, entries: impl Iterator<Item = (u64, u32, IndexValue)>) {
        if !self.is_empty() {
            entries.for_each(|(position, known, value)| self.insert(position, known, value));
            return;
        }
        let mut keys: Vec<Key> =
            entries.map(|(position, known, value)| key(position, known, value)).collect();
        keys.sort_unstable();
        self.count = keys.len() as u64;
        self.by_known.resize(65, 0);
        self.entries =
            keys.chunk_by(|one, other| one == other).map(|run| (run[0], run.len() as u32)).collect();
        for key in self.entries.keys() {
            let known = entry_of(*key).known;
            self.by_known[known as usize] += 1;
            self.present |= 1 << known;
        }
    }

    fn remove_key(&mut self, key: Key) -> bool {
        let Some(copies) = self.entries.get_mut(&key) else { return false };
        *copies -= 1;
        self.count -= 1;
        if *copies == 0 {
            self.entries.remove(&key);
            let known = (key.1 >> VALUE_BITS) as usize;
            self.by_known[known] -= 1;
            if self.by_known[known] == 0 {
                self.present &= !(1 << known);
            }
        }
        true
    }

    fn known_lengths(&self) -> impl Iterator<Item = u32> + use<> {
        let mut present = self.present;
        std::iter::from_fn(move || {
            (present != 0).then(|| {
                let known = present.trailing_zeros();
                present &= present - 1;
                known
            })
        })
    }

    /// All values that fit `position`.
    pub fn fitting(&self, position: Position) -> impl Iterator<Item = IndexValue> + '_ {
        self.known_lengths().flat_map(move |known| {
            let first = key(position.0, known, IndexValue::from_low_bits(0));
            let last = key(position.0, known, IndexValue::from_low_bits(u64::MAX));
            self.entries
                .range(first..=last)
                .flat_map(|(&key, &copies)| (0..copies).map(move |_| entry_of(key).value))
        })
    }

    fn find(&self, position: Position, value: IndexValue) -> Option<Key> {
        self.known_lengths()
            .map(|known| key(position.0, known, value))
            .find(|key| self.entries.contains_key(key))
    }

    /// Whether an entry of `value` may be the one that knows `known` bits of `first`.
    pub fn may_contain(&self, first: u64, known: u32, value: IndexValue) -> bool {
        self.find(Position(first), value).is_some_and(|key| entry_of(key).known <= known)
            || self.starting_in(first, last_of(first, known)).any(|entry| entry.value == value)
    }

    pub fn remove(&mut self, position: Position, value: IndexValue) -> bool {
        self.find(position, value).is_some_and(|key| self.remove_key(key))
    }

    /// Whether an entry that knows less than its whole position fits; takes it out.
    pub fn remove_stale(&mut self, position: Position, value: IndexValue) -> bool {
        let found = self.find(position, value);
        found.is_some_and(|key| entry_of(key).known < 64 && self.remove_key(key))
    }

    /// Gives an entry another value; what is known of its position stays.
    pub fn replace(&mut self, position: Position, from: IndexValue, to: IndexValue) -> bool {
        let Some(key) = self.find(position, from) else { return false };
        self.remove_key(key);
        let entry = entry_of(key);
        self.insert(entry.first, entry.known, to);
        true
    }

    /// Whether an entry may lie in the range that the first `known` bits of `start` name.
    pub fn overlaps(&self, start: u64, known: u32) -> bool {
        self.entries.range((start, 0)..=(last_of(start, known), u64::MAX)).next().is_some()
            || self.straddling(start).next().is_some()
    }

    /// Entries, each as often as it exists, whose first position lies in `first..=last`.
    pub fn starting_in(&self, first: u64, last: u64) -> impl Iterator<Item = StashEntry> + '_ {
        self.entries
            .range((first, 0)..=(last, u64::MAX))
            .flat_map(|(&key, &copies)| (0..copies).map(move |_| entry_of(key)))
    }

    /// Entries whose first position is before `position` and whose last is not.
    pub fn straddling(&self, position: u64) -> impl Iterator<Item = StashEntry> + '_ {
        self.known_lengths().flat_map(move |known| {
            let first = prefix(position, known);
            let bits = u64::from(known) << VALUE_BITS;
            self.entries
                .range((first, bits)..=(first, bits | IndexValue::MAX_RAW))
                .filter(move |_| first < position)
                .flat_map(|(&key, &copies)| (0..copies).map(move |_| entry_of(key)))
        })
    }
}
