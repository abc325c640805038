//! Memory persistency: inserts by the latency of a persist, and the latency at which persists begin to bound them.

use super::persistency::{LATENCY_NS, Point, measure, value};
use crate::experiment::{Experiment, Kind, PublishedSeries, Rule};
use crate::queues::MODELS;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_persist::queue::Design;

/// Figure 8.1 as printed in its section: Copy While Locked, one thread; strict, epoch, strand.
const PRINTED_NS: [f64; 3] = [17.0, 119.0, 6_000.0];
/// The published axis: 10 ns to 100 us, five points a decade.
const POINTS: i32 = 20;

const STRICT: &str = "Copy While Locked, 1 thread, strict: break-even latency";
const EPOCH: &str = "Copy While Locked, 1 thread: break-even of epoch, of strict";
const STRAND: &str = "Copy While Locked, 1 thread: break-even of strand, of strict";
const LEAST_EPOCH: &str = "the least of all queues and threads: break-even of epoch, of strict";
const LEAST_STRAND: &str = "the least of all queues and threads: break-even of strand, of epoch";
const FLAT: &str = "Copy While Locked, 1 thread, strict: rate at 10 ns, of the rate without persists";

/// Figure 8.1 of the dissertation, for every queue.
pub const EXPERIMENT: Experiment = Experiment {
    name: "persist-latency",
    title: "Memory persistency: inserts by persist latency, and break-even latencies",
    source: "Pelley 2014 (University of Michigan), Figure 8.1, section 8.2.1, Table 8.1",
    measures: "Inserts of 100 bytes by one thread and by eight into three queues under three models, as the experiment \
               persistency has them. The rate is the lower of the instruction rate (measured here) and the rate that \
               the critical path allows (modelled), for latencies of 10 ns to 100 us; both are equal at the break-even \
               latency. Published for Copy While Locked with one thread; for the others Table 8.1 gives it, as 500 ns \
               by the normalised rate. Faster processors break even earlier, so models are compared with each other.",
    kind: Kind::Modelled,
    published: &[
        value(
            STRICT,
            PRINTED_NS[0],
            "ns",
            "Figure 8.1, section 8.2.1: 17 ns",
            "whether strict persistency is bound by persists near the latency of DRAM; faster processors have a lower one",
            Rule::AtMost(75.0),
        ),
        value(
            EPOCH,
            PRINTED_NS[1] / PRINTED_NS[0],
            "ratio",
            "section 8.2.1: 119 ns / 17 ns; Table 8.1 implies 85 ns, a ratio of 5",
            "whether epochs move the break-even",
            Rule::AtLeast(4.0),
        ),
        value(
            STRAND,
            PRINTED_NS[2] / PRINTED_NS[0],
            "ratio",
            "section 8.2.1: above 6 us / 17 ns",
            "whether strands move it by far more; without end here, as heads coalesce",
            Rule::AtLeast(100.0),
        ),
        value(
            LEAST_EPOCH,
            5.0,
            "ratio",
            "Table 8.1: the least is 0.17 / 0.034",
            "whether every queue can bear slower persists with epochs",
            Rule::AtLeast(3.0),
        ),
        value(
            LEAST_STRAND,
            22.0 / 3.4,
            "ratio",
            "Table 8.1: the least is 22 / 3.4",
            "whether every queue can bear slower persists still with strands",
            Rule::AtLeast(3.0),
        ),
        value(
            FLAT,
            1.0,
            "ratio",
            "Figure 8.1: at low latency all models achieve the instruction rate",
            "a processor that inserts faster than the published one is bound already at 10 ns",
            Rule::AtLeast(0.5),
        ),
    ],
    series: &[PublishedSeries {
        name: "break-even of strict, epoch (printed; 85 from the table) and strand",
        place: "Figure 8.1",
        x: "model (1 strict, 2 epoch, 3 strand)",
        y: "persist latency, ns",
        points: &[(1.0, PRINTED_NS[0]), (2.0, PRINTED_NS[1]), (3.0, PRINTED_NS[2])],
    }],
    space_bytes: |_| 0,
    run,
};

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(7);
    let points = measure(run)?;
    run.step("comparing")?;
    compare(run, &points)?;
    table(run, &points);
    for design in 0..Design::ALL.len() {
        plot(run, points.iter().filter(|point| point.design == design).collect());
    }
    run.note("Where threads outnumber processors, their instruction rate is that of as many threads as there are processors.");
    run.note("The printed break-even of epoch persistency, 119 ns, and the 0.17 of Table 8.1, which gives 85 ns, contradict each other; both are in the table, and both are drawn.");
    Ok(())
}

fn compare(run: &mut Run<'_>, points: &[Point]) -> Result<()> {
    let missing = || Error::new(ErrorKind::Unsupported, "a queue was not measured");
    let first = points.first().ok_or_else(missing)?;
    let rate = format!("{:.2} M inserts/s here", first.rate.per_second / 1e6);
    run.compare(STRICT, first.break_even_ns(0), &rate)?;
    run.compare(EPOCH, first.break_even_ns(1) / first.break_even_ns(0), "")?;
    run.compare(STRAND, first.break_even_ns(2) / first.break_even_ns(0), "")?;
    let least = |slow: usize, fast: usize| {
        let ratios = points.iter().map(|point| point.break_even_ns(fast) / point.break_even_ns(slow));
        ratios.fold(f64::INFINITY, f64::min)
    };
    run.compare(LEAST_EPOCH, least(0, 1), "")?;
    run.compare(LEAST_STRAND, least(1, 2), "")?;
    run.compare(FLAT, first.rates_at(0, 10.0).throughput() / first.rate.per_second, &rate)
}

/// What is published of a point: as printed, where it is, and as it follows from Table 8.1.
fn published_ns(point: &Point, model: usize) -> (Option<f64>, f64) {
    let is_printed = (point.design, point.threads) == (0, 1);
    (is_printed.then(|| PRINTED_NS[model]), LATENCY_NS * point.published(model))
}

fn table(run: &mut Run<'_>, points: &[Point]) {
    let mut table = Table::new(
        "break-even",
        "Persist latency up to which instructions bound the rate",
        &[
            "queue",
            "threads",
            "model",
            "instruction rate, M/s (measured)",
            "persists in a row an insert (modelled)",
            "break-even latency, ns (modelled)",
            "break-even latency, ns (published, printed in section 8.2.1)",
            "break-even latency, ns (published, 500 ns by Table 8.1)",
        ],
    );
    for point in points {
        for (model, of) in MODELS.into_iter().enumerate() {
            let (printed, by_table) = published_ns(point, model);
            table.push([
                point.name().into(),
                (point.threads as u64).into(),
                of.name().into(),
                (point.rate.per_second / 1e6).into(),
                point.rates_at(model, LATENCY_NS).path_per_operation.into(),
                point.break_even_ns(model).into(),
                printed.unwrap_or(f64::NAN).into(),
                by_table.into(),
            ]);
        }
    }
    run.table(table);
}

/// One queue: the rate of its instruction rate by latency, each model and number of threads here, and one thread as published.
fn plot(run: &mut Run<'_>, points: Vec<&Point>) {
    let latencies = || (0..=POINTS).map(|step| 10.0 * 10f64.powf(f64::from(step) / 5.0));
    let mut series = Vec::new();
    for point in &points {
        for (model, of) in MODELS.into_iter().enumerate() {
            let name = format!("{}, {} threads, here", of.name(), point.threads);
            let share = |latency| point.rates_at(model, latency).throughput() / point.rate.per_second;
            series.push(Series::new(&name, latencies().map(|latency| (latency, share(latency)))));
            if point.threads == 1 {
                let (printed, by_table) = published_ns(point, model);
                let mut draw = |even: f64, which: &str| {
                    let name = format!("{}, 1 thread, published{which}", of.name());
                    let share = |latency: f64| (latency, (even / latency).min(1.0));
                    series.push(Series::new(&name, latencies().map(share)));
                };
                draw(printed.unwrap_or(by_table), "");
                // The two contradict each other for epochs.
                if printed.is_some_and(|printed| (printed / by_table - 1.0).abs() > 0.1) {
                    draw(by_table, " in Table 8.1");
                }
            }
        }
    }
    let Some(first) = points.first() else { return };
    run.plot(Plot {
        name: format!("latency-{}", first.name().to_lowercase().replace(' ', "-")),
        title: format!("{}: inserts by persist latency, of those without persists (modelled)", first.name()),
        x: Axis::logarithmic("persist latency, ns"),
        y: Axis::logarithmic("rate, of the instruction rate"),
        series,
    });
}
