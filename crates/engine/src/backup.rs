//! Backups of an engine that serves ([`crate::Engine::begin_backup`]): the cut, and pieces of the records that
//! counted then, whatever is written, deleted or dropped afterwards.
//!
//! Cost: every part with records is read once; what is replaced meanwhile keeps its space until it has been read.
//!
//! Errors of beginning: `Busy` where a backup is under way or the engine is being closed; as a write's where the
//! engine has failed. Errors of [`crate::Engine::take_backup`] end the backup: `SnapshotLost` when it was given up,
//! because the engine was full and what it had still to read took the space; `Corrupt` when a record that
//! counts cannot be read; `Busy` when the engine is being closed; `InvalidInput` when there is no backup.
//!
//! A piece is records one after the other, in no particular order. Each: keyspace (varint), kind (u8), expiry in
//! milliseconds since 1970 or 0 (varint), length of the key (varint), length of the value (varint), key, value.

use crate::contract::ValueKind;
use tierstone_base::codec::{Reader, put_varint};
use tierstone_base::{KeyspaceId, Seq};

/// The longest key of a record, in bytes.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupCut {
    /// Writes up to this one.
    pub seq: Seq,
    /// Records that had expired by then are left out, in milliseconds since 1970.
    pub wall_ms: u64,
    /// No key of the engine expires by an earlier time ([`crate::Engine::past_ms`]).
    pub past_ms: u64,
    /// About how many bytes of records there are.
    pub bytes: u64,
    /// The size of the parts that the engine keeps its records in, in bytes: an engine with parts of this size takes
    /// every record.
    pub segment_bytes: u64,
}

/// Some records of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupPiece {
    /// How many.
    pub records: u64,
    /// The records.
    pub bytes: Vec<u8>,
}

/// What a backup has to give now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupStep {
    /// The next piece.
    Piece(BackupPiece),
    /// Nothing yet: step first.
    Later,
    /// Everything was given, and all of it is durable here.
    End,
}

/// A record of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupRecord<'a> {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The kind of its value.
    pub kind: ValueKind,
    /// When it expires, in milliseconds since 1970; zero: never.
    pub expiry_ms: u64,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl BackupPiece {
    /// Adds a record.
    pub fn push(&mut self, record: &BackupRecord<'_>) {
        put_varint(&mut self.bytes, u64::from(record.keyspace.0));
        self.bytes.push(record.kind.0);
        put_varint(&mut self.bytes, record.expiry_ms);
        put_varint(&mut self.bytes, record.key.len() as u64);
        put_varint(&mut self.bytes, record.value.len() as u64);
        self.bytes.extend_from_slice(record.key);
        self.bytes.extend_from_slice(record.value);
        self.records += 1;
    }
}

/// Reads the records of a piece; ends early, with [`BackupRecords::is_damaged`], on bytes that no piece has.
#[derive(Clone, Debug)]
pub struct BackupRecords<'a> {
    reader: Reader<'a>,
    is_damaged: bool,
}

impl<'a> BackupRecords<'a> {
    /// The records in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        BackupRecords { reader: Reader::new(bytes), is_damaged: false }
    }

    /// Whether the bytes made no sense.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    fn read(&mut self) -> Option<BackupRecord<'a>> {
        let reader = &mut self.reader;
        let keyspace = KeyspaceId(u32::try_from(reader.varint()?).ok()?);
        let kind = ValueKind(reader.u8()?);
        let expiry_ms = reader.varint()?;
        let key_len = usize::try_from(reader.varint()?).ok().filter(|len| *len <= KEY_BYTES_MAX)?;
        let value_len = usize::try_from(reader.varint()?).ok()?;
        let (key, value) = (reader.bytes(key_len)?, reader.bytes(value_len)?);
        Some(BackupRecord { keyspace, kind, expiry_ms, key, value })
    }
}

impl<'a> Iterator for BackupRecords<'a> {
    type Item = BackupRecord<'a>;

    fn next(&mut self) -> Option<BackupRecord<'a>> {
        if self.is_damaged || self.reader.rest().is_empty() {
            return None;
        }
        let record = self.read();
        self.is_damaged = record.is_none();
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record<'a>(key: &'a [u8], value: &'a [u8]) -> BackupRecord<'a> {
        BackupRecord { keyspace: KeyspaceId(1 << 31 | 7), kind: ValueKind(2), expiry_ms: 1 << 41, key, value }
    }

    #[test]
    fn records_come_back_and_no_cut_of_their_bytes_is_taken_for_them() {
        let mut piece = BackupPiece::default();
        let records = [record(b"key", b"value"), record(b"", b""), record(&[7; 300], &[9; 70_000])];
        let mut ends = vec![0];
        for record in &records {
            piece.push(record);
            ends.push(piece.bytes.len());
        }
        assert!(BackupRecords::new(&piece.bytes).eq(records));
        assert_eq!(piece.records, 3);
        for cut in 0..piece.bytes.len() {
            let mut reader = BackupRecords::new(&piece.bytes[..cut]);
            let count = reader.by_ref().count();
            assert!(count < 3, "cut at {cut}");
            assert_eq!(reader.is_damaged(), !ends.contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn a_key_that_is_too_long_is_no_record() {
        let mut piece = BackupPiece::default();
        piece.push(&record(&vec![1; KEY_BYTES_MAX + 1], b""));
        let mut reader = BackupRecords::new(&piece.bytes);
        assert!(reader.next().is_none() && reader.is_damaged());
    }
}
