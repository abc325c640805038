//! The hash index: from positions to locations, in the order of positions.
//!
//! A trie (`directory.rs`) names the region of a position; a region (`region.rs`) has up to 64 buckets of a cache line. A lookup reads one line of the trie that is
//! not in the processor's caches, perhaps, and one bucket; one in five goes on to a second.
//!
//! Invariants:
//! 1. Every record that was inserted and not removed is shown to a lookup of its position, with few others.
//! 2. A scan shows records in the order of the buckets of their positions. Whatever grows, shrinks or splits
//!    between two calls, a record that is there from the first call to the last is shown at least once: a cursor
//!    is a position, and what lies before it has been shown.
//!
//! The index believes its caller: two entries of one key, or one location twice, stay two entries.

use super::bucket::{Bucket, Entry, HOME_BITS, fraction_after};
use super::directory::Directory;
use super::region::Region;
use super::slab::Slab;
use super::{Location, PositionSource};
use tierstone_base::Position;

/// Buckets that one call of [`HashIndex::scan`] reads at most, before those that hold overflow.
pub const SCAN_BUCKETS: usize = 1024;

/// From positions to locations.
pub struct HashIndex {
    pub(super) directory: Directory,
    pub(super) regions: Slab<Region, 64>,
    pub(super) bucket_count: u64,
    len: u64,
    /// The halves of a region that is split.
    pub(super) scratch: [Vec<Entry>; 2],
}

impl Default for HashIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl HashIndex {
    /// An empty index. Cost: some 2 KiB.
    pub fn new() -> Self {
        let mut regions = Slab::new();
        let region = regions.add(Region::new(0));
        HashIndex {
            directory: Directory::new(region),
            regions,
            bucket_count: 0,
            len: 0,
            scratch: [Vec::new(), Vec::new()],
        }
    }

    /// Records in the index.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it holds, without what the allocator adds. From ten thousand keys of spread positions
    /// 9.1 to 12 a key, 10.2 on average over all sizes.
    pub fn memory_bytes(&self) -> u64 {
        let scratch: usize = self.scratch.iter().map(Vec::capacity).sum();
        let buckets = self.bucket_count * size_of::<Bucket>() as u64;
        buckets + self.regions.bytes() + self.directory.bytes() + (scratch * size_of::<Entry>()) as u64
    }

    /// Asks the processor for the line that a lookup of `position` reads.
    pub fn prefetch(&self, position: Position) {
        self.regions.get(self.directory.find(position)).prefetch(position);
    }

    /// The location of the key at `position` that `is_this_key` accepts. It is shown candidates: nearly always
    /// the right one or none, seldom another, and every key that has the same position.
    pub fn get(&self, position: Position, is_this_key: impl FnMut(Location) -> bool) -> Option<Location> {
        let region = self.regions.get(self.directory.find(position));
        region.find(position, is_this_key).map(|(_, location)| location)
    }

    /// Adds the record at `location`, which is not in the index, of a key at `position`.
    ///
    /// Cost: now and then a region of 64 buckets is moved (some microseconds) and up to 64 positions are asked of
    /// `source`. Keys that share one position cost as many reads as they are, and more at times: `reshape.rs`.
    pub fn insert(&mut self, position: Position, location: Location, source: &impl PositionSource) {
        loop {
            let id = self.directory.find(position);
            let region = self.regions.get_mut(id);
            if region.has_room() {
                region.add(Entry::new(position, region.prefix_bits(), location));
                self.len += 1;
                return;
            }
            self.make_room(id, position, source);
        }
    }

    /// Points the entry of a record that moved from `old`, of a key at `position`, to `new`. Whether it was there.
    pub fn replace(&mut self, position: Position, old: Location, new: Location) -> bool {
        let region = self.regions.get_mut(self.directory.find(position));
        let found = region.find(position, |location| location == old);
        if let Some((place, _)) = found {
            region.overwrite(place, position, new);
        }
        found.is_some()
    }

    /// Removes the record at `location`, of a key at `position`. Whether it was there.
    pub fn remove(&mut self, position: Position, location: Location) -> bool {
        let id = self.directory.find(position);
        let region = self.regions.get_mut(id);
        let Some((place, _)) = region.find(position, |found| found == location) else { return false };
        region.remove(place);
        self.len -= 1;
        self.shrink(id, position);
        true
    }

    /// Shows the records from position `cursor` on until `count` or more were shown, and at least those of one
    /// bucket. The cursor to go on from; `None` at the end. It reads at most [`SCAN_BUCKETS`] buckets, so that a
    /// page of a sparse index may be short, or empty.
    pub fn scan(&self, cursor: Position, count: usize, mut visit: impl FnMut(Location)) -> Option<Position> {
        let (mut at, mut shown) = (cursor, 0);
        for _ in 0..SCAN_BUCKETS {
            let region = self.regions.get(self.directory.find(at));
            let start = u128::from(region.start(at));
            let buckets = region.bucket_count();
            let mut fraction = 1 << HOME_BITS;
            if buckets > 0 {
                let home = region.home(at);
                region.entries_at_home(home, |location| {
                    shown += 1;
                    visit(location);
                });
                fraction = fraction_after(home, buckets);
            }
            let part_bits = 64 - region.prefix_bits() - HOME_BITS;
            at = Position(u64::try_from(start + (u128::from(fraction) << part_bits)).ok()?);
            if shown >= count {
                break;
            }
        }
        Some(at)
    }
}

#[cfg(test)]
#[path = "hash_test.rs"]
mod hash_test;
