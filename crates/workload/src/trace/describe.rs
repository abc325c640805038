//! What a trace is like: its operations, rates, keys and sizes.
//!
//! Memory: some 40 bytes for each distinct key.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{TraceOperation, TraceRecord};

/// Spans of time whose rates are told, at most.
const SPANS_MAX: usize = 120;
const SECOND_US: u64 = 1_000_000;
/// Terms of Zipf's sum that are added one by one.
const TERMS_EXACT: u64 = 1_000;
/// The largest skew that is looked for.
const THETA_MAX: f64 = 4.0;

/// Collects records, then describes them.
#[derive(Debug)]
pub struct Describer {
    operations: BTreeMap<String, u64>,
    keys: BTreeMap<u64, KeyFacts>,
    last_us: u64,
    spans: Vec<u64>,
    span_us: u64,
    key_sizes: BTreeMap<u32, u64>,
    value_sizes: BTreeMap<u32, u64>,
    expiring: u64,
    misses: u64,
    records: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct KeyFacts {
    asked: u64,
    key_bytes: u32,
    value_bytes: Option<u32>,
    is_written: bool,
}

/// What a trace is like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceFacts {
    /// Operations, of which those that cannot be replayed are a part.
    pub operations: u64,
    /// By their names.
    pub by_operation: BTreeMap<String, u64>,
    /// From the first to the last.
    pub seconds: f64,
    /// Operations a second, all over; `None` for a trace without length.
    pub rate: Option<f64>,
    /// How long a span of `rates` is.
    pub span_seconds: f64,
    /// Operations a second in each span, in order. The last one ends with the last operation; what is shorter than a tenth
    /// of a span counts as one.
    pub rates: Vec<f64>,
    /// Reads that found nothing, as far as the trace tells.
    pub misses: u64,
    /// Writes with an expiry, and changes of expiries.
    pub expiring: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Of these, keys that are never written.
    pub keys_never_written: u64,
    /// Bytes of all distinct keys and their values, where both are known: what would have to be in memory for every read
    /// to be answered from there.
    pub working_set_bytes: u64,
    /// Keys whose value's size is not known.
    pub keys_of_unknown_size: u64,
    /// The part of the operations that goes to the hundredth of the keys that is asked for most.
    pub share_of_hottest_hundredth: f64,
    /// The skew of the Zipf distribution under which these counts are likeliest; `None` for less than three keys or a trace
    /// in which no key comes twice.
    pub zipf_theta: Option<f64>,
    /// Keys by their sizes: up to so many bytes, how many operations.
    pub key_sizes: Vec<(u32, u64)>,
    /// Values that are written, or found, likewise.
    pub value_sizes: Vec<(u32, u64)>,
}

impl Default for Describer {
    fn default() -> Self {
        Describer {
            operations: BTreeMap::new(),
            keys: BTreeMap::new(),
            last_us: 0,
            spans: Vec::new(),
            span_us: SECOND_US,
            key_sizes: BTreeMap::new(),
            value_sizes: BTreeMap::new(),
            expiring: 0,
            misses: 0,
            records: 0,
        }
    }
}

impl Describer {
    /// Takes the next record.
    pub fn push(&mut self, record: &TraceRecord) {
        let facts = self.keys.entry(record.key.number(record.database)).or_default();
        facts.key_bytes = record.key.size_bytes();
        facts.value_bytes = record.value_bytes.or(facts.value_bytes);
        if record.operation == TraceOperation::Size {
            return;
        }
        facts.asked += 1;
        facts.is_written |= matches!(record.operation, TraceOperation::Write | TraceOperation::Add);
        self.records += 1;
        self.last_us = self.last_us.max(record.time_us);
        self.misses += u64::from(record.is_miss);
        self.expiring += u64::from(record.expiry_ms.is_some());
        *self.operations.entry(record.operation.name().to_owned()).or_insert(0) += 1;
        *self.key_sizes.entry(step_above(record.key.size_bytes())).or_insert(0) += 1;
        if let Some(bytes) = record.value_bytes {
            *self.value_sizes.entry(step_above(bytes)).or_insert(0) += 1;
        }
        self.count_in_span(record.time_us);
    }

    fn count_in_span(&mut self, time_us: u64) {
        while time_us / self.span_us >= SPANS_MAX as u64 {
            self.span_us = self.span_us.saturating_mul(2);
            self.spans = self.spans.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        let span = (time_us / self.span_us) as usize;
        if self.spans.len() <= span {
            self.spans.resize(span + 1, 0);
        }
        self.spans[span] += 1;
    }

    fn rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> =
            self.spans.iter().map(|&count| count as f64 * 1e6 / self.span_us as f64).collect();
        if let (Some(last), Some(&count)) = (rates.last_mut(), self.spans.last()) {
            let covered_us = self.last_us - (self.spans.len() as u64 - 1) * self.span_us;
            *last = count as f64 * 1e6 / covered_us.clamp(self.span_us / 10, self.span_us) as f64;
        }
        rates
    }

    /// All of it. Cost: sorting the counts of the keys.
    pub fn facts(&self) -> TraceFacts {
        let mut counts: Vec<u64> =
            self.keys.values().map(|facts| facts.asked).filter(|asked| *asked > 0).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let seconds = self.last_us as f64 / 1e6;
        let span_seconds = self.span_us as f64 / 1e6;
        let hottest: u64 = counts.iter().take(counts.len().div_ceil(100)).sum();
        let known = |facts: &&KeyFacts| facts.value_bytes.is_some();
        let bytes = |facts: &KeyFacts| u64::from(facts.key_bytes) + u64::from(facts.value_bytes.unwrap_or(0));
        TraceFacts {
            operations: self.records,
            by_operation: self.operations.clone(),
            seconds,
            rate: (seconds > 0.0).then(|| self.records as f64 / seconds),
            span_seconds,
            rates: self.rates(),
            misses: self.misses,
            expiring: self.expiring,
            keys: counts.len() as u64,
            keys_never_written: self.keys.values().filter(|facts| !facts.is_written).count() as u64,
            working_set_bytes: self.keys.values().filter(known).map(bytes).sum(),
            keys_of_unknown_size: self.keys.values().filter(|facts| !known(facts)).count() as u64,
            share_of_hottest_hundredth: hottest as f64 / self.records.max(1) as f64,
            zipf_theta: zipf_theta(&counts),
            key_sizes: self.key_sizes.iter().map(|(bytes, count)| (*bytes, *count)).collect(),
            value_sizes: self.value_sizes.iter().map(|(bytes, count)| (*bytes, *count)).collect(),
        }
    }
}

/// The power of two at or above `bytes`; 0 for 0.
fn step_above(bytes: u32) -> u32 {
    if bytes == 0 { 0 } else { bytes.checked_next_power_of_two().unwrap_or(u32::MAX) }
}

/// The skew of greatest likelihood for keys that were asked for so often, the most frequent first: the rank of a key is
/// taken to be the one that its count gives it, which makes small traces look somewhat more skewed than they are.
pub fn zipf_theta(counts: &[u64]) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if counts.len() < 3 || total == counts.len() as u64 {
        return None;
    }
    let weighted: f64 =
        counts.iter().enumerate().map(|(rank, count)| *count as f64 * ((rank + 1) as f64).ln()).sum();
    let likelihood = |theta: f64| -theta * weighted - total as f64 * zeta(counts.len() as u64, theta).ln();
    // It has one maximum: thirds that do not hold it are cut off.
    let (mut low, mut high) = (0.0, THETA_MAX);
    for _ in 0..60 {
        let third = (high - low) / 3.0;
        match likelihood(low + third) < likelihood(high - third) {
            true => low += third,
            false => high -= third,
        }
    }
    Some((low + high) / 2.0)
}

/// The sum of `rank^-theta` over `ranks`: the first one by one, the rest by the formula of Euler and Maclaurin.
fn zeta(ranks: u64, theta: f64) -> f64 {
    let height = |rank: u64| (-theta * (rank as f64).ln()).exp();
    let exact = ranks.min(TERMS_EXACT);
    let sum: f64 = (1..=exact).map(height).sum();
    if exact == ranks {
        return sum;
    }
    let area = |rank: u64| {
        let log = (rank as f64).ln();
        if (theta - 1.0).abs() < 1e-9 { log } else { ((1.0 - theta) * log).exp() / (1.0 - theta) }
    };
    sum + area(ranks) - area(exact) + (height(ranks) - height(exact)) / 2.0
}
