//! Memory persistency: the critical path by the size in which conflicts are found.

use super::persistency::value;
use crate::experiment::{Experiment, Kind, Rule};
use crate::queues::{Sweep, sweeps};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::Result;
use tierstone_persist::queue::Design;
use tierstone_persist::timing::TimingSettings;

const LOCKED: &str = "Copy While Locked: epoch of strict at 512 bytes";
const HOLES: &str = "Queue Holes: epoch of strict at 512 bytes";
const STEPS: &str = "epoch: the least of a size's critical path, of the size before (both queues)";
const FLAT: &str = "strict: critical path at 512 bytes, of 8 (the farther from 1 of both queues)";

/// Figure 8.3 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "persist-tracking-size",
    title: "Memory persistency: critical path by the size of tracking (persistent false sharing)",
    source: "Pelley 2014 (University of Michigan), Figure 8.3",
    measures: "Inserts of 100 bytes by one thread: the persists that must follow each other, an insert, when conflicts are \
               found in blocks of 8 to 512 bytes of both memories, and 8 bytes persist at once. Traces as in \
               persist-atomic-size. Drawn in the publication for Copy While Locked and Queue Holes, without numbers; the \
               third queue is added.",
    kind: Kind::Modelled,
    published: &[
        value(
            LOCKED,
            1.0,
            "ratio",
            "section 8.2.2: at 512 bytes both have comparable critical paths",
            "whether coarse tracking makes epoch as bad as strict",
            Rule::Between(0.9, 1.0),
        ),
        value(
            HOLES,
            1.0,
            "ratio",
            "section 8.2.2: at 512 bytes both have comparable critical paths",
            "the same",
            Rule::Between(0.9, 1.0),
        ),
        value(
            STEPS,
            1.0,
            "ratio",
            "section 8.2.2: the critical path of epoch increases",
            "whether no larger size has a shorter path",
            Rule::AtLeast(1.0),
        ),
        value(
            FLAT,
            1.0,
            "ratio",
            "section 8.2.2: strict remains the same",
            "whether false sharing leaves strict alone",
            Rule::Between(0.99, 1.01),
        ),
    ],
    series: &[],
    space_bytes: |_| 0,
    run,
};

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(4);
    let inserts = run.pick(160, 2_000, 20_000);
    run.set("inserts traced", inserts);
    let sweeps = sweeps(run, inserts, |settings, size| TimingSettings { tracking_bytes: size, ..settings })?;
    run.step("comparing")?;
    // Published are the first and the last.
    let (locked, holes) = (&sweeps[0].1, &sweeps[2].1);
    for (name, sweep) in [(LOCKED, locked), (HOLES, holes)] {
        let (_, strict, epoch) = sweep[sweep.len() - 1];
        run.compare(name, epoch / strict, &format!("{epoch:.2} and {strict:.2} persists an insert"))?;
    }
    let steps = [locked, holes].into_iter().flat_map(|sweep| sweep.array_windows().map(|[a, b]| b.2 / a.2));
    run.compare(STEPS, steps.fold(f64::INFINITY, f64::min), "")?;
    let flat = |sweep: &Sweep| sweep[sweep.len() - 1].1 / sweep[0].1;
    let farther =
        [locked, holes].map(flat).into_iter().max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()));
    run.compare(FLAT, farther.unwrap_or(f64::NAN), "")?;
    report(
        run,
        "tracking-size",
        "Critical path by the size in which conflicts are found (modelled)",
        &sweeps,
    );
    Ok(())
}

/// The table and the plot of sweeps over sizes.
pub(super) fn report(run: &mut Run<'_>, name: &str, title: &str, sweeps: &[(Design, Sweep)]) {
    let mut table = Table::new(
        name,
        title,
        &["queue", "bytes", "strict, persists in a row an insert", "epoch, persists in a row an insert"],
    );
    let mut series = Vec::new();
    for (design, sweep) in sweeps {
        for &(size, strict, epoch) in sweep {
            table.push([design.name().into(), size.into(), strict.into(), epoch.into()]);
        }
        let mut line = |model: &str, of: fn(&(u64, f64, f64)) -> f64| {
            let points = sweep.iter().map(|point| (point.0 as f64, of(point)));
            series.push(Series::new(&format!("{}, {model}", design.name()), points));
        };
        line("strict", |point| point.1);
        line("epoch", |point| point.2);
    }
    run.table(table);
    run.plot(Plot {
        name: name.to_owned(),
        title: format!("1 thread: {}", title.to_lowercase()),
        x: Axis::logarithmic("bytes"),
        y: Axis::linear("persists in a row an insert"),
        series,
    });
}
