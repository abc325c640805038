//! FAWN-DS, the latency of gets while the log is being maintained.
//!
//! Published is Split ([`super::fawn_ds_split`]). Here it is cleaning, forced by overwrites of a store that
//! is nearly full: the maintenance that never ends.

use crate::experiment::{Experiment, Kind, Published, Size};
use crate::phases::{self, HIGH, LOW, Phase, Seen};
use crate::raw::probe;
use crate::result::{Axis, Plot};
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

const NAMES: [&str; 4] = [
    "median while cleaning, of alone (low load)",
    "p90 while cleaning, of alone (low load)",
    "p99.9 while cleaning, of alone (low load)",
    "p99.9 while cleaning (high load), of gets at the highest rate",
];
const PUBLISHED: [Published; 4] = phases::published(
    NAMES,
    [
        "whether maintenance leaves the usual get alone",
        "whether maintenance is felt by one get in ten, at most as much as published",
        "the tail that maintenance makes, at most as long as published",
        "the tail that maintenance makes under load, at most as long as published",
    ],
);

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
    published: &PUBLISHED,
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

const CLEANING_LOW: usize = 4;
const CLEANING_HIGH: usize = 5;
const PHASES: &[Phase<Beside>] = &[
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

/// What was seen of what went on beside the gets.
struct Maintained {
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
    let seen = phases::measure_all(run, PHASES, |run, beside, rate| {
        measure(run, &workload, &stores[usize::from(beside == Beside::Cleaning)], rate, beside, size)
    })?;
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
) -> Result<Seen<Maintained>> {
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
    let cleaned_bytes = after.cleaned_bytes_written - before.cleaned_bytes_written;
    Ok(Seen {
        meant: outcome.rate_intended,
        rate: outcome.rate,
        latency: gets.map(|gets| gets.histogram.clone()).unwrap_or_default(),
        beside: Maintained { overwrites, cleaned_bytes, longest_gap_us: outcome.longest_gap_us },
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

fn report(run: &mut Run<'_>, seen: &[Seen<Maintained>]) -> Result<()> {
    let moved = format_size(seen[CLEANING_LOW].beside.cleaned_bytes);
    phases::compare(run, NAMES, seen, (CLEANING_LOW, CLEANING_HIGH), |_| {
        format!("the cleaner moved {moved} at low load")
    })?;
    if [CLEANING_LOW, CLEANING_HIGH].iter().any(|place| seen[*place].beside.cleaned_bytes == 0) {
        run.note("the cleaner had nothing to do in one of its phases: those numbers are not of cleaning");
    }
    let more = ["overwrites", "MB moved by the cleaner", "longest time without an answer µs"];
    phases::report(run, PHASES, seen, more, |seen| {
        let Maintained { overwrites, cleaned_bytes, longest_gap_us } = seen.beside;
        [overwrites.into(), (cleaned_bytes as f64 / 1e6).into(), longest_gap_us.into()]
    });
    run.plot(Plot {
        name: "tail".to_owned(),
        title: "The tail: how many gets take longer".to_owned(),
        x: Axis::logarithmic("µs"),
        y: Axis::logarithmic("share of gets that take longer"),
        series: phases::curves(PHASES, seen, tail),
    });
    Ok(())
}

/// The complement of the cumulative distribution, down to one in the number of gets.
fn tail(latency: &LatencyHistogram) -> Vec<(f64, f64)> {
    let least = 1.0 / latency.count().max(10) as f64;
    (0..=120)
        .map(|part| 10f64.powf(-f64::from(part) / 20.0))
        .take_while(|share| *share >= least)
        .map(|share| (latency.quantile_us(1.0 - share) as f64, share))
        .collect()
}
