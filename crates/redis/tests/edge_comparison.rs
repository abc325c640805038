//! Requests that somebody thought of: wrong arities, options that exclude each other, values at the ends of their ranges.
//! The same to a Redis server of this machine and to this crate, in both protocols; replies are compared byte by byte.

use crate::support::both::Both;
use crate::support::parse_all;

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

/// What is before a write, and the write, which changes something or nothing: `BEFORE | WRITE`. The key watched is `s`.
const WATCHED: &str = include_str!("watch_requests.txt");

/// Tripped here and not in Redis (docs/redis-compatibility.md).
const TRIPPED_ONLY_HERE: [&str; 2] = ["DEL s | SWAPDB 0 5", "DEL s | BITFIELD s OVERFLOW FAIL SET u8 0 300"];

#[test]
fn a_watch_is_tripped_by_what_trips_it_in_redis() {
    let Some(mut both) = Both::start() else { return };
    if both.is_before_8() {
        println!("SKIP: comparison of what trips a watch (the Redis server is older than 8)");
        return;
    }
    let mut differences = Vec::new();
    let (mut tripped, mut not_tripped, mut unknown) = (0, 0, 0);
    for shards in [1, 3] {
        both.renew(shards);
        for line in WATCHED.lines() {
            let (before, write) = line.split_once(" | ").unwrap();
            let mut call = |line: &str| both.call(&request(line));
            let replies = ["FLUSHALL", before, "WATCH s", write, "MULTI", "PING", "EXEC"].map(&mut call);
            if replies.iter().any(|(_, got)| got.starts_with(b"-ERR unknown command")) {
                unknown += 1;
                continue;
            }
            let (expected, got) = &replies[6];
            let is_tripped = expected == b"*-1\r\n";
            *if is_tripped { &mut tripped } else { &mut not_tripped } += 1;
            if (expected == got) == TRIPPED_ONLY_HERE.contains(&line) {
                let got = String::from_utf8_lossy(got);
                differences.push(format!("{shards} {line}: tripped in Redis: {is_tripped}, here {got:?}"));
            }
        }
    }
    println!("{tripped} tripped, {not_tripped} not tripped, {unknown} of commands that are not here yet");
    assert!(tripped > 60 && not_tripped > 60, "{tripped} tripped, {not_tripped} not");
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
