//! How many old records a position has: a hash table with one cache line a change.
//!
//! A word is a tag of 40 bits above a count of 24; eight words are a line. A position belongs to one of many parts,
//! each a table with linear probing from the start of a line, at most 13/16 full. A part grows by itself, a quarter at
//! a time: no change waits for more than some thousand words to be moved.
//!
//! Memory: 8 bytes a word, 10 to 13 for each position that has old records. There are never more of those than old
//! records in blocks, so that the space of the blocks bounds it.
//!
//! Invariants:
//! 1. A count is at least that of the records that were added and not removed. It is more only where two positions
//!    share part and tag, which are counted together, or where it has reached its most, and stays there.
//! 2. An empty word is zero; between the line where a tag belongs and its word none is empty.

use tierstone_base::prefetch::prefetch_read;

/// Words of a cache line.
const LINE_WORDS: usize = 8;
const COUNT_BITS: u32 = 24;
/// A count that has come so far stays: the tombstone of such a key goes when the store is opened again.
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const TAG_BITS: u32 = 64 - COUNT_BITS;
/// Space of blocks for each part: some thousand records.
const PART_SPACE_BYTES: u64 = 512 << 10;
/// Parts that are made together, when the first of them is used: a large store that is empty has none.
const GROUP_PARTS: usize = 256;
/// Parts at most are two to this: their bits and those of tags are different ones.
const PART_BITS_MAX: u32 = 64 - TAG_BITS;

/// One line of words; parts begin at lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u64; LINE_WORDS]);

#[derive(Debug, Default)]
struct Part {
    lines: Box<[Line]>,
    len: u32,
}

/// Counts by position.
#[derive(Debug)]
pub(crate) struct OldCounts {
    /// Groups of parts; empty ones are not made yet.
    groups: Box<[Box<[Part]>]>,
    part_bits: u32,
    bytes: u64,
    /// Positions that have a count.
    len: u64,
}

/// Spreads all bits of a position, and can be turned back: different ones stay so.
fn spread(grave: u64) -> u64 {
    let mixed = (grave ^ grave >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

impl Part {
    fn words(&self) -> usize {
        self.lines.len() * LINE_WORDS
    }

    fn word(&self, at: usize) -> u64 {
        self.lines[at / LINE_WORDS].0[at % LINE_WORDS]
    }

    fn set(&mut self, at: usize, word: u64) {
        self.lines[at / LINE_WORDS].0[at % LINE_WORDS] = word;
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.words() { 0 } else { at + 1 }
    }

    /// The line where a tag belongs.
    #[inline]
    fn home(&self, tag: u64) -> usize {
        (((tag >> (TAG_BITS - 32)) * self.lines.len() as u64) >> 32) as usize
    }

    /// The word with this tag, or the empty one where it would be put. There is an empty one.
    #[inline]
    fn find(&self, tag: u64) -> (usize, u64) {
        let mut at = self.home(tag) * LINE_WORDS;
        loop {
            let word = self.word(at);
            if word == 0 || word >> COUNT_BITS == tag {
                return (at, word);
            }
            at = self.next(at);
        }
    }

    /// Makes it so many lines long; what is in it fits.
    fn resize(&mut self, lines: usize) {
        let old = std::mem::replace(&mut self.lines, vec![Line([0; LINE_WORDS]); lines].into_boxed_slice());
        for word in old.iter().flat_map(|line| line.0).filter(|&word| word != 0) {
            let (at, _) = self.find(word >> COUNT_BITS);
            self.set(at, word);
        }
    }

    /// Empties the word at `hole`: words behind it that belong before it move up.
    fn empty(&mut self, mut hole: usize) {
        self.len -= 1;
        let (words, mut at) = (self.words(), hole);
        loop {
            at = self.next(at);
            let word = self.word(at);
            if word == 0 {
                break;
            }
            let home = self.home(word >> COUNT_BITS) * LINE_WORDS;
            let passed = |from: usize, to: usize| if to >= from { to - from } else { to + words - from };
            if passed(home, at) >= passed(hole, at) {
                self.set(hole, word);
                hole = at;
            }
        }
        self.set(hole, 0);
    }
}

impl OldCounts {
    /// Of records in so many bytes of blocks; the space bounds the parts, not what can be counted.
    pub fn new(space_bytes: u64) -> Self {
        let parts = (space_bytes / PART_SPACE_BYTES).clamp(1, 1 << PART_BITS_MAX).next_power_of_two();
        let groups: Box<[Box<[Part]>]> =
            (0..parts.div_ceil(GROUP_PARTS as u64)).map(|_| Box::default()).collect();
        let bytes = size_of_val(&*groups) as u64;
        OldCounts { groups, part_bits: parts.trailing_zeros(), bytes, len: 0 }
    }

    /// A part, if it was ever used or a neighbour was.
    #[inline]
    fn part(&self, number: usize) -> Option<&Part> {
        self.groups[number / GROUP_PARTS].get(number % GROUP_PARTS)
    }

    fn made_part(&mut self, number: usize) -> &mut Part {
        let group = &mut self.groups[number / GROUP_PARTS];
        if group.is_empty() {
            *group = (0..GROUP_PARTS.min(1 << self.part_bits)).map(|_| Part::default()).collect();
            self.bytes += size_of_val(&**group) as u64;
        }
        &mut group[number % GROUP_PARTS]
    }

    /// The part and the tag of a position.
    #[inline]
    fn place(&self, grave: u64) -> (usize, u64) {
        let spread = spread(grave);
        // No bits: one part, and no shift by 64.
        let part = (spread >> 1) >> (63 - self.part_bits);
        (part as usize, spread & ((1 << TAG_BITS) - 1))
    }

    /// Asks for the line where a position belongs.
    #[inline]
    pub fn prefetch(&self, grave: u64) {
        let (part, tag) = self.place(grave);
        if let Some(part) = self.part(part)
            && let Some(line) = part.lines.get(part.home(tag))
        {
            prefetch_read(line);
        }
    }

    /// One more. Cost: a cache line, now and then a part is moved.
    pub fn add(&mut self, grave: u64) {
        let (number, tag) = self.place(grave);
        let part = self.made_part(number);
        if part.words() > 0 {
            let (at, word) = part.find(tag);
            if word != 0 {
                part.set(at, word + u64::from(word & COUNT_MAX != COUNT_MAX));
                return;
            }
            if (part.len as usize + 1) * 16 <= part.words() * 13 {
                part.set(at, tag << COUNT_BITS | 1);
                part.len += 1;
                self.len += 1;
                return;
            }
        }
        self.resize(number, |lines| lines + (lines / 4).max(1));
        let part = self.made_part(number);
        let (at, _) = part.find(tag);
        part.set(at, tag << COUNT_BITS | 1);
        part.len += 1;
        self.len += 1;
    }

    /// One less. Whether none is left.
    pub fn remove(&mut self, grave: u64) -> bool {
        let (number, tag) = self.place(grave);
        let group = &mut self.groups[number / GROUP_PARTS];
        let Some(part) = group.get_mut(number % GROUP_PARTS).filter(|part| part.words() > 0) else {
            return false;
        };
        let (at, word) = part.find(tag);
        match word & COUNT_MAX {
            0 | COUNT_MAX => return false,
            1 => {
                part.empty(at);
                self.len -= 1;
            }
            _ => {
                part.set(at, word - 1);
                return false;
            }
        }
        if part.len as usize * 4 < part.words() && part.lines.len() > 1 {
            self.resize(number, |lines| lines / 2);
        }
        true
    }

    /// How many.
    pub fn get(&self, grave: u64) -> u32 {
        let (part, tag) = self.place(grave);
        let part = self.part(part).filter(|part| part.words() > 0);
        part.map_or(0, |part| (part.find(tag).1 & COUNT_MAX) as u32)
    }

    /// How many positions have old records.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn resize(&mut self, part: usize, lines: impl Fn(usize) -> usize) {
        let part = self.made_part(part);
        let before = size_of_val(&*part.lines) as u64;
        part.resize(lines(part.lines.len()));
        let after = size_of_val(&*part.lines) as u64;
        self.bytes = self.bytes - before + after;
    }
}

#[cfg(test)]
#[path = "old_counts_test.rs"]
mod old_counts_test;
