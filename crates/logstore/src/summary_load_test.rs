//! Summaries come in bounded parts, and only whole ones are given.

use super::*;
use proptest::prelude::*;
use tierstone_base::checksum::checksum;

/// Loads `bytes`, which lie at `start` of a segment, with byte `flipped` changed on the way.
fn load(bytes: &[u8], start: u32, flipped: Option<usize>) -> (Option<Vec<u8>>, usize) {
    let place = SummaryPlace { start, len: bytes.len() as u32, records: 0, checksum: checksum(5, bytes) };
    let segment = Segment { generation: 5, summary: place, ..Segment::default() };
    let mut device = bytes.to_vec();
    device.resize(bytes.len().max(1).next_multiple_of(BLOCK_BYTES), 0xaa);
    if let Some(at) = flipped {
        device[at] ^= 1;
    }
    let (mut load, mut spare) = (SummaryLoad::new(&segment), None);
    for parts in 1.. {
        let (at, buffer) = load.next_read(1 << 30, spare.take());
        let len = buffer.len();
        assert!(len > 0 && len <= PART_BYTES && len.is_multiple_of(BLOCK_BYTES));
        let from = at as usize - (1 << 30) - start as usize;
        spare = Some(buffer);
        if load.take(&device[from..from + len]) {
            return (load.finish(), parts);
        }
    }
    unreachable!("a load comes to an end")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_summary_comes_in_bounded_parts(len in 0..4 * PART_BYTES + 9, seed: u8) {
        let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(37) ^ seed ^ (at >> 8) as u8).collect();
        let (loaded, parts) = load(&bytes, 8192, None);
        prop_assert_eq!(parts, len.div_ceil(PART_BYTES).max(1));
        prop_assert!(loaded.is_some_and(|loaded| loaded == bytes));
    }

    #[test]
    fn a_changed_byte_is_noticed(len in 1..3 * PART_BYTES, at: prop::sample::Index) {
        let bytes = vec![7; len];
        let (loaded, _) = load(&bytes, 4096, Some(at.index(len)));
        prop_assert!(loaded.is_none());
    }
}
