//! Memory persistency: what ordering persists costs three queues under three models.

use crate::experiment::{Experiment, Kind, Published, Rule};
use crate::instruction_rate::{InstructionRate, instruction_rate};
use crate::queues::{MODELS, trace};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_persist::queue::Design;
use tierstone_persist::timing::{Rates, Timing, TimingReport, TimingSettings, break_even_ns};

/// The published latency of a persist.
pub(super) const LATENCY_NS: f64 = 500.0;
pub(super) const THREADS: [usize; 2] = [1, 8];

/// Table 8.1: designs as [`Design::ALL`], threads as [`THREADS`], models as [`MODELS`].
pub(super) const TABLE: [[[f64; 3]; 2]; 3] = [
    [[0.034, 0.17, 12.0], [0.058, 3.2, 21.0]],
    [[0.080, 0.56, 29.0], [0.43, 3.4, 22.0]],
    [[0.032, 0.17, 13.0], [0.25, 1.9, 20.0]],
];

const STRICT: &str = "Copy While Locked, 1 thread, strict";
const GAIN: [&str; 3] = [
    "Copy While Locked, 1 thread: epoch of strict",
    "Two-Lock Concurrent, 1 thread: epoch of strict",
    "Queue Holes, 1 thread: epoch of strict",
];
const EPOCH: &str = "greatest of the queues, 1 thread, epoch";
const STRAND: &str = "least of the queues, 1 thread, strand";
const STRICT_EIGHT: &str = "greatest of the queues, 8 threads, strict";
const EPOCH_EIGHT: &str = "least of the queues, 8 threads, epoch";
const STRAND_EIGHT: &str = "least of the queues, 8 threads, strand";
const STRANDS_GAIN: &str = "least of the queues, 8: strand of epoch";
const THREADS_GAIN: [&str; 3] = [
    "Copy While Locked, strict: 8 of 1 thread",
    "Two-Lock Concurrent, strict: 8 of 1 thread",
    "Queue Holes, strict: 8 of 1 thread",
];
const FIRST_STRICT: &str = "1, strict: Two-Lock of the next queue";
const FIRST_EPOCH: &str = "1, epoch: Two-Lock of the next queue";
const LAST_STRICT: &str = "8, strict: the next queue of Copy While Locked";
const FIRST_STRICT_EIGHT: &str = "8, strict: Two-Lock of Queue Holes";
const LAST_EPOCH: &str = "8, epoch: the next queue of Queue Holes";

/// What is compared of gains by threads.
const OF_PATHS: &str = "persist-bound rates are compared, as instruction rates by threads are a machine's";
/// What is compared of the order of the queues.
const OF_ORDER: &str = "the order of the queues, a tenth apart at least; those published within a quarter of each other are left out";

pub(super) const fn value(
    name: &'static str,
    value: f64,
    unit: &'static str,
    place: &'static str,
    because: &'static str,
    rule: Rule,
) -> Published {
    Published { name, value, unit, place, because, rule }
}

const fn ratio(
    name: &'static str,
    published: f64,
    place: &'static str,
    because: &'static str,
    rule: Rule,
) -> Published {
    value(name, published, "ratio", place, because, rule)
}

/// Table 8.1 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "persistency",
    title: "Memory persistency: what the order of persists costs three queues",
    source: "Pelley 2014 (University of Michigan), Table 8.1",
    measures: "Inserts of 100 bytes by one thread and by eight. The instruction rate is measured here: the queues on \
               ordinary memory, a barrier a store fence, nothing written back, in bursts in which no thread was switched \
               out, by as many of the threads as there are processors: the locks hand over in the order of arrival, so \
               that more threads would measure the scheduler. The critical path an insert comes from \
               traces of the same code, by the rules of each model; the persist-bound rate is modelled from it \
               with 500 ns a persist. Published: a 2.4 GHz Xeon of 2010 with twelve hardware threads, 100,000,000 \
               inserts; its copies are wider than the 8 bytes that are stored here at once, and its locks another \
               implementation.",
    kind: Kind::Modelled,
    published: &[
        ratio(
            STRICT,
            0.034,
            "Table 8.1: 0.034",
            "whether strict persistency is an order of magnitude too slow",
            Rule::AtMost(0.1),
        ),
        ratio(
            GAIN[0],
            0.17 / 0.034,
            "Table 8.1: 0.17 / 0.034",
            "what barriers gain; more here, as a copy is 14 stores",
            Rule::AtLeast(3.0),
        ),
        ratio(GAIN[1], 0.56 / 0.080, "Table 8.1: 0.56 / 0.080", "what barriers gain", Rule::AtLeast(3.0)),
        ratio(GAIN[2], 0.17 / 0.032, "Table 8.1: 0.17 / 0.032", "what barriers gain", Rule::AtLeast(3.0)),
        ratio(
            EPOCH,
            0.56,
            "Table 8.1: 0.17, 0.56, 0.17",
            "whether one thread stays bound by persists with epochs",
            Rule::AtMost(1.0),
        ),
        ratio(
            STRAND,
            12.0,
            "Table 8.1: 12, 29, 13",
            "whether strands make one thread compute-bound",
            Rule::AtLeast(1.0),
        ),
        ratio(
            STRICT_EIGHT,
            0.43,
            "Table 8.1: 0.058, 0.43, 0.25",
            "whether eight threads stay bound by persists under strict persistency",
            Rule::AtMost(1.0),
        ),
        ratio(
            EPOCH_EIGHT,
            1.9,
            "Table 8.1: 3.2, 3.4, 1.9",
            "whether epochs make eight threads compute-bound",
            Rule::AtLeast(1.0),
        ),
        ratio(
            STRAND_EIGHT,
            20.0,
            "Table 8.1: 21, 22, 20",
            "whether strands make eight threads compute-bound by far",
            Rule::AtLeast(10.0),
        ),
        ratio(
            STRANDS_GAIN,
            22.0 / 3.4,
            "Table 8.1: 22 / 3.4",
            "whether strands gain over epochs with eight threads too",
            Rule::AtLeast(1.0),
        ),
        ratio(THREADS_GAIN[0], 0.058 / 0.034, "Table 8.1: 0.058 / 0.034", OF_PATHS, Rule::AtMost(2.0)),
        ratio(THREADS_GAIN[1], 0.43 / 0.080, "Table 8.1: 0.43 / 0.080", OF_PATHS, Rule::AtLeast(2.0)),
        ratio(THREADS_GAIN[2], 0.25 / 0.032, "Table 8.1: 0.25 / 0.032", OF_PATHS, Rule::AtLeast(2.0)),
        ratio(FIRST_STRICT, 0.080 / 0.034, "Table 8.1: 0.080 / 0.034", OF_ORDER, Rule::AtLeast(1.1)),
        ratio(FIRST_EPOCH, 0.56 / 0.17, "Table 8.1: 0.56 / 0.17", OF_ORDER, Rule::AtLeast(1.1)),
        ratio(LAST_STRICT, 0.25 / 0.058, "Table 8.1: 0.25 / 0.058", OF_ORDER, Rule::AtLeast(1.1)),
        ratio(FIRST_STRICT_EIGHT, 0.43 / 0.25, "Table 8.1: 0.43 / 0.25", OF_ORDER, Rule::AtLeast(1.1)),
        ratio(LAST_EPOCH, 3.2 / 1.9, "Table 8.1: 3.2 / 1.9", OF_ORDER, Rule::AtLeast(1.1)),
    ],
    series: &[],
    space_bytes: |_| 0,
    run,
};

/// What is known of one queue with one number of threads.
pub(super) struct Point {
    /// By its place in [`Design::ALL`].
    pub design: usize,
    pub threads: usize,
    pub rate: InstructionRate,
    pub inserts: u64,
    /// As [`MODELS`].
    pub reports: [TimingReport; 3],
}

impl Point {
    pub fn name(&self) -> &'static str {
        Design::ALL[self.design].name()
    }

    fn rates(&self, model: usize) -> Rates {
        self.rates_at(model, LATENCY_NS)
    }

    /// The rates at a latency of persists in ns.
    pub fn rates_at(&self, model: usize, latency_ns: f64) -> Rates {
        Rates::new(&self.reports[model], self.inserts, latency_ns, self.rate.per_second)
    }

    /// The latency of persists up to which instructions bound the rate.
    pub fn break_even_ns(&self, model: usize) -> f64 {
        break_even_ns(self.rates(model).path_per_operation, self.rate.per_second)
    }

    /// The persist-bound rate at the published latency, of the instruction rate.
    fn normalised(&self, model: usize) -> f64 {
        self.rates(model).normalised()
    }

    /// How its instruction rate was measured, and why with fewer threads if so.
    pub fn how(&self) -> String {
        let few = if self.rate.threads < self.threads { ", as many as processors" } else { "" };
        format!("{}{few}", self.rate.how())
    }

    /// What Table 8.1 has for it.
    pub fn published(&self, model: usize) -> f64 {
        TABLE[self.design][usize::from(self.threads > 1)][model]
    }
}

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(7);
    let points = measure(run)?;
    run.step("comparing")?;
    compare(run, &points)?;
    show(run, &points);
    report(run, &points);
    run.note(
        "Instruction rates are measured, critical paths come from traces, persist-bound rates are modelled.",
    );
    if points.iter().any(|point| point.rate.threads < point.threads) {
        run.note("The processors are fewer than eight: the instruction rates of eight threads are those of as many threads as there are processors. A queue lock hands over at nearly the same cost however many wait, but more processors would copy more at once.");
    }
    if points.iter().any(|point| point.rate.undisturbed == 0) {
        run.note("In no burst of some queue all threads kept their processors: its instruction rate is partly the scheduler's, so its normalised values are too high. Run again with the machine at rest.");
    }
    run.note("Strand's path falls with every insert traced, because heads coalesce without end: its rates are a lower bound.");
    Ok(())
}

/// Every queue with every number of threads, timed and traced: six steps of the run.
pub(super) fn measure(run: &mut Run<'_>) -> Result<Vec<Point>> {
    let traced = run.pick(160, 2_000, 20_000);
    let bursts = run.pick(2, 25, 200);
    run.set("inserts traced", traced);
    run.set("undisturbed bursts timed", bursts);
    let mut points = Vec::new();
    for (number, design) in Design::ALL.into_iter().enumerate() {
        for threads in THREADS {
            run.step(format!("{}, {threads} threads", design.name()))?;
            let rate = instruction_rate(run, design, threads, bursts)?;
            run.go_on(0.5)?;
            let each = traced / threads as u64;
            let trace = trace(design, threads, each, run.next_seed())?;
            let mut reports = [TimingReport::default(); 3];
            for (report, model) in reports.iter_mut().zip(MODELS) {
                *report = Timing::of(&trace, TimingSettings::of(model))?;
            }
            let inserts = each * threads as u64;
            points.push(Point { design: number, threads, rate, inserts, reports });
        }
    }
    Ok(points)
}

fn compare(run: &mut Run<'_>, points: &[Point]) -> Result<()> {
    let mut of: [[Option<&Point>; 2]; 3] = [[None; 2]; 3];
    for point in points {
        of[point.design][usize::from(point.threads > 1)] = Some(point);
    }
    let [[Some(lock), Some(lock8)], [Some(two), Some(two8)], [Some(holes), Some(holes8)]] = of else {
        return Err(Error::new(ErrorKind::Unsupported, "a queue was not measured"));
    };
    let (one, eight) = ([lock, two, holes], [lock8, two8, holes8]);
    let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let all = |of: [&Point; 3], model: usize| of.map(|point| point.normalised(model));
    let bound = |point: &Point, model: usize| point.rates(model).persist_bound;
    let (how, how8) = (told(&one), told(&eight));

    run.compare(STRICT, lock.normalised(0), &format!("{:.2} M inserts/s here", lock.rate.per_second / 1e6))?;
    for (point, name) in one.into_iter().zip(GAIN) {
        run.compare(name, bound(point, 1) / bound(point, 0), "")?;
    }
    run.compare(EPOCH, greatest(&all(one, 1)), &how)?;
    run.compare(STRAND, least(&all(one, 2)), &how)?;
    run.compare(STRICT_EIGHT, greatest(&all(eight, 0)), &how8)?;
    run.compare(EPOCH_EIGHT, least(&all(eight, 1)), &how8)?;
    run.compare(STRAND_EIGHT, least(&all(eight, 2)), &how8)?;
    run.compare(STRANDS_GAIN, least(&eight.map(|point| bound(point, 2) / bound(point, 1))), "")?;
    for ((point, alone), name) in eight.into_iter().zip(one).zip(THREADS_GAIN) {
        run.compare(name, bound(point, 0) / bound(alone, 0), "")?;
    }
    let next = |first: &Point, others: [&Point; 2], model: usize| {
        first.normalised(model) / greatest(&others.map(|point| point.normalised(model)))
    };
    let alike = format!("paths of Two-Lock Concurrent and Copy While Locked are equal by one thread; {how}");
    run.compare(FIRST_STRICT, next(two, [lock, holes], 0), &alike)?;
    run.compare(FIRST_EPOCH, next(two, [lock, holes], 1), &alike)?;
    let above = |last: &Point, others: [&Point; 2], model: usize| {
        least(&others.map(|point| point.normalised(model))) / last.normalised(model)
    };
    run.compare(LAST_STRICT, above(lock8, [two8, holes8], 0), &how8)?;
    let path = |point: &Point| point.rates(0).path_per_operation;
    let paths = format!(
        "persists in a row an insert {:.2} and {:.2}, which depend on the order that the locks keep; {how8}",
        path(two8),
        path(holes8)
    );
    run.compare(FIRST_STRICT_EIGHT, two8.normalised(0) / holes8.normalised(0), &paths)?;
    run.compare(LAST_EPOCH, above(holes8, [lock8, two8], 1), &how8)
}

/// How the instruction rates of `points` were measured.
fn told(points: &[&Point]) -> String {
    let each: Vec<String> = points.iter().map(|point| format!("{}: {}", point.name(), point.how())).collect();
    format!("instruction rates of {}", each.join("; "))
}

/// The published table beside ours, and the rates behind it: what the terminal shows.
fn show(run: &mut Run<'_>, points: &[Point]) {
    let mut table = Table::new(
        "cells",
        "Table 8.1: persist-bound rate of instruction rate at 500 ns a persist; above 1 instructions bound the queue",
        &[
            "queue",
            "threads",
            "strict: modelled",
            "published",
            "epoch: modelled",
            "published",
            "strand: modelled",
            "published",
        ],
    );
    let mut rates = Table::new(
        "instruction-rates",
        "The instruction rates in it, M inserts/s (measured; none are published)",
        &["queue", "threads", "median", "lowest", "highest", "measured with"],
    );
    for point in points {
        table.push([
            point.name().into(),
            (point.threads as u64).into(),
            point.normalised(0).into(),
            point.published(0).into(),
            point.normalised(1).into(),
            point.published(1).into(),
            point.normalised(2).into(),
            point.published(2).into(),
        ]);
        rates.push([
            point.name().into(),
            (point.threads as u64).into(),
            (point.rate.per_second / 1e6).into(),
            (point.rate.lowest / 1e6).into(),
            (point.rate.highest / 1e6).into(),
            point.how().into(),
        ]);
    }
    run.show(table);
    run.show(rates);
}

fn report(run: &mut Run<'_>, points: &[Point]) {
    let mut table = Table::new(
        "persist-bound",
        "Persist-bound rate of instruction rate at 500 ns (above 1: bound by instructions)",
        &[
            "queue",
            "threads",
            "model",
            "persists in a row an insert (modelled)",
            "instruction rate, M/s (measured)",
            "persist-bound rate, M/s (modelled)",
            "normalised (modelled)",
            "normalised (published)",
            "break-even latency, ns (modelled)",
        ],
    );
    for point in points {
        for (model, of) in MODELS.into_iter().enumerate() {
            let rates = point.rates(model);
            table.push([
                point.name().into(),
                (point.threads as u64).into(),
                of.name().into(),
                rates.path_per_operation.into(),
                (rates.instruction / 1e6).into(),
                (rates.persist_bound / 1e6).into(),
                rates.normalised().into(),
                point.published(model).into(),
                point.break_even_ns(model).into(),
            ]);
        }
    }
    run.table(table);
    let normalised = |model: usize, published: bool| {
        let name = format!("{}, {}", MODELS[model].name(), if published { "published" } else { "here" });
        let of = |point: &Point| if published { point.published(model) } else { point.normalised(model) };
        let points = points.iter().filter(|point| point.threads == 1);
        Series::new(&name, points.map(|point| (point.design as f64 + 1.0, of(point))))
    };
    run.plot(Plot {
        name: "normalised".to_owned(),
        title: "1 thread: persist-bound rate of instruction rate at 500 ns (modelled)".to_owned(),
        x: Axis::linear("queue (1 Copy While Locked, 2 Two-Lock Concurrent, 3 Queue Holes)"),
        y: Axis::logarithmic("ratio"),
        series: (0..MODELS.len())
            .flat_map(|model| [normalised(model, false), normalised(model, true)])
            .collect(),
    });
}
