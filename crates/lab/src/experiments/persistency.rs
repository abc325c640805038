//! Memory persistency: what ordering persists costs three queues under three models.

use crate::experiment::{Experiment, Kind, Published, Rule};
use crate::queues::{MODELS, instruction_rate, trace};
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

const STRICT: &str = "Copy While Locked, 1 thread, strict: persist-bound of instruction rate";
const STRAND: &str = "the least of the queues, 1 thread, strand: persist-bound of instruction rate";
const EPOCH_EIGHT: &str = "the least of the queues, 8 threads, epoch: persist-bound of instruction rate";
const GAIN: [&str; 3] = [
    "Copy While Locked, 1 thread: epoch of strict",
    "Two-Lock Concurrent, 1 thread: epoch of strict",
    "Queue Holes, 1 thread: epoch of strict",
];

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

/// Table 8.1 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "persistency",
    title: "Memory persistency: what the order of persists costs three queues",
    source: "Pelley 2014 (University of Michigan), Table 8.1",
    measures: "Inserts of 100 bytes by one thread and by eight. The instruction rate is measured here: the queues on \
               ordinary memory, a barrier a store fence, nothing written back. The critical path an insert comes from \
               traces of the same code, by the rules of each model; the persist-bound rate is modelled from it \
               with 500 ns a persist. Published: a 2.4 GHz Xeon of 2010, 100,000,000 inserts; its copies are wider than \
               the 8 bytes that are stored here at once, and its locks another implementation. Eight threads share \
               the processors that there are.",
    kind: Kind::Modelled,
    published: &[
        value(
            STRICT,
            0.034,
            "ratio",
            "Table 8.1",
            "whether strict persistency is an order of magnitude too slow",
            Rule::AtMost(0.1),
        ),
        value(
            GAIN[0],
            0.17 / 0.034,
            "ratio",
            "Table 8.1: 0.17 / 0.034",
            "what barriers gain; more here, as a copy is 14 stores",
            Rule::AtLeast(3.0),
        ),
        value(
            GAIN[1],
            0.56 / 0.080,
            "ratio",
            "Table 8.1: 0.56 / 0.080",
            "what barriers gain",
            Rule::AtLeast(3.0),
        ),
        value(
            GAIN[2],
            0.17 / 0.032,
            "ratio",
            "Table 8.1: 0.17 / 0.032",
            "what barriers gain",
            Rule::AtLeast(3.0),
        ),
        value(
            STRAND,
            12.0,
            "ratio",
            "Table 8.1: 12, 29, 13",
            "whether strands make one thread compute-bound",
            Rule::AtLeast(1.0),
        ),
        value(
            EPOCH_EIGHT,
            1.9,
            "ratio",
            "Table 8.1: 3.2, 3.4, 1.9",
            "whether epochs make eight threads compute-bound",
            Rule::AtLeast(1.0),
        ),
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
    pub instruction_rate: f64,
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
        Rates::new(&self.reports[model], self.inserts, latency_ns, self.instruction_rate)
    }

    /// The latency of persists up to which instructions bound the rate.
    pub fn break_even_ns(&self, model: usize) -> f64 {
        break_even_ns(self.rates(model).path_per_operation, self.instruction_rate)
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
    report(run, &points);
    run.note(
        "Instruction rates are measured, critical paths come from traces, persist-bound rates are modelled.",
    );
    run.note("Where threads outnumber processors, the queue locks wait for the scheduler: rates of eight threads are then low, and their normalised values high.");
    run.note("Strand's path falls with every insert traced, because heads coalesce without end: its rates are a lower bound.");
    Ok(())
}

/// Every queue with every number of threads, timed and traced: six steps of the run.
pub(super) fn measure(run: &mut Run<'_>) -> Result<Vec<Point>> {
    let traced = run.pick(160, 2_000, 20_000);
    let native = run.pick(4_000, 200_000, 2_000_000);
    run.set("inserts traced", traced);
    run.set("inserts timed", native);
    let mut points = Vec::new();
    for (number, design) in Design::ALL.into_iter().enumerate() {
        for threads in THREADS {
            run.step(format!("{}, {threads} threads", design.name()))?;
            let instruction_rate = instruction_rate(run, design, threads, native)?;
            run.go_on(0.5)?;
            let each = traced / threads as u64;
            let trace = trace(design, threads, each, run.next_seed())?;
            let mut reports = [TimingReport::default(); 3];
            for (report, model) in reports.iter_mut().zip(MODELS) {
                *report = Timing::of(&trace, TimingSettings::of(model))?;
            }
            let inserts = each * threads as u64;
            points.push(Point { design: number, threads, instruction_rate, inserts, reports });
        }
    }
    Ok(points)
}

fn compare(run: &mut Run<'_>, points: &[Point]) -> Result<()> {
    let of =
        |design: usize, threads: usize| points.iter().find(|p| (p.design, p.threads) == (design, threads));
    let missing = || Error::new(ErrorKind::Unsupported, "a queue was not measured");
    let first = of(0, 1).ok_or_else(missing)?;
    let rate = format!("{:.2} M inserts/s here", first.instruction_rate / 1e6);
    run.compare(STRICT, first.rates(0).normalised(), &rate)?;
    for (design, name) in GAIN.into_iter().enumerate() {
        let point = of(design, 1).ok_or_else(missing)?;
        run.compare(name, point.rates(1).persist_bound / point.rates(0).persist_bound, "")?;
    }
    let least = |threads: usize, model: usize| {
        let normalised =
            points.iter().filter(|point| point.threads == threads).map(|p| p.rates(model).normalised());
        normalised.fold(f64::INFINITY, f64::min)
    };
    run.compare(STRAND, least(1, 2), "")?;
    run.compare(EPOCH_EIGHT, least(8, 1), "")
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
        let of =
            |point: &Point| if published { point.published(model) } else { point.rates(model).normalised() };
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
