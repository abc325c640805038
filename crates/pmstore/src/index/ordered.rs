//! The ordered index: a B+tree in DRAM from keys to locations.
//!
//! Leaves hold whole keys ([`KeyMode::Whole`]) or eight bytes of each ([`KeyMode::Partial`]); inner nodes hold
//! whole separators, as short as they can be. Prefixes that a node's keys share are held once.
//!
//! Invariants:
//! 1. Keys are strings of bytes, in their order; one location a key.
//! 2. A leaf is empty only when the tree is: one whose last key goes, goes. Leaves that still hold something are
//!    not joined with others; their memory follows what they hold.
//! 3. Leaves are linked both ways in the order of their keys.
//!
//! What a [`KeySource`] answers must be the keys that were inserted. One that answers others makes lookups wrong;
//! nothing panics by it.

use super::inner::Inner;
use super::leaf::Leaf;
use super::slab::Slab;
use super::{KeySource, Location};

/// No leaf.
pub const NONE: u32 = u32::MAX;

/// What leaves hold of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMode {
    /// Whole keys: no record is read but those that are asked for.
    Whole,
    /// Eight bytes behind what a leaf's keys share: less memory, more so for long keys. A lookup of a key that is
    /// not there reads a record when one with the same eight bytes is.
    Partial,
}

/// A leaf and its neighbours.
#[derive(Default)]
pub struct LeafNode {
    pub leaf: Leaf,
    pub previous: u32,
    pub next: u32,
}

/// From keys to locations, in the order of keys.
pub struct OrderedIndex {
    mode: KeyMode,
    pub(super) leaves: Slab<LeafNode, 64>,
    inners: Slab<Inner, 16>,
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: usize,
    len: u64,
    /// Bytes that nodes own outside of the slabs.
    node_bytes: u64,
    /// The way to a leaf: inner nodes from the root down, and which child.
    path: Vec<(u32, usize)>,
}

impl OrderedIndex {
    /// An empty index. Cost: some 5 KiB.
    pub fn new(mode: KeyMode) -> Self {
        let mut index = OrderedIndex {
            mode,
            leaves: Slab::new(),
            inners: Slab::new(),
            root: 0,
            height: 0,
            len: 0,
            node_bytes: 0,
            path: Vec::new(),
        };
        index.root = index.add_leaf(Leaf::new(mode), NONE, NONE);
        index
    }

    /// What leaves hold of keys.
    pub fn mode(&self) -> KeyMode {
        self.mode
    }

    /// Keys in the index.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it holds, without what the allocator adds.
    pub fn memory_bytes(&self) -> u64 {
        self.node_bytes + self.leaves.bytes() + self.inners.bytes() + (self.path.capacity() * 16) as u64
    }

    fn add_leaf(&mut self, leaf: Leaf, previous: u32, next: u32) -> u32 {
        self.node_bytes += leaf.bytes() as u64;
        self.leaves.add(LeafNode { leaf, previous, next })
    }

    fn add_inner(&mut self, inner: Inner) -> u32 {
        self.node_bytes += inner.bytes() as u64;
        self.inners.add(inner)
    }

    /// Changes a leaf, and keeps the count of bytes.
    fn with_leaf<R>(&mut self, id: u32, change: impl FnOnce(&mut Leaf) -> R) -> R {
        let leaf = &mut self.leaves.get_mut(id).leaf;
        let before = leaf.bytes() as u64;
        let answer = change(leaf);
        self.node_bytes = self.node_bytes + leaf.bytes() as u64 - before;
        answer
    }

    fn with_inner<R>(&mut self, id: u32, change: impl FnOnce(&mut Inner) -> R) -> R {
        let inner = self.inners.get_mut(id);
        let before = inner.bytes() as u64;
        let answer = change(inner);
        self.node_bytes = self.node_bytes + inner.bytes() as u64 - before;
        answer
    }

    /// The leaf that has `key`, or would.
    pub(super) fn leaf_of(&self, key: &[u8]) -> u32 {
        let mut id = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(id);
            id = inner.children[inner.child_of(key)];
        }
        id
    }

    /// The leaf at one end.
    pub(super) fn edge_leaf(&self, last: bool) -> u32 {
        let mut id = self.root;
        for _ in 0..self.height {
            let children = &self.inners.get(id).children;
            id = children[if last { children.len() - 1 } else { 0 }];
        }
        id
    }

    /// As [`leaf_of`](Self::leaf_of), and notes the way.
    fn descend(&mut self, key: &[u8]) -> u32 {
        self.path.clear();
        let mut id = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(id);
            let child = inner.child_of(key);
            self.path.push((id, child));
            id = inner.children[child];
        }
        id
    }

    /// The location of `key`. Cost: a path through the tree; with partial keys a read of the record that has the
    /// same eight bytes, or of a few where several have.
    pub fn get(&self, key: &[u8], source: &impl KeySource) -> Option<Location> {
        let leaf = &self.leaves.get(self.leaf_of(key)).leaf;
        leaf.search(key, source).ok().map(|at| leaf.location(at))
    }

    /// Points `key` to `location`; the location that it had. Cost: as [`get`](Self::get); when a leaf is split (one
    /// insert in some 30) and partial keys in it tie, its keys are read, 65 at most.
    pub fn insert(&mut self, key: &[u8], location: Location, source: &impl KeySource) -> Option<Location> {
        let id = self.descend(key);
        let leaf = &mut self.leaves.get_mut(id).leaf;
        match leaf.search(key, source) {
            Ok(at) => {
                let old = leaf.location(at);
                leaf.set_location(at, location);
                Some(old)
            }
            Err(at) => {
                self.len += 1;
                let is_over = self.with_leaf(id, |leaf| {
                    leaf.insert(at, key, location);
                    leaf.is_over()
                });
                if is_over {
                    self.split_leaf(id, source);
                }
                None
            }
        }
    }

    /// Points `key` to `new` if it is at `old`. Whether it was. For a cleaner that moves records.
    pub fn replace(&mut self, key: &[u8], old: Location, new: Location, source: &impl KeySource) -> bool {
        let id = self.leaf_of(key);
        let leaf = &mut self.leaves.get_mut(id).leaf;
        let place = leaf.search(key, source).ok().filter(|at| leaf.location(*at) == old);
        if let Some(at) = place {
            leaf.set_location(at, new);
        }
        place.is_some()
    }

    /// Removes `key`; the location that it had.
    pub fn remove(&mut self, key: &[u8], source: &impl KeySource) -> Option<Location> {
        let id = self.descend(key);
        let leaf = &mut self.leaves.get_mut(id).leaf;
        let at = leaf.search(key, source).ok()?;
        let location = leaf.location(at);
        self.len -= 1;
        let left = self.with_leaf(id, |leaf| {
            leaf.remove(at);
            leaf.len()
        });
        if left == 0 {
            self.drop_leaf(id);
        }
        Some(location)
    }

    /// Splits the leaf that [`descend`](Self::descend) found last.
    fn split_leaf(&mut self, id: u32, source: &impl KeySource) {
        let (separator, upper) = self.with_leaf(id, |leaf| leaf.split(source));
        let next = self.leaves.get(id).next;
        let added = self.add_leaf(upper, id, next);
        self.leaves.get_mut(id).next = added;
        if next != NONE {
            self.leaves.get_mut(next).previous = added;
        }
        self.add_child(id, separator, added);
    }

    /// Puts `added` behind its sibling `child` in the node above, and so on up.
    fn add_child(&mut self, mut child: u32, mut separator: Box<[u8]>, mut added: u32) {
        while let Some((id, at)) = self.path.pop() {
            let split = self.with_inner(id, |inner| {
                inner.insert(at, &separator, added);
                inner.is_over().then(|| inner.split())
            });
            let Some((parting, upper)) = split else { return };
            (child, separator, added) = (id, parting, self.add_inner(upper));
        }
        let mut root = Inner::new(child);
        root.insert(0, &separator, added);
        self.root = self.add_inner(root);
        self.height += 1;
    }

    /// Drops the empty leaf that [`descend`](Self::descend) found last, unless it is the only one, and nodes that
    /// lose their last child.
    fn drop_leaf(&mut self, id: u32) {
        if self.height == 0 {
            let empty = Leaf::new(self.mode);
            self.with_leaf(id, |leaf| *leaf = empty);
            return;
        }
        let node = self.leaves.take(id);
        self.node_bytes -= node.leaf.bytes() as u64;
        if node.previous != NONE {
            self.leaves.get_mut(node.previous).next = node.next;
        }
        if node.next != NONE {
            self.leaves.get_mut(node.next).previous = node.previous;
        }
        while let Some((id, at)) = self.path.pop() {
            let left = self.with_inner(id, |inner| {
                inner.remove(at);
                inner.children.len()
            });
            if left > 0 {
                break;
            }
            let inner = self.inners.take(id);
            self.node_bytes -= inner.bytes() as u64;
        }
        self.lower_root();
    }

    /// Drops roots of one child, or of none.
    fn lower_root(&mut self) {
        if self.len == 0 {
            self.height = 0;
            self.root = self.add_leaf(Leaf::new(self.mode), NONE, NONE);
            return;
        }
        while self.height > 0 && self.inners.get(self.root).children.len() == 1 {
            let root = self.inners.take(self.root);
            self.node_bytes -= root.bytes() as u64;
            self.root = root.children[0];
            self.height -= 1;
        }
    }
}

#[cfg(test)]
#[path = "ordered_test.rs"]
mod ordered_test;
