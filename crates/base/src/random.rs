//! Randomness as an input: one seeded generator, passed down, printed on failure.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A generator that gives the same numbers for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    generator: Xoshiro256PlusPlus,
}

impl SeededRandom {
    /// A generator for `seed`.
    pub fn new(seed: u64) -> Self {
        SeededRandom { generator: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// A seed that differs from run to run: for production secrets and for tests that print it.
    ///
    /// # Errors
    /// When the operating system's source of randomness cannot be read.
    pub fn system_seed() -> std::io::Result<u64> {
        use std::io::Read;
        let mut bytes = [0u8; 8];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A number in `0..bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `probability`.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Fills `bytes` with random bits.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.generator.fill_bytes(bytes);
    }

    /// A generator of its own for a part of the work, so that parts do not disturb each other.
    pub fn fork(&mut self) -> SeededRandom {
        SeededRandom::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_run() {
        let mut first = SeededRandom::new(7);
        let mut second = SeededRandom::new(7);
        assert!((0..100).all(|_| first.next_u64() == second.next_u64()));
        assert_ne!(SeededRandom::new(8).next_u64(), SeededRandom::new(7).next_u64());
    }

    #[test]
    fn below_stays_below() {
        let mut random = SeededRandom::new(1);
        assert!((1..1000).all(|bound| random.below(bound) < bound));
        assert_eq!(random.below(0), 0);
    }
}
