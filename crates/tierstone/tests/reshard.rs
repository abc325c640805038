//! Small stores of lone commits, opened with other numbers of shards now and then.

use crate::support::{TemporaryDirectory, backends};
use std::collections::BTreeMap;
use std::path::Path;
use tierstone::{DatabaseOptions, Store};
use tierstone_base::SeededRandom;

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
