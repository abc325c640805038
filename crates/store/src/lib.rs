//! One shard's part of the embedded database: an engine, the numbered databases, position locks,
//! watches, and views over which restartable commands run.
//!
//! Reading order:
//! 1. [`database_map`] turns a database's number, or a name, into a keyspace;
//! 2. [`view`] is what a command reads and writes;
//! 3. [`shard`] runs commands over views, starts the fetches they want and applies their writes;
//! 4. [`lock`] and [`watch`] keep commands that wait, and transactions that watch, honest;
//! 5. [`message`] and [`participant`] are the seam between shards;
//! 6. [`large`] is what strings above 64 KiB look like, [`ledger`] gives their space back, [`pin`] keeps
//!    them readable; `docs/design/large-values.md` has the whole;
//! 7. [`backup`] is what a backup looks like as bytes.
//!
//! Invariants:
//! 1. **A command is restartable.** It reads through a [`View`]; when the engine must fetch, it stops
//!    with [`Stop::Suspend`] and is run again from its start. It has no effect before its end.
//! 2. **A command is one batch.** Its writes are collected and applied by one call of the engine, so
//!    that it happens whole or not at all.
//! 3. **Logical time never goes back** within a process: expired keys stay expired.
//! 4. Every answer comes with the newest sequence that it observed; who answers a client waits for
//!    that sequence to be durable.

pub mod backup;
pub mod database_map;
mod dead;
mod evict;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub mod key_events;
pub mod large;
pub mod ledger;
pub mod lock;
pub mod message;
pub mod overlay;
pub mod participant;
pub mod pin;
mod reclaim;
pub mod shard;
pub mod tracking;
mod upload;
pub mod view;
mod view_large;
pub mod watch;

pub use database_map::{DatabaseMap, MapChange, NamedKeyspace};
pub use key_events::KeyEvents;
pub use large::{LargeMap, ValueId, ValueIds};
pub use lock::{LockMode, LockTable, TaskId};
pub use overlay::Overlay;
pub use pin::PinId;
pub use shard::{Applied, FetchFailure, RunOutcome, Shard, ShardEvent, ShardSettings, Workspace};
pub use tracking::{Holder, Stale, TrackTable};
pub use view::{Record, Records, Stop, View, check_held};
pub use view_large::Place;
pub use watch::{WatchTable, WatchedKey, WatcherId};
