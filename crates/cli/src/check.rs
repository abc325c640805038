//! `tierstone check`: verifies every byte of a closed store and says what damage costs; with `--repair` it
//! makes a new store of what is whole; with `--server` the server of a running store verifies it.

mod nvm;
mod repair;
mod running;

use crate::connect::ConnectArgs;
use crate::output::{print_json, print_line, table};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use tierstone::RepairOptions;
use tierstone_base::units::{format_size, parse_size};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_logstore::check::{CheckProgress, CheckReport, DamageKind, Finding};

/// Findings that are printed one by one; JSON has more.
const FINDINGS_SHOWN: usize = 50;

const EXIT_CODES: &str = "Exit codes: 0 every byte is as it was written (with --repair: the new store was made and is whole; what it \
lacks is told, and in --json); 1 failed otherwise, as where no server answers; 2 wrong usage, or the store is in use; 3 damage was found; \
4 the device failed or is full.";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct CheckArgs {
    /// The directories of one closed store, or nvm: and its region, as its server has them in --data; a running
    /// server is asked with --server instead
    #[arg(required_unless_present = "server", value_name = "DIR", value_delimiter = ',')]
    directories: Vec<PathBuf>,
    /// Memory for telling old versions of keys from new ones; with less the store is read several times
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: String,
    /// Make a new store in DIR with the newest whole version of every key; the damaged one stays as it is
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    repair: Option<Vec<PathBuf>>,
    /// The region of the store's redo log, as its server has it in --nvm, to be read as well
    #[arg(long, value_name = "PATH", conflicts_with_all = ["repair", "server"])]
    nvm: Option<String>,
    /// Let the server at ADDR, a host and the port of Redis clients or unix:PATH, verify its store beside its traffic
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["directories", "repair", "memory"])]
    server: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CheckArgs) -> Result<()> {
    if let Some(server) = &args.server {
        return running::run((server, &args.connect), args.json);
    }
    args.connect.needs("--server")?;
    let memory_bytes = parse_size(&args.memory)?;
    if memory_bytes < 1 << 20 {
        return Err(Error::new(ErrorKind::InvalidInput, "at least 1MiB of memory is needed"));
    }
    let bar = progress();
    let mut show = |CheckProgress { bytes, bytes_total }: CheckProgress| {
        bar.set_length(bytes_total);
        bar.set_position(bytes);
    };
    if args.repair.is_none()
        && let Some(report) = tierstone::check_nvm(&args.directories, memory_bytes, &mut show)?
    {
        bar.finish_and_clear();
        return nvm::tell(&report, args.json);
    }
    let report = match &args.repair {
        None => match &args.nvm {
            Some(region) => tierstone::check_with_redo(&args.directories, region, memory_bytes, &mut show),
            None => tierstone::check(&args.directories, memory_bytes, &mut show),
        },
        Some(target) => {
            let (source, target) = (args.directories.clone(), target.clone());
            tierstone::repair(&RepairOptions { source, target, memory_bytes }, &mut show)
        }
    };
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        print_json(&report)?;
    } else {
        print_line(&table(&rows(&report, args.repair.is_some())))?;
        print_findings(&report)?;
    }
    let count: u64 = report.damage.values().sum();
    match &args.repair {
        None if count > 0 && report.damage.get(&DamageKind::Redo) == Some(&count) => {
            let message = format!(
                "{count} damaged places in the redo log; a server that is started with --nvm-loss accept serves the rest"
            );
            Err(Error::new(ErrorKind::Corrupt, message))
        }
        None if report.is_damaged() => {
            let message = format!(
                "{count} damaged places, {} keys lost; restore from a backup, or save what is whole with --repair",
                report.lost_keys
            );
            Err(Error::new(ErrorKind::Corrupt, message))
        }
        None => Ok(()),
        // The new store is whole; what it lacks is said.
        Some(target) => {
            repair::tell(&report, target);
            Ok(())
        }
    }
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("checking [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

fn rows(report: &CheckReport, is_repair: bool) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["checked".to_owned(), "found".to_owned()]];
    let mut row = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
    row("closed in good order", if report.clean { "yes" } else { "no" }.to_owned());
    row("segments with records", report.segments.to_string());
    row("of these sealed", report.sealed_segments.to_string());
    row("groups", report.groups.to_string());
    row("records, old versions included", report.records.to_string());
    row("bytes of them", format_size(report.record_bytes));
    row("keys", (report.live_keys - report.live_pieces).to_string());
    row("pieces of large values", report.live_pieces.to_string());
    row("bytes of their records", format_size(report.live_bytes));
    if report.redo_unread {
        let advice = if is_repair { "not read" } else { "not looked at; name its region in --nvm" };
        row("newest writes, in the redo log", advice.to_owned());
    } else if report.redo_records > 0 {
        row("records in the redo log", report.redo_records.to_string());
    }
    if !report.clean {
        row("groups behind the ends of logs (void)", report.void_groups.to_string());
        row("records of batches that were not whole (void)", report.void_records.to_string());
        row("torn summaries, made again at opening", report.torn_summaries.to_string());
    }
    for (kind, count) in &report.damage {
        row(&format!("damaged: {}", kind.name()), count.to_string());
    }
    row("records lost to damage", report.lost_records.to_string());
    row("keys lost to damage", report.lost_keys.to_string());
    if is_repair {
        row("keys saved in the new store", report.saved_keys.to_string());
        row("keys with an older version than was lost", report.reverted_keys.to_string());
        row("keys of which nothing is whole", report.unsaved_keys.to_string());
    }
    rows
}

fn print_findings(report: &CheckReport) -> Result<()> {
    for finding in report.findings.iter().take(FINDINGS_SHOWN) {
        print_line(&line(finding))?;
    }
    let left = report.damage.values().sum::<u64>().saturating_sub(FINDINGS_SHOWN as u64);
    if left > 0 {
        print_line(&format!("and {left} more; --json lists them"))?;
    }
    Ok(())
}

fn line(finding: &Finding) -> String {
    format!(
        "* {}: {} ({} records, {} keys lost)",
        place(finding),
        finding.detail,
        finding.lost_records,
        finding.lost_keys
    )
}

/// Where something was found.
fn place(finding: &Finding) -> String {
    match (finding.segment, finding.unit) {
        (None, _) => finding.kind.name().to_owned(),
        (Some(segment), None) => format!("segment {segment}"),
        (Some(segment), Some(unit)) => format!("segment {segment}, unit {unit}"),
    }
}
