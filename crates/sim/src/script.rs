//! What clients ask: random requests over a few objects, and what their replies must look like.
//!
//! Objects are of kinds, by number: registers, counters, pairs of keys on one shard, keys that expire,
//! pairs of keys on any shards, keys that are written once and stay; from [`LARGE_FROM`] on pairs of keys with
//! large values.
//!
//! Where databases are swapped, the keys of one number in both databases are one object, for they change
//! places in one piece.

use crate::channels::{self, Channels};
use crate::content::Content;
use crate::history::{EventId, History};
use crate::model::{ObjectId, Step, Verb};
use std::collections::BTreeSet;
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
    /// `+OK`, after which these keys are there and stay.
    Grown(Vec<Vec<u8>>),
    /// How many listeners a message has.
    Published(channels::MessageId),
    /// The channel is listened to from now on.
    Joined(u32),
    /// The channel is not listened to any more.
    Left(u32),
}

impl Expect {
    /// Whether it is about listeners and messages.
    pub fn is_of_channels(&self) -> bool {
        matches!(self, Expect::Published(_) | Expect::Joined(_) | Expect::Left(_))
    }
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
    /// Two keys wherever they fall, with values of many chunks.
    Large,
}

/// Objects with this number or a higher one are [`Kind::Large`].
pub const LARGE_FROM: u32 = 1_000;
/// Channels.
const CHANNELS: u64 = 3;
/// The most keys that are added at a time.
const GROWTH_MAX: u64 = 40;
/// Keys that fill the device, in one request.
const FILLERS_MAX: u64 = 8;
/// Bytes of a value that fills the device, about.
const FILLER_BYTES_MAX: u64 = 2_500;

/// The longest part of a value that says nothing, in bytes.
const VALUE_BYTES_MAX: u64 = 3_000;
/// The store's chunk size, where segments allow it.
const CHUNK_BYTES: u64 = 64 << 10;

const KINDS: [Kind; 6] =
    [Kind::Register, Kind::Counter, Kind::Pair, Kind::Expiring, Kind::Lasting, Kind::Spread];

/// The kind of an object.
pub fn kind(object: ObjectId) -> Kind {
    if object.number >= LARGE_FROM {
        return Kind::Large;
    }
    KINDS[object.number as usize % KINDS.len()]
}

/// How many keys an object has.
pub fn key_count(object: ObjectId) -> usize {
    if matches!(kind(object), Kind::Pair | Kind::Spread | Kind::Large) { 2 } else { 1 }
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
        Kind::Large => format!("b{number}:{key}"),
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
    /// Objects with large values, of database 0.
    pub larges: u32,
    /// Whether databases are emptied.
    pub flushes: bool,
    /// Whether databases are swapped.
    pub swaps: bool,
    /// Whether keys are added that stay.
    pub grows: bool,
    /// Whether these are long, and may go.
    pub fills: bool,
    /// ... and expire late.
    pub fills_for_a_time: bool,
    /// Whether messages are published.
    pub publishes: bool,
    /// Whether objects may lie on several shards.
    pub spreads: bool,
    /// Milliseconds that an expiry is counted in.
    pub expiry_unit_ms: u64,
    /// Whether the expiry of keys is changed often.
    pub touches: bool,
    written: u64,
    grown: u64,
}

fn words(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.to_vec()).collect()
}

fn request(parts: &[&[u8]], expect: Expect) -> Request {
    Request { words: words(parts), expect }
}

fn digits(number: usize) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A step as a command.
fn command(object: ObjectId, step: &Step) -> Vec<Vec<u8>> {
    let key = key_bytes(object, step.key);
    match &step.verb {
        Verb::Get => words(&[b"GET", &key]),
        Verb::GetRange(from, to) => words(&[b"GETRANGE", &key, &digits(*from), &digits(*to)]),
        Verb::SetRange(at, part) => words(&[b"SETRANGE", &key, &digits(*at), part.bytes()]),
        Verb::CopyTo(to, false) => words(&[b"COPY", &key, &key_bytes(object, *to)]),
        Verb::CopyTo(to, true) => words(&[b"COPY", &key, &key_bytes(object, *to), b"REPLACE"]),
        Verb::RenameTo(to) => words(&[b"RENAME", &key, &key_bytes(object, *to)]),
        Verb::Swap(_) => words(&[b"SWAPDB", b"0", b"1"]),
        Verb::Crash => Vec::new(),
        Verb::Length => words(&[b"STRLEN", &key]),
        Verb::Set(value) => words(&[b"SET", &key, value.bytes()]),
        Verb::SetNew(value) => words(&[b"SET", &key, value.bytes(), b"NX"]),
        Verb::SetFor(value, for_ms) => {
            words(&[b"SET", &key, value.bytes(), b"PX", for_ms.to_string().as_bytes()])
        }
        Verb::Append(tail) => words(&[b"APPEND", &key, tail.bytes()]),
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
    pub fn new(objects: u32) -> Self {
        Script {
            objects,
            larges: 0,
            flushes: false,
            touches: false,
            swaps: false,
            grows: false,
            fills: false,
            fills_for_a_time: false,
            publishes: false,
            spreads: true,
            expiry_unit_ms: 1,
            written: 0,
            grown: 0,
        }
    }

    /// A value that was never written before.
    fn value(&mut self, random: &mut SeededRandom) -> Content {
        self.written += 1;
        let mut value = format!("v{}.", self.written).into_bytes();
        if random.chance(0.3) {
            value.resize(value.len() + random.below(VALUE_BYTES_MAX) as usize, b'x');
        }
        value.into()
    }

    /// A value that was never written before, of at least `least` bytes, which all tell its number.
    fn large_value(&mut self, random: &mut SeededRandom, (least, most): (u64, u64)) -> Content {
        self.written += 1;
        let len = least + random.below(most - least);
        let mut bytes = format!("v{}.", self.written).into_bytes();
        let mut filler = SeededRandom::new(self.written);
        while (bytes.len() as u64) < len {
            bytes.extend_from_slice(&filler.next_u64().to_le_bytes());
        }
        bytes.truncate(len as usize);
        bytes.into()
    }

    fn object(&self, random: &mut SeededRandom, database: u32) -> ObjectId {
        if self.larges > 0 && database == 0 && random.chance(0.6) {
            let number = LARGE_FROM + random.below(u64::from(self.larges)) as u32;
            return ObjectId { database, number };
        }
        loop {
            let object = ObjectId { database, number: random.below(u64::from(self.objects)) as u32 };
            let is_used = match kind(object) {
                // Where databases are emptied, it lasts until then.
                Kind::Lasting => database == 0 || self.flushes || self.swaps,
                Kind::Spread => self.spreads,
                _ => true,
            };
            if is_used {
                return object;
            }
        }
    }

    /// The objects of a database.
    pub fn objects_of(&self, database: u32) -> impl Iterator<Item = ObjectId> + use<> {
        let larges = if database == 0 { self.larges } else { 0 };
        (0..self.objects)
            .chain(LARGE_FROM..LARGE_FROM + larges)
            .map(move |number| ObjectId { database, number })
    }

    /// Notes what is asked of an object of one database.
    fn note(&self, history: &mut History, asking: Asking, object: ObjectId, mut steps: Vec<Step>) -> EventId {
        if !self.swaps {
            return history.ask(asking.connection, object, steps, asking.wall_ms);
        }
        let base = object.database as usize * key_count(object);
        for step in &mut steps {
            step.key += base;
            if let Verb::CopyTo(to, _) | Verb::RenameTo(to) = &mut step.verb {
                *to += base;
            }
        }
        history.ask(asking.connection, ObjectId { database: 0, ..object }, steps, asking.wall_ms)
    }

    /// The next requests of one client.
    pub fn pipeline(
        &mut self,
        random: &mut SeededRandom,
        history: &mut History,
        channels: &mut Channels,
        asking: Asking,
    ) -> Vec<Request> {
        let mut requests = Vec::new();
        for _ in 0..1 + random.below(6) {
            if self.grows && random.chance(0.3) {
                requests.push(self.grow(random));
            }
            if self.publishes && random.chance(0.4) {
                requests.push(publish(random, history, asking, channels));
            }
            let object = self.object(random, asking.database);
            match (kind(object), random.below(100)) {
                (_, 0..2) if self.flushes && asking.database == 1 => {
                    requests.push(self.flush(history, asking))
                }
                (_, 2..5) if self.swaps => requests.push(self.swap(history, asking)),
                (Kind::Large, _) => requests.push(self.large(random, history, asking, object)),
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
        // Where databases change places, what began in the first may be in this one.
        let objects = self.objects_of(if self.swaps { 0 } else { asking.database });
        let ids = objects.map(|object| {
            let object = ObjectId { database: asking.database, ..object };
            let steps = (0..key_count(object)).map(|key| Step { key, verb: Verb::Flush }).collect();
            self.note(history, asking, object, steps)
        });
        let ids = ids.collect();
        request(&[b"FLUSHDB"], Expect::AllOk(ids))
    }

    fn swap(&mut self, history: &mut History, asking: Asking) -> Request {
        let ids = self.objects_of(0).map(|object| {
            let steps = vec![Step { key: 0, verb: Verb::Swap(key_count(object)) }];
            history.ask(asking.connection, object, steps, asking.wall_ms)
        });
        request(&[b"SWAPDB", b"0", b"1"], Expect::AllOk(ids.collect()))
    }

    /// Adds keys that stay, or such as fill the device.
    fn grow(&mut self, random: &mut SeededRandom) -> Request {
        if self.fills_for_a_time {
            self.grown += 1;
            let key = format!("g{}", self.grown);
            let value = vec![b'f'; 500 + random.below(FILLERS_MAX / 2 * FILLER_BYTES_MAX) as usize];
            let for_ms = ((1 << 40) + random.below(1 << 20)).to_string();
            return request(&[b"SET", key.as_bytes(), &value, b"PX", for_ms.as_bytes()], Expect::Ok);
        }
        let mut words = vec![b"MSET".to_vec()];
        let mut keys = Vec::new();
        let most = if self.fills { FILLERS_MAX } else { GROWTH_MAX };
        for _ in 0..1 + random.below(most) {
            self.grown += 1;
            let key = format!("g{}", self.grown).into_bytes();
            let len = if self.fills { 500 + random.below(FILLER_BYTES_MAX) as usize } else { 0 };
            words.extend([key.clone(), if self.fills { vec![b'f'; len] } else { b"there".to_vec() }]);
            keys.push(key);
        }
        Request { words, expect: if self.fills { Expect::Ok } else { Expect::Grown(keys) } }
    }

    fn large(
        &mut self,
        random: &mut SeededRandom,
        history: &mut History,
        asking: Asking,
        object: ObjectId,
    ) -> Request {
        let key = random.below(2) as usize;
        let whole = (CHUNK_BYTES + 1, 4 * CHUNK_BYTES);
        // Arguments and replies above 1 MiB go in pieces.
        let streamed = (1 << 20, 5 << 18);
        let at = random.below(4 * CHUNK_BYTES) as usize;
        let verb = match random.below(100) {
            0..25 => Verb::Get,
            25..27 => Verb::Set(self.large_value(random, streamed)),
            27..47 => Verb::Set(self.large_value(random, whole)),
            47..57 => Verb::GetRange(at, at + random.below(2 * CHUNK_BYTES) as usize),
            57..70 => Verb::SetRange(at, self.large_value(random, (1, CHUNK_BYTES))),
            70..77 => Verb::Append(self.large_value(random, (1, 2 * CHUNK_BYTES))),
            77..80 => Verb::Length,
            80..87 => Verb::CopyTo(1 - key, random.chance(0.5)),
            87..93 => Verb::RenameTo(1 - key),
            93..95 => Verb::Set(self.value(random)),
            95..97 => Verb::Take,
            _ => Verb::Delete,
        };
        self.one(history, asking, object, Step { key, verb })
    }

    fn one(&self, history: &mut History, asking: Asking, object: ObjectId, step: Step) -> Request {
        let words = command(object, &step);
        let id = self.note(history, asking, object, vec![step]);
        Request { words, expect: Expect::One(id) }
    }

    fn verb(&mut self, random: &mut SeededRandom, kind: Kind) -> Verb {
        let roll = random.below(100);
        match kind {
            Kind::Register | Kind::Pair | Kind::Spread | Kind::Large => match roll {
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
                92..96 => Verb::Set(random.below(1000).to_string().into_bytes().into()),
                _ => Verb::Delete,
            },
            Kind::Expiring if self.touches => match roll {
                0..40 => Verb::Get,
                40..58 => {
                    let value = self.value(random).with_tail(&[b'y'; TOUCHED_BYTES_MIN]);
                    Verb::SetFor(value, 1 + random.below(30))
                }
                58..84 => Verb::ExpireIn(1 + random.below(30)),
                84..95 => Verb::Persist,
                _ => Verb::Delete,
            },
            Kind::Expiring => match roll {
                0..55 => Verb::Get,
                55..85 => Verb::SetFor(self.value(random), (1 + random.below(6)) * self.expiry_unit_ms),
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
        self.one(history, asking, object, step)
    }

    /// Reads of all keys of an object: in one piece, unless they are large.
    pub fn read_all(&self, history: &mut History, asking: Asking, object: ObjectId) -> Vec<Request> {
        let steps: Vec<Step> = (0..key_count(object)).map(|key| Step { key, verb: Verb::Get }).collect();
        if kind(object) == Kind::Large {
            return steps.into_iter().map(|step| self.one(history, asking, object, step)).collect();
        }
        let id = self.note(history, asking, object, steps);
        let mut words = vec![b"MGET".to_vec()];
        words.extend((0..key_count(object)).map(|key| key_bytes(object, key)));
        vec![Request { words, expect: Expect::Each(id) }]
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
            0..40 => requests.extend(self.read_all(history, asking, object)),
            40..65 => {
                let steps: Vec<Step> =
                    (0..2).map(|key| Step { key, verb: Verb::Set(self.value(random)) }).collect();
                let mut words = vec![b"MSET".to_vec()];
                for step in &steps {
                    words.extend(command(object, step).drain(1..));
                }
                let id = self.note(history, asking, object, steps);
                requests.push(Request { words, expect: Expect::AllOk(vec![id]) });
            }
            _ => {
                let count = 2 + random.below(3);
                let steps: Vec<Step> = (0..count)
                    .map(|_| Step { key: random.below(2) as usize, verb: self.verb(random, Kind::Pair) })
                    .collect();
                let commands: Vec<_> = steps.iter().map(|step| command(object, step)).collect();
                let id = self.note(history, asking, object, steps);
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
        let read = self.note(history, asking, object, vec![get.clone()]);
        let write = command(object, &set);
        let transaction = self.note(history, asking, object, vec![get.clone(), set]);
        requests.push(request(&[b"WATCH", &key_bytes(object, 0)], Expect::Watch { transaction }));
        requests.push(Request {
            words: command(object, &get),
            expect: Expect::WatchedRead { read, transaction },
        });
        queue(requests, vec![write], Expect::WatchedExec { read, transaction });
    }
}

fn publish(
    random: &mut SeededRandom,
    history: &mut History,
    asking: Asking,
    channels: &mut Channels,
) -> Request {
    let channel = random.below(CHANNELS) as u32;
    let id = channels.publish(asking.connection, channel, history.moment());
    let text = format!("m{id}");
    request(&[b"PUBLISH", &channels::name(channel), text.as_bytes()], Expect::Published(id))
}

/// The next request of one who listens, to channels or not any more.
pub fn listener_request(
    random: &mut SeededRandom,
    history: &mut History,
    channels: &mut Channels,
    (connection, joined): (u64, &mut BTreeSet<u32>),
) -> Request {
    let channel = random.below(CHANNELS) as u32;
    let name = channels::name(channel);
    let moment = history.moment();
    if joined.insert(channel) {
        channels.join(connection, channel, moment);
        return request(&[b"SUBSCRIBE", &name], Expect::Joined(channel));
    }
    joined.remove(&channel);
    channels.leave(connection, channel, moment);
    request(&[b"UNSUBSCRIBE", &name], Expect::Left(channel))
}

fn queue(requests: &mut Vec<Request>, commands: Vec<Vec<Vec<u8>>>, expect: Expect) {
    requests.push(request(&[b"MULTI"], Expect::Ok));
    for words in commands {
        requests.push(Request { words, expect: Expect::Queued });
    }
    requests.push(request(&[b"EXEC"], expect));
}
