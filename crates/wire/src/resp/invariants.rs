//! The promises of the decoders, as functions over arbitrary bytes.
//!
//! The fuzz targets and the crate's own tests run the same bodies; a broken promise panics.

use super::{
    Arguments, Progress, ProtocolError, ReplyError, ReplyLimits, ReplyParser, ReplyProgress, ReplySkimmer,
    ReplyWriter, RequestLimits, RequestParser, SkimProgress, Skimmed, Value, Version, encode_command,
};

/// One request, its arguments copied.
type Words = Vec<Vec<u8>>;

/// Limits that short inputs reach.
pub fn tight_request_limits() -> RequestLimits {
    RequestLimits {
        bulk_size_max_bytes: 40,
        argument_count_max: 6,
        inline_size_max_bytes: 24,
        request_size_max_bytes: 100,
        unauthenticated_bulk_size_max_bytes: 8,
        unauthenticated_argument_count_max: 3,
    }
}

/// Limits that short inputs reach.
pub fn tight_reply_limits() -> ReplyLimits {
    ReplyLimits {
        bulk_size_max_bytes: 40,
        line_size_max_bytes: 24,
        element_count_max: 12,
        reply_size_max_bytes: 120,
        depth_max: 3,
    }
}

/// Requests: the pieces do not matter, every call gets on, limits hold, and a command encoded from
/// what was parsed is parsed the same.
pub fn check_requests(data: &[u8]) {
    for limits in [RequestLimits::default(), tight_request_limits()] {
        for is_authenticated in [true, false] {
            let whole = requests(data, &[data.len()], limits, is_authenticated);
            let pieces = piece_lengths(data);
            assert_eq!(whole, requests(data, &pieces, limits, is_authenticated), "pieces {pieces:?}");
            assert_eq!(whole, requests(data, &[1], limits, is_authenticated), "byte by byte");
            for words in &whole.0 {
                assert!(!words.is_empty());
                check_round_trip(words);
            }
        }
    }
}

fn check_round_trip(words: &Words) {
    let borrowed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let mut encoded = Vec::new();
    encode_command(&borrowed, &mut encoded);
    let (parsed, error) = requests(&encoded, &[encoded.len()], RequestLimits::default(), true);
    assert_eq!((parsed.as_slice(), error), (std::slice::from_ref(words), None));
}

/// All requests of a stream that arrives in pieces of `lengths`, over and over, and the error that
/// ends it.
fn requests(
    data: &[u8],
    lengths: &[usize],
    limits: RequestLimits,
    is_authenticated: bool,
) -> (Vec<Words>, Option<ProtocolError>) {
    let mut parser = RequestParser::new(limits);
    parser.set_authenticated(is_authenticated);
    let mut arguments = Arguments::new();
    let mut found = Vec::new();
    let (mut front, mut back) = (0, 0);
    let mut lengths = lengths.iter().cycle();
    while back < data.len() {
        back = (back + lengths.next().map_or(1, |len| (*len).max(1))).min(data.len());
        loop {
            let input = &data[front..back];
            match parser.parse(input, &mut arguments) {
                Ok(Progress::Complete { consumed }) => {
                    assert!(consumed > 0 && consumed <= input.len());
                    let words: Words = arguments.iter(input).map(<[u8]>::to_vec).collect();
                    assert!(consumed <= limits.request_size_max_bytes + limits.inline_size_max_bytes);
                    assert!(words.iter().all(|word| word.len() <= consumed));
                    found.push(words);
                    front += consumed;
                }
                Ok(Progress::Skipped { consumed }) => {
                    assert!(consumed > 0 && consumed <= input.len());
                    front += consumed;
                }
                Ok(Progress::Incomplete { needed_hint }) => {
                    assert!(needed_hint > 0);
                    if let Some(pending) = parser.pending_bulk() {
                        assert_eq!(
                            pending.start + pending.received,
                            input.len().min(pending.start + pending.declared_len)
                        );
                        assert!(pending.declared_len <= limits.bulk_size_max_bytes);
                        assert_eq!(pending.argument_index, arguments.len());
                    }
                    break;
                }
                Err(error) => {
                    assert_eq!(parser.parse(input, &mut arguments), Err(error));
                    return (found, Some(error));
                }
            }
        }
    }
    (found, None)
}

/// Replies: the pieces do not matter, every call gets on, the skimmer ends replies where the parser
/// does, and a value encoded again is parsed the same.
pub fn check_replies(data: &[u8]) {
    for limits in [ReplyLimits::default(), tight_reply_limits()] {
        let whole = replies(data, &[data.len()], limits);
        let pieces = piece_lengths(data);
        // Through text, because a double may be no number.
        assert_eq!(
            format!("{whole:?}"),
            format!("{:?}", replies(data, &pieces, limits)),
            "pieces {pieces:?}"
        );
        assert_eq!(format!("{whole:?}"), format!("{:?}", replies(data, &[1], limits)), "byte by byte");
        let skimmed = skimmed(data, &[data.len()], limits);
        assert_eq!(skimmed, self::skimmed(data, &pieces, limits), "pieces {pieces:?}");
        let ends = skimmed.0.iter().map(|(end, _)| *end);
        assert!(
            whole.0.iter().map(|(end, _)| *end).eq(ends.take(whole.0.len())),
            "skimmer and parser differ"
        );
        for ((_, value), (_, kind)) in whole.0.iter().zip(&skimmed.0) {
            assert_eq!(kind_of(value), *kind);
            check_value_round_trip(value);
        }
    }
}

fn check_value_round_trip(value: &Value) {
    // An error that came as a body may be written as a line.
    let limits = ReplyLimits { line_size_max_bytes: usize::MAX, ..ReplyLimits::default() };
    let mut encoded = Vec::new();
    ReplyWriter::new(&mut encoded, Version::Resp3).value(value);
    let (parsed, error) = replies(&encoded, &[encoded.len()], limits);
    assert_eq!((parsed.len(), error), (1, None));
    assert_eq!(format!("{:?}", parsed[0]), format!("{:?}", (encoded.len(), value)));
    encoded.clear();
    ReplyWriter::new(&mut encoded, Version::Resp2).value(value);
    let (parsed, error) = replies(&encoded, &[encoded.len()], limits);
    assert_eq!((parsed.len(), error), (1, None), "protocol 2: {value:?}");
}

fn kind_of(value: &Value) -> Skimmed {
    match value {
        Value::Error(_) => Skimmed::Error,
        Value::Null => Skimmed::Null,
        Value::Push(_) => Skimmed::Push,
        Value::Attributed { value, .. } => kind_of(value),
        _ => Skimmed::Value,
    }
}

/// Values with where they end in the stream, and the error that ends it.
fn replies(data: &[u8], lengths: &[usize], limits: ReplyLimits) -> (Vec<(usize, Value)>, Option<ReplyError>) {
    let mut parser = ReplyParser::new(limits);
    let mut found = Vec::new();
    let error = feed(data, lengths, |input, front| match parser.parse(input)? {
        ReplyProgress::Complete { consumed, value } => {
            assert!(consumed <= input.len() && front + consumed > found.last().map_or(0, |(end, _)| *end));
            found.push((front + consumed, value));
            Ok((consumed, true))
        }
        ReplyProgress::Incomplete { consumed, needed_hint } => {
            assert!(consumed <= input.len() && needed_hint > 0);
            Ok((consumed, false))
        }
    });
    (found, error)
}

/// Kinds of replies with where they end in the stream, and the error that ends it.
fn skimmed(
    data: &[u8],
    lengths: &[usize],
    limits: ReplyLimits,
) -> (Vec<(usize, Skimmed)>, Option<ReplyError>) {
    let mut skimmer = ReplySkimmer::new(limits);
    let mut found = Vec::new();
    let error = feed(data, lengths, |input, front| match skimmer.skim(input)? {
        SkimProgress::Complete { consumed, kind } => {
            assert!(consumed <= input.len() && front + consumed > found.last().map_or(0, |(end, _)| *end));
            found.push((front + consumed, kind));
            Ok((consumed, true))
        }
        SkimProgress::Incomplete { consumed } => {
            assert!(consumed <= input.len());
            Ok((consumed, false))
        }
    });
    (found, error)
}

/// Lets `take` see the stream piece by piece; it tells what it consumed and whether to call again.
fn feed(
    data: &[u8],
    lengths: &[usize],
    mut take: impl FnMut(&[u8], usize) -> Result<(usize, bool), ReplyError>,
) -> Option<ReplyError> {
    let (mut front, mut back) = (0, 0);
    let mut lengths = lengths.iter().cycle();
    while back < data.len() {
        back = (back + lengths.next().map_or(1, |len| (*len).max(1))).min(data.len());
        loop {
            match take(&data[front..back], front) {
                Ok((consumed, again)) => {
                    front += consumed;
                    if !again {
                        break;
                    }
                }
                Err(error) => return Some(error),
            }
        }
    }
    None
}

/// Piece lengths between 1 and 16, taken from the data itself so that one input is one test.
fn piece_lengths(data: &[u8]) -> Vec<usize> {
    let mut state = data.len() as u64;
    let mut lengths: Vec<usize> = data
        .iter()
        .map(|byte| {
            state = (state ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            (state % 16) as usize + 1
        })
        .collect();
    lengths.push(1);
    lengths
}

#[cfg(test)]
#[path = "invariants_test.rs"]
mod invariants_test;
