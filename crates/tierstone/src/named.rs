//! Keyspaces with names: made, listed and dropped durably, each with its own kind of index.
//!
//! Invariants:
//! 1. A keyspace exists from the moment the superblock says so, and ends when it says so: one durable
//!    write each. Shards learn it after that write, and before the call returns.
//! 2. The id of a dropped keyspace is never used again: what its records were is void.
//! 3. Nothing that is written to a keyspace after it was dropped is acknowledged.
//!
//! A crash between the write and the shards' learning leaves an empty keyspace, or a dropped one.

use crate::batch::KeyspaceName;
use crate::database::Database;
use crate::local::{Keyspace, Store};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result};
use tierstone_engine::{Engine, IndexKind};
use tierstone_store::{DatabaseMap, NamedKeyspace};

/// How a keyspace with a name is opened. Plain data; the defaults serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceOptions {
    /// How it finds its keys; `None`: as it was made, or by hash if it is new. A keyspace keeps its kind.
    pub index: Option<IndexKind>,
    /// Make it if there is none. Default: yes.
    pub create: bool,
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        KeyspaceOptions { index: None, create: true }
    }
}

/// A keyspace with a name, in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceInfo {
    /// Its name.
    pub name: String,
    /// How it finds its keys.
    pub index: IndexKind,
}

/// All keyspaces with names.
pub(crate) fn list(map: &DatabaseMap) -> Vec<KeyspaceInfo> {
    map.names().map(|(name, named)| KeyspaceInfo { name: name.to_owned(), index: named.index }).collect()
}

/// The keyspace that a caller means.
pub(crate) fn resolve(map: &DatabaseMap, name: KeyspaceName<'_>) -> Result<KeyspaceId> {
    match name {
        KeyspaceName::Number(number) => map.keyspace(number).ok_or_else(|| {
            let last = map.databases().saturating_sub(1);
            let message = format!("there is no database {number}: the store has 0 to {last}");
            Error::new(ErrorKind::InvalidInput, message)
        }),
        KeyspaceName::Name(name) => map.named(name).map(|named| named.id).ok_or_else(|| missing(name)),
    }
}

fn missing(name: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("there is no keyspace '{name}'"))
}

/// What calls in a keyspace get that was dropped.
pub(crate) fn dropped() -> Error {
    Error::new(ErrorKind::InvalidInput, "the keyspace was dropped")
}

impl Database {
    /// Finds the keyspace `name`, or makes it durably; says whether it was made. Cost of making: one
    /// durable write.
    ///
    /// # Errors
    /// `InvalidInput`: see [`DatabaseMap::create`]; another kind of index was asked for than it has; there
    /// is none and none may be made; no room for its name in the superblock. `DeviceFailed`: it may or may
    /// not exist at the next opening.
    pub fn open_keyspace(&mut self, name: &str, options: KeyspaceOptions) -> Result<(NamedKeyspace, bool)> {
        if let Some(found) = self.facts().map.named(name) {
            return match options.index {
                Some(wanted) if wanted != found.index => {
                    let (wanted, kept) = (wanted.name(), found.index.name());
                    let message = format!(
                        "the {wanted} index was asked for, but keyspace '{name}' was made with the {kept} index \
                         and keeps it"
                    );
                    Err(Error::new(ErrorKind::InvalidInput, message))
                }
                _ => Ok((found, false)),
            };
        }
        if !options.create {
            return Err(missing(name));
        }
        let mut map = self.facts().map.clone();
        let made = map.create(name, options.index.unwrap_or_default())?;
        self.change_map(map)?;
        Ok((made, true))
    }

    /// Takes the keyspace `name` out durably; `None` when there is none. Cost: one durable write.
    ///
    /// # Errors
    /// `DeviceFailed`: it may or may not exist at the next opening.
    pub fn drop_keyspace(&mut self, name: &str) -> Result<Option<NamedKeyspace>> {
        let mut map = self.facts().map.clone();
        let Some(gone) = map.remove(name) else { return Ok(None) };
        self.change_map(map)?;
        Ok(Some(gone))
    }
}

impl Store {
    /// The keyspace `name`, for calls in it; it is made, durably, if there is none. Names are apart from
    /// the numbers of [`Store::keyspace`]. There may be some hundreds of them (their names and a few bytes
    /// each lie in a superblock of 64 KiB); one with keys takes about 100 KiB of memory a shard at least.
    ///
    /// ```
    /// use tierstone::{DatabaseOptions, IndexKind, KeyspaceOptions, Store};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-named-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let mut store = Store::open(&DatabaseOptions::new(&directory))?;
    /// let ordered = KeyspaceOptions { index: Some(IndexKind::Ordered), ..KeyspaceOptions::default() };
    /// let mut events = store.open_keyspace("events", ordered)?;
    /// events.put(b"2026-11-22", b"rain")?;
    /// assert_eq!(events.range("2026".."2027").count(), 1);
    /// assert_eq!(store.get(b"2026-11-22")?, None);
    /// assert_eq!(store.keyspaces().len(), 1);
    /// assert!(store.drop_keyspace("events")?);
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::open_keyspace`].
    pub fn open_keyspace(&mut self, name: &str, options: KeyspaceOptions) -> Result<Keyspace<'_>> {
        let (database, lanes) = self.parts();
        let (named, is_new) = database.open_keyspace(name, options)?;
        if is_new {
            lanes.iter_mut().for_each(|lane| lane.engine.create_keyspace(named.id, named.index));
        }
        Ok(Keyspace::new(self, named.id))
    }

    /// All keyspaces with names, in the order of their names.
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        list(&self.database().facts().map)
    }

    /// Drops the keyspace `name` with all its keys; false when there is none. It is gone, durably, when
    /// this returns. Cost: one durable write; space and memory come back step by step.
    ///
    /// # Errors
    /// As [`Database::drop_keyspace`].
    pub fn drop_keyspace(&mut self, name: &str) -> Result<bool> {
        let (database, lanes) = self.parts();
        let Some(gone) = database.drop_keyspace(name)? else { return Ok(false) };
        lanes.iter_mut().for_each(|lane| lane.engine.drop_keyspace(gone.id));
        Ok(true)
    }
}
