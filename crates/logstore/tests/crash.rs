//! Crash exploration of the log store: whatever a loss of power leaves, in work, cleaning or
//! recovery, what was acknowledged is there, the rest is all or nothing and in order, and the
//! store goes on.
//!
//! `TIERSTONE_CRASH_RUNS` sets the runs of each sampled test, `TIERSTONE_CRASH_SEED` which: `bench/explorer --states`
//! sets both.

use crate::common;
use crate::common::lives::{Mix, Plan, Work, World};
use crate::common::sampling;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Violation, sampled_runs, sampled_seed};
use tierstone_engine::conformance::crashes::{CrashSettings, acknowledged_writes_survive_crashes};
use tierstone_engine::harness::Harness;
use tierstone_media::DurableWriteScope;
use tierstone_media::sim::{CutPoints, PowerCut};

/// Explores `work` sampled under both scopes of durable writes and one to three groups in flight.
#[track_caller]
fn sampled(name: &str, seed: u64, default_runs: u64, plan: &Plan, work: Work<'_>) {
    let mut number = 0;
    for scope in [DurableWriteScope::OwnSectors, DurableWriteScope::WholeDevice] {
        for groups in 1..=3 {
            number += 1;
            let plan = plan.clone().scope(scope).groups_in_flight(groups);
            let runs = sampled_runs(default_runs).div_ceil(6);
            let report =
                plan.explore(ExploreSettings::random(sampled_seed(seed + number), runs), work).assert_clean();
            println!("{name}, {scope:?}, {groups} in flight: {report}");
        }
    }
}

#[test]
fn puts_and_deletes_of_few_keys_survive_every_sampled_crash() {
    let mix = Mix::default();
    let plan = Plan::new(32 << 10, 12);
    sampled("single", 100, 1_200, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn batches_over_groups_and_segments_are_all_or_nothing() {
    let mix = Mix {
        batches: 60,
        value_bytes_max: 3_000,
        batch_len_max: 9,
        operations: 24,
        keys: 9,
        ..Mix::default()
    };
    let plan = Plan::new(32 << 10, 16);
    sampled("batches", 200, 1_200, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn cleaning_loses_nothing_and_brings_nothing_back() {
    let mix = Mix { expiring: 8, ..Mix::cleaning() };
    let plan = Plan::new(32 << 10, 9).cut_one_in(400);
    sampled("cleaning", 300, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn recovery_cut_again_and_again_ends_the_same() {
    let mix = Mix { operations: 20, batches: 30, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 10).cut_one_in(40);
    plan.sim.cut_limit = 4;
    plan.sim.end_cuts = 2;
    sampled("recovery", 400, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn any_number_of_shards_opens_the_store_after_a_crash() {
    let mix = Mix { operations: 60, batches: 20, keys: 30, settle_one_in: 10, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 30).cut_one_in(250);
    plan.shards = vec![1, 3, 2, 1, 2];
    plan.sim.end_cuts = 3;
    sampled("shards", 500, 300, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn keys_with_equal_positions_survive_crashes_and_cleaning() {
    let mix = Mix {
        operations: 120,
        keys: 8,
        value_bytes_max: 3_000,
        deletes: 35,
        settle_one_in: 12,
        ..Mix::default()
    };
    let mut plan = Plan::new(32 << 10, 9).cut_one_in(300);
    plan.open.weak_hash_bits = Some(1);
    sampled("collisions", 600, 300, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn a_killed_process_and_a_loss_of_power_after_it_lose_nothing() {
    let mix = Mix { operations: 20, batches: 20, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 12);
    plan.kill_percent = 50;
    sampled("kill", 700, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn an_ordered_keyspace_comes_back_with_its_order() {
    let mix = Mix {
        operations: 100,
        keys: 14,
        value_bytes_max: 2_000,
        batches: 25,
        deletes: 35,
        expiring: 10,
        settle_one_in: 12,
        ..Mix::default()
    };
    let mut plan = Plan::new(32 << 10, 10).cut_one_in(300).ordered();
    sampled("ordered", 800, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
    plan.open.weak_hash_bits = Some(1);
    plan.kill_percent = 30;
    sampled("ordered, collisions", 900, 200, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn an_order_is_rebuilt_for_any_number_of_shards() {
    let mix = Mix { operations: 60, batches: 20, keys: 30, settle_one_in: 10, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 30).cut_one_in(250).ordered();
    plan.shards = vec![1, 3, 2, 1, 2];
    plan.sim.end_cuts = 3;
    sampled("ordered shards", 1_000, 120, &plan, &|world, life, choices| mix.work(world, life, choices));
}

/// Work with pauses, in which checkpoints are written.
fn with_pauses() -> Mix {
    Mix { operations: 60, batches: 20, keys: 14, settle_one_in: 9, ..Mix::default() }
}

#[test]
fn checkpoints_of_the_index_change_nothing_at_any_crash() {
    let mix = with_pauses();
    let mut plan = Plan::new(32 << 10, 24).checkpoints().cut_one_in(120);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    sampled("checkpoints", 800, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn checkpoints_and_cleaning_survive_every_sampled_crash() {
    let mix = Mix {
        operations: 160,
        value_bytes_max: 3_000,
        deletes: 30,
        expiring: 8,
        settle_one_in: 12,
        ..with_pauses()
    };
    let plan = Plan::new(32 << 10, 16).checkpoints().cut_one_in(400);
    sampled("cleaned checkpoints", 900, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn checkpoints_of_many_keys_are_cut_anywhere() {
    let mix = Mix { operations: 90, keys: 1_400, value_bytes_max: 30, settle_one_in: 0, ..with_pauses() };
    let mut plan = Plan::new(128 << 10, 16).checkpoints().cut_one_in(200);
    plan.open.shard.memory_bytes = 1 << 20;
    sampled("large checkpoints", 1_000, 60, &plan, &|world, life, choices| {
        if life == 0 {
            for batch in 0..24 {
                let keys: Vec<_> = (0..50).map(|key| (batch * 50 + key, Some(20))).collect();
                world.write(&keys)?;
            }
        }
        mix.work(world, life, choices)
    });
}

#[test]
fn equal_positions_and_killed_processes_do_not_confuse_a_checkpoint() {
    let mut plan = Plan::new(32 << 10, 24).checkpoints().cut_one_in(150);
    plan.open.weak_hash_bits = Some(1);
    plan.kill_percent = 40;
    plan.sim.cut_limit = 4;
    let mix = Mix { keys: 8, deletes: 35, ..with_pauses() };
    sampled("collided checkpoints", 1_100, 300, &plan, &|world, life, choices| {
        mix.work(world, life, choices)
    });
}

#[test]
fn every_shard_has_its_own_checkpoint() {
    let mut plan = Plan::new(32 << 10, 60).checkpoints().cut_one_in(300);
    plan.shards = vec![2, 2, 2, 3, 2, 2];
    plan.sim.end_cuts = 4;
    let mix = Mix { keys: 30, operations: 80, ..with_pauses() };
    sampled("checkpoints of shards", 1_200, 300, &plan, &|world, life, choices| {
        mix.work(world, life, choices)
    });
}

/// Work of batches over several shards and single writes.
fn across() -> Mix {
    Mix { operations: 40, keys: 14, across: 50, batch_len_max: 5, batches: 10, ..Mix::default() }
}

#[test]
fn batches_over_shards_are_all_or_nothing() {
    let mut plan = Plan::new(32 << 10, 24).cut_one_in(60);
    plan.shards = vec![2];
    let mix = across();
    sampled("across", 800, 1_200, &plan, &|world, life, choices| mix.work(world, life, choices));
    plan.shards = vec![3, 2, 1];
    sampled("across 3", 810, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn batches_over_shards_survive_recovery_cut_again_and_again() {
    let mut plan = Plan::new(32 << 10, 24).cut_one_in(25);
    plan.shards = vec![2];
    (plan.sim.cut_limit, plan.sim.end_cuts) = (5, 2);
    let mix = Mix { operations: 16, across: 70, ..across() };
    sampled("across, cut again", 820, 1_200, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn batches_over_shards_and_segments_survive_with_cleaning() {
    let mut plan = Plan::new(32 << 10, 22).cut_one_in(300);
    plan.shards = vec![2];
    plan.kill_percent = 20;
    let mix = Mix {
        operations: 140,
        value_bytes_max: 3_000,
        batch_len_max: 7,
        deletes: 30,
        settle_one_in: 12,
        ..across()
    };
    sampled("across, cleaning", 830, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn batches_that_one_shard_refuses_are_taken_back() {
    let mut plan = Plan::new(32 << 10, 24).cut_one_in(60);
    plan.shards = vec![2];
    let refused = std::cell::Cell::new(0);
    let mix = Mix { refused: 40, ..across() };
    sampled("across, refused", 840, 1_200, &plan, &|world, life, choices| {
        mix.work(world, life, choices)?;
        refused.set(refused.get() + world.refused());
        Ok(())
    });
    println!("across: {} batches refused", refused.get());
    assert!(refused.get() > 0, "no batch was refused: the test shows nothing");
}

#[test]
fn the_log_store_passes_the_suite_over_crashes() {
    for shards in 1..=2 {
        let mut plan = Plan::new(32 << 10, 24).cut_one_in(60);
        (plan.open.keyspaces, plan.open.shard_count) = (common::ordered_keyspaces(), shards);
        let settings = CrashSettings::new(plan.sim.clone());
        let exploring = ExploreSettings::sampled(850 + u64::from(shards), 60, &Mutations::none());
        let report = acknowledged_writes_survive_crashes(&settings, exploring, &|mut device, medium| {
            let opened = tierstone_logstore::open(&mut device, &plan.open)?;
            let hasher = opened.hasher;
            let harness = |plan: tierstone_logstore::ShardPlan| {
                let mut device = medium.device();
                Ok(Harness::new(plan.build(&mut device)?.0, device, hasher))
            };
            opened.plans.into_iter().map(harness).collect()
        });
        println!("the suite, {shards} shards: {}", report.assert_clean());
    }
}

/// Three puts, one overwritten, a delete: every order of completion and every cut, within two
/// answers other than the quiet ones.
fn few_writes(world: &mut World<'_>, life: u32, _: &Choices) -> Result<(), Violation> {
    if life > 0 {
        return world.prove_alive();
    }
    world.put(1, 40)?;
    world.put(2, 40)?;
    world.poll();
    world.put(1, 600)?;
    world.poll();
    world.write(&[(3, Some(30)), (2, None)])?;
    world.sync()
}

#[test]
fn all_crashes_of_a_few_writes_are_survived() {
    for scope in [DurableWriteScope::OwnSectors, DurableWriteScope::WholeDevice] {
        let mut plan = Plan::new(32 << 10, 6).scope(scope).groups_in_flight(2);
        plan.sim.power_cut = PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in: 1 };
        plan.sim.end_cuts = 0;
        let settings = ExploreSettings::bounded(2).with_max_runs(sampled_runs(20_000));
        let report = plan.explore(settings, &few_writes).assert_clean();
        println!("few writes, {scope:?}: {report}");
    }
}

/// Records that lie scattered are brought together for walks, beside cleaning, checkpoints and whatever else.
#[test]
fn clustered_records_survive_every_sampled_crash() {
    let clustered = std::cell::Cell::new(0);
    let work = |mix: Mix| {
        let clustered = &clustered;
        move |world: &mut World<'_>, life: u32, choices: &Choices| {
            let done = mix.work(world, life, choices);
            clustered.set(clustered.get() + world.clustered_bytes());
            done
        }
    };
    let mix = sampling::walking();
    sampled("clusters", 1_100, 300, &sampling::scattered(30), &work(mix));
    let mut plan = sampling::scattered(40).checkpoints();
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    plan.shards = vec![1, 2, 1];
    let touching = Mix { touches: 30, expiring: 5, batches: 20, across: 10, ..mix };
    sampled("clusters, checkpoints", 1_200, 200, &plan, &work(touching));
    assert!(clustered.get() > 1 << 20, "{} bytes were clustered", clustered.get());
}
