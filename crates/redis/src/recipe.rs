//! Large values that are made from others: copies, combinations of bits, values with a part overwritten.
//!
//! Invariant: a window of the result depends on the same window of the sources only, so that the result
//! is made window by window, source after source.

use std::ops::Range;
use tierstone_store::{LargeMap, Place};

/// How bits are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitOperation {
    And,
    Or,
    Xor,
    Not,
    /// In the first, in none of the others.
    Diff,
    /// Not in the first, in one of the others.
    Diff1,
    /// In the first, in one of the others.
    AndOr,
    /// In exactly one.
    One,
}

/// What becomes of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Each lies over those before it, at its place.
    Overlay,
    /// Their bits are combined; shorter ones end in zeros.
    Bits(BitOperation),
}

/// The bytes of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// In one record: a copy.
    Short(Vec<u8>),
    /// In chunks.
    Large(Place, LargeMap),
}

/// One source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Where its first byte lies in the result.
    pub at: u64,
    pub bytes: Bytes,
}

impl Source {
    /// A source that begins where the result begins.
    pub fn new(bytes: Bytes) -> Source {
        Source { at: 0, bytes }
    }

    fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::Short(bytes) => bytes.len() as u64,
            Bytes::Large(_, map) => map.len(),
        }
    }

    /// The part of it that lies in `window` of the result, by its own offsets.
    pub fn part(&self, window: &Range<u64>) -> Range<u64> {
        let start = window.start.saturating_sub(self.at).min(self.len());
        let end = window.end.saturating_sub(self.at).min(self.len());
        start..end
    }

    /// Where in `window` its part lies.
    pub fn offset(&self, window: &Range<u64>, part: &Range<u64>) -> usize {
        if part.is_empty() { 0 } else { (self.at + part.start - window.start) as usize }
    }
}

/// A large value that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// Where its owner lies.
    pub target: Place,
    /// Its length in bytes.
    pub len: u64,
    pub mix: Mix,
    pub sources: Vec<Source>,
}

/// One window of a result.
#[derive(Debug)]
pub(crate) struct Mixed {
    mix: Mix,
    bytes: Vec<u8>,
    /// What operations remember of the others beside `bytes`; as long as it, or empty.
    others: Vec<u8>,
}

impl Mixed {
    /// A window of `len` bytes of which no source is known.
    pub fn new(mix: Mix, len: usize) -> Mixed {
        use BitOperation::{AndOr, Diff, Diff1, One};
        let remembers = matches!(mix, Mix::Bits(Diff | Diff1 | AndOr | One));
        Mixed { mix, bytes: vec![0; len], others: vec![0; if remembers { len } else { 0 }] }
    }

    /// Takes the part of source `index` that lies in this window, from byte `at` of the window on. Sources
    /// come in order, those without a part too.
    pub fn add(&mut self, index: usize, at: usize, part: &[u8]) {
        let end = at + part.len();
        let operation = match self.mix {
            Mix::Bits(operation) if index > 0 => operation,
            _ => return self.bytes[at..end].copy_from_slice(part),
        };
        let each = |target: &mut [u8], change: fn(&mut u8, u8)| {
            target[at..end].iter_mut().zip(part).for_each(|(byte, other)| change(byte, *other));
        };
        match operation {
            BitOperation::And => {
                each(&mut self.bytes, |byte, other| *byte &= other);
                self.bytes[..at].fill(0);
                self.bytes[end..].fill(0);
            }
            BitOperation::Or => each(&mut self.bytes, |byte, other| *byte |= other),
            BitOperation::Xor => each(&mut self.bytes, |byte, other| *byte ^= other),
            BitOperation::Not => {}
            BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr => {
                each(&mut self.others, |any, other| *any |= other);
            }
            BitOperation::One => {
                let seen = self.bytes[at..end].iter_mut().zip(&mut self.others[at..end]);
                for ((odd, many), other) in seen.zip(part) {
                    *many |= *odd & other;
                    *odd ^= other;
                }
            }
        }
    }

    /// The window, when all sources were taken.
    pub fn finish(mut self) -> Vec<u8> {
        let Mix::Bits(operation) = self.mix else { return self.bytes };
        let with_others = |bytes: &mut [u8], others: &[u8], change: fn(&mut u8, u8)| {
            bytes.iter_mut().zip(others).for_each(|(byte, other)| change(byte, *other));
        };
        match operation {
            BitOperation::And | BitOperation::Or | BitOperation::Xor => {}
            BitOperation::Not => self.bytes.iter_mut().for_each(|byte| *byte = !*byte),
            BitOperation::Diff | BitOperation::One => {
                with_others(&mut self.bytes, &self.others, |byte, other| *byte &= !other);
            }
            BitOperation::Diff1 => {
                with_others(&mut self.bytes, &self.others, |byte, other| *byte = !*byte & other);
            }
            BitOperation::AndOr => with_others(&mut self.bytes, &self.others, |byte, other| *byte &= other),
        }
        self.bytes
    }
}

#[cfg(test)]
#[path = "recipe_test.rs"]
mod recipe_test;
