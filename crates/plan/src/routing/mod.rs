//! Power routing: servers with cords to two PDUs run on one of them, chosen anew as load moves, so that a room
//! survives any one PDU with less capacity (Pelley 2014, Appendix B).
//!
//! A topology says which pairs of PDUs reach a place, placement hangs servers on feeds, a linear program divides
//! the load of each pair, rounding deals whole servers, and a second program caps them where that is not enough.
//!
//! Invariants:
//! 1. Every server runs on exactly one of its two feeds, which belong to different PDUs.
//! 2. With the caps of a schedule no feed is overloaded, whichever single PDU fails.
//! 3. Of each pair of feeds at most one server fits on no side.
//! 4. One description and seed give one report.

pub mod capacity;
pub mod capping;
pub mod control;
pub mod cost;
pub mod describe;
pub mod part;
pub mod program;
mod published;
mod report;
pub mod safety;
pub mod schedule;
pub mod study;
pub mod synthetic;
pub mod topology;
pub mod trace;
pub mod wiring;

use crate::description::Form;
use crate::report::Report;
use crate::scenario::Scenario;
use tierstone_base::Result;

/// The shipped descriptions.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        plan: "routing",
        name: "routing-published",
        about: "1,000 servers of three kinds under 6 PDUs; every topology and mix beside the published values",
        form: Form::Toml,
        text: include_str!("../../scenarios/routing-published.toml"),
    },
    Scenario {
        plan: "routing",
        name: "routing-own-room",
        about: "240 servers under 5 PDUs wired in a way of one's own, to copy and change",
        form: Form::Toml,
        text: include_str!("../../scenarios/routing-own-room.toml"),
    },
];

/// The plan of a room from its description (TOML, see the shipped ones), with its synthetic trace.
///
/// # Errors
/// `InvalidInput`: a field that is missing, unknown or out of its range, or a capacity with which a feed is
/// short even with every server idle; the message names the feed and says by how much.
pub fn plan(description: &crate::Description) -> Result<Report> {
    report::make(&describe::Description::read(description)?, None).map_err(|error| description.wrong(error))
}

/// The same with a trace as CSV (see [`trace::Trace::read_csv`]) in place of the synthetic one.
///
/// # Errors
/// As [`plan`]; and a trace that is broken, with the line.
pub fn plan_traced(description: &crate::Description, trace_csv: &str) -> Result<Report> {
    let asked = describe::Description::read(description)?;
    report::make(&asked, Some(trace_csv)).map_err(|error| description.wrong(error))
}

#[cfg(test)]
#[path = "routing_test.rs"]
mod routing_test;
