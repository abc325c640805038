use super::*;

fn parse_with(
    limits: RequestLimits,
    is_authenticated: bool,
    input: &[u8],
) -> Result<Progress, ProtocolError> {
    let mut parser = RequestParser::new(limits);
    parser.set_authenticated(is_authenticated);
    parser.parse(input, &mut Arguments::new())
}

fn error_of(input: &[u8]) -> String {
    parse_with(RequestLimits::default(), true, input).unwrap_err().to_string()
}

fn words(input: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let mut arguments = Arguments::new();
    match RequestParser::new(RequestLimits::default()).parse(input, &mut arguments) {
        Ok(Progress::Complete { consumed }) => {
            (arguments.iter(input).map(<[u8]>::to_vec).collect(), consumed)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_multibulk_request_is_found_with_its_end() {
    let input = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n*1\r\n";
    let (found, consumed) = words(input);
    assert_eq!(found, [b"SET".to_vec(), Vec::new(), b"a\r\nb".to_vec()]);
    assert_eq!(&input[consumed..], b"*1\r\n");
}

#[test]
fn an_inline_request_is_found_with_its_end() {
    assert_eq!(words(b"PING\r\nrest"), (vec![b"PING".to_vec()], 6));
    assert_eq!(words(b"SET k \"a b\"\nrest"), (vec![b"SET".to_vec(), b"k".to_vec(), b"a b".to_vec()], 12));
}

#[test]
fn empty_requests_are_skipped() {
    for (input, consumed) in [
        (&b"\r\nPING\r\n"[..], 2),
        (b"\n", 1),
        (b"  \r\n", 4),
        (b"*0\r\n", 4),
        (b"*-1\r\n*1\r\n", 5),
        (b"*-7\r\n", 5),
    ] {
        let found = parse_with(RequestLimits::default(), true, input);
        assert_eq!(found, Ok(Progress::Skipped { consumed }), "{input:?}");
    }
}

#[test]
fn broken_requests_get_the_words_of_redis() {
    for (input, expected) in [
        (&b"*3000000000\r\n"[..], "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*03\r\n", "invalid multibulk length"),
        (b"*1\rx", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n", "expected '$', got 'f'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$-10\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$blabla\r\n", "invalid bulk length"),
        (b"*1\r\n$3\r\nfoobar", "expected CRLF after bulk"),
        (b"set \"\"\"test-key\"\"\" test-value\r\n", "unbalanced quotes in request"),
    ] {
        assert_eq!(error_of(input), format!("Protocol error: {expected}"), "{}", input.escape_ascii());
    }
}

#[test]
fn lines_that_do_not_end_are_refused_at_64_kib() {
    let fill = |start: &[u8], len: usize| {
        let mut input = start.to_vec();
        input.resize(start.len() + len, b'1');
        input
    };
    for (start, expected) in [
        (&b""[..], "too big inline request"),
        (b"*", "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
    ] {
        let marker = usize::from(!start.is_empty());
        let fits = fill(start, 65536 - marker);
        assert_eq!(
            parse_with(RequestLimits::default(), true, &fits)
                .map(|progress| matches!(progress, Progress::Incomplete { .. })),
            Ok(true),
            "{expected}"
        );
        assert_eq!(error_of(&fill(start, 65537 - marker)), format!("Protocol error: {expected}"));
    }
}

#[test]
fn tighter_limits_hold_before_authentication() {
    let limits = RequestLimits::default();
    let error = |input: &[u8]| parse_with(limits, false, input).unwrap_err().to_string();
    assert_eq!(error(b"*11\r\n"), "Protocol error: unauthenticated multibulk length");
    assert_eq!(error(b"*1048577\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error(b"*1\r\n$16385\r\n"), "Protocol error: unauthenticated bulk length");
    assert!(matches!(parse_with(limits, false, b"*10\r\n$16384\r\n"), Ok(Progress::Incomplete { .. })));
    assert!(matches!(parse_with(limits, true, b"*11\r\n$16385\r\n"), Ok(Progress::Incomplete { .. })));
}

#[test]
fn a_request_may_not_outgrow_its_limit() {
    let limits = RequestLimits { request_size_max_bytes: 30, ..RequestLimits::default() };
    let input = b"*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n";
    assert_eq!(parse_with(limits, true, input), Err(ProtocolError::TooBigRequest));
    let limits = RequestLimits { request_size_max_bytes: input.len(), ..limits };
    assert_eq!(parse_with(limits, true, input), Ok(Progress::Complete { consumed: input.len() }));
}

#[test]
fn a_pending_bulk_is_known_from_its_header_on() {
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut arguments = Arguments::new();
    let mut input = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n".to_vec();
    let start = input.len();
    input.extend_from_slice(&[7; 10]);
    let progress = parser.parse(&input, &mut arguments);
    assert_eq!(progress, Ok(Progress::Incomplete { needed_hint: 100_002 - 10 }));
    let pending = PendingBulk { argument_index: 2, start, declared_len: 100_000, received: 10 };
    assert_eq!(parser.pending_bulk(), Some(pending));
    input.resize(start + 100_000, 7);
    input.extend_from_slice(b"\r\n");
    assert_eq!(parser.parse(&input, &mut arguments), Ok(Progress::Complete { consumed: input.len() }));
    assert_eq!(parser.pending_bulk(), None);
    assert_eq!(arguments.request(&input)[2].len(), 100_000);
}

#[test]
fn the_hint_counts_the_arguments_to_come() {
    let found = parse_with(RequestLimits::default(), true, b"*3\r\n$3\r\nSE");
    assert_eq!(found, Ok(Progress::Incomplete { needed_hint: 3 + 12 }));
    assert_eq!(parse_with(RequestLimits::default(), true, b""), Ok(Progress::Incomplete { needed_hint: 1 }));
}

#[test]
fn other_arguments_or_a_shorter_input_begin_the_request_anew() {
    let input = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n";
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut arguments = Arguments::new();
    assert!(matches!(parser.parse(&input[..16], &mut arguments), Ok(Progress::Incomplete { .. })));
    let mut others = Arguments::new();
    assert_eq!(parser.parse(input, &mut others), Ok(Progress::Complete { consumed: input.len() }));
    assert_eq!(others.len(), 2);
    assert!(matches!(parser.parse(&input[..16], &mut arguments), Ok(Progress::Incomplete { .. })));
    assert!(matches!(parser.parse(&input[..3], &mut arguments), Ok(Progress::Incomplete { .. })));
    assert_eq!(parser.parse(input, &mut arguments), Ok(Progress::Complete { consumed: input.len() }));
    assert_eq!(arguments.get(1, input), Some(&b"hi"[..]));
}

#[test]
fn a_million_arguments_pass_and_their_storage_is_given_back() {
    let mut input = b"*1048576\r\n".to_vec();
    input.extend_from_slice(&b"$0\r\n\r\n".repeat(1 << 20));
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut arguments = Arguments::new();
    // In small pieces: were each looked at from the start again, this would take minutes.
    let mut end = 0;
    let progress = loop {
        end = (end + 1000).min(input.len());
        match parser.parse(&input[..end], &mut arguments) {
            Ok(Progress::Incomplete { .. }) => {}
            other => break other,
        }
    };
    assert_eq!(progress, Ok(Progress::Complete { consumed: input.len() }));
    assert_eq!(arguments.len(), 1 << 20);
    let small = b"*1\r\n$4\r\nPING\r\n";
    assert_eq!(parser.parse(small, &mut arguments), Ok(Progress::Complete { consumed: small.len() }));
    assert_eq!(arguments.request(small).iter().collect::<Vec<_>>(), [b"PING"]);
}

#[test]
fn a_detached_argument_is_taken_by_the_caller_and_the_others_follow() {
    let stream =
        b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\n0123456789\r\n$2\r\nEX\r\n$2\r\n99\r\n*1\r\n$4\r\nPING\r\n";
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut arguments = Arguments::new();
    let come = &stream[..30];
    assert!(matches!(parser.parse(come, &mut arguments), Ok(Progress::Incomplete { .. })));
    let pending = parser.pending_bulk().unwrap();
    assert_eq!((pending.argument_index, pending.declared_len), (2, 10));
    let before: Vec<&[u8]> = arguments.request(come).iter().collect();
    assert_eq!(before, [&b"SET"[..], b"k"]);
    let following = parser.detach();
    assert_eq!(following, 2);
    let rest = &stream[pending.start + 12..];
    assert_eq!(&stream[pending.start..pending.start + 12], b"0123456789\r\n");
    parser.resume_with(following, &mut arguments);
    for cut in 0..16 {
        assert!(
            matches!(parser.parse(&rest[..cut], &mut arguments), Ok(Progress::Incomplete { .. })),
            "{cut}"
        );
    }
    let Ok(Progress::Complete { consumed }) = parser.parse(rest, &mut arguments) else {
        panic!("not complete")
    };
    let after: Vec<&[u8]> = arguments.request(rest).iter().collect();
    assert_eq!((consumed, after), (16, vec![&b"EX"[..], b"99"]));
    let last = &rest[consumed..];
    assert_eq!(parser.parse(last, &mut arguments), Ok(Progress::Complete { consumed: last.len() }));
}

#[test]
fn a_parser_that_begins_anew_has_neither_a_request_nor_an_error_in_progress() {
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut arguments = Arguments::new();
    let begun: [&[u8]; 5] = [b"*2\r\n$4\r\nECHO\r\n$9\r\nhi", b"*2\r\n$4", b"PIN", b"*x\r\n", b"GET \"\n"];
    let request = b"*2\r\n$4\r\nECHO\r\n$50\r\n12345678901234567890123456789012345678901234567890\r\n";
    for input in begun {
        assert!(!matches!(parser.parse(input, &mut arguments), Ok(Progress::Complete { .. })));
        parser.begin_anew();
        let found = parser.parse(request, &mut arguments);
        assert_eq!(found, Ok(Progress::Complete { consumed: request.len() }), "after {input:?}");
        assert_eq!(arguments.get(0, request), Some(&b"ECHO"[..]));
    }
}
