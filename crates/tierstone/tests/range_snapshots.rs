//! Ranges of one moment beside writers on many threads, and how they end.

use crate::support::{TemporaryDirectory, backends};
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone::{
    Batch, DatabaseOptions, Entry, ErrorKind, IndexKind, KeyspaceOptions, Prefix, Result, ShardSettings,
    SharedStore, Store,
};

const TOKENS: u64 = 400;

fn options(directory: &TemporaryDirectory, shards: u16) -> DatabaseOptions {
    let index = Some(IndexKind::Ordered);
    DatabaseOptions { index, shards, memory_bytes: 8 << 20, ..directory.options(Default::default()) }
}

fn place(token: u64, round: u64) -> Vec<u8> {
    // Random to the order, so that tokens jump over the walks.
    let at = (token * 7_919 + round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{at:016x}").into_bytes()
}

/// Moves tokens on: each leaves a key and comes to another in one batch, over all shards.
fn move_tokens(store: &SharedStore, writer: u64, stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        for token in (writer..TOKENS).step_by(2) {
            let mut batch = Batch::new();
            batch.delete(&place(token, round)).put(&place(token, round + 1), &token.to_le_bytes());
            store.write(&batch).unwrap();
            if stop.load(Ordering::Relaxed) {
                // The next life of the writer would not know where it is.
                return;
            }
        }
        round += 1;
    }
}

#[track_caller]
fn check(entries: impl Iterator<Item = Result<Entry>>, backward: bool) {
    let entries: Vec<Entry> = entries.map(Result::unwrap).collect();
    let in_order = entries.windows(2).all(|pair| (pair[0].key < pair[1].key) != backward);
    assert!(in_order, "out of order, or twice");
    let mut tokens: Vec<u64> =
        entries.iter().map(|entry| u64::from_le_bytes(*entry.value.first_chunk().unwrap())).collect();
    tokens.sort_unstable();
    assert!(tokens.iter().copied().eq(0..TOKENS), "{} tokens", tokens.len());
}

/// A token that moves is in exactly one place at any one moment: a range that shows another number of them is of
/// no moment.
#[test]
fn a_range_shows_one_moment_over_all_shards_while_keys_come_and_go() {
    for shards in [1, 3] {
        let directory = TemporaryDirectory::new();
        let store = SharedStore::open(&options(&directory, shards)).unwrap();
        for token in 0..TOKENS {
            store.put(&place(token, 0), &token.to_le_bytes()).unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || move_tokens(store, writer, stop));
            }
            // What fails must not leave the writers running.
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let long_ago = store.snapshot().unwrap();
                for _ in 0..6 {
                    check(store.range(..), false);
                    check(store.range(..).backward(), true);
                    let snapshot = store.snapshot().unwrap();
                    check(snapshot.range(..), false);
                    check(snapshot.range(..).backward(), true);
                    let mut first = snapshot.range(..);
                    assert_eq!(
                        futures_lite(first.next_async()).unwrap(),
                        snapshot.range(..).next().unwrap().unwrap()
                    );
                }
                check(long_ago.range(..).backward(), true);
            }));
            stop.store(true, Ordering::Relaxed);
            checked.unwrap();
        });
        assert_eq!(store.statistics().unwrap().snapshots, 0, "walks that have ended keep nothing");
        store.close().unwrap();
    }
}

/// What a future gives, on this thread.
fn futures_lite<T>(future: impl Future<Output = Option<Result<T>>>) -> Option<T> {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(entry) => return entry.map(Result::unwrap),
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_walk_of_a_snapshot_outlives_the_drop_of_its_keyspace_and_a_live_one_says_that_it_was_dropped() {
    for backend in backends() {
        let directory = TemporaryDirectory::new();
        let options = DatabaseOptions { shards: 2, memory_bytes: 8 << 20, ..directory.options(backend) };
        let store = SharedStore::open(&options).unwrap();
        let ordered = KeyspaceOptions { index: Some(IndexKind::Ordered), ..KeyspaceOptions::default() };
        let events = store.open_keyspace("events", ordered).unwrap();
        for number in 0..500u32 {
            events.put(format!("event:{number:04}").as_bytes(), &number.to_le_bytes()).unwrap();
        }
        let (snapshot, mut begun, mut live) =
            (store.snapshot().unwrap(), events.range(..), events.range(..).live());
        let shown = snapshot.named("events").unwrap();
        assert!(begun.next().unwrap().is_ok() && live.next().unwrap().is_ok());
        let late = events.range(..);
        assert!(store.drop_keyspace("events").unwrap());
        assert_eq!(begun.filter(Result::is_ok).count(), 499);
        assert_eq!(shown.range(Prefix("event:00")).count(), 100);
        for entry in [live.find(Result::is_err).unwrap(), late.last().unwrap()] {
            let error = entry.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.message().contains("was dropped"), "{error}");
        }
        assert!(snapshot.named("events").is_err());
        drop(snapshot);
        store.close().unwrap();
    }
}

#[test]
fn a_walk_whose_snapshot_is_lost_says_so_and_ends() {
    let directory = TemporaryDirectory::new();
    let shard = ShardSettings { snapshot_table_bytes_max: 2_000, ..ShardSettings::default() };
    let store = SharedStore::open(&DatabaseOptions { shard, ..options(&directory, 2) }).unwrap();
    for number in 0..2_000u32 {
        store.put(&number.to_be_bytes(), b"value").unwrap();
    }
    let (mut cut, mut live) = (store.range(..), store.range(..).live());
    assert!(cut.next().unwrap().is_ok() && live.next().unwrap().is_ok());
    let mut all = Batch::new();
    for number in (0..2_000u32).step_by(2) {
        all.delete(&number.to_be_bytes());
    }
    store.write(&all).unwrap();
    let error = cut.find(Result::is_err).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
    assert!(cut.next().is_none());
    // What was on its way, and each key that lasts.
    assert!(live.filter(|entry| entry.is_ok()).count() >= 1_000);
    store.close().unwrap();
}

#[test]
fn a_snapshot_that_nobody_waits_for_any_more_is_released() {
    let directory = TemporaryDirectory::new();
    let store = SharedStore::open(&options(&directory, 3)).unwrap();
    for _ in 0..50 {
        // Sent, and its future dropped unpolled.
        drop(store.snapshot_async());
    }
    store.put(b"key", b"value").unwrap();
    // Each shard answers what was sent before; the releases that follow from that take a few messages more.
    let alive = (0..1_000).map(|_| store.statistics().unwrap().snapshots).find(|alive| *alive == 0);
    assert_eq!(alive, Some(0));
    drop(store.snapshot().unwrap());
    store.close().unwrap();
}

#[test]
fn a_range_of_the_local_handle_judges_expiry_when_it_begins_and_keeps_nothing_at_its_end() {
    let directory = TemporaryDirectory::new();
    let mut store = Store::open(&options(&directory, 2)).unwrap();
    for number in 0..100u8 {
        store.put(&[number], &[number]).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for number in 0..100u8 {
        if number % 3 != 0 {
            store.delete(&[number]).unwrap();
        }
    }
    assert_eq!(store.range(..).count(), 34);
    assert_eq!(snapshot.range(&mut store, [10]..[20]).count(), 10);
    let mut other = Store::open(&options(&TemporaryDirectory::new(), 1)).unwrap();
    let refused = snapshot.range(&mut other, ..).next().unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    drop(snapshot);
    store.put(b"key", b"value").unwrap();
    assert_eq!(store.statistics().snapshots, 0);
}
