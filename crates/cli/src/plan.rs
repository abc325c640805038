//! `tierstone plan`: what hardware to buy and run, from a description.
//!
//! A plan is one variant of [`PlanCommand`], one line of [`run`], and one function from a description to a
//! report in `tierstone_plan`; its shipped descriptions are listed by `plan scenarios`.

mod scenarios;
mod text;

use crate::output::{print_json, print_line};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_plan::{
    Description, Report, cells, description, mirrors, nodes, output, power, routing, scenario,
};

#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// The cheapest nodes for a data size and a query rate, and where another design becomes cheaper
    Nodes(PlanOptions),
    /// What scans cost in joules on phones, boards and servers, and how many of each a scan in time needs
    Cells(PlanOptions),
    /// What a data centre draws, part by part, and what consolidation, cooling and containment would save
    Power(PlanOptions),
    /// Which feed each server runs on so that any one PDU may fail, and how little capacity does
    Routing(TracedOptions),
    /// What mirrors whose second disks sleep would save under a load, and how large their buffer must be
    Mirrors(TracedOptions),
    /// List the descriptions that ship with the program, or print one to start from
    Scenarios(scenarios::ScenarioArgs),
}

/// What every plan takes.
#[derive(Debug, Args)]
struct PlanOptions {
    /// The description: a .toml or .csv file
    #[arg(value_name = "FILE", required_unless_present = "scenario")]
    file: Option<PathBuf>,
    /// A description that ships with the program, as `tierstone plan scenarios` names them
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    scenario: Option<String>,
    /// Say how the figures were come to
    #[arg(long)]
    explain: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as files too, into a folder of the plan's name in DIR: a page (report.html), JSON,
    /// tables as CSV, plots as SVG and PNG
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What plans take that follow a load over time.
#[derive(Debug, Args)]
struct TracedOptions {
    #[command(flatten)]
    plan: PlanOptions,
    /// A trace in place of the description's own load. Routing: CSV with the head time_s,server,watts or
    /// time_s,server,utilisation. Mirrors: as the description's trace.kind says, msr (MSR Cambridge CSV) or blkparse,
    /// with lines = ""
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// The longest trace of servers that is read, in bytes: it is held in memory.
const TRACE_BYTES_MAX: usize = 512 << 20;

pub fn run(args: &PlanArgs) -> Result<()> {
    match &args.command {
        PlanCommand::Nodes(options) => options.run("nodes", nodes::plan),
        PlanCommand::Cells(options) => options.run("cells", cells::plan),
        PlanCommand::Power(options) => options.run("power", power::plan),
        PlanCommand::Routing(options) => options.run("routing", routing::plan, |description, trace| {
            let bytes = description::read_at_most(trace, TRACE_BYTES_MAX)?;
            let text = String::from_utf8(bytes).map_err(|_| no_text(trace))?;
            routing::plan_traced(description, &text)
        }),
        PlanCommand::Mirrors(options) => options.run("mirrors", mirrors::plan, |description, trace| {
            let file = std::fs::File::open(trace)
                .map_err(|error| Error::from(error).context(&format!("cannot read {}", trace.display())))?;
            mirrors::plan_traced(description, std::io::BufReader::new(file))
        }),
        PlanCommand::Scenarios(args) => scenarios::run(args),
    }
}

impl PlanOptions {
    /// Reads the description of the plan called `name`, and shows what `plan` makes of it.
    fn run(&self, name: &str, plan: impl FnOnce(&Description) -> Result<Report>) -> Result<()> {
        let report = plan(&self.description(name)?)?;
        let folder = self.out.as_ref().map(|out| output::write(&report, out)).transpose()?;
        if self.json {
            return print_json(&report);
        }
        print_line(text::text(&report, self.explain).trim_end())?;
        match folder {
            Some(folder) => {
                print_line(&format!("\npage, tables and plots: {}", folder.join("report.html").display()))
            }
            None => Ok(()),
        }
    }

    fn description(&self, plan: &str) -> Result<Description> {
        let Some(name) = &self.scenario else {
            return self.file.as_deref().map_or_else(|| Err(unknown(plan, "")), Description::read);
        };
        let found = scenario::find(name).filter(|scenario| scenario.plan == plan);
        found.map(scenario::Scenario::description).ok_or_else(|| unknown(plan, name))
    }
}

impl TracedOptions {
    /// As [`PlanOptions::run`]; with a trace what `traced` makes of both.
    fn run(
        &self,
        name: &str,
        plan: fn(&Description) -> Result<Report>,
        traced: fn(&Description, &Path) -> Result<Report>,
    ) -> Result<()> {
        self.plan.run(name, |description| match &self.trace {
            None => plan(description),
            Some(trace) => traced(description, trace),
        })
    }
}

fn no_text(file: &Path) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{} is no UTF-8 text", file.display()))
}

fn unknown(plan: &str, name: &str) -> Error {
    let known: Vec<&str> =
        scenario::all().filter(|scenario| scenario.plan == plan).map(|scenario| scenario.name).collect();
    let message = format!("the plan {plan} has no scenario '{name}'; it has {}", known.join(", "));
    Error::new(ErrorKind::InvalidInput, message)
}
