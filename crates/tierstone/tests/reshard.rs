//! Stores that are opened with other numbers of shards, by either handle, and elsewhere.

use crate::support::{TemporaryDirectory, backends};
use std::collections::BTreeMap;
use std::path::Path;
use tierstone::{Batch, DatabaseOptions, Entry, IndexKind, Prefix, SharedStore, Store};
use tierstone_base::{Result, SeededRandom};

#[test]
fn lone_commits_find_room_in_a_small_store_whatever_number_of_shards_opens_it() {
    let seed = std::env::var("SEED")
        .map_or_else(|_| SeededRandom::system_seed().unwrap(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut random = SeededRandom::new(seed);
    let directory = TemporaryDirectory::new();
    let backend = *backends().last().unwrap();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (opening, shards) in [3, 1, 5, 2, 5, 1, 5].into_iter().enumerate() {
        let options = DatabaseOptions {
            segment_bytes: Some(128 << 10),
            capacity_bytes: Some(6 << 20),
            memory_bytes: 16 << 20,
            shards,
            ..directory.options(backend)
        };
        let mut store = Store::open(&options).unwrap();
        for number in 0..1_500 {
            let key = format!("key:{}", random.below(1_000)).into_bytes();
            let value = vec![number as u8; random.below(60) as usize];
            if let Err(error) = store.put(&key, &value) {
                let facts = store.statistics();
                panic!(
                    "opening {opening} with {shards} shards, write {number}: {error:?}; live {} used {} capacity {}, {:?}",
                    facts.space_live_bytes, facts.space_used_bytes, facts.space_capacity_bytes, facts
                );
            }
            model.insert(key, value);
        }
        assert_eq!(store.len(), model.len() as u64);
        match random.below(2) {
            0 => store.close().unwrap(),
            _ => drop(store),
        }
    }
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[test]
fn a_copy_of_the_directory_is_the_store_wherever_it_lies_and_whatever_number_of_shards_opens_it() {
    let directory = TemporaryDirectory::new();
    let options = DatabaseOptions {
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(8 << 20),
        memory_bytes: 16 << 20,
        shards: 2,
        ..directory.options(backends()[0])
    };
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut current = options.clone();
    for (round, shards) in [3, 1, 4, 2].into_iter().enumerate() {
        let mut store = Store::open(&current).unwrap();
        for number in 0..300 {
            let key = format!("key:{}", number * (round + 1)).into_bytes();
            let value = vec![number as u8; 300 + round];
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        // Once as after a crash: what was put is durable.
        if round % 2 == 0 {
            store.close().unwrap()
        } else {
            drop(store)
        }
        let to = current.directories[0].with_file_name(format!("copy {round}"));
        copy(&current.directories[0], &to);
        current = DatabaseOptions { directories: vec![to], shards, create: false, ..current };
        let mut store = Store::open(&current).unwrap();
        assert_eq!(store.len(), model.len() as u64, "round {round}, {shards} shards");
        for (key, value) in &model {
            assert_eq!(store.get(key).unwrap().as_ref(), Some(value), "round {round}, {shards} shards");
        }
        store.close().unwrap();
    }
    // The first one is as it was.
    let first = Store::open(&options).unwrap();
    assert_eq!(first.len(), 300);
    first.close().unwrap();
}

fn to_map(entries: impl Iterator<Item = Result<Entry>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    entries.map(Result::unwrap).map(|entry| (entry.key, entry.value)).collect()
}

#[test]
fn any_number_of_shards_and_either_handle_opens_the_same_store() {
    let directory = TemporaryDirectory::new();
    let options =
        |shards| DatabaseOptions { shards, memory_bytes: 8 << 20, ..directory.options(Default::default()) };
    let mut expected = BTreeMap::new();
    let mut store = Store::open(&options(3)).unwrap();
    for number in 0..500u32 {
        let (key, value) = (format!("key:{number}").into_bytes(), vec![number as u8; 200]);
        store.put(&key, &value).unwrap();
        expected.insert(key, value);
    }
    assert_eq!(store.len(), 500);
    assert!(to_map(store.scan()) == expected);
    let mut apart = Batch::new();
    for number in 0..50u32 {
        apart.put(format!("key:{number}").as_bytes(), b"");
    }
    store.write(&apart).unwrap();
    expected.extend((0..50u32).map(|number| (format!("key:{number}").into_bytes(), Vec::new())));
    let mut together = Batch::new();
    together.put(b"{tag}one", b"1").put(b"{tag}two", b"2").delete(b"{tag}three");
    store.write(&together).unwrap();
    expected.extend([(b"{tag}one".to_vec(), b"1".to_vec()), (b"{tag}two".to_vec(), b"2".to_vec())]);
    drop(store);
    for shards in [2, 1] {
        let store = SharedStore::open(&options(shards)).unwrap();
        assert!(to_map(store.scan()) == expected, "{shards} shards");
        let keys: Vec<&[u8]> = expected.keys().map(Vec::as_slice).collect();
        let values = store.get_many(&keys).unwrap();
        assert!(values.iter().zip(expected.values()).all(|(found, value)| found.as_ref() == Some(value)));
        if shards == 2 {
            store.write(&apart).unwrap();
            store.write(&together).unwrap();
        }
        store.close().unwrap();
    }
    let mut store = Store::open(&options(5)).unwrap();
    assert!(store.database().report().clean);
    assert!(to_map(store.scan()) == expected);
}

#[test]
fn ranges_are_merged_over_any_number_of_shards() {
    let directory = TemporaryDirectory::new();
    let options = |shards| DatabaseOptions {
        shards,
        memory_bytes: 8 << 20,
        index: Some(IndexKind::Ordered),
        ..directory.options(Default::default())
    };
    let keys: Vec<Vec<u8>> = (0..2_000u32).map(|number| format!("key:{number:04}").into_bytes()).collect();
    let mut store = Store::open(&options(3)).unwrap();
    for key in &keys {
        let _ticket = store.put_nowait(key, &key.repeat(20)).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    for shards in [1, 2, 5] {
        let mut store = Store::open(&options(shards)).unwrap();
        let found: Result<Vec<_>> = store.range(..).map(|entry| entry.map(|entry| entry.key)).collect();
        assert!(found.unwrap() == keys, "{shards} shards");
        let mut back = store.range("key:0100".."key:1900").backward();
        for key in keys[100..1900].iter().rev().take(700) {
            let entry = back.next().unwrap().unwrap();
            assert!(entry.key == *key && entry.value == key.repeat(20));
        }
    }
    let store = SharedStore::open(&options(4)).unwrap();
    let found: Result<Vec<_>> =
        store.range(Prefix("key:12")).map(|entry| entry.map(|entry| entry.key)).collect();
    assert!(found.unwrap() == keys[1200..1300]);
    store.close().unwrap();
    assert!(store.range(..).next().unwrap().is_err());
}
