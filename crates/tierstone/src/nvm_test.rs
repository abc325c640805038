//! Stores that lie wholly in a region's file.

use crate::{Batch, DatabaseOptions, ErrorKind, IndexKind, SharedStore, Store};
use std::path::PathBuf;
use std::sync::Arc;
use tierstone_media::region::{MappedRegion, RegionDemand, RegionSettings};

/// A region's file that goes with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("tierstone-nvm-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        File(path)
    }

    fn options(&self) -> DatabaseOptions {
        DatabaseOptions {
            capacity_bytes: Some(64 << 20),
            memory_bytes: 16 << 20,
            any_guarantee: true,
            shards: 2,
            index: Some(IndexKind::Ordered),
            ..DatabaseOptions::new(format!("nvm:{}", self.0.display()))
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

#[test]
fn what_was_put_is_there_after_a_close_and_after_none() {
    let file = File::new("local");
    let mut store = Store::open(&file.options()).unwrap();
    for number in 0..2_000 {
        store.put(&key(number), &number.to_le_bytes()).unwrap();
    }
    store.delete(&key(7)).unwrap();
    store.close().unwrap();
    let mut store = Store::open(&file.options()).unwrap();
    assert_eq!(store.get(&key(1_999)).unwrap().as_deref(), Some(&1_999_u32.to_le_bytes()[..]));
    assert_eq!(store.get(&key(7)).unwrap(), None);
    let mut batch = Batch::new();
    for number in 0..100 {
        batch.put(&key(number), b"new");
    }
    store.write(&batch).unwrap();
    // As a crash of the process would: nothing is put in order.
    drop(store);
    let mut store = Store::open(&file.options()).unwrap();
    assert!((0..100).all(|number| store.get(&key(number)).unwrap().as_deref() == Some(&b"new"[..])));
    assert_eq!(store.get(&key(100)).unwrap().as_deref(), Some(&100_u32.to_le_bytes()[..]));
}

#[test]
fn the_shared_handle_and_its_ranges_work_in_a_region() {
    let file = File::new("shared");
    let store = SharedStore::open(&file.options()).unwrap();
    let answers: Vec<_> = (0..500).map(|number| store.put_async(&key(number), b"value")).collect();
    answers.into_iter().try_for_each(|answer| answer.wait()).unwrap();
    let found: Vec<Vec<u8>> =
        store.range(&key(100)[..]..).limit(50).live().map(|entry| entry.unwrap().key).collect();
    assert_eq!(found, (100..150).map(key).collect::<Vec<_>>());
    store.close().unwrap();
    let store = SharedStore::open(&file.options()).unwrap();
    assert_eq!(store.get(&key(499)).unwrap().as_deref(), Some(&b"value"[..]));
}

/// The crash mark `region-without-superblock`: the engine's part is made, and nothing says so yet.
#[test]
fn a_region_whose_making_was_cut_off_becomes_a_store() {
    let file = File::new("cut-off");
    let settings = RegionSettings { demand: RegionDemand::AnyGuarantee, ..RegionSettings::default() };
    let region = MappedRegion::create(&file.0, 64 << 20, &settings).unwrap();
    let inner = tierstone_pmstore::OpenSettings {
        base: super::ENGINE_BASE,
        shard_count: 2,
        ..tierstone_pmstore::OpenSettings::default()
    };
    tierstone_pmstore::open(Arc::new(region), &inner).unwrap();
    let mut store = Store::open(&file.options()).unwrap();
    store.put(b"key", b"value").unwrap();
    drop(store);
    let mut store = Store::open(&file.options()).unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn options_that_mean_devices_are_refused() {
    let file = File::new("refused");
    let refused = |options: DatabaseOptions, word: &str| {
        let error = Store::open(&options).err().unwrap_or_else(|| panic!("not refused: {word}"));
        assert!(error.to_string().contains(word), "{error}");
        error.kind()
    };
    let unsaid = DatabaseOptions { capacity_bytes: None, ..file.options() };
    refused(unsaid, "capacity");
    let durable = DatabaseOptions { any_guarantee: false, ..file.options() };
    assert_eq!(refused(durable, "accept any guarantee"), ErrorKind::Unsupported);
    let segments = DatabaseOptions { segment_bytes: Some(1 << 20), ..file.options() };
    assert_eq!(refused(segments, "segments"), ErrorKind::InvalidInput);
    let mut two = file.options();
    two.directories.push("elsewhere".into());
    assert_eq!(refused(two, "alone"), ErrorKind::InvalidInput);
    assert!(!file.0.exists(), "nothing is left of what was refused");
}
