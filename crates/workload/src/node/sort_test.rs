use super::super::gensort::KEY_BYTES;
use super::*;
use proptest::prelude::*;

fn made(count: usize) -> Vec<u8> {
    let mut records = vec![0; count * RECORD_BYTES];
    Generator::new(Format::Binary, 5).fill(&mut records);
    records
}

#[test]
fn records_come_out_in_order_and_none_is_lost() {
    for (count, threads) in [(0, 1), (1, 4), (2, 1), (1_000, 1), (10_000, 3)] {
        let records = made(count);
        let sorted = Summary::of(&sort(&records, threads).unwrap());
        sorted.judge(&Summary::of(&records)).unwrap();
        assert_eq!(sorted.records, count as u64);
    }
    assert!(sort(&made(2)[1..], 1).is_err());
    assert!(run(5_000, 2, Format::Ascii, &mut ()).is_ok_and(|work| work.amount == 5_000.0));
}

proptest! {
    /// Keys that are few and alike make uneven ranges; the order is that of a stable sort.
    #[test]
    fn the_sort_is_that_of_the_standard_library(
        keys in prop::collection::vec(prop::collection::vec(0..3u8, KEY_BYTES), 0..300),
        threads in 1..5usize,
    ) {
        let mut records = made(keys.len());
        for (record, key) in records.chunks_exact_mut(RECORD_BYTES).zip(&keys) {
            record[..KEY_BYTES].copy_from_slice(key);
        }
        let mut expected: Vec<&[u8]> = records.chunks_exact(RECORD_BYTES).collect();
        expected.sort_by_key(|record| &record[..KEY_BYTES]);
        prop_assert_eq!(sort(&records, threads).unwrap(), expected.concat());
    }
}
