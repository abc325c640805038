//! Leaves of partial keys: eight bytes of each key as one number, and its location.
//!
//! A partial key is the big-endian number of the eight bytes that follow the leaf's prefix, zeros behind the key's
//! end ("poor man's normalised keys", Graefe 2001; prefix truncation in the leaf, Bayer and Unterauer 1977).
//!
//! Invariants:
//! 1. Every key of the leaf begins with its prefix, of at most 256 bytes; so a key that does not lies before or
//!    behind all of them.
//! 2. Entries ascend by key; partial keys never descend. Where they tie, only the whole keys tell, and they are
//!    read in place: every lookup that finds its partial key reads at least one, since partial keys that agree do
//!    not make keys equal.

use super::key_block::{beside, reserve, separator, shared_bytes};
use super::{KeySource, Location};
use std::cmp::Ordering;
use tierstone_base::prefetch::prefetch_read;

/// The longest prefix of a leaf. It bounds what one leaf takes, however long keys are; keys that share more tie.
const PREFIX_BYTES_MAX: usize = 256;
const PARTIAL_BYTES: usize = 8;
/// Slots of a cache line.
const LINE_SLOTS: usize = 64 / size_of::<Slot>();

#[derive(Clone, Copy)]
struct Slot {
    partial: u64,
    location: Location,
}

/// Partial keys in order.
#[derive(Default)]
pub struct PartialLeaf {
    prefix: Box<[u8]>,
    slots: Vec<Slot>,
}

/// The first eight bytes as a big-endian number, zeros behind the end.
fn normalised(bytes: &[u8]) -> u64 {
    let mut word = [0; PARTIAL_BYTES];
    let length = bytes.len().min(PARTIAL_BYTES);
    word[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(word)
}

impl PartialLeaf {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.prefix.len() + self.slots.capacity() * size_of::<Slot>()
    }

    #[inline]
    pub fn location(&self, at: usize) -> Location {
        self.slots[at].location
    }

    pub fn set_location(&mut self, at: usize, location: Location) {
        self.slots[at].location = location;
    }

    /// The slot `at`, for a prefetch.
    pub fn line(&self, at: usize) -> Option<&impl Sized> {
        self.slots.get(at)
    }

    /// The place of `key`, or the one where it belongs. Cost: no key is read unless its partial key is there; then
    /// one, or a binary search among those that tie.
    pub fn search(&self, key: &[u8], source: &impl KeySource) -> Result<usize, usize> {
        // All lines side by side, since a binary search would wait for one after another.
        self.slots.iter().step_by(LINE_SLOTS).for_each(prefetch_read);
        match beside(key, &self.prefix) {
            Some(Ordering::Less) => return Err(0),
            Some(_) => return Err(self.len()),
            None => {}
        }
        let partial = normalised(&key[self.prefix.len()..]);
        let mut low = self.slots.partition_point(|slot| slot.partial < partial);
        let mut high = low + self.slots[low..].partition_point(|slot| slot.partial == partial);
        while low < high {
            let middle = (low + high) / 2;
            match source.key(self.slots[middle].location).as_ref().cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Inserts `key` at its place `at`.
    pub fn insert(&mut self, at: usize, key: &[u8], location: Location) {
        if self.slots.is_empty() {
            self.prefix = key[..key.len().min(PREFIX_BYTES_MAX)].into();
        } else {
            self.shorten_prefix(shared_bytes(&self.prefix, key));
        }
        reserve(&mut self.slots, 1);
        let partial = normalised(&key[self.prefix.len()..]);
        self.slots.insert(at, Slot { partial, location });
    }

    pub fn remove(&mut self, at: usize) {
        self.slots.remove(at);
    }

    /// Moves the end of the prefix into the partial keys; no key is read.
    fn shorten_prefix(&mut self, length: usize) {
        let moved = self.prefix.len() - length;
        if moved == 0 {
            return;
        }
        let before = normalised(&self.prefix[length..]);
        for slot in &mut self.slots {
            let kept = if moved < PARTIAL_BYTES { slot.partial >> (8 * moved) } else { 0 };
            slot.partial = before | kept;
        }
        self.prefix = self.prefix[..length].into();
    }

    /// Takes the upper part out; the shortest string that parts the two, and the upper part.
    ///
    /// It is cut near the middle, where neighbours differ most, so that the separator is short and each part has
    /// more in common. A part whose partial keys tie gets a longer prefix, for which its keys are read.
    pub fn split(&mut self, source: &impl KeySource) -> (Box<[u8]>, PartialLeaf) {
        let at = self.cut();
        let separator = self.separator(at, source);
        let mut upper = PartialLeaf { prefix: self.prefix.clone(), slots: self.slots.split_off(at) };
        for part in [self, &mut upper] {
            part.slots.shrink_to_fit();
            if part.slots.windows(2).any(|pair| pair[0].partial == pair[1].partial) {
                part.lengthen_prefix(source);
            }
        }
        (separator, upper)
    }

    fn cut(&self) -> usize {
        let eighth = self.len() / 8;
        let middle = self.len() / 2;
        let difference = |at: usize| self.slots[at].partial ^ self.slots[at - 1].partial;
        // Of those that differ in the same bit first, the one nearest to the middle.
        (middle - eighth..=middle + eighth)
            .min_by_key(|at| (difference(*at).leading_zeros(), at.abs_diff(middle)))
            .unwrap_or(middle)
    }

    fn separator(&self, at: usize, source: &impl KeySource) -> Box<[u8]> {
        let (low, high) = (self.slots[at - 1], self.slots[at]);
        if low.partial == high.partial {
            let (low, high) = (source.key(low.location), source.key(high.location));
            return separator(low.as_ref(), high.as_ref()).into();
        }
        // The byte in which they differ first is not zero in the upper one, so it is a byte of its key.
        let own = separator(&low.partial.to_be_bytes(), &high.partial.to_be_bytes()).to_vec();
        [&*self.prefix, own.as_slice()].concat().into_boxed_slice()
    }

    fn lengthen_prefix(&mut self, source: &impl KeySource) {
        let (Some(first), Some(last)) = (self.slots.first(), self.slots.last()) else { return };
        self.slots.iter().for_each(|slot| source.prefetch(slot.location));
        let (first, last) = (source.key(first.location), source.key(last.location));
        let shared = shared_bytes(first.as_ref(), last.as_ref()).min(PREFIX_BYTES_MAX);
        if shared <= self.prefix.len() {
            return;
        }
        for slot in &mut self.slots {
            slot.partial = normalised(source.key(slot.location).as_ref().get(shared..).unwrap_or_default());
        }
        self.prefix = first.as_ref()[..shared].into();
    }

    /// Checks its invariants.
    #[cfg(test)]
    pub fn validate(&self, source: &impl KeySource) {
        assert!(self.prefix.len() <= PREFIX_BYTES_MAX);
        for slot in &self.slots {
            let key = source.key(slot.location);
            assert!(key.as_ref().starts_with(&self.prefix));
            assert_eq!(slot.partial, normalised(&key.as_ref()[self.prefix.len()..]));
        }
    }
}
