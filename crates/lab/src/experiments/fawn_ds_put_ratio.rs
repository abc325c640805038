//! FAWN-DS, put ratios from 0 to 1: puts that are appended are cheaper than gets from the device.

use crate::experiment::{Experiment, Kind, Published, Rule, Size};
use crate::raw::probe;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{KEY_BYTES, LocalTarget, StoreChoice, records};
use tierstone::{Durability, DurableMethod};
use tierstone_base::Result;
use tierstone_base::units::format_size;
use tierstone_workload::{Extent, Mix, Outcome, Pacing, Workload};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: u32 = 256;
/// The published number of files.
const FILES: u16 = 8;
/// The published store is 14 times the memory at its largest; 8 times is enough to read from the device.
const STORE_OF_MEMORY: u64 = 8;
/// Operations of a batch in the second series.
const TOGETHER: usize = 32;

const RISE: &str = "puts only, of gets only";
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
               The cleaner is measured in a store that is three quarters full.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: RISE,
            value: 1.0,
            unit: "ratio",
            place: "Figure 4.5, section 4.2.1: \"more puts per second than gets\"",
            because: "published is only that it is more than 1; gets mostly come from the device",
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
    run.expect_steps(5 + 2 * (steps + 1));
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let count = store_bytes(size) / (u64::from(VALUE_BYTES) + KEY_BYTES);
    run.set("records", count);
    run.set("memory for records", format_size(memory_bytes(size)));
    run.set("logs (shards)", FILES);
    let choice = StoreChoice {
        capacity_bytes: Some(roomy_bytes(size)),
        segment_bytes: run.pick(128 << 10, 2 * MIB, 8 * MIB),
        ..StoreChoice::with_cache(memory_bytes(size), count, FILES, method)
    };
    let folder = run.folder().join("sweep");
    run.step("loading")?;
    let workload = records(count, VALUE_BYTES);
    let mut target = LocalTarget::open(&choice, &folder)?;
    run.load(&workload, 0..count, 2_048, &mut target)?;
    let durable = sweep(run, &workload, &mut target, steps, TOGETHER)?;
    drop(target);
    let relaxed_choice = StoreChoice { durability: Durability::Relaxed, ..choice.clone() };
    let mut target = LocalTarget::open(&relaxed_choice, &folder)?;
    let relaxed = sweep(run, &workload, &mut target, steps, 1)?;
    let cleaned_in_sweep = target.store().statistics().cleaned_bytes_written;
    run.step("half gets, half puts, without cleaning")?;
    let half = Workload { mix: Mix::puts(0.5), ..workload.clone() };
    let without = run.drive(&half, &cleaning_pacing(size), &mut target)?.rate;
    drop(target);
    std::fs::remove_dir_all(&folder)?;
    let cleaning = measure_cleaning(run, &half, &relaxed_choice, size, without)?;
    let points: Vec<Point> = durable
        .into_iter()
        .zip(relaxed)
        .map(|((share, durable), (_, relaxed))| Point { share, relaxed, durable })
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

/// A segment's size where cleaning is measured: small, so that it goes on all the time.
fn tight_segment_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 128 << 10,
        Size::Quick => 256 << 10,
        Size::Full => 2 * MIB,
    }
}

/// As many operations as fill four segments of every log with the puts of a half-and-half mix.
fn cleaning_pacing(size: Size) -> Pacing {
    let bytes = u64::from(FILES) * 4 * tight_segment_bytes(size);
    let operations = 2 * bytes / (u64::from(VALUE_BYTES) + KEY_BYTES);
    Pacing { extent: Extent::Operations(operations), ..Pacing::default() }
}

fn sweep(
    run: &mut Run<'_>,
    workload: &Workload,
    target: &mut LocalTarget,
    steps: u32,
    pipeline: usize,
) -> Result<Vec<(f64, Outcome)>> {
    let mut outcomes = Vec::new();
    for (share, mix) in Mix::put_ratio_sweep(steps) {
        run.step(format!("{:.0} % puts, {pipeline} together", share * 100.0))?;
        let mixed = Workload { mix, ..workload.clone() };
        let outcome = run.drive(&mixed, &pacing(run, pipeline), target)?;
        // What is still on its way is not the next step's burden.
        target.store().sync()?;
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
    run.load(half, 0..half.records, 2_048, &mut target)?;
    let overwrite = Workload { mix: Mix::SET, ..half.clone() };
    let some =
        Pacing { pipeline: 256, extent: Extent::Operations(half.records / 16 + 1), ..Pacing::default() };
    let mut rounds = 0;
    while target.store().statistics().cleaned_bytes_written < 8 * segment_bytes && rounds < 64 {
        run.drive(&overwrite, &some, &mut target)?;
        rounds += 1;
    }
    run.step("half gets, half puts, while cleaning")?;
    let before = target.store().statistics();
    let with = run.drive(half, &cleaning_pacing(size), &mut target)?.rate;
    let after = target.store().statistics();
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
        &[
            "share of puts",
            "a second, one at a time, relaxed",
            "p99 µs",
            "a second, 32 together, durable",
            "p99 µs of a batch",
        ],
    );
    for point in points {
        table.push([
            point.share.into(),
            point.relaxed.rate.into(),
            point.relaxed.latency.p99_us.into(),
            point.durable.rate.into(),
            point.durable.latency.p99_us.into(),
        ]);
    }
    run.table(table);
    run.plot(Plot {
        name: "rates".to_owned(),
        title: "The rate by the share of puts (256 B, 8 logs)".to_owned(),
        x: Axis::linear("share of puts"),
        y: Axis::logarithmic("operations a second"),
        series: vec![
            Series::new(
                "one at a time, relaxed",
                points.iter().map(|point| (point.share, point.relaxed.rate)),
            ),
            Series::new("32 together, durable", points.iter().map(|point| (point.share, point.durable.rate))),
        ],
    });
    Ok(())
}
