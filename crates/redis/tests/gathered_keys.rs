//! Transactions over several shards whose commands need keys that their words do not tell, or tell of another database.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::Server;
use tierstone_engine::map_engine::MapEngine;

/// Each of them was found to need one more key by an attempt of its own, and of those there are but eight.
#[test]
fn a_transaction_copies_and_moves_any_number_of_keys_to_other_databases() {
    let mut server = Server::new([MapEngine::new(0), MapEngine::new(1), MapEngine::new(2)]);
    let client = server.connect();
    let names: Vec<[String; 3]> =
        (0..30).map(|number| ["from", "to", "moved"].map(|name| format!("{name} {number}"))).collect();
    for [from, _, moved] in &names {
        server.raw(client, &[b"SET", from.as_bytes(), b"copied"]);
        server.raw(client, &[b"SET", moved.as_bytes(), b"value"]);
    }
    server.raw(client, &[b"MULTI"]);
    for [from, to, moved] in &names {
        server.raw(client, &[b"COPY", from.as_bytes(), to.as_bytes(), b"db", b"1", b"DB", b"2", b"REPLACE"]);
        server.raw(client, &[b"MOVE", moved.as_bytes(), b"3"]);
    }
    let expected = format!("*60\r\n{}", ":1\r\n".repeat(60));
    assert_eq!(String::from_utf8_lossy(&server.raw(client, &[b"EXEC"])), expected);
    for [_, to, moved] in &names {
        for (db, key, value) in [("2", to, "$6\r\ncopied\r\n"), ("3", moved, "$5\r\nvalue\r\n")] {
            server.raw(client, &[b"SELECT", db.as_bytes()]);
            let found = server.raw(client, &[b"GET", key.as_bytes()]);
            assert_eq!(String::from_utf8_lossy(&found), value, "{key}");
        }
    }
}

/// What is behind the map of a large value no word of a command tells; of attempts to find it out there are but eight.
#[test]
fn a_transaction_changes_any_number_of_large_values_over_several_shards() {
    let mut server = Server::with_records((0..3).map(MapEngine::new), 256);
    let client = server.connect();
    let names: Vec<String> = (0..40).map(|number| format!("key {number}")).collect();
    for name in &names {
        server.raw(client, &[b"SET", name.as_bytes(), &[b'a'; 1_000]]);
    }
    server.raw(client, &[b"MULTI"]);
    for name in &names {
        server.raw(client, &[b"APPEND", name.as_bytes(), &[b'b'; 700]]);
        server.raw(client, &[b"SETRANGE", name.as_bytes(), b"500", b"ccc"]);
        server.raw(client, &[b"GETRANGE", name.as_bytes(), b"498", b"503"]);
    }
    let expected = format!("*120\r\n{}", ":1700\r\n:1700\r\n$6\r\naaccca\r\n".repeat(40));
    assert_eq!(String::from_utf8_lossy(&server.raw(client, &[b"EXEC"])), expected);
    let value = [&[b'a'; 500][..], b"ccc", &[b'a'; 497], &[b'b'; 700]].concat();
    for name in &names {
        let found = server.raw(client, &[b"GET", name.as_bytes()]);
        assert!(found.starts_with(b"$1700\r\n") && found[7..1707] == value, "{name}");
    }
}

/// What is run to see which keys are missing does nothing else.
#[test]
fn a_transaction_that_is_refused_for_its_memory_changes_no_setting() {
    let mut server = Server::new((0..3).map(MapEngine::new));
    let client = server.connect();
    let part = vec![b'x'; 1 << 20];
    for name in [b"a", b"b"] {
        for _ in 0..20 {
            server.raw(client, &[b"APPEND", name, &part]);
        }
    }
    server.raw(client, &[b"CLIENT", b"SETNAME", b"before"]);
    server.raw(client, &[b"MULTI"]);
    for name in [b"a", b"b"] {
        server.raw(client, &[b"GET", name]);
    }
    server.raw(client, &[b"CLIENT", b"SETNAME", b"after"]);
    // The values alone have room, those and the replies have not.
    let refused = server.raw(client, &[b"EXEC"]);
    assert!(refused.starts_with(b"-"), "{}", String::from_utf8_lossy(&refused[..80]));
    assert_eq!(server.raw(client, &[b"CLIENT", b"GETNAME"]), b"$6\r\nbefore\r\n");
}
