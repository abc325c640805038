//! The power of what is simulated together: where it is lost, and whether it is off.
//!
//! Everything behind one switch tells it each event before it happens and asks whether the power is off. A medium
//! alone has a switch of its own; in a machine a region and several devices share one.

use super::settings::{CutPoints, PowerCut};
use super::shared::Shared;
use tierstone_crash::Choices;

/// A switch. Clones are handles on the same one.
#[derive(Clone, Debug)]
pub(crate) struct PowerSwitch {
    plan: Shared<Plan>,
    shared: bool,
}

#[derive(Debug)]
struct Plan {
    choices: Choices,
    power_cut: PowerCut,
    cut_limit: u32,
    planned_cuts: u32,
    events: u64,
    points_seen: u64,
    /// At which point of this life, where that is decided at its start.
    planned: Option<u64>,
    is_off: bool,
}

impl PowerSwitch {
    /// A switch that is on, and cuts the power where `power_cut` says, `cut_limit` times at most.
    pub(crate) fn new(power_cut: PowerCut, cut_limit: u32, choices: &Choices) -> Self {
        let mut plan = Plan {
            choices: choices.clone(),
            power_cut,
            cut_limit,
            planned_cuts: 0,
            events: 0,
            points_seen: 0,
            planned: None,
            is_off: false,
        };
        plan.plan_life();
        PowerSwitch { plan: Shared::new(plan), shared: false }
    }

    /// The switch of a machine, for each of its parts.
    pub(crate) fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Whether other parts hang on it.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// An event is about to happen. Whether the power is off, then: it was, or is cut now. `shrinks` says whether
    /// the event takes states away from what may survive.
    pub(crate) fn before_event(&self, shrinks: bool) -> bool {
        self.plan.lock().before_event(shrinks)
    }

    /// Cuts the power.
    pub(crate) fn cut(&self) {
        self.plan.lock().is_off = true;
    }

    /// Whether the power is off.
    pub(crate) fn is_off(&self) -> bool {
        self.plan.lock().is_off
    }

    /// The power comes back: a new life begins.
    pub(crate) fn switch_on(&self) {
        self.plan.lock().is_off = false;
        self.plan_life();
    }

    /// A new life begins.
    pub(crate) fn plan_life(&self) {
        self.plan.lock().plan_life();
    }

    /// Changes where power is lost, from now on.
    pub(crate) fn set_cut(&self, power_cut: PowerCut) {
        let plan = &mut *self.plan.lock();
        plan.power_cut = power_cut;
        plan.plan_life();
    }

    /// How often the power was cut as planned.
    pub(crate) fn planned_cuts(&self) -> u32 {
        self.plan.lock().planned_cuts
    }
}

impl Plan {
    /// Decides where power is lost, where the settings say to decide now.
    fn plan_life(&mut self) {
        self.points_seen = 0;
        self.planned = None;
        if let PowerCut::Within { last, .. } = self.power_cut
            && self.planned_cuts < self.cut_limit
        {
            let point = self.choices.choose(last.saturating_add(1), "power cut at point");
            self.planned = point.checked_sub(1);
        }
    }

    fn before_event(&mut self, shrinks: bool) -> bool {
        let event = self.events;
        self.events += 1;
        if self.is_off || self.planned_cuts >= self.cut_limit {
            return self.is_off;
        }
        let counts = |points| points == CutPoints::Every || shrinks;
        let cut = match self.power_cut {
            PowerCut::Never => false,
            PowerCut::AtEvent(chosen) => chosen == event,
            PowerCut::Anywhere { points, one_in } => {
                counts(points) && self.choices.rarely(one_in, "power cut")
            }
            PowerCut::Within { points, .. } => {
                let seen = self.points_seen;
                self.points_seen += u64::from(counts(points));
                counts(points) && self.planned == Some(seen)
            }
        };
        self.planned_cuts += u32::from(cut);
        self.is_off = cut;
        cut
    }
}
