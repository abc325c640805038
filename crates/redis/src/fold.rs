//! Numbers that are found by going through a large value once: how many bits are set, where one is.
//!
//! Invariant: what is found is the same whatever pieces the value comes in.

use std::ops::Range;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    /// How many bits are set.
    Ones,
    /// The first bit that is `bit`; `missing` when there is none.
    First { bit: bool, missing: i64 },
}

/// A search that takes a value's bytes in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    /// The bits in question.
    bits: Range<u64>,
    sought: Sought,
    ones: u64,
}

impl Fold {
    /// Counts the ones among `bits`.
    pub fn ones(bits: Range<u64>) -> Fold {
        Fold { bits, sought: Sought::Ones, ones: 0 }
    }

    /// Searches the first of `bits` that is `bit`.
    pub fn first(bits: Range<u64>, bit: bool, missing: i64) -> Fold {
        Fold { bits, sought: Sought::First { bit, missing }, ones: 0 }
    }

    /// The bytes that it must see.
    pub fn bytes(&self) -> Range<u64> {
        self.bits.start / 8..self.bits.end.div_ceil(8)
    }

    /// Takes the bytes from `offset` on; a number when nothing further can change it.
    pub fn take(&mut self, offset: u64, bytes: &[u8]) -> Option<i64> {
        let base = offset * 8;
        let end = self.bits.end.saturating_sub(base).min(bytes.len() as u64 * 8);
        let start = self.bits.start.saturating_sub(base).min(end);
        match self.sought {
            Sought::Ones => {
                self.ones += ones_between(bytes, start as usize, end as usize);
                None
            }
            Sought::First { bit, .. } => {
                let found = first_bit(bytes, bit, start as usize, end as usize)?;
                Some((base + found as u64) as i64)
            }
        }
    }

    /// What is found when all bytes were taken.
    pub fn end(&self) -> i64 {
        match self.sought {
            Sought::Ones => self.ones as i64,
            Sought::First { missing, .. } => missing,
        }
    }
}

fn bit_at(value: &[u8], offset: usize) -> bool {
    value.get(offset / 8).is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

fn ones(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let whole: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    whole + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// The ones among the bits `start..end`.
fn ones_between(value: &[u8], start: usize, end: usize) -> u64 {
    let (first, last) = (start / 8, end.div_ceil(8));
    let mut total = ones(&value[first..last]);
    for bit in (first * 8..start).chain(end..last * 8) {
        total -= u64::from(bit_at(value, bit));
    }
    total
}

/// The first bit equal to `wanted` among the bits `start..end`.
fn first_bit(value: &[u8], wanted: bool, start: usize, end: usize) -> Option<usize> {
    let skip = if wanted { 0 } else { 0xff };
    let mut bit = start;
    while bit < end {
        if bit.is_multiple_of(8) && end - bit >= 8 && value[bit / 8] == skip {
            bit += 8;
        } else if bit_at(value, bit) == wanted {
            return Some(bit);
        } else {
            bit += 1;
        }
    }
    None
}

#[cfg(test)]
#[path = "fold_test.rs"]
mod fold_test;
