//! Members that were away, that cannot be told, or that cannot be read: what an opening believes and repairs.

use crate::common::*;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::{ExploreSettings, Violation, assert_all_caught, explore};
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, PowerCut};
use tierstone_media::{BlockDevice, IoBuffer, IoKind, IoRequest, SimSettings};
use tierstone_volume::inspect::{Holds, INSPECTED_BYTES, MemberFacts, inspect, judged};
use tierstone_volume::{Health, Level, OpenSettings, Recovery, Volume};

/// Where data begins on members of [`small`].
const DATA_START: u64 = 16 * BLOCK;

/// Opens the volume on some media of an array, in this order.
fn open(array: &Array, media: &[Option<usize>], degraded: bool) -> Result<(Volume<Powered>, Recovery)> {
    let devices = media.iter().map(|medium| medium.map(|medium| array.device(medium))).collect();
    Volume::open(devices, &OpenSettings { degraded, ..OpenSettings::default() })
}

fn refusal(array: &Array, media: &[Option<usize>]) -> Error {
    open(array, media, false).map(drop).expect_err("refused")
}

fn start_of(array: &Array, medium: usize) -> IoBuffer {
    let request = IoRequest::read(1, 0, IoBuffer::zeroed(INSPECTED_BYTES));
    let done = perform(&mut array.device(medium), vec![request]).remove(&1).expect("one");
    done.buffer.expect("read")
}

fn facts(array: &Array, medium: usize) -> MemberFacts {
    match inspect(&start_of(array, medium)) {
        Holds::Member(facts) => *facts,
        other => panic!("medium {medium} is no member: {other:?}"),
    }
}

#[test]
fn a_disk_put_back_in_its_old_place_is_stale_although_another_counts_there() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 4)] {
        for lost in 0..count {
            let array = Array::calm(count + 1, small(6));
            let devices = (0..count).map(|index| array.device(index)).collect();
            let mut volume = Volume::create(devices, &small_volume(level)).expect("made");
            fill(&mut volume, 1000);
            volume.fail(lost).expect("spared");
            volume.replace(lost, array.device(count)).expect("replaced");
            while volume.maintain(4).expect("filled") {}
            fill(&mut volume, 2000);
            drop(volume);
            let right: Vec<_> = (0..count).map(|at| Some(if at == lost { count } else { at })).collect();
            let stale: Vec<_> = (0..count).map(Some).collect();
            let error = refusal(&array, &stale);
            assert!(error.message().contains(&format!("member {lost} is of generation")), "{error}");
            let said: Vec<MemberFacts> = (0..count).map(|medium| facts(&array, medium)).collect();
            let said: Vec<_> = said.iter().map(Some).collect();
            assert_eq!(judged(&said).expect("members").members[lost], Health::Failed, "{level:?}");
            // The right disks are whole; without the one that was replaced the others have everything.
            let mut volume = open(&array, &right, false).expect("opens").0;
            assert_filled(&mut volume, 2000);
            drop(volume);
            let mut volume = open(&array, &stale, true).expect("opens").0;
            assert_eq!(volume.status().members[lost], Health::Failed, "{level:?}");
            assert_filled(&mut volume, 2000);
            drop(volume);
            // That is recorded: now the other in its place is the one that was away.
            assert!(refusal(&array, &right).message().contains("missed writes"));
        }
    }
}

#[test]
fn a_member_that_got_a_generation_alone_does_not_outweigh_who_was_used_without_it() {
    let array = Array::calm(3, small(6));
    let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid5)).expect("made");
    fill(&mut volume, 1000);
    volume.close().expect("closed");
    let heads = [0, 1].map(|medium| start_of(&array, medium));
    drop(open(&array, &[Some(0), Some(1), Some(2)], false).expect("opens"));
    // As if power had gone when only member 2 had the superblock of that opening.
    for (medium, head) in heads.iter().enumerate() {
        array.media[medium].overwrite(0, head);
    }
    let mut volume = open(&array, &[Some(0), Some(1), None], true).expect("opens").0;
    fill(&mut volume, 2000);
    drop(volume);
    let all = [Some(0), Some(1), Some(2)];
    assert!(refusal(&array, &all).message().contains("member 2 missed writes"));
    let mut volume = open(&array, &all, true).expect("opens").0;
    assert_eq!(volume.status().members[2], Health::Failed);
    assert_filled(&mut volume, 2000);
}

#[test]
fn crashes_of_openings_one_after_the_other_leave_nobody_stale() {
    let array = Array::calm(2, small(6));
    Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made").close().expect("closed");
    let all = [Some(0), Some(1)];
    let mut before = start_of(&array, 0);
    for _ in 0..4 {
        drop(open(&array, &all, false).expect("opens"));
        // Member 0 is always one behind.
        array.media[0].overwrite(0, &before);
        drop(open(&array, &all, false).expect("opens"));
        before = start_of(&array, 0);
    }
    assert!(!open(&array, &all, false).expect("opens").0.status().is_degraded);
}

#[test]
fn a_slot_that_rots_after_a_failure_was_recorded_revives_nobody() {
    let array = Array::calm(2, small(6));
    let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made");
    fill(&mut volume, 1000);
    volume.fail(1).expect("spared");
    fill(&mut volume, 2000);
    drop(volume);
    let newest = facts(&array, 0).generation;
    let start = start_of(&array, 0);
    let slot = start
        .chunks(BLOCK as usize)
        .position(|slot| matches!(inspect(slot), Holds::Member(facts) if facts.generation == newest));
    array.media[0].overwrite(slot.expect("one") as u64 * BLOCK, &[0x5a; 512]);
    assert!(facts(&array, 0).generation < newest);
    let mut volume = open(&array, &[Some(0), Some(1)], true).expect("opens").0;
    assert_eq!(volume.status().members, [Health::InSync, Health::Failed]);
    assert_filled(&mut volume, 2000);
}

#[test]
fn members_that_take_no_writes_for_a_moment_do_not_lose_the_volume() {
    let cases = [
        (Level::Raid0, 2, vec![1]),
        (Level::Raid1, 2, vec![0, 1]),
        (Level::Raid10, 4, vec![0, 1]),
        (Level::Raid5, 3, vec![1, 2]),
        (Level::Raid5, 4, vec![0, 1, 3]),
    ];
    for (level, count, out) in cases {
        let array = Array::calm(count, small(6));
        let mut volume = Volume::create(array.devices(), &small_volume(level)).expect("made");
        fill(&mut volume, 1000);
        for &index in &out {
            array.media[index].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
        }
        let blocks = volume.geometry().end() / BLOCK;
        let refused: Vec<u64> =
            (0..blocks).filter(|&block| write(&mut volume, block, 2000 + block).is_err()).collect();
        assert!(!refused.is_empty(), "{level:?}");
        drop(volume);
        array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
        let all: Vec<_> = (0..count).map(Some).collect();
        let mut volume = open(&array, &all, true).unwrap_or_else(|error| panic!("{level:?}: {error}")).0;
        for block in 0..blocks {
            let held = value(&mut volume, block);
            let may_be_old = refused.contains(&block);
            assert!(held == 2000 + block || may_be_old && held == 1000 + block, "{level:?}, {block}: {held}");
        }
    }
}

#[test]
fn a_place_that_one_mirror_cannot_read_comes_from_the_next_after_a_crash() {
    let array = Array::calm(2, small(6));
    let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made");
    fill(&mut volume, 1000);
    drop(volume);
    let unreadable = |block: u64| {
        let place = DATA_START + block * BLOCK;
        Fault::new(FaultTarget::Read, FaultEffect::Fail).within(place..place + BLOCK)
    };
    // Neither can read all of a piece, and each has what the other lacks.
    array.media[0].inject(unreadable(3));
    array.media[1].inject(unreadable(5));
    let (mut volume, recovery) = open(&array, &[Some(0), Some(1)], false).expect("opens");
    assert!(recovery.regions_copied > 0 && !volume.status().is_degraded);
    assert!(volume.status().read_errors.iter().all(|&errors| errors > 0), "they are counted");
    assert_filled(&mut volume, 1000);
    write(&mut volume, 0, 1000).expect("written");
    drop(volume);
    // Now both lack one: reads there fail, the region stays marked, everything else is served.
    array.media[1].inject(unreadable(3));
    let mut volume = open(&array, &[Some(0), Some(1)], false).expect("opens").0;
    assert!(read(&mut volume, 3).is_err());
    assert_eq!(value(&mut volume, 4), 1004);
    volume.close().expect("closed");
    array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
    let (mut volume, recovery) = open(&array, &[Some(0), Some(1)], false).expect("opens");
    assert_eq!(recovery.regions_copied, 1, "what could not be read is tried again");
    assert_filled(&mut volume, 1000);
}

#[test]
fn a_new_mirror_is_filled_from_whichever_can_read() {
    let array = Array::calm(4, small(6));
    let devices = (0..3).map(|index| array.device(index)).collect();
    let mut volume = Volume::create(devices, &small_volume(Level::Raid1)).expect("made");
    fill(&mut volume, 1000);
    volume.fail(2).expect("spared");
    volume.replace(2, array.device(3)).expect("replaced");
    let place = DATA_START + 3 * BLOCK;
    array.media[0].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).within(place..place + BLOCK));
    while volume.maintain(4).expect("filled") {}
    array.media[0].clear_faults();
    assert!(!volume.status().is_degraded && volume.status().read_errors[0] > 0);
    assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![]);
    assert_filled(&mut volume, 1000);
}

#[test]
fn a_member_whose_records_cannot_be_read_is_left_out_of_a_degraded_opening() {
    let array = Array::calm(2, small(6));
    let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made");
    fill(&mut volume, 1000);
    drop(volume);
    array.media[0].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).within(0..BLOCK));
    assert_eq!(refusal(&array, &[Some(0), Some(1)]).kind(), ErrorKind::DeviceFailed);
    let mut volume = open(&array, &[Some(0), Some(1)], true).expect("opens").0;
    assert_eq!(volume.status().members[0], Health::Failed);
    assert_filled(&mut volume, 1000);
}

#[test]
fn a_close_and_an_opening_whose_records_no_member_takes_say_so() {
    let array = Array::calm(2, small(6));
    let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made");
    fill(&mut volume, 1000);
    let fail = || {
        for medium in &array.media {
            medium.inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
        }
    };
    fail();
    assert_eq!(volume.close().expect_err("refused").kind(), ErrorKind::DeviceFailed);
    assert_eq!(refusal(&array, &[Some(0), Some(1)]).kind(), ErrorKind::DeviceFailed);
    array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
    let (mut volume, recovery) = open(&array, &[Some(0), Some(1)], false).expect("opens");
    assert!(!recovery.was_clean);
    assert_filled(&mut volume, 1000);
}

#[test]
fn marks_go_also_from_regions_whose_space_was_prepared() {
    let array = Array::calm(2, small(110));
    let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made");
    let geometry = volume.geometry();
    for segment in 0..100 {
        let offset = geometry.segment_offset(segment);
        let len = geometry.segment_bytes;
        let prepare = IoRequest { token: 1, kind: IoKind::Prepare { len }, offset, buffer: None };
        assert!(perform(&mut volume, vec![prepare])[&1].result.is_ok());
        write(&mut volume, offset / BLOCK, 7).expect("written");
    }
    drop(volume);
    let recovery = open(&array, &[Some(0), Some(1)], false).expect("opens").1;
    assert!(recovery.regions_copied <= 40, "{} of 100 regions are copied", recovery.regions_copied);
}

#[test]
fn superblocks_that_cannot_be_used_are_told_with_what_was_read() {
    let array = Array::calm(2, small(6));
    let both = [Some(0), Some(1)];
    assert!(refusal(&array, &both).message().contains("create one first"));
    Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made").close().expect("closed");
    let mut starts = [0, 1].map(|medium| start_of(&array, medium));
    for (medium, start) in starts.iter_mut().enumerate() {
        start.chunks_mut(BLOCK as usize).for_each(|slot| slot[40] ^= 4);
        array.media[medium].overwrite(0, start);
    }
    for degraded in [false, true] {
        let error = open(&array, &both, degraded).map(drop).expect_err("refused");
        let is_told =
            |index: u32| error.message().contains(&format!("device {index} holds a damaged superblock"));
        assert!(is_told(0) && is_told(1) && !error.message().contains("create one"), "{error}");
    }
    array.media.iter().for_each(|medium| medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail)));
    let error = open(&array, &both, true).map(drop).expect_err("refused");
    assert!(error.message().contains("device 1 cannot be read"), "{error}");
}

#[test]
fn mirrors_made_alike_after_the_death_of_a_process_stay_so_when_power_is_lost_then() {
    const FLUSHED: &str = "what mirrors were copied from is flushed";
    assert_all_caught(&[FLUSHED], |mutations| {
        explore(ExploreSettings::sampled(97, 300, mutations), |choices| {
            let calm = SimSettings { power_cut: PowerCut::Never, ..exploring(small(6), 24) };
            let array = Array::new(&[calm.clone(), calm], choices, 0);
            let open = || {
                let devices = array.devices().into_iter().map(Some).collect();
                let open = OpenSettings { mutations: mutations.clone(), ..OpenSettings::default() };
                Volume::open(devices, &open)
            };
            Volume::create(array.devices(), &small_volume(Level::Raid1))?.close()?;
            let mut volume = open()?.0;
            let plain = |block: u64| IoRequest::write(block, block * BLOCK, filled(100 + block));
            let done = perform(&mut volume, [1, 3, 17].map(plain).into());
            done.into_values().try_for_each(|done| done.result)?;
            drop(volume);
            let (volume, recovery) = open()?;
            Violation::unless(recovery.regions_copied > 0, || "the regions were marked".into())?;
            drop(volume);
            array.restart();
            let differing = open()?.0.compare(0..u64::MAX)?;
            Violation::unless(differing.is_empty(), || format!("mirrors differ in rows {differing:?}"))
        })
    });
}

#[test]
fn what_cannot_be_flushed_stays_marked_or_is_left_out() {
    for failing in [vec![0], vec![0, 1]] {
        let array = Array::calm(2, small(6));
        let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made");
        fill(&mut volume, 1000);
        drop(volume);
        for &medium in &failing {
            array.media[medium].inject(Fault::new(FaultTarget::Flush, FaultEffect::Fail));
        }
        let all = [Some(0), Some(1)];
        let volume = open(&array, &all, false).expect("one of them can be spared").0;
        let left_out = failing.len() - 1;
        assert_eq!(volume.status().members[left_out], Health::Failed);
        assert_eq!(volume.status().members[1 - left_out], Health::InSync);
        drop(volume);
        array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
        let (mut volume, recovery) = open(&array, &all, true).expect("opens");
        assert_eq!(recovery.regions_copied > 0, failing.len() == 2, "the other's marks stay");
        assert_filled(&mut volume, 1000);
    }
}

#[test]
fn a_smaller_disk_in_a_failed_place_does_not_keep_a_degraded_volume_from_opening() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let mut sizes = vec![SimSettings::new(small(6)); count];
        sizes.push(SimSettings::new(small(2)));
        let array = Array::new(&sizes, &tierstone_crash::Choices::quiet(), 0);
        let devices = (0..count).map(|index| array.device(index)).collect();
        let mut volume = Volume::create(devices, &small_volume(level)).expect("made");
        fill(&mut volume, 1000);
        volume.fail(1).expect("spared");
        drop(volume);
        let mut given: Vec<_> = (0..count).map(Some).collect();
        given[1] = Some(count);
        assert!(refusal(&array, &given).message().contains("device 1 holds no superblock"), "{level:?}");
        let (volume, _) = open(&array, &given, true).expect("opens");
        let error = volume.replace(1, array.device(count)).map(drop).expect_err("too small");
        assert!(error.message().contains("are needed"), "{error}");
        let mut volume = open(&array, &given, true).expect("opens").0;
        assert_filled(&mut volume, 1000);
    }
}

#[test]
fn a_member_that_was_cut_is_left_out_of_a_degraded_opening() {
    let mut sizes = vec![SimSettings::new(small(6)); 2];
    sizes.push(SimSettings::new(small(2)));
    let array = Array::new(&sizes, &tierstone_crash::Choices::quiet(), 0);
    let devices = (0..2).map(|index| array.device(index)).collect();
    let mut volume = Volume::create(devices, &small_volume(Level::Raid1)).expect("made");
    fill(&mut volume, 1000);
    drop(volume);
    // Its first blocks are there, and not all of its rows.
    array.media[2].overwrite(0, &start_of(&array, 1));
    let given = [Some(0), Some(2)];
    assert!(refusal(&array, &given).message().contains("member 1 has room for"));
    let mut volume = open(&array, &given, true).expect("opens").0;
    assert_eq!(volume.status().members, [Health::InSync, Health::Failed]);
    assert_filled(&mut volume, 1000);
    drop(volume);
    assert!(refusal(&array, &[Some(0), Some(1)]).message().contains("missed writes"), "that is recorded");
}
