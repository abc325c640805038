//! Measures the embedded store beside the raw device: durable puts one at a time, durable batches of
//! 1,000, gets from memory, and the shared handle. Run in release:
//! `cargo run --release --example embedded_rates -p tierstone -- [DIRECTORY [KEYS [CAPACITY_GIB]]]`; with fewer than
//! 100,000 keys everything is done less often.
//!
//! Rows with `raw` are the device itself: one durable 4 KiB write after another through the same
//! back-end, into a file that was only given its space (as the store's segments are) and into one that
//! was filled with zeros before.

use std::path::Path;
use std::time::Instant;
use tierstone::{Batch, DatabaseOptions, SharedStore, Store};
use tierstone_base::{Error, Result, SeededRandom};
use tierstone_engine::Durability;
use tierstone_media::file::{DurableMethod, FileDevice, FileStore, FileStoreSettings};
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoKind, IoRequest, Wait};

const SEED: u64 = 1;
const ROUNDS: usize = 8;
const BATCH: usize = 1_000;
/// What the log writes for a batch of 1,000.
const LARGE_BYTES: usize = 224 << 10;

#[expect(clippy::disallowed_methods, reason = "a measuring program")]
fn now() -> Instant {
    Instant::now()
}

#[derive(Default)]
struct Latencies(Vec<u64>);

impl Latencies {
    fn time<T>(&mut self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = now();
        let answer = operation()?;
        self.0.push(started.elapsed().as_nanos() as u64);
        Ok(answer)
    }

    fn print(&mut self, name: &str) {
        self.0.sort_unstable();
        let at = |part: f64| self.0[((self.0.len() - 1) as f64 * part) as usize] as f64 / 1e3;
        println!("{name:<44} p50 {:>8.1} us   p99 {:>8.1} us   n {}", at(0.5), at(0.99), self.0.len());
    }
}

/// Durable writes of one block, one after the other.
struct Raw {
    device: FileDevice,
    offset: u64,
    latencies: Latencies,
}

impl Raw {
    fn open(directory: &Path, method: DurableMethod, filled: bool) -> Result<Raw> {
        let segment_bytes = 32 << 20;
        let settings = FileStoreSettings {
            segment_bytes,
            segment_limit: 4,
            ..FileStoreSettings::new(vec![directory.to_path_buf()])
        };
        let device = FileStore::open(&settings)?.device(method)?;
        let offset = device.geometry().segment_offset(0);
        let mut raw = Raw { device, offset, latencies: Latencies::default() };
        if filled {
            let prepare = IoKind::Prepare { len: segment_bytes };
            raw.one(IoRequest { token: 0, kind: prepare, offset, buffer: None })?;
        } else {
            raw.one(IoRequest::write_durable(0, offset, IoBuffer::zeroed(BLOCK_BYTES)))?;
        }
        Ok(raw)
    }

    fn one(&mut self, request: IoRequest) -> Result<IoBuffer> {
        let mut completions = Vec::with_capacity(1);
        self.device.submit(&mut vec![request]);
        self.device.complete(Wait::One, &mut completions);
        let completion = completions.pop().ok_or_else(|| {
            Error::new(tierstone_base::ErrorKind::DeviceFailed, "the device gave no completion")
        })?;
        completion.result?;
        Ok(completion.buffer.unwrap_or_else(|| IoBuffer::zeroed(BLOCK_BYTES)))
    }

    /// Durable writes of the size of a batch.
    fn large(&mut self, name: &str) -> Result<()> {
        let mut latencies = Latencies::default();
        let mut buffer = IoBuffer::zeroed(LARGE_BYTES);
        for number in 0..60 {
            buffer[0] = number;
            let request = IoRequest::write_durable(0, self.offset, buffer);
            self.offset += LARGE_BYTES as u64;
            buffer = latencies.time(|| self.one(request))?;
        }
        latencies.print(name);
        Ok(())
    }

    fn round(&mut self, puts: usize) -> Result<()> {
        let mut buffer = IoBuffer::zeroed(BLOCK_BYTES);
        for number in 0..puts {
            buffer[0] = number as u8;
            self.offset += BLOCK_BYTES as u64;
            let request = IoRequest::write_durable(0, self.offset, buffer);
            let mut latencies = std::mem::take(&mut self.latencies);
            buffer = latencies.time(|| self.one(request))?;
            self.latencies = latencies;
        }
        Ok(())
    }
}

fn options(directory: &Path, capacity_gib: Option<u64>) -> DatabaseOptions {
    let capacity_bytes = capacity_gib.map(|gib| gib << 30);
    DatabaseOptions { memory_bytes: 1 << 30, capacity_bytes, ..DatabaseOptions::new(directory) }
}

fn single_puts(store: &mut Store, directory: &Path, keys: u64) -> Result<()> {
    let method = store.database().facts().durable_method;
    println!("durable method {method:?}, {:?}", store.database().storage().guarantee());
    let mut fresh = Raw::open(&directory.join("raw-fresh"), method, false)?;
    let mut filled = Raw::open(&directory.join("raw-filled"), method, true)?;
    let mut puts = Latencies::default();
    let value = [7u8; 150];
    let puts_a_round = keys.div_ceil(200).min(500) as usize;
    for round in 0..ROUNDS {
        fresh.round(puts_a_round)?;
        filled.round(puts_a_round)?;
        for number in 0..puts_a_round {
            let key = key_of((1 << 40) + (round * puts_a_round + number) as u64);
            puts.time(|| store.put(&key, &value))?;
        }
    }
    Raw::open(&directory.join("raw-large"), method, false)?.large("raw durable 224 KiB, space taken only")?;
    Raw::open(&directory.join("raw-large-filled"), method, true)?.large("raw durable 224 KiB, filled")?;
    fresh.latencies.print("raw durable 4 KiB, space taken only");
    filled.latencies.print("raw durable 4 KiB, filled with zeros");
    puts.print("Store::put, 24 B + 150 B");
    let (count, started) = (20_000u32, now());
    for _ in 0..count {
        store.turn()?;
    }
    let nanoseconds = started.elapsed().as_nanos() as f64 / f64::from(count);
    let segments = store.database().storage().geometry().segment_limit;
    println!("{:<44} {nanoseconds:>12.0} ns   {segments} segments", "a turn with nothing to do");
    Ok(())
}

fn batches(store: &mut Store, keys: u64) -> Result<()> {
    let value = [9u8; 150];
    let mut batch = Batch::new();
    let mut latencies = Latencies::default();
    let started = now();
    for first in (0..keys).step_by(BATCH) {
        batch.clear();
        for number in first..(first + BATCH as u64).min(keys) {
            batch.put(&key_of(number), &value);
        }
        latencies.time(|| store.write(&batch))?;
    }
    let rate = keys as f64 / started.elapsed().as_secs_f64();
    latencies.print("Store::write, 1,000 puts");
    println!("{:<44} {rate:>12.0} keys/s", "durable batches of 1,000, new keys");
    let started = now();
    let count = keys / 2;
    for number in 0..count {
        let _ticket = store.put_nowait(&key_of(number), &value)?;
    }
    store.sync()?;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    println!("{:<44} {rate:>12.0} keys/s", "put_nowait and one sync, overwriting");
    Ok(())
}

fn gets(store: &mut Store, keys: u64) -> Result<()> {
    let mut random = SeededRandom::new(SEED);
    let count = 3_000_000.min(keys * 30);
    let (mut bytes, mut found) = (0, 0);
    let started = now();
    for _ in 0..count {
        let length = store.get_with(&key_of(random.below(keys)), <[u8]>::len)?;
        bytes += length.unwrap_or(0);
        found += u64::from(length.is_some());
    }
    let rate = count as f64 / started.elapsed().as_secs_f64();
    let before = store.statistics();
    println!("{:<44} {rate:>12.0} gets/s   found {found}, {bytes} bytes", "get_with from memory, uniform");
    println!("{:<44} {} device hits of {} lookups", "", before.device_hits, before.memory_hits);
    Ok(())
}

/// The key without the formatting machinery, so that the store is what is measured.
fn key_of(mut number: u64) -> [u8; 24] {
    let mut key = *b"kkkkkkkk0000000000000000";
    let mut place = key.len();
    while number > 0 {
        place -= 1;
        key[place] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

fn shared(options: &DatabaseOptions, keys: u64) -> Result<()> {
    let store = SharedStore::open(options)?;
    let value = [3u8; 150];
    let (mut puts, mut reads) = (Latencies::default(), Latencies::default());
    for number in 0..4_000.min(keys) {
        puts.time(|| store.put(&key_of((1 << 42) + number), &value))?;
        reads.time(|| store.get(&key_of((1 << 42) + number)))?;
    }
    puts.print("SharedStore::put, one caller");
    reads.print("SharedStore::get from memory, one caller");
    let (count, depth) = (400_000.min(keys), 256);
    let mut answers = std::collections::VecDeque::with_capacity(depth);
    let started = now();
    for number in 0..count {
        if answers.len() == depth {
            answers.pop_front().map_or(Ok(()), tierstone::Answer::wait)?;
        }
        answers.push_back(store.put_async(&key_of((1 << 41) + number), &value));
    }
    answers.into_iter().try_for_each(tierstone::Answer::wait)?;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    println!("{:<44} {rate:>12.0} keys/s", "put_async, 256 under way, new keys");
    store.close()
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("tierstone-rates"), Into::into);
    let keys = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let capacity_gib = arguments.next().and_then(|text| text.parse().ok());
    let _ = std::fs::remove_dir_all(&directory);
    let options = options(&directory.join("store"), capacity_gib);
    let mut store = Store::open(&options)?;
    single_puts(&mut store, &directory, keys)?;
    batches(&mut store, keys)?;
    gets(&mut store, keys)?;
    store.close()?;
    let started = now();
    let store = Store::open(&options)?;
    println!(
        "{:<44} {:.2} s for {} keys",
        "opening after close",
        started.elapsed().as_secs_f64(),
        store.len()
    );
    drop(store);
    shared(&options, keys)?;
    let relaxed = DatabaseOptions { shard: relaxed(&options), ..options };
    let mut store = Store::open(&relaxed)?;
    let mut puts = Latencies::default();
    for number in 0..200_000.min(keys * 2) {
        puts.time(|| store.put(&key_of((1 << 43) + number), &[1; 150]))?;
    }
    puts.print("Store::put, relaxed, new keys");
    let mut cold = Latencies::default();
    for number in 0..4_000.min(keys / 17) {
        cold.time(|| store.put(&key_of(number * 17), &[1; 150]))?;
    }
    cold.print("the same, overwriting what is on the device");
    store.close()?;
    std::fs::remove_dir_all(&directory).map_err(Error::from)
}

fn relaxed(options: &DatabaseOptions) -> tierstone_logstore::ShardSettings {
    tierstone_logstore::ShardSettings { durability: Durability::Relaxed, ..options.shard.clone() }
}
