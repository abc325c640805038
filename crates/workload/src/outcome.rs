//! What came of a run.
//!
//! Latencies are in microseconds, from the intended time in an open loop and from the sending in a
//! closed one, to the reply's arrival; percentiles have three significant digits. What comes over a network is told in whole
//! microseconds ([`LatencySummary`]), calls that may be shorter with parts of them ([`CallSummary`]).

use std::collections::BTreeMap;

use serde::Serialize;
use tierstone_base::histogram::LatencyHistogram;

use crate::mix::OperationKind;

/// A histogram in a few numbers, all in whole microseconds but for the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Latencies counted.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Half lie at or below.
    pub p50_us: u64,
    /// 90 % lie at or below.
    pub p90_us: u64,
    /// 99 % lie at or below.
    pub p99_us: u64,
    /// 99.9 % lie at or below.
    pub p999_us: u64,
    /// The largest.
    pub max_us: u64,
}

impl From<&LatencyHistogram> for LatencySummary {
    fn from(histogram: &LatencyHistogram) -> Self {
        LatencySummary {
            count: histogram.count(),
            mean_us: histogram.mean_us(),
            p50_us: histogram.quantile_us(0.5),
            p90_us: histogram.quantile_us(0.9),
            p99_us: histogram.quantile_us(0.99),
            p999_us: histogram.quantile_us(0.999),
            max_us: histogram.max_us(),
        }
    }
}

/// The same in microseconds with parts: of latencies that were recorded in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CallSummary {
    /// Latencies counted.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Half lie at or below.
    pub p50_us: f64,
    /// 90 % lie at or below.
    pub p90_us: f64,
    /// 99 % lie at or below.
    pub p99_us: f64,
    /// 99.9 % lie at or below.
    pub p999_us: f64,
    /// The largest.
    pub max_us: f64,
}

impl From<&LatencyHistogram> for CallSummary {
    fn from(histogram: &LatencyHistogram) -> Self {
        let quantile_us = |quantile| histogram.quantile_ns(quantile) as f64 / 1e3;
        CallSummary {
            count: histogram.count(),
            mean_us: histogram.mean_us(),
            p50_us: quantile_us(0.5),
            p90_us: quantile_us(0.9),
            p99_us: quantile_us(0.99),
            p999_us: quantile_us(0.999),
            max_us: histogram.max_ns() as f64 / 1e3,
        }
    }
}

/// One kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct KindOutcome {
    /// Operations answered, errors included.
    pub operations: u64,
    /// Their latencies.
    pub latency: LatencySummary,
    /// The latencies themselves, for plots and for merging runs.
    #[serde(skip)]
    pub histogram: LatencyHistogram,
}

/// What came of a run, warm-up excluded.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Operations answered, errors included.
    pub operations: u64,
    /// Operations answered with an error.
    pub errors: u64,
    /// The first error's text.
    pub first_error: Option<String>,
    /// Operations sent and never answered (connection lost, or time up), warm-up included.
    pub unanswered: u64,
    /// Records read that were not there.
    pub misses: u64,
    /// Values read that were not what was written for their key.
    pub verification_failures: u64,
    /// From the end of the warm-up to the last reply.
    pub seconds: f64,
    /// Operations answered a second.
    pub rate: f64,
    /// Open loop: the rate asked for.
    pub rate_intended: Option<f64>,
    /// Open loop: by how much the rate differs, as a part of the intended one. A Poisson run of `n`
    /// operations differs by about `1/sqrt(n)` by chance; beyond that the server did not keep up.
    pub rate_error: Option<f64>,
    /// Latencies of all kinds.
    pub latency: LatencySummary,
    /// By kind, only those that occurred.
    pub kinds: BTreeMap<OperationKind, KindOutcome>,
    /// Open loop: how late operations were sent, against their intended times.
    pub send_delay: Option<LatencySummary>,
    /// Open loop of a library's calls: latencies from the call instead of from when it was due, as tools without a schedule
    /// count them. Of a thread that is late these tell what the store did, the others what a user would have seen.
    pub call_latency: Option<LatencySummary>,
    /// The longest time that a thread awaited replies and none came, in microseconds.
    pub longest_gap_us: u64,
    /// Bytes sent, warm-up included.
    pub bytes_sent: u64,
    /// Bytes received, warm-up included.
    pub bytes_received: u64,
    /// Processor time of the generator's threads for each operation answered, in microseconds.
    pub client_cpu_us_per_operation: f64,
    /// Why the run ended before its time; `None` when it did not.
    pub ended_early: Option<String>,
}

impl Outcome {
    /// Whether every operation was answered, without error, and every value read was right. Misses are
    /// not counted: whether they are faults, the caller knows.
    pub fn is_clean(&self) -> bool {
        self.errors == 0
            && self.unanswered == 0
            && self.verification_failures == 0
            && self.ended_early.is_none()
    }
}
