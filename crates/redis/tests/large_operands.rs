//! Commands that go through large values: what they answer, how much of them is in memory meanwhile, and
//! that nothing is left of what did not come to its end.

use crate::support;
use crate::support::Server;
use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::large::{assert_all_given_back, chunks, limited, upload};
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;
use tierstone_engine::Engine;

/// Records that a command may hold at a time: the chunks of 1 MiB, which is read whole, one more where it begins
/// inside of a chunk, the records of its keys, and what the ledger looks up.
const HELD_MAX: usize = 24;

/// Shards of which every record must be fetched.
fn fetching(seed: u64, shards: u64) -> Server<FetchingEngine> {
    let trouble = Trouble { fetch: 1.0, ..Trouble::default() };
    Server::new((0..shards).map(|shard| FetchingEngine::new(seed * 8 + shard, trouble)))
}

fn forget_held(server: &mut Server<FetchingEngine>) {
    server.executors.iter_mut().for_each(|executor| executor.shard_mut().engine_mut().held_max = 0);
}

fn held_max(server: &Server<FetchingEngine>) -> usize {
    server.executors.iter().map(|executor| executor.shard().engine().held_max).max().unwrap()
}

fn assert_none_held<E: Engine>(server: &Server<E>, held: impl Fn(&E) -> usize) {
    server.executors.iter().for_each(|executor| assert_eq!(held(executor.shard().engine()), 0));
    server.executors.iter().for_each(|executor| assert_eq!(executor.suspended(), 0));
}

/// Zeros, then bytes of all kinds, then ones.
fn runs(len: usize) -> Vec<u8> {
    let third = len / 3;
    (0..len)
        .map(|at| match at / third {
            0 => 0,
            1 => (at % 251) as u8,
            _ => 0xff,
        })
        .collect()
}

/// Bit after bit, as the documentation of Redis has it.
fn bit(value: &[u8], at: usize) -> bool {
    value[at / 8] >> (7 - at % 8) & 1 == 1
}

#[test]
fn bits_of_a_large_value_are_searched_with_one_piece_in_memory() {
    for shards in [1, 2, 3] {
        let mut server = fetching(3, shards);
        let id = server.connect();
        let value = runs(3_000_007);
        let bits = value.len() * 8;
        server.raw(id, &[b"SET", b"big", &value]);
        let ones = |from: usize, to: usize| (from..to).filter(|at| bit(&value, *at)).count() as i64;
        let first = |wanted: bool, from: usize, to: usize| {
            (from..to).find(|at| bit(&value, *at) == wanted).map_or(-1, |at| at as i64)
        };
        forget_held(&mut server);
        let mut check = |line: &str, expected: i64| {
            assert_eq!(server.line(id, line), format!(":{expected}"), "{shards} shards: {line}");
        };
        check("BITCOUNT big", ones(0, bits));
        check("BITCOUNT big 10 -10", ones(80, bits - 72));
        check("BITCOUNT big 3 20000005 BIT", ones(3, 20_000_006));
        check("BITCOUNT big 5 4", 0);
        check("BITPOS big 1", first(true, 0, bits));
        check("BITPOS big 0", 0);
        check("BITPOS big 0 2000010", bits as i64);
        check("BITPOS big 0 2000010 -1", first(false, 16_000_080, bits));
        check("BITPOS big 1 7 9000001 BIT", first(true, 7, 9_000_002));
        check("BITPOS big 0 9000007 24000000 BIT", first(false, 9_000_007, 24_000_001));
        assert!(held_max(&server) <= HELD_MAX, "{shards} shards: {} records at a time", held_max(&server));
        server.raw(id, &[b"DEL", b"big"]);
        assert_all_given_back(&mut server, "deleted");
        assert_none_held(&server, FetchingEngine::held);
    }
}

#[test]
fn a_count_shows_the_value_as_it_was_when_it_began() {
    for shards in [1, 2] {
        let mut server = fetching(5, shards);
        let (reader, writer) = (server.connect(), server.connect());
        let value = runs(3_000_000);
        let ones: u64 = value.iter().map(|byte| u64::from(byte.count_ones())).sum();
        server.raw(writer, &[b"SET", b"big", &value]);
        server.send(reader, &[b"BITCOUNT", b"big"]);
        (0..20).for_each(|_| {
            server.offer();
            server.step();
        });
        assert!(server.take_received(reader).is_empty(), "it has ended before anybody wrote");
        // None of these waits for it.
        server.send(writer, &[b"SETRANGE", b"big", b"2500000", &[0; 100]]);
        server.send(writer, &[b"SET", b"big", b"small"]);
        server.settle();
        assert_eq!(server.take_received(reader), format!(":{ones}\r\n").as_bytes());
        server.raw(writer, &[b"DEL", b"big"]);
        assert_all_given_back(&mut server, "deleted");
        assert_none_held(&server, FetchingEngine::held);
    }
}

/// The strings that there must be, changed by the words of Redis.
#[derive(Default)]
struct Strings(BTreeMap<Vec<u8>, Vec<u8>>);

impl Strings {
    fn get(&self, key: &[u8]) -> Vec<u8> {
        self.0.get(key).cloned().unwrap_or_default()
    }

    fn overwrite(&mut self, key: &[u8], offset: usize, part: &[u8]) -> String {
        let value = self.0.entry(key.to_vec()).or_default();
        value.resize(value.len().max(offset + part.len()), 0);
        value[offset..offset + part.len()].copy_from_slice(part);
        format!(":{}\r\n", value.len())
    }

    fn combine(&mut self, operation: &str, target: &[u8], sources: &[&[u8]]) -> String {
        let values: Vec<Vec<u8>> = sources.iter().map(|key| self.get(key)).collect();
        let len = values.iter().map(Vec::len).max().unwrap_or(0);
        let combine = |at: usize| {
            let byte = |value: &Vec<u8>| value.get(at).copied().unwrap_or(0);
            let (first, others) = (byte(&values[0]), values[1..].iter().map(byte));
            let any = others.clone().fold(0, |any, byte| any | byte);
            match operation {
                "AND" => others.fold(first, |all, byte| all & byte),
                "OR" => first | any,
                "XOR" => others.fold(first, |odd, byte| odd ^ byte),
                "NOT" => !first,
                "DIFF" => first & !any,
                "DIFF1" => !first & any,
                "ANDOR" => first & any,
                _ => (0..8).fold(0, |one, bit| {
                    let count = values.iter().filter(|value| byte(value) >> bit & 1 == 1).count();
                    one | u8::from(count == 1) << bit
                }),
            }
        };
        let result: Vec<u8> = (0..len).map(combine).collect();
        if len == 0 {
            self.0.remove(target);
        } else {
            self.0.insert(target.to_vec(), result);
        }
        format!(":{len}\r\n")
    }

    fn copy(&mut self, source: &[u8], target: &[u8]) -> String {
        let Some(value) = self.0.get(source).cloned() else { return ":0\r\n".into() };
        self.0.insert(target.to_vec(), value);
        ":1\r\n".into()
    }

    fn rename(&mut self, source: &[u8], target: &[u8]) -> String {
        let Some(value) = self.0.remove(source) else { return "-ERR no such key\r\n".into() };
        self.0.insert(target.to_vec(), value);
        "+OK\r\n".into()
    }
}

fn noise(random: &mut SeededRandom, len: u64) -> Vec<u8> {
    let mut bytes = vec![if random.chance(0.3) { 0 } else { 0xa5 }; len as usize];
    for _ in 0..random.below(40) {
        let (at, byte) = (random.below(len) as usize, random.next_u64() as u8);
        let end = bytes.len().min(at + random.below(100_000) as usize);
        bytes[at..end].fill(byte);
    }
    bytes
}

#[test]
fn large_values_are_made_of_others_with_one_piece_in_memory() {
    for (seed, shards) in [(1, 1), (2, 2), (3, 3)] {
        let mut server = fetching(seed, shards);
        let id = server.connect();
        let mut random = SeededRandom::new(seed);
        let mut model = Strings::default();
        for (key, len) in [(&b"a"[..], 2_500_000), (b"b", 1_300_001), (b"c", 700_000), (b"d", 20)] {
            let value = noise(&mut random, len);
            server.raw(id, &[b"SET", key, &value]);
            model.0.insert(key.to_vec(), value);
        }
        forget_held(&mut server);
        for operation in ["AND", "OR", "XOR", "DIFF", "DIFF1", "ANDOR", "ONE"] {
            let words: [&[u8]; 8] = [b"BITOP", operation.as_bytes(), b"e", b"a", b"b", b"none", b"c", b"d"];
            let expected = model.combine(operation, b"e", &words[3..]);
            assert_eq!(server.raw(id, &words), expected.as_bytes(), "{operation}");
            assert!(server.call(id, &[b"GET", b"e"]).bytes() == Some(&model.get(b"e")), "{operation}");
        }
        // A source may be the target.
        let expected = model.combine("NOT", b"a", &[b"a"]);
        assert_eq!(server.raw(id, &[b"BITOP", b"NOT", b"a", b"a"]), expected.as_bytes());
        let expected = model.copy(b"a", b"f");
        assert_eq!(server.raw(id, &[b"COPY", b"a", b"f"]), expected.as_bytes());
        assert_eq!(server.raw(id, &[b"COPY", b"a", b"b"]), b":0\r\n", "the target is there");
        assert_eq!(server.raw(id, &[b"RENAMENX", b"a", b"b"]), b":0\r\n", "the target is there");
        let expected = model.rename(b"a", b"g");
        assert_eq!(server.raw(id, &[b"RENAME", b"a", b"g"]), expected.as_bytes());
        assert_eq!(server.raw(id, &[b"RENAME", b"a", b"g"]), b"-ERR no such key\r\n");
        model.rename(b"b", b"{g}h");
        assert_eq!(server.raw(id, &[b"RENAMENX", b"b", b"{g}h"]), b":1\r\n");
        model.rename(b"{g}h", b"{g}i");
        assert_eq!(server.raw(id, &[b"RENAME", b"{g}h", b"{g}i"]), b"+OK\r\n");
        // Longer arguments than what is changed where it lies.
        let long = noise(&mut random, 4_500_000);
        for key in [&b"f"[..], b"c", b"d", b"new"] {
            let expected = model.overwrite(key, model.get(key).len(), &long);
            let answer = upload(&mut server, id, &[b"APPEND", key], &long, &[]);
            assert_eq!(answer, expected.as_bytes());
            let expected = model.overwrite(key, 123_457, &long);
            let answer = upload(&mut server, id, &[b"SETRANGE", key, b"123457"], &long, &[]);
            assert_eq!(answer, expected.as_bytes());
        }
        for (key, value) in &model.0 {
            assert!(
                server.call(id, &[b"GET", key]).bytes() == Some(value),
                "{}",
                String::from_utf8_lossy(key)
            );
        }
        assert_eq!(server.call(id, &[b"DBSIZE"]).integer(), Some(model.0.len() as i64));
        // To another database and back.
        assert_eq!(server.raw(id, &[b"MOVE", b"f", b"1"]), b":1\r\n");
        assert_eq!(server.raw(id, &[b"MOVE", b"f", b"1"]), b":0\r\n");
        assert_eq!(server.raw(id, &[b"COPY", b"g", b"g", b"DB", b"1"]), b":1\r\n");
        server.raw(id, &[b"SELECT", b"1"]);
        for key in [&b"f"[..], b"g"] {
            assert!(server.call(id, &[b"GET", key]).bytes() == Some(&model.get(key)));
        }
        assert!(held_max(&server) <= HELD_MAX, "{shards} shards: {} records at a time", held_max(&server));
        server.raw(id, &[b"DEL", b"f", b"g"]);
        server.raw(id, &[b"SELECT", b"0"]);
        let keys: Vec<Vec<u8>> = model.0.into_keys().collect();
        keys.iter().for_each(|key| drop(server.raw(id, &[b"DEL", key])));
        assert_all_given_back(&mut server, "deleted");
        assert_none_held(&server, FetchingEngine::held);
    }
}

#[test]
fn expiries_go_with_copied_and_renamed_large_values() {
    for shards in [1, 3] {
        let mut server = fetching(9, shards);
        let id = server.connect();
        server.raw(id, &[b"SET", b"a", &runs(1_500_000), b"PX", b"50000"]);
        server.check(id, &[("COPY a b", ":1"), ("RENAME a c", "+OK"), ("RENAME c {c}d", "+OK")]);
        for key in ["b", "{c}d"] {
            let left = server.call(id, &[b"PTTL", key.as_bytes()]).integer().unwrap();
            assert!((1..=50_000).contains(&left), "{key}: {left}");
        }
        server.now.wall_ms += 60_000;
        server.check(id, &[("EXISTS a b c {c}d", ":0")]);
        // The ledger's deadlines are looked at one after the other.
        (0..1_000).for_each(|_| server.step());
        assert_all_given_back(&mut server, "expired");
        server.check(id, &[("DBSIZE", ":0")]);
    }
}

#[test]
fn large_values_that_expire_together_go_together_though_all_must_be_read_first() {
    let mut server = fetching(10, 1);
    let id = server.connect();
    for number in 0..300 {
        let key = format!("k{number}");
        server.raw(id, &[b"SET", key.as_bytes(), &vec![7; 100_000], b"PX", b"50000"]);
    }
    assert_eq!(chunks(&server), 600);
    server.now.wall_ms += 60_000;
    let mut steps = 0;
    while chunks(&server) > 0 {
        server.step();
        steps += 1;
    }
    // A step is a tenth of a millisecond. One after the other, each with rests of two, took tens of thousands.
    assert!(steps < 4_000, "{steps} steps");
    assert_all_given_back(&mut server, "expired");
    assert_none_held(&server, FetchingEngine::held);
}

/// One request and its answer, while others may still wait for theirs.
fn ask(server: &mut Server<FetchingEngine>, id: u64, words: &[&[u8]]) -> Vec<u8> {
    server.send(id, words);
    loop {
        server.offer();
        server.step();
        let answer = server.take_received(id);
        if !answer.is_empty() {
            return answer;
        }
    }
}

/// Begins `words`, and steps until a part of its result was written.
fn begin(server: &mut Server<FetchingEngine>, id: u64, words: &[&[u8]]) {
    let before = chunks(server);
    server.send(id, words);
    while chunks(server) < before + 8 {
        server.offer();
        server.step();
    }
    assert!(server.take_received(id).is_empty(), "it has ended already");
}

#[test]
fn others_wait_for_a_value_that_is_being_made_and_nobody_else_does() {
    for shards in [1, 2, 3] {
        let mut server = fetching(4, shards);
        let (one, two) = (server.connect(), server.connect());
        let value = runs(9_000_000);
        server.raw(one, &[b"SET", b"a", &value]);
        server.raw(one, &[b"SET", b"z", b"old"]);
        begin(&mut server, one, &[b"RENAME", b"a", b"z"]);
        assert_eq!(ask(&mut server, two, &[b"SET", b"other", b"1"]), b"+OK\r\n");
        assert_eq!(ask(&mut server, two, &[b"GET", b"other"]), b"$1\r\n1\r\n");
        assert!(server.take_received(one).is_empty(), "{shards} shards: it has ended already");
        server.send(two, &[b"GET", b"z"]);
        server.send(two, &[b"SETRANGE", b"a", b"0", b"new"]);
        server.settle();
        assert_eq!(server.take_received(one), b"+OK\r\n");
        let answers = support::parse_all(&server.take_received(two));
        assert!(answers[0].bytes() == Some(&value), "{shards} shards: half of a RENAME was seen");
        assert_eq!(answers[1].integer(), Some(3), "it was another value's");
        server.raw(one, &[b"DEL", b"a", b"z"]);
        assert_all_given_back(&mut server, "deleted");
    }
}

#[test]
fn a_source_that_is_lost_while_it_is_copied_leaves_nothing() {
    for shards in [1, 2, 3] {
        for loss in ["expiry", "expiry at the end", "FLUSHALL", "SWAPDB 0 1"] {
            let mut server = fetching(6, shards);
            let (one, two) = (server.connect(), server.connect());
            server.raw(one, &[b"SET", b"a", &vec![7; 4_000_000], b"PX", b"50000"]);
            let before = chunks(&server);
            begin(&mut server, one, &[b"RENAME", b"a", b"z"]);
            // All of it has been read when its last chunk is the only one that is missing.
            while loss == "expiry at the end" && chunks(&server) + 1 < 2 * before {
                server.offer();
                server.step();
            }
            if loss.starts_with("expiry") {
                server.now.wall_ms += 60_000;
            } else {
                let words: Vec<&[u8]> = loss.split(' ').map(str::as_bytes).collect();
                server.send(two, &words);
            }
            server.settle();
            let answer = server.take_received(one);
            assert_eq!(answer, b"-ERR no such key\r\n", "{shards} shards: {loss}");
            server.take_received(two);
            server.check(two, &[("FLUSHALL", "+OK"), ("DBSIZE", ":0")]);
            assert_all_given_back(&mut server, loss);
            assert_none_held(&server, FetchingEngine::held);
        }
    }
}

#[test]
fn a_client_that_goes_while_its_copy_is_made_leaves_all_or_nothing() {
    for shards in [1, 2, 3] {
        let mut server = fetching(7, shards);
        let (one, two) = (server.connect(), server.connect());
        let value = runs(3_000_000);
        server.raw(one, &[b"SET", b"a", &value]);
        begin(&mut server, one, &[b"RENAME", b"a", b"z"]);
        server.disconnect(one);
        let found: Vec<bool> = [b"a", b"z"]
            .iter()
            .map(|key| server.call(two, &[b"GET", *key]).bytes() == Some(&value))
            .collect();
        assert!(found == [true, false] || found == [false, true], "{shards} shards: {found:?}");
        server.raw(two, &[b"DEL", b"a", b"z"]);
        assert_all_given_back(&mut server, "deleted");
        assert_none_held(&server, FetchingEngine::held);
    }
}

#[test]
fn random_commands_on_large_values_answer_as_on_strings_in_memory() {
    for (seed, shards) in (20..26).zip([1, 2, 3].into_iter().cycle()) {
        let trouble = Trouble { fetch: 0.3, ..Trouble::default() };
        let mut server = Server::new((0..shards).map(|shard| FetchingEngine::new(seed * 8 + shard, trouble)));
        let id = server.connect();
        let mut random = SeededRandom::new(seed);
        let mut model = Strings::default();
        let keys: [&[u8]; 5] = [b"a", b"b", b"{a}c", b"d", b"{b}e"];
        for number in 0..30 {
            let pick = |random: &mut SeededRandom| keys[random.below(5) as usize];
            let (one, two, three) = (pick(&mut random), pick(&mut random), pick(&mut random));
            let len = [20, 60_000, 900_000, 1_400_000, 2_100_000][random.below(5) as usize];
            let part = noise(&mut random, len);
            let offset = random.below(1_500_000) as usize;
            let (answer, expected) = match random.below(8) {
                0 | 1 => {
                    model.0.insert(one.to_vec(), part.clone());
                    (server.raw(id, &[b"SET", one, &part]), "+OK\r\n".into())
                }
                2 => (
                    server.raw(id, &[b"APPEND", one, &part]),
                    model.overwrite(one, model.get(one).len(), &part),
                ),
                3 => {
                    let text = offset.to_string();
                    (
                        server.raw(id, &[b"SETRANGE", one, text.as_bytes(), &part]),
                        model.overwrite(one, offset, &part),
                    )
                }
                4 if one != two => (server.raw(id, &[b"COPY", one, two, b"REPLACE"]), model.copy(one, two)),
                5 => (server.raw(id, &[b"RENAME", one, two]), model.rename(one, two)),
                6 => {
                    let ones: u32 = model.get(one).iter().map(|byte| byte.count_ones()).sum();
                    (server.raw(id, &[b"BITCOUNT", one]), format!(":{ones}\r\n"))
                }
                _ => {
                    let name =
                        ["AND", "OR", "XOR", "DIFF", "DIFF1", "ANDOR", "ONE"][random.below(7) as usize];
                    let answer = server.raw(id, &[b"BITOP", name.as_bytes(), three, one, two]);
                    (answer, model.combine(name, three, &[one, two]))
                }
            };
            assert_eq!(answer, expected.as_bytes(), "seed {seed}, request {number}");
        }
        for key in keys {
            let value = server.call(id, &[b"GET", key]);
            let expected = model.0.get(key).map(Vec::as_slice);
            assert!(value.bytes() == expected, "seed {seed}: {}", String::from_utf8_lossy(key));
        }
        keys.iter().for_each(|key| drop(server.raw(id, &[b"DEL", key])));
        assert_all_given_back(&mut server, &format!("seed {seed}"));
        assert_none_held(&server, FetchingEngine::held);
    }
}

#[test]
fn a_transaction_that_would_hold_too_much_is_refused_before_it_changes_anything() {
    for shards in [1, 3] {
        let mut server = fetching(8, shards);
        let id = server.connect();
        let value = runs(9_000_000);
        server.raw(id, &[b"SET", b"big", &value]);
        // 64 MiB are allowed; what is read twice counts twice.
        for (reads, is_taken) in [(2, true), (8, false)] {
            forget_held(&mut server);
            server.raw(id, &[b"DEL", b"small"]);
            server.raw(id, &[b"MULTI"]);
            server.raw(id, &[b"SET", b"small", b"new"]);
            (0..reads).for_each(|_| drop(server.raw(id, &[b"GET", b"big"])));
            server.raw(id, &[b"COPY", b"big", b"other"]);
            let answer = server.raw(id, &[b"EXEC"]);
            if is_taken {
                assert!(answer.starts_with(b"*4\r\n+OK\r\n$9000000\r\n"), "{shards} shards");
            } else {
                let start = b"-EXECABORT Transaction discarded: OOM command not allowed";
                assert!(answer.starts_with(start), "{shards} shards: {}", String::from_utf8_lossy(&answer));
            }
            let found = server.call(id, &[b"EXISTS", b"small", b"other"]).integer();
            assert_eq!(found, Some(if is_taken { 2 } else { 0 }), "{shards} shards");
            server.raw(id, &[b"DEL", b"other"]);
        }
        // Replies of small values count as well.
        server.raw(id, &[b"SET", b"small", &vec![b'x'; 60_000]]);
        server.raw(id, &[b"MULTI"]);
        server.raw(id, &[b"SET", b"new", b"1"]);
        (0..1_200).for_each(|_| server.send(id, &[b"GET", b"small"]));
        server.settle();
        server.take_received(id);
        assert!(server.raw(id, &[b"EXEC"]).starts_with(b"-EXECABORT Transaction discarded: OOM"));
        assert_eq!(server.call(id, &[b"EXISTS", b"new"]).integer(), Some(0), "{shards} shards");
        server.raw(id, &[b"DEL", b"big", b"small"]);
        assert_all_given_back(&mut server, "deleted");
        assert_none_held(&server, FetchingEngine::held);
    }
}

#[test]
fn queued_commands_of_all_connections_share_one_account() {
    let mut server = Server::new([tierstone_engine::map_engine::MapEngine::new(0)]);
    let ids: Vec<u64> = (0..6).map(|_| server.connect()).collect();
    let request_bytes = |server: &mut Server<_>, id: u64| {
        let info = String::from_utf8_lossy(&server.raw(id, &[b"INFO", b"memory"])).into_owned();
        let line = info.lines().find_map(|line| line.strip_prefix("request_bytes:")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let value = vec![b'v'; 900_000];
    // 64 MiB are allowed: four times fifteen and a half.
    for id in &ids[..4] {
        server.raw(*id, &[b"MULTI"]);
        (0..17).for_each(|_| assert_eq!(server.raw(*id, &[b"SET", b"key", &value]), b"+QUEUED\r\n"));
    }
    let held = request_bytes(&mut server, ids[5]);
    assert!((61_200_000..62_000_000).contains(&held), "{held}");
    server.raw(ids[4], &[b"MULTI"]);
    let mut answers = (0..9).map(|_| server.raw(ids[4], &[b"SET", b"key", &value]));
    assert!(answers.any(|answer| answer == b"-ERR the transaction takes too much memory\r\n"));
    drop(answers);
    // Nobody else is harmed: what is small is taken, and what was queued is carried out.
    server.check(ids[5], &[("MULTI", "+OK"), ("SET small 1", "+QUEUED"), ("EXEC", "*1 +OK")]);
    assert!(server.raw(ids[4], &[b"EXEC"]).starts_with(b"-EXECABORT"));
    assert!(server.raw(ids[0], &[b"EXEC"]).starts_with(b"*17\r\n+OK\r\n"));
    assert_eq!(server.raw(ids[1], &[b"DISCARD"]), b"+OK\r\n");
    server.raw(ids[2], &[b"RESET"]);
    server.disconnect(ids[3]);
    assert_eq!(request_bytes(&mut server, ids[5]), 0, "something is held for ever");
}

/// A `BITFIELD` with one step for each chunk from the first on.
fn bitfield(step: &[&[u8]], chunks: u64) -> Vec<Vec<u8>> {
    let mut words = vec![b"BITFIELD".to_vec(), b"key".to_vec()];
    for chunk in 0..chunks {
        let offset = (chunk * 65_536 * 8 + 60_000 * 8).to_string().into_bytes();
        words.extend([step[0].to_vec(), b"u8".to_vec(), offset]);
        words.extend(step[1..].iter().map(|value| value.to_vec()));
    }
    words
}

#[test]
fn fields_hold_what_they_touch_and_no_more_than_is_allowed() {
    for shards in [1, 3] {
        // Sixteen chunks.
        let mut server = limited(shards, 1 << 20);
        let id = server.connect();
        let ask = |server: &mut Server<_>, words: &[Vec<u8>]| {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            server.raw(id, &words)
        };
        let is_refused = |answer: &[u8]| answer.starts_with(b"-OOM command not allowed");
        let all = |count: usize, value: &str| {
            format!("*{count}\r\n{}", format!(":{value}\r\n").repeat(count)).into_bytes()
        };
        assert!(is_refused(&ask(&mut server, &bitfield(&[b"SET", b"1"], 40))), "{shards} shards");
        assert_eq!(server.call(id, &[b"EXISTS", b"key"]).integer(), Some(0), "it has changed nothing");
        assert_eq!(ask(&mut server, &bitfield(&[b"SET", b"1"], 10)), all(10, "0"));
        server.raw(id, &[b"DEL", b"key"]);
        // What is not there takes nothing, nor does a chunk that many fields are in.
        let last = (512 * 1024 * 1024 * 8u64 - 1).to_string();
        server.raw(id, &[b"SETBIT", b"key", last.as_bytes(), b"1"]);
        assert_eq!(ask(&mut server, &bitfield(&[b"GET"], 8_191)), all(8_191, "0"));
        server.raw(id, &[b"SET", b"key", &vec![7; 3_000_000]]);
        assert_eq!(ask(&mut server, &bitfield(&[b"GET"], 12)), all(12, "7"));
        assert!(is_refused(&ask(&mut server, &bitfield(&[b"GET"], 40))), "{shards} shards");
        let mut near = bitfield(&[b"SET", b"7"], 1);
        (0..300).for_each(|_| near.extend_from_within(2..6));
        assert_eq!(ask(&mut server, &near), all(301, "7"));
        server.raw(id, &[b"DEL", b"key"]);
        assert_all_given_back(&mut server, &format!("{shards} shards"));
    }
}
