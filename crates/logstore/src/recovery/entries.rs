//! Entries of summaries while they are collected: 24 bytes each.

use crate::collect::AtPosition;
use crate::format::record;
use crate::index::VALUE_BITS;
use crate::location::Location;
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
    /// A record with this sequence, of a test.
    #[cfg(test)]
    pub fn of(position: u64, seq: Seq) -> Packed {
        Packed { position, order: record::SEQ_MAX - seq, place: 0 }
    }

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

impl AtPosition for Packed {
    fn position(&self) -> u64 {
        self.position
    }
}
