//! The record cache seen as a policy, with an index of its own, so that traces can compare it.
//!
//! Invariant: `frames` holds exactly the keys whose frames are live.

use super::Policy;
use crate::{FrameId, FrameOwner, NewFrame, RecordCache};
use tierstone_base::collections::Map;
use tierstone_base::{KeyspaceId, Position};

const FRAME_HEADER_BYTES: u64 = RecordCache::FRAME_HEADER_BYTES as u64;

/// A record cache and the index that owns its frames. An entry of `bytes` bytes is a record that
/// fills a frame of that size, header included; so its capacity is comparable with other policies'.
#[derive(Debug)]
pub struct RecordCachePolicy {
    cache: RecordCache,
    index: Index,
    zeros: Vec<u8>,
}

#[derive(Debug, Default)]
struct Index {
    frames: Map<u64, FrameId>,
    evicted: Vec<u64>,
}

impl FrameOwner for Index {
    fn evicted(&mut self, _: KeyspaceId, position: Position, _: FrameId, _: u64) {
        self.frames.remove(&position.0);
        self.evicted.push(position.0);
    }

    fn moved(&mut self, _: KeyspaceId, position: Position, _: FrameId, to: FrameId) {
        self.frames.insert(position.0, to);
    }
}

impl RecordCachePolicy {
    /// A policy over `cache`, which must be empty.
    pub fn new(cache: RecordCache) -> RecordCachePolicy {
        RecordCachePolicy { cache, index: Index::default(), zeros: Vec::new() }
    }

    /// The cache.
    pub fn cache(&self) -> &RecordCache {
        &self.cache
    }

    fn insert(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) {
        let length = bytes.saturating_sub(FRAME_HEADER_BYTES) as usize;
        if self.zeros.len() < length {
            self.zeros.resize(length, 0);
        }
        let entry = NewFrame {
            position: Position(key),
            keyspace: KeyspaceId(0),
            location: key,
            parts: &[&self.zeros[..length]],
        };
        if let Some(frame) = self.cache.insert(entry, &mut self.index) {
            self.index.frames.insert(key, frame);
        }
        evicted.append(&mut self.index.evicted);
    }
}

impl Policy for RecordCachePolicy {
    fn access(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) -> bool {
        let Some(&frame) = self.index.frames.get(&key) else {
            self.insert(key, bytes, evicted);
            return false;
        };
        let held = self.cache.get(frame).bytes.len() as u64 + FRAME_HEADER_BYTES;
        if held != bytes.max(FRAME_HEADER_BYTES) {
            self.remove(key);
            self.insert(key, bytes, evicted);
            if !self.contains(key) {
                evicted.push(key);
            }
        }
        true
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some(frame) = self.index.frames.remove(&key) else { return false };
        self.cache.remove(frame);
        true
    }

    fn contains(&self, key: u64) -> bool {
        self.index.frames.contains_key(&key)
    }

    fn used_bytes(&self) -> u64 {
        self.cache.statistics().live_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.cache.statistics().capacity_bytes
    }
}
