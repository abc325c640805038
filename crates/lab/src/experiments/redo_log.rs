//! The store with a redo log in persistent memory: what each memory makes of reads and durable writes.

use crate::experiment::{Experiment, Kind, Published, Rule};
use crate::raw::probe;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{LocalTarget, StoreChoice, records};
use tierstone::RedoOptions;
use tierstone_base::Result;
use tierstone_media::region::MEMORY_PROFILES;
use tierstone_workload::{Extent, Mix, Outcome, Pacing};

const VALUE_BYTES: u32 = 100;
/// Region of the redo log: sixteen slots of 1 MiB groups.
const REGION: &str = "emulated:20MiB";
/// Gets and puts as published: 90/10, 50/50, 10/90.
const PUT_SHARES: [f64; 3] = [0.1, 0.5, 0.9];

const WRITES: &str = "nine puts of ten, of one put of ten (dcpmm)";
const SLOWER: &str = "nine puts of ten: dcpmm, of this machine's memory";

/// Section 6.8 of the digest's RStore: mixes of gets and puts.
pub const EXPERIMENT: Experiment = Experiment {
    name: "redo-log",
    title: "Durable writes with a redo log in persistent memory",
    source: "Lersch 2020 (TU Dresden), section 5.8: RStore and RStore in memory only, read-heavy, balanced and write-heavy",
    measures: "Random gets and overwrites of 100 B, one at a time by one local caller, every put durable before the next: \
               with the device alone, and with a redo log in memory of this machine's speed and in memories made as slow \
               as published ones, in real time. Published is a server with clients over a network, on DCPMM; here \
               there is no network, the data lie on the device, and the memory is emulated, so shapes are compared.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: WRITES,
            value: 1.0,
            unit: "ratio",
            place: "section 5.8: RStore's throughput degrades with writes",
            because: "published is only that it is less than 1",
            rule: Rule::AtMost(1.0),
        },
        Published {
            name: SLOWER,
            value: 1.0,
            unit: "ratio",
            place: "section 5.8: RStore in memory only is faster than RStore",
            because: "published is only that it is less than 1; the memory here serves the log alone, not the data",
            rule: Rule::AtMost(1.0),
        },
    ],
    series: &[],
    space_bytes: |_| 2 << 30,
    run,
};

/// One memory, or the device.
struct Medium {
    name: String,
    region: Option<String>,
    outcomes: Vec<Outcome>,
    device_bytes_a_put: f64,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    let presets = MEMORY_PROFILES.iter().filter(|profile| profile.slowness().is_some());
    let presets =
        presets.map(|profile| (profile.name.to_owned(), Some(format!("{REGION}:{}", profile.name))));
    let own = [("device".to_owned(), None), ("memory".to_owned(), Some(REGION.to_owned()))];
    let mut media: Vec<Medium> = own
        .into_iter()
        .chain(presets)
        .map(|(name, region)| Medium { name, region, outcomes: Vec::new(), device_bytes_a_put: 0.0 })
        .collect();
    run.expect_steps(1 + (media.len() * (1 + PUT_SHARES.len())) as u32);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let count = run.pick(1_000, 50_000, 200_000);
    run.set("records", count);
    run.set("value bytes", VALUE_BYTES);
    run.set("region", REGION);
    let choice = StoreChoice {
        capacity_bytes: Some(1 << 30),
        ..StoreChoice::with_cache(count * 256, count, 1, method)
    };
    for medium in &mut media {
        measure(run, &choice, count, medium)?;
    }
    report(run, &media)
}

fn measure(run: &mut Run<'_>, choice: &StoreChoice, count: u64, medium: &mut Medium) -> Result<()> {
    run.step(format!("{}: loading", medium.name))?;
    let choice = StoreChoice { redo: medium.region.clone().map(RedoOptions::new), ..choice.clone() };
    let folder = run.folder().join("store");
    let workload = records(count, VALUE_BYTES);
    let mut target = LocalTarget::open(&choice, &folder)?;
    run.load(&workload, 0..count, 16_384, &mut target)?;
    target.settle(run)?;
    let pacing = Pacing { extent: Extent::Seconds(run.pick(0.02, 0.5, 3.0)), ..Pacing::default() };
    for share in PUT_SHARES {
        run.step(format!("{}: {:.0} % puts", medium.name, share * 100.0))?;
        let mixed = tierstone_workload::Workload { mix: Mix::puts(share), ..workload.clone() };
        let before = target.store().statistics().device.bytes_written;
        let outcome = run.drive(&mixed, &pacing, &mut target)?;
        let written = target.store().statistics().device.bytes_written - before;
        medium.device_bytes_a_put = written as f64 / (outcome.operations as f64 * share).max(1.0);
        medium.outcomes.push(outcome);
    }
    drop(target);
    Ok(std::fs::remove_dir_all(&folder)?)
}

fn report(run: &mut Run<'_>, media: &[Medium]) -> Result<()> {
    let rate = |name: &str, share: usize| {
        let medium = media.iter().find(|medium| medium.name == name);
        medium.and_then(|medium| medium.outcomes.get(share)).map_or(f64::NAN, |outcome| outcome.rate)
    };
    run.compare(WRITES, rate("dcpmm", 2) / rate("dcpmm", 0), "one caller")?;
    run.compare(SLOWER, rate("dcpmm", 2) / rate("memory", 2), "one caller")?;
    let mut table = Table::new(
        "rates",
        "Durable puts and gets, one at a time",
        &[
            "newest writes lie in",
            "share of puts",
            "operations/s",
            "p50 µs",
            "p99 µs",
            "bytes to the device a put, last share",
        ],
    );
    for medium in media {
        for (share, outcome) in PUT_SHARES.iter().zip(&medium.outcomes) {
            table.push([
                medium.name.as_str().into(),
                (*share).into(),
                outcome.rate.into(),
                outcome.latency.p50_us.into(),
                outcome.latency.p99_us.into(),
                medium.device_bytes_a_put.into(),
            ]);
        }
    }
    run.table(table);
    let points = |medium: &Medium| -> Vec<(f64, f64)> {
        PUT_SHARES.iter().copied().zip(medium.outcomes.iter().map(|outcome| outcome.rate)).collect()
    };
    run.plot(Plot {
        name: "rates".to_owned(),
        title: "The rate by the share of durable puts (100 B, one caller)".to_owned(),
        x: Axis::linear("share of puts"),
        y: Axis::logarithmic("operations a second"),
        series: media.iter().map(|medium| Series::new(&medium.name, points(medium))).collect(),
    });
    Ok(())
}
