//! A new store out of a backup.
//!
//! Invariants:
//! 1. Keyspaces keep their ids, and sequences begin above those of the backup's store, from which the ids of large
//!    values are made: none is given twice.
//! 2. The new store says that it is being filled until everything is in it, durably, and the manifest has agreed: till
//!    then nothing opens it.

use super::apart::check_apart;
use super::chain::{find, read_chain};
use super::directory::{check_alone, is_since, open, read};
use super::{BackupProgress, BackupReport, keys_of};
use crate::database::{Database, DatabaseFacts, DatabaseOptions};
use crate::lane::Lane;
use crate::lane::among::write_among;
use crate::nvm::NvmStore;
use crate::storage::StorageDevice;
use std::io::Read;
use std::path::{Path, PathBuf};
use tierstone_base::clock::SystemClock;
use tierstone_base::{Error, ErrorKind, KeyHasher, Result};
use tierstone_engine::{BackupRecord, Engine, Key, Write, WriteKind};
use tierstone_media::region::RegionSource;
use tierstone_store::DatabaseMap;
use tierstone_store::backup::{BackupStart, Taken};

/// Makes a new store of the backup at `from`, a directory or a file that has a stream. `options` say where and how:
/// its directories have no store yet; databases, keyspaces and their kinds are the backup's. Every checksum and
/// every count is checked. A store that was broken off is refused by whoever opens it: remove it.
///
/// Cost: the backup is read once and its records are written once.
///
/// # Errors
/// `InvalidInput`: there is no backup, there is a store in the target, or the target does not lie apart from the backup. `Corrupt`: the backup is damaged, or not
/// complete. `Incompatible`: a newer program made it. `NoSpace`, `NoMemory`: the target has no room.
pub fn restore(
    from: impl AsRef<Path>,
    options: &DatabaseOptions,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    restore_with(from, &[], options, progress)
}

/// The same, where the backups that it was made since lie in directories among `bases`, or beside it.
///
/// Cost: all backups of the chain are read once, and what the last one shows is written once.
///
/// # Errors
/// As [`restore`]; `InvalidInput`: one is missing that it was made since. `Corrupt`: one is another than it was made since.
pub fn restore_with(
    from: impl AsRef<Path>,
    bases: &[PathBuf],
    options: &DatabaseOptions,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    let from = from.as_ref();
    check_apart(from, &options.directories)?;
    if !is_since(from)? {
        return restore_stream(&mut *open(from)?, options, progress);
    }
    let chain = find(from, bases)?;
    chain.links.iter().try_for_each(|link| check_apart(&link.path, &options.directories))?;
    let mut target = Target::create(options, &chain.start)?;
    let report = read_chain(&chain, progress, |record| target.put(record))?;
    target.complete(report)
}

/// The same of a backup that comes as a stream.
///
/// # Errors
/// As [`restore`].
pub fn restore_stream(
    source: &mut dyn Read,
    options: &DatabaseOptions,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    let (mut target, mut keys) = (None, 0);
    let reader = read(source, |reader, taken| {
        progress(BackupProgress::of(reader));
        check_alone(reader)?;
        keys += keys_of(taken);
        match (taken, &mut target, reader.start()) {
            (Taken::Start, _, Some(start)) => target = Some(Target::create(options, start)?),
            (Taken::Records { records, .. }, Some(target), _) => {
                records.clone().try_for_each(|record| target.put(&record))?;
            }
            _ => {}
        }
        Ok(())
    })?;
    match target {
        Some(target) => target.complete(BackupReport::of(&reader, keys)),
        None => unreachable!("a backup that is complete has begun"),
    }
}

/// The store that is being made.
struct Target {
    database: Database,
    lanes: Vec<Lane<StorageDevice>>,
    hasher: KeyHasher,
    map: DatabaseMap,
    records: u64,
}

impl Target {
    fn create(options: &DatabaseOptions, start: &BackupStart) -> Result<Target> {
        if let Some(kind) = options.index.filter(|kind| *kind != start.index) {
            let (wanted, kept) = (kind.name(), start.index.name());
            let message =
                format!("the {wanted} index was asked for, but the backup's databases have the {kept} index");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let facts = DatabaseFacts {
            map: start.map.clone(),
            index: start.index,
            durable_method: options.durable_method.unwrap_or_default(),
            probe: None,
            is_being_restored: true,
        };
        // A region has no segments that somebody could choose.
        let region = NvmStore::among(&options.directories)?;
        if let Some(source @ RegionSource::Emulated { .. }) = &region {
            let message = format!(
                "nvm:{source} is memory of this process: what is restored there would be gone when it ends"
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let theirs = (start.segment_bytes != 0 && region.is_none()).then_some(start.segment_bytes);
        let segment_bytes = options.segment_bytes.or(theirs);
        let options = DatabaseOptions { segment_bytes, create: true, ..options.clone() };
        let mut database = Database::create_like(&options, facts, (start.seq, start.past_ms))?;
        let mut lanes = Vec::new();
        for plan in database.take_plans() {
            let mut device = database.device()?;
            let (engine, _) = plan.build(&mut device)?;
            lanes.push(Lane::new(engine, device, SystemClock::new()));
        }
        let hasher = database.hasher();
        Ok(Target { database, lanes, hasher, map: start.map.clone(), records: 0 })
    }

    fn put(&mut self, record: &BackupRecord<'_>) -> Result<()> {
        self.records += 1;
        // A keyspace was dropped when the backup was made, and one shard had not heard of it.
        if !self.map.holds(record.keyspace.user()) {
            return Ok(());
        }
        let position = self.hasher.position(record.key);
        let shards = self.lanes.len() as u16;
        let key = Key { keyspace: record.keyspace, position, bytes: record.key };
        let kind = WriteKind::Put { value: record.value, expiry_ms: record.expiry_ms, kind: record.kind };
        let shard = usize::from(position.shard(shards));
        // Whatever the kind of the value: large ones and their chunks come from here too.
        write_among(&mut self.lanes, shard, &[Write { key, kind }], |engine, now, writes| {
            engine.write(now, writes)
        })?;
        self.lanes[shard].attend();
        Ok(())
    }

    /// Everything has come, and the manifest has agreed.
    fn complete(mut self, report: BackupReport) -> Result<BackupReport> {
        if self.records != report.shown {
            let message = format!("{} records were restored of {}", self.records, report.shown);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        for mut lane in self.lanes {
            let mut shutting = lane.start_shut()?;
            while !lane.go_on_shutting(&mut shutting)? {}
        }
        // crash here [restored_not_opened]: everything is in the store, which nothing opens yet.
        self.database.end_restore()?;
        self.database.close()?;
        Ok(report)
    }
}
