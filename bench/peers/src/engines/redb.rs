//! redb: a B-tree, copy on write. Each transaction is durable.

use super::{Engine, Handle, failed};
use redb::{Database, ReadableDatabase, TableDefinition};
use std::path::Path;
use std::sync::Arc;
use tierstone_base::Result;
use tierstone_workload::Target;

const RECORDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("records");

#[derive(Clone)]
struct Tree {
    database: Arc<Database>,
}

pub fn open(directory: &Path, memory_bytes: u64) -> Result<Box<dyn Engine>> {
    let mut builder = Database::builder();
    builder.set_cache_size(memory_bytes as usize / 2);
    let database = Arc::new(builder.create(directory.join("records.redb")).map_err(failed)?);
    let mut tree = Tree { database };
    // The table is there before the first get.
    tree.put_many(&[])?;
    Ok(Box::new(tree))
}

impl Engine for Tree {
    fn handle(&self) -> Result<Handle> {
        Ok(Handle::new(self.clone()))
    }
}

impl Target for Tree {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let table = transaction.open_table(RECORDS).map_err(failed)?;
        let found = table.get(key).map_err(failed)?;
        value.extend_from_slice(found.as_ref().map(|guard| guard.value()).unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_many(&[(key, value)])
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut table = transaction.open_table(RECORDS).map_err(failed)?;
            for (key, value) in records {
                table.insert(*key, *value).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        let mut walk = || {
            let transaction = self.database.begin_read().map_err(failed)?;
            let table = transaction.open_table(RECORDS).map_err(failed)?;
            for entry in table.range(key..).map_err(failed)?.take(count) {
                let (key, value) = entry.map_err(failed)?;
                each(key.value(), value.value());
            }
            Ok(())
        };
        Some(walk())
    }
}
