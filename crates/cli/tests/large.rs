//! Large values through a real server: sent and taken in pieces, with bounded memory, and killed on
//! the way.

use crate::common;
use crate::common::{Folder, PATIENCE, Server, ask, seed};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use tierstone_base::{Clock, SeededRandom, SystemClock};
use tierstone_client::Value;

const MIB: usize = 1 << 20;
const LEN: usize = 64 * MIB;

fn settings(shards: &str) -> [&str; 6] {
    ["--capacity", "1GiB", "--memory", "64MiB", "--shards", shards]
}

/// A connection that sends and takes bytes as the test likes.
struct Plain {
    input: BufReader<TcpStream>,
    output: TcpStream,
}

impl Plain {
    fn new(server: &Server) -> Plain {
        let output = TcpStream::connect(server.address).expect("the server takes a connection");
        output.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        let input = BufReader::with_capacity(MIB, output.try_clone().expect("the socket is shared"));
        Plain { input, output }
    }

    /// Begins `SET key` of `len` bytes.
    fn begin_set(&mut self, key: &str, len: usize) {
        let header = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len());
        self.output.write_all(header.as_bytes()).expect("it is sent");
    }

    fn set(&mut self, key: &str, byte: u8, len: usize) {
        self.begin_set(key, len);
        let block = vec![byte; MIB];
        (0..len / MIB).for_each(|_| self.output.write_all(&block).expect("it is sent"));
        self.output.write_all(b"\r\n").expect("it is sent");
        assert_eq!(self.line(), "+OK");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.input.read_line(&mut line).expect("an answer comes");
        line.trim_end().to_owned()
    }

    /// The only byte of which the value of `key` consists, and its length.
    fn get(&mut self, key: &str) -> Option<(u8, usize)> {
        let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        self.output.write_all(request.as_bytes()).expect("it is sent");
        self.value()
    }

    /// The only byte of which the value that comes consists, and its length.
    fn value(&mut self) -> Option<(u8, usize)> {
        let header = self.line();
        let len = header.strip_prefix('$').and_then(|len| len.parse::<usize>().ok())?;
        let (mut left, mut block, mut byte) = (len, vec![0; MIB], None);
        while left > 0 {
            let part = &mut block[..left.min(MIB)];
            self.input.read_exact(part).expect("the value comes");
            let first = *byte.get_or_insert(part[0]);
            assert!(part.iter().all(|other| *other == first), "the value is torn");
            left -= part.len();
        }
        assert_eq!(self.line(), "");
        Some((byte.unwrap_or_default(), len))
    }
}

/// The most memory that the process has had, in bytes.
fn peak_bytes(server: &Server) -> u64 {
    let process = server.info("process_id");
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

/// Waits until the live data of all shards is below `bytes`.
fn await_live_below(server: &Server, bytes: u64) {
    let clock = SystemClock::new();
    let until_us = clock.now().monotonic_us + PATIENCE.as_micros() as u64;
    loop {
        let live = server.info_of_any("space_live_bytes");
        if live < bytes {
            return;
        }
        assert!(clock.now().monotonic_us < until_us, "{live} bytes are live for ever");
        assert_eq!(ask(&mut server.connect(), &[b"DEBUG", b"SLEEP", b"0.05"]), Value::Simple(b"OK".to_vec()));
    }
}

#[test]
fn a_large_value_takes_little_memory_on_its_way_in_and_out() {
    for shards in ["1", "3"] {
        let folder = Folder::new();
        let server = Server::start(&folder, &settings(shards));
        let mut plain = Plain::new(&server);
        for (key, byte) in [("one", 1), ("two", 2), ("three", 3)] {
            plain.set(key, byte, 2 * LEN);
            assert_eq!(plain.get(key), Some((byte, 2 * LEN)));
            assert_eq!(ask(&mut server.connect(), &[b"DEL", key.as_bytes()]).integer(), Some(1));
        }
        let peak = peak_bytes(&server);
        // The budget of 64 MiB, buffers of the engine and of sockets, the program itself.
        assert!(peak < 128 << 20, "{shards} shards: {peak} bytes for values of {} bytes", 2 * LEN);
        await_live_below(&server, 8 << 20);
        server.stop();
    }
}

#[test]
fn a_value_of_512_mib_goes_in_and_out_of_64_mib_of_memory() {
    let folder = Folder::new();
    let server = Server::start(&folder, &["--capacity", "2GiB", "--memory", "64MiB", "--shards", "1"]);
    let mut plain = Plain::new(&server);
    plain.set("largest", 7, 8 * LEN);
    assert_eq!(plain.get("largest"), Some((7, 8 * LEN)));
    assert_eq!(ask(&mut server.connect(), &[b"STRLEN", b"largest"]).integer(), Some((8 * LEN) as i64));
    let peak = peak_bytes(&server);
    assert!(peak < 128 << 20, "{peak} bytes");
    server.stop();
}

#[test]
fn a_large_value_may_expire_beyond_all_times() {
    let folder = Folder::new();
    let server = Server::start(&folder, &settings("1"));
    let mut connection = server.connect();
    let value = vec![b'v'; 200_000];
    for ms in ["1000000000000000", "1000000000000000000", "9000000000000000000"] {
        assert!(ask(&mut connection, &[b"PSETEX", b"key", ms.as_bytes(), &value]).is_ok());
        assert_eq!(ask(&mut connection, &[b"STRLEN", b"key"]).integer(), Some(200_000), "{ms}");
    }
    assert!(ask(&mut connection, &[b"PSETEX", b"key", b"1", &value]).is_ok());
    let is_gone = (0..1_000_000).any(|_| ask(&mut connection, &[b"GET", b"key"]).bytes().is_none());
    assert!(is_gone, "it does not expire any more");
    server.stop();
}

#[test]
fn large_and_small_replies_of_a_pipeline_follow_each_other() {
    let folder = Folder::new();
    let server = Server::start(&folder, &settings("2"));
    let mut client = Plain::new(&server);
    for number in 0..6u8 {
        client.set(&format!("large:{number}"), b'a' + number, 3 * MIB);
        client.set(&format!("middle:{number}"), b'A' + number, MIB);
    }
    // Everything is asked for before anything is taken: replies wait behind parts of others.
    let keys: Vec<(String, u8, usize)> = (0..60u8)
        .map(|number| match number % 3 {
            0 => (format!("large:{}", number % 6), b'a' + number % 6, 3 * MIB),
            _ => (format!("middle:{}", number % 6), b'A' + number % 6, MIB),
        })
        .collect();
    for (key, ..) in &keys {
        let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        client.output.write_all(request.as_bytes()).expect("it is sent");
    }
    for (key, byte, len) in keys {
        assert_eq!(client.value(), Some((byte, len)), "{key}");
    }
}

#[test]
fn a_limit_on_values_is_told_before_their_bytes_come() {
    let folder = Folder::new();
    let server = Server::start(&folder, &settings("1"));
    assert_eq!(
        ask(&mut server.connect(), &[b"CONFIG", b"SET", b"proto-max-bulk-len", b"2mb"]),
        Value::Simple(b"OK".to_vec())
    );
    let mut plain = Plain::new(&server);
    plain.begin_set("key", 3 * MIB);
    assert_eq!(plain.line(), "-ERR Protocol error: invalid bulk length");
    let mut plain = Plain::new(&server);
    plain.set("key", 7, 2 * MIB);
    assert_eq!(plain.get("key"), Some((7, 2 * MIB)));
    // A command that takes no uploads gets its argument whole, up to a limit of its own.
    plain.output.write_all(b"*2\r\n$4\r\nECHO\r\n$67108865\r\n").expect("it is sent");
    assert_eq!(plain.line(), "-ERR Protocol error: invalid bulk length");
}

#[test]
fn a_kill_during_a_large_set_leaves_the_old_value_or_the_new_one() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut allowed: Vec<Option<(u8, usize)>> = vec![None];
    for round in 0..6u8 {
        let shards = ["1", "2", "3"][usize::from(round) % 3];
        let mut server = Server::start(&folder, &settings(shards));
        let mut plain = Plain::new(&server);
        let found = plain.get("key");
        assert!(allowed.contains(&found), "seed {seed}, round {round}: {found:?} of {allowed:?}");
        await_live_below(&server, if found.is_some() { 80 << 20 } else { 8 << 20 });
        if round == 0 {
            plain.set("key", 100, LEN);
        }
        let old = if round == 0 { Some((100, LEN)) } else { found };
        allowed = vec![old, Some((round, LEN))];
        plain.begin_set("key", LEN);
        // Sometimes all of it is sent, and the answer has not come.
        let blocks = random.below(LEN as u64 / MIB as u64 + 8) as usize;
        let block = vec![round; MIB];
        (0..blocks.min(LEN / MIB)).for_each(|_| plain.output.write_all(&block).expect("it is sent"));
        if blocks >= LEN / MIB {
            plain.output.write_all(b"\r\n").expect("it is sent");
        }
        server.kill();
    }
    let server = Server::start(&folder, &settings("1"));
    let mut plain = Plain::new(&server);
    let found = plain.get("key");
    assert!(allowed.contains(&found), "seed {seed}, at the end: {found:?} of {allowed:?}");
    assert_eq!(ask(&mut server.connect(), &[b"DEL", b"key"]).integer(), Some(1));
    await_live_below(&server, 8 << 20);
    server.stop();
}

#[test]
fn commands_that_go_through_large_values_of_one_shard_take_little_memory() {
    go_through_large_values("1");
}

#[test]
fn commands_that_go_through_large_values_of_several_shards_take_little_memory() {
    go_through_large_values("3");
}

fn go_through_large_values(shards: &str) {
    let folder = Folder::new();
    let server = Server::start(&folder, &settings(shards));
    let mut plain = Plain::new(&server);
    plain.set("one", 0x0f, LEN);
    let mut connection = server.connect();
    let mut number = |words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let answer = ask(&mut connection, &words);
        answer.integer().unwrap_or_else(|| panic!("{words:?}: {answer:?}"))
    };
    let len = LEN as i64;
    assert_eq!(number(&["BITCOUNT", "one"]), 4 * len);
    assert_eq!(number(&["BITPOS", "one", "1", "-9"]), (len - 9) * 8 + 4);
    assert_eq!(number(&["BITOP", "NOT", "two", "one"]), len);
    assert_eq!(number(&["BITOP", "XOR", "three", "one", "two"]), len);
    assert_eq!(number(&["COPY", "three", "four"]), 1);
    assert_eq!(number(&["RENAMENX", "two", "five"]), 1);
    assert_eq!(number(&["MOVE", "one", "1"]), 1);
    assert_eq!(number(&["DEL", "three"]), 1);
    assert_eq!(plain.get("four"), Some((0xff, LEN)));
    assert_eq!(plain.get("five"), Some((0xf0, LEN)));
    // Longer than what is changed where it lies.
    let header = format!("*3\r\n$6\r\nAPPEND\r\n$4\r\nfour\r\n${}\r\n", 8 * MIB);
    plain.output.write_all(header.as_bytes()).expect("it is sent");
    (0..8).for_each(|_| plain.output.write_all(&vec![0xff; MIB]).expect("it is sent"));
    plain.output.write_all(b"\r\n").expect("it is sent");
    assert_eq!(plain.line(), format!(":{}", LEN + 8 * MIB));
    assert_eq!(plain.get("four"), Some((0xff, LEN + 8 * MIB)));
    // The budget, and half as much: buffers of the engine and of sockets, what goes between shards, the program.
    let peak = peak_bytes(&server);
    assert!(peak < 116 << 20, "{peak} bytes for values of {LEN} bytes");
    assert_eq!(number(&["DEL", "four", "five"]), 2);
    await_live_below(&server, 72 << 20);
    server.stop();
}

#[test]
fn a_kill_during_a_rename_of_a_large_value_leaves_it_under_one_name() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut name = "one";
    for round in 0..6u8 {
        let shards = ["1", "2", "3"][usize::from(round) % 3];
        let mut server = Server::start(&folder, &settings(shards));
        let mut plain = Plain::new(&server);
        if round == 0 {
            plain.set("one", 77, LEN);
        }
        let found = [plain.get("one"), plain.get("two")];
        let names = found.iter().filter(|found| **found == Some((77, LEN))).count();
        let others = found.iter().filter(|found| found.is_none()).count();
        assert_eq!((names, others), (1, 1), "seed {seed}, round {round}: {found:?}");
        name = if found[0].is_some() { "one" } else { "two" };
        await_live_below(&server, 72 << 20);
        let target = if name == "one" { "two" } else { "one" };
        let request = format!("*3\r\n$6\r\nRENAME\r\n$3\r\n{name}\r\n$3\r\n{target}\r\n");
        plain.output.write_all(request.as_bytes()).expect("it is sent");
        let mut other = server.connect();
        for _ in 0..random.below(120) {
            assert!(ask(&mut other, &[b"SET", b"small", b"value"]).is_ok());
        }
        server.kill();
    }
    let server = Server::start(&folder, &settings("1"));
    let mut plain = Plain::new(&server);
    let found = [plain.get("one"), plain.get("two")];
    assert!(found.contains(&None) && found.contains(&Some((77, LEN))), "seed {seed}: {found:?} after {name}");
    await_live_below(&server, 72 << 20);
    server.stop();
}

/// Sends as much of `bytes` as goes at once.
fn send_what_goes(socket: &mut TcpStream, bytes: &[u8]) -> usize {
    socket.set_nonblocking(true).expect("it does not block");
    let mut sent = 0;
    while let Ok(count) = socket.write(&bytes[sent..])
        && count > 0
    {
        sent += count;
    }
    socket.set_nonblocking(false).expect("it blocks again");
    sent
}

#[test]
fn a_large_value_after_a_flush_of_an_ordered_store_survives_restarts() {
    for (flush, kills) in [("FLUSHDB", false), ("FLUSHALL", true)] {
        let folder = Folder::new();
        let settings =
            ["--index", "ordered", "--shards", "2", "--capacity", "64MiB", "--segment-size", "1MiB"];
        let value = vec![9; 100_000];
        let mut server = Server::start(&folder, &settings);
        let mut connection = server.connect();
        let requests: [&[&[u8]]; 3] =
            [&[b"SET", b"gone", &value], &[flush.as_bytes()], &[b"SET", b"big", &value]];
        for request in requests {
            assert!(ask(&mut connection, request).is_ok(), "{flush}");
        }
        if kills {
            server.kill();
            server.wait();
        } else {
            server.stop();
        }
        // With as many shards, and with others.
        for shards in ["2", "1"] {
            let server = Server::start(&folder, &[&settings[..3], &[shards], &settings[4..]].concat());
            let mut connection = server.connect();
            assert_eq!(ask(&mut connection, &[b"GET", b"big"]), Value::Bulk(value.clone()), "{flush}");
            assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(1), "{flush}");
            server.stop();
        }
    }
}

#[test]
fn many_half_finished_requests_stay_within_the_budget_and_harm_nobody() {
    for driver in common::drivers() {
        let folder = Folder::new();
        let server = Server::start(&folder, &[&settings("1")[..], &["--driver", driver]].concat());
        let request = [&b"*2\r\n$4\r\nECHO\r\n$1000000\r\n"[..], &vec![b'x'; 1_000_000], b"\r\n"].concat();
        let mut sockets: Vec<(TcpStream, usize)> = (0..250)
            .map(|_| {
                let mut socket = TcpStream::connect(server.address).expect("the server takes a connection");
                socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
                let sent = send_what_goes(&mut socket, &request[..990_000]);
                (socket, sent)
            })
            .collect();
        let mut small = server.connect();
        for number in 0..200u32 {
            let key = number.to_string();
            assert!(ask(&mut small, &[b"SET", key.as_bytes(), b"value"]).is_ok());
        }
        // An eighth of the budget, and as much for those that go on; of each connection what counts as small
        // and the one piece that showed that it is not, 16 KiB each; and what the buffers of a ring, 2 MiB,
        // held in the turn in which memory got short and in the next one.
        let (held, most) = (server.info("connection_bytes"), server.info("connection_bytes_max"));
        assert_eq!(most, 8 << 20);
        assert!(held > 4 << 20, "{driver}: the test holds {held} bytes only");
        assert!(held < 2 * most + 250 * (32 << 10) + (4 << 20), "{driver}: {held} bytes are held");
        let peak = peak_bytes(&server);
        assert!(peak < 128 << 20, "{driver}: {peak} bytes, 250 MB were begun");
        // When the others go, or are found to send nothing more, one of those that wait is served.
        let (mut last, sent) = sockets.pop().expect("there are many");
        drop(sockets.drain(..sockets.len() - 12));
        last.write_all(&request[sent..]).expect("it is taken in the end");
        let mut answer = vec![0; 1_000_012];
        last.read_exact(&mut answer).expect("it is answered");
        assert!(answer.starts_with(b"$1000000\r\nxxx"));
        assert!(peak_bytes(&server) < 128 << 20, "{driver}: in the end");
        drop(sockets);
        server.stop();
    }
}

/// The start of an MSET of `count` keys, and its pairs with values of these lengths.
fn mset(count: usize, lens: &[usize]) -> Vec<u8> {
    let mut request = format!("*{}\r\n$4\r\nMSET\r\n", 2 * count + 1).into_bytes();
    for (number, len) in lens.iter().enumerate() {
        let key = format!("key {number}");
        write!(request, "${}\r\n{key}\r\n${len}\r\n", key.len()).expect("it is in memory");
        request.extend(std::iter::repeat_n(number as u8, *len));
        request.extend_from_slice(b"\r\n");
    }
    request
}

#[test]
fn short_values_of_a_request_beside_long_ones_are_counted_and_bounded() {
    let folder = Folder::new();
    let server = Server::start(&folder, &settings("1"));
    let mut plain = Plain::new(&server);
    // A value of 1 MiB is kept until the request is whole, a longer one goes on its way.
    let fits = [MIB, MIB, MIB, 2 * MIB, 0, MIB + 1];
    plain.output.write_all(&mset(fits.len(), &fits)).expect("it is sent");
    assert_eq!(plain.line(), "+OK");
    for (number, len) in fits.iter().enumerate().filter(|(_, len)| **len > 0) {
        assert_eq!(plain.get(&format!("key {number}")), Some((number as u8, *len)));
    }
    let most = server.info("request_bytes_max");
    assert_eq!(most, 8 << 20);
    let mut large = vec![MIB; 6];
    large.push(MIB + 1);
    large.extend([MIB; 6]);
    large.extend([MIB + 1, MIB, 2 * MIB, 1]);
    plain.output.write_all(&mset(large.len(), &large)).expect("it is sent");
    let refused = plain.line();
    assert!(
        refused.starts_with("-OOM ") && refused.contains("arguments of the request take too"),
        "{refused}"
    );
    assert_eq!(plain.get("key 0"), Some((0, MIB)), "nothing of it was done");
    assert_eq!(plain.get("key 6"), None);
    // Those that never end hold their part of the bound, and no more, until they go.
    let half = mset(8, &[MIB, MIB]);
    let mut others: Vec<Plain> = (0..8).map(|_| Plain::new(&server)).collect();
    for other in &mut others {
        other.output.write_all(&half).expect("it is sent");
        other.output.write_all(b"$5\r\nthird\r\n$1048577\r\n").expect("it is sent");
        other.output.write_all(&[b'x'; 200_000]).expect("it is sent");
    }
    let clock = SystemClock::new();
    let until_us = clock.now().monotonic_us + PATIENCE.as_micros() as u64;
    let await_held = |least: u64, highest: u64| {
        while !(least..=highest).contains(&server.info("request_bytes")) {
            assert!(clock.now().monotonic_us < until_us, "{} bytes are held", server.info("request_bytes"));
        }
    };
    await_held(6 << 20, most);
    drop(others);
    await_held(0, 0);
    let peak = peak_bytes(&server);
    assert!(peak < 128 << 20, "{peak} bytes");
    server.stop();
}
