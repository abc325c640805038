//! A record: a 32-byte header, the expiry if there is one, the batch if the record begins a part of one
//! over several shards, the key, the value, padding to a unit.
//!
//! ```text
//!  0  checksum u64    over all that follows, salted with segment, generation and place
//!  8  seq u48  14 flags u8  15 kind u8
//! 16  value length u32  20 key length u16  22 zero u16
//! 24  keyspace u32  28 zero u32
//! 32  [expiry u64 when flag EXPIRY] [batch u64, part's number u48, parts u16 when flag PART]
//!     [sequence u64 and place u64 of the value when a touch] key value
//! ```

use crate::location::UNIT_BYTES;
use tierstone_base::checksum::checksum;
use tierstone_base::codec::Reader;
use tierstone_base::{KeyspaceId, Seq};

/// Bytes of a record before its expiry or key.
pub const HEADER_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 8;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Sequences have 48 bits: at a million writes a second they last for nine years.
pub const SEQ_MAX: Seq = (1 << 48) - 1;
/// Beyond this one no write is taken: above it is room for the rest of a batch, for what the store writes by itself and for
/// what a repair leaves out. At a million writes a second of one shard it takes eight years.
pub const SEQ_WRITABLE: Seq = SEQ_MAX - (1 << 44);

/// The record says that its key has no value; with [`FLAG_EXPIRY`] it is a touch instead ([`is_touch`]).
pub const FLAG_TOMBSTONE: u8 = 1;
/// The record has an expiry.
pub const FLAG_EXPIRY: u8 = 2;
/// More records of the same batch follow; the batch counts only if its last record is there.
pub const FLAG_BATCH_MORE: u8 = 4;
/// When this record was written, another live key had the same position: recovery compares keys.
pub const FLAG_COLLIDES: u8 = 8;
/// Its keyspace is ordered: the summary entry of the record carries the key. Not in tombstones.
pub const FLAG_KEYED: u8 = 16;
/// When this record was written, its key had a live record, which this one replaces: so the replay of a
/// log over a checkpoint of the index need not read records to know.
pub const FLAG_REPLACES: u8 = 32;
/// The record begins this log's part of a batch over several shards; the part goes on to the first
/// record without [`FLAG_BATCH_MORE`]. Copies of the cleaner keep it: in a cold log it means nothing.
pub const FLAG_PART: u8 = 64;
/// Recovery found the record's batch incomplete: the record is void. Written over the record in place,
/// which changes one sector. Void records are in no summary, where the bit means something else.
pub const FLAG_VOID: u8 = 128;
/// Bytes that [`FLAG_PART`] adds.
pub const PART_BYTES: usize = 16;
/// Bytes that a touch has more: what it names.
const TOUCHED_BYTES: usize = 16;
/// Bytes of a record with a value, or of a tombstone, before its key at most.
pub const PREFIX_BYTES_MAX: usize = HEADER_BYTES + 8 + PART_BYTES;
/// The same of every record.
const ANY_PREFIX_BYTES_MAX: usize = PREFIX_BYTES_MAX + TOUCHED_BYTES;

/// Whether a record with these flags changes the expiry of a value that lies elsewhere, and has none.
#[inline]
pub fn is_touch(flags: u8) -> bool {
    flags & (FLAG_TOMBSTONE | FLAG_EXPIRY) == FLAG_TOMBSTONE | FLAG_EXPIRY
}

/// Whether a record with these flags says that its key has no value.
#[inline]
pub fn is_tombstone(flags: u8) -> bool {
    flags & (FLAG_TOMBSTONE | FLAG_EXPIRY) == FLAG_TOMBSTONE
}

/// The record whose expiry a touch changes; zeros in all other records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Touched {
    /// The sequence of its write: of this key there is one with it.
    pub seq: Seq,
    /// Where it lay when the touch was written, as [`crate::location::Location::raw`] says. It may have
    /// been moved since; not while a checkpoint older than the touch is in force.
    pub place: u64,
}

/// What the first record of a part says of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PartMark {
    /// The batch; unique among the batches of one opening of the store.
    pub batch: u64,
    /// The part's number in its log, consecutive from zero; 48 bits.
    pub number: u64,
    /// How many logs have a part of the batch.
    pub parts: u16,
}

/// What a record says, without the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecordHeader {
    /// The sequence of its write.
    pub seq: Seq,
    /// `FLAG_…` bits.
    pub flags: u8,
    /// The kind of value.
    pub kind: u8,
    /// The keyspace of its key.
    pub keyspace: KeyspaceId,
    /// Milliseconds since 1970, zero for none; of a touch, what its value gets.
    pub expiry_ms: u64,
    /// Bytes of the key.
    pub key_len: usize,
    /// Bytes of the value.
    pub value_len: usize,
    /// The batch, with [`FLAG_PART`]; zeros without.
    pub part: PartMark,
    /// What a touch names; zeros in others.
    pub touched: Touched,
}

fn prefix_len(flags: u8) -> usize {
    let expiry = if flags & FLAG_EXPIRY != 0 { 8 } else { 0 };
    let part = if flags & FLAG_PART != 0 { PART_BYTES } else { 0 };
    HEADER_BYTES + expiry + part + if is_touch(flags) { TOUCHED_BYTES } else { 0 }
}

impl RecordHeader {
    /// Of no record: what the default is.
    pub const EMPTY: RecordHeader = RecordHeader {
        seq: 0,
        flags: 0,
        kind: 0,
        keyspace: KeyspaceId(0),
        expiry_ms: 0,
        key_len: 0,
        value_len: 0,
        part: PartMark { batch: 0, number: 0, parts: 0 },
        touched: Touched { seq: 0, place: 0 },
    };

    /// Whether the record says that its key has no value.
    pub fn is_tombstone(&self) -> bool {
        is_tombstone(self.flags)
    }

    /// Whether it changes the expiry of a value that lies elsewhere.
    pub fn is_touch(&self) -> bool {
        is_touch(self.flags)
    }

    /// Bytes of the key that the record's summary entry carries.
    pub fn summary_key_len(&self) -> usize {
        if self.flags & FLAG_KEYED != 0 { self.key_len } else { 0 }
    }

    fn prefix_len(&self) -> usize {
        prefix_len(self.flags)
    }

    /// Bytes of the record without padding.
    pub fn record_len(&self) -> usize {
        self.prefix_len() + self.key_len + self.value_len
    }

    /// Units that the record takes.
    pub fn units(&self) -> usize {
        self.record_len().div_ceil(UNIT_BYTES)
    }

    /// Where the key lies in the record.
    pub fn key_range(&self) -> std::ops::Range<usize> {
        self.prefix_len()..self.prefix_len() + self.key_len
    }

    /// Where the value lies in the record.
    pub fn value_range(&self) -> std::ops::Range<usize> {
        let start = self.prefix_len() + self.key_len;
        start..start + self.value_len
    }
}

/// The salt of a record's checksum: the life of the segment, and the place in it, so that a record
/// that was written to the wrong place is not taken for one that belongs there.
fn place_salt(segment_salt: u64, unit: u32) -> u64 {
    segment_salt ^ u64::from(unit).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Writes a record at the start of `out`, which has room for its whole units, and returns its
/// length without padding. The padding is zeroed.
pub fn encode(
    out: &mut [u8],
    header: &RecordHeader,
    key: &[u8],
    value: &[u8],
    segment_salt: u64,
    unit: u32,
) -> usize {
    debug_assert!(header.key_len == key.len() && header.value_len == value.len() && header.seq <= SEQ_MAX);
    let len = header.record_len();
    let word = header.seq | (u64::from(header.flags) << 48) | (u64::from(header.kind) << 56);
    // In words, as the checksum reads them: words that are read just after their halves were written are slow to come.
    let lengths = u64::from(value.len() as u32) | u64::from(key.len() as u32) << 32;
    out[8..16].copy_from_slice(&word.to_le_bytes());
    out[16..24].copy_from_slice(&lengths.to_le_bytes());
    out[24..32].copy_from_slice(&u64::from(header.keyspace.0).to_le_bytes());
    if header.flags & FLAG_EXPIRY != 0 {
        out[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&header.expiry_ms.to_le_bytes());
    }
    if header.flags & FLAG_PART != 0 {
        let PartMark { batch, number, parts } = header.part;
        let place = prefix_len(header.flags & (FLAG_EXPIRY | FLAG_PART)) - PART_BYTES;
        out[place..place + 8].copy_from_slice(&batch.to_le_bytes());
        let word = number & SEQ_MAX | u64::from(parts) << 48;
        out[place + 8..place + 16].copy_from_slice(&word.to_le_bytes());
    }
    if header.is_touch() {
        let place = header.prefix_len() - TOUCHED_BYTES;
        out[place..place + 8].copy_from_slice(&header.touched.seq.to_le_bytes());
        out[place + 8..place + 16].copy_from_slice(&header.touched.place.to_le_bytes());
    }
    out[header.key_range()].copy_from_slice(key);
    out[header.value_range()].copy_from_slice(value);
    out[len..len.next_multiple_of(UNIT_BYTES)].fill(0);
    seal(&mut out[..len], segment_salt, unit);
    len
}

/// Writes the checksum of a record that was moved to another place or got other flags.
pub fn seal(record: &mut [u8], segment_salt: u64, unit: u32) {
    let sum = checksum(place_salt(segment_salt, unit), &record[CHECKSUM_BYTES..]);
    record[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Replaces the flags of an encoded record; call [`seal`] afterwards.
pub fn set_flags(record: &mut [u8], flags: u8) {
    record[14] = flags;
}

/// Reads the header of a record whose bytes are known to be whole (in memory, verified before).
/// `None` when `bytes` is too short for the header.
#[inline]
pub fn decode_header(bytes: &[u8]) -> Option<RecordHeader> {
    let mut reader = Reader::new(bytes.get(CHECKSUM_BYTES..)?);
    let word = reader.u64()?;
    let value_len = reader.u32()? as usize;
    let key_len = usize::from(reader.u16()?);
    let zero = reader.u16()?;
    let keyspace = KeyspaceId(reader.u32()?);
    let zeros = reader.u32()?;
    let flags = (word >> 48) as u8;
    if zero != 0 || zeros != 0 {
        return None;
    }
    let expiry_ms = if flags & FLAG_EXPIRY != 0 { reader.u64()? } else { 0 };
    let part = if flags & FLAG_PART != 0 {
        let (batch, word) = (reader.u64()?, reader.u64()?);
        PartMark { batch, number: word & SEQ_MAX, parts: (word >> 48) as u16 }
    } else {
        PartMark::default()
    };
    let touched = if is_touch(flags) {
        Touched { seq: reader.u64()?, place: reader.u64()? }
    } else {
        Touched::default()
    };
    Some(RecordHeader {
        seq: word & SEQ_MAX,
        flags,
        kind: (word >> 56) as u8,
        keyspace,
        expiry_ms,
        key_len,
        value_len,
        part,
        touched,
    })
}

/// What [`decode`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A whole record.
    Whole(RecordHeader),
    /// The bytes end before the record does; it has this length, if the header is to be believed.
    Short {
        /// Bytes of the whole record.
        needed: usize,
    },
    /// Not a record of this place and life.
    Invalid,
}

/// Verifies the record at the start of `bytes`, which were read from `unit` of a segment with
/// `segment_salt`. `longest` bounds what a damaged header can ask for.
pub fn decode(bytes: &[u8], segment_salt: u64, unit: u32, longest: usize) -> Decoded {
    // The shortest record is a header: a tombstone of the empty key.
    if bytes.len() < HEADER_BYTES || bytes.len() < prefix_len(bytes[14]) {
        return Decoded::Short { needed: ANY_PREFIX_BYTES_MAX };
    }
    let Some(header) = decode_header(bytes) else { return Decoded::Invalid };
    let len = header.record_len();
    if len > longest {
        return Decoded::Invalid;
    }
    let Some(record) = bytes.get(..len) else { return Decoded::Short { needed: len } };
    let Some((stored, rest)) = record.split_first_chunk::<CHECKSUM_BYTES>() else { return Decoded::Invalid };
    if u64::from_le_bytes(*stored) != checksum(place_salt(segment_salt, unit), rest) {
        return Decoded::Invalid;
    }
    Decoded::Whole(header)
}

#[cfg(test)]
#[path = "record_test.rs"]
mod record_test;
