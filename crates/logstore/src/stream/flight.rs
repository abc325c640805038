//! Groups on the device: submitted, written, durable.
//!
//! A group is written durably by itself, unless the log is *lazy*: then groups are plain writes, of which many are on
//! their way at a time, and one flush makes all durable that had been written when it began. So it is while a load goes
//! on that nobody waits for ([`crate::load`]).
//!
//! Invariants:
//! 1. A lazy group is durable when a flush has ended that was submitted after its write had ended, not before
//!    (`lazy_written_is_durable`, `flush_covers_flying`).
//! 2. One flush of a log is on its way at a time. What has been written since it was submitted needs the next one.
//! 3. A flush is due when so many bytes or so much time has come together ([`LazySettings`]); when the log is lazy no
//!    more, as soon as all lazy groups are written.
//!
//! Crash: any of the groups that are not durable may be there, later ones without earlier ones: the log ends before the
//! first that is missing, as it does with several durable writes on their way.

use super::Stream;
use crate::io::{IoTag, Requests, StreamId};
use crate::location::Location;
use crate::settings::ShardSettings;
use tierstone_base::Seq;
use tierstone_media::{IoBuffer, IoKind};

/// When lazy groups are made durable.
#[derive(Clone, Copy, Debug)]
pub struct LazySettings {
    /// When so many bytes are written and not durable; 0: a log is never lazy.
    pub bytes_max: usize,
    /// When the first of them has waited this long.
    pub wait_us: u64,
}

impl LazySettings {
    /// Of a log that makes each group durable by itself.
    pub const NEVER: LazySettings = LazySettings { bytes_max: 0, wait_us: 0 };

    /// As `settings` say.
    pub fn of(settings: &ShardSettings) -> Self {
        LazySettings { bytes_max: settings.lazy_bytes_max, wait_us: settings.lazy_wait_ms * 1_000 }
    }
}

/// How far a submitted group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Being written, durably or not.
    Writing,
    /// Lazy, written, and not covered by a flush.
    Written,
    /// Covered by the flush on its way.
    Flushing,
    /// Durable.
    Durable,
}

/// A group that was submitted and is not counted as durable.
#[derive(Debug)]
pub(crate) struct Flying {
    stream: StreamId,
    pub number: u64,
    segment: u32,
    start: usize,
    end: usize,
    last_seq: Seq,
    opened_us: u64,
    records: u32,
    durable_groups: u64,
    batches_resolved: u64,
    past_ms: u64,
    has_slot: bool,
    is_lazy: bool,
    progress: Progress,
}

impl Flying {
    pub fn opened_us(&self) -> u64 {
        self.opened_us
    }

    pub fn is_durable(&self) -> bool {
        self.progress == Progress::Durable
    }

    /// Where in its segment it begins.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Whether a request is this group's write.
    pub fn is_meant_by(&self, tag: Option<IoTag>) -> bool {
        matches!(tag, Some(IoTag::Group { stream, number, .. }) if (stream, number) == (self.stream, self.number))
    }

    fn holds(&self, location: Location) -> bool {
        self.segment == location.segment() && (self.start..self.end).contains(&location.offset())
    }

    /// It is being written, or is durable by itself and waits for groups before it. A lazy one needs no more of the
    /// device than a flush when it is written.
    fn is_under_way(&self) -> bool {
        match self.progress {
            Progress::Writing => true,
            Progress::Written | Progress::Flushing => false,
            Progress::Durable => !self.is_lazy,
        }
    }

    fn len(&self) -> usize {
        self.end - self.start
    }
}

/// What a log knows of its lazy groups.
#[derive(Debug, Default)]
pub(super) struct Lazy {
    is_on: bool,
    is_flushing: bool,
    /// Bytes that are written and not covered by a flush, and since when the first waits for one.
    bytes: usize,
    since_us: u64,
    /// Lazy groups that are being written.
    writing: usize,
}

impl Stream {
    /// Whether groups that are submitted from now on may be written without being made durable one by one.
    pub fn set_lazy(&mut self, is_lazy: bool) {
        self.lazy.is_on = is_lazy && self.settings.lazy.bytes_max > 0;
    }

    /// Whether groups that are submitted now are lazy.
    pub fn is_lazy(&self) -> bool {
        self.lazy.is_on
    }

    /// Whether another group may be submitted now.
    pub fn may_submit(&self) -> bool {
        self.under_way() < self.depth.now() && self.closed.is_empty()
    }

    /// Groups of which the device has still to do more than a flush.
    pub(super) fn under_way(&self) -> usize {
        self.flying.iter().filter(|group| group.is_under_way()).count()
    }

    /// Whether the device is busy with groups: buffers will be wanted again soon.
    pub(super) fn writes_many(&self, count: usize) -> bool {
        self.under_way() > count || self.lazy.writing >= count || !self.closed.is_empty()
    }

    /// Whether [`Stream::pump`] would submit a group.
    pub fn wants_pump(&self, overlap_bytes: usize) -> bool {
        !self.closed.is_empty() && (self.under_way() < self.depth.now() || self.closed_bytes >= overlap_bytes)
    }

    /// Submits closed groups when the number in flight allows, or when so many bytes wait that the
    /// device is busy with them anyway.
    pub fn pump(&mut self, overlap_bytes: usize, requests: &mut Requests) {
        if !self.wants_pump(overlap_bytes) {
            return;
        }
        let is_lazy = self.lazy.is_on;
        while let Some(closed) = self.closed.pop_front() {
            self.closed_bytes -= closed.len;
            self.flying_bytes += closed.len;
            self.lazy.writing += usize::from(is_lazy);
            self.flying.push_back(Flying {
                stream: self.settings.id,
                number: closed.number,
                segment: closed.segment,
                start: closed.start,
                end: closed.start + closed.len,
                last_seq: closed.last_seq,
                opened_us: closed.opened_us,
                records: closed.records,
                durable_groups: closed.durable_groups,
                batches_resolved: closed.batches_resolved,
                past_ms: closed.past_ms,
                has_slot: closed.has_slot,
                is_lazy,
                progress: Progress::Writing,
            });
            let offset = self.settings.geometry.segment_offset(closed.segment) + closed.start as u64;
            let tag = IoTag::Group { stream: self.settings.id, number: closed.number, is_lazy };
            self.kept.submitted(closed.number);
            let kind = if is_lazy { IoKind::Write } else { self.settings.write_kind };
            requests.push(tag, kind, offset, closed.buffer);
        }
    }

    /// When the next flush is due; `None` while there is nothing to flush, or a flush is on its way.
    pub fn flush_due_us(&self) -> Option<u64> {
        let Lazy { is_on, is_flushing, bytes, since_us, writing } = self.lazy;
        if is_flushing || bytes == 0 || (!is_on && writing > 0) {
            return None;
        }
        let is_due = !is_on || bytes >= self.settings.lazy.bytes_max;
        Some(if is_due { 0 } else { since_us + self.settings.lazy.wait_us })
    }

    /// Flushes what was written lazily, if that is due.
    pub fn flush_lazy(&mut self, now_us: u64, requests: &mut Requests) {
        if self.flush_due_us().is_none_or(|due_us| now_us < due_us) {
            return;
        }
        for group in self.flying.iter_mut().filter(|group| group.progress == Progress::Written) {
            group.progress = Progress::Flushing;
        }
        (self.lazy.is_flushing, self.lazy.bytes) = (true, 0);
        requests.push_flush(IoTag::Flush { stream: self.settings.id });
    }

    /// The flush is done at `now_us`.
    pub fn flushed(&mut self, now_us: u64) {
        self.lazy.is_flushing = false;
        let covers_all = self.settings.broken.flush_covers_flying;
        for group in &mut self.flying {
            let is_covered = match group.progress {
                Progress::Flushing => true,
                Progress::Written => covers_all,
                Progress::Writing | Progress::Durable => false,
            };
            if is_covered {
                group.progress = Progress::Durable;
            }
        }
        self.count_durable(now_us);
    }

    /// A group's write is done at `now_us`.
    pub fn group_written(&mut self, number: u64, buffer: Option<IoBuffer>, now_us: u64) {
        if let Some(group) = self.flying.iter_mut().find(|group| group.number == number) {
            let counts = !group.is_lazy || self.settings.broken.lazy_written_is_durable;
            group.progress = if counts { Progress::Durable } else { Progress::Written };
            if group.is_lazy {
                if self.lazy.bytes == 0 {
                    self.lazy.since_us = now_us;
                }
                self.lazy.writing -= 1;
                self.lazy.bytes += group.len();
                self.flying_bytes -= group.len();
            }
        }
        self.keep_spare(buffer);
        self.count_durable(now_us);
    }

    /// Counts the groups at the front that are durable.
    fn count_durable(&mut self, now_us: u64) {
        self.release_slots();
        while let Some(first) = self.flying.pop_front_if(|first| first.is_durable()) {
            if !first.is_lazy {
                self.flying_bytes -= first.len();
            }
            self.kept.durable(first.has_slot);
            self.durable_groups = first.number + 1;
            self.proven_groups = self.proven_groups.max(first.durable_groups);
            self.durable_seq = self.durable_seq.max(first.last_seq);
            self.parts.group_durable(first.batches_resolved);
            self.past.durable(first.past_ms, first.segment);
            self.depth.durable(u64::from(first.records), now_us.saturating_sub(first.opened_us));
        }
    }

    /// Whether the record at `location` is in a group that is not durable yet, so that the device must not be asked
    /// for it. A lazy group is read when it is written: who answers with what is not durable waits for it by the
    /// record's sequence, as with a record that was not submitted.
    pub fn is_volatile(&self, location: Location) -> bool {
        let is_under_way = |group: &Flying| group.is_under_way() && group.holds(location);
        self.is_unsubmitted(location) || self.flying.iter().any(is_under_way)
    }

    /// The submitted group that holds the record at `location`, and that is not counted as durable.
    pub(crate) fn flying_at(&self, location: Location) -> Option<&Flying> {
        self.flying.iter().find(|group| group.holds(location))
    }
}
