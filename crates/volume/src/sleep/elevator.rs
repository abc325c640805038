//! In which order a waking disk gets what it missed: up and down its addresses, K at a time, going on
//! beside each read that moved the head. Pure.
//!
//! Source: Snyder et al., *QMD*, DaMoN 2011, section 3.3. The printed form starts one entry too far
//! after each turn, and runs past the end of its list when no read places the head anew; `elevator_test`
//! shows both. Here the position is that of the entry written last, and at an end the direction turns.
//!
//! Invariant: every entry is handed out once for each time that it was added, whatever K and the reads.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// Entries to write back, by address.
#[derive(Clone, Debug, Default)]
pub struct Elevator<T> {
    entries: BTreeMap<u64, T>,
    /// Where the head is taken to stand: entries on its side go next.
    head: Option<u64>,
    is_falling: bool,
    turns: u32,
}

impl<T> Elevator<T> {
    /// Nothing to write; the first sweep rises from the lowest address.
    pub fn new() -> Self {
        Elevator { entries: BTreeMap::new(), head: None, is_falling: false, turns: 0 }
    }

    /// Adds an entry, in the place of one of the same address.
    pub fn add(&mut self, address: u64, entry: T) {
        self.entries.insert(address, entry);
    }

    /// An entry that was handed out is still to be done, unless one of the same address has come since.
    pub fn put_back(&mut self, address: u64, entry: T) {
        self.entries.entry(address).or_insert(entry);
    }

    /// How many entries are left.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The addresses of what is left, rising.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.entries.keys().copied()
    }

    /// How often the direction has turned at an end.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// A read has moved the head to `address`: the next entries are those beyond it, in the direction in
    /// which it moved.
    pub fn read_at(&mut self, address: u64) {
        self.is_falling = self.head.is_some_and(|head| address < head);
        self.head = Some(address);
    }

    /// The next entry; at the end of a direction it turns.
    pub fn next_entry(&mut self) -> Option<(u64, T)> {
        let ahead = self.ahead().or_else(|| {
            if !self.entries.is_empty() {
                self.is_falling = !self.is_falling;
                self.turns += 1;
            }
            self.ahead()
        });
        // A single entry where the head stands lies on neither side of it.
        let address = ahead.or_else(|| self.entries.keys().next().copied())?;
        self.head = Some(address);
        Some((address, self.entries.remove(&address)?))
    }

    fn ahead(&self) -> Option<u64> {
        match (self.head, self.is_falling) {
            (None, false) => self.entries.keys().next().copied(),
            (None, true) => self.entries.keys().next_back().copied(),
            (Some(head), false) => self.entries.range((Excluded(head), Unbounded)).next().map(|(&at, _)| at),
            (Some(head), true) => self.entries.range(..head).next_back().map(|(&at, _)| at),
        }
    }
}

#[cfg(test)]
#[path = "elevator_test.rs"]
mod elevator_test;
