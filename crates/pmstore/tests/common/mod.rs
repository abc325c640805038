//! Makes small stores in the persistent memory of a simulated machine.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod lives;
pub mod medium;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_crash::Choices;
use tierstone_engine::harness::Harness;
use tierstone_engine::{Durability, Engine, IndexKind};
use tierstone_media::region::Region;
use tierstone_media::sim::{
    CutPoints, PowerCut, SimDevice, SimMachine, SimMachineSettings, SimMedium, SimSettings, WordMachine,
    set_processor,
};
use tierstone_media::{BLOCK_BYTES, Geometry as DeviceGeometry};
use tierstone_pmstore::{BuildReport, Geometry, Keyspace, OpenReport, OpenSettings, PmShard, ShardSettings};

/// A shard, and a device that is never asked for anything.
pub type Store = Harness<PmShard, SimDevice>;

pub const SMALL: Geometry = Geometry { segment_bytes: 16 << 10, block_bytes: 4 << 10, log_segments: 4 };

/// Keyspaces 1 to 3, the first one ordered.
pub fn keyspaces() -> Vec<Keyspace> {
    let kind = |id| if id == 1 { IndexKind::Ordered } else { IndexKind::Hash };
    (1..=3).map(|id| Keyspace { id: KeyspaceId(id), index: kind(id) }).collect()
}

/// Settings whose blocks fill and are cleaned quickly.
pub fn small_settings() -> OpenSettings {
    OpenSettings {
        base: 128,
        shard: ShardSettings {
            durability: Durability::Sync,
            memory_bytes: u64::MAX,
            clean_below_blocks: 6,
            write_back_step_bytes: 2 << 10,
            mark_every_us: 400,
            ..ShardSettings::default()
        },
        geometry: SMALL,
        keyspaces: keyspaces(),
        seed: 7,
        ..OpenSettings::default()
    }
}

/// Random settings of the kinds that matter to correctness.
pub fn random_settings(random: &mut SeededRandom) -> OpenSettings {
    let mut settings = small_settings();
    let geometries = [
        SMALL,
        Geometry { segment_bytes: 8 << 10, block_bytes: 8 << 10, log_segments: 4 },
        Geometry { segment_bytes: 64 << 10, block_bytes: 2 << 10, log_segments: 3 },
    ];
    settings.geometry = geometries[random.below(3) as usize];
    settings.weak_hash_bits = [None, Some(6), Some(0)][random.below(3) as usize];
    settings.shard.partial_keys = random.chance(0.5);
    settings.shard.clean_below_blocks = [4, 12, 1_000][random.below(3) as usize];
    settings
}

/// Checkpoints of the index follow one another, in a store of any size.
pub fn always_checkpoint(shard: &mut ShardSettings) {
    (shard.checkpoint_bytes_min, shard.checkpoint_fill_max) = (0, 1.0);
    (shard.checkpoint_rest, shard.checkpoint_step_rest) = (0, 0);
}

pub fn device() -> SimDevice {
    let geometry = DeviceGeometry {
        meta_bytes: BLOCK_BYTES as u64,
        segment_bytes: BLOCK_BYTES as u64,
        segment_limit: 1,
    };
    SimMedium::new(SimSettings::new(geometry), &Choices::quiet()).device()
}

/// Of a machine with persistent memory and without devices. Power is lost when it is told so.
pub fn machine_settings(bytes: u64) -> SimMachineSettings {
    let nothing = DeviceGeometry { meta_bytes: 0, segment_bytes: 0, segment_limit: 0 };
    SimMachineSettings {
        devices: Vec::new(),
        power_cut: PowerCut::Never,
        cut_limit: u32::MAX,
        trace_limit_lines: 0,
        ..SimMachineSettings::exploring(bytes, nothing)
    }
}

pub fn machine_of<const UNIT: usize>(bytes: u64, choices: &Choices) -> SimMachine<UNIT> {
    SimMachine::new(&machine_settings(bytes), choices)
}

/// One whose words survive each by itself: no machine keeps less. What nobody decides, survives not.
pub fn machine(bytes: u64) -> WordMachine {
    machine_of(bytes, &Choices::quiet())
}

/// Where a store can lie.
pub trait Place {
    fn region(&self) -> Arc<dyn Region + Send + Sync>;
}

impl<const UNIT: usize> Place for SimMachine<UNIT> {
    fn region(&self) -> Arc<dyn Region + Send + Sync> {
        Arc::new(SimMachine::region(self))
    }
}

impl<R: Region + Send + Sync + 'static> Place for Arc<R> {
    fn region(&self) -> Arc<dyn Region + Send + Sync> {
        Arc::clone(self) as Arc<dyn Region + Send + Sync>
    }
}

/// Flips one bit of the memory of `machine`.
pub fn flip_bit(machine: &WordMachine, offset: usize, bit: u32) {
    let region = machine.region();
    region.overwrite(offset as u64, &[region.image()[offset] ^ 1 << bit]);
}

/// The word at byte `at` of an image.
pub fn word_at(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}

/// Where in an image of a region of one shard the table of segments and the first segment begin.
pub fn table_and_data(image: &[u8], settings: &OpenSettings) -> (u64, u64) {
    let segments = word_at(image, settings.base as usize + 56);
    let table = (4096_u64 + 64).next_multiple_of(4096);
    let data = (table + segments * 8).next_multiple_of(4096);
    (settings.base + table, settings.base + data)
}

/// Opens the store; power is lost among the `last` events of that, or after them, and is back.
pub fn cut_while_opened<const UNIT: usize>(machine: &SimMachine<UNIT>, settings: &OpenSettings, last: u64) {
    machine.set_power_cut(PowerCut::Within { points: CutPoints::Every, last });
    let opened = catch_unwind(AssertUnwindSafe(|| drop(open_all(machine, settings))));
    machine.set_power_cut(PowerCut::Never);
    if let Err(payload) = opened
        && !machine.power_is_off()
    {
        resume_unwind(payload);
    }
    machine.power_on_after_loss();
}

/// All shards of a store, each on a processor of its own from its building on; the opening is done by the first, 0.
pub fn open_all(
    place: &impl Place,
    settings: &OpenSettings,
) -> tierstone_base::Result<(Vec<Store>, OpenReport, Vec<BuildReport>)> {
    set_processor(0);
    let opened = tierstone_pmstore::open(place.region(), settings)?;
    let (mut stores, mut reports) = (Vec::new(), Vec::new());
    for (number, plan) in (1..).zip(opened.plans) {
        set_processor(number);
        let (shard, report) = plan.build()?;
        stores.push(Harness::new(shard, device(), opened.hasher));
        reports.push(report);
    }
    Ok((stores, opened.report, reports))
}

pub fn open_one(place: &impl Place, settings: &OpenSettings) -> (Store, BuildReport) {
    let (mut stores, _, mut reports) = open_all(place, settings).unwrap();
    (stores.pop().expect("one shard"), reports.pop().expect("one shard"))
}

pub fn fresh(bytes: u64, settings: &OpenSettings) -> (WordMachine, Store) {
    let machine = machine(bytes);
    let (store, _) = open_one(&machine, settings);
    (machine, store)
}

/// Closes a store in good order and opens it again.
pub fn reopen(mut store: Store, machine: &WordMachine, settings: &OpenSettings) -> Store {
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
    let (mut store, report) = open_one(machine, settings);
    assert_eq!(report.replayed, 0, "a store closed in good order has nothing to replay");
    store.now = now;
    store
}

/// Opens the store again as after the death of its process.
pub fn reopen_after_kill(store: Store, machine: &WordMachine, settings: &OpenSettings) -> Store {
    let now = store.now;
    drop(store);
    let (mut store, _) = open_one(machine, settings);
    store.now = now;
    store
}

/// The first word of a store.
const MAGIC: u64 = u64::from_le_bytes(*b"TSpmstor");
/// Lower bits of a guarded word: its number.
const GUARDED: u64 = (1 << 48) - 1;

/// Where in an image the line of a shard is.
fn shard_line(settings: &OpenSettings, shard: u64) -> usize {
    (settings.base + 4096 + shard * 64) as usize
}

/// The number at which the log of a shard begins.
pub fn log_begins(image: &[u8], settings: &OpenSettings, shard: u64) -> u64 {
    word_at(image, shard_line(settings, shard)) & GUARDED
}

/// Makes a store whose logs begin at the number `first`, as if they had come so far.
pub fn make_with_logs_from<const UNIT: usize>(
    machine: &SimMachine<UNIT>,
    settings: &OpenSettings,
    first: u32,
) {
    drop(open_all(machine, settings).unwrap());
    let region = machine.region();
    let image = region.image();
    let (base, shards) = (settings.base, u64::from(settings.shard_count));
    let (store, segments) = (word_at(&image, base as usize + 16), word_at(&image, base as usize + 56));
    let table = (4096 + shards * 64).next_multiple_of(4096);
    let data = (table + segments * 8).next_multiple_of(4096);
    let mut changed = 0;
    for segment in 0..segments {
        let at = base + table + segment * 8;
        let word = word_at(&image, at as usize);
        let (kind, shard, number) = (word & 0xff, word >> 8 & 0xffff, word >> 24 & 0xffff_ffff);
        // Each shard has begun one segment.
        if kind != 2 || number != 1 {
            continue;
        }
        let named = word & 0xff_ffff | u64::from(first) << 24;
        let named = named | salt(named, MAGIC) >> 56 << 56;
        region.overwrite(at, &named.to_le_bytes());
        let lead = (base + data + segment * settings.geometry.segment_bytes) as usize;
        let mut bytes: [u8; 32] = image[lead..lead + 32].try_into().unwrap();
        bytes[16..20].copy_from_slice(&first.to_le_bytes());
        let sum = checksum(salt(store ^ segment, word_at(&bytes, 0)), &bytes[16..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        region.overwrite(lead as u64, &bytes);
        let begins = u64::from(first) | salt(u64::from(first), !MAGIC) & !GUARDED;
        let line = shard_line(settings, shard);
        region.overwrite(line as u64, &begins.to_le_bytes());
        assert_eq!(word_at(&image, line + 16), 0, "no end of the log was noted");
        changed += 1;
    }
    assert_eq!(changed, shards, "each shard has a log");
}
