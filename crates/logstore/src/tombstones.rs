//! Deletions that are not needed any more: when they may go, and what is moved so that they do.
//!
//! A tombstone hides older versions of its key. It is dropped when its segment is cleaned, if every other segment with
//! dead records was opened after the deletion. What is deleted again and again beside data that stay would fill
//! a store with tombstones, for dense segments are not worth cleaning and the oldest of them keeps all later
//! tombstones. So:
//! - a segment of which every record lives keeps none (`is_wholly_live`);
//! - where tombstones crowd the space that records leave (`are_tombstones_crowding`), a *sweep* moves the oldest
//!   segments with dead records, however dense, beside other cleaning; and a segment whose tombstones may go is worth
//!   cleaning for these (`shedding_tombstones`);
//! - an idle store sweeps when they are an eighth of what lives.
//!
//! The rule of tombstones decides in all cases; what is here only brings its time.
//!
//! Nothing here is durable.

use crate::gain::LIVE_FRACTION_MAX;
use crate::location::Location;
use crate::segments::{Role, Segment};
use crate::shard::LogShard;
use tierstone_base::Seq;
use tierstone_engine::Eviction;

/// An idle store sweeps when tombstones weigh more than one part in so many of what is live.
const TOMBSTONE_PARTS: u64 = 8;
/// For less than one part in so many of a segment nothing is moved.
const SWEPT_PARTS: u64 = 16;
/// Beside other cleaning tombstones are swept when they take one part in so many of the space that records leave.
const CROWDED_PARTS: f64 = 2.0;
/// ... and where a sweep may gain more than one part in so many of what it moves: as much as other cleaning.
const GAINED_PARTS: u64 = 32;
/// Where all of a segment lives, a sweep moves it if of that more is tombstones than one part in so many.
const CARRIED_PARTS: u64 = 32;
/// A victim that gains less is no reason to put a sweep off.
const WORTH_LIVE: f64 = 0.9;

/// How far tombstones have been swept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    /// The last sweep takes segments opened before this sequence.
    to: Seq,
    /// Bytes of records that had been written when it began.
    at_bytes: u64,
    /// Bytes of tombstones of all victims since then, and those of them that were moved.
    met_bytes: u64,
    moved_bytes: u64,
    /// Bytes of tombstones when it ended.
    left_bytes: u64,
    is_under_way: bool,
    /// The last victim was chosen by it.
    had_turn: bool,
}

impl Sweep {
    /// A victim held so many bytes of tombstones.
    pub fn met(&mut self, bytes: u64) {
        self.met_bytes += bytes;
    }

    /// A tombstone was moved, for it is needed.
    pub fn moved(&mut self, bytes: u64) {
        self.moved_bytes += bytes;
    }
}

impl LogShard {
    /// Whether every record of a segment lives, tombstones among them: then none of it is an older version of a key that
    /// has been deleted.
    fn is_wholly_live(&self, number: u32, segment: &Segment) -> bool {
        let records = match segment.role {
            Role::Sealed => segment.summary.records,
            Role::Open if segment.cold => {
                self.cold.open_summary_of(number).map_or(0, |summary| summary.records())
            }
            _ => 0,
        };
        let dead = records.saturating_sub(segment.live_records);
        let is_live = dead == 0 || (dead < 3 && self.identity.mutations.is_on("few_dead_overlooked"));
        let is_known = !segment.is_estimated && segment.shared.is_none() && segment.snapshot_records == 0;
        // What was written past a record that could not be read may have been its key.
        let is_passed = || self.reads.passed.keys().any(|raw| Location::from_raw(*raw).segment() == number);
        records > 0 && is_live && is_known && !self.cleaner.is_unreadable(number) && !is_passed()
    }

    /// Whether a segment may hold an older version of a key that has been deleted.
    fn may_hold_dead(&self, number: u32, segment: &Segment) -> bool {
        segment.may_hold_records() && !self.is_wholly_live(number, segment)
    }

    /// The oldest opening among segments that may hold dead records, `but` apart; `Seq::MAX` if there is none. Cost: a look
    /// at every segment.
    pub(crate) fn oldest_with_dead(&self, but: u32) -> Seq {
        let holding = self
            .segments
            .iter()
            .filter(|(number, segment)| *number != but && self.may_hold_dead(*number, segment));
        holding.map(|(_, segment)| segment.opened_seq).min().unwrap_or(Seq::MAX)
    }

    /// Whether so many bytes of tombstones are enough for anything to be moved.
    fn are_worth_moving_for(&self, bytes: u64) -> bool {
        bytes * SWEPT_PARTS >= self.segments.segment_bytes()
    }

    /// Whether tombstones take much of the space that records leave to writers, both packed as cleaning packs them. Cost: a
    /// look at every segment.
    fn are_tombstones_crowding(&self) -> bool {
        let (mut all, mut tombstones) = (0.0, 0.0);
        for (_, segment) in self.segments.iter().filter(|(_, segment)| segment.may_hold_records()) {
            let packed = self.live_fraction(segment);
            all += packed;
            tombstones += packed * segment.tombstone_bytes as f64 / segment.live_bytes.max(1) as f64;
        }
        let writable = f64::from(self.capacity_count().saturating_sub(self.left_by_writers()));
        tombstones * CROWDED_PARTS > writable - (all - tombstones)
    }

    /// The segment that a sweep moves next: the oldest that has something to do with tombstones. `None` at its end, or
    /// when that one has to stay.
    fn next_to_sweep(&self, to: Seq) -> Option<u32> {
        let is_in_way = |(number, segment): &(u32, &Segment)| {
            let weighs = segment.tombstone_bytes * CARRIED_PARTS > segment.live_bytes;
            segment.opened_seq < to
                // The others are on their way out, or will be sealed.
                && matches!(segment.role, Role::Sealed | Role::Left)
                && (weighs || self.may_hold_dead(*number, segment))
        };
        let (number, segment) = self
            .segments
            .iter()
            .filter(is_in_way)
            .min_by_key(|(number, segment)| (segment.opened_seq, *number))?;
        let may_go = segment.role == Role::Sealed
            && segment.snapshot_records == 0
            && segment.shared.is_none()
            && !self.cleaner.is_unreadable(number)
            // It may take two others to be moved to.
            && (self.live_fraction(segment) < 1.0 || self.segments.free_count() > 2);
        may_go.then_some(number)
    }

    /// Whether no keys are evicted for want of space: where they are, deletions are what makes space, and old segments empty
    /// by themselves.
    fn is_left_to_sweeps(&self) -> bool {
        let retires_none = self.evicts_by_segments() && !self.may_retire();
        self.evictor.policy == Eviction::None || self.evictor.is_barren || retires_none
    }

    /// Whether a sweep may begin or go on beside other cleaning.
    fn may_sweep_beside(&self) -> bool {
        self.are_worth_moving_for(self.segments.tombstone_bytes())
            && self.is_left_to_sweeps()
            && (self.is_short() || self.are_tombstones_crowding())
            && !self.is_told_of_changes()
            && !self.identity.mutations.is_on("tombstones_fill_the_store")
    }

    /// How far the next sweep would go, if there is reason for one: the last has helped, or tombstones have become more since.
    /// Where something keeps them sweeping again does not help.
    fn next_sweep(&self) -> Option<Seq> {
        let Sweep { met_bytes, moved_bytes, left_bytes, .. } = self.cleaner.sweep;
        let grown = self.segments.tombstone_bytes().saturating_sub(left_bytes);
        let more = grown.max(met_bytes.saturating_sub(moved_bytes));
        let is_reason = more * GAINED_PARTS >= self.segments.live_bytes() && self.are_worth_moving_for(more);
        is_reason.then_some(self.applied + 1)
    }

    /// Whether moving dense segments would get rid of tombstones where space is short. Cost: a look at every segment.
    pub(crate) fn can_sweep_tombstones(&self) -> bool {
        self.may_sweep_beside()
            && (self.next_to_sweep(self.cleaner.sweep.to).is_some()
                || self.next_sweep().is_some_and(|to| self.next_to_sweep(to).is_some()))
    }

    /// Where the best victim of cleaning has this part of it live: whether a sweep has its turn instead. One of the two,
    /// then the other; and what makes space goes first where writes wait for it.
    pub(crate) fn sweeps_rather(&mut self, best_live: Option<f64>) -> bool {
        let is_urgent = self.segments.free_count() <= self.paced_from();
        let is_worth = best_live.is_some_and(|live| live <= WORTH_LIVE);
        let had_turn = std::mem::take(&mut self.cleaner.sweep.had_turn);
        if !self.may_sweep_beside() || (is_worth && (is_urgent || had_turn)) {
            return false;
        }
        let mut next = self.next_to_sweep(self.cleaner.sweep.to);
        if next.is_none() && std::mem::take(&mut self.cleaner.sweep.is_under_way) {
            self.cleaner.sweep.left_bytes = self.segments.tombstone_bytes();
        }
        if next.is_none()
            && let Some(to) = self.next_sweep()
        {
            self.begin_sweep(to);
            next = self.next_to_sweep(to);
        }
        let Some(number) = next.filter(|&number| !self.is_older_going(number)) else { return false };
        self.start_victim(number);
        self.cleaner.sweep.had_turn = true;
        self.pace_sweep();
        true
    }

    /// Whether a segment that is older than this one is not free yet: tombstones would be moved for what it may still hold.
    fn is_older_going(&self, number: u32) -> bool {
        let opened_seq = self.segments.get(number).opened_seq;
        self.segments.iter().any(|(_, segment)| {
            matches!(segment.role, Role::Cleaning | Role::Freeing) && segment.opened_seq < opened_seq
        })
    }

    fn begin_sweep(&mut self, to: Seq) {
        let (at_bytes, left_bytes) = (self.hot.record_bytes, self.segments.tombstone_bytes());
        self.cleaner.sweep = Sweep { to, at_bytes, left_bytes, is_under_way: true, ..Sweep::default() };
    }

    /// In an idle store, where tombstones weigh much, moves the oldest segment, dense or not: when all that are older than a
    /// tombstone have been moved, it goes with its own. A sweep takes each segment once.
    pub(crate) fn sweep_tombstones(&mut self) {
        let tombstone_bytes = self.segments.tombstone_bytes();
        let weigh_much = tombstone_bytes * TOMBSTONE_PARTS > self.segments.live_bytes()
            && self.are_worth_moving_for(tombstone_bytes);
        if !weigh_much || self.is_short() || self.checkpoints.is_writing() {
            return;
        }
        // What is not free yet may still hold older versions: tombstones would be moved for it.
        if self.cleaner.emptied_segments().next().is_some() || self.segments.is_freeing() {
            return;
        }
        match self.next_to_sweep(self.cleaner.sweep.to) {
            Some(number) => self.start_victim(number),
            // The open segments are swept too: they may hold the tombstones.
            None if self.hot.is_idle() && !self.hot.is_sealing() && self.hot.is_marked() => {
                // Where something keeps the last sweep's tombstones, sweeping again does not help.
                let grown = self.hot.record_bytes - self.cleaner.sweep.at_bytes;
                if grown * TOMBSTONE_PARTS <= self.segments.live_bytes() {
                    return;
                }
                self.begin_sweep(self.applied + 1);
                self.hot.roll(&mut self.segments);
                self.cold.roll(&mut self.segments);
            }
            None => {}
        }
    }

    /// Where tombstones crowd, or space is short, a segment that is worth cleaning, however dense it is, for the tombstones
    /// that go with it; and what then remains of it, over what an empty segment takes. Whoever waits for this waits for
    /// deletions to be forgotten, of which there is an end. Cost: a look at every segment.
    pub(crate) fn shedding_tombstones(&self) -> Option<(u32, f64)> {
        let is_wanted = || self.is_short() || (self.is_left_to_sweeps() && self.are_tombstones_crowding());
        if !self.are_worth_moving_for(self.segments.tombstone_bytes())
            || !is_wanted()
            || self.identity.mutations.is_on("tombstones_fill_the_store")
        {
            return None;
        }
        let holding = || self.segments.iter().filter(|(_, segment)| segment.may_hold_records());
        if holding().any(|(_, segment)| segment.shared.is_some()) {
            return None;
        }
        let with_dead = holding().filter(|(number, segment)| self.may_hold_dead(*number, segment));
        let mut dead: Vec<(Seq, u32)> =
            with_dead.map(|(number, segment)| (segment.opened_seq, number)).collect();
        dead.sort_unstable();
        let mut hot: Vec<Seq> =
            holding().filter(|(_, segment)| !segment.cold).map(|(_, segment)| segment.opened_seq).collect();
        hot.sort_unstable();
        let shed = holding().filter_map(|(number, segment)| {
            let others = dead.iter().take(2).find(|(_, other)| *other != number);
            let oldest_dead = others.map_or(Seq::MAX, |(opened_seq, _)| *opened_seq);
            let next_hot = hot.get(hot.partition_point(|opened_seq| *opened_seq <= segment.opened_seq));
            let part = self.part_to_go(segment, oldest_dead, next_hot.copied().unwrap_or(self.applied))?;
            Some((number, self.remains((number, segment), part)?))
        });
        shed.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// Which part of a segment's tombstones would go if it were cleaned: those that are older than every other segment with
    /// dead records. `oldest_dead`, `next_hot`: when the first of these, and the next one of the hot log, were opened.
    fn part_to_go(&self, segment: &Segment, oldest_dead: Seq, next_hot: Seq) -> Option<f64> {
        // A segment of the hot log holds what was deleted while it was open, one of the cold log what was before, but for what
        // was moved into it later. Moved once more, that is older than the segment it is in.
        let last = if segment.cold { segment.opened_seq } else { next_hot };
        if oldest_dead >= last {
            return Some(1.0);
        }
        // An estimated part may be less: then the segment may take two others to be moved to.
        if self.segments.free_count() <= 2 || segment.is_estimated {
            return None;
        }
        let records = f64::from(segment.tombstone_records.max(1));
        Some(match segment.cold {
            // Each tombstone has a sequence of its own.
            true => {
                1.0 - last.saturating_sub(oldest_dead).min(segment.tombstone_records.into()) as f64 / records
            }
            false => {
                let gone = oldest_dead.saturating_sub(segment.opened_seq);
                gone as f64 / last.saturating_sub(segment.opened_seq).max(1) as f64
            }
        })
    }

    /// What remains of a sealed segment without this part of its tombstones, if that is less by enough.
    fn remains(&self, (number, segment): (u32, &Segment), part: f64) -> Option<f64> {
        let is_left_alone = segment.snapshot_records > 0 || self.cleaner.is_unreadable(number);
        if segment.role != Role::Sealed || is_left_alone || segment.tombstone_records == 0 {
            return None;
        }
        let gone = part * segment.tombstone_bytes as f64 / segment.live_bytes.max(1) as f64;
        let live = self.live_fraction(segment) * (1.0 - gone).max(0.0);
        (live <= LIVE_FRACTION_MAX).then_some(live)
    }
}
