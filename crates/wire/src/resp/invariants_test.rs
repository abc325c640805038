use proptest::prelude::*;

use super::*;

/// Bytes that look like requests often enough to get deep.
fn request_like() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        8 => (prop::collection::vec(prop::collection::vec(any::<u8>(), 0..48), 1..8)).prop_map(|words| {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let mut out = Vec::new();
            encode_command(&words, &mut out);
            out
        }),
        2 => "(\\*[-0-9]{0,3}\r\n)?".prop_map(String::into_bytes),
        2 => "[ a-z\"'\\\\x0-9]{0,30}\r?\n".prop_map(String::into_bytes),
        1 => "\\*[1-3]\r\n\\$[-0-9]{0,3}\r?\n?".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(fragment, 0..6).prop_map(|fragments| fragments.concat())
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[ -~]{0,12}".prop_map(|text| Value::Simple(text.into_bytes())),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        prop::collection::vec(any::<u8>(), 0..60).prop_map(Value::Bulk),
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<u64>().prop_map(|bits| Value::Double(f64::from_bits(bits))),
        "[-+]?[0-9]{1,40}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
        (any::<[u8; 3]>(), prop::collection::vec(any::<u8>(), 0..30))
            .prop_map(|(format, text)| Value::Verbatim { format, text }),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 32, 5, |inner| {
        let items = || prop::collection::vec(inner.clone(), 0..5);
        let pairs = || prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            items().prop_map(Value::Array),
            items().prop_map(Value::Set),
            items().prop_map(Value::Push),
            pairs().prop_map(Value::Map),
            (pairs(), inner.clone())
                .prop_map(|(attributes, value)| Value::Attributed { attributes, value: Box::new(value) }),
        ]
    })
}

fn reply_like() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        8 => (value(), any::<bool>()).prop_map(|(value, is_new)| {
            let mut out = Vec::new();
            let version = if is_new { Version::Resp3 } else { Version::Resp2 };
            ReplyWriter::new(&mut out, version).value(&value);
            out
        }),
        2 => "[-+:$*_#,(%~>|=!]{1,2}[-+0-9a-z]{0,4}\r?\n?".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..30),
    ];
    prop::collection::vec(fragment, 0..5).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn requests_keep_their_promises_on_arbitrary_bytes(data: Vec<u8>) {
        check_requests(&data);
    }

    #[test]
    fn requests_keep_their_promises_on_likely_bytes(data in request_like()) {
        check_requests(&data);
    }

    #[test]
    fn replies_keep_their_promises_on_arbitrary_bytes(data: Vec<u8>) {
        check_replies(&data);
    }

    #[test]
    fn replies_keep_their_promises_on_likely_bytes(data in reply_like()) {
        check_replies(&data);
    }

    #[test]
    fn every_value_survives_protocol_3(value in value()) {
        check_value_round_trip(&value);
    }
}
