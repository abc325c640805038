//! Full blocks by their free space: a list for each of some classes, so that the block with most free space is found,
//! and a block finds its place, without a search.
//!
//! After RStore (Lersch 2020, section 5.6), with classes of 1/128 of a block in place of a heap. A heap keeps an entry
//! for every change that it has seen and that never comes to its top; here each block has one place.
//!
//! Invariants:
//! 1. A block is in one list at most: that of the class that its `class` says, or in none.
//! 2. `best` is not below the highest class whose list is not empty.

use crate::block_table::BlockTable;

/// Classes of free space.
const CLASSES: u32 = 128;
/// No block, or no class.
const NONE: u32 = u32::MAX;

/// Where a block stands among the victims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    before: u32,
    behind: u32,
    class: u32,
}

impl Default for Standing {
    fn default() -> Self {
        Standing { before: NONE, behind: NONE, class: NONE }
    }
}

/// The lists; within a class the block that came first is first.
#[derive(Debug)]
pub(crate) struct Victims {
    block_bytes: u32,
    first: Vec<u32>,
    last: Vec<u32>,
    best: u32,
}

impl Victims {
    /// For blocks of so many bytes.
    pub fn new(block_bytes: u32) -> Self {
        let none = vec![NONE; CLASSES as usize];
        Victims { block_bytes, first: none.clone(), last: none, best: 0 }
    }

    fn class_of(&self, free: u32) -> u32 {
        (u64::from(free) * u64::from(CLASSES) / u64::from(self.block_bytes)).min(u64::from(CLASSES - 1))
            as u32
    }

    /// Puts the block where one of `free` bytes belongs; one that is there stays in its place.
    pub fn put(&mut self, table: &mut BlockTable, number: u32, free: u32) {
        let class = self.class_of(free);
        if table.get(number).is_none_or(|block| block.standing.class == class) {
            return;
        }
        self.take_out(table, number);
        let before = std::mem::replace(&mut self.last[class as usize], number);
        match table.get_mut(before) {
            Some(block) => block.standing.behind = number,
            None => self.first[class as usize] = number,
        }
        if let Some(block) = table.get_mut(number) {
            block.standing = Standing { before, behind: NONE, class };
        }
        self.best = self.best.max(class);
    }

    /// Takes the block out of its list, if it is in one.
    pub fn take_out(&mut self, table: &mut BlockTable, number: u32) {
        let Some(block) = table.get_mut(number) else { return };
        let Standing { before, behind, class } = std::mem::take(&mut block.standing);
        if class == NONE {
            return;
        }
        match table.get_mut(before) {
            Some(block) => block.standing.behind = behind,
            None => self.first[class as usize] = behind,
        }
        match table.get_mut(behind) {
            Some(block) => block.standing.before = before,
            None => self.last[class as usize] = before,
        }
    }

    /// The first block of the highest class that `fits`. Classes below that of `least` bytes are not looked at.
    pub fn find(&mut self, table: &BlockTable, least: u32, mut fits: impl FnMut(u32) -> bool) -> Option<u32> {
        while self.best > 0 && self.first[self.best as usize] == NONE {
            self.best -= 1;
        }
        for class in (self.class_of(least)..=self.best).rev() {
            let mut next = self.first[class as usize];
            while let Some(block) = table.get(next) {
                if fits(next) {
                    return Some(next);
                }
                next = block.standing.behind;
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "victims_test.rs"]
mod victims_test;
