//! Cleaning: what lives in the block with most free space moves on, and the block is free.
//!
//! After RStore (Lersch 2020, section 5.6, the five steps): the queue of changed blocks is drained into a heap; the
//! block with most free space is the victim; its records that count are copied to the cleaner's block; that block
//! joins the others when it is full; the victim is free. Repaired: the copies are durable before the victim's life
//! ends, durably, and both before the victim is used again or anything relies on its old records being gone; a
//! tombstone is copied as long as an older record of its key lies elsewhere ([`crate::graves`]).
//!
//! Crash: a record that is in the victim and in its copy counts once, for both say the same sequence.

use crate::blocks::Role;
use crate::format::{FLAG_KEY_OUT, LEAD_BYTES, RECORD_BYTES, RecordHead};
use crate::graves::grave_of;
use crate::keys::Keys;
use crate::long_emptying::{Left, LongMove};
use crate::shard::PmShard;
use std::borrow::Cow;
use tierstone_base::{KeyspaceId, Position, Result};

/// What is in a victim.
#[derive(Default)]
struct Contents {
    /// Records that the index or a snapshot names, and tombstones that may be needed.
    live: Vec<(u64, RecordHead)>,
    /// Records of dropped keyspaces that were not given up yet.
    dropped: Vec<(u64, RecordHead)>,
    /// The graves of old records that are counted, one for each; in order if there are tombstones that live.
    old: Vec<u64>,
    /// How many of `live` are tombstones.
    tombstones: u32,
}

impl Contents {
    /// Old records of this grave.
    fn old_of(&self, grave: u64) -> usize {
        let from = self.old.partition_point(|&old| old < grave);
        self.old[from..].iter().take_while(|&&old| old == grave).count()
    }
}

/// A block is asked for so far ahead of the record that is read, and so much of it.
const PREFETCH_BYTES: u64 = 1024;
const PREFETCH_LEN: u64 = 256;

/// Counts of old records and places of tombstones may take so large a part of what indexes may; more has blocks cleaned ...
const GRAVES_PARTS: u64 = 4;
/// ... that give at least so large a part of a block.
const GRAVES_GAIN_PARTS: u32 = 4;
/// ... so many a step: they are little work where so much is old.
const GRAVES_BLOCKS_A_STEP: u64 = 4;

/// Free blocks beyond which a segment without records is given back.
const KEPT_FREE_BLOCKS: usize = 8;

fn grave(head: &RecordHead) -> u64 {
    grave_of(KeyspaceId(head.keyspace), Position(head.position))
}

impl PmShard {
    /// Free space of a block for which it is worth to be cleaned, in bytes. Where a class of victims begins, as all that victims are
    /// asked for: the first one of its class will do, and in a full store nobody looks at the others.
    pub(crate) fn least_gain(&self) -> u32 {
        self.maker.layout.geometry.block_bytes as u32 / 16
    }

    /// Cleans blocks if space is short, one and as many more as writes have taken since ([`crate::pace`]), and some if old
    /// records are many. Cost: each block is read, what lives in it written; two barriers.
    pub(crate) fn clean_step(&mut self) -> Result<()> {
        let kept = u64::from(self.settings.clean_below_blocks) + self.checkpoint_reserve();
        let is_short = self.wants_space || self.blocks.available() < kept;
        let has_many_graves =
            !self.graves.is_partial && self.graves.bytes_needed() > self.settings.memory_bytes / GRAVES_PARTS;
        self.is_cleaning = self.blocks.emptying.is_some();
        if self.is_cleaning {
            self.empty_step()?;
        }
        self.empty_long_step(is_short)?;
        if !is_short && !has_many_graves {
            self.pace.note_available(0);
            self.blocks.give_back(KEPT_FREE_BLOCKS)?;
            return Ok(());
        }
        let least = match is_short {
            true => self.least_gain(),
            false => self.maker.layout.geometry.block_bytes as u32 / GRAVES_GAIN_PARTS,
        };
        self.wants_space = false;
        let mut blocks = 0;
        while self.pace.cleans_on(blocks, self.blocks.available(), least.into())
            || has_many_graves && blocks < GRAVES_BLOCKS_A_STEP
        {
            let victim = self.blocks.victim(least);
            if victim.is_none() && !self.is_cleaning {
                self.note_no_victim();
            }
            match victim {
                Some(victim) if self.blocks.secure(1)? => {
                    (self.is_cleaning, blocks) = (true, blocks + 1);
                    self.clean(victim)?;
                }
                _ => break,
            }
        }
        self.pace.note_available(self.blocks.available());
        Ok(())
    }

    /// Reads a block, each record verified, and asks for what moving them will change: lines of indexes and graves.
    fn contents(&self, victim: u32) -> Result<Contents> {
        let mut contents = Contents::default();
        let Some(block) = self.blocks.table.get(victim) else { return Ok(contents) };
        let start = self.maker.layout.block(victim);
        let mut at = LEAD_BYTES as u32;
        while at < block.end {
            let place = start + u64::from(at);
            self.maker.memory.prefetch(place + PREFETCH_BYTES, PREFETCH_LEN);
            let (head, record) = self.record(place)?;
            if block.is_valid(at) {
                self.verify_key(place, &head, &record)?;
            }
            match (block.is_valid(at), head.is_tombstone()) {
                (true, true) => {
                    contents.tombstones += 1;
                    contents.live.push((place, head));
                }
                (true, false) => match self.keys_with(&head, place) {
                    Some(keys) => {
                        keys.prefetch(Position(head.position));
                        contents.live.push((place, head));
                    }
                    None if self.snapshots.holds(&head, place) => contents.live.push((place, head)),
                    None => contents.dropped.push((place, head)),
                },
                (false, false) if !head.is_void() && at < block.counted_to => {
                    self.graves.prefetch(grave(&head));
                    contents.old.push(grave(&head));
                }
                (false, _) => {}
            }
            at += head.len;
        }
        if contents.tombstones > 0 {
            contents.old.sort_unstable();
        }
        Ok(contents)
    }

    /// A long key that will be asked for is whole: what is damaged is found before anything has moved.
    fn verify_key(&self, place: u64, head: &RecordHead, record: &[u8]) -> Result<()> {
        let is_asked_for =
            head.flags & FLAG_KEY_OUT != 0 && self.keys_with(head, place).is_none_or(Keys::is_ordered);
        if is_asked_for {
            self.key_of(head, record)?;
        }
        Ok(())
    }

    pub(crate) fn clean(&mut self, victim: u32) -> Result<()> {
        let contents = match self.contents(victim) {
            Ok(contents) => contents,
            Err(error) => {
                // What is damaged stays where it is; reads tell of it.
                self.blocks.set_aside(victim);
                return Err(error);
            }
        };
        let left = match self.move_live(&contents) {
            Ok(left) => left,
            Err(error) => {
                // Both places of what has moved stay taken, and an opening decides between the records.
                self.leave_half_moved(victim);
                return Err(error);
            }
        };
        for (place, head) in &contents.dropped {
            self.give_up_dropped(*place, head)?;
        }
        if !self.mutations.is_on("victim_before_copies") {
            self.blocks.persist_cleaned()?;
        }
        // crash here [copied-not-freed]: both copies say the same, and one of them counts
        match self.mutations.is_on("victim_used_at_once") {
            true => self.blocks.forget(victim),
            false => self.blocks.recycle(victim)?,
        }
        self.free_left(left)?;
        for grave in contents.old {
            for place in self.graves.remove_old(grave) {
                self.give_up_at(place)?;
            }
        }
        Ok(())
    }

    /// A victim stays that has moved in part. A checkpoint that is being made may list it already.
    fn leave_half_moved(&mut self, victim: u32) {
        self.blocks.set_aside(victim);
        if let Some(block) = self.blocks.table.get_mut(victim) {
            block.is_half_moved = true;
        }
        self.abandon_checkpoint();
    }

    /// Copies what lives in a victim; gives what of it lies in overflow blocks that no copy names.
    fn move_live(&mut self, contents: &Contents) -> Result<Left> {
        let (mut moves, mut left) = (self.move_long_values(&contents.live)?, Left::default());
        let mut buffer = Vec::new();
        for (place, head) in &contents.live {
            if head.is_tombstone() {
                let elsewhere = self.graves.may_hide(grave(head), contents.old_of(grave(head)));
                if !elsewhere || self.mutations.is_on("tombstones_dropped") {
                    self.drop_tombstone(*place, head)?;
                    continue;
                }
            }
            let long = moves.remove(place);
            left.old.extend(long.map(|long| (head.seq, long.from)));
            self.move_record(*place, head, long, &mut buffer)?;
        }
        left.unused = moves.into_values().map(|unused| unused.to).collect();
        Ok(left)
    }

    fn drop_tombstone(&mut self, place: u64, head: &RecordHead) -> Result<()> {
        self.graves.move_tombstone(grave(head), place, None);
        self.give_up(place, head.len, head.is_overflow())
    }

    /// Copies a record, which was verified with its block, to the cleaner's block; the index, or the table of what
    /// snapshots show, names the copy.
    fn move_record(
        &mut self,
        place: u64,
        head: &RecordHead,
        long: Option<LongMove>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        buffer.clear();
        buffer.extend_from_slice(&self.maker.memory.bytes(place, head.len as usize));
        long.into_iter().for_each(|long| long.rename(buffer));
        debug_assert!(buffer.len() >= RECORD_BYTES);
        // Indexes by position ask for no key.
        let is_ordered = self.keys_with(head, place).is_some_and(Keys::is_ordered);
        let key = if is_ordered { self.key_of(head, buffer)?.into_owned() } else { Vec::new() };
        let copy = self.blocks.append(Role::Cleaning, buffer)?;
        self.counts.cleaned_bytes_written += u64::from(head.len);
        self.name_long(head.overflow(buffer).as_ref(), copy);
        if head.is_tombstone() {
            self.graves.move_tombstone(grave(head), place, Some(copy));
            return Ok(());
        }
        if self.snapshots.move_kept(head, place, copy) {
            // Old, and not counted where it lay ([`crate::recount`]): nobody would count the copy.
            if !self.blocks.is_counted(place) && !self.mutations.is_on("kept_moved_uncounted") {
                self.graves.add_old(grave(head));
            }
            return Ok(());
        }
        if let Some(keys) = self.reachable_mut(KeyspaceId(head.keyspace)) {
            keys.replace(Position(head.position), &key, place, copy);
        }
        Ok(())
    }

    /// A record of a dropped keyspace goes with its block.
    fn give_up_dropped(&mut self, place: u64, head: &RecordHead) -> Result<()> {
        let key = {
            let (_, record) = self.record(place)?;
            self.key_of(head, &record).ok().map(Cow::into_owned)
        };
        let position = Position(head.position);
        let is_own = |id: KeyspaceId, keys: &Keys| id.0 == head.keyspace && keys.has(position, place);
        let own = self.sweeping.iter_mut().filter(|(id, keys, _)| is_own(*id, keys));
        own.for_each(|(_, keys, _)| keys.take_out(position, key.as_deref(), place));
        self.give_up(place, head.len, head.is_overflow())
    }
}

#[cfg(test)]
#[path = "cleaner_test.rs"]
mod cleaner_test;
