//! Memory persistency: whether tracing changes who inserts when.

use super::persistency::value;
use crate::experiment::{Experiment, Kind, Rule};
use crate::queues::{Running, distances};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::Result;
use tierstone_persist::queue::Design;

const THREADS: [usize; 2] = [2, 8];
/// Distances 0, 1, 2 to 3, 4 to 7 and so on; the last has all above.
const BUCKETS: usize = 16;
/// As which the threads run, in the order of the table's columns.
const WAYS: [(Running, &str); 4] = [
    (Running::Native, "native"),
    (Running::Native, "native, again"),
    (Running::Traced, "traced"),
    (Running::InTurns, "traced, in turns of a seed"),
];

const SAME: [&str; 3] = [
    "Copy While Locked, 8 threads: what native and traced distances have in common",
    "Two-Lock Concurrent, 8 threads: what native and traced distances have in common",
    "Queue Holes, 8 threads: what native and traced distances have in common",
];
const PLACE: &str = "section 8.1: the distribution of insert distance is the same";

/// Section 8.1 of the dissertation, its check of the tracer.
pub const EXPERIMENT: Experiment = Experiment {
    name: "persist-distance",
    title: "Memory persistency: inserts of others between two of a thread, native and traced",
    source: "Pelley 2014 (University of Michigan), section 8.1 (performance validation)",
    measures: "Threads insert entries of 100 bytes as fast as they can; counted is how many inserts of others lie between \
               two successive ones of a thread, in the order of the queue. Native: nothing is recorded. Traced: every \
               access is, under the bank of locks. Native twice says what the machine itself varies. Turns drawn from a \
               seed, with which the other experiments trace, are shown beside them: they are no attempt at the same. \
               What two distributions have in common is the sum of the lower share of each bucket. Published is a \
               sentence, no number; its machine had a processor for each thread.",
    kind: Kind::Measured,
    published: &[
        value(
            SAME[0],
            1.0,
            "ratio",
            PLACE,
            "whether tracing leaves the interleaving as it is",
            Rule::AtLeast(0.8),
        ),
        value(SAME[1], 1.0, "ratio", PLACE, "the same", Rule::AtLeast(0.8)),
        value(SAME[2], 1.0, "ratio", PLACE, "the same", Rule::AtLeast(0.8)),
    ],
    series: &[],
    space_bytes: |_| 0,
    run,
};

/// The distances of one queue with one number of threads, as each of [`WAYS`].
struct Found {
    design: Design,
    threads: usize,
    shares: Vec<[f64; BUCKETS]>,
    means: Vec<f64>,
}

impl Found {
    /// What the distributions of two ways have in common: 1 for the same, 0 for nothing.
    fn common(&self, one: usize, other: usize) -> f64 {
        self.shares[one].iter().zip(&self.shares[other]).map(|(a, b)| a.min(*b)).sum()
    }
}

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps((Design::ALL.len() * THREADS.len()) as u32 + 1);
    let each = run.pick(30, 500, 5_000);
    run.set("inserts a thread", each);
    let mut all = Vec::new();
    for design in Design::ALL {
        for threads in THREADS {
            run.step(format!("{}, {threads} threads", design.name()))?;
            let mut found = Found { design, threads, shares: Vec::new(), means: Vec::new() };
            for (number, (running, _)) in WAYS.into_iter().enumerate() {
                let seed = run.next_seed();
                let distances = distances(design, threads, each, running, seed)?;
                found.means.push(distances.iter().sum::<u64>() as f64 / distances.len().max(1) as f64);
                found.shares.push(shares(&distances));
                run.go_on((number + 1) as f64 / WAYS.len() as f64)?;
            }
            all.push(found);
        }
    }
    run.step("comparing")?;
    let eight = all.iter().filter(|found| found.threads == 8);
    for (name, found) in SAME.into_iter().zip(eight) {
        let detail = format!("two native runs have {:.2} in common", found.common(0, 1));
        run.compare(name, found.common(0, 2), &detail)?;
    }
    report(run, &all);
    Ok(())
}

fn bucket(distance: u64) -> usize {
    ((u64::BITS - distance.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// The least distance of a bucket.
fn least(bucket: usize) -> u64 {
    if bucket == 0 { 0 } else { 1 << (bucket - 1) }
}

fn shares(distances: &[u64]) -> [f64; BUCKETS] {
    let mut shares = [0.0; BUCKETS];
    for &distance in distances {
        shares[bucket(distance)] += 1.0 / distances.len() as f64;
    }
    shares
}

fn report(run: &mut Run<'_>, all: &[Found]) {
    let mut means = Table::new(
        "distances",
        "Inserts of others between two of a thread (measured)",
        &[
            "queue",
            "threads",
            "mean, native",
            "mean, native, again",
            "mean, traced",
            "mean, in turns",
            "native twice in common",
            "native and traced in common",
            "native and in turns in common",
        ],
    );
    let mut histograms = Table::new(
        "histograms",
        "Share of each distance (measured)",
        &["queue", "threads", "distance from", "native", "native, again", "traced", "in turns"],
    );
    for found in all {
        let (name, threads) = (found.design.name(), found.threads as u64);
        means.push([
            name.into(),
            threads.into(),
            found.means[0].into(),
            found.means[1].into(),
            found.means[2].into(),
            found.means[3].into(),
            found.common(0, 1).into(),
            found.common(0, 2).into(),
            found.common(0, 3).into(),
        ]);
        for place in 0..BUCKETS {
            let of = |way: usize| found.shares[way][place].into();
            histograms.push([name.into(), threads.into(), least(place).into(), of(0), of(1), of(2), of(3)]);
        }
    }
    run.table(means);
    run.table(histograms);
    for found in all.iter().filter(|found| found.threads == 8) {
        let series = WAYS.iter().zip(&found.shares).map(|((_, name), shares)| {
            let points = shares.iter().enumerate();
            // A logarithmic axis has no zero: distances are drawn one higher.
            Series::new(name, points.map(|(place, share)| (least(place) as f64 + 1.0, *share)))
        });
        run.plot(Plot {
            name: format!("distances-{}", found.design.name().to_lowercase().replace(' ', "-")),
            title: format!("{}, 8 threads: inserts of others between two of a thread", found.design.name()),
            x: Axis::logarithmic("inserts of others from, and one"),
            y: Axis::linear("share"),
            series: series.collect(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_and_the_last_has_the_rest() {
        for place in 0..BUCKETS {
            assert_eq!(bucket(least(place)), place);
            assert!(place == 0 || bucket(least(place) - 1) == place - 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let shares = shares(&[0, 0, 1, 5]);
        assert_eq!((shares[0], shares[1], shares[3], shares.iter().sum::<f64>()), (0.5, 0.25, 0.25, 1.0));
    }
}
