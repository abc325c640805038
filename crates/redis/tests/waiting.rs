//! Requests that wait: for records, locks, other shards. Whatever has to wait, the answers are those
//! of a server in which nothing ever does.

use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::random_requests::{is_outside_transactions, request, words};
use crate::support::{Server, parse_all};
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_wire::resp::Value;

fn fetching(seed: u64, shards: u64, trouble: Trouble) -> Server<FetchingEngine> {
    Server::new((0..shards).map(|shard| FetchingEngine::new(seed * 64 + shard, trouble)))
}

fn assert_at_rest(server: &Server<FetchingEngine>, place: &str) {
    for executor in &server.executors {
        assert_eq!(executor.suspended(), 0, "{place}: a task is left");
        assert!(executor.shard().locks.is_empty(), "{place}: a lock is left");
        assert_eq!(executor.shard().engine().held(), 0, "{place}: a record is still held");
    }
}

/// Random requests of one connection to a server that never waits and to `other`: the answers are the
/// same. Requests are sent in bursts, so that they wait together.
fn same_answers<E: Engine>(seed: u64, other: &mut Server<E>, leaves_out: impl Fn(&str, bool) -> bool) {
    let mut random = SeededRandom::new(seed);
    let mut plain = Server::new([MapEngine::new(0)]);
    let (plain_id, other_id) = (plain.connect(), other.connect());
    let mut in_transaction = false;
    for burst in 0..60 {
        let mut lines = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..1 + random.below(20) {
            let line = request(&mut random);
            let upper = line.to_ascii_uppercase();
            if in_transaction && is_outside_transactions(&upper) || leaves_out(&upper, in_transaction) {
                continue;
            }
            match upper.as_str() {
                "MULTI" => in_transaction = true,
                "EXEC" | "DISCARD" => in_transaction = false,
                _ => {}
            }
            let request = words(&line);
            let slices: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            expected.extend(plain.raw(plain_id, &slices));
            other.send(other_id, &slices);
            lines.push(line);
        }
        other.settle();
        let got = other.take_received(other_id);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&got), text(&expected), "seed {seed}, burst {burst}: {lines:#?}");
    }
}

/// Answers that tell about the connection or the time are not the same twice.
fn tells_of_itself(upper: &str) -> bool {
    upper.starts_with("HELLO") || upper.contains("EXPIRETIME")
}

#[test]
fn a_server_that_must_fetch_gives_the_same_answers() {
    for seed in 0..60 {
        let mut server = fetching(seed, 1, Trouble::default());
        same_answers(seed, &mut server, |upper, _| tells_of_itself(upper));
        assert_at_rest(&server, &format!("seed {seed}"));
        assert!(server.executors[0].shard().engine().fetches > 20, "seed {seed}: hardly anything waited");
    }
}

#[test]
fn four_shards_give_the_same_answers_as_one() {
    for seed in 0..40 {
        let mut server = Server::new((0..4).map(|_| MapEngine::new(0)));
        let leaves_out =
            |upper: &str, inside: bool| tells_of_itself(upper) || inside && upper.starts_with("DBSIZE");
        same_answers(seed, &mut server, leaves_out);
    }
}

#[test]
fn four_shards_that_must_fetch_give_the_same_answers_as_one_that_need_not() {
    for seed in 0..40 {
        let mut server = fetching(seed, 4, Trouble::default());
        let leaves_out =
            |upper: &str, inside: bool| tells_of_itself(upper) || inside && upper.starts_with("DBSIZE");
        same_answers(seed, &mut server, leaves_out);
        assert_at_rest(&server, &format!("seed {seed}"));
    }
}

fn integers(bytes: &[u8]) -> Vec<i64> {
    parse_all(bytes).iter().filter_map(Value::integer).collect()
}

#[test]
fn increments_of_many_connections_are_each_counted_once() {
    for (seed, shards) in (0..20).zip([1, 2, 4, 1, 3].into_iter().cycle()) {
        let mut random = SeededRandom::new(seed);
        let mut server = fetching(seed, shards, Trouble::default());
        let ids: Vec<u64> = (0..6).map(|_| server.connect()).collect();
        let keys: Vec<String> = (0..3).map(|number| format!("counter{number}")).collect();
        let mut sent: BTreeMap<&str, i64> = BTreeMap::new();
        let mut order: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for _ in 0..300 {
            let id = ids[random.below(6) as usize];
            let key = keys[random.below(3) as usize].as_str();
            server.send(id, &[b"INCR", key.as_bytes()]);
            *sent.entry(key).or_default() += 1;
            order.entry(id).or_default().push(key);
            if random.chance(0.3) {
                server.offer();
                server.step();
            }
        }
        server.settle();
        let mut seen: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for (id, keys) in &order {
            let mut last: BTreeMap<&str, i64> = BTreeMap::new();
            for (key, value) in keys.iter().zip(integers(&server.take_received(*id))) {
                let before = last.insert(key, value).unwrap_or(0);
                assert!(value > before, "seed {seed}: a connection saw {key} go from {before} to {value}");
                seen.entry(key).or_default().push(value);
            }
        }
        for (key, values) in &mut seen {
            values.sort_unstable();
            assert_eq!(*values, (1..=sent[key]).collect::<Vec<_>>(), "seed {seed}, {key}");
        }
        assert_at_rest(&server, &format!("seed {seed}"));
    }
}

#[test]
fn appends_of_many_connections_are_in_the_order_of_their_answers() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let mut server = fetching(seed, 2, Trouble::default());
        let ids: Vec<u64> = (0..4).map(|_| server.connect()).collect();
        let mut sent: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for number in 0..160u32 {
            let id = ids[random.below(4) as usize];
            let byte = b'a' + (number % 26) as u8;
            server.send(id, &[b"APPEND", b"log", &[byte]]);
            sent.entry(id).or_default().push(byte);
            if random.chance(0.3) {
                server.offer();
                server.step();
            }
        }
        server.settle();
        let mut expected = vec![0u8; 160];
        for (id, bytes) in &sent {
            for (byte, length) in bytes.iter().zip(integers(&server.take_received(*id))) {
                expected[length as usize - 1] = *byte;
            }
        }
        let value = server.call(ids[0], &[b"GET", b"log"]);
        assert_eq!(value.bytes(), Some(expected.as_slice()), "seed {seed}");
    }
}

#[test]
fn transfers_over_shards_never_show_a_part() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let mut server = fetching(seed, 4, Trouble::default());
        let ids: Vec<u64> = (0..4).map(|_| server.connect()).collect();
        let accounts: Vec<String> = (0..6).map(|number| format!("account{number}")).collect();
        for account in &accounts {
            server.call(ids[0], &[b"SET", account.as_bytes(), b"100"]);
        }
        let mut reads: BTreeMap<u64, usize> = BTreeMap::new();
        for _ in 0..80 {
            let id = ids[random.below(4) as usize];
            if random.chance(0.5) {
                let (from, to) = (random.below(6) as usize, random.below(6) as usize);
                server.send(id, &[b"MULTI"]);
                server.send(id, &[b"DECRBY", accounts[from].as_bytes(), b"7"]);
                server.send(id, &[b"INCRBY", accounts[to].as_bytes(), b"7"]);
                server.send(id, &[b"EXEC"]);
            } else {
                let mut words: Vec<&[u8]> = vec![b"MGET"];
                words.extend(accounts.iter().map(|account| account.as_bytes()));
                server.send(id, &words);
                *reads.entry(id).or_default() += 1;
            }
            if random.chance(0.4) {
                server.offer();
                server.step();
            }
        }
        server.settle();
        for id in &ids {
            let values = parse_all(&server.take_received(*id));
            let sums: Vec<i64> = values
                .iter()
                .filter_map(Value::items)
                .filter(|items| items.len() == 6)
                .map(|items| {
                    let number = |item: &Value| {
                        std::str::from_utf8(item.bytes().unwrap()).unwrap().parse::<i64>().unwrap()
                    };
                    items.iter().map(number).sum()
                })
                .collect();
            assert_eq!(sums.len(), reads.get(id).copied().unwrap_or(0), "seed {seed}");
            assert!(sums.iter().all(|sum| *sum == 600), "seed {seed}: {sums:?}");
        }
        assert_at_rest(&server, &format!("seed {seed}"));
    }
}

#[test]
fn a_watched_key_of_another_shard_stops_the_transaction() {
    let mut server = fetching(1, 4, Trouble::default());
    let (first, second) = (server.connect(), server.connect());
    for key in ["a", "b", "c", "d", "e"] {
        let set = format!("SET {key} mine");
        server.check(
            first,
            &[
                ("WATCH a b c d e", "+OK"),
                ("MULTI", "+OK"),
                ("SET x 1", "+QUEUED"),
                (set.as_str(), "+QUEUED"),
            ],
        );
        server.check(second, &[(format!("SET {key} other").as_str(), "+OK")]);
        server.check(first, &[("EXEC", "*-1"), ("GET x", "$-1")]);
        server.check(
            first,
            &[("WATCH a b", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*1 +PONG")],
        );
        assert_eq!(server.line(first, &format!("GET {key}")), "$5 other");
    }
    assert_at_rest(&server, "watches");
    assert!(server.executors.iter().all(|executor| executor.shard().watches.is_empty()));
}

#[test]
fn a_plain_read_waits_with_others_of_its_connection_and_sees_what_came_before_it() {
    for seed in 0..40 {
        let mut server = fetching(seed, 1, Trouble { fetch: 1.0, retry: 0.3, ..Trouble::default() });
        let id = server.connect();
        server.check(id, &[("MSET a 1 b 2", "+OK")]);
        for words in [
            [&b"GET"[..], b"a"].as_slice(),
            &[b"GET", b"b"],
            &[b"SET", b"a", b"new"],
            &[b"GET", b"a"],
            &[b"APPEND", b"a", b"er"],
            &[b"GET", b"a"],
            &[b"DEL", b"b"],
            &[b"GET", b"b"],
        ] {
            server.send(id, words);
        }
        server.offer();
        assert!(server.executors[0].suspended() >= 2, "the reads overlap");
        server.settle();
        let text = String::from_utf8(server.take_received(id)).unwrap().replace("\r\n", " ");
        assert_eq!(text, "$1 1 $1 2 +OK $3 new :5 $5 newer :1 $-1 ", "seed {seed}");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_an_error_of_its_request_only() {
    let trouble = Trouble { fetch: 1.0, corrupt: 1.0, ..Trouble::default() };
    let mut server = fetching(3, 1, trouble);
    let id = server.connect();
    assert_eq!(server.line(id, "SET a 1"), "+OK");
    let error = "-ERR corrupt record: checksum";
    server.check(id, &[("GET a", error), ("MGET a b", error), ("INCR a", error), ("PING", "+PONG")]);
    server.check(id, &[("MULTI", "+OK"), ("SET b 1", "+QUEUED"), ("INCR a", "+QUEUED")]);
    assert!(server.line(id, "EXEC").contains("corrupt"));
    assert_at_rest(&server, "corrupt");
    let mut server = fetching(4, 4, trouble);
    let id = server.connect();
    assert_eq!(server.line(id, "MGET a b c d e f"), error);
    assert_at_rest(&server, "corrupt over shards");
}

#[test]
fn connections_that_go_leave_nothing_behind() {
    for seed in 0..30 {
        let mut random = SeededRandom::new(seed);
        let mut server = fetching(seed, 1 + seed % 4, Trouble { fetch: 0.9, ..Trouble::default() });
        let stays = server.connect();
        for _ in 0..30 {
            let id = server.connect();
            for _ in 0..random.below(12) {
                let request = words(&request(&mut random));
                let slices: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
                server.send(id, &slices);
            }
            for _ in 0..random.below(4) {
                server.offer();
                server.step();
            }
            server.disconnect(id);
        }
        // The end of what was begun takes some steps.
        for _ in 0..3_000 {
            server.step();
        }
        assert_eq!(server.line(stays, "PING"), "+PONG");
        assert_at_rest(&server, &format!("seed {seed}"));
        for executor in &server.executors {
            assert!(executor.shard().watches.is_empty(), "seed {seed}: a watch is left");
        }
    }
}

#[test]
fn a_transaction_over_shards_that_begins_anew_has_its_effects_once() {
    for seed in 0..20 {
        let mut server = fetching(seed, 4, Trouble::default());
        let (listener, id) = (server.connect(), server.connect());
        server.line(listener, "SUBSCRIBE c");
        server.check(id, &[("MSET a 1 b 2 d 3", "+OK"), ("SELECT 1", "+OK")]);
        // The copies' keys in another database are not known before the commands run.
        server.check(
            id,
            &[
                ("MULTI", "+OK"),
                ("SELECT 0", "+QUEUED"),
                ("PUBLISH c x", "+QUEUED"),
                ("COPY a b DB 5", "+QUEUED"),
                ("COPY b a DB 5", "+QUEUED"),
                ("COPY d d DB 6", "+QUEUED"),
                ("INCR a", "+QUEUED"),
            ],
        );
        assert!(server.line(id, "EXEC").ends_with(":1 :1 :1 :2"), "seed {seed}");
        server.check(id, &[("GET a", "$1 2"), ("SELECT 5", "+OK"), ("MGET a b", "*2 $1 2 $1 1")]);
        server.settle();
        assert_eq!(parse_all(&server.take_received(listener)).len(), 1, "seed {seed}");
        server.check(id, &[("WATCH a b", "+OK"), ("MULTI", "+OK"), ("EXEC", "*0")]);
        assert_at_rest(&server, &format!("seed {seed}"));
    }
}

/// A database is emptied between the gathering of a watched transaction's records and its run.
#[test]
fn a_transaction_that_a_flush_overtakes_is_carried_out_whole_or_let_go_whole() {
    let mut let_go = 0;
    for seed in 0..12 {
        for delay in 0..14 {
            let place = format!("seed {seed}, delay {delay}");
            let mut server = fetching(seed, 3, Trouble::default());
            let (first, second) = (server.connect(), server.connect());
            let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
            for key in keys {
                server.call(first, &[b"SET", key, b"old"]);
            }
            server.call(first, &[b"WATCH", b"a", b"b"]);
            server.call(first, &[b"MULTI"]);
            for key in keys {
                server.call(first, &[b"SET", key, b"new"]);
            }
            server.send(first, &[b"EXEC"]);
            for _ in 0..delay {
                server.offer();
                server.step();
            }
            server.send(second, &[b"FLUSHDB"]);
            server.settle();
            let answer = parse_all(&server.take_received(first)).pop().unwrap();
            let mut found: Vec<Value> = Vec::new();
            for key in keys {
                found.push(server.call(second, &[b"GET", key]));
            }
            if answer.is_null() {
                let_go += 1;
                assert_eq!(found, vec![Value::Null; 4], "{place}: let go, and yet written");
            }
            assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{place}: {found:?}");
            (0..200).for_each(|_| server.step());
            assert_at_rest(&server, &place);
        }
    }
    assert!(let_go > 0, "no flush came in time");
}

/// As in Redis: the time of its end must be one that there is.
#[test]
fn a_wait_has_a_timeout_that_ends() {
    let mut server = Server::new([MapEngine::new(0)]);
    let client = server.connect();
    let most = i64::MAX - server.now.wall_ms as i64;
    let (last, beyond) = (most.to_string(), (most + 1).to_string());
    for command in ["WAIT 0", "WAITAOF 0 0"] {
        for (timeout, wrong) in [
            ("-1", Some("timeout is negative")),
            (last.as_str(), None),
            (beyond.as_str(), Some("timeout is out of range")),
            ("9223372036854775808", Some("timeout is not an integer or out of range")),
        ] {
            let line = format!("{command} {timeout}");
            let answer = server.line(client, &line);
            assert_eq!(
                wrong.map(|wrong| format!("-ERR {wrong}")),
                answer.starts_with('-').then(|| answer.clone())
            );
            server.check(client, &[("MULTI", "+OK"), (&line, "+QUEUED")]);
            assert_eq!(server.line(client, "EXEC"), format!("*1 {answer}"));
        }
    }
}

#[test]
fn a_page_of_a_walk_is_bounded_whatever_is_asked_for() {
    let mut server = Server::new([MapEngine::new(0)]);
    let id = server.connect();
    for number in 0..1_200 {
        server.line(id, &format!("SET k{number} v"));
    }
    let (mut cursor, mut pages) = ("0".to_owned(), Vec::new());
    loop {
        let page = server.call(id, &[b"SCAN", cursor.as_bytes(), b"COUNT", b"10000"]);
        let [next, keys] = page.items().unwrap() else { panic!("{page:?}") };
        pages.push(keys.items().unwrap().len());
        cursor = String::from_utf8(next.bytes().unwrap().to_vec()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(pages.iter().sum::<usize>(), 1_200);
    assert!(pages.iter().all(|len| *len <= 512), "{pages:?}");
    assert_eq!(server.call(id, &[b"KEYS", b"*"]).items().map(<[Value]>::len), Some(1_200));
}

/// The answer of a transaction does not wait for what was answered before it.
#[test]
fn a_transaction_does_not_lead_away_from_relaxed() {
    let mut server = Server::new([MapEngine::new(0)]);
    let id = server.connect();
    server.check(
        id,
        &[
            ("MULTI", "+OK"),
            (
                "CONFIG SET slowlog-max-len 5 Durability sync",
                "-ERR CONFIG SET durability is not allowed inside a transaction",
            ),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("MULTI", "+OK"),
            ("CONFIG SET slowlog-max-len 5", "+QUEUED"),
            ("EXEC", "*1 +OK"),
        ],
    );
}

/// Values are long, and nobody knows it before they are read.
#[test]
fn a_pipeline_waits_for_few_long_values_at_a_time() {
    let mut server = fetching(5, 1, Trouble { fetch: 1.0, ..Trouble::default() });
    let id = server.connect();
    let value = vec![b'x'; 60_000];
    for number in 0..100 {
        server.call(id, &[b"SET", format!("key:{number}").as_bytes(), &value]);
    }
    server.call(id, &[b"GET", b"key:0"]);
    let mut most = 0;
    for number in 0..100 {
        server.send(id, &[b"GET", format!("key:{number}").as_bytes()]);
    }
    for _ in 0..10_000 {
        server.offer();
        if server.is_idle(id) {
            break;
        }
        most = most.max(server.executors[0].suspended());
        server.step();
    }
    let replies = parse_all(&server.take_received(id));
    assert_eq!(replies.len(), 100);
    assert!(replies.iter().all(|reply| matches!(reply, Value::Bulk(bytes) if bytes.len() == 60_000)));
    assert!((2..=10).contains(&most), "{most} requests waited at the same time");
}
