//! FAWN-DS, put ratios from 0 to 1: puts that are appended are cheaper than gets from the device.

use crate::experiment::{Experiment, Kind, Published, Rule, Size};
use crate::raw::probe;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{KEY_BYTES, LocalTarget, StoreChoice, records};
use tierstone::{Durability, DurableMethod};
use tierstone_base::Result;
use tierstone_base::units::format_size;
use tierstone_workload::{Extent, Mix, OperationKind, Outcome, Pacing, Workload};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: u32 = 256;
/// The published number of files.
const FILES: u16 = 8;
/// The published store is 14 times the memory at its largest; 8 times is enough to read from the device.
const STORE_OF_MEMORY: u64 = 8;
/// Operations of a batch in the second series.
const TOGETHER: usize = 32;

const RISE: &str = "puts only, of gets only";
const NEW: &str = "puts of new keys only, of gets only";
const STEPS: &str = "steps of the put ratio that raise the rate (one at a time)";
const COMPACTING: &str = "half gets, half puts: while cleaning, of without";

/// Figure 4.5 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fawn-ds-put-ratio",
    title: "FAWN-DS: the rate by the share of puts",
    source: "Vasudevan 2011 (CMU-CS-11-131), Figure 4.5 and section 4.2.1",
    measures: "Random gets and overwrites of 256 B by one local caller over 8 logs (shards, published: files), \
               the share of puts from 0 to 1. One at a time with relaxed durability is the published setting \
               (FAWN-DS does not wait for its puts to be durable); 32 together with every batch durable is \
               what Tierstone does by default. The figure's curve is not in the text: its shape is compared. \
               The cleaner is measured in a store that is about two thirds full.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: RISE,
            value: 1.0,
            unit: "ratio",
            place: "Figure 4.5, section 4.2.1: \"more puts per second than gets\"",
            because: "published is only that it is more than 1; an overwrite here reads the old record first, if \
                      it is not in memory (docs/decisions/001-no-blind-writes.md)",
            rule: Rule::AtLeast(1.0),
        },
        Published {
            name: NEW,
            value: 1.0,
            unit: "ratio",
            place: "Figure 4.5, section 4.2.1: \"more puts per second than gets\"",
            because: "the same for keys that are new, where a put is an append here as it is there",
            rule: Rule::AtLeast(1.0),
        },
        Published {
            name: STEPS,
            value: 1.0,
            unit: "ratio",
            place: "Figure 4.5: the curve rises",
            because: "a step counts as rising above 95 % of the one before",
            rule: Rule::AtLeast(0.8),
        },
        Published {
            name: COMPACTING,
            value: 0.65,
            unit: "ratio",
            place: "section 4.2.1: 700 to 1,000 a second in compaction; Table 4.2: 1,298 gets a second",
            because: "how much of the rate is left while the log is cleaned; one at a time, relaxed",
            rule: Rule::AtLeast(0.65),
        },
    ],
    series: &[],
    space_bytes,
    run,
};

fn memory_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => MIB / 2,
        Size::Quick => 16 * MIB,
        Size::Full => 128 * MIB,
    }
}

fn store_bytes(size: Size) -> u64 {
    memory_bytes(size) * STORE_OF_MEMORY
}

/// Room for the overwrites of the sweep, so that nothing is cleaned in it.
fn roomy_bytes(size: Size) -> u64 {
    store_bytes(size) * 6 + 256 * MIB
}

fn space_bytes(size: Size) -> u64 {
    roomy_bytes(size) + 256 * MIB
}

/// One share of puts.
struct Point {
    share: f64,
    relaxed: Outcome,
    durable: Outcome,
    new: Outcome,
}

/// Rates of one mix with and without the cleaner at work.
struct Cleaning {
    without: f64,
    with: f64,
    cleaned_bytes: u64,
    user_bytes: u64,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    let size = run.pick(Size::Tiny, Size::Quick, Size::Full);
    let steps = run.pick(2, 5, 10);
    run.expect_steps(5 + 3 * (steps + 1));
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let count = store_bytes(size) / (u64::from(VALUE_BYTES) + KEY_BYTES);
    run.set("records", count);
    run.set("memory for records", format_size(memory_bytes(size)));
    run.set("logs (shards)", FILES);
    let choice = StoreChoice {
        capacity_bytes: Some(roomy_bytes(size)),
        segment_bytes: run.pick(128 << 10, 2 * MIB, 8 * MIB),
        // The sweep with new keys adds to them.
        ..StoreChoice::with_cache(memory_bytes(size), count * 4, FILES, method)
    };
    let folder = run.folder().join("sweep");
    run.step("loading")?;
    let workload = records(count, VALUE_BYTES);
    let mut target = LocalTarget::open(&choice, &folder)?;
    run.load(&workload, 0..count, 16_384, &mut target)?;
    let durable = sweep(run, &workload, &mut target, steps, Puts::DurableTogether)?;
    drop(target);
    let relaxed_choice = StoreChoice { durability: Durability::Relaxed, ..choice.clone() };
    let mut target = LocalTarget::open(&relaxed_choice, &folder)?;
    let relaxed = sweep(run, &workload, &mut target, steps, Puts::Alone)?;
    run.step("half gets, half puts, without cleaning")?;
    let half = Workload { mix: Mix::puts(0.5), ..workload.clone() };
    let without = run.drive(&half, &cleaning_pacing(size), &mut target)?.rate;
    let new = sweep(run, &workload, &mut target, steps, Puts::New)?;
    let cleaned_in_sweep = target.store().statistics().cleaned_bytes_written;
    drop(target);
    std::fs::remove_dir_all(&folder)?;
    let cleaning = measure_cleaning(run, &half, &relaxed_choice, size, without)?;
    let points: Vec<Point> = durable
        .into_iter()
        .zip(relaxed)
        .zip(new)
        .map(|(((share, durable), (_, relaxed)), (_, new))| Point { share, relaxed, durable, new })
        .collect();
    if cleaned_in_sweep > 0 {
        run.note(format!(
            "the sweep itself cleaned {}: its space was too small",
            format_size(cleaned_in_sweep)
        ));
    }
    report(run, &points, &cleaning, method)
}

fn pacing(run: &Run<'_>, pipeline: usize) -> Pacing {
    Pacing { pipeline, extent: Extent::Seconds(run.pick(0.03, 0.5, 4.0)), ..Pacing::default() }
}

/// How often the mix is run until the cleaner works beside it.
const CLEANING_TRIES: u32 = 16;

/// A segment's size where cleaning is measured: small, so that it goes on all the time.
fn tight_segment_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 128 << 10,
        Size::Quick => 256 << 10,
        Size::Full => 2 * MIB,
    }
}

/// As many operations as fill a few segments of every log with the puts of a half-and-half mix.
fn cleaning_pacing(size: Size) -> Pacing {
    let segments = if size == Size::Full { 4 } else { 2 };
    let bytes = u64::from(FILES) * segments * tight_segment_bytes(size);
    let operations = 2 * bytes / (u64::from(VALUE_BYTES) + KEY_BYTES);
    Pacing { extent: Extent::Operations(operations), ..Pacing::default() }
}

/// What puts are in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Puts {
    /// Overwrites, 32 operations together.
    DurableTogether,
    /// Overwrites, one at a time.
    Alone,
    /// New keys, one at a time.
    New,
}

impl Puts {
    fn name(self) -> &'static str {
        match self {
            Puts::DurableTogether => "overwrites, 32 together, durable",
            Puts::Alone => "overwrites, one at a time, relaxed",
            Puts::New => "new keys, one at a time, relaxed",
        }
    }
}

fn sweep(
    run: &mut Run<'_>,
    workload: &Workload,
    target: &mut LocalTarget,
    steps: u32,
    puts: Puts,
) -> Result<Vec<(f64, Outcome)>> {
    let mut outcomes = Vec::new();
    let mut mixed = workload.clone();
    target.settle(run)?;
    for (share, mix) in Mix::put_ratio_sweep(steps) {
        run.step(format!("{}: {:.0} % puts", puts.name(), share * 100.0))?;
        mixed.mix = if puts == Puts::New { Mix { insert: mix.set, set: 0.0, ..mix } } else { mix };
        let pipeline = if puts == Puts::DurableTogether { TOGETHER } else { 1 };
        let outcome = run.drive(&mixed, &pacing(run, pipeline), target)?;
        // What is still on its way is not the next step's burden.
        target.store().sync()?;
        target.settle(run)?;
        mixed.records += outcome.kinds.get(&OperationKind::Insert).map_or(0, |inserts| inserts.operations);
        outcomes.push((share, outcome));
    }
    Ok(outcomes)
}

/// The same mix in a store that has to clean for every put.
fn measure_cleaning(
    run: &mut Run<'_>,
    half: &Workload,
    choice: &StoreChoice,
    size: Size,
    without: f64,
) -> Result<Cleaning> {
    run.step("filling a store until it cleans")?;
    let segment_bytes = tight_segment_bytes(size);
    let reserve_bytes = u64::from(FILES) * 8 * segment_bytes;
    let tight = StoreChoice {
        capacity_bytes: Some(store_bytes(size) * 3 / 2 + reserve_bytes),
        segment_bytes,
        ..choice.clone()
    };
    let folder = run.folder().join("tight");
    let mut target = LocalTarget::open(&tight, &folder)?;
    run.load(half, 0..half.records, 16_384, &mut target)?;
    let overwrite = Workload { mix: Mix::SET, ..half.clone() };
    let some =
        Pacing { pipeline: 256, extent: Extent::Operations(half.records / 16 + 1), ..Pacing::default() };
    let mut rounds = 0;
    while target.store().statistics().cleaned_bytes_written < 8 * segment_bytes && rounds < 64 {
        run.drive(&overwrite, &some, &mut target)?;
        rounds += 1;
    }
    run.step("half gets, half puts, while cleaning")?;
    // A round in which the cleaner was ahead, as it may be behind a slow device, tells nothing of it.
    let mut tries = 0;
    let (with, before, after) = loop {
        let before = target.store().statistics();
        let with = run.drive(half, &cleaning_pacing(size), &mut target)?.rate;
        let after = target.store().statistics();
        tries += 1;
        if after.cleaned_bytes_written > before.cleaned_bytes_written || tries == CLEANING_TRIES {
            break (with, before, after);
        }
    };
    drop(target);
    std::fs::remove_dir_all(&folder)?;
    Ok(Cleaning {
        without,
        with,
        cleaned_bytes: after.cleaned_bytes_written - before.cleaned_bytes_written,
        user_bytes: after.user_bytes_written - before.user_bytes_written,
    })
}

fn report(run: &mut Run<'_>, points: &[Point], cleaning: &Cleaning, method: DurableMethod) -> Result<()> {
    let rates: Vec<f64> = points.iter().map(|point| point.relaxed.rate).collect();
    let (gets, puts) = (rates[0], rates[rates.len() - 1]);
    let durable_puts = points[points.len() - 1].durable.rate;
    let durable_gets = points[0].durable.rate;
    run.compare(
        RISE,
        puts / gets,
        &format!(
            "here {puts:.0} of {gets:.0} a second; 32 together and durable ({method:?}): {durable_puts:.0} of \
             {durable_gets:.0}"
        ),
    )?;
    let new = points[points.len() - 1].new.rate;
    run.compare(NEW, new / gets, &format!("here {new:.0} of {gets:.0} a second"))?;
    let rising = rates.windows(2).filter(|pair| pair[1] >= pair[0] * 0.95).count();
    run.compare(STEPS, rising as f64 / (rates.len() - 1).max(1) as f64, "")?;
    run.compare(
        COMPACTING,
        cleaning.with / cleaning.without,
        &format!(
            "here {:.0} of {:.0} a second; {} moved by the cleaner for {} put meanwhile",
            cleaning.with,
            cleaning.without,
            format_size(cleaning.cleaned_bytes),
            format_size(cleaning.user_bytes)
        ),
    )?;
    let mut table = Table::new(
        "rates",
        "The rate by the share of puts",
        &["puts", "share of puts", "operations/s", "p50 µs", "p99 µs"],
    );
    let mut series = Vec::new();
    for (puts, of) in [
        (Puts::Alone, (|point| &point.relaxed) as fn(&Point) -> &Outcome),
        (Puts::New, |point| &point.new),
        (Puts::DurableTogether, |point| &point.durable),
    ] {
        for point in points {
            let outcome = of(point);
            table.push([
                puts.name().into(),
                point.share.into(),
                outcome.rate.into(),
                outcome.latency.p50_us.into(),
                outcome.latency.p99_us.into(),
            ]);
        }
        series.push(Series::new(puts.name(), points.iter().map(|point| (point.share, of(point).rate))));
    }
    run.table(table);
    run.plot(Plot {
        name: "rates".to_owned(),
        title: "The rate by the share of puts (256 B, 8 logs)".to_owned(),
        x: Axis::linear("share of puts"),
        y: Axis::logarithmic("operations a second"),
        series,
    });
    Ok(())
}
