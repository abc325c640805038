//! Latency histograms: HDR with three significant digits from 1 µs to 1 hour.

use hdrhistogram::Histogram;

const HIGHEST_US: u64 = 3_600_000_000;

/// Latencies in microseconds. Memory: about 200 KB each.
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
        let counts = match Histogram::<u64>::new_with_max(HIGHEST_US, 3) {
            Ok(counts) => counts,
            Err(error) => unreachable!("the range and three digits are legal: {error}"),
        };
        LatencyHistogram { counts }
    }

    /// Counts one latency; values over an hour count as an hour.
    pub fn record_us(&mut self, us: u64) {
        self.counts.saturating_record(us.min(HIGHEST_US));
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        if self.counts.add(&other.counts).is_err() {
            unreachable!("both histograms have the same range");
        }
    }

    /// The latency in microseconds below which `quantile` (0 to 1) of the counts lie.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        self.counts.value_at_quantile(quantile)
    }

    /// The largest latency counted, in microseconds.
    pub fn max_us(&self) -> u64 {
        self.counts.max()
    }

    /// The mean in microseconds; zero when empty.
    pub fn mean_us(&self) -> f64 {
        self.counts.mean()
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
        self.counts.count_between(0, us)
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
}
