//! What is counted, against counts kept by hand.

use super::*;
use crate::region::region_test::behaves_like_bytes;
use crate::region::{LineRegion, MappedRegion, RegionSettings};
use std::collections::BTreeSet;
use tierstone_base::SeededRandom;

#[test]
fn a_byte_is_written_once_a_write_back_however_often_it_was_stored() {
    let region = WornRegion::new(LineRegion::new(256), WearDetail::Bytes);
    region.store(0, &[1; 8]);
    region.store(4, &[2; 8]);
    assert_eq!(region.counts(), WearCounts { hottest_byte_writes: Some(0), ..WearCounts::default() });
    region.write_back(0, 64);
    region.write_back(0, 64);
    let counts = region.counts();
    assert_eq!((counts.line_writes, counts.bytes_written, counts.hottest_byte_writes), (1, 12, Some(1)));
    region.store_word(64, 1);
    assert_eq!(region.compare_exchange_word(64, 1, 2), Ok(1));
    assert_eq!(region.compare_exchange_word(72, 1, 2), Err(0), "nothing is stored");
    region.store_streaming(100, &[3; 60]);
    assert_eq!(region.line_writes(), [1, 1, 1, 0]);
    assert_eq!(region.counts().bytes_written, 12 + 8 + 60, "the word goes with its line");
    region.write_back(0, 256);
    assert_eq!(region.line_writes(), [1, 1, 1, 0], "nothing was stored since");
    region.store(0, &[]);
    region.write_back(10, 0);
    region.fence().unwrap();
    assert_eq!(region.counts().line_writes, 3);
}

#[test]
fn counts_are_those_of_sets_of_bytes_kept_by_hand() {
    for seed in 0..30 {
        let mut random = SeededRandom::new(seed);
        let region = WornRegion::new(LineRegion::new(1024), WearDetail::Bytes);
        let mut dirty = BTreeSet::new();
        let (mut lines, mut bytes) = (vec![0; 16], vec![0; 1024]);
        for _ in 0..400 {
            let offset = random.below(1024);
            let len = random.below((1024 - offset).min(150) + 1);
            let range = offset..offset + len;
            let streams = random.chance(0.2);
            if random.chance(0.5) && !streams {
                region.store(offset, &vec![1; len as usize]);
                dirty.extend(range);
                continue;
            }
            if streams {
                region.store_streaming(offset, &vec![1; len as usize]);
                dirty.extend(range.clone());
            } else {
                region.write_back(offset, len);
            }
            let touched: BTreeSet<u64> = range.map(|byte| byte / 64).collect();
            let written: Vec<u64> =
                dirty.iter().copied().filter(|byte| touched.contains(&(byte / 64))).collect();
            written.iter().for_each(|byte| bytes[*byte as usize] += 1);
            let of_lines: BTreeSet<u64> = written.iter().map(|byte| byte / 64).collect();
            of_lines.iter().for_each(|line| lines[*line as usize] += 1);
            dirty.retain(|byte| !written.contains(byte));
        }
        assert_eq!((region.line_writes(), region.byte_writes()), (lines, bytes), "seed {seed}");
        let counts = region.counts();
        assert_eq!(counts.bytes_written, region.byte_writes().iter().sum::<u64>());
        assert_eq!(counts.hottest_line_writes, region.line_writes()[counts.hottest_line as usize]);
    }
}

#[test]
fn a_worn_region_holds_what_the_one_inside_holds() {
    let inner = MappedRegion::anonymous(8192, &RegionSettings::default()).unwrap();
    let region = WornRegion::new(inner, WearDetail::Lines);
    behaves_like_bytes(&region, 21);
    assert!(region.byte_writes().is_empty() && region.counts().hottest_byte_writes.is_none());
    assert!(region.counts().line_writes > 0 && region.guarantee() == Guarantee::Emulated);
}
