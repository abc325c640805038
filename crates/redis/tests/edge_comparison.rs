//! Requests that somebody thought of: wrong arities, options that exclude each other, values at the ends of their ranges.
//! The same to a Redis server of this machine and to this crate, in both protocols; replies are compared byte by byte.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses its part of the support")]

mod support;

use support::both::Both;
use support::parse_all;

/// One a line; `\s` is a space within a word, `""` an empty word.
const REQUESTS: &str = include_str!("edge_requests.txt");

fn request(line: &str) -> Vec<Vec<u8>> {
    let word = |word: &str| if word == "\"\"" { Vec::new() } else { word.replace("\\s", " ").into_bytes() };
    line.split(' ').map(word).collect()
}

#[test]
fn requests_at_the_edges_are_answered_as_by_redis() {
    let Some(mut both) = Both::start() else { return };
    if both.is_before_8() {
        println!("SKIP: comparison of requests at the edges (the Redis server is older than 8)");
        return;
    }
    let mut differences = Vec::new();
    for shards in [1, 3] {
        for protocol in ["2", "3"] {
            both.renew(shards);
            both.call(&request(&format!("HELLO {protocol}")));
            for line in REQUESTS.lines() {
                let (expected, got) = both.call(&request(line));
                // Sets are in any order.
                if expected != got && parse_all(&expected) != parse_all(&got) {
                    let text = |reply: &[u8]| String::from_utf8_lossy(reply).into_owned();
                    let (expected, got) = (text(&expected), text(&got));
                    differences.push(format!("{shards} {protocol} {line}\n  {expected:?}\n  {got:?}"));
                }
            }
        }
    }
    assert!(REQUESTS.lines().count() > 400);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
