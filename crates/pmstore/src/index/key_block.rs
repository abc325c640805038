//! Whole keys side by side in their order, without what all of them begin with.
//!
//! Invariants:
//! 1. Keys differ and ascend; key `i` is the prefix and then suffix `i`.
//! 2. A block that was just made by a split has the longest prefix that its keys share; others may have a shorter
//!    one, never a longer.

use std::cmp::Ordering;
use tierstone_base::prefetch::{prefetch_bytes, prefetch_read};

/// Lines of suffixes that a search asks for ahead: those of 64 suffixes of 16 bytes.
const SEARCH_LINES: usize = 16;
/// Ends in a cache line.
const LINE_ENDS: usize = 64 / size_of::<u32>();

/// Keys in order (prefix truncation: Bayer and Unterauer 1977).
#[derive(Default)]
pub struct KeyBlock {
    prefix: Box<[u8]>,
    suffixes: Vec<u8>,
    /// Where each suffix ends.
    ends: Vec<u32>,
}

/// How many bytes two strings share from their start.
pub fn shared_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// The shortest string above `low` and not above `high`, which is greater than `low`: a separator (suffix
/// truncation: Bayer and Unterauer 1977).
pub fn separator<'a>(low: &[u8], high: &'a [u8]) -> &'a [u8] {
    &high[..(shared_bytes(low, high) + 1).min(high.len())]
}

/// Where a key lies that does not begin with `prefix`: before or behind all that do. `None` when it does.
pub fn beside(key: &[u8], prefix: &[u8]) -> Option<Ordering> {
    if key.starts_with(prefix) { None } else { Some(key.cmp(prefix)) }
}

/// Makes room for `more` values: an eighth of what is there at least, and not twice as much as a vector does.
pub fn reserve<T>(vector: &mut Vec<T>, more: usize) {
    if vector.capacity() - vector.len() < more {
        vector.reserve_exact(more.max(vector.len() / 8));
    }
}

impl KeyBlock {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.prefix.len() + self.suffixes.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1] as usize }
    }

    fn suffix(&self, at: usize) -> &[u8] {
        &self.suffixes[self.start(at)..self.ends[at] as usize]
    }

    /// The whole key `at`.
    pub fn key(&self, at: usize) -> Box<[u8]> {
        [&*self.prefix, self.suffix(at)].concat().into_boxed_slice()
    }

    /// The place of `key`, or the one where it belongs.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        // Lines side by side, since a binary search would wait for one after another.
        prefetch_bytes(&self.suffixes, SEARCH_LINES);
        self.ends.iter().step_by(LINE_ENDS).for_each(prefetch_read);
        match beside(key, &self.prefix) {
            Some(Ordering::Less) => return Err(0),
            Some(_) => return Err(self.len()),
            None => {}
        }
        let key = &key[self.prefix.len()..];
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.suffix(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Inserts `key` at its place `at`.
    pub fn insert(&mut self, at: usize, key: &[u8]) {
        if self.ends.is_empty() {
            self.prefix = key.into();
        } else {
            let shared = shared_bytes(&self.prefix, key);
            if shared < self.prefix.len() {
                self.set_prefix(self.prefix[..shared].into());
            }
        }
        let suffix = &key[self.prefix.len()..];
        let start = self.start(at);
        reserve(&mut self.suffixes, suffix.len());
        self.suffixes.splice(start..start, suffix.iter().copied());
        reserve(&mut self.ends, 1);
        self.ends.insert(at, start as u32);
        self.ends[at..].iter_mut().for_each(|end| *end += suffix.len() as u32);
    }

    pub fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), self.ends[at] as usize);
        self.suffixes.drain(start..end);
        self.ends.remove(at);
        self.ends[at..].iter_mut().for_each(|other| *other -= (end - start) as u32);
    }

    /// Takes the keys from `at` on out; both blocks then have their longest prefix and no spare memory.
    pub fn split_off(&mut self, at: usize) -> KeyBlock {
        let start = self.start(at);
        let mut upper = KeyBlock {
            prefix: self.prefix.clone(),
            suffixes: self.suffixes.split_off(start),
            ends: self.ends.split_off(at),
        };
        upper.ends.iter_mut().for_each(|end| *end -= start as u32);
        self.lengthen_prefix();
        upper.lengthen_prefix();
        upper
    }

    fn lengthen_prefix(&mut self) {
        let Some(last) = self.len().checked_sub(1) else {
            *self = KeyBlock::default();
            return;
        };
        let shared = shared_bytes(self.suffix(0), self.suffix(last));
        let prefix = [&*self.prefix, &self.suffix(0)[..shared]].concat();
        self.set_prefix(prefix.into_boxed_slice());
    }

    /// Gives all keys another prefix that they share.
    fn set_prefix(&mut self, prefix: Box<[u8]>) {
        let (old, new) = (self.prefix.len(), prefix.len());
        let (added, dropped) = (&self.prefix[new.min(old)..], new.saturating_sub(old));
        let total = self.suffixes.len() + self.len() * added.len() - self.len() * dropped;
        let mut suffixes = Vec::with_capacity(total);
        let mut ends = Vec::with_capacity(self.len());
        for at in 0..self.len() {
            suffixes.extend_from_slice(added);
            suffixes.extend_from_slice(&self.suffix(at)[dropped..]);
            ends.push(suffixes.len() as u32);
        }
        *self = KeyBlock { prefix, suffixes, ends };
    }
}

#[cfg(test)]
#[path = "key_block_test.rs"]
mod key_block_test;
