//! Finding a shard's log: what of it is there, and whether what is not was never durable or is damaged.
//!
//! Power lost leaves of frames behind the last fence what it likes, and that is no damage. What was durable must be
//! there; three things say what was:
//!
//! 1. A frame says up to which byte of its segment everything was fenced before it was stored. A whole one proves it,
//!    wherever it lies.
//! 2. A segment's lead says where the frames before it end: they are durable when its number is in the table.
//! 3. The shard's line names an end ([`crate::mark`]), a second old at most while the shard runs.
//!
//! Up to the last number that 2 or 3 prove, every segment must be named and have its lead. Behind it recoveries that were
//! cut off may have left numbers, with leads or without: what they began is nothing, and used again.
//!
//! So damage of the log is seen but for frames behind all these: the ones of the last second before the process died,
//! and only when nothing came after their fence. These look like a tear, as they must.
//!
//! Where the loss is accepted, what is whole behind a hole counts: each frame by itself, so that a batch of several
//! frames, or over several shards, may be there in part.
//!
//! Invariants:
//! 1. Nothing that a loss of power may leave is called damage: whatever says that something was durable was stored
//!    after the fence that made it so (`fence_claimed_early`, `mark_before_fence`).
//! 2. Nothing is changed here.

use crate::blocks::Maker;
use crate::format::{
    Entry, FRAME_BYTES, FRAME_MORE, FrameHead, LEAD_BYTES, LogLead, SPARE, VERDICT_AT, Verdict, word_at,
};
use crate::mark::{LogMark, MARK_AT, unguarded};
use crate::open::Owned;
use crate::serial;
use std::cmp::Reverse;
use tierstone_base::{Error, ErrorKind, Result, Seq};
use tierstone_media::region::LINE_BYTES;

/// Part of a log that was durable and is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// Whose log.
    pub shard: u16,
    /// The physical segment; `None` where no segment has the logical number.
    pub segment: Option<u32>,
    /// The logical number.
    pub logical: u32,
    /// Where in the region the damage begins, in bytes.
    pub offset: u64,
    /// Bytes that cannot be read; of whole segments all.
    pub bytes: u64,
    /// What was found, in words.
    pub what: &'static str,
}

impl LogDamage {
    /// One line for a person.
    pub fn text(&self) -> String {
        let LogDamage { shard, logical, offset, bytes, what, .. } = self;
        match self.segment {
            Some(segment) => format!(
                "the log of shard {shard} is damaged at byte {offset} of the region, {bytes} bytes in segment {segment} \
                 (its number {logical}): {what}"
            ),
            None => {
                format!("the log of shard {shard} lacks {bytes} bytes from its number {logical} on: {what}")
            }
        }
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

/// The log of a shard as it was found, up to the first frame that is not whole; behind damage, what is whole again.
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
    /// What was durable and is not there.
    pub damage: Vec<LogDamage>,
    /// The word that notes the end is damaged.
    pub is_mark_damaged: bool,
    /// Where the first frame that is not whole would begin, in the last segment.
    pub end: Option<(u32, u64)>,
}

/// The sequences of parts that do not count: ranges in order, none in another.
#[derive(Clone, Debug, Default)]
pub(crate) struct VoidSeqs {
    ranges: Vec<(Seq, Seq)>,
}

impl VoidSeqs {
    pub fn of(groups: &[FoundGroup]) -> Self {
        let void = groups.iter().filter(|group| group.verdict == Some(Verdict::Void));
        let mut ranges: Vec<_> = void.map(|group| (group.first_seq, group.last_seq)).collect();
        ranges.sort_unstable();
        VoidSeqs { ranges }
    }

    pub fn has(&self, seq: Seq) -> bool {
        let at = self.ranges.partition_point(|(first, _)| *first <= seq);
        at.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, last)| seq <= *last)
    }
}

/// A segment that the table names.
struct Named {
    /// How far behind the log's first one, by its number.
    at: u32,
    logical: u32,
    segment: u32,
    lead: Option<LogLead>,
}

/// Walks the log of `maker`'s shard, which has what is `owned`.
///
/// # Errors
/// `Corrupt`: its first segment is not there. Other damage is in what is found.
pub(crate) fn find(maker: &Maker, owned: &Owned, first_seq: Seq) -> Result<FoundLog> {
    let Maker { memory, layout, store, shard, .. } = maker;
    let line = layout.shard_line(*shard);
    let named = unguarded(memory.load_word(line)).ok_or_else(|| no_log(*shard))? as u32;
    let (has_log, start) = (named != 0, named.max(serial::FIRST));
    let place = |logical: u32| serial::distance(start, logical);
    let marked = LogMark::decode(memory.load_word(line + MARK_AT), *shard);
    let mut found =
        FoundLog { spares: owned.spares.clone(), first_seq, end_seq: first_seq - 1, ..FoundLog::default() };
    found.is_mark_damaged = marked.is_err();
    // An older log's says nothing of this one. While anything is logged it is at most seconds old.
    let mark = marked.ok().flatten().filter(|mark| has_log && serial::is_at_or_after(start, mark.logical));
    let (ahead, behind): (Vec<_>, Vec<_>) =
        owned.log.iter().partition(|(logical, _)| serial::is_at_or_after(start, **logical));
    found.spares.extend(behind.iter().map(|(_, segment)| **segment));
    let mut named: Vec<Named> = ahead
        .into_iter()
        .map(|(&logical, &segment)| {
            let lead = LogLead::decode(&memory.load(layout.segment(segment)), *store, segment);
            let lead = lead.filter(|lead| lead.logical == logical);
            Named { at: place(logical), logical, segment, lead }
        })
        .collect();
    named.sort_unstable_by_key(|own| own.at);
    let marked = mark.map(|mark| place(mark.logical));
    let newest = named.last().map(|last| last.at).max(marked);
    found.next_logical = newest.map_or(start, |newest| serial::after(start, newest + 1));
    if !has_log {
        found.spares.extend(named.drain(..).map(|own| own.segment));
    }
    match named.first() {
        Some(Named { at: 0, lead: Some(lead), .. }) => {
            (found.first_seq, found.end_seq) = (lead.first_seq, lead.first_seq - 1);
        }
        // No log was ever begun: then nothing else was taken either.
        None if !has_log && owned.segments() == 0 => {
            sort_spares(maker, &mut found);
            return Ok(found);
        }
        _ => return Err(no_log(*shard)),
    }
    let goes_on = |own: &&Named| own.lead.is_some_and(|lead| lead.previous_end > 0);
    let proven = named.iter().rfind(goes_on).map(|own| own.at).max(marked).unwrap_or(0);
    let mut finder = Finder { maker, found, mark, start, proven, next: 0, newest: None };
    for (at, own) in named.iter().enumerate() {
        finder.segment(own, named.get(at + 1));
    }
    finder.missing(finder.proven + 1);
    let mut found = finder.found;
    sort_spares(maker, &mut found);
    group(maker, &mut found);
    Ok(found)
}

/// Spare segments are taken by the numbers that they had, the oldest first; those that never had one last.
fn sort_spares(maker: &Maker, found: &mut FoundLog) {
    let next = found.next_logical;
    let turn = |segment: &u32| {
        let word = maker.memory.load_word(maker.layout.table_word(*segment));
        let logical = Entry::decode(word).ok().flatten().map_or(SPARE, |entry| entry.logical);
        (logical == SPARE, Reverse(serial::distance(logical, next)))
    };
    found.spares.sort_by_key(turn);
}

fn no_log(shard: u16) -> Error {
    let message = format!(
        "the first segment of the log of shard {shard} is damaged or missing: restore the region from a copy"
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// A log that is being walked.
struct Finder<'m> {
    maker: &'m Maker,
    found: FoundLog,
    mark: Option<LogMark>,
    /// The number of its first segment, by which the others are counted.
    start: u32,
    /// The last one that must be there.
    proven: u32,
    /// The one that comes next.
    next: u32,
    /// The last sequence so far.
    newest: Option<Seq>,
}

impl Finder<'_> {
    fn segment(&mut self, own: &Named, next: Option<&Named>) {
        let layout = &self.maker.layout;
        let start = layout.segment(own.segment);
        self.missing(own.at.min(self.proven + 1));
        if own.at != self.next {
            return self.found.spares.push(own.segment);
        }
        self.next = own.at + 1;
        match own.lead {
            None if own.at > self.proven => self.found.spares.push(own.segment),
            None => {
                self.damaged(own, start, layout.geometry.segment_bytes, "its first line is not whole");
                self.found.chain.push(own.segment);
            }
            // Recovery has begun it, and was cut off before it was named; sequences were lost with the power since.
            Some(lead) if self.newest.is_some_and(|newest| lead.first_seq <= newest) => {
                self.found.spares.push(own.segment);
            }
            Some(lead) => {
                let is_first = self.newest.is_none();
                let told = next.filter(|next| next.at == own.at + 1).and_then(|next| next.lead);
                let told = told.map_or(0, |lead| u64::from(lead.previous_end));
                let marked = self.mark.filter(|mark| mark.logical == own.logical);
                let claimed = told.max(marked.map_or(0, |mark| u64::from(mark.end)));
                let (frames, holes) = (self.found.frames.len(), self.found.damage.len());
                self.walk(own, lead, claimed);
                if self.found.frames.len() == frames && self.found.damage.len() == holes && !is_first {
                    // Begun, and nothing is in it.
                    self.found.spares.push(own.segment);
                } else {
                    self.found.chain.push(own.segment);
                }
            }
        }
    }

    fn damaged(&mut self, own: &Named, offset: u64, bytes: u64, what: &'static str) {
        let (shard, segment, logical) = (self.maker.shard, Some(own.segment), own.logical);
        let offset = offset + self.maker.memory.base();
        self.found.damage.push(LogDamage { shard, segment, logical, offset, bytes, what });
    }

    /// Numbers before that of `next` that did not come belong to no segment.
    fn missing(&mut self, next: u32) {
        if next <= self.next {
            return;
        }
        let Maker { memory, layout, shard, .. } = self.maker;
        let bytes = u64::from(next - self.next).saturating_mul(layout.geometry.segment_bytes);
        let first = std::mem::replace(&mut self.next, next);
        let (shard, segment, logical) = (*shard, None, serial::after(self.start, first));
        let offset = memory.base() + layout.table_word(0);
        let what = "the allocation table names no segment with it";
        self.found.damage.push(LogDamage { shard, segment, logical, offset, bytes, what });
    }

    /// The frames of one segment, of which what lies before `claimed` was durable.
    fn walk(&mut self, own: &Named, lead: LogLead, claimed: u64) {
        let layout = &self.maker.layout;
        let (start, bytes) = (layout.segment(own.segment), layout.geometry.segment_bytes);
        let mut last = lead.first_seq - 1;
        let mut end = LEAD_BYTES;
        loop {
            while let Some(head) = self.frame(start, end, bytes, lead.life, last) {
                end += u64::from(head.len);
                last = head.last_seq;
            }
            // Where the next segment says that this is the end, nothing is to be looked for.
            let durable = if end == claimed { end } else { claimed.max(self.proven(start, end, lead)) };
            self.found.end = Some((own.segment, end));
            if durable <= end || durable > bytes {
                break;
            }
            let mut at = end;
            let mut hole = end;
            while at < durable {
                let Some(head) = self.frame(start, at, durable, lead.life, last) else {
                    at += LINE_BYTES;
                    continue;
                };
                if at > hole {
                    self.damaged(own, start + hole, at - hole, "frames that were durable are not whole");
                }
                (at, last) = (at + u64::from(head.len), head.last_seq);
                hole = at;
            }
            if durable > hole {
                self.damaged(own, start + hole, durable - hole, "frames that were durable are not whole");
            }
            end = durable;
        }
        self.newest = Some(last.max(self.newest.unwrap_or(0)));
    }

    /// The whole frame at `at` of the segment that begins at `start`, if it ends before `bytes`; it is taken in.
    fn frame(&mut self, start: u64, at: u64, bytes: u64, life: u64, last: Seq) -> Option<FrameHead> {
        let offset = start + at;
        let head = self.whole_frame(offset, bytes.saturating_sub(at), life)?;
        if head.first_seq <= last {
            return None;
        }
        self.found.frames.push(FoundFrame { offset, head });
        Some(head)
    }

    fn whole_frame(&self, offset: u64, room: u64, life: u64) -> Option<FrameHead> {
        let Maker { memory, layout, .. } = self.maker;
        if room < FRAME_BYTES as u64 {
            return None;
        }
        let head = FrameHead::decode(&memory.load(offset))?;
        let len = u64::from(head.len);
        if len > room || head.len as usize > layout.frame_max() {
            return None;
        }
        FrameHead::is_whole(&memory.bytes(offset, head.len as usize), life, offset).map(|_| head)
    }

    /// Up to where whole frames behind `end` prove that everything was durable. Cost: the rest of the segment is read.
    fn proven(&self, start: u64, end: u64, lead: LogLead) -> u64 {
        let Maker { memory, layout, .. } = self.maker;
        let bytes = layout.geometry.segment_bytes;
        let (mut at, mut proven) = (end, 0);
        while at + FRAME_BYTES as u64 <= bytes {
            match self.whole_frame(start + at, bytes - at, lead.life) {
                Some(head) => {
                    proven =
                        proven.max(u64::from(FrameHead::fenced(&memory.load::<FRAME_BYTES>(start + at))));
                    at += u64::from(head.len);
                }
                None => at += LINE_BYTES,
            }
        }
        proven
    }
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
