//! Expiry that was seen does not come back, whatever the wall clock is set to.

use crate::common;
use crate::common::lives::Plan;
use crate::common::{Store, fresh, mutated, reopen, reopen_after_kill, small_settings};
use std::ops::Bound::Unbounded;
use tierstone_base::KeyspaceId;
use tierstone_crash::{ExploreSettings, Mutations, assert_caught};
use tierstone_engine::{Direction, Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;

const SPACE: KeyspaceId = KeyspaceId(1);

fn put_for(store: &mut Store, key: &[u8], for_ms: u64) {
    let kind =
        WriteKind::Put { value: &[7; 40], expiry_ms: store.now.wall_ms + for_ms, kind: Default::default() };
    store.write(&[Write { key: store.key(SPACE, key), kind }]).unwrap();
}

fn is_there(store: &mut Store, key: &[u8]) -> bool {
    store.get(SPACE, key).unwrap().is_some()
}

/// Writes all over the device several times.
fn churn(store: &mut Store, rounds: u64) {
    for round in 0..rounds {
        for number in 0..40u64 {
            store.put(SPACE, &number.to_le_bytes(), &vec![round as u8; 1_500]).unwrap();
        }
        store.sync().unwrap();
        store.settle(200);
    }
}

#[test]
fn a_key_that_was_seen_expired_stays_gone_when_the_clock_is_set_back() {
    let settings = small_settings();
    let (medium, mut store) = fresh(64 << 10, 12, &settings);
    put_for(&mut store, b"first", 10);
    put_for(&mut store, b"second", 20);
    put_for(&mut store, b"third", 30);
    store.sync().unwrap();
    // The clock ran ahead; of what would have expired by it only what was shown has.
    store.now.wall_ms += 1_000;
    assert!(!is_there(&mut store, b"second"));
    store.sync().unwrap();
    store.now.wall_ms -= 5_000;
    let mut store = reopen_after_kill(store, &medium, &settings);
    assert!(!is_there(&mut store, b"second"));
    assert!(!is_there(&mut store, b"first"), "an earlier expiry is past as well");
    assert!(is_there(&mut store, b"third"), "a later one is not");
}

#[test]
fn what_a_walk_and_a_range_leave_out_stays_gone() {
    let mut settings = small_settings();
    settings.keyspaces = common::ordered_keyspaces();
    let (medium, mut store) = fresh(64 << 10, 12, &settings);
    put_for(&mut store, b"ranged", 10);
    store.sync().unwrap();
    store.now.wall_ms += 1_000;
    assert!(store.range_all(SPACE, Unbounded, Unbounded, 10, Direction::Forward).unwrap().is_empty());
    let seq = store.engine.applied_seq();
    assert!(store.engine.durable_seq() < seq, "the answer waits");
    put_for(&mut store, b"walked", 10);
    store.sync().unwrap();
    store.now.wall_ms += 1_000;
    let walked = store.scan_all(SPACE, 10).unwrap();
    let expiry_ms = walked.iter().map(|entry| entry.meta.expiry_ms).max().unwrap();
    store.engine.note_past(expiry_ms);
    assert!(store.engine.durable_seq() < store.engine.applied_seq(), "the answer waits");
    store.sync().unwrap();
    store.now.wall_ms -= 10_000;
    let mut store = reopen(store, &medium, &settings);
    assert!(!is_there(&mut store, b"ranged") && !is_there(&mut store, b"walked"));
    assert!(store.range_all(SPACE, Unbounded, Unbounded, 10, Direction::Forward).unwrap().is_empty());
}

#[test]
fn what_was_shown_costs_one_group_a_step_and_nothing_again() {
    let (_medium, mut store) = fresh(64 << 10, 12, &small_settings());
    for number in 0..50u32 {
        put_for(&mut store, &number.to_le_bytes(), 10 + u64::from(number));
    }
    store.put(SPACE, b"lasts", b"value").unwrap();
    store.sync().unwrap();
    let before = (store.engine.statistics().groups, store.engine.applied_seq());
    assert!(is_there(&mut store, b"lasts") && !is_there(&mut store, b"never"));
    store.sync().unwrap();
    store.settle(20);
    assert_eq!((store.engine.statistics().groups, store.engine.applied_seq()), before);
    store.now.wall_ms += 1_000;
    for number in 0..50u32 {
        assert!(!is_there(&mut store, &number.to_le_bytes()));
    }
    store.sync().unwrap();
    for number in 0..50u32 {
        assert!(!is_there(&mut store, &number.to_le_bytes()));
    }
    store.sync().unwrap();
    store.settle(20);
    let after = store.engine.statistics().groups;
    // Records of that time that were not in memory were read in steps of their own.
    assert!(after > before.0 && after - before.0 <= 3, "{} groups", after - before.0);
    assert!(store.engine.applied_seq() - before.1 <= 3);
}

#[test]
fn cleaning_and_openings_keep_what_was_shown() {
    let settings = small_settings();
    let (medium, mut store) = fresh(64 << 10, 12, &settings);
    put_for(&mut store, b"short", 10);
    churn(&mut store, 1);
    let expiry_ms = store.now.wall_ms + 10;
    store.now.wall_ms += 1_000;
    assert!(!is_there(&mut store, b"short"));
    store.sync().unwrap();
    store.now.wall_ms -= 5_000;
    for _ in 0..3 {
        assert_eq!(store.engine.past_ms(), expiry_ms);
        churn(&mut store, 20);
        store = reopen_after_kill(store, &medium, &settings);
        assert_eq!(store.engine.past_ms(), expiry_ms);
        store = reopen(store, &medium, &settings);
    }
    assert!(!is_there(&mut store, b"short"));
}

#[test]
fn what_a_segment_without_records_says_outlives_it() {
    let settings = small_settings();
    let (medium, mut store) = fresh(64 << 10, 12, &settings);
    put_for(&mut store, b"short", 10);
    store.sync().unwrap();
    let mut store = reopen(store, &medium, &settings);
    store.now.wall_ms += 1_000;
    assert!(!is_there(&mut store, b"short"));
    store.sync().unwrap();
    let past_ms = store.engine.past_ms();
    for _ in 0..3 {
        store = reopen_after_kill(store, &medium, &settings);
        assert_eq!(store.engine.past_ms(), past_ms);
    }
}

#[test]
fn a_full_store_goes_on_showing_what_expires() {
    let mut settings = small_settings();
    settings.shard.checkpoint_idle_ms = 3_600_000;
    let (_medium, mut store) = fresh(64 << 10, 12, &settings);
    for number in 0..500u64 {
        put_for(&mut store, &(1_000_000 + number).to_le_bytes(), 10 + number);
    }
    for number in 0u64.. {
        if store.put(SPACE, &number.to_le_bytes(), &vec![1; 1_000]).is_err() {
            break;
        }
    }
    let _ = store.sync();
    for number in 0..500u64 {
        store.now.wall_ms += 1;
        if number >= 10 {
            assert!(!is_there(&mut store, &(1_000_000 + number - 10).to_le_bytes()), "{number}");
            store.sync().unwrap();
        }
    }
    store.delete(SPACE, &1u64.to_le_bytes()).unwrap();
    store.sync().unwrap();
}

fn plan(one_in: u64) -> Plan {
    Plan { set_back_ms: 200, ..Plan::new(32 << 10, 9).cut_one_in(one_in) }
}

#[test]
fn crashes_bring_nothing_back_that_was_seen_expired() {
    let sampled = |seed, runs| ExploreSettings::sampled(seed, runs, &Mutations::none());
    let runs = ExploreSettings { max_minimise_runs: 20, ..sampled(76, 300) };
    plan(200).explore(runs.clone(), &common::sampling::expiring).assert_clean();
    let two = Plan { shards: vec![2, 1, 3], ..Plan::new(32 << 10, 24).cut_one_in(300) };
    let two = Plan { set_back_ms: 200, ..two.checkpoints() };
    let runs = ExploreSettings { max_minimise_runs: 20, ..sampled(77, 100) };
    two.explore(runs, &common::sampling::expiring).assert_clean();
}

/// The rule `name`, switched off, is missed within `runs`.
#[track_caller]
fn caught(name: &'static str, plan: Plan, runs: u64) {
    let settings = || ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(4711, runs) };
    let mutated = plan.clone().mutated(&Mutations::one(name));
    let report = assert_caught(name, || mutated.explore(settings(), &common::sampling::expiring));
    let tried = report.found.map_or(runs, |found| found.run + 1);
    plan.explore(ExploreSettings::random(4711, tried), &common::sampling::expiring).assert_clean();
}

#[test]
fn an_answer_that_a_key_has_expired_waits_until_that_is_durable() {
    caught("past_not_gated", plan(60), 500);
}

/// The segment that says that a key has expired is emptied and freed; the key's own segment, with so many other
/// `records`, may be left as it is.
fn stays_gone_when_compacted(settings: &OpenSettings, records: u64) -> bool {
    let (medium, mut store) = fresh(64 << 10, 12, settings);
    put_for(&mut store, b"short", 10);
    for number in 0..records {
        store.put(SPACE, &number.to_le_bytes(), &vec![1; 1_500]).unwrap();
    }
    store.sync().unwrap();
    let mut store = reopen(store, &medium, settings);
    store.now.wall_ms += 1_000;
    assert!(!is_there(&mut store, b"short"));
    store.sync().unwrap();
    let free = store.engine.statistics().space_used_bytes;
    store.engine.begin_compact().unwrap();
    store.settle(500);
    assert!(store.engine.statistics().space_used_bytes <= free, "a segment came free for another at most");
    store.now.wall_ms -= 10_000;
    let mut store = reopen_after_kill(store, &medium, settings);
    !is_there(&mut store, b"short")
}

#[test]
fn a_segment_is_freed_when_another_says_what_it_says_of_expiry() {
    assert!((20..40).all(|records| stays_gone_when_compacted(&small_settings(), records)));
    let broken = mutated("past_lost_in_cleaning");
    assert!(!(20..40).all(|records| stays_gone_when_compacted(&broken, records)), "the rule is not needed");
}

#[test]
fn what_the_cleaner_drops_counts_as_shown() {
    caught("past_not_noted_by_cleaner", plan(200), 2_000);
}

#[test]
fn the_superblock_says_at_opening_what_the_segments_say_of_expiry() {
    caught("past_not_noted_at_open", plan(200), 1_000);
}

#[test]
fn the_superblock_says_it_before_a_segment_without_records_is_freed() {
    caught("past_freed_before_noted", plan(60), 2_000);
}
