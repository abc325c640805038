//! A cryptographic kernel: SHA-256 over a buffer that fits the first cache.

use super::{Result, Watch, Work, for_seconds, wrong};
use sha2::{Digest, Sha256};

/// Bytes hashed at a time.
const BUFFER_BYTES: usize = 16 << 10;
/// SHA-256 of `abc`, FIPS 180-4's example.
const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// The digest as text.
fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes in `threads` threads for `seconds`.
///
/// # Errors
/// A wrong digest, or a thread that died.
pub fn run(threads: usize, seconds: f64, watch: &mut dyn Watch) -> Result<Work> {
    if hex(b"abc") != OF_ABC {
        return Err(wrong("SHA-256 of 'abc' is wrong"));
    }
    let make = |thread: usize| vec![thread as u8; BUFFER_BYTES];
    let (amount, seconds) = for_seconds((threads, seconds), watch, make, |buffer: &mut Vec<u8>| {
        let digest = Sha256::digest(&buffer[..]);
        // The next one depends on this one.
        buffer[..32].copy_from_slice(&digest);
        BUFFER_BYTES as u64
    })?;
    Ok(Work {
        name: match threads {
            1 => "SHA-256, one thread".into(),
            _ => "SHA-256, 16 KiB at a time".into(),
        },
        unit: "byte",
        amount: amount as f64,
        seconds,
        note: format!("{threads} threads; the digest of 'abc' is FIPS 180-4's"),
        device: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_standards() {
        assert_eq!(hex(b"abc"), OF_ABC);
        assert!(run(2, 0.001, &mut ()).is_ok_and(|work| work.unit == "byte"));
    }
}
