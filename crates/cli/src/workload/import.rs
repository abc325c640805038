//! `tierstone workload import`.

use super::{OutputArgs, Written, told};
use crate::output::{print_json, print_line};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::PathBuf;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::trace::cache_csv::CacheCsvImport;
use tierstone_workload::trace::monitor::{MonitorImport, first_ms};
use tierstone_workload::trace::{Anonymizer, ImportCounts, TraceHead, TraceRecord, TraceSource, TraceWriter};

/// Bytes that are read together.
const PIECE_BYTES: usize = 256 << 10;

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The text, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What the text is
    #[arg(long, value_enum, default_value = "monitor")]
    from: Form,
    #[command(flatten)]
    output: OutputArgs,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// What MONITOR prints, of Tierstone, Redis or Valkey
    Monitor,
    /// An open cache trace: timestamp,key,key size,value size,client,operation,TTL
    CacheCsv,
}

pub fn run(args: &ImportArgs) -> Result<()> {
    let name = args.file.display().to_string();
    let mut input: Box<dyn Read> = match name.as_str() {
        "-" => Box::new(std::io::stdin()),
        _ => Box::new(
            File::open(&args.file)
                .map_err(|error| Error::from(error).context(&format!("cannot read {name}")))?,
        ),
    };
    let anonymizer = args.output.anonymizer()?;
    let mut first = vec![0; PIECE_BYTES];
    let count = read_some(&mut input, &mut first).map_err(|error| error.context(&name))?;
    first.truncate(count);
    let (source, began_ms) = match args.from {
        Form::Monitor => (TraceSource::MonitorText, first_ms(&first)),
        Form::CacheCsv => (TraceSource::CacheCsv, 0),
    };
    let head = TraceHead { source, is_anonymous: args.output.anonymous, began_ms };
    let mut writer = args.output.create(&head)?;
    let counts = copy(args.from, (&first, &mut *input), &mut writer, anonymizer.as_ref())
        .map_err(|error| error.context(&name))?;
    args.output.finish(writer)?;
    match args.json {
        true => print_json(&Written { trace: head, what: &counts })?,
        false => print_line(&told(&counts))?,
    }
    if counts.records == 0 {
        // No file is left that looks like a trace.
        let _ = std::fs::remove_file(&args.output.output);
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{name}: nothing in it is of this format (--from)"),
        ));
    }
    Ok(())
}

fn copy(
    form: Form,
    (first, input): (&[u8], &mut dyn Read),
    writer: &mut TraceWriter<BufWriter<File>>,
    anonymizer: Option<&Anonymizer>,
) -> Result<ImportCounts> {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {human_pos} records");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let mut put = |record: &TraceRecord| match anonymizer {
        None => writer.push(record),
        Some(anonymizer) => {
            let mut hidden = record.clone();
            anonymizer.hide(&mut hidden);
            writer.push(&hidden)
        }
    };
    let (mut monitor, mut csv) = (MonitorImport::new(), CacheCsvImport::new());
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = first;
    loop {
        let records = match form {
            Form::Monitor => {
                monitor.feed(bytes, &mut put)?;
                monitor.counts().records
            }
            Form::CacheCsv => {
                csv.feed(bytes, &mut put)?;
                csv.counts().records
            }
        };
        bar.set_position(records);
        let count = read_some(input, &mut piece)?;
        if count == 0 {
            break;
        }
        bytes = &piece[..count];
    }
    bar.finish_and_clear();
    match form {
        Form::Monitor => {
            monitor.finish();
            Ok(monitor.counts().clone())
        }
        Form::CacheCsv => {
            csv.finish(&mut put)?;
            Ok(csv.counts().clone())
        }
    }
}

/// What comes next, at least a byte before the end.
fn read_some(input: &mut dyn Read, bytes: &mut [u8]) -> Result<usize> {
    loop {
        match input.read(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return Ok(read?),
        }
    }
}
