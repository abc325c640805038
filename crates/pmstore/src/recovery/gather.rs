//! From the records of blocks to the index, in the order of positions.
//!
//! Records lie in blocks in the order of their writing, so each of them would touch another part of the index: a
//! rebuild would wait for memory, and for the tables of pages, nearly all of its time. So many are gathered, sorted by
//! position, and offered while what the next ones need is fetched. Which record of a key counts is decided by
//! sequences, so the order changes nothing.

use super::Rebuild;
use crate::format::{FLAG_KEY_OUT, RECORD_BYTES};
use crate::graves::grave_of;
use crate::shard::Found;
use std::borrow::Cow;
use tierstone_base::prefetch::prefetch_read;
use tierstone_base::{ErrorKind, KeyspaceId, Position, Result};
use tierstone_engine::Key;

/// Records that are gathered, give or take a block's: of 48 bytes each, for the time of the rebuild.
pub(super) const GATHERED: usize = 1 << 17;
/// So many records before it is needed, an older record is asked for; its line of the index, as many before that.
const ASKED_AHEAD: usize = 16;

impl Rebuild {
    /// Offers what was gathered.
    pub(super) fn offer_gathered(&mut self) -> Result<()> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let mut order: Vec<(u32, u64, u32)> = Vec::with_capacity(gathered.len());
        order.extend(
            (0..).zip(&gathered).map(|(at, found)| (found.head.keyspace, found.head.position, at as u32)),
        );
        order.sort_unstable();
        for at in 0..order.len() {
            self.ask_ahead(&gathered, &order, at);
            self.offer(gathered[order[at].2 as usize])?;
        }
        gathered.clear();
        self.gathered = gathered;
        Ok(())
    }

    /// Asks for what the records behind number `at` of `order` will need, in three steps, since each says where the next
    /// lies: what was gathered of them; lines of the index and their blocks; the older records that the index leads
    /// to, and what changes when one of two is old.
    fn ask_ahead(&self, gathered: &[Found], order: &[(u32, u64, u32)], at: usize) {
        if let Some((.., number)) = order.get(at + 3 * ASKED_AHEAD) {
            let found = &gathered[*number as usize];
            // It may lie in two lines.
            prefetch_read(&found.place);
            prefetch_read(&found.head.value_len);
        }
        if let Some((keyspace, position, number)) = order.get(at + 2 * ASKED_AHEAD)
            && let Some(keys) = self.shard.keyspaces.get(&KeyspaceId(*keyspace))
        {
            keys.prefetch(Position(*position));
            self.shard.blocks.prefetch(gathered[*number as usize].place);
        }
        let Some((keyspace, position, number)) = order.get(at + ASKED_AHEAD) else { return };
        let (keyspace, position) = (KeyspaceId(*keyspace), Position(*position));
        let Some(keys) = self.shard.keyspaces.get(&keyspace) else { return };
        let place = gathered[*number as usize].place;
        self.shard.blocks.prefetch_bit(place);
        let mut is_first = true;
        keys.prefetch_records(position, |old| {
            self.shard.blocks.prefetch(old);
            is_first = false;
        });
        if !is_first {
            self.shard.graves.prefetch(grave_of(keyspace, position));
            self.shard.maker.memory.prefetch(place, 2 * RECORD_BYTES as u64);
        }
    }

    /// Takes a record of a block in: it counts if it is the newest of its key.
    fn offer(&mut self, found: Found) -> Result<()> {
        let keyspace = KeyspaceId(found.head.keyspace);
        let position = Position(found.head.position);
        let Some(keys) = self.shard.keyspaces.get(&keyspace) else {
            // A copy of the cleaner's may be among them, and is to be sealed.
            self.dirty.insert(self.shard.maker.layout.block_of(found.place));
            self.lose(&found);
            return Ok(());
        };
        if found.head.flags & FLAG_KEY_OUT == 0 && !keys.is_ordered() && !keys.has_any(position) {
            // The first of its key: nothing needs to know the key.
            self.take(found, None, &[]);
            return Ok(());
        }
        let key = {
            let (head, record) = self.seen_record(found.place)?;
            self.key_of(&head, &record).map(Cow::into_owned)
        };
        let key = match key {
            Ok(key) => key,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                // Old: its overflow blocks hold something else by now. Or damaged.
                self.unreadable.push(found);
                self.lose(&found);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let old = self.find(&Key { keyspace, position, bytes: &key })?;
        let layout = &self.shard.maker.layout;
        if let Some(old) = old.filter(|old| old.head.seq == found.head.seq) {
            // A copy of the cleaner's: whichever counts is to be durable.
            self.dirty.extend([layout.block_of(old.place), layout.block_of(found.place)]);
        }
        match old {
            Some(old) if self.are_twins(&old, &found) => self.settle_twin(&old, found, &key)?,
            Some(old) if old.head.seq >= found.head.seq => self.lose(&found),
            old => self.take(found, old, &key),
        }
        Ok(())
    }

    /// Whether one is the cleaner's copy of the other, and may name another place for the long value.
    fn are_twins(&self, old: &Found, found: &Found) -> bool {
        old.head.seq == found.head.seq
            && found.head.is_overflow()
            && !self.shard.mutations.is_on("twins_left_valid")
    }
}
