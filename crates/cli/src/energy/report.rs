//! What a recording tells, as text and as JSON; every joule with its label.

use crate::output::table;
use serde::Serialize;
use tierstone_base::units::format_size;
use tierstone_energy::cpufreq::PolicyTimes;
use tierstone_energy::total::Chosen;
use tierstone_energy::{Absent, Covers, EnergyModel, Gap, Label, LaneReport, MeterKind, Work};

/// A command, and what it took.
#[derive(Debug, Serialize)]
pub struct Recorded {
    pub command: Vec<String>,
    pub exit_code: u8,
    pub seconds: f64,
    pub processors: usize,
    pub cpu_seconds: f64,
    pub device_bytes_read: Option<u64>,
    pub device_bytes_written: Option<u64>,
    /// Clocks of processors while it ran, where the kernel keeps them.
    pub clocks: Vec<PolicyTimes>,
    pub meters: Vec<ReportedMeter>,
    /// `None` where no meter covers anything known.
    pub total: Option<Measured>,
    pub modelled: ModelledTotal,
    pub absent: Vec<Absent>,
}

/// One meter while the command ran.
#[derive(Debug, Serialize)]
pub struct ReportedMeter {
    pub name: String,
    pub kind: MeterKind,
    pub covers: Covers,
    pub label: Label,
    /// Over the time that it covers.
    pub joules: f64,
    pub watts: f64,
    /// The rest of the run is gaps.
    pub covered_seconds: f64,
    pub gap_seconds: f64,
    pub idle_watts: Option<f64>,
    /// Joules less the idle machine's for the same time; below zero where the baseline was not idle.
    pub joules_above_idle: Option<f64>,
    /// Most that steps of the meter make of an error in these joules.
    pub quantisation_joules: f64,
    pub samples: u64,
    pub faults: u64,
    pub first_fault: Option<String>,
    pub wraps: u64,
    pub gaps: Vec<Gap>,
    pub interval_seconds: f64,
    /// The part of all time that went into reading it.
    pub overhead: f64,
}

/// Several meters together.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub label: Label,
    pub joules: f64,
    pub watts: f64,
    pub joules_above_idle: Option<f64>,
    /// Names of the meters.
    pub meters: Vec<String>,
    pub covers: String,
    /// Of the meter that covers least of the run.
    pub covered_seconds: f64,
    /// How long the run took, gaps included.
    pub seconds: f64,
}

/// What the model makes of it.
#[derive(Debug, Serialize)]
pub struct ModelledTotal {
    pub label: Label,
    pub model: String,
    pub joules: f64,
    pub watts: f64,
    pub idle_joules: f64,
    pub cpu_joules: f64,
    pub device_joules: f64,
}

/// The model's joules of `work`.
pub fn modelled(model: &EnergyModel, work: &Work) -> ModelledTotal {
    let joules = model.joules(work);
    ModelledTotal {
        label: Label::Modelled,
        model: model.name.clone(),
        joules: joules.total(),
        watts: if work.seconds > 0.0 { joules.total() / work.seconds } else { 0.0 },
        idle_joules: joules.idle,
        cpu_joules: joules.cpu,
        device_joules: joules.device(),
    }
}

impl ReportedMeter {
    /// A meter's account of state `state`; state 0 is the baseline of a later one.
    pub fn new(lane: &LaneReport, state: usize) -> ReportedMeter {
        let run = lane.states.get(state).copied().unwrap_or_default();
        let baseline = (state > 0).then(|| lane.states.first().copied().unwrap_or_default());
        let idle_watts =
            baseline.filter(|idle| idle.covered_us > 0).map(|idle| idle.energy.watts_over(idle.covered_us));
        let covered_seconds = run.covered_us as f64 / 1e6;
        let all_us = (lane.total.covered_us + lane.total.gap_us).max(1);
        ReportedMeter {
            name: lane.meter.name.clone(),
            kind: lane.meter.kind,
            covers: lane.meter.covers,
            label: Label::Measured,
            joules: run.energy.joules(),
            watts: run.energy.watts_over(run.covered_us),
            covered_seconds,
            gap_seconds: run.gap_us as f64 / 1e6,
            idle_watts,
            joules_above_idle: idle_watts.map(|watts| run.energy.joules() - watts * covered_seconds),
            quantisation_joules: lane.quantisation_joules_of(state),
            samples: lane.samples,
            faults: lane.faults,
            first_fault: lane.first_fault.clone(),
            wraps: lane.wraps,
            gaps: lane.gaps.clone(),
            interval_seconds: lane.interval_us as f64 / 1e6,
            overhead: lane.spent_us as f64 / all_us as f64,
        }
    }
}

impl Measured {
    /// The chosen meters' joules in state `state`; `None` without any that covered some time.
    pub fn of(lanes: &[LaneReport], chosen: &Chosen, state: usize) -> Option<Measured> {
        let meters: Vec<ReportedMeter> =
            chosen.lanes.iter().map(|&lane| ReportedMeter::new(&lanes[lane], state)).collect();
        let covered_seconds = meters.iter().map(|meter| meter.covered_seconds).reduce(f64::min)?;
        if covered_seconds <= 0.0 {
            return None;
        }
        let seconds =
            meters.iter().map(|meter| meter.covered_seconds + meter.gap_seconds).fold(0.0, f64::max);
        let above: Option<Vec<f64>> = meters.iter().map(|meter| meter.joules_above_idle).collect();
        Some(Measured {
            label: Label::Measured,
            joules: meters.iter().map(|meter| meter.joules).sum(),
            watts: meters.iter().map(|meter| meter.watts).sum(),
            joules_above_idle: above.map(|above| above.iter().sum()),
            meters: meters.into_iter().map(|meter| meter.name).collect(),
            covers: chosen.covers.clone(),
            covered_seconds,
            seconds,
        })
    }

    /// Joules of the whole run where gaps drew what the meters saw on average beside them; without gaps those that
    /// were measured.
    pub fn joules_of_run(&self) -> f64 {
        self.watts * self.seconds
    }

    /// For how much of the run the joules hold, where that is noticeably less than all of it.
    pub fn coverage(&self) -> Option<String> {
        // The moments until the first answer and behind the last are no trouble.
        let is_partial = self.covered_seconds < self.seconds * 0.99;
        is_partial.then(|| format!("{:.2} of {:.2}", self.covered_seconds, self.seconds))
    }
}

/// Joules and watts with four digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        10.0.. => format!("{value:.2}"),
        0.1.. => format!("{value:.3}"),
        _ => format!("{value:.3e}"),
    }
}

impl Recorded {
    pub fn text(&self) -> String {
        let mut text = format!("energy of: {}\n", self.command.join(" "));
        let bytes = |bytes: Option<u64>| bytes.map_or("not told".to_owned(), format_size);
        text += &format!(
            "{:.3} s, exit code {}, processor time {:.2} s on {} processors, device bytes read {}, written {}\n\n",
            self.seconds,
            self.exit_code,
            self.cpu_seconds,
            self.processors,
            bytes(self.device_bytes_read),
            bytes(self.device_bytes_written)
        );
        text += &table(&self.rows());
        for meter in &self.meters {
            text += &troubles(meter);
        }
        for clock in &self.clocks {
            text += &format!(
                "{}: effective clock {:.0} MHz over {:.2} s\n",
                clock.policy,
                clock.effective_khz / 1e3,
                clock.total_us as f64 / 1e6
            );
        }
        match &self.total {
            None => {
                text += "no meter gave a total: see tierstone energy meters; the joules above are modelled"
            }
            Some(total) => text += &format!("the measured total covers {}", total.covers),
        }
        text
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let head = ["what", "label", "joules", "watts", "above idle, J", "covered, s", "step error, J"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let above = |joules: Option<f64>| joules.map_or("-".to_owned(), digits);
        for meter in &self.meters {
            rows.push(vec![
                meter.name.clone(),
                meter.label.to_string(),
                digits(meter.joules),
                digits(meter.watts),
                above(meter.joules_above_idle),
                format!("{:.3}", meter.covered_seconds),
                digits(meter.quantisation_joules),
            ]);
        }
        if let Some(total) = &self.total {
            rows.push(vec![
                "total".into(),
                total.label.to_string(),
                digits(total.joules),
                digits(total.watts),
                above(total.joules_above_idle),
                format!("{:.3}", total.covered_seconds),
                "-".into(),
            ]);
        }
        let model = &self.modelled;
        let mut modelled = |what: String, joules: f64| {
            let watts = if self.seconds > 0.0 { joules / self.seconds } else { 0.0 };
            let mut row = vec![what, model.label.to_string(), digits(joules), digits(watts)];
            row.extend(["-".to_owned(), format!("{:.3}", self.seconds), "-".to_owned()]);
            rows.push(row);
        };
        modelled("idle machine".into(), model.idle_joules);
        modelled("processor time".into(), model.cpu_joules);
        modelled("device bytes".into(), model.device_joules);
        modelled(format!("total by model {}", model.model), model.joules);
        rows
    }
}

/// What a reader has to know of a meter's troubles.
fn troubles(meter: &ReportedMeter) -> String {
    let mut text = String::new();
    let (gap, all) = (meter.gap_seconds, meter.gap_seconds + meter.covered_seconds);
    // The moment until the first answer is no trouble.
    if gap > all * 0.001 {
        let longest = meter.gaps.iter().max_by_key(|gap| gap.to_us.saturating_sub(gap.from_us));
        let why = longest.map_or("", |gap| gap.why.as_str());
        text += &format!("{}: {gap:.3} s of {all:.3} s are not covered ({why})\n", meter.name);
    }
    if let Some(fault) = &meter.first_fault {
        text += &format!("{}: {} times no answer, first: {fault}\n", meter.name, meter.faults);
    }
    text
}
