//! The same random requests to a Redis server of this machine and to this crate; the replies must be
//! the same, byte by byte.
//!
//! The server is started on a free port of the loopback address. `TIERSTONE_REDIS_SERVER` names its
//! program (default: `redis-server`). Where there is none the test says so and passes.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::Server;
use tierstone_base::SeededRandom;
use tierstone_engine::map_engine::MapEngine;
use tierstone_wire::resp::{ReplyLimits, ReplyParser, ReplyProgress, encode_command};

struct Redis {
    process: Child,
    port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Redis {
    fn start() -> Option<Redis> {
        let program = std::env::var("TIERSTONE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let process = Command::new(&program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--enable-debug-command", "yes"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Redis { process, port })
    }

    fn connect(&self) -> Peer {
        for _ in 0..2_000 {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return Peer { stream };
            }
            std::thread::yield_now();
        }
        // Starting takes longer than connecting in vain so often: let the kernel do the waiting.
        let mut peer = None;
        for _ in 0..200 {
            match TcpStream::connect_timeout(
                &([127, 0, 0, 1], self.port).into(),
                Duration::from_millis(100),
            ) {
                Ok(stream) => {
                    peer = Some(stream);
                    break;
                }
                Err(_) => {
                    let _ = Command::new("sleep").arg("0.05").status();
                }
            }
        }
        let stream = peer.expect("the Redis server did not begin to listen");
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Peer { stream }
    }
}

struct Peer {
    stream: TcpStream,
}

impl Peer {
    fn call(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut request = Vec::new();
        encode_command(&words, &mut request);
        self.stream.write_all(&request).unwrap();
        let mut parser = ReplyParser::new(ReplyLimits::default());
        let (mut all, mut at) = (Vec::new(), 0);
        let mut buffer = [0u8; 65_536];
        loop {
            let count = self.stream.read(&mut buffer).unwrap_or_else(|error| panic!("no reply to {words:?}: {error}; so far {:?}", String::from_utf8_lossy(&all)));
            assert!(count > 0, "the Redis server closed the connection");
            all.extend_from_slice(&buffer[..count]);
            while at < all.len() {
                match parser.parse(&all[at..]).unwrap() {
                    ReplyProgress::Complete { consumed, .. } => {
                        assert_eq!(at + consumed, all.len(), "more than one reply");
                        return all;
                    }
                    ReplyProgress::Incomplete { consumed: 0, .. } => break,
                    ReplyProgress::Incomplete { consumed, .. } => at += consumed,
                }
            }
        }
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| if word == "\"\"" { Vec::new() } else { word.as_bytes().to_vec() }).collect()
}

fn pick<'a>(random: &mut SeededRandom, choices: &[&'a str]) -> &'a str {
    choices[random.below(choices.len() as u64) as usize]
}

const NUMBERS: [&str; 24] = [
    "0", "1", "-1", "2", "5", "-5", "7", "8", "10", "100", "-100", "4294967296", "9223372036854775807",
    "-9223372036854775808", "9223372036854775808", "01", "+1", "1.5", "abc", "\"\"", "1e3", "nan", "63", "64",
];
const OFFSETS: [&str; 14] =
    ["0", "1", "2", "3", "7", "8", "9", "17", "100", "-1", "-2", "-100", "x", "4294967295000"];
const VALUES: [&str; 16] = [
    "hello", "world", "10", "-3", "3.5", "\"\"", "0", "9223372036854775807", "ohmytext", "mynewtext", "ff",
    "1.1e2", "inf", "0x10", "10.50", "foobar",
];
const TIMES: [&str; 10] =
    ["1000000", "0", "-1", "10000000", "9223372036854775807", "-9223372036854775808", "abc", "1.5", "9999999", "777777"];
const FLOATS: [&str; 14] =
    ["0.1", "-0.1", "1e2", "5.0e3", "1.000000001", "3", "1e-9", "nan", "inf", "abc", "0.3", "1000.1", "-2.25", "1e17"];
const DATABASES: [&str; 6] = ["0", "1", "2", "15", "16", "-1"];

/// One random request, as a line. Times are far away or past, so that both servers see the same.
fn request(random: &mut SeededRandom) -> String {
    let keys = ["a", "b", "c", "d", "e", "{t}x", "{t}y"];
    let (k, k2, k3) = (pick(random, &keys), pick(random, &keys), pick(random, &keys));
    let (v, v2) = (pick(random, &VALUES), pick(random, &VALUES));
    let n = pick(random, &NUMBERS);
    let (o, o2) = (pick(random, &OFFSETS), pick(random, &OFFSETS));
    let (t, f) = (pick(random, &TIMES), pick(random, &FLOATS));
    let db = pick(random, &DATABASES);
    match random.below(96) {
        0..8 => format!("SET {k} {v}"),
        8..12 => format!("GET {k}"),
        12 => format!("SET {k} {v} {}", pick(random, &["NX", "XX", "GET", "KEEPTTL", "NX GET", "XX GET", "nx xx", "KEEPTTL EX 100", "FOO", "GET GET", "EX", "NX XX GET"])),
        13 => format!("SET {k} {v} {} {t}", pick(random, &["EX", "PX", "ex", "EX 10 PX"])),
        // A time in the past leaves a key that Redis counts until somebody looks at it.
        14 => format!("SET {k} {v} {}", pick(random, &["EXAT 9999999999", "PXAT 9999999999999", "EXAT 0", "PXAT -1", "EXAT abc"])),
        15 => format!("SETNX {k} {v}"),
        16 => format!("SETEX {k} {t} {v}"),
        17 => format!("PSETEX {k} {t} {v}"),
        18 => format!("GETSET {k} {v}"),
        19 => format!("GETDEL {k}"),
        20 => format!("GETEX {k}{}", pick(random, &["", " PERSIST", " EX 10000000", " EX 0", " EX abc", " PERSIST EX 10", " EXAT 9999999999", " FOO", " EX"])),
        21 => format!("MGET {k} {k2} {k3}"),
        22 => format!("MSET {k} {v} {k2} {v2}"),
        23 => format!("MSETNX {k} {v} {k2} {v2}"),
        24 => format!("MSET {k} {v} {k2}"),
        25..27 => format!("INCR {k}"),
        27 => format!("DECR {k}"),
        28..30 => format!("INCRBY {k} {n}"),
        30 => format!("DECRBY {k} {n}"),
        31..34 => format!("INCRBYFLOAT {k} {f}"),
        34..36 => format!("APPEND {k} {v}"),
        36 => format!("STRLEN {k}"),
        37..40 => format!("{} {k} {o} {o2}", pick(random, &["GETRANGE", "SUBSTR"])),
        40..42 => format!("SETRANGE {k} {} {v}", pick(random, &["0", "1", "5", "20", "-1", "x", "536870912", "9223372036854775807"])),
        42 => format!("LCS {k} {k2}{}", pick(random, &["", " LEN", " IDX", " IDX MINMATCHLEN 2", " IDX WITHMATCHLEN", " IDX LEN", " IDX MINMATCHLEN x", " IDX MINMATCHLEN -4 WITHMATCHLEN", " FOO", " MINMATCHLEN"])),
        43..46 => format!("SETBIT {k} {o} {}", pick(random, &["0", "1", "2", "x"])),
        46..48 => format!("GETBIT {k} {o}"),
        48 => format!("BITCOUNT {k}"),
        49..51 => format!("BITCOUNT {k} {o} {o2}{}", pick(random, &["", " BYTE", " BIT", " bit", " FOO"])),
        51 => format!("BITPOS {k} {}", pick(random, &["0", "1", "2", "x"])),
        52..54 => format!("BITPOS {k} {} {o}", pick(random, &["0", "1"])),
        54..56 => format!("BITPOS {k} {} {o} {o2}{}", pick(random, &["0", "1"]), pick(random, &["", " BYTE", " BIT", " FOO"])),
        56..58 => format!("BITOP {} {k} {k2} {k3}", pick(random, &["AND", "OR", "XOR", "NOT", "and", "FOO"])),
        58 => format!("BITOP NOT {k} {k2}"),
        59..63 => {
            let kind = pick(random, &["u8", "i8", "u1", "i64", "u63", "i5", "u64", "i65", "x8", "u0", "i1", "u4"]);
            let offset = pick(random, &["0", "#1", "#2", "5", "100", "-1", "x", "#-1", "17"]);
            match random.below(6) {
                0 => format!("BITFIELD {k} GET {kind} {offset}"),
                1 => format!("BITFIELD {k} SET {kind} {offset} {n}"),
                2 => format!("BITFIELD {k} INCRBY {kind} {offset} {n} GET u8 0"),
                // Saturating a value near the lowest one goes to the other end in Redis.
                4 if n.starts_with("-922") => format!("BITFIELD_RO {k} GET {kind} {offset}"),
                3 => format!("BITFIELD {k} OVERFLOW {} INCRBY {kind} {offset} {n}", pick(random, &["SAT", "FAIL", "WRAP", "foo"])),
                4 => format!("BITFIELD {k} OVERFLOW {} SET {kind} {offset} {n}", pick(random, &["SAT", "FAIL"])),
                _ => format!("BITFIELD_RO {k} {} {kind} {offset}", pick(random, &["GET", "INCRBY"])),
            }
        }
        63 => format!("COPY {k} {k2}{}", pick(random, &["", " REPLACE", " DB 1", " DB 1 REPLACE", " FOO", " DB", " DB x", " DB 16", " DB 0"])),
        64..66 => format!("DEL {k} {k2}"),
        66 => format!("UNLINK {k}"),
        67 => format!("EXISTS {k} {k2} {k}"),
        68 => format!("TOUCH {k} {k2}"),
        69..72 => format!("{} {k} {t}{}", pick(random, &["EXPIRE", "PEXPIRE"]), pick(random, &["", "", " NX", " XX", " GT", " LT", " XX GT", " NX GT", " GT LT", " FOO"])),
        72 => format!("{} {k} {}{}", pick(random, &["EXPIREAT", "PEXPIREAT"]), pick(random, &["9999999999", "9999999999999", "1", "-1", "abc", "9223372036854775807"]), pick(random, &["", " NX", " GT"])),
        73 => format!("{} {k}", pick(random, &["EXPIRETIME", "PEXPIRETIME"])),
        74 => format!("PERSIST {k}"),
        75..77 => format!("TYPE {k}"),
        77 => format!("RENAME {k} {k2}"),
        78 => format!("RENAMENX {k} {k2}"),
        79 => format!("MOVE {k} {db}"),
        80 => "DBSIZE".into(),
        81 => format!("SELECT {}", pick(random, &["0", "0", "0", "1", "16", "x", "-1"])),
        82 => format!("OBJECT {} {k}", pick(random, &["REFCOUNT", "FREQ", "FOO"])),
        83 => format!("KEYS {}", pick(random, &["nothing*", k, "x"])),
        84 => pick(random, &["PING", "PING hello", "PING a b", "ECHO x", "ECHO", "FOO", "foo bar baz", "GET", "SET a", "OBJECT", "OBJECT ENCODING", "CLIENT FOO", "CONFIG", "get a b"]).into(),
        85 => pick(random, &["SCAN x", "SCAN -1", "SCAN 0 COUNT 0", "SCAN 0 COUNT x", "SCAN 0 FOO", "SCAN 0 MATCH", "SWAPDB 0 16", "SWAPDB x 0", "SWAPDB 0 x", "SWAPDB 0 1"]).into(),
        86 => pick(random, &["MULTI", "EXEC", "DISCARD", "EXEC", "DISCARD"]).into(),
        87 => format!("WATCH {k}"),
        88 => "UNWATCH".into(),
        89 => pick(random, &["EXEC", "EXEC", "MULTI"]).into(),
        90 => pick(random, &["FLUSHDB", "FLUSHALL FOO", "FLUSHALL", "FLUSHDB ASYNC", "FLUSHALL SYNC"]).into(),
        91 => format!("PUBLISH {k} {v}"),
        92 => pick(random, &["PUBSUB NUMPAT", "PUBSUB NUMSUB a b", "PUBSUB CHANNELS", "PUBSUB CHANNELS x", "PUBSUB FOO", "PUBSUB SHARDNUMSUB", "UNSUBSCRIBE", "PUNSUBSCRIBE x", "PUBSUB NUMSUB"]).into(),
        93 => pick(random, &["CLIENT GETNAME", "CLIENT SETNAME x", "CLIENT SETNAME a\u{1}b", "CLIENT REPLY FOO", "CLIENT NO-EVICT on", "CLIENT NO-EVICT x", "CLIENT KILL ID 0", "CLIENT KILL 1.2.3.4:5", "CLIENT LIST ID x", "CLIENT LIST TYPE x", "CLIENT PAUSE x", "CLIENT PAUSE -1", "CLIENT UNPAUSE", "CLIENT TRACKINGINFO", "CLIENT GETREDIR", "CLIENT SETINFO LIB-NAME x", "CLIENT NO-TOUCH on"]).into(),
        94 => pick(random, &["HELLO 2", "HELLO 3", "HELLO 4", "HELLO x", "HELLO 2 FOO", "HELLO 3 AUTH default x", "HELLO 3 AUTH foo x", "HELLO 2 SETNAME a", "AUTH x", "AUTH default x", "AUTH foo x", "AUTH a b c", "RESET"]).into(),
        _ => pick(random, &["CONFIG GET nothing", "CONFIG SET nothing 1", "CONFIG SET databases 3", "CONFIG SET", "CONFIG SET save", "CONFIG RESETSTAT", "WAIT 0 0", "WAIT x 0", "WAIT 0 -1", "DEBUG SLEEP 0", "FUNCTION FLUSH", "FUNCTION FLUSH FOO", "COMMAND GETKEYS SET a b", "COMMAND GETKEYS PING", "COMMAND GETKEYS FOO", "COMMAND GETKEYS MSET a 1 b 2", "COMMAND GETKEYS SET a", "COMMAND INFO foo", "COMMAND DOCS foo", "COMMAND LIST FILTERBY PATTERN get", "MEMORY USAGE nothing", "MEMORY USAGE", "MEMORY FOO", "LASTSAVE x", "SAVE x", "TIME x"]).into(),
    }
}

/// Replies that differ on purpose; `docs/redis-compatibility.md` says why.
fn is_expected_difference(line: &str, redis: &[u8], own: &[u8]) -> bool {
    let upper = line.to_ascii_uppercase();
    let starts = |prefix: &str| upper.starts_with(prefix);
    // Another id, version and set of modules.
    if starts("HELLO") && redis.first() == own.first() && !redis.starts_with(b"-") {
        return true;
    }
    // The two servers have looked at their clocks one after the other.
    let number = |reply: &[u8]| String::from_utf8_lossy(reply).trim_start_matches(':').trim().parse::<i64>().ok();
    let is_time = starts("PEXPIRETIME") || starts("EXPIRETIME");
    is_time && number(redis).zip(number(own)).is_some_and(|(redis, own)| redis > 0 && (redis - own).abs() < 500)
}

/// Sends random requests to both; what differed. After a difference both begin anew.
fn compare(seed: u64, requests: u32, redis: &Redis) -> Vec<String> {
    let mut differences = Vec::new();
    let mut random = SeededRandom::new(seed);
    let mut own = Server::new([MapEngine::new(0)]);
    let mut id = own.connect();
    let mut peer = redis.connect();
    peer.call(&words("FLUSHALL"));
    let mut transcript: Vec<String> = Vec::new();
    let mut in_transaction = false;
    for _ in 0..requests {
        let line = request(&mut random);
        let upper = line.to_ascii_uppercase();
        // What the executor does not take inside a transaction is compared outside only.
        let is_outside_only = ["SWAPDB", "FLUSH", "KEYS", "SCAN", "DEBUG SLEEP", "RESET", "HELLO", "CLIENT", "SAVE", "CONFIG SET", "UNSUB", "PUNSUB", "AUTH", "OBJECT REFCOUNT"];
        if in_transaction && is_outside_only.iter().any(|prefix| upper.starts_with(prefix)) {
            continue;
        }
        let request = words(&line);
        let slices: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let expected = peer.call(&request);
        own.now.wall_ms = wall_ms();
        let got = own.raw(id, &slices);
        transcript.push(line.clone());
        if expected != got && !is_expected_difference(&line, &expected, &got) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", " ");
            differences.push(format!(
                "seed {seed}: {line}\n    redis: {}\n    here:  {}\n    after: {}",
                text(&expected),
                text(&got),
                transcript.iter().rev().skip(1).take(shown_before()).rev().cloned().collect::<Vec<_>>().join(" | ")
            ));
            let keys = (peer.call(&words("KEYS *")), own.raw(id, &[b"KEYS", b"*"]));
            differences.push(format!("    keys of redis: {}\n    keys here:  {}", text(&keys.0), text(&keys.1)));
            peer = redis.connect();
            peer.call(&words("FLUSHALL"));
            own = Server::new([MapEngine::new(0)]);
            id = own.connect();
            in_transaction = false;
            transcript.clear();
            continue;
        }
        match upper.as_str() {
            "MULTI" => in_transaction = true,
            "EXEC" | "DISCARD" => in_transaction = false,
            _ => {}
        }
    }
    differences
}

/// How many requests before a difference are shown.
fn shown_before() -> usize {
    std::env::var("TIERSTONE_COMPARISON_SHOWN").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

#[expect(clippy::disallowed_methods, reason = "both servers must see the same time")]
fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[test]
fn random_requests_are_answered_as_redis_answers_them() {
    let Some(redis) = Redis::start() else {
        println!("SKIPPED: no redis-server here (set TIERSTONE_REDIS_SERVER to the path of one)");
        return;
    };
    let seeds = std::env::var("TIERSTONE_COMPARISON_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut differences = Vec::new();
    let first = std::env::var("TIERSTONE_COMPARISON_SEED").ok().and_then(|text| text.parse().ok());
    for seed in first.unwrap_or(0)..first.unwrap_or(0) + seeds.unwrap_or(20) {
        differences.extend(compare(seed, 1_500, &redis));
    }
    let shown = differences.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{shown}", differences.len());
}
