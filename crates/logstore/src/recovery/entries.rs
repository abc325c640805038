//! Entries of summaries while they are collected: 24 bytes each, in ranges of positions.

use crate::format::record;
use crate::index::VALUE_BITS;
use crate::location::Location;
use crate::touch::FoundTouch;
use tierstone_base::Seq;

/// Bits of the flags of a record in a summary, which keeps the eighth for itself.
const FLAGS_BITS: u32 = 7;
const FLAGS_MASK: u8 = (1 << FLAGS_BITS) - 1;
/// Bits of a record's units: it does not fill a segment.
const UNITS_BITS: u32 = 20;
const UNITS_MASK: u32 = (1 << UNITS_BITS) - 1;
/// Where the location begins.
const PLACE_SHIFT: u32 = FLAGS_BITS + UNITS_BITS;

const _: () = assert!(VALUE_BITS + PLACE_SHIFT == u64::BITS);

/// One record of a summary, packed into 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed {
    pub position: u64,
    /// Keyspace (its number in the superblock's list, 16 bits) above the complement of the sequence
    /// (48 bits), so that sorting puts newer records of a key first.
    pub(super) order: u64,
    /// Location (37 bits) above units (20 bits) above flags (7 bits).
    pub(super) place: u64,
}

impl Packed {
    /// Whether two records are of one keyspace and position.
    pub fn is_same_key(&self, other: &Packed) -> bool {
        self.position == other.position && self.keyspace() == other.keyspace()
    }

    pub fn keyspace(&self) -> usize {
        (self.order >> 48) as usize
    }

    pub fn seq(&self) -> Seq {
        record::SEQ_MAX - (self.order & record::SEQ_MAX)
    }

    /// What [`Packed::place`] is of a record at `location`.
    pub(super) fn pack(location: Location, units: u32, flags: u8) -> u64 {
        let units = units.min(UNITS_MASK);
        (location.raw() << PLACE_SHIFT) | u64::from(units) << FLAGS_BITS | u64::from(flags & FLAGS_MASK)
    }

    pub fn location(&self) -> Location {
        Location::from_raw(self.place >> PLACE_SHIFT)
    }

    pub fn units(&self) -> usize {
        (self.place >> FLAGS_BITS) as u32 as usize & UNITS_MASK as usize
    }

    pub fn flags(&self) -> u8 {
        self.place as u8 & FLAGS_MASK
    }
}

/// Collected entries, in ranges of positions: sorting each by itself keeps to the processor's cache.
///
/// Where they would take more than the memory for them, the highest positions are given up, for a later pass: so how
/// positions are spread (keys with one hash tag lie side by side) does not matter. Records of a single position are not
/// divided.
pub(crate) struct Buckets {
    from: u64,
    to: u64,
    shift: u32,
    bytes: u64,
    bytes_max: u64,
    lists: Vec<Collected>,
}

/// Entries of a range of positions.
#[derive(Default)]
pub(crate) struct Collected {
    pub records: Vec<Packed>,
    pub touches: Vec<FoundTouch>,
}

impl Collected {
    /// Memory that it takes, in bytes: more than its entries, since lists double.
    fn bytes(&self) -> u64 {
        let records = self.records.capacity() * size_of::<Packed>();
        (records + self.touches.capacity() * size_of::<FoundTouch>()) as u64
    }
}

/// Ranges of positions, as a power of two.
const BUCKET_BITS: u32 = 9;

impl Buckets {
    /// For positions from `from` to `to`, or as far as `bytes_max` bytes of entries reach.
    pub fn new((from, to): (u64, u64), bytes_max: u64) -> Self {
        let bits = u64::BITS - (to - from).leading_zeros();
        let shift = bits.saturating_sub(BUCKET_BITS);
        let count = ((to - from) >> shift) as usize + 1;
        let lists = (0..count).map(|_| Collected::default()).collect();
        Buckets { from, to, shift, bytes: 0, bytes_max, lists }
    }

    /// The highest position whose entries are all here, of those that were offered.
    pub fn to(&self) -> u64 {
        self.to
    }

    /// How many entries are here.
    pub fn count(&self) -> u64 {
        self.lists.iter().map(|list| (list.records.len() + list.touches.len()) as u64).sum()
    }

    /// The entries, in ranges from the lowest positions to the highest.
    pub fn into_lists(self) -> Vec<Collected> {
        self.lists
    }

    pub fn push(&mut self, entry: Packed) {
        if let Some(list) = self.list(entry.position) {
            let before = list.records.capacity();
            list.records.push(entry);
            let more = list.records.capacity() - before;
            self.added(more * size_of::<Packed>());
        }
    }

    pub fn push_touch(&mut self, touch: FoundTouch) {
        if let Some(list) = self.list(touch.position) {
            let before = list.touches.capacity();
            list.touches.push(touch);
            let more = list.touches.capacity() - before;
            self.added(more * size_of::<FoundTouch>());
        }
    }

    /// `None`: the position is left for another pass.
    fn list(&mut self, position: u64) -> Option<&mut Collected> {
        let is_here = (self.from..=self.to).contains(&position);
        is_here.then(|| &mut self.lists[((position - self.from) >> self.shift) as usize])
    }

    fn added(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        while self.bytes > self.bytes_max && self.give_up() {}
    }

    /// Gives the highest range up, or divides the last that there is. False: it is a single position.
    fn give_up(&mut self) -> bool {
        if self.lists.len() > 1 {
            self.bytes -= self.lists.pop().map_or(0, |list| list.bytes());
            self.to = self.from + ((self.lists.len() as u64) << self.shift) - 1;
            return true;
        }
        if self.from == self.to {
            return false;
        }
        let Some(whole) = self.lists.pop() else { return false };
        *self = Buckets::new((self.from, self.to), self.bytes_max);
        for entry in whole.records {
            self.lists[((entry.position - self.from) >> self.shift) as usize].records.push(entry);
        }
        for touch in whole.touches {
            self.lists[((touch.position - self.from) >> self.shift) as usize].touches.push(touch);
        }
        self.bytes = self.lists.iter().map(Collected::bytes).sum();
        true
    }
}

#[cfg(test)]
#[path = "entries_test.rs"]
mod entries_test;
