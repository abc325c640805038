//! How many groups of one log are written at a time.
//!
//! One in flight gathers the most records a group, and is best where a flush is device-wide: deeper queues
//! then only make smaller groups. Where durable writes overlap, a record that need not wait for the write
//! before it is durable sooner. Which holds is seen from the time that records wait: one depth is kept, a
//! neighbour is tried now and then, for one window between two windows of the kept depth, and taken when
//! records waited less. (Measured: `docs/decisions/020-group-depth.md`.)
//!
//! Invariants:
//! 1. The depth lies within its limits; equal limits switch all trials off.
//! 2. A deeper queue is taken only for a clear gain: it writes more, smaller groups. A shallower one is taken
//!    when it loses next to nothing.
//! 3. What is decided depends on times told from outside alone.
//!
//! Durable: nothing; a restart begins at the least depth.

/// Groups of one window, and those after a change of depth that belong to neither.
const WINDOW_GROUPS: u64 = 128;
const SETTLING_GROUPS: u64 = 16;
/// Windows between two trials: at first, and at most.
const PATIENCE_MIN: u64 = 2;
const PATIENCE_MAX: u64 = 128;
/// A deeper queue must make records wait for at most this part of the time, in percent; a shallower one for
/// at most this much.
const DEEPER_PERCENT: u64 = 85;
const SHALLOWER_PERCENT: u64 = 103;

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Windows until the next trial.
    Kept { left: u64 },
    /// The neighbour is in use; records waited this long before, on average.
    Tried { before_us: u64 },
    /// The kept depth is in use again.
    Compared { before_us: u64, tried_us: u64 },
}

/// See the module.
#[derive(Debug)]
pub struct GroupDepth {
    min: usize,
    max: usize,
    kept: usize,
    tried: usize,
    phase: Phase,
    patience: u64,
    /// The next trial is of a deeper queue.
    goes_deeper: bool,
    settling: u64,
    groups: u64,
    records: u64,
    waited_us: u64,
}

impl GroupDepth {
    /// Between `min` and `max` groups, both at least 1.
    pub fn new(min: usize, max: usize) -> Self {
        let min = min.max(1);
        GroupDepth {
            min,
            max: max.max(min),
            kept: min,
            tried: min,
            phase: Phase::Kept { left: PATIENCE_MIN },
            patience: PATIENCE_MIN,
            goes_deeper: true,
            settling: 0,
            groups: 0,
            records: 0,
            waited_us: 0,
        }
    }

    /// Groups that may be in flight now.
    pub fn now(&self) -> usize {
        if matches!(self.phase, Phase::Tried { .. }) { self.tried } else { self.kept }
    }

    /// A group of `records` records is durable, `waited_us` after the first of them came.
    pub fn durable(&mut self, records: u64, waited_us: u64) {
        if self.min == self.max || records == 0 {
            return;
        }
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        self.groups += 1;
        self.records += records;
        self.waited_us = self.waited_us.saturating_add(waited_us.saturating_mul(records));
        if self.groups >= WINDOW_GROUPS {
            let mean_us = self.waited_us / self.records;
            (self.groups, self.records, self.waited_us) = (0, 0, 0);
            self.window(mean_us);
        }
    }

    fn window(&mut self, mean_us: u64) {
        match self.phase {
            Phase::Kept { left } if left > 1 => self.phase = Phase::Kept { left: left - 1 },
            Phase::Kept { .. } => {
                self.choose();
                self.change(Phase::Tried { before_us: mean_us });
            }
            Phase::Tried { before_us } => self.change(Phase::Compared { before_us, tried_us: mean_us }),
            Phase::Compared { before_us, tried_us } => {
                // The load may drift: the trial lies between the two windows.
                let kept_us = before_us.midpoint(mean_us);
                let percent = if self.tried > self.kept { DEEPER_PERCENT } else { SHALLOWER_PERCENT };
                if tried_us.saturating_mul(100) <= kept_us.saturating_mul(percent) {
                    // More of the same may be better still.
                    self.goes_deeper = self.tried > self.kept;
                    self.kept = self.tried;
                    self.patience = PATIENCE_MIN;
                } else {
                    self.goes_deeper = !self.goes_deeper;
                    self.patience = (self.patience * 2).min(PATIENCE_MAX);
                }
                self.change(Phase::Kept { left: self.patience });
            }
        }
    }

    /// Chooses the neighbour to try.
    fn choose(&mut self) {
        self.goes_deeper = (self.goes_deeper || self.kept == self.min) && self.kept < self.max;
        // Twice as deep or half: 1, 2, 4, 8.
        self.tried =
            if self.goes_deeper { (self.kept * 2).min(self.max) } else { (self.kept / 2).max(self.min) };
    }

    fn change(&mut self, phase: Phase) {
        self.phase = phase;
        self.settling = SETTLING_GROUPS;
    }
}

#[cfg(test)]
#[path = "depth_test.rs"]
mod depth_test;
