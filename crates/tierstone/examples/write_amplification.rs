//! Counts what is written to the device a byte of the user, by cause: padding of commits, headers and
//! summaries, checkpoints, cleaning; and what a Compact takes back. Bytes are counted, not timed: a busy
//! machine gives the same numbers, but for the moments at which checkpoints are written.
//! `cargo run --example write_amplification -p tierstone -- [DIRECTORY [PART]]`: with a part of 100, a hundredth
//! of the writes.

use std::path::{Path, PathBuf};
use tierstone::{Batch, DatabaseOptions, Result, Store};
use tierstone_base::SeededRandom;

const VALUE_BYTES: usize = 128;
/// Bytes of a record of this key and value in the log.
const RECORD_BYTES: u64 = 192;
const SEGMENT_BYTES: u64 = 1 << 20;

/// One store, and what is written to it.
struct Scenario {
    name: &'static str,
    capacity_bytes: u64,
    keys: u64,
    writes: u64,
    /// Records of each durable commit.
    records_a_commit: u64,
    /// All keys are put in order before anything is counted.
    is_filled: bool,
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn write(store: &mut Store, numbers: &[u64], value: &[u8]) -> Result<()> {
    let mut batch = Batch::new();
    for &number in numbers {
        batch.put(&key(number), value);
    }
    store.write(&batch)
}

fn open(directory: &Path, scenario: &Scenario) -> Result<Store> {
    Store::open(&DatabaseOptions {
        capacity_bytes: Some(scenario.capacity_bytes),
        segment_bytes: Some(SEGMENT_BYTES),
        memory_bytes: 64 << 20,
        ..DatabaseOptions::new(directory)
    })
}

fn run(root: &Path, scenario: &Scenario) -> Result<()> {
    let directory = root.join(scenario.name.replace(' ', "-"));
    let mut store = open(&directory, scenario)?;
    let mut random = SeededRandom::new(1);
    let mut value = [0; VALUE_BYTES];
    if scenario.is_filled {
        for start in (0..scenario.keys).step_by(1_000) {
            let numbers: Vec<u64> = (start..scenario.keys.min(start + 1_000)).collect();
            write(&mut store, &numbers, &value)?;
        }
    }
    let before = store.statistics();
    for _ in 0..scenario.writes / scenario.records_a_commit {
        random.fill(&mut value);
        let numbers: Vec<u64> = (0..scenario.records_a_commit).map(|_| random.below(scenario.keys)).collect();
        write(&mut store, &numbers, &value)?;
    }
    let after = store.statistics();
    let user = after.user_bytes_written - before.user_bytes_written;
    let part = |count: u64| format!("{:.2}", count as f64 / user as f64);
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    print!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |",
        scenario.name,
        part(after.device.bytes_written - before.device.bytes_written),
        part(after.record_bytes_written - before.record_bytes_written),
        part(after.padding_bytes_written - before.padding_bytes_written),
        part(after.summary_bytes_written - before.summary_bytes_written),
        part(after.checkpoint_bytes_written - before.checkpoint_bytes_written),
        part(after.cleaned_bytes_written - before.cleaned_bytes_written),
        mib(after.space_used_bytes),
    );
    store.compact(|_, _| {})?;
    let compacted = store.statistics();
    println!(
        " {} | {} | {} |",
        mib(compacted.space_used_bytes),
        mib(compacted.space_live_bytes),
        mib(compacted.cleaned_bytes_written - after.cleaned_bytes_written)
    );
    store.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().unwrap_or_else(|| "write-amplification-data".into()));
    let part: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let roomy = |name, records_a_commit, writes| Scenario {
        name,
        capacity_bytes: 256 << 20,
        keys: 1 << 40,
        writes,
        records_a_commit,
        is_filled: false,
    };
    let full = |name, fill: f64, records_a_commit, writes| {
        let capacity_bytes = 64 * SEGMENT_BYTES;
        let keys = (capacity_bytes as f64 * fill) as u64 / RECORD_BYTES;
        Scenario { name, capacity_bytes, keys, writes, records_a_commit, is_filled: true }
    };
    println!("Keys of 16 bytes, values of {VALUE_BYTES}; bytes written a byte of the user; MiB.\n");
    let columns = [
        "what",
        "device",
        "records",
        "padding, group headers",
        "segment headers, summaries, footers",
        "checkpoints",
        "moved by cleaning",
        "used",
        "used after a Compact",
        "live",
        "moved by it",
    ];
    println!("| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
    for scenario in [
        roomy("new keys, 1 a commit", 1, 20_000),
        roomy("new keys, 10 a commit", 10, 100_000),
        roomy("new keys, 50 a commit", 50, 200_000),
        roomy("new keys, 1000 a commit", 1_000, 500_000),
        full("overwrites, 1 a commit, a tenth full", 0.1, 1, 40_000),
        full("overwrites, 1000 a commit, half full", 0.5, 1_000, 1_000_000),
        full("overwrites, 1000 a commit, three quarters full", 0.75, 1_000, 1_000_000),
    ] {
        run(&root, &Scenario { writes: scenario.writes / part, ..scenario })?;
    }
    Ok(())
}
