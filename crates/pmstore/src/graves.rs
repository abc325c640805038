//! How long a tombstone is needed: as long as an older record of its key lies in some block.
//!
//! Records that count no more stay where they are until their block is cleaned. Dropped too early, a tombstone would
//! leave such a record as the newest of its key, and the next recovery would bring the key back. So the records that
//! count no more are counted, by position ([`old_counts`](crate::old_counts)).
//!
//! Invariants:
//! 1. The count of a position is at least that of its old records in blocks, tombstones not counted.
//!    While some blocks are not counted ([`crate::recount`]) it may be less, and no tombstone goes.
//! 2. The place of every tombstone that may be needed is known, so that its bytes become free when it is not.

use crate::old_counts::OldCounts;
use tierstone_base::collections::Map;
use tierstone_base::{KeyspaceId, Position};

/// Old records and tombstones, by the hash of keyspace and position; keys that share one are counted together.
#[derive(Debug)]
pub(crate) struct Graves {
    old: OldCounts,
    tombstones: Map<u64, Vec<u64>>,
    /// Old records of some blocks are not counted yet.
    pub is_partial: bool,
}

/// What stands for a position of a keyspace.
pub(crate) fn grave_of(keyspace: KeyspaceId, position: Position) -> u64 {
    position.0 ^ u64::from(keyspace.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Graves {
    /// Of a shard that may have so many bytes of blocks.
    pub fn new(space_bytes: u64) -> Self {
        Graves { old: OldCounts::new(space_bytes), tombstones: Map::default(), is_partial: false }
    }

    /// Asks for the line that counts this position, soon to be changed.
    pub fn prefetch(&self, grave: u64) {
        self.old.prefetch(grave);
    }

    /// A record of this position counts no more.
    pub fn add_old(&mut self, grave: u64) {
        self.old.add(grave);
    }

    /// An old record is gone. Gives the tombstones that are needed no more.
    pub fn remove_old(&mut self, grave: u64) -> Vec<u64> {
        if !self.old.remove(grave) || self.is_partial {
            return Vec::new();
        }
        self.take_tombstones(grave)
    }

    /// The tombstones of this position, which are known no more.
    pub fn take_tombstones(&mut self, grave: u64) -> Vec<u64> {
        match self.tombstones.is_empty() {
            true => Vec::new(),
            false => self.tombstones.remove(&grave).unwrap_or_default(),
        }
    }

    /// Positions with tombstones and without old records.
    pub fn unneeded(&self) -> Vec<u64> {
        self.tombstones.keys().copied().filter(|&grave| self.old.get(grave) == 0).collect()
    }

    /// Whether tombstones of this position may hide something besides `known` old records.
    pub fn may_hide(&self, grave: u64, known: usize) -> bool {
        self.is_partial || self.old.get(grave) as usize > known
    }

    /// Old records of this position.
    pub fn old(&self, grave: u64) -> u32 {
        self.old.get(grave)
    }

    /// Bytes of memory of the counts.
    pub fn bytes(&self) -> u64 {
        self.old.bytes()
    }

    /// A tombstone lies at `place`.
    pub fn add_tombstone(&mut self, grave: u64, place: u64) {
        self.tombstones.entry(grave).or_default().push(place);
    }

    /// Where tombstones of this position lie.
    pub fn tombstones_of(&self, grave: u64) -> Vec<u64> {
        match self.tombstones.is_empty() {
            true => Vec::new(),
            false => self.tombstones.get(&grave).cloned().unwrap_or_default(),
        }
    }

    /// It lies at `to` now, or nowhere.
    pub fn move_tombstone(&mut self, grave: u64, from: u64, to: Option<u64>) {
        let Some(places) = self.tombstones.get_mut(&grave) else { return };
        places.retain(|&place| place != from);
        places.extend(to);
        if places.is_empty() {
            self.tombstones.remove(&grave);
        }
    }
}
