//! `tierstone backup`: everything that a running server's store, or a closed one, holds at one moment, into a new
//! directory, or what has changed since an earlier one (`--since`); with `--verify` every byte of such a directory is checked. `tierstone restore` makes a new store of one.

pub(crate) mod closed;
mod running;

use crate::connect::ConnectArgs;
use crate::output::{print_json, print_line, table};
use crate::region::RegionArgs;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use tierstone::{BackupProgress, BackupReport, DatabaseOptions};
use tierstone_base::units::{format_size, parse_size};
use tierstone_base::{Error, ErrorKind, Result};

const EXIT_CODES: &str = "Exit codes: 0 the backup is whole; 1 it was given up, because the store was full or nothing was \
asked of it for a minute; 2 wrong usage, a store that is in use, or a server that refuses; 3 damage was found, or the \
backup is not complete; 4 a device failed or is full.";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct BackupArgs {
    /// Take it from the server at ADDR:PORT, or unix:PATH, beside its traffic
    #[arg(long, value_name = "ADDR:PORT", requires = "out")]
    #[arg(required_unless_present_any = ["data", "verify"], conflicts_with_all = ["data", "verify"])]
    server: Option<String>,
    /// Take it from the store in these directories, or at nvm: and its region, which nobody has open
    #[arg(long, value_name = "DIR,…", value_delimiter = ',', requires = "out", conflicts_with = "verify")]
    data: Option<Vec<PathBuf>>,
    /// Check every byte of the backup in DIR, without making a store of it
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    verify: Option<PathBuf>,
    /// Where the backup goes: a directory without one
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Take only what has changed since the backup in DIR, an earlier one of the same store; the new one is of use together
    /// with it, and with all that it was made since
    #[arg(long, value_name = "DIR", requires = "out", conflicts_with = "verify")]
    since: Option<PathBuf>,
    /// With --verify: where the backups are that it was made since [default: beside it]
    #[arg(long, value_name = "DIR,…", value_delimiter = ',', requires = "verify")]
    base: Vec<PathBuf>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Memory for the index of the closed store
    #[arg(long, value_name = "SIZE", default_value = "256MiB", conflicts_with_all = ["server", "verify"])]
    memory: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = RESTORE_EXIT_CODES)]
pub struct RestoreArgs {
    /// The backup: its directory; of a chain, that of the last one
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Where the backups are that it was made since [default: beside it]
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    base: Vec<PathBuf>,
    /// Where the new store goes: directories without one, or nvm: and a region, whose size --capacity says
    #[arg(long, value_name = "DIR,…", value_delimiter = ',', required = true)]
    data: Vec<PathBuf>,
    /// Shards that are filled; its server may have another number, unless the store lies in persistent memory
    #[arg(long, value_name = "N", default_value_t = 1)]
    shards: u16,
    /// Memory of the new store's index; its server may have another
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: String,
    /// The most that the new store's files may take [default: what the disks have free, less 5 %]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<String>,
    #[command(flatten)]
    region: RegionArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const RESTORE_EXIT_CODES: &str = "Exit codes: 0 the new store is whole; 2 wrong usage, or there is a store already; 3 \
the backup is damaged, or not complete; 4 a device failed or is full. What a restore that was broken off leaves is \
refused by whoever opens it, and may be removed.";

pub fn run(args: &BackupArgs) -> Result<()> {
    if args.server.is_none() {
        args.connect.needs("--server")?;
    }
    // Beside --server and --data, which conflict with --verify, clap does not ask for it.
    if args.verify.is_none() && !args.base.is_empty() {
        let message = "--base needs --verify; what has changed since a backup is taken with --since";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let bar = progress(if args.verify.is_some() { "verifying" } else { "backing up" });
    let mut show = |progress: BackupProgress| show(&bar, progress);
    let report = match (&args.verify, &args.out) {
        (Some(directory), _) => tierstone::verify_backup_with(directory, &args.base, &mut show),
        (None, Some(out)) => match (&args.server, &args.data) {
            (Some(server), _) => {
                let paths = (out.as_path(), args.since.as_deref());
                running::run((server, &args.connect), paths, &mut show)
            }
            (None, data) => {
                let paths = (out.as_path(), args.since.as_deref());
                closed::run(data.clone().unwrap_or_default(), &args.memory, paths, &mut show)
            }
        },
        (None, None) => unreachable!("one of the sources is given, and all but one need a target"),
    };
    bar.finish_and_clear();
    match &args.since {
        Some(since) => tell_since(&report?, since, args.json),
        None => tell(&report?, None, args.json),
    }
}

pub fn restore(args: &RestoreArgs) -> Result<()> {
    let mut options = DatabaseOptions {
        directories: args.data.clone(),
        shards: args.shards,
        memory_bytes: parse_size(&args.memory)?,
        capacity_bytes: args.capacity.as_deref().map(parse_size).transpose()?,
        ..DatabaseOptions::default()
    };
    args.region.apply(&mut options);
    let bar = progress("restoring");
    let report =
        tierstone::restore_with(&args.from, &args.base, &options, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    tell(&report?, Some(args.shards), args.json)
}

/// The error with the place that it is about, unless it names that itself.
fn at(error: Error, place: &Path) -> Error {
    let place = place.display().to_string();
    if error.message().contains(&place) { error } else { error.context(&place) }
}

fn progress(what: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = format!("{what} [{{bar:40}}] {{bytes}}/{{total_bytes}} {{bytes_per_sec}}");
    let style = ProgressStyle::with_template(&template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

fn show(bar: &ProgressBar, progress: BackupProgress) {
    bar.set_length(progress.bytes_total);
    bar.set_position(progress.bytes);
}

/// What a backup holds that was made since another one. What it shows is known when all that it was made since have been read.
fn tell_since(report: &BackupReport, since: &Path, json: bool) -> Result<()> {
    let BackupReport { taken_at_ms, records, bytes, frames, shards, .. } = report;
    if json {
        return print_json(&serde_json::json!({
            "taken_at_ms": taken_at_ms,
            "since": since,
            "records": records,
            "bytes": bytes,
            "frames": frames,
            "shards": shards,
        }));
    }
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    print_line(&table(&[
        row("backup of what has changed", String::new()),
        row("since the backup in", since.display().to_string()),
        row("taken, in milliseconds since 1970", taken_at_ms.to_string()),
        row("records", records.to_string()),
        row("bytes of them", format_size(*bytes)),
        row("frames", frames.to_string()),
        row("shards of the store that it is of", shards.to_string()),
    ]))?;
    print_line("It needs the backup that it was made since; what both show is told by backup --verify.")
}

/// What a backup holds, and into how many shards of a new store it was restored.
fn tell(report: &BackupReport, restored: Option<u16>, json: bool) -> Result<()> {
    if json {
        return print_json(report);
    }
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    let mut rows = vec![
        row("backup", String::new()),
        row("taken, in milliseconds since 1970", report.taken_at_ms.to_string()),
        row("records", report.records.to_string()),
        row("bytes of them", format_size(report.bytes)),
        row("records that it shows", report.shown.to_string()),
        row("of these keys of databases", report.keys.to_string()),
        row("of these pieces of large values", report.shown.saturating_sub(report.keys).to_string()),
        row("backups that it was made since", report.bases.to_string()),
        row("frames", report.frames.to_string()),
        row("shards of the store that it is of", report.shards.to_string()),
    ];
    rows.extend(restored.map(|shards| row("shards of the new store", shards.to_string())));
    print_line(&table(&rows))
}
