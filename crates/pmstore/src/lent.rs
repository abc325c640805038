//! Blocks of the shard's segments that hold something else than records: pages of checkpoints. Their first line says
//! that they are free, so that a crash gives them back.

use crate::blocks::Blocks;
use tierstone_base::Result;

impl Blocks {
    /// Takes a free block for something else than records; `None`: there is none. Up to one barrier.
    pub fn lend(&mut self) -> Result<Option<u32>> {
        if !self.secure(1)? {
            return Ok(None);
        }
        let Some(number) = self.free.pop() else { return Ok(None) };
        self.note_use(number);
        Ok(Some(number))
    }

    /// A block of the shard's segments is in use.
    pub fn note_use(&mut self, number: u32) {
        *self.segments.entry(number / self.maker.layout.blocks_per_segment()).or_default() += 1;
    }

    /// A block that was in use is free.
    pub fn take_back(&mut self, number: u32) {
        let segment = number / self.maker.layout.blocks_per_segment();
        let is_emptied = self.emptying == Some(segment);
        if let Some(used) = self.segments.get_mut(&segment) {
            *used -= 1;
            if *used == 0 && !is_emptied {
                self.emptied.push(segment);
            }
        }
        self.changes += 1;
        if !is_emptied {
            self.free.push(number);
        }
    }
}
