//! Which operations on which keys a command of Redis is.
//!
//! A command with several keys is a record for each, at the same time. Commands on hashes, lists, sets, sorted sets and
//! streams are kept by name ([`TraceOperation::Other`]): they are not replayed, and counted. Scripts and transactions
//! are not kept themselves: `MONITOR` shows the commands inside them. What the server answered is not known: a command
//! counts as done as it was asked.

use super::monitor_line::Argument;
use super::writer::is_name;
use super::{NAME_BYTES_MAX, TraceKey, TraceOperation, TraceRecord, VALUE_BYTES_MAX};
use tierstone_base::Result;

/// Commands that are about no key of their own.
pub(super) const PASSED_OVER: &[&str] = &[
    "acl",
    "asking",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "client",
    "cluster",
    "command",
    "config",
    "debug",
    "discard",
    "echo",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "exec",
    "failover",
    "fcall",
    "fcall_ro",
    "function",
    "hello",
    "info",
    "lastsave",
    "latency",
    "lolwut",
    "memory",
    "module",
    "monitor",
    "multi",
    "object",
    "ping",
    "psubscribe",
    "psync",
    "publish",
    "pubsub",
    "punsubscribe",
    "quit",
    "readonly",
    "readwrite",
    "replconf",
    "replicaof",
    "reset",
    "role",
    "save",
    "script",
    "select",
    "shutdown",
    "slaveof",
    "slowlog",
    "spublish",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "swapdb",
    "sync",
    "time",
    "unsubscribe",
    "unwatch",
    "wait",
    "waitaof",
    "watch",
];

/// Commands that read the key behind their name.
const READS: &[&str] = &[
    "bitcount",
    "bitpos",
    "dump",
    "expiretime",
    "get",
    "getbit",
    "getrange",
    "pexpiretime",
    "pttl",
    "strlen",
    "substr",
    "ttl",
    "type",
];
/// Commands that read all keys behind their name.
const READS_ALL: &[&str] = &["exists", "mget", "touch"];
/// Commands that read a value and write it again.
const UPDATES: &[&str] = &["decr", "decrby", "incr", "incrby", "incrbyfloat", "setbit", "setrange"];
/// Commands whose third word is a time until the key expires, or at which it does.
const EXPIRES: &[&str] = &["expire", "expireat", "pexpire", "pexpireat"];

/// What a line gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Records.
    Records,
    /// It is about no key.
    PassedOver,
    /// A key was not kept whole.
    KeyTooLong,
}

/// A command as a line of `MONITOR` tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// Its words, its name first.
    pub arguments: &'a [Argument],
    /// There were more words than are kept.
    pub has_more: bool,
    /// Since the trace began.
    pub time_us: u64,
    /// Since 1970.
    pub wall_ms: u64,
    /// The numbered database.
    pub database: u32,
}

/// Where the records of a line go.
type Put<'a> = &'a mut dyn FnMut(&TraceRecord) -> Result<()>;

impl Line<'_> {
    /// Gives the records of the line to `put`.
    pub fn records(&self, put: Put<'_>) -> Result<Heard> {
        let name = self.name();
        if PASSED_OVER.binary_search(&name.as_str()).is_ok() {
            return Ok(Heard::PassedOver);
        }
        let is_one_of = |names: &[&str]| names.contains(&name.as_str());
        let count = self.arguments.len();
        let record = match name.as_str() {
            _ if self.has_more => None,
            "mset" | "msetnx" if count >= 3 && count % 2 == 1 => return self.pairs(&name, put),
            "del" | "unlink" if count >= 2 => return self.each(&TraceOperation::Delete, put),
            _ if is_one_of(READS_ALL) && count >= 2 => return self.each(&TraceOperation::Read, put),
            _ if is_one_of(READS) && count >= 2 => self.record(TraceOperation::Read, 1),
            _ if is_one_of(UPDATES) && count >= 2 => self.record(TraceOperation::Update, 1),
            _ if is_one_of(EXPIRES) && count >= 3 => self.expire(&name),
            "persist" if count == 2 => self.record(TraceOperation::Expire, 1),
            "set" if count >= 3 => self.set(),
            "setex" | "psetex" if count == 4 => self.setex(&name),
            "setnx" if count == 3 => self.with_value(TraceOperation::Add, 1, 2),
            "getset" if count == 3 => self.with_value(TraceOperation::Update, 1, 2),
            "append" if count == 3 => self.with_value(TraceOperation::Append, 1, 2),
            "getdel" if count == 2 => self.record(TraceOperation::Delete, 1),
            "getex" if count >= 2 => self.getex(),
            _ => None,
        };
        match record {
            Some(Ok(record)) => put(&record)?,
            Some(Err(heard)) => return Ok(heard),
            None => put(&self.other(&name))?,
        }
        Ok(Heard::Records)
    }

    /// The command's name in small letters; `?` when it is no name.
    fn name(&self) -> String {
        let name = self.arguments.first().and_then(Argument::whole).unwrap_or_default();
        let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX + 1)]).to_ascii_lowercase();
        if is_name(&name) { name } else { "unknown".to_owned() }
    }

    fn other(&self, name: &str) -> TraceRecord {
        let key = self.arguments.get(1).and_then(Argument::whole).unwrap_or_default();
        let operation = TraceOperation::Other(name.to_owned());
        TraceRecord {
            database: self.database,
            ..TraceRecord::new(self.time_us, operation, TraceKey::of(key))
        }
    }

    fn word(&self, place: usize) -> Option<String> {
        let word = self.arguments.get(place)?.whole()?;
        Some(String::from_utf8_lossy(word).to_ascii_lowercase())
    }

    fn number(&self, place: usize) -> Option<i64> {
        self.word(place)?.parse().ok()
    }

    /// `None`: it is not a command of this kind after all; an error: its key was not kept.
    fn record(
        &self,
        operation: TraceOperation,
        key: usize,
    ) -> Option<std::result::Result<TraceRecord, Heard>> {
        let Some(key) = self.arguments.get(key)?.whole() else { return Some(Err(Heard::KeyTooLong)) };
        let record = TraceRecord::new(self.time_us, operation, TraceKey::of(key));
        Some(Ok(TraceRecord { database: self.database, ..record }))
    }

    fn with_value(
        &self,
        operation: TraceOperation,
        key: usize,
        value: usize,
    ) -> Option<std::result::Result<TraceRecord, Heard>> {
        let bytes = self.arguments.get(value)?.sent_bytes();
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX)?;
        Some(self.record(operation, key)?.map(|record| TraceRecord { value_bytes: Some(bytes), ..record }))
    }

    fn each(&self, operation: &TraceOperation, put: Put<'_>) -> Result<Heard> {
        let mut heard = Heard::Records;
        for place in 1..self.arguments.len() {
            match self.record(operation.clone(), place) {
                Some(Ok(record)) => put(&record)?,
                _ => heard = Heard::KeyTooLong,
            }
        }
        Ok(heard)
    }

    fn pairs(&self, name: &str, put: Put<'_>) -> Result<Heard> {
        let operation = if name == "msetnx" { TraceOperation::Add } else { TraceOperation::Write };
        let mut heard = Heard::Records;
        for place in (1..self.arguments.len()).step_by(2) {
            match self.with_value(operation.clone(), place, place + 1) {
                Some(Ok(record)) => put(&record)?,
                _ => heard = Heard::KeyTooLong,
            }
        }
        Ok(heard)
    }

    fn set(&self) -> Option<std::result::Result<TraceRecord, Heard>> {
        let (mut operation, mut expiry_ms, mut place) = (TraceOperation::Write, None, 3);
        while place < self.arguments.len() {
            match self.word(place)?.as_str() {
                "nx" => operation = TraceOperation::Add,
                "xx" => operation = TraceOperation::Replace,
                "get" | "keepttl" => {}
                unit => {
                    expiry_ms = Some(self.expiry(unit, place + 1)?);
                    place += 1;
                }
            }
            place += 1;
        }
        let record = self.with_value(operation, 1, 2)?;
        Some(record.map(|record| TraceRecord { expiry_ms, ..record }))
    }

    fn setex(&self, name: &str) -> Option<std::result::Result<TraceRecord, Heard>> {
        let expiry_ms = Some(self.expiry(if name == "setex" { "ex" } else { "px" }, 2)?);
        let record = self.with_value(TraceOperation::Write, 1, 3)?;
        Some(record.map(|record| TraceRecord { expiry_ms, ..record }))
    }

    fn getex(&self) -> Option<std::result::Result<TraceRecord, Heard>> {
        let (operation, expiry_ms) = match (self.arguments.len(), self.word(2).as_deref()) {
            (2, _) => (TraceOperation::Read, None),
            (3, Some("persist")) => (TraceOperation::Expire, None),
            (4, Some(unit)) => (TraceOperation::Expire, Some(self.expiry(unit, 3)?)),
            _ => return None,
        };
        Some(self.record(operation, 1)?.map(|record| TraceRecord { expiry_ms, ..record }))
    }

    fn expire(&self, name: &str) -> Option<std::result::Result<TraceRecord, Heard>> {
        let unit = match name {
            "expire" => "ex",
            "pexpire" => "px",
            "expireat" => "exat",
            _ => "pxat",
        };
        let expiry_ms = Some(self.expiry(unit, 2)?);
        Some(self.record(TraceOperation::Expire, 1)?.map(|record| TraceRecord { expiry_ms, ..record }))
    }

    /// Milliseconds from the command on, 1 at least: what has expired already goes at once.
    fn expiry(&self, unit: &str, place: usize) -> Option<u64> {
        let number = i128::from(self.number(place)?);
        let ms = match unit {
            "ex" => number * 1_000,
            "px" => number,
            "exat" => number * 1_000 - i128::from(self.wall_ms),
            "pxat" => number - i128::from(self.wall_ms),
            _ => return None,
        };
        u64::try_from(ms.max(1)).ok()
    }
}
