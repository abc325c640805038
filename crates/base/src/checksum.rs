//! Checksums for bytes that come back from a device.
//!
//! XXH3 with 64 bits, seeded with a salt: the generation of the segment that the bytes were
//! written to. Recycled segments are full of valid old records; the salt makes them invalid.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Mixes what identifies one life of one place on the medium into the seed of its checksums.
pub fn salt(store: u64, generation: u64) -> u64 {
    let mixed = store ^ generation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The checksum of `bytes` under `salt`. Cost: about 10 bytes a nanosecond.
pub fn checksum(salt: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, salt)
}

/// The checksum of the concatenation of `parts` under `salt`, without copying them.
pub fn checksum_parts(salt: u64, parts: &[&[u8]]) -> u64 {
    let mut state = Xxh3::with_seed(salt);
    for part in parts {
        state.update(part);
    }
    state.digest()
}

/// A checksum whose bytes come part by part.
#[derive(Clone)]
pub struct RunningChecksum {
    state: Box<Xxh3>,
}

impl std::fmt::Debug for RunningChecksum {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RunningChecksum")
    }
}

impl RunningChecksum {
    /// The checksum of no bytes under `salt`. Cost: an allocation of about 600 bytes.
    pub fn new(salt: u64) -> Self {
        RunningChecksum { state: Box::new(Xxh3::with_seed(salt)) }
    }

    /// Adds the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
    }

    /// What [`checksum`] gives for all bytes so far.
    pub fn value(&self) -> u64 {
        self.state.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hash_like_their_concatenation() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * 7) as u8).collect();
        for cut in [0, 1, 17, 240, 241, 999] {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(checksum_parts(9, &[head, tail]), checksum(9, &bytes));
            let mut running = RunningChecksum::new(9);
            running.update(head);
            running.update(tail);
            assert_eq!(running.value(), checksum(9, &bytes));
        }
    }

    #[test]
    fn another_generation_gives_another_checksum() {
        assert_ne!(checksum(salt(1, 1), b"record"), checksum(salt(1, 2), b"record"));
        assert_ne!(salt(1, 2), salt(2, 1));
    }
}
