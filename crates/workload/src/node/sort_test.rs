use super::*;
use proptest::prelude::*;

#[test]
fn records_come_out_in_order_and_none_is_lost() {
    for (count, threads) in [(0, 1), (1, 4), (2, 1), (1_000, 1), (10_000, 3)] {
        let records = generate(5, count);
        let sorted = sort(&records, threads).unwrap();
        assert!(is_sorted(&sorted), "{count} in {threads}");
        assert_eq!(checksum(&sorted), checksum(&records));
    }
}

#[test]
fn a_changed_lost_or_doubled_record_changes_the_sum() {
    let records = generate(5, 100);
    let mut changed = records.clone();
    changed[99] ^= 1;
    let mut doubled = records.clone();
    doubled.copy_within(0..100, 100);
    for other in [&changed, &doubled, &records[100..].to_vec()] {
        assert_ne!(checksum(other), checksum(&records));
    }
    assert!(!is_sorted(&records), "the generator does not sort");
    assert!(sort(&records[1..], 1).is_err());
}

proptest! {
    /// Keys that are few and alike make uneven ranges; the order is that of a stable sort.
    #[test]
    fn the_sort_is_that_of_the_standard_library(
        keys in prop::collection::vec(prop::collection::vec(0..3u8, KEY_BYTES), 0..300),
        threads in 1..5usize,
    ) {
        let mut records = generate(1, keys.len());
        for (record, key) in records.chunks_exact_mut(RECORD_BYTES).zip(&keys) {
            record[..KEY_BYTES].copy_from_slice(key);
        }
        let mut expected: Vec<&[u8]> = records.chunks_exact(RECORD_BYTES).collect();
        expected.sort_by_key(|record| &record[..KEY_BYTES]);
        prop_assert_eq!(sort(&records, threads).unwrap(), expected.concat());
    }
}
