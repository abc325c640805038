//! Emptying a segment of long values: while a few values of a class lie in it, it serves neither blocks nor values of
//! another class, and where lengths change none would ever be free.
//!
//! The segment with fewest bytes taken is chosen, if what lies there finds room in others of its class
//! ([`crate::overflow`]). The blocks whose records name something there are cleaned like any victim, some a step, and what
//! their records name there is copied first; the copies of the records name the new place. When the old blocks' lives have
//! ended, and the log names the old place no more, it is free, and with the last of them the segment.
//!
//! Invariants:
//! 1. The copy of a long value is durable before a record names it (`moved_unfenced`): the old record, which may count until
//!    its block's life ends, and the copy say the same sequence, and recovery takes either. The other is void when that is
//!    durable, and before anything is used again: what it names is free.
//! 2. The old place is not used again before the life of the old record's block has ended, durably.
//! 3. Nothing is put into the segment while it is being emptied, and what leaves it takes no free segment: so there is one more
//!    at the end, and an end of segments that can be emptied.
//!
//! Sequence, expiry and bytes stay as they are, so that nobody sees the move. What a snapshot keeps moves too.
//!
//! Crash: both places hold the value until only one record names it; which units are taken says recovery.

use crate::blocks::Role;
use crate::format::{Extent, Overflow, RECORD_BYTES, RecordHead};
use crate::overflow::Sought;
use crate::shard::PmShard;
use std::collections::BTreeMap;
use tierstone_base::{Result, Seq};
use tierstone_engine::Eviction;

/// Percent of a segment that may be taken for it to be emptied before others are asked for room ...
pub(crate) const CHEAP_PERCENT: u64 = 50;
/// ... and where writes would be refused else. As with blocks, a sixteenth is to be gained.
pub(crate) const PERCENT_MAX: u64 = 93;
/// Blocks that a step cleans for it.
const BLOCKS_A_STEP: u64 = 4;
/// What has come no nearer to its end for so long is given up, and nobody waits as long when all others were tried, in
/// microseconds.
const PATIENCE_US: u64 = 1_000_000;
/// While there is enough room for now, one is looked for so often, in microseconds, and less often where segments are many.
const LOOK_EVERY_US: u64 = 1_000;
const LOOK_SEGMENT_US: u64 = 2;

/// How it goes on.
#[derive(Debug, Default)]
pub(crate) struct LongEmptying {
    /// Units that were left in the segment, and since when so many.
    left: u64,
    since_us: u64,
    rests_until_us: u64,
    /// When one was given up last.
    given_up_us: u64,
    look_at_us: u64,
}

/// A part of a record's long value that moves: which of its extents, whence and whither.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongMove {
    pub at: usize,
    pub from: Extent,
    pub to: Extent,
}

/// Overflow blocks that are left when a victim's records have moved.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Those that copies have in place of others, with the sequences of their records: the log may name them.
    pub old: Vec<(Seq, Extent)>,
    /// Those that were taken for copies that were not made.
    pub unused: Vec<Extent>,
}

impl LongMove {
    /// Names the new place in a record.
    pub fn rename(&self, record: &mut [u8]) {
        let at = RECORD_BYTES + 16 + self.at * 8;
        if let Some(word) = record.get_mut(at..at + 8) {
            word.copy_from_slice(&self.to.encode().to_le_bytes());
        }
    }
}

impl PmShard {
    /// Whether a segment of long values is being emptied; one is chosen if it can be, so many percent of it taken at most, or
    /// others are still to be looked at.
    pub(crate) fn empties_long_values(&mut self, percent_max: u64) -> bool {
        if self.overflow.emptying().is_some() {
            return true;
        }
        let now_us = self.now.monotonic_us;
        if self.blocks.emptying.is_some() || now_us < self.long_emptying.rests_until_us {
            return false;
        }
        let sought = self.overflow.begin_emptying(percent_max);
        match self.fatal(sought) {
            Ok(Sought::Found) => {
                (self.long_emptying.left, self.long_emptying.since_us) = (self.overflow.left_units(), now_us);
                true
            }
            Ok(Sought::GoesOn) => true,
            Ok(Sought::Nothing) => {
                self.note_nothing_to_empty(percent_max);
                false
            }
            Err(_) => false,
        }
    }

    /// What was given up comes again when all others were tried, and nobody waits for it at once; where little is to be moved
    /// only, when it is long ago.
    fn note_nothing_to_empty(&mut self, percent_max: u64) {
        let now_us = self.now.monotonic_us;
        let are_all = percent_max >= PERCENT_MAX || self.evictor.policy != Eviction::None;
        let is_long_ago = now_us > self.long_emptying.given_up_us + PATIENCE_US;
        let come_again = (are_all || is_long_ago) && self.overflow.unbar();
        if come_again && are_all {
            self.long_emptying.rests_until_us = now_us + PATIENCE_US;
        }
    }

    /// Begins where no free segment is left and little is to be moved for one, or goes on: some blocks are cleaned. Cost: as
    /// [`PmShard::clean`] each, and what they name in the segment is copied, with a barrier more.
    pub(crate) fn empty_long_step(&mut self, is_short: bool) -> Result<()> {
        let now_us = self.now.monotonic_us;
        if self.overflow.emptying().is_none() {
            let is_wanted = is_short
                || self.maker.space.free_for(self.maker.shard) <= self.segments_kept_from_long_values();
            if !is_wanted || now_us < self.long_emptying.look_at_us {
                return Ok(());
            }
            let pause_us = LOOK_EVERY_US.max(self.overflow.segment_count() * LOOK_SEGMENT_US);
            self.long_emptying.look_at_us = now_us + pause_us;
            if !self.empties_long_values(CHEAP_PERCENT) {
                return Ok(());
            }
        }
        self.is_cleaning = true;
        for _ in 0..BLOCKS_A_STEP {
            let Some(block) = self.next_to_leave() else { break };
            let cleaned = match self.blocks.secure(1)? {
                true => self.clean(block),
                false => {
                    // Nor would there be room for what another one holds.
                    self.long_emptying.rests_until_us = now_us + PATIENCE_US;
                    return self.give_long_emptying_up();
                }
            };
            if let Err(error) = cleaned {
                self.give_long_emptying_up()?;
                return Err(error);
            }
        }
        self.watch_long_emptying()
    }

    /// Notes how far it has come; without progress it is given up.
    fn watch_long_emptying(&mut self) -> Result<()> {
        let (left, now_us) = (self.overflow.left_units(), self.now.monotonic_us);
        if left != self.long_emptying.left {
            (self.long_emptying.left, self.long_emptying.since_us) = (left, now_us);
        }
        match self.overflow.emptying().is_some() && now_us > self.long_emptying.since_us + PATIENCE_US {
            true => self.give_long_emptying_up(),
            false => Ok(()),
        }
    }

    /// Others are tried; when none is left, nobody waits for a while.
    fn give_long_emptying_up(&mut self) -> Result<()> {
        self.long_emptying.given_up_us = self.now.monotonic_us;
        self.overflow.give_emptying_up()
    }

    /// A block that is to be cleaned for the segment to become empty. What else is waited for is asked for.
    fn next_to_leave(&mut self) -> Option<u32> {
        let remaining = self.overflow.remaining()?;
        // Once, at the end: the log is truncated behind what is durable.
        let is_last = remaining.is_going && remaining.blocks.is_empty();
        self.wants_truncation |= is_last;
        self.wants_flush |= is_last;
        let mut open = None;
        for number in remaining.blocks {
            match self.blocks.table.get(number) {
                Some(block) if block.pending > 0 => self.wants_flush |= !self.deaths.is_empty(),
                Some(block) if block.role == Role::Full => return Some(number),
                Some(_) => open = Some(number),
                None => {}
            }
        }
        self.blocks.close(open?);
        open
    }

    /// Copies what these records name in the segment that is being emptied; gives the moves by the places of the records.
    /// One barrier if there are any.
    pub(crate) fn move_long_values(&mut self, live: &[(u64, RecordHead)]) -> Result<BTreeMap<u64, LongMove>> {
        let mut moves = BTreeMap::new();
        if self.overflow.emptying().is_none() {
            return Ok(moves);
        }
        for (place, head) in live.iter().filter(|(_, head)| head.is_overflow()) {
            let leaving = self.extents_at(*place, head);
            let leaving =
                leaving.into_iter().enumerate().find(|(_, extent)| self.overflow.is_leaving(extent));
            let Some((at, from)) = leaving else { continue };
            let Some(to) = self.overflow.take_place(&from)? else {
                // It stays, and the segment with it.
                self.give_long_emptying_up()?;
                break;
            };
            // Not verified: what is damaged is as damaged there, and reads tell of it.
            let memory = &self.maker.memory;
            memory.stream(to.offset, &memory.bytes(from.offset, from.len as usize));
            moves.insert(*place, LongMove { at, from, to });
        }
        if !moves.is_empty() {
            self.maker.memory.barrier("moved_unfenced")?;
            // crash here [long-value-moved]: the old record counts and names the old place; no record names the new one
        }
        Ok(moves)
    }

    /// The overflow blocks that a record names which was verified just now.
    pub(crate) fn extents_at(&self, place: u64, head: &RecordHead) -> Vec<Extent> {
        let record = self.maker.memory.bytes(place, head.len as usize);
        head.overflow(&record).map_or_else(Vec::new, |overflow| overflow.extents)
    }

    /// Overflow blocks of the record `seq` are free when the log names them no more.
    pub(crate) fn free_later(&mut self, seq: Seq, extents: Vec<Extent>) {
        self.overflow.note_going(&extents);
        self.evictor.freeing_bytes += extents.iter().map(|extent| u64::from(extent.len)).sum::<u64>();
        self.freeing.push((seq, extents));
    }

    /// The record at `place` names these from now on.
    pub(crate) fn name_long(&mut self, overflow: Option<&Overflow>, place: u64) {
        if let Some(overflow) = overflow {
            self.overflow.name(&overflow.extents, self.maker.layout.block_of(place));
        }
    }

    /// The copies are durable and their victim's life has ended: what no record names any more will be free.
    pub(crate) fn free_left(&mut self, left: Left) -> Result<()> {
        for (seq, old) in left.old {
            self.free_later(seq, vec![old]);
        }
        self.overflow.free(&left.unused)
    }
}
