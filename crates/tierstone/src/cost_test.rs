//! Calls say what they cost.

use crate::{Batch, DatabaseOptions, Durability, ShardSettings, Store};
use std::path::PathBuf;
use tierstone_engine::Commit;

fn options(name: &str) -> (PathBuf, DatabaseOptions) {
    let path = std::env::temp_dir().join(format!("tierstone-cost-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let options = DatabaseOptions {
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(4 << 20),
        memory_bytes: 4 << 20,
        durable_method: Some(tierstone_media::file::DurableMethod::DurableWrite),
        ..DatabaseOptions::new(&path)
    };
    (path, options)
}

#[test]
fn writes_tell_their_guarantee_and_their_bytes() {
    let (path, options) = options("calls");
    let mut store = Store::open(&DatabaseOptions { shards: 2, ..options.clone() }).unwrap();
    let mut batch = Batch::new();
    (0..40u8).for_each(|number| {
        batch.put(&[number], &[number; 500]);
    });
    let (answer, cost) = store.with_cost(|store| store.write(&batch));
    answer.unwrap();
    assert_eq!(cost.durability, Some(Commit::Durable));
    assert!(cost.cost.writes >= 2 && cost.cost.bytes_written >= 40 * 500, "{cost:?}");
    assert!(cost.cost.cpu_ns > 0, "{cost:?}");
    let (ticket, cost) = store.with_cost(|store| store.put_nowait(b"later", b"value").unwrap());
    assert_eq!(cost.durability, None, "nothing was promised yet");
    store.wait(ticket).unwrap();
    let keys: Vec<[u8; 1]> = (0..40u8).map(|number| [number]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let (values, cost) = store.with_cost(|store| store.get_many(&keys));
    assert_eq!(values.unwrap().len(), 40);
    assert_eq!((cost.durability, cost.cost.reads, cost.cost.bytes_read), (None, 0, 0), "all was in memory");
    store.close().unwrap();
    let shard = ShardSettings { durability: Durability::Relaxed, ..ShardSettings::default() };
    let mut store = Store::open(&DatabaseOptions { shard, ..options }).unwrap();
    let (values, cost) = store.with_cost(|store| store.get_many(&keys));
    assert!(values.unwrap().iter().all(Option::is_some));
    assert!(cost.cost.reads > 0 && cost.cost.bytes_read >= 40 * 500, "{cost:?}");
    let (answer, cost) = store.with_cost(|store| store.put(b"early", b"value"));
    answer.unwrap();
    assert_eq!(cost.durability, Some(Commit::Relaxed));
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn the_engines_time_is_counted_where_it_is_asked_for() {
    for measure_cpu in [false, true] {
        let (path, options) = options("clock");
        let options = DatabaseOptions { measure_cpu, ..options };
        let mut store = Store::open(&options).unwrap();
        store.put(b"key", b"value").unwrap();
        assert_eq!(store.statistics().device.cpu_ns > 0, measure_cpu);
        store.close().unwrap();
        let store = crate::SharedStore::open(&options).unwrap();
        store.put(b"key", b"value").unwrap();
        assert_eq!(store.statistics().unwrap().device.cpu_ns > 0, measure_cpu);
        store.close().unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }
}
