//! The bytes of one frame: a header of 32 bytes, then the record, then padding to 16 bytes.
//!
//! ```text
//!  0        4     5          6      8         16        24        28      32
//!  | units  | kind| frequency| pins | position| location| keyspace| length| record …
//! ```
//!
//! Invariants:
//! 1. Frames start at multiples of 16 bytes and tile a ring without gaps: `units` × 16 bytes after
//!    one frame the next begins.
//! 2. A skip frame, which fills a gap, may be one unit long: only its first 8 bytes mean anything.
//! 3. `pins` is zero in a skip frame.

use super::arena::Arena;
use tierstone_base::{KeyspaceId, Position};

/// Frames start at multiples of this, in bytes.
pub(super) const UNIT_BYTES: usize = 16;
/// Bytes of a frame before its record.
pub(super) const HEADER_BYTES: usize = 32;
/// The highest value of the two-bit frequency.
pub(super) const FREQUENCY_MAX: u8 = 3;

const FREQUENCY_AT: usize = 5;
const LOCATION_AT: usize = 16;

/// What lies in a frame. The values are not small numbers, so that a stale id rarely passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A record that the owner's index may point to.
    Live,
    /// A removed record; its bytes stay while somebody holds a pin.
    Dead,
    /// A filled gap, or anything that is not a frame.
    Skip,
}

const LIVE: u8 = 0xa5;
const DEAD: u8 = 0x5a;
const SKIP: u8 = 0x3c;

/// The first eight bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub units: u32,
    pub kind: Kind,
    pub frequency: u8,
    pub pins: u16,
}

impl Tag {
    /// Bytes from this frame to the next.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        self.units as usize * UNIT_BYTES
    }

    fn encode(self) -> [u8; 8] {
        let [u0, u1, u2, u3] = self.units.to_le_bytes();
        let [p0, p1] = self.pins.to_le_bytes();
        let kind = match self.kind {
            Kind::Live => LIVE,
            Kind::Dead => DEAD,
            Kind::Skip => SKIP,
        };
        [u0, u1, u2, u3, kind, self.frequency, p0, p1]
    }

    #[inline]
    fn decode(bytes: [u8; 8]) -> Tag {
        let [u0, u1, u2, u3, kind, frequency, p0, p1] = bytes;
        Tag {
            units: u32::from_le_bytes([u0, u1, u2, u3]),
            kind: match kind {
                LIVE => Kind::Live,
                DEAD => Kind::Dead,
                _ => Kind::Skip,
            },
            frequency,
            pins: u16::from_le_bytes([p0, p1]),
        }
    }
}

/// The rest of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub position: Position,
    pub location: u64,
    pub keyspace: KeyspaceId,
    pub length: u32,
}

/// Bytes that a record of `length` bytes needs in a ring; `None` when no frame can hold it.
#[inline]
pub(super) fn frame_bytes(length: usize) -> Option<usize> {
    u32::try_from(length).ok()?;
    length.checked_add(HEADER_BYTES)?.checked_next_multiple_of(UNIT_BYTES)
}

/// The whole header in one read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'arena>(&'arena [u8; HEADER_BYTES]);

impl Header<'_> {
    #[inline]
    pub(super) fn tag(self) -> Tag {
        Tag::decode(self.bytes(0))
    }

    #[inline]
    pub(super) fn label(self) -> Label {
        Label {
            position: Position(u64::from_le_bytes(self.bytes(8))),
            location: u64::from_le_bytes(self.bytes(LOCATION_AT)),
            keyspace: KeyspaceId(u32::from_le_bytes(self.bytes(24))),
            length: u32::from_le_bytes(self.bytes(28)),
        }
    }

    #[inline]
    fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }
}

impl Arena {
    #[inline]
    pub(super) fn header(&self, offset: usize) -> Header<'_> {
        match self.get(offset..).and_then(|rest| rest.first_chunk()) {
            Some(header) => Header(header),
            None => unreachable!("no frame starts at byte {offset} of {}", self.len()),
        }
    }

    #[inline]
    pub(super) fn tag(&self, offset: usize) -> Tag {
        let mut tag = [0; 8];
        tag.copy_from_slice(&self[offset..offset + 8]);
        Tag::decode(tag)
    }

    #[inline]
    pub(super) fn set_tag(&mut self, offset: usize, tag: Tag) {
        self[offset..offset + 8].copy_from_slice(&tag.encode());
    }

    #[inline]
    pub(super) fn set_frequency(&mut self, offset: usize, frequency: u8) {
        self[offset + FREQUENCY_AT] = frequency;
    }

    /// Fills `bytes` bytes at `offset` with one skip frame.
    pub(super) fn set_skip(&mut self, offset: usize, bytes: usize) {
        let units = (bytes / UNIT_BYTES) as u32;
        self.set_tag(offset, Tag { units, kind: Kind::Skip, frequency: 0, pins: 0 });
    }

    #[inline]
    pub(super) fn label(&self, offset: usize) -> Label {
        self.header(offset).label()
    }

    #[inline]
    pub(super) fn set_label(&mut self, offset: usize, label: Label) {
        let header = &mut self[offset + 8..offset + HEADER_BYTES];
        header[..8].copy_from_slice(&label.position.0.to_le_bytes());
        header[8..16].copy_from_slice(&label.location.to_le_bytes());
        header[16..20].copy_from_slice(&label.keyspace.0.to_le_bytes());
        header[20..24].copy_from_slice(&label.length.to_le_bytes());
    }

    /// What would be the location of a frame at `offset`.
    #[inline]
    pub(super) fn location_hint(&self, offset: usize) -> Option<u64> {
        let bytes = self.get(offset + LOCATION_AT..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    pub(super) fn set_location(&mut self, offset: usize, location: u64) {
        self[offset + LOCATION_AT..offset + LOCATION_AT + 8].copy_from_slice(&location.to_le_bytes());
    }

    /// The record's bytes.
    #[inline]
    pub(super) fn record(&self, offset: usize, length: u32) -> &[u8] {
        &self[offset + HEADER_BYTES..offset + HEADER_BYTES + length as usize]
    }

    /// Copies `parts` one after the other behind the header at `offset`.
    #[inline]
    pub(super) fn set_record(&mut self, offset: usize, length: usize, parts: &[&[u8]]) {
        let mut rest = &mut self[offset + HEADER_BYTES..offset + HEADER_BYTES + length];
        for part in parts {
            let (place, after) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = after;
        }
    }
}
