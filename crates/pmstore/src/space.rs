//! The allocation table: which shard has which physical segment, and as what.
//!
//! A segment changes hands by one word: free, or kind, logical device and logical number with a check. All
//! shards take from and give to the same table.
//!
//! Invariants:
//! 1. A word is changed by whom the segment belongs to; a free one by who exchanges it first.
//! 2. What is in a segment counts when its word is durable; what is prepared in it is durable before. The fence that
//!    makes contents durable makes the word durable too: naming a segment has none of its own.
//! 3. A shard that is [held to a share](Space::limit) takes no segment beyond it.
//! 4. A segment that was given back is taken again when its word durably says so (`released_unfenced`): until then its
//!    old owner would read what others put there.
//! 5. A bit is set only for a segment whose word is free; whoever clears it may change the word, and nobody else.
//!
//! Crash: a word is the old or the new one; `Claimed` is free at the next opening.

use crate::format::{Entry, Layout, SPARE, SegmentKind};
use crate::memory::PmMemory;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tierstone_base::Result;

/// The table; all shards share it.
#[derive(Debug)]
pub(crate) struct Space {
    memory: PmMemory,
    layout: Layout,
    free: AtomicU32,
    /// The word of a free segment.
    free_word: u64,
    /// A bit for every segment that may be claimed. It is set behind the store of the free word, and who clears it sees that.
    bits: Box<[AtomicU64]>,
    /// Where the next search begins.
    hint: AtomicU32,
    /// Of each shard the segments that it has besides its log's, and how many it may have.
    shares: Box<[Share]>,
}

/// Segments that are free, as a walk over the table has found them.
#[derive(Debug, Default)]
pub(crate) struct FreeSegments {
    bits: Vec<u64>,
}

impl FreeSegments {
    pub fn add(&mut self, segment: u32) {
        let at = (segment / 64) as usize;
        if at >= self.bits.len() {
            self.bits.resize(at + 1, 0);
        }
        self.bits[at] |= 1 << (segment % 64);
    }
}

#[derive(Debug)]
struct Share {
    taken: AtomicU32,
    limit: AtomicU32,
}

impl Space {
    /// Over a table of which these segments are free; `taken`: segments of each shard besides its log's.
    pub fn new(
        memory: PmMemory,
        layout: Layout,
        free: FreeSegments,
        taken: impl Iterator<Item = u32>,
    ) -> Self {
        let share = |taken| Share { taken: AtomicU32::new(taken), limit: AtomicU32::new(u32::MAX) };
        let shares = taken.map(share).collect();
        let count = free.bits.iter().map(|bits| bits.count_ones()).sum();
        let mut bits = free.bits;
        bits.resize(layout.segments.div_ceil(64) as usize, 0);
        let bits = bits.into_iter().map(AtomicU64::new).collect();
        let (free, free_word) = (AtomicU32::new(count), Entry::free());
        Space { memory, layout, free, free_word, bits, hint: AtomicU32::new(0), shares }
    }

    /// Free segments that `device` may take, about: other shards take and give.
    pub fn free_for(&self, device: u16) -> u32 {
        let free = self.free.load(Ordering::Relaxed);
        let share = self.shares.get(usize::from(device));
        share.map_or(free, |share| {
            let (taken, limit) = (share.taken.load(Ordering::Relaxed), share.limit.load(Ordering::Relaxed));
            free.min(limit.saturating_sub(taken))
        })
    }

    /// Holds `device` to its share of the segments from now on, or to none. What it has beyond it stays.
    pub fn limit(&self, device: u16, to_its_share: bool) {
        let share = (self.layout.storage_bytes() / self.layout.geometry.segment_bytes) as u32;
        if let Some(mine) = self.shares.get(usize::from(device)) {
            mine.limit.store(if to_its_share { share } else { u32::MAX }, Ordering::Relaxed);
        }
    }

    fn taken(&self, device: u16) -> Option<&AtomicU32> {
        self.shares.get(usize::from(device)).map(|share| &share.taken)
    }

    /// Takes a free segment, if there is one for `device`: nobody else gets it; a crash gives it back.
    pub fn claim(&self, device: u16) -> Option<u32> {
        if self.free_for(device) == 0 {
            return None;
        }
        let word = Entry { kind: SegmentKind::Claimed, device, logical: 0 }.encode();
        while let Some(segment) = self.take_bit(self.hint.load(Ordering::Relaxed)) {
            // It is free, by invariant 5; a word that is not stays as it is.
            if self.memory.exchange_word(self.layout.table_word(segment), self.free_word, word) {
                self.free.fetch_sub(1, Ordering::Relaxed);
                if let Some(taken) = self.taken(device) {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
                self.hint.store(segment + 1, Ordering::Relaxed);
                return Some(segment);
            }
        }
        None
    }

    /// Clears the first bit from `from` on, round to it again. Cost: a load for each 64 segments passed.
    fn take_bit(&self, from: u32) -> Option<u32> {
        let (all, from) = (self.bits.len(), from % self.layout.segments.max(1));
        for step in 0..=all {
            let at = ((from / 64) as usize + step) % all.max(1);
            let word = self.bits.get(at)?;
            // Those before `from` come last.
            let looked_at = if step == 0 { u64::MAX << (from % 64) } else { u64::MAX };
            loop {
                let found = (word.load(Ordering::Relaxed) & looked_at).trailing_zeros();
                if found == u64::BITS {
                    break;
                }
                let bit = 1 << found;
                if word.fetch_and(!bit, Ordering::Acquire) & bit != 0 {
                    return Some(at as u32 * 64 + found);
                }
            }
        }
        None
    }

    /// Segments of each shard's log.
    pub fn log_segments(&self) -> u16 {
        self.layout.geometry.log_segments
    }

    /// Takes a free segment for the log of `device`, which is none of its share. A crash leaves it free, or the log's.
    pub fn claim_for_log(&self, device: u16) -> Option<u32> {
        let segment = self.claim(device)?;
        if let Some(taken) = self.taken(device) {
            taken.fetch_sub(1, Ordering::Relaxed);
        }
        self.name(segment, Entry { kind: SegmentKind::Log, device, logical: SPARE });
        Some(segment)
    }

    /// Says what a segment is; durable after the next fence.
    pub fn name(&self, segment: u32, entry: Entry) {
        self.memory.put_word(self.layout.table_word(segment), entry.encode());
    }

    /// Gives a segment back of `device`. One barrier: it is claimed, which the next opening takes for free, until that is
    /// durable; only then do others see it free.
    pub fn release(&self, segment: u32, device: u16) -> Result<()> {
        self.name(segment, Entry { kind: SegmentKind::Claimed, device, logical: 0 });
        self.memory.barrier("released_unfenced")?;
        self.memory.put_word(self.layout.table_word(segment), self.free_word);
        if let Some(word) = self.bits.get((segment / 64) as usize) {
            word.fetch_or(1 << (segment % 64), Ordering::Release);
        }
        self.free.fetch_add(1, Ordering::Relaxed);
        if let Some(taken) = self.taken(device) {
            taken.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
