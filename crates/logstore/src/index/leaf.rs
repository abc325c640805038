//! A sorted run of keys packed into bytes.
//!
//! An entry is: how many bytes it shares with the key before it (varint), how many more it has
//! (varint), these bytes. (Front coding, as in prefix B-trees: Bayer and Unterauer 1977.)
//!
//! Invariants:
//! 1. Keys ascend strictly; the first shares nothing.
//! 2. An entry shares exactly the longest prefix that it has in common with the key before it. The
//!    search depends on it: it compares each byte of the target once.

use tierstone_base::codec::{Reader, put_varint};

/// Leaves grow in steps of this many bytes.
const ROUND_BYTES: usize = 64;
/// What an allocation costs besides its bytes.
const ALLOCATION_BYTES: usize = 16;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Leaf {
    bytes: Vec<u8>,
}

/// An entry as it lies in the bytes.
struct Raw<'a> {
    shared: usize,
    suffix: &'a [u8],
    end: usize,
}

/// Where a key is, or would be.
struct Spot {
    /// The first entry that is not before the key.
    at: usize,
    /// Bytes that the key shares with the entry before.
    shared_before: usize,
    /// Bytes that the key shares with the entry at `at`.
    shared_after: usize,
    exact: bool,
}

/// How many bytes two keys have in common at their start.
pub fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

fn put_entry(out: &mut Vec<u8>, shared: usize, suffix: &[u8]) {
    put_varint(out, shared as u64);
    put_varint(out, suffix.len() as u64);
    out.extend_from_slice(suffix);
}

impl Leaf {
    /// Bytes of entries.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        if self.bytes.capacity() == 0 { 0 } else { self.bytes.capacity() + ALLOCATION_BYTES }
    }

    fn raw(&self, at: usize) -> Option<Raw<'_>> {
        let mut reader = Reader::new(self.bytes.get(at..)?);
        let (shared, length) = (reader.varint()? as usize, reader.varint()? as usize);
        let suffix = reader.bytes(length)?;
        Some(Raw { shared, suffix, end: self.bytes.len() - reader.rest().len() })
    }

    fn search(&self, key: &[u8]) -> Spot {
        let (mut at, mut matched) = (0, 0);
        while let Some(raw) = self.raw(at) {
            if raw.shared < matched {
                // It parts from the one before earlier than the key does, so it is after the key.
                return Spot { at, shared_before: matched, shared_after: raw.shared, exact: false };
            }
            if raw.shared == matched {
                let rest = &key[matched..];
                let common = common_prefix(raw.suffix, rest);
                if raw.suffix[common..] >= rest[common..] {
                    let exact = raw.suffix.len() == common && rest.len() == common;
                    let shared_after = matched + common;
                    return Spot { at, shared_before: matched, shared_after, exact };
                }
                matched += common;
            }
            at = raw.end;
        }
        Spot { at, shared_before: matched, shared_after: 0, exact: false }
    }

    /// Whether `key` is there.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.search(key).exact
    }

    /// Puts `middle` in the place of the bytes `from..to`, in an allocation that fits.
    fn splice(&mut self, from: usize, to: usize, middle: &[u8]) {
        let length = self.bytes.len() - (to - from) + middle.len();
        let capacity = self.bytes.capacity();
        if length > capacity {
            self.bytes.reserve_exact(length.next_multiple_of(ROUND_BYTES) - self.bytes.len());
        }
        self.bytes.splice(from..to, middle.iter().copied());
        if length + 2 * ROUND_BYTES < capacity {
            self.bytes.shrink_to(length.next_multiple_of(ROUND_BYTES));
        }
    }

    /// Adds `key`, which is not there. `middle` is room.
    pub fn insert(&mut self, key: &[u8], middle: &mut Vec<u8>) {
        let spot = self.search(key);
        middle.clear();
        put_entry(middle, spot.shared_before, &key[spot.shared_before..]);
        let mut end = spot.at;
        if let Some(next) = self.raw(spot.at) {
            let kept = &next.suffix[spot.shared_after - next.shared..];
            put_entry(middle, spot.shared_after, kept);
            end = next.end;
        }
        self.splice(spot.at, end, middle);
    }

    /// Takes `key` out; whether it was there. `middle` is room.
    pub fn remove(&mut self, key: &[u8], middle: &mut Vec<u8>) -> bool {
        let spot = self.search(key);
        let Some(raw) = self.raw(spot.at).filter(|_| spot.exact) else { return false };
        middle.clear();
        let mut end = raw.end;
        if let Some(next) = self.raw(raw.end) {
            // What the next key shared with this one alone, it must now hold itself.
            let shared = next.shared.min(raw.shared);
            let own = &key[shared..next.shared];
            put_varint(middle, shared as u64);
            put_varint(middle, (own.len() + next.suffix.len()) as u64);
            middle.extend_from_slice(own);
            middle.extend_from_slice(next.suffix);
            end = next.end;
        }
        self.splice(spot.at, end, middle);
        true
    }

    /// Shows keys in order until `visit` answers false; whether it never did. `key` is room.
    pub fn for_each(&self, key: &mut Vec<u8>, mut visit: impl FnMut(&[u8]) -> bool) -> bool {
        let mut at = 0;
        while let Some(raw) = self.raw(at) {
            key.truncate(raw.shared);
            key.extend_from_slice(raw.suffix);
            if !visit(key) {
                return false;
            }
            at = raw.end;
        }
        true
    }

    /// Moves the upper half into another leaf; that leaf and the shortest key that parts the two.
    /// `None` when there are not two entries.
    pub fn split(&mut self) -> Option<(Box<[u8]>, Leaf)> {
        let (mut at, mut key, mut middle) = (0, Vec::new(), None);
        while let Some(raw) = self.raw(at) {
            key.truncate(raw.shared);
            key.extend_from_slice(raw.suffix);
            if at > 0 && (raw.end * 2 >= self.len()) {
                middle = Some((at, raw.shared, raw.end));
                break;
            }
            at = raw.end;
        }
        let (at, shared, end) = middle?;
        let mut bytes = Vec::with_capacity((self.len() - at + key.len()).next_multiple_of(64));
        put_entry(&mut bytes, 0, &key);
        bytes.extend_from_slice(&self.bytes[end..]);
        bytes.shrink_to(bytes.len().next_multiple_of(ROUND_BYTES));
        self.bytes.truncate(at);
        self.bytes.shrink_to(at.next_multiple_of(ROUND_BYTES));
        key.truncate(shared + 1);
        Some((key.into_boxed_slice(), Leaf { bytes }))
    }

    /// Appends the entries of `next`, whose keys are all greater.
    pub fn append(&mut self, next: &Leaf) {
        let mut last = Vec::new();
        self.for_each(&mut last, |_| true);
        let Some(first) = next.raw(0) else { return };
        let shared = common_prefix(&last, first.suffix);
        let mut middle = Vec::with_capacity(next.len());
        put_entry(&mut middle, shared, &first.suffix[shared..]);
        middle.extend_from_slice(&next.bytes[first.end..]);
        let end = self.len();
        self.splice(end, end, &middle);
    }
}
