//! The map from numbered databases to keyspaces.
//!
//! Invariants:
//! 1. A keyspace's id is given once and never again: flushing a database is giving it a new id.
//! 2. Two databases never share a keyspace.
//!
//! The caller owns the durable copy (the store's superblock). A change counts from the moment that
//! copy is durable; shards learn it afterwards ([`crate::Shard::apply_map`]). A crash in between
//! leaves the changed map, and nobody has been told that the change is done.

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result};

/// Which keyspace each numbered database is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseMap {
    /// How many changes led here; a higher version replaces a lower one.
    pub version: u64,
    /// The next id that has never been given.
    next_keyspace: u32,
    /// The keyspace of each database, by number.
    keyspaces: Vec<KeyspaceId>,
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

#[cfg(test)]
#[path = "database_map_test.rs"]
mod database_map_test;
