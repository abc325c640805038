//! Sequences of commands made of any bytes: what a fuzz target and a test of the suite try.

use super::Server;
use super::fetching_engine::{FetchingEngine, Trouble};
use super::string_model::{ExpireIf, KEYS, Keep, Model, Request, SetIf, matches};
use std::collections::VecDeque;
use tierstone_base::SeededRandom;
use tierstone_engine::Engine;
use tierstone_redis::ConnectionId;

/// Requests of one sequence at most.
const REQUESTS_MAX: usize = 200;
/// Bytes of a value at most: a few chunks where records are shortest.
const VALUE_BYTES_MAX: u32 = 1_500;

/// Bytes that choices are made of; zeros when they have run out.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u32) -> u32 {
        if bound <= 256 {
            return u32::from(self.byte()) % bound;
        }
        (u32::from(self.byte()) << 8 | u32::from(self.byte())) % bound
    }

    fn chance(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn key(&mut self) -> u8 {
        self.below(u32::from(KEYS)) as u8
    }

    fn keys(&mut self) -> Vec<u8> {
        (0..1 + self.below(4)).map(|_| self.key()).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => i64::from(self.byte() as i8).to_string().into_bytes(),
            1 => [i64::MAX, i64::MIN, 0, -1][self.below(4) as usize].to_string().into_bytes(),
            2 => (0..self.below(9)).map(|_| self.byte()).collect(),
            _ => vec![self.byte(); self.below(VALUE_BYTES_MAX) as usize],
        }
    }

    fn keep(&mut self) -> Keep {
        match self.below(4) {
            0 => Keep::Stays,
            1 => Keep::In(u64::from(1 + self.below(1_000))),
            _ => Keep::Ends,
        }
    }

    fn pairs(&mut self) -> Vec<(u8, Vec<u8>)> {
        (0..1 + self.below(3)).map(|_| (self.key(), self.value())).collect()
    }

    fn set(&mut self) -> Request {
        let condition = [SetIf::Always, SetIf::Always, SetIf::Absent, SetIf::Present][self.below(4) as usize];
        Request::Set(self.key(), self.value(), condition, self.below(4) == 0, self.keep())
    }

    /// A request on strings of one key.
    fn of_one(&mut self) -> Request {
        match self.below(13) {
            0 => Request::Get(self.key()),
            1 => Request::GetSet(self.key(), self.value()),
            2 => Request::GetDel(self.key()),
            3 => Request::GetEx(self.key(), self.keep()),
            4 => Request::Append(self.key(), self.value()),
            5 => Request::Length(self.key()),
            6 => Request::AddTo(self.key(), [1, -1, 7, i64::MAX, i64::MIN + 1][self.below(5) as usize]),
            7 => Request::SetRange(self.key(), self.below(VALUE_BYTES_MAX), self.value()),
            8 => Request::GetRange(self.key(), self.end(), self.end()),
            9 => Request::SetBit(self.key(), self.below(8 * VALUE_BYTES_MAX), self.chance()),
            10 => Request::GetBit(self.key(), self.below(8 * VALUE_BYTES_MAX)),
            11 => Request::BitCount(self.key()),
            _ => self.set(),
        }
    }

    /// An end of a range.
    fn end(&mut self) -> i32 {
        let end = self.below(VALUE_BYTES_MAX) as i32;
        if self.chance() { -end } else { end }
    }

    /// A request on several keys, databases or expiries.
    fn of_more(&mut self) -> Request {
        let conditions =
            [ExpireIf::Always, ExpireIf::Absent, ExpireIf::Present, ExpireIf::Later, ExpireIf::Sooner];
        match self.below(15) {
            0 => Request::MultiGet(self.keys()),
            1 => Request::MultiSet(self.pairs()),
            2 => Request::MultiSetNew(self.pairs()),
            3 => Request::Delete(self.keys()),
            4 => Request::Exists(self.keys()),
            5 | 6 => Request::Rename(self.key(), self.key(), self.chance()),
            7 | 8 => Request::Copy(self.key(), self.key(), self.below(3) as u8, self.chance()),
            9 => Request::Move(self.key(), self.below(3) as u8),
            10 => Request::TimeToLive(self.key()),
            11 => Request::Persist(self.key()),
            12 => Request::Select(self.below(3) as u8),
            _ => {
                let ms = i64::from(self.below(1_000)) - 20;
                Request::ExpireIn(self.key(), ms, conditions[self.below(5) as usize])
            }
        }
    }

    /// Any request. `is_queueing`: in a transaction; what is not available there (see
    /// `docs/redis-compatibility.md`) is not made.
    fn request(&mut self, is_queueing: bool) -> Request {
        match self.below(16) {
            0..=4 => self.set(),
            5..=8 => self.of_one(),
            9..=11 => self.of_more(),
            12 => Request::Multi,
            13 if is_queueing => Request::Exec,
            14 if is_queueing => [Request::Exec, Request::Discard][self.below(2) as usize].clone(),
            13 => Request::Watch(self.keys()),
            14 => Request::Unwatch,
            _ if is_queueing => self.of_one(),
            _ if self.chance() => Request::Flush,
            _ => Request::SwapDatabases(self.below(3) as u8, self.below(3) as u8),
        }
    }
}

/// A request as it is put together.
struct Words(Vec<Vec<u8>>);

impl Words {
    fn new(name: &str) -> Self {
        Words(vec![name.as_bytes().to_vec()])
    }

    fn word(mut self, word: &str) -> Self {
        self.0.push(word.as_bytes().to_vec());
        self
    }

    fn word_if(self, is_wanted: bool, word: &str) -> Self {
        if is_wanted { self.word(word) } else { self }
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.push(bytes.to_vec());
        self
    }

    fn number(self, number: impl std::fmt::Display) -> Self {
        self.word(&number.to_string())
    }

    fn key(self, key: u8) -> Self {
        self.word(&format!("key:{key}"))
    }

    fn keys(self, keys: &[u8]) -> Self {
        keys.iter().fold(self, |words, key| words.key(*key))
    }

    fn pairs(self, pairs: &[(u8, Vec<u8>)]) -> Self {
        pairs.iter().fold(self, |words, (key, value)| words.key(*key).bytes(value))
    }

    /// What becomes of the expiry, where `stays` and `ends` are the words for that.
    fn keep(self, keep: Keep, stays: &str, ends: &str) -> Self {
        match keep {
            Keep::In(ms) => self.word("PX").number(ms),
            Keep::Stays => self.word_if(!stays.is_empty(), stays),
            Keep::Ends => self.word_if(!ends.is_empty(), ends),
        }
    }
}

fn words(request: &Request) -> Words {
    let named = Words::new;
    match request {
        Request::Get(key) => named("GET").key(*key),
        Request::Set(key, value, condition, tells, keep) => named("SET")
            .key(*key)
            .bytes(value)
            .word_if(*condition == SetIf::Absent, "NX")
            .word_if(*condition == SetIf::Present, "XX")
            .word_if(*tells, "GET")
            .keep(*keep, "KEEPTTL", ""),
        Request::GetSet(key, value) => named("GETSET").key(*key).bytes(value),
        Request::GetDel(key) => named("GETDEL").key(*key),
        Request::GetEx(key, keep) => named("GETEX").key(*key).keep(*keep, "", "PERSIST"),
        Request::Append(key, value) => named("APPEND").key(*key).bytes(value),
        Request::Length(key) => named("STRLEN").key(*key),
        Request::AddTo(key, by) => named("INCRBY").key(*key).number(by),
        Request::SetRange(key, at, value) => named("SETRANGE").key(*key).number(at).bytes(value),
        Request::GetRange(key, from, to) => named("GETRANGE").key(*key).number(from).number(to),
        Request::SetBit(key, at, bit) => named("SETBIT").key(*key).number(at).number(u8::from(*bit)),
        Request::GetBit(key, at) => named("GETBIT").key(*key).number(at),
        Request::BitCount(key) => named("BITCOUNT").key(*key),
        _ => words_of_more(request),
    }
}

fn words_of_more(request: &Request) -> Words {
    let named = Words::new;
    match request {
        Request::MultiGet(keys) => named("MGET").keys(keys),
        Request::MultiSet(pairs) => named("MSET").pairs(pairs),
        Request::MultiSetNew(pairs) => named("MSETNX").pairs(pairs),
        Request::Delete(keys) => named("DEL").keys(keys),
        Request::Exists(keys) => named("EXISTS").keys(keys),
        Request::Rename(from, to, only_new) => {
            named(if *only_new { "RENAMENX" } else { "RENAME" }).keys(&[*from, *to])
        }
        Request::Copy(from, to, into, replaces) => {
            named("COPY").keys(&[*from, *to]).word("DB").number(into).word_if(*replaces, "REPLACE")
        }
        Request::Move(key, into) => named("MOVE").key(*key).number(into),
        Request::ExpireIn(key, ms, condition) => named("PEXPIRE")
            .key(*key)
            .number(ms)
            .word_if(*condition == ExpireIf::Absent, "NX")
            .word_if(*condition == ExpireIf::Present, "XX")
            .word_if(*condition == ExpireIf::Later, "GT")
            .word_if(*condition == ExpireIf::Sooner, "LT"),
        Request::TimeToLive(key) => named("PTTL").key(*key),
        Request::Persist(key) => named("PERSIST").key(*key),
        Request::Select(number) => named("SELECT").number(number),
        Request::SwapDatabases(one, other) => named("SWAPDB").number(one).number(other),
        Request::Flush => named("FLUSHDB"),
        Request::Multi => named("MULTI"),
        Request::Exec => named("EXEC"),
        Request::Discard => named("DISCARD"),
        Request::Watch(keys) => named("WATCH").keys(keys),
        Request::Unwatch => named("UNWATCH"),
        other => unreachable!("{other:?} is of one key"),
    }
}

/// A sequence as it goes on.
struct Run<E> {
    server: Server<E>,
    model: Model,
    connections: Vec<(ConnectionId, bool)>,
    /// What the replies to come of the connection that sends at present should be.
    expected: VecDeque<(Request, super::string_model::Expected)>,
    sending: usize,
    log: Vec<String>,
}

impl<E: Engine> Run<E> {
    fn send(&mut self, source: &mut Source<'_>) {
        let (id, is_queueing) = self.connections[self.sending];
        let request = source.request(is_queueing);
        let expected = self.model.request(id, &request);
        self.connections[self.sending].1 = match request {
            Request::Multi => true,
            Request::Exec | Request::Discard => false,
            _ => is_queueing,
        };
        let words = words(&request);
        let slices: Vec<&[u8]> = words.0.iter().map(Vec::as_slice).collect();
        self.server.send(id, &slices);
        self.expected.push_back((request, expected));
    }

    fn settle(&mut self) {
        let id = self.connections[self.sending].0;
        self.server.settle();
        let replies = self.server.take_received(id);
        let mut at = 0;
        while let Some((request, expected)) = self.expected.pop_front() {
            self.log.push(format!("{id}: {request:?} -> {expected:?}"));
            let Some(length) = matches(&expected, &replies[at..]) else {
                let shown = String::from_utf8_lossy(&replies[at..replies.len().min(at + 2_000)]);
                panic!("{}\nbut the reply was {shown:?}", self.log.join("\n"));
            };
            at += length;
        }
        assert_eq!(at, replies.len(), "{}\nmore replies than requests", self.log.join("\n"));
    }
}

/// Reads a sequence of commands from any bytes and carries it out: some shards over engines that must fetch, refuse for a
/// moment and become durable late, with messages between shards that arrive late, large values in chunks, pipelines and
/// transactions of three connections, time that goes on. Every reply must be the model's.
pub fn check(data: &[u8]) {
    let mut source = Source(data);
    let shards = 1 + u64::from(source.byte() % 3);
    let record_bytes_max = [1 << 20, 4_096, 256][usize::from(source.byte() % 3)];
    let seed = u64::from(source.byte());
    let fetch = f64::from(source.byte() % 5) / 5.0;
    let trouble = Trouble { fetch, ..Trouble::default() };
    let engines = (0..shards).map(|shard| FetchingEngine::new(seed * 8 + shard, trouble));
    let mut server = Server::with_records(engines, record_bytes_max);
    if source.chance() {
        server.delays = Some(SeededRandom::new(seed));
    }
    let connections = (0..3).map(|_| (server.connect(), false)).collect();
    let mut model = Model::default();
    model.set_time(server.now.wall_ms);
    let mut run = Run { server, model, connections, expected: VecDeque::new(), sending: 0, log: Vec::new() };
    for _ in 0..REQUESTS_MAX {
        if source.0.is_empty() {
            break;
        }
        match source.below(8) {
            0 => {
                run.settle();
                run.sending = source.below(3) as usize;
            }
            1 => {
                run.settle();
                run.server.now.wall_ms += u64::from(source.below(700));
                run.model.set_time(run.server.now.wall_ms);
            }
            2 => run.settle(),
            _ => run.send(&mut source),
        }
    }
    run.settle();
}

/// Whether the support cannot carry a request out: what waits for others or for hours, sends no reply, writes files,
/// or asks for hundreds of megabytes.
fn is_left_out(words: &[&[u8]]) -> bool {
    let is = |at: usize, name: &str| {
        words.get(at).is_some_and(|word: &&[u8]| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let is_pair = |one: &str, other: &str| is(0, one) && is(1, other);
    let is_alone = ["WAIT", "WAITAOF", "DEBUG", "SHUTDOWN"].iter().any(|name| is(0, name));
    let is_subcommand = [("CLIENT", "PAUSE"), ("CLIENT", "REPLY"), ("CONFIG", "REWRITE")];
    let is_long = |word: &&[u8]| {
        let digits = word.strip_prefix(b"#").unwrap_or(word);
        let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<u64>().ok());
        number.is_some_and(|number| (20_000..1 << 34).contains(&number))
    };
    let grows = ["SETRANGE", "SETBIT", "BITFIELD"].iter().any(|name| is(0, name));
    is_alone
        || is_subcommand.iter().any(|(one, other)| is_pair(one, other))
        || grows && words.iter().any(is_long)
}

/// Lines of words of any bytes, each a request of one of two connections: every one is answered in time, by replies that
/// can be read, and nothing panics.
pub fn check_any(data: &[u8]) {
    let seed = u64::from(data.first().copied().unwrap_or_default());
    let engines = (0..2).map(|shard| FetchingEngine::new(seed * 2 + shard, Trouble::default()));
    let mut server = Server::with_records(engines, 256);
    let connections = [server.connect(), server.connect()];
    for (number, line) in data.split(|byte| *byte == b'\n').take(REQUESTS_MAX).enumerate() {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let id = connections[number / 8 % 2];
        if is_left_out(&words) || server.is_closed(id) {
            continue;
        }
        server.send(id, &words);
        if number % 3 == 0 {
            server.settle();
            super::parse_all(&server.take_received(id));
            server.now.wall_ms += 7;
        }
    }
    server.settle();
}
