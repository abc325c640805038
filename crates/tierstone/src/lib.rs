//! Tierstone as a library: a durable store of keys and values on flash, embedded in a program.
//!
//! A write that was acknowledged survives the loss of power. Data may be many times larger than memory:
//! a read of a record that is not in memory costs one read of the device.
//!
//! There are two handles on a database, and one may be open at a time:
//!
//! * [`Store`], the local one: the calling thread does all the work itself. The quickest for one
//!   thread.
//! * [`SharedStore`], for many threads and for tasks of any executor: a thread a shard does the work,
//!   and writes of all callers share their way to the device.
//!
//! # First use
//!
//! ```
//! use tierstone::{DatabaseOptions, Store};
//!
//! # let directory = std::env::temp_dir().join(format!("tierstone-doc-first-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&directory);
//! let mut store = Store::open(&DatabaseOptions::new(&directory))?;
//! store.put(b"planet:3", b"Earth")?; // durable when this returns
//! assert_eq!(store.get(b"planet:3")?.as_deref(), Some(&b"Earth"[..]));
//! assert!(store.delete(b"planet:3")?);
//! store.close()?;
//! # std::fs::remove_dir_all(&directory).unwrap();
//! # Ok::<(), tierstone::Error>(())
//! ```
//!
//! # Many at once
//!
//! A [`Batch`] happens whole or not at all, and costs one write of the device; so do many puts that are
//! not waited for one by one. [`Store::get_many`] reads the device for all its keys at the same time.
//!
//! ```
//! use tierstone::{Batch, DatabaseOptions, Store};
//!
//! # let directory = std::env::temp_dir().join(format!("tierstone-doc-many-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&directory);
//! let mut store = Store::open(&DatabaseOptions::new(&directory))?;
//! let mut batch = Batch::new();
//! batch.put(b"from", b"90").put(b"to", b"110").delete(b"pending");
//! store.write(&batch)?;
//!
//! for number in 0..1_000u32 {
//!     let _ticket = store.put_nowait(&number.to_be_bytes(), b"value")?;
//! }
//! store.sync()?; // all 1,000 are durable from here on
//!
//! let values = store.get_many(&[b"from", b"nowhere", b"to"])?;
//! assert_eq!(values, [Some(b"90".to_vec()), None, Some(b"110".to_vec())]);
//!
//! let mut count = 0;
//! for entry in store.scan() {
//!     let entry = entry?;
//!     count += usize::from(entry.value == b"value");
//! }
//! assert_eq!(count, 1_000);
//! # drop(store);
//! # std::fs::remove_dir_all(&directory).unwrap();
//! # Ok::<(), tierstone::Error>(())
//! ```
//!
//! # Many threads, and tasks
//!
//! Reads, writes, batches, pages of walks, [`SharedStore::sync`], snapshots, moves and compactions have twins whose names end
//! in `_async` ([`SharedRange::next_async`] for ranges): they give an [`Answer`] or another plain future, which needs no
//! particular executor; for an [`Answer`] a thread may also wait.
//!
//! These have none, and block: opening and [`SharedStore::close`]; [`SharedStore::len`], [`SharedStore::is_empty`] and
//! [`SharedStore::statistics`]; keyspaces with names ([`SharedStore::open_keyspace`], [`SharedStore::drop_keyspace`]); scans as
//! iterators; bulk loads; backups; verification. So does dropping the last handle, which waits for the shards' threads: after
//! [`SharedStore::open_serving`] until every shard that is being made is there.
//!
//! ```
//! use tierstone::{DatabaseOptions, SharedStore};
//!
//! # let directory = std::env::temp_dir().join(format!("tierstone-doc-shared-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&directory);
//! let store = SharedStore::open(&DatabaseOptions { shards: 2, ..DatabaseOptions::new(&directory) })?;
//! std::thread::scope(|scope| {
//!     for thread in 0..4u8 {
//!         let store = store.clone();
//!         scope.spawn(move || store.put(&[thread], b"here"));
//!     }
//! });
//! let answers: Vec<_> = (0..4u8).map(|thread| store.get_async(&[thread])).collect();
//! for answer in answers {
//!     assert_eq!(answer.wait()?.as_deref(), Some(&b"here"[..])); // or `answer.await?`
//! }
//! store.close()?;
//! # std::fs::remove_dir_all(&directory).unwrap();
//! # Ok::<(), tierstone::Error>(())
//! ```
//!
//! # When things go wrong
//!
//! An [`Error`] says by its [`ErrorKind`] what to do: try again, correct the input, free space, restore,
//! ask the operator. After a failed write of the device the shard that it was of answers nothing any
//! more until the store is opened again: what the device then holds is what counts. The other shards go on; calls that need
//! all of them (batches over several, snapshots, walks, [`Store::sync`]) fail.
//!
//! Without [`Store::close`] nothing that was acknowledged is lost: the next opening takes a little
//! longer, as after a crash.
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | opening, directories, limits | [`DatabaseOptions`], [`Database`] |
//! | when a write is acknowledged | [`Durability`] in [`DatabaseOptions::shard`] |
//! | keys in their order, ranges of them | [`DatabaseOptions::index`], [`Store::range`], [`SharedStore::range`] |
//! | values that expire | [`PutOptions`] |
//! | one moment of all keys | [`Store::snapshot`], [`SharedStore::snapshot`] |
//! | numbered databases | [`Store::keyspace`], [`SharedStore::keyspace`] |
//! | keyspaces with names, each with its index | [`Store::open_keyspace`], [`SharedStore::open_keyspace`] |
//! | very many records at once | [`Store::bulk_load`], [`SharedStore::bulk_load`] |
//! | moving keys between stores, compacting | [`Store::split_to`], [`Store::merge_from`], [`Store::compact`] |
//! | whether everything that is stored is whole | [`Store::verify`], [`SharedStore::verify`] |
//! | backups while it serves, and new stores of them | [`Store::backup`], [`SharedStore::backup`], [`restore`] |
//! | what it costs | [`Store::with_cost`] for calls, [`Store::statistics`] since the opening |

mod backup;
mod batch;
mod bulk;
mod cost;
pub mod database;
pub mod engine;
mod lane;
mod local;
#[cfg(test)]
mod memory_test;
mod named;
pub mod nvm;
mod plain;
mod range;
mod redo;
mod repair;
mod replace;
mod scan;
pub mod shared;
#[cfg(test)]
mod simulated;
mod snapshot;
mod space;
mod statistics;
pub mod storage;
mod transfer;
mod verify;
pub mod volume;

pub use backup::{
    Backup, BackupBase, BackupProgress, BackupReport, BackupWriter, backup_base, restore, restore_stream,
    restore_with, verify_backup, verify_backup_stream, verify_backup_with,
};
pub use batch::{Batch, Expiry, PutOptions};
pub use bulk::{BulkOptions, Loaded};
pub use cost::CallCost;
pub use database::{Database, DatabaseFacts, DatabaseOptions, NOTED_EVERY, find_files};
pub use local::{BulkLoad, Keyspace, Store, Ticket};
pub use named::{KeyspaceInfo, KeyspaceOptions};
pub use range::{KeyRange, Prefix, Range};
pub use redo::{RedoOptions, RedoReport};
pub use repair::{RepairOptions, check, check_nvm, check_with_redo, newest_writes, nvm_shards, repair};
pub use replace::replace_file;
pub use scan::{Cursor, Entry, Page};
pub use shared::{
    Answer, Opening, SharedBulkLoad, SharedKeyspace, SharedRange, SharedScan, SharedSnapshot,
    SharedSnapshotKeyspace, SharedSnapshotRange, SharedSnapshotScan, SharedStore,
};
pub use snapshot::{Scan, Snapshot, SnapshotKeyspace};
pub use tierstone_base::{Error, ErrorKind, Result};
pub use tierstone_engine::{Commit, Cost, Durability, EngineStatistics, IndexKind, Verification};
pub use tierstone_logstore::ShardSettings;
pub use tierstone_logstore::compact::CompactProgress;
pub use tierstone_media::file::{DirectIo, DurableMethod, FileBackend, FoundStore};
pub use tierstone_pmstore::check as nvm_check;
pub use transfer::{MovePhase, MoveProgress, MoveReport};
