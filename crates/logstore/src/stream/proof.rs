//! What proves, to recovery, how far a log was durable, which batches are whole and which expiry was shown
//! as past: footers, and what later groups say. A segment that is such proof may be freed only when something
//! else proves the same.
//!
//! Crash: between any two steps the proof lies on the device at least once.

use super::Stream;
use crate::segments::SegmentTable;
use tierstone_base::Seq;

/// What the log says of expiry ([`crate::past`]).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PastProof {
    /// What groups closed from now on say, in milliseconds since 1970.
    pub shown_ms: u64,
    /// What the newest durable group says.
    durable_ms: u64,
    /// The segment of that group.
    segment: Option<u32>,
    /// The segment that was last told to be in use.
    told: Option<u32>,
}

impl PastProof {
    /// A group that says `past_ms` is durable in `segment`.
    pub fn durable(&mut self, past_ms: u64, segment: u32) {
        (self.durable_ms, self.segment) = (past_ms, Some(segment));
    }
}

impl Stream {
    /// The segment of the newest durable group, if it was not told before.
    pub fn newly_used(&mut self) -> Option<u32> {
        let segment = self.past.segment.filter(|_| self.past.segment != self.past.told)?;
        self.past.told = Some(segment);
        Some(segment)
    }

    /// The segment that takes groups.
    pub fn taking_segment(&self) -> Option<u32> {
        self.segment.as_ref().map(|segment| segment.number)
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

    /// Groups closed from now on say that this expiry was shown as past.
    pub fn set_past_ms(&mut self, past_ms: u64) {
        self.past.shown_ms = self.past.shown_ms.max(past_ms);
    }

    /// Whether a durable group outside of `segment` says that this expiry, or a later one, was shown as past.
    pub fn proves_past(&self, past_ms: u64, segment: u32) -> bool {
        self.past.durable_ms >= past_ms && self.past.segment.is_some_and(|other| other != segment)
    }

    /// What `segment` says is about to be void.
    pub fn forget_past(&mut self, segment: u32) {
        if self.past.segment == Some(segment) {
            (self.past.durable_ms, self.past.segment) = (0, None);
        }
    }

    /// Whether a segment takes groups.
    pub fn has_open_segment(&self) -> bool {
        self.segment.is_some()
    }

    /// Whether a group without records needs no further segment.
    pub fn has_mark_room(&self) -> bool {
        self.open.is_some() || self.fits_segment(0, 0)
    }

    /// Opens a group, if none is, that will be written for what it says of expiry; what was answered by that
    /// waits for `seq`. False when there is no segment for it.
    pub fn open_mark(&mut self, seq: Seq, now_us: u64, segments: &mut SegmentTable) -> bool {
        if self.open.is_none() {
            if !self.fits_segment(0, 0) {
                self.roll(segments);
                if self.open_segment(seq, segments).is_none() {
                    return false;
                }
            }
            self.open_group(0, seq, now_us);
        }
        if let Some(open) = &mut self.open {
            open.last_seq = open.last_seq.max(seq);
            self.appended_seq = self.appended_seq.max(seq);
        }
        true
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
