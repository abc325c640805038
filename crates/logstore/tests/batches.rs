//! Batches over the shards of one store: what a clean end, a kill and a check make of them.

use crate::common;
use crate::common::{Store, medium, small_settings};
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_crash::Choices;
use tierstone_engine::harness::Harness;
use tierstone_engine::{BatchTicket, Engine, Write, WriteKind};
use tierstone_logstore::check::{CheckReport, CheckSettings, check, salvage};
use tierstone_logstore::format::segment::{HeaderFound, SegmentFooter, SegmentHeader, SegmentState};
use tierstone_logstore::{OpenReport, OpenSettings};
use tierstone_media::sim::{SimDevice, SimMedium};
use tierstone_media::{BLOCK_BYTES, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn open(mut device: SimDevice, medium: &SimMedium) -> (Vec<Store>, OpenReport) {
    let settings = OpenSettings { shard_count: 2, ..small_settings() };
    let opened = tierstone_logstore::open(&mut device, &settings).unwrap();
    let shards = opened.plans.into_iter().map(|plan| {
        let mut device = medium.device();
        let (shard, _) = plan.build(&mut device).unwrap();
        Harness::new(shard, device, opened.hasher)
    });
    (shards.collect(), opened.report)
}

/// A key of the shard with this number.
fn key_of(shard: usize, store: &Store, name: &str) -> Vec<u8> {
    let mut keys = (0..).map(|number| format!("{name}{number}").into_bytes());
    let is_its = |key: &Vec<u8>| usize::from(store.key(KEYSPACE, key).position.shard(2)) == shard;
    keys.find(is_its).unwrap()
}

fn write_part(
    stores: &mut [Store],
    shard: usize,
    name: &str,
    value: &[u8],
    batch: &Arc<BatchTicket>,
) -> Vec<u8> {
    let store = &mut stores[shard];
    let key = key_of(shard, store, name);
    let kind = WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
    store.write_part(&[Write { key: store.key(KEYSPACE, &key), kind }], batch).unwrap();
    key
}

fn value(stores: &mut [Store], shard: usize, key: &[u8]) -> Option<Vec<u8>> {
    stores[shard].get(KEYSPACE, key).unwrap().map(|(_, value)| value)
}

fn checked(medium: &SimMedium) -> CheckReport {
    check(&mut medium.device(), &CheckSettings::default(), &mut |_| {}).unwrap()
}

#[test]
fn a_part_whose_sibling_was_lost_is_void_to_the_check_and_to_recovery() {
    let medium = medium(128 << 10, 16);
    let (mut stores, _) = open(medium.device(), &medium);
    let key = key_of(0, &stores[0], "a");
    stores[0].put(KEYSPACE, &key, b"old").unwrap();
    let whole = BatchTicket::new(1, 2);
    let pair = [0, 1].map(|shard| write_part(&mut stores, shard, "whole", b"both", &whole));
    stores.iter_mut().for_each(|store| store.sync().unwrap());
    let torn = BatchTicket::new(2, 2);
    assert_eq!(write_part(&mut stores, 0, "a", b"new", &torn), key);
    let lost = write_part(&mut stores, 1, "lost", b"new", &torn);
    // What follows the part in its log stays.
    let after = key_of(0, &stores[0], "after");
    stores[0].put(KEYSPACE, &after, b"after").unwrap();
    stores[0].sync().unwrap();
    assert!(whole.is_decided() && !torn.is_decided());
    drop(stores);

    let report = checked(&medium);
    assert!(!report.is_damaged(), "{report:?}");
    assert_eq!((report.live_keys, report.void_records), (4, 1), "{report:?}");
    for walked in [2, 0] {
        let (mut stores, report) = open(medium.kill_process(), &medium);
        assert_eq!((report.walked_segments, report.dropped_records), (walked, u64::from(walked > 0)));
        assert_eq!(value(&mut stores, 0, &key).unwrap(), b"old");
        assert_eq!(value(&mut stores, 1, &lost), None);
        assert_eq!(value(&mut stores, 0, &after).unwrap(), b"after");
        for (shard, key) in pair.iter().enumerate() {
            assert_eq!(value(&mut stores, shard, key).unwrap(), b"both");
        }
        drop(stores);
        let report = checked(&medium);
        assert!(!report.is_damaged(), "{report:?}");
        assert_eq!((report.live_keys, report.void_records), (4, 1), "{report:?}");
    }
}

#[test]
fn shards_that_end_wait_for_each_other_and_seal_everything() {
    let medium = medium(128 << 10, 16);
    let (mut stores, _) = open(medium.device(), &medium);
    let batch = BatchTicket::new(1, 2);
    let keys = [0, 1].map(|shard| write_part(&mut stores, shard, "k", b"value", &batch));
    stores[0].engine.shut();
    stores[0].settle(50);
    assert!(!stores[0].engine.is_shut(), "sealed although the other part is not durable");
    stores[1].engine.shut();
    for _ in 0..100 {
        stores.iter_mut().for_each(|store| store.turn(Wait::Poll));
        stores.iter_mut().for_each(|store| store.turn(Wait::One));
    }
    assert!(stores.iter().all(|store| store.engine.is_shut()));
    assert!(batch.is_marked());
    drop(stores);
    let (mut stores, report) = open(medium.device(), &medium);
    assert_eq!(report.walked_segments, 0);
    for (shard, key) in keys.iter().enumerate() {
        assert_eq!(value(&mut stores, shard, key).unwrap(), b"value");
    }
}

#[test]
fn a_silent_log_says_what_it_knows_after_a_while_with_one_group() {
    let medium = medium(128 << 10, 16);
    let (mut stores, _) = open(medium.device(), &medium);
    let batch = BatchTicket::new(1, 2);
    for shard in 0..2 {
        write_part(&mut stores, shard, "k", b"value", &batch);
    }
    stores.iter_mut().for_each(|store| store.sync().unwrap());
    for _ in 0..3 {
        for store in &mut stores {
            if let Some(at_us) = store.engine.next_step_at_us() {
                store.now.monotonic_us = store.now.monotonic_us.max(at_us);
            }
            store.settle(50);
        }
    }
    assert!(batch.is_marked());
    for store in &mut stores {
        store.turn(Wait::Poll);
        assert_eq!(store.engine.next_step_at_us(), None, "nothing is left to be waited for");
        assert_eq!(store.engine.statistics().groups, 2);
    }
}

#[test]
fn a_shard_stops_when_one_that_has_a_part_has_gone() {
    let medium = medium(128 << 10, 16);
    let (mut stores, _) = open(medium.device(), &medium);
    let batch = BatchTicket::new(1, 2);
    for shard in 0..2 {
        write_part(&mut stores, shard, "k", b"value", &batch);
    }
    drop(stores.pop());
    stores[0].turn(Wait::Poll);
    let error = stores[0].put(KEYSPACE, b"k", b"v").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFailed);
}

#[test]
fn the_delete_of_the_empty_key_survives_as_the_last_record_of_its_log() {
    let medium = medium(128 << 10, 16);
    let settings = small_settings();
    let (mut store, _) = common::open_on(medium.device(), &settings).unwrap();
    store.put(KEYSPACE, b"", b"value").unwrap();
    store.sync().unwrap();
    store.delete(KEYSPACE, b"").unwrap();
    store.sync().unwrap();
    let mut store = common::reopen_after_kill(store, &medium, &settings);
    assert!(store.get(KEYSPACE, b"").unwrap().is_none());
}

#[test]
fn no_record_of_a_batch_is_durable_before_its_last() {
    let medium = medium(256 << 10, 16);
    // One group after the other, so that the first is durable long before the last.
    let (mut store, _) = {
        let mut settings = small_settings();
        settings.shard.overlap_bytes = 1 << 20;
        common::open_on(medium.device(), &settings).unwrap()
    };
    let before = store.put(KEYSPACE, b"before", b"value").unwrap();
    let value = vec![b'x'; 12 << 10];
    let keys: Vec<Vec<u8>> = (0..8).map(|number| format!("key{number}").into_bytes()).collect();
    let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
    let writes: Vec<Write<'_>> =
        keys.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
    let last = store.write(&writes).unwrap();
    assert!(last >= before + 8);
    let (mut turns, mut groups) = (0, 0);
    while store.engine.durable_seq() < last {
        store.turn(Wait::One);
        let durable = store.engine.durable_seq();
        assert!(durable <= before || durable >= last, "{durable} is durable, the batch is {before}..={last}");
        groups = groups.max(store.engine.statistics().groups);
        turns += 1;
        assert!(turns < 10_000, "the batch never becomes durable");
    }
    assert!(groups >= 4, "the batch took several groups: {groups}");
}

/// Turns of both shards until the first of them takes `writes` as a part.
fn admitted(store: &mut Store, other: &mut Store, writes: &[Write<'_>]) {
    for _ in 0..20_000 {
        match store.engine.admit(store.now, writes) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::Retry => {}
            Err(error) => panic!("{error}"),
        }
        for store in [&mut *store, &mut *other] {
            store.turn(Wait::One);
            let due_us = store.engine.next_step_at_us().unwrap_or(0);
            store.now.monotonic_us = store.now.monotonic_us.max(due_us);
        }
    }
    panic!("the shard is busy for ever")
}

#[test]
fn a_part_that_was_admitted_is_taken_whatever_the_others_have_written_since() {
    const KEYS: usize = 360;
    let medium = medium(128 << 10, 64);
    let (mut stores, _) = open(medium.device(), &medium);
    let value = [7; 4_000];
    let keys: Vec<Vec<Vec<u8>>> = [0, 1]
        .map(|shard| (0..KEYS).map(|number| key_of(shard, &stores[shard], &format!("{number} "))).collect())
        .into();
    let mut random = SeededRandom::new(31);
    for number in 0..1_500 {
        let some: Vec<[usize; 2]> =
            (0..6).map(|_| [0; 2].map(|_| random.below(KEYS as u64) as usize)).collect();
        let part = |store: &Store, shard: usize| -> Vec<Write<'_>> {
            let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
            let write = |of: &[usize; 2]| Write { key: store.key(KEYSPACE, &keys[shard][of[shard]]), kind };
            some.iter().map(write).collect()
        };
        let batch = BatchTicket::new(number + 1, 2);
        let [first, second] = &mut stores[..] else { panic!("two shards") };
        let writes = part(first, 0);
        admitted(first, second, &writes);
        // The other has its way meanwhile, with what is free for both, until it has to wait.
        let others = part(second, 1);
        for write in &others {
            if second.engine.write(second.now, &[*write]).is_err() {
                second.turn(Wait::One);
            }
        }
        let taken = first.engine.write_part(first.now, &writes, &batch);
        assert!(taken.is_ok(), "batch {number}: {}", taken.unwrap_err());
        admitted(second, first, &others);
        second.engine.write_part(second.now, &others, &batch).unwrap();
        [first, second].into_iter().for_each(|store| store.turn(Wait::One));
    }
    let cleaned = stores.iter().map(|store| store.engine.statistics().cleaned_bytes_written);
    assert!(cleaned.min() > Some(0), "nothing was cleaned");
}

/// A store of one segment that recovery has sealed, whose log ended within a batch of keys of three bytes; with the footer.
fn sealed_within_a_batch() -> (SimMedium, u64, SegmentFooter) {
    let medium = medium(256 << 10, 16);
    let mut settings = small_settings();
    settings.shard.overlap_bytes = 1 << 20;
    let (mut store, _) = common::open_on(medium.device(), &settings).unwrap();
    for number in 0..20u32 {
        store.put(KEYSPACE, &number.to_le_bytes(), &[7; 300]).unwrap();
    }
    store.sync().unwrap();
    let keys: Vec<Vec<u8>> = (100..160).map(|number| number.to_string().into_bytes()).collect();
    let kind = WriteKind::Put { value: &[9; 2_000], expiry_ms: 0, kind: Default::default() };
    let writes: Vec<Write<'_>> =
        keys.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
    store.write(&writes).unwrap();
    let copy = (0..100).find_map(|_| {
        store.turn(Wait::One);
        let copy = medium.crashed_copy(&Choices::quiet());
        let (_, report) = common::open_on(copy.device(), &settings).unwrap();
        (report.dropped_records > 2).then_some(copy)
    });
    let copy = copy.expect("a crash in the batch");
    let geometry = copy.settings().geometry;
    let is_log = |segment: &u32| {
        let block = copy.peek(geometry.segment_offset(*segment), BLOCK_BYTES);
        matches!(SegmentHeader::decode(&block), HeaderFound::Whole(header) if header.state == SegmentState::Log)
    };
    let segment = (0..16).find(is_log).unwrap();
    let block = copy.peek(geometry.segment_offset(segment + 1) - BLOCK_BYTES as u64, BLOCK_BYTES);
    let generation = u64::from_le_bytes(block[24..32].try_into().unwrap());
    let footer = SegmentFooter::decode(&block, generation).unwrap();
    assert_eq!(footer.records, 20);
    (copy, geometry.segment_offset(segment), footer)
}

#[test]
fn the_end_of_a_batch_that_was_dropped_is_not_saved_from_a_damaged_segment() {
    let (medium, at, footer) = sealed_within_a_batch();
    let summary = at + u64::from(footer.summary_start) + 7;
    for (what, damaged) in [("summary", summary), ("header", at + 33)] {
        let copy = medium.crashed_copy(&Choices::quiet());
        copy.flip_bit(damaged, 2);
        // And the first record, so that what is whole is less than the segment had.
        copy.flip_bit(at + (BLOCK_BYTES + 64 + 100) as u64, 0);
        let mut saved = Vec::new();
        let report = salvage(&mut copy.device(), &CheckSettings::default(), &mut |_| {}, &mut |record| {
            saved.push(record.key.to_vec());
            Ok(())
        });
        assert_eq!(report.unwrap().lost_records, 20, "{what}");
        assert!(saved.len() == 19 && saved.iter().all(|key| key.len() == 4), "{what}: {saved:?}");
    }
}
