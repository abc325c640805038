//! One budget for index and cache: what the index does not use is the cache's, and comes back when keys do.

use crate::common::{Store, fresh, small_settings};
use tierstone_base::KeyspaceId;
use tierstone_engine::Engine;
use tierstone_logstore::ShardSettings;
use tierstone_media::Wait;

const SPACE: KeyspaceId = KeyspaceId(1);
const MEMORY: u64 = 4 << 20;

fn fill(store: &mut Store, keys: std::ops::Range<u64>) {
    for number in keys {
        store.put(SPACE, format!("key {number}").as_bytes(), &[7; 100]).unwrap();
        if number % 256 == 0 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
}

/// Reads some keys, each of which is there.
fn read(store: &mut Store, keys: impl Iterator<Item = u64>) {
    for number in keys {
        let found = store.get(SPACE, format!("key {number}").as_bytes()).unwrap();
        assert_eq!(found.unwrap().1, [7; 100]);
    }
}

#[test]
fn the_cache_takes_what_the_index_leaves_and_gives_it_back() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = MEMORY;
    settings.shard.cache_bytes_max = u64::MAX;
    settings.shard.index_fraction = 0.75;
    settings.shard.write_buffer_bytes_max = 64 << 10;
    let (_medium, mut store) = fresh(1 << 20, 80, &settings);
    fill(&mut store, 0..40_000);
    read(&mut store, (0..40_000).step_by(1));
    let few = store.engine.statistics();
    assert!(few.cache_bytes > MEMORY * 7 / 10, "{} bytes cached beside {}", few.cache_bytes, few.index_bytes);
    assert!(few.cache_bytes + few.index_bytes <= MEMORY, "{few:?}");
    fill(&mut store, 40_000..250_000);
    for _ in 0..2_000 {
        store.turn(Wait::Poll);
    }
    read(&mut store, (0..250_000).step_by(7));
    let many = store.engine.statistics();
    assert!(many.index_bytes > MEMORY * 4 / 10, "{} bytes of index", many.index_bytes);
    assert!(many.cache_bytes + many.index_bytes <= MEMORY, "{} + {}", many.cache_bytes, many.index_bytes);
    assert!(many.cache_bytes > MEMORY / 4, "{} bytes cached", many.cache_bytes);
}

#[test]
fn the_cache_gives_way_to_what_others_take_and_comes_back() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = MEMORY;
    settings.shard.cache_bytes_max = u64::MAX;
    settings.shard.index_fraction = 0.75;
    settings.shard.write_buffer_bytes_max = 64 << 10;
    let (_medium, mut store) = fresh(1 << 20, 80, &settings);
    fill(&mut store, 0..40_000);
    read(&mut store, 0..40_000);
    let outside = MEMORY / 4;
    store.engine.note_outside_bytes(outside);
    for _ in 0..2_000 {
        store.turn(Wait::Poll);
    }
    read(&mut store, 0..40_000);
    let beside = store.engine.statistics();
    let sum = beside.cache_bytes + beside.index_bytes + outside;
    assert!(sum <= MEMORY, "{} bytes cached beside {outside} of others", beside.cache_bytes);
    store.engine.note_outside_bytes(0);
    for _ in 0..100 {
        store.turn(Wait::Poll);
    }
    read(&mut store, 0..40_000);
    let after = store.engine.statistics();
    assert!(after.cache_bytes > beside.cache_bytes + outside / 2, "{} bytes cached", after.cache_bytes);
}

#[test]
fn buffers_of_groups_follow_the_memory() {
    for memory_bytes in [8 << 20, 21 << 20, 256 << 20] {
        let mut settings = small_settings();
        settings.shard = ShardSettings { memory_bytes, ..ShardSettings::default() };
        let (_medium, mut store) = fresh(4 << 20, 12, &settings);
        let bound = settings.shard.write_buffer_bytes() as u64;
        // Overwritten in another order than written, so that cleaning has to move records.
        for round in 0..4 {
            for number in 0..12_000 {
                let key = (number * 7_919 + round) % 12_000;
                store.put(SPACE, format!("key {key}").as_bytes(), &[7; 2_000]).unwrap();
                let buffers = store.engine.statistics().buffer_bytes;
                // The cold log's groups do not follow.
                assert!(buffers <= 2 * bound + (2 << 20), "{buffers} bytes of buffers, {bound} for groups");
            }
        }
        store.sync().unwrap();
        store.settle(1_000);
        let rest = store.engine.statistics();
        assert!(rest.cleaned_bytes_written > 1 << 20, "{rest:?}");
        // A cold group that gathers, and what is kept.
        assert!(rest.buffer_bytes <= bound / 2 + (1 << 20), "{} of {bound}", rest.buffer_bytes);
    }
}
