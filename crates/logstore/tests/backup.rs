//! Backups of the log store: exactly what counted at the cut, each record once, whatever is written, deleted, cleaned or
//! dropped meanwhile; and lost with a clear word where the store is full.

use crate::common::run::{Contents, Run, assert_same, key};
use crate::common::{Store, fresh, random_settings, small_settings};
use tierstone_base::{ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::backup::PieceKind;
use tierstone_engine::{BackupPiece, BackupRecords, BackupStep, Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;

/// A whole backup beside changes: what was at the cut, and what came.
fn backup(run: &mut Run) -> Result<(Contents, Contents)> {
    let expected = run.live();
    run.store.engine.begin_backup(run.store.now, None)?;
    let mut found = Contents::new();
    loop {
        for _ in 0..run.random.below(12) {
            run.change();
        }
        run.store.turn(Wait::One);
        // Often nobody takes what there is.
        if run.random.chance(0.4) {
            continue;
        }
        match run.store.engine.take_backup()? {
            BackupStep::Piece(piece) => collect(&piece, &mut found),
            BackupStep::Later => {}
            BackupStep::End => break,
        }
    }
    run.store.engine.end_backup();
    Ok((expected, found))
}

fn collect(piece: &BackupPiece, found: &mut Contents) {
    if piece.kind == PieceKind::Parts {
        return;
    }
    let mut records = BackupRecords::new(&piece.bytes);
    for record in records.by_ref() {
        let place = (record.keyspace.0, record.key.to_vec());
        let twin = found.insert(place, (record.value.to_vec(), record.expiry_ms));
        assert!(twin.is_none(), "{record:?} came twice");
    }
    assert!(!records.is_damaged());
}

/// Some backups, one after the other, of one store that is written over many times.
fn backups(seed: u64, settings: &OpenSettings) -> Result<Vec<(Contents, Contents)>> {
    let mut run = Run::new(seed, settings);
    let mut all = Vec::new();
    for _ in 0..3 {
        for _ in 0..1_500 {
            run.change();
        }
        all.push(backup(&mut run)?);
    }
    let statistics = run.store.engine.statistics();
    assert!(statistics.device.bytes_written > statistics.space_capacity_bytes, "{statistics:?}");
    Ok(all)
}

#[test]
fn a_backup_has_what_counted_at_its_cut_whatever_happens_meanwhile() {
    let mut seeds = SeededRandom::new(77);
    for _ in 0..16 {
        let seed = seeds.next_u64();
        let settings = random_settings(&mut SeededRandom::new(seed));
        for (number, (expected, found)) in backups(seed, &settings).unwrap().iter().enumerate() {
            assert!(expected.len() > 20, "seed {seed}: only {} records", expected.len());
            assert_same(found, expected, &format!("seed {seed}, backup {number}"));
        }
    }
}

/// Whether a broken rule is seen by some seed: what a backup holds is not what was there, or it cannot be read.
#[track_caller]
fn caught(name: &'static str) {
    let mut seeds = SeededRandom::new(77);
    let is_caught = (0..16).any(|_| {
        let seed = seeds.next_u64();
        let settings =
            OpenSettings { mutations: Mutations::one(name), ..random_settings(&mut SeededRandom::new(seed)) };
        let run = std::panic::catch_unwind(|| backups(seed, &settings));
        !matches!(run, Ok(Ok(all)) if all.iter().all(|(expected, found)| expected == found))
    });
    println!("{name}: {is_caught}");
    assert!(is_caught, "{name} was not seen");
}

#[test]
fn what_is_replaced_before_it_was_read_is_kept() {
    caught("replaced_not_kept_for_backup");
}

#[test]
fn segments_that_were_not_read_are_neither_cleaned_nor_freed() {
    caught("snapshot_pins_ignored");
}

/// Fills a store to some part of its space with records of 600 bytes; gives how many.
fn filled(store: &mut Store, part: f64) -> u64 {
    let capacity = store.engine.statistics().space_capacity_bytes;
    let count = (capacity as f64 * part / 700.0) as u64;
    for number in 0..count {
        store.put(KeyspaceId(1), &key(number), &[number as u8; 600]).unwrap();
    }
    store.sync().unwrap();
    count
}

#[test]
fn a_backup_that_is_taken_lasts_beside_overwrites_in_a_store_that_is_nearly_full() {
    let (_medium, mut store) = fresh(256 << 10, 48, &small_settings());
    let count = filled(&mut store, 0.6);
    let mut random = SeededRandom::new(5);
    store.engine.begin_backup(store.now, None).unwrap();
    let mut found = Contents::new();
    let mut writes = 0u64;
    loop {
        match store.engine.take_backup().unwrap() {
            BackupStep::Piece(piece) => collect(&piece, &mut found),
            BackupStep::Later => store.turn(Wait::One),
            BackupStep::End => break,
        }
        // More is overwritten than the store has free.
        for _ in 0..400 {
            let number = random.below(count);
            store.put(KeyspaceId(1), &key(number), &[!number as u8; 600]).unwrap();
            writes += 1;
        }
    }
    assert_eq!(found.len() as u64, count);
    for number in 0..count {
        assert_eq!(found[&(1, key(number))].0, [number as u8; 600], "key {number}");
    }
    assert!(writes > count / 2, "{writes} writes came beside it");
}

#[test]
fn a_backup_that_nobody_takes_is_lost_when_the_store_is_full_and_writes_go_on() {
    let (_medium, mut store) = fresh(256 << 10, 48, &small_settings());
    let count = filled(&mut store, 0.6);
    store.engine.begin_backup(store.now, None).unwrap();
    let mut random = SeededRandom::new(6);
    for _ in 0..3 * count {
        let key = key(random.below(count));
        let write = |store: &mut Store| {
            let kind = WriteKind::Put { value: &[1; 600], expiry_ms: 0, kind: Default::default() };
            let key = store.key(KeyspaceId(1), &key);
            store.engine.write(store.now, &[Write { key, kind }])
        };
        let mut turns = 0;
        while let Err(error) = write(&mut store) {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            // Ten times as long as a writer of a full store waits.
            turns += 1;
            assert!(turns < 100_000, "the write waits for ever");
            store.now.monotonic_us += 50;
            store.turn(Wait::One);
        }
    }
    let error = store.engine.take_backup().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
    assert!(error.message().contains("the store is full"), "{error}");
    store.engine.end_backup();
    assert!(store.engine.begin_backup(store.now, None).is_ok(), "another one may begin");
}

#[test]
fn one_backup_is_under_way_and_none_outlasts_the_shard() {
    let (_medium, mut store) = fresh(64 << 10, 24, &small_settings());
    assert_eq!(store.engine.take_backup().unwrap_err().kind(), ErrorKind::InvalidInput);
    filled(&mut store, 0.3);
    store.engine.begin_backup(store.now, None).unwrap();
    assert_eq!(store.engine.begin_backup(store.now, None).unwrap_err().kind(), ErrorKind::Busy);
    store.engine.shut();
    assert_eq!(store.engine.take_backup().unwrap_err().kind(), ErrorKind::Busy);
    for _ in 0..10_000 {
        store.turn(Wait::One);
    }
    assert!(store.engine.is_shut());
}

#[test]
fn a_backup_that_is_given_up_lets_everything_go() {
    let (_medium, mut store) = fresh(64 << 10, 48, &small_settings());
    let count = filled(&mut store, 0.6);
    for round in 0..6u8 {
        store.engine.begin_backup(store.now, None).unwrap();
        for number in 0..count / 10 {
            store.put(KeyspaceId(1), &key(number), &[round; 600]).unwrap();
        }
        store.turn(Wait::One);
        store.engine.end_backup();
    }
    // Were segments still held back, the store would be full by now.
    for number in 0..3 * count {
        store.put(KeyspaceId(1), &key(number % count), &[9; 600]).unwrap();
    }
    assert_eq!(store.engine.statistics().keys, count);
}
