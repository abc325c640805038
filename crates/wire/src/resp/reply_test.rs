use super::*;

fn both(write: impl Fn(&mut ReplyWriter<'_>)) -> (String, String) {
    let text = |version| {
        let mut out = Vec::new();
        write(&mut ReplyWriter::new(&mut out, version));
        String::from_utf8(out).unwrap()
    };
    (text(Version::Resp2), text(Version::Resp3))
}

fn same(write: impl Fn(&mut ReplyWriter<'_>)) -> String {
    let (second, third) = both(write);
    assert_eq!(second, third);
    second
}

#[test]
fn common_replies_are_the_same_in_both_versions() {
    assert_eq!(same(|writer| writer.ok()), "+OK\r\n");
    assert_eq!(same(|writer| writer.simple("PONG")), "+PONG\r\n");
    assert_eq!(same(|writer| writer.error("ERR no")), "-ERR no\r\n");
    assert_eq!(same(|writer| writer.integer(i64::MIN)), ":-9223372036854775808\r\n");
    assert_eq!(same(|writer| writer.bulk(b"")), "$0\r\n\r\n");
    assert_eq!(same(|writer| writer.bulk(b"a\r\nb")), "$4\r\na\r\nb\r\n");
    assert_eq!(same(|writer| writer.bulk_integer(-12)), "$3\r\n-12\r\n");
    assert_eq!(same(|writer| writer.array(2)), "*2\r\n");
    assert_eq!(
        same(|writer| {
            writer.bulk_header(2);
            writer.encoded(b"hi");
            writer.bulk_end();
        }),
        "$2\r\nhi\r\n"
    );
}

#[test]
fn what_protocol_2_lacks_gets_the_shape_that_redis_gives_it() {
    let pair = |second: &str, third: &str| (second.to_owned(), third.to_owned());
    assert_eq!(both(|writer| writer.null()), pair("$-1\r\n", "_\r\n"));
    assert_eq!(both(|writer| writer.null_array()), pair("*-1\r\n", "_\r\n"));
    assert_eq!(both(|writer| writer.map(3)), pair("*6\r\n", "%3\r\n"));
    assert_eq!(both(|writer| writer.set(3)), pair("*3\r\n", "~3\r\n"));
    assert_eq!(both(|writer| writer.push(3)), pair("*3\r\n", ">3\r\n"));
    assert_eq!(both(|writer| writer.boolean(true)), pair(":1\r\n", "#t\r\n"));
    assert_eq!(both(|writer| writer.boolean(false)), pair(":0\r\n", "#f\r\n"));
    assert_eq!(both(|writer| writer.double(1.5)), pair("$3\r\n1.5\r\n", ",1.5\r\n"));
    assert_eq!(both(|writer| writer.big_number("-12")), pair("$3\r\n-12\r\n", "(-12\r\n"));
    assert_eq!(both(|writer| writer.verbatim(*b"txt", b"hi")), pair("$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"));
    assert_eq!(
        both(|writer| assert_eq!(writer.attribute(1), writer.version() == Version::Resp3)),
        pair("", "|1\r\n")
    );
}

#[test]
fn no_line_end_gets_into_a_line() {
    assert_eq!(same(|writer| writer.error("ERR a\r\n+OK")), "-ERR a  +OK\r\n");
    assert_eq!(same(|writer| writer.simple(b"a\nb")), "+a b\r\n");
    let error = ProtocolError::ExpectedDollar { got: b'\n' };
    assert_eq!(
        same(|writer| writer.protocol_error(&error)),
        "-ERR Protocol error: expected '$', got ' '\r\n"
    );
}

#[test]
fn attributes_are_left_out_of_protocol_2() {
    let value = Value::Attributed {
        attributes: vec![(Value::Simple(b"ttl".to_vec()), Value::Integer(7))],
        value: Box::new(Value::Null),
    };
    let (second, third) = both(|writer| writer.value(&value));
    assert_eq!(second, "$-1\r\n");
    assert_eq!(third, "|1\r\n+ttl\r\n:7\r\n_\r\n");
}
