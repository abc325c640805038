//! Compact: every segment that was there at the start, and that is not dense, is cleaned, while the shard
//! serves; the cleaner does it, in its usual bounded steps, oldest segment first.
//!
//! After FAWN-DS (Vasudevan 2011, §3.3.2): live records go to new segments, orphans and needless deletions
//! are left behind. Departure: segment by segment in place of one output file, so that it needs the
//! space of a few segments only, may stop at any time, and a crash at any point is a crash while cleaning.
//! Segments with records of snapshots are left out, as the cleaner leaves them out.

use crate::segments::Role;
use crate::shard::LogShard;
use std::collections::VecDeque;
use tierstone_base::{Error, ErrorKind, Result};

/// A compaction under way.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    waiting: VecDeque<u32>,
    total: u32,
}

/// How far a compaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CompactProgress {
    /// Segments with records when it began.
    pub segments_total: u32,
    /// Of these, not looked at, or not freed yet.
    pub segments_left: u32,
}

/// Segments that a compaction leaves to the open logs: with fewer free ones it waits.
const FREE_KEPT: u32 = 1;

impl LogShard {
    /// Begins to rewrite all segments that are not dense. [`LogShard::compact_progress`] says when it is
    /// over. Cost: a read and a write of every live byte in them.
    ///
    /// # Errors
    /// `Busy`: a compaction is under way, or the shard is being closed. `DeviceFailed`: as writes.
    pub fn begin_compact(&mut self) -> Result<()> {
        if let Some(error) = self.unwritable() {
            return Err(error);
        }
        if self.compact_progress().segments_left > 0 {
            return Err(Error::new(ErrorKind::Busy, "a compaction is under way"));
        }
        self.begin_streak();
        self.hot.roll(&mut self.segments);
        self.cold.roll(&mut self.segments);
        let mut found: Vec<_> = self
            .segments
            .iter()
            .filter(|(_, segment)| matches!(segment.role, Role::Open | Role::Sealed))
            .map(|(number, segment)| (segment.opened_seq, number))
            .collect();
        // Oldest first: a deletion goes when nothing older than it is left.
        found.sort_unstable();
        let total = found.len() as u32;
        let waiting = found.into_iter().map(|(_, number)| number).collect();
        self.compaction = Compaction { waiting, total };
        Ok(())
    }

    /// How far the last compaction has come; nothing is left when it is over, or there was none.
    pub fn compact_progress(&self) -> CompactProgress {
        let Compaction { waiting, total } = &self.compaction;
        let cleaning = if *total > 0 { self.segments_being_cleaned() } else { 0 };
        CompactProgress {
            segments_total: *total,
            segments_left: (waiting.len() as u32 + cleaning).min(*total),
        }
    }

    /// Gives the rest of a compaction up; what is being cleaned is finished.
    pub fn end_compact(&mut self) {
        self.compaction = Compaction::default();
    }

    /// The next segment to clean for a compaction.
    pub(crate) fn next_to_compact(&mut self) -> Option<u32> {
        if self.segments.free_count() <= FREE_KEPT {
            return None;
        }
        while let Some(&number) = self.compaction.waiting.front() {
            let segment = self.segments.get(number);
            // Its footer is on its way; all after it are younger.
            if segment.role == Role::Open {
                return None;
            }
            self.compaction.waiting.pop_front();
            if self.may_clean(number, self.segments.get(number)) {
                return Some(number);
            }
        }
        None
    }

    /// Whether a step would go on with a compaction.
    pub(crate) fn compact_wants_step(&self) -> bool {
        let Some(&first) = self.compaction.waiting.front() else { return false };
        self.segments.free_count() > FREE_KEPT && self.segments.get(first).role != Role::Open
    }
}
