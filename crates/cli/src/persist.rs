//! `tierstone persist`: the order of persists, of litmus tests and of traces of any program.
//!
//! Numbers that come from traces by the rules of a model are labelled modelled: no persistent memory is involved.

mod import;
mod litmus;
mod observe;
mod timing;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use std::path::Path;
use std::process::ExitCode;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_persist::order::Model;
use tierstone_persist::trace::{Trace, binary, text};
use tierstone_plan::description::read_at_most;

/// The longest trace file that is read, in bytes: it is held in memory.
const TRACE_BYTES_MAX: usize = 512 << 20;
/// The longest file of a litmus test or a map.
const TEXT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Args)]
pub struct PersistArgs {
    #[command(subcommand)]
    command: PersistCommand,
}

#[derive(Debug, Subcommand)]
enum PersistCommand {
    /// Run litmus tests: what each persistency model must allow and forbid
    Litmus(litmus::LitmusArgs),
    /// What the order of a trace's persists costs: critical path, coalescing, rates, break-even latency
    Timing(timing::TimingArgs),
    /// Count and show the states of persistent memory that a failure may leave of a trace
    Observe(observe::ObserveArgs),
    /// Make a trace of what Valgrind's lackey recorded, or give one of our own another meaning
    Import(import::ImportArgs),
}

/// Runs the subcommand; the exit code is 1 where a claim does not hold.
pub fn run(args: &PersistArgs) -> Result<ExitCode> {
    match &args.command {
        PersistCommand::Litmus(args) => litmus::run(args),
        PersistCommand::Timing(args) => timing::run(args).map(|()| ExitCode::SUCCESS),
        PersistCommand::Observe(args) => observe::run(args).map(|()| ExitCode::SUCCESS),
        PersistCommand::Import(args) => import::run(args).map(|()| ExitCode::SUCCESS),
    }
}

/// The trace of a file, text or binary.
fn read_trace(file: &Path) -> Result<Trace> {
    let bytes = read_file(file, TRACE_BYTES_MAX)?;
    let trace = match bytes.starts_with(binary::MAGIC) {
        true => binary::read(&bytes),
        false => text_of(&bytes).and_then(text::read),
    };
    trace.map_err(|error| error.context(&file.display().to_string()))
}

/// The bytes as text that may be that of a trace.
fn text_of(bytes: &[u8]) -> Result<&str> {
    let (title, _) = text::TITLE.rsplit_once(' ').unwrap_or((text::TITLE, ""));
    if !bytes.trim_ascii_start().starts_with(title.as_bytes()) {
        let message = format!(
            "this is no trace: it begins neither with '{}' (text) nor with '{}' (binary), see \
             docs/formats/persist-trace.md; what Valgrind recorded becomes one by 'tierstone persist import'",
            text::TITLE,
            binary::MAGIC.escape_ascii()
        );
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        match error.error_len() {
            None => {
                Error::new(ErrorKind::Corrupt, format!("the trace is cut inside a letter of line {line}"))
            }
            Some(_) => Error::new(ErrorKind::InvalidInput, format!("line {line} is no UTF-8 text")),
        }
    })
}

/// The text of a short file.
fn read_text(file: &Path) -> Result<String> {
    String::from_utf8(read_file(file, TEXT_BYTES_MAX)?).map_err(|_| {
        Error::new(ErrorKind::InvalidInput, format!("{}: this is no UTF-8 text", file.display()))
    })
}

fn read_file(file: &Path, most: usize) -> Result<Vec<u8>> {
    refuse_directory(file)?;
    read_at_most(file, most)
}

/// Reading one would fail as a device does.
pub(crate) fn refuse_directory(file: &Path) -> Result<()> {
    match file.is_dir() {
        true => {
            let message = format!("{} is a directory: name a file", file.display());
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        false => Ok(()),
    }
}

/// The model of a flag.
fn model(name: &str) -> std::result::Result<Model, String> {
    let names = || Model::ALL.map(Model::name).join(", ");
    Model::named(name).ok_or_else(|| format!("write {}", names()))
}

/// A count that grows, on a terminal.
fn counter(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_prefix(what);
    let style = indicatif::ProgressStyle::with_template("{spinner} {prefix}: {human_pos}");
    bar.set_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_spinner()));
    bar
}
