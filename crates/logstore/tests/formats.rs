//! Stores of earlier formats are served and become ones of this format; newer ones are refused with their number.

use crate::common::{Store, fresh, geometry, open_on, read, reopen, small_settings, write};
use tierstone_base::checksum::checksum;
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_engine::Engine;
use tierstone_logstore::format::segment::{HeaderFound, SegmentFooter, SegmentHeader};
use tierstone_logstore::format::superblock::{SLOT_BYTES, VERSION};
use tierstone_media::BLOCK_BYTES;
use tierstone_media::sim::{SimDevice, SimMedium};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u32 = 40;

fn key(number: u64) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// Makes the superblock one of `version`; what it holds beside is the same in all of them.
fn set_superblock_version(device: &mut SimDevice, version: u32) {
    for place in [0, SLOT_BYTES as u64] {
        let mut slot = read(device, place, SLOT_BYTES);
        if slot.iter().all(|byte| *byte == 0) {
            continue;
        }
        let magic = u64::from_le_bytes(*slot.first_chunk().unwrap());
        let len = 40 + u32::from_le_bytes(slot[12..16].try_into().unwrap()) as usize;
        slot[8..12].copy_from_slice(&version.to_le_bytes());
        slot[32..40].fill(0);
        let sum = checksum(magic, &slot[..len]);
        slot[32..40].copy_from_slice(&sum.to_le_bytes());
        write(device, place, &slot);
    }
}

fn superblock_versions(device: &mut SimDevice) -> Vec<u32> {
    let version = |place| u32::from_le_bytes(read(device, place, BLOCK_BYTES)[8..12].try_into().unwrap());
    [0, SLOT_BYTES as u64].map(version).to_vec()
}

/// Makes footers of version 1, which end before the highest expiry that was shown as past; gives how many.
fn set_footers_to_version_1(device: &mut SimDevice) -> u32 {
    let (geometry, mut count) = (geometry(SEGMENT_BYTES, SEGMENTS), 0);
    for segment in 0..SEGMENTS {
        let begin = geometry.segment_offset(segment);
        let HeaderFound::Whole(header) = SegmentHeader::decode(&read(device, begin, BLOCK_BYTES)) else {
            continue;
        };
        let place = begin + SEGMENT_BYTES - BLOCK_BYTES as u64;
        let mut block = read(device, place, BLOCK_BYTES);
        if SegmentFooter::decode(&block, header.generation).is_none() {
            continue;
        }
        block[4..8].copy_from_slice(&1u32.to_le_bytes());
        let sum = checksum(header.generation, &block[..104]);
        block[104..112].copy_from_slice(&sum.to_le_bytes());
        block[112..120].fill(0);
        assert!(SegmentFooter::decode(&block, header.generation).is_some());
        write(device, place, &block);
        count += 1;
    }
    count
}

/// A store that was closed in good order, as one of `version`.
fn older(version: u32) -> SimMedium {
    let settings = small_settings();
    let (medium, mut store) = fresh(SEGMENT_BYTES, SEGMENTS, &settings);
    for number in 0..300 {
        store.put(KEYSPACE, &key(number), &[number as u8; 700]).unwrap();
    }
    for number in (0..300).step_by(7) {
        store.delete(KEYSPACE, &key(number)).unwrap();
    }
    store.sync().unwrap();
    drop(reopen(store, &medium, &settings));
    let mut device = medium.kill_process();
    if version < 3 {
        assert!(set_footers_to_version_1(&mut device) > 3);
    }
    set_superblock_version(&mut device, version);
    medium
}

fn check(store: &mut Store) {
    for number in 0..300 {
        let found = store.get(KEYSPACE, &key(number)).unwrap().map(|(_, value)| value);
        let expected = (number % 7 != 0).then(|| vec![number as u8; 700]);
        assert_eq!(found, expected, "key {number}");
    }
    assert_eq!(store.engine.len(KEYSPACE), 300 - 43);
}

#[test]
fn stores_of_every_earlier_version_are_served_and_become_ones_of_this() {
    for version in 1..=VERSION {
        let medium = older(version);
        let (mut store, _) = open_on(medium.device(), &small_settings()).unwrap();
        check(&mut store);
        assert!(superblock_versions(&mut medium.device()).contains(&VERSION), "version {version}");
        // It goes on as any store, and is opened again.
        for number in 300..600 {
            store.put(KEYSPACE, &key(number), &[1; 900]).unwrap();
            store.delete(KEYSPACE, &key(number)).unwrap();
        }
        store.sync().unwrap();
        let mut store = reopen(store, &medium, &small_settings());
        check(&mut store);
    }
}

#[test]
fn a_store_of_a_newer_version_is_refused_with_its_number_and_left_as_it_is() {
    let medium = older(VERSION + 1);
    let error = open_on(medium.device(), &small_settings()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.message().contains(&format!("version {}", VERSION + 1)), "{error}");
    set_superblock_version(&mut medium.device(), VERSION);
    let (mut store, _) = open_on(medium.device(), &small_settings()).unwrap();
    check(&mut store);
}
