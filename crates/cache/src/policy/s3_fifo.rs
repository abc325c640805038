//! S3-FIFO: a small queue on trial, a main queue with second chances, a ghost that remembers.
//!
//! Yang, Zhang, Qiu, Yue, Vinayak: "FIFO queues are all you need for cache eviction", SOSP 2023.
//! Departure: queues are counted in bytes, as in [`crate::RecordCache`], of which this is the model
//! without memory, so that the cost of rings (fixed parts, gaps, a hashed ghost) can be measured.
//!
//! Invariants:
//! 1. Evictions start only when the cache is full; then the small queue gives while it is above its
//!    part, else the main queue.
//! 2. The ghost remembers at most as many keys as the main queue holds (one at least), the oldest
//!    forgotten first.

use super::Policy;
use super::queue::{NodeId, Queue, Slab};
use std::collections::VecDeque;
use tierstone_base::collections::Map;

const FREQUENCY_MAX: u8 = 3;

/// Whom S3-FIFO admits to its main queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct S3FifoSettings {
    /// The small queue's part of the capacity in percent, 0 to 100. Default 10.
    pub small_percent: u8,
    /// Hits in the small queue that move an entry to the main queue. Default 1.
    pub promotion_hits: u8,
}

impl Default for S3FifoSettings {
    fn default() -> Self {
        S3FifoSettings { small_percent: 10, promotion_hits: 1 }
    }
}

/// See the module's words.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    capacity_bytes: u64,
    small_bytes: u64,
    promotion_hits: u8,
    nodes: Map<u64, NodeId>,
    slab: Slab,
    small: Queue,
    main: Queue,
    ghost: Ghost,
}

/// Keys in order of their eviction.
#[derive(Clone, Debug, Default)]
struct Ghost {
    /// The turn at which a key was remembered last.
    turns: Map<u64, u64>,
    /// May hold entries that `turns` no longer confirms.
    order: VecDeque<(u64, u64)>,
    turn: u64,
}

impl Ghost {
    fn remember(&mut self, key: u64, len_max: usize) {
        self.turn += 1;
        self.turns.insert(key, self.turn);
        self.order.push_back((key, self.turn));
        while self.turns.len() > len_max || self.order.len() > 2 * len_max + 2 {
            let Some((oldest, turn)) = self.order.pop_front() else { break };
            if self.turns.get(&oldest) == Some(&turn) {
                self.turns.remove(&oldest);
            }
        }
    }

    fn recall(&mut self, key: u64) -> bool {
        self.turns.remove(&key).is_some()
    }
}

impl S3Fifo {
    /// An empty cache of `capacity_bytes` bytes.
    pub fn new(capacity_bytes: u64, settings: S3FifoSettings) -> S3Fifo {
        S3Fifo {
            capacity_bytes,
            small_bytes: (u128::from(capacity_bytes) * u128::from(settings.small_percent) / 100) as u64,
            promotion_hits: settings.promotion_hits,
            nodes: Map::default(),
            slab: Slab::default(),
            small: Queue::default(),
            main: Queue::default(),
            ghost: Ghost::default(),
        }
    }

    fn make_room(&mut self, bytes: u64, evicted: &mut Vec<u64>) {
        while self.used_bytes() + bytes > self.capacity_bytes && !self.nodes.is_empty() {
            if self.main.len == 0 || (self.small.len > 0 && self.small.bytes >= self.small_bytes) {
                self.evict_from_small(evicted);
            } else {
                self.evict_from_main(evicted);
            }
        }
    }

    fn evict_from_small(&mut self, evicted: &mut Vec<u64>) {
        let Some(id) = self.small.oldest() else { return };
        self.small.unlink(&mut self.slab, id);
        let node = self.slab.node_mut(id);
        if node.frequency >= self.promotion_hits {
            node.frequency = 0;
            node.in_main = true;
            self.main.push(&mut self.slab, id);
        } else {
            let key = node.key;
            self.drop_unlinked(id, evicted);
            self.ghost.remember(key, self.main.len.max(1));
        }
    }

    fn evict_from_main(&mut self, evicted: &mut Vec<u64>) {
        let Some(id) = self.main.oldest() else { return };
        self.main.unlink(&mut self.slab, id);
        let node = self.slab.node_mut(id);
        if node.frequency > 0 {
            node.frequency -= 1;
            self.main.push(&mut self.slab, id);
        } else {
            self.drop_unlinked(id, evicted);
        }
    }

    fn drop_unlinked(&mut self, id: NodeId, evicted: &mut Vec<u64>) {
        let key = self.slab.node(id).key;
        self.nodes.remove(&key);
        self.slab.discard(id);
        evicted.push(key);
    }

    fn queue_of(&mut self, id: NodeId) -> (&mut Queue, &mut Slab) {
        let queue = if self.slab.node(id).in_main { &mut self.main } else { &mut self.small };
        (queue, &mut self.slab)
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) -> bool {
        if let Some(&id) = self.nodes.get(&key) {
            let node = self.slab.node_mut(id);
            node.frequency = (node.frequency + 1).min(FREQUENCY_MAX);
            let (queue, slab) = self.queue_of(id);
            queue.set_bytes(slab, id, bytes);
            self.make_room(0, evicted);
            return true;
        }
        if bytes > self.capacity_bytes {
            return false;
        }
        let remembered = self.ghost.recall(key);
        self.make_room(bytes, evicted);
        let id = self.slab.add(key, bytes);
        self.slab.node_mut(id).in_main = remembered;
        let (queue, slab) = self.queue_of(id);
        queue.push(slab, id);
        self.nodes.insert(key, id);
        false
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some(id) = self.nodes.remove(&key) else { return false };
        let (queue, slab) = self.queue_of(id);
        queue.unlink(slab, id);
        slab.discard(id);
        true
    }

    fn contains(&self, key: u64) -> bool {
        self.nodes.contains_key(&key)
    }

    fn used_bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}
