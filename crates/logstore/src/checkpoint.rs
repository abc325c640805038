//! Checkpoints of the index, so that a restart reads some nine bytes a key instead of all summaries.
//!
//! The index changes while it is dumped. Each chunk of a dump is exact for its positions and says as of
//! which sequence; recovery replays, for each position, the records of the log that are younger
//! ([`load`], [`replay`]). Nothing of the log is ever needed for a checkpoint to be right but its
//! records after the sequence at which the checkpoint began.
//!
//! Rules, each with a mutation that breaks it:
//! 1. The block that commits is written when all pieces are durable and so is every record that a chunk
//!    may point to (`checkpoint_before_flush`).
//! 2. Cleaning may change what a checkpoint says, so it waits until the checkpoint is durably void;
//!    recovery besides looks for every segment that the checkpoint names (`stale_checkpoint`). A
//!    segment in which nothing lived when the checkpoint began is not named by it and may be freed.
//! 3. A checkpoint is replayed before anything is served (`tail_not_replayed`).
//! 4. What commits belongs to the same life of the segments as the pieces
//!    (`checkpoint_of_any_generation`).
//! 5. No footer is on its way when a checkpoint begins, and of each log that it tells all of the last summary is verified
//!    ([`seals`]): an opening with a checkpoint does not read the others (`checkpoint_beside_seals`, `last_seals_unread`).
//!
//! Where a region of persistent memory has room ([`crate::redo::snapshots`]) a checkpoint lies there, takes no
//! segment, and is void after one fence; another one lies in segments. Both follow the same rules.
//!
//! Who owns what: the segments of the checkpoint in force and of the one being written are the shard's
//! (`Role::Checkpoint`), not free, until their free headers are durable.
//!
//! Crash: a checkpoint without its commit is void, and so is one that anything is wrong with; the
//! summaries give the same index. Between the commit of a checkpoint and the end of the one before,
//! both are there; the younger counts.

pub(crate) mod find;
pub(crate) mod load;
pub(crate) mod replay;
mod seals;
mod write;

use crate::redo::snapshots::Area;
use crate::segments::Role;
use crate::shard::LogShard;
use tierstone_base::{Error, Seq};
use write::Writing;

/// Where the pieces of a checkpoint lie.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In these segments, in order.
    Flash(Vec<u32>),
    /// In an area of the region.
    Region(Area),
}

impl Place {
    /// Its segments.
    pub fn segments(&self) -> &[u32] {
        match self {
            Place::Flash(segments) => segments,
            Place::Region(_) => &[],
        }
    }
}

/// The checkpoints of a shard.
#[derive(Debug, Default)]
pub struct Checkpointer {
    in_force: Option<InForce>,
    writing: Option<Writing>,
    /// First segments of checkpoints that are void as soon as these segments' free headers are durable.
    voiding: Vec<u32>,
    /// Checkpoints begun in this opening.
    number: u64,
    tail: Tail,
    /// The newest sequence that a step has seen, and since when it is the newest.
    seen: Option<Seq>,
    quiet_since_us: u64,
    /// After an attempt that came to nothing, when to try again.
    not_before_us: u64,
    /// The last one, at the end of the shard, is written or not worth it.
    ended: bool,
    /// Areas of the region, if it has any for this shard.
    areas: Vec<Area>,
    /// A checkpoint that was expected to have so many bytes did not fit an area.
    too_long: Option<u64>,
    /// Bytes of chunks made.
    dumped_bytes: u64,
}

/// A checkpoint that recovery would load.
#[derive(Debug)]
pub(crate) struct InForce {
    /// Where it lies.
    pub place: Place,
    /// Segments, with their lives, in which nothing lived when it began, in order.
    pub dead: Vec<(u32, u64)>,
}

/// What came after the checkpoint in force, or altogether when there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tail {
    /// Records that recovery found.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of this opening's records, those up to this sequence do not count,
    pub from_seq: Seq,
    /// nor so many of their bytes.
    pub from_bytes: u64,
}

/// After an attempt that came to nothing, the next one waits this long, in microseconds.
const RETRY_US: u64 = 1_000_000;

impl Checkpointer {
    /// At the end of recovery: the checkpoint that was loaded, and what was found after it.
    pub(crate) fn recovered(&mut self, in_force: Option<InForce>, tail: Tail) {
        (self.in_force, self.tail) = (in_force, tail);
    }

    /// From now on checkpoints may lie in these areas of the region.
    pub(crate) fn set_areas(&mut self, areas: Vec<Area>) {
        self.areas = areas;
    }

    /// The area for the next checkpoint, if one of so many bytes may fit.
    fn free_area(&self, bytes: u64) -> Option<Area> {
        let is_free = |area: &&Area| match &self.in_force {
            Some(InForce { place: Place::Region(taken), .. }) => taken != *area,
            _ => true,
        };
        let area = self.areas.iter().find(is_free)?;
        let is_short = self.too_long.is_some_and(|too_long| bytes >= too_long);
        (bytes <= area.bytes() && !is_short).then(|| area.clone())
    }

    /// Whether segments are taken for checkpoints that could be had for records.
    pub fn takes_space(&self) -> bool {
        let in_force = self.in_force.as_ref().map(|checkpoint| &checkpoint.place);
        let places = in_force.into_iter().chain(self.writing.as_ref().map(Writing::place));
        places.into_iter().any(|place| matches!(place, Place::Flash(_)))
    }

    /// Whether freeing `segment`, in its life `generation`, would make a checkpoint wrong.
    pub fn protects(&self, segment: u32, generation: u64) -> bool {
        // In the order of their numbers, both.
        let is_told = |dead: &[(u32, u64)]| dead.binary_search(&(segment, generation)).is_ok();
        self.in_force.as_ref().is_some_and(|checkpoint| !is_told(&checkpoint.dead))
            || self.writing.as_ref().is_some_and(|writing| !is_told(writing.dead()))
            || !self.voiding.is_empty()
    }

    /// A free header is durable.
    pub fn freed(&mut self, segment: u32) {
        self.voiding.retain(|&first| first != segment);
    }

    /// None is begun before this time.
    pub fn give_way(&mut self, until_us: u64) {
        self.not_before_us = self.not_before_us.max(until_us);
    }

    /// Whether there is one: being written, in force, or not durably void.
    pub fn are_under_way(&self) -> bool {
        self.writing.is_some() || self.in_force.is_some() || !self.voiding.is_empty()
    }

    /// Whether one is being written.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }
}

impl LogShard {
    /// Begins a checkpoint when it is worth it, and goes on with the one under way.
    pub(crate) fn checkpoint_step(&mut self) {
        if self.checkpoints.seen != Some(self.applied) {
            self.checkpoints.seen = Some(self.applied);
            self.checkpoints.quiet_since_us = self.now.monotonic_us;
        }
        if self.checkpoints.is_writing() {
            self.write_checkpoint();
            return;
        }
        let due = if self.shutting {
            self.is_last_checkpoint_due()
        } else {
            self.next_checkpoint_us().is_some_and(|at| at <= self.now.monotonic_us)
        };
        // The footer that is written last brings the step that begins it.
        if !due || self.waits_for_footers() {
            return;
        }
        let worth = !self.shutting || self.is_tail_worth_saving();
        if !(worth && self.begin_checkpoint()) {
            self.checkpoints.ended = self.shutting;
            self.checkpoints.not_before_us = self.now.monotonic_us + RETRY_US;
        }
    }

    /// Bytes of index that steps have put into checkpoints since the shard was opened.
    pub fn checkpoint_work(&self) -> u64 {
        self.checkpoints.dumped_bytes
    }

    /// Whether the shard, which is being closed, has its last checkpoint or needs none.
    pub(crate) fn has_last_checkpoint(&self) -> bool {
        let needs_none = self.failed.is_some() || self.is_retired_blocked();
        needs_none || (self.checkpoints.ended && !self.checkpoints.is_writing())
    }

    /// Whether a footer is on its way, beside which no checkpoint begins.
    fn waits_for_footers(&self) -> bool {
        let is_sealing = self.hot.is_sealing() || self.cold.is_sealing();
        is_sealing && !self.identity.mutations.is_on("checkpoint_beside_seals")
    }

    /// When a step should begin a checkpoint or go on with one, if nothing else happens.
    pub(crate) fn next_checkpoint_us(&self) -> Option<u64> {
        if let Some(writing) = &self.checkpoints.writing {
            return writing.wants_step().then_some(self.now.monotonic_us);
        }
        if self.waits_for_footers() {
            return None;
        }
        if self.shutting {
            return self.is_last_checkpoint_due().then_some(self.now.monotonic_us);
        }
        if !self.is_tail_worth_saving() {
            return None;
        }
        let idle_us = self.settings.checkpoint_idle_ms * 1_000;
        let wanted = if self.is_tail_long() { 0 } else { self.checkpoints.quiet_since_us + idle_us };
        Some(wanted.max(self.checkpoints.not_before_us).max(self.loading_until_us()))
    }

    fn is_last_checkpoint_due(&self) -> bool {
        let is_calm = self.hot.is_idle() && self.cold.is_idle() && !self.forbids_checkpoints();
        !self.checkpoints.ended && is_calm
    }

    /// Records since the last checkpoint.
    fn tail_records(&self) -> u64 {
        let tail = &self.checkpoints.tail;
        tail.records + self.applied.saturating_sub(tail.from_seq)
    }

    fn is_tail_worth_saving(&self) -> bool {
        let records = self.tail_records();
        records >= self.settings.checkpoint_tail_records_min.max(1) && records > self.key_count() / 100
    }

    fn is_tail_long(&self) -> bool {
        let tail = &self.checkpoints.tail;
        let bytes = tail.bytes + self.hot.record_bytes.saturating_sub(tail.from_bytes);
        let factor = u64::from(self.settings.checkpoint_tail_per_index);
        let wanted = self.keyspaces.memory_bytes() * factor;
        let long = self.settings.checkpoint_tail_records_long / u64::from(self.identity.shard_count.max(1));
        bytes >= wanted.max(self.settings.checkpoint_tail_bytes_min) && self.tail_records() >= long
    }

    pub(crate) fn key_count(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.index.len()).sum()
    }

    /// Whether `segment` may be cleaned now. Where that would make a checkpoint wrong, makes it void
    /// first: in a region at once, on flash in some steps.
    pub(crate) fn make_way(&mut self, segment: u32) -> bool {
        let generation = self.segments.get(segment).generation;
        if !self.checkpoints.protects(segment, generation)
            || self.identity.mutations.is_on("stale_checkpoint")
        {
            return true;
        }
        self.drop_checkpoints();
        self.failed.is_none() && !self.checkpoints.protects(segment, generation)
    }

    /// Gives up the checkpoint being written, makes the one in force void, and frees their segments.
    pub(crate) fn drop_checkpoints(&mut self) {
        if let Some(writing) = &mut self.checkpoints.writing {
            writing.give_up();
        }
        if let Some(checkpoint) = self.checkpoints.in_force.take() {
            self.make_void(&checkpoint.place, true);
            self.checkpoints.tail = Tail {
                records: self.key_count(),
                bytes: 0,
                from_seq: self.applied,
                from_bytes: self.hot.record_bytes,
            };
        }
    }

    /// Ends a checkpoint: in a region durably, now; on flash its segments become free. `guarded`: until then nothing
    /// is done that makes it wrong.
    fn make_void(&mut self, place: &Place, guarded: bool) {
        match place {
            Place::Flash(segments) => {
                if guarded {
                    self.checkpoints.voiding.extend(segments.first());
                }
                self.free_checkpoint(segments);
            }
            Place::Region(area) => {
                if let Err(error) = area.make_void() {
                    self.checkpoint_failed(error);
                }
            }
        }
    }

    /// The region failed: what counts in it is unknown, so the shard goes no further.
    fn checkpoint_failed(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    fn free_checkpoint(&mut self, segments: &[u32]) {
        for &segment in segments {
            debug_assert_eq!(self.segments.get(segment).role, Role::Checkpoint);
            self.write_free_header(segment);
        }
    }

    /// What a drop of a keyspace with so many keys changes: nothing that is written or in force speaks of it any more, and
    /// until there is another checkpoint an opening reads all that there is and was.
    pub(crate) fn forget_keyspace(&mut self, keys: u64) {
        if let Some(writing) = &mut self.checkpoints.writing {
            writing.give_up();
        }
        self.checkpoints.tail.records = self.checkpoints.tail.records.max(self.key_count() + keys);
    }
}
