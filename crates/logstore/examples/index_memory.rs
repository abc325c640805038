//! Measures the hash index: bytes a key at every size, nanoseconds an operation, false candidates,
//! the longest single insert. Run in release: `cargo run --release --example index_memory -p
//! tierstone-logstore [MAX_KEYS]`.

use std::hint::black_box;
use std::time::Instant;
use tierstone_base::{Position, SeededRandom};
use tierstone_logstore::index::{
    Candidates, HashIndex, HashIndexSettings, IndexValue, ScanProgress, SortedBuilder,
};

const SEED: u64 = 42;

#[expect(clippy::disallowed_methods, reason = "a measuring program")]
fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds that this thread has been running, where the system tells (Linux); so that other
/// programs on the machine disturb the numbers less. Exact to some milliseconds.
fn running() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

struct Stopwatch {
    started: Instant,
    running: Option<u64>,
}

fn start() -> Stopwatch {
    Stopwatch { started: now(), running: running() }
}

fn nanoseconds(stopwatch: Stopwatch, operations: u64) -> f64 {
    let spent = match (stopwatch.running, running()) {
        (Some(from), Some(to)) => to - from,
        _ => stopwatch.started.elapsed().as_nanos() as u64,
    };
    spent as f64 / operations as f64
}

fn grow(index: &mut HashIndex, random: &mut SeededRandom, to: u64) -> Result<(), String> {
    for count in index.len()..to {
        let value = IndexValue::new(count & IndexValue::MAX_RAW);
        index.insert(Position(random.next_u64()), value).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Bytes a key at every size, in steps of a tenth.
fn memory(max_keys: u64) -> Result<(), String> {
    let mut index = HashIndex::new(HashIndexSettings::default());
    let mut random = SeededRandom::new(SEED);
    let (mut size, mut sum, mut samples, mut peak) = (100_000u64, 0.0, 0u32, 0.0f64);
    while size <= max_keys {
        grow(&mut index, &mut random, size)?;
        let bytes = index.memory_bytes() as f64 / size as f64;
        println!("{size:>10} keys: {bytes:.3} bytes a key, stale bits {}", index.stale_tag_bits());
        (sum, samples, peak) = (sum + bytes, samples + 1, peak.max(bytes));
        size += size / 10;
    }
    println!("mean {:.3}, peak {peak:.3} bytes a key", sum / f64::from(samples));
    Ok(())
}

fn speed(keys: u64) -> Result<(), String> {
    let mut index = HashIndex::new(HashIndexSettings::default());
    let mut random = SeededRandom::new(SEED);
    let started = start();
    grow(&mut index, &mut random, keys)?;
    println!("{keys} keys: insert while growing {:.0} ns", nanoseconds(started, keys));

    let mut replay = SeededRandom::new(SEED);
    let positions: Vec<Position> = (0..keys).map(|_| Position(replay.next_u64())).collect();
    let lookups = 2_000_000u64;
    let mut order = SeededRandom::new(SEED + 1);
    let probes: Vec<Position> = (0..lookups).map(|_| positions[order.below(keys) as usize]).collect();
    let started = start();
    for &position in &probes {
        black_box(index.first_candidate(position));
    }
    println!("  hit, first candidate {:.0} ns", nanoseconds(started, lookups));
    let mut out = Candidates::new();
    let mut found = 0u64;
    let started = start();
    for &position in &probes {
        index.candidates(position, &mut out);
        found += out.len() as u64;
    }
    println!("  hit, all candidates {:.0} ns", nanoseconds(started, lookups));
    println!("  false candidates a hit {:.5}", (found - lookups) as f64 / lookups as f64);
    let misses: Vec<Position> = (0..lookups).map(|_| Position(order.next_u64())).collect();
    let started = start();
    found = 0;
    for &position in &misses {
        found += u64::from(index.first_candidate(position).is_some());
    }
    println!("  miss {:.0} ns", nanoseconds(started, lookups));
    println!("  false candidates a miss {:.5}", found as f64 / lookups as f64);
    let started = start();
    for batch in probes.chunks(32) {
        batch.iter().for_each(|&position| index.prefetch(position));
        for &position in batch {
            black_box(index.first_candidate(position));
        }
    }
    println!("  hit, batches of 32 with prefetch {:.0} ns", nanoseconds(started, lookups));
    changes(&mut index, &positions, &mut order)
}

fn changes(index: &mut HashIndex, positions: &[Position], order: &mut SeededRandom) -> Result<(), String> {
    let keys = positions.len() as u64;
    let count = keys / 10;
    let started = start();
    for raw in 0..count {
        let (from, to) = (IndexValue::new(raw), IndexValue::new(raw + (1 << 34)));
        assert!(index.replace(positions[raw as usize], from, to));
    }
    println!("  replace {:.0} ns", nanoseconds(started, count));
    let (mut out, mut at) = (Vec::new(), Position(0));
    let started = start();
    let mut scanned = 0;
    while let ScanProgress::Next(next) = index.scan(at, 100, &mut out) {
        at = next;
        scanned += out.len();
        out.clear();
    }
    println!("  scan {:.1} ns an entry", nanoseconds(started, (scanned + out.len()) as u64));
    let mut bytes = Vec::new();
    let started = start();
    let mut at = Position(0);
    while let ScanProgress::Next(next) = index.dump_from(at, usize::MAX, &mut bytes) {
        at = next;
    }
    println!("  dump {:.1} ns an entry, {} bytes", nanoseconds(started, keys), bytes.len());
    let mut loaded = HashIndex::new(HashIndexSettings::default());
    let started = start();
    loaded.load(&bytes).map_err(|error| error.to_string())?;
    println!("  load {:.1} ns an entry", nanoseconds(started, keys));
    drop((loaded, bytes));
    let mut sorted: Vec<(Position, IndexValue)> =
        positions.iter().zip(0..).map(|(&position, raw)| (position, IndexValue::new(raw))).collect();
    sorted.sort_unstable();
    let started = start();
    let mut builder = SortedBuilder::new(HashIndexSettings::default());
    for &(position, value) in &sorted {
        builder.push(position, value).map_err(|error| error.to_string())?;
    }
    let built = builder.finish().map_err(|error| error.to_string())?;
    println!(
        "  sorted build {:.1} ns an entry, {:.2} bytes a key",
        nanoseconds(started, keys),
        built.memory_bytes() as f64 / keys as f64
    );
    drop((built, sorted));
    let started = start();
    for raw in count..2 * count {
        assert!(index.remove(positions[raw as usize], IndexValue::new(raw)));
    }
    println!("  remove {:.0} ns", nanoseconds(started, count));
    let _ = order;
    Ok(())
}

/// Runs of [`pauses`]; of each insert the quickest counts.
const RUNS: usize = 4;

/// The longest single inserts. Each run does the same, so what other programs on the machine cost
/// an insert in one run is left out by taking the quickest.
fn pauses(name: &str, keys: u64, position: impl Fn(u64) -> Position) -> Result<(), String> {
    let mut longest = vec![u64::MAX; keys as usize];
    let mut stale = 0;
    for _ in 0..RUNS {
        let mut index = HashIndex::new(HashIndexSettings::default());
        let mut random = SeededRandom::new(SEED);
        for (spent, raw) in longest.iter_mut().zip(0..) {
            let position = position(random.next_u64());
            let started = now();
            index.insert(position, IndexValue::new(raw)).map_err(|error| error.to_string())?;
            *spent = (*spent).min(started.elapsed().as_nanos() as u64);
        }
        stale = index.stale_entries();
    }
    longest.sort_unstable();
    let at = |share: f64| longest[((keys - 1) as f64 * share) as usize];
    println!(
        "{name}, {keys} inserts: 99 % {} ns, 99.9 % {} ns, 99.999 % {} ns, five longest {:?} ns; \
         {stale} stale entries",
        at(0.99),
        at(0.999),
        at(0.99999),
        &longest[longest.len() - 5..],
    );
    Ok(())
}

fn main() -> Result<(), String> {
    let argument = std::env::args().nth(1);
    let max_keys = argument.and_then(|text| text.parse().ok()).unwrap_or(20_000_000u64);
    memory(max_keys)?;
    for keys in [1_000_000.min(max_keys), max_keys] {
        speed(keys)?;
    }
    pauses("uniform", max_keys / 4, Position)?;
    pauses("one slot", max_keys / 4, |any| Position((5461 << 50) | (any >> 14)))?;
    pauses("equal positions", 20_000, |_| Position(1 << 40))
}
