//! Hash maps whose hasher is fixed, so that a run is reproducible.
//!
//! Use these for keys that no client chooses (ids, offsets, tokens). Their iteration order is
//! arbitrary but the same in every run; still, prefer `BTreeMap` where the order reaches output.

use std::hash::{BuildHasherDefault, Hasher};

/// Multiplies and folds integers; quick, and not safe against chosen keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(26) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// A hash map for ids.
#[expect(clippy::disallowed_types, reason = "the hasher is fixed here")]
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A hash set for ids.
#[expect(clippy::disallowed_types, reason = "the hasher is fixed here")]
pub type Set<K> = std::collections::HashSet<K, BuildHasherDefault<IdHasher>>;
