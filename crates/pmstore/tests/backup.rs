//! Backups of the store in persistent memory: exactly what counted at the cut, each record once, whatever is written,
//! deleted, cleaned, expired or dropped meanwhile; bounded in memory, and lost with a clear word where nobody takes them.

use crate::common;
use crate::common::{Store, fresh, open_one, random_settings, reopen_after_kill, small_settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::backup::{PieceKind, place_digest, read_parts};
use tierstone_engine::{
    Admission, BackupPiece, BackupRecords, BackupSince, BackupStep, BatchTicket, Engine, IndexKind,
    PartEntry, PartState, Write, WriteKind,
};
use tierstone_media::Wait;
use tierstone_media::region::{MappedRegion, RegionSettings};
use tierstone_media::sim::WordMachine;
use tierstone_pmstore::OpenSettings;

/// Keyspace and key.
type Name = (u32, Vec<u8>);
/// Value and expiry.
type Stored = (Vec<u8>, u64);
type Contents = BTreeMap<Name, Stored>;

/// A store that is changed at random in every way that matters, and what it should hold.
struct Run {
    machine: WordMachine,
    store: Store,
    random: SeededRandom,
    model: Contents,
    /// In use; the last one is dropped now and then.
    keyspaces: Vec<u32>,
}

/// Some keys are longer than records hold.
fn key(number: u64) -> Vec<u8> {
    let mut key = format!("key {number}").into_bytes();
    if number % 40 == 7 {
        key.resize(2_000, b'x');
    }
    key
}

impl Run {
    fn new(seed: u64, settings: &OpenSettings) -> Run {
        let (machine, store) = fresh(2 << 20, settings);
        let random = SeededRandom::new(seed);
        Run { machine, store, random, model: Contents::new(), keyspaces: vec![1, 2, 3] }
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
        let soon_ms = self.store.now.wall_ms + 1 + self.random.below(400);
        match self.random.below(100) {
            0..70 => {
                let longest = if self.random.chance(0.05) { 9_000 } else { 700 };
                let value = vec![self.random.below(256) as u8; self.random.below(longest) as usize];
                let expiry_ms = if self.random.chance(0.3) { soon_ms } else { 0 };
                self.put(id, &bytes, value, expiry_ms);
            }
            70..85 => {
                self.store.delete(KeyspaceId(id), &bytes).unwrap();
                self.model.remove(&(id, bytes));
            }
            85..90 => self.store.now.wall_ms += self.random.below(200),
            90..97 => self.store.settle(20),
            97 => self.drop_last(),
            _ => self.store.sync().unwrap(),
        }
    }

    fn drop_last(&mut self) {
        let gone = self.keyspaces.pop().unwrap();
        self.store.engine.drop_keyspace(KeyspaceId(gone));
        self.model.retain(|(id, _), _| *id != gone);
        let kind = if self.random.chance(0.5) { IndexKind::Ordered } else { IndexKind::Hash };
        self.store.engine.create_keyspace(KeyspaceId(gone + 1), kind);
        self.keyspaces.push(gone + 1);
    }

    /// What counts now.
    fn live(&self) -> Contents {
        let wall_ms = self.store.now.wall_ms;
        let is_live = |(_, value): &(_, &(Vec<u8>, u64))| value.1 == 0 || value.1 > wall_ms;
        self.model.iter().filter(is_live).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// What has come of a backup.
#[derive(Default)]
struct Found {
    contents: Contents,
    /// Of each part, its records and the digest of their places.
    parts: BTreeMap<(u32, u64), (u64, u64)>,
    entries: Vec<PartEntry>,
}

impl Found {
    fn take(&mut self, piece: &BackupPiece) {
        if piece.kind == PieceKind::Parts {
            self.entries.extend(read_parts(&piece.bytes).unwrap());
            return;
        }
        let mut records = BackupRecords::new(&piece.bytes);
        let (count, digest) = self.parts.entry(records.part().unwrap()).or_default();
        for record in records.by_ref() {
            (*count, *digest) = (*count + 1, digest.wrapping_add(place_digest(record.place)));
            let place = (record.keyspace.0, record.key.to_vec());
            let twin = self.contents.insert(place, (record.value.to_vec(), record.expiry_ms));
            assert!(twin.is_none(), "{record:?} came twice");
        }
        assert!(!records.is_damaged());
    }

    /// The table names all parts that came, and nothing else.
    fn check_table(&self) {
        let of_entry = |entry: &PartEntry| {
            assert_eq!((&entry.state, entry.expiries.len()), (&PartState::Given, 0));
            ((entry.held.name.part, entry.held.name.life), (entry.held.live, entry.held.digest))
        };
        assert_eq!(self.entries.iter().map(of_entry).collect::<BTreeMap<_, _>>(), self.parts);
    }
}

/// Takes what there is until the end; `meanwhile` is what others do.
fn take_all(store: &mut Store, mut meanwhile: impl FnMut(&mut Store)) -> Result<Found> {
    let mut found = Found::default();
    loop {
        match store.engine.take_backup()? {
            BackupStep::Piece(piece) => found.take(&piece),
            BackupStep::Later => store.turn(Wait::One),
            BackupStep::End => break,
        }
        meanwhile(store);
    }
    store.engine.end_backup();
    found.check_table();
    Ok(found)
}

/// A whole backup beside changes: what was at the cut, and what came.
fn backup(run: &mut Run) -> Result<(Contents, Contents)> {
    let expected = run.live();
    run.store.engine.begin_backup(run.store.now, None)?;
    let mut found = Found::default();
    loop {
        for _ in 0..run.random.below(40) {
            run.change();
        }
        // Often nobody takes what there is.
        if run.random.chance(0.4) {
            continue;
        }
        match run.store.engine.take_backup()? {
            BackupStep::Piece(piece) => found.take(&piece),
            BackupStep::Later => run.store.turn(Wait::One),
            BackupStep::End => break,
        }
    }
    run.store.engine.end_backup();
    found.check_table();
    Ok((expected, found.contents))
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
    run.store.settle(400);
    for ((id, bytes), (value, _)) in run.live() {
        let found = run.store.get(KeyspaceId(id), &bytes)?.map(|(_, value)| value);
        assert_eq!(found, Some(value), "what backups leave behind");
    }
    Ok(all)
}

#[track_caller]
fn assert_same(found: &Contents, expected: &Contents, what: &str) {
    let names = |one: &Contents, other: &Contents| -> Vec<String> {
        let lacks = |(key, value): &(&Name, &Stored)| other.get(*key) != Some(*value);
        let name = |((id, key), (value, at_ms)): (&Name, &Stored)| {
            format!("{id}/{:.12} ({} bytes, {at_ms})", String::from_utf8_lossy(key), value.len())
        };
        one.iter().filter(lacks).take(5).map(name).collect()
    };
    let wrong = (names(found, expected), names(expected, found));
    assert!(found == expected, "{what}: too much {:?}, missing {:?}", wrong.0, wrong.1);
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
fn what_is_replaced_before_the_walk_has_come_to_it_is_given() {
    caught("replaced_not_kept_for_backup");
}

#[test]
fn what_the_walk_has_passed_is_not_given_again() {
    caught("backup_gives_again");
}

#[test]
fn dropped_keyspaces_stay_until_the_walk_is_through() {
    caught("dropped_not_kept_for_backup");
}

/// A store with a part of a batch whose other part is not there yet; its ticket.
fn undecided(settings: &OpenSettings) -> (Store, Arc<BatchTicket>) {
    let (_machine, mut store) = fresh(640 << 10, settings);
    store.put(KeyspaceId(2), b"before", b"1").unwrap();
    let ticket = BatchTicket::new(9, 2);
    let kind = WriteKind::Put { value: b"2", expiry_ms: 0, kind: Default::default() };
    store.write_part(&[Write { key: store.key(KeyspaceId(2), b"part"), kind }], &ticket).unwrap();
    store.engine.flush(store.now);
    store.settle(20);
    store.engine.begin_backup(store.now, None).unwrap();
    store.settle(20);
    (store, ticket)
}

#[test]
fn nothing_is_given_before_the_cut_is_decided() {
    let (mut store, ticket) = undecided(&small_settings());
    // What is replaced meanwhile waits as well.
    store.put(KeyspaceId(2), b"before", b"3").unwrap();
    store.settle(20);
    assert_eq!(store.engine.take_backup().unwrap(), BackupStep::Later);
    ticket.note_durable();
    let found = take_all(&mut store, |_| {}).unwrap();
    let values: Vec<&[u8]> = found.contents.values().map(|(value, _)| &value[..]).collect();
    assert_eq!(values, [&b"1"[..], &b"2"[..]]);
    let broken = OpenSettings { mutations: Mutations::one("backup_given_undecided"), ..small_settings() };
    let (mut store, _ticket) = undecided(&broken);
    let found = take_all(&mut store, |_| {}).unwrap();
    assert_eq!(found.contents.len(), 2, "the rule was not what held the part back");
}

/// Fills a store in ordinary memory with `count` records of 600 bytes.
fn filled(bytes: u64, count: u64) -> Store {
    let mut settings = small_settings();
    settings.geometry.segment_bytes = 256 << 10;
    settings.geometry.log_segments = 8;
    let region = Arc::new(MappedRegion::anonymous(bytes, &RegionSettings::default()).unwrap());
    let (mut store, _) = open_one(&region, &settings);
    for number in 0..count {
        store.put(KeyspaceId(1), &key(number), &[number as u8; 600]).unwrap();
        if number % 100 == 0 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
    store
}

#[test]
fn what_nobody_takes_is_bounded_and_the_walk_waits() {
    let mut store = filled(24 << 20, 20_000);
    store.engine.begin_backup(store.now, None).unwrap();
    store.settle(2_000);
    let mut ready = 0;
    let mut found = Found::default();
    while let BackupStep::Piece(piece) = store.engine.take_backup().unwrap() {
        ready += piece.bytes.len();
        found.take(&piece);
    }
    assert!((1 << 20..2 << 20).contains(&ready), "{ready} bytes were ready");
    assert!(found.contents.len() < 5_000, "{}", found.contents.len());
    store.engine.end_backup();
}

#[test]
fn writes_wait_for_a_backup_that_nobody_takes_and_then_it_is_lost() {
    let mut store = filled(48 << 20, 36_000);
    store.engine.begin_backup(store.now, None).unwrap();
    let mut refused = 0u64;
    let mut number = 0;
    while number < 36_000 {
        let name = key(number);
        let kind = WriteKind::Put { value: &[1; 600], expiry_ms: 0, kind: Default::default() };
        let writes = [Write { key: store.key(KeyspaceId(1), &name), kind }];
        let admitted = store.engine.admit(store.now, &writes);
        match store.engine.write(store.now, &writes) {
            Ok(_) => {
                assert!(admitted.is_ok(), "{admitted:?}");
                number += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                let refused_before = admitted.expect_err("what is admitted is taken");
                assert_eq!(refused_before.message(), error.message());
                if error.message().contains("backup") {
                    assert_eq!(store.engine.admission(), Admission::Open, "who takes its pieces is let in");
                    refused += 1;
                    store.now.monotonic_us += 10_000;
                }
                store.turn(Wait::One);
            }
        }
    }
    assert!(refused > 50, "writers waited {refused} times");
    let error = store.engine.take_backup().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
    assert!(error.message().contains("take its pieces more quickly"), "{error}");
    assert_eq!(store.engine.admission(), Admission::Open);
    store.engine.end_backup();
    // The next one is whole.
    store.engine.begin_backup(store.now, None).unwrap();
    let found = take_all(&mut store, |_| {}).unwrap();
    assert_eq!(found.contents.len(), 36_000);
}

#[test]
fn a_backup_that_is_taken_lasts_beside_overwrites() {
    let count = 20_000;
    let mut store = filled(24 << 20, count);
    let mut random = SeededRandom::new(5);
    store.engine.begin_backup(store.now, None).unwrap();
    let mut writes = 0u64;
    let found = take_all(&mut store, |store| {
        for _ in 0..400 {
            let number = random.below(count);
            store.put(KeyspaceId(1), &key(number), &[!number as u8; 600]).unwrap();
            writes += 1;
        }
    })
    .unwrap();
    assert_eq!(found.contents.len() as u64, count);
    for number in 0..count {
        assert_eq!(found.contents[&(1, key(number))].0, [number as u8; 600], "key {number}");
    }
    println!("{writes} writes beside {} parts", found.parts.len());
    assert!(writes > count / 2);
}

#[test]
fn what_a_backup_refuses_it_says() {
    let (_machine, mut store) = fresh(640 << 10, &small_settings());
    assert_eq!(store.engine.take_backup().unwrap_err().kind(), ErrorKind::InvalidInput);
    let since = store.engine.begin_backup(store.now, Some(BackupSince::default())).unwrap_err();
    assert_eq!(since.kind(), ErrorKind::Unsupported);
    assert!(since.message().contains("whole backups only"), "{since}");
    store.engine.begin_backup(store.now, None).unwrap();
    let second = store.engine.begin_backup(store.now, None).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Busy, "{second}");
    store.engine.end_backup();
    store.put(KeyspaceId(2), b"key", b"value").unwrap();
    store.engine.begin_backup(store.now, None).unwrap();
    store.engine.shut();
    store.settle(20);
    let closed = store.engine.take_backup().unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Busy, "{closed}");
    assert!(store.engine.is_shut());
}

/// A record that cannot be read is not left out in silence.
#[test]
fn damage_ends_a_backup() {
    let mut run = Run::new(3, &small_settings());
    for number in 0..50 {
        run.put(2, &key(number), vec![7; 300], 0);
    }
    run.store.sync().unwrap();
    let image = run.machine.region().image();
    let record = image.windows(300).rposition(|part| part == [7; 300]).unwrap();
    common::flip_bit(&run.machine, record + 150, 3);
    run.store.engine.begin_backup(run.store.now, None).unwrap();
    let error = take_all(&mut run.store, |_| {}).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    run.store.engine.end_backup();
}

#[test]
fn nothing_is_left_of_a_backup_after_a_kill() {
    let settings = small_settings();
    let mut run = Run::new(11, &settings);
    for _ in 0..2_000 {
        run.change();
    }
    run.store.engine.begin_backup(run.store.now, None).unwrap();
    for _ in 0..200 {
        run.change();
    }
    run.store.sync().unwrap();
    let expected = run.live();
    let Run { machine, store, .. } = run;
    let mut store = reopen_after_kill(store, &machine, &settings);
    assert_eq!(store.engine.take_backup().unwrap_err().kind(), ErrorKind::InvalidInput);
    store.engine.begin_backup(store.now, None).unwrap();
    let found = take_all(&mut store, |_| {}).unwrap();
    // Keyspaces that were dropped live in the superblock, which this store has not.
    let known = |contents: &Contents| -> Contents {
        contents
            .iter()
            .filter(|((id, _), _)| *id < 3)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    assert_same(&known(&found.contents), &known(&expected), "after a kill");
}
