//! The map from numbered databases, and from names, to keyspaces.
//!
//! Invariants:
//! 1. A keyspace's id is given once and never again: flushing a database is giving it a new id.
//! 2. No two numbers or names share a keyspace.
//!
//! The caller owns the durable copy (the store's superblock). A change counts from the moment that
//! copy is durable; shards learn it afterwards ([`crate::Shard::apply_map`]). A crash in between
//! leaves the changed map, and nobody has been told that the change is done.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result};
use tierstone_engine::IndexKind;

/// The longest name of a keyspace, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Numbered databases of a store at most.
const DATABASES_MAX: usize = 1024;

/// A keyspace that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedKeyspace {
    /// Its id.
    pub id: KeyspaceId,
    /// How it finds its keys.
    pub index: IndexKind,
}

/// Which keyspace each numbered database is, and each name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseMap {
    /// How many changes led here; a higher version replaces a lower one.
    pub version: u64,
    /// The next id that has never been given.
    next_keyspace: u32,
    /// The keyspace of each database, by number.
    keyspaces: Vec<KeyspaceId>,
    /// The keyspaces that have names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    named: BTreeMap<String, NamedKeyspace>,
}

/// One change of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapChange {
    /// The database with this number becomes empty.
    Flush(u32),
    /// Every database becomes empty.
    FlushAll,
    /// Two databases change places.
    Swap(u32, u32),
}

impl DatabaseMap {
    /// The map of a new store with `databases` empty databases (at least one).
    pub fn new(databases: u32) -> Self {
        let databases = databases.max(1);
        DatabaseMap {
            version: 0,
            next_keyspace: databases + 1,
            keyspaces: (1..=databases).map(KeyspaceId).collect(),
            named: BTreeMap::new(),
        }
    }

    /// How many databases there are.
    pub fn databases(&self) -> u32 {
        self.keyspaces.len() as u32
    }

    /// The keyspace of database `database`; `None` when there is no such database.
    #[inline]
    pub fn keyspace(&self, database: u32) -> Option<KeyspaceId> {
        self.keyspaces.get(database as usize).copied()
    }

    /// All keyspaces in the order of their databases.
    pub fn keyspaces(&self) -> &[KeyspaceId] {
        &self.keyspaces
    }

    /// The keyspace with this name.
    pub fn named(&self, name: &str) -> Option<NamedKeyspace> {
        self.named.get(name).copied()
    }

    /// All keyspaces with names, in the order of their names.
    pub fn names(&self) -> impl Iterator<Item = (&str, NamedKeyspace)> {
        self.named.iter().map(|(name, keyspace)| (name.as_str(), *keyspace))
    }

    /// Whether a number or a name stands for this keyspace.
    pub fn holds(&self, id: KeyspaceId) -> bool {
        self.keyspaces.contains(&id) || self.named.values().any(|named| named.id == id)
    }

    /// Whether the map keeps its invariants: one that was read from outside may not.
    ///
    /// # Errors
    /// `Corrupt` says which it breaks.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Corrupt, format!("the map of databases: {what}")));
        if self.keyspaces.is_empty() || self.keyspaces.len() > DATABASES_MAX {
            return wrong("the number of databases is out of range");
        }
        let ids = || self.keyspaces.iter().copied().chain(self.named.values().map(|named| named.id));
        if ids().collect::<BTreeSet<KeyspaceId>>().len() != ids().count() {
            return wrong("two names have one keyspace");
        }
        if self.next_keyspace > KeyspaceId::USER_END || ids().any(|id| id.0 >= self.next_keyspace) {
            return wrong("a keyspace has an id that was never given");
        }
        match self.named.keys().find(|name| check_name(name).is_err()) {
            Some(_) => wrong("a keyspace has a name that none may have"),
            None => Ok(()),
        }
    }

    /// Makes an empty keyspace with a name: 1 to 255 bytes of UTF-8 without control characters, and not
    /// digits alone, which name the numbered databases.
    ///
    /// # Errors
    /// `InvalidInput` for another name, or one that is taken; `Unsupported` when all 2^32 ids are used up.
    /// Nothing has changed then.
    pub fn create(&mut self, name: &str, index: IndexKind) -> Result<NamedKeyspace> {
        check_name(name)?;
        if self.named.contains_key(name) {
            let message = format!("there is a keyspace '{name}' already");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let named = NamedKeyspace { id: self.fresh(1)?, index };
        self.named.insert(name.to_owned(), named);
        self.version += 1;
        Ok(named)
    }

    /// Takes a name and its keyspace out; `None` when there is none.
    pub fn remove(&mut self, name: &str) -> Option<NamedKeyspace> {
        let removed = self.named.remove(name)?;
        self.version += 1;
        Some(removed)
    }

    /// Makes one change.
    ///
    /// # Errors
    /// `InvalidInput` for a database that does not exist; `Unsupported` when all 2^30 ids are used up.
    /// Nothing has changed then.
    pub fn change(&mut self, change: MapChange) -> Result<()> {
        match change {
            MapChange::Flush(database) => {
                let slot = self.slot(database)?;
                self.keyspaces[slot] = self.fresh(1)?;
            }
            MapChange::FlushAll => {
                let KeyspaceId(first) = self.fresh(self.keyspaces.len() as u32)?;
                for (keyspace, id) in self.keyspaces.iter_mut().zip(first..) {
                    *keyspace = KeyspaceId(id);
                }
            }
            MapChange::Swap(first, second) => {
                let (first, second) = (self.slot(first)?, self.slot(second)?);
                self.keyspaces.swap(first, second);
            }
        }
        self.version += 1;
        Ok(())
    }

    fn slot(&self, database: u32) -> Result<usize> {
        if database < self.databases() {
            return Ok(database as usize);
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("there is no database {database}")))
    }

    fn fresh(&mut self, count: u32) -> Result<KeyspaceId> {
        let first = self.next_keyspace;
        self.next_keyspace = first
            .checked_add(count)
            .filter(|next| *next <= KeyspaceId::USER_END)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "all keyspace ids have been used"))?;
        Ok(KeyspaceId(first))
    }
}

fn check_name(name: &str) -> Result<()> {
    let wrong = match name {
        "" => "a keyspace's name is not empty",
        _ if name.len() > NAME_BYTES_MAX => "a keyspace's name has at most 255 bytes",
        _ if name.chars().any(char::is_control) => "a keyspace's name has no control characters",
        _ if name.bytes().all(|byte| byte.is_ascii_digit()) => {
            "digits alone name the numbered databases, not a keyspace"
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidInput, wrong))
}

#[cfg(test)]
#[path = "database_map_test.rs"]
mod database_map_test;
