//! Where the arguments of one request lie.
//!
//! Invariants:
//! 1. Arguments of a multibulk request are ranges of the caller's input: nothing is copied. Those of
//!    an inline request are decoded into a buffer of their own, because quoting changes bytes.
//! 2. Once warm, filling an `Arguments` allocates nothing. Storage that one huge request needed is
//!    given back when the next request begins.

use std::ops::Index;

/// Ranges that stay allocated from one request to the next.
const KEPT_RANGES: usize = 1024;
/// Decoded bytes that stay allocated from one request to the next.
const KEPT_DECODED_BYTES: usize = 4096;

/// A part of the input, or of the decoded bytes.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u32,
    len: u32,
}

/// The arguments of one request, the command's name first; reusable.
///
/// The methods that return bytes take the input that the request was parsed from.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    ranges: Vec<Range>,
    decoded: Vec<u8>,
    is_inline: bool,
}

impl Arguments {
    /// Without arguments and without storage.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many arguments there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Argument `index`; `None` beyond the last, or when `input` is not the one that was parsed.
    #[inline]
    pub fn get<'a>(&'a self, index: usize, input: &'a [u8]) -> Option<&'a [u8]> {
        let range = self.ranges.get(index)?;
        let source = if self.is_inline { &self.decoded } else { input };
        source.get(range.start as usize..range.start as usize + range.len as usize)
    }

    /// All arguments in order.
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.ranges.iter().enumerate().map(move |(index, _)| self.get(index, input).unwrap_or_default())
    }

    /// The arguments and their input as one thing.
    #[inline]
    pub fn request<'a>(&'a self, input: &'a [u8]) -> Request<'a> {
        Request { arguments: self, input }
    }

    /// Forgets the arguments. Cost: O(1), and one deallocation after a huge request.
    #[inline]
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.is_inline = false;
        if self.ranges.capacity() > KEPT_RANGES {
            self.ranges = Vec::new();
        }
    }

    /// Makes ready for arguments that are decoded rather than pointed at.
    pub(super) fn begin_inline(&mut self) {
        self.clear();
        self.is_inline = true;
        self.decoded.clear();
        if self.decoded.capacity() > KEPT_DECODED_BYTES {
            self.decoded = Vec::new();
        }
    }

    /// Adds a part of the input. The caller has checked that both fit 32 bits.
    #[inline(always)]
    pub(super) fn push_range(&mut self, start: usize, len: usize) {
        self.ranges.push(Range { start: start as u32, len: len as u32 });
    }

    /// Adds a byte to the argument that is being decoded.
    pub(super) fn push_decoded(&mut self, byte: u8) {
        self.decoded.push(byte);
    }

    /// Ends the argument that is being decoded and that began at `start`.
    pub(super) fn end_decoded(&mut self, start: usize) {
        self.push_range(start, self.decoded.len() - start);
    }

    /// Where the next decoded argument begins.
    pub(super) fn decoded_len(&self) -> usize {
        self.decoded.len()
    }
}

/// One request: arguments and the input they point into.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    arguments: &'a Arguments,
    input: &'a [u8],
}

impl<'a> Request<'a> {
    /// How many arguments there are, the command's name included; at least 1 after a complete parse.
    #[inline]
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// Argument `index`, or `None` beyond the last.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.arguments.get(index, self.input)
    }

    /// All arguments in order, the command's name first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.arguments.iter(self.input)
    }
}

impl Index<usize> for Request<'_> {
    type Output = [u8];

    /// Argument `index`; panics beyond the last, as a slice does.
    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        match self.get(index) {
            Some(argument) => argument,
            None => unreachable!("argument {index} of {}", self.len()),
        }
    }
}
