//! The allocation table: which shard has which physical segment, and as what.
//!
//! A segment changes hands by one word: free (zero), or kind, logical device and logical number with a check. All
//! shards take from and give to the same table.
//!
//! Invariants:
//! 1. A word is changed by whom the segment belongs to; a free one by who exchanges it first.
//! 2. What is in a segment counts when its word is durable; what is prepared in it is durable before. The fence that
//!    makes contents durable makes the word durable too: naming a segment has none of its own.
//! 3. A segment that was given back is taken again when its word durably says so (`released_unfenced`): until then its
//!    old owner would read what others put there.
//!
//! Crash: a word is the old or the new one; `Claimed` is free at the next opening.

use crate::format::{Entry, Layout, SegmentKind};
use crate::memory::PmMemory;
use std::sync::atomic::{AtomicU32, Ordering};
use tierstone_base::Result;

/// The table; all shards share it.
#[derive(Debug)]
pub(crate) struct Space {
    memory: PmMemory,
    layout: Layout,
    free: AtomicU32,
    /// Where the next search begins.
    hint: AtomicU32,
}

impl Space {
    /// Over a table of which `free` words are zero.
    pub fn new(memory: PmMemory, layout: Layout, free: u32) -> Self {
        Space { memory, layout, free: AtomicU32::new(free), hint: AtomicU32::new(0) }
    }

    /// Free segments, about: other shards take and give.
    pub fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes a free segment, if there is one: nobody else gets it; a crash gives it back.
    pub fn claim(&self, device: u16) -> Option<u32> {
        let word = Entry { kind: SegmentKind::Claimed, device, logical: 0 }.encode();
        let start = self.hint.load(Ordering::Relaxed);
        let all = self.layout.segments;
        for step in 0..all {
            let segment = (start + step) % all;
            let place = self.layout.table_word(segment);
            if self.memory.load_word(place) == 0 && self.memory.exchange_word(place, 0, word) {
                self.free.fetch_sub(1, Ordering::Relaxed);
                self.hint.store(segment + 1, Ordering::Relaxed);
                return Some(segment);
            }
        }
        None
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
        self.memory.put_word(self.layout.table_word(segment), 0);
        self.free.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
