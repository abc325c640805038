//! Values as the model holds them: compared by length and checksum, so that long ones cost little.
//!
//! Invariant: what a client is told of a long value ([`seen`]) and what the model says of it
//! ([`Content::reply`]) are shortened by the same function.

use std::sync::Arc;
use tierstone_base::checksum::checksum;
use tierstone_wire::resp::Value;

/// Values up to this many bytes are kept in replies as they are.
const WHOLE_BYTES_MAX: usize = 512;

/// The bytes of a value.
#[derive(Clone)]
pub struct Content {
    bytes: Arc<[u8]>,
    sum: u64,
}

impl Content {
    /// The bytes themselves.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What a client sees that is given the whole value.
    pub fn reply(&self) -> Value {
        shortened(&self.bytes, || self.sum)
    }

    /// This value with `tail` behind it.
    pub fn with_tail(&self, tail: &[u8]) -> Content {
        [self.bytes(), tail].concat().into()
    }

    /// This value with `part` at `offset`; zeros fill what is between.
    pub fn with_part(&self, offset: usize, part: &[u8]) -> Content {
        let mut bytes = self.bytes.to_vec();
        bytes.resize(bytes.len().max(offset + part.len()), 0);
        bytes[offset..offset + part.len()].copy_from_slice(part);
        bytes.into()
    }

    fn identity(&self) -> (usize, u64) {
        (self.bytes.len(), self.sum)
    }
}

fn shortened(bytes: &[u8], sum: impl FnOnce() -> u64) -> Value {
    match bytes.len() {
        0..=WHOLE_BYTES_MAX => Value::Bulk(bytes.to_vec()),
        len => Value::Simple(format!("{len} bytes, {:016x}", sum()).into_bytes()),
    }
}

/// A reply with its long values shortened.
pub fn seen(value: Value) -> Value {
    match value {
        Value::Bulk(bytes) if bytes.len() > WHOLE_BYTES_MAX => shortened(&bytes, || checksum(0, &bytes)),
        Value::Array(items) => Value::Array(items.into_iter().map(seen).collect()),
        other => other,
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        let sum = checksum(0, &bytes);
        Content { bytes: bytes.into(), sum }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Content {}

impl PartialOrd for Content {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Content {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.bytes[..self.bytes.len().min(8)];
        write!(out, "'{}'({})", shown.escape_ascii(), self.bytes.len())
    }
}
