//! Sleeping pairs whose flash buffer stages in persistent memory: memory, disks and flash lose power together, at every
//! step that makes something durable, with every legal outcome sampled: lines or words of the memory, sectors of the
//! devices. Then any one of them is lost. What was acknowledged is there.

use crate::common::*;
use std::rc::Rc;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_all_caught, explore};
use tierstone_media::region::Region;
use tierstone_media::sim::{MachineLife, PowerCut, SimMachine, SimMachineSettings};
use tierstone_media::{
    BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, RegionDevice, SimDevice,
    SimRegion, Wait,
};
use tierstone_volume::{
    BufferSettings, FlashBuffer, KeepTurning, Level, OpenSettings, SleepSettings, SleepSetup, Volume,
    VolumeSettings,
};

/// Broken in turn. The first is the memory's own, at the end of each submission to it.
const RULES: [&str; 4] = [
    "writes are fenced before they complete",
    "a unit is durable before its log begins anew",
    "the staging memory is signed before the map",
    "the buffer forgets a pair before it is written directly",
];
const STAGED: &str = "what a sleeping disk misses goes to the buffer";

/// A disk, or the memory.
enum Part<const UNIT: usize> {
    Disk(SimDevice),
    Memory(RegionDevice<Rc<SimRegion<UNIT>>>),
}

impl<const UNIT: usize> Part<UNIT> {
    fn of(&self) -> &dyn BlockDevice {
        match self {
            Part::Disk(device) => device,
            Part::Memory(device) => device,
        }
    }

    fn of_mut(&mut self) -> &mut dyn BlockDevice {
        match self {
            Part::Disk(device) => device,
            Part::Memory(device) => device,
        }
    }
}

impl<const UNIT: usize> BlockDevice for Part<UNIT> {
    fn geometry(&self) -> Geometry {
        self.of().geometry()
    }

    fn guarantee(&self) -> Guarantee {
        self.of().guarantee()
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        self.of().durable_write_scope()
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        self.of_mut().submit(requests);
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        self.of_mut().complete(wait, completions)
    }

    fn in_flight(&self) -> usize {
        self.of().in_flight()
    }
}

/// The memory of a test: a signature and a log of two units.
fn memory_geometry() -> Geometry {
    Geometry { meta_bytes: 2 * BLOCK, segment_bytes: BLOCK, segment_limit: 6 }
}

fn memory<const UNIT: usize>(region: SimRegion<UNIT>, mutations: &Mutations) -> Part<UNIT> {
    let device = RegionDevice::new(Rc::new(region), 0, memory_geometry()).expect("it fits");
    Part::Memory(device.with_mutations(mutations.clone()))
}

fn settings(level: Level) -> VolumeSettings {
    VolumeSettings {
        chunk_bytes: BLOCK,
        meta_bytes: BLOCK,
        region_bytes: 4 * BLOCK,
        is_zeroed: true,
        ..VolumeSettings::new(level, 0xabcd, BLOCK)
    }
}

const BUFFER: BufferSettings =
    BufferSettings { id: 9, volumes: 1, pairs_a_volume: 2, extent_bytes: 3 * BLOCK, unit_blocks: 3 };

struct Scenario<'a> {
    disks: usize,
    can_lose: bool,
    mutations: &'a Mutations,
    choices: &'a Choices,
    blocks: Blocks,
    values: u64,
    /// A disk; the flash is behind the disks, the memory behind the flash.
    lost: Option<usize>,
}

impl Scenario<'_> {
    fn open<const UNIT: usize>(&mut self, life: MachineLife<UNIT>) -> Result<Volume<Part<UNIT>>, Violation> {
        let (lost, flash) = (self.lost, self.disks);
        let mut devices = life.devices;
        let buffer = Part::Disk(devices.pop().ok_or("a machine with a flash")?);
        let devices = (0..).zip(devices).map(|(at, disk)| (Some(at) != lost).then_some(Part::Disk(disk)));
        let devices = devices.collect();
        let open = OpenSettings {
            degraded: lost.is_some(),
            mutations: self.mutations.clone(),
            ..OpenSettings::default()
        };
        if lost == Some(flash + 1) {
            let blank = memory(SimRegion::new(memory_geometry().end()), self.mutations);
            let told = FlashBuffer::open_mutated(buffer, Some(blank), self.mutations.clone());
            Violation::unless(told.is_err(), || "a memory that is lost was taken".into())?;
        } else if lost != Some(flash) {
            let memory = memory(life.region, self.mutations);
            let buffer = FlashBuffer::open_mutated(buffer, Some(memory), self.mutations.clone())?;
            buffer.check().map_err(Violation::new)?;
            let settings = SleepSettings { write_backs: 1, ..SleepSettings::published() };
            let sleep = SleepSetup { buffer, settings, spindle: Box::new(KeepTurning) };
            return Ok(Volume::open_sleeping(devices, &open, sleep)?.0);
        }
        Ok(Volume::open(devices, &open)?.0)
    }

    fn make<const UNIT: usize>(&self, life: &MachineLife<UNIT>) -> Result<(), Violation> {
        let disk = |at: usize| Part::Disk(life.devices[at].clone());
        let level = if self.disks == 2 { Level::Raid1 } else { Level::Raid10 };
        Volume::create((0..self.disks).map(disk).collect(), &settings(level))?;
        // One that stages on its flash until it is opened with a memory, or one that never did.
        if self.can_lose || self.choices.choose(2, "made with a memory") == 1 {
            let memory = memory(life.region.clone(), &Mutations::none());
            FlashBuffer::create_staged(disk(self.disks), memory, &BUFFER)?;
        } else {
            FlashBuffer::create(disk(self.disks), &BUFFER)?;
        }
        Ok(())
    }

    fn work<const UNIT: usize>(
        &mut self,
        volume: &mut Volume<Part<UNIT>>,
        rounds: u64,
    ) -> Result<(), Violation> {
        let places: Vec<u64> = (0..volume.geometry().end() / BLOCK).take(3).collect();
        work(volume, self.choices, &mut self.blocks, &places, rounds, &mut self.values)
    }

    fn life<const UNIT: usize>(
        &mut self,
        machine: &SimMachine<UNIT>,
        life: MachineLife<UNIT>,
    ) -> Result<(), Violation> {
        let number = life.number;
        if number == 0 {
            let cut = machine.media()[0].settings().power_cut;
            machine.media()[0].set_power_cut(PowerCut::Never);
            self.make(&life)?;
            machine.media()[0].set_power_cut(cut);
        } else if self.can_lose && self.lost.is_none() {
            self.lost = Some(self.choices.choose(self.disks as u64 + 2, "lost device") as usize);
        }
        let mut volume = self.open(life)?;
        check(&mut volume, &mut self.blocks)?;
        if number > 0 {
            let differing = volume.compare(0..u64::MAX)?;
            Violation::unless(differing.is_empty(), || format!("disks differ in rows {differing:?}"))?;
        }
        let pairs = self.disks as u32 / 2;
        for _ in 0..2 {
            (0..pairs).for_each(|pair| _ = volume.sleep(pair));
            self.work(&mut volume, 3)?;
            (0..pairs).for_each(|pair| volume.wake(pair));
            self.work(&mut volume, 1)?;
            while volume.maintain(1)? {
                if self.choices.choose(2, "write during the flush") == 1 {
                    self.work(&mut volume, 1)?;
                }
            }
            self.work(&mut volume, 1)?;
        }
        check(&mut volume, &mut self.blocks)
    }
}

fn explored<const UNIT: usize>(
    disks: usize,
    can_lose: bool,
    how: ExploreSettings,
    mutations: &Mutations,
) -> Report {
    explore(how, |choices| {
        let disk = Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 12 };
        let flash = Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 24 };
        let mut devices = vec![exploring(disk, 40); disks];
        devices.push(exploring(flash, 40));
        let power_cut = devices[0].power_cut;
        let machine = SimMachineSettings::exploring(memory_geometry().end(), disk);
        let machine = SimMachine::<UNIT>::new(&SimMachineSettings { devices, power_cut, ..machine }, choices);
        let (blocks, values) = (Blocks::default(), 0);
        let mut scenario = Scenario { disks, can_lose, mutations, choices, blocks, values, lost: None };
        machine.clone().run_lives(|life| scenario.life(&machine, life))
    })
}

#[test]
fn a_crash_at_any_step_of_memory_disks_and_flash_leaves_everything_and_each_broken_rule_is_found() {
    // The crash mark staging-signed is passed in every life.
    assert_all_caught(&RULES, |mutations| {
        explored::<64>(2, false, ExploreSettings::sampled(21, 1200, mutations), mutations)
    });
    let how = ExploreSettings::sampled(22, 250, &Mutations::none());
    explored::<8>(4, false, how, &Mutations::none()).assert_clean();
}

#[test]
fn a_crash_and_the_loss_of_disk_flash_or_memory_leave_everything_acknowledged() {
    assert_all_caught(&[STAGED, RULES[0]], |mutations| {
        explored::<8>(2, true, ExploreSettings::sampled(23, 900, mutations), mutations)
    });
    let how = ExploreSettings::sampled(24, 200, &Mutations::none());
    explored::<64>(4, true, how, &Mutations::none()).assert_clean();
}

/// Two disks, a flash and a memory that never lose power.
struct Calm {
    array: Array,
    region: SimRegion<64>,
}

impl Calm {
    fn new() -> Calm {
        let geometry = Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 24 };
        let calm = Calm { array: Array::calm(3, geometry), region: SimRegion::new(memory_geometry().end()) };
        let disks = vec![calm.disk(0), calm.disk(1)];
        Volume::create(disks, &settings(Level::Raid1)).expect("made");
        FlashBuffer::create_staged(calm.disk(2), calm.memory(), &BUFFER).expect("made");
        calm
    }

    fn disk(&self, at: usize) -> Part<64> {
        Part::Disk(self.array.media[at].device())
    }

    fn memory(&self) -> Part<64> {
        memory(self.region.clone(), &Mutations::none())
    }

    fn open(&self, buffer: FlashBuffer<Part<64>>) -> tierstone_base::Result<Volume<Part<64>>> {
        let settings = SleepSettings::published();
        let sleep = SleepSetup { buffer, settings, spindle: Box::new(KeepTurning) };
        let devices = vec![Some(self.disk(0)), Some(self.disk(1))];
        Ok(Volume::open_sleeping(devices, &OpenSettings::default(), sleep)?.0)
    }

    /// Works while the second disk sleeps, and ends without closing.
    fn work_asleep(&self, value: u64) {
        let buffer = FlashBuffer::open_staged(self.disk(2), self.memory()).expect("opens");
        let mut volume = self.open(buffer).expect("opens");
        assert!(volume.sleep(0));
        write(&mut volume, 2, value).expect("written");
    }

    fn refused(&self, memory: Part<64>) -> String {
        FlashBuffer::open_staged(self.disk(2), memory).expect_err("refused").to_string()
    }
}

#[test]
fn staged_blocks_lie_in_the_memory_and_not_on_the_flash() {
    let calm = Calm::new();
    let buffer = FlashBuffer::open_staged(calm.disk(2), calm.memory()).expect("opens");
    let mut volume = calm.open(buffer).expect("opens");
    assert!(volume.sleep(0));
    let flash = || {
        let mut flash = calm.disk(2);
        (0..32).map(|block| read(&mut flash, block).expect("reads").to_vec()).collect::<Vec<_>>()
    };
    let (flash_before, memory_before) = (flash(), calm.region.image());
    write(&mut volume, 2, 77).expect("written");
    assert!(flash() == flash_before, "the flash was not written to");
    assert!(calm.region.image() != memory_before);
    volume.wake(0);
    while volume.maintain(8).expect("flushes") {}
    assert_eq!(value(&mut volume, 2), 77);
}

#[test]
fn a_memory_that_is_lost_older_foreign_or_not_named_is_refused_and_nothing_is_written() {
    let calm = Calm::new();
    calm.work_asleep(5);
    let older = calm.region.image();
    calm.work_asleep(6);
    let flash_before = read(&mut calm.disk(2), 0).expect("reads");
    let other = |image: &[u8]| {
        let region = SimRegion::new(memory_geometry().end());
        region.store(0, image);
        memory(region, &Mutations::none())
    };
    assert!(calm.refused(other(&[])).contains("holds no staging log"));
    assert!(calm.refused(other(b"something")).contains("holds no staging log"));
    assert!(calm.refused(other(&older)).contains("older than the flash"), "{}", calm.refused(other(&older)));
    let foreign = Calm::new();
    let id = BufferSettings { id: 10, ..BUFFER };
    foreign.region.store(0, &vec![0; memory_geometry().end() as usize]);
    FlashBuffer::create_staged(foreign.disk(2), foreign.memory(), &id).expect("made");
    assert!(calm.refused(foreign.memory()).contains("belongs to flash buffer"));
    let unnamed = FlashBuffer::open(calm.disk(2)).expect_err("refused").to_string();
    assert!(unnamed.contains("name that one"), "{unnamed}");
    assert!(*flash_before == *read(&mut calm.disk(2), 0).expect("reads"), "nothing was written");
    let buffer = FlashBuffer::open_staged(calm.disk(2), calm.memory()).expect("the right one");
    assert_eq!(value(&mut calm.open(buffer).expect("opens"), 2), 6);
}

#[test]
fn a_buffer_made_anew_does_not_count_for_disks_that_sleep() {
    let calm = Calm::new();
    calm.work_asleep(5);
    let blank = || memory(SimRegion::<64>::new(memory_geometry().end()), &Mutations::none());
    let buffer = FlashBuffer::renew(calm.disk(2), Some(blank())).expect("anew");
    let refused = calm.open(buffer.clone()).expect_err("the second disk lacks what was staged").to_string();
    assert!(refused.contains("open degraded to copy the disks whole"), "{refused}");
    let devices = vec![Some(calm.disk(0)), Some(calm.disk(1))];
    let degraded = OpenSettings { degraded: true, ..OpenSettings::default() };
    let settings = SleepSettings::published();
    let sleep = SleepSetup { buffer, settings, spindle: Box::new(KeepTurning) };
    let (mut volume, _) = Volume::open_sleeping(devices, &degraded, sleep).expect("opens");
    assert!(volume.status().is_degraded && !volume.sleep(0));
    while volume.maintain(8).expect("copies") {}
    assert!(!volume.status().is_degraded && volume.sleep(0));
    assert!(value(&mut volume, 2) == 5 && volume.compare(0..u64::MAX).expect("compares").is_empty());
    volume.close().expect("closes");
}

#[test]
fn a_buffer_with_blocks_staged_on_its_flash_moves_only_when_they_are_gone() {
    let calm = Calm::new();
    FlashBuffer::create(calm.disk(2), &BUFFER).expect("made");
    let buffer = FlashBuffer::open(calm.disk(2)).expect("opens");
    let mut volume = calm.open(buffer).expect("opens");
    assert!(volume.sleep(0));
    write(&mut volume, 2, 8).expect("written");
    drop(volume);
    calm.region.store(0, &vec![0; memory_geometry().end() as usize]);
    assert!(calm.refused(calm.memory()).contains("without the staging memory"));
    let buffer = FlashBuffer::open(calm.disk(2)).expect("opens");
    calm.open(buffer).expect("opens").close().expect("closes");
    calm.work_asleep(9);
    let buffer = FlashBuffer::open_staged(calm.disk(2), calm.memory()).expect("opens");
    assert_eq!(value(&mut calm.open(buffer).expect("opens"), 2), 9);
}
