//! Which nodes are cheapest for a data size and a query rate: total cost of ownership of clusters.
//!
//! The model is that of Vasudevan's dissertation (CMU-CS-11-131, 2011, section 2.5): a cluster needs as
//! many nodes as its data or its rate asks for, whichever is more, and a node costs its price and its
//! electricity over its life. On request the description adds what that analysis leaves out: cooling
//! (PUE), the price of power and cooling infrastructure, and the switches.
//!
//! Invariants:
//! 1. A cluster has whole nodes and whole switches. Boundaries between designs, which the source draws
//!    for parts of nodes, are given for those.
//! 2. Energy is reckoned at the given power all the time.

mod case;
mod catalogue;
mod model;
mod page;
mod published;
mod regions;
mod sensitivity;

use crate::Report;
use crate::description::{Description, Form};
use crate::scenario::Scenario;
use tierstone_base::Result;

/// Descriptions that ship.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        plan: "nodes",
        name: "fawn-2009",
        about: "the six nodes of FAWN's ownership study, beside its published table (2009 prices)",
        form: Form::Toml,
        text: include_str!("../scenarios/fawn-2009.toml"),
    },
    Scenario {
        plan: "nodes",
        name: "fawn-2009-cooled",
        about: "the same nodes with cooling and power infrastructure included, as CSV of a spreadsheet",
        form: Form::Csv,
        text: include_str!("../scenarios/fawn-2009-cooled.csv"),
    },
    Scenario {
        plan: "nodes",
        name: "boards-2026",
        about: "boards with flash of the catalogue of present hardware, with the source of every price",
        form: Form::Toml,
        text: include_str!("../scenarios/boards-2026.toml"),
    },
];

/// The cheapest cluster for what `description` asks, and how far that answer carries.
///
/// Cost: some thousand evaluations a node for the map and a few hundred a price for the sensitivities.
///
/// # Errors
/// `InvalidInput`: an unknown, missing or impossible field; no node that meets the demands.
pub fn plan(description: &Description) -> Result<Report> {
    let case = case::read(description)?;
    page::report(&case).map_err(|error| error.context(&description.origin))
}

#[cfg(test)]
#[path = "nodes_test.rs"]
mod nodes_test;
