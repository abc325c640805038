//! Faults of the device: errors, rot, misdirection, want of space, other formats. Each is told to who
//! asked, the rest is served, and what can go on goes on.

use crate::common::{Store, fresh, medium, open_on, small_settings};
use tierstone_base::{ErrorKind, KeyspaceId, Position, Result};
use tierstone_crash::{Choices, Mutations};
use tierstone_engine::conformance::{self, faults::FaultSettings};
use tierstone_engine::{Admission, Engine, Event, Health, ScanRequest, Write, WriteKind};
use tierstone_logstore::bare::open_bare;
use tierstone_logstore::format::superblock::SLOT_BYTES;
use tierstone_logstore::{OpenReport, OpenSettings};
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, FaultWhen, SimMedium};
use tierstone_media::{BLOCK_BYTES, BlockDevice, Wait};

const SPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT: u64 = 64 << 10;

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at) as u8).collect()
}

/// Settings whose cache holds next to nothing, so that reads go to the device.
fn uncached() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 8 << 10;
    settings
}

/// The same, of a store that is opened whatever is damaged.
fn accepting() -> OpenSettings {
    OpenSettings { loss_accepted: true, ..uncached() }
}

fn get(store: &mut Store, number: u64) -> Result<Option<Vec<u8>>> {
    store.get(SPACE, &key(number)).map(|found| found.map(|(_, value)| value))
}

/// A store of `keys` keys with values of `len` bytes, closed in good order.
fn filled(medium: &SimMedium, settings: &OpenSettings, keys: u64, len: usize) {
    let (mut store, _) = open_on(medium.device(), settings).unwrap();
    for number in 0..keys {
        store.put(SPACE, &key(number), &value(number, len)).unwrap();
        if number % 4 == 0 {
            store.sync().unwrap();
        }
    }
    store.engine.shut();
    while !store.engine.is_shut() {
        store.turn(Wait::One);
    }
}

fn reopened(medium: &SimMedium, settings: &OpenSettings) -> (Store, OpenReport) {
    open_on(medium.power_on_after_loss(), settings).unwrap()
}

/// Where `needle` lies on the medium.
fn find(medium: &SimMedium, needle: &[u8]) -> Vec<u64> {
    let geometry = medium.settings().geometry;
    let bytes = medium.peek(0, geometry.end() as usize);
    let found = bytes.windows(needle.len()).enumerate().filter(|(_, window)| *window == needle);
    found.map(|(at, _)| at as u64).collect()
}

#[test]
fn the_log_store_passes_the_suite_of_faults() {
    let settings = uncached();
    let faults = FaultSettings {
        sim: medium(SEGMENT, 16).settings(),
        keys: 60,
        value_bytes: 700,
        notices_rot: true,
        takes_space: true,
    };
    conformance::faults::all(&faults, &|device, _| open_on(device, &settings).map(|(store, _)| store));
}

#[test]
fn after_a_failed_group_nothing_is_acknowledged_and_reads_go_on() {
    let (medium, mut store) = fresh(SEGMENT, 16, &small_settings());
    store.put(SPACE, b"before", b"1").unwrap();
    store.sync().unwrap();
    medium.inject(Fault::new(FaultTarget::Write, FaultEffect::Fail).when(FaultWhen::Nth(0)));
    let seq = store.put(SPACE, b"lost", b"2").unwrap();
    assert_eq!(store.sync().unwrap_err().kind(), ErrorKind::DeviceFailed);
    assert!(matches!(store.engine.health(), Health::Failed(_)));
    assert!(store.engine.durable_seq() < seq);
    // The device is well again; the shard does not ask it a second time.
    medium.clear_faults();
    assert_eq!(store.put(SPACE, b"after", b"3").unwrap_err().kind(), ErrorKind::DeviceFailed);
    store.settle(50);
    assert!(store.engine.durable_seq() < seq);
    assert_eq!(store.get(SPACE, b"before").unwrap().unwrap().1, b"1");
    let (mut store, _) = reopened(&medium, &small_settings());
    assert_eq!(store.get(SPACE, b"before").unwrap().unwrap().1, b"1");
    store.put(SPACE, b"after", b"3").unwrap();
    store.sync().unwrap();
}

#[test]
fn a_failed_seal_stops_the_shard_too() {
    let settings = small_settings();
    let (medium, mut store) = fresh(SEGMENT, 16, &settings);
    let footer = medium.settings().geometry.segment_bytes - BLOCK_BYTES as u64;
    let first = medium.settings().geometry.segment_offset(0);
    medium.inject(Fault::new(FaultTarget::Write, FaultEffect::Fail).within(first + footer..first + SEGMENT));
    let mut failed = false;
    for number in 0..200 {
        failed |= store.put(SPACE, &key(number), &value(number, 2_000)).is_err();
        store.turn(Wait::One);
    }
    assert!(failed && matches!(store.engine.health(), Health::Failed(_)));
    let durable = store.engine.durable_seq();
    medium.clear_faults();
    let (mut store, _) = reopened(&medium, &settings);
    for number in 0..durable {
        assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 2_000)), "key {number}");
    }
}

#[test]
fn a_rotten_record_is_an_error_and_the_rest_is_served() {
    let settings = uncached();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 60, 700);
    let places = find(&medium, &value(7, 700));
    assert_eq!(places.len(), 1);
    medium.flip_bit(places[0] + 100, 3);
    let (mut store, report) = reopened(&medium, &settings);
    assert!(report.damaged_segments.is_empty(), "nobody has read the record yet");
    let corrupt_before = store.engine.statistics().corrupt_reads;
    assert_eq!(get(&mut store, 7).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(store.engine.statistics().corrupt_reads > corrupt_before);
    for number in (0..60).filter(|&number| number != 7) {
        assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 700)), "key {number}");
    }
    store.put(SPACE, &key(7), b"new").unwrap();
    store.sync().unwrap();
    assert_eq!(get(&mut store, 7).unwrap(), Some(b"new".to_vec()));
    drop(store);
    let (mut store, _) = reopened(&medium, &settings);
    assert_eq!(get(&mut store, 7).unwrap(), Some(b"new".to_vec()));
    assert_eq!(store.scan_all(SPACE, 10).unwrap().len(), 60);
}

#[test]
fn a_rotten_record_can_be_deleted_for_good() {
    let settings = uncached();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 20, 700);
    medium.flip_bit(find(&medium, &value(3, 700))[0], 0);
    let (mut store, _) = reopened(&medium, &settings);
    assert_eq!(get(&mut store, 3).unwrap_err().kind(), ErrorKind::Corrupt);
    store.delete(SPACE, &key(3)).unwrap();
    store.sync().unwrap();
    assert_eq!(get(&mut store, 3).unwrap(), None);
    drop(store);
    let (mut store, _) = reopened(&medium, &settings);
    assert_eq!(get(&mut store, 3).unwrap(), None);
    assert_eq!(store.scan_all(SPACE, 10).unwrap().len(), 19);
}

/// What was written while an old record could not be read stays, when the old one can be read again.
#[test]
fn a_passing_read_error_does_not_bring_old_values_back() {
    let settings = uncached();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 20, 700);
    let (mut store, _) = reopened(&medium, &settings);
    medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    assert_eq!(get(&mut store, 3).unwrap_err().kind(), ErrorKind::Corrupt);
    store.delete(SPACE, &key(3)).unwrap();
    store.put(SPACE, &key(4), b"new").unwrap();
    store.sync().unwrap();
    medium.clear_faults();
    for _ in 0..3 {
        assert_eq!(get(&mut store, 3).unwrap(), None);
        assert_eq!(get(&mut store, 4).unwrap(), Some(b"new".to_vec()));
        for number in 5..20 {
            assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 700)), "key {number}");
        }
        assert_eq!(store.scan_all(SPACE, 10).unwrap().len(), 19);
    }
    assert_eq!(store.engine.len(SPACE), 19);
    // Nor do they come back when their segments are cleaned.
    for round in 0..40u64 {
        for number in 5..20 {
            store.put(SPACE, &key(number), &value(number + round, 700)).unwrap();
        }
    }
    store.settle(500);
    assert_eq!(get(&mut store, 3).unwrap(), None);
    assert_eq!(get(&mut store, 4).unwrap(), Some(b"new".to_vec()));
}

/// A page began to read a record again that could not be read before; its key is overwritten past it.
#[test]
fn a_page_gives_keys_that_are_overwritten_past_a_record_that_becomes_readable() {
    let settings = uncached();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 20, 700);
    let (mut store, _) = reopened(&medium, &settings);
    medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    assert_eq!(get(&mut store, 3).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(get(&mut store, 4).unwrap_err().kind(), ErrorKind::Corrupt);
    medium.clear_faults();
    // Written past before the page begins: the page has the new record, and not the old one.
    store.put(SPACE, &key(4), b"newer").unwrap();
    let token = 1 << 40;
    let request = ScanRequest { token, keyspace: SPACE, cursor: Position(0), count: 1_000, snapshot: None };
    store.engine.scan(store.now, request);
    let overwritten = key(3);
    let kind = WriteKind::Put { value: b"new", expiry_ms: 0, kind: Default::default() };
    let write = Write { key: store.key(SPACE, &overwritten), kind };
    store.engine.write(store.now, &[write]).unwrap();
    let mut events = Vec::new();
    while events.is_empty() {
        let (mut requests, mut completions) = (Vec::new(), Vec::new());
        store.engine.take_requests(&mut requests);
        store.device.submit(&mut requests);
        store.device.complete(Wait::One, &mut completions);
        store.engine.step(store.now, &mut completions, &mut events);
    }
    let Some(Event::Scanned { entries, error: None, next: None, .. }) = events.pop() else {
        panic!("{events:?}")
    };
    let mut keys: Vec<Vec<u8>> = entries.into_iter().map(|entry| entry.key).collect();
    keys.sort();
    let mut expected: Vec<Vec<u8>> = (0..20).map(key).collect();
    expected.sort();
    assert_eq!(keys, expected);
    assert_eq!(get(&mut store, 3).unwrap(), Some(b"new".to_vec()));
    assert_eq!(get(&mut store, 4).unwrap(), Some(b"newer".to_vec()));
}

#[test]
fn a_rotten_summary_is_made_again_from_the_records() {
    let settings = uncached();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 100, 900);
    let geometry = medium.settings().geometry;
    // The summary lies before the footer, in the last block but one of each full segment.
    medium.flip_bit(geometry.segment_offset(0) + SEGMENT - 2 * BLOCK_BYTES as u64 + 5, 1);
    let (mut store, _) = reopened(&medium, &settings);
    for number in 0..100 {
        assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 900)), "key {number}");
    }
}

#[test]
fn a_segment_whose_summary_and_records_are_rotten_is_reported_and_never_freed() {
    let settings = accepting();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 100, 900);
    let geometry = medium.settings().geometry;
    let start = geometry.segment_offset(0);
    medium.flip_bit(start + SEGMENT - 2 * BLOCK_BYTES as u64 + 5, 1);
    medium.flip_bit(start + 2 * BLOCK_BYTES as u64 + 300, 1);
    let before = medium.peek(start, SEGMENT as usize);
    let mut device = medium.power_on_after_loss();
    let mut opened = tierstone_logstore::open(&mut device, &settings).unwrap();
    let hasher = opened.hasher;
    let (shard, report) = opened.plans.pop().unwrap().build(&mut device).unwrap();
    assert_eq!(report.damaged_segments, [0]);
    let mut store = tierstone_engine::harness::Harness::new(shard, device, hasher);
    let mut served = 0;
    for number in 0..100 {
        if let Some(found) = get(&mut store, number).unwrap() {
            assert_eq!(found, value(number, 900));
            served += 1;
        }
    }
    assert!((30..100).contains(&served), "{served} of 100 keys are served");
    for round in 0..30u64 {
        for number in 0..20 {
            store.put(SPACE, &key(number), &value(number + round, 900)).unwrap();
        }
    }
    store.settle(500);
    assert_eq!(medium.peek(start, SEGMENT as usize), before, "the damaged segment was touched");
}

#[test]
fn a_segment_with_a_rotten_header_is_reported_and_never_overwritten() {
    let settings = accepting();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 100, 900);
    let start = medium.settings().geometry.segment_offset(1);
    medium.flip_bit(start + 30, 5);
    let before = medium.peek(start, SEGMENT as usize);
    let (mut store, report) = reopened(&medium, &settings);
    assert_eq!(report.damaged_segments, [1]);
    let served = (0..100).filter(|&number| get(&mut store, number).unwrap().is_some()).count();
    assert!((30..100).contains(&served), "{served} of 100 keys are served");
    for round in 0..30u64 {
        for number in 0..20 {
            store.put(SPACE, &key(number), &value(number + round, 900)).unwrap();
        }
    }
    store.settle(500);
    assert_eq!(medium.peek(start, SEGMENT as usize), before);
}

#[test]
fn a_segment_with_a_rotten_footer_is_walked() {
    let settings = uncached();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 100, 900);
    medium.flip_bit(medium.settings().geometry.segment_offset(1) - BLOCK_BYTES as u64 + 40, 5);
    let (mut store, report) = reopened(&medium, &settings);
    assert_eq!(report.walked_segments, 1);
    for number in 0..100 {
        assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 900)), "key {number}");
    }
}

#[test]
fn a_rotten_group_of_a_segment_that_was_open_is_reported_and_the_groups_after_it_are_served() {
    let settings = accepting();
    let (medium, mut store) = fresh(SEGMENT, 16, &settings);
    for number in 0..8 {
        store.put(SPACE, &key(number), &value(number, 900)).unwrap();
        store.sync().unwrap();
    }
    medium.cut_power();
    medium.flip_bit(find(&medium, &value(2, 900))[0], 5);
    let (mut store, report) = reopened(&medium, &settings);
    assert_eq!(report.damaged_segments, [0]);
    for number in (0..8).filter(|&number| number != 2) {
        assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 900)), "key {number}");
    }
}

#[test]
fn one_rotten_slot_of_the_superblock_is_survived_and_no_opening_number_comes_again() {
    for slot in 0..2 {
        let settings = uncached();
        let medium = medium(SEGMENT, 16);
        filled(&medium, &settings, 20, 700);
        filled(&medium, &settings, 20, 700);
        let open_count = |store: &Store| store.engine.identity().open_count;
        let (store, _) = reopened(&medium, &settings);
        let last = open_count(&store);
        drop(store);
        medium.flip_bit((slot * SLOT_BYTES) as u64 + 60, 2);
        let (mut store, report) = reopened(&medium, &settings);
        assert!(report.damaged_superblock_slot && open_count(&store) > last, "slot {slot}");
        for number in 0..20 {
            assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 700)));
        }
    }
}

#[test]
fn what_the_superblock_says_outlives_either_of_its_slots() {
    for slot in 0..2 {
        for changes in 1..4 {
            let (settings, medium) = (uncached(), medium(SEGMENT, 16));
            let mut store = open_bare(&mut medium.device(), &settings).unwrap();
            for number in 1..=changes {
                let mut changed = store.superblock.superblock.clone();
                changed.next_keyspace = 100 * number;
                store.superblock.write_both(&mut medium.device(), changed).unwrap();
            }
            medium.flip_bit((slot * SLOT_BYTES) as u64 + 60, 2);
            let store = open_bare(&mut medium.device(), &settings).unwrap();
            assert!(store.report.damaged_superblock_slot);
            assert_eq!(store.superblock.superblock.next_keyspace, 100 * changes, "slot {slot}");
        }
    }
}

#[test]
fn two_rotten_slots_are_refused_and_nothing_is_made_new() {
    let settings = uncached();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 20, 700);
    filled(&medium, &settings, 20, 700);
    medium.flip_bit(60, 2);
    medium.flip_bit(SLOT_BYTES as u64 + 60, 2);
    let refused = open_on(medium.power_on_after_loss(), &settings).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
}

/// A group that lands on another one destroys that; neither is taken for the other.
fn misdirected(settings: &OpenSettings) -> [Result<Option<Vec<u8>>>; 2] {
    let (medium, mut store) = fresh(SEGMENT, 16, settings);
    let place = |number: u64| medium.settings().geometry.segment_offset(0) + number * BLOCK_BYTES as u64;
    store.put(SPACE, &key(0), &value(0, 900)).unwrap();
    store.sync().unwrap();
    store.put(SPACE, &key(1), &value(1, 900)).unwrap();
    store.sync().unwrap();
    medium.inject(Fault::new(FaultTarget::Write, FaultEffect::Misdirect { to: place(2) }));
    store.put(SPACE, &key(2), &value(2, 900)).unwrap();
    store.sync().unwrap();
    medium.clear_faults();
    // Pushes the three out of the cache.
    for number in 10..40 {
        store.put(SPACE, &key(number), &value(number, 900)).unwrap();
        store.sync().unwrap();
    }
    assert_eq!(get(&mut store, 0).unwrap(), Some(value(0, 900)));
    [get(&mut store, 1), get(&mut store, 2)]
}

#[test]
fn a_misdirected_group_is_seen_at_both_places() {
    let [hit, missing] = misdirected(&uncached());
    assert_eq!(hit.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// The mutation of the test above: without the place in the checksum, the record that lies in the
/// other's place is taken for a whole one, and the key it belongs to for absent.
#[test]
fn without_the_place_in_the_checksum_a_misdirected_group_is_not_seen() {
    let mutations = Mutations::one("record_without_place");
    let [hit, _] = misdirected(&OpenSettings { mutations, ..uncached() });
    assert_eq!(hit.unwrap(), None, "the mutation 'record_without_place' was not caught");
}

#[test]
fn a_full_store_refuses_puts_serves_reads_takes_deletes_and_goes_on_when_emptied() {
    let settings = uncached();
    let (_medium, mut store) = fresh(SEGMENT, 12, &settings);
    let mut written = 0;
    let refused = loop {
        match store.put(SPACE, &key(written), &value(written, 1_500)) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000, "the store never gets full");
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert!(refused.message().contains("full") && refused.message().contains("delete"), "{refused}");
    store.sync().unwrap();
    for number in 0..written {
        assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 1_500)), "key {number}");
    }
    for number in 0..written / 2 {
        store.delete(SPACE, &key(number)).unwrap();
    }
    store.sync().unwrap();
    store.settle(2_000);
    for number in 0..written / 4 {
        store.put(SPACE, &key(number), b"again").unwrap();
    }
    store.sync().unwrap();
    for number in written / 2..written {
        assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 1_500)), "key {number}");
    }
    assert!(matches!(store.engine.health(), Health::Good));
}

#[test]
fn a_device_without_space_refuses_writes_until_there_is_some() {
    let settings = uncached();
    let (medium, mut store) = fresh(SEGMENT, 16, &settings);
    store.put(SPACE, &key(0), &value(0, 900)).unwrap();
    store.sync().unwrap();
    medium.inject(Fault::new(FaultTarget::Write, FaultEffect::Full));
    let seq = store.put(SPACE, &key(1), &value(1, 900)).unwrap();
    for _ in 0..20 {
        store.turn(Wait::One);
    }
    assert!(store.engine.durable_seq() < seq);
    assert_eq!(store.put(SPACE, &key(2), b"2").unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(get(&mut store, 0).unwrap(), Some(value(0, 900)));
    assert!(matches!(store.engine.health(), Health::Good));
    medium.clear_faults();
    store.sync().unwrap();
    assert!(store.engine.durable_seq() >= seq);
    store.put(SPACE, &key(2), b"2").unwrap();
    store.sync().unwrap();
    drop(store);
    let (mut store, _) = reopened(&medium, &settings);
    assert_eq!(get(&mut store, 1).unwrap(), Some(value(1, 900)));
    assert_eq!(get(&mut store, 2).unwrap(), Some(b"2".to_vec()));
}

/// Writes more than the write buffer may hold before the device says that it takes none, or has failed.
fn over_the_write_buffer(effect: FaultEffect) -> (SimMedium, Store) {
    let mut settings = uncached();
    settings.shard.write_buffer_bytes_max = 64 << 10;
    let (medium, mut store) = fresh(SEGMENT, 32, &settings);
    store.put(SPACE, &key(0), &value(0, 900)).unwrap();
    store.sync().unwrap();
    medium.inject(Fault::new(FaultTarget::Write, effect));
    for number in 1..200 {
        let (key, value) = (key(number), value(number, 900));
        let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
        let writes = [Write { key: store.key(SPACE, &key), kind }];
        if store.engine.write(store.now, &writes).is_err() {
            break;
        }
    }
    assert_eq!(store.engine.admission(), Admission::Throttled, "{effect:?}");
    (medium, store)
}

#[test]
fn a_full_write_buffer_keeps_nobody_out_while_the_device_takes_nothing() {
    for (effect, kind) in
        [(FaultEffect::Full, ErrorKind::NoSpace), (FaultEffect::Fail, ErrorKind::DeviceFailed)]
    {
        let (medium, mut store) = over_the_write_buffer(effect);
        for _ in 0..20 {
            store.turn(Wait::One);
        }
        assert_eq!(store.engine.admission(), Admission::Open, "{effect:?}");
        assert_eq!(get(&mut store, 0).unwrap(), Some(value(0, 900)));
        assert_eq!(store.put(SPACE, &key(500), b"2").unwrap_err().kind(), kind);
        medium.clear_faults();
        if effect == FaultEffect::Full {
            store.sync().unwrap();
            store.put(SPACE, &key(500), b"2").unwrap();
        }
    }
}

/// Fewer segments than the geometry names: what a file system that fills up looks like.
#[test]
fn a_device_that_fills_up_loses_nothing_and_goes_on() {
    let settings = uncached();
    let (medium, mut store) = fresh(SEGMENT, 40, &settings);
    medium.set_capacity_segments(6);
    let mut acknowledged = Vec::new();
    for number in 0..400 {
        if store.put(SPACE, &key(number), &value(number, 1_500)).is_err() {
            break;
        }
        for _ in 0..3 {
            store.turn(Wait::One);
        }
        acknowledged.push((number, store.engine.applied_seq()));
    }
    assert!(acknowledged.len() < 400, "the device never filled up");
    let durable = store.engine.durable_seq();
    assert!(matches!(store.engine.health(), Health::Good));
    medium.set_capacity_segments(40);
    store.sync().unwrap();
    for number in 400..420 {
        store.put(SPACE, &key(number), b"more").unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let (mut store, _) = reopened(&medium, &settings);
    for (number, seq) in acknowledged {
        assert_eq!(get(&mut store, number).unwrap(), Some(value(number, 1_500)), "{seq} of {durable}");
    }
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let settings = uncached();
    let medium = medium(SEGMENT, 16);
    filled(&medium, &settings, 5, 100);
    medium.overwrite(8, &7u32.to_le_bytes());
    let refused = open_on(medium.power_on_after_loss(), &settings).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.message().contains('7'), "{refused}");
}

#[test]
fn new_keys_are_refused_when_the_index_is_full_and_the_rest_goes_on() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 3 << 20;
    settings.shard.index_fraction = 0.4;
    let (_medium, mut store) = fresh(1 << 20, 60, &settings);
    let mut written = 0;
    let refused = loop {
        match store.put(SPACE, &key(written), b"v") {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 2_000_000, "the index never gets full");
    };
    assert_eq!(refused.kind(), ErrorKind::NoMemory);
    assert!(refused.message().contains("memory"), "{refused}");
    assert!(store.engine.statistics().index_bytes <= 3 << 20);
    store.put(SPACE, &key(5), b"other").unwrap();
    store.delete(SPACE, &key(6)).unwrap();
    store.sync().unwrap();
    assert_eq!(get(&mut store, 5).unwrap(), Some(b"other".to_vec()));
    assert_eq!(get(&mut store, 6).unwrap(), None);
    assert_eq!(get(&mut store, 7).unwrap(), Some(b"v".to_vec()));
}

/// Random read errors and rot of nothing: the store answers right or with an error, and is right again
/// when the device is.
#[test]
fn read_errors_at_random_never_give_wrong_answers() {
    for seed in 0..20 {
        let settings = uncached();
        let choices = Choices::random(seed);
        let medium = SimMedium::new(medium(SEGMENT, 24).settings(), &choices);
        filled(&medium, &settings, 40, 700);
        let (mut store, _) = open_on(medium.device(), &settings).unwrap();
        medium.inject(
            Fault::new(FaultTarget::Read, FaultEffect::Fail)
                .when(FaultWhen::Chosen { one_in: 4, limit: 1_000 }),
        );
        let mut random = tierstone_base::SeededRandom::new(seed);
        let mut model: Vec<Option<Vec<u8>>> = (0..40).map(|number| Some(value(number, 700))).collect();
        for _ in 0..600 {
            let number = random.below(40);
            let held = &mut model[number as usize];
            match random.below(10) {
                0..3 => {
                    let new = value(random.below(250), 100 + random.below(900) as usize);
                    if store.put(SPACE, &key(number), &new).is_ok() {
                        *held = Some(new);
                    }
                }
                3 => {
                    if store.delete(SPACE, &key(number)).is_ok() {
                        *held = None;
                    }
                }
                _ => {
                    if let Ok(found) = get(&mut store, number) {
                        assert_eq!(found, *held, "seed {seed}, key {number}");
                    }
                }
            }
        }
        medium.clear_faults();
        store.settle(200);
        for (number, held) in (0..).zip(&model) {
            assert_eq!(&get(&mut store, number).unwrap(), held, "seed {seed}, key {number}, well again");
        }
        store.sync().unwrap();
        drop(store);
        let (mut store, _) = reopened(&medium, &settings);
        for (number, held) in (0..).zip(&model) {
            assert_eq!(&get(&mut store, number).unwrap(), held, "seed {seed}, key {number}, reopened");
        }
    }
}
