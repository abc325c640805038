//! How the hash index grows and shrinks: one region, or a region and its sibling, a step.
//!
//! Invariants:
//! 1. A step reads at most two regions of 64 buckets and writes as many. An insert takes one step, or one for each
//!    bit that all keys of a full region share behind its prefix, 41 at most. Only keys that share 41 bits lie in
//!    longer regions: those are as long as they have keys, and grow by a quarter.
//! 2. A split reads the positions of at most 64 records, and beyond that only of those whose home would be
//!    unknown. Entries that know fewer than 14 bits are the ones read, so that four splits in a row find all of
//!    a region's before any knows fewer than ten.
//! 3. A region shrinks a size when it fits two sizes lower, and siblings join below 45 % of what splits them: no
//!    insert and remove in turn reshape for ever.

use super::PositionSource;
use super::bucket::{Entry, HOME_BITS, PREFIX_BITS_MAX};
use super::hash::HashIndex;
use super::region::{REGION_BUCKETS, Region, limit, size_above, size_below};
use tierstone_base::Position;

/// Entries that know fewer bits are made fresh when their region is split: then one lookup in thirty reads a
/// record that is not its own, at most.
const REFRESHED_BELOW: u32 = 14;
/// Positions that a split reads, unless more are needed.
const REFRESHED_MAX: usize = 64;
/// Two siblings with at most this many entries become one region.
const MERGED_ENTRIES: usize = limit(REGION_BUCKETS) * 45 / 100;
/// Keys that a region is expected to have when it is made for many: half as many to as many are.
const EXPECTED_ENTRIES: u64 = limit(REGION_BUCKETS) as u64 * 8 / 10;
/// No more regions than two to this are made before there are keys.
const EXPECTED_BITS_MAX: u32 = 28;

impl HashIndex {
    /// Gives the full region `id` of `position` more buckets, or fewer entries.
    pub(super) fn make_room(&mut self, id: u32, position: Position, source: &impl PositionSource) {
        let region = self.regions.get(id);
        let prefix_bits = region.prefix_bits();
        if region.bucket_count() >= REGION_BUCKETS && prefix_bits < PREFIX_BITS_MAX {
            self.split(id, position, source);
        } else {
            let size = size_above(region.bucket_count());
            let grown = Region::sized(prefix_bits, size, region.entries());
            self.put(id, grown);
        }
    }

    /// Divides an empty index for `count` keys of spread positions, so that few of them make it split: keys in the order
    /// of positions would fill one region again and again.
    pub fn expect(&mut self, count: u64) {
        if !self.is_empty() || self.bucket_count > 0 {
            return;
        }
        let parts = count / EXPECTED_ENTRIES;
        let prefix_bits = (64 - parts.leading_zeros()).min(EXPECTED_BITS_MAX);
        self.divide(Position(0), 0, prefix_bits);
    }

    /// Divides the empty region that begins at `start`, of `prefix_bits`, down to `bits`.
    fn divide(&mut self, start: Position, prefix_bits: u32, bits: u32) {
        if prefix_bits >= bits {
            return;
        }
        let id = self.directory.find(start);
        *self.regions.get_mut(id) = Region::new(prefix_bits + 1);
        let sibling = self.regions.add(Region::new(prefix_bits + 1));
        self.directory.split(start, prefix_bits, id, sibling);
        self.divide(start, prefix_bits + 1, bits);
        self.divide(Position(start.0 | 1 << (63 - prefix_bits)), prefix_bits + 1, bits);
    }

    /// Puts `region` in the place of number `id`.
    fn put(&mut self, id: u32, region: Region) {
        self.bucket_count += region.bucket_count() as u64;
        let old = std::mem::replace(self.regions.get_mut(id), region);
        self.bucket_count -= old.bucket_count() as u64;
    }

    fn split(&mut self, id: u32, position: Position, source: &impl PositionSource) {
        let region = self.regions.get(id);
        let prefix_bits = region.prefix_bits();
        let mut halves = [std::mem::take(&mut self.scratch[0]), std::mem::take(&mut self.scratch[1])];
        for entry in region.entries() {
            halves[usize::from(entry.is_upper())].push(entry);
        }
        refresh(&mut halves, prefix_bits, source);
        let [lower, upper] =
            halves.each_ref().map(|half| Region::of(prefix_bits + 1, half.len(), half.iter().copied()));
        self.put(id, lower);
        let sibling = self.regions.add(Region::new(prefix_bits + 1));
        self.put(sibling, upper);
        self.directory.split(position, prefix_bits, id, sibling);
        halves.iter_mut().for_each(Vec::clear);
        self.scratch = halves;
    }

    /// Gives buckets of a region back when it has too many, and joins it with its sibling when both are small.
    pub(super) fn shrink(&mut self, mut id: u32, position: Position) {
        let region = self.regions.get(id);
        let below = size_below(region.bucket_count());
        if region.len() > limit(size_below(below)) {
            return;
        }
        let size = if region.len() == 0 { 0 } else { below };
        let shrunk = Region::sized(region.prefix_bits(), size, region.entries());
        self.put(id, shrunk);
        while let Some(merged) = self.merge(id, position) {
            id = merged;
        }
    }

    fn merge(&mut self, id: u32, position: Position) -> Option<u32> {
        let region = self.regions.get(id);
        let prefix_bits = region.prefix_bits();
        if prefix_bits == 0 || region.len() > MERGED_ENTRIES {
            return None;
        }
        let bit = 1 << (64 - prefix_bits);
        let upper = position.0 & bit != 0;
        let sibling_id = self.directory.find(Position(position.0 ^ bit));
        let sibling = self.regions.get(sibling_id);
        let count = region.len() + sibling.len();
        if sibling.prefix_bits() != prefix_bits || count > MERGED_ENTRIES {
            return None;
        }
        let entries = region.entries().map(|entry| entry.ascended(upper));
        let others = sibling.entries().map(|entry| entry.ascended(!upper));
        let joined = Region::of(prefix_bits - 1, count, entries.chain(others));
        self.put(id, joined);
        self.put(sibling_id, Region::default());
        self.regions.take(sibling_id);
        self.directory.merge(position, prefix_bits, id);
        Some(id)
    }
}

/// Moves the entries down into their halves of a region that had `prefix_bits`, and reads again the positions of
/// which too little is known.
fn refresh(halves: &mut [Vec<Entry>; 2], prefix_bits: u32, source: &impl PositionSource) {
    let known_after = |entry: &Entry| entry.known_bits() - 1;
    let stale = || halves.iter().flatten().filter(|entry| known_after(entry) < REFRESHED_BELOW);
    stale().take(REFRESHED_MAX).for_each(|entry| source.prefetch(entry.location()));
    let mut refreshed = 0;
    for entry in halves.iter_mut().flatten() {
        let known = known_after(entry);
        if known < HOME_BITS || (known < REFRESHED_BELOW && refreshed < REFRESHED_MAX) {
            let location = entry.location();
            *entry = Entry::new(source.position(location), prefix_bits + 1, location);
            refreshed += 1;
        } else {
            *entry = entry.descended();
        }
    }
}
