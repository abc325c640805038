//! Joules: meters where there are some, their integration over time, and a model where there are none.
//!
//! A [`Sampler`] asks [`Meter`]s when they are due and hands what they say to one [`Integrator`] each. It is a
//! state machine: a driver ([`Recorder`], a thread) gives it a clock and sleeps between its steps. [`EnergyModel`]
//! turns counters that are kept anyway (processor time, device operations) into joules.
//!
//! Invariants:
//! 1. A number from a meter is [`Label::Measured`], one from the model [`Label::Modelled`]; nothing else makes
//!    joules, and nothing turns the second into the first.
//! 2. Energy partitions time: the energies of the states sum exactly to the total (integers), and covered time and
//!    gaps sum exactly to the time that passed.
//! 3. Where a meter was silent, late, back at zero or gone, there is a [`Gap`] with its cause; energy is never made
//!    up for it.
//! 4. Nothing here waits for a meter: a command that hangs is killed after its time, and the time that is spent in
//!    reading is a bounded part of all time.
//! 5. All files are read below a folder that the caller names, so that tests have machines of their own.
//!
//! Nothing is written, so a crash leaves nothing, but for the command of a meter that was running: it ends by
//! itself or by its own bounds.

pub mod amount;
pub mod battery;
pub mod command;
pub mod cpufreq;
pub mod discover;
pub mod driver;
pub mod hwmon;
pub mod integrator;
pub mod meter;
pub mod model;
pub mod presets;
pub mod profile;
pub mod rapl;
pub mod sampler;
mod sysfs;
pub mod tools;
pub mod total;
pub mod watch;

pub use amount::Energy;
pub use discover::{Absent, Found, Places, discover};
pub use driver::{Recorder, Recording};
pub use integrator::{Gap, Integrator, IntegratorSettings, StateAccount};
pub use meter::{Covers, Fault, FaultKind, Meter, MeterInfo, MeterKind, Reading};
pub use model::{Constant, EnergyModel, Modelled, Work};
pub use sampler::{LaneReport, Sample, Sampler, SamplerSettings, Standing};
pub use tierstone_base::Label;
pub use watch::{Watch, mean_watts};

#[cfg(test)]
mod tree_test;
