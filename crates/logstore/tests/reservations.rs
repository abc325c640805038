//! Writes whose old records are on the device, with a cache that holds next to nothing: whoever comes
//! again finds its records still there, and somebody always goes on.

use crate::common::{Store, medium, open_on, small_settings};
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;
use tierstone_media::sim::SimMedium;

const SPACE: KeyspaceId = KeyspaceId(1);

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// A store of `keys` keys just opened: all their records are on the device only.
fn opened(settings: &OpenSettings, keys: u64) -> (SimMedium, Store) {
    let medium = medium(64 << 10, 40);
    let (mut store, _) = open_on(medium.device(), settings).unwrap();
    for number in 0..keys {
        store.put(SPACE, &key(number), &[7; 900]).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let (store, _) = open_on(medium.power_on_after_loss(), settings).unwrap();
    (medium, store)
}

fn uncached() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 8 << 10;
    settings
}

/// What comes again once in so many steps, as a thread with much else to do would.
const STEPS_BETWEEN: usize = 60;

#[test]
fn a_batch_of_keys_at_one_position_finds_all_its_old_records() {
    let mut settings = uncached();
    settings.weak_hash_bits = Some(0);
    let (_medium, mut store) = opened(&settings, 60);
    let keys: Vec<Vec<u8>> = (0..60).map(key).collect();
    let put = WriteKind::Put { value: b"new", expiry_ms: 0, kind: Default::default() };
    let writes: Vec<Write<'_>> =
        keys.iter().map(|bytes| Write { key: store.key(SPACE, bytes), kind: put }).collect();
    let mut attempts = 0;
    while let Err(error) = store.engine.write(store.now, &writes) {
        assert_eq!(error.kind(), ErrorKind::Retry);
        attempts += 1;
        assert!(attempts < 10, "the batch waits for ever");
        (0..STEPS_BETWEEN).for_each(|_| store.turn(Wait::One));
    }
    for bytes in &keys {
        assert_eq!(store.get(SPACE, bytes).unwrap().unwrap().1, b"new");
    }
    assert_eq!(store.engine.len(SPACE), 60);
}

#[test]
fn a_batch_that_comes_again_while_it_waits_for_reads_is_refused_without_a_search() {
    let (_medium, mut store) = opened(&uncached(), 40);
    let keys: Vec<Vec<u8>> = (0..40).map(key).collect();
    let put = WriteKind::Put { value: b"new", expiry_ms: 0, kind: Default::default() };
    let writes: Vec<Write<'_>> =
        keys.iter().map(|bytes| Write { key: store.key(SPACE, bytes), kind: put }).collect();
    let mut refused = Vec::new();
    while let Err(error) = store.engine.write(store.now, &writes) {
        refused.push(error.to_string());
        assert!(refused.len() < 1_000, "the batch waits for ever");
        store.turn(Wait::One);
    }
    // What a search says comes once: before the reads were asked for.
    let searches = refused.iter().filter(|text| text.contains("must be read first")).count();
    let waits = refused.iter().filter(|text| text.contains("are being read")).count();
    assert!(searches == 1 && waits > 1 && waits + searches == refused.len(), "{refused:?}");
    for bytes in &keys {
        assert_eq!(store.get(SPACE, bytes).unwrap().unwrap().1, b"new");
    }
}

#[test]
fn more_overwrites_at_once_than_places_all_come_through() {
    const KEYS: u64 = 300;
    let mut settings = uncached();
    settings.shard.reads_in_flight_max = 16;
    let (_medium, mut store) = opened(&settings, KEYS);
    let mut waiting: Vec<u64> = (0..KEYS).collect();
    let mut rounds = 0;
    while !waiting.is_empty() {
        rounds += 1;
        assert!(rounds < 200, "{} overwrites wait for ever", waiting.len());
        let before = waiting.len();
        waiting.retain(|number| {
            let bytes = key(*number);
            let kind = WriteKind::Put { value: b"new", expiry_ms: 0, kind: Default::default() };
            let write = Write { key: store.key(SPACE, &bytes), kind };
            store.engine.write(store.now, &[write]).is_err()
        });
        assert!(rounds == 1 || waiting.len() < before, "round {rounds}: nobody went on");
        (0..STEPS_BETWEEN).for_each(|_| store.turn(Wait::One));
    }
    for number in 0..KEYS {
        assert_eq!(store.get(SPACE, &key(number)).unwrap().unwrap().1, b"new");
    }
}

#[test]
fn what_nobody_comes_for_is_given_back() {
    let (_medium, mut store) = opened(&uncached(), 40);
    for number in 0..40 {
        let bytes = key(number);
        let kind = WriteKind::Put { value: b"new", expiry_ms: 0, kind: Default::default() };
        let write = Write { key: store.key(SPACE, &bytes), kind };
        assert_eq!(store.engine.write(store.now, &[write]).unwrap_err().kind(), ErrorKind::Retry);
    }
    (0..200).for_each(|_| store.turn(Wait::One));
    let held = store.engine.statistics().buffer_bytes;
    assert!(held >= 40 * 900, "{held} bytes are held");
    store.now.monotonic_us += 1_000_000;
    store.turn(Wait::One);
    store.now.monotonic_us += 1_100_000;
    store.turn(Wait::One);
    assert_eq!(store.engine.statistics().buffer_bytes, 0);
}
