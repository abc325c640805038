//! Stores that lie wholly in a region's file.

use crate::{
    Batch, Database, DatabaseOptions, Entry, ErrorKind, IndexKind, KeyspaceOptions, RedoOptions, Result,
    SharedStore, Store,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tierstone_base::SeededRandom;
use tierstone_media::Guarantee;
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
    let found: Vec<Vec<u8>> =
        store.range(&key(100)[..]..).limit(50).map(|entry| entry.unwrap().key).collect();
    assert_eq!(found, (100..150).map(key).collect::<Vec<_>>());
    store.close().unwrap();
    let store = SharedStore::open(&file.options()).unwrap();
    assert_eq!(store.get(&key(499)).unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn partial_keys_take_less_memory_and_show_the_same() {
    let file = File::new("partial");
    let long = |number: u32| {
        format!("a-long-name-{:08x}-{number:032}", number.wrapping_mul(0x9e37_79b9)).into_bytes()
    };
    let whole = DatabaseOptions { shards: 1, ..file.options() };
    let mut store = Store::open(&whole).unwrap();
    (0..20_000).for_each(|number| store.put(&long(number), &number.to_le_bytes()).unwrap());
    let all: Vec<Entry> = store.range(..).map(Result::unwrap).collect();
    let of_whole = store.statistics().index_bytes;
    store.close().unwrap();
    let mut store = Store::open(&DatabaseOptions { nvm_partial_keys: true, ..whole.clone() }).unwrap();
    assert_eq!(store.range(..).map(Result::unwrap).collect::<Vec<Entry>>(), all);
    assert_eq!(store.get(&long(19_999)).unwrap().as_deref(), Some(&19_999_u32.to_le_bytes()[..]));
    let of_parts = store.statistics().index_bytes;
    assert!(of_parts < of_whole * 2 / 3, "{of_parts} bytes, and {of_whole} for whole keys");
    drop(store);
    let on_device = DatabaseOptions { nvm_partial_keys: true, ..DatabaseOptions::new(std::env::temp_dir()) };
    assert_eq!(Store::open(&on_device).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn the_size_that_a_refusal_names_is_enough_and_stays() {
    let file = File::new("least");
    for shards in [1, 3] {
        let small = DatabaseOptions { capacity_bytes: Some(1 << 20), shards, ..file.options() };
        let said = Store::open(&small).unwrap_err().message().to_owned();
        assert!(!file.0.exists(), "{said}");
        let least = said.split("give it ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let least: u64 = least.parse().unwrap();
        let less = DatabaseOptions { capacity_bytes: Some(least - 64), ..small.clone() };
        assert_eq!(Store::open(&less).unwrap_err().kind(), ErrorKind::InvalidInput);
        let enough = DatabaseOptions { capacity_bytes: Some(least), ..small };
        Store::open(&enough).unwrap().put(b"key", b"value").unwrap();
        for capacity in [least / 2, least * 2] {
            let other = DatabaseOptions { capacity_bytes: Some(capacity), ..enough.clone() };
            let error = Store::open(&other).unwrap_err();
            assert!(error.message().contains("keeps the size"), "{error}");
        }
        for capacity_bytes in [Some(least), None] {
            let same = DatabaseOptions { capacity_bytes, ..enough.clone() };
            assert!(Store::open(&same).unwrap().get(b"key").unwrap().is_some());
        }
        std::fs::remove_file(&file.0).unwrap();
    }
}

/// The crash mark `region-without-superblock`: the engine's part is made, and nothing says so yet.
#[test]
fn a_size_that_no_store_can_use_is_refused_before_anything_is_made() {
    let file = File::new("large");
    let bytes = tierstone_pmstore::largest_region_bytes(crate::nvm::ENGINE_BASE) + 64;
    let options = DatabaseOptions { capacity_bytes: Some(bytes), ..file.options() };
    let emulated = DatabaseOptions {
        capacity_bytes: None,
        directories: vec![format!("nvm:emulated:{bytes}").into()],
        ..file.options()
    };
    for options in [options, emulated] {
        let error = Database::open(&options).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("more than a store in persistent memory can use"), "{error}");
    }
    assert!(!file.0.exists());
}

#[test]
fn the_longest_value_in_memory_is_restored_to_devices() {
    use tierstone_pmstore::settings::VALUE_BYTES_MAX;
    let geometry = tierstone_media::Geometry { meta_bytes: 0, segment_bytes: 32 << 20, segment_limit: 1 };
    assert_eq!(VALUE_BYTES_MAX, tierstone_logstore::value_bytes_max(geometry), "both take the same");
    let (file, folder) = (File::new("longest"), Folder::new("longest"));
    let value: Vec<u8> = (0..VALUE_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    let mut store =
        Store::open(&DatabaseOptions { capacity_bytes: Some(128 << 20), ..file.options() }).unwrap();
    store.put(&[b'k'; 1_024], &value).unwrap();
    store.backup(folder.0.join("backup"), &mut |_| {}).unwrap();
    let devices = DatabaseOptions {
        capacity_bytes: Some(1 << 30),
        memory_bytes: 64 << 20,
        shards: 1,
        ..DatabaseOptions::new(folder.0.join("devices"))
    };
    crate::restore(folder.0.join("backup"), &devices, &mut |_| {}).unwrap();
    let mut store = Store::open(&devices).unwrap();
    assert!(store.get(&[b'k'; 1_024]).unwrap() == Some(value));
}

#[test]
fn a_region_whose_making_was_cut_off_becomes_a_store() {
    let file = File::new("cut-off");
    make_engine_only(&file);
    let mut store = Store::open(&file.options()).unwrap();
    store.put(b"key", b"value").unwrap();
    drop(store);
    let mut store = Store::open(&file.options()).unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Makes the engine's part of a region, and nothing in front of it.
fn make_engine_only(file: &File) {
    let settings = RegionSettings { demand: RegionDemand::AnyGuarantee, ..RegionSettings::default() };
    let region = MappedRegion::create(&file.0, 64 << 20, &settings).unwrap();
    let inner = tierstone_pmstore::OpenSettings {
        base: super::ENGINE_BASE,
        shard_count: 2,
        ..tierstone_pmstore::OpenSettings::default()
    };
    tierstone_pmstore::open(Arc::new(region), &inner).unwrap();
}

/// The superblock's two slots, behind the region's own header.
fn superblock_of(bytes: &mut [u8]) -> &mut [u8] {
    let start = bytes.len() - (64 << 20);
    &mut bytes[start..][..super::META_BYTES as usize]
}

/// Leaves of the superblock a first slot with the words in `left` only, and a second that was never written.
fn tear_first_superblock(file: &File, left: std::ops::Range<usize>) {
    let mut bytes = std::fs::read(&file.0).unwrap();
    let slots = superblock_of(&mut bytes);
    slots.fill(0);
    slots[left].fill(7);
    std::fs::write(&file.0, bytes).unwrap();
}

/// Power that is lost while the first superblock is written tears its words; shards have no logs then. The crash mark
/// `torn-making-half-blank`: power is lost again while the torn slot is made blank.
#[test]
fn a_store_whose_first_superblock_is_torn_is_made_anew_only_if_nothing_was_written() {
    for left in [40..48, 0..8] {
        let file = File::new("half-blank");
        make_engine_only(&file);
        tear_first_superblock(&file, left);
        drop(Store::open(&file.options()).unwrap());
        drop(Store::open(&file.options()).unwrap());
    }
    let file = File::new("torn");
    make_engine_only(&file);
    tear_first_superblock(&file, 8..24);
    let mut store = Store::open(&file.options()).unwrap();
    store.put(b"key", b"value").unwrap();
    drop(store);
    let mut store = Store::open(&file.options()).unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(store);
    tear_first_superblock(&file, 8..24);
    let error = Store::open(&file.options()).expect_err("what was served is not made anew");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let mut after = std::fs::read(&file.0).unwrap();
    assert_eq!(superblock_of(&mut after)[8..24], [7; 16], "what is refused is not written to");
}

/// What opening `file` as a store, twice, and checking it say; it stays as it is.
fn refused(file: &File) -> ErrorKind {
    let before = std::fs::read(&file.0).unwrap();
    let kinds: Vec<ErrorKind> = (0..2)
        .map(|_| Store::open(&file.options()).map(drop).expect_err("it is no store, or not whole").kind())
        .collect();
    let checked = crate::repair::check_nvm(&file.options().directories, 16 << 20, &mut |_| {});
    assert_eq!(checked.map(drop).expect_err("a check sees it, too").kind(), kinds[0]);
    assert_eq!(kinds[0], kinds[1]);
    assert!(std::fs::read(&file.0).unwrap() == before, "what is refused is not written to");
    kinds[0]
}

#[test]
fn the_region_of_a_redo_log_is_no_place_for_a_store_and_loses_nothing_by_the_mistake() {
    let folder = Folder::new("redo");
    let mut other = Store::open(&DatabaseOptions::new(folder.0.join("other"))).unwrap();
    other.put(b"key", b"value").unwrap();
    other.backup(folder.0.join("backup"), &mut |_| {}).unwrap();
    // Each opening writes the other of two headers.
    for openings in 1..=3 {
        let file = File::new("redo-region");
        let redo =
            RedoOptions { new_bytes: Some(64 << 20), ..RedoOptions::new(file.0.display().to_string()) };
        let options = DatabaseOptions {
            capacity_bytes: Some(256 << 20),
            memory_bytes: 16 << 20,
            any_guarantee: true,
            redo: Some(redo),
            ..DatabaseOptions::new(folder.0.join(format!("store-{openings}")))
        };
        for opening in 0..openings {
            let mut store = Store::open(&options).unwrap();
            for number in opening * 100..opening * 100 + 300 {
                store.put(&key(number), &[number as u8; 100]).unwrap();
            }
            // As a crash of the process would: the newest writes lie in the region only.
            drop(store);
        }
        assert_eq!(refused(&file), ErrorKind::Incompatible);
        let before = std::fs::read(&file.0).unwrap();
        let target = DatabaseOptions { index: None, ..file.options() };
        let restored = (0..2).map(|_| crate::restore(folder.0.join("backup"), &target, &mut |_| {}).is_ok());
        assert!(restored.eq([false, false]) && std::fs::read(&file.0).unwrap() == before);
        let mut store = Store::open(&options).unwrap();
        let all = openings * 100 + 200;
        assert!((0..all).all(|number| store.get(&key(number)).unwrap() == Some(vec![number as u8; 100])));
    }
}

#[test]
fn a_store_without_its_superblock_or_its_engine_is_damaged_and_not_made_anew() {
    let file = File::new("halves");
    let mut store = Store::open(&file.options()).unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let whole = std::fs::read(&file.0).unwrap();
    let start = whole.len() - (64 << 20);
    let engine = start + super::ENGINE_BASE as usize;
    for zeros in [start..engine, start..start + super::META_BYTES as usize, engine..engine + 8] {
        let mut bytes = whole.clone();
        bytes[zeros].fill(0);
        std::fs::write(&file.0, &bytes).unwrap();
        assert_eq!(refused(&file), ErrorKind::Corrupt);
    }
    std::fs::write(&file.0, &whole).unwrap();
    let mut store = Store::open(&file.options()).unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn another_number_of_shards_is_refused_and_leaves_the_store_closed() {
    let file = File::new("other-shards");
    let mut store = Store::open(&file.options()).unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let other = DatabaseOptions { shards: 3, ..file.options() };
    let error = Store::open(&other).map(drop).unwrap_err();
    assert!(error.message().contains("was made with 2 shards"), "{error}");
    let report =
        crate::repair::check_nvm(&file.options().directories, 16 << 20, &mut |_| {}).unwrap().unwrap();
    assert!(report.clean && !report.is_damaged());
}

#[test]
fn a_restore_that_was_broken_off_is_told_by_a_check() {
    let (folder, file) = (Folder::new("cut-restore"), File::new("cut-restore"));
    let mut store = Store::open(&DatabaseOptions::new(folder.0.join("store"))).unwrap();
    for number in 0..200 {
        store.put(&key(number), &[1; 500_000]).unwrap();
    }
    store.backup(folder.0.join("backup"), &mut |_| {}).unwrap();
    let target = DatabaseOptions { index: None, ..file.options() };
    let error = crate::restore(folder.0.join("backup"), &target, &mut |_| {}).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let report =
        crate::repair::check_nvm(&file.options().directories, 16 << 20, &mut |_| {}).unwrap().unwrap();
    assert!(report.is_damaged() && report.findings.iter().any(|found| found.detail.contains("broken off")));
    let emulated = DatabaseOptions::new("nvm:emulated:256MiB");
    let error = crate::restore(folder.0.join("backup"), &emulated, &mut |_| {}).map(drop).unwrap_err();
    assert!(error.message().contains("gone when"), "{error}");
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

#[test]
fn a_file_without_dax_is_as_durable_as_its_file_system_by_msync() {
    let file = File::new("msync");
    let options = DatabaseOptions { msync: true, ..file.options() };
    let mut store = Store::open(&options).unwrap();
    for number in 0..50 {
        store.put(&key(number), b"value").unwrap();
    }
    drop(store);
    let database = Database::open(&options).unwrap();
    assert_eq!(database.durable_method(), "msync");
    let by_msync = database.guarantee();
    drop(database);
    let by_fence = Database::open(&file.options()).unwrap();
    assert_eq!(by_fence.durable_method(), "fence");
    assert!(by_msync >= by_fence.guarantee(), "{by_msync:?}");
    drop(by_fence);
    // What survives the loss of power is not refused any more where that is demanded; where the file lies in memory it is.
    let demanded = Store::open(&DatabaseOptions { any_guarantee: false, ..options });
    match by_msync {
        Guarantee::PowerFail => {
            assert_eq!(demanded.unwrap().get(&key(49)).unwrap().as_deref(), Some(&b"value"[..]));
        }
        _ => assert_eq!(demanded.err().unwrap().kind(), ErrorKind::Unsupported),
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn pairs(entries: impl Iterator<Item = Result<Entry>>) -> Pairs {
    entries.map(Result::unwrap).map(|entry| (entry.key, entry.value)).collect()
}

#[test]
fn snapshots_of_random_moments_show_those_moments_over_all_shards() {
    let file = File::new("snapshots");
    let mut store = Store::open(&file.options()).unwrap();
    let seed = SeededRandom::system_seed().unwrap();
    let mut random = SeededRandom::new(seed);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut alive = Vec::new();
    for round in 0..200 {
        for _ in 0..10 {
            let name = key(random.below(300) as u32);
            if random.chance(0.2) {
                assert_eq!(store.delete(&name).unwrap(), model.remove(&name).is_some(), "seed {seed}");
                continue;
            }
            let value = vec![random.below(256) as u8; random.below(3_000) as usize];
            let _ticket = store.put_nowait(&name, &value).unwrap();
            model.insert(name, value);
        }
        if round % 20 == 0 {
            let now: Pairs = model.clone().into_iter().collect();
            assert_eq!(pairs(store.range(..)), now, "seed {seed}");
            alive.push((store.snapshot().unwrap(), now));
        }
        if alive.len() > 3 {
            let (ended, shown) = alive.remove(random.below(3) as usize);
            let mut walked = pairs(ended.scan(&mut store));
            walked.sort();
            assert!(walked == shown, "seed {seed}, round {round}");
            assert!(pairs(ended.range(&mut store, ..)) == shown, "seed {seed}, round {round}");
            let mut backward = pairs(ended.range(&mut store, ..).backward());
            backward.reverse();
            assert!(backward == shown, "seed {seed}, round {round}");
            let names: Vec<Vec<u8>> = (0..300).map(key).collect();
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let values = ended.get_many(&mut store, &names).unwrap();
            let shown: BTreeMap<_, _> = shown.into_iter().collect();
            for (name, value) in names.into_iter().zip(values) {
                assert!(value.as_ref() == shown.get(name), "seed {seed}, round {round}");
            }
        }
    }
    drop(alive);
    store.put(b"last", b"").unwrap();
    while store.turn().unwrap() == Some(Duration::ZERO) {}
    let statistics = store.statistics();
    assert_eq!((statistics.snapshots, statistics.snapshot_pinned_bytes), (0, 0), "seed {seed}");
}

/// Batches move a value from key to key: a range of one moment shows one of it.
#[test]
fn ranges_of_the_shared_handle_show_one_moment_while_keys_come_and_go() {
    let file = File::new("moment");
    let store = SharedStore::open(&file.options()).unwrap();
    let tokens = 100u32;
    let place = |token: u32, round: u32| key((token * 7_919 + round).wrapping_mul(0x9e37_79b9) % 99_991);
    for token in 0..tokens {
        store.put(&[&place(token, 0)[..], &token.to_be_bytes()].concat(), &token.to_be_bytes()).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                for token in 0..tokens {
                    let name = |round| [&place(token, round)[..], &token.to_be_bytes()].concat();
                    let mut batch = Batch::new();
                    batch.delete(&name(round)).put(&name(round + 1), &token.to_be_bytes());
                    store.write(&batch).unwrap();
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        // What fails must not leave the writer running.
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let long_ago = store.snapshot().unwrap();
            let check = |found: Pairs| {
                let mut values: Vec<_> = found.into_iter().map(|(_, value)| value).collect();
                values.sort();
                let all: Vec<_> = (0..tokens).map(|token| token.to_be_bytes().to_vec()).collect();
                assert!(values == all, "{} values", values.len());
            };
            for _ in 0..10 {
                check(pairs(store.range(..)));
                check(pairs(store.snapshot().unwrap().range(..).backward()));
            }
            check(pairs(long_ago.range(..)));
            check(pairs(long_ago.scan()));
        }));
        stop.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
    assert_eq!(store.statistics().unwrap().snapshots, 0, "walks that have ended keep nothing");
    store.close().unwrap();
}

#[test]
fn a_lost_snapshot_says_so_and_none_outlives_its_process() {
    let file = File::new("lost");
    let mut options = DatabaseOptions { shards: 1, ..file.options() };
    options.shard.snapshot_table_bytes_max = 80 * 50;
    let mut store = Store::open(&options).unwrap();
    let fill = |store: &mut Store, value: &[u8]| {
        for number in 0..100 {
            let _ticket = store.put_nowait(&key(number), value).unwrap();
        }
        store.sync().unwrap();
        while store.turn().unwrap() == Some(Duration::ZERO) {}
    };
    fill(&mut store, b"old");
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.get(&mut store, &key(1)).unwrap().as_deref(), Some(&b"old"[..]));
    fill(&mut store, b"new");
    let read = snapshot.get(&mut store, &key(1)).unwrap_err();
    assert_eq!(read.kind(), ErrorKind::SnapshotLost, "{read}");
    assert_eq!(store.statistics().snapshots_lost, 1);
    let kept = store.snapshot().unwrap();
    store.delete(&key(1)).unwrap();
    assert!(store.statistics().snapshot_pinned_bytes > 0);
    drop((snapshot, kept));
    store.close().unwrap();
    let mut store = Store::open(&options).unwrap();
    let statistics = store.statistics();
    assert_eq!((statistics.snapshots, statistics.snapshot_pinned_bytes), (0, 0));
    assert_eq!(store.get(&key(1)).unwrap(), None);
    assert_eq!(store.range(..).count(), 99);
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tierstone-nvm-folder-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Some values are longer than blocks, or than the records of small segments.
fn text(number: u32) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(200) { 1_500_000 } else { number as usize % 3_000 }]
}

fn check_texts(options: &DatabaseOptions) {
    let mut store = Store::open(options).unwrap();
    assert_eq!(store.len(), 400);
    for number in 0..400 {
        assert!(store.get(&key(number)).unwrap() == Some(text(number)), "{number}");
    }
    let mut events = store.open_keyspace("events", KeyspaceOptions::default()).unwrap();
    assert_eq!(events.len(), 50);
    assert_eq!(events.get(&key(49)).unwrap().as_deref(), Some(&b"event"[..]));
    // What is written later does not meet a sequence of the store that the backup is of.
    store.put(&key(1), b"new").unwrap();
    assert_eq!(store.get(&key(1)).unwrap().as_deref(), Some(&b"new"[..]));
    store.put(&key(1), &text(1)).unwrap();
    store.close().unwrap();
}

/// From memory to devices, from devices to memory, and with other numbers of shards.
#[test]
fn backups_move_stores_between_memory_and_devices() {
    let (first, second) = (File::new("moved-from"), File::new("moved-to"));
    let folder = Folder::new("moved");
    let mut store = Store::open(&first.options()).unwrap();
    for number in 0..400 {
        store.put(&key(number), &text(number)).unwrap();
    }
    let mut events = store.open_keyspace("events", KeyspaceOptions::default()).unwrap();
    for number in 0..50 {
        events.put(&key(number), b"event").unwrap();
    }
    let report = store.backup(folder.0.join("memory"), &mut |_| {}).unwrap();
    assert_eq!((report.records, report.shards), (450, 2));
    store.close().unwrap();
    assert_eq!(crate::verify_backup(folder.0.join("memory"), &mut |_| {}).unwrap().records, 450);
    let devices = DatabaseOptions {
        shards: 3,
        capacity_bytes: Some(1 << 30),
        ..DatabaseOptions::new(folder.0.join("devices"))
    };
    crate::restore(folder.0.join("memory"), &devices, &mut |_| {}).unwrap();
    check_texts(&devices);
    let mut store = Store::open(&devices).unwrap();
    store.backup(folder.0.join("devices.backup"), &mut |_| {}).unwrap();
    store.close().unwrap();
    let memory = DatabaseOptions { shards: 1, ..second.options() };
    crate::restore(folder.0.join("devices.backup"), &memory, &mut |_| {}).unwrap();
    check_texts(&memory);
}

/// Beside others who write: one moment, batches whole.
#[test]
fn backups_beside_writers_show_one_moment() {
    let file = File::new("backup");
    let folder = Folder::new("backup");
    let store = SharedStore::open(&file.options()).unwrap();
    let is_over = AtomicBool::new(false);
    let write = || {
        let mut round = 0u64;
        while !is_over.load(Ordering::SeqCst) {
            round += 1;
            let mut batch = Batch::new();
            for number in 0..50 {
                batch.put(&key(number), &round.to_le_bytes());
            }
            store.write(&batch).unwrap();
        }
        round
    };
    for number in 100..5_000 {
        store.put(&key(number), &[7; 500]).unwrap();
    }
    let taken: Vec<PathBuf> = (0..5).map(|number| folder.0.join(number.to_string())).collect();
    let (rounds, backups) = std::thread::scope(|scope| {
        let writer = scope.spawn(write);
        // So that every backup has a round.
        while store.get(&key(0)).unwrap().is_none() {}
        let backups: Vec<_> = taken.iter().map(|place| store.backup(place, &mut |_| {})).collect();
        is_over.store(true, Ordering::SeqCst);
        (writer.join().unwrap(), backups)
    });
    assert!(backups.iter().all(Result::is_ok), "{backups:?}");
    let mut last = 0;
    for (number, place) in taken.iter().enumerate() {
        let options = DatabaseOptions {
            capacity_bytes: Some(256 << 20),
            ..DatabaseOptions::new(folder.0.join(format!("store-{number}")))
        };
        crate::restore(place, &options, &mut |_| {}).unwrap();
        let mut restored = Store::open(&options).unwrap();
        assert_eq!(restored.len(), 4_950);
        let found: Vec<_> = (0..50).map(|number| restored.get(&key(number)).unwrap().unwrap()).collect();
        assert!(found.iter().all(|value| *value == found[0]), "half a batch is in backup {number}");
        let round = u64::from_le_bytes(found[0].as_slice().try_into().unwrap());
        assert!((last..=rounds).contains(&round), "{round} after {last}");
        last = round;
    }
    assert!(last > 0);
}

#[test]
fn a_backup_since_another_one_is_refused_in_words() {
    let file = File::new("since");
    let folder = Folder::new("since");
    let store = SharedStore::open(&file.options()).unwrap();
    store.put(b"key", b"value").unwrap();
    store.backup(folder.0.join("first"), &mut |_| {}).unwrap();
    let refused = store
        .backup_since(folder.0.join("first"), folder.0.join("second"), &mut |_| {})
        .map(drop)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.message().contains("whole backups only"), "{refused}");
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(store.backup(folder.0.join("third"), &mut |_| {}).unwrap().records, 1);
}

#[test]
fn the_longest_value_of_a_region_is_what_the_handle_says() {
    let file = File::new("longest");
    let options = DatabaseOptions { capacity_bytes: Some(256 << 20), shards: 1, ..file.options() };
    let mut store = Store::open(&options).unwrap();
    let longest = store.value_bytes_max() as usize;
    for (key_bytes, value_bytes, fits) in
        [(1_024, longest, true), (1_025, longest, false), (3, longest, true), (3, longest + 1, false)]
    {
        let (key, value) = (vec![b'k'; key_bytes], vec![5; value_bytes]);
        assert_eq!(store.put(&key, &value).is_ok(), fits, "{key_bytes} and {value_bytes}");
        let mut load = store.bulk_load(Default::default()).unwrap();
        assert_eq!(load.put(&key, &value).is_ok(), fits, "{key_bytes} and {value_bytes}, loaded");
        load.finish().unwrap();
    }
}
