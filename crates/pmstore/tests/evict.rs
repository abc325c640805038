//! Eviction: a store that is full takes new keys in the place of old ones, and no key comes back.

use crate::common::{Store, fresh, open_all, open_one, reopen, reopen_after_kill, small_settings};
use std::sync::Arc;
use tierstone_base::ErrorKind;
use tierstone_crash::Mutations;
use tierstone_engine::conformance::eviction::{self, KEYSPACE, VALUE_BYTES, put};
use tierstone_engine::{BatchTicket, Engine, Eviction, Write, WriteKind};
use tierstone_media::region::{MappedRegion, RegionSettings};
use tierstone_pmstore::{Geometry, OpenSettings, ShardSettings};

/// A store of so many bytes, its values in the records.
fn of_bytes(bytes: u64, shard: ShardSettings, mutations: Mutations) -> Store {
    let region = Arc::new(MappedRegion::anonymous(bytes, &RegionSettings::default()).unwrap());
    let geometry = Geometry { segment_bytes: 64 << 10, block_bytes: 16 << 10, log_segments: 4 };
    open_one(&region, &OpenSettings { geometry, shard, mutations, ..small_settings() }).0
}

fn shard() -> ShardSettings {
    small_settings().shard
}

/// A store with little room for data.
fn small() -> Store {
    of_bytes(16 << 20, shard(), Mutations::default())
}

fn small_mutated(name: &'static str) -> Store {
    of_bytes(16 << 20, shard(), Mutations::one(name))
}

/// A store with little room for its index.
fn little_memory() -> Store {
    of_bytes(16 << 20, ShardSettings { memory_bytes: 256 << 10, ..shard() }, Mutations::default())
}

#[test]
fn new_keys_take_the_memory_of_old_ones() {
    let store =
        eviction::new_keys_take_the_room_of_old_ones(little_memory, (250, b"value"), ErrorKind::NoMemory);
    let statistics = store.engine.statistics();
    // Counts of old records and places of tombstones are not held against the bound: blocks are cleaned to keep them few.
    assert!(statistics.index_bytes < 450 << 10, "{} bytes of index", statistics.index_bytes);
}

#[test]
fn new_records_take_the_space_of_old_ones() {
    eviction::new_keys_take_the_room_of_old_ones(small, (25, &[7; VALUE_BYTES]), ErrorKind::NoSpace);
}

#[test]
fn long_values_take_the_space_of_old_ones() {
    let fresh = || of_bytes(16 << 20, shard(), Mutations::default());
    eviction::new_keys_take_the_room_of_old_ones(fresh, (5, &[7; 20_000]), ErrorKind::NoSpace);
}

#[test]
fn small_records_are_taken_or_refused_and_never_left_waiting() {
    let fresh = || of_bytes(4 << 20, shard(), Mutations::default());
    eviction::small_records_are_taken_or_refused(fresh, &[7; 4]);
}

#[test]
fn what_is_asked_for_now_and_then_stays() {
    eviction::what_is_asked_for_now_and_then_stays(small());
}

#[test]
fn what_is_asked_for_outlives_what_is_not_under_both_policies() {
    for policy in [Eviction::OldestFirst, Eviction::LeastUsed] {
        let (asked, others) = eviction::stay_under_load(small(), policy);
        assert!(asked >= 450, "{policy:?}: {asked} of 500 keys that are asked for stayed");
        assert!(others < 50, "{policy:?}: {others} of 500 others did");
    }
}

#[test]
fn uses_are_counted_under_a_policy_that_asks_for_them() {
    eviction::uses_are_counted_under_a_policy_that_asks_for_them(small());
}

#[test]
fn without_a_policy_nothing_is_evicted_and_it_may_change() {
    eviction::without_a_policy_nothing_is_evicted_and_it_may_change(small());
}

#[test]
fn of_keys_that_expire_the_oldest_go_first() {
    eviction::of_keys_that_expire_the_oldest_go_first(small());
}

#[test]
fn of_keys_that_expire_those_asked_for_least_go_first() {
    eviction::of_keys_that_expire_those_asked_for_least_go_first(small());
}

#[test]
fn keys_that_expire_go_in_no_order() {
    eviction::keys_that_expire_go_in_no_order(small());
}

#[test]
fn keys_go_in_no_order() {
    eviction::keys_go_in_no_order(small());
}

#[test]
fn keys_that_expire_next_go_first_and_those_without_an_expiry_stay() {
    eviction::nearest_expiries_go_first(small()).unwrap();
}

#[test]
fn an_eviction_of_a_key_without_an_expiry_is_noticed_under_each_policy() {
    eviction::evictions_of_keys_without_an_expiry_are_noticed(|| small_mutated("evicted_without_expiry"));
}

/// While nobody lets keys go the store comes to the level at which writers wait: what was admitted below it is taken, though
/// its long value has taken the store above it.
#[test]
fn a_part_that_was_admitted_is_taken() {
    let mut store = small();
    store.engine.set_eviction(Eviction::OldestFirst);
    let value = vec![7; 60_000];
    for number in 0_u64..1_000 {
        let bytes = number.to_le_bytes();
        let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
        let writes = [Write { key: store.key(KEYSPACE, &bytes), kind }];
        if let Err(error) = store.engine.admit(store.now, &writes) {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            assert!(number > 100, "{number} parts were taken");
            return;
        }
        let batch = BatchTicket::new(number + 1, 1);
        store.engine.write_part(store.now, &writes, &batch).unwrap();
        store.sync().unwrap();
    }
    panic!("the store is never full");
}

/// Of two shards one is filled before the other has anything: whether the other takes as much all the same.
fn both_have_their_share(mutations: Mutations) -> Result<(), ErrorKind> {
    let region = Arc::new(MappedRegion::anonymous(4 << 20, &RegionSettings::default()).unwrap());
    let settings = OpenSettings { shard_count: 2, mutations, ..small_settings() };
    let (mut shards, ..) = open_all(&region, &settings).unwrap();
    let mut counts = Vec::new();
    for shard in &mut shards {
        shard.engine.set_eviction(Eviction::OldestFirst);
        for from in (0..20_000).step_by(25) {
            put(shard, from..from + 25, &[7; 200])?;
        }
        counts.push(shard.engine.statistics().keys);
    }
    assert!(counts[1] > counts[0] * 9 / 10, "{counts:?} keys");
    Ok(())
}

#[test]
fn a_shard_that_is_filled_first_leaves_the_others_their_share() {
    assert_eq!(both_have_their_share(Mutations::default()), Ok(()));
    let found = both_have_their_share(Mutations::one("shards_run_ahead"));
    assert_eq!(found, Err(ErrorKind::NoSpace), "shards that take more than their share are not noticed");
}

fn told_when_little_is_left(store: Store) -> Result<(), String> {
    eviction::told_when_little_is_left(store, 0.945, (10, &[7; 500]))
}

#[test]
fn writers_wait_for_deletions_while_there_is_room_for_both() {
    let told = told_when_little_is_left(small());
    assert!(told.as_ref().is_err_and(|text| text.contains("keys are being evicted")), "{told:?}");
    let told = told_when_little_is_left(small_mutated("writes_outrun_eviction"));
    assert_eq!(told, Ok(()), "writes that outrun eviction are not noticed");
}

fn follow_a_model(seed: u64, value_bytes_max: u64, mutations: Mutations) -> Result<(), String> {
    let geometry = Geometry { segment_bytes: 32 << 10, block_bytes: 8 << 10, log_segments: 4 };
    let settings = OpenSettings { geometry, mutations, ..small_settings() };
    let (machine, store) = fresh(3 << 20, &settings);
    eviction::follow_a_model(seed, store, value_bytes_max, &|store, is_killed| match is_killed {
        true => reopen_after_kill(store, &machine, &settings),
        false => reopen(store, &machine, &settings),
    })
}

#[test]
fn a_key_that_may_vanish_never_shows_an_old_value() {
    for seed in 1..6 {
        follow_a_model(seed, 3_008, Mutations::default())
            .unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    }
}

#[test]
fn an_eviction_without_a_tombstone_is_noticed() {
    let mutations = || Mutations::one("evicted_without_tombstone");
    let found = (1..25).find_map(|seed| follow_a_model(seed, 1_508, mutations()).err());
    assert!(found.as_ref().is_some_and(|text| text.contains("has version")), "no key comes back: {found:?}");
}
