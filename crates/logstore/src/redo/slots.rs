//! The redo log of one shard: groups kept in slots until flash has them.
//!
//! What is stored says how far what was stored before it had been fenced, so that [`super::found`] can tell damage
//! from a tear:
//! - the first record after a fence lies in its slot as a **claim** ([`turn_claim`]): the slot was fenced up to it;
//! - a slot's header names the newest group before it that has a slot, and where that ended;
//! - the mark in the shard's line ([`super::line`]) names the newest group, with its second fence, again after each
//!   [`MARK_BYTES`], and when a group has lain here for [`MARK_QUIET_US`] without another fence.
//!
//! All but the last ride with stores that are fenced anyway. None is needed for recovery after a loss of power.

use super::RedoMemory;
use super::format::{Fenced, Layout, SLOT_HEADER_BYTES, SLOT_PAST, SlotHeader};
use super::line::{guarded, past_salt, put_mark, put_watermark};
use crate::format::group;
use crate::format::record;
use crate::location::UNIT_BYTES;
use crate::shard::{ShardIdentity, log_id};
use tierstone_base::{Error, Result};

/// The checksum of a record that is a claim lies in its slot with these bits turned.
const CLAIM: u64 = 0x5bd1_e995_9d3c_a7f1;
/// The mark follows the newest group at such distances.
const MARK_BYTES: usize = 4096;
/// What was fenced last, and lies here so long without company, is marked with a fence of its own. A device that takes
/// groups when they are due has them by then.
const MARK_QUIET_US: u64 = 1_000_000;

/// Makes a record a claim, or a claim a record.
pub(super) fn turn_claim(record: &mut [u8]) {
    if let Some(sum) = record.first_chunk_mut() {
        *sum = (u64::from_le_bytes(*sum) ^ CLAIM).to_le_bytes();
    }
}

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
    pub claimed_early: bool,
    pub marked_early: bool,
    pub mark_unfenced: bool,
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
            claimed_early: mutations.is_on("redo_claimed_early"),
            marked_early: mutations.is_on("redo_marked_early"),
            mark_unfenced: mutations.is_on("redo_mark_unfenced"),
        }
    }
}

/// A slot that holds a group.
#[derive(Clone, Copy, Debug)]
struct Held {
    group: u64,
    past_ms: u64,
}

impl Held {
    fn past_word(&self, log_id: u64) -> u64 {
        guarded(self.past_ms, past_salt(log_id, self.group))
    }
}

/// The redo log of one shard.
#[derive(Debug)]
pub(crate) struct RedoLog {
    memory: RedoMemory,
    layout: Layout,
    shard: u16,
    log_id: u64,
    store: u64,
    held: Vec<Option<Held>>,
    is_unfenced: bool,
    /// The end of what was stored of the newest group that has a slot, and of what was fenced of one.
    stored: Option<Fenced>,
    fenced: Option<Fenced>,
    /// The newest group with a slot that was closed, with its end.
    closed: Option<Fenced>,
    mark: Option<Fenced>,
    /// What was found fenced last, and since when.
    quiet: Option<(Fenced, u64)>,
    failed: Option<Error>,
    pub broken: BrokenRedo,
    /// Bytes stored so far.
    pub bytes_written: u64,
    /// Fences so far.
    pub fences: u64,
    /// Groups that found no slot.
    pub groups_without_slot: u64,
    /// Bytes that the opening found damaged, their loss being accepted; the first shard tells of all.
    pub lost_bytes: u64,
}

impl RedoLog {
    /// The part of `shard` in a region that has been divided for this opening.
    pub fn new(memory: RedoMemory, layout: Layout, identity: &ShardIdentity) -> RedoLog {
        RedoLog {
            memory,
            layout,
            shard: identity.shard,
            log_id: log_id(identity.open_count, identity.shard, false),
            store: identity.store,
            held: vec![None; layout.slots as usize],
            is_unfenced: false,
            stored: None,
            fenced: None,
            closed: None,
            mark: None,
            quiet: None,
            failed: None,
            broken: BrokenRedo::of(&identity.mutations),
            bytes_written: 0,
            fences: 0,
            groups_without_slot: 0,
            lost_bytes: 0,
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
        let bytes = SlotHeader { before: self.closed, ..*header }.encode(self.store);
        self.memory.region.store_streaming(place, &bytes);
        let held = Held { group: header.group, past_ms: header.past_ms };
        let past = held.past_word(self.log_id);
        self.memory.region.store_streaming(place + SLOT_PAST, &past.to_le_bytes());
        self.held[slot] = Some(held);
        self.stored = Some(Fenced { group: header.group, end: header.header as usize + group::HEADER_BYTES });
        self.bytes_written += bytes.len() as u64 + 8;
        self.is_unfenced = true;
        Some(slot)
    }

    /// Keeps the header of a segment that stands before the group in a slot.
    pub fn keep_segment_header(&mut self, slot: usize, bytes: &[u8]) {
        let place = self.place(slot) + SLOT_HEADER_BYTES as u64;
        self.memory.region.store_streaming(place, bytes);
        self.bytes_written += bytes.len() as u64;
        self.is_unfenced = true;
    }

    /// Keeps records of a group's buffer, from `at` on, in its slot. They are as before when it returns.
    pub fn keep(&mut self, slot: usize, at: usize, records: &mut [u8]) {
        debug_assert!(at + records.len() <= self.image_bytes(), "a group is no longer than its slot");
        let Some(Held { group, .. }) = self.held[slot] else { return };
        let place = self.place(slot) + (SLOT_HEADER_BYTES + at) as u64;
        let (before, after) = (Fenced { group, end: at }, Fenced { group, end: at + records.len() });
        let is_fenced = self.fenced == Some(before) && !self.is_unfenced;
        let claim = self.claim_in(is_fenced, records);
        claim.and_then(|claim| records.get_mut(claim..)).map(turn_claim);
        self.memory.region.store_streaming(place, records);
        claim.and_then(|claim| records.get_mut(claim..)).map(turn_claim);
        if self.broken.marked_early {
            self.put_mark(after);
        } else if is_fenced && self.wants_mark(before) {
            self.put_mark(before);
        }
        self.stored = Some(after);
        self.bytes_written += records.len() as u64;
        self.is_unfenced = true;
    }

    /// Where among the records a claim lies: the first one is, if everything before it was fenced.
    fn claim_in(&self, is_fenced: bool, records: &[u8]) -> Option<usize> {
        match self.broken.claimed_early {
            true => record::decode_header(records).map(|first| first.units() * UNIT_BYTES),
            false => is_fenced.then_some(0),
        }
    }

    fn wants_mark(&self, fenced: Fenced) -> bool {
        self.mark.is_none_or(|mark| mark.group != fenced.group || fenced.end >= mark.end + MARK_BYTES)
    }

    fn put_mark(&mut self, mark: Fenced) {
        put_mark(&*self.memory.region, self.layout.area(self.shard), self.log_id, Some(mark));
        self.mark = Some(mark);
        self.is_unfenced = true;
    }

    /// What was fenced last, if it lies here still and the mark does not name it.
    fn unmarked(&self) -> Option<Fenced> {
        let fenced = self.fenced.filter(|fenced| self.mark != Some(*fenced) && self.failed.is_none())?;
        self.held.iter().flatten().any(|held| held.group == fenced.group).then_some(fenced)
    }

    /// When what was fenced last is to be marked.
    pub fn mark_due_us(&self) -> Option<u64> {
        let (quiet, since_us) = self.quiet?;
        self.unmarked().filter(|unmarked| *unmarked == quiet).map(|_| since_us + MARK_QUIET_US)
    }

    /// Marks what has lain here long enough without company. One barrier then.
    pub fn mark_step(&mut self, now_us: u64) {
        let Some(fenced) = self.unmarked() else { return };
        match self.quiet {
            Some((quiet, since_us)) if quiet == fenced && !self.is_unfenced => {
                if now_us >= since_us + MARK_QUIET_US {
                    self.put_mark(fenced);
                    let result = if self.broken.mark_unfenced { Ok(()) } else { self.memory.region.fence() };
                    // crash here [redo-marked]: the mark is true, whatever comes after it
                    // The failure stays, and stops the shard.
                    _ = self.fenced(result);
                    self.is_unfenced |= self.broken.mark_unfenced;
                }
            }
            _ => self.quiet = Some((fenced, now_us)),
        }
    }

    /// The group is closed; it has this slot.
    pub fn closed(&mut self, group: u64) {
        self.closed = self.stored.filter(|stored| stored.group == group).or(self.closed);
    }

    /// Keeps the highest expiry that was shown as past.
    pub fn keep_past(&mut self, slot: usize, past_ms: u64) {
        let place = self.place(slot) + SLOT_PAST;
        if let Some(held) = &mut self.held[slot]
            && held.past_ms < past_ms
            && !self.broken.past_not_kept
        {
            held.past_ms = past_ms;
            self.memory.region.store_word(place, held.past_word(self.log_id));
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
        match &result {
            Ok(()) => self.fenced = self.stored,
            Err(error) => self.failed = Some(error.clone().context("the redo log's region failed")),
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
            put_watermark(region, place, self.log_id, durable_groups);
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
