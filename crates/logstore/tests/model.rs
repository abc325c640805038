//! The log store against the model: random operations, random settings, reopening, cleaning.

use crate::common;
use crate::common::{fresh, ordered_keyspaces, random_settings, reopen, small_settings};
use tierstone_base::SeededRandom;
use tierstone_engine::conformance::{self, ModelSettings};
use tierstone_logstore::OpenSettings;

#[test]
fn the_log_store_passes_the_model() {
    let mut seeds = SeededRandom::new(11);
    for _ in 0..8 {
        let seed = seeds.next_u64();
        let settings = random_settings(&mut SeededRandom::new(seed));
        let (_medium, store) = fresh(256 << 10, 64, &settings);
        let model = ModelSettings { may_lose_snapshots: true, ..ModelSettings::default() };
        conformance::model(seed, model, store, |store| store);
    }
}

#[test]
fn the_log_store_passes_the_model_over_clean_reopenings() {
    let mut seeds = SeededRandom::new(12);
    for _ in 0..8 {
        let seed = seeds.next_u64();
        let settings = random_settings(&mut SeededRandom::new(seed));
        let (medium, store) = fresh(256 << 10, 64, &settings);
        let model = ModelSettings { reopen_every: 300, may_lose_snapshots: true, ..ModelSettings::default() };
        conformance::model(seed, model, store, |store| reopen(store, &medium, &settings));
    }
}

#[test]
fn the_log_store_passes_the_model_while_it_cleans() {
    let mut seeds = SeededRandom::new(13);
    for _ in 0..6 {
        let seed = seeds.next_u64();
        let mut random = SeededRandom::new(seed);
        let settings = random_settings(&mut random);
        // About 120 KB live in 2 MB, written ten times over.
        let (medium, store) = fresh(128 << 10, 16, &settings);
        let model = ModelSettings {
            operations: 12_000,
            reopen_every: 3_000,
            may_lose_snapshots: true,
            ..ModelSettings::default()
        };
        let store = conformance::model(seed, model, store, |store| reopen(store, &medium, &settings));
        use tierstone_engine::Engine;
        let statistics = store.engine.statistics();
        assert!(statistics.record_bytes_written > 0, "{statistics:?}");
    }
}

#[test]
fn dropping_a_keyspace_empties_only_it() {
    let settings = OpenSettings { keyspaces: ordered_keyspaces(), ..small_settings() };
    let (_medium, store) = fresh(256 << 10, 32, &settings);
    conformance::dropping_a_keyspace_empties_only_it(store);
}

#[test]
fn a_snapshot_outlives_the_drop_of_its_keyspaces() {
    let (_medium, store) = fresh(64 << 10, 16, &small_settings());
    conformance::a_snapshot_outlives_the_drop_of_its_keyspaces(store);
}

#[test]
fn pages_of_a_range_join() {
    let settings = OpenSettings { keyspaces: ordered_keyspaces(), ..small_settings() };
    let (_medium, store) = fresh(256 << 10, 32, &settings);
    conformance::pages_of_a_range_join(store);
}

#[test]
fn a_range_of_a_snapshot_shows_the_keys_of_the_cut() {
    let settings = OpenSettings { keyspaces: ordered_keyspaces(), ..small_settings() };
    let (_medium, store) = fresh(256 << 10, 32, &settings);
    conformance::a_range_of_a_snapshot_shows_the_keys_of_the_cut(store);
}

#[test]
fn writes_are_visible_before_they_are_durable() {
    let (_medium, store) = fresh(256 << 10, 32, &small_settings());
    conformance::writes_are_visible_before_they_are_durable(store);
}

#[test]
fn completions_tell_their_cost() {
    let mut settings = OpenSettings { keyspaces: ordered_keyspaces(), ..small_settings() };
    settings.shard.memory_bytes = 64 << 10;
    let (_medium, store) = fresh(256 << 10, 32, &settings);
    conformance::completions_tell_their_cost(store, false);
}

#[test]
fn a_switch_of_modes_keeps_what_was_promised() {
    let (_medium, store) = fresh(256 << 10, 32, &small_settings());
    conformance::a_switch_of_modes_keeps_what_was_promised(store);
    let (_medium, store) = fresh(256 << 10, 32, &small_settings());
    conformance::a_relaxed_write_is_durable_within_its_bound(store);
    let (_medium, store) = fresh(256 << 10, 32, &small_settings());
    conformance::a_relaxed_write_waits_for_a_device_that_is_behind(store);
}

#[test]
#[should_panic(expected = "Relaxed")]
fn a_relaxed_write_that_does_not_wait_is_seen() {
    let (_medium, store) = fresh(256 << 10, 32, &common::mutated("relaxed_unbounded"));
    conformance::a_relaxed_write_waits_for_a_device_that_is_behind(store);
}

#[test]
#[should_panic(expected = "acknowledged was")]
fn a_switch_that_leaves_the_relaxed_group_open_is_seen() {
    let (_medium, store) = fresh(256 << 10, 32, &common::mutated("switch_leaves_group_open"));
    conformance::a_switch_of_modes_keeps_what_was_promised(store);
}

/// The shards of one store.
#[expect(clippy::unwrap_used, reason = "test code")]
fn two_shards() -> [common::Store; 2] {
    let medium = common::medium(256 << 10, 32);
    let settings = tierstone_logstore::OpenSettings { shard_count: 2, ..small_settings() };
    let mut device = medium.device();
    let opened = tierstone_logstore::open(&mut device, &settings).unwrap();
    let mut shards = opened.plans.into_iter().map(|plan| {
        let mut device = medium.device();
        let (shard, _) = plan.build(&mut device).unwrap();
        tierstone_engine::harness::Harness::new(shard, device, opened.hasher)
    });
    [shards.next().unwrap(), shards.next().unwrap()]
}

#[test]
fn batches_over_two_shards_are_decided_when_both_parts_are_durable() {
    let [first, second] = two_shards();
    conformance::a_batch_over_two_engines_is_decided_when_both_parts_are_durable(first, second);
    let [first, _second] = two_shards();
    conformance::a_part_of_a_refused_batch_is_taken_back(first);
}
