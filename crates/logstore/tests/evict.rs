//! Eviction: a store that is full takes new keys in the place of old ones, and no key comes back.

use crate::common::{Store, fresh, mutated, reopen, reopen_after_kill, small_settings};
use tierstone_base::ErrorKind;
use tierstone_engine::conformance::eviction::{self, VALUE_BYTES};
use tierstone_engine::{Engine, Eviction};
use tierstone_logstore::OpenSettings;

fn little_memory() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 1 << 20;
    settings.shard.group_bytes_max = 256 << 10;
    settings
}

fn little_space() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 16 << 20;
    settings.shard.group_bytes_max = 64 << 10;
    settings
}

/// A store with little room for data.
fn small(settings: &OpenSettings) -> Store {
    fresh(256 << 10, 60, settings).1
}

/// The same, and a mutation.
fn small_mutated(name: &'static str) -> Store {
    let mut settings = mutated(name);
    settings.shard = little_space().shard;
    small(&settings)
}

#[test]
fn new_keys_take_the_memory_of_old_ones() {
    let settings = little_memory();
    let fresh = || fresh(1 << 20, 200, &settings).1;
    let store = eviction::new_keys_take_the_room_of_old_ones(fresh, (250, b"value"), ErrorKind::NoMemory);
    let index = store.engine.statistics().index_bytes;
    assert!(index <= (1 << 20) + (64 << 10), "{index} bytes of index");
}

#[test]
fn new_records_take_the_space_of_old_ones() {
    let fresh = || small(&little_space());
    eviction::new_keys_take_the_room_of_old_ones(fresh, (25, &[7; VALUE_BYTES]), ErrorKind::NoSpace);
}

#[test]
fn small_records_are_taken_or_refused_and_never_left_waiting() {
    let fresh = || fresh(128 << 10, 40, &little_space()).1;
    eviction::small_records_are_taken_or_refused(fresh, &[7; 16]);
}

fn told_when_little_is_left(settings: &OpenSettings) -> Result<(), String> {
    let (_medium, store) = fresh(512 << 10, 200, settings);
    eviction::told_when_little_is_left(store, 0.895, (40, &[7; VALUE_BYTES]))
}

#[test]
fn writers_wait_for_deletions_while_there_is_room_for_both() {
    let mut plain = little_space();
    plain.shard.group_bytes_max = 256 << 10;
    plain.shard.retires_segments = false;
    let told = told_when_little_is_left(&plain);
    assert!(told.as_ref().is_err_and(|text| text.contains("keys are being evicted")), "{told:?}");
    let mut settings = mutated("writes_outrun_eviction");
    settings.shard = plain.shard;
    assert_eq!(told_when_little_is_left(&settings), Ok(()), "writes that outrun eviction are not noticed");
}

#[test]
fn what_is_read_now_and_then_stays() {
    let mut settings = little_space();
    settings.shard.cache_bytes_max = u64::MAX;
    eviction::what_is_asked_for_now_and_then_stays(small(&settings));
}

#[test]
fn what_is_asked_for_most_often_stays_though_it_is_not_cached() {
    // Far more keys than the record cache holds.
    let mut settings = little_space();
    settings.shard.cache_bytes_max = 128 << 10;
    let (asked, others) = eviction::stay_under_load(small(&settings), Eviction::LeastUsed);
    assert!(asked >= 450, "{asked} of 500 keys that are asked for stayed");
    assert!(others < 50, "{others} of 500 others did");
    // The record cache alone knows too little of them.
    let (asked, _) = eviction::stay_under_load(small(&settings), Eviction::OldestFirst);
    assert!(asked < 250, "{asked} of 500 keys stayed by age");
}

#[test]
fn uses_are_counted_under_a_policy_that_asks_for_them() {
    eviction::uses_are_counted_under_a_policy_that_asks_for_them(small(&little_space()));
}

#[test]
fn without_a_policy_nothing_is_evicted_and_it_may_change() {
    eviction::without_a_policy_nothing_is_evicted_and_it_may_change(fresh(256 << 10, 30, &little_space()).1);
}

#[test]
fn of_keys_that_expire_the_oldest_go_first() {
    eviction::of_keys_that_expire_the_oldest_go_first(small(&little_space()));
}

#[test]
fn of_keys_that_expire_those_asked_for_least_go_first() {
    eviction::of_keys_that_expire_those_asked_for_least_go_first(small(&little_space()));
}

#[test]
fn keys_that_expire_go_in_no_order() {
    eviction::keys_that_expire_go_in_no_order(small(&little_space()));
}

#[test]
fn keys_go_in_no_order() {
    eviction::keys_go_in_no_order(small(&little_space()));
}

#[test]
fn keys_that_expire_next_go_first_and_those_without_an_expiry_stay() {
    eviction::nearest_expiries_go_first(small(&little_space())).unwrap();
}

#[test]
fn an_eviction_of_a_key_without_an_expiry_is_noticed_under_each_policy() {
    eviction::evictions_of_keys_without_an_expiry_are_noticed(|| small_mutated("evicted_without_expiry"));
}

fn follow_a_model(seed: u64, mut settings: OpenSettings) -> Result<(), String> {
    settings.shard.memory_bytes = 1 << 20;
    let (medium, store) = fresh(128 << 10, 24, &settings);
    eviction::follow_a_model(seed, store, 1_508, &|store, is_killed| match is_killed {
        true => reopen_after_kill(store, &medium, &settings),
        false => reopen(store, &medium, &settings),
    })
}

#[test]
fn a_key_that_may_vanish_never_shows_an_old_value() {
    for seed in 1..6 {
        follow_a_model(seed, small_settings()).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    }
}

#[test]
fn an_eviction_without_a_tombstone_is_noticed() {
    let found = (1..25).find_map(|seed| follow_a_model(seed, mutated("evicted_without_tombstone")).err());
    assert!(found.is_some_and(|text| text.contains("has version")), "the model sees a key that comes back");
}
