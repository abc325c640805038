//! What goes into an index and what comes out: plain data.
//!
//! Invariants:
//! 1. An [`IndexValue`] is below 2^37 for ever; the type is the proof.
//! 2. [`Candidates`] allocates only when one lookup finds more than [`INLINE_CANDIDATES`] entries,
//!    and keeps that allocation for the next lookup.

use super::bucket::EntryLayout;
use tierstone_base::{Error, ErrorKind, Position};

/// Bits of an [`IndexValue`].
pub const VALUE_BITS: u32 = 37;
/// Values from this one on are the upper ones: every layout of entries has room for all of them.
pub const UPPER_FROM: u64 = (1 << VALUE_BITS) - (1 << UPPER_BITS);
/// Bits of what is left of an upper value: the frames that a cache can have.
pub(super) const UPPER_BITS: u32 = tierstone_cache::FrameId::BITS;

/// A 37-bit number that the index keeps for a key and does not look into: a place on the device or
/// a frame of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexValue(u64);

impl IndexValue {
    /// The largest raw number.
    pub const MAX_RAW: u64 = (1 << VALUE_BITS) - 1;

    /// The value `raw`.
    ///
    /// # Panics
    /// When `raw` does not fit 37 bits: a bug of the caller, never a matter of input.
    pub fn new(raw: u64) -> Self {
        assert!(raw <= Self::MAX_RAW, "index value {raw} does not fit {VALUE_BITS} bits");
        IndexValue(raw)
    }

    /// The low 37 bits of `word`; for words whose upper bits mean something else.
    pub(super) fn from_low_bits(word: u64) -> Self {
        IndexValue(word & Self::MAX_RAW)
    }

    /// The number, below 2^35.
    pub fn raw(self) -> u64 {
        self.0
    }
}

/// Entries that a [`Candidates`] holds without allocating.
pub const INLINE_CANDIDATES: usize = 6;

/// The values that a lookup found; usually none or one. Reuse one for many lookups.
#[derive(Clone, Debug)]
pub struct Candidates {
    inline: [IndexValue; INLINE_CANDIDATES],
    inline_count: usize,
    spilled: Vec<IndexValue>,
}

impl Default for Candidates {
    fn default() -> Self {
        Self::new()
    }
}

impl Candidates {
    /// No candidates.
    pub fn new() -> Self {
        Candidates { inline: [IndexValue(0); INLINE_CANDIDATES], inline_count: 0, spilled: Vec::new() }
    }

    /// Forgets all candidates, keeps the room.
    pub fn clear(&mut self) {
        self.inline_count = 0;
        self.spilled.clear();
    }

    /// Adds one.
    pub fn push(&mut self, value: IndexValue) {
        if let Some(place) = self.inline.get_mut(self.inline_count) {
            *place = value;
            self.inline_count += 1;
        } else {
            self.spilled.push(value);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inline_count + self.spilled.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inline_count == 0
    }

    /// All of them, in the order found.
    pub fn iter(&self) -> impl Iterator<Item = IndexValue> + '_ {
        self.inline[..self.inline_count].iter().chain(&self.spilled).copied()
    }
}

/// The memory limit of the index does not allow another entry here. Entries that exist go on
/// working: [`HashIndex::replace`](super::HashIndex::replace) and
/// [`HashIndex::remove`](super::HashIndex::remove) need no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFull;

impl std::fmt::Display for IndexFull {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the index has used up its memory")
    }
}

impl std::error::Error for IndexFull {}

impl From<IndexFull> for Error {
    fn from(full: IndexFull) -> Self {
        Error::new(ErrorKind::NoMemory, full.to_string())
    }
}

/// Settings of a [`HashIndex`](super::HashIndex).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashIndexSettings {
    /// The most memory, in bytes, that the index takes. Default: no limit. More keys than fit
    /// (about 8.5 bytes each) are refused with [`IndexFull`].
    pub memory_limit_bytes: u64,
    /// How its entries are cut: fixed by the values that may come. Default: the narrow one, which tells keys apart best.
    pub layout: EntryLayout,
}

impl Default for HashIndexSettings {
    fn default() -> Self {
        HashIndexSettings { memory_limit_bytes: u64::MAX, layout: EntryLayout::NARROW }
    }
}

/// How far a scan or a dump came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanProgress {
    /// Go on from this position.
    Next(Position),
    /// Everything has been seen.
    End,
}
