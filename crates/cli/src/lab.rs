//! `tierstone lab`: published experiments, run here, their numbers beside the published ones.

mod print;
mod what_if;

use crate::interrupt::Interrupted;
use crate::output::{print_json, print_line, table};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_lab::catalogue::{Entry, catalogue, summary};
use tierstone_lab::{
    ALL, Experiment, ExperimentResult, Kind, Published, PublishedSeries, RunSettings, Size, find, output,
};

/// Steps of the progress bar.
const BAR_STEPS: u64 = 1_000;

#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// List the experiments
    List(ListArgs),
    /// Run experiments by their names
    Run(RunArgs),
    /// Run every experiment
    All(MeasureArgs),
    /// Replay a recorded workload with its newest writes in emulated persistent memories, and on the device alone
    WhatIf(Box<what_if::WhatIfArgs>),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// List every published table and figure with its state (runs, not yet, not reproducible, not a result such as a
    /// drawing) and how many are in which, then every published value that the experiments compare to
    #[arg(long)]
    published: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Names, as `list` gives them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    measure: MeasureArgs,
}

#[derive(Debug, Args)]
struct MeasureArgs {
    /// Seconds instead of minutes for each: the shapes, at smaller sizes
    #[arg(long)]
    quick: bool,
    /// A second for each: shows that they run, the numbers mean nothing
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
    /// Where the results go: a folder for each experiment, and an index
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// On which disk to measure: a temporary folder in this directory, which is there, is used and removed [default: the
    /// results' own]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Seed of keys, operations and values
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl MeasureArgs {
    fn size(&self) -> Size {
        match (self.tiny, self.quick) {
            (true, _) => Size::Tiny,
            (_, true) => Size::Quick,
            _ => Size::Full,
        }
    }
}

pub fn run(args: &LabArgs) -> Result<()> {
    match &args.command {
        LabCommand::List(args) => list(args),
        LabCommand::Run(args) => {
            let named = args.names.iter().map(|name| {
                find(name).ok_or_else(|| {
                    let message = format!("there is no experiment '{name}'; `tierstone lab list` names them");
                    Error::new(ErrorKind::InvalidInput, message)
                })
            });
            // Before anything runs, so that a wrong name costs nothing.
            let experiments = named.collect::<Result<Vec<_>>>()?;
            measure(&experiments, &args.measure)
        }
        LabCommand::All(args) => measure(ALL, args),
        LabCommand::WhatIf(args) => what_if::run(args),
    }
}

/// An experiment without its code.
#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    measures: &'static str,
    kind: Kind,
    published: &'static [Published],
    series: &'static [PublishedSeries],
}

fn list(args: &ListArgs) -> Result<()> {
    if args.json {
        let listed: Vec<Listed> = ALL
            .iter()
            .map(|experiment| Listed {
                name: experiment.name,
                title: experiment.title,
                source: experiment.source,
                measures: experiment.measures,
                kind: experiment.kind,
                published: experiment.published,
                series: experiment.series,
            })
            .collect();
        return match args.published {
            true => print_json(&PublishedList { catalogue: catalogue()?, experiments: listed }),
            false => print_json(&listed),
        };
    }
    let head = |heads: &[&str]| heads.iter().map(|&head| head.to_owned()).collect::<Vec<String>>();
    if args.published {
        let entries = catalogue()?;
        print_line(&table(&catalogue_rows(&entries)))?;
        print_line(&format!("{}\n", summary(&entries)))?;
        let mut rows = vec![head(&["experiment", "value", "published", "unit", "where", "agreement"])];
        for experiment in ALL {
            rows.extend(experiment.published.iter().map(|value| published_row(experiment, value)));
            rows.extend(experiment.series.iter().flat_map(|series| series_rows(experiment, series)));
        }
        return print_line(&table(&rows));
    }
    let mut rows = vec![head(&["experiment", "what", "source"])];
    rows.extend(ALL.iter().map(|experiment| head(&[experiment.name, experiment.title, experiment.source])));
    print_line(&table(&rows))
}

/// What `list --published --json` prints.
#[derive(Debug, Serialize)]
struct PublishedList {
    catalogue: Vec<Entry>,
    experiments: Vec<Listed>,
}

fn catalogue_rows(entries: &[Entry]) -> Vec<Vec<String>> {
    let head = ["work", "table or figure", "what", "state"].map(str::to_owned).to_vec();
    let row = |entry: &Entry| {
        vec![entry.work.clone(), entry.place.clone(), entry.what.clone(), entry.state.to_string()]
    };
    std::iter::once(head).chain(entries.iter().map(row)).collect()
}

fn published_row(experiment: &Experiment, value: &Published) -> Vec<String> {
    vec![
        experiment.name.to_owned(),
        value.name.to_owned(),
        value.value.to_string(),
        value.unit.to_owned(),
        value.place.to_owned(),
        value.rule.to_string(),
    ]
}

fn series_rows(experiment: &Experiment, series: &PublishedSeries) -> Vec<Vec<String>> {
    let point = |(x, y): &(f64, f64)| {
        vec![
            experiment.name.to_owned(),
            format!("{}, at {} = {x}", series.name, series.x),
            y.to_string(),
            series.y.to_owned(),
            series.place.to_owned(),
            "shown beside ours".to_owned(),
        ]
    };
    series.points.iter().map(point).collect()
}

fn measure(experiments: &[&'static Experiment], args: &MeasureArgs) -> Result<()> {
    let settings = settings(args.size(), &args.out, args.data.as_deref(), args.seed)?;
    let stop = Interrupted::watch()?;
    let mut results: Vec<ExperimentResult> = Vec::new();
    let mut failures = Vec::new();
    for experiment in experiments {
        match measure_one(experiment, &settings, &args.out, &stop) {
            Ok(result) => results.push(result),
            Err(error) if stop.has_come() => return Err(error),
            // The others do not depend on it.
            Err(error) => {
                tell!("tierstone: {error}");
                failures.push(error);
            }
        }
    }
    if !results.is_empty() {
        output::write_index(&results, &args.out)?;
    }
    if args.json {
        print_json(&results)?;
    } else {
        print::print_results(&results, &args.out)?;
    }
    match failures.into_iter().next() {
        None => Ok(()),
        Some(first) => Err(first.context("not every experiment ran; the first that did not")),
    }
}

/// The settings of a run. The folder `out` of its results is made; that of its data is there unless it is the same.
fn settings(size: Size, out: &Path, data: Option<&Path>, seed: u64) -> Result<RunSettings> {
    let settings = RunSettings { size, data: data.unwrap_or(out).to_owned(), seed };
    if settings.data != out {
        settings.validate()?;
    }
    std::fs::create_dir_all(out).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotADirectory => {
            let message =
                format!("cannot make {}: a file is in the way; name a directory with --out", out.display());
            Error::new(ErrorKind::InvalidInput, message)
        }
        _ => Error::from(error).context(&format!("cannot make {}", out.display())),
    })?;
    Ok(settings)
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3} % {msg}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

fn measure_one(
    experiment: &'static Experiment,
    settings: &RunSettings,
    out: &Path,
    stop: &Interrupted,
) -> Result<ExperimentResult> {
    let bar = ProgressBar::new(BAR_STEPS);
    bar.set_style(style());
    bar.set_prefix(experiment.name);
    let mut shown = String::new();
    let result = tierstone_lab::run(experiment, settings, &mut |progress| {
        bar.set_position((progress.done * BAR_STEPS as f64) as u64);
        if progress.doing != shown {
            progress.doing.clone_into(&mut shown);
            bar.set_message(shown.clone());
        }
        if stop.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let result = result?;
    output::write(&result, out)?;
    Ok(result)
}
