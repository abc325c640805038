//! FAWN-DS, the latency of gets while the log is being maintained.
//!
//! Published is Split ([`super::fawn_ds_split`]). Here it is cleaning, forced by overwrites of a store that
//! is nearly full: the maintenance that never ends.

use crate::experiment::{Experiment, Kind, Published, Rule, Size};
use crate::raw::probe;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{BatchWriter, KEY_BYTES, SharedTarget, StoreChoice, records};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone::{EngineStatistics, SharedStore};
use tierstone_base::histogram::LatencyHistogram;
use tierstone_base::units::format_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::target_load;
use tierstone_workload::{Extent, Mix, OperationKind, Pacing, Workload};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: u32 = 1024;
/// Callers that wait for a get each.
const CALLERS: usize = 16;
/// Overwrites that are under way together.
const WRITER_BATCH: usize = 64;

const MEDIAN: &str = "median while cleaning, of alone (low load)";
const P90: &str = "p90 while cleaning, of alone (low load)";
const TAIL_LOW: &str = "p99.9 while cleaning, of alone (low load)";
const TAIL_HIGH: &str = "p99.9 while cleaning (high load), of gets at the highest rate";

/// Figure 4.6 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fawn-ds-maintenance",
    title: "FAWN-DS: the latency of gets while the log is maintained",
    source: "Vasudevan 2011 (CMU-CS-11-131), Figure 4.6 and section 4.2.1",
    measures: "Gets of 1 KB through the shared handle (16 callers, one shard), most from the device: at the \
               highest rate (closed loop), and in open loops at 35 % and 70 % of it (published: 500 and 1,500 \
               a second, with about 1,424 at most); latency counts from the time at which a get was meant to \
               be sent. Alone; beside overwrites in a store with room; beside the same overwrites in a store \
               that has to clean for them. Published is a Split, which copies a log in one go; here the \
               cleaner copies what lives in the segments that it frees. Published latencies include a network.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: MEDIAN,
            value: 1.25,
            unit: "ratio",
            place: "Figure 4.6, section 4.2.1: under 1 ms in a Split, 800 µs from flash without",
            because: "whether maintenance leaves the usual get alone",
            rule: Rule::AtMost(1.3),
        },
        Published {
            name: P90,
            value: 5.0,
            unit: "ratio",
            place: "Figure 4.6, section 4.2.1: 10 ms in a Split at low load, 2 ms without",
            because: "whether maintenance is felt by one get in ten, at most as much as published",
            rule: Rule::AtMost(5.0),
        },
        Published {
            name: TAIL_LOW,
            value: 18.7,
            unit: "ratio",
            place: "Figure 4.6, section 4.2.1: 491 ms in a Split at low load, 26.3 ms without",
            because: "the tail that maintenance makes, at most as long as published",
            rule: Rule::AtMost(18.7),
        },
        Published {
            name: TAIL_HIGH,
            value: 23.2,
            unit: "ratio",
            place: "Figure 4.6, section 4.2.1: 611 ms in a Split at high load, 26.3 ms without",
            because: "the tail that maintenance makes under load, at most as long as published",
            rule: Rule::AtMost(23.2),
        },
    ],
    series: &[],
    space_bytes,
    run,
};

/// What goes on while gets are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// Nothing.
    Nothing,
    /// Overwrites, in a store with room.
    Overwrites,
    /// The same overwrites, in a store that cleans for each.
    Cleaning,
}

/// One line of the figure.
#[derive(Clone, Copy, Debug)]
struct Phase {
    name: &'static str,
    /// Gets a second, as a part of the highest rate; `None`: as fast as they are answered.
    rate_share: Option<f64>,
    beside: Beside,
}

const LOW: Option<f64> = Some(0.35);
const HIGH: Option<f64> = Some(0.7);
const ALONE_HIGHEST: usize = 0;
const ALONE_LOW: usize = 1;
const CLEANING_LOW: usize = 4;
const CLEANING_HIGH: usize = 5;
const PHASES: &[Phase] = &[
    Phase { name: "gets alone, highest rate", rate_share: None, beside: Beside::Nothing },
    Phase { name: "gets alone, low load", rate_share: LOW, beside: Beside::Nothing },
    Phase { name: "gets alone, high load", rate_share: HIGH, beside: Beside::Nothing },
    Phase { name: "beside overwrites, low load", rate_share: LOW, beside: Beside::Overwrites },
    Phase { name: "beside cleaning, low load", rate_share: LOW, beside: Beside::Cleaning },
    Phase { name: "beside cleaning, high load", rate_share: HIGH, beside: Beside::Cleaning },
];

fn store_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 4 * MIB,
        Size::Quick => 96 * MIB,
        Size::Full => 1024 * MIB,
    }
}

/// An eighth of the data, so that most gets go to the device.
fn cache_bytes(size: Size) -> u64 {
    match size {
        // The tiny run shows that the experiment runs, not what a device does.
        Size::Tiny => 2 * store_bytes(size),
        Size::Quick | Size::Full => store_bytes(size) / 8,
    }
}

fn segment_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 128 << 10,
        Size::Quick => 2 * MIB,
        Size::Full => 8 * MIB,
    }
}

/// Overwrites a second.
fn overwrite_rate(size: Size) -> f64 {
    match size {
        Size::Tiny => 2_000.0,
        Size::Quick | Size::Full => 4_000.0,
    }
}

fn capacity_bytes(size: Size, beside: Beside) -> u64 {
    let reserve = 16 * segment_bytes(size);
    match beside {
        Beside::Cleaning => store_bytes(size) * 3 / 2 + reserve,
        Beside::Nothing | Beside::Overwrites => store_bytes(size) * 3 + reserve,
    }
}

fn space_bytes(size: Size) -> u64 {
    capacity_bytes(size, Beside::Nothing) + capacity_bytes(size, Beside::Cleaning) + 64 * MIB
}

/// What was seen in one phase.
struct Seen {
    rate: f64,
    intended: Option<f64>,
    latency: LatencyHistogram,
    overwrites: u64,
    cleaned_bytes: u64,
    longest_gap_us: u64,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    let size = run.pick(Size::Tiny, Size::Quick, Size::Full);
    run.expect_steps(3 + PHASES.len() as u32);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let count = store_bytes(size) / (u64::from(VALUE_BYTES) + KEY_BYTES);
    let cache_bytes = cache_bytes(size);
    run.set("records", count);
    run.set("memory for records", format_size(cache_bytes));
    run.set("overwrites a second", overwrite_rate(size));
    run.set("callers", CALLERS);
    let workload = records(count, VALUE_BYTES);
    let mut stores = Vec::new();
    for (name, beside) in [("roomy", Beside::Nothing), ("tight", Beside::Cleaning)] {
        run.step(format!("loading the {name} store"))?;
        let choice = StoreChoice {
            capacity_bytes: Some(capacity_bytes(size, beside)),
            segment_bytes: segment_bytes(size),
            ..StoreChoice::with_cache(cache_bytes, count, 1, method)
        };
        let store = SharedStore::open(&choice.options(&run.folder().join(name)))?;
        run.load(&workload, 0..count, 1_024, &mut BatchWriter::new(&store))?;
        stores.push(store);
    }
    fill(run, &workload, &stores[1], overwrite_rate(size) * 4.0)?;
    let mut seen: Vec<Seen> = Vec::new();
    for phase in PHASES {
        run.step(phase.name)?;
        let store = &stores[usize::from(phase.beside == Beside::Cleaning)];
        let highest = seen.first().map_or(0.0, |first| first.rate);
        let rate = phase.rate_share.map(|share| (highest * share).max(1.0));
        seen.push(measure(run, &workload, store, rate, phase.beside, size)?);
    }
    report(run, &seen)
}

/// Overwrites until the store has begun to clean, not faster than it can.
fn fill(run: &mut Run<'_>, workload: &Workload, store: &SharedStore, rate: f64) -> Result<()> {
    let overwrite = Workload { mix: Mix::SET, ..workload.clone() };
    let some = Pacing {
        pipeline: WRITER_BATCH,
        rate: Some(rate),
        extent: Extent::Operations(workload.records / 8 + 1),
        ..Pacing::default()
    };
    let mut writer = BatchWriter::new(store);
    for _ in 0..64 {
        if store.statistics()?.cleaned_bytes_written > 0 {
            break;
        }
        run.drive(&overwrite, &some, &mut writer)?;
    }
    note_retries(run, &writer);
    Ok(())
}

fn measure(
    run: &mut Run<'_>,
    workload: &Workload,
    store: &SharedStore,
    rate: Option<f64>,
    beside: Beside,
    size: Size,
) -> Result<Seen> {
    let seconds = run.pick(0.1, 2.0, 20.0);
    let pacing = Pacing {
        threads: CALLERS,
        rate,
        extent: Extent::Seconds(seconds),
        warmup_seconds: seconds / 10.0,
        ..Pacing::default()
    };
    let before = store.statistics()?;
    let (outcome, overwrites) = match beside {
        Beside::Nothing => (run.drive_shared(workload, &pacing, &mut || Ok(SharedTarget(store.clone())))?, 0),
        Beside::Overwrites | Beside::Cleaning => {
            beside_overwrites(run, workload, store, &pacing, overwrite_rate(size))?
        }
    };
    let after: EngineStatistics = store.statistics()?;
    let gets = outcome.kinds.get(&OperationKind::Get);
    Ok(Seen {
        rate: outcome.rate,
        intended: outcome.rate_intended,
        latency: gets.map(|gets| gets.histogram.clone()).unwrap_or_default(),
        overwrites,
        cleaned_bytes: after.cleaned_bytes_written - before.cleaned_bytes_written,
        longest_gap_us: outcome.longest_gap_us,
    })
}

/// Measures gets while another thread overwrites; gives how many overwrites there were.
fn beside_overwrites(
    run: &mut Run<'_>,
    workload: &Workload,
    store: &SharedStore,
    pacing: &Pacing,
    overwrite_rate: f64,
) -> Result<(tierstone_workload::Outcome, u64)> {
    let overwrite = Workload { mix: Mix::SET, ..workload.clone() };
    let seconds = match pacing.extent {
        Extent::Seconds(seconds) => seconds + pacing.warmup_seconds,
        Extent::Operations(_) => 0.0,
    };
    let writing = Pacing {
        pipeline: WRITER_BATCH,
        rate: Some(overwrite_rate),
        // Until it is told to end, or a little later.
        extent: Extent::Seconds(seconds + 1.0),
        seed: run.next_seed(),
        ..Pacing::default()
    };
    let is_over = AtomicBool::new(false);
    let overwriter = BatchWriter::new(store);
    let (outcome, written) = std::thread::scope(|scope| {
        let writer =
            std::thread::Builder::new().name("lab-overwrites".to_owned()).spawn_scoped(scope, || {
                target_load::run(&overwrite, &writing, &mut || Ok(overwriter.clone()), &mut |_| {
                    if is_over.load(Ordering::Relaxed) {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
            })?;
        let outcome = run.drive_shared(workload, pacing, &mut || Ok(SharedTarget(store.clone())));
        is_over.store(true, Ordering::Relaxed);
        let failed = |_| Error::new(ErrorKind::Retry, "the thread of the overwrites failed");
        let written = writer.join().map_err(failed)??;
        if let Some(error) = written.first_error {
            return Err(Error::new(ErrorKind::DeviceFailed, format!("an overwrite failed: {error}")));
        }
        Ok((outcome?, written.operations))
    })?;
    note_retries(run, &overwriter);
    Ok((outcome, written))
}

fn note_retries(run: &mut Run<'_>, writer: &BatchWriter) {
    if writer.retried() > 0 {
        run.note(format!("{} overwrites were answered \"try again\" and put again", writer.retried()));
    }
}

fn report(run: &mut Run<'_>, seen: &[Seen]) -> Result<()> {
    let (low, cleaning_low) = (&seen[ALONE_LOW], &seen[CLEANING_LOW]);
    let (highest, cleaning_high) = (&seen[ALONE_HIGHEST], &seen[CLEANING_HIGH]);
    let moved = format_size(cleaning_low.cleaned_bytes);
    for (name, quantile, with, without) in [
        (MEDIAN, 0.5, cleaning_low, low),
        (P90, 0.9, cleaning_low, low),
        (TAIL_LOW, 0.999, cleaning_low, low),
        (TAIL_HIGH, 0.999, cleaning_high, highest),
    ] {
        let (with, without) = (with.latency.quantile_us(quantile), without.latency.quantile_us(quantile));
        let detail = format!("here {with} of {without} µs; the cleaner moved {moved} at low load");
        run.compare(name, with as f64 / without.max(1) as f64, &detail)?;
    }
    if cleaning_low.cleaned_bytes == 0 || cleaning_high.cleaned_bytes == 0 {
        run.note("the cleaner had nothing to do in one of its phases: those numbers are not of cleaning");
    }
    let mut table = Table::new(
        "latency",
        "Latency of gets",
        &[
            "phase",
            "gets/s meant",
            "gets/s",
            "p50 µs",
            "p90 µs",
            "p99 µs",
            "p99.9 µs",
            "max µs",
            "overwrites",
            "MB moved by the cleaner",
            "longest time without an answer µs",
        ],
    );
    for (phase, seen) in PHASES.iter().zip(seen) {
        table.push([
            phase.name.into(),
            seen.intended.unwrap_or(f64::NAN).into(),
            seen.rate.into(),
            seen.latency.quantile_us(0.5).into(),
            seen.latency.quantile_us(0.9).into(),
            seen.latency.quantile_us(0.99).into(),
            seen.latency.quantile_us(0.999).into(),
            seen.latency.max_us().into(),
            seen.overwrites.into(),
            (seen.cleaned_bytes as f64 / 1e6).into(),
            seen.longest_gap_us.into(),
        ]);
    }
    run.table(table);
    let curves =
        PHASES.iter().zip(seen).map(|(phase, seen)| Series::new(phase.name, distribution(&seen.latency)));
    run.plot(Plot {
        name: "latency".to_owned(),
        title: "Latency of gets: how many are answered in time".to_owned(),
        x: Axis::logarithmic("µs"),
        y: Axis::linear("share of gets"),
        series: curves.collect(),
    });
    let tails = PHASES.iter().zip(seen).map(|(phase, seen)| Series::new(phase.name, tail(&seen.latency)));
    run.plot(Plot {
        name: "tail".to_owned(),
        title: "The tail: how many gets take longer".to_owned(),
        x: Axis::logarithmic("µs"),
        y: Axis::logarithmic("share of gets that take longer"),
        series: tails.collect(),
    });
    Ok(())
}

/// The cumulative distribution.
fn distribution(latency: &LatencyHistogram) -> Vec<(f64, f64)> {
    let shares = (1..200).map(|part| f64::from(part) / 200.0).chain([0.999, 1.0]);
    shares.map(|share| (latency.quantile_us(share) as f64, share)).collect()
}

/// Its complement, down to one in the number of gets.
fn tail(latency: &LatencyHistogram) -> Vec<(f64, f64)> {
    let least = 1.0 / latency.count().max(10) as f64;
    (0..=120)
        .map(|part| 10f64.powf(-f64::from(part) / 20.0))
        .take_while(|share| *share >= least)
        .map(|share| (latency.quantile_us(1.0 - share) as f64, share))
        .collect()
}
