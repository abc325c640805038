//! `tierstone workload`: records what a server is asked, imports what others recorded, replays and describes it.

mod describe;
mod import;
pub mod options;
mod record;
mod replay;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::trace::{Anonymizer, ImportCounts, TraceHead, TraceReader, TraceWriter};

const AFTER_HELP: &str = "A trace keeps operations, keys (or hashes of them, with --anonymous), sizes and times, never values: \
see docs/workload-traces.md.\n\nExamples:\n  tierstone workload record --address 127.0.0.1:6379 --seconds 60 --output \
load.trace\n  redis-cli MONITOR | tierstone workload import - --output load.trace\n  tierstone workload describe \
load.trace\n  tierstone workload replay load.trace --nvm emulated:64MiB:dcpmm\n  tierstone lab what-if load.trace \
--presets dram,dcpmm,pcm\n\nExit codes: 0 done; 1 failed or interrupted; 2 wrong usage, a file that is no trace, or a server that \
refuses; 3 the trace is damaged, or values were wrong; 4 the device failed or is full.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct WorkloadArgs {
    #[command(subcommand)]
    command: WorkloadCommand,
}

#[derive(Debug, Subcommand)]
enum WorkloadCommand {
    /// Record what the clients of a running server ask, by its MONITOR
    Record(record::RecordArgs),
    /// Make a trace of the text that MONITOR prints, or of an open cache trace
    Import(import::ImportArgs),
    /// Do the operations of a trace again, on a new store that is removed afterwards, and measure them
    Replay(Box<replay::ReplayArgs>),
    /// Tell what a trace is like: operations, rates, popularity of keys, sizes
    Describe(describe::DescribeArgs),
}

pub fn run(args: &WorkloadArgs) -> Result<()> {
    match &args.command {
        WorkloadCommand::Record(args) => record::run(args),
        WorkloadCommand::Import(args) => import::run(args),
        WorkloadCommand::Replay(args) => replay::run(args),
        WorkloadCommand::Describe(args) => describe::run(args),
    }
}

/// Where a trace is written, and what of its keys.
#[derive(Debug, Args)]
struct OutputArgs {
    /// Where the trace goes; a file that is not there yet
    #[arg(long, value_name = "TRACE")]
    output: std::path::PathBuf,
    /// Keep hashes of the keys, under a secret that is thrown away, and their lengths, instead of the keys
    #[arg(long)]
    anonymous: bool,
}

impl OutputArgs {
    fn anonymizer(&self) -> Result<Option<Anonymizer>> {
        self.anonymous.then(Anonymizer::new).transpose()
    }

    fn create(&self, head: &TraceHead) -> Result<TraceWriter<BufWriter<File>>> {
        // It has the keys of whoever was recorded: for its owner alone.
        let made = File::options().write(true).create_new(true).mode(0o600).open(&self.output);
        let file = match made {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let message = format!("{} is there already: name a file that is not", self.output.display());
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            Err(error) => return Err(self.failed(&error.into())),
            Ok(file) => file,
        };
        TraceWriter::new(BufWriter::new(file), head).map_err(|error| self.failed(&error))
    }

    fn finish(&self, writer: TraceWriter<BufWriter<File>>) -> Result<()> {
        let file = writer.finish().map_err(|error| self.failed(&error))?;
        let file = file.into_inner().map_err(|error| self.failed(&error.into_error().into()))?;
        file.sync_all().map_err(|error| self.failed(&error.into()))
    }

    fn failed(&self, error: &Error) -> Error {
        error.clone().context(&format!("cannot write {}", self.output.display()))
    }
}

/// What became of the lines of an import or a recording, for people.
fn told(counts: &ImportCounts) -> String {
    let mut text = format!("{} records of {} lines", counts.records, counts.lines);
    if counts.passed_over > 0 {
        text.push_str(&format!("; {} commands that are about no key passed over", counts.passed_over));
    }
    if counts.keys_too_long > 0 {
        text.push_str(&format!("; {} commands left out for keys that are too long", counts.keys_too_long));
    }
    if let Some(line) = counts.first_refused_line {
        text.push_str(&format!(
            "; {} lines are none of the format, the first is line {line}",
            counts.refused
        ));
    }
    if counts.out_of_order > 0 {
        text.push_str(&format!("; {} records were earlier than the one before", counts.out_of_order));
    }
    text
}

/// What `--json` prints of an import or a recording.
#[derive(Debug, Serialize)]
struct Written<T> {
    trace: TraceHead,
    #[serde(flatten)]
    what: T,
}

/// Opens a trace.
fn open_trace(file: &Path) -> Result<TraceReader<BufReader<File>>> {
    let name = file.display().to_string();
    let opened =
        File::open(file).map_err(|error| Error::from(error).context(&format!("cannot read {name}")))?;
    TraceReader::new(BufReader::with_capacity(1 << 20, opened)).map_err(|error| error.context(&name))
}

/// A bar for a known or unknown end.
fn bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{prefix:10} [{bar:40}] {percent:>3} % {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_prefix(what);
    bar
}
