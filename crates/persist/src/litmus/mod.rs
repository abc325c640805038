//! Litmus tests: small programs of persists with what each model must and must not allow.
//!
//! The language stands in `docs/persist.md`; the published tests in `crates/persist/litmus`. A test is run under
//! every sequentially consistent interleaving of its threads, or, where it says so, under every order in which
//! its accesses may become visible.
//!
//! Invariants:
//! 1. A report says of every claim what is so: what cannot be tried to its end is an error.
//! 2. Of one test a million executions and states are tried at most, together, and no more than 200 million steps of
//!    orders are derived: a minute or two of one processor.

mod parse;
mod run;
mod walk;

pub use run::{CheckResult, LitmusReport};

use crate::order::Model;
use crate::trace::Event;
use std::collections::BTreeMap;
use tierstone_base::Result;

/// The published tests, as they are shipped: file name and text.
pub const PUBLISHED: &[(&str, &str)] = &[
    ("figure-6.1-cycle", include_str!("../../litmus/figure-6.1-cycle.litmus")),
    ("figure-6.1-in-order", include_str!("../../litmus/figure-6.1-in-order.litmus")),
    ("figure-7.4", include_str!("../../litmus/figure-7.4.litmus")),
    ("figure-7.4-volatile-loads", include_str!("../../litmus/figure-7.4-volatile-loads.litmus")),
    ("queue-holes", include_str!("../../litmus/queue-holes.litmus")),
    ("two-lock-as-printed", include_str!("../../litmus/two-lock-as-printed.litmus")),
    ("two-lock-repaired", include_str!("../../litmus/two-lock-repaired.litmus")),
    ("epoch-race", include_str!("../../litmus/epoch-race.litmus")),
    ("epoch-race-free", include_str!("../../litmus/epoch-race-free.litmus")),
    ("relay", include_str!("../../litmus/relay.litmus")),
    ("relay-with-a-barrier", include_str!("../../litmus/relay-with-a-barrier.litmus")),
    ("persist-atomicity", include_str!("../../litmus/persist-atomicity.litmus")),
    ("strand-idiom", include_str!("../../litmus/strand-idiom.litmus")),
    ("persist-sync", include_str!("../../litmus/persist-sync.litmus")),
    ("bpfs-load-before-store", include_str!("../../litmus/bpfs-load-before-store.litmus")),
    ("bpfs-volatile-lock", include_str!("../../litmus/bpfs-volatile-lock.litmus")),
    ("bpfs-deadlock", include_str!("../../litmus/bpfs-deadlock.litmus")),
];

/// One litmus test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Litmus {
    /// What it is called.
    pub name: String,
    /// Where it was published, if it says so.
    pub source: String,
    /// The addresses of its persistent names.
    persistent: BTreeMap<String, u64>,
    /// What each thread does.
    threads: Vec<Vec<Step>>,
    /// Labels of accesses of which the first becomes visible first.
    sees: Vec<(String, String)>,
    /// Whether accesses may become visible in another order than the program's.
    out_of_order: bool,
    checks: Vec<Check>,
}

/// One step of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    label: Option<String>,
    event: Event,
    /// The store of a read-modify-write: nothing comes between it and the step before.
    joined: bool,
}

/// What must hold under some models.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    line: usize,
    text: String,
    models: Vec<Model>,
    claim: Claim,
}

/// Values of persistent names after recovery.
type Values = Vec<(String, u64)>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Claim {
    Before(String, String),
    Concurrent(String, String),
    State { values: Values, allowed: bool, at_end: bool },
    Cycle(bool),
    Deadlock(bool),
}

impl Litmus {
    /// Reads a test.
    ///
    /// # Errors
    /// `InvalidInput` with the number of the line that is wrong.
    pub fn parse(text: &str) -> Result<Litmus> {
        parse::parse(text)
    }

    /// Runs it.
    ///
    /// # Errors
    /// `InvalidInput` when no execution is as `sees` asks, when a claim is made of a model or an order that it cannot be
    /// made of, and when there are more than a million executions and states to try, or more than 200 million steps of
    /// orders to derive.
    pub fn run(&self) -> Result<LitmusReport> {
        self.run_watched(|_| Ok(()))
    }

    /// The same. `watch` is called now and then with the steps that were derived so far; an error of it ends the run.
    ///
    /// # Errors
    /// Those of [`Litmus::run`], and the first error of `watch`.
    pub fn run_watched(&self, mut watch: impl FnMut(u64) -> Result<()>) -> Result<LitmusReport> {
        run::run(self, &mut watch)
    }
}

#[cfg(test)]
#[path = "litmus_test.rs"]
mod litmus_test;
