//! What an overwrite costs in processor time, and what cleaning adds:
//! `overwrite_rate REGION VALUE_BYTES FULL_PERCENT ROUNDS [PIPELINE [DELETE_PERCENT]]`.
//!
//! The store is filled up to FULL_PERCENT of its blocks with live records. Then its keys, all alike, are written over
//! until as much was written as there is space (warm), and so often in ROUNDS rounds, each of which is a line:
//! nanoseconds of this thread a write, bytes that cleaning copied for each byte that was written, and what the bound
//! for these says. Keys come in groups of PIPELINE (16), asked for ahead as the server does, eight groups to a fence.
//! At last the store is opened again, as after a process was killed, closed with a checkpoint of its index, and opened
//! again: records read or taken from the checkpoint, and what that cost.
//! REGION is `PATH` or `emulated:SIZE[:PRESET]`, as everywhere. DELETE_PERCENT of the writes delete.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_engine::{Engine, Key, Write, WriteKind};
use tierstone_media::region::{Region, RegionSettings, RegionSource};
use tierstone_pmstore::{Keyspace, OpenSettings, OpenedStore, PmShard};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// Groups of keys to a fence.
const GROUPS: usize = 8;
/// Bytes of a record before its key, and of a key.
const HEAD_BYTES: u64 = 48 + 16;

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn number(text: Option<String>, otherwise: u64) -> Result<u64> {
    text.map_or(Ok(otherwise), |text| text.parse().map_err(|_| wrong(format!("{text} is no number"))))
}

fn settings() -> OpenSettings {
    let keyspaces = vec![Keyspace { id: KEYSPACE, index: Default::default() }];
    OpenSettings { keyspaces, ..OpenSettings::default() }
}

/// Processor time of this thread, as the kernel counts it.
fn cpu_ns() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    number(text.split_whitespace().next().map(str::to_owned), 0)
}

struct Load {
    shard: PmShard,
    hasher: tierstone_base::KeyHasher,
    clock: SystemClock,
    random: SeededRandom,
    value: Vec<u8>,
    keys: u64,
    pipeline: usize,
    delete_percent: u64,
}

impl Load {
    /// Writes the keys that `choose` gives, in groups, and makes them durable.
    fn write(&mut self, count: u64, mut choose: impl FnMut(&mut SeededRandom, u64) -> u64) -> Result<()> {
        let mut done = 0;
        while done < count {
            for _ in 0..GROUPS {
                let names: Vec<String> = (0..self.pipeline as u64)
                    .map(|at| format!("key:{:012}", choose(&mut self.random, done + at)))
                    .collect();
                let key = |name: &'_ String| self.hasher.position(name.as_bytes());
                let keys: Vec<Key<'_>> = names
                    .iter()
                    .map(|name| Key { keyspace: KEYSPACE, position: key(name), bytes: name.as_bytes() })
                    .collect();
                let places: Vec<_> = keys.iter().map(|key| (key.keyspace, key.position)).collect();
                self.shard.prefetch(&places);
                for key in &keys {
                    let is_delete = self.random.below(100) < self.delete_percent;
                    let kind = match is_delete {
                        true => WriteKind::Delete,
                        false => {
                            WriteKind::Put { value: &self.value, expiry_ms: 0, kind: Default::default() }
                        }
                    };
                    put(&mut self.shard, &self.clock, &[Write { key: *key, kind }])?;
                }
                done += self.pipeline as u64;
            }
            self.shard.step(self.clock.now(), &mut Vec::new(), &mut Vec::new());
        }
        Ok(())
    }
}

fn put(shard: &mut PmShard, clock: &SystemClock, writes: &[Write<'_>]) -> Result<()> {
    loop {
        match shard.write(clock.now(), writes) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Retry => {}
            Err(error) => return Err(error),
        }
        shard.step(clock.now(), &mut Vec::new(), &mut Vec::new());
    }
}

/// The part of a victim that is live where the oldest block is cleaned and all keys are alike: of `full` live space,
/// `full = (part - 1) / ln(part)` (Menon, A performance comparison of RAID-5 and log-structured arrays, 1995).
fn live_part(full: f64) -> f64 {
    let (mut low, mut high) = (1e-9f64, 1.0 - 1e-9);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if (middle - 1.0) / middle.ln() < full { low = middle } else { high = middle }
    }
    low
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let source: RegionSource = arguments.next().unwrap_or_else(|| "emulated:1GiB".to_owned()).parse()?;
    let value_bytes = number(arguments.next(), 128)?;
    let full = number(arguments.next(), 25)? as f64 / 100.0;
    let rounds = number(arguments.next(), 3)?;
    let pipeline = number(arguments.next(), 16)?.clamp(1, 64) as usize;
    let delete_percent = number(arguments.next(), 0)?;
    let region: Arc<dyn Region + Send + Sync> =
        Arc::new(source.open_or_create(1 << 30, &RegionSettings::default())?.0);
    let OpenedStore { plans, hasher, .. } = tierstone_pmstore::open(Arc::clone(&region), &settings())?;
    let plan = plans.into_iter().next().ok_or_else(|| wrong("no shard".to_owned()))?;
    let (shard, _) = plan.build()?;
    let record = (HEAD_BYTES + value_bytes).next_multiple_of(8);
    // The log has its segments besides.
    let space = shard.statistics().space_capacity_bytes;
    let keys = (space as f64 * full) as u64 / record;
    let value = vec![7; value_bytes as usize];
    let (clock, random) = (SystemClock::new(), SeededRandom::new(7));
    let mut load = Load { shard, hasher, clock, random, value, keys, pipeline, delete_percent };
    load.write(keys, |_, at| at.min(keys - 1))?;
    let count = space / record;
    load.write(count, |random, _| random.below(keys))?;
    println!("{keys} keys, {count} writes a round; {} B of index", load.shard.statistics().index_bytes);
    let part = live_part(full);
    for _ in 0..rounds {
        let (before, began) = (load.shard.statistics(), cpu_ns()?);
        let keys = load.keys;
        load.write(count, |random, _| random.below(keys))?;
        let (after, ns) = (load.shard.statistics(), cpu_ns()? - began);
        println!(
            "{:.0} ns of processor a write; cleaning copied {:.3} of what was written, the bound {:.3}; {:.3} fences",
            ns as f64 / count as f64,
            (after.cleaned_bytes_written - before.cleaned_bytes_written) as f64
                / (after.record_bytes_written - before.record_bytes_written) as f64,
            part / (1.0 - part),
            (after.redo_fences - before.redo_fences) as f64 / count as f64,
        );
    }
    drop(load.shard);
    let shard = reopen(&region, "after a kill")?;
    drop(close(shard)?);
    reopen(&region, "after a checkpoint")?;
    Ok(())
}

/// Closes a shard in good order, with a checkpoint of its index.
fn close(mut shard: PmShard) -> Result<PmShard> {
    let (clock, began) = (SystemClock::new(), cpu_ns()?);
    shard.shut();
    while !shard.is_shut() {
        shard.step(clock.now(), &mut Vec::new(), &mut Vec::new());
    }
    let bytes = shard.statistics().checkpoint_region_bytes_written;
    println!("closed: {} ms of processor, {bytes} B of checkpoint", (cpu_ns()? - began) / 1_000_000);
    Ok(shard)
}

/// Rebuilds the shard from what lies in the region.
fn reopen(region: &Arc<dyn Region + Send + Sync>, when: &str) -> Result<PmShard> {
    let clock = SystemClock::new();
    let (began_us, began_cpu) = (clock.now().monotonic_us, cpu_ns()?);
    let mut settings = settings();
    settings.shard.checkpoint_bytes_min = 0;
    let opened = tierstone_pmstore::open(Arc::clone(region), &settings)?;
    let plan = opened.plans.into_iter().next().ok_or_else(|| wrong("no shard".to_owned()))?;
    let (shard, report) = plan.build()?;
    let (ms, ns) = ((clock.now().monotonic_us - began_us) / 1_000, cpu_ns()? - began_cpu);
    println!(
        "opened again {when}: {} records read, {} keys of a checkpoint, {} live, {} of the log, in {ms} ms; {:.0} ns of \
         processor a record or key",
        report.records,
        report.loaded,
        report.live,
        report.replayed,
        ns as f64 / (report.records + report.loaded).max(1) as f64,
    );
    Ok(shard)
}
