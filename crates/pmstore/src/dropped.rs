//! Keyspaces that were dropped: those that a snapshot still shows, and those whose records are being given up.
//!
//! Invariants:
//! 1. A dropped keyspace keeps its indexes until no snapshot from before the drop is alive; its records are as live as
//!    any until then, and cleaning moves them.
//! 2. Then they are given up, some a step. The caller has made the drop durable: a crash changes nothing.
//! 3. What was written to a dropped keyspace is no record of the one that a snapshot shows: while it is being given up there are
//!    two with one id, and a record is of that which names its place ([`PmShard::keys_with`]).

use crate::blocks::Maker;
use crate::format::{RECORD_BYTES, RecordHead};
use crate::graves::grave_of;
use crate::keys::Keys;
use crate::shard::PmShard;
use tierstone_base::{KeyspaceId, Position, Result};
use tierstone_engine::SnapshotId;
use tierstone_engine::cuts::Cut;

/// Records of dropped keyspaces that a step gives up.
const SWEEP_RECORDS: usize = 256;

/// A dropped keyspace that a snapshot shows.
#[derive(Debug)]
pub(crate) struct Retained {
    id: KeyspaceId,
    pub keys: Keys,
    /// Snapshots before this one show it.
    dropped_before: SnapshotId,
}

impl PmShard {
    /// See [`tierstone_engine::Engine::drop_keyspace`].
    pub(crate) fn drop_keys(&mut self, id: KeyspaceId) {
        self.dropped.insert(id);
        let Some(keys) = self.keyspaces.remove(&id) else { return };
        let dropped_before = self.snapshots.cuts.next_id();
        match self.snapshots.any_before(dropped_before)
            && !self.mutations.is_on("dropped_not_kept_for_backup")
        {
            true => self.retained.push(Retained { id, keys, dropped_before }),
            false => self.sweeping.push((id, keys, Position(0))),
        }
    }

    /// Sees to it that there are indexes for the keyspace. One that was dropped is written to by the part of a batch over several
    /// shards of which another shard hears later that it is gone: it goes again with the next step.
    pub(crate) fn make_keyspace(&mut self, id: KeyspaceId) {
        if self.keyspaces.contains_key(&id) {
            return;
        }
        if self.dropped.contains(&id) {
            self.reborn.push(id);
        }
        let keys = self.new_keys(Default::default());
        self.keyspaces.insert(id, keys);
    }

    /// Drops keyspaces again that were written to after they were dropped. No snapshot shows what was written there.
    fn drop_reborn(&mut self) {
        for id in std::mem::take(&mut self.reborn) {
            let keys = self.keyspaces.remove(&id);
            self.sweeping.extend(keys.map(|keys| (id, keys, Position(0))));
        }
    }

    /// A snapshot has ended: what none shows any more is given up from now on.
    pub(crate) fn sweep_unshown(&mut self) {
        let snapshots = &self.snapshots;
        let unshown = self.retained.extract_if(.., |kept| !snapshots.any_before(kept.dropped_before));
        self.sweeping.extend(unshown.map(|kept| (kept.id, kept.keys, Position(0))));
    }

    /// The keyspace as a snapshot shows it.
    pub(crate) fn keys_at(&self, id: KeyspaceId, cut: &Cut) -> Option<&Keys> {
        let is_shown = |kept: &&Retained| kept.id == id && cut.id < kept.dropped_before;
        let retained = self.retained.iter().find(is_shown).map(|kept| &kept.keys);
        retained.or_else(|| self.keyspaces.get(&id))
    }

    /// The keyspace whose records are as live as any: it is served, or a snapshot shows it.
    fn reachable(&self, id: KeyspaceId) -> Option<&Keys> {
        let retained = || self.retained.iter().find(|kept| kept.id == id).map(|kept| &kept.keys);
        self.keyspaces.get(&id).or_else(retained)
    }

    /// The keyspace of the record at `place`, if that is as live as any. Not one with the same id of which what was written after
    /// it was dropped is being given up (`reborn_taken_for_retained`).
    pub(crate) fn keys_with(&self, head: &RecordHead, place: u64) -> Option<&Keys> {
        let id = KeyspaceId(head.keyspace);
        let has_namesake = self.sweeping.iter().any(|(other, ..)| *other == id)
            && !self.mutations.is_on("reborn_taken_for_retained");
        self.reachable(id).filter(|keys| !has_namesake || keys.has(Position(head.position), place))
    }

    /// The keyspace whose records are, to change it.
    pub(crate) fn reachable_mut(&mut self, id: KeyspaceId) -> Option<&mut Keys> {
        let retained = self.retained.iter_mut().find(|kept| kept.id == id).map(|kept| &mut kept.keys);
        self.keyspaces.get_mut(&id).or(retained)
    }

    /// Gives up records of dropped keyspaces, some of them.
    pub(crate) fn sweep_dropped(&mut self) -> Result<()> {
        self.drop_reborn();
        let Some((keyspace, mut keys, from)) = self.sweeping.pop() else { return Ok(()) };
        let mut places = Vec::new();
        let next = keys.scan(from, SWEEP_RECORDS, |place| places.push(place));
        let swept = places.into_iter().try_for_each(|place| self.sweep_record(keyspace, &mut keys, place));
        // Damaged records are in the index yet when all were shown.
        if let Some(next) = next.filter(|_| keys.len() > 0) {
            self.sweeping.push((keyspace, keys, next));
        }
        swept
    }

    fn sweep_record(&mut self, keyspace: KeyspaceId, keys: &mut Keys, place: u64) -> Result<()> {
        if let Ok((head, record)) = self.record(place) {
            let key = self.key_of(&head, &record).ok();
            keys.take_out(Position(head.position), key.as_deref(), place);
            self.note_old(grave_of(keyspace, Position(head.position)), place);
        }
        self.give_up_at(place)
    }

    /// A record counts no more, damaged or not. Of a damaged one the length is as it says.
    pub(crate) fn give_up_at(&mut self, place: u64) -> Result<()> {
        let Maker { memory, layout, .. } = &self.maker;
        let room = layout.block(layout.block_of(place) + 1) - place;
        let (len, is_overflow) = match RecordHead::decode(&memory.load::<RECORD_BYTES>(place), room) {
            Some(head) => (head.len, head.is_overflow()),
            None => (RECORD_BYTES as u32, false),
        };
        self.give_up(place, len, is_overflow)
    }
}

#[cfg(test)]
#[path = "dropped_test.rs"]
mod dropped_test;
