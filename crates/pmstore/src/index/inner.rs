//! An inner node of the ordered index: children, and what parts them.
//!
//! Invariants:
//! 1. Child `i` has the keys from separator `i - 1` up to, without, separator `i`; there is a child more than
//!    separators.

use super::key_block::KeyBlock;
use super::leaf::BLOCK_BYTES;

/// Children that a node takes.
const CHILDREN: usize = 64;

/// Children in order. Separators are whole, but as short as they can be.
#[derive(Default)]
pub struct Inner {
    pub separators: KeyBlock,
    pub children: Vec<u32>,
}

impl Inner {
    pub fn new(child: u32) -> Self {
        Inner { separators: KeyBlock::default(), children: vec![child] }
    }

    /// Bytes of memory, without the node's own.
    pub fn bytes(&self) -> usize {
        self.separators.bytes() + self.children.capacity() * size_of::<u32>()
    }

    /// Which child has `key`.
    #[inline]
    pub fn child_of(&self, key: &[u8]) -> usize {
        match self.separators.search(key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    /// Adds a child after child `at`, with the keys from `separator` on.
    pub fn insert(&mut self, at: usize, separator: &[u8], child: u32) {
        self.separators.insert(at, separator);
        self.children.insert(at + 1, child);
    }

    /// Takes child `at` out; a neighbour gets its keys, if there is one.
    pub fn remove(&mut self, at: usize) {
        self.children.remove(at);
        if self.separators.len() > 0 {
            self.separators.remove(at.saturating_sub(1));
        }
    }

    /// Whether it must be split. One of three children can be.
    pub fn is_over(&self) -> bool {
        self.children.len() > CHILDREN || (self.separators.bytes() > BLOCK_BYTES && self.children.len() > 3)
    }

    /// Takes the upper half out; what parts the two, and the half.
    pub fn split(&mut self) -> (Box<[u8]>, Inner) {
        let at = self.separators.len() / 2;
        let separator = self.separators.key(at);
        let separators = self.separators.split_off(at + 1);
        self.separators.remove(at);
        let upper = Inner { separators, children: self.children.split_off(at + 1) };
        self.children.shrink_to_fit();
        (separator, upper)
    }
}
