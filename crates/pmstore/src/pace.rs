//! How much of the work that writes bring with them a step does: as much as was written since the last one.
//!
//! A library steps after each write, a server after hundreds. A step that did the same in both would fall behind in the
//! second: the reserve of free blocks and the log would run out, and writes would be put off.

/// A step cleans so many blocks at most. More: longer steps where much lives in each block.
const BLOCKS_MAX: u32 = 64;

/// What came between steps.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    appended: u64,
    /// Bytes of records that were appended between the last two steps.
    since: u64,
    /// Blocks that could be had when cleaning last ended short of its reserve; 0 after one that had it.
    available: u64,
}

impl Pace {
    /// A step begins; `appended`: bytes of records appended ever.
    pub fn step(&mut self, appended: u64) {
        self.since = appended.saturating_sub(self.appended);
        self.appended = appended;
    }

    /// Whether a step that has cleaned `blocks` blocks, and could have `available` now, goes on: the first is cleaned in any
    /// case, so that the reserve grows where little is written; others until there are as many as after the last step.
    pub fn cleans_on(&self, blocks: u32, available: u64) -> bool {
        blocks == 0 || blocks < BLOCKS_MAX && available < self.available
    }

    /// Cleaning ends for this step.
    pub fn note_available(&mut self, available: u64) {
        self.available = available;
    }

    /// Bytes to write back in this step, `least` at least: twice what came, so that it gets nearer.
    pub fn write_back_bytes(&self, least: u64) -> u64 {
        least.max(self.since.saturating_mul(2))
    }
}
