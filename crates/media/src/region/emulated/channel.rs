//! One direction of a memory: its bandwidth in whole granules, and the lower one of granules that follow nothing.
//!
//! A published memory is several times slower at random places than in order. An access is in order where it begins in
//! a granule in which an earlier access ended, or in the one behind; of the ends of accesses some hundred are
//! remembered, so that threads that each go their own way in order stay in order. Where it is not, its first granule takes
//! longer, and the others follow it.

use super::bandwidth::Bandwidth;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ends of accesses that are remembered, each at one place by its granule; a power of two.
const ENDS: usize = 256;

#[derive(Debug)]
pub(super) struct Channel {
    bandwidth: Bandwidth,
    granule_bytes: u64,
    /// For how many granules in order the first one of an access at a random place counts.
    random_weight: f64,
    /// Of each place the granule in which an access ended, plus one. None where random places are no slower.
    ends: Vec<AtomicU64>,
}

impl Channel {
    /// The channel of these bytes a second, in order and at random places; `None` when neither is known. Where one is
    /// not, it is as the other.
    pub fn new(
        rate: Option<f64>,
        random_rate: Option<f64>,
        granule_bytes: u64,
        ticks_per_ns: f64,
        origin: u64,
    ) -> Option<Channel> {
        let in_order = rate.or(random_rate)?;
        let random_weight = random_rate.map_or(1.0, |random| in_order / random);
        let ends = if random_weight == 1.0 { 0 } else { ENDS };
        Some(Channel {
            bandwidth: Bandwidth::new(in_order, ticks_per_ns, origin),
            granule_bytes,
            random_weight,
            ends: (0..ends).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Reserves time for `bytes` bytes, whole granules, of which the first one holds byte `first` and the last one byte
    /// `last`. Returns the tick at which they are over.
    pub fn reserve(&self, now: u64, bytes: u64, first: u64, last: u64) -> u64 {
        let is_random = self.is_random(first / self.granule_bytes, last / self.granule_bytes);
        let more = if is_random { (self.random_weight - 1.0) * self.granule_bytes as f64 } else { 0.0 };
        self.bandwidth.reserve(now, (bytes as f64 + more).round() as u64)
    }

    /// Whether an access of these granules follows no other. It may be followed itself.
    fn is_random(&self, first: u64, last: u64) -> bool {
        let place = |granule: u64| self.ends.get(granule as usize & (ENDS - 1));
        let ended_in = |granule: u64| {
            // The value alone counts; a lost race makes one access random.
            place(granule).is_some_and(|end| end.load(Ordering::Relaxed) == granule + 1)
        };
        let follows = ended_in(first) || first.checked_sub(1).is_some_and(ended_in);
        if let Some(end) = place(last) {
            end.store(last + 1, Ordering::Relaxed);
        }
        !follows && !self.ends.is_empty()
    }
}
