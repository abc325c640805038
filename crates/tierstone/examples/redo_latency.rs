//! What persistent memory makes of a durable put: latency and rate without it, with a redo log in it, and of a store that lies
//! wholly in it, with memories as slow as published ones, in turn. Run in release:
//! `cargo run --release --example redo_latency -p tierstone -- [DIRECTORY [SECONDS [VALUE_BYTES [ROUNDS]]]]`.
//!
//! Device rows are measured; rows of a preset are measured with memory that is made as slow as published figures say.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tierstone::{DatabaseOptions, RedoOptions, Result, Store};
use tierstone_base::SeededRandom;
use tierstone_media::region::{MEMORY_PROFILES, MappedRegion, Region, RegionSettings};

#[expect(clippy::disallowed_methods, reason = "a measuring program")]
fn now() -> Instant {
    Instant::now()
}

/// Keys that are put, again and again.
const KEYS: u64 = 100_000;
/// Bytes of the region: with 1 MiB groups 64 slots.
const REGION: &str = "80MiB";

/// What a store lies on.
enum On {
    Device,
    /// A device, and a redo log in this region.
    Redo(String),
    /// A region alone, of so many bytes and this preset.
    Whole(String),
}

/// Bytes of a store's region.
const WHOLE: &str = "1GiB";

struct Measured {
    latencies: Vec<Duration>,
    seconds: f64,
    device_bytes: u64,
    fences: u64,
    bare_groups: u64,
}

fn measure(directory: &Path, on: &On, seconds: f64, value_bytes: usize) -> Result<Measured> {
    let folder = directory.join("redo-latency");
    let usual = DatabaseOptions { memory_bytes: 256 << 20, ..DatabaseOptions::new(&folder) };
    let on_device = DatabaseOptions { capacity_bytes: Some(2 << 30), ..usual.clone() };
    let options = match on {
        On::Device => on_device,
        On::Redo(region) => DatabaseOptions { redo: Some(RedoOptions::new(region)), ..on_device },
        On::Whole(region) => DatabaseOptions { directories: vec![format!("nvm:{region}").into()], ..usual },
    };
    let mut store = Store::open(&options)?;
    let (value, mut random) = (vec![7; value_bytes], SeededRandom::new(1));
    for number in 0..KEYS.min(1_000) {
        store.put(&number.to_be_bytes(), &value)?;
    }
    let before = store.statistics();
    let (mut latencies, began) = (Vec::with_capacity(1 << 20), now());
    while began.elapsed().as_secs_f64() < seconds {
        let key = random.below(KEYS).to_be_bytes();
        let started = now();
        store.put(&key, &value)?;
        latencies.push(started.elapsed());
    }
    let (seconds, after) = (began.elapsed().as_secs_f64(), store.statistics());
    store.close()?;
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(Measured {
        latencies,
        seconds,
        device_bytes: after.device.bytes_written - before.device.bytes_written,
        fences: after.redo_fences - before.redo_fences,
        bare_groups: after.redo_groups_without_slot - before.redo_groups_without_slot,
    })
}

fn print(name: &str, mut measured: Measured) {
    measured.latencies.sort_unstable();
    let Some(last) = measured.latencies.len().checked_sub(1) else { return println!("{name:<24} none") };
    let at = |part: f64| measured.latencies[(last as f64 * part) as usize].as_nanos() as f64 / 1e3;
    let puts = measured.latencies.len() as f64;
    println!(
        "{name:<24} p50 {:>8.2} us  p99 {:>8.2} us  p99.9 {:>8.1} us  longest {:>8.0} us  {:>9.0} puts/s  {:>6.0} B to the \
         device and {:.3} fences a put, {} groups without slot",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        puts / measured.seconds,
        measured.device_bytes as f64 / puts,
        measured.fences as f64 / puts,
        measured.bare_groups,
    );
}

/// The least that a put could take: its record copied past the caches, and a fence.
fn print_bound(value_bytes: usize, seconds: f64) -> Result<()> {
    let region = MappedRegion::anonymous(64 << 20, &RegionSettings::default())?;
    let record = vec![7; (32 + 8 + value_bytes).next_multiple_of(32)];
    let (mut offset, mut count, began) = (0, 0u64, now());
    while began.elapsed().as_secs_f64() < seconds {
        for _ in 0..1_000 {
            region.store_streaming(offset, &record);
            region.fence()?;
            offset = (offset + record.len() as u64) % (region.bytes() - 65_536);
        }
        count += 1_000;
    }
    let nanos = began.elapsed().as_nanos() as f64 / count as f64;
    println!("copy of {} B and fence: {nanos:.0} ns ({})", record.len(), region.report().text());
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let directory = PathBuf::from(next("."));
    let seconds: f64 = next("3").parse().unwrap_or(3.0);
    let value_bytes: usize = next("128").parse().unwrap_or(128);
    let rounds: usize = next("3").parse().unwrap_or(3);
    print_bound(value_bytes, seconds.min(1.0))?;
    std::fs::create_dir_all(&directory)?;
    for round in 0..rounds {
        println!("round {round}, values of {value_bytes} B:");
        print("device", measure(&directory, &On::Device, seconds, value_bytes)?);
        let presets = MEMORY_PROFILES.iter().map(|profile| format!(":{}", profile.name));
        for preset in std::iter::once(String::new()).chain(presets) {
            let name = preset.strip_prefix(':').unwrap_or("DRAM");
            let redo = On::Redo(format!("emulated:{REGION}{preset}"));
            print(&format!("redo log, {name}"), measure(&directory, &redo, seconds, value_bytes)?);
            let whole = On::Whole(format!("emulated:{WHOLE}{preset}"));
            print(&format!("all of it, {name}"), measure(&directory, &whole, seconds, value_bytes)?);
        }
    }
    Ok(())
}
