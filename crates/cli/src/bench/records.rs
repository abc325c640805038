//! `tierstone bench gensort` and `tierstone bench valsort`: records of the sort benchmark for any sorter, and whether what
//! it made of them is right.

use crate::interrupt::Interrupted;
use crate::output::{print_json, print_line};
use clap::Args;
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::node::gensort::{Format, Generator, RECORD_BYTES};
use tierstone_workload::node::valsort::Summary;

/// Records that are made or read at a time.
const PIECE_RECORDS: usize = 32_768;

#[derive(Debug, Args)]
pub struct GensortArgs {
    /// How many records
    #[arg(value_name = "N")]
    records: u64,
    /// The file to write, or - for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What records look like: ascii (as gensort -a) or binary
    #[arg(long, value_name = "FORM", default_value = "ascii")]
    format: Format,
    /// The number of the first record
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Tell the sum of the records' checksums on standard error
    #[arg(long)]
    checksum: bool,
}

#[derive(Debug, Args)]
pub struct ValsortArgs {
    /// The file to read, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Standard output; a closed pipe ends the output, not the program.
struct Printed {
    output: std::io::StdoutLock<'static>,
    is_closed: Rc<Cell<bool>>,
}

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.output.write(bytes);
        let is_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
        self.is_closed.set(written.as_ref().is_err_and(is_closed));
        written
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}

pub fn generate(args: &GensortArgs) -> Result<()> {
    let context = |error: std::io::Error| Error::from(error).context(&args.file.display().to_string());
    if args.first.checked_add(args.records).is_none() {
        return Err(Error::new(ErrorKind::InvalidInput, "--first: the last record's number is above 2^64"));
    }
    let is_closed = Rc::new(Cell::new(false));
    let mut output: Box<dyn Write> = match is_standard(&args.file) {
        true => Box::new(Printed { output: std::io::stdout().lock(), is_closed: Rc::clone(&is_closed) }),
        false => Box::new(File::create(&args.file).map_err(context)?),
    };
    let interrupted = Interrupted::watch()?;
    let written = write(&mut output, args.format, (args.first, args.records), &interrupted);
    if is_closed.get() {
        return Ok(());
    }
    let summary = written.map_err(|error| {
        // Half a file looks like a whole one. A device, a pipe or the like stays.
        if !is_standard(&args.file) && args.file.is_file() {
            let _ = std::fs::remove_file(&args.file);
        }
        error.context(&args.file.display().to_string())
    })?;
    if args.checksum {
        tell!("{:x}", summary.checksum);
    }
    Ok(())
}

/// Writes `count` records from `first` on; what they are.
pub fn write(
    output: &mut dyn Write,
    format: Format,
    (first, count): (u64, u64),
    interrupted: &Interrupted,
) -> Result<Summary> {
    let mut generator = Generator::new(format, first);
    let mut piece = vec![0; PIECE_RECORDS * RECORD_BYTES];
    let mut summary = Summary::default();
    let mut left = count;
    while left > 0 {
        interrupted.check()?;
        let records = left.min(PIECE_RECORDS as u64);
        let piece = &mut piece[..records as usize * RECORD_BYTES];
        generator.fill(piece);
        summary.take(piece);
        output.write_all(piece)?;
        left -= records;
    }
    output.flush()?;
    Ok(summary)
}

/// What the records of `input` are.
pub fn summarise(input: &mut dyn Read, interrupted: &Interrupted) -> Result<Summary> {
    let mut piece = vec![0; PIECE_RECORDS * RECORD_BYTES];
    let mut summary = Summary::default();
    loop {
        interrupted.check()?;
        let mut filled = 0;
        while filled < piece.len() {
            match input.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !filled.is_multiple_of(RECORD_BYTES) {
            let what = format!("{} bytes behind the last whole record", filled % RECORD_BYTES);
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        summary.take(&piece[..filled]);
        if filled < piece.len() {
            return Ok(summary);
        }
    }
}

pub fn validate(args: &ValsortArgs) -> Result<()> {
    let name = args.file.display().to_string();
    let mut input: Box<dyn Read> = match is_standard(&args.file) {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(File::open(&args.file).map_err(|error| Error::from(error).context(&name))?),
    };
    let summary = summarise(&mut input, &Interrupted::watch()?).map_err(|error| error.context(&name))?;
    if summary.records == 0 {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{name}: there is no record")));
    }
    match args.json {
        true => print_json(&summary)?,
        false => print_line(&summary.to_string())?,
    }
    match summary.is_sorted() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Retry, format!("{name}: records are not in order"))),
    }
}
