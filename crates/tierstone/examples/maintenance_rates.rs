//! Measures what goes on beside the foreground: overwrites with and without a snapshot, gets while slots
//! move to another store and back, the lock at the end of a move, and a compaction. Run in release:
//! `cargo run --release --example maintenance_rates -p tierstone -- [DIRECTORY [KEYS]]`.
//!
//! After the FAWN-DS study of Split, Merge and Compact (Vasudevan 2011, §3.5): there the lock takes 5 to
//! 50 µs, because it makes nothing durable; here it ends with a durable write of the target.

use std::path::Path;
use std::time::{Duration, Instant};
use tierstone::{DatabaseOptions, MovePhase, Result, Store};
use tierstone_base::SeededRandom;

const VALUE_BYTES: usize = 200;
const MOVES: usize = 10;

#[expect(clippy::disallowed_methods, reason = "a measuring program")]
fn now() -> Instant {
    Instant::now()
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn print(name: &str, latencies: &mut [Duration]) {
    latencies.sort_unstable();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1e3;
    println!("{name:<44} p50 {:>9.1} us   p99 {:>9.1} us   n {}", at(0.5), at(0.99), latencies.len());
}

fn open(directory: &Path, name: &str) -> Result<Store> {
    Store::open(&DatabaseOptions {
        memory_bytes: 16 << 20,
        capacity_bytes: Some(2 << 30),
        segment_bytes: Some(8 << 20),
        ..DatabaseOptions::new(directory.join(name))
    })
}

/// Overwrites random keys, all durable at the end; writes a second.
fn overwrite(store: &mut Store, random: &mut SeededRandom, keys: u64, count: u64) -> Result<f64> {
    let started = now();
    for _ in 0..count {
        let _ticket = store.put_nowait(&key(random.below(keys)), &[1; VALUE_BYTES])?;
    }
    store.sync()?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

fn get(store: &mut Store, random: &mut SeededRandom, keys: u64, latencies: &mut Vec<Duration>) -> Result<()> {
    let wanted = key(random.below(keys));
    let started = now();
    let found = store.get_with(&wanted, <[u8]>::len)?;
    // What has moved away is not a get of this store.
    if found.is_some() {
        latencies.push(started.elapsed());
    }
    Ok(())
}

fn snapshots(store: &mut Store, random: &mut SeededRandom, keys: u64) -> Result<()> {
    // In turns, so that the machine's moods fall on both.
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        without.push(overwrite(store, random, keys, keys / 5)?);
        let snapshot = store.snapshot()?;
        with.push(overwrite(store, random, keys, keys / 5)?);
        drop(snapshot);
    }
    without.sort_by(f64::total_cmp);
    with.sort_by(f64::total_cmp);
    println!("overwrites without a snapshot, median of 5: {:.0} a second", without[2]);
    println!("overwrites with a snapshot, median of 5:    {:.0} a second", with[2]);
    println!("snapshots lost: {}", store.statistics().snapshots_lost);
    Ok(())
}

fn compaction(store: &mut Store) -> Result<()> {
    let before = store.statistics();
    let started = now();
    store.compact(|_, _| {})?;
    let (after, took) = (store.statistics(), started.elapsed().as_secs_f64());
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "compaction: {:.0} MiB used before, {:.0} MiB after, {:.0} MiB live; moved {:.0} MiB/s",
        mib(before.space_used_bytes),
        mib(after.space_used_bytes),
        mib(after.space_live_bytes),
        mib(after.cleaned_bytes_written - before.cleaned_bytes_written) / took
    );
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "maintenance-rates-data".into());
    let keys = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(500_000);
    let directory = Path::new(&directory);
    let mut random = SeededRandom::new(1);
    let (mut one, mut other) = (open(directory, "one")?, open(directory, "other")?);
    for number in 0..keys {
        let _ticket = one.put_nowait(&key(number), &[0; VALUE_BYTES])?;
    }
    one.sync()?;

    snapshots(&mut one, &mut random, keys)?;
    let mut gets = Vec::new();
    for _ in 0..20_000 {
        get(&mut one, &mut random, keys, &mut gets)?;
    }
    print("gets, nothing beside", &mut gets);
    let (mut beside, mut locks, mut moved_bytes) = (Vec::new(), Vec::new(), 0);
    let (mut copying, mut alone) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..MOVES {
        let (started, mut handed_over) = (now(), None);
        let there = one.split_to(&mut other, 8_192..=16_383, |one, _, progress| {
            if progress.phase == MovePhase::HandedOver {
                handed_over = Some(now());
            } else if progress.phase == MovePhase::Copying {
                get(one, &mut random, keys, &mut beside).unwrap_or_else(|error| println!("{error}"));
                let _ = one.put_nowait(&key(random.below(keys)), &[2; VALUE_BYTES]);
            }
        })?;
        copying += handed_over.map_or(Duration::ZERO, |at| at - started);
        let started = now();
        let back = one.merge_from(&mut other, |_, _, _| {})?;
        alone += started.elapsed();
        locks.extend([there.lock, back.lock]);
        moved_bytes += there.bytes;
    }
    print("gets while half of the slots move away", &mut beside);
    print("the lock at the end of a move", &mut locks);
    let mib = moved_bytes as f64 / f64::from(1 << 20);
    println!(
        "copied {:.0} MiB/s beside gets; whole moves with nothing beside {:.0} MiB/s",
        mib / copying.as_secs_f64(),
        mib / alone.as_secs_f64()
    );

    overwrite(&mut one, &mut random, keys, keys)?;
    compaction(&mut one)
}
