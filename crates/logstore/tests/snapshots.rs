//! Snapshots of the log store: exact under cleaning, bounded, lost with a clear word and never wrong.

use crate::common::lives::{Mix, Plan};
use crate::common::{
    Store, fresh, medium, mutated, open_on, random_settings, reopen_after_kill, small_settings,
};
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_crash::{ExploreSettings, Mutations};
use tierstone_engine::conformance::{self, ModelSettings};
use tierstone_engine::{Engine, SnapshotId, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget};

const SPACE: KeyspaceId = KeyspaceId(1);
const KEYS: u64 = 120;

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    (0..600).map(|at| (number * 31 + round * 7 + at) as u8).collect()
}

/// Puts all keys, and makes them durable now and then.
fn put_round(store: &mut Store, round: u64) -> Result<()> {
    for number in 0..KEYS {
        store.put(SPACE, &key(number), &value(number, round))?;
        if number % 10 == 0 {
            store.sync()?;
        }
    }
    store.sync()
}

/// Every key at `snapshot` has its value of `round`, by reads and by a walk.
fn check(store: &mut Store, snapshot: SnapshotId, round: u64) -> Result<()> {
    let wrong = |what: String| Error::new(ErrorKind::Corrupt, what);
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
    if walked == expected { Ok(()) } else { Err(wrong(format!("a walk of {snapshot:?} gives {walked:?}"))) }
}

/// A snapshot, then so many writes that everything that may be cleaned is cleaned and written over.
fn overwritten(settings: &OpenSettings) -> Result<Store> {
    let (_medium, mut store) = fresh(32 << 10, 24, settings);
    put_round(&mut store, 0)?;
    let snapshot = store.engine.snapshot(store.now)?;
    for round in 1..20 {
        put_round(&mut store, round)?;
        store.settle(200);
        check(&mut store, snapshot, 0)?;
    }
    Ok(store)
}

fn roomy() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.snapshot_pinned_fraction_max = 0.9;
    settings
}

#[test]
fn a_snapshot_stays_exact_while_all_else_is_cleaned_and_written_over() {
    let store = overwritten(&roomy()).unwrap();
    let statistics = store.engine.statistics();
    assert!(statistics.device.bytes_written > 4 * statistics.space_capacity_bytes, "{statistics:?}");
    assert!(statistics.snapshot_pinned_bytes >= KEYS * 600, "{statistics:?}");
    assert_eq!(statistics.snapshots_lost, 0);
}

#[track_caller]
fn caught(name: &'static str) {
    let settings = OpenSettings { shard: roomy().shard, ..mutated(name) };
    let seen = std::panic::catch_unwind(|| overwritten(&settings).map(drop));
    // A panic would be an assertion about accounts; the data must be seen to be wrong.
    let error = seen.unwrap_or_else(|_| panic!("{name} ended in a panic")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
}

#[test]
fn segments_with_records_of_snapshots_are_not_freed() {
    caught("snapshot_pins_ignored");
}

#[test]
fn replaced_records_are_kept_for_snapshots() {
    caught("replaced_not_kept_for_snapshots");
}

#[test]
fn a_snapshot_shows_nothing_newer() {
    caught("snapshot_shows_newer");
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
        let (_medium, store) = fresh(64 << 10, 16, &settings);
        // About 60 KB live in 1 MB, written ten times over.
        let model = ModelSettings {
            operations: 12_000,
            keys: 100,
            snapshots: 6,
            may_lose_snapshots: true,
            ..ModelSettings::default()
        };
        let store = conformance::model(seed, model, store, |store| store);
        cleaned_bytes += store.engine.statistics().cleaned_bytes_written;
    }
    assert!(cleaned_bytes > 1 << 20, "{cleaned_bytes} bytes were moved");
}

#[test]
fn beyond_the_bound_of_the_table_the_oldest_snapshot_is_lost_and_says_so() {
    let mut settings = roomy();
    // Room for one version of each key.
    settings.shard.snapshot_table_bytes_max = 80 * (KEYS + KEYS / 2);
    let (_medium, mut store) = fresh(32 << 10, 64, &settings);
    put_round(&mut store, 0).unwrap();
    let old = store.engine.snapshot(store.now).unwrap();
    put_round(&mut store, 1).unwrap();
    let young = store.engine.snapshot(store.now).unwrap();
    check(&mut store, old, 0).unwrap();
    put_round(&mut store, 2).unwrap();
    store.settle(500);
    let read = store.get_at(old, SPACE, &key(3)).unwrap_err();
    assert_eq!(read.kind(), ErrorKind::SnapshotLost, "{read}");
    let walk = store.scan_all_at(Some(old), SPACE, 9, |_| {}).unwrap_err();
    assert_eq!(walk.kind(), ErrorKind::SnapshotLost, "{walk}");
    check(&mut store, young, 1).unwrap();
    store.engine.release_snapshot(old);
    assert_eq!(store.get_at(old, SPACE, &key(3)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(store.engine.statistics().snapshots_lost, 1);
    check(&mut store, young, 1).unwrap();
}

#[test]
fn a_store_that_would_be_full_gives_up_snapshots_before_it_refuses_a_write() {
    let mut settings = roomy();
    settings.shard.snapshot_pinned_fraction_max = 1.0;
    // 100 KB live in 352 KB: two versions fit, with what the cleaner needs, three do not.
    let (_medium, mut store) = fresh(32 << 10, 11, &settings);
    put_round(&mut store, 0).unwrap();
    let first = store.engine.snapshot(store.now).unwrap();
    let mut second = None;
    for round in 1..12 {
        put_round(&mut store, round).unwrap();
        if round == 6 {
            second = Some(store.engine.snapshot(store.now).unwrap());
        }
    }
    let lost = store.get_at(first, SPACE, &key(0)).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::SnapshotLost, "{lost}");
    let second = second.unwrap();
    match check(&mut store, second, 6) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}"),
        Ok(()) => assert_eq!(store.engine.statistics().snapshots_lost, 1),
    }
}

#[test]
fn a_dropped_keyspace_that_a_snapshot_shows_is_given_up_for_space_too() {
    // 100 KB of the dropped keyspace and 200 KB of the other do not fit with what the cleaner needs.
    let (_medium, mut store) = fresh(32 << 10, 19, &roomy());
    put_round(&mut store, 0).unwrap();
    let snapshot = store.engine.snapshot(store.now).unwrap();
    store.engine.drop_keyspace(SPACE);
    for round in 0..4u64 {
        for number in 0..2 * KEYS {
            store.put(KeyspaceId(2), &key(number), &value(number, round)).unwrap();
        }
        store.sync().unwrap();
    }
    assert_eq!(store.get_at(snapshot, SPACE, &key(0)).unwrap_err().kind(), ErrorKind::SnapshotLost);
}

#[test]
fn a_snapshot_judges_expiry_at_its_own_time_and_the_cleaner_keeps_what_it_shows() {
    let mut settings = roomy();
    settings.shard.memory_bytes = 8 << 10;
    let (_medium, mut store) = fresh(32 << 10, 24, &settings);
    let start_ms = store.now.wall_ms;
    for number in 0..KEYS {
        let (bytes, text) = (key(number), value(number, 0));
        let kind = WriteKind::Put { value: &text, expiry_ms: start_ms + 1_000, kind: Default::default() };
        store.write(&[Write { key: store.key(SPACE, &bytes), kind }]).unwrap();
    }
    let early = store.engine.snapshot(store.now).unwrap();
    store.now.wall_ms = start_ms + 1_000;
    let late = store.engine.snapshot(store.now).unwrap();
    for round in 0..20u64 {
        for number in 0..KEYS {
            store.put(KeyspaceId(2), &key(number), &value(number, round)).unwrap();
        }
        store.sync().unwrap();
        store.settle(200);
    }
    check(&mut store, early, 0).unwrap();
    for number in 0..KEYS {
        assert_eq!(store.get_at(late, SPACE, &key(number)).unwrap(), None);
        assert_eq!(store.get(SPACE, &key(number)).unwrap(), None);
    }
    assert!(store.scan_all_at(Some(late), SPACE, 9, |_| {}).unwrap().is_empty());
}

#[test]
fn a_snapshot_shows_whole_batches_only() {
    let (_medium, mut store) = fresh(32 << 10, 24, &roomy());
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

#[test]
fn after_a_crash_nothing_is_pinned() {
    let settings = roomy();
    let (medium, mut store) = fresh(32 << 10, 24, &settings);
    put_round(&mut store, 0).unwrap();
    let snapshot = store.engine.snapshot(store.now).unwrap();
    put_round(&mut store, 1).unwrap();
    assert!(store.engine.statistics().snapshot_pinned_bytes > 0);
    let mut store = reopen_after_kill(store, &medium, &settings);
    assert_eq!(store.get_at(snapshot, SPACE, &key(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    for round in 2..20 {
        put_round(&mut store, round).unwrap();
    }
    let statistics = store.engine.statistics();
    assert_eq!((statistics.snapshot_pinned_bytes, statistics.snapshots_lost), (0, 0));
}

/// A record that could not be read, and that writes went past, belongs to older snapshots only.
#[test]
fn writes_past_an_unreadable_record_are_told_apart_by_snapshots() {
    let mut settings = roomy();
    settings.shard.memory_bytes = 8 << 10;
    let medium = medium(64 << 10, 24);
    {
        let (mut store, _) = open_on(medium.device(), &settings).unwrap();
        put_round(&mut store, 0).unwrap();
        store.engine.shut();
        while !store.engine.is_shut() {
            store.turn(Wait::One);
        }
    }
    let (mut store, _) = open_on(medium.power_on_after_loss(), &settings).unwrap();
    let before = store.engine.snapshot(store.now).unwrap();
    medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    assert_eq!(store.get(SPACE, &key(3)).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.get_at(before, SPACE, &key(3)).unwrap_err().kind(), ErrorKind::Corrupt);
    store.delete(SPACE, &key(3)).unwrap();
    store.put(SPACE, &key(4), b"new").unwrap();
    store.sync().unwrap();
    let after = store.engine.snapshot(store.now).unwrap();
    // Known although the old record cannot be read: it was written past before the cut.
    assert_eq!(store.get_at(after, SPACE, &key(3)).unwrap(), None);
    assert_eq!(store.get_at(before, SPACE, &key(3)).unwrap_err().kind(), ErrorKind::Corrupt);
    medium.clear_faults();
    for _ in 0..3 {
        check(&mut store, before, 0).unwrap();
        assert_eq!(store.get_at(after, SPACE, &key(3)).unwrap(), None);
        assert_eq!(store.get_at(after, SPACE, &key(4)).unwrap().unwrap().value, b"new");
        assert_eq!(store.scan_all_at(Some(after), SPACE, 9, |_| {}).unwrap().len() as u64, KEYS - 1);
    }
    assert_eq!(store.get(SPACE, &key(3)).unwrap(), None);
}

#[test]
fn crashes_with_snapshots_alive_lose_nothing() {
    let mix = Mix {
        operations: 120,
        keys: 14,
        value_bytes_max: 3_000,
        batches: 10,
        deletes: 30,
        expiring: 8,
        settle_one_in: 12,
        snapshots: 8,
        ..Mix::default()
    };
    let mut plan = Plan::new(32 << 10, 12).cut_one_in(400);
    plan.open.shard.snapshot_pinned_fraction_max = 0.5;
    let sampled = ExploreSettings::sampled(900, 120, &Mutations::none());
    plan.explore(sampled, &|world, life, choices| mix.work(world, life, choices)).assert_clean();
}
