//! Snapshots of the shared handle beside writers on many threads.

use crate::support::{TemporaryDirectory, backends};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone::{DatabaseOptions, SharedSnapshot, SharedStore};

const WRITERS: u64 = 4;
const KEYS: u64 = 12;

fn name(writer: u64, key: u64) -> Vec<u8> {
    format!("{writer}:{key}").into_bytes()
}

fn count(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().unwrap())
}

/// Counts its keys up, one after the other, each when the one before was answered.
fn write(store: &SharedStore, writer: u64, stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        for key in 0..KEYS {
            store.put(&name(writer, key), &u64::to_le_bytes(round)).unwrap();
        }
    }
}

/// Of each writer the counters that the snapshot shows are those of one moment: they do not grow from
/// key to key, and the last is at most one behind the first.
fn check(snapshot: &SharedSnapshot) {
    let walked: BTreeMap<Vec<u8>, Vec<u8>> =
        snapshot.scan().map(Result::unwrap).map(|entry| (entry.key, entry.value)).collect();
    for writer in 0..WRITERS {
        let names: Vec<Vec<u8>> = (0..KEYS).map(|key| name(writer, key)).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let values = snapshot.get_many(&names).unwrap();
        let counts: Vec<u64> = values.iter().map(|value| value.as_deref().map_or(0, count)).collect();
        assert!(counts.is_sorted_by(|one, other| one >= other), "writer {writer}: {counts:?}");
        assert!(counts[0] <= counts[KEYS as usize - 1] + 1, "writer {writer}: {counts:?}");
        let of_walk: Vec<Option<Vec<u8>>> = names.iter().map(|name| walked.get(*name).cloned()).collect();
        assert_eq!(of_walk, values, "writer {writer}");
    }
}

#[test]
fn a_snapshot_is_a_cut_at_one_moment_over_all_shards() {
    for (backend, shards) in backends().into_iter().flat_map(|backend| [(backend, 1), (backend, 3)]) {
        let directory = TemporaryDirectory::new();
        let options = DatabaseOptions { shards, memory_bytes: 8 << 20, ..directory.options(backend) };
        let store = SharedStore::open(&options).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || write(store, writer, stop));
            }
            // Two at the same time: their cuts must not wait for each other.
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut before: Option<SharedSnapshot> = None;
                        for _ in 0..40 {
                            let snapshot = store.snapshot().unwrap();
                            check(&snapshot);
                            before.iter().for_each(check);
                            before = Some(snapshot);
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = takers.into_iter().map(|taker| taker.join()).collect();
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        store.close().unwrap();
    }
}

#[test]
fn a_walk_of_the_shared_handle_gives_each_key_once_beside_writers() {
    let directory = TemporaryDirectory::new();
    let options = DatabaseOptions { shards: 2, ..directory.options(backends()[0]) };
    let store = SharedStore::open(&options).unwrap();
    let answers: Vec<_> = (0..3_000u32).map(|key| store.put_async(&key.to_be_bytes(), b"old")).collect();
    answers.into_iter().for_each(|answer| answer.wait().unwrap());
    let mut seen = BTreeMap::new();
    for (number, entry) in store.scan().enumerate() {
        let entry = entry.unwrap();
        assert_eq!(entry.value, b"old");
        assert!(seen.insert(entry.key, number).is_none(), "a key was given twice");
        let key = number as u32;
        let changes = [store.put_async(&key.to_be_bytes(), b"new"), store.put_async(&[number as u8; 5], b"")];
        changes.into_iter().for_each(|answer| answer.wait().unwrap());
    }
    assert_eq!(seen.len(), 3_000);
    store.close().unwrap();
}

#[test]
fn snapshots_outlive_neither_the_store_nor_their_handle() {
    let directory = TemporaryDirectory::new();
    let options = DatabaseOptions { shards: 2, ..directory.options(backends()[0]) };
    let store = SharedStore::open(&options).unwrap();
    store.put(b"key", b"old").unwrap();
    let dropped = store.snapshot().unwrap();
    assert_eq!(store.statistics().unwrap().snapshots, 2);
    drop(dropped);
    assert_eq!(store.statistics().unwrap().snapshots, 0);
    let kept = store.snapshot().unwrap();
    store.put(b"key", b"new").unwrap();
    assert_eq!(kept.get(b"key").unwrap().unwrap(), b"old");
    store.close().unwrap();
    assert_eq!(kept.get(b"key").unwrap_err().kind(), tierstone::ErrorKind::Busy);
    assert_eq!(store.snapshot().unwrap_err().kind(), tierstone::ErrorKind::Busy);
}
