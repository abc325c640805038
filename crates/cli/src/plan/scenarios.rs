//! `tierstone plan scenarios`: the descriptions that ship with the program.

use crate::output::{print_json, print_line, table};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_plan::scenario;

#[derive(Debug, Args)]
pub struct ScenarioArgs {
    /// Print the file of this scenario, to start from: `tierstone plan scenarios --print NAME > mine.toml` (or .csv)
    #[arg(long, value_name = "NAME")]
    print: Option<String>,
    /// Print the list as JSON
    #[arg(long, conflicts_with = "print")]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Listed {
    plan: &'static str,
    name: &'static str,
    form: &'static str,
    about: &'static str,
}

pub fn run(args: &ScenarioArgs) -> Result<()> {
    if let Some(name) = &args.print {
        let Some(found) = scenario::find(name) else {
            let message = format!("there is no scenario '{name}'; `tierstone plan scenarios` names them");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        return match std::io::stdout().write_all(found.text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        };
    }
    let listed = scenario::all().map(|of| Listed {
        plan: of.plan,
        name: of.name,
        form: of.form.ending(),
        about: of.about,
    });
    if args.json {
        return print_json(&listed.collect::<Vec<Listed>>());
    }
    let mut rows = vec![["plan", "scenario", "form", "what"].map(str::to_owned).to_vec()];
    rows.extend(listed.map(|of| [of.plan, of.name, of.form, of.about].map(str::to_owned).to_vec()));
    print_line(table(&rows).trim_end())
}
