//! fjall: an LSM-tree. Each write is followed by `fdatasync` of the journal.

use super::{Engine, Handle, failed};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;
use tierstone_base::Result;
use tierstone_workload::Target;

#[derive(Clone)]
struct Tree {
    database: Database,
    records: Keyspace,
}

pub fn open(directory: &Path, memory_bytes: u64) -> Result<Box<dyn Engine>> {
    // Half for blocks; the write buffer takes up to a quarter, the page cache the rest.
    let database = Database::builder(directory).cache_size(memory_bytes / 2).open().map_err(failed)?;
    let options = || KeyspaceCreateOptions::default().max_memtable_size((memory_bytes / 8).min(64 << 20));
    let records = database.keyspace("records", options).map_err(failed)?;
    Ok(Box::new(Tree { database, records }))
}

impl Engine for Tree {
    fn handle(&self) -> Result<Handle> {
        Ok(Handle::new(self.clone()))
    }
}

impl Target for Tree {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.records.get(key).map_err(failed)?;
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.insert(key, value).map_err(failed)?;
        self.database.persist(PersistMode::SyncData).map_err(failed)
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in records {
            batch.insert(&self.records, *key, *value);
        }
        batch.commit().map_err(failed)
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        let mut walk = || {
            for entry in self.records.range(key..).take(count) {
                let (key, value) = entry.into_inner().map_err(failed)?;
                each(&key, &value);
            }
            Ok(())
        };
        Some(walk())
    }
}
