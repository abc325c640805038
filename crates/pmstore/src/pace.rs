//! How much of the work that writes bring with them a step does: as much as was written since the last one.
//!
//! A library steps after each write, a server after hundreds. A step that did the same in both would fall behind in the
//! second: the reserve of free blocks and the log would run out, and writes would be put off.

/// A step cleans so many blocks at most. More: longer steps where much lives in each block.
const BLOCKS_MAX: u64 = 64;

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
    /// case, so that the reserve grows where little is written; others until there are as many as after the last step, but not
    /// more than it takes to win what was written, `least` bytes each. Whatever else took blocks is made up for step by step:
    /// a caller's one write does not wait for it.
    pub fn cleans_on(&self, blocks: u64, available: u64, least: u64) -> bool {
        blocks == 0
            || available < self.available && blocks < BLOCKS_MAX.min(self.since.div_ceil(least.max(1)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_for_a_write_and_as_many_as_hundreds_need() {
        let mut pace = Pace::default();
        pace.note_available(100);
        pace.step(200);
        assert!(pace.cleans_on(0, 100, 4_096) && pace.cleans_on(0, 60, 4_096));
        assert!(!pace.cleans_on(1, 60, 4_096), "a caller waits for what others took");
        pace.step(200 + 160_000);
        assert!(pace.cleans_on(39, 99, 4_096) && !pace.cleans_on(40, 99, 4_096));
        assert!(!pace.cleans_on(1, 100, 4_096), "there are as many as before");
        pace.step(200 + 160_000 + (10 << 20));
        assert!(pace.cleans_on(63, 99, 4_096) && !pace.cleans_on(64, 99, 4_096));
        assert_eq!(pace.write_back_bytes(65_536), 20 << 20);
        pace.step(200 + 160_000 + (10 << 20));
        assert_eq!(pace.write_back_bytes(65_536), 65_536);
    }
}
