//! Expiry: what was shown as past stays past, over crashes and clocks that are set back.

use crate::common;
use crate::common::{machine_of, open_one, small_settings};
use tierstone_base::KeyspaceId;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_all_caught, explore};
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_media::sim::{CutPoints, PowerCut, WordMachine};
use tierstone_pmstore::OpenSettings;

const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// A key expires, somebody is told, power is lost, and the clock is set back.
fn told_that_it_is_past(choices: &Choices, mutations: &Mutations) -> Result<(), Violation> {
    let region: WordMachine = machine_of(256 << 10, choices);
    let settings = OpenSettings { mutations: mutations.clone(), ..small_settings() };
    let (mut store, _) = open_one(&region, &settings);
    let before = store.now;
    let kind = WriteKind::Put { value: b"value", expiry_ms: before.wall_ms + 10, kind: Default::default() };
    store.write(&[Write { key: store.key(KEYSPACE, b"key"), kind }])?;
    store.sync()?;
    store.now.wall_ms += 20;
    let is_gone = store.get(KEYSPACE, b"key")?.is_none();
    Violation::unless(is_gone, || "an expired key is there".to_owned())?;
    region.set_power_cut(PowerCut::Within { points: CutPoints::Every, last: 4 });
    let is_told = store.sync().is_ok();
    drop(store);
    region.set_power_cut(PowerCut::Never);
    region.power_on_after_loss();
    let (mut store, _) = open_one(&region, &settings);
    store.now = before;
    let is_there = store.get(KEYSPACE, b"key")?.is_some();
    Violation::unless(!(is_told && is_there), || "a key that was shown as past is back".to_owned())
}

#[test]
fn an_answer_that_a_key_has_expired_waits_for_a_fence() {
    let explored = |mutations: &Mutations| -> Report {
        explore(ExploreSettings::exhaustive(), |choices| told_that_it_is_past(choices, mutations))
    };
    let clean = assert_all_caught(&["past_not_kept"], explored);
    assert!(clean.exhausted);
}

#[test]
fn what_is_shown_as_past_is_durable_after_the_next_step() {
    let (_region, mut store) = common::fresh(256 << 10, &small_settings());
    store.sync().unwrap();
    let wall_ms = store.now.wall_ms;
    store.engine.note_past(wall_ms);
    assert!(store.engine.durable_seq() < store.engine.applied_seq());
    store.sync().unwrap();
    assert_eq!(store.engine.past_ms(), wall_ms);
}

/// A key that expires is written where the walk has been, beside many that do not: the next walk meets it.
#[test]
fn a_key_that_is_written_behind_the_walk_leaves_too() {
    let (_region, mut store) = common::fresh(4 << 20, &small_settings());
    let put = |store: &mut common::Store, number: u32, expiry_ms| {
        let kind = WriteKind::Put { value: &[7; 40], expiry_ms, kind: Default::default() };
        let name = number.to_le_bytes();
        store.write(&[Write { key: store.key(KEYSPACE, &name), kind }]).unwrap();
    };
    for number in 0..5_000 {
        put(&mut store, number, 0);
    }
    let first =
        (5_000..6_000u32).min_by_key(|number| store.key(KEYSPACE, &number.to_le_bytes()).position).unwrap();
    // The walk is asked for by one that goes at its first look, and is in the middle when another comes.
    let past_ms = store.now.wall_ms + 1;
    put(&mut store, 6_000, past_ms);
    store.now.wall_ms += 20;
    let step = |store: &mut common::Store, us| {
        store.now.monotonic_us += us;
        store.turn(tierstone_media::Wait::Poll);
    };
    while store.engine.statistics().expired_keys == 0 {
        step(&mut store, 2_000);
    }
    // That walk has met one: the next one meets none.
    for _ in 0..200 {
        step(&mut store, 2_000);
    }
    store.now.monotonic_us += 2_000_000;
    for _ in 0..20 {
        step(&mut store, 2_000);
    }
    let soon_ms = store.now.wall_ms + 10;
    put(&mut store, first, soon_ms);
    assert_eq!(store.engine.len(KEYSPACE), 5_001);
    store.now.wall_ms += 20;
    for _ in 0..4 {
        store.now.monotonic_us += 2_000_000;
        for _ in 0..200 {
            step(&mut store, 2_000);
        }
    }
    assert_eq!(store.engine.len(KEYSPACE), 5_000);
}

#[test]
fn expired_keys_leave_the_index_by_themselves() {
    let (region, mut store) = common::fresh(256 << 10, &small_settings());
    for number in 0..300u32 {
        let expiry_ms = if number % 3 == 0 { 0 } else { store.now.wall_ms + 10 };
        let kind = WriteKind::Put { value: &[7; 40], expiry_ms, kind: Default::default() };
        let name = number.to_le_bytes();
        store.write(&[Write { key: store.key(KEYSPACE, &name), kind }]).unwrap();
        store.turn(tierstone_media::Wait::Poll);
    }
    assert_eq!(store.engine.len(KEYSPACE), 300);
    store.now.wall_ms += 20;
    for _ in 0..20 {
        store.now.monotonic_us += 1_000_000;
        store.turn(tierstone_media::Wait::Poll);
    }
    assert_eq!(store.engine.len(KEYSPACE), 100);
    assert_eq!(store.engine.statistics().expired_keys, 200);
    let mut store = common::reopen_after_kill(store, &region, &small_settings());
    assert_eq!(store.engine.len(KEYSPACE), 100);
    for _ in 0..9 {
        store.now.monotonic_us += 1_000_000;
        store.turn(tierstone_media::Wait::Poll);
    }
    assert_eq!(store.engine.next_step_at_us(), None, "no walk when nothing expires");
}
