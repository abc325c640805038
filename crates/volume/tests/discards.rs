//! Discards (TRIM): what they leave, that parity and mirrors stay right through crashes in the middle of them, and that
//! sleeping pairs get them later.

use crate::common::*;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_all_caught, explore};
use tierstone_media::sim::{PowerCut, StaleRange};
use tierstone_media::{BlockDevice, Geometry, IoKind, IoRequest, SimSettings};
use tierstone_volume::{
    BufferSettings, FlashBuffer, KeepTurning, Level, OpenSettings, SleepSettings, SleepSetup, Volume,
    VolumeSettings,
};

const JOURNALLED: &str = "discarded rows are journalled before they are zeros";
const MARKED: &str = "regions are marked before they are written";
const PAIRS_MARKED: &str = "regions are marked before discards of pairs";
const FORGOTTEN: &str = "what is written is not discarded later";

fn settings(level: Level) -> VolumeSettings {
    VolumeSettings {
        chunk_bytes: BLOCK,
        meta_bytes: BLOCK,
        region_bytes: 4 * BLOCK,
        journal_slots: 4,
        is_zeroed: true,
        ..VolumeSettings::new(level, 0xabcd, BLOCK)
    }
}

fn geometry() -> Geometry {
    Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 28 }
}

fn discard(device: &mut impl BlockDevice, first: u64, count: u64) -> Result<(), Violation> {
    let kind = IoKind::Discard { len: count * BLOCK };
    let request = IoRequest { token: 1, kind, offset: first * BLOCK, buffer: None };
    Ok(perform(device, vec![request]).into_values().next().ok_or("no completion")?.result?)
}

fn buffer_settings() -> BufferSettings {
    BufferSettings { id: 9, volumes: 1, pairs_a_volume: 2, extent_bytes: 3 * BLOCK, unit_blocks: 3 }
}

fn sleep_of(buffer: FlashBuffer<Powered>) -> SleepSetup<Powered> {
    let settings = SleepSettings { write_backs: 1, ..SleepSettings::published() };
    SleepSetup { buffer, settings, spindle: Box::new(KeepTurning) }
}

struct Scenario<'a> {
    level: Level,
    members: usize,
    sleeps: bool,
    loses: bool,
    mutations: &'a Mutations,
    choices: &'a Choices,
    blocks: Blocks,
    values: u64,
    lost: Option<usize>,
}

impl Scenario<'_> {
    fn life(&mut self, array: &Array, life: u32) -> Result<(), Violation> {
        let members = self.members;
        if life == 0 {
            let cut = array.media[0].settings().power_cut;
            array.media.iter().for_each(|medium| medium.set_power_cut(PowerCut::Never));
            Volume::create(array.devices().into_iter().take(members).collect(), &settings(self.level))?;
            if self.sleeps {
                FlashBuffer::create(array.device(members), &buffer_settings())?;
            }
            array.media.iter().for_each(|medium| medium.set_power_cut(cut));
        } else if self.loses && self.lost.is_none() {
            self.lost = Some(self.choices.choose(members as u64, "lost member") as usize);
        }
        let devices = (0..members).map(|at| (Some(at) != self.lost).then(|| array.device(at))).collect();
        let mutations = self.mutations.clone();
        let open = OpenSettings { degraded: self.loses, mutations, ..OpenSettings::default() };
        let mut volume = match self.sleeps {
            true => {
                let sleep = sleep_of(FlashBuffer::open(array.device(members))?);
                Volume::open_sleeping(devices, &open, sleep)?.0
            }
            false => Volume::open(devices, &open)?.0,
        };
        check(&mut volume, &mut self.blocks)?;
        let differing = volume.compare(0..u64::MAX)?;
        Violation::unless(differing.is_empty(), || format!("members differ in rows {differing:?}"))?;
        self.work(&mut volume)?;
        if self.sleeps {
            (0..members as u32 / 2).for_each(|pair| _ = volume.sleep(pair));
            self.work(&mut volume)?;
            (0..members as u32 / 2).for_each(|pair| volume.wake(pair));
            while volume.maintain(4)? {
                self.work(&mut volume)?;
            }
        }
        check(&mut volume, &mut self.blocks)
    }

    fn work(&mut self, volume: &mut Volume<Powered>) -> Result<(), Violation> {
        let places: Vec<u64> = (1..9).collect();
        work(volume, self.choices, &mut self.blocks, &places, 2, &mut self.values)?;
        let first = 1 + self.choices.choose(4, "first block discarded");
        let count = 3 + self.choices.choose(5, "blocks discarded");
        // Zeros or what was there, from now on.
        (first..first + count).for_each(|block| self.blocks.submit(block, 0));
        discard(volume, first, count)?;
        // Like a plain write, it is durable after a flush only; what is read before that may come back.
        perform(volume, vec![IoRequest::flush(2)]).into_values().try_for_each(|done| done.result)?;
        work(volume, self.choices, &mut self.blocks, &places, 1, &mut self.values)
    }
}

fn explored(
    (level, members): (Level, usize),
    sleeps: bool,
    loses: bool,
    runs: u64,
    mutations: &Mutations,
) -> Report {
    explore(ExploreSettings::sampled(31, runs, mutations), |choices| {
        let one = SimSettings { stale_range: StaleRange::Zeros, ..exploring(geometry(), 24) };
        let array = Array::new(&vec![one; members + usize::from(sleeps)], choices, 2);
        let (blocks, values) = (Blocks::default(), 0);
        let mut scenario =
            Scenario { level, members, sleeps, loses, mutations, choices, blocks, values, lost: None };
        array.run_lives(|array, life| scenario.life(array, life))
    })
}

#[test]
fn parity_fits_after_a_crash_in_the_middle_of_a_discard_and_a_member_may_be_lost() {
    let raid_5 = (Level::Raid5, 3);
    assert_all_caught(&[JOURNALLED], |mutations| explored(raid_5, false, false, 700, mutations));
    assert_all_caught(&[JOURNALLED], |mutations| explored(raid_5, false, true, 700, mutations));
    let raid_50 = (Level::Raid50 { groups: 2 }, 6);
    explored(raid_50, false, true, 250, &Mutations::none()).assert_clean();
}

#[test]
fn mirrors_agree_after_a_crash_in_the_middle_of_a_discard() {
    assert_all_caught(&[MARKED], |mutations| explored((Level::Raid1, 2), false, false, 500, mutations));
    explored((Level::Raid10, 4), false, true, 250, &Mutations::none()).assert_clean();
    explored((Level::Raid0, 2), false, false, 150, &Mutations::none()).assert_clean();
}

#[test]
fn pairs_that_sleep_agree_after_a_crash_in_the_middle_of_a_discard() {
    assert_all_caught(&[PAIRS_MARKED], |mutations| explored((Level::Raid1, 2), true, false, 900, mutations));
    explored((Level::Raid10, 4), true, true, 150, &Mutations::none()).assert_clean();
}

/// Members, and a flash, that never lose power; `stale` says what discards leave.
fn calm(members: usize, stale: StaleRange) -> Array {
    let one = SimSettings { stale_range: stale, ..SimSettings::new(geometry()) };
    Array::new(&vec![one; members], &Choices::quiet(), 0)
}

fn made(level: Level, array: &Array, members: usize) -> Volume<Powered> {
    let devices = array.devices().into_iter().take(members).collect();
    let mut volume = Volume::create(devices, &settings(level)).expect("made");
    for block in 1..17 {
        write(&mut volume, block, 100 + block).expect("written");
    }
    volume
}

fn values(volume: &mut Volume<Powered>) -> Vec<u64> {
    (1..17).map(|block| value(volume, block)).collect()
}

#[test]
fn a_discard_reaches_every_member_whole_rows_of_parity_only() {
    let kept = |gone: std::ops::Range<u64>| -> Vec<u64> {
        (1..17).map(|block| if gone.contains(&block) { 0 } else { 100 + block }).collect()
    };
    for (level, members, gone) in [
        (Level::Raid0, 2, 3..10),
        (Level::Raid1, 2, 3..10),
        (Level::Raid10, 4, 3..10),
        // Rows of two blocks from 0: of 3 to 9, the blocks 3 and 9 share theirs with others.
        (Level::Raid5, 3, 4..10),
        (Level::Raid5, 4, 3..9),
    ] {
        let array = calm(members, StaleRange::Zeros);
        let mut volume = made(level, &array, members);
        discard(&mut volume, 3, 7).expect("discarded");
        assert_eq!(values(&mut volume), kept(gone), "{level:?} of {members}");
        assert!(volume.compare(0..u64::MAX).expect("compares").is_empty());
        if level != Level::Raid0 {
            let before = values(&mut volume);
            volume.fail(1).expect("it can be spared");
            assert_eq!(values(&mut volume), before, "without a member");
        }
    }
}

#[test]
fn a_discard_changes_nothing_where_a_member_may_keep_what_it_had() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let array = calm(members, StaleRange::Zeros);
        let keeps = SimSettings { stale_range: StaleRange::Keeps, ..SimSettings::new(geometry()) };
        let other = Array::new(&[keeps], &Choices::quiet(), 0);
        let mut devices: Vec<Powered> = array.devices();
        devices[0] = other.device(0);
        let mut volume = Volume::create(devices, &settings(level)).expect("made");
        for block in 1..9 {
            write(&mut volume, block, block).expect("written");
        }
        discard(&mut volume, 1, 8).expect("nothing is wrong");
        assert_eq!(
            (1..9).map(|block| value(&mut volume, block)).collect::<Vec<_>>(),
            (1..9).collect::<Vec<_>>()
        );
        assert!(volume.compare(0..u64::MAX).expect("compares").is_empty());
    }
}

#[test]
fn a_pair_that_sleeps_discards_when_it_wakes_what_was_not_written_since() {
    for mutations in [Mutations::none(), Mutations::one(FORGOTTEN)] {
        let array = calm(3, StaleRange::Zeros);
        made(Level::Raid1, &array, 2).close().expect("closes");
        let buffer = FlashBuffer::create(array.device(2), &buffer_settings()).expect("made");
        let devices = vec![Some(array.device(0)), Some(array.device(1))];
        let open = OpenSettings { mutations: mutations.clone(), ..OpenSettings::default() };
        let mut volume = Volume::open_sleeping(devices, &open, sleep_of(buffer)).expect("opens").0;
        assert!(volume.sleep(0));
        discard(&mut volume, 3, 7).expect("discarded");
        write(&mut volume, 5, 77).expect("written");
        assert_eq!((value(&mut volume, 4), value(&mut volume, 5)), (104, 77), "nothing yet");
        volume.wake(0);
        while volume.maintain(8).expect("flushes") {}
        let found = values(&mut volume);
        let mut expected: Vec<u64> =
            (1..17).map(|block| if (3..10).contains(&block) { 0 } else { 100 + block }).collect();
        expected[4] = 77;
        assert_eq!(found == expected, !mutations.is_on(FORGOTTEN), "{found:?}");
        assert!(volume.compare(0..u64::MAX).expect("compares").is_empty());
    }
}
