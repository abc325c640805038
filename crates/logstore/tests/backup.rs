//! Backups of the log store: exactly what counted at the cut, each record once, whatever is written, deleted, cleaned or
//! dropped meanwhile; and lost with a clear word where the store is full.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod common;

use common::{Store, fresh, random_settings, small_settings};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::{BackupRecords, BackupStep, Engine, IndexKind, SnapshotId, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;

type Place = (u32, Vec<u8>);
type Stored = (Vec<u8>, u64);
type Contents = BTreeMap<Place, Stored>;

/// What a store should hold, and how it came to it.
struct Run {
    store: Store,
    random: SeededRandom,
    model: Contents,
    /// Keyspaces in use; the last one is dropped now and then.
    keyspaces: Vec<u32>,
    snapshots: Vec<SnapshotId>,
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

impl Run {
    fn new(seed: u64, settings: &OpenSettings) -> Run {
        let (_medium, store) = fresh(64 << 10, 24, settings);
        let random = SeededRandom::new(seed);
        Run { store, random, model: Contents::new(), keyspaces: vec![1, 2, 3], snapshots: Vec::new() }
    }

    fn put(&mut self, id: u32, bytes: &[u8], value: Vec<u8>, expiry_ms: u64) {
        let kind = WriteKind::Put { value: &value, expiry_ms, kind: Default::default() };
        self.store.write(&[Write { key: self.store.key(KeyspaceId(id), bytes), kind }]).unwrap();
        self.model.insert((id, bytes.to_vec()), (value, expiry_ms));
    }

    /// One random change.
    fn change(&mut self) {
        let id = self.keyspaces[self.random.below(3) as usize];
        let bytes = key(self.random.below(150));
        let wall_ms = self.store.now.wall_ms;
        let soon_ms = wall_ms + 1 + self.random.below(400);
        match self.random.below(100) {
            0..60 => {
                let len = self.random.below(900) as usize;
                let value = vec![self.random.below(256) as u8; len];
                let expiry_ms = if self.random.chance(0.3) { soon_ms } else { 0 };
                self.put(id, &bytes, value, expiry_ms);
            }
            60..75 => {
                self.store.delete(KeyspaceId(id), &bytes).unwrap();
                self.model.remove(&(id, bytes));
            }
            // Another expiry, and the same value.
            75..88 => {
                let found = self.model.get(&(id, bytes.clone())).cloned();
                if let Some((value, expiry_ms)) = found.filter(|(_, at_ms)| *at_ms == 0 || *at_ms > wall_ms) {
                    let expiry_ms = if expiry_ms == 0 { soon_ms } else { 0 };
                    self.put(id, &bytes, value, expiry_ms);
                }
            }
            88..92 => self.store.now.wall_ms += self.random.below(200),
            92..96 => self.store.settle(20),
            96..98 => self.snapshot(),
            98 => self.drop_last(),
            _ => self.store.sync().unwrap(),
        }
    }

    fn snapshot(&mut self) {
        match self.snapshots.pop() {
            Some(id) => self.store.engine.release_snapshot(id),
            None => self.snapshots.push(self.store.engine.snapshot(self.store.now).unwrap()),
        }
    }

    fn drop_last(&mut self) {
        let gone = self.keyspaces.pop().unwrap();
        self.store.engine.drop_keyspace(KeyspaceId(gone));
        self.model.retain(|(id, _), _| *id != gone);
        let new = gone + 1;
        let kind = if self.random.chance(0.5) { IndexKind::Ordered } else { IndexKind::Hash };
        self.store.engine.create_keyspace(KeyspaceId(new), kind);
        self.keyspaces.push(new);
    }

    /// What counts now.
    fn live(&self) -> Contents {
        let wall_ms = self.store.now.wall_ms;
        let is_live = |(_, value): &(_, &(Vec<u8>, u64))| value.1 == 0 || value.1 > wall_ms;
        self.model.iter().filter(is_live).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// A whole backup beside changes: what was at the cut, and what came.
    fn backup(&mut self) -> Result<(Contents, Contents)> {
        let expected = self.live();
        self.store.engine.begin_backup(self.store.now)?;
        let mut found = Contents::new();
        loop {
            for _ in 0..self.random.below(12) {
                self.change();
            }
            self.store.turn(Wait::One);
            // Often nobody takes what there is.
            if self.random.chance(0.4) {
                continue;
            }
            match self.store.engine.take_backup()? {
                BackupStep::Piece(piece) => collect(&piece.bytes, &mut found),
                BackupStep::Later => {}
                BackupStep::End => break,
            }
        }
        self.store.engine.end_backup();
        Ok((expected, found))
    }
}

fn collect(bytes: &[u8], found: &mut Contents) {
    let mut records = BackupRecords::new(bytes);
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
        all.push(run.backup()?);
    }
    let statistics = run.store.engine.statistics();
    assert!(statistics.device.bytes_written > statistics.space_capacity_bytes, "{statistics:?}");
    Ok(all)
}

fn assert_same(found: &Contents, expected: &Contents, what: &str) {
    let (one, other): (BTreeSet<_>, BTreeSet<_>) = (found.iter().collect(), expected.iter().collect());
    let names = |set: Vec<&(&Place, &Stored)>| -> Vec<String> {
        let name = |((id, key), (value, at)): &(&Place, &Stored)| {
            format!("{id}/{} ({} bytes, {at})", String::from_utf8_lossy(key), value.len())
        };
        set.into_iter().take(5).map(name).collect()
    };
    let wrong = (names(one.difference(&other).collect()), names(other.difference(&one).collect()));
    assert!(one == other, "{what}: too much {:?}, missing {:?}", wrong.0, wrong.1);
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
    store.engine.begin_backup(store.now).unwrap();
    let mut found = Contents::new();
    let mut writes = 0u64;
    loop {
        match store.engine.take_backup().unwrap() {
            BackupStep::Piece(piece) => collect(&piece.bytes, &mut found),
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
    store.engine.begin_backup(store.now).unwrap();
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
    assert!(store.engine.begin_backup(store.now).is_ok(), "another one may begin");
}

#[test]
fn one_backup_is_under_way_and_none_outlasts_the_shard() {
    let (_medium, mut store) = fresh(64 << 10, 24, &small_settings());
    assert_eq!(store.engine.take_backup().unwrap_err().kind(), ErrorKind::InvalidInput);
    filled(&mut store, 0.3);
    store.engine.begin_backup(store.now).unwrap();
    assert_eq!(store.engine.begin_backup(store.now).unwrap_err().kind(), ErrorKind::Busy);
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
        store.engine.begin_backup(store.now).unwrap();
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
