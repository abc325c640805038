//! Moving slots from one open store to another, and compacting one, while both serve.
//!
//! The order of a move, whatever the handle, is in [`drive`]. Here is the local handle: the calling thread drives both
//! stores; between two steps it hands them to the caller's function, which reads and writes as it likes. The shared
//! handle's are in [`crate::shared`]. See [`tierstone_logstore::transfer`] for how the shards do it.
//!
//! Invariants:
//! 1. Until [`MovePhase::HandedOver`] the source has everything: an error, or a crash of both, before it
//!    changes nothing there.
//! 2. From [`MovePhase::HandedOver`] on the target has the slots' newest records, durably. Only then are
//!    they deleted at the source.

pub(crate) mod drive;
mod local;

use crate::local::Store;
use crate::named::{KeyspaceInfo, KeyspaceOptions};
use drive::at_once;
use local::LocalEnd;
use std::ops::RangeInclusive;
use std::time::Duration;
use tierstone_base::position::SLOT_COUNT;
use tierstone_base::{Error, ErrorKind, Position, Result};
use tierstone_logstore::compact::CompactProgress;

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

impl Store {
    /// Moves all keys of `slots` (Redis Cluster slots, 0 to 16383) of all databases to `target`, while both
    /// serve: `between` gets this store, the target and the progress between steps, and may read and
    /// write. Writes to the slots here, up to the hand-over, go over too; of keys that were written in
    /// both, the target's write wins. Keyspaces with names that are made here meanwhile are made there with their first key
    /// that goes over.
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
    /// `InvalidInput`: no such slots, or `target` has fewer databases. `Unsupported`: here or in
    /// `target` are values above 64 KiB that the server wrote. `Busy`: a move is under way.
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
        let (mut source, mut target) = (LocalEnd::new(self), LocalEnd::new(target));
        at_once(drive::split(&mut source, &mut target, range, |source, target, progress| {
            between(source.store, target.store, progress);
        }))
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
        at_once(drive::drop_range(&mut LocalEnd::new(self), positions(&slots)?))
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
        at_once(drive::compact(&mut LocalEnd::new(self), |end, progress| between(end.store, progress)))
    }

    /// Makes the keyspaces with names that `source` has and this store has not.
    fn adopt_keyspaces(&mut self, source: &Store) -> Result<()> {
        let databases = |store: &Store| store.database().facts().map.databases();
        databases_suffice(databases(self), databases(source))?;
        for (store, which) in [(source, "source"), (&*self, "target")] {
            for id in store.database().facts().map.keyspaces() {
                chunks_cannot_move(store.len_of(id.chunks()), which)?;
            }
        }
        for KeyspaceInfo { name, index } in source.keyspaces() {
            self.open_keyspace(&name, KeyspaceOptions { index: Some(index), ..KeyspaceOptions::default() })?;
        }
        Ok(())
    }
}

/// Refuses a target with fewer databases than the source.
pub(crate) fn databases_suffice(target: u32, source: u32) -> Result<()> {
    if target >= source {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, "the target has fewer databases than the source"))
}

/// Refuses a store with `chunks` of large values: those of the source would stay, and of the target nobody would free what a
/// record replaces.
pub(crate) fn chunks_cannot_move(chunks: u64, which: &str) -> Result<()> {
    if chunks == 0 {
        return Ok(());
    }
    let message =
        format!("the {which} has values in chunks, which the server wrote: slots cannot be moved then, yet");
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// The first and the last position of slots.
pub(crate) fn positions(slots: &RangeInclusive<u16>) -> Result<(Position, Position)> {
    if slots.is_empty() || *slots.end() >= SLOT_COUNT {
        let message = format!("slots {} to {}: 0 to {} exist", slots.start(), slots.end(), SLOT_COUNT - 1);
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok((Position::first_of_slot(*slots.start()), Position::last_of_slot(*slots.end())))
}

#[cfg(test)]
#[path = "transfer_test.rs"]
mod transfer_test;
