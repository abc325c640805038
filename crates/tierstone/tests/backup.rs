//! Backups of both handles, beside writers, and the stores that are made of them.

use crate::changes::{FAR_MS, change, contents, options_of, root};
use crate::support::{TemporaryDirectory, backends};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone::{
    Backup, BackupWriter, Batch, DatabaseOptions, ErrorKind, Expiry, IndexKind, PutOptions, SharedStore,
    Store, restore, restore_stream, verify_backup, verify_backup_stream,
};
use tierstone_base::SeededRandom;

const FRAMES: &str = "backup.frames";
const MANIFEST: &str = "backup.manifest";
#[test]
fn a_local_backup_has_what_was_there_when_it_began_whatever_is_done_between_its_steps() {
    let mut seeds = SeededRandom::new(41);
    for (backend, index) in
        backends().into_iter().flat_map(|backend| [(backend, IndexKind::Hash), (backend, IndexKind::Ordered)])
    {
        for shards in [1, 3] {
            let seed = seeds.next_u64();
            println!("{backend:?}, {index:?}, {shards} shards, seed {seed}");
            let mut random = SeededRandom::new(seed);
            let directory = TemporaryDirectory::new();
            let options = DatabaseOptions {
                shards,
                memory_bytes: 12 << 20,
                index: Some(index),
                databases: 3,
                ..directory.options(backend)
            };
            let mut store = Store::open(&options).unwrap();
            for round in 0..2 {
                for _ in 0..400 {
                    change(&mut store, &mut random);
                }
                let expected = contents(&mut store);
                let path = root(&directory).join(format!("backup {round}"));
                let mut backup: Backup = store.begin_backup(BackupWriter::create(&path).unwrap()).unwrap();
                let refused = store.begin_backup(BackupWriter::stream(Vec::new())).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Busy);
                let report = loop {
                    change(&mut store, &mut random);
                    assert!(!path.join(MANIFEST).exists());
                    if let Some(report) = backup.step(&mut store).unwrap() {
                        break report;
                    }
                };
                assert_eq!(report.records, expected.len() as u64, "seed {seed}");
                assert_eq!(verify_backup(&path, &mut |_| {}).unwrap(), report);
                for new_shards in [1, 2] {
                    let new = options_of(&root(&directory).join(format!("{round} {new_shards}")), &options);
                    let new = DatabaseOptions { shards: new_shards, ..new };
                    assert_eq!(restore(&path, &new, &mut |_| {}).unwrap(), report);
                    let mut restored = Store::open(&new).unwrap();
                    assert!(contents(&mut restored) == expected, "seed {seed}, {new_shards} shards");
                    // It goes on as any store.
                    change(&mut restored, &mut random);
                    restored.close().unwrap();
                }
            }
            store.close().unwrap();
        }
    }
}

const WRITERS: u64 = 3;
const KEYS: u64 = 12;

fn name(writer: u64, key: u64) -> Vec<u8> {
    format!("{writer}:{key}").into_bytes()
}

fn count(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().unwrap())
}

/// Counts its keys up one after the other, each when the one before was answered; and, in a batch each time, two keys
/// in any shards.
fn write(store: &SharedStore, writer: u64, stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let mut value = u64::to_le_bytes(round).to_vec();
        value.resize(900, writer as u8);
        for key in 0..KEYS {
            store.put(&name(writer, key), &value).unwrap();
        }
        let mut batch = Batch::new();
        batch.put(format!("one {writer}").as_bytes(), &value).put(format!("two {writer}").as_bytes(), &value);
        store.write(&batch).unwrap();
    }
}

#[test]
fn a_shared_backup_is_one_moment_of_all_shards_beside_writers() {
    for (backend, shards) in backends().into_iter().flat_map(|backend| [(backend, 1), (backend, 3)]) {
        let directory = TemporaryDirectory::new();
        let options = DatabaseOptions { shards, memory_bytes: 8 << 20, ..directory.options(backend) };
        let store = SharedStore::open(&options).unwrap();
        let still = vec![7; 3_000];
        for number in 0..2_000u32 {
            store.put_async(&number.to_be_bytes(), &still).wait().unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || write(store, writer, stop));
            }
            for round in 0..3 {
                let path = root(&directory).join(format!("backup {round}"));
                let first = store.get(&name(0, 0)).unwrap();
                let report = store.backup(&path, &mut |_| {}).unwrap();
                let new = options_of(&root(&directory).join(format!("new {round}")), &options);
                assert_eq!(restore(&path, &new, &mut |_| {}).unwrap(), report);
                let mut restored = Store::open(&new).unwrap();
                check_moment(&mut restored, first.as_deref().map_or(0, count));
                for number in (0..2_000u32).step_by(37) {
                    assert_eq!(restored.get(&number.to_be_bytes()).unwrap().as_ref(), Some(&still));
                }
                restored.close().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        store.close().unwrap();
    }
}

/// Of each writer the counters are those of one moment: they do not grow from key to key, the last is at most one
/// behind the first; batches are whole; and what was answered before the backup is in it.
fn check_moment(restored: &mut Store, at_least: u64) {
    for writer in 0..WRITERS {
        let mut counter = |key: &[u8]| restored.get(key).unwrap().as_deref().map_or(0, count);
        let counts: Vec<u64> = (0..KEYS).map(|key| counter(&name(writer, key))).collect();
        assert!(counts.is_sorted_by(|one, other| one >= other), "writer {writer}: {counts:?}");
        assert!(counts[0] <= counts[KEYS as usize - 1] + 1, "writer {writer}: {counts:?}");
        let (one, two) =
            (counter(format!("one {writer}").as_bytes()), counter(format!("two {writer}").as_bytes()));
        assert_eq!(one, two, "writer {writer}: half a batch");
        assert!(
            one <= counts[KEYS as usize - 1] && counts[0] <= one + 1,
            "writer {writer}: {one}, {counts:?}"
        );
        assert!(writer != 0 || counts[0] >= at_least, "{counts:?}, {at_least} was there before");
    }
}

/// A store of a few keys and its backup.
fn small(directory: &TemporaryDirectory) -> (DatabaseOptions, PathBuf) {
    let options = directory.options(backends()[0]);
    let mut store = Store::open(&options).unwrap();
    for planet in ["mercury", "venus", "earth", "mars"] {
        store.put(planet.as_bytes(), b"a planet").unwrap();
    }
    let path = root(directory).join("backup");
    store.backup(&path, &mut |_| {}).unwrap();
    store.close().unwrap();
    (options, path)
}

/// Neither verifying nor restoring takes the backup at `path` for a whole one; and no store comes of it.
#[track_caller]
fn refused(path: &Path, new: &DatabaseOptions, what: &str) {
    let error = verify_backup(path, &mut |_| {}).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible), "{what}: {error}");
    let error = restore(path, new, &mut |_| {}).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible), "{what}: {error}");
    let opened = Store::open(&DatabaseOptions { create: false, ..new.clone() });
    assert!(opened.is_err(), "{what}: a store was made");
    let _ = std::fs::remove_dir_all(&new.directories[0]);
}

#[test]
fn every_flipped_byte_is_noticed_by_verifying_and_restoring() {
    let directory = TemporaryDirectory::new();
    let (options, path) = small(&directory);
    let new = options_of(&root(&directory).join("new"), &options);
    for file in [FRAMES, MANIFEST] {
        let whole = std::fs::read(path.join(file)).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(path.join(file), &damaged).unwrap();
            refused(&path, &new, &format!("{file}, byte {at}"));
        }
        std::fs::write(path.join(file), &whole).unwrap();
    }
    restore(&path, &new, &mut |_| {}).unwrap();
}

#[test]
fn a_backup_whose_making_was_broken_off_is_none() {
    let directory = TemporaryDirectory::new();
    let (options, path) = small(&directory);
    let new = options_of(&root(&directory).join("new"), &options);
    let manifest = std::fs::read(path.join(MANIFEST)).unwrap();
    let frames = std::fs::read(path.join(FRAMES)).unwrap();
    // backup_without_manifest
    std::fs::remove_file(path.join(MANIFEST)).unwrap();
    for len in 0..=frames.len() {
        std::fs::write(path.join(FRAMES), &frames[..len]).unwrap();
        refused(&path, &new, &format!("{len} bytes of frames, no manifest"));
    }
    // The file system may keep the name of the manifest and lose what it should not.
    for len in 0..manifest.len() {
        std::fs::write(path.join(MANIFEST), &manifest[..len]).unwrap();
        refused(&path, &new, &format!("{len} bytes of the manifest"));
    }
    std::fs::write(path.join(MANIFEST), &manifest).unwrap();
    for len in 0..frames.len() {
        std::fs::write(path.join(FRAMES), &frames[..len]).unwrap();
        refused(&path, &new, &format!("{len} bytes of frames"));
    }
    std::fs::write(path.join(FRAMES), [&frames[..], &[0]].concat()).unwrap();
    refused(&path, &new, "a byte more");
    // A new one does not go over it.
    let error = BackupWriter::create(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_store_whose_restoring_was_broken_off_is_opened_by_nobody() {
    let directory = TemporaryDirectory::new();
    let (options, path) = small(&directory);
    let new = options_of(&root(&directory).join("new"), &options);
    // restored_not_opened: all records have come, and the manifest does not agree.
    let manifest = std::fs::read(path.join(MANIFEST)).unwrap();
    std::fs::write(path.join(MANIFEST), &manifest[..manifest.len() - 1]).unwrap();
    restore(&path, &new, &mut |_| {}).unwrap_err();
    for create in [true, false] {
        let error = Store::open(&DatabaseOptions { create, ..new.clone() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("broken off"), "{error}");
    }
    let checked = tierstone::check(&new.directories, 4 << 20, &mut |_| {}).unwrap();
    assert!(
        checked.is_damaged() && checked.findings[0].detail.contains("broken off"),
        "{:?}",
        checked.findings
    );
    let (source, target) = (new.directories.clone(), vec![root(&directory).join("repaired")]);
    let repair = tierstone::RepairOptions { source, target, memory_bytes: 4 << 20 };
    assert_eq!(tierstone::repair(&repair, &mut |_| {}).unwrap_err().kind(), ErrorKind::Corrupt);
    // Nor does another restore go over it.
    std::fs::write(path.join(MANIFEST), &manifest).unwrap();
    let error = restore(&path, &new, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[test]
fn a_stream_is_a_backup_too() {
    let directory = TemporaryDirectory::new();
    let (options, path) = small(&directory);
    let file = root(&directory).join("stream");
    let mut store = Store::open(&options).unwrap();
    let stream = std::fs::File::create(&file).unwrap();
    let mut backup = store.begin_backup(BackupWriter::stream(stream)).unwrap();
    while backup.step(&mut store).unwrap().is_none() {}
    store.close().unwrap();
    let report = verify_backup(&file, &mut |_| {}).unwrap();
    assert_eq!(report.records, verify_backup(&path, &mut |_| {}).unwrap().records);
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(verify_backup_stream(&mut &bytes[..], &mut |_| {}).unwrap(), report);
    for len in 0..bytes.len() {
        let error = verify_backup_stream(&mut &bytes[..len], &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len} bytes");
    }
    let new = options_of(&root(&directory).join("new"), &options);
    assert_eq!(restore_stream(&mut &bytes[..], &new, &mut |_| {}).unwrap(), report);
    assert_eq!(Store::open(&new).unwrap().get(b"earth").unwrap().as_deref(), Some(&b"a planet"[..]));
}

#[test]
fn nothing_is_restored_over_a_store_and_a_backup_that_is_dropped_ends() {
    let directory = TemporaryDirectory::new();
    let (options, path) = small(&directory);
    let error = restore(&path, &options_of(&options.directories[0], &options), &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let missing = restore(root(&directory).join("nowhere"), &options, &mut |_| {}).unwrap_err();
    assert_ne!(missing.kind(), ErrorKind::Corrupt, "{missing}");
    let mut store = Store::open(&options).unwrap();
    assert_eq!(store.get(b"mars").unwrap().as_deref(), Some(&b"a planet"[..]));
    drop(store.begin_backup(BackupWriter::stream(Vec::new())).unwrap());
    let again = root(&directory).join("again");
    assert_eq!(store.backup(&again, &mut |_| {}).unwrap().records, 4);
}

#[test]
fn nothing_is_restored_into_the_backup_itself_or_around_it() {
    let directory = TemporaryDirectory::new();
    let (options, path) = small(&directory);
    let names = || {
        let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    for target in [path.clone(), path.join("new"), path.parent().unwrap().to_path_buf()] {
        let error = restore(&path, &options_of(&target, &options), &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains("lies apart from its backup"), "{error}");
        assert!(names() == before && !target.join("member.tier").exists(), "nothing is made");
    }
    let new = options_of(&root(&directory).join("new"), &options);
    restore(&path, &new, &mut |_| {}).unwrap();
}

#[test]
fn what_expires_keeps_its_time_and_what_has_expired_is_left_out() {
    let directory = TemporaryDirectory::new();
    let options = directory.options(backends()[0]);
    let mut store = Store::open(&options).unwrap();
    let at = |at_ms| PutOptions { expiry: Expiry::At(at_ms) };
    store.put_with(b"past", b"1", at(1)).unwrap();
    store.put_with(b"future", b"2", at(FAR_MS)).unwrap();
    let path = root(&directory).join("backup");
    assert_eq!(store.backup(&path, &mut |_| {}).unwrap().records, 1);
    let new = options_of(&root(&directory).join("new"), &options);
    restore(&path, &new, &mut |_| {}).unwrap();
    let found = contents(&mut Store::open(&DatabaseOptions { databases: 3, ..new }).unwrap());
    let expected = (("0".to_owned(), b"future".to_vec()), (b"2".to_vec(), Some(FAR_MS)));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [expected]);
}
