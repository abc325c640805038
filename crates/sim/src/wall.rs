//! The wall clock, which people and daemons set back and forth.
//!
//! A node never lets its time go back: what it goes by is between what the clock shows and the latest that
//! the clock has shown.

use tierstone_base::Now;
use tierstone_media::SimMedium;

/// The wall clock when a run begins, in milliseconds.
const WALL_START_MS: u64 = 1_700_000_000_000;

/// The wall clock of the simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    /// What it shows more than the time that has passed, in milliseconds.
    base_ms: u64,
    /// The latest that it had shown when it was last set.
    high_ms: u64,
}

impl Default for WallClock {
    fn default() -> Self {
        WallClock { base_ms: WALL_START_MS, high_ms: 0 }
    }
}

impl WallClock {
    /// The time on both clocks.
    pub fn now(&self, medium: &SimMedium) -> Now {
        let monotonic_us = medium.now_us();
        Now { monotonic_us, wall_ms: self.base_ms + monotonic_us / 1_000 }
    }

    /// The latest that it has shown.
    pub fn high_ms(&self, medium: &SimMedium) -> u64 {
        self.high_ms.max(self.now(medium).wall_ms)
    }

    /// It is set `by_ms` forward or back.
    pub fn jump(&mut self, medium: &SimMedium, forward: bool, by_ms: u64) {
        self.high_ms = self.high_ms(medium);
        self.base_ms = if forward { self.base_ms + by_ms } else { self.base_ms - by_ms };
    }
}
