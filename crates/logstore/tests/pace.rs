//! Cleaning goes at the pace of writes while there is room, and by itself when nobody writes.

use crate::common::{Store, fresh, small_settings};
use std::collections::VecDeque;
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::Engine;
use tierstone_logstore::OpenSettings;
use tierstone_media::{BlockDevice, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT_BYTES: u64 = 256 << 10;
const SEGMENTS: u32 = 160;
const VALUE: [u8; 3_900] = [7; 3_900];

fn settings(mutations: Mutations) -> OpenSettings {
    let mut settings = OpenSettings { mutations, ..small_settings() };
    settings.shard.memory_bytes = 32 << 20;
    settings.shard.clean_below_free_fraction = 0.25;
    settings.shard.clean_step_bytes = 16 << 10;
    settings
}

/// Keys that take half of the store.
const KEYS: u64 = SEGMENTS as u64 * SEGMENT_BYTES / 2 / 4_096;

/// A store that has been overwritten until it is cleaned.
fn cleaned_store(settings: &OpenSettings, random: &mut SeededRandom) -> Store {
    let (_medium, mut store) = fresh(SEGMENT_BYTES, SEGMENTS, settings);
    for number in 0..3 * KEYS {
        let number = if number < KEYS { number } else { random.below(KEYS) };
        store.put(KEYSPACE, &number.to_le_bytes(), &VALUE).expect("there is room");
    }
    store
}

/// The most bytes that cleaning looked at while 32 records were written, all turns that it asked for done behind each,
/// and the bytes a write.
fn most_in_a_row(mutations: Mutations) -> (u64, u64) {
    const WRITES: u64 = 8_000;
    let mut random = SeededRandom::new(11);
    let mut store = cleaned_store(&settings(mutations), &mut random);
    let first = store.engine.cleaning_work().bytes;
    let mut last = VecDeque::from([first; 32]);
    let mut most = 0;
    for _ in 0..WRITES {
        let number = random.below(KEYS);
        store.put(KEYSPACE, &number.to_le_bytes(), &VALUE).expect("there is room");
        while store.device.in_flight() > 0
            || store.engine.next_step_at_us().is_some_and(|at_us| at_us <= store.now.monotonic_us)
        {
            store.turn(Wait::One);
        }
        last.push_back(store.engine.cleaning_work().bytes);
        most = most.max(last[last.len() - 1] - last.pop_front().expect("it has 32 places"));
    }
    (most, (last[0] - first) / WRITES)
}

#[test]
fn cleaning_is_spread_over_the_writes_that_make_it_needed() {
    let (most, each) = most_in_a_row(Mutations::none());
    let (most_in_spells, _) = most_in_a_row(Mutations::one("cleaning_in_spells"));
    println!("at most {most} bytes in 32 writes, {each} a write; {most_in_spells} without pace");
    assert!(each > 500, "there is little to clean");
    // What is due on average, and what haste and whole pieces add.
    assert!(most < 32 * 3 * each, "{most} bytes while 32 records were written");
    assert!(most_in_spells > 32 * 3 * each, "cleaning comes in no spells: the test tests nothing");
}

#[test]
fn a_store_in_which_nobody_writes_is_cleaned_until_it_has_the_space_that_it_wants() {
    let mut random = SeededRandom::new(12);
    let mut store = cleaned_store(&settings(Mutations::none()), &mut random);
    let free = |store: &Store| {
        let statistics = store.engine.statistics();
        (statistics.space_capacity_bytes - statistics.space_used_bytes) / SEGMENT_BYTES
    };
    let wanted = u64::from(SEGMENTS) / 4;
    while free(&store) >= wanted {
        store.put(KEYSPACE, &random.below(KEYS).to_le_bytes(), &VALUE).expect("there is room");
    }
    let before = free(&store);
    assert!(before < wanted, "{before} segments are free at the start");
    let began_us = store.now.monotonic_us;
    for _ in 0..100_000 {
        if free(&store) >= wanted {
            break;
        }
        // As a thread does that sleeps until the device or the engine has something to do.
        if let Some(at_us) = store.engine.next_step_at_us().filter(|_| store.device.in_flight() == 0) {
            store.now.monotonic_us = store.now.monotonic_us.max(at_us);
        }
        store.turn(Wait::One);
    }
    let seconds = (store.now.monotonic_us - began_us) as f64 / 1e6;
    println!("{before} segments were free, {} are, after {seconds} s", free(&store));
    assert!(free(&store) >= wanted, "{} of {wanted} segments are free", free(&store));
}

#[test]
fn the_time_of_the_next_step_does_not_move_with_every_write() {
    const WRITES: u64 = 4_000;
    let mut random = SeededRandom::new(13);
    let mut store = cleaned_store(&settings(Mutations::none()), &mut random);
    let (mut earlier, mut waits, mut until_us) = (0, 0, 0);
    for _ in 0..WRITES {
        let number = random.below(KEYS);
        store.put(KEYSPACE, &number.to_le_bytes(), &VALUE).expect("there is room");
        while store.device.in_flight() > 0 {
            store.turn(Wait::One);
        }
        // Whoever sleeps until then is woken for nothing when it comes nearer.
        let now_us = store.now.monotonic_us;
        if let Some(at_us) = store.engine.next_step_at_us().filter(|at_us| *at_us > now_us) {
            waits += 1;
            earlier += u64::from(until_us > now_us && at_us < until_us);
            until_us = at_us;
        }
    }
    println!("{waits} waits after {WRITES} writes, {earlier} of them shorter than thought before");
    assert!(waits > WRITES / 4, "cleaning hardly ever waits: the test tests nothing");
    assert!(earlier < waits / 20, "{earlier} of {waits} waits became shorter");
}
