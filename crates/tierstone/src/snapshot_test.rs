use super::*;
use crate::{Batch, DatabaseOptions, PutOptions};
use std::collections::BTreeMap;
use std::time::Duration;
use tierstone_base::SeededRandom;

fn options(name: &str, shards: u16) -> (std::path::PathBuf, DatabaseOptions) {
    let path = std::env::temp_dir().join(format!("tierstone-snapshot-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let options = DatabaseOptions {
        shards,
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(8 << 20),
        memory_bytes: 4 << 20,
        databases: 2,
        durable_method: Some(tierstone_media::file::DurableMethod::DurableWrite),
        ..DatabaseOptions::new(&path)
    };
    (path, options)
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn walk(scan: Scan<'_>) -> Pairs {
    let mut found: Pairs = scan.map(Result::unwrap).map(|entry| (entry.key, entry.value)).collect();
    found.sort();
    found
}

fn walk_range(range: Range<'_>) -> Pairs {
    range.map(Result::unwrap).map(|entry| (entry.key, entry.value)).collect()
}

#[test]
fn snapshots_of_random_moments_show_those_moments_over_all_shards() {
    let (path, options) = options("random", 3);
    let options = DatabaseOptions { index: Some(tierstone_engine::IndexKind::Ordered), ..options };
    let mut store = Store::open(&options).unwrap();
    let seed = SeededRandom::system_seed().unwrap();
    let mut random = SeededRandom::new(seed);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut alive: Vec<(Snapshot, Pairs)> = Vec::new();
    for round in 0..400 {
        for _ in 0..10 {
            let key = random.below(300).to_be_bytes();
            if random.chance(0.2) {
                assert_eq!(store.delete(&key).unwrap(), model.remove(&key[..]).is_some(), "seed {seed}");
                continue;
            }
            let value = vec![random.below(256) as u8; random.below(900) as usize];
            let _ticket = store.put_nowait(&key, &value).unwrap();
            model.insert(key.to_vec(), value);
        }
        if round % 20 == 0 {
            let now = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!(walk(store.scan()), now, "seed {seed}");
            alive.push((store.snapshot().unwrap(), now));
        }
        if alive.len() > 3 {
            let (ended, shown) = alive.remove(random.below(3) as usize);
            assert_eq!(walk(ended.scan(&mut store)), shown, "seed {seed}, round {round}");
            assert_eq!(walk_range(ended.range(&mut store, ..)), shown, "seed {seed}, round {round}");
            let mut backward = walk_range(ended.range(&mut store, ..).backward());
            backward.reverse();
            assert_eq!(backward, shown, "seed {seed}, round {round}");
            let keys: Vec<Vec<u8>> = (0..300u64).map(|key| key.to_be_bytes().to_vec()).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let values = ended.get_many(&mut store, &keys).unwrap();
            let shown: BTreeMap<_, _> = shown.into_iter().collect();
            for (key, value) in keys.into_iter().zip(values) {
                assert_eq!(value.as_ref(), shown.get(key), "seed {seed}, round {round}");
            }
        }
    }
    drop(alive);
    store.put(b"last", b"").unwrap();
    while store.turn().unwrap() == Some(Duration::ZERO) {}
    let statistics = store.statistics();
    assert_eq!((statistics.snapshots, statistics.snapshot_pinned_bytes), (0, 0), "seed {seed}");
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_snapshot_shows_whole_batches_other_databases_and_what_has_expired_since() {
    let (path, options) = options("batches", 2);
    let mut store = Store::open(&options).unwrap();
    let mut batch = Batch::new();
    batch.put(b"{t}one", b"1").put(b"{t}two", b"2");
    store.write(&batch).unwrap();
    store.put_with(b"brief", b"3", PutOptions::expires_in(Duration::from_secs(1))).unwrap();
    store.keyspace(1).unwrap().put(b"other", b"4").unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut batch = Batch::new();
    batch.delete(b"{t}one").put(b"{t}two", b"5");
    store.write(&batch).unwrap();
    store.keyspace(1).unwrap().delete(b"other").unwrap();
    while store.get(b"brief").unwrap().is_some() {}
    let values = snapshot.get_many(&mut store, &[b"{t}one", b"{t}two", b"nothing", b"brief"]).unwrap();
    assert_eq!(values, [Some(b"1".to_vec()), Some(b"2".to_vec()), None, Some(b"3".to_vec())]);
    assert_eq!(walk(snapshot.scan(&mut store)).len(), 3);
    let mut other = snapshot.keyspace(&mut store, 1).unwrap();
    assert_eq!(other.get(b"other").unwrap().unwrap(), b"4");
    assert_eq!(walk(other.into_scan()).len(), 1);
    assert_eq!(snapshot.keyspace(&mut store, 2).unwrap_err().kind(), ErrorKind::InvalidInput);
    drop(store);
    drop(snapshot);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_lost_snapshot_says_so_and_one_of_another_store_is_refused() {
    let (path, mut options) = options("lost", 1);
    options.shard.snapshot_table_bytes_max = 80 * 50;
    let mut store = Store::open(&options).unwrap();
    let fill = |store: &mut Store, value: &[u8]| {
        for key in 0..100u32 {
            let _ticket = store.put_nowait(&key.to_be_bytes(), value).unwrap();
        }
        store.sync().unwrap();
        while store.turn().unwrap() == Some(Duration::ZERO) {}
    };
    fill(&mut store, b"old");
    let snapshot = store.snapshot().unwrap();
    let mut begun = snapshot.scan(&mut store);
    assert_eq!(begun.next().unwrap().unwrap().value, b"old");
    fill(&mut store, b"new");
    let read = snapshot.get(&mut store, &1u32.to_be_bytes()).unwrap_err();
    assert_eq!(read.kind(), ErrorKind::SnapshotLost, "{read}");
    let mut walk = snapshot.scan(&mut store);
    assert_eq!(walk.next().unwrap().unwrap_err().kind(), ErrorKind::SnapshotLost);
    assert!(walk.next().is_none(), "a walk goes on after its snapshot was lost");
    assert_eq!(store.statistics().snapshots_lost, 1);

    let (other_path, other_options) = self::options("other", 1);
    let mut other = Store::open(&other_options).unwrap();
    assert_eq!(snapshot.get(&mut other, b"key").unwrap_err().kind(), ErrorKind::InvalidInput);
    drop((store, other));
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::remove_dir_all(&other_path).unwrap();
}
