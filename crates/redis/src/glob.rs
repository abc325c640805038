//! Redis's glob patterns in bounded time.
//!
//! Only the newest `*` is ever tried again, which decides the same patterns as trying all of them
//! and costs at most pattern length × text length steps: a hostile pattern cannot take longer.

/// Whether `text` matches `pattern`: `*`, `?`, `[abc]`, `[^a-z]`, `\x`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_case(pattern, text, false)
}

/// As [`matches`]; letters match in either case when `ignore_case`.
pub fn matches_case(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    if text.is_empty() {
        // Redis looks at no pattern then: only one that stands for everything is known before.
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut at, mut read) = (0, 0);
    // The pattern behind the newest star, and the text that the star has swallowed.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            while pattern.get(at) == Some(&b'*') {
                at += 1;
            }
            if at == pattern.len() {
                return true;
            }
            retry = Some((at, read));
            continue;
        }
        let step = match (text.get(read), at < pattern.len()) {
            (Some(&byte), true) => one(&pattern[at..], byte, ignore_case),
            (None, false) => return true,
            (None, true) => return false,
            (Some(_), false) => None,
        };
        match (step, retry) {
            (Some(used), _) => {
                at += used;
                read += 1;
            }
            (None, Some((behind_star, swallowed))) => {
                at = behind_star;
                read = swallowed + 1;
                retry = Some((behind_star, read));
            }
            (None, None) => return false,
        }
    }
}

/// Matches one byte against the element at the start of `pattern`: the element's length if it fits.
fn one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => class(rest, fold(byte), fold).map(|used| used + 1),
        [b'\\', literal, ..] => (fold(*literal) == fold(byte)).then_some(2),
        [literal, ..] => (fold(*literal) == fold(byte)).then_some(1),
        [] => None,
    }
}

/// Matches `byte` against the class whose inside begins `rest`. A class that is never closed ends
/// with the pattern, as in Redis.
fn class(rest: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let is_negated = rest.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut is_in = false;
    loop {
        match &rest[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                is_in |= fold(*literal) == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                let (low, high) = (fold(*low.min(high)), fold(*low.max(high)));
                is_in |= (low..=high).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= fold(*literal) == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated).then_some(at)
}

/// The only key that `pattern` can match, when it holds nothing but literal bytes.
pub fn is_literal(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

#[cfg(test)]
#[path = "glob_test.rs"]
mod glob_test;
