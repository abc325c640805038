//! What somebody wants to be told about keys that go by themselves: those that expire and those that are
//! evicted.
//!
//! The engine drops expired records without reading them, so it cannot name them. While somebody wants to
//! know, the keys of numbered databases that are written or read with an expiry are kept here until then.
//!
//! Invariants:
//! 1. A key is kept with the expiry that its newest record has; one that is deleted, or loses its expiry, is not.
//! 2. A key is told once an expiry, when the shard's time has reached it.
//! 3. What is kept takes at most the bytes that were allowed; keys beyond that are counted, and not told.
//! 4. Off, it costs a write and a lookup one comparison each.
//!
//! Nothing of it outlives the process: after a restart a key is kept from its next read or write on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierstone_base::KeyspaceId;

/// Bytes that a key takes beside its own: two places in trees, and the counters of its allocation.
const KEY_OVERHEAD_BYTES: usize = 128;

/// What is wanted and kept.
#[derive(Debug, Default)]
pub struct KeyEvents {
    expiring: Option<Expiring>,
    evicted: Option<Vec<(KeyspaceId, Vec<u8>)>>,
}

/// Keys that will expire.
#[derive(Debug, Default)]
pub(crate) struct Expiring {
    by_key: BTreeMap<KeyspaceId, BTreeMap<Arc<[u8]>, u64>>,
    by_time: BTreeSet<(u64, KeyspaceId, Arc<[u8]>)>,
    bytes: usize,
    bytes_max: usize,
    left_out: u64,
    /// Keys that were left out since they were taken last.
    late: Vec<Vec<u8>>,
}

impl Expiring {
    /// The newest record of `key` expires then; 0: it does not, or there is none.
    pub fn note(&mut self, keyspace: KeyspaceId, key: &[u8], expiry_ms: u64) {
        let keys = self.by_key.entry(keyspace).or_default();
        match keys.get(key) {
            None if expiry_ms == 0 => return,
            Some(kept) if *kept == expiry_ms => return,
            _ => {}
        }
        if let Some((shared, old_ms)) = keys.remove_entry(key) {
            self.bytes -= size_of_key(&shared);
            self.by_time.remove(&(old_ms, keyspace, shared));
        }
        if expiry_ms == 0 {
            return;
        }
        let shared: Arc<[u8]> = key.into();
        if self.bytes + size_of_key(&shared) > self.bytes_max {
            self.left_out += 1;
            self.late.push(key.to_vec());
            return;
        }
        self.bytes += size_of_key(&shared);
        keys.insert(Arc::clone(&shared), expiry_ms);
        self.by_time.insert((expiry_ms, keyspace, shared));
    }
}

fn size_of_key(key: &[u8]) -> usize {
    key.len() + KEY_OVERHEAD_BYTES
}

impl KeyEvents {
    /// Begins or ends to keep keys that will expire, in at most so many bytes.
    pub fn want_expired(&mut self, is_wanted: bool, bytes_max: usize) {
        match (&mut self.expiring, is_wanted) {
            (Some(expiring), true) => expiring.bytes_max = bytes_max,
            (none, true) => *none = Some(Expiring { bytes_max, ..Expiring::default() }),
            (some, false) => *some = None,
        }
    }

    /// Begins or ends to keep the keys that are evicted, until they are taken.
    pub fn want_evicted(&mut self, is_wanted: bool) {
        match (&mut self.evicted, is_wanted) {
            (Some(_), true) => {}
            (evicted, true) => *evicted = Some(Vec::new()),
            (evicted, false) => *evicted = None,
        }
    }

    pub(crate) fn expiring_mut(&mut self) -> Option<&mut Expiring> {
        self.expiring.as_mut()
    }

    /// Whether anything is wanted.
    pub(crate) fn wants_any(&self) -> bool {
        self.expiring.is_some() || self.evicted.is_some()
    }

    /// A key was evicted.
    pub(crate) fn note_evicted(&mut self, keyspace: KeyspaceId, key: Vec<u8>) {
        if let Some(expiring) = &mut self.expiring {
            expiring.note(keyspace, &key, 0);
        }
        if let Some(evicted) = &mut self.evicted {
            evicted.push((keyspace, key));
        }
    }

    /// The next key that has expired at `wall_ms`, with its expiry.
    pub fn take_expired(&mut self, wall_ms: u64) -> Option<(KeyspaceId, Arc<[u8]>, u64)> {
        let expiring = self.expiring.as_mut()?;
        let (expiry_ms, keyspace, key) = expiring.by_time.first().filter(|first| first.0 <= wall_ms)?.clone();
        expiring.note(keyspace, &key, 0);
        Some((keyspace, key, expiry_ms))
    }

    /// The keys that were evicted since they were taken last.
    pub fn take_evicted(&mut self) -> Vec<(KeyspaceId, Vec<u8>)> {
        self.evicted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// When the next key expires, in milliseconds since 1970.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.expiring.as_ref()?.by_time.first().map(|first| first.0)
    }

    /// The keys that were not kept for want of room since they were taken last.
    pub fn take_left_out(&mut self) -> Vec<Vec<u8>> {
        self.expiring.as_mut().map(|expiring| std::mem::take(&mut expiring.late)).unwrap_or_default()
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.expiring.as_ref().map_or(0, |expiring| expiring.bytes as u64)
    }

    /// Keys that were not kept for want of room, and will not be told.
    pub fn left_out(&self) -> u64 {
        self.expiring.as_ref().map_or(0, |expiring| expiring.left_out)
    }

    /// The keys of a keyspace are gone.
    pub(crate) fn drop_keyspace(&mut self, keyspace: KeyspaceId) {
        let Some(expiring) = &mut self.expiring else { return };
        for (key, expiry_ms) in expiring.by_key.remove(&keyspace).unwrap_or_default() {
            expiring.bytes -= size_of_key(&key);
            expiring.by_time.remove(&(expiry_ms, keyspace, key));
        }
    }
}

#[cfg(test)]
#[path = "key_events_test.rs"]
mod key_events_test;
