//! What sleeping mirrors would save, and what they would cost in response times and starts: a trace
//! through a model of the array, with disks that sleep and without.
//!
//! Source: Snyder, Chen, Chrysanthis, Labrinidis, *QMD: Exploiting Flash for Energy Efficient Disk
//! Arrays*, DaMoN 2011. The policy is the code that the volume of `crates/volume` runs.
//!
//! Invariants:
//! 1. The saving is that of one trace with sleep against the same trace without.
//! 2. All results are modelled; a description decides them to the last digit.

mod answer;
pub mod describe;
pub mod flush;
pub mod generate;
mod more;
pub mod simulate;
pub mod size;
pub mod trace;
mod wear;
mod whole;

pub use describe::Description;
pub use simulate::{Machine, Outcome, simulate};
pub use size::knee;
pub use trace::{Request, TraceFormat, read_trace};
pub use whole::WholeOutcome;

use crate::Report;
use crate::description::Form;
use crate::scenario::Scenario;
use describe::Trace;
use std::io::BufRead;
use tierstone_base::{Error, ErrorKind, Result};

/// The shipped descriptions.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        plan: "mirrors",
        name: "mirrors-diurnal",
        about: "28 disks for a week with a busy time each day, as the published enterprise servers had",
        form: Form::Toml,
        text: include_str!("scenarios/diurnal.toml"),
    },
    Scenario {
        plan: "mirrors",
        name: "mirrors-partial",
        about: "12 disks with little to do, nearly all of it on a tenth of the data: pairs that sleep whole",
        form: Form::Toml,
        text: include_str!("scenarios/partial.toml"),
    },
    Scenario {
        plan: "mirrors",
        name: "mirrors-spiky",
        about: "28 disks for a day of spikes without a daily pattern, as the published web service had",
        form: Form::Toml,
        text: include_str!("scenarios/spiky.toml"),
    },
];

/// Plans from a description that holds its load or says how to make it.
///
/// # Errors
/// Invalid input: what is wrong in the description or its trace, and where.
pub fn plan(description: &crate::Description) -> Result<Report> {
    let asked = Description::read(description)?;
    let made = |trace: Result<Vec<Request>>| answer::answer(&asked, &trace?);
    let report = match &asked.trace {
        Trace::Diurnal(load) => made(Ok(generate::diurnal(load))),
        Trace::Spiky(load) => made(Ok(generate::spiky(load))),
        Trace::Msr { lines } => made(inline(lines).and_then(|lines| read_trace(TraceFormat::Msr, lines))),
        Trace::Blkparse { lines } => {
            made(inline(lines).and_then(|lines| read_trace(TraceFormat::Blkparse, lines)))
        }
    };
    report.map_err(|error| description.wrong(error))
}

/// Plans from a description whose trace comes from elsewhere; its `trace` names the format, with empty
/// `lines`.
///
/// # Errors
/// As [`plan`]; also when the description makes its own load or holds lines.
pub fn plan_traced(description: &crate::Description, input: impl BufRead) -> Result<Report> {
    let asked = Description::read(description)?;
    let format = match &asked.trace {
        Trace::Msr { lines } if lines.is_empty() => TraceFormat::Msr,
        Trace::Blkparse { lines } if lines.is_empty() => TraceFormat::Blkparse,
        _ => {
            let message =
                "it has a load of its own: say trace.kind = \"msr\" or \"blkparse\" and lines = \"\"";
            return Err(description.wrong(message));
        }
    };
    answer::answer(&asked, &read_trace(format, input)?)
}

fn inline(lines: &str) -> Result<&[u8]> {
    if lines.is_empty() {
        let message =
            "trace.lines is empty: put the trace's lines there, or give the trace beside the description";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(lines.as_bytes())
}

#[cfg(test)]
#[path = "mirrors_test.rs"]
mod mirrors_test;
