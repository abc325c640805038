//! A segment's summary: for each record where it is, whose it is and what becomes of it, so that
//! recovery and cleaning read about ten bytes a record instead of the record.
//!
//! An entry: flags u8 (record flags, and `SAME_KEYSPACE`), position u64, sequence (zigzag difference
//! to the entry before, varint), units since the end of the entry before (varint), units of the
//! record (varint), keyspace (varint, unless the same), expiry u64 if the record has one.

use super::record::{FLAG_EXPIRY, RecordHeader};
use tierstone_base::codec::{Reader, put_varint};
use tierstone_base::{KeyspaceId, Position, Seq};

const SAME_KEYSPACE: u8 = 0x80;

/// The longest entry in bytes: a bound for the space that a segment keeps free for its summary.
pub const ENTRY_BYTES_MAX: usize = 1 + 8 + 10 + 5 + 5 + 5 + 8;

/// One record in a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SummaryEntry {
    /// The key's position.
    pub position: Position,
    /// The key's keyspace.
    pub keyspace: KeyspaceId,
    /// The record's sequence.
    pub seq: Seq,
    /// The record's flags.
    pub flags: u8,
    /// Where it begins in the segment, in units.
    pub unit: u32,
    /// How many units it takes.
    pub units: u32,
    /// Its expiry, zero for none.
    pub expiry_ms: u64,
}

impl SummaryEntry {
    /// The entry for a record whose key has `position` and that lies at `unit`.
    pub fn new(header: &RecordHeader, position: Position, unit: u32) -> Self {
        SummaryEntry {
            position,
            keyspace: header.keyspace,
            seq: header.seq,
            flags: header.flags,
            unit,
            units: header.units() as u32,
            expiry_ms: header.expiry_ms,
        }
    }
}

/// Collects the entries of an open segment. Memory: about 12 bytes a record.
#[derive(Clone, Debug, Default)]
pub struct SummaryBuilder {
    bytes: Vec<u8>,
    last: SummaryEntry,
    records: u32,
    seq_range: Option<(Seq, Seq)>,
    longest_units: u32,
}

impl SummaryBuilder {
    /// Adds the next record; records come in order of their place.
    pub fn push(&mut self, entry: SummaryEntry) {
        let same = entry.keyspace == self.last.keyspace;
        self.bytes.push(entry.flags | if same { SAME_KEYSPACE } else { 0 });
        self.bytes.extend_from_slice(&entry.position.0.to_le_bytes());
        let difference = entry.seq.wrapping_sub(self.last.seq) as i64;
        put_varint(&mut self.bytes, ((difference << 1) ^ (difference >> 63)) as u64);
        put_varint(&mut self.bytes, u64::from(entry.unit - (self.last.unit + self.last.units)));
        put_varint(&mut self.bytes, u64::from(entry.units));
        if !same {
            put_varint(&mut self.bytes, u64::from(entry.keyspace.0));
        }
        if entry.flags & FLAG_EXPIRY != 0 {
            self.bytes.extend_from_slice(&entry.expiry_ms.to_le_bytes());
        }
        let (low, high) = self.seq_range.unwrap_or((entry.seq, entry.seq));
        self.seq_range = Some((low.min(entry.seq), high.max(entry.seq)));
        self.longest_units = self.longest_units.max(entry.units);
        self.records += 1;
        self.last = entry;
    }

    /// The encoded entries so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many there are.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// The lowest and highest sequence; zeros when empty.
    pub fn seq_range(&self) -> (Seq, Seq) {
        self.seq_range.unwrap_or((0, 0))
    }

    /// Units of the longest record.
    pub fn longest_units(&self) -> u32 {
        self.longest_units
    }
}

/// Reads the entries of a summary; ends early, with [`SummaryReader::damaged`], on bytes that no
/// builder wrote.
#[derive(Clone, Debug)]
pub struct SummaryReader<'a> {
    reader: Reader<'a>,
    last: SummaryEntry,
    left: u32,
    damaged: bool,
}

/// Where a reader of a summary stands, to go on later.
#[derive(Clone, Copy, Debug, Default)]
pub struct SummaryCursor {
    consumed: usize,
    last: SummaryEntry,
    left: u32,
}

impl SummaryCursor {
    /// The start of a summary of `records` entries.
    pub fn new(records: u32) -> Self {
        SummaryCursor { left: records, ..SummaryCursor::default() }
    }

    /// Whether every entry has been read.
    pub fn is_at_end(&self) -> bool {
        self.left == 0
    }
}

impl<'a> SummaryReader<'a> {
    /// Goes on reading `bytes` at `cursor`.
    pub fn resume(bytes: &'a [u8], cursor: SummaryCursor) -> Self {
        let reader = Reader::new(bytes.get(cursor.consumed..).unwrap_or_default());
        SummaryReader { reader, last: cursor.last, left: cursor.left, damaged: false }
    }

    /// Where this reader of `bytes` stands.
    pub fn cursor(&self, bytes: &'a [u8]) -> SummaryCursor {
        SummaryCursor { consumed: bytes.len() - self.reader.rest().len(), last: self.last, left: self.left }
    }

    /// Reads `records` entries from `bytes`.
    pub fn new(bytes: &'a [u8], records: u32) -> Self {
        SummaryReader {
            reader: Reader::new(bytes),
            last: SummaryEntry::default(),
            left: records,
            damaged: false,
        }
    }

    /// Whether the bytes ended or made no sense before all entries were read.
    pub fn damaged(&self) -> bool {
        self.damaged
    }

    fn read(&mut self) -> Option<SummaryEntry> {
        let first = self.reader.u8()?;
        let flags = first & !SAME_KEYSPACE;
        let position = Position(self.reader.u64()?);
        let zigzag = self.reader.varint()?;
        let difference = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let gap = u32::try_from(self.reader.varint()?).ok()?;
        let units = u32::try_from(self.reader.varint()?).ok()?;
        let keyspace = if first & SAME_KEYSPACE != 0 {
            self.last.keyspace
        } else {
            KeyspaceId(u32::try_from(self.reader.varint()?).ok()?)
        };
        let expiry_ms = if flags & FLAG_EXPIRY != 0 { self.reader.u64()? } else { 0 };
        let unit = self.last.unit.checked_add(self.last.units)?.checked_add(gap)?;
        unit.checked_add(units)?;
        let seq = self.last.seq.wrapping_add(difference as u64);
        Some(SummaryEntry { position, keyspace, seq, flags, unit, units, expiry_ms })
    }
}

impl Iterator for SummaryReader<'_> {
    type Item = SummaryEntry;

    fn next(&mut self) -> Option<SummaryEntry> {
        self.left = self.left.checked_sub(1)?;
        let Some(entry) = self.read() else {
            self.damaged = true;
            self.left = 0;
            return None;
        };
        self.last = entry;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_come_back(
            raw in proptest::collection::vec((any::<u64>(), 0..3u32, 0..1u64 << 48, any::<bool>(), 0..9u32, 1..9u32), 0..50)
        ) {
            let mut builder = SummaryBuilder::default();
            let mut unit = 128;
            let mut entries = Vec::new();
            for (position, keyspace, seq, expires, gap, units) in raw {
                unit += gap;
                let (flags, expiry_ms) = if expires { (FLAG_EXPIRY, position) } else { (1, 0) };
                let keyspace = KeyspaceId(keyspace);
                let entry = SummaryEntry { position: Position(position), keyspace, seq, flags, unit, units, expiry_ms };
                builder.push(entry);
                entries.push(entry);
                unit += units;
            }
            prop_assert!(builder.bytes().len() <= entries.len() * ENTRY_BYTES_MAX);
            let mut reader = SummaryReader::new(builder.bytes(), builder.records());
            let read: Vec<SummaryEntry> = reader.by_ref().collect();
            prop_assert_eq!(read, entries);
            prop_assert!(!reader.damaged());
        }

        #[test]
        fn hostile_summaries_end(bytes: Vec<u8>, records in 0..1000u32) {
            let mut reader = SummaryReader::new(&bytes, records);
            let read = reader.by_ref().count();
            prop_assert!(read == records as usize || reader.damaged());
        }
    }
}
