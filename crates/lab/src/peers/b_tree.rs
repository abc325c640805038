//! A B-tree: redb, copy on write, each commit durable.

use redb::{Database, Durability, ReadableDatabase, StorageBackend, TableDefinition};
use rustix::fs::{Advice, fadvise};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::Target;

const RECORDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("records");

/// A database of one table.
#[derive(Debug)]
pub struct BTree {
    database: Database,
}

impl BTree {
    /// A new tree in `file`, with `memory_bytes` for its own cache.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(file: &Path, memory_bytes: u64) -> Result<BTree> {
        let backend = UncachedFile::create(file)?;
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(memory_bytes).unwrap_or(usize::MAX));
        let database = builder.create_with_backend(backend).map_err(failed)?;
        let mut tree = BTree { database };
        // The table is there before the first get.
        tree.put_many(&[])?;
        Ok(tree)
    }
}

fn failed(error: impl Display) -> Error {
    Error::new(ErrorKind::DeviceFailed, format!("the B-tree: {error}"))
}

impl Target for BTree {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut is_found = false;
        self.get_many(&[key], &mut |_, found| {
            is_found = found.is_some();
            value.extend_from_slice(found.unwrap_or_default());
        })?;
        Ok(is_found)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_many(&[(key, value)])
    }

    fn get_many(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let table = transaction.open_table(RECORDS).map_err(failed)?;
        for (place, key) in keys.iter().enumerate() {
            let found = table.get(*key).map_err(failed)?;
            each(place, found.as_ref().map(|guard| guard.value()));
        }
        Ok(())
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::Immediate).map_err(failed)?;
        {
            let mut table = transaction.open_table(RECORDS).map_err(failed)?;
            for (key, value) in records {
                table.insert(*key, *value).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }
}

/// A file whose bytes leave the kernel's cache as soon as they have been read or made durable. Writes
/// still gather there until they are synced, as the tree expects.
#[derive(Debug)]
struct UncachedFile(File);

impl UncachedFile {
    fn create(path: &Path) -> Result<UncachedFile> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        // Pages are read by their own; what lies behind them is not asked for.
        fadvise(&file, 0, None, Advice::Random).map_err(std::io::Error::from)?;
        Ok(UncachedFile(file))
    }
}

impl StorageBackend for UncachedFile {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(out, offset)?;
        fadvise(&self.0, offset, std::num::NonZeroU64::new(out.len() as u64), Advice::DontNeed)?;
        Ok(())
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()?;
        fadvise(&self.0, 0, None, Advice::DontNeed)?;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}
