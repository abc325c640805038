//! Entries of 56 bits and the 64-byte buckets that hold nine of them.
//!
//! An entry is a 21-bit tag above a 35-bit value. The tag holds the `v` bits of the position that
//! follow the prefix of the entry's region, then a one, then zeros: `v` ones-and-zeros, the marker,
//! `20 - v` zeros. So each entry says itself how many bits of its position are known, and a split
//! of the region (the top bit becomes part of the prefix) is a shift to the left.
//!
//! Invariants:
//! 1. A tag is never zero: it has its marker.
//! 2. Lookups compare known bits only, so that an entry is never missed; unknown bits cost false
//!    candidates and nothing else.
//! 3. A bucket's entries are its first `count`; the last byte holds the count (low four bits) and
//!    the flag "passed" (0x80): an entry whose home is here or before may lie further on.
//! 4. A bucket that is not full has never been passed.

use super::value::{IndexValue, VALUE_BITS};
use tierstone_base::Position;

/// Bits of a tag, the marker included.
pub const TAG_BITS: u32 = 21;
/// Bits of a position that a fresh tag holds.
pub const KNOWN_BITS_MAX: u32 = TAG_BITS - 1;
/// Bits after the region's prefix that choose the home bucket. Every entry in a bucket knows at
/// least these, so that its home is certain.
pub const HOME_BITS: u32 = 10;
/// Entries of a bucket.
pub const BUCKET_ENTRIES: usize = 9;
/// The longest prefix of a region: beyond it a fresh tag would reach past the position's end.
pub const PREFIX_BITS_MAX: u32 = 64 - KNOWN_BITS_MAX;

const ENTRY_BYTES: usize = 7;
const ENTRY_MASK: u64 = (1 << 56) - 1;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const PASSED: u8 = 0x80;
const COUNT_MASK: u8 = 0x0f;

const _: () = assert!(ENTRY_BYTES * BUCKET_ENTRIES + 1 == 64 && TAG_BITS + VALUE_BITS == 56);

/// A tag and a value in the low 56 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(u64);

impl Entry {
    /// An entry of `tag`, which is not zero, and `value`.
    pub fn new(tag: u64, value: IndexValue) -> Self {
        debug_assert!(tag != 0 && tag <= TAG_MASK);
        Entry((tag << VALUE_BITS) | value.raw())
    }

    /// The low 56 bits of `word`; `None` when they hold no marker.
    pub fn from_word(word: u64) -> Option<Self> {
        let entry = Entry(word & ENTRY_MASK);
        (entry.tag() != 0).then_some(entry)
    }

    pub fn word(self) -> u64 {
        self.0
    }

    pub fn tag(self) -> u64 {
        self.0 >> VALUE_BITS
    }

    pub fn value(self) -> IndexValue {
        IndexValue::from_low_bits(self.0)
    }

    /// Bits of the position, after the region's prefix, that are known: 0 to 20.
    pub fn known_bits(self) -> u32 {
        KNOWN_BITS_MAX - self.lost_bits()
    }

    /// How many bits fewer than a fresh tag's are known.
    pub fn lost_bits(self) -> u32 {
        self.tag().trailing_zeros()
    }

    /// The first position that this entry may have, in the region that starts at `start` with
    /// `prefix_bits`.
    pub fn first_position(self, start: u64, prefix_bits: u32) -> u64 {
        let tag = self.tag();
        start | (((tag & (tag - 1)) >> 1) << (PREFIX_BITS_MAX - prefix_bits))
    }

    /// The home bucket of `bucket_count`.
    pub fn home(self, bucket_count: usize) -> usize {
        scale((self.tag() >> (TAG_BITS - HOME_BITS)) as usize, bucket_count)
    }

    /// The differing known bits between this tag and the fresh tag `query`; zero when it fits.
    pub fn difference(self, query: u64) -> u64 {
        let tag = self.tag();
        (tag ^ query) & !(tag ^ tag.wrapping_sub(1))
    }

    /// The entry after its region was split `levels` times; it knew more than `levels` bits.
    pub fn descended(self, levels: u32) -> Self {
        Entry::new((self.tag() << levels) & TAG_MASK, self.value())
    }

    /// The entry after its region, the `upper` half of its parent or not, joined its sibling.
    pub fn ascended(self, upper: bool) -> Self {
        let tag = self.tag();
        // A fresh tag loses its last bit: the marker takes its place.
        let marker = tag & 1;
        Entry::new((u64::from(upper) << KNOWN_BITS_MAX) | (tag >> 1) | marker, self.value())
    }
}

fn scale(fraction: usize, bucket_count: usize) -> usize {
    (fraction * bucket_count) >> HOME_BITS
}

/// The tag of an entry that knows its whole `position`.
pub fn fresh_tag(position: Position, prefix_bits: u32) -> u64 {
    (((position.0 << prefix_bits) >> PREFIX_BITS_MAX) << 1) | 1
}

/// The tag of an entry that knows the first `known` bits of `position`, at least `prefix_bits`.
pub fn partial_tag(position: u64, known: u32, prefix_bits: u32) -> u64 {
    let tag = fresh_tag(Position(position), prefix_bits);
    let lost = KNOWN_BITS_MAX.saturating_sub(known - prefix_bits);
    ((tag >> lost) | 1) << lost
}

/// The home bucket of `position` among `bucket_count` of a region with `prefix_bits`.
pub fn home_of(position: Position, prefix_bits: u32, bucket_count: usize) -> usize {
    scale(((position.0 << prefix_bits) >> (64 - HOME_BITS)) as usize, bucket_count)
}

/// Where the range of `bucket` of `bucket_count` starts: an offset from the region's start, which
/// is the region's whole length (2^64 for a prefix of 0 bits) for `bucket == bucket_count`.
pub fn bucket_offset(bucket: usize, prefix_bits: u32, bucket_count: usize) -> u128 {
    let fraction = (bucket << HOME_BITS).div_ceil(bucket_count) as u128;
    fraction << (64 - prefix_bits - HOME_BITS)
}

/// Nine entries and a byte about them; one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Bucket([u8; 64]);

impl Bucket {
    pub const EMPTY: Bucket = Bucket([0; 64]);

    fn load(&self, index: usize) -> u64 {
        let mut word = [0u8; 8];
        word.copy_from_slice(&self.0[index * ENTRY_BYTES..index * ENTRY_BYTES + 8]);
        u64::from_le_bytes(word) & ENTRY_MASK
    }

    pub fn count(&self) -> usize {
        usize::from(self.0[63] & COUNT_MASK)
    }

    pub fn is_passed(&self) -> bool {
        self.0[63] & PASSED != 0
    }

    pub fn set_passed(&mut self, passed: bool) {
        self.0[63] = (self.0[63] & COUNT_MASK) | if passed { PASSED } else { 0 };
    }

    pub fn get(&self, index: usize) -> Entry {
        debug_assert!(index < self.count());
        Entry(self.load(index))
    }

    /// Whether `entry` lies at `index`.
    #[inline]
    pub fn holds(&self, index: usize, entry: Entry) -> bool {
        index < self.count() && self.load(index) == entry.0
    }

    pub fn set(&mut self, index: usize, entry: Entry) {
        let at = index * ENTRY_BYTES;
        self.0[at..at + ENTRY_BYTES].copy_from_slice(&entry.0.to_le_bytes()[..ENTRY_BYTES]);
    }

    /// Adds `entry`; false when the bucket is full.
    pub fn push(&mut self, entry: Entry) -> bool {
        let count = self.count();
        if count == BUCKET_ENTRIES {
            return false;
        }
        self.set(count, entry);
        self.0[63] += 1;
        true
    }

    /// Removes an entry; the last one takes its place.
    pub fn swap_remove(&mut self, index: usize) {
        let last = self.count() - 1;
        let moved = Entry(self.load(last));
        self.set(index, moved);
        self.0[63] -= 1;
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.count()).map(|index| Entry(self.load(index)))
    }

    /// One bit for each entry whose known bits fit the fresh tag `query`.
    #[inline]
    pub fn matches(&self, query: u64) -> u32 {
        let mut found = 0u32;
        for index in 0..BUCKET_ENTRIES {
            found |= u32::from(Entry(self.load(index)).difference(query) == 0) << index;
        }
        found & ((1 << self.count()) - 1)
    }
}
