//! Small explorations of the log store without sampling: power is lost before every durable completion of the
//! few steps that a test names, and every subset of the pieces under way survives each time.
//!
//! Requests complete in order, and pieces of 1 KiB survive whole or not at all, so that blocks are torn; other orders
//! are sampled in `crash.rs`. What comes before the steps runs without losses of power; so does what comes after.

use crate::common::lives::{Plan, World};
use std::cell::Cell;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_caught};
use tierstone_engine::Engine;
use tierstone_media::DurableWriteScope;
use tierstone_media::sim::{CompletionOrder, CutPoints, PowerCut, StaleRange};

/// A plan under which power is lost only where a scenario says so.
fn plan(segments: u32, scope: DurableWriteScope) -> Plan {
    let mut plan = Plan::new(32 << 10, segments).scope(scope);
    plan.sim.order = CompletionOrder::InOrder;
    plan.sim.power_cut = PowerCut::Never;
    plan.sim.sector_bytes = 1 << 10;
    plan.sim.stale_range = StaleRange::Zeros;
    plan.sim.cut_limit = 1;
    plan.sim.end_cuts = 1;
    plan
}

/// From here on power may be lost before every durable completion.
fn begin_cuts(world: &World<'_>) {
    world.medium.set_power_cut(PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in: 1 });
}

/// After a loss of power: the store has been checked; nothing more is lost, and it goes on.
fn afterwards(world: &mut World<'_>) -> Result<(), Violation> {
    world.medium.set_power_cut(PowerCut::Never);
    world.prove_alive()
}

#[track_caller]
fn explored_exhaustively(
    name: &str,
    make: impl Fn(DurableWriteScope) -> Plan,
    work: &dyn Fn(&mut World<'_>, u32, &Choices) -> Result<(), Violation>,
) {
    for scope in [DurableWriteScope::OwnSectors, DurableWriteScope::WholeDevice] {
        let report: Report = make(scope).explore(ExploreSettings::exhaustive(), work).assert_exhausted();
        println!("exhaustive: {name}, {scope:?}: {report}");
        assert!(report.distinct_states > 3, "{name}: too little happens: {report}");
    }
}

/// Keys of the first segment, which is cleaned: two that live, one that is deleted in it.
const LIVE: [u32; 2] = [1, 2];
const DELETED: u32 = 3;
/// The key whose dead versions fill the rest of the first segment; later ones have live records.
const FILLER: u32 = 9;

fn cleaned_bytes(world: &World<'_>) -> u64 {
    world.shards[0].engine.statistics().cleaned_bytes_written
}

/// Fills segments until the first is cleaned; gives how many writes that took. With `cuts_at`, power may be lost
/// from that write on.
fn clean_one_segment(world: &mut World<'_>, cuts_at: Option<u32>) -> Result<u32, Violation> {
    for key in LIVE.into_iter().chain([DELETED]) {
        world.put(key, 300)?;
    }
    world.sync()?;
    world.delete(DELETED)?;
    world.sync()?;
    for number in 0..60 {
        if cuts_at == Some(number) {
            begin_cuts(world);
        }
        world.put(if number < 9 { FILLER } else { 100 + number }, 3_000)?;
        world.sync()?;
        world.settle(40);
        if cleaned_bytes(world) > 0 {
            return Ok(number);
        }
    }
    Err(Violation::new("nothing was cleaned"))
}

#[test]
fn all_crashes_of_one_step_of_cleaning_are_survived() {
    let last = Cell::new(0);
    let probe = plan(8, DurableWriteScope::OwnSectors);
    let report = probe.explore(ExploreSettings::exhaustive().with_max_runs(1), &|world, life, _| {
        if life == 0 {
            last.set(clean_one_segment(world, None)?);
        }
        Ok(())
    });
    report.assert_clean();
    println!("the write that makes the first segment be cleaned: {}", last.get());
    explored_exhaustively("cleaning", |scope| plan(8, scope), &|world, life, choices| {
        cleaning(world, life, choices, last.get())
    });
    let broken =
        plan(8, DurableWriteScope::OwnSectors).mutated(&Mutations::one("free_before_copies_durable"));
    assert_caught("free_before_copies_durable", || {
        broken.explore(ExploreSettings::exhaustive(), &|world, life, choices| {
            cleaning(world, life, choices, last.get())
        })
    });
}

fn cleaning(world: &mut World<'_>, life: u32, _: &Choices, cuts_at: u32) -> Result<(), Violation> {
    if life > 0 {
        return afterwards(world);
    }
    clean_one_segment(world, Some(cuts_at))?;
    Violation::unless(cleaned_bytes(world) > 0, || "nothing was moved".to_owned())
}

#[test]
fn all_crashes_of_a_checkpoint_with_a_write_in_flight_are_survived() {
    let with_checkpoints = |scope| {
        let mut plan = plan(10, scope).checkpoints();
        plan.open.shard.checkpoint_idle_ms = 1;
        plan
    };
    explored_exhaustively("checkpoint", with_checkpoints, &|world, life, _| {
        if life > 0 {
            return afterwards(world);
        }
        for key in 1..4 {
            world.put(key, 200)?;
        }
        world.sync()?;
        let before = world.shards[0].engine.statistics().checkpoint_bytes_written;
        begin_cuts(world);
        world.shards[0].now.monotonic_us += 2_000;
        // The checkpoint has begun, and is not whole, when the write comes.
        for _ in 0..3 {
            world.poll();
        }
        let begun = world.shards[0].engine.statistics().checkpoint_bytes_written > before;
        world.put(2, 500)?;
        world.delete(3)?;
        world.sync()?;
        world.shards[0].now.monotonic_us += 2_000;
        world.settle(60);
        let after = world.shards[0].engine.statistics().checkpoint_bytes_written;
        Violation::unless(after > before, || format!("no checkpoint was written (begun: {begun})"))
    });
}

#[test]
fn all_crashes_of_a_batch_over_two_shards_are_survived() {
    let two_shards = |scope| {
        let mut plan = plan(16, scope);
        plan.shards = vec![2];
        plan
    };
    explored_exhaustively("batch over two shards", two_shards, &|world, life, _| {
        if life > 0 {
            return afterwards(world);
        }
        let first = (1..100).find(|&key| world.shard_of(key) == 0).unwrap_or(0);
        let second = (1..100).find(|&key| world.shard_of(key) == 1).unwrap_or(0);
        for key in [first, second] {
            world.put(key, 100)?;
        }
        world.sync()?;
        world.settle(60);
        begin_cuts(world);
        world.write_across(&[(first, Some(200)), (second, Some(300))])?;
        for _ in 0..4 {
            world.poll();
        }
        // What follows from it, in one of the shards.
        world.put(first, 400)?;
        world.sync()?;
        world.settle(60);
        Ok(())
    });
}
