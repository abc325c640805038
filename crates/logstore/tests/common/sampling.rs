//! Explorations that several files make alike.

use super::lives::{KEYSPACE, Mix, Plan, Work, World};
use std::ops::Bound::Unbounded;
use tierstone_base::SeededRandom;
use tierstone_crash::{
    Choices, ExploreSettings, Mutations, Violation, assert_caught, sampled_runs, sampled_seed,
};
use tierstone_engine::{Direction, Engine};
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
        let runs = sampled_runs(default_runs).div_ceil(2);
        let settings = ExploreSettings::random(sampled_seed(seed + number as u64), runs);
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

impl World<'_> {
    /// Walks through all keys in their order.
    pub fn walk(&mut self) -> Result<(), Violation> {
        for harness in &mut self.shards {
            harness.range_all(KEYSPACE, Unbounded, Unbounded, 50, Direction::Forward)?;
        }
        Ok(())
    }

    /// Bytes that were brought together for walks in this life.
    pub fn clustered_bytes(&self) -> u64 {
        self.shards.iter().map(|harness| harness.engine.statistics().clustered_bytes_written).sum()
    }
}

/// A store whose walks find records scattered, and not all of them in the cache.
pub fn scattered(segments: u32) -> Plan {
    let mut plan = Plan::new(32 << 10, segments).cut_one_in(300).ordered();
    plan.open.shard.cache_bytes_max = 48 << 10;
    plan.open.shard.cluster_bytes_per_second = 1 << 40;
    plan
}

/// Walks beside writes to more keys than one page has.
pub fn walking() -> Mix {
    Mix { operations: 150, keys: 60, walks: 12, settle_one_in: 12, deletes: 15, ..Mix::default() }
}

/// Keys that expire are written, looked at and cleaned away; the clock is set back before each life.
pub fn expiring(world: &mut World<'_>, life: u32, choices: &Choices) -> Result<(), Violation> {
    let mut random = SeededRandom::new(choices.choose_seed("work"));
    for _ in 0..if life == 0 { 120 } else { 40 } {
        match random.below(12) {
            0..2 => world.put_expiring(
                random.below(60) as u32,
                20 + random.below(400) as u32,
                random.below(40),
            )?,
            2..5 => drop(world.put(random.below(8) as u32, 4 + random.below(3_000) as u32)?),
            5 => drop(world.delete(random.below(8) as u32)?),
            6 => world.advance(random.below(30)),
            7..10 => world.look_at_expiring(random.below(60) as u32)?,
            10 => world.settle(1 + random.below(30) as u32),
            _ => world.sync()?,
        }
        if random.chance(0.5) {
            world.poll();
        }
    }
    world.sync()
}
