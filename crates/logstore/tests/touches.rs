//! A change of expiry leaves the value where it is: what is written, read, recovered, cleaned, swept, moved and
//! saved then.

use crate::common::lives::{Mix, Plan, TOUCH, Work};
use crate::common::sampling::caught;
use crate::common::{Store, fresh, mutated, reopen, reopen_after_kill, small_settings};
use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, Position};
use tierstone_crash::{ExploreSettings, Mutations, sampled_runs, sampled_seed};
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_logstore::check::{CheckSettings, salvage};
use tierstone_logstore::transfer::{MovedRecord, MovedValue};

const SPACE: KeyspaceId = KeyspaceId(1);

/// Values are touched as by default.
fn usual_settings() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 4 << 20;
    settings.shard.touch_value_bytes_min = 512;
    settings
}

fn put(store: &mut Store, key: &[u8], value: &[u8], expiry_ms: u64) {
    let kind = WriteKind::Put { value, expiry_ms, kind: Default::default() };
    store.write(&[Write { key: store.key(SPACE, key), kind }]).unwrap();
}

/// Writes, and gives the bytes of records that it took.
fn cost_of(store: &mut Store, work: impl FnOnce(&mut Store)) -> u64 {
    let before = store.engine.statistics().record_bytes_written;
    work(store);
    store.engine.statistics().record_bytes_written - before
}

fn expiry(store: &mut Store, key: &[u8]) -> Option<u64> {
    store.get(SPACE, key).unwrap().map(|(meta, _)| meta.expiry_ms)
}

fn value_of(number: u64) -> Vec<u8> {
    (0..1_500u64).map(|at| (at * 7 + number) as u8).collect()
}

/// Writes all over the device several times; what lies there meanwhile is moved.
fn churn(store: &mut Store, rounds: u64) {
    for round in 0..rounds {
        for number in 0..40u64 {
            put(store, &number.to_le_bytes(), &vec![round as u8; 1_500], 0);
        }
        store.sync().unwrap();
        store.settle(200);
    }
}

#[test]
fn another_expiry_of_a_long_value_writes_a_short_record_and_lasts() {
    let (medium, mut store) = fresh(256 << 10, 16, &usual_settings());
    let settings = usual_settings();
    let value = vec![5; 32 << 10];
    put(&mut store, b"long", &value, 0);
    let far = store.now.wall_ms + 1_000_000;
    for (expiry_ms, name) in [(far, "EXPIRE"), (far + 5, "EXPIRE again"), (0, "PERSIST"), (far + 9, "again")]
    {
        let seq = store.engine.applied_seq();
        let cost = cost_of(&mut store, |store| put(store, b"long", &value, expiry_ms));
        assert!((1..1_024).contains(&cost), "{name}: {cost} bytes of records");
        let (meta, found) = store.get(SPACE, b"long").unwrap().unwrap();
        assert_eq!((meta.expiry_ms, found.len()), (expiry_ms, value.len()), "{name}");
        assert!(meta.seq > seq, "{name}: what has seen it waits for it");
    }
    let cost = cost_of(&mut store, |store| put(store, b"long", &value, far + 9));
    assert!(cost > 32 << 10, "the same again is a write as any: {cost} bytes");
    put(&mut store, b"long", &value, far + 10);
    store.sync().unwrap();
    let mut store = reopen_after_kill(store, &medium, &settings);
    assert_eq!(expiry(&mut store, b"long"), Some(far + 10));
    let mut store = reopen(store, &medium, &settings);
    assert_eq!(expiry(&mut store, b"long"), Some(far + 10));
    assert_eq!(store.scan_all(SPACE, 9).unwrap()[0].meta.expiry_ms, far + 10);
    let cost = cost_of(&mut store, |store| put(store, b"long", &value, 0));
    assert!(cost < 1_024, "{cost} bytes after a restart");
}

#[test]
fn short_values_are_written_again() {
    let (_medium, mut store) = fresh(256 << 10, 16, &usual_settings());
    let far = store.now.wall_ms + 1_000_000;
    put(&mut store, b"short", &[5; 500], 0);
    let cost = cost_of(&mut store, |store| put(store, b"short", &[5; 500], far));
    assert!(cost > 500, "{cost} bytes");
    assert_eq!(expiry(&mut store, b"short"), Some(far));
}

#[test]
fn another_value_of_the_same_length_is_written() {
    let (_medium, mut store) = fresh(256 << 10, 16, &small_settings());
    let far = store.now.wall_ms + 1_000_000;
    put(&mut store, b"key", &[5; 2_000], 0);
    let mut other = vec![5; 2_000];
    other[1_999] = 6;
    put(&mut store, b"key", &other, far);
    assert_eq!(store.get(SPACE, b"key").unwrap().unwrap().1, other);
    assert_eq!(expiry(&mut store, b"key"), Some(far));
}

#[test]
fn values_beyond_the_bound_of_the_table_are_written_again() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 1 << 20;
    let (medium, mut store) = fresh(256 << 10, 64, &settings);
    let far = store.now.wall_ms + 1_000_000;
    let value = [3; 600];
    for round in 0..2 {
        for number in 0..600u64 {
            put(&mut store, &number.to_le_bytes(), &value, far + number * round);
        }
    }
    let bound = (1 << 20) / 32;
    let cost = cost_of(&mut store, |store| {
        for number in 0..600u64 {
            put(store, &number.to_le_bytes(), &value, far + 7 + number);
        }
    });
    let (touched, rewritten) = (bound / 112, 600 - bound / 112);
    let least = rewritten * 640;
    assert!((least..least + touched * 128).contains(&cost), "{cost} bytes, at least {least} expected");
    store.sync().unwrap();
    let mut store = reopen_after_kill(store, &medium, &settings);
    for number in 0..600u64 {
        assert_eq!(expiry(&mut store, &number.to_le_bytes()), Some(far + 7 + number));
    }
}

/// Values that stay, touched, while all around them is written again and again.
fn cleaned(settings: &OpenSettings, reopens: u32) -> bool {
    let (medium, mut store) = fresh(64 << 10, 16, settings);
    let far = store.now.wall_ms + 1_000_000;
    let key = |number: u64| format!("stays{number}").into_bytes();
    for number in 0..20 {
        put(&mut store, &key(number), &value_of(number), far * (number % 2));
    }
    let (mut right, mut cleaned_bytes) = (true, 0);
    for round in 0..reopens {
        for number in 0..20 {
            if number % 3 != u64::from(round) % 3 {
                let expiry_ms = if number % 4 == 0 { 0 } else { far + u64::from(round) * 100 + number };
                put(&mut store, &key(number), &value_of(number), expiry_ms);
            }
        }
        let wanted: Vec<Option<u64>> = (0..20).map(|number| expiry(&mut store, &key(number))).collect();
        churn(&mut store, 3);
        store.engine.begin_compact().unwrap();
        store.settle(2_000);
        churn(&mut store, 3);
        cleaned_bytes += store.engine.statistics().cleaned_bytes_written;
        let found: Vec<Option<u64>> = (0..20).map(|number| expiry(&mut store, &key(number))).collect();
        right &= wanted == found;
        store = match round % 2 {
            0 => reopen_after_kill(store, &medium, settings),
            _ => reopen(store, &medium, settings),
        };
        let found: Vec<Option<u64>> = (0..20).map(|number| expiry(&mut store, &key(number))).collect();
        right &= wanted == found;
        for number in 0..20 {
            right &= store.get(SPACE, &key(number)).unwrap().is_some_and(|found| found.1 == value_of(number));
        }
    }
    assert!(cleaned_bytes > 40_000, "{cleaned_bytes} bytes were moved");
    right
}

#[test]
fn touches_and_their_values_are_moved_and_count_on() {
    assert!(cleaned(&small_settings(), 6));
}

#[test]
fn a_snapshot_shows_the_expiry_of_its_cut() {
    for (settings, right) in [(small_settings(), true), (mutated("snapshot_sees_touch"), false)] {
        let (_medium, mut store) = fresh(64 << 10, 16, &settings);
        let far = store.now.wall_ms + 1_000_000;
        put(&mut store, b"key", &value_of(1), 0);
        put(&mut store, b"key", &value_of(1), far);
        let before = store.engine.snapshot(store.now).unwrap();
        put(&mut store, b"key", &value_of(1), far + 1);
        let at = |store: &mut Store, snapshot| {
            store.get_at(snapshot, SPACE, b"key").unwrap().unwrap().meta.expiry_ms
        };
        assert_eq!(at(&mut store, before) == far, right);
        let walked = store.scan_all_at(Some(before), SPACE, 9, |_| {}).unwrap();
        assert_eq!(walked[0].meta.expiry_ms == far, right);
        assert_eq!(expiry(&mut store, b"key"), Some(far + 1));
        store.engine.release_snapshot(before);
        store.settle(100);
        // What a snapshot keeps, it shows with the touch that counted.
        put(&mut store, b"key", &value_of(1), far + 2);
        let after = store.engine.snapshot(store.now).unwrap();
        put(&mut store, b"key", b"new", 0);
        churn(&mut store, 3);
        assert_eq!(at(&mut store, after), far + 2);
        store.engine.release_snapshot(after);
        store.settle(100);
    }
}

/// Keys whose touch lets them live longer, and shorter, than their records say.
fn expires_as_touched(settings: &OpenSettings, reopens: bool) -> (usize, usize, u64) {
    let (medium, mut store) = fresh(64 << 10, 40, settings);
    let start = store.now.wall_ms;
    for number in 0..30u64 {
        put(&mut store, format!("longer{number}").as_bytes(), &value_of(number), start + 5_000);
        put(&mut store, format!("shorter{number}").as_bytes(), &value_of(number), 0);
        // What makes a sweep of the segment worth while.
        put(&mut store, format!("loose{number}").as_bytes(), &value_of(number), start + 5_000);
    }
    for number in 0..30u64 {
        put(&mut store, format!("longer{number}").as_bytes(), &value_of(number), start + 500_000);
        put(&mut store, format!("shorter{number}").as_bytes(), &value_of(number), start + 5_000);
    }
    store.sync().unwrap();
    if reopens {
        store = reopen_after_kill(store, &medium, settings);
    }
    store.now.wall_ms = start + 60_000;
    churn(&mut store, 2);
    for _ in 0..300 {
        store.now.monotonic_us += 100_000;
        store.settle(50);
    }
    let keys = store.engine.statistics().keys;
    let mut count = |name: &str| {
        (0..30u64).filter(|number| expiry(&mut store, format!("{name}{number}").as_bytes()).is_some()).count()
    };
    (count("longer"), count("shorter"), keys)
}

#[test]
fn what_is_touched_expires_when_its_touch_says() {
    for reopens in [false, true] {
        let (longer, shorter, keys) = expires_as_touched(&small_settings(), reopens);
        assert_eq!((longer, shorter), (30, 0), "reopened: {reopens}");
        // Most of what has expired left the index, unread: 40 keys of the churn, 30 that last.
        assert!(keys < 40 + 30 + 15, "{keys} keys, reopened: {reopens}");
    }
}

#[test]
fn a_sweep_that_ignores_touches_is_seen() {
    let (longer, ..) = expires_as_touched(&mutated("sweep_ignores_touches"), false);
    assert!(longer < 30, "{longer}");
}

#[test]
fn what_was_seen_expired_by_its_touch_stays_gone_when_the_clock_is_set_back() {
    let settings = small_settings();
    let (medium, mut store) = fresh(64 << 10, 16, &settings);
    let start = store.now.wall_ms;
    put(&mut store, b"key", &value_of(1), start + 900_000);
    put(&mut store, b"key", &value_of(1), start + 10);
    put(&mut store, b"other", &value_of(2), start + 5);
    put(&mut store, b"other", &value_of(2), start + 900_000);
    store.sync().unwrap();
    store.now.wall_ms += 1_000;
    assert_eq!(expiry(&mut store, b"key"), None);
    store.sync().unwrap();
    store.now.wall_ms = start - 5_000;
    let mut store = reopen_after_kill(store, &medium, &settings);
    assert_eq!(expiry(&mut store, b"key"), None);
    assert_eq!(expiry(&mut store, b"other"), Some(start + 900_000));
}

#[test]
fn what_is_saved_from_a_store_has_its_touched_expiry() {
    let settings = small_settings();
    let (medium, mut store) = fresh(64 << 10, 16, &settings);
    let far = store.now.wall_ms + 1_000_000;
    for number in 0..10u64 {
        put(&mut store, &number.to_le_bytes(), &value_of(number), 0);
        put(&mut store, &number.to_le_bytes(), &value_of(number), far);
        put(&mut store, &number.to_le_bytes(), &value_of(number), far + number);
    }
    // A touch of what is no longer there.
    put(&mut store, &0u64.to_le_bytes(), &value_of(77), 0);
    let store = reopen(store, &medium, &settings);
    drop(store);
    let mut saved = BTreeMap::new();
    let mut device = medium.device();
    let report = salvage(&mut device, &CheckSettings::default(), &mut |_| {}, &mut |record| {
        saved.insert(record.key.to_vec(), (record.expiry_ms, record.value.to_vec()));
        Ok(())
    });
    let report = report.unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.live_keys, 10);
    let expected: BTreeMap<_, _> = (0..10u64)
        .map(|number| match number {
            0 => (number.to_le_bytes().to_vec(), (0, value_of(77))),
            _ => (number.to_le_bytes().to_vec(), (far + number, value_of(number))),
        })
        .collect();
    assert_eq!(saved, expected);
}

#[test]
fn what_moves_to_another_shard_has_its_touched_expiry() {
    let (_medium, mut store) = fresh(64 << 10, 16, &small_settings());
    let far = store.now.wall_ms + 1_000_000;
    for number in 0..20u64 {
        put(&mut store, &number.to_le_bytes(), &value_of(number), 0);
        put(&mut store, &number.to_le_bytes(), &value_of(number), far + number);
    }
    store.sync().unwrap();
    store.engine.begin_split((Position(0), Position(u64::MAX))).unwrap();
    let mut moved = Vec::new();
    let mut expected = BTreeMap::new();
    for round in 0..2u64 {
        for number in 0..20u64 {
            if round == 1 && number % 2 == 0 {
                put(&mut store, &number.to_le_bytes(), &value_of(number), far + 100 + number);
            }
            let expiry_ms = if number % 2 == 0 { far + 100 + number } else { far + number };
            expected.insert(number.to_le_bytes().to_vec(), expiry_ms);
        }
        for _ in 0..200 {
            store.turn(tierstone_media::Wait::One);
            store.engine.take_moved(usize::MAX, usize::MAX, &mut moved);
        }
    }
    assert!(store.engine.split_progress().unwrap().caught_up);
    let mut got = BTreeMap::new();
    for record in moved {
        got.insert(record.key, record.put.unwrap().expiry_ms);
    }
    assert_eq!(got, expected);
}

#[test]
fn what_the_cleaner_deletes_as_expired_does_not_win_over_what_a_merge_brings() {
    for (settings, right) in [(small_settings(), true), (mutated("merge_misses_expired"), false)] {
        let (_medium, mut store) = fresh(64 << 10, 16, &settings);
        let start = store.now.wall_ms;
        put(&mut store, b"key", &value_of(1), 0);
        put(&mut store, b"key", &value_of(1), start + 10);
        for number in 0..20u64 {
            put(&mut store, &number.to_le_bytes(), &value_of(number), 0);
        }
        store.sync().unwrap();
        store.now.wall_ms = start + 5_000;
        store.engine.begin_merge((Position(0), Position(u64::MAX))).unwrap();
        let before = store.engine.statistics().expired_keys;
        // The segment has a hole by now.
        store.delete(SPACE, &3u64.to_le_bytes()).unwrap();
        for number in 10..20u64 {
            store.delete(SPACE, &number.to_le_bytes()).unwrap();
        }
        store.engine.begin_compact().unwrap();
        store.settle(2_000);
        assert!(store.engine.statistics().expired_keys > before, "the cleaner has not met the key");
        let put = MovedValue { value: value_of(2), expiry_ms: 0, kind: Default::default() };
        let moved = MovedRecord { keyspace: SPACE, key: b"key".to_vec(), put: Some(put) };
        store.engine.ingest(store.now, &[moved]).unwrap();
        let found = store.get(SPACE, b"key").unwrap().map(|(_, value)| value);
        assert_eq!(found == Some(value_of(2)), right);
    }
}

#[test]
fn a_dropped_keyspace_takes_its_touches_along() {
    let settings = small_settings();
    let (_medium, mut store) = fresh(64 << 10, 16, &settings);
    let far = store.now.wall_ms + 1_000_000;
    let empty = store.engine.statistics().index_bytes;
    for number in 0..10u64 {
        put(&mut store, &number.to_le_bytes(), &value_of(number), 0);
        put(&mut store, &number.to_le_bytes(), &value_of(number), far);
    }
    store.engine.drop_keyspace(SPACE);
    store.settle(200);
    assert_eq!(store.engine.statistics().index_bytes - store.engine.mark_bytes(), empty);
    assert_eq!(store.engine.statistics().space_live_bytes, 0);
}

/// Touches before, in and after a checkpoint; gives whether a killed store has come back from it, and all
/// expiries.
fn checkpointed(mutations: Mutations) -> (bool, bool) {
    let mut settings = small_settings();
    settings.mutations = mutations;
    settings.shard.memory_bytes = 4 << 20;
    settings.shard.checkpoint_idle_ms = 0;
    settings.shard.checkpoint_tail_records_min = 1;
    settings.shard.checkpoint_step_bytes = 200;
    let (medium, mut store) = fresh(64 << 10, 60, &settings);
    let far = store.now.wall_ms + 1_000_000;
    let key = |number: u64| format!("key{number}").into_bytes();
    for number in 0..100 {
        put(&mut store, &key(number), &value_of(number), 0);
    }
    for number in 0..60 {
        put(&mut store, &key(number), &value_of(number), far + number);
    }
    store.sync().unwrap();
    store.settle(2_000);
    assert!(store.engine.statistics().checkpoint_bytes_written > 0);
    // Touched again, touched first, overwritten, deleted, new and touched.
    let mut expected: BTreeMap<u64, Option<u64>> =
        (0..100).map(|number| (number, Some(if number < 60 { far + number } else { 0 }))).collect();
    for number in [0, 1, 2, 70, 71] {
        put(&mut store, &key(number), &value_of(number), far + 1_000 + number);
        expected.insert(number, Some(far + 1_000 + number));
    }
    put(&mut store, &key(3), b"other", 0);
    expected.insert(3, Some(0));
    store.delete(SPACE, &key(4)).unwrap();
    expected.insert(4, None);
    put(&mut store, &key(200), &value_of(200), 0);
    put(&mut store, &key(200), &value_of(200), far + 7);
    expected.insert(200, Some(far + 7));
    // Not so long that another checkpoint is made.
    store.sync().unwrap();
    let now = store.now;
    drop(store);
    let mut device = medium.kill_process();
    let mut opened = tierstone_logstore::open(&mut device, &settings).unwrap();
    let (shard, report) = opened.plans.pop().unwrap().build(&mut device).unwrap();
    let mut store = tierstone_engine::harness::Harness::new(shard, device, opened.hasher);
    store.now = now;
    let right = expected.iter().all(|(&number, wanted)| expiry(&mut store, &key(number)) == *wanted);
    if right {
        // Nothing of the accounts is wrong either: what is touched can be touched, moved and deleted.
        churn(&mut store, 4);
        let again = expected.iter().all(|(&number, wanted)| expiry(&mut store, &key(number)) == *wanted);
        assert!(again);
    }
    (report.from_checkpoint, right)
}

#[test]
fn a_checkpoint_carries_what_touches_say() {
    assert_eq!(checkpointed(Mutations::none()), (true, true));
}

#[test]
fn a_checkpoint_without_touches_is_seen() {
    assert_eq!(checkpointed(Mutations::one("checkpoint_without_touches")), (true, false));
}

/// A verification finds nothing in a store with touches.
#[test]
fn a_verification_takes_touches_for_what_they_are() {
    let settings = small_settings();
    let (medium, mut store) = fresh(64 << 10, 24, &settings);
    let far = store.now.wall_ms + 1_000_000;
    for number in 0..20u64 {
        put(&mut store, &number.to_le_bytes(), &value_of(number), 0);
        put(&mut store, &number.to_le_bytes(), &value_of(number), far + number);
    }
    store.delete(SPACE, &3u64.to_le_bytes()).unwrap();
    let mut store = reopen(store, &medium, &settings);
    store.engine.begin_verification().unwrap();
    for _ in 0..2_000 {
        store.turn(tierstone_media::Wait::One);
    }
    let report = store.engine.verification().unwrap();
    assert!(!report.is_running && report.findings.is_empty(), "{report:?}");
    assert_eq!(report.live_records, 19);
}

/// Explores `mix` sampled with one to three groups in flight.
#[track_caller]
fn sampled(name: &str, seed: u64, default_runs: u64, plan: &Plan, mix: Mix) {
    let work: Work<'_> = &|world, life, choices| mix.work(world, life, choices);
    for groups in 1..=3 {
        let plan = plan.clone().groups_in_flight(groups);
        let settings = ExploreSettings::random(
            sampled_seed(seed + groups as u64),
            sampled_runs(default_runs).div_ceil(3),
        );
        let report = plan.explore(settings, work).assert_clean();
        println!("{name}, {groups} in flight: {report}");
    }
}

fn roomy(plan: Plan) -> Plan {
    let mut plan = plan;
    // A table of some twenty values.
    plan.open.shard.memory_bytes = 80 << 10;
    plan
}

fn cleaning() -> Mix {
    Mix { deletes: 15, expiring: 8, touches: 45, ..Mix::cleaning() }
}

fn touching() -> Mix {
    Mix { touches: 50, deletes: 10, batches: 15, ..Mix::default() }
}

#[test]
fn touches_survive_every_sampled_crash() {
    sampled("touches", 7_000, 600, &roomy(Plan::new(32 << 10, 12)), touching());
}

#[test]
fn touches_survive_crashes_while_segments_are_cleaned() {
    let mut plan = roomy(Plan::new(32 << 10, 10).cut_one_in(400));
    sampled("touches, cleaning", 7_100, 300, &plan, cleaning());
    plan.set_back_ms = 10_000;
    plan.open.weak_hash_bits = Some(1);
    sampled("touches, cleaning, collisions", 7_200, 150, &plan, cleaning());
}

#[test]
fn touches_survive_crashes_with_snapshots_and_an_order() {
    let plan = roomy(Plan::new(32 << 10, 16).cut_one_in(300).ordered());
    let mix = Mix { snapshots: 8, compactions: 2, ..cleaning() };
    sampled("touches, snapshots", 7_300, 120, &plan, mix);
}

#[test]
fn touches_survive_crashes_around_checkpoints() {
    let mut plan = roomy(Plan::new(32 << 10, 24).checkpoints().cut_one_in(120));
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    sampled(
        "touches, checkpoints",
        7_400,
        300,
        &plan,
        Mix { operations: 60, settle_one_in: 9, ..touching() },
    );
}

#[test]
fn touches_in_batches_over_shards_are_all_or_nothing() {
    let mut plan = roomy(Plan::new(32 << 10, 24).cut_one_in(60));
    plan.shards = vec![2];
    let mix = Mix { operations: 40, keys: 14, across: 60, batch_len_max: 5, refused: 10, ..touching() };
    sampled("touches, two shards", 7_500, 300, &plan, mix);
    plan = roomy(Plan::new(32 << 10, 30).cut_one_in(250));
    plan.shards = vec![1, 3, 2, 1, 2];
    plan.sim.end_cuts = 3;
    let mix = Mix { operations: 60, keys: 30, settle_one_in: 10, ..touching() };
    sampled("touches, any number of shards", 7_600, 150, &plan, mix);
}

#[test]
fn a_touch_counts_for_the_version_that_it_names() {
    caught("touch_of_any_version", &roomy(Plan::new(32 << 10, 12)), 300, &|world, life, choices| {
        touching().work(world, life, choices)
    });
}

#[test]
fn the_newest_touch_counts() {
    caught("older_touch_wins", &roomy(Plan::new(32 << 10, 12)), 300, &|world, life, choices| {
        touching().work(world, life, choices)
    });
}

#[test]
fn a_touch_that_counts_is_moved() {
    let plan = roomy(Plan::new(32 << 10, 10).cut_one_in(400));
    caught("touch_dropped_by_cleaner", &plan, 500, &|world, life, choices| {
        cleaning().work(world, life, choices)
    });
}

#[test]
fn a_moved_touch_is_durable_before_its_segment_is_free() {
    let plan = roomy(Plan::new(32 << 10, 10).cut_one_in(300));
    caught("free_before_copies_durable", &plan, 1_000, &|world, life, choices| {
        // Values that stay, and touches of them in segments that are emptied.
        for key in 0..4 {
            world.put(1_000 + life * 4 + key, 2_500)?;
        }
        for round in 0..60u32 {
            if round % 8 == 0 {
                world.touch(1_000 + life * 4 + round / 8 % 4)?;
            }
            world.put(round % 6, 2_500)?;
            if choices.choose(3, "sync") == 0 {
                world.sync()?;
                world.settle(20);
            }
        }
        world.sync()
    });
}

#[test]
fn what_ends_a_touched_value_is_durable_before_a_checkpoint_without_its_touch() {
    let mut plan = roomy(Plan::new(32 << 10, 24).checkpoints().cut_one_in(120)).groups_in_flight(3);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    let mix = Mix { operations: 60, settle_one_in: 9, ..touching() };
    caught("touches_before_flush", &plan, 2_000, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn touches_of_a_batch_without_its_end_do_not_count() {
    let plan = roomy(Plan::new(32 << 10, 12).groups_in_flight(3));
    caught("keep_partial_batches", &plan, 1_000, &|world, _, choices| {
        for key in 0..12 {
            world.put(key, 300)?;
        }
        world.sync()?;
        for _ in 0..6 {
            // Over several groups, the first of them of touches.
            let touches = (0..8).map(|key| (key, Some(TOUCH)));
            let batch: Vec<_> =
                touches.clone().chain((8..12).map(|key| (key, Some(3_500)))).chain(touches).collect();
            world.write(&batch)?;
            if choices.choose(2, "poll") == 1 {
                world.poll();
            }
        }
        world.sync()
    });
}

#[test]
fn touches_of_a_batch_that_misses_a_part_do_not_count() {
    let mut plan = roomy(Plan::new(32 << 10, 24).cut_one_in(60));
    plan.shards = vec![2];
    caught("keep_undecided_batches", &plan, 500, &|world, _, choices| {
        for key in 0..8 {
            world.put(key, 300)?;
        }
        world.sync()?;
        for _ in 0..8 {
            let batch: Vec<_> = (0..8).map(|key| (key, Some(TOUCH))).collect();
            world.write_across(&batch)?;
            if choices.choose(2, "poll") == 1 {
                world.poll();
            }
        }
        world.sync()
    });
}

#[test]
fn a_value_that_may_become_void_is_written_again() {
    let mut plan = roomy(Plan::new(32 << 10, 24).cut_one_in(60));
    plan.shards = vec![2];
    let mix = Mix { operations: 40, keys: 14, across: 60, batch_len_max: 5, refused: 10, ..touching() };
    caught("touch_of_undecided", &plan, 1_000, &|world, life, choices| mix.work(world, life, choices));
}

/// Values with touches that make them expire lie in segments that stay for a while; the touches lie elsewhere.
#[test]
fn what_a_touch_has_made_expire_goes_by_a_tombstone() {
    let plan = roomy(Plan::new(32 << 10, 24).cut_one_in(400));
    caught("touched_goes_without_trace", &plan, 600, &|world, life, choices| {
        let keys = life * 20..life * 20 + 6;
        for number in keys.clone() {
            world.retime(number, 700, &[None])?;
        }
        for number in 0..12 {
            world.put(1_000 + number, 2_500)?;
        }
        for number in keys {
            world.retime(number, 700, &[Some(10)])?;
        }
        for number in 0..(choices.choose(24, "writes") as u32) {
            world.put(2_000 + number % 6, 2_500)?;
        }
        world.sync()?;
        world.advance(4_000);
        world.shards[0].now.monotonic_us += 2_000_000;
        world.settle(60);
        for number in 0..24 {
            world.put(1_000 + number % 12, 2_500)?;
        }
        world.sync()?;
        world.settle(100);
        Ok(())
    });
}
