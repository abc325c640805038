//! Loss of power at every durable completion of disks and buffer while pairs sleep, wake, flush and sleep
//! again, with every legal outcome sampled; then loss of any one device. What was acknowledged is there:
//! so it was on two non-volatile places at every moment.

use crate::common::*;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_all_caught, explore};
use tierstone_media::sim::PowerCut;
use tierstone_media::{BlockDevice, Geometry};
use tierstone_volume::{
    BufferSettings, FlashBuffer, KeepTurning, Level, OpenSettings, SleepSettings, SleepSetup, Volume,
    VolumeSettings,
};

const STAGED: &str = "what a sleeping disk misses goes to the buffer";
const FORGOTTEN: &str = "the buffer forgets a pair before it is written directly";

fn settings(level: Level) -> VolumeSettings {
    VolumeSettings {
        chunk_bytes: BLOCK,
        meta_bytes: BLOCK,
        region_bytes: 4 * BLOCK,
        is_zeroed: true,
        ..VolumeSettings::new(level, 0xabcd, BLOCK)
    }
}

/// Which device is gone after the first crash.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    /// None.
    Nothing,
    /// Any of the disks or the buffer.
    Any,
}

struct Scenario<'a> {
    disks: usize,
    loss: Loss,
    mutations: &'a Mutations,
    choices: &'a Choices,
    blocks: Blocks,
    values: u64,
    lost: Option<usize>,
}

impl Scenario<'_> {
    fn open(&mut self, array: &Array) -> Result<Volume<Powered>, Violation> {
        let lost = self.lost;
        let devices =
            (0..self.disks).map(|index| (Some(index) != lost).then(|| array.device(index))).collect();
        let open = OpenSettings {
            degraded: lost.is_some(),
            mutations: self.mutations.clone(),
            ..OpenSettings::default()
        };
        if lost == Some(self.disks) {
            return Ok(Volume::open(devices, &open)?.0);
        }
        let buffer = FlashBuffer::open(array.device(self.disks))?;
        buffer.check().map_err(Violation::new)?;
        let settings = SleepSettings { write_backs: 1, ..SleepSettings::published() };
        let sleep = SleepSetup { buffer, settings, spindle: Box::new(KeepTurning) };
        Ok(Volume::open_sleeping(devices, &open, sleep)?.0)
    }

    fn work(&mut self, volume: &mut Volume<Powered>, rounds: u64) -> Result<(), Violation> {
        let places: Vec<u64> = (0..volume.geometry().end() / BLOCK).take(3).collect();
        work(volume, self.choices, &mut self.blocks, &places, rounds, &mut self.values)
    }

    fn life(&mut self, array: &Array, number: u32) -> Result<(), Violation> {
        if number == 0 {
            let cut = array.media[0].settings().power_cut;
            array.media.iter().for_each(|medium| medium.set_power_cut(PowerCut::Never));
            let disks = (0..self.disks).map(|index| array.device(index)).collect();
            let level = if self.disks == 2 { Level::Raid1 } else { Level::Raid10 };
            Volume::create(disks, &settings(level))?;
            let buffer = BufferSettings {
                id: 9,
                volumes: 1,
                pairs_a_volume: 2,
                extent_bytes: 3 * BLOCK,
                unit_blocks: 3,
            };
            FlashBuffer::create(array.device(self.disks), &buffer)?;
            array.media.iter().for_each(|medium| medium.set_power_cut(cut));
        } else if self.loss == Loss::Any && self.lost.is_none() {
            self.lost = Some(self.choices.choose(self.disks as u64 + 1, "lost device") as usize);
        }
        let mut volume = self.open(array)?;
        check(&mut volume, &mut self.blocks)?;
        if number > 0 {
            let differing = volume.compare(0..u64::MAX)?;
            Violation::unless(differing.is_empty(), || format!("disks differ in rows {differing:?}"))?;
        }
        for _ in 0..2 {
            for pair in 0..self.disks as u32 / 2 {
                volume.sleep(pair);
            }
            self.work(&mut volume, 2)?;
            for pair in 0..self.disks as u32 / 2 {
                volume.wake(pair);
            }
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

fn explored(disks: usize, loss: Loss, how: ExploreSettings, mutations: &Mutations) -> Report {
    explore(how, |choices| {
        let disk = Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 12 };
        let flash = Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 24 };
        let mut settings = vec![exploring(disk, 40); disks];
        settings.push(exploring(flash, 40));
        let array = Array::new(&settings, choices, 2);
        let (blocks, values) = (Blocks::default(), 0);
        let mut scenario = Scenario { disks, loss, mutations, choices, blocks, values, lost: None };
        array.run_lives(|array, life| scenario.life(array, life))
    })
}

#[test]
fn a_crash_at_any_step_leaves_everything_acknowledged_and_disks_that_agree() {
    assert_all_caught(&[FORGOTTEN], |mutations| {
        explored(2, Loss::Nothing, ExploreSettings::sampled(11, 700, mutations), mutations)
    });
    explored(4, Loss::Nothing, ExploreSettings::sampled(12, 200, &Mutations::none()), &Mutations::none())
        .assert_clean();
}

#[test]
fn a_crash_at_any_step_and_the_loss_of_any_device_leave_everything_acknowledged() {
    assert_all_caught(&[STAGED], |mutations| {
        explored(2, Loss::Any, ExploreSettings::sampled(13, 900, mutations), mutations)
    });
    explored(4, Loss::Any, ExploreSettings::sampled(14, 200, &Mutations::none()), &Mutations::none())
        .assert_clean();
}

#[test]
fn every_crash_with_few_other_surprises_is_survived() {
    let bounded = ExploreSettings::bounded(2).with_max_runs(2500);
    explored(2, Loss::Any, bounded, &Mutations::none()).assert_clean();
}
