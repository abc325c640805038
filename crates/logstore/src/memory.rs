//! Memory of a shard: what its index does not take is its record cache's, and what it does not need goes to
//! shards that do ([`crate::memory_ledger`]).
//!
//! Invariants:
//! 1. Index and cache together stay within the shard's part, but for what the index may grow between two looks
//!    (there is always a step of room) and for frames that are pinned.
//! 2. The index never takes more than its fraction; the cache never has less than half of the rest.
//! 3. What others take (buffers of connections, requests that wait) the cache gives up, as far as 2 allows.
//! 4. A part that becomes smaller is smaller here first: the index may not grow into it any more and the cache
//!    has left it before another shard gets it.

use crate::admission::INDEX_SLACK_BYTES;
use crate::memory_ledger::MemoryLedger;
use crate::settings::ShardSettings;
use crate::shard::LogShard;
use std::sync::Arc;
use tierstone_base::ShardId;
use tierstone_cache::{RecordCache, RecordCacheSettings};

/// The budget moves in steps of one part in so many.
const STEPS: u64 = 32;
/// Shard steps from one look at the index to the next: the sum goes over all keyspaces.
const LOOK_EVERY: u64 = 8;
/// Bytes of frames that one shard step evicts or moves when the cache gives memory back.
const SETTLED_BYTES: usize = 16 << 10;
/// Of what a shard begins with, it keeps one part in so many whatever others want,
const KEPT_PARTS: u64 = 2;
/// ... and its cache one part in so many.
const CACHE_PARTS: u64 = 8;
/// An index asks for more when it is so many steps of the ledger from its limit,
const STEPS_AHEAD: u64 = 2;
/// ... and gives back when it is so many more from it.
const STEPS_BACK: u64 = 3;
/// How long a write waits for another shard's memory without any coming, in microseconds.
const PATIENCE_US: u64 = 2_000_000;
/// How often it is tried whether the frames that hold a gift up are free, in microseconds.
const PINNED_PAUSE_US: u64 = 1_000;

/// What the cache was told, and what goes to and fro between the shards.
#[derive(Debug)]
pub(crate) struct MemoryBalance {
    /// What others take from the budget.
    pub outside_bytes: u64,
    cache_bytes: u64,
    /// What the cache can be told at most.
    cache_bytes_max: u64,
    is_shrinking: bool,
    ledger: Arc<MemoryLedger>,
    shard: ShardId,
    /// What the shard's part has lost and the ledger does not know of: the cache is leaving it.
    giving_bytes: u64,
    /// The cache cannot go on leaving it now.
    is_held_up: bool,
    /// What could be given at the last look.
    spare_bytes: u64,
    /// What a write that waits may cost the index.
    pub index_wanted: u64,
    /// Since when writes wait for memory and none has come.
    waits_since_us: Option<u64>,
}

impl ShardSettings {
    /// Bytes that the record cache may take beside an index of `index_bytes` and `outside_bytes` of others: what is left of the budget when
    /// the index has a step of room to grow, and groups that wait or are being written theirs: an eighth
    /// of the budget at most.
    pub fn cache_bytes_beside(&self, index_bytes: u64, outside_bytes: u64) -> u64 {
        let step = (self.memory_bytes / STEPS).max(1);
        let buffers = (self.write_buffer_bytes() as u64).min(self.memory_bytes / 8);
        let kept = index_bytes.saturating_add(outside_bytes).saturating_add(step).next_multiple_of(step);
        let rest = self.memory_bytes.saturating_sub(self.index_bytes_max());
        let least = rest - outside_bytes.min(rest / 2);
        let most = self.cache_bytes_max.min(RecordCacheSettings::CAPACITY_BYTES_MAX);
        self.memory_bytes.saturating_sub(kept + buffers).max(least).min(most)
    }
}

impl ShardSettings {
    /// What a shard needs with such an index and `outside_bytes` of others: so that the index has `ahead_bytes`
    /// to grow, and a cache of `cache_bytes` is left.
    fn bytes_needed(&self, index_bytes: u64, outside_bytes: u64, ahead_bytes: u64, cache_bytes: u64) -> u64 {
        let fraction = self.index_fraction.clamp(0.01, 0.99);
        let for_index = (index_bytes as f64 / fraction).ceil() as u64;
        let buffers = (self.write_buffer_bytes() as u64).min(self.memory_bytes / 8);
        let for_all = index_bytes.saturating_add(outside_bytes).saturating_add(buffers + cache_bytes);
        for_index.max(for_all).saturating_add(ahead_bytes)
    }
}

impl MemoryBalance {
    /// A cache beside an empty index, and what it was told.
    pub fn new(
        settings: &ShardSettings,
        shard: ShardId,
        ledger: Arc<MemoryLedger>,
    ) -> tierstone_base::Result<(RecordCache, MemoryBalance)> {
        let cache_bytes = settings.cache_bytes_beside(0, 0);
        let cache = RecordCache::new(RecordCacheSettings {
            capacity_bytes: cache_bytes,
            ..RecordCacheSettings::default()
        })?;
        let balance = MemoryBalance {
            outside_bytes: 0,
            cache_bytes,
            cache_bytes_max: cache_bytes,
            is_shrinking: false,
            ledger,
            shard,
            giving_bytes: 0,
            is_held_up: false,
            spare_bytes: 0,
            index_wanted: 0,
            waits_since_us: None,
        };
        Ok((cache, balance))
    }

    /// The shard's part of the budget, in bytes.
    pub fn part_bytes(&self) -> u64 {
        self.ledger.part_bytes(self.shard)
    }

    /// Makes all other shards take a step soon.
    pub fn wake_others(&self) {
        self.ledger.wake_all_but(self.shard);
    }

    /// When a step would move memory that nothing announces.
    pub fn next_step_us(&self, now_us: u64) -> Option<u64> {
        if self.giving_bytes > 0 {
            return Some(if self.is_held_up { now_us + PINNED_PAUSE_US } else { now_us });
        }
        let is_asked = self.spare_bytes > 0 && self.ledger.asked_of(self.shard) > 0;
        is_asked.then_some(now_us)
    }
}

impl LogShard {
    /// Moves memory between index and cache, and between this shard and others.
    pub(crate) fn balance_memory(&mut self) {
        if self.reads.steps.is_multiple_of(LOOK_EVERY) {
            self.share_memory();
            let index = self.keyspaces.memory_bytes() + self.touches.bytes();
            let outside = self.outside_bytes();
            let wanted = self.settings.cache_bytes_beside(index, outside).min(self.memory.cache_bytes_max);
            // Never above what it began with, so the cache does not refuse.
            if wanted != self.memory.cache_bytes && self.cache.resize(wanted).is_ok() {
                self.memory.is_shrinking = wanted < self.memory.cache_bytes;
                self.memory.cache_bytes = wanted;
            }
            self.give_memory();
        }
        if self.memory.is_shrinking {
            let before = self.cache.statistics().live_bytes;
            self.memory.is_shrinking = !self.cache.settle(SETTLED_BYTES, &mut self.keyspaces);
            let now = self.cache.statistics();
            self.memory.is_held_up =
                self.memory.is_shrinking && before == now.live_bytes && now.pinned_bytes > 0;
            self.give_memory();
        }
    }

    /// What is neither index nor cache: what others take, counts of uses, marks of dead records.
    fn outside_bytes(&self) -> u64 {
        self.memory.outside_bytes + self.evictor.uses.bytes() + self.segments.mark_bytes()
    }

    /// What the cache has left is another shard's.
    fn give_memory(&mut self) {
        if self.memory.giving_bytes > 0 && !self.memory.is_shrinking {
            let bytes = std::mem::take(&mut self.memory.giving_bytes);
            self.memory.ledger.give(self.memory.shard, bytes);
        }
    }

    /// Asks others for what the index needs, gives what others need more, and comes back to an equal part when
    /// nobody needs another.
    pub(crate) fn share_memory(&mut self) {
        if !self.memory.ledger.is_shared() {
            return;
        }
        let ledger = Arc::clone(&self.memory.ledger);
        let (shard, step, base) = (self.memory.shard, ledger.step_bytes(), ledger.base_bytes());
        let index = self.keyspaces.memory_bytes() + self.memory.index_wanted + INDEX_SLACK_BYTES;
        let (outside, ahead) = (self.outside_bytes(), STEPS_AHEAD * step);
        let needed = self.settings.bytes_needed(index, outside, ahead, base / CACHE_PARTS);
        let has = self.settings.memory_bytes;
        let mut wanted = needed.saturating_sub(has).div_ceil(step) * step;
        let spare = has.saturating_sub(needed.max(base / KEPT_PARTS)) / step * step;
        if wanted > 0 {
            // What was not given yet is kept.
            let kept = std::mem::take(&mut self.memory.giving_bytes);
            let got = kept + ledger.take(shard, wanted.saturating_sub(kept));
            self.settings.memory_bytes += got;
            wanted = wanted.saturating_sub(got);
            if got > 0 {
                self.memory.waits_since_us = None;
            }
        } else if self.memory.giving_bytes == 0 {
            let gives_back = has >= (base + step).max(needed + STEPS_BACK * step);
            if spare > 0 && (ledger.asked_of(shard) > 0 || gives_back) {
                self.settings.memory_bytes -= step;
                self.memory.giving_bytes = step;
                self.memory.is_held_up = false;
            } else if has < base && !ledger.is_wanted_by_others(shard) {
                self.settings.memory_bytes += ledger.take(shard, step.min(base - has));
            }
        }
        self.memory.spare_bytes = spare;
        ledger.declare(shard, wanted, spare);
    }

    /// Whether a write that the index has no room for may wait for another shard's memory.
    pub(crate) fn may_gain_memory(&mut self) -> bool {
        if !self.memory.ledger.is_shared() || !self.memory.ledger.could_gain(self.memory.shard) {
            return false;
        }
        let now_us = self.now.monotonic_us;
        let since_us = *self.memory.waits_since_us.get_or_insert(now_us);
        now_us.saturating_sub(since_us) < PATIENCE_US
    }

    /// The index has room for what was wanted, or nobody waits for it any more. `in_vain`: none came.
    pub(crate) fn end_memory_wait(&mut self, in_vain: bool) {
        self.memory.index_wanted = 0;
        if !in_vain {
            self.memory.waits_since_us = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_takes_what_the_index_leaves() {
        let settings = ShardSettings {
            memory_bytes: 320 << 20,
            index_fraction: 0.75,
            write_buffer_bytes_max: 0,
            ..ShardSettings::default()
        };
        assert_eq!(settings.cache_bytes_beside(0, 0), 310 << 20, "a step of room is kept");
        assert_eq!(settings.cache_bytes_beside(1, 0), 300 << 20);
        assert_eq!(settings.cache_bytes_beside(100 << 20, 0), 210 << 20);
        assert_eq!(settings.cache_bytes_beside(500 << 20, 0), 80 << 20, "its least");
        assert_eq!(settings.cache_bytes_beside(1, 20 << 20), 280 << 20, "others have their part");
        assert_eq!(settings.cache_bytes_beside(500 << 20, 30 << 20), 50 << 20, "of its least too");
        assert_eq!(settings.cache_bytes_beside(500 << 20, 300 << 20), 40 << 20, "up to half of it");
        let buffered = ShardSettings { write_buffer_bytes_max: 8 << 20, ..settings.clone() };
        assert_eq!(buffered.cache_bytes_beside(1, 0), 292 << 20, "groups have their part");
        let bounded = ShardSettings { cache_bytes_max: 1 << 20, ..settings };
        assert_eq!(bounded.cache_bytes_beside(0, 0), 1 << 20);
        let huge = ShardSettings { memory_bytes: 400 << 30, ..ShardSettings::default() };
        assert_eq!(huge.cache_bytes_beside(0, 0), 128 << 30, "a cache has no more frames");
        let tiny = ShardSettings { memory_bytes: 3, ..ShardSettings::default() };
        assert!(tiny.cache_bytes_beside(u64::MAX, 0) <= 3);
    }
}
