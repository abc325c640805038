//! The node's joules: which meters it reads, and what its metrics say of them.

use super::metrics::ShardSnapshot;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Result, SystemClock};
use tierstone_energy::{EnergyModel, Places, Standing, Watch, Work, mean_watts, presets};
use tierstone_redis::ProcessNumbers;

/// What joules are made of.
#[derive(Clone, Debug)]
pub struct EnergySettings {
    /// The folder below which the kernel's meters lie; `None`: no meter is read.
    pub meters: Option<PathBuf>,
    /// Folders of programs, as in `PATH`, in which the tools of meters are looked for (`nvidia-smi`, `ipmitool`); `None`: no
    /// tool is run.
    pub programs: Option<OsString>,
    /// A command of the user's that prints watts or joules of the whole machine, for `sh -c`.
    pub command: Option<String>,
    /// The model for what no meter covers; `None`: the first that ships.
    pub model: Option<EnergyModel>,
}

impl Default for EnergySettings {
    fn default() -> Self {
        EnergySettings { meters: Some("/".into()), programs: None, command: None, model: None }
    }
}

/// Starts to read the meters, if there are any. Tools are processes of their own, which the thread of the meters polls.
pub(super) fn watch(settings: &EnergySettings) -> Result<Arc<Watch>> {
    let model = match &settings.model {
        Some(model) => model.clone(),
        None => presets::named(presets::NAMES[0])?,
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(Arc::new(match &settings.meters {
        None if settings.programs.is_some() || settings.command.is_some() => {
            let message = "energy-tools and energy-command need energy-meters, which is none";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        None => Watch::without_meters(model, processors),
        Some(root) => {
            let places = Places {
                root: root.clone(),
                command: settings.command.clone(),
                ..Places::machine(settings.programs.clone())
            };
            Watch::start(&places, model, processors, Box::new(SystemClock::new()))?
        }
    }))
}

/// What metrics say of joules `seconds` after the start.
pub(super) fn metrics<'s>(
    text: &mut String,
    watch: &Watch,
    process: ProcessNumbers,
    seconds: f64,
    shards: impl Iterator<Item = &'s ShardSnapshot>,
) {
    let mut work =
        Work { seconds, cpu_seconds: (process.user_us + process.system_us) as f64 / 1e6, ..Work::default() };
    let mut requests = 0;
    for shard in shards {
        let device = &shard.engine.device;
        work.reads += device.reads;
        work.writes += device.writes;
        work.flushes += device.flushes;
        work.bytes_read += device.bytes_read;
        work.bytes_written += device.bytes_written;
        requests += shard.requests;
    }
    let joules = watch.modelled(&work);
    let measured = watch.measured();
    let (total, each) = ("tierstone_energy_joules_total", "tierstone_energy_joules_per_request");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "# HELP {total} Energy since the start: measured by the machine's meters, or modelled from counters.\n\
         # TYPE {total} counter"
    );
    for (part, joules) in [("idle", joules.idle), ("cpu", joules.cpu), ("device", joules.device())] {
        let model = watch.model_name();
        let _ = writeln!(text, "{total}{{label=\"modelled\",model=\"{model}\",part=\"{part}\"}} {joules}");
    }
    for (name, standing) in &measured {
        let joules = standing.energy.joules();
        let _ = writeln!(text, "{total}{{label=\"measured\",meter=\"{name}\"}} {joules}");
    }
    meters(text, &measured);
    if requests == 0 {
        return;
    }
    let _ = writeln!(
        text,
        "# HELP {each} Joules over requests since the start; active leaves the idle machine out; measured: mean power \
         over the time that the meters cover, for all the time.\n\
         # TYPE {each} gauge"
    );
    for (part, joules) in [("active", joules.active()), ("all", joules.total())] {
        let joules = joules / requests as f64;
        let _ = writeln!(text, "{each}{{label=\"modelled\",part=\"{part}\"}} {joules}");
    }
    let meters = measured.iter().map(|(_, standing)| standing);
    if let Some(watts) = mean_watts(meters, (seconds * 1e6) as u64) {
        let joules = watts * seconds / requests as f64;
        let _ = writeln!(text, "{each}{{label=\"measured\",part=\"all\"}} {joules}");
    }
}

/// For how much of the time the meters' joules hold, and how often they did not answer.
fn meters(text: &mut String, measured: &[(&str, Standing)]) {
    if measured.is_empty() {
        return;
    }
    let (covered, faults) = ("tierstone_energy_meter_covered_seconds", "tierstone_energy_meter_faults_total");
    let _ = writeln!(text, "# HELP {covered} Time that the meter's joules cover.\n# TYPE {covered} counter");
    for (name, standing) in measured {
        let _ = writeln!(text, "{covered}{{meter=\"{name}\"}} {}", standing.covered_us as f64 / 1e6);
    }
    let _ = writeln!(
        text,
        "# HELP {faults} Times that the meter did not answer, or not sensibly.\n# TYPE {faults} counter"
    );
    for (name, standing) in measured {
        let _ = writeln!(text, "{faults}{{meter=\"{name}\"}} {}", standing.faults);
    }
}

#[cfg(test)]
#[path = "energy_test.rs"]
mod energy_test;
