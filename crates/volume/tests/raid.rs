//! Volumes of every level: the device's contract, failures, rebuilding, and what is refused at opening.

use crate::common::*;
use tierstone_base::ErrorKind;
use tierstone_crash::Mutations;
use tierstone_media::conformance::{self, ConformanceMedium};
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, FaultWhen};
use tierstone_media::{BlockDevice, IoBuffer, IoRequest};
use tierstone_volume::{Health, Level, OpenSettings, Volume, VolumeSettings};

fn levels() -> Vec<(Level, usize)> {
    vec![
        (Level::Raid0, 3),
        (Level::Raid1, 2),
        (Level::Raid1, 3),
        (Level::Raid10, 4),
        (Level::Raid5, 3),
        (Level::Raid5, 4),
        (Level::Raid50 { groups: 2 }, 6),
    ]
}

fn redundant() -> impl Iterator<Item = (Level, usize)> {
    levels().into_iter().filter(|(level, _)| *level != Level::Raid0)
}

struct OnArray {
    array: Array,
    volume: Option<Volume<Powered>>,
}

impl ConformanceMedium for OnArray {
    type Device = Volume<Powered>;

    fn device(&mut self) -> Volume<Powered> {
        self.volume.clone().expect("open")
    }

    fn reopen(&mut self) {
        self.volume = None;
        self.array.restart();
        let devices = self.array.devices().into_iter().map(Some).collect();
        self.volume = Some(Volume::open(devices, &OpenSettings::default()).expect("opens").0);
    }
}

#[test]
fn a_volume_of_every_level_is_a_block_device() {
    for (level, count) in levels() {
        println!("{level:?} over {count}");
        conformance::run(|_| {
            let array = Array::calm(count, small(16));
            let volume = Volume::create(array.devices(), &small_volume(level)).expect("made");
            OnArray { array, volume: Some(volume) }
        });
    }
}

#[test]
fn a_volume_is_a_block_device_also_when_members_are_missing() {
    for (level, count) in redundant() {
        conformance::run(|_| {
            let array = Array::calm(count, small(16));
            let volume = Volume::create(array.devices(), &small_volume(level)).expect("made");
            volume.fail(1).expect("spared");
            OnArrayDegraded(OnArray { array, volume: Some(volume) })
        });
    }
}

struct OnArrayDegraded(OnArray);

impl ConformanceMedium for OnArrayDegraded {
    type Device = Volume<Powered>;

    fn device(&mut self) -> Volume<Powered> {
        self.0.device()
    }

    fn reopen(&mut self) {
        self.0.volume = None;
        self.0.array.restart();
        let mut devices: Vec<_> = self.0.array.devices().into_iter().map(Some).collect();
        devices[1] = None;
        let open = OpenSettings { degraded: true, ..OpenSettings::default() };
        self.0.volume = Some(Volume::open(devices, &open).expect("opens").0);
    }
}

fn fill(volume: &mut Volume<Powered>, from: u64) {
    let blocks = volume.geometry().end() / BLOCK;
    for block in 0..blocks {
        write(volume, block, from + block).expect("written");
    }
}

fn assert_filled(volume: &mut Volume<Powered>, from: u64) {
    for block in 0..volume.geometry().end() / BLOCK {
        assert_eq!(value(volume, block), from + block, "block {block}");
    }
}

#[test]
fn any_one_member_of_each_group_may_fail_and_a_new_one_is_filled_while_writes_go_on() {
    for (level, count) in redundant() {
        for lost in 0..count {
            let array = Array::calm(count + 1, small(6));
            let mut devices = array.devices();
            let spare = devices.pop().expect("a spare");
            let mut volume = Volume::create(devices, &small_volume(level)).expect("made");
            fill(&mut volume, 1000);
            array.media[lost].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
            array.media[lost].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
            fill(&mut volume, 2000);
            assert_eq!(volume.status().members[lost], Health::Failed, "{level:?}");
            assert_filled(&mut volume, 2000);
            volume.replace(lost, spare).expect("replaced");
            let mut block = 0;
            while volume.maintain(1).expect("filled") {
                write(&mut volume, block, 9000 + block).expect("written beside");
                assert_eq!(value(&mut volume, block), 9000 + block);
                block += 1;
            }
            fill(&mut volume, 3000);
            assert_filled(&mut volume, 3000);
            assert!(!volume.status().is_degraded);
            assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![], "{level:?} lost {lost}");
        }
    }
}

#[test]
fn mirrors_survive_the_loss_of_one_disk_of_each_pair() {
    let array = Array::calm(6, small(6));
    let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid10)).expect("made");
    fill(&mut volume, 10);
    for lost in [0, 3, 4] {
        array.media[lost].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
    }
    fill(&mut volume, 500);
    assert_filled(&mut volume, 500);
    let failed = volume.status().members.iter().filter(|health| **health == Health::Failed).count();
    assert_eq!(failed, 3);
    array.media[1].inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
    let error = write(&mut volume, 0, 1).expect_err("both disks of a pair are gone");
    assert!(error.error_kind().is_some(), "{error}");
}

#[test]
fn a_member_whose_reads_fail_now_and_then_stays_and_the_others_serve() {
    for (level, count) in redundant() {
        let array = Array::calm(count, small(6));
        let mut volume = Volume::create(array.devices(), &small_volume(level)).expect("made");
        fill(&mut volume, 10);
        array.media[0].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).when(FaultWhen::Nth(0)));
        assert_filled(&mut volume, 10);
        assert_eq!(volume.status().members[0], Health::InSync);
        assert_eq!(volume.status().read_errors[0], 1);
        array.media[0].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
        assert_filled(&mut volume, 10);
        assert_filled(&mut volume, 10);
        assert_eq!(volume.status().members[0], Health::Failed, "{level:?}");
    }
}

#[test]
fn a_small_write_with_parity_reads_twice_and_writes_twice_beside_its_journal() {
    let array = Array::calm(5, small(16));
    let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid5)).expect("made");
    let before: Vec<_> = array.media.iter().map(|medium| medium.counters()).collect();
    write(&mut volume, 7, 1).expect("written");
    let sum = |count: fn(&tierstone_media::sim::Counters) -> u64| -> u64 {
        array
            .media
            .iter()
            .zip(&before)
            .map(|(medium, before)| count(&medium.counters()) - count(before))
            .sum()
    };
    assert_eq!((sum(|counters| counters.reads), sum(|counters| counters.writes)), (2, 2 + 2));
    // A whole row needs no reads.
    let row = 4 * 2 * BLOCK_COUNT;
    let before: Vec<_> = array.media.iter().map(|medium| medium.counters().reads).collect();
    let done = perform(&mut volume, vec![IoRequest::write_durable(1, 0, IoBuffer::zeroed(row))]);
    assert!(done[&1].result.is_ok());
    let after: Vec<_> = array.media.iter().map(|medium| medium.counters().reads).collect();
    assert_eq!(before, after);
}

const BLOCK_COUNT: usize = BLOCK as usize;

fn refused(devices: Vec<Option<Powered>>) -> String {
    let error = Volume::open(devices, &OpenSettings::default()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    error.message().to_owned()
}

#[test]
fn devices_that_are_mixed_up_missing_foreign_or_stale_are_refused_in_words() {
    let array = Array::calm(4, small(6));
    let volume = Volume::create(array.devices(), &small_volume(Level::Raid10)).expect("made");
    volume.close().expect("closed");
    let given = |places: &[Option<usize>]| -> Vec<Option<Powered>> {
        places.iter().map(|place| place.map(|index| array.device(index))).collect()
    };
    let message = refused(given(&[Some(0), Some(2), Some(1), Some(3)]));
    assert!(message.contains("place 1 is member 2") && message.contains("order"), "{message}");
    let message = refused(given(&[Some(0), None, Some(2), Some(3)]));
    assert!(message.contains("member 1 is not there") && message.contains("degraded"), "{message}");
    let message = refused(given(&[Some(0), Some(1), Some(2)]));
    assert!(message.contains("has 4 members, 3 were given"), "{message}");

    let other = Array::calm(4, small(6));
    let foreign = VolumeSettings { id: 7, ..small_volume(Level::Raid10) };
    Volume::create(other.devices(), &foreign).expect("made").close().expect("closed");
    let mut devices = given(&[Some(0), Some(1), Some(2), Some(3)]);
    devices[3] = Some(other.device(3));
    let message = refused(devices);
    assert!(message.contains("device 3 belongs to volume") && message.contains("00000007"), "{message}");
    let mut devices = given(&[Some(0), Some(1), Some(2), Some(3)]);
    devices[2] = Some(Array::calm(1, small(6)).device(0));
    let message = refused(devices);
    assert!(message.contains("device 2 holds no superblock"), "{message}");

    let volume = Volume::open(given(&[Some(0), Some(1), Some(2), Some(3)]), &OpenSettings::default())
        .expect("opens")
        .0;
    volume.fail(1).expect("spared");
    drop(volume);
    let message = refused(given(&[Some(0), Some(1), Some(2), Some(3)]));
    assert!(message.contains("member 1 missed writes since generation"), "{message}");
    let degraded = OpenSettings { degraded: true, ..OpenSettings::default() };
    let volume = Volume::open(given(&[Some(0), Some(1), Some(2), Some(3)]), &degraded).expect("opens").0;
    assert_eq!(volume.status().members[1], Health::Failed);
    drop(volume);
    let message = Volume::open(given(&[None, Some(1), Some(2), Some(3)]), &degraded).map(drop);
    // Member 1 alone is old; the others know.
    assert_eq!(message.expect_err("data is elsewhere").kind(), ErrorKind::DeviceFailed);
    let taken = Volume::create(
        given(&[Some(0), Some(1)]).into_iter().flatten().collect(),
        &small_volume(Level::Raid1),
    );
    assert!(taken.expect_err("holds one").message().contains("overwrite"));
}

#[test]
fn mirrors_that_were_each_used_alone_are_not_joined() {
    let array = Array::calm(2, small(6));
    Volume::create(array.devices(), &small_volume(Level::Raid1)).expect("made").close().expect("closed");
    let degraded = OpenSettings { degraded: true, ..OpenSettings::default() };
    for alone in [0, 1] {
        let devices = (0..2).map(|index| (index == alone).then(|| array.device(index))).collect();
        let mut volume = Volume::open(devices, &degraded).expect("opens").0;
        write(&mut volume, 3, alone as u64).expect("written");
    }
    for open in [OpenSettings::default(), degraded] {
        let error =
            Volume::open(array.devices().into_iter().map(Some).collect(), &open).expect_err("refused");
        assert!(error.message().contains("each used without the other"), "{error}");
    }
}

#[test]
fn devices_of_unknown_content_become_redundant_by_maintenance() {
    for (level, count) in redundant() {
        let array = Array::calm(count, small(6));
        for (index, medium) in array.media.iter().enumerate() {
            medium.overwrite(20 * BLOCK, &vec![index as u8 + 1; 30 * BLOCK as usize]);
        }
        let unknown = VolumeSettings { is_zeroed: false, ..small_volume(level) };
        let mut volume = Volume::create(array.devices(), &unknown).expect("made");
        assert!(volume.status().is_degraded);
        write(&mut volume, 5, 55).expect("written");
        while volume.maintain(3).expect("filled") {}
        assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![], "{level:?}");
        volume.fail(0).expect("spared now");
        assert_eq!(value(&mut volume, 5), 55);
    }
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let array = Array::calm(3, small(6));
    let base = small_volume(Level::Raid5);
    for wrong in [
        VolumeSettings { chunk_bytes: 1000, ..base.clone() },
        VolumeSettings { chunk_bytes: 0, ..base.clone() },
        VolumeSettings { chunk_bytes: 1 << 30, ..base.clone() },
        VolumeSettings { segment_bytes: 1 << 30, ..base.clone() },
        VolumeSettings { meta_bytes: 0, ..base.clone() },
        VolumeSettings { journal_slots: 3, ..base.clone() },
        VolumeSettings { level: Level::Raid10, ..base.clone() },
    ] {
        let error = Volume::create(array.devices(), &wrong).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let long = VolumeSettings { chunk_bytes: 4 << 20, ..base.clone() };
    let error = Volume::create(array.devices(), &long).expect_err("refused");
    assert!(error.message().contains("rows of 12582912"), "{error}");
}

/// Where data begins on members of a [`small_volume`] of three with parity.
const PARITY_DATA_START: u64 = 18 * BLOCK;

/// RAID 5 of three, filled from 1000, that has lost member 1: blocks 0 and 1 lie on member 0, blocks 2 and 3 on the lost
/// one, their parity on member 2.
fn without_member_1(mutations: Mutations) -> (Array, Volume<Powered>) {
    let array = Array::calm(3, small(6));
    Volume::create(array.devices(), &small_volume(Level::Raid5)).expect("made").close().expect("closed");
    let open = OpenSettings { mutations, ..OpenSettings::default() };
    let mut volume = Volume::open(array.devices().into_iter().map(Some).collect(), &open).expect("opens").0;
    fill(&mut volume, 1000);
    volume.fail(1).expect("spared");
    (array, volume)
}

fn reopened(array: &Array, volume: Volume<Powered>) -> Volume<Powered> {
    drop(volume);
    array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
    let open = OpenSettings { degraded: true, ..OpenSettings::default() };
    Volume::open(array.devices().into_iter().map(Some).collect(), &open).expect("opens").0
}

fn refuse_block_0(array: &Array, effect: FaultEffect, when: FaultWhen) {
    let place = PARITY_DATA_START..PARITY_DATA_START + BLOCK;
    array.media[0].inject(Fault::new(FaultTarget::Write, effect).within(place).when(when));
}

/// What a write that was refused in place leaves of a lost member (crash mark `row_half_written`): everything.
#[test]
fn a_write_in_place_that_is_refused_costs_no_data_of_a_lost_member() {
    const MENDED: &str = "torn rows are mended before anything relies on them";
    for effect in [FaultEffect::Full, FaultEffect::Fail] {
        for mutations in [Mutations::none(), Mutations::one(MENDED)] {
            let (array, mut volume) = without_member_1(mutations.clone());
            refuse_block_0(&array, effect, FaultWhen::Nth(0));
            assert!(write(&mut volume, 0, 77).is_err());
            if mutations.is_on(MENDED) {
                let lost = value(&mut volume, 2);
                assert_ne!(lost, 1002, "the rule is needed");
                continue;
            }
            assert_eq!(value(&mut volume, 2), 1002);
            write(&mut volume, 0, 77).expect("written");
            assert_eq!(value(&mut volume, 2), 1002);
            let mut volume = reopened(&array, volume);
            assert_eq!([0, 1, 2, 3].map(|block| value(&mut volume, block)), [77, 1001, 1002, 1003]);
        }
    }
}

#[test]
fn rounds_that_go_on_beside_a_torn_row_do_not_void_its_record() {
    for refusals in 1..4 {
        let (array, mut volume) = without_member_1(Mutations::none());
        refuse_block_0(&array, FaultEffect::Full, FaultWhen::Always);
        for _ in 0..refusals {
            assert!(write(&mut volume, 0, 77).is_err());
            // Nothing else is journalled while that row cannot be mended, and nothing is computed from it.
            assert!(write(&mut volume, 5, 88).is_err());
            assert!(read(&mut volume, 2).is_err(), "an error and no guess");
            assert_eq!(value(&mut volume, 5), 1005);
        }
        let mut volume = match refusals {
            // Also when there is room again.
            1 => {
                array.media[0].clear_faults();
                write(&mut volume, 5, 88).expect("written");
                assert_eq!([0, 2, 5].map(|block| value(&mut volume, block)), [77, 1002, 88]);
                write(&mut volume, 5, 1005).expect("written");
                volume
            }
            _ => volume,
        };
        if refusals == 2 {
            volume.clone().close().expect_err("it is not in good order");
        }
        assert!(refusals == 1 || read(&mut volume, 2).is_err());
        let mut volume = reopened(&array, volume);
        for block in 1..volume.geometry().end() / BLOCK {
            assert_eq!(value(&mut volume, block), 1000 + block);
        }
        assert_eq!(value(&mut volume, 0), 77);
    }
}

#[test]
fn a_block_that_cannot_be_read_below_a_small_write_does_not_cost_the_member() {
    for (member, block) in [(0, 0), (2, 0)] {
        // That of the data, and that of its parity.
        let array = Array::calm(3, small(6));
        let mut volume = Volume::create(array.devices(), &small_volume(Level::Raid5)).expect("made");
        fill(&mut volume, 1000);
        array.media[member].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).when(FaultWhen::Nth(0)));
        write(&mut volume, block, 77).expect("written");
        let status = volume.status();
        assert_eq!((status.members[member], status.read_errors[member]), (Health::InSync, 1));
        assert_eq!(volume.compare(0..u64::MAX).expect("read"), vec![], "parity fits");
        assert_eq!([0, 1, 2, 3].map(|block| value(&mut volume, block)), [77, 1001, 1002, 1003]);
        // Too many of them do.
        array.media[member].inject(Fault::new(FaultTarget::Read, FaultEffect::Fail));
        (0..40).for_each(|round| write(&mut volume, block, round).expect("written"));
        assert_eq!(volume.status().members[member], Health::Failed);
        assert_eq!([0, 1, 2, 3].map(|block| value(&mut volume, block)), [39, 1001, 1002, 1003]);
    }
}

#[test]
fn a_round_that_left_no_record_does_not_turn_the_journal() {
    for fault in [FaultTarget::Read, FaultTarget::Write] {
        let (array, mut volume) = without_member_1(Mutations::none());
        let slot = |half: u64| (4 + half * 7) * BLOCK;
        let start = |medium: usize, half: u64| -> Vec<u8> {
            let done =
                perform(&mut array.device(medium), vec![IoRequest::read(1, slot(half), IoBuffer::zeroed(1))]);
            done[&1].buffer.as_ref().expect("read").to_vec()
        };
        let both = |half: u64| (start(0, half), start(2, half));
        write(&mut volume, 0, 71).expect("written");
        write(&mut volume, 0, 72).expect("written");
        let before = [both(0), both(1)];
        // A round without a record: row 2 cannot be read, or the journal takes nothing.
        for medium in [0, 2] {
            let place = match fault {
                FaultTarget::Read => PARITY_DATA_START + 4 * BLOCK..PARITY_DATA_START + 6 * BLOCK,
                _ => slot(0)..PARITY_DATA_START,
            };
            array.media[medium].inject(Fault::new(fault, FaultEffect::Full).within(place));
        }
        assert!(write(&mut volume, 8, 5).is_err(), "{fault:?}");
        array.media.iter().for_each(tierstone_media::SimMedium::clear_faults);
        assert_eq!([both(0), both(1)], before, "nothing was recorded");
        write(&mut volume, 4, 81).expect("written");
        // As if power had gone while that was recorded, so that its slot is torn.
        let written = (0..2).find(|&half| both(half) != before[half as usize]).expect("it has a slot");
        for medium in [0, 2] {
            array.media[medium].overwrite(slot(written), &[0x5a; 512]);
        }
        let mut volume = reopened(&array, volume);
        assert_eq!(value(&mut volume, 0), 72, "{fault:?}");
    }
}
