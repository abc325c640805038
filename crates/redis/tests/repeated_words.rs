//! Short requests that name the same thing very often: what they make is bounded, and what they answer is right.

use crate::support::Server;
use crate::support::large::{limited, rest};
use tierstone_engine::map_engine::MapEngine;
use tierstone_wire::resp::Value;

const OOM: &[u8] = b"-OOM command not allowed";

/// `words`, then `word` so many times.
fn repeated<'a>(words: &[&'a [u8]], word: &'a [u8], times: usize) -> Vec<&'a [u8]> {
    words.iter().copied().chain(std::iter::repeat_n(word, times)).collect()
}

#[test]
fn sources_of_bitop_that_are_named_often_are_held_once() {
    for shards in [1, 3] {
        let mut server = limited(shards, 1 << 20);
        let id = server.connect();
        server.raw(id, &[b"SETBIT", b"big", b"16777216", b"1"]);
        server.raw(id, &[b"SET", b"k", &vec![0x5a; 60_000]]);
        for (operation, first) in [(&b"OR"[..], 0x5a), (b"XOR", 0x5a), (b"AND", 0), (b"ONE", 0)] {
            let answer = server.raw(id, &repeated(&[b"BITOP", operation, b"d", b"big"], b"k", 5_001));
            assert_eq!(answer, b":2097153\r\n", "{shards} shards");
            let value = server.call(id, &[b"GETRANGE", b"d", b"0", b"59999"]);
            assert!(value.bytes() == Some(&vec![first; 60_000]), "{shards} shards: {operation:?}");
        }
        // Different ones are held all together.
        let keys: Vec<Vec<u8>> = (0..40).map(|number| format!("k{number}").into_bytes()).collect();
        keys.iter().for_each(|key| drop(server.raw(id, &[b"SET", key, &vec![1; 60_000]])));
        let some = |count: usize| {
            let mut words: Vec<&[u8]> = vec![b"BITOP", b"OR", b"e", b"big"];
            words.extend(keys[..count].iter().map(Vec::as_slice));
            words
        };
        assert!(server.raw(id, &some(40)).starts_with(OOM), "{shards} shards");
        assert_eq!(server.call(id, &[b"EXISTS", b"e"]).integer(), Some(0), "{shards} shards");
        assert_eq!(server.raw(id, &some(15)), b":2097153\r\n", "{shards} shards");
        rest(&mut server);
    }
}

#[test]
fn a_source_that_is_named_often_counts_as_often_as_others_with_the_same_bits() {
    let lists =
        [&[0, 0][..], &[0, 1, 0], &[1, 0, 0], &[0, 1, 1, 1], &[2, 1, 2, 0, 0, 1], &[3, 3, 1], &[2, 2, 2]];
    for long in [40, 1_200_000] {
        let mut server = Server::new([MapEngine::new(0), MapEngine::new(0)]);
        let id = server.connect();
        let value = |source: usize| -> Vec<u8> {
            let len = if source == 1 { long } else { 30 };
            (0..len).map(|at| (at as u8 ^ 0x33).wrapping_mul(7 + source as u8 * 11)).collect()
        };
        // The fourth is not there.
        for source in 0..3 {
            server.raw(id, &[b"SET", format!("s{source}").as_bytes(), &value(source)]);
            for copy in 0..6 {
                server.raw(id, &[b"SET", format!("s{source}.{copy}").as_bytes(), &value(source)]);
            }
        }
        for operation in ["AND", "OR", "XOR", "DIFF", "DIFF1", "ANDOR", "ONE"] {
            for list in lists {
                let often: Vec<String> = list.iter().map(|source| format!("s{source}")).collect();
                let copies = list.iter().enumerate().map(|(at, source)| format!("s{source}.{at}"));
                let copies: Vec<String> = copies.collect();
                let mut ask = |target: &str, keys: &[String]| {
                    let len = server.line(id, &format!("BITOP {operation} {target} {}", keys.join(" ")));
                    (len, server.call(id, &[b"GET", target.as_bytes()]))
                };
                assert!(ask("d", &often) == ask("e", &copies), "{operation} of {list:?}, {long} bytes");
            }
        }
    }
}

#[test]
fn values_that_are_asked_for_often_answer_no_more_than_may_be_held() {
    for shards in [1, 3] {
        let mut server = limited(shards, 1 << 20);
        let id = server.connect();
        server.raw(id, &[b"SET", b"k", &vec![b'x'; 60_000]]);
        server.raw(id, &[b"SET", b"{k}large", &vec![b'x'; 3_000_000]]);
        assert!(server.raw(id, &repeated(&[b"MGET"], b"k", 100)).starts_with(OOM), "{shards} shards");
        assert!(
            server.raw(id, &repeated(&[b"MGET", b"other"], b"k", 100)).starts_with(OOM),
            "{shards} shards"
        );
        let Value::Array(values) = server.call(id, &repeated(&[b"MGET"], b"k", 15)) else {
            panic!("no array")
        };
        assert!(values.len() == 15 && values.iter().all(|value| value.bytes().unwrap().len() == 60_000));
        // What is sent piece by piece takes little, but not nothing.
        let answer = server.raw(id, &repeated(&[b"MGET"], b"{k}large", 20));
        assert!(answer.starts_with(b"*20\r\n$3000000\r\n"), "{shards} shards");
        assert!(server.raw(id, &repeated(&[b"MGET"], b"{k}large", 1_000)).starts_with(OOM));
        // Nothing of a transaction is applied.
        server.check(id, &[("MULTI", "+OK"), ("SET new 1", "+QUEUED")]);
        server.raw(id, &repeated(&[b"MGET"], b"k", 100));
        let answer = server.raw(id, &[b"EXEC"]);
        assert!(answer.starts_with(b"-EXECABORT Transaction discarded: OOM"), "{shards} shards");
        assert_eq!(server.call(id, &[b"EXISTS", b"new"]).integer(), Some(0), "{shards} shards");
    }
}

#[test]
fn what_is_told_of_commands_is_bounded() {
    let mut server = limited(1, 1 << 20);
    let id = server.connect();
    let once = server.raw(id, &[b"COMMAND", b"DOCS", b"client", b"get"]);
    let mut words = repeated(&[b"COMMAND", b"DOCS", b"client"], b"get", 2_000);
    words.extend(repeated(&[], b"client", 2_000));
    assert_eq!(server.raw(id, &words), once);
    assert!(server.raw(id, &repeated(&[b"COMMAND", b"INFO"], b"client", 20_000)).starts_with(OOM));
    let Value::Array(some) = server.call(id, &repeated(&[b"COMMAND", b"INFO"], b"get", 20)) else {
        panic!("no array")
    };
    assert_eq!(some.len(), 20);
    // The commands of a transaction share the bound; those with other effects are carried out all the same.
    server.check(id, &[("MULTI", "+OK"), ("SET new 1", "+QUEUED")]);
    (0..100).for_each(|_| drop(server.raw(id, &[b"COMMAND"])));
    server.check(id, &[("CONFIG SET slowlog-max-len 7", "+QUEUED")]);
    let answer = server.raw(id, &[b"EXEC"]);
    assert!(answer.starts_with(b"*102\r\n+OK\r\n*") && answer.len() < (1 << 20) + 20_000);
    assert!(answer.windows(OOM.len()).any(|part| part == OOM) && answer.ends_with(b"\r\n+OK\r\n"));
    server.check(id, &[("GET new", "$1 1"), ("CONFIG GET slowlog-max-len", "*2 $15 slowlog-max-len $1 7")]);
}
