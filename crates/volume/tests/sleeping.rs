//! Pairs that sleep: what is asked of which disk, buffers that fill or fail, disks lost while asleep.

use crate::common::*;
use std::sync::{Arc, Mutex};
use tierstone_base::SeededRandom;
use tierstone_crash::Mutations;
use tierstone_media::conformance::{self, ConformanceMedium};
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget};
use tierstone_media::{BlockDevice, Geometry, Wait};
use tierstone_volume::{
    BufferSettings, FlashBuffer, Health, Level, OpenSettings, PairState, Recovery, SleepPolicy,
    SleepSettings, SleepSetup, Spindle, Volume, VolumeSettings,
};

fn volume_settings(id: u128) -> VolumeSettings {
    VolumeSettings {
        chunk_bytes: 2 * BLOCK,
        meta_bytes: 4 * BLOCK,
        region_bytes: 16 * BLOCK,
        is_zeroed: true,
        ..VolumeSettings::new(Level::Raid10, id, 16 * BLOCK)
    }
}

fn buffer_settings(volumes: u32) -> BufferSettings {
    BufferSettings { id: 77, volumes, pairs_a_volume: 2, extent_bytes: 16 * BLOCK, unit_blocks: 8 }
}

fn sleep_settings() -> SleepSettings {
    SleepSettings { write_backs: 3, ..SleepSettings::published() }
}

/// Notes what is stopped and started.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<(usize, bool)>>>);

impl Spindle for Noted {
    fn stop(&mut self, index: usize) {
        self.0.lock().expect("one thread").push((index, false));
    }

    fn start(&mut self, index: usize) {
        self.0.lock().expect("one thread").push((index, true));
    }
}

/// Four disks of one volume and a buffer: media 0 to 3, and 4.
struct World {
    array: Array,
    buffer: FlashBuffer<Powered>,
    noted: Noted,
}

fn flash(segments: u32) -> Geometry {
    small(segments)
}

impl World {
    fn new(flash_segments: u32) -> (World, Volume<Powered>) {
        let mut settings = vec![tierstone_media::SimSettings::new(small(8)); 4];
        settings.push(tierstone_media::SimSettings::new(flash(flash_segments)));
        let array = Array::new(&settings, &tierstone_crash::Choices::quiet(), 0);
        let devices = (0..4).map(|index| array.device(index)).collect();
        Volume::create(devices, &volume_settings(5)).expect("made").close().expect("closed");
        let buffer = FlashBuffer::create(array.device(4), &buffer_settings(1)).expect("made");
        let world = World { array, buffer, noted: Noted::default() };
        let volume = world.open(&OpenSettings::default()).expect("opens").0;
        (world, volume)
    }

    fn open(&self, settings: &OpenSettings) -> tierstone_base::Result<(Volume<Powered>, Recovery)> {
        let devices = (0..4).map(|index| Some(self.array.device(index))).collect();
        let spindle = Box::new(self.noted.clone());
        let sleep = SleepSetup { buffer: self.buffer.clone(), settings: sleep_settings(), spindle };
        Volume::open_sleeping(devices, settings, sleep)
    }

    fn writes(&self, index: usize) -> u64 {
        self.array.media[index].counters().writes
    }

    fn requests(&self, index: usize) -> u64 {
        self.array.media[index].counters().requests
    }
}

fn flush_all(volume: &Volume<Powered>) {
    (0..2).for_each(|pair| volume.wake(pair));
    let mut steps = 0;
    while volume.maintain(1).expect("flushed") {
        steps += 1;
        assert!(steps < 10_000, "a flush does not end");
    }
}

#[test]
fn a_disk_that_sleeps_is_asked_nothing_and_after_a_flush_both_hold_the_same() {
    let (world, mut volume) = World::new(60);
    fill(&mut volume, 100);
    assert!(volume.sleep(0) && volume.sleep(1) && !volume.sleep(1));
    assert_eq!(volume.pairs(), vec![(PairState::Asleep, [0, 1]), (PairState::Asleep, [0, 1])]);
    let (before, flash) = ((world.requests(1), world.requests(3)), world.writes(4));
    fill(&mut volume, 500);
    assert_filled(&mut volume, 500);
    assert_eq!((world.requests(1), world.requests(3)), before, "sleeping disks are left alone");
    assert!(world.writes(4) > flash);
    world.buffer.check().expect("agrees");
    flush_all(&volume);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    assert_filled(&mut volume, 500);
    assert_eq!(volume.pairs()[0].0, PairState::Awake);
    assert!(world.buffer.fill() < 0.01, "extents are given back: {}", world.buffer.fill());
    world.buffer.check().expect("agrees");
    let noted = world.noted.0.lock().expect("one thread").clone();
    assert_eq!(noted, vec![(1, false), (3, false), (1, true), (3, true)]);
    // The other disk sleeps next, so that starts are shared.
    assert!(volume.sleep(0));
    assert_eq!(volume.pairs()[0].1, [1, 1]);
}

#[test]
fn each_block_that_was_written_often_is_written_back_once() {
    let (world, mut volume) = World::new(60);
    volume.sleep(0);
    for value in 0..40 {
        write(&mut volume, 0, value).expect("written");
    }
    let before = world.writes(1);
    volume.wake(0);
    while volume.maintain(1).expect("flushed") {}
    // One block, the generation of the others, and the superblock that says that the disk counts again.
    assert_eq!(world.writes(1) - before, 3);
    assert_eq!(value(&mut volume, 0), 39);
}

#[test]
fn blocks_that_could_not_be_read_for_a_flush_are_written_back_later() {
    let (world, mut volume) = World::new(60);
    fill(&mut volume, 100);
    volume.sleep(0);
    fill(&mut volume, 500);
    volume.wake(0);
    for medium in [0, 4] {
        world.array.media[medium].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    }
    let failed = (0..100).find_map(|_| volume.maintain(1).err());
    assert!(failed.is_some(), "neither the buffer nor the other disk gives them");
    world.array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
    while volume.maintain(1).expect("flushed") {}
    assert_eq!(volume.pairs()[0].0, PairState::Awake);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    assert_filled(&mut volume, 500);
}

#[test]
fn a_disk_that_slept_when_it_was_pulled_does_not_count_when_another_has_its_place() {
    let mut settings = vec![tierstone_media::SimSettings::new(small(8)); 5];
    settings.push(tierstone_media::SimSettings::new(flash(60)));
    let array = Array::new(&settings, &tierstone_crash::Choices::quiet(), 0);
    let disks = |second: usize| [0, second, 2, 3].map(|at| Some(array.device(at))).into_iter().collect();
    let open = |second: usize, buffer: &FlashBuffer<Powered>| {
        let sleep = SleepSetup {
            buffer: buffer.clone(),
            settings: sleep_settings(),
            spindle: Box::new(Noted::default()),
        };
        Volume::open_sleeping(disks(second), &OpenSettings::default(), sleep)
    };
    let first = (0..4).map(|index| array.device(index)).collect();
    Volume::create(first, &volume_settings(5)).expect("made").close().expect("closed");
    let buffer = FlashBuffer::create(array.device(5), &buffer_settings(1)).expect("made");
    let mut volume = open(1, &buffer).expect("opens").0;
    fill(&mut volume, 100);
    assert!(volume.sleep(0));
    volume.fail(1).expect("spared");
    volume.replace(1, array.device(4)).expect("replaced");
    flush_all(&volume);
    fill(&mut volume, 500);
    drop(volume);
    let error = open(1, &buffer).map(drop).expect_err("it says that it sleeps, and nobody knows of it");
    assert!(error.message().contains("member 1 is of generation"), "{error}");
    let mut volume = open(4, &buffer).expect("opens").0;
    assert_filled(&mut volume, 500);
}

#[test]
fn a_flush_ends_while_writes_go_on_and_reads_see_the_newest() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let (_world, mut volume) = World::new(60);
        fill(&mut volume, 0);
        volume.sleep(0);
        volume.sleep(1);
        let blocks = volume.geometry().end() / BLOCK;
        let mut model: Vec<u64> = (0..blocks).collect();
        let mut next = 1000;
        let mut change = |volume: &mut Volume<Powered>, random: &mut SeededRandom, model: &mut Vec<u64>| {
            for _ in 0..6 {
                next += 1;
                let block = random.below(blocks);
                write(volume, block, next).expect("written");
                model[block as usize] = next;
                let block = random.below(blocks);
                assert_eq!(value(volume, block), model[block as usize], "seed {seed}, block {block}");
            }
        };
        for _ in 0..20 {
            change(&mut volume, &mut random, &mut model);
        }
        volume.wake(0);
        volume.wake(1);
        let mut steps = 0;
        while volume.maintain(1).expect("flushed") {
            change(&mut volume, &mut random, &mut model);
            steps += 1;
            // Each step writes three blocks back and six are written: only the last sweep can end it.
            assert!(steps < 1000, "seed {seed}: the flush does not end");
        }
        assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![], "seed {seed}");
        for (block, expected) in model.iter().enumerate() {
            assert_eq!(value(&mut volume, block as u64), *expected, "seed {seed}, block {block}");
        }
    }
}

#[test]
fn a_full_buffer_wakes_the_disks_and_no_write_is_refused() {
    let (world, mut volume) = World::new(5);
    volume.sleep(0);
    volume.sleep(1);
    fill(&mut volume, 100);
    fill(&mut volume, 700);
    fill(&mut volume, 300);
    assert_filled(&mut volume, 300);
    assert!(volume.pairs().iter().any(|(state, _)| *state == PairState::Awake), "{:?}", volume.pairs());
    flush_all(&volume);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    world.buffer.check().expect("agrees");
    assert!(!volume.status().is_degraded);
}

#[test]
fn a_buffer_that_is_lost_wakes_the_disks_which_are_brought_up_to_date_from_the_others() {
    let (world, mut volume) = World::new(60);
    fill(&mut volume, 100);
    volume.sleep(0);
    volume.sleep(1);
    fill(&mut volume, 500);
    world.array.media[4].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
    world.array.media[4].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    write(&mut volume, 3, 9999).expect("acknowledged, on both disks");
    assert_eq!(volume.pairs()[0].0, PairState::Awake);
    assert_eq!(value(&mut volume, 3), 9999);
    write(&mut volume, 3, 503).expect("written");
    assert_filled(&mut volume, 500);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    assert!(!volume.sleep(0), "without a buffer nothing sleeps");
    assert!(world.buffer.lost().is_some());
}

#[test]
fn a_buffer_that_is_lost_before_a_wake_is_replaced_by_the_other_disk() {
    let (world, mut volume) = World::new(60);
    fill(&mut volume, 100);
    volume.sleep(1);
    fill(&mut volume, 500);
    world.array.media[4].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    flush_all(&volume);
    assert_filled(&mut volume, 500);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
}

#[test]
fn the_disk_that_is_awake_may_be_lost_and_the_sleeping_one_stands_in() {
    for (target, seed) in [(FaultTarget::Write, 1), (FaultTarget::Read, 2)] {
        let (world, mut volume) = World::new(60);
        fill(&mut volume, 100 * seed);
        volume.sleep(0);
        volume.sleep(1);
        fill(&mut volume, 500);
        world.array.media[0].inject(Fault::new(target, FaultEffect::Fail));
        world.array.media[2].inject(Fault::new(target, FaultEffect::Fail));
        assert_filled(&mut volume, 500);
        fill(&mut volume, 800);
        assert_filled(&mut volume, 800);
        if target == FaultTarget::Write {
            assert_eq!(
                volume.status().members,
                [Health::Failed, Health::InSync, Health::Failed, Health::InSync]
            );
            assert_eq!(volume.pairs()[0].0, PairState::Degraded);
            assert!(!volume.sleep(0), "one disk cannot sleep");
        }
    }
}

#[test]
fn a_disk_that_is_lost_while_asleep_is_left_out_when_it_should_wake() {
    let (world, mut volume) = World::new(60);
    fill(&mut volume, 100);
    volume.sleep(0);
    fill(&mut volume, 500);
    world.array.media[1].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
    flush_all(&volume);
    assert_eq!(volume.status().members[1], Health::Failed);
    assert_filled(&mut volume, 500);
    world.array.media[1].clear_faults();
    volume.replace(1, world.array.device(1)).expect("a new one");
    while volume.maintain(8).expect("filled") {}
    assert!(volume.sleep(0));
    fill(&mut volume, 600);
    flush_all(&volume);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    assert_filled(&mut volume, 600);
}

#[test]
fn a_volume_that_cannot_record_a_failure_keeps_what_sleeping_disks_lack() {
    let (world, mut volume) = World::new(60);
    fill(&mut volume, 100);
    assert!(volume.sleep(0));
    fill(&mut volume, 500);
    for medium in [0, 2, 3] {
        world.array.media[medium].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
    }
    let held = world.buffer.fill();
    volume.fail(1).expect_err("nobody takes the record");
    assert!(held > 0.0 && world.buffer.fill() >= held, "{held} held, {} left", world.buffer.fill());
    drop(volume);
    world.array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
    let (mut volume, _) = world.open(&OpenSettings::default()).expect("opens");
    flush_all(&volume);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    assert_filled(&mut volume, 500);
}

#[test]
fn either_disk_of_a_sleeping_pair_may_be_pulled() {
    for pulled in [1, 0] {
        let (world, mut volume) = World::new(60);
        volume.sleep(0);
        fill(&mut volume, 100);
        volume.fail(pulled).expect("spared");
        assert!(world.buffer.fill() < 0.01);
        assert_eq!(volume.status().members[1 - pulled], Health::InSync, "it has what the buffer had");
        assert_filled(&mut volume, 100);
        fill(&mut volume, 200);
        volume.replace(pulled, world.array.device(pulled)).expect("a new one");
        while volume.maintain(8).expect("filled") {}
        assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
        assert_filled(&mut volume, 200);
    }
}

#[test]
fn the_disk_that_is_awake_is_not_spared_when_the_other_cannot_be_brought_up_to_date() {
    let (world, mut volume) = World::new(60);
    volume.sleep(0);
    fill(&mut volume, 100);
    for medium in [0, 4] {
        world.array.media[medium].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
    }
    assert!(volume.fail(0).is_err(), "neither the buffer nor the disk gives what the other lacks");
    world.array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
    world.array.media[1].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
    let error = volume.fail(0).expect_err("the other takes nothing");
    assert!(error.message().contains("cannot be spared"), "{error}");
    assert_eq!(volume.status().members[..2], [Health::InSync, Health::Failed]);
    assert_filled(&mut volume, 100);
}

#[test]
fn a_volume_that_slept_opens_only_with_its_buffer_or_by_copying() {
    let (world, mut volume) = World::new(60);
    fill(&mut volume, 100);
    volume.sleep(0);
    fill(&mut volume, 500);
    drop(volume);
    let devices = || (0..4).map(|index| Some(world.array.device(index))).collect();
    let error = Volume::open(devices(), &OpenSettings::default()).expect_err("refused");
    assert!(error.message().contains("flash buffer 0000000000000000000000000000004d"), "{error}");
    let other = Array::calm(1, flash(60));
    let wrong = BufferSettings { id: 78, ..buffer_settings(1) };
    let sleep = SleepSetup {
        buffer: FlashBuffer::create(other.device(0), &wrong).expect("made"),
        settings: sleep_settings(),
        spindle: Box::new(Noted::default()),
    };
    let error = Volume::open_sleeping(devices(), &OpenSettings::default(), sleep).expect_err("refused");
    assert!(error.message().contains("given was 0000000000000000000000000000004e"), "{error}");
    assert!(FlashBuffer::open(Array::calm(1, flash(60)).device(0)).is_err(), "an empty device");
    let degraded = OpenSettings { degraded: true, ..OpenSettings::default() };
    let mut volume = Volume::open(devices(), &degraded).expect("opens").0;
    assert_filled(&mut volume, 500);
    while volume.maintain(8).expect("filled") {}
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    assert!(!volume.status().is_degraded);
}

#[test]
fn volumes_share_a_buffer_and_extents_go_round() {
    let geometry = flash(40);
    let mut settings = vec![tierstone_media::SimSettings::new(small(8)); 4];
    settings.push(tierstone_media::SimSettings::new(geometry));
    let array = Array::new(&settings, &tierstone_crash::Choices::quiet(), 0);
    let buffer = FlashBuffer::create(array.device(4), &buffer_settings(2)).expect("made");
    let open = |pair: usize| {
        let level = VolumeSettings { level: Level::Raid1, ..volume_settings(50 + pair as u128) };
        let devices: Vec<Powered> = (2 * pair..2 * pair + 2).map(|index| array.device(index)).collect();
        Volume::create(devices, &level).expect("made").close().expect("closed");
        let devices = (2 * pair..2 * pair + 2).map(|index| Some(array.device(index))).collect();
        let sleep = SleepSetup {
            buffer: buffer.clone(),
            settings: sleep_settings(),
            spindle: Box::new(Noted::default()),
        };
        Volume::open_sleeping(devices, &OpenSettings::default(), sleep).expect("opens").0
    };
    let mut volumes = [open(0), open(1)];
    for round in 0..12 {
        for (at, volume) in volumes.iter_mut().enumerate() {
            if at == 0 || round % 3 == 0 {
                volume.sleep(0);
            }
            for block in 0..30 {
                write(volume, block, round * 100 + at as u64 * 7 + block).expect("written");
            }
            buffer.check().expect("agrees");
            if (round + at as u64).is_multiple_of(2) {
                volume.wake(0);
                while volume.maintain(1).expect("flushed") {}
            }
        }
        for (at, volume) in volumes.iter_mut().enumerate() {
            for block in 0..30 {
                assert_eq!(value(volume, block), round * 100 + at as u64 * 7 + block);
            }
        }
    }
    for volume in &volumes {
        volume.wake(0);
        while volume.maintain(1).expect("flushed") {}
        assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    }
}

#[test]
fn the_policy_sends_idle_pairs_to_sleep_and_wakes_busy_ones() {
    let (_world, mut volume) = World::new(60);
    let mut now_ms = 0;
    let mut epochs = |volume: &mut Volume<Powered>, count: u64, writes: u64| {
        for _ in 0..count {
            for n in 0..writes {
                write(volume, n * 7 % 50, n).expect("written");
            }
            now_ms += 1000;
            volume.tick(now_ms);
            volume.maintain(1).expect("flushed");
        }
    };
    epochs(&mut volume, 30, 1);
    assert_eq!(volume.pairs()[0].0, PairState::Awake, "the first tick only begins an epoch");
    epochs(&mut volume, 1, 1);
    assert_eq!(volume.pairs()[0].0, PairState::Asleep);
    // 160 random writes over two pairs: each 80 times 5.5 ms of modelled work a second.
    epochs(&mut volume, 2, 160);
    assert_ne!(volume.pairs()[0].0, PairState::Asleep);
    epochs(&mut volume, 40, 0);
    assert_eq!(volume.pairs()[0].0, PairState::Asleep);
    assert_eq!(volume.pairs()[0].1, [1, 1]);
    assert_eq!(SleepPolicy::published(0.8).spin_up_epochs, 2);
}

struct Sleeper(World, Option<Volume<Powered>>);

impl ConformanceMedium for Sleeper {
    type Device = Volume<Powered>;

    fn device(&mut self) -> Volume<Powered> {
        self.1.clone().expect("open")
    }

    fn reopen(&mut self) {
        self.1 = None;
        self.0.array.restart();
        self.0.buffer = FlashBuffer::open(self.0.array.device(4)).expect("opens");
        let volume = self.0.open(&OpenSettings::default()).expect("opens").0;
        volume.sleep(0);
        self.1 = Some(volume);
    }
}

#[test]
fn a_volume_with_sleeping_disks_is_a_block_device() {
    conformance::run(|_| {
        let (world, volume) = World::new(200);
        volume.sleep(0);
        volume.sleep(1);
        Sleeper(world, Some(volume))
    });
    let mut none = Vec::new();
    let (_world, mut volume) = World::new(60);
    assert_eq!(volume.complete(Wait::All, &mut none), 0);
    assert_eq!(Mutations::none(), OpenSettings::default().mutations);
}
