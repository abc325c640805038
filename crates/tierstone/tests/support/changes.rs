//! Stores of several databases and keyspaces that are changed at random, and all that is in them.

use crate::support::TemporaryDirectory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tierstone::{Batch, DatabaseOptions, Expiry, FileBackend, IndexKind, KeyspaceOptions, PutOptions, Store};
use tierstone_base::SeededRandom;

/// Database or keyspace, and key.
pub type Contents = BTreeMap<(String, Vec<u8>), (Vec<u8>, Option<u64>)>;

/// Far from now, whenever this runs.
pub const FAR_MS: u64 = 1 << 43;

pub fn root(directory: &TemporaryDirectory) -> PathBuf {
    let options = directory.options(FileBackend::Auto);
    options.directories[0].parent().unwrap().to_path_buf()
}

pub fn contents(store: &mut Store) -> Contents {
    let mut found = Contents::new();
    for number in 0..3 {
        for entry in store.keyspace(number).unwrap().scan() {
            let entry = entry.unwrap();
            let expiry_ms = entry.expires_at_ms;
            found.insert((number.to_string(), entry.key), (entry.value, expiry_ms));
        }
    }
    for info in store.keyspaces() {
        let mut keyspace = store.open_keyspace(&info.name, KeyspaceOptions::default()).unwrap();
        for entry in keyspace.scan() {
            let entry = entry.unwrap();
            let expiry_ms = entry.expires_at_ms;
            found.insert(
                (format!("{} {}", info.name, info.index.name()), entry.key),
                (entry.value, expiry_ms),
            );
        }
    }
    found
}

pub fn change(store: &mut Store, random: &mut SeededRandom) {
    let key = |random: &mut SeededRandom| format!("key {}", random.below(80)).into_bytes();
    let (one, other) = (key(random), key(random));
    let value = vec![random.below(256) as u8; random.below(2_000) as usize];
    let database = random.below(3) as u32;
    match random.below(20) {
        0..7 => store.keyspace(database).unwrap().put(&one, &value).unwrap(),
        7..9 => {
            let options = PutOptions { expiry: Expiry::At(FAR_MS + random.below(9)) };
            store.keyspace(database).unwrap().put_with(&one, &value, options).unwrap();
        }
        9..12 => drop(store.keyspace(database).unwrap().delete(&one).unwrap()),
        12..17 => {
            // Over the shards: whole or not at all.
            let mut batch = Batch::new();
            batch.put(&one, &value).put(&other, &value).delete(&key(random));
            store.write(&batch).unwrap();
        }
        17 | 18 => {
            let name = ["events", "people"][random.below(2) as usize];
            let index = Some(if name == "events" { IndexKind::Ordered } else { IndexKind::Hash });
            let options = KeyspaceOptions { index, ..KeyspaceOptions::default() };
            store.open_keyspace(name, options).unwrap().put(&one, &value).unwrap();
        }
        _ => drop(store.drop_keyspace(["events", "people"][random.below(2) as usize]).unwrap()),
    }
}

pub fn options_of(directory: &Path, options: &DatabaseOptions) -> DatabaseOptions {
    DatabaseOptions { directories: vec![directory.to_path_buf()], index: None, ..options.clone() }
}
