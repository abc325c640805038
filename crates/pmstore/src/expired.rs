//! Records that have expired leave by themselves: the index is walked in small steps, and what is due is deleted by a
//! write of the shard's own, in the log like any other.
//!
//! A store without expiring records pays nothing. Crash: the delete is there or not; what was dropped counts as shown
//! as past, durably by the same fence.

use crate::shard::PmShard;
use tierstone_base::{KeyspaceId, Position, Result};
use tierstone_engine::{Key, Write, WriteKind};

/// Entries that a step looks at.
const ENTRIES_A_STEP: usize = 128;
/// From one step of a walk to the next, in microseconds.
const STEP_US: u64 = 1_000;
/// From one walk to the next, in microseconds.
const WALK_US: u64 = 1_000_000;

/// Where the walk is.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    next: Option<(KeyspaceId, Position)>,
    at_us: u64,
    /// A record that expires may be there.
    pub has_expiring: bool,
    /// The walk has met one, or one was written meanwhile.
    has_met: bool,
}

impl Sweeper {
    /// When the next step is wanted.
    pub fn due_at_us(&self) -> Option<u64> {
        self.has_expiring.then_some(self.at_us)
    }

    /// A record that expires was written. A walk under way may have passed its place: another one follows.
    pub fn note_written(&mut self) {
        self.has_expiring = true;
        self.has_met |= self.next.is_some();
    }
}

impl PmShard {
    /// A step of the walk, when it is time.
    pub(crate) fn sweep_expired(&mut self) -> Result<()> {
        let now_us = self.now.monotonic_us;
        if self.is_shutting || self.sweeper.due_at_us().is_none_or(|due| due > now_us) {
            return Ok(());
        }
        self.sweeper.at_us = now_us + STEP_US;
        let (keyspace, from) = self.sweeper.next.unwrap_or_default();
        let Some((&keyspace, keys)) = self.keyspaces.range(keyspace..).next() else {
            self.sweeper.at_us = now_us + WALK_US;
            self.sweeper.has_expiring = std::mem::take(&mut self.sweeper.has_met);
            self.sweeper.next = None;
            return Ok(());
        };
        let from = if self.sweeper.next.is_some_and(|(id, _)| id == keyspace) { from } else { Position(0) };
        let mut places = Vec::new();
        let next = keys.scan(from, ENTRIES_A_STEP, |place| places.push(place));
        self.sweeper.next = match (next, keyspace.0.checked_add(1)) {
            (Some(next), _) => Some((keyspace, next)),
            (None, after) => Some((KeyspaceId(after.unwrap_or(u32::MAX)), Position(0))),
        };
        for place in places {
            self.sweep_one(keyspace, place)?;
        }
        Ok(())
    }

    fn sweep_one(&mut self, keyspace: KeyspaceId, place: u64) -> Result<()> {
        let (head, key) = {
            let Ok((head, record)) = self.record(place) else { return Ok(()) };
            if head.expiry_ms == 0 {
                return Ok(());
            }
            let Ok(key) = self.key_of(&head, &record) else { return Ok(()) };
            (head, key.into_owned())
        };
        self.sweeper.has_met = true;
        if !self.is_past(head.expiry_ms, self.now.wall_ms) {
            return Ok(());
        }
        let key = Key { keyspace, position: Position(head.position), bytes: &key };
        // Without room it stays, hidden, until the next walk.
        if self.write_inner(self.now, &[Write { key, kind: WriteKind::Delete }], None, true).is_ok() {
            self.counts.expired_keys += 1;
        }
        Ok(())
    }
}
