//! The storage blocks of a shard by their number: an array for each segment, so that a block is found without a search.

use crate::blocks::Block;

/// Blocks in use; numbers are those of the whole region.
#[derive(Debug)]
pub(crate) struct BlockTable {
    /// Of each segment its blocks; none for segments that had no block in use.
    segments: Vec<Box<[Option<Block>]>>,
    /// Blocks of a segment, a power of two, as its logarithm.
    segment_bits: u32,
    len: usize,
}

impl BlockTable {
    /// For segments of so many blocks, a power of two.
    pub fn new(blocks_per_segment: u32) -> Self {
        debug_assert!(blocks_per_segment.is_power_of_two());
        BlockTable { segments: Vec::new(), segment_bits: blocks_per_segment.trailing_zeros(), len: 0 }
    }

    #[inline]
    fn place(&self, number: u32) -> (usize, usize) {
        ((number >> self.segment_bits) as usize, (number & ((1 << self.segment_bits) - 1)) as usize)
    }

    #[inline]
    pub fn get(&self, number: u32) -> Option<&Block> {
        let (segment, at) = self.place(number);
        self.segments.get(segment)?.get(at)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Block> {
        let (segment, at) = self.place(number);
        self.segments.get_mut(segment)?.get_mut(at)?.as_mut()
    }

    /// Puts a block in; what was there is gone.
    pub fn insert(&mut self, number: u32, block: Block) -> &mut Block {
        let (segment, at) = self.place(number);
        if segment >= self.segments.len() {
            self.segments.resize_with(segment + 1, Box::default);
        }
        let blocks = &mut self.segments[segment];
        if blocks.is_empty() {
            *blocks = (0..1 << self.segment_bits).map(|_| None).collect();
        }
        self.len += usize::from(blocks[at].is_none());
        blocks[at].insert(block)
    }

    pub fn remove(&mut self, number: u32) -> Option<Block> {
        let (segment, at) = self.place(number);
        let removed = self.segments.get_mut(segment)?.get_mut(at)?.take();
        self.len -= usize::from(removed.is_some());
        removed
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The blocks by their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Block)> {
        let all = self.segments.iter().enumerate().flat_map(|(segment, blocks)| {
            let first = (segment as u32) << self.segment_bits;
            (first..).zip(blocks.iter())
        });
        all.filter_map(|(number, block)| Some((number, block.as_ref()?)))
    }

    /// The numbers, ascending.
    pub fn numbers(&self) -> Vec<u32> {
        self.iter().map(|(number, _)| number).collect()
    }
}
