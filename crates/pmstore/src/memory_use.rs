//! What indexes, the table of snapshots and others take of the shard's memory: new keys are refused when it is used up.

use crate::keys::Keys;
use crate::shard::PmShard;

/// What of the memory is in use, as last counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryUse {
    pub index_bytes: u64,
    /// Of others: connections, requests that wait.
    pub outside_bytes: u64,
    /// Keys that came since.
    pub new_keys: u32,
}

/// Indexes are counted again after so many new keys.
const COUNT_MEMORY_KEYS: u32 = 256;

impl PmShard {
    /// A key came: the memory of indexes is counted again now and then.
    pub(crate) fn note_new_key(&mut self) {
        self.memory.new_keys += 1;
        if self.memory.new_keys >= COUNT_MEMORY_KEYS {
            self.count_memory();
            self.fit_uses();
        }
    }

    /// Bytes that indexes, counters of uses, the counts of old records and the tables of overflow blocks take. The last two are not
    /// held against new keys, or deletes would make no room: the space bounds them, and cleaning makes them fewer.
    pub(crate) fn index_and_grave_bytes(&self) -> u64 {
        self.keyspaces.values().map(Keys::bytes).sum::<u64>()
            + self.evictor.uses.bytes()
            + self.graves.bytes()
            + self.overflow.memory_bytes()
    }

    /// Counts what indexes take.
    pub(crate) fn count_memory(&mut self) {
        self.memory.new_keys = 0;
        let swept = self.sweeping.iter().map(|(_, keys, _)| keys);
        let retained = self.retained.iter().map(|retained| &retained.keys);
        self.memory.index_bytes = self.keyspaces.values().chain(swept).chain(retained).map(Keys::bytes).sum();
    }

    /// Bytes that indexes may still take, as last counted. Half of the memory is theirs whatever others take, whom their own
    /// bounds keep from more: else who waits for keys to be evicted would have all of them evicted for what he has sent.
    pub(crate) fn memory_room(&self) -> u64 {
        let MemoryUse { index_bytes, outside_bytes, .. } = self.memory;
        let own = index_bytes.saturating_add(self.evictor.uses.bytes());
        let others = outside_bytes.saturating_add(self.snapshots.table_bytes() + self.backups.bytes());
        let left = self.settings.memory_bytes.saturating_sub(others);
        left.max(self.settings.memory_bytes / 2).saturating_sub(own)
    }

    /// Whether new keys find memory.
    pub(crate) fn is_memory_full(&mut self) -> bool {
        if self.memory_room() > 0 {
            return false;
        }
        // Keys may have gone since.
        self.count_memory();
        self.memory_room() == 0
    }
}
