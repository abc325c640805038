use super::*;

fn parse(input: &[u8]) -> Result<Value, ReplyError> {
    match ReplyParser::new(ReplyLimits::default()).parse(input)? {
        ReplyProgress::Complete { consumed, value } => {
            assert_eq!(consumed, input.len());
            Ok(value)
        }
        ReplyProgress::Incomplete { .. } => panic!("incomplete: {}", input.escape_ascii()),
    }
}

#[test]
fn every_kind_of_reply_is_understood() {
    let bulk = |bytes: &[u8]| Value::Bulk(bytes.to_vec());
    for (input, expected) in [
        (&b"+OK\r\n"[..], Value::Simple(b"OK".to_vec())),
        (b"-ERR no\r\n", Value::Error(b"ERR no".to_vec())),
        (b"!5\r\nA\r\nB!\r\n", Value::Error(b"A\r\nB!".to_vec())),
        (b":-12\r\n", Value::Integer(-12)),
        (b"$2\r\nhi\r\n", bulk(b"hi")),
        (b"$-1\r\n", Value::Null),
        (b"*-1\r\n", Value::Null),
        (b"_\r\n", Value::Null),
        (b"#t\r\n", Value::Boolean(true)),
        (b",1.5e3\r\n", Value::Double(1500.0)),
        (b",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
        (
            b"(-123456789012345678901234567890\r\n",
            Value::BigNumber(b"-123456789012345678901234567890".to_vec()),
        ),
        (b"=6\r\ntxt:hi\r\n", Value::Verbatim { format: *b"txt", text: b"hi".to_vec() }),
        (b"*0\r\n", Value::Array(Vec::new())),
        (
            b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
            Value::Array(vec![Value::Array(vec![Value::Integer(1)]), bulk(b"x")]),
        ),
        (b"%1\r\n+a\r\n:1\r\n", Value::Map(vec![(Value::Simple(b"a".to_vec()), Value::Integer(1))])),
        (b"~1\r\n:1\r\n", Value::Set(vec![Value::Integer(1)])),
        (b">1\r\n:1\r\n", Value::Push(vec![Value::Integer(1)])),
        (b"|0\r\n:1\r\n", Value::Attributed { attributes: Vec::new(), value: Box::new(Value::Integer(1)) }),
    ] {
        assert_eq!(parse(input), Ok(expected), "{}", input.escape_ascii());
    }
}

#[test]
fn broken_replies_are_refused() {
    for (input, expected) in [
        (&b"x"[..], ReplyError::UnknownMarker(b'x')),
        (b"$?\r\n", ReplyError::InvalidLength),
        (b"$-2\r\n", ReplyError::InvalidLength),
        (b"%-1\r\n", ReplyError::InvalidLength),
        (b"$536870913\r\n", ReplyError::InvalidLength),
        (b"*16777217\r\n", ReplyError::TooManyElements),
        (b"%8388609\r\n", ReplyError::TooManyElements),
        (b"*2\r\n*16777215\r\n", ReplyError::TooManyElements),
        (b":1x\r\n", ReplyError::InvalidScalar),
        (b":9223372036854775808\r\n", ReplyError::InvalidScalar),
        (b"#x\r\n", ReplyError::InvalidScalar),
        (b",infinity\r\n", ReplyError::InvalidScalar),
        (b",\r\n", ReplyError::InvalidScalar),
        (b"(1.5\r\n", ReplyError::InvalidScalar),
        (b"_x\r\n", ReplyError::InvalidScalar),
        (b"=3\r\ntxt\r\n", ReplyError::InvalidVerbatim),
        (b"$2\r\nhi!!", ReplyError::InvalidTerminator),
        (b"+a\nb\r\n", ReplyError::InvalidTerminator),
        (b"+a\rb\r\n", ReplyError::InvalidTerminator),
    ] {
        let mut parser = ReplyParser::new(ReplyLimits::default());
        assert_eq!(parser.parse(input), Err(expected), "{}", input.escape_ascii());
        assert_eq!(parser.parse(b"+OK\r\n"), Err(expected), "the error stays");
    }
}

#[test]
fn nesting_ends_at_its_limit() {
    let nested = |depth: usize| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
    assert!(parse(&nested(32)).is_ok());
    assert_eq!(parse(&nested(33)), Err(ReplyError::TooDeep));
    assert_eq!(parse(&b"|1\r\n".repeat(33)), Err(ReplyError::TooDeep));
}

#[test]
fn size_ends_at_its_limit() {
    let limits = ReplyLimits { reply_size_max_bytes: 20, line_size_max_bytes: 8, ..ReplyLimits::default() };
    let parse = |input: &[u8]| ReplyParser::new(limits).parse(input).map(|_| ());
    assert_eq!(parse(b"$13\r\n"), Ok(()));
    assert_eq!(parse(b"$14\r\n"), Err(ReplyError::TooBigReply), "5 + 14 + 2");
    assert_eq!(parse(b"*9\r\n:1\r\n:1\r\n:1\r\n:1\r\n"), Ok(()));
    assert_eq!(parse(b"*9\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"), Err(ReplyError::TooBigReply));
    assert_eq!(parse(b"+12345678"), Ok(()));
    assert_eq!(parse(b"+123456789"), Err(ReplyError::TooLongLine));
}

#[test]
fn elements_are_consumed_as_they_come() {
    let mut parser = ReplyParser::new(ReplyLimits::default());
    let progress = parser.parse(b"*2\r\n:1\r\n$5\r\nhe").unwrap();
    assert_eq!(progress, ReplyProgress::Incomplete { consumed: 12, needed_hint: 5 });
    assert!(parser.is_inside_reply());
    let progress = parser.parse(b"hello\r\n+next\r\n").unwrap();
    let value = Value::Array(vec![Value::Integer(1), Value::Bulk(b"hello".to_vec())]);
    assert_eq!(progress, ReplyProgress::Complete { consumed: 7, value });
    assert!(!parser.is_inside_reply());
}

#[test]
fn accessors_look_into_values() {
    assert_eq!(Value::Bulk(b"x".to_vec()).bytes(), Some(&b"x"[..]));
    assert_eq!(Value::Error(b"ERR x".to_vec()).error().as_deref(), Some("ERR x"));
    assert_eq!(Value::Set(vec![Value::Null]).items().map(<[Value]>::len), Some(1));
    assert_eq!(Value::Integer(3).integer(), Some(3));
    assert!(Value::Simple(b"OK".to_vec()).is_ok() && !Value::Bulk(b"OK".to_vec()).is_ok());
    assert!(Value::Null.is_null() && !Value::Null.is_error());
}
