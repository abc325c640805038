use super::*;

fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let mut arguments = Arguments::new();
    split(line, &mut arguments)?;
    Ok(arguments.iter(b"").map(<[u8]>::to_vec).collect())
}

#[test]
fn words_are_split_at_white_space() {
    assert_eq!(words(b"  SET\tkey  value ").unwrap(), [b"SET".to_vec(), b"key".to_vec(), b"value".to_vec()]);
    assert!(words(b"").unwrap().is_empty());
    assert!(words(b" \t \x0b\x0c").unwrap().is_empty());
}

#[test]
fn double_quotes_know_their_escapes() {
    assert_eq!(
        words(br#""a b" "\x41\x7a\xZZ" "\n\r\t\b\a\q\"""#).unwrap(),
        [b"a b".to_vec(), b"AzxZZ".to_vec(), b"\n\r\t\x08\x07q\"".to_vec()]
    );
    assert_eq!(words(br#""" x"#).unwrap(), [b"".to_vec(), b"x".to_vec()]);
}

#[test]
fn single_quotes_know_one_escape() {
    assert_eq!(
        words(br#"'a "b"' 'it\'s' '\n'"#).unwrap(),
        [br#"a "b""#.to_vec(), b"it's".to_vec(), br"\n".to_vec()]
    );
}

#[test]
fn a_quote_may_open_inside_a_word() {
    assert_eq!(words(br#"foo"bar baz" x"#).unwrap(), [b"foobar baz".to_vec(), b"x".to_vec()]);
}

#[test]
fn quotes_that_do_not_close_or_do_not_end_the_word_are_refused() {
    for line in [
        &br#""abc"#[..],
        b"'abc",
        br#""a"b"#,
        b"'a'b",
        br#"set """test-key""" test-value"#,
        br#""\"#,
        br"'\'",
    ] {
        assert_eq!(words(line), Err(ProtocolError::UnbalancedQuotes), "{}", String::from_utf8_lossy(line));
    }
}
