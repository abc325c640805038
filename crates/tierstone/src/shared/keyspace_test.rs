use crate::batch::{Batch, PutOptions};
use crate::bulk::BulkOptions;
use crate::database::{Database, DatabaseFacts, DatabaseOptions};
use crate::{DurableMethod, IndexKind, SharedStore, Store};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_store::DatabaseMap;

/// A store whose clock is an hour ahead of the system's, as after that was set back.
fn ahead(path: &Path) -> DatabaseOptions {
    let options = DatabaseOptions {
        shards: 2,
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(8 << 20),
        memory_bytes: 4 << 20,
        durable_method: Some(DurableMethod::DurableWrite),
        ..DatabaseOptions::new(path)
    };
    let facts = DatabaseFacts {
        map: DatabaseMap::new(1),
        index: IndexKind::Hash,
        durable_method: DurableMethod::DurableWrite,
        probe: None,
        is_being_restored: false,
    };
    let past_ms = SystemClock::new().now().wall_ms + 3_600_000;
    Database::create_like(&options, facts, (0, past_ms)).unwrap().close().unwrap();
    options
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tierstone-shared-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// A batch with keys in all shards, and in one.
fn batches() -> [Batch; 2] {
    let (mut spread, mut one) = (Batch::new(), Batch::new());
    for number in 0..20u8 {
        spread.put_with(&[number], b"spread", brief());
        one.put_with(format!("{{tag}}{number}").as_bytes(), b"one", brief());
    }
    [spread, one]
}

fn brief() -> PutOptions {
    PutOptions::expires_in(Duration::from_secs(60))
}

#[test]
fn what_expires_lasts_as_long_as_was_said_after_the_clock_was_set_back() {
    let path = directory("set-back");
    let options = ahead(&path);
    let store = SharedStore::open(&options).unwrap();
    for number in 0..20u32 {
        store.put_with(&number.to_be_bytes(), b"put", brief()).unwrap();
    }
    batches().iter().for_each(|batch| store.write(batch).unwrap());
    let mut load = store.bulk_load(BulkOptions::default()).unwrap();
    for number in 0..20u64 {
        load.put_with(&number.to_be_bytes(), b"loaded", brief()).unwrap();
    }
    load.finish().unwrap();
    assert_eq!(store.scan().map(Result::unwrap).count(), 80);
    store.close().unwrap();

    let mut store = Store::open(&options).unwrap();
    assert_eq!(store.scan().map(Result::unwrap).count(), 80);
    for number in 0..20u32 {
        assert!(store.get(&number.to_be_bytes()).unwrap().is_some());
        assert!(store.delete(&number.to_be_bytes()).unwrap());
        store.put_with(&number.to_be_bytes(), b"put", brief()).unwrap();
    }
    batches().iter().for_each(|batch| store.write(batch).unwrap());
    assert_eq!(store.scan().map(Result::unwrap).count(), 80);
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}
