//! Backups of open stores, and stores made of backups.
//!
//! A backup is what all databases and keyspaces held at one moment, in frames with checksums
//! ([`tierstone_store::backup`]). [`Store::backup`] and [`SharedStore::backup`](crate::SharedStore::backup) make one
//! beside the traffic; [`verify_backup`] checks every byte of one; [`restore`] makes a new store of it.
//!
//! Invariants:
//! 1. The cut is one over all shards: batches are in it whole or not at all.
//! 2. The manifest is written last, when everything before it is durable. What has none is no backup.
//! 3. A new store cannot be opened before everything of its backup is in it, durably.

mod apart;
mod chain;
mod directory;
mod files;
mod restore;

pub(crate) use apart::check_apart_from_store;
pub use chain::backup_base;
pub use directory::{BackupWriter, verify_backup, verify_backup_stream, verify_backup_with};
pub use restore::{restore, restore_stream, restore_with};

use crate::database::DatabaseFacts;
use crate::lane::Patience;
use crate::local::Store;
use serde::Serialize;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_engine::{BackupCut, BackupStep, Engine};
use tierstone_media::Wait;
pub use tierstone_store::backup::since::BackupBase;
use tierstone_store::backup::{BackupReader, BackupStart, ShardFramer, Taken};

/// What a whole backup holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BackupReport {
    /// The moment that it shows, in milliseconds since 1970. What had expired by then is not in it.
    pub taken_at_ms: u64,
    /// Records: one a key, and those of which the server makes large values.
    pub records: u64,
    /// Bytes of these records: keys, values and a few more each.
    pub bytes: u64,
    /// Frames of records.
    pub frames: u64,
    /// Records that it shows, those in the backups that it was made since included.
    pub shown: u64,
    /// Of these, keys as users see them: the others are pieces of large values, and notes about what is left of some.
    pub keys: u64,
    /// How many backups it was made since.
    pub bases: u64,
    /// Shards of the store that it is of. A new store may have any other number.
    pub shards: u16,
}

/// How far a backup, or its reading, has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes of records so far.
    pub bytes: u64,
    /// About how many there will be.
    pub bytes_total: u64,
}

impl BackupReport {
    /// Of what `reader` has taken, of which `keys` were counted.
    pub(crate) fn of(reader: &BackupReader, keys: u64) -> Self {
        let totals = reader.totals();
        let (taken_at_ms, shards) = reader.start().map_or((0, 0), |start| (start.taken_at_ms, start.shards));
        let (records, bytes, frames) = (totals.records, totals.bytes, totals.frames);
        BackupReport { taken_at_ms, records, bytes, frames, shown: records, keys, bases: 0, shards }
    }
}

/// How many of the records of a frame are keys of users.
pub(crate) fn keys_of(taken: &Taken<'_>) -> u64 {
    match taken {
        Taken::Records { records, .. } => {
            records.clone().filter(|record| record.keyspace.is_user()).count() as u64
        }
        _ => 0,
    }
}

impl BackupProgress {
    pub(crate) fn of(reader: &BackupReader) -> Self {
        let bytes = reader.totals().bytes;
        let about = reader.start().map_or(0, |start| start.bytes);
        BackupProgress { bytes, bytes_total: about.max(bytes) }
    }
}

/// What a backup of these shards, which have made one cut, is of.
pub(crate) fn start_of(
    facts: &DatabaseFacts,
    cuts: &[BackupCut],
    base: Option<&BackupBase>,
) -> Result<BackupStart> {
    if let (Some(base), Some(cut)) = (base, cuts.first()) {
        base.check_cut(cut)?;
    }
    let most = |of: fn(&BackupCut) -> u64| cuts.iter().map(of).max().unwrap_or(0);
    Ok(BackupStart {
        id: SeededRandom::system_seed()?,
        taken_at_ms: most(|cut| cut.wall_ms),
        shards: cuts.len() as u16,
        segment_bytes: most(|cut| cut.segment_bytes),
        seq: most(|cut| cut.seq),
        past_ms: most(|cut| cut.past_ms),
        bytes: cuts.iter().map(|cut| cut.bytes).sum(),
        map: facts.map.clone(),
        index: facts.index,
        store: most(|cut| cut.store),
        opening: most(|cut| cut.opening),
        base: base.map(|base| base.name),
    })
}

/// Backups that were dropped before their end: the next call of the store ends them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abandoned(Rc<Cell<bool>>);

impl Abandoned {
    /// Whether both are of one store.
    fn is_of(&self, other: &Abandoned) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Whether one was dropped since this was asked last.
    pub fn take(&self) -> bool {
        self.0.take()
    }
}

/// A backup of a [`Store`] under way: see [`Store::begin_backup`].
#[derive(Debug)]
pub struct Backup {
    writer: BackupWriter,
    framers: Vec<ShardFramer>,
    /// Shards that have given everything.
    ended: Vec<bool>,
    abandoned: Abandoned,
    is_done: bool,
}

impl Store {
    /// Makes a backup of everything that the store holds now in a new directory. See [`Store::begin_backup`].
    ///
    /// ```
    /// use tierstone::{DatabaseOptions, Store, restore};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-backup-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let mut store = Store::open(&DatabaseOptions::new(directory.join("store")))?;
    /// store.put(b"planet:3", b"Earth")?;
    /// let report = store.backup(directory.join("backup"), &mut |_| {})?;
    /// assert_eq!(report.records, 1);
    ///
    /// let options = DatabaseOptions { shards: 2, ..DatabaseOptions::new(directory.join("new")) };
    /// restore(directory.join("backup"), &options, &mut |_| {})?;
    /// let mut new = Store::open(&options)?;
    /// assert_eq!(new.get(b"planet:3")?.as_deref(), Some(&b"Earth"[..]));
    /// # drop((store, new));
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::begin_backup`] and [`Backup::step`].
    pub fn backup(
        &mut self,
        directory: impl AsRef<Path>,
        progress: &mut dyn FnMut(BackupProgress),
    ) -> Result<BackupReport> {
        self.backup_with(BackupWriter::create(directory)?, progress)
    }

    /// Makes a backup of what has changed since the one in `base`, which is of this store: together they show everything
    /// that the store holds now. See [`BackupWriter::create_since`]. Cost: besides what is new, the summaries of
    /// changed segments are read; where the store was opened since, those of all.
    ///
    /// # Errors
    /// As [`BackupWriter::create_since`], [`Store::begin_backup`] and [`Backup::step`].
    pub fn backup_since(
        &mut self,
        base: impl AsRef<Path>,
        directory: impl AsRef<Path>,
        progress: &mut dyn FnMut(BackupProgress),
    ) -> Result<BackupReport> {
        let writer = BackupWriter::create_since(directory, base)?;
        self.backup_with(writer, progress)
    }

    fn backup_with(
        &mut self,
        writer: BackupWriter,
        progress: &mut dyn FnMut(BackupProgress),
    ) -> Result<BackupReport> {
        let mut backup = self.begin_backup(writer)?;
        loop {
            if let Some(report) = backup.go_on(self, true)? {
                return Ok(report);
            }
            progress(backup.progress());
        }
    }

    /// Begins a backup of everything that the store holds now, in all databases and keyspaces. Other calls
    /// may come between its steps: what they write, delete or drop is not in it. Cost: everything that is stored is
    /// read once; what is replaced meanwhile keeps its space until it has been read.
    ///
    /// # Errors
    /// `Busy`: a backup of this store is under way. `DeviceFailed`: the store has failed. `InvalidInput`: the writer's
    /// base is of another store, of another number of shards, or of a later time. Others: what the writer says.
    pub fn begin_backup(&mut self, mut writer: BackupWriter) -> Result<Backup> {
        self.release_dropped();
        if let Some(base) = writer.base() {
            base.check_shards(self.lanes.len())?;
        }
        let mut cuts = Vec::with_capacity(self.lanes.len());
        for (lane, shard) in self.lanes.iter_mut().zip(0..) {
            let begun = lane.check_health().and_then(|()| {
                let now = lane.tick();
                lane.engine.begin_backup(now, writer.base().map(|base| base.of_shard(shard)))
            });
            match begun {
                Ok(cut) => cuts.push(cut),
                Err(error) => {
                    self.lanes.iter_mut().take(cuts.len()).for_each(|lane| lane.engine.end_backup());
                    return Err(error);
                }
            }
        }
        let abandoned = self.abandoned_backup();
        // Dropped on an error, it ends what has begun.
        let begun = start_of(self.database().facts(), &cuts, writer.base()).and_then(|start| {
            writer.frame(&start.encode()?)?;
            Ok((0..start.shards).map(|shard| ShardFramer::new(start.id, shard)).collect())
        });
        match begun {
            Ok(framers) => {
                Ok(Backup { writer, framers, ended: vec![false; cuts.len()], abandoned, is_done: false })
            }
            Err(error) => {
                self.lanes.iter_mut().for_each(|lane| lane.engine.end_backup());
                Err(error)
            }
        }
    }
}

impl Backup {
    /// Takes what `store` has read meanwhile, and lets it read on: some 100 µs a shard, and what writing down
    /// takes. Gives what the backup holds when it is whole. `store` is the one that it is of.
    ///
    /// # Errors
    /// `InvalidInput`: `store` is another one; nothing has happened. With all others the backup has ended, and is none: `SnapshotLost`: the store was full, and what the backup had still to read
    /// took the space. `Corrupt`: a record cannot be read. `DeviceFailed`: the store has failed. Others: what the
    /// writer says.
    pub fn step(&mut self, store: &mut Store) -> Result<Option<BackupReport>> {
        self.go_on(store, false)
    }

    /// How far it is.
    pub fn progress(&self) -> BackupProgress {
        self.writer.progress()
    }

    /// A step; one that `waits` does so for something to happen.
    fn go_on(&mut self, store: &mut Store, waits: bool) -> Result<Option<BackupReport>> {
        if !self.abandoned.is_of(&store.abandoned_backup()) {
            return Err(Error::new(ErrorKind::InvalidInput, "the backup is of another store"));
        }
        let mut has_moved = false;
        for (shard, lane) in store.lanes.iter_mut().enumerate() {
            if self.ended[shard] {
                continue;
            }
            lane.check_health()?;
            lane.turn(Wait::Poll);
            loop {
                match lane.engine.take_backup()? {
                    BackupStep::Piece(piece) => self.writer.frame(&self.framers[shard].frame(&piece))?,
                    BackupStep::Later => break,
                    BackupStep::End => {
                        self.ended[shard] = true;
                        lane.engine.end_backup();
                        break;
                    }
                }
                has_moved = true;
            }
        }
        if self.ended.iter().all(|ended| *ended) {
            self.is_done = true;
            return self.writer.complete().map(Some);
        }
        if waits && !has_moved {
            let left = store.lanes.iter_mut().zip(&self.ended).find(|(_, ended)| !**ended);
            if let Some((lane, _)) = left {
                lane.wait(&mut Patience::default())?;
            }
        }
        Ok(None)
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        if !self.is_done {
            self.abandoned.0.set(true);
        }
    }
}
