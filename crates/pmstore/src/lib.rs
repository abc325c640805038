//! The index+log engine wholly in persistent memory: records are read in place, a batch costs one fence.
//!
//! After RStore (L. Lersch, *Leveraging Non-Volatile Memory in Modern Storage Management Architectures*, TU Dresden,
//! 2020, chapter 5), repaired where the source leaves a crash open; `docs/design/pmstore.md` says how this engine
//! departs from it.
//!
//! Where to begin: [`open::open`] opens or makes a store in a region and gives a [`recovery::ShardPlan`] for each
//! shard; [`recovery::ShardPlan::build`] gives the [`shard::PmShard`], which is a [`tierstone_engine::Engine`].

mod backup;
mod block_table;
mod blocks;
pub mod check;
mod checkpoint;
mod cleaner;
mod dropped;
mod emptying;
mod engine;
mod evict;
mod expired;
mod format;
mod found;
mod gone;
mod graves;
pub mod index;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
mod keys;
mod lent;
mod log;
mod long_emptying;
mod mark;
mod memory;
mod memory_use;
mod old_counts;
pub mod open;
mod overflow;
mod pace;
mod parts;
mod read;
mod recount;
pub mod recovery;
mod scrub;
mod seal;
mod serial;
pub mod settings;
pub mod shard;
mod snapshot_reads;
mod snapshots;
mod space;
mod statistics;
mod upgrade;
mod uses;
mod verify;
mod victims;
mod write;

pub use found::LogDamage;
pub use open::{
    Keyspace, OpenReport, OpenSettings, OpenedStore, is_blank, is_in_use, is_untouched, largest_region_bytes,
    least_region_bytes, open, refuse_other_shards, shard_count,
};
pub use recovery::{BuildReport, ShardPlan};
pub use settings::{Geometry, ShardSettings};
pub use shard::PmShard;
