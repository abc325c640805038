//! Tierstone: the local handle for a thread that is alone, the shared handle with a shard a core else. Every
//! write is durable when its call returns.

use super::{Engine, Handle, Limits, failed};
use std::cell::RefCell;
use std::path::Path;
use tierstone::{Batch, DatabaseOptions, IndexKind, SharedStore, Store};
use tierstone_base::Result;
use tierstone_workload::Target;

struct Both {
    options: DatabaseOptions,
    /// Of the shared handle; without it one a core.
    shards: Option<u16>,
    /// At most one of them is open.
    local: RefCell<Option<Store>>,
    shared: RefCell<Option<SharedStore>>,
}

pub fn open(directory: &Path, limits: Limits, index: IndexKind) -> Result<Box<dyn Engine>> {
    let options = DatabaseOptions {
        memory_bytes: limits.memory_bytes,
        capacity_bytes: limits.capacity_bytes,
        index: Some(index),
        ..DatabaseOptions::new(directory)
    };
    Ok(Box::new(Both { options, shards: limits.shards, local: RefCell::new(None), shared: RefCell::new(None) }))
}

/// A store in a region that is the file `region` of `directory`.
pub fn open_nvm(directory: &Path, limits: Limits) -> Result<Box<dyn Engine>> {
    let options = DatabaseOptions {
        memory_bytes: limits.memory_bytes,
        capacity_bytes: limits.capacity_bytes,
        any_guarantee: true,
        ..DatabaseOptions::new(format!("nvm:{}", directory.join("region").display()))
    };
    Ok(Box::new(Both { options, shards: limits.shards, local: RefCell::new(None), shared: RefCell::new(None) }))
}

impl Both {
    fn close_both(&self) -> Result<()> {
        self.shared.take().map_or(Ok(()), |store| store.close())?;
        self.local.take().map_or(Ok(()), Store::close)
    }
}

impl Engine for Both {
    fn prepare(&self, is_alone: bool) -> Result<()> {
        let is_open = if is_alone { self.local.borrow().is_some() } else { self.shared.borrow().is_some() };
        if is_open {
            return Ok(());
        }
        self.close_both()?;
        if is_alone {
            *self.local.borrow_mut() = Some(Store::open(&self.options)?);
        } else {
            let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(8) as u16;
            let shards = self.shards.unwrap_or_else(cores);
            *self.shared.borrow_mut() =
                Some(SharedStore::open(&DatabaseOptions { shards, ..self.options.clone() })?);
        }
        Ok(())
    }

    fn handle(&self) -> Result<Handle> {
        let store = self.shared.borrow().clone().ok_or_else(|| failed("the store is not open"))?;
        let is_ordered = self.options.index == Some(IndexKind::Ordered);
        Ok(Handle::new(Caller { store, is_ordered }))
    }

    fn lone_handle(&self) -> Result<Box<dyn Target + '_>> {
        Ok(Box::new(Alone { store: &self.local, batch: Batch::new() }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.close_both()
    }
}

struct Alone<'a> {
    store: &'a RefCell<Option<Store>>,
    batch: Batch,
}

impl Alone<'_> {
    fn with<T>(&self, call: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
        self.store.borrow_mut().as_mut().map_or_else(|| Err(failed("the store is not open")), call)
    }
}

impl Target for Alone<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.with(|store| store.get_into(key, value))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.with(|store| store.put(key, value))
    }

    fn get_many(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let values = self.with(|store| store.get_many(keys))?;
        values.iter().enumerate().for_each(|(place, value)| each(place, value.as_deref()));
        Ok(())
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.batch.clear();
        for (key, value) in records {
            self.batch.put(key, value);
        }
        self.with(|store| store.write(&self.batch))
    }
}

/// One thread's handle.
struct Caller {
    store: SharedStore,
    is_ordered: bool,
}

impl Target for Caller {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.store.get(key)?;
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let answers: Vec<_> = records.iter().map(|(key, value)| self.store.put_async(key, value)).collect();
        answers.into_iter().try_for_each(|answer| answer.wait())
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        let walk = || {
            for entry in self.store.range(key..).limit(count as u64) {
                let entry = entry?;
                each(&entry.key, &entry.value);
            }
            Ok(())
        };
        self.is_ordered.then(walk)
    }
}
