//! Backups that are made since others: a chain of them shows exactly what counted at the cut of the last one, whatever
//! came between and beside; and gives no more than what changed.

use crate::common::chain::{Chain, Coming};
use crate::common::run::{Contents, Run, assert_same, key};
use crate::common::{
    Store, flip_bit, fresh, geometry, mutated, random_settings, read, reopen, reopen_after_kill,
    small_settings,
};
use tierstone_base::{ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::{BackupStep, Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;

/// Makes a backup since the last one of the chain beside changes; gives what was at the cut, what the chain shows, and the bytes
/// that came.
fn backup(run: &mut Run, chain: &mut Chain) -> Result<(Contents, Contents, usize)> {
    let (expected, keyspaces) = (run.live(), run.keyspaces.clone());
    let cut = run.store.engine.begin_backup(run.store.now, chain.since.clone())?;
    let mut coming = Coming::default();
    loop {
        for _ in 0..run.random.below(12) {
            run.change();
        }
        run.store.turn(Wait::One);
        if run.random.chance(0.4) {
            continue;
        }
        match run.store.engine.take_backup()? {
            BackupStep::Piece(piece) => coming.take(&piece),
            BackupStep::Later => {}
            BackupStep::End => break,
        }
    }
    run.store.engine.end_backup();
    let bytes = coming.bytes;
    chain.add(coming, cut.opening, cut.wall_ms);
    Ok((expected, chain.contents(&keyspaces), bytes))
}

/// A chain of backups of a store that is changed between them, closed, or killed.
fn chain(seed: u64, settings: &OpenSettings) -> Result<Vec<(Contents, Contents)>> {
    let mut run = Run::new(seed, settings);
    // Keyspaces that the superblock does not list are dropped by an opening.
    run.drops = seed.is_multiple_of(2);
    let mut chain = Chain::default();
    let mut all = Vec::new();
    for round in 0..8 {
        for _ in 0..[600, 30, 0, 200, 400, 40, 300, 100][round] {
            run.change();
        }
        if round % 2 == 1 && !run.drops {
            run.store.sync().unwrap();
            run.snapshots.clear();
            let (store, medium) = (run.store, run.medium);
            let store = match round {
                1 => reopen(store, &medium, settings),
                _ => reopen_after_kill(store, &medium, settings),
            };
            run = Run { store, medium, ..run };
        }
        let (expected, found, _) = backup(&mut run, &mut chain)?;
        all.push((expected, found));
    }
    Ok(all)
}

#[test]
fn a_chain_shows_what_counted_at_its_last_cut_whatever_came_between() {
    let mut seeds = SeededRandom::new(78);
    for _ in 0..40 {
        let seed = seeds.next_u64();
        let settings = random_settings(&mut SeededRandom::new(seed));
        for (number, (expected, found)) in chain(seed, &settings).unwrap().iter().enumerate() {
            assert!(expected.len() > 20, "seed {seed}: only {} records", expected.len());
            assert_same(found, expected, &format!("seed {seed}, backup {number}"));
        }
    }
}

/// Whether a broken rule is seen by some seed.
#[track_caller]
fn caught(name: &'static str) {
    let mut seeds = SeededRandom::new(78);
    let is_caught = (0..120).any(|_| {
        let seed = seeds.next_u64();
        let settings =
            OpenSettings { mutations: Mutations::one(name), ..random_settings(&mut SeededRandom::new(seed)) };
        let run = std::panic::catch_unwind(|| chain(seed, &settings));
        !matches!(run, Ok(Ok(all)) if all.iter().all(|(expected, found)| expected == found))
    });
    println!("{name}: {is_caught}");
    assert!(is_caught, "{name} was not seen");
}

#[test]
fn what_counts_no_more_in_a_segment_of_the_base_is_told() {
    caught("backup_keeps_what_changed");
}

#[test]
fn expiries_that_were_changed_in_place_are_told() {
    caught("backup_forgets_touches");
}

#[test]
fn an_opening_may_make_records_count_again() {
    caught("backup_trusts_other_openings");
}

/// Whether a chain is right whose base was made before a record rotted whose key was written again afterwards.
fn is_right_after_rot(settings: &OpenSettings) -> bool {
    let (medium, mut store) = fresh(64 << 10, 120, settings);
    let value = |number: u64| format!("{number:08}").repeat(75).into_bytes();
    for number in 0..1_000 {
        store.put(KeyspaceId(1), &key(number), &value(number)).unwrap();
    }
    store.sync().unwrap();
    let mut chain = Chain::default();
    alone(&mut store, &mut chain);
    let bytes = read(&mut medium.device(), 0, geometry(64 << 10, 120).end() as usize);
    // One that is not cached.
    let rotten = (100..1_000).find(|number| {
        let place = bytes.windows(600).position(|window| window == value(*number)).unwrap() as u64;
        flip_bit(&mut medium.device(), place + 300, 1);
        store.get(KeyspaceId(1), &key(*number)).is_err()
    });
    let rotten = rotten.unwrap();
    store.put(KeyspaceId(1), &key(rotten), &[99; 600]).unwrap();
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        alone(&mut store, &mut chain);
        chain.contents(&[1])
    }));
    run.is_ok_and(|found| found.len() == 1_000 && found[&(1, key(rotten))].0 == [99; 600])
}

#[test]
fn a_record_that_rotted_before_its_key_was_written_again_is_not_shown() {
    assert!(is_right_after_rot(&small_settings()));
    assert!(!is_right_after_rot(&mutated("backup_forgets_passed")));
}

/// A store with records of 600 bytes in many segments.
fn filled(count: u64) -> (tierstone_media::sim::SimMedium, Store) {
    let (medium, mut store) = fresh(64 << 10, 120, &small_settings());
    for number in 0..count {
        store.put(KeyspaceId(1), &key(number), &[number as u8; 600]).unwrap();
    }
    store.sync().unwrap();
    (medium, store)
}

/// A backup without anything beside it; gives its bytes.
fn alone(store: &mut Store, chain: &mut Chain) -> usize {
    let cut = store.engine.begin_backup(store.now, chain.since.clone()).unwrap();
    let mut coming = Coming::default();
    loop {
        match store.engine.take_backup().unwrap() {
            BackupStep::Piece(piece) => coming.take(&piece),
            BackupStep::Later => store.turn(Wait::One),
            BackupStep::End => break,
        }
    }
    store.engine.end_backup();
    let bytes = coming.bytes;
    chain.add(coming, cut.opening, cut.wall_ms);
    bytes
}

#[test]
fn what_comes_is_in_proportion_to_what_changed() {
    let (medium, mut store) = filled(4_000);
    let mut chain = Chain::default();
    let whole = alone(&mut store, &mut chain);
    assert!(whole > 4_000 * 600);
    // Nothing changed: some bytes for each segment, and no read of records.
    let read_before = store.engine.statistics().device.bytes_read;
    let nothing = alone(&mut store, &mut chain);
    assert!(nothing < 50 * 60, "{nothing} bytes");
    assert_eq!(store.engine.statistics().device.bytes_read, read_before);
    // One in a hundred was written again.
    for number in 0..40 {
        store.put(KeyspaceId(1), &key(number * 100), &[7; 600]).unwrap();
    }
    let little = alone(&mut store, &mut chain);
    assert!((40 * 600..2 * 40 * 600).contains(&little), "{little} bytes");
    // After another opening, what has not changed is not given either.
    let mut store = reopen(store, &medium, &small_settings());
    let opened = alone(&mut store, &mut chain);
    assert!(opened < 50 * 60 + 40 * 600, "{opened} bytes");
    // Deletions give places, no records.
    for number in 0..40 {
        store.delete(KeyspaceId(1), &key(number * 100 + 1)).unwrap();
    }
    let deleted = alone(&mut store, &mut chain);
    assert!(deleted < 50 * 60 + 40 * 20, "{deleted} bytes");
    let found = chain.contents(&[1]);
    assert_eq!(found.len(), 4_000 - 40);
    assert_eq!(found[&(1, key(300))].0, [7; 600]);
    assert!(!found.contains_key(&(1, key(301))));
}

#[test]
fn a_kept_segment_is_let_go_and_a_clock_that_went_back_is_refused() {
    let (_medium, mut store) = filled(1_000);
    let mut chain = Chain::default();
    alone(&mut store, &mut chain);
    let mut since = chain.since.clone().unwrap();
    since.taken_at_ms = store.now.wall_ms + 1;
    let error = store.engine.begin_backup(store.now, Some(since)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("make a whole backup"), "{error}");
    for round in 0..20u8 {
        store.engine.begin_backup(store.now, chain.since.clone()).unwrap();
        store.turn(Wait::One);
        store.engine.end_backup();
        for number in 0..1_000 {
            let value = [round; 600];
            let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
            store.write(&[Write { key: store.key(KeyspaceId(1), &key(number)), kind }]).unwrap();
        }
    }
    assert_eq!(store.engine.statistics().keys, 1_000);
}
