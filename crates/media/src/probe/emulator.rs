//! How exact the emulator of slower memories is on this machine: its waits, and its shared bandwidth.
//!
//! Sources of both measurements: S. Pelley, 2014, section 5.1: the median of many waits beside what was asked for,
//! and the shortest reservation with which threads keep 99 % of the time reserved.

use crate::region::emulated::bandwidth::Bandwidth;
use crate::region::emulated::delay::{DelayFit, DelayLoop, TickClock};
use crate::region::{MEMORY_PROFILES, Slowness};
use serde::Serialize;
use std::sync::{Barrier, OnceLock};

/// The share of time that has to be reserved for a bandwidth to count as kept.
pub const KEPT_SHARE: f64 = 0.99;
/// Durations of reservations that are tried, in nanoseconds, long ones first.
const TRIED_NS: [u64; 12] = [2_000, 1_000, 500, 350, 250, 180, 140, 120, 90, 60, 40, 25];
/// Waits whose error is measured, in nanoseconds: at different places of the steps in which a wait ends.
const WAITS_NS: [f64; 8] = [100.0, 137.0, 173.0, 300.0, 411.0, 1_000.0, 2_345.0, 5_000.0];
/// How long threads reserve before it is looked how much they did, in nanoseconds.
const WINDOW_NS: f64 = 200e3;
/// Windows of which the best counts: the others were disturbed by what else the machine does.
const WINDOWS: usize = 40;
/// The most threads that are tried.
const THREADS_MAX: usize = 16;

/// What was measured of the emulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EmulatorReport {
    /// The line through the waits of calibration, before its offset was subtracted.
    pub fit: DelayFit,
    /// One turn of the waiting loop, in nanoseconds.
    pub step_ns: f64,
    /// The greatest difference of a wait from what was asked for, offset subtracted, from 100 ns to 5 us: in
    /// nanoseconds, of medians.
    pub worst_error_ns: f64,
    /// How many threads shared the bandwidth.
    pub threads: usize,
    /// The shortest reservation that keeps 99 % of the time reserved, in nanoseconds; `None` when none that was
    /// tried does.
    pub threshold_ns: Option<u64>,
    /// The share of the time that was reserved, by the duration of reservations.
    pub shares: Vec<ReservationShare>,
    /// Of each preset that has a bandwidth, in each direction, whether it is kept here.
    pub presets: Vec<PresetBandwidth>,
    /// Of each preset every time that it waits, and what that is here.
    pub waits: Vec<PresetWait>,
}

/// How long a preset waits for one thing, and how long that takes here.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PresetWait {
    /// The preset's name.
    pub preset: &'static str,
    /// `a line at random`, `a further line` or `a fence`.
    pub what: &'static str,
    /// What it is to take, in nanoseconds; published.
    pub asked_ns: f64,
    /// What it takes, in nanoseconds: the median of many; measured.
    pub measured_ns: f64,
    /// Whether these differ by no more than a quarter: a wait is never shorter than a turn of the loop and two looks at the clock.
    pub is_kept: bool,
}

/// Whether a preset's bandwidth is kept when all threads together move single granules.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PresetBandwidth {
    /// The preset's name.
    pub preset: &'static str,
    /// `reading` or `writing`.
    pub direction: &'static str,
    /// Its bandwidth in order, in bytes a second; published.
    pub bytes_per_second: f64,
    /// What is moved at once, in bytes.
    pub granule_bytes: u64,
    /// How long one granule reserves, in nanoseconds.
    pub granule_ns: f64,
    /// Whether that is no shorter than the threshold.
    pub is_kept: bool,
    /// The least bytes a call that keep it, whole granules; `None` when no reservation that was tried is kept.
    pub kept_from_bytes: Option<u64>,
}

/// How much of the time threads kept reserved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReservationShare {
    /// The duration of each reservation, in nanoseconds.
    pub reserved_ns: u64,
    /// Of the time: 0 to about 1.
    pub share: f64,
}

impl EmulatorReport {
    /// The greatest bandwidth that lines of `bytes` bytes keep, in bytes a second.
    pub fn bandwidth_kept(&self, bytes: u64) -> Option<f64> {
        self.threshold_ns.map(|ns| bytes as f64 * 1e9 / ns as f64)
    }
}

/// Measures the emulator with as many threads as there are processors, at most 16. Takes up to half a second.
pub fn examine_emulator() -> EmulatorReport {
    let delay = DelayLoop::of_machine();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let shares: Vec<ReservationShare> = TRIED_NS
        .iter()
        .map(|&reserved_ns| ReservationShare { reserved_ns, share: reserved_share(threads, reserved_ns) })
        .collect();
    let error = |(asked, measured): (f64, f64)| (measured - asked).abs();
    EmulatorReport {
        fit: delay.fit(),
        step_ns: delay.step_ns(),
        worst_error_ns: delay.measure(&WAITS_NS).into_iter().map(error).fold(0.0, f64::max),
        threads,
        threshold_ns: threshold(&shares),
        presets: presets(threshold(&shares)),
        waits: waits(|ns| delay.measure(&[ns]).first().map_or(0.0, |(_, measured)| *measured)),
        shares,
    }
}

/// What each preset's waits are where one of so many nanoseconds takes `measure` of them.
pub fn waits(mut measure: impl FnMut(f64) -> f64) -> Vec<PresetWait> {
    let mut found: Vec<PresetWait> = Vec::new();
    for profile in MEMORY_PROFILES.iter() {
        let Some(slowness) = profile.slowness() else { continue };
        let parts = [
            ("a line at random", slowness.random_read_ns),
            ("a further line", slowness.sequential_read_ns),
            ("a fence", slowness.persist_ns),
        ];
        for (what, asked_ns) in parts {
            let Some(asked_ns) = asked_ns else { continue };
            // Many presets wait alike.
            let before = found.iter().find(|wait| wait.asked_ns == asked_ns).map(|wait| wait.measured_ns);
            let measured_ns = before.unwrap_or_else(|| measure(asked_ns));
            let is_kept = (measured_ns - asked_ns).abs() <= asked_ns / 4.0;
            found.push(PresetWait { preset: profile.name, what, asked_ns, measured_ns, is_kept });
        }
    }
    found
}

/// What the threshold means for each preset.
pub fn presets(threshold_ns: Option<u64>) -> Vec<PresetBandwidth> {
    let of = |preset: &'static str, slowness: &Slowness, direction: &'static str, rate: Option<f64>| {
        let (granule_bytes, bytes_per_second) = (slowness.granule_bytes, rate?);
        let granule_ns = granule_bytes as f64 * 1e9 / bytes_per_second;
        let least = |ns: u64| (ns as f64 / granule_ns).ceil().max(1.0) as u64 * granule_bytes;
        Some(PresetBandwidth {
            preset,
            direction,
            bytes_per_second,
            granule_bytes,
            granule_ns,
            is_kept: threshold_ns.is_some_and(|ns| granule_ns >= ns as f64),
            kept_from_bytes: threshold_ns.map(least),
        })
    };
    let slow = MEMORY_PROFILES.iter().filter_map(|profile| Some((profile.name, profile.slowness()?)));
    slow.flat_map(|(name, slowness)| {
        [
            of(name, &slowness, "reading", slowness.read_bytes_per_second),
            of(name, &slowness, "writing", slowness.write_bytes_per_second),
        ]
    })
    .flatten()
    .collect()
}

/// The shortest reservation that keeps its share. What a reservation costs beside its time does not depend on its
/// length, so longer ones keep theirs too: one that did not was disturbed.
pub fn threshold(shares: &[ReservationShare]) -> Option<u64> {
    let kept = shares.iter().filter(|tried| tried.share >= KEPT_SHARE);
    kept.map(|tried| tried.reserved_ns).min()
}

/// What share of the time `threads` threads keep one channel reserved that each reserves for `reserved_ns`
/// nanoseconds again and again: the best of some short windows in which all of them ran. 0 when there was none.
pub fn reserved_share(threads: usize, reserved_ns: u64) -> f64 {
    (0..WINDOWS).filter_map(|_| window(threads.max(1), reserved_ns)).fold(0.0, f64::max)
}

/// `None` when a thread did less than half of its part: the machine was busy with something else.
fn window(threads: usize, reserved_ns: u64) -> Option<f64> {
    let clock = DelayLoop::of_machine();
    // A byte is a nanosecond.
    let channel = Bandwidth::new(1e9, clock.ticks_per_ns(), clock.now());
    let (ready, begin) = (Barrier::new(threads), OnceLock::new());
    let length = clock.ticks_of(WINDOW_NS);
    let reserve = || {
        ready.wait();
        let begun = *begin.get_or_init(|| clock.now());
        let (mut count, mut now) = (0, clock.now());
        while now.saturating_sub(begun) < length {
            clock.wait_until(channel.reserve(now, reserved_ns));
            count += 1;
            now = clock.now();
        }
        (count, now.saturating_sub(begun))
    };
    let done: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(reserve)).collect();
        started.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let total: u64 = done.iter().map(|thread| thread.0).sum();
    let least = done.iter().map(|thread| thread.0).min()?;
    let took = done.iter().map(|thread| thread.1).max().filter(|&ticks| ticks > 0)?;
    let reserved = (total * reserved_ns) as f64 * clock.ticks_per_ns();
    (2 * least * threads as u64 >= total).then(|| reserved / took as f64)
}

#[cfg(test)]
#[path = "emulator_test.rs"]
mod emulator_test;
