//! Eviction as clients see it: what goes leaves nothing behind, and what others know of it stays right.

use crate::common::{Folder, Server, ask, program, seed, spawn_command};
use std::collections::BTreeSet;
use tierstone_base::SeededRandom;
use tierstone_client::{Connection, Value};

/// What a store lies on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ground {
    Device,
    /// Persistent memory, as a file of an ordinary file system.
    Memory,
}

use Ground::{Device, Memory};

/// A server with so little memory that the cache passes what nobody asks for, and less space than is written: so many MiB
/// for records.
fn start(folder: &Folder, ground: Ground, mib: u32, policy: &str, shards: u32) -> Server {
    // Each shard has a log of 16 MiB.
    let capacity = format!("{}MiB", if ground == Memory { mib + shards * 16 } else { mib });
    let shards = shards.to_string();
    let common =
        ["--memory", "8MiB", "--maxmemory-policy", policy, "--shards", &shards, "--capacity", &capacity];
    let mut command = program();
    command.args(["server", "--listen", "127.0.0.1:0"]).args(common);
    match ground {
        Device => command.arg("--data").arg(folder.data()).args(["--segment-size", "128KiB"]),
        Memory => {
            let place = format!("nvm:{}", folder.path("store.region").display());
            command.args(["--data", &place, "--nvm-guarantee", "any"])
        }
    };
    match spawn_command(folder, command).listening() {
        Ok(server) => server,
        Err(status) => panic!("the server ended before it listened: {status}"),
    }
}

/// One of the kind that most tests use.
fn small(folder: &Folder, ground: Ground) -> Server {
    // Segments of persistent memory have 2 MiB, and records and values of each length have some of their own.
    start(folder, ground, if ground == Memory { 32 } else { 16 }, "allkeys-lru", 2)
}

fn on_both(test: impl Fn(Ground)) {
    for ground in [Device, Memory] {
        println!("on {ground:?}");
        test(ground);
    }
}

fn value(number: usize) -> Vec<u8> {
    vec![number as u8; 4_000]
}

/// Sets `prefix:N` for all numbers; none may be refused.
fn fill(connection: &mut Connection, prefix: &str, numbers: std::ops::Range<usize>) {
    for first in numbers.clone().step_by(64) {
        let mut pipeline = connection.pipeline();
        for number in first..numbers.end.min(first + 64) {
            pipeline.command(&[b"SET", format!("{prefix}:{number}").as_bytes(), &value(number)]);
        }
        for reply in pipeline.execute().expect("the server answers") {
            assert!(reply.is_ok(), "{:?}", reply.error());
        }
    }
}

fn exists(connection: &mut Connection, key: &str) -> bool {
    ask(connection, &[b"EXISTS", key.as_bytes()]).integer() == Some(1)
}

/// Keeps what is there from being evicted any more, but for what is going already.
fn stop_evicting(connection: &mut Connection) {
    assert!(ask(connection, &[b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction"]).is_ok());
}

/// A walk while nothing is evicted: a segment that was going when eviction was stopped has gone.
fn quiet_walk(server: &Server, connection: &mut Connection) -> BTreeSet<String> {
    for _ in 0..1_000 {
        let before = server.info("evicted_keys");
        let all = walk(connection, || ());
        let are_there = all.iter().filter(|key| exists(connection, key)).count() == all.len();
        if server.info("evicted_keys") == before {
            assert!(are_there, "a key is shown that is not there, and none was evicted");
            return all;
        }
    }
    panic!("eviction does not end");
}

/// Deletes `prefix:N` for all numbers: where nothing is evicted any more, the store may be as full as it can be.
fn make_room(connection: &mut Connection, prefix: &str, numbers: std::ops::Range<usize>) {
    let keys: Vec<String> = numbers.map(|number| format!("{prefix}:{number}")).collect();
    let mut request: Vec<&[u8]> = vec![b"DEL"];
    request.extend(keys.iter().map(String::as_bytes));
    let deleted = ask(connection, &request).integer().expect("a count");
    assert!(deleted > 0, "the keys written last are gone");
}

#[test]
fn an_eviction_ends_the_transaction_of_who_watched_the_key() {
    on_both(an_eviction_ends_the_transaction_of_who_watched_the_key_on);
}

fn an_eviction_ends_the_transaction_of_who_watched_the_key_on(ground: Ground) {
    let folder = Folder::new();
    let server = small(&folder, ground);
    let mut writer = server.connect();
    let large = vec![7; 300_000];
    let watched = [("small", &b"value"[..]), ("large", &large)];
    let mut watchers: Vec<(&str, Connection)> = Vec::new();
    for (key, value) in watched {
        assert!(ask(&mut writer, &[b"SET", key.as_bytes(), value]).is_ok());
        let mut watcher = server.connect();
        assert!(ask(&mut watcher, &[b"WATCH", key.as_bytes()]).is_ok());
        watchers.push((key, watcher));
    }
    // More than there is room for, whatever the policy's order.
    let count = if ground == Memory { 20_000 } else { 8_000 };
    fill(&mut writer, "more", 0..count);
    // One that watches what stays has its way.
    assert!(ask(&mut writer, &[b"SET", b"stays", b"value"]).is_ok());
    let mut watcher = server.connect();
    assert!(ask(&mut watcher, &[b"WATCH", b"stays"]).is_ok());
    watchers.push(("stays", watcher));
    stop_evicting(&mut writer);
    make_room(&mut writer, "more", count - 200..count);
    for (key, mut watcher) in watchers {
        assert!(ask(&mut watcher, &[b"MULTI"]).is_ok());
        ask(&mut watcher, &[b"SET", b"seen", key.as_bytes()]);
        let went = ask(&mut watcher, &[b"EXEC"]).items().is_some();
        assert_eq!(went, key == "stays", "EXEC after a watch of {key}");
        assert_eq!(exists(&mut writer, key), key == "stays", "{key}");
    }
    assert_eq!(ask(&mut writer, &[b"GET", b"seen"]).bytes(), Some(&b"stays"[..]));
}

#[test]
fn an_evicted_large_value_gives_back_the_space_of_all_its_chunks() {
    on_both(an_evicted_large_value_gives_back_the_space_of_all_its_chunks_on);
}

fn an_evicted_large_value_gives_back_the_space_of_all_its_chunks_on(ground: Ground) {
    const COUNT: usize = 500;
    let folder = Folder::new();
    // A value is a small part of what a shard has: room for large ones comes one value after the other.
    let server = start(&folder, ground, 64, "allkeys-lru", 2);
    let mut connection = server.connect();
    let value = |number: usize| vec![number as u8; 200_000];
    // Nearly twice what there is room for.
    for number in 0..COUNT {
        let key = format!("large:{number}");
        let reply = connection.command(&[b"SET", key.as_bytes(), &value(number)]).expect("an answer");
        assert!(reply.is_ok(), "after {number} values: {:?}", reply.error());
    }
    stop_evicting(&mut connection);
    let left: Vec<usize> =
        (0..COUNT).filter(|number| exists(&mut connection, &format!("large:{number}"))).collect();
    assert!(left.contains(&(COUNT - 1)) && left.len() <= 320, "{left:?} are there");
    // No more went than room was made for.
    assert!(left.len() >= 160, "{} of {COUNT} are left", left.len());
    assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(left.len() as i64));
    for number in left {
        let key = format!("large:{number}");
        let reply = ask(&mut connection, &[b"GET", key.as_bytes()]);
        assert!(reply.bytes() == Some(&value(number)[..]), "{key} is not whole");
        assert_eq!(ask(&mut connection, &[b"DEL", key.as_bytes()]).integer(), Some(1));
    }
    // Nobody has anything left: what chunks still took would be those of evicted values. Tombstones stay where space is
    // plenty.
    let most = if ground == Memory { 1 << 20 } else { 256 << 10 };
    let is_empty = (0..20_000).any(|_| (0..8).all(|_| server.info("space_live_bytes") < most));
    assert!(is_empty, "{} bytes are live in an empty store", server.info("space_live_bytes"));
}

/// A key that goes says what its chunks free, not what its own record does: else all others went with it.
#[test]
fn large_values_of_any_length_make_room_and_no_more_for_each_other() {
    let folder = Folder::new();
    let server = start(&folder, Memory, 192, "allkeys-lru", 2);
    let mut connection = server.connect();
    let mut random = SeededRandom::new(seed());
    let (mut lengths, mut fewest) = (Vec::new(), i64::MAX);
    for round in 0..300 {
        // Both shards have some to take at a time.
        let mut pipeline = connection.pipeline();
        for _ in 0..8 {
            lengths.push(66_000 + random.below(800_000) as usize);
            let key = format!("large:{}", random.below(2_000));
            pipeline.command(&[b"SET", key.as_bytes(), &vec![7; lengths[lengths.len() - 1]]]);
        }
        for reply in pipeline.execute().expect("the server answers") {
            assert!(reply.is_ok(), "in round {round}: {:?}", reply.error());
        }
        if round >= 100 {
            fewest = fewest.min(ask(&mut connection, &[b"DBSIZE"]).integer().expect("a count"));
        }
    }
    let mean = lengths.iter().sum::<usize>() as i64 / lengths.len() as i64;
    assert!(fewest * mean > 64 << 20, "at times only {fewest} values of some {mean} bytes were there");
}

/// The copy's chunks cannot be evicted for each other, nor the value that it is made of, which is locked.
#[test]
fn a_large_value_that_finds_no_room_is_refused_and_the_store_goes_on() {
    let folder = Folder::new();
    let server = start(&folder, Device, 64, "allkeys-lru", 1);
    let mut connection = server.connect();
    assert!(ask(&mut connection, &[b"SET", b"big", &vec![7; 36 << 20]]).is_ok());
    let reply = connection.command(&[b"COPY", b"big", b"other"]).expect("an answer");
    let error = reply.error().unwrap_or_default().into_owned();
    assert!(error.contains("made no room for this value"), "{reply:?}");
    assert!(ask(&mut connection, &[b"SET", b"big", b"small"]).is_ok());
    assert!(ask(&mut connection, &[b"SET", b"another", b"small"]).is_ok());
}

#[test]
fn large_values_of_a_full_store_can_be_deleted() {
    on_both(large_values_of_a_full_store_can_be_deleted_on);
}

fn large_values_of_a_full_store_can_be_deleted_on(ground: Ground) {
    let folder = Folder::new();
    let server = small(&folder, ground);
    let mut connection = server.connect();
    stop_evicting(&mut connection);
    let set = |connection: &mut Connection, number: usize, bytes: usize| {
        let key = format!("large:{bytes}:{number}");
        let reply = connection.command(&[b"SET", key.as_bytes(), &vec![number as u8; bytes]]);
        reply.expect("an answer").is_ok()
    };
    // Smaller and smaller ones, until nothing fits any more.
    let mut stored = Vec::new();
    for bytes in [1 << 20, 300_000, 100_000, 10_000, 100] {
        let taken = (0..100_000).take_while(|&number| set(&mut connection, number, bytes));
        stored.extend(taken.map(|number| format!("large:{bytes}:{number}")));
    }
    assert!(stored.len() > 10, "{stored:?}");
    for key in &stored {
        let reply = connection.command(&[b"DEL", key.as_bytes()]).expect("an answer");
        assert_eq!(reply.integer(), Some(1), "{key}: {reply:?}");
    }
    // It comes back chunk by chunk: who was refused comes again.
    let is_taken = |number: usize| (0..5_000).any(|_| set(&mut connection, number, 1 << 20));
    assert!((0..8).all(is_taken), "the space did not come back");
}

/// Keys that expire at once, of those that the test below writes.
const SOON_KEYS: usize = 20;

/// All keys, by a walk with writes between its pages.
fn walk(connection: &mut Connection, mut between: impl FnMut()) -> BTreeSet<String> {
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    for _ in 0..100_000 {
        let reply = ask(connection, &[b"SCAN", cursor.as_bytes(), b"COUNT", b"100"]);
        let [next, keys] = reply.items().expect("a page") else { panic!("no page: {reply:?}") };
        let text = |value: &tierstone_client::Value| {
            String::from_utf8_lossy(value.bytes().expect("a text")).into_owned()
        };
        found.extend(keys.items().expect("keys").iter().map(text));
        cursor = text(next);
        if cursor == "0" {
            return found;
        }
        between();
    }
    panic!("the walk does not end");
}

#[test]
fn walks_counts_and_expiries_stay_right_while_keys_are_evicted() {
    on_both(walks_counts_and_expiries_stay_right_while_keys_are_evicted_on);
}

fn walks_counts_and_expiries_stay_right_while_keys_are_evicted_on(ground: Ground) {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut server = small(&folder, ground);
    let (mut walker, mut writer) = (server.connect(), server.connect());
    fill(&mut writer, "plain", 0..2_000);
    let far = 4_000_000_000u64;
    let far_text = far.to_string();
    for number in 0..1_000 {
        let key = format!("timed:{number}");
        ask(&mut writer, &[b"SET", key.as_bytes(), &value(number), b"EXAT", far_text.as_bytes()]);
        if number % (1_000 / SOON_KEYS) == 0 {
            let key = format!("soon:{number}");
            ask(&mut writer, &[b"SET", key.as_bytes(), &value(number), b"PX", b"1"]);
        }
    }
    let mut number = 0;
    let found = walk(&mut walker, || {
        let count = 20 + random.below(200) as usize;
        fill(&mut writer, "during", number..number + count);
        number += count;
    });
    assert!(server.info("evicted_keys") > 500, "seed {seed}: {} keys", server.info("evicted_keys"));
    // Of those that expire some are there in any case.
    for number in 0..50 {
        let key = format!("late:{number}");
        ask(&mut writer, &[b"SET", key.as_bytes(), &value(number), b"EXAT", far_text.as_bytes()]);
    }
    stop_evicting(&mut writer);
    let check = |server: &Server, connection: &mut Connection, found: &BTreeSet<String>| {
        let all = quiet_walk(server, connection);
        for key in &all {
            let kept = key.starts_with("plain") || key.starts_with("timed");
            assert!(!kept || found.contains(key), "seed {seed}: {key} was there all the time and not shown");
            let number = key.rsplit(':').next().and_then(|text| text.parse().ok()).expect("a number");
            let reply = ask(connection, &[b"GET", key.as_bytes()]);
            assert!(
                reply.bytes() == Some(&value(number)[..]),
                "seed {seed}: {key} is shown and is {reply:?}"
            );
            let expires_at = ask(connection, &[b"EXPIRETIME", key.as_bytes()]).integer();
            let expires = key.starts_with("timed") || key.starts_with("late");
            let right = if expires { far as i64 } else { -1 };
            assert_eq!(expires_at, Some(right), "seed {seed}: {key}");
        }
        // What has expired counts until it has left: it is not evicted any more, and no write has met it.
        let counted = ask(connection, &[b"DBSIZE"]).integer().and_then(|count| usize::try_from(count).ok());
        let may_be = all.len()..=all.len() + SOON_KEYS;
        assert!(
            counted.is_some_and(|count| may_be.contains(&count)),
            "seed {seed}: {counted:?} keys, not {may_be:?}"
        );
        all
    };
    let all = check(&server, &mut walker, &found);
    assert!(all.iter().any(|key| key.starts_with("late")) && all.len() > 1_000, "{} keys", all.len());
    server.kill();
    let server = small(&folder, ground);
    let again = check(&server, &mut server.connect(), &found);
    assert!(again.is_subset(&all), "seed {seed}: an evicted key came back");
}

#[test]
fn another_number_of_shards_evicts_nothing_from_a_cache_that_is_not_full() {
    for policy in ["allkeys-lru", "allkeys-random"] {
        let folder = Folder::new();
        let keys = 7_000;
        let server = start(&folder, Device, 64, policy, 1);
        let mut connection = server.connect();
        // Less than half of the space lives, and nearly all of it was written to.
        (0..3).for_each(|_| fill(&mut connection, "key", 0..keys));
        assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(keys as i64));
        server.stop();
        let server = start(&folder, Device, 64, policy, 2);
        let mut connection = server.connect();
        let there = (0..keys).filter(|number| exists(&mut connection, &format!("key:{number}"))).count();
        assert_eq!((there, server.info_of_any("evicted_keys")), (keys, 0), "{policy}");
        server.stop();
    }
}

#[test]
fn what_is_asked_for_often_stays_and_tells_how_often() {
    on_both(what_is_asked_for_often_stays_and_tells_how_often_on);
}

fn what_is_asked_for_often_stays_and_tells_how_often_on(ground: Ground) {
    let folder = Folder::new();
    let server = start(&folder, ground, 16, "allkeys-lfu", 2);
    let mut connection = server.connect();
    let often = |number: usize| format!("often:{number}");
    fill(&mut connection, "often", 0..200);
    for round in 0..40 {
        for number in 0..200 {
            let key = often(number);
            assert!(
                ask(&mut connection, &[b"GET", key.as_bytes()]).bytes().is_some(),
                "{key}, round {round}"
            );
        }
        fill(&mut connection, "once", round * 200..(round + 1) * 200);
    }
    assert!(server.info("evicted_keys") > 4_000, "{} keys went", server.info("evicted_keys"));
    let frequency =
        |connection: &mut Connection, key: &str| ask(connection, &[b"OBJECT", b"FREQ", key.as_bytes()]);
    assert!(frequency(&mut connection, &often(7)).integer().is_some_and(|uses| uses >= 5));
    assert!(frequency(&mut connection, "once:7999").integer().is_some_and(|uses| uses < 5));
    assert_eq!(frequency(&mut connection, "absent"), Value::Null, "of a key that is not there");
}

#[test]
fn asking_about_a_key_is_no_use_of_it_nor_is_what_a_client_reads_that_does_not_touch() {
    for (ground, shards) in [(Device, 1), (Device, 4), (Memory, 1), (Memory, 4)] {
        let folder = Folder::new();
        let server = start(&folder, ground, 16, "allkeys-lfu", shards);
        let (mut connection, mut quiet) = (server.connect(), server.connect());
        // Counters fade with uses, the more slowly the more keys there are: of few, one might fade in the midst of this.
        for first in (0..10_000).step_by(100) {
            let names: Vec<String> = (first..first + 100).map(|number| format!("other:{number}")).collect();
            let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"value"]);
            let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
            assert!(ask(&mut connection, &words).is_ok());
        }
        // Over several shards where there are several.
        let keys: Vec<String> = (0..8).map(|number| format!("key:{number}")).collect();
        for key in &keys {
            ask(&mut connection, &[b"SET", key.as_bytes(), b"value"]);
        }
        let all = |connection: &mut Connection, name: &str| {
            let words: Vec<&[u8]> =
                std::iter::once(name.as_bytes()).chain(keys.iter().map(|key| key.as_bytes())).collect();
            ask(connection, &words)
        };
        let frequency =
            || ask(&mut server.connect(), &[b"OBJECT", b"FREQ", b"key:3"]).integer().expect("it is there");
        let before = frequency();
        for _ in 0..5 {
            assert_eq!(all(&mut connection, "EXISTS").integer(), Some(8));
            all(&mut connection, "WATCH");
            for words in [
                "TTL",
                "PTTL",
                "EXPIRETIME",
                "PEXPIRETIME",
                "TYPE",
                "OBJECT ENCODING",
                "OBJECT REFCOUNT",
                "MEMORY USAGE",
            ] {
                let words: Vec<&[u8]> = words.split(' ').chain(["key:3"]).map(str::as_bytes).collect();
                ask(&mut connection, &words);
            }
        }
        assert_eq!(frequency(), before, "{ground:?}, {shards} shards: asking about it");
        assert_eq!(ask(&mut quiet, &[b"CLIENT", b"NO-TOUCH", b"on"]), Value::Simple("OK".into()));
        for _ in 0..5 {
            assert_eq!(ask(&mut quiet, &[b"GET", b"key:3"]).bytes(), Some(&b"value"[..]));
            all(&mut quiet, "MGET");
            ask(&mut quiet, &[b"MULTI"]);
            ask(&mut quiet, &[b"GET", b"key:3"]);
            all(&mut quiet, "MGET");
            ask(&mut quiet, &[b"EXEC"]);
        }
        assert_eq!(frequency(), before, "{ground:?}, {shards} shards: read without touching");
        assert_eq!(all(&mut quiet, "TOUCH").integer(), Some(8));
        assert_eq!(frequency(), before + 1, "{ground:?}, {shards} shards: touched");
        ask(&mut quiet, &[b"CLIENT", b"NO-TOUCH", b"off"]);
        ask(&mut quiet, &[b"GET", b"key:3"]);
        all(&mut quiet, "MGET");
        assert_eq!(frequency(), before + 3, "{ground:?}, {shards} shards: read as others do");
    }
}
