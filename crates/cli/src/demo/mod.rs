//! `tierstone demo`: the main job on real files, with a kill in the middle.
//!
//! 1. Collect a tree of files and start a server of its own on a free port.
//! 2. Import path → content, over several connections.
//! 3. Read everything back and compare checksums.
//! 4. Overwrite a part under load and kill the server with SIGKILL while writes are in flight.
//! 5. Restart it; every record must hold what was acknowledged last, or something newer that was sent.
//! 6. Print one table.

mod files;
mod load;
mod report;

use crate::child::ServerProcess;
use crate::interrupt::tidy_folder;
use clap::Args;
use files::Collected;
use indicatif::{ProgressBar, ProgressStyle};
use load::{Phase, Records};
use report::DemoReport;
use std::path::PathBuf;
use std::sync::Arc;
use tierstone_base::units::parse_size;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// A tree of files to import [default: documentation, headers and sources of this machine]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Where the demo's store is made; it must not exist yet [default: a new folder here, removed at
    /// the end]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Import at most this much
    #[arg(long, value_name = "SIZE", default_value = "200MiB")]
    limit: String,
    /// Memory of the demo's server
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memory: String,
    /// Shards of the demo's server [default: the server's own default]
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// Connections of the load
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Leave the server running at the end, and say how to connect
    #[arg(long)]
    keep: bool,
}

pub fn run(args: &DemoArgs) -> Result<()> {
    let limit = parse_size(&args.limit)?;
    parse_size(&args.memory)?;
    if args.connections == 0 || args.connections > 1_000 {
        return Err(Error::new(ErrorKind::InvalidInput, "between 1 and 1000 connections are possible"));
    }
    let collected = files::collect(args.path.as_deref(), limit)?;
    let directory = match &args.data {
        Some(directory) => directory.clone(),
        None => PathBuf::from(format!("tierstone-demo-{}", std::process::id())),
    };
    if directory.exists() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{} exists already", directory.display())));
    }
    let tidied = tidy_folder(directory.clone())?;
    let outcome = stages(args, collected, &directory);
    if !args.keep || outcome.is_err() {
        // The demo made this folder itself.
        let removed = std::fs::remove_dir_all(&directory);
        if let (Ok(_), Err(error)) = (&outcome, removed) {
            tell!("tierstone: {} was not removed: {error}", directory.display());
        }
    }
    let (report, server) = outcome?;
    report.print(args.json)?;
    if args.keep {
        tell!("\nThe server goes on: redis-cli -p {}", server.address().port());
        tell!("It is process {}, its data are in {}.", server.process_id(), directory.display());
        drop(tidied);
        server.leave();
    }
    if report.acknowledged_writes_lost > 0 || report.wrong_reads > 0 {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "the store broke its promise; please report this with the table",
        ));
    }
    Ok(())
}

fn stages(
    args: &DemoArgs,
    collected: Collected,
    directory: &std::path::Path,
) -> Result<(DemoReport, ServerProcess)> {
    let clock = SystemClock::new();
    let start = |what: &str| {
        ServerProcess::start(directory, &args.memory, args.shards, None, None)
            .map_err(|error| error.context(&format!("{what} the demo's server")))
    };
    let mut server = start("starting")?;
    let records = Arc::new(Records::new(&collected));
    let mut report = DemoReport::new(&collected);

    let bar = progress("importing", records.len());
    report.writes = load::run(&records, server.address(), args.connections, Phase::Import, &bar)?.into();
    bar.finish_and_clear();

    let bar = progress("reading back", records.len());
    let reads = load::run(&records, server.address(), args.connections, Phase::ReadBack, &bar)?;
    report.wrong_reads += reads.wrong;
    report.reads = reads.into();
    bar.finish_and_clear();
    report.take_metrics(&server.metrics(2 * records.len())?);

    let bar = progress("overwriting, until SIGKILL", records.overwrite_target());
    let killer = server.killer();
    let overwrites = load::run_and_kill(&records, server.address(), args.connections, &bar, killer)?;
    bar.finish_and_clear();
    report.overwrites_acknowledged = overwrites.operations;
    report.writes_in_flight_at_kill = overwrites.in_flight;
    server.wait_for_death()?;
    tell!("killed the server in mid-write; it starts again and warns of the crash, as it should:");

    let before = clock.now().monotonic_us;
    server = start("restarting")?;
    report.restart_ms = (clock.now().monotonic_us - before) as f64 / 1_000.0;
    report.restart_note = server.greeting().to_owned();

    let bar = progress("verifying", records.len());
    let verified = load::run(&records, server.address(), args.connections, Phase::Verify, &bar)?;
    bar.finish_and_clear();
    report.acknowledged_writes_lost = verified.lost;
    report.wrong_reads += verified.wrong;
    report.verified = verified.operations;
    if !args.keep {
        server.stop()?;
    }
    Ok((report, server))
}

fn progress(what: &'static str, len: u64) -> ProgressBar {
    let bar = ProgressBar::new(len);
    let style = ProgressStyle::with_template("{msg:28} [{bar:40}] {pos}/{len} {per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(what);
    bar
}
