use super::*;
use crate::recovery::whole_records;
use crate::{Geometry, Keyspace, OpenSettings, ShardSettings};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::{KeyHasher, Now, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::{Engine, IndexKind, Key, SnapshotId, Write, WriteKind};
use tierstone_media::region::{MappedRegion, Region, RegionSettings};

pub(crate) const ORDERED: KeyspaceId = KeyspaceId(1);
pub(crate) const HASHED: KeyspaceId = KeyspaceId(2);

/// A shard with small blocks that are cleaned all the time and checkpoints that follow one another.
pub(crate) struct Small {
    region: Arc<MappedRegion>,
    settings: OpenSettings,
    pub shard: PmShard,
    pub hasher: KeyHasher,
    pub now: Now,
}

fn open(region: &Arc<MappedRegion>, settings: &OpenSettings) -> (PmShard, KeyHasher) {
    let mut opened = crate::open(Arc::clone(region) as Arc<dyn Region + Send + Sync>, settings).unwrap();
    (opened.plans.pop().unwrap().build().unwrap().0, opened.hasher)
}

impl Small {
    pub fn new(clean_below_blocks: u32, mutations: Mutations) -> Small {
        let region = Arc::new(MappedRegion::anonymous(1 << 20, &RegionSettings::default()).unwrap());
        let shard = ShardSettings {
            memory_bytes: u64::MAX,
            clean_below_blocks,
            write_back_step_bytes: 2 << 10,
            checkpoint_bytes_min: 0,
            checkpoint_fill_max: 1.0,
            checkpoint_rest: 0,
            checkpoint_step_rest: 0,
            ..ShardSettings::default()
        };
        let settings = OpenSettings {
            geometry: Geometry { segment_bytes: 16 << 10, block_bytes: 4 << 10, log_segments: 12 },
            shard,
            keyspaces: [(ORDERED, IndexKind::Ordered), (HASHED, IndexKind::Hash)]
                .map(|(id, index)| Keyspace { id, index })
                .to_vec(),
            seed: 5,
            mutations,
            ..OpenSettings::default()
        };
        let (shard, hasher) = open(&region, &settings);
        Small { region, settings, shard, hasher, now: Now { monotonic_us: 1_000, wall_ms: 1_000 } }
    }

    pub fn key<'k>(&self, keyspace: KeyspaceId, bytes: &'k [u8]) -> Key<'k> {
        Key { keyspace, position: self.hasher.position(bytes), bytes }
    }

    /// Puts a value, or deletes the key.
    pub fn write(&mut self, keyspace: KeyspaceId, name: &[u8], value: Option<&[u8]>) {
        let put = |value| WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
        let kind = value.map_or(WriteKind::Delete, put);
        let key = self.key(keyspace, name);
        while self.shard.write(self.now, &[Write { key, kind }]).is_err() {
            self.step();
        }
    }

    pub fn step(&mut self) {
        self.now.monotonic_us += 100;
        self.shard.step(self.now, &mut Vec::new(), &mut Vec::new());
    }

    /// Opens the store again, as after the death of its process or closed in good order.
    fn reopen(&mut self, is_closed: bool) {
        if is_closed {
            self.shard.shut();
            while !self.shard.is_shut() {
                self.step();
            }
        }
        (self.shard, self.hasher) = open(&self.region, &self.settings);
    }

    /// Old records that are to be counted by now, by grave, as a look at all blocks tells.
    fn old_records(&self) -> BTreeMap<u64, u32> {
        let mut old = BTreeMap::new();
        for number in self.shard.blocks.table.numbers() {
            let block = self.shard.blocks.table.get(number).unwrap();
            let start = self.shard.maker.layout.block(number);
            let (records, _) = whole_records(&self.shard.maker, number, block.life);
            let until = start + u64::from(block.end.min(block.counted_to));
            for (place, head) in records.into_iter().filter(|(place, _)| *place < until) {
                let (id, position) = (KeyspaceId(head.keyspace), Position(head.position));
                let is_newest = self.shard.keyspaces.get(&id).is_some_and(|keys| keys.has(position, place));
                if !is_newest && !head.is_tombstone() && !head.is_void() {
                    *old.entry(grave_of(id, position)).or_default() += 1;
                }
            }
        }
        old
    }
}

/// Writes, snapshots, cleaning and openings at random; how often the counts were not what is in the blocks, and how often they
/// were compared while blocks were not counted and snapshots kept something.
fn compared(seed: u64, mutations: &Mutations) -> (u32, u32) {
    let mut random = SeededRandom::new(seed);
    let clean_below_blocks = [6, 10_000][random.below(2) as usize];
    let mut small = Small::new(clean_below_blocks, mutations.clone());
    let mut snapshots: Vec<SnapshotId> = Vec::new();
    let (mut wrong, mut hard) = (0, 0);
    for round in 0..6_000u32 {
        let id = if random.chance(0.5) { ORDERED } else { HASHED };
        let name = format!("key-{:05}", random.below(400));
        let value = vec![round as u8; 20 + random.below(150) as usize];
        small.write(id, name.as_bytes(), random.chance(0.8).then_some(&value[..]));
        match random.below(300) {
            0..60 => small.step(),
            60..63 if snapshots.len() < 3 => snapshots.extend(small.shard.snapshot(small.now)),
            63..66 if !snapshots.is_empty() => {
                let id = snapshots.swap_remove(random.below(snapshots.len() as u64) as usize);
                small.shard.release_snapshot(id);
            }
            66 => {
                snapshots.clear();
                small.reopen(random.chance(0.5));
                // A snapshot before anything is counted.
                snapshots.extend(
                    random.chance(0.7).then(|| small.shard.snapshot(small.now)).into_iter().flatten(),
                );
            }
            _ => {}
        }
        if round % 40 == 0 {
            hard +=
                u32::from(!small.shard.recount.blocks.is_empty() && small.shard.snapshots.kept_bytes() > 0);
            let old = small.old_records();
            wrong += u32::from(old.iter().any(|(&grave, &count)| small.shard.graves.old(grave) != count));
        }
    }
    (wrong, hard)
}

#[test]
fn old_records_are_counted_as_they_lie_in_blocks() {
    let (mut hard, mut caught) = (0, 0);
    for seed in 0..12 {
        let (wrong, hard_ones) = compared(seed, &Mutations::none());
        assert_eq!(wrong, 0, "seed {seed}");
        hard += hard_ones;
        caught += compared(seed, &Mutations::one("kept_moved_uncounted")).0;
    }
    assert!(hard > 20 && caught > 0, "{hard} looks, the mutation is caught {caught} times");
}
