//! Queues of entries that share one slab, so that an entry changes queues without an allocation.
//!
//! Invariants:
//! 1. A node is in exactly one queue, or on the free list.
//! 2. A queue's `bytes` and `len` are sums over its nodes.

/// The index of a node in its slab.
pub(super) type NodeId = u32;

const NONE: NodeId = NodeId::MAX;

/// An entry of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub key: u64,
    pub bytes: u64,
    pub frequency: u8,
    pub in_main: bool,
    newer: NodeId,
    older: NodeId,
}

/// The nodes of all queues of one policy.
#[derive(Clone, Debug, Default)]
pub(super) struct Slab {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
}

/// Nodes in the order in which they were pushed.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    newest: NodeId,
    oldest: NodeId,
    pub bytes: u64,
    pub len: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Queue { newest: NONE, oldest: NONE, bytes: 0, len: 0 }
    }
}

impl Slab {
    /// A node in no queue yet.
    pub(super) fn add(&mut self, key: u64, bytes: u64) -> NodeId {
        let node = Node { key, bytes, frequency: 0, in_main: false, newer: NONE, older: NONE };
        if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        let id = self.nodes.len() as NodeId;
        assert!(id < NONE, "a policy holds fewer than 2^32 entries");
        self.nodes.push(node);
        id
    }

    /// Gives back a node that is in no queue.
    pub(super) fn discard(&mut self, id: NodeId) {
        self.free.push(id);
    }

    pub(super) fn node(&self, id: NodeId) -> Node {
        self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }
}

impl Queue {
    pub(super) fn oldest(&self) -> Option<NodeId> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn push(&mut self, slab: &mut Slab, id: NodeId) {
        let newest = self.newest;
        let node = slab.node_mut(id);
        node.newer = NONE;
        node.older = newest;
        self.bytes += node.bytes;
        self.len += 1;
        if newest == NONE {
            self.oldest = id;
        } else {
            slab.node_mut(newest).newer = id;
        }
        self.newest = id;
    }

    pub(super) fn unlink(&mut self, slab: &mut Slab, id: NodeId) {
        let Node { newer, older, bytes, .. } = slab.node(id);
        if newer == NONE {
            self.newest = older;
        } else {
            slab.node_mut(newer).older = older;
        }
        if older == NONE {
            self.oldest = newer;
        } else {
            slab.node_mut(older).newer = newer;
        }
        self.bytes -= bytes;
        self.len -= 1;
    }

    /// Changes the size of a node of this queue.
    pub(super) fn set_bytes(&mut self, slab: &mut Slab, id: NodeId, bytes: u64) {
        let node = slab.node_mut(id);
        self.bytes = self.bytes - node.bytes + bytes;
        node.bytes = bytes;
    }
}
