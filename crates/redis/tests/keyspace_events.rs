//! Keyspace notifications: those of Redis for every command, and never of what a crash can take back.

use crate::support;
use crate::support::Server;
use crate::support::both::Both;
use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::random_requests::words;
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::ConnectionId;
use tierstone_wire::resp::Value;

const EVERYTHING: &str = "KEAmnoc";
const PATTERN: &str = "PSUBSCRIBE __key*";

/// A message of a pattern as `CHANNEL PAYLOAD`.
fn message(value: &Value) -> String {
    let text = |value: &Value| String::from_utf8_lossy(value.bytes().unwrap()).into_owned();
    let items = value.items().unwrap_or_else(|| panic!("{value:?} is no message"));
    assert_eq!(text(&items[0]), "pmessage", "{value:?}");
    format!("{} {}", text(&items[2]), text(&items[3]))
}

fn messages<E: Engine>(server: &mut Server<E>, id: ConnectionId) -> Vec<String> {
    // What other shards publish comes in later turns.
    for _ in 0..20 {
        server.step();
    }
    support::parse_all(&server.take_received(id)).iter().map(message).collect()
}

/// The events alone, `EVENT KEY`, of those messages that name them.
fn events(messages: &[String]) -> Vec<String> {
    messages.iter().filter_map(|message| message.strip_prefix("__keyevent@0__:")).map(str::to_owned).collect()
}

/// Every command that reads or writes keys, where it has an event and where it has none.
const REQUESTS: &[&str] = &[
    "SET a 1",
    "SET a 2",
    "SET a 3 EX 100",
    "SET a 3 PX 100000",
    "SET a 3 KEEPTTL",
    "SET a 3 NX",
    "SET n 3 NX",
    "SET a 3 XX GET",
    "SET nog x GET",
    "SET nog y GET NX",
    "SET nog2 y GET NX",
    "SET nog2 y EX 100 GET",
    "SET none 3 XX GET",
    "SET none 3 XX",
    "SET a b EX x",
    "GET a",
    "GET none",
    "SETNX a 1",
    "SETNX b 1",
    "SETEX a 100 v",
    "SETEX new1 100 v",
    "PSETEX a 100000 v",
    "GETSET a w",
    "GETSET nk w",
    "GETDEL nk",
    "GETDEL nk",
    "GETEX a",
    "GETEX a EX 100",
    "GETEX a PERSIST",
    "GETEX a PERSIST",
    "GETEX a EXAT 1",
    "GETEX none EX 10",
    "SET a 1",
    "APPEND a x",
    "APPEND new2 x",
    "APPEND new2 \"\"",
    "SETRANGE a 3 zz",
    "SETRANGE a 0 x",
    "SETRANGE new3 3 zz",
    "SETRANGE new4 3 \"\"",
    "SET num 1",
    "INCR num",
    "INCR num2",
    "INCR a",
    "DECR num",
    "DECRBY num 4",
    "INCRBY num 4",
    "INCRBY num 0",
    "INCRBYFLOAT num 1.5",
    "INCRBYFLOAT num5 1.5",
    "INCRBYFLOAT a 1.5",
    "MSET a 1 b 2 new5 4",
    "MSET a 1 a 2",
    "MSETNX q1 1 q2 2",
    "MSETNX q1 1 q3 2",
    "MSETNX q4 1 q4 2",
    "MGET a b none none2",
    "MGET none none",
    "STRLEN none",
    "STRLEN a",
    "GETRANGE none 0 1",
    "GETRANGE a 0 1",
    "SUBSTR none 0 1",
    "EXISTS none a none",
    "TOUCH none a",
    "TYPE none",
    "TYPE a",
    "TTL none",
    "TTL a",
    "PTTL none",
    "EXPIRETIME none",
    "PEXPIRETIME none",
    "EXPIRE none 10",
    "EXPIRE a 100",
    "EXPIRE a 100 NX",
    "EXPIRE a 200 GT",
    "EXPIRE a 100 GT",
    "PEXPIRE a 100000",
    "PERSIST a",
    "PERSIST a",
    "PERSIST none",
    "EXPIREAT a 1",
    "EXPIREAT a 1",
    "SET a 1",
    "EXPIREAT a 4102444800",
    "PEXPIREAT a 4102444800000",
    "EXPIRE a -1",
    "SET a 1",
    "PEXPIRE a 0",
    "SET a 1",
    "DEL a b none",
    "DEL num num",
    "UNLINK num2 num5 none",
    "SET a 1",
    "SET b 2",
    "RENAME a b",
    "RENAME b b",
    "RENAME none x",
    "RENAMENX b c",
    "SET d 4",
    "RENAMENX c d",
    "COPY c cc",
    "COPY c d",
    "COPY c d REPLACE",
    "COPY c c2 DB 3",
    "COPY none x",
    "COPY c c",
    "MOVE c 2",
    "MOVE none 2",
    "SET c 1",
    "MOVE c 2",
    "SELECT 2",
    "SET z 1",
    "DEL z",
    "SELECT 0",
    "SETBIT bits 7 1",
    "SETBIT bits 7 1",
    "SETBIT bits 300 0",
    "SETBIT bits2 0 0",
    "BITFIELD bits SET u8 0 5",
    "BITFIELD bits SET u8 0 5",
    "BITFIELD bits INCRBY u8 0 5 SET u8 8 1",
    "BITFIELD bits OVERFLOW FAIL INCRBY u8 0 500",
    "BITFIELD bits GET u8 0",
    "BITFIELD none GET u8 0 GET u8 8",
    "BITFIELD bf GET u8 0 SET u8 8 0",
    "BITFIELD_RO bits GET u8 0",
    "BITFIELD_RO none GET u8 0",
    "GETBIT none 1",
    "GETBIT bits 1",
    "BITCOUNT none",
    "BITCOUNT bits",
    "BITPOS none 1",
    "BITPOS bits 1",
    "BITOP AND dst bits bits",
    "BITOP AND dst bits none",
    "BITOP AND dst none none2",
    "BITOP AND dst none none2",
    "BITOP NOT dst bits",
    "DUMP none",
    "DUMP bits",
    "LCS bits none",
    "LCS bits bits2",
    "OBJECT ENCODING none",
    "OBJECT ENCODING bits",
    "MEMORY USAGE none",
    "KEYS *",
    "SCAN 0",
    "RANDOMKEY",
    "DBSIZE",
    "WATCH none",
    "UNWATCH",
    "MULTI",
    "SET t1 1",
    "INCR t1",
    "INCR t2",
    "GET none",
    "APPEND bits x",
    "INCR bits",
    "MSET t1 5 t3 6",
    "DEL t1",
    "EXEC",
    "MULTI",
    "SET t4 1",
    "DISCARD",
    "SET n x",
    "FLUSHDB",
    "SET n x",
    "FLUSHALL",
    "SET n x",
];

#[test]
fn every_command_has_the_events_of_redis() {
    let Some(mut both) = Both::start() else { return };
    if both.is_before_8() {
        println!("SKIP: comparison of events (the Redis server is older than 8)");
        return;
    }
    for shards in [1, 3] {
        both.renew(shards);
        both.call(&[
            b"CONFIG".to_vec(),
            b"SET".to_vec(),
            b"notify-keyspace-events".to_vec(),
            EVERYTHING.into(),
        ]);
        both.own.set("notify-keyspace-events", EVERYTHING);
        let mut listener = both.redis.connect();
        listener.call(&words(PATTERN));
        // Not the client itself, who may be in a transaction.
        let mut marker = both.redis.connect();
        let own = both.own.connect();
        both.own.line(own, PATTERN);
        let payload = {
            both.peer.call(&words("SET dumped hello"));
            both.own.line(both.id, "SET dumped hello");
            let dump = both.peer.call(&words("DUMP dumped"));
            support::parse_all(&dump)[0].bytes().unwrap().to_vec()
        };
        let mut requests: Vec<Vec<Vec<u8>>> = REQUESTS.iter().map(|line| words(line)).collect();
        for (key, ttl, options) in [
            ("dumped", "0", ""),
            ("dumped", "0", "REPLACE"),
            ("r1", "0", ""),
            ("r1", "100000", "REPLACE"),
            ("r1", "1", "REPLACE ABSTTL"),
            ("r2", "1", "ABSTTL"),
        ] {
            let mut request = vec![b"RESTORE".to_vec(), key.into(), ttl.into(), payload.clone()];
            request.extend(words(options).into_iter().filter(|word| !word.is_empty()));
            requests.push(request);
        }
        let mut count = 0;
        for request in &requests {
            let shown: Vec<String> =
                request.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            both.call(request);
            // The marker tells where the events of this request end.
            marker.call(&words("PUBLISH __keyend end"));
            let mut expected = Vec::new();
            loop {
                let message = message(&listener.next());
                if message == "__keyend end" {
                    break;
                }
                expected.push(message);
            }
            let found = messages(&mut both.own, own);
            assert_eq!(found, expected, "{shown:?}, {shards} shards");
            count += expected.len();
        }
        assert!(count > 200, "only {count} messages were compared");
    }
}

#[test]
fn what_is_configured_is_published_and_nothing_else() {
    let mut server = Server::new((0..2).map(|_| MapEngine::new(0)));
    let (listener, id) = (server.connect(), server.connect());
    server.line(listener, PATTERN);
    for (value, expected) in [
        ("", vec![]),
        ("A", vec![]),
        ("K", vec![]),
        ("K$", vec!["__keyspace@0__:a set"]),
        ("E$", vec!["__keyevent@0__:set a"]),
        ("Eg", vec!["__keyevent@0__:expire a", "__keyevent@0__:del a"]),
        ("Em", vec!["__keyevent@0__:keymiss a"]),
        ("En", vec!["__keyevent@0__:new a"]),
        ("Elshzetdcxo", vec![]),
    ] {
        server.set("notify-keyspace-events", value);
        for line in ["SET a 1", "EXPIRE a 100", "DEL a", "GET a"] {
            server.line(id, line);
        }
        assert_eq!(messages(&mut server, listener), expected, "{value:?}");
    }
    server.check(id, &[("CONFIG SET notify-keyspace-events KEA", "+OK")]);
    server.check(id, &[("CONFIG GET notify-keyspace-events", "*2 $22 notify-keyspace-events $3 AKE")]);
    let refused = server.line(id, "CONFIG SET notify-keyspace-events Ky");
    assert!(refused.contains("Invalid event class character. Use 'Ag$lshzxeKEtmdn'."), "{refused}");
}

#[test]
fn waiting_commands_have_their_events_once_and_in_the_same_order() {
    let mut expected = None;
    for seed in 0..8 {
        let shards = 1 + seed % 3;
        let trouble = Trouble { fetch: if seed == 0 { 0.0 } else { 0.5 }, ..Trouble::default() };
        let mut server =
            Server::new((0..shards).map(|shard| FetchingEngine::new(seed * 10 + shard, trouble)));
        server.set("notify-keyspace-events", EVERYTHING);
        let (listener, id) = (server.connect(), server.connect());
        server.line(listener, PATTERN);
        for line in REQUESTS {
            server.line(id, line);
        }
        let found = messages(&mut server, listener);
        assert!(found.len() > 150, "{found:?}");
        assert_eq!(&found, expected.get_or_insert_with(|| found.clone()), "seed {seed}");
    }
}

#[test]
fn an_event_is_heard_when_its_write_is_durable_and_not_before() {
    for shards in [1, 2] {
        let never = Trouble { fetch: 0.0, retry: 0.0, refuse: 0.0, corrupt: 0.0, durable: 0.0 };
        let mut server = Server::new((0..shards).map(|seed| FetchingEngine::new(seed, never)));
        server.set("notify-keyspace-events", "KEA");
        let listeners: Vec<ConnectionId> = (0..shards).map(|_| server.connect()).collect();
        for id in &listeners {
            server.line(*id, PATTERN);
        }
        let id = server.connect();
        // Of keys of either shard, and over both.
        for request in [&[&b"SET"[..], b"a", b"1"], &[b"SET", b"b", b"1"], &[b"APPEND", b"c", b"1"]] {
            server.send(id, request);
        }
        server.send(id, &[b"MSET", b"a", b"2", b"b", b"2"]);
        for _ in 0..50 {
            server.offer();
            server.step();
        }
        for listener in &listeners {
            assert!(messages(&mut server, *listener).is_empty(), "nothing is durable, {shards} shards");
        }
        for executor in &mut server.executors {
            executor.shard_mut().engine_mut().set_durable_chance(1.0);
        }
        server.settle();
        for listener in &listeners {
            let heard = messages(&mut server, *listener);
            assert_eq!(heard.len(), 10, "{heard:?}");
        }
    }
}

#[test]
fn keys_that_expire_are_told_once_at_their_time() {
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        server.set("notify-keyspace-events", "KEA");
        let (listener, id) = (server.connect(), server.connect());
        server.line(listener, PATTERN);
        for line in [
            "SET early 1 PX 500",
            "SET a 1 PX 1000",
            "SET gone 1 PX 1000",
            "SET kept 1 PX 1000",
            "SET longer 1 PX 1000",
            "SET over 1 PX 1000",
            "MSET b 1 c 1",
            "PEXPIRE b 1000",
            "RENAME a renamed",
            "DEL gone",
            "PERSIST kept",
            "PEXPIRE longer 5000",
            "SET over 2",
            "COPY b copied",
        ] {
            server.line(id, line);
        }
        messages(&mut server, listener);
        server.now.wall_ms += 999;
        server.step();
        assert_eq!(events(&messages(&mut server, listener)), ["expired early"]);
        server.now.wall_ms += 1;
        let mut heard = events(&messages(&mut server, listener));
        heard.sort_unstable();
        assert_eq!(heard, ["expired b", "expired copied", "expired renamed"], "{shards} shards");
        server.check(id, &[("GET b", "$-1"), ("EXISTS kept longer over", ":3")]);
        assert!(messages(&mut server, listener).is_empty());
        server.now.wall_ms += 10_000;
        // Who finds a key gone hears why first.
        server.set("notify-keyspace-events", "KEAmn");
        server.line(id, "INCR longer");
        assert_eq!(
            events(&messages(&mut server, listener)),
            ["expired longer", "new longer", "incrby longer"]
        );
        server.check(id, &[("SET past 1 PXAT 5", "+OK")]);
        let heard = events(&messages(&mut server, listener));
        assert_eq!(heard, ["new past", "set past", "expire past", "expired past"]);
        // Of emptied databases nothing is told.
        server.line(id, "SET flushed 1 PX 10");
        server.line(id, "FLUSHALL");
        messages(&mut server, listener);
        server.now.wall_ms += 100;
        assert!(messages(&mut server, listener).is_empty());
    }
}

#[test]
fn keys_of_before_are_told_if_they_are_seen_in_time() {
    let mut server = Server::new([MapEngine::new(0)]);
    let (listener, id) = (server.connect(), server.connect());
    server.line(listener, PATTERN);
    for line in ["SET seen 1 PX 1000", "SET unseen 1 PX 1000"] {
        server.line(id, line);
    }
    server.set("notify-keyspace-events", "Ex");
    server.line(id, "GET seen");
    server.now.wall_ms += 1_000;
    assert_eq!(messages(&mut server, listener), ["__keyevent@0__:expired seen"]);
}

#[test]
fn keys_expire_with_the_events_of_redis() {
    let Some(mut both) = Both::start() else { return };
    both.renew(1);
    both.call(&words("CONFIG SET notify-keyspace-events Exmng$"));
    both.own.set("notify-keyspace-events", "Exmng$");
    // Only who looks finds out, there.
    both.peer.call(&words("DEBUG SET-ACTIVE-EXPIRE 0"));
    let mut listener = both.redis.connect();
    listener.call(&words(PATTERN));
    let own = both.own.connect();
    both.own.line(own, PATTERN);
    for line in [
        "GET e",
        "SET e 2",
        "DEL e",
        "EXISTS e",
        "INCR e",
        "RENAME f e",
        "SETNX e 1",
        "GETSET e 1",
        "SET e 2 XX",
    ] {
        both.call(&words("SET f 1"));
        // It has expired at once: there it is there until somebody looks.
        both.call(&words("SET e 1 PXAT 5"));
        both.call(&words(line));
        both.peer.call(&words("PUBLISH __keyend end"));
        let mut expected = Vec::new();
        while expected.last().is_none_or(|message| message != "__keyend end") {
            expected.push(message(&listener.next()));
        }
        expected.pop();
        let found = messages(&mut both.own, own);
        assert_eq!(found, expected, "{line}");
        both.call(&words("DEL e f"));
        both.peer.call(&words("PUBLISH __keyend end"));
        while message(&listener.next()) != "__keyend end" {}
        messages(&mut both.own, own);
    }
}
