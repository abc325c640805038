//! How often each of many keys was asked for lately, in some bytes a key.
//!
//! A count-min sketch (Cormode and Muthukrishnan, Journal of Algorithms 55(1), 2005) of counters of four bits with
//! conservative update (Estan and Varghese, SIGCOMM 2002, section 3.3.2), whose counters fade as in TinyLFU (Einziger,
//! Friedman and Manes, ACM Transactions on Storage 13(4), 2017, section 3.3): there all counters are halved when so
//! many uses came; here one block of them after the other, so that no call takes long.
//!
//! Invariants:
//! 1. A key's four counters lie in one line of the processor's cache: a call touches one line, and one more when a
//!    block fades.
//! 2. An estimate is never lower than the key's uses since its block faded last, up to [`FrequencySketch::MOST`]; it
//!    may be higher, by those of keys that share its counters.
//! 3. The sketch takes no more bytes than it was allowed.

use crate::hashing::mix;

/// Words of 16 counters in a block: one line of the processor's cache.
const BLOCK_WORDS: usize = 8;
const BLOCK_BYTES: u64 = 64;
/// Counters of a key; each in words of its own.
const ROWS: usize = 4;
/// All bits of counters but the highest of each.
const HALVED: u64 = 0x7777_7777_7777_7777;
/// Bytes that a sketch begins with.
const BYTES_MIN: u64 = 4 << 10;
/// Bytes for each key, if they are allowed.
const BYTES_A_KEY: u64 = 2;
/// A counter is halved when about so many uses came for each key.
const USES_A_KEY: u64 = 8;

/// Estimates of how often keys were asked for lately. Keys are told by 64 bits that need not be mixed.
#[derive(Debug)]
pub struct FrequencySketch {
    blocks: Vec<[u64; BLOCK_WORDS]>,
    bytes_max: u64,
    /// Uses after which the next block fades, and those that came since the last one did.
    uses_a_block: u64,
    uses: u64,
    next_to_fade: usize,
}

/// The words and shifts of a key's counters in its block.
fn places(hash: u64) -> [(usize, u32); ROWS] {
    std::array::from_fn(|row| {
        let bits = (hash >> (32 + 8 * row)) as usize;
        (row * (BLOCK_WORDS / ROWS) + (bits & 1), ((bits >> 1) & 15) as u32 * 4)
    })
}

impl FrequencySketch {
    /// The highest estimate.
    pub const MOST: u8 = 15;

    /// A sketch that will not take more than `bytes_max`, but for 4 KiB at least.
    pub fn new(bytes_max: u64) -> Self {
        let mut sketch = FrequencySketch {
            blocks: vec![[0; BLOCK_WORDS]; (BYTES_MIN / BLOCK_BYTES) as usize],
            bytes_max,
            uses_a_block: 1,
            uses: 0,
            next_to_fade: 0,
        };
        sketch.fit(0);
        sketch
    }

    /// Bytes of all counters.
    pub fn bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    /// Makes room for `keys`, and lets counters fade as fast as suits them. What was counted stays. Costs as much as
    /// a copy of the sketch when it grows, to twice what it was.
    pub fn fit(&mut self, keys: u64) {
        while self.bytes() < keys.saturating_mul(BYTES_A_KEY) && self.bytes() * 2 <= self.bytes_max {
            // A key's block is told by the lowest bits of its hash: with one bit more it is this one or its copy.
            self.blocks.extend_from_within(..);
        }
        let blocks = self.blocks.len() as u64;
        self.uses_a_block = (keys.saturating_mul(USES_A_KEY) / blocks).max(USES_A_KEY);
    }

    fn block_of(&self, hash: u64) -> usize {
        hash as usize & (self.blocks.len() - 1)
    }

    /// About how often `key` was asked for lately, 0 to [`FrequencySketch::MOST`].
    pub fn estimate(&self, key: u64) -> u8 {
        let hash = mix(key);
        let block = &self.blocks[self.block_of(hash)];
        places(hash).iter().map(|(word, shift)| (block[*word] >> shift & 15) as u8).min().unwrap_or_default()
    }

    /// `key` was asked for.
    pub fn add(&mut self, key: u64) {
        let hash = mix(key);
        self.raise(hash, Self::MOST);
        self.uses += 1;
        if self.uses >= self.uses_a_block {
            self.uses = 0;
            self.fade();
        }
    }

    /// `key` was asked for once at least: what was counted already is not counted again.
    pub fn add_if_new(&mut self, key: u64) {
        self.raise(mix(key), 1);
    }

    /// Adds one to the lowest of a key's counters, if that is below `most`.
    fn raise(&mut self, hash: u64, most: u8) {
        let index = self.block_of(hash);
        let block = &mut self.blocks[index];
        let places = places(hash);
        let least = places.iter().map(|(word, shift)| block[*word] >> shift & 15).min().unwrap_or_default();
        if least < u64::from(most) {
            for (word, shift) in places {
                if block[word] >> shift & 15 == least {
                    block[word] += 1 << shift;
                }
            }
        }
    }

    fn fade(&mut self) {
        let next = self.next_to_fade & (self.blocks.len() - 1);
        for word in &mut self.blocks[next] {
            *word = *word >> 1 & HALVED;
        }
        self.next_to_fade = next + 1;
    }
}

/// Which of the keys that are looked at one after the other are among those asked for least.
#[derive(Debug)]
pub struct LeastUsed {
    /// Keys looked at lately by how often they were asked for, and all together.
    seen: [u32; FrequencySketch::MOST as usize + 1],
    all: u32,
    /// When so many were looked at, they count half.
    looked_max: u32,
}

impl Default for LeastUsed {
    fn default() -> Self {
        LeastUsed { seen: Default::default(), all: 0, looked_max: Self::LOOKED_MIN }
    }
}

impl LeastUsed {
    /// Of so many keys that are looked at one at least is among the least used.
    const ONE_IN: u64 = 3;
    /// Those looked at before count half when there are as many as keys, or so many.
    const LOOKED_MIN: u32 = 8_192;
    const LOOKED_MAX: u32 = 1 << 30;

    /// Of so many keys some are looked at: about the last half of them to all count.
    pub fn fit(&mut self, keys: u64) {
        self.looked_max = keys.clamp(Self::LOOKED_MIN.into(), Self::LOOKED_MAX.into()) as u32;
    }

    /// A key of this estimate was looked at; whether it is among the third that was asked for least.
    pub fn look(&mut self, estimate: u8) -> bool {
        let estimate = estimate.min(FrequencySketch::MOST);
        self.seen[usize::from(estimate)] += 1;
        self.all += 1;
        if self.all >= self.looked_max {
            self.seen.iter_mut().for_each(|count| *count /= 2);
            self.all = self.seen.iter().sum();
        }
        self.is_among(estimate)
    }

    /// Whether a key of this estimate is among the third of those looked at lately that was asked for least.
    pub fn is_among(&self, estimate: u8) -> bool {
        // Those asked for less often than this key are less than a third.
        let below: u32 = self.seen[..usize::from(estimate.min(FrequencySketch::MOST))].iter().sum();
        u64::from(below) * Self::ONE_IN < u64::from(self.all.max(1))
    }
}

#[cfg(test)]
#[path = "frequency_test.rs"]
mod frequency_test;
