//! The decimal numbers of protocol headers.

/// Digits that the quick path takes: enough for every length that a limit can allow.
const QUICK_DIGITS: usize = 10;

/// Reads `DIGITS CR LF` at the start of `bytes`: the value and the bytes it took, line end included.
///
/// `None` says only that the quick path does not apply (sign, leading zero, too many digits, a line
/// that is not complete, garbage); the caller then looks closely.
#[inline(always)]
pub(super) fn quick_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0usize;
    for (index, byte) in bytes.iter().take(QUICK_DIGITS + 1).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let ends = *byte == b'\r' && bytes.get(index + 1) == Some(&b'\n');
            let canonical = index == 1 || (index > 1 && bytes.first() != Some(&b'0'));
            return (ends && canonical).then_some((value, index + 2));
        }
        // No overflow: eleven digits at most.
        value = value * 10 + usize::from(digit);
    }
    None
}

/// A whole text as a 64-bit integer by the rules of Redis's requests: no space, no `+`, no leading
/// zero, no `-0`.
pub(super) fn strict_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.first() == Some(&b'0') && text.len() > 1 {
        return None;
    }
    signed(digits, digits.len() < text.len())
}

/// A whole text as a 64-bit integer by the rules of replies: one sign of either kind and leading
/// zeros are allowed.
pub(super) fn lenient_integer(text: &[u8]) -> Option<i64> {
    match text.first() {
        Some(b'-') => signed(&text[1..], true),
        Some(b'+') => signed(&text[1..], false),
        _ => signed(text, false),
    }
}

fn signed(digits: &[u8], negative: bool) -> Option<i64> {
    if digits.is_empty() {
        return None;
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
    if negative { Some(value) } else { value.checked_neg() }
}

#[cfg(test)]
#[path = "number_test.rs"]
mod number_test;
