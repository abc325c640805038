//! Commands and transactions over several shards beside FLUSHDB, FLUSHALL and SWAPDB, whose changes come to the shards at
//! different times.

use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::{Server, parse_all};
use tierstone_base::SeededRandom;
use tierstone_engine::map_engine::MapEngine;
use tierstone_store::{DatabaseMap, MapChange};
use tierstone_wire::resp::Value;

const KEYS: usize = 8;

/// What a client does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Mset,
    WritingTransaction,
    Mget,
    ReadingTransaction,
    Exists,
    Change,
}

fn keys() -> Vec<String> {
    (0..KEYS).map(|number| format!("key {number}")).collect()
}

fn send(server: &mut Server<MapEngine>, client: u64, words: &[&str]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    server.send(client, &words);
}

/// Sends one request of a role, or one transaction.
fn send_as(server: &mut Server<MapEngine>, client: u64, role: Role, value: &str, change: &[&str]) {
    let keys = keys();
    let names = keys.iter().map(String::as_str);
    let with_values = names.clone().flat_map(|name| [name, value]);
    match role {
        Role::Mset => send(server, client, &["MSET"].into_iter().chain(with_values).collect::<Vec<_>>()),
        Role::Mget => send(server, client, &["MGET"].into_iter().chain(names).collect::<Vec<_>>()),
        Role::Exists => send(server, client, &["EXISTS"].into_iter().chain(names).collect::<Vec<_>>()),
        Role::Change => send(server, client, change),
        Role::WritingTransaction | Role::ReadingTransaction => {
            send(server, client, &["MULTI"]);
            for name in names {
                match role {
                    Role::ReadingTransaction => send(server, client, &["GET", name]),
                    _ => send(server, client, &["SET", name, value]),
                }
            }
            send(server, client, &["EXEC"]);
        }
    }
}

/// What the answers to a reader's requests were.
#[derive(Debug, Default)]
struct Seen {
    values: usize,
    nothing: usize,
}

impl Seen {
    /// The answers to a role's requests show all of a write or nothing, and refuse nothing.
    fn check(&mut self, role: Role, answers: &[Value], context: &str) {
        for answer in answers {
            let has_values = match (role, answer) {
                (_, Value::Error(_)) => panic!("{context}: {role:?} got {answer:?}"),
                // Answers to the commands of a transaction as they are queued are no arrays.
                (Role::Mget | Role::ReadingTransaction, Value::Array(values)) => {
                    let is_whole = values.windows(2).all(|pair| pair[0] == pair[1]);
                    assert!(is_whole, "{context}: {role:?} has shown {values:?}");
                    values[0] != Value::Null
                }
                (Role::Exists, Value::Integer(count)) => {
                    assert!(matches!(*count as usize, 0 | KEYS), "{context}: there were {count}");
                    *count != 0
                }
                _ => continue,
            };
            *(if has_values { &mut self.values } else { &mut self.nothing }) += 1;
        }
    }
}

/// Clients of all roles at once, each with one request on its way, with messages and maps that take their time.
fn run(seed: u64, turns: u32, change_chance: f64, seen: &mut Seen) {
    let mut random = SeededRandom::new(seed);
    let mut server = Server::new((0..3).map(MapEngine::new));
    server.delays = Some(SeededRandom::new(seed ^ 0x5eed));
    let roles = [
        Role::Mset,
        Role::Mget,
        Role::Change,
        Role::WritingTransaction,
        Role::ReadingTransaction,
        Role::Exists,
    ];
    let clients: Vec<(u64, Role)> = roles.map(|role| (server.connect(), role)).to_vec();
    for turn in 0..turns {
        for (client, role) in &clients {
            let chance = if *role == Role::Change { change_chance } else { 0.5 };
            if server.is_idle(*client) && random.chance(chance) {
                let changes: [&[&str]; 4] =
                    [&["FLUSHDB"], &["FLUSHALL"], &["SWAPDB", "0", "1"], &["FLUSHDB"]];
                let change = changes[random.below(4) as usize];
                send_as(&mut server, *client, *role, &format!("{client} in {turn}"), change);
            }
        }
        server.offer();
        server.step();
        for (client, role) in &clients {
            let received = server.take_received(*client);
            seen.check(*role, &parse_all(&received), &format!("seed {seed}, turn {turn}"));
        }
    }
    server.settle();
    for (client, role) in &clients {
        let received = server.take_received(*client);
        seen.check(*role, &parse_all(&received), &format!("seed {seed}, at the end"));
    }
}

#[test]
fn what_was_written_together_is_seen_together_while_databases_are_emptied_and_swapped() {
    let mut seen = Seen::default();
    (0..20).for_each(|seed| run(seed, 20_000, 0.02, &mut seen));
    assert!(seen.values > 1_000 && seen.nothing > 1_000, "{seen:?}");
}

/// Each change makes those begin anew that were under way, so there are far more beginnings than there may be because of keys.
#[test]
fn no_command_is_refused_however_often_the_databases_change_meanwhile() {
    let mut seen = Seen::default();
    (0..10).for_each(|seed| run(seed, 20_000, 1.0, &mut seen));
    assert!(seen.values + seen.nothing > 500, "{seen:?}");
}

/// A record cannot be read at the first shard, and the second one has a later map than the first: what counts is the attempt
/// by that map, when the record can be read.
#[test]
fn what_an_attempt_by_an_earlier_map_met_is_not_the_answer() {
    let trouble = Trouble { fetch: 0.0, retry: 0.0, refuse: 0.0, corrupt: 0.0, durable: 1.0 };
    let mut server = Server::new((0..2).map(|seed| FetchingEngine::new(seed, trouble)));
    let clients = [server.connect(), server.connect()];
    let client = *clients.iter().find(|client| server.shard_of(**client) == 0).unwrap();
    let request: Vec<&[u8]> = vec![b"MGET", b"key 0", b"key 1", b"key 2", b"key 3", b"key 4", b"key 5"];
    for key in &request[1..] {
        server.raw(client, &[b"SET", key, b"v"]);
    }
    let mut later = DatabaseMap::new(16);
    later.change(MapChange::Flush(7)).unwrap();
    server.executors[1].apply_map(&later);
    let engine = server.executors[0].shard_mut().engine_mut();
    engine.set_trouble(Trouble { fetch: 1.0, corrupt: 1.0, ..trouble });
    server.send(client, &request);
    for _ in 0..200 {
        server.offer();
        server.step();
    }
    assert_eq!(server.take_received(client), b"", "it waits for the later map");
    server.executors[0].shard_mut().engine_mut().set_trouble(trouble);
    server.executors[0].apply_map(&later);
    server.settle();
    let answer = parse_all(&server.take_received(client));
    assert_eq!(answer, [Value::Array(vec![Value::Bulk(b"v".to_vec()); 6])]);
}
