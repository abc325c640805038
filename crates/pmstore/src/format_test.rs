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
