//! Stores verify themselves while they serve, through both handles, on real files.

use crate::support::{TemporaryDirectory, backends};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tierstone::{DatabaseOptions, SharedStore, Store};

fn options(directory: &TemporaryDirectory) -> DatabaseOptions {
    DatabaseOptions { shards: 2, ..directory.options(backends()[0]) }
}

/// Every file below `directory`.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Flips a bit in the middle of the only place where `value` lies.
fn rot(directory: &Path, value: &[u8]) {
    let mut all = Vec::new();
    files(directory, &mut all);
    for path in all {
        let bytes = match std::fs::read(&path) {
            // A segment that was being made has its name now: nothing was in it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => read.unwrap(),
        };
        if let Some(place) = bytes.windows(value.len()).position(|window| window == value) {
            let at = place + value.len() / 2;
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            return file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
        }
    }
    panic!("the value is in no file");
}

#[test]
fn the_local_handle_finds_rot_in_a_store_that_is_open() {
    let directory = TemporaryDirectory::new();
    let mut store = Store::open(&options(&directory)).unwrap();
    for number in 0..2_000u32 {
        store.put(&number.to_le_bytes(), &number.to_le_bytes().repeat(80)).unwrap();
    }
    let mut told = 0;
    let found = store.verify(&mut |_| told += 1).unwrap();
    assert!(!found.is_damaged() && told > 0, "{found:?}");
    assert_eq!((found.live_records, found.index_entries), (2_000, 2_000), "{found:?}");
    rot(&options(&directory).directories[0], &77u32.to_le_bytes().repeat(80));
    let found = store.verify(&mut |_| {}).unwrap();
    assert_eq!((found.damage.get("record"), found.lost_keys), (Some(&1), 1), "{found:?}");
    store.close().unwrap();
}

#[test]
fn the_shared_handle_verifies_beside_its_traffic() {
    let directory = TemporaryDirectory::new();
    let store = SharedStore::open(&options(&directory)).unwrap();
    for number in 0..1_000u32 {
        store.put(&number.to_le_bytes(), &number.to_le_bytes().repeat(80)).unwrap();
    }
    assert_eq!(store.verification().unwrap(), None);
    let found = store
        .verify(&mut |_| {
            for number in 0..50u32 {
                store.put(&number.to_le_bytes(), b"new").unwrap();
                store.delete(&(100 + number).to_le_bytes()).unwrap();
            }
        })
        .unwrap();
    assert!(!found.is_damaged() && found.records >= 1_000, "{found:?}");
    rot(&options(&directory).directories[0], &777u32.to_le_bytes().repeat(80));
    let found = store.verify(&mut |_| {}).unwrap();
    assert_eq!((found.damage.len(), found.lost_keys), (1, 1), "{found:?}");
    assert_eq!(store.verification().unwrap(), Some(found));
    store.close().unwrap();
}
