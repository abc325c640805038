//! A shard, rebuilt from its blocks and its log, on its own thread if the caller likes.
//!
//! 1. What a checkpoint of the index tells is taken in ([`checkpoint`]); all other blocks are read, and their records offered to the index ([`gather`]). Of each key the record with the highest
//!    sequence counts. What the log's end or a batch that is not whole leaves out is made void in its block.
//! 2. The log is replayed, newest first: a record that no block has is appended to one. Replaying twice changes
//!    nothing: a sequence that is there is not appended again.
//! 3. What was not surely durable is written back; a new log is begun, and the shard's line names it: in one word the
//!    old log is truncated.
//!
//! Invariants:
//! 1. Nothing is served, and no frame appended, before the new log is named.
//! 2. A sequence that was made void is never given again: new ones are above all that were seen.
//! 3. Records are appended behind a tear only when the rest of the block is zeros, durably: what lay there is never
//!    valid again.
//!
//! Crash at any point: the log still says everything; the same is done again.

mod checkpoint;
mod erase;
mod gather;
mod long_values;
mod salvage;

use self::erase::Voids;
use self::gather::GATHERED;
use crate::blocks::{Maker, Role};
use crate::format::{
    FLAG_KEY_OUT, FRAME_BYTES, FrameHead, LEAD_BYTES, RECORD_BYTES, RecordHead, Verdict, record_is_whole,
    word_at,
};
use crate::found::{FoundLog, VoidSeqs};
use crate::graves::grave_of;
use crate::keys::Keys;
use crate::log::Log;
use crate::mark::guarded;
use crate::open::Keyspace;
use crate::seal::{self, Lead};
use crate::settings::ShardSettings;
use crate::shard::{Found, PAST_AT, PmShard};
use std::borrow::Cow;
use std::collections::BTreeSet;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result, Seq, ShardId};
use tierstone_crash::Mutations;
use tierstone_engine::{Key, OpeningPart};

/// Everything that one shard needs to be built, on its own thread.
#[derive(Debug)]
pub struct ShardPlan {
    pub(crate) maker: Maker,
    pub(crate) settings: ShardSettings,
    pub(crate) mutations: Mutations,
    pub(crate) keyspaces: Vec<Keyspace>,
    pub(crate) log: FoundLog,
    /// Segments of storage blocks, and of overflow blocks with their class.
    pub(crate) storage: Vec<u32>,
    pub(crate) overflow: Vec<(u32, u8)>,
    /// Sequences begin above this one.
    pub(crate) applied: Seq,
    pub(crate) past_ms: u64,
    pub(crate) loss_accepted: bool,
    /// Bytes whose loss was accepted before the shard was built.
    pub(crate) lost_bytes: u64,
    /// The block with the first page of the checkpoint that is in force.
    pub(crate) checkpoint: Option<u32>,
    /// Where it is told how far this shard has come.
    pub(crate) opening: OpeningPart,
}

/// What building a shard found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildReport {
    /// Records in blocks that were read.
    pub records: u64,
    /// Keys that a checkpoint of the index told: their records were not read.
    pub loaded: u64,
    /// Live records.
    pub live: u64,
    /// Records of the log that no block had.
    pub replayed: u64,
    /// Records in blocks that were made void: nobody was told that they are durable.
    pub voided: u64,
    /// Long values whose key is damaged, or whose place is lost or another's by now: these records are not served.
    pub damaged: u64,
    /// Blocks in which records that were durable are not whole, the loss of which was accepted.
    pub damaged_blocks: u64,
    /// Bytes of the log and of damaged blocks that were durable and of which nothing is whole.
    pub lost_bytes: u64,
}

/// A shard that is being rebuilt.
struct Rebuild {
    shard: PmShard,
    log: FoundLog,
    /// Sequences of parts that do not count.
    void: VoidSeqs,
    /// Records of blocks that were read and wait to be offered to the index.
    gathered: Vec<Found>,
    /// Blocks that may not be durable.
    dirty: BTreeSet<u32>,
    /// Blocks with room at their end, and bytes of it.
    tails: BTreeSet<(u64, u32)>,
    tombstones: Vec<(KeyspaceId, u64, u64)>,
    overflows: Vec<(KeyspaceId, u64, u64)>,
    /// Records whose long key cannot be read.
    unreadable: Vec<Found>,
    seen: Seq,
    is_loss_accepted: bool,
    /// Blocks with pages of the checkpoint that was taken in.
    pages: BTreeSet<u32>,
    /// Damaged blocks, and what of them is whole.
    broken: Vec<u32>,
    saved: Vec<(RecordHead, Vec<u8>)>,
    /// What is made void before the new log is named.
    voids: Voids,
    report: BuildReport,
    opening: OpeningPart,
}

impl ShardPlan {
    /// Which shard it is for.
    pub fn shard(&self) -> ShardId {
        self.maker.shard
    }

    /// Rebuilds the shard. Cost: its blocks are read, its log is read; what is dirty is written back.
    ///
    /// # Errors
    /// `DeviceFailed` when the region fails, `NoSpace` when no block can be had for the log's records. `Corrupt`: what a
    /// block held is damaged, and the loss is not accepted.
    pub fn build(self) -> Result<(PmShard, BuildReport)> {
        let ShardPlan { maker, settings, mutations, keyspaces, log, storage, overflow, applied, .. } = self;
        let (past_ms, loss_accepted) = (self.past_ms, self.loss_accepted);
        let spares = log.spares.clone();
        let mut ring = Log::new(maker.clone(), spares, log.next_logical);
        ring.claims_early = mutations.is_on("fence_claimed_early");
        let mut shard = PmShard::empty(maker, settings, mutations, ring);
        shard.blocks.seals_early = shard.mutations.is_on("sealed_before_fence");
        shard.past.shown_ms = shard.past.shown_ms.max(past_ms);
        for &Keyspace { id, index } in &keyspaces {
            let keys = shard.new_keys(index);
            shard.keyspaces.insert(id, keys);
        }
        overflow.into_iter().for_each(|(segment, class)| shard.overflow.adopt(segment, class));
        let void = VoidSeqs::of(&log.groups);
        let seen = applied.max(log.end_seq);
        let of_log: u64 = log.damage.iter().map(|damage| damage.bytes).sum();
        let lost_bytes = of_log + self.lost_bytes;
        let mut rebuild = Rebuild {
            shard,
            log,
            void,
            gathered: Vec::new(),
            dirty: BTreeSet::new(),
            tails: BTreeSet::new(),
            tombstones: Vec::new(),
            overflows: Vec::new(),
            unreadable: Vec::new(),
            seen,
            is_loss_accepted: loss_accepted,
            pages: BTreeSet::new(),
            broken: Vec::new(),
            saved: Vec::new(),
            voids: Voids::default(),
            report: BuildReport { lost_bytes, ..BuildReport::default() },
            opening: self.opening,
        };
        for &segment in &storage {
            rebuild.shard.blocks.take_in_segment(segment);
        }
        if let Some(first) = self.checkpoint {
            rebuild.take_checkpoint(first, &keyspaces)?;
        }
        for segment in storage {
            rebuild.scan_segment(segment)?;
        }
        rebuild.offer_gathered()?;
        rebuild.replay()?;
        rebuild.replay_saved()?;
        rebuild.settle()?;
        rebuild.begin_log()?;
        rebuild.shard.counts.lost_bytes = rebuild.report.lost_bytes;
        Ok((rebuild.shard, rebuild.report))
    }
}

impl Rebuild {
    fn scan_segment(&mut self, segment: u32) -> Result<()> {
        let per_segment = self.shard.maker.layout.blocks_per_segment();
        for block in segment * per_segment..(segment + 1) * per_segment {
            if self.shard.blocks.table.get(block).is_some() || self.pages.contains(&block) {
                continue;
            }
            self.opening.advance(self.shard.maker.layout.geometry.block_bytes);
            let lead = seal::lead(&self.shard.maker, block);
            let (Lead::Life(life) | Lead::Damaged(life)) = lead else {
                self.keep_ended(self.shard.maker.layout.block(block));
                // Power was lost while a life ended: the old seal would go with the old words of a life that begins.
                let has_seal = seal::has_seal(&self.shard.maker, block);
                match has_seal && !self.shard.mutations.is_on("seals_left_on_free_blocks") {
                    true => self.broken.push(block),
                    false => self.shard.blocks.free.push(block),
                }
                continue;
            };
            self.shard.blocks.adopt(block, life, LEAD_BYTES as u32, Role::Full);
            match lead {
                Lead::Damaged(_) => {
                    let sealed = u64::from(self.shard.blocks.sealed(block, life));
                    self.take_apart(block, life, 0, sealed)?;
                }
                _ => self.scan_block(block, life)?,
            }
        }
        Ok(())
    }

    /// Reads the records of a block up to the first that is not whole.
    fn scan_block(&mut self, number: u32, life: u64) -> Result<()> {
        let (heads, end) = whole_records(&self.shard.maker, number, life);
        let sealed = u64::from(self.shard.blocks.sealed(number, life));
        if end < sealed {
            return self.take_apart(number, life, end, sealed);
        }
        if let Some(block) = self.shard.blocks.table.get_mut(number) {
            block.end = end as u32;
        }
        if end > sealed && !self.shard.mutations.is_on("unsealed_taken_for_durable") {
            // Old records, too, that the cleaner copied for a snapshot: all of the block is sealed below.
            self.dirty.insert(number);
        }
        let mut has_tombstones = false;
        for (place, head) in heads {
            self.seen = self.seen.max(head.seq);
            self.report.records += 1;
            if head.seq >= self.log.first_seq {
                self.dirty.insert(number);
            }
            if head.is_void() && head.is_overflow() {
                self.keep_ended(place);
            } else if !head.is_void() && !self.make_void(place, &head) {
                has_tombstones |= head.is_tombstone();
                self.gathered.push(Found { place, head });
            }
        }
        if let Some(block) = self.shard.blocks.table.get_mut(number) {
            block.has_tombstones = has_tombstones;
        }
        if self.gathered.len() >= GATHERED {
            self.offer_gathered()?;
        }
        self.tails.insert((self.shard.maker.layout.geometry.block_bytes - end, number));
        Ok(())
    }

    /// Writes back a word that says that a life has ended, or that a record with a long value is void: a process that was killed
    /// may have stored it only. What was named there is free from now on, and after a loss of power it would be named again.
    fn keep_ended(&self, place: u64) {
        let memory = &self.shard.maker.memory;
        // Where no life ever began there is no check of one.
        if memory.load_word(place + 8) != 0 && !self.shard.mutations.is_on("ended_not_kept") {
            memory.write_back(place, 8);
        }
    }

    /// Whether the log has the record, or has had it.
    fn counts(&self, seq: Seq) -> bool {
        seq <= self.log.end_seq && !self.void.has(seq)
    }

    /// Whether the log does not have the record, which is then made void.
    fn make_void(&mut self, place: u64, head: &RecordHead) -> bool {
        if self.counts(head.seq) || self.shard.mutations.is_on("blocks_believed") {
            return false;
        }
        self.report.voided += 1;
        if !self.shard.mutations.is_on("void_forgotten") {
            self.make_word_void(place);
        }
        true
    }

    /// The newest record of a key so far. One whose long key cannot be read any more is passed over: it was old, and
    /// its overflow blocks, free since, had been whole when it was met.
    fn find(&self, key: &Key<'_>) -> Result<Option<Found>> {
        let Some(keys) = self.shard.keyspaces.get(&key.keyspace) else { return Ok(None) };
        let reads_all = self.shard.mutations.is_on("old_keys_are_read");
        let mut found = None;
        keys.get(key.position, |place| {
            if self.is_listed_damaged(place) {
                // Reads tell of it.
                return Ok(false);
            }
            let (head, record) = self.seen_record(place)?;
            let is_it = match self.key_of(&head, &record) {
                Ok(bytes) => *bytes == *key.bytes,
                Err(error) if error.kind() == ErrorKind::Corrupt && !reads_all => false,
                Err(error) => return Err(error),
            };
            if is_it {
                found = Some(Found { place, head });
            }
            Ok(is_it)
        })?;
        Ok(found)
    }

    /// The key of a record, if it stays what it is through the rebuild. A long one that lies where no overflow blocks are any
    /// more may still be whole, since nothing was written there: its record counts no more, and what is appended here may
    /// overwrite it once the index, which could not find it then, names the record.
    fn key_of<'r>(&'r self, head: &RecordHead, record: &'r [u8]) -> Result<Cow<'r, [u8]>> {
        let believes_all = self.shard.mutations.is_on("keys_in_free_segments_believed");
        if head.flags & FLAG_KEY_OUT != 0
            && !believes_all
            && !head.overflow(record).is_some_and(|overflow| self.shard.overflow.are_in(&overflow.extents))
        {
            return Err(Error::new(ErrorKind::Corrupt, "a long key lies where no long keys lie any more"));
        }
        self.shard.key_of(head, record)
    }

    /// A record that this rebuild has found to be whole, or has appended: it is not verified again.
    fn seen_record(&self, place: u64) -> Result<(RecordHead, Cow<'_, [u8]>)> {
        let Maker { memory, layout, .. } = &self.shard.maker;
        let room = layout.block(layout.block_of(place) + 1) - place;
        match RecordHead::decode(&memory.load::<RECORD_BYTES>(place), room) {
            Some(head) => Ok((head, memory.bytes(place, head.len as usize))),
            None => Err(self.shard.damaged(&format!("the record at {place} in persistent memory"))),
        }
    }

    /// Old records that were passed over leave the index. Keys are deleted whose newest record names a long value that is lost.
    fn forget_unreadable(&mut self) -> Result<()> {
        for at in 0..self.overflows.len() {
            let (keyspace, position, place) = self.overflows[at];
            if !self.is_newest(keyspace, position, place) {
                continue;
            }
            let (head, is_unreadable, is_lost) = {
                let (head, record) = self.shard.record(place)?;
                (head, self.key_of(&head, &record).is_err(), self.is_lost(&head, &record))
            };
            if is_unreadable {
                if let Some(keys) = self.shard.keyspaces.get_mut(&keyspace) {
                    keys.forget(Position(position), place);
                }
                self.lose(&Found { place, head });
            } else if is_lost {
                self.bury(keyspace, place)?;
            }
        }
        Ok(())
    }

    /// The record is not its key's newest.
    fn lose(&mut self, found: &Found) {
        self.shard.blocks.kill(found.place, found.head.len);
        if !found.head.is_tombstone() {
            let position = Position(found.head.position);
            self.shard.note_old(grave_of(KeyspaceId(found.head.keyspace), position), found.place);
        }
    }

    /// The record is its key's newest so far.
    fn take(&mut self, found: Found, old: Option<Found>, key: &[u8]) {
        self.enter(found, old.map(|old| old.place), key);
        if let Some(old) = old {
            self.lose(&old);
        }
    }

    /// The index names the record, in place of another of its key.
    fn enter(&mut self, found: Found, old: Option<u64>, key: &[u8]) {
        let (keyspace, position) = (KeyspaceId(found.head.keyspace), Position(found.head.position));
        self.shard.longest_bytes = self.shard.longest_bytes.max(found.head.bytes());
        if let Some(keys) = self.shard.keyspaces.get_mut(&keyspace) {
            match old {
                Some(old) => keys.replace(position, key, old, found.place),
                None => keys.insert(position, key, found.place),
            }
        }
        self.shard.blocks.take_in(found.place, found.head.len);
        self.shard.sweeper.has_expiring |= found.head.expiry_ms != 0;
        let entry = (keyspace, position.0, found.place);
        if found.head.is_tombstone() {
            self.tombstones.push(entry);
        }
        if found.head.is_overflow() {
            self.overflows.push(entry);
        }
    }

    /// Replays the log, newest first.
    fn replay(&mut self) -> Result<()> {
        let groups = std::mem::take(&mut self.log.groups);
        let frames = std::mem::take(&mut self.log.frames);
        let mut buffer = Vec::new();
        for group in groups.iter().rev().filter(|group| group.verdict != Some(Verdict::Void)) {
            for frame in frames[group.frames.clone()].iter().rev() {
                let bytes = self.shard.maker.memory.bytes(frame.offset, frame.head.len as usize).into_owned();
                for (at, head) in records_of(&bytes, &frame.head).into_iter().rev() {
                    buffer.clear();
                    buffer.extend_from_slice(&bytes[at..at + head.len as usize]);
                    self.replay_one(head, &mut buffer)?;
                }
            }
        }
        Ok(())
    }

    fn replay_one(&mut self, head: RecordHead, record: &mut [u8]) -> Result<()> {
        let (keyspace, position) = (KeyspaceId(head.keyspace), Position(head.position));
        if !self.shard.keyspaces.contains_key(&keyspace) {
            return Ok(());
        }
        let key = match self.key_of(&head, record) {
            Ok(key) => key.into_owned(),
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
            Err(error) => return Err(error),
        };
        let old = self.find(&Key { keyspace, position, bytes: &key })?;
        let twin = match old {
            Some(old) if self.is_worse_twin(&old, &head, record)? => Some(old),
            Some(old) if old.head.seq >= head.seq => return Ok(()),
            _ => None,
        };
        let place = self.append(record)?;
        self.report.replayed += 1;
        match twin {
            Some(twin) => self.take_twin(Found { place, head }, &twin, &key),
            None => self.take(Found { place, head }, old, &key),
        }
        Ok(())
    }

    /// Appends to a block with room, whose rest becomes zeros first; to a free one where none has.
    fn append(&mut self, record: &mut [u8]) -> Result<u64> {
        let len = record.len() as u64;
        if !self.shard.blocks.fits(Role::Active, record.len() as u32)
            && let Some(&(room, number)) = self.tails.last().filter(|(room, _)| *room >= len)
        {
            self.tails.remove(&(room, number));
            self.resume(number, Role::Active)?;
        }
        self.shard.blocks.append(Role::Active, record)
    }

    /// Makes the rest of a block zeros, durably, and goes on there.
    fn resume(&mut self, number: u32, role: Role) -> Result<()> {
        let Maker { memory, layout, .. } = &self.shard.maker;
        let end = self.shard.blocks.table.get(number).map_or(0, |block| u64::from(block.end));
        let rest = vec![0; (layout.geometry.block_bytes - end) as usize];
        memory.stream(layout.block(number) + end, &rest);
        memory.barrier("zeros_unfenced")?;
        // crash here [zeros-behind-a-tear]: the block ends where it ended
        self.dirty.insert(number);
        self.shard.blocks.resume(number, role);
        Ok(())
    }

    /// Tombstones leave the index; what lies in overflow blocks is marked.
    fn settle(&mut self) -> Result<()> {
        self.forget_unreadable()?;
        self.count_damaged()?;
        let mut needed = BTreeSet::new();
        self.settle_tombstones(&mut needed)?;
        self.settle_long_values(&mut needed)
    }

    /// Places of those that are needed go to `needed`.
    fn settle_tombstones(&mut self, needed: &mut BTreeSet<u64>) -> Result<()> {
        for (keyspace, position, place) in std::mem::take(&mut self.tombstones) {
            if !self.is_newest(keyspace, position, place) {
                continue;
            }
            let (head, key) = {
                let (head, record) = self.shard.record(place)?;
                (head, self.shard.key_of(&head, &record)?.into_owned())
            };
            if let Some(keys) = self.shard.keyspaces.get_mut(&keyspace) {
                keys.remove(Position(position), &key, place);
            }
            let grave = grave_of(keyspace, Position(position));
            match self.shard.graves.may_hide(grave, 0) {
                false => self.shard.blocks.kill(place, head.len),
                true => {
                    self.shard.graves.add_tombstone(grave, place);
                    needed.insert(place);
                }
            }
        }
        Ok(())
    }

    fn is_newest(&self, keyspace: KeyspaceId, position: u64, place: u64) -> bool {
        self.shard.keyspaces.get(&keyspace).is_some_and(|keys| keys.has(Position(position), place))
    }

    /// Makes everything durable, and begins a new log behind it.
    fn begin_log(&mut self) -> Result<()> {
        for role in [Role::Active, Role::Cleaning] {
            if !self.shard.blocks.has(role)
                && let Some((_, number)) = self.tails.pop_last()
            {
                self.resume(number, role)?;
            }
        }
        let is_skipped = self.shard.mutations.is_on("recovered_not_written_back");
        let Maker { memory, layout, .. } = &self.shard.maker;
        if self.shard.mutations.is_on("twins_void_at_once") {
            self.void_places();
            memory.fence()?;
        }
        for number in self.dirty.iter().filter(|_| !is_skipped) {
            let end = self.shard.blocks.table.get(*number).map_or(0, |block| u64::from(block.end));
            memory.write_back(layout.block(*number), end);
        }
        if !is_skipped {
            self.shard.blocks.write_back(u64::MAX, u64::MAX);
        }
        memory.barrier("recovered_unfenced")?;
        self.shard.blocks.all_persisted();
        if !is_skipped {
            self.shard.blocks.seal_all();
        }
        self.make_void_durably()?;
        let Maker { memory, layout, shard, .. } = &self.shard.maker;
        memory.store_word(layout.shard_line(*shard) + PAST_AT, guarded(self.shard.past.shown_ms));
        memory.write_back(layout.shard_line(*shard), 16);
        // crash here [recovered-not-named]: the old log is in force, and replaying it changes nothing
        self.shard.applied = self.seen;
        self.shard.durable = self.seen;
        let life = self.shard.blocks.new_life();
        self.shard.log.begin_segment(life, self.seen + 1, 0)?;
        let logical = self.shard.log.segments.back().map_or(0, |segment| segment.logical);
        self.shard.log.truncate(logical)?;
        self.shard.log.add_spares(&self.log.chain);
        self.free_broken()?;
        self.forget_void()?;
        // Not before: what the old log names must be readable when it is replayed again.
        self.shard.overflow.give_back()?;
        let numbers: Vec<u32> = self.shard.blocks.table.numbers();
        numbers.into_iter().for_each(|number| self.shard.blocks.changed(number));
        self.shard.checkpoints.note_loaded(self.report.loaded, self.report.records);
        self.report.live = self.shard.keyspaces.values().map(Keys::len).sum();
        Ok(())
    }
}

/// The records of a block up to the first that is not whole, and where that would begin.
pub(crate) fn whole_records(maker: &Maker, number: u32, life: u64) -> (Vec<(u64, RecordHead)>, u64) {
    let Maker { memory, layout, .. } = maker;
    let (start, bytes) = (layout.block(number), layout.geometry.block_bytes);
    let (mut heads, mut at) = (Vec::new(), LEAD_BYTES);
    while at + RECORD_BYTES as u64 <= bytes {
        let place = start + at;
        let head = RecordHead::decode(&memory.load::<RECORD_BYTES>(place), bytes - at)
            .filter(|head| record_is_whole(&memory.bytes(place, head.len as usize), life, place));
        let Some(head) = head else { break };
        heads.push((place, head));
        at += u64::from(head.len);
    }
    (heads, at)
}

/// The records of a whole frame, and where they begin.
pub(crate) fn records_of(frame: &[u8], head: &FrameHead) -> Vec<(usize, RecordHead)> {
    let mut records = Vec::with_capacity(usize::from(head.records));
    let mut at = FRAME_BYTES;
    for _ in 0..head.records {
        let Some(record) = frame.get(at..).and_then(|rest| RecordHead::decode(rest, rest.len() as u64))
        else {
            break;
        };
        records.push((at, record));
        at += record.len as usize;
    }
    debug_assert!(word_at(frame, 0) as usize & 0xffff_ffff == frame.len());
    records
}
