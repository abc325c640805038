//! The log store on volumes: power is lost at any completion of any disk, a disk dies at any moment, and
//! disks sleep and wake while it works. Whatever was acknowledged is there.

use crate::common::{geometry, keyspaces, small_settings};
use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_crash::Choices;
use tierstone_engine::harness::Harness;
use tierstone_logstore::LogShard;
use tierstone_media::Geometry;
use tierstone_media::sim::{
    CutPoints, Fault, FaultEffect, FaultTarget, PowerCut, Powered, SimMedium, SimSettings,
};
use tierstone_volume::{
    BufferSettings, FlashBuffer, KeepTurning, Level, OpenSettings, SleepSettings, SleepSetup, Volume,
    VolumeSettings,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT: u64 = 32 << 10;

/// The volume, and the store on it.
type Opened = (Volume<Powered>, Harness<LogShard, Volume<Powered>>);

struct World {
    count: usize,
    sleeps: bool,
    media: Vec<SimMedium>,
    dead: Option<usize>,
}

impl World {
    fn new(level: Level, count: usize, sleeps: bool, choices: &Choices) -> World {
        let settings = SimSettings::exploring(Geometry { meta_bytes: 64 << 10, ..geometry(SEGMENT, 40) });
        let settings = SimSettings { power_cut: PowerCut::Never, cut_limit: u32::MAX, ..settings };
        let media: Vec<SimMedium> = (0..=count).map(|_| SimMedium::new(settings.clone(), choices)).collect();
        let world = World { count, sleeps, media, dead: None };
        let volume = VolumeSettings {
            chunk_bytes: 16 << 10,
            meta_bytes: geometry(SEGMENT, 1).meta_bytes,
            region_bytes: 64 << 10,
            journal_slots: 4,
            is_zeroed: true,
            ..VolumeSettings::new(level, 5, SEGMENT)
        };
        Volume::create((0..count).map(|at| world.disk(at)).collect(), &volume)
            .expect("made")
            .close()
            .expect("closed");
        let buffer =
            BufferSettings { id: 6, volumes: 1, pairs_a_volume: 4, extent_bytes: 128 << 10, unit_blocks: 16 };
        FlashBuffer::create(world.disk(count), &buffer).expect("made");
        world
    }

    fn disk(&self, at: usize) -> Powered {
        Powered::new(&self.media, at)
    }

    fn open(&self) -> tierstone_base::Result<Opened> {
        let devices = (0..self.count).map(|at| (Some(at) != self.dead).then(|| self.disk(at))).collect();
        let open = OpenSettings { degraded: self.dead.is_some(), ..OpenSettings::default() };
        let volume = if self.sleeps {
            let buffer = FlashBuffer::open(self.disk(self.count))?;
            let settings = SleepSettings::published();
            Volume::open_sleeping(
                devices,
                &open,
                SleepSetup { buffer, settings, spindle: Box::new(KeepTurning) },
            )?
            .0
        } else {
            Volume::open(devices, &open)?.0
        };
        let mut device = volume.clone();
        let settings = tierstone_logstore::OpenSettings { keyspaces: keyspaces(), ..small_settings() };
        let mut opened = tierstone_logstore::open(&mut device, &settings)?;
        let plan = opened.plans.pop().expect("one shard");
        let (shard, _) = plan.build(&mut device)?;
        Ok((volume, Harness::new(shard, device, opened.hasher)))
    }

    /// Works until power is lost or the life ends; notes what was acknowledged and what may be there.
    fn life(
        &mut self,
        random: &mut SeededRandom,
        model: &mut BTreeMap<u64, Vec<u64>>,
    ) -> tierstone_base::Result<()> {
        let (volume, mut store) = self.open()?;
        for (key, allowed) in model.iter_mut() {
            let found = store.get(KEYSPACE, &key.to_le_bytes())?;
            let value =
                found.map_or(0, |(_, bytes)| u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes")));
            assert!(allowed.contains(&value), "key {key} holds {value}, may hold {allowed:?}");
            *allowed = vec![value];
        }
        for _ in 0..40 {
            match random.below(12) {
                0 if self.sleeps => _ = volume.sleep(random.below(self.count as u64 / 2) as u32),
                1 if self.sleeps => volume.wake(random.below(self.count as u64 / 2) as u32),
                2 => _ = volume.maintain(1)?,
                3 if self.dead.is_none() && random.chance(0.2) => {
                    let dead = random.below(self.count as u64) as usize;
                    self.dead = Some(dead);
                    self.media[dead].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
                    self.media[dead].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
                }
                _ => {
                    let (key, value) = (random.below(12), 1 + random.below(1 << 40));
                    let mut bytes = vec![value as u8; 200 + random.below(3000) as usize];
                    bytes[..8].copy_from_slice(&value.to_le_bytes());
                    model.entry(key).or_insert_with(|| vec![0]).push(value);
                    store.put(KEYSPACE, &key.to_le_bytes(), &bytes)?;
                    store.sync()?;
                    model.insert(key, vec![value]);
                }
            }
        }
        Ok(())
    }
}

fn explore(level: Level, count: usize, sleeps: bool, seeds: std::ops::Range<u64>) {
    let (mut cuts, mut deaths) = (0, 0);
    for seed in seeds {
        let mut random = SeededRandom::new(seed);
        let choices = Choices::random(random.next_u64());
        let mut world = World::new(level, count, sleeps, &choices);
        let mut model = BTreeMap::new();
        for life in 0..5 {
            let cut = PowerCut::Within { points: CutPoints::BeforeDurable, last: 120 };
            world.media.iter().for_each(|medium| medium.set_power_cut(cut));
            let result = world.life(&mut random, &mut model);
            let was_cut = world.media.iter().any(SimMedium::power_is_off);
            if let Err(error) = result {
                assert!(was_cut, "seed {seed}, life {life}, {level:?}: {error}");
            }
            cuts += u32::from(was_cut);
            world.media.iter().for_each(|medium| medium.set_power_cut(PowerCut::Never));
            world.media.iter().for_each(|medium| drop(medium.power_on_after_loss()));
        }
        deaths += u32::from(world.dead.is_some());
    }
    assert!(cuts > 0 && deaths > 0, "{cuts} cuts, {deaths} deaths");
}

#[test]
fn a_store_on_mirrors_survives_crashes_and_a_dead_disk() {
    explore(Level::Raid1, 2, false, 0..25);
    explore(Level::Raid10, 4, false, 100..115);
}

#[test]
fn a_store_on_parity_survives_crashes_and_a_dead_disk() {
    explore(Level::Raid5, 3, false, 0..20);
    explore(Level::Raid50 { groups: 2 }, 6, false, 100..108);
}

#[test]
fn a_store_on_sleeping_mirrors_survives_crashes_and_a_dead_disk() {
    explore(Level::Raid1, 2, true, 0..25);
    explore(Level::Raid10, 4, true, 100..115);
}
