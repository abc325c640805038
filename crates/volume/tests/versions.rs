//! Superblocks of other versions: what a newer program wrote is refused and left alone, and what an older one would misread is
//! marked, so that it refuses.

use crate::common::*;
use std::collections::BTreeSet;
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::{Error, ErrorKind};
use tierstone_media::{BLOCK_BYTES, BlockDevice};
use tierstone_volume::inspect::{Holds, INSPECTED_BYTES, inspect};
use tierstone_volume::{Level, OpenSettings, RangeClass, Volume, VolumeSettings};

/// What a superblock's checksum is salted with, beside the generation.
const SALT: u64 = 0x766f_6c75_6d65_7362;
/// The first version that this program does not know.
const NEWER: u32 = 3;

fn start_of(array: &Array, medium: usize) -> Vec<u8> {
    let mut device = array.device(medium);
    (0..2).flat_map(|slot| read(&mut device, slot).expect("reads").to_vec()).collect()
}

fn starts(array: &Array) -> Vec<Vec<u8>> {
    (0..array.media.len()).map(|medium| start_of(array, medium)).collect()
}

/// The version of what a slot holds.
fn version_of(slot: &[u8]) -> Option<u32> {
    slot.starts_with(b"TIERVOLU").then(|| u32::from_le_bytes(slot[8..12].try_into().expect("4")))
}

fn generation_of(slot: &[u8]) -> u64 {
    u64::from_le_bytes(slot[32..40].try_into().expect("8"))
}

/// Versions in all slots of all members.
fn versions(array: &Array) -> BTreeSet<u32> {
    starts(array).iter().flat_map(|start| start.chunks(BLOCK_BYTES)).filter_map(version_of).collect()
}

/// The slot as a program of another version would have written it.
fn renamed(slot: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = slot.to_vec();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = checksum(salt(SALT, generation_of(&bytes)), &bytes[..BLOCK_BYTES - 8]);
    bytes[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn put(array: &Array, medium: usize, slot: usize, bytes: &[u8]) {
    array.media[medium].overwrite(slot as u64 * BLOCK, bytes);
}

fn newest(start: &[u8]) -> usize {
    let generation = |slot: usize| generation_of(&start[slot * BLOCK_BYTES..]);
    usize::from(generation(1) > generation(0))
}

/// A closed volume, each block with its number above 1,000.
fn closed(array: &Array, settings: &VolumeSettings) {
    let mut volume = Volume::create(array.devices(), settings).expect("made");
    fill(&mut volume, 1000);
    volume.close().expect("closed");
}

/// Opens the volume on members of the array, as they stand in `given`.
fn open(array: &Array, given: &[Option<usize>], degraded: bool) -> Result<Volume<Powered>, Error> {
    let devices = given.iter().map(|medium| medium.map(|medium| array.device(medium))).collect();
    Volume::open(devices, &OpenSettings { degraded, ..OpenSettings::default() }).map(|opened| opened.0)
}

fn assert_refused(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    for part in ["format version 3", "newer program", "up to 2"] {
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn a_superblock_of_a_newer_program_is_refused_in_any_slot_and_nothing_is_written() {
    let array = Array::calm(2, small(6));
    closed(&array, &small_volume(Level::Raid1));
    let before = starts(&array);
    for (medium, slot) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let bytes = before[medium][slot * BLOCK_BYTES..][..BLOCK_BYTES].to_vec();
        put(&array, medium, slot, &renamed(&bytes, NEWER));
        let found = starts(&array);
        let alone = [0, 1].map(|other| (other == medium).then_some(other));
        for (given, degraded) in
            [([Some(0), Some(1)], false), ([Some(0), Some(1)], true), (alone, false), (alone, true)]
        {
            let error = open(&array, &given, degraded).expect_err("refused");
            assert_refused(&error);
            assert!(error.message().contains(&format!("device {medium} ")), "{error}");
        }
        assert_refused(&Volume::create(array.devices(), &small_volume(Level::Raid1)).expect_err("refused"));
        assert!(starts(&array) == found, "something was written");
        let Holds::Newer(why) = inspect(&found[medium][..INSPECTED_BYTES]) else { panic!("taken for known") };
        assert!(why.contains("format version 3"), "{why}");
        put(&array, medium, slot, &bytes);
    }
    assert_filled(&mut open(&array, &[Some(0), Some(1)], false).expect("opens"), 1000);
    let anew = VolumeSettings { overwrite: true, ..small_volume(Level::Raid1) };
    put(&array, 0, 0, &renamed(&start_of(&array, 0)[..BLOCK_BYTES], NEWER));
    Volume::create(array.devices(), &anew).expect("lost as was said");
}

#[test]
fn a_volume_that_a_newer_program_opened_once_is_refused_by_all_of_its_members() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        let array = Array::calm(count, small(6));
        closed(&array, &small_volume(level));
        for (medium, start) in starts(&array).iter().enumerate() {
            let slot = newest(start);
            put(&array, medium, slot, &renamed(&start[slot * BLOCK_BYTES..][..BLOCK_BYTES], NEWER));
        }
        let found = starts(&array);
        let all: Vec<_> = (0..count).map(Some).collect();
        for degraded in [false, true] {
            assert_refused(&open(&array, &all, degraded).expect_err("refused"));
        }
        assert!(starts(&array) == found, "{level:?}: something was written");
    }
}

#[test]
fn a_newer_slot_that_is_torn_and_a_version_that_rotted_leave_the_slot_before() {
    for sectors in 0..8 {
        let array = Array::calm(2, small(6));
        closed(&array, &small_volume(Level::Raid1));
        for medium in 0..2 {
            let start = start_of(&array, medium);
            let slot = newest(&start);
            let mut bytes = start[slot * BLOCK_BYTES..][..BLOCK_BYTES].to_vec();
            match sectors {
                0 => bytes[8] = NEWER as u8,
                // The first sectors of a newer superblock, over what was there before.
                sectors => {
                    let later = renamed(&bytes, NEWER);
                    bytes.fill(0x5a);
                    bytes[..sectors * 512].copy_from_slice(&later[..sectors * 512]);
                }
            }
            put(&array, medium, slot, &bytes);
        }
        let mut volume = open(&array, &[Some(0), Some(1)], false).expect("opens");
        assert_filled(&mut volume, 1000);
    }
}

/// Two pairs with room to spare, of which the second half is cold.
fn closed_with_spare_rows() -> Array {
    let array = Array::calm(4, small(8));
    let settings = VolumeSettings { spare_bytes: 8 * BLOCK, ..small_volume(Level::Raid10) };
    let mut volume = Volume::create(array.devices(), &settings).expect("made");
    fill(&mut volume, 1000);
    let end = volume.geometry().end();
    volume.declare(end / 2..end, RangeClass::Cold).expect("declared");
    volume.close().expect("closed");
    array
}

const ALL: [Option<usize>; 4] = [Some(0), Some(1), Some(2), Some(3)];

/// A program that knows no spare rows knows version 1 only, and passes other slots over.
#[test]
fn no_slot_of_a_volume_with_spare_rows_is_one_that_programs_without_them_read() {
    let array = closed_with_spare_rows();
    assert_eq!(versions(&array), BTreeSet::from([2]));
    let mut volume = open(&array, &ALL, false).expect("opens");
    assert_filled(&mut volume, 1000);
    drop(volume);
    assert_eq!(versions(&array), BTreeSet::from([2]));
    let plain = Array::calm(4, small(8));
    closed(&plain, &small_volume(Level::Raid10));
    assert_eq!(versions(&plain), BTreeSet::from([1]), "others stay as they are");
}

/// Which slots of which members are as a program wrote them that knew spare rows and had no version for them.
fn unmark(array: &Array, is_chosen: impl Fn(usize, usize, bool) -> bool) {
    for (medium, start) in starts(array).iter().enumerate() {
        for (slot, bytes) in start.chunks(BLOCK_BYTES).enumerate() {
            if version_of(bytes).is_some() && is_chosen(medium, slot, newest(start) == slot) {
                put(array, medium, slot, &renamed(bytes, 1));
            }
        }
    }
}

#[test]
fn spare_rows_without_their_version_get_it_in_both_slots_with_the_first_opening() {
    type Chosen = fn(usize, usize, bool) -> bool;
    let cases: [(&str, Chosen); 5] = [
        ("all", |_, _, _| true),
        ("cut off after the first round", |_, _, is_newest| !is_newest),
        ("cut off in the first round", |medium, _, is_newest| medium > 1 || !is_newest),
        ("cut off in the second round", |medium, _, is_newest| medium == 3 && !is_newest),
        ("one member", |medium, _, _| medium == 2),
    ];
    for (case, is_chosen) in cases {
        let array = closed_with_spare_rows();
        unmark(&array, is_chosen);
        assert!(versions(&array).contains(&1), "{case}");
        // Not closed: a loss of power right behind the opening leaves this.
        drop(open(&array, &ALL, false).expect("opens"));
        assert_eq!(versions(&array), BTreeSet::from([2]), "{case}");
        let mut volume = open(&array, &ALL, false).expect("opens");
        assert_filled(&mut volume, 1000);
        let end = volume.geometry().end();
        assert_eq!(volume.range_status(end - BLOCK..end)[0].class, RangeClass::Cold, "{case}");
    }
}
