//! What an object is, what its writes are, and what a read of it may show.
//!
//! 1. What write `n` of an object is, and what its keys hold after it, are functions of the object's number
//!    and `n`. Each object is written by one connection, in order.
//! 2. A read shows the state after a write between the last that was acknowledged when it was asked for and
//!    the last that was sent when its reply came; read by the writer's own connection exactly the last before it.
//! 3. The keys of one object change together: a reply that shows two writes at once is wrong.

use crate::key::mix;
use crate::redis_load::commands::{bodies, push_header};
use crate::value::{ValueMaker, check_value};

/// A value is deleted by every seventh write, and put again by the next.
const DELETE_EVERY: u32 = 7;
/// Keys of a batch.
const PARTS: usize = 3;
/// A lease lasts between this and sixteen times as long.
const LEASE_MIN_MS: u64 = 1_000;
/// How far the server's clock and ours may be apart about when something expires, in microseconds.
const SLACK_US: u64 = 250_000;

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SET, and DEL now and then.
    Value,
    /// SET with PX.
    Lease,
    /// INCR.
    Counter,
    /// MULTI, SET, SET, INCR, EXEC on keys with one hash tag.
    Transaction,
    /// MSET of three keys of any shards.
    Spread,
}

/// Objects of all kinds come again after so many numbers.
pub(crate) const ROUND: u64 = 64;

pub(crate) fn kind(number: u64) -> Kind {
    match number % ROUND {
        0..=1 => Kind::Lease,
        2..=5 => Kind::Counter,
        6..=7 => Kind::Transaction,
        8..=9 => Kind::Spread,
        _ => Kind::Value,
    }
}

/// How far an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The newest write that was acknowledged, or that a read has shown.
    pub(crate) acknowledged: u32,
    /// The newest write that was sent.
    pub(crate) sent: u32,
}

/// When the newest write of a lease was asked for and acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseTimes {
    pub(crate) asked_us: u64,
    pub(crate) acknowledged_us: Option<u64>,
}

/// What a read may show, and when it was asked for and answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) oldest: u32,
    pub(crate) newest: u32,
    pub(crate) asked_us: u64,
    pub(crate) answered_us: u64,
    /// Of the write `newest`, where the object is a lease and they are still known.
    pub(crate) times: Option<LeaseTimes>,
}

/// Keys, values and commands of objects, and judgements.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    values: ValueMaker,
    scratch: Vec<u8>,
}

impl Objects {
    pub(crate) fn new(values: ValueMaker) -> Objects {
        Objects { values, scratch: Vec::new() }
    }

    /// Keys of the object.
    pub(crate) fn parts(number: u64) -> usize {
        match kind(number) {
            Kind::Value | Kind::Lease | Kind::Counter => 1,
            Kind::Transaction | Kind::Spread => PARTS,
        }
    }

    /// Whether write `version` leaves nothing.
    pub(crate) fn is_deletion(number: u64, version: u32) -> bool {
        kind(number) == Kind::Value && version.is_multiple_of(DELETE_EVERY)
    }

    /// Whether its keys are there from the first write on for ever.
    pub(crate) fn is_lasting(number: u64) -> bool {
        !matches!(kind(number), Kind::Value | Kind::Lease)
    }

    fn key(number: u64, part: usize, out: &mut Vec<u8>) {
        let text = match kind(number) {
            Kind::Value => format!("value:{number}:0"),
            Kind::Lease => format!("lease:{number}:0"),
            Kind::Counter => format!("count:{number}:0"),
            Kind::Transaction => format!("{{exec:{number}}}:{part}"),
            Kind::Spread => format!("spread:{number}:{part}"),
        };
        push_header(b'$', text.len(), out);
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    /// The object and the part that a key belongs to, if it is one of ours.
    pub(crate) fn of_key(key: &[u8]) -> Option<(u64, usize)> {
        let mut pieces = std::str::from_utf8(key).ok()?.split(':').skip(1);
        let number = pieces.next()?.trim_end_matches('}').parse().ok()?;
        Some((number, pieces.next()?.parse().ok()?))
    }

    fn lease_us(number: u64, version: u32) -> u64 {
        1_000 * (LEASE_MIN_MS + mix(number ^ u64::from(version) << 40) % (15 * LEASE_MIN_MS))
    }

    fn value_id(number: u64, part: usize) -> u64 {
        number * PARTS as u64 + part as u64
    }

    fn value(&mut self, number: u64, part: usize, version: u32, out: &mut Vec<u8>) {
        self.scratch.clear();
        self.values.append(Self::value_id(number, part), u64::from(version), &mut self.scratch);
        push_header(b'$', self.scratch.len(), out);
        out.extend_from_slice(&self.scratch);
        out.extend_from_slice(b"\r\n");
    }

    fn set(&mut self, number: u64, part: usize, version: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        Self::key(number, part, out);
        self.value(number, part, version, out);
    }

    /// Appends write `version` of an object; the number of replies that it gets.
    pub(crate) fn write(&mut self, number: u64, version: u32, out: &mut Vec<u8>) -> u8 {
        match kind(number) {
            Kind::Value if version.is_multiple_of(DELETE_EVERY) => {
                out.extend_from_slice(b"*2\r\n$3\r\nDEL\r\n");
                Self::key(number, 0, out);
            }
            Kind::Value => self.set(number, 0, version, out),
            Kind::Lease => {
                let ms = (Self::lease_us(number, version) / 1_000).to_string();
                out.extend_from_slice(b"*5\r\n$3\r\nSET\r\n");
                Self::key(number, 0, out);
                self.value(number, 0, version, out);
                out.extend_from_slice(format!("$2\r\nPX\r\n${}\r\n{ms}\r\n", ms.len()).as_bytes());
            }
            Kind::Counter => {
                out.extend_from_slice(b"*2\r\n$4\r\nINCR\r\n");
                Self::key(number, 0, out);
            }
            Kind::Transaction => {
                out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
                self.set(number, 0, version, out);
                self.set(number, 1, version, out);
                out.extend_from_slice(b"*2\r\n$4\r\nINCR\r\n");
                Self::key(number, 2, out);
                out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
                return 5;
            }
            Kind::Spread => {
                push_header(b'*', 1 + 2 * PARTS, out);
                out.extend_from_slice(b"$4\r\nMSET\r\n");
                for part in 0..PARTS {
                    Self::key(number, part, out);
                    self.value(number, part, version, out);
                }
            }
        }
        1
    }

    /// Appends a read of the whole object; one reply.
    pub(crate) fn read(number: u64, out: &mut Vec<u8>) {
        let parts = Self::parts(number);
        push_header(b'*', 1 + parts, out);
        out.extend_from_slice(if parts == 1 { b"$3\r\nGET\r\n" } else { b"$4\r\nMGET\r\n" });
        (0..parts).for_each(|part| Self::key(number, part, out));
    }

    /// Whether `reply` is the last reply to write `version`.
    pub(crate) fn is_answer(number: u64, version: u32, reply: &[u8]) -> bool {
        match kind(number) {
            Kind::Value if version.is_multiple_of(DELETE_EVERY) => reply == b":1\r\n",
            Kind::Value | Kind::Lease | Kind::Spread => reply == b"+OK\r\n",
            Kind::Counter => reply == format!(":{version}\r\n").as_bytes(),
            Kind::Transaction => reply == format!("*3\r\n+OK\r\n+OK\r\n:{version}\r\n").as_bytes(),
        }
    }

    /// The write that `reply` to a read shows, or why it is wrong. Where a missing key leaves a choice, the
    /// newest of its writes.
    pub(crate) fn judge(number: u64, reply: &[u8], expected: &Expected) -> Result<u32, String> {
        let mut shown = None;
        let mut count = 0;
        for (part, body) in bodies(reply).enumerate() {
            let version = match body {
                None => Self::missing(number, expected)?,
                Some(bytes) => Self::version(number, part, bytes)?,
            };
            if *shown.get_or_insert(version) != version {
                return Err(format!("shows half of a batch: writes {shown:?} and {version}"));
            }
            count += 1;
        }
        let Some(version) = shown.filter(|_| count == Self::parts(number)) else {
            return Err(format!(
                "an answer of another shape: {}",
                reply[..reply.len().min(60)].escape_ascii()
            ));
        };
        let (oldest, newest) = (expected.oldest, expected.newest);
        if version < oldest {
            return Err(format!("write {version} is shown, {oldest} was acknowledged before"));
        }
        if version > newest {
            return Err(format!("write {version} is shown, {newest} was the last"));
        }
        if kind(number) == Kind::Lease && version == newest && !is_missing(reply) {
            Self::judge_age(number, version, expected)?;
        }
        Ok(version)
    }

    fn version(number: u64, part: usize, bytes: &[u8]) -> Result<u32, String> {
        let is_number = match kind(number) {
            Kind::Counter => true,
            Kind::Transaction => part == 2,
            _ => false,
        };
        if is_number {
            let text = std::str::from_utf8(bytes).ok();
            let count = text.and_then(|text| text.parse().ok());
            return count.ok_or_else(|| format!("no number: {}", bytes.escape_ascii()));
        }
        let version = match check_value(Self::value_id(number, part), bytes) {
            Ok(version) => version.and_then(|version| u32::try_from(version).ok()),
            Err(fault) => return Err(format!("a value that was never written: {fault:?}")),
        };
        let version = version.ok_or("a value without a version")?;
        if Self::is_deletion(number, version) {
            return Err(format!("a value of write {version}, which deleted it"));
        }
        Ok(version)
    }

    /// The newest write after which the keys may be missing.
    fn missing(number: u64, expected: &Expected) -> Result<u32, String> {
        let gone = match kind(number) {
            Kind::Value => (expected.oldest..=expected.newest).rev().find(|n| n.is_multiple_of(DELETE_EVERY)),
            // Of several writes in doubt an older one may have expired.
            Kind::Lease if expected.newest > expected.oldest => Some(expected.newest),
            Kind::Lease => {
                let is_early = expected.times.is_some_and(|times| {
                    let end_us = times.asked_us + Self::lease_us(number, expected.newest);
                    expected.answered_us + SLACK_US < end_us
                });
                (!is_early).then_some(expected.newest)
            }
            _ => (expected.oldest == 0).then_some(0),
        };
        let gone = gone.or((expected.oldest == 0).then_some(0));
        gone.ok_or_else(|| format!("missing; {} was acknowledged before", expected.oldest))
    }

    /// Whether a lease that is shown had not run out long before.
    fn judge_age(number: u64, version: u32, expected: &Expected) -> Result<(), String> {
        let acknowledged_us = expected.times.and_then(|times| times.acknowledged_us);
        let Some(acknowledged_us) = acknowledged_us else { return Ok(()) };
        let end_us = acknowledged_us + Self::lease_us(number, version);
        if expected.asked_us > end_us + SLACK_US {
            return Err(format!("write {version} expired {} us before", expected.asked_us - end_us));
        }
        Ok(())
    }
}

/// Whether the reply to a read of one key says that there is none.
pub(crate) fn is_missing(reply: &[u8]) -> bool {
    reply.starts_with(b"$-1")
}

#[cfg(test)]
#[path = "object_test.rs"]
mod object_test;
