//! A recorded workload replayed side by side: by the device alone, with a redo log in each of several emulated memories, and by
//! stores that lie wholly in them.
//!
//! Every round replays it once in each medium, in a fresh store, beginning with another one each time: what changes on
//! the machine in the meantime falls on all of them. Of the rounds the medians are told.

use crate::experiment::{Experiment, Kind};
use crate::raw::probe;
use crate::replay::{StoreReplay, replay};
use crate::result::{Axis, Cell, ExperimentResult, Plot, Series, Table};
use crate::run::{Observer, Run, RunSettings, run_with};
use std::ops::ControlFlow;
use std::path::PathBuf;
use tierstone::{DatabaseOptions, RedoOptions};
use tierstone_base::histogram::LatencyHistogram;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::region::{MEMORY_PROFILES, MemoryProfile};
use tierstone_workload::Progress;
use tierstone_workload::replay::{Pace, PlanReport, ReplayPlan, ReplaySettings};

/// The device alone, in tables.
const FLASH: &str = "flash alone";
/// Rounds at most.
const ROUNDS_MAX: u32 = 100;
/// Parts of the operations at which the plots have points.
const QUANTILES: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// What the result says of itself. It is no published experiment: there is nothing to compare with.
const ABOUT: Experiment = Experiment {
    name: "what-if",
    title: "What persistent memory would do for a recorded workload",
    source: "the user's own recorded workload",
    measures: "The operations of the trace on a fresh store of this machine: with its device alone, with a redo log in \
               memories that are emulated, that is, memory of this machine made as slow as published ones, in real time. \
               There is no network and no server; values have the recorded sizes and other bytes. Latencies are taken in \
               nanoseconds and told in microseconds; making the value of a write and checking what was read are in them.",
    kind: Kind::Measured,
    published: &[],
    series: &[],
    space_bytes: |_| 0,
    run: |_| {
        Err(Error::new(ErrorKind::Unsupported, "it needs a recorded workload: tierstone lab what-if FILE"))
    },
};

/// What is compared.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// Names of memories, as [`MEMORY_PROFILES`] has them; the device alone is always there.
    pub memories: Vec<String>,
    /// Bytes of the redo log's memory.
    pub region_bytes: u64,
    /// Bytes of the memory of stores that lie wholly in one; zero: there are none.
    pub whole_bytes: u64,
    /// How often each is measured, 1 to 100.
    pub rounds: u32,
    /// The store; its directory and redo log are set here.
    pub options: DatabaseOptions,
    /// When operations are asked for, and by how many callers.
    pub replay: ReplaySettings,
}

impl WhatIf {
    /// Errors: `InvalidInput` for an unknown or repeated memory, or rounds out of range.
    pub fn validate(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return wrong(format!("rounds must be 1 to {ROUNDS_MAX}"));
        }
        for (place, name) in self.memories.iter().enumerate() {
            if MemoryProfile::find(name).is_none() {
                let known: Vec<&str> = MEMORY_PROFILES.iter().map(|profile| profile.name).collect();
                return wrong(format!("there is no memory '{name}'; write some of {}", known.join(", ")));
            }
            if self.memories[..place].contains(name) {
                return wrong(format!("'{name}' is named twice"));
            }
        }
        self.replay.validate()
    }
}

/// One medium and what was seen of it, round by round.
struct Medium {
    name: String,
    redo: Option<RedoOptions>,
    /// The place of a store that lies wholly in memory.
    whole: Option<PathBuf>,
    rounds: Vec<StoreReplay>,
}

impl Medium {
    /// The middle of what `of` gives for the rounds.
    fn median(&self, of: impl Fn(&StoreReplay) -> f64) -> f64 {
        let mut sorted: Vec<f64> = self.rounds.iter().map(of).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
            (Some(low), Some(high)) => (low + high) / 2.0,
            _ => f64::NAN,
        }
    }
}

/// Replays `plan` in every medium of `what`.
///
/// # Errors
/// `InvalidInput` as of [`WhatIf::validate`]; `NoSpace` before anything is written when the disk has too little; `Retry`
/// when the observer ended it; else what the store said, or found to be wrong.
pub fn what_if(
    plan: &ReplayPlan,
    what: &WhatIf,
    settings: &RunSettings,
    observer: Observer<'_>,
) -> Result<ExperimentResult> {
    what.validate()?;
    let report = plan.report();
    // Twice, for what cleaning has to move, and room for segments that are hardly used.
    let space_bytes = (report.loaded_bytes + report.written_bytes) * 2 + (512 << 20);
    run_with(&ABOUT, settings, space_bytes, observer, &mut |run| measure(run, plan, what))
}

fn measure(run: &mut Run<'_>, plan: &ReplayPlan, what: &WhatIf) -> Result<()> {
    let mut media = media_of(what);
    run.expect_steps(1 + media.len() as u32 * what.rounds);
    run.step("probing how writes become durable")?;
    let probed = probe(run)?.method;
    let method = what.options.durable_method.unwrap_or(probed);
    note_settings(run, what);
    for round in 0..what.rounds as usize {
        for place in 0..media.len() {
            let count = media.len();
            let medium = &mut media[(place + round) % count];
            run.step(format!("{}, round {} of {}", medium.name, round + 1, what.rounds))?;
            let folder = run.folder().join("store");
            let options = match &medium.whole {
                None => DatabaseOptions {
                    directories: vec![folder.clone()],
                    durable_method: Some(method),
                    redo: medium.redo.clone(),
                    ..what.options.clone()
                },
                // What belongs to devices has no meaning there.
                Some(place) => DatabaseOptions {
                    directories: vec![place.clone()],
                    durable_method: None,
                    segment_bytes: None,
                    capacity_bytes: None,
                    ..what.options.clone()
                },
            };
            let seen = replay(plan, &what.replay, &options, &mut |_, now| match run.go_on(part(now)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })?;
            run.go_on(1.0)?;
            seen.judge()?;
            if medium.whole.is_none() {
                std::fs::remove_dir_all(&folder)?;
            }
            medium.rounds.push(seen);
        }
    }
    report(run, plan.report(), &media);
    Ok(())
}

/// The device alone, redo logs, and stores that lie wholly in memory.
fn media_of(what: &WhatIf) -> Vec<Medium> {
    let medium = |name: String, redo, whole| Medium { name, redo, whole, rounds: Vec::new() };
    let mut media = vec![medium(FLASH.to_owned(), None, None)];
    for name in &what.memories {
        let region = format!("emulated:{}B:{name}", what.region_bytes);
        media.push(medium(name.clone(), Some(RedoOptions::new(region)), None));
    }
    for name in what.memories.iter().filter(|_| what.whole_bytes > 0) {
        let place = PathBuf::from(format!("nvm:emulated:{}B:{name}", what.whole_bytes));
        media.push(medium(format!("{name}, all of it"), None, Some(place)));
    }
    media
}

fn part(now: Progress) -> f64 {
    now.operations as f64 / now.operations_total.unwrap_or(1).max(1) as f64
}

fn note_settings(run: &mut Run<'_>, what: &WhatIf) {
    let options = &what.options;
    run.set("shards", options.shards);
    run.set("memory of the store, bytes", options.memory_bytes);
    run.set("durability", format!("{:?}", options.shard.durability));
    run.set("memory of the redo log, bytes", what.region_bytes);
    if what.whole_bytes > 0 {
        run.set("memory of stores that lie wholly in it, bytes", what.whole_bytes);
    }
    run.set("rounds", what.rounds);
    run.set("callers", what.replay.callers);
    let pace = match what.replay.pace {
        Pace::Recorded { speed } => format!("recorded times, {speed} times as fast"),
        Pace::AsFastAsPossible => "as fast as possible".to_owned(),
    };
    run.set("pace", pace);
}

fn report(run: &mut Run<'_>, plan: &PlanReport, media: &[Medium]) {
    run.table(medians(media));
    run.table(rounds(media));
    run.table(left_out(plan));
    for (name, title, of) in [
        ("writes", "Writes: how long they take", writes_of as fn(&StoreReplay) -> &LatencyHistogram),
        ("reads", "Reads: how long they take", reads_of),
    ] {
        // Of one operation there is no curve; the tables have it.
        if let Some(plot) = curves(name, title, media, of) {
            run.plot(plot);
        }
    }
    run.note(
        "Measured on emulated memory: the redo log, or the store, lay in ordinary memory of this machine, slowed down in real time to the \
         published figures of each preset. No persistent memory was involved, and nothing in it survives a loss of power",
    );
    run.note("dram and nvdimm-n are this machine's own memory, not slowed down");
    for text in plan_notes(plan) {
        run.note(text);
    }
}

fn writes_of(round: &StoreReplay) -> &LatencyHistogram {
    &round.run.write_latency
}

fn reads_of(round: &StoreReplay) -> &LatencyHistogram {
    &round.run.read_latency
}

fn medians(media: &[Medium]) -> Table {
    let mut table = Table::new(
        "what-if",
        "The recorded workload by where its newest writes lie: medians of the rounds, measured on emulated memory",
        &[
            "newest writes lie in",
            "reads p50 µs",
            "reads p99 µs",
            "reads p99.9 µs",
            "reads max µs",
            "writes p50 µs",
            "writes p99 µs",
            "writes p99.9 µs",
            "writes max µs",
            "operations/s",
            "bytes to the device an operation",
            "flushes and writes of the device an operation",
            "CPU µs an operation",
            "memory MiB",
        ],
    );
    for medium in media {
        let latency = |of: fn(&StoreReplay) -> &LatencyHistogram, quantile: f64| -> Cell {
            medium
                .median(|round| match of(round).count() {
                    0 => f64::NAN,
                    _ if quantile >= 1.0 => of(round).max_ns() as f64 / 1e3,
                    _ => quantile_us(of(round), quantile),
                })
                .into()
        };
        let each = |of: fn(&StoreReplay) -> u64| -> Cell {
            medium.median(|round| of(round) as f64 / round.run.outcome.operations.max(1) as f64).into()
        };
        table.push([
            medium.name.as_str().into(),
            latency(reads_of, 0.5),
            latency(reads_of, 0.99),
            latency(reads_of, 0.999),
            latency(reads_of, 1.0),
            latency(writes_of, 0.5),
            latency(writes_of, 0.99),
            latency(writes_of, 0.999),
            latency(writes_of, 1.0),
            medium.median(|round| round.run.outcome.rate).into(),
            each(|round| round.cost.device_written_bytes),
            each(|round| round.cost.device_flushes + round.cost.device_writes),
            medium.median(|round| round.cost.cpu_us_per_operation).into(),
            medium.median(|round| memory_bytes(round) as f64 / f64::from(1 << 20)).into(),
        ]);
    }
    table
}

/// A quantile in microseconds, with parts of them.
fn quantile_us(latency: &LatencyHistogram, quantile: f64) -> f64 {
    latency.quantile_ns(quantile) as f64 / 1e3
}

fn memory_bytes(round: &StoreReplay) -> u64 {
    round.cost.index_bytes + round.cost.cache_bytes + round.cost.buffer_bytes
}

fn rounds(media: &[Medium]) -> Table {
    let mut table = Table::new(
        "rounds",
        "Every round",
        &[
            "newest writes lie in",
            "round",
            "reads p50 µs",
            "reads p99 µs",
            "writes p50 µs",
            "writes p99 µs",
            "operations/s",
            "sent late by p99 µs",
            "reads that found nothing",
        ],
    );
    for medium in media {
        for (round, seen) in medium.rounds.iter().enumerate() {
            let late = seen.run.outcome.send_delay.map_or(f64::NAN, |delay| delay.p99_us as f64);
            table.push([
                medium.name.as_str().into(),
                (round as u64 + 1).into(),
                seen.run.reads.p50_us.into(),
                seen.run.reads.p99_us.into(),
                seen.run.writes.p50_us.into(),
                seen.run.writes.p99_us.into(),
                seen.run.outcome.rate.into(),
                late.into(),
                seen.run.outcome.misses.into(),
            ]);
        }
    }
    table
}

fn left_out(plan: &PlanReport) -> Table {
    let mut table =
        Table::new("trace", "What was done of the trace, and what was not", &["what", "how many"]);
    let mut row = |what: &str, count: u64| table.push([what.into(), count.into()]);
    row("operations", plan.operations);
    row("reads among them", plan.reads);
    row("keys", plan.keys);
    row("keys loaded before, since they are read and were not written", plan.loaded_keys);
    row("of these, keys whose size the trace does not tell", plan.loaded_of_assumed_size);
    row("keys whose first reads find nothing, since they are written later", plan.keys_read_before_written);
    row("left out: values of more than 512 KiB", plan.values_too_long);
    row("left out: keys that are too long", plan.keys_too_long);
    for (name, count) in &plan.not_replayed {
        row(&format!("left out: {name}"), *count);
    }
    table
}

/// What a reader has to know of a plan, in sentences.
pub fn plan_notes(plan: &PlanReport) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.is_cut {
        notes.push("The trace ends before its end: what was whole of it was replayed".to_owned());
    }
    if plan.left_out() > 0 {
        let names: Vec<String> =
            plan.not_replayed.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let long = plan.values_too_long + plan.keys_too_long;
        let named = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        notes.push(format!(
            "{} commands could not be replayed{named}, {long} of them for values or keys that are too long",
            plan.left_out()
        ));
    }
    if plan.loaded_keys > 0 {
        notes.push(format!(
            "{} keys with {} bytes were loaded before, since they are read and the trace does not write them; the sizes of {} \
             are not in the trace and were taken as {} bytes",
            plan.loaded_keys, plan.loaded_bytes, plan.loaded_of_assumed_size, plan.assumed_bytes
        ));
    }
    if plan.keys_read_before_written > 0 {
        notes.push(format!(
            "{} keys are read before the trace writes them: these reads found nothing, as in a cache that is filled (--load \
             first-use takes them as there)",
            plan.keys_read_before_written
        ));
    }
    notes
}

/// The latencies of all media; nothing where none has as many operations as a point takes.
fn curves(
    name: &str,
    title: &str,
    media: &[Medium],
    of: fn(&StoreReplay) -> &LatencyHistogram,
) -> Option<Plot> {
    let points = |medium: &Medium| {
        let mut all = LatencyHistogram::new();
        medium.rounds.iter().for_each(|round| all.merge(of(round)));
        let enough = |quantile: &&f64| (1.0 - **quantile) * all.count() as f64 >= 1.0;
        let point = |quantile: &f64| (1.0 / (1.0 - quantile), quantile_us(&all, *quantile).max(1e-3));
        QUANTILES.iter().filter(enough).map(point).collect::<Vec<_>>()
    };
    let series = media.iter().map(|medium| Series::new(&medium.name, points(medium)));
    let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
    (!series.is_empty()).then(|| Plot {
        name: name.to_owned(),
        title: format!("{title} (all rounds together, measured on emulated memory)"),
        x: Axis::logarithmic("one operation in so many takes longer"),
        y: Axis::logarithmic("latency, µs"),
        series,
    })
}

#[cfg(test)]
#[path = "what_if_test.rs"]
mod what_if_test;
