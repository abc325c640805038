//! What a log keeps in the redo log in persistent memory ([`crate::redo`]): its groups, until flash has them.

use super::{OpenGroup, OpenSegment, Stream};
use crate::format::group;
use crate::format::segment::{SegmentHeader, SegmentState, Temperature};
use crate::redo::RedoLog;
use crate::redo::format::SlotHeader;
use crate::segments::SegmentTable;
use tierstone_base::{Error, Result, Seq};

/// What a log knows of its redo log.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub log: Option<RedoLog>,
    /// Everything up to this sequence is durable, in the region or on flash.
    answered: Seq,
    /// Groups that were closed without a slot and are not durable on flash.
    pub bare_groups: u64,
    /// Groups go without slots: nobody waits for them.
    is_paused: bool,
}

impl Kept {
    /// Whether the group may be answered for when the region has been fenced.
    fn is_whole(&self, open: Option<&OpenGroup>) -> bool {
        let Some(log) = &self.log else { return false };
        let has_slot = open.is_none_or(|open| open.slot.is_some());
        (self.bare_groups == 0 || log.broken.gap_answered) && has_slot
    }

    /// A group is closed.
    pub fn closed(&mut self, number: u64, slot: Option<usize>) {
        let Some(log) = &mut self.log else { return };
        if slot.is_some() {
            log.closed(number);
        } else {
            self.bare_groups += 1;
            log.groups_without_slot += u64::from(!self.is_paused);
        }
    }

    /// A group that was closed with a slot or without is durable on flash.
    pub fn durable(&mut self, has_slot: bool) {
        if self.log.is_some() && !has_slot {
            self.bare_groups -= 1;
        }
    }

    /// A group's write begins; only a test's mutation makes something of it.
    pub fn submitted(&mut self, number: u64) {
        if let Some(log) = self.log.as_mut().filter(|log| log.broken.truncated_early) {
            log.release(number + 1);
        }
    }

    /// Takes a slot for the open group, if there is one and it is wanted.
    fn begin(&mut self, open: &mut OpenGroup, header: &SlotHeader, segment_header: &SegmentHeader) {
        let Some(log) = &mut self.log else { return };
        if self.is_paused || open.used > log.image_bytes() {
            return;
        }
        open.slot = log.begin(header);
        let Some(slot) = open.slot else { return };
        if open.header > 0 {
            // Behind the header there are zeros: a torn first write of a segment must look blank.
            open.buffer[..open.header].fill(0);
            segment_header.encode(&mut open.buffer);
            log.keep_segment_header(slot, &open.buffer[..open.header]);
        }
        open.kept = open.header + group::HEADER_BYTES;
    }

    /// Keeps what the open group has got since it was kept last.
    fn keep(&mut self, open: &mut OpenGroup, past_ms: u64) {
        let (Some(log), Some(slot)) = (&mut self.log, open.slot) else { return };
        if open.used > open.kept {
            log.keep(slot, open.kept, &mut open.buffer[open.kept..open.used]);
            open.kept = open.used;
        }
        log.keep_past(slot, past_ms);
    }
}

impl Stream {
    /// From now on records may be answered for when they are in `log`.
    pub fn set_redo(&mut self, log: RedoLog) {
        self.settings.group_bytes_max = self.settings.group_bytes_max.min(log.image_bytes());
        self.parts.broken_redo = log.broken;
        self.kept.log = Some(log);
    }

    /// The redo log, if there is one.
    pub fn redo(&self) -> Option<&RedoLog> {
        self.kept.log.as_ref()
    }

    /// Whether groups do without slots from now on: nobody waits for them.
    pub fn pause_redo(&mut self, is_paused: bool) {
        self.kept.is_paused = is_paused;
    }

    /// Why the redo log's region gives no durability any more.
    pub fn redo_failure(&self) -> Option<&Error> {
        self.kept.log.as_ref()?.failure()
    }

    /// Whether what is appended is durable without its group's being written: the group may wait for company.
    pub fn may_linger(&self) -> bool {
        let Kept { log: Some(log), bare_groups: 0, is_paused: false, .. } = &self.kept else { return false };
        let has_slot = |open: &OpenGroup| open.slot.is_some() || log.has_free_slot();
        self.parts.parts_pending() == 0 && self.open.as_ref().is_none_or(has_slot)
    }

    /// Keeps what was appended in the redo log and makes it durable there. One barrier if there is anything new.
    ///
    /// # Errors
    /// When the region failed.
    pub fn commit(&mut self, segments: &SegmentTable) -> Result<()> {
        if self.kept.log.is_none() {
            return Ok(());
        }
        self.keep_open(segments);
        let Some(log) = &mut self.kept.log else { return Ok(()) };
        log.fence()?;
        if self.kept.is_whole(self.open.as_ref()) {
            let seq = if self.in_batch { self.before_batch } else { self.appended_seq };
            self.kept.answered = self.kept.answered.max(seq);
        }
        Ok(())
    }

    /// Marks what was made durable in the redo log and lies there for long ([`crate::redo`]).
    pub fn mark_redo(&mut self, now_us: u64) {
        if let Some(log) = &mut self.kept.log {
            log.mark_step(now_us);
        }
    }

    /// When that is to be done.
    pub fn redo_mark_due_us(&self) -> Option<u64> {
        self.kept.log.as_ref()?.mark_due_us()
    }

    /// Keeps all of the open group, which is going to be closed. One barrier if there is anything new: a group of
    /// which a part were lost would else be followed by the next one as if it had been shorter.
    pub(super) fn keep_closing(&mut self, segments: &SegmentTable) {
        self.keep_open(segments);
        let has_slot = self.open.as_ref().is_some_and(|open| open.slot.is_some());
        if let Some(log) = self.kept.log.as_mut().filter(|log| has_slot && !log.broken.closed_unfenced) {
            // The failure stays, and stops the shard.
            _ = log.fence();
        }
    }

    /// Frees the slots of groups whose writes have completed, before anybody relies on that: see the invariants of
    /// [`crate::redo`].
    pub(super) fn release_slots(&mut self) {
        let done = self.flying.iter().take_while(|group| group.is_durable()).last();
        if let (Some(group), Some(log)) = (done, &mut self.kept.log) {
            log.release(group.number + 1);
        }
    }

    /// Keeps what the open group has got, without a barrier.
    fn keep_open(&mut self, segments: &SegmentTable) {
        let (Some(open), Some(segment)) = (&mut self.open, &self.segment) else { return };
        if self.kept.log.is_none() {
            return;
        }
        if open.slot.is_none() {
            let header = SlotHeader {
                log_id: self.settings.log_id,
                group: self.next_group,
                segment: segment.number,
                start: open.start as u32,
                generation: segments.get(segment.number).generation,
                first_seq: open.first_seq,
                durable_groups: self.durable_groups,
                batches_resolved: self.parts.decided(),
                past_ms: self.past.shown_ms,
                header: open.header as u32,
                before: None,
            };
            let segment_header = segment_header(&self.settings, segment, segments, self.durable_groups);
            self.kept.begin(open, &header, &segment_header);
        }
        self.kept.keep(open, self.past.shown_ms);
    }

    /// Everything up to this sequence is durable, in the region or on flash.
    pub fn answered_seq(&self) -> Seq {
        self.durable_seq.max(self.kept.answered)
    }

    /// Everything up to this sequence may be answered for: it is durable, in the region or on flash, and so are all
    /// parts of its batches over several shards.
    pub fn answered_decided_seq(&self) -> Seq {
        let answered = self.answered_seq();
        let unagreed = self.parts.unagreed_seq(self.durable_groups, answered);
        unagreed.map_or(answered, |first| answered.min(first - 1))
    }
}

/// The header of the open segment.
pub(super) fn segment_header(
    settings: &super::StreamSettings,
    segment: &OpenSegment,
    segments: &SegmentTable,
    durable_groups: u64,
) -> SegmentHeader {
    let table = segments.get(segment.number);
    SegmentHeader {
        store: settings.store,
        segment: segment.number,
        state: SegmentState::Log,
        temperature: if table.cold { Temperature::Cold } else { Temperature::Hot },
        generation: table.generation,
        log_id: settings.log_id,
        opened_seq: table.opened_seq,
        first_group: segment.first_group,
        durable_groups,
        first_position: settings.positions.0.0,
        last_position: settings.positions.1.0,
    }
}
