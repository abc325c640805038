//! Joules of the measured part of a benchmark: of the machine where meters cover it, else by the model.

use crate::energy::processors;
use crate::energy::report::{Measured, ModelledTotal, modelled};
use serde::Serialize;
use std::collections::BTreeMap;
use tierstone_base::{Clock, Result, SystemClock};
use tierstone_energy::total::choose;
use tierstone_energy::{MeterInfo, Places, Recorder, Sampler, SamplerSettings, Work, discover, presets};

/// What the measured part took.
#[derive(Debug, Serialize)]
pub struct EnergyCost {
    /// The machine, server and generator together; `None` without meters.
    pub measured: Option<Measured>,
    /// Joules an operation of that.
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
    /// Begins, without tools that would take processor time from what is measured.
    pub fn start() -> Result<Watching> {
        let meters = discover(&Places::machine(None)).meters;
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
    /// What `operations` took.
    pub fn new(operations: u64, measured: Option<Measured>, work: Option<&Work>) -> Result<EnergyCost> {
        let operations = operations.max(1) as f64;
        let model = presets::named(presets::NAMES[0])?;
        let modelled = work.map(|work| modelled(&model, work));
        let each = |joules: f64| joules / operations;
        Ok(EnergyCost {
            measured_joules_per_operation: measured.as_ref().map(|measured| each(measured.joules)),
            measured,
            modelled_active_joules_per_operation: modelled
                .as_ref()
                .map(|modelled| each(modelled.cpu_joules + modelled.device_joules)),
            modelled_joules_per_operation: modelled.as_ref().map(|modelled| each(modelled.joules)),
            modelled,
        })
    }
}
