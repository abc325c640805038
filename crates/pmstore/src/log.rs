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

use crate::blocks::Maker;
use crate::format::{
    Entry, FRAME_BYTES, FRAME_MORE, FrameHead, LEAD_BYTES, LogLead, SegmentKind, VERDICT_AT, Verdict, word_at,
};
use std::collections::{BTreeMap, VecDeque};
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
    spares: Vec<u32>,
    next_logical: u32,
}

impl Log {
    /// A log without segments, to which `spares` belong.
    pub fn new(maker: Maker, spares: Vec<u32>, next_logical: u32) -> Self {
        Log { maker, segments: VecDeque::new(), spares, next_logical }
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
        let segment = self.spares.pop().ok_or_else(none)?;
        let logical = self.next_logical;
        self.next_logical += 1;
        let Maker { memory, layout, space, shard, store, .. } = &self.maker;
        let lead = LogLead { life, logical, first_seq }.encode(*store, segment);
        memory.stream(layout.segment(segment), &lead);
        memory.fence()?;
        // crash here [lead-without-word]: the segment is a spare one, and its lead counts for nothing
        space.publish(segment, Entry { kind: SegmentKind::Log, device: *shard, logical })?;
        let last_seq = first_seq - 1;
        self.segments.push_back(LogSegment {
            segment,
            logical,
            life,
            first_seq,
            end: LEAD_BYTES,
            last_seq,
            appended,
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
        let checksum = head.encode(frame, last.life, offset);
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
        memory.publish(layout.shard_line(*shard), u64::from(logical))?;
        while let Some(first) = self.segments.pop_front_if(|first| first.logical < logical) {
            self.spares.push(first.segment);
        }
        Ok(())
    }

    /// Segments of the log before this opening, which nothing is needed of any more.
    pub fn add_spares(&mut self, segments: &[u32]) {
        self.spares.extend_from_slice(segments);
    }

    /// Bytes of frames that a crash would have to replay.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.end - LEAD_BYTES).sum()
    }
}

/// A frame as found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundFrame {
    pub offset: u64,
    pub head: FrameHead,
}

/// Frames that count together.
#[derive(Clone, Debug)]
pub(crate) struct FoundGroup {
    /// Its frames, as places in the list.
    pub frames: std::ops::Range<usize>,
    pub first_seq: Seq,
    pub last_seq: Seq,
    pub batch: u64,
    pub parts: u16,
    pub opening: u64,
    pub verdict_at: u64,
    pub checksum: u64,
    pub verdict: Option<Verdict>,
}

/// The log of a shard as it was found, up to the first frame that is not whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundLog {
    pub frames: Vec<FoundFrame>,
    pub groups: Vec<FoundGroup>,
    /// The first sequence that is not in blocks alone.
    pub first_seq: Seq,
    /// The last sequence that counts.
    pub end_seq: Seq,
    /// Segments of the log in force, and all others that belong to it.
    pub chain: Vec<u32>,
    pub spares: Vec<u32>,
    /// The next logical number that nothing has.
    pub next_logical: u32,
}

/// Walks the log of `maker`'s shard over `segments` (by logical number), those that hold nothing among `others`.
pub(crate) fn find(
    maker: &Maker,
    segments: &BTreeMap<u32, u32>,
    others: Vec<u32>,
    first_seq: Seq,
) -> Result<FoundLog> {
    let Maker { memory, layout, store, shard, .. } = maker;
    let start = memory.load_word(layout.shard_line(*shard)) as u32;
    let mut found = FoundLog { spares: others, first_seq, end_seq: first_seq - 1, ..FoundLog::default() };
    found.next_logical = segments.last_key_value().map_or(start, |(last, _)| last + 1).max(start);
    let mut expected = start;
    let mut newest = None;
    for (&logical, &segment) in segments {
        if logical != expected {
            found.spares.push(segment);
            continue;
        }
        let lead = LogLead::decode(&memory.load(layout.segment(segment)), *store, segment);
        let Some(lead) =
            lead.filter(|lead| lead.logical == logical && newest.is_none_or(|end| lead.first_seq > end))
        else {
            if logical == start {
                return Err(no_log(*shard));
            }
            found.spares.push(segment);
            continue;
        };
        if logical == start {
            (found.first_seq, found.end_seq) = (lead.first_seq, lead.first_seq - 1);
        }
        let frames = found.frames.len();
        newest = Some(walk(maker, segment, lead, &mut found.frames).max(newest.unwrap_or(0)));
        expected = logical + 1;
        if found.frames.len() == frames && logical != start {
            // Begun, and nothing is in it.
            found.spares.push(segment);
        } else {
            found.chain.push(segment);
        }
    }
    if start != 0 && newest.is_none() {
        return Err(no_log(*shard));
    }
    group(maker, &mut found);
    Ok(found)
}

fn no_log(shard: u16) -> Error {
    let message = format!(
        "the first segment of the log of shard {shard} is damaged or missing: restore the region from a copy"
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// The frames of one segment; gives the last sequence in it.
fn walk(maker: &Maker, segment: u32, lead: LogLead, frames: &mut Vec<FoundFrame>) -> Seq {
    let Maker { memory, layout, .. } = maker;
    let (start, bytes) = (layout.segment(segment), layout.geometry.segment_bytes);
    let (mut end, mut last) = (LEAD_BYTES, lead.first_seq - 1);
    while end + FRAME_BYTES as u64 <= bytes {
        let offset = start + end;
        let head = FrameHead::decode(&memory.load(offset));
        let Some(head) = head.filter(|head| end + u64::from(head.len) <= bytes && head.first_seq > last)
        else {
            break;
        };
        if FrameHead::is_whole(&memory.bytes(offset, head.len as usize), lead.life, offset).is_none() {
            break;
        }
        frames.push(FoundFrame { offset, head });
        (end, last) = (end + u64::from(head.len), head.last_seq);
    }
    last
}

/// Puts the frames of each batch together; what is not whole at the end does not count.
fn group(maker: &Maker, found: &mut FoundLog) {
    let mut first = 0;
    for at in 0..found.frames.len() {
        let FoundFrame { offset, head } = found.frames[at];
        if head.flags & FRAME_MORE != 0 {
            continue;
        }
        let words: [u8; 24] = maker.memory.load(offset);
        let (checksum, verdict) = (word_at(&words, 8), word_at(&words, VERDICT_AT as usize));
        found.groups.push(FoundGroup {
            frames: first..at + 1,
            first_seq: found.frames[first].head.first_seq,
            last_seq: head.last_seq,
            batch: head.batch,
            parts: head.parts,
            opening: head.opening,
            verdict_at: offset + VERDICT_AT,
            checksum,
            verdict: Verdict::of_word(verdict, checksum).filter(|_| head.parts != 0),
        });
        first = at + 1;
        found.end_seq = head.last_seq;
    }
    found.frames.truncate(first);
}
