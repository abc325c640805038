//! Signatures with RSA, 2,048 bits, PKCS #1 version 1.5 with SHA-256, by ring's assembly.
//!
//! The study that the classes follow has 1,024 bits (OpenSSL's `speed`), with which nobody signs any more, ring neither.
//! The key is testRSA2048 of RFC 9500, section 2.1: published for tests, and secret to nobody.

use super::{Result, Watch, Work, for_seconds, wrong};
use ring::rand::SystemRandom;
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey};
use tierstone_base::{Error, ErrorKind};

/// As PKCS #1 has it, in DER.
const KEY: &[u8] = include_bytes!("rsa_test_key.der");
const MESSAGE: &[u8] = b"what kind of work is this node good at?";

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("RSA: {what}"))
}

fn sign(key: &RsaKeyPair, message: &[u8]) -> Result<Vec<u8>> {
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
        .map_err(|_| refused("nothing was signed"))?;
    Ok(signature)
}

fn is_right(key: &RsaKeyPair, message: &[u8], signature: &[u8]) -> bool {
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    public.verify(message, signature).is_ok()
}

/// Signs, then verifies, each in `threads` threads for `seconds`.
///
/// # Errors
/// A signature that its own key does not verify, or that verifies another message; a thread that died.
pub fn run(
    threads: usize,
    seconds: f64,
    mut watch: impl FnMut(&mut dyn FnMut(&mut dyn Watch) -> Result<Work>) -> Result<()>,
) -> Result<()> {
    let key = RsaKeyPair::from_der(KEY).map_err(|error| refused(&error.to_string()))?;
    let signature = sign(&key, MESSAGE)?;
    if !is_right(&key, MESSAGE, &signature) || is_right(&key, b"another", &signature) {
        return Err(wrong("an RSA signature is wrong"));
    }
    let told = |name: &str, unit, (amount, seconds): (u64, f64)| Work {
        name: format!("RSA, 2048 bits, {name}"),
        unit,
        amount: amount as f64,
        seconds,
        note: format!(
            "{threads} threads; PKCS #1 with SHA-256; signatures verify, and not for another message"
        ),
        device: None,
    };
    watch(&mut |watch| {
        let signed = for_seconds(
            (threads, seconds),
            watch,
            |_| (),
            |()| u64::from(std::hint::black_box(sign(&key, MESSAGE)).is_ok()),
        )?;
        Ok(told("signing", "signature", signed))
    })?;
    watch(&mut |watch| {
        let verified = for_seconds(
            (threads, seconds),
            watch,
            |_| (),
            |()| u64::from(std::hint::black_box(is_right(&key, MESSAGE, &signature))),
        )?;
        Ok(told("verifying", "verification", verified))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_hold_for_their_message_and_key_only() {
        let key = RsaKeyPair::from_der(KEY).unwrap();
        let mut signature = sign(&key, MESSAGE).unwrap();
        assert_eq!(signature.len(), 256);
        assert!(is_right(&key, MESSAGE, &signature) && !is_right(&key, b"another", &signature));
        signature[100] ^= 1;
        assert!(!is_right(&key, MESSAGE, &signature));
        let mut units = Vec::new();
        let each = |work: &mut dyn FnMut(&mut dyn Watch) -> Result<Work>| {
            let work = work(&mut ())?;
            assert!(work.amount > 0.0);
            units.push(work.unit);
            Ok(())
        };
        run(2, 0.001, each).unwrap();
        assert_eq!(units, ["signature", "verification"]);
    }
}
