//! Prints how often each policy hits on each trace, and what a hit and an insertion of the record
//! cache cost, as Markdown. `cargo run --release -p tierstone-cache --example hit_rates -- [PART]`: with a
//! part of 100, a hundredth of the requests and of the memory.

use std::hint::black_box;
use tierstone_base::{Clock, KeyspaceId, Position, SeededRandom, SystemClock};
use tierstone_cache::policy::{Lru, RecordCachePolicy, S3Fifo, S3FifoSettings, optimal_hits, replay};
use tierstone_cache::trace::{Request, TraceSettings, ZIPF_THETA, shifting_hot_set, zipf, zipf_with_scans};
use tierstone_cache::{FrameId, FrameOwner, NewFrame, RecordCache, RecordCacheSettings};

fn main() -> tierstone_base::Result<()> {
    let part: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let uniform = TraceSettings {
        requests: 2_000_000 / part as usize,
        keys: 100_000 / part,
        bytes_min: 144,
        bytes_max: 144,
        seed: 42,
    };
    let varied = TraceSettings { bytes_min: 48, bytes_max: 1024, ..uniform };
    println!("Hit rates in percent; {} requests, {} keys.\n", uniform.requests, uniform.keys);
    println!(
        "| trace | entries | cache | LRU | S3-FIFO | S3-FIFO, 2 hits | record cache | record cache, 2 hits | optimum |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (sizes, settings) in [("144 B", uniform), ("48 to 1024 B", varied)] {
        print_row("Zipf 0.99", sizes, settings, &zipf(settings, ZIPF_THETA))?;
        let scans = zipf_with_scans(settings, ZIPF_THETA, 0.3, 5000);
        print_row("Zipf 0.99, 30 % scans", sizes, settings, &scans)?;
        let shifting = shifting_hot_set(settings, settings.keys / 20, 0.9, settings.requests / 10);
        print_row("shifting hot set", sizes, settings, &shifting)?;
    }
    println!("\nThe optimum is exact for equal sizes and a heuristic for varied ones.\n");
    print_costs(part)
}

fn print_row(
    name: &str,
    sizes: &str,
    settings: TraceSettings,
    trace: &[Request],
) -> tierstone_base::Result<()> {
    for percent in [1, 10, 25] {
        let capacity = settings.keys_bytes() * percent / 100;
        let mut rates = vec![replay(&mut Lru::new(capacity), trace)];
        for promotion_hits in [1, 2] {
            let settings = S3FifoSettings { promotion_hits, ..S3FifoSettings::default() };
            rates.push(replay(&mut S3Fifo::new(capacity, settings), trace));
        }
        for promotion_hits in [1, 2] {
            let settings = RecordCacheSettings {
                capacity_bytes: capacity,
                promotion_hits,
                ..RecordCacheSettings::default()
            };
            rates.push(replay(&mut RecordCachePolicy::new(RecordCache::new(settings)?), trace));
        }
        rates.push(optimal_hits(trace, capacity));
        let cells: Vec<String> =
            rates.iter().map(|count| format!("{:.2}", count.hit_rate() * 100.0)).collect();
        println!("| {name} | {sizes} | {percent} % | {} |", cells.join(" | "));
    }
    Ok(())
}

/// An index by dense key numbers: the owner's part of the cost is one store.
struct DenseIndex {
    frames: Vec<Option<FrameId>>,
}

impl FrameOwner for DenseIndex {
    fn evicted(&mut self, _: KeyspaceId, position: Position, _: FrameId, _: u64) {
        self.frames[position.0 as usize] = None;
    }

    fn moved(&mut self, _: KeyspaceId, position: Position, _: FrameId, to: FrameId) {
        self.frames[position.0 as usize] = Some(to);
    }
}

fn entry<'bytes>(key: u64, parts: &'bytes [&'bytes [u8]]) -> NewFrame<'bytes> {
    NewFrame { position: Position(key), keyspace: KeyspaceId(0), location: key, parts }
}

/// Nanoseconds an operation.
fn time(operations: u64, work: impl FnOnce()) -> f64 {
    let clock = SystemClock::new();
    let start_us = clock.now().monotonic_us;
    work();
    (clock.now().monotonic_us - start_us) as f64 * 1000.0 / operations as f64
}

/// The best of five runs, so that a busy machine disturbs less.
fn best_time(operations: u64, mut work: impl FnMut()) -> f64 {
    (0..5).map(|_| time(operations, &mut work)).fold(f64::INFINITY, f64::min)
}

fn print_costs(part: u64) -> tierstone_base::Result<()> {
    println!(
        "| capacity | record | insert ns | hit ns | hit ns, prefetched in batches of 16 | Zipf hit ns |"
    );
    println!("|---|---|---|---|---|---|");
    for capacity_bytes in [1 << 20, 64 << 20, 1 << 30] {
        for record_bytes in [100usize, 1000] {
            print_cost((capacity_bytes / part).max(256 << 10), record_bytes, 4_000_000 / part)?;
        }
    }
    Ok(())
}

fn print_cost(capacity_bytes: u64, record_bytes: usize, operations: u64) -> tierstone_base::Result<()> {
    let mut cache =
        RecordCache::new(RecordCacheSettings { capacity_bytes, ..RecordCacheSettings::default() })?;
    let record = vec![7u8; record_bytes];
    let keys = 3 * capacity_bytes / record_bytes as u64;
    let mut index = DenseIndex { frames: vec![None; keys as usize] };
    let mut insert = |cache: &mut RecordCache, range: std::ops::Range<u64>| {
        for key in range {
            index.frames[key as usize] = cache.insert(entry(key, &[&record]), &mut index);
        }
    };
    insert(&mut cache, 0..keys / 2);
    let insert_ns = time(keys - keys / 2, || insert(&mut cache, keys / 2..keys));
    let live: Vec<FrameId> = index.frames.iter().filter_map(|&frame| frame).collect();
    let mut random = SeededRandom::new(1);
    let draws: Vec<FrameId> =
        (0..operations).map(|_| live[random.below(live.len() as u64) as usize]).collect();
    let hit_ns = best_time(operations, || {
        for &frame in &draws {
            black_box(cache.get(frame).bytes[0]);
        }
    });
    let batched_ns = best_time(operations, || {
        for batch in draws.chunks(16) {
            batch.iter().for_each(|&frame| cache.prefetch(frame, 1));
            for &frame in batch {
                black_box(cache.get(frame).bytes[0]);
            }
        }
    });
    let ranks = tierstone_cache::trace::Zipf::new(live.len() as u64, ZIPF_THETA);
    let hot: Vec<FrameId> = (0..operations).map(|_| live[ranks.rank(&mut random) as usize]).collect();
    let zipf_ns = best_time(operations, || {
        for &frame in &hot {
            black_box(cache.get(frame).bytes[0]);
        }
    });
    println!(
        "| {} KiB | {record_bytes} B | {insert_ns:.0} | {hit_ns:.1} | {batched_ns:.1} | {zipf_ns:.1} |",
        capacity_bytes >> 10
    );
    Ok(())
}
