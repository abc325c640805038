//! The open cache traces as CSV, without a head line: `timestamp,key,key size,value size,client,operation,TTL`. Times are in
//! seconds, sizes in bytes, a TTL of 0 is none (Yang, Yue, Rashmi: "A large scale analysis of hundreds of in-memory cache
//! clusters at Twitter", OSDI 2020, and the form in which its traces are published).
//!
//! Keys of these traces are anonymised: where the key is not as long as its size says, hash and size are kept. Times
//! are whole seconds; records of one second are laid out evenly over it, in their order.

use tierstone_base::{Error, ErrorKind, Result};

use super::{ImportCounts, Sink, TraceKey, TraceOperation, TraceRecord, VALUE_BYTES_MAX, hash_of};

/// The longest line, in bytes; the rest of a longer one is passed over.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Records of one second that are held to be laid out over it: some 100 MiB at most.
const SECOND_RECORDS_MAX: usize = 1 << 20;
const SECOND_US: u64 = 1_000_000;

/// Makes records of lines.
#[derive(Debug, Default)]
pub struct CacheCsvImport {
    line: Vec<u8>,
    is_too_long: bool,
    counts: ImportCounts,
    /// The first line's time, in seconds.
    began_s: Option<u64>,
    /// The second of the records that are held, since the first line.
    second: u64,
    held: Vec<TraceRecord>,
}

impl CacheCsvImport {
    /// Before the first line.
    pub fn new() -> CacheCsvImport {
        CacheCsvImport::default()
    }

    /// What became of the lines so far.
    pub fn counts(&self) -> &ImportCounts {
        &self.counts
    }

    /// Takes the bytes that follow; records go to `sink`, those of a second when it is over.
    ///
    /// # Errors
    /// Those of `sink`; `InvalidInput` for more than a million records in one second.
    pub fn feed(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (content, is_end) = match part.strip_suffix(b"\n") {
                Some(content) => (content, true),
                None => (part, false),
            };
            let room = LINE_BYTES_MAX - self.line.len();
            self.is_too_long |= content.len() > room;
            self.line.extend_from_slice(&content[..content.len().min(room)]);
            if is_end {
                self.end_line(sink)?;
            }
        }
        Ok(())
    }

    /// Nothing more comes. A last line without its end counts as refused: nobody knows whether it is whole.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn finish(&mut self, sink: Sink<'_>) -> Result<()> {
        if !self.line.is_empty() {
            self.counts.lines += 1;
            self.counts.refuse();
            self.line.clear();
        }
        self.give(sink)
    }

    fn end_line(&mut self, sink: Sink<'_>) -> Result<()> {
        self.counts.lines += 1;
        let line = std::mem::take(&mut self.line);
        let is_too_long = std::mem::take(&mut self.is_too_long);
        let content = line.strip_suffix(b"\r").unwrap_or(&line);
        let result = match parse(content) {
            _ if content.is_empty() => Ok(()),
            Some((at_s, record)) if !is_too_long => self.take(at_s, record, sink),
            _ => {
                self.counts.refuse();
                Ok(())
            }
        };
        self.line = line;
        self.line.clear();
        result
    }

    fn take(&mut self, at_s: u64, record: TraceRecord, sink: Sink<'_>) -> Result<()> {
        let began_s = *self.began_s.get_or_insert(at_s);
        let second = at_s.saturating_sub(began_s);
        if second.checked_mul(SECOND_US).and_then(|us| us.checked_add(SECOND_US)).is_none() {
            self.counts.refuse();
            return Ok(());
        }
        if second > self.second {
            self.give(sink)?;
            self.second = second;
        }
        self.counts.out_of_order += u64::from(second < self.second || at_s < began_s);
        if self.held.len() >= SECOND_RECORDS_MAX {
            let message =
                format!("more than {SECOND_RECORDS_MAX} records of one second: take a part of the trace");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        self.counts.note(&record);
        self.held.push(record);
        Ok(())
    }

    /// Lays what is held out over its second.
    fn give(&mut self, sink: Sink<'_>) -> Result<()> {
        let count = self.held.len() as u64;
        for (place, mut record) in self.held.drain(..).enumerate() {
            record.time_us = self.second * SECOND_US + place as u64 * SECOND_US / count;
            sink(&record)?;
        }
        Ok(())
    }
}

/// Time in seconds and the record of a line. A key may hold commas: the fields are counted from both ends.
fn parse(line: &[u8]) -> Option<(u64, TraceRecord)> {
    let mut fields = line.rsplitn(6, |byte| *byte == b',');
    let mut text = || std::str::from_utf8(fields.next()?).ok().map(str::trim);
    let (ttl_s, operation, _client, value_bytes, key_bytes) = (text()?, text()?, text()?, text()?, text()?);
    let first = fields.next()?;
    let comma = first.iter().position(|byte| *byte == b',')?;
    let (at_s, key) = (std::str::from_utf8(&first[..comma]).ok()?.trim(), &first[comma + 1..]);
    let at_s = at_s.parse::<u64>().ok()?;
    let (key_bytes, value_bytes) = (key_bytes.parse::<u32>().ok()?, value_bytes.parse::<u32>().ok()?);
    let ttl_s = ttl_s.parse::<u64>().ok()?;
    if key.is_empty() || value_bytes > VALUE_BYTES_MAX {
        return None;
    }
    let operation = match operation {
        "get" | "gets" => TraceOperation::Read,
        "set" => TraceOperation::Write,
        "add" => TraceOperation::Add,
        "replace" | "cas" => TraceOperation::Replace,
        "append" | "prepend" => TraceOperation::Append,
        "incr" | "decr" => TraceOperation::Update,
        "delete" => TraceOperation::Delete,
        _ => return None,
    };
    let is_read = operation == TraceOperation::Read;
    let has_value = !matches!(operation, TraceOperation::Delete) && (value_bytes > 0 || !is_read);
    let key = match key.len() == key_bytes as usize {
        true => TraceKey::of(key),
        false => TraceKey::Hashed { hash: hash_of(key), bytes: key_bytes },
    };
    let mut record = TraceRecord::new(0, operation, key);
    // A read of a key that was not there has no value.
    record.is_miss = is_read && value_bytes == 0;
    let is_counter = record.operation == TraceOperation::Update && value_bytes == 0;
    record.value_bytes = (has_value && !is_counter).then_some(value_bytes);
    record.expiry_ms = (ttl_s > 0 && !is_read).then(|| ttl_s.saturating_mul(1_000));
    Some((at_s, record))
}
