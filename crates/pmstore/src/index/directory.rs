//! From a position to its region: a radix trie, six bits a node.
//!
//! A slot names a node, or a region. A region whose prefix ends inside a node fills as many slots as share it
//! (extendible hashing, Fagin et al. 1979, cut into small tables: no doubling copies much, and a crowded slot,
//! as keys of one hash tag make it, deepens its own branch only).
//!
//! Invariants:
//! 1. Every position has exactly one region.
//! 2. A node at depth `d` tells regions apart by the bits `6 d` to `6 d + 5`; at least two regions are below it.

use super::slab::Slab;
use tierstone_base::Position;

const NODE_BITS: u32 = 6;
const NODE_SLOTS: usize = 1 << NODE_BITS;
const IS_NODE: u32 = 1 << 31;

struct Node([u32; NODE_SLOTS]);

impl Default for Node {
    fn default() -> Self {
        Node([0; NODE_SLOTS])
    }
}

/// The trie.
pub struct Directory {
    root: u32,
    nodes: Slab<Node, 16>,
}

/// The slot of `position` in a node whose bits begin at `base`.
#[inline]
fn slot_of(position: Position, base: u32) -> usize {
    ((position.0 << base) >> (64 - NODE_BITS)) as usize
}

impl Directory {
    /// A directory in which every position belongs to `region`.
    pub fn new(region: u32) -> Self {
        Directory { root: region, nodes: Slab::new() }
    }

    pub fn bytes(&self) -> u64 {
        self.nodes.bytes()
    }

    /// Nodes in use.
    #[cfg(test)]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The region of `position`. Cost: a load for each six bits of its prefix, three for a hundred million keys.
    #[inline]
    pub fn find(&self, position: Position) -> u32 {
        let (mut slot, mut rest) = (self.root, position);
        while slot & IS_NODE != 0 {
            slot = self.nodes.get(slot & !IS_NODE).0[slot_of(rest, 0)];
            rest.0 <<= NODE_BITS;
        }
        slot
    }

    /// The node of `position` whose bits begin at `base`, a multiple of six.
    fn node_at(&self, position: Position, base: u32) -> u32 {
        let mut slot = self.root;
        for base in (0..base).step_by(NODE_BITS as usize) {
            slot = self.nodes.get(slot & !IS_NODE).0[slot_of(position, base)];
        }
        slot & !IS_NODE
    }

    /// Lets the slot that names what holds `position` behind `base` bits say `slot`.
    fn set_slot(&mut self, position: Position, base: u32, slot: u32) {
        let Some(above) = base.checked_sub(NODE_BITS) else {
            self.root = slot;
            return;
        };
        let node = self.node_at(position, above);
        self.nodes.get_mut(node).0[slot_of(position, above)] = slot;
    }

    /// The slots of the region of `position` with `prefix_bits`, of the node whose bits begin at `base`.
    fn run(position: Position, prefix_bits: u32, base: u32) -> std::ops::Range<usize> {
        let length = 1 << (base + NODE_BITS - prefix_bits);
        let first = slot_of(position, base) / length * length;
        first..first + length
    }

    /// Divides the region of `position`, which has `prefix_bits`, into `lower` and `upper`.
    pub fn split(&mut self, position: Position, prefix_bits: u32, lower: u32, upper: u32) {
        let base = prefix_bits / NODE_BITS * NODE_BITS;
        if prefix_bits == base {
            let node = self.nodes.add(Node::default());
            self.set_slot(position, base, node | IS_NODE);
        }
        let node = self.node_at(position, base);
        let run = Self::run(position, prefix_bits, base);
        let middle = run.start + run.len() / 2;
        let slots = &mut self.nodes.get_mut(node).0;
        slots[run.start..middle].fill(lower);
        slots[middle..run.end].fill(upper);
    }

    /// Joins the two regions with `prefix_bits`, at least one, on both sides of the last of these bits.
    pub fn merge(&mut self, position: Position, prefix_bits: u32, merged: u32) {
        let prefix_bits = prefix_bits - 1;
        let base = prefix_bits / NODE_BITS * NODE_BITS;
        let node = self.node_at(position, base);
        if prefix_bits == base {
            self.nodes.take(node);
            self.set_slot(position, base, merged);
            return;
        }
        let run = Self::run(position, prefix_bits, base);
        self.nodes.get_mut(node).0[run].fill(merged);
    }
}
