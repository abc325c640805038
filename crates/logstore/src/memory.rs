//! Memory of a shard: what its index does not take is its record cache's.
//!
//! Invariants:
//! 1. Index and cache together stay within the budget, but for what the index may grow between two looks
//!    (there is always a step of room) and for frames that are pinned.
//! 2. The index never takes more than its fraction; the cache never has less than half of the rest.
//! 3. What others take (buffers of connections, requests that wait) the cache gives up, as far as 2 allows.

use crate::settings::ShardSettings;
use crate::shard::LogShard;
use tierstone_cache::{RecordCache, RecordCacheSettings};

/// The budget moves in steps of one part in so many.
const STEPS: u64 = 32;
/// Shard steps from one look at the index to the next: the sum goes over all keyspaces.
const LOOK_EVERY: u64 = 8;
/// Bytes of frames that one shard step evicts or moves when the cache gives memory back.
const SETTLED_BYTES: usize = 16 << 10;

/// What the cache was told.
#[derive(Debug)]
pub(crate) struct MemoryBalance {
    /// What others take from the budget.
    pub outside_bytes: u64,
    cache_bytes: u64,
    is_shrinking: bool,
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
        self.memory_bytes.saturating_sub(kept + buffers).max(least).min(self.cache_bytes_max)
    }
}

impl MemoryBalance {
    /// A cache beside an empty index, and what it was told.
    pub fn new(settings: &ShardSettings) -> tierstone_base::Result<(RecordCache, MemoryBalance)> {
        let cache_bytes = settings.cache_bytes_beside(0, 0);
        let cache = RecordCache::new(RecordCacheSettings {
            capacity_bytes: cache_bytes,
            ..RecordCacheSettings::default()
        })?;
        Ok((cache, MemoryBalance { outside_bytes: 0, cache_bytes, is_shrinking: false }))
    }
}

impl LogShard {
    /// Moves memory between index and cache.
    pub(crate) fn balance_memory(&mut self) {
        if self.reads.steps.is_multiple_of(LOOK_EVERY) {
            let index = self.keyspaces.memory_bytes() + self.touches.bytes();
            let outside = self.memory.outside_bytes;
            let wanted = self.settings.cache_bytes_beside(index, outside);
            // Never above what it began with, so the cache does not refuse.
            if wanted != self.memory.cache_bytes && self.cache.resize(wanted).is_ok() {
                self.memory.is_shrinking = wanted < self.memory.cache_bytes;
                self.memory.cache_bytes = wanted;
            }
        }
        if self.memory.is_shrinking {
            self.memory.is_shrinking = !self.cache.settle(SETTLED_BYTES, &mut self.keyspaces);
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
        let tiny = ShardSettings { memory_bytes: 3, ..ShardSettings::default() };
        assert!(tiny.cache_bytes_beside(u64::MAX, 0) <= 3);
    }
}
