//! A load whose every outcome can be judged: objects, each owned by one client, with numbered states.
//!
//! 1. The state of an object follows from its number of writes: what write `n` is, and what the keys
//!    hold after it, are functions of the object and `n`.
//! 2. After a crash the keys hold one state between `acknowledged` and `sent`, whole; that state is
//!    then the acknowledged one, since a read has shown it.
//! 3. A read in a pipeline shows the state of the last write before it in the same pipeline, and makes
//!    it acknowledged.
//! 4. A batch that nobody acknowledged is whole after a crash where its keys have one hash tag. Over
//!    several shards each key is judged alone, because engines do not mark batches yet
//!    (`crates/store/src/message.rs`); acknowledged is acknowledged for these too.

#![allow(dead_code, reason = "each test file uses its part")]

use crate::common::PATIENCE;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tierstone_base::SeededRandom;
use tierstone_base::checksum::checksum;
use tierstone_client::{Connection, Value};

const CLIENTS: u64 = 4;
/// Operations in flight on one connection.
const WINDOW: usize = 16;
/// Objects of each kind of each client; single values are most of the data.
const KINDS: [(Kind, u32); 6] = [
    (Kind::Value, 70),
    (Kind::Counter, 8),
    (Kind::Text, 8),
    (Kind::Mset, 8),
    (Kind::Transaction, 8),
    (Kind::Spread, 8),
];
/// A value is deleted by every seventh write.
const DELETE_EVERY: u64 = 7;
/// A text starts anew after so many pieces.
const PIECES: u64 = 20;
const PIECE_BYTES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// SET, and DEL now and then.
    Value,
    /// INCR.
    Counter,
    /// APPEND, and SET now and then.
    Text,
    /// MSET of three keys with one hash tag.
    Mset,
    /// MULTI, SET, SET, INCR, EXEC on keys with one hash tag.
    Transaction,
    /// MSET of three keys in any shards.
    Spread,
}

#[derive(Debug)]
struct Object {
    kind: Kind,
    keys: Vec<Vec<u8>>,
    acknowledged: u64,
    sent: u64,
    /// What a crash left of batches over several shards, and the number that it goes by.
    mixed: Option<(u64, Content)>,
}

/// What the keys of an object hold.
type Content = Vec<Option<Vec<u8>>>;

/// The clients and their objects.
pub struct Load {
    clients: Vec<Client>,
}

struct Client {
    objects: Vec<Object>,
    random: SeededRandom,
}

/// What a verification found; each entry names an object.
#[derive(Debug, Default)]
pub struct Findings {
    /// Older than what was acknowledged.
    pub lost: Vec<String>,
    /// No state at all.
    pub torn: Vec<String>,
}

impl Findings {
    /// Fails the test if anything was found.
    pub fn assert_clean(&self, when: &str) {
        let (lost, torn) = (self.lost.len(), self.torn.len());
        assert!(
            lost + torn == 0,
            "{when}: {lost} lost, {torn} torn: {:?} {:?}",
            self.lost.first(),
            self.torn.first()
        );
    }
}

/// How long a load runs, and when it sends its signal.
pub struct Round {
    operations: u64,
    signal_at: u64,
    counts_sent: bool,
    is_deadly: bool,
    is_abandoned: bool,
}

impl Round {
    /// `operations` operations, all of which must be answered.
    pub fn whole(operations: u64) -> Round {
        Round { operations, signal_at: u64::MAX, counts_sent: false, is_deadly: false, is_abandoned: false }
    }

    /// Until the connections end, which a signal brings about after at most `within` operations.
    pub fn killed(random: &mut SeededRandom, within: u64) -> Round {
        Round {
            operations: u64::MAX,
            signal_at: 1 + random.below(within),
            counts_sent: random.chance(0.5),
            is_deadly: true,
            is_abandoned: false,
        }
    }

    /// The same round, with the signal after `operations` answers.
    pub fn signalled_at(self, operations: u64) -> Round {
        Round { signal_at: operations, ..self }
    }
}

/// What the clients of one round share.
struct Shared<'a> {
    round: &'a Round,
    sent: AtomicU64,
    answered: AtomicU64,
    is_signalled: AtomicBool,
    signal: &'a (dyn Fn() + Sync),
}

impl Shared<'_> {
    /// Counts an operation; the one that makes the number full gives the signal.
    fn count(&self, is_sent: bool) {
        let counter = if is_sent { &self.sent } else { &self.answered };
        let count = counter.fetch_add(1, Ordering::AcqRel) + 1;
        if is_sent == self.round.counts_sent && count == self.round.signal_at {
            // The flag first: whoever sees the connection end knows why.
            self.is_signalled.store(true, Ordering::Release);
            (self.signal)();
        }
    }

    fn is_over(&self) -> bool {
        self.sent.load(Ordering::Acquire) >= self.round.operations
    }

    fn may_end(&self) -> bool {
        self.round.is_deadly && self.is_signalled.load(Ordering::Acquire)
    }
}

impl Load {
    /// A load whose choices follow from `seed`.
    pub fn new(seed: u64) -> Load {
        let mut random = SeededRandom::new(seed);
        let clients = (0..CLIENTS)
            .map(|client| {
                let numbered =
                    KINDS.iter().flat_map(|&(kind, count)| (0..count).map(move |number| (kind, number)));
                let objects = numbered.map(|(kind, number)| Object::new(client, kind, number)).collect();
                Client { objects, random: random.fork() }
            })
            .collect();
        Load { clients }
    }

    /// Runs a round against the server at `address`.
    pub fn run(&mut self, address: SocketAddr, round: &Round, signal: &(dyn Fn() + Sync)) {
        let shared = Shared {
            round,
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            is_signalled: AtomicBool::new(false),
            signal,
        };
        std::thread::scope(|scope| {
            for client in &mut self.clients {
                let shared = &shared;
                scope.spawn(move || client.run(address, shared));
            }
        });
        println!(
            "{} sent, {} answered",
            shared.sent.load(Ordering::Acquire),
            shared.answered.load(Ordering::Acquire)
        );
    }

    /// Runs until the server is frozen with requests in flight, and leaves them there.
    pub fn run_frozen(&mut self, address: SocketAddr, freeze: &(dyn Fn() + Sync)) {
        let round = Round { is_deadly: true, is_abandoned: true, ..Round::whole(u64::MAX).signalled_at(500) };
        self.run(address, &round, freeze);
    }

    /// Reads every object and judges it.
    pub fn verify(&mut self, address: SocketAddr) -> Findings {
        let mut connection = Connection::connect(address, PATIENCE).expect("the server takes a connection");
        let mut findings = Findings::default();
        let mut objects: Vec<&mut Object> =
            self.clients.iter_mut().flat_map(|client| client.objects.iter_mut()).collect();
        for some in objects.chunks_mut(64) {
            let mut pipeline = connection.pipeline();
            for object in some.iter() {
                pipeline.command(&object.read());
            }
            let replies = pipeline.execute().expect("every read is answered");
            for (object, reply) in some.iter_mut().zip(&replies) {
                object.judge(&content(reply), &mut findings);
            }
        }
        findings
    }
}

/// What MGET said.
fn content(reply: &Value) -> Content {
    let items = reply.items().unwrap_or_else(|| panic!("MGET gave {reply:?}"));
    items.iter().map(|item| item.bytes().map(<[u8]>::to_vec)).collect()
}

impl Object {
    fn new(client: u64, kind: Kind, number: u32) -> Object {
        let keys = match kind {
            Kind::Value => vec![format!("value:{client}:{number}")],
            Kind::Counter => vec![format!("counter:{client}:{number}")],
            Kind::Text => vec![format!("text:{client}:{number}")],
            Kind::Mset => (0..3).map(|part| format!("{{mset:{client}:{number}}}:{part}")).collect(),
            Kind::Spread => (0..3).map(|part| format!("spread:{client}:{number}:{part}")).collect(),
            Kind::Transaction => (0..3).map(|part| format!("{{exec:{client}:{number}}}:{part}")).collect(),
        };
        let keys = keys.into_iter().map(String::into_bytes).collect();
        Object { kind, keys, acknowledged: 0, sent: 0, mixed: None }
    }

    fn read(&self) -> Vec<&[u8]> {
        std::iter::once(&b"MGET"[..]).chain(self.keys.iter().map(Vec::as_slice)).collect()
    }

    /// The value that write `number` gives to key `part`.
    fn value(&self, part: usize, number: u64) -> Vec<u8> {
        let sum = checksum(number, &self.keys[part]);
        let longest = if self.kind == Kind::Value { 6_000 } else { 1_500 };
        let mut value = format!("{sum:016x} {number} ").into_bytes();
        let len = value.len() + (sum % longest) as usize;
        let mut random = SeededRandom::new(sum);
        let start = value.len();
        value.resize(len, 0);
        random.fill(&mut value[start..]);
        value
    }

    /// What the keys hold after write `number`; nothing after none.
    fn state(&self, number: u64) -> Content {
        if let Some((_, content)) = self.mixed.as_ref().filter(|(mixed, _)| *mixed == number) {
            return content.clone();
        }
        if number == 0 {
            return vec![None; self.keys.len()];
        }
        match self.kind {
            Kind::Value if number.is_multiple_of(DELETE_EVERY) => vec![None],
            Kind::Value => vec![Some(self.value(0, number))],
            Kind::Counter => vec![Some(number.to_string().into_bytes())],
            Kind::Text => {
                let first = number - (number - 1) % PIECES;
                vec![Some((first..=number).flat_map(piece).collect())]
            }
            Kind::Mset | Kind::Spread => (0..3).map(|part| Some(self.value(part, number))).collect(),
            Kind::Transaction => {
                vec![
                    Some(self.value(0, number)),
                    Some(self.value(1, number)),
                    Some(number.to_string().into_bytes()),
                ]
            }
        }
    }

    /// The commands of write `number`.
    fn write(&self, number: u64) -> Vec<Vec<Vec<u8>>> {
        let key = |part: usize| self.keys[part].clone();
        let set = |part: usize| vec![b"SET".to_vec(), key(part), self.value(part, number)];
        match self.kind {
            Kind::Value if number.is_multiple_of(DELETE_EVERY) => vec![vec![b"DEL".to_vec(), key(0)]],
            Kind::Value => vec![set(0)],
            Kind::Counter => vec![vec![b"INCR".to_vec(), key(0)]],
            Kind::Text if number % PIECES == 1 => vec![vec![b"SET".to_vec(), key(0), piece(number)]],
            Kind::Text => vec![vec![b"APPEND".to_vec(), key(0), piece(number)]],
            Kind::Mset | Kind::Spread => {
                let pairs = (0..3).flat_map(|part| [key(part), self.value(part, number)]);
                vec![std::iter::once(b"MSET".to_vec()).chain(pairs).collect()]
            }
            Kind::Transaction => {
                let incr = vec![b"INCR".to_vec(), key(2)];
                vec![vec![b"MULTI".to_vec()], set(0), set(1), incr, vec![b"EXEC".to_vec()]]
            }
        }
    }

    /// Whether `reply` is the answer to the last command of write `number`.
    fn is_answer(&self, number: u64, reply: &Value) -> bool {
        match self.kind {
            Kind::Value if number.is_multiple_of(DELETE_EVERY) => reply.integer() == Some(1),
            Kind::Text if number % PIECES != 1 => {
                reply.integer() == Some((((number - 1) % PIECES + 1) as usize * PIECE_BYTES) as i64)
            }
            Kind::Value | Kind::Text | Kind::Mset | Kind::Spread => reply.is_ok(),
            Kind::Counter => reply.integer() == Some(number as i64),
            Kind::Transaction => reply.items().is_some_and(|items| {
                items.len() == 3
                    && items[0].is_ok()
                    && items[1].is_ok()
                    && items[2].integer() == Some(number as i64)
            }),
        }
    }

    /// Finds the state that the keys hold and makes it the acknowledged one.
    fn judge(&mut self, found: &Content, findings: &mut Findings) {
        let name = String::from_utf8_lossy(&self.keys[0]).into_owned();
        let (acknowledged, sent) = (self.acknowledged, self.sent);
        let whole = (0..=sent).rev().find(|&number| self.state(number) == *found);
        let oldest = whole.or_else(|| self.oldest_part(found));
        match oldest {
            Some(number) if number < acknowledged => findings
                .lost
                .push(format!("{name}: write {number} found, {acknowledged} acknowledged, {sent} sent")),
            Some(_) => {}
            None => {
                let held: Vec<String> = found
                    .iter()
                    .map(|value| match value {
                        None => "nothing".into(),
                        Some(value) => String::from_utf8_lossy(&value[..value.len().min(24)]).into_owned(),
                    })
                    .collect();
                findings.torn.push(format!("{name}: {held:?}, {acknowledged} acknowledged, {sent} sent"));
            }
        }
        // A mixture goes by the newest number, so that the next write is newer than all of it.
        self.acknowledged = whole.unwrap_or(sent);
        self.sent = self.acknowledged;
        if whole.is_none() {
            self.mixed = Some((sent, found.clone()));
        }
    }

    /// The oldest write that one of the keys holds, if each holds one and may do so for itself.
    fn oldest_part(&self, found: &Content) -> Option<u64> {
        if self.kind != Kind::Spread {
            return None;
        }
        let numbers: Option<Vec<u64>> = (0..found.len())
            .map(|part| (0..=self.sent).rev().find(|&number| self.state(number)[part] == found[part]))
            .collect();
        numbers?.into_iter().min()
    }
}

fn piece(number: u64) -> Vec<u8> {
    format!("{number:011};").into_bytes()
}

/// An operation without an answer yet.
struct Flying {
    object: usize,
    number: u64,
    is_read: bool,
    /// Replies to come, the last of which tells.
    replies: usize,
}

impl Client {
    fn run(&mut self, address: SocketAddr, shared: &Shared<'_>) {
        let patience = if shared.round.is_abandoned { Duration::from_millis(300) } else { PATIENCE };
        let mut connection = match Connection::connect(address, patience) {
            Ok(connection) => connection,
            Err(_) if shared.may_end() => return,
            Err(error) => panic!("no connection: {error}"),
        };
        let mut flying = VecDeque::new();
        loop {
            let is_full = flying.len() >= WINDOW || shared.is_over();
            let result = if is_full {
                if flying.is_empty() {
                    return;
                }
                connection.receive_one().map(|reply| self.answered(&reply, &mut flying, shared))
            } else {
                let operation = self.choose();
                let sent = self.send(&mut connection, &operation);
                flying.push_back(operation);
                shared.count(true);
                sent
            };
            match result {
                Ok(()) => {}
                Err(_) if shared.may_end() => return,
                // The timeout is short only to notice the freeze.
                Err(_) if shared.round.is_abandoned => {}
                Err(error) => panic!("the server left a client: {error}"),
            }
        }
    }

    fn choose(&mut self) -> Flying {
        // Half of the single values are seldom written: they are what cleaning finds alive.
        let seldom = u64::from(KINDS[0].1 / 2);
        let from = if self.random.chance(0.95) { seldom } else { 0 };
        let object = (from + self.random.below(self.objects.len() as u64 - from)) as usize;
        let is_read = self.random.chance(0.2);
        let chosen = &mut self.objects[object];
        if !is_read {
            chosen.sent += 1;
        }
        let replies = if !is_read && chosen.kind == Kind::Transaction { 5 } else { 1 };
        Flying { object, number: chosen.sent, is_read, replies }
    }

    fn send(&self, connection: &mut Connection, operation: &Flying) -> tierstone_base::Result<()> {
        let object = &self.objects[operation.object];
        if operation.is_read {
            return connection.send_only(&object.read());
        }
        for command in object.write(operation.number) {
            let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            connection.send_only(&arguments)?;
        }
        Ok(())
    }

    fn answered(&mut self, reply: &Value, flying: &mut VecDeque<Flying>, shared: &Shared<'_>) {
        let Some(first) = flying.front_mut() else { panic!("a reply to nothing: {reply:?}") };
        assert!(!reply.is_error(), "refused: {:?}", reply.error());
        first.replies -= 1;
        if first.replies > 0 {
            return;
        }
        let Some(done) = flying.pop_front() else { return };
        let object = &mut self.objects[done.object];
        let is_right = if done.is_read {
            content(reply) == object.state(done.number)
        } else {
            object.is_answer(done.number, reply)
        };
        assert!(is_right, "{:?} of write {}: {reply:?}", object.keys, done.number);
        object.acknowledged = object.acknowledged.max(done.number);
        shared.count(false);
    }
}
