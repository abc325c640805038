//! Kept images of every earlier format: stores that the programs of their time made, closed in good order and killed, are
//! opened, hold everything, go on as any store and are of the present format afterwards. How they were made is written
//! beside them.

use crate::images::{Contents, LARGE, all, expected, unpack};
use crate::support::TemporaryDirectory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tierstone::{DatabaseOptions, FileBackend, RedoOptions, Store, restore, verify_backup};
use tierstone_logstore::format::superblock::VERSION;

/// Of the format of stores in persistent memory.
const PM_VERSION: u32 = 3;
/// Shorter values are records of their own everywhere.
const SHORT_BYTES: usize = 1_000;
/// Where the engine's header is in the file of a region.
const PM_HEADER_AT: usize = 4096 + (256 << 10);

fn root(directory: &TemporaryDirectory) -> PathBuf {
    directory.options(FileBackend::Auto).directories[0].parent().unwrap().to_path_buf()
}

/// How the store of an image in `folder` is opened.
fn options(name: &str, folder: &Path) -> DatabaseOptions {
    let place = match name.starts_with("pmstore") {
        true => format!("nvm:{}", folder.join("region").display()).into(),
        false => folder.join("store"),
    };
    let redo = name.starts_with("redo").then(|| RedoOptions::new(folder.join("redo").display().to_string()));
    DatabaseOptions {
        shards: 2,
        memory_bytes: 64 << 20,
        any_guarantee: true,
        redo,
        ..DatabaseOptions::new(place)
    }
}

/// Every string is there with its expiry, and nothing else but the server's large value, which this handle does not read.
fn check(store: &mut Store, wanted: &Contents, large: u64, name: &str) {
    for number in [0, 3, 15] {
        let of_it = wanted.iter().filter(|((database, _), _)| *database == number);
        let mut keyspace = store.keyspace(number).unwrap();
        let mut expiries = BTreeMap::new();
        for ((_, key), (value, expiry)) in of_it {
            let found = keyspace.get(key.as_bytes()).unwrap();
            assert!(found.as_ref() == Some(value), "{name}: {number}, {key}: {found:?}");
            expiries.insert(key.clone(), *expiry);
        }
        for key in ["gone:1", "gone:2", "gone:3", "over:4", "nothing"] {
            assert_eq!(keyspace.get(key.as_bytes()).unwrap(), None, "{name}: {number}, {key}");
        }
        let large = if number == 0 { large } else { 0 };
        assert_eq!(keyspace.len(), expiries.len() as u64 + large, "{name}: {number}");
        if large == 0 {
            let found = keyspace.scan().map(Result::unwrap).map(|entry| {
                let seconds = entry.expires_at_ms.map(|at_ms| at_ms / 1_000);
                (String::from_utf8(entry.key).unwrap(), seconds)
            });
            assert_eq!(found.collect::<BTreeMap<_, _>>(), expiries, "{name}: {number}");
        }
    }
}

/// The format version in the newer slot of a superblock's bytes.
fn superblock_version(bytes: &[u8]) -> u32 {
    let slots = [0, 64 << 10].map(|at| &bytes[at..at + 40]);
    let counter = |slot: &&[u8]| u64::from_le_bytes(slot[24..32].try_into().unwrap());
    let newest = slots.into_iter().max_by_key(counter).unwrap();
    u32::from_le_bytes(newest[8..12].try_into().unwrap())
}

/// The format version of a closed store.
fn version(name: &str, folder: &Path) -> u32 {
    if name.starts_with("pmstore") {
        let bytes = std::fs::read(folder.join("region")).unwrap();
        assert_eq!(&bytes[PM_HEADER_AT..PM_HEADER_AT + 8], b"TSpmstor");
        let version = &bytes[PM_HEADER_AT + 8..PM_HEADER_AT + 12];
        return u32::from_le_bytes(version.try_into().unwrap());
    }
    superblock_version(&std::fs::read(folder.join("store/superblock.tier")).unwrap())
}

/// The version that an image has by its name.
fn named_version(name: &str) -> u32 {
    if name.starts_with("redo") {
        return VERSION;
    }
    name.split('-').nth(1).unwrap().parse().unwrap()
}

/// The strings of an image, and how many values the server has made large ones, which this handle does not read: none in
/// the first version and in persistent memory, but for the longest; in other images those that are no short ones.
fn strings(name: &str) -> (Contents, u64) {
    let is_whole = name.starts_with("superblock-1") || name.starts_with("pmstore");
    let (short, large): (Contents, Contents) = expected(name)
        .into_iter()
        .partition(|((_, key), (value, _))| key != LARGE && (is_whole || value.len() < SHORT_BYTES));
    (short, large.len() as u64)
}

#[test]
fn stores_of_every_earlier_format_open_hold_everything_and_become_ones_of_this() {
    let names: Vec<String> = all().into_iter().filter(|name| !name.starts_with("backup")).collect();
    for of in (1..VERSION).map(|version| format!("superblock-{version}")).chain([
        "redo-1".into(),
        "redo-2".into(),
        "pmstore-1".into(),
        "pmstore-2".into(),
    ]) {
        assert!(names.iter().any(|name| name.starts_with(&of)), "there is no image of {of}");
    }
    for name in &names {
        println!("{name}");
        let directory = TemporaryDirectory::new();
        let folder = root(&directory);
        unpack(name, &folder);
        assert_eq!(version(name, &folder), named_version(name), "{name}");
        let options = options(name, &folder);
        let (mut wanted, large) = strings(name);
        let mut store = Store::open(&options).unwrap();
        let replayed = store.database().redo().map_or(0, |report| report.groups_replayed);
        assert_eq!(replayed > 0, name.starts_with("redo"), "{name}: {replayed} groups are from the region");
        check(&mut store, &wanted, large, name);
        for number in 0..40 {
            let (key, value) = (format!("new:{number}"), vec![number; 3_000]);
            store.put(key.as_bytes(), &value).unwrap();
            wanted.insert((0, key), (value, None));
        }
        for key in ["planet:1", "session:1", "planet:2", "new:7"] {
            store.delete(key.as_bytes()).unwrap();
            wanted.remove(&(0, key.to_owned()));
        }
        check(&mut store, &wanted, large, name);
        store.close().unwrap();
        let now = if name.starts_with("pmstore") { PM_VERSION } else { VERSION };
        assert_eq!(version(name, &folder), now, "{name}");
        let mut store = Store::open(&options).unwrap();
        check(&mut store, &wanted, large, name);
        store.close().unwrap();
    }
}

#[test]
fn a_backup_of_the_first_format_is_verified_and_restored() {
    let (directory, apart) = (TemporaryDirectory::new(), TemporaryDirectory::new());
    let folder = root(&directory);
    unpack("backup-1", &folder);
    let report = verify_backup(&folder, &mut |_| {}).unwrap();
    let place = root(&apart).join("new");
    let new = DatabaseOptions { shards: 3, ..DatabaseOptions::new(&place) };
    assert_eq!(restore(&folder, &new, &mut |_| {}).unwrap(), report);
    let mut store = Store::open(&new).unwrap();
    let (wanted, large) = strings("backup-1");
    check(&mut store, &wanted, large, "backup-1");
    store.close().unwrap();
    assert_eq!(superblock_version(&std::fs::read(place.join("superblock.tier")).unwrap()), VERSION);
}
