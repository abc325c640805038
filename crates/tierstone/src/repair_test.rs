use super::*;
use crate::{KeyspaceOptions, Store};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tierstone_engine::{Engine, IndexKind};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("tierstone-repair-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    Folder(path)
}

fn options(directory: &Path) -> DatabaseOptions {
    DatabaseOptions {
        segment_bytes: Some(256 << 10),
        capacity_bytes: Some(64 << 20),
        durable_method: Some(DurableMethod::WriteThenFlush),
        ..DatabaseOptions::new(directory)
    }
}

fn name(number: u32) -> Vec<u8> {
    format!("key:{number:05}").into_bytes()
}

/// Every store has 4,000 keys of which the first thousand were overwritten, some were deleted, and an
/// ordered keyspace.
fn fill(directory: &Path) {
    let mut store = Store::open(&options(directory)).unwrap();
    for number in 0..4_000 {
        let _ = store.put_nowait(&name(number), format!("old {number}").as_bytes()).unwrap();
    }
    for number in 0..1_000 {
        let _ = store.put_nowait(&name(number), format!("new {number}").as_bytes()).unwrap();
    }
    for number in 3_900..4_000 {
        store.delete(&name(number)).unwrap();
    }
    let ordered = KeyspaceOptions { index: Some(IndexKind::Ordered), ..KeyspaceOptions::default() };
    let mut days = store.open_keyspace("days", ordered).unwrap();
    days.put(b"monday", b"1").unwrap();
    days.put(b"tuesday", b"2").unwrap();
    store.close().unwrap();
}

fn repaired(source: &Path, target: &Path) -> CheckReport {
    let options = RepairOptions {
        source: vec![source.to_owned()],
        target: vec![target.to_owned()],
        memory_bytes: 64 << 20,
    };
    repair(&options, &mut |_| {}).unwrap()
}

/// For a store that repair has made: it has chosen how writes become durable.
fn new_options(directory: &Path) -> DatabaseOptions {
    DatabaseOptions { durable_method: None, ..options(directory) }
}

fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_whole_store_is_copied_and_left_as_it_was() {
    let (source, target) = (folder("whole"), folder("whole-new"));
    fill(&source.0);
    let before = files(&source.0);
    let report = repaired(&source.0, &target.0);
    assert_eq!((report.saved_keys, report.reverted_keys, report.unsaved_keys), (3_902, 0, 0));
    assert!(files(&source.0) == before, "the source has changed");
    let mut store = Store::open(&new_options(&target.0)).unwrap();
    assert_eq!(store.len(), 3_900);
    // Ids of large values are made of sequences: none may be given a second time.
    assert!(store.lanes[0].engine.applied_seq() > 5_102, "{}", store.lanes[0].engine.applied_seq());
    assert_eq!(store.get(&name(5)).unwrap().unwrap(), b"new 5");
    assert_eq!(store.get(&name(2_000)).unwrap().unwrap(), b"old 2000");
    assert_eq!(store.get(&name(3_950)).unwrap(), None);
    let mut days = store.open_keyspace("days", KeyspaceOptions::default()).unwrap();
    let all: Vec<_> = days.range(..).map(|entry| entry.unwrap().key).collect();
    assert_eq!(all, [b"monday".to_vec(), b"tuesday".to_vec()]);
}

#[test]
fn damage_costs_what_it_hits_and_nothing_else() {
    let (source, target) = (folder("hit"), folder("hit-new"));
    fill(&source.0);
    // Everywhere a few bytes: headers of segments, groups and records.
    let mut hits = 0u64;
    for (path, bytes) in files(&source.0) {
        if !path.file_name().unwrap().to_string_lossy().starts_with("segment") {
            continue;
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for at in (9_000..bytes.len() as u64).step_by(20_011) {
            file.write_all_at(&[0x5a; 3], at).unwrap();
            hits += 1;
        }
    }
    let report = repaired(&source.0, &target.0);
    assert!(report.is_damaged() && hits > 10);
    let mut store = Store::open(&new_options(&target.0)).unwrap();
    let mut lost = 0u64;
    for number in 0..3_900 {
        match store.get(&name(number)).unwrap() {
            None => lost += 1,
            Some(value) if value == format!("new {number}").as_bytes() => assert!(number < 1_000),
            Some(value) => assert_eq!(value, format!("old {number}").as_bytes()),
        }
    }
    assert!(lost <= hits * 3, "{lost} keys are lost after {hits} hits");
    assert!(lost <= report.unsaved_keys + report.lost_keys, "{lost} lost, {report:?}");
}

#[test]
fn nothing_is_written_over() {
    let (source, target) = (folder("over"), folder("over-new"));
    fill(&source.0);
    fill(&target.0);
    let options = RepairOptions {
        source: vec![source.0.clone()],
        target: vec![target.0.clone()],
        memory_bytes: 64 << 20,
    };
    assert_eq!(repair(&options, &mut |_| {}).unwrap_err().kind(), ErrorKind::InvalidInput);
    for target in [source.0.clone(), source.0.join("new"), source.0.join("..")] {
        let error =
            repair(&RepairOptions { target: vec![target], ..options.clone() }, &mut |_| {}).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("lies apart"), "{error}");
    }
    assert!(!source.0.join("new").exists(), "nothing is made");
}

#[test]
fn nothing_is_repaired_into_persistent_memory() {
    let source = folder("nvm");
    fill(&source.0);
    for target in ["nvm:emulated:64MiB".to_owned(), format!("nvm:{}-region", source.0.display())] {
        let target = vec![PathBuf::from(target)];
        let options = RepairOptions { source: vec![source.0.clone()], target, memory_bytes: 64 << 20 };
        let error = repair(&options, &mut |_| {}).unwrap_err();
        let is_told = error.message().contains("into which no store is repaired");
        assert!(error.kind() == ErrorKind::InvalidInput && is_told, "{error}");
    }
}

#[test]
fn what_a_repair_that_died_leaves_is_opened_by_nobody_and_what_one_made_that_ended_is() {
    let (source, target, other) = (folder("dies"), folder("dies-new"), folder("dies-again"));
    let mut store = Store::open(&options(&source.0)).unwrap();
    for number in 0..30_000 {
        let _ = store.put_nowait(&name(number), b"value").unwrap();
    }
    store.close().unwrap();
    // So little memory that the source is read twice: what the first pass has found is in the target then.
    let little = RepairOptions {
        source: vec![source.0.clone()],
        target: vec![target.0.clone()],
        memory_bytes: 1 << 20,
    };
    let mut dies = |at: CheckProgress| assert!(at.bytes * 4 < at.bytes_total * 3, "it dies here");
    let died = catch_unwind(AssertUnwindSafe(|| repair(&little, &mut dies)));
    assert!(died.is_err(), "{died:?}");
    for create in [true, false] {
        let opened = Store::open(&DatabaseOptions { create, ..new_options(&target.0) });
        let error = opened.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("a repair, was broken off"), "{error}");
    }
    let checked = check(&little.target, 64 << 20, &mut |_| {}).unwrap();
    assert!(checked.findings.iter().any(|found| found.detail.contains("broken off")), "{checked:?}");
    assert_eq!(repair(&little, &mut |_| {}).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(repaired(&source.0, &other.0).saved_keys, 30_000);
    let mut store = Store::open(&new_options(&other.0)).unwrap();
    assert_eq!(store.len(), 30_000);
    assert_eq!(store.get(&name(29_999)).unwrap().unwrap(), b"value");
}
