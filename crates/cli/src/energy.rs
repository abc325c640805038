//! `tierstone energy`: which meters there are, what a command takes, what memory and devices take under load.
//!
//! Every joule that is printed is labelled measured or modelled; time that no meter covers is told.

pub(crate) mod child;
mod load;
mod meters;
mod model;
mod profile;
mod record;
pub(crate) mod report;

use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use tierstone_base::units::parse_duration_us;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_energy::model::Description;
use tierstone_energy::{EnergyModel, Found, Places, discover, presets};

#[derive(Debug, Args)]
pub struct EnergyArgs {
    #[command(subcommand)]
    command: EnergyCommand,
}

#[derive(Debug, Subcommand)]
enum EnergyCommand {
    /// List the meters of this machine, and for each way to measure that is missing why
    Meters(meters::MetersArgs),
    /// Run a command and tell its joules on standard error; ends with the command's exit code
    Record(Box<record::RecordArgs>),
    /// Measure bandwidth and power of memory, storage and the loopback link over steps of load
    Profile(Box<profile::ProfileArgs>),
    /// Show the constants of a model, with their sources
    Model(model::ModelArgs),
}

/// Where meters are looked for.
#[derive(Debug, Args)]
pub struct MeterArgs {
    /// A shell command that prints watts or joules with their unit (12.5 W, 1034 J): a meter of the whole machine
    #[arg(long, value_name = "COMMAND")]
    meter_command: Option<String>,
    /// The meter's command is killed after this; it runs at most five times in it
    #[arg(long, value_name = "TIME", default_value = "5s")]
    meter_timeout: String,
    /// The folder below which sys, proc and dev lie
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl MeterArgs {
    fn find(&self) -> Result<Found> {
        let command_timeout_us = parse_meter_timeout(&self.meter_timeout)?;
        Ok(discover(&Places {
            root: self.root.clone(),
            programs: std::env::var_os("PATH"),
            command: self.meter_command.clone(),
            command_timeout_us,
        }))
    }
}

/// After how many microseconds a meter's command is killed.
pub fn parse_meter_timeout(text: &str) -> Result<u64> {
    match parse_duration_us(text)? {
        0 => Err(Error::new(ErrorKind::InvalidInput, "a meter's command needs more than no time")),
        timeout_us => Ok(timeout_us),
    }
}

/// Runs the subcommand; the exit code is that of a recorded command.
pub fn run(args: EnergyArgs) -> Result<ExitCode> {
    match args.command {
        EnergyCommand::Meters(args) => meters::run(&args).map(|()| ExitCode::SUCCESS),
        EnergyCommand::Profile(args) => profile::run(&args).map(|()| ExitCode::SUCCESS),
        EnergyCommand::Record(args) => record::run(&args),
        EnergyCommand::Model(args) => model::run(&args).map(|()| ExitCode::SUCCESS),
    }
}

/// The model of that name, or of a TOML file.
pub fn load_model(name: &str) -> Result<EnergyModel> {
    let is_file = name.contains(['/', '.']);
    if !is_file {
        return presets::named(name).map_err(|error| {
            Error::new(error.kind(), format!("{}; or a file with a '/' or '.' in its name", error.message()))
        });
    }
    let text = std::fs::read_to_string(name).map_err(|error| Error::from(error).context(name))?;
    let description: Description = toml::from_str(&text).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, format!("{name}: {}", error.to_string().trim()))
    })?;
    description.model().map_err(|error| error.context(name))
}

/// Processors of the machine that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
