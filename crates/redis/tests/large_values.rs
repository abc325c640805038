//! Strings in chunks: the same answers as strings in one record, only the chunks in question touched,
//! and all space given back.

use crate::support;
use crate::support::Server;
use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::large::{self, assert_all_given_back, chunks, rest, upload};
use tierstone_base::SeededRandom;
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_wire::resp::Value;

fn bytes(random: &mut SeededRandom, len: u64) -> Vec<u8> {
    // Long runs of ones and zeros, so that searches for bits go far.
    let mut bytes = vec![if random.chance(0.5) { 0 } else { 0xff }; len as usize];
    for _ in 0..random.below(6) {
        if len > 0 {
            let at = random.below(len) as usize;
            bytes[at] = random.next_u64() as u8;
        }
    }
    bytes
}

/// A length around the sizes at which something changes, with chunks of 256 bytes.
fn length(random: &mut SeededRandom) -> u64 {
    let base = [0, 20, 255, 256, 257, 511, 512, 513, 1024, 5_000, 20_000][random.below(11) as usize];
    base + random.below(3)
}

fn number(value: i64) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// A place in a value, near the end of its kind.
fn offset(random: &mut SeededRandom) -> i64 {
    length(random).saturating_sub(random.below(4)) as i64
}

fn signed(random: &mut SeededRandom) -> i64 {
    let value = length(random) as i64;
    if random.chance(0.3) { -value } else { value }
}

/// One request of several fields of a value.
fn fields(random: &mut SeededRandom, key: Vec<u8>) -> Vec<Vec<u8>> {
    let far = number(offset(random) * 8 + 5);
    let mut words = vec![b"BITFIELD".to_vec(), key, b"GET".to_vec(), b"u13".to_vec(), far.clone()];
    words.extend([b"INCRBY".to_vec(), b"i61".to_vec(), far, number(signed(random))]);
    words.extend([b"SET".to_vec(), b"u8".to_vec(), number(offset(random)), b"77".to_vec()]);
    for _ in 0..random.below(6) {
        let field = [&b"u1"[..], b"i64", b"u8"][random.below(3) as usize].to_vec();
        words.extend([b"SET".to_vec(), field, number(offset(random) * 3), number(signed(random))]);
    }
    words
}

/// One request of any string or bit command over a few keys.
fn request(random: &mut SeededRandom) -> Vec<Vec<u8>> {
    let key = |random: &mut SeededRandom| format!("{{t}}k{}", random.below(4)).into_bytes();
    let part = |random: &mut SeededRandom| {
        let len = [0, 1, 3, 256, 700][random.below(5) as usize];
        bytes(random, len)
    };
    let bit = |random: &mut SeededRandom| vec![b'0' + random.below(2) as u8];
    let (one, two) = (key(random), key(random));
    let len = length(random);
    let value = bytes(random, len);
    let words: Vec<Vec<u8>> = match random.below(37) {
        0 | 1 => vec![b"SET".to_vec(), one, value],
        2 => vec![b"SET".to_vec(), one, value, b"GET".to_vec()],
        3 => vec![b"SET".to_vec(), one, value, b"XX".to_vec(), b"KEEPTTL".to_vec()],
        4 => vec![b"SETNX".to_vec(), one, value],
        5 => vec![b"GETSET".to_vec(), one, value],
        6 => vec![b"GETDEL".to_vec(), one],
        7 => vec![b"GET".to_vec(), one],
        8 => vec![b"MGET".to_vec(), one, two, b"{t}none".to_vec()],
        9 => {
            let len = length(random);
            vec![b"MSET".to_vec(), one, value, two, bytes(random, len)]
        }
        10 => vec![b"MSETNX".to_vec(), one, value.clone(), two, value],
        36 => {
            let option = [&b"NX"[..], b"XX", b"KEEPTTL"][random.below(3) as usize].to_vec();
            vec![b"MSETEX".to_vec(), b"2".to_vec(), one, value.clone(), two, value, option]
        }
        11 | 12 => vec![b"APPEND".to_vec(), one, part(random)],
        13 => vec![b"STRLEN".to_vec(), one],
        14 | 15 => vec![b"GETRANGE".to_vec(), one, number(signed(random)), number(signed(random))],
        16 | 17 => vec![b"SETRANGE".to_vec(), one, number(offset(random)), part(random)],
        18 | 19 => vec![b"SETBIT".to_vec(), one, number(offset(random) * 8 + 3), bit(random)],
        20 => vec![b"GETBIT".to_vec(), one, number(offset(random) * 8 + 3)],
        21 => vec![b"BITCOUNT".to_vec(), one],
        22 => {
            let unit = if random.chance(0.5) { b"BIT".to_vec() } else { b"BYTE".to_vec() };
            vec![b"BITCOUNT".to_vec(), one, number(signed(random)), number(signed(random)), unit]
        }
        23 => vec![b"BITPOS".to_vec(), one, bit(random)],
        24 => vec![b"BITPOS".to_vec(), one, bit(random), number(signed(random)), number(signed(random))],
        25 => {
            let operation = ["AND", "OR", "XOR", "DIFF", "ONE"][random.below(5) as usize];
            vec![b"BITOP".to_vec(), operation.into(), key(random), one, two]
        }
        26 => vec![b"BITOP".to_vec(), b"NOT".to_vec(), two, one],
        27 => fields(random, one),
        28 => vec![b"RENAME".to_vec(), one, two],
        29 => vec![b"COPY".to_vec(), one, two, b"REPLACE".to_vec()],
        30 => vec![b"DEL".to_vec(), one, two],
        31 => vec![b"EXPIRE".to_vec(), one, b"1000".to_vec()],
        32 => vec![b"PERSIST".to_vec(), one],
        33 => vec![b"GETEX".to_vec(), one, b"EX".to_vec(), b"900".to_vec()],
        34 => vec![[&b"TYPE"[..], b"EXISTS", b"TTL", b"INCR"][random.below(4) as usize].to_vec(), one],
        _ => vec![b"SET".to_vec(), one.clone(), value.clone(), b"IFEQ".to_vec(), value],
    };
    words
}

/// Every string and bit command gives the same answers over chunks of 256 bytes as over records.
fn same_answers<E: Engine>(seed: u64, requests: usize, other: &mut Server<E>) {
    let mut random = SeededRandom::new(seed);
    let mut plain = Server::new([MapEngine::new(0)]);
    let (plain_id, other_id) = (plain.connect(), other.connect());
    let mut chunks_max = 0;
    for number in 0..requests {
        let words = request(&mut random);
        chunks_max = chunks_max.max(chunks(other));
        let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let expected = plain.raw(plain_id, &slices);
        let got = other.raw(other_id, &slices);
        let shown: Vec<String> = words
            .iter()
            .map(|word| String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned())
            .collect();
        assert!(
            got == expected,
            "seed {seed}, request {number}: {shown:?}: {} and {} bytes",
            got.len(),
            expected.len()
        );
    }
    assert!(chunks(&plain) == 0 && chunks_max > 8, "seed {seed}: the servers do not differ");
    for key in ["{t}k0", "{t}k1", "{t}k2", "{t}k3"] {
        assert_eq!(
            plain.raw(plain_id, &[b"GET", key.as_bytes()]),
            other.raw(other_id, &[b"GET", key.as_bytes()])
        );
        other.raw(other_id, &[b"DEL", key.as_bytes()]);
    }
    assert_all_given_back(other, &format!("seed {seed}"));
}

#[test]
fn chunked_strings_give_the_same_answers_as_records() {
    for seed in 0..30 {
        same_answers(seed, 300, &mut Server::with_records([MapEngine::new(0)], 256));
    }
}

#[test]
fn chunked_strings_that_must_be_fetched_give_the_same_answers_as_records() {
    for seed in 0..20 {
        let engine = FetchingEngine::new(seed, Trouble { fetch: 0.2, ..Trouble::default() });
        let mut server = Server::with_records([engine], 256);
        same_answers(seed, 120, &mut server);
        assert_eq!(server.executors[0].shard().engine().held(), 0, "seed {seed}: a record is still held");
    }
}

#[test]
fn chunked_strings_of_several_shards_give_the_same_answers_as_records() {
    for seed in 0..20 {
        let engines = (0..3).map(|shard| FetchingEngine::new(seed * 8 + shard, Trouble::default()));
        let mut server = Server::with_records(engines, 256);
        let mut plain = Server::new([MapEngine::new(0)]);
        let (plain_id, other_id) = (plain.connect(), server.connect());
        let mut random = SeededRandom::new(seed);
        for number in 0..80 {
            let mut words = request(&mut random);
            // Keys without a common tag lie on different shards.
            for word in &mut words {
                if word.starts_with(b"{t}") {
                    word.drain(..3);
                }
            }
            let is_transaction = random.chance(0.2);
            let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let mut requests: Vec<&[&[u8]]> = vec![&slices];
            if is_transaction {
                requests = vec![&[b"MULTI"], &slices, &[b"GET", b"k1"], &slices, &[b"EXEC"]];
            }
            for request in requests {
                let (expected, got) = (plain.raw(plain_id, request), server.raw(other_id, request));
                assert!(
                    got == expected,
                    "seed {seed}, request {number} of {:?}",
                    String::from_utf8_lossy(&words[0])
                );
            }
        }
        for key in ["k0", "k1", "k2", "k3"] {
            server.raw(other_id, &[b"DEL", key.as_bytes()]);
        }
        assert_all_given_back(&mut server, &format!("seed {seed}"));
    }
}

/// A string and what it must be, changed in step.
struct Model {
    server: Server<MapEngine>,
    connection: u64,
    value: Vec<u8>,
}

impl Model {
    fn new(len: usize) -> Model {
        let mut server = Server::new([MapEngine::new(0)]);
        let connection = server.connect();
        let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        assert_eq!(server.raw(connection, &[b"SET", b"big", &value]), b"+OK\r\n");
        Model { server, connection, value }
    }

    fn written(&self) -> u64 {
        self.server.executors[0].shard().engine().statistics().user_bytes_written
    }

    fn call(&mut self, words: &[&[u8]]) -> Value {
        self.server.call(self.connection, words)
    }

    fn check(&mut self, start: usize, end: usize) {
        let answer =
            self.call(&[b"GETRANGE", b"big", start.to_string().as_bytes(), (end - 1).to_string().as_bytes()]);
        assert!(answer.bytes() == Some(&self.value[start..end]), "{start}..{end} of {}", self.value.len());
    }

    fn check_whole(&mut self) {
        let answer = self.call(&[b"GET", b"big"]);
        assert!(answer.bytes() == Some(&self.value), "all of {}", self.value.len());
        assert_eq!(self.call(&[b"STRLEN", b"big"]).integer(), Some(self.value.len() as i64));
    }
}

const CHUNK: usize = 64 << 10;

#[test]
fn strings_around_the_real_chunk_size_are_what_was_written() {
    for len in [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1, 1 << 20, 100_000_000] {
        let mut model = Model::new(len);
        let count = len.div_ceil(CHUNK) as u64;
        assert_eq!(chunks(&model.server), if len > CHUNK { count } else { 0 }, "{len}");
        for (start, end) in [(0, 1), (len - 1, len), (len / 2, len / 2 + 10), (CHUNK / 2, len.min(CHUNK + 9))]
        {
            model.check(start, end);
        }
        let patch = vec![7; 1_000];
        for offset in [0, CHUNK - 500, len / 2, len - 100] {
            let answer = model.call(&[b"SETRANGE", b"big", offset.to_string().as_bytes(), &patch]);
            model.value.resize(model.value.len().max(offset + 1_000), 0);
            model.value[offset..offset + 1_000].fill(7);
            assert_eq!(answer.integer(), Some(model.value.len() as i64));
        }
        assert_eq!(model.call(&[b"APPEND", b"big", b"tail"]).integer(), Some(model.value.len() as i64 + 4));
        model.value.extend_from_slice(b"tail");
        let ones: u64 = model.value.iter().map(|byte| u64::from(byte.count_ones())).sum();
        assert_eq!(model.call(&[b"BITCOUNT", b"big"]).integer(), Some(ones as i64));
        model.check_whole();
        assert_eq!(model.call(&[b"DEL", b"big"]).integer(), Some(1));
        assert_all_given_back(&mut model.server, "deleted");
    }
}

#[test]
fn commands_on_a_part_of_a_large_string_write_only_its_chunks() {
    let mut model = Model::new(20 << 20);
    let map_bytes = 2_000;
    let cost = |model: &mut Model, words: &[&[u8]], chunks: usize| {
        let before = model.written();
        model.call(words);
        let written = model.written() - before;
        let most = (chunks * (CHUNK + 100) + map_bytes) as u64;
        assert!(written <= most, "{} wrote {written} bytes", String::from_utf8_lossy(words[0]));
    };
    cost(&mut model, &[b"GETRANGE", b"big", b"100", b"200000"], 0);
    cost(&mut model, &[b"STRLEN", b"big"], 0);
    cost(&mut model, &[b"EXPIRE", b"big", b"100"], 0);
    cost(&mut model, &[b"PERSIST", b"big"], 0);
    cost(&mut model, &[b"GETEX", b"big", b"PERSIST"], 0);
    cost(&mut model, &[b"SETRANGE", b"big", b"100", b"abc"], 1);
    cost(&mut model, &[b"SETRANGE", b"big", b"65535", b"abc"], 2);
    cost(&mut model, &[b"APPEND", b"big", b"abc"], 1);
    cost(&mut model, &[b"SETBIT", b"big", b"80000001", b"1"], 1);
    cost(&mut model, &[b"BITFIELD", b"big", b"SET", b"u8", b"0", b"1", b"SET", b"u8", b"90000000", b"1"], 2);
    // Zeros between the end and what is written are nowhere.
    cost(&mut model, &[b"SETRANGE", b"big", b"400000000", b"far"], 1);
    cost(&mut model, &[b"SETBIT", b"new", b"4294967295", b"1"], 1);
    assert_eq!(model.call(&[b"STRLEN", b"new"]).integer(), Some(512 << 20));
    assert_eq!(model.call(&[b"GETBIT", b"new", b"4294967295"]).integer(), Some(1));
    assert_eq!(model.call(&[b"GETRANGE", b"new", b"-2", b"-1"]).bytes(), Some(&[0, 1][..]));
    cost(&mut model, &[b"DEL", b"big"], 0);
}

#[test]
fn commands_on_a_part_of_a_large_string_fetch_only_its_chunks() {
    let mut server =
        Server::new([FetchingEngine::new(5, Trouble { fetch: 1.0, retry: 0.0, ..Trouble::default() })]);
    let connection = server.connect();
    server.raw(connection, &[b"SET", b"big", &vec![1; 20 << 20]]);
    let mut fetches = |words: &[&[u8]], most: u64| {
        let before = server.executors[0].shard().engine().fetches;
        server.raw(connection, words);
        let fetched = server.executors[0].shard().engine().fetches - before;
        assert!(fetched <= most, "{}: {fetched} fetches", String::from_utf8_lossy(words[0]));
    };
    // The map, and the chunks; a write looks at the map once more, for the ledger.
    fetches(&[b"STRLEN", b"big"], 1);
    fetches(&[b"GETRANGE", b"big", b"0", b"10"], 2);
    fetches(&[b"GETRANGE", b"big", b"65535", b"65536"], 3);
    fetches(&[b"GETBIT", b"big", b"80000001"], 2);
    fetches(&[b"SETBIT", b"big", b"80000001", b"0"], 3);
    fetches(&[b"SETRANGE", b"big", b"65535", b"ab"], 4);
    fetches(&[b"APPEND", b"big", b"ab"], 3);
    fetches(&[b"EXPIRE", b"big", b"100"], 2);
}

#[test]
fn the_space_of_large_strings_comes_back_however_they_end() {
    let mut model = Model::new(1 << 20);
    let other = vec![3; 300_000];
    let set = |model: &mut Model| {
        assert_eq!(model.call(&[b"SET", b"big", &other]), Value::Simple(b"OK".to_vec()));
        assert!(chunks(&model.server) >= 5);
    };
    let end = |model: &mut Model, words: &[&[u8]]| {
        model.call(words);
        assert_all_given_back(&mut model.server, &String::from_utf8_lossy(words[0]));
    };
    end(&mut model, &[b"SET", b"big", b"small"]);
    set(&mut model);
    end(&mut model, &[b"GETDEL", b"big"]);
    set(&mut model);
    end(&mut model, &[b"MSET", b"a", b"1", b"big", b"2"]);
    set(&mut model);
    model.call(&[b"EXPIRE", b"big", b"100"]);
    model.call(&[b"APPEND", b"big", b"x"]);
    model.server.now.wall_ms += 101_000;
    rest(&mut model.server);
    assert_all_given_back(&mut model.server, "expired");
    assert_eq!(model.call(&[b"DBSIZE"]).integer(), Some(1), "the owner went with its chunks");
    set(&mut model);
    model.call(&[b"EXPIRE", b"big", b"100"]);
    model.call(&[b"PERSIST", b"big"]);
    model.server.now.wall_ms += 101_000;
    rest(&mut model.server);
    assert_eq!(model.call(&[b"STRLEN", b"big"]).integer(), Some(300_000), "it was persisted");
    end(&mut model, &[b"FLUSHDB"]);
    set(&mut model);
    model.call(&[b"SWAPDB", b"0", b"1"]);
    model.call(&[b"SELECT", b"1"]);
    assert_eq!(model.call(&[b"GET", b"big"]).bytes(), Some(&other[..]), "chunks went with their database");
    end(&mut model, &[b"DEL", b"big"]);
    set(&mut model);
    model.call(&[b"PEXPIRE", b"big", b"10"]);
    model.server.now.wall_ms += 11;
    // Over an owner that has expired and is still there.
    model.server.send(model.connection, &[b"SET", b"big", b"new"]);
    model.server.offer();
    rest(&mut model.server);
    assert_all_given_back(&mut model.server, "overwritten after it expired");
    assert_eq!(model.call(&[b"GET", b"big"]).bytes().map(<[u8]>::len), Some(3));
}

#[test]
fn a_long_reply_comes_in_pieces_and_shows_the_value_as_it_was() {
    for (seed, shards) in (0..12).zip([1, 2, 3].into_iter().cycle()) {
        let engines = (0..shards)
            .map(|shard| FetchingEngine::new(seed * 8 + shard, Trouble { fetch: 0.3, ..Trouble::default() }));
        let mut server = Server::new(engines);
        let mut random = SeededRandom::new(seed);
        let (reader, writer) = (server.connect(), server.connect());
        let old: Vec<u8> = (0..3_000_000u32).map(|at| (at % 249) as u8).collect();
        server.raw(writer, &[b"SET", b"big", &old]);
        server.is_pulling = false;
        let (request, expected): (Vec<&[u8]>, &[u8]) = match seed % 4 {
            0 => (vec![b"GETRANGE", b"big", b"10", b"2500000"], &old[10..=2_500_000]),
            1 => (vec![b"GETDEL", b"big"], &old),
            _ => (vec![b"GET", b"big"], &old),
        };
        server.send(reader, &request);
        for _ in 0..200 {
            server.offer();
            server.step();
        }
        assert!(server.part_bytes_max(reader) > 0, "seed {seed}: nothing has come");
        // Others write while the reader takes its time.
        for _ in 0..8 {
            let offset = random.below(3_200_000).to_string();
            server.send(writer, &[b"SETRANGE", b"big", offset.as_bytes(), b"other bytes"]);
            server.send(writer, &[b"APPEND", b"big", b"more"]);
        }
        if seed % 3 == 0 {
            server.send(writer, &[b"SET", b"big", b"small"]);
        }
        server.is_pulling = true;
        server.settle();
        server.take_received(writer);
        let bytes = server.take_received(reader);
        let answer = support::parse_all(&bytes).pop().unwrap();
        assert!(answer.bytes() == Some(expected), "seed {seed}: the value changed while it was sent");
        assert!(server.part_bytes_max(reader) < 600_000, "seed {seed}: a piece was too long");
        server.raw(writer, &[b"DEL", b"big"]);
        assert_all_given_back(&mut server, &format!("seed {seed}"));
        let held: usize = server.executors.iter().map(|executor| executor.shard().engine().held()).sum();
        assert_eq!(held, 0, "seed {seed}: a record is still held");
    }
}

#[test]
fn a_reader_that_goes_in_the_middle_of_a_reply_leaves_nothing() {
    for shards in [1, 2, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let ids: Vec<u64> = (0..shards).map(|_| server.connect()).collect();
        server.raw(ids[0], &[b"SET", b"big", &vec![9; 3_000_000]]);
        server.is_pulling = false;
        for id in &ids {
            server.send(*id, &[b"MGET", b"big", b"big"]);
        }
        (0..50).for_each(|_| {
            server.offer();
            server.step();
        });
        ids.iter().for_each(|id| server.disconnect(*id));
        let last = server.connect();
        server.raw(last, &[b"SETRANGE", b"big", b"2999999", b"ab"]);
        server.raw(last, &[b"DEL", b"big"]);
        assert_all_given_back(&mut server, &format!("{shards} shards"));
        server.executors.iter().for_each(|executor| assert_eq!(executor.suspended(), 0));
    }
}

#[test]
fn uploaded_arguments_are_like_others() {
    for (seed, shards) in (0..9).zip([1, 2, 3].into_iter().cycle()) {
        let engines = (0..shards).map(|shard| FetchingEngine::new(seed * 8 + shard, Trouble::default()));
        let mut server = Server::with_records(engines, 4096);
        let mut random = SeededRandom::new(seed);
        let id = server.connect();
        let value = |random: &mut SeededRandom| {
            let len = 200_000 + random.below(100_000);
            bytes(random, len)
        };
        for key in [&b"one"[..], b"two", b"three"] {
            let (first, second) = (value(&mut random), value(&mut random));
            let get = |server: &mut Server<_>, wanted: &[u8]| {
                assert!(server.call(id, &[b"GET", key]).bytes() == Some(wanted), "seed {seed}");
            };
            assert_eq!(upload(&mut server, id, &[b"SET", key], &first, &[b"EX", b"100"]), b"+OK\r\n");
            get(&mut server, &first);
            assert_eq!(upload(&mut server, id, &[b"SET", key], &second, &[b"NX"]), b"$-1\r\n");
            get(&mut server, &first);
            assert_eq!(upload(&mut server, id, &[b"SETNX", key], &second, &[]), b":0\r\n");
            let expected = format!(":{}\r\n", first.len() + second.len());
            assert_eq!(upload(&mut server, id, &[b"APPEND", key], &second, &[]), expected.as_bytes());
            let mut whole = [&first[..], &second].concat();
            get(&mut server, &whole);
            let answer = upload(&mut server, id, &[b"SETRANGE", key, b"777"], &first, &[]);
            assert_eq!(answer, expected.as_bytes());
            whole[777..777 + first.len()].copy_from_slice(&first);
            get(&mut server, &whole);
            upload(&mut server, id, &[b"MSET", b"four", b"4", key], &second, &[b"five", b"5"]);
            get(&mut server, &second);
            let answer =
                upload(&mut server, id, &[b"MSETEX", b"2", b"four", b"4", key], &first, &[b"EX", b"9"]);
            assert_eq!(answer, b":1\r\n");
            get(&mut server, &first);
            let answer = upload(&mut server, id, &[b"MSETEX", b"2", b"four", b"4", key], &second, &[b"NX"]);
            assert_eq!(answer, b":0\r\n");
            upload(&mut server, id, &[b"MSETEX", b"1", key], &second, &[]);
            get(&mut server, &second);
            server.raw(id, &[b"MULTI"]);
            assert_eq!(upload(&mut server, id, &[b"GETSET", key], &first, &[]), b"+QUEUED\r\n");
            server.raw(id, &[b"DISCARD"]);
            get(&mut server, &second);
            server.raw(id, &[b"MULTI"]);
            assert_eq!(upload(&mut server, id, &[b"SET", key], &first, &[]), b"+QUEUED\r\n");
            assert_eq!(server.raw(id, &[b"RESET"]), b"+RESET\r\n");
            get(&mut server, &second);
            server.raw(id, &[b"MULTI"]);
            upload(&mut server, id, &[b"SET", key], &first, &[]);
            server.send(id, &[b"APPEND", key, b"!"]);
            assert!(server.raw(id, &[b"EXEC"]).starts_with(b"+QUEUED\r\n*2\r\n+OK\r\n:"));
            get(&mut server, &[&first[..], b"!"].concat());
        }
        server.raw(id, &[b"SELECT", b"3"]);
        upload(&mut server, id, &[b"SET", b"other"], &value(&mut random), &[]);
        server.raw(id, &[b"FLUSHALL"]);
        assert_all_given_back(&mut server, &format!("seed {seed}"));
        let held: usize = server.executors.iter().map(|executor| executor.shard().engine().held()).sum();
        assert_eq!(held, 0, "seed {seed}: a record is still held");
    }
}

#[test]
fn an_upload_whose_database_is_emptied_is_refused_in_plain_words() {
    for shards in [1, 2, 3] {
        let mut server = Server::with_records((0..shards).map(|_| MapEngine::new(0)), 4096);
        let (id, other) = (server.connect(), server.connect());
        let value = vec![7; 200_000];
        let args = large::staged(&mut server, id, &[b"SET", b"key"], &value, &[]);
        assert_eq!(server.line(other, "SWAPDB 0 1"), "+OK");
        server.send_owned(id, args);
        server.settle();
        assert_eq!(server.take_received(id), b"+OK\r\n", "where databases change places it is brought along");
        let args = large::staged(&mut server, id, &[b"SET", b"key"], &value, &[]);
        assert_eq!(server.line(other, "FLUSHDB"), "+OK");
        server.send_owned(id, args);
        server.settle();
        let answer = String::from_utf8(server.take_received(id)).unwrap();
        assert!(answer.starts_with("-ERR the database was emptied while the value came"), "{answer}");
        assert_eq!(server.line(id, "EXISTS key"), ":0");
        assert_eq!(upload(&mut server, id, &[b"SET", b"key"], &value, &[]), b"+OK\r\n");
        server.raw(id, &[b"FLUSHALL"]);
        assert_all_given_back(&mut server, &format!("{shards} shards"));
    }
}

#[test]
fn an_upload_whose_connection_goes_leaves_nothing() {
    for shards in [1, 2] {
        let mut server = Server::with_records((0..shards).map(|_| MapEngine::new(0)), 4096);
        for number in 0..4 {
            let id = server.connect();
            let key = format!("key{number}");
            let args: tierstone_redis::OwnedArgs = [&b"SET"[..], key.as_bytes()].into_iter().collect();
            let (now, shard) = (server.now, server.shard_of(id));
            let begun = server.executors[shard].begin_upload(now, id, &args, 100_000);
            let tierstone_redis::Begun::Upload(ticket) = begun else { panic!("{begun:?}") };
            server.executors[shard].feed_upload(now, ticket, &[1; 50_000]);
            (0..number).for_each(|_| server.step());
            server.disconnect(id);
        }
        assert_all_given_back(&mut server, &format!("{shards} shards"));
    }
}

#[test]
fn nothing_of_a_long_reply_is_sent_to_who_wants_none() {
    for shards in [1, 3] {
        for fetch in [0.0, 0.5] {
            let trouble = Trouble { fetch, ..Trouble::default() };
            let mut server = Server::new((0..shards).map(|shard| FetchingEngine::new(shard, trouble)));
            let ids: Vec<u64> = (0..shards).map(|_| server.connect()).collect();
            let reads: [&[&[u8]]; 7] = [
                &[b"GET", b"big"],
                &[b"GETRANGE", b"big", b"1", b"-1"],
                &[b"MGET", b"big", b"a", b"b", b"c"],
                &[b"BITPOS", b"big", b"1"],
                &[b"BITCOUNT", b"big"],
                &[b"SET", b"big", b"small", b"GET"],
                &[b"GETDEL", b"big"],
            ];
            for (id, words) in ids.iter().flat_map(|id| reads.iter().map(|words| (*id, *words))) {
                let place = format!("{shards} shards, {}", String::from_utf8_lossy(words[0]));
                server.raw(id, &[b"SET", b"big", &vec![9; 5_000_000]]);
                server.raw(id, &[b"SET", b"a", b"1"]);
                for request in [&[&b"CLIENT"[..], b"REPLY", b"OFF"], words, &[b"CLIENT", b"REPLY", b"ON"]] {
                    server.send(id, request);
                }
                let got = server.raw(id, &[b"PING"]);
                assert!(got == b"+OK\r\n+PONG\r\n", "{place}: {} bytes", got.len());
                server.raw(id, &[b"SET", b"big", &vec![9; 5_000_000]]);
                server.send(id, &[b"CLIENT", b"REPLY", b"SKIP"]);
                server.send(id, words);
                let got = server.raw(id, &[b"PING"]);
                assert!(got == b"+PONG\r\n", "{place}: {} bytes", got.len());
                assert_eq!(server.part_bytes_max(id), 0, "{place}: a piece was sent");
            }
            server.raw(ids[0], &[b"DEL", b"big"]);
            assert_all_given_back(&mut server, &format!("{shards} shards"));
            server.executors.iter().for_each(|executor| assert_eq!(executor.suspended(), 0));
            let held: usize = server.executors.iter().map(|executor| executor.shard().engine().held()).sum();
            assert_eq!(held, 0, "{shards} shards: a record is still held");
        }
    }
}
