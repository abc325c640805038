//! LMDB: a B-tree in a memory map. Each transaction is durable; its cache is the page cache.

use super::{Engine, Handle, failed};
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, WithoutTls};
use std::path::Path;
use tierstone_base::Result;
use tierstone_workload::Target;

/// The most that it may grow to.
const MAP_BYTES: usize = 64 << 30;

#[derive(Clone)]
struct Tree {
    environment: Env<WithoutTls>,
    records: Database<Bytes, Bytes>,
}

pub fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let options = EnvOpenOptions::new().read_txn_without_tls();
    let mut options = options;
    options.map_size(MAP_BYTES).max_readers(256);
    // SAFETY: nobody else opens these files, and no flag is set that gives up its guarantees.
    let environment = unsafe { options.open(directory) }.map_err(failed)?;
    let mut transaction = environment.write_txn().map_err(failed)?;
    let records = environment.create_database(&mut transaction, None).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(Box::new(Tree { environment, records }))
}

impl Engine for Tree {
    fn handle(&self) -> Result<Handle> {
        Ok(Handle::new(self.clone()))
    }
}

impl Target for Tree {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.environment.read_txn().map_err(failed)?;
        let found = self.records.get(&transaction, key).map_err(failed)?;
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_many(&[(key, value)])
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut transaction = self.environment.write_txn().map_err(failed)?;
        for (key, value) in records {
            self.records.put(&mut transaction, key, value).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        let mut walk = || {
            let transaction = self.environment.read_txn().map_err(failed)?;
            let bounds = (std::ops::Bound::Included(key), std::ops::Bound::Unbounded);
            let range = self.records.range(&transaction, &bounds).map_err(failed)?;
            for entry in range.take(count) {
                let (key, value) = entry.map_err(failed)?;
                each(key, value);
            }
            Ok(())
        };
        Some(walk())
    }
}
