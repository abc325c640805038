//! `tierstone workload replay`.

use super::bar;
use super::options::PlanArgs;
use crate::interrupt::Interrupted;
use crate::output::{print_json, print_line, table};
use clap::Args;
use std::ops::ControlFlow;
use std::path::PathBuf;
use tierstone::DatabaseOptions;
use tierstone_base::units::{format_duration_us, format_size};
use tierstone_base::{Error, Result};
use tierstone_lab::replay::{StoreReplay, replay};
use tierstone_lab::scratch::Scratch;
use tierstone_lab::what_if::plan_notes;
use tierstone_workload::CallSummary;

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    file: PathBuf,
    #[command(flatten)]
    plan: PlanArgs,
    /// Persistent memory for a redo log, as of `tierstone server`: PATH or emulated:SIZE[:PRESET]
    #[arg(long, value_name = "MEMORY")]
    nvm: Option<String>,
    /// On which disk: a temporary folder in it is used and removed [default: here]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    data: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &ReplayArgs) -> Result<()> {
    let settings = args.plan.replay()?;
    let nvm: Vec<(&str, String)> = args.nvm.iter().map(|memory| ("nvm", memory.clone())).collect();
    let options = args.plan.store(&nvm, &["data"])?;
    let plan = args.plan.plan(&args.file)?;
    let space_bytes = (plan.report().loaded_bytes + plan.report().written_bytes) * 2 + (256 << 20);
    let scratch = Scratch::new(&args.data, space_bytes)?;
    let options = DatabaseOptions { directories: vec![scratch.path().join("store")], ..options };
    let stop = Interrupted::watch()?;
    let (mut shown, mut current) = (String::new(), bar("opening"));
    let replayed = replay(&plan, &settings, &options, &mut |phase, now| {
        if phase != shown {
            current.finish_and_clear();
            current = bar(if phase == "loading" { "loading" } else { "replaying" });
            phase.clone_into(&mut shown);
        }
        current.set_length(now.operations_total.unwrap_or(0));
        current.set_position(now.operations);
        current.set_message(format!("{:.0} a second", now.operations as f64 / now.seconds.max(1e-3)));
        if stop.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    current.finish_and_clear();
    let replayed = replayed.map_err(as_set)?;
    match args.json {
        true => print_json(&replayed)?,
        false => print(&replayed)?,
    }
    replayed.judge()
}

/// The error with the settings of a store as this command takes them, where it advises some.
fn as_set(error: Error) -> Error {
    let message = error.message().replace("--nvm-guarantee any", "--set nvm-guarantee=any");
    Error::new(error.kind(), message)
}

fn print(replayed: &StoreReplay) -> Result<()> {
    let head = ["", "operations", "p50", "p99", "p99.9", "max"].map(str::to_owned).to_vec();
    let row = |what: &str, latency: &CallSummary| {
        let times = [latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us];
        let times = times.map(format_duration_us);
        [what.to_owned(), latency.count.to_string()].into_iter().chain(times).collect()
    };
    let rows: Vec<Vec<String>> =
        vec![head, row("reads", &replayed.run.reads), row("writes", &replayed.run.writes)];
    print_line(&table(&rows))?;
    print_line(&table(&numbers(replayed)))?;
    if replayed.redo.as_ref().is_some_and(|region| region.starts_with("emulated")) {
        print_line("Measured on emulated memory: nothing in it survives a loss of power.")?;
    }
    for note in plan_notes(&replayed.plan) {
        print_line(&format!("{note}."))?;
    }
    Ok(())
}

fn numbers(replayed: &StoreReplay) -> Vec<Vec<String>> {
    let (outcome, cost) = (&replayed.run.outcome, &replayed.cost);
    let mut rows = Vec::new();
    let mut row = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
    let each = |number: u64| format!("{:.2}", number as f64 / outcome.operations.max(1) as f64);
    row("measured in the replay", "value".to_owned());
    row("seconds", format!("{:.2}", outcome.seconds));
    row("operations a second", format!("{:.0}", outcome.rate));
    if let (Some(rate), Some(delay)) = (outcome.rate_intended, &outcome.send_delay) {
        row("operations a second as recorded", format!("{rate:.0}"));
        row("sent late by, p99", format_duration_us(delay.p99_us as f64));
    }
    row("reads that found nothing", outcome.misses.to_string());
    row("reads from memory", cost.memory_hits.to_string());
    row("reads from the device", cost.device_hits.to_string());
    row("bytes read from the device an operation", each(cost.device_read_bytes));
    row("bytes written to the device an operation", each(cost.device_written_bytes));
    row("writes of the device an operation", each(cost.device_writes));
    row("flushes of the device an operation", each(cost.device_flushes));
    if let Some(region) = &replayed.redo {
        row("redo log in", region.clone());
        row("fences there an operation", each(cost.redo_fences));
    }
    row(
        "memory of index, cache and buffers",
        format_size(cost.index_bytes + cost.cache_bytes + cost.buffer_bytes),
    );
    row("CPU of the process, us an operation", format!("{:.2}", cost.cpu_us_per_operation));
    row("of that, the callers'", format!("{:.2}", outcome.client_cpu_us_per_operation));
    row("errors", outcome.errors.to_string());
    rows
}
