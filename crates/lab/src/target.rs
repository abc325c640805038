//! Tierstone as a target of the load generators.

use crate::run::Run;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tierstone::{
    Batch, DatabaseOptions, Durability, DurableMethod, RedoOptions, ShardSettings, SharedStore, Store,
};
use tierstone_base::histogram::LatencyHistogram;
use tierstone_base::{ErrorKind, Result, SystemClock};
use tierstone_workload::key::KeyOrder;
use tierstone_workload::value::ValueSettings;
use tierstone_workload::{KeyFormat, Mix, SizeDistribution, Target, Workload};

/// Keys of 160 bits, as FAWN-DS has them.
pub const KEY_BYTES: u64 = 20;
/// Bytes of the index for each key, with room for its growth.
const INDEX_BYTES_A_KEY: u64 = 14;
/// What a shard needs at least.
const SHARD_BYTES_MIN: u64 = 1 << 20;

/// Records with keys of [`KEY_BYTES`] in random order and values of `value_bytes`, and gets only.
pub fn records(count: u64, value_bytes: u32) -> Workload {
    Workload {
        records: count,
        key: KeyFormat { prefix: String::new(), digits: 20, order: KeyOrder::Hashed, size: None },
        value: ValueSettings { size: SizeDistribution::Fixed(value_bytes), zero_share: 0.0 },
        mix: Mix::GET,
        ..Workload::default()
    }
}

/// What the experiments choose of a store.
#[derive(Clone, Debug)]
pub struct StoreChoice {
    /// Memory for index and cache.
    pub memory_bytes: u64,
    /// The part of it that the index may take, 0 to 1.
    pub index_fraction: f64,
    /// The most that the cache takes of it, however little the index uses.
    pub cache_bytes_max: u64,
    /// Shards: each writes a log of its own.
    pub shards: u16,
    /// The most that its files may take; `None`: what the disk has.
    pub capacity_bytes: Option<u64>,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// How they are made durable.
    pub method: DurableMethod,
    /// A redo log in persistent memory.
    pub redo: Option<RedoOptions>,
    /// The persistent memory that all of the store lies in, as `emulated:SIZE[:PRESET]`: then it has no directory, and what belongs
    /// to devices (capacity, segments, the durable method, a redo log) has no meaning.
    pub whole: Option<String>,
}

impl StoreChoice {
    /// A store of `records` keys with `cache_bytes` for records, and its index on top of that.
    pub fn with_cache(cache_bytes: u64, records: u64, shards: u16, method: DurableMethod) -> StoreChoice {
        let shard_bytes = u64::from(shards) * SHARD_BYTES_MIN;
        let index_bytes = records * INDEX_BYTES_A_KEY + shard_bytes / 4;
        StoreChoice {
            // Each shard has its minimum, whatever the whole is.
            memory_bytes: (cache_bytes + index_bytes).max(shard_bytes),
            index_fraction: index_bytes as f64 / (cache_bytes + index_bytes) as f64,
            cache_bytes_max: cache_bytes,
            shards,
            capacity_bytes: None,
            segment_bytes: 8 << 20,
            durability: Durability::Sync,
            method,
            redo: None,
            whole: None,
        }
    }

    /// The options of a store in `directory`, or in the memory that all of it lies in.
    pub fn options(&self, directory: &Path) -> DatabaseOptions {
        let on_device = self.on_device(directory);
        let Some(region) = &self.whole else { return on_device };
        DatabaseOptions {
            directories: vec![format!("nvm:{region}").into()],
            capacity_bytes: None,
            segment_bytes: None,
            durable_method: None,
            redo: None,
            ..on_device
        }
    }

    fn on_device(&self, directory: &Path) -> DatabaseOptions {
        DatabaseOptions {
            shards: self.shards,
            memory_bytes: self.memory_bytes,
            capacity_bytes: self.capacity_bytes,
            segment_bytes: Some(self.segment_bytes),
            databases: 1,
            durable_method: Some(self.method),
            redo: self.redo.clone(),
            shard: ShardSettings {
                durability: self.durability,
                index_fraction: self.index_fraction,
                cache_bytes_max: self.cache_bytes_max / u64::from(self.shards.max(1)),
                ..ShardSettings::default()
            },
            ..DatabaseOptions::new(directory)
        }
    }
}

/// Bytes of keys and values up to which a batch of puts is an atomic batch of the store: one group.
const BATCH_BYTES_MAX: usize = 224 << 10;
/// Old records that are read together.
const READ_TOGETHER: usize = 256;

/// How long a store may take to settle, in microseconds.
const SETTLE_US_MAX: u64 = 20_000_000;
/// What is wanted later than this is no work at once.
const SOON: Duration = Duration::from_millis(1);

/// The local handle: the calling thread does all the work. A batch of puts is one commit: when
/// [`Target::put_many`] returns, all of it is durable (unless the durability is relaxed).
#[derive(Debug)]
pub struct LocalTarget {
    store: Store,
    shards: u16,
    waits: bool,
}

impl LocalTarget {
    /// Opens the store in `directory`, or makes it.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(choice: &StoreChoice, directory: &Path) -> Result<LocalTarget> {
        let store = Store::open(&choice.options(directory))?;
        Ok(LocalTarget { store, shards: choice.shards, waits: choice.durability != Durability::Relaxed })
    }

    /// Lends the store time until it wants none at once: segments made ahead, tags completed after growth
    /// or opening. What is measured behind it is not that work.
    ///
    /// # Errors
    /// `Retry` when the run was stopped; when the device fails.
    pub fn settle(&mut self, run: &mut Run<'_>) -> Result<()> {
        let begun_us = run.now_us();
        while run.now_us() - begun_us < SETTLE_US_MAX {
            match self.store.turn()? {
                Some(next) if next < SOON => run.go_on(0.0)?,
                _ => break,
            }
        }
        Ok(())
    }

    /// The store itself.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }
}

impl Target for LocalTarget {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.store.get_into(key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)
    }

    fn get_many(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        if let [key] = keys {
            let found = self.store.get_with(key, |value| each(0, Some(value)))?;
            if found.is_none() {
                each(0, None);
            }
            return Ok(());
        }
        for (place, value) in self.store.get_many(keys)?.iter().enumerate() {
            each(place, value.as_deref());
        }
        Ok(())
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let bytes: usize = records.iter().map(|(key, value)| key.len() + value.len()).sum();
        if self.shards == 1 && self.waits && bytes <= BATCH_BYTES_MAX {
            let mut batch = Batch::new();
            for (key, value) in records {
                batch.put(key, value);
            }
            return self.store.write(&batch);
        }
        for records in records.chunks(READ_TOGETHER) {
            // A write knows its old record (docs/decisions/001-no-blind-writes.md): read together, the
            // old records of keys that are not in memory cost no wait each.
            let keys: Vec<&[u8]> = records.iter().map(|(key, _)| *key).collect();
            self.store.get_many(&keys)?;
            for (key, value) in records {
                let _ticket = self.store.put_nowait(key, value)?;
            }
        }
        if self.waits { self.store.sync() } else { Ok(()) }
    }
}

/// A target whose single calls are timed, in nanoseconds, gets and puts apart. What the generator does between them (names of
/// keys, values, checks) is not in it, one reading of the clock is.
#[derive(Debug)]
pub struct Timed<'a, T> {
    target: &'a mut T,
    clock: SystemClock,
    value: Vec<u8>,
    /// Gets so far.
    pub gets: LatencyHistogram,
    /// Puts so far.
    pub puts: LatencyHistogram,
}

impl<'a, T: Target> Timed<'a, T> {
    /// Times the calls of `target`.
    pub fn new(target: &'a mut T) -> Timed<'a, T> {
        let none = LatencyHistogram::new;
        Timed { target, clock: SystemClock::new(), value: Vec::new(), gets: none(), puts: none() }
    }
}

/// Of several records each is a call: those of [`Target::put_many`] are put one after the other.
impl<T: Target> Target for Timed<'_, T> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let began_ns = self.clock.monotonic_ns();
        let is_found = self.target.get(key, value);
        self.gets.record_ns(self.clock.monotonic_ns() - began_ns);
        is_found
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let began_ns = self.clock.monotonic_ns();
        let is_put = self.target.put(key, value);
        self.puts.record_ns(self.clock.monotonic_ns() - began_ns);
        is_put
    }

    fn get_many(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        // One buffer for all calls: making room for a value is no part of them.
        let mut value = std::mem::take(&mut self.value);
        for (place, key) in keys.iter().enumerate() {
            value.clear();
            let is_found = self.get(key, &mut value)?;
            each(place, is_found.then_some(value.as_slice()));
        }
        self.value = value;
        Ok(())
    }
}

/// The shared handle: a thread a shard does the work and goes on between calls.
#[derive(Clone, Debug)]
pub struct SharedTarget(pub SharedStore);

impl Target for SharedTarget {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.0.get(key)?;
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }
}

/// A writer of batches through the shared handle: all puts of a batch are under way together. A put that
/// is answered with `Retry` is put again, as that answer says, and counted.
#[derive(Clone, Debug)]
pub struct BatchWriter {
    store: SharedStore,
    retried: Arc<AtomicU64>,
}

/// How often a put is put again before its error counts.
const RETRIES_MAX: u32 = 8;

impl BatchWriter {
    /// A writer into `store`.
    pub fn new(store: &SharedStore) -> BatchWriter {
        BatchWriter { store: store.clone(), retried: Arc::default() }
    }

    /// Puts of this writer and its clones that had to be put again.
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }
}

impl Target for BatchWriter {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        SharedTarget(self.store.clone()).get(key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_many(&[(key, value)])
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let answers: Vec<_> = records.iter().map(|(key, value)| self.store.put_async(key, value)).collect();
        for (answer, (key, value)) in answers.into_iter().zip(records) {
            let mut put = answer.wait();
            for _ in 0..RETRIES_MAX {
                if !put.as_ref().is_err_and(|error| error.kind() == ErrorKind::Retry) {
                    break;
                }
                self.retried.fetch_add(1, Ordering::Relaxed);
                put = self.store.put(key, value);
            }
            put?;
        }
        Ok(())
    }
}
