//! Split, Merge and Compact: nothing is lost or brought back, whoever writes meanwhile and wherever a
//! crash comes.

use crate::common::lives::{Mix, Plan};
use crate::common::{Store, fresh, medium, open_on, random_settings, small_settings};
use std::collections::BTreeMap;
use tierstone_base::{ErrorKind, KeyspaceId, Position, SeededRandom};
use tierstone_crash::{Choices, ExploreSettings, Mutations};
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_logstore::transfer::MovedRecord;
use tierstone_media::Wait;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, SimMedium};

type Model = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

const KEYSPACES: u32 = 2;
/// The upper half of all positions.
const RANGE: (Position, Position) = (Position(1 << 63), Position(u64::MAX));

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn is_moved(store: &Store, key: &[u8]) -> bool {
    store.key(KeyspaceId(1), key).position >= RANGE.0
}

/// What a store holds.
fn contents(store: &mut Store) -> Model {
    let mut found = Model::new();
    for keyspace in 1..=KEYSPACES {
        for entry in store.scan_all(KeyspaceId(keyspace), 20).unwrap() {
            if let Some((_, value)) = store.get(KeyspaceId(keyspace), &entry.key).unwrap() {
                found.insert((keyspace, entry.key), value);
            }
        }
    }
    found
}

/// The part of `model` that a split moves, or the rest.
fn part(model: &Model, store: &Store, moved: bool) -> Model {
    let of_part = model.iter().filter(|((_, key), _)| is_moved(store, key) == moved);
    of_part.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Gives records to the target, as a caller would.
fn ingest(target: &mut Store, records: &[MovedRecord]) {
    for records in records.chunks(16) {
        for _ in 0..20_000 {
            match target.engine.ingest(target.now, records) {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Retry => target.turn(Wait::One),
                Err(error) => panic!("ingest: {error}"),
            }
        }
    }
}

/// Takes some of what is to be moved over; `bytes` at most.
fn carry(source: &mut Store, target: &mut Store, bytes: usize) {
    let mut records = Vec::new();
    source.turn(Wait::One);
    source.engine.take_moved(bytes, usize::MAX, &mut records);
    ingest(target, &records);
}

/// The lock: the last changes go over and are durable at the target, then the source may drop.
fn hand_over(source: &mut Store, target: &mut Store, sync_target: bool) {
    source.engine.lock_split().unwrap();
    for _ in 0..20_000 {
        if source.engine.split_progress().unwrap().drained {
            break;
        }
        carry(source, target, usize::MAX);
    }
    if sync_target {
        target.sync().unwrap();
    }
    source.engine.drop_split().unwrap();
}

fn drop_all(source: &mut Store, mut each: impl FnMut(&mut Store)) {
    for _ in 0..20_000 {
        if source.engine.split_progress().unwrap().dropped {
            break;
        }
        source.turn(Wait::One);
        each(source);
    }
    assert!(source.engine.split_progress().unwrap().dropped);
    source.engine.end_split();
}

/// One write or delete of one random key, or a batch.
fn change(store: &mut Store, model: &mut Model, random: &mut SeededRandom, keys: u64) {
    for _ in 0..if random.chance(0.1) { 1 + random.below(6) } else { 1 } {
        let keyspace = 1 + random.below(u64::from(KEYSPACES)) as u32;
        let bytes = key(random.below(keys));
        let value = random.chance(0.8).then(|| vec![random.below(256) as u8; random.below(900) as usize]);
        let kind = match &value {
            Some(value) => WriteKind::Put { value, expiry_ms: 0, kind: Default::default() },
            None => WriteKind::Delete,
        };
        store.write(&[Write { key: store.key(KeyspaceId(keyspace), &bytes), kind }]).unwrap();
        match value {
            Some(value) => drop(model.insert((keyspace, bytes), value)),
            None => drop(model.remove(&(keyspace, bytes))),
        }
    }
}

/// A whole split beside writes; gives what source and target should hold and do.
fn split(seed: u64, settings: &OpenSettings) -> [(Model, Model); 2] {
    let mut random = SeededRandom::new(seed);
    let (_one, mut source) = fresh(64 << 10, 16, settings);
    let (_other, mut target) = fresh(64 << 10, 24, settings);
    let mut model = Model::new();
    for _ in 0..800 {
        change(&mut source, &mut model, &mut random, 300);
    }
    source.engine.begin_split(RANGE).unwrap();
    target.engine.begin_merge(RANGE).unwrap();
    assert_eq!(source.engine.begin_split(RANGE).unwrap_err().kind(), ErrorKind::Busy);
    for step in 0.. {
        // Writers are quick at first, so that much is cleaned before it was scanned.
        for _ in 0..if step < 60 { 12 } else { random.below(3) } {
            change(&mut source, &mut model, &mut random, 300);
        }
        carry(&mut source, &mut target, 4 << 10);
        target.turn(Wait::Poll);
        if step > 100 && source.engine.split_progress().unwrap().caught_up {
            break;
        }
        assert!(step < 20_000, "seed {seed}: {:?}", source.engine.split_progress());
    }
    hand_over(&mut source, &mut target, true);
    let moved = (0..).map(key).find(|key| is_moved(&source, key)).unwrap();
    let stays = (0..).map(key).find(|key| !is_moved(&source, key)).unwrap();
    let put = WriteKind::Put { value: b"late", expiry_ms: 0, kind: Default::default() };
    let late = [Write { key: source.key(KeyspaceId(1), &moved), kind: put }];
    assert_eq!(source.engine.write(source.now, &late).unwrap_err().kind(), ErrorKind::Unsupported);
    source.put(KeyspaceId(1), &stays, b"here").unwrap();
    model.insert((1, stays), b"here".to_vec());
    target.engine.end_merge();
    drop_all(&mut source, |_| {});
    let kept = part(&model, &source, false);
    let gone = part(&model, &source, true);
    [(contents(&mut source), kept), (contents(&mut target), gone)]
}

#[test]
fn a_split_beside_writers_moves_exactly_its_range() {
    let mut seeds = SeededRandom::new(31);
    for _ in 0..8 {
        let seed = seeds.next_u64();
        let mut settings = random_settings(&mut SeededRandom::new(seed));
        settings.weak_hash_bits = [None, Some(30)][(seed & 1) as usize];
        for (found, expected) in split(seed, &settings) {
            assert!(found == expected, "seed {seed}: {} keys for {}", found.len(), expected.len());
        }
    }
}

#[track_caller]
fn caught(name: &'static str) {
    let settings = OpenSettings { mutations: Mutations::one(name), ..small_settings() };
    let wrong = (0..10).any(|seed| split(seed, &settings).iter().any(|(found, expected)| found != expected));
    assert!(wrong, "nothing was wrong with {name}");
    let settings = small_settings();
    assert!((0..10).all(|seed| split(seed, &settings).iter().all(|(found, expected)| found == expected)));
}

#[test]
fn changes_during_a_split_go_over() {
    caught("split_changes_not_kept");
}

#[test]
fn what_the_cleaner_moves_before_the_scan_goes_over() {
    caught("split_misses_cleaned");
}

/// What a target holds that writes for itself while it takes another's records in.
fn merge(settings: &OpenSettings) -> (Model, Model) {
    let (_one, mut source) = fresh(64 << 10, 16, settings);
    let (_other, mut target) = fresh(64 << 10, 24, settings);
    let mut random = SeededRandom::new(5);
    let (mut model, mut before) = (Model::new(), Model::new());
    for _ in 0..200 {
        change(&mut source, &mut model, &mut random, 100);
        change(&mut target, &mut before, &mut random, 150);
    }
    // What the target held before yields; what it writes from now on does not.
    let mut expected = before;
    expected.extend(model.clone());
    source.engine.begin_split((Position(0), Position(u64::MAX))).unwrap();
    target.engine.begin_merge((Position(0), Position(u64::MAX))).unwrap();
    let mut written = Model::new();
    let mut touched = Vec::new();
    for _ in 0..30 {
        let bytes = key(random.below(150));
        touched.push(bytes.clone());
        if random.chance(0.3) {
            target.delete(KeyspaceId(1), &bytes).unwrap();
            written.remove(&(1, bytes));
        } else {
            target.put(KeyspaceId(1), &bytes, b"newer").unwrap();
            written.insert((1, bytes), b"newer".to_vec());
        }
    }
    while !source.engine.split_progress().unwrap().caught_up {
        carry(&mut source, &mut target, 2_000);
    }
    hand_over(&mut source, &mut target, true);
    target.engine.end_merge();
    drop_all(&mut source, |_| {});
    assert!(contents(&mut source).is_empty());
    for bytes in touched {
        expected.remove(&(1, bytes));
    }
    expected.extend(written);
    (contents(&mut target), expected)
}

#[test]
fn in_a_merge_writes_of_the_target_win() {
    let (found, expected) = merge(&small_settings());
    assert!(found == expected);
    let broken = OpenSettings { mutations: Mutations::one("merge_overwrites"), ..small_settings() };
    let (found, expected) = merge(&broken);
    assert!(found != expected, "nothing was wrong with merge_overwrites");
}

/// After a crash of both, at a moment of the split: is every acknowledged record in one of them?
struct CrashCheck<'a> {
    settings: &'a OpenSettings,
    media: [SimMedium; 2],
    checked: u32,
    lost: Vec<String>,
}

impl CrashCheck<'_> {
    /// `acknowledged` is all that the source holds or has handed over; `owned_by_target`: the drop may
    /// have begun.
    fn check(&mut self, acknowledged: &Model, owned_by_target: bool, seed: u64) {
        let choices = Choices::random(seed);
        let copies = [self.media[0].crashed_copy(&choices), self.media[1].crashed_copy(&choices)];
        let [mut source, mut target] = copies.map(|copy| open_on(copy.device(), self.settings).unwrap().0);
        let (found, taken) = (contents(&mut source), contents(&mut target));
        self.checked += 1;
        for ((keyspace, key), value) in acknowledged {
            let holder = if owned_by_target && is_moved(&source, key) { &taken } else { &found };
            if holder.get(&(*keyspace, key.clone())) != Some(value) {
                self.lost.push(format!("seed {seed}: {}", String::from_utf8_lossy(key)));
            }
        }
        if owned_by_target && seed.is_multiple_of(4) {
            // Whoever knows that the range has moved drops what is left of it.
            source.engine.begin_split(RANGE).unwrap();
            let mut void = Vec::new();
            while !source.engine.split_progress().unwrap().caught_up {
                source.turn(Wait::One);
                source.engine.take_moved(usize::MAX, usize::MAX, &mut void);
            }
            source.engine.lock_split().unwrap();
            while !source.engine.split_progress().unwrap().drained {
                source.turn(Wait::One);
                source.engine.take_moved(usize::MAX, usize::MAX, &mut void);
            }
            source.engine.drop_split().unwrap();
            drop_all(&mut source, |_| {});
            let left = contents(&mut source);
            assert!(left == part(acknowledged, &source, false), "seed {seed}: the drop was not taken up");
        }
    }
}

/// A split with crashes tried at every turn; gives what was lost.
fn crashes(seed: u64, sync_target: bool) -> (u32, Vec<String>) {
    let settings = small_settings();
    let media = [medium(32 << 10, 24), medium(32 << 10, 24)];
    let mut random = SeededRandom::new(seed);
    let (mut source, _) = open_on(media[0].device(), &settings).unwrap();
    let (mut target, _) = open_on(media[1].device(), &settings).unwrap();
    let mut check = CrashCheck { settings: &settings, media, checked: 0, lost: Vec::new() };
    let mut model = Model::new();
    for _ in 0..150 {
        change(&mut source, &mut model, &mut random, 60);
    }
    source.sync().unwrap();
    source.engine.begin_split(RANGE).unwrap();
    target.engine.begin_merge(RANGE).unwrap();
    for step in 0.. {
        if step < 20 {
            change(&mut source, &mut model, &mut random, 60);
            source.sync().unwrap();
        }
        carry(&mut source, &mut target, 8 << 10);
        target.turn(Wait::Poll);
        check.check(&model, false, random.next_u64());
        if step > 20 && source.engine.split_progress().unwrap().caught_up {
            break;
        }
    }
    // So that the lock has something to do.
    for _ in 0..20 {
        change(&mut source, &mut model, &mut random, 60);
    }
    source.sync().unwrap();
    hand_over(&mut source, &mut target, sync_target);
    check.check(&model, true, random.next_u64());
    drop_all(&mut source, |_| check.check(&model, true, random.next_u64()));
    check.check(&model, true, random.next_u64());
    (check.checked, check.lost)
}

#[test]
fn a_crash_anywhere_in_a_split_leaves_every_acknowledged_record_in_one_of_the_two() {
    for seed in 0..4 {
        let (checked, lost) = crashes(seed, true);
        println!("seed {seed}: {checked} crashes");
        assert!(lost.is_empty(), "seed {seed}: {lost:?}");
    }
}

#[test]
fn a_source_that_drops_before_its_target_is_durable_loses_records() {
    assert!((0..4).any(|seed| !crashes(seed, false).1.is_empty()), "an early drop was not seen");
}

#[test]
fn a_split_that_is_given_up_leaves_the_source_whole_and_another_may_begin() {
    let settings = small_settings();
    let mut random = SeededRandom::new(8);
    let (_one, mut source) = fresh(64 << 10, 24, &settings);
    let (_other, mut target) = fresh(64 << 10, 24, &settings);
    let mut model = Model::new();
    for round in 0..12 {
        for _ in 0..60 {
            change(&mut source, &mut model, &mut random, 100);
        }
        source.engine.begin_split(RANGE).unwrap();
        for _ in 0..round {
            source.turn(if round % 2 == 0 { Wait::Poll } else { Wait::One });
        }
        if round % 3 == 0 {
            source.engine.lock_split().unwrap();
        }
        source.engine.end_split();
    }
    assert!(contents(&mut source) == model);
    source.engine.begin_split(RANGE).unwrap();
    target.engine.begin_merge(RANGE).unwrap();
    while !source.engine.split_progress().unwrap().caught_up {
        carry(&mut source, &mut target, usize::MAX);
    }
    hand_over(&mut source, &mut target, true);
    drop_all(&mut source, |_| {});
    assert!(contents(&mut source) == part(&model, &source, false));
    assert!(contents(&mut target) == part(&model, &source, true));
}

#[test]
fn what_a_target_writes_beside_the_range_does_not_end_a_merge_and_too_much_in_it_does() {
    let (_medium, mut target) = fresh(64 << 10, 24, &small_settings());
    target.engine.begin_merge(RANGE).unwrap();
    let long = |number: u32| [number.to_be_bytes().as_slice(), &[0; 12_000]].concat();
    // Deletions of what is not there count, too.
    let write_all = |target: &mut Store, moved: bool| {
        for key in
            (0..5_000).map(long).filter(|key| is_moved(target, key) == moved).take(1_500).collect::<Vec<_>>()
        {
            let write = Write { key: target.key(KeyspaceId(1), &key), kind: WriteKind::Delete };
            target.write(&[write]).unwrap();
        }
    };
    let moved = (0..).map(key).find(|key| is_moved(&target, key)).unwrap();
    let value = tierstone_logstore::transfer::MovedValue {
        value: b"1".to_vec(),
        expiry_ms: 0,
        kind: Default::default(),
    };
    let record = MovedRecord { keyspace: KeyspaceId(1), key: moved, put: Some(value) };
    write_all(&mut target, false);
    target.engine.ingest(target.now, std::slice::from_ref(&record)).unwrap();
    write_all(&mut target, true);
    assert_eq!(target.engine.ingest(target.now, &[record]).unwrap_err().kind(), ErrorKind::NoMemory);
}

#[test]
fn a_split_says_what_it_cannot_do() {
    let settings = {
        let mut settings = small_settings();
        settings.shard.memory_bytes = 8 << 10;
        settings
    };
    let (medium, mut source) = fresh(64 << 10, 24, &settings);
    assert_eq!(source.engine.split_progress().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(source.engine.lock_split().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(source.engine.ingest(source.now, &[]).unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut model = Model::new();
    let mut random = SeededRandom::new(8);
    for _ in 0..300 {
        change(&mut source, &mut model, &mut random, 100);
    }
    source.sync().unwrap();
    source.settle(500);
    // A keyspace that goes cannot be followed.
    source.engine.begin_split(RANGE).unwrap();
    assert!(source.engine.drop_split().is_err());
    source.engine.drop_keyspace(KeyspaceId(3));
    source.settle(500);
    assert_eq!(source.engine.split_progress().unwrap_err().kind(), ErrorKind::Retry);
    source.engine.end_split();
    // Nor can what is not readable.
    source.engine.begin_split(RANGE).unwrap();
    medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    source.settle(500);
    assert_eq!(source.engine.split_progress().unwrap_err().kind(), ErrorKind::Corrupt);
    source.engine.end_split();
    medium.clear_faults();
    assert!(contents(&mut source) == model);
    // What nobody takes away is not gathered without end.
    source.engine.begin_split(RANGE).unwrap();
    for _ in 0..2_000 {
        change(&mut source, &mut model, &mut random, 100);
    }
    assert!(contents(&mut source) == model);
}

/// A store that is half garbage, every second record.
fn littered(settings: &OpenSettings) -> (SimMedium, Store, Model) {
    let (medium, mut store) = fresh(64 << 10, 64, settings);
    let mut model = Model::new();
    for number in 0..1_200u64 {
        let value = vec![number as u8; 700];
        store.put(KeyspaceId(1), &key(number), &value).unwrap();
        model.insert((1, key(number)), value);
    }
    for number in (0..1_200).filter(|number| number % 2 == 0) {
        store.delete(KeyspaceId(1), &key(number)).unwrap();
        model.remove(&(1, key(number)));
    }
    store.sync().unwrap();
    (medium, store, model)
}

fn compact(store: &mut Store, mut each: impl FnMut(&mut Store)) {
    store.engine.begin_compact().unwrap();
    for _ in 0..20_000 {
        if store.engine.compact_progress().segments_left == 0 {
            store.sync().unwrap();
            return store.settle(500);
        }
        store.turn(Wait::One);
        each(store);
    }
    panic!("a compaction does not end: {:?}", store.engine.compact_progress());
}

#[test]
fn a_compaction_leaves_live_records_in_dense_segments() {
    let mut settings = small_settings();
    // Without it the cleaner would let the garbage lie: there is room enough.
    settings.shard.clean_below_free_fraction = 0.01;
    let (_medium, mut store, model) = littered(&settings);
    let before = store.engine.statistics();
    let total = {
        store.engine.begin_compact().unwrap();
        let progress = store.engine.compact_progress();
        assert_eq!(progress.segments_left, progress.segments_total);
        assert_eq!(store.engine.begin_compact().unwrap_err().kind(), ErrorKind::Busy);
        store.engine.end_compact();
        progress.segments_total
    };
    compact(&mut store, |_| {});
    let after = store.engine.statistics();
    println!(
        "{total} segments; used {} KiB before, {} KiB after, {} KiB live",
        before.space_used_bytes >> 10,
        after.space_used_bytes >> 10,
        after.space_live_bytes >> 10
    );
    assert!(before.space_used_bytes as f64 > 1.8 * after.space_live_bytes as f64);
    // 12 KiB of a segment are headers, summary and footer; one of each log is open.
    assert!(after.space_used_bytes as f64 <= 1.4 * after.space_live_bytes as f64 + 131_072.0, "{after:?}");
    assert!(contents(&mut store) == model);
}

#[test]
fn a_store_serves_while_it_is_compacted_and_survives_crashes_in_it() {
    let settings = small_settings();
    let (medium, mut store, mut model) = littered(&settings);
    let mut random = SeededRandom::new(3);
    let mut crashes = 0;
    compact(&mut store, |store| {
        change(store, &mut model, &mut random, 1_200);
        store.sync().unwrap();
        if random.below(12) == 0 {
            let copy = medium.crashed_copy(&Choices::random(random.next_u64()));
            let (mut crashed, _) = open_on(copy.device(), &settings).unwrap();
            assert!(contents(&mut crashed) == model, "a crash in a compaction changed something");
            crashes += 1;
        }
    });
    assert!(crashes > 3, "{crashes} crashes");
    assert!(contents(&mut store) == model);
}

#[test]
fn crashes_anywhere_in_compactions_lose_nothing_and_bring_nothing_back() {
    let mix = Mix {
        operations: 120,
        keys: 14,
        value_bytes_max: 3_000,
        batches: 10,
        deletes: 35,
        expiring: 8,
        settle_one_in: 12,
        compactions: 8,
        ..Mix::default()
    };
    let plan = Plan::new(32 << 10, 12).cut_one_in(400);
    let sampled = ExploreSettings::sampled(901, 120, &Mutations::none());
    plan.explore(sampled, &|world, life, choices| mix.work(world, life, choices)).assert_clean();
}

/// A summary of thousands of records of which none is wanted is looked through in many short steps.
#[test]
fn a_step_of_a_scan_looks_at_few_entries() {
    let (_medium, mut store) = fresh(4 << 20, 8, &small_settings());
    for number in 0..20_000u32 {
        store.put(KeyspaceId(1), &number.to_be_bytes(), b"").unwrap();
    }
    store.sync().unwrap();
    store.engine.begin_split((Position(5), Position(5))).unwrap();
    let mut steps = 0;
    while !store.engine.split_progress().unwrap().caught_up {
        store.turn(Wait::One);
        steps += 1;
    }
    assert!(steps >= 20, "{steps} steps for 20,000 entries");
    store.engine.end_split();
}

#[test]
fn what_is_taken_at_a_time_is_bounded_in_records_too() {
    let (_medium, mut store) = fresh(256 << 10, 16, &small_settings());
    for number in 0..1_000 {
        store.put(KeyspaceId(1), &key(number), b"").unwrap();
    }
    store.sync().unwrap();
    store.engine.begin_split((Position(0), Position(u64::MAX))).unwrap();
    let (mut records, mut most) = (Vec::new(), 0);
    while !store.engine.split_progress().unwrap().caught_up {
        store.turn(Wait::One);
        let before = records.len();
        store.engine.take_moved(usize::MAX, 7, &mut records);
        most = most.max(records.len() - before);
    }
    assert_eq!((records.len(), most), (1_000, 7));
    store.engine.end_split();
}
