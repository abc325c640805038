//! What is known of segments, by their numbers.
//!
//! Invariant: slot 0 is of no segment, and never changes; every other slot is of one segment whose number leads to it, or
//! vacant.

use crate::dead::DeadRecords;
use crate::expired::profile::ExpiryProfile;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tierstone_base::Seq;

/// What a segment is to this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// Another shard's, or none of this store's yet.
    #[default]
    Foreign,
    /// May be opened.
    Free,
    /// Of an earlier opening and no longer needed here, but another shard still does.
    Left,
    /// Being appended to, or waiting to be sealed.
    Open,
    /// Immutable.
    Sealed,
    /// Its live records are being moved away.
    Cleaning,
    /// Its header is being overwritten with a free one.
    Freeing,
    /// Its free header is durable, and the index may still point to records of it, which are being evicted.
    Retired,
    /// It holds a checkpoint of the index.
    Checkpoint,
}

/// One segment.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// What it is to this shard.
    pub role: Role,
    /// This life of it.
    pub generation: u64,
    /// The salt of its checksums.
    pub salt: u64,
    /// The newest sequence when it was opened.
    pub opened_seq: Seq,
    /// How many segments had been opened since the shard was, with this one; zero: it was opened before.
    pub opened: u64,
    /// Where its groups end, in bytes.
    pub data_end: u32,
    /// Where its summary begins, how long it is, how many records it lists, and its checksum.
    pub summary: SummaryPlace,
    /// Units of its longest record: how much a read must fetch.
    pub longest_units: u32,
    /// Records that the index points to, and needed tombstones.
    pub live_records: u32,
    /// Their bytes.
    pub live_bytes: u64,
    /// Of these, tombstones.
    pub tombstone_records: u32,
    /// Their bytes.
    pub tombstone_bytes: u64,
    /// Reads in flight and bytes held.
    pub pins: u32,
    /// Records that only snapshots need.
    pub snapshot_records: u32,
    /// Set when shards of an earlier opening left it to several of this one: how many still need it.
    pub shared: Option<Arc<AtomicU32>>,
    /// This shard's part of it when it was shared.
    pub(crate) part: f32,
    /// Its first group and the one after its last, when it belongs to a log of this opening.
    pub groups: Option<(u64, u64)>,
    /// Whether the numbers of live records and bytes are estimates: a segment is then never freed on
    /// their word.
    pub is_estimated: bool,
    /// Whether its records were moved often or written by users.
    pub cold: bool,
    /// Sealed in this opening: what its groups say of expiry, in milliseconds since 1970.
    pub past_ms: u64,
    /// When those of its records expire that the index points to; `None` when none is known to.
    pub expiry: Option<Box<ExpiryProfile>>,
    /// Records in these units, from the first to before the second, are not in the profile.
    pub unprofiled: (u32, u32),
    /// Users wrote it in this opening: what its records say of those that they replaced is what the index said.
    pub is_trusted: bool,
    /// Which of its records died since it was opened.
    pub(crate) dead: Option<Box<DeadRecords>>,
    /// Free, and nothing was ever written to it since its space was taken, which is not filled yet.
    pub(crate) is_thin: bool,
}

/// What the count of a shared segment becomes when its free header is durable.
pub(super) const GONE: u32 = u32::MAX;

impl Segment {
    /// Whether records of it may expire that are not in its profile, for an earlier opening has left them.
    pub(crate) fn is_unprofiled(&self) -> bool {
        self.unprofiled.0 < self.unprofiled.1 && self.role == Role::Sealed && self.live_records > 0
    }

    /// Whether a crash now could bring records of it back.
    pub(crate) fn may_hold_records(&self) -> bool {
        match self.role {
            Role::Foreign | Role::Free | Role::Checkpoint | Role::Retired => false,
            Role::Left => self.shared.as_ref().is_some_and(|shared| shared.load(Ordering::Acquire) != GONE),
            Role::Open | Role::Sealed | Role::Cleaning | Role::Freeing => true,
        }
    }
}

/// Where a sealed segment's summary lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SummaryPlace {
    /// Bytes from the start of the segment.
    pub start: u32,
    /// Bytes of entries.
    pub len: u32,
    /// How many entries.
    pub records: u32,
    /// Their checksum, salted with the generation.
    pub checksum: u64,
}

/// The segments that a shard knows.
#[derive(Debug)]
pub(super) struct KnownSegments {
    /// By number: the slot of a segment; 0: the shard does not know it. A store may have a hundred thousand segments and many
    /// shards: so each has no more than this for those of the others.
    slot_of: Vec<u32>,
    slots: Vec<Segment>,
    vacant: Vec<u32>,
}

impl Default for KnownSegments {
    fn default() -> Self {
        KnownSegments { slot_of: Vec::new(), slots: vec![Segment::default()], vacant: Vec::new() }
    }
}

impl KnownSegments {
    #[inline]
    fn slot(&self, segment: u32) -> usize {
        self.slot_of.get(segment as usize).map_or(0, |slot| *slot as usize)
    }

    /// A segment; one that is not known is foreign.
    #[inline]
    pub fn get(&self, segment: u32) -> &Segment {
        &self.slots[self.slot(segment)]
    }

    /// A segment, if it is known.
    #[inline]
    pub fn find(&self, segment: u32) -> Option<&Segment> {
        Some(self.slot(segment)).filter(|slot| *slot != 0).map(|slot| &self.slots[slot])
    }

    /// A segment, which is known from now on.
    #[inline]
    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        let slot = match self.slot(segment) {
            0 => self.take_slot(segment),
            slot => slot,
        };
        &mut self.slots[slot]
    }

    #[cold]
    fn take_slot(&mut self, segment: u32) -> usize {
        let place = segment as usize;
        if place >= self.slot_of.len() {
            self.slot_of.resize(place + 1, 0);
        }
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Segment::default());
            self.slots.len() as u32 - 1
        });
        self.slot_of[place] = slot;
        slot as usize
    }

    /// A segment is not known any more.
    pub fn forget(&mut self, segment: u32) {
        let slot = self.slot(segment);
        if slot != 0 {
            self.slots[slot] = Segment::default();
            self.slot_of[segment as usize] = 0;
            self.vacant.push(slot as u32);
        }
    }

    /// Those that are known, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        let known = (0u32..).zip(&self.slot_of).filter(|(_, slot)| **slot != 0);
        known.map(|(number, slot)| (number, &self.slots[*slot as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_known_from_its_first_change_until_it_is_forgotten() {
        let mut known = KnownSegments::default();
        assert!(known.find(7).is_none() && known.get(7).role == Role::Foreign);
        known.get_mut(7).pins = 1;
        known.get_mut(3).pins = 2;
        known.get_mut(70_000).pins = 3;
        let all =
            |known: &KnownSegments| known.iter().map(|(number, one)| (number, one.pins)).collect::<Vec<_>>();
        assert_eq!(all(&known), [(3, 2), (7, 1), (70_000, 3)]);
        known.forget(7);
        known.forget(7);
        known.forget(8);
        assert!(known.find(7).is_none() && known.get(7).pins == 0);
        known.get_mut(5).pins = 4;
        assert_eq!(all(&known), [(3, 2), (5, 4), (70_000, 3)]);
        assert_eq!(known.slots.len(), 4, "the slot of one that was forgotten is used again");
    }
}
