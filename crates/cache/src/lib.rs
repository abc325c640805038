//! Caches counted in bytes: the record cache of a shard, and pure replacement policies.
//!
//! Invariants:
//! 1. Nothing here does input or output, starts a thread or reads a clock; one sequence of calls
//!    gives one sequence of evictions.
//! 2. Every capacity is in bytes and is never exceeded.
//! 3. Nothing here is durable: a crash loses every cache, and no cache holds the only copy of
//!    anything that was acknowledged.
//!
//! [`RecordCache`] holds the bytes of records for the log store; [`policy`] decides replacement for
//! anything that has a key and a size, [`FrequencySketch`] tells how often keys were asked for, [`RecencySketch`] how
//! long ago, and [`trace`] makes the access patterns that compare policies.

mod frequency;
mod hashing;
pub mod policy;
mod recency;
mod record;
pub mod trace;

pub use frequency::{FrequencySketch, LeastUsed};
pub use recency::RecencySketch;
pub use record::{
    FrameId, FrameOwner, FrameView, NewFrame, RecordCache, RecordCacheSettings, RecordCacheStatistics,
};
