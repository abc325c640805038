//! `SLOWLOG`: what is listed, of whom, with which time, and how much memory that takes.

use crate::support;
use crate::support::Server;
use crate::support::both::Both;
use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::random_requests::words;
use tierstone_base::CountingClock;
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::ConnectionId;
use tierstone_wire::resp::Value;

/// An entry: number, time in microseconds, arguments as a line, address.
type Entry = (i64, i64, String, String);

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

fn entries_of(list: &Value) -> Vec<Entry> {
    let entry = |value: &Value| {
        let fields = value.items().unwrap();
        assert_eq!(fields.len(), 6, "{value:?}");
        let number = |index: usize| fields[index].integer().unwrap();
        let args: Vec<String> = fields[3].items().unwrap().iter().map(text).collect();
        (number(0), number(2), args.join(" "), text(&fields[4]))
    };
    list.items().unwrap().iter().map(entry).collect()
}

/// The whole list, the oldest entry first.
fn entries<E: Engine>(server: &mut Server<E>, id: ConnectionId) -> Vec<Entry> {
    let list = server.call(id, &[b"SLOWLOG", b"GET", b"-1"]);
    entries_of(&list).into_iter().rev().collect()
}

/// A server on which every command is slow.
fn server(shards: usize) -> Server<MapEngine> {
    let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
    server.set("slowlog-log-slower-than", "0");
    server
}

#[test]
fn one_list_has_the_commands_of_all_shards_in_their_order() {
    let mut server = server(4);
    let clients: Vec<ConnectionId> = (0..4).map(|_| server.connect()).collect();
    let mut expected = Vec::new();
    for round in 0..10 {
        for id in &clients {
            // Keys of any shard, one or several.
            for line in [
                format!("SET k{round} {id}"),
                format!("MSET a{round} 1 b{round} 2 c{round} 3"),
                "PING".into(),
            ] {
                server.line(*id, &line);
                expected.push((line, format!("127.0.0.1:{}", 40_000 + id)));
            }
        }
    }
    for id in &clients {
        let found = entries(&mut server, *id);
        let numbers: Vec<i64> = found.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, (0..numbers.len() as i64).collect::<Vec<_>>());
        let of_clients: Vec<(String, String)> = found
            .into_iter()
            .filter(|(_, _, line, _)| !line.starts_with("SLOWLOG"))
            .map(|(_, _, line, address)| (line, address))
            .collect();
        assert_eq!(of_clients, expected);
    }
    server.check(clients[2], &[("SLOWLOG RESET", "+OK"), ("SLOWLOG LEN", ":1")]);
}

#[test]
fn waiting_for_records_is_a_part_of_the_time_and_waiting_for_durability_is_not() {
    for shards in [1, 3] {
        let trouble = Trouble { fetch: 1.0, retry: 0.0, durable: 0.05, ..Trouble::default() };
        let mut server = Server::new((0..shards).map(|seed| FetchingEngine::new(seed, trouble)));
        server.set("slowlog-log-slower-than", "0");
        let id = server.connect();
        let mut waited_us = 0;
        for key in ["a", "b", "c", "d"] {
            let before_us = server.now.monotonic_us;
            server.line(id, &format!("SET {key} 1"));
            waited_us += server.now.monotonic_us - before_us;
            server.line(id, &format!("GET {key}"));
        }
        assert!(waited_us > 1_000, "all was durable at once");
        let mut fetched_us = 0;
        for (_, took_us, line, _) in entries(&mut server, id) {
            match line.split(' ').next() {
                Some("SET") => assert_eq!(took_us, 0, "{line}"),
                _ => fetched_us += took_us,
            }
        }
        assert!(fetched_us >= 100, "{fetched_us} us, {shards} shards");
    }
}

#[test]
fn a_transaction_lists_its_commands_once_however_often_it_was_run() {
    for (seed, shards) in [(1, 1), (2, 1), (3, 3), (4, 3)] {
        let trouble = Trouble { fetch: 0.5, ..Trouble::default() };
        let mut server = Server::new((0..shards).map(|shard| FetchingEngine::new(seed + shard, trouble)));
        server.set("slowlog-log-slower-than", "0");
        let id = server.connect();
        for key in ["a", "b", "c"] {
            server.line(id, &format!("SET {key} 1"));
        }
        for line in ["SLOWLOG RESET", "MULTI", "GET a", "INCR b", "PUBLISH x y", "GET c", "EXEC"] {
            server.line(id, line);
        }
        let lines: Vec<String> = entries(&mut server, id).into_iter().map(|(_, _, line, _)| line).collect();
        // EXEC itself is listed where it has waited.
        let expected = ["SLOWLOG RESET", "MULTI", "GET a", "INCR b", "PUBLISH x y", "GET c", "EXEC"];
        let count = if lines.last().is_some_and(|line| line == "EXEC") { 7 } else { 6 };
        assert_eq!(lines, expected[..count], "seed {seed}");
    }
}

#[test]
fn what_is_answered_at_once_is_timed_by_the_clock_that_was_given() {
    let mut server = Server::new([MapEngine::new(0)]);
    // A reading of the clock takes a millisecond.
    server.executors[0].set_clock(Box::new(CountingClock::new(1_000_000)));
    let id = server.connect();
    server.set("slowlog-log-slower-than", "1000");
    for line in ["SET a 1", "GET a", "INCR a", "NOTHING", "GET"] {
        server.line(id, line);
    }
    let lines: Vec<(i64, String)> =
        entries(&mut server, id).into_iter().map(|(_, took_us, line, _)| (took_us, line)).collect();
    let expected = [(1_000, "SET a 1".to_owned()), (1_000, "GET a".to_owned()), (1_000, "INCR a".to_owned())];
    assert_eq!(lines, expected);
    server.set("slowlog-log-slower-than", "1001");
    server.line(id, "SLOWLOG RESET");
    server.check(id, &[("INCR a", ":3"), ("SLOWLOG LEN", ":0")]);
    server.set("slowlog-log-slower-than", "-1");
    server.check(id, &[("INCR a", ":4"), ("SLOWLOG LEN", ":0")]);
}

#[test]
fn the_list_is_bounded_in_entries_and_in_bytes() {
    let mut server = server(2);
    let id = server.connect();
    server.set("slowlog-max-len", "3");
    for _ in 0..5 {
        server.line(id, "PING");
    }
    server.check(id, &[("SLOWLOG LEN", ":3")]);
    server.set("slowlog-max-len", "0");
    server.line(id, "PING");
    server.check(id, &[("SLOWLOG LEN", ":0")]);
    server.set("slowlog-max-len", "1000000");
    let long = vec![b'x'; 4_096];
    let mut request: Vec<&[u8]> = vec![b"DEL"];
    request.resize(40, &long);
    for _ in 0..2_000 {
        server.raw(id, &request);
    }
    let count = server.call(id, &[b"SLOWLOG", b"LEN"]).integer().unwrap();
    assert!((500..2_000).contains(&count), "{count} entries are kept");
    let shown = entries(&mut server, id).pop().unwrap().2;
    let line = |line: &str| shown.split(' ').take(1).collect::<Vec<_>>() == [line];
    assert!(line("SLOWLOG") || line("DEL"), "{shown}");
}

/// Requests whose entries must be those of Redis.
const REQUESTS: &[&str] = &[
    "SLOWLOG RESET",
    "SET a b",
    "get a",
    "AUTH secret1",
    "AUTH secret2 secret3",
    "HELLO 2 AUTH default secret4",
    "HELLO 2 AUTH default secret4 SETNAME x",
    "CONFIG SET requirepass secret5",
    "CONFIG SET timeout 0 requirepass \"\"",
    "FOO",
    "GET",
    "SET a b EX x",
    "MULTI",
    "SET a 1",
    "INCR a",
    "EXEC",
    "MULTI",
    "GET",
    "EXEC",
    "MULTI",
    "DISCARD",
    "EXEC",
    "CLIENT SETNAME somebody",
    "GET a",
    "WATCH a",
    "UNWATCH",
    "DEBUG SLEEP 0",
    "WAIT 0 0",
    "PING",
    "SUBSCRIBE x",
    "UNSUBSCRIBE x",
    "SLOWLOG LEN",
    "SLOWLOG GET 0",
    "SELECT 1",
    "SELECT 0",
    "ACL SETUSER somebody on >secret6",
    "ACL GETUSER somebody",
    "ACL DRYRUN somebody GET a",
    "ACL DELUSER somebody nobody",
];

#[test]
fn names_of_users_are_not_listed_where_users_are_shown_changed_or_deleted() {
    let mut server = server(1);
    let id = server.connect();
    for line in
        ["ACL SETUSER bob on >x", "acl getuser bob", "ACL GETUSER bob", "ACL DELUSER bob amy", "ACL WHOAMI"]
    {
        server.line(id, line);
    }
    let lines: Vec<String> = entries(&mut server, id).into_iter().map(|(.., line, _)| line).collect();
    let hidden = "(redacted)";
    let expected = [
        format!("ACL SETUSER {hidden} {hidden} {hidden}"),
        format!("acl getuser {hidden}"),
        format!("ACL GETUSER {hidden}"),
        format!("ACL DELUSER {hidden} {hidden}"),
        "ACL WHOAMI".to_owned(),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn entries_are_those_of_redis() {
    let Some(mut both) = Both::start() else { return };
    for shards in [1, 3] {
        both.renew(shards);
        both.call(&words("CONFIG SET slowlog-log-slower-than 0"));
        both.own.set("slowlog-log-slower-than", "0");
        for line in REQUESTS {
            both.call(&words(line));
        }
        for count in [31, 32, 33, 40] {
            let mut request = vec![b"DEL".to_vec()];
            request.resize_with(count, || vec![b'x'; 100 + count]);
            both.call(&request);
        }
        both.call(&[b"SET".to_vec(), vec![0xff; 128], vec![b'"'; 129]]);
        let (expected, got) = both.call(&words("SLOWLOG GET -1"));
        let lines = |reply: &[u8]| {
            let list = support::parse_all(reply).remove(0);
            let line = |entry: &Value| {
                let fields = entry.items().unwrap();
                let args: Vec<String> = fields[3].items().unwrap().iter().map(text).collect();
                format!("{} of {}", args.join(" "), text(&fields[5]))
            };
            list.items().unwrap().iter().map(line).collect::<Vec<_>>()
        };
        let (expected, mut got) = (lines(&expected), lines(&got));
        // Over several shards a transaction waits.
        got.retain(|line| !line.starts_with("EXEC "));
        for (own, redis) in got.iter().zip(&expected) {
            assert_eq!(own, redis, "{shards} shards");
        }
        assert_eq!(got.len(), expected.len());
        assert!(!format!("{got:?}").contains("secret"));
        both.call(&words("CONFIG SET slowlog-log-slower-than 10000"));
    }
}

#[test]
fn wrong_requests_are_refused_as_by_redis() {
    let Some(mut both) = Both::start() else { return };
    for line in [
        "SLOWLOG",
        "SLOWLOG X",
        "SLOWLOG GET a",
        "SLOWLOG GET -2",
        "SLOWLOG GET 0",
        "SLOWLOG GET -1",
        "SLOWLOG get 1 2",
        "SLOWLOG LEN",
        "SLOWLOG LEN 1",
        "SLOWLOG RESET",
        "SLOWLOG RESET 1",
        "SLOWLOG HELP 1",
        "CONFIG GET slowlog-log-slower-than",
        "CONFIG GET slowlog-max-len",
        "CONFIG SET slowlog-max-len -1",
        "CONFIG SET slowlog-log-slower-than -2",
        "CONFIG SET slowlog-log-slower-than x",
        "CONFIG SET slowlog-log-slower-than 9223372036854775808",
        "CONFIG SET slowlog-log-slower-than -1",
        "CONFIG SET slowlog-max-len 0",
    ] {
        let (expected, got) = both.call(&words(line));
        assert_eq!(got, expected, "{line}");
    }
}

#[test]
fn the_name_of_a_client_is_bounded_counted_and_kept_trimmed() {
    let mut server = server(2);
    // At the shard that keeps the list, and at another.
    for _ in 0..2 {
        let id = server.connect();
        let before = server.executors[id as usize % 2].client_memory(id).bytes;
        let (fits, too_long) = (vec![b'n'; 64 << 10], vec![b'n'; (64 << 10) + 1]);
        let refused = "-ERR a name that a client gives itself has at most 65536 bytes\r\n";
        for words in [
            [b"CLIENT".as_slice(), b"SETNAME", &too_long].as_slice(),
            &[b"CLIENT", b"SETINFO", b"LIB-NAME", &too_long],
            &[b"CLIENT", b"SETINFO", b"LIB-VER", &too_long],
            &[b"HELLO", b"2", b"SETNAME", &too_long],
        ] {
            assert_eq!(String::from_utf8(server.raw(id, words)).unwrap(), refused);
        }
        assert_eq!(server.executors[id as usize % 2].client_memory(id).bytes, before);
        assert_eq!(server.raw(id, &[b"CLIENT", b"SETNAME", &fits]), b"+OK\r\n");
        assert_eq!(server.raw(id, &[b"CLIENT", b"SETINFO", b"LIB-NAME", &fits]), b"+OK\r\n");
        let bytes = server.executors[id as usize % 2].client_memory(id).bytes;
        assert!(bytes - before >= 128 << 10, "{bytes}");
        let line = server.line(id, "CLIENT INFO");
        let total = line.split(' ').find_map(|field| field.strip_prefix("tot-mem=")).unwrap();
        assert!(total.parse::<usize>().unwrap() >= 128 << 10, "{total}");
        // One that is timed where its client is, and one that may be carried out elsewhere.
        for request in ["PING", "SET a 1", "SET b 1", "SET c 1", "SET d 1"] {
            server.line(id, request);
            let list = server.call(id, &[b"SLOWLOG", b"GET", b"1"]);
            let name = text(&list.items().unwrap()[0].items().unwrap()[5]);
            assert_eq!(name, format!("{}... (65408 more bytes)", "n".repeat(128)), "{request}");
        }
    }
}
