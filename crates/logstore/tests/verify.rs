//! A shard verifies itself while it serves: it finds what is damaged, and only that.

use crate::common::{Store, flip_bit, fresh, geometry, read, reopen, small_settings};
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_engine::{Engine, Verification};
use tierstone_media::{BLOCK_BYTES, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT_BYTES: u64 = 64 << 10;

fn key(number: u64) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// Values, overwritten and deleted ones among them.
fn filled(store: &mut Store, keys: u64) {
    for number in 0..keys {
        store.put(KEYSPACE, &key(number), &[number as u8; 700]).unwrap();
    }
    for number in (0..keys).step_by(5) {
        store.put(KEYSPACE, &key(number), &[1; 300]).unwrap();
    }
    for number in (0..keys).step_by(7) {
        store.delete(KEYSPACE, &key(number)).unwrap();
    }
    store.sync().unwrap();
}

/// Verifies, with `between` before each step.
fn verified(store: &mut Store, mut between: impl FnMut(&mut Store)) -> Verification {
    store.engine.begin_verification().unwrap();
    for _ in 0..100_000 {
        if !store.engine.verification().unwrap().is_running {
            return store.engine.verification().unwrap().clone();
        }
        between(store);
        store.turn(Wait::One);
    }
    panic!("the verification does not end: {:?}", store.engine.verification());
}

#[test]
fn a_whole_shard_is_found_whole() {
    let (medium, mut store) = fresh(SEGMENT_BYTES, 40, &small_settings());
    filled(&mut store, 300);
    let report = verified(&mut store, |_| {});
    assert!(!report.is_damaged() && report.unjudged_records == 0, "{report:?}");
    assert_eq!(report.live_records, store.engine.len(KEYSPACE));
    assert_eq!(report.index_entries, store.engine.len(KEYSPACE));
    assert!(report.records > report.live_records && report.segments > 3, "{report:?}");
    let mut store = reopen(store, &medium, &small_settings());
    let again = verified(&mut store, |_| {});
    assert!(!again.is_damaged(), "{again:?}");
    assert_eq!(again.live_records, report.live_records);
}

#[test]
fn writes_and_cleaning_meanwhile_are_no_damage() {
    let mut seeds = SeededRandom::new(5);
    let mut moved = 0;
    for _ in 0..6 {
        let seed = seeds.next_u64();
        let mut random = SeededRandom::new(seed);
        let (_medium, mut store) = fresh(SEGMENT_BYTES, 12, &small_settings());
        filled(&mut store, 200);
        for _ in 0..4 {
            let report = verified(&mut store, |store| {
                let number = random.below(260);
                match random.below(3) {
                    0 => drop(store.delete(KEYSPACE, &key(number)).unwrap()),
                    1 => drop(store.put(KEYSPACE, &key(number), &[2; 900]).unwrap()),
                    _ => {}
                }
            });
            assert!(!report.is_damaged(), "seed {seed}: {report:?}");
            moved += report.moved_segments;
        }
    }
    assert!(moved > 0, "nothing was cleaned, the test shows little");
}

#[test]
fn a_rotten_record_is_found_where_it_lies() {
    let (medium, mut store) = fresh(SEGMENT_BYTES, 40, &small_settings());
    filled(&mut store, 200);
    assert!(!verified(&mut store, |_| {}).is_damaged());
    let mut device = medium.device();
    let value = [3; 700];
    let bytes = read(&mut device, 0, geometry(SEGMENT_BYTES, 40).end() as usize);
    let place = bytes.windows(700).position(|window| window == value).unwrap();
    flip_bit(&mut device, place as u64 + 350, 3);
    let report = verified(&mut store, |_| {});
    assert_eq!(report.damage.get("record"), Some(&1), "{report:?}");
    assert_eq!((report.damage.len(), report.lost_keys), (1, 1), "{report:?}");
    let segment = (place as u64 - geometry(SEGMENT_BYTES, 40).meta_bytes) / SEGMENT_BYTES;
    assert!(report.findings[0].starts_with(&format!("segment {segment}, unit ")), "{report:?}");
}

#[test]
fn rot_in_a_version_that_was_replaced_costs_no_key() {
    let (medium, mut store) = fresh(SEGMENT_BYTES, 40, &small_settings());
    filled(&mut store, 200);
    let mut device = medium.device();
    // Key 5 was overwritten.
    let bytes = read(&mut device, 0, geometry(SEGMENT_BYTES, 40).end() as usize);
    let place = bytes.windows(700).position(|window| window == [5; 700]).unwrap();
    flip_bit(&mut device, place as u64 + 1, 0);
    let report = verified(&mut store, |_| {});
    assert_eq!((report.damage.get("record"), report.lost_keys), (Some(&1), 0), "{report:?}");
}

#[test]
fn a_rotten_summary_is_found_although_its_records_are_served() {
    let (medium, mut store) = fresh(SEGMENT_BYTES, 40, &small_settings());
    filled(&mut store, 200);
    let before = verified(&mut store, |_| {});
    let mut device = medium.device();
    // The summary lies before the footer, in the last block but one.
    let end = geometry(SEGMENT_BYTES, 40).segment_offset(0) + SEGMENT_BYTES;
    let block = end - 2 * BLOCK_BYTES as u64;
    let bytes = read(&mut device, block, BLOCK_BYTES);
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    flip_bit(&mut device, block + used as u64, 1);
    let report = verified(&mut store, |_| {});
    assert_eq!((report.damage.get("summary"), report.lost_keys), (Some(&1), 0), "{report:?}");
    assert!(report.records < before.records);
}

#[test]
fn one_verification_is_under_way_at_a_time_and_closing_ends_it() {
    let (medium, mut store) = fresh(SEGMENT_BYTES, 40, &small_settings());
    assert!(store.engine.verification().is_none());
    filled(&mut store, 100);
    store.engine.begin_verification().unwrap();
    let error = store.engine.begin_verification().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    for _ in 0..3 {
        store.turn(Wait::One);
    }
    let mut store = reopen(store, &medium, &small_settings());
    store.engine.shut();
    assert_eq!(store.engine.begin_verification().unwrap_err().kind(), ErrorKind::Busy);
}
