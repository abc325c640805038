//! Split, Merge and Compact of shared handles beside threads that read and write.

use crate::support::{TemporaryDirectory, backends};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll, Wake};
use tierstone::{
    Answer, DatabaseOptions, ErrorKind, KeyspaceOptions, MovePhase, MoveProgress, MoveReport, Result,
    SharedStore,
};
use tierstone_base::SeededRandom;
use tierstone_base::position::slot_of;

/// The upper half.
const SLOTS: RangeInclusive<u16> = 8_192..=16_383;
const WRITERS: u64 = 3;
const KEYS: u64 = 400;
const STABLE: u64 = 1_500;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(directory: &TemporaryDirectory, shards: u16) -> SharedStore {
    let options = directory.options(backends()[0]);
    SharedStore::open(&DatabaseOptions { shards, memory_bytes: 8 << 20, ..options }).unwrap()
}

fn stable(number: u64) -> Vec<u8> {
    format!("stable:{number}").into_bytes()
}

fn filled(store: &SharedStore) {
    for number in 0..STABLE {
        let answer = store.put_async(&stable(number), &[number as u8; 300]);
        if number % 100 == 99 {
            answer.wait().unwrap();
        }
    }
    store.sync().unwrap();
}

/// Two stores, and whose the moved slots are.
struct Pair {
    source: SharedStore,
    target: SharedStore,
    has_moved: RwLock<bool>,
    stop: AtomicBool,
}

impl Pair {
    fn new(directories: &[TemporaryDirectory; 2], shards: [u16; 2]) -> Pair {
        let [source, target] = [0, 1].map(|place| open(&directories[place], shards[place]));
        filled(&source);
        Pair { source, target, has_moved: RwLock::new(false), stop: AtomicBool::new(false) }
    }

    /// Sends a write to the store that has the key's slot, and waits. One that was sent to the source before the
    /// hand-over was noted, and came after it, belongs to the target.
    fn write<T>(&self, key: &[u8], send: impl Fn(&SharedStore) -> Answer<T>) -> Result<T> {
        let answer = {
            let has_moved = self.has_moved.read().unwrap();
            send(if *has_moved && SLOTS.contains(&slot_of(key)) { &self.target } else { &self.source })
        };
        match answer.wait() {
            Err(error) if error.kind() == ErrorKind::Unsupported => send(&self.target).wait(),
            answer => answer,
        }
    }

    /// Writes and deletes keys of its own; gives what was acknowledged.
    fn work(&self, writer: u64, seed: u64) -> Model {
        let mut random = SeededRandom::new(seed ^ writer);
        let mut model = Model::new();
        while !self.stop.load(Ordering::Relaxed) {
            let key = format!("{writer}:{}", random.below(KEYS)).into_bytes();
            if random.chance(0.25) {
                let existed = self.write(&key, |store| store.delete_async(&key)).unwrap();
                assert_eq!(existed, model.remove(&key).is_some(), "seed {seed}");
            } else {
                let value = vec![random.below(256) as u8; random.below(500) as usize];
                self.write(&key, |store| store.put_async(&key, &value)).unwrap();
                model.insert(key, value);
            }
        }
        model
    }

    /// Keys that nobody changes are found at any time: in the source, or else in the target.
    fn read(&self, seed: u64) -> u64 {
        let mut random = SeededRandom::new(seed);
        let mut count = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let number = random.below(STABLE);
            let key = stable(number);
            let value = self.source.get(&key).unwrap().or_else(|| self.target.get(&key).unwrap());
            assert_eq!(value, Some(vec![number as u8; 300]), "seed {seed}: {number}");
            count += 1;
        }
        count
    }

    /// Moves the slots while others work; gives the report and what was acknowledged.
    fn split(&self, seed: u64) -> (MoveReport, Model) {
        let mut model: Model = (0..STABLE).map(|number| (stable(number), vec![number as u8; 300])).collect();
        let mut handed_over = 0;
        let report = std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || self.work(writer, seed))).collect();
            let reader = scope.spawn(|| self.read(seed));
            let moved = self.source.split_to(&self.target, SLOTS, |progress| {
                if progress.phase == MovePhase::HandedOver {
                    *self.has_moved.write().unwrap() = true;
                    handed_over += 1;
                }
            });
            self.stop.store(true, Ordering::Relaxed);
            writers.into_iter().for_each(|writer| model.extend(writer.join().unwrap()));
            assert!(reader.join().unwrap() > 0);
            moved.unwrap()
        });
        assert_eq!(handed_over, 1);
        (report, model)
    }
}

fn contents(store: &SharedStore) -> Model {
    store.scan().map(Result::unwrap).map(|entry| (entry.key, entry.value)).collect()
}

/// The part of `model` in the slots, or the other.
fn part(model: &Model, moved: bool) -> Model {
    let of_part = model.iter().filter(|(key, _)| SLOTS.contains(&slot_of(key)) == moved);
    of_part.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[test]
fn threads_write_and_read_during_a_split_and_each_key_is_in_one_store_at_the_end() {
    let seed = SeededRandom::system_seed().unwrap();
    for shards in [[1, 2], [3, 2]] {
        let directories = [TemporaryDirectory::new(), TemporaryDirectory::new()];
        let pair = Pair::new(&directories, shards);
        let (report, model) = pair.split(seed);
        let moved = part(&model, true);
        assert!(report.records >= moved.len() as u64 / 2, "seed {seed}: {report:?}");
        assert!(contents(&pair.source) == part(&model, false), "seed {seed}, {shards:?}: what stays");
        assert!(contents(&pair.target) == moved, "seed {seed}, {shards:?}: what moved");
        // All of it is durable; and back by a merge.
        drop(pair);
        let [source, target] = [0, 1].map(|place| open(&directories[place], shards[place]));
        assert!(contents(&target) == moved, "seed {seed}, {shards:?}: what was durable");
        block_on(source.merge_from_async(&target, |_| {})).unwrap();
        assert!(contents(&source) == model, "seed {seed}, {shards:?}: after the merge");
        assert!(contents(&target).is_empty(), "seed {seed}, {shards:?}: after the merge");
        source.close().unwrap();
        target.close().unwrap();
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until the future is done, or `stop` says so.
fn poll_until<F: Future>(mut future: Pin<&mut F>, stop: impl Fn() -> bool) -> Option<F::Output> {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    while !stop() {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return Some(output),
            Poll::Pending if stop() => {}
            Poll::Pending => std::thread::park(),
        }
    }
    None
}

fn block_on<F: Future>(future: F) -> F::Output {
    poll_until(std::pin::pin!(future), || false).unwrap()
}

/// Dropped at some point of each phase but the last one of a move.
#[test]
fn a_split_that_is_dropped_before_the_hand_over_leaves_the_source_as_it_was() {
    let directories = [TemporaryDirectory::new(), TemporaryDirectory::new()];
    let pair = Pair::new(&directories, [2, 2]);
    let whole = contents(&pair.source);
    for steps in [0, 1, 3] {
        let told = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&told);
        let progress = move |progress: &MoveProgress| {
            assert_eq!(progress.phase, MovePhase::Copying);
            count.fetch_add(1, Ordering::Relaxed);
        };
        let mut future = Box::pin(pair.source.split_to_async(&pair.target, SLOTS, progress));
        assert!(poll_until(future.as_mut(), || told.load(Ordering::Relaxed) >= steps).is_none());
        drop(future);
        assert!(contents(&pair.source) == whole, "after {steps} steps");
        pair.source.put(b"key of any slot", b"value").unwrap();
        pair.source.delete(b"key of any slot").unwrap();
        pair.target.drop_slots(SLOTS).unwrap();
        assert_eq!(pair.target.len().unwrap(), 0);
    }
    // Nothing of the earlier ones is in the way.
    let (_, model) = pair.split(7);
    assert!(contents(&pair.target) == part(&model, true));
    assert!(contents(&pair.source) == part(&model, false));
}

/// Dropped when the hand-over was told: the target has everything, and the rest of the source is dropped apart.
#[test]
fn a_split_that_is_dropped_after_the_hand_over_has_moved_the_slots() {
    let directories = [TemporaryDirectory::new(), TemporaryDirectory::new()];
    let pair = Pair::new(&directories, [2, 1]);
    let whole = contents(&pair.source);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let progress = move |progress: &MoveProgress| {
        over.fetch_or(progress.phase == MovePhase::HandedOver, Ordering::Relaxed);
    };
    let mut future = Box::pin(pair.source.split_to_async(&pair.target, SLOTS, progress));
    let done = poll_until(future.as_mut(), || is_over.load(Ordering::Relaxed));
    drop(future);
    assert!(done.is_none());
    assert!(contents(&pair.target) == part(&whole, true));
    assert!(part(&contents(&pair.source), false) == part(&whole, false));
    pair.source.drop_slots(SLOTS).unwrap();
    assert!(contents(&pair.source) == part(&whole, false));
}

#[test]
fn a_compaction_makes_a_store_small_while_others_use_it() {
    let directory = TemporaryDirectory::new();
    let mut options = directory.options(backends()[0]);
    options.shard.clean_below_free_fraction = 0.01;
    let options = DatabaseOptions {
        shards: 2,
        memory_bytes: 8 << 20,
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(64 << 20),
        ..options
    };
    let store = SharedStore::open(&options).unwrap();
    let put_all = |value: &[u8], keys: &mut dyn Iterator<Item = u32>| {
        let answers: Vec<_> = keys.map(|number| store.put_async(&number.to_be_bytes(), value)).collect();
        answers.into_iter().for_each(|answer| answer.wait().unwrap());
    };
    put_all(&[7; 800], &mut (0..6_000));
    put_all(b"", &mut (0..6_000).filter(|number| number % 3 != 0));
    let before = store.statistics().unwrap();
    let mut steps = 0;
    store
        .compact(|progress| {
            steps += 1;
            assert!(progress.segments_left <= progress.segments_total);
            assert_eq!(store.get(&0u32.to_be_bytes()).unwrap().unwrap(), [7; 800]);
            store.put(b"beside", &[steps as u8]).unwrap();
            if steps == 1 {
                assert_eq!(store.compact(|_| {}).unwrap_err().kind(), ErrorKind::Busy);
            }
        })
        .unwrap();
    let after = store.statistics().unwrap();
    assert!(steps > 2, "{steps} steps");
    assert!(after.space_used_bytes * 2 < before.space_used_bytes, "{before:?} {after:?}");
    for number in 0..6_000u32 {
        let expected: &[u8] = if number % 3 == 0 { &[7; 800] } else { b"" };
        assert_eq!(store.get(&number.to_be_bytes()).unwrap().unwrap(), expected);
    }
    block_on(store.compact_async(|_| {})).unwrap();
    store.close().unwrap();
}

#[test]
fn moves_that_make_no_sense_are_refused_and_one_of_a_kind_is_under_way_at_a_time() {
    let directories = [TemporaryDirectory::new(), TemporaryDirectory::new()];
    let pair = Pair::new(&directories, [2, 1]);
    let Pair { source, target, .. } = &pair;
    let kind = |moved: Result<MoveReport>| moved.unwrap_err().kind();
    assert_eq!(kind(source.split_to(source, SLOTS, |_| {})), ErrorKind::InvalidInput);
    assert_eq!(kind(source.split_to(target, 5..=16_384, |_| {})), ErrorKind::InvalidInput);
    let ordered =
        KeyspaceOptions { index: Some(tierstone::IndexKind::Ordered), ..KeyspaceOptions::default() };
    source.open_keyspace("events", ordered).unwrap().put(b"first", b"1").unwrap();
    let mut asked = 0;
    source
        .merge_from(target, |_| {
            asked += 1;
            assert_eq!(kind(target.split_to(source, 0..=1, |_| {})), ErrorKind::Busy);
        })
        .unwrap();
    assert!(asked > 0);
    source.split_to(target, 0..=16_383, |_| {}).unwrap();
    let events = target.open_keyspace("events", KeyspaceOptions::default()).unwrap();
    assert_eq!(events.range(..).map(|entry| entry.unwrap().key).collect::<Vec<_>>(), [b"first"]);
    assert_eq!(source.len().unwrap(), 0);
}

#[test]
fn a_store_that_is_closed_during_a_split_ends_it() {
    let directories = [TemporaryDirectory::new(), TemporaryDirectory::new()];
    let pair = Pair::new(&directories, [2, 1]);
    let mut closed = false;
    let moved = pair.source.split_to(&pair.target, SLOTS, |_| {
        if !std::mem::replace(&mut closed, true) {
            pair.source.close().unwrap();
        }
    });
    assert_eq!(moved.unwrap_err().kind(), ErrorKind::Busy);
    let source = open(&directories[0], 2);
    assert_eq!(source.len().unwrap(), STABLE);
}

#[test]
fn a_deletion_that_comes_to_the_source_after_the_hand_over_is_refused_whether_the_key_is_dropped_or_not() {
    let directories = [TemporaryDirectory::new(), TemporaryDirectory::new()];
    let pair = Pair::new(&directories, [2, 1]);
    let moved = (0..STABLE).map(stable).find(|key| SLOTS.contains(&slot_of(key))).unwrap();
    let mut refused = 0;
    pair.source
        .split_to(&pair.target, SLOTS, |progress| {
            if progress.phase == MovePhase::Dropping {
                assert_eq!(pair.source.delete(&moved).unwrap_err().kind(), ErrorKind::Unsupported);
                refused += 1;
            }
        })
        .unwrap();
    assert!(refused > 0 && pair.target.get(&moved).unwrap().is_some());
}
