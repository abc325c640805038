//! The promises of the payloads' decoder, as a function over arbitrary bytes.
//!
//! The fuzz target and the crate's own tests run the same body; a broken promise panics.

use super::{FOOTER_BYTES, NEWEST_VERSION, PayloadError, crc64, read_string, write_string};

/// A limit that short inputs reach.
const TIGHT_BYTES_MAX: usize = 300;

/// Reads `data` as a payload and as the value of a payload whose version and checksum are right: the limit
/// holds, what can be read comes back when it is written and read again, and a wrong checksum is seen.
pub fn check_payload(data: &[u8]) {
    check(data);
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&NEWEST_VERSION.to_le_bytes());
    let checksum = crc64(&sealed);
    sealed.extend_from_slice(&checksum.to_le_bytes());
    check(&sealed);
    // The last bit of the version: the checksum covers it. One that says that none was made covers nothing.
    let place = sealed.len() - FOOTER_BYTES;
    sealed[place] ^= 1;
    if checksum != 0 {
        assert_eq!(read_string(&sealed, usize::MAX), Err(PayloadError::VersionOrChecksum));
    }
}

fn check(payload: &[u8]) {
    let within = read_string(payload, TIGHT_BYTES_MAX);
    let Ok(value) = read_string(payload, 1 << 20) else {
        assert!(within.is_err(), "a lower limit makes nothing readable");
        return;
    };
    match within {
        Ok(within) => assert_eq!(within, value),
        Err(error) => assert!(error == PayloadError::TooLong && value.len() > TIGHT_BYTES_MAX, "{error:?}"),
    }
    let mut again = Vec::new();
    write_string(&value, &mut again);
    assert_eq!(read_string(&again, value.len()), Ok(value));
}

#[cfg(test)]
mod tests {
    use super::check_payload;
    use proptest::prelude::*;

    /// Values as they stand in a payload: of all forms, with what may be wrong in them.
    fn forms() -> impl Strategy<Value = Vec<u8>> {
        let plain = proptest::collection::vec(any::<u8>(), 0..600);
        let plain = plain
            .prop_map(|bytes| [&[0, 0x40 | (bytes.len() >> 8) as u8, bytes.len() as u8], &*bytes].concat());
        let packed = proptest::collection::vec(any::<u8>(), 0..5);
        let packed = (0..5u8, packed).prop_map(|(form, rest)| [&[0, 0xc0 | form], &*rest].concat());
        let compressed = (proptest::collection::vec(any::<u8>(), 0..60), 0..64u8);
        let compressed =
            compressed.prop_map(|(bytes, len)| [&[0, 0xc3, bytes.len() as u8, len], &*bytes].concat());
        prop_oneof![plain, packed, compressed, proptest::collection::vec(any::<u8>(), 0..40)]
    }

    proptest! {
        #[test]
        fn payloads_hold_for_any_bytes(data in forms()) {
            check_payload(&data);
        }
    }
}
