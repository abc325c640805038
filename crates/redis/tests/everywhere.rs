//! What is told of the whole server is the same whichever shard is asked.

use crate::support::Server;
use crate::support::fetching_engine::{FetchingEngine, Trouble};
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, SeededRandom};
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::ConnectionId;

fn server(shards: u64) -> (Server<FetchingEngine>, Vec<ConnectionId>) {
    let trouble = Trouble { fetch: 0.0, retry: 0.0, ..Trouble::default() };
    let mut server = Server::new((0..shards).map(|seed| FetchingEngine::new(seed, trouble)));
    let clients = (0..shards).map(|_| server.connect()).collect();
    (server, clients)
}

/// The device of a shard fails.
fn fail(server: &mut Server<FetchingEngine>, shard: usize, reason: &str) {
    let engine = server.executors[shard].shard_mut().engine_mut();
    engine.failure = Some(Error::new(ErrorKind::DeviceFailed, reason));
}

#[test]
fn a_device_that_has_failed_is_told_by_all_shards() {
    for shards in [1, 3] {
        let (mut server, clients) = server(shards);
        for id in &clients {
            let text = server.line(*id, "INFO persistence");
            assert!(text.contains("device_health:ok device_failed_shards:0 "), "{text}");
        }
        fail(&mut server, shards as usize - 1, "no more");
        for id in &clients {
            let text = server.line(*id, "INFO persistence");
            assert!(text.contains("device_health:failed: no more device_failed_shards:1 "), "{text}");
            let text = server.line(*id, "MEMORY DOCTOR");
            let start = format!("The device of shard {} has failed: no more. ", shards - 1);
            assert!(text.contains(&start) && text.contains("restart"), "{text}");
        }
    }
}

/// `MEMORY STATS` by its names.
fn stats(server: &mut Server<FetchingEngine>, id: ConnectionId) -> BTreeMap<String, i64> {
    let answer = server.call(id, &[b"MEMORY", b"STATS"]);
    let items = answer.items().unwrap().chunks(2);
    let name = |pair: &[_]| {
        let [name, _]: &[tierstone_wire::resp::Value; 2] = pair.try_into().unwrap();
        String::from_utf8(name.bytes().unwrap().to_vec()).unwrap()
    };
    items.map(|pair| (name(pair), pair[1].integer().unwrap_or(-1))).collect()
}

#[test]
fn memory_is_that_of_all_shards() {
    let (mut server, clients) = server(3);
    for number in 0..30 {
        server.line(clients[0], &format!("SET key{number} value"));
    }
    for executor in &mut server.executors {
        executor.note_connection_bytes(1_000, 1 << 20);
    }
    let first = stats(&mut server, clients[0]);
    for name in ["peak.allocated", "total.allocated", "overhead.total", "dataset.bytes", "keys.bytes-per-key"]
    {
        assert!(first.contains_key(name), "{name}: {first:?}");
    }
    assert_eq!((first["keys.count"], first["clients.normal"]), (30, 3_000), "{first:?}");
    for id in &clients {
        assert_eq!(stats(&mut server, *id), first);
        let text = server.line(*id, "MEMORY DOCTOR");
        assert!(text.contains("Memory is as it should be: 30 keys; "), "{text}");
    }
    // The bounds are those of a shard.
    server.executors[2].note_connection_bytes(1 << 20, 1 << 20);
    for id in &clients {
        let text = server.line(*id, "MEMORY DOCTOR");
        assert!(text.contains("Buffers of connections of shard 2 take 1 MiB of at most 1 MiB: "), "{text}");
    }
    server.executors[2].note_connection_bytes(0, 1 << 20);
    let later = stats(&mut server, clients[1]);
    assert!(later["peak.allocated"] > (1 << 20) && later["total.allocated"] < (1 << 20), "{later:?}");
}

/// What `LASTSAVE` answers, and `INFO` says.
fn last_saves(server: &mut Server<MapEngine>, clients: &[ConnectionId]) -> Vec<u64> {
    let mut told = Vec::new();
    for id in clients {
        let number = server.line(*id, "LASTSAVE");
        told.push(number.strip_prefix(':').unwrap().parse().unwrap());
        let info = server.line(*id, "INFO persistence");
        let field = info.split(' ').find_map(|word| word.strip_prefix("rdb_last_save_time:"));
        told.push(field.unwrap().parse().unwrap());
    }
    told
}

#[test]
fn the_last_save_is_the_same_at_all_shards_and_never_goes_back() {
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let clients: Vec<ConnectionId> = (0..shards).map(|_| server.connect()).collect();
        for (turn, request) in ["SAVE", "BGSAVE", "SAVE", "BGSAVE SCHEDULE", "SAVE"].iter().enumerate() {
            server.now.wall_ms += 5_000;
            let id = clients[turn % shards];
            server.line(id, "SET key value");
            let reply = server.line(id, request);
            assert!(reply.starts_with('+'), "{request}: {reply}");
            (0..3).for_each(|_| server.step());
            let expected = vec![server.now.wall_ms / 1_000; 2 * shards];
            assert_eq!(last_saves(&mut server, &clients), expected, "{request}, {shards} shards");
        }
        // What only waits for durability is no save.
        let before = last_saves(&mut server, &clients);
        server.now.wall_ms += 5_000;
        assert_eq!(server.line(clients[0], "WAIT 0 0"), ":0");
        assert_eq!(last_saves(&mut server, &clients), before);
    }
}

#[test]
fn saves_at_once_end_with_one_time_for_all_shards() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let mut server = Server::new((0..3).map(|_| MapEngine::new(0)));
        server.delays = Some(SeededRandom::new(seed ^ 0x5eed));
        let clients: Vec<ConnectionId> = (0..3).map(|_| server.connect()).collect();
        for _ in 0..20 {
            server.now.wall_ms += random.below(2_000);
            let id = clients[random.below(3) as usize];
            server.send(id, &[if random.chance(0.5) { b"SAVE" } else { b"BGSAVE" }]);
            server.offer();
            (0..random.below(6)).for_each(|_| server.step());
        }
        server.settle();
        (0..200).for_each(|_| server.step());
        clients.iter().for_each(|id| drop(server.take_received(*id)));
        let told = last_saves(&mut server, &clients);
        assert!(told.iter().all(|at| *at == told[0]), "seed {seed}: {told:?}");
    }
}
