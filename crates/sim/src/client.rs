//! One client: sends its requests in pieces, reads replies as they come, notes what it saw.
//!
//! A client belongs to one connection; when that is gone, what was not answered is in doubt until the
//! process that may still carry it out has ended.

use crate::channels::Channels;
use crate::content::seen as shortened;
use crate::history::{EventId, History, Seen};
use crate::model::{NO_SUCH_KEY, Verb};
use crate::script::{Expect, Request};
use std::collections::{BTreeSet, VecDeque};
use tierstone_wire::resp::{ReplyLimits, ReplyParser, ReplyProgress, Value, encode_command};

/// A scan in progress.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Keys that were there before it began and stay.
    pub owed: BTreeSet<Vec<u8>>,
    /// Keys that it has given.
    pub seen: BTreeSet<Vec<u8>>,
    /// Where it goes on: the last cursor that was given.
    pub at: Vec<u8>,
    /// The process in which it began, by number.
    pub life: usize,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Unique in the run.
    pub connection: u64,
    /// Where it is connected: shard and index.
    pub place: (usize, u32),
    /// The numbered database that it uses.
    pub database: u32,
    /// Bytes on their way to the server.
    pub outgoing: Vec<u8>,
    /// Nothing is asked before this time, in microseconds.
    pub idle_until_us: u64,
    /// It has closed its sending half.
    pub has_ended: bool,
    /// It does not read until this time, in microseconds.
    pub stalled_until_us: u64,
    /// A scan in progress.
    pub scan: Option<Scan>,
    /// The cursor to go on with.
    pub cursor: Option<Vec<u8>>,
    /// It listens to these channels, or is about to; `None`: it does not listen, it asks.
    pub joined: Option<BTreeSet<u32>>,
    parser: ReplyParser,
    input: Vec<u8>,
    waiting: VecDeque<Expect>,
}

/// What a client has read.
#[derive(Debug, Default)]
pub struct Heard {
    /// Replies as text, for the transcript.
    pub lines: Vec<String>,
    /// Errors that the server gave.
    pub errors: Vec<String>,
    /// What no server may say.
    pub violation: Option<String>,
    /// Events whose writes are now acknowledged.
    pub acknowledged: Vec<EventId>,
    /// Keys that are there from now on.
    pub grown: Vec<Vec<u8>>,
    /// A scan has come to its end that began in this process.
    pub whole_scan: Option<usize>,
    /// Events of which an error says that the device failed in them: what they did may show at the next
    /// opening.
    pub in_doubt: Vec<EventId>,
}

impl Heard {
    fn object(&mut self, verdict: Result<(), String>) {
        if let Err(violation) = verdict {
            self.violation.get_or_insert(violation);
        }
    }
}

/// The channel and the text of a message.
fn message(value: &Value) -> Option<(&[u8], &[u8])> {
    match value.items()? {
        [word, channel, text] if word.bytes() == Some(b"message") => Some((channel.bytes()?, text.bytes()?)),
        _ => None,
    }
}

fn is_change(value: &Value, word: &[u8], channel: u32) -> bool {
    let name = crate::channels::name(channel);
    matches!(value.items(), Some([said, named, Value::Integer(_)])
        if said.bytes() == Some(word) && named.bytes() == Some(&name))
}

/// Whether the superblock could not be written in which the databases lie that these events empty.
fn is_failed_flush(value: &Value, ids: &[EventId], history: &History) -> bool {
    let is_flush = |id: &EventId| {
        let mut verbs = history.events[*id].steps.iter().map(|step| &step.verb);
        verbs.all(|verb| matches!(verb, Verb::Flush | Verb::Swap(_)))
    };
    value.error().is_some_and(|text| text.starts_with("MISCONF")) && ids.iter().all(is_flush)
}

impl Client {
    /// A client that has just been connected.
    pub fn new(connection: u64, place: (usize, u32), database: u32) -> Self {
        Client {
            connection,
            place,
            database,
            outgoing: Vec::new(),
            idle_until_us: 0,
            has_ended: false,
            stalled_until_us: 0,
            scan: None,
            cursor: None,
            joined: None,
            parser: ReplyParser::new(ReplyLimits::default()),
            input: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Whether every request has been answered.
    pub fn is_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a request on its way; gives its text.
    pub fn send(&mut self, request: &Request) -> String {
        let arguments: Vec<&[u8]> = request.words.iter().map(Vec::as_slice).collect();
        encode_command(&arguments, &mut self.outgoing);
        self.waiting.push_back(request.expect.clone());
        let texts: Vec<String> = request.words.iter().map(|word| brief(word)).collect();
        texts.join(" ")
    }

    /// Events that were not answered.
    pub fn unanswered(&self) -> Vec<EventId> {
        let mut ids = Vec::new();
        for expect in &self.waiting {
            match expect {
                Expect::One(id) | Expect::Each(id) => ids.push(*id),
                Expect::AllOk(all) => ids.extend(all),
                Expect::WatchedRead { read, .. } => ids.push(*read),
                Expect::WatchedExec { transaction, .. } => ids.push(*transaction),
                Expect::Ok
                | Expect::Queued
                | Expect::Watch { .. }
                | Expect::Page
                | Expect::Grown(_)
                | Expect::Published(_)
                | Expect::Joined(_)
                | Expect::Left(_) => {}
            }
        }
        ids
    }

    /// Bytes have come from the server.
    pub fn hear(
        &mut self,
        bytes: &[u8],
        history: &mut History,
        channels: &mut Channels,
        wall_ms: u64,
    ) -> Heard {
        let mut heard = Heard::default();
        self.input.extend_from_slice(bytes);
        loop {
            match self.parser.parse(&self.input) {
                Ok(ReplyProgress::Complete { consumed, value }) => {
                    self.input.drain(..consumed);
                    heard.lines.push(brief_value(&value));
                    if let Some((channel, payload)) = message(&value) {
                        heard.object(channels.hear(self.connection, channel, payload));
                        continue;
                    }
                    let value = shortened(value);
                    match self.waiting.pop_front() {
                        Some(expect) if expect.is_of_channels() => {
                            self.answer_of_channels(
                                &expect,
                                &value,
                                (history.moment(), channels),
                                &mut heard,
                            );
                        }
                        Some(expect) => self.answer(expect, value, history, wall_ms, &mut heard),
                        None => heard.violation = Some(format!("a reply that nobody waits for: {value:?}")),
                    }
                }
                Ok(ReplyProgress::Incomplete { consumed, .. }) => {
                    self.input.drain(..consumed);
                    return heard;
                }
                Err(error) => {
                    heard.violation = Some(format!("a reply that is none: {error:?}"));
                    return heard;
                }
            }
        }
    }

    fn answer(
        &mut self,
        expect: Expect,
        value: Value,
        history: &mut History,
        wall_ms: u64,
        heard: &mut Heard,
    ) {
        let is_no_error = matches!(expect, Expect::One(_)) && value == Value::Error(NO_SUCH_KEY.to_vec());
        if let Some(error) = value.error().filter(|_| !is_no_error) {
            heard.errors.push(error.into_owned());
        }
        match expect {
            Expect::Published(_) | Expect::Joined(_) | Expect::Left(_) => {}
            Expect::Grown(keys) if value == Value::Simple(b"OK".to_vec()) => heard.grown.extend(keys),
            Expect::Grown(_) => {}
            Expect::Ok | Expect::Queued => {
                let expected: &[u8] = if matches!(expect, Expect::Ok) { b"OK" } else { b"QUEUED" };
                if !value.is_error() && value != Value::Simple(expected.to_vec()) {
                    heard.violation =
                        Some(format!("{value:?} instead of {}", String::from_utf8_lossy(expected)));
                }
            }
            Expect::Watch { transaction } => {
                if value.is_error() {
                    // Nothing is watched: what is read first says nothing about the transaction.
                    history.events[transaction].steps.remove(0);
                } else if value != Value::Simple(b"OK".to_vec()) {
                    heard.violation = Some(format!("{value:?} instead of OK"));
                }
            }
            Expect::Page => self.page(value, heard),
            Expect::One(id) => {
                let is_refused = value.is_error() && !is_no_error;
                let seen = if is_refused { Seen::Refused } else { Seen::Replies(vec![value]) };
                self.end(id, seen, history, wall_ms, heard);
            }
            Expect::Each(id) => self.each(id, Vec::new(), value, history, wall_ms, heard),
            Expect::AllOk(ids) if is_failed_flush(&value, &ids, history) => heard.in_doubt.extend(ids),
            Expect::AllOk(ids) => {
                for id in ids {
                    let count = history.events[id].steps.len();
                    let seen = if value.is_error() {
                        Seen::Refused
                    } else {
                        Seen::Replies(vec![value.clone(); count])
                    };
                    self.end(id, seen, history, wall_ms, heard);
                }
            }
            Expect::WatchedRead { read, .. } => {
                let seen = if value.is_error() { Seen::Refused } else { Seen::Replies(vec![value]) };
                self.end(read, seen, history, wall_ms, heard);
            }
            Expect::WatchedExec { read, transaction } => match history.events[read].seen.clone() {
                _ if value.is_null() => self.end(transaction, Seen::Refused, history, wall_ms, heard),
                Seen::Replies(first) if history.events[transaction].steps.len() > 1 => {
                    self.each(transaction, first, value, history, wall_ms, heard);
                }
                _ => {
                    // The read was refused, or the watch: only the write of the transaction is known.
                    let steps = &mut history.events[transaction].steps;
                    steps.drain(..steps.len() - 1);
                    self.each(transaction, Vec::new(), value, history, wall_ms, heard);
                }
            },
        }
    }

    /// The answer to `PUBLISH`, `SUBSCRIBE` or `UNSUBSCRIBE`.
    fn answer_of_channels(
        &mut self,
        expect: &Expect,
        value: &Value,
        (moment, channels): (u64, &mut Channels),
        heard: &mut Heard,
    ) {
        if let Some(error) = value.error() {
            return heard.errors.push(error.into_owned());
        }
        match (expect, value) {
            (Expect::Published(id), Value::Integer(count)) => {
                heard.object(channels.published(*id, *count, moment));
            }
            (Expect::Joined(channel), value) if is_change(value, b"subscribe", *channel) => {
                channels.joined(self.connection, *channel, moment);
            }
            (Expect::Left(channel), value) if is_change(value, b"unsubscribe", *channel) => {
                heard.object(channels.left(self.connection, *channel, moment));
            }
            (expect, value) => heard.object(Err(format!("{value:?} answers {expect:?}"))),
        }
    }

    fn each(
        &mut self,
        id: EventId,
        mut replies: Vec<Value>,
        value: Value,
        history: &mut History,
        wall_ms: u64,
        heard: &mut Heard,
    ) {
        let seen = match value {
            Value::Array(items) => {
                replies.extend(items);
                let count = history.events[id].steps.len();
                if replies.len() != count {
                    heard.violation = Some(format!("{} replies to {count} commands", replies.len()));
                }
                heard.errors.extend(replies.iter().filter_map(|reply| reply.error().map(Into::into)));
                // A command that was refused inside a transaction has done nothing.
                let steps = std::mem::take(&mut history.events[id].steps);
                let kept = steps.into_iter().zip(replies).filter(|(_, reply)| !reply.is_error());
                let (steps, replies) = kept.unzip();
                history.events[id].steps = steps;
                Seen::Replies(replies)
            }
            Value::Error(_) => Seen::Refused,
            other => {
                heard.violation = Some(format!("{other:?} instead of an array"));
                Seen::Refused
            }
        };
        self.end(id, seen, history, wall_ms, heard);
    }

    fn end(&mut self, id: EventId, seen: Seen, history: &mut History, wall_ms: u64, heard: &mut Heard) {
        if matches!(seen, Seen::Replies(_)) {
            heard.acknowledged.push(id);
        }
        history.end(id, seen, wall_ms);
    }

    fn page(&mut self, value: Value, heard: &mut Heard) {
        let Value::Array(parts) = value else {
            self.scan = None;
            return;
        };
        let Some(scan) = &mut self.scan else { return };
        let (Some(cursor), Some(Value::Array(keys))) = (parts.first().and_then(Value::bytes), parts.get(1))
        else {
            heard.violation = Some(format!("no page of a scan: {parts:?}"));
            return;
        };
        scan.seen.extend(keys.iter().filter_map(|key| key.bytes().map(<[u8]>::to_vec)));
        if cursor != b"0" {
            self.cursor = Some(cursor.to_vec());
            scan.at = cursor.to_vec();
            return;
        }
        if let Some(missed) = scan.owed.iter().find(|key| !scan.seen.contains(*key)) {
            heard.violation = Some(format!("a whole scan does not give {}", String::from_utf8_lossy(missed)));
        }
        heard.whole_scan = Some(scan.life);
        self.scan = None;
    }
}

/// Bytes for a transcript: long ones shortened.
fn brief(bytes: &[u8]) -> String {
    const LONGEST: usize = 24;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]);
    if bytes.len() > LONGEST {
        format!("{text}...({} bytes, {:016x})", bytes.len(), tierstone_base::checksum::checksum(0, bytes))
    } else {
        text.into_owned()
    }
}

fn brief_value(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(brief_value).collect();
            format!("[{}]", texts.join(", "))
        }
        Value::Integer(number) => number.to_string(),
        Value::Null => "nil".into(),
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        other => other.bytes().map_or_else(|| format!("{other:?}"), brief),
    }
}
