//! A segment's summary on its way into memory: it is read and checksummed in parts of a bounded size, so
//! that no step pays for a whole one (some 9 MB in a large segment of small records).
//!
//! Invariant: [`SummaryLoad::finish`] gives only bytes that have the checksum of the segment's footer.

use crate::format::summary::SummaryEntry;
use crate::location::UNIT_BYTES;
use crate::segments::{Segment, SummaryPlace};
use tierstone_base::checksum::RunningChecksum;
use tierstone_media::{BLOCK_BYTES, IoBuffer};

/// Bytes that are read at a time.
const PART_BYTES: usize = 256 << 10;

/// A summary that is being read.
#[derive(Debug)]
pub(crate) struct SummaryLoad {
    place: SummaryPlace,
    bytes: Vec<u8>,
    sum: RunningChecksum,
}

impl SummaryLoad {
    /// The summary of `segment`, nothing of it read.
    pub fn new(segment: &Segment) -> Self {
        SummaryLoad {
            place: segment.summary,
            bytes: Vec::with_capacity(segment.summary.len as usize),
            sum: RunningChecksum::new(segment.generation),
        }
    }

    /// Where the next part lies on the device, in a segment that begins at `segment_offset`, and a buffer for it:
    /// whole blocks, at least one; `spare` if it has room.
    pub fn next_read(&self, segment_offset: u64, spare: Option<IoBuffer>) -> (u64, IoBuffer) {
        let left = self.place.len as usize - self.bytes.len();
        let len = left.clamp(1, PART_BYTES).next_multiple_of(BLOCK_BYTES);
        let start = u64::from(self.place.start) + self.bytes.len() as u64;
        let mut buffer = match spare {
            Some(spare) if spare.capacity() >= len => spare,
            _ => IoBuffer::zeroed(len),
        };
        buffer.set_len(len);
        (segment_offset + start, buffer)
    }

    /// Takes the next part in, of which `buffer` has at least the bytes; true when it was the last one.
    /// Cost: a copy and a checksum of the part.
    pub fn take(&mut self, buffer: &[u8]) -> bool {
        let left = self.place.len as usize - self.bytes.len();
        let part = &buffer[..left.min(PART_BYTES).min(buffer.len())];
        self.sum.update(part);
        self.bytes.extend_from_slice(part);
        self.bytes.len() == self.place.len as usize
    }

    /// The whole summary; `None` when it is not the one that the footer speaks of.
    pub fn finish(self) -> Option<Vec<u8>> {
        (self.bytes.len() == self.place.len as usize && self.sum.value() == self.place.checksum)
            .then_some(self.bytes)
    }
}

/// The blocks of a segment that the records of `piece` lie in, which is in their order: where they begin in the
/// segment, and their bytes. `None` of no records.
pub(crate) fn blocks_of(piece: &[SummaryEntry]) -> Option<(usize, usize)> {
    let (first, last) = (piece.first()?, piece.last()?);
    let start = first.unit as usize * UNIT_BYTES / BLOCK_BYTES * BLOCK_BYTES;
    let end = ((last.unit + last.units) as usize * UNIT_BYTES).next_multiple_of(BLOCK_BYTES);
    Some((start, end - start))
}

#[cfg(test)]
#[path = "summary_load_test.rs"]
mod summary_load_test;
