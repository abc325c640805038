//! Measures loading a new store through the local handle: durable batches of 1,000 one after the other, and
//! puts that are not waited for with one sync at the end. Run in release:
//! `cargo run --release --example bulk_load -p tierstone -- DIRECTORY [MIB [VALUE_BYTES [SHARDS [STAGE_KIB [NAME]]]]]`;
//! with a NAME only the loads whose names contain it.
//!
//! Beside it belongs the device's own sequential rate (`bench/device` runs fio on the same file system).

use std::path::Path;
use std::time::Instant;
use tierstone::{Batch, BulkOptions, DatabaseOptions, SharedStore, Store};
use tierstone_base::Result;
use tierstone_engine::EngineStatistics;

const BATCH: u64 = 1_000;

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
fn key_of(mut number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut place = key.len();
    while number > 0 {
        place -= 1;
        key[place] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

/// Removes what was loaded; its space is given back to the device now, not in the midst of the next load.
fn forget(directory: &Path) -> Result<()> {
    std::fs::remove_dir_all(directory)?;
    rustix::fs::sync();
    Ok(())
}

struct Load {
    mib: u64,
    value: Vec<u8>,
    shards: u16,
    bulk: BulkOptions,
    /// What the names of the loads that are run contain.
    wanted: String,
}

impl Load {
    fn run(
        &self,
        directory: &Path,
        name: &str,
        fill: impl FnOnce(&mut Store, u64) -> Result<()>,
    ) -> Result<()> {
        if !name.contains(&self.wanted) {
            return Ok(());
        }
        let _ = std::fs::remove_dir_all(directory);
        let mut store = Store::open(&self.options(directory))?;
        let (started, began) = (now(), processor_seconds());
        fill(&mut store, self.records())?;
        let seconds = (started.elapsed().as_secs_f64(), processor_seconds() - began);
        assert_eq!(store.len(), self.records());
        self.tell(name, seconds, &store.statistics());
        drop(store);
        forget(directory)
    }

    fn run_shared(&self, directory: &Path, name: &str) -> Result<()> {
        if !name.contains(&self.wanted) {
            return Ok(());
        }
        let _ = std::fs::remove_dir_all(directory);
        let store = SharedStore::open(&self.options(directory))?;
        let (started, began) = (now(), processor_seconds());
        let mut bulk = store.bulk_load(self.bulk)?;
        for number in 0..self.records() {
            bulk.put(&key_of(number), &self.value)?;
        }
        bulk.finish()?;
        let seconds = (started.elapsed().as_secs_f64(), processor_seconds() - began);
        assert_eq!(store.len()?, self.records());
        self.tell(name, seconds, &store.statistics()?);
        store.close()?;
        forget(directory)
    }

    fn options(&self, directory: &Path) -> DatabaseOptions {
        DatabaseOptions { memory_bytes: 512 << 20, shards: self.shards, ..DatabaseOptions::new(directory) }
    }

    fn records(&self) -> u64 {
        (self.mib << 20) / self.value.len() as u64
    }

    fn tell(&self, name: &str, (seconds, processor): (f64, f64), facts: &EngineStatistics) {
        let records = self.records();
        let bytes = records * (self.value.len() + key_of(0).len()) as u64;
        println!(
            "{name:<40} {:>8.0} MB/s {:>10.0} records/s, {:.2} us of processor a record, {:.3} bytes written a byte, {} groups, {} shards",
            bytes as f64 / 1e6 / seconds,
            records as f64 / seconds,
            processor * 1e6 / records as f64,
            facts.device.bytes_written as f64 / facts.user_bytes_written as f64,
            facts.groups,
            self.shards,
        );
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("tierstone-bulk"), Into::into);
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let usual_kib = BulkOptions::default().stage_bytes as u64 >> 10;
    let mut load = Load {
        mib: number(2_048),
        value: vec![7; number(1_000) as usize],
        shards: number(1) as u16,
        bulk: BulkOptions { stage_bytes: (number(usual_kib) as usize) << 10 },
        wanted: String::new(),
    };
    load.wanted = arguments.next().unwrap_or_default();
    load.run(&directory, "durable batches of 1,000", |store, records| {
        let mut batch = Batch::new();
        for first in (0..records).step_by(BATCH as usize) {
            batch.clear();
            for number in first..(first + BATCH).min(records) {
                batch.put(&key_of(number), &load.value);
            }
            store.write(&batch)?;
        }
        Ok(())
    })?;
    load.run(&directory, "a bulk load", |store, records| {
        let mut bulk = store.bulk_load(load.bulk)?;
        for number in 0..records {
            bulk.put(&key_of(number), &load.value)?;
        }
        bulk.finish().map(drop)
    })?;
    load.run_shared(&directory, "a bulk load of the shared handle")?;
    load.run(&directory, "puts that are not waited for, one sync", |store, records| {
        for number in 0..records {
            let _ticket = store.put_nowait(&key_of(number), &load.value)?;
        }
        store.sync()
    })
}
