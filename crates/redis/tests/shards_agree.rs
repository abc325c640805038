//! What clients of several shards change at the same time: afterwards all shards have the same.

use crate::support::Server;
use tierstone_base::SeededRandom;
use tierstone_engine::map_engine::MapEngine;

const SHARDS: usize = 3;
/// Settings, and the values that their clients give them.
const SETTINGS: [(&str, [&str; 4]); 3] = [
    ("slowlog-log-slower-than", ["1000", "2000", "3000", "4000"]),
    ("durability", ["sync", "relaxed", "group:5", "group:9"]),
    ("notify-keyspace-events", ["KEA", "", "K$", "Eg"]),
];

/// The value of a setting at every shard.
fn values(server: &mut Server<MapEngine>, ids: &[u64], name: &str) -> Vec<Vec<u8>> {
    ids.iter().map(|id| server.raw(*id, &[b"CONFIG", b"GET", name.as_bytes()])).collect()
}

/// What was sent is offered, or all of it answered.
fn go_on(server: &mut Server<MapEngine>, random: &mut SeededRandom) {
    if random.chance(0.5) {
        server.offer();
    } else {
        server.settle();
    }
}

/// All is answered, and what is on its way between shards comes to its end.
fn come_to_an_end(server: &mut Server<MapEngine>, ids: &[u64]) {
    server.settle();
    (0..200).for_each(|_| server.step());
    for id in ids {
        server.take_received(*id);
    }
}

#[test]
fn a_setting_that_several_change_at_once_is_the_same_at_all_shards() {
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let mut server = Server::new((0..SHARDS).map(|_| MapEngine::new(0)));
        server.delays = Some(SeededRandom::new(seed ^ 0x5eed));
        let ids: Vec<u64> = (0..SHARDS).map(|_| server.connect()).collect();
        for _ in 0..20 {
            let (name, values) = SETTINGS[random.below(3) as usize];
            let value = values[random.below(4) as usize].as_bytes();
            let id = ids[random.below(SHARDS as u64) as usize];
            server.send(id, &[b"CONFIG", b"SET", name.as_bytes(), value]);
            go_on(&mut server, &mut random);
        }
        come_to_an_end(&mut server, &ids);
        for (name, _) in SETTINGS {
            let values = values(&mut server, &ids, name);
            assert!(values.iter().all(|value| *value == values[0]), "{seed} {name}: {values:?}");
        }
    }
}

#[test]
fn the_last_change_of_one_client_after_the_other_holds() {
    let mut server = Server::new((0..SHARDS).map(|_| MapEngine::new(0)));
    let ids: Vec<u64> = (0..SHARDS).map(|_| server.connect()).collect();
    for (number, id) in [0, 2, 1, 1, 2, 0].into_iter().map(|shard| ids[shard]).enumerate() {
        let (name, values_given) = SETTINGS[number % 2];
        let value = values_given[number % 4];
        assert_eq!(server.line(id, &format!("CONFIG SET {name} {value}")), "+OK");
        let expected = format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len());
        let found = values(&mut server, &ids, name);
        assert!(found.iter().all(|found| *found == expected.as_bytes()), "{name} {value}: {found:?}");
    }
}

#[test]
fn a_value_that_is_no_text_is_refused() {
    let mut server = Server::new([MapEngine::new(0)]);
    let id = server.connect();
    let reply = server.raw(id, &[b"CONFIG", b"SET", b"requirepass", b"p\xff"]);
    assert_eq!(
        String::from_utf8(reply).unwrap(),
        "-ERR CONFIG SET failed (possibly related to argument 'requirepass') - argument must be valid UTF-8\r\n"
    );
    server.check(id, &[("CONFIG GET requirepass", "*2 $11 requirepass $0")]);
    let other = server.connect();
    server.check(other, &[("PING", "+PONG"), ("CONFIG SET requirepass é", "+OK")]);
}

/// What clients must say is what `CONFIG GET` tells, whoever of several that changed it at once was heard first.
#[test]
fn a_password_that_several_change_at_once_is_the_one_that_holds() {
    const PASSWORDS: [&str; 4] = ["one", "two", "three", "four"];
    for seed in 0..60 {
        let mut random = SeededRandom::new(seed);
        let mut server = Server::new((0..SHARDS).map(|_| MapEngine::new(0)));
        server.delays = Some(SeededRandom::new(seed ^ 0x5eed));
        let ids: Vec<u64> = (0..SHARDS).map(|_| server.connect()).collect();
        for _ in 0..6 {
            for id in &ids {
                let password = PASSWORDS[random.below(4) as usize].as_bytes();
                if random.chance(0.8) {
                    server.send(*id, &[b"CONFIG", b"SET", b"requirepass", password]);
                } else {
                    server.send(*id, &[b"MULTI"]);
                    server.send(*id, &[b"CONFIG", b"SET", b"requirepass", password]);
                    server.send(*id, &[b"EXEC"]);
                }
            }
            go_on(&mut server, &mut random);
        }
        come_to_an_end(&mut server, &ids);
        let told = values(&mut server, &ids, "requirepass");
        let told = String::from_utf8(told[0].clone()).unwrap();
        let password = told.split("\r\n").nth(4).unwrap();
        for _ in 0..SHARDS {
            let newcomer = server.connect();
            assert!(server.line(newcomer, "GET key").starts_with("-NOAUTH"), "{seed} {password}");
            assert_eq!(server.line(newcomer, &format!("AUTH {password}")), "+OK", "{seed} {password}");
        }
    }
}

#[test]
fn a_password_that_a_transaction_sets_is_asked_for() {
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let id = server.connect();
        server.check(
            id,
            &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("SET b 2", "+QUEUED"), ("SET c 3", "+QUEUED")],
        );
        server.check(id, &[("CONFIG SET requirepass secret", "+QUEUED"), ("EXEC", "*4 +OK +OK +OK +OK")]);
        (0..3).for_each(|_| server.step());
        for _ in 0..shards {
            let newcomer = server.connect();
            assert!(server.line(newcomer, "GET a").starts_with("-NOAUTH"));
            server.check(newcomer, &[("AUTH secret", "+OK"), ("GET a", "$1 1")]);
        }
    }
}

/// A record is described by the shard that has it, within a transaction as outside.
#[test]
fn debug_object_in_a_transaction_asks_the_shard_of_the_key() {
    let mut server = Server::new((0..SHARDS).map(|_| MapEngine::new(0)));
    let ids: Vec<u64> = (0..SHARDS).map(|_| server.connect()).collect();
    for key in 0..8 {
        let key = format!("key:{key}");
        server.call(ids[0], &[b"SET", key.as_bytes(), b"value"]);
        for id in &ids {
            server.call(*id, &[b"MULTI"]);
            server.call(*id, &[b"DEBUG", b"OBJECT", key.as_bytes()]);
            let answer = server.raw(*id, &[b"EXEC"]);
            assert!(answer.starts_with(b"*1\r\n+Value at:"), "{key}: {}", String::from_utf8_lossy(&answer));
        }
    }
}

/// What programs that watch a Redis look for is told of all shards together.
#[test]
fn fields_of_redis_are_told_of_all_shards() {
    let mut server = Server::new((0..SHARDS).map(|_| MapEngine::new(0)));
    let ids: Vec<u64> = (0..6).map(|_| server.connect()).collect();
    for id in &ids[1..] {
        server.call(*id, &[b"WATCH", b"one", b"two"]);
    }
    let info = server.raw(ids[0], &[b"INFO"]);
    let info = String::from_utf8_lossy(&info);
    for line in [
        "watching_clients:5",
        "total_watched_keys:10",
        "rdb_changes_since_last_save:0",
        "rdb_last_bgsave_status:ok",
        "aof_last_write_status:ok",
        "master_failover_state:no-failover",
        "second_repl_offset:-1",
    ] {
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{line} in {info}");
    }
}
