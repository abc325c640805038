//! One shard: the state machine behind [`tierstone_engine::Engine`].
//!
//! Who owns what: the shard owns its index, log, blocks and segments; of the allocation table its own words. It does
//! no input or output but loads, stores and fences of the region.
//!
//! Invariants:
//! 1. The index has exactly one entry for each live key: the place of its newest record, in a storage block.
//! 2. A record is in the log, as part of a frame, before [`PmShard::commit`] makes it durable; in its block it is
//!    written back before the log is truncated behind it.
//! 3. What a write has replaced counts on, for the cleaner and for overflow blocks, until the write is decided:
//!    a crash may still bring it back.
//! 4. After a fence that failed nothing becomes durable any more (`failed`).

use crate::blocks::{Blocks, Maker};
use crate::format::{Extent, FLAG_KEY_OUT, Overflow, RecordHead, payload_checksum, record_is_whole};
use crate::graves::Graves;
use crate::index::KeyMode;
use crate::keys::Keys;
use crate::log::Log;
use crate::mark::{guarded, unguarded};
use crate::overflow::OverflowBlocks;
use crate::parts::Parts;
use crate::serial;
use crate::settings::ShardSettings;
use crate::write::Shape;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Position, Result, Seq, Token};
use tierstone_crash::Mutations;
use tierstone_engine::cost::Meter;
use tierstone_engine::{Durability, EngineStatistics, Event, IndexKind, Key, RangeRequest, ScanRequest};

/// A record that a decided write will have replaced.
#[derive(Debug)]
pub(crate) struct Death {
    /// The write's sequence.
    pub seq: Seq,
    pub place: u64,
    pub len: u32,
    /// Of its long value.
    pub long_bytes: u64,
    pub is_overflow: bool,
    /// A snapshot showed it when it was replaced.
    pub is_kept: bool,
}

/// A record in a block, and what it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub place: u64,
    pub head: RecordHead,
}

/// Questions that the next step answers.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub fetched: Vec<(Token, Result<()>)>,
    pub scans: Vec<ScanRequest>,
    pub ranges: Vec<RangeRequest>,
    pub ready: Vec<Event>,
}

impl Asked {
    pub fn is_empty(&self) -> bool {
        self.fetched.is_empty() && self.scans.is_empty() && self.ranges.is_empty() && self.ready.is_empty()
    }
}

/// The highest expiry that was shown as past.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    pub shown_ms: u64,
    pub is_dirty: bool,
}

/// One shard of a store in persistent memory.
#[derive(Debug)]
pub struct PmShard {
    pub(crate) maker: Maker,
    pub(crate) settings: ShardSettings,
    pub(crate) mutations: Mutations,
    pub(crate) keyspaces: BTreeMap<KeyspaceId, Keys>,
    pub(crate) dropped: BTreeSet<KeyspaceId>,
    /// Dropped ones that were written to since.
    pub(crate) reborn: Vec<KeyspaceId>,
    /// Keyspaces that were dropped, whose records have not been given up.
    pub(crate) sweeping: Vec<(KeyspaceId, Keys, Position)>,
    /// The same, that a snapshot shows.
    pub(crate) retained: Vec<crate::dropped::Retained>,
    pub(crate) snapshots: crate::snapshots::Snapshots,
    pub(crate) backups: crate::backup::Backups,
    pub(crate) verifier: crate::verify::Verifier,
    pub(crate) scrubber: crate::scrub::Scrubber,
    /// The longest record that was ever met, with its key and value.
    pub(crate) longest_bytes: u64,
    pub(crate) blocks: Blocks,
    pub(crate) overflow: OverflowBlocks,
    pub(crate) emptied: crate::emptying::Emptied,
    pub(crate) long_emptying: crate::long_emptying::LongEmptying,
    /// Room for the long values of a part that was admitted, kept for it until the next step.
    pub(crate) admitted: Vec<Option<Overflow>>,
    pub(crate) log: Log,
    pub(crate) graves: Graves,
    pub(crate) checkpoints: crate::checkpoint::Checkpoints,
    pub(crate) recount: crate::recount::Recount,
    pub(crate) deaths: VecDeque<Death>,
    /// Overflow blocks of records that count no more, by sequence, and that the log still names.
    pub(crate) freeing: Vec<(Seq, Vec<Extent>)>,
    pub(crate) parts: Parts,
    pub(crate) marked: crate::mark::Marked,
    pub(crate) applied: Seq,
    pub(crate) durable: Seq,
    pub(crate) past: Past,
    pub(crate) sweeper: crate::expired::Sweeper,
    pub(crate) evictor: crate::evict::Evictor,
    /// When the first write came that is not durable.
    pub(crate) open_since_us: Option<u64>,
    pub(crate) wants_flush: bool,
    /// A write was refused for want of space that cleaning may give.
    pub(crate) wants_space: bool,
    /// The log is to be truncated, for overflow blocks that it names.
    pub(crate) wants_truncation: bool,
    /// A batch was refused that finds room in the log when it is truncated.
    pub(crate) wants_log: bool,
    /// Cleaning found a block in the last step.
    pub(crate) is_cleaning: bool,
    pub(crate) pace: crate::pace::Pace,
    pub(crate) failed: Option<Error>,
    pub(crate) is_shutting: bool,
    pub(crate) has_ended: bool,
    pub(crate) now: Now,
    pub(crate) frame: Vec<u8>,
    /// Memory for the shapes of a batch.
    pub(crate) shapes: Vec<Shape>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) asked: Asked,
    pub(crate) meter: Meter,
    pub(crate) counts: EngineStatistics,
    pub(crate) corrupt_reads: Cell<u64>,
    pub(crate) memory: crate::memory_use::MemoryUse,
}

fn bytes_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len)).sum()
}

/// Where in a shard's line the highest expiry shown as past is.
pub(crate) const PAST_AT: u64 = 8;
/// In `relaxed`, a fence comes after this long: half of the stated bound.
const RELAXED_INTERVAL_US: u64 = Durability::RELAXED_BOUND_MS * 500;
/// So much is read of a record whose length is not known: mostly all of it, at once.
const RECORD_GUESS_BYTES: u64 = 256;

impl PmShard {
    /// A shard that knows of nothing yet.
    pub(crate) fn empty(maker: Maker, settings: ShardSettings, mutations: Mutations, log: Log) -> Self {
        let past = maker.memory.load_word(maker.layout.shard_line(maker.shard) + PAST_AT);
        let shown_ms = unguarded(past).unwrap_or(0);
        PmShard {
            blocks: Blocks::new(maker.clone()),
            graves: Graves::new(maker.layout.shard_bytes()),
            overflow: OverflowBlocks::new(maker.clone()),
            emptied: Default::default(),
            long_emptying: Default::default(),
            admitted: Vec::new(),
            maker,
            settings,
            mutations,
            keyspaces: BTreeMap::new(),
            dropped: BTreeSet::new(),
            reborn: Vec::new(),
            sweeping: Vec::new(),
            retained: Vec::new(),
            snapshots: crate::snapshots::Snapshots::default(),
            backups: crate::backup::Backups::default(),
            verifier: crate::verify::Verifier::default(),
            scrubber: crate::scrub::Scrubber::default(),
            longest_bytes: 0,
            log,
            checkpoints: Default::default(),
            recount: Default::default(),
            deaths: VecDeque::new(),
            freeing: Vec::new(),
            parts: Parts::default(),
            marked: Default::default(),
            applied: 0,
            durable: 0,
            past: Past { shown_ms, is_dirty: false },
            sweeper: crate::expired::Sweeper::default(),
            evictor: crate::evict::Evictor::default(),
            open_since_us: None,
            wants_flush: false,
            wants_space: false,
            wants_truncation: false,
            wants_log: false,
            is_cleaning: false,
            pace: Default::default(),
            failed: None,
            is_shutting: false,
            has_ended: false,
            now: Now::default(),
            frame: Vec::new(),
            shapes: Vec::new(),
            scratch: Vec::new(),
            asked: Asked::default(),
            meter: Meter::default(),
            counts: EngineStatistics::default(),
            corrupt_reads: Cell::new(0),
            memory: crate::memory_use::MemoryUse::default(),
        }
    }

    /// An empty index.
    pub(crate) fn new_keys(&self, kind: IndexKind) -> Keys {
        let mode = if self.settings.partial_keys { KeyMode::Partial } else { KeyMode::Whole };
        Keys::new(self.maker.memory.clone(), kind, mode)
    }

    /// Which shard it is.
    pub fn shard(&self) -> tierstone_base::ShardId {
        self.maker.shard
    }

    /// Whether batches over several shards have parts here of which something remains to be known.
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// What durable bytes survive, as the region tells.
    pub fn guarantee(&self) -> tierstone_media::Guarantee {
        self.maker.memory.guarantee()
    }

    /// Takes in the time; by the wall clock it is not before what was shown as past.
    pub(crate) fn see(&mut self, now: Now) {
        self.now = self.now.max(now);
        self.now.wall_ms = self.now.wall_ms.max(self.past.shown_ms);
    }

    /// Nothing becomes durable any more.
    pub(crate) fn fail(&mut self, error: &Error) {
        if self.failed.is_none() {
            self.failed = Some(error.clone());
            self.parts.abandon();
        }
    }

    /// Passes an error on that the shard does not survive.
    pub(crate) fn fatal<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    /// The whole record at `place`, verified, in place where the region allows it.
    pub(crate) fn record(&self, place: u64) -> Result<(RecordHead, Cow<'_, [u8]>)> {
        let Maker { memory, layout, .. } = &self.maker;
        let room = layout.block(layout.block_of(place) + 1) - place;
        let guess = room.min(RECORD_GUESS_BYTES) as usize;
        let bytes = memory.bytes(place, guess);
        if let (Some(head), Some(life)) = (RecordHead::decode(&bytes, room), self.blocks.life_at(place)) {
            let len = head.len as usize;
            let bytes = match bytes {
                _ if len > guess => memory.bytes(place, len),
                Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..len]),
                Cow::Owned(mut bytes) => {
                    bytes.truncate(len);
                    Cow::Owned(bytes)
                }
            };
            if record_is_whole(&bytes, life, place) {
                return Ok((head, bytes));
            }
        }
        Err(self.damaged(&format!("the record at {place} in persistent memory")))
    }

    /// Counts and words an error of stored bytes.
    pub(crate) fn damaged(&self, what: &str) -> Error {
        self.corrupt_reads.set(self.corrupt_reads.get() + 1);
        Error::new(ErrorKind::Corrupt, format!("{what} is damaged: restore what it held from a copy"))
    }

    /// What of a record lies in overflow blocks, verified: value, or key and value.
    pub(crate) fn payload(&self, head: &RecordHead, record: &[u8]) -> Result<Cow<'_, [u8]>> {
        let Maker { memory, .. } = &self.maker;
        let overflow = head.overflow(record);
        let sum = overflow.as_ref().map_or(0, |overflow| overflow.checksum);
        let extents = overflow.map_or_else(Vec::new, |overflow| overflow.extents);
        let total: u64 = extents.iter().map(|extent| u64::from(extent.len)).sum();
        let fits = extents.iter().all(|extent| extent.offset + u64::from(extent.len) <= memory.len());
        if !fits || total != head.payload_len() as u64 {
            return Err(self.damaged("the place of a long value"));
        }
        let payload = match extents.as_slice() {
            [only] => memory.bytes(only.offset, only.len as usize),
            several => {
                let mut bytes = Vec::with_capacity(total as usize);
                for extent in several {
                    bytes.extend_from_slice(&memory.bytes(extent.offset, extent.len as usize));
                }
                Cow::Owned(bytes)
            }
        };
        match payload_checksum(head.seq, &payload) == sum {
            true => Ok(payload),
            false => Err(self.damaged("a long value in persistent memory")),
        }
    }

    /// The key of a whole record.
    pub(crate) fn key_of<'r>(&'r self, head: &RecordHead, record: &'r [u8]) -> Result<Cow<'r, [u8]>> {
        if head.flags & FLAG_KEY_OUT == 0 {
            return Ok(Cow::Borrowed(head.body(record).0));
        }
        let key_len = usize::from(head.key_len);
        Ok(match self.payload(head, record)? {
            Cow::Borrowed(payload) => Cow::Borrowed(&payload[..key_len]),
            Cow::Owned(mut payload) => {
                payload.truncate(key_len);
                Cow::Owned(payload)
            }
        })
    }

    /// The newest record of a key.
    ///
    /// # Errors
    /// `Corrupt`: a record of its position is damaged.
    pub(crate) fn find(&self, key: &Key<'_>) -> Result<Option<Found>> {
        let Some(keys) = self.keyspaces.get(&key.keyspace) else { return Ok(None) };
        self.find_in(keys, key)
    }

    pub(crate) fn find_in(&self, keys: &Keys, key: &Key<'_>) -> Result<Option<Found>> {
        let mut found = None;
        keys.get(key.position, |place| {
            let (head, record) = self.record(place)?;
            let is_it = *self.key_of(&head, &record)? == *key.bytes;
            if is_it {
                found = Some(Found { place, head });
            }
            Ok(is_it)
        })?;
        Ok(found)
    }

    /// Whether what expires at `expiry_ms` is gone, 0 being never. That it is so counts as shown.
    pub(crate) fn is_past(&mut self, expiry_ms: u64, wall_ms: u64) -> bool {
        if expiry_ms == 0 || expiry_ms > wall_ms.max(self.past.shown_ms) {
            return false;
        }
        self.show_past(expiry_ms);
        true
    }

    /// Notes that an expiry is shown as past. What answers wait for is not durable before this is.
    pub(crate) fn show_past(&mut self, expiry_ms: u64) {
        if expiry_ms <= self.past.shown_ms {
            return;
        }
        self.past = Past { shown_ms: expiry_ms, is_dirty: !self.mutations.is_on("past_not_kept") };
        if self.durable == self.applied && self.past.is_dirty {
            self.applied += 1;
        }
        self.note_open();
    }

    /// Something waits for a fence.
    pub(crate) fn note_open(&mut self) {
        self.open_since_us.get_or_insert(self.now.monotonic_us);
    }

    fn is_dirty(&self) -> bool {
        self.durable < self.applied || self.past.is_dirty
    }

    /// When what waits for a fence gets it.
    pub(crate) fn due_at_us(&self) -> Option<u64> {
        if self.failed.is_some() || !self.is_dirty() {
            return None;
        }
        let since_us = self.open_since_us.unwrap_or(0);
        Some(match self.settings.durability {
            _ if self.wants_flush || self.is_shutting => 0,
            Durability::Sync => 0,
            Durability::Group { interval_ms } => since_us + u64::from(interval_ms) * 1_000,
            Durability::Relaxed => since_us + RELAXED_INTERVAL_US,
        })
    }

    /// One fence: everything applied is durable.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let Maker { memory, layout, shard, .. } = &self.maker;
        if self.past.is_dirty {
            let place = layout.shard_line(*shard) + PAST_AT;
            memory.store_word(place, guarded(self.past.shown_ms));
            memory.write_back(place, 8);
        }
        if !self.mutations.is_on("answered_before_fence") {
            let fenced = memory.fence();
            self.fatal(fenced)?;
        }
        self.counts.redo_fences += 1;
        self.blocks.fenced();
        self.log.note_fenced();
        self.past.is_dirty = false;
        self.durable = self.applied;
        (self.open_since_us, self.wants_flush) = (None, false);
        self.parts.note_durable(self.durable);
        Ok(())
    }

    /// What is decided by now.
    pub(crate) fn decided(&self) -> Seq {
        self.parts.decided(self.durable)
    }

    /// Marks parts whose batches are decided. One barrier if there are any.
    fn mark_parts(&mut self) -> Result<()> {
        let due: Vec<_> = self.parts.to_mark().collect();
        if !due.is_empty() {
            for place in &due {
                let word = crate::format::Verdict::Decided.word(place.checksum);
                self.maker.memory.store_word(place.verdict, word);
                if !self.mutations.is_on("marked_before_durable") {
                    self.maker.memory.write_back(place.verdict, 8);
                }
            }
            self.maker.memory.fence()?;
            let verdicts: Vec<u64> = due.iter().map(|place| place.verdict).collect();
            self.parts.marked(&verdicts);
        }
        self.parts.settle(self.durable);
        Ok(())
    }

    /// What decided writes have replaced counts no more.
    pub(crate) fn bury(&mut self) -> Result<()> {
        let decided = match self.mutations.is_on("replaced_before_decided") {
            true => Seq::MAX,
            false => self.decided(),
        };
        while let Some(death) = self.deaths.pop_front_if(|death| death.seq <= decided) {
            self.blocks.let_go(death.place);
            self.evictor.dying_bytes -= u64::from(death.len);
            self.evictor.dying_long_bytes -= death.long_bytes;
            self.snapshots.buried = death.seq;
            if death.is_kept
                && !self.snapshots.has_left(death.place)
                && !self.mutations.is_on("kept_given_up")
            {
                continue;
            }
            self.give_up(death.place, death.len, death.is_overflow)?;
        }
        Ok(())
    }

    /// A record counts no more, whatever a crash takes. Its overflow blocks stay while the log may be replayed that
    /// names them: replay must know whose key a record has to see that it is not the newest. Those of a damaged record, which
    /// nobody knows, stay until the next opening.
    pub(crate) fn give_up(&mut self, place: u64, len: u32, is_overflow: bool) -> Result<()> {
        self.blocks.kill(place, len);
        if !is_overflow {
            return Ok(());
        }
        let (head, extents) = match self.record(place) {
            Ok((head, record)) => {
                (head, head.overflow(&record).map_or_else(Vec::new, |overflow| overflow.extents))
            }
            Err(_) => return Ok(()),
        };
        let is_early = head.seq < self.log.first_seq() && self.mutations.is_on("freed_before_life_ends");
        if is_early || self.mutations.is_on("overflow_freed_at_once") {
            return self.overflow.free(&extents);
        }
        // Not at once where the log names them no more either: the block that does may be a victim that lives still.
        self.free_later(head.seq, extents);
        Ok(())
    }

    /// Frees overflow blocks that the log names no more.
    fn free_overflow(&mut self) -> Result<()> {
        let first = self.log.first_seq();
        for at in (0..self.freeing.len()).rev() {
            if self.freeing[at].0 < first {
                let (_, extents) = self.freeing.swap_remove(at);
                self.evictor.freeing_bytes -= bytes_of(&extents);
                self.overflow.free(&extents)?;
            }
        }
        Ok(())
    }

    /// One step.
    pub(crate) fn step_inner(&mut self, now: Now, events: &mut Vec<Event>) {
        let (began, first) = (self.meter.read(), events.len());
        self.see(now);
        if self.failed.is_none() {
            let worked = self.work();
            // What is damaged is told by reads; a fence that failed ends everything.
            if let Err(error) = worked
                && error.kind() == ErrorKind::DeviceFailed
            {
                self.fail(&error);
            }
        }
        let rested = self.meter.read();
        self.answer(events);
        self.meter.step([began, began, rested], &mut events[first..]);
    }

    fn work(&mut self) -> Result<()> {
        self.pace.step(self.blocks.appended());
        self.sweep_expired()?;
        let is_due = self.due_at_us().is_some_and(|due| due <= self.now.monotonic_us);
        if is_due || self.blocks.is_writing_back() {
            self.commit()?;
        }
        self.mark_step()?;
        self.mark_parts()?;
        self.bury()?;
        self.backup_step();
        self.verify_step();
        self.scrub_step();
        self.snapshot_step()?;
        self.sweep_dropped()?;
        self.clean_step()?;
        self.recount_step()?;
        self.checkpoint_step()?;
        self.truncate_step()?;
        self.end_step()
    }

    /// Writes back what keeps the log long, and truncates it.
    fn truncate_step(&mut self) -> Result<()> {
        self.free_overflow()?;
        let wants_all = self.is_shutting && !self.has_ended;
        let is_forced = self.wants_truncation && !self.freeing.is_empty();
        if is_forced && self.log.can_begin() && self.parts.is_empty() && self.durable == self.applied {
            let life = self.blocks.new_life();
            self.log.begin_segment(life, self.applied + 1, self.blocks.appended())?;
        }
        self.wants_truncation = is_forced;
        self.wants_log &= self.log.segments.len() > 1;
        if !self.log.is_long() && !wants_all && !is_forced && !self.wants_log {
            return Ok(());
        }
        let skipped = usize::from(!wants_all);
        let Some(until) = self.log.segments.iter().rev().nth(skipped).map(|last| last.appended) else {
            return Ok(());
        };
        let ignores = self.mutations.is_on("truncated_before_write_back");
        if self.blocks.persisted() < until && !ignores {
            let step = self.pace.write_back_bytes(self.settings.write_back_step_bytes);
            self.blocks.write_back(until, if wants_all || is_forced { u64::MAX } else { step });
        }
        let (persisted, needed, durable) = (self.blocks.persisted(), self.parts.needed_from(), self.durable);
        let goes = |segment: &&crate::log::LogSegment| {
            (segment.appended <= persisted || ignores)
                && segment.last_seq <= durable
                && needed.is_none_or(|needed| !serial::is_at_or_after(needed, segment.logical))
        };
        let count = self.log.segments.len();
        let last =
            self.log.segments.iter().take(count - 1).take_while(goes).last().map(|segment| segment.logical);
        if let Some(last) = last {
            self.log.truncate(serial::next(last))?;
            self.free_overflow()?;
        }
        Ok(())
    }

    /// The end in good order: a log without frames is begun, behind everything that is in blocks.
    fn end_step(&mut self) -> Result<()> {
        if !self.is_shutting || self.has_ended || self.is_dirty() || !self.asked.is_empty() {
            return Ok(());
        }
        if self.parts.waits(self.durable) || self.parts.needed_from().is_some() {
            // The next opening decides them.
            self.has_ended = true;
            return Ok(());
        }
        if self.blocks.persisted() < self.blocks.appended() || self.checkpoint_holds_end() {
            return Ok(());
        }
        if self.log.bytes() > 0 {
            let life = self.blocks.new_life();
            self.log.begin_segment(life, self.applied + 1, self.blocks.appended())?;
            let logical = self.log.segments.back().map_or(0, |last| last.logical);
            self.log.truncate(logical)?;
        }
        self.has_ended = true;
        Ok(())
    }
}
