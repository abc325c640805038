//! Plain requests whose keys other shards have: in bundles there and back, each answered once, none before what it has
//! observed is durable.

use crate::support;
use crate::support::Server;
use crate::support::fetching_engine::{FetchingEngine, Trouble};
use std::collections::BTreeMap;
use tierstone_base::{Now, SeededRandom};
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::{Args, Executor, Message, Outcome, Output};

const NOW: Now = Now { monotonic_us: 1_000_000, wall_ms: 1_700_000_000_000 };

fn executors(count: u16) -> Vec<Executor<MapEngine>> {
    let executor = |index| Executor::new(MapEngine::new(u64::from(index)), support::settings(index, count));
    (0..count).map(executor).collect()
}

fn request(executor: &mut Executor<MapEngine>, words: &[&[u8]]) -> Outcome {
    let mut reply = Vec::new();
    let outcome = executor.request(NOW, 1, Args::Slices(words), &mut reply);
    assert!(reply.is_empty() || matches!(outcome, Outcome::Ready { .. }));
    outcome
}

/// Keys of each of so many shards.
fn keys_of(executor: &Executor<MapEngine>, count: u16, each: usize) -> Vec<Vec<String>> {
    let mut keys: Vec<Vec<String>> = (0..count).map(|_| Vec::new()).collect();
    for number in 0.. {
        let key = format!("key:{number}");
        let shard = executor.shard().position(key.as_bytes()).shard(count);
        if keys[usize::from(shard)].len() < each {
            keys[usize::from(shard)].push(key);
        }
        if keys.iter().all(|keys| keys.len() == each) {
            break;
        }
    }
    keys
}

fn sends(executor: &mut Executor<MapEngine>) -> Vec<(u16, Message)> {
    let mut outputs = Vec::new();
    executor.drain_outputs(&mut outputs);
    let sent = outputs.into_iter().filter_map(|output| match output {
        Output::Send { to, message } => Some((to, message)),
        _ => None,
    });
    sent.collect()
}

#[test]
fn a_pipeline_costs_one_message_for_each_shard_and_one_back() {
    let mut all = executors(3);
    let keys = keys_of(&all[0], 3, 20);
    all[0].connect(NOW, 1, Default::default());
    let mut waiting = Vec::new();
    for round in 0..20 {
        for keys in &keys {
            match request(&mut all[0], &[b"GET", keys[round].as_bytes()]) {
                Outcome::Forwarded(task) => waiting.push(task),
                outcome => assert!(matches!(outcome, Outcome::Ready { .. }), "{outcome:?}"),
            }
        }
    }
    assert_eq!(waiting.len(), 40);
    assert_eq!(all[0].suspended(), 0, "no task is kept for them");
    let sent = sends(&mut all[0]);
    assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [1, 2]);
    let mut answered = Vec::new();
    for (to, message) in sent {
        let executor = &mut all[usize::from(to)];
        executor.message(NOW, 0, message);
        let mut back = sends(executor);
        assert_eq!(back.len(), 1, "one message answers them all");
        all[0].message(NOW, to, back.remove(0).1);
        let mut outputs = Vec::new();
        all[0].drain_outputs(&mut outputs);
        for output in outputs {
            let Output::Replies(bundle) = output else { panic!("{output:?}") };
            for (connection, task, bytes) in bundle.replies() {
                assert_eq!((connection, bytes), (1, &b"$-1\r\n"[..]));
                answered.push(task);
            }
            all[0].recycle(bundle);
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, waiting);
}

#[test]
fn an_answer_leaves_when_what_it_has_observed_is_durable() {
    let mut all = executors(2);
    let keys = keys_of(&all[0], 2, 2);
    all[0].connect(NOW, 1, Default::default());
    let outcome = request(&mut all[0], &[b"SET", keys[1][0].as_bytes(), b"value"]);
    assert!(matches!(outcome, Outcome::Suspended(_)), "it waits for a device: {outcome:?}");
    let outcome = request(&mut all[0], &[b"GET", keys[1][1].as_bytes()]);
    assert!(matches!(outcome, Outcome::Forwarded(_)), "{outcome:?}");
    for (_, message) in sends(&mut all[0]) {
        all[1].message(NOW, 0, message);
    }
    assert!(all[1].durable_seq() < all[1].shard().engine().applied_seq(), "the write is not durable yet");
    assert_eq!(sends(&mut all[1]).len(), 0, "neither the write nor who has seen it is answered");
    let mut outputs = Vec::new();
    while outputs.is_empty() {
        all[1].step(NOW, &mut Vec::new(), &mut outputs);
    }
    assert_eq!(all[1].durable_seq(), all[1].shard().engine().applied_seq());
    assert_eq!(outputs.len(), 1);
}

#[test]
fn what_waits_for_a_record_is_answered_later_and_those_beside_it_at_once() {
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let trouble = Trouble { fetch: 0.3, ..Trouble::default() };
        let engines = (0..3).map(|shard| FetchingEngine::new(seed * 8 + shard, trouble));
        let mut server = Server::new(engines);
        server.delays = Some(SeededRandom::new(seed));
        let ids: Vec<_> = (0..5).map(|_| server.connect()).collect();
        let mut held: BTreeMap<String, String> = BTreeMap::new();
        for round in 0..30 {
            // Each connection has keys of its own, so the order of its requests is all that counts.
            let mut expected: BTreeMap<u64, String> = BTreeMap::new();
            for id in &ids {
                for _ in 0..random.below(30) {
                    let key = format!("{id}:{}", random.below(12));
                    let answer = expected.entry(*id).or_default();
                    if random.chance(0.4) {
                        let value = format!("{round}:{}", random.below(1_000));
                        server.send(*id, &[b"set", key.as_bytes(), value.as_bytes()]);
                        held.insert(key, value);
                        answer.push_str("+OK\r\n");
                    } else {
                        server.send(*id, &[b"get", key.as_bytes()]);
                        match held.get(&key) {
                            Some(value) => answer.push_str(&format!("${}\r\n{value}\r\n", value.len())),
                            None => answer.push_str("$-1\r\n"),
                        }
                    }
                }
            }
            server.settle();
            for (id, expected) in expected {
                let got = String::from_utf8(server.take_received(id)).unwrap();
                assert_eq!(got, expected, "seed {seed}, round {round}, connection {id}");
            }
        }
        for executor in &server.executors {
            assert_eq!(executor.suspended(), 0, "seed {seed}: a task is left");
            assert_eq!(executor.shard().engine().held(), 0, "seed {seed}: a record is held");
        }
    }
}
