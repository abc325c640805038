//! Verifies a shard that serves: every record that an index leads to, its long value, and whether it is the one that
//! the index should lead to. Some entries a step, beside the traffic.
//!
//! What a closed store's check reads besides, header, tables and logs ([`crate::check`]), is not read here: it changes
//! while the shard serves, and the next opening reads it.
//!
//! Invariant: a finding is no effect of what happens meanwhile, for an entry and its record are looked at in one step.
//!
//! It changes nothing; a crash leaves nothing of it. Memory: the report. A step reads the records of its 16 entries, long
//! values included. Scrubbing ([`crate::scrub`]) walks the same way, at a rate.

use crate::format::RecordHead;
use crate::keys::Keys;
use crate::shard::PmShard;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound::Included;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result};
use tierstone_engine::{Direction, Verification};

/// Entries that a step looks at.
const ENTRIES_A_STEP: usize = 16;
/// Damaged records that a walk remembers, so that none is told twice where two pages show it.
const TOLD_MAX: usize = 1_000;

/// A walk through everything that the indexes lead to.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Keyspaces that are left, and where it is in the first.
    left: VecDeque<KeyspaceId>,
    from: Position,
    told: BTreeSet<u64>,
}

/// What the entries of one step led to.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub bytes: u64,
    /// Records that are whole and their keys'.
    pub records: u64,
    pub wrong: Vec<Wrong>,
    pub is_over: bool,
}

/// What is wrong with an entry, and how many keys it costs.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub kind: &'static str,
    pub lost_keys: u64,
    /// Where, and what, in words.
    pub finding: String,
}

/// A verification under way, and what the last one has found.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    walk: Walk,
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
        let report =
            Verification { is_running: true, bytes_total: self.readable_bytes(), ..Verification::default() };
        self.verifier = Verifier { walk: self.begin_walk(), report: Some(report) };
        Ok(())
    }

    /// About how many bytes a walk reads.
    pub(crate) fn readable_bytes(&self) -> u64 {
        self.blocks.live_bytes() + self.overflow.taken_bytes()
    }

    /// The verification goes on.
    pub(crate) fn verify_step(&mut self) {
        if !self.verifier.wants_step() {
            return;
        }
        let mut walk = std::mem::take(&mut self.verifier.walk);
        let walked = match self.is_shutting {
            true => Walked { is_over: true, ..Walked::default() },
            false => self.walk_some(&mut walk),
        };
        self.verifier.walk = walk;
        let Some(report) = &mut self.verifier.report else { return };
        report.bytes += walked.bytes;
        report.records += walked.records;
        report.live_records += walked.records;
        report.index_entries += walked.records + walked.wrong.len() as u64;
        report.is_running = !walked.is_over;
        for Wrong { kind, lost_keys, finding } in walked.wrong {
            report.note(kind, lost_keys, finding);
        }
    }

    /// A walk through the keyspaces that there are now.
    pub(crate) fn begin_walk(&self) -> Walk {
        Walk { left: self.keyspaces.keys().copied().collect(), ..Walk::default() }
    }

    /// The next entries of a walk.
    pub(crate) fn walk_some(&self, walk: &mut Walk) -> Walked {
        let mut walked = Walked::default();
        let Some(keyspace) = walk.left.front().copied() else {
            walked.is_over = true;
            return walked;
        };
        let mut places = Vec::new();
        let keys = self.keyspaces.get(&keyspace);
        // What was dropped meanwhile is nobody's.
        let next = keys.and_then(|keys| keys.scan(walk.from, ENTRIES_A_STEP, |place| places.push(place)));
        let page = (walk.from, next);
        for (keys, place) in keys.into_iter().flat_map(|keys| places.iter().map(move |place| (keys, *place)))
        {
            match self.verify_one(keyspace, keys, place, page) {
                Ok(None) => {}
                Ok(Some(head)) => {
                    walked.bytes += head.bytes();
                    walked.records += 1;
                }
                Err(wrong) => {
                    if walk.told.len() >= TOLD_MAX || walk.told.insert(place) {
                        walked.wrong.push(wrong);
                    }
                }
            }
        }
        walk.from = next.unwrap_or_default();
        if next.is_none() {
            walk.left.pop_front();
        }
        walked.is_over = walk.left.is_empty();
        walked
    }

    /// The record that an entry leads to, if it is whole and its key's; `None`: another page shows it.
    fn verify_one(
        &self,
        keyspace: KeyspaceId,
        keys: &Keys,
        place: u64,
        (from, until): (Position, Option<Position>),
    ) -> std::result::Result<Option<RecordHead>, Wrong> {
        let wrong = |kind, lost_keys, what, position| {
            let finding = self.finding((keyspace, place, position), kind, what);
            Wrong { kind, lost_keys, finding }
        };
        let Ok((head, record)) = self.record(place) else {
            return Err(wrong("record", 1, "its checksum does not fit", None));
        };
        let position = Position(head.position);
        if position < from || until.is_some_and(|until| position >= until) {
            return Ok(None);
        }
        let found = |kind, lost_keys, what| wrong(kind, lost_keys, what, Some(head.position));
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

    fn finding(
        &self,
        (keyspace, place, position): (KeyspaceId, u64, Option<u64>),
        kind: &str,
        what: &str,
    ) -> String {
        let layout = &self.maker.layout;
        let key = position.map_or_else(String::new, |position| format!(", key hash {position:016x}"));
        format!(
            "shard {}, segment {}, block {}, byte {} of the region{key}: {kind} of keyspace {}: {what}",
            self.maker.shard,
            layout.segment_of(place),
            layout.block_of(place) % layout.blocks_per_segment(),
            self.maker.memory.base() + place,
            keyspace.0,
        )
    }
}

#[cfg(test)]
#[path = "verify_test.rs"]
pub(crate) mod verify_test;
