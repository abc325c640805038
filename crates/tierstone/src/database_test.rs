use super::*;
use crate::engine::DatabaseShard;
use tierstone_engine::Engine;
use tierstone_engine::harness::Harness;

fn options(directory: &std::path::Path) -> DatabaseOptions {
    DatabaseOptions {
        directories: vec![directory.to_path_buf()],
        segment_bytes: Some(1 << 20),
        capacity_bytes: Some(64 << 20),
        memory_bytes: 8 << 20,
        durable_method: Some(DurableMethod::DurableWrite),
        ..DatabaseOptions::default()
    }
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tierstone-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn first_shard(database: &mut Database) -> Harness<DatabaseShard, StorageDevice> {
    let mut device = database.device().unwrap();
    let (shard, _) = database.take_plans().remove(0).build(&mut device).unwrap();
    Harness::new(shard, device, database.hasher())
}

#[test]
fn a_database_on_files_keeps_what_was_durable_and_closes_clean() {
    let directory = scratch("database");
    let mut database = Database::open(&options(&directory)).unwrap();
    assert!(database.report().created);
    let keyspace = database.facts().map.keyspace(0).unwrap();
    let mut shard = first_shard(&mut database);
    for number in 0..2_000u32 {
        shard.put(keyspace, format!("key:{number}").as_bytes(), &[number as u8; 300]).unwrap();
    }
    shard.sync().unwrap();
    // The process dies: nothing is shut, the superblock says so.
    drop((shard, database));
    let mut database = Database::open(&options(&directory)).unwrap();
    assert!(!database.report().created && !database.report().clean);
    let mut shard = first_shard(&mut database);
    for number in 0..2_000u32 {
        let (_, value) = shard.get(keyspace, format!("key:{number}").as_bytes()).unwrap().unwrap();
        assert_eq!(value, [number as u8; 300]);
    }
    shard.engine.shut();
    while !shard.engine.is_shut() {
        shard.turn(tierstone_media::Wait::One);
    }
    drop(shard);
    database.close().unwrap();
    let mut database = Database::open(&options(&directory)).unwrap();
    assert!(database.report().clean);
    assert_eq!(first_shard(&mut database).engine.len(keyspace), 2_000);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_store_keeps_its_kind_of_index() {
    for (made, other) in [(IndexKind::Ordered, IndexKind::Hash), (IndexKind::Hash, IndexKind::Ordered)] {
        let directory = scratch("kind");
        let of_kind = |index| DatabaseOptions { index, ..options(&directory) };
        drop(Database::open(&of_kind((made != IndexKind::default()).then_some(made))).unwrap());
        for index in [None, Some(made)] {
            assert_eq!(Database::open(&of_kind(index)).unwrap().facts().index, made);
        }
        let refused = Database::open(&of_kind(Some(other))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.message().contains("hash") && refused.message().contains("ordered"), "{refused}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn an_opening_that_is_refused_leaves_a_store_closed_in_good_order() {
    let directory = scratch("refused");
    Database::open(&options(&directory)).unwrap().close().unwrap();
    let before = Database::open(&options(&directory)).unwrap();
    assert!(before.report().clean);
    let method = match before.facts().durable_method {
        DurableMethod::DurableWrite => DurableMethod::WriteThenFlush,
        DurableMethod::WriteThenFlush => DurableMethod::DurableWrite,
    };
    before.close().unwrap();
    let ordered = DatabaseOptions { index: Some(IndexKind::Ordered), ..options(&directory) };
    let other_method = DatabaseOptions { durable_method: Some(method), ..options(&directory) };
    for refused in [ordered, other_method] {
        assert_eq!(Database::open(&refused).unwrap_err().kind(), ErrorKind::InvalidInput);
        let database = Database::open(&options(&directory)).unwrap();
        assert!(database.report().clean);
        database.close().unwrap();
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_store_keeps_its_durable_method() {
    use DurableMethod::{DurableWrite, WriteThenFlush};
    for (made, other) in [(DurableWrite, WriteThenFlush), (WriteThenFlush, DurableWrite)] {
        let directory = scratch("method");
        let with = |durable_method| DatabaseOptions { durable_method, ..options(&directory) };
        drop(Database::open(&with(Some(made))).unwrap());
        for method in [None, Some(made)] {
            assert_eq!(Database::open(&with(method)).unwrap().facts().durable_method, made);
        }
        let refused = Database::open(&with(Some(other))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        for name in ["durable-write", "write-then-flush"] {
            assert!(refused.message().contains(name), "{refused}");
        }
        assert_eq!(Database::open(&with(None)).unwrap().facts().durable_method, made, "nothing changed");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn a_flushed_ordered_database_is_ordered_again() {
    let directory = scratch("flushed-ordered");
    let ordered = DatabaseOptions { index: Some(IndexKind::Ordered), ..options(&directory) };
    let mut database = Database::open(&ordered).unwrap();
    let mut map = database.facts().map.clone();
    map.change(tierstone_store::MapChange::Flush(3)).unwrap();
    database.change_map(map).unwrap();
    let new = database.facts().map.keyspace(3).unwrap();
    drop(database);
    let mut database = Database::open(&ordered).unwrap();
    let mut shard = first_shard(&mut database);
    shard.put(new, b"key", b"value").unwrap();
    assert_eq!(shard.engine.log().unwrap().ordered_len(new), Some(1));
    std::fs::remove_dir_all(&directory).unwrap();
}

/// The example of `docs/formats/flash-segment.md`: every member that is written is on the page, and no other.
#[test]
fn the_page_prints_the_facts_of_the_superblock() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/flash-segment.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```json\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let facts: DatabaseFacts = serde_json::from_str(text).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&encode(&facts).unwrap()).unwrap();
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(text).unwrap());
}

#[test]
fn a_database_is_opened_once() {
    let directory = scratch("busy");
    let _first = Database::open(&options(&directory)).unwrap();
    assert_eq!(Database::open(&options(&directory)).unwrap_err().kind(), ErrorKind::Busy);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_flushed_database_stays_empty_after_reopening() {
    let directory = scratch("flushed");
    let mut database = Database::open(&options(&directory)).unwrap();
    let old = database.facts().map.keyspace(3).unwrap();
    let mut shard = first_shard(&mut database);
    shard.put(old, b"key", b"value").unwrap();
    shard.sync().unwrap();
    let mut map = database.facts().map.clone();
    map.change(tierstone_store::MapChange::Flush(3)).unwrap();
    database.change_map(map).unwrap();
    drop((shard, database));
    let mut database = Database::open(&options(&directory)).unwrap();
    let new = database.facts().map.keyspace(3).unwrap();
    assert_ne!(old, new);
    let mut shard = first_shard(&mut database);
    assert_eq!(shard.get(old, b"key").unwrap(), None);
    assert_eq!(shard.get(new, b"key").unwrap(), None);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn without_a_capacity_the_limit_follows_the_disk() {
    let directory = scratch("limit");
    let other = scratch("limit-2");
    let open = DatabaseOptions {
        capacity_bytes: None,
        segment_bytes: Some(32 << 20),
        directories: vec![directory.clone(), other.clone()],
        ..options(&directory)
    };
    let limit =
        |options: &DatabaseOptions| Database::open(options).unwrap().storage().geometry().segment_limit;
    let free = rustix::fs::statvfs(&directory).unwrap();
    let free_segments = free.f_bavail * free.f_frsize / (32 << 20);
    let found = u64::from(limit(&open));
    // Both directories lie on one disk, and others use it at the same time: half and whole bound it.
    assert!(found <= free_segments.clamp(7, 122_880), "{found} of {free_segments}");
    assert!(found >= (free_segments / 2).min(122_880), "{found} of {free_segments}");
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::remove_dir_all(&other).unwrap();
}

#[test]
fn a_capacity_that_no_store_has_is_refused() {
    let directory = scratch("too-large");
    let with = |segments: u64, segment_bytes: u64| DatabaseOptions {
        segment_bytes: Some(segment_bytes),
        capacity_bytes: Some(segments * segment_bytes),
        ..options(&directory)
    };
    let limit = |options: &DatabaseOptions| {
        Database::open(options).map(|opened| opened.storage().geometry().segment_limit)
    };
    let error = limit(&with(122_881, 32 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("several stores hold more"), "{error}");
    assert_eq!(limit(&with(122_880, 32 << 20)).unwrap(), 122_880);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(limit(&with(122_880, 128 << 10)).unwrap(), 122_880);
    let error = limit(&with(122_881, 128 << 10)).unwrap_err();
    assert!(error.message().contains("is 15 GiB; larger segments of a new store allow more"), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_new_store_has_segments_by_its_capacity_and_keeps_them() {
    let directory = scratch("segments");
    let by_capacity = |bytes: u64| DatabaseOptions {
        segment_bytes: None,
        capacity_bytes: Some(bytes),
        shards: 2,
        ..options(&directory)
    };
    let opened = |options: &DatabaseOptions| {
        let geometry = Database::open(options).unwrap().storage().geometry();
        (geometry.segment_bytes, geometry.segment_limit)
    };
    assert_eq!(opened(&by_capacity(512 << 20)), (4 << 20, 128));
    assert_eq!(opened(&by_capacity(8 << 30)), (4 << 20, 2048), "the store keeps its own size");
    std::fs::remove_dir_all(&directory).unwrap();
    // The wish of whoever makes it counts more, and without a capacity the disk's space does.
    let wished = DatabaseOptions { segment_bytes: Some(1 << 20), ..by_capacity(512 << 20) };
    assert_eq!(opened(&wished).0, 1 << 20);
    std::fs::remove_dir_all(&directory).unwrap();
    let (bytes, limit) = opened(&DatabaseOptions { capacity_bytes: None, ..by_capacity(0) });
    assert!(bytes.is_power_of_two() && (1 << 20..=32 << 20).contains(&bytes), "{bytes}");
    assert!(bytes == 1 << 20 || limit >= 100, "{limit} segments of {bytes} bytes");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_capacity_below_the_segments_that_exist_is_refused_with_the_bytes_needed() {
    let directory = scratch("capacity");
    let small = DatabaseOptions {
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(32 << 17),
        ..options(&directory)
    };
    let mut database = Database::open(&small).unwrap();
    let keyspace = database.facts().map.keyspace(0).unwrap();
    let mut shard = first_shard(&mut database);
    for number in 0..100u32 {
        shard.put(keyspace, &number.to_be_bytes(), &[7; 20_000]).unwrap();
    }
    shard.sync().unwrap();
    drop((shard, database));
    let error =
        Database::open(&DatabaseOptions { capacity_bytes: Some(8 << 17), ..small.clone() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("which need"), "{error}");
    // The segment size of the store counts, not that of the options.
    let wider = DatabaseOptions { segment_bytes: Some(1 << 20), ..small };
    assert_eq!(Database::open(&wider).unwrap().storage().geometry().segment_limit, 32);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn reserves_beyond_all_stores_are_refused() {
    for (shards, reserved_segments) in [(1, u32::MAX), (1_024, 1 << 22), (2, 70_000)] {
        for capacity_bytes in [None, Some(64 << 20)] {
            let path = std::env::temp_dir().join(format!("tierstone-reserves-{}", std::process::id()));
            let shard = ShardSettings { reserved_segments, ..ShardSettings::default() };
            let options = DatabaseOptions {
                shards,
                memory_bytes: 2 << 30,
                capacity_bytes,
                shard,
                ..DatabaseOptions::new(&path)
            };
            assert_eq!(Database::open(&options).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert!(!path.exists());
        }
    }
}
