//! Entries of 56 bits and the 64-byte buckets that hold nine of them.
//!
//! An entry is a tag above a value; where it is cut, its layout says: the more values there may be, the fewer bits
//! of its position a tag has. The tag holds the `v` bits of the position that follow the prefix of the entry's region,
//! then a one, then zeros: `v` ones-and-zeros, the marker, and as many zeros as bits are lost. So each entry says itself
//! how many bits of its position are known, and a split of the region (the top bit becomes part of the prefix) is a shift
//! to the left.
//!
//! Invariants:
//! 1. A tag is never zero: it has its marker.
//! 2. Lookups compare known bits only, so that an entry is never missed; unknown bits cost false
//!    candidates and nothing else.
//! 3. A bucket's entries are its first `count`; the last byte holds the count (low four bits) and
//!    the flag "passed" (0x80): an entry whose home is here or before may lie further on.
//! 4. A bucket that is not full has never been passed.
//! 5. All entries of an index have its layout.

use super::value::{IndexValue, UPPER_BITS, UPPER_FROM, VALUE_BITS};
use tierstone_base::Position;

/// Bits after the region's prefix that choose the home bucket. Every entry in a bucket knows at
/// least these, so that its home is certain.
pub const HOME_BITS: u32 = 10;
/// Entries of a bucket.
pub const BUCKET_ENTRIES: usize = 9;
/// The most bits of a position that a tag of any layout knows.
pub const KNOWN_BITS_MAX: u32 = EntryLayout::NARROW.known_bits();
/// The longest prefix of a region in any layout: beyond it a fresh tag would reach past the position's end.
pub const PREFIX_BITS_MAX: u32 = EntryLayout::WIDE.prefix_bits_max();

const ENTRY_BYTES: usize = 7;
const ENTRY_BITS: u32 = 56;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;
const PASSED: u8 = 0x80;
const COUNT_MASK: u8 = 0x0f;

const _: () = assert!(ENTRY_BYTES * BUCKET_ENTRIES + 1 == 64 && ENTRY_BYTES as u32 * 8 == ENTRY_BITS);

/// Where entries are cut, that is how many of their 56 bits hold the value. The upper values keep their distance from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLayout {
    value_bits: u8,
}

impl Default for EntryLayout {
    fn default() -> Self {
        EntryLayout::NARROW
    }
}

impl EntryLayout {
    /// Values of 35 bits: those below [`EntryLayout::lower_values`], and the upper ones. Tags know 20 bits.
    pub const NARROW: EntryLayout = EntryLayout { value_bits: 35 };
    /// Every value. Tags know 18 bits: four times as many lookups find another key's entry.
    pub const WIDE: EntryLayout = EntryLayout { value_bits: VALUE_BITS as u8 };

    /// How many values it has room for besides the upper ones.
    pub const fn lower_values(self) -> u64 {
        (1 << self.value_bits) - (1 << UPPER_BITS)
    }

    /// Whether it has room for `value`.
    pub fn has_room(self, value: IndexValue) -> bool {
        value.raw() < self.lower_values() || value.raw() >= UPPER_FROM
    }

    /// Bits of a position that a fresh tag holds.
    pub const fn known_bits(self) -> u32 {
        self.tag_bits() - 1
    }

    /// Bits of a tag, the marker included.
    pub const fn tag_bits(self) -> u32 {
        ENTRY_BITS - self.value_bits as u32
    }

    /// The longest prefix of a region.
    pub const fn prefix_bits_max(self) -> u32 {
        64 - self.known_bits()
    }

    /// The lowest bit of a tag in an entry.
    fn unit(self) -> u64 {
        1 << self.value_bits
    }

    /// The tag of an entry that knows its whole `position`.
    pub fn fresh_tag(self, position: Position, prefix_bits: u32) -> u64 {
        (((position.0 << prefix_bits) >> self.prefix_bits_max()) << 1) | 1
    }

    /// The tag of an entry that knows the first `known` bits of `position`, at least `prefix_bits`.
    pub fn partial_tag(self, position: u64, known: u32, prefix_bits: u32) -> u64 {
        let tag = self.fresh_tag(Position(position), prefix_bits);
        let lost = self.known_bits().saturating_sub(known - prefix_bits);
        ((tag >> lost) | 1) << lost
    }
}

/// A tag and a value in the low 56 bits; above them the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(u64);

impl Entry {
    /// An entry of `tag`, which is not zero, and `value`, for which the layout has room.
    pub fn new(layout: EntryLayout, tag: u64, value: IndexValue) -> Self {
        debug_assert!(tag != 0 && tag < 1 << layout.tag_bits());
        let raw = value.raw();
        debug_assert!(layout.has_room(value), "{raw} has no room in {layout:?}");
        let lift = if raw >= UPPER_FROM { UPPER_FROM - layout.lower_values() } else { 0 };
        Entry::from_stored(layout, (tag << layout.value_bits) | (raw - lift))
    }

    fn from_stored(layout: EntryLayout, stored: u64) -> Self {
        Entry(stored | u64::from(layout.value_bits) << ENTRY_BITS)
    }

    /// The low 56 bits of `word`; `None` when they hold no marker.
    pub fn from_word(layout: EntryLayout, word: u64) -> Option<Self> {
        let entry = Entry::from_stored(layout, word & ENTRY_MASK);
        (entry.tag() != 0).then_some(entry)
    }

    /// The 56 bits, in the low ones.
    pub fn word(self) -> u64 {
        self.0 & ENTRY_MASK
    }

    fn layout(self) -> EntryLayout {
        EntryLayout { value_bits: (self.0 >> ENTRY_BITS) as u8 }
    }

    pub fn tag(self) -> u64 {
        (self.0 & ENTRY_MASK) >> self.layout().value_bits
    }

    pub fn value(self) -> IndexValue {
        let layout = self.layout();
        let raw = self.0 & (layout.unit() - 1);
        let lift = if raw >= layout.lower_values() { UPPER_FROM - layout.lower_values() } else { 0 };
        IndexValue::from_low_bits(raw + lift)
    }

    /// Bits of the position, after the region's prefix, that are known: 0 to those of a fresh tag.
    pub fn known_bits(self) -> u32 {
        self.layout().known_bits() - self.lost_bits()
    }

    /// How many bits fewer than a fresh tag's are known.
    pub fn lost_bits(self) -> u32 {
        self.tag().trailing_zeros()
    }

    /// The first position that this entry may have, in the region that starts at `start` with
    /// `prefix_bits`.
    pub fn first_position(self, start: u64, prefix_bits: u32) -> u64 {
        let tag = self.tag();
        start | (((tag & (tag - 1)) >> 1) << (self.layout().prefix_bits_max() - prefix_bits))
    }

    /// The home bucket of `bucket_count`.
    pub fn home(self, bucket_count: usize) -> usize {
        scale((self.word() >> (ENTRY_BITS - HOME_BITS)) as usize, bucket_count)
    }

    /// The differing known bits between this tag and the fresh tag `query`; zero when it fits.
    pub fn difference(self, query: u64) -> u64 {
        differing(self.tag(), query, 1)
    }

    /// Whether the topmost `levels` bits that it knows end with a one.
    pub fn is_upper(self, levels: u32) -> bool {
        (self.word() >> (ENTRY_BITS - levels)) & 1 == 1
    }

    /// The entry after its region was split `levels` times; it knew more than `levels` bits.
    pub fn descended(self, levels: u32) -> Self {
        let layout = self.layout();
        Entry::new(layout, (self.tag() << levels) & ((1 << layout.tag_bits()) - 1), self.value())
    }

    /// The entry after its region, the `upper` half of its parent or not, joined its sibling.
    pub fn ascended(self, upper: bool) -> Self {
        let (layout, tag) = (self.layout(), self.tag());
        // A fresh tag loses its last bit: the marker takes its place.
        let marker = tag & 1;
        Entry::new(layout, (u64::from(upper) << layout.known_bits()) | (tag >> 1) | marker, self.value())
    }

    /// The entry in another layout, which has room for its value; it forgets what has none there.
    pub fn cut(self, layout: EntryLayout) -> Self {
        let (from, to) = (self.layout().tag_bits(), layout.tag_bits());
        if from <= to {
            return Entry::new(layout, self.tag() << (to - from), self.value());
        }
        let tag = self.tag();
        let lost = from - to;
        // A marker that would be cut off takes the place of the last bit.
        let marker = u64::from(tag & ((1 << lost) - 1) != 0);
        Entry::new(layout, ((tag >> (lost + marker as u32)) << marker) | marker, self.value())
    }

    /// The entry with another value, for which the layout has room.
    pub fn with_value(self, value: IndexValue) -> Self {
        Entry::new(self.layout(), self.tag(), value)
    }
}

/// The bits above the marker of `tag` in which `query` differs, where both lie `unit` times as high as tags do.
#[inline]
fn differing(tag: u64, query: u64, unit: u64) -> u64 {
    (tag ^ query) & !(tag ^ tag.wrapping_sub(unit))
}

fn scale(fraction: usize, bucket_count: usize) -> usize {
    (fraction * bucket_count) >> HOME_BITS
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

    pub fn get(&self, layout: EntryLayout, index: usize) -> Entry {
        debug_assert!(index < self.count());
        Entry::from_stored(layout, self.load(index))
    }

    /// Whether `entry` lies at `index`.
    #[inline]
    pub fn holds(&self, index: usize, entry: Entry) -> bool {
        index < self.count() && self.load(index) == entry.word()
    }

    fn store(&mut self, index: usize, word: u64) {
        let at = index * ENTRY_BYTES;
        self.0[at..at + ENTRY_BYTES].copy_from_slice(&word.to_le_bytes()[..ENTRY_BYTES]);
    }

    pub fn set(&mut self, index: usize, entry: Entry) {
        self.store(index, entry.0);
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
        let moved = self.load(last);
        self.store(index, moved);
        self.0[63] -= 1;
    }

    pub fn entries(&self, layout: EntryLayout) -> impl Iterator<Item = Entry> + '_ {
        (0..self.count()).map(move |index| Entry::from_stored(layout, self.load(index)))
    }

    /// One bit for each entry whose known bits fit the fresh tag `query`.
    #[inline]
    pub fn matches(&self, layout: EntryLayout, query: u64) -> u32 {
        let (unit, query) = (layout.unit(), query << layout.value_bits);
        let mut found = 0u32;
        for index in 0..BUCKET_ENTRIES {
            let tag = self.load(index) & unit.wrapping_neg();
            found |= u32::from(differing(tag, query, unit) == 0) << index;
        }
        found & ((1 << self.count()) - 1)
    }
}
