//! Replies into a byte vector, in either protocol version.
//!
//! Invariants:
//! 1. A caller describes the reply once; what protocol 2 lacks is written in the shape that Redis
//!    uses there (map as flat array, boolean as 1 or 0, double as bulk, …).
//! 2. Nothing is allocated but room in the output.
//! 3. No line-type reply holds a line end: CR and LF become spaces.

use super::double::{DOUBLE_TEXT_MAX_BYTES, format_double};
use super::protocol_error::ProtocolError;
use super::value::Value;

/// The protocol that a connection speaks (`HELLO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Protocol 2, in which every connection begins.
    #[default]
    Resp2,
    /// Protocol 3.
    Resp3,
}

/// Appends replies to `out`.
///
/// Aggregates are written as a header with a count; the caller then writes that many elements.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
}

impl<'a> ReplyWriter<'a> {
    /// A writer that appends to `out` in `version`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, version: Version) -> Self {
        ReplyWriter { out, version }
    }

    /// The protocol it writes.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes in the output, those before this writer included.
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string.
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'+', text.as_ref());
    }

    /// An error; `text` begins with its code (`ERR …`, `WRONGTYPE …`).
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'-', text.as_ref());
    }

    /// The answer to a broken request, `-ERR Protocol error: …`.
    pub fn protocol_error(&mut self, error: &ProtocolError) {
        self.out.extend_from_slice(b"-ERR ");
        error.append_to(self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        push_header(self.out, b':', value);
    }

    /// A byte string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        push_bulk(self.out, bytes);
    }

    /// The header of a byte string of `len` bytes. The caller sends the bytes by another way, then
    /// calls [`Self::bulk_end`].
    pub fn bulk_header(&mut self, len: usize) {
        push_header(self.out, b'$', len);
    }

    /// Bytes that the output holds so far, those before this reply included.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether the output holds nothing.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The line end behind a byte string begun with [`Self::bulk_header`].
    pub fn bulk_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer as a byte string, as `GET` of a counter gives it.
    pub fn bulk_integer(&mut self, value: i64) {
        push_bulk(self.out, itoa::Buffer::new().format(value).as_bytes());
    }

    /// No value (protocol 2: a null bulk).
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// No value where an array would stand (protocol 2: a null array).
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"*-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// An array of `count` elements.
    #[inline]
    pub fn array(&mut self, count: usize) {
        push_header(self.out, b'*', count);
    }

    /// A map of `pairs` keys and values, to be written by turns (protocol 2: an array of twice as many).
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => push_header(self.out, b'*', pairs * 2),
            Version::Resp3 => push_header(self.out, b'%', pairs),
        }
    }

    /// A set of `count` elements (protocol 2: an array).
    pub fn set(&mut self, count: usize) {
        self.aggregate(b'~', count);
    }

    /// A message beside the replies, of `count` elements (protocol 2: an array).
    pub fn push(&mut self, count: usize) {
        self.aggregate(b'>', count);
    }

    /// Attributes, `pairs` names and values, before the reply they belong to. Protocol 2 has none:
    /// then nothing is written, the result is false, and the caller must leave the pairs out too.
    #[must_use = "where it is false the pairs must not be written"]
    pub fn attribute(&mut self, pairs: usize) -> bool {
        if self.version == Version::Resp3 {
            push_header(self.out, b'|', pairs);
        }
        self.version == Version::Resp3
    }

    /// A truth value (protocol 2: the integer 1 or 0).
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.version, value) {
            (Version::Resp2, false) => b":0\r\n",
            (Version::Resp2, true) => b":1\r\n",
            (Version::Resp3, false) => b"#f\r\n",
            (Version::Resp3, true) => b"#t\r\n",
        });
    }

    /// A floating-point number (protocol 2: a bulk of the same text).
    pub fn double(&mut self, value: f64) {
        let mut buffer = [0; DOUBLE_TEXT_MAX_BYTES];
        let text = format_double(value, &mut buffer);
        match self.version {
            Version::Resp2 => push_bulk(self.out, text),
            Version::Resp3 => self.line(b',', text),
        }
    }

    /// An integer of any size; `digits` is decimal with an optional sign (protocol 2: a bulk).
    pub fn big_number(&mut self, digits: impl AsRef<[u8]>) {
        match self.version {
            Version::Resp2 => push_bulk(self.out, digits.as_ref()),
            Version::Resp3 => self.line(b'(', digits.as_ref()),
        }
    }

    /// A text for people, with its format (`txt`, `mkd`) (protocol 2: a bulk without the format).
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        match self.version {
            Version::Resp2 => push_bulk(self.out, text),
            Version::Resp3 => {
                self.out.reserve(text.len() + 32);
                push_header(self.out, b'=', text.len() + 4);
                self.out.extend_from_slice(&format);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Bytes that are already encoded.
    #[inline]
    pub fn encoded(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A whole value, as a peer sent it or a test made it. Recurses as deep as the value.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Simple(text) => self.simple(text),
            Value::Error(text) => self.error_of_any_text(text),
            Value::Integer(value) => self.integer(*value),
            Value::Bulk(bytes) => self.bulk(bytes),
            Value::Null => self.null(),
            Value::Boolean(value) => self.boolean(*value),
            Value::Double(value) => self.double(*value),
            Value::BigNumber(digits) => self.big_number(digits),
            Value::Verbatim { format, text } => self.verbatim(*format, text),
            Value::Array(items) => {
                self.array(items.len());
                self.values(items);
            }
            Value::Set(items) => {
                self.set(items.len());
                self.values(items);
            }
            Value::Push(items) => {
                self.push(items.len());
                self.values(items);
            }
            Value::Map(pairs) => {
                self.map(pairs.len());
                self.pairs(pairs);
            }
            Value::Attributed { attributes, value } => {
                if self.attribute(attributes.len()) {
                    self.pairs(attributes);
                }
                self.value(value);
            }
        }
    }

    fn values(&mut self, values: &[Value]) {
        for value in values {
            self.value(value);
        }
    }

    fn pairs(&mut self, pairs: &[(Value, Value)]) {
        for (key, value) in pairs {
            self.value(key);
            self.value(value);
        }
    }

    /// Protocol 3 can carry an error with line ends whole, as a bulk error.
    fn error_of_any_text(&mut self, text: &[u8]) {
        let is_one_line = !text.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
        if is_one_line || self.version == Version::Resp2 {
            self.error(text);
        } else {
            push_header(self.out, b'!', text.len());
            self.out.extend_from_slice(text);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    fn aggregate(&mut self, marker: u8, count: usize) {
        match self.version {
            Version::Resp2 => push_header(self.out, b'*', count),
            Version::Resp3 => push_header(self.out, marker, count),
        }
    }

    fn line(&mut self, marker: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.push(marker);
        let start = self.out.len();
        self.out.extend_from_slice(text);
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends a marker, a number and a line end.
#[inline]
pub(super) fn push_header(out: &mut Vec<u8>, marker: u8, number: impl itoa::Integer) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number).as_bytes();
    let mut header = [0u8; 24];
    // A marker, at most 20 characters of a 64-bit number, a line end.
    let end = 1 + digits.len();
    header[0] = marker;
    header[1..end].copy_from_slice(digits);
    header[end..end + 2].copy_from_slice(b"\r\n");
    out.extend_from_slice(&header[..end + 2]);
}

/// Appends a byte string with its header and line end.
#[inline]
pub(super) fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 24);
    push_header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[path = "reply_test.rs"]
mod reply_test;
