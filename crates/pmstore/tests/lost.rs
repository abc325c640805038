//! What was lost or has rotted takes nothing else with it: not what is written after a loss that was accepted, nor what is
//! served beside it.

use crate::common;
use crate::common::{
    Store, flip_bit, fresh, open_all, open_one, reopen, reopen_after_kill, small_settings, table_and_data,
};
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_crash::Mutations;
use tierstone_engine::Engine;
use tierstone_media::Wait;
use tierstone_media::sim::WordMachine;
use tierstone_pmstore::OpenSettings;
use tierstone_pmstore::check::{CheckSettings, check};

const KEYSPACE: KeyspaceId = KeyspaceId(2);
const OTHER: KeyspaceId = KeyspaceId(3);
const BYTES: u64 = 256 << 10;
/// What the lowest byte of a word of the allocation table says.
const LOG: u8 = 2;
const STORAGE: u8 = 3;
const OVERFLOW: u8 = 4;
/// Where in a record its key begins, and its flags.
const RECORD_BYTES: usize = 48;
const FLAGS_AT: usize = 6;
const TOMBSTONE: u8 = 1;

fn name(kind: char, number: u32) -> Vec<u8> {
    format!("{kind}-key-{number:05}").into_bytes()
}

/// Ten of these fill a segment of long values.
fn long(kind: char, number: u32) -> Vec<u8> {
    vec![kind as u8 ^ number as u8; 1_500]
}

fn accepted(mutations: &Mutations) -> OpenSettings {
    OpenSettings { loss_accepted: true, mutations: mutations.clone(), ..small_settings() }
}

/// Segments by what their words say, with the places of these.
fn segments(machine: &WordMachine, kind: u8) -> Vec<(usize, u64)> {
    let image = machine.region().image();
    let (table, data) = table_and_data(&image, &small_settings());
    let count = common::word_at(&image, small_settings().base as usize + 56);
    assert!(table + count * 8 <= data);
    let words = (0..count).map(|segment| (segment as usize, table + segment * 8));
    words.filter(|(_, word)| image[*word as usize] == kind).collect()
}

/// Where in storage blocks records with these bytes in place of the key begin.
fn records(machine: &WordMachine, key: &[u8]) -> Vec<usize> {
    let image = machine.region().image();
    let (_, data) = table_and_data(&image, &small_settings());
    let storage = segments(machine, STORAGE);
    let is_stored = |at: &usize| {
        let segment = at.checked_sub(data as usize).map(|at| at / common::SMALL.segment_bytes as usize);
        segment.is_some_and(|segment| storage.iter().any(|(own, _)| *own == segment))
    };
    let found = image.windows(key.len()).enumerate().filter(|(_, bytes)| *bytes == key);
    found.map(|(at, _)| at).filter(is_stored).map(|at| at - RECORD_BYTES).collect()
}

fn is_gone(store: &mut Store, key: &[u8]) -> bool {
    matches!(store.get(KEYSPACE, key), Ok(None))
}

/// Long values until none finds room, each of other bytes.
fn put_many(store: &mut Store, kind: char) {
    for number in 0..1_000 {
        if store.put(KEYSPACE, &name(kind, number), &long(kind, number)).is_err() {
            return;
        }
    }
    panic!("the store is not full");
}

/// Short values, so that blocks are cleaned and the log is truncated.
fn churn(store: &mut Store) {
    for round in 0..40 {
        for number in 0..20 {
            store.put(OTHER, &name('f', number), &[round; 200]).unwrap();
            store.turn(Wait::Poll);
        }
    }
}

/// Which of ten values are not there as they were acknowledged.
fn wrong(store: &mut Store, kind: char) -> Vec<u32> {
    let is_wrong = |number: &u32| {
        let found = store.get(KEYSPACE, &name(kind, *number));
        !matches!(found, Ok(Some((_, value))) if value == long(kind, *number))
    };
    (0..10).filter(is_wrong).collect()
}

fn assert_undamaged(machine: &WordMachine) {
    let settings = CheckSettings { base: small_settings().base, ..CheckSettings::default() };
    let report = check(Arc::new(machine.region()), &settings, &mut |_| {}).unwrap();
    assert!(!report.is_damaged(), "{:?}", report.findings);
}

/// The word of a segment of long values is lost, others are put there, and keys of the lost ones are written again. What of the
/// others is wrong, in this life or in the next.
fn put_after_a_word_was_lost(mutations: &Mutations, reopens: bool) -> Vec<u32> {
    let (machine, mut store) = fresh(BYTES, &small_settings());
    for number in 0..20 {
        store.put(KEYSPACE, &name('a', number), &long('a', number)).unwrap();
    }
    store.put(KEYSPACE, &name('a', 3), &long('a', 3)).unwrap();
    store.sync().unwrap();
    drop(store);
    let (_, word) = segments(&machine, OVERFLOW)[0];
    flip_bit(&machine, word as usize + 3, 2);
    assert_eq!(open_all(&machine, &small_settings()).err().unwrap().kind(), ErrorKind::Corrupt);
    let (mut store, report) = open_one(&machine, &accepted(mutations));
    let is_mended = !mutations.is_any_on();
    let lost = (0..20).filter(|number| is_gone(&mut store, &name('a', *number))).count();
    assert_eq!((report.damaged as usize, lost >= 9), (lost, is_mended), "{lost}");
    for number in 0..10 {
        store.put(KEYSPACE, &name('b', number), &long('b', number)).unwrap();
    }
    store.sync().unwrap();
    let settings = OpenSettings { mutations: mutations.clone(), ..small_settings() };
    if reopens {
        churn(&mut store);
        store = reopen_after_kill(store, &machine, &settings);
        let gone = (0..20).filter(|number| is_gone(&mut store, &name('a', *number))).count();
        assert!(!is_mended || gone == lost, "{gone} of {lost}");
    }
    for number in 0..20 {
        store.put(KEYSPACE, &name('a', number), b"short").unwrap();
    }
    churn(&mut store);
    put_many(&mut store, 'c');
    let found = wrong(&mut store, 'b');
    if !is_mended {
        return found;
    }
    let mut store = reopen(store, &machine, &settings);
    churn(&mut store);
    assert_eq!(wrong(&mut store, 'b'), found);
    drop(store);
    assert_undamaged(&machine);
    found
}

#[test]
fn records_of_a_lost_segment_destroy_nothing_that_is_put_there() {
    for reopens in [false, true] {
        assert!(put_after_a_word_was_lost(&Mutations::none(), reopens).is_empty());
        let one = Mutations::one("lost_values_count");
        // The next opening would find most of it otherwise.
        let mutations = if reopens { one.and("shared_units_count") } else { one };
        let broken = put_after_a_word_was_lost(&mutations, reopens);
        assert!(!broken.is_empty(), "the mutation is not caught, {reopens}");
    }
}

/// A long value is replaced, and its place is another's; then the record that replaced it is lost.
fn put_where_an_old_value_was(mutations: &Mutations) -> Vec<u32> {
    let mut settings = small_settings();
    settings.shard.clean_below_blocks = 0;
    let (machine, mut store) = fresh(BYTES, &settings);
    for number in 0..10 {
        store.put(KEYSPACE, &name('a', number), &long('a', number)).unwrap();
    }
    for number in 0..20 {
        store.put(OTHER, &name('f', number), &[0; 200]).unwrap();
    }
    store.put(KEYSPACE, &name('a', 4), b"what is lost").unwrap();
    let mut store = reopen(store, &machine, &settings);
    for number in 20..40 {
        store.put(OTHER, &name('f', number), &[0; 200]).unwrap();
    }
    for number in 0..10 {
        store.put(KEYSPACE, &name('b', number), &long('b', number)).unwrap();
    }
    drop(reopen(store, &machine, &settings));
    for record in records(&machine, &[&name('a', 4)[..], b"what is lost"].concat()) {
        flip_bit(&machine, record + RECORD_BYTES + 15, 1);
    }
    assert_eq!(open_all(&machine, &settings).err().unwrap().kind(), ErrorKind::Corrupt);
    let (mut store, report) = open_one(&machine, &accepted(mutations));
    assert_eq!(report.damaged_blocks, 1);
    assert!(wrong(&mut store, 'b').is_empty());
    let old = store.get(KEYSPACE, &name('a', 4));
    assert!(if !mutations.is_any_on() { matches!(old, Ok(None)) } else { old.is_err() }, "{old:?}");
    store.put(KEYSPACE, &name('a', 4), b"short").unwrap();
    churn(&mut store);
    put_many(&mut store, 'c');
    wrong(&mut store, 'b')
}

#[test]
fn an_old_value_that_counts_again_is_not_taken_for_what_lies_at_its_place() {
    assert!(put_where_an_old_value_was(&Mutations::none()).is_empty());
    let broken = put_where_an_old_value_was(&Mutations::one("shared_units_count"));
    assert_eq!(broken.len(), 1, "the mutation is not caught");
}

#[test]
fn a_rotted_tombstone_refuses_no_writes() {
    let (machine, mut store) = fresh(BYTES, &small_settings());
    let key = name('a', 1);
    store.put(KEYSPACE, &key, &[1; 50]).unwrap();
    store.delete(KEYSPACE, &key).unwrap();
    store.sync().unwrap();
    let flags = |record: &usize| machine.region().image()[record + FLAGS_AT];
    let tombstone = records(&machine, &key).into_iter().find(|record| flags(record) == TOMBSTONE).unwrap();
    flip_bit(&machine, tombstone + RECORD_BYTES + 3, 1);
    for value in [&b"one"[..], b"two"] {
        store.put(KEYSPACE, &key, value).unwrap();
        store.put(KEYSPACE, &name('a', 2), value).unwrap();
        store.sync().unwrap();
        assert_eq!(store.get(KEYSPACE, &key).unwrap().unwrap().1, value);
        store.delete(KEYSPACE, &key).unwrap();
    }
    assert!(is_gone(&mut store, &key));
    store.put(KEYSPACE, &key, b"three").unwrap();
    store.sync().unwrap();
    drop(store);
    let (mut store, _) = open_one(&machine, &accepted(&Mutations::none()));
    assert_eq!(store.get(KEYSPACE, &key).unwrap().unwrap().1, b"three");
    assert_eq!(store.get(KEYSPACE, &name('a', 2)).unwrap().unwrap().1, b"two");
}

#[test]
fn a_dropped_keyspace_gives_its_space_back_but_for_what_is_damaged() {
    let (machine, mut store) = fresh(BYTES, &small_settings());
    for number in 0..300 {
        store.put(KEYSPACE, &name('a', number), &[1; 100]).unwrap();
        store.turn(Wait::Poll);
    }
    for number in 0..5 {
        store.put(KEYSPACE, &name('b', number), &long('b', number)).unwrap();
    }
    store.sync().unwrap();
    for record in (0..300).step_by(60).flat_map(|number| records(&machine, &name('a', number))) {
        flip_bit(&machine, record + RECORD_BYTES + 3, 1);
    }
    let full = store.engine.statistics().space_live_bytes;
    assert!(full > 300 * 100 + 5 * 1_500);
    store.engine.drop_keyspace(KEYSPACE);
    store.settle(2_000);
    let left = store.engine.statistics().space_live_bytes;
    assert!(left < 1_000, "{left} of {full} bytes are live yet");
    for number in 0..300 {
        store.put(OTHER, &name('c', number), &[2; 100]).unwrap();
    }
}

/// Segments of the log that hold nothing.
fn spares(machine: &WordMachine) -> Vec<u64> {
    let image = machine.region().image();
    let is_spare = |word: &u64| common::word_at(&image, *word as usize) >> 24 & 0xffff_ffff == 0xffff_ffff;
    segments(machine, LOG).into_iter().map(|(_, word)| word).filter(is_spare).collect()
}

#[test]
fn a_log_that_lost_segments_gets_others() {
    let (machine, mut store) = fresh(BYTES, &small_settings());
    store.put(KEYSPACE, b"key", b"value").unwrap();
    store.sync().unwrap();
    drop(store);
    let lost = spares(&machine);
    assert_eq!(lost.len(), 3);
    for word in lost {
        flip_bit(&machine, word as usize + 3, 1);
    }
    assert_eq!(segments(&machine, LOG).len(), 4);
    assert_eq!(open_all(&machine, &small_settings()).err().unwrap().kind(), ErrorKind::Corrupt);
    let (mut stores, report, _) = open_all(&machine, &accepted(&Mutations::none())).unwrap();
    assert_eq!(report.damaged_segments.len(), 3);
    let mut store = stores.pop().unwrap();
    churn(&mut store);
    let mut store = reopen(store, &machine, &small_settings());
    churn(&mut store);
    assert_eq!(store.get(KEYSPACE, b"key").unwrap().unwrap().1, b"value");
    drop(store);
    assert_eq!(segments(&machine, LOG).len(), 4);
    assert_undamaged(&machine);
}
