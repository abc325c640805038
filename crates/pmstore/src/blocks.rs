//! Storage blocks of a shard: append-only, immutable once full, the unit of cleaning.
//!
//! Records are appended with ordinary stores and not written back: the log has them. [`Blocks::write_back`] does it
//! later, in the order of appending, so that the log can be truncated behind it.
//!
//! Invariants:
//! 1. What has been appended up to a clock ([`Blocks::appended`]) is durable when [`Blocks::persisted`] has reached
//!    it, blocks that were cleaned since apart: what lives of these is durable elsewhere.
//! 2. A free block has no valid life in persistent memory, durably; a block in use has one of its own.
//! 3. Live bytes are those of records that count, or may count again after a crash.
//!
//! Free-space queue after RStore (Lersch 2020, section 5.6): the first change of a block's free space since it was last
//! looked at queues it; cleaning drains the queue into lists by free space ([`crate::victims`]).

use crate::block_table::BlockTable;
use crate::format::{self, Entry, LEAD_BYTES, Layout, SegmentKind};
use crate::memory::PmMemory;
use crate::space::Space;
use crate::victims::{Standing, Victims};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tierstone_base::prefetch::prefetch_read;
use tierstone_base::{Error, ErrorKind, Result};

/// Who appends to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Writes.
    Active,
    /// The cleaner.
    Cleaning,
    /// Nobody any more.
    Full,
}

/// A storage block in use.
#[derive(Debug)]
pub(crate) struct Block {
    pub life: u64,
    /// Where the next record begins.
    pub end: u32,
    /// Bytes of records that count.
    pub live: u32,
    /// Records whose end is not decided: the block is not cleaned meanwhile.
    pub pending: u32,
    pub role: Role,
    /// Old records before this byte are counted ([`crate::recount`]).
    pub counted_to: u32,
    /// The checkpoint that listed it last.
    pub listed: u32,
    /// Tombstones were appended to it.
    pub has_tombstones: bool,
    /// Copies of some of its records count, and its life has not ended: no checkpoint lists it.
    pub is_half_moved: bool,
    is_queued: bool,
    pub standing: Standing,
    /// A bit for each 32 bytes: a record that counts begins there. Records are longer.
    valid: Box<[u64]>,
}

impl Block {
    /// A block of `bytes` bytes without records that count.
    pub fn new(life: u64, end: u32, role: Role, bytes: u32) -> Self {
        let valid = vec![0; (bytes / 32).div_ceil(64) as usize].into_boxed_slice();
        Block {
            life,
            end,
            live: 0,
            pending: 0,
            role,
            counted_to: u32::MAX,
            listed: 0,
            has_tombstones: false,
            is_half_moved: false,
            is_queued: false,
            standing: Standing::default(),
            valid,
        }
    }

    fn bit(at: u32) -> (usize, u64) {
        ((at / 32 / 64) as usize, 1 << (at / 32 % 64))
    }

    /// Whether the record that begins at byte `at` counts.
    pub fn is_valid(&self, at: u32) -> bool {
        let (word, mask) = Self::bit(at);
        self.valid.get(word).is_some_and(|bits| bits & mask != 0)
    }

    /// Says that a record begins at byte `at` and counts.
    fn set_valid(&mut self, at: u32, len: u32) {
        let (word, mask) = Self::bit(at);
        self.valid[word] |= mask;
        self.live += len;
    }
}

/// Bytes that wait to be written back.
#[derive(Debug)]
struct Dirty {
    block: u32,
    life: u64,
    from: u32,
    to: u32,
}

/// What makes the blocks of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Maker {
    pub memory: PmMemory,
    pub layout: Layout,
    pub space: Arc<Space>,
    pub store: u64,
    pub shard: u16,
    pub opening: u64,
}

/// The blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub maker: Maker,
    lives: u64,
    pub table: BlockTable,
    /// Segments of storage blocks, and how many of their blocks are in use.
    pub segments: BTreeMap<u32, u32>,
    pub free: Vec<u32>,
    active: Option<u32>,
    cleaning: Option<u32>,
    dirty: VecDeque<Dirty>,
    cleaned: Vec<Dirty>,
    appended: u64,
    written: u64,
    persisted: u64,
    victims: Victims,
    queue: Vec<u32>,
    /// Segments that had no block in use at some time.
    pub emptied: Vec<u32>,
    /// The segment that is being emptied: its blocks are not used again.
    pub emptying: Option<u32>,
    /// How often a block came nearer to being cleaned, ever.
    pub changes: u64,
    /// Bytes of records that count, of all blocks.
    live_bytes: u64,
    /// What is written back and waits for a fence, to be sealed: block, life, end.
    sealing: Vec<(u32, u64, u32)>,
    /// A test's: seals do not wait.
    pub seals_early: bool,
}

impl Blocks {
    pub fn new(maker: Maker) -> Self {
        let table = BlockTable::new(maker.layout.blocks_per_segment());
        let victims = Victims::new(maker.layout.geometry.block_bytes as u32);
        Blocks {
            maker,
            lives: 0,
            table,
            segments: BTreeMap::new(),
            free: Vec::new(),
            active: None,
            cleaning: None,
            dirty: VecDeque::new(),
            cleaned: Vec::new(),
            appended: 0,
            written: 0,
            persisted: 0,
            victims,
            queue: Vec::new(),
            emptied: Vec::new(),
            emptying: None,
            changes: 0,
            live_bytes: 0,
            sealing: Vec::new(),
            seals_early: false,
        }
    }

    /// A life that nothing of this store ever had.
    pub fn new_life(&mut self) -> u64 {
        self.lives += 1;
        format::life(self.maker.opening, self.maker.shard, self.lives)
    }

    /// Takes a block in that recovery found.
    pub fn adopt(&mut self, number: u32, life: u64, end: u32, role: Role) -> &mut Block {
        self.note_use(number);
        let block = Block::new(life, end, role, self.maker.layout.geometry.block_bytes as u32);
        self.table.insert(number, block)
    }

    /// Blocks that can be had, of other shards' free segments too.
    pub fn available(&self) -> u64 {
        let per_segment = u64::from(self.maker.layout.blocks_per_segment());
        self.free.len() as u64 + u64::from(self.maker.space.free_for(self.maker.shard)) * per_segment
    }

    /// How many new blocks the records of these lengths would take.
    pub fn wanted(&self, lens: impl Iterator<Item = u32>) -> u64 {
        let bytes = self.maker.layout.geometry.block_bytes as u32;
        let mut end = self.active.and_then(|number| self.table.get(number)).map_or(bytes, |block| block.end);
        let mut wanted = 0;
        for len in lens {
            if end + len > bytes {
                (wanted, end) = (wanted + 1, LEAD_BYTES as u32);
            }
            end += len;
        }
        wanted
    }

    /// Takes a free block.
    fn take(&mut self) -> Result<u32> {
        if self.free.is_empty() {
            self.grow()?;
        }
        let none = || {
            Error::new(
                ErrorKind::NoSpace,
                "the persistent memory is full: delete keys, or restore a backup into a larger region",
            )
        };
        self.free.pop().ok_or_else(none)
    }

    /// Sees to it that `wanted` blocks are free, as far as there are free segments. One barrier a segment.
    pub fn secure(&mut self, wanted: usize) -> Result<bool> {
        while self.free.len() < wanted && self.maker.space.free_for(self.maker.shard) > 0 {
            self.grow()?;
        }
        Ok(self.free.len() >= wanted)
    }

    /// Takes a segment and divides it. One barrier; its word is durable with what is stored in the blocks, or sooner.
    fn grow(&mut self) -> Result<()> {
        let Maker { memory, layout, space, shard, .. } = &self.maker;
        let Some(segment) = space.claim(*shard) else { return Ok(()) };
        let per_segment = layout.blocks_per_segment();
        let first = segment * per_segment;
        for block in first..first + per_segment {
            // Neither life nor seal, whatever a long value left there.
            memory.stream(layout.block(block), &[0; LEAD_BYTES as usize]);
        }
        memory.barrier("leads_unfenced")?;
        // crash here [claimed-segment]: its word says claimed, and the next opening gives it back
        space.name(segment, Entry { kind: SegmentKind::Storage, device: *shard, logical: 0 });
        self.segments.entry(segment).or_default();
        self.free.extend((first..first + per_segment).rev());
        Ok(())
    }

    pub fn role_block(&mut self, role: Role) -> &mut Option<u32> {
        match role {
            Role::Cleaning => &mut self.cleaning,
            _ => &mut self.active,
        }
    }

    /// Whether `len` bytes fit the block that `role` appends to.
    pub fn fits(&self, role: Role, len: u32) -> bool {
        let number = if role == Role::Cleaning { self.cleaning } else { self.active };
        let block = number.and_then(|number| self.table.get(number));
        block.is_some_and(|block| u64::from(block.end + len) <= self.maker.layout.geometry.block_bytes)
    }

    /// Appends a record; gives its place. `record` gets its checksum. One barrier where a block is begun in a new
    /// segment, none else.
    pub fn append(&mut self, role: Role, record: &mut [u8]) -> Result<u64> {
        let len = record.len() as u32;
        if !self.fits(role, len) {
            let fresh = self.take()?;
            if let Some(full) = self.role_block(role).take() {
                self.fill(full);
            }
            self.begin(fresh, role);
            *self.role_block(role) = Some(fresh);
        }
        let Some(number) = *self.role_block(role) else { return Err(lost_block()) };
        self.append_to(number, role, record)
    }

    fn append_to(&mut self, number: u32, role: Role, record: &mut [u8]) -> Result<u64> {
        let len = record.len() as u32;
        let Some(block) = self.table.get_mut(number) else { return Err(lost_block()) };
        let from = block.end;
        let offset = self.maker.layout.block(number) + u64::from(from);
        format::seal_record(record, block.life, offset);
        self.maker.memory.store(offset, record);
        block.end += len;
        block.has_tombstones |= format::is_tombstone(record);
        block.set_valid(from, len);
        self.live_bytes += u64::from(len);
        let life = block.life;
        // A block's own head goes with its first record.
        let dirty = Dirty {
            block: number,
            life,
            from: if from == LEAD_BYTES as u32 { 0 } else { from },
            to: from + len,
        };
        match role {
            Role::Cleaning => extend(&mut self.cleaned, dirty),
            _ => {
                self.appended += u64::from(dirty.to - dirty.from);
                match self.dirty.back_mut() {
                    Some(last) if last.block == number && last.to == dirty.from => last.to = dirty.to,
                    _ => self.dirty.push_back(dirty),
                }
            }
        }
        Ok(offset)
    }

    fn begin(&mut self, number: u32, role: Role) {
        let life = self.new_life();
        let Maker { memory, layout, store, .. } = &self.maker;
        let place = layout.block(number);
        memory.store_word(place + 8, crate::seal::life_check(*store, number, life));
        memory.store_word(place, life);
        self.adopt(number, life, LEAD_BYTES as u32, role);
    }

    /// Recovery goes on appending to `number`, whose rest is zeros.
    pub fn resume(&mut self, number: u32, role: Role) {
        if let Some(full) = self.role_block(role).take() {
            self.fill(full);
        }
        if let Some(block) = self.table.get_mut(number) {
            block.role = role;
            *self.role_block(role) = Some(number);
        }
    }

    /// Whether `role` has a block to append to.
    pub fn has(&self, role: Role) -> bool {
        let number = if role == Role::Cleaning { self.cleaning } else { self.active };
        number.is_some()
    }

    /// Nobody appends to the block any more; what is left of it is free space.
    pub fn fill(&mut self, number: u32) {
        if let Some(block) = self.table.get_mut(number) {
            block.role = Role::Full;
        }
        self.changed(number);
    }

    /// The free space of a block has changed.
    pub fn changed(&mut self, number: u32) {
        self.changes += 1;
        if let Some(block) = self.table.get_mut(number)
            && !block.is_queued
        {
            block.is_queued = true;
            self.queue.push(number);
        }
    }

    /// Asks for what [`Blocks::hold`] changes.
    #[inline]
    pub fn prefetch(&self, location: u64) {
        if let Some(block) = self.table.get(self.maker.layout.block_of(location)) {
            prefetch_read(block);
        }
    }

    /// Asks for the bit of the record at `location`; the line that [`Blocks::prefetch`] asked for says where it lies.
    #[inline]
    pub fn prefetch_bit(&self, location: u64) {
        let number = self.maker.layout.block_of(location);
        if let Some(block) = self.table.get(number) {
            let (word, _) = Block::bit((location - self.maker.layout.block(number)) as u32);
            block.valid.get(word).into_iter().for_each(prefetch_read);
        }
    }

    /// The end of the record at `location` is not decided.
    #[inline]
    pub fn hold(&mut self, location: u64) {
        // Soon it is cleared.
        self.prefetch_bit(location);
        if let Some(block) = self.table.get_mut(self.maker.layout.block_of(location)) {
            block.pending += 1;
        }
    }

    /// It is decided.
    #[inline]
    pub fn let_go(&mut self, location: u64) {
        self.changes += 1;
        if let Some(block) = self.table.get_mut(self.maker.layout.block_of(location)) {
            block.pending -= 1;
        }
    }

    /// The record at `location` counts no more. Its length may be one that nobody verified: it serves the choice of
    /// victims.
    #[inline]
    pub fn kill(&mut self, location: u64, len: u32) {
        let number = self.maker.layout.block_of(location);
        let at = (location - self.maker.layout.block(number)) as u32;
        let (word, mask) = Block::bit(at);
        let Some(block) = self.table.get_mut(number) else { return };
        if block.valid[word] & mask != 0 {
            block.valid[word] &= !mask;
            let len = len.min(block.live);
            block.live -= len;
            self.live_bytes -= u64::from(len);
            self.changed(number);
        }
    }

    /// The life of the block in which `location` lies.
    #[inline]
    pub fn life_at(&self, location: u64) -> Option<u64> {
        self.table.get(self.maker.layout.block_of(location)).map(|block| block.life)
    }

    /// The full block with most free space, to 1/128 of a block, whose records are all decided, if that is at least
    /// `least` bytes.
    pub fn victim(&mut self, least: u32) -> Option<u32> {
        let Blocks { queue, table, victims, maker, .. } = self;
        for number in queue.drain(..) {
            let Some(block) = table.get_mut(number) else { continue };
            block.is_queued = false;
            if let Some(free) = free_bytes(&maker.layout, block) {
                victims.put(table, number, free);
            }
        }
        let gives = |block: &Block| free_bytes(&maker.layout, block).is_some_and(|free| free >= least);
        victims.find(table, least, |number| {
            table.get(number).is_some_and(|block| block.pending == 0 && gives(block))
        })
    }

    /// Whether a full block has at least `least` bytes of free space.
    pub fn has_victim(&mut self, least: u32) -> bool {
        let Blocks { queue, table, victims, maker, .. } = self;
        let gives = |number| {
            let block = table.get(number);
            block.and_then(|block| free_bytes(&maker.layout, block)).is_some_and(|free| free >= least)
        };
        queue.iter().any(|&number| gives(number)) || victims.find(table, least, gives).is_some()
    }

    /// What the cleaner has appended is durable when this returns. One barrier.
    pub fn persist_cleaned(&mut self) -> Result<()> {
        let cleaned = std::mem::take(&mut self.cleaned);
        let seal = |dirty: &Dirty| self.seal(dirty.block, dirty.life, dirty.to);
        for dirty in &cleaned {
            let Maker { memory, layout, .. } = &self.maker;
            memory.write_back(
                layout.block(dirty.block) + u64::from(dirty.from),
                u64::from(dirty.to - dirty.from),
            );
        }
        if self.seals_early {
            cleaned.iter().for_each(seal);
        }
        self.maker.memory.fence()?;
        cleaned.iter().for_each(seal);
        Ok(())
    }

    /// Takes a damaged block out of cleaning, until the next opening.
    pub fn set_aside(&mut self, number: u32) {
        self.hold(self.maker.layout.block(number));
    }

    /// Frees a block whose live records are durable elsewhere. One barrier.
    pub fn recycle(&mut self, number: u32) -> Result<()> {
        self.end_life(number)?;
        self.forget(number);
        Ok(())
    }

    /// The same, before it is durable.
    pub fn forget(&mut self, number: u32) {
        self.victims.take_out(&mut self.table, number);
        if let Some(block) = self.table.remove(number) {
            self.live_bytes -= u64::from(block.live);
        }
        self.take_back(number);
    }

    /// Recovery found a block damaged: it is in use, and nothing in it counts.
    pub fn abandon(&mut self, number: u32) {
        self.forget(number);
        self.free.pop();
    }

    /// A record that recovery found counts.
    pub fn take_in(&mut self, location: u64, len: u32) {
        let number = self.maker.layout.block_of(location);
        let at = (location - self.maker.layout.block(number)) as u32;
        if let Some(block) = self.table.get_mut(number)
            && !block.is_valid(at)
        {
            block.set_valid(at, len);
            self.live_bytes += u64::from(len);
        }
    }

    /// Takes a segment of storage blocks in that recovery found.
    pub fn take_in_segment(&mut self, segment: u32) {
        self.segments.insert(segment, 0);
        self.emptied.push(segment);
    }

    /// Bytes of records that count.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Gives a segment back of which no block is in use, if more than `kept` blocks are free. One barrier.
    pub fn give_back(&mut self, kept: usize) -> Result<bool> {
        let per_segment = self.maker.layout.blocks_per_segment();
        if self.free.len() < kept + per_segment as usize {
            return Ok(false);
        }
        let Some(segment) = self.emptied.pop() else { return Ok(false) };
        if self.segments.get(&segment) != Some(&0) {
            return Ok(false);
        }
        self.segments.remove(&segment);
        self.free.retain(|number| number / per_segment != segment);
        self.maker.space.release(segment, self.maker.shard)?;
        Ok(true)
    }

    /// The clock of what was appended by writes.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// The clock up to which that is durable.
    pub fn persisted(&self) -> u64 {
        self.persisted
    }

    /// Begins to write back what was appended first, `bytes_max` bytes at least of what waits up to `until`. Durable
    /// after the next fence ([`Blocks::fenced`]).
    pub fn write_back(&mut self, until: u64, bytes_max: u64) {
        let stop = until.min(self.written.saturating_add(bytes_max));
        while self.written < stop {
            let Some(dirty) = self.dirty.pop_front() else { break };
            let len = u64::from(dirty.to - dirty.from);
            let is_there = self.table.get(dirty.block).is_some_and(|block| block.life == dirty.life);
            if is_there {
                let Maker { memory, layout, .. } = &self.maker;
                memory.write_back(layout.block(dirty.block) + u64::from(dirty.from), len);
                self.sealing.push((dirty.block, dirty.life, dirty.to));
            }
            self.written += len;
        }
    }

    /// Whether a write-back waits for a fence.
    pub fn is_writing_back(&self) -> bool {
        self.written != self.persisted
    }

    /// A fence has come after everything that was begun to be written back.
    pub fn fenced(&mut self) {
        for (number, life, end) in std::mem::take(&mut self.sealing) {
            self.seal(number, life, end);
        }
        self.persisted = self.written;
    }

    /// Forgets what waits to be written back, which the caller has made durable.
    pub fn all_persisted(&mut self) {
        self.dirty.clear();
        self.cleaned.clear();
        self.sealing.clear();
        (self.written, self.persisted) = (self.appended, self.appended);
    }
}

/// What cleaning a full block would give back, in bytes: records that count no more. What is left at the end of a block
/// is only where no record was too long for it: a copy would leave as much.
fn free_bytes(layout: &Layout, block: &Block) -> Option<u32> {
    if block.role != Role::Full {
        return None;
    }
    let (bytes, payload) = (layout.geometry.block_bytes as u32, layout.block_payload() as u32);
    let tail = Some(bytes - block.end).filter(|tail| *tail > payload / 2).unwrap_or(0);
    Some((block.end - LEAD_BYTES as u32).saturating_sub(block.live) + tail)
}

fn extend(list: &mut Vec<Dirty>, dirty: Dirty) {
    match list.last_mut() {
        Some(last) if last.block == dirty.block && last.to == dirty.from => last.to = dirty.to,
        _ => list.push(dirty),
    }
}

fn lost_block() -> Error {
    Error::new(ErrorKind::Corrupt, "a storage block in use is not in the shard's table: reopen the store")
}
