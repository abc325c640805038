//! The redo-only logical log of a shard, in a ring of segments of its own.
//!
//! A frame holds records of writes that are there together or not at all; a batch that is longer goes on in the next
//! frame. Frames are stored past the caches; one fence makes all durable that came before it.
//!
//! Invariants:
//! 1. The log begins at the logical segment that the shard's line names; one word truncates it.
//! 2. A log segment's lead is durable before its word in the allocation table says which one it is; both before its
//!    first frame.
//! 3. Every frame before a segment's lead is durable before the lead is: what is torn lies in the last segment.
//! 4. Writes leave one spare segment: recovery begins a new log in it.
//! 5. Nothing is appended behind a tear: recovery begins a new segment, whose life makes old frames void.
//! 6. Spare segments are taken in the order in which they became spare: the numbers that they keep in the table stay recent, and
//!    never seem to be ahead of the log ([`crate::serial`]).
//! 7. What a frame, a lead or the mark says to be durable was fenced before they were stored ([`crate::found`]).

use crate::blocks::Maker;
use crate::format::{Entry, FrameHead, LEAD_BYTES, LogLead, SegmentKind, VERDICT_AT};
use crate::mark::{LogMark, guarded};
use crate::serial;
use std::collections::VecDeque;
use tierstone_base::{Error, ErrorKind, Result, Seq};

/// A segment of the log that holds frames.
#[derive(Debug)]
pub(crate) struct LogSegment {
    segment: u32,
    pub logical: u32,
    life: u64,
    first_seq: Seq,
    end: u64,
    /// The newest sequence in it.
    pub last_seq: Seq,
    /// The blocks' clock when it was appended to last.
    pub appended: u64,
    /// What lies before this is durable.
    fenced: u64,
}

/// Where a frame went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePlace {
    /// The word for the verdict on a part.
    pub verdict: u64,
    pub checksum: u64,
    pub logical: u32,
}

/// The log of one shard.
#[derive(Debug)]
pub(crate) struct Log {
    maker: Maker,
    pub segments: VecDeque<LogSegment>,
    /// The next one to be taken first.
    spares: VecDeque<u32>,
    next_logical: u32,
    /// A test's: frames take themselves for durable.
    pub claims_early: bool,
}

impl Log {
    /// A log without segments, to which `spares` belong.
    pub fn new(maker: Maker, spares: Vec<u32>, next_logical: u32) -> Self {
        Log { maker, segments: VecDeque::new(), spares: spares.into(), next_logical, claims_early: false }
    }

    /// A fence has come after everything that was appended.
    pub fn note_fenced(&mut self) {
        if let Some(last) = self.segments.back_mut() {
            last.fenced = last.end;
        }
    }

    /// Up to where everything was durable at the last fence that was noted, if there are frames; `early`: what was
    /// appended since, too.
    pub fn fenced(&self, early: bool) -> Option<LogMark> {
        let last = self.segments.back()?;
        let end = if early { last.end } else { last.fenced };
        (end > LEAD_BYTES).then_some(LogMark { logical: last.logical, end: end as u32 })
    }

    fn segment_bytes(&self) -> u64 {
        self.maker.layout.geometry.segment_bytes
    }

    fn left(&self) -> u64 {
        self.segments.back().map_or(0, |last| self.segment_bytes() - last.end)
    }

    /// Bytes that a segment surely takes of frames.
    fn sure_bytes(&self) -> u64 {
        self.segment_bytes() - LEAD_BYTES - self.maker.layout.frame_max() as u64
    }

    /// The longest batch in bytes of frames.
    pub fn batch_max(&self) -> u64 {
        u64::from(self.maker.layout.geometry.log_segments - 2) * self.sure_bytes()
    }

    /// Whether frames of `bytes` bytes find room.
    pub fn has_room(&self, bytes: u64) -> bool {
        if bytes <= self.left() {
            return true;
        }
        let spares = (self.spares.len() as u64).saturating_sub(1);
        bytes <= spares * self.sure_bytes()
    }

    /// Older sequences are not replayed after a crash.
    pub fn first_seq(&self) -> Seq {
        self.segments.front().map_or(Seq::MAX, |first| first.first_seq)
    }

    /// Whether a segment can be begun that is not the last spare one.
    pub fn can_begin(&self) -> bool {
        self.spares.len() > 1 && self.segments.back().is_some_and(|last| last.end > LEAD_BYTES)
    }

    /// Whether so much of the ring is in use that it should be truncated.
    pub fn is_long(&self) -> bool {
        self.segments.len() > usize::from(self.maker.layout.geometry.log_segments) / 2
    }

    /// Begins a new segment, for sequences from `first_seq` on. Two barriers.
    pub fn begin_segment(&mut self, life: u64, first_seq: Seq, appended: u64) -> Result<()> {
        let none = || Error::new(ErrorKind::Retry, "the log of this shard is full: step the engine first");
        let segment = self.spares.pop_front().ok_or_else(none)?;
        let logical = self.next_logical;
        self.next_logical = serial::next(logical);
        let Maker { memory, layout, space, shard, store, .. } = &self.maker;
        // What is torn later is in this segment: the fence makes what lies before it durable. What recovery found
        // before its own first segment may be torn, and nothing is said of it.
        let previous_end = self.segments.back().map_or(0, |last| last.end as u32);
        let lead = LogLead { life, logical, first_seq, previous_end }.encode(*store, segment);
        memory.stream(layout.segment(segment), &lead);
        memory.barrier("lead_unfenced")?;
        // crash here [lead-without-word]: the segment is a spare one, and its lead counts for nothing
        space.name(segment, Entry { kind: SegmentKind::Log, device: *shard, logical });
        memory.barrier("log_word_unfenced")?;
        let last_seq = first_seq - 1;
        self.segments.push_back(LogSegment {
            segment,
            logical,
            life,
            first_seq,
            end: LEAD_BYTES,
            last_seq,
            appended,
            fenced: LEAD_BYTES,
        });
        Ok(())
    }

    /// Whether a frame of `len` bytes needs a new segment.
    pub fn needs_segment(&self, len: usize) -> bool {
        len as u64 > self.left()
    }

    /// Appends a frame that fits the last segment: `frame` begins with room for its head. Not durable yet.
    pub fn append(&mut self, head: FrameHead, frame: &mut [u8]) -> Result<FramePlace> {
        let Maker { memory, layout, .. } = &self.maker;
        let lost = || Error::new(ErrorKind::Corrupt, "the log has no segment: reopen the store");
        let last = self.segments.back_mut().ok_or_else(lost)?;
        let offset = layout.segment(last.segment) + last.end;
        let fenced = if self.claims_early { last.end + frame.len() as u64 } else { last.fenced };
        let checksum = head.encode(frame, last.life, offset, fenced as u32);
        memory.stream(offset, frame);
        last.end += frame.len() as u64;
        last.last_seq = head.last_seq;
        Ok(FramePlace { verdict: offset + VERDICT_AT, checksum, logical: last.logical })
    }

    /// What the log's records made is appended to blocks up to this clock.
    pub fn note_appended(&mut self, appended: u64) {
        if let Some(last) = self.segments.back_mut() {
            last.appended = appended;
        }
    }

    /// Truncates the log before logical segment `logical`, in one word. One barrier.
    pub fn truncate(&mut self, logical: u32) -> Result<()> {
        let Maker { memory, layout, shard, .. } = &self.maker;
        memory.put_word(layout.shard_line(*shard), guarded(logical.into()));
        memory.barrier("truncation_unfenced")?;
        let goes = |first: &mut LogSegment| !serial::is_at_or_after(logical, first.logical);
        while let Some(first) = self.segments.pop_front_if(goes) {
            self.spares.push_back(first.segment);
        }
        Ok(())
    }

    /// Segments of the log before this opening, which nothing is needed of any more.
    pub fn add_spares(&mut self, segments: &[u32]) {
        self.spares.extend(segments);
    }

    /// Bytes of frames that a crash would have to replay.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.end - LEAD_BYTES).sum()
    }
}
