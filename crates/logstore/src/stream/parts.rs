//! A log's parts of batches over several shards, from their first record until nobody needs to know of
//! them any more.
//!
//! The life of a part: it is appended; the redo log keeps it, if there is one, and when the ticket has
//! counted all parts as kept the batch may be answered for; its groups become durable on the device, which
//! the ticket counts too; when it has counted all parts, the batch is **decided**; the next group of the log
//! says so in its header (`batches_resolved`); when that group is durable the part is **marked**, which the
//! ticket counts as well; when all parts are marked, it is **resolved everywhere** and forgotten here.
//!
//! Invariants:
//! 1. Parts have consecutive numbers in their log. What a group says covers a prefix of them, so that a
//!    part is marked when it and all parts before it are decided.
//! 2. A segment that holds a record of a part is sealed only when the part, and all before it, are
//!    resolved everywhere. So recovery, which counts parts in segments that are not sealed, finds all of
//!    them or needs none.
//! 3. A part that was taken back is decided: whatever says so durably lies behind what restores the old
//!    state. Other logs do not matter, since recovery can never count all parts of that batch.
//!
//! Marks are lazy: the next group carries them. A log that falls silent writes one without records after
//! [`MARK_QUIET_US`], or at once when a participant waits to seal a segment.

use super::Stream;
use crate::redo::BrokenRedo;
use crate::segments::SegmentTable;
use std::collections::VecDeque;
use std::sync::Arc;
use tierstone_base::Seq;
use tierstone_engine::BatchTicket;
use tierstone_media::BLOCK_BYTES;

/// How long a log waits for a group that carries what it knows, in microseconds.
pub const MARK_QUIET_US: u64 = 200_000;
/// More parts than this are not kept in memory without asking the other shards for their marks.
const PARTS_KEPT: usize = 4096;

/// One part.
#[derive(Debug)]
struct Part {
    first_seq: Seq,
    /// Its last sequence; `u64::MAX` while it is appended.
    last_seq: Seq,
    /// Its groups are those below this number; `u64::MAX` while it is appended.
    end_group: u64,
    /// What takes it back was appended: before any group that will call it decided.
    is_undone: bool,
    /// Bytes of records that would take it back.
    undo_bytes: u64,
    ticket: Arc<BatchTicket>,
}

/// The parts of a log.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Parts from number `first` on.
    parts: VecDeque<Part>,
    first: u64,
    /// Parts below this number are kept here, in the redo log or on the device.
    kept: u64,
    /// Parts below this number are kept everywhere: their batches may be answered for.
    agreed: u64,
    /// Parts below this number are durable on the device here.
    durable: u64,
    /// Parts below this number are decided.
    decided: u64,
    /// Parts below this number are called decided by a group that is closed.
    carried: u64,
    /// Parts below this number are called decided by a durable group.
    marked: u64,
    /// When a group without records is written to carry what is decided.
    mark_at_us: Option<u64>,
    marks_early: bool,
    /// Rules that a test breaks on purpose.
    pub broken_redo: BrokenRedo,
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Parts {
    /// No parts; `marks_early` is a test's mutation.
    pub fn new(marks_early: bool) -> Self {
        let mut parts = Parts::default();
        parts.marks_early = marks_early;
        parts
    }

    /// The number that the next part gets.
    pub fn next(&self) -> u64 {
        self.first + self.parts.len() as u64
    }

    fn part(&self, number: u64) -> Option<&Part> {
        self.parts.get(number.checked_sub(self.first)? as usize)
    }

    /// Parts below this number are decided.
    pub fn decided(&self) -> u64 {
        self.decided
    }

    /// Parts that are not decided.
    pub fn parts_pending(&self) -> u64 {
        self.next() - self.decided
    }

    /// What a group that is closed now says.
    pub fn carry(&mut self) -> u64 {
        self.carried = self.decided;
        self.mark_at_us = None;
        self.decided
    }

    /// A group that says `batches_resolved` is durable.
    pub fn group_durable(&mut self, batches_resolved: u64) {
        while self.marked < batches_resolved {
            if let Some(part) = self.part(self.marked) {
                part.ticket.note_marked();
            }
            self.marked += 1;
        }
    }

    /// Whether a part is decided, as far as this log can know.
    fn is_decided(&self, part: &Part) -> bool {
        part.is_undone || part.ticket.is_decided() || self.marks_early || self.is_kept_decided(part)
    }

    /// For a test's mutation.
    fn is_kept_decided(&self, part: &Part) -> bool {
        self.broken_redo.parts_decided_by_region && part.ticket.is_kept()
    }

    /// Whether a part is kept here; `answered` as for [`Parts::advance`].
    fn is_kept(&self, part: &Part, durable_groups: u64, answered: Seq) -> bool {
        let is_early = self.broken_redo.part_counted_early && part.end_group != u64::MAX;
        part.last_seq <= answered || part.end_group <= durable_groups || is_early
    }

    /// Whether a part may be answered for, as far as others are concerned.
    fn is_agreed(&self, part: &Part) -> bool {
        part.is_undone || part.ticket.is_kept() || self.marks_early
    }

    /// Takes in what has become known here and elsewhere. `answered`: what is durable, in the redo log or on the
    /// device.
    fn advance(&mut self, durable_groups: u64, answered: Seq, now_us: u64) {
        while let Some(part) =
            self.part(self.kept).filter(|part| self.is_kept(part, durable_groups, answered))
        {
            part.ticket.note_kept();
            self.kept += 1;
        }
        while self.agreed < self.kept && self.part(self.agreed).is_some_and(|part| self.is_agreed(part)) {
            self.agreed += 1;
        }
        while let Some(part) = self.part(self.durable).filter(|part| part.end_group <= durable_groups) {
            part.ticket.note_durable();
            self.durable += 1;
        }
        let before = self.decided;
        while self.decided < self.durable && self.part(self.decided).is_some_and(|part| self.is_decided(part))
        {
            self.decided += 1;
        }
        if self.decided > before && self.mark_at_us.is_none() {
            self.mark_at_us = Some(now_us + MARK_QUIET_US);
        }
        while self.first < self.marked
            && self.parts.front().is_some_and(|part| part.is_undone || part.ticket.is_marked())
        {
            self.parts.pop_front();
            self.first += 1;
        }
        self.agreed = self.agreed.max(self.first);
        if self.parts.len() > PARTS_KEPT
            && let Some(oldest) = self.parts.front()
        {
            oldest.ticket.wait_for_marks();
        }
    }

    /// The first sequence of the oldest part that may not be answered for.
    pub fn unagreed_seq(&self, durable_groups: u64, answered: Seq) -> Option<Seq> {
        let rest = self.parts.range((self.agreed - self.first) as usize..);
        let is_kept = |part: &Part| self.is_kept(part, durable_groups, answered);
        rest.into_iter().find(|part| !is_kept(part) || !self.is_agreed(part)).map(|part| part.first_seq)
    }

    /// Whether a part was answered for of whose batch the devices do not have all: it goes if the region is lost.
    fn is_any_kept_only(&self) -> bool {
        let rest = self.parts.range((self.decided - self.first) as usize..);
        rest.into_iter().any(|part| part.ticket.is_kept() && !part.ticket.is_decided())
    }

    /// The first sequence that is not decided, if a part is not.
    pub fn undecided_seq(&self, durable_groups: u64) -> Option<Seq> {
        let rest = self.parts.range((self.decided - self.first) as usize..);
        rest.into_iter()
            .find(|part| part.end_group > durable_groups || !self.is_decided(part))
            .map(|part| part.first_seq)
    }

    /// Whether all parts below `number` are resolved everywhere.
    pub fn are_resolved_below(&self, number: u64) -> bool {
        self.first >= number
    }

    /// Asks the other participants of parts below `number` for their marks.
    pub fn wait_below(&self, number: u64) {
        let count = number.saturating_sub(self.first) as usize;
        self.parts.iter().take(count).for_each(|part| part.ticket.wait_for_marks());
    }

    /// Whether a group shall carry marks although nobody has written.
    fn wants_mark(&self, now_us: u64, at_once: bool) -> bool {
        self.decided > self.carried
            && (at_once
                || self.mark_at_us.is_some_and(|at_us| at_us <= now_us)
                || (self.carried..self.decided)
                    .any(|number| self.part(number).is_some_and(|part| part.ticket.is_waited_for())))
    }

    /// Nothing more becomes known from this log.
    pub fn abandon(&mut self) {
        for number in self.marked..self.next() {
            if let Some(part) = self.part(number).filter(|part| !part.is_undone) {
                part.ticket.abandon();
            }
        }
    }
}

impl Stream {
    /// Begins a part of `batch`; the records up to [`Stream::end_part`] are it, and records of
    /// `undo_bytes` would take it back. Gives its number.
    pub fn begin_part(&mut self, batch: &Arc<BatchTicket>, first_seq: Seq, undo_bytes: u64) -> u64 {
        self.begin_batch();
        self.in_part = true;
        let number = self.parts.next();
        let ticket = Arc::clone(batch);
        let (last_seq, end_group) = (u64::MAX, u64::MAX);
        let part = Part { first_seq, last_seq, end_group, is_undone: false, undo_bytes, ticket };
        self.parts.parts.push_back(part);
        number
    }

    /// The part is complete.
    pub fn end_part(&mut self) {
        self.end_batch();
        self.in_part = false;
        let (last_seq, end_group) = (self.appended_seq, self.end_group());
        if let Some(part) = self.parts.parts.back_mut() {
            (part.last_seq, part.end_group) = (last_seq, end_group);
        }
    }

    /// Whether what takes a part back must wait: it may write again what a batch has written that goes as a whole
    /// if the redo log's region is lost, and would leave a part of it there.
    pub fn delays_undo(&self) -> bool {
        self.parts.is_any_kept_only()
    }

    /// What was appended so far takes this log's part of `batch` back.
    pub fn undo_part(&mut self, batch: &Arc<BatchTicket>) {
        let own = self.parts.parts.iter_mut().rev().find(|part| Arc::ptr_eq(&part.ticket, batch));
        if let Some(part) = own {
            part.is_undone = true;
        }
    }

    /// Bytes for which room is kept: for what would take back the parts that are not decided, and for a
    /// group that says so when they are.
    pub fn kept_bytes(&self) -> u64 {
        if self.parts.carried == self.parts.next() {
            return 0;
        }
        let undecided = (self.parts.decided - self.parts.first) as usize;
        let parts = self.parts.parts.range(undecided..);
        let undo = parts.filter(|part| !part.is_undone).map(|part| part.undo_bytes);
        BLOCK_BYTES as u64 + undo.sum::<u64>()
    }

    /// Takes in what has become known of parts.
    pub fn advance_parts(&mut self, now_us: u64) {
        if !self.parts.parts.is_empty() {
            self.parts.advance(self.durable_groups, self.answered_seq(), now_us);
        }
    }

    /// Everything up to this sequence is durable, and decided.
    pub fn decided_seq(&self) -> Seq {
        let undecided = self.parts.undecided_seq(self.durable_groups);
        undecided.map_or(self.durable_seq, |first| self.durable_seq.min(first - 1))
    }

    /// The first sequence of the oldest part of which something remains to be known: a crash may make records
    /// from it on void.
    pub fn first_part_seq(&self) -> Option<Seq> {
        self.parts.parts.front().map(|part| part.first_seq)
    }

    /// Whether there is a part of which something remains to be known.
    pub fn has_parts(&self) -> bool {
        !self.parts.parts.is_empty()
    }

    /// Whether every part is marked here.
    pub fn is_marked(&self) -> bool {
        self.parts.marked == self.parts.next()
    }

    /// Whether a shard that has a part has gone, so that what is waited for will never be known: a part
    /// is never decided, or a segment (at the end of the shard, the last one) never sealed.
    pub fn is_abandoned(&self, is_shutting: bool) -> bool {
        let undecided = (self.parts.decided - self.parts.first) as usize;
        let from = if is_shutting || self.is_seal_due() { 0 } else { undecided };
        self.parts
            .parts
            .range(from..)
            .any(|part| !part.is_undone && part.ticket.is_abandoned() && !part.ticket.is_marked())
    }

    /// Whether a segment could be sealed but for parts.
    fn is_seal_due(&self) -> bool {
        self.sealing.jobs.first().is_some_and(|job| job.needs_durable <= self.durable_groups)
    }

    /// Nothing more becomes known from this log: other shards need not wait.
    pub fn abandon_parts(&mut self) {
        self.parts.abandon();
    }

    /// Makes the next step write what is known of parts.
    pub fn want_mark(&mut self, now_us: u64) {
        self.parts.mark_at_us = Some(now_us);
        self.parts.wait_below(self.parts.next());
    }

    /// Writes a group without records where one shall carry marks and none is coming.
    pub fn mark(&mut self, now_us: u64, at_once: bool, segments: &mut SegmentTable) {
        if self.parts.parts.is_empty() || self.open.is_some() || !self.parts.wants_mark(now_us, at_once) {
            return;
        }
        if !self.fits_segment(0, 0) {
            // Room was kept for this group when the parts were admitted.
            if segments.free_count() == 0 {
                return;
            }
            self.roll(segments);
            if self.open_segment(self.durable_seq, segments).is_none() {
                return;
            }
        }
        self.open_group(0, self.durable_seq, now_us);
        self.close_group(segments);
    }

    /// When a step is wanted because of parts, at the latest.
    pub fn parts_step_at(&self, now_us: u64, is_shutting: bool) -> Option<u64> {
        if self.parts.parts.is_empty() {
            return None;
        }
        // Nobody tells when another shard's part is durable, or marked.
        let undecided = self.parts.decided < self.parts.durable || self.parts.agreed < self.parts.kept;
        let waits = is_shutting || self.is_seal_due();
        match (undecided, waits) {
            (true, _) => Some(now_us + 200),
            (false, true) => Some(now_us + 1_000),
            (false, false) => self.parts.mark_at_us.map(|at_us| at_us.max(now_us + 1_000)),
        }
    }
}
