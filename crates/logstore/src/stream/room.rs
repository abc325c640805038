//! What fits: records into groups, groups with their summary into segments.
//!
//! Invariants:
//! 1. A record is appended to a segment only when the summary of all its records, keys of ordered keyspaces
//!    included, and the footer still have room behind it.
//! 2. A summary that is lent comes back to its own segment, though that may have been left meanwhile: what is
//!    seen as expired may open a group that says so, and that group another segment. A segment that were sealed
//!    without it would have lost its records at the next opening.

use super::{OpenSegment, Stream};
use crate::format::group;
use crate::format::summary::{ENTRY_BYTES_MAX, SummaryBuilder, SummaryEntry};
use crate::location::UNIT_BYTES;
use tierstone_media::{BLOCK_BYTES, Geometry, IoBuffer};

/// Buffers of the usual size kept for reuse at most,
const SPARE_BUFFERS: usize = 2;
/// ... and so many while as much as that is being written: new memory would be cleared, page by page, for each
/// group of a load, and the ring would know none of its buffers.
const SPARE_BUFFERS_BUSY: usize = 8;

/// Bytes of a group without records that begins at `end` of a segment: the first has the segment's header.
fn first_used(end: usize) -> usize {
    (if end == 0 { BLOCK_BYTES } else { 0 }) + group::HEADER_BYTES
}

impl OpenSegment {
    /// Bytes of the summary, lent or not.
    fn summary_len(&self) -> usize {
        self.summary.bytes().len() + self.summary_lent_bytes
    }
}

impl Stream {
    /// Whether a group is being written.
    pub fn is_writing(&self) -> bool {
        !self.flying.is_empty()
    }

    /// Whether the open segment surely has room for records of `bytes` altogether whose keys take
    /// `key_bytes` of its summary. May say no where there is just enough.
    pub fn room_for(&self, bytes: u64, key_bytes: u64) -> bool {
        let Some(segment) = &self.segment else { return false };
        let open = self.open.as_ref().map_or(BLOCK_BYTES + group::HEADER_BYTES, |open| open.used);
        // Two neighbouring groups with their headers are longer than one may be, or they would be one.
        let pair_bytes = self.settings.group_bytes_max.saturating_sub(2 * group::HEADER_BYTES).max(1);
        // A single write is short, and a division takes as long as the rest of this.
        let pairs = if 2 * bytes < pair_bytes as u64 { 0 } else { 2 * bytes / pair_bytes as u64 };
        let groups = pairs + 3;
        let padding = groups * (BLOCK_BYTES + group::HEADER_BYTES) as u64;
        // The shortest record has two units.
        let summary = (segment.summary_len() + self.summary_growth_bytes()) as u64
            + (bytes / (2 * UNIT_BYTES) as u64 + 1) * ENTRY_BYTES_MAX as u64
            + key_bytes;
        segment.end as u64 + open as u64 + bytes + padding + summary + 2 * BLOCK_BYTES as u64
            <= self.settings.geometry.segment_bytes
    }

    /// How many segments besides the open one these records need, appended next and in this order: what appending
    /// will find, but that the entry of each is taken to be as long as can be. Cost: a few operations a record.
    pub fn segments_for(&self, records: &[SummaryEntry]) -> u32 {
        let longest = self.settings.group_bytes_max;
        let mut more = 0;
        // An open segment's end and summary; none open is as one that takes nothing.
        let mut at = self
            .segment
            .as_ref()
            .map(|segment| (segment.end, segment.summary_len() + self.summary_growth_bytes()));
        let mut open = self.open.as_ref().map(|open| (open.used, open.buffer.capacity()));
        for entry in records {
            let (bytes, key_bytes) = (entry.units as usize * UNIT_BYTES, entry.key_bytes());
            if let (Some((used, capacity)), Some((end, _))) = (open, &mut at)
                && used + bytes > longest.min(capacity)
            {
                *end += used.next_multiple_of(BLOCK_BYTES);
                open = None;
            }
            let fits = at.is_some_and(|(end, summary)| {
                let used = open.map_or(first_used(end), |(used, _)| used);
                self.holds(end, used + bytes, summary + ENTRY_BYTES_MAX + key_bytes)
            });
            if !fits {
                more += 1;
                (at, open) = (Some((0, 0)), None);
            }
            if let Some((end, summary)) = &mut at {
                let used = first_used(*end);
                let (used, capacity) = open.unwrap_or((used, (used + bytes).max(longest)));
                open = Some((used + bytes, capacity));
                *summary += entry.bytes_max();
            }
        }
        more
    }

    /// Whether a segment has room for a group of `used` bytes from `end` on, a summary of so many, and the footer.
    pub(super) fn holds(&self, end: usize, used: usize, summary: usize) -> bool {
        let data_end = end + used.next_multiple_of(BLOCK_BYTES);
        data_end + summary.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES
            <= self.settings.geometry.segment_bytes as usize
    }

    /// Bytes of records that a whole segment surely takes, for `record_units` long records.
    pub fn segment_room(segment_bytes: u64, record_units: usize) -> u64 {
        let overhead = 2 * BLOCK_BYTES as u64;
        let record = (record_units.max(1) * UNIT_BYTES) as u64;
        let summary_share = record as f64 / (record as f64 + ENTRY_BYTES_MAX as f64);
        // One group's padding and one record's rest at the end of the segment are lost at most.
        ((segment_bytes.saturating_sub(overhead)) as f64 * summary_share * 0.9) as u64
    }

    /// Bytes of the open segment that nothing lies in yet, and that its summary will not need so far.
    pub fn unused_bytes(&self) -> u64 {
        let Some(segment) = &self.segment else { return 0 };
        let used = segment.end + self.open.as_ref().map_or(0, |open| open.used);
        let used = used + segment.summary_len() + self.summary_growth_bytes() + 2 * BLOCK_BYTES;
        self.settings.geometry.segment_bytes.saturating_sub(used as u64)
    }

    /// Keeps the buffer of a written group for a later one, if there is room for it.
    pub(super) fn keep_spare(&mut self, buffer: Option<IoBuffer>) {
        let Some(buffer) = buffer else { return };
        let is_busy = self.writes_many(SPARE_BUFFERS);
        let kept_max = if is_busy { SPARE_BUFFERS_BUSY } else { SPARE_BUFFERS };
        self.spare.truncate(kept_max);
        let spare: usize = self.spare.iter().map(IoBuffer::capacity).sum();
        // What is kept while much is written is no more than was on its way just now.
        let room = match is_busy {
            true => self.settings.spare.busy.saturating_sub(self.flying_bytes + self.closed_bytes),
            false => self.settings.spare.usual,
        };
        if self.spare.len() < kept_max
            && buffer.capacity() <= 2 * self.settings.group_bytes_max
            && spare + buffer.capacity() <= room
        {
            self.spare.push(buffer);
        }
    }

    /// Bytes of memory in buffers: of groups that gather, wait or are being written, and kept for later ones.
    pub fn memory_bytes(&self) -> usize {
        let kept = self.spare.iter().map(IoBuffer::capacity);
        let closed = self.closed.iter().map(|closed| closed.buffer.capacity());
        let open = self.open.as_ref().map_or(0, |open| open.buffer.capacity());
        open + kept.chain(closed).sum::<usize>()
            + self.sealing.spare_bytes()
            + self.flying_bytes.max(self.under_way() * self.settings.group_bytes_max)
    }

    pub(super) fn fits_group(&self, bytes: usize) -> bool {
        self.open.as_ref().is_none_or(|open| {
            open.used + bytes <= self.settings.group_bytes_max && open.used + bytes <= open.buffer.capacity()
        })
    }

    /// Whether the open segment takes a record of `bytes` more, with its summary, in which the record's key
    /// takes `key_bytes`, in the open group or a new one.
    pub(super) fn fits_segment(&self, bytes: usize, key_bytes: usize) -> bool {
        let Some(segment) = &self.segment else { return false };
        let used = self.open.as_ref().map_or(first_used(segment.end), |open| open.used);
        let summary = segment.summary_len() + self.summary_growth_bytes();
        self.holds(segment.end, used + bytes, summary + ENTRY_BYTES_MAX + key_bytes)
    }

    /// The longest record that an empty segment takes, in bytes.
    pub fn record_bytes_max(geometry: Geometry) -> usize {
        (geometry.segment_bytes as usize).saturating_sub(4 * BLOCK_BYTES) / 4
    }
}

impl Stream {
    /// The summary so far of the open segment, if that is `segment`.
    pub fn open_summary_of(&self, segment: u32) -> Option<&SummaryBuilder> {
        self.segment.as_ref().filter(|open| open.number == segment).map(|open| &open.summary)
    }

    /// Hands the summary of the open segment out, if that is `segment`; no record may be appended before
    /// [`Stream::give_back_summary`].
    pub fn lend_summary(&mut self, segment: u32) -> Option<SummaryBuilder> {
        self.settle_summary();
        let open = self.segment.as_mut().filter(|open| open.number == segment)?;
        open.summary_lent_bytes = open.summary.bytes().len();
        Some(std::mem::take(&mut open.summary))
    }

    /// Takes back what [`Stream::lend_summary`] gave for `segment`.
    pub fn give_back_summary(&mut self, segment: u32, summary: SummaryBuilder) {
        let left = self.sealing.jobs.iter_mut().map(|job| &mut job.segment);
        // The newest of that number: it was open a moment ago.
        let lent = left.chain(&mut self.segment).rfind(|open| open.number == segment);
        if let Some(open) = lent {
            open.summary = summary;
            open.summary_lent_bytes = 0;
        }
    }
}

#[cfg(test)]
#[path = "room_test.rs"]
mod room_test;
