//! Walks of the ordered index: ranges, either way, with the records to come prefetched.
//!
//! A walk goes from one gap between entries to another. Both are searched first, so that on the way no key is
//! compared and no record is read but by the caller.

use super::ordered::{NONE, OrderedIndex};
use super::{KeySource, Location};
use std::ops::Bound;
use tierstone_base::prefetch::prefetch_read;
use tierstone_engine::Direction;

/// How many records ahead of the one that is shown are prefetched. Measured by `tierstone lab run scan-variants` on
/// records in DRAM: 6 to 12 are equal, fewer are not enough and from 24 on it is slower (`docs/design/pmstore-index.md`).
pub const PREFETCH_AHEAD: usize = 8;

/// A range of keys, and how it is walked.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// Where it begins, at the least key.
    pub low: Bound<&'a [u8]>,
    /// Where it ends, at the greatest.
    pub high: Bound<&'a [u8]>,
    /// Which end comes first.
    pub direction: Direction,
    /// Records that are shown at most.
    pub limit: usize,
}

/// The gap before entry `at` of a leaf; behind the last entry only in the last leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Gap {
    leaf: u32,
    at: usize,
}

/// Walks from `from` to `to`, or to the end: keys that a [`KeySource`] got wrong may put `to` behind.
struct Walk<'a> {
    index: &'a OrderedIndex,
    from: Gap,
    to: Gap,
    direction: Direction,
}

impl Iterator for Walk<'_> {
    type Item = Location;

    #[inline]
    fn next(&mut self) -> Option<Location> {
        if self.from == self.to {
            return None;
        }
        match self.direction {
            Direction::Forward => {
                let node = self.index.leaves.get(self.from.leaf);
                if self.from.at >= node.leaf.len() {
                    return None;
                }
                let location = node.leaf.location(self.from.at);
                self.from.at += 1;
                if self.from.at == node.leaf.len() && node.next != NONE {
                    self.enter(Gap { leaf: node.next, at: 0 });
                } else if self.from.at == node.leaf.len() / 2 && node.next != NONE {
                    self.index.leaves.get(node.next).leaf.prefetch(0);
                }
                Some(location)
            }
            Direction::Backward => {
                if self.from.at == 0 {
                    let leaf = self.index.leaves.get(self.from.leaf).previous;
                    if leaf == NONE {
                        return None;
                    }
                    self.enter(Gap { leaf, at: self.index.leaves.get(leaf).leaf.len() });
                }
                self.from.at -= 1;
                Some(self.index.leaves.get(self.from.leaf).leaf.location(self.from.at))
            }
        }
    }
}

impl Walk<'_> {
    /// Goes to another leaf and asks for the one after it.
    fn enter(&mut self, gap: Gap) {
        self.from = gap;
        let node = self.index.leaves.get(gap.leaf);
        let beyond = if self.direction == Direction::Forward { node.next } else { node.previous };
        if beyond != NONE {
            prefetch_read(self.index.leaves.get(beyond));
        }
    }
}

impl KeyRange<'_> {
    /// All keys, from the least on.
    pub fn all() -> Self {
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        KeyRange { low, high, direction: Direction::Forward, limit: usize::MAX }
    }

    /// Whether its bounds leave no room for a key.
    fn is_empty(&self) -> bool {
        match (self.low, self.high) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high) | Bound::Included(high)) => {
                low >= high
            }
            _ => false,
        }
    }
}

impl OrderedIndex {
    /// Shows the records of `range` in its order until `visit` answers false. Whether it never did. Records are
    /// prefetched [`PREFETCH_AHEAD`] ahead.
    ///
    /// To go on later, begin behind the last key that was shown. Cost: a search for each bound, then some
    /// nanoseconds a record beside what `visit` does.
    pub fn range<S: KeySource>(
        &self,
        range: &KeyRange<'_>,
        source: &S,
        visit: impl FnMut(Location) -> bool,
    ) -> bool {
        self.range_ahead(range, PREFETCH_AHEAD, source, visit)
    }

    /// As [`range`](Self::range), with `ahead` records prefetched; none for 0.
    pub fn range_ahead<S: KeySource>(
        &self,
        range: &KeyRange<'_>,
        ahead: usize,
        source: &S,
        mut visit: impl FnMut(Location) -> bool,
    ) -> bool {
        if range.is_empty() {
            return true;
        }
        let low = match range.low {
            Bound::Unbounded => self.gap(self.edge_leaf(false), 0),
            Bound::Included(key) => self.gap_at(key, false, source),
            Bound::Excluded(key) => self.gap_at(key, true, source),
        };
        let high = match range.high {
            Bound::Unbounded => self.gap(self.edge_leaf(true), usize::MAX),
            Bound::Included(key) => self.gap_at(key, true, source),
            Bound::Excluded(key) => self.gap_at(key, false, source),
        };
        let direction = range.direction;
        let (from, to) = if direction == Direction::Forward { (low, high) } else { (high, low) };
        let walk = || Walk { index: self, from, to, direction }.take(range.limit);
        if ahead == 0 {
            return walk().all(visit);
        }
        let mut coming = walk();
        coming.by_ref().take(ahead).for_each(|location| source.prefetch(location));
        walk().all(|location| {
            if let Some(location) = coming.next() {
                source.prefetch(location);
            }
            visit(location)
        })
    }

    /// The gap before `key`, or behind it.
    fn gap_at(&self, key: &[u8], behind: bool, source: &impl KeySource) -> Gap {
        let leaf = self.leaf_of(key);
        match self.leaves.get(leaf).leaf.search(key, source) {
            Ok(at) => self.gap(leaf, at + usize::from(behind)),
            Err(at) => self.gap(leaf, at),
        }
    }

    /// The gap before entry `at` of a leaf, named by the leaf after it when there is no such entry.
    fn gap(&self, leaf: u32, at: usize) -> Gap {
        let node = self.leaves.get(leaf);
        if at < node.leaf.len() {
            return Gap { leaf, at };
        }
        if node.next == NONE { Gap { leaf, at: node.leaf.len() } } else { Gap { leaf: node.next, at: 0 } }
    }
}

#[cfg(test)]
#[path = "range_test.rs"]
mod range_test;
