//! The store with a redo log in persistent memory, and wholly in it: what each memory makes of reads and durable writes.

use super::persistency::value;
use crate::experiment::{Experiment, Kind, Published, Rule};
use crate::raw::probe;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{LocalTarget, StoreChoice, Timed, records};
use tierstone::RedoOptions;
use tierstone_base::Result;
use tierstone_base::histogram::LatencyHistogram;
use tierstone_media::region::MEMORY_PROFILES;
use tierstone_workload::{Extent, Mix, Outcome, Pacing, Workload};

const VALUE_BYTES: u32 = 100;
/// Region of the redo log: sixteen slots of 1 MiB groups.
const REDO_REGION: &str = "20MiB";
/// Gets and puts as published: 90/10, 50/50, 10/90.
const PUT_SHARES: [f64; 3] = [0.1, 0.5, 0.9];
/// The place of the mix whose latencies are shown: gets and puts in equal parts.
const BALANCED: usize = 1;

/// The device alone, in tables.
const DEVICE: &str = "device";
/// Memory that is not slowed down, in tables.
const OWN: &str = "this machine's memory";
const DCPMM: &str = "dcpmm";

const WRITES: &str = "redo log in dcpmm: nine puts of ten, of one put of ten";
const SLOWER: &str = "nine puts of ten: redo log in dcpmm, of in this machine's memory";
const WHOLE_WRITES: &str = "all of it in dcpmm: nine puts of ten, of one put of ten";
const WHOLE_SLOWER: &str = "nine puts of ten: all of it in dcpmm, of in this machine's memory";

/// Section 5.8 of the dissertation: mixes of gets and puts.
pub const EXPERIMENT: Experiment = Experiment {
    name: "redo-log",
    title: "Durable writes with a redo log in persistent memory, and with all of the store in it",
    source: "Lersch 2020 (TU Dresden), section 5.8: RStore and RStore in memory only, read-heavy, balanced and write-heavy",
    measures: "Random gets and overwrites of 100 B, one at a time by one local caller, every put durable before the next: \
               with the device alone; with a redo log in memory of this machine's speed and in memories made as slow \
               as published ones, in real time; and with stores that lie wholly in each of these. Beside a device records \
               are cached in memory, so that gets do not wait for it; a store wholly in persistent memory reads them there. \
               Latencies are those of the calls, in nanoseconds, told in microseconds. Published is a server with clients \
               over a network, on DCPMM; here there is no network and the memory is emulated, so shapes are compared.",
    kind: Kind::Measured,
    published: &[
        degrades(
            WRITES,
            "published is only that it is less than 1; the memory here serves the log alone, not the data",
        ),
        slower(
            SLOWER,
            "published is only that it is less than 1; the memory here serves the log alone, not the data",
        ),
        degrades(WHOLE_WRITES, "published is only that it is less than 1"),
        slower(WHOLE_SLOWER, "published is only that it is less than 1"),
    ],
    series: &[],
    space_bytes: |_| 2 << 30,
    run,
};

const fn degrades(name: &'static str, because: &'static str) -> Published {
    let place = "section 5.8: RStore's throughput degrades with writes";
    value(name, 1.0, "ratio", place, because, Rule::AtMost(1.0))
}

const fn slower(name: &'static str, because: &'static str) -> Published {
    let place = "section 5.8: RStore in memory only is faster than RStore";
    value(name, 1.0, "ratio", place, because, Rule::AtMost(1.0))
}

/// What of a store lies in persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Nothing,
    RedoLog,
    All,
}

/// What was seen of one mix.
struct Seen {
    outcome: Outcome,
    gets: LatencyHistogram,
    puts: LatencyHistogram,
    device_bytes_a_put: f64,
}

/// One way to lie: which part of the store in which memory.
struct Medium {
    part: Part,
    /// A published memory; `None`: this machine's own.
    preset: Option<&'static str>,
    seen: Vec<Seen>,
}

impl Medium {
    fn memory(&self) -> &'static str {
        self.preset.unwrap_or(OWN)
    }

    fn name(&self) -> String {
        match self.part {
            Part::Nothing => DEVICE.to_owned(),
            Part::RedoLog => format!("redo log, {}", self.memory()),
            Part::All => format!("all of it, {}", self.memory()),
        }
    }

    /// A region of `size`, as settings name it.
    fn region(&self, size: &str) -> String {
        let preset = self.preset.map(|preset| format!(":{preset}")).unwrap_or_default();
        format!("emulated:{size}{preset}")
    }
}

/// The device, then a redo log in each memory, then all of the store in each.
fn media() -> Vec<Medium> {
    let medium = |part, preset| Medium { part, preset, seen: Vec::new() };
    let slowed = MEMORY_PROFILES.iter().filter(|profile| profile.slowness().is_some());
    let memories: Vec<Option<&'static str>> =
        std::iter::once(None).chain(slowed.map(|profile| Some(profile.name))).collect();
    let mut media = vec![medium(Part::Nothing, None)];
    for part in [Part::RedoLog, Part::All] {
        media.extend(memories.iter().map(|&preset| medium(part, preset)));
    }
    media
}

fn run(run: &mut Run<'_>) -> Result<()> {
    let mut media = media();
    run.expect_steps(1 + (media.len() * (1 + PUT_SHARES.len())) as u32);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let count = run.pick(1_000, 50_000, 200_000);
    // Room for cleaning in plenty: it is not what this is about.
    let whole = run.pick("64MiB", "256MiB", "1GiB");
    run.set("records", count);
    run.set("value bytes", VALUE_BYTES);
    run.set("memory of the redo log", REDO_REGION);
    run.set("memory of stores that lie wholly in it", whole);
    let choice = StoreChoice {
        capacity_bytes: Some(1 << 30),
        ..StoreChoice::with_cache(count * 256, count, 1, method)
    };
    for medium in &mut media {
        let region = |part, size| (medium.part == part).then(|| medium.region(size));
        let choice = StoreChoice {
            redo: region(Part::RedoLog, REDO_REGION).map(RedoOptions::new),
            whole: region(Part::All, whole),
            ..choice.clone()
        };
        measure(run, &choice, count, medium)?;
    }
    report(run, &media)
}

fn measure(run: &mut Run<'_>, choice: &StoreChoice, count: u64, medium: &mut Medium) -> Result<()> {
    run.step(format!("{}: loading", medium.name()))?;
    let folder = run.folder().join("store");
    let workload = records(count, VALUE_BYTES);
    let mut target = LocalTarget::open(choice, &folder)?;
    run.load(&workload, 0..count, 16_384, &mut target)?;
    target.settle(run)?;
    let pacing = Pacing { extent: Extent::Seconds(run.pick(0.02, 0.5, 3.0)), ..Pacing::default() };
    for share in PUT_SHARES {
        run.step(format!("{}: {:.0} % puts", medium.name(), share * 100.0))?;
        let mixed = Workload { mix: Mix::puts(share), ..workload.clone() };
        let before = target.store().statistics().device.bytes_written;
        let mut timed = Timed::new(&mut target);
        let outcome = run.drive(&mixed, &pacing, &mut timed)?;
        let (gets, puts) = (timed.gets, timed.puts);
        let written = target.store().statistics().device.bytes_written - before;
        let device_bytes_a_put = written as f64 / puts.count().max(1) as f64;
        medium.seen.push(Seen { outcome, gets, puts, device_bytes_a_put });
    }
    drop(target);
    if choice.whole.is_none() {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

fn report(run: &mut Run<'_>, media: &[Medium]) -> Result<()> {
    let rate = |part: Part, memory: &str, share: usize| {
        let medium = media.iter().find(|medium| medium.part == part && medium.memory() == memory);
        medium.and_then(|medium| medium.seen.get(share)).map_or(f64::NAN, |seen| seen.outcome.rate)
    };
    for (part, writes, slower) in [(Part::RedoLog, WRITES, SLOWER), (Part::All, WHOLE_WRITES, WHOLE_SLOWER)] {
        let medium = media.iter().find(|medium| medium.part == part && medium.memory() == DCPMM);
        let detail = medium.and_then(|medium| medium.seen.get(BALANCED)).map(|seen| {
            let [get_us, put_us] = [&seen.gets, &seen.puts].map(|latency| quantile_us(latency, 0.5));
            format!("one caller; half of the gets take {get_us:.2} µs or less, of the puts {put_us:.2} µs")
        });
        run.compare(writes, rate(part, DCPMM, 2) / rate(part, DCPMM, 0), &detail.unwrap_or_default())?;
        run.compare(slower, rate(part, DCPMM, 2) / rate(part, OWN, 2), "one caller")?;
    }
    run.show(latencies(media));
    run.table(mixes(media));
    for (name, title, part) in [
        ("redo-log", "A redo log in memory: the rate by the share of durable puts", Part::RedoLog),
        ("all", "All of it in memory: the rate by the share of durable puts", Part::All),
    ] {
        run.plot(rates(name, title, media, part));
    }
    run.note(
        "Measured on emulated memory: memory of this machine, slowed down in real time to the published figures of each preset. \
         No persistent memory was involved",
    );
    Ok(())
}

/// A quantile in microseconds; none of a few calls.
fn quantile_us(latency: &LatencyHistogram, quantile: f64) -> f64 {
    if latency.count() == 0 { f64::NAN } else { latency.quantile_ns(quantile) as f64 / 1e3 }
}

/// A row for each medium: latencies of the balanced mix, rates of all.
fn latencies(media: &[Medium]) -> Table {
    let mut table = Table::new(
        "latency",
        "Gets and durable puts in equal parts, one at a time: latencies measured on emulated memory; rates by the share of puts",
        &[
            "what lies in which memory",
            "get p50 µs",
            "get p99 µs",
            "put p50 µs",
            "put p99 µs",
            "10 %: op/s",
            "50 %: op/s",
            "90 %: op/s",
        ],
    );
    for medium in media {
        let Some(balanced) = medium.seen.get(BALANCED) else { continue };
        let rate = |share: usize| medium.seen.get(share).map_or(f64::NAN, |seen| seen.outcome.rate);
        table.push([
            medium.name().into(),
            quantile_us(&balanced.gets, 0.5).into(),
            quantile_us(&balanced.gets, 0.99).into(),
            quantile_us(&balanced.puts, 0.5).into(),
            quantile_us(&balanced.puts, 0.99).into(),
            rate(0).into(),
            rate(1).into(),
            rate(2).into(),
        ]);
    }
    table
}

/// A row for each medium and mix.
fn mixes(media: &[Medium]) -> Table {
    let mut table = Table::new(
        "mixes",
        "Every mix of gets and durable puts, one at a time",
        &[
            "what lies in which memory",
            "share of puts",
            "operations/s",
            "gets p50 µs",
            "gets p99 µs",
            "gets p99.9 µs",
            "puts p50 µs",
            "puts p99 µs",
            "puts p99.9 µs",
            "bytes to the device a put",
        ],
    );
    for medium in media {
        for (share, seen) in PUT_SHARES.iter().zip(&medium.seen) {
            table.push([
                medium.name().into(),
                (*share).into(),
                seen.outcome.rate.into(),
                quantile_us(&seen.gets, 0.5).into(),
                quantile_us(&seen.gets, 0.99).into(),
                quantile_us(&seen.gets, 0.999).into(),
                quantile_us(&seen.puts, 0.5).into(),
                quantile_us(&seen.puts, 0.99).into(),
                quantile_us(&seen.puts, 0.999).into(),
                seen.device_bytes_a_put.into(),
            ]);
        }
    }
    table
}

/// The rates of the device, and of `part` in each memory.
fn rates(name: &str, title: &str, media: &[Medium], part: Part) -> Plot {
    let points = |medium: &Medium| -> Vec<(f64, f64)> {
        PUT_SHARES.iter().copied().zip(medium.seen.iter().map(|seen| seen.outcome.rate)).collect()
    };
    let drawn = media.iter().filter(|medium| medium.part == Part::Nothing || medium.part == part);
    Plot {
        name: name.to_owned(),
        title: format!("{title} (100 B, one caller)"),
        x: Axis::linear("share of puts"),
        y: Axis::logarithmic("operations a second"),
        series: drawn.map(|medium| Series::new(&medium.name(), points(medium))).collect(),
    }
}
