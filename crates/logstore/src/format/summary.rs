//! A segment's summary: for each record where it is, whose it is and what becomes of it, so that
//! recovery and cleaning read about ten bytes a record instead of the record.
//!
//! An entry: flags u8 (record flags, and `SAME_KEYSPACE`), position u64, sequence (zigzag difference
//! to the entry before, varint), units since the end of the entry before (varint), units of the
//! record (varint), keyspace (varint, unless the same), expiry u64 if the record has one; for touches how
//! much lower the sequence is that they name (varint), and the place (varint); for records with
//! `FLAG_KEYED` length of the key (varint) and key.

use super::record::{FLAG_EXPIRY, FLAG_KEYED, RecordHeader, Touched, is_tombstone, is_touch};
use tierstone_base::codec::{Reader, put_varint};
use tierstone_base::{KeyspaceId, Position, Seq};

const SAME_KEYSPACE: u8 = 0x80;

/// The longest entry in bytes, key and what a touch names apart: a bound for the space that a segment keeps
/// free for its summary. With these it is longer by what [`key_bytes`] says.
pub const ENTRY_BYTES_MAX: usize = 1 + 8 + 10 + 5 + 5 + 5 + 8;

/// Bytes that what a touch names adds to its entry at most.
const TOUCHED_BYTES_MAX: usize = 10 + 6;

/// Bytes of a difference of sequences, of 48 bits each, at most.
const SEQ_BYTES_MAX: usize = 7;
/// Bytes of a place in a segment, in units, at most.
const UNIT_BYTES_MAX: usize = 3;
/// Bytes of a keyspace's number at most.
const KEYSPACE_BYTES_MAX: usize = 5;

/// Bytes of a number as a varint.
fn varint_len(number: u32) -> usize {
    (u32::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize
}

/// Bytes that the key, or what a touch names, adds to the entry of a record at most; a record's key has at
/// most 65,535.
pub fn key_bytes(header: &RecordHeader) -> usize {
    let key = if header.flags & FLAG_KEYED != 0 { 3 + header.key_len } else { 0 };
    key + if header.is_touch() { TOUCHED_BYTES_MAX } else { 0 }
}

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
    /// Bytes of the key that the entry carries; zero without `FLAG_KEYED`.
    pub key_len: u16,
    /// What a touch names; zeros in others.
    pub touched: Touched,
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
            key_len: header.summary_key_len() as u16,
            touched: header.touched,
        }
    }

    /// Whether the record says that its key has no value.
    pub fn is_tombstone(&self) -> bool {
        is_tombstone(self.flags)
    }

    /// Whether the record changes the expiry of a value that lies elsewhere.
    pub fn is_touch(&self) -> bool {
        is_touch(self.flags)
    }

    /// What [`key_bytes`] says of its record.
    pub fn key_bytes(&self) -> usize {
        let key = if self.is_keyed() { 3 + usize::from(self.key_len) } else { 0 };
        key + if self.is_touch() { TOUCHED_BYTES_MAX } else { 0 }
    }

    /// Bytes of it at most, whatever entries are before it: less than [`ENTRY_BYTES_MAX`] and
    /// [`SummaryEntry::key_bytes`], which know nothing of the record.
    pub fn bytes_max(&self) -> usize {
        let expiry = if self.flags & FLAG_EXPIRY != 0 { 8 } else { 0 };
        1 + 8
            + SEQ_BYTES_MAX
            + UNIT_BYTES_MAX
            + varint_len(self.units)
            + KEYSPACE_BYTES_MAX
            + expiry
            + self.key_bytes()
    }

    /// Whether it carries the record's key.
    pub fn is_keyed(&self) -> bool {
        self.flags & FLAG_KEYED != 0
    }
}

/// What the next entry is told against.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    keyspace: KeyspaceId,
    seq: Seq,
    /// Where the record ends, in units.
    end: u32,
}

/// Where a summary stood.
#[derive(Clone, Copy, Debug, Default)]
pub struct SummaryMark {
    bytes: usize,
    last: Last,
    records: u32,
    seq_range: Option<(Seq, Seq)>,
    longest_units: u32,
}

/// Collects the entries of an open segment. Memory: about 12 bytes a record, and the keys of ordered
/// keyspaces.
#[derive(Clone, Debug, Default)]
pub struct SummaryBuilder {
    bytes: Vec<u8>,
    last: Last,
    records: u32,
    seq_range: Option<(Seq, Seq)>,
    longest_units: u32,
}

impl SummaryBuilder {
    /// Adds the next record; records come in order of their place. `key` is the record's; it is kept if
    /// the entry [is keyed](SummaryEntry::is_keyed).
    #[inline]
    pub fn push(&mut self, entry: SummaryEntry, key: &[u8]) {
        let same = entry.keyspace == self.last.keyspace;
        self.bytes.push(entry.flags | if same { SAME_KEYSPACE } else { 0 });
        self.bytes.extend_from_slice(&entry.position.0.to_le_bytes());
        let difference = entry.seq.wrapping_sub(self.last.seq) as i64;
        put_varint(&mut self.bytes, ((difference << 1) ^ (difference >> 63)) as u64);
        put_varint(&mut self.bytes, u64::from(entry.unit - self.last.end));
        put_varint(&mut self.bytes, u64::from(entry.units));
        if !same {
            put_varint(&mut self.bytes, u64::from(entry.keyspace.0));
        }
        if entry.flags & FLAG_EXPIRY != 0 {
            self.bytes.extend_from_slice(&entry.expiry_ms.to_le_bytes());
        }
        if entry.is_touch() {
            put_varint(&mut self.bytes, entry.seq.wrapping_sub(entry.touched.seq));
            put_varint(&mut self.bytes, entry.touched.place);
        }
        if entry.is_keyed() {
            debug_assert_eq!(key.len(), usize::from(entry.key_len));
            put_varint(&mut self.bytes, key.len() as u64);
            self.bytes.extend_from_slice(key);
        }
        let (low, high) = self.seq_range.unwrap_or((entry.seq, entry.seq));
        self.seq_range = Some((low.min(entry.seq), high.max(entry.seq)));
        self.longest_units = self.longest_units.max(entry.units);
        self.records += 1;
        // Piece by piece: a copy of the whole would wait until the pieces, which were written just now, and all that was
        // written before them has left the processor.
        self.last = Last { keyspace: entry.keyspace, seq: entry.seq, end: entry.unit + entry.units };
    }

    /// The encoded entries so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets all entries; their memory stays.
    pub fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = SummaryBuilder { bytes, ..SummaryBuilder::default() };
    }

    /// Where it stands.
    pub fn mark(&self) -> SummaryMark {
        SummaryMark {
            bytes: self.bytes.len(),
            last: self.last,
            records: self.records,
            seq_range: self.seq_range,
            longest_units: self.longest_units,
        }
    }

    /// Takes the entries after `mark` out again: gives them encoded, and where a reader of these begins.
    pub fn take_after(&mut self, mark: SummaryMark) -> (Vec<u8>, SummaryCursor) {
        let taken = self.bytes.split_off(mark.bytes.min(self.bytes.len()));
        let Last { keyspace, seq, end } = mark.last;
        let last = SummaryEntry { keyspace, seq, unit: end, ..SummaryEntry::default() };
        let cursor = SummaryCursor { consumed: 0, last, left: self.records - mark.records };
        (self.last, self.records) = (mark.last, mark.records);
        (self.seq_range, self.longest_units) = (mark.seq_range, mark.longest_units);
        (taken, cursor)
    }

    /// Bytes of memory that its entries take, or took.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Where the last record ends in the segment, in units.
    pub fn end_unit(&self) -> u32 {
        self.last.end
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

    /// Where the record of the last entry that was read ends in the segment, in units.
    pub fn end_unit(&self) -> u32 {
        self.last.unit + self.last.units
    }

    /// How many bytes of the summary have been read.
    pub fn consumed(&self) -> usize {
        self.consumed
    }

    /// The same place in a part of the summary that begins at its byte `start`, and back again with a negative one.
    #[must_use]
    pub fn moved(&self, start: isize) -> Self {
        SummaryCursor { consumed: self.consumed.saturating_add_signed(start), ..*self }
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

    /// The next entry, with its key if it carries one.
    pub fn next_keyed(&mut self) -> Option<(SummaryEntry, &'a [u8])> {
        self.left = self.left.checked_sub(1)?;
        let Some((entry, key)) = self.read() else {
            self.damaged = true;
            self.left = 0;
            return None;
        };
        self.last = entry;
        Some((entry, key))
    }

    fn read(&mut self) -> Option<(SummaryEntry, &'a [u8])> {
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
        let seq = self.last.seq.wrapping_add(difference as u64);
        let touched = if is_touch(flags) {
            Touched { seq: seq.wrapping_sub(self.reader.varint()?), place: self.reader.varint()? }
        } else {
            Touched::default()
        };
        let mut key: &[u8] = &[];
        if flags & FLAG_KEYED != 0 {
            let len = u16::try_from(self.reader.varint()?).ok()?;
            key = self.reader.bytes(usize::from(len))?;
        }
        let unit = self.last.unit.checked_add(self.last.units)?.checked_add(gap)?;
        unit.checked_add(units)?;
        let key_len = key.len() as u16;
        let entry = SummaryEntry { position, keyspace, seq, flags, unit, units, expiry_ms, key_len, touched };
        Some((entry, key))
    }
}

impl Iterator for SummaryReader<'_> {
    type Item = SummaryEntry;

    fn next(&mut self) -> Option<SummaryEntry> {
        self.next_keyed().map(|(entry, _)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = Option<Vec<u8>>> {
        proptest::option::of(prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            Just(vec![7; usize::from(u16::MAX)]),
        ])
    }

    proptest! {
        #[test]
        fn entries_come_back(
            raw in proptest::collection::vec((any::<u64>(), 0..3u32, 0..1u64 << 48, 0..3u8, 0..9u32, 1..9u32, keys()), 0..50)
        ) {
            let mut builder = SummaryBuilder::default();
            let mut unit = 128;
            let mut entries = Vec::new();
            let mut longest = 0;
            for (position, keyspace, seq, kind, gap, units, key) in raw {
                unit += gap;
                let (flags, expiry_ms) = [(FLAG_EXPIRY, position), (1, 0), (1 | FLAG_EXPIRY, position)][usize::from(kind)];
                let touched = match kind {
                    2 => Touched { seq: position % (1 << 48), place: position % (1 << 37) },
                    _ => Touched::default(),
                };
                let flags = flags | if key.is_some() { FLAG_KEYED } else { 0 };
                let keyspace = KeyspaceId(keyspace);
                let key = key.unwrap_or_default();
                let entry = SummaryEntry {
                    position: Position(position), keyspace, seq, flags, unit, units, expiry_ms, key_len: key.len() as u16, touched,
                };
                builder.push(entry, &key);
                let key_bytes = key_bytes(&RecordHeader { flags, key_len: key.len(), ..Default::default() });
                prop_assert_eq!(entry.key_bytes(), key_bytes);
                prop_assert!(entry.bytes_max() <= ENTRY_BYTES_MAX + key_bytes);
                longest += entry.bytes_max();
                entries.push((entry, key));
                unit += units;
            }
            prop_assert!(builder.bytes().len() <= longest);
            let mut reader = SummaryReader::new(builder.bytes(), builder.records());
            let mut read = Vec::new();
            while let Some((entry, key)) = reader.next_keyed() {
                read.push((entry, key.to_vec()));
            }
            prop_assert_eq!(&read, &entries);
            let plain: Vec<SummaryEntry> = SummaryReader::new(builder.bytes(), builder.records()).collect();
            prop_assert!(plain.iter().eq(entries.iter().map(|(entry, _)| entry)));
            prop_assert!(!reader.damaged());
        }

        /// A key that claims more bytes than there are, or than a key may have, ends the summary there.
        #[test]
        fn hostile_key_lengths_end_the_summary(claimed in any::<u64>(), there in 0..80_000usize) {
            let mut bytes = vec![FLAG_KEYED | SAME_KEYSPACE];
            bytes.extend_from_slice(&[0; 8 + 1 + 1 + 1]);
            put_varint(&mut bytes, claimed);
            bytes.resize(bytes.len() + there, b'k');
            let mut reader = SummaryReader::new(&bytes, 1);
            let fits = claimed <= there as u64 && claimed <= u64::from(u16::MAX);
            match reader.next_keyed() {
                Some((entry, key)) => prop_assert!(fits && key.len() as u64 == claimed && entry.key_len == key.len() as u16),
                None => prop_assert!(!fits && reader.damaged()),
            }
        }

        #[test]
        fn hostile_summaries_end(bytes: Vec<u8>, records in 0..1000u32) {
            let mut reader = SummaryReader::new(&bytes, records);
            let read = reader.by_ref().count();
            prop_assert!(read == records as usize || reader.damaged());
        }
    }
}
