//! What scans cost in joules on phones, boards and servers, and how many of each a scan in time needs.
//!
//! The case is that of Harizopoulos and Papadimitriou, "A Case for Micro-Cellstores" (DaMoN 2011): row
//! and column scans, from storage or memory, with more or less arithmetic a tuple. Their figures' data
//! are not available, so processor costs a tuple are the description's own; the published statements
//! stand beside what follows from them.
//!
//! Model: reading and processing overlap, so a tuple takes the longer of both. Power is the idle power,
//! the storage's while it reads, and the processor's in proportion to how busy it is (frequency scaling
//! keeps it close to that line). A processor that waits for memory is busy.
//!
//! Invariants:
//! 1. The energy of a scan is at least idle power and at most peak power over its time.
//! 2. Faster storage never makes a scan slower nor less efficient on the same machine.

mod case;
mod fleet;
mod model;
mod page;
mod profile;
mod published;

use crate::Report;
use crate::description::{Description, Form};
use crate::scenario::Scenario;
use tierstone_base::Result;

/// Descriptions that ship.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        plan: "cells",
        name: "micro-cellstores-2011",
        about: "scans on a phone, a laptop and a desktop, beside the published statements",
        form: Form::Toml,
        text: include_str!("../scenarios/micro-cellstores-2011.toml"),
    },
    Scenario {
        plan: "cells",
        name: "phones-boards-servers",
        about: "100 GB scanned within a minute by phones, FAWN's boards, or a server of its time",
        form: Form::Toml,
        text: include_str!("../scenarios/phones-boards-servers.toml"),
    },
];

/// Energy of every scan on every machine, and fleets of each for the demand.
///
/// # Errors
/// `InvalidInput`: an unknown, missing or impossible field; a demand that no fleet meets.
pub fn plan(description: &Description) -> Result<Report> {
    let case = case::read(description)?;
    page::report(&case).map_err(|error| error.context(&description.origin))
}

#[cfg(test)]
#[path = "cells_test.rs"]
mod cells_test;
