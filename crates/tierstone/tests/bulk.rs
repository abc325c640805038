//! Bulk loads of both handles beside a plain map.

use crate::support::{TemporaryDirectory, backends};
use std::collections::BTreeMap;
use tierstone::{BulkOptions, DatabaseOptions, PutOptions, SharedStore, Store};
use tierstone_base::{ErrorKind, Result, SeededRandom};

type Put<'p> = &'p mut dyn FnMut(&[u8], &[u8]) -> Result<()>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys that repeat now and then, within a stage and over stages, with values of many lengths.
fn records(random: &mut SeededRandom, count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..count)
        .map(|number| {
            let key = format!("key:{}", random.below(count as u64));
            let length = if random.below(50) == 0 { 9_000 } else { random.below(300) };
            (key.into_bytes(), vec![number as u8; length as usize])
        })
        .collect()
}

const STAGE: BulkOptions = BulkOptions { stage_bytes: 64 << 10 };

fn options(directory: &TemporaryDirectory, shards: u16) -> DatabaseOptions {
    // Whatever the kernel allows: the drivers are tested elsewhere.
    let backend = *backends().last().unwrap();
    DatabaseOptions { shards, databases: 2, capacity_bytes: Some(16 << 20), ..directory.options(backend) }
}

#[test]
fn a_load_leaves_the_last_value_of_every_key_in_both_handles() {
    let seed = SeededRandom::system_seed().unwrap();
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let directory = TemporaryDirectory::new();
    let options = options(&directory, 3);
    let mut model = Model::new();
    {
        // Into a store that has some of the keys already.
        let mut store = Store::open(&options).unwrap();
        for (key, value) in records(&mut random, 500) {
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        let mut load = store.bulk_load(STAGE).unwrap();
        let given = records(&mut random, 4_000);
        for (key, value) in &given {
            load.put(key, value).unwrap();
        }
        let loaded = load.finish().unwrap();
        let bytes: usize = given.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!((loaded.records, loaded.bytes), (given.len() as u64, bytes as u64), "seed {seed}");
        model.extend(given);
        assert_eq!(store.len(), model.len() as u64, "seed {seed}");
        // Dropped, not closed: everything was durable.
    }
    let shared = SharedStore::open(&options).unwrap();
    let mut load = shared.bulk_load(STAGE).unwrap();
    for (key, value) in records(&mut random, 4_000) {
        load.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    load.sync().unwrap();
    load.put_with(b"key:1", b"gone", PutOptions { expiry: tierstone::Expiry::At(1) }).unwrap();
    model.remove(&b"key:1"[..]);
    load.finish().unwrap();
    drop(shared);
    let mut store = Store::open(&options).unwrap();
    let seen: Model =
        store.scan().map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap()).collect();
    assert!(seen == model, "{} of {} keys, seed {seed}", seen.len(), model.len());
}

#[test]
fn a_record_that_is_too_long_is_refused_alone() {
    let directory = TemporaryDirectory::new();
    let options = options(&directory, 2);
    let mut store = Store::open(&options).unwrap();
    let mut load = store.bulk_load(STAGE).unwrap();
    load.put(b"before", b"1").unwrap();
    assert_eq!(load.put(b"long", &vec![0; 1 << 20]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(load.put(&vec![b'k'; 70_000], b"").unwrap_err().kind(), ErrorKind::InvalidInput);
    load.put(b"after", b"2").unwrap();
    assert_eq!(load.finish().unwrap().records, 2);
    assert_eq!(store.get(b"before").unwrap().unwrap(), b"1");
    assert_eq!(store.get(b"after").unwrap().unwrap(), b"2");
    assert!(store.bulk_load(BulkOptions { stage_bytes: 0 }).is_err());
}

#[test]
fn a_load_into_a_full_store_says_so_and_the_store_goes_on() {
    let directory = TemporaryDirectory::new();
    let options = options(&directory, 2);
    let capacity = options.capacity_bytes.unwrap();
    for is_shared in [false, true] {
        let put = |put: Put<'_>| (0..capacity / 1_000).find_map(|n| put(&n.to_be_bytes(), &[1; 1_000]).err());
        let error = if is_shared {
            let store = SharedStore::open(&options).unwrap();
            let mut load = store.bulk_load(STAGE).unwrap();
            let error = put(&mut |key, value| load.put(key, value));
            let error = error.or_else(|| load.finish().err());
            store.delete(&0u64.to_be_bytes()).unwrap();
            error
        } else {
            let mut store = Store::open(&options).unwrap();
            let mut load = store.bulk_load(STAGE).unwrap();
            let error = put(&mut |key, value| load.put(key, value));
            let error = error.or_else(|| load.finish().err());
            store.delete(&0u64.to_be_bytes()).unwrap();
            error
        };
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "shared {is_shared}: {error}");
    }
}

#[test]
fn loads_of_several_threads_go_on_at_the_same_time_in_keyspaces_of_their_own() {
    let directory = TemporaryDirectory::new();
    let options = options(&directory, 2);
    let store = SharedStore::open(&options).unwrap();
    std::thread::scope(|scope| {
        for database in 0..2u32 {
            let store = store.clone();
            scope.spawn(move || {
                let mut load = store.keyspace(database).unwrap().bulk_load(STAGE).unwrap();
                for number in 0..3_000u32 {
                    load.put(&number.to_be_bytes(), &database.to_be_bytes()).unwrap();
                }
                assert_eq!(load.finish().unwrap().records, 3_000);
            });
        }
    });
    for database in 0..2u32 {
        let keyspace = store.keyspace(database).unwrap();
        assert_eq!(keyspace.len().unwrap(), 3_000);
        assert_eq!(keyspace.get(&77u32.to_be_bytes()).unwrap().unwrap(), database.to_be_bytes());
    }
    store.close().unwrap();
}

#[test]
fn the_longest_value_is_what_the_handle_says_and_long_keys_take_of_it() {
    let directory = TemporaryDirectory::new();
    let options = options(&directory, 2);
    let longest = {
        let mut store = Store::open(&options).unwrap();
        let longest = store.value_bytes_max() as usize;
        assert!((56 << 10..64 << 10).contains(&longest), "{longest} of segments of 256 KiB");
        store.put(&[1; 1_024], &vec![2; longest]).unwrap();
        let error = store.put(&[1; 1_024], &vec![2; longest + 1_024]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        longest
    };
    let store = SharedStore::open(&options).unwrap();
    assert_eq!(store.value_bytes_max() as usize, longest);
    let (mut load, mut other) = (store.bulk_load(STAGE).unwrap(), store.bulk_load(STAGE).unwrap());
    for (key_bytes, value_bytes, fits) in [
        (1_024, longest, true),
        (3, longest, true),
        (3, longest + 1, false),
        (2_024, longest, false),
        (2_024, longest - 1_000, true),
        (40_000, longest, false),
    ] {
        let put = load.put(&vec![7; key_bytes], &vec![3; value_bytes]);
        assert_eq!(put.is_ok(), fits, "{key_bytes} and {value_bytes}: {put:?}");
        other.put(b"other", b"value").unwrap();
    }
    assert_eq!(load.finish().unwrap().records, 3);
    assert_eq!(other.finish().unwrap().records, 6);
}
