//! Sealing: the footers of segments that the log has left.
//!
//! Footers are submitted in the order of the log. So a valid footer tells of every older segment of its
//! log that it might have been sealed too: its groups are durable and its parts of batches over several
//! shards are resolved everywhere.

use super::{OpenSegment, Stream};
use crate::io::{IoTag, Requests};
use crate::seal::footer_block;
use crate::segments::SegmentTable;

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

impl Stream {
    /// Writes the footers of left segments whose groups are all durable and whose parts are resolved.
    pub fn seal_ready(&mut self, early: bool, segments: &mut SegmentTable, requests: &mut Requests) {
        while let Some(job) = self.sealing.first() {
            if !early && job.needs_durable > self.durable_groups {
                return;
            }
            if !self.parts.are_resolved_below(job.needs_parts) && !self.settings.broken.part_sealed_early {
                self.parts.wait_below(job.needs_parts);
                return;
            }
            let job = self.sealing.remove(0);
            let entry = segments.get_mut(job.segment.number);
            let (buffer, start, summary) = footer_block(
                &self.settings,
                entry.generation,
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
            let offset = self.settings.geometry.segment_offset(job.segment.number) + start;
            let tag = IoTag::Seal { stream: self.settings.id, segment: job.segment.number };
            requests.push(tag, self.settings.write_kind, offset, buffer);
        }
    }
}
