//! The promises of everything here that reads foreign bytes, as functions over arbitrary bytes.
//!
//! The fuzz targets and the crate's own tests run the same bodies; a broken promise panics.

#![expect(clippy::panic, clippy::expect_used, reason = "a broken promise panics")]

use std::io::Cursor;

use tierstone_base::codec::put_varint;

use super::cache_csv::CacheCsvImport;
use super::monitor::MonitorImport;
use super::writer::{KIND_END, MAGIC, frame_check, head_bytes, head_sum};
use super::{ImportCounts, TraceHead, TraceReader, TraceRecord, TraceSource, TraceWriter};

/// Reads `data` as the text of `MONITOR`, in one piece and in pieces of every length up to 7: the same records come, all
/// of them can be written and read again, and every line is counted once.
pub fn check_monitor(data: &[u8]) {
    let import = |pieces: usize| {
        let (mut import, mut records) = (MonitorImport::new(), Vec::new());
        for piece in data.chunks(pieces.max(1)) {
            import.feed(piece, &mut |record| keep(&mut records, record)).expect("the sink has no errors");
        }
        import.finish();
        (records, import.counts().clone())
    };
    check_import(data, &import);
}

/// The same for the CSV of cache traces.
pub fn check_cache_csv(data: &[u8]) {
    let import = |pieces: usize| {
        let (mut import, mut records) = (CacheCsvImport::new(), Vec::new());
        for piece in data.chunks(pieces.max(1)) {
            import.feed(piece, &mut |record| keep(&mut records, record)).expect("the sink has no errors");
        }
        import.finish(&mut |record| keep(&mut records, record)).expect("the sink has no errors");
        (records, import.counts().clone())
    };
    check_import(data, &import);
}

/// Reads `data` as a trace file, and what is none as the bodies of frames ([`framed`]): what can be read can be
/// written, and reads as the same again.
pub fn check_file(data: &[u8]) {
    check_bytes(data);
    if !data.starts_with(MAGIC) {
        check_bytes(&framed(data));
    }
}

/// A file of frames whose checks fit, so that what lies behind the checks is reached: each body is told by a byte of its
/// length; a last one that is cut leaves the file without its end.
pub(super) fn framed(data: &[u8]) -> Vec<u8> {
    let mut bytes = head_bytes(&head()).to_vec();
    let sum = head_sum(bytes.as_slice().try_into().expect("a head has its length"));
    let (mut rest, mut number) = (data, 0);
    let mut put = |body: &[u8], number: u64| {
        put_varint(&mut bytes, body.len() as u64);
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(&frame_check(sum, number, body));
    };
    while let Some((&length, behind)) = rest.split_first() {
        let Some((body, behind)) = behind.split_at_checked(usize::from(length)) else { return bytes };
        put(body, number);
        (rest, number) = (behind, number + 1);
    }
    let mut end = vec![KIND_END];
    put_varint(&mut end, number);
    put(&end, number);
    bytes
}

fn check_bytes(data: &[u8]) {
    let Ok(mut reader) = TraceReader::new(Cursor::new(data)) else { return };
    let (mut records, mut is_damaged) = (Vec::new(), false);
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break,
            Err(_) => {
                is_damaged = true;
                break;
            }
        }
    }
    assert!(!(is_damaged && reader.is_cut()), "damage is not a cut");
    assert_eq!(round(reader.head(), &records), records);
}

fn keep(records: &mut Vec<TraceRecord>, record: &TraceRecord) -> tierstone_base::Result<()> {
    records.push(record.clone());
    Ok(())
}

fn check_import(data: &[u8], import: &dyn Fn(usize) -> (Vec<TraceRecord>, ImportCounts)) {
    let (records, counts) = import(data.len());
    for pieces in 1..8 {
        assert_eq!(import(pieces), (records.clone(), counts.clone()), "in pieces of {pieces} bytes");
    }
    let lines = data.iter().filter(|byte| **byte == b'\n').count();
    let last = usize::from(data.last().is_some_and(|byte| *byte != b'\n'));
    assert_eq!(counts.lines, (lines + last) as u64);
    assert_eq!(counts.records, records.len() as u64);
    assert_eq!(counts.operations.values().sum::<u64>(), counts.records);
    assert!(counts.refused <= counts.lines && (counts.refused > 0) == counts.first_refused_line.is_some());
    assert_eq!(round(head(), &records), records);
}

fn head() -> TraceHead {
    TraceHead { source: TraceSource::MonitorText, is_anonymous: false, began_ms: 0 }
}

/// Writes records and reads them.
fn round(head: TraceHead, records: &[TraceRecord]) -> Vec<TraceRecord> {
    let mut writer = TraceWriter::new(Vec::new(), &head).expect("memory takes everything");
    for record in records {
        if let Err(error) = writer.push(record) {
            panic!("{record:?} cannot be written: {error}");
        }
    }
    let bytes = writer.finish().expect("memory takes everything");
    let mut reader = TraceReader::new(Cursor::new(bytes)).expect("the head is right");
    let mut again = Vec::new();
    while let Some(record) = reader.next_record().expect("the records are right") {
        again.push(record);
    }
    assert!(!reader.is_cut() && reader.head() == head);
    again
}
