use super::*;

#[test]
fn a_header_comes_back_as_it_was_written() {
    let layout = Layout::of(1 << 20, 3, 64 << 10).unwrap();
    let header = RegionHeader { store: 7, opening: 9, layout, is_void: true, counter: 4 };
    assert_eq!(RegionHeader::decode(&header.encode(), 1 << 20).unwrap(), Some(header));
    // A region that has been made smaller does not hold what its header says.
    assert_eq!(RegionHeader::decode(&header.encode(), 1 << 16).unwrap(), None);
}

#[test]
fn a_header_of_another_version_is_refused_with_the_version() {
    let layout = Layout::of(1 << 20, 1, 64 << 10).unwrap();
    let mut bytes = RegionHeader { store: 7, opening: 9, layout, is_void: false, counter: 4 }.encode();
    bytes[8] = 9;
    let sum = checksum(MAGIC, &bytes[..HEADER_BYTES - 8]);
    bytes[HEADER_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    let error = RegionHeader::decode(&bytes, 1 << 20).unwrap_err();
    assert!(error.kind() == ErrorKind::Incompatible && error.message().contains("version 9"), "{error}");
}

#[test]
fn every_flipped_bit_of_a_slot_is_noticed() {
    let slot =
        SlotHeader { log_id: 1, group: 2, segment: 3, start: 4096, first_seq: 5, ..SlotHeader::default() };
    let bytes = slot.encode(7);
    assert_eq!(SlotHeader::decode(&bytes, 7), Some(slot));
    assert_eq!(SlotHeader::decode(&bytes, 8), None, "another store's");
    for bit in 0..bytes.len() * 8 {
        let mut torn = bytes;
        torn[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(SlotHeader::decode(&torn, 7), None, "bit {bit}");
    }
}

#[test]
fn slots_lie_side_by_side_in_the_region() {
    for (bytes, shards, group) in [(1 << 20, 3, 64 << 10), (64 << 20, 1, 1 << 20), (100_000, 2, 1 << 20)] {
        let layout = Layout::of(bytes, shards, group).unwrap();
        assert!(layout.slots >= 4 && layout.image_bytes() >= IMAGE_BYTES_MIN as usize, "{layout:?}");
        let mut end = 8192;
        for shard in 0..shards {
            assert_eq!(layout.area(shard), end);
            end += LINE_BYTES;
            for slot in 0..layout.slots {
                assert_eq!(layout.slot(shard, slot), end);
                end += layout.slot_bytes;
            }
        }
        assert!(end <= bytes, "{layout:?} in {bytes}");
    }
}

#[test]
fn a_region_that_is_too_small_says_how_large_it_must_be() {
    let least = Layout::of(9_000, 2, 1 << 20).unwrap_err();
    assert!(Layout::of(least, 2, 1 << 20).is_ok());
    assert_eq!(Layout::of(least - 128, 2, 1 << 20), Err(least));
}
