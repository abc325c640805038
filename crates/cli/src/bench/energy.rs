//! Joules of the measured part of a benchmark: of the machine where meters cover it, else by the model.

use crate::energy::report::{Measured, ModelledTotal, modelled};
use crate::energy::{load_model, parse_meter_timeout, processors};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use tierstone_base::{Clock, Result, SystemClock};
use tierstone_energy::total::choose;
use tierstone_energy::{
    EnergyModel, MeterInfo, Places, Recorder, Sampler, SamplerSettings, Work, discover, presets,
};

/// What joules of a benchmark are made of.
#[derive(Debug, Args)]
pub struct EnergyOptions {
    /// The model of joules for what no meter covers: cloud, desktop-2009, atom-2009 or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = presets::NAMES[0])]
    energy_model: String,
    /// A shell command that prints watts or joules with their unit (12.5 W, 1034 J): a meter of the whole machine
    #[arg(long, value_name = "COMMAND")]
    meter_command: Option<String>,
    /// The meter's command is killed after this; it runs at most five times in it
    #[arg(long, value_name = "TIME", default_value = "5s")]
    meter_timeout: String,
    /// Ask the machine's tools too (nvidia-smi, ipmitool): they take processor time from what is measured
    #[arg(long)]
    meter_tools: bool,
}

/// The same, read and checked.
#[derive(Debug)]
pub struct Accounting {
    pub model: EnergyModel,
    places: Places,
}

impl EnergyOptions {
    /// Before anything is started, so that a wrong option costs nothing.
    pub fn accounting(&self) -> Result<Accounting> {
        let programs = if self.meter_tools { std::env::var_os("PATH") } else { None };
        let places = Places {
            command: self.meter_command.clone(),
            command_timeout_us: parse_meter_timeout(&self.meter_timeout)?,
            ..Places::machine(programs)
        };
        Ok(Accounting { model: load_model(&self.energy_model)?, places })
    }
}

/// What the measured part took.
#[derive(Debug, Serialize)]
pub struct EnergyCost {
    /// The machine, server and generator together; `None` without meters.
    pub measured: Option<Measured>,
    /// Joules an operation of that: mean power over the time that the meters cover, for all of the part.
    pub measured_joules_per_operation: Option<f64>,
    /// The server; `None` where its counters are not known.
    pub modelled: Option<ModelledTotal>,
    /// Joules an operation above the idle machine.
    pub modelled_active_joules_per_operation: Option<f64>,
    /// Joules an operation, the idle machine for the whole time included.
    pub modelled_joules_per_operation: Option<f64>,
}

/// The machine's meters while a part runs.
#[derive(Debug)]
pub struct Watching(Option<Recorder>);

impl Watching {
    /// Begins.
    pub fn start(accounting: &Accounting) -> Result<Watching> {
        let meters = discover(&accounting.places).meters;
        if meters.is_empty() {
            return Ok(Watching(None));
        }
        let clock = SystemClock::new();
        let sampler = Sampler::new(meters, SamplerSettings::default(), clock.now().monotonic_us);
        Recorder::start(sampler, Box::new(clock), false).map(|recorder| Watching(Some(recorder)))
    }

    /// Ends; `None` without meters of which it is known what they cover.
    pub fn end(self) -> Result<Option<Measured>> {
        let Some(recorder) = self.0 else { return Ok(None) };
        let infos: Vec<MeterInfo> = recorder.meters().to_vec();
        let chosen = choose(&infos, &[])?;
        Ok(Measured::of(&recorder.finish()?.lanes, &chosen, 0))
    }
}

/// What a server did between two looks at its numbers.
pub fn work(
    seconds: f64,
    cpu_us: Option<(u64, u64)>,
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> Option<Work> {
    let (from, to) = cpu_us?;
    let passed = |name: &str| {
        let number = |numbers: &BTreeMap<String, u64>| numbers.get(name).copied().unwrap_or(0);
        number(after).saturating_sub(number(before))
    };
    Some(Work {
        seconds,
        processors: processors() as f64,
        cpu_seconds: to.saturating_sub(from) as f64 / 1e6,
        reads: passed("tierstone_device_reads_total"),
        writes: passed("tierstone_device_writes_total"),
        flushes: passed("tierstone_device_flushes_total"),
        bytes_read: passed("tierstone_device_read_bytes_total"),
        bytes_written: passed("tierstone_device_written_bytes_total"),
    })
}

impl EnergyCost {
    /// What `operations` took, by `model` where no meter covers it.
    pub fn new(
        operations: u64,
        measured: Option<Measured>,
        (model, work): (&EnergyModel, Option<&Work>),
    ) -> EnergyCost {
        let operations = operations.max(1) as f64;
        let modelled = work.map(|work| modelled(model, work));
        let each = |joules: f64| joules / operations;
        EnergyCost {
            measured_joules_per_operation: measured.as_ref().map(|measured| each(measured.joules_of_run())),
            measured,
            modelled_active_joules_per_operation: modelled
                .as_ref()
                .map(|modelled| each(modelled.cpu_joules + modelled.device_joules)),
            modelled_joules_per_operation: modelled.as_ref().map(|modelled| each(modelled.joules)),
            modelled,
        }
    }
}
