//! Waiting for times far below what a timer of the system can do: a loop over the machine's counter of time.
//!
//! Source of the method: S. Pelley, *Database and System Design for Emerging Storage Technologies*, 2014,
//! section 5.1. Ours departs in what is waited for: an instant rather than a time, so that what the access itself
//! took is part of the device's latency and need not be known.

use super::super::instructions;
use std::sync::OnceLock;
use tierstone_base::SystemClock;
use tierstone_base::clock::CpuClock;

/// The times that calibration waits for lie between these, in nanoseconds.
const POINTS_NS: std::ops::Range<f64> = 60.0..1000.0;
/// How many they are.
const POINTS: u32 = 128;
/// A wait that is counted in turns, in nanoseconds.
const COUNTED_NS: f64 = 4_000.0;
/// Waits that are timed together, so that reading the counter around them hardly counts.
const BATCH: u32 = 8;
/// Batches a point of calibration; their median counts.
const CALIBRATION_TRIALS: usize = 21;
/// Batches a point otherwise.
const TRIALS: usize = 201;
/// How long the counter is held against the system's clock, in nanoseconds.
const RATE_WINDOW_NS: u64 = 3_000_000;

/// What emulation takes its time from: the machine's counter, or a clock that a test moves.
pub trait TickClock {
    /// Ticks now; never goes back on one thread.
    fn now(&self) -> u64;

    /// Returns once `deadline` is reached.
    fn wait_until(&self, deadline: u64);

    /// How many ticks a nanosecond has.
    fn ticks_per_ns(&self) -> f64;

    /// `ns` nanoseconds in ticks, to the nearest.
    fn ticks_of(&self, ns: f64) -> u64 {
        (ns * self.ticks_per_ns()).round() as u64
    }
}

/// A straight line through measured waits.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct DelayFit {
    /// Measured nanoseconds for one asked for.
    pub slope: f64,
    /// What a wait of no time takes, in nanoseconds: subtracted from every wait.
    pub offset_ns: f64,
    /// How much of the variance the line explains, 0 to 1.
    pub r_squared: f64,
    /// The greatest distance of a measured wait from the line, in nanoseconds.
    pub worst_residual_ns: f64,
}

impl DelayFit {
    /// The line of least squares through `(asked, measured)`, both in nanoseconds. Without two different times asked
    /// for it is level.
    pub fn through(points: &[(f64, f64)]) -> DelayFit {
        let count = points.len().max(1) as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_asked, mean_measured) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|&(asked, measured)| of(asked - mean_asked, measured - mean_measured)).sum()
        };
        let spread = sum(&|asked, _| asked * asked);
        let slope = if spread > 0.0 { sum(&|asked, measured| asked * measured) / spread } else { 0.0 };
        let offset_ns = mean_measured - slope * mean_asked;
        let residual = |&(asked, measured): &(f64, f64)| measured - (slope * asked + offset_ns);
        let unexplained: f64 = points.iter().map(|point| residual(point).powi(2)).sum();
        let total = sum(&|_, measured| measured * measured);
        DelayFit {
            slope,
            offset_ns,
            r_squared: if total > 0.0 { 1.0 - unexplained / total } else { 0.0 },
            worst_residual_ns: points.iter().map(|point| residual(point).abs()).fold(0.0, f64::max),
        }
    }
}

/// The waiting loop of this machine, calibrated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayLoop {
    ticks_per_ns: f64,
    offset_ticks: u64,
    step_ns: f64,
    fit: DelayFit,
}

impl DelayLoop {
    /// The loop of this machine; calibrated at the first call, some 15 ms.
    pub fn of_machine() -> &'static DelayLoop {
        static LOOP: OnceLock<DelayLoop> = OnceLock::new();
        LOOP.get_or_init(DelayLoop::calibrate)
    }

    /// Measures the counter's rate, how long waits really take, and what has to be subtracted. Medians, so that what
    /// else the machine does is left out as long as it leaves half of the waits alone.
    pub fn calibrate() -> DelayLoop {
        let ticks_per_ns = counter_rate();
        let mut raw = DelayLoop { ticks_per_ns, offset_ticks: 0, step_ns: 0.0, fit: DelayFit::through(&[]) };
        raw.step_ns = median(CALIBRATION_TRIALS, || {
            let begun = instructions::ticks();
            let turns = raw.turns_until(begun + raw.ticks_of(COUNTED_NS));
            raw.ns_since(begun) / turns.max(1) as f64
        });
        raw.fit = DelayFit::through(&raw.measured(&points_ns(), CALIBRATION_TRIALS));
        raw.offset_ticks = raw.ticks_of(raw.fit.offset_ns.max(0.0));
        raw
    }

    /// What waits of these times really take here, as `(asked, measured)` in nanoseconds: medians.
    pub fn measure(&self, asked_ns: &[f64]) -> Vec<(f64, f64)> {
        self.measured(asked_ns, TRIALS)
    }

    fn measured(&self, asked_ns: &[f64], trials: usize) -> Vec<(f64, f64)> {
        let measured = |&ns: &f64| {
            let ticks = self.ticks_of(ns);
            let taken = median(trials, || {
                let begun = instructions::ticks();
                (0..BATCH).for_each(|_| self.wait_until(self.now() + ticks));
                self.ns_since(begun) / f64::from(BATCH)
            });
            (ns, taken)
        };
        asked_ns.iter().map(measured).collect()
    }

    /// The same loop without its offset subtracted: what calibration saw.
    #[must_use]
    pub fn uncorrected(mut self) -> DelayLoop {
        self.offset_ticks = 0;
        self
    }

    /// The line through the waits of calibration.
    pub fn fit(&self) -> DelayFit {
        self.fit
    }

    /// One turn of the loop, in nanoseconds: a wait ends at a turn, so it is right to half of this at best.
    pub fn step_ns(&self) -> f64 {
        self.step_ns
    }

    /// Waits as [`TickClock::wait_until`] does and counts the turns. What one takes can be measured in no other way:
    /// instructions around the counter's reading cost as much as it.
    fn turns_until(&self, deadline: u64) -> u64 {
        let mut turns = 0;
        while instructions::ticks() < deadline {
            turns += 1;
        }
        turns
    }

    fn ns_since(&self, begun: u64) -> f64 {
        instructions::ticks().saturating_sub(begun) as f64 / self.ticks_per_ns
    }
}

impl TickClock for DelayLoop {
    #[inline]
    fn now(&self) -> u64 {
        instructions::ticks()
    }

    #[inline]
    fn wait_until(&self, deadline: u64) {
        let stop = deadline.saturating_sub(self.offset_ticks);
        // Without a hint to the CPU that this is a loop: on some it pauses for longer than the times waited for.
        while instructions::ticks() < stop {}
    }

    fn ticks_per_ns(&self) -> f64 {
        self.ticks_per_ns
    }
}

/// The times that calibration waits for. A wait ends at a turn of the loop, so that what it takes rises in steps; times
/// that all lie at the same place of their steps would give the line of that place, up to half a turn off. These, one
/// in each of equal parts, have no period in common with a turn, however long it is.
fn points_ns() -> Vec<f64> {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let part = (POINTS_NS.end - POINTS_NS.start) / f64::from(POINTS);
    let place = |number: f64| number + (number * number * GOLDEN).fract();
    (0..POINTS).map(|number| POINTS_NS.start + part * place(f64::from(number))).collect()
}

/// Ticks a nanosecond, by the system's clock.
fn counter_rate() -> f64 {
    let mut clock = SystemClock::new();
    let (begun_ns, begun) = reading(&mut clock);
    loop {
        let (now_ns, now) = reading(&mut clock);
        if now_ns - begun_ns >= RATE_WINDOW_NS && now > begun {
            return (now - begun) as f64 / (now_ns - begun_ns) as f64;
        }
    }
}

/// The system's clock and the counter at the same instant: the closest pair of some readings.
fn reading(clock: &mut SystemClock) -> (u64, u64) {
    let pairs = (0..8).map(|_| {
        let before = instructions::ticks();
        let ns = clock.cpu_ns();
        let after = instructions::ticks();
        (after - before, ns, before + (after - before) / 2)
    });
    pairs.min().map_or((0, 0), |(_, ns, ticks)| (ns, ticks))
}

/// The median of `trials` measurements.
pub(crate) fn median(trials: usize, mut measure: impl FnMut() -> f64) -> f64 {
    let mut found: Vec<f64> = (0..trials.max(1)).map(|_| measure()).collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
#[path = "delay_test.rs"]
mod delay_test;
