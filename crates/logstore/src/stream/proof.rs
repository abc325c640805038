//! What proves, to recovery, how far a log was durable and which batches are whole: footers, and what
//! later groups say. A segment that is such proof may be freed only when something else proves the
//! same.
//!
//! Crash: between any two steps the proof lies on the device at least once.

use super::Stream;
use crate::segments::SegmentTable;

impl Stream {
    /// The footer of the segment that begins with `first_group` is durable.
    pub fn sealed(&mut self, first_group: u64) {
        self.unsealed.retain(|&first| first != first_group);
    }

    /// The segment that takes groups, if any was written to it.
    pub fn written_segment(&self) -> Option<u32> {
        self.segment.as_ref().filter(|segment| segment.end > 0).map(|segment| segment.number)
    }

    /// Whether a full segment waits for its footer: until then nothing of it can be cleaned.
    pub fn is_sealing(&self) -> bool {
        self.unsealed.len() > usize::from(self.segment.is_some())
    }

    /// Whether the log does without a sealed segment of its own that holds these groups. No older
    /// segment may be without a footer: what follows a batch in it tells that the batch is whole. And
    /// if a younger one is, its own groups must say that the log was durable up to there.
    pub fn may_forget(&self, groups: (u64, u64)) -> bool {
        self.unsealed.iter().all(|&first| first >= groups.1)
            && (self.unsealed.is_empty() || self.proven_groups >= groups.1)
    }

    /// Makes the log say how far it is durable when no group is on its way that would: with a group
    /// without records, or a seal where there is no room for one.
    pub fn prove(&mut self, now_us: u64, segments: &mut SegmentTable) {
        if self.open.is_some() || !self.closed.is_empty() || !self.flying.is_empty() || self.segment.is_none()
        {
            return;
        }
        if self.fits_segment(0, 0) {
            self.open_group(0, self.durable_seq, now_us);
            self.close_group(segments);
        } else {
            self.roll(segments);
        }
    }
}
