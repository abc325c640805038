//! A sort in one pass, in memory: records of 100 bytes, of which the first ten are the key (the form of the sort
//! benchmark's gensort; the generator is our own, so sums are not those of its tools).
//!
//! Keys are taken out with the place of their record, divided among threads by their first bits so that each has a
//! range of its own, sorted there, and the records are copied once, in order. Verified: order, number, and a sum over
//! all records that does not depend on their order.

use super::{Result, Watch, Work, in_threads, timed, wrong};
use tierstone_base::{Error, ErrorKind, SeededRandom};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 100;
/// Bytes of its key.
pub const KEY_BYTES: usize = 10;
/// Ranges a thread, so that uneven ones even out.
const RANGES_A_THREAD: usize = 8;
/// A sample decides where ranges begin: so many keys for each.
const SAMPLES_A_RANGE: usize = 64;

/// A key and its record's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    head: u64,
    tail: u16,
    record: u32,
}

impl Entry {
    fn of(record: &[u8], number: usize) -> Entry {
        let mut head = [0; 8];
        head.copy_from_slice(&record[..8]);
        Entry {
            head: u64::from_be_bytes(head),
            tail: u16::from_be_bytes([record[8], record[9]]),
            record: number as u32,
        }
    }
}

/// `count` records out of `seed`.
pub fn generate(seed: u64, count: usize) -> Vec<u8> {
    let mut random = SeededRandom::new(seed);
    let mut records = vec![0; count * RECORD_BYTES];
    for (number, record) in records.chunks_exact_mut(RECORD_BYTES).enumerate() {
        random.fill(&mut record[..KEY_BYTES]);
        record[KEY_BYTES..KEY_BYTES + 8].copy_from_slice(&(number as u64).to_be_bytes());
        record[KEY_BYTES + 8..].fill(b'A' + (number % 26) as u8);
    }
    records
}

/// A sum over all records: that of their hashes, whatever their order.
pub fn checksum(records: &[u8]) -> u64 {
    records
        .chunks_exact(RECORD_BYTES)
        .fold(0u64, |sum, record| sum.wrapping_add(tierstone_base::checksum::checksum(1, record)))
}

/// Whether keys rise, equal ones allowed.
pub fn is_sorted(records: &[u8]) -> bool {
    let key = |record: &[u8]| -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(&record[..KEY_BYTES]);
        key
    };
    records.chunks_exact(RECORD_BYTES).map(key).is_sorted()
}

/// The records in the order of their keys, those of equal keys in their old order.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for half a record or 2^32 of them and more; a thread that died.
pub fn sort(records: &[u8], threads: usize) -> Result<Vec<u8>> {
    let count = records.len() / RECORD_BYTES;
    if !records.len().is_multiple_of(RECORD_BYTES) || u32::try_from(count).is_err() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a number of whole records below 2^32"));
    }
    let threads = threads.max(1);
    let borders = borders(records, threads * RANGES_A_THREAD);
    // Each thread divides its part of the input into the ranges.
    let part = count.div_ceil(threads).max(1);
    let mut parts: Vec<(usize, &[u8])> = records
        .chunks(part * RECORD_BYTES)
        .enumerate()
        .map(|(number, part_of)| (number * part, part_of))
        .collect();
    let divided = in_threads(&mut parts, |(first, part)| divide(part, *first, &borders))?;
    // Then each takes whole ranges and copies their records to where they belong.
    let mut sorted = vec![0; records.len()];
    let mut rest = sorted.as_mut_slice();
    let mut jobs: Vec<Vec<(usize, &mut [u8])>> = (0..threads).map(|_| Vec::new()).collect();
    for range in 0..=borders.len() {
        let entries: usize = divided.iter().map(|ranges| ranges[range].len()).sum();
        let (own, others) = rest.split_at_mut(entries * RECORD_BYTES);
        rest = others;
        jobs[range % threads].push((range, own));
    }
    in_threads(&mut jobs, |ranges| {
        for (range, output) in ranges {
            let mut entries: Vec<Entry> =
                divided.iter().flat_map(|all| all[*range].iter().copied()).collect();
            entries.sort_unstable();
            for (entry, place) in entries.iter().zip(output.chunks_exact_mut(RECORD_BYTES)) {
                let start = entry.record as usize * RECORD_BYTES;
                place.copy_from_slice(&records[start..start + RECORD_BYTES]);
            }
        }
    })?;
    Ok(sorted)
}

/// Heads of keys at which a new range begins, from a sample; fewer where the sample repeats itself.
fn borders(records: &[u8], ranges: usize) -> Vec<u64> {
    let count = records.len() / RECORD_BYTES;
    let step = (count / (ranges * SAMPLES_A_RANGE)).max(1);
    let mut sample: Vec<u64> =
        records.chunks_exact(RECORD_BYTES).step_by(step).map(|record| Entry::of(record, 0).head).collect();
    sample.sort_unstable();
    let mut borders: Vec<u64> =
        (1..ranges).filter_map(|range| sample.get(sample.len() * range / ranges).copied()).collect();
    borders.dedup();
    borders
}

/// The entries of `part`, whose first record has the number `first`, by range.
fn divide(part: &[u8], first: usize, borders: &[u64]) -> Vec<Vec<Entry>> {
    let likely = part.len() / RECORD_BYTES / (borders.len() + 1);
    let mut ranges: Vec<Vec<Entry>> =
        (0..=borders.len()).map(|_| Vec::with_capacity(likely + likely / 4)).collect();
    for (number, record) in part.chunks_exact(RECORD_BYTES).enumerate() {
        let entry = Entry::of(record, first + number);
        ranges[borders.partition_point(|border| *border <= entry.head)].push(entry);
    }
    ranges
}

/// Sorts `count` records in `threads` threads.
///
/// # Errors
/// A wrong order or sum; what [`sort`] says.
pub fn run(count: usize, threads: usize, seed: u64, watch: &mut dyn Watch) -> Result<Work> {
    let records = generate(seed, count);
    let before = checksum(&records);
    let (sorted, seconds) = timed(watch, || sort(&records, threads))?;
    if !is_sorted(&sorted) {
        return Err(wrong("the records are not in order"));
    }
    if sorted.len() != records.len() || checksum(&sorted) != before {
        return Err(wrong("the sorted records are not those of the input"));
    }
    Ok(Work {
        name: format!("sort of {count} records of 100 bytes in memory"),
        unit: "record",
        amount: count as f64,
        seconds,
        note: format!(
            "{threads} threads; order and sum {before:016x} verified; making the records is not counted"
        ),
    })
}

#[cfg(test)]
#[path = "sort_test.rs"]
mod sort_test;
