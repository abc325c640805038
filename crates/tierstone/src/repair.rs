//! Repair: a new store out of what is whole in a damaged one, which stays as it is.
//!
//! Invariants:
//! 1. The source is read only, under its lock.
//! 2. The target is a new store that lies apart from the source. It says that it is being filled until everything saved is
//!    durable: till then nothing opens it.
//! 3. Keyspaces keep their ids, and sequences begin above those of the source, from which the ids of
//!    large values are made: none is given twice.

use crate::backup::check_apart_from_store;
use crate::database::{Database, DatabaseFacts, DatabaseOptions, facts_of};
use crate::lane::Lane;
use crate::nvm::NvmStore;
use crate::storage::{Storage, StorageDevice};
use std::path::PathBuf;
use tierstone_base::clock::SystemClock;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::{Key, ValueKind, Write, WriteKind};
use tierstone_logstore::check::{
    CheckProgress, CheckReport, CheckSettings, Salvaged, check_bare, salvage, survey,
};
use tierstone_logstore::format::superblock::META_BYTES;
use tierstone_logstore::location::{SEGMENT_BYTES_MAX, SEGMENT_COUNT_MAX};
use tierstone_logstore::redo::NewestWrites;
use tierstone_media::Geometry;
use tierstone_media::file::{DurableMethod, FileStoreSettings};

/// How a store is repaired.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// The directories of the damaged store; nothing has it open.
    pub source: Vec<PathBuf>,
    /// Directories of the new store; there is no store in them.
    pub target: Vec<PathBuf>,
    /// Memory for finding the newest versions, and once more for the new store's index, in bytes.
    pub memory_bytes: u64,
}

/// Opens a store that nobody serves, to be read only.
fn open_closed(directories: &[PathBuf], memory_bytes: u64) -> Result<(StorageDevice, CheckSettings)> {
    let storage = Storage::open(&FileStoreSettings {
        segment_bytes: SEGMENT_BYTES_MAX,
        segment_limit: SEGMENT_COUNT_MAX,
        meta_bytes: META_BYTES,
        create: false,
        ..FileStoreSettings::new(directories.to_vec())
    })?;
    // Nothing is written: the method is of no consequence.
    let device = storage.device(DurableMethod::WriteThenFlush)?;
    Ok((device, CheckSettings { existing_segments: storage.existing_segments(), memory_bytes }))
}

/// Where the newest writes of a store lie that nobody has open. Nothing is changed. Cost: its superblock and the headers of its
/// segments are read.
///
/// # Errors
/// `Busy`: it is open. What the device says, or `Corrupt`, where it cannot be told.
pub fn newest_writes(directories: &[PathBuf]) -> Result<NewestWrites> {
    let (mut device, _) = open_closed(directories, 0)?;
    let (superblock, findings) = check_bare(&mut device)?;
    Ok(NewestWrites::of(&superblock, !findings.is_empty()))
}

/// Verifies every byte of a closed store without changing one. An open one verifies itself:
/// [`crate::Store::verify`].
///
/// # Errors
/// `Busy`: it is open. Others: as [`tierstone_logstore::check::check`]; damage is in the report.
pub fn check(
    directories: &[PathBuf],
    memory_bytes: u64,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let (mut device, settings) = open_closed(directories, memory_bytes)?;
    let (superblock, _) = check_bare(&mut device)?;
    let mut report = tierstone_logstore::check::check(&mut device, &settings, progress)?;
    if let Err(error) = facts_of(&superblock.facts).and_then(|facts| facts.check_restored()) {
        report.note_superblock(error.message().to_owned());
    }
    Ok(report)
}

/// The same, and of `region`, where the redo log of the store lies, what its next opening would take from there. The
/// region's file is not changed.
///
/// # Errors
/// `InvalidInput`: there is no region, or not the one that the store needs. Others: as [`check`]; damage is in the report.
pub fn check_with_redo(
    directories: &[PathBuf],
    region: &str,
    memory_bytes: u64,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let mut report = check(directories, memory_bytes, progress)?;
    let (mut device, _) = open_closed(directories, memory_bytes)?;
    let (superblock, findings) = check_bare(&mut device)?;
    let options = DatabaseOptions { any_guarantee: true, ..DatabaseOptions::default() };
    let memory = crate::redo::open_closed(region, &options)?;
    let geometry = Geometry {
        meta_bytes: META_BYTES,
        segment_bytes: superblock.segment_bytes,
        segment_limit: SEGMENT_COUNT_MAX,
    };
    report.note_redo(&tierstone_logstore::redo::survey(
        &memory,
        &superblock,
        !findings.is_empty(),
        geometry,
    )?);
    Ok(report)
}

/// The same of a store that lies wholly in persistent memory; `None`: `directories` name no region.
///
/// # Errors
/// `Busy`: it is open. Others: as [`tierstone_pmstore::check::check`]; damage is in the report.
pub fn check_nvm(
    directories: &[PathBuf],
    memory_bytes: u64,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<Option<tierstone_pmstore::check::CheckReport>> {
    let Some(source) = NvmStore::among(directories)? else { return Ok(None) };
    let options = DatabaseOptions { create: false, any_guarantee: true, ..DatabaseOptions::default() };
    crate::nvm::check(&NvmStore::open(source, &options)?, memory_bytes, progress).map(Some)
}

/// How many shards a store has that lies wholly in persistent memory, as it must be opened with; `None`: `directories` name
/// no region.
///
/// # Errors
/// `Busy`: it is open. `InvalidInput`: there is no store. Others: as [`tierstone_pmstore::shard_count`].
pub fn nvm_shards(directories: &[PathBuf]) -> Result<Option<u16>> {
    let Some(source) = NvmStore::among(directories)? else { return Ok(None) };
    let options = DatabaseOptions { create: false, any_guarantee: true, ..DatabaseOptions::default() };
    let store = NvmStore::open(source, &options)?;
    tierstone_pmstore::shard_count(store.region(), crate::nvm::ENGINE_BASE).map(Some)
}

/// Makes a new store with the newest whole version of every key of a damaged one. What could not be saved
/// is in the report: keys of which nothing is whole, and keys of which an older version had to do. A target that was
/// broken off is refused by whoever opens it: remove it.
///
/// Cost: the source is read twice a pass; the target is written once.
///
/// # Errors
/// `Busy`: the source is open. `InvalidInput`: there is no store in the source, one in the target, or the target lies in
/// persistent memory or not apart from the source. `NoSpace`, `NoMemory`: the target has no room. Others: as
/// [`tierstone_logstore::check::check`].
pub fn repair(options: &RepairOptions, progress: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport> {
    let (mut device, settings) = open_closed(&options.source, options.memory_bytes)?;
    check_target(options)?;
    let found = survey(&mut device, &settings)?;
    let facts = facts_of(&found.superblock.facts)?;
    facts.check_restored()?;
    let mut database = Database::create_like(
        &DatabaseOptions {
            directories: options.target.clone(),
            memory_bytes: options.memory_bytes,
            segment_bytes: Some(found.superblock.segment_bytes),
            ..DatabaseOptions::default()
        },
        DatabaseFacts { is_being_restored: true, ..facts },
        (found.newest_seq, found.past_ms),
    )?;
    let Some(plan) = database.take_plans().pop() else {
        unreachable!("a database with one shard has one plan")
    };
    let mut device_of_target = database.device()?;
    let (engine, _) = plan.build(&mut device_of_target)?;
    let mut lane = Lane::new(engine, device_of_target, SystemClock::new());
    let hasher = database.hasher();
    let report = salvage(&mut device, &settings, progress, &mut |record: Salvaged<'_>| {
        let key = Key { keyspace: record.keyspace, position: hasher.position(record.key), bytes: record.key };
        let kind =
            WriteKind::Put { value: record.value, expiry_ms: record.expiry_ms, kind: ValueKind(record.kind) };
        lane.attempt(|engine, now| tierstone_engine::Engine::write(engine, now, &[Write { key, kind }]))
            .map(drop)
    })?;
    let mut shutting = lane.start_shut()?;
    while !lane.go_on_shutting(&mut shutting)? {}
    drop(lane);
    // Everything is in it: it may be opened from now on.
    database.end_restore()?;
    database.close()?;
    Ok(report)
}

/// Refuses a target that cannot be one, before anything is made.
fn check_target(options: &RepairOptions) -> Result<()> {
    if let Some(source) = NvmStore::among(&options.target)? {
        let message = format!(
            "nvm:{source} lies in persistent memory, into which no store is repaired: repair it into a directory, back that \
             up, and restore the backup into the region"
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    check_apart_from_store(&options.source, &options.target)
}

#[cfg(test)]
#[path = "repair_test.rs"]
mod repair_test;
