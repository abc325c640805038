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
//! 1. Whatever bytes come, nothing is made beyond the given limit, or before its length is known, and nothing panics.
//! 2. What [`write_string`] writes, [`read_string`] and every Redis since version 5 read.

use std::borrow::Cow;
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
    let payload = Payload::open(payload)?;
    if payload.len() > bytes_max {
        return Err(PayloadError::TooLong);
    }
    payload.read().map(Cow::into_owned)
}

/// A payload whose string has not been made yet.
#[derive(Clone, Debug)]
pub struct Payload<'a>(Form<'a>);

/// How the string stands in its payload.
#[derive(Clone, Debug)]
enum Form<'a> {
    Plain(&'a [u8]),
    Number(String),
    /// Compressed, to become so many bytes.
    Packed(&'a [u8], usize),
}

impl<'a> Payload<'a> {
    /// Looks at a payload's version, checksum and type, and at what it says of its string. Cost: its length, for the checksum.
    ///
    /// # Errors
    /// See [`PayloadError`]; never [`PayloadError::TooLong`].
    pub fn open(payload: &'a [u8]) -> Result<Payload<'a>, PayloadError> {
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
        let form = form(&mut reader).ok_or(PayloadError::Format)?;
        if reader.rest().is_empty() { Ok(Payload(form)) } else { Err(PayloadError::Format) }
    }

    /// How long its string is, or claims to be, in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Plain(bytes) => bytes.len(),
            Form::Number(text) => text.len(),
            Form::Packed(_, len) => *len,
        }
    }

    /// Whether its string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The string. Cost: its length, where it is compressed.
    ///
    /// # Errors
    /// [`PayloadError::Format`].
    pub fn read(self) -> Result<Cow<'a, [u8]>, PayloadError> {
        Ok(match self.0 {
            Form::Plain(bytes) => Cow::Borrowed(bytes),
            Form::Number(text) => Cow::Owned(text.into_bytes()),
            Form::Packed(packed, len) => Cow::Owned(expand(packed, len).ok_or(PayloadError::Format)?),
        })
    }
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

fn form<'a>(reader: &mut Reader<'a>) -> Option<Form<'a>> {
    let number = match length(reader)? {
        Length::Bytes(len) => return Some(Form::Plain(reader.bytes(usize::try_from(len).ok()?)?)),
        Length::Packed(0) => i64::from(reader.u8()? as i8),
        Length::Packed(1) => i64::from(reader.u16()? as i16),
        Length::Packed(2) => i64::from(reader.u32()? as i32),
        Length::Packed(3) => {
            let (packed_len, len) = (plain_length(reader)?, plain_length(reader)?);
            return Some(Form::Packed(reader.bytes(packed_len)?, len));
        }
        Length::Packed(_) => return None,
    };
    Some(Form::Number(number.to_string()))
}

fn plain_length(reader: &mut Reader<'_>) -> Option<usize> {
    match length(reader)? {
        Length::Bytes(len) => usize::try_from(len).ok(),
        Length::Packed(_) => None,
    }
}

/// Bytes that three bytes of LZF make at most.
const EXPANDED_BYTES_MAX: usize = 264;

/// Expands LZF to exactly `len` bytes. A control byte below 32 is followed by one literal byte more than it
/// says; another one copies from the bytes made before: its upper three bits and two are the length (seven
/// means that a byte follows with more), its lower five and the next byte how far back.
fn expand(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    // What is declared may be more than all that is there can become.
    if len > packed.len().div_ceil(3).saturating_mul(EXPANDED_BYTES_MAX) {
        return None;
    }
    let mut reader = Reader::new(packed);
    let mut out = Vec::with_capacity(len);
    while let Some(control) = reader.u8() {
        if control < 32 {
            let literal = reader.bytes(usize::from(control) + 1)?;
            if literal.len() > len - out.len() {
                return None;
            }
            out.extend_from_slice(literal);
            continue;
        }
        let mut count = usize::from(control >> 5);
        if count == 7 {
            count += usize::from(reader.u8()?);
        }
        let back = (usize::from(control & 0x1f) << 8) + usize::from(reader.u8()?) + 1;
        let from = out.len().checked_sub(back)?;
        let end = out.len() + count + 2;
        if end > len {
            return None;
        }
        // What is copied may be what is being made: then it is what there is of it, again and again.
        while out.len() < end {
            let run = (out.len() - from).min(end - out.len());
            out.extend_from_within(from..from + run);
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
