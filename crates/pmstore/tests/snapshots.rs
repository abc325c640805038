//! Snapshots of the store in persistent memory: exact under cleaning, bounded, lost with a clear word and never wrong.

use crate::common;
use crate::common::lives::{Mix, Plan, sampled};
use crate::common::{Store, fresh, random_settings, reopen_after_kill, small_settings};
use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::conformance::{self, ModelSettings};
use tierstone_engine::{
    BatchTicket, Direction, Durability, Engine, RangeRequest, SnapshotId, Write, WriteKind,
};
use tierstone_media::Wait;
use tierstone_pmstore::OpenSettings;

/// It has an order.
const SPACE: KeyspaceId = KeyspaceId(1);
const OTHER: KeyspaceId = KeyspaceId(2);
const KEYS: u64 = 120;
/// Room for some versions of all keys, with what the cleaner needs.
const BYTES: u64 = 640 << 10;

/// Some keys are longer than records hold.
fn key(number: u64) -> Vec<u8> {
    let mut key = format!("key {number:05}").into_bytes();
    if number % 40 == 7 {
        key.resize(2_000, b'x');
    }
    key
}

/// Some values are longer than records hold.
fn value(number: u64, round: u64) -> Vec<u8> {
    let len = if number % 30 == 3 { 3_000 } else { 600 };
    (0..len).map(|at| (number * 31 + round * 7 + at) as u8).collect()
}

/// Puts all keys, and makes them durable now and then.
fn put_round(store: &mut Store, keyspace: KeyspaceId, round: u64) -> Result<()> {
    for number in 0..KEYS {
        store.put(keyspace, &key(number), &value(number, round))?;
        if number % 10 == 0 {
            store.sync()?;
        }
    }
    store.sync()
}

fn delete_all(store: &mut Store) {
    for number in 0..KEYS {
        store.delete(SPACE, &key(number)).unwrap();
    }
    store.sync().unwrap();
}

fn whole(snapshot: SnapshotId, direction: Direction) -> RangeRequest {
    let (from, to) = (Unbounded, Unbounded);
    RangeRequest { token: 0, keyspace: SPACE, from, to, limit: 9, direction, snapshot: Some(snapshot) }
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

/// Every key at `snapshot` has its value of `round`, by reads, by a walk and by ranges.
fn check(store: &mut Store, snapshot: SnapshotId, round: u64) -> Result<()> {
    for number in 0..KEYS {
        let found = store.get_at(snapshot, SPACE, &key(number))?.map(|record| record.value);
        if found != Some(value(number, round)) {
            return Err(wrong(format!("key {number} at {snapshot:?} is not that of round {round}")));
        }
    }
    let mut walked: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for entry in store.scan_all_at(Some(snapshot), SPACE, 9, |_| {})? {
        *walked.entry(entry.key).or_default() += 1;
    }
    let expected: BTreeMap<_, _> = (0..KEYS).map(|number| (key(number), 1)).collect();
    if walked != expected {
        return Err(wrong(format!("a walk of {snapshot:?} gives {} keys", walked.len())));
    }
    check_ranges(store, snapshot, round)
}

fn check_ranges(store: &mut Store, snapshot: SnapshotId, round: u64) -> Result<()> {
    for direction in [Direction::Forward, Direction::Backward] {
        let found = store.range_walk(whole(snapshot, direction), |_| {})?;
        let found: Vec<_> = found.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let mut expected: Vec<_> = (0..KEYS).map(|number| (key(number), value(number, round))).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        if found != expected {
            return Err(wrong(format!("{direction:?} at {snapshot:?}: {} keys", found.len())));
        }
    }
    Ok(())
}

#[track_caller]
fn lost<T>(result: Result<T>) {
    assert_eq!(result.map(drop).map_err(|error| error.kind()), Err(ErrorKind::SnapshotLost));
}

fn roomy() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.snapshot_pinned_fraction_max = 0.9;
    // Two thirds of all: cleaning begins early.
    settings.shard.clean_below_blocks = 100;
    settings
}

/// The first round, with short records of another keyspace between those of the first: when these go, the others
/// are to be moved.
fn put_mixed(store: &mut Store) -> Result<()> {
    for number in 0..KEYS {
        store.put(SPACE, &key(number), &value(number, 0))?;
        store.put(OTHER, &key(number), &[7; 300])?;
    }
    store.sync()
}

/// A snapshot, then so many writes that everything that may be cleaned is cleaned and written over.
fn overwritten(settings: &OpenSettings) -> Result<Store> {
    let (_region, mut store) = fresh(BYTES, settings);
    put_mixed(&mut store)?;
    let snapshot = store.engine.snapshot(store.now)?;
    for round in 1..20 {
        put_round(&mut store, SPACE, round)?;
        for number in 0..KEYS {
            store.put(OTHER, &key(number), &[round as u8; 300])?;
        }
        store.settle(200);
        check(&mut store, snapshot, 0)?;
    }
    Ok(store)
}

#[test]
fn a_snapshot_stays_exact_while_all_else_is_cleaned_and_written_over() {
    let mut store = overwritten(&roomy()).unwrap();
    let statistics = store.engine.statistics();
    assert!(statistics.record_bytes_written > 3 * statistics.space_capacity_bytes, "{statistics:?}");
    // What the snapshot keeps was moved.
    assert!(statistics.cleaned_bytes_written > 0, "{statistics:?}");
    let values: u64 = (0..KEYS).map(|number| value(number, 0).len() as u64).sum();
    assert!(statistics.snapshot_pinned_bytes >= values, "{statistics:?}");
    assert_eq!((statistics.snapshots, statistics.snapshots_lost), (1, 0));
    let live = statistics.space_live_bytes;
    store.engine.release_snapshot(SnapshotId(1));
    store.settle(200);
    let statistics = store.engine.statistics();
    assert_eq!((statistics.snapshot_pinned_bytes, statistics.snapshot_table_bytes), (0, 0));
    assert!(statistics.space_live_bytes + values < live, "{statistics:?}, {live} before");
}

#[track_caller]
fn caught(name: &'static str, work: fn(&OpenSettings) -> Result<Store>) {
    work(&roomy()).unwrap();
    let settings = OpenSettings { mutations: Mutations::one(name), ..roomy() };
    let seen = std::panic::catch_unwind(|| work(&settings).map(drop));
    // A panic would be an assertion about accounts; the data must be seen to be wrong.
    let error = seen.unwrap_or_else(|_| panic!("{name} ended in a panic")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
}

#[test]
fn replaced_records_are_kept_for_snapshots() {
    caught("replaced_not_kept", overwritten);
}

#[test]
fn kept_records_are_not_given_up_when_their_writes_are_decided() {
    caught("kept_given_up", overwritten);
}

#[test]
fn a_snapshot_shows_nothing_newer() {
    caught("snapshot_shows_newer", overwritten);
}

/// All keys of a snapshot are deleted, and everything that may be cleaned is cleaned and written over.
fn deleted(settings: &OpenSettings) -> Result<Store> {
    let (_region, mut store) = fresh(BYTES, settings);
    put_mixed(&mut store)?;
    let first = store.engine.snapshot(store.now)?;
    put_round(&mut store, SPACE, 1)?;
    let second = store.engine.snapshot(store.now)?;
    delete_all(&mut store);
    let third = store.engine.snapshot(store.now)?;
    for round in 2..12 {
        for number in 0..KEYS / 2 {
            store.put(OTHER, &key(number), &value(number, round))?;
        }
        store.sync()?;
        store.settle(200);
        check_ranges(&mut store, first, 0)?;
        check_ranges(&mut store, second, 1)?;
        assert!(store.range_walk(whole(third, Direction::Forward), |_| {})?.is_empty());
    }
    check(&mut store, first, 0)?;
    check(&mut store, second, 1)?;
    let statistics = store.engine.statistics();
    assert!(statistics.cleaned_bytes_written > 0 && statistics.snapshots_lost == 0, "{statistics:?}");
    // The younger one still shows the keys, and no more than one record each.
    store.engine.release_snapshot(first);
    store.settle(200);
    check(&mut store, second, 1)?;
    assert!(store.engine.statistics().snapshot_table_bytes < statistics.snapshot_table_bytes);
    store.engine.release_snapshot(second);
    store.engine.release_snapshot(third);
    store.settle(200);
    assert_eq!(store.engine.statistics().snapshot_table_bytes, 0);
    Ok(store)
}

#[test]
fn keys_that_leave_the_order_are_kept_for_ranges_of_snapshots() {
    caught("gone_not_kept", deleted);
}

#[test]
fn snapshots_of_many_random_runs_are_exact() {
    let mut seeds = SeededRandom::new(21);
    let mut cleaned_bytes = 0;
    for _ in 0..6 {
        let seed = seeds.next_u64();
        let mut random = SeededRandom::new(seed);
        let mut settings = random_settings(&mut random);
        settings.shard.snapshot_pinned_fraction_max = [0.05, 0.5][random.below(2) as usize];
        let (_region, store) = fresh(640 << 10, &settings);
        let model = ModelSettings {
            operations: 8_000,
            keys: 100,
            snapshots: 6,
            may_lose_snapshots: true,
            ..ModelSettings::default()
        };
        let store = conformance::model(seed, model, store, |store| store);
        cleaned_bytes += store.engine.statistics().cleaned_bytes_written;
    }
    assert!(cleaned_bytes > 256 << 10, "{cleaned_bytes} bytes were moved");
}

#[test]
fn beyond_the_bound_of_the_table_the_oldest_snapshot_is_lost_and_says_so() {
    let mut settings = roomy();
    // Room for one version of each key.
    settings.shard.snapshot_table_bytes_max = 80 * (KEYS + KEYS / 2);
    let (_region, mut store) = fresh(2 << 20, &settings);
    put_round(&mut store, SPACE, 0).unwrap();
    let old = store.engine.snapshot(store.now).unwrap();
    put_round(&mut store, SPACE, 1).unwrap();
    let young = store.engine.snapshot(store.now).unwrap();
    check(&mut store, old, 0).unwrap();
    put_round(&mut store, SPACE, 2).unwrap();
    store.settle(500);
    lost(store.get_at(old, SPACE, &key(3)));
    lost(store.scan_all_at(Some(old), SPACE, 9, |_| {}));
    lost(store.range_walk(whole(old, Direction::Forward), |_| {}));
    check(&mut store, young, 1).unwrap();
    store.engine.release_snapshot(old);
    assert_eq!(store.get_at(old, SPACE, &key(3)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(store.engine.statistics().snapshots_lost, 1);
    check(&mut store, young, 1).unwrap();
}

/// Between two steps the table has a bound too: twice the one that steps keep.
#[test]
fn the_table_is_bounded_between_steps() {
    let mut settings = roomy();
    settings.shard.snapshot_table_bytes_max = 200 * KEYS;
    settings.geometry.log_segments = 64;
    let (_region, mut store) = fresh(4 << 20, &settings);
    put_round(&mut store, SPACE, 0).unwrap();
    let old = store.engine.snapshot(store.now).unwrap();
    let mut greatest = 0;
    for round in 0..6 {
        for number in 0..KEYS {
            let (name, text) = (key(number), [round; 60]);
            let put = WriteKind::Put { value: &text, expiry_ms: 0, kind: Default::default() };
            let kind = if round == 5 { WriteKind::Delete } else { put };
            store.engine.write(store.now, &[Write { key: store.key(SPACE, &name), kind }]).unwrap();
            let table_bytes = store.engine.statistics().snapshot_table_bytes;
            assert!(table_bytes <= 2 * settings.shard.snapshot_table_bytes_max, "{table_bytes}");
            greatest = greatest.max(table_bytes);
        }
        store.engine.snapshot(store.now).unwrap();
    }
    assert!(greatest > settings.shard.snapshot_table_bytes_max, "{greatest}: nothing was to be bounded");
    lost(store.get_at(old, SPACE, &key(3)));
    store.sync().unwrap();
    store.settle(500);
    assert!(store.engine.statistics().snapshot_table_bytes <= settings.shard.snapshot_table_bytes_max);
}

#[test]
fn a_store_that_would_be_full_gives_up_snapshots_before_it_refuses_a_write() {
    let mut settings = roomy();
    settings.shard.snapshot_pinned_fraction_max = 1.0;
    let (_region, mut store) = fresh(BYTES, &settings);
    put_round(&mut store, SPACE, 0).unwrap();
    let mut snapshots = Vec::new();
    // Two versions fit; eight do not.
    for round in 0..8 {
        snapshots.push((store.engine.snapshot(store.now).unwrap(), round));
        put_round(&mut store, SPACE, round + 1).unwrap();
        check(&mut store, snapshots[0].0, 0)
            .or_else(|error| match error.kind() {
                ErrorKind::SnapshotLost if round > 1 => Ok(()),
                _ => Err(error),
            })
            .unwrap();
    }
    lost(store.get_at(snapshots[0].0, SPACE, &key(0)));
    let mut lost_count = 0;
    for (snapshot, round) in snapshots {
        match check(&mut store, snapshot, round) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
                lost_count += 1;
            }
            Ok(()) => assert!(lost_count > 0),
        }
    }
    assert_eq!(store.engine.statistics().snapshots_lost, lost_count);
}

/// Long values lie elsewhere than records: space for them is given back too.
#[test]
fn a_store_full_of_long_values_gives_up_snapshots_before_it_refuses_one() {
    let mut settings = roomy();
    settings.shard.snapshot_pinned_fraction_max = 1.0;
    let (_region, mut store) = fresh(BYTES, &settings);
    let text = |number: u64, round: u64| value(number, round).repeat(4);
    let mut snapshots = Vec::new();
    for round in 0..8 {
        for number in (3..KEYS).step_by(10) {
            store.put(SPACE, &key(number), &text(number, round)).unwrap();
        }
        store.sync().unwrap();
        snapshots.push(store.engine.snapshot(store.now).unwrap());
    }
    lost(store.get_at(snapshots[0], SPACE, &key(3)));
    let last = store.get_at(snapshots[7], SPACE, &key(3)).unwrap().unwrap();
    assert_eq!(last.value, text(3, 7));
}

#[test]
fn new_keys_find_the_memory_that_snapshots_take() {
    let mut settings = roomy();
    settings.shard.memory_bytes = 64 << 10;
    let (_region, mut store) = fresh(4 << 20, &settings);
    put_round(&mut store, SPACE, 0).unwrap();
    let old = store.engine.snapshot(store.now).unwrap();
    put_round(&mut store, SPACE, 1).unwrap();
    check(&mut store, old, 0).unwrap();
    let refused = (0..100_000u32).find_map(|number| store.put(OTHER, &number.to_be_bytes(), b"value").err());
    assert_eq!(refused.unwrap().kind(), ErrorKind::NoMemory);
    lost(store.get_at(old, SPACE, &key(0)));
    assert_eq!(store.engine.statistics().snapshot_table_bytes, 0);
}

#[test]
fn a_dropped_keyspace_that_a_snapshot_shows_is_given_up_for_space_too() {
    let mut settings = roomy();
    settings.shard.snapshot_pinned_fraction_max = 1.0;
    let (_region, mut store) = fresh(480 << 10, &settings);
    let name = |number: u64| number.to_be_bytes();
    let fill = |store: &mut Store, keyspace, round: u8| {
        for number in 0..150 {
            store.put(keyspace, &name(number), &[round; 600]).unwrap();
        }
        store.sync().unwrap();
    };
    fill(&mut store, SPACE, 0);
    let snapshot = store.engine.snapshot(store.now).unwrap();
    store.engine.drop_keyspace(SPACE);
    // Two keyspaces fit, four do not.
    for round in 0..8 {
        fill(&mut store, OTHER, round);
        let found = store.get_at(snapshot, SPACE, &name(3)).unwrap().unwrap();
        assert_eq!(found.value, [0; 600]);
    }
    for keyspace in 3..5 {
        fill(&mut store, KeyspaceId(keyspace), 1);
    }
    lost(store.get_at(snapshot, SPACE, &name(3)));
    for keyspace in [OTHER, KeyspaceId(3), KeyspaceId(4)] {
        assert_eq!(store.engine.len(keyspace), 150);
    }
}

#[test]
fn a_snapshot_judges_expiry_at_its_own_time_whatever_leaves_the_index() {
    let (_region, mut store) = fresh(1 << 20, &roomy());
    put_round(&mut store, SPACE, 0).unwrap();
    let first = store.engine.snapshot(store.now).unwrap();
    let start_ms = store.now.wall_ms;
    for number in 0..KEYS {
        let (bytes, text) = (key(number), value(number, 1));
        let kind = WriteKind::Put { value: &text, expiry_ms: start_ms + 1_000, kind: Default::default() };
        store.write(&[Write { key: store.key(SPACE, &bytes), kind }]).unwrap();
    }
    let early = store.engine.snapshot(store.now).unwrap();
    store.now.wall_ms = start_ms + 1_000;
    let late = store.engine.snapshot(store.now).unwrap();
    for _ in 0..20 {
        store.now.monotonic_us += 1_000_000;
        store.turn(Wait::Poll);
    }
    assert_eq!(store.engine.len(SPACE), 0, "what has expired has not left the index");
    check(&mut store, first, 0).unwrap();
    check(&mut store, early, 1).unwrap();
    for number in 0..KEYS {
        assert_eq!(store.get_at(late, SPACE, &key(number)).unwrap(), None);
    }
    assert!(store.scan_all_at(Some(late), SPACE, 9, |_| {}).unwrap().is_empty());
    assert!(store.range_walk(whole(late, Direction::Forward), |_| {}).unwrap().is_empty());
}

#[test]
fn a_snapshot_shows_whole_batches_only() {
    let (_region, mut store) = fresh(BYTES, &roomy());
    let mut snapshots = Vec::new();
    for round in 0..10u64 {
        let bytes: Vec<_> = (0..5).map(|number| (key(number), value(number, round))).collect();
        let writes: Vec<Write<'_>> = bytes
            .iter()
            .map(|(bytes, value)| Write {
                key: store.key(SPACE, bytes),
                kind: WriteKind::Put { value, expiry_ms: 0, kind: Default::default() },
            })
            .collect();
        store.write(&writes).unwrap();
        snapshots.push((store.engine.snapshot(store.now).unwrap(), round));
    }
    for (snapshot, round) in snapshots {
        for number in 0..5 {
            let found = store.get_at(snapshot, SPACE, &key(number)).unwrap().unwrap();
            assert_eq!(found.value, value(number, round));
        }
    }
}

/// A snapshot ends while the part of a batch that replaced what it kept is not decided: a crash may bring that back,
/// though blocks are cleaned all the time.
#[test]
fn what_an_undecided_part_replaced_outlives_the_snapshot_that_showed_it() {
    let mut settings = roomy();
    settings.shard.clean_below_blocks = 10_000;
    for is_decided in [true, false] {
        let (region, mut store) = fresh(BYTES, &settings);
        put_round(&mut store, SPACE, 0).unwrap();
        let snapshot = store.engine.snapshot(store.now).unwrap();
        let before = store.engine.statistics().space_live_bytes;
        let batch = BatchTicket::new(1, if is_decided { 1 } else { 2 });
        let (name, text) = (key(4), value(4, 1));
        let kind = WriteKind::Put { value: &text, expiry_ms: 0, kind: Default::default() };
        store.write_part(&[Write { key: store.key(SPACE, &name), kind }], &batch).unwrap();
        assert!(store.engine.statistics().snapshot_pinned_bytes > 600);
        store.engine.release_snapshot(snapshot);
        store.sync().unwrap();
        store.settle(200);
        let statistics = store.engine.statistics();
        assert_eq!(statistics.snapshot_table_bytes, 0);
        let is_there_twice = statistics.space_live_bytes > before;
        assert_eq!(is_there_twice, !is_decided, "{statistics:?}, {before} before");
        for number in 0..20 {
            store.put(OTHER, &key(number), &[5; 600]).unwrap();
            store.turn(Wait::Poll);
        }
        store.sync().unwrap();
        let mut store = reopen_after_kill(store, &region, &settings);
        let found = store.get(SPACE, &name).unwrap().map(|(_, value)| value);
        assert!(found == Some(value(4, u64::from(is_decided))), "decided: {is_decided}");
    }
}

#[test]
fn an_answer_that_was_asked_for_comes_though_the_snapshot_ends() {
    let (_region, mut store) = fresh(BYTES, &roomy());
    put_round(&mut store, SPACE, 0).unwrap();
    let snapshot = store.engine.snapshot(store.now).unwrap();
    put_round(&mut store, SPACE, 1).unwrap();
    let name = key(3);
    store.engine.read_at(store.now, snapshot, &[(77, store.key(SPACE, &name))]);
    store.engine.release_snapshot(snapshot);
    let mut events = Vec::new();
    store.engine.step(store.now, &mut Vec::new(), &mut events);
    let [tierstone_engine::Event::SnapshotRead { token: 77, result: Ok(Some(found)), .. }] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(found.value, value(3, 0));
}

#[test]
fn after_a_crash_nothing_is_kept_and_no_snapshot_is_known() {
    let settings = roomy();
    let (region, mut store) = fresh(BYTES, &settings);
    put_round(&mut store, SPACE, 0).unwrap();
    let snapshot = store.engine.snapshot(store.now).unwrap();
    put_round(&mut store, SPACE, 1).unwrap();
    assert!(store.engine.statistics().snapshot_pinned_bytes > 0);
    let mut store = reopen_after_kill(store, &region, &settings);
    assert_eq!(store.get_at(snapshot, SPACE, &key(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    for round in 2..20 {
        put_round(&mut store, SPACE, round).unwrap();
    }
    let statistics = store.engine.statistics();
    assert_eq!((statistics.snapshot_pinned_bytes, statistics.snapshots_lost), (0, 0));
}

#[test]
fn more_snapshots_than_are_allowed_are_refused() {
    let (_region, mut store) = fresh(BYTES, &roomy());
    let ids: Vec<_> = (0..1_024).map(|_| store.engine.snapshot(store.now).unwrap()).collect();
    assert_eq!(store.engine.snapshot(store.now).unwrap_err().kind(), ErrorKind::Retry);
    store.engine.release_snapshot(ids[500]);
    assert!(store.engine.snapshot(store.now).unwrap() > ids[1_023]);
}

/// Space that replaced records take is given back when the writes that replaced them are durable; who waits for space
/// does not wait for the interval of a mode besides.
#[test]
fn a_full_store_does_not_wait_for_a_relaxed_interval() {
    let mut settings = small_settings();
    settings.shard.durability = Durability::Relaxed;
    // A log that asks for no write-back before the blocks are full.
    settings.geometry.log_segments = 64;
    let (_region, mut store) = fresh((1 << 20) + (256 << 10), &settings);
    let begun_us = store.now.monotonic_us;
    for round in 0..40 {
        for number in 0..60u64 {
            store.put(OTHER, &number.to_be_bytes(), &[round; 1_000]).unwrap();
        }
    }
    // By the test's own clock, which a turn moves by 50 µs; an interval is half a second.
    let waited_us = store.now.monotonic_us - begun_us;
    assert!(waited_us < 400_000, "{waited_us} µs");
    let statistics = store.engine.statistics();
    assert!(statistics.record_bytes_written > 2 << 20, "{statistics:?}");
}

/// Rot in a kept record is an error of its key, and of nothing else.
#[test]
fn a_damaged_kept_record_is_told_and_the_rest_is_shown() {
    let region = common::machine(BYTES);
    let (mut store, _) = common::open_one(&region, &roomy());
    put_round(&mut store, SPACE, 0).unwrap();
    let snapshot = store.engine.snapshot(store.now).unwrap();
    let needle = value(5, 0);
    let image = region.region().image();
    put_round(&mut store, SPACE, 1).unwrap();
    for (at, window) in image.windows(needle.len()).enumerate() {
        if window == needle {
            common::flip_bit(&region, at + 9, 1);
        }
    }
    assert_eq!(store.get_at(snapshot, SPACE, &key(5)).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.get_at(snapshot, SPACE, &key(6)).unwrap().unwrap().value, value(6, 0));
    let around = RangeRequest { limit: 200, ..whole(snapshot, Direction::Forward) };
    assert_eq!(store.range_request(around).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.get(SPACE, &key(5)).unwrap().unwrap().1, value(5, 1));
    store.engine.release_snapshot(snapshot);
    store.settle(200);
    assert_eq!(store.engine.statistics().snapshot_table_bytes, 0);
}

/// Snapshots are taken and released, modes change, and power is lost.
#[test]
fn crashes_with_snapshots_alive_lose_nothing() {
    let mut plan = Plan::new(96 << 10);
    plan.open.shard.clean_below_blocks = 10_000;
    plan.open.shard.snapshot_pinned_fraction_max = 0.5;
    plan.steps = 1_500;
    let mix = Mix {
        operations: 60,
        keys: 8,
        value_bytes: 400,
        deletes: 30,
        steps: 90,
        snapshots: 15,
        ..Mix::default()
    };
    sampled("snapshots", 1_000, 400, &plan, &mix);
    let mix = Mix { value_bytes: 3_000, operations: 24, keys: 6, switches: 10, ..mix };
    plan.bytes = 200 << 10;
    sampled("snapshots of long values, changes of the mode", 1_100, 300, &plan, &mix);
    plan.open.shard_count = 2;
    plan.bytes *= 2;
    sampled("snapshots over two shards", 1_200, 200, &plan, &Mix { batches: 60, ..mix });
}
