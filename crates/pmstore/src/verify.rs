//! Verifies a shard that serves: every record that an index leads to, its long value, and whether it is the one that
//! the index should lead to. Some entries a step, beside the traffic.
//!
//! What a closed store's check reads besides, header, tables and logs ([`crate::check`]), is not read here: it changes
//! while the shard serves, and the next opening reads it.
//!
//! Invariant: a finding is no effect of what happens meanwhile, for an entry and its record are looked at in one step.
//!
//! It changes nothing; a crash leaves nothing of it. Memory: the report.

use crate::format::RecordHead;
use crate::keys::Keys;
use crate::shard::PmShard;
use std::collections::VecDeque;
use std::ops::Bound::Included;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result};
use tierstone_engine::{Direction, Verification};

/// Entries that a step looks at.
const ENTRIES_A_STEP: usize = 16;

/// A verification under way, and what the last one has found.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    /// Keyspaces that are left, and where the walk is in the first.
    left: VecDeque<KeyspaceId>,
    from: Position,
    report: Option<Verification>,
}

impl Verifier {
    /// Whether a step would do something.
    pub fn wants_step(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.is_running)
    }

    /// What was found so far.
    pub fn report(&self) -> Option<&Verification> {
        self.report.as_ref()
    }

    fn end(&mut self) {
        self.left.clear();
        if let Some(report) = &mut self.report {
            report.is_running = false;
        }
    }
}

/// What is wrong with an entry, and how many keys it costs.
struct Wrong {
    kind: &'static str,
    lost_keys: u64,
    position: Option<u64>,
    what: &'static str,
}

impl PmShard {
    /// See [`tierstone_engine::Engine::begin_verification`].
    pub(crate) fn begin_verify(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.is_shutting {
            return Err(Error::new(ErrorKind::Busy, "the store is being closed"));
        }
        if self.verifier.wants_step() {
            return Err(Error::new(ErrorKind::Busy, "a verification is under way"));
        }
        let bytes_total = self.blocks.live_bytes() + self.overflow.taken_bytes();
        self.verifier = Verifier {
            left: self.keyspaces.keys().copied().collect(),
            from: Position(0),
            report: Some(Verification { is_running: true, bytes_total, ..Verification::default() }),
        };
        Ok(())
    }

    /// The walk goes on.
    pub(crate) fn verify_step(&mut self) {
        if !self.verifier.wants_step() {
            return;
        }
        let mut verifier = std::mem::take(&mut self.verifier);
        match (self.is_shutting, verifier.left.front().copied()) {
            (false, Some(keyspace)) => self.verify_some(&mut verifier, keyspace),
            _ => verifier.end(),
        }
        self.verifier = verifier;
    }

    fn verify_some(&self, verifier: &mut Verifier, keyspace: KeyspaceId) {
        let Verifier { left, from, report: Some(report) } = verifier else { return };
        let mut places = Vec::new();
        let keys = self.keyspaces.get(&keyspace);
        // What was dropped meanwhile is nobody's.
        let next = keys.and_then(|keys| keys.scan(*from, ENTRIES_A_STEP, |place| places.push(place)));
        let page = (*from, next);
        for (keys, place) in keys.into_iter().flat_map(|keys| places.iter().map(move |place| (keys, *place)))
        {
            match self.verify_one(keyspace, keys, place, page) {
                Ok(None) => {}
                Ok(Some(head)) => {
                    report.bytes += head.bytes();
                    report.records += 1;
                    report.live_records += 1;
                    report.index_entries += 1;
                }
                Err(wrong) => {
                    report.index_entries += 1;
                    report.note(wrong.kind, wrong.lost_keys, self.finding(keyspace, place, &wrong));
                }
            }
        }
        match next {
            Some(next) => *from = next,
            None => {
                left.pop_front();
                *from = Position(0);
            }
        }
        if left.is_empty() {
            verifier.end();
        }
    }

    /// The record that an entry leads to, if it is whole and its key's; `None`: another page shows it.
    fn verify_one(
        &self,
        keyspace: KeyspaceId,
        keys: &Keys,
        place: u64,
        (from, until): (Position, Option<Position>),
    ) -> std::result::Result<Option<RecordHead>, Wrong> {
        let wrong = |kind, lost_keys, what| Wrong { kind, lost_keys, position: None, what };
        let Ok((head, record)) = self.record(place) else {
            return Err(wrong("record", 1, "its checksum does not fit"));
        };
        let position = Position(head.position);
        if position < from || until.is_some_and(|until| position >= until) {
            return Ok(None);
        }
        let found = |kind, lost_keys, what| Wrong { kind, lost_keys, position: Some(head.position), what };
        if head.keyspace != keyspace.0 || head.is_tombstone() {
            return Err(found("index", 1, "the index leads to a record that is not its key's"));
        }
        if head.is_overflow() && self.payload(&head, &record).is_err() {
            return Err(found("long value", 1, "the checksum of its long value does not fit"));
        }
        let Ok(key) = self.key_of(&head, &record) else {
            return Err(found("long value", 1, "its long key cannot be read"));
        };
        let mut is_in_order = !keys.is_ordered();
        keys.range((Included(&key), Included(&key)), Direction::Forward, 1, |ordered| {
            is_in_order |= ordered == place;
            false
        });
        match is_in_order {
            true => Ok(Some(head)),
            false => Err(found("order", 0, "ranges do not find it")),
        }
    }

    fn finding(&self, keyspace: KeyspaceId, place: u64, wrong: &Wrong) -> String {
        let layout = &self.maker.layout;
        let key = wrong.position.map_or_else(String::new, |position| format!(", key hash {position:016x}"));
        format!(
            "shard {}, segment {}, block {}, byte {} of the region{key}: {} of keyspace {}: {}",
            self.maker.shard,
            layout.segment_of(place),
            layout.block_of(place) % layout.blocks_per_segment(),
            self.maker.memory.base() + place,
            wrong.kind,
            keyspace.0,
            wrong.what
        )
    }
}

#[cfg(test)]
#[path = "verify_test.rs"]
mod verify_test;
