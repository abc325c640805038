//! Writing a trace file: a head, a frame for each record, a last frame that tells how many there were.

use std::io::Write;

use tierstone_base::checksum::checksum;
use tierstone_base::codec::put_varint;
use tierstone_base::{Error, ErrorKind, Result};

use super::{
    DATABASE_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, TraceHead, TraceKey, TraceOperation, TraceRecord,
    TraceSource, VALUE_BYTES_MAX,
};

/// The first bytes of a trace file.
pub const MAGIC: &[u8; 8] = b"TSWLTRAC";
/// The version that is written here.
pub const VERSION: u32 = 1;
/// Bytes of the head.
pub const HEAD_BYTES: usize = 48;
/// Bytes of a frame's checksum.
pub(super) const CHECK_BYTES: usize = 4;
/// The longest body of a frame: its fixed parts, a key and a name.
pub(super) const BODY_BYTES_MAX: usize = 64 + KEY_BYTES_MAX + NAME_BYTES_MAX;
const SALT: u64 = 0x776f_726b_6c6f_6164;

/// The kind of the last frame.
pub(super) const KIND_END: u8 = 0;
/// The kind of a command that is only named.
pub(super) const KIND_OTHER: u8 = 10;
pub(super) const FLAG_HASHED: u8 = 1;
pub(super) const FLAG_VALUE: u8 = 2;
pub(super) const FLAG_EXPIRY: u8 = 4;
pub(super) const FLAG_DATABASE: u8 = 8;
pub(super) const FLAG_MISS: u8 = 16;
pub(super) const FLAGS: u8 = 31;

/// The head's bytes.
pub(super) fn head_bytes(head: &TraceHead) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    let source =
        TraceSource::ALL.iter().position(|source| *source == head.source).map_or(0, |at| at as u32 + 1);
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&u32::from(head.is_anonymous).to_le_bytes());
    bytes[16..20].copy_from_slice(&source.to_le_bytes());
    bytes[24..32].copy_from_slice(&head.began_ms.to_le_bytes());
    let sum = head_sum(&bytes);
    bytes[40..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The checksum of a head, from all before it.
pub(super) fn head_sum(bytes: &[u8; HEAD_BYTES]) -> u64 {
    checksum(SALT, &bytes[..40])
}

/// The check of the frame with number `index` (from 0) behind a head with checksum `head`: a frame of another place, or
/// of another file, does not fit.
pub(super) fn frame_check(head: u64, index: u64, body: &[u8]) -> [u8; CHECK_BYTES] {
    (checksum(head ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15), body) as u32).to_le_bytes()
}

/// Writes a trace. What is not finished with [`TraceWriter::finish`] reads as cut.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    head: u64,
    records: u64,
    time_us: u64,
    body: Vec<u8>,
    frame: Vec<u8>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the head to `out`, which should be buffered.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn new(mut out: W, head: &TraceHead) -> Result<TraceWriter<W>> {
        let bytes = head_bytes(head);
        out.write_all(&bytes)?;
        Ok(TraceWriter {
            out,
            head: head_sum(&bytes),
            records: 0,
            time_us: 0,
            body: Vec::new(),
            frame: Vec::new(),
        })
    }

    /// Writes a record. Cost: the bytes of its key and some 12 more.
    ///
    /// # Errors
    /// `InvalidInput`: its time is before that of the last one, or a part of it is out of its range. Others: when the
    /// output fails.
    pub fn push(&mut self, record: &TraceRecord) -> Result<()> {
        self.check(record)?;
        self.body.clear();
        let (kind, name) = match &record.operation {
            TraceOperation::Other(name) => (KIND_OTHER, Some(name.as_str())),
            coded => {
                let place = TraceOperation::CODED.iter().position(|other| other == coded);
                (place.map_or(KIND_OTHER, |place| place as u8 + 1), None)
            }
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(matches!(record.key, TraceKey::Hashed { .. }), FLAG_HASHED)
            | flag(record.value_bytes.is_some(), FLAG_VALUE)
            | flag(record.expiry_ms.is_some(), FLAG_EXPIRY)
            | flag(record.database != 0, FLAG_DATABASE)
            | flag(record.is_miss, FLAG_MISS);
        self.body.extend_from_slice(&[kind, flags]);
        put_varint(&mut self.body, record.time_us - self.time_us);
        if record.database != 0 {
            put_varint(&mut self.body, u64::from(record.database));
        }
        match &record.key {
            TraceKey::Named(key) => {
                put_varint(&mut self.body, key.len() as u64);
                self.body.extend_from_slice(key);
            }
            TraceKey::Hashed { hash, bytes } => {
                self.body.extend_from_slice(&hash.to_le_bytes());
                put_varint(&mut self.body, u64::from(*bytes));
            }
        }
        if let Some(bytes) = record.value_bytes {
            put_varint(&mut self.body, u64::from(bytes));
        }
        if let Some(ms) = record.expiry_ms {
            put_varint(&mut self.body, ms);
        }
        if let Some(name) = name {
            self.body.extend_from_slice(name.as_bytes());
        }
        self.time_us = record.time_us;
        self.put_frame()
    }

    fn check(&self, record: &TraceRecord) -> Result<()> {
        let refuse =
            |what: String| Err(Error::new(ErrorKind::InvalidInput, format!("a trace's record: {what}")));
        if record.time_us < self.time_us {
            return refuse(format!("at {} µs, behind one of {} µs", record.time_us, self.time_us));
        }
        if record.database > DATABASE_MAX {
            return refuse(format!("database {} is above {DATABASE_MAX}", record.database));
        }
        if record.value_bytes.is_some_and(|bytes| bytes > VALUE_BYTES_MAX) {
            return refuse(format!("a value of more than {VALUE_BYTES_MAX} bytes"));
        }
        if let TraceKey::Named(key) = &record.key
            && key.len() > KEY_BYTES_MAX
        {
            return refuse(format!("a key of {} bytes", key.len()));
        }
        match &record.operation {
            TraceOperation::Other(name) if !is_name(name) => {
                refuse(format!("'{name:.40}' is no command's name"))
            }
            _ => Ok(()),
        }
    }

    fn put_frame(&mut self) -> Result<()> {
        self.frame.clear();
        put_varint(&mut self.frame, self.body.len() as u64);
        self.frame.extend_from_slice(&self.body);
        self.frame.extend_from_slice(&frame_check(self.head, self.records, &self.body));
        self.records += 1;
        Ok(self.out.write_all(&self.frame)?)
    }

    /// Records written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes the last frame, and gives the flushed output back.
    ///
    /// # Errors
    /// When the output fails.
    pub fn finish(mut self) -> Result<W> {
        self.body.clear();
        self.body.push(KIND_END);
        put_varint(&mut self.body, self.records);
        self.put_frame()?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Whether `name` can be kept as that of a command: letters, digits and `.`, `_`, `-`, `|`, not too many.
pub(super) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-' | b'|')
    };
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}
