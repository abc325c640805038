//! What a data command works with: a view of the databases, its arguments, and its reply.

use crate::args::Args;
use crate::number;
use std::borrow::Cow;
use tierstone_base::{Error, ErrorKind};
use tierstone_engine::ValueKind;
use tierstone_store::{Record, Stop, View};
use tierstone_wire::resp::ReplyWriter;

/// Why a command ended early.
#[derive(Clone, Debug)]
pub enum Halt {
    /// Records must be fetched: it is run again.
    Suspend,
    /// It answers with this error and changes nothing.
    Error(Cow<'static, str>),
}

/// The result of a command.
pub type Run = Result<(), Halt>;

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Suspend => Halt::Suspend,
            Stop::Failed(error) => Halt::Error(error_text(&error)),
        }
    }
}

/// An error with a fixed text.
pub fn fail<T>(text: &'static str) -> Result<T, Halt> {
    Err(Halt::Error(Cow::Borrowed(text)))
}

/// An error with a text of its own.
pub fn fail_with<T>(text: String) -> Result<T, Halt> {
    Err(Halt::Error(Cow::Owned(text)))
}

/// The error of a wrong number of arguments.
pub fn wrong_arity(name: &str) -> Halt {
    Halt::Error(format!("ERR wrong number of arguments for '{name}' command").into())
}

/// `ERR syntax error`.
pub const SYNTAX: &str = "ERR syntax error";
/// What is no integer.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// What is no float.
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
/// A key that is not there.
pub const NO_SUCH_KEY: &str = "ERR no such key";
/// A value of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// A value over the limit.
pub const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// How an error of the store reads for a Redis client.
pub fn error_text(error: &Error) -> Cow<'static, str> {
    let prefix = match error.kind() {
        ErrorKind::InvalidInput => return TOO_LONG.into(),
        ErrorKind::NoMemory => "OOM command not allowed when used memory > 'maxmemory': ",
        ErrorKind::NoSpace => "ERR no space left on the device: ",
        ErrorKind::Corrupt => "ERR corrupt record: ",
        ErrorKind::DeviceFailed => "MISCONF the device failed, nothing is acknowledged any more: ",
        _ => "ERR ",
    };
    format!("{prefix}{}", error.message()).into()
}

/// Hits and misses of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Keys that were found.
    pub hits: u64,
    /// Keys that were not.
    pub misses: u64,
}

/// One run of one data command.
pub struct Context<'c, 's> {
    /// The databases.
    pub view: &'c mut View<'s>,
    /// The arguments, the command's name first.
    pub args: Args<'c>,
    /// The reply.
    pub reply: ReplyWriter<'c>,
    /// The database that the connection has selected.
    pub db: u32,
    /// The longest value in bytes.
    pub value_size_max_bytes: u64,
    /// A buffer for values that are being made; empty at the start.
    pub scratch: &'c mut Vec<u8>,
    /// What reads have found.
    pub reads: &'c mut ReadCounts,
}

impl Context<'_, '_> {
    /// Argument `index` as an integer.
    pub fn integer(&self, index: usize) -> Result<i64, Halt> {
        match number::integer(self.args.at(index)) {
            Some(value) => Ok(value),
            None => fail(NOT_AN_INTEGER),
        }
    }

    /// The milliseconds since 1970 of this run.
    pub fn now_ms(&self) -> u64 {
        self.view.now().wall_ms
    }

    /// The string at `key`, for a command that only reads.
    pub fn read(&mut self, key: &[u8]) -> Result<Option<Record<'_>>, Halt> {
        let record = self.view.get(self.db, key)?;
        match record {
            Some(_) => self.reads.hits += 1,
            None => self.reads.misses += 1,
        }
        checked(record)
    }

    /// The string at `key`, for a command that goes on to write.
    pub fn load(&mut self, key: &[u8]) -> Result<Option<Record<'_>>, Halt> {
        checked(self.view.get(self.db, key)?)
    }

    /// Copies the string at `key` into the scratch buffer: its expiry, or `None` when there is none.
    pub fn load_scratch(&mut self, key: &[u8]) -> Result<Option<u64>, Halt> {
        self.scratch.clear();
        let Some(record) = checked(self.view.get(self.db, key)?)? else { return Ok(None) };
        self.scratch.extend_from_slice(record.value);
        Ok(Some(record.meta.expiry_ms))
    }

    /// Writes a string. One that has expired already is not written but deleted.
    pub fn store(&mut self, key: &[u8], value: &[u8], expiry_ms: u64) -> Run {
        if value.len() as u64 > self.value_size_max_bytes {
            return fail(TOO_LONG);
        }
        if expiry_ms != 0 && expiry_ms <= self.now_ms() {
            return Ok(self.view.delete(self.db, key)?);
        }
        Ok(self.view.put(self.db, key, value, expiry_ms, ValueKind::STRING)?)
    }

    /// Writes the scratch buffer as a string.
    pub fn store_scratch(&mut self, key: &[u8], expiry_ms: u64) -> Run {
        if self.scratch.len() as u64 > self.value_size_max_bytes {
            return fail(TOO_LONG);
        }
        Ok(self.view.put(self.db, key, self.scratch, expiry_ms, ValueKind::STRING)?)
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: &[u8]) -> Run {
        Ok(self.view.delete(self.db, key)?)
    }
}

fn checked(record: Option<Record<'_>>) -> Result<Option<Record<'_>>, Halt> {
    match record {
        Some(found) if found.meta.kind != ValueKind::STRING => fail(WRONG_TYPE),
        other => Ok(other),
    }
}

impl std::fmt::Debug for Context<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Context").field("args", &self.args).field("db", &self.db).finish()
    }
}
