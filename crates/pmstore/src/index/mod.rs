//! The indexes of a log in persistent memory: from keys to the places of their records, in DRAM.
//!
//! 1. [`HashIndex`] orders records by the [position](Position) of their key, in about 10 bytes a key. It holds
//!    no keys: what it answers are candidates, which the caller compares with the record.
//! 2. [`OrderedIndex`] orders them by key, for ranges. It holds whole keys, or partial keys of eight bytes and
//!    reads the whole ones in place, in persistent memory, where partial ones tie.
//! 3. A record costs one read of persistent memory; a partial key that ties with others, more.
//!
//! After RStore (Lersch 2020, "Leveraging Non-Volatile Memory in Modern Storage Management Architectures",
//! chapter 5): index in DRAM, tree or hash; pointers only, or partial keys of fixed size; the next record is
//! prefetched while one is copied.
//!
//! The shard's thread owns its indexes; nothing here is shared. A crash leaves nothing of them: they are made
//! again from the log.

mod bucket;
mod directory;
mod hash;
mod inner;
mod key_block;
mod leaf;
mod ordered;
mod partial;
mod range;
mod region;
mod reshape;
mod slab;

pub use hash::{HashIndex, SCAN_BUCKETS};
pub use ordered::{KeyMode, OrderedIndex};
pub use range::{KeyRange, PREFETCH_AHEAD};

use tierstone_base::Position;

/// Bits of a location.
pub const LOCATION_BITS: u32 = 40;

/// Where a record lies in the log, in units that the log chooses: 2^40 units of 8 bytes are 8 TiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location(u64);

impl Location {
    /// The greatest location.
    pub const MAX: Location = Location((1 << LOCATION_BITS) - 1);

    /// The location of unit `units`; `None` from 2^40.
    pub fn new(units: u64) -> Option<Self> {
        (units <= Self::MAX.0).then_some(Location(units))
    }

    /// The location in the low 40 bits of `word`.
    fn from_low_bits(word: u64) -> Self {
        Location(word & Self::MAX.0)
    }

    /// In the log's units, 0 to 2^40 - 1.
    pub fn units(self) -> u64 {
        self.0
    }
}

/// Where the positions of records are read that the hash index no longer knows well enough.
pub trait PositionSource {
    /// The position of the key of the record at `location`, which is in the index.
    fn position(&self, location: Location) -> Position;

    /// A hint that `position` will be asked soon.
    fn prefetch(&self, _location: Location) {}
}

impl<F: Fn(Location) -> Position> PositionSource for F {
    fn position(&self, location: Location) -> Position {
        self(location)
    }
}

/// Where whole keys are read that an [`OrderedIndex`] with partial keys does not hold.
pub trait KeySource {
    /// A key: a slice of mapped memory, or bytes that were copied out of it.
    type Key<'a>: AsRef<[u8]>
    where
        Self: 'a;

    /// The key of the record at `location`, which is in the index.
    fn key(&self, location: Location) -> Self::Key<'_>;

    /// A hint that the record at `location` will be read soon.
    fn prefetch(&self, _location: Location) {}
}
