//! Loss of power at every durable completion of disks and buffer while a pair falls asleep whole, is
//! written to, started by cold requests, comes home, and while ranges change their class; then loss of any one
//! device. What was acknowledged is there, so it was on two non-volatile places at every moment; and what
//! was declared is still declared.

use crate::common::*;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_all_caught, explore};
use tierstone_media::sim::PowerCut;
use tierstone_media::{BlockDevice, Geometry};
use tierstone_volume::{
    BufferSettings, FlashBuffer, KeepTurning, Level, OpenSettings, RangeClass, SleepSettings, SleepSetup,
    Volume, VolumeSettings,
};

const COPIED: &str = "hot rows are copied before the map says that they are away";
const PUBLISHED: &str = "the map is durable before rows are written at their host";
const HOME: &str = "rows come home before the map says so";
const ANEW: &str = "rows written at home are copied anew";
const BACK: &str = "rows written at their host come home";
const OPENING: &str = "an opening brings rows home";

const DISKS: usize = 4;
/// From here on the volume is cold at first.
const COLD: u64 = 6;

fn settings() -> VolumeSettings {
    VolumeSettings {
        chunk_bytes: BLOCK,
        meta_bytes: BLOCK,
        region_bytes: 4 * BLOCK,
        is_zeroed: true,
        spare_bytes: 3 * BLOCK,
        ..VolumeSettings::new(Level::Raid10, 0xabcd, BLOCK)
    }
}

struct Scenario<'a> {
    loses_one: bool,
    mutations: &'a Mutations,
    choices: &'a Choices,
    blocks: Blocks,
    values: u64,
    lost: Option<usize>,
    /// Where the cold range may begin, by what was acknowledged.
    cold_from: Vec<u64>,
}

impl Scenario<'_> {
    fn open(&mut self, array: &Array) -> Result<Volume<Powered>, Violation> {
        let lost = self.lost;
        let devices = (0..DISKS).map(|index| (Some(index) != lost).then(|| array.device(index))).collect();
        let open = OpenSettings {
            degraded: lost.is_some(),
            mutations: self.mutations.clone(),
            ..OpenSettings::default()
        };
        if lost == Some(DISKS) {
            return Ok(Volume::open(devices, &open)?.0);
        }
        let buffer = FlashBuffer::open(array.device(DISKS))?;
        buffer.check().map_err(Violation::new)?;
        let settings = SleepSettings { write_backs: 1, ..SleepSettings::published() };
        let sleep = SleepSetup { buffer, settings, spindle: Box::new(KeepTurning) };
        Ok(Volume::open_sleeping(devices, &open, sleep)?.0)
    }

    fn work(&mut self, volume: &mut Volume<Powered>, rounds: u64) -> Result<(), Violation> {
        // Hot and cold of the pair that sleeps, hot of the other.
        let places = [0, 2, 4, 1, 8];
        work(volume, self.choices, &mut self.blocks, &places, rounds, &mut self.values)?;
        check(volume, &mut self.blocks)
    }

    fn maintain(&mut self, volume: &mut Volume<Powered>) -> Result<(), Violation> {
        while volume.maintain(1)? {
            if self.choices.choose(2, "write while rows move") == 1 {
                self.work(volume, 1)?;
            }
        }
        Ok(())
    }

    fn declare(&mut self, volume: &Volume<Powered>, cold_from: u64) -> Result<(), Violation> {
        self.cold_from.push(cold_from);
        let end = volume.geometry().end();
        volume.declare(0..cold_from * BLOCK, RangeClass::Hot)?;
        volume.declare(cold_from * BLOCK..end, RangeClass::Cold)?;
        self.cold_from = vec![cold_from];
        Ok(())
    }

    fn create(&mut self, array: &Array) -> Result<(), Violation> {
        let cut = array.media[0].settings().power_cut;
        array.media.iter().for_each(|medium| medium.set_power_cut(PowerCut::Never));
        let disks = (0..DISKS).map(|index| array.device(index)).collect();
        let volume = Volume::create(disks, &settings())?;
        self.declare(&volume, COLD)?;
        volume.close()?;
        let buffer =
            BufferSettings { id: 9, volumes: 1, pairs_a_volume: 2, extent_bytes: 3 * BLOCK, unit_blocks: 3 };
        FlashBuffer::create(array.device(DISKS), &buffer)?;
        array.media.iter().for_each(|medium| medium.set_power_cut(cut));
        Ok(())
    }

    fn check_opened(&mut self, volume: &mut Volume<Powered>) -> Result<(), Violation> {
        check(volume, &mut self.blocks)?;
        let differing = volume.compare(0..u64::MAX)?;
        Violation::unless(differing.is_empty(), || format!("disks differ in rows {differing:?}"))?;
        let cold = volume.range_status(0..u64::MAX).into_iter().find(|range| range.class == RangeClass::Cold);
        let from = cold.map_or(u64::MAX, |range| range.bytes.start / BLOCK);
        Violation::unless(self.cold_from.contains(&from), || {
            format!("cold from block {from}, declared {:?}", self.cold_from)
        })
    }

    fn life(&mut self, array: &Array, number: u32) -> Result<(), Violation> {
        if number == 0 {
            self.create(array)?;
        } else if self.loses_one && self.lost.is_none() {
            self.lost = Some(self.choices.choose(DISKS as u64 + 1, "lost device") as usize);
        }
        let mut volume = self.open(array)?;
        self.check_opened(&mut volume)?;
        if self.lost.is_some() {
            // Pairs that have lost a disk do not sleep; they serve.
            self.work(&mut volume, 2)?;
            return Ok(());
        }
        for round in 0..2 {
            volume.sleep_whole(0)?;
            self.maintain(&mut volume)?;
            self.work(&mut volume, 2)?;
            if round == 0 && self.choices.choose(2, "a class changes meanwhile") == 1 {
                let other = if self.cold_from == [COLD] { COLD - 2 } else { COLD };
                self.declare(&volume, other)?;
                self.work(&mut volume, 1)?;
            }
            volume.wake(0);
            self.work(&mut volume, 1)?;
            self.maintain(&mut volume)?;
            self.work(&mut volume, 1)?;
        }
        let differing = volume.compare(0..u64::MAX)?;
        Violation::unless(differing.is_empty(), || format!("disks differ in rows {differing:?}"))?;
        check(&mut volume, &mut self.blocks)
    }
}

fn explored(loses_one: bool, how: ExploreSettings, mutations: &Mutations) -> Report {
    explore(how, |choices| {
        let disk = Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 12 };
        let flash = Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 24 };
        let mut settings = vec![exploring(disk, 60); DISKS];
        settings.push(exploring(flash, 60));
        let array = Array::new(&settings, choices, 2);
        let (blocks, values) = (Blocks::default(), 0);
        let cold_from = Vec::new();
        let mut scenario = Scenario { loses_one, mutations, choices, blocks, values, lost: None, cold_from };
        array.run_lives(|array, life| scenario.life(array, life))
    })
}

/// Among the steps is `rows_moved`: both places have all rows, and the map does not say yet which count.
#[test]
fn a_crash_at_any_step_of_whole_sleep_leaves_everything_acknowledged() {
    assert_all_caught(&[COPIED, PUBLISHED, HOME, ANEW, BACK, OPENING], |mutations| {
        explored(false, ExploreSettings::sampled(21, 300, mutations), mutations)
    });
}

#[test]
fn a_crash_at_any_step_and_the_loss_of_any_device_leave_everything_acknowledged() {
    assert_all_caught(&[PUBLISHED, OPENING], |mutations| {
        explored(true, ExploreSettings::sampled(22, 400, mutations), mutations)
    });
}

#[test]
fn every_crash_with_few_other_surprises_is_survived() {
    let bounded = ExploreSettings::bounded(2).with_max_runs(1500);
    explored(true, bounded, &Mutations::none()).assert_clean();
}
