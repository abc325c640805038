//! Tag bits that the index loses while it grows come back from the summaries.

use crate::common::{Store, fresh, small_settings};
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_engine::{Write, WriteKind};
use tierstone_logstore::PutOff;
use tierstone_media::Wait;

#[test]
fn tags_lost_by_growth_are_refreshed_and_every_key_is_still_found() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 24 << 20;
    settings.shard.group_bytes_max = 64 << 10;
    let (_medium, mut store) = fresh(1 << 20, 128, &settings);
    let keyspace = KeyspaceId(1);
    let keys: Vec<String> = (0..600_000).map(|number| format!("k{number}")).collect();
    let mut worst = 0;
    for batch in keys.chunks(500) {
        let writes: Vec<Write<'_>> = batch
            .iter()
            .map(|key| Write {
                key: store.key(keyspace, key.as_bytes()),
                kind: WriteKind::Put { value: key.as_bytes(), expiry_ms: 0, kind: Default::default() },
            })
            .collect();
        store.write(&writes).unwrap();
        worst = worst.max(store.engine.lost_tag_bits());
    }
    assert!(worst >= 4, "the index lost only {worst} bits: the test shows nothing");
    store.sync().unwrap();
    store.settle(50_000);
    let left = store.engine.lost_tag_bits();
    assert!(left < worst, "{left} bits are lost after the refresh, {worst} before");
    for key in keys.iter().step_by(97) {
        let (_, value) = store.get(keyspace, key.as_bytes()).unwrap().unwrap();
        assert_eq!(value, key.as_bytes());
    }
}

/// The most tag bits that were lacking while 200,000 keys were written, and how many a while later.
fn lost_bits(mut write: impl FnMut(&mut Store, &[Write<'_>])) -> (u32, u32) {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 24 << 20;
    settings.shard.group_bytes_max = 64 << 10;
    let (_medium, mut store) = fresh(1 << 20, 64, &settings);
    let keys: Vec<String> = (0..200_000).map(|number| format!("k{number}")).collect();
    let mut worst = 0;
    for some in keys.chunks(200) {
        let kind = WriteKind::Put { value: b"value", expiry_ms: 0, kind: Default::default() };
        let writes: Vec<Write<'_>> =
            some.iter().map(|key| Write { key: store.key(KeyspaceId(1), key.as_bytes()), kind }).collect();
        write(&mut store, &writes);
        store.turn(Wait::Poll);
        worst = worst.max(store.engine.lost_tag_bits());
    }
    store.now.monotonic_us += 1_100_000;
    store.settle(50_000);
    (worst, store.engine.lost_tag_bits())
}

/// Loads `writes`, waiting for what is put off.
fn load(store: &mut Store, mut writes: &[Write<'_>]) {
    while !writes.is_empty() {
        let mut put_off = PutOff::default();
        match store.engine.load(store.now, writes, &mut put_off) {
            Ok(count) => {
                for &number in &put_off.numbers {
                    store.write(&writes[number..=number]).unwrap();
                }
                writes = &writes[count..];
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Retry),
        }
        store.turn(Wait::Poll);
    }
}

#[test]
fn tags_are_completed_after_a_load_rather_than_while_it_goes_on() {
    let (worst, later) = lost_bits(load);
    assert!(worst <= 8 && later < 4, "a load lets {worst} bits be lost, {later} stay so");
    let (otherwise, _) = lost_bits(|store, writes| {
        store.write(writes).unwrap();
    });
    assert!(worst > otherwise, "{otherwise} bits are lost at other writes, {worst} at a load");
}
