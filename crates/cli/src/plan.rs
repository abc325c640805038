//! `tierstone plan`: what hardware to buy and run, from a description.
//!
//! A plan is one variant of [`PlanCommand`], one line of [`run`], and one function from a description to a
//! report in `tierstone_plan`; its shipped descriptions are listed by `plan scenarios`.

mod scenarios;
mod text;

use crate::output::{print_json, print_line};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_plan::{Description, Report, output, scenario};

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

pub fn run(args: &PlanArgs) -> Result<()> {
    match &args.command {
        PlanCommand::Nodes(options) => options.run("nodes", tierstone_plan::nodes::plan),
        PlanCommand::Cells(options) => options.run("cells", tierstone_plan::cells::plan),
        PlanCommand::Scenarios(args) => scenarios::run(args),
    }
}

impl PlanOptions {
    /// Reads the description of the plan called `name`, and shows what `plan` makes of it.
    fn run(&self, name: &str, plan: fn(&Description) -> Result<Report>) -> Result<()> {
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

fn unknown(plan: &str, name: &str) -> Error {
    let known: Vec<&str> =
        scenario::all().filter(|scenario| scenario.plan == plan).map(|scenario| scenario.name).collect();
    let message = format!("the plan {plan} has no scenario '{name}'; it has {}", known.join(", "));
    Error::new(ErrorKind::InvalidInput, message)
}
