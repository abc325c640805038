//! How long a shard's steps take while a checkpoint of its index is written, with records in the cache
//! (the dearest case: each entry's location is looked up there), and how long loading it takes.
//!
//! `cargo run --release -p tierstone-logstore --example checkpoint_steps [keys]`
#![expect(clippy::print_stdout, reason = "a measuring program")]

use tierstone_base::histogram::LatencyHistogram;
use tierstone_base::{Clock, Error, ErrorKind, KeyspaceId, Result, SystemClock};
use tierstone_crash::Choices;
use tierstone_engine::Engine;
use tierstone_engine::harness::Harness;
use tierstone_logstore::format::superblock::{IndexKind, KeyspaceEntry, META_BYTES};
use tierstone_logstore::{OpenSettings, ShardSettings, open};
use tierstone_media::Geometry;
use tierstone_media::Wait;
use tierstone_media::sim::{SimMedium, SimSettings};

fn main() -> Result<()> {
    let keys: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2_000_000);
    let keyspace = KeyspaceId(1);
    let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes: 32 << 20, segment_limit: 200 };
    let medium = SimMedium::new(SimSettings::new(geometry), &Choices::quiet());
    let settings = OpenSettings {
        shard: ShardSettings { memory_bytes: 2 << 30, ..ShardSettings::default() },
        keyspaces: vec![KeyspaceEntry { id: keyspace, name: "0".into(), index: IndexKind::Hash }],
        ..OpenSettings::default()
    };
    let clock = SystemClock::new();
    let mut device = medium.device();
    let mut opened = open(&mut device, &settings)?;
    let (shard, _) = opened.plans.remove(0).build(&mut device)?;
    let mut store = Harness::new(shard, device, opened.hasher);
    for number in 0..keys {
        store.put(keyspace, format!("key:{number:012}").as_bytes(), &[7; 32])?;
    }
    store.sync()?;
    store.settle(1_000);
    store.now.monotonic_us += 2_000_000;
    let mut steps_us = LatencyHistogram::new();
    let (mut completions, mut events, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    let mut written = 0;
    let started = clock.now().monotonic_us;
    for _ in 0..10_000 + keys {
        store.engine.take_requests(&mut requests);
        tierstone_media::BlockDevice::submit(&mut store.device, &mut requests);
        tierstone_media::BlockDevice::complete(&mut store.device, Wait::Poll, &mut completions);
        store.now.monotonic_us += 50;
        let before = clock.now().monotonic_us;
        store.engine.step(store.now, &mut completions, &mut events);
        let step_us = clock.now().monotonic_us - before;
        let now_written = store.engine.statistics().checkpoint_bytes_written;
        if now_written > 0 {
            steps_us.record_us(step_us);
        }
        if now_written == written && written > 0 && store.engine.next_step_at_us().is_none() {
            break;
        }
        written = now_written;
    }
    let took_us = clock.now().monotonic_us - started;
    if written == 0 {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{keys} keys are too few for a checkpoint")));
    }
    println!(
        "{keys} keys: {written} bytes written in {took_us} us; a step takes {} us in the middle, 9 of 10 {}, 99 of 100 {}, at most {}",
        steps_us.quantile_us(0.5),
        steps_us.quantile_us(0.9),
        steps_us.quantile_us(0.99),
        steps_us.max_us()
    );
    drop(store);
    let mut device = medium.kill_process();
    let started = clock.now().monotonic_us;
    let mut opened = open(&mut device, &settings)?;
    let opened_us = clock.now().monotonic_us - started;
    let (_, report) = opened.plans.remove(0).build(&mut device)?;
    let built_us = clock.now().monotonic_us - started - opened_us;
    println!("opened in {opened_us} us, built in {built_us} us: {report:?}");
    Ok(())
}
