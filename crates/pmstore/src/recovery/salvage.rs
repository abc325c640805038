//! Blocks in which something that was durable is not whole: the opening is refused, or what is whole is saved.
//!
//! What is saved is appended to other blocks like a record of the log, if it is its key's newest; then the block is
//! free. Crash: the block's life ends when everything else is durable; until then the same is found again.

use super::Rebuild;
use crate::blocks::Maker;
use crate::format::{LEAD_BYTES, Overflow, RECORD_BYTES, RecordHead, record_is_whole};
use crate::shard::Found;
use std::cmp::Reverse;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result};

/// Records begin at multiples of this.
const STEP: u64 = 8;

impl Rebuild {
    /// Takes a block out whose records before `sealed` were durable, of which those from `hole` on are not whole; zero:
    /// its first line is not.
    ///
    /// # Errors
    /// `Corrupt`: the loss is not accepted.
    pub(super) fn take_apart(&mut self, number: u32, life: u64, hole: u64, sealed: u64) -> Result<()> {
        let Maker { memory, layout, shard, .. } = &self.shard.maker;
        let (start, bytes) = (layout.block(number), layout.geometry.block_bytes);
        if !self.is_loss_accepted {
            let message = format!(
                "shard {shard} is damaged at byte {} of the region, in block {} of segment {}: records that were durable are \
                 not whole; they may be the newest of their keys: restore the region from a copy, or open the store without \
                 them by accepting the loss",
                memory.base() + start + hole,
                number % layout.blocks_per_segment(),
                layout.segment_of(start)
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let (mut at, mut gap) = (LEAD_BYTES, 0);
        while at + RECORD_BYTES as u64 <= bytes {
            let place = start + at;
            let head = RecordHead::decode(&memory.load::<RECORD_BYTES>(place), bytes - at)
                .map(|head| (head, memory.bytes(place, head.len as usize).into_owned()))
                .filter(|(_, record)| record_is_whole(record, life, place));
            let Some((head, record)) = head else {
                gap += if at < sealed { STEP } else { 0 };
                at += STEP;
                continue;
            };
            at += u64::from(head.len);
            self.seen = self.seen.max(head.seq);
            if !head.is_void() && self.counts(head.seq) {
                self.saved.push((head, record));
            }
        }
        self.report.damaged_blocks += 1;
        self.report.lost_bytes += gap;
        self.shard.blocks.abandon(number);
        self.broken.push(number);
        Ok(())
    }

    /// Counts keys whose newest record cannot be read, since its long key cannot, although it is nobody's that is old: overflow
    /// blocks of others are used again. Records of such a position that lie in a lost segment are made void (`lost_keys_left`):
    /// when the segment is one of long values again, and nothing was written there, they would come back.
    pub(super) fn count_damaged(&mut self) -> Result<()> {
        let mut unreadable = std::mem::take(&mut self.unreadable);
        unreadable.sort_unstable_by_key(|found| {
            (found.head.keyspace, found.head.position, Reverse(found.head.seq), found.place)
        });
        let is_same = |one: &Found, other: &Found| {
            (one.head.keyspace, one.head.position) == (other.head.keyspace, other.head.position)
        };
        for records in unreadable.chunk_by(is_same) {
            let Some((newest, keys)) = records
                .first()
                .map(|newest| newest.head)
                .and_then(|newest| Some((newest, self.shard.keyspaces.get(&KeyspaceId(newest.keyspace))?)))
            else {
                continue;
            };
            let (mut has_newer, mut has_older) = (false, false);
            keys.get(Position(newest.position), |place| {
                let (known, _) = self.shard.record(place)?;
                has_newer |= known.seq > newest.seq;
                has_older |= known.seq < newest.seq;
                Ok(has_newer)
            })?;
            if has_newer {
                continue;
            }
            self.report.damaged += u64::from(!newest.is_tombstone());
            // A tombstone that hides nothing was given up, and its place is another's by now.
            let is_lost = has_older || records.iter().any(|record| !record.head.is_tombstone());
            if is_lost && !self.shard.mutations.is_on("lost_keys_left") {
                for old in records {
                    let (head, record) = self.seen_record(old.place)?;
                    let is_in = |overflow: &Overflow| self.shard.overflow.are_in(&overflow.extents);
                    if !head.overflow(&record).as_ref().is_some_and(is_in) {
                        self.void_old(old);
                    }
                }
            }
        }
        Ok(())
    }

    /// What was saved counts where it is the newest.
    pub(super) fn replay_saved(&mut self) -> Result<()> {
        for (head, mut record) in std::mem::take(&mut self.saved) {
            self.replay_one(head, &mut record)?;
        }
        Ok(())
    }

    /// The damaged blocks are free; what they held is durable elsewhere. So are those whose life had ended, but not durably
    /// their seal. A barrier each.
    pub(super) fn free_broken(&mut self) -> Result<()> {
        for number in std::mem::take(&mut self.broken) {
            self.shard.blocks.end_life(number)?;
            self.shard.blocks.free.push(number);
        }
        Ok(())
    }
}
