//! Records into a store that nobody else has open: the quickest way to fill one.

use super::Errors;
use super::feed::{Item, Loaded};
use crate::backup::closed::without_region;
use crate::region::{RegionArgs, kept_shards};
use clap::Args;
use std::path::PathBuf;
use tierstone::{BulkOptions, DatabaseOptions, SharedBulkLoad, SharedStore};
use tierstone_base::units::parse_size;
use tierstone_base::{Error, ErrorKind, Result};

/// Which store, when it is not a server's.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Load into the store in these directories instead of a server: it is made if there is none, and must not be
    /// open. A load that is broken off leaves a part of the records
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    data: Option<Vec<PathBuf>>,
    /// Memory of the store's index and caches; its server may have another
    #[arg(
        long,
        value_name = "SIZE",
        requires = "data",
        conflicts_with = "address",
        default_value = "256MiB"
    )]
    memory: String,
    /// Shards that load at the same time [default: one a core; at nvm:… the store's own]; its server may have another number
    #[arg(long, value_name = "N", requires = "data", conflicts_with = "address")]
    shards: Option<u16>,
    /// The numbered database, of a server too
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub database: u32,
    /// The most that a new store may take; of one at nvm:… the size of its region
    #[arg(long, value_name = "SIZE", requires = "data", conflicts_with = "address")]
    capacity: Option<String>,
    #[command(flatten)]
    region: RegionArgs,
}

impl StoreArgs {
    /// Opens the store, if one is meant.
    pub fn open(&self) -> Result<Option<StoreSink>> {
        let Some(directories) = &self.data else {
            // With --address given, which conflicts with --data, clap does not ask for that.
            return self.region.needs("--data").map(|()| None);
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let added = tierstone::find_files(directories)?.map(|store| store.others).unwrap_or_default();
        let kept = || kept_shards(directories).unwrap_or(cores.min(64) as u16);
        let mut options = DatabaseOptions {
            directories: directories.clone(),
            memory_bytes: parse_size(&self.memory)?,
            capacity_bytes: self.capacity.as_deref().map(parse_size).transpose()?,
            shards: self.shards.unwrap_or_else(kept),
            ..DatabaseOptions::default()
        };
        self.region.apply(&mut options);
        let store =
            SharedStore::open(&options).map_err(|error| without_region(error, &options.directories))?;
        for directory in added {
            tell!(
                "tierstone: added {} to the store: from now on name it whenever it is opened; it may be moved, but not taken \
                 away again",
                directory.display()
            );
        }
        let load = store.keyspace(self.database)?.bulk_load(BulkOptions::default())?;
        Ok(Some(StoreSink { store, load, failure: None }))
    }
}

/// The open store.
pub struct StoreSink {
    store: SharedStore,
    load: SharedBulkLoad,
    failure: Option<Error>,
}

impl StoreSink {
    /// Puts a record; false when no more are taken.
    pub fn give(&mut self, item: &Item, errors: &Errors) -> bool {
        match self.load.put(&item.key, &item.value) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                errors.tell(&item.place, error.to_string())
            }
            Err(error) => self.failure = Some(error),
        }
        self.failure.is_none()
    }

    /// Waits until everything is durable, and closes the store.
    pub fn finish(self) -> Result<Loaded> {
        let StoreSink { store, mut load, failure } = self;
        let loaded = match failure {
            Some(error) => Err(error),
            None => load.sync(),
        };
        let loaded = loaded.map_err(|error| {
            let records = load.loaded().records;
            let message = format!(
                "{}; the load has ended, with {records} records in the store at least",
                error.message()
            );
            Error::new(error.kind(), message)
        });
        drop(load);
        let closed = store.close();
        let loaded = loaded?;
        closed?;
        Ok(Loaded { records: loaded.records, bytes: loaded.bytes })
    }
}
