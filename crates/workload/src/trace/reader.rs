//! Reading a trace file, record by record.
//!
//! A file that ends inside a frame, or without the last one, is cut: all records before are given, and
//! [`TraceReader::is_cut`] tells. A frame whose check does not fit is damage, and an error.

use std::io::{ErrorKind as IoErrorKind, Read};

use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, Result};

use super::writer::{
    BODY_BYTES_MAX, CHECK_BYTES, FLAG_DATABASE, FLAG_EXPIRY, FLAG_HASHED, FLAG_MISS, FLAG_VALUE, FLAGS,
    HEAD_BYTES, KIND_END, KIND_OTHER, MAGIC, VERSION, frame_check, head_sum, is_name,
};
use super::{
    DATABASE_MAX, KEY_BYTES_MAX, TraceHead, TraceKey, TraceOperation, TraceRecord, TraceSource,
    VALUE_BYTES_MAX,
};

/// Bytes that the length of a frame may take.
const LENGTH_BYTES_MAX: usize = 3;

/// Gives the records of a trace in their order. Memory: one frame.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    input: R,
    head: TraceHead,
    head_sum: u64,
    records: u64,
    time_us: u64,
    frame: Vec<u8>,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Cut,
}

impl<R: Read> TraceReader<R> {
    /// Reads the head from `input`, which should be buffered.
    ///
    /// # Errors
    /// `InvalidInput`: this is no trace. `Incompatible`: of another version. `Corrupt`: the head is damaged or cut.
    pub fn new(mut input: R) -> Result<TraceReader<R>> {
        let mut bytes = [0; HEAD_BYTES];
        let count = read_up_to(&mut input, &mut bytes)?;
        if count < MAGIC.len() || &bytes[..MAGIC.len()] != MAGIC {
            return Err(Error::new(ErrorKind::InvalidInput, "this is no recorded workload"));
        }
        let (head, head_sum) = parse_head(&bytes[..count])?;
        Ok(TraceReader { input, head, head_sum, records: 0, time_us: 0, frame: Vec::new(), end: None })
    }

    /// What stands before the records.
    pub fn head(&self) -> TraceHead {
        self.head
    }

    /// Records read so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether the file was found to end before its end. To be asked when [`TraceReader::next_record`] gave `None`.
    pub fn is_cut(&self) -> bool {
        self.end == Some(End::Cut)
    }

    /// The next record; `None` behind the last whole one.
    ///
    /// # Errors
    /// `Corrupt`: what is there is not what was written, with the number of the record; those before it are right.
    /// Others: when the input fails.
    pub fn next_record(&mut self) -> Result<Option<TraceRecord>> {
        if self.end.is_some() {
            return Ok(None);
        }
        if !self.read_frame()? {
            self.end = Some(End::Cut);
            return Ok(None);
        }
        let body = &self.frame[..self.frame.len() - CHECK_BYTES];
        if frame_check(self.head_sum, self.records, body) != self.frame[body.len()..] {
            return Err(self.damaged("its checksum does not fit"));
        }
        if body.first() == Some(&KIND_END) {
            return self.read_end();
        }
        let Some(record) = parse_record(body, self.time_us) else {
            return Err(self.damaged("it is no record of this version"));
        };
        self.time_us = record.time_us;
        self.records += 1;
        Ok(Some(record))
    }

    fn damaged(&self, what: &str) -> Error {
        Error::new(ErrorKind::Corrupt, format!("record {} of the trace is damaged: {what}", self.records + 1))
    }

    /// Length, body and check of the next frame; false when the file ends before.
    fn read_frame(&mut self) -> Result<bool> {
        let mut length = 0usize;
        for place in 0..LENGTH_BYTES_MAX {
            let mut byte = [0];
            if read_up_to(&mut self.input, &mut byte)? == 0 {
                return Ok(false);
            }
            length |= usize::from(byte[0] & 0x7f) << (7 * place);
            if byte[0] & 0x80 == 0 {
                break;
            }
            if place + 1 == LENGTH_BYTES_MAX {
                return Err(self.damaged("its length is none"));
            }
        }
        if !(1..=BODY_BYTES_MAX).contains(&length) {
            return Err(self.damaged("its length is none"));
        }
        self.frame.resize(length + CHECK_BYTES, 0);
        Ok(read_up_to(&mut self.input, &mut self.frame)? == self.frame.len())
    }

    fn read_end(&mut self) -> Result<Option<TraceRecord>> {
        let mut reader = Reader::new(&self.frame[1..self.frame.len() - CHECK_BYTES]);
        let told = reader.varint();
        if told != Some(self.records) || !reader.rest().is_empty() {
            return Err(self.damaged("the last frame tells another number of records"));
        }
        if read_up_to(&mut self.input, &mut [0])? != 0 {
            return Err(self.damaged("there is something behind the last frame"));
        }
        self.end = Some(End::Whole);
        Ok(None)
    }
}

fn parse_head(bytes: &[u8]) -> Result<(TraceHead, u64)> {
    let Ok(whole) = <&[u8; HEAD_BYTES]>::try_from(bytes) else {
        return Err(Error::new(ErrorKind::Corrupt, "the trace's head is cut"));
    };
    let mut reader = Reader::new(&bytes[MAGIC.len()..]);
    let mut fields = || {
        Some((
            reader.u32()?,
            reader.u32()?,
            reader.u32()?,
            reader.u32()?,
            reader.u64()?,
            reader.u64()?,
            reader.u64()?,
        ))
    };
    let Some((version, flags, source, zero, began_ms, zeros, sum)) = fields() else {
        return Err(Error::new(ErrorKind::Corrupt, "the trace's head is cut"));
    };
    if head_sum(whole) != sum {
        return Err(Error::new(ErrorKind::Corrupt, "the trace's head is damaged: its checksum does not fit"));
    }
    if version != VERSION || flags > 1 || zero != 0 || zeros != 0 {
        let message = format!(
            "the trace has version {version} or marks that this program, of version {VERSION}, does not know"
        );
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    let source = (source as usize).checked_sub(1).and_then(|place| TraceSource::ALL.get(place));
    match source {
        Some(source) => Ok((TraceHead { source: *source, is_anonymous: flags == 1, began_ms }, sum)),
        None => Err(Error::new(
            ErrorKind::Incompatible,
            "the trace comes from a source that this program does not know",
        )),
    }
}

fn parse_record(body: &[u8], time_us: u64) -> Option<TraceRecord> {
    let mut reader = Reader::new(body);
    let (kind, flags) = (reader.u8()?, reader.u8()?);
    if flags & !FLAGS != 0 {
        return None;
    }
    let has = |flag: u8| flags & flag != 0;
    let time_us = time_us.checked_add(reader.varint()?)?;
    let database = if has(FLAG_DATABASE) { u32::try_from(reader.varint()?).ok()? } else { 0 };
    let key = match has(FLAG_HASHED) {
        true => TraceKey::Hashed { hash: reader.u64()?, bytes: u32::try_from(reader.varint()?).ok()? },
        false => {
            let length = usize::try_from(reader.varint()?).ok()?;
            TraceKey::Named(reader.bytes(length)?.to_vec())
        }
    };
    let value_bytes = if has(FLAG_VALUE) { Some(u32::try_from(reader.varint()?).ok()?) } else { None };
    let expiry_ms = if has(FLAG_EXPIRY) { Some(reader.varint()?) } else { None };
    let operation = match kind {
        KIND_OTHER => {
            let name = std::str::from_utf8(reader.bytes(reader.rest().len())?).ok()?;
            TraceOperation::Other(is_name(name).then(|| name.to_owned())?)
        }
        coded => TraceOperation::CODED.get(usize::from(coded).checked_sub(1)?)?.clone(),
    };
    let fits = database <= DATABASE_MAX
        && value_bytes.is_none_or(|bytes| bytes <= VALUE_BYTES_MAX)
        && !matches!(&key, TraceKey::Named(key) if key.len() > KEY_BYTES_MAX)
        && reader.rest().is_empty();
    let record =
        TraceRecord { time_us, operation, database, key, is_miss: has(FLAG_MISS), value_bytes, expiry_ms };
    fits.then_some(record)
}

/// Fills `bytes` as far as the input goes.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match input.read(&mut bytes[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == IoErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}
