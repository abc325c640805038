//! Ranges of an ordered keyspace while the store works: reads under way, writes between pages, damage,
//! long keys, want of memory.

use crate::common::{Store, fresh, medium, open_on, ordered_keyspaces, reopen, small_settings};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use tierstone_base::{Error, ErrorKind, KeyspaceId, SeededRandom};
use tierstone_engine::{Direction, Engine, Event, RangeRequest};
use tierstone_logstore::OpenSettings;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, SimMedium};
use tierstone_media::{BLOCK_BYTES, BlockDevice, Wait};

const SPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT: u64 = 64 << 10;

fn settings() -> OpenSettings {
    OpenSettings { keyspaces: ordered_keyspaces(), ..small_settings() }
}

/// Settings whose cache holds next to nothing, so that reads go to the device.
fn uncached() -> OpenSettings {
    let mut settings = settings();
    settings.shard.memory_bytes = 8 << 10;
    settings
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number:05}").into_bytes()
}

/// A store of `keys` keys with values of `len` bytes, closed in good order and opened without a cache.
fn filled(medium: &SimMedium, keys: u32, len: usize) -> Store {
    let (mut store, _) = open_on(medium.device(), &uncached()).unwrap();
    for number in 0..keys {
        store.put(SPACE, &key(number), &vec![number as u8; len]).unwrap();
    }
    reopen(store, medium, &uncached())
}

fn all(store: &mut Store, limit: u32) -> Vec<Vec<u8>> {
    let entries = store.range_all(SPACE, Unbounded, Unbounded, limit, Direction::Forward).unwrap();
    entries.into_iter().map(|entry| entry.key).collect()
}

fn request(limit: u32, direction: Direction) -> RangeRequest {
    let (from, to) = (Unbounded, Unbounded);
    RangeRequest { token: 1 << 40, keyspace: SPACE, from, to, limit, direction, snapshot: None }
}

/// Turns until the page of [`request`] is there.
fn page(store: &mut Store) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
    let (keys, next, error) = answer(store);
    assert!(error.is_none(), "{error:?}");
    (keys, next)
}

/// The same of one that may have met damage.
fn answer(store: &mut Store) -> (Vec<Vec<u8>>, Option<Vec<u8>>, Option<Error>) {
    let (mut requests, mut completions, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..10_000 {
        store.engine.take_requests(&mut requests);
        store.device.submit(&mut requests);
        store.device.complete(Wait::One, &mut completions);
        store.now.monotonic_us += 50;
        store.engine.step(store.now, &mut completions, &mut events);
        for event in events.drain(..) {
            if let Event::Ranged { token, entries, next, error, .. } = event {
                assert_eq!(token, 1 << 40);
                return (entries.into_iter().map(|entry| entry.key).collect(), next, error);
            }
        }
    }
    panic!("the page never came");
}

#[test]
fn recovery_reads_no_record_to_know_the_order() {
    let medium = medium(SEGMENT, 32);
    drop(filled(&medium, 1_000, 300));
    let geometry = medium.settings().geometry;
    // Of each segment only the first block and the last sixth can be read: header, summary, footer.
    for segment in 0..geometry.segment_limit {
        let start = geometry.segment_offset(segment);
        let data = start + BLOCK_BYTES as u64..start + SEGMENT * 5 / 6;
        medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).within(data));
    }
    let (mut store, report) = open_on(medium.device(), &uncached()).unwrap();
    assert!(report.damaged_segments.is_empty());
    assert_eq!(store.engine.ordered_len(SPACE), Some(1_000));
    medium.clear_faults();
    assert_eq!(all(&mut store, 77), (0..1_000).map(key).collect::<Vec<_>>());
}

#[test]
fn reads_of_a_range_are_bounded_and_entries_come_in_order() {
    let medium = medium(SEGMENT, 64);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut store = filled(&medium, 500, 300);
        store.engine.range(store.now, request(400, direction));
        let mut requests = Vec::new();
        store.engine.take_requests(&mut requests);
        // They were written in their order, so that one read brings many.
        assert!((1..=16).contains(&requests.len()), "{} reads at once", requests.len());
        store.device.submit(&mut requests);
        let (keys, next) = page(&mut store);
        let mut expected: Vec<_> = (0..500).map(key).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(keys, expected[..400]);
        assert_eq!(next.as_ref(), Some(&expected[399]));
        assert_eq!(store.engine.statistics().keys, 500);
        // Nothing is held any more: the segments may be cleaned.
        store.settle(50);
        assert!(store.engine.statistics().buffer_bytes < 100 << 10, "{:?}", store.engine.statistics());
        drop(store);
    }
}

#[test]
fn a_page_of_large_values_ends_early_and_the_next_one_goes_on() {
    let (_medium, mut store) = fresh(4 << 20, 16, &settings());
    for number in 0..20 {
        store.put(SPACE, &key(number), &vec![number as u8; 200_000]).unwrap();
        store.sync().unwrap();
    }
    let (entries, next) = store.range_page(SPACE, Unbounded, Unbounded, 1_000, Direction::Forward).unwrap();
    let bytes: usize = entries.iter().map(|entry| entry.value.len()).sum();
    assert!((1 << 20..8 << 20).contains(&bytes) && (next.is_some() || entries.len() == 20), "{bytes}");
    assert_eq!(all(&mut store, 1_000).len(), 20);
}

/// Keys go, come and change while their page is being read.
#[test]
fn what_lasts_is_given_once_whatever_is_written_meanwhile() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let medium = medium(SEGMENT, 64);
        let mut store = filled(&medium, 300, 200);
        let direction = if seed % 2 == 0 { Direction::Forward } else { Direction::Backward };
        store.engine.range(store.now, request(1_000, direction));
        let mut gone: BTreeSet<Vec<u8>> = BTreeSet::new();
        let (mut requests, mut completions, mut events) = (Vec::new(), Vec::new(), Vec::new());
        let entries = loop {
            let number = random.below(300) as u32;
            // What needs an old record is refused at first, and asks for it.
            let (key, now) = (key(number), store.now);
            let own = store.key(SPACE, &key);
            let kind = match random.below(3) {
                0 => tierstone_engine::WriteKind::Delete,
                _ => {
                    tierstone_engine::WriteKind::Put { value: b"new", expiry_ms: 0, kind: Default::default() }
                }
            };
            let is_delete = matches!(kind, tierstone_engine::WriteKind::Delete);
            if store.engine.write(now, &[tierstone_engine::Write { key: own, kind }]).is_ok() && is_delete {
                gone.insert(key);
            }
            store.engine.take_requests(&mut requests);
            store.device.submit(&mut requests);
            store.device.complete(Wait::One, &mut completions);
            store.now.monotonic_us += 50;
            store.engine.step(store.now, &mut completions, &mut events);
            if let Some(Event::Ranged { entries, next, error, .. }) = events.pop() {
                assert!(next.is_none() && error.is_none(), "seed {seed}: {error:?}");
                break entries;
            }
        };
        let mut keys: Vec<_> = entries.iter().map(|entry| entry.key.clone()).collect();
        if direction == Direction::Backward {
            keys.reverse();
        }
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {keys:?}");
        let lasting = (0..300).map(key).filter(|key| !gone.contains(key));
        let keys: BTreeSet<_> = keys.into_iter().collect();
        for key in lasting {
            assert!(keys.contains(&key), "seed {seed}: {} is missing", String::from_utf8_lossy(&key));
        }
        assert!(entries.iter().all(|entry| entry.value == b"new" || entry.value.len() == 200));
        let left = all(&mut store, 10);
        assert_eq!(left.len() as u64, store.engine.len(SPACE), "seed {seed}");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_told_and_the_others_are_given() {
    let medium = medium(SEGMENT, 32);
    let mut store = filled(&medium, 100, 600);
    let needle = vec![7u8; 600];
    let bytes = medium.peek(0, medium.settings().geometry.end() as usize);
    let place = bytes.windows(600).position(|window| window == needle).unwrap();
    medium.flip_bit(place as u64 + 5, 1);
    let failed = store.range_page(SPACE, Unbounded, Unbounded, 1_000, Direction::Forward).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Corrupt);
    let (from, to) = (key(8), key(20));
    let bounds = (Included(from.as_slice()), Excluded(to.as_slice()));
    assert_eq!(store.range_all(SPACE, bounds.0, bounds.1, 5, Direction::Backward).unwrap().len(), 12);
    // Overwritten or deleted it is in order again, or out of it.
    store.put(SPACE, &key(7), b"new").unwrap();
    assert_eq!(all(&mut store, 1_000).len(), 100);
    store.delete(SPACE, &key(7)).unwrap();
    assert_eq!(all(&mut store, 1_000).len(), 99);
}

#[test]
fn a_keyspace_without_order_says_so() {
    let (_medium, mut store) = fresh(SEGMENT, 16, &settings());
    let mut range =
        |keyspace| store.range_page(KeyspaceId(keyspace), Unbounded, Unbounded, 10, Direction::Forward);
    assert_eq!(range(1).unwrap(), (Vec::new(), None));
    let refused = range(2).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.message().contains("keyspace 2"), "{refused}");
}

/// Keys of all lengths, so that summaries grow as large as the records: what is sealed is whole, also
/// when the store is nearly full and being cleaned.
#[test]
fn summaries_with_long_keys_find_room_in_their_segments() {
    for seed in 0..3 {
        let mut random = SeededRandom::new(seed);
        let (medium, mut store) = fresh(SEGMENT, 24, &settings());
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut cleaned = 0;
        for operation in 0..6_000 {
            let number = random.below(120);
            let mut key = number.to_be_bytes().to_vec();
            key.resize(8 + (number * number) as usize % 9_000, number as u8);
            let value = vec![operation as u8; random.below(300) as usize];
            match store.put(SPACE, &key, &value) {
                Ok(_) => drop(model.insert(key, value)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "seed {seed}: {error}");
                    store.delete(SPACE, &key).unwrap();
                    model.remove(&key);
                }
            }
            if operation % 1_500 == 1_499 {
                cleaned += store.engine.statistics().cleaned_bytes_written;
                store = reopen(store, &medium, &settings());
                let found = store.range_all(SPACE, Unbounded, Unbounded, 50, Direction::Forward).unwrap();
                let found: BTreeMap<_, _> = found.into_iter().map(|entry| (entry.key, entry.value)).collect();
                assert!(found == model, "seed {seed}, operation {operation}");
                let report =
                    tierstone_logstore::check::check(&mut medium.device(), &Default::default(), &mut |_| {});
                assert!(!report.unwrap().is_damaged());
            }
        }
        assert!(cleaned > 0, "seed {seed}: nothing was cleaned");
    }
}

#[test]
fn at_the_limit_of_memory_new_keys_are_refused_and_the_rest_goes_on() {
    let mut settings = settings();
    settings.shard.memory_bytes = 3 << 20;
    settings.shard.index_fraction = 0.5;
    let (_medium, mut store) = fresh(1 << 20, 32, &settings);
    let limit = settings.shard.index_bytes_max();
    let key = |number: u64| {
        let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
        key.resize(500, number as u8);
        key
    };
    let mut count = 0;
    let refused = loop {
        match store.put(SPACE, &key(count), b"v") {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::NoMemory);
    assert!((1_000..3_000).contains(&count), "{count} keys of 500 bytes in {limit} bytes");
    assert!(store.engine.statistics().index_bytes <= limit);
    store.put(SPACE, &key(3), b"other").unwrap();
    for number in 0..100 {
        store.delete(SPACE, &key(number)).unwrap();
    }
    store.put(SPACE, &key(count), b"fits now").unwrap();
    assert_eq!(store.engine.ordered_len(SPACE), Some(count - 99));
}

#[test]
fn bounds_are_kept_and_backwards_ranges_are_empty() {
    let (_medium, mut store) = fresh(SEGMENT, 16, &settings());
    for number in 0..30 {
        store.put(SPACE, &key(number), b"v").unwrap();
    }
    let (low, high) = (key(10), key(20));
    let mut count = |from: Bound<&[u8]>, to: Bound<&[u8]>| {
        let forward = store.range_all(SPACE, from, to, 4, Direction::Forward).unwrap().len();
        assert_eq!(forward, store.range_all(SPACE, from, to, 4, Direction::Backward).unwrap().len());
        forward
    };
    assert_eq!(count(Included(&low), Included(&high)), 11);
    assert_eq!(count(Excluded(&low), Excluded(&high)), 9);
    assert_eq!(count(Excluded(&high), Unbounded), 9);
    assert_eq!(count(Unbounded, Excluded(&low)), 10);
    assert_eq!(count(Included(&high), Included(&low)), 0);
    assert_eq!(count(Excluded(&low), Excluded(&low)), 0);
}

/// A store of `keys` keys of 300 bytes each that were written in an order of their own, opened with a cache that holds a part.
fn scattered(medium: &SimMedium, keys: u32, cluster_bytes_per_second: u64) -> Store {
    let mut settings = settings();
    settings.shard.cache_bytes_max = 64 << 10;
    settings.shard.cluster_bytes_per_second = cluster_bytes_per_second;
    let (mut store, _) = open_on(medium.device(), &settings).unwrap();
    for number in 0..keys {
        store.put(SPACE, &key(number * 7_919 % keys), &[number as u8; 300]).unwrap();
    }
    reopen(store, medium, &settings)
}

/// Walks through everything; gives the reads that this took, and what was found.
fn walk(store: &mut Store) -> (u64, BTreeMap<Vec<u8>, Vec<u8>>) {
    let before = store.engine.statistics().device.reads;
    let entries = store.range_all(SPACE, Unbounded, Unbounded, 64, Direction::Forward).unwrap();
    // Nothing else is read then.
    let reads = store.engine.statistics().device.reads - before;
    (reads, entries.into_iter().map(|entry| (entry.key, entry.value)).collect())
}

#[test]
fn records_that_ranges_find_scattered_are_brought_together() {
    let medium = medium(SEGMENT, 128);
    let mut store = scattered(&medium, 2_000, 1 << 40);
    let (scattered_reads, found) = walk(&mut store);
    assert!(found.len() == 2_000 && scattered_reads > 800, "{scattered_reads}");
    let clustered = store.engine.statistics().clustered_bytes_written;
    assert!(clustered > 2_000 * 300, "{clustered} bytes were brought together");
    store.settle(1_000);
    let (reads, again) = walk(&mut store);
    assert!(again == found && reads * 10 < scattered_reads, "{reads} reads after {scattered_reads}");
    // What lies together is left in peace, and what was left behind goes.
    walk(&mut store);
    store.settle(1_000);
    let statistics = store.engine.statistics();
    assert!(statistics.clustered_bytes_written < clustered * 5 / 4, "{statistics:?}");
    assert!(statistics.space_used_bytes < statistics.space_live_bytes * 2, "{statistics:?}");
    // A store that is closed in good order keeps it; the index, too, is right.
    let mut settings = settings();
    settings.shard.cache_bytes_max = 64 << 10;
    let mut store = reopen(store, &medium, &settings);
    let (reads, again) = walk(&mut store);
    assert!(again == found && reads * 10 < scattered_reads, "{reads} reads after {scattered_reads}");
}

#[test]
fn nothing_is_brought_together_where_it_is_switched_off_or_in_the_way() {
    let medium = medium(SEGMENT, 128);
    let mut store = scattered(&medium, 2_000, 0);
    walk(&mut store);
    assert_eq!(store.engine.statistics().clustered_bytes_written, 0);
    let mut settings = settings();
    settings.shard.cache_bytes_max = 64 << 10;
    settings.shard.cluster_bytes_per_second = 1 << 40;
    let mut store = reopen(store, &medium, &settings);
    store.engine.begin_backup(store.now, None).unwrap();
    walk(&mut store);
    assert_eq!(
        store.engine.statistics().clustered_bytes_written,
        0,
        "a backup counts records where they were"
    );
    store.engine.end_backup();
    walk(&mut store);
    assert!(store.engine.statistics().clustered_bytes_written > 0);
}

#[test]
fn nothing_is_brought_together_in_a_store_that_is_nearly_full() {
    let medium = medium(4 * SEGMENT, 32);
    let mut store = scattered(&medium, 17_000, 1 << 40);
    let live = store.engine.statistics().space_live_bytes;
    assert!(live * 10 > 32 * 4 * SEGMENT * 7, "{live} bytes are live");
    let (_, found) = walk(&mut store);
    assert_eq!(found.len(), 17_000);
    assert_eq!(store.engine.statistics().clustered_bytes_written, 0);
}

#[test]
fn a_run_that_cannot_be_read_harms_only_what_lies_there() {
    let medium = medium(SEGMENT, 32);
    let mut store = filled(&medium, 500, 300);
    let geometry = medium.settings().geometry;
    let block = geometry.segment_offset(0) + 3 * BLOCK_BYTES as u64;
    let damaged = block..block + BLOCK_BYTES as u64;
    medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).within(damaged));
    let (mut found, mut from) = (BTreeSet::new(), Unbounded);
    loop {
        let request = RangeRequest { from: from.clone(), ..request(40, Direction::Forward) };
        store.engine.range(store.now, request);
        let (keys, next, error) = answer(&mut store);
        assert!(error.is_none_or(|error| error.kind() == ErrorKind::Corrupt));
        found.extend(keys);
        match next {
            Some(next) => from = Excluded(next),
            None => break,
        }
    }
    // A block holds some eleven of them.
    assert!((480..500).contains(&found.len()), "{} of 500", found.len());
}

/// Records are read so far ahead at first; what is left of one that is longer comes with a second read, although all of the
/// first one's blocks were read.
#[test]
fn records_that_end_in_the_block_after_what_is_read_ahead_are_whole() {
    let medium = medium(1 << 20, 16);
    let (mut store, _) = open_on(medium.device(), &uncached()).unwrap();
    let value = |number: u32| vec![number as u8 | 1; 15_000 + 100 * number as usize];
    for number in 0..80 {
        store.put(SPACE, &key(number), &value(number)).unwrap();
    }
    let mut store = reopen(store, &medium, &uncached());
    for _ in 0..3 {
        let (_, found) = walk(&mut store);
        assert_eq!(found.len(), 80);
        for (number, (found, value_found)) in (0..).zip(found) {
            assert_eq!((found, value_found.len()), (key(number), value(number).len()));
            assert!(value_found == value(number), "the value of key {number} is another");
        }
    }
    assert_eq!(store.engine.statistics().corrupt_reads, 0);
}
