//! Values out of the bytes that a server has sent so far.
//!
//! Invariants:
//! 1. The values found do not depend on how the stream was cut into pieces, nor does the error.
//! 2. Bytes are consumed as elements complete, so that a large aggregate is neither kept twice nor
//!    parsed twice; only a line or body in progress stays in the input.
//! 3. Nesting is a stack of bounded depth, not recursion; what a peer declares reserves little.
//! 4. After an error every further call gives the same error.

use serde::{Deserialize, Serialize};

use super::number::lenient_integer;
use super::reply_error::ReplyError;
use super::reply_header::{self, Header};
use super::value::Value;

/// Elements that an aggregate reserves room for before they come.
const RESERVED_ITEMS_MAX: usize = 256;

/// What a server may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplyLimits {
    /// The longest byte string, in bytes. Default 512 MiB.
    pub bulk_size_max_bytes: usize,
    /// The longest simple string, error or number, in bytes. Default 65,536.
    pub line_size_max_bytes: usize,
    /// The most elements of one reply, at all depths together. Default 16,777,216; each takes 40 bytes
    /// or so beside its own.
    pub element_count_max: usize,
    /// The most bytes of one reply. Default 1 GiB.
    pub reply_size_max_bytes: usize,
    /// The deepest nesting of aggregates. Default 32; at most 512, which is used for anything above.
    pub depth_max: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        ReplyLimits {
            bulk_size_max_bytes: 512 << 20,
            line_size_max_bytes: 64 << 10,
            element_count_max: 1 << 24,
            reply_size_max_bytes: 1 << 30,
            depth_max: 32,
        }
    }
}

/// What a call of [`ReplyParser::parse`] found.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyProgress {
    /// A reply. Drop `consumed` bytes from the input's front.
    Complete {
        /// Bytes to drop.
        consumed: usize,
        /// The reply.
        value: Value,
    },
    /// The reply goes on beyond the input. Drop `consumed` bytes all the same.
    Incomplete {
        /// Bytes to drop; may be 0.
        consumed: usize,
        /// At least this many bytes are missing, at least 1: a promise of the peer.
        needed_hint: usize,
    },
}

/// An aggregate whose elements are coming.
#[derive(Debug)]
struct Frame {
    marker: u8,
    missing: usize,
    items: Vec<Value>,
}

/// Finds replies in a stream; one for each connection.
#[derive(Debug)]
pub struct ReplyParser {
    limits: ReplyLimits,
    failure: Option<ReplyError>,
    stack: Vec<Frame>,
    /// The body whose header was consumed: marker and length.
    body: Option<(u8, usize)>,
    scanned: usize,
    /// Elements that this reply announced so far.
    elements: usize,
    bytes: usize,
}

impl ReplyParser {
    /// A parser at the start of a stream.
    pub fn new(limits: ReplyLimits) -> Self {
        let mut limits = limits;
        // Values are dropped and encoded by recursion.
        limits.depth_max = limits.depth_max.min(512);
        ReplyParser {
            limits,
            failure: None,
            stack: Vec::new(),
            body: None,
            scanned: 0,
            elements: 0,
            bytes: 0,
        }
    }

    /// Goes on with the reply at the start of `input`, which holds everything that has arrived and
    /// is not consumed. Cost: O(bytes) over all calls of a reply; allocates the values.
    pub fn parse(&mut self, input: &[u8]) -> Result<ReplyProgress, ReplyError> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        let mut position = 0;
        loop {
            let rest = &input[position..];
            match self.step(rest) {
                Ok(Some((consumed, complete))) => {
                    position += consumed;
                    if let Some(value) = complete {
                        self.elements = 0;
                        self.bytes = 0;
                        return Ok(ReplyProgress::Complete { consumed: position, value });
                    }
                }
                Ok(None) => {
                    let needed_hint = self.body.map_or(1, |(_, len)| (len + 2).saturating_sub(rest.len()));
                    return Ok(ReplyProgress::Incomplete { consumed: position, needed_hint });
                }
                Err(error) => {
                    self.failure = Some(error);
                    return Err(error);
                }
            }
        }
    }

    /// Whether a reply was begun and not ended, so that only this parser can go on.
    pub fn is_inside_reply(&self) -> bool {
        !self.stack.is_empty() || self.body.is_some() || self.scanned > 0
    }

    /// Takes one line or body off the input: the bytes it took, and the reply if it is complete.
    fn step(&mut self, input: &[u8]) -> Result<Option<(usize, Option<Value>)>, ReplyError> {
        if let Some((marker, len)) = self.body {
            let Some(end) = input.get(len..len + 2) else { return Ok(None) };
            if end != b"\r\n" {
                return Err(ReplyError::InvalidTerminator);
            }
            self.body = None;
            let value = body_value(marker, &input[..len])?;
            return Ok(Some((len + 2, self.settle(value))));
        }
        let Some((header, consumed)) = reply_header::read(input, &mut self.scanned, &self.limits)? else {
            return Ok(None);
        };
        self.account(0, consumed)?;
        let complete = match header {
            Header::Null => self.settle(Value::Null),
            Header::Line { marker, text } => {
                let value = line_value(marker, &input[text])?;
                self.settle(value)
            }
            Header::Body { marker, len } => {
                self.account(0, len + 2)?;
                self.body = Some((marker, len));
                None
            }
            Header::Aggregate { marker, items } => {
                self.account(items, 0)?;
                self.open(marker, items)?
            }
        };
        Ok(Some((consumed, complete)))
    }

    fn account(&mut self, elements: usize, bytes: usize) -> Result<(), ReplyError> {
        self.elements = self.elements.saturating_add(elements);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.elements > self.limits.element_count_max {
            return Err(ReplyError::TooManyElements);
        }
        if self.bytes > self.limits.reply_size_max_bytes {
            return Err(ReplyError::TooBigReply);
        }
        Ok(())
    }

    fn open(&mut self, marker: u8, items: usize) -> Result<Option<Value>, ReplyError> {
        if self.stack.len() >= self.limits.depth_max {
            return Err(ReplyError::TooDeep);
        }
        let frame =
            Frame { marker, missing: items, items: Vec::with_capacity(items.min(RESERVED_ITEMS_MAX)) };
        if items == 0 {
            return Ok(self.settle(frame.close()));
        }
        self.stack.push(frame);
        Ok(None)
    }

    /// Puts a complete value where it belongs; the whole reply, if that completes it.
    fn settle(&mut self, value: Value) -> Option<Value> {
        let mut value = value;
        loop {
            let Some(frame) = self.stack.last_mut() else { return Some(value) };
            frame.items.push(value);
            frame.missing -= 1;
            if frame.missing > 0 {
                return None;
            }
            value = self.stack.pop()?.close();
        }
    }
}

impl Frame {
    fn close(self) -> Value {
        match self.marker {
            b'%' => Value::Map(pairs(self.items)),
            b'~' => Value::Set(self.items),
            b'>' => Value::Push(self.items),
            b'|' => {
                let mut items = self.items;
                let value = Box::new(items.pop().unwrap_or(Value::Null));
                Value::Attributed { attributes: pairs(items), value }
            }
            _ => Value::Array(self.items),
        }
    }
}

fn pairs(items: Vec<Value>) -> Vec<(Value, Value)> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

fn line_value(marker: u8, text: &[u8]) -> Result<Value, ReplyError> {
    let value = match marker {
        b'+' => Some(Value::Simple(text.to_vec())),
        b'-' => Some(Value::Error(text.to_vec())),
        b':' => lenient_integer(text).map(Value::Integer),
        b'#' => match text {
            b"t" => Some(Value::Boolean(true)),
            b"f" => Some(Value::Boolean(false)),
            _ => None,
        },
        b',' => parse_double(text).map(Value::Double),
        _ => {
            let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            is_number.then(|| Value::BigNumber(text.to_vec()))
        }
    };
    value.ok_or(ReplyError::InvalidScalar)
}

fn parse_double(text: &[u8]) -> Option<f64> {
    match text {
        b"inf" | b"+inf" => Some(f64::INFINITY),
        b"-inf" => Some(f64::NEG_INFINITY),
        b"nan" | b"-nan" => Some(f64::NAN),
        // The standard library also takes `infinity` and the like.
        _ if text.iter().any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E')) => None,
        _ => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

fn body_value(marker: u8, body: &[u8]) -> Result<Value, ReplyError> {
    match marker {
        b'$' => Ok(Value::Bulk(body.to_vec())),
        b'!' => Ok(Value::Error(body.to_vec())),
        _ => match body {
            [a, b, c, b':', text @ ..] => Ok(Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() }),
            _ => Err(ReplyError::InvalidVerbatim),
        },
    }
}

#[cfg(test)]
#[path = "reply_parser_test.rs"]
mod reply_parser_test;
