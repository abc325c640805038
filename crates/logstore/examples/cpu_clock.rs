//! What counting processor time costs: nanoseconds of a write of a cached key, its part of a step included, with
//! and without a clock, taken in turn; the least of all rounds, which other programs disturb least.
//!
//! `cargo run --release -p tierstone-logstore --example cpu_clock [rounds]`
#![expect(clippy::print_stdout, reason = "a measuring program")]

use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{KeyspaceId, Result};
use tierstone_crash::Choices;
use tierstone_engine::harness::Harness;
use tierstone_engine::{Durability, Engine, IndexKind, Write, WriteKind};
use tierstone_logstore::format::superblock::{KeyspaceEntry, META_BYTES};
use tierstone_logstore::{OpenSettings, ShardSettings};
use tierstone_media::sim::{SimMedium, SimSettings};
use tierstone_media::{Geometry, Wait};

const WRITES: u64 = 40_000;
const WRITES_A_STEP: u64 = 16;

/// Nanoseconds a write, its part of a step included.
fn measure(counts: bool) -> Result<f64> {
    let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes: 8 << 20, segment_limit: 64 };
    let medium = SimMedium::new(SimSettings::new(geometry), &Choices::quiet());
    let keyspace = KeyspaceId(1);
    let settings = OpenSettings {
        shard: ShardSettings { durability: Durability::Relaxed, ..ShardSettings::default() },
        keyspaces: vec![KeyspaceEntry { id: keyspace, name: "1".into(), index: IndexKind::Hash }],
        ..OpenSettings::default()
    };
    let mut device = medium.device();
    let mut opened = tierstone_logstore::open(&mut device, &settings)?;
    let (shard, _) = opened.plans.remove(0).build(&mut device)?;
    let mut store = Harness::new(shard, device, opened.hasher);
    let clock = SystemClock::new();
    if counts {
        store.engine.set_cpu_clock(Box::new(clock));
    }
    let mut spent_us = 0;
    for number in 0..WRITES / WRITES_A_STEP {
        let began_us = clock.now().monotonic_us;
        for place in 0..WRITES_A_STEP {
            let name = ((number * WRITES_A_STEP + place) % 1_000).to_be_bytes();
            let kind = WriteKind::Put { value: &[7; 100], expiry_ms: 0, kind: Default::default() };
            let write = Write { key: store.key(keyspace, &name), kind };
            store.engine.write(store.now, &[write])?;
        }
        store.engine.step(store.now, &mut Vec::new(), &mut Vec::new());
        spent_us += clock.now().monotonic_us - began_us;
        if number % 64 == 0 {
            store.turn(Wait::All);
        }
    }
    Ok(spent_us as f64 * 1_000.0 / WRITES as f64)
}

fn main() -> Result<()> {
    let rounds: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(60);
    let (mut without, mut with) = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        without = without.min(measure(false)?);
        with = with.min(measure(true)?);
    }
    println!("{without:.0} ns a write without a clock, {with:.0} ns with one");
    Ok(())
}
