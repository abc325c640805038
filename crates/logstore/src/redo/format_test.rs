use super::*;

#[test]
fn a_header_comes_back_as_it_was_written() {
    let layout = Layout::of(1 << 20, 3, 64 << 10).unwrap();
    let header = RegionHeader { store: 7, opening: 9, layout, is_void: true, counter: 4, has_evidence: true };
    assert_eq!(RegionHeader::decode(&header.encode(), 1 << 20).unwrap(), Some(header));
    // A region that has been made smaller does not hold what its header says.
    assert_eq!(RegionHeader::decode(&header.encode(), 1 << 16).unwrap(), None);
}

#[test]
fn a_header_of_another_version_is_refused_with_the_version() {
    let layout = Layout::of(1 << 20, 1, 64 << 10).unwrap();
    let mut bytes =
        RegionHeader { store: 7, opening: 9, layout, is_void: false, counter: 4, has_evidence: true }
            .encode();
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
    assert_eq!(SlotHeader::decode(&bytes, 7, true), Some(slot));
    assert_eq!(SlotHeader::decode(&bytes, 8, true), None, "another store's");
    for bit in 0..bytes.len() * 8 {
        let mut torn = bytes;
        torn[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(SlotHeader::decode(&torn, 7, true), None, "bit {bit}");
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
            for area in 0..layout.snapshot_areas() {
                assert_eq!(layout.snapshot_commit(shard, area), end);
                end += SNAPSHOT_COMMIT_BYTES;
            }
            for area in 0..layout.snapshot_areas() {
                assert_eq!(layout.snapshot_pieces(shard, area), end);
                end += layout.snapshot_bytes;
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

#[test]
fn what_slots_leave_is_for_snapshots_and_what_is_too_little_for_these_is_for_slots() {
    let layout = Layout::of(64 << 20, 1, 64 << 10).unwrap();
    assert!(layout.slots == 64 && layout.snapshot_bytes > 29 << 20, "{layout:?}");
    let layout = Layout::of(96 << 10, 1, 8 << 10).unwrap();
    assert!(layout.slots == 5 && layout.snapshot_bytes == 20 << 10, "{layout:?}");
    let layout = Layout::of(42 << 10, 1, 8 << 10).unwrap();
    assert_eq!((layout.slots, layout.snapshot_areas()), (4, 0), "{layout:?}");
}

/// A header of version 1, as the program of then wrote it: nothing about areas.
#[test]
fn a_header_of_the_first_version_is_of_a_region_without_areas() {
    let layout = Layout { shards: 2, slots: 5, slot_bytes: 8_320, snapshot_bytes: 0 };
    let header =
        RegionHeader { store: 7, opening: 9, layout, is_void: false, counter: 4, has_evidence: true };
    let sealed = |mut bytes: [u8; HEADER_BYTES], change: &dyn Fn(&mut [u8])| {
        change(&mut bytes);
        let sum = checksum(MAGIC, &bytes[..HEADER_BYTES - 8]);
        bytes[HEADER_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    let first = sealed(header.encode(), &|bytes| bytes[8] = 1);
    let expected = RegionHeader { has_evidence: false, ..header };
    assert_eq!(RegionHeader::decode(&first, 1 << 20).unwrap(), Some(expected));
    let strange = sealed(first, &|bytes| bytes[36] = 1);
    assert_eq!(RegionHeader::decode(&strange, 1 << 20).unwrap(), None);
}

fn snapshot() -> Commit {
    Commit {
        layout: EntryLayout::NARROW,
        store: 7,
        generation: 0x1234,
        open_count: 3,
        number: 2,
        seq: 100,
        newest: 110,
        pieces: 4,
        shard: 1,
        shard_count: 2,
        first_position: 1 << 63,
        last_position: u64::MAX,
        segments: Vec::new(),
    }
}

#[test]
fn every_flipped_bit_of_what_commits_a_snapshot_makes_it_void_and_so_does_a_zero() {
    let wide = Commit { layout: EntryLayout::WIDE, ..snapshot() };
    assert_eq!(decode_snapshot(&encode_snapshot(&wide, 7, 1), 7, 1), Some(wide));
    let bytes = encode_snapshot(&snapshot(), 7, 1);
    assert_eq!(decode_snapshot(&bytes, 7, 1), Some(snapshot()));
    assert_eq!(decode_snapshot(&bytes, 8, 1), None, "another store's");
    assert_eq!(decode_snapshot(&bytes, 7, 0), None, "another area's");
    for bit in 0..bytes.len() * 8 {
        let mut torn = bytes;
        torn[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode_snapshot(&torn, 7, 1), None, "bit {bit}");
    }
    let mut void = bytes;
    void[..8].fill(0);
    assert_eq!(decode_snapshot(&void, 7, 1), None);
}

/// The page prints the example, byte for byte.
#[test]
fn the_page_prints_what_commits_a_snapshot() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/redo-region.md");
    let page = std::fs::read_to_string(page).unwrap();
    let bytes = encode_snapshot(&snapshot(), 7, 1);
    let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
        let bytes: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
        format!("{:4} {bytes}\n", line * 16)
    });
    let dump: String = lines.collect();
    assert!(page.contains(&format!("```text\n{dump}```")), "the page does not print\n{dump}");
}
