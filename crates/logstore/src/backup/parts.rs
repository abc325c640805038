//! What a backup takes from the one that it is made since: segments by name.
//!
//! | segment | what is done |
//! |---|---|
//! | not held by the base | its records are given |
//! | held, in this opening, with as many live records as then | named: kept |
//! | held, in this opening, with fewer | its summary is read, and the records that count no more are told |
//! | held, from another opening | its summary is read: kept if the places of what counts have the same digest, else given |
//!
//! Invariants:
//! 1. Of a sealed segment records only stop counting while the store is open: as many as at the base's cut are the same
//!    ones. Both are counted at the cuts (`backup_keeps_what_changed`). A record that could not be read when its
//!    key was written again counts for the index still; its segment is looked at (`backup_forgets_passed`).
//! 2. Over an opening that does not hold: recovery takes a record rather than the copy that cleaning made of it, so it
//!    may count again where a backup has left it out (`backup_trusts_other_openings`).
//! 3. A touch changes an expiry and no count: for values in segments of the base that touches speak of, the expiry is told
//!    (`backup_forgets_touches`). No touch is written while a backup reads, and none is forgotten.

use super::{Backup, Waiting};
use crate::location::Location;
use crate::shard::LogShard;
use crate::touch::TouchKey;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{Error, ErrorKind, Result, Seq};
use tierstone_engine::cuts::Cut;
use tierstone_engine::{BackupPiece, BackupSince, HeldPart, PartEntry, PartName, PartState};

/// Touches, or segments that are kept, that one step looks at.
const NAMES_A_STEP: usize = 1_000;

/// What is done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Its records are given.
    Give,
    /// The base shows it as it is.
    Keep(HeldPart),
    /// The base holds it: what counts no more is told.
    Tell(HeldPart),
    /// The base holds it, and what it shows has this digest.
    Compare(HeldPart),
}

/// Expiries that touches say of values, by segment and unit.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    all: BTreeMap<u32, BTreeMap<u32, u64>>,
    /// Where the walk goes on; `None` when it is at its end.
    walk: Option<Option<TouchKey>>,
}

impl Backup {
    /// Whether a step would look for names, rather than read.
    pub(super) fn has_names_to_give(&self) -> bool {
        self.expiries.walk.is_some() || !self.kept.is_empty()
    }

    /// A segment has been dealt with: it is named in the table, and waits no more.
    pub(super) fn name_part(&mut self, held: HeldPart, state: PartState) {
        let expiries = match state {
            PartState::Given => None,
            _ => self.expiries.all.remove(&held.name.part),
        };
        let expiries = expiries.unwrap_or_default().into_iter().collect();
        self.parts.push_part(&PartEntry { held, state, expiries });
        if self.parts.bytes.len() >= super::PIECE_BYTES {
            self.give_parts();
        }
        self.waiting.remove(&held.name.part);
        self.waited_for_since_us = None;
    }

    pub(super) fn give_parts(&mut self) {
        let parts = std::mem::replace(&mut self.parts, BackupPiece::of_parts());
        if parts.records > 0 {
            self.give(parts);
        }
    }
}

impl LogShard {
    /// Whether a backup can be made since this one.
    pub(super) fn check_base(&self, since: Option<&BackupSince>) -> Result<()> {
        let now_ms = self.now.wall_ms;
        match since.filter(|since| since.taken_at_ms > now_ms) {
            // What had expired then, and is not in the base, would count again.
            Some(since) => {
                let message = format!(
                    "the clock shows {now_ms} ms since 1970, and the base was taken at {}: make a whole backup, or put \
                     the clock right",
                    since.taken_at_ms
                );
                Err(Error::new(ErrorKind::InvalidInput, message))
            }
            None => Ok(()),
        }
    }

    /// Which of the segments that are `waiting` the base holds; and the walk through the touches, if there is a base.
    pub(super) fn plan_backup(
        &self,
        since: Option<BackupSince>,
        cut: Cut,
        waiting: &mut BTreeMap<u32, Waiting>,
    ) -> (Vec<u32>, Expiries) {
        let Some(since) = since else { return (Vec::new(), Expiries::default()) };
        let mutations = &self.identity.mutations;
        let is_same_opening =
            since.opening == self.identity.opening_mark || mutations.is_on("backup_trusts_other_openings");
        let passed = self.passed_segments(cut.seq);
        let mut kept = Vec::new();
        for held in since.parts {
            let (number, name) = (held.name.part, held.name);
            let Some(waiting) = waiting.get_mut(&number) else { continue };
            let segment = self.segments.get(number);
            // The checksum is known when it is sealed; nothing was, of this life, when it is not.
            if (segment.generation, segment.summary.checksum) != (name.life, name.checksum) {
                continue;
            }
            let is_same = waiting.live == held.live && !segment.is_estimated && !passed.contains(&number);
            waiting.plan = if !is_same_opening {
                Plan::Compare(held)
            } else if is_same || mutations.is_on("backup_keeps_what_changed") {
                kept.push(number);
                Plan::Keep(held)
            } else {
                Plan::Tell(held)
            };
        }
        let walk = (!mutations.is_on("backup_forgets_touches")).then_some(None);
        (kept, Expiries { all: BTreeMap::new(), walk })
    }

    /// Segments with records past which a key was written up to `cut`.
    fn passed_segments(&self, cut: Seq) -> BTreeSet<u32> {
        if self.identity.mutations.is_on("backup_forgets_passed") {
            return BTreeSet::new();
        }
        let is_old = |keys: &BTreeMap<_, Seq>| keys.values().any(|at| *at <= cut);
        let passed = self.reads.passed.iter().filter(|(_, keys)| is_old(keys));
        passed.map(|(raw, _)| Location::from_raw(*raw).segment()).collect()
    }

    /// Whether the record at `location` was passed when its key was written, up to `cut`.
    pub(super) fn is_passed_before(&self, location: Location, cut: Seq) -> bool {
        self.reads.passed.get(&location.raw()).is_some_and(|keys| keys.values().any(|at| *at <= cut))
    }

    /// Looks at some touches, or names some segments that are kept.
    pub(super) fn name_for_backup(&mut self) {
        let Some(backup) = self.backups.current.as_deref_mut() else { return };
        if let Some(after) = backup.expiries.walk {
            let page = self.touches.page_of_all(after, NAMES_A_STEP);
            backup.expiries.walk = page.last().map(|(key, _)| Some(*key));
            for (_, touch) in page {
                let number = touch.value.segment();
                if backup.waiting.get(&number).is_some_and(|waiting| waiting.plan != Plan::Give) {
                    backup
                        .expiries
                        .all
                        .entry(number)
                        .or_default()
                        .insert(touch.value.unit(), touch.expiry_ms);
                }
            }
            return;
        }
        for _ in 0..NAMES_A_STEP {
            let Some(number) = backup.kept.pop() else { break };
            let Some(Waiting { plan: Plan::Keep(held), live, .. }) = backup.waiting.get(&number) else {
                continue;
            };
            let held = HeldPart { live: *live, ..*held };
            backup.name_part(held, PartState::Kept);
            self.segments.unpin_for_snapshots(number);
        }
        self.cleaner.look_again();
    }

    /// The name of a sealed segment.
    pub(super) fn part_name(&self, number: u32) -> PartName {
        let segment = self.segments.get(number);
        PartName { part: number, life: segment.generation, checksum: segment.summary.checksum }
    }
}
