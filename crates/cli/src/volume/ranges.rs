//! `tierstone volume declare` and `ranges`: which bytes of a volume may lie on disks that stand.

use super::{ClosedArgs, open};
use crate::output::{print_json, print_line, table};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use tierstone_base::units::{format_size, parse_size};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_volume::RangeClass;

#[derive(Debug, Args)]
pub struct DeclareArgs {
    /// The volume's description
    #[arg(value_name = "FILE.toml")]
    description: PathBuf,
    /// Cold: a request may have to wait until a disk has started. Hot: always on disks that turn
    #[arg(value_name = "CLASS")]
    class: Class,
    /// Where the range begins in the volume, such as 0 or 4GiB; cold ranges are rounded inwards to chunks, hot ones
    /// outwards
    #[arg(value_name = "START")]
    start: String,
    /// Where it ends
    #[arg(value_name = "END")]
    end: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Class {
    Cold,
    Hot,
}

/// One run of bytes of one class.
#[derive(Debug, Serialize)]
struct Run {
    start: u64,
    end: u64,
    class: &'static str,
    needs_start: bool,
}

pub fn declare(args: &DeclareArgs) -> Result<()> {
    let (start, end) = (parse_size(&args.start)?, parse_size(&args.end)?);
    let class = match args.class {
        Class::Cold => RangeClass::Cold,
        Class::Hot => RangeClass::Hot,
    };
    let opened = open(&args.description)?;
    if start >= end || end > opened.facts.geometry.end() {
        let bytes = opened.facts.geometry.end();
        let message = format!("{start} to {end} is no range of the volume, which has {bytes} bytes");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    opened.volume.declare(start..end, class)?;
    let runs = runs_of(&opened);
    opened.volume.close()?;
    show(&runs, args.json)
}

pub fn ranges(args: &ClosedArgs) -> Result<()> {
    let opened = open(&args.description)?;
    let runs = runs_of(&opened);
    opened.volume.close()?;
    show(&runs, args.json)
}

fn runs_of(opened: &tierstone::volume::OpenedVolume) -> Vec<Run> {
    let whole = 0..opened.facts.geometry.end();
    let run = |status: tierstone_volume::RangeStatus| Run {
        start: status.bytes.start,
        end: status.bytes.end,
        class: match status.class {
            RangeClass::Hot => "hot",
            RangeClass::Cold => "cold",
        },
        needs_start: status.needs_start,
    };
    opened.volume.range_status(whole).into_iter().map(run).collect()
}

fn show(runs: &[Run], json: bool) -> Result<()> {
    if json {
        return print_json(&runs);
    }
    let head = ["from", "to", "bytes", "class", "starts a disk now"].map(str::to_owned).to_vec();
    let row = |run: &Run| {
        let starts = if run.needs_start { "yes" } else { "no" };
        let bytes = format_size(run.end - run.start);
        vec![run.start.to_string(), run.end.to_string(), bytes, run.class.to_owned(), starts.to_owned()]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(runs.iter().map(row)).collect();
    print_line(&table(&rows))
}
