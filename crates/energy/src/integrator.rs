//! From answers of a meter to energy over time, with every moment accounted for.
//!
//! Power is integrated by trapezoids, a counter by differences (over one wrap at most), a battery by what left it.
//! The time from the start to the end is partitioned among the states that the caller enters, and within each
//! state into time that the meter covers and gaps; energies and times are integers, so parts sum exactly.
//!
//! A gap is what lies between two answers when: a fault came between them, they lie too far apart for power to be
//! interpolated, a counter began anew, or it may have wrapped more than once. And what lies before the first answer
//! and behind the last.

use crate::amount::Energy;
use crate::meter::{MeterInfo, Reading};
use serde::Serialize;

/// How to judge one meter's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegratorSettings {
    /// Two answers of power further apart than this leave a gap, in microseconds.
    pub gap_after_us: u64,
    /// The counter goes back to zero after this, in microjoules.
    pub wraps_at_uj: Option<u64>,
    /// More than this is never true, in microwatts.
    pub power_max_uw: u64,
}

impl IntegratorSettings {
    /// For the meter of `info`, asked every `interval_us`.
    pub fn of(info: &MeterInfo, interval_us: u64) -> Self {
        IntegratorSettings {
            gap_after_us: gap_after(interval_us),
            wraps_at_uj: info.wraps_at_uj,
            power_max_uw: info.power_max_uw,
        }
    }
}

/// How far apart answers may lie that are asked for every `interval_us`.
pub fn gap_after(interval_us: u64) -> u64 {
    interval_us.saturating_mul(3)
}

/// What one state took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StateAccount {
    /// Energy, in joules when written out.
    #[serde(rename = "joules")]
    pub energy: Energy,
    /// Time that the meter covers, in microseconds.
    pub covered_us: u64,
    /// Time that it does not, in microseconds.
    pub gap_us: u64,
}

/// Time without energy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// From, in microseconds of the driver's clock.
    pub from_us: u64,
    /// To.
    pub to_us: u64,
    /// Why.
    pub why: String,
}

/// Gaps beyond this many are counted in the accounts, and not listed.
const GAPS_LISTED: usize = 64;

/// Sums up one meter.
#[derive(Clone, Debug)]
pub struct Integrator {
    settings: IntegratorSettings,
    states: Vec<StateAccount>,
    /// The state from a moment on, in order; the first holds since before the last answer.
    marks: Vec<(u64, usize)>,
    /// Up to here all is accounted for.
    settled_us: u64,
    last: Option<Reading>,
    /// What came between the last answer and the next.
    trouble: Option<String>,
    gaps: Vec<Gap>,
    wraps: u64,
    extremes_uw: Option<(u64, u64)>,
}

impl Integrator {
    /// Begins at `start_us` in state 0.
    pub fn new(settings: IntegratorSettings, start_us: u64) -> Integrator {
        Integrator {
            settings,
            states: vec![StateAccount::default()],
            marks: vec![(start_us, 0)],
            settled_us: start_us,
            last: None,
            trouble: None,
            gaps: Vec::new(),
            wraps: 0,
            extremes_uw: None,
        }
    }

    /// Answers are asked for every `interval_us` from now on.
    pub fn set_interval(&mut self, interval_us: u64) {
        self.settings.gap_after_us = gap_after(interval_us);
    }

    /// From `at_us` on it is state `state`. A moment that has been accounted for already is taken as the end of that.
    pub fn enter(&mut self, at_us: u64, state: usize) {
        if self.states.len() <= state {
            self.states.resize(state + 1, StateAccount::default());
        }
        let latest = self.marks.last().map_or(0, |&(at, _)| at);
        self.marks.push((at_us.max(self.settled_us).max(latest), state));
    }

    /// The meter said `reading` at `at_us`; an earlier moment than the last answer's is ignored.
    pub fn take(&mut self, at_us: u64, reading: Reading) {
        if let Reading::Power { uw } = reading {
            let (least, most) = self.extremes_uw.unwrap_or((uw, uw));
            self.extremes_uw = Some((least.min(uw), most.max(uw)));
        }
        if at_us < self.settled_us {
            return;
        }
        let trouble = self.trouble.take();
        let step = match (trouble, self.last) {
            (Some(why), _) => Err(why),
            (None, None) => Err("before the first answer".to_owned()),
            (None, Some(last)) => self.between(last, reading, at_us - self.settled_us),
        };
        match step {
            Ok(span) => self.settle(at_us, Some(span)),
            Err(why) => self.leave_gap(at_us, why),
        }
        self.last = Some(reading);
    }

    /// The meter did not answer at `at_us`.
    pub fn fault(&mut self, why: &str) {
        self.trouble.get_or_insert_with(|| why.to_owned());
    }

    /// It ends at `end_us`.
    pub fn finish(&mut self, end_us: u64) {
        if end_us > self.settled_us {
            let why = self.trouble.take().unwrap_or_else(|| "behind the last answer".to_owned());
            self.leave_gap(end_us, why);
        }
    }

    /// What lies between two answers, or why that is not known.
    fn between(&mut self, from: Reading, to: Reading, us: u64) -> Result<Span, String> {
        match (from, to) {
            (Reading::Power { uw: from_uw }, Reading::Power { uw: to_uw }) => {
                if us > self.settings.gap_after_us {
                    return Err(format!("no answer for {:.1} s", us as f64 / 1e6));
                }
                Ok(Span::Power { from_uw, to_uw })
            }
            (Reading::Counter { uj: from }, Reading::Counter { uj: to }) => self.counted(from, to, us),
            (Reading::Stored { uj: from }, Reading::Stored { uj: to }) => match from.checked_sub(to) {
                Some(uj) => Ok(Span::Even(Energy::from_microjoules(uj))),
                None => Err("the battery was charged".into()),
            },
            (Reading::Charge { uah: from, uv: from_uv }, Reading::Charge { uah: to, uv: to_uv }) => {
                match from.checked_sub(to) {
                    Some(uah) => Ok(Span::Even(Energy::charge(uah, from_uv, to_uv))),
                    None => Err("the battery was charged".into()),
                }
            }
            _ => Err("the meter changed what it gives".into()),
        }
    }

    fn counted(&mut self, from: u64, to: u64, us: u64) -> Result<Span, String> {
        let most_uj = (u128::from(self.settings.power_max_uw) * u128::from(us) / 1_000_000) as u64;
        if let Some(range) = self.settings.wraps_at_uj
            && most_uj >= range
        {
            return Err(format!(
                "no answer for {:.0} s: the counter may have wrapped more than once",
                us as f64 / 1e6
            ));
        }
        let (uj, wrapped) = match to.checked_sub(from) {
            Some(uj) => (uj, false),
            None => match self.settings.wraps_at_uj {
                Some(range) if from <= range => (range - from + to, true),
                _ => return Err("the counter went back".into()),
            },
        };
        // A counter ticks: what comes within a tick of its own is no sign of a jump.
        if uj > most_uj.saturating_add(1_000_000) {
            return Err("the counter jumped: it began anew, or the machine slept".into());
        }
        self.wraps += u64::from(wrapped);
        Ok(Span::Even(Energy::from_microjoules(uj)))
    }

    fn leave_gap(&mut self, to_us: u64, why: String) {
        if to_us == self.settled_us {
            return;
        }
        if self.gaps.len() < GAPS_LISTED {
            self.gaps.push(Gap { from_us: self.settled_us, to_us, why });
        }
        self.settle(to_us, None);
    }

    /// Accounts for the time up to `to_us`, among the states that were entered in it.
    fn settle(&mut self, to_us: u64, span: Option<Span>) {
        let (from_us, whole_us) = (self.settled_us, to_us - self.settled_us);
        let mut done = (Energy::ZERO, 0);
        let behind = self.marks.iter().take_while(|&&(at, _)| at <= to_us).count();
        for place in 0..behind {
            let (_, state) = self.marks[place];
            let end_us = if place + 1 < behind { self.marks[place + 1].0 } else { to_us };
            let end = end_us.max(from_us) - from_us;
            let account = &mut self.states[state];
            match &span {
                Some(span) => {
                    let energy = span.until(end, whole_us);
                    account.energy += energy.less(done.0);
                    account.covered_us += end - done.1;
                    done = (energy, end);
                }
                None => {
                    account.gap_us += end - done.1;
                    done.1 = end;
                }
            }
        }
        self.marks.drain(..behind.saturating_sub(1));
        self.settled_us = to_us;
    }

    /// The accounts of the states, by number.
    pub fn states(&self) -> &[StateAccount] {
        &self.states
    }

    /// All states together.
    pub fn total(&self) -> StateAccount {
        self.states.iter().fold(StateAccount::default(), |sum, state| StateAccount {
            energy: sum.energy + state.energy,
            covered_us: sum.covered_us + state.covered_us,
            gap_us: sum.gap_us + state.gap_us,
        })
    }

    /// The gaps, the first [`GAPS_LISTED`] of them.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// How often the counter wrapped.
    pub fn wraps(&self) -> u64 {
        self.wraps
    }

    /// The least and most power that the meter gave, in microwatts; `None` for a counter.
    pub fn extremes_uw(&self) -> Option<(u64, u64)> {
        self.extremes_uw
    }
}

/// What lies between two answers.
#[derive(Clone, Copy, Debug)]
enum Span {
    /// Power that changes evenly.
    Power { from_uw: u64, to_uw: u64 },
    /// Energy that is spread evenly.
    Even(Energy),
}

impl Span {
    /// What of it lies in its first `part_us` of `whole_us`.
    fn until(&self, part_us: u64, whole_us: u64) -> Energy {
        match *self {
            Span::Power { from_uw, to_uw } => Energy::trapezoid_part(from_uw, to_uw, whole_us, part_us),
            Span::Even(energy) => energy.share(part_us, whole_us),
        }
    }
}

#[cfg(test)]
#[path = "integrator_test.rs"]
mod integrator_test;
