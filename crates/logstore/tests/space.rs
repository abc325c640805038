//! Space ahead and behind: segments take space before they are needed, and give it back when many stand empty.
#![expect(clippy::expect_used, reason = "test code")]

mod common;

use common::{Store, fresh, small_settings};
use tierstone_base::KeyspaceId;
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;
use tierstone_media::sim::SimMedium;

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT_BYTES: u64 = 128 << 10;
/// Free segments that are ready, and those that stay ready in any case.
const READY_WANTED: usize = 2;
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
    assert!(medium.taken_segments() <= used(store) + READY_WANTED, "bulk load prepares nothing");
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
