//! Many threads and many answers under way on one shared handle.

use crate::support::{TemporaryDirectory, backends};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tierstone::{Batch, DatabaseOptions, SharedStore};
use tierstone_base::{ErrorKind, SeededRandom};

const THREADS: u64 = 8;
const KEYS: u64 = 20;
const WRITES: u64 = 300;

fn name(thread: u64, key: u64) -> Vec<u8> {
    format!("{thread}:{key}").into_bytes()
}

fn count(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().unwrap()))
}

fn padded(count: u64, random: &mut SeededRandom) -> Vec<u8> {
    let mut value = count.to_le_bytes().to_vec();
    value.resize(8 + random.below(500) as usize, 7);
    value
}

/// One thread: counts its own keys up and says what was acknowledged; others read them meanwhile.
fn work(store: &SharedStore, thread: u64, seed: u64) -> Vec<u64> {
    let mut random = SeededRandom::new(seed + thread);
    let mut acknowledged = vec![0; KEYS as usize];
    for _ in 0..WRITES {
        let key = random.below(KEYS);
        let next = acknowledged[key as usize] + 1;
        assert_eq!(count(store.get(&name(thread, key)).unwrap()), next - 1, "seed {seed}");
        store.put(&name(thread, key), &padded(next, &mut random)).unwrap();
        acknowledged[key as usize] = next;
        let other = name(random.below(THREADS), random.below(KEYS));
        let before = count(store.get(&other).unwrap());
        assert!(before <= count(store.get(&other).unwrap()), "a counter went back, seed {seed}");
    }
    acknowledged
}

#[test]
fn eight_threads_lose_nothing_that_was_acknowledged() {
    for (backend, shards) in backends().into_iter().flat_map(|backend| [(backend, 1), (backend, 3)]) {
        let seed = SeededRandom::system_seed().unwrap();
        println!("seed {seed}, {backend:?}, {shards} shards");
        let directory = TemporaryDirectory::new();
        let options = DatabaseOptions { shards, memory_bytes: 8 << 20, ..directory.options(backend) };
        let store = SharedStore::open(&options).unwrap();
        let counters: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn({
                        let store = &store;
                        move || work(store, thread, seed)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let groups = store.statistics().unwrap().groups;
        assert!(groups < THREADS * WRITES, "{groups} groups: callers share them");
        // No close: as if the process had ended here.
        drop(store);
        let store = SharedStore::open(&options).unwrap();
        for (thread, counters) in (0..).zip(&counters) {
            for (key, &acknowledged) in (0..).zip(counters) {
                assert_eq!(count(store.get(&name(thread, key)).unwrap()), acknowledged, "seed {seed}");
            }
        }
    }
}

#[test]
fn batches_are_seen_whole_by_readers_of_several_keys() {
    let directory = TemporaryDirectory::new();
    let store = SharedStore::open(&directory.options(Default::default())).unwrap();
    let names: Vec<Vec<u8>> = (0..10).map(|number| format!("account:{number}").into_bytes()).collect();
    let views: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Batch::new();
            for round in 0..400u64 {
                batch.clear();
                for name in &names {
                    batch.put(name, &round.to_le_bytes());
                }
                store.write(&batch).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let values = store.get_many(&views).unwrap();
            assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "a batch was seen in part");
        }
    });
}

#[test]
fn answers_dropped_and_kept_are_all_carried_out() {
    let directory = TemporaryDirectory::new();
    let options = directory.options(Default::default());
    let store = SharedStore::open(&options).unwrap();
    let mut kept = Vec::new();
    for number in 0..2_000u32 {
        let answer = store.put_async(&number.to_be_bytes(), &[number as u8; 100]);
        if number % 2 == 0 {
            kept.push(answer);
        } else {
            drop(answer);
        }
    }
    // Close answers what was sent before.
    store.close().unwrap();
    kept.into_iter().for_each(|answer| answer.wait().unwrap());
    let store = SharedStore::open(&options).unwrap();
    assert_eq!(store.len().unwrap(), 2_000);
    assert_eq!(store.scan().map(Result::unwrap).filter(|entry| entry.value.len() == 100).count(), 2_000);
}

/// Puts and batches at once over keys whose records are on the device only, with a cache for a few of them.
#[test]
fn many_overwrites_at_once_with_hardly_any_cache_are_all_answered() {
    const KEYS: u32 = 4_000;
    let directory = TemporaryDirectory::new();
    let mut options = directory.options(Default::default());
    options.memory_bytes = 2 << 20;
    options.shard.index_fraction = 0.99;
    let name = |number: u32| format!("key {number}").into_bytes();
    let store = SharedStore::open(&options).unwrap();
    let written: Vec<_> = (0..KEYS).map(|number| store.put_async(&name(number), &[1; 400])).collect();
    written.into_iter().for_each(|answer| answer.wait().unwrap());
    store.close().unwrap();
    let store = SharedStore::open(&options).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for first in (0..KEYS).step_by(40) {
                let mut batch = Batch::new();
                (first..first + 40).for_each(|number| {
                    batch.put(&name(number), &[2; 400]);
                });
                store.write(&batch).unwrap();
            }
        });
        let answers: Vec<_> = (0..KEYS).map(|number| store.put_async(&name(number), &[3; 400])).collect();
        answers.into_iter().for_each(|answer| answer.wait().unwrap());
    });
    assert_eq!(store.len().unwrap(), u64::from(KEYS));
    for number in 0..KEYS {
        let value = store.get(&name(number)).unwrap().unwrap();
        assert!(value == [2; 400] || value == [3; 400], "key {number}");
    }
}

/// One thread's keys until the store is closed: what it sent last and what was acknowledged last, of each.
fn work_until_closed(store: &SharedStore, thread: u64, seed: u64, done: &AtomicU64) -> Vec<(u64, u64)> {
    let mut random = SeededRandom::new(seed + thread);
    let mut counts = vec![(0, 0); KEYS as usize];
    loop {
        let key = random.below(KEYS) as usize;
        let other = random.below(KEYS) as usize;
        let next = counts[key].0.max(counts[other].0) + 1;
        let value = padded(next, &mut random);
        let (answer, written) = match random.below(6) {
            0 => {
                // Of several shards, most of them.
                let mut batch = Batch::new();
                batch.put(&name(thread, key as u64), &value).put(&name(thread, other as u64), &value);
                (store.write(&batch), vec![key, other])
            }
            1 => (store.put_async(&name(thread, key as u64), &value).wait(), vec![key]),
            2 => {
                let shown = store.snapshot().and_then(|snapshot| snapshot.get(&name(thread, key as u64)));
                (shown.map(|value| assert!(count(value) >= counts[key].1, "seed {seed}")), vec![])
            }
            3 => {
                let shown = store.get(&name(thread, key as u64));
                (shown.map(|value| assert!(count(value) >= counts[key].1, "seed {seed}")), vec![])
            }
            _ => (store.put(&name(thread, key as u64), &value), vec![key]),
        };
        written.iter().for_each(|&key| counts[key].0 = next);
        match answer {
            Ok(()) => written.iter().for_each(|&key| counts[key].1 = next),
            Err(error) if error.kind() == ErrorKind::Busy => return counts,
            Err(error) => panic!("{error}, seed {seed}"),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_store_that_is_closed_beside_calls_answers_them_all_and_keeps_what_it_acknowledged() {
    let seed = SeededRandom::system_seed().unwrap();
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    for (round, backend) in
        (0..6).flat_map(|round| backends().into_iter().map(move |backend| (round, backend)))
    {
        let directory = TemporaryDirectory::new();
        let shards = 1 + random.below(3) as u16;
        let options = DatabaseOptions { shards, memory_bytes: 8 << 20, ..directory.options(backend) };
        let store = SharedStore::open(&options).unwrap();
        let (done, enough) = (AtomicU64::new(0), 200 + random.below(2_000));
        let counts: Vec<Vec<(u64, u64)>> = std::thread::scope(|scope| {
            let work = |thread| {
                let (store, done) = (&store, &done);
                scope.spawn(move || work_until_closed(store, thread, seed + 100 * round, done))
            };
            let threads: Vec<_> = (0..THREADS).map(work).collect();
            while done.load(Ordering::Relaxed) < enough {
                std::thread::yield_now();
            }
            store.close().unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // The handles of the closed store are still there.
        let again = SharedStore::open(&options).unwrap();
        assert_eq!(store.get(b"any").unwrap_err().kind(), ErrorKind::Busy);
        for (thread, keys) in (0..).zip(&counts) {
            for (key, &(sent, acknowledged)) in (0..).zip(keys) {
                let kept = count(again.get(&name(thread, key)).unwrap());
                assert!((acknowledged..=sent).contains(&kept), "{acknowledged} {kept} {sent}, seed {seed}");
            }
        }
    }
}
