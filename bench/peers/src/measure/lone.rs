//! One thread, one operation after the other: times are of single calls, in nanoseconds where calls are short.

use std::time::{Duration, Instant};
use tierstone_base::{Result, SeededRandom};
use tierstone_workload::{LatencySummary, Outcome, Target, Workload};

/// Puts of a batch.
const BATCH: usize = 1_000;
/// Gets between two looks at the clock.
const GETS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Put,
    Batch,
    Get,
    /// Gets of all records in their order, once.
    Warm,
}

/// Calls until the time is up, or all records are read. A batch counts as its puts; latencies are of calls, those of gets the mean of 64.
pub fn run(
    what: What,
    workload: &Workload,
    seconds: f64,
    seed: u64,
    target: &mut dyn Target,
) -> Result<Outcome> {
    let mut keys = Keys::new(workload, seed);
    let value = vec![7u8; workload.value.size.max() as usize];
    let end = Duration::from_secs_f64(seconds);
    let mut latencies_ns: Vec<u64> = Vec::new();
    let (mut operations, mut misses, mut read) = (0, 0, Vec::new());
    let started = Instant::now();
    while if what == What::Warm { operations < workload.records } else { started.elapsed() < end } {
        let count = match what {
            What::Put => 1,
            What::Batch => BATCH,
            What::Get => GETS,
            What::Warm => BATCH.min((workload.records - operations) as usize),
        };
        let keys = if what == What::Warm { keys.from(operations, count) } else { keys.next_ones(count) };
        let began = Instant::now();
        match what {
            What::Put => target.put(&keys[0], &value)?,
            What::Batch => {
                let records: Vec<(&[u8], &[u8])> =
                    keys.iter().map(|key| (key.as_slice(), value.as_slice())).collect();
                target.put_many(&records)?;
            }
            What::Warm => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                target.get_many(&keys, &mut |_, value| misses += u64::from(value.is_none()))?;
            }
            What::Get => {
                for key in keys {
                    read.clear();
                    misses += u64::from(!target.get(key, &mut read)?);
                }
            }
        }
        let calls = if what == What::Get { GETS as u64 } else { 1 };
        latencies_ns.push(began.elapsed().as_nanos() as u64 / calls);
        operations += count as u64;
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(outcome(operations, misses, seconds, latencies_ns))
}

fn outcome(operations: u64, misses: u64, seconds: f64, mut latencies_ns: Vec<u64>) -> Outcome {
    latencies_ns.sort_unstable();
    let at = |part: f64| {
        let place = ((latencies_ns.len().max(1) - 1) as f64 * part) as usize;
        latencies_ns.get(place).copied().unwrap_or(0).div_ceil(1_000)
    };
    let latency = LatencySummary {
        count: latencies_ns.len() as u64,
        p50_us: at(0.5),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: at(1.0),
        ..LatencySummary::default()
    };
    let longest_gap_us = latency.max_us;
    let rate = operations as f64 / seconds;
    Outcome { operations, misses, seconds, rate, latency, longest_gap_us, ..Outcome::default() }
}

/// Keys of existing records, uniform.
struct Keys {
    format: tierstone_workload::KeyFormat,
    records: u64,
    random: SeededRandom,
    keys: Vec<Vec<u8>>,
}

impl Keys {
    fn new(workload: &Workload, seed: u64) -> Keys {
        let random = SeededRandom::new(seed);
        Keys { format: workload.key.clone(), records: workload.records, random, keys: Vec::new() }
    }

    /// The keys of `count` records from number `first` on.
    fn from(&mut self, first: u64, count: usize) -> &[Vec<u8>] {
        self.keys.resize_with(count, Vec::new);
        for (number, key) in (first..).zip(&mut self.keys) {
            key.clear();
            self.format.append(number, key);
        }
        &self.keys
    }

    fn next_ones(&mut self, count: usize) -> &[Vec<u8>] {
        self.keys.resize_with(count, Vec::new);
        for key in &mut self.keys {
            key.clear();
            self.format.append(self.random.below(self.records), key);
        }
        &self.keys
    }
}
