//! Backups that are made since others: chains of them are restored as what the store held, and nothing else is taken for one.

use crate::changes::{Contents, FAR_MS, change, contents, options_of, root};
use crate::support::{TemporaryDirectory, backends};
use std::path::{Path, PathBuf};
use tierstone::{
    BackupWriter, Batch, DatabaseOptions, ErrorKind, Expiry, IndexKind, PutOptions, SharedStore, Store,
    backup_base, restore, restore_stream, restore_with, verify_backup, verify_backup_with,
};
use tierstone_base::SeededRandom;
use tierstone_store::backup::{BackupReader, FrameHeader, HEADER_BYTES};

const FRAMES: &str = "backup.frames";
const MANIFEST: &str = "backup.manifest";

/// Makes the next backup of a chain, since the one before unless it is the first, with either handle.
fn next_backup(store: Store, options: &DatabaseOptions, paths: &[PathBuf], is_shared: bool) -> Store {
    let (path, base) = (paths.last().unwrap(), paths.len().checked_sub(2).map(|at| &paths[at]));
    if !is_shared {
        let mut store = store;
        match base {
            Some(base) => store.backup_since(base, path, &mut |_| {}).unwrap(),
            None => store.backup(path, &mut |_| {}).unwrap(),
        };
        return store;
    }
    store.close().unwrap();
    let shared = SharedStore::open(options).unwrap();
    match base {
        Some(base) => shared.backup_since(base, path, &mut |_| {}).unwrap(),
        None => shared.backup(path, &mut |_| {}).unwrap(),
    };
    shared.close().unwrap();
    Store::open(options).unwrap()
}

#[test]
fn every_backup_of_a_chain_is_restored_as_what_was_there_at_its_cut() {
    let mut seeds = SeededRandom::new(43);
    let backend = backends()[0];
    for (shards, index) in [(1, IndexKind::Hash), (3, IndexKind::Ordered), (3, IndexKind::Hash)] {
        let seed = seeds.next_u64();
        println!("{index:?}, {shards} shards, seed {seed}");
        let mut random = SeededRandom::new(seed);
        let directory = TemporaryDirectory::new();
        let options = DatabaseOptions {
            shards,
            memory_bytes: 12 << 20,
            index: Some(index),
            databases: 3,
            capacity_bytes: Some(32 << 20),
            ..directory.options(backend)
        };
        let mut store = Store::open(&options).unwrap();
        let (mut paths, mut expected): (Vec<PathBuf>, Vec<Contents>) = (Vec::new(), Vec::new());
        for round in 0..6 {
            for _ in 0..[600, 3, 200, 0, 500, 60][round] {
                change(&mut store, &mut random);
            }
            if round == 4 {
                // More than there is space for: all is cleaned.
                for number in 0..400u32 {
                    let mut batch = Batch::new();
                    for key in 0..50u32 {
                        batch.put(&key.to_be_bytes(), &[number as u8; 2_000]);
                    }
                    store.write(&batch).unwrap();
                }
            }
            expected.push(contents(&mut store));
            paths.push(root(&directory).join(format!("backup {round}")));
            store = next_backup(store, &options, &paths, random.chance(0.5));
        }
        store.close().unwrap();
        for (round, (path, expected)) in paths.iter().zip(&expected).enumerate() {
            let report = verify_backup(path, &mut |_| {}).unwrap();
            assert_eq!((report.shown, report.bases), (expected.len() as u64, round as u64), "seed {seed}");
            for new_shards in [1, 2] {
                let new = options_of(&root(&directory).join(format!("{round} {new_shards}")), &options);
                let new = DatabaseOptions { shards: new_shards, ..new };
                assert_eq!(restore(path, &new, &mut |_| {}).unwrap(), report);
                let mut restored = Store::open(&new).unwrap();
                assert!(
                    contents(&mut restored) == *expected,
                    "seed {seed}, backup {round}, {new_shards} shards"
                );
                restored.close().unwrap();
                std::fs::remove_dir_all(&new.directories[0]).unwrap();
            }
        }
    }
}

/// A store of some planets, and a chain of three backups of it.
fn small(directory: &TemporaryDirectory) -> (DatabaseOptions, Vec<PathBuf>) {
    let options = directory.options(backends()[0]);
    let mut store = Store::open(&options).unwrap();
    let mut paths = Vec::new();
    for (number, planet) in ["mercury", "venus", "earth"].iter().enumerate() {
        store.put(planet.as_bytes(), b"a planet").unwrap();
        store.put(b"newest", planet.as_bytes()).unwrap();
        let options = PutOptions { expiry: Expiry::At(FAR_MS + number as u64) };
        store.put_with(b"long", &[9; 600], options).unwrap();
        paths.push(root(directory).join(format!("backup {number}")));
        store = next_backup(store, &directory.options(backends()[0]), &paths, false);
    }
    store.close().unwrap();
    (options, paths)
}

/// Neither verifying nor restoring takes the chain that ends at `path` for whole; gives what is said.
#[track_caller]
fn refused(path: &Path, bases: &[PathBuf], new: &DatabaseOptions, what: &str) -> String {
    let known = [ErrorKind::Corrupt, ErrorKind::Incompatible, ErrorKind::InvalidInput];
    let error = verify_backup_with(path, bases, &mut |_| {}).unwrap_err();
    assert!(known.contains(&error.kind()), "{what}: {error}");
    let told = restore_with(path, bases, new, &mut |_| {}).unwrap_err();
    assert!(known.contains(&told.kind()), "{what}: {told}");
    let opened = Store::open(&DatabaseOptions { create: false, ..new.clone() });
    assert!(opened.is_err(), "{what}: a store was made");
    let _ = std::fs::remove_dir_all(&new.directories[0]);
    told.message().to_owned()
}

#[test]
fn every_flipped_byte_of_every_backup_of_a_chain_is_noticed() {
    let directory = TemporaryDirectory::new();
    let (options, paths) = small(&directory);
    let new = options_of(&root(&directory).join("new"), &options);
    let last = paths.last().unwrap();
    for (path, file) in paths.iter().flat_map(|path| [(path, FRAMES), (path, MANIFEST)]) {
        let whole = std::fs::read(path.join(file)).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(path.join(file), &damaged).unwrap();
            verify_backup(last, &mut |_| {}).unwrap_err();
            // Making stores takes longer.
            if at % 23 == 0 {
                refused(last, &[], &new, &format!("{}, {file}, byte {at}", path.display()));
            }
        }
        std::fs::write(path.join(file), &whole).unwrap();
    }
    restore(last, &new, &mut |_| {}).unwrap();
}

#[test]
fn a_chain_with_a_missing_exchanged_or_unfinished_backup_is_refused_by_name() {
    let directory = TemporaryDirectory::new();
    let (options, paths) = small(&directory);
    let new = options_of(&root(&directory).join("new"), &options);
    let away = root(&directory).join("away");
    for (number, path) in paths.iter().enumerate().take(2) {
        std::fs::rename(path, &away).unwrap();
        std::fs::create_dir(root(&directory).join("elsewhere")).unwrap();
        // It is found under any name beside the others, and where it is said to be.
        assert_eq!(verify_backup(&paths[2], &mut |_| {}).unwrap().bases, 2);
        let elsewhere = root(&directory).join("elsewhere").join("it");
        std::fs::rename(&away, &elsewhere).unwrap();
        let told = refused(&paths[2], &[], &new, "missing");
        let newer = format!("backup {}", number + 1);
        assert!(told.contains(&newer) && told.contains("--base"), "{told}");
        // By itself, or as one of a directory.
        for named in [elsewhere.clone(), root(&directory).join("elsewhere")] {
            assert_eq!(verify_backup_with(&paths[2], &[named], &mut |_| {}).unwrap().bases, 2);
        }
        // Without a manifest it is none.
        std::fs::rename(elsewhere.join(MANIFEST), root(&directory).join("manifest")).unwrap();
        let told = refused(&paths[2], std::slice::from_ref(&elsewhere), &new, "unfinished");
        assert!(told.contains("not complete") && told.contains("elsewhere"), "{told}");
        let error = BackupWriter::create_since(root(&directory).join("next"), &elsewhere).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        std::fs::rename(root(&directory).join("manifest"), elsewhere.join(MANIFEST)).unwrap();
        std::fs::rename(&elsewhere, path).unwrap();
        std::fs::remove_dir(root(&directory).join("elsewhere")).unwrap();
    }
    // Files of one in the place of another's.
    for file in [FRAMES, MANIFEST] {
        let (one, other) = (paths[0].join(file), paths[1].join(file));
        let bytes = (std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
        std::fs::write(&one, &bytes.1).unwrap();
        refused(&paths[2], &[], &new, "exchanged");
        std::fs::write(&one, &bytes.0).unwrap();
    }
    // A whole backup with the same id, and less in it.
    let frames = std::fs::read(paths[0].join(FRAMES)).unwrap();
    let manifest = std::fs::read(paths[0].join(MANIFEST)).unwrap();
    let head = FrameHeader::decode(frames.first_chunk().unwrap()).unwrap();
    let start = &frames[..HEADER_BYTES + head.len];
    let mut reader = BackupReader::default();
    reader.take_whole(start).unwrap();
    std::fs::write(paths[0].join(FRAMES), start).unwrap();
    std::fs::write(paths[0].join(MANIFEST), reader.manifest().unwrap()).unwrap();
    assert_eq!(verify_backup(&paths[0], &mut |_| {}).unwrap().records, 0);
    let told = refused(&paths[2], &[], &new, "another with the same id");
    assert!(told.contains("backup 1") && told.contains("one of them was changed"), "{told}");
    std::fs::write(paths[0].join(FRAMES), &frames).unwrap();
    std::fs::write(paths[0].join(MANIFEST), &manifest).unwrap();
    // A stream cannot be one of a chain.
    let bytes = [FRAMES, MANIFEST].map(|file| std::fs::read(paths[1].join(file)).unwrap()).concat();
    let error = restore_stream(&mut &bytes[..], &new, &mut |_| {}).unwrap_err();
    assert!(error.message().contains("from its directory"), "{error}");
    assert_eq!(verify_backup(&paths[2], &mut |_| {}).unwrap().shown, 5);
}

#[test]
fn copies_of_a_base_that_were_broken_off_or_changed_do_not_hide_it() {
    let directory = TemporaryDirectory::new();
    let (options, paths) = small(&directory);
    let copy = |number: usize| root(&directory).join(format!("copy {number}"));
    // Directories are read in any order: some come before the whole ones.
    for number in 0..12 {
        let of = &paths[number % 2];
        let mut manifest = std::fs::read(of.join(MANIFEST)).unwrap();
        std::fs::create_dir(copy(number)).unwrap();
        std::fs::copy(of.join(FRAMES), copy(number).join(FRAMES)).unwrap();
        match number % 3 {
            0 => continue,
            1 => manifest.truncate(20),
            _ => *manifest.last_mut().unwrap() ^= 1,
        }
        std::fs::write(copy(number).join(MANIFEST), manifest).unwrap();
    }
    let report = verify_backup(&paths[2], &mut |_| {}).unwrap();
    assert_eq!((report.shown, report.bases), (5, 2));
    let named = [copy(0), copy(1), copy(4)];
    assert_eq!(verify_backup_with(&paths[2], &named, &mut |_| {}).unwrap(), report);
    let new = options_of(&root(&directory).join("new"), &options);
    assert_eq!(restore(&paths[2], &new, &mut |_| {}).unwrap(), report);
    // Where there is no whole one, a copy is told with what is wrong with it.
    std::fs::remove_dir_all(&paths[0]).unwrap();
    let other = options_of(&root(&directory).join("other"), &options);
    let told = refused(&paths[2], &[copy(0)], &other, "copies only");
    assert!(told.contains("copy 0") && told.contains("not complete"), "{told}");
    assert!(refused(&paths[2], &[], &other, "copies only").contains("copy "));
}

#[test]
fn a_backup_that_was_broken_off_is_no_base_and_none_of_a_chain() {
    let directory = TemporaryDirectory::new();
    let (options, paths) = small(&directory);
    let new = options_of(&root(&directory).join("new"), &options);
    let frames = std::fs::read(paths[2].join(FRAMES)).unwrap();
    let manifest = std::fs::read(paths[2].join(MANIFEST)).unwrap();
    // backup_without_manifest
    std::fs::remove_file(paths[2].join(MANIFEST)).unwrap();
    for len in (0..=frames.len()).step_by(7) {
        std::fs::write(paths[2].join(FRAMES), &frames[..len]).unwrap();
        verify_backup(&paths[2], &mut |_| {}).unwrap_err();
        assert_eq!(backup_base(&paths[2]).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    std::fs::write(paths[2].join(MANIFEST), &manifest).unwrap();
    for len in (0..frames.len()).step_by(7) {
        std::fs::write(paths[2].join(FRAMES), &frames[..len]).unwrap();
        verify_backup(&paths[2], &mut |_| {}).unwrap_err();
        assert_eq!(backup_base(&paths[2]).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    std::fs::write(paths[2].join(FRAMES), &frames).unwrap();
    restore(&paths[2], &new, &mut |_| {}).unwrap();
}

#[test]
fn bases_of_other_stores_other_numbers_of_shards_and_the_oldest_format_are_refused() {
    let directory = TemporaryDirectory::new();
    let (options, paths) = small(&directory);
    let next = |number: u32| root(&directory).join(format!("next {number}"));
    let made = |options: &DatabaseOptions, base: &Path, number: u32| {
        let mut store = Store::open(options).unwrap();
        let made = store.backup_since(base, next(number), &mut |_| {});
        // Whatever became of it, the next one may begin.
        let begun = store.begin_backup(BackupWriter::stream(Vec::new())).map(drop);
        begun.unwrap();
        store.close().unwrap();
        made
    };
    let other = options_of(&root(&directory).join("other"), &options);
    Store::open(&other).unwrap().close().unwrap();
    let error = made(&other, &paths[2], 0).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("another store"), "{error}");
    let three = DatabaseOptions { shards: options.shards + 2, ..options.clone() };
    let error = made(&three, &paths[2], 1).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("shards"), "{error}");
    assert!(verify_backup(next(1), &mut |_| {}).is_err());
    // What was restored is another store.
    let restored = options_of(&root(&directory).join("restored"), &options);
    restore(&paths[2], &restored, &mut |_| {}).unwrap();
    let error = made(&restored, &paths[2], 2).unwrap_err();
    assert!(error.message().contains("another store"), "{error}");
    let old = oldest(&directory);
    let error = backup_base(&old).unwrap_err();
    assert!(error.message().contains("without parts"), "{error}");
    assert_eq!(made(&options, &paths[2], 3).unwrap().records, 0);
    assert_eq!(verify_backup(next(3), &mut |_| {}).unwrap().shown, 5);
}

/// A backup of the first version of the format.
fn oldest(directory: &TemporaryDirectory) -> PathBuf {
    let text = include_str!("../../store/src/backup/version_1.txt");
    let frames: Vec<Vec<u8>> = text
        .split("\n\n")
        .map(|frame| {
            let words = frame.lines().flat_map(|line| line.split_whitespace().skip(1));
            words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect()
        })
        .collect();
    let path = root(directory).join("oldest");
    std::fs::create_dir(&path).unwrap();
    let (manifest, rest) = frames.split_last().unwrap();
    std::fs::write(path.join(FRAMES), rest.concat()).unwrap();
    std::fs::write(path.join(MANIFEST), manifest).unwrap();
    path
}

#[test]
fn a_backup_of_the_first_version_is_verified_and_restored() {
    let directory = TemporaryDirectory::new();
    let path = oldest(&directory);
    let report = verify_backup(&path, &mut |_| {}).unwrap();
    assert_eq!((report.records, report.shown, report.bases), (3, 3, 0));
    let new = options_of(&root(&directory).join("new"), &directory.options(backends()[0]));
    assert_eq!(restore(&path, &new, &mut |_| {}).unwrap(), report);
    let mut store = Store::open(&new).unwrap();
    for key in [&b"planet:3"[..], b"a", b"b"] {
        assert_eq!(store.get(key).unwrap().as_deref(), Some(&b"Earth"[..]));
    }
    store.close().unwrap();
}
