//! Large values: what a map record says, and how chunks and ledger entries are called.
//!
//! A string above the chunk size is a map record of kind [`ValueKind::CHUNKED`] under the user's key
//! and one record a chunk in the keyspace's companion [`KeyspaceId::chunks`]. A chunk's key begins
//! with a hash tag of the owner's slot, so that chunks lie on their owner's shard whatever the number
//! of shards is, and goes on with the value's id, which is never given twice.
//!
//! Invariants:
//! 1. A chunk counts only if the map says that it is there: others are zeros, whatever lies under
//!    their keys. A chunk that is shorter than the chunk size ends in zeros.
//! 2. A chunk is changed in the same batch as its map, or before the map names its value at all.
//! 3. The bytes behind the value's length, inside its last chunk, are zeros.

use tierstone_base::position::SLOT_COUNT;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result, Seq, ShardId};
use tierstone_engine::ValueKind;

/// The chunk size where the engine's records allow it, in bytes. Strings up to it are one record.
pub const CHUNK_BYTES: u32 = 64 << 10;
/// The smallest chunk size, in bytes.
pub const CHUNK_BYTES_MIN: u32 = 256;
/// The most chunks of one value: bounds the map to 8 KiB of bits.
const CHUNKS_MAX: u64 = 64 << 10;
const MAP_VERSION: u8 = 1;
/// Bytes of a map record before its bits.
const MAP_HEADER_BYTES: usize = 32;

/// The name of a large value in its shard's keyspace; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ValueId {
    /// The highest sequence of the store when the shard that gave the id was opened. Whatever is
    /// durable of a value raised it for the next opening.
    pub epoch: Seq,
    /// Above 16 bits of the shard that gave it: a count.
    pub number: u64,
}

impl ValueId {
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<ValueId> {
        let (epoch, number) = bytes.split_at_checked(8)?;
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
        Some(ValueId { epoch: word(epoch)?, number: word(number)? })
    }
}

/// Gives ids of values, and knows the chunk size of new ones. One for each shard.
#[derive(Debug)]
pub struct ValueIds {
    epoch: Seq,
    next: std::cell::Cell<u64>,
    chunk_bytes: u32,
}

impl ValueIds {
    /// The ids of shard `shard`, whose engine has opened at sequence `epoch`.
    pub fn new(epoch: Seq, shard: ShardId, chunk_bytes: u32) -> Self {
        ValueIds { epoch, next: std::cell::Cell::new(u64::from(shard)), chunk_bytes }
    }

    /// The chunk size of new values, in bytes: a power of two. Strings up to it are one record.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// A mark for [`ValueIds::is_since`].
    pub fn mark(&self) -> u64 {
        self.next.get()
    }

    /// Whether `id` was given here since `mark` was taken.
    pub fn is_since(&self, mark: u64, id: ValueId) -> bool {
        let is_own = id.epoch == self.epoch && id.number & 0xffff == mark & 0xffff;
        is_own && id.number > mark
    }

    /// The map of a new value of `len` zeros.
    pub fn new_map(&self, len: u64) -> LargeMap {
        let number = self.next.get() + (1 << 16);
        self.next.set(number);
        let id = ValueId { epoch: self.epoch, number };
        let mut map = LargeMap { id, len: 0, chunk_bytes: self.chunk_bytes, present: Vec::new() };
        map.grow(len);
        map
    }
}

/// The chunk size of a store whose engine takes values up to `record_bytes_max` bytes.
pub fn chunk_bytes_for(record_bytes_max: u64) -> u32 {
    let fitting = record_bytes_max.clamp(u64::from(CHUNK_BYTES_MIN), u64::from(CHUNK_BYTES)) as u32;
    1 << fitting.ilog2()
}

/// The longest value with chunks of `chunk_bytes`, in bytes: its map's bits take half a chunk at most.
pub fn value_bytes_max(chunk_bytes: u32) -> u64 {
    CHUNKS_MAX.min(u64::from(chunk_bytes) * 4) * u64::from(chunk_bytes)
}

/// What a map record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeMap {
    /// The value's id.
    pub id: ValueId,
    len: u64,
    chunk_bytes: u32,
    present: Vec<u8>,
}

impl LargeMap {
    /// Reads a map record.
    ///
    /// # Errors
    /// `Corrupt` when it is none.
    pub fn decode(bytes: &[u8]) -> Result<LargeMap> {
        Self::read(bytes).ok_or_else(|| Error::new(ErrorKind::Corrupt, "a large value's map is no map"))
    }

    fn read(bytes: &[u8]) -> Option<LargeMap> {
        let (header, present) = bytes.split_at_checked(MAP_HEADER_BYTES)?;
        let (version, shift) = (header[0], u32::from(header[1]));
        if version != MAP_VERSION || !(CHUNK_BYTES_MIN.ilog2()..=CHUNK_BYTES.ilog2()).contains(&shift) {
            return None;
        }
        let id = ValueId::from_bytes(header.get(8..24)?)?;
        let len = u64::from_be_bytes(header.get(24..32)?.try_into().ok()?);
        let map = LargeMap { id, len, chunk_bytes: 1 << shift, present: present.to_vec() };
        let is_whole = map.can_hold(len) && present.len() as u64 == map.chunks().div_ceil(8);
        is_whole.then_some(map)
    }

    /// Appends the map record's bytes: 32 and one bit a chunk.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&[MAP_VERSION, self.chunk_bytes.ilog2() as u8, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&self.id.to_bytes());
        bytes.extend_from_slice(&self.len.to_be_bytes());
        bytes.extend_from_slice(&self.present);
    }

    /// The value's length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a large value is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The size of its chunks in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.chunk_bytes)
    }

    /// How many chunks its length takes.
    pub fn chunks(&self) -> u64 {
        self.len.div_ceil(self.chunk_bytes())
    }

    /// Whether the value could be so long.
    pub fn can_hold(&self, len: u64) -> bool {
        len <= value_bytes_max(self.chunk_bytes)
    }

    /// Whether chunk `number` is there; one that is not is zeros.
    pub fn has(&self, number: u64) -> bool {
        let byte = usize::try_from(number / 8).ok().and_then(|byte| self.present.get(byte));
        byte.is_some_and(|byte| byte >> (number % 8) & 1 == 1)
    }

    /// Notes that chunk `number`, below [`LargeMap::chunks`], is there.
    pub fn add(&mut self, number: u64) {
        if let Some(byte) = self.present.get_mut((number / 8) as usize) {
            *byte |= 1 << (number % 8);
        }
    }

    /// Makes the value at least `len` bytes long, with zeros.
    pub fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
        let bytes = self.chunks().div_ceil(8) as usize;
        self.present.resize(bytes, 0);
    }

    /// The numbers of the chunks that are there.
    pub fn present(&self) -> impl Iterator<Item = u64> {
        (0..self.chunks()).filter(|number| self.has(*number))
    }

    /// Bytes of its chunks that are there, as if all were full.
    pub fn stored_bytes(&self) -> u64 {
        let ones: u32 = self.present.iter().map(|byte| byte.count_ones()).sum();
        u64::from(ones) * self.chunk_bytes()
    }
}

/// Two bytes whose CRC16 is `crc`: the register run backwards over them.
fn preimage(crc: u16) -> [u8; 2] {
    let mut register = crc;
    for _ in 0..16 {
        register = if register & 1 == 1 { (register ^ 0x1021) >> 1 | 0x8000 } else { register >> 1 };
    }
    register.to_be_bytes()
}

/// A hash tag of two bytes that maps to `slot`.
fn tag(slot: u16) -> [u8; 2] {
    // Four words of the CRC's 65,536 map to each slot; none of the slots has a `}` in all four.
    let candidates = (0..4).map(|high| preimage(slot + high * SLOT_COUNT));
    candidates.into_iter().find(|bytes| !bytes.contains(&b'}')).unwrap_or_default()
}

/// The key of a chunk of the value `id` in slot `slot`.
pub fn chunk_key(slot: u16, id: ValueId, number: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..20].copy_from_slice(&ledger_key(slot, id));
    key[20..].copy_from_slice(&(number as u32).to_be_bytes());
    key
}

/// The key of the ledger entry of the value `id` in slot `slot`.
pub fn ledger_key(slot: u16, id: ValueId) -> [u8; 20] {
    let [first, second] = tag(slot);
    let mut key = [b'{', first, second, b'}', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    key[4..].copy_from_slice(&id.to_bytes());
    key
}

/// The value that a chunk's or ledger entry's key names, and the chunk's number (0 for an entry).
pub fn parse_key(key: &[u8]) -> Option<(ValueId, u64)> {
    let id = ValueId::from_bytes(key.get(4..20)?)?;
    let number = key.get(20..24).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
    Some((id, u64::from(number)))
}

/// An entry of the ledger of large values: kind [`ValueKind::INTERNAL`] under [`ledger_key`] in
/// [`KeyspaceId::ledger`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerEntry {
    /// Its chunks are being written, and no map names it: it dies with the process.
    Upload {
        /// The map of the whole value; no chunk need be there.
        map: LargeMap,
    },
    /// Its map is gone or names another value: its chunks are to be deleted.
    Dead {
        /// What the map said.
        map: LargeMap,
    },
    /// Its owner expires.
    Expires {
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// What the map said.
        map: LargeMap,
        /// The owner's key.
        owner: Vec<u8>,
    },
}

impl LedgerEntry {
    /// The entry's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (state, at_ms, map, owner): (u8, u64, &LargeMap, &[u8]) = match self {
            LedgerEntry::Upload { map } => (1, 0, map, &[]),
            LedgerEntry::Dead { map } => (2, 0, map, &[]),
            LedgerEntry::Expires { at_ms, map, owner } => (3, *at_ms, map, owner),
        };
        let mut encoded_map = Vec::new();
        map.encode(&mut encoded_map);
        let mut bytes = vec![MAP_VERSION, state, 0, 0];
        bytes.extend_from_slice(&(encoded_map.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&at_ms.to_be_bytes());
        bytes.extend_from_slice(&encoded_map);
        bytes.extend_from_slice(owner);
        bytes
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// `Corrupt` when it is none.
    pub fn decode(bytes: &[u8]) -> Result<LedgerEntry> {
        Self::read(bytes).ok_or_else(|| Error::new(ErrorKind::Corrupt, "an entry of the ledger is none"))
    }

    fn read(bytes: &[u8]) -> Option<LedgerEntry> {
        let (header, rest) = bytes.split_at_checked(16)?;
        let map_len = u32::from_be_bytes(header.get(4..8)?.try_into().ok()?) as usize;
        let at_ms = u64::from_be_bytes(header.get(8..16)?.try_into().ok()?);
        let (map, owner) = rest.split_at_checked(map_len)?;
        let map = LargeMap::read(map)?;
        match (header[0], header[1]) {
            (MAP_VERSION, 1) => Some(LedgerEntry::Upload { map }),
            (MAP_VERSION, 2) => Some(LedgerEntry::Dead { map }),
            (MAP_VERSION, 3) => Some(LedgerEntry::Expires { at_ms, map, owner: owner.to_vec() }),
            _ => None,
        }
    }

    /// What the value's map said.
    pub fn map(&self) -> &LargeMap {
        match self {
            LedgerEntry::Upload { map } | LedgerEntry::Dead { map } | LedgerEntry::Expires { map, .. } => map,
        }
    }
}

/// Whether a record of `keyspace` with this kind is a large value's map.
#[inline]
pub fn is_map(keyspace: KeyspaceId, kind: ValueKind) -> bool {
    kind == ValueKind::CHUNKED && keyspace.is_user()
}

#[cfg(test)]
#[path = "large_test.rs"]
mod large_test;
