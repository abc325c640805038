//! Explorations that several files make alike.
#![allow(clippy::print_stdout, reason = "the counts belong in the output of the test")]

use super::lives::{self, Mix, Plan, Work, runs};
use tierstone_crash::{ExploreSettings, Mutations, assert_caught};
use tierstone_media::DurableWriteScope;

impl Mix {
    /// Work that keeps the cleaner busy.
    pub fn cleaning() -> Mix {
        Mix {
            operations: 160,
            keys: 14,
            value_bytes_max: 3_000,
            batches: 10,
            deletes: 30,
            settle_one_in: 12,
            ..Mix::default()
        }
    }
}

/// Explores `work` sampled under both scopes of durable writes.
#[track_caller]
pub fn sampled_in_scopes(name: &str, seed: u64, default_runs: u64, plan: &Plan, work: Work<'_>) {
    let scopes = [DurableWriteScope::OwnSectors, DurableWriteScope::WholeDevice];
    for (number, scope) in scopes.into_iter().enumerate() {
        let plan = plan.clone().scope(scope).groups_in_flight(1 + number);
        let runs = runs(default_runs).div_ceil(2);
        let settings = ExploreSettings::random(lives::seed(seed + number as u64), runs);
        let report = plan.explore(settings, work).assert_clean();
        println!("{name}, {scope:?}: {report}");
    }
}

/// The rule `name`, switched off, is seen in `runs` runs, and the very same runs are clean when it holds.
#[track_caller]
pub fn caught(name: &'static str, plan: &Plan, runs: u64, work: Work<'_>) {
    let explored = |plan: &Plan, runs| {
        let settings = ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(4711, runs) };
        plan.explore(settings, work)
    };
    let mutated = plan.clone().mutated(&Mutations::one(name));
    let report = assert_caught(name, || explored(&mutated, runs));
    let tried = report.found.as_ref().map_or(runs, |found| found.run + 1);
    println!("{name} is caught in run {tried}: {report}");
    explored(plan, tried).assert_clean();
}
