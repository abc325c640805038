//! A sort in one pass, in memory: the records of the sort benchmark ([`super::gensort`]), of which the first ten bytes are
//! the key.
//!
//! Keys are taken out with the place of their record, divided among threads by their first bits so that each has a
//! range of its own, sorted there, and the records are copied once, in order. Verified: order, number, and a sum over
//! all records that does not depend on their order.

use super::gensort::{Format, Generator, RECORD_BYTES};
use super::valsort::Summary;
use super::{Result, Watch, Work, in_threads, timed};
use std::fs::File;
use std::os::unix::fs::FileExt;
use tierstone_base::prefetch::prefetch_bytes;
use tierstone_base::{Error, ErrorKind};
use tierstone_media::IoBuffer;

/// Ranges a thread, so that uneven ones even out.
const RANGES_A_THREAD: usize = 8;
/// A sample decides where ranges begin: so many keys for each.
const SAMPLES_A_RANGE: usize = 64;

/// Records that are written to a file at a time, some 256 KiB: they stay in a processor's cache.
const WRITTEN_AT_ONCE: usize = 2_600;
/// How many records ahead of the one that is copied are asked for.
const AHEAD: usize = 12;

pub(super) type Record = [u8; RECORD_BYTES];

/// A key in the upper 80 bits, so that numbers are ordered as keys are.
pub(super) fn key_of(record: &Record) -> u128 {
    let mut bytes = [0; 16];
    bytes[..10].copy_from_slice(&record[..10]);
    u128::from_be_bytes(bytes)
}

/// A range's entries from each thread, and where they go.
type Job<'a> = (Vec<Vec<u128>>, &'a mut [u128]);

/// The keys of `parts`, in order, each with the number of its record below; those of equal keys by their number. Record
/// `r` of part `p` has the number `p · per_part + r`, which has to be below 2^32. Cost: 16 bytes a record to sort in, up to
/// 20 more for a time.
///
/// # Errors
/// A thread that died.
pub(super) fn order(parts: &[&[Record]], per_part: usize, threads: usize) -> Result<Vec<u128>> {
    let threads = threads.max(1);
    let borders = borders(parts, threads * RANGES_A_THREAD);
    // Each thread divides its share of the parts into the ranges.
    let share = parts.len().div_ceil(threads).max(1);
    let mut shares: Vec<_> = parts.chunks(share).enumerate().collect();
    let mut divided =
        in_threads(&mut shares, |(number, parts)| divide(parts, (*number * share, per_part), &borders))?;
    // Then each takes whole ranges.
    let counts: Vec<usize> =
        (0..=borders.len()).map(|range| divided.iter().map(|ranges| ranges[range].len()).sum()).collect();
    let mut entries = vec![0u128; counts.iter().sum()];
    let mut rest = entries.as_mut_slice();
    let mut jobs: Vec<Vec<Job<'_>>> = (0..threads).map(|_| Vec::new()).collect();
    for (range, count) in counts.iter().enumerate() {
        let (own, others) = rest.split_at_mut(*count);
        rest = others;
        let pieces = divided.iter_mut().map(|ranges| std::mem::take(&mut ranges[range])).collect();
        jobs[range % threads].push((pieces, own));
    }
    in_threads(&mut jobs, |ranges| {
        for (pieces, own) in ranges.drain(..) {
            let mut rest = &mut own[..];
            for piece in pieces {
                let (place, others) = rest.split_at_mut(piece.len());
                place.copy_from_slice(&piece);
                rest = others;
            }
            own.sort_unstable();
        }
    })?;
    Ok(entries)
}

/// Keys at which a new range begins, from a sample; fewer where the sample repeats itself.
fn borders(parts: &[&[Record]], ranges: usize) -> Vec<u128> {
    let count: usize = parts.iter().map(|part| part.len()).sum();
    let step = (count / (ranges * SAMPLES_A_RANGE)).max(1);
    let mut sample: Vec<u128> = parts.iter().flat_map(|part| part.iter()).step_by(step).map(key_of).collect();
    sample.sort_unstable();
    let mut borders: Vec<u128> =
        (1..ranges).filter_map(|range| sample.get(sample.len() * range / ranges).copied()).collect();
    borders.dedup();
    borders
}

/// The entries of `parts`, whose first has the number `first`, by range.
fn divide(parts: &[&[Record]], (first, per_part): (usize, usize), borders: &[u128]) -> Vec<Vec<u128>> {
    let likely = parts.iter().map(|part| part.len()).sum::<usize>() / (borders.len() + 1);
    let mut ranges: Vec<Vec<u128>> =
        (0..=borders.len()).map(|_| Vec::with_capacity(likely + likely / 4)).collect();
    for (part, records) in parts.iter().enumerate() {
        for (place, record) in records.iter().enumerate() {
            let key = key_of(record);
            let number = ((first + part) * per_part + place) as u128;
            ranges[borders.partition_point(|border| *border <= key)].push(key | number);
        }
    }
    ranges
}

/// The records in the order of their keys, those of equal keys in their old order.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for half a record or 2^32 of them and more; a thread that died.
pub fn sort(records: &[u8], threads: usize) -> Result<Vec<u8>> {
    let all = whole(records)?;
    let per_part = all.len().div_ceil(threads.max(1)).max(1);
    let parts: Vec<&[Record]> = all.chunks(per_part).collect();
    let entries = order(&parts, per_part, threads)?;
    let mut sorted = vec![0; records.len()];
    let places = sorted.as_chunks_mut::<RECORD_BYTES>().0;
    let mut jobs: Vec<_> = entries.chunks(per_part).zip(places.chunks_mut(per_part)).collect();
    in_threads(&mut jobs, |(entries, places)| gather(all, entries, places))?;
    Ok(sorted)
}

/// Sorts the records of a file into another, from its beginning on, through memory: each thread reads a part, orders
/// ranges of keys, and writes a part while it gathers it, so that neither file waits for one thread. Records of equal keys
/// keep their order. Cost: the bytes of the file and 36 bytes a record of memory at most; nothing is made durable.
///
/// # Errors
/// What reading and writing say; as [`sort`].
pub fn sort_file(input: &File, output: &File, threads: usize) -> Result<()> {
    let bytes = usize::try_from(input.metadata()?.len()).unwrap_or(usize::MAX);
    if bytes / RECORD_BYTES > u32::MAX as usize {
        return whole(&[0]).map(|_| ());
    }
    let per_part = (bytes / RECORD_BYTES).div_ceil(threads.max(1)).max(1);
    let mut memory = IoBuffer::zeroed_huge(bytes);
    let mut parts: Vec<_> = memory[..bytes].chunks_mut(per_part * RECORD_BYTES).enumerate().collect();
    for read in in_threads(&mut parts, |(part, into)| {
        input.read_exact_at(into, (*part * per_part * RECORD_BYTES) as u64)
    })? {
        read?;
    }
    let all = whole(&memory[..bytes])?;
    let parts: Vec<&[Record]> = all.chunks(per_part).collect();
    let entries = order(&parts, per_part, threads)?;
    let mut jobs: Vec<_> = entries.chunks(per_part).enumerate().collect();
    for written in in_threads(&mut jobs, |(part, entries)| {
        let mut buffer = vec![[0; RECORD_BYTES]; WRITTEN_AT_ONCE.min(entries.len())];
        let mut at = (*part * per_part * RECORD_BYTES) as u64;
        for entries in entries.chunks(WRITTEN_AT_ONCE) {
            let places = &mut buffer[..entries.len()];
            gather(all, entries, places);
            output.write_all_at(places.as_flattened(), at)?;
            at += (entries.len() * RECORD_BYTES) as u64;
        }
        Ok::<_, Error>(())
    })? {
        written?;
    }
    Ok(())
}

/// The records that `bytes` are.
fn whole(bytes: &[u8]) -> Result<&[Record]> {
    let (all, rest) = bytes.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() || u32::try_from(all.len()).is_err() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a number of whole records below 2^32"));
    }
    Ok(all)
}

/// Puts the records that `entries` name in their places. They lie anywhere, so they are asked for ahead.
fn gather(all: &[Record], entries: &[u128], places: &mut [Record]) {
    for (at, (entry, place)) in entries.iter().zip(places).enumerate() {
        if let Some(next) = entries.get(at + AHEAD) {
            prefetch_bytes(&all[*next as u32 as usize], 2);
        }
        *place = all[*entry as u32 as usize];
    }
}

/// Sorts the first `count` records of the benchmark in `threads` threads.
///
/// # Errors
/// A wrong order or sum; what [`sort`] says.
pub fn run(count: usize, threads: usize, format: Format, watch: &mut dyn Watch) -> Result<Work> {
    let mut records = vec![0; count * RECORD_BYTES];
    Generator::new(format, 0).fill(&mut records);
    let (sorted, seconds) = timed(watch, || sort(&records, threads))?;
    let summary = Summary::of(&sorted);
    summary.judge(&Summary::of(&records))?;
    Ok(Work {
        name: format!("sort of {count} records of 100 bytes in memory"),
        unit: "record",
        amount: count as f64,
        seconds,
        note: format!(
            "{threads} threads; gensort's {format:?} records, order and sum {:x} verified; making them is not counted",
            summary.checksum
        ),
        device: None,
    })
}

#[cfg(test)]
#[path = "sort_test.rs"]
mod sort_test;
