//! An LSM-tree: fjall, leveled compaction, each write durable before its answer.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::fmt::Display;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::Target;

/// A database of one tree; clones are handles for other threads.
#[derive(Clone)]
pub struct LsmTree {
    database: Database,
    records: Keyspace,
}

impl std::fmt::Debug for LsmTree {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LsmTree").finish_non_exhaustive()
    }
}

impl LsmTree {
    /// A new tree in `folder`, with `cache_bytes` for blocks and tables in memory of `table_bytes`.
    ///
    /// # Errors
    /// When its files cannot be made.
    pub fn create(folder: &Path, cache_bytes: u64, table_bytes: u64) -> Result<LsmTree> {
        let database = Database::builder(folder).cache_size(cache_bytes).open().map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(table_bytes);
        let records = database.keyspace("records", options).map_err(failed)?;
        Ok(LsmTree { database, records })
    }
}

fn failed(error: impl Display) -> Error {
    Error::new(ErrorKind::DeviceFailed, format!("the LSM-tree: {error}"))
}

impl Target for LsmTree {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.records.get(key).map_err(failed)?;
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.insert(key, value).map_err(failed)?;
        self.database.persist(PersistMode::SyncData).map_err(failed)
    }
}
