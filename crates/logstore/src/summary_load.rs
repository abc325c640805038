//! A segment's summary on its way into memory: it is read and checksummed in parts of a bounded size, so
//! that no step pays for a whole one (some 9 MB in a large segment of small records).
//!
//! Invariant: [`SummaryLoad::finish`] gives only bytes that have the checksum of the segment's footer.

use crate::segments::{Segment, SummaryPlace};
use tierstone_base::checksum::RunningChecksum;
use tierstone_media::BLOCK_BYTES;

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

    /// Where in the segment the next part lies, and its bytes: whole blocks, at least one.
    pub fn next_part(&self) -> (u64, usize) {
        let left = self.place.len as usize - self.bytes.len();
        let start = u64::from(self.place.start) + self.bytes.len() as u64;
        (start, left.clamp(1, PART_BYTES).next_multiple_of(BLOCK_BYTES))
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

#[cfg(test)]
#[path = "summary_load_test.rs"]
mod summary_load_test;
