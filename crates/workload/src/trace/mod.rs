//! Recorded workloads: what the clients of a running server asked, so that it can be asked again.
//!
//! Reading order: this page (a record), [`writer`] and [`reader`] (the file, `docs/formats/workload-trace.md`), [`monitor`]
//! (lines of `MONITOR`), [`commands`] (which operations a command is), [`cache_csv`] (the open cache traces), [`record`]
//! (asking a server), [`describe`] (what a trace is like). [`crate::replay`] does it again.
//!
//! Invariants:
//! 1. Everything that is read here was written by somebody else: it is bounded and checked, and what is not understood
//!    is counted, never guessed.
//! 2. A trace file never tells a value, only its size; an anonymous one tells no key either, only a hash under a secret
//!    that is thrown away ([`Anonymizer`]).
//! 3. Memory does not grow with the length of a trace.
//!
//! A crash leaves a file that is cut: it is read up to its last whole record, and the reader says so.

pub mod cache_csv;
pub mod commands;
pub mod counts;
pub mod describe;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub mod monitor;
mod monitor_line;
pub mod reader;
pub mod record;
pub mod writer;

pub use counts::ImportCounts;
pub use reader::TraceReader;
pub use writer::TraceWriter;

use ring::hmac;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result};

/// The longest key that a trace keeps, in bytes; a longer one is kept as hash and size.
pub const KEY_BYTES_MAX: usize = 65_535;
/// The longest name of a command, in bytes.
pub const NAME_BYTES_MAX: usize = 32;
/// The largest size of a value, in bytes: Redis's default bound of one argument.
pub const VALUE_BYTES_MAX: u32 = crate::key::SIZE_MAX_BYTES;
/// The highest number of a database.
pub const DATABASE_MAX: u32 = 65_535;
/// Keeps hashes of keys apart from what the store computes itself.
const KEY_SALT: u64 = 0x7472_6163_652d_6b65;

/// A key, as far as a trace tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceKey {
    /// The key itself, of at most [`KEY_BYTES_MAX`] bytes.
    Named(Vec<u8>),
    /// A hash of it: two keys of a trace have two hashes, but for chance (one pair in 2⁶⁴).
    Hashed {
        /// The hash.
        hash: u64,
        /// Bytes of the key itself.
        bytes: u32,
    },
}

impl TraceKey {
    /// The key itself, or a plain hash of it when it is longer than a trace keeps.
    pub fn of(key: &[u8]) -> TraceKey {
        match key.len() {
            0..=KEY_BYTES_MAX => TraceKey::Named(key.to_vec()),
            length => {
                TraceKey::Hashed { hash: hash_of(key), bytes: u32::try_from(length).unwrap_or(u32::MAX) }
            }
        }
    }

    /// Bytes of the key that was asked for.
    pub fn size_bytes(&self) -> u32 {
        match self {
            TraceKey::Named(key) => key.len() as u32,
            TraceKey::Hashed { bytes, .. } => *bytes,
        }
    }

    /// A number that stands for the key in database `database`: the same for the same key. Cost: O(length).
    pub fn number(&self, database: u32) -> u64 {
        let salt = KEY_SALT ^ u64::from(database);
        match self {
            TraceKey::Named(key) => checksum(salt, key),
            TraceKey::Hashed { hash, bytes } => {
                let mut both = [0u8; 13];
                both[..8].copy_from_slice(&hash.to_le_bytes());
                both[8..12].copy_from_slice(&bytes.to_le_bytes());
                both[12] = 1;
                checksum(!salt, &both)
            }
        }
    }
}

/// A hash of a key without a secret: it hides nothing.
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    checksum(KEY_SALT, key)
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceOperation {
    /// The value is read.
    Read,
    /// A value is written, whatever was there.
    Write,
    /// A value is written if there was none.
    Add,
    /// A value is written if there was one.
    Replace,
    /// The value is read and written again; the size is that of the new one, where it is known.
    Update,
    /// The size is that of the bytes that are added to the value.
    Append,
    /// The key is deleted.
    Delete,
    /// Only the expiry changes; none: it is taken away.
    Expire,
    /// Not an operation: how long the key's value was when the recording ended.
    Size,
    /// A command that is none of these, by its name in small letters, at most [`NAME_BYTES_MAX`] bytes of it.
    Other(String),
}

impl TraceOperation {
    /// Those that have no name of their own, in the order of their codes (from 1).
    pub(crate) const CODED: [TraceOperation; 9] = [
        TraceOperation::Read,
        TraceOperation::Write,
        TraceOperation::Add,
        TraceOperation::Replace,
        TraceOperation::Update,
        TraceOperation::Append,
        TraceOperation::Delete,
        TraceOperation::Expire,
        TraceOperation::Size,
    ];

    /// Its name in reports.
    pub fn name(&self) -> &str {
        match self {
            TraceOperation::Read => "read",
            TraceOperation::Write => "write",
            TraceOperation::Add => "add",
            TraceOperation::Replace => "replace",
            TraceOperation::Update => "update",
            TraceOperation::Append => "append",
            TraceOperation::Delete => "delete",
            TraceOperation::Expire => "expire",
            TraceOperation::Size => "size",
            TraceOperation::Other(name) => name,
        }
    }
}

/// One key of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// Microseconds since the trace began; never less than those of the record before.
    pub time_us: u64,
    /// What was asked for.
    pub operation: TraceOperation,
    /// The numbered database, at most [`DATABASE_MAX`].
    pub database: u32,
    /// Of which key.
    pub key: TraceKey,
    /// A read that found nothing, where that is known.
    pub is_miss: bool,
    /// Bytes of the value, at most [`VALUE_BYTES_MAX`]; `None` where it is not known.
    pub value_bytes: Option<u32>,
    /// Milliseconds until the value expires; `None`: never, or not said.
    pub expiry_ms: Option<u64>,
}

impl TraceRecord {
    /// `operation` on `key` of database 0, with nothing else known.
    pub fn new(time_us: u64, operation: TraceOperation, key: TraceKey) -> TraceRecord {
        TraceRecord {
            time_us,
            operation,
            database: 0,
            key,
            is_miss: false,
            value_bytes: None,
            expiry_ms: None,
        }
    }
}

/// Where the records of an import go.
pub type Sink<'a> = &'a mut dyn FnMut(&TraceRecord) -> Result<()>;

/// Where a trace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceSource {
    /// The text that `MONITOR` prints.
    MonitorText,
    /// An open cache trace.
    CacheCsv,
    /// A server that was asked.
    Server,
}

impl TraceSource {
    /// In the order of their codes (from 1).
    pub(crate) const ALL: [TraceSource; 3] =
        [TraceSource::MonitorText, TraceSource::CacheCsv, TraceSource::Server];
}

/// What stands before the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TraceHead {
    /// Where the records come from.
    pub source: TraceSource,
    /// Whether keys are hashed under a secret that nobody has any more.
    pub is_anonymous: bool,
    /// When the trace began, in milliseconds since 1970; 0 where that is not known.
    pub began_ms: u64,
}

/// Turns keys into hashes under a secret: HMAC-SHA-256, 64 bits of it. The secret is in this value only; without it
/// nobody can find out whether a key that he guesses is in the trace.
#[derive(Debug)]
pub struct Anonymizer {
    secret: hmac::Key,
}

impl Anonymizer {
    /// With a new secret of the operating system.
    ///
    /// # Errors
    /// `Retry` when there is no randomness to be had.
    pub fn new() -> Result<Anonymizer> {
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
            .map_err(|_| Error::new(ErrorKind::Retry, "the system gives no randomness for a secret"))?;
        Ok(Anonymizer { secret })
    }

    /// Hides the key of `record`. Cost: about a microsecond.
    pub fn hide(&self, record: &mut TraceRecord) {
        let bytes = record.key.size_bytes();
        let tag = match &record.key {
            TraceKey::Named(key) => hmac::sign(&self.secret, key),
            TraceKey::Hashed { hash, .. } => hmac::sign(&self.secret, &hash.to_le_bytes()),
        };
        let mut hash = [0u8; 8];
        hash.copy_from_slice(&tag.as_ref()[..8]);
        record.key = TraceKey::Hashed { hash: u64::from_le_bytes(hash), bytes };
    }
}

#[cfg(test)]
#[path = "trace_test.rs"]
mod trace_test;
