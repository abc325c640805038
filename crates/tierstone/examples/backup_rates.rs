//! Measures a backup beside traffic: its rate, the longest puts and gets beside it and without it, and the memory that
//! it takes. Run in release:
//! `cargo run --release --example backup_rates -p tierstone -- [DIRECTORY [KEYS [VALUE_BYTES [SHARDS [STORE]]]]]`;
//! STORE: where the store lies, if not in the directory, such as `nvm:emulated:8GiB`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tierstone::{BackupWriter, DatabaseOptions, Result, SharedStore, restore, verify_backup};
use tierstone_base::SeededRandom;

#[expect(clippy::disallowed_methods, reason = "a measuring program")]
fn now() -> Instant {
    Instant::now()
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Resident memory of this process, in bytes; zero where the kernel does not tell.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn print(name: &str, mut latencies: Vec<Duration>) {
    latencies.sort_unstable();
    let Some(last) = latencies.len().checked_sub(1) else { return println!("{name:<32} none") };
    let at = |part: f64| latencies[(last as f64 * part) as usize].as_nanos() as f64 / 1e3;
    println!(
        "{name:<32} p50 {:>8.1} us  p99 {:>8.1} us  p99.9 {:>8.1} us  longest {:>8.1} us  n {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        latencies.len()
    );
}

/// What one thread does over and over while `during` runs on this one.
struct Beside<'s> {
    store: &'s SharedStore,
    keys: u64,
    value: Vec<u8>,
}

impl Beside<'_> {
    fn timed(
        &self,
        stop: &AtomicBool,
        seed: u64,
        mut one: impl FnMut(&mut SeededRandom) -> Result<()>,
    ) -> Vec<Duration> {
        let mut random = SeededRandom::new(seed);
        let mut latencies = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let started = now();
            if let Err(error) = one(&mut random) {
                eprintln!("{error}");
                break;
            }
            latencies.push(started.elapsed());
        }
        latencies
    }

    /// Puts and gets of two threads while `during` runs.
    fn run<T>(&self, during: impl FnOnce() -> Result<T>) -> Result<(T, [Vec<Duration>; 2])> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let puts = scope.spawn(|| {
                self.timed(&stop, 1, |random| self.store.put(&key(random.below(self.keys)), &self.value))
            });
            let gets = scope.spawn(|| {
                self.timed(&stop, 2, |random| self.store.get(&key(random.below(self.keys))).map(drop))
            });
            let done = during();
            stop.store(true, Ordering::Relaxed);
            let latencies = [puts, gets].map(|thread| thread.join().unwrap_or_default());
            Ok((done?, latencies))
        })
    }
}

fn fill(store: &SharedStore, keys: u64, value: &[u8]) -> Result<()> {
    for number in 0..keys {
        drop(store.put_async(&key(number), value));
        if number % 1_000 == 0 {
            store.sync()?;
        }
    }
    store.sync()
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| "backup-rates".into()));
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (keys, value_bytes, shards) = (number(1_000_000), number(1_000), number(2));
    let place = arguments.next().map_or_else(|| directory.join("store"), PathBuf::from);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory)?;
    let capacity_bytes = Some((keys * (value_bytes + 64) * 3).max(256 << 20));
    let options = DatabaseOptions {
        shards: shards as u16,
        memory_bytes: 256 << 20,
        // The name of emulated memory says its size.
        capacity_bytes: capacity_bytes.filter(|_| !place.to_string_lossy().starts_with("nvm:emulated")),
        any_guarantee: true,
        ..DatabaseOptions::new(place)
    };
    let store = SharedStore::open(&options)?;
    let value = vec![7; value_bytes as usize];
    fill(&store, keys, &value)?;
    let beside = Beside { store: &store, keys, value };
    // The caches are as full as they get, and the allocator as large.
    let seconds = (keys / 100_000).clamp(1, 10);
    let quiet = || {
        let started = now();
        while started.elapsed() < Duration::from_secs(seconds) {
            store.len()?;
            std::thread::park_timeout(Duration::from_millis(10));
        }
        Ok(())
    };
    beside.run(quiet)?;
    let ((), [puts, gets]) = beside.run(quiet)?;
    let before = resident_bytes();
    let mut most = before;
    print("puts without a backup", puts);
    print("gets without a backup", gets);
    let path = directory.join("backup");
    let mut bytes = 0.0;
    // To nowhere first: what the shards alone make others wait for.
    for (to, writer) in [
        ("to nowhere", BackupWriter::stream(std::io::sink())),
        ("to the same disk", BackupWriter::create(&path)?),
    ] {
        let started = now();
        let (report, [puts, gets]) =
            beside.run(|| store.backup_to(writer, &mut |_| most = most.max(resident_bytes())))?;
        let took = started.elapsed().as_secs_f64();
        print(&format!("puts beside one {to}"), puts);
        print(&format!("gets beside one {to}"), gets);
        bytes = report.bytes as f64;
        println!("{to}: {} records, {:.1} MB, {:.1} MB/s", report.records, bytes / 1e6, bytes / took / 1e6);
    }
    let more = most.saturating_sub(before) as f64;
    println!("memory: {:.1} MB more, {:.2} % of the backup", more / 1e6, 100.0 * more / bytes);
    store.close()?;
    let started = now();
    verify_backup(&path, &mut |_| {})?;
    println!("verified: {:.1} MB/s", bytes / started.elapsed().as_secs_f64() / 1e6);
    let started = now();
    let new = DatabaseOptions { directories: vec![directory.join("new")], capacity_bytes, ..options };
    restore(&path, &new, &mut |_| {})?;
    println!("restored: {:.1} MB/s", bytes / started.elapsed().as_secs_f64() / 1e6);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
