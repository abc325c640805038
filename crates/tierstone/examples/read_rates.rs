//! Measures uniform gets from a store with more data than memory, without a server: many at once by the
//! local handle, and a fixed number under way by the shared one. Run in release:
//! `cargo run --release --example read_rates -p tierstone -- DIRECTORY [RECORDS [MEMORY_MIB [SECONDS [SHARDS]]]]`.
//!
//! Beside it belongs the device's own rate of random reads at the same depth (`bench/device` runs fio on the
//! same file system). Values have 1,000 bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tierstone::{Answer, BulkOptions, DatabaseOptions, SharedStore, Store};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_engine::EngineStatistics;

const SEED: u64 = 1;
const VALUE_BYTES: usize = 1_000;
const KEY_BYTES: usize = 16;
/// Gets that are under way at the same time.
const DEPTHS: [usize; 2] = [32, 256];

#[expect(clippy::disallowed_methods, reason = "a measuring program")]
fn now() -> Instant {
    Instant::now()
}

/// Seconds of the processors that this process has taken.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The key without the formatting machinery, so that the store is what is measured.
fn key_of(mut number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key:000000000000";
    let mut place = key.len();
    while number > 0 {
        place -= 1;
        key[place] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

struct Run {
    directory: PathBuf,
    records: u64,
    memory_bytes: u64,
    seconds: u64,
    shards: u16,
}

impl Run {
    fn options(&self) -> DatabaseOptions {
        let Run { memory_bytes, shards, .. } = *self;
        DatabaseOptions { memory_bytes, shards, ..DatabaseOptions::new(&self.directory) }
    }

    fn load(&self) -> Result<()> {
        let store = SharedStore::open(&self.options())?;
        let mut bulk = store.bulk_load(BulkOptions::default())?;
        for number in 0..self.records {
            bulk.put(&key_of(number), &[7; VALUE_BYTES])?;
        }
        bulk.finish()?;
        store.close()
    }

    /// Runs `gets` until the time is over. Its answer is the number of records that came.
    fn measure(
        &self,
        mut statistics: impl FnMut() -> Result<EngineStatistics>,
        mut gets: impl FnMut(&mut SeededRandom) -> Result<u64>,
    ) -> Result<Measured> {
        let mut random = SeededRandom::new(SEED);
        let (before, began, started) = (statistics()?, processor_seconds(), now());
        let mut records = 0;
        while started.elapsed() < Duration::from_secs(self.seconds) {
            records += gets(&mut random)?;
        }
        let (seconds, processor) = (started.elapsed().as_secs_f64(), processor_seconds() - began);
        let after = statistics()?;
        Ok(Measured {
            rate: records as f64 / seconds,
            processor_us: processor * 1e6 / records as f64,
            from_device: after.device_hits - before.device_hits,
            device_reads: after.device.reads - before.device.reads,
            records,
        })
    }

    /// `get_many` of the local handle: `depth` at once, and the next when all have come.
    fn many(&self, depth: usize) -> Result<Measured> {
        let store = RefCell::new(Store::open(&self.options())?);
        let measured = self.measure(
            || Ok(store.borrow().statistics()),
            |random| {
                let keys: Vec<_> = (0..depth).map(|_| key_of(random.below(self.records))).collect();
                let keys: Vec<&[u8]> = keys.iter().map(<[u8; KEY_BYTES]>::as_slice).collect();
                let values = store.borrow_mut().get_many(&keys)?;
                values.iter().try_for_each(check)?;
                Ok(depth as u64)
            },
        )?;
        store.into_inner().close()?;
        Ok(measured)
    }

    /// `get_async` of the shared handle: `depth` are under way at all times.
    fn under_way(&self, depth: usize) -> Result<Measured> {
        let store = SharedStore::open(&self.options())?;
        let mut answers: VecDeque<Answer<Option<Vec<u8>>>> = VecDeque::with_capacity(depth);
        let measured = self.measure(
            || store.statistics(),
            |random| {
                let first = (answers.len() == depth).then(|| answers.pop_front()).flatten();
                answers.push_back(store.get_async(&key_of(random.below(self.records))));
                first.map_or(Ok(0), |answer| check(&answer.wait()?).map(|()| 1))
            },
        )?;
        answers.into_iter().try_for_each(|answer| check(&answer.wait()?))?;
        store.close()?;
        Ok(measured)
    }
}

/// Every key was loaded.
fn check(value: &Option<Vec<u8>>) -> Result<()> {
    match value {
        Some(value) if value.len() == VALUE_BYTES => Ok(()),
        _ => Err(Error::new(ErrorKind::Corrupt, "a record that was loaded is not there")),
    }
}

struct Measured {
    rate: f64,
    processor_us: f64,
    from_device: u64,
    device_reads: u64,
    records: u64,
}

impl Measured {
    fn tell(&self, name: &str, shards: u16) {
        println!(
            "{name:<44} {:>9.0} gets/s, {:.2} us of processor a get, {:.3} of them from the device, {:.3} reads each, {shards} shards",
            self.rate,
            self.processor_us,
            self.from_device as f64 / self.records as f64,
            self.device_reads as f64 / self.from_device.max(1) as f64,
        );
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("tierstone-reads"), Into::into);
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let run = Run {
        directory,
        records: number(2 << 20),
        memory_bytes: number(256) << 20,
        seconds: number(5),
        shards: number(1) as u16,
    };
    let _ = std::fs::remove_dir_all(&run.directory);
    run.load()?;
    for depth in DEPTHS {
        run.many(depth)?.tell(&format!("get_many of {depth}, local handle"), run.shards);
        run.under_way(depth)?.tell(&format!("{depth} gets under way, shared handle"), run.shards);
    }
    std::fs::remove_dir_all(&run.directory).map_err(Error::from)
}
