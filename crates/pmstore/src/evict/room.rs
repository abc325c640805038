//! When keys are to be evicted, and when writers wait for it.

use crate::format::RECORD_BYTES;
use crate::shard::PmShard;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::{Eviction, Write};

/// Room for one part in so many of the memory for indexes is made, within these bounds in bytes.
const ROOM_PARTS: u64 = 64;
const ROOM_BYTES_MIN: u64 = 4 << 10;
const ROOM_BYTES_MAX: u64 = 4 << 20;
/// Percent of the space that records may take before keys go: more leaves cleaning too little to gain.
const LIVE_PERCENT_MAX: u64 = 90;
/// ... and while they take more than this, writers wait.
const LIVE_PERCENT_HELD: u64 = 94;
/// Long values leave one segment of so many to blocks.
const BLOCK_PARTS: u64 = 16;
/// When a write found no space, one part of the shard's in so many goes, two segments' worth at most.
const PARTS_AT_ONCE: u64 = 32;
const SEGMENTS_AT_ONCE: u64 = 2;
/// Bytes of a tombstone, about.
const TOMBSTONE_BYTES: u64 = RECORD_BYTES as u64 + 16;

impl PmShard {
    /// Whether there may be keys to evict.
    fn may_find_some(&self) -> bool {
        // Nothing expires: of keys that do there are none.
        let has_some = !self.evictor.policy.is_of_expiring() || self.sweeper.has_expiring;
        let is_barren = self.now.monotonic_us < self.evictor.barren_until_us;
        self.evictor.policy != Eviction::None && has_some && !is_barren && !self.is_shutting
    }

    /// Whether who finds no room is told to wait.
    fn may_evict(&self) -> bool {
        self.may_find_some() && !self.evictor.is_stuck(self.now.monotonic_us)
    }

    /// Whether keys are evicted so that indexes may grow.
    pub(crate) fn can_evict_for_memory(&mut self) -> bool {
        let can = self.may_evict();
        self.evictor.is_short_of_memory |= can;
        can && !self.evictor.is_barren
    }

    /// Whether keys are evicted so that there is something to clean.
    pub(crate) fn can_evict_for_space(&mut self) -> bool {
        let can = self.may_evict();
        if can && self.evictor.evicted_bytes >= self.evictor.until_bytes {
            let layout = &self.maker.layout;
            let bytes = SEGMENTS_AT_ONCE * layout.geometry.segment_bytes;
            let bytes = bytes.min(layout.storage_bytes() / PARTS_AT_ONCE);
            self.evictor.until_bytes = self.evictor.evicted_bytes + bytes;
        }
        can && !self.evictor.is_barren
    }

    /// Whether records that count take more than so many percent of the blocks that the shard has and may have, or with their
    /// long values of all its space; what writes under way have replaced is left out, and so are tombstones: each key more
    /// that goes would make another.
    fn fills(&self, percent: u64) -> bool {
        let layout = &self.maker.layout;
        let blocks =
            self.blocks.segments.len() as u64 + u64::from(self.maker.space.free_for(self.maker.shard));
        let all = blocks + self.overflow.segment_count();
        let exceeds =
            |records: u64, segments: u64| records * 100 > segments * layout.geometry.segment_bytes * percent;
        let going = self.evictor.dying_bytes + self.graves.tombstone_count() * TOMBSTONE_BYTES;
        let records = self.blocks.live_bytes().saturating_sub(going);
        let going_long = self.evictor.freeing_bytes + self.evictor.dying_long_bytes;
        let long = self.overflow.taken_bytes().saturating_sub(going_long);
        exceeds(records, blocks) || exceeds(records + long, all)
    }

    /// Free segments that long values leave to blocks where keys are evicted: the records that name them need some, and
    /// segments of long values come back only as a whole.
    pub(crate) fn segments_kept_from_long_values(&self) -> u32 {
        if self.evictor.policy == Eviction::None {
            return 0;
        }
        let layout = &self.maker.layout;
        ((layout.storage_bytes() / layout.geometry.segment_bytes / BLOCK_PARTS) as u32).max(1)
    }

    /// Makes writers wait while deletions must have room first; a part of a batch was admitted, and is taken.
    pub(crate) fn wait_for_eviction(&mut self, writes: &[Write<'_>], is_part: bool) -> Result<()> {
        let waits = self.evictor.policy != Eviction::None
            && !is_part
            && self.fills(LIVE_PERCENT_HELD)
            && !Write::only_free(writes)
            && self.may_evict()
            && !self.evictor.is_barren
            && !self.mutations.is_on("writes_outrun_eviction");
        match waits {
            true => Err(Error::new(ErrorKind::Retry, "keys are being evicted to make room: step the engine")),
            false => Ok(()),
        }
    }

    /// Whether anything is to be evicted now.
    pub(super) fn wants_eviction(&mut self) -> bool {
        if self.evictor.is_short_of_memory {
            self.count_memory();
            let room = self.settings.memory_bytes / ROOM_PARTS;
            let room = room.clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX);
            self.evictor.is_short_of_memory = self.memory_room() < room;
        }
        let wants = self.wants_eviction_as_counted();
        if !wants {
            // Who is not tried is not held up.
            self.evictor.held_since_us = None;
        }
        wants
    }

    fn wants_eviction_as_counted(&self) -> bool {
        let evictor = &self.evictor;
        let is_asked = evictor.is_short_of_memory || evictor.evicted_bytes < evictor.until_bytes;
        self.may_find_some() && (is_asked || self.fills(LIVE_PERCENT_MAX))
    }

    /// When a step lets keys go that nothing else announces.
    pub(crate) fn eviction_due_at_us(&self) -> Option<u64> {
        if self.is_shutting || !self.wants_eviction_as_counted() {
            return None;
        }
        Some(if self.evictor.held_since_us.is_some() { self.evictor.retry_us } else { 0 })
    }
}
