//! Large values through a real server: sent and taken in pieces, with bounded memory, and killed on
//! the way.

#![expect(clippy::expect_used, reason = "test code")]

mod common;

use common::{Folder, PATIENCE, Server, ask, seed};
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
