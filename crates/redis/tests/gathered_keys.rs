//! Commands and transactions over several shards that need keys which their words do not tell, or tell of another database.

use crate::support::{Server, parse_all};
use tierstone_base::SeededRandom;
use tierstone_engine::map_engine::MapEngine;
use tierstone_wire::resp::Value;

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

/// What is behind the map of a large value no word of a command tells; nor need an attempt be begun anew to find it out.
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

/// Sends what a client reads or writes: large values under eight keys over all shards.
fn send_large(server: &mut Server<MapEngine>, client: u64, role: usize, value: &[u8]) {
    let names: Vec<String> = (0..8).map(|number| format!("key {number}")).collect();
    let names = names.iter().map(String::as_bytes);
    match role {
        0 => server.send(client, &[&b"MGET"[..]].into_iter().chain(names).collect::<Vec<_>>()),
        1 => {
            server.send(client, &[b"MULTI"]);
            names.for_each(|name| server.send(client, &[b"GET", name]));
            server.send(client, &[b"EXEC"]);
        }
        _ => {
            let pairs = names.flat_map(|name| [name, value]);
            server.send(client, &[&b"MSET"[..]].into_iter().chain(pairs).collect::<Vec<_>>());
        }
    }
}

/// Whether what a reader was answered are values that were written together; `None` for answers that are no values.
fn is_written_together(answer: &Value) -> Option<bool> {
    match answer {
        Value::Array(values) => Some(values.windows(2).all(|pair| pair[0] == pair[1])),
        Value::Error(_) => Some(false),
        _ => None,
    }
}

/// A reader that let its locks go for the chunks that it had found out met other values each time.
#[test]
fn large_values_are_read_however_often_others_replace_them_meanwhile() {
    let mut read = 0;
    for seed in 0..10 {
        let mut random = SeededRandom::new(seed);
        let mut server = Server::with_records((0..3).map(MapEngine::new), 256);
        server.delays = Some(SeededRandom::new(seed ^ 0x5eed));
        let clients: Vec<u64> = (0..6).map(|_| server.connect()).collect();
        for turn in 0..4_000 {
            for (role, client) in clients.iter().enumerate() {
                if server.is_idle(*client) {
                    let mut value = vec![0; 1_000];
                    random.fill(&mut value);
                    send_large(&mut server, *client, role, &value);
                }
            }
            server.offer();
            server.step();
            for client in &clients {
                let answers = parse_all(&server.take_received(*client));
                for is_together in answers.iter().filter_map(is_written_together) {
                    assert!(is_together, "seed {seed}, turn {turn}: {answers:?}");
                    read += 1;
                }
            }
        }
        server.settle();
    }
    assert!(read > 200, "only {read} reads have come to an end");
}
