//! What Redis's documentation says of strings, expiry and transactions, as plainly as it can be written: what command
//! sequences are held against. Nothing here is taken from the crate that it judges.

use std::collections::BTreeMap;

/// What is expected of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// These bytes, in the second protocol.
    Exactly(Vec<u8>),
    /// An error whose text begins with this word.
    Error(&'static str),
    /// An array of replies.
    Array(Vec<Expected>),
}

use Expected::{Array, Error, Exactly};

/// How many keys there are.
pub const KEYS: u8 = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    value: Vec<u8>,
    expires_ms: Option<u64>,
}

/// A request that the model knows. Keys are numbers; the caller names them.
#[derive(Clone, Debug)]
pub enum Request {
    Get(u8),
    /// `SET` with its options, and after how many milliseconds it expires.
    Set(u8, Vec<u8>, SetIf, bool, Keep),
    GetSet(u8, Vec<u8>),
    GetDel(u8),
    /// `GETEX`: keep, set in so many milliseconds, or end the expiry.
    GetEx(u8, Keep),
    Append(u8, Vec<u8>),
    Length(u8),
    AddTo(u8, i64),
    SetRange(u8, u32, Vec<u8>),
    GetRange(u8, i32, i32),
    SetBit(u8, u32, bool),
    GetBit(u8, u32),
    BitCount(u8),
    MultiGet(Vec<u8>),
    MultiSet(Vec<(u8, Vec<u8>)>),
    MultiSetNew(Vec<(u8, Vec<u8>)>),
    Delete(Vec<u8>),
    Exists(Vec<u8>),
    Rename(u8, u8, bool),
    Copy(u8, u8, u8, bool),
    Move(u8, u8),
    ExpireIn(u8, i64, ExpireIf),
    TimeToLive(u8),
    Persist(u8),
    Select(u8),
    SwapDatabases(u8, u8),
    Flush,
    Multi,
    Exec,
    Discard,
    Watch(Vec<u8>),
    Unwatch,
}

/// `NX` and `XX` of `SET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetIf {
    Always,
    Absent,
    Present,
}

/// What becomes of an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It ends.
    Ends,
    /// It stays.
    Stays,
    /// So many milliseconds from now.
    In(u64),
}

/// The condition of `PEXPIRE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireIf {
    Always,
    Absent,
    Present,
    Later,
    Sooner,
}

/// A connection's own state.
#[derive(Clone, Debug, Default)]
struct Session {
    database: u8,
    /// The queue of `MULTI`.
    queue: Option<Vec<Request>>,
    /// What the connection watches, and what it was then.
    watched: Vec<((u8, u8), u64)>,
}

/// Databases of strings and the connections to them.
#[derive(Debug, Default)]
pub struct Model {
    databases: BTreeMap<u8, BTreeMap<u8, Cell>>,
    /// How often a key was changed.
    changes: BTreeMap<(u8, u8), u64>,
    sessions: BTreeMap<u64, Session>,
    now_ms: u64,
}

fn simple(text: &str) -> Expected {
    Exactly(format!("+{text}\r\n").into_bytes())
}

fn integer(value: i64) -> Expected {
    Exactly(format!(":{value}\r\n").into_bytes())
}

fn bulk(value: Option<&[u8]>) -> Expected {
    let Some(value) = value else { return Exactly(b"$-1\r\n".to_vec()) };
    let mut bytes = format!("${}\r\n", value.len()).into_bytes();
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
    Exactly(bytes)
}

/// An integer as Redis writes it: no spaces, no plus, no leading zero.
fn parse_integer(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl Model {
    /// The time of all requests from now on.
    pub fn set_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    fn cell(&mut self, database: u8, key: u8) -> Option<&mut Cell> {
        let now_ms = self.now_ms;
        let cells = self.databases.entry(database).or_default();
        if cells.get(&key).is_some_and(|cell| cell.expires_ms.is_some_and(|at| at <= now_ms)) {
            cells.remove(&key);
            // What expires is a change to whoever watches.
            *self.changes.entry((database, key)).or_default() += 1;
        }
        cells.get_mut(&key)
    }

    fn value(&mut self, database: u8, key: u8) -> Option<Vec<u8>> {
        self.cell(database, key).map(|cell| cell.value.clone())
    }

    fn put(&mut self, database: u8, key: u8, value: Vec<u8>, expires_ms: Option<u64>) {
        *self.changes.entry((database, key)).or_default() += 1;
        self.databases.entry(database).or_default().insert(key, Cell { value, expires_ms });
    }

    fn take(&mut self, database: u8, key: u8) -> Option<Cell> {
        self.cell(database, key)?;
        *self.changes.entry((database, key)).or_default() += 1;
        self.databases.entry(database).or_default().remove(&key)
    }

    fn expiry(&mut self, database: u8, key: u8) -> Option<u64> {
        self.cell(database, key).and_then(|cell| cell.expires_ms)
    }

    /// Gives a key an expiry that it has not, or takes it.
    fn set_expiry(&mut self, database: u8, key: u8, expires_ms: Option<u64>) {
        if expires_ms.is_some_and(|at| at <= self.now_ms) {
            self.take(database, key);
        } else if let Some(cell) = self.cell(database, key) {
            cell.expires_ms = expires_ms;
            *self.changes.entry((database, key)).or_default() += 1;
        }
    }

    fn version(&mut self, database: u8, key: u8) -> u64 {
        self.cell(database, key);
        self.changes.get(&(database, key)).copied().unwrap_or_default()
    }

    /// What a connection's request does and answers.
    pub fn request(&mut self, connection: u64, request: &Request) -> Expected {
        let mut session = self.sessions.remove(&connection).unwrap_or_default();
        let expected = self.in_session(&mut session, request);
        self.sessions.insert(connection, session);
        expected
    }

    fn in_session(&mut self, session: &mut Session, request: &Request) -> Expected {
        let is_open = session.queue.is_some();
        match (request, session.queue.take()) {
            (Request::Multi, Some(queue)) => {
                session.queue = Some(queue);
                Error("-ERR")
            }
            (Request::Multi, None) => {
                session.queue = Some(Vec::new());
                simple("OK")
            }
            (Request::Exec | Request::Discard, None) => Error("-ERR"),
            (Request::Discard, Some(_)) => {
                session.watched.clear();
                simple("OK")
            }
            (Request::Exec, Some(queue)) => self.exec(session, &queue),
            (Request::Watch(_), Some(queue)) => {
                session.queue = Some(queue);
                Error("-ERR")
            }
            (_, Some(mut queue)) => {
                queue.push(request.clone());
                session.queue = Some(queue);
                simple("QUEUED")
            }
            (Request::Watch(keys), None) => {
                for key in keys {
                    let place = (session.database, *key);
                    let version = self.version(place.0, place.1);
                    if !session.watched.iter().any(|(other, _)| *other == place) {
                        session.watched.push((place, version));
                    }
                }
                simple("OK")
            }
            (_, None) => {
                debug_assert!(!is_open);
                self.execute(session, request)
            }
        }
    }

    fn exec(&mut self, session: &mut Session, queue: &[Request]) -> Expected {
        let watched = std::mem::take(&mut session.watched);
        if watched.iter().any(|((database, key), version)| self.version(*database, *key) != *version) {
            return Exactly(b"*-1\r\n".to_vec());
        }
        Array(queue.iter().map(|request| self.execute(session, request)).collect())
    }

    fn execute(&mut self, session: &mut Session, request: &Request) -> Expected {
        let database = session.database;
        match request {
            Request::Select(number) => {
                session.database = *number;
                simple("OK")
            }
            Request::Unwatch => {
                session.watched.clear();
                simple("OK")
            }
            Request::Multi | Request::Exec | Request::Discard | Request::Watch(_) => Error("-ERR"),
            Request::SwapDatabases(one, other) => self.swap(*one, *other),
            Request::Flush => {
                let keys: Vec<u8> = self.databases.entry(database).or_default().keys().copied().collect();
                keys.iter().for_each(|key| drop(self.take(database, *key)));
                simple("OK")
            }
            Request::MultiGet(_)
            | Request::MultiSet(_)
            | Request::MultiSetNew(_)
            | Request::Delete(_)
            | Request::Exists(_) => self.of_several(database, request),
            Request::Rename(..) | Request::Copy(..) | Request::Move(..) => self.between(database, request),
            Request::ExpireIn(..) | Request::TimeToLive(_) | Request::Persist(_) => {
                self.of_time(database, request)
            }
            _ => self.of_one(database, request),
        }
    }

    fn swap(&mut self, one: u8, other: u8) -> Expected {
        if one == other {
            return simple("OK");
        }
        // Here every key of both is taken to have changed: as `docs/redis-compatibility.md` says, and unlike Redis.
        for place in [one, other].into_iter().flat_map(|database| (0..KEYS).map(move |key| (database, key))) {
            *self.changes.entry(place).or_default() += 1;
        }
        let (first, second) = (self.databases.remove(&one), self.databases.remove(&other));
        self.databases.insert(one, second.unwrap_or_default());
        self.databases.insert(other, first.unwrap_or_default());
        simple("OK")
    }

    fn kept(&mut self, database: u8, key: u8, keep: Keep) -> Option<u64> {
        match keep {
            Keep::Ends => None,
            Keep::Stays => self.expiry(database, key),
            Keep::In(ms) => Some(self.now_ms + ms),
        }
    }

    fn of_one(&mut self, database: u8, request: &Request) -> Expected {
        match request {
            Request::Get(key) => bulk(self.value(database, *key).as_deref()),
            Request::Set(key, value, condition, tells, keep) => {
                let old = self.value(database, *key);
                let is_met = match condition {
                    SetIf::Always => true,
                    SetIf::Absent => old.is_none(),
                    SetIf::Present => old.is_some(),
                };
                if is_met {
                    let expires_ms = self.kept(database, *key, *keep);
                    self.put(database, *key, value.clone(), expires_ms);
                }
                if *tells {
                    bulk(old.as_deref())
                } else if is_met {
                    simple("OK")
                } else {
                    bulk(None)
                }
            }
            Request::GetSet(key, value) => {
                let old = self.value(database, *key);
                self.put(database, *key, value.clone(), None);
                bulk(old.as_deref())
            }
            Request::GetDel(key) => bulk(self.take(database, *key).map(|cell| cell.value).as_deref()),
            Request::GetEx(key, keep) => {
                let old = self.value(database, *key);
                let before = self.expiry(database, *key);
                if *keep != Keep::Stays && old.is_some() && (*keep != Keep::Ends || before.is_some()) {
                    let expires_ms = self.kept(database, *key, *keep);
                    self.set_expiry(database, *key, expires_ms);
                }
                bulk(old.as_deref())
            }
            Request::Append(key, more) => {
                let mut value = self.value(database, *key).unwrap_or_default();
                value.extend_from_slice(more);
                self.rewrite(database, *key, value)
            }
            Request::Length(key) => integer(self.value(database, *key).map_or(0, |value| value.len()) as i64),
            Request::AddTo(key, by) => self.add(database, *key, *by),
            _ => self.of_bytes(database, request),
        }
    }

    /// A new value with the old expiry; its length is told.
    fn rewrite(&mut self, database: u8, key: u8, value: Vec<u8>) -> Expected {
        let (length, expires_ms) = (value.len(), self.expiry(database, key));
        self.put(database, key, value, expires_ms);
        integer(length as i64)
    }

    fn add(&mut self, database: u8, key: u8, by: i64) -> Expected {
        let old = self.value(database, key).unwrap_or_else(|| b"0".to_vec());
        let Some(sum) = parse_integer(&old).and_then(|old| old.checked_add(by)) else { return Error("-ERR") };
        self.rewrite(database, key, sum.to_string().into_bytes());
        integer(sum)
    }

    fn of_bytes(&mut self, database: u8, request: &Request) -> Expected {
        match request {
            Request::SetRange(key, at, part) => {
                let mut value = self.value(database, *key).unwrap_or_default();
                if part.is_empty() {
                    return integer(value.len() as i64);
                }
                let at = *at as usize;
                value.resize(value.len().max(at + part.len()), 0);
                value[at..at + part.len()].copy_from_slice(part);
                self.rewrite(database, *key, value)
            }
            Request::GetRange(key, from, to) => {
                let value = self.value(database, *key).unwrap_or_default();
                let length = value.len() as i64;
                let place = |at: i32| if at < 0 { (length + i64::from(at)).max(0) } else { i64::from(at) };
                let is_reversed = *from < 0 && *to < 0 && from > to;
                let (from, to) = (place(*from), place(*to).min(length - 1));
                if is_reversed || from > to || length == 0 {
                    return bulk(Some(b""));
                }
                bulk(Some(&value[from as usize..=to as usize]))
            }
            Request::SetBit(key, at, bit) => {
                let mut value = self.value(database, *key).unwrap_or_default();
                let (byte, mask) = (*at as usize / 8, 0x80 >> (at % 8));
                let grows = value.len() <= byte;
                value.resize(value.len().max(byte + 1), 0);
                let old = value[byte] & mask != 0;
                value[byte] = if *bit { value[byte] | mask } else { value[byte] & !mask };
                // A bit that is as it was is no change, not to a watcher either (Redis 7 and later).
                if grows || old != *bit {
                    self.rewrite(database, *key, value);
                }
                integer(i64::from(old))
            }
            Request::GetBit(key, at) => {
                let value = self.value(database, *key).unwrap_or_default();
                let byte = value.get(*at as usize / 8).copied().unwrap_or_default();
                integer(i64::from(byte & (0x80 >> (at % 8)) != 0))
            }
            Request::BitCount(key) => {
                let value = self.value(database, *key).unwrap_or_default();
                integer(value.iter().map(|byte| i64::from(byte.count_ones())).sum())
            }
            other => unreachable!("{other:?} is of another kind"),
        }
    }

    fn of_several(&mut self, database: u8, request: &Request) -> Expected {
        match request {
            Request::MultiGet(keys) => {
                Array(keys.iter().map(|key| bulk(self.value(database, *key).as_deref())).collect())
            }
            Request::MultiSet(pairs) => {
                pairs.iter().for_each(|(key, value)| self.put(database, *key, value.clone(), None));
                simple("OK")
            }
            Request::MultiSetNew(pairs) => {
                if pairs.iter().any(|(key, _)| self.cell(database, *key).is_some()) {
                    return integer(0);
                }
                pairs.iter().for_each(|(key, value)| self.put(database, *key, value.clone(), None));
                integer(1)
            }
            Request::Delete(keys) => {
                integer(keys.iter().filter(|key| self.take(database, **key).is_some()).count() as i64)
            }
            Request::Exists(keys) => {
                integer(keys.iter().filter(|key| self.cell(database, **key).is_some()).count() as i64)
            }
            other => unreachable!("{other:?} is of another kind"),
        }
    }

    fn between(&mut self, database: u8, request: &Request) -> Expected {
        match request {
            Request::Rename(from, to, only_new) => {
                if self.cell(database, *from).is_none() {
                    return Error("-ERR");
                }
                let done = if *only_new { integer(1) } else { simple("OK") };
                if *only_new && self.cell(database, *to).is_some() {
                    return integer(0);
                }
                if from != to
                    && let Some(cell) = self.take(database, *from)
                {
                    self.put(database, *to, cell.value, cell.expires_ms);
                }
                done
            }
            Request::Copy(from, to, into, replaces) => {
                if (database, from) == (*into, to) {
                    return Error("-ERR");
                }
                let Some(cell) = self.cell(database, *from).cloned() else { return integer(0) };
                if !replaces && self.cell(*into, *to).is_some() {
                    return integer(0);
                }
                self.put(*into, *to, cell.value, cell.expires_ms);
                integer(1)
            }
            Request::Move(key, into) => {
                if database == *into {
                    return Error("-ERR");
                }
                if self.cell(database, *key).is_none() || self.cell(*into, *key).is_some() {
                    return integer(0);
                }
                let cell = self.take(database, *key);
                cell.into_iter().for_each(|cell| self.put(*into, *key, cell.value, cell.expires_ms));
                integer(1)
            }
            other => unreachable!("{other:?} is of another kind"),
        }
    }

    fn of_time(&mut self, database: u8, request: &Request) -> Expected {
        match request {
            Request::ExpireIn(key, ms, condition) => {
                if self.cell(database, *key).is_none() {
                    return integer(0);
                }
                let (before, at) = (self.expiry(database, *key), self.now_ms.saturating_add_signed(*ms));
                let is_met = match condition {
                    ExpireIf::Always => true,
                    ExpireIf::Absent => before.is_none(),
                    ExpireIf::Present => before.is_some(),
                    ExpireIf::Later => before.is_some_and(|before| at > before),
                    ExpireIf::Sooner => before.is_none_or(|before| at < before),
                };
                if is_met {
                    self.set_expiry(database, *key, Some(at));
                }
                integer(i64::from(is_met))
            }
            Request::TimeToLive(key) => {
                if self.cell(database, *key).is_none() {
                    return integer(-2);
                }
                let now_ms = self.now_ms;
                integer(self.expiry(database, *key).map_or(-1, |at| (at - now_ms) as i64))
            }
            Request::Persist(key) => {
                let had = self.expiry(database, *key).is_some();
                if had {
                    self.set_expiry(database, *key, None);
                }
                integer(i64::from(had))
            }
            other => unreachable!("{other:?} is of another kind"),
        }
    }
}

/// Whether a reply is what was expected; how much of it was read.
pub fn matches(expected: &Expected, reply: &[u8]) -> Option<usize> {
    match expected {
        Exactly(bytes) => reply.starts_with(bytes).then_some(bytes.len()),
        Error(start) => {
            let end = reply.windows(2).position(|pair| pair == b"\r\n")?;
            reply.starts_with(start.as_bytes()).then_some(end + 2)
        }
        Array(all) => {
            let head = format!("*{}\r\n", all.len());
            let mut at = reply.starts_with(head.as_bytes()).then_some(head.len())?;
            for one in all {
                at += matches(one, reply.get(at..)?)?;
            }
            Some(at)
        }
    }
}
