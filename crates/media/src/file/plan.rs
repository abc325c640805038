//! From the flat space of the trait to places in files: bounds, and the parts of a request.

use crate::{BLOCK_BYTES, DeviceError, DeviceErrorKind, Geometry, IoKind, IoRequest};
use std::fmt;

/// Which file a byte lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// The superblock file.
    Meta,
    /// The file of this segment.
    Segment(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Meta => formatter.write_str("superblock.tier"),
            Place::Segment(segment) => write!(formatter, "segment-{segment:06}.tier"),
        }
    }
}

/// The segment whose file has this name.
pub(crate) fn segment_of_name(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("segment-")?.strip_suffix(".tier")?;
    let segment = digits.parse().ok()?;
    // Only the one spelling that is written: no sign, no other number of zeros.
    (Place::Segment(segment).to_string() == name).then_some(segment)
}

/// A piece of a range that lies in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub place: Place,
    /// Where it begins in the file.
    pub file_offset: u64,
    /// Where it begins in the range.
    pub start: u64,
    pub len: u64,
}

/// The parts of `offset .. offset + len`, which must lie in the device's space.
pub(crate) fn parts(geometry: &Geometry, offset: u64, len: u64) -> Parts {
    Parts { geometry: *geometry, offset, start: 0, len }
}

/// Iterator of [`parts`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    geometry: Geometry,
    offset: u64,
    start: u64,
    len: u64,
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if self.start >= self.len {
            return None;
        }
        let at = self.offset + self.start;
        let (place, file_offset, room) = match at.checked_sub(self.geometry.meta_bytes) {
            None => (Place::Meta, at, self.geometry.meta_bytes - at),
            Some(inside) => {
                let file_offset = inside % self.geometry.segment_bytes;
                let segment = (inside / self.geometry.segment_bytes) as u32;
                (Place::Segment(segment), file_offset, self.geometry.segment_bytes - file_offset)
            }
        };
        let part = Part { place, file_offset, start: self.start, len: room.min(self.len - self.start) };
        self.start += part.len;
        Some(part)
    }
}

/// How many bytes `request` is about, or why it does not fit the device.
pub(crate) fn check(geometry: &Geometry, request: &IoRequest) -> Result<u64, DeviceError> {
    let wrong = |why: &str| {
        Err(DeviceError::new(
            DeviceErrorKind::OutOfBounds,
            format!("{:?} at {}: {why} (the space ends at {})", request.kind, request.offset, geometry.end()),
        ))
    };
    let len = match (request.kind, &request.buffer) {
        (IoKind::Flush, _) => return Ok(0),
        (IoKind::Prepare { len } | IoKind::Discard { len }, _) => len,
        (_, Some(buffer)) => buffer.len() as u64,
        (_, None) => return wrong("it has no buffer"),
    };
    if !request.offset.is_multiple_of(BLOCK_BYTES as u64) || !len.is_multiple_of(BLOCK_BYTES as u64) {
        return wrong("it is not whole blocks");
    }
    if request.offset.checked_add(len).is_none_or(|end| end > geometry.end()) {
        return wrong("it ends outside the device");
    }
    if matches!(request.kind, IoKind::Discard { .. }) && request.offset < geometry.meta_bytes {
        return wrong("superblocks are never discarded");
    }
    Ok(len)
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod plan_test;
