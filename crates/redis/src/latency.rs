//! `LATENCY`: how long commands take, as histograms of each command, and as spikes above a threshold.
//!
//! Invariants:
//! 1. Every shard keeps the histograms of the commands that it carries out; an answer adds those of all shards up.
//! 2. Spikes are kept by the shard that keeps the list of slow commands, in the order in which they come: of
//!    each event the worst of a second, and at most [`SAMPLES_MAX`] of them.
//! 3. A histogram takes some 9 KiB, and there is none of a command that was not carried out.

use crate::args::Args;
use crate::context::Halt;
use crate::control::{Control, Flow, Host};
use crate::everywhere::text_of;
use crate::executor::Executor;
use crate::operators::OperatorMessage;
use crate::remote::HOME;
use crate::settings::Settings;
use crate::table::{self, Command, flag};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use tierstone_base::Now;
use tierstone_base::collections::Map;
use tierstone_engine::Engine;
use tierstone_wire::resp::{ReplyWriter, Version};

/// The setting that says whether histograms are kept.
pub(crate) const TRACKING: &str = "latency-tracking";
/// The setting that says which percentiles `INFO` shows.
const PERCENTILES: &str = "latency-tracking-info-percentiles";
/// The setting that says from how many milliseconds on a command is a spike; 0: none is.
pub(crate) const THRESHOLD: &str = "latency-monitor-threshold";

/// Samples of an event.
const SAMPLES_MAX: usize = 160;

/// Each power of two is parted into so many buckets: 3 % of a value.
const PARTS: u64 = 32;
/// The first bounds of Redis are of 1024 ns.
const FIRST_POWER: u32 = 10;
/// The last one is some 73 minutes.
const POWERS: usize = 33;

/// The times of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    /// By their parts of powers of two.
    fine: Vec<u64>,
    /// By the bounds of [`bound_ns`].
    coarse: [u64; POWERS],
}

/// The upper bounds of Redis's histograms, in nanoseconds: powers of two and the 128th part of them.
fn bound_ns(power: usize) -> u64 {
    (1 << (FIRST_POWER as usize + power)) + (1 << (FIRST_POWER as usize - 7 + power)) - 1
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { fine: vec![0; POWERS * PARTS as usize + 1], coarse: [0; POWERS] }
    }
}

impl Histogram {
    /// Counts one time.
    fn count(&mut self, took_ns: u64) {
        let last = POWERS - 1;
        // What is longer counts as the longest.
        let took_ns = took_ns.min(bound_ns(last));
        let power = (took_ns.max(1).ilog2().saturating_sub(FIRST_POWER) as usize).min(last);
        let coarse = if took_ns > bound_ns(power) { (power + 1).min(last) } else { power };
        self.coarse[coarse] += 1;
        let place = fine_place(took_ns).min(self.fine.len() - 1);
        self.fine[place] += 1;
    }

    fn calls(&self) -> u64 {
        self.coarse.iter().sum()
    }

    fn add(&mut self, other: &Histogram) {
        for (sum, count) in
            self.fine.iter_mut().zip(&other.fine).chain(self.coarse.iter_mut().zip(&other.coarse))
        {
            *sum += count;
        }
    }

    /// The bounds in microseconds at which there are more counts, with all counts up to them.
    fn cumulative(&self) -> Vec<(u64, u64)> {
        let mut sum = 0;
        let mut rows = Vec::new();
        for (power, count) in self.coarse.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            rows.push((bound_ns(power) / 1_000, sum));
        }
        rows
    }

    /// The time in nanoseconds within which `percent` of the counts lie.
    fn percentile_ns(&self, percent: f64) -> u64 {
        let wanted = ((self.calls() as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut sum = 0;
        for (place, count) in self.fine.iter().enumerate() {
            sum += count;
            if sum >= wanted {
                return fine_end_ns(place);
            }
        }
        0
    }

    /// As text, for another shard.
    fn write(&self, text: &mut String) {
        let rows = self.coarse.iter().chain(&self.fine).enumerate().filter(|(_, count)| **count > 0);
        for (index, (place, count)) in rows.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{place}={count}");
        }
    }

    /// What [`Histogram::write`] has written.
    fn read(text: &str) -> Option<Histogram> {
        let mut histogram = Histogram::default();
        for row in text.split(',') {
            let (place, count) = row.split_once('=')?;
            let (place, count): (usize, u64) = (place.parse().ok()?, count.parse().ok()?);
            *histogram.coarse.iter_mut().chain(&mut histogram.fine).nth(place)? = count;
        }
        Some(histogram)
    }
}

/// The bucket of a time: below the first power all are one apart in its parts.
fn fine_place(took_ns: u64) -> usize {
    let took_ns = took_ns.max(1 << (FIRST_POWER - 1));
    let power = took_ns.ilog2();
    let part = ((took_ns - (1 << power)) * PARTS) >> power;
    ((u64::from(power + 1 - FIRST_POWER)) * PARTS + part) as usize
}

/// The longest time of a bucket.
fn fine_end_ns(place: usize) -> u64 {
    let (power, part) = (place as u64 / PARTS + u64::from(FIRST_POWER) - 1, place as u64 % PARTS);
    (1 << power) + ((part + 1) << power) / PARTS - 1
}

/// The histograms of a shard's commands, by the addresses of their lines in the table.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    is_tracked: bool,
    threshold_ms: u64,
    histograms: Map<usize, Box<Histogram>>,
}

impl Latencies {
    /// Follows the settings.
    pub fn follow(&mut self, settings: &Settings) {
        self.is_tracked = settings.get(TRACKING).is_some_and(|setting| setting.value == "yes");
        self.threshold_ms = settings.integer(THRESHOLD).and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    }

    /// Whether the times of commands are wanted.
    pub fn is_on(&self) -> bool {
        self.is_tracked || self.threshold_ms > 0
    }

    /// Forgets the histograms.
    pub fn clear(&mut self) {
        self.histograms = Map::default();
    }

    /// All histograms by the names of their commands.
    fn by_name(&self) -> BTreeMap<&'static str, &Histogram> {
        let all = table::commands().flat_map(|command| std::iter::once(command).chain(command.subcommands));
        all.filter_map(|command| Some((command.name, self.histograms.get(&address(command))?.as_ref())))
            .collect()
    }

    /// As text, for another shard: a line for each command.
    fn text(&self) -> String {
        let mut text = String::new();
        for (name, histogram) in self.by_name() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{name}:");
            histogram.write(&mut text);
            text.push_str("\r\n");
        }
        text
    }
}

fn address(command: &'static Command) -> usize {
    std::ptr::from_ref(command).addr()
}

impl Host {
    /// Counts the time of a command; [`HOME`] is told of a spike.
    pub(crate) fn note_latency(&mut self, now: Now, command: &'static Command, took_ns: u64) {
        self.timing.add(command, took_ns);
        if self.latencies.is_tracked {
            self.latencies.histograms.entry(address(command)).or_default().count(took_ns);
        }
        let (threshold_ms, took_ms) = (self.latencies.threshold_ms, took_ns / 1_000_000);
        if threshold_ms > 0 && took_ms >= threshold_ms && !command.has(flag::SKIP_SLOWLOG) {
            let event = if command.has(flag::FAST) { "fast-command" } else { "command" };
            let message = OperatorMessage::Spike { event, at_s: now.wall_ms / 1_000, took_ms };
            self.outputs.push(message.to(HOME));
        }
    }
}

/// The samples of one event: the second and the milliseconds, the oldest first.
#[derive(Debug, Default)]
struct Samples {
    all: VecDeque<(u64, u64)>,
    worst_ms: u64,
}

/// The spikes of all shards, by their events.
#[derive(Debug, Default)]
pub(crate) struct Spikes(BTreeMap<&'static str, Samples>);

impl Spikes {
    pub fn note(&mut self, event: &'static str, at_s: u64, took_ms: u64) {
        let samples = self.0.entry(event).or_default();
        samples.worst_ms = samples.worst_ms.max(took_ms);
        if let Some(last) = samples.all.back_mut().filter(|last| last.0 == at_s) {
            last.1 = last.1.max(took_ms);
            return;
        }
        if samples.all.len() == SAMPLES_MAX {
            samples.all.pop_front();
        }
        samples.all.push_back((at_s, took_ms));
    }

    fn write_latest(&self, reply: &mut ReplyWriter<'_>) {
        reply.array(self.0.len());
        for (event, samples) in &self.0 {
            let (at_s, took_ms) = samples.all.back().copied().unwrap_or_default();
            reply.array(4);
            reply.bulk(event.as_bytes());
            for number in [at_s, took_ms, samples.worst_ms] {
                reply.integer(number as i64);
            }
        }
    }

    fn write_history(&self, event: &[u8], reply: &mut ReplyWriter<'_>) {
        let samples = self.0.iter().find(|(name, _)| name.as_bytes() == event).map(|(_, samples)| samples);
        reply.array(samples.map_or(0, |samples| samples.all.len()));
        for (at_s, took_ms) in samples.iter().flat_map(|samples| &samples.all) {
            reply.array(2);
            reply.integer(*at_s as i64);
            reply.integer(*took_ms as i64);
        }
    }

    /// What `LATENCY GRAPH` says; nothing where there is no such event.
    fn graph(&self, event: &[u8], now_s: u64) -> Option<String> {
        let (name, Samples { all, worst_ms }) = self.0.iter().find(|(name, _)| name.as_bytes() == event)?;
        let all: Vec<(u64, u64)> = all.iter().copied().collect();
        Some(crate::latency_graph::graph(name, &all, *worst_ms, now_s))
    }

    /// Forgets these events, or all where none is named; how many there were.
    fn reset<'a>(&mut self, events: impl ExactSizeIterator<Item = &'a [u8]>) -> usize {
        let before = self.0.len();
        if events.len() == 0 {
            self.0.clear();
        }
        for event in events {
            self.0.retain(|name, _| name.as_bytes() != event);
        }
        before - self.0.len()
    }

    /// What `LATENCY DOCTOR` says.
    fn report(&self, is_on: bool) -> String {
        if !is_on {
            return "Spikes are not recorded: CONFIG SET latency-monitor-threshold MILLISECONDS says from when on a \
                    command is one.\n"
                .into();
        }
        if self.0.is_empty() {
            return "No spikes were recorded.\n".into();
        }
        let mut text = String::new();
        for (event, Samples { all, worst_ms }) in &self.0 {
            let count = all.len().max(1) as u64;
            let mean = all.iter().map(|(_, ms)| ms).sum::<u64>() / count;
            let deviation = all.iter().map(|(_, ms)| ms.abs_diff(mean)).sum::<u64>() / count;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{event}: {} seconds with spikes, {mean} ms on average, mean deviation {deviation} ms, worst of \
                 all {worst_ms} ms.",
                all.len()
            );
        }
        text + "SLOWLOG GET tells which commands they were; the time of a command contains its waits for the device \
                and for other shards, which INFO and the metrics tell by stage.\n"
    }
}

impl<E: Engine> Executor<E> {
    /// Answers `LATENCY LATEST`, `HISTORY`, `GRAPH`, `RESET` and `DOCTOR` at the shard that keeps the spikes.
    pub(crate) fn answer_latency(&mut self, now: Now, args: Args<'_>, reply: &mut ReplyWriter<'_>) {
        match args.at(1).to_ascii_lowercase().as_slice() {
            b"latest" => self.spikes.write_latest(reply),
            b"history" => self.spikes.write_history(args.at(2), reply),
            b"graph" => match self.spikes.graph(args.at(2), now.wall_ms / 1_000) {
                Some(picture) => reply.verbatim(*b"txt", picture.as_bytes()),
                None => {
                    let event = String::from_utf8_lossy(args.at(2));
                    reply.error(format!("ERR No samples available for event '{event}'"));
                }
            },
            b"reset" => reply.integer(self.spikes.reset(args.from(2)) as i64),
            _ => {
                let report = self.spikes.report(self.host.latencies.threshold_ms > 0);
                reply.verbatim(*b"txt", report.as_bytes());
            }
        }
    }
}

/// `LATENCY HISTOGRAM`; for another shard, or to be added to what others say, as text.
pub(crate) fn histogram(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let latencies = &control.host.latencies;
    if control.host.is_partial {
        control.reply.bulk(latencies.text().as_bytes());
        return Ok(Flow::Done);
    }
    let all = latencies.by_name().into_iter().map(|(name, histogram)| (name, histogram.clone())).collect();
    write_histograms(&all, control.args, &mut control.reply);
    Ok(Flow::Done)
}

/// The histograms that the shards' texts tell.
fn summed<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Histogram> {
    let mut all: BTreeMap<&str, Histogram> = BTreeMap::new();
    for line in texts.flat_map(|text| text.split("\r\n")) {
        if let Some((name, histogram)) =
            line.split_once(':').and_then(|(name, rows)| Some((name, Histogram::read(rows)?)))
        {
            all.entry(name).or_default().add(&histogram);
        }
    }
    all
}

/// One answer to `LATENCY HISTOGRAM` out of those of all shards.
pub(crate) fn merge_histograms(replies: &[&[u8]], args: Args<'_>, version: Version, reply: &mut Vec<u8>) {
    let all = summed(replies.iter().filter_map(|reply| text_of(reply)));
    write_histograms(&all, args, &mut ReplyWriter::new(reply, version));
}

fn write_histograms(all: &BTreeMap<&str, Histogram>, args: Args<'_>, reply: &mut ReplyWriter<'_>) {
    let is_asked_for = |name: &str| {
        // A container stands for its subcommands.
        let family = name.split('|').next().unwrap_or_default();
        args.len() == 2
            || args.from(2).any(|asked| {
                asked.eq_ignore_ascii_case(name.as_bytes()) || asked.eq_ignore_ascii_case(family.as_bytes())
            })
    };
    let shown: Vec<_> = all.iter().filter(|(name, _)| is_asked_for(name)).collect();
    reply.map(shown.len());
    for (name, histogram) in shown {
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(histogram.calls() as i64);
        reply.bulk(b"histogram_usec");
        let rows = histogram.cumulative();
        reply.map(rows.len());
        for (bound_us, count) in rows {
            reply.integer(bound_us as i64);
            reply.integer(count as i64);
        }
    }
}

/// The section Latencystats of `INFO`; to be added to what others say, as text.
pub(crate) fn latencystats(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let latencies = &control.host.latencies;
    if !latencies.is_tracked {
        return Ok(());
    }
    let percentiles = control.host.settings.get(PERCENTILES).map_or("", |setting| setting.value.as_str());
    if control.host.is_partial {
        return write!(out, "{PERCENTILES}:{percentiles}\r\n{}", latencies.text());
    }
    for (name, histogram) in latencies.by_name() {
        write_percentiles(name, histogram, percentiles, out)?;
    }
    Ok(())
}

/// The lines of the section Latencystats out of those of all shards.
pub(crate) fn merge_latencystats(sections: &[&str]) -> String {
    let mut out = String::new();
    let percentiles = sections
        .iter()
        .flat_map(|section| section.split("\r\n"))
        .find_map(|line| line.strip_prefix(PERCENTILES)?.strip_prefix(':'));
    for (name, histogram) in summed(sections.iter().copied()) {
        // Writing to a string cannot fail.
        let _ = write_percentiles(name, &histogram, percentiles.unwrap_or(""), &mut out);
    }
    out
}

fn write_percentiles(
    name: &str,
    histogram: &Histogram,
    percentiles: &str,
    out: &mut String,
) -> std::fmt::Result {
    write!(out, "latency_percentiles_usec_{name}:")?;
    for (index, text) in percentiles.split_ascii_whitespace().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let ns = histogram.percentile_ns(text.parse().unwrap_or(100.0));
        write!(out, "{comma}p{text}={:.3}", ns as f64 / 1e3)?;
    }
    out.write_str("\r\n")
}

/// Checks a list of percentiles: as it is kept.
///
/// # Errors
/// Redis's words.
pub(crate) fn check_percentiles(text: &str) -> Result<String, String> {
    let mut kept: Vec<String> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let Ok(percent) = word.parse::<f64>() else {
            return Err("Invalid latency-tracking-info-percentiles parameters".into());
        };
        if !(0.0..=100.0).contains(&percent) {
            return Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into());
        }
        if kept.len() == PERCENTILES_MAX {
            return Err("Invalid latency-tracking-info-percentiles parameters".into());
        }
        kept.push(percent.to_string());
    }
    Ok(kept.join(" "))
}

/// Percentiles that are shown at most: each costs a look at the whole histogram of every command.
const PERCENTILES_MAX: usize = 64;

/// Adds the settings, with Redis's first values.
pub(crate) fn add_settings(settings: &mut Settings) {
    use crate::settings::SettingKind;
    settings.add(TRACKING, "yes", SettingKind::Bool, true);
    settings.add(PERCENTILES, "50 99 99.9", SettingKind::Percentiles, true);
    settings.add(THRESHOLD, "0", SettingKind::Integer { min: 0, max: i64::MAX }, true);
}

#[cfg(test)]
#[path = "latency_test.rs"]
mod latency_test;
