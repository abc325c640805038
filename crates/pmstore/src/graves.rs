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
use std::collections::hash_map::Entry;
use tierstone_base::collections::Map;
use tierstone_base::{KeyspaceId, Position};

/// Old records and tombstones, by the hash of keyspace and position; keys that share one are counted together.
#[derive(Debug)]
pub(crate) struct Graves {
    old: OldCounts,
    tombstones: Tombstones,
    /// Old records of some blocks are not counted yet.
    pub is_partial: bool,
}

/// Bytes of memory of a position with old records, and of a tombstone's place.
const OLD_BYTES: u64 = 11;
const TOMBSTONE_BYTES: u64 = 24;

/// What stands for a position of a keyspace.
pub(crate) fn grave_of(keyspace: KeyspaceId, position: Position) -> u64 {
    position.0 ^ u64::from(keyspace.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Graves {
    /// Of a shard that may have so many bytes of blocks.
    pub fn new(space_bytes: u64) -> Self {
        Graves { old: OldCounts::new(space_bytes), tombstones: Tombstones::default(), is_partial: false }
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
        self.tombstones.take(grave)
    }

    /// Bytes that counts and places would take in tables that are as small as can be, about.
    pub fn bytes_needed(&self) -> u64 {
        self.old.len() * OLD_BYTES + self.tombstones.count * TOMBSTONE_BYTES
    }

    /// How many tombstones may be needed.
    pub fn tombstone_count(&self) -> u64 {
        self.tombstones.count
    }

    /// Positions with tombstones and without old records.
    pub fn unneeded(&self) -> Vec<u64> {
        self.tombstones.first.keys().copied().filter(|&grave| self.old.get(grave) == 0).collect()
    }

    /// Whether tombstones of this position may hide something besides `known` old records.
    pub fn may_hide(&self, grave: u64, known: usize) -> bool {
        self.is_partial || self.old.get(grave) as usize > known
    }

    /// Old records of this position.
    pub fn old(&self, grave: u64) -> u32 {
        self.old.get(grave)
    }

    /// Bytes of memory of the counts, and about those of the places of tombstones.
    pub fn bytes(&self) -> u64 {
        self.old.bytes() + self.tombstones.bytes()
    }

    /// A tombstone lies at `place`.
    pub fn add_tombstone(&mut self, grave: u64, place: u64) {
        self.tombstones.add(grave, place);
    }

    /// Where tombstones of this position lie.
    pub fn tombstones_of(&self, grave: u64) -> Vec<u64> {
        self.tombstones.of(grave)
    }

    /// It lies at `to` now, or nowhere.
    pub fn move_tombstone(&mut self, grave: u64, from: u64, to: Option<u64>) {
        let mut places = self.tombstones.take(grave);
        if places.is_empty() {
            return;
        }
        places.retain(|&place| place != from);
        places.extend(to);
        places.into_iter().for_each(|place| self.tombstones.add(grave, place));
    }
}

/// Places of tombstones by grave: nearly all graves have one, and there may be as many as old records.
#[derive(Debug, Default)]
struct Tombstones {
    first: Map<u64, u64>,
    /// Others of graves that are in `first`.
    more: Map<u64, Vec<u64>>,
    count: u64,
}

/// A larger map gives memory back when few places are left.
const SHRUNK_ABOVE: usize = 1_024;
/// A place in a map, with what tells that it is taken.
const MAP_ENTRY_BYTES: usize = 2 * size_of::<u64>() + 1;

impl Tombstones {
    fn add(&mut self, grave: u64, place: u64) {
        self.count += 1;
        match self.first.entry(grave) {
            Entry::Vacant(entry) => {
                entry.insert(place);
            }
            Entry::Occupied(_) => self.more.entry(grave).or_default().push(place),
        }
    }

    fn of(&self, grave: u64) -> Vec<u64> {
        let Some(first) = self.first.get(&grave) else { return Vec::new() };
        let more = if self.more.is_empty() { None } else { self.more.get(&grave) };
        std::iter::once(first).chain(more.into_iter().flatten()).copied().collect()
    }

    fn take(&mut self, grave: u64) -> Vec<u64> {
        let Some(first) = self.first.remove(&grave) else { return Vec::new() };
        let mut places =
            if self.more.is_empty() { Vec::new() } else { self.more.remove(&grave).unwrap_or_default() };
        places.insert(0, first);
        self.count -= places.len() as u64;
        if self.first.capacity() > SHRUNK_ABOVE && self.first.len() * 8 < self.first.capacity() {
            self.first.shrink_to(self.first.len() * 2);
        }
        places
    }

    fn bytes(&self) -> u64 {
        let more = self.more.capacity() * (MAP_ENTRY_BYTES + size_of::<Vec<u64>>());
        // A map is at most seven eighths full.
        ((self.first.capacity() * MAP_ENTRY_BYTES + more) * 8 / 7) as u64
    }
}

#[cfg(test)]
#[path = "graves_test.rs"]
mod graves_test;
