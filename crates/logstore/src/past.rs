//! Expiry that does not come back: what was shown as past stays past, whatever the wall clock is set to.
//!
//! A shard keeps the highest expiry that it has ever *shown as past*: a lookup or a page left a record out, or
//! the cleaner dropped one, so that it is missing from then on. It is not the highest clock: a clock that ran
//! ahead and was put right has no effect beyond what was shown.
//!
//! Invariants:
//! 1. An answer that shows a higher expiry as past than any before has observed a sequence whose group says so
//!    in its header: the answer waits for that group like any other. If no group is open one is opened for it;
//!    it holds no record and has a sequence of its own. Only where no segment can be had for it (a full store,
//!    while cleaning makes room) the answer does not wait, and the group follows.
//! 2. Every group says what was shown before it was closed, and a footer what the groups of its segment say.
//!    A segment is freed when the superblock, or a durable group in another segment, says as much.
//! 3. At opening the highest that any footer, any group of a log up to its end, or the superblock says is
//!    written to the superblock before anything is freed or served. Shards go by no earlier time from then on.
//!
//! A store without expiring keys writes nothing and pays nothing.

use crate::admission::{KEPT_FOR_CLEANER, Reserve};
use crate::shard::LogShard;
use tierstone_base::{Now, Seq};

/// What a shard knows of expiry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    /// The highest expiry that was shown as past, earlier openings included, in milliseconds since 1970.
    pub shown_ms: u64,
    /// What the superblock says.
    pub opened_ms: u64,
    /// When this is durable, so is `shown_ms`.
    seq: Seq,
    /// No group says `shown_ms` yet, for want of room.
    is_owed: bool,
}

impl Past {
    /// At opening.
    pub fn new(past_ms: u64) -> Self {
        Past { shown_ms: past_ms, opened_ms: past_ms, seq: 0, is_owed: false }
    }
}

impl LogShard {
    /// Takes in the time; by the wall clock it is not before what was shown as past.
    pub(crate) fn see(&mut self, now: Now) {
        self.now = self.now.max(now);
        self.now.wall_ms = self.now.wall_ms.max(self.past.shown_ms);
    }

    /// Whether what expires at `expiry_ms` is gone at `wall_ms`, 0 being never. That it is so counts as shown.
    #[inline]
    pub(crate) fn is_past(&mut self, expiry_ms: u64, wall_ms: u64) -> bool {
        if expiry_ms == 0 || expiry_ms > wall_ms.max(self.past.shown_ms) {
            return false;
        }
        self.show_past(expiry_ms);
        true
    }

    /// Notes that an expiry is shown as past.
    pub(crate) fn show_past(&mut self, expiry_ms: u64) {
        if expiry_ms <= self.past.shown_ms {
            return;
        }
        self.past.shown_ms = expiry_ms;
        self.hot.set_past_ms(expiry_ms);
        self.cold.set_past_ms(expiry_ms);
        if self.identity.mutations.is_on("past_not_gated") {
            return;
        }
        if self.failed.is_some() {
            // Nothing becomes durable any more: the answer is never given.
            self.applied += 1;
            return;
        }
        self.past.is_owed = true;
        self.write_past();
    }

    /// Sees to it that a group will say what was shown: an open one, whose records every answer from now on has
    /// observed, or one without records that is opened for it. Where there is no room, a later write or step does.
    pub(crate) fn write_past(&mut self) {
        if !self.past.is_owed || self.failed.is_some() {
            return;
        }
        let has_open = self.hot.first_open_seq().is_some();
        // The redo log may have answered for all that the open group has.
        if !has_open || self.hot.answered_seq() >= self.applied {
            // A sequence that no group has would hold up who waits for all that was applied, cleaning too.
            if !has_open
                && !self.has_past_room()
                && !self.secure_for(Reserve::ForDeletes, 1 + KEPT_FOR_CLEANER)
            {
                return;
            }
            if !self.hot.open_mark(self.applied + 1, self.now.monotonic_us, &mut self.segments) {
                return;
            }
            self.applied += 1;
        }
        self.past.is_owed = false;
        self.past.seq = self.applied;
    }

    /// Whether the open segment of the hot log takes a group without records, and what parts of batches over
    /// several shards may need there besides.
    fn has_past_room(&self) -> bool {
        let kept_bytes = self.hot.kept_bytes();
        let room = kept_bytes + tierstone_media::BLOCK_BYTES as u64;
        self.hot.has_mark_room() && (kept_bytes == 0 || self.hot.room_for(room, 0))
    }

    /// Whether what `segment` says of expiry is said elsewhere, durably; if not, a group is on its way that
    /// will say it.
    pub(crate) fn is_past_kept(&mut self, segment: u32) -> bool {
        let past_ms = self.segments.get(segment).past_ms;
        if past_ms <= self.past.opened_ms
            || self.hot.proves_past(past_ms, segment)
            || self.cold.proves_past(past_ms, segment)
            || self.identity.mutations.is_on("past_lost_in_cleaning")
        {
            return true;
        }
        let now_us = self.now.monotonic_us;
        let is_open = self.hot.has_open_segment() || self.cold.has_open_segment();
        if !is_open && self.segments.free_count() == 0 {
            // Without this very segment nothing can be written again; the next group says it.
            return true;
        }
        if self.hot.has_open_segment() && self.has_past_room() {
            self.hot.prove(now_us, &mut self.segments);
        } else if self.cold.has_open_segment() {
            self.cold.prove(now_us, &mut self.segments);
        } else if !is_open && !self.shutting {
            // The last free segment will do: this one becomes free for it.
            self.hot.open_mark(self.applied, now_us, &mut self.segments);
        }
        false
    }

    /// When this sequence is durable, so is everything that was shown as past; 0 where answers do not wait.
    pub fn past_gate(&self) -> Seq {
        if self.settings.durability == tierstone_engine::Durability::Relaxed { 0 } else { self.past.seq }
    }
}

#[cfg(test)]
#[path = "past_test.rs"]
mod past_test;
