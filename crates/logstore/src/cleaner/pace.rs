//! How fast a victim is gone through: at the pace at which writes take space.
//!
//! Cleaning at full speed whenever space is short comes in spells, in which those who read and write get what
//! it leaves of processor and device: at 70 % of the highest rate a spell of 300 ms held up everyone for 200.
//! The work is the same when it is spread.
//!
//! Invariants:
//! 1. (`cleaning_in_spells`) Each byte of the log that writes take lets the cleaner pass as many bytes of its victim as gain one, and the
//!    more the fewer segments are free: up to four times as many, and all where the level is reached at
//!    which writes wait ([`LogShard::must_pace`]).
//! 2. Nobody waits for a cleaner that waits: a write that was refused for want of space, another shard that asks, and
//!    what is cleaned for other reasons than short space know no pace. Time alone lets it go on too.

use crate::location::UNIT_BYTES;
use crate::shard::LogShard;

/// What time alone lets the cleaner pass, in bytes a second: an idle store has its space again in time.
const IDLE_BYTES_A_SECOND: u64 = 16 << 20;
/// Credit is kept up to so many pieces, so that a pause is not followed by a spell.
const PIECES_KEPT: f64 = 2.0;
/// A victim that gains little is passed at most so many times as fast as writes take space.
const COST_MAX: f64 = 64.0;
/// A segment that is retired is passed so many times as fast as writes take space: some of it is moved.
const RETIRING_COST: f64 = 2.0;
/// A dense segment that is swept is passed so many times as fast as writes take space: it gives none back.
const SWEEPING_COST: f64 = 4.0;
/// How much faster cleaning is just above the level at which writes wait.
const HASTE_MAX: f64 = 4.0;

/// While writes wait, a step does as much as so many others, where segments are this long; a short one is gone through
/// in a few steps anyway.
const HURRIED_STEPS: usize = 4;
const HURRIED_SEGMENT_BYTES: u64 = 1 << 20;

/// What cleaning may do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes of the victim that may be passed; below zero they have been passed ahead.
    credit_bytes: f64,
    /// Bytes of the log that had been taken when credit was last given, and when that was.
    taken_bytes: u64,
    given_at_us: u64,
    /// When time alone lets it go on, as it was when something was passed last. What writes give since is not counted:
    /// they bring steps themselves, and a time that comes nearer with each write would wake threads for nothing.
    due_at_us: u64,
    /// A write has found no space.
    is_hurried: bool,
    /// One has since the last look for a victim.
    wants_look: bool,
}

impl Pace {
    /// A write waits for space: the cleaner does what it can until one finds some.
    pub(crate) fn hurry(&mut self) {
        (self.is_hurried, self.wants_look) = (true, true);
    }

    /// Whether a write has found no space since this was asked last.
    pub(crate) fn take_wants_look(&mut self) -> bool {
        std::mem::take(&mut self.wants_look)
    }

    /// A write has found space.
    pub(crate) fn calm(&mut self) {
        self.is_hurried = false;
    }

    /// Works out when time alone has given credit again: not before what was said last.
    fn set_due(&mut self) {
        let owed = -self.credit_bytes.min(0.0);
        let due_at_us = self.given_at_us + (owed * 1e6 / IDLE_BYTES_A_SECOND as f64).ceil() as u64 + 1;
        self.due_at_us = self.due_at_us.max(due_at_us);
    }
}

impl LogShard {
    /// How much a step does, where it does `calm` as a rule: more while writes wait, for what else there is to do at every
    /// turn would take most of the time.
    pub(super) fn work_a_step(&self, calm: usize) -> usize {
        let is_long = self.segments.segment_bytes() >= HURRIED_SEGMENT_BYTES;
        if self.cleaner.pace.is_hurried && is_long { HURRIED_STEPS * calm } else { calm }
    }

    /// Whether the victim may be gone on with now. Credit is given by the way.
    pub(super) fn keeps_pace(&mut self) -> bool {
        let Some(victim) = self.cleaner.victim.as_ref() else { return true };
        let is_free = !victim.is_between_pieces() || self.cleaner.starved;
        let Some(cost) = victim.cost.filter(|_| !is_free) else {
            return true;
        };
        if self.identity.mutations.is_on("cleaning_in_spells") {
            return true;
        }
        let haste = self.haste();
        self.give_credit(cost * (1.0 + (HASTE_MAX - 1.0) * haste.unwrap_or(1.0)));
        let goes_on = haste.is_none() || self.cleaner.pace.credit_bytes > 0.0;
        if !goes_on && self.cleaner.pace.due_at_us <= self.now.monotonic_us {
            self.cleaner.pace.set_due();
        }
        goes_on
    }

    /// From now on the victim is gone through at the pace of writes.
    pub(crate) fn pace_victim(&mut self) {
        let segment_bytes = self.segments.segment_bytes() as f64;
        if let Some(victim) = &mut self.cleaner.victim {
            let live = self.segments.get(victim.segment).live_bytes as f64 / segment_bytes;
            victim.cost = Some(1.0 / (1.0 - live).max(1.0 / COST_MAX));
        }
    }

    /// The same of one of which most is not moved.
    pub(crate) fn pace_retiring(&mut self) {
        if let Some(victim) = &mut self.cleaner.victim {
            victim.cost = Some(RETIRING_COST);
        }
    }

    /// The same of one that is moved for the tombstones that others then need not keep.
    pub(crate) fn pace_sweep(&mut self) {
        if let Some(victim) = &mut self.cleaner.victim {
            victim.cost = Some(SWEEPING_COST);
        }
    }

    /// How near the level is at which writes wait: 0 where cleaning has just begun, to 1. `None` where that is
    /// reached, or somebody waits.
    fn haste(&self) -> Option<f64> {
        if self.cleaner.pace.is_hurried || self.is_asked_for_space() {
            return None;
        }
        let wanted = self.free_wanted();
        let level = self.paced_from();
        let free = self.segments.free_count() + self.emptied_count();
        (free > level).then(|| f64::from(wanted.saturating_sub(free)) / f64::from((wanted - level).max(1)))
    }

    /// Credit for what writes have taken since, and for time.
    fn give_credit(&mut self, factor: f64) {
        let taken = self.hot.segments_opened() * self.segments.segment_bytes();
        let taken = taken.saturating_sub(self.hot.unused_bytes());
        let now_us = self.now.monotonic_us;
        let pace = &mut self.cleaner.pace;
        let written = taken.saturating_sub(pace.taken_bytes) as f64 * factor;
        let idle = now_us.saturating_sub(pace.given_at_us) as f64 * IDLE_BYTES_A_SECOND as f64 / 1e6;
        let kept = self.settings.clean_step_bytes as f64 * PIECES_KEPT;
        pace.credit_bytes = (pace.credit_bytes + written.max(idle)).min(kept);
        (pace.taken_bytes, pace.given_at_us) = (taken.max(pace.taken_bytes), now_us);
    }

    /// The cleaner has passed `units` of its victim.
    pub(super) fn charge_pace(&mut self, units: u32) {
        self.cleaner.pace.credit_bytes -= f64::from(units) * UNIT_BYTES as f64;
        self.cleaner.pace.set_due();
    }

    /// When a victim that waits for its turn may be gone on with, if no write comes before.
    pub(crate) fn next_clean_step_us(&self) -> Option<u64> {
        let waits =
            self.cleaner.victim.as_ref().is_some_and(|victim| victim.cost.is_some() && !victim.is_reading());
        (waits && !self.cleaner.stopped && !self.is_victim_held()).then_some(self.cleaner.pace.due_at_us)
    }
}
