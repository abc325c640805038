//! The payloads of `DUMP` and `RESTORE`: one value in Redis's snapshot format, with version and checksum.
//!
//! A payload is a type byte, the value, the format's version in two bytes and the CRC-64 of all before it
//! in eight, both little-endian. A string is its length and its bytes; short decimal integers may be packed,
//! and long strings compressed with LZF. Only strings are read and written here.
//!
//! Sources: the format as Redis writes it, versions up to that of Redis 8.2; CRC-64 with the polynomial of
//! Jones, in the catalogue of CRC algorithms as CRC-64/REDIS; LZF after the description of its format in
//! Lehmann's LibLZF.
//!
//! Invariants:
//! 1. Whatever bytes come, nothing is made beyond the given limit, and nothing panics.
//! 2. What [`write_string`] writes, [`read_string`] and every Redis since version 5 read.

use tierstone_base::codec::Reader;

/// The version that is written: that of Redis 5, in which strings are as in all later ones.
const WRITTEN_VERSION: u16 = 9;
/// The newest version that is read: that of Redis 8.2.
const NEWEST_VERSION: u16 = 12;
/// Version and checksum behind the value, in bytes.
const FOOTER_BYTES: usize = 10;
/// The type of strings.
const TYPE_STRING: u8 = 0;

/// Why a payload is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// Its version is not known, or its checksum is wrong.
    VersionOrChecksum,
    /// It is no string, or no well-formed one.
    Format,
    /// The string is longer than the limit.
    TooLong,
}

/// Appends the payload of a string. Cost: the string's length, for the checksum twice.
pub fn write_string(value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.push(TYPE_STRING);
    match value.len() {
        len @ 0..0x40 => out.push(len as u8),
        len @ 0x40..0x4000 => out.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
        len => match u32::try_from(len) {
            Ok(short) => {
                out.push(0x80);
                out.extend_from_slice(&short.to_be_bytes());
            }
            Err(_) => {
                out.push(0x81);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        },
    }
    out.extend_from_slice(value);
    out.extend_from_slice(&WRITTEN_VERSION.to_le_bytes());
    let checksum = crc64(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// The string of a payload, at most `bytes_max` long.
///
/// # Errors
/// See [`PayloadError`].
pub fn read_string(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, PayloadError> {
    let Some(end) = payload.len().checked_sub(FOOTER_BYTES) else {
        return Err(PayloadError::VersionOrChecksum);
    };
    let mut footer = Reader::new(&payload[end..]);
    let (version, checksum) = (footer.u16().unwrap_or(0), footer.u64().unwrap_or(0));
    // A checksum of zero says that none was made.
    let is_whole = checksum == 0 || checksum == crc64(&payload[..end + 2]);
    if version > NEWEST_VERSION || !is_whole {
        return Err(PayloadError::VersionOrChecksum);
    }
    let mut reader = Reader::new(&payload[..end]);
    if reader.u8() != Some(TYPE_STRING) {
        return Err(PayloadError::Format);
    }
    let value = string(&mut reader, bytes_max)?;
    if reader.rest().is_empty() { Ok(value) } else { Err(PayloadError::Format) }
}

/// What stands where a length may stand.
enum Length {
    Bytes(u64),
    /// One of the packed forms.
    Packed(u8),
}

fn length(reader: &mut Reader<'_>) -> Option<Length> {
    let first = reader.u8()?;
    Some(match first >> 6 {
        0 => Length::Bytes(u64::from(first & 0x3f)),
        1 => Length::Bytes(u64::from(first & 0x3f) << 8 | u64::from(reader.u8()?)),
        2 if first == 0x80 => Length::Bytes(u64::from(reader.u32()?.swap_bytes())),
        2 if first == 0x81 => Length::Bytes(reader.u64()?.swap_bytes()),
        2 => return None,
        _ => Length::Packed(first & 0x3f),
    })
}

fn string(reader: &mut Reader<'_>, bytes_max: usize) -> Result<Vec<u8>, PayloadError> {
    const WRONG: PayloadError = PayloadError::Format;
    let number = match length(reader).ok_or(WRONG)? {
        Length::Bytes(len) => {
            let len = usize::try_from(len).map_err(|_| WRONG)?;
            let bytes = reader.bytes(len).ok_or(WRONG)?;
            return if len > bytes_max { Err(PayloadError::TooLong) } else { Ok(bytes.to_vec()) };
        }
        Length::Packed(0) => i64::from(reader.u8().ok_or(WRONG)? as i8),
        Length::Packed(1) => i64::from(reader.u16().ok_or(WRONG)? as i16),
        Length::Packed(2) => i64::from(reader.u32().ok_or(WRONG)? as i32),
        Length::Packed(3) => return compressed(reader, bytes_max),
        Length::Packed(_) => return Err(WRONG),
    };
    Ok(number.to_string().into_bytes())
}

fn compressed(reader: &mut Reader<'_>, bytes_max: usize) -> Result<Vec<u8>, PayloadError> {
    const WRONG: PayloadError = PayloadError::Format;
    let mut plain_length = || match length(reader) {
        Some(Length::Bytes(len)) => usize::try_from(len).map_err(|_| WRONG),
        _ => Err(WRONG),
    };
    let (packed_len, len) = (plain_length()?, plain_length()?);
    let packed = reader.bytes(packed_len).ok_or(WRONG)?;
    if len > bytes_max {
        return Err(PayloadError::TooLong);
    }
    expand(packed, len).ok_or(WRONG)
}

/// Expands LZF to exactly `len` bytes. A control byte below 32 is followed by one literal byte more than it
/// says; another one copies from the bytes made before: its upper three bits and two are the length (seven
/// means that a byte follows with more), its lower five and the next byte how far back.
fn expand(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut reader = Reader::new(packed);
    // Not `len`: what is declared may be far more than what is there.
    let mut out = Vec::with_capacity(len.min(packed.len().saturating_mul(4)));
    while let Some(control) = reader.u8() {
        if control < 32 {
            out.extend_from_slice(reader.bytes(usize::from(control) + 1)?);
        } else {
            let mut count = usize::from(control >> 5);
            if count == 7 {
                count += usize::from(reader.u8()?);
            }
            let back = (usize::from(control & 0x1f) << 8) + usize::from(reader.u8()?) + 1;
            let from = out.len().checked_sub(back)?;
            // What is copied may be what is being made.
            for place in from..from + count + 2 {
                out.push(*out.get(place)?);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// The polynomial of CRC-64/REDIS, its bits in the order of the reflected algorithm.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// Eight tables, so that eight bytes are taken at a time.
static TABLES: [[u64; 256]; 8] = {
    let mut tables = [[0u64; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
};

/// CRC-64/REDIS of `bytes`.
fn crc64(bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut crc = 0u64;
    for chunk in chunks {
        let mixed = (crc ^ u64::from_le_bytes(*chunk)).to_le_bytes();
        crc = mixed
            .iter()
            .zip(TABLES.iter().rev())
            .fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    rest.iter().fold(crc, |crc, byte| TABLES[0][usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;

#[cfg(test)]
#[path = "rdb_test.rs"]
mod rdb_test;
