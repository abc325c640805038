//! Batches over several shards of a store that is cleaned all the time: each is taken, whole.

use crate::support::{TemporaryDirectory, backends};
use std::collections::{BTreeMap, BTreeSet};
use tierstone::{Batch, DatabaseOptions, SharedStore, Store};
use tierstone_base::SeededRandom;
use tierstone_media::file::FileBackend;

const KEYS: u64 = 20_000;
const VALUE_BYTES: usize = 300;
const BATCHES: u64 = 600;
const A_BATCH: u64 = 250;
const THREADS: u64 = 4;

/// Half full with the keys above, so that segments are cleaned as fast as batches are written.
fn options(directory: &TemporaryDirectory, backend: FileBackend) -> DatabaseOptions {
    DatabaseOptions {
        shards: 2,
        memory_bytes: 32 << 20,
        capacity_bytes: Some(16 << 20),
        segment_bytes: Some(128 << 10),
        ..directory.options(backend)
    }
}

/// Another one each time, told with what fails.
fn seed() -> u64 {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    seed
}

fn value(stamp: u64) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    value[..8].copy_from_slice(&stamp.to_le_bytes());
    value
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The keys of a batch: at first all in turn, then at random; none twice.
fn keys_of(number: u64, random: &mut SeededRandom) -> Vec<u64> {
    let first = number * A_BATCH;
    if first < KEYS {
        return (first..first + A_BATCH).collect();
    }
    let start = random.below(KEYS);
    let step = 2 * random.below(KEYS / 8) + 1;
    let keys: BTreeSet<u64> = (0..A_BATCH).map(|place| (start + place * step) % KEYS).collect();
    keys.into_iter().collect()
}

#[test]
fn batches_over_shards_of_the_local_handle_are_taken_while_it_is_cleaned() {
    let seed = seed();
    for backend in backends() {
        let folder = TemporaryDirectory::new();
        let mut random = SeededRandom::new(seed);
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut store = Store::open(&options(&folder, backend)).expect("a new store");
        for number in 0..BATCHES {
            let mut batch = Batch::new();
            for place in keys_of(number, &mut random) {
                batch.put(&key(place), &value(number));
                last.insert(place, number);
            }
            store.write(&batch).expect("there is room for what is overwritten");
        }
        assert!(store.statistics().cleaned_bytes_written > 0, "nothing was cleaned");
        drop(store);
        let mut store = Store::open(&options(&folder, backend)).expect("the store opens again");
        for (&place, &number) in &last {
            let found = store.get(&key(place)).expect("a read");
            assert_eq!(found, Some(value(number)), "key {place}");
        }
    }
}

fn write_beside_others(store: &SharedStore, thread: u64, seed: u64) {
    let mut random = SeededRandom::new(seed ^ thread);
    for number in 0..BATCHES / THREADS {
        let mut batch = Batch::new();
        for place in keys_of(thread * (BATCHES / THREADS) + number, &mut random) {
            batch.put(&key(place), &value(number));
        }
        store.write(&batch).expect("there is room for what is overwritten");
        // Single writes take the space of one shard or the other meanwhile.
        for _ in 0..8 {
            store.put(&key(random.below(KEYS)), &value(number)).expect("there is room");
        }
    }
}

#[test]
fn batches_over_shards_of_the_shared_handle_are_taken_while_others_write() {
    let seed = seed();
    for backend in backends() {
        let folder = TemporaryDirectory::new();
        let store = SharedStore::open(&options(&folder, backend)).expect("a new store");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let store = &store;
                scope.spawn(move || write_beside_others(store, thread, seed));
            }
        });
        assert!(store.statistics().expect("statistics").cleaned_bytes_written > 0, "nothing was cleaned");
        store.close().expect("it is closed in good order");
    }
}
