//! What `INFO` counts of commands and connections, and what `CLIENT LIST` says of connections.

use crate::support::Server;
use crate::support::both::Both;
use crate::support::random_requests::words;
use std::collections::BTreeMap;
use tierstone_base::CountingClock;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::clients::BufferSizes;
use tierstone_redis::control::Transport;
use tierstone_redis::{Args, ConnectionId, Outcome};
use tierstone_wire::resp::Value;

fn server(shards: usize) -> (Server<MapEngine>, Vec<ConnectionId>) {
    let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
    let clients = (0..shards).map(|_| server.connect()).collect();
    (server, clients)
}

fn info(server: &mut Server<MapEngine>, id: ConnectionId, section: &str) -> BTreeMap<String, String> {
    fields(&server.call(id, &[b"INFO", section.as_bytes()]))
}

fn fields(answer: &Value) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(answer.bytes().unwrap()).into_owned();
    let lines = text.lines().filter_map(|line| line.rsplit_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Calls, refused calls and failed calls of every command but `INFO` and `CONFIG RESETSTAT`, whose calls differ by when
/// one looks.
fn tallies(stats: &BTreeMap<String, String>) -> BTreeMap<String, [u64; 3]> {
    let number = |line: &str, field: &str| {
        let found = line.split(',').find_map(|part| part.strip_prefix(field)?.strip_prefix('='));
        found.unwrap().parse().unwrap()
    };
    let of = |line: &str| ["calls", "rejected_calls", "failed_calls"].map(|field| number(line, field));
    let is_meant = |name: &str| name != "cmdstat_info" && name != "cmdstat_config|resetstat";
    let rows = stats.iter().filter(|(name, _)| name.starts_with("cmdstat_") && is_meant(name));
    rows.map(|(name, line)| (name.clone(), of(line))).collect()
}

/// Requests of which some are refused and some fail, within transactions and without.
const REQUESTS: [&str; 33] = [
    "SET k v",
    "GET k",
    "GET none",
    "get k extra",
    "INCR k",
    "INCRBY k notanumber",
    "MSET a 1 b 2 c 3",
    "MGET a b c",
    "CONFIG GET maxclients",
    "CONFIG",
    "CONFIG NOTHING",
    "CONFIG SET nothing 1",
    "NOTHING",
    "CLIENT ID",
    "CLIENT KILL",
    "OBJECT ENCODING k",
    "SETRANGE k -1 x",
    "EXEC",
    "MULTI",
    "MULTI",
    "SET a 1",
    "INCR k",
    "INCR a",
    "EXEC",
    "MULTI",
    "SET a",
    "EXEC",
    "DISCARD",
    "LCS k k LEN IDX",
    "SET k v NX GET XX",
    "SUBSTR k 0",
    "LCS k none",
    "LCS none nobody LEN",
];

#[test]
fn commands_are_counted_as_by_redis() {
    let Some(mut both) = Both::start() else { return };
    if both.is_before_8() {
        println!("SKIP: comparison of counts (the Redis server is older than 8)");
        return;
    }
    for shards in [1, 3] {
        both.renew(shards);
        both.call(&words("CONFIG RESETSTAT"));
        for request in REQUESTS {
            both.call(&words(request));
        }
        for section in ["INFO commandstats", "INFO errorstats"] {
            let (expected, got) = both.ask(section);
            let (expected, got) = (fields(&expected), fields(&got));
            assert_eq!(tallies(&got), tallies(&expected), "{shards} shards");
            let errors = |stats: &BTreeMap<String, String>| {
                stats
                    .clone()
                    .into_iter()
                    .filter(|(name, _)| name.starts_with("errorstat_"))
                    .collect::<Vec<_>>()
            };
            assert_eq!(errors(&got), errors(&expected), "{shards} shards");
        }
        let (expected, got) = both.ask("INFO stats");
        let (expected, got) = (fields(&expected), fields(&got));
        for name in ["total_commands_processed", "total_error_replies", "keyspace_hits", "keyspace_misses"] {
            assert_eq!(got[name], expected[name], "{name}, {shards} shards");
        }
    }
}

#[test]
fn counts_have_all_their_fields_and_are_reset() {
    for shards in [1, 3] {
        let (mut server, clients) = server(shards);
        for executor in &mut server.executors {
            executor.set_clock(Box::new(CountingClock::new(1_000_000)));
        }
        for id in &clients {
            server.line(*id, "SET k v");
            server.line(*id, "INCR k");
            server.line(*id, "CONFIG GET port");
        }
        let stats = info(&mut server, clients[0], "commandstats");
        let one = format!("calls={shards},usec={}000,usec_per_call=1000.00,rejected_calls=0", shards);
        assert_eq!(stats["cmdstat_set"], format!("{one},failed_calls=0"));
        assert_eq!(stats["cmdstat_incr"], format!("{one},failed_calls={shards}"));
        assert_eq!(stats["cmdstat_config|get"], format!("{one},failed_calls=0"));
        server.line(clients[0], "CONFIG RESETSTAT");
        let stats = info(&mut server, clients[0], "commandstats");
        assert!(!stats.contains_key("cmdstat_set") && !stats.contains_key("cmdstat_config|get"), "{stats:?}");
    }
}

#[test]
fn the_time_of_a_pipeline_is_divided_among_its_commands() {
    let (mut server, clients) = server(1);
    let (id, now) = (clients[0], server.now);
    let executor = &mut server.executors[0];
    executor.set_clock(Box::new(CountingClock::new(1_000_000)));
    let requests: [&[&[u8]]; 5] =
        [&[b"SET", b"k", b"1"], &[b"GET", b"k"], &[b"GET", b"k"], &[b"INCR", b"k"], &[b"SET", b"k", b"v"]];
    for (place, request) in requests.iter().enumerate() {
        executor.note_pipelined(place > 0);
        let outcome = executor.request(now, id, Args::Slices(request), &mut Vec::new());
        assert!(matches!(outcome, Outcome::Ready { .. }));
    }
    executor.end_pipeline(now);
    let stats = info(&mut server, id, "commandstats");
    // The first has a millisecond for itself, the four others have one together.
    assert!(stats["cmdstat_set"].starts_with("calls=2,usec=1250,usec_per_call=625.00,"), "{stats:?}");
    assert!(stats["cmdstat_get"].starts_with("calls=2,usec=500,usec_per_call=250.00,"), "{stats:?}");
    assert!(stats["cmdstat_incr"].starts_with("calls=1,usec=250,"), "{stats:?}");
}

#[test]
fn a_request_that_is_put_off_is_counted_once() {
    let (mut server, clients) = server(3);
    let id = clients[0];
    // They go to other shards, and those behind wait for them.
    for _ in 0..20 {
        server.send(id, &[b"INCR", b"k"]);
        server.send(id, &[b"DBSIZE"]);
    }
    server.settle();
    let stats = info(&mut server, id, "commandstats");
    assert!(stats["cmdstat_incr"].starts_with("calls=20,"), "{stats:?}");
    assert!(stats["cmdstat_dbsize"].starts_with("calls=20,"), "{stats:?}");
    let stats = info(&mut server, id, "stats");
    assert_eq!(stats["total_commands_processed"], "41");
}

#[test]
fn refusals_are_counted_by_what_was_refused() {
    for shards in [1, 3] {
        let (mut server, clients) = server(shards);
        let (id, other) = (clients[0], *clients.last().unwrap());
        server.line(id, "ACL SETUSER eve on >secret +get +publish ~own resetchannels");
        server.line(other, "AUTH eve wrong");
        server.line(other, "AUTH eve secret");
        for line in ["SET own v", "GET foreign", "GET foreign", "PUBLISH c m"] {
            assert!(server.line(other, line).starts_with("-NOPERM"), "{line}");
        }
        let admin = server.connect();
        server.line(other, "GET foreign");
        let log = server.line(admin, "ACL LOG");
        let place = |object: &str| log.find(&format!("object ${} {object} ", object.len())).unwrap();
        assert!(place("foreign") < place("c"), "what is counted again is the newest: {log}");
        let stats = info(&mut server, admin, "stats");
        let denied = |kind: &str| stats[&format!("acl_access_denied_{kind}")].clone();
        assert_eq!(["auth", "cmd", "key", "channel"].map(denied), ["1", "1", "3", "1"], "{shards} shards");
        let stats = info(&mut server, admin, "commandstats");
        assert!(stats["cmdstat_get"].ends_with("rejected_calls=3,failed_calls=0"), "{stats:?}");
        server.line(admin, "CONFIG RESETSTAT");
        assert_eq!(info(&mut server, admin, "stats")["acl_access_denied_key"], "0");
    }
}

#[test]
fn what_the_owner_counts_is_told_and_reset() {
    let (mut server, clients) = server(3);
    let transport =
        Transport { refused: 1, over_input_limit: 2, over_output_limit: 3, bytes_received: 4, bytes_sent: 5 };
    let names = [
        "rejected_connections",
        "client_query_buffer_limit_disconnections",
        "client_output_buffer_limit_disconnections",
        "total_net_input_bytes",
        "total_net_output_bytes",
    ];
    let told = |server: &mut Server<MapEngine>| {
        let stats = info(server, clients[0], "stats");
        names.map(|name| stats[name].parse::<u64>().unwrap())
    };
    server.executors.iter_mut().for_each(|executor| executor.note_transport(transport));
    assert_eq!(told(&mut server), [3, 6, 9, 12, 15]);
    server.line(clients[0], "CONFIG RESETSTAT");
    assert_eq!(told(&mut server), [0; 5]);
    let transport = Transport { refused: 2, ..transport };
    server.executors.iter_mut().for_each(|executor| executor.note_transport(transport));
    assert_eq!(told(&mut server), [3, 0, 0, 0, 0]);
}

/// The fields of the line of `CLIENT LIST` of one connection.
fn line_of(
    server: &mut Server<MapEngine>,
    asker: ConnectionId,
    of: ConnectionId,
) -> BTreeMap<String, String> {
    let answer = server.call(asker, &[b"CLIENT", b"LIST", b"ID", of.to_string().as_bytes()]);
    let text = String::from_utf8_lossy(answer.bytes().unwrap()).into_owned();
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn clients_are_listed_with_what_they_hold() {
    for shards in [1, 3] {
        let (mut server, _) = server(shards);
        let (id, asker) = (server.connect(), server.connect());
        let shard = server.shard_of(id);
        let buffers = server.executors[shard].client_buffers(id);
        buffers.note(BufferSizes { unread: 10, input: 110, replies: 40_000, output: 50_000, tls: 0 });
        server.line(id, "SUBSCRIBE a b");
        server.line(id, "UNSUBSCRIBE");
        server.line(id, "WATCH one two three one");
        server.line(id, "MULTI");
        server.line(id, "SET one 12345678");
        let line = line_of(&mut server, asker, id);
        for (name, value) in [
            ("watch", "3"),
            ("multi", "1"),
            ("sub", "0"),
            ("qbuf", "10"),
            ("qbuf-free", "100"),
            ("argv-mem", "0"),
            ("rbs", "50000"),
            ("obl", "16384"),
            ("oll", "2"),
            ("omem", "23616"),
        ] {
            assert_eq!(line[name], value, "{name}, {shards} shards");
        }
        let number = |line: &BTreeMap<String, String>, name: &str| line[name].parse::<usize>().unwrap();
        assert!(number(&line, "multi-mem") >= "SETone12345678".len());
        assert!(number(&line, "tot-mem") > 50_110 + number(&line, "multi-mem"));
        let own = line_of(&mut server, asker, asker);
        assert!(number(&own, "argv-mem") >= "CLIENTLISTID1".len());
        server.line(id, "EXEC");
        server.line(id, "RESET");
        let line = line_of(&mut server, asker, id);
        assert_eq!((line["watch"].as_str(), line["multi"].as_str()), ("0", "-1"));
        assert_eq!((line["multi-mem"].as_str(), line["qbuf"].as_str()), ("0", "10"));
    }
}

#[test]
fn lines_of_clients_have_the_fields_of_redis() {
    let Some(mut both) = Both::start() else { return };
    if both.is_before_8() {
        println!("SKIP: comparison of the lines of clients (the Redis server is older than 8)");
        return;
    }
    let (expected, got) = both.ask("CLIENT INFO");
    let names = |answer: &Value| -> Vec<String> {
        let text = String::from_utf8_lossy(answer.bytes().unwrap()).into_owned();
        text.split_whitespace().filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())).collect()
    };
    let (mut expected, got) = (names(&expected), names(&got));
    // What has no meaning here, or is not counted.
    let without = ["fd", "rbp", "events", "io-thread", "tot-net-in", "tot-net-out", "tot-cmds"];
    expected.retain(|name| !without.contains(&name.as_str()));
    assert_eq!(got, expected);
}

#[test]
fn of_codes_that_clients_make_up_the_beginning_is_kept() {
    let (mut server, clients) = server(1);
    for end in ["x", "y"] {
        server.line(clients[0], &format!("DEBUG ERROR {}{end}", "E".repeat(40_000)));
    }
    let errors = info(&mut server, clients[0], "errorstats");
    let code = format!("errorstat_{}", "E".repeat(32));
    assert_eq!(errors.get(&code).map(String::as_str), Some("count=2"), "{} codes", errors.len());
    assert!(errors.keys().all(|name| name.len() <= code.len()));
}
