//! Every durable byte of the engine: records, groups, segment headers, summaries, superblocks.
//!
//! `docs/formats/flash-segment.md` and `docs/formats/checkpoint.md` draw them, with examples that a
//! test compares. Each decoder takes untrusted bytes, checks bounds and
//! checksums, and gives `None` or an error for anything that was not written whole by this store to
//! this place in this life of the segment.

pub mod checkpoint;
pub mod group;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub mod record;
pub mod segment;
pub mod summary;
pub mod superblock;

#[cfg(test)]
mod page_test;
