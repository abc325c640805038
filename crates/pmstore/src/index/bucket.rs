//! Entries of 8 bytes and the buckets, a cache line each, that hold eight of them.
//!
//! An entry is a 24-bit tag above a 40-bit location. A tag is as many bits of the position as are known, counted
//! from the end of the region's prefix, then a one as marker, then zeros: 23 known bits when it is made. When the
//! region is split its prefix takes the first bit, and the tag moves up by one: it knows a bit less.
//!
//! Invariants:
//! 1. An empty place is a zero word; a tag is never zero.
//! 2. Only known bits are compared: an entry that is sought is never passed over, one that is not may be shown.
//! 3. Entries fill a bucket from its start.

use super::{LOCATION_BITS, Location};
use tierstone_base::Position;

/// Bits of a tag with its marker.
pub const TAG_BITS: u32 = 64 - LOCATION_BITS;
/// Bits of the position that a fresh tag knows.
pub const FRESH_BITS: u32 = TAG_BITS - 1;
/// Bits after the prefix that choose the home bucket; every entry knows them.
pub const HOME_BITS: u32 = 10;
/// The longest prefix: a fresh tag behind it ends with the position.
pub const PREFIX_BITS_MAX: u32 = 64 - FRESH_BITS;
/// Entries of a bucket.
pub const BUCKET_ENTRIES: usize = 8;

const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

/// A tag and a location, or an empty place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u64);

/// The tag of a whole position, in a region with `prefix_bits`.
#[inline]
pub fn fresh_tag(position: Position, prefix_bits: u32) -> u64 {
    (((position.0 << prefix_bits) >> PREFIX_BITS_MAX) << 1) | 1
}

impl Entry {
    const EMPTY: Entry = Entry(0);

    /// The entry of a record whose whole position is known.
    pub fn new(position: Position, prefix_bits: u32, location: Location) -> Self {
        Entry((fresh_tag(position, prefix_bits) << LOCATION_BITS) | location.units())
    }

    fn tag(self) -> u64 {
        self.0 >> LOCATION_BITS
    }

    fn with_tag(self, tag: u64) -> Self {
        Entry((tag << LOCATION_BITS) | self.location().units())
    }

    pub fn location(self) -> Location {
        Location::from_low_bits(self.0)
    }

    /// Bits after the prefix that are known, 10 to 23.
    pub fn known_bits(self) -> u32 {
        FRESH_BITS - self.tag().trailing_zeros()
    }

    /// The first bit after the prefix.
    pub fn is_upper(self) -> bool {
        self.0 >> 63 == 1
    }

    /// The known bits in which it differs from the fresh tag `query`; an empty place in none.
    #[inline]
    pub fn difference(self, query: u64) -> u64 {
        let tag = self.tag();
        // Bits above the marker: there the negative is the complement.
        (tag ^ query) & (tag ^ tag.wrapping_neg())
    }

    /// The home bucket of a region with `bucket_count`.
    #[inline]
    pub fn home(self, bucket_count: usize) -> usize {
        home_of_fraction(self.0 >> (64 - HOME_BITS), bucket_count)
    }

    /// The same record in its half of the region. It knew more than ten bits.
    pub fn descended(self) -> Self {
        self.with_tag((self.tag() << 1) & TAG_MASK)
    }

    /// The same record after its region, the `upper` half or the lower, was joined with the other.
    pub fn ascended(self, upper: bool) -> Self {
        let tag = self.tag();
        // A fresh tag's marker takes the place of its last bit.
        self.with_tag((u64::from(upper) << (TAG_BITS - 1)) | (tag >> 1) | (tag & 1))
    }
}

/// The bucket of the `fraction`th of 2^10 parts of a region.
#[inline]
pub fn home_of_fraction(fraction: u64, bucket_count: usize) -> usize {
    ((fraction * bucket_count as u64) >> HOME_BITS) as usize
}

/// The first of 2^10 parts of a region whose home lies beyond `bucket`; 2^10 when there is none.
pub fn fraction_after(bucket: usize, bucket_count: usize) -> u64 {
    ((bucket as u64 + 1) << HOME_BITS).div_ceil(bucket_count as u64)
}

/// One cache line of entries.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Bucket([Entry; BUCKET_ENTRIES]);

impl Bucket {
    pub const EMPTY: Bucket = Bucket([Entry::EMPTY; BUCKET_ENTRIES]);

    #[inline]
    pub fn is_full(&self) -> bool {
        self.0[BUCKET_ENTRIES - 1] != Entry::EMPTY
    }

    pub fn len(&self) -> usize {
        self.0.iter().filter(|entry| **entry != Entry::EMPTY).count()
    }

    pub fn get(&self, place: usize) -> Entry {
        self.0[place]
    }

    pub fn set(&mut self, place: usize, entry: Entry) {
        self.0[place] = entry;
    }

    /// Adds an entry; false when the bucket is full.
    pub fn push(&mut self, entry: Entry) -> bool {
        let free = self.0.iter_mut().find(|place| **place == Entry::EMPTY);
        free.map(|place| *place = entry).is_some()
    }

    /// Takes an entry out; the last one gets its place.
    pub fn remove(&mut self, place: usize) {
        let last = self.len() - 1;
        self.0[place] = self.0[last];
        self.0[last] = Entry::EMPTY;
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.0.iter().copied().take_while(|entry| *entry != Entry::EMPTY)
    }

    /// A bit for each entry whose known bits fit the fresh tag `query`. Cost: eight comparisons, without a
    /// branch.
    #[inline]
    pub fn matches(&self, query: u64) -> u32 {
        let mut found = 0;
        for (place, entry) in self.0.iter().enumerate() {
            let fits = entry.difference(query) == 0 && *entry != Entry::EMPTY;
            found |= u32::from(fits) << place;
        }
        found
    }
}
