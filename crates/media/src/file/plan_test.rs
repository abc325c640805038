use super::*;
use crate::IoBuffer;
use proptest::prelude::*;

const GEOMETRY: Geometry = Geometry { meta_bytes: 8192, segment_bytes: 12288, segment_limit: 5 };

proptest! {
    #[test]
    fn parts_cover_the_range_in_order_and_none_leaves_its_file(first in 0u64..17, count in 0u64..17) {
        let (offset, end) = (first * 4096, ((first + count) * 4096).min(GEOMETRY.end()));
        let mut next = 0;
        for part in parts(&GEOMETRY, offset, end - offset) {
            prop_assert_eq!(part.start, next);
            let (base, size) = match part.place {
                Place::Meta => (0, GEOMETRY.meta_bytes),
                Place::Segment(segment) => (GEOMETRY.segment_offset(segment), GEOMETRY.segment_bytes),
            };
            prop_assert!(part.len > 0 && part.file_offset + part.len <= size);
            prop_assert_eq!(base + part.file_offset, offset + part.start);
            next += part.len;
        }
        prop_assert_eq!(next, end - offset);
    }

    #[test]
    fn no_request_makes_the_check_panic(offset: u64, len: u64) {
        for kind in [IoKind::Prepare { len }, IoKind::Discard { len }, IoKind::Read, IoKind::Flush] {
            let request = IoRequest { token: 0, kind, offset, buffer: None };
            if let Ok(len) = check(&GEOMETRY, &request) {
                prop_assert!(kind == IoKind::Flush || offset + len <= GEOMETRY.end());
            }
        }
    }
}

#[test]
fn a_request_must_be_whole_blocks_inside_the_space() {
    let refused = |request: IoRequest| check(&GEOMETRY, &request).map_err(|error| error.kind);
    let buffer = || IoBuffer::zeroed(4096);
    assert_eq!(refused(IoRequest::read(0, 4096, buffer())), Ok(4096));
    assert_eq!(refused(IoRequest::read(0, 100, buffer())), Err(DeviceErrorKind::OutOfBounds));
    assert_eq!(refused(IoRequest::read(0, GEOMETRY.end(), buffer())), Err(DeviceErrorKind::OutOfBounds));
    let discard = IoRequest { token: 0, kind: IoKind::Discard { len: 4096 }, offset: 4096, buffer: None };
    assert_eq!(refused(discard), Err(DeviceErrorKind::OutOfBounds));
}

#[test]
fn only_the_written_spelling_of_a_segment_is_its_name() {
    assert_eq!(segment_of_name("segment-000042.tier"), Some(42));
    assert_eq!(segment_of_name("segment-4294967295.tier"), Some(u32::MAX));
    for wrong in ["segment-42.tier", "segment-+00042.tier", "segment-000042.tier.new", "segment-.tier", "x"] {
        assert_eq!(segment_of_name(wrong), None, "{wrong}");
    }
}
