//! `INFO energy`: joules since the start and a request, each line with its label in its name.
//!
//! What the process and the machine take together every shard tells alike; what a shard's devices and requests are
//! is added over the shards, and the quotients are worked out anew from the sums. Measured joules a request are mean
//! power over the time that the meters cover, for all the time in which requests came.

use crate::control::Control;
use std::fmt::Write;
use tierstone_energy::{Energy, Label, Standing, Work, mean_watts};

/// Lines that are added over the shards.
pub(crate) const ADDED: [&str; 2] = ["energy_modelled_device_uj", "energy_requests"];

/// Lines that are quotients of others: their name without the colon, and which joules they divide.
const QUOTIENTS: [(&str, Part); 3] = [
    ("energy_modelled_active_uj_per_request", |sums| Some(sums.cpu + sums.device)),
    ("energy_modelled_uj_per_request", |sums| Some(sums.idle + sums.cpu + sums.device)),
    ("energy_measured_uj_per_request", |sums| Some(sums.mean_uw? * sums.uptime_us / 1_000_000)),
];

type Part = fn(&Sums) -> Option<i128>;

/// The numbers that quotients are made of, in microjoules where nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Mean power of the meters over what they cover, in microwatts; `None` while that is too little.
    mean_uw: Option<i128>,
    uptime_us: i128,
    idle: i128,
    cpu: i128,
    device: i128,
    requests: i128,
}

impl Sums {
    /// Takes a line's number, if it is one of these; `name` ends with its colon.
    pub(crate) fn note(&mut self, name: &str, number: i128) {
        match name {
            "energy_measured_mean_uw:" => self.mean_uw = Some(number),
            "energy_uptime_us:" => self.uptime_us = number,
            "energy_modelled_idle_uj:" => self.idle = number,
            "energy_modelled_cpu_uj:" => self.cpu = number,
            "energy_modelled_device_uj:" => self.device = number,
            "energy_requests:" => self.requests = number,
            _ => {}
        }
    }

    /// A line of `INFO` anew, if it is a quotient.
    pub(crate) fn quotient(&self, line: &str) -> Option<String> {
        let (name, _) = line.split_once(':')?;
        let (name, part) = QUOTIENTS.iter().find(|(of, _)| *of == name)?;
        let uj = part(self)?;
        Some(format!("{name}:{:.3}", uj as f64 / self.requests.max(1) as f64))
    }
}

pub(crate) fn section(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let facts = &control.host.facts;
    let Some(watch) = &facts.energy else {
        return write!(out, "energy_label:none\r\n");
    };
    let process = facts.process.map(|ask| ask()).unwrap_or_default();
    let device = &control.engine.statistics.device;
    let uptime_us = control.now.monotonic_us.saturating_sub(facts.started.monotonic_us);
    let joules = watch.modelled(&Work {
        seconds: uptime_us as f64 / 1e6,
        cpu_seconds: (process.user_us + process.system_us) as f64 / 1e6,
        reads: device.reads,
        writes: device.writes,
        flushes: device.flushes,
        bytes_read: device.bytes_read,
        bytes_written: device.bytes_written,
        ..Work::default()
    });
    let measured = watch.measured();
    // A tool that never answered has measured nothing.
    let has_answered = measured.iter().any(|(_, standing)| standing.samples > 0);
    let label = if has_answered { Label::Measured } else { Label::Modelled };
    write!(out, "energy_label:{label}\r\nenergy_covers:{}\r\n", watch.covers())?;
    let sums = Sums {
        mean_uw: mean_watts(measured.iter().map(|(_, standing)| standing), uptime_us)
            .map(|watts| (watts * 1e6) as i128),
        uptime_us: i128::from(uptime_us),
        idle: (joules.idle * 1e6) as i128,
        cpu: (joules.cpu * 1e6) as i128,
        device: (joules.device() * 1e6) as i128,
        requests: i128::from(control.host.counters.since_start()),
    };
    if has_answered {
        let total: Energy = measured.iter().map(|(_, standing)| standing.energy).sum();
        write!(out, "energy_measured_uj:{}\r\n", total.microjoules())?;
    }
    if let Some(uw) = sums.mean_uw {
        write!(out, "energy_measured_mean_uw:{uw}\r\n")?;
    }
    write!(out, "energy_uptime_us:{uptime_us}\r\n")?;
    for (place, (name, standing)) in measured.iter().enumerate() {
        let Standing { energy, covered_us, samples, faults } = standing;
        write!(
            out,
            "energy_meter{place}:label=measured,uj={},covered_us={covered_us},answers={samples},faults={faults},\
             name={name}\r\n",
            energy.microjoules()
        )?;
    }
    write!(
        out,
        "energy_model:{}\r\nenergy_modelled_idle_uj:{}\r\nenergy_modelled_cpu_uj:{}\r\n\
         energy_modelled_device_uj:{}\r\nenergy_requests:{}\r\n",
        watch.model_name(),
        sums.idle,
        sums.cpu,
        sums.device,
        sums.requests
    )?;
    for (name, _) in QUOTIENTS {
        if let Some(line) = sums.quotient(&format!("{name}:")) {
            write!(out, "{line}\r\n")?;
        }
    }
    Ok(())
}
