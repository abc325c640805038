//! Memory persistency: the critical path by the size that persists at once.

use super::persist_tracking_size::report;
use super::persistency::value;
use crate::experiment::{Experiment, Kind, Rule};
use crate::queues::{Sweep, sweeps};
use crate::run::Run;
use tierstone_base::Result;
use tierstone_persist::timing::TimingSettings;

const LOCKED: &str = "Copy While Locked: strict of epoch at 512 bytes";
const HOLES: &str = "Queue Holes: strict of epoch at 512 bytes";
const STEPS: &str = "strict: the greatest of a size's critical path, of the size before (both queues)";
const FLAT: &str = "epoch: critical path at 512 bytes, of 8 (the farther from 1 of both queues)";

/// Figure 8.2 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "persist-atomic-size",
    title: "Memory persistency: critical path by the size of atomic persists",
    source: "Pelley 2014 (University of Michigan), Figure 8.2",
    measures: "Inserts of 100 bytes by one thread: the persists that must follow each other, an insert, when blocks of 8 \
               to 512 bytes persist at once. Traces of the queues of tierstone-persist, in which every store is of 8 \
               bytes; entries begin at lines of 64 bytes, and the head lies in no block of 512 bytes with them. Drawn \
               in the publication for Copy While Locked and Queue Holes, without numbers; the third queue is added.",
    kind: Kind::Modelled,
    published: &[
        value(
            LOCKED,
            1.0,
            "ratio",
            "section 8.2.2: at 512 bytes strict matches epoch persistency",
            "whether large atomic blocks make strict as good as epoch, nearly: an entry and the head are two blocks here",
            Rule::AtMost(2.2),
        ),
        value(
            HOLES,
            1.0,
            "ratio",
            "section 8.2.2: at 512 bytes strict matches epoch persistency",
            "the same",
            Rule::AtMost(2.2),
        ),
        value(
            STEPS,
            1.0,
            "ratio",
            "section 8.2.2: strict steadily decreases",
            "whether no larger size has a longer path",
            Rule::AtMost(1.0),
        ),
        value(
            FLAT,
            1.0,
            "ratio",
            "section 8.2.2: epoch remains largely unchanged",
            "whether relaxed models gain nothing",
            Rule::Between(0.8, 1.2),
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
    let sweeps = sweeps(run, inserts, |settings, size| TimingSettings { atomic_bytes: size, ..settings })?;
    run.step("comparing")?;
    // Published are the first and the last.
    let (locked, holes) = (&sweeps[0].1, &sweeps[2].1);
    for (name, sweep) in [(LOCKED, locked), (HOLES, holes)] {
        let (_, strict, epoch) = sweep[sweep.len() - 1];
        run.compare(name, strict / epoch, &format!("{strict:.2} and {epoch:.2} persists an insert"))?;
    }
    let steps = [locked, holes].into_iter().flat_map(|sweep| sweep.array_windows().map(|[a, b]| b.1 / a.1));
    run.compare(STEPS, steps.fold(0.0, f64::max), "")?;
    let flat = |sweep: &Sweep| sweep[sweep.len() - 1].2 / sweep[0].2;
    let farther =
        [locked, holes].map(flat).into_iter().max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()));
    run.compare(FLAT, farther.unwrap_or(f64::NAN), "")?;
    report(run, "atomic-size", "Critical path by the size that persists at once (modelled)", &sweeps);
    Ok(())
}
