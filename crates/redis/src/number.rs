//! Numbers as Redis reads them out of arguments and values.

/// A whole text as a 64-bit integer, by Redis's strict rules: no space, no `+`, no leading zero, no
/// `-0`.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_negative = digits.len() < text.len();
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // Built on the negative side, which reaches one further than the positive.
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if is_negative { Some(value) } else { value.checked_neg() }
}

/// A whole text as an unsigned 64-bit integer: a SCAN cursor. Leading spaces are refused.
pub fn cursor(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_canonical_integers_are_read() {
        assert_eq!(integer(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer(b"0"), Some(0));
        for wrong in ["", "-", "+1", " 1", "1 ", "01", "-0", "00", "9223372036854775808", "1e3", "0x1"] {
            assert_eq!(integer(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn cursors_are_unsigned() {
        assert_eq!(cursor(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(cursor(b"18446744073709551616"), None);
        assert_eq!(cursor(b"-1"), None);
        assert_eq!(cursor(b""), None);
    }

    proptest! {
        #[test]
        fn integers_come_back(value: i64) {
            prop_assert_eq!(integer(value.to_string().as_bytes()), Some(value));
        }

        #[test]
        fn hostile_texts_never_panic(text: Vec<u8>) {
            let _ = (integer(&text), cursor(&text));
        }
    }
}
