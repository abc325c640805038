//! Promises of the commands that hang on the engine below: WATCH is not tripped by cleaning, SCAN keeps its
//! word over a restart with another number of shards, and so does what says when keys expire.

use crate::common::{Folder, Server, ask};
use std::collections::BTreeSet;
use tierstone_client::Connection;

const SMALL: [&str; 6] =
    ["--segment-size", "128KiB", "--memory", "32MiB", "--durable-method", "durable-write"];

/// Four times the store's capacity: so much that every old segment is cleaned while it is written.
const WRITTEN_BYTES: u64 = 4 * (6 << 20);

/// Overwrites keys by the hundred until all that was written before has been cleaned; gives how many bytes
/// cleaning moved.
fn churn(server: &Server, writer: &mut Connection) -> u64 {
    let number = |name: &str| server.info(name);
    let (moved, written) = (number("cleaned_bytes_written"), number("user_bytes_written"));
    let value = [b'x'; 1_000];
    let mut next = 0u32;
    while number("user_bytes_written") < written + WRITTEN_BYTES {
        let mut batch = writer.pipeline();
        for _ in 0..500 {
            batch.command(&[b"SET", format!("churn:{}", next % 3_000).as_bytes(), &value]);
            next += 1;
        }
        for reply in batch.execute().expect("the server answers") {
            assert!(reply.is_ok(), "{reply:?}");
        }
    }
    number("cleaned_bytes_written") - moved
}

#[test]
fn cleaning_trips_no_watch_and_a_write_does() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[&SMALL[..], &["--shards", "1", "--capacity", "6MiB"]].concat());
    let (mut watcher, mut writer) = (server.connect(), server.connect());
    let keys: Vec<String> = (0..200).map(|number| format!("watched:{number}")).collect();
    for (number, key) in keys.iter().enumerate() {
        ask(&mut writer, &[b"SET", key.as_bytes(), b"value"]);
        // Spread over segments, among records that die.
        for churn in 0..10 {
            ask(&mut writer, &[b"SET", format!("churn:{}", number * 10 + churn).as_bytes(), &[b'y'; 1_000]]);
        }
    }
    let watch: Vec<&[u8]> = std::iter::once(&b"WATCH"[..]).chain(keys.iter().map(String::as_bytes)).collect();
    for is_written in [false, true] {
        assert!(ask(&mut watcher, &watch).is_ok());
        let moved = churn(&server, &mut writer);
        if is_written {
            ask(&mut writer, &[b"SET", keys[77].as_bytes(), b"another"]);
        } else {
            // Each of them has been moved, since all but they is dead where they lay.
            assert!(moved >= 16 * keys.len() as u64, "cleaning moved {moved} bytes only");
        }
        assert!(ask(&mut watcher, &[b"MULTI"]).is_ok());
        ask(&mut watcher, &[b"GET", keys[3].as_bytes()]);
        let answer = ask(&mut watcher, &[b"EXEC"]);
        let values = answer.items().map(|items| items.iter().map(|item| item.bytes()).collect::<Vec<_>>());
        let expected = (!is_written).then(|| vec![Some(&b"value"[..])]);
        assert_eq!(values, expected, "written: {is_written}");
    }
    server.stop();
}

/// One page of a walk: the next cursor, and the keys.
fn scan(connection: &mut Connection, cursor: &str) -> (String, Vec<String>) {
    let reply = ask(connection, &[b"SCAN", cursor.as_bytes(), b"COUNT", b"50"]);
    let [next, keys] = reply.items().expect("a page") else { panic!("no page: {reply:?}") };
    let text = |value: &tierstone_client::Value| {
        String::from_utf8_lossy(value.bytes().expect("a text")).into_owned()
    };
    (text(next), keys.items().expect("keys").iter().map(text).collect())
}

#[test]
fn a_walk_goes_on_after_a_restart_with_another_number_of_shards() {
    let folder = Folder::new();
    let arguments =
        |shards: &'static str| [&SMALL[..], &["--shards", shards, "--capacity", "64MiB"]].concat();
    let mut found = BTreeSet::new();
    let mut cursor = "0".to_owned();
    let mut pages = 0;
    for (life, shards) in ["3", "1", "5", "2"].into_iter().enumerate() {
        let mut server = Server::start(&folder, &arguments(shards));
        let mut connection = server.connect();
        if life == 0 {
            for number in 0..2_000 {
                ask(&mut connection, &[b"SET", format!("stays:{number}").as_bytes(), b"value"]);
            }
        }
        // Some pages of each life; the last one walks to the end.
        for page in 0.. {
            for number in 0..5 {
                let key = format!("comes:{life}:{page}:{number}");
                ask(&mut connection, &[b"SET", key.as_bytes(), b"value"]);
                ask(&mut connection, &[b"DEL", format!("comes:{life}:{}:{number}", page / 2).as_bytes()]);
            }
            let (next, keys) = scan(&mut connection, &cursor);
            found.extend(keys.into_iter().filter(|key| key.starts_with("stays:")));
            cursor = next;
            pages += 1;
            assert!(pages < 1_000, "the walk does not end");
            if cursor == "0" || life < 3 && page == 8 {
                break;
            }
        }
        assert!(life == 3 || cursor != "0", "the walk ended before the last life");
        // In good order or not: cursors are positions either way.
        if life % 2 == 0 { server.stop() } else { server.kill() }
    }
    assert_eq!(cursor, "0");
    assert_eq!(found.len(), 2_000, "keys that were there all the time were missed");
}

/// A key that is to expire at once is gone soon.
fn expires_soon(connection: &mut Connection, key: &str, value: &[u8]) {
    ask(connection, &[b"SET", key.as_bytes(), value]);
    ask(connection, &[b"PEXPIRE", key.as_bytes(), b"1"]);
    let is_gone =
        |connection: &mut Connection| ask(connection, &[b"EXISTS", key.as_bytes()]).integer() == Some(0);
    assert!((0..1_000_000).any(|_| is_gone(connection)), "{key} does not expire");
}

/// Commands that change when a key expires leave its value alone; what they say holds over cleaning and
/// restarts, with any number of shards.
#[test]
fn an_expiry_holds_over_cleaning_and_restarts_and_costs_no_value() {
    let folder = Folder::new();
    let arguments =
        |shards: &'static str| [&SMALL[..], &["--shards", shards, "--capacity", "12MiB"]].concat();
    let value = |number: usize| vec![b'a' + number as u8; 8_000];
    let key = |number: usize| format!("kept:{number}");
    let far = 4_000_000_000u64;
    let server = Server::start(&folder, &arguments("1"));
    let (mut watcher, mut writer) = (server.connect(), server.connect());
    for number in 0..12 {
        let key = key(number);
        ask(&mut writer, &[b"SET", key.as_bytes(), &value(number), b"EX", b"5000"]);
    }
    let before = server.info("record_bytes_written");
    let far_text = far.to_string();
    let mut expected = Vec::new();
    for number in 0..12 {
        let key = key(number);
        let key = key.as_bytes();
        assert!(ask(&mut watcher, &[b"WATCH", key]).is_ok());
        let (reply, at) = match number % 6 {
            0 => (ask(&mut writer, &[b"EXPIREAT", key, far_text.as_bytes()]), Some(far * 1_000)),
            1 => (ask(&mut writer, &[b"PERSIST", key]), None),
            2 => (ask(&mut writer, &[b"PEXPIREAT", key, b"4000000000123"]), Some(far * 1_000 + 123)),
            3 => (ask(&mut writer, &[b"GETEX", key, b"PERSIST"]), None),
            4 => (ask(&mut writer, &[b"GETEX", key, b"EXAT", far_text.as_bytes()]), Some(far * 1_000)),
            _ => {
                ask(&mut writer, &[b"PERSIST", key]);
                (ask(&mut writer, &[b"EXPIRE", key, b"50000"]), Some(0))
            }
        };
        match reply.bytes() {
            Some(got) => assert_eq!(got, value(number)),
            None => assert_eq!(reply.integer(), Some(1), "{reply:?}"),
        }
        assert!(ask(&mut watcher, &[b"MULTI"]).is_ok());
        ask(&mut watcher, &[b"GET", key]);
        assert!(ask(&mut watcher, &[b"EXEC"]).items().is_none(), "a change of expiry trips WATCH");
        expected.push(at);
    }
    let cost = server.info("record_bytes_written") - before;
    assert!((12 * 64..14 * 160).contains(&cost), "{cost} bytes of records for 14 changes");
    let check = |connection: &mut Connection| {
        for (number, at) in expected.iter().enumerate() {
            let key = key(number);
            let found = ask(connection, &[b"PEXPIRETIME", key.as_bytes()]).integer();
            let right = match at {
                None => found == Some(-1),
                Some(0) => found.is_some_and(|found| found > 0),
                Some(at) => found == Some(*at as i64),
            };
            assert!(right, "{key} expires at {found:?}, not at {at:?}");
            assert_eq!(ask(connection, &[b"GET", key.as_bytes()]).bytes(), Some(&value(number)[..]));
        }
    };
    check(&mut writer);
    churn(&server, &mut writer);
    check(&mut writer);
    server.stop();
    for shards in ["2", "3", "1"] {
        let mut server = Server::start(&folder, &arguments(shards));
        let mut connection = server.connect();
        check(&mut connection);
        expires_soon(&mut connection, &format!("gone:{shards}"), &value(1));
        if shards == "2" { server.kill() } else { server.stop() }
    }
}
