use super::*;
use crate::node::gensort::{Format, Generator};
use proptest::prelude::*;

fn records(keys: &[[u8; 2]]) -> Vec<u8> {
    let mut records = vec![0; keys.len() * RECORD_BYTES];
    Generator::new(Format::Binary, 7).fill(&mut records);
    for (record, key) in records.chunks_exact_mut(RECORD_BYTES).zip(keys) {
        record[..KEY_BYTES].fill(0);
        record[8..10].copy_from_slice(key);
    }
    records
}

#[test]
fn order_duplicates_and_the_first_unordered_record_are_told() {
    let told = Summary::of(&records(&[[0, 1], [0, 1], [2, 0], [1, 9], [1, 8], [9, 9]]));
    assert_eq!((told.records, told.duplicate_keys, told.unordered), (6, 1, 2));
    assert_eq!(told.first_unordered, Some(3));
    let text = told.to_string();
    assert!(text.starts_with("First unordered record is record 3\nRecords: 6\nChecksum: "), "{text}");
    assert!(text.ends_with("\nERROR - there are 2 unordered records"), "{text}");
    let text = Summary::of(&records(&[[1, 1], [1, 1]])).to_string();
    assert!(text.ends_with("\nDuplicate keys: 1\nSUCCESS - all records are in order"), "{text}");
}

#[test]
fn a_changed_lost_or_doubled_record_changes_the_sum() {
    let whole = records(&[[0, 1], [0, 2], [0, 3]]);
    let mut changed = whole.clone();
    changed[299] ^= 1;
    let mut doubled = whole.clone();
    doubled.copy_within(0..100, 100);
    for other in [&changed, &doubled, &whole[100..].to_vec()] {
        assert_ne!(Summary::of(other).checksum, Summary::of(&whole).checksum);
    }
    let backward: Vec<u8> = whole.chunks(100).rev().flatten().copied().collect();
    assert_eq!(Summary::of(&backward).checksum, Summary::of(&whole).checksum);
}

proptest! {
    #[test]
    fn summaries_of_parts_make_that_of_the_whole(
        keys in prop::collection::vec((0..3u8, 0..3u8).prop_map(|(a, b)| [a, b]), 0..30),
        cut in 0..31usize,
    ) {
        let all = records(&keys);
        let (left, right) = all.split_at(cut.min(keys.len()) * RECORD_BYTES);
        let mut joined = Summary::of(left);
        joined.append(&Summary::of(right));
        prop_assert_eq!(joined, Summary::of(&all));
    }
}
