//! The snapshots of an engine as moments: which of them live, and which records they show. What an engine keeps for
//! them, and where, is its own affair.
//!
//! Invariant: sequences of living cuts grow with their numbers, which never repeat.

use crate::SnapshotId;
use std::collections::{BTreeSet, VecDeque};
use tierstone_base::{Error, ErrorKind, Now, Result, Seq};

/// So many snapshots, lost ones included, may be alive.
pub const SNAPSHOTS_MAX: usize = 1024;

/// What a snapshot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The snapshot.
    pub id: SnapshotId,
    /// Writes up to this one.
    pub seq: Seq,
    /// Records that had expired by then are not shown; milliseconds since 1970.
    pub wall_ms: u64,
}

impl Cut {
    /// Whether a record of this expiry had not expired; 0 never expires.
    pub fn is_unexpired(&self, expiry_ms: u64) -> bool {
        expiry_ms == 0 || expiry_ms > self.wall_ms
    }
}

/// All snapshots of a shard.
#[derive(Debug, Default)]
pub struct Cuts {
    /// Oldest first, so that sequences grow.
    live: VecDeque<Cut>,
    /// Lost, and not released yet.
    lost: BTreeSet<SnapshotId>,
    lost_count: u64,
    last_id: u64,
}

impl Cuts {
    /// What `id` shows.
    ///
    /// # Errors
    /// `SnapshotLost`: it was given up. `InvalidInput`: there is none of this number.
    pub fn get(&self, id: SnapshotId) -> Result<Cut> {
        if let Some(cut) = self.live.iter().find(|cut| cut.id == id) {
            return Ok(*cut);
        }
        if self.lost.contains(&id) {
            let message = "the snapshot was given up: the records that it kept took too much space or memory; take a new one";
            return Err(Error::new(ErrorKind::SnapshotLost, message));
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("there is no snapshot {}", id.0)))
    }

    /// A snapshot of everything up to the write `seq`.
    ///
    /// # Errors
    /// `Retry`: [`SNAPSHOTS_MAX`] are alive, or were lost and not released.
    pub fn take(&mut self, seq: Seq, now: Now) -> Result<SnapshotId> {
        if self.live.len() + self.lost.len() >= SNAPSHOTS_MAX {
            let message = format!("{SNAPSHOTS_MAX} snapshots are alive: release some");
            return Err(Error::new(ErrorKind::Retry, message));
        }
        let cut = self.mark(seq, now);
        self.live.push_back(cut);
        Ok(cut.id)
    }

    /// A moment that takes a number of its own, and that is not among the snapshots.
    pub fn mark(&mut self, seq: Seq, now: Now) -> Cut {
        let id = self.next_id();
        self.last_id = id.0;
        Cut { id, seq, wall_ms: now.wall_ms }
    }

    /// Takes `id` out; true when it lived.
    pub fn end(&mut self, id: SnapshotId) -> bool {
        self.lost.remove(&id);
        let Some(place) = self.live.iter().position(|cut| cut.id == id) else { return false };
        self.live.remove(place);
        true
    }

    /// Notes that `id`, which lived until now, was given up.
    pub fn note_lost(&mut self, id: SnapshotId) {
        self.lost.insert(id);
        self.lost_count += 1;
    }

    /// The oldest that lives.
    pub fn oldest(&self) -> Option<Cut> {
        self.live.front().copied()
    }

    /// Whether none lives.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Snapshots that live, and those that were lost so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.live.len() as u64, self.lost_count)
    }

    /// The number that the next one will have.
    pub fn next_id(&self) -> SnapshotId {
        SnapshotId(self.last_id + 1)
    }

    /// Whether some snapshot shows a record that counts now. Cost: one comparison when none is as young.
    pub fn need(&self, seq: Seq, expiry_ms: u64) -> bool {
        let Some(newest) = self.live.back() else { return false };
        newest.seq >= seq
            && (expiry_ms == 0
                || self.live.iter().rev().any(|cut| cut.seq >= seq && cut.is_unexpired(expiry_ms)))
    }

    /// Whether a snapshot shows what counted from the write `seq` until `replaced_at`, which is not shown with it.
    pub fn is_between(&self, seq: Seq, replaced_at: Seq) -> bool {
        let first = self.live.partition_point(|cut| cut.seq < seq);
        self.live.get(first).is_some_and(|cut| cut.seq < replaced_at)
    }

    /// Whether a snapshot that does not show the write `seq` lives.
    pub fn is_any_before(&self, seq: Seq) -> bool {
        self.live.front().is_some_and(|oldest| oldest.seq < seq)
    }
}

#[cfg(test)]
#[path = "cuts_test.rs"]
mod cuts_test;
