//! What clients ask: random requests over a few objects, and what their replies must look like.
//!
//! Objects are of kinds, by number: registers, counters, pairs of keys on one shard, keys that expire,
//! pairs of keys on any shards, keys that are written once and stay.

use crate::history::{EventId, History};
use crate::model::{ObjectId, Step, Verb};
use tierstone_base::SeededRandom;

/// What is known of a reply before it comes.
#[derive(Clone, Debug)]
pub enum Expect {
    /// `+OK`.
    Ok,
    /// `+QUEUED`.
    Queued,
    /// The reply of an event's only step.
    One(EventId),
    /// An array with the reply of each step.
    Each(EventId),
    /// `+OK`, which stands for each step of each event.
    AllOk(Vec<EventId>),
    /// `+OK` to the `WATCH` before it; refused, the transaction depends on nothing.
    Watch {
        /// The transaction.
        transaction: EventId,
    },
    /// The read between `WATCH` and `MULTI`; what it gives the transaction depends on.
    WatchedRead {
        /// The read itself.
        read: EventId,
        /// The transaction, whose first step is the same read.
        transaction: EventId,
    },
    /// The array of a transaction whose first step was a watched read; null when it was let go.
    WatchedExec {
        /// The read.
        read: EventId,
        /// The transaction.
        transaction: EventId,
    },
    /// A page of a scan.
    Page,
}

/// One request of a pipeline.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its arguments.
    pub words: Vec<Vec<u8>>,
    /// Its reply.
    pub expect: Expect,
}

impl Request {
    /// Whether it empties a database.
    pub fn empties(&self) -> bool {
        self.words.first().is_some_and(|word| word == b"FLUSHDB")
    }
}

/// What an object is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One key with any value.
    Register,
    /// One key with a number.
    Counter,
    /// Two keys with one hash tag.
    Pair,
    /// One key that expires.
    Expiring,
    /// Two keys wherever they fall.
    Spread,
    /// One key that is never deleted, unless its database is emptied.
    Lasting,
}

/// The longest part of a value that says nothing, in bytes.
const VALUE_BYTES_MAX: u64 = 3_000;

const KINDS: [Kind; 6] =
    [Kind::Register, Kind::Counter, Kind::Pair, Kind::Expiring, Kind::Lasting, Kind::Spread];

/// The kind of an object.
pub fn kind(object: ObjectId) -> Kind {
    KINDS[object.number as usize % KINDS.len()]
}

/// How many keys an object has.
pub fn key_count(object: ObjectId) -> usize {
    if matches!(kind(object), Kind::Pair | Kind::Spread) { 2 } else { 1 }
}

/// The bytes of a key of an object.
pub fn key_bytes(object: ObjectId, key: usize) -> Vec<u8> {
    let number = object.number;
    match kind(object) {
        Kind::Pair => format!("{{p{number}}}:{key}"),
        Kind::Spread => format!("s{number}:{key}"),
        Kind::Lasting => format!("l{number}"),
        Kind::Register => format!("r{number}"),
        Kind::Counter => format!("c{number}"),
        Kind::Expiring => format!("e{number}"),
    }
    .into_bytes()
}

/// Who asks, when.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// The connection, unique in the run.
    pub connection: u64,
    /// Its database.
    pub database: u32,
    /// By the wall clock.
    pub wall_ms: u64,
}

/// Values of so many bytes stay where they are when their expiry changes.
const TOUCHED_BYTES_MIN: usize = 100;

/// Invents requests.
#[derive(Clone, Debug)]
pub struct Script {
    /// Objects of each database.
    pub objects: u32,
    /// Whether databases are emptied.
    pub flushes: bool,
    /// Whether the expiry of keys is changed often.
    pub touches: bool,
    written: u64,
}

fn words(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.to_vec()).collect()
}

fn request(parts: &[&[u8]], expect: Expect) -> Request {
    Request { words: words(parts), expect }
}

/// A step as a command.
fn command(object: ObjectId, step: &Step) -> Vec<Vec<u8>> {
    let key = key_bytes(object, step.key);
    match &step.verb {
        Verb::Get => words(&[b"GET", &key]),
        Verb::Length => words(&[b"STRLEN", &key]),
        Verb::Set(value) => words(&[b"SET", &key, value]),
        Verb::SetNew(value) => words(&[b"SET", &key, value, b"NX"]),
        Verb::SetFor(value, for_ms) => words(&[b"SET", &key, value, b"PX", for_ms.to_string().as_bytes()]),
        Verb::Append(tail) => words(&[b"APPEND", &key, tail]),
        Verb::Add(amount) => words(&[b"INCRBY", &key, amount.to_string().as_bytes()]),
        Verb::Take => words(&[b"GETDEL", &key]),
        Verb::Delete => words(&[b"DEL", &key]),
        Verb::Persist => words(&[b"PERSIST", &key]),
        Verb::ExpireIn(for_ms) => words(&[b"PEXPIRE", &key, for_ms.to_string().as_bytes()]),
        Verb::Flush => words(&[b"FLUSHDB"]),
    }
}

impl Script {
    /// Requests over `objects` objects of each database.
    pub fn new(objects: u32, flushes: bool, touches: bool) -> Self {
        Script { objects, flushes, touches, written: 0 }
    }

    /// A value that was never written before.
    fn value(&mut self, random: &mut SeededRandom) -> Vec<u8> {
        self.written += 1;
        let mut value = format!("v{}.", self.written).into_bytes();
        if random.chance(0.3) {
            value.resize(value.len() + random.below(VALUE_BYTES_MAX) as usize, b'x');
        }
        value
    }

    fn object(&self, random: &mut SeededRandom, database: u32) -> ObjectId {
        loop {
            let object = ObjectId { database, number: random.below(u64::from(self.objects)) as u32 };
            let is_used = match kind(object) {
                // Where databases are emptied, it lasts until then.
                Kind::Lasting => database == 0 || self.flushes,
                _ => true,
            };
            if is_used {
                return object;
            }
        }
    }

    /// The next requests of one client.
    pub fn pipeline(
        &mut self,
        random: &mut SeededRandom,
        history: &mut History,
        asking: Asking,
    ) -> Vec<Request> {
        let mut requests = Vec::new();
        for _ in 0..1 + random.below(6) {
            let object = self.object(random, asking.database);
            match (kind(object), random.below(100)) {
                (_, 0..2) if self.flushes && asking.database == 1 => {
                    requests.push(self.flush(history, asking))
                }
                (Kind::Pair | Kind::Spread, _) => self.pair(random, history, asking, object, &mut requests),
                (Kind::Register, 0..12) => {
                    self.compare_and_set(random, history, asking, object, &mut requests)
                }
                _ => requests.push(self.single(random, history, asking, object)),
            }
        }
        requests
    }

    fn flush(&mut self, history: &mut History, asking: Asking) -> Request {
        let ids = (0..self.objects).map(|number| {
            let object = ObjectId { database: asking.database, number };
            let steps = (0..key_count(object)).map(|key| Step { key, verb: Verb::Flush }).collect();
            history.ask(asking.connection, object, steps, asking.wall_ms)
        });
        let ids = ids.collect();
        request(&[b"FLUSHDB"], Expect::AllOk(ids))
    }

    fn verb(&mut self, random: &mut SeededRandom, kind: Kind) -> Verb {
        let roll = random.below(100);
        match kind {
            Kind::Register | Kind::Pair | Kind::Spread => match roll {
                0..40 => Verb::Get,
                40..65 => Verb::Set(self.value(random)),
                65..75 => Verb::Append(self.value(random)),
                75..80 => Verb::Length,
                80..86 => Verb::SetNew(self.value(random)),
                86..92 => Verb::Take,
                _ => Verb::Delete,
            },
            Kind::Counter => match roll {
                0..25 => Verb::Get,
                25..92 => Verb::Add(1 + random.below(9) as i64),
                92..96 => Verb::Set(random.below(1000).to_string().into_bytes()),
                _ => Verb::Delete,
            },
            Kind::Expiring if self.touches => match roll {
                0..40 => Verb::Get,
                40..58 => {
                    let mut value = self.value(random);
                    value.resize(value.len() + TOUCHED_BYTES_MIN, b'y');
                    Verb::SetFor(value, 1 + random.below(30))
                }
                58..84 => Verb::ExpireIn(1 + random.below(30)),
                84..95 => Verb::Persist,
                _ => Verb::Delete,
            },
            Kind::Expiring => match roll {
                0..55 => Verb::Get,
                55..85 => Verb::SetFor(self.value(random), 1 + random.below(6)),
                85..93 => Verb::Persist,
                _ => Verb::Delete,
            },
            Kind::Lasting => match roll {
                0..60 => Verb::Get,
                _ => Verb::Set(self.value(random)),
            },
        }
    }

    fn single(
        &mut self,
        random: &mut SeededRandom,
        history: &mut History,
        asking: Asking,
        object: ObjectId,
    ) -> Request {
        let step = Step { key: 0, verb: self.verb(random, kind(object)) };
        let words = command(object, &step);
        let id = history.ask(asking.connection, object, vec![step], asking.wall_ms);
        Request { words, expect: Expect::One(id) }
    }

    /// Reads of all keys of an object in one piece.
    pub fn read_all(&self, history: &mut History, asking: Asking, object: ObjectId) -> Request {
        let steps: Vec<Step> = (0..key_count(object)).map(|key| Step { key, verb: Verb::Get }).collect();
        let id = history.ask(asking.connection, object, steps, asking.wall_ms);
        let mut words = vec![b"MGET".to_vec()];
        words.extend((0..key_count(object)).map(|key| key_bytes(object, key)));
        Request { words, expect: Expect::Each(id) }
    }

    fn pair(
        &mut self,
        random: &mut SeededRandom,
        history: &mut History,
        asking: Asking,
        object: ObjectId,
        requests: &mut Vec<Request>,
    ) {
        match random.below(100) {
            0..40 => requests.push(self.read_all(history, asking, object)),
            40..65 => {
                let steps: Vec<Step> =
                    (0..2).map(|key| Step { key, verb: Verb::Set(self.value(random)) }).collect();
                let mut words = vec![b"MSET".to_vec()];
                for step in &steps {
                    words.extend(command(object, step).drain(1..));
                }
                let id = history.ask(asking.connection, object, steps, asking.wall_ms);
                requests.push(Request { words, expect: Expect::AllOk(vec![id]) });
            }
            _ => {
                let count = 2 + random.below(3);
                let steps: Vec<Step> = (0..count)
                    .map(|_| Step { key: random.below(2) as usize, verb: self.verb(random, Kind::Pair) })
                    .collect();
                let commands: Vec<_> = steps.iter().map(|step| command(object, step)).collect();
                let id = history.ask(asking.connection, object, steps, asking.wall_ms);
                queue(requests, commands, Expect::Each(id));
            }
        }
    }

    /// Reads under a watch, then writes if nobody else has.
    fn compare_and_set(
        &mut self,
        random: &mut SeededRandom,
        history: &mut History,
        asking: Asking,
        object: ObjectId,
        requests: &mut Vec<Request>,
    ) {
        let get = Step { key: 0, verb: Verb::Get };
        let set = Step { key: 0, verb: Verb::Set(self.value(random)) };
        let read = history.ask(asking.connection, object, vec![get.clone()], asking.wall_ms);
        let write = command(object, &set);
        let transaction = history.ask(asking.connection, object, vec![get.clone(), set], asking.wall_ms);
        requests.push(request(&[b"WATCH", &key_bytes(object, 0)], Expect::Watch { transaction }));
        requests.push(Request {
            words: command(object, &get),
            expect: Expect::WatchedRead { read, transaction },
        });
        queue(requests, vec![write], Expect::WatchedExec { read, transaction });
    }
}

fn queue(requests: &mut Vec<Request>, commands: Vec<Vec<Vec<u8>>>, expect: Expect) {
    requests.push(request(&[b"MULTI"], Expect::Ok));
    for words in commands {
        requests.push(Request { words, expect: Expect::Queued });
    }
    requests.push(request(&[b"EXEC"], expect));
}
