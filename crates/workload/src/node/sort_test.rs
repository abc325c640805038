use super::super::gensort::KEY_BYTES;
use super::*;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};

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

/// A file in memory with these bytes.
fn file_of(bytes: &[u8]) -> File {
    let file = File::from(memfd_create("sort", MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    file
}

#[test]
fn a_file_is_sorted_as_memory_is() {
    let pieces = 2 * WRITTEN_AT_ONCE;
    for (count, threads) in [(0, 2), (1, 3), (pieces - 1, 1), (pieces, 2), (3 * pieces + 7, 3)] {
        let records = made(count);
        let output = file_of(&[]);
        sort_file(&file_of(&records), &output, threads).unwrap();
        let mut sorted = vec![0; records.len()];
        output.read_exact_at(&mut sorted, 0).unwrap();
        assert_eq!(output.metadata().unwrap().len(), records.len() as u64);
        assert!(sorted == sort(&records, threads).unwrap(), "{count} records in {threads} threads");
    }
    let half = sort_file(&file_of(&made(2)[1..]), &file_of(&[]), 2);
    assert_eq!(half.unwrap_err().kind(), ErrorKind::InvalidInput);
    // What is no file has no place to read at; what takes no writes says so.
    let read_only = File::open("/dev/null").unwrap();
    assert!(sort_file(&file_of(&made(3)), &read_only, 2).is_err());
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
