//! After a loss that was accepted: keys that lie with their values, their older versions, and stores without room.

use crate::common;
use crate::common::{
    Store, cut_while_opened, flip_bit, fresh, machine_of, open_all, open_one, reopen, reopen_after_kill,
    small_settings, table_and_data, word_at,
};
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_caught, explore};
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_media::Wait;
use tierstone_media::sim::WordMachine;
use tierstone_pmstore::OpenSettings;
use tierstone_pmstore::check::{CheckSettings, check};

const KEYSPACE: KeyspaceId = KeyspaceId(2);
const OTHER: KeyspaceId = KeyspaceId(3);
const BYTES: u64 = 256 << 10;
/// What the lowest byte of a word of the allocation table says.
const STORAGE: u8 = 3;
const OVERFLOW: u8 = 4;
const LEAD_BYTES: usize = 64;
const RECORD_BYTES: usize = 48;
/// Flags of a record whose key lies out, with its value.
const KEY_OUT: u8 = 2 | 4;

fn name(kind: char, number: u32) -> Vec<u8> {
    format!("{kind}-key-{number:05}").into_bytes()
}

/// A key that lies in overflow blocks: with an empty value it takes three units of 256 bytes.
fn far(number: u32) -> Vec<u8> {
    let mut key = name('l', number);
    key.resize(600, b'x');
    key
}

/// Begins with the key `far(number)`, so that what says that that one is whole is right of it, too, at the same place.
fn farther(number: u32) -> Vec<u8> {
    [far(number), vec![b'y'; 8]].concat()
}

/// Ten of these fill a segment of long values.
fn long(kind: char, number: u32) -> Vec<u8> {
    vec![kind as u8 ^ number as u8; 1_500]
}

fn broken(mutations: &Mutations) -> OpenSettings {
    OpenSettings { mutations: mutations.clone(), ..uncleaned() }
}

fn accepted(mutations: &Mutations) -> OpenSettings {
    OpenSettings { loss_accepted: true, ..broken(mutations) }
}

/// No block is cleaned before one is needed.
fn uncleaned() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.clean_below_blocks = 0;
    settings
}

/// Places of the words of segments that say this, and of the segments.
fn segments(image: &[u8], kind: u8) -> Vec<(usize, usize)> {
    let (table, data) = table_and_data(image, &small_settings());
    let count = word_at(image, small_settings().base as usize + 56) as usize;
    let places =
        |at: usize| (table as usize + at * 8, data as usize + at * common::SMALL.segment_bytes as usize);
    (0..count).map(places).filter(|(word, _)| image[*word] == kind).collect()
}

/// Where records begin in blocks, whatever block is in use.
fn records(image: &[u8]) -> Vec<usize> {
    let (block_bytes, mut found) = (common::SMALL.block_bytes as usize, Vec::new());
    for (_, segment) in segments(image, STORAGE) {
        for block in (segment..segment + common::SMALL.segment_bytes as usize).step_by(block_bytes) {
            let mut at = block + LEAD_BYTES;
            while at + RECORD_BYTES <= block + block_bytes {
                let len = word_at(image, at) as u32 as usize;
                if len < RECORD_BYTES || !len.is_multiple_of(8) || at + len > block + block_bytes {
                    break;
                }
                found.push(at);
                at += len;
            }
        }
    }
    found
}

/// Records of values of this length whose keys lie out.
fn far_records(machine: &WordMachine, value_len: u64) -> Vec<usize> {
    let image = machine.region().image();
    let is_it = |at: &usize| image[at + 6] == KEY_OUT && word_at(&image, at + 40) >> 32 == value_len;
    records(&image).into_iter().filter(is_it).collect()
}

fn is_gone(store: &mut Store, key: &[u8]) -> bool {
    matches!(store.get(KEYSPACE, key), Ok(None))
}

fn assert_undamaged(machine: &WordMachine) {
    let settings = CheckSettings { base: small_settings().base, ..CheckSettings::default() };
    let report = check(Arc::new(machine.region()), &settings, &mut |_| {}).unwrap();
    assert!(!report.is_damaged(), "{:?}", report.findings);
}

/// A segment with long keys is lost, and is one of long values again. How many of its keys come back.
fn come_back(mutations: &Mutations) -> usize {
    let (machine, mut store) = fresh(BYTES, &uncleaned());
    for number in 0..20 {
        store.put(KEYSPACE, &far(number), &[number as u8; 900]).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let (word, _) = segments(&machine.region().image(), OVERFLOW)[0];
    flip_bit(&machine, word + 3, 2);
    assert_eq!(open_all(&machine, &uncleaned()).err().unwrap().kind(), ErrorKind::Corrupt);
    let (mut store, report) = open_one(&machine, &accepted(mutations));
    let lost: Vec<u32> = (0..20).filter(|number| is_gone(&mut store, &far(*number))).collect();
    assert_eq!((report.damaged, lost.len()), (10, 10));
    // Into the first free segment, of which most stays as it was.
    for number in 0..2 {
        store.put(KEYSPACE, &name('b', number), &long('b', number)).unwrap();
    }
    store.sync().unwrap();
    let mut store = reopen_after_kill(store, &machine, &broken(mutations));
    assert_eq!(store.get(KEYSPACE, &name('b', 1)).unwrap().unwrap().1, long('b', 1));
    let back = lost.iter().filter(|number| !is_gone(&mut store, &far(**number))).count();
    if back == 0 {
        for &number in &lost {
            store.put(KEYSPACE, &far(number), b"new").unwrap();
            store.delete(KEYSPACE, &far(number)).unwrap();
        }
        let mut store = reopen(store, &machine, &small_settings());
        store.settle(1_000);
        assert!(lost.iter().all(|number| is_gone(&mut store, &far(*number))));
        drop(store);
        assert_undamaged(&machine);
    }
    back
}

#[test]
fn long_keys_of_a_lost_segment_do_not_come_back_with_it() {
    assert_eq!(come_back(&Mutations::none()), 0);
    assert!(come_back(&Mutations::one("lost_keys_left")) > 0, "the mutation is not caught");
}

/// Of key 1 three versions are there: one that is whole at a place that nobody uses; one at the place of another key, which
/// begins with it and so is whole, too; and the newest, which has rotted.
fn versions_of_a_long_key(machine: &WordMachine) {
    let settings = uncleaned();
    let (mut store, _) = open_one(machine, &settings);
    for number in [50, 51] {
        store.put(KEYSPACE, &far(number), b"").unwrap();
    }
    store.put(KEYSPACE, &far(1), &[7; 900]).unwrap();
    for number in [50, 51] {
        store.delete(KEYSPACE, &far(number)).unwrap();
    }
    for value in [&b""[..], b"z"] {
        store = reopen(store, machine, &settings);
        store.put(KEYSPACE, &far(1), value).unwrap();
        // The newest version has a block of its own.
        for number in 0..20 {
            store.put(OTHER, &name('f', number), &[0; 200]).unwrap();
        }
    }
    store = reopen(store, machine, &settings);
    store.put(KEYSPACE, &farther(1), b"").unwrap();
    drop(reopen(store, machine, &settings));
    let newest = far_records(machine, 1);
    assert_eq!(newest.len(), 1);
    flip_bit(machine, newest[0] + RECORD_BYTES + 3, 1);
    assert_eq!(open_all(machine, &settings).err().unwrap().kind(), ErrorKind::Corrupt);
}

/// Whether an older version is shown, in this life or in the next.
fn is_older_shown(mutations: &Mutations) -> bool {
    let machine = common::machine(BYTES);
    versions_of_a_long_key(&machine);
    let (mut store, report) = open_one(&machine, &accepted(mutations));
    assert_eq!((report.damaged_blocks, report.damaged), (1, 1));
    assert!(is_gone(&mut store, &far(1)));
    let mut store = reopen(store, &machine, &broken(mutations));
    assert_eq!(store.get(KEYSPACE, &farther(1)).unwrap().unwrap().1, b"");
    let is_shown = !is_gone(&mut store, &far(1));
    if !is_shown {
        store.put(KEYSPACE, &far(1), b"new").unwrap();
        store.delete(KEYSPACE, &farther(1)).unwrap();
        let mut store = reopen(store, &machine, &uncleaned());
        assert_eq!(store.get(KEYSPACE, &far(1)).unwrap().unwrap().1, b"new");
        drop(store);
        assert_undamaged(&machine);
    }
    is_shown
}

#[test]
fn older_versions_of_a_key_that_is_made_void_are_void_too() {
    assert!(!is_older_shown(&Mutations::none()));
    assert!(is_older_shown(&Mutations::one("older_versions_left")), "the mutation is not caught");
}

/// The same, when power is lost while the loss is accepted.
fn buried_and_cut(choices: &Choices, mutations: &Mutations) -> Result<(), Violation> {
    let machine: WordMachine = machine_of(BYTES, choices);
    versions_of_a_long_key(&machine);
    let settings = accepted(mutations);
    cut_while_opened(&machine, &settings, 60);
    let mut store = open_all(&machine, &settings)?.0.pop().unwrap();
    Violation::unless(is_gone(&mut store, &far(1)), || "an older version is shown".to_owned())?;
    let other = store.get(KEYSPACE, &farther(1))?;
    Violation::unless(other.is_some_and(|(_, value)| value.is_empty()), || "another key is gone".to_owned())
}

fn explored(runs: u64, mutations: &Mutations) -> Report {
    let settings = ExploreSettings { max_minimise_runs: 0, ..ExploreSettings::random(78, runs) };
    explore(settings, |choices| buried_and_cut(choices, mutations))
}

#[test]
fn older_versions_are_void_durably_before_the_one_that_counts() {
    explored(150, &Mutations::none()).assert_clean();
    let name = "older_void_unfenced";
    assert_caught(name, || explored(2_000, &Mutations::one(name)));
}

/// A short value in place of a long one.
const SHORT: &[u8] = b"what is lost";
/// So many keys, each of which would take a quarter of a KiB for its tombstone.
const MANY: u32 = 60;

fn wide(kind: char, number: u32) -> Vec<u8> {
    let mut key = name(kind, number);
    key.resize(200, b'w');
    key
}

/// Writes to the store, as long as nothing has to be made room for.
fn fill_without_cleaning(store: &mut Store) {
    for number in 0..1_000 {
        let key = name('f', number);
        let kind = WriteKind::Put { value: &[0; 900], expiry_ms: 0, kind: Default::default() };
        let write = Write { key: store.key(OTHER, &key), kind };
        match store.engine.write(store.now, &[write]) {
            // A step truncates the log, and cleans nothing as long as no block was asked for in vain.
            Err(error) if error.message().contains("the log is full") => store.turn(Wait::Poll),
            Err(_) => return,
            Ok(_) => {}
        }
    }
    panic!("the store is not full");
}

#[test]
fn a_full_store_opens_without_room_for_the_tombstones_of_what_is_lost() {
    let settings = uncleaned();
    let (machine, mut store) = fresh(384 << 10, &settings);
    let value = |kind: char, number: u32| vec![kind as u8 ^ number as u8; 1_100];
    for number in 0..MANY {
        store.put(KEYSPACE, &wide('a', number), &value('a', number)).unwrap();
    }
    for number in 0..MANY {
        store.put(KEYSPACE, &wide('a', number), SHORT).unwrap();
    }
    let mut store = reopen(store, &machine, &settings);
    // Where the old values were.
    for number in 0..MANY {
        store.put(KEYSPACE, &wide('b', number), &value('b', number)).unwrap();
    }
    let mut store = reopen(store, &machine, &settings);
    fill_without_cleaning(&mut store);
    store.sync().unwrap();
    drop(store);
    let image = machine.region().image();
    let is_short = |at: &usize| image[at + 6] == 0 && word_at(&image, at + 40) >> 32 == SHORT.len() as u64;
    for record in records(&image).into_iter().filter(is_short) {
        flip_bit(&machine, record + RECORD_BYTES + 3, 1);
    }
    assert_eq!(open_all(&machine, &settings).err().unwrap().kind(), ErrorKind::Corrupt);
    let (mut store, report) = open_one(&machine, &accepted(&Mutations::none()));
    assert!(report.damaged_blocks >= 4 && report.damaged == u64::from(MANY), "{report:?}");
    for life in 0..2 {
        for number in 0..MANY {
            assert!(is_gone(&mut store, &wide('a', number)), "{number} in life {life}");
            let found = store.get(KEYSPACE, &wide('b', number)).unwrap().unwrap().1;
            assert!(found == value('b', number), "{number} in life {life}");
        }
        store = reopen(store, &machine, &settings);
    }
    // It takes writes and deletes as before.
    for number in 0..MANY {
        store.delete(KEYSPACE, &wide('b', number)).unwrap();
        store.put(KEYSPACE, &wide('a', number), SHORT).unwrap();
    }
    drop(reopen(store, &machine, &settings));
    assert_undamaged(&machine);
}
