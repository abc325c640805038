//! FAWN-DS, the latency of gets while a store is split, merged and compacted.
//!
//! One thread drives both stores through the local handle: between two steps of the operation it answers the
//! gets that are due. What is measured is what a server's thread would show its clients.

use crate::experiment::{Experiment, Kind, Published, Size};
use crate::phases::{self, HIGH, LOW, Phase, Seen};
use crate::raw::probe;
use crate::run::Run;
use crate::target::{KEY_BYTES, LocalTarget, StoreChoice, records};
use tierstone::Store;
use tierstone_base::histogram::LatencyHistogram;
use tierstone_base::units::format_size;
use tierstone_base::{Clock, Error, ErrorKind, Result, SeededRandom, SystemClock};
use tierstone_workload::KeyFormat;

const MIB: u64 = 1 << 20;
const VALUE_BYTES: u32 = 1024;
/// Gets that are read together at most.
const CALLERS: usize = 16;
/// Times that so many are read between two steps of an operation, at most.
const ROUNDS_MAX: usize = 64;
/// The upper half of the slots.
const MOVED_SLOTS: std::ops::RangeInclusive<u16> = 8_192..=16_383;

const NAMES: [&str; 4] = [
    "median in a Split, of alone (low load)",
    "p90 in a Split, of alone (low load)",
    "p99.9 in a Split, of alone (low load)",
    "p99.9 in a Split (high load), of gets at the highest rate",
];
const PUBLISHED: [Published; 4] = phases::published(
    NAMES,
    [
        "whether a Split leaves the usual get alone",
        "whether a Split is felt by one get in ten, at most as much as published",
        "the tail that a Split makes, at most as long as published",
        "the tail that a Split makes under load, at most as long as published",
    ],
);

/// Figure 4.6 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fawn-ds-split",
    title: "FAWN-DS: the latency of gets in Split, Merge and Compact",
    source: "Vasudevan 2011 (CMU-CS-11-131), Figure 4.6 and section 4.2.1",
    measures: "Gets of 1 KB through the local handle, up to 16 read together, most from the device: at the highest \
               rate (closed loop), and in open loops at 35 % and 70 % of it (published: 500 and 1,500 a \
               second, with about 1,424 at most); latency counts from the time at which a get was meant to be sent. \
               Alone; while half of the store is split off, merged back, and the store compacted. The same thread \
               moves the records and answers the gets. Published latencies include a network.",
    kind: Kind::Measured,
    published: &PUBLISHED,
    series: &[],
    space_bytes,
    run,
};

/// What goes on while gets are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Split,
    Merge,
    Compact,
}

const SPLIT_LOW: usize = 3;
const SPLIT_HIGH: usize = 6;
const PHASES: &[Phase<Beside>] = &[
    Phase { name: "gets alone, highest rate", rate_share: None, beside: Beside::Nothing },
    Phase { name: "gets alone, low load", rate_share: LOW, beside: Beside::Nothing },
    Phase { name: "gets alone, high load", rate_share: HIGH, beside: Beside::Nothing },
    Phase { name: "in a Split, low load", rate_share: LOW, beside: Beside::Split },
    Phase { name: "in a Merge, low load", rate_share: LOW, beside: Beside::Merge },
    Phase { name: "in a Compact, low load", rate_share: LOW, beside: Beside::Compact },
    Phase { name: "in a Split, high load", rate_share: HIGH, beside: Beside::Split },
];

fn store_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 4 * MIB,
        Size::Quick => 128 * MIB,
        Size::Full => 2048 * MIB,
    }
}

fn segment_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 128 << 10,
        Size::Quick => 2 * MIB,
        Size::Full => 8 * MIB,
    }
}

/// Room for the records twice over: what was split off is garbage until it is compacted.
fn capacity_bytes(size: Size) -> u64 {
    store_bytes(size) * 3 + 16 * segment_bytes(size)
}

fn space_bytes(size: Size) -> u64 {
    2 * capacity_bytes(size) + 64 * MIB
}

/// The gets, and what became of them in one phase.
struct Gets {
    clock: SystemClock,
    key: KeyFormat,
    records: u64,
    random: SeededRandom,
    interval_us: Option<f64>,
    due_us: f64,
    began_us: u64,
    latency: LatencyHistogram,
    /// Why it ended early.
    error: Option<Error>,
}

impl Gets {
    fn now_us(&self) -> u64 {
        self.clock.now().monotonic_us
    }

    /// A phase of `rate` gets a second; `None`: as fast as they are answered.
    fn begin(&mut self, rate: Option<f64>) {
        self.interval_us = rate.map(|rate| 1e6 / rate);
        self.began_us = self.now_us();
        self.due_us = self.began_us as f64;
        self.latency = LatencyHistogram::default();
    }

    /// Answers what is due, before the operation goes on: from `first`, or from `second` what has moved
    /// there. Keeps the first error. Where more becomes due than is answered meanwhile, the operation goes on
    /// nevertheless, and latencies grow until it has come to its end.
    fn serve(&mut self, first: &mut Store, mut second: Option<&mut Store>) {
        for _ in 0..ROUNDS_MAX {
            if self.error.is_some() {
                return;
            }
            match self.answer(first, second.as_deref_mut()) {
                Ok(answered) if answered > 0 && self.interval_us.is_some() => {}
                Ok(_) => return,
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Answers up to [`CALLERS`] gets that are due; gives how many.
    fn answer(&mut self, first: &mut Store, second: Option<&mut Store>) -> Result<usize> {
        let now_us = self.now_us();
        let mut meant_us = Vec::with_capacity(CALLERS);
        while meant_us.len() < CALLERS {
            match self.interval_us {
                None => meant_us.push(now_us),
                Some(_) if self.due_us > now_us as f64 => break,
                Some(interval_us) => {
                    meant_us.push(self.due_us as u64);
                    self.due_us += interval_us;
                }
            }
        }
        if meant_us.is_empty() {
            return Ok(0);
        }
        let keys: Vec<Vec<u8>> =
            meant_us.iter().map(|_| self.key.key(self.random.below(self.records))).collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut found: Vec<bool> = first.get_many(&borrowed)?.iter().map(Option::is_some).collect();
        if let Some(second) = second {
            let absent: Vec<usize> = (0..keys.len()).filter(|&place| !found[place]).collect();
            let moved: Vec<&[u8]> = absent.iter().map(|&place| borrowed[place]).collect();
            for (place, value) in absent.into_iter().zip(second.get_many(&moved)?) {
                found[place] = value.is_some();
            }
        }
        let done_us = self.now_us();
        meant_us.iter().for_each(|meant_us| self.latency.record_us(done_us.saturating_sub(*meant_us)));
        match found.iter().all(|found| *found) {
            true => Ok(meant_us.len()),
            false => Err(Error::new(ErrorKind::Corrupt, "a key was in neither store")),
        }
    }
}

/// What was seen of what went on beside the gets.
struct Operation {
    seconds: f64,
    moved_bytes: u64,
    lock_us: u64,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    let size = run.pick(Size::Tiny, Size::Quick, Size::Full);
    run.expect_steps(2 + PHASES.len() as u32);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let count = store_bytes(size) / (u64::from(VALUE_BYTES) + KEY_BYTES);
    // An eighth of the data, so that most gets go to the device; the tiny run only shows that it runs.
    let cache_bytes = if size == Size::Tiny { 2 * store_bytes(size) } else { store_bytes(size) / 8 };
    run.set("records", count);
    run.set("memory for records", format_size(cache_bytes));
    let workload = records(count, VALUE_BYTES);
    run.step("loading the store")?;
    let choice = StoreChoice {
        capacity_bytes: Some(capacity_bytes(size)),
        segment_bytes: segment_bytes(size),
        ..StoreChoice::with_cache(cache_bytes, count, 1, method)
    };
    let mut source = LocalTarget::open(&choice, &run.folder().join("source"))?;
    let mut target = LocalTarget::open(&choice, &run.folder().join("target"))?;
    run.load(&workload, 0..count, 1_024, &mut source)?;
    source.settle(run)?;
    let mut gets = Gets {
        clock: run.clock(),
        key: workload.key.clone(),
        records: count,
        random: SeededRandom::new(run.next_seed()),
        interval_us: None,
        due_us: 0.0,
        began_us: 0,
        latency: LatencyHistogram::default(),
        error: None,
    };
    let seen = phases::measure_all(run, PHASES, |run, beside, rate| {
        gets.begin(rate);
        let (moved_bytes, lock_us) = operate(run, beside, &mut gets, source.store(), target.store())?;
        if let Some(error) = gets.error.take() {
            return Err(error);
        }
        let seconds = (gets.now_us() - gets.began_us) as f64 / 1e6;
        let latency = gets.latency.clone();
        let beside = Operation { seconds, moved_bytes, lock_us };
        Ok(Seen { meant: rate, rate: latency.count() as f64 / seconds, latency, beside })
    })?;
    phases::compare(run, NAMES, &seen, (SPLIT_LOW, SPLIT_HIGH), |with| {
        format!("{} moved in {:.1} s", format_size(with.beside.moved_bytes), with.beside.seconds)
    })?;
    let more = ["seconds", "MB moved", "writes refused for µs"];
    phases::report(run, PHASES, &seen, more, |seen| {
        let Operation { seconds, moved_bytes, lock_us } = seen.beside;
        [seconds.into(), (moved_bytes as f64 / 1e6).into(), lock_us.into()]
    });
    Ok(())
}

/// Does what the phase is about, with gets between its steps; gives the bytes moved, and how long writes
/// would have been refused.
fn operate(
    run: &mut Run<'_>,
    beside: Beside,
    gets: &mut Gets,
    source: &mut Store,
    target: &mut Store,
) -> Result<(u64, u64)> {
    match beside {
        Beside::Nothing => {
            let until_us = gets.began_us + (run.pick(0.1, 2.0, 20.0) * 1e6) as u64;
            while gets.now_us() < until_us && gets.error.is_none() {
                gets.serve(source, None);
                source.turn()?;
            }
            Ok((0, 0))
        }
        Beside::Split => {
            let report =
                source.split_to(target, MOVED_SLOTS, |source, target, _| gets.serve(source, Some(target)))?;
            Ok((report.bytes, report.lock.as_micros() as u64))
        }
        Beside::Merge => {
            let report = source.merge_from(target, |source, target, _| gets.serve(source, Some(target)))?;
            Ok((report.bytes, report.lock.as_micros() as u64))
        }
        Beside::Compact => {
            let before = source.statistics().cleaned_bytes_written;
            source.compact(|source, _| gets.serve(source, None))?;
            Ok((source.statistics().cleaned_bytes_written - before, 0))
        }
    }
}

#[cfg(test)]
#[path = "fawn_ds_split_test.rs"]
mod fawn_ds_split_test;
