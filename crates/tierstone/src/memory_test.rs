//! One budget for all shards: a shard whose index needs more gets it from the others.

use crate::shared::SharedStore;
use crate::{Batch, DatabaseOptions, Durability, ShardSettings, Store};
use std::path::PathBuf;
use tierstone_base::{ErrorKind, KeyHasher, ShardId};
use tierstone_engine::{Engine, EngineStatistics};
use tierstone_media::Wait;

const SHARDS: u16 = 4;
const MEMORY: u64 = 6 << 20;
/// What the index of a shard may take of its equal part.
const INDEX_OF_A_PART: u64 = MEMORY / SHARDS as u64 * 3 / 4;
const BATCH: usize = 250;

fn options(name: &str) -> (PathBuf, DatabaseOptions) {
    let path = std::env::temp_dir().join(format!("tierstone-memory-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let options = DatabaseOptions {
        shards: SHARDS,
        segment_bytes: Some(1 << 20),
        capacity_bytes: Some(256 << 20),
        memory_bytes: MEMORY,
        durable_method: Some(tierstone_media::file::DurableMethod::WriteThenFlush),
        shard: ShardSettings { durability: Durability::Relaxed, ..ShardSettings::default() },
        ..DatabaseOptions::new(&path)
    };
    (path, options)
}

/// Keys of one shard, all different.
fn keys_of(hasher: KeyHasher, shard: ShardId, from: u64) -> impl Iterator<Item = [u8; 8]> {
    let keys = (from..).map(u64::to_be_bytes);
    keys.filter(move |key| hasher.position(key).shard(SHARDS) == shard)
}

/// Puts keys of `shard` until they are refused; how many there were.
fn fill(store: &mut Store, shard: ShardId, most: usize) -> usize {
    let mut keys = keys_of(store.database().hasher(), shard, u64::from(shard) << 40);
    let mut count = 0;
    while count < most {
        let mut batch = Batch::new();
        for key in keys.by_ref().take(BATCH) {
            batch.put(&key, b"value");
        }
        let result = store.write(&batch);
        assert_within_budget(store);
        match result {
            Ok(()) => count += BATCH,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoMemory, "{error}");
                break;
            }
        }
    }
    count
}

fn of_shards(store: &Store) -> Vec<EngineStatistics> {
    store.lanes.iter().map(|lane| lane.engine.statistics()).collect()
}

fn assert_within_budget(store: &Store) {
    let all = of_shards(store);
    let parts: u64 = all.iter().map(|shard| shard.memory_part_bytes).sum();
    assert!(parts <= MEMORY, "{parts} bytes in parts");
    let taken: u64 = all.iter().map(|shard| shard.index_bytes + shard.cache_bytes).sum();
    assert!(taken <= MEMORY, "{taken} bytes in indexes and caches");
}

#[test]
fn an_index_takes_more_than_an_equal_part_and_gives_it_back() {
    let (path, options) = options("local");
    let mut store = Store::open(&options).unwrap();
    // Caches of the others are full, so that they have to give way.
    for shard in 1..SHARDS {
        for key in keys_of(store.database().hasher(), shard, 1 << 50).take(1_500) {
            let _ = store.put_nowait(&key, &[7; 1_000]).unwrap();
        }
    }
    store.sync().unwrap();
    assert!(of_shards(&store)[1].cache_bytes > MEMORY / 4 / 2, "{:?}", of_shards(&store)[1]);
    let count = fill(&mut store, 0, usize::MAX);
    assert_within_budget(&store);
    let full = of_shards(&store);
    assert!(full[0].index_bytes > 2 * INDEX_OF_A_PART, "{} bytes for {count} keys", full[0].index_bytes);
    assert!(full[1].memory_part_bytes < MEMORY / 4 && full[1].cache_bytes > 0, "{:?}", full[1]);
    // Overwriting and deleting go on, and what is deleted is the others' again.
    let keys: Vec<[u8; 8]> = keys_of(store.database().hasher(), 0, 0).take(count).collect();
    for keys in keys.chunks(BATCH / 5) {
        let _ = store.put_nowait(&keys[0], b"other").unwrap();
        let mut batch = Batch::new();
        for key in keys {
            batch.delete(key);
        }
        store.write(&batch).unwrap();
    }
    store.sync().unwrap();
    for _ in 0..2_000 {
        store.turn().unwrap();
    }
    let parts: Vec<u64> = of_shards(&store).iter().map(|shard| shard.memory_part_bytes).collect();
    assert_eq!(parts, [MEMORY / 4; 4], "nobody needs more than another");
    fill(&mut store, 2, usize::MAX);
    assert_within_budget(&store);
    let index = of_shards(&store)[2].index_bytes;
    assert!(index > 2 * INDEX_OF_A_PART, "{index} bytes");
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn memory_is_given_when_the_cache_has_left_it() {
    let (path, options) = options("given");
    // A step of a part is then much more than the cache leaves between two looks.
    let memory = 64 << 20;
    let mut store = Store::open(&DatabaseOptions { memory_bytes: memory, ..options }).unwrap();
    for key in keys_of(store.database().hasher(), 1, 0).take(14_000) {
        let _ = store.put_nowait(&key, &[7; 1_000]).unwrap();
    }
    store.sync().unwrap();
    // More than the two shards with empty caches may give.
    store.lanes[0].engine.note_outside_bytes(memory / 2);
    let before = of_shards(&store)[1].memory_part_bytes;
    for _ in 0..2_000 {
        for lane in &mut store.lanes {
            lane.turn(Wait::Poll);
        }
        let giver = of_shards(&store)[1];
        let taken = giver.cache_bytes + giver.index_bytes;
        assert!(taken <= giver.memory_part_bytes, "{taken} of {giver:?}");
    }
    let shards = of_shards(&store);
    assert!(shards[1].memory_part_bytes < before && shards[0].memory_part_bytes > before, "{shards:?}");
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn threads_that_sleep_are_woken_to_give() {
    let (path, options) = options("shared");
    let store = SharedStore::open(&options).unwrap();
    let hasher = store.hasher();
    let mut keys = keys_of(hasher, 3, 0);
    let wanted = 2 * INDEX_OF_A_PART as usize / 9;
    for _ in 0..wanted / BATCH {
        let mut batch = Batch::new();
        for key in keys.by_ref().take(BATCH) {
            batch.put(&key, b"value");
        }
        store.write(&batch).unwrap();
    }
    assert!(store.statistics().unwrap().memory_part_bytes <= MEMORY);
    store.close().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_backup_of_keys_of_one_shard_is_restored_with_the_memory_of_all() {
    let (path, options) = options("restored");
    let one = DatabaseOptions { shards: 1, ..options.clone() };
    let count = (INDEX_OF_A_PART * 2 / 9) as usize;
    let mut store = Store::open(&one).unwrap();
    // A key is in the same place in every store: it is hashed by what the backup carries over.
    let keys: Vec<[u8; 8]> = keys_of(store.database().hasher(), 0, 0).take(count).collect();
    for keys in keys.chunks(BATCH) {
        let mut batch = Batch::new();
        for key in keys {
            batch.put(key, b"value");
        }
        store.write(&batch).unwrap();
    }
    let backup = path.with_extension("backup");
    let _ = std::fs::remove_dir_all(&backup);
    store.backup(&backup, &mut |_| {}).unwrap();
    store.close().unwrap();
    std::fs::remove_dir_all(&path).unwrap();

    let report = crate::restore(&backup, &options, &mut |_| {}).unwrap();
    assert_eq!(report.records, count as u64);
    let store = Store::open(&options).unwrap();
    assert_eq!(store.len(), count as u64);
    assert_within_budget(&store);
    let full = of_shards(&store);
    assert!(full[0].index_bytes > INDEX_OF_A_PART, "{} bytes", full[0].index_bytes);
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::remove_dir_all(&backup).unwrap();
}
