//! Emptying a segment of storage blocks: long values need whole segments, and where all have blocks that live here and
//! there none would ever be free.
//!
//! The segment with fewest blocks in use is chosen, of those whose blocks may all be cleaned; its free blocks are used no more, and
//! the others are cleaned like any victim, whatever they gain. Then it is given back to the table.
//!
//! Invariant: a segment is chosen only while free blocks elsewhere take what lives in it, some left over.
//!
//! Crash: as in cleaning; at the next opening it is a segment like others.

use crate::blocks::{Block, Blocks, Role};
use crate::long_emptying::{CHEAP_PERCENT, PERCENT_MAX};
use crate::shard::PmShard;
use tierstone_base::Result;
use tierstone_engine::Eviction;

/// Free blocks that emptying leaves to others: with fewer the next write would take the segment for its records.
const LEFT_BLOCKS: u64 = 6;
/// ... and of a segment in which nothing lives, too: deletes and cleaning take one each, and what is appended one.
const LEAST_BLOCKS: u64 = 3;
/// When so many segments were emptied in a while and no long value came to lie in one, something else takes them.
const IN_VAIN_MAX: u32 = 6;
const IN_VAIN_US: u64 = 1_000_000;

/// What emptying has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Emptied {
    /// Segments that were emptied since a long value found room, and when the first was wanted.
    in_vain: u32,
    since_us: u64,
    /// No segment could be chosen after so many changes of blocks, of so many segments.
    tried: Option<(u64, usize)>,
}

fn may_be_cleaned(block: &Block) -> bool {
    block.role == Role::Full && block.pending == 0
}

impl Blocks {
    fn blocks_of(&self, segment: u32) -> std::ops::Range<u32> {
        let per_segment = self.maker.layout.blocks_per_segment();
        segment * per_segment..(segment + 1) * per_segment
    }

    /// Bytes that live in a segment, if all its blocks in use may be cleaned.
    fn live_if_movable(&self, segment: u32, used: u32) -> Option<u64> {
        let blocks = self.blocks_of(segment).filter_map(|number| self.table.get(number));
        let (mut count, mut live) = (0, 0);
        for block in blocks {
            if !may_be_cleaned(block) {
                return None;
            }
            count += 1;
            live += u64::from(block.live);
        }
        // The others are pages of a checkpoint.
        (count == used).then_some(live)
    }

    /// Chooses a segment to be emptied, unless one is already; whether one is.
    pub fn begin_emptying(&mut self) -> bool {
        if self.emptying.is_some() {
            return true;
        }
        let payload = self.maker.layout.block_payload();
        let mut free_in = std::collections::BTreeMap::<u32, u64>::new();
        let per_segment = self.maker.layout.blocks_per_segment();
        for number in &self.free {
            *free_in.entry(number / per_segment).or_default() += 1;
        }
        let fits = |segment: u32, live: u64| {
            let elsewhere = self.free.len() as u64 - free_in.get(&segment).copied().unwrap_or(0);
            elsewhere >= LEAST_BLOCKS && live <= elsewhere.saturating_sub(LEFT_BLOCKS) * payload
        };
        let chosen = self
            .segments
            .iter()
            .filter(|(segment, used)| {
                self.live_if_movable(**segment, **used).is_some_and(|live| fits(**segment, live))
            })
            .min_by_key(|(_, used)| **used)
            .map(|(segment, _)| *segment);
        let Some(segment) = chosen else { return false };
        self.emptying = Some(segment);
        self.free.retain(|number| number / per_segment != segment);
        true
    }

    /// The next block of the segment that is being emptied.
    pub fn next_to_empty(&self) -> Option<u32> {
        let blocks = self.blocks_of(self.emptying?);
        blocks.into_iter().find(|&number| self.table.get(number).is_some_and(may_be_cleaned))
    }

    /// Gives the segment back when nothing is in it any more; whether it did. One barrier then.
    pub fn end_emptying(&mut self) -> Result<bool> {
        let Some(segment) = self.emptying.filter(|segment| self.segments.get(segment) == Some(&0)) else {
            return Ok(false);
        };
        self.emptying = None;
        self.segments.remove(&segment);
        self.maker.space.release(segment, self.maker.shard)?;
        Ok(true)
    }

    /// Nobody appends to the block any more, if somebody did.
    pub fn close(&mut self, number: u32) {
        for role in [Role::Active, Role::Cleaning] {
            if *self.role_block(role) == Some(number) {
                *self.role_block(role) = None;
                self.fill(number);
            }
        }
    }

    /// Lets a segment be that cannot be emptied: its free blocks may be used again.
    pub fn give_emptying_up(&mut self) {
        let Some(segment) = self.emptying.take() else { return };
        self.changes += 1;
        let free = self.blocks_of(segment).filter(|&number| self.table.get(number).is_none());
        let free: Vec<u32> = free.collect();
        self.free.extend(free);
        if self.segments.get(&segment) == Some(&0) {
            self.emptied.push(segment);
        }
    }
}

impl PmShard {
    /// Whether a segment is emptied for a long value, or may be soon: first one of long values in which little lives, then one
    /// of blocks, then one of long values in which much does.
    pub(crate) fn can_empty_a_segment(&mut self) -> bool {
        self.empties_long_values(CHEAP_PERCENT)
            || self.can_empty_a_segment_of_blocks()
            || self.can_empty_much()
    }

    /// Whether a segment of long values is emptied in which much lives: where keys may be evicted they go instead.
    pub(crate) fn can_empty_much(&mut self) -> bool {
        self.evictor.policy == Eviction::None && self.empties_long_values(PERCENT_MAX)
    }

    /// Whether a segment of blocks is, or may be when blocks have been cleaned that give a quarter at least.
    fn can_empty_a_segment_of_blocks(&mut self) -> bool {
        let now_us = self.now.monotonic_us;
        if now_us > self.emptied.since_us + IN_VAIN_US {
            self.emptied = Emptied { in_vain: 0, since_us: now_us, ..self.emptied };
        }
        if self.emptied.in_vain >= IN_VAIN_MAX {
            return false;
        }
        let state = (self.blocks.changes, self.blocks.segments.len());
        if self.emptied.tried != Some(state) {
            if self.blocks.begin_emptying() {
                return true;
            }
            self.emptied.tried = Some(state);
        }
        self.blocks.has_victim(self.maker.layout.geometry.block_bytes as u32 / 4)
    }

    /// Cleans the next block of the segment that is being emptied. Cost: as [`PmShard::clean`].
    pub(crate) fn empty_step(&mut self) -> Result<()> {
        let Some(victim) = self.blocks.next_to_empty() else {
            // Blocks whose records are not decided yet are waited for.
            self.wants_flush |= !self.deaths.is_empty();
            self.end_emptying()?;
            if self.deaths.is_empty() {
                // A block of it was found damaged meanwhile, and stays.
                self.blocks.give_emptying_up();
            }
            return Ok(());
        };
        let cleaned = match self.blocks.secure(1)? {
            true => self.clean(victim),
            false => {
                self.blocks.give_emptying_up();
                return Ok(());
            }
        };
        if cleaned.is_err() {
            self.blocks.give_emptying_up();
        }
        cleaned?;
        self.end_emptying()
    }

    fn end_emptying(&mut self) -> Result<()> {
        self.emptied.in_vain += u32::from(self.blocks.end_emptying()?);
        Ok(())
    }
}
