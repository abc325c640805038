//! Which long values are whose, when all records are known.
//!
//! In a store without damage each newest record names units of its own. Where a loss was accepted this need not be so: of a
//! segment whose word in the allocation table is lost nobody knows any more that values lie there, and it is used again; and of
//! a key whose newest record is lost an older one counts, whose units were given to others long ago. When such a record is
//! replaced one day, it would free what is another's.
//!
//! So a record does not count that names what lies in no segment of long values, or units of another that is whole. Its key
//! is taken out of the blocks ([`super::erase`]), whatever lies at the place by the next opening (`lost_values_count`,
//! `shared_units_count`). A tombstone of a long key owns no units of another either: one that was
//! given up is whole as long as what lies at its place begins with its key, and may look needed.
//!
//! Of a record and its copy, which name two places, that one counts whose value is whole (`twins_not_compared`).
//!
//! Invariants:
//! 1. A unit is named by one record that counts.
//! 2. What is taken out is void before a segment is given to long values again: before the new log is named, and nothing
//!    takes overflow blocks before.
//!
//! Crash: until the new log is named, the same is judged again.

use super::Rebuild;
use crate::format::{Extent, FLAG_KEY_OUT, RecordHead};
use crate::graves::grave_of;
use crate::shard::Found;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use tierstone_base::{KeyspaceId, Position, Result};

/// One of several records that name the same unit. In the order in which they are believed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Party {
    /// What is whole comes first, of these what is newest.
    rank: Reverse<(bool, u64)>,
    keyspace: KeyspaceId,
    place: u64,
    is_tombstone: bool,
    units: Vec<(u32, u64)>,
}

impl Rebuild {
    /// Whether a record names what lies in no segment of long values. Long keys that lie there are not believed anyway.
    pub(super) fn is_lost(&self, head: &RecordHead, record: &[u8]) -> bool {
        head.flags & FLAG_KEY_OUT == 0
            && !self.shard.mutations.is_on("lost_values_count")
            && head.overflow(record).is_some_and(|overflow| !self.shard.overflow.are_in(&overflow.extents))
    }

    /// Marks what is named by records that count and by tombstones that are `needed`.
    pub(super) fn settle_long_values(&mut self, needed: &mut BTreeSet<u64>) -> Result<()> {
        let shared = self.mark_long_values(needed)?;
        if shared.is_empty() || self.shard.mutations.is_on("shared_units_count") {
            return Ok(());
        }
        self.bury_shared(&shared, needed)?;
        self.shard.overflow.unmark();
        self.mark_long_values(needed)?;
        Ok(())
    }

    /// Gives the units of records that name what was marked already.
    fn mark_long_values(&mut self, needed: &BTreeSet<u64>) -> Result<BTreeSet<(u32, u64)>> {
        let mut shared = BTreeSet::new();
        for at in 0..self.overflows.len() {
            let (keyspace, position, place) = self.overflows[at];
            if !self.is_newest(keyspace, position, place) && !needed.contains(&place) {
                continue;
            }
            let (_, extents) = self.named_at(place)?;
            if self.shard.overflow.are_taken(&extents) {
                shared.extend(self.shard.overflow.units_of(&extents));
            }
            self.shard.overflow.mark_named(&extents, self.shard.maker.layout.block_of(place));
        }
        Ok(shared)
    }

    fn named_at(&self, place: u64) -> Result<(RecordHead, Vec<Extent>)> {
        let (head, record) = self.shard.record(place)?;
        let extents = head.overflow(&record).map_or_else(Vec::new, |overflow| overflow.extents);
        Ok((head, extents))
    }

    /// Of records that name the same units one counts. Cost: their long values are read.
    fn bury_shared(&mut self, shared: &BTreeSet<(u32, u64)>, needed: &mut BTreeSet<u64>) -> Result<()> {
        let mut parties = Vec::new();
        for &(keyspace, position, place) in &self.overflows {
            if !self.is_newest(keyspace, position, place) && !needed.contains(&place) {
                continue;
            }
            let (head, extents) = self.named_at(place)?;
            let units = self.shard.overflow.units_of(&extents);
            if units.iter().any(|unit| shared.contains(unit)) {
                let (_, record) = self.shard.record(place)?;
                let is_whole = self.shard.payload(&head, &record).is_ok();
                let (rank, is_tombstone) = (Reverse((is_whole, head.seq)), head.is_tombstone());
                parties.push(Party { rank, keyspace, place, is_tombstone, units });
            }
        }
        parties.sort_unstable();
        let mut taken = BTreeSet::new();
        for party in parties {
            match party.units.iter().any(|unit| taken.contains(unit)) {
                false => taken.extend(party.units),
                true if party.is_tombstone => self.bury_tombstone(&party, needed)?,
                true => self.bury(party.keyspace, party.place)?,
            }
        }
        Ok(())
    }

    /// Takes the key of a newest record out.
    pub(super) fn bury(&mut self, keyspace: KeyspaceId, place: u64) -> Result<()> {
        let (head, key) = self.named_key(place)?;
        self.report.damaged += 1;
        if let Some(keys) = self.shard.keyspaces.get_mut(&keyspace) {
            keys.remove(Position(head.position), &key, place);
        }
        self.erase(place, &head, key);
        Ok(())
    }

    /// Takes a tombstone out that was given up once, with what it would hide.
    fn bury_tombstone(&mut self, party: &Party, needed: &mut BTreeSet<u64>) -> Result<()> {
        let (head, key) = self.named_key(party.place)?;
        needed.remove(&party.place);
        let grave = grave_of(party.keyspace, Position(head.position));
        self.shard.graves.move_tombstone(grave, party.place, None);
        self.erase(party.place, &head, key);
        Ok(())
    }

    fn named_key(&self, place: u64) -> Result<(RecordHead, Vec<u8>)> {
        let (head, record) = self.shard.record(place)?;
        Ok((head, self.shard.key_of(&head, &record)?.into_owned()))
    }

    // ---- a record and its copy -----------------------------------------------------------------

    /// Of a record that counts so far and its twin one is made void: mostly that which was found later.
    pub(super) fn settle_twin(&mut self, old: &Found, found: Found, key: &[u8]) -> Result<()> {
        let is_worse = {
            let (head, record) = self.seen_record(found.place)?;
            self.is_worse_twin(old, &head, &record)?
        };
        match is_worse {
            true => self.take_twin(found, old, key),
            false => self.void(found.place),
        }
        Ok(())
    }

    /// The record counts in place of its twin.
    pub(super) fn take_twin(&mut self, found: Found, old: &Found, key: &[u8]) {
        self.enter(found, Some(old.place), key);
        self.shard.blocks.kill(old.place, old.head.len);
        self.void(old.place);
    }

    /// Whether `old` is a twin of a record and its long value is not whole, but the record's is. Cost: reads what only a kill or
    /// a log that is not truncated leaves, copies with another place. What a checkpoint lists stays what it is.
    pub(super) fn is_worse_twin(&self, old: &Found, head: &RecordHead, record: &[u8]) -> Result<bool> {
        let is_twin =
            old.head.seq == head.seq && head.is_overflow() && self.shard.blocks.is_counted(old.place);
        if !is_twin || self.shard.mutations.is_on("twins_not_compared") {
            return Ok(false);
        }
        let (old_head, old_record) = self.seen_record(old.place)?;
        let extents =
            |head: &RecordHead, record: &[u8]| head.overflow(record).map(|overflow| overflow.extents);
        let is_another = extents(&old_head, &old_record) != extents(head, record);
        Ok(is_another && !self.is_whole(&old_head, &old_record) && self.is_whole(head, record))
    }

    fn is_whole(&self, head: &RecordHead, record: &[u8]) -> bool {
        head.overflow(record).is_some_and(|overflow| self.shard.overflow.are_in(&overflow.extents))
            && self.shard.payload(head, record).is_ok()
    }
}
