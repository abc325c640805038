//! Indexes from positions, or keys, to the places of records.
//!
//! 1. [`HashIndex`] maps 64-bit positions to 37-bit values in about 8.5 bytes a key. It holds no
//!    keys: what it answers are candidates, which the caller checks against the record.
//! 2. [`OrderedIndex`] holds whole keys in order and nothing else, for range scans of the keyspaces that
//!    are ordered; their records are found through the first all the same.
//! 3. Neither does any input or output. A crash leaves nothing of them: both are rebuilt from a
//!    checkpoint ([`HashIndex::dump_from`]) and the segments' summaries.
//!
//! The shard's thread owns its index; nothing here is shared.

mod arena;
mod bucket;
mod directory;
mod dump;
pub mod hash;
mod leaf;
pub mod ordered;
mod region;
mod reshape;
mod scan;
mod sorted;
mod stash;
mod value;

pub use bucket::EntryLayout;
pub use dump::MapValues;
pub use hash::{HashIndex, Spot};
pub use ordered::{Direction, OrderedIndex};
pub use sorted::SortedBuilder;
pub use value::{Candidates, HashIndexSettings, IndexFull, IndexValue, ScanProgress, UPPER_FROM, VALUE_BITS};
