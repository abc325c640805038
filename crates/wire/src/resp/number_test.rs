use super::*;

#[test]
fn the_quick_path_takes_canonical_lengths_only() {
    assert_eq!(quick_length(b"0\r\n"), Some((0, 3)));
    assert_eq!(quick_length(b"128\r\nrest"), Some((128, 5)));
    assert_eq!(quick_length(b"9999999999\r\n"), Some((9_999_999_999, 12)));
    for text in
        [&b""[..], b"\r\n", b"1", b"1\r", b"1\rx", b"01\r\n", b"00\r\n", b"-1\r\n", b"99999999999\r\n"]
    {
        assert_eq!(quick_length(text), None, "{text:?}");
    }
}

#[test]
fn request_integers_follow_the_strict_rules() {
    assert_eq!(strict_integer(b"0"), Some(0));
    assert_eq!(strict_integer(b"-1"), Some(-1));
    assert_eq!(strict_integer(b"9223372036854775807"), Some(i64::MAX));
    assert_eq!(strict_integer(b"-9223372036854775808"), Some(i64::MIN));
    for text in [&b""[..], b"-", b"+1", b"01", b"-0", b"-01", b" 1", b"1 ", b"9223372036854775808", b"1x"] {
        assert_eq!(strict_integer(text), None, "{text:?}");
    }
}

#[test]
fn reply_integers_may_carry_a_plus_and_leading_zeros() {
    assert_eq!(lenient_integer(b"+7"), Some(7));
    assert_eq!(lenient_integer(b"007"), Some(7));
    assert_eq!(lenient_integer(b"-007"), Some(-7));
    for text in [&b""[..], b"+", b"-", b"+-1", b"1.0", b"-9223372036854775809"] {
        assert_eq!(lenient_integer(text), None, "{text:?}");
    }
}
