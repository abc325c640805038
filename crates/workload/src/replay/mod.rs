//! A recorded workload, asked again of a store in this process: [`plan`] makes operations of records and says what cannot
//! be done again, [`run`] does them.
//!
//! Invariants:
//! 1. The operations of a key happen in their order: each key belongs to one caller.
//! 2. At recorded times a latency counts from the time that the trace says, divided by the speed: a stall is seen by every
//!    operation that fell into it.
//! 3. Values have the recorded sizes and name their key: what is read is checked.
//! 4. What is left out or assumed is counted in [`PlanReport`].
//!
//! Nothing here is durable.

pub mod plan;
pub mod run;

pub use plan::{LoadRule, PlanReport, PlanSettings, ReplayPlan};
pub use run::{ReplayOutcome, ReplayTarget, load, run};

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result};

/// When the operations are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// At their recorded times, `speed` times as fast: an open loop.
    Recorded {
        /// Above 0, at most 1,000,000. Expiries are shortened by it too.
        speed: f64,
    },
    /// Each when the caller's last one is answered: a closed loop. Expiries stay as they were recorded.
    AsFastAsPossible,
}

/// How a plan is run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReplaySettings {
    /// When.
    pub pace: Pace,
    /// Callers, 1 to 1,024, each with the operations of a part of the keys, one at a time. Default 16.
    pub callers: usize,
    /// Seed of the values' bytes.
    pub seed: u64,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        ReplaySettings { pace: Pace::Recorded { speed: 1.0 }, callers: 16, seed: 1 }
    }
}

impl ReplaySettings {
    /// Errors: `InvalidInput`, naming the setting that is out of its range.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("replay: {what}")));
        if !(1..=1024).contains(&self.callers) {
            return refuse("callers must be 1 to 1,024");
        }
        match self.pace {
            Pace::Recorded { speed } if !(speed > 0.0 && speed <= 1e6) => {
                refuse("the speed must be above 0 and at most 1,000,000")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "../replay_test.rs"]
mod replay_test;
