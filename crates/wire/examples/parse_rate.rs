//! How quickly requests are parsed, replies encoded and replies skimmed, in nanoseconds each.
//!
//! Run with `cargo run --release -p tierstone-wire --example parse_rate -- [ROUNDS]`.

use std::hint::black_box;

use tierstone_base::{Clock, SystemClock};
use tierstone_wire::resp::{
    Arguments, Progress, ProtocolError, ReplyLimits, ReplyParser, ReplyProgress, ReplySkimmer, ReplyWriter,
    RequestLimits, RequestParser, SkimProgress, Version, encode_command,
};

/// Requests or replies in one buffer: about what one read of a pipelined connection gives.
const PIPELINED: usize = 100;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let value = [b'v'; 128];
    let requests = |arguments: &[&[u8]]| {
        let mut buffer = Vec::new();
        for _ in 0..PIPELINED {
            encode_command(arguments, &mut buffer);
        }
        buffer
    };
    let set = requests(&[b"SET", b"key:000000012345", &value]);
    let get = requests(&[b"GET", b"key:000000012345"]);
    report(rounds, "parse SET key value (128 B)", || parse_requests(&set));
    report(rounds, "parse GET key", || parse_requests(&get));
    report(rounds, "parse inline PING", || parse_requests(&b"PING\r\n".repeat(PIPELINED)));

    let mut out = Vec::new();
    report(rounds, "encode bulk (128 B)", || {
        out.clear();
        let mut writer = ReplyWriter::new(&mut out, Version::Resp2);
        for _ in 0..PIPELINED {
            writer.bulk(black_box(&value));
        }
        PIPELINED
    });
    let replies = out.clone();
    report(rounds, "encode integer", || {
        out.clear();
        let mut writer = ReplyWriter::new(&mut out, Version::Resp2);
        for number in 0..PIPELINED {
            writer.integer(black_box(number as i64 * 1_000_003));
        }
        PIPELINED
    });
    report(rounds, "encode double", || {
        out.clear();
        let mut writer = ReplyWriter::new(&mut out, Version::Resp3);
        for number in 0..PIPELINED {
            writer.double(black_box(number as f64 / 7.0));
        }
        PIPELINED
    });
    report(rounds, "skim bulk (128 B)", || skim_replies(&replies));
    report(rounds, "skim +OK", || skim_replies(&b"+OK\r\n".repeat(PIPELINED)));
    report(rounds, "parse reply bulk (128 B)", || parse_replies(&replies));
}

fn parse_requests(buffer: &[u8]) -> usize {
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut arguments = Arguments::new();
    let mut front = 0;
    let mut count = 0;
    loop {
        let input = &buffer[front..];
        match parser.parse(input, &mut arguments) {
            Ok(Progress::Complete { consumed }) => {
                black_box(arguments.get(1, input));
                front += consumed;
                count += 1;
            }
            Ok(Progress::Skipped { consumed }) => front += consumed,
            Ok(Progress::Incomplete { .. }) => return count,
            Err(error) => return stop(error),
        }
    }
}

fn stop(error: ProtocolError) -> usize {
    eprintln!("{error}");
    0
}

fn skim_replies(buffer: &[u8]) -> usize {
    let mut skimmer = ReplySkimmer::new(ReplyLimits::default());
    let mut front = 0;
    let mut count = 0;
    while let Ok(SkimProgress::Complete { consumed, kind }) = skimmer.skim(&buffer[front..]) {
        black_box(kind);
        front += consumed;
        count += 1;
    }
    count
}

fn parse_replies(buffer: &[u8]) -> usize {
    let mut parser = ReplyParser::new(ReplyLimits::default());
    let mut front = 0;
    let mut count = 0;
    while let Ok(ReplyProgress::Complete { consumed, value }) = parser.parse(&buffer[front..]) {
        black_box(value);
        front += consumed;
        count += 1;
    }
    count
}

/// Runs `round` over and over and prints the time that one of the things it counted took.
fn report(rounds: u32, name: &str, mut round: impl FnMut() -> usize) {
    let clock = SystemClock::new();
    let started_us = clock.now().monotonic_us;
    let mut count = 0;
    for _ in 0..rounds {
        count += black_box(round());
    }
    let elapsed_us = clock.now().monotonic_us - started_us;
    let each_ns = elapsed_us as f64 * 1000.0 / count.max(1) as f64;
    println!("{name:32} {each_ns:8.1} ns  ({count} in {} ms)", elapsed_us / 1000);
}
