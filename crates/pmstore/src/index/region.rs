//! A region: the buckets of one aligned power-of-two range of positions.
//!
//! The order of buckets is the order of positions. An entry whose home is full lies in the next bucket that was
//! not, around the end if need be (linear probing by buckets, Knuth, volume 3, 6.4; removal moves entries back,
//! so that there are no tombstones). Its tag tells its home, so that a scan shows it with its home all the same.
//!
//! Invariants:
//! 1. Every bucket from an entry's home up to its place is full.
//! 2. Every entry knows at least the ten bits that choose its home.
//! 3. At least one place in eight is free, so that a search ends.

use super::Location;
use super::bucket::{BUCKET_ENTRIES, Bucket, Entry, HOME_BITS, fresh_tag, home_of_fraction};
use tierstone_base::Position;
use tierstone_base::prefetch::prefetch_read;

/// Buckets of a region that can be split. A call moves the entries of one region, or of two such.
pub const REGION_BUCKETS: usize = 64;

/// Numbers of buckets that a region may have, up to [`REGION_BUCKETS`]; a region that cannot be split goes on by
/// a quarter. Steps are small, so that places stay taken: full at 7 in 8, the rest is growth's.
const SIZES: [usize; 18] = [0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, REGION_BUCKETS];

/// Entries that `buckets` buckets take: seven places in eight.
pub const fn limit(buckets: usize) -> usize {
    buckets * (BUCKET_ENTRIES - 1)
}

/// The next size above `buckets`.
pub fn size_above(buckets: usize) -> usize {
    SIZES.iter().copied().find(|size| *size > buckets).unwrap_or(buckets + buckets / 4)
}

/// The next size below `buckets`, which is one; zero below zero.
pub fn size_below(buckets: usize) -> usize {
    if buckets > REGION_BUCKETS {
        return (buckets * 4 / 5).max(REGION_BUCKETS);
    }
    SIZES.iter().copied().rfind(|size| *size < buckets).unwrap_or(0)
}

/// The smallest size that takes `count` entries.
pub fn size_for(count: usize) -> usize {
    let mut size = 0;
    while limit(size) < count {
        size = size_above(size);
    }
    size
}

/// Where an entry lies: bucket of the region, place in the bucket.
pub type Place = (usize, usize);

/// The buckets of a range of positions.
#[derive(Default)]
pub struct Region {
    buckets: Box<[Bucket]>,
    count: u32,
    prefix_bits: u8,
}

impl Region {
    pub fn new(prefix_bits: u32) -> Self {
        Region { prefix_bits: prefix_bits as u8, ..Self::default() }
    }

    /// A region that holds `entries`, `count` of them, and no more buckets than they need.
    pub fn of(prefix_bits: u32, count: usize, entries: impl Iterator<Item = Entry>) -> Self {
        Self::sized(prefix_bits, size_for(count), entries)
    }

    /// A region of `size` buckets, which takes all `entries`.
    pub fn sized(prefix_bits: u32, size: usize, entries: impl Iterator<Item = Entry>) -> Self {
        let mut region = Region::new(prefix_bits);
        region.buckets = vec![Bucket::EMPTY; size].into_boxed_slice();
        entries.for_each(|entry| region.add(entry));
        region
    }

    pub fn prefix_bits(&self) -> u32 {
        u32::from(self.prefix_bits)
    }

    pub fn len(&self) -> usize {
        self.count as usize
    }

    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    pub fn has_room(&self) -> bool {
        self.len() < limit(self.bucket_count())
    }

    /// Where the range of the region of `position` starts.
    pub fn start(&self, position: Position) -> u64 {
        if self.prefix_bits == 0 {
            0
        } else {
            position.0 >> (64 - self.prefix_bits) << (64 - self.prefix_bits)
        }
    }

    /// Which of 2^10 parts of the region `position` lies in.
    pub fn fraction(&self, position: Position) -> u64 {
        (position.0 << self.prefix_bits) >> (64 - HOME_BITS)
    }

    pub fn home(&self, position: Position) -> usize {
        home_of_fraction(self.fraction(position), self.bucket_count())
    }

    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.bucket_count() { 0 } else { bucket + 1 }
    }

    /// Asks the processor for the line that a lookup of `position` reads first.
    pub fn prefetch(&self, position: Position) {
        if let Some(bucket) = self.buckets.get(self.home(position)) {
            prefetch_read(bucket);
        }
    }

    /// Adds an entry; there is a free place.
    pub fn add(&mut self, entry: Entry) {
        let mut index = entry.home(self.bucket_count());
        while !self.buckets[index].push(entry) {
            index = self.next(index);
        }
        self.count += 1;
    }

    /// The first entry that fits `position` and that `is_it` accepts.
    #[inline]
    pub fn find(
        &self,
        position: Position,
        mut is_it: impl FnMut(Location) -> bool,
    ) -> Option<(Place, Location)> {
        if self.count == 0 {
            return None;
        }
        let query = fresh_tag(position, self.prefix_bits());
        let mut index = self.home(position);
        loop {
            let bucket = &self.buckets[index];
            let mut matches = bucket.matches(query);
            while matches != 0 {
                let place = matches.trailing_zeros() as usize;
                let location = bucket.get(place).location();
                if is_it(location) {
                    return Some(((index, place), location));
                }
                matches &= matches - 1;
            }
            if !bucket.is_full() {
                return None;
            }
            index = self.next(index);
        }
    }

    /// Writes a fresh entry over the one at `place`.
    pub fn overwrite(&mut self, place: Place, position: Position, location: Location) {
        let entry = Entry::new(position, self.prefix_bits(), location);
        self.buckets[place.0].set(place.1, entry);
    }

    /// Takes the entry at `place` out.
    pub fn remove(&mut self, place: Place) {
        self.count -= 1;
        let mut hole = place.0;
        let mut may_be_passed = self.buckets[hole].is_full();
        self.buckets[hole].remove(place.1);
        while may_be_passed {
            let Some((index, place)) = self.find_displaced(hole) else { return };
            let entry = self.buckets[index].get(place);
            self.buckets[hole].push(entry);
            may_be_passed = self.buckets[index].is_full();
            self.buckets[index].remove(place);
            hole = index;
        }
    }

    /// An entry beyond bucket `hole`, which was full until now, whose home is `hole` or before it.
    fn find_displaced(&self, hole: usize) -> Option<Place> {
        let count = self.bucket_count();
        let mut index = self.next(hole);
        for steps in 1..count {
            let bucket = &self.buckets[index];
            let displaced = |entry: Entry| (index + count - entry.home(count)) % count >= steps;
            if let Some(place) = bucket.entries().position(displaced) {
                return Some((index, place));
            }
            if !bucket.is_full() {
                return None;
            }
            index = self.next(index);
        }
        None
    }

    /// All entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.buckets.iter().flat_map(Bucket::entries)
    }

    /// The entries whose home is bucket `home`.
    pub fn entries_at_home(&self, home: usize, mut visit: impl FnMut(Location)) {
        let count = self.bucket_count();
        let mut index = home;
        loop {
            let bucket = &self.buckets[index];
            bucket
                .entries()
                .filter(|entry| entry.home(count) == home)
                .for_each(|entry| visit(entry.location()));
            index = self.next(index);
            if !bucket.is_full() || index == home {
                return;
            }
        }
    }

    /// Checks its invariants.
    #[cfg(test)]
    pub fn validate(&self) {
        let count = self.bucket_count();
        assert_eq!(self.entries().count(), self.len());
        assert!(self.len() <= limit(count));
        for (index, bucket) in self.buckets.iter().enumerate() {
            assert_eq!(bucket.entries().count(), bucket.len(), "entries lie side by side");
            for entry in bucket.entries() {
                assert!(entry.known_bits() >= HOME_BITS);
                let mut step = entry.home(count);
                while step != index {
                    assert!(self.buckets[step].is_full(), "a chain runs across a bucket with room");
                    step = self.next(step);
                }
            }
        }
    }
}
