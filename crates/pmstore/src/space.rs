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
//!
//! Crash: a word is the old or the new one; `Claimed` is free at the next opening.

use crate::format::{Entry, Layout, SPARE, SegmentKind};
use crate::memory::PmMemory;
use std::sync::atomic::{AtomicU32, Ordering};
use tierstone_base::Result;

/// The table; all shards share it.
#[derive(Debug)]
pub(crate) struct Space {
    memory: PmMemory,
    layout: Layout,
    free: AtomicU32,
    /// The word of a free segment.
    free_word: u64,
    /// Where the next search begins.
    hint: AtomicU32,
    /// Of each shard the segments that it has besides its log's, and how many it may have.
    shares: Box<[Share]>,
}

#[derive(Debug)]
struct Share {
    taken: AtomicU32,
    limit: AtomicU32,
}

impl Space {
    /// Over a table of which `free` words are free; `taken`: segments of each shard besides its log's.
    pub fn new(memory: PmMemory, layout: Layout, free: u32, taken: impl Iterator<Item = u32>) -> Self {
        let share = |taken| Share { taken: AtomicU32::new(taken), limit: AtomicU32::new(u32::MAX) };
        let shares = taken.map(share).collect();
        let (free, free_word) = (AtomicU32::new(free), Entry::free());
        Space { memory, layout, free, free_word, hint: AtomicU32::new(0), shares }
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
        let start = self.hint.load(Ordering::Relaxed);
        let all = self.layout.segments;
        for step in 0..all {
            let segment = (start + step) % all;
            let place = self.layout.table_word(segment);
            let free = self.free_word;
            if self.memory.load_word(place) == free && self.memory.exchange_word(place, free, word) {
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
        self.free.fetch_add(1, Ordering::Relaxed);
        if let Some(taken) = self.taken(device) {
            taken.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
