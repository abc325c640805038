//! `tierstone persist timing`.

use super::{counter, model, read_trace};
use crate::output::{print_json, print_line, table};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use tierstone_base::collections::Set;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_persist::order::Model;
use tierstone_persist::timing::{Rates, Timing, TimingReport, TimingSettings, break_even_ns};
use tierstone_persist::trace::{Space, Trace};

/// Stretches of memory of a trace at most: timing takes some 10 KiB for each.
const STRETCHES_MAX: usize = 1 << 17;
/// Bytes of a stretch: 256 blocks of 8 bytes.
const STRETCH_BYTES: u64 = 2_048;
/// Published: atomic and tracking sizes, in bytes (Pelley 2014, Figures 8.2 and 8.3).
const SIZES: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];

#[derive(Debug, Args)]
pub struct TimingArgs {
    /// The trace: text or binary, see docs/formats/persist-trace.md
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Models: strict, buffered, epoch, strand, bpfs [default: all of them]
    #[arg(long = "model", value_name = "MODEL", value_parser = model)]
    models: Vec<Model>,
    /// Bytes that persist at once: a power of two from 8 [default: 8]
    #[arg(long, value_name = "BYTES")]
    atomic: Option<u64>,
    /// Bytes in which conflicts are found: a power of two from 8 [default: 8; 64 for bpfs]
    #[arg(long, value_name = "BYTES")]
    tracking: Option<u64>,
    /// Take each persist by itself, even where it could become one with an earlier one
    #[arg(long)]
    no_coalescing: bool,
    /// Operations that the trace consists of: gives rates
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Latency of a persist in nanoseconds [default: 500]
    #[arg(long, value_name = "NS")]
    latency_ns: Option<f64>,
    /// Operations a second that the program does without waiting for persists: gives the break-even latency
    #[arg(long, value_name = "PER_SECOND", requires = "operations")]
    instruction_rate: Option<f64>,
    /// Repeat it for atomic or tracking sizes of 8 to 512 bytes, or latencies of 10 ns to 100 us
    #[arg(long, value_enum)]
    sweep: Option<Sweep>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sweep {
    Atomic,
    Tracking,
    Latency,
}

#[derive(Debug, Serialize)]
struct Point {
    model: &'static str,
    atomic_bytes: u64,
    tracking_bytes: u64,
    latency_ns: f64,
    steps: u64,
    persists: u64,
    coalesced: u64,
    /// Persists that must follow each other, at most (modelled).
    critical_path: u64,
    /// All of them at that latency, in microseconds (modelled).
    path_us: f64,
    path_per_operation: Option<f64>,
    /// Operations a second; `None` where nothing bounds them.
    persist_bound_per_second: Option<f64>,
    /// Of the instruction rate: above 1 instructions bound the program.
    normalised: Option<f64>,
    break_even_ns: Option<f64>,
}

pub fn run(args: &TimingArgs) -> Result<()> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !positive(args.latency_ns()) || !args.instruction_rate.is_none_or(positive) {
        let message = "--latency-ns and --instruction-rate are numbers above zero";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    args.refuse_swept()?;
    let trace = read_trace(&args.trace)?;
    bound_memory(&trace)?;
    let models = if args.models.is_empty() { Model::ALL.to_vec() } else { args.models.clone() };
    let bar = counter("steps timed");
    let mut points = Vec::new();
    for model in models {
        for (settings, latency_ns) in args.settings(model) {
            let mut timing = Timing::new(settings)?;
            for chunk in trace.events().chunks(1 << 16) {
                chunk.iter().for_each(|event| _ = timing.step(event));
                bar.inc(chunk.len() as u64);
            }
            points.push(args.point(settings, latency_ns, &timing.report()));
        }
    }
    bar.finish_and_clear();
    if args.json { print_json(&points) } else { print(args, &points) }
}

/// Refuses what would take more memory than a machine has.
fn bound_memory(trace: &Trace) -> Result<()> {
    let mut stretches: Set<(Space, u64)> = Set::default();
    for event in trace.events().iter().filter(|event| event.is_access()) {
        stretches.insert((event.space, event.address / STRETCH_BYTES));
        if stretches.len() > STRETCHES_MAX {
            let message = format!(
                "the trace touches more than {STRETCHES_MAX} stretches of {STRETCH_BYTES} bytes; leave memory out \
                 that does not matter (`ignore` of a map)"
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
    }
    Ok(())
}

impl TimingArgs {
    fn latency_ns(&self) -> f64 {
        self.latency_ns.unwrap_or(500.0)
    }

    /// Refuses a value for what the sweep gives values to.
    fn refuse_swept(&self) -> Result<()> {
        let (flag, is_given) = match self.sweep {
            Some(Sweep::Atomic) => ("--atomic", self.atomic.is_some()),
            Some(Sweep::Tracking) => ("--tracking", self.tracking.is_some()),
            Some(Sweep::Latency) => ("--latency-ns", self.latency_ns.is_some()),
            None => return Ok(()),
        };
        if is_given {
            let message = format!("{flag} is of no use with a sweep over its values; leave one of them out");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// The settings to time with, each with the latency to report.
    fn settings(&self, model: Model) -> Vec<(TimingSettings, f64)> {
        let own = TimingSettings::of(model);
        let tracking_bytes = self.tracking.unwrap_or(own.tracking_bytes);
        let base = TimingSettings {
            atomic_bytes: self.atomic.unwrap_or(8),
            tracking_bytes,
            coalescing: !self.no_coalescing,
            ..own
        };
        let latency = self.latency_ns();
        match self.sweep {
            None => vec![(base, latency)],
            Some(Sweep::Atomic) => {
                SIZES.map(|atomic_bytes| (TimingSettings { atomic_bytes, ..base }, latency)).to_vec()
            }
            Some(Sweep::Tracking) => {
                SIZES.map(|tracking_bytes| (TimingSettings { tracking_bytes, ..base }, latency)).to_vec()
            }
            Some(Sweep::Latency) => {
                (0..=8).map(|step| (base, 10.0 * 10f64.powf(f64::from(step) / 2.0))).collect()
            }
        }
    }

    fn point(&self, settings: TimingSettings, latency_ns: f64, report: &TimingReport) -> Point {
        let rates = self.operations.map(|operations| {
            Rates::new(report, operations, latency_ns, self.instruction_rate.unwrap_or(f64::INFINITY))
        });
        let finite = |value: f64| value.is_finite().then_some(value);
        let bound = rates.and_then(|rates| finite(rates.persist_bound));
        Point {
            model: settings.model.name(),
            atomic_bytes: settings.atomic_bytes,
            tracking_bytes: settings.tracking_bytes,
            latency_ns,
            steps: report.events,
            persists: report.persists,
            coalesced: report.coalesced,
            critical_path: report.critical_path,
            path_us: report.critical_path as f64 * latency_ns / 1e3,
            path_per_operation: rates.map(|rates| rates.path_per_operation),
            persist_bound_per_second: bound,
            normalised: self.instruction_rate.and_then(|rate| Some(bound? / rate)),
            break_even_ns: self
                .instruction_rate
                .and_then(|rate| finite(break_even_ns(rates?.path_per_operation, rate))),
        }
    }
}

fn print(args: &TimingArgs, points: &[Point]) -> Result<()> {
    let mut head =
        vec!["model", "atomic, B", "tracking, B", "persists", "coalesced", "critical path", "path, us"];
    if args.sweep == Some(Sweep::Latency) {
        head.push("latency, ns");
    }
    if args.operations.is_some() {
        head.extend(["path an operation", "persist-bound, /s"]);
    }
    if args.instruction_rate.is_some() {
        head.extend(["of the instruction rate", "break-even, ns"]);
    }
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "no bound".to_owned(),
    };
    let mut rows = vec![head.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()];
    for point in points {
        let mut row = vec![point.model.to_owned()];
        let counts =
            [point.atomic_bytes, point.tracking_bytes, point.persists, point.coalesced, point.critical_path];
        row.extend(counts.map(|count| count.to_string()));
        row.push(number(Some(point.path_us), 3));
        if args.sweep == Some(Sweep::Latency) {
            row.push(number(Some(point.latency_ns), 0));
        }
        if args.operations.is_some() {
            row.extend([number(point.path_per_operation, 3), number(point.persist_bound_per_second, 0)]);
        }
        if args.instruction_rate.is_some() {
            row.extend([number(point.normalised, 3), number(point.break_even_ns, 1)]);
        }
        rows.push(row);
    }
    print_line(table(&rows).trim_end())?;
    let steps = points.first().map_or(0, |point| point.steps);
    let latency = match args.sweep {
        Some(Sweep::Latency) => "the latency of each row".to_owned(),
        _ => format!("{} ns", args.latency_ns()),
    };
    print_line(&format!(
        "{steps} steps; paths and rates are modelled, with {latency} a persist and bandwidth without end"
    ))
}
