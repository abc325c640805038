//! Loads: puts that are applied one by one, beside everything else, through crashes.

use crate::common::lives::{Mix, Plan};
use crate::common::{Store, fresh, mutated, small_settings};
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_crash::{ExploreSettings, sampled_runs, sampled_seed};
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::{OpenSettings, PutOff};
use tierstone_media::Wait;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, SimMedium};

const SPACE: KeyspaceId = KeyspaceId(1);

fn put<'w>(store: &Store, key: &'w [u8], value: &'w [u8]) -> Write<'w> {
    let kind = WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
    Write { key: store.key(SPACE, key), kind }
}

/// Explores `mix`, whose loads meet keys that are there, that were deleted, and that come twice.
#[track_caller]
fn sampled(name: &str, seed: u64, default_runs: u64, plan: &Plan, mix: Mix) {
    for groups in 1..=3 {
        let mut plan = plan.clone().groups_in_flight(groups);
        // A flush for each group, for some, and for none before somebody waits.
        plan.open.shard.lazy_bytes_max = [1, 24 << 10, 1 << 20][groups - 1];
        let runs = sampled_runs(default_runs).div_ceil(3);
        let settings = ExploreSettings::random(sampled_seed(seed + groups as u64), runs);
        let report = plan.explore(settings, &|world, life, choices| mix.work(world, life, choices));
        println!("{name}, {groups} in flight: {}", report.assert_clean());
    }
}

fn loads() -> Mix {
    Mix {
        loads: 40,
        operations: 40,
        keys: 30,
        batches: 20,
        deletes: 30,
        expiring: 5,
        value_bytes_max: 1_200,
        settle_one_in: 12,
        ..Mix::default()
    }
}

#[test]
fn loads_survive_crashes_put_by_put_and_the_last_of_a_key_counts() {
    sampled("loads", 100, 240, &Plan::new(32 << 10, 24), loads());
}

#[test]
fn loads_whose_old_records_lie_on_the_device_keep_their_order() {
    let mut plan = Plan::new(32 << 10, 24).cut_one_in(300);
    plan.open.shard.memory_bytes = 8 << 10;
    sampled("loads past the cache", 200, 120, &plan, loads());
    plan.open.weak_hash_bits = Some(1);
    sampled("loads to equal positions", 300, 120, &plan, loads());
}

#[test]
fn loads_into_a_store_that_is_full_and_cleaned_lose_nothing() {
    let mix = Mix { keys: 14, value_bytes_max: 3_000, operations: 60, ..loads() };
    sampled("loads beside cleaning", 400, 120, &Plan::new(32 << 10, 9).cut_one_in(300), mix);
}

#[test]
fn loads_of_several_shards_and_with_checkpoints_lose_nothing() {
    let mut plan = Plan::new(32 << 10, 40).cut_one_in(200);
    plan.shards = vec![2, 1, 3];
    sampled("loads of shards", 500, 60, &plan, loads());
    sampled(
        "loads and checkpoints",
        600,
        120,
        &Plan::new(32 << 10, 30).cut_one_in(200).checkpoints(),
        loads(),
    );
}

/// The numbers that are put off when an earlier put to the key of number 1 waits.
fn put_off(settings: &OpenSettings) -> Vec<usize> {
    let (_medium, mut store) = fresh(64 << 10, 16, settings);
    let keys = [&b"a"[..], b"b", b"c"];
    let writes: Vec<Write<'_>> = keys.iter().map(|key| put(&store, key, b"new")).collect();
    let mut waiting =
        PutOff { positions: [writes[1].key.position].into_iter().collect(), numbers: Vec::new() };
    assert_eq!(store.engine.load(store.now, &writes, &mut waiting).unwrap(), 3);
    assert_eq!(store.engine.len(SPACE), 3 - waiting.numbers.len() as u64);
    waiting.numbers
}

#[test]
fn a_put_stays_behind_an_earlier_one_of_its_position_that_waits() {
    assert_eq!(put_off(&small_settings()), [1]);
    assert_eq!(put_off(&mutated("load_passes_put_off")), [0; 0], "the rule was seen to be missing");
}

/// Bytes of checkpoints after so many keys of small values, half a second after the last of which.
fn checkpoint_work(mut write: impl FnMut(&mut Store, &[u8])) -> (u64, u64) {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 4 << 20;
    settings.shard.checkpoint_tail_records_min = 1;
    settings.shard.checkpoint_tail_bytes_min = 1;
    settings.shard.checkpoint_tail_records_long = 1;
    settings.shard.checkpoint_tail_per_index = 0;
    let (_medium, mut store) = fresh(256 << 10, 40, &settings);
    for number in 0..2_000u32 {
        write(&mut store, &number.to_be_bytes());
        if number.is_multiple_of(20) {
            store.turn(Wait::Poll);
        }
    }
    let meanwhile = store.engine.checkpoint_work();
    store.now.monotonic_us += 1_100_000;
    store.settle(200);
    (meanwhile, store.engine.checkpoint_work())
}

#[test]
fn no_checkpoint_begins_while_a_load_goes_on_and_one_does_afterwards() {
    let (meanwhile, later) = checkpoint_work(|store, key| {
        let write = put(store, key, b"value");
        assert_eq!(store.engine.load(store.now, &[write], &mut PutOff::default()).unwrap(), 1);
    });
    assert!(meanwhile == 0 && later > 0, "{meanwhile} bytes, then {later}");
    let (meanwhile, _) = checkpoint_work(|store, key| {
        store.put(SPACE, key, b"value").unwrap();
    });
    assert!(meanwhile > 0, "other writes are no reason to wait");
}

#[test]
fn what_a_load_writes_is_not_cached_and_overwrites_what_is() {
    let (_medium, mut store) = fresh(64 << 10, 16, &small_settings());
    store.put(SPACE, b"cached", b"old value").unwrap();
    let before = store.engine.statistics().cache_bytes;
    let writes = [put(&store, b"cached", b"new value"), put(&store, b"new", &[7; 2_000])];
    assert_eq!(store.engine.load(store.now, &writes, &mut PutOff::default()).unwrap(), 2);
    store.sync().unwrap();
    assert_eq!(store.engine.statistics().cache_bytes, before);
    assert_eq!(store.get(SPACE, b"cached").unwrap().unwrap().1, b"new value");
    assert_eq!(store.get(SPACE, b"new").unwrap().unwrap().1, [7; 2_000]);
}

/// A store whose loads are made durable when somebody waits, not before.
fn patient() -> (SimMedium, Store) {
    let mut settings = small_settings();
    settings.shard.lazy_bytes_max = 1 << 20;
    settings.shard.lazy_wait_ms = 1_000_000;
    settings.shard.checkpoint_idle_ms = 1_000_000;
    let (medium, mut store) = fresh(256 << 10, 16, &settings);
    let keys: Vec<[u8; 4]> = (0..40u32).map(u32::to_be_bytes).collect();
    let writes: Vec<Write<'_>> = keys.iter().map(|key| put(&store, key, &[7; 1_000])).collect();
    assert_eq!(store.engine.load(store.now, &writes, &mut PutOff::default()).unwrap(), 40);
    store.settle(100);
    assert!(store.engine.durable_seq() < store.engine.applied_seq(), "nobody waits for it");
    (medium, store)
}

#[test]
fn who_writes_beside_a_load_need_not_wait_until_it_is_flushed_by_itself() {
    let (_medium, mut store) = patient();
    store.put(SPACE, b"other", b"value").unwrap();
    store.settle(100);
    assert_eq!(store.engine.durable_seq(), store.engine.applied_seq());
}

#[test]
fn a_sync_makes_a_load_durable_with_one_flush() {
    let (_medium, mut store) = patient();
    let before = store.engine.statistics().device.flushes;
    store.sync().unwrap();
    assert_eq!(store.engine.durable_seq(), store.engine.applied_seq());
    assert_eq!(store.engine.statistics().device.flushes, before + 1);
}

#[test]
fn what_a_load_has_written_is_read_before_it_is_durable() {
    let (_medium, mut store) = patient();
    let (meta, value) = store.get(SPACE, &0u32.to_be_bytes()).unwrap().unwrap();
    assert_eq!(value, [7; 1_000]);
    assert!(meta.seq > store.engine.durable_seq(), "so who answers with it knows that it is not durable");
}

#[test]
fn a_flush_that_fails_ends_acknowledgements_and_what_was_loaded_is_not_called_durable() {
    let (medium, mut store) = patient();
    let before = store.engine.durable_seq();
    medium.inject(Fault::new(FaultTarget::Flush, FaultEffect::Fail));
    let error = store.sync().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFailed);
    medium.clear_faults();
    store.settle(100);
    assert_eq!(store.engine.durable_seq(), before);
    assert!(store.put(SPACE, b"other", b"value").is_err());
}
