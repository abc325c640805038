//! Eviction: the engine names keys, and the shard deletes them as a user would.
//!
//! Invariants:
//! 1. Watchers of an evicted key are marked, and a large value that loses its name is reclaimed.
//! 2. A key that a command under way has locked stays.
//! 3. The next large value goes when the chunks of the last one are deleted: space that is coming back is waited
//!    for.
//! 4. A step deletes at most [`KEYS_A_STEP`] keys, and two for each write since the last step: so deletions keep up with
//!    what makes them necessary, however much a turn writes.

use crate::shard::Shard;
use tierstone_base::{ErrorKind, Now};
use tierstone_engine::{Engine, Key, ValueKind, Write, WriteKind};

/// Keys that one step deletes, whatever was written: about 100 µs.
const KEYS_A_STEP: u64 = 64;
/// ... and at most: about two milliseconds.
const KEYS_A_STEP_MAX: u64 = 1_024;

impl<E: Engine> Shard<E> {
    /// Deletes some of the keys that the engine wants to be evicted.
    pub(crate) fn evict(&mut self, now: Now) {
        let written = self.engine.applied_seq().saturating_sub(self.evicted_at);
        let quota = written.saturating_mul(2).saturating_add(KEYS_A_STEP).min(KEYS_A_STEP_MAX);
        for _ in 0..quota {
            if !self.evict_one(now) {
                break;
            }
        }
        self.evicted_at = self.engine.applied_seq();
    }

    /// Deletes a key that the engine wants to be evicted; whether there may be more.
    fn evict_one(&mut self, now: Now) -> bool {
        let Some((key, kind)) = self.engine.evictable() else { return false };
        let (keyspace, position) = (key.keyspace, key.position);
        if kind == ValueKind::CHUNKED {
            // Its space comes back chunk by chunk: more would go before that is seen.
            if self.ledger.has_dead_to_free() {
                return false;
            }
            let bytes = key.bytes.to_vec();
            let key = Key { keyspace, position, bytes: &bytes };
            if self.locks.blocks_writer(position) {
                self.engine.pass_evictable(None);
            } else {
                let mark = self.ledger.dead.mark();
                match self.write(now, &[Write { key, kind: WriteKind::Delete }]) {
                    Ok(_) => {
                        let freed: u64 =
                            self.ledger.dead.since(mark).map(|dead| dead.map.stored_bytes()).sum();
                        self.engine.pass_evictable(Some(freed));
                        self.key_events.note_evicted(keyspace, bytes);
                    }
                    // Its record is being read, or the log has enough to write.
                    Err(error) if error.kind() == ErrorKind::Retry => return false,
                    Err(_) => self.engine.pass_evictable(None),
                }
            }
            return true;
        }
        if kind == ValueKind::INTERNAL || self.locks.blocks_writer(position) {
            self.engine.pass_evictable(None);
            return true;
        }
        let is_told = self.key_events.wants_any() || self.tracking.is_on();
        let bytes = is_told.then(|| key.bytes.to_vec());
        match self.engine.evict(now) {
            Ok(true) => {
                self.watches.touch(keyspace, position);
                if let Some(bytes) = bytes {
                    self.tracking.touch(position, &bytes);
                    self.key_events.note_evicted(keyspace, bytes);
                }
            }
            Ok(false) => {}
            Err(_) => return false,
        }
        true
    }
}
