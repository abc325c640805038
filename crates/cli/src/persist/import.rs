//! `tierstone persist import`.

use super::{counter, read_text, read_trace, refuse_directory};
use crate::output::{print_json, print_line};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_persist::import::{AddressMap, Import, ImportSettings, lackey, remap};
use tierstone_persist::trace::{binary, text};

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// What was recorded: by `valgrind --tool=lackey --trace-mem=yes --trace-sched=yes --log-file=FILE`, or a trace of
    /// our own
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Which addresses are persistent, and a store to which stands for a barrier: see docs/formats/persist-trace.md
    #[arg(long, value_name = "MAP")]
    map: PathBuf,
    /// Where the trace goes; a file that is not there yet
    #[arg(long, value_name = "TRACE")]
    out: PathBuf,
    /// How the trace is written
    #[arg(long, value_enum, default_value = "binary")]
    form: Form,
    /// Steps of the trace at most, 24 bytes of memory each
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    steps: usize,
    /// Take a recording that does not tell the program's end
    #[arg(long)]
    allow_cut: bool,
    /// Take a recording of a program with one thread, which was made without --trace-sched=yes
    #[arg(long)]
    one_thread: bool,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Binary,
    Text,
}

#[derive(Debug, Serialize)]
struct Told {
    steps: usize,
    threads: usize,
    accesses: u64,
    ignored: u64,
    persists: u64,
    marks: u64,
    persistent_bytes: u64,
}

pub fn run(args: &ImportArgs) -> Result<()> {
    let map = AddressMap::parse(&read_text(&args.map)?)
        .map_err(|error| error.context(&args.map.display().to_string()))?;
    let bar = counter("steps");
    let progress = |steps: u64| -> Result<()> {
        bar.set_position(steps);
        Ok(())
    };
    let settings = ImportSettings {
        steps_max: args.steps,
        allow_cut: args.allow_cut,
        one_thread: args.one_thread,
        progress: &progress,
    };
    let import = read(&args.file, &map, &settings)?;
    bar.finish_and_clear();
    write(args, &import)?;
    let told = Told {
        steps: import.trace.events().len(),
        threads: import.trace.threads(),
        accesses: import.accesses,
        ignored: import.ignored,
        persists: import.persists,
        marks: import.marks,
        persistent_bytes: import.persistent_bytes,
    };
    if args.json {
        return print_json(&told);
    }
    print_line(&format!(
        "{} steps of {} threads: {} persists, {} barriers, strands and syncs; {} accesses, {} of them ignored; {} bytes \
         of persistent memory",
        told.steps,
        told.threads,
        told.persists,
        told.marks,
        told.accesses,
        told.ignored,
        told.persistent_bytes
    ))
}

/// Reads what the first bytes of the file say that it is. Errors name the file.
fn read(file: &Path, map: &AddressMap, settings: &ImportSettings<'_>) -> Result<Import> {
    refuse_directory(file)?;
    let named = |error: Error| error.context(&file.display().to_string());
    let mut source = BufReader::new(File::open(file).map_err(|error| named(error.into()))?);
    let head = source.fill_buf().map_err(|error| named(error.into()))?;
    let is_our_own = head.starts_with(binary::MAGIC) || head.starts_with(text::TITLE.as_bytes());
    match is_our_own {
        true => remap(&read_trace(file)?, map, settings).map_err(named),
        false => lackey::read(source, map, settings).map_err(named),
    }
}

fn write(args: &ImportArgs, import: &Import) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::from(error).context(&format!("cannot write {}", args.out.display()));
    let bytes = match args.form {
        Form::Binary => binary::write(&import.trace),
        Form::Text => text::write(&import.trace).into_bytes(),
    };
    // It has what the program stored: for its owner alone.
    let made = File::options().write(true).create_new(true).mode(0o600).open(&args.out);
    let mut file = match made {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let message = format!("{} is there already: name a file that is not", args.out.display());
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        opened => opened.map_err(failed)?,
    };
    file.write_all(&bytes).map_err(|error| {
        // What is there of it is no trace, and would be in the way of the next attempt.
        let removed = std::fs::remove_file(&args.out);
        let error = failed(error);
        match removed {
            Ok(()) => error,
            Err(left) => error.context(&format!("a part of {} is left ({left})", args.out.display())),
        }
    })
}
