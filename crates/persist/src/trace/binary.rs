//! Traces as bytes; the page is `docs/formats/persist-trace.md`.

use super::{Event, Kind, Space, Trace};
use std::cmp::Ordering;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result};

/// The first bytes of such a file.
pub const MAGIC: &[u8; 8] = b"TSPTRACE";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;
/// Bytes of one step.
const EVENT_BYTES: usize = 20;
const SALT: u64 = 0x7470_6572_7369_7374;

/// The trace as bytes: a head of 32 bytes and 20 bytes a step.
pub fn write(trace: &Trace) -> Vec<u8> {
    let mut body = Vec::with_capacity(trace.events().len() * EVENT_BYTES);
    for event in trace.events() {
        body.extend(event.thread.to_le_bytes());
        body.push(code(event.kind) | if event.space == Space::Persistent { 0x80 } else { 0 });
        body.push(event.len);
        body.extend(event.address.to_le_bytes());
        body.extend(event.value.to_le_bytes());
    }
    framed(&body)
}

/// As many whole steps as `body` has, behind a head that fits them.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    let count = body.len() / EVENT_BYTES;
    let body = &body[..count * EVENT_BYTES];
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend((count as u64).to_le_bytes());
    bytes.extend(checksum(SALT, body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// `Incompatible` for what is no trace or one of another version, `Corrupt` for one that is cut, too long or damaged.
pub fn read(bytes: &[u8]) -> Result<Trace> {
    let corrupt = |message: String| Error::new(ErrorKind::Corrupt, message);
    let number = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    if bytes.len() < 8 || bytes[..8] != MAGIC[..] {
        return Err(Error::new(
            ErrorKind::Incompatible,
            "this is no binary trace: its first bytes are foreign",
        ));
    }
    if bytes.len() < HEAD_BYTES {
        return Err(corrupt(format!(
            "the trace is cut in its head, after {} bytes; record it again",
            bytes.len()
        )));
    }
    let (version, marks) = (number(8) as u32, number(8) >> 32);
    if version != VERSION || marks != 0 {
        let message = format!(
            "the trace has version {version} and marks {marks}, this program reads {VERSION} without any"
        );
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    let (count, body) = (number(16), &bytes[HEAD_BYTES..]);
    let wanted = count.saturating_mul(EVENT_BYTES as u64);
    match (body.len() as u64).cmp(&wanted) {
        Ordering::Less => {
            let there = body.len() / EVENT_BYTES;
            return Err(corrupt(format!(
                "the trace is cut: {there} of {count} steps are there; record it again"
            )));
        }
        Ordering::Greater => {
            let more = body.len() as u64 - wanted;
            return Err(corrupt(format!(
                "the trace is longer than its head says: {more} bytes follow its {count} steps"
            )));
        }
        Ordering::Equal => {}
    }
    if number(24) != checksum(SALT, body) {
        return Err(corrupt("the trace is damaged: its checksum does not fit its steps".into()));
    }
    let mut trace = Trace::new();
    for (place, bytes) in body.chunks_exact(EVENT_BYTES).enumerate() {
        trace.push(event(bytes).ok_or_else(|| {
            corrupt(format!(
                "step {place} makes no sense: its kind is unknown, or a mark has a place or a value"
            ))
        })?)?;
    }
    Ok(trace)
}

fn event(bytes: &[u8]) -> Option<Event> {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let kind = KINDS.get(usize::from(bytes[2] & 0x7f)).copied()?;
    let space = if bytes[2] & 0x80 != 0 { Space::Persistent } else { Space::Volatile };
    let thread = u16::from_le_bytes([bytes[0], bytes[1]]);
    let event = Event { thread, kind, space, len: bytes[3], address: word(4), value: word(12) };
    // A mark has neither place nor value: text could not say them.
    let is_bare = space == Space::Volatile && (event.len, event.address, event.value) == (0, 0, 0);
    (event.is_access() || is_bare).then_some(event)
}

const KINDS: [Kind; 5] = [Kind::Load, Kind::Store, Kind::Barrier, Kind::Strand, Kind::Sync];

fn code(kind: Kind) -> u8 {
    KINDS.iter().position(|known| *known == kind).unwrap_or(0) as u8
}
