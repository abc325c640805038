//! The engine contract: what every engine of Tierstone offers to the store above it, the
//! conformance suite that every engine passes, and the reference engines that keep both honest.
//!
//! An engine owns one shard's share of the keys. It is a state machine owned by one thread: it does
//! no input or output itself. Its driver hands it requests and device completions and carries its
//! device requests out ([`Engine::step`], [`Engine::take_requests`]).
//!
//! Invariants:
//! 1. **Apply at append.** A write is visible to every later call when [`Engine::write`] returns.
//!    It is durable when [`Engine::durable_seq`] has reached its sequence. Who answers a client
//!    waits for that, for reads too ([`Lookup::Found`] carries the sequence it observed).
//! 2. **Order.** Sequences only grow. After a crash the survivors are exactly the writes up to some
//!    sequence that is at least the durable one, batches whole; parts of a batch over several engines
//!    ([`Engine::write_part`]) that was not decided are missing among them.
//! 3. **Lookups do not wait.** A record that is not in memory gives [`Lookup::Fetch`]; the caller
//!    asks for it with [`Engine::fetch`] and looks again after [`Event::Fetched`].
//! 4. **Snapshots are exact or lost.** A read or walk of a snapshot shows the state at its cut, or says
//!    that the snapshot is lost; never anything else.
//! 5. **Failure stops.** After a failed write or flush of the device nothing above the durable
//!    sequence ever becomes durable, and [`Engine::health`] says so.

pub mod backup;
pub mod batch;
pub mod conformance;
pub mod contract;
pub mod cost;
pub mod cuts;
pub mod durability;
pub mod eviction;
pub mod harness;
pub mod health;
pub mod map_engine;
pub mod opening;
pub mod statistics;
pub mod verification;

pub use backup::{
    BackupCut, BackupPiece, BackupRecord, BackupRecords, BackupSince, BackupStep, HeldPart, PartEntry,
    PartName, PartState,
};
pub use batch::{BatchTicket, PreparedPart};
pub use contract::{
    Admission, Commit, Cost, Direction, Durability, Engine, EngineStatistics, Event, Health, IndexKind, Key,
    Lookup, OwnedRecord, PREFETCHED_KEYS, RangeEntry, RangeRequest, RecordMeta, RecordView, ScanEntry,
    ScanRequest, SnapshotId, ValueKind, Write, WriteKind, WriteReceipt,
};
pub use eviction::{Eviction, Housekeeping};
pub use opening::{OpeningPart, OpeningProgress, OpeningSeen};
pub use statistics::{ScrubDamage, ScrubStatistics};
pub use verification::Verification;
