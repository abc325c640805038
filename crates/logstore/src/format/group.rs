//! A group: what one durable write commits. A 64-byte header, then whole records, then padding to a
//! block. Groups of one log are numbered without gaps; a log ends before the first missing number.
//!
//! ```text
//!  0  magic u32  4 version u32  8 log id u64  16 number u64
//! 24  groups before this one that were not durable u32  28 length u32 (header and records, no padding)
//! 32  records u32  36 first seq u48  42 batches resolved u48
//! 48  past ms u64  56 checksum u64 over the 56 bytes before, salted with life and place
//! ```
//! Version 1, which is still read: 24 durable groups u64  32 first seq u64  40 length u32  44 records u32
//! 48 batches resolved u64.

use super::record::{self, Decoded, RecordHeader};
use crate::location::UNIT_BYTES;
use tierstone_base::Seq;
use tierstone_base::checksum::checksum;
use tierstone_base::codec::Reader;

/// Bytes of a group's header.
pub const HEADER_BYTES: usize = 64;
const MAGIC: u32 = 0x5247_5354;
const VERSION: u32 = 2;
/// Without a high-water of expiry.
const OLDEST_VERSION: u32 = 1;
const SUMMED_BYTES: usize = HEADER_BYTES - 8;
const _: () = assert!(HEADER_BYTES.is_multiple_of(UNIT_BYTES), "the first record begins at a unit");

/// What a group's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupHeader {
    /// The log that it belongs to.
    pub log_id: u64,
    /// Its number in that log, from zero.
    pub number: u64,
    /// When it was closed, groups below this number were known to be durable.
    pub durable_groups: u64,
    /// The sequence of its first record.
    pub first_seq: Seq,
    /// Bytes of header and records.
    pub len: usize,
    /// How many records it holds.
    pub records: u32,
    /// When it was closed, this log's parts of batches over several shards below this number were decided.
    pub batches_resolved: u64,
    /// The highest expiry that the shard had shown as past when it was closed, in milliseconds since 1970.
    pub past_ms: u64,
}

fn place_salt(segment_salt: u64, offset: usize) -> u64 {
    !segment_salt ^ (offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Writes the header at the start of `out`; `offset` is where the group begins in its segment.
pub fn encode_header(out: &mut [u8], header: &GroupHeader, segment_salt: u64, offset: usize) {
    out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..8].copy_from_slice(&VERSION.to_le_bytes());
    out[8..16].copy_from_slice(&header.log_id.to_le_bytes());
    out[16..24].copy_from_slice(&header.number.to_le_bytes());
    // Closed groups are held in memory until they are durable: there are not so many.
    let behind = u32::try_from(header.number.saturating_sub(header.durable_groups)).unwrap_or(u32::MAX);
    out[24..28].copy_from_slice(&behind.to_le_bytes());
    out[28..32].copy_from_slice(&(header.len as u32).to_le_bytes());
    out[32..36].copy_from_slice(&header.records.to_le_bytes());
    out[36..42].copy_from_slice(&header.first_seq.to_le_bytes()[..6]);
    out[42..48].copy_from_slice(&header.batches_resolved.to_le_bytes()[..6]);
    out[48..56].copy_from_slice(&header.past_ms.to_le_bytes());
    let sum = checksum(place_salt(segment_salt, offset), &out[..SUMMED_BYTES]);
    out[SUMMED_BYTES..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Reads and verifies the header at the start of `bytes`.
pub fn decode_header(bytes: &[u8], segment_salt: u64, offset: usize) -> Option<GroupHeader> {
    let head = bytes.get(..HEADER_BYTES)?;
    let mut reader = Reader::new(head);
    if reader.u32()? != MAGIC {
        return None;
    }
    let header = match reader.u32()? {
        OLDEST_VERSION => first_version(&mut reader)?,
        VERSION => {
            let (log_id, number) = (reader.u64()?, reader.u64()?);
            GroupHeader {
                log_id,
                number,
                durable_groups: number.checked_sub(u64::from(reader.u32()?))?,
                len: reader.u32()? as usize,
                records: reader.u32()?,
                first_seq: u48(&mut reader)?,
                batches_resolved: u48(&mut reader)?,
                past_ms: reader.u64()?,
            }
        }
        _ => return None,
    };
    let sum = checksum(place_salt(segment_salt, offset), &head[..SUMMED_BYTES]);
    (reader.u64()? == sum && header.len >= HEADER_BYTES).then_some(header)
}

fn u48(reader: &mut Reader<'_>) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(reader.bytes(6)?);
    Some(u64::from_le_bytes(bytes))
}

fn first_version(reader: &mut Reader<'_>) -> Option<GroupHeader> {
    Some(GroupHeader {
        log_id: reader.u64()?,
        number: reader.u64()?,
        durable_groups: reader.u64()?,
        first_seq: reader.u64()?,
        len: reader.u32()? as usize,
        records: reader.u32()?,
        batches_resolved: reader.u64()?,
        past_ms: 0,
    })
}

/// Verifies the whole group at the start of `bytes` (read from `offset` of its segment) and gives
/// its records as (offset in the segment in bytes, header). `None` when any part of it is missing:
/// then the group was never durable.
pub fn decode(
    bytes: &[u8],
    segment_salt: u64,
    offset: usize,
    records: &mut Vec<(usize, RecordHeader)>,
) -> Option<GroupHeader> {
    let header = decode_header(bytes, segment_salt, offset)?;
    let body = bytes.get(..header.len)?;
    let before = records.len();
    let mut at = HEADER_BYTES;
    for _ in 0..header.records {
        let unit = (offset + at) / UNIT_BYTES;
        let found = body.get(at..).map(|rest| record::decode(rest, segment_salt, unit as u32, rest.len()));
        let Some(Decoded::Whole(found)) = found else {
            records.truncate(before);
            return None;
        };
        records.push((offset + at, found));
        at += found.units() * UNIT_BYTES;
    }
    if at.saturating_sub(header.len) >= UNIT_BYTES || at < header.len {
        records.truncate(before);
        return None;
    }
    Some(header)
}

#[cfg(test)]
#[path = "group_test.rs"]
mod group_test;
