//! Pairs that sleep whole: which disks are asked, what ranges say, what is copied, and disks lost on the way.

use crate::common::*;
use std::sync::{Arc, Mutex};
use tierstone_base::SeededRandom;
use tierstone_crash::Choices;
use tierstone_media::conformance::{self, ConformanceMedium};
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget};
use tierstone_media::{BlockDevice, SimSettings};
use tierstone_volume::{
    BufferSettings, FlashBuffer, Level, OpenSettings, PairState, RangeClass, SleepSettings, SleepSetup,
    Spindle, Volume, VolumeSettings, WholePolicy,
};

const DISKS: usize = 6;
/// Chunks of two blocks; the first twelve stay hot: four rows of each of the three pairs.
const COLD_FROM: u64 = 24;

fn settings() -> VolumeSettings {
    VolumeSettings {
        chunk_bytes: 2 * BLOCK,
        meta_bytes: 4 * BLOCK,
        region_bytes: 16 * BLOCK,
        is_zeroed: true,
        spare_bytes: 16 * BLOCK,
        ..VolumeSettings::new(Level::Raid10, 5, 16 * BLOCK)
    }
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

/// Six disks of one volume and a buffer: media 0 to 5, and 6.
struct World {
    array: Array,
    buffer: FlashBuffer<Powered>,
    noted: Noted,
}

impl World {
    fn new() -> (World, Volume<Powered>) {
        let mut media = vec![SimSettings::new(small(8)); DISKS];
        media.push(SimSettings::new(small(80)));
        let array = Array::new(&media, &Choices::quiet(), 0);
        let devices = (0..DISKS).map(|index| array.device(index)).collect();
        let volume = Volume::create(devices, &settings()).expect("made");
        volume.declare(COLD_FROM * BLOCK..volume.geometry().end(), RangeClass::Cold).expect("declared");
        volume.close().expect("closed");
        let buffer = BufferSettings {
            id: 77,
            volumes: 1,
            pairs_a_volume: 3,
            extent_bytes: 16 * BLOCK,
            unit_blocks: 8,
        };
        let buffer = FlashBuffer::create(array.device(DISKS), &buffer).expect("made");
        let world = World { array, buffer, noted: Noted::default() };
        let volume = world.open().expect("opens");
        (world, volume)
    }

    fn open(&self) -> tierstone_base::Result<Volume<Powered>> {
        let devices = (0..DISKS).map(|index| Some(self.array.device(index))).collect();
        let spindle = Box::new(self.noted.clone());
        let settings = SleepSettings { write_backs: 3, ..SleepSettings::published() };
        let sleep = SleepSetup { buffer: self.buffer.clone(), settings, spindle };
        Ok(Volume::open_sleeping(devices, &OpenSettings::default(), sleep)?.0)
    }

    fn requests(&self) -> Vec<u64> {
        (0..DISKS).map(|index| self.array.media[index].counters().requests).collect()
    }

    fn take_noted(&self) -> Vec<(usize, bool)> {
        std::mem::take(&mut self.noted.0.lock().expect("one thread"))
    }
}

fn fill(volume: &mut Volume<Powered>, blocks: std::ops::Range<u64>, from: u64) {
    blocks.for_each(|block| write(volume, block, from + block).expect("written"));
}

fn assert_filled(volume: &mut Volume<Powered>, blocks: std::ops::Range<u64>, from: u64) {
    blocks.for_each(|block| assert_eq!(value(volume, block), from + block, "block {block}"));
}

fn all(volume: &Volume<Powered>) -> std::ops::Range<u64> {
    0..volume.geometry().end() / BLOCK
}

fn maintain(volume: &Volume<Powered>) {
    let mut steps = 0;
    while volume.maintain(1).expect("maintained") {
        steps += 1;
        assert!(steps < 10_000, "moves and flushes do not end");
    }
}

fn sleep_whole(volume: &Volume<Powered>, pairs: &[u32]) {
    for &pair in pairs {
        volume.sleep_whole(pair).expect("may sleep");
        maintain(volume);
        assert!(volume.partial_pairs()[pair as usize].sleeps_whole, "pair {pair}");
    }
}

#[test]
fn two_of_three_pairs_stand_while_hot_data_is_read_and_written_on_the_third() {
    let (world, mut volume) = World::new();
    let blocks = all(&volume);
    fill(&mut volume, blocks.clone(), 100);
    sleep_whole(&volume, &[0, 1]);
    assert_eq!(world.take_noted(), vec![(1, false), (0, false), (3, false), (2, false)]);
    let before = world.requests();
    assert_filled(&mut volume, 0..COLD_FROM, 100);
    fill(&mut volume, 0..COLD_FROM, 500);
    assert_filled(&mut volume, 0..COLD_FROM, 500);
    let after = world.requests();
    assert_eq!(after[..4], before[..4], "four of six disks are left alone");
    assert!(after[4] > before[4] && after[5] > before[5], "both disks of the host take what is written");
    assert!(world.take_noted().is_empty());
    assert!(!volume.sleep(2), "a host stays awake");
    assert!(volume.sleep_whole(2).is_err());
    for pair in [0, 1] {
        volume.wake(pair);
    }
    maintain(&volume);
    assert_filled(&mut volume, 0..COLD_FROM, 500);
    assert_filled(&mut volume, COLD_FROM..blocks.end, 100);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    assert!(volume.pairs().iter().all(|(state, _)| *state == PairState::Awake));
    assert!(volume.sleep(2), "it keeps nothing any more");
}

#[test]
fn a_cold_request_starts_one_disk_and_the_status_says_so_before() {
    let (world, mut volume) = World::new();
    let end = volume.geometry().end();
    fill(&mut volume, 0..COLD_FROM + 12, 100);
    let status = |volume: &Volume<Powered>| {
        let of = volume.range_status(0..end);
        of.into_iter().map(|one| (one.bytes.start / BLOCK, one.class, one.needs_start)).collect::<Vec<_>>()
    };
    let ready = vec![(0, RangeClass::Hot, false), (COLD_FROM, RangeClass::Cold, false)];
    assert_eq!(status(&volume), ready);
    volume.sleep(0);
    assert_eq!(status(&volume), ready, "one disk of the pair turns");
    sleep_whole(&volume, &[0]);
    assert_eq!(status(&volume), vec![(0, RangeClass::Hot, false), (COLD_FROM, RangeClass::Cold, true)]);
    // Chunks go round the pairs: of this range only the chunk of pair 0 waits.
    let one = |block: u64| volume.range_status(block * BLOCK..(block + 2) * BLOCK)[0].needs_start;
    assert_eq!([one(24), one(26), one(28)], [true, false, false]);
    world.take_noted();
    let before = world.requests();
    write(&mut volume, COLD_FROM, 9000).expect("written");
    assert_eq!(value(&mut volume, COLD_FROM), 9000);
    assert_eq!(world.take_noted(), vec![(0, true)], "the first disk alone");
    assert_eq!(world.requests()[1], before[1]);
    assert_eq!(status(&volume), ready);
    // Its hot rows stay where they are, so it stops again without a copy.
    let copied = volume.partial_pairs()[0].rows_copied;
    sleep_whole(&volume, &[0]);
    assert_eq!(volume.partial_pairs()[0].rows_copied, copied);
    assert_eq!(volume.pairs()[0].1, [2, 1]);
}

#[test]
fn the_second_time_only_what_was_written_since_is_copied() {
    let (_world, mut volume) = World::new();
    fill(&mut volume, 0..COLD_FROM, 100);
    sleep_whole(&volume, &[0]);
    assert_eq!(volume.partial_pairs()[0].rows_copied, 4, "all four hot rows");
    write(&mut volume, 6, 7).expect("a hot row of pair 0");
    volume.wake(0);
    maintain(&volume);
    assert_eq!(volume.partial_pairs()[0].rows_copied, 5, "one row comes home");
    write(&mut volume, 0, 8).expect("written");
    write(&mut volume, 1, 9).expect("written");
    sleep_whole(&volume, &[0]);
    assert_eq!(volume.partial_pairs()[0].rows_copied, 6, "one row is copied anew");
    assert_eq!((value(&mut volume, 0), value(&mut volume, 1), value(&mut volume, 6)), (8, 9, 7));
}

#[test]
fn hot_data_that_finds_no_room_keeps_its_pair_from_sleeping_whole() {
    let (_world, volume) = World::new();
    let end = volume.geometry().end();
    // Ten hot rows a pair, room for eight.
    volume.declare(0..60 * BLOCK, RangeClass::Hot).expect("declared");
    let error = volume.sleep_whole(0).expect_err("refused");
    assert!(error.message().contains("room for the 10 hot rows of pair 0"), "{error}");
    assert_eq!(volume.pairs()[0].0, PairState::Asleep, "it sleeps as a pair");
    volume.declare(0..end, RangeClass::Cold).expect("declared");
    sleep_whole(&volume, &[0, 1, 2]);
    assert_eq!(volume.partial_pairs()[0].host, None, "nothing hot, no host");
    // All disks stand; a class that changes starts those that it concerns.
    volume.declare(2 * BLOCK..4 * BLOCK, RangeClass::Hot).expect("declared");
    let whole: Vec<bool> = volume.partial_pairs().iter().map(|pair| pair.sleeps_whole).collect();
    assert_eq!(whole, [true, false, true]);
    assert!(!volume.range_status(2 * BLOCK..4 * BLOCK)[0].needs_start);
}

#[test]
fn copies_that_are_not_needed_make_room() {
    let (_world, mut volume) = World::new();
    volume.declare(0..48 * BLOCK, RangeClass::Hot).expect("eight hot rows a pair");
    fill(&mut volume, 0..48, 100);
    for pair in [0, 1, 0] {
        sleep_whole(&volume, &[pair]);
        let host = volume.partial_pairs()[pair as usize].host.expect("away");
        assert_filled(&mut volume, 0..48, 100);
        volume.wake(pair);
        maintain(&volume);
        // The next pair finds room on the same host only if the copy there is given up.
        for other in (0..3).filter(|other| *other != host && *other != pair && *other != 1 - pair) {
            assert!(volume.sleep(other), "pair {other}");
            volume.wake(other);
            maintain(&volume);
        }
    }
    assert_filled(&mut volume, 0..48, 100);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
}

#[test]
fn declarations_are_rounded_so_that_hot_bytes_are_hot_and_outlive_an_opening() {
    let (world, volume) = World::new();
    let end = volume.geometry().end();
    volume.declare(0..end, RangeClass::Hot).expect("declared");
    volume.declare(3 * BLOCK..9 * BLOCK, RangeClass::Cold).expect("declared");
    volume.declare(5 * BLOCK..5 * BLOCK + 1, RangeClass::Hot).expect("declared");
    let cold = |volume: &Volume<Powered>| {
        let of = volume.range_status(0..u64::MAX);
        let cold = of.into_iter().filter(|range| range.class == RangeClass::Cold);
        cold.map(|range| (range.bytes.start / BLOCK, range.bytes.end / BLOCK)).collect::<Vec<_>>()
    };
    assert_eq!(cold(&volume), [(6, 8)]);
    drop(volume);
    let volume = world.open().expect("opens");
    assert_eq!(cold(&volume), [(6, 8)]);
    for wrong in [5..5, 0..end + 1, end..end + 5] {
        assert!(volume.declare(wrong.clone(), RangeClass::Cold).is_err(), "{wrong:?}");
    }
    let plain = VolumeSettings { spare_bytes: 0, overwrite: true, id: 6, ..settings() };
    let devices = (0..DISKS).map(|index| world.array.device(index)).collect();
    let volume = Volume::create(devices, &plain).expect("made");
    let error = volume.declare(0..BLOCK, RangeClass::Cold).expect_err("no room to spare");
    assert!(error.message().contains("--spare"), "{error}");
    assert!(volume.sleep_whole(0).is_err() && volume.partial_pairs().is_empty());
    for (level, spare_bytes) in [(Level::Raid1, BLOCK), (Level::Raid5, BLOCK), (Level::Raid10, 1 << 40)] {
        let wrong = VolumeSettings { level, spare_bytes, overwrite: true, ..settings() };
        let devices = (0..DISKS).map(|index| world.array.device(index)).collect();
        assert!(Volume::create(devices, &wrong).is_err(), "{level:?}");
    }
}

#[test]
fn a_volume_that_was_not_closed_brings_hot_rows_home_even_without_its_buffer() {
    let (world, mut volume) = World::new();
    let blocks = all(&volume);
    fill(&mut volume, blocks.clone(), 100);
    sleep_whole(&volume, &[0, 1]);
    fill(&mut volume, 0..COLD_FROM, 500);
    drop(volume);
    let devices = (0..DISKS).map(|index| Some(world.array.device(index))).collect();
    let degraded = OpenSettings { degraded: true, ..OpenSettings::default() };
    let mut volume = Volume::open(devices, &degraded).expect("opens").0;
    assert_filled(&mut volume, 0..COLD_FROM, 500);
    assert_filled(&mut volume, COLD_FROM..blocks.end, 100);
    maintain(&volume);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    volume.close().expect("closed");
    let mut volume = world.open().expect("opens");
    assert_filled(&mut volume, 0..COLD_FROM, 500);
}

#[test]
fn any_one_disk_of_each_pair_may_be_lost_while_pairs_sleep_whole() {
    for (lost, seed) in [(0, 1), (1, 2), (2, 3), (4, 4), (5, 5)] {
        let (world, mut volume) = World::new();
        let blocks = all(&volume);
        fill(&mut volume, blocks.clone(), 100 * seed);
        sleep_whole(&volume, &[0, 1]);
        fill(&mut volume, 0..COLD_FROM, 5000);
        for target in [FaultTarget::Write, FaultTarget::Read] {
            world.array.media[lost].inject(Fault::new(target, FaultEffect::Fail));
        }
        fill(&mut volume, blocks.clone(), 9000);
        maintain(&volume);
        assert_filled(&mut volume, blocks.clone(), 9000);
        for pair in 0..3 {
            volume.wake(pair);
        }
        maintain(&volume);
        assert_filled(&mut volume, blocks.clone(), 9000);
        world.array.media[lost].clear_faults();
        if volume.status().is_degraded {
            volume.replace(lost, world.array.device(lost)).expect("a new one");
        }
        maintain(&volume);
        sleep_whole(&volume, &[0, 1]);
        fill(&mut volume, 0..COLD_FROM, 7000);
        drop(volume);
        let mut volume = world.open().expect("opens");
        assert_filled(&mut volume, 0..COLD_FROM, 7000);
        assert_filled(&mut volume, COLD_FROM..blocks.end, 9000);
        assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![], "disk {lost}");
    }
}

#[test]
fn whatever_pairs_do_reads_give_the_newest_write() {
    for seed in 0..30 {
        let mut random = SeededRandom::new(seed);
        let (_world, mut volume) = World::new();
        let blocks = all(&volume).end;
        let mut model: Vec<u64> = vec![0; blocks as usize];
        let mut next = 0;
        for _ in 0..300 {
            let pair = random.below(3) as u32;
            match random.below(12) {
                0 => _ = volume.sleep_whole(pair),
                1 => volume.wake(pair),
                2 => _ = volume.sleep(pair),
                3 => {
                    let (first, len) = (random.below(40), 1 + random.below(20));
                    let class = if random.below(2) == 0 { RangeClass::Hot } else { RangeClass::Cold };
                    volume.declare(first * BLOCK..(first + len) * BLOCK, class).expect("declared");
                }
                4..=6 => _ = volume.maintain(1 + random.below(3)).expect("maintained"),
                _ => {
                    next += 1;
                    let block = random.below(blocks);
                    write(&mut volume, block, next).expect("written");
                    model[block as usize] = next;
                }
            }
            let block = random.below(blocks);
            assert_eq!(value(&mut volume, block), model[block as usize], "seed {seed}, block {block}");
        }
        for (block, expected) in model.iter().enumerate() {
            assert_eq!(value(&mut volume, block as u64), *expected, "seed {seed}, block {block}");
        }
        (0..3).for_each(|pair| volume.wake(pair));
        maintain(&volume);
        assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![], "seed {seed}");
    }
}

#[test]
fn by_the_policy_idle_pairs_sleep_whole_and_a_busy_host_sends_their_data_home() {
    let (_world, mut volume) = World::new();
    volume.set_whole_policy(Some(WholePolicy { cold_epochs: 5, host_utilisation: 0.2 })).expect("set");
    let mut now_ms = 0;
    let mut epochs = |volume: &mut Volume<Powered>, count: u64, writes: u64, first: u64| {
        for _ in 0..count {
            for n in 0..writes {
                write(volume, first + n * 7 % COLD_FROM, n).expect("written");
            }
            now_ms += 1000;
            volume.tick(now_ms);
            while volume.maintain(4).expect("maintained") {}
        }
    };
    let whole =
        |volume: &Volume<Powered>| volume.partial_pairs().iter().filter(|pair| pair.sleeps_whole).count();
    epochs(&mut volume, 34, 2, 0);
    assert_eq!(whole(&volume), 0, "pairs sleep first, then whole");
    epochs(&mut volume, 6, 2, 0);
    assert_eq!(whole(&volume), 2);
    let states = volume.pairs();
    assert_eq!(states.iter().filter(|(state, _)| *state == PairState::Awake).count(), 1);
    epochs(&mut volume, 1, 12, COLD_FROM);
    assert_eq!(whole(&volume), 0, "cold requests start them");
    epochs(&mut volume, 6, 2, 0);
    assert_eq!(whole(&volume), 2);
    // 120 hot writes a second at 5.5 ms on the host.
    epochs(&mut volume, 3, 120, 0);
    assert_eq!(whole(&volume), 0);
    assert!(volume.partial_pairs().iter().all(|pair| pair.host.is_none()), "their data is at home");
}

struct Whole(World, Option<Volume<Powered>>);

impl ConformanceMedium for Whole {
    type Device = Volume<Powered>;

    fn device(&mut self) -> Volume<Powered> {
        self.1.clone().expect("open")
    }

    fn reopen(&mut self) {
        self.1 = None;
        self.0.array.restart();
        self.0.buffer = FlashBuffer::open(self.0.array.device(DISKS)).expect("opens");
        let volume = self.0.open().expect("opens");
        sleep_whole(&volume, &[1]);
        self.1 = Some(volume);
    }
}

#[test]
fn a_volume_with_pairs_that_sleep_whole_is_a_block_device() {
    conformance::run(|_| {
        let (world, volume) = World::new();
        sleep_whole(&volume, &[0, 1]);
        Whole(world, Some(volume))
    });
}

#[test]
fn a_disk_that_stood_and_takes_no_record_when_its_pair_wakes_counts_at_the_next_opening() {
    let (world, mut volume) = World::new();
    let blocks = all(&volume);
    fill(&mut volume, blocks.clone(), 100);
    sleep_whole(&volume, &[1]);
    // The others go on through generations that the first disk of the pair is not told while it stands.
    for _ in 0..3 {
        assert!(volume.sleep(0));
        volume.wake(0);
        maintain(&volume);
    }
    volume.wake(1);
    world.array.media[2].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
    volume.fail(3).expect_err("its partner takes no record, and one of them is needed");
    drop(volume);
    world.array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
    let mut volume = world.open().expect("opens: both disks have what they had");
    maintain(&volume);
    assert_filled(&mut volume, blocks, 100);
}
