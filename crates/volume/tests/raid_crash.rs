//! Loss of power at every durable completion of a volume's members, in every order, with every legal
//! outcome sampled; and loss of a member on top of it.

use crate::common::*;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_all_caught, explore};
use tierstone_media::BlockDevice;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, FaultWhen};
use tierstone_volume::{Level, OpenSettings, Volume, VolumeSettings};

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

/// What a scenario does besides writing.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    /// Nothing.
    None,
    /// A member fails while writes go on.
    MemberFails,
    /// A member is gone after the crash.
    MemberLost,
    /// A new member has some of its rows when the crash comes.
    Filling,
    /// A member is gone, and the others refuse a write now and then, which is tried again.
    Refusals,
    /// A member fails, another takes its place and is filled; after the crash the old one is there again.
    MemberBack,
}

fn scenario(
    level: Level,
    count: usize,
    trouble: Trouble,
    mutations: &Mutations,
    choices: &Choices,
) -> Result<(), Violation> {
    let geometry =
        tierstone_media::Geometry { meta_bytes: 8 * BLOCK, segment_bytes: BLOCK, segment_limit: 24 };
    // One more, for who takes a lost member's place.
    let array = Array::new(&vec![exploring(geometry, 24); count + 1], choices, 2);
    let mut blocks = Blocks::default();
    let mut values = 0;
    let mut lost = None;
    let mut exchanged: Option<usize> = None;
    array.run_lives(|array, life| {
        let members = || (0..count).map(|index| Some(array.device(index))).collect::<Vec<_>>();
        let mut devices: Vec<Option<Powered>> = members();
        if life == 0 {
            let calm = tierstone_media::sim::PowerCut::Never;
            let cut = array.media[0].settings().power_cut;
            array.media.iter().for_each(|medium| medium.set_power_cut(calm));
            Volume::create(devices.into_iter().flatten().collect(), &settings(level))?;
            array.media.iter().for_each(|medium| medium.set_power_cut(cut));
            devices = members();
        } else if trouble == Trouble::MemberLost && lost.is_none() {
            lost = Some(choices.choose(count as u64, "lost member") as usize);
        } else if trouble == Trouble::MemberBack
            && let Some(place) = exchanged
        {
            // What has its place by then is in another drawer.
            devices[place] = Some(array.device(place));
        }
        if let Some(lost) = lost {
            devices[lost] = None;
        }
        let degraded = trouble != Trouble::None;
        let open = OpenSettings { degraded, mutations: mutations.clone(), ..OpenSettings::default() };
        let mut volume = Volume::open(devices, &open)?.0;
        check(&mut volume, &mut blocks)?;
        if life > 0 {
            let differing = volume.compare(0..u64::MAX)?;
            Violation::unless(differing.is_empty(), || format!("members differ in rows {differing:?}"))?;
        }
        let places: Vec<u64> = (0..volume.geometry().end() / BLOCK).take(4).collect();
        work(&mut volume, choices, &mut blocks, &places, 2, &mut values)?;
        if matches!(trouble, Trouble::Filling | Trouble::MemberBack) && life == 0 {
            let place = choices.choose(count as u64, "exchanged member") as usize;
            exchange(array, &volume, place, trouble)?;
            exchanged = (trouble == Trouble::MemberBack).then_some(place);
        }
        if trouble == Trouble::MemberFails && life == 0 {
            let failing = choices.choose(count as u64, "failing member") as usize;
            array.media[failing].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
        }
        if trouble == Trouble::Refusals {
            refused_work(array, &mut volume, choices, (&mut blocks, &mut values))?;
        }
        work(&mut volume, choices, &mut blocks, &places, 2, &mut values)?;
        array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
        check(&mut volume, &mut blocks)
    })
}

/// Writes as a store does on members that have no room for a moment: the same bytes again until they are taken.
fn refused_work(
    array: &Array,
    volume: &mut Volume<Powered>,
    choices: &Choices,
    (blocks, values): (&mut Blocks, &mut u64),
) -> Result<(), Violation> {
    let members = array.media.len() - 1;
    if !volume.status().is_degraded {
        volume.fail(choices.choose(members as u64, "missing member") as usize)?;
    }
    for medium in &array.media {
        let when = FaultWhen::Chosen { one_in: 4, limit: 3 };
        medium.inject(Fault::new(FaultTarget::Write, FaultEffect::Fail).when(when));
    }
    for _ in 0..3 {
        let at = choices.choose(4, "block written");
        *values += 1;
        blocks.submit(at, *values);
        // No member refuses more than three.
        for tries in 0.. {
            match write(volume, at, *values) {
                Ok(()) => break,
                Err(refusal) if array.power_is_off() || tries > 20 => {
                    array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
                    return Err(refusal);
                }
                Err(_) => {}
            }
        }
        blocks.acknowledge(at, *values);
        check(volume, blocks)?;
    }
    array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
    Ok(())
}

/// Puts the medium behind the last member in the place of another and fills it, or some of it.
fn exchange(
    array: &Array,
    volume: &Volume<Powered>,
    place: usize,
    trouble: Trouble,
) -> Result<(), Violation> {
    let spare = array.media.len() - 1;
    volume.fail(place)?;
    if trouble == Trouble::Filling {
        // The same disk again.
        volume.release(place)?;
        volume.replace(place, array.device(place))?;
        volume.maintain(3)?;
        // The superblocks that name this failure tell how far the filling is.
        volume.fail((place + 1) % spare)?;
    } else {
        volume.replace(place, array.device(spare))?;
        while volume.maintain(8)? {}
    }
    Ok(())
}

fn explored(level: Level, count: usize, trouble: Trouble, runs: u64, mutations: &Mutations) -> Report {
    explore(ExploreSettings::sampled(2026, runs, mutations), |choices| {
        scenario(level, count, trouble, mutations, choices)
    })
}

const MARKED: &str = "regions are marked before they are written";
const JOURNALLED: &str = "rows are journalled before they are written";
const ALIKE: &str = "rows that are filled are made alike";
const MENDED: &str = "torn rows are mended before anything relies on them";
const RECORDED: &str = "failure is recorded before the acknowledgement";

#[test]
fn mirrors_agree_after_a_crash_anywhere() {
    assert_all_caught(&[MARKED], |mutations| explored(Level::Raid1, 2, Trouble::None, 800, mutations));
    explored(Level::Raid10, 4, Trouble::None, 500, &Mutations::none()).assert_clean();
}

#[test]
fn a_member_that_failed_before_a_crash_does_not_come_back_with_old_bytes() {
    assert_all_caught(&[RECORDED], |mutations| {
        explored(Level::Raid1, 2, Trouble::MemberFails, 800, mutations)
    });
    explored(Level::Raid5, 3, Trouble::MemberFails, 500, &Mutations::none()).assert_clean();
    explored(Level::Raid10, 4, Trouble::MemberFails, 500, &Mutations::none()).assert_clean();
}

#[test]
fn the_write_hole_is_closed() {
    assert_all_caught(&[JOURNALLED], |mutations| {
        explored(Level::Raid5, 3, Trouble::MemberLost, 800, mutations)
    });
    assert_all_caught(&[JOURNALLED], |mutations| explored(Level::Raid5, 3, Trouble::None, 600, mutations));
    explored(Level::Raid50 { groups: 2 }, 6, Trouble::MemberLost, 300, &Mutations::none()).assert_clean();
}

#[test]
fn writes_that_are_refused_in_place_cost_nothing_of_a_member_that_is_gone() {
    assert_all_caught(&[MENDED], |mutations| explored(Level::Raid5, 3, Trouble::Refusals, 800, mutations));
    explored(Level::Raid5, 4, Trouble::Refusals, 300, &Mutations::none()).assert_clean();
}

#[test]
fn a_mirror_lost_after_a_crash_takes_nothing_acknowledged_with_it() {
    explored(Level::Raid1, 3, Trouble::MemberLost, 800, &Mutations::none()).assert_clean();
    explored(Level::Raid10, 4, Trouble::MemberLost, 500, &Mutations::none()).assert_clean();
}

#[test]
fn rows_that_a_new_mirror_has_already_are_alike_after_a_crash() {
    assert_all_caught(&[ALIKE], |mutations| explored(Level::Raid1, 3, Trouble::Filling, 800, mutations));
}

#[test]
fn a_member_that_comes_back_when_another_has_its_place_does_not_count() {
    explored(Level::Raid1, 2, Trouble::MemberBack, 500, &Mutations::none()).assert_clean();
    explored(Level::Raid5, 3, Trouble::MemberBack, 300, &Mutations::none()).assert_clean();
}

#[test]
fn every_crash_with_few_other_surprises_is_survived() {
    for (level, count) in [(Level::Raid0, 2), (Level::Raid1, 2), (Level::Raid5, 3)] {
        let bounded = ExploreSettings::bounded(2).with_max_runs(2500);
        explore(bounded, |choices| scenario(level, count, Trouble::None, &Mutations::none(), choices))
            .assert_clean();
    }
}
