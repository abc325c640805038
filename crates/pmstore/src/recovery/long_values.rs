//! Which long values are whose, when all records are known.
//!
//! In a store without damage each newest record names units of its own. Where a loss was accepted this need not be so: of a
//! segment whose word in the allocation table is lost nobody knows any more that values lie there, and it is used again; and of
//! a key whose newest record is lost an older one counts, whose units were given to others long ago. When such a record is
//! replaced one day, it would free what is another's.
//!
//! So a record does not count that names what lies in no segment of long values, or units of another that is whole. It is
//! deleted as by a user, with a tombstone, since it stays in its block: each later opening judges the same, whatever lies at
//! the place by then (`lost_values_count`, `shared_units_count`).
//!
//! Invariants:
//! 1. A unit is named by one record that counts.
//! 2. The tombstones are durable before a segment is given to long values again: as what recovery appends they are when the
//!    new log is named, and nothing takes overflow blocks before.
//!
//! Crash: until the new log is named, no log has the tombstones' sequences. They are void then, and made again.

use super::Rebuild;
use crate::format::{Extent, FLAG_KEY_OUT, FLAG_TOMBSTONE, RECORD_BYTES, RecordBody, RecordHead};
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
        self.settle_tombstones(needed)?;
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
    fn bury_shared(&mut self, shared: &BTreeSet<(u32, u64)>, needed: &BTreeSet<u64>) -> Result<()> {
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
                // It names a long key, and says nothing else.
                true if party.is_tombstone => {}
                true => self.bury(party.keyspace, party.place)?,
            }
        }
        Ok(())
    }

    /// Deletes the key of a newest record, with a tombstone. One with a long key, which takes units itself, has none: the record
    /// is made void.
    pub(super) fn bury(&mut self, keyspace: KeyspaceId, place: u64) -> Result<()> {
        let (head, key) = {
            let (head, record) = self.shard.record(place)?;
            (head, self.shard.key_of(&head, &record)?.into_owned())
        };
        self.report.damaged += 1;
        if head.flags & FLAG_KEY_OUT != 0 {
            if let Some(keys) = self.shard.keyspaces.get_mut(&keyspace) {
                keys.remove(Position(head.position), &key, place);
            }
            self.shard.blocks.kill(place, head.len);
            self.twins.push(place);
            return Ok(());
        }
        self.seen += 1;
        let tombstone = RecordHead {
            len: (RECORD_BYTES + key.len()).next_multiple_of(8) as u32,
            flags: FLAG_TOMBSTONE,
            kind: 0,
            seq: self.seen,
            expiry_ms: 0,
            value_len: 0,
            ..head
        };
        let mut record = Vec::new();
        tombstone.encode(&mut record, RecordBody { key: &key, value: &[], overflow: None });
        let grave = self.append(&mut record)?;
        self.take(Found { place: grave, head: tombstone }, Some(Found { place, head }), &key);
        Ok(())
    }
}
