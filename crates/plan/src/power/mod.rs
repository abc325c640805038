//! Power of a whole data centre: servers, distribution, cooling (Pelley 2014, Appendix A).
//!
//! A state (how much work, how warm outside, how spread, how contained) and a plant give what each component
//! draws. A scheduler is replaced by one number (load balance l) and the flow of air by another
//! (containment κ); servers are alike.
//!
//! Invariants:
//! 1. Components sum to the total; heat into the air equals heat out of it.
//! 2. l = 0 gives full servers, l = 1 the mean utilisation; live servers times their utilisation is the work.
//! 3. A state that the plant cannot hold is an error that says what is missing and how much of it.

pub mod air;
pub mod calibrate;
pub mod chiller;
pub mod conditioning;
pub mod describe;
pub mod plant;
mod published;
mod report;
pub mod servers;
mod steps;

use crate::description::Form;
use crate::report::Report;
use crate::scenario::Scenario;
use tierstone_base::Result;

/// The shipped descriptions.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        plan: "power",
        name: "power-case-study",
        about: "10 MW in Austin, moved and improved step by step; beside the published claims",
        form: Form::Toml,
        text: include_str!("../../scenarios/power-case-study.toml"),
    },
    Scenario {
        plan: "power",
        name: "power-own-site",
        about: "a small site with a SPECpower table and its own measurements, to copy and change",
        form: Form::Toml,
        text: include_str!("../../scenarios/power-own-site.toml"),
    },
];

/// The plan of a plant from its description (TOML, see the shipped ones).
///
/// # Errors
/// `InvalidInput`: a field that is missing, unknown or out of its range, or a state that the plant cannot
/// hold; the message names it and says by how much.
pub fn plan(description: &crate::Description) -> Result<Report> {
    report::make(&describe::Description::read(description)?).map_err(|error| description.wrong(error))
}

#[cfg(test)]
#[path = "power_test.rs"]
mod power_test;
