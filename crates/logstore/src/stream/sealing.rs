//! Sealing: the footers of segments that the log has left.
//!
//! Footers are submitted in the order of the log. So a valid footer tells of every older segment of its
//! log that it might have been sealed too: its groups are durable and its parts of batches over several
//! shards are resolved everywhere.

use super::{OpenSegment, Stream};
use crate::format::summary::SummaryBuilder;
use crate::io::{IoTag, Requests};
use crate::seal::footer_block;
use crate::segments::SegmentTable;
use tierstone_media::IoBuffer;

/// A segment that waits to be sealed.
#[derive(Debug)]
pub(super) struct SealJob {
    pub segment: OpenSegment,
    pub end_group: u64,
    /// Groups that must be durable first; `u64::MAX` while a batch that reaches beyond the segment is
    /// being appended: a sealed segment must not hold the beginning of a batch without its end.
    pub needs_durable: u64,
    /// Parts of batches over several shards below this number must be resolved everywhere first.
    pub needs_parts: u64,
}

/// Segments that wait to be sealed, and memory of those that were: a summary takes megabytes, and new memory would
/// be cleared page by page for every segment, twice.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    pub jobs: Vec<SealJob>,
    summary: Option<SummaryBuilder>,
    buffer: Option<IoBuffer>,
}

impl Sealing {
    /// Whether no segment waits.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// An empty summary for a segment that is opened.
    pub fn new_summary(&mut self) -> SummaryBuilder {
        self.summary.take().unwrap_or_default()
    }

    /// Keeps the memory of a summary that is not needed any more, if it has at most `bytes_max`.
    fn keep_summary(&mut self, mut summary: SummaryBuilder, bytes_max: usize) {
        if summary.memory_bytes() <= bytes_max {
            summary.clear();
            self.summary = Some(summary);
        }
    }

    /// Bytes of memory that are kept.
    pub fn spare_bytes(&self) -> usize {
        let buffer = self.buffer.as_ref().map_or(0, IoBuffer::capacity);
        buffer + self.summary.as_ref().map_or(0, SummaryBuilder::memory_bytes)
    }
}

impl Stream {
    /// The footer of the segment that begins with `first_group` is durable; `buffer` is what it was written from.
    pub fn sealed(&mut self, first_group: u64, buffer: Option<IoBuffer>) {
        self.unsealed.retain(|&first| first != first_group);
        let bytes_max = self.settings.spare.seal;
        if let Some(buffer) = buffer.filter(|buffer| buffer.capacity() <= bytes_max) {
            self.sealing.buffer = Some(buffer);
        }
    }

    /// Writes the footers of left segments whose groups are all durable and whose parts are resolved.
    pub fn seal_ready(&mut self, early: bool, segments: &mut SegmentTable, requests: &mut Requests) {
        while let Some(job) = self.sealing.jobs.first() {
            if !early && job.needs_durable > self.durable_groups {
                return;
            }
            if !self.parts.are_resolved_below(job.needs_parts) && !self.settings.broken.part_sealed_early {
                self.parts.wait_below(job.needs_parts);
                return;
            }
            let job = self.sealing.jobs.remove(0);
            let entry = segments.get_mut(job.segment.number);
            let (buffer, start, summary) = footer_block(
                &self.settings,
                (entry.generation, self.sealing.buffer.take()),
                &job.segment.summary,
                job.segment.number,
                (job.segment.first_group, job.end_group),
                entry.data_end,
                job.segment.past_ms,
            );
            entry.past_ms = job.segment.past_ms;
            entry.summary = summary;
            entry.groups = Some((job.segment.first_group, job.end_group));
            self.summary_bytes += buffer.len() as u64;
            self.sealing.keep_summary(job.segment.summary, self.settings.spare.seal);
            let offset = self.settings.geometry.segment_offset(job.segment.number) + start;
            let tag = IoTag::Seal { stream: self.settings.id, segment: job.segment.number };
            requests.push(tag, self.settings.write_kind, offset, buffer);
        }
    }
}
