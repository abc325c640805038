//! Old records in blocks that a checkpoint listed, counted after the opening, beside the traffic.
//!
//! An opening that takes a checkpoint in does not read these blocks. What they hold besides what counts are old
//! records, of which nobody knows until they are counted here: some of a block a step, each record verified. Until all
//! blocks are counted, tombstones stay ([`crate::graves`]).
//!
//! Invariants:
//! 1. Of a block, old records before [`Block::counted_to`](crate::blocks::Block::counted_to) are counted, none behind it.
//! 2. A record that is replaced is counted at once where it lies before that; else when the count comes by, which must
//!    not see it as one that counts: no block is counted while something in it waits for its end, or a snapshot lives.
//! 3. One that a snapshot keeps, and that is moved out of a block where it was not counted, is counted where it goes
//!    (`kept_moved_uncounted`): there nobody looks for it.
//!
//! Where a record is damaged, its block is not cleaned any more, and tombstones stay until the next opening reads all.

use crate::blocks::Blocks;
use crate::format::LEAD_BYTES;
use crate::graves::grave_of;
use crate::shard::PmShard;
use std::collections::VecDeque;
use tierstone_base::{KeyspaceId, Position, Result};

/// Bytes of a block that a step reads, and how often, in microseconds: 64 MB a second at most, a tenth of a
/// processor with records of 128 bytes.
const STEP_BYTES: u64 = 8 << 10;
const STEP_EVERY_US: u64 = 128;
/// How long it waits while a snapshot lives, in microseconds.
const WAIT_US: u64 = 10_000;
/// Blocks that a step looks at until it finds one that it can count.
const LOOKED_AT: usize = 16;
/// Positions of tombstones that a step looks at when all is counted.
const TOMBS: usize = 64;

/// What is to be counted.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    /// Blocks, the next one first.
    pub blocks: VecDeque<u32>,
    /// Positions with tombstones that nothing may be hidden by.
    tombs: Vec<u64>,
    due_us: u64,
    /// Damage was found: the count never ends.
    is_stuck: bool,
}

impl Recount {
    /// When a step would do something.
    pub fn due_at_us(&self) -> Option<u64> {
        (!self.blocks.is_empty() || !self.tombs.is_empty()).then_some(self.due_us)
    }
}

impl Blocks {
    /// Whether the record at `place`, if it is old, is among those that are counted.
    #[inline]
    pub fn is_counted(&self, place: u64) -> bool {
        let number = self.maker.layout.block_of(place);
        let at = (place - self.maker.layout.block(number)) as u32;
        self.table.get(number).is_none_or(|block| at < block.counted_to)
    }
}

impl PmShard {
    /// A record of this position is old from now on.
    #[inline]
    pub(crate) fn note_old(&mut self, grave: u64, place: u64) {
        if self.blocks.is_counted(place) {
            self.graves.add_old(grave);
        }
    }

    /// Counts a piece of a block, if it is time.
    pub(crate) fn recount_step(&mut self) -> Result<()> {
        if self.recount.due_at_us().is_none_or(|due| due > self.now.monotonic_us) {
            return Ok(());
        }
        self.recount.due_us = self.now.monotonic_us + STEP_EVERY_US;
        if self.recount.blocks.is_empty() {
            return self.drop_unneeded();
        }
        if self.snapshots.is_in_use() || !self.retained.is_empty() {
            self.recount.due_us = self.now.monotonic_us + WAIT_US;
            return Ok(());
        }
        for _ in 0..LOOKED_AT.min(self.recount.blocks.len()) {
            let Some(number) = self.recount.blocks.pop_front() else { break };
            match self.blocks.table.get(number).map(|block| (block.counted_to, block.pending)) {
                None | Some((u32::MAX, _)) => continue,
                Some((_, 0)) => {
                    if !self.count_piece(number) {
                        self.recount.blocks.push_front(number);
                    }
                    break;
                }
                Some(_) => self.recount.blocks.push_back(number),
            }
        }
        if self.recount.blocks.is_empty() && !self.recount.is_stuck {
            self.graves.is_partial = false;
            self.recount.tombs = self.graves.unneeded();
        }
        Ok(())
    }

    /// Counts the next records of a block; whether it is done with.
    fn count_piece(&mut self, number: u32) -> bool {
        let Some(block) = self.blocks.table.get(number) else { return true };
        let start = self.maker.layout.block(number);
        let (mut at, end) = (block.counted_to.max(LEAD_BYTES as u32), block.end);
        let stop = u64::from(at) + STEP_BYTES;
        let mut old = Vec::new();
        let mut is_whole = true;
        while at < end && u64::from(at) < stop {
            let Ok((head, _)) = self.record(start + u64::from(at)) else {
                is_whole = false;
                break;
            };
            let counts = self.blocks.table.get(number).is_some_and(|block| block.is_valid(at));
            if !counts && !head.is_tombstone() && !head.is_void() {
                old.push(grave_of(KeyspaceId(head.keyspace), Position(head.position)));
            }
            at += head.len;
        }
        old.into_iter().for_each(|grave| self.graves.add_old(grave));
        let is_done = at >= end;
        if let Some(block) = self.blocks.table.get_mut(number) {
            block.counted_to = if is_done { u32::MAX } else { at };
        }
        if !is_whole {
            self.recount.is_stuck = true;
            self.blocks.set_aside(number);
        }
        is_done || !is_whole
    }

    /// Gives up tombstones that hide nothing, some of them.
    fn drop_unneeded(&mut self) -> Result<()> {
        for _ in 0..TOMBS {
            let Some(grave) = self.recount.tombs.pop() else { break };
            if self.graves.old(grave) > 0 {
                continue;
            }
            for place in self.graves.take_tombstones(grave) {
                self.give_up_at(place)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "recount_test.rs"]
pub(crate) mod recount_test;
