//! The fast way to fill an empty index: from entries in the order of their positions, for recovery.
//!
//! Regions are made whole, one after the other, instead of growing by splits: no entry is moved twice
//! and every tag knows all its bits.
//!
//! Invariant: entries before `start` are in the index; those at or after it wait, in order.

use super::bucket::Entry;
use super::hash::HashIndex;
use super::region::REGION_ENTRIES;
use super::stash::last_of;
use super::value::{HashIndexSettings, IndexFull, IndexValue};
use tierstone_base::Position;

/// See the [module](self).
pub struct SortedBuilder {
    index: HashIndex,
    /// Where the next region begins.
    start: u64,
    waiting: Vec<(Position, IndexValue)>,
    region_entries: Vec<Entry>,
}

impl SortedBuilder {
    /// Begins an index.
    pub fn new(settings: HashIndexSettings) -> Self {
        SortedBuilder {
            index: HashIndex::new(settings),
            start: 0,
            waiting: Vec::with_capacity(2 * REGION_ENTRIES),
            region_entries: Vec::with_capacity(REGION_ENTRIES),
        }
    }

    /// Adds an entry. Cost: about 15 ns. One out of order is inserted by itself, so that a caller's
    /// mistake costs time and nothing else.
    ///
    /// # Errors
    /// [`IndexFull`] when it does not fit the memory limit.
    pub fn push(&mut self, position: Position, value: IndexValue) -> Result<(), IndexFull> {
        let last = self.waiting.last().map_or(self.start, |&(position, _)| position.0);
        if position.0 < last {
            return self.index.insert(position, value);
        }
        self.waiting.push((position, value));
        // One more than a region takes, so that it is known how wide the region may be.
        if self.waiting.len() > REGION_ENTRIES { self.make_region() } else { Ok(()) }
    }

    /// The index of all entries.
    ///
    /// # Errors
    /// [`IndexFull`] when they do not fit the memory limit.
    pub fn finish(mut self) -> Result<HashIndex, IndexFull> {
        while !self.waiting.is_empty() {
            self.make_region()?;
        }
        Ok(self.index)
    }

    /// Makes the widest region that the waiting entries fill, and moves on behind it.
    fn make_region(&mut self) -> Result<(), IndexFull> {
        let layout = self.index.layout();
        let (prefix_bits, count) = widest_region(layout.prefix_bits_max(), self.start, &self.waiting);
        if count > REGION_ENTRIES || prefix_bits > layout.prefix_bits_max() {
            for (position, value) in self.waiting.drain(..count) {
                self.index.insert(position, value)?;
            }
        } else {
            self.region_entries.clear();
            let entries = self.waiting.drain(..count);
            self.region_entries.extend(
                entries.map(|(position, value)| {
                    Entry::new(layout, layout.fresh_tag(position, prefix_bits), value)
                }),
            );
            self.fill_or_insert(prefix_bits)?;
        }
        self.start = last_of(self.start, prefix_bits).saturating_add(1);
        Ok(())
    }

    fn fill_or_insert(&mut self, prefix_bits: u32) -> Result<(), IndexFull> {
        let entries = &self.region_entries;
        if entries.is_empty() || self.index.fill_region(self.start, prefix_bits, entries)? {
            return Ok(());
        }
        for entry in entries {
            let first = entry.first_position(self.start, prefix_bits);
            self.index.insert_known(first, prefix_bits + entry.known_bits(), entry.value())?;
        }
        Ok(())
    }
}

/// The widest aligned range from `start` that a region can hold, with how many of `waiting`, which
/// are in order, are in it.
fn widest_region(prefix_bits_max: u32, start: u64, waiting: &[(Position, IndexValue)]) -> (u32, usize) {
    let aligned = 64 - start.trailing_zeros().min(64);
    for prefix_bits in aligned..=prefix_bits_max {
        let last = last_of(start, prefix_bits);
        let count = waiting.partition_point(|(position, _)| position.0 <= last);
        if count <= REGION_ENTRIES {
            return (prefix_bits, count);
        }
    }
    let prefix_bits = aligned.max(prefix_bits_max);
    let last = last_of(start, prefix_bits);
    (prefix_bits, waiting.partition_point(|(position, _)| position.0 <= last))
}
