//! What cleaning moves for each record that is written, by how full a store is, beside an ideal greedy cleaner: one
//! that simulates segments of as many records, keeps none in reserve and always takes the emptiest. Bytes are
//! counted, not timed. Prints Markdown: `tierstone-bench-cleaning DIRECTORY [CAPACITY_MIB]`.

use std::path::Path;
use tierstone::{Batch, DatabaseOptions, Store};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_workload::Distribution;
use tierstone_workload::distribution::KeyChooser;

const VALUE_BYTES: usize = 128;
/// Bytes of a record of a key of 16 bytes and this value in the log.
const RECORD_BYTES: u64 = 192;
const SEGMENT_BYTES: u64 = 1 << 20;
const BATCH: u64 = 1_000;
/// Writes before and while counting, as parts of the capacity.
const SETTLED_AFTER: f64 = 2.0;
const COUNTED: f64 = 2.0;

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The key of a rank: neighbours in heat are no neighbours in the order in which keys came.
fn scattered(rank: u64, keys: u64) -> u64 {
    // A prime above any number of keys here: each key has one rank.
    (u128::from(rank) * 2_654_435_761 % u128::from(keys)) as u64
}

/// What a store has come to.
struct Found {
    /// Live bytes of records, of those that its segments can hold.
    fill: f64,
    records: f64,
    /// Of records in whose place newer ones of the same commit were written.
    absorbed: f64,
    moved: f64,
    padding: f64,
    summaries: f64,
    checkpoints: f64,
    device: f64,
}

fn measure(directory: &Path, capacity_bytes: u64, fill: f64, distribution: Distribution) -> Result<Found> {
    let mut store = Store::open(&DatabaseOptions {
        capacity_bytes: Some(capacity_bytes),
        segment_bytes: Some(SEGMENT_BYTES),
        memory_bytes: 256 << 20,
        ..DatabaseOptions::new(directory)
    })?;
    let keys = (capacity_bytes as f64 * fill) as u64 / RECORD_BYTES;
    let mut random = SeededRandom::new(1);
    let mut chooser = KeyChooser::new(distribution, keys)?;
    let value = [7; VALUE_BYTES];
    let write = |store: &mut Store, next: &mut dyn FnMut() -> u64| {
        let mut batch = Batch::new();
        for _ in 0..BATCH {
            batch.put(&key(next()), &value);
        }
        store.write(&batch)
    };
    let mut number = 0;
    for _ in 0..keys.div_ceil(BATCH) {
        write(&mut store, &mut || {
            number = (number + 1).min(keys);
            number - 1
        })?;
    }
    let batches = |parts: f64| (capacity_bytes as f64 * parts) as u64 / RECORD_BYTES / BATCH;
    for _ in 0..batches(SETTLED_AFTER) {
        write(&mut store, &mut || scattered(chooser.choose(&mut random, keys), keys))?;
    }
    let before = store.statistics();
    for _ in 0..batches(COUNTED) {
        write(&mut store, &mut || scattered(chooser.choose(&mut random, keys), keys))?;
    }
    let after = store.statistics();
    store.close()?;
    std::fs::remove_dir_all(directory)?;
    let user = (after.user_bytes_written - before.user_bytes_written) as f64;
    let part = |after: u64, before: u64| (after - before) as f64 / user;
    let records = part(after.record_bytes_written, before.record_bytes_written);
    let moved = part(after.cleaned_bytes_written, before.cleaned_bytes_written);
    let summaries = part(after.summary_bytes_written, before.summary_bytes_written);
    let padding = part(after.padding_bytes_written, before.padding_bytes_written);
    // Of a full segment, what is not summary or padding.
    let share = (records + moved) / (records + moved + summaries + padding);
    Ok(Found {
        fill: (keys * RECORD_BYTES) as f64 / (capacity_bytes as f64 * share),
        records,
        absorbed: part(after.absorbed_bytes, before.absorbed_bytes),
        moved,
        padding,
        summaries,
        checkpoints: part(after.checkpoint_bytes_written, before.checkpoint_bytes_written),
        device: part(after.device.bytes_written, before.device.bytes_written),
    })
}

/// Records written a record of the user by an ideal greedy cleaner.
fn greedy(segments: usize, records: usize, fill: f64, distribution: Distribution) -> Result<f64> {
    let keys = ((segments * records) as f64 * fill) as u64;
    let mut random = SeededRandom::new(2);
    let mut chooser = KeyChooser::new(distribution, keys)?;
    let mut ideal = Ideal {
        records,
        place: vec![u32::MAX; keys as usize],
        segments: vec![Vec::new(); segments],
        live: vec![0; segments],
        free: (1..segments).collect(),
        open: 0,
        written: 0,
    };
    (0..keys).try_for_each(|key| ideal.write(key))?;
    let total = (segments * records) as f64;
    for _ in 0..(total * SETTLED_AFTER) as u64 {
        ideal.write(scattered(chooser.choose(&mut random, keys), keys))?;
    }
    ideal.written = 0;
    let counted = (total * COUNTED) as u64;
    for _ in 0..counted {
        ideal.write(scattered(chooser.choose(&mut random, keys), keys))?;
    }
    Ok(ideal.written as f64 / counted as f64)
}

/// The ideal cleaner's segments.
struct Ideal {
    records: usize,
    /// Which segment a key's record lies in.
    place: Vec<u32>,
    /// The keys that were written into each.
    segments: Vec<Vec<u64>>,
    live: Vec<u32>,
    free: Vec<usize>,
    open: usize,
    written: u64,
}

impl Ideal {
    fn write(&mut self, key: u64) -> Result<()> {
        while self.segments[self.open].len() == self.records {
            match self.free.pop() {
                Some(next) => self.open = next,
                None => self.clean()?,
            }
        }
        self.append(key);
        Ok(())
    }

    fn append(&mut self, key: u64) {
        let old = std::mem::replace(&mut self.place[key as usize], self.open as u32);
        if old != u32::MAX {
            self.live[old as usize] -= 1;
        }
        self.live[self.open] += 1;
        self.segments[self.open].push(key);
        self.written += 1;
    }

    /// Keeps what lives of the emptiest segment at its own start: nothing is kept in reserve for that.
    fn clean(&mut self) -> Result<()> {
        let emptiest = (0..self.live.len()).min_by_key(|&number| self.live[number]);
        let victim = emptiest.filter(|&number| (self.live[number] as usize) < self.records);
        let victim =
            victim.ok_or_else(|| Error::new(ErrorKind::NoSpace, "every segment is full of live records"))?;
        let keys = std::mem::take(&mut self.segments[victim]);
        let live: Vec<u64> =
            keys.into_iter().filter(|&key| self.place[key as usize] == victim as u32).collect();
        self.live[victim] = 0;
        self.open = victim;
        let mut kept = 0;
        for key in live {
            // A key that was written twice into this segment is there once.
            if self.place[key as usize] == victim as u32 {
                self.place[key as usize] = u32::MAX;
                self.append(key);
                kept += 1;
            }
        }
        debug_assert!(kept <= self.records);
        Ok(())
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "cleaning-data".into());
    let capacity_mib: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(512);
    let capacity_bytes = capacity_mib << 20;
    println!(
        "Keys of 16 bytes, values of {VALUE_BYTES}, commits of {BATCH}; {capacity_mib} segments of 1 MiB; bytes a byte of the user.\n"
    );
    println!(
        "| distribution | fill | not written, of a record | written and what cleaning moves, a record | greedy, uniform, at this fill | of it \
         | greedy, this distribution | padding | headers, summaries | checkpoints | device |\n|{}",
        "---|".repeat(11)
    );
    for (name, distribution) in [("uniform", Distribution::Uniform), ("Zipf 0.99", Distribution::ZIPF)] {
        for fill in [0.5, 0.6, 0.7, 0.8] {
            let found = measure(Path::new(&directory), capacity_bytes, fill, distribution)?;
            let records = (SEGMENT_BYTES as f64 * (fill / found.fill)) as usize / RECORD_BYTES as usize;
            let bound = greedy(capacity_mib as usize, records, found.fill, Distribution::Uniform)?;
            let same = greedy(capacity_mib as usize, records, found.fill, distribution)?;
            let accepted = found.records + found.absorbed;
            let amplification = (found.records + found.moved) / accepted;
            println!(
                "| {name} | {:.2} | {:.2} | {amplification:.2} | {bound:.2} | {:.2} | {same:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
                found.fill,
                found.absorbed / accepted,
                amplification / bound,
                found.padding,
                found.summaries,
                found.checkpoints,
                found.device,
            );
        }
    }
    Ok(())
}
