//! When keys are to be evicted, and when writers wait for it.

use crate::shard::LogShard;
use tierstone_base::KeyspaceId;
use tierstone_engine::Eviction;

/// Room for one part in so many of the index is kept, within these bounds in bytes.
const ROOM_PARTS: u64 = 32;
const ROOM_BYTES_MIN: u64 = 32 << 10;
const ROOM_BYTES_MAX: u64 = 8 << 20;
/// More live data than this part of the capacity leaves the cleaner too little to gain.
const LIVE_FRACTION_MAX: f64 = 0.85;
/// ... and while it is more than this part writers wait.
const LIVE_FRACTION_HELD: f64 = 0.89;
/// When a write found no space, so many segments' worth of records goes.
const SEGMENTS_AT_ONCE: u64 = 2;
/// Steps from one look at what is left to the next.
const LOOK_EVERY: u64 = 64;
/// Rounds in which nothing could be evicted, after which nobody is told to wait for a while.
const BARREN_ROUNDS: u32 = 3;
const BARREN_PAUSE_US: u64 = 200_000;

impl LogShard {
    /// Whether keys are evicted so that the index of `keyspace` has room for `bytes` more.
    pub(crate) fn can_evict_for_index(&mut self, keyspace: KeyspaceId, bytes: u64) -> bool {
        // Who wants more than an index may ever have waits in vain.
        let fits = bytes <= self.index_limit() / 2;
        let can = fits && !self.shutting && self.evictor.may_evict(self.now.monotonic_us);
        if can {
            self.evictor.short_index = Some((keyspace, bytes));
        }
        can
    }

    /// Whether keys are evicted so that segments can be cleaned.
    pub(crate) fn can_evict_for_space(&mut self) -> bool {
        let can = !self.shutting && self.evictor.may_evict(self.now.monotonic_us);
        if can && self.evictor.evicted_bytes >= self.evictor.until_bytes {
            let bytes = SEGMENTS_AT_ONCE * self.segments.segment_bytes();
            self.evictor.until_bytes = self.evictor.evicted_bytes + bytes;
        }
        can && !self.evictor.is_barren
    }

    /// As many keys go as make room for a segment.
    pub(crate) fn evict_for_a_segment(&mut self) {
        let until_bytes = self.evictor.evicted_bytes + self.segments.segment_bytes();
        self.evictor.until_bytes = self.evictor.until_bytes.max(until_bytes);
    }

    /// Bytes that the index of `keyspace` may still take.
    pub(crate) fn index_room(&self, keyspace: KeyspaceId) -> u64 {
        let free = self.keyspaces.get(keyspace).map_or(0, |keyspace| keyspace.index.free_bytes());
        (self.index_limit() + free)
            .saturating_sub(self.keyspaces.memory_bytes() + crate::admission::INDEX_SLACK_BYTES)
    }

    fn room_wanted(&self) -> u64 {
        (self.index_limit() / ROOM_PARTS).clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX)
    }

    /// The part of the capacity that is live, tombstones apart: these are left to cleaning, for each key more that goes
    /// makes another.
    fn live_fraction_of_capacity(&self) -> f64 {
        let capacity = u64::from(self.capacity_count()) * self.segments.segment_bytes();
        let records = self.segments.live_bytes().saturating_sub(self.segments.tombstone_bytes());
        records as f64 / capacity.max(1) as f64
    }

    /// Whether writers wait until keys have been evicted.
    pub(crate) fn must_wait_for_eviction(&mut self) -> bool {
        let waits = self.evictor.policy != Eviction::None
            && self.evicts_one_by_one()
            && !self.shutting
            && self.evictor.may_evict(self.now.monotonic_us)
            && self.live_fraction_of_capacity() > LIVE_FRACTION_HELD
            && !self.identity.mutations.is_on("writes_outrun_eviction");
        self.evictor.is_tight |= waits;
        waits
    }

    /// Whether anything is to be evicted now.
    pub(super) fn wants_eviction(&mut self) -> bool {
        if !self.evictor.may_evict(self.now.monotonic_us) {
            return false;
        }
        if self.evictor.is_tight || self.reads.steps.is_multiple_of(LOOK_EVERY) {
            self.evictor.is_tight = self.live_fraction_of_capacity() > LIVE_FRACTION_MAX;
        }
        if let Some((keyspace, bytes)) = self.evictor.short_index
            && self.index_room(keyspace) >= self.room_wanted() + bytes
        {
            self.evictor.short_index = None;
        }
        let wants_space = self.evictor.is_tight || self.evictor.evicted_bytes < self.evictor.until_bytes;
        self.evictor.short_index.is_some()
            || (wants_space && self.evicts_one_by_one())
            || self.evictor.retirer.waits_for_samples && self.lacks_samples()
    }

    /// The hand has gone round.
    pub(super) fn end_eviction_round(&mut self) {
        self.evictor.hand = (0, 0);
        self.evictor.rounds += 1;
        let found_any =
            self.evictor.evicted_keys > self.evictor.round_began_at || !self.evictor.named.is_empty();
        self.evictor.round_began_at = self.evictor.evicted_keys;
        // What was spared is old enough when nothing else is left.
        self.evictor.takes_all = !found_any;
        // What comes next is known of some segments when they have been walked.
        let is_learning = self.evictor.policy == Eviction::NearestExpiry && self.hurry_profiles();
        let is_barren = !found_any && !is_learning;
        self.evictor.barren_rounds = if is_barren { self.evictor.barren_rounds + 1 } else { 0 };
        let holds_keys = |number| {
            let segment = self.segments.get(number);
            segment.live_records > segment.tombstone_records && self.eviction_place(segment).is_some()
        };
        let is_open_worth = self.hot.is_marked() && self.hot.written_segment().is_some_and(holds_keys);
        if self.evictor.barren_rounds == 1 && is_open_worth {
            // All that is left may lie in the open segment.
            self.hot.roll(&mut self.segments);
        }
        if self.evictor.barren_rounds >= BARREN_ROUNDS && !self.hot.is_sealing() {
            self.evictor.barren_rounds = 0;
            self.evictor.is_barren = true;
            self.evictor.barren_until_us = self.now.monotonic_us + BARREN_PAUSE_US;
            self.evictor.short_index = None;
            self.evictor.until_bytes = 0;
        }
    }
}
