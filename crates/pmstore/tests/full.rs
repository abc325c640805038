//! Full stores, long values, what is refused and with which words.

use crate::common;
use crate::common::{
    Store, flip_bit, fresh, machine, machine_settings, open_all, open_one, reopen, reopen_after_kill,
    small_settings,
};
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_crash::{Choices, Mutations};
use tierstone_engine::conformance::{self, ModelSettings};
use tierstone_engine::{BatchTicket, Durability, Engine, Health, Write, WriteKind};
use tierstone_media::Wait;
use tierstone_media::region::{MappedRegion, Region, RegionSettings, RegionSource};
use tierstone_media::sim::{SimMachineSettings, WordMachine};
use tierstone_pmstore::settings::VALUE_BYTES_MAX;
use tierstone_pmstore::{Geometry, OpenSettings};

const KEYSPACE: KeyspaceId = KeyspaceId(2);

fn name(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u32, len: usize) -> Vec<u8> {
    let word = |at: usize| (u64::from(number) << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len).map(|at| word(at / 8).to_le_bytes()[at % 8]).collect()
}

/// Puts until the store refuses; gives how many it took.
fn fill(store: &mut Store, len: usize) -> u32 {
    for number in 0.. {
        match store.put(KEYSPACE, &name(number), &value(number, len)) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert!(
                    error.message().contains("full") && error.message().contains("delete keys"),
                    "{error}"
                );
                return number;
            }
        }
        assert!(number < 100_000, "the store is never full");
    }
    0
}

fn assert_holds(store: &mut Store, numbers: impl Iterator<Item = u32>, len: usize) {
    for number in numbers {
        let found = store.get(KEYSPACE, &name(number)).unwrap().map(|(_, value)| value);
        assert!(found == Some(value(number, len)), "key {number} is not what was put");
    }
}

/// Where power may take the last half second, what waits for the log to be truncated waits for no more than a fence.
#[test]
fn a_full_store_that_may_lose_its_last_writes_does_not_wait_for_time_to_pass() {
    let mut settings = small_settings();
    settings.shard.durability = Durability::Relaxed;
    let (_region, mut store) = fresh(256 << 10, &settings);
    for number in 0..60 {
        store.put(KEYSPACE, format!("short {number}").as_bytes(), &[1; 100]).unwrap();
    }
    fill(&mut store, 1_500);
    for number in 0..60 {
        store.delete(KEYSPACE, format!("short {number}").as_bytes()).unwrap();
    }
    store.settle(1_000);
    let mut newest = name(0);
    for number in 0..20 {
        // The log names it still, but for the first.
        store.delete(KEYSPACE, &newest).unwrap();
        store.sync().unwrap();
        store.turn(Wait::Poll);
        // Not durable yet, and it replaces nothing.
        store.put(KEYSPACE, format!("other {number}").as_bytes(), b"small").unwrap();
        let since_us = store.now.monotonic_us;
        newest = name(100_000 + number);
        store.put(KEYSPACE, &newest, &value(number, 1_500)).unwrap();
        let us = store.now.monotonic_us - since_us;
        assert!(us < 100_000, "put {number} took {us} microseconds");
        store.settle(3);
    }
}

/// Full, opened again, emptied by deletes, and used again, three times over; with crashes in between.
fn a_full_store_goes_on(len: usize, geometry: Geometry) {
    let settings = OpenSettings { geometry, ..small_settings() };
    let (region, mut store) = fresh(256 << 10, &settings);
    let mut counts = Vec::new();
    for round in 0..3 {
        let count = fill(&mut store, len);
        counts.push(count);
        store.sync().unwrap();
        assert!(matches!(store.engine.health(), Health::Good));
        for _ in 0..3 {
            // Nothing that is durable goes; what recovery needs of space is there.
            let now = store.now;
            drop(store);
            region.cut_power();
            region.power_on_after_loss();
            store = open_one(&region, &settings).0;
            store.now = now;
        }
        assert_holds(&mut store, 0..count, len);
        store = if round == 1 { reopen(store, &region, &settings) } else { store };
        // Overwrites of a full store are refused or taken, and nothing is lost.
        for number in 0..count / 4 {
            match store.put(KEYSPACE, &name(number), &value(number, len)) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace),
            }
        }
        for number in 0..count {
            store.delete(KEYSPACE, &name(number)).unwrap();
        }
        store.sync().unwrap();
        store.settle(2_000);
        store = reopen_after_kill(store, &region, &settings);
        assert_eq!(store.engine.len(KEYSPACE), 0);
    }
    assert!(counts[2] * 10 >= counts[0] * 9, "space is lost from round to round: {counts:?}");
}

#[test]
fn a_full_store_of_short_values_is_emptied_and_used_again() {
    a_full_store_goes_on(200, common::SMALL);
}

#[test]
fn a_full_store_of_tiny_values_is_emptied_and_used_again() {
    a_full_store_goes_on(4, Geometry { segment_bytes: 8 << 10, block_bytes: 2 << 10, log_segments: 3 });
}

#[test]
fn a_full_store_of_long_values_is_emptied_and_used_again() {
    a_full_store_goes_on(3_000, common::SMALL);
    a_full_store_goes_on(20_000, common::SMALL);
}

#[test]
fn one_key_put_and_deleted_for_ever_takes_no_space() {
    let (_region, mut store) = fresh(256 << 10, &small_settings());
    for number in 0..40 {
        store.put(KEYSPACE, &name(number), &value(number, 900)).unwrap();
    }
    for round in 0..6_000 {
        store.put(KEYSPACE, b"key", &value(round, 300)).unwrap();
        store.delete(KEYSPACE, b"key").unwrap();
        if round % 3 == 0 {
            store.turn(Wait::Poll);
        }
    }
    store.sync().unwrap();
    store.settle(2_000);
    assert_holds(&mut store, 0..40, 900);
    let live = store.engine.statistics().space_live_bytes;
    assert!(live < 48 << 10, "{live} bytes are live");
}

/// Keys of short values, every third of which is deleted, so that all segments have blocks in use; then one long value after
/// the other finds segments of its own, and what is short stays.
#[test]
fn segments_with_blocks_in_use_are_emptied_for_long_values() {
    let (region, mut store) = fresh(512 << 10, &small_settings());
    let count = fill(&mut store, 200);
    for number in (0..count).step_by(3) {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    let stays = |number: &u32| !number.is_multiple_of(3);
    let lens = [12_000, 16_000, 3_000, 40_000];
    for (number, len) in (count..).zip(lens) {
        store.put(KEYSPACE, &name(number), &value(number, len)).unwrap();
    }
    store.sync().unwrap();
    assert_holds(&mut store, (0..count).filter(stays), 200);
    store = reopen_after_kill(store, &region, &small_settings());
    assert_holds(&mut store, (0..count).filter(stays), 200);
    for (number, len) in (count..).zip(lens) {
        assert_holds(&mut store, number..=number, len);
    }
    // What does not fit is refused, and nothing is lost by trying.
    let error = store.put(KEYSPACE, b"too long", &value(7, 150_000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_holds(&mut store, (0..count).filter(stays), 200);
    let more = fill(&mut store, 201);
    assert!(more > 20, "{more} records more have room");
}

#[test]
fn dropped_keyspaces_give_their_space_back() {
    let (region, mut store) = fresh(256 << 10, &small_settings());
    let count = fill(&mut store, 400);
    store.engine.drop_keyspace(KEYSPACE);
    store.settle(2_000);
    let other = KeyspaceId(3);
    for number in 0..count * 8 / 10 {
        store.put(other, &name(number), &value(number, 400)).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let keyspaces = common::keyspaces().into_iter().filter(|keyspace| keyspace.id != KEYSPACE).collect();
    let (mut store, _) = open_one(&region, &OpenSettings { keyspaces, ..small_settings() });
    for number in 0..count * 8 / 10 {
        assert!(store.get(other, &name(number)).unwrap().is_some());
    }
    assert_eq!(store.engine.len(KEYSPACE), 0);
}

#[test]
fn values_of_nearly_8_mib_come_back() {
    let longest = VALUE_BYTES_MAX as usize;
    let settings = OpenSettings { geometry: Geometry::default(), ..small_settings() };
    let (region, mut store) = fresh(64 << 20, &settings);
    let lens = [longest, longest - 1, (2 << 20) + 1, 2 << 20, 65_537, 2_049, 2_048];
    for (number, len) in lens.into_iter().enumerate() {
        store.put(KEYSPACE, &name(number as u32), &value(number as u32, len)).unwrap();
    }
    let error = store.put(KEYSPACE, b"longer", &value(0, longest + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = store.put(KEYSPACE, &[1; 1_025], &value(0, longest)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "a longer key takes of the value's room");
    store.sync().unwrap();
    let mut store = reopen_after_kill(store, &region, &settings);
    for (number, len) in lens.into_iter().enumerate() {
        assert_holds(&mut store, std::iter::once(number as u32), len);
    }
}

#[test]
fn the_longest_keys_are_found_and_in_order() {
    let (region, mut store) = fresh(1 << 20, &small_settings());
    let key = |byte: u8| vec![byte; 65_535];
    for byte in [3, 1, 2] {
        store.put(KeyspaceId(1), &key(byte), &[byte; 100]).unwrap();
    }
    store.delete(KeyspaceId(1), &key(2)).unwrap();
    store.sync().unwrap();
    for partial_keys in [false, true] {
        let mut settings = small_settings();
        settings.shard.partial_keys = partial_keys;
        let (mut again, _) = open_one(&region, &settings);
        let all = again
            .range_all(
                KeyspaceId(1),
                std::ops::Bound::Unbounded,
                std::ops::Bound::Unbounded,
                7,
                tierstone_engine::Direction::Backward,
            )
            .unwrap();
        let keys: Vec<_> = all.iter().map(|entry| (entry.key[0], entry.value.len())).collect();
        assert_eq!(keys, [(3, 100), (1, 100)]);
    }
}

#[test]
fn a_mapped_region_passes_the_model_in_place() {
    let region: Arc<MappedRegion> =
        Arc::new(MappedRegion::anonymous(1 << 20, &RegionSettings::default()).unwrap());
    let settings = small_settings();
    let (store, _) = open_one(&region, &settings);
    let model = ModelSettings {
        reopen_every: 300,
        value_bytes: 3_000,
        keys: 80,
        may_lose_snapshots: true,
        ..ModelSettings::default()
    };
    conformance::model(5, model, store, |store| {
        drop(store);
        open_one(&region, &settings).0
    });
    assert_eq!(region.bytes(), 1 << 20);
}

#[test]
fn an_emulated_memory_is_read_in_place_too() {
    let source: RegionSource = "emulated:1MiB:dcpmm".parse().unwrap();
    let region = Arc::new(source.open_or_create(1 << 20, &RegionSettings::default()).unwrap().0);
    let (mut store, _) = open_one(&region, &small_settings());
    for number in 0..60 {
        store.put(KEYSPACE, &name(number), &value(number, 30 * number as usize)).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let (mut store, _) = open_one(&region, &small_settings());
    for number in 0..60 {
        assert_holds(&mut store, std::iter::once(number), 30 * number as usize);
    }
}

#[test]
fn a_failed_fence_ends_what_is_acknowledged() {
    let (region, mut store) = fresh(256 << 10, &small_settings());
    store.put(KEYSPACE, b"key", b"value").unwrap();
    store.sync().unwrap();
    let before = store.engine.durable_seq();
    store.put(KEYSPACE, b"key", b"lost").unwrap();
    region.cut_power();
    assert!(store.sync().is_err());
    assert!(matches!(store.engine.health(), Health::Failed(_)));
    assert_eq!(store.put(KEYSPACE, b"key", b"after").unwrap_err().kind(), ErrorKind::DeviceFailed);
    store.settle(50);
    assert_eq!(store.engine.durable_seq(), before);
    assert!(store.get(KEYSPACE, b"key").unwrap().is_some(), "reads go on");
}

#[test]
fn rot_is_an_error_and_is_counted() {
    let (region, mut store) = fresh(256 << 10, &small_settings());
    store.put(KEYSPACE, b"short", b"a value that is easy to find").unwrap();
    store.put(KEYSPACE, b"long", &[0x5a; 3_000]).unwrap();
    store.put(KEYSPACE, b"well", b"this one").unwrap();
    store.sync().unwrap();
    let image = region.region().image();
    let places = |needle: &[u8]| -> Vec<usize> {
        image.windows(needle.len()).enumerate().filter(|(_, at)| *at == needle).map(|(at, _)| at).collect()
    };
    for (key, needle) in [(&b"short"[..], &b"easy to find"[..]), (b"long", &[0x5a; 64])] {
        let places = places(needle);
        assert!(!places.is_empty());
        places
            .into_iter()
            .step_by(if key == b"long" { 64 } else { 1 })
            .for_each(|at| flip_bit(&region, at + 1, 3));
        let error = store.get(KEYSPACE, key).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    assert!(store.engine.statistics().corrupt_reads > 0);
    assert!(store.get(KEYSPACE, b"well").unwrap().is_some());
}

#[test]
fn a_write_replaces_a_damaged_value_and_refuses_where_the_key_is_damaged() {
    let (region, mut store) = fresh(256 << 10, &small_settings());
    store.put(KEYSPACE, b"one", b"a value that is easy to find").unwrap();
    store.put(KEYSPACE, b"a key easy to find", b"whose").unwrap();
    store.sync().unwrap();
    let image = region.region().image();
    for needle in [&b"value that is easy"[..], b"key easy to find"] {
        let places = image.windows(needle.len()).enumerate().filter(|(_, at)| *at == needle);
        assert!(places.map(|(at, _)| flip_bit(&region, at + 1, 3)).count() > 0);
    }
    assert_eq!(store.get(KEYSPACE, b"one").unwrap_err().kind(), ErrorKind::Corrupt);
    store.put(KEYSPACE, b"one", b"another").unwrap();
    assert_eq!(store.get(KEYSPACE, b"one").unwrap().unwrap().1, b"another");
    // It is not put beside the damaged one.
    let error = store.put(KEYSPACE, b"a key easy to find", b"mine").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(store.engine.len(KEYSPACE), 2);
}

#[test]
fn what_cannot_be_opened_is_refused_with_its_reason() {
    let region = machine(512 << 10);
    let refused = |settings: &OpenSettings, kind: ErrorKind, why: &str| {
        let error = open_all(&region, settings).map(|_| ()).unwrap_err();
        assert!(error.kind() == kind && error.message().contains(why), "{error}");
    };
    refused(&OpenSettings { create: false, ..small_settings() }, ErrorKind::InvalidInput, "no store");
    refused(&OpenSettings { shard_count: 100, ..small_settings() }, ErrorKind::InvalidInput, "fewer shards");
    refused(
        &OpenSettings { base: 512 << 10, ..small_settings() },
        ErrorKind::InvalidInput,
        "inside the region",
    );
    let odd = Geometry { segment_bytes: 10_000, ..common::SMALL };
    refused(&OpenSettings { geometry: odd, ..small_settings() }, ErrorKind::InvalidInput, "powers of two");
    let (mut stores, report, _) =
        open_all(&region, &OpenSettings { shard_count: 2, ..small_settings() }).unwrap();
    assert!(report.created && report.opening == 1);
    stores[0].sync().unwrap();
    refused(&small_settings(), ErrorKind::InvalidInput, "open it with 2");
    flip_bit(&region, 128 + 20, 0);
    refused(&OpenSettings { shard_count: 2, ..small_settings() }, ErrorKind::Corrupt, "damaged");
    flip_bit(&region, 128 + 8, 2);
    refused(&OpenSettings { shard_count: 2, ..small_settings() }, ErrorKind::Incompatible, "version 7");
    flip_bit(&region, 128 + 8, 2);
    flip_bit(&region, 128 + 8, 1);
    refused(&OpenSettings { shard_count: 2, ..small_settings() }, ErrorKind::Corrupt, "damaged");
    flip_bit(&region, 128, 1);
    refused(&small_settings(), ErrorKind::Incompatible, "no store");
}

#[test]
fn a_batch_costs_one_fence() {
    let settings = SimMachineSettings { trace_limit_lines: 1_000, ..machine_settings(512 << 10) };
    let region = WordMachine::new(&settings, &Choices::quiet());
    let mut settings_of_store = small_settings();
    settings_of_store.shard.mark_every_us = 1_000_000;
    let (mut store, _) = open_one(&region, &settings_of_store);
    store.put(KEYSPACE, b"first", b"value").unwrap();
    store.sync().unwrap();
    let fences = || region.trace().lines().filter(|line| *line == "region fence").count();
    let before = fences();
    for number in 0..5u32 {
        store.put(KEYSPACE, &name(number), b"value").unwrap();
    }
    store.turn(Wait::Poll);
    assert_eq!(store.engine.durable_seq(), store.engine.applied_seq());
    assert_eq!(fences() - before, 1);
}

/// A batch that is as long as batches may be, while the log has several segments, but not so many that it is truncated.
fn long_batch(mutations: &Mutations) -> bool {
    let mut settings = small_settings();
    (settings.geometry.log_segments, settings.mutations) = (8, mutations.clone());
    let (_machine, mut store) = fresh(2 << 20, &settings);
    // Three of eight segments.
    for number in 0..130 {
        store.put(KEYSPACE, &name(number), &[1; 200]).unwrap();
    }
    let names: Vec<_> = (0..230).map(name).collect();
    let kind = WriteKind::Put { value: &[2; 200], expiry_ms: 0, kind: Default::default() };
    let writes: Vec<_> = names.iter().map(|name| Write { key: store.key(KEYSPACE, name), kind }).collect();
    (0..500).any(|_| {
        store.turn(Wait::Poll);
        match store.engine.write(store.now, &writes) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::Retry => false,
            Err(error) => panic!("{error}"),
        }
    })
}

/// As a server does it that has hundreds of requests between two steps. The sizes are a sixteenth of the usual ones.
#[test]
fn writes_find_room_however_many_come_between_two_steps() {
    let mut settings = small_settings();
    settings.geometry = Geometry { segment_bytes: 128 << 10, block_bytes: 4 << 10, log_segments: 8 };
    (settings.shard.clean_below_blocks, settings.shard.write_back_step_bytes) = (16, 4 << 10);
    let (_region, mut store) = fresh(4 << 20, &settings);
    let mut random = SeededRandom::new(5);
    for step in 0..600 {
        for _ in 0..80 {
            let (name, value) = (name(random.below(8_000) as u32), value(step, 128));
            let put = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
            let writes = [Write { key: store.key(KEYSPACE, &name), kind: put }];
            if let Err(error) = store.engine.write(store.now, &writes) {
                panic!("step {step}: {error}");
            }
        }
        store.turn(Wait::Poll);
    }
    let cleaned = store.engine.statistics().cleaned_bytes_written;
    assert!(cleaned > 1 << 20, "{cleaned} bytes were moved: space was never short");
}

#[test]
fn a_long_batch_does_not_wait_for_a_long_log() {
    assert!(long_batch(&Mutations::none()));
    assert!(!long_batch(&Mutations::one("long_batch_waits_for_a_long_log")));
}

#[test]
fn shards_and_plans_go_to_other_threads() {
    fn goes<T: Send>(_: Option<T>) -> bool {
        true
    }
    assert!(goes(None::<tierstone_pmstore::PmShard>) && goes(None::<tierstone_pmstore::ShardPlan>));
}

#[test]
fn long_values_of_a_part_that_was_admitted_keep_their_room() {
    const LONG: usize = 3_000;
    let settings = OpenSettings { shard_count: 2, ..small_settings() };
    let (shards, ..) = open_all(&machine(1 << 20), &settings).unwrap();
    let [mut first, mut second]: [Store; 2] = shards.try_into().map_err(|_| "two shards").unwrap();
    let long = value(1, LONG);
    let names = [name(1), name(2)];
    let kind = WriteKind::Put { value: &long, expiry_ms: 0, kind: Default::default() };
    let writes = [0, 1].map(|place| Write { key: first.key(KEYSPACE, &names[place]), kind });
    first.engine.admit(first.now, &writes).unwrap();
    let taken = fill(&mut second, LONG);
    assert!(taken > 10, "{taken} values");
    let batch = BatchTicket::new(1, 2);
    first.engine.write_part(first.now, &writes, &batch).expect("a part that was admitted is taken");
    let gone = name(0);
    let delete = [Write { key: second.key(KEYSPACE, &gone), kind: WriteKind::Delete }];
    second.engine.write_part(second.now, &delete, &batch).unwrap();
    second.sync().unwrap();
    first.sync().unwrap();
    for name in &names {
        assert_eq!(first.get(KEYSPACE, name).unwrap().unwrap().1, long);
    }
    // What is admitted and not written keeps nothing from others beyond the next step.
    let others = [3, 4].map(name);
    let writes = [0, 1].map(|place| Write { key: first.key(KEYSPACE, &others[place]), kind });
    let admitted = (1..20).find_map(|number| {
        let gone = name(number);
        let delete = [Write { key: second.key(KEYSPACE, &gone), kind: WriteKind::Delete }];
        second.engine.write(second.now, &delete).unwrap();
        second.settle(1_000);
        first.engine.admit(first.now, &writes).ok()
    });
    assert!(admitted.is_some(), "deletions give no room");
    first.turn(Wait::One);
    let put = value(2, LONG);
    assert!(second.put(KEYSPACE, b"another", &put).is_ok(), "the room is kept for ever");
}
