//! The laboratory: published experiments, run here, their numbers beside the published ones.
//!
//! An experiment is one file in `experiments`: where it was published, the values printed there with
//! their places, what agreement means for each (fixed before the run), and a function that measures.
//! Everything else is shared: [`run()`] gives it a temporary folder, progress and the machine's
//! description; [`output`] writes the result as JSON, CSV, pictures and a page.
//!
//! Invariants:
//! 1. A number in a result was measured in that run, or is a published one and stands beside its
//!    place. Nothing is scaled to another machine; where absolute numbers cannot agree, ratios and
//!    shapes are compared, and the row says so.
//! 2. What agreement means is data of the experiment ([`Rule`]); the measuring code cannot bend it.
//! 3. A run leaves nothing behind but its output, also when it fails or is stopped.
//! 4. No result names a path, a host or a user of the machine.
//!
//! What a user has recorded himself is replayed by [`replay`] in one store, by [`what_if()`] in several side by side.
//!
//! To add an experiment: a file in `src/experiments`, its `mod` and its place in `ALL`.

pub mod catalogue;
pub mod experiment;
pub mod experiments;
pub mod instruction_rate;
pub mod machine;
pub mod output;
mod page;
pub mod peers;
mod phases;
pub mod queues;
pub mod raw;
pub mod replay;
pub mod result;
pub mod run;
pub mod scratch;
pub mod target;
pub mod what_if;

pub use experiment::{Experiment, Kind, Published, PublishedSeries, Rule, Size};
pub use experiments::{ALL, find};
pub use result::ExperimentResult;
pub use run::{Progress, Run, RunSettings, run, run_with};
pub use what_if::{WhatIf, what_if};
