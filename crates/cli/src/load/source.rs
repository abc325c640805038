//! Where records come from: a tree of files, lines of JSON, rows of CSV.
//!
//! Invariant: a record takes at most [`RECORD_BYTES_MAX`] of memory, whatever the file holds.

use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tierstone_base::{Error, ErrorKind, Result};

/// The longest line, row or file that is taken.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Where in the source a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, from one.
    Line(u64),
    /// A file.
    File(PathBuf),
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub place: Place,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// What went wrong.
#[derive(Debug)]
pub enum Faulty {
    /// One record; the next may be good.
    Entry(Place, String),
    /// The source as a whole: nothing comes after it.
    Source(Error),
}

/// Gives records, one after the other.
pub trait Source: Iterator<Item = std::result::Result<Entry, Faulty>> {
    /// Bytes read so far.
    fn bytes_read(&self) -> u64;

    /// Things without content that were passed over.
    fn skipped(&self) -> u64 {
        0
    }
}

/// Counts what passes, and refuses what is too long for one record.
#[derive(Debug)]
struct Counted<R> {
    inner: R,
    read: Rc<Cell<u64>>,
    /// What had been read when the last record was complete.
    record_start: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.read.get() - self.record_start.get() > RECORD_BYTES_MAX {
            return Err(std::io::Error::other("a row is longer than 64 MiB; is a quote not closed?"));
        }
        let count = self.inner.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

/// Regular files below a directory, in order of their names; links are not followed.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    waiting: Vec<PathBuf>,
    bytes_read: u64,
    skipped: u64,
}

impl Tree {
    pub fn new(root: &Path) -> Self {
        Tree { root: root.to_path_buf(), waiting: vec![root.to_path_buf()], bytes_read: 0, skipped: 0 }
    }

    /// A file's record; `None` for what has no content.
    fn visit(&mut self, path: &Path) -> std::io::Result<Option<Vec<u8>>> {
        // The root itself may be a link.
        let about = if path == self.root { path.metadata()? } else { path.symlink_metadata()? };
        if about.is_dir() {
            let entries = std::fs::read_dir(path)?.collect::<std::io::Result<Vec<_>>>()?;
            let mut names: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
            names.sort_unstable_by(|a, b| b.cmp(a));
            self.waiting.append(&mut names);
            return Ok(None);
        }
        if !about.is_file() {
            self.skipped += 1;
            return Ok(None);
        }
        let mut content = Vec::new();
        // It may have grown since it was looked at.
        std::fs::File::open(path)?.take(RECORD_BYTES_MAX + 1).read_to_end(&mut content)?;
        if content.len() as u64 > RECORD_BYTES_MAX {
            return Err(std::io::Error::other("the file is longer than 64 MiB"));
        }
        Ok(Some(content))
    }
}

impl Iterator for Tree {
    type Item = std::result::Result<Entry, Faulty>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let path = self.waiting.pop()?;
            let value = match self.visit(&path) {
                Ok(Some(value)) => value,
                Ok(None) => continue,
                Err(error) => return Some(Err(Faulty::Entry(Place::File(path), error.to_string()))),
            };
            self.bytes_read += value.len() as u64;
            let key = path.strip_prefix(&self.root).unwrap_or(&path).as_os_str().as_bytes().to_vec();
            return Some(Ok(Entry { place: Place::File(path), key, value }));
        }
    }
}

impl Source for Tree {
    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// One JSON object a line; empty lines are passed over.
#[derive(Debug)]
pub struct Ndjson<R> {
    reader: BufReader<R>,
    key_field: String,
    value_field: String,
    line: u64,
    bytes_read: u64,
    buffer: Vec<u8>,
    is_over: bool,
}

impl<R: Read> Ndjson<R> {
    pub fn new(file: R, key_field: &str, value_field: &str) -> Self {
        Ndjson {
            reader: BufReader::with_capacity(256 << 10, file),
            key_field: key_field.to_owned(),
            value_field: value_field.to_owned(),
            line: 0,
            bytes_read: 0,
            buffer: Vec::new(),
            is_over: false,
        }
    }

    /// Reads the next line; false at the end of the file.
    fn read_line(&mut self) -> std::io::Result<bool> {
        self.buffer.clear();
        let count = (&mut self.reader).take(RECORD_BYTES_MAX + 1).read_until(b'\n', &mut self.buffer)?;
        self.line += 1;
        self.bytes_read += count as u64;
        Ok(count > 0)
    }

    /// Passes over the rest of a line that is too long, without keeping it.
    fn skip_line(&mut self) -> std::io::Result<()> {
        loop {
            let available = self.reader.fill_buf()?;
            let end = available.iter().position(|&byte| byte == b'\n').map(|place| place + 1);
            let count = end.unwrap_or(available.len());
            let is_last = end.is_some() || available.is_empty();
            self.reader.consume(count);
            self.bytes_read += count as u64;
            if is_last {
                return Ok(());
            }
        }
    }

    fn next_entry(&mut self) -> std::io::Result<Option<std::result::Result<Entry, Faulty>>> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            let place = Place::Line(self.line);
            if self.buffer.len() as u64 > RECORD_BYTES_MAX && self.buffer.last() != Some(&b'\n') {
                self.skip_line()?;
                return Ok(Some(Err(Faulty::Entry(place, "the line is longer than 64 MiB".to_owned()))));
            }
            if self.buffer.trim_ascii().is_empty() {
                continue;
            }
            return Ok(Some(match parse_line(&self.buffer, &self.key_field, &self.value_field) {
                Ok((key, value)) => Ok(Entry { place, key, value }),
                Err(message) => Err(Faulty::Entry(place, message)),
            }));
        }
    }
}

impl<R: Read> Iterator for Ndjson<R> {
    type Item = std::result::Result<Entry, Faulty>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let result = self.next_entry();
        self.is_over = !matches!(result, Ok(Some(_)));
        result.unwrap_or_else(|error| Some(Err(Faulty::Source(error.into()))))
    }
}

impl<R: Read> Source for Ndjson<R> {
    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

/// Key and value of one line.
fn parse_line(
    line: &[u8],
    key_field: &str,
    value_field: &str,
) -> std::result::Result<(Vec<u8>, Vec<u8>), String> {
    let fields: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_slice(line).map_err(|error| format!("no JSON object: {error}"))?;
    let field = |name: &str| fields.get(name).map(|raw| raw.get()).ok_or(format!("no field '{name}'"));
    let key = field(key_field)?;
    if key.starts_with(['{', '[']) || key == "null" {
        return Err(format!("the key is {}: a text or a number is needed", shortened(key)));
    }
    Ok((text_or_json(key)?, text_or_json(field(value_field)?)?))
}

/// The text that a JSON string stands for; anything else as it is written.
fn text_or_json(raw: &str) -> std::result::Result<Vec<u8>, String> {
    if !raw.starts_with('"') {
        return Ok(raw.as_bytes().to_vec());
    }
    serde_json::from_str::<String>(raw).map(String::into_bytes).map_err(|error| format!("no text: {error}"))
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(20).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Rows with a head line.
#[derive(Debug)]
pub struct Csv<R: Read> {
    reader: csv::Reader<Counted<R>>,
    head: Vec<String>,
    key_column: usize,
    value_column: Option<usize>,
    read: Rc<Cell<u64>>,
    record_start: Rc<Cell<u64>>,
    is_over: bool,
}

impl<R: Read> Csv<R> {
    /// Reads the head line. `columns`: of key (none: the first) and value (none: the whole row).
    pub fn new(file: R, delimiter: u8, columns: (Option<&str>, Option<&str>)) -> Result<Self> {
        let read = Rc::new(Cell::new(0));
        let record_start = Rc::new(Cell::new(0));
        let counted = Counted { inner: file, read: read.clone(), record_start: record_start.clone() };
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(counted);
        let wrong = |message: String| Error::new(ErrorKind::InvalidInput, message);
        let head: Vec<String> = reader
            .headers()
            .map_err(|error| wrong(format!("the head line cannot be read: {error}")))?
            .iter()
            .map(|name| name.trim_start_matches('\u{feff}').to_owned())
            .collect();
        let find = |name: &str| match head.iter().position(|column| column == name) {
            Some(place) => Ok(place),
            None => Err(wrong(format!("there is no column '{name}', only {}", head.join(", ")))),
        };
        let key_column = columns.0.map_or(Ok(0), find)?;
        let value_column = columns.1.map(find).transpose()?;
        Ok(Csv { reader, head, key_column, value_column, read, record_start, is_over: false })
    }

    fn entry(&self, row: &csv::ByteRecord) -> std::result::Result<(Vec<u8>, Vec<u8>), String> {
        let key = row.get(self.key_column).ok_or("the key's column is missing")?.to_vec();
        let value = match self.value_column {
            Some(column) => row.get(column).ok_or("the value's column is missing")?.to_vec(),
            None => self.row_json(row)?,
        };
        Ok((key, value))
    }

    /// The row as a JSON object, columns in their order.
    fn row_json(&self, row: &csv::ByteRecord) -> std::result::Result<Vec<u8>, String> {
        let mut json = vec![b'{'];
        for (name, cell) in self.head.iter().zip(row) {
            let cell = std::str::from_utf8(cell).map_err(|_| format!("column '{name}' is no UTF-8 text"))?;
            if json.len() > 1 {
                json.push(b',');
            }
            for (text, end) in [(name.as_str(), Some(b':')), (cell, None)] {
                let quoted = serde_json::to_string(text).map_err(|error| error.to_string())?;
                json.extend_from_slice(quoted.as_bytes());
                json.extend(end);
            }
        }
        json.push(b'}');
        Ok(json)
    }
}

impl<R: Read> Iterator for Csv<R> {
    type Item = std::result::Result<Entry, Faulty>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let mut row = csv::ByteRecord::new();
        let result = self.reader.read_byte_record(&mut row);
        self.record_start.set(self.read.get());
        let line = row.position().map_or(self.reader.position().line(), csv::Position::line);
        match result {
            Ok(false) => None,
            Ok(true) => Some(match self.entry(&row) {
                Ok((key, value)) => Ok(Entry { place: Place::Line(line), key, value }),
                Err(message) => Err(Faulty::Entry(Place::Line(line), message)),
            }),
            Err(error) => match error.kind() {
                csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
                    let line = pos.as_ref().map_or(line, csv::Position::line);
                    let message = format!("{len} columns where the head line has {expected_len}");
                    Some(Err(Faulty::Entry(Place::Line(line), message)))
                }
                _ => {
                    self.is_over = true;
                    let message = format!("line {line}: {error}");
                    Some(Err(Faulty::Source(Error::new(ErrorKind::InvalidInput, message))))
                }
            },
        }
    }
}

impl<R: Read> Source for Csv<R> {
    fn bytes_read(&self) -> u64 {
        self.read.get()
    }
}
