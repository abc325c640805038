//! The redo log of one shard: groups kept in slots until flash has them.

use super::RedoMemory;
use super::format::{Layout, SLOT_HEADER_BYTES, SLOT_PAST, SlotHeader};
use tierstone_base::{Error, Result};

/// Which rules of the redo log a test breaks on purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct BrokenRedo {
    pub answered_before_fence: bool,
    pub past_not_kept: bool,
    pub gap_answered: bool,
    pub closed_unfenced: bool,
    pub truncated_early: bool,
    pub not_truncated: bool,
    pub truncated_unfenced: bool,
    pub parts_decided_by_region: bool,
    pub part_counted_early: bool,
}

impl BrokenRedo {
    /// Those among `mutations`.
    pub fn of(mutations: &tierstone_crash::Mutations) -> BrokenRedo {
        BrokenRedo {
            answered_before_fence: mutations.is_on("redo_answered_before_fence"),
            past_not_kept: mutations.is_on("redo_past_not_kept"),
            gap_answered: mutations.is_on("redo_gap_answered"),
            closed_unfenced: mutations.is_on("redo_closed_unfenced"),
            truncated_early: mutations.is_on("redo_truncated_early"),
            not_truncated: mutations.is_on("redo_not_truncated"),
            truncated_unfenced: mutations.is_on("redo_truncated_unfenced"),
            parts_decided_by_region: mutations.is_on("redo_parts_decided_by_region"),
            part_counted_early: mutations.is_on("redo_part_counted_early"),
        }
    }
}

/// A slot that holds a group.
#[derive(Clone, Copy, Debug)]
struct Held {
    group: u64,
    past_ms: u64,
}

/// The redo log of one shard.
#[derive(Debug)]
pub(crate) struct RedoLog {
    memory: RedoMemory,
    layout: Layout,
    shard: u16,
    store: u64,
    held: Vec<Option<Held>>,
    is_unfenced: bool,
    failed: Option<Error>,
    pub broken: BrokenRedo,
    /// Bytes stored so far.
    pub bytes_written: u64,
    /// Fences so far.
    pub fences: u64,
    /// Groups that found no slot.
    pub groups_without_slot: u64,
}

impl RedoLog {
    /// The part of `shard` in a region that has been divided for this opening.
    pub fn new(memory: RedoMemory, layout: Layout, shard: u16, store: u64, broken: BrokenRedo) -> RedoLog {
        RedoLog {
            memory,
            layout,
            shard,
            store,
            held: vec![None; layout.slots as usize],
            is_unfenced: false,
            failed: None,
            broken,
            bytes_written: 0,
            fences: 0,
            groups_without_slot: 0,
        }
    }

    /// Bytes of a group's buffer that a slot takes.
    pub fn image_bytes(&self) -> usize {
        self.layout.image_bytes()
    }

    /// Whether a group would find a slot.
    pub fn has_free_slot(&self) -> bool {
        self.failed.is_none() && self.held.iter().any(Option::is_none)
    }

    /// Why the region gives no durability any more.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    fn place(&self, slot: usize) -> u64 {
        self.layout.slot(self.shard, slot as u32)
    }

    /// Takes a slot for a group; `None` when there is none.
    pub fn begin(&mut self, header: &SlotHeader) -> Option<usize> {
        if self.failed.is_some() {
            return None;
        }
        let slot = self.held.iter().position(Option::is_none)?;
        let place = self.place(slot);
        let bytes = header.encode(self.store);
        self.memory.region.store_streaming(place, &bytes);
        self.memory.region.store_streaming(place + SLOT_PAST, &header.past_ms.to_le_bytes());
        self.held[slot] = Some(Held { group: header.group, past_ms: header.past_ms });
        self.bytes_written += bytes.len() as u64 + 8;
        self.is_unfenced = true;
        Some(slot)
    }

    /// Keeps `bytes` of a group's buffer, from `at` on, in its slot.
    pub fn keep(&mut self, slot: usize, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.image_bytes(), "a group is no longer than its slot");
        let place = self.place(slot) + (SLOT_HEADER_BYTES + at) as u64;
        self.memory.region.store_streaming(place, bytes);
        self.bytes_written += bytes.len() as u64;
        self.is_unfenced = true;
    }

    /// Keeps the highest expiry that was shown as past.
    pub fn keep_past(&mut self, slot: usize, past_ms: u64) {
        let place = self.place(slot) + SLOT_PAST;
        if let Some(held) = &mut self.held[slot]
            && held.past_ms < past_ms
            && !self.broken.past_not_kept
        {
            held.past_ms = past_ms;
            self.memory.region.store_word(place, past_ms);
            self.memory.region.write_back(place, 8);
            self.is_unfenced = true;
        }
    }

    /// Makes what was kept durable. One barrier if there is anything.
    ///
    /// # Errors
    /// When the region failed, now or before.
    pub fn fence(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !self.is_unfenced || self.broken.answered_before_fence {
            return Ok(());
        }
        let fenced = self.memory.region.fence();
        self.fenced(fenced)
    }

    fn fenced(&mut self, result: Result<()>) -> Result<()> {
        self.fences += 1;
        self.is_unfenced = false;
        if let Err(error) = &result {
            self.failed = Some(error.clone().context("the redo log's region failed"));
        }
        result
    }

    /// Groups below this number are durable on flash: their slots are free. One barrier.
    pub fn release(&mut self, durable_groups: u64) {
        if self.failed.is_some() {
            return;
        }
        if !self.broken.not_truncated {
            let (region, place) = (&*self.memory.region, self.layout.area(self.shard));
            region.store_word(place, durable_groups);
            region.write_back(place, 8);
            let fenced = if self.broken.truncated_unfenced { Ok(()) } else { region.fence() };
            // The failure stays, and stops the shard.
            _ = self.fenced(fenced);
            self.is_unfenced |= self.broken.truncated_unfenced;
        }
        for held in &mut self.held {
            if held.is_some_and(|held| held.group < durable_groups) {
                *held = None;
            }
        }
    }
}
