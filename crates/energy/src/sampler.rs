//! Asks meters when they are due: a state machine of which a driver makes a loop.
//!
//! Each meter has a lane with its own interval: what was asked for, but not more often than its answers change, and
//! so seldom that the time spent in reading it stays below [`SamplerSettings::overhead_ppm`] of all time (of commands,
//! which work in another process: [`SamplerSettings::command_overhead_ppm`] of it). A lane whose meter fails goes on
//! being asked, at most [`FAULT_INTERVAL_US`] apart.

use crate::amount::Energy;
use crate::integrator::{Gap, Integrator, IntegratorSettings, StateAccount};
use crate::meter::{Covers, Meter, MeterInfo, MeterKind, Reading};
use serde::Serialize;
use tierstone_base::Clock;

/// A command that is under way is looked at so often, in microseconds.
const PENDING_POLL_US: u64 = 5_000;
/// A meter that fails is asked again after this at the latest, in microseconds.
pub const FAULT_INTERVAL_US: u64 = 10_000_000;

/// How meters are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerSettings {
    /// Microseconds between two answers of a meter, where it and the bound on overhead allow.
    pub interval_us: u64,
    /// The part of time that reading one meter may take, in millionths.
    pub overhead_ppm: u64,
    /// The part of time in which a meter's command may run, in millionths.
    pub command_overhead_ppm: u64,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        SamplerSettings { interval_us: 100_000, overhead_ppm: 2_000, command_overhead_ppm: 100_000 }
    }
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Which meter.
    pub lane: usize,
    /// When, in microseconds of the driver's clock.
    pub at_us: u64,
    /// What it said.
    pub reading: Reading,
}

struct Lane {
    meter: Box<dyn Meter>,
    integrator: Integrator,
    interval_us: u64,
    due_us: u64,
    /// When the answer under way was asked for.
    asked_us: Option<u64>,
    samples: u64,
    faults: u64,
    fault: Option<String>,
    spent_us: u64,
    smallest_step: Option<u64>,
    last: Option<Reading>,
}

/// Asks meters and sums up what they say.
pub struct Sampler {
    lanes: Vec<Lane>,
    settings: SamplerSettings,
    start_us: u64,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.lanes.iter().map(|lane| lane.meter.info().name.as_str()).collect();
        formatter.debug_struct("Sampler").field("lanes", &names).finish_non_exhaustive()
    }
}

/// How a meter stands so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Over the time that it covers.
    pub energy: Energy,
    /// How long that is, in microseconds.
    pub covered_us: u64,
    /// Answers.
    pub samples: u64,
    /// Times that it did not answer sensibly.
    pub faults: u64,
}

/// What came of one meter.
#[derive(Clone, Debug, Serialize)]
pub struct LaneReport {
    /// The meter.
    pub meter: MeterInfo,
    /// Everything.
    pub total: StateAccount,
    /// By state, in the order of their numbers.
    pub states: Vec<StateAccount>,
    /// Answers.
    pub samples: u64,
    /// Times that it did not answer sensibly.
    pub faults: u64,
    /// The first time's reason.
    pub first_fault: Option<String>,
    /// Time without energy.
    pub gaps: Vec<Gap>,
    /// How often the counter wrapped.
    pub wraps: u64,
    /// The least power that it gave, in watts; counters give none.
    pub watts_min: Option<f64>,
    /// The most.
    pub watts_max: Option<f64>,
    /// The interval at the end, in microseconds.
    pub interval_us: u64,
    /// Time spent in reading it, in microseconds; commands run outside.
    pub spent_us: u64,
    /// Most that the energy of all states together can be wrong by the steps of the answers, in joules; other errors
    /// come on top. Of one state: [`LaneReport::quantisation_joules_of`].
    pub quantisation_joules: f64,
    /// The smallest step between two answers that was seen; `None` where no two differed.
    pub smallest_step_seen: Option<u64>,
}

impl LaneReport {
    /// Most that the energy of state `state` can be wrong by the steps of the answers, in joules.
    pub fn quantisation_joules_of(&self, state: usize) -> f64 {
        let account = self.states.get(state).copied().unwrap_or_default();
        quantisation_joules(&self.meter, self.watts_min.is_some(), &account)
    }
}

impl Sampler {
    /// A sampler of `meters`; the time of its clock is `start_us`.
    pub fn new(meters: Vec<Box<dyn Meter>>, settings: SamplerSettings, start_us: u64) -> Sampler {
        let lane = |meter: Box<dyn Meter>| {
            let interval_us = settings.interval_us.max(meter.info().refresh_us).max(1);
            Lane {
                integrator: Integrator::new(IntegratorSettings::of(meter.info(), interval_us), start_us),
                interval_us,
                due_us: start_us,
                asked_us: None,
                samples: 0,
                faults: 0,
                fault: None,
                spent_us: 0,
                smallest_step: None,
                last: None,
                meter,
            }
        };
        Sampler { lanes: meters.into_iter().map(lane).collect(), settings, start_us }
    }

    /// What is known of the meters, by lane.
    pub fn meters(&self) -> impl Iterator<Item = &MeterInfo> {
        self.lanes.iter().map(|lane| lane.meter.info())
    }

    /// Asks the meters that are due, hands each answer to `sink`, and gives the time at which to come again.
    /// `u64::MAX` without meters. Cost: what the due meters cost, see [`Meter::read`].
    pub fn step(&mut self, clock: &dyn Clock, sink: &mut dyn FnMut(Sample)) -> u64 {
        let settings = self.settings;
        let mut next_us = u64::MAX;
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if clock.now().monotonic_us >= lane.due_us {
                lane.ask(number, clock, &settings, sink);
            }
            next_us = next_us.min(lane.due_us);
        }
        next_us
    }

    /// From now on it is state `state`. Meters that answer at once are asked, so that the border is sharp.
    pub fn enter(&mut self, clock: &dyn Clock, state: usize, sink: &mut dyn FnMut(Sample)) {
        self.ask_quick(clock, sink);
        let now_us = clock.now().monotonic_us;
        for lane in &mut self.lanes {
            lane.integrator.enter(now_us, state);
        }
    }

    /// Asks all meters that answer at once, due or not.
    fn ask_quick(&mut self, clock: &dyn Clock, sink: &mut dyn FnMut(Sample)) {
        let settings = self.settings;
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if !lane.is_command() {
                lane.ask(number, clock, &settings, sink);
            }
        }
    }

    /// Ends: asks once more what answers at once, closes the accounts at that time and gives it.
    pub fn finish(&mut self, clock: &dyn Clock, sink: &mut dyn FnMut(Sample)) -> u64 {
        self.ask_quick(clock, sink);
        let end_us = clock.now().monotonic_us;
        for lane in &mut self.lanes {
            if let Some(asked_us) = lane.asked_us {
                lane.integrator.fault(&format!(
                    "the command was under way for {:.1} s at the end",
                    end_us.saturating_sub(asked_us) as f64 / 1e6
                ));
            }
            lane.integrator.finish(end_us);
        }
        end_us
    }

    /// When it began, in microseconds of the clock.
    pub fn start_us(&self) -> u64 {
        self.start_us
    }

    /// What has come so far, by lane.
    pub fn reports(&self) -> Vec<LaneReport> {
        self.lanes.iter().map(Lane::report).collect()
    }

    /// How each meter stands, by lane. Cost: no allocation but the list.
    pub fn standings(&self) -> Vec<Standing> {
        let standing = |lane: &Lane| {
            let total = lane.integrator.total();
            Standing {
                energy: total.energy,
                covered_us: total.covered_us,
                samples: lane.samples,
                faults: lane.faults,
            }
        };
        self.lanes.iter().map(standing).collect()
    }
}

impl Lane {
    fn is_command(&self) -> bool {
        matches!(self.meter.info().kind, MeterKind::Nvidia | MeterKind::Ipmi | MeterKind::Command)
    }

    fn ask(
        &mut self,
        number: usize,
        clock: &dyn Clock,
        settings: &SamplerSettings,
        sink: &mut dyn FnMut(Sample),
    ) {
        let before_us = clock.now().monotonic_us;
        let answer = self.meter.read(before_us);
        let after_us = clock.now().monotonic_us;
        let spent_us = after_us.saturating_sub(before_us);
        self.spent_us += spent_us;
        let ready = match answer {
            Ok(None) => {
                self.asked_us.get_or_insert(before_us);
                self.due_us = after_us + PENDING_POLL_US;
                return;
            }
            Ok(Some(reading)) => {
                // The kernel reads the sensor somewhere in between.
                let at_us = before_us + spent_us / 2;
                self.samples += 1;
                self.note_step(reading);
                self.integrator.take(at_us, reading);
                sink(Sample { lane: number, at_us, reading });
                true
            }
            Err(fault) => {
                self.faults += 1;
                self.integrator.fault(&fault.why);
                self.fault.get_or_insert(fault.why);
                false
            }
        };
        let ran_us = self.asked_us.take().map_or(0, |asked_us| after_us.saturating_sub(asked_us));
        let floor_us = self.meter.info().refresh_us.max(settings.interval_us);
        let by_reading = spent_us.saturating_mul(1_000_000) / settings.overhead_ppm.max(1);
        let by_command = ran_us.saturating_mul(1_000_000) / settings.command_overhead_ppm.max(1);
        let bound_us = if self.is_command() { by_command } else { by_reading };
        self.interval_us = floor_us.max(bound_us).max(1);
        if !ready {
            self.interval_us = self.interval_us.min(FAULT_INTERVAL_US.max(bound_us));
        }
        self.integrator.set_interval(self.interval_us + ran_us);
        // From the beginning of this answer, or a command's duration would be added to its interval.
        self.due_us = (after_us - ran_us).saturating_add(self.interval_us).max(after_us + 1);
    }

    fn note_step(&mut self, reading: Reading) {
        let value = |reading: Reading| match reading {
            Reading::Counter { uj } | Reading::Stored { uj } => uj,
            Reading::Power { uw } => uw,
            Reading::Charge { uah, uv } => (u128::from(uah) * 3_600 * u128::from(uv) / 1_000_000) as u64,
        };
        if let Some(last) = self.last {
            let step = value(reading).abs_diff(value(last));
            if step > 0 {
                self.smallest_step = Some(self.smallest_step.map_or(step, |smallest| smallest.min(step)));
            }
        }
        self.last = Some(reading);
    }

    fn report(&self) -> LaneReport {
        let total = self.integrator.total();
        let info = self.meter.info();
        let extremes = self.integrator.extremes_uw();
        LaneReport {
            meter: info.clone(),
            total,
            states: self.integrator.states().to_vec(),
            samples: self.samples,
            faults: self.faults,
            first_fault: self.fault.clone(),
            gaps: self.integrator.gaps().to_vec(),
            wraps: self.integrator.wraps(),
            watts_min: extremes.map(|(least, _)| least as f64 / 1e6),
            watts_max: extremes.map(|(_, most)| most as f64 / 1e6),
            interval_us: self.interval_us,
            spent_us: self.spent_us,
            quantisation_joules: quantisation_joules(info, extremes.is_some(), &total),
            smallest_step_seen: self.smallest_step,
        }
    }
}

/// The most that steps can make of an error in `account`: one step of a counter or battery between two answers; half
/// a step of power for the time that is covered.
fn quantisation_joules(info: &MeterInfo, is_power: bool, account: &StateAccount) -> f64 {
    let step = info.step as f64 / 1e6;
    match account.covered_us {
        0 => 0.0,
        covered_us if is_power => step / 2.0 * covered_us as f64 / 1e6,
        _ => step,
    }
}

/// Whether a meter's energy may be part of the machine's total.
pub fn may_be_added(covers: Covers) -> bool {
    !matches!(covers, Covers::Part | Covers::Unknown)
}

#[cfg(test)]
#[path = "sampler_test.rs"]
mod sampler_test;
