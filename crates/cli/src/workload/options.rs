//! What `workload replay` and `lab what-if` have in common: which part of a trace, how fast, and on what store.

use super::open_trace;
use crate::settings::store_options;
use crate::values::wrong;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use tierstone::DatabaseOptions;
use tierstone_base::Result;
use tierstone_base::units::parse_size;
use tierstone_workload::replay::{LoadRule, Pace, PlanSettings, ReplayPlan, ReplaySettings};

/// Memory of the store where nobody says otherwise.
const MEMORY: &str = "256MiB";

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Only the first N operations of the trace
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Only the first so many recorded seconds
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Which keys are there before: those that are read and that the trace does not write, or all whose first operation is
    /// not a write
    #[arg(long, value_enum, default_value = "never-written")]
    load: Load,
    /// The size of values that the trace does not tell [default: the median of those that it writes, or 100]
    #[arg(long, value_name = "SIZE")]
    value_size: Option<String>,
    /// Recorded times, this many times as fast; latencies count from them
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    speed: f64,
    /// Closed loop: each caller's next operation when the last one is answered, whatever the recorded times
    #[arg(long, conflicts_with = "speed")]
    closed: bool,
    /// Callers, each with the operations of a part of the keys, one at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    callers: usize,
    /// Seed of the values' bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A setting of the store, as `tierstone server --help` has it, such as memory=64MiB (256MiB is the default here),
    /// durability=group:5ms or shards=1; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Load {
    NeverWritten,
    FirstUse,
}

impl PlanArgs {
    /// When, and by how many.
    pub fn replay(&self) -> Result<ReplaySettings> {
        let pace = if self.closed { Pace::AsFastAsPossible } else { Pace::Recorded { speed: self.speed } };
        let settings = ReplaySettings { pace, callers: self.callers, seed: self.seed };
        settings.validate()?;
        Ok(settings)
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The store; `more` are settings of other options, `refused` names that stand for something else.
    pub fn store(&self, more: &[(&'static str, String)], refused: &[&str]) -> Result<DatabaseOptions> {
        let mut given = vec![("memory", MEMORY.to_owned())];
        for text in &self.set {
            let Some((name, value)) = text.split_once('=') else {
                return Err(wrong(format!("--set '{text}': write NAME=VALUE")));
            };
            if refused.contains(&name) {
                return Err(wrong(format!("--set '{text}': this command chooses {name} itself")));
            }
            given.push((name, value.to_owned()));
        }
        given.extend(more.iter().cloned());
        store_options(&given)
    }

    /// The operations of `file`.
    pub fn plan(&self, file: &Path) -> Result<ReplayPlan> {
        let value_bytes = match &self.value_size {
            None => None,
            Some(text) => Some(
                u32::try_from(parse_size(text)?)
                    .map_err(|_| wrong(format!("--value-size {text} is too large")))?,
            ),
        };
        if self.seconds.is_some_and(|seconds| seconds.is_nan() || seconds <= 0.0) {
            return Err(wrong("--seconds must be above 0".to_owned()));
        }
        let settings = PlanSettings {
            load: match self.load {
                Load::NeverWritten => LoadRule::NeverWritten,
                Load::FirstUse => LoadRule::FirstUse,
            },
            value_bytes,
            operations_max: self.operations,
            seconds_max: self.seconds,
        };
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} reading the trace");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.tick();
        let plan = ReplayPlan::read(&mut open_trace(file)?, &settings);
        bar.finish_and_clear();
        plan.map_err(|error| error.context(&file.display().to_string()))
    }
}
