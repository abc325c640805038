//! `tierstone load`: records from files into any Redis server, or into a closed store.
//!
//! One thread reads ([`source`]), one thread a connection writes ([`feed`]), or the store's shards do ([`store`]). What is read and not
//! acknowledged is bounded in bytes. A record that cannot be read or is refused is told with its line,
//! counted, and left out; the others go on.

mod feed;
mod source;
mod store;

use crate::connect::ConnectArgs;
use crate::output::{print_json, print_line, table};
use clap::{Args, ValueEnum};
use feed::{Feed, Item, Loaded};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use source::{Entry, Faulty, Place, Source};
use std::path::PathBuf;
use std::sync::Mutex;
use store::StoreArgs;
use tierstone_base::units::format_size;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};

/// Errors that are told one by one; more are only counted.
const ERRORS_SHOWN: u64 = 1_000;
/// Errors in the JSON summary.
const ERRORS_KEPT: usize = 100;

#[derive(Debug, Args)]
pub struct LoadArgs {
    /// A directory (path → content), an NDJSON file, or a CSV file with a head line
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// The server, a host and the port of Redis clients, or unix:PATH
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "data", default_value = "127.0.0.1:6379")]
    address: String,
    /// What PATH is [default: by its kind and name: .ndjson, .jsonl, .csv, .tsv]
    #[arg(long, value_enum, value_name = "KIND")]
    format: Option<Format>,
    /// NDJSON: the field with the key
    #[arg(long, value_name = "NAME", default_value = "key")]
    key_field: String,
    /// NDJSON: the field with the value; what is no text is stored as its JSON text
    #[arg(long, value_name = "NAME", default_value = "value")]
    value_field: String,
    /// CSV: the column with the key [default: the first]
    #[arg(long, value_name = "NAME")]
    key_column: Option<String>,
    /// CSV: the column with the value [default: the whole row, as a JSON object]
    #[arg(long, value_name = "NAME")]
    value_column: Option<String>,
    /// Put before every key
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Connections; records of one key always take the same, so that the last of them stays
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: usize,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// What the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A tree of files: path below PATH → content
    Directory,
    /// One JSON object a line
    Ndjson,
    /// Comma-separated, with a head line
    Csv,
    /// Tab-separated, with a head line
    Tsv,
}

/// A record that was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct LoadError {
    /// Where it is: `PATH:LINE`, or a path.
    place: String,
    line: Option<u64>,
    message: String,
}

/// What was loaded.
#[derive(Clone, Debug, Default, Serialize)]
struct LoadReport {
    records: u64,
    bytes: u64,
    seconds: f64,
    records_per_second: f64,
    bytes_per_second: f64,
    /// Links, sockets and other things of a tree that have no content.
    skipped: u64,
    errors: u64,
    first_errors: Vec<LoadError>,
}

/// Errors of all threads.
#[derive(Debug)]
struct Errors {
    path: PathBuf,
    bar: ProgressBar,
    told: Mutex<(u64, Vec<LoadError>)>,
}

impl Errors {
    fn tell(&self, place: &Place, message: String) {
        let (place, line) = match place {
            Place::Line(line) => (format!("{}:{line}", self.path.display()), Some(*line)),
            Place::File(path) => (path.display().to_string(), None),
        };
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        told.0 += 1;
        if told.0 <= ERRORS_SHOWN {
            self.bar.suspend(|| tell!("tierstone: {place}: {message}"));
        }
        if told.0 == ERRORS_SHOWN + 1 {
            self.bar.suspend(|| tell!("tierstone: more errors are only counted"));
        }
        if told.1.len() < ERRORS_KEPT {
            told.1.push(LoadError { place, line, message });
        }
    }
}

pub fn run(args: &LoadArgs) -> Result<()> {
    if !(1..=1_000).contains(&args.connections) {
        return Err(Error::new(ErrorKind::InvalidInput, "between 1 and 1000 connections are possible"));
    }
    let report = load(args)?;
    if args.json {
        print_json(&report)?;
    } else {
        print_line(&table(&rows(&report)))?;
    }
    match report.errors {
        0 => Ok(()),
        errors => Err(Error::new(ErrorKind::Retry, format!("{errors} records were not loaded"))),
    }
}

fn load(args: &LoadArgs) -> Result<LoadReport> {
    let clock = SystemClock::new();
    let (mut source, bytes_total) = open(args)?;
    let bar = progress(bytes_total);
    let errors = Errors { path: args.path.clone(), bar: bar.clone(), told: Mutex::new((0, Vec::new())) };
    let result = std::thread::scope(|scope| {
        let mut feed = match args.store.open()? {
            Some(store) => {
                args.connect.needs("--address, without --data")?;
                Sink::Store(store)
            }
            None => {
                let server = (args.address.as_str(), &args.connect, args.store.database);
                Sink::Server(Feed::start(scope, server, args.connections, &errors)?)
            }
        };
        let mut read = Ok(());
        while let Some(entry) = source.next() {
            let bytes_read = source.bytes_read();
            bar.set_position(bytes_read);
            match entry {
                Ok(Entry { place, key, value }) => {
                    let key = [args.prefix.as_bytes(), &key].concat();
                    if !feed.give(Item { place, key, value }, &errors) {
                        break;
                    }
                }
                Err(Faulty::Entry(place, message)) => errors.tell(&place, message),
                Err(Faulty::Source(error)) => {
                    read = Err(error);
                    break;
                }
            }
        }
        let loaded = feed.finish();
        read.and(loaded)
    });
    bar.finish_and_clear();
    let loaded = result?;
    let seconds = (clock.now().monotonic_us as f64 / 1e6).max(1e-6);
    let (errors, first_errors) = errors.told.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(LoadReport {
        records: loaded.records,
        bytes: loaded.bytes,
        seconds,
        records_per_second: loaded.records as f64 / seconds,
        bytes_per_second: loaded.bytes as f64 / seconds,
        skipped: source.skipped(),
        errors,
        first_errors,
    })
}

/// Where records go.
enum Sink<'scope> {
    Server(Feed<'scope>),
    Store(store::StoreSink),
}

impl Sink<'_> {
    /// Hands a record on; false when no more are taken, for a reason that [`Sink::finish`] gives.
    fn give(&mut self, item: Item, errors: &Errors) -> bool {
        match self {
            Sink::Server(feed) => feed.give(item),
            Sink::Store(store) => store.give(&item, errors),
        }
    }

    fn finish(self) -> Result<Loaded> {
        match self {
            Sink::Server(feed) => feed.finish(),
            Sink::Store(store) => store.finish(),
        }
    }
}

/// The source, and how many bytes it has, where that is known.
fn open(args: &LoadArgs) -> Result<(Box<dyn Source>, Option<u64>)> {
    let about = std::fs::metadata(&args.path)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("{}: {error}", args.path.display())))?;
    let format = match args.format {
        Some(format) => format,
        None if about.is_dir() => Format::Directory,
        None => format_of_name(args)?,
    };
    if about.is_dir() != (format == Format::Directory) {
        let kind = if about.is_dir() { "a directory" } else { "no directory" };
        return Err(Error::new(ErrorKind::InvalidInput, format!("{} is {kind}", args.path.display())));
    }
    let bytes = (!about.is_dir()).then_some(about.len());
    let source: Box<dyn Source> = match format {
        Format::Directory => Box::new(source::Tree::new(&args.path)),
        Format::Ndjson => {
            let file = std::fs::File::open(&args.path)?;
            Box::new(source::Ndjson::new(file, &args.key_field, &args.value_field))
        }
        Format::Csv | Format::Tsv => {
            let file = std::fs::File::open(&args.path)?;
            let delimiter = if format == Format::Tsv { b'\t' } else { b',' };
            let columns = (args.key_column.as_deref(), args.value_column.as_deref());
            Box::new(source::Csv::new(file, delimiter, columns)?)
        }
    };
    Ok((source, bytes))
}

fn format_of_name(args: &LoadArgs) -> Result<Format> {
    let extension = args.path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("ndjson" | "jsonl" | "json") => Ok(Format::Ndjson),
        Some("csv") => Ok(Format::Csv),
        Some("tsv" | "tab") => Ok(Format::Tsv),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{}: the name does not tell what it is; say --format", args.path.display()),
        )),
    }
}

fn progress(bytes_total: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes_total {
        Some(total) => (ProgressBar::new(total), "loading [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}"),
        None => (ProgressBar::new_spinner(), "loading {spinner} {bytes} {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

fn rows(report: &LoadReport) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["loaded".to_owned(), "value".to_owned()]];
    let mut row = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
    row("records", report.records.to_string());
    row("bytes of keys and values", format_size(report.bytes));
    row("seconds", format!("{:.2}", report.seconds));
    row("records a second", format!("{:.0}", report.records_per_second));
    row("bytes a second", format_size(report.bytes_per_second as u64));
    if report.skipped > 0 {
        row("links and special files, left out", report.skipped.to_string());
    }
    row("errors", report.errors.to_string());
    rows
}

#[cfg(test)]
#[path = "load_test.rs"]
mod load_test;
