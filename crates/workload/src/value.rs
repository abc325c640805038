//! Values that tell on reading whether they are what was written.
//!
//! A value of 24 bytes or more is: key number (8 bytes), version (8 bytes), body, XXH3-64 of all
//! before it (8 bytes); numbers little-endian. A shorter one is made from the key number alone.
//!
//! Invariants:
//! 1. Settings, key number and version give one value.
//! 2. With `zero_share` 0 no compressor gains: the body is random bytes from a pool, each value's (and
//!    each stretch's of a long one) combined with another random word, so that no two repeat each other.
//! 3. [`check_value`] takes any bytes and needs no settings.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};

use crate::key::{SizeDistribution, mix};

/// The smallest value that carries key number, version and checksum.
pub const HEADED_SIZE_MIN_BYTES: usize = 24;
const HEAD_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;
/// Salts that keep these checksums and bytes apart from anything the store computes itself.
const CHECKSUM_SALT: u64 = 0x7469_6572_776c_6f61;
const SHORT_SALT: u64 = 0x7368_6f72_7476_616c;
/// Words of the pool: 64 KiB, so that it stays in the second-level cache.
const POOL_WORDS: usize = 8 << 10;

/// What the values are like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValueSettings {
    /// Sizes in bytes. Default 128.
    pub size: SizeDistribution,
    /// The part of each body that is zeros, 0 to 1, and so compresses. Default 0: incompressible.
    pub zero_share: f64,
}

impl Default for ValueSettings {
    fn default() -> Self {
        ValueSettings { size: SizeDistribution::Fixed(128), zero_share: 0.0 }
    }
}

impl ValueSettings {
    /// Errors: `InvalidInput` for a bad size or share.
    pub fn validate(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.zero_share) {
            return Err(Error::new(ErrorKind::InvalidInput, "the share of zeros must be 0 to 1"));
        }
        self.size.validate()
    }
}

/// Makes values; cheap to clone.
#[derive(Clone, Debug)]
pub struct ValueMaker {
    settings: ValueSettings,
    pool: Arc<[u64]>,
}

impl ValueMaker {
    /// A maker for `settings`; `seed` chooses the random bytes.
    pub fn new(settings: ValueSettings, seed: u64) -> ValueMaker {
        let mut random = SeededRandom::new(seed);
        ValueMaker { settings, pool: (0..POOL_WORDS).map(|_| random.next_u64()).collect() }
    }

    /// The size of version `version` of record `id`, in bytes.
    #[inline]
    pub fn size_of(&self, id: u64, version: u64) -> usize {
        self.settings.size.pick(mix(id ^ mix(version))) as usize
    }

    /// Appends version `version` of record `id` to `out`. Cost: about 0.2 ns a byte; allocates nothing
    /// but room in `out`.
    pub fn append(&self, id: u64, version: u64, out: &mut Vec<u8>) {
        self.append_sized(id, version, self.size_of(id, version), out);
    }

    /// The same with `size` bytes, whatever the settings say of sizes.
    pub fn append_sized(&self, id: u64, version: u64, size: usize, out: &mut Vec<u8>) {
        let start = out.len();
        if size < HEADED_SIZE_MIN_BYTES {
            out.extend_from_slice(&short_value(id)[..size]);
            return;
        }
        out.reserve(size);
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&version.to_le_bytes());
        let body = size - HEAD_BYTES - CHECKSUM_BYTES;
        let zeros = ((body as f64 * self.settings.zero_share) as usize).min(body);
        self.append_random(mix(id) ^ version, body - zeros, out);
        out.resize(start + size - CHECKSUM_BYTES, 0);
        let sum = checksum(CHECKSUM_SALT, &out[start..]);
        out.extend_from_slice(&sum.to_le_bytes());
    }

    fn append_random(&self, seed: u64, size: usize, out: &mut Vec<u8>) {
        let mut word = mix(seed);
        let mut offset = (word % POOL_WORDS as u64) as usize;
        let end = out.len() + size;
        out.resize(end, 0);
        let mut rest = &mut out[end - size..];
        while !rest.is_empty() {
            let stretch = rest.len().min((POOL_WORDS - offset) * 8);
            let (now, later) = rest.split_at_mut(stretch);
            let words = &self.pool[offset..];
            let mut chunks = now.chunks_exact_mut(8);
            for (chunk, random) in chunks.by_ref().zip(words) {
                chunk.copy_from_slice(&(random ^ word).to_le_bytes());
            }
            let tail = chunks.into_remainder();
            let tail_len = tail.len();
            tail.copy_from_slice(&mix(word).to_le_bytes()[..tail_len]);
            rest = later;
            offset = 0;
            word = mix(word);
        }
    }
}

fn short_value(id: u64) -> [u8; HEADED_SIZE_MIN_BYTES] {
    let mut bytes = [0; HEADED_SIZE_MIN_BYTES];
    let mut word = id ^ SHORT_SALT;
    for chunk in bytes.chunks_exact_mut(8) {
        word = mix(word);
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Why a value is not one that was written for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFault {
    /// Its bytes are damaged: the checksum, or a short value's content, does not fit.
    Damaged,
    /// A whole value, but of record `found`.
    WrongKey {
        /// The record it was written for.
        found: u64,
    },
}

/// Whether `value` was written for record `id`: its version, or `None` when it is too short (below
/// [`HEADED_SIZE_MIN_BYTES`]) to carry one.
pub fn check_value(id: u64, value: &[u8]) -> std::result::Result<Option<u64>, ValueFault> {
    if value.len() < HEADED_SIZE_MIN_BYTES {
        let is_right = value == &short_value(id)[..value.len()];
        return if is_right { Ok(None) } else { Err(ValueFault::Damaged) };
    }
    let (content, sum) = value.split_at(value.len() - CHECKSUM_BYTES);
    if checksum(CHECKSUM_SALT, content).to_le_bytes() != sum {
        return Err(ValueFault::Damaged);
    }
    let found = word_at(content, 0);
    if found == id { Ok(Some(word_at(content, 8))) } else { Err(ValueFault::WrongKey { found }) }
}

fn word_at(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
#[path = "value_test.rs"]
mod value_test;
