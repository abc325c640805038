//! Memory persistency: what ordering persists costs three queues under three models.

use crate::experiment::{Experiment, Kind, Published, PublishedSeries, Rule};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::{Clock, Error, ErrorKind, Result};
use tierstone_media::region::{FlushMethod, MappedRegion, Region, RegionSettings};
use tierstone_persist::memory::{Direct, Memory, VolatileWords};
use tierstone_persist::order::Model;
use tierstone_persist::queue::{Design, Queue, QueueSettings};
use tierstone_persist::timing::{Rates, Timing, TimingReport, TimingSettings, break_even_ns};
use tierstone_persist::trace::Trace;
use tierstone_persist::tracer::{TraceSettings, record};

/// The published entry.
const ENTRY_BYTES: usize = 100;
/// Bytes that such an entry takes in every design.
const ROOM_BYTES: u64 = 128;
/// The published latency of a persist.
const LATENCY_NS: f64 = 500.0;
const MODELS: [Model; 3] = [Model::Strict, Model::Epoch, Model::Strand];
const THREADS: [usize; 2] = [1, 8];
const SIZES: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];

/// Table 8.1: designs as [`Design::ALL`], threads as [`THREADS`], models as [`MODELS`].
const TABLE: [[[f64; 3]; 2]; 3] = [
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
const EVEN_STRICT: &str = "Copy While Locked, 1 thread, strict: break-even latency";
const EVEN_EPOCH: &str = "Copy While Locked, 1 thread: break-even of epoch, of strict";
const EVEN_STRAND: &str = "Copy While Locked, 1 thread: break-even of strand, of strict";
const ATOMIC: &str = "Copy While Locked: strict of epoch with atomic blocks of 512 bytes";
const TRACKING: &str = "Copy While Locked: epoch of strict with tracking of 512 bytes";

const fn value(
    name: &'static str,
    value: f64,
    unit: &'static str,
    place: &'static str,
    because: &'static str,
    rule: Rule,
) -> Published {
    Published { name, value, unit, place, because, rule }
}

/// Table 8.1 and Figures 8.1 to 8.3 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "persistency",
    title: "Memory persistency: what the order of persists costs three queues",
    source: "Pelley 2014 (University of Michigan), Table 8.1, Figures 8.1 to 8.3",
    measures: "Inserts of 100 bytes by one thread and by eight. The instruction rate is measured here: the queues on \
               ordinary memory, a barrier a store fence, nothing written back. The critical path an insert comes from \
               traces of the same code, by the rules of each model; the persist-bound rate is modelled from it \
               with 500 ns a persist. Published: a 2.4 GHz Xeon of 2010, 100,000,000 inserts; its copies are wider than \
               the 8 bytes that are stored here at once, and its locks another implementation. Eight threads have \
               two processors here.",
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
        value(
            EVEN_STRICT,
            17.0,
            "ns",
            "Figure 8.1, section 8.2: 17 ns",
            "whether strict persistency is bound by persists near the latency of DRAM; faster processors have a lower one",
            Rule::AtMost(75.0),
        ),
        value(
            EVEN_EPOCH,
            119.0 / 17.0,
            "ratio",
            "Figure 8.1: 119 ns / 17 ns; Table 8.1 implies 85 ns, a ratio of 5",
            "whether epochs move the break-even",
            Rule::AtLeast(4.0),
        ),
        value(
            EVEN_STRAND,
            6000.0 / 17.0,
            "ratio",
            "Figure 8.1: about 6 us / 17 ns",
            "whether strands move it by far more; without end here, as heads coalesce",
            Rule::AtLeast(100.0),
        ),
        value(
            ATOMIC,
            1.0,
            "ratio",
            "Figure 8.2: strict equals epoch at 512 bytes",
            "whether large atomic blocks make strict as good as epoch, nearly",
            Rule::AtMost(2.2),
        ),
        value(
            TRACKING,
            1.0,
            "ratio",
            "Figure 8.3: epoch is about strict at 512 bytes",
            "whether coarse tracking makes epoch as bad as strict",
            Rule::Between(0.9, 1.0),
        ),
    ],
    series: &[PublishedSeries {
        name: "break-even of strict, epoch (printed; 85 from the table) and strand",
        place: "Figure 8.1",
        x: "model (1 strict, 2 epoch, 3 strand)",
        y: "persist latency, ns",
        points: &[(1.0, 17.0), (2.0, 119.0), (3.0, 6000.0)],
    }],
    space_bytes: |_| 0,
    run,
};

/// What is known of one queue with one number of threads.
struct Point {
    design: usize,
    threads: usize,
    instruction_rate: f64,
    inserts: u64,
    reports: [TimingReport; 3],
}

impl Point {
    fn rates(&self, model: usize) -> Rates {
        Rates::new(&self.reports[model], self.inserts, LATENCY_NS, self.instruction_rate)
    }

    fn break_even_ns(&self, model: usize) -> f64 {
        break_even_ns(self.rates(model).path_per_operation, self.instruction_rate)
    }
}

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(8);
    let traced = run.pick(160, 2_000, 20_000);
    let native = run.pick(4_000, 200_000, 2_000_000);
    run.set("inserts traced", traced);
    run.set("inserts timed", native);
    let (mut points, mut first_trace) = (Vec::new(), None);
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
            points.push(Point {
                design: number,
                threads,
                instruction_rate,
                inserts: each * threads as u64,
                reports,
            });
            first_trace.get_or_insert(trace);
        }
    }
    run.step("atomic and tracking sizes")?;
    let trace = first_trace.unwrap_or_default();
    let (atomic, tracking) = sweeps(run, &trace, traced)?;
    run.step("comparing")?;
    compare(run, &points, &atomic, &tracking)?;
    report(run, &points);
    sweep_plot(run, "atomic-size", "Critical path by the size that persists at once (modelled)", &atomic);
    sweep_plot(
        run,
        "tracking-size",
        "Critical path by the size in which conflicts are found (modelled)",
        &tracking,
    );
    run.note(
        "Instruction rates are measured, critical paths come from traces, persist-bound rates are modelled.",
    );
    run.note("Where threads outnumber processors, the queue locks wait for the scheduler: rates of eight threads are then low, and their normalised values high.");
    run.note("Strand's path falls with every insert traced, because heads coalesce without end: its rates are a lower bound.");
    Ok(())
}

/// A queue with room for `inserts` entries, and its memories.
fn queue(design: Design, threads: usize, inserts: u64) -> Result<(Queue, MappedRegion, VolatileWords)> {
    let settings = QueueSettings::new(design, ROOM_BYTES * inserts, threads);
    // The instruction rate is that of a machine that need not persist: a barrier is a fence alone.
    let ordinary = RegionSettings { flush: Some(FlushMethod::FenceOnly), ..RegionSettings::default() };
    let region = MappedRegion::anonymous(settings.persistent_bytes(), &ordinary)?;
    // The kernel's first touch of each page is no part of an insert.
    region.store(0, &vec![0; settings.persistent_bytes() as usize]);
    let words = VolatileWords::new(settings.volatile_bytes());
    let queue = Queue::create(settings, &Direct::new(&region, &words, 0))?;
    Ok((queue, region, words))
}

/// Inserts a second, by threads that run freely, in rounds whose queue fits the memory.
fn instruction_rate(run: &mut Run<'_>, design: Design, threads: usize, inserts: u64) -> Result<f64> {
    const ROUND: u64 = 100_000;
    let clock = run.clock();
    let (mut done, mut took_us) = (0, 0);
    while done < inserts {
        let each = ROUND.min(inserts) / threads as u64;
        let (queue, region, words) = queue(design, threads, each * threads as u64)?;
        let insert_all = |thread| -> Result<()> {
            let memory = Direct::new(&region, &words, thread).relaxing(std::thread::yield_now);
            (0..each).try_for_each(|_| queue.insert(&memory, &[7; ENTRY_BYTES]).map(|_| ()))
        };
        let begun = clock.now().monotonic_us;
        std::thread::scope(|scope| {
            let insert_all = &insert_all;
            let started: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || insert_all(thread))).collect();
            started.into_iter().try_for_each(|thread| {
                let broken =
                    || Error::new(ErrorKind::Retry, "a thread of the measurement broke off; run again");
                thread.join().unwrap_or_else(|_| Err(broken()))
            })
        })?;
        took_us += clock.now().monotonic_us - begun;
        done += each * threads as u64;
        run.go_on(0.5 * done as f64 / inserts as f64)?;
    }
    Ok(done as f64 * 1e6 / took_us.max(1) as f64)
}

fn trace(design: Design, threads: usize, each: u64, seed: u64) -> Result<Trace> {
    let (queue, region, words) = queue(design, threads, each * threads as u64)?;
    record(
        &TraceSettings::seeded(threads, seed),
        |thread| Direct::new(&region, &words, thread),
        |memory| {
            let payload = [memory.thread() as u8; ENTRY_BYTES];
            (0..each).try_for_each(|_| queue.insert(memory, &payload).map(|_| ()))
        },
    )
}

/// Critical path an insert by size: strict, then epoch.
type Sweep = Vec<(u64, f64, f64)>;

fn sweeps(run: &mut Run<'_>, trace: &Trace, inserts: u64) -> Result<(Sweep, Sweep)> {
    let (mut atomic, mut tracking) = (Sweep::new(), Sweep::new());
    let path =
        |settings| -> Result<f64> { Ok(Timing::of(trace, settings)?.critical_path as f64 / inserts as f64) };
    for (number, size) in SIZES.into_iter().enumerate() {
        let by_atomic = |model| TimingSettings { atomic_bytes: size, ..TimingSettings::of(model) };
        let by_tracking = |model| TimingSettings { tracking_bytes: size, ..TimingSettings::of(model) };
        atomic.push((size, path(by_atomic(Model::Strict))?, path(by_atomic(Model::Epoch))?));
        tracking.push((size, path(by_tracking(Model::Strict))?, path(by_tracking(Model::Epoch))?));
        run.go_on((number + 1) as f64 / SIZES.len() as f64)?;
    }
    Ok((atomic, tracking))
}

fn compare(run: &mut Run<'_>, points: &[Point], atomic: &Sweep, tracking: &Sweep) -> Result<()> {
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
    run.compare(EPOCH_EIGHT, least(8, 1), "")?;
    run.compare(EVEN_STRICT, first.break_even_ns(0), &rate)?;
    run.compare(EVEN_EPOCH, first.break_even_ns(1) / first.break_even_ns(0), "")?;
    run.compare(EVEN_STRAND, first.break_even_ns(2) / first.break_even_ns(0), "")?;
    let last = |sweep: &Sweep| sweep.last().copied().unwrap_or_default();
    let ((_, strict, epoch), (_, strict_tracked, epoch_tracked)) = (last(atomic), last(tracking));
    run.compare(ATOMIC, strict / epoch, &format!("{strict:.2} and {epoch:.2} persists an insert"))?;
    let detail = format!("{epoch_tracked:.2} and {strict_tracked:.2} persists an insert");
    run.compare(TRACKING, epoch_tracked / strict_tracked, &detail)
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
        for (model, name) in MODELS.into_iter().map(Model::name).enumerate() {
            let rates = point.rates(model);
            let published = TABLE[point.design][usize::from(point.threads > 1)][model];
            table.push([
                Design::ALL[point.design].name().into(),
                (point.threads as u64).into(),
                name.into(),
                rates.path_per_operation.into(),
                (rates.instruction / 1e6).into(),
                (rates.persist_bound / 1e6).into(),
                rates.normalised().into(),
                published.into(),
                point.break_even_ns(model).into(),
            ]);
        }
    }
    run.table(table);
    let Some(first) = points.first() else { return };
    let curve = |model: usize| {
        let latencies = (0..=20).map(|step| 10.0 * 10f64.powf(f64::from(step) / 5.0));
        Series::new(
            MODELS[model].name(),
            latencies.map(|latency_ns| {
                let rates =
                    Rates::new(&first.reports[model], first.inserts, latency_ns, first.instruction_rate);
                (latency_ns, rates.throughput() / 1e6)
            }),
        )
    };
    run.plot(Plot {
        name: "latency".to_owned(),
        title: "Copy While Locked, 1 thread: inserts by persist latency (modelled)".to_owned(),
        x: Axis::logarithmic("persist latency, ns"),
        y: Axis::logarithmic("M inserts/s"),
        series: (0..MODELS.len()).map(curve).collect(),
    });
}

fn sweep_plot(run: &mut Run<'_>, name: &str, title: &str, sweep: &Sweep) {
    let mut table =
        Table::new(name, title, &["bytes", "strict, persists an insert", "epoch, persists an insert"]);
    for &(size, strict, epoch) in sweep {
        table.push([size.into(), strict.into(), epoch.into()]);
    }
    run.table(table);
    let series = |name: &str, of: fn(&(u64, f64, f64)) -> f64| {
        Series::new(name, sweep.iter().map(|point| (point.0 as f64, of(point))))
    };
    run.plot(Plot {
        name: name.to_owned(),
        title: format!("Copy While Locked, 1 thread: {}", title.to_lowercase()),
        x: Axis::logarithmic("bytes"),
        y: Axis::linear("persists an insert"),
        series: vec![series("strict", |point| point.1), series("epoch", |point| point.2)],
    });
}
