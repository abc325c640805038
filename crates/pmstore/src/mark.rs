//! Words that stand alone, with their checks: of a shard's line where its log begins, and up to where it was durable.
//!
//! Frames and leads say what was durable before them ([`crate::found`]), but nothing says so of the last ones. So a
//! shard notes the end of its log in one word, a while after the fence, once for all frames that came until then:
//! one fence each [`crate::ShardSettings::mark_every_us`], none a write.
//!
//! Invariant: the mark names an end up to which everything was fenced before the word was stored.
//!
//! Crash: the word is an old one, or the new one; both are true.

use crate::format::MAGIC;
use crate::shard::PmShard;
use tierstone_base::Result;
use tierstone_base::checksum::salt;
use tierstone_media::region::LINE_BYTES;

/// Where in a shard's line the mark is.
pub(crate) const MARK_AT: u64 = 16;
/// Bits of the mark for lines, below its check.
const LINES_BITS: u32 = 19;

/// An end of the log: of a segment with this logical number, at this byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogMark {
    pub logical: u32,
    pub end: u32,
}

impl LogMark {
    pub fn encode(self, shard: u16) -> u64 {
        let body = u64::from(self.logical) | u64::from(self.end / LINE_BYTES as u32) << 32;
        body | Self::check(body, shard) << (32 + LINES_BITS)
    }

    fn check(body: u64, shard: u16) -> u64 {
        salt(body, MAGIC ^ u64::from(shard)) >> (32 + LINES_BITS)
    }

    /// `Ok(None)`: nothing was noted. `Err`: the word is damaged.
    pub fn decode(word: u64, shard: u16) -> std::result::Result<Option<LogMark>, ()> {
        if word == 0 {
            return Ok(None);
        }
        let body = word & ((1 << (32 + LINES_BITS)) - 1);
        let mark = LogMark { logical: body as u32, end: (body >> 32) as u32 * LINE_BYTES as u32 };
        (mark.encode(shard) == word).then_some(Some(mark)).ok_or(())
    }
}

/// Bits of a guarded number.
const GUARDED_BITS: u32 = 48;

/// A number below 2^48 with a check, in one word: where a log begins, the highest expiry shown as past, the opening.
pub(crate) fn guarded(number: u64) -> u64 {
    let number = number.min((1 << GUARDED_BITS) - 1);
    let check = if number == 0 { 0 } else { salt(number, !MAGIC) >> GUARDED_BITS };
    number | check << GUARDED_BITS
}

/// The number. `None`: the word is damaged.
pub(crate) fn unguarded(word: u64) -> Option<u64> {
    let number = word & ((1 << GUARDED_BITS) - 1);
    (guarded(number) == word).then_some(number)
}

/// What of the log is marked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marked {
    mark: Option<LogMark>,
    at_us: u64,
}

impl PmShard {
    fn to_mark(&self) -> Option<LogMark> {
        let early = self.mutations.is_on("mark_before_fence");
        self.log.fenced(early).filter(|mark| self.marked.mark != Some(*mark))
    }

    /// When the end of the log is to be noted.
    pub(crate) fn mark_due_at_us(&self) -> Option<u64> {
        let due = if self.is_shutting { 0 } else { self.marked.at_us + self.settings.mark_every_us };
        self.to_mark().map(|_| due)
    }

    /// Notes the end of the log, when it is time. One barrier then.
    pub(crate) fn mark_step(&mut self) -> Result<()> {
        if self.mark_due_at_us().is_none_or(|due| due > self.now.monotonic_us) {
            return Ok(());
        }
        let Some(mark) = self.to_mark() else { return Ok(()) };
        let crate::blocks::Maker { memory, layout, shard, .. } = &self.maker;
        memory.put_word(layout.shard_line(*shard) + MARK_AT, mark.encode(*shard));
        let noted = memory.barrier("mark_unfenced");
        self.fatal(noted)?;
        // crash here [log-end-noted]: the word is true, whatever comes after it
        self.marked = Marked { mark: Some(mark), at_us: self.now.monotonic_us };
        Ok(())
    }
}

#[cfg(test)]
#[path = "mark_test.rs"]
mod mark_test;
