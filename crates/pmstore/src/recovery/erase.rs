//! Keys that are taken out of the blocks: the record that counts is made void, and so are all older ones of its key, which
//! would count in its place at the next opening. Unlike a tombstone this takes no room, which a store may not have.
//!
//! Invariants:
//! 1. Older records are void, durably, before the one that counts is (`older_void_unfenced`): until then each opening judges
//!    the same.
//! 2. Nothing is made void before what recovery has appended is durable, nor after the new log is named.
//!
//! Crash: the old log may have some of these records. They are replayed, and judged again.

use super::{Rebuild, whole_records};
use crate::format::{RecordHead, void_word};
use crate::graves::grave_of;
use crate::shard::Found;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{KeyspaceId, Position, Result, Seq};

/// A key that is taken out of the blocks.
#[derive(Debug)]
struct Erased {
    key: Vec<u8>,
    seq: Seq,
}

/// What recovery makes void before it names the new log.
#[derive(Debug, Default)]
pub(super) struct Voids {
    /// Records, when their keys' older ones are void.
    places: Vec<u64>,
    /// Keys by keyspace and position.
    erased: BTreeMap<(u32, u64), Vec<Erased>>,
    /// Of records that were counted as old: one is gone of each.
    graves: Vec<u64>,
}

impl Rebuild {
    /// Makes a record void whose key another record counts of, or none: none that is older is there. It is not among old records.
    pub(super) fn void(&mut self, place: u64) {
        self.voids.places.push(place);
    }

    /// The same for one that was taken for an old record.
    pub(super) fn void_old(&mut self, old: &Found) {
        self.void(old.place);
        self.note_void(old);
    }

    /// An old record that was counted is void.
    fn note_void(&mut self, old: &Found) {
        if !old.head.is_tombstone() && self.shard.blocks.is_counted(old.place) {
            let position = Position(old.head.position);
            self.voids.graves.push(grave_of(KeyspaceId(old.head.keyspace), position));
        }
    }

    /// Takes a key out of the blocks, of which the record at `place` counts so far; the index does not name it any more.
    pub(super) fn erase(&mut self, place: u64, head: &RecordHead, key: Vec<u8>) {
        self.shard.blocks.kill(place, head.len);
        self.void(place);
        let own = self.voids.erased.entry((head.keyspace, head.position)).or_default();
        own.push(Erased { key, seq: head.seq });
    }

    /// Makes void what is to be, older records first. The records that count are durable. Cost: reads all blocks where a key
    /// is taken out of them, and a barrier more.
    pub(super) fn make_void_durably(&mut self) -> Result<()> {
        if !self.voids.erased.is_empty() && !self.shard.mutations.is_on("older_versions_left") {
            self.void_older();
            self.shard.maker.memory.barrier("older_void_unfenced")?;
        }
        // crash here [older-void]: what counted counts yet, and is judged again
        self.void_places();
        Ok(())
    }

    fn void_older(&mut self) {
        let own: BTreeSet<u64> = self.voids.places.iter().copied().collect();
        for number in self.shard.blocks.table.numbers() {
            let life = self.shard.blocks.table.get(number).map_or(0, |block| block.life);
            let (records, _) = whole_records(&self.shard.maker, number, life);
            for (place, head) in records {
                let old = Found { place, head };
                if !head.is_void() && !own.contains(&place) && self.is_erased(&old) {
                    self.make_word_void(place);
                    self.note_void(&old);
                }
            }
        }
    }

    /// Whether a record is an older one of a key that is taken out. One whose key cannot be read counts no more, whosever it is.
    fn is_erased(&self, old: &Found) -> bool {
        let Some(erased) = self.voids.erased.get(&(old.head.keyspace, old.head.position)) else {
            return false;
        };
        let newer = || erased.iter().filter(|erased| erased.seq >= old.head.seq);
        if newer().next().is_none() {
            return false;
        }
        let Ok((head, record)) = self.seen_record(old.place) else { return false };
        match self.key_of(&head, &record) {
            Ok(key) => newer().any(|erased| erased.key == *key),
            Err(_) => true,
        }
    }

    /// Makes records void, also copies that do not count, while what they name is still theirs: it is free from now on, and
    /// where the record that counts moves behind such a copy, the next opening would meet that one first. No barrier: those
    /// of the log that begins come before anything is used again.
    pub(super) fn void_places(&self) {
        for &place in &self.voids.places {
            self.make_word_void(place);
        }
    }

    pub(super) fn make_word_void(&self, place: u64) {
        let memory = &self.shard.maker.memory;
        memory.store_word(place, void_word(memory.load_word(place)));
        memory.write_back(place, 8);
    }

    /// Old records that are void are gone, durably: tombstones that were needed for them are not any more.
    pub(super) fn forget_void(&mut self) -> Result<()> {
        for grave in std::mem::take(&mut self.voids.graves) {
            for place in self.shard.graves.remove_old(grave) {
                self.shard.give_up_at(place)?;
            }
        }
        Ok(())
    }
}
