//! Moving slots from one open store to another, and compacting one, while both serve.
//!
//! The calling thread drives both stores; between two steps it hands them to the caller's function, which
//! reads and writes as it likes. See [`tierstone_logstore::transfer`] for how the shards do it.
//!
//! Invariants:
//! 1. Until [`MovePhase::HandedOver`] the source has everything: an error, or a crash of both, before it
//!    changes nothing there.
//! 2. From [`MovePhase::HandedOver`] on the target has the slots' newest records, durably. Only then are
//!    they deleted at the source.

use crate::batch::KeyspaceName;
use crate::lane::{Lane, Patience};
use crate::local::Store;
use crate::named::{KeyspaceInfo, KeyspaceOptions, resolve};
use std::ops::RangeInclusive;
use std::time::Duration;
use tierstone_base::position::SLOT_COUNT;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result};
use tierstone_logstore::compact::CompactProgress;
use tierstone_logstore::transfer::{MovedRecord, SplitProgress};
use tierstone_media::Wait;
use tierstone_media::file::FileDevice;

/// What a move of slots is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovePhase {
    /// Records go over; both stores serve.
    Copying,
    /// Everything is durable at the target, and nothing has been deleted at the source. Told once: the
    /// moment to note, durably, that the slots have moved. Writes to them at the source give `Retry`.
    HandedOver,
    /// The source deletes what has moved. Writes to the slots there give `Unsupported`.
    Dropping,
}

/// How far a move of slots has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveProgress {
    /// What it is doing.
    pub phase: MovePhase,
    /// Segments of this phase's scan, of all shards of the source.
    pub segments_total: u32,
    /// Of these, not scanned yet.
    pub segments_left: u32,
    /// Keys that were written meanwhile and have to go over again.
    pub changed_keys: u64,
    /// Records sent so far, changes too.
    pub records: u64,
    /// Bytes of keys and values sent so far.
    pub bytes: u64,
}

/// What a move of slots has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveReport {
    /// Records sent, changes too.
    pub records: u64,
    /// Bytes of keys and values sent.
    pub bytes: u64,
    /// How long writes to the slots were refused before the target had all of them, durably.
    pub lock: Duration,
}

/// Bytes that a step takes from each shard.
const STEP_BYTES: usize = 512 << 10;
/// Records that are written as one.
const RECORDS_A_WRITE: usize = 64;

impl Store {
    /// Moves all keys of `slots` (Redis Cluster slots, 0 to 16383) of all databases to `target`, while both
    /// serve: `between` gets this store, the target and the progress between steps, and may read and
    /// write. Writes to the slots here, up to the hand-over, go over too; of keys that were written in
    /// both, the target's write wins.
    ///
    /// Returns when the target has all of it, durably, and nothing of it is left here. If the process
    /// ends after [`MovePhase::HandedOver`] was told and before that, the target has everything, and what
    /// is left here is to be dropped with [`Store::drop_slots`].
    ///
    /// Cost: a sequential scan of this store's segments, one read and one write of each moved byte; a
    /// second scan and a deletion of some 50 bytes a key.
    ///
    /// ```
    /// use tierstone::{DatabaseOptions, MovePhase, Store};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-split-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let mut source = Store::open(&DatabaseOptions::new(directory.join("source")))?;
    /// let mut target = Store::open(&DatabaseOptions::new(directory.join("target")))?;
    /// for number in 0..1_000u32 {
    ///     let _ticket = source.put_nowait(&number.to_be_bytes(), b"value")?;
    /// }
    /// let report = source.split_to(&mut target, 8_192..=16_383, |source, target, progress| {
    ///     if progress.phase == MovePhase::Copying {
    ///         // The program goes on meanwhile.
    ///         let _ticket = source.put_nowait(b"beside", b"the move");
    ///     }
    /// })?;
    /// assert!(source.len() > 0 && target.len() > 0);
    /// assert_eq!(source.len() + target.len(), 1_001);
    /// # drop((source, target));
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput`: no such slots, or `target` has fewer databases. `Unsupported`: there are values above
    /// 64 KiB that the server wrote. `Busy`: a move is under way.
    /// `Retry`: more was written meanwhile than could be followed; begin again. Others: as
    /// [`Store::put`]. Before the hand-over this store is as if nothing had happened, and what the target
    /// got of the slots is void: [`Store::drop_slots`] of the target takes it away.
    pub fn split_to(
        &mut self,
        target: &mut Store,
        slots: RangeInclusive<u16>,
        mut between: impl FnMut(&mut Store, &mut Store, &MoveProgress),
    ) -> Result<MoveReport> {
        let range = positions(&slots)?;
        target.adopt_keyspaces(self)?;
        self.begin_split(range)?;
        let moved = target.begin_merge().and_then(|()| {
            let moved = self.move_all(target, &mut between);
            target.lanes.iter_mut().for_each(|lane| lane.engine.end_merge());
            moved
        });
        self.lanes.iter_mut().for_each(|lane| lane.engine.end_split());
        moved
    }

    /// Takes all keys of `source` in; `source` is empty afterwards. Otherwise as [`Store::split_to`].
    /// `between` gets this store, the source and the progress.
    ///
    /// # Errors
    /// As [`Store::split_to`].
    pub fn merge_from(
        &mut self,
        source: &mut Store,
        mut between: impl FnMut(&mut Store, &mut Store, &MoveProgress),
    ) -> Result<MoveReport> {
        source
            .split_to(self, 0..=SLOT_COUNT - 1, |source, target, progress| between(target, source, progress))
    }

    /// Deletes all keys of `slots` in all databases, durably: what was left of a move that was handed
    /// over, or came before one that was given up.
    ///
    /// # Errors
    /// `InvalidInput`: no such slots. `Busy`: a move is under way. Others: as [`Store::delete`].
    pub fn drop_slots(&mut self, slots: RangeInclusive<u16>) -> Result<()> {
        let range = positions(&slots)?;
        self.begin_split(range)?;
        let dropped = self.drop_all_slots();
        self.lanes.iter_mut().for_each(|lane| lane.engine.end_split());
        dropped
    }

    fn drop_all_slots(&mut self) -> Result<()> {
        self.lanes.iter_mut().try_for_each(|lane| lane.engine.lock_split())?;
        let mut void = Vec::new();
        let mut patience = Patience::default();
        while !self.all_splits(|progress| progress.drained)? {
            void.clear();
            self.take_moved(&mut void, &mut patience, |progress| progress.drained)?;
        }
        self.lanes.iter_mut().try_for_each(|lane| lane.engine.drop_split())?;
        while !self.drop_step(&mut patience)? {}
        Ok(())
    }

    /// Rewrites everything that is not dense, while the store serves: `between` gets the store and the
    /// progress between steps. Garbage is then what was written since. Segments with records of
    /// [`crate::Snapshot`]s are left as they are.
    ///
    /// Cost: one read and one write of each live byte in segments that are not dense.
    ///
    /// # Errors
    /// `Busy`: a compaction is under way. `Retry`: there is no space for it; what was compacted stays so.
    /// Others: as [`Store::put`].
    pub fn compact(&mut self, mut between: impl FnMut(&mut Store, &CompactProgress)) -> Result<()> {
        for place in 0..self.lanes.len() {
            if let Err(error) = self.lanes[place].engine.begin_compact() {
                self.lanes[..place].iter_mut().for_each(|lane| lane.engine.end_compact());
                return Err(error);
            }
        }
        let result = self.compact_all(&mut between);
        self.lanes.iter_mut().for_each(|lane| lane.engine.end_compact());
        result
    }

    fn compact_all(&mut self, between: &mut impl FnMut(&mut Store, &CompactProgress)) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            let mut sum = CompactProgress::default();
            for lane in &mut self.lanes {
                let progress = lane.engine.compact_progress();
                if progress.segments_left > 0 {
                    lane.check_health()?;
                    lane.wait(&mut patience)?;
                }
                sum.segments_total += progress.segments_total;
                sum.segments_left += progress.segments_left;
            }
            between(self, &sum);
            if sum.segments_left == 0 {
                return self.sync();
            }
        }
    }

    fn begin_split(&mut self, range: (Position, Position)) -> Result<()> {
        for place in 0..self.lanes.len() {
            let lane = &mut self.lanes[place];
            let begun = lane.check_health().and_then(|()| lane.engine.begin_split(range));
            if let Err(error) = begun {
                self.lanes[..place].iter_mut().for_each(|lane| lane.engine.end_split());
                return Err(error);
            }
        }
        Ok(())
    }

    fn begin_merge(&mut self) -> Result<()> {
        for place in 0..self.lanes.len() {
            if let Err(error) = self.lanes[place].engine.begin_merge() {
                self.lanes[..place].iter_mut().for_each(|lane| lane.engine.end_merge());
                return Err(error);
            }
        }
        Ok(())
    }

    fn move_all(
        &mut self,
        target: &mut Store,
        between: &mut impl FnMut(&mut Store, &mut Store, &MoveProgress),
    ) -> Result<MoveReport> {
        let mut patience = Patience::default();
        let mut records = Vec::new();
        // What went over before the lock is durable before it: the lock waits for the last changes only.
        for synced in [false, true] {
            if synced {
                target.sync()?;
            }
            while !self.all_splits(|progress| progress.caught_up)? {
                self.take_moved(&mut records, &mut patience, |progress| progress.caught_up)?;
                self.ingest_into(target, &mut records)?;
                let progress = self.move_progress(MovePhase::Copying)?;
                between(self, target, &progress);
            }
        }
        let locked_us = self.lanes[0].tick().monotonic_us;
        self.lanes.iter_mut().try_for_each(|lane| lane.engine.lock_split())?;
        while !self.all_splits(|progress| progress.drained)? {
            self.take_moved(&mut records, &mut patience, |progress| progress.drained)?;
            self.ingest_into(target, &mut records)?;
        }
        target.sync()?;
        let lock = Duration::from_micros(self.lanes[0].tick().monotonic_us - locked_us);
        let handed = self.move_progress(MovePhase::HandedOver)?;
        between(self, target, &handed);
        self.lanes.iter_mut().try_for_each(|lane| lane.engine.drop_split())?;
        while !self.drop_step(&mut patience)? {
            let progress = self.move_progress(MovePhase::Dropping)?;
            between(self, target, &progress);
        }
        Ok(MoveReport { records: handed.records, bytes: handed.bytes, lock })
    }

    fn all_splits(&self, is_done: impl Fn(&SplitProgress) -> bool) -> Result<bool> {
        let mut all = true;
        for lane in &self.lanes {
            all &= is_done(&lane.engine.split_progress()?);
        }
        Ok(all)
    }

    fn move_progress(&self, phase: MovePhase) -> Result<MoveProgress> {
        let mut sum = MoveProgress {
            phase,
            segments_total: 0,
            segments_left: 0,
            changed_keys: 0,
            records: 0,
            bytes: 0,
        };
        for lane in &self.lanes {
            let progress = lane.engine.split_progress()?;
            sum.segments_total += progress.segments_total;
            sum.segments_left += progress.segments_left;
            sum.changed_keys += progress.changed_keys;
            sum.records += progress.records;
            sum.bytes += progress.bytes;
        }
        Ok(sum)
    }

    /// A turn of every shard that is not done, and what it has to send.
    fn take_moved(
        &mut self,
        records: &mut Vec<MovedRecord>,
        patience: &mut Patience,
        is_done: impl Fn(&SplitProgress) -> bool,
    ) -> Result<()> {
        for lane in &mut self.lanes {
            lane.check_health()?;
            let before = records.len();
            lane.turn(Wait::Poll);
            lane.engine.take_moved(STEP_BYTES, records);
            if records.len() == before && !is_done(&lane.engine.split_progress()?) {
                lane.wait(patience)?;
            }
        }
        Ok(())
    }

    /// Makes the keyspaces with names that `source` has and this store has not.
    fn adopt_keyspaces(&mut self, source: &Store) -> Result<()> {
        let databases = |store: &Store| store.database().facts().map.databases();
        if databases(self) < databases(source) {
            let message = "the target has fewer databases than the source";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let ids = source.database().facts().map.keyspaces();
        if ids.iter().any(|id| source.len_of(id.chunks()) > 0) {
            let message = "the source has values in chunks, which the server wrote: they cannot be moved yet";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        for KeyspaceInfo { name, index } in source.keyspaces() {
            self.open_keyspace(&name, KeyspaceOptions { index: Some(index), ..KeyspaceOptions::default() })?;
        }
        Ok(())
    }

    /// This store's keyspaces in order, with the target's that have their numbers or names. Stores number
    /// keyspaces by themselves; records of keyspaces that are gone are not among them, and stay.
    fn counterparts(&self, target: &Store) -> Result<Vec<(KeyspaceId, KeyspaceId)>> {
        let (own, others) = (&self.database().facts().map, &target.database().facts().map);
        let mut pairs = Vec::new();
        for (&id, number) in own.keyspaces().iter().zip(0..) {
            pairs.push((id, resolve(others, KeyspaceName::Number(number))?));
        }
        for (name, named) in own.names() {
            pairs.push((named.id, resolve(others, KeyspaceName::Name(name))?));
        }
        pairs.sort_unstable();
        Ok(pairs)
    }

    /// Writes `records` of this store to the target, and takes them out.
    fn ingest_into(&self, target: &mut Store, records: &mut Vec<MovedRecord>) -> Result<()> {
        let shards = target.lanes.len() as u16;
        let counterparts = self.counterparts(target)?;
        let mut of_lane: Vec<Vec<MovedRecord>> = Vec::new();
        of_lane.resize_with(target.lanes.len(), Vec::new);
        for mut record in records.drain(..) {
            let known = counterparts.binary_search_by_key(&record.keyspace, |(id, _)| *id);
            let Ok(place) = known else { continue };
            record.keyspace = counterparts[place].1;
            let shard = target.hasher().position(&record.key).shard(shards);
            of_lane[usize::from(shard)].push(record);
        }
        for (lane, records) in target.lanes.iter_mut().zip(of_lane) {
            records.chunks(RECORDS_A_WRITE).try_for_each(|records| ingest(lane, records))?;
        }
        Ok(())
    }

    /// One turn of the drop; true when nothing is left, durably.
    fn drop_step(&mut self, patience: &mut Patience) -> Result<bool> {
        let mut all = true;
        for lane in &mut self.lanes {
            lane.check_health()?;
            let progress = lane.engine.split_progress()?;
            if progress.dropped {
                continue;
            }
            all = false;
            if progress.segments_left == 0 && progress.changed_keys == 0 {
                let applied = lane.start_sync()?;
                lane.make_durable(applied)?;
            }
            lane.wait(patience)?;
        }
        Ok(all)
    }
}

/// Writes moved records to one shard; waits while there is no room yet.
fn ingest(lane: &mut Lane<FileDevice>, records: &[MovedRecord]) -> Result<()> {
    lane.attempt(|engine, now| engine.ingest(now, records)).map(drop)
}

/// The first and the last position of slots.
fn positions(slots: &RangeInclusive<u16>) -> Result<(Position, Position)> {
    if slots.is_empty() || *slots.end() >= SLOT_COUNT {
        let message = format!("slots {} to {}: 0 to {} exist", slots.start(), slots.end(), SLOT_COUNT - 1);
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok((Position::first_of_slot(*slots.start()), Position::last_of_slot(*slots.end())))
}

#[cfg(test)]
#[path = "transfer_test.rs"]
mod transfer_test;
