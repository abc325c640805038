use super::*;

#[test]
fn words_of_the_allocation_table_come_back_and_damage_is_seen() {
    for kind in [SegmentKind::Claimed, SegmentKind::Log, SegmentKind::Storage, SegmentKind::Overflow(3)] {
        let entry = Entry { kind, device: 1023, logical: SPARE };
        let word = entry.encode();
        assert_eq!(Entry::decode(word), Ok(Some(entry)));
        let seen = (0..64).filter(|bit| Entry::decode(word ^ 1 << bit) != Ok(Some(entry))).count();
        assert_eq!(seen, 64);
    }
    assert_eq!(Entry::decode(Entry::free()), Ok(None));
    assert!((0..64).all(|bit| Entry::decode(Entry::free() ^ 1 << bit) != Ok(None)));
    assert_eq!(Entry::decode(0), Err(()), "zeros are damage");
}

#[test]
fn the_longest_record_fits_a_frame_of_any_geometry() {
    for segment_bits in 12..=24 {
        for block_bits in 10..=segment_bits.min(17) {
            let (segment_bytes, block_bytes) = (1 << segment_bits, 1 << block_bits);
            let geometry = Geometry { segment_bytes, block_bytes, log_segments: 3 };
            let layout = Layout::of(geometry, 1, 100);
            let record = RECORD_BYTES + layout.inline_key_max() + layout.inline_value_max();
            assert!(geometry.is_possible() && layout.frame_max() >= FRAME_BYTES + record, "{geometry:?}");
            assert!(layout.frame_max() as u64 + LEAD_BYTES <= segment_bytes, "{geometry:?}");
        }
    }
}

#[test]
fn extents_come_back_in_stores_of_every_size() {
    let top = crate::keys::STORE_BYTES_MAX;
    let offsets = [0, 64, (1 << 42) - 64, 1 << 42, (1 << 42) + 64, top - 64];
    for extent in offsets.into_iter().flat_map(|offset| [1, 4096, 1 << 24].map(|len| Extent { offset, len }))
    {
        assert_eq!(Extent::decode(extent.encode()), extent);
        if extent.offset < 1 << 42 {
            let before = (u64::from(extent.len) << 36) | (extent.offset / LINE_BYTES);
            assert_eq!(extent.encode(), before, "smaller stores have the words that they had");
        }
    }
}

#[test]
fn a_region_that_is_larger_than_a_store_can_be_is_used_in_part() {
    let of = |geometry, bytes| Layout::new(geometry, 4, bytes, 0);
    let top = crate::keys::STORE_BYTES_MAX;
    for geometry in [
        Geometry::default(),
        Geometry { segment_bytes: 16 << 20, ..Geometry::default() },
        Geometry { segment_bytes: 4 << 10, block_bytes: 1 << 10, log_segments: 3 },
        Geometry { block_bytes: 1 << 10, ..Geometry::default() },
    ] {
        let largest = of(geometry, top).unwrap();
        assert!(largest.end() <= top && u64::from(largest.segments) <= SEGMENTS_MAX, "{geometry:?}");
        let blocks = u64::from(largest.segments) * (geometry.segment_bytes / geometry.block_bytes);
        assert!(blocks <= BLOCKS_MAX, "{geometry:?}");
        assert_eq!(of(geometry, top + (1 << 20)).unwrap(), largest);
        assert_eq!(of(geometry, u64::MAX).unwrap(), largest);
    }
    let all = of(Geometry::default(), top).unwrap();
    assert!(top - all.end() <= 2 * all.geometry.segment_bytes, "next to nothing is left");
}
