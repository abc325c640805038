//! Latency histograms: HDR with three significant digits from 1 ns to 1 hour, and a few fixed buckets for
//! what is always counted.

use hdrhistogram::Histogram;

const HIGHEST_NS: u64 = 3_600_000_000_000;
const US_NS: u64 = 1_000;

/// Latencies, recorded in nanoseconds or in whole microseconds, as the caller's clock tells them. Memory: up to 270 KB each.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    counts: Histogram<u64>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyHistogram {
    /// An empty histogram.
    pub fn new() -> Self {
        let counts = match Histogram::<u64>::new_with_max(HIGHEST_NS, 3) {
            Ok(counts) => counts,
            Err(error) => unreachable!("the range and three digits are legal: {error}"),
        };
        LatencyHistogram { counts }
    }

    /// Counts one latency; values over an hour count as an hour.
    pub fn record_us(&mut self, us: u64) {
        self.record_ns(us.saturating_mul(US_NS));
    }

    /// Counts one latency; values over an hour count as an hour.
    pub fn record_ns(&mut self, ns: u64) {
        self.counts.saturating_record(ns.min(HIGHEST_NS));
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        if self.counts.add(&other.counts).is_err() {
            unreachable!("both histograms have the same range");
        }
    }

    /// The latency below which `quantile` (0 to 1) of the counts lie, in whole microseconds, rounded down.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        self.quantile_ns(quantile) / US_NS
    }

    /// The latency below which `quantile` (0 to 1) of the counts lie, in nanoseconds.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.counts.value_at_quantile(quantile)
    }

    /// The largest latency counted, in whole microseconds, rounded down.
    pub fn max_us(&self) -> u64 {
        self.max_ns() / US_NS
    }

    /// The largest latency counted, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.counts.max()
    }

    /// The mean in microseconds; zero when empty.
    pub fn mean_us(&self) -> f64 {
        self.counts.mean() / US_NS as f64
    }

    /// How many latencies were counted.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Forgets all counts, keeps the memory.
    pub fn clear(&mut self) {
        self.counts.reset();
    }

    /// How many counts lie at or below `us`: one cumulative bucket of a Prometheus histogram.
    pub fn count_at_or_below(&self, us: u64) -> u64 {
        self.counts.count_between(0, us.saturating_mul(US_NS))
    }
}

/// The upper bounds of [`LatencyBuckets`], in microseconds; what is longer counts in one more.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000,
];

/// Latencies in fixed buckets: 144 bytes, for stages that are always measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyBuckets {
    counts: [u64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: u64,
}

impl LatencyBuckets {
    /// Counts one latency. Cost: a few nanoseconds.
    #[inline]
    pub fn record_us(&mut self, us: u64) {
        let bucket = LATENCY_BOUNDS_US.iter().take_while(|bound| us > **bound).count();
        self.counts[bucket] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// How many latencies were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Each bound in microseconds, with how many latencies were at most as long.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts;
        let mut total = 0;
        LATENCY_BOUNDS_US.into_iter().zip(counts).map(move |(bound, count)| {
            total += count;
            (bound, total)
        })
    }
}

impl std::ops::AddAssign for LatencyBuckets {
    fn add_assign(&mut self, other: LatencyBuckets) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut histogram = LatencyHistogram::new();
        for us in 1..=100_000 {
            histogram.record_us(us);
        }
        let median = histogram.quantile_us(0.5) as f64;
        assert!((median - 50_000.0).abs() <= 51.0, "{median}");
        assert_eq!(histogram.count(), 100_000);
        let mut both = histogram.clone();
        both.merge(&histogram);
        assert_eq!(both.count(), 200_000);
    }

    #[test]
    fn what_is_shorter_than_a_microsecond_is_told_apart() {
        let mut histogram = LatencyHistogram::new();
        [310, 320, 630, 640, 2_040].iter().for_each(|ns| histogram.record_ns(*ns));
        assert_eq!(
            (histogram.quantile_ns(0.4), histogram.quantile_ns(0.6), histogram.max_ns()),
            (320, 630, 2_040)
        );
        assert_eq!((histogram.quantile_us(0.6), histogram.max_us()), (0, 2));
        assert!((histogram.mean_us() - 0.788).abs() < 1e-9, "{}", histogram.mean_us());
    }

    #[test]
    fn whole_microseconds_come_back_as_they_were_recorded() {
        for us in [0, 1, 7, 100, 999, 1_023] {
            let mut histogram = LatencyHistogram::new();
            histogram.record_us(us);
            assert_eq!((histogram.quantile_us(0.5), histogram.max_us()), (us, us));
            assert_eq!(histogram.count_at_or_below(us), 1);
        }
        let mut histogram = LatencyHistogram::new();
        histogram.record_us(u64::MAX);
        assert!(histogram.max_us() >= 3_600_000_000, "{}", histogram.max_us());
    }

    #[test]
    fn a_latency_counts_in_every_bucket_that_is_as_long() {
        let mut buckets = LatencyBuckets::default();
        for us in [0, 10, 11, 999, 1_000, 5_000_000] {
            buckets.record_us(us);
        }
        let cumulative: Vec<(u64, u64)> = buckets.cumulative().collect();
        assert_eq!(cumulative[0], (10, 2));
        assert_eq!(cumulative[1], (20, 3));
        assert_eq!(cumulative[6], (1_000, 5));
        assert_eq!(cumulative[15], (1_000_000, 5), "what is longer counts in the total only");
        assert_eq!((buckets.count(), buckets.sum_us()), (6, 5_002_020));
    }
}
