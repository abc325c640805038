//! Space ahead and behind: segments take space before they are needed, and give it back when many stand empty.

use crate::common::{Store, fresh, mutated, small_settings};
use tierstone_base::{Error, ErrorKind, KeyspaceId};
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::sim::SimMedium;
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoKind, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT_BYTES: u64 = 128 << 10;
/// The same where groups may be large.
const LONG_SEGMENT_BYTES: u64 = 4 << 20;
/// Free segments that are ready: the reserve and one more. And those that stay ready in any case.
const READY_WANTED: usize = 4;
const READY_KEPT: usize = 8;

/// A new store on a device that no segment takes space of.
fn empty() -> (SimMedium, Store) {
    fresh(SEGMENT_BYTES, 64, &OpenSettings { existing_segments: Some(Vec::new()), ..small_settings() })
}

/// Turns, with time going on as in a store that little is asked of.
fn idle(store: &mut Store, turns: u32) {
    for _ in 0..turns {
        store.turn(Wait::One);
        store.now.monotonic_us += 20_000;
    }
}

/// Segments with records.
fn used(store: &Store) -> usize {
    (store.engine.statistics().space_used_bytes / SEGMENT_BYTES) as usize
}

/// Fills some 40 segments in a hurry.
fn load(store: &mut Store, medium: &SimMedium) -> Vec<[u8; 8]> {
    let keys: Vec<[u8; 8]> = (0..1_200u64).map(u64::to_le_bytes).collect();
    for batch in keys.chunks(15) {
        let kind = WriteKind::Put { value: &[7; 4_000], expiry_ms: 0, kind: Default::default() };
        let writes: Vec<Write<'_>> =
            batch.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
        store.write(&writes).expect("there is room");
    }
    store.sync().expect("the device works");
    assert!(used(store) > 35, "{} segments are in use", used(store));
    assert!(medium.taken_segments() <= used(store) + READY_WANTED, "bulk load prepares the reserve only");
    keys
}

#[test]
fn segments_take_space_before_they_are_needed() {
    let (medium, mut store) = empty();
    assert_eq!(medium.taken_segments(), 0);
    idle(&mut store, 20);
    assert_eq!(medium.taken_segments(), READY_WANTED, "and no more than are wanted");
    // Whoever writes at leisure opens segments that have space, and others get some in their place.
    for number in 0..200u64 {
        let taken = medium.taken_segments();
        let opened = used(&store);
        store.put(KEYSPACE, &number.to_le_bytes(), &[7; 4_000]).expect("there is room");
        assert!(
            used(&store) == opened || medium.taken_segments() == taken,
            "write {number} waited for space"
        );
        idle(&mut store, 30);
        assert_eq!(medium.taken_segments(), used(&store) + READY_WANTED);
    }
    assert!(used(&store) > 5);
}

#[test]
fn space_is_given_back_after_many_deletions_and_taken_again() {
    let (medium, mut store) = empty();
    let keys = load(&mut store, &medium);
    let full = medium.taken_segments();
    for key in &keys {
        store.delete(KEYSPACE, key).expect("deletes go through");
    }
    store.sync().expect("the device works");
    idle(&mut store, 3_000);
    let (taken, used_now) = (medium.taken_segments(), used(&store));
    assert!(used_now < 8, "{used_now} segments are in use by nothing");
    assert!(taken < full / 2, "{taken} of {full} segments still take space");
    assert_eq!(taken, used_now + READY_KEPT, "what is kept for the next writes");
    load(&mut store, &medium);
    for key in keys.iter().step_by(37) {
        assert!(store.get(KEYSPACE, key).expect("the device works").is_some());
    }
}

/// Writes, with time going on where nothing else happens.
fn write(store: &mut Store, key: &[u8], kind: WriteKind<'_>) -> Result<(), Error> {
    let write = [Write { key: store.key(KEYSPACE, key), kind }];
    for _ in 0..2_000 {
        match store.engine.write(store.now, &write) {
            Ok(_) => {
                store.turn(Wait::Poll);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Retry => {
                store.turn(Wait::One);
                if let Some(at) = store.engine.next_step_at_us() {
                    store.now.monotonic_us = store.now.monotonic_us.max(at);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::Retry, "it stayed put off"))
}

/// Puts records from `from` on until one is refused; gives the number of that one, and why.
fn fill(store: &mut Store, from: u64, len: usize) -> (u64, Option<Error>) {
    for number in from..from + 20_000 {
        let kind = WriteKind::Put { value: &vec![7; len], expiry_ms: 0, kind: Default::default() };
        if let Err(error) = write(store, &number.to_le_bytes(), kind) {
            return (number, Some(error));
        }
    }
    (from + 20_000, None)
}

/// A store on a device that has room for a part of it: what is refused, what goes through, and that writes go on
/// when there is room.
fn on_a_device_that_is_full_first(settings: &OpenSettings, len: usize) -> Result<(), String> {
    const ROOM: u32 = 24;
    let (medium, mut store) =
        fresh(SEGMENT_BYTES, 64, &OpenSettings { existing_segments: Some(Vec::new()), ..settings.clone() });
    medium.set_capacity_segments(ROOM);
    let room_bytes = u64::from(ROOM) * SEGMENT_BYTES;
    for round in 0..3u64 {
        let first = round * 100_000;
        let (end, why) = fill(&mut store, first, len);
        let why = why.map(|error| error.to_string()).unwrap_or_default();
        // With what the device itself said.
        if !(why.contains("gives the store no more than") && why.contains("simulated device")) {
            return Err(format!("round {round}: refused with {why:?}"));
        }
        let taken_bytes = (end - first) * len as u64;
        if taken_bytes < room_bytes * 3 / 10 {
            return Err(format!("round {round}: full after {taken_bytes} of {room_bytes} bytes"));
        }
        store.sync().map_err(|error| format!("what was taken does not become durable: {error}"))?;
        for number in first..end {
            write(&mut store, &number.to_le_bytes(), WriteKind::Delete)
                .map_err(|error| format!("round {round}: a deletion is refused: {error}"))?;
        }
    }
    medium.set_capacity_segments(64);
    idle(&mut store, 1_000);
    let (end, _) = fill(&mut store, 500_000, len);
    let taken_bytes = (end - 500_000) * len as u64;
    if taken_bytes < room_bytes {
        return Err(format!("only {taken_bytes} bytes are taken where there is room again"));
    }
    Ok(())
}

#[test]
fn a_device_that_is_full_before_the_store_refuses_writes_only() {
    for len in [300, 1_000, 4_000] {
        assert_eq!(on_a_device_that_is_full_first(&small_settings(), len), Ok(()), "values of {len} bytes");
    }
}

/// What the device lacks may be back at once, as file descriptors are when a crowd of clients has gone: the first write
/// that needs it finds out. While the device goes on to give nothing, it is not asked for every write.
#[test]
fn a_write_is_refused_only_after_the_device_was_asked_for_it() {
    let (medium, mut store) = empty();
    medium.set_capacity_segments(2);
    idle(&mut store, 20);
    assert_eq!(medium.taken_segments(), 2);
    // What the store did by itself has found out that there is no more. Now there is.
    medium.set_capacity_segments(24);
    let (end, why) = fill(&mut store, 0, 4_000);
    assert!(end * 4_000 > 12 * SEGMENT_BYTES, "refused at {end} although there is room: {why:?}");
    assert!(why.is_some_and(|error| error.kind() == ErrorKind::NoSpace));
    store.sync().expect("the device works");
    let requests = medium.counters().requests;
    for _ in 0..50 {
        let kind = WriteKind::Put { value: &[7; 4_000], expiry_ms: 0, kind: Default::default() };
        assert!(write(&mut store, &end.to_le_bytes(), kind).is_err());
    }
    let asked = medium.counters().requests - requests;
    assert!(asked <= 2, "the device was asked {asked} times for 50 writes");
}

#[test]
fn a_reserve_without_space_and_a_shortage_that_nobody_reckons_with_are_noticed() {
    for name in ["reserve_without_space", "shortage_not_reckoned_with"] {
        let found = [300, 1_000, 4_000].map(|len| on_a_device_that_is_full_first(&mutated(name), len));
        println!("{name}: {found:?}");
        assert!(found.iter().any(Result::is_err), "{name} is not noticed");
    }
}

/// Writes batches of `count` records with values of `len` bytes, a group each, until `segments` have been filled; gives
/// how much was prepared of each segment that was.
fn prepared(store: &mut Store, (count, len): (u64, usize), until_us: u64, segments: u64) -> Vec<u64> {
    let (mut requests, mut completions, mut events) = (Vec::new(), Vec::new(), Vec::new());
    let mut lengths = Vec::new();
    let mut turn = |store: &mut Store| {
        store.engine.take_requests(&mut requests);
        lengths.extend(requests.iter().filter_map(|request| match request.kind {
            IoKind::Prepare { len } => Some(len),
            _ => None,
        }));
        store.device.submit(&mut requests);
        store.device.complete(Wait::All, &mut completions);
        store.engine.step(store.now, &mut completions, &mut events);
    };
    let value = vec![7; len];
    let written = |store: &Store| store.engine.statistics().device.bytes_written;
    let (before, mut number) = (written(store), 0u64);
    while written(store) - before < segments * LONG_SEGMENT_BYTES {
        store.now.monotonic_us = (store.now.monotonic_us + 100).min(until_us);
        let keys: Vec<[u8; 8]> = (number..number + count).map(u64::to_le_bytes).collect();
        let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
        let writes: Vec<Write<'_>> =
            keys.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
        match store.engine.write(store.now, &writes) {
            Ok(_) => number += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Retry, "{error}"),
        }
        turn(store);
        turn(store);
    }
    lengths
}

#[test]
fn zeros_go_ahead_of_small_groups_and_not_of_large_ones_until_these_are_over() {
    let mut settings = OpenSettings { existing_segments: Some(Vec::new()), ..small_settings() };
    settings.shard.memory_bytes = 64 << 20;
    settings.shard.group_bytes_max = 1 << 20;
    let open = || fresh(LONG_SEGMENT_BYTES, 64, &settings);
    // All within half a second: fast.
    let (_medium, mut store) = open();
    let small = prepared(&mut store, (20, 1_000), 400_000, 6);
    assert!(small.len() >= 6 && small.iter().all(|len| *len == LONG_SEGMENT_BYTES), "{small:?}");
    let (_medium, mut store) = open();
    let mut large = prepared(&mut store, (700, 1_000), 400_000, 6);
    // Of what comes nothing is known at first.
    large.drain(..2);
    assert!(large.len() >= 4 && large.iter().all(|len| *len == BLOCK_BYTES as u64), "{large:?}");
    // Nothing is written for a second: what is ready is filled.
    store.now.monotonic_us += 1_000_000;
    let rest = prepared(&mut store, (1, 1_000), u64::MAX, 1);
    let whole = rest.iter().take_while(|len| **len == LONG_SEGMENT_BYTES).count();
    assert!(whole >= 2 && whole == rest.len(), "{rest:?}");
}

/// Bytes that are live after a keyspace was dropped of which all values were overwritten under other keys, as chunks of large
/// values are.
fn left_of_a_dropped_keyspace() -> u64 {
    const LARGE: KeyspaceId = KeyspaceId(2);
    const COUNT: u32 = 24;
    let (_medium, mut store) = fresh(1 << 20, 32, &small_settings());
    for key in 0..COUNT * 3 {
        store.put(LARGE, &key.to_le_bytes(), &[7; 8_000]).expect("there is room");
        if let Some(old) = key.checked_sub(COUNT) {
            store.delete(LARGE, &old.to_le_bytes()).expect("deletes go through");
        }
    }
    store.sync().expect("the device works");
    let live = store.engine.statistics().space_live_bytes;
    assert!(live > u64::from(COUNT) * 8_000, "{live} bytes are live");
    store.engine.drop_keyspace(LARGE);
    store.settle(1_000);
    store.engine.statistics().space_live_bytes
}

#[test]
fn records_of_a_dropped_keyspace_are_not_live_although_deletions_lie_beside_them() {
    // Deletions themselves are kept until their segments are cleaned.
    let left = left_of_a_dropped_keyspace();
    assert!(left < 8_000, "{left} bytes are live and nobody has them");
}
