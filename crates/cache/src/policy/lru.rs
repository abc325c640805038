//! Least recently used: the baseline that every other policy is held against.
//!
//! Invariant: the queue holds the entries in order of their last use.

use super::Policy;
use super::queue::{NodeId, Queue, Slab};
use tierstone_base::collections::Map;

/// Evicts what was not used for longest.
#[derive(Clone, Debug)]
pub struct Lru {
    capacity_bytes: u64,
    nodes: Map<u64, NodeId>,
    slab: Slab,
    queue: Queue,
}

impl Lru {
    /// An empty cache of `capacity_bytes` bytes.
    pub fn new(capacity_bytes: u64) -> Lru {
        Lru { capacity_bytes, nodes: Map::default(), slab: Slab::default(), queue: Queue::default() }
    }

    fn make_room(&mut self, bytes: u64, evicted: &mut Vec<u64>) {
        while self.queue.bytes + bytes > self.capacity_bytes
            && let Some(oldest) = self.queue.oldest()
        {
            let key = self.slab.node(oldest).key;
            self.remove(key);
            evicted.push(key);
        }
    }
}

impl Policy for Lru {
    fn access(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) -> bool {
        let found = self.nodes.get(&key).copied();
        if let Some(id) = found {
            self.queue.unlink(&mut self.slab, id);
            self.slab.node_mut(id).bytes = bytes;
            self.queue.push(&mut self.slab, id);
            self.make_room(0, evicted);
        } else if bytes <= self.capacity_bytes {
            self.make_room(bytes, evicted);
            let id = self.slab.add(key, bytes);
            self.queue.push(&mut self.slab, id);
            self.nodes.insert(key, id);
        }
        found.is_some()
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some(id) = self.nodes.remove(&key) else { return false };
        self.queue.unlink(&mut self.slab, id);
        self.slab.discard(id);
        true
    }

    fn contains(&self, key: u64) -> bool {
        self.nodes.contains_key(&key)
    }

    fn used_bytes(&self) -> u64 {
        self.queue.bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}
