//! What has expired leaves memory and device by itself: nobody reads it, and nothing waits for want of space.

use crate::common::{Store, fresh, mutated, ordered_keyspaces, reopen, reopen_after_kill, small_settings};
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;
use tierstone_media::sim::SimMedium;

const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// How long keys live, in milliseconds.
const TTL_MS: u64 = 60_000;

/// Puts keys that expire in one batch, again and again while the store says so; gives what it is refused with.
fn put(store: &mut Store, numbers: std::ops::Range<u64>, value: &[u8]) -> Result<(), ErrorKind> {
    let keys: Vec<[u8; 8]> = numbers.map(u64::to_le_bytes).collect();
    let kind = WriteKind::Put { value, expiry_ms: store.now.wall_ms + TTL_MS, kind: Default::default() };
    let writes: Vec<Write<'_>> =
        keys.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
    for _ in 0..100_000 {
        match store.engine.write(store.now, &writes) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Retry => step(store),
            Err(error) => return Err(error.kind()),
        }
    }
    panic!("a write stayed refused");
}

/// A turn; time goes on where nothing else happens.
fn step(store: &mut Store) {
    store.turn(Wait::One);
    if let Some(at) = store.engine.next_step_at_us() {
        store.now.monotonic_us = store.now.monotonic_us.max(at);
    }
}

fn steps(store: &mut Store, count: u32) {
    (0..count).for_each(|_| step(store));
}

/// Puts batches of keys until one is refused; gives how many keys were taken, and why no more.
fn fill(store: &mut Store, first: u64, batch: u64, value: &[u8]) -> (u64, ErrorKind) {
    for number in 0.. {
        let from = first + number * batch;
        if let Err(kind) = put(store, from..from + batch, value) {
            return (number * batch, kind);
        }
    }
    unreachable!("the store fills up")
}

fn little_memory() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 1 << 20;
    settings.shard.group_bytes_max = 256 << 10;
    settings
}

/// A store with much space and little memory, full of keys that have all expired.
#[track_caller]
fn takes_new_keys(reopened: bool, again: bool) {
    let settings = little_memory();
    let (medium, mut store) = fresh(1 << 20, 200, &settings);
    let (taken, refused) = fill(&mut store, 0, 250, b"value");
    assert_eq!(refused, ErrorKind::NoMemory, "after {taken} keys");
    if again {
        // Each key's record replaces another.
        for from in (0..taken).step_by(250) {
            put(&mut store, from..from + 250, b"again").unwrap();
        }
    }
    if reopened {
        store = reopen(store, &medium, &settings);
    }
    store.now.wall_ms += TTL_MS + 2_000;
    let before = store.engine.statistics();
    assert_eq!(before.keys, taken);
    let (new, refused) = fill(&mut store, 1 << 32, 250, b"value");
    assert_eq!(refused, ErrorKind::NoMemory);
    assert!(new > taken * 9 / 10, "{new} keys were taken in the place of {taken}");
    let after = store.engine.statistics();
    assert!(after.keys <= new + taken / 10, "{after:?}");
}

#[test]
fn expired_keys_make_room_in_memory_for_new_ones() {
    takes_new_keys(false, false);
}

#[test]
fn expired_keys_of_an_earlier_opening_make_room_in_memory() {
    takes_new_keys(true, false);
}

#[test]
fn expired_keys_that_were_overwritten_make_room_in_memory() {
    takes_new_keys(false, true);
}

/// A full store, all of whose keys have expired.
#[track_caller]
fn takes_writes(reopened: bool) {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 16 << 20;
    settings.shard.group_bytes_max = 64 << 10;
    let (medium, mut store) = fresh(256 << 10, 30, &settings);
    let value = [7; 2_000];
    let (taken, refused) = fill(&mut store, 0, 25, &value);
    assert_eq!(refused, ErrorKind::NoSpace, "after {taken} keys");
    store.sync().unwrap();
    if reopened {
        store = reopen_after_kill(store, &medium, &settings);
    }
    let read = store.engine.statistics().device.bytes_read;
    store.now.wall_ms += TTL_MS + 2_000;
    let (new, refused) = fill(&mut store, 1 << 32, 25, &value);
    assert_eq!(refused, ErrorKind::NoSpace);
    assert!(new > taken * 9 / 10, "{new} keys were taken in the place of {taken}");
    let read = store.engine.statistics().device.bytes_read - read;
    assert!(read < taken * 2_000 / 10, "{read} bytes were read to forget {taken} keys of 2,000");
}

#[test]
fn a_store_full_of_expired_records_takes_writes() {
    takes_writes(false);
}

#[test]
fn a_store_full_of_expired_records_takes_writes_after_a_crash() {
    takes_writes(true);
}

#[test]
fn the_number_of_keys_falls_by_itself() {
    let settings = OpenSettings { keyspaces: ordered_keyspaces(), ..small_settings() };
    let (_medium, mut store) = fresh(256 << 10, 30, &settings);
    put(&mut store, 0..60, b"value").unwrap();
    store.now.wall_ms += TTL_MS / 2;
    put(&mut store, 100..140, b"value").unwrap();
    store.sync().unwrap();
    steps(&mut store, 100);
    assert_eq!(store.engine.len(KEYSPACE), 100);
    store.now.wall_ms += TTL_MS / 2 + 2_000;
    steps(&mut store, 400);
    assert_eq!((store.engine.len(KEYSPACE), store.engine.ordered_len(KEYSPACE)), (40, Some(40)));
    assert_eq!(store.engine.statistics().expired_keys, 60);
    store.now.wall_ms += TTL_MS;
    steps(&mut store, 400);
    assert_eq!((store.engine.len(KEYSPACE), store.engine.ordered_len(KEYSPACE)), (0, Some(0)));
}

/// What has replaced something goes by cleaning only: nobody writes, and the segment that holds it is not full.
#[test]
fn the_number_of_keys_falls_by_itself_where_they_were_overwritten() {
    let settings = OpenSettings { keyspaces: ordered_keyspaces(), ..small_settings() };
    let (_medium, mut store) = fresh(256 << 10, 30, &settings);
    let value = [3; 200];
    put(&mut store, 0..60, &value).unwrap();
    store.now.wall_ms += TTL_MS / 2;
    // Another value, and the same one with another expiry.
    put(&mut store, 0..20, b"again").unwrap();
    put(&mut store, 20..40, &value).unwrap();
    store.sync().unwrap();
    store.now.wall_ms += TTL_MS / 2 + 1_000;
    steps(&mut store, 400);
    assert_eq!((store.engine.len(KEYSPACE), store.engine.ordered_len(KEYSPACE)), (40, Some(40)));
    store.now.wall_ms += TTL_MS / 2;
    steps(&mut store, 400);
    assert_eq!((store.engine.len(KEYSPACE), store.engine.ordered_len(KEYSPACE)), (0, Some(0)));
    assert_eq!(store.engine.statistics().expired_keys, 60);
}

/// Of what cleaning has moved to a segment that stays open some expires there.
#[test]
fn the_number_of_keys_falls_by_itself_where_they_were_moved() {
    let (_medium, mut store) = fresh(256 << 10, 30, &small_settings());
    put(&mut store, 0..60, b"value").unwrap();
    store.now.wall_ms += TTL_MS / 2;
    put(&mut store, 0..30, b"again").unwrap();
    store.now.wall_ms += TTL_MS / 4;
    put(&mut store, 30..60, b"again").unwrap();
    store.sync().unwrap();
    for (seconds, left) in [(46, 30), (15, 0)] {
        store.now.wall_ms += seconds * 1_000;
        steps(&mut store, 600);
        assert_eq!(store.engine.len(KEYSPACE), left, "{:?}", store.engine.statistics());
    }
}

/// A key that expires each second costs no segment each time.
#[test]
fn few_segments_are_sealed_for_what_expires() {
    let (_medium, mut store) = fresh(256 << 10, 30, &small_settings());
    let began_us = store.now.monotonic_us;
    while store.now.monotonic_us < began_us + 60_000_000 {
        put(&mut store, 0..1, b"value").unwrap();
        put(&mut store, 0..1, b"again").unwrap();
        store.sync().unwrap();
        store.now.wall_ms += TTL_MS + 1_000;
        let until_us = store.now.monotonic_us + 1_000_000;
        while store.now.monotonic_us < until_us {
            step(&mut store);
        }
    }
    let written = store.engine.statistics().device.bytes_written;
    assert!(written < 60 * 20 * 4_096, "{written} bytes were written for sixty keys");
}

#[test]
fn a_snapshot_shows_what_has_expired_since() {
    let (_medium, mut store) = fresh(256 << 10, 30, &small_settings());
    put(&mut store, 0..50, b"value").unwrap();
    store.sync().unwrap();
    let snapshot = store.engine.snapshot(store.now).unwrap();
    store.now.wall_ms += TTL_MS + 2_000;
    steps(&mut store, 300);
    for number in 0..50u64 {
        let found = store.get_at(snapshot, KEYSPACE, &number.to_le_bytes()).unwrap();
        assert!(found.is_some_and(|record| record.value == b"value"), "key {number}");
    }
    store.engine.release_snapshot(snapshot);
    store.now.wall_ms += 3_000;
    steps(&mut store, 300);
    assert_eq!(store.engine.len(KEYSPACE), 0);
}

/// Keys without expiry that fill a segment and more, densely.
fn fill_some(store: &mut Store, from: u64) {
    let keys: Vec<[u8; 8]> = (from..from + 300).map(u64::to_le_bytes).collect();
    let kind = WriteKind::Put { value: &[1; 1_000], expiry_ms: 0, kind: Default::default() };
    for batch in keys.chunks(60) {
        let writes: Vec<Write<'_>> =
            batch.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
        store.write(&writes).unwrap();
    }
}

/// Settings under which such segments are not worth cleaning.
fn dense(mut settings: OpenSettings) -> OpenSettings {
    settings.shard.group_bytes_max = 64 << 10;
    settings
}

const KEY: u64 = 7;

/// Time goes on until keys have expired and segments without records are free.
fn expire(store: &mut Store) {
    store.sync().unwrap();
    store.now.wall_ms += TTL_MS + 2_000;
    steps(store, 500);
}

/// What [`KEY`] shows after another opening.
fn reopened(store: Store, medium: &SimMedium, settings: &OpenSettings) -> Option<Vec<u8>> {
    let mut store = reopen_after_kill(store, medium, settings);
    store.get(KEYSPACE, &KEY.to_le_bytes()).unwrap().map(|(_, value)| value)
}

/// A key has a value, then one that expires; the segment of the second one is reused, that of the first is not.
fn after_an_overwrite(settings: &OpenSettings) -> Option<Vec<u8>> {
    let (medium, mut store) = fresh(256 << 10, 40, settings);
    store.put(KEYSPACE, &KEY.to_le_bytes(), b"old").unwrap();
    fill_some(&mut store, 1_000);
    fill_some(&mut store, 2_000);
    put(&mut store, KEY..KEY + 1, b"new").unwrap();
    put(&mut store, 5_000..5_250, &[2; 1_000]).unwrap();
    fill_some(&mut store, 3_000);
    expire(&mut store);
    fill_some(&mut store, 2_000);
    fill_some(&mut store, 3_000);
    expire(&mut store);
    assert_eq!(store.get(KEYSPACE, &KEY.to_le_bytes()).unwrap(), None);
    reopened(store, &medium, settings)
}

#[test]
fn an_older_value_does_not_come_back() {
    assert_eq!(after_an_overwrite(&dense(small_settings())), None);
}

#[test]
fn an_older_value_that_comes_back_is_seen() {
    let overwritten = after_an_overwrite(&dense(mutated("expired_without_trace")));
    assert_eq!(overwritten.as_deref(), Some(&b"old"[..]));
}
