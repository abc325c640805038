//! The stores. Each is set up as its documentation advises for durable writes and little memory; what is set
//! stands beside it.

mod fjall;
mod lmdb;
mod null;
mod redb;
mod rocksdb;
mod tierstone;

use ::tierstone::IndexKind;
use clap::ValueEnum;
use serde::Serialize;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::Target;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// With the hash index
    Tierstone,
    /// With the ordered index
    TierstoneOrdered,
    /// With the hash index, wholly in a region: a file in the directory, on DAX or not
    TierstoneNvm,
    /// The system's shared library
    #[value(name = "rocksdb")]
    #[serde(rename = "rocksdb")]
    RocksDb,
    Fjall,
    Redb,
    Lmdb,
    /// Stores nothing: what machine and generator come to by themselves, with calls that only take time
    Null,
}

/// A handle of one thread.
pub struct Handle(Box<dyn Target + Send>);

impl Handle {
    fn new(target: impl Target + Send + 'static) -> Handle {
        Handle(Box::new(target))
    }
}

impl Target for Handle {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.get(key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.0.put_many(records)
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        self.0.scan(key, count, each)
    }
}

/// An open store.
pub trait Engine {
    /// Before handles are asked for: whether one thread will be alone with the store.
    fn prepare(&self, _is_alone: bool) -> Result<()> {
        Ok(())
    }

    /// One for each thread that calls it at the same time as others.
    fn handle(&self) -> Result<Handle>;

    /// For a thread that is alone with the store: its shortest way.
    fn lone_handle(&self) -> Result<Box<dyn Target + '_>> {
        Ok(Box::new(self.handle()?))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// What a store may use, as far as it can be told.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Of its own caches and buffers.
    pub memory_bytes: u64,
    /// Of Tierstone's segments.
    pub capacity_bytes: Option<u64>,
    /// Of Tierstone's shared handle; without it one a core.
    pub shards: Option<u16>,
    /// Nanoseconds that a call takes which stores nothing.
    pub null_ns: u64,
}

/// Opens or makes the store in a directory that is there.
pub fn open(kind: Kind, directory: &Path, limits: Limits) -> Result<Box<dyn Engine>> {
    match kind {
        Kind::Tierstone => tierstone::open(directory, limits, IndexKind::Hash),
        Kind::TierstoneOrdered => tierstone::open(directory, limits, IndexKind::Ordered),
        Kind::TierstoneNvm => tierstone::open_nvm(directory, limits),
        Kind::RocksDb => rocksdb::open(directory, limits.memory_bytes),
        Kind::Fjall => fjall::open(directory, limits.memory_bytes),
        Kind::Redb => redb::open(directory, limits.memory_bytes),
        Kind::Lmdb => lmdb::open(directory),
        Kind::Null => Ok(null::open(limits.null_ns)),
    }
}

/// An error of another's store.
fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::DeviceFailed, error.to_string())
}
