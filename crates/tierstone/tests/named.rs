//! Keyspaces with names, on both handles: made, kept, listed, dropped.

use crate::support::{TemporaryDirectory, backends};
use std::collections::BTreeMap;
use tierstone::{
    Batch, DatabaseOptions, Expiry, IndexKind, KeyspaceInfo, KeyspaceOptions, PutOptions, SharedStore, Store,
};
use tierstone_base::{ErrorKind, SeededRandom};

fn kind(index: IndexKind) -> KeyspaceOptions {
    KeyspaceOptions { index: Some(index), ..KeyspaceOptions::default() }
}

type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

const EXISTING: KeyspaceOptions = KeyspaceOptions { index: None, create: false };

fn info(name: &str, index: IndexKind) -> KeyspaceInfo {
    KeyspaceInfo { name: name.to_owned(), index }
}

fn options(directory: &TemporaryDirectory, shards: u16) -> DatabaseOptions {
    DatabaseOptions { shards, memory_bytes: 8 << 20, ..directory.options(Default::default()) }
}

#[test]
fn names_keep_their_keys_and_kinds_over_openings_and_are_apart() {
    let directory = TemporaryDirectory::new();
    let mut store = Store::open(&options(&directory, 2)).unwrap();
    for (name, index) in [("hashed", IndexKind::Hash), ("sorted", IndexKind::Ordered)] {
        let mut keyspace = store.open_keyspace(name, kind(index)).unwrap();
        for number in 0..100u32 {
            keyspace.put(&number.to_be_bytes(), name.as_bytes()).unwrap();
        }
    }
    store.put(&7u32.to_be_bytes(), b"numbered").unwrap();
    let expected = [info("hashed", IndexKind::Hash), info("sorted", IndexKind::Ordered)];
    assert_eq!(store.keyspaces(), expected);
    // As after the death of the process.
    drop(store);
    for shards in [1, 3] {
        let mut store = Store::open(&options(&directory, shards)).unwrap();
        assert_eq!(store.keyspaces(), expected);
        for name in ["hashed", "sorted"] {
            let mut keyspace = store.open_keyspace(name, EXISTING).unwrap();
            assert_eq!(keyspace.len(), 100);
            assert_eq!(keyspace.get(&7u32.to_be_bytes()).unwrap().as_deref(), Some(name.as_bytes()));
            let ranged = keyspace.range(&10u32.to_be_bytes()[..]..&20u32.to_be_bytes()[..]);
            match name {
                "sorted" => assert_eq!(ranged.map(Result::unwrap).count(), 10),
                _ => {
                    assert_eq!(ranged.map(Result::unwrap_err).next().unwrap().kind(), ErrorKind::Unsupported)
                }
            }
        }
        assert_eq!(store.get(&7u32.to_be_bytes()).unwrap().as_deref(), Some(&b"numbered"[..]));
        assert_eq!(store.len(), 1);
        store.close().unwrap();
    }
}

#[test]
fn another_kind_a_missing_name_and_a_bad_name_are_refused() {
    let directory = TemporaryDirectory::new();
    let mut store = Store::open(&options(&directory, 1)).unwrap();
    let mut refused = |name: &str, options| {
        let error = store.open_keyspace(name, options).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        error.message().to_owned()
    };
    assert!(refused("absent", EXISTING).contains("absent"));
    assert!(refused("12", KeyspaceOptions::default()).contains("digits"));
    assert!(refused("", KeyspaceOptions::default()).contains("empty"));
    store.open_keyspace("users", kind(IndexKind::Ordered)).unwrap();
    let error = store.open_keyspace("users", kind(IndexKind::Hash)).map(drop).unwrap_err();
    assert!(error.message().contains("hash") && error.message().contains("ordered"), "{error}");
    assert_eq!(store.keyspaces(), [info("users", IndexKind::Ordered)]);
    assert!(!store.drop_keyspace("absent").unwrap());
    let mut batch = Batch::new();
    batch.put(b"a", b"1").in_keyspace("absent").put(b"b", b"2");
    assert_eq!(store.write(&batch).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(store.get(b"a").unwrap(), None);
}

#[test]
fn a_batch_changes_several_keyspaces_at_once() {
    let directory = TemporaryDirectory::new();
    let mut store = Store::open(&options(&directory, 1)).unwrap();
    store.open_keyspace("from", KeyspaceOptions::default()).unwrap().put(b"k", b"1").unwrap();
    store.open_keyspace("to", kind(IndexKind::Ordered)).unwrap();
    let mut batch = Batch::new();
    batch
        .in_keyspace("from")
        .delete(b"k")
        .in_keyspace("to")
        .put(b"k", b"1")
        .in_database(3)
        .put(b"log", b"moved");
    store.write(&batch).unwrap();
    drop(store);
    let store = SharedStore::open(&options(&directory, 1)).unwrap();
    assert_eq!(store.open_keyspace("from", EXISTING).unwrap().get(b"k").unwrap(), None);
    let to = store.open_keyspace("to", EXISTING).unwrap();
    assert_eq!(to.range(..).map(|entry| entry.unwrap().value).collect::<Vec<_>>(), [b"1"]);
    assert_eq!(store.keyspace(3).unwrap().get(b"log").unwrap().as_deref(), Some(&b"moved"[..]));
    batch.clear();
    batch.in_keyspace("to").delete(b"k");
    store.write(&batch).unwrap();
    assert_eq!(to.len().unwrap(), 0);
    store.close().unwrap();
}

#[test]
fn a_dropped_keyspace_stays_dropped_and_its_name_can_be_used_again() {
    let directory = TemporaryDirectory::new();
    let mut store = Store::open(&options(&directory, 2)).unwrap();
    for name in ["gone", "kept"] {
        let mut keyspace = store.open_keyspace(name, kind(IndexKind::Ordered)).unwrap();
        for number in 0..500u32 {
            let _ticket = keyspace.put_nowait(&number.to_be_bytes(), &[7; 300]).unwrap();
        }
    }
    store.sync().unwrap();
    let before = store.statistics();
    assert!(store.drop_keyspace("gone").unwrap());
    assert_eq!(store.open_keyspace("gone", EXISTING).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
    while store.turn().unwrap().is_some_and(|wait| wait.is_zero()) {}
    let after = store.statistics();
    assert_eq!(after.keys, 500);
    assert!(after.space_live_bytes < before.space_live_bytes, "{after:?}");
    drop(store);
    let mut store = Store::open(&options(&directory, 1)).unwrap();
    assert_eq!(store.keyspaces(), [info("kept", IndexKind::Ordered)]);
    // Another kind, no old key.
    let mut again = store.open_keyspace("gone", kind(IndexKind::Hash)).unwrap();
    assert_eq!((again.len(), again.get(&7u32.to_be_bytes()).unwrap()), (0, None));
    again.put(b"new", b"1").unwrap();
    drop(store);
    let mut store = Store::open(&options(&directory, 2)).unwrap();
    assert_eq!(store.open_keyspace("gone", EXISTING).unwrap().len(), 1);
    assert_eq!(store.open_keyspace("kept", EXISTING).unwrap().range(..).count(), 500);
}

#[test]
fn writers_of_a_keyspace_that_is_being_dropped_are_told() {
    let directory = TemporaryDirectory::new();
    let store = SharedStore::open(&options(&directory, 2)).unwrap();
    let (started, go) = std::sync::mpsc::channel();
    let keyspace = store.open_keyspace("shared", kind(IndexKind::Ordered)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (store, started) = (store.clone(), started.clone());
            scope.spawn(move || {
                let mine = store.open_keyspace("shared", kind(IndexKind::Ordered)).unwrap();
                for number in 0u32.. {
                    let key = [&[thread][..], &number.to_be_bytes()].concat();
                    match mine.put(&key, b"value") {
                        Ok(()) if number == 50 => started.send(()).unwrap(),
                        Ok(()) => {}
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::InvalidInput);
                            assert!(error.message().contains("dropped"), "{error}");
                            return;
                        }
                    }
                }
            });
        }
        (0..4).for_each(|_| go.recv().unwrap());
        assert!(store.drop_keyspace("shared").unwrap());
        assert!(!store.drop_keyspace("shared").unwrap());
    });
    assert_eq!(store.statistics().unwrap().keys, 0);
    // Walks say so, too, and do not look empty.
    for error in [
        keyspace.scan().next().unwrap().unwrap_err(),
        keyspace.range(..).next().unwrap().unwrap_err(),
        keyspace.range(..).live().next().unwrap().unwrap_err(),
        keyspace.scan_page(tierstone::Cursor::START, 10).unwrap_err(),
    ] {
        assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("dropped"), "{error}");
    }
    let again = store.open_keyspace("shared", kind(IndexKind::Hash)).unwrap();
    assert!(again.is_empty().unwrap());
    again.put(b"key", b"value").unwrap();
    store.close().unwrap();
    assert_eq!(store.drop_keyspace("shared").unwrap_err().kind(), ErrorKind::Busy);
    let store = SharedStore::open(&options(&directory, 3)).unwrap();
    assert_eq!(store.open_keyspace("shared", EXISTING).unwrap().len().unwrap(), 1);
    store.close().unwrap();
}

#[test]
fn a_full_superblock_refuses_further_names_and_the_rest_stays() {
    let directory = TemporaryDirectory::new();
    let store = SharedStore::open(&options(&directory, 1)).unwrap();
    let name = |number: u32| format!("{number:x}-{}", "n".repeat(230));
    let mut count = 0;
    let refused = loop {
        match store.open_keyspace(&name(count), KeyspaceOptions::default()) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!((100..200).contains(&count), "{count} keyspaces");
    assert_eq!(store.keyspaces().len() as u32, count);
    assert!(store.drop_keyspace(&name(3)).unwrap());
    store.open_keyspace(&name(count), KeyspaceOptions::default()).unwrap();
    drop(store);
    assert_eq!(Store::open(&options(&directory, 1)).unwrap().keyspaces().len() as u32, count);
}

/// Random work on names, with openings in between, against a map.
#[test]
fn named_keyspaces_behave_like_maps() {
    let backends = backends();
    for seed in 0..3 {
        let directory = TemporaryDirectory::new();
        let mut random = SeededRandom::new(seed);
        let mut model: BTreeMap<String, (IndexKind, Keys)> = BTreeMap::new();
        for _ in 0..6 {
            let options = options(&directory, 1 + random.below(3) as u16);
            let backend = backends[random.below(backends.len() as u64) as usize];
            let mut store = Store::open(&DatabaseOptions { backend, ..options }).unwrap();
            for _ in 0..300 {
                let name = format!("keyspace {}", random.below(5));
                match random.below(20) {
                    0 => assert_eq!(store.drop_keyspace(&name).unwrap(), model.remove(&name).is_some()),
                    1..4 => {
                        let index = if random.chance(0.5) { IndexKind::Hash } else { IndexKind::Ordered };
                        let opened = store.open_keyspace(&name, kind(index)).map(drop);
                        let kept = model.entry(name).or_insert((index, BTreeMap::new())).0;
                        assert_eq!(opened.is_ok(), kept == index);
                    }
                    _ => {
                        let Ok(mut keyspace) = store.open_keyspace(&name, EXISTING) else {
                            assert!(!model.contains_key(&name));
                            continue;
                        };
                        let (_, keys) = model.get_mut(&name).unwrap();
                        let key = random.below(30).to_be_bytes().to_vec();
                        if random.chance(0.3) {
                            assert_eq!(keyspace.delete(&key).unwrap(), keys.remove(&key).is_some());
                        } else {
                            let value = vec![random.below(256) as u8; random.below(2_000) as usize];
                            keyspace.put(&key, &value).unwrap();
                            keys.insert(key, value);
                        }
                    }
                }
            }
            let expected: Vec<_> = model.iter().map(|(name, (index, _))| info(name, *index)).collect();
            assert_eq!(store.keyspaces(), expected, "seed {seed}");
            for (name, (index, keys)) in &model {
                let mut keyspace = store.open_keyspace(name, EXISTING).unwrap();
                let found: BTreeMap<_, _> =
                    keyspace.scan().map(Result::unwrap).map(|entry| (entry.key, entry.value)).collect();
                assert!(found == *keys, "seed {seed}, {name}");
                if *index == IndexKind::Ordered {
                    assert!(keyspace.range(..).map(|entry| entry.unwrap().key).eq(keys.keys().cloned()));
                }
            }
            if random.chance(0.5) {
                store.close().unwrap();
            }
        }
    }
}

#[test]
fn a_store_with_as_many_names_as_fit_is_opened_again() {
    let directory = TemporaryDirectory::new();
    let mut store = Store::open(&options(&directory, 1)).unwrap();
    let mut names = Vec::new();
    for len in (5..=255usize).rev() {
        loop {
            let name = format!("n{:04}{}", names.len(), "n".repeat(len - 5));
            match store.open_keyspace(&name, KeyspaceOptions::default()) {
                Ok(_) => names.push(name),
                Err(refused) => {
                    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
                    assert!(refused.message().contains("do not fit the superblock"), "{refused}");
                    break;
                }
            }
        }
    }
    println!("{} names", names.len());
    // What the superblock says from now on of expiry takes bytes there.
    store.put_with(b"k", b"v", PutOptions { expiry: Expiry::At(1) }).unwrap();
    assert_eq!(store.get(b"k").unwrap(), None);
    store.close().unwrap();
    let mut store = Store::open(&options(&directory, 1)).unwrap();
    assert_eq!(store.keyspaces().len(), names.len());
    assert!(store.drop_keyspace(&names[0]).unwrap());
    store.open_keyspace("x", KeyspaceOptions::default()).unwrap();
    store.close().unwrap();
}
