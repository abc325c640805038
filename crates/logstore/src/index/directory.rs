//! From a position to its region: a radix trie whose nodes are tables.
//!
//! A node at depth `base` has a table of 2^`bits` slots; a slot names a region or a deeper node. A
//! region with a shorter prefix than `base + bits` fills an aligned run of slots (extendible
//! hashing, Fagin et al. 1979, cut into small tables so that no doubling takes long and a crowded
//! slot deepens only its own branch).
//!
//! Invariants:
//! 1. Every position has exactly one region.
//! 2. A slot that names a node lies at the full depth of its table.
//! 3. A table doubles only while it names no node.

use tierstone_base::Position;

const IS_NODE: u32 = 1 << 31;
/// Tables grow to this many bits whatever their contents.
const NODE_BITS: u32 = 8;
/// The root goes on growing while half of its slots are in use: 64 KiB at most, which copies in a
/// few microseconds.
const ROOT_BITS: u32 = 14;

struct Node {
    base: u8,
    bits: u8,
    /// Slots that name a node.
    node_count: u32,
    /// Slots at full depth: those of regions with a prefix of `base + bits` bits, and of nodes.
    deepest_count: u32,
    table: Vec<u32>,
}

impl Node {
    fn depth(&self) -> u32 {
        u32::from(self.base) + u32::from(self.bits)
    }

    #[inline]
    fn slot(&self, position: Position) -> usize {
        ((position.0 << self.base) >> (64 - u32::from(self.bits))) as usize
    }

    /// The run of slots of the region that shares `prefix_bits` bits with `position`.
    fn run(&self, position: Position, prefix_bits: u32) -> std::ops::Range<usize> {
        let length = 1usize << (self.depth() - prefix_bits);
        let first = self.slot(position) & !(length - 1);
        first..first + length
    }

    fn may_double(&self) -> bool {
        let bits = u32::from(self.bits);
        let dense = self.deepest_count as usize * 2 >= self.table.len();
        self.node_count == 0 && (bits < NODE_BITS || (self.base == 0 && bits < ROOT_BITS && dense))
    }

    fn double(&mut self) {
        let mut table = Vec::with_capacity(self.table.len() * 2);
        for &slot in &self.table {
            table.extend([slot, slot]);
        }
        self.table = table;
        self.bits += 1;
        self.deepest_count = 0;
    }

    fn halve(&mut self) {
        self.table = self.table.iter().step_by(2).copied().collect();
        self.bits -= 1;
        let (pairs, _) = self.table.as_chunks::<2>();
        self.deepest_count = 2 * pairs.iter().filter(|pair| pair[0] != pair[1]).count() as u32;
    }
}

/// The trie.
pub struct Directory {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    table_bytes: u64,
}

impl Directory {
    /// A directory in which every position belongs to `region`.
    pub fn new(region: u32) -> Self {
        let root = Node { base: 0, bits: 1, node_count: 0, deepest_count: 0, table: vec![region; 2] };
        Directory { nodes: vec![root], vacant: Vec::new(), table_bytes: 8 }
    }

    pub fn bytes(&self) -> u64 {
        self.table_bytes + (self.nodes.capacity() * size_of::<Node>() + self.vacant.capacity() * 4) as u64
    }

    /// The most bytes that one split may add.
    pub fn split_bytes_max(&self) -> u64 {
        let root = self.nodes[0].table.len() as u64 * 4;
        let nodes = if self.nodes.len() == self.nodes.capacity() { self.nodes.len() as u64 } else { 0 };
        root + (4 << NODE_BITS) + (nodes + 4) * size_of::<Node>() as u64
    }

    /// The region of `position`. Cost: two loads for uniform positions up to some ten million
    /// keys, at most six.
    #[inline]
    pub fn find(&self, position: Position) -> u32 {
        let mut node = &self.nodes[0];
        loop {
            let slot = node.table[node.slot(position)];
            if slot & IS_NODE == 0 {
                return slot;
            }
            node = &self.nodes[(slot & !IS_NODE) as usize];
        }
    }

    /// The node that names the region of `position`, and the node above it.
    fn find_node(&self, position: Position) -> (usize, usize) {
        let (mut above, mut index) = (0, 0);
        loop {
            let node = &self.nodes[index];
            let slot = node.table[node.slot(position)];
            if slot & IS_NODE == 0 {
                return (above, index);
            }
            (above, index) = (index, (slot & !IS_NODE) as usize);
        }
    }

    /// Divides the region of `position`, which has `prefix_bits`, into `lower` and `upper`.
    pub fn split(&mut self, position: Position, prefix_bits: u32, lower: u32, upper: u32) {
        let (_, index) = self.find_node(position);
        let node = &mut self.nodes[index];
        if node.depth() == prefix_bits {
            if !node.may_double() {
                let slot = node.slot(position);
                node.node_count += 1;
                let child = self.add_node(prefix_bits as u8, lower, upper);
                self.nodes[index].table[slot] = child | IS_NODE;
                return;
            }
            node.double();
            self.table_bytes += node.table.len() as u64 * 2;
        }
        let run = node.run(position, prefix_bits);
        let middle = run.start + run.len() / 2;
        node.table[run.start..middle].fill(lower);
        node.table[middle..run.end].fill(upper);
        if prefix_bits + 1 == node.depth() {
            node.deepest_count += 2;
        }
    }

    fn add_node(&mut self, base: u8, lower: u32, upper: u32) -> u32 {
        let node = Node { base, bits: 1, node_count: 0, deepest_count: 2, table: vec![lower, upper] };
        self.table_bytes += 8;
        if let Some(vacant) = self.vacant.pop() {
            self.nodes[vacant as usize] = node;
            return vacant;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// Makes one region `merged` of the region of `position`, which has `prefix_bits` (at least
    /// one), and its sibling, a region with as many.
    pub fn merge(&mut self, position: Position, prefix_bits: u32, merged: u32) {
        let (above, index) = self.find_node(position);
        let node = &mut self.nodes[index];
        let run = node.run(position, prefix_bits - 1);
        node.table[run].fill(merged);
        if prefix_bits == node.depth() {
            node.deepest_count -= 2;
        }
        if index != 0 && prefix_bits - 1 == u32::from(node.base) {
            self.table_bytes -= node.table.len() as u64 * 4;
            node.table = Vec::new();
            self.vacant.push(index as u32);
            let above = &mut self.nodes[above];
            let slot = above.slot(position);
            above.table[slot] = merged;
            above.node_count -= 1;
            return;
        }
        while node.deepest_count == 0 && node.bits > 1 {
            node.halve();
            self.table_bytes -= node.table.len() as u64 * 4;
        }
    }
}
