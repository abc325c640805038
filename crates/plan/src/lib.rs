//! Plans of hardware, and what plans and results are written in.
//!
//! A plan turns a description (TOML or CSV) into a [`Report`]: what was asked, the answer with the
//! label of each number, published values beside ours, tables, plots, and how each figure was come to.
//! Models are pure functions of their descriptions: no clock, no input or output, no machine.
//!
//! Invariants:
//! 1. Every number has a unit and a label: measured, modelled or published.
//! 2. Nothing that decides about money or power has a silent default: what is missing is an error
//!    that names it.

pub mod cells;
pub mod description;
pub mod drawing;
mod field;
pub mod html;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub mod mirrors;
pub mod nodes;
pub mod number;
pub mod output;
pub mod parts;
pub mod power;
pub mod quantity;
pub mod report;
pub mod routing;
pub mod scenario;

pub use description::Description;
pub use report::{Fact, Label, Report};

/// The shipped scenarios of each plan.
const SCENARIOS: &[&[scenario::Scenario]] =
    &[nodes::SCENARIOS, cells::SCENARIOS, power::SCENARIOS, routing::SCENARIOS, mirrors::SCENARIOS];
