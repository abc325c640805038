//! The record cache against a plain map of keys, under random operations.

use super::frame::HEADER_BYTES;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Where the model's index says a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Frame(FrameId),
    Device(u64),
}

#[derive(Clone, Debug)]
struct Entry {
    place: Place,
    bytes: Vec<u8>,
    location: u64,
}

/// An owner that checks each call against what it knows.
#[derive(Default)]
struct Index {
    entries: BTreeMap<u64, Entry>,
    pinned: BTreeMap<FrameId, (u16, Vec<u8>)>,
    evictions: u64,
    moves: u64,
}

const KEYSPACE: KeyspaceId = KeyspaceId(7);

impl FrameOwner for Index {
    fn evicted(&mut self, keyspace: KeyspaceId, position: Position, frame: FrameId, location: u64) {
        assert_eq!(keyspace, KEYSPACE);
        assert!(!self.pinned.contains_key(&frame), "a pinned frame was evicted");
        let entry = self.entries.get_mut(&position.0).expect("an unknown key was evicted");
        assert_eq!(entry.place, Place::Frame(frame));
        assert_eq!(entry.location, location);
        entry.place = Place::Device(location);
        self.evictions += 1;
    }

    fn moved(&mut self, keyspace: KeyspaceId, position: Position, from: FrameId, to: FrameId) {
        assert_eq!(keyspace, KEYSPACE);
        assert!(!self.pinned.contains_key(&from), "a pinned frame was moved");
        let entry = self.entries.get_mut(&position.0).expect("an unknown key was moved");
        assert_eq!(entry.place, Place::Frame(from));
        entry.place = Place::Frame(to);
        self.moves += 1;
    }
}

fn settings(capacity_bytes: u64) -> RecordCacheSettings {
    RecordCacheSettings { capacity_bytes, huge_pages: false, ..RecordCacheSettings::default() }
}

fn record(key: u64, version: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    tierstone_base::SeededRandom::new(key << 32 | version).fill(&mut bytes);
    bytes
}

struct Model {
    cache: RecordCache,
    index: Index,
    version: u64,
}

impl Model {
    fn new(settings: RecordCacheSettings) -> Model {
        Model { cache: RecordCache::new(settings).unwrap(), index: Index::default(), version: 0 }
    }

    fn frame(&self, key: u64) -> Option<FrameId> {
        match self.index.entries.get(&key)?.place {
            Place::Frame(frame) => Some(frame),
            Place::Device(_) => None,
        }
    }

    /// Puts a new version of `key` into the cache, as a write or a miss does.
    fn insert(&mut self, key: u64, length: usize) -> bool {
        self.remove(key);
        self.version += 1;
        let (bytes, location) = (record(key, self.version, length), self.version);
        let (first, second) = bytes.split_at(length / 3);
        let entry =
            NewFrame { position: Position(key), keyspace: KEYSPACE, location, parts: &[first, &[], second] };
        let frame = self.cache.insert(entry, &mut self.index);
        let place = frame.map_or(Place::Device(location), Place::Frame);
        self.index.entries.insert(key, Entry { place, bytes, location });
        frame.is_some()
    }

    fn get(&mut self, key: u64) {
        let Some(frame) = self.frame(key) else { return };
        let entry = &self.index.entries[&key];
        let view = self.cache.get(frame);
        assert_eq!((view.position, view.keyspace, view.location), (Position(key), KEYSPACE, entry.location));
        assert_eq!(view.bytes, entry.bytes);
    }

    fn replace(&mut self, key: u64, length: usize) {
        let Some(frame) = self.frame(key) else { return };
        self.version += 1;
        let bytes = record(key, self.version, length);
        let fits = length <= self.index.entries[&key].bytes.len();
        let is_pinned = self.index.pinned.contains_key(&frame);
        let replaced = self.cache.replace(frame, &[&bytes], self.version);
        assert!(replaced || !fits || is_pinned, "a shorter record did not fit");
        assert!(!(replaced && is_pinned), "a pinned record was overwritten");
        if replaced {
            let entry = Entry { place: Place::Frame(frame), bytes, location: self.version };
            self.index.entries.insert(key, entry);
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some(frame) = self.frame(key) {
            self.cache.remove(frame);
        }
        self.index.entries.remove(&key);
    }

    fn pin(&mut self, key: u64) {
        let Some(frame) = self.frame(key) else { return };
        self.cache.pin(frame);
        let bytes = self.index.entries[&key].bytes.clone();
        self.index.pinned.entry(frame).or_insert((0, bytes)).0 += 1;
    }

    fn unpin(&mut self, nth: usize) {
        let Some((&frame, _)) = self.index.pinned.iter().nth(nth % self.index.pinned.len().max(1)) else {
            return;
        };
        self.cache.unpin(frame);
        let pins = &mut self.index.pinned.get_mut(&frame).unwrap().0;
        *pins -= 1;
        if *pins == 0 {
            self.index.pinned.remove(&frame);
        }
    }

    /// Every frame of the index and every pinned frame reads back, and the books balance.
    fn check(&self) {
        let mut frames = BTreeSet::new();
        for (&key, entry) in &self.index.entries {
            let Place::Frame(frame) = entry.place else { continue };
            let view = self.cache.peek(frame);
            assert_eq!((view.position.0, view.location), (key, entry.location));
            assert_eq!(view.bytes, entry.bytes);
            assert!(frames.insert(frame), "two keys share a frame");
            assert!(frame.to_bits() < 1 << FrameId::BITS);
        }
        for (&frame, (_, bytes)) in &self.index.pinned {
            assert_eq!(self.cache.peek(frame).bytes, bytes);
        }
        let statistics = self.cache.statistics();
        assert_eq!(statistics.frames, frames.len() as u64);
        assert_eq!(self.walk(&self.cache.small) + self.walk(&self.cache.main), statistics.live_bytes);
        assert!(statistics.live_bytes + statistics.dead_bytes <= statistics.capacity_bytes);
        assert!(statistics.capacity_bytes <= self.cache.arena.len() as u64);
        assert_eq!(self.index.evictions, statistics.small_evictions + statistics.main_evictions);
        assert!(self.index.moves <= statistics.promotions + statistics.reinsertions);
    }

    /// The bytes of live frames of `ring`, whose frames are seen to tile it.
    fn walk(&self, ring: &Ring) -> u64 {
        let (mut live, mut pinned) = (0, 0);
        for (offset, tag) in ring.frames(&self.cache.arena) {
            if tag.kind == Kind::Live {
                live += tag.bytes() as u64;
                let position = self.cache.arena.label(offset).position.0;
                assert_eq!(self.frame(position), Some(FrameId::at(offset)), "a live frame nobody knows");
            }
            if tag.pins > 0 {
                pinned += tag.bytes();
            }
        }
        assert_eq!(pinned, ring.pinned_bytes);
        live
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { key: u64, length: usize },
    Get { key: u64 },
    Replace { key: u64, length: usize },
    Remove { key: u64 },
    Pin { key: u64 },
    Unpin { nth: usize },
    SetLocation { key: u64, location: u64 },
    Resize { percent: u64 },
    Settle { bytes: usize },
    Clear,
}

fn step(length_max: usize) -> impl Strategy<Value = Step> {
    let key = 0..60u64;
    // Lengths cluster at the small end and at the bound.
    let length = prop_oneof![0..40usize, 0..=length_max, Just(length_max), Just(length_max + 1)];
    prop_oneof![
        30 => (key.clone(), length.clone()).prop_map(|(key, length)| Step::Insert { key, length }),
        30 => key.clone().prop_map(|key| Step::Get { key }),
        8 => (key.clone(), length).prop_map(|(key, length)| Step::Replace { key, length }),
        5 => key.clone().prop_map(|key| Step::Remove { key }),
        4 => key.clone().prop_map(|key| Step::Pin { key }),
        4 => any::<usize>().prop_map(|nth| Step::Unpin { nth }),
        2 => (key, any::<u64>()).prop_map(|(key, location)| Step::SetLocation { key, location }),
        1 => (0..=100u64).prop_map(|percent| Step::Resize { percent }),
        1 => (0..4000usize).prop_map(|bytes| Step::Settle { bytes }),
        1 => Just(Step::Clear),
    ]
}

fn run(capacity_bytes: u64, small_percent: u8, promotion_hits: u8, steps: &[Step]) {
    let settings = RecordCacheSettings { small_percent, promotion_hits, ..settings(capacity_bytes) };
    let mut model = Model::new(settings);
    for step in steps {
        match *step {
            Step::Insert { key, length } => {
                let fits = model.cache.record_max_bytes().is_some_and(|longest| length <= longest);
                let inserted = model.insert(key, length);
                assert!(fits || !inserted);
                assert!(inserted || !fits || !model.index.pinned.is_empty(), "refused for no reason");
            }
            Step::Get { key } => model.get(key),
            Step::Replace { key, length } => model.replace(key, length),
            Step::Remove { key } => model.remove(key),
            Step::Pin { key } => model.pin(key),
            Step::Unpin { nth } => model.unpin(nth),
            Step::SetLocation { key, location } => {
                if let Some(frame) = model.frame(key) {
                    model.cache.set_location(frame, location);
                    model.index.entries.get_mut(&key).unwrap().location = location;
                }
            }
            Step::Resize { percent } => model.cache.resize(capacity_bytes * percent / 100).unwrap(),
            Step::Settle { bytes } => {
                model.cache.settle(bytes, &mut model.index);
            }
            Step::Clear => {
                let cleared = model.cache.clear();
                assert_eq!(cleared, model.index.pinned.is_empty());
                if cleared {
                    model.index.entries.clear();
                }
            }
        }
        model.check();
    }
    // Nothing stays for ever: unpinned and shrunk to nothing, the cache is empty.
    while !model.index.pinned.is_empty() {
        model.unpin(0);
    }
    model.cache.resize(0).unwrap();
    let settled = (0..4).any(|_| model.cache.settle(usize::MAX, &mut model.index));
    assert!(settled);
    model.check();
    assert_eq!(model.cache.statistics().frames, 0);
    assert_eq!(model.cache.statistics().capacity_bytes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_frame_of_the_index_reads_back_in_a_tiny_cache(
        steps in prop::collection::vec(step(120), 1..400),
        small_percent in 10..=50u8,
        promotion_hits in 1..=3u8,
    ) {
        run(4096, small_percent, promotion_hits, &steps);
    }

    #[test]
    fn every_frame_of_the_index_reads_back_in_a_small_cache(
        steps in prop::collection::vec(step(600), 1..400),
        promotion_hits in 1..=3u8,
    ) {
        run(16_000, 25, promotion_hits, &steps);
    }
}

#[test]
fn a_cache_shrunk_below_a_single_record_stays_whole() {
    let insert = |key, length| Step::Insert { key, length };
    let steps = [insert(0, 241), insert(0, 321), insert(0, 33), Step::Resize { percent: 2 }, insert(1, 129)];
    run(16_000, 25, 1, &steps);
}

#[test]
fn a_long_random_run_keeps_every_record_right_over_many_turns() {
    let seed = 11;
    let mut random = tierstone_base::SeededRandom::new(seed);
    let mut model = Model::new(settings(64 << 10));
    let longest = model.cache.record_max_bytes().unwrap();
    for round in 0..60_000u64 {
        // Two draws multiplied: low keys are hot.
        let key = random.below(400) * random.below(400) / 400;
        match random.below(40) {
            0 => model.remove(key),
            1 if model.index.pinned.len() < 5 => model.pin(key),
            2 => model.unpin(round as usize),
            3..6 => model.replace(key, random.below(200) as usize),
            _ if model.frame(key).is_some() => model.get(key),
            6 => _ = model.insert(key, longest),
            _ => _ = model.insert(key, random.below(200) as usize),
        }
        if round % 64 == 0 {
            model.check();
        }
    }
    let statistics = model.cache.statistics();
    assert!(statistics.promotions > 0 && statistics.reinsertions > 0 && statistics.ghost_hits > 0);
    assert!(statistics.small_evictions > 0 && statistics.main_evictions > 0);
}

#[test]
fn a_full_cache_holds_nearly_its_capacity_in_live_frames() {
    let mut model = Model::new(settings(1 << 20));
    for key in 0..20_000 {
        assert!(model.insert(key, 68));
    }
    let statistics = model.cache.statistics();
    assert!(statistics.live_bytes > (1 << 20) * 97 / 100, "{statistics:?}");
}

#[test]
fn a_cache_of_nothing_refuses_everything() {
    let mut model = Model::new(settings(0));
    assert_eq!(model.cache.record_max_bytes(), None);
    assert!(!model.insert(1, 0));
    assert_eq!(model.cache.statistics().refusals, 1);
}

#[test]
fn the_longest_record_fits_and_a_longer_one_is_refused() {
    let mut model = Model::new(settings(64 << 10));
    let longest = model.cache.record_max_bytes().unwrap();
    assert_eq!(longest, 6544 / 8 / 16 * 16 - HEADER_BYTES);
    assert!(model.insert(1, longest));
    assert!(!model.insert(2, longest + 1));
    model.check();
}

#[test]
fn with_everything_pinned_an_insertion_ends_and_is_refused() {
    let mut model = Model::new(settings(32 << 10));
    let mut key = 0;
    while model.cache.statistics().refusals == 0 {
        key += 1;
        assert!(key < 10_000, "pinned frames were given up");
        if model.insert(key, 100) {
            model.pin(key);
        }
    }
    model.check();
    assert_eq!(model.index.evictions, 0);
    model.unpin(0);
    while !model.index.pinned.is_empty() {
        model.unpin(0);
    }
    for key in 20_000..21_000 {
        assert!(model.insert(key, 100));
    }
    model.check();
}

#[test]
fn a_pinned_frame_that_was_removed_keeps_its_bytes_until_unpinned() {
    let mut model = Model::new(settings(32 << 10));
    model.insert(1, 100);
    model.pin(1);
    let frame = model.frame(1).unwrap();
    model.remove(1);
    for key in 100..2000 {
        model.insert(key, 90);
        if key % 50 == 0 {
            model.check();
        }
    }
    assert_eq!(model.cache.peek(frame).bytes, model.index.pinned[&frame].1);
    model.unpin(0);
    for key in 2000..4000 {
        model.insert(key, 90);
    }
    model.check();
}

#[test]
fn a_hit_record_survives_a_scan_and_a_cold_one_does_not() {
    let mut model = Model::new(settings(128 << 10));
    for key in 0..2000 {
        model.insert(key, 100);
    }
    model.insert(5000, 100);
    model.insert(5001, 100);
    model.get(5000);
    for key in 10_000..10_000 + 500 {
        model.insert(key, 100);
    }
    assert!(model.frame(5000).is_some());
    assert!(model.frame(5001).is_none());
    // The dropped one is remembered, and enters the main ring when it comes back.
    model.insert(5001, 100);
    assert_eq!(model.cache.statistics().ghost_hits, 1);
}

#[test]
fn shrinking_keeps_hot_records_and_growing_makes_room_again() {
    let reserved = RecordCacheSettings { capacity_max_bytes: 2 << 20, ..settings(1 << 20) };
    let mut model = Model::new(reserved);
    for key in 0..20_000 {
        model.insert(key, 100);
        for hot in 0..50 {
            model.get(hot);
        }
    }
    model.cache.resize(256 << 10).unwrap();
    let mut calls = 0;
    while !model.cache.settle(64 << 10, &mut model.index) {
        calls += 1;
        assert!(calls < 100, "the shrink does not end");
        model.check();
    }
    model.check();
    assert!(model.cache.statistics().capacity_bytes <= 256 << 10);
    assert_eq!((0..50).filter(|&hot| model.frame(hot).is_some()).count(), 50);
    model.cache.resize(2 << 20).unwrap();
    for key in 30_000..60_000 {
        model.insert(key, 100);
    }
    model.check();
    assert!(model.cache.statistics().live_bytes > (2 << 20) * 95 / 100);
    assert!(model.cache.resize((2 << 20) + 1).is_err());
}

/// A cache of `bytes` that records of mixed lengths fill, some of them used, changed and removed, with its tails
/// somewhere.
fn mixed(bytes: u64, seed: u64) -> Model {
    let mut model = Model::new(settings(bytes));
    let mut random = tierstone_base::SeededRandom::new(seed);
    let keys = bytes / 200;
    for _ in 0..2 * keys + random.below(2 * keys) {
        let key = random.below(keys);
        match random.below(20) {
            0 => model.remove(key),
            1..6 => model.get(key),
            _ => drop(model.insert(key, random.below(800) as usize)),
        }
    }
    model
}

#[test]
fn giving_an_eighth_up_drops_little_more_than_an_eighth() {
    let mut seeds = tierstone_base::SeededRandom::new(12);
    for _ in 0..24 {
        let seed = seeds.next_u64();
        let mut model = mixed(1 << 20, seed);
        let before = model.cache.statistics();
        model.cache.resize((1 << 20) / 8 * 7).unwrap();
        let mut calls = 0;
        while !model.cache.settle(32 << 10, &mut model.index) {
            calls += 1;
            assert!(calls < 100, "seed {seed}: the shrink does not end");
        }
        model.check();
        let after = model.cache.statistics();
        assert!(after.capacity_bytes <= (1 << 20) / 8 * 7, "seed {seed}: {after:?}");
        assert!(after.live_bytes >= before.live_bytes / 4 * 3, "seed {seed}: {before:?}, {after:?}");
    }
}

#[test]
fn a_record_at_the_very_end_is_copied_before_its_memory_is_given_back() {
    // Frames of 128 bytes tile the main ring up to its end.
    let mut model = Model::new(RecordCacheSettings { small_percent: 50, ..settings(1 << 20) });
    let end = 1 << 20;
    let last_frame = FrameId::at(end - 128);
    let at_end = |model: &Model| {
        let mut entries = model.index.entries.iter();
        entries.find(|(_, entry)| entry.place == Place::Frame(last_frame)).map(|(&key, _)| key)
    };
    // Cold records fill the main ring nearly, a few hot ones the rest; the small ring is cold again.
    let mut key = 0;
    while at_end(&model).is_none() {
        model.insert(key, 96);
        if (10_000..10_080).contains(&key) {
            model.get(key);
        }
        key += 1;
        assert!(key < 20_000);
    }
    let hot = at_end(&model).unwrap();
    model.get(hot);
    model.cache.resize(256 << 10).unwrap();
    while !model.cache.settle(1024, &mut model.index) {}
    model.check();
    assert!(model.frame(hot).is_some_and(|frame| frame != last_frame));
}

#[test]
fn a_shrink_ends_by_insertions_alone() {
    let mut model = Model::new(settings(1 << 20));
    for key in 0..20_000 {
        model.insert(key, 100);
    }
    model.cache.resize(128 << 10).unwrap();
    for key in 20_000..26_000 {
        model.insert(key, 100);
    }
    model.check();
    assert!(model.cache.statistics().capacity_bytes <= 128 << 10);
}

#[test]
#[should_panic(expected = "stale")]
fn a_stale_frame_id_is_noticed() {
    let mut model = Model::new(settings(64 << 10));
    model.insert(1, 100);
    let frame = model.frame(1).unwrap();
    model.remove(1);
    model.cache.get(frame);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    for (settings, name) in [
        (RecordCacheSettings { small_percent: 0, ..settings(1 << 20) }, "small_percent"),
        (RecordCacheSettings { small_percent: 51, ..settings(1 << 20) }, "small_percent"),
        (RecordCacheSettings { promotion_hits: 0, ..settings(1 << 20) }, "promotion_hits"),
        (RecordCacheSettings { promotion_hits: 4, ..settings(1 << 20) }, "promotion_hits"),
        (settings((128 << 30) + 16), "128 GiB"),
    ] {
        let error = RecordCache::new(settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(name), "{error}");
    }
}
