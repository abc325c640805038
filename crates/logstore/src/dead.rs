//! Which records of a segment are dead for certain: what cleaning need not look for in the index.
//!
//! Of the records of a victim most are dead, and to find that out in the index costs a miss of the processor's caches or two
//! each. Whoever makes a record dead knows its place, so a bit is set there, and a search begins with it.
//!
//! Invariants:
//! 1. A marked record is in no index and comes into none again: it was overwritten, deleted, moved or evicted.
//! 2. A mark is one record's: a cell is as long as records are on average or shorter, only records at least as long as a cell
//!    are marked and looked for, and two of those never begin in one cell.
//! 3. A missing mark says nothing: shorter records have none, nor has what died before the store was opened.
//!
//! Memory: two bits for each record of the segment's mean length that would fit into it, at most a 256th of the segment; none
//! before the first record dies.

use crate::location::UNIT_BYTES;
use tierstone_base::prefetch::prefetch_read;

const WORD_BITS: usize = u64::BITS as usize;

/// Marks of one segment.
#[derive(Clone, Debug)]
pub(crate) struct DeadRecords {
    /// A cell has two to the power of this many units.
    shift: u32,
    cells: Box<[u64]>,
}

impl DeadRecords {
    /// No marks yet, for a segment of `segment_bytes` whose records have `mean_units` on average.
    pub fn new(segment_bytes: u64, mean_units: u64) -> Self {
        let shift = mean_units.max(1).ilog2();
        let cells = ((segment_bytes as usize / UNIT_BYTES) >> shift) + 1;
        DeadRecords { shift, cells: vec![0; cells.div_ceil(WORD_BITS)].into() }
    }

    /// Whether a record of so many units is marked when it is dead.
    pub fn takes(&self, units: u32) -> bool {
        units >> self.shift > 0
    }

    /// The record of `units` that begins at `unit` is dead.
    pub fn mark(&mut self, unit: u32, units: usize) {
        let cell = (unit >> self.shift) as usize;
        if self.takes(units as u32)
            && let Some(word) = self.cells.get_mut(cell / WORD_BITS)
        {
            *word |= 1 << (cell % WORD_BITS);
        }
    }

    /// Asks for the mark of a record that begins at `unit`.
    #[inline]
    pub fn prefetch(&self, unit: u32) {
        if let Some(word) = self.cells.get((unit >> self.shift) as usize / WORD_BITS) {
            prefetch_read(word);
        }
    }

    /// Whether the record of `units` that begins at `unit` is dead for certain. `any_length`: a test's mutation.
    pub fn has(&self, unit: u32, units: u32, any_length: bool) -> bool {
        let cell = (unit >> self.shift) as usize;
        let word = self.cells.get(cell / WORD_BITS).copied().unwrap_or(0);
        (self.takes(units) || any_length) && word & (1 << (cell % WORD_BITS)) != 0
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.cells)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SEGMENT_BYTES: u64 = 64 << 10;

    proptest! {
        /// Whatever lies side by side and dies, nothing else is said to be dead, and what is as long as the mean is.
        #[test]
        fn a_mark_is_one_records(lengths in proptest::collection::vec((1..40u32, any::<bool>()), 1..200), mean in 0..60u64) {
            let mut marks = DeadRecords::new(SEGMENT_BYTES, mean);
            let mut unit = 0;
            let mut records = Vec::new();
            for (units, dies) in lengths {
                if u64::from(unit + units) * UNIT_BYTES as u64 <= SEGMENT_BYTES {
                    records.push((unit, units, dies));
                }
                unit += units;
            }
            for &(unit, units, _) in records.iter().filter(|record| record.2) {
                marks.mark(unit, units as usize);
            }
            let found: BTreeSet<u32> = records.iter().filter(|record| marks.has(record.0, record.1, false)).map(|record| record.0).collect();
            let certain = |record: &&(u32, u32, bool)| record.2 && u64::from(record.1) >= mean;
            let died: BTreeSet<u32> = records.iter().filter(|record| record.2).map(|record| record.0).collect();
            let certain: BTreeSet<u32> = records.iter().filter(certain).map(|record| record.0).collect();
            prop_assert!(found.is_subset(&died), "{found:?} {died:?}");
            prop_assert!(certain.is_subset(&found), "{certain:?} {found:?}");
            prop_assert!(marks.bytes() <= SEGMENT_BYTES / 256 + 64);
        }
    }

    #[test]
    fn places_outside_the_segment_are_left_alone() {
        let mut marks = DeadRecords::new(SEGMENT_BYTES, 1);
        marks.mark(u32::MAX, 1);
        assert!(!marks.has(u32::MAX, 1, false));
    }
}
