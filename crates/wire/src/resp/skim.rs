//! Replies counted, not built: for load generators.
//!
//! Invariants:
//! 1. Memory is constant: nesting is one count of outstanding elements, bodies are skipped as they
//!    come, and only a header line in progress stays in the input.
//! 2. It ends a reply exactly where [`super::ReplyParser`] does, but does not check scalars and depth.
//! 3. After an error every further call gives the same error.

use super::reply_error::ReplyError;
use super::reply_header::{self, Header};
use super::reply_parser::ReplyLimits;

/// What kind of reply was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skimmed {
    /// A value.
    Value,
    /// No value.
    Null,
    /// An error.
    Error,
    /// A message beside the replies: answers no request.
    Push,
}

/// What a call of [`ReplySkimmer::skim`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkimProgress {
    /// A reply ended. Drop `consumed` bytes from the input's front.
    Complete {
        /// Bytes to drop.
        consumed: usize,
        /// What the reply was.
        kind: Skimmed,
    },
    /// The reply goes on beyond the input. Drop `consumed` bytes all the same.
    Incomplete {
        /// Bytes to drop; may be 0.
        consumed: usize,
    },
}

/// Finds the ends of replies; one for each connection.
#[derive(Clone, Debug)]
pub struct ReplySkimmer {
    limits: ReplyLimits,
    failure: Option<ReplyError>,
    /// Elements that have not begun, the reply itself included.
    outstanding: usize,
    /// Elements that this reply announced so far.
    elements: usize,
    /// What the reply is, once its own first line has come.
    kind: Option<Skimmed>,
    /// Bytes of a body and its line end still to skip.
    skip: usize,
    scanned: usize,
    bytes: usize,
}

impl ReplySkimmer {
    /// A skimmer at the start of a stream.
    pub fn new(limits: ReplyLimits) -> Self {
        ReplySkimmer {
            limits,
            failure: None,
            outstanding: 1,
            elements: 0,
            kind: None,
            skip: 0,
            scanned: 0,
            bytes: 0,
        }
    }

    /// Goes on with the reply at the start of `input`. Cost: about 20 ns for a bulk of any size.
    #[inline]
    pub fn skim(&mut self, input: &[u8]) -> Result<SkimProgress, ReplyError> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        let mut position = 0;
        loop {
            let rest = &input[position..];
            if self.skip > 0 {
                match self.skip_body(rest) {
                    Ok(consumed) => position += consumed,
                    Err(error) => return Err(self.fail(error)),
                }
                if self.skip > 0 {
                    return Ok(SkimProgress::Incomplete { consumed: position });
                }
            } else {
                match self.take_header(rest) {
                    Ok(Some(consumed)) => position += consumed,
                    Ok(None) => return Ok(SkimProgress::Incomplete { consumed: position }),
                    Err(error) => return Err(self.fail(error)),
                }
            }
            if self.outstanding == 0 && self.skip == 0 {
                let kind = self.kind.take().unwrap_or(Skimmed::Value);
                self.outstanding = 1;
                self.elements = 0;
                self.bytes = 0;
                return Ok(SkimProgress::Complete { consumed: position, kind });
            }
        }
    }

    /// Whether a reply was begun and not ended, so that only this skimmer can go on.
    pub fn is_inside_reply(&self) -> bool {
        self.outstanding != 1 || self.skip > 0 || self.kind.is_some() || self.scanned > 0
    }

    /// Skips what has come of the body; bytes skipped. Its line end stays until both bytes are there.
    #[inline]
    fn skip_body(&mut self, input: &[u8]) -> Result<usize, ReplyError> {
        let body = self.skip.saturating_sub(2);
        match input.get(body..self.skip) {
            Some(b"\r\n") if self.skip >= 2 => Ok(std::mem::take(&mut self.skip)),
            Some(_) => Err(ReplyError::InvalidTerminator),
            None => {
                let consumed = body.min(input.len());
                self.skip -= consumed;
                Ok(consumed)
            }
        }
    }

    #[inline]
    fn take_header(&mut self, input: &[u8]) -> Result<Option<usize>, ReplyError> {
        let Some((header, consumed)) = reply_header::read(input, &mut self.scanned, &self.limits)? else {
            return Ok(None);
        };
        // The reply itself begins when it alone is outstanding: attributes before it count more.
        if self.outstanding == 1 && self.kind.is_none() {
            self.kind = kind_of(&header);
        }
        self.outstanding -= 1;
        let mut bytes = consumed;
        match header {
            Header::Body { len, .. } => {
                self.skip = len + 2;
                bytes += len + 2;
            }
            Header::Aggregate { items, .. } => {
                self.elements = self.elements.saturating_add(items);
                if self.elements > self.limits.element_count_max {
                    return Err(ReplyError::TooManyElements);
                }
                self.outstanding += items;
            }
            Header::Line { .. } | Header::Null => {}
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.reply_size_max_bytes {
            return Err(ReplyError::TooBigReply);
        }
        Ok(Some(consumed))
    }

    #[cold]
    fn fail(&mut self, error: ReplyError) -> ReplyError {
        self.failure = Some(error);
        error
    }
}

/// `None` for attributes: the reply is still to come.
#[inline]
fn kind_of(header: &Header) -> Option<Skimmed> {
    match header {
        Header::Null => Some(Skimmed::Null),
        Header::Line { marker: b'-', .. } | Header::Body { marker: b'!', .. } => Some(Skimmed::Error),
        Header::Aggregate { marker: b'>', .. } => Some(Skimmed::Push),
        Header::Aggregate { marker: b'|', .. } => None,
        _ => Some(Skimmed::Value),
    }
}

#[cfg(test)]
#[path = "skim_test.rs"]
mod skim_test;
