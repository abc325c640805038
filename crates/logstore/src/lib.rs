//! The index+log engine: append-only segments, a compact index in memory, recovery, cleaning.
//!
//! The data lie on the device in the order in which they were written, in segments of some
//! megabytes; an index in memory says where the newest record of each key is. Sources: FAWN-DS
//! (Vasudevan 2011, §3) and RStore (Lersch 2020, §5); `docs/design/logstore.md` says how this engine
//! departs from them.
//!
//! Where to begin: [`open::open`] opens or makes a store on a device and gives a
//! [`recovery::ShardPlan`] for each shard; [`recovery::ShardPlan::build`] gives the
//! [`shard::LogShard`], which is a [`tierstone_engine::Engine`].

mod accounts;
mod admission;
mod ahead;
mod backup;
pub mod bare;
mod batches;
pub mod check;
mod checkpoint;
mod cleaner;
mod cluster;
mod collect;
pub mod compact;
mod dead;
mod depth;
mod engine;
mod evict;
mod expired;
mod foreseen;
pub mod format;
mod gain;
mod gone;
mod growth;
pub mod index;
pub mod inventory;
mod io;
mod keyspaces;
mod load;
pub mod location;
mod memory;
pub mod memory_ledger;
mod missing;
pub mod open;
mod past;
mod pool;
mod range;
mod read_path;
mod reads;
pub mod recovery;
pub mod redo;
mod refresh;
mod reservations;
mod retire;
mod rules;
mod runs;
mod scrub;
mod seal;
mod segments;
pub mod settings;
pub mod shard;
mod snapshot_reads;
mod snapshots;
mod space;
mod stream;
mod summary_load;
mod superblocks;
mod tombstones;
mod touch;
pub mod transfer;
mod uses;
mod verify;
mod walk;
mod write_path;

pub use cleaner::CleaningWork;
pub use inventory::Inventory;
pub use load::PutOff;
pub use open::{OpenReport, OpenSettings, OpenedStore, open};
pub use recovery::{BuildReport, ShardPlan};
pub use redo::RedoMemory;
pub use settings::ShardSettings;
pub use superblocks::SuperblockWriter;

/// The longest value of a store with segments of this shape, in bytes, for keys up to 1 KiB.
pub fn value_bytes_max(geometry: tierstone_media::Geometry) -> u64 {
    let record = stream::Stream::record_bytes_max(geometry);
    let overhead = format::record::PREFIX_BYTES_MAX + 1024;
    record.saturating_sub(overhead) as u64
}

pub use shard::LogShard;
