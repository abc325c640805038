//! Makes small log stores on simulated devices.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod chain;
pub mod lives;
pub mod machine;
pub mod opened;
pub mod run;
pub mod sampling;

use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_crash::{Choices, Mutations};
use tierstone_engine::Engine;
use tierstone_engine::harness::Harness;
use tierstone_logstore::format::superblock::{IndexKind, KeyspaceEntry, META_BYTES};
use tierstone_logstore::{LogShard, OpenReport, OpenSettings, ShardSettings};
use tierstone_media::sim::{SimDevice, SimMedium, SimSettings};
use tierstone_media::{BLOCK_BYTES, BlockDevice, Geometry, IoBuffer, IoRequest, Wait};

/// A store of one shard and its medium.
pub type Store = Harness<LogShard, SimDevice>;

pub fn geometry(segment_bytes: u64, segment_limit: u32) -> Geometry {
    Geometry { meta_bytes: META_BYTES, segment_bytes, segment_limit }
}

pub fn keyspaces() -> Vec<KeyspaceEntry> {
    (1..=3)
        .map(|id| KeyspaceEntry { id: KeyspaceId(id), name: id.to_string(), index: IndexKind::Hash })
        .collect()
}

/// The same with the first one ordered.
pub fn ordered_keyspaces() -> Vec<KeyspaceEntry> {
    let mut all = keyspaces();
    all[0].index = IndexKind::Ordered;
    all
}

/// Settings that make small segments fill and clean quickly.
pub fn small_settings() -> OpenSettings {
    OpenSettings {
        shard: ShardSettings {
            memory_bytes: 256 << 10,
            index_fraction: 0.5,
            cache_bytes_max: 128 << 10,
            group_bytes_max: 16 << 10,
            overlap_bytes: 32 << 10,
            lazy_bytes_max: 24 << 10,
            clean_below_free_fraction: 0.15,
            clean_step_bytes: 16 << 10,
            touch_value_bytes_min: 0,
            ..ShardSettings::default()
        },
        keyspaces: keyspaces(),
        seed: 7,
        ..OpenSettings::default()
    }
}

/// Random settings of the kinds that matter to correctness.
pub fn random_settings(random: &mut SeededRandom) -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = [8 << 10, 64 << 10, 1 << 20][random.below(3) as usize];
    // A cache that takes nearly all leaves little to be read; both are wanted.
    settings.shard.cache_bytes_max = [settings.shard.memory_bytes / 2, u64::MAX][random.below(2) as usize];
    settings.shard.groups_in_flight_min = 1 + random.below(3) as usize;
    settings.shard.groups_in_flight_max = settings.shard.groups_in_flight_min;
    settings.shard.overlap_bytes = [4 << 10, 64 << 10][random.below(2) as usize];
    settings.shard.touch_value_bytes_min = [0, 300, usize::MAX][random.below(3) as usize];
    settings.weak_hash_bits = [None, Some(6), Some(0)][random.below(3) as usize];
    settings.shard.snapshot_table_bytes_max = [8 << 10, 16 << 20][random.below(2) as usize];
    // The model's ordered keyspace.
    settings.keyspaces = ordered_keyspaces();
    settings
}

pub fn mutated(name: &'static str) -> OpenSettings {
    OpenSettings { mutations: Mutations::one(name), ..small_settings() }
}

pub fn open_on(
    mut device: SimDevice,
    settings: &OpenSettings,
) -> tierstone_base::Result<(Store, OpenReport)> {
    let mut opened = tierstone_logstore::open(&mut device, settings)?;
    let plan = opened.plans.pop().expect("one shard");
    let (shard, _) = plan.build(&mut device)?;
    Ok((Harness::new(shard, device, opened.hasher), opened.report))
}

pub fn medium(segment_bytes: u64, segment_limit: u32) -> SimMedium {
    SimMedium::new(SimSettings::new(geometry(segment_bytes, segment_limit)), &Choices::quiet())
}

pub fn fresh(segment_bytes: u64, segment_limit: u32, settings: &OpenSettings) -> (SimMedium, Store) {
    let medium = medium(segment_bytes, segment_limit);
    let (store, _) = open_on(medium.device(), settings).unwrap();
    (medium, store)
}

/// Closes a store in good order and opens it again.
pub fn reopen(mut store: Store, medium: &SimMedium, settings: &OpenSettings) -> Store {
    store.engine.shut();
    for _ in 0..10_000 {
        if store.engine.is_shut() {
            break;
        }
        store.turn(tierstone_media::Wait::One);
    }
    assert!(store.engine.is_shut(), "the store did not come to an end");
    let now = store.now;
    drop(store);
    let (mut store, report) = open_on(medium.device(), settings).unwrap();
    assert_eq!(report.walked_segments, 0, "a store closed in good order has no open segment");
    store.now = now;
    store
}

/// Opens the store again as after the death of its process.
pub fn reopen_after_kill(store: Store, medium: &SimMedium, settings: &OpenSettings) -> Store {
    let now = store.now;
    drop(store);
    let device = medium.kill_process();
    let (mut store, _) = open_on(device, settings).unwrap();
    store.now = now;
    store
}

/// Reads bytes of a device, whole blocks.
pub fn read(device: &mut SimDevice, offset: u64, bytes: usize) -> Vec<u8> {
    let request = IoRequest::read(1, offset, IoBuffer::zeroed(bytes));
    let buffer = run(device, request).expect("the read gives its buffer");
    buffer[..bytes].to_vec()
}

/// Flips one bit of a device.
pub fn flip_bit(device: &mut SimDevice, offset: u64, bit: u32) {
    let start = offset / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let mut block = read(device, start, BLOCK_BYTES);
    block[(offset - start) as usize] ^= 1 << bit;
    write(device, start, &block);
}

/// Writes bytes to a device, whole blocks.
pub fn write(device: &mut SimDevice, offset: u64, bytes: &[u8]) {
    run(device, IoRequest::write_durable(2, offset, IoBuffer::from_slice(bytes)));
}

fn run(device: &mut SimDevice, request: IoRequest) -> Option<IoBuffer> {
    let mut completions = Vec::new();
    device.submit(&mut vec![request]);
    device.complete(Wait::All, &mut completions);
    completions.pop().and_then(|completion| completion.buffer)
}
