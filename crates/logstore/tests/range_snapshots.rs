//! Ranges of snapshots of ordered keyspaces: exact while keys go, are cleaned and expire; bounded in memory;
//! ended with a clear word.

use crate::common;
use crate::common::{Store, fresh, medium, open_on, ordered_keyspaces, reopen_after_kill, small_settings};
use std::ops::Bound::{Excluded, Included, Unbounded};
use tierstone_base::{ErrorKind, KeyspaceId, Result};
use tierstone_crash::Mutations;
use tierstone_engine::{Direction, Engine, Event, RangeEntry, RangeRequest, SnapshotId, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget};
use tierstone_media::{BlockDevice, Wait};

const SPACE: KeyspaceId = KeyspaceId(1);
const KEYS: u64 = 120;

fn settings() -> OpenSettings {
    let mut settings = OpenSettings { keyspaces: ordered_keyspaces(), ..small_settings() };
    settings.shard.snapshot_pinned_fraction_max = 0.9;
    settings
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:05}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    (0..600).map(|at| (number * 31 + round * 7 + at) as u8).collect()
}

fn put_all(store: &mut Store, keyspace: KeyspaceId, round: u64) {
    for number in 0..KEYS {
        store.put(keyspace, &key(number), &value(number, round)).unwrap();
        if number % 10 == 0 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
}

fn delete_all(store: &mut Store) {
    for number in 0..KEYS {
        store.delete(SPACE, &key(number)).unwrap();
    }
    store.sync().unwrap();
}

fn whole(snapshot: SnapshotId, direction: Direction) -> RangeRequest {
    let (from, to) = (Unbounded, Unbounded);
    RangeRequest { token: 1 << 40, keyspace: SPACE, from, to, limit: 9, direction, snapshot: Some(snapshot) }
}

/// Forward and backward a walk gives all keys, with their values of `round`.
#[track_caller]
fn check(store: &mut Store, snapshot: SnapshotId, round: u64) {
    for direction in [Direction::Forward, Direction::Backward] {
        let found = store.range_walk(whole(snapshot, direction), |_| {}).unwrap();
        let mut expected: Vec<_> = (0..KEYS).map(|number| (key(number), value(number, round))).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let found: Vec<_> = found.into_iter().map(|entry| (entry.key, entry.value)).collect();
        assert!(found == expected, "{direction:?} at {snapshot:?}: {} keys", found.len());
    }
}

fn lost(result: Result<Vec<RangeEntry>>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
}

/// All keys of a snapshot are deleted, and everything that may be cleaned is cleaned and written over.
fn deleted_and_cleaned(settings: &OpenSettings) {
    let (_medium, mut store) = fresh(32 << 10, 24, settings);
    put_all(&mut store, SPACE, 0);
    let first = store.engine.snapshot(store.now).unwrap();
    put_all(&mut store, SPACE, 1);
    let second = store.engine.snapshot(store.now).unwrap();
    delete_all(&mut store);
    let third = store.engine.snapshot(store.now).unwrap();
    for round in 2..15 {
        put_all(&mut store, KeyspaceId(2), round);
        store.settle(200);
        check(&mut store, first, 0);
        check(&mut store, second, 1);
        assert!(store.range_walk(whole(third, Direction::Forward), |_| {}).unwrap().is_empty());
    }
    let statistics = store.engine.statistics();
    assert!(statistics.device.bytes_written > 2 * statistics.space_capacity_bytes, "{statistics:?}");
    assert_eq!(statistics.snapshots_lost, 0);
    let table_bytes = statistics.snapshot_table_bytes;
    // The younger one still shows the keys, and no more than one record each.
    store.engine.release_snapshot(first);
    store.settle(200);
    check(&mut store, second, 1);
    assert!(store.engine.statistics().snapshot_table_bytes < table_bytes);
    store.engine.release_snapshot(second);
    store.settle(200);
    assert_eq!(store.engine.statistics().snapshot_table_bytes, 0);
    assert!(store.range_walk(whole(third, Direction::Backward), |_| {}).unwrap().is_empty());
}

#[test]
fn deleted_keys_stay_in_ranges_of_snapshots_while_all_else_is_cleaned() {
    deleted_and_cleaned(&settings());
}

#[test]
fn keys_that_leave_the_order_are_kept_for_snapshots() {
    for (work, seen) in
        [(deleted_and_cleaned as fn(&OpenSettings), ": 0 keys"), (expired_and_cleaned, " keys")]
    {
        let settings = OpenSettings { mutations: Mutations::one("gone_keys_not_kept"), ..settings() };
        let panic = std::panic::catch_unwind(|| work(&settings)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains("Forward at SnapshotId(1)") && message.ends_with(seen), "{message}");
    }
}

#[test]
fn a_key_whose_newest_record_expires_stays_in_ranges_of_older_snapshots() {
    expired_and_cleaned(&settings());
}

/// The newest version has expired, and the cleaner drops it; an older snapshot shows the one before.
fn expired_and_cleaned(settings: &OpenSettings) {
    let mut settings = settings.clone();
    settings.shard.memory_bytes = 8 << 10;
    let (_medium, mut store) = fresh(32 << 10, 24, &settings);
    put_all(&mut store, SPACE, 0);
    let before = store.engine.snapshot(store.now).unwrap();
    let expiry_ms = store.now.wall_ms + 1_000;
    for number in 0..KEYS {
        let (bytes, text) = (key(number), value(number, 1));
        let kind = WriteKind::Put { value: &text, expiry_ms, kind: Default::default() };
        store.write(&[Write { key: store.key(SPACE, &bytes), kind }]).unwrap();
    }
    store.now.wall_ms += 2_000;
    for round in 0..15 {
        put_all(&mut store, KeyspaceId(2), round);
        store.settle(200);
    }
    let left = store.engine.ordered_len(SPACE).unwrap();
    assert!(left < KEYS, "the cleaner has dropped none of {left} expired records");
    check(&mut store, before, 0);
    let now = store.engine.snapshot(store.now).unwrap();
    assert!(store.range_walk(whole(now, Direction::Forward), |_| {}).unwrap().is_empty());
}

#[test]
fn gone_keys_count_in_the_tables_bound_and_beyond_it_the_oldest_snapshot_is_lost() {
    let mut settings = settings();
    // A record's side entry is 80 bytes, a gone key of 300 bytes 380.
    settings.shard.snapshot_table_bytes_max = 200 * KEYS;
    let long = |number: u64| {
        let mut key = key(number);
        key.resize(300, b'k');
        key
    };
    let (_medium, mut store) = fresh(32 << 10, 64, &settings);
    for number in 0..KEYS {
        store.put(SPACE, &long(number), b"v").unwrap();
    }
    let old = store.engine.snapshot(store.now).unwrap();
    for number in 0..KEYS {
        store.put(SPACE, &long(number), b"w").unwrap();
    }
    store.settle(200);
    let young = store.engine.snapshot(store.now).unwrap();
    assert_eq!(store.range_walk(whole(old, Direction::Forward), |_| {}).unwrap().len() as u64, KEYS);
    for number in 0..KEYS {
        store.delete(SPACE, &long(number)).unwrap();
        let table_bytes = store.engine.statistics().snapshot_table_bytes;
        assert!(table_bytes <= 2 * settings.shard.snapshot_table_bytes_max, "{table_bytes}");
    }
    store.settle(500);
    lost(store.range_walk(whole(old, Direction::Forward), |_| {}));
    store.engine.release_snapshot(old);
    let statistics = store.engine.statistics();
    // The younger one alone is too much as well, for each key is there with its record.
    assert_eq!((statistics.snapshots_lost, statistics.snapshot_table_bytes), (2, 0));
    lost(store.range_walk(whole(young, Direction::Backward), |_| {}));
}

/// Turns until the page that was asked for is there.
fn page(store: &mut Store) -> (Vec<Vec<u8>>, Option<Vec<u8>>, Option<ErrorKind>) {
    let (mut requests, mut completions, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..10_000 {
        store.engine.take_requests(&mut requests);
        store.device.submit(&mut requests);
        store.device.complete(Wait::One, &mut completions);
        store.now.monotonic_us += 50;
        store.engine.step(store.now, &mut completions, &mut events);
        for event in events.drain(..) {
            if let Event::Ranged { entries, next, error, .. } = event {
                let keys = entries.into_iter().map(|entry| entry.key).collect();
                return (keys, next, error.map(|error| error.kind()));
            }
        }
    }
    panic!("the page never came");
}

/// A store of which all but one key is on the device only, with a snapshot of it that is lost when that one
/// is deleted.
fn read_from_the_device() -> (Store, SnapshotId) {
    let mut settings = settings();
    settings.shard.memory_bytes = 8 << 10;
    settings.shard.snapshot_pinned_fraction_max = 0.0001;
    let medium = medium(64 << 10, 32);
    let (mut store, _) = open_on(medium.device(), &settings).unwrap();
    put_all(&mut store, SPACE, 0);
    // More than are read at once.
    for number in KEYS..2 * KEYS {
        store.put(SPACE, &key(number), &value(number, 0)).unwrap();
    }
    store.sync().unwrap();
    let mut store = common::reopen(store, &medium, &settings);
    store.put(SPACE, b"known", &value(0, 0)).unwrap();
    let snapshot = store.engine.snapshot(store.now).unwrap();
    (store, snapshot)
}

#[test]
fn a_page_under_way_ends_at_the_loss_of_its_snapshot_and_says_so() {
    for release in [false, true] {
        let (mut store, snapshot) = read_from_the_device();
        store.engine.range(store.now, RangeRequest { limit: 200, ..whole(snapshot, Direction::Forward) });
        let mut requests = Vec::new();
        store.engine.take_requests(&mut requests);
        assert!((1..=32).contains(&requests.len()), "{} reads at once", requests.len());
        store.device.submit(&mut requests);
        if release {
            store.engine.release_snapshot(snapshot);
        } else {
            // More bytes of replaced records than may be kept.
            let write = Write { key: store.key(SPACE, b"known"), kind: WriteKind::Delete };
            store.engine.write(store.now, &[write]).unwrap();
        }
        let (keys, next, error) = page(&mut store);
        // What was under way ends well.
        let expected: Vec<_> = (0..keys.len() as u64).map(key).collect();
        assert!(keys == expected && keys.len() < 200, "{} keys", keys.len());
        assert_eq!(next.as_ref(), keys.last());
        assert_eq!(error, (!release).then_some(ErrorKind::SnapshotLost));
        let after = RangeRequest { from: Excluded(next.unwrap()), ..whole(snapshot, Direction::Forward) };
        let kind = if release { ErrorKind::InvalidInput } else { ErrorKind::SnapshotLost };
        assert_eq!(store.range_request(after).unwrap_err().kind(), kind);
    }
}

/// A key that was deleted past a record that could not be read is one of the cut: its range says what is wrong with
/// it, and gives it when it can be read.
#[test]
fn keys_deleted_past_an_unreadable_record_are_told_by_ranges_of_older_snapshots() {
    let mut settings = settings();
    settings.shard.memory_bytes = 8 << 10;
    let medium = medium(64 << 10, 24);
    let (mut store, _) = open_on(medium.device(), &settings).unwrap();
    put_all(&mut store, SPACE, 0);
    let mut store = common::reopen(store, &medium, &settings);
    let before = store.engine.snapshot(store.now).unwrap();
    medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    assert_eq!(store.get(SPACE, &key(3)).unwrap_err().kind(), ErrorKind::Corrupt);
    store.delete(SPACE, &key(3)).unwrap();
    store.sync().unwrap();
    let after = store.engine.snapshot(store.now).unwrap();
    let around = |snapshot| RangeRequest {
        from: Included(key(2)),
        to: Excluded(key(5)),
        ..whole(snapshot, Direction::Forward)
    };
    assert_eq!(store.range_walk(around(before), |_| {}).unwrap_err().kind(), ErrorKind::Corrupt);
    medium.clear_faults();
    for _ in 0..3 {
        check(&mut store, before, 0);
        let keys: Vec<_> = store.range_walk(around(after), |_| {}).unwrap();
        let keys: Vec<_> = keys.into_iter().map(|entry| entry.key).collect();
        assert_eq!(keys, [key(2), key(4)]);
    }
    store.engine.release_snapshot(before);
    store.engine.release_snapshot(after);
    store.settle(200);
    assert_eq!(store.engine.statistics().snapshot_table_bytes, 0);
}

#[test]
fn after_a_crash_no_key_is_kept_and_no_snapshot_is_known() {
    let (medium, mut store) = fresh(32 << 10, 24, &settings());
    put_all(&mut store, SPACE, 0);
    let snapshot = store.engine.snapshot(store.now).unwrap();
    delete_all(&mut store);
    assert!(store.engine.statistics().snapshot_table_bytes > 100 * KEYS);
    let mut store = reopen_after_kill(store, &medium, &settings());
    let refused = store.range_walk(whole(snapshot, Direction::Forward), |_| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    assert_eq!(store.engine.statistics().snapshot_table_bytes, 0);
    assert_eq!(store.range_all(SPACE, Unbounded, Unbounded, 9, Direction::Forward).unwrap(), []);
}
