//! The engine against the model: random operations, random settings, reopening, cleaning.

use crate::common::{
    Store, fresh, keyspaces, machine, open_all, random_settings, reopen, reopen_after_kill, small_settings,
};
use tierstone_base::{ErrorKind, SeededRandom};
use tierstone_engine::Engine;
use tierstone_engine::conformance::{self, ModelSettings};
use tierstone_pmstore::{OpenSettings, ShardSettings};

fn model() -> ModelSettings {
    ModelSettings { may_lose_snapshots: true, ..ModelSettings::default() }
}

#[test]
fn the_store_passes_the_model() {
    let mut seeds = SeededRandom::new(11);
    for _ in 0..6 {
        let seed = seeds.next_u64();
        let settings = random_settings(&mut SeededRandom::new(seed));
        let (_region, store) = fresh(1 << 20, &settings);
        conformance::model(seed, model(), store, |store| store);
    }
}

#[test]
fn the_store_passes_the_model_over_reopenings() {
    let mut seeds = SeededRandom::new(12);
    for _ in 0..6 {
        let seed = seeds.next_u64();
        let mut random = SeededRandom::new(seed);
        let settings = random_settings(&mut random);
        let (region, store) = fresh(1 << 20, &settings);
        let model = ModelSettings { reopen_every: 200, ..model() };
        conformance::model(seed, model, store, |store| match random.chance(0.5) {
            true => reopen(store, &region, &settings),
            false => reopen_after_kill(store, &region, &settings),
        });
    }
}

#[test]
fn the_store_passes_the_model_while_it_cleans() {
    let mut seeds = SeededRandom::new(13);
    for _ in 0..6 {
        let seed = seeds.next_u64();
        let settings = random_settings(&mut SeededRandom::new(seed));
        // About 120 KB live, written ten times over.
        let (region, store) = fresh(512 << 10, &settings);
        let model = ModelSettings { operations: 8_000, reopen_every: 2_000, ..model() };
        let store = conformance::model(seed, model, store, |store| reopen(store, &region, &settings));
        assert!(store.engine.statistics().cleaned_bytes_written > 0, "seed {seed}: nothing was cleaned");
    }
}

#[test]
fn long_values_pass_the_model() {
    let mut seeds = SeededRandom::new(14);
    for _ in 0..4 {
        let seed = seeds.next_u64();
        let settings = random_settings(&mut SeededRandom::new(seed));
        let (region, store) = fresh(4 << 20, &settings);
        let model = ModelSettings { keys: 60, value_bytes: 20_000, reopen_every: 300, ..model() };
        conformance::model(seed, model, store, |store| reopen(store, &region, &settings));
    }
}

fn small() -> Store {
    fresh(1 << 20, &small_settings()).1
}

#[test]
fn dropping_a_keyspace_empties_only_it() {
    conformance::dropping_a_keyspace_empties_only_it(small());
}

#[test]
fn a_snapshot_outlives_the_drop_of_its_keyspaces() {
    conformance::a_snapshot_outlives_the_drop_of_its_keyspaces(small());
}

#[test]
fn pages_of_a_range_join() {
    conformance::pages_of_a_range_join(small());
}

#[test]
fn a_range_of_a_snapshot_shows_the_keys_of_the_cut() {
    conformance::a_range_of_a_snapshot_shows_the_keys_of_the_cut(small());
}

#[test]
fn completions_tell_their_cost() {
    conformance::completions_tell_their_cost(small(), true);
}

#[test]
fn writes_are_visible_before_they_are_durable() {
    conformance::writes_are_visible_before_they_are_durable(small());
}

#[test]
fn a_switch_of_modes_keeps_what_was_promised() {
    conformance::a_switch_of_modes_keeps_what_was_promised(small());
    conformance::a_relaxed_write_is_durable_within_its_bound(small());
    conformance::a_relaxed_write_waits_for_a_device_that_is_behind(small());
}

/// The shards of one store.
#[expect(clippy::unwrap_used, reason = "test code")]
fn two_shards() -> [Store; 2] {
    let settings = OpenSettings { shard_count: 2, ..small_settings() };
    let (shards, ..) = open_all(&machine(1 << 20), &settings).unwrap();
    shards.try_into().map_err(|_| "two shards").unwrap()
}

#[test]
fn batches_over_two_shards_are_decided_when_both_parts_are_durable() {
    let [first, second] = two_shards();
    conformance::a_batch_over_two_engines_is_decided_when_both_parts_are_durable(first, second);
    let [first, _second] = two_shards();
    conformance::a_part_of_a_refused_batch_is_taken_back(first);
}

#[test]
fn new_keys_are_refused_while_indexes_have_no_memory_and_all_else_goes_on() {
    let usual = small_settings();
    let shard = ShardSettings { memory_bytes: 64 << 10, ..usual.shard.clone() };
    let (_region, mut store) = fresh(4 << 20, &OpenSettings { shard, ..usual });
    let key = |number: u32| format!("key-{number:06}").into_bytes();
    let keyspace = keyspaces()[0].id;
    let refused = (0..100_000).find_map(|number| {
        store.put(keyspace, &key(number), b"value").err().map(|error| (number, error.kind()))
    });
    let Some((count, kind)) = refused else { panic!("never refused") };
    assert_eq!(kind, ErrorKind::NoMemory);
    assert!(count > 1_000, "{count} keys");
    store.put(keyspace, &key(1), b"another").unwrap();
    for number in 0..count {
        store.delete(keyspace, &key(number)).unwrap();
    }
    store.put(keyspace, &key(count), b"value").unwrap();
    assert_eq!(store.engine.len(keyspace), 1);
}
