//! A leaf of the ordered index: whole keys or partial ones, and their locations.

use super::key_block::{KeyBlock, reserve, separator};
use super::partial::PartialLeaf;
use super::{KeyMode, KeySource, Location};
use tierstone_base::prefetch::prefetch_read;

/// Entries that a leaf takes.
pub const LEAF_ENTRIES: usize = 64;
/// Bytes beyond which an insert splits a block of whole keys before it has all its entries.
pub const BLOCK_BYTES: usize = 16 << 10;

/// Whole keys in order, with their locations.
#[derive(Default)]
pub struct WholeLeaf {
    keys: KeyBlock,
    locations: Vec<Location>,
}

/// One of the two kinds.
pub enum Leaf {
    Whole(Box<WholeLeaf>),
    Partial(PartialLeaf),
}

impl Default for Leaf {
    fn default() -> Self {
        Leaf::Partial(PartialLeaf::default())
    }
}

impl Leaf {
    pub fn new(mode: KeyMode) -> Self {
        match mode {
            KeyMode::Whole => Leaf::Whole(Box::default()),
            KeyMode::Partial => Leaf::Partial(PartialLeaf::default()),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Leaf::Whole(leaf) => leaf.locations.len(),
            Leaf::Partial(leaf) => leaf.len(),
        }
    }

    /// Bytes of memory, without the leaf's own.
    pub fn bytes(&self) -> usize {
        match self {
            Leaf::Whole(leaf) => {
                size_of::<WholeLeaf>() + leaf.keys.bytes() + leaf.locations.capacity() * size_of::<Location>()
            }
            Leaf::Partial(leaf) => leaf.bytes(),
        }
    }

    #[inline]
    pub fn location(&self, at: usize) -> Location {
        match self {
            Leaf::Whole(leaf) => leaf.locations[at],
            Leaf::Partial(leaf) => leaf.location(at),
        }
    }

    pub fn set_location(&mut self, at: usize, location: Location) {
        match self {
            Leaf::Whole(leaf) => leaf.locations[at] = location,
            Leaf::Partial(leaf) => leaf.set_location(at, location),
        }
    }

    /// Asks the processor for the line with location `at`.
    pub fn prefetch(&self, at: usize) {
        match self {
            Leaf::Whole(leaf) => leaf.locations.get(at).map(prefetch_read),
            Leaf::Partial(leaf) => leaf.line(at).map(prefetch_read),
        };
    }

    /// The place of `key`, or the one where it belongs.
    pub fn search(&self, key: &[u8], source: &impl KeySource) -> Result<usize, usize> {
        match self {
            Leaf::Whole(leaf) => leaf.keys.search(key),
            Leaf::Partial(leaf) => leaf.search(key, source),
        }
    }

    /// Inserts `key` at its place `at`.
    pub fn insert(&mut self, at: usize, key: &[u8], location: Location) {
        match self {
            Leaf::Whole(leaf) => {
                leaf.keys.insert(at, key);
                reserve(&mut leaf.locations, 1);
                leaf.locations.insert(at, location);
            }
            Leaf::Partial(leaf) => leaf.insert(at, key, location),
        }
    }

    pub fn remove(&mut self, at: usize) {
        match self {
            Leaf::Whole(leaf) => {
                leaf.keys.remove(at);
                leaf.locations.remove(at);
            }
            Leaf::Partial(leaf) => leaf.remove(at),
        }
    }

    /// Whether it must be split.
    pub fn is_over(&self) -> bool {
        let bytes = match self {
            Leaf::Whole(leaf) => leaf.keys.bytes(),
            Leaf::Partial(_) => 0,
        };
        self.len() > LEAF_ENTRIES || (bytes > BLOCK_BYTES && self.len() > 1)
    }

    /// Takes the upper half out, of at least two entries; the shortest string that parts the two, and the half.
    pub fn split(&mut self, source: &impl KeySource) -> (Box<[u8]>, Leaf) {
        match self {
            Leaf::Whole(leaf) => {
                let at = leaf.locations.len() / 2;
                let parting = separator(&leaf.keys.key(at - 1), &leaf.keys.key(at)).into();
                let upper =
                    WholeLeaf { keys: leaf.keys.split_off(at), locations: leaf.locations.split_off(at) };
                leaf.locations.shrink_to_fit();
                (parting, Leaf::Whole(Box::new(upper)))
            }
            Leaf::Partial(leaf) => {
                let (parting, upper) = leaf.split(source);
                (parting, Leaf::Partial(upper))
            }
        }
    }

    /// Checks that its keys are those of its records, and ascend; the first and the last.
    #[cfg(test)]
    pub fn validate(&self, source: &impl KeySource) -> Option<(Vec<u8>, Vec<u8>)> {
        let keys: Vec<Vec<u8>> =
            (0..self.len()).map(|at| source.key(self.location(at)).as_ref().to_vec()).collect();
        assert!(keys.is_sorted_by(|one, other| one < other));
        match self {
            Leaf::Whole(leaf) => (0..self.len()).for_each(|at| assert_eq!(*leaf.keys.key(at), *keys[at])),
            Leaf::Partial(leaf) => leaf.validate(source),
        }
        Some((keys.first()?.clone(), keys.last()?.clone()))
    }
}
