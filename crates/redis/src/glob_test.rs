use super::*;
use proptest::prelude::*;

fn matches_case(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    Pattern::new(pattern, ignore_case, text.len()).matches(text, &mut 0)
}

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
        assert_eq!(matches_case(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
    }
    assert!(matches_case(b"HeL[L-l]o", b"hello", true));
    assert!(!matches_case(b"HELLO", b"hello", false));
    assert!(matches_case(b"h[^E]LLO", b"hallo", true) && !matches_case(b"h[^E]LLO", b"hello", true));
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

/// Patterns and texts that fit nearly everywhere: a product of the lengths would be 400 million steps and more.
#[test]
fn what_nearly_fits_everywhere_costs_far_less_than_the_product_of_the_lengths() {
    const LEN: usize = 20_000;
    let text = b"a".repeat(2 * LEN);
    let class = [b"[", b"xa".repeat(LEN).as_slice(), b"]"].concat();
    let nearly: [Vec<u8>; 4] = [
        [b"*", b"a".repeat(LEN).as_slice(), b"b*"].concat(),
        [b"*", b"?".repeat(LEN).as_slice(), b"b*"].concat(),
        [b"*", b"[ab]".repeat(LEN).as_slice(), b"b*"].concat(),
        [b"*", class.as_slice(), b"b*"].concat(),
    ];
    let product = (LEN * LEN) as u64;
    for pattern in &nearly {
        let (mut once, mut read) = (0, 0);
        assert!(!matches_counted(pattern, &text, &mut once));
        assert!(!Pattern::new(pattern, true, text.len()).matches(&text, &mut read));
        assert!(once < product / 10 && read < product / 10, "{once} {read} {product}");
    }
    let mut fitting = text.clone();
    fitting[LEN + 5_000] = b'b';
    assert!(nearly.iter().all(|pattern| matches(pattern, &fitting)));
}

#[test]
fn a_pattern_that_no_text_can_fill_is_not_kept() {
    let pattern = Pattern::new(&b"?".repeat(1 << 20), false, 100);
    assert!(pattern.elements.len() <= 100);
    assert!(!pattern.matches(&b"a".repeat(100), &mut 0));
    let exact = Pattern::new(&b"?".repeat(100), false, 100);
    assert!(exact.matches(&b"a".repeat(100), &mut 0) && !exact.matches(b"a", &mut 0));
}

/// The obvious definition, exponential.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
        _ => match text {
            [byte, tail @ ..] => {
                let (fits, used) = one(pattern, *byte);
                fits && naive(&pattern[used..], tail)
            }
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
        prop_assert_eq!(matches_case(pattern.as_bytes(), text.as_bytes(), false), expected);
        let (lower, upper) = (pattern.to_ascii_lowercase(), text.to_ascii_uppercase());
        prop_assert_eq!(matches_case(lower.as_bytes(), upper.as_bytes(), true), expected);
    }

    /// A class by its set of bytes is the class byte by byte.
    #[test]
    fn a_class_has_what_its_ranges_have(low: u8, high: u8, negated: bool) {
        prop_assume!(![low, high].iter().any(|byte| b"]\\^-".contains(byte)));
        let text: &[u8] = if negated { &[b'^', low, b'-', high, b']'] } else { &[low, b'-', high, b']'] };
        let (class, used) = Class::read(text, false);
        prop_assert_eq!(used, text.len());
        for byte in 0..=255u8 {
            prop_assert_eq!(class.has(byte), (low.min(high)..=low.max(high)).contains(&byte) != negated);
        }
    }

    #[test]
    fn bits_find_what_place_after_place_finds(pattern in "[ab?]{1,150}", text in "[ab]{0,400}") {
        let read = Pattern::new(pattern.as_bytes(), false, 1_000);
        let stretch = 0..pattern.len();
        let places = text.as_bytes().windows(pattern.len()).position(|part| read.fits(&stretch, part));
        prop_assert_eq!(search::find_wide(&read, &stretch, text.as_bytes(), &mut 0), places);
        prop_assert_eq!(find(&read, &stretch, text.as_bytes(), &mut 0), places);
    }

    #[test]
    fn hostile_patterns_never_panic(pattern: Vec<u8>, text: Vec<u8>) {
        let _ = (matches(&pattern, &text), matches_case(&pattern, &text, true));
    }
}
