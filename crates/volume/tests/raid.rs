//! Volumes of every level: the device's contract, failures, rebuilding, and what is refused at opening.

use crate::common::*;
use tierstone_base::ErrorKind;
use tierstone_media::conformance::{self, ConformanceMedium};
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget};
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
        array.media[0].inject(
            Fault::new(FaultTarget::Read, FaultEffect::Fail).when(tierstone_media::sim::FaultWhen::Nth(0)),
        );
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
