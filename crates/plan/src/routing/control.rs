//! The control loop over a trace: servers have caps; one that wants more asks; if its active feed has room
//! it is granted, else everything is scheduled anew.
//!
//! One step is one sample of the trace. Desired budgets are the peak or the average of each server's last
//! samples, the present one included (the source says "peak" in B.3.3 and "average" in B.4).

use super::part::Part;
use super::schedule::{Limits, Loads, Sides, pair_power, round, split};
use super::trace::Trace;
use super::wiring::Wiring;
use super::{capping, safety};
use serde::Deserialize;
use tierstone_base::{Error, ErrorKind, Result};

/// Which of the last samples is a server's desired budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Budget {
    /// The greatest.
    Peak,
    /// Their mean, and at least the present one.
    Average,
}

/// How the controller works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// What a budget is taken from.
    pub budget: Budget,
    /// Samples that it looks back over, at least 1.
    pub window: usize,
}

/// The controller of one room.
#[derive(Clone, Debug)]
pub struct Controller<'a> {
    wiring: &'a Wiring,
    limits: &'a Limits,
    idle_w: &'a [f64],
    sides: Sides,
    caps_w: Vec<f64>,
    loads: Loads,
    /// How often everything was scheduled.
    pub schedules: u64,
    /// How often servers had to be held below their requests.
    pub cappings: u64,
    /// How often phases could not be kept even, so that all stayed as it was.
    pub unsolved: u64,
}

impl<'a> Controller<'a> {
    /// A controller that has just scheduled `desired_w`.
    ///
    /// # Errors
    /// As [`Controller::schedule`].
    pub fn new(
        wiring: &'a Wiring,
        limits: &'a Limits,
        idle_w: &'a [f64],
        desired_w: &[f64],
    ) -> Result<Controller<'a>> {
        let sides = vec![false; desired_w.len()];
        let loads = Loads::none(wiring);
        let caps_w = vec![0.0; desired_w.len()];
        let mut made = Controller {
            wiring,
            limits,
            idle_w,
            sides,
            caps_w,
            loads,
            schedules: 0,
            cappings: 0,
            unsolved: 0,
        };
        made.schedule(desired_w)?;
        Ok(made)
    }

    /// The cap of each server, W.
    pub fn caps_w(&self) -> &[f64] {
        &self.caps_w
    }

    /// The side of each server.
    pub fn sides(&self) -> &Sides {
        &self.sides
    }

    /// Whether the caps overload no feed, whichever single PDU fails, by going through all of them.
    pub fn safe(&self) -> bool {
        safety::overloads(self.wiring, &self.sides, &self.caps_w, &self.limits.feed_w).is_empty()
    }

    /// Raises a server's cap to `watts` where it runs, if its feed keeps within capacity and the other feed
    /// could take it over; says whether it did.
    pub fn request(&mut self, server: usize, watts: f64) -> bool {
        let more = watts - self.caps_w[server];
        if more <= 0.0 {
            return true;
        }
        let (pair, side) = (self.wiring.pair_of[server], self.sides[server]);
        let [a, b] = self.wiring.pairs[pair];
        let [to_a, to_b] = self.wiring.takeover_of[pair];
        let (active, other, takeover) = if side { (b, a, to_a) } else { (a, b, to_b) };
        // Takeovers of a feed stand side by side.
        let first = self.wiring.takeovers.partition_point(|&(feed, _)| feed < active);
        let of_active =
            self.wiring.takeovers[first..].iter().take_while(|&&(feed, _)| feed == active).count();
        let worst =
            self.loads.taken_w[first..first + of_active].iter().fold(0.0f64, |most, &taken| most.max(taken));
        let held = self.loads.feed_w[active] + worst + more <= self.limits.feed_w[active]
            && self.loads.feed_w[other] + self.loads.taken_w[takeover] + more <= self.limits.feed_w[other];
        if held {
            self.loads.add(self.wiring, pair, side, more);
            self.caps_w[server] = watts;
        }
        held
    }

    /// Schedules everything: desired budgets, feeds, caps. Where phases cannot be kept even, feeds and caps stay
    /// as they are, as in the source. Cost: a linear program an island, a pass over the servers, and, where a
    /// feed is overloaded, a second program.
    ///
    /// # Errors
    /// `InvalidInput`: the first schedule cannot keep phases even, or a feed is overloaded even with every
    /// server idle; the message says which and by how much.
    pub fn schedule(&mut self, desired_w: &[f64]) -> Result<()> {
        self.schedules += 1;
        let division = match split(self.wiring, &pair_power(self.wiring, desired_w), self.limits) {
            Ok(division) => division,
            Err(error) if error.kind() == ErrorKind::InvalidInput && self.schedules > 1 => {
                self.unsolved += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let sides = round(self.wiring, desired_w, &division, self.limits).sides;
        let mut caps_w = desired_w.to_vec();
        let needs = Loads::of(self.wiring, &sides, &caps_w).needs(self.wiring);
        if needs.iter().zip(&self.limits.feed_w).any(|(need, capacity)| *need > capacity * (1.0 + 1e-9)) {
            self.cappings += 1;
            caps_w = capping::caps(self.wiring, &sides, self.idle_w, desired_w, &self.limits.feed_w)?;
        }
        self.loads = Loads::of(self.wiring, &sides, &caps_w);
        (self.sides, self.caps_w) = (sides, caps_w);
        Ok(())
    }
}

/// What a trace met.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Energy asked for and not granted, over energy asked for.
    pub unmet: f64,
    /// Samples of the trace in which some server was held below what it asked for.
    pub throttled_samples: u64,
    /// How often everything was scheduled.
    pub schedules: u64,
    /// How often caps were below requests.
    pub cappings: u64,
    /// How often phases could not be kept even, so that feeds and caps stayed.
    pub unsolved: u64,
    /// For each sample: asked for and granted, W.
    pub series: Vec<(f64, f64)>,
    /// Whether after every schedule, and at the end, no feed was overloaded for any failing PDU, by enumeration.
    pub safe: bool,
}

impl Simulated {
    fn nothing(safe: bool) -> Simulated {
        Simulated {
            unmet: 0.0,
            throttled_samples: 0,
            schedules: 0,
            cappings: 0,
            unsolved: 0,
            series: Vec::new(),
            safe,
        }
    }
}

/// Below this a shortfall is the solver's precision.
const NOTHING_W: f64 = 1e-3;

/// Runs the control loop over a trace, each island under a controller of its own: what one schedules concerns no
/// other. With `stop` it ends at the first sample that is throttled. Cost: servers × samples, and the programs of
/// the schedules.
///
/// # Errors
/// As [`Controller::schedule`].
pub fn simulate(
    wiring: &Wiring,
    limits: &Limits,
    idle_w: &[f64],
    trace: &Trace,
    control: Control,
    stop: bool,
) -> Result<Simulated> {
    if wiring.islands.len() < 2 {
        return simulate_island(wiring, limits, idle_w, trace, control, stop);
    }
    let mut seen = Simulated::nothing(true);
    let (mut throttled, mut refused) = (vec![false; trace.samples()], 0.0);
    for part in Part::all(wiring)? {
        let (limits, idle_w) = (part.limits(limits), part.values(idle_w));
        let found = simulate_island(&part.wiring, &limits, &idle_w, &part.trace(trace), control, stop);
        let found = found.map_err(|error| error.context(&part.told()))?;
        seen.schedules += found.schedules;
        seen.cappings += found.cappings;
        seen.unsolved += found.unsolved;
        seen.safe &= found.safe;
        seen.series.resize(seen.series.len().max(found.series.len()), (0.0, 0.0));
        for (sample, (asked, granted)) in found.series.into_iter().enumerate() {
            if asked - granted > NOTHING_W {
                throttled[sample] = true;
                refused += asked - granted;
            }
            seen.series[sample].0 += asked;
            seen.series[sample].1 += granted;
        }
        if stop && found.throttled_samples > 0 {
            seen.throttled_samples = 1;
            return Ok(seen);
        }
    }
    let asked: f64 = seen.series.iter().map(|both| both.0).sum();
    seen.unmet = if asked > 0.0 { refused / asked } else { 0.0 };
    seen.throttled_samples = throttled.into_iter().filter(|&throttled| throttled).count() as u64;
    Ok(seen)
}

fn simulate_island(
    wiring: &Wiring,
    limits: &Limits,
    idle_w: &[f64],
    trace: &Trace,
    control: Control,
    stop: bool,
) -> Result<Simulated> {
    let start = |error: Error| error.context("at the first sample");
    let mut controller = Controller::new(wiring, limits, idle_w, &trace.sample(0)).map_err(start)?;
    let mut seen = Simulated::nothing(controller.safe());
    let (mut asked, mut refused) = (0.0, 0.0);
    for sample in 0..trace.samples() {
        let demand = trace.sample(sample);
        let waiting: Vec<usize> =
            (0..demand.len()).filter(|&server| !controller.request(server, demand[server])).collect();
        if !waiting.is_empty() {
            let desired = desired(trace, sample, control);
            controller.schedule(&desired).map_err(|error| error.context(&format!("at sample {sample}")))?;
            seen.safe &= controller.safe();
        }
        let short: f64 =
            demand.iter().zip(controller.caps_w()).map(|(demand, cap)| (demand - cap).max(0.0)).sum();
        let all: f64 = demand.iter().sum();
        asked += all;
        if short > NOTHING_W {
            refused += short;
            seen.throttled_samples += 1;
            if stop {
                break;
            }
        }
        seen.series.push((all, all - short));
    }
    // What was granted in place since the last schedule is gone through too.
    seen.safe &= controller.safe();
    seen.unmet = if asked > 0.0 { refused / asked } else { 0.0 };
    seen.schedules = controller.schedules;
    seen.cappings = controller.cappings;
    seen.unsolved = controller.unsolved;
    Ok(seen)
}

fn desired(trace: &Trace, sample: usize, control: Control) -> Vec<f64> {
    let mut desired = trace.sample(sample);
    let first = (sample + 1).saturating_sub(control.window.max(1));
    let count = (sample + 1 - first) as f64;
    if first == sample {
        return desired;
    }
    let mut sums = vec![0.0; desired.len()];
    for earlier in first..=sample {
        for ((desired, sum), watts) in desired.iter_mut().zip(&mut sums).zip(trace.sample(earlier)) {
            *sum += watts;
            if control.budget == Budget::Peak {
                *desired = desired.max(watts);
            }
        }
    }
    if control.budget == Budget::Average {
        for (desired, sum) in desired.iter_mut().zip(sums) {
            *desired = desired.max(sum / count);
        }
    }
    desired
}
