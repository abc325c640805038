//! Checksums for bytes that come back from a device.
//!
//! XXH3 with 64 bits, seeded with a salt: the generation of the segment that the bytes were
//! written to. Recycled segments are full of valid old records; the salt makes them invalid.

use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// Mixes what identifies one life of one place on the medium into the seed of its checksums.
pub fn salt(store: u64, generation: u64) -> u64 {
    let mixed = store ^ generation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The checksum of `bytes` under `salt`. Cost: some 10 ns and 20 to 25 bytes a nanosecond with AVX2, which is
/// found at run time.
pub fn checksum(salt: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(salt, bytes)
}

/// The checksum of the concatenation of `parts` under `salt`, without copying them.
pub fn checksum_parts(salt: u64, parts: &[&[u8]]) -> u64 {
    let mut state = XxHash3_64::with_seed(salt);
    for part in parts {
        state.write(part);
    }
    state.finish()
}

/// A checksum whose bytes come part by part.
#[derive(Clone)]
pub struct RunningChecksum {
    state: Box<XxHash3_64>,
}

impl std::fmt::Debug for RunningChecksum {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RunningChecksum")
    }
}

impl RunningChecksum {
    /// The checksum of no bytes under `salt`. Cost: an allocation of about 600 bytes.
    pub fn new(salt: u64) -> Self {
        RunningChecksum { state: Box::new(XxHash3_64::with_seed(salt)) }
    }

    /// Adds the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.write(bytes);
    }

    /// What [`checksum`] gives for all bytes so far.
    pub fn value(&self) -> u64 {
        self.state.finish()
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
    fn checksums_are_those_of_xxh3() {
        // Of the reference implementation, which every reader of a store must agree with.
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * 7) as u8).collect();
        let known = [
            (0, 0, 0x2d06_8005_38d3_94c2),
            (9, 6, 0x47da_d8cd_8818_2488),
            (9, 100, 0xec0d_562b_4df9_c087),
            (9, 200, 0x6fd6_af7f_0349_459c),
            (9, 1000, 0x7fdd_0775_b5e7_1168),
        ];
        for (salt, len, value) in known {
            assert_eq!(checksum(salt, &bytes[..len]), value, "{len} bytes");
        }
    }

    #[test]
    fn another_generation_gives_another_checksum() {
        assert_ne!(checksum(salt(1, 1), b"record"), checksum(salt(1, 2), b"record"));
        assert_ne!(salt(1, 2), salt(2, 1));
    }
}
