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
//! An engine keeps its records in **parts** that are written once and have a name (segments). A backup that is made
//! *since* another one takes only what that one does not hold: of parts that it holds it tells their names, and which
//! of their records count no more. A record never begins to count again while the engine is open; over an opening
//! that may be otherwise, so there a part is kept if all its records are the same, and else given again.
//!
//! A piece of records: the part (varint) and its life (u64), then records one after the other. Each: place in the part (varint),
//! keyspace (varint), kind (u8), expiry in milliseconds since 1970 or 0 (varint), length of the key (varint), length
//! of the value (varint), key, value. In the first version of the format there was neither part nor place.
//!
//! A piece of parts: [`PartEntry`], one after the other.

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
    /// every record; 0: one with parts of any size.
    pub segment_bytes: u64,
    /// The id of the store; another one has other parts.
    pub store: u64,
    /// How often it was opened.
    pub opening: u64,
}

/// What an earlier backup holds of one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupSince {
    /// [`BackupCut::opening`] of it.
    pub opening: u64,
    /// The time of its cut, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// Its parts, in the order of their numbers.
    pub parts: Vec<HeldPart>,
}

/// A part in one of its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartName {
    /// Its number.
    pub part: u32,
    /// This life of it; never repeats in a store.
    pub life: u64,
    /// The checksum of what it holds.
    pub checksum: u64,
}

/// A part as a backup holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldPart {
    /// Which.
    pub name: PartName,
    /// Records that counted, as the engine counts them.
    pub live: u64,
    /// Of the places of the records that the backup shows: [`place_digest`] of each, added up.
    pub digest: u64,
}

/// What a place adds to [`HeldPart::digest`].
pub fn place_digest(place: u32) -> u64 {
    // The finisher of splitmix64: sums of different sets are as unlikely to meet as two random numbers.
    let mut word = u64::from(place).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What a backup does with a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartState {
    /// Its records that count are in this backup.
    Given,
    /// All that the base shows of it counts.
    Kept,
    /// What the base shows of it counts, but for the records that begin at these places, in ascending order.
    Changed(Vec<u32>),
}

/// One part in the table of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// Which, and what is shown of it.
    pub held: HeldPart,
    /// Where its records are.
    pub state: PartState,
    /// Records that expire at another time than the backup says that gave them, in ascending order of their
    /// places; milliseconds since 1970, 0: never.
    pub expiries: Vec<(u32, u64)>,
}

impl PartEntry {
    /// Adds it to a piece of parts: number (varint), life (u64), checksum (u64), live (varint), digest (u64), state
    /// (u8: 0 given, 1 kept, 2 changed), of changed ones how many places and their differences (varints), how many
    /// other expiries, and for each difference of the place and expiry (varints).
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let HeldPart { name, live, digest } = self.held;
        put_varint(bytes, u64::from(name.part));
        bytes.extend_from_slice(&name.life.to_le_bytes());
        bytes.extend_from_slice(&name.checksum.to_le_bytes());
        put_varint(bytes, live);
        bytes.extend_from_slice(&digest.to_le_bytes());
        let mut last = 0;
        match &self.state {
            PartState::Given => bytes.push(0),
            PartState::Kept => bytes.push(1),
            PartState::Changed(gone) => {
                bytes.push(2);
                put_varint(bytes, gone.len() as u64);
                for place in gone {
                    put_varint(bytes, u64::from(place - last));
                    last = *place;
                }
            }
        }
        put_varint(bytes, self.expiries.len() as u64);
        last = 0;
        for (place, expiry_ms) in &self.expiries {
            put_varint(bytes, u64::from(place - last));
            put_varint(bytes, *expiry_ms);
            last = *place;
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<PartEntry> {
        let part = u32::try_from(reader.varint()?).ok()?;
        let name = PartName { part, life: reader.u64()?, checksum: reader.u64()? };
        let held = HeldPart { name, live: reader.varint()?, digest: reader.u64()? };
        let state = match reader.u8()? {
            0 => PartState::Given,
            1 => PartState::Kept,
            2 => {
                let mut gone = Vec::new();
                let mut last = 0u32;
                for _ in 0..reader.varint()? {
                    last = last.checked_add(u32::try_from(reader.varint()?).ok()?)?;
                    gone.push(last);
                }
                PartState::Changed(gone)
            }
            _ => return None,
        };
        let mut expiries = Vec::new();
        let mut last = 0u32;
        for _ in 0..reader.varint()? {
            last = last.checked_add(u32::try_from(reader.varint()?).ok()?)?;
            expiries.push((last, reader.varint()?));
        }
        Some(PartEntry { held, state, expiries })
    }
}

/// The entries of a piece of parts; `None`: the bytes make no sense.
pub fn read_parts(bytes: &[u8]) -> Option<Vec<PartEntry>> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::new();
    while !reader.rest().is_empty() {
        entries.push(PartEntry::read(&mut reader)?);
    }
    Some(entries)
}

/// What a piece has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// Records of one part.
    Records,
    /// Entries of the table of parts.
    Parts,
}

/// Some records of a backup, or of its table of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPiece {
    /// Which.
    pub kind: PieceKind,
    /// How many.
    pub records: u64,
    /// The records, or entries.
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
    /// Its place in its part; 0 in the first version of the format.
    pub place: u32,
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
    /// Without records so far, of a part in one of its lives.
    pub fn of_part(part: u32, life: u64) -> BackupPiece {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, u64::from(part));
        bytes.extend_from_slice(&life.to_le_bytes());
        BackupPiece { kind: PieceKind::Records, records: 0, bytes }
    }

    /// Without entries so far.
    pub fn of_parts() -> BackupPiece {
        BackupPiece { kind: PieceKind::Parts, records: 0, bytes: Vec::new() }
    }

    /// Adds an entry of the table.
    pub fn push_part(&mut self, entry: &PartEntry) {
        entry.encode(&mut self.bytes);
        self.records += 1;
    }

    /// Adds a record.
    pub fn push(&mut self, record: &BackupRecord<'_>) {
        put_varint(&mut self.bytes, u64::from(record.place));
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
    part: Option<(u32, u64)>,
    is_damaged: bool,
}

impl<'a> BackupRecords<'a> {
    /// The records in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut reader = Reader::new(bytes);
        let mut head = || Some((u32::try_from(reader.varint()?).ok()?, reader.u64()?));
        let part = head();
        BackupRecords { reader, part, is_damaged: part.is_none() }
    }

    /// The records in `bytes` of the first version of the format.
    pub fn without_places(bytes: &'a [u8]) -> Self {
        BackupRecords { reader: Reader::new(bytes), part: None, is_damaged: false }
    }

    /// Their part, and its life; `None` in the first version of the format.
    pub fn part(&self) -> Option<(u32, u64)> {
        self.part
    }

    /// Whether the bytes made no sense.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    fn read(&mut self) -> Option<BackupRecord<'a>> {
        let reader = &mut self.reader;
        let place = if self.part.is_some() { u32::try_from(reader.varint()?).ok()? } else { 0 };
        let keyspace = KeyspaceId(u32::try_from(reader.varint()?).ok()?);
        let kind = ValueKind(reader.u8()?);
        let expiry_ms = reader.varint()?;
        let key_len = usize::try_from(reader.varint()?).ok().filter(|len| *len <= KEY_BYTES_MAX)?;
        let value_len = usize::try_from(reader.varint()?).ok()?;
        let (key, value) = (reader.bytes(key_len)?, reader.bytes(value_len)?);
        Some(BackupRecord { place, keyspace, kind, expiry_ms, key, value })
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
#[path = "backup_test.rs"]
mod backup_test;
