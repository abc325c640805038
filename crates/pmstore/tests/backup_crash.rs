//! Power is lost at any step beside a backup: the store recovers with everything that was acknowledged, and what a whole
//! backup shows was durable by then. Backups over the lives of a store whose blocks are cleaned, that makes checkpoints,
//! or that has two shards.

use crate::common::lives::{Mix, Plan, caught, sampled};
use std::sync::atomic::Ordering;

/// Blocks are cleaned all the time.
fn cleaned() -> Plan {
    let mut plan = Plan::new(256 << 10);
    plan.open.shard.clean_below_blocks = 10_000;
    plan.steps = 6_000;
    plan
}

fn two_shards() -> Plan {
    let mut plan = cleaned();
    plan.open.shard_count = 2;
    plan.bytes *= 2;
    plan
}

/// More keys than a step of a backup reads; some are longer than records hold, and some values, too.
fn mix() -> Mix {
    Mix { operations: 90, keys: 60, value_bytes: 500, backups: 30, steps: 90, ..Mix::default() }
}

#[track_caller]
fn clean(name: &str, own_seed: u64, default_runs: u64, plan: &Plan) {
    let mix = mix();
    sampled(name, own_seed, default_runs, plan, &mix);
    let whole = mix.whole_backups.load(Ordering::Relaxed);
    println!("{name}: {whole} backups were whole");
    assert!(whole > 20, "only {whole} backups were whole");
}

#[test]
fn power_lost_beside_a_backup_costs_nothing() {
    clean("backups, cleaned", 2_000, 120, &cleaned());
}

#[test]
fn nor_beside_checkpoints_or_with_two_shards() {
    clean("backups, checkpoints", 2_100, 100, &cleaned().checkpointed());
    clean("backups, two shards", 2_200, 100, &two_shards());
}

/// A part of a batch is decided when the other shard's is durable, which may be long after a walk of few keys.
#[test]
fn nothing_that_is_not_decided_is_given() {
    caught("backup_given_undecided", &two_shards(), 400, &Mix { keys: 12, batches: 60, ..mix() });
}

#[test]
fn what_is_replaced_before_it_was_read_is_given() {
    caught("replaced_not_kept_for_backup", &cleaned(), 400, &mix());
}

#[test]
fn what_was_read_is_not_given_again() {
    caught("backup_gives_again", &cleaned(), 400, &mix());
}
