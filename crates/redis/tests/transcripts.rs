//! Conversations whose answers are known from Redis's documentation. What needs no connection state
//! beyond one request is compared with Redis itself in `redis_comparison.rs`.

use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::{Server, parse_all};
use std::collections::BTreeSet;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::{Args, Outcome};
use tierstone_wire::resp::Value;

fn server() -> Server<MapEngine> {
    Server::new([MapEngine::new(0)])
}

#[test]
fn strings_of_both_protocols() {
    let mut server = server();
    let id = server.connect();
    server.check(
        id,
        &[
            ("SET k v", "+OK"),
            ("GET k", "$1 v"),
            ("GET none", "$-1"),
            ("SET k w NX", "$-1"),
            ("SET k w XX GET", "$1 v"),
            ("SET k z IFEQ other", "$-1"),
            ("SET k z IFEQ w", "+OK"),
            ("SET k y IFEQ z GET", "$1 z"),
            ("DELIFEQ k other", ":0"),
            ("DELIFEQ k y", ":1"),
            ("MSET a 1 b 2", "+OK"),
            ("MGET a b c", "*3 $1 1 $1 2 $-1"),
            ("HELLO 3", "%7 $6 server $5 redis $7 version $5 8.2.0 $5 proto :3 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0"),
            ("GET none", "_"),
            ("MGET a c", "*2 $1 1 _"),
            ("SET k z IFEQ w", "_"),
            ("LCS a b IDX", "%2 $7 matches *0 $3 len :0"),
            ("INCRBYFLOAT a 0.5", "$3 1.5"),
        ],
    );
}

/// The answers are those of Valkey 9.1.
#[test]
fn several_strings_with_one_condition_and_expiry() {
    let refused = "-ERR invalid numkeys value or out of range";
    let conversation = [
        ("MSETEX 2 a 1 b 2", ":1"),
        ("MGET a b", "*2 $1 1 $1 2"),
        ("MSETEX 2 a 3 c 3 NX", ":0"),
        ("MSETEX 2 a 3 c 3 XX", ":0"),
        ("MGET a c", "*2 $1 1 $-1"),
        ("MSETEX 2 a 4 b 5 XX EX 100", ":1"),
        ("TTL a", ":100"),
        ("MSETEX 3 a 6 b 7 c 8 keepttl", ":1"),
        ("MGET a b c", "*3 $1 6 $1 7 $1 8"),
        ("TTL b", ":100"),
        ("TTL c", ":-1"),
        ("MSETEX 1 a 9", ":1"),
        ("TTL a", ":-1"),
        ("MSETEX 1 b 1 EXAT 1", ":1"),
        ("EXISTS b", ":0"),
        ("MSETEX 2 d 1 d 2 NX", ":1"),
        ("GET d", "$1 2"),
        ("MSETEX 1 a 1 NX XX", "-ERR syntax error"),
        ("MSETEX 1 a 1 EX 10 KEEPTTL", "-ERR syntax error"),
        ("MSETEX 1 a 1 EX", "-ERR syntax error"),
        ("MSETEX 1 a 1 GET", "-ERR syntax error"),
        ("MSETEX 1 a 1 IFEQ 9", "-ERR syntax error"),
        ("MSETEX 3 a 1 b 2", "-ERR syntax error"),
        ("MSETEX 2 a 1 b 2 c 3", "-ERR syntax error"),
        ("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command"),
        ("MSETEX 1 a 1 EX x", "-ERR value is not an integer or out of range"),
        ("MSETEX 0 a 1", refused),
        ("MSETEX -1 a 1", refused),
        ("MSETEX x a 1", refused),
        ("MSETEX 9223372036854775807 a 1", refused),
        ("MSETEX 1 a", "-ERR wrong number of arguments for 'msetex' command"),
        ("GET a", "$1 9"),
        ("COMMAND GETKEYS MSETEX 2 a 1 b 2 EX 10", "*2 $1 a $1 b"),
        ("MULTI", "+OK"),
        ("MSETEX 2 a 1 e 2 EX 7", "+QUEUED"),
        ("MSETEX 2 a 1 f 2 NX", "+QUEUED"),
        ("EXEC", "*2 :1 :0"),
        ("TTL e", ":7"),
    ];
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let id = server.connect();
        server.check(id, &conversation);
    }
}

#[test]
fn bit_operations_of_redis_8_2() {
    let mut server = server();
    let id = server.connect();
    let set = |server: &mut Server<MapEngine>, key: &[u8], value: &[u8]| {
        server.call(id, &[b"SET", key, value]);
    };
    set(&mut server, b"x", &[0b1111_0000, 0xff]);
    set(&mut server, b"y", &[0b1010_1010]);
    set(&mut server, b"z", &[0b1000_0001]);
    for (operation, expected) in [
        ("DIFF", vec![0b0101_0000, 0xff]),
        ("DIFF1", vec![0b0000_1011, 0]),
        ("ANDOR", vec![0b1010_0000, 0]),
        ("ONE", vec![0b0101_1011, 0xff]),
    ] {
        let length = server.call(id, &[b"BITOP", operation.as_bytes(), b"t", b"x", b"y", b"z"]);
        assert_eq!(length, Value::Integer(2));
        assert_eq!(server.call(id, &[b"GET", b"t"]).bytes(), Some(expected.as_slice()), "{operation}");
    }
    let error = "-ERR BITOP DIFF must be called with at least two source keys.";
    server.check(id, &[("BITOP DIFF t x", error)]);
}

#[test]
fn keys_expire_by_the_clock_they_are_given() {
    let mut server = server();
    let id = server.connect();
    server.check(
        id,
        &[
            ("SET k v PX 1000", "+OK"),
            ("PTTL k", ":1000"),
            ("TTL k", ":1"),
            ("SET k w KEEPTTL", "+OK"),
            ("PTTL k", ":1000"),
            ("GETEX k PX 5000", "$1 w"),
            ("EXPIRE k 10 LT", ":0"),
            ("EXPIRE k 10 GT", ":1"),
            ("PERSIST k", ":1"),
            ("TTL k", ":-1"),
            ("PEXPIRE k 300", ":1"),
        ],
    );
    server.now.wall_ms += 299;
    server.check(id, &[("PTTL k", ":1"), ("EXISTS k", ":1")]);
    server.now.wall_ms += 1;
    server.check(id, &[("GET k", "$-1"), ("TTL k", ":-2"), ("TYPE k", "+none"), ("SCAN 0", "*2 $1 0 *0")]);
    server.now.wall_ms -= 200_000;
    server.check(id, &[("GET k", "$-1"), ("SET k v NX", "+OK"), ("GET k", "$1 v")]);
}

#[test]
fn a_transaction_is_one_piece_and_a_broken_one_is_none() {
    let mut server = server();
    let (first, second) = (server.connect(), server.connect());
    server.check(
        first,
        &[
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("INCR a", "+QUEUED"),
            ("SET a x PX abc", "+QUEUED"),
            ("SELECT 1", "+QUEUED"),
            ("SET a other", "+QUEUED"),
            ("GET a", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
        ],
    );
    server.check(second, &[("GET a", "$-1")]);
    let error = "-ERR value is not an integer or out of range";
    let expected = format!("*7 +OK :2 {error} +OK +OK $5 other :1");
    server.check(
        first,
        &[("EXEC", expected.as_str()), ("GET a", "$5 other"), ("SELECT 0", "+OK"), ("GET a", "$1 2")],
    );
    server.check(
        first,
        &[
            ("MULTI", "+OK"),
            ("SET a 9", "+QUEUED"),
            ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with:"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("GET a", "$1 2"),
            ("EXEC", "-ERR EXEC without MULTI"),
            ("DISCARD", "-ERR DISCARD without MULTI"),
            ("MULTI", "+OK"),
            ("MULTI", "-ERR MULTI calls can not be nested"),
            ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
            ("DISCARD", "+OK"),
        ],
    );
}

#[test]
fn a_watch_is_tripped_by_writes_expiry_and_flushes_only() {
    let mut server = server();
    let (first, second) = (server.connect(), server.connect());
    let run = |server: &mut Server<MapEngine>, between: &[(&str, &str)], expected: &str| {
        server.check(first, &[("SET k v PX 10000", "+OK"), ("WATCH k gone", "+OK")]);
        server.check(second, between);
        server.check(first, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", expected)]);
    };
    run(&mut server, &[("GET k", "$1 v"), ("DEL gone", ":0"), ("SETNX k x", ":0")], "*1 +PONG");
    run(&mut server, &[("EXPIRE k 20", ":1")], "*-1");
    run(&mut server, &[("SETBIT gone 1 0", ":0")], "*-1");
    run(&mut server, &[("DEL k gone", ":2")], "*-1");
    run(&mut server, &[("FLUSHDB", "+OK")], "*-1");
    run(&mut server, &[("SELECT 5", "+OK"), ("SET k x", "+OK"), ("FLUSHDB", "+OK")], "*1 +PONG");
    server.check(first, &[("SET k v PX 10000", "+OK"), ("WATCH k", "+OK")]);
    server.now.wall_ms += 10_000;
    server.check(first, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*-1")]);
    // Emptying the database does not end the watch of a key that was not there.
    server.check(first, &[("WATCH gone", "+OK")]);
    server.check(second, &[("SELECT 0", "+OK"), ("FLUSHDB", "+OK"), ("SET gone 1", "+OK")]);
    server.check(first, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*-1")]);
}

#[test]
fn numbers_of_databases_have_32_bits() {
    let mut server = server();
    let id = server.connect();
    let beyond = "-ERR value is out of range, value must between -2147483648 and 2147483647";
    server.check(id, &[("SET a 1", "+OK")]);
    for line in ["SELECT", "MOVE a", "COPY a b DB"] {
        for (number, answer) in
            [("2147483647", "-ERR DB index is out of range"), ("2147483648", beyond), ("-2147483649", beyond)]
        {
            server.check(id, &[(&format!("{line} {number}"), answer)]);
        }
    }
    let (first, second) = ("-ERR invalid first DB index", "-ERR invalid second DB index");
    server.check(id, &[("SWAPDB 2147483648 0", first), ("SWAPDB 99 2147483648", second)]);
}

#[test]
fn databases_are_flushed_swapped_and_apart() {
    let mut server = server();
    let id = server.connect();
    server.check(
        id,
        &[
            ("SET k zero", "+OK"),
            ("SELECT 1", "+OK"),
            ("GET k", "$-1"),
            ("SET k one", "+OK"),
            ("SWAPDB 0 1", "+OK"),
            ("GET k", "$4 zero"),
            ("MOVE k 0", ":0"),
            ("COPY k k2 DB 2", ":1"),
            ("MOVE k 3", ":1"),
            ("DBSIZE", ":0"),
            ("SELECT 2", "+OK"),
            ("KEYS *", "*1 $2 k2"),
            ("FLUSHDB", "+OK"),
            ("DBSIZE", ":0"),
            ("RANDOMKEY", "$-1"),
            ("SELECT 0", "+OK"),
            ("RANDOMKEY", "$1 k"),
            ("FLUSHALL", "+OK"),
            ("DBSIZE", ":0"),
            ("SELECT 16", "-ERR DB index is out of range"),
        ],
    );
}

#[test]
fn messages_reach_listeners_in_the_shape_of_their_protocol() {
    let mut server = server();
    let (old, new, sender) = (server.connect(), server.connect(), server.connect());
    server.line(new, "HELLO 3");
    server.check(
        old,
        &[
            ("SUBSCRIBE news sport", "*3 $9 subscribe $4 news :1 *3 $9 subscribe $5 sport :2"),
            ("PSUBSCRIBE n*", "*3 $10 psubscribe $2 n* :3"),
            ("PING", "*2 $4 pong $0"),
            ("PING x", "*2 $4 pong $1 x"),
            (
                "GET k",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            ),
        ],
    );
    server.check(
        new,
        &[("SUBSCRIBE news", ">3 $9 subscribe $4 news :1"), ("SET k v", "+OK"), ("GET k", "$1 v")],
    );
    server.check(
        sender,
        &[
            ("PUBLISH news hello", ":3"),
            ("PUBLISH other hello", ":0"),
            ("PUBSUB CHANNELS", "*2 $4 news $5 sport"),
            ("PUBSUB CHANNELS s*", "*1 $5 sport"),
            ("PUBSUB NUMSUB news other", "*4 $4 news :2 $5 other :0"),
            ("PUBSUB NUMPAT", ":1"),
        ],
    );
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace("\r\n", " ");
    assert_eq!(
        text(server.take_received(old)),
        "*3 $7 message $4 news $5 hello *4 $8 pmessage $2 n* $4 news $5 hello "
    );
    assert_eq!(text(server.take_received(new)), ">3 $7 message $4 news $5 hello ");
    server.check(
        old,
        &[
            ("UNSUBSCRIBE", "*3 $11 unsubscribe $4 news :2 *3 $11 unsubscribe $5 sport :1"),
            ("PUNSUBSCRIBE n*", "*3 $12 punsubscribe $2 n* :0"),
            ("UNSUBSCRIBE", "*3 $11 unsubscribe $-1 :0"),
            ("GET k", "$1 v"),
            ("SSUBSCRIBE s", "*3 $10 ssubscribe $1 s :1"),
        ],
    );
    server.check(sender, &[("SPUBLISH s x", ":1"), ("PUBSUB SHARDNUMSUB s", "*2 $1 s :1")]);
    assert_eq!(text(server.take_received(old)), "*3 $8 smessage $1 s $1 x ");
    server.disconnect(old);
    server.disconnect(new);
    server.check(
        sender,
        &[("PUBLISH news x", ":0"), ("PUBSUB CHANNELS", "*0"), ("PUBSUB SHARDCHANNELS", "*0")],
    );
}

#[test]
fn a_message_of_a_transaction_is_sent_once_and_not_before_it_is_durable() {
    let mut server = Server::new([FetchingEngine::new(5, Trouble { durable: 0.05, ..Trouble::default() })]);
    let (listener, sender) = (server.connect(), server.connect());
    server.line(listener, "SUBSCRIBE c");
    server.check(sender, &[("SET a 1", "+OK"), ("SET b 1", "+OK")]);
    for round in 2..12 {
        for line in ["MULTI", "INCR a", "INCR b", "PUBLISH c done", "EXEC"] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            server.send(sender, &words);
        }
        server.settle();
        assert!(server.line(sender, "GET a").ends_with(&round.to_string()));
        let values = parse_all(&server.take_received(listener));
        assert_eq!(values.len(), 1, "round {round}");
    }
}

#[test]
fn messages_cross_shards() {
    let mut server = Server::new((0..3).map(|_| MapEngine::new(0)));
    let ids: Vec<u64> = (0..6).map(|_| server.connect()).collect();
    for id in &ids {
        server.line(*id, "SUBSCRIBE c");
    }
    let sender = server.connect();
    server.line(sender, "PUBLISH c hello");
    server.step();
    server.settle();
    for id in ids {
        assert_eq!(server.take_received(id), b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n");
    }
}

#[test]
fn a_walk_gives_every_key_that_stays_while_others_come_and_go() {
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let id = server.connect();
        for number in 0..200 {
            server.line(id, &format!("SET stays{number} 1"));
        }
        let mut found = BTreeSet::new();
        let mut cursor = "0".to_owned();
        for turn in 0.. {
            server.line(id, &format!("SET comes{turn} 1"));
            server.line(id, &format!("DEL comes{}", turn / 2));
            let page = server.call(id, &[b"SCAN", cursor.as_bytes(), b"MATCH", b"stays*", b"COUNT", b"7"]);
            let items = page.items().unwrap();
            found.extend(items[1].items().unwrap().iter().map(|key| key.bytes().unwrap().to_vec()));
            cursor = String::from_utf8(items[0].bytes().unwrap().to_vec()).unwrap();
            if cursor == "0" {
                break;
            }
            assert!(turn < 1_000, "the walk does not end");
        }
        assert_eq!(found.len(), 200, "{shards} shards");
        let all = server.call(id, &[b"KEYS", b"stays*"]);
        assert_eq!(all.items().unwrap().len(), 200);
        assert!(server.line(id, "RANDOMKEY").contains('s'));
        assert_eq!(server.line(id, "SCAN 0 TYPE list COUNT 1000").matches("stays").count(), 0);
        assert!(server.line(id, "SCAN 0 TYPE STRING COUNT 1000").contains("stays"));
    }
}

#[test]
fn replies_are_turned_off_and_on() {
    let mut server = server();
    let id = server.connect();
    server.check(
        id,
        &[
            ("CLIENT REPLY SKIP", ""),
            ("SET a 1", ""),
            ("GET a", "$1 1"),
            ("CLIENT REPLY OFF", ""),
            ("SET a 2", ""),
            ("KEYS *", ""),
            ("NOSUCH", ""),
            ("CLIENT REPLY ON", "+OK"),
            ("GET a", "$1 2"),
        ],
    );
    // Of a request that is refused the reply is skipped, too, and that of the next is not.
    for refused in ["NOSUCH", "GET", "CLIENT NOSUCH"] {
        server.check(id, &[("CLIENT REPLY SKIP", ""), (refused, ""), ("GET a", "$1 2")]);
    }
}

#[test]
fn an_exec_that_is_refused_ends_its_transaction() {
    let mut server = server();
    let id = server.connect();
    let refusal = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    server.check(
        id,
        &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("EXEC x", refusal), ("GET a", "$-1"), ("MULTI", "+OK")],
    );
    // Outside a transaction it is refused in the same words, and what was watched is so no more.
    let (watcher, other) = (server.connect(), server.connect());
    server.check(watcher, &[("WATCH a", "+OK"), ("EXEC x", refusal)]);
    server.check(other, &[("SET a 2", "+OK"), ("EXEC", "-ERR EXEC without MULTI")]);
    server.check(watcher, &[("MULTI", "+OK"), ("EXEC", "*0"), ("SUBSCRIBE c", "*3 $9 subscribe $1 c :1")]);
    let refusal = "-EXECABORT Transaction discarded because of: Can't execute 'exec': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
    server.check(watcher, &[("EXEC", refusal)]);
}

#[test]
fn appendfsync_is_told_by_the_durability() {
    let mut server = server();
    let id = server.connect();
    let told = |value: &str| format!("*2 $11 appendfsync ${} {value}", value.len());
    server.check(id, &[("CONFIG GET appendfsync", &told("always"))]);
    server.check(
        id,
        &[("CONFIG SET durability relaxed", "+OK"), ("CONFIG GET appendfsync", &told("everysec"))],
    );
    server
        .check(id, &[("CONFIG SET durability group:5", "+OK"), ("CONFIG GET appendfsync", &told("always"))]);
}

#[test]
fn a_password_is_asked_for() {
    let mut server = server();
    let first = server.connect();
    server.check(first, &[("CONFIG SET requirepass secret", "+OK"), ("GET a", "$-1")]);
    let id = server.connect();
    server.check(
        id,
        &[
            ("GET a", "-NOAUTH Authentication required."),
            ("EXEC", "-EXECABORT Transaction discarded because of: NOAUTH Authentication required."),
            ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH other secret", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH secret", "+OK"),
            ("GET a", "$-1"),
            ("CONFIG GET requirepass", "*2 $11 requirepass $6 secret"),
            ("CONFIG SET requirepass other", "+OK"),
            ("RESET", "+RESET"),
            ("GET a", "-NOAUTH Authentication required."),
            ("AUTH default other", "+OK"),
            ("GET a", "$-1"),
        ],
    );
    let second = server.connect();
    assert!(server.line(second, "HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(server.line(second, "HELLO 3 AUTH default other").starts_with("%7 "));
}

#[test]
fn settings_that_can_be_set_have_an_effect() {
    let mut server = server();
    let id = server.connect();
    server.check(
        id,
        &[
            ("CONFIG GET databases", "*2 $9 databases $2 16"),
            ("CONFIG GET nothing", "*0"),
            ("CONFIG SET proto-max-bulk-len 2m", "+OK"),
            ("CONFIG GET proto-*", "*2 $18 proto-max-bulk-len $7 2000000"),
            ("CONFIG SET proto-max-bulk-len 1mb", "+OK"),
            ("CONFIG GET proto-*", "*2 $18 proto-max-bulk-len $7 1048576"),
            ("SETRANGE k 1048576 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
            ("SETRANGE k 1048575 x", ":1048576"),
            ("SETBIT k 8388608 1", "-ERR bit offset is not an integer or out of range"),
            (
                "CONFIG SET proto-max-bulk-len 1",
                "-ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be between 1048576 and 536870912 inclusive",
            ),
            ("CONFIG GET maxmemory-policy", "*2 $16 maxmemory-policy $10 noeviction"),
            (
                "CONFIG SET maxmemory-policy volatile-lfo",
                "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be one of the following: noeviction, allkeys-lru, allkeys-lfu, allkeys-random, volatile-lru, volatile-lfu, volatile-random, volatile-ttl",
            ),
            ("CONFIG SET maxmemory-policy ALLKEYS-LRU", "+OK"),
            ("CONFIG GET maxmemory-policy", "*2 $16 maxmemory-policy $11 allkeys-lru"),
            ("CONFIG SET maxmemory-policy volatile-lru", "+OK"),
            ("CONFIG SET maxmemory-policy Volatile-LFU", "+OK"),
            ("CONFIG GET maxmemory-policy", "*2 $16 maxmemory-policy $12 volatile-lfu"),
            ("CONFIG SET maxmemory-policy volatile-ttl", "+OK"),
            ("CONFIG SET maxmemory-policy volatile-random", "+OK"),
            ("CONFIG GET maxmemory-policy", "*2 $16 maxmemory-policy $15 volatile-random"),
            ("CONFIG SET maxmemory-policy allkeys-random", "+OK"),
            ("CONFIG SET maxmemory-policy noeviction", "+OK"),
            ("CONFIG SET durability relaxed", "+OK"),
            ("CONFIG GET durability", "*2 $10 durability $7 relaxed"),
            (
                "CONFIG SET durability sometimes",
                "-ERR CONFIG SET failed (possibly related to argument 'durability') - argument must be sync, group:MS or relaxed",
            ),
        ],
    );
    server.check(
        id,
        &[
            ("MULTI", "+OK"),
            ("CONFIG SET durability sync", "-ERR CONFIG SET durability is not allowed inside a transaction"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ],
    );
    assert_ne!(server.executors[0].shard().gate(7), 7, "what is refused has no effect");
    server.check(id, &[("CONFIG SET durability sync", "+OK"), ("SET k v", "+OK")]);
    assert_eq!(server.executors[0].shard().gate(7), 7, "what is set has its effect");
    server.check(id, &[("CONFIG SET durability relaxed", "+OK")]);
    let mut reply = Vec::new();
    let words: Vec<&[u8]> = vec![b"SET", b"k", b"v"];
    let outcome = server.executors[0].request(server.now, id, Args::Slices(&words), &mut reply);
    assert_eq!(outcome, Outcome::Ready { gate: 0 }, "relaxed writes are not gated");
    assert_eq!(server.settings_told.len(), 12);
}

#[test]
fn a_write_and_what_has_seen_it_wait_for_the_device() {
    let mut server = server();
    let (first, second) = (server.connect(), server.connect());
    let gate = |server: &mut Server<MapEngine>, id, words: &[&[u8]]| {
        let mut reply = Vec::new();
        match server.executors[0].request(server.now, id, Args::Slices(words), &mut reply) {
            Outcome::Ready { gate } => gate,
            other => panic!("{other:?}"),
        }
    };
    let written = gate(&mut server, first, &[b"SET", b"a", b"1"]);
    assert!(written > server.executors[0].durable_seq());
    assert_eq!(gate(&mut server, second, &[b"GET", b"a"]), written);
    assert_eq!(gate(&mut server, second, &[b"STRLEN", b"a"]), written);
    let deleted = gate(&mut server, first, &[b"DEL", b"a"]);
    assert!(deleted > written);
    assert!(gate(&mut server, second, &[b"GET", b"a"]) >= deleted, "a miss may be what a delete left");
    assert!(gate(&mut server, second, &[b"SETRANGE", b"a", b"x", b"y"]) == 0);
    assert!(
        gate(&mut server, second, &[b"RENAME", b"a", b"b"]) >= deleted,
        "an error may tell what was seen"
    );
    assert_eq!(gate(&mut server, second, &[b"PING"]), 0);
}

#[test]
fn saving_and_waiting_mean_durable() {
    let mut server = Server::new([FetchingEngine::new(1, Trouble { durable: 0.02, ..Trouble::default() })]);
    let id = server.connect();
    for (line, expected) in [("SAVE", "+OK"), ("WAIT 0 0", ":0"), ("WAIT 3 100", ":0")] {
        server.send(id, &[b"SET", b"k", b"v"]);
        server.offer();
        assert_eq!(
            server.line(id, line).replace("+OK +OK", "+OK"),
            expected.replace(":0", "+OK :0"),
            "{line}"
        );
        let engine = server.executors[0].shard().engine();
        assert_eq!(
            tierstone_engine::Engine::durable_seq(engine),
            tierstone_engine::Engine::applied_seq(engine)
        );
    }
    let before = server.now.wall_ms / 1_000;
    server.now.wall_ms += 50_000;
    server.check(id, &[("BGSAVE", "+Background saving started"), ("SAVE", "+OK")]);
    assert_eq!(server.line(id, "LASTSAVE"), format!(":{}", before + 50));
}

#[test]
fn leaving_relaxed_is_answered_when_nothing_can_be_lost_any_more() {
    let trouble = Trouble { fetch: 0.0, retry: 0.0, durable: 0.02, ..Trouble::default() };
    let mut server = Server::new([FetchingEngine::new(1, trouble), FetchingEngine::new(2, trouble)]);
    let id = server.connect();
    server.check(id, &[("CONFIG SET durability relaxed", "+OK")]);
    for number in 0..20 {
        assert_eq!(server.line(id, &format!("SET k{number} v")), "+OK");
    }
    let open = |server: &Server<FetchingEngine>| {
        let engines = server.executors.iter().map(|executor| executor.shard().engine());
        let is_open = |engine: &FetchingEngine| {
            tierstone_engine::Engine::durable_seq(engine) < tierstone_engine::Engine::applied_seq(engine)
        };
        engines.filter(|engine| is_open(engine)).count()
    };
    assert_eq!(open(&server), 2, "both shards have acknowledged what is not durable");
    server.check(id, &[("CONFIG SET durability group:5", "+OK")]);
    assert_eq!(open(&server), 0);
    for executor in &server.executors {
        assert_eq!(executor.shard().gate(7), 7, "the other shard follows");
    }
}

#[test]
fn sleeping_and_pausing_hold_up_only_whom_they_should() {
    let mut server = server();
    let (sleeper, other) = (server.connect(), server.connect());
    server.send(sleeper, &[b"DEBUG", b"SLEEP", b"0.5"]);
    server.send(sleeper, &[b"PING"]);
    server.offer();
    server.step();
    assert_eq!(server.executors[0].suspended(), 1);
    let mut reply = Vec::new();
    let ping: Vec<&[u8]> = vec![b"PING"];
    server.executors[0].request(server.now, other, Args::Slices(&ping), &mut reply);
    assert_eq!(reply, b"+PONG\r\n");
    assert!(server.take_received(sleeper).is_empty());
    server.now.monotonic_us += 500_000;
    server.settle();
    assert_eq!(server.take_received(sleeper), b"+OK\r\n+PONG\r\n");

    assert_eq!(server.line(other, "CLIENT PAUSE 1000 WRITE"), "+OK");
    server.send(sleeper, &[b"GET", b"k"]);
    server.send(sleeper, &[b"SET", b"k", b"v"]);
    server.offer();
    server.step();
    assert_eq!(server.take_received(sleeper), b"$-1\r\n", "reads pass, the write waits");
    assert!(server.executors[0].next_step_at_us().is_some());
    server.now.monotonic_us += 1_000_000;
    server.settle();
    assert_eq!(server.take_received(sleeper), b"+OK\r\n");
    // What would go to replicas in Redis waits with the writes.
    server.check(other, &[("CLIENT PAUSE 100000 WRITE", "+OK"), ("GET k", "$1 v")]);
    server.send(sleeper, &[b"PUBLISH", b"c", b"m"]);
    server.offer();
    server.step();
    assert!(server.take_received(sleeper).is_empty(), "it waits");
    server.check(other, &[("CLIENT UNPAUSE", "+OK")]);
    server.settle();
    assert_eq!(server.take_received(sleeper), b":0\r\n");
    server.check(other, &[("CLIENT PAUSE 100000", "+OK"), ("CLIENT UNPAUSE", "+OK"), ("GET k", "$1 v")]);
    transactions_wait_if_they_write(&mut server, sleeper, other);
}

fn transactions_wait_if_they_write(server: &mut Server<MapEngine>, sleeper: u64, other: u64) {
    let queued = [("MULTI", "+OK"), ("GET k", "+QUEUED")];
    server.check(sleeper, &queued);
    server.check(other, &[("CLIENT PAUSE 100000 WRITE", "+OK"), ("EXEC", "-ERR EXEC without MULTI")]);
    server.check(sleeper, &[("EXEC", "*1 $1 v")]);
    for (write, answer) in [("SET k v", "+OK"), ("PUBLISH c m", ":0"), ("SPUBLISH c m", ":0")] {
        server.check(other, &[("CLIENT UNPAUSE", "+OK")]);
        server.settle();
        server.check(sleeper, &queued);
        assert_eq!(server.line(sleeper, write), "+QUEUED");
        server.check(other, &[("CLIENT PAUSE 100000 WRITE", "+OK")]);
        server.send(sleeper, &[b"EXEC"]);
        server.offer();
        server.step();
        assert!(server.take_received(sleeper).is_empty(), "{write} waits");
        server.check(other, &[("CLIENT UNPAUSE", "+OK")]);
        server.settle();
        assert_eq!(server.take_received(sleeper), format!("*2\r\n$1\r\nv\r\n{answer}\r\n").as_bytes());
    }
    // What has ended says nothing of the next.
    server.check(other, &[("MULTI", "+OK")]);
    for line in ["CLIENT PAUSE 100000 ALL", "CLIENT UNPAUSE", "CLIENT PAUSE 100000 WRITE"] {
        assert_eq!(server.line(other, line), "+QUEUED");
    }
    server.check(other, &[("EXEC", "*3 +OK +OK +OK")]);
    server.check(sleeper, &[("GET k", "$1 v")]);
    server.check(other, &[("CLIENT UNPAUSE", "+OK")]);
    let longest = i64::MAX as u64 - server.now.wall_ms;
    let too_long = format!("CLIENT PAUSE {} WRITE", longest + 1);
    server.check(other, &[(&too_long, "-ERR timeout is out of range")]);
    server.check(other, &[(&format!("CLIENT PAUSE {longest} WRITE"), "+OK"), ("CLIENT UNPAUSE", "+OK")]);
}

#[test]
fn connections_are_listed_named_and_closed() {
    let mut server = server();
    let (first, second) = (server.connect(), server.connect());
    server.check(
        first,
        &[
            ("CLIENT SETNAME me", "+OK"),
            ("CLIENT GETNAME", "$2 me"),
            ("CLIENT ID", ":1"),
            ("CLIENT SETINFO lib-name test", "+OK"),
            ("CLIENT SETINFO foo bar", "-ERR Unrecognized option 'foo'"),
            ("CLIENT NO-EVICT on", "+OK"),
        ],
    );
    let list = server.line(first, "CLIENT LIST");
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(
        list.contains("name=me") && list.contains("lib-name=test") && list.contains("addr=127.0.0.1:40002")
    );
    assert!(server.line(first, "CLIENT INFO").contains("id=1 "));
    assert!(!server.line(first, "CLIENT LIST ID 2").contains("id=1 "));
    let (too_young, no_age) =
        ("-ERR maxage should be greater than 0", "-ERR maxage is not an integer or out of range");
    for (age, answer) in [("0", too_young), ("-1", too_young), ("x", no_age), ("1.5", no_age), ("9", ":0")] {
        assert_eq!(server.line(first, &format!("CLIENT KILL MAXAGE {age}")), answer);
    }
    assert_eq!(server.line(first, "CLIENT KILL ID 2"), ":1");
    server.step();
    assert!(server.is_closed(second) && !server.is_closed(first));
    assert_eq!(server.line(first, "CLIENT KILL 127.0.0.1:40001"), "+OK");
    assert!(server.is_closed(first));
    let third = server.connect();
    assert_eq!(server.line(third, "QUIT"), "+OK");
    assert!(server.is_closed(third));
}

#[test]
fn a_request_of_http_ends_the_connection_and_what_follows_is_not_carried_out() {
    let mut server = server();
    for line in [&["POST", "/", "HTTP/1.1"][..], &["host:", "localhost:6379"], &["Post", "/x"]] {
        let attacked = server.connect();
        for words in [line, &["SET", "k", "from-a-browser"]] {
            server.send(attacked, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        }
        server.offer();
        (0..10).for_each(|_| server.step());
        assert!(server.is_closed(attacked), "{line:?}");
        assert!(server.take_received(attacked).is_empty(), "{line:?} is not answered");
    }
    let other = server.connect();
    server.check(other, &[("GET k", "$-1"), ("GETDEL POST", "$-1")]);
}

#[test]
fn commands_describe_themselves() {
    let mut server = server();
    let id = server.connect();
    server.check(
        id,
        &[
            (
                "COMMAND INFO get",
                "*1 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string +@fast *0 *1 *6 $5 flags *2 +RO +access $12 begin_search *4 $4 type $5 index $4 spec *2 $5 index :1 $9 find_keys *4 $4 type $5 range $4 spec *6 $7 lastkey :0 $7 keystep :1 $5 limit :0 *0",
            ),
            ("COMMAND GETKEYS BITOP AND d a b", "*3 $1 d $1 a $1 b"),
            ("COMMAND GETKEYSANDFLAGS SET a b", "*1 *2 $1 a *2 +OW +update"),
            ("COMMAND GETKEYSANDFLAGS SET a b GET", "*1 *2 $1 a *3 +RW +access +update"),
            ("COMMAND GETKEYSANDFLAGS COPY a b", "*2 *2 $1 a *2 +RO +access *2 $1 b *2 +OW +update"),
            ("COMMAND LIST FILTERBY PATTERN xyz", "*0"),
        ],
    );
    let count = server.call(id, &[b"COMMAND", b"COUNT"]).integer().unwrap();
    assert_eq!(server.call(id, &[b"COMMAND"]).items().unwrap().len() as i64, count);
    // Subcommands are listed with their commands.
    let listed = server.line(id, "COMMAND LIST");
    let (subcommands, commands): (Vec<&str>, _) = listed
        .split(' ')
        .filter(|word| word.as_bytes()[0].is_ascii_lowercase())
        .partition(|name| name.contains('|'));
    assert!(subcommands.contains(&"client|list") && commands.len() as i64 == count, "{listed}");
    server.line(id, "HELLO 3");
    let Value::Map(docs) = server.call(id, &[b"COMMAND", b"DOCS"]) else { panic!("no map") };
    assert_eq!(docs.len() as i64, count);
    let Value::Map(docs) = server.call(id, &[b"COMMAND", b"DOCS", b"client", b"client|id"]) else {
        panic!("no map")
    };
    assert_eq!(docs.len(), 2);
    for container in ["CLIENT", "CONFIG", "COMMAND", "DEBUG", "MEMORY", "OBJECT", "PUBSUB"] {
        assert!(server.line(id, &format!("{container} HELP")).starts_with('*'), "{container}");
    }
}

#[test]
fn information_is_given_by_sections() {
    let mut server = server();
    let id = server.connect();
    server.check(
        id,
        &[
            ("SET k v", "+OK"),
            ("GET k", "$1 v"),
            ("GET none", "$-1"),
            ("INCR k", "-ERR value is not an integer or out of range"),
        ],
    );
    let text = |value: Value| String::from_utf8(value.bytes().unwrap().to_vec()).unwrap();
    let all = text(server.call(id, &[b"INFO"]));
    for line in [
        "# Server",
        "redis_version:8.2.0",
        "connected_clients:1",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "errorstat_ERR:count=1",
        "durability:sync",
        "durability_loss_bound_ms:0",
        "role:master",
        "snapshots:0",
        "durable_method:unknown",
        "db0:keys=1,expires=0,avg_ttl=0",
    ] {
        assert!(all.lines().any(|other| other == line), "{line} is not in {all}");
    }
    assert!(!all.contains("cmdstat_"));
    server.now.monotonic_us += 1_000_000;
    server.step();
    (0..50).for_each(|_| drop(server.line(id, "GET k")));
    server.now.monotonic_us += 1_000_000;
    server.step();
    let stats = text(server.call(id, &[b"INFO", b"stats"]));
    let rate = stats.lines().find_map(|line| line.strip_prefix("instantaneous_ops_per_sec:")).unwrap();
    assert!((50..=55).contains(&rate.parse::<u64>().unwrap()), "{stats}");
    let some = text(server.call(id, &[b"INFO", b"commandstats", b"keyspace"]));
    assert!(some.contains("cmdstat_get:calls=52") && !some.contains("# Server"), "{some}");
    server.line(id, "CONFIG RESETSTAT");
    assert!(text(server.call(id, &[b"INFO", b"stats"])).contains("keyspace_hits:0"));
    assert!(server.line(id, "MEMORY USAGE k").starts_with(':'));
    assert!(server.line(id, "MEMORY DOCTOR").contains("keys"));
    assert!(server.line(id, "MEMORY STATS").starts_with('*'));
    assert_eq!(server.call(id, &[b"TIME"]).items().unwrap().len(), 2);
}

#[test]
fn hostile_requests_are_answered_and_harm_nobody() {
    let mut server = server();
    let id = server.connect();
    let long = vec![b'x'; 70_000];
    let error = Value::Error(b"ERR key is longer than 65535 bytes".to_vec());
    assert_eq!(server.call(id, &[b"GET", &long]), error);
    assert_eq!(server.call(id, &[b"SET", &long, b"v"]), error);
    assert_eq!(server.call(id, &[b"MGET", b"a", &long]), error);
    let unknown = server.call(id, &[&long, &long, b"\r\nevil"]);
    assert!(unknown.error().unwrap().len() < 400);
    assert!(server.call(id, &[b"CLIENT", &long]).error().unwrap().len() < 400);
    for line in [
        "SHUTDOWN FOO",
        "SHUTDOWN ABORT",
        "DEBUG SLEEP -1",
        "DEBUG SLEEP nan",
        "DEBUG SLEEP 1e300",
        "SCAN 18446744073709551616",
        "OBJECT IDLETIME x y",
        "BITFIELD k SET u8 #4611686018427387904 1",
    ] {
        assert!(server.line(id, line).starts_with('-'), "{line}");
    }
    server.check(id, &[("SCAN 18446744073709551615 COUNT 9223372036854775807", "*2 $1 0 *0")]);
    let empty: Vec<&[u8]> = vec![b""];
    assert!(server.call(id, &empty).is_error());
    let mut words: Vec<&[u8]> = vec![b"MULTI"];
    assert!(server.call(id, &words).is_ok());
    let big = vec![b'x'; 1 << 20];
    words = vec![b"SET", b"k", &big];
    let refusal = (0..100).map(|_| server.call(id, &words)).find(Value::is_error);
    assert_eq!(refusal.unwrap().error().unwrap(), "ERR the transaction takes too much memory");
    assert!(server.line(id, "EXEC").starts_with("-EXECABORT"));
    watches_are_bounded(&mut server, id);
    channels_are_bounded(&mut server, id);
    assert_eq!(server.line(id, "SHUTDOWN NOSAVE"), "");
    assert!(server.is_shut_down);
}

/// A client that listens to more and more channels is refused, keeps what it listens to, and what it leaves makes room.
fn channels_are_bounded(server: &mut Server<MapEngine>, id: u64) {
    let name = |number: usize| [format!("{number}:").as_bytes(), &[b'n'; 60_000]].concat();
    let call = |server: &mut Server<MapEngine>, word: &[u8], number| server.call(id, &[word, &name(number)]);
    let full = |server: &mut Server<MapEngine>, from: usize| {
        (from..2_000).find(|&number| call(server, b"SUBSCRIBE", number).is_error()).unwrap()
    };
    let first = full(server, 0);
    // Half of 64 MiB, each name twice.
    assert!((250..300).contains(&first), "{first}");
    assert!(call(server, b"SUBSCRIBE", 0).error().is_none(), "what it listens to already takes no more");
    for number in 0..100 {
        assert!(call(server, b"UNSUBSCRIBE", number).error().is_none());
    }
    assert_eq!(full(server, first) - first, 100);
    server.line(id, "RESET");
    assert_eq!(full(server, 0), first, "RESET leaves nothing behind");
    server.line(id, "RESET");
}

/// A client that watches more and more keys is refused, which takes nothing of what it watches, and can begin anew.
fn watches_are_bounded(server: &mut Server<MapEngine>, id: u64) {
    let watch = |server: &mut Server<MapEngine>, part: usize| {
        let keys: Vec<Vec<u8>> = (0..500).map(|key| format!("k{part}-{key}").into_bytes()).collect();
        let words: Vec<&[u8]> = [&b"WATCH"[..]].into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
        server.call(id, &words)
    };
    let parts = (0..10_000).find(|part| watch(&mut *server, *part).is_error()).unwrap();
    assert!(parts > 0);
    let refusal = watch(server, parts);
    assert_eq!(refusal.error().unwrap(), "ERR the watched keys take too much memory");
    assert!(watch(server, 0).is_ok(), "the same keys again take nothing");
    let told = server.line(id, "CLIENT INFO");
    assert!(told.contains(&format!(" watch={} ", parts * 500)), "{told}");
    assert!(told.contains(&format!(" multi-mem={} ", parts * 500 * 192)), "{told}");
    server.check(id, &[("SET k0-0 v", "+OK"), ("MULTI", "+OK"), ("EXEC", "*-1"), ("WATCH a b", "+OK")]);
    let told = server.line(id, "CLIENT INFO");
    assert!(told.contains(" watch=2 ") && told.contains(" multi-mem=384 "), "{told}");
    assert!(server.line(id, "INFO memory").contains("request_bytes:384"));
    server.check(id, &[("UNWATCH", "+OK")]);
}

#[test]
fn strings_are_dumped_and_restored_with_their_expiry() {
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let id = server.connect();
        let long = vec![b'x'; 20_000];
        for (key, value) in [(&b"a"[..], &b"hello"[..]), (b"b", b""), (b"c", b"12345"), (b"d", &long)] {
            server.call(id, &[b"SET", key, value, b"EX", b"100"]);
            let payload = server.call(id, &[b"DUMP", key]);
            let payload = payload.bytes().unwrap().to_vec();
            let busy = server.call(id, &[b"RESTORE", key, b"0", &payload]);
            assert_eq!(busy.error().as_deref(), Some("BUSYKEY Target key name already exists."));
            assert!(server.call(id, &[b"RESTORE", key, b"0", &payload, b"REPLACE"]).is_ok());
            assert_eq!(server.call(id, &[b"TTL", key]), Value::Integer(-1), "the payload has no expiry");
            assert_eq!(server.call(id, &[b"GET", key]).bytes(), Some(value));
            assert!(server.call(id, &[b"RESTORE", b"new", b"5000", &payload, b"REPLACE"]).is_ok());
            assert_eq!(server.call(id, &[b"PTTL", b"new"]), Value::Integer(5_000));
            let at = (server.now.wall_ms + 7_000).to_string();
            let absolute: [&[u8]; 6] = [b"RESTORE", b"new", at.as_bytes(), &payload, b"ABSTTL", b"REPLACE"];
            assert!(server.call(id, &absolute).is_ok());
            assert_eq!(server.call(id, &[b"PTTL", b"new"]), Value::Integer(7_000));
            let past: [&[u8]; 6] = [b"RESTORE", b"new", b"1", &payload, b"ABSTTL", b"REPLACE"];
            assert!(server.call(id, &past).is_ok());
            assert_eq!(server.call(id, &[b"EXISTS", b"new"]), Value::Integer(0), "it has expired already");
            let mut broken = payload.clone();
            broken[0] ^= 1;
            let refused = server.call(id, &[b"RESTORE", b"new", b"0", &broken]);
            assert_eq!(refused.error().as_deref(), Some("ERR DUMP payload version or checksum are wrong"));
        }
        server.check(id, &[("DUMP none", "$-1"), ("EXISTS new", ":0")]);
    }
}

#[test]
fn waiting_for_the_log_is_answered_when_everything_is_durable() {
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let id = server.connect();
        server.check(
            id,
            &[
                ("SET a 1", "+OK"),
                ("WAITAOF 1 0 0", "*2 :1 :0"),
                ("WAITAOF 0 3 100", "*2 :1 :0"),
                ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
                ("WAITAOF x 0 0", "-ERR value is not an integer or out of range"),
                ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive"),
                ("WAITAOF 0 0 -1", "-ERR timeout is negative"),
                ("WAITAOF 0 0 x", "-ERR timeout is not an integer or out of range"),
                ("MULTI", "+OK"),
                ("SET a 2", "+QUEUED"),
                ("WAITAOF 1 0 0", "+QUEUED"),
                ("EXEC", "*2 +OK *2 :1 :0"),
            ],
        );
    }
}

#[test]
fn what_test_suites_ask_of_debug_and_memory_is_answered() {
    let mut server = server();
    let id = server.connect();
    for line in [
        "DEBUG RELOAD",
        "DEBUG RELOAD NOSAVE",
        "DEBUG LOADAOF",
        "DEBUG JMAP",
        "DEBUG LOG text",
        "DEBUG CHANGE-REPL-ID",
        "DEBUG DICT-RESIZING 0",
        "DEBUG QUICKLIST-PACKED-THRESHOLD 100b",
        "DEBUG REPLYBUFFER PEAK-RESET-TIME 10",
        "DEBUG SET-DISABLE-DENY-SCRIPTS 1",
        "MEMORY PURGE",
    ] {
        assert_eq!(server.line(id, line), "+OK", "{line}");
    }
    server.check(
        id,
        &[
            ("DEBUG ERROR ERRcode", "-ERRcode"),
            ("DEBUG PROTOCOL integer", ":12345"),
            ("DEBUG PROTOCOL map", "*6 :0 :0 :1 :1 :2 :0"),
            ("DEBUG PROTOCOL push", "-ERR RESP2 is not supported by this command"),
            ("DEBUG PROTOCOL attrib", "$39 Some real reply following the attribute"),
            ("CONFIG REWRITE", "-ERR The server is running without a config file"),
        ],
    );
    assert!(server.line(id, "DEBUG PROTOCOL foo").starts_with("-ERR Wrong protocol type name."));
    assert!(server.line(id, "DEBUG SEGFAULT").starts_with("-ERR unknown subcommand"));
    assert!(server.line(id, "MEMORY MALLOC-STATS").contains("not supported"));
    server.line(id, "HELLO 3");
    server.check(
        id,
        &[("DEBUG PROTOCOL true", "#t"), ("DEBUG PROTOCOL set", "~3 :0 :1 :2"), ("DEBUG PROTOCOL null", "_")],
    );
}
