use super::super::buffer::perform;
use super::super::format::of_version;
use super::super::staging::signed_as;
use super::*;
use tierstone_base::{Error, ErrorKind};
use tierstone_media::{Geometry, IoRequest, SimDevice};

const SETTINGS: BufferSettings =
    BufferSettings { id: 77, volumes: 1, pairs_a_volume: 1, extent_bytes: 8 * BLOCK, unit_blocks: 4 };

fn device(blocks: u32) -> SimDevice {
    SimDevice::plain(Geometry { meta_bytes: BLOCK, segment_bytes: BLOCK, segment_limit: blocks - 1 })
}

fn bytes_of(device: &SimDevice) -> Vec<u8> {
    read_of(&mut device.clone(), 0, device.geometry().end()).unwrap().to_vec()
}

fn put(device: &SimDevice, offset: u64, bytes: &[u8]) {
    perform(&mut device.clone(), IoRequest::write_durable(0, offset, IoBuffer::from_slice(bytes))).unwrap();
}

/// A flash and a staging memory, if the logs lie in one; both slots of what counts there are written.
fn closed(is_staged: bool) -> (SimDevice, Option<SimDevice>) {
    let (flash, memory) = (device(64), is_staged.then(|| device(32)));
    Buffer::create(flash.clone(), memory.clone(), &SETTINGS, &[SETTINGS.id]).unwrap();
    let mut buffer = Buffer::open(flash.clone(), memory.clone(), Mutations::none()).unwrap();
    buffer.write_map().unwrap();
    (flash, memory)
}

fn opened(flash: &SimDevice, memory: &Option<SimDevice>) -> Result<Buffer<SimDevice>> {
    Buffer::open(flash.clone(), memory.clone(), Mutations::none())
}

/// The opening refuses what a newer program wrote, and so does making the buffer anew; nothing is written.
fn assert_refused(flash: &SimDevice, memory: &Option<SimDevice>, what: &str) {
    let bytes = || (bytes_of(flash), memory.as_ref().map(bytes_of));
    let before = bytes();
    let told = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        let has = |part| error.message().contains(part);
        assert!(has("format version 3") && has("newer program") && has(what), "{error}");
    };
    told(opened(flash, memory).unwrap_err());
    told(Buffer::renew(flash.clone(), memory.clone()).unwrap_err());
    assert!(bytes() == before, "something was written");
}

#[test]
fn a_map_of_a_newer_program_is_refused_in_either_slot() {
    for is_staged in [false, true] {
        for slot in 0..2 {
            let (flash, memory) = closed(is_staged);
            let len = BufferMap::slot_bytes_in(&bytes_of(&flash)).unwrap();
            let own = bytes_of(&flash)[(slot * len) as usize..][..len as usize].to_vec();
            assert!(BufferMap::decode(&own).is_some(), "both slots are in use");
            put(&flash, slot * len, &of_version(&own, 3));
            assert_refused(&flash, &memory, "flash buffer has");
            // The first slot is torn: the second is searched for.
            put(&flash, (1 - slot) * len, &[0x5a; 4096]);
            assert_refused(&flash, &memory, "flash buffer has");
        }
    }
}

#[test]
fn a_map_whose_version_rotted_or_that_is_torn_leaves_the_other_slot() {
    for slot in 0..2 {
        let (flash, memory) = closed(true);
        let len = BufferMap::slot_bytes_in(&bytes_of(&flash)).unwrap();
        let own = bytes_of(&flash)[(slot * len) as usize..][..len as usize].to_vec();
        let mut rotted = own.clone();
        rotted[8] = 3;
        let mut torn = of_version(&own, 3);
        torn[512..].fill(0x5a);
        for damaged in [rotted, torn] {
            put(&flash, slot * len, &damaged);
            drop(opened(&flash, &memory).unwrap());
            let (first, second) = (bytes_of(&flash), len as usize);
            let whole = |slot: usize| BufferMap::decode(&first[slot * second..][..second]).is_some();
            assert!(whole(slot as usize), "the damaged slot is the one that was written");
        }
    }
}

#[test]
fn a_staging_memory_that_a_newer_program_signed_is_refused_in_either_slot() {
    for slot in 0..2u64 {
        let (flash, memory) = closed(true);
        let of = memory.as_ref().unwrap();
        let own = bytes_of(of)[(slot * BLOCK) as usize..][..BLOCK as usize].to_vec();
        put(of, slot * BLOCK, &signed_as(&own, 3));
        assert_refused(&flash, &memory, "staging memory");
        // A buffer that takes the memory as new.
        let error = Buffer::create(device(64), memory.clone(), &SETTINGS, &[SETTINGS.id]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        // The version rotted: its checksum does not fit.
        let mut rotted = own.clone();
        rotted[8] = 3;
        put(of, slot * BLOCK, &rotted);
        let newest = opened(&flash, &memory);
        assert!(newest.is_ok() || newest.is_err_and(|error| error.kind() == ErrorKind::InvalidInput));
    }
}
