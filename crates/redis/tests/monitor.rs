//! `MONITOR`: every command of every shard, in Redis's words, and nothing that is secret.

use crate::support;
use crate::support::Server;
use crate::support::both::Both;
use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::random_requests::words;
use std::collections::BTreeMap;
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::ConnectionId;
use tierstone_wire::resp::Value;

/// A line: database, address, and the rest.
type Line = (String, String, String);

/// Takes `+SECONDS.MICROSECONDS [DATABASE ADDRESS] "WORD" …` apart.
fn line_of(value: &Value) -> Line {
    let Value::Simple(bytes) = value else { panic!("{value:?} is no line") };
    let text = String::from_utf8(bytes.clone()).unwrap();
    let (time, rest) = text.split_once(" [").unwrap_or_else(|| panic!("{text}"));
    let (seconds, us) = time.split_once('.').unwrap();
    assert!(seconds.parse::<u64>().is_ok() && us.len() == 6 && us.parse::<u32>().is_ok(), "{text}");
    let (who, request) = rest.split_once("] ").unwrap();
    let (database, address) = who.split_once(' ').unwrap();
    (database.into(), address.into(), request.into())
}

fn lines<E: Engine>(server: &mut Server<E>, id: ConnectionId) -> Vec<Line> {
    // What other shards have sent comes in a later turn.
    for _ in 0..10 {
        server.step();
    }
    support::parse_all(&server.take_received(id)).iter().map(line_of).collect()
}

fn quoted(line: &str) -> String {
    line.split(' ').map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" ")
}

#[test]
fn watchers_of_any_shard_see_what_clients_of_all_shards_do() {
    let mut server = Server::new((0..3).map(|_| MapEngine::new(0)));
    let watchers: Vec<ConnectionId> = (0..3).map(|_| server.connect()).collect();
    let clients: Vec<ConnectionId> = (0..3).map(|_| server.connect()).collect();
    server.line(clients[0], "SET before 1");
    for id in &watchers {
        server.check(*id, &[("MONITOR", "+OK"), ("MONITOR", "")]);
    }
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for round in 0..20 {
        for id in &clients {
            for line in
                [format!("SET k{round} {id}"), format!("get k{round}"), format!("MGET a{round} b{round}")]
            {
                server.line(*id, &line);
                expected.entry(format!("127.0.0.1:{}", 40_000 + id)).or_default().push(quoted(&line));
            }
        }
    }
    for id in &watchers {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (database, address, request) in lines(&mut server, *id) {
            assert_eq!(database, "0");
            found.entry(address).or_default().push(request);
        }
        assert_eq!(found, expected, "of the watcher {id}");
    }
    // Whoever ends or resets watches no more, and its own shard tells the others.
    server.disconnect(watchers[0]);
    server.line(watchers[1], "RESET");
    server.line(clients[2], "PING");
    assert_eq!(lines(&mut server, watchers[2]).last().unwrap().2, "\"PING\"");
    assert!(server.take_received(watchers[1]).is_empty());
    server.line(watchers[2], "RESET");
    for id in &clients {
        server.line(*id, "PING");
    }
    assert!(lines(&mut server, watchers[2]).is_empty());
}

#[test]
fn a_transaction_shows_its_commands_once_and_then_exec() {
    for (seed, shards) in [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3)] {
        let trouble = Trouble { fetch: 0.5, ..Trouble::default() };
        let mut server = Server::new((0..shards).map(|shard| FetchingEngine::new(seed + shard, trouble)));
        let (watcher, id) = (server.connect(), server.connect());
        for key in ["a", "b", "c"] {
            server.line(id, &format!("SET {key} 1"));
        }
        server.line(watcher, "MONITOR");
        for line in
            ["MULTI", "GET a", "SELECT 3", "INCR b", "PUBLISH x y", "GET c", "EXEC", "WATCH a", "MULTI"]
        {
            server.line(id, line);
        }
        for line in ["FOO", "EXEC", "GET a"] {
            server.line(id, line);
        }
        let shown: Vec<String> = lines(&mut server, watcher)
            .into_iter()
            .map(|(database, _, request)| format!("{database} {}", request.replace('"', "")))
            .collect();
        let expected = [
            "0 MULTI",
            "0 GET a",
            "3 SELECT 3",
            "3 INCR b",
            "3 PUBLISH x y",
            "3 GET c",
            "3 EXEC",
            "3 WATCH a",
            "3 MULTI",
            "3 EXEC",
            "3 GET a",
        ];
        assert_eq!(shown, expected, "seed {seed}");
    }
}

#[test]
fn a_put_off_request_is_shown_once() {
    let trouble = Trouble { fetch: 1.0, ..Trouble::default() };
    let mut server = Server::new([FetchingEngine::new(1, trouble)]);
    let (watcher, id) = (server.connect(), server.connect());
    server.line(id, "SET a 1");
    server.line(watcher, "MONITOR");
    // The second waits until the first has its record.
    for words in [&[&b"INCR"[..], b"a"], &[b"INCR", b"a"], &[b"GET", b"a"]] {
        server.send(id, words);
    }
    server.settle();
    let shown: Vec<String> = lines(&mut server, watcher).into_iter().map(|(.., request)| request).collect();
    assert_eq!(shown, [quoted("INCR a"), quoted("INCR a"), quoted("GET a")]);
}

/// Requests of a client whose lines must be those of Redis.
const REQUESTS: &[&str] = &[
    "SET a b",
    "get a",
    "AUTH secret1",
    "AUTH secret2 secret3",
    "HELLO 2 AUTH default secret4",
    "HELLO 2 AUTH default secret4 SETNAME x",
    "HELLO 3",
    "HELLO 2",
    "CONFIG SET requirepass secret5",
    "CONFIG SET requirepass \"\"",
    "CONFIG GET port",
    "SLOWLOG LEN",
    "MULTI",
    "SET a 1",
    "SELECT 2",
    "GET a",
    "EXEC",
    "SELECT 0",
    "MULTI",
    "SET a 1",
    "DISCARD",
    "MULTI",
    "GET",
    "EXEC",
    "EXEC",
    "MULTI",
    "MONITOR",
    "EXEC",
    "FOO",
    "GET",
    "SELECT 3",
    "SELECT x",
    "GET a",
    "INFO server",
    "CLIENT LIST",
    "CLIENT SETNAME x",
    "DEBUG SLEEP 0",
    "SUBSCRIBE x",
    "PING",
    "UNSUBSCRIBE x",
    "COMMAND COUNT",
    "LASTSAVE",
    "WATCH a",
    "UNWATCH",
    "SET a b EX abc",
    "KEYS *",
    "SCAN 0",
    "WAIT 0 0",
    "PUBLISH x y",
    "RESET",
];

#[test]
fn lines_are_those_of_redis() {
    let Some(mut both) = Both::start() else { return };
    for shards in [1, 3] {
        both.renew(shards);
        let mut watcher = both.redis.connect();
        assert_eq!(watcher.call(&words("MONITOR")), b"+OK\r\n");
        let own = both.own.connect();
        both.own.check(own, &[("MONITOR", "+OK")]);
        let mut requests: Vec<Vec<Vec<u8>>> = REQUESTS.iter().map(|line| words(line)).collect();
        let all: Vec<u8> = (0..=255).collect();
        requests.push(vec![b"echo".to_vec(), all]);
        requests.push(vec![b"ECHO".to_vec(), Vec::new()]);
        for request in &requests {
            both.call(request);
        }
        // The last one tells where the lines end.
        both.call(&words("ECHO end"));
        let mut expected = Vec::new();
        while expected.last().is_none_or(|(_, request): &(String, String)| request != "\"ECHO\" \"end\"") {
            let (database, _, request) = line_of(&watcher.next());
            expected.push((database, request));
        }
        let got: Vec<(String, String)> =
            lines(&mut both.own, own).into_iter().map(|(database, _, request)| (database, request)).collect();
        assert_eq!(got, expected);
        assert!(!format!("{got:?}").contains("secret"));
    }
}

#[test]
fn watchers_are_answered_as_by_redis() {
    let Some(mut both) = Both::start() else { return };
    both.call(&words("MONITOR"));
    for line in
        ["GET a", "SET a b", "KEYS *", "DBSIZE", "PUBLISH a b", "EXISTS a", "MONITOR x", "RESET", "GET a"]
    {
        let (expected, got) = both.call(&words(line));
        assert_eq!(got, expected, "{line}");
    }
    both.call(&words("MULTI"));
    both.call(&words("MONITOR"));
    let (expected, got) = both.call(&words("EXEC"));
    assert_eq!(got, expected);
}
