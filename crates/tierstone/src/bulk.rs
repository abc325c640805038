//! Loading many records at once: what both handles share.
//!
//! Records are staged in memory, sorted by the positions of their keys, and written in that order: the
//! index is then walked from one end to the other instead of being missed in the processor's caches for
//! every key, and its regions grow one after the other.
//!
//! Invariants:
//! 1. Records of one key are applied in the order in which they were given: the sort is stable and
//!    pieces of one stage are written in order, stage after stage.
//! 2. A piece is written whole or not at all; a load is not: a crash, or an error, leaves some of the
//!    records that were given since the last [`BulkLoad::sync`](crate::BulkLoad::sync) and not others.
//!
//! Who owns the data: a stage owns copies of keys and values in one piece of memory.

use std::ops::Range;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result};
use tierstone_engine::{Key, ValueKind, Write, WriteKind};

/// A piece is written as one: about so many bytes of keys and values, and so many records.
const PIECE_BYTES: usize = 1 << 20;
const PIECE_RECORDS: usize = 4_096;
/// Bytes that a record takes in a stage beside its key and value.
const PLACE_BYTES: usize = size_of::<Staged>();

/// How a bulk load goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkOptions {
    /// Bytes of keys and values that one shard's records gather to before they are sorted and written,
    /// from 64 KiB to 1 GiB; 8 MiB by default. A load takes this much memory for each shard, and as much
    /// again for what is being written with the shared handle; it does not count into the store's budget.
    /// Between 4 and 32 MiB no difference was measured with values of 1,000 bytes.
    pub stage_bytes: usize,
}

impl Default for BulkOptions {
    fn default() -> Self {
        BulkOptions { stage_bytes: 8 << 20 }
    }
}

impl BulkOptions {
    pub(crate) fn check(self) -> Result<Self> {
        if (64 << 10..=1 << 30).contains(&self.stage_bytes) {
            return Ok(self);
        }
        Err(Error::new(ErrorKind::InvalidInput, "a stage has between 64 KiB and 1 GiB"))
    }
}

/// What a bulk load has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl std::ops::AddAssign for Loaded {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

#[derive(Clone, Copy, Debug)]
struct Staged {
    position: Position,
    start: usize,
    key_len: u32,
    value_len: u32,
    expiry_ms: u64,
}

/// Records of one shard and keyspace that gather.
#[derive(Debug)]
pub(crate) struct Stage {
    keyspace: KeyspaceId,
    bytes: Vec<u8>,
    records: Vec<Staged>,
}

impl Stage {
    /// An empty stage.
    pub fn new(keyspace: KeyspaceId) -> Self {
        Stage { keyspace, bytes: Vec::new(), records: Vec::new() }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What is in it.
    pub fn loaded(&self) -> Loaded {
        Loaded { records: self.records.len() as u64, bytes: self.bytes.len() as u64 }
    }

    /// The keyspace that it is for.
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// Whether a record of `len` bytes finds room within `stage_bytes`, or the stage is empty.
    pub fn has_room(&self, len: usize, stage_bytes: usize) -> bool {
        let taken = self.bytes.len() + self.records.len() * PLACE_BYTES;
        self.is_empty() || taken + len + PLACE_BYTES <= stage_bytes
    }

    /// Adds a record; key and value are within the limits of [`check_lengths`].
    pub fn push(&mut self, position: Position, key: &[u8], value: &[u8], expiry_ms: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_len, value_len) = (key.len() as u32, value.len() as u32);
        self.records.push(Staged { position, start, key_len, value_len, expiry_ms });
    }

    /// Brings the records into the order in which they are written.
    pub fn sort(&mut self) {
        self.records.sort_by_key(|staged| staged.position);
    }

    /// Empties the stage and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    /// The records that are written as one, from number `first` on; empty at the end.
    pub fn piece(&self, first: usize) -> Range<usize> {
        let mut end = first;
        let mut bytes = 0;
        while let Some(staged) = self.records.get(end)
            && end - first < PIECE_RECORDS
        {
            bytes += staged.key_len as usize + staged.value_len as usize;
            if bytes > PIECE_BYTES && end > first {
                break;
            }
            end += 1;
        }
        first..end
    }

    /// All pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Range<usize>> {
        std::iter::successors(Some(self.piece(0)), |piece| Some(self.piece(piece.end)))
            .take_while(|piece| !piece.is_empty())
    }

    /// The writes of a piece.
    pub fn writes(&self, piece: Range<usize>) -> Vec<Write<'_>> {
        let write = |staged: &Staged| {
            let key_end = staged.start + staged.key_len as usize;
            let value = &self.bytes[key_end..key_end + staged.value_len as usize];
            let bytes = &self.bytes[staged.start..key_end];
            let key = Key { keyspace: self.keyspace, position: staged.position, bytes };
            Write {
                key,
                kind: WriteKind::Put { value, expiry_ms: staged.expiry_ms, kind: ValueKind::STRING },
            }
        };
        self.records[piece].iter().map(write).collect()
    }
}

/// Refuses what no record holds, before it can take a whole piece down with it.
pub(crate) fn check_lengths(key: &[u8], value: &[u8], value_bytes_max: u64) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        let message = format!("a key of {} bytes is longer than {KEY_BYTES_MAX}", key.len());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    if value.len() as u64 > value_bytes_max {
        let message = format!("a value of {} bytes is longer than {value_bytes_max}", value.len());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// The longest key.
const KEY_BYTES_MAX: usize = 65_535;

#[cfg(test)]
#[path = "bulk_test.rs"]
mod bulk_test;
