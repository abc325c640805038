//! Bandwidth that threads share: each transfer is given the next free time of one channel.
//!
//! Source: S. Pelley, 2014, section 5.1: `next = max(next, now) + duration` by compare-and-exchange, then wait until
//! the transfer would be over. No lock; right as long as a transfer takes longer than a contended exchange, which
//! [`crate::probe::emulator`] measures.
//!
//! Invariants: transfers of one channel never overlap; no reservation is lost; an idle channel saves nothing up.

use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_crash::Mutations;

/// Parts of a tick that durations are counted in, so that many small ones are not rounded away.
const PARTS: f64 = 16.0;

/// A channel of a given bandwidth, shared by all threads.
#[derive(Debug)]
pub struct Bandwidth {
    next: Alone,
    /// Ticks before which nothing was reserved.
    origin: u64,
    parts_per_byte: f64,
    mutations: Mutations,
}

/// On cache lines of its own: every transfer of every thread changes it.
#[derive(Debug)]
#[repr(align(128))]
struct Alone(AtomicU64);

impl Bandwidth {
    /// A channel of `bytes_per_second` (above zero) from tick `origin` on.
    pub fn new(bytes_per_second: f64, ticks_per_ns: f64, origin: u64) -> Bandwidth {
        let parts_per_byte = PARTS * ticks_per_ns * 1e9 / bytes_per_second;
        Bandwidth { next: Alone(AtomicU64::new(0)), origin, parts_per_byte, mutations: Mutations::none() }
    }

    /// The same channel with rules broken.
    #[must_use]
    pub fn with_mutations(mut self, mutations: Mutations) -> Bandwidth {
        self.mutations = mutations;
        self
    }

    /// Reserves the next free time for `bytes` bytes. Returns the tick at which the transfer is over. Times are 2^60
    /// ticks from the origin at most: ten years of the fastest counter.
    #[inline]
    pub fn reserve(&self, now: u64, bytes: u64) -> u64 {
        let duration = (bytes as f64 * self.parts_per_byte).round() as u64;
        let now = now.saturating_sub(self.origin).saturating_mul(PARTS as u64);
        let end = |old: u64| {
            let free = if self.mutations.is_on("transfers wait for each other") { 0 } else { old };
            let begin = if self.mutations.is_on("idle time is not saved up") { old } else { free.max(now) };
            begin.saturating_add(duration)
        };
        let mut old = self.next.0.load(Ordering::Relaxed);
        loop {
            let new = end(old);
            // The value alone is what threads agree on; it orders nothing else.
            match self.next.0.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return self.origin.saturating_add(new.div_ceil(PARTS as u64)),
                Err(seen) => old = seen,
            }
        }
    }
}

#[cfg(test)]
#[path = "bandwidth_test.rs"]
mod bandwidth_test;
