//! Checkpoints of the index: what an opening would else find by reading all records.
//!
//! A checkpoint names blocks that were full when it began (they are **listed**), with their lives; of every key whose
//! record lies in one of them, position and place; and tombstones there that may be needed. It lies in free blocks of
//! the shard, a chain of pages ([`page`]), and the shard's line names the first one. An opening takes in what of listed
//! blocks has the same life still, and reads the others as ever ([`crate::recovery`]).
//!
//! It is made beside the traffic, some records a step, in this order:
//! 1. Blocks are listed.
//! 2. The indexes are walked; each record is verified. What lies in a block that is not listed is left out: it will be
//!    found there.
//! 3. Tombstones of listed blocks are looked for.
//! 4. When all that was written until then is decided and durable in blocks, the line names the pages.
//!
//! Invariants:
//! 1. Of each key, the newest record (or the tombstone that is needed) is in the checkpoint or in a block that is not
//!    listed, or whose life has ended: the walk comes after the list.
//! 2. A record that the walk leaves out because of a newer one stays replaced: the newer one is decided before the
//!    checkpoint is named.
//! 3. A listed block is not appended to. Openings append to any block with room, so a checkpoint is in force only if the
//!    opening before took it in: the line says which opening did last, and one that finds it unfit takes it back.
//! 4. The line names another page before it names the opening (`page_unfenced`), in one word where a checkpoint is in
//!    force. Pages of one that the line may still name are used again: the checksum of a page covers its whole block.
//! 5. What the shard needs comes first: where blocks are wanted, the checkpoint is given up.
//!
//! Old records in listed blocks are not in it: they are counted afterwards ([`crate::recount`]).
//!
//! Crash: the line names the old checkpoint, the new one, or none; pages of none are free blocks.

pub(crate) mod page;

use self::page::{Item, Kind, PageWriter, Totals};
use crate::blocks::{Block, Maker, Role};
use crate::format::{LEAD_BYTES, RECORD_BYTES};
use crate::mark::guarded;
use crate::shard::PmShard;
use tierstone_base::{KeyspaceId, Position, Result, Seq};
use tierstone_media::region::LINE_BYTES;

/// Where in a shard's line it is said which opening took the checkpoint in, or made it.
pub(crate) const OPENING_AT: u64 = 24;
/// Where its first page is named, by the number of its block and one.
pub(crate) const PAGE_AT: u64 = 32;

/// Records that a step walks, and at the end in good order.
const WALKED: usize = 64;
const WALKED_AT_END: usize = 4_096;
/// Blocks that a step lists.
const LISTED: u32 = 4_096;
/// Blocks that a step looks at for tombstones; it ends with the first that has some.
const LOOKED_AT: u32 = 4_096;
/// Free blocks that a checkpoint leaves to the others.
const KEPT_BLOCKS: u64 = 6;
/// After it was given up, none is begun for so long, in microseconds.
const GIVEN_UP_US: u64 = 60_000_000;
/// What a key costs, in nanoseconds, about: 210 to 500 were measured, of records of 128 and 1,000 bytes.
const KEY_NS: u64 = 300;
/// What a block costs that a step looks at, in the same way.
const BLOCK_NS: u64 = 5;
/// So much of the live bytes is written before the next one, as a divisor.
const CHANGED_PART: u64 = 16;

/// How far a checkpoint has come.
#[derive(Debug)]
enum Phase {
    /// The next block to be listed.
    List(u32),
    /// The next position of this keyspace, or of the one behind it.
    Walk(KeyspaceId, Position),
    /// The next block.
    Tombs(u32),
    /// All is written; it waits until this sequence is decided, and so much of blocks durable.
    Wait(Seq, u64),
}

/// A checkpoint that is being made.
#[derive(Debug)]
struct Work {
    phase: Phase,
    writer: PageWriter,
    /// The clock of changes when it began.
    changes: u64,
    totals: Totals,
    /// What its last step took of the processor, about, in nanoseconds.
    step_ns: u64,
}

/// The checkpoints of a shard.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// Blocks with the pages of the one in force.
    pages: Vec<u32>,
    work: Option<Box<Work>>,
    serial: u32,
    /// None is begun before.
    rests_until_us: u64,
    /// The next step of the one that is being made.
    due_us: u64,
    /// The clock of changes when the one in force began; `None`: there is none, or it tells little.
    changes: Option<u64>,
    /// Free blocks that cleaning should provide, and how many of them by now.
    pub wanted_blocks: u32,
    reserved_blocks: u32,
    was_tried_at_end: bool,
}

impl Checkpoints {
    /// Recovery took one in, whose pages lie there.
    pub fn adopt(&mut self, pages: Vec<u32>) {
        self.pages = pages;
    }

    /// It told so many keys, and so many records were read besides: where these are few, it is as good as new.
    pub fn note_loaded(&mut self, loaded: u64, read: u64) {
        self.changes = (loaded / CHANGED_PART > read).then_some(0);
    }

    /// When a step would do something.
    pub fn due_at_us(&self) -> Option<u64> {
        let goes_on = self.work.as_ref().is_some_and(|work| !matches!(work.phase, Phase::Wait(..)));
        (goes_on || self.wanted_blocks > 0).then_some(self.due_us)
    }

    pub fn is_busy(&self) -> bool {
        self.work.is_some() || self.wanted_blocks > 0
    }

    /// Blocks that hold pages.
    pub fn block_count(&self) -> u64 {
        (self.pages.len() + self.work.as_ref().map_or(0, |work| work.writer.pages.len())) as u64
    }
}

impl PmShard {
    fn changes(&self) -> u64 {
        self.blocks.appended() + self.counts.cleaned_bytes_written
    }

    /// Goes on with a checkpoint, or begins one. Cost: some records are read, a page is written now and then; two
    /// barriers at the end.
    pub(crate) fn checkpoint_step(&mut self) -> Result<()> {
        if self.checkpoint_rests() {
            return Ok(());
        }
        match self.checkpoints.work.take() {
            Some(work) => self.checkpoint_on(work),
            None => {
                self.begin_checkpoint();
                Ok(())
            }
        }
    }

    /// Whether the next step is not to come yet.
    fn checkpoint_rests(&self) -> bool {
        let is_early = self.checkpoints.due_at_us().is_some_and(|due| due > self.now.monotonic_us);
        is_early && !self.is_shutting
    }

    fn rest_after_step(&mut self, step_ns: u64) {
        let rest_ns = step_ns.saturating_mul(u64::from(self.settings.checkpoint_step_rest));
        self.checkpoints.due_us = self.now.monotonic_us.saturating_add(rest_ns / 1_000);
    }

    /// Free blocks that cleaning should provide for the next checkpoint by now: one more after each rest, whatever writes
    /// take meanwhile.
    pub(crate) fn checkpoint_reserve(&mut self) -> u64 {
        let Checkpoints { wanted_blocks, reserved_blocks, .. } = self.checkpoints;
        if reserved_blocks < wanted_blocks && !self.checkpoint_rests() {
            self.checkpoints.reserved_blocks += 1;
            let records = self.maker.layout.geometry.block_bytes / RECORD_BYTES as u64;
            self.rest_after_step(records * KEY_NS / 4);
        }
        u64::from(self.checkpoints.reserved_blocks.min(wanted_blocks))
    }

    /// Whether the end in good order waits for a checkpoint.
    pub(crate) fn checkpoint_holds_end(&mut self) -> bool {
        if !self.checkpoints.was_tried_at_end && self.checkpoints.work.is_none() {
            self.checkpoints.was_tried_at_end = true;
            self.checkpoints.rests_until_us = 0;
            self.begin_checkpoint();
        }
        self.checkpoints.is_busy()
    }

    /// Whether one is worth its while.
    fn is_checkpoint_due(&self) -> bool {
        let settings = &self.settings;
        let in_use = self.blocks.table.len() as u64 * self.maker.layout.geometry.block_bytes;
        let changed = self.changes() - self.checkpoints.changes.unwrap_or(0);
        let is_changed = match self.checkpoints.changes {
            None => true,
            Some(_) if self.is_shutting => changed > 0,
            Some(_) => changed > 0 && changed >= self.blocks.live_bytes() / CHANGED_PART,
        };
        in_use > 0
            && in_use >= settings.checkpoint_bytes_min
            && is_changed
            && self.now.monotonic_us >= self.checkpoints.rests_until_us
    }

    fn begin_checkpoint(&mut self) {
        self.checkpoints.wanted_blocks = 0;
        if !self.is_checkpoint_due() {
            return;
        }
        let (layout, keys) = (&self.maker.layout, self.keyspaces.values().map(crate::keys::Keys::len).sum());
        let keyspaces = self.keyspaces.len() as u64;
        let wanted = page::pages_for(layout, self.blocks.table.len() as u64, keys, keyspaces);
        let bytes =
            wanted * layout.geometry.block_bytes + self.blocks.live_bytes() + self.overflow.taken_bytes();
        if bytes as f64 > self.settings.checkpoint_fill_max * layout.storage_bytes() as f64 {
            self.rest(GIVEN_UP_US);
            return;
        }
        if self.blocks.available() < wanted + KEPT_BLOCKS {
            // Cleaning may give them.
            match !self.is_shutting && self.blocks.has_victim(self.least_gain()) {
                true => self.checkpoints.wanted_blocks = (wanted + KEPT_BLOCKS) as u32,
                false => self.rest(GIVEN_UP_US),
            }
            return;
        }
        self.checkpoints.serial += 1;
        let Maker { layout, opening, store, shard, .. } = &self.maker;
        let id = page::id(*store, *shard, *opening, self.checkpoints.serial);
        let phase = match self.mutations.is_on("walked_before_listed") {
            true => Phase::Walk(KeyspaceId(0), Position(0)),
            false => Phase::List(0),
        };
        self.checkpoints.work = Some(Box::new(Work {
            phase,
            writer: PageWriter::new(id, layout.geometry.block_bytes),
            changes: self.changes(),
            totals: Totals::default(),
            step_ns: 0,
        }));
        (self.checkpoints.due_us, self.checkpoints.reserved_blocks) = (0, 0);
    }

    /// Cleaning found nothing for a checkpoint.
    pub(crate) fn note_no_victim(&mut self) {
        if self.checkpoints.wanted_blocks > 0 {
            self.checkpoints.wanted_blocks = 0;
            self.rest(GIVEN_UP_US);
        }
    }

    fn rest(&mut self, for_us: u64) {
        self.checkpoints.reserved_blocks = 0;
        self.checkpoints.rests_until_us = self.now.monotonic_us.saturating_add(for_us);
    }

    fn checkpoint_on(&mut self, mut work: Box<Work>) -> Result<()> {
        let goes_on = match work.phase {
            Phase::List(from) => self.list(&mut work, from)?,
            Phase::Walk(keyspace, from) => self.walk(&mut work, keyspace, from)?,
            Phase::Tombs(from) => self.list_tombstones(&mut work, from)?,
            Phase::Wait(decided, appended) => return self.await_name(work, decided, appended),
        };
        if !goes_on {
            self.abandon(&work);
            return Ok(());
        }
        self.rest_after_step(work.step_ns);
        self.checkpoints.work = Some(work);
        Ok(())
    }

    /// Puts an item on a page; false: there is no room.
    fn put_item(&mut self, work: &mut Work, kind: Kind, keyspace: KeyspaceId, item: Item) -> Result<bool> {
        if !work.writer.fits(kind, keyspace) && !self.next_page(work, kind, keyspace)? {
            return Ok(false);
        }
        work.writer.put(item);
        Ok(true)
    }

    fn next_page(&mut self, work: &mut Work, kind: Kind, keyspace: KeyspaceId) -> Result<bool> {
        if self.blocks.available() < KEPT_BLOCKS {
            return Ok(false);
        }
        let Some(block) = self.blocks.lend()? else { return Ok(false) };
        work.writer.turn(&self.maker, block, kind, keyspace);
        Ok(true)
    }

    fn list(&mut self, work: &mut Work, from: u32) -> Result<bool> {
        let serial = self.checkpoints.serial;
        let to = from
            .saturating_add(LISTED)
            .min(self.maker.layout.segments * self.maker.layout.blocks_per_segment());
        for number in from..to {
            let Some(block) = self.blocks.table.get_mut(number) else { continue };
            if block.role != Role::Full || block.is_half_moved {
                continue;
            }
            block.listed = serial;
            let item = Item(u64::from(number) | u64::from(block.end) << 32, block.life);
            work.totals.blocks += 1;
            if !self.put_item(work, Kind::Blocks, KeyspaceId(0), item)? {
                return Ok(false);
            }
        }
        let is_done = from == to;
        work.step_ns = u64::from(to - from) * BLOCK_NS;
        work.phase = match (is_done, self.mutations.is_on("walked_before_listed")) {
            (false, _) => Phase::List(to),
            (true, false) => Phase::Walk(KeyspaceId(0), Position(0)),
            (true, true) => Phase::Tombs(0),
        };
        Ok(true)
    }

    /// The block of a listed place.
    fn listed_block(&self, place: u64) -> Option<&Block> {
        let block = self.blocks.table.get(self.maker.layout.block_of(place))?;
        let is_early = self.mutations.is_on("walked_before_listed");
        (block.listed == self.checkpoints.serial || is_early && block.role == Role::Full).then_some(block)
    }

    fn walk(&mut self, work: &mut Work, keyspace: KeyspaceId, from: Position) -> Result<bool> {
        let Some((&id, keys)) = self.keyspaces.range(keyspace..).next() else {
            work.phase = match self.mutations.is_on("walked_before_listed") {
                true => Phase::List(0),
                false => Phase::Tombs(0),
            };
            return Ok(true);
        };
        let from = if id == keyspace { from } else { Position(0) };
        let count = if self.is_shutting { WALKED_AT_END } else { WALKED };
        let mut places = Vec::with_capacity(count + 64);
        let next = keys.scan(from, count, |place| places.push(place));
        places.retain(|&place| self.listed_block(place).is_some());
        places.iter().for_each(|&place| self.maker.memory.prefetch(place, 4 * RECORD_BYTES as u64));
        work.step_ns = count as u64 * BLOCK_NS + places.len() as u64 * KEY_NS;
        for place in places {
            let Ok((head, _)) = self.record(place) else {
                // What is damaged is for an opening that reads it.
                return Ok(false);
            };
            work.totals.keys += 1;
            work.totals.longest_bytes = work.totals.longest_bytes.max(head.bytes());
            if !self.put_item(work, Kind::Keys, id, Item::record(place, &head))? {
                return Ok(false);
            }
        }
        work.phase = match next {
            Some(next) => Phase::Walk(id, next),
            None if id.0 == u32::MAX => Phase::Tombs(0),
            None => Phase::Walk(KeyspaceId(id.0 + 1), Position(0)),
        };
        Ok(true)
    }

    /// The tombstones in a block that may be needed. `None`: something is damaged.
    fn tombstones_in(&self, number: u32) -> Option<Vec<Item>> {
        let mut tombstones = Vec::new();
        let Some(block) = self.blocks.table.get(number) else { return Some(tombstones) };
        let (start, mut at) = (self.maker.layout.block(number), LEAD_BYTES as u32);
        while at < block.end {
            let place = start + u64::from(at);
            let (head, _) = self.record(place).ok()?;
            if head.is_tombstone() && block.is_valid(at) {
                tombstones.push(Item::record(place, &head));
            }
            at += head.len;
        }
        Some(tombstones)
    }

    fn list_tombstones(&mut self, work: &mut Work, from: u32) -> Result<bool> {
        let end = self.maker.layout.segments * self.maker.layout.blocks_per_segment();
        let (until, serial) = (end.min(from.saturating_add(LOOKED_AT)), self.checkpoints.serial);
        let mut found = Vec::new();
        let has_some = |block: &Block| block.listed == serial && block.has_tombstones;
        let next = (from..until).find(|&number| self.blocks.table.get(number).is_some_and(has_some));
        if let Some(number) = next {
            let Some(tombstones) = self.tombstones_in(number) else { return Ok(false) };
            found = tombstones;
        }
        if self.mutations.is_on("tombstones_unlisted") {
            found.clear();
        }
        work.totals.tombstones += found.len() as u64;
        for item in found {
            if !self.put_item(work, Kind::Tombstones, KeyspaceId(0), item)? {
                return Ok(false);
            }
        }
        let read_bytes = next.map_or(0, |_| self.maker.layout.geometry.block_bytes);
        work.step_ns = u64::from(until - from) * BLOCK_NS + read_bytes / RECORD_BYTES as u64 * KEY_NS / 4;
        let next = next.map_or(until, |number| number + 1);
        work.phase = Phase::Tombs(next);
        if next < end {
            return Ok(true);
        }
        work.totals.applied = self.applied;
        for item in work.totals.items() {
            if !self.put_item(work, Kind::End, KeyspaceId(0), item)? {
                return Ok(false);
            }
        }
        work.writer.finish(&self.maker);
        work.phase = Phase::Wait(self.applied, self.blocks.appended());
        Ok(true)
    }

    /// Names the checkpoint when what it relies on is durable.
    fn await_name(&mut self, work: Box<Work>, decided: Seq, appended: u64) -> Result<()> {
        if !self.mutations.is_on("named_before_decided") {
            if self.blocks.persisted() < appended {
                self.blocks.write_back(appended, self.settings.write_back_step_bytes);
            }
            if self.decided() < decided || self.blocks.persisted() < appended {
                self.checkpoints.work = Some(work);
                return Ok(());
            }
            self.blocks.persist_cleaned()?;
        }
        let line = self.maker.layout.shard_line(self.maker.shard);
        let Some(&first) = work.writer.pages.first() else { return Ok(()) };
        let memory = &self.maker.memory;
        memory.put_word(line + PAGE_AT, guarded(u64::from(first) + 1));
        memory.barrier("page_unfenced")?;
        // crash here [checkpoint-named]: where one was in force the new one is, and the pages of the old one are free;
        // where none was none is yet. No barrier: a checkpoint may be lost.
        memory.put_word(line + OPENING_AT, guarded(self.maker.opening));
        for old in std::mem::replace(&mut self.checkpoints.pages, work.writer.pages) {
            self.blocks.take_back(old);
        }
        self.checkpoints.changes = Some(work.changes);
        let page_bytes = self.maker.layout.geometry.block_bytes - LINE_BYTES;
        self.counts.checkpoint_region_bytes_written += self.checkpoints.pages.len() as u64 * page_bytes;
        let took_us = work.totals.keys * KEY_NS / 1_000;
        self.rest(took_us.saturating_mul(u64::from(self.settings.checkpoint_rest)));
        Ok(())
    }

    /// Gives up what is being made, of which something does not hold any more. The one in force stays.
    pub(crate) fn abandon_checkpoint(&mut self) {
        if let Some(work) = self.checkpoints.work.take() {
            self.abandon(&work);
        }
    }

    fn abandon(&mut self, work: &Work) {
        work.writer.pages.iter().for_each(|&page| self.blocks.take_back(page));
        self.rest(GIVEN_UP_US);
    }

    /// Blocks are wanted: gives up what there is of checkpoints. Whether that gave any.
    pub(crate) fn give_checkpoint_up(&mut self) -> Result<bool> {
        self.checkpoints.wanted_blocks = 0;
        if let Some(work) = self.checkpoints.work.take() {
            self.abandon(&work);
            return Ok(!work.writer.pages.is_empty());
        }
        if self.checkpoints.pages.is_empty() {
            return Ok(false);
        }
        let line = self.maker.layout.shard_line(self.maker.shard);
        // No barrier: until it is durable its pages are whole, or found not to be.
        self.maker.memory.put_word(line + OPENING_AT, 0);
        for page in std::mem::take(&mut self.checkpoints.pages) {
            self.blocks.take_back(page);
        }
        self.checkpoints.changes = None;
        self.rest(GIVEN_UP_US);
        Ok(true)
    }
}
