//! Commands and transactions over several shards beside FLUSHDB, FLUSHALL and SWAPDB, whose changes come to the shards at
//! different times.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::{Server, parse_all};
use tierstone_base::SeededRandom;
use tierstone_engine::map_engine::MapEngine;
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
