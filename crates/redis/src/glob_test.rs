use super::*;
use proptest::prelude::*;

#[test]
fn patterns_of_the_documentation_match() {
    for (pattern, text, expected) in [
        ("h?llo", "hello", true),
        ("h?llo", "hllo", false),
        ("h*llo", "heeeello", true),
        ("h*llo", "hllo", true),
        ("h[ae]llo", "hallo", true),
        ("h[ae]llo", "hillo", false),
        ("h[^e]llo", "hello", false),
        ("h[^e]llo", "hbllo", true),
        ("h[a-b]llo", "hbllo", true),
        ("h[b-a]llo", "hallo", true),
        ("h\\*llo", "h*llo", true),
        ("h\\*llo", "hello", false),
        ("[a", "a", true),
        ("*", "", true),
        ("**", "", false),
        ("**", "a", true),
        ("", "", true),
        ("", "a", false),
        ("a*b*c", "axxbxxbxc", true),
        ("a*b*c", "axxbxxbx", false),
        ("[\\]]", "]", true),
        ("a\\", "a\\", true),
    ] {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
    }
    assert!(matches_case(b"HeL[L-l]o", b"hello", true));
    assert!(!matches_case(b"HELLO", b"hello", false));
}

#[test]
fn a_pattern_of_many_stars_is_decided_quickly() {
    let pattern = b"a*".repeat(2_000);
    let mut text = b"a".repeat(20_000);
    text.push(b'b');
    let mut full = pattern.clone();
    full.push(b'c');
    assert!(!matches(&full, &text));
    assert!(matches(&pattern, &text));
}

/// The obvious definition, exponential.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
        _ => match text {
            [byte, tail @ ..] => one(pattern, *byte, false).is_some_and(|used| naive(&pattern[used..], tail)),
            [] => false,
        },
    }
}

proptest! {
    #[test]
    fn one_retry_decides_like_all_retries(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", text in "[ab\\]^-]{0,8}") {
        // Of an empty text no pattern is looked at, as in Redis.
        let expected = match text.is_empty() {
            true => pattern.is_empty() || pattern == "*",
            false => naive(pattern.as_bytes(), text.as_bytes()),
        };
        prop_assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected);
    }

    #[test]
    fn hostile_patterns_never_panic(pattern: Vec<u8>, text: Vec<u8>) {
        let _ = (matches(&pattern, &text), matches_case(&pattern, &text, true));
    }
}
