//! Making mirrors alike: marked regions after a crash, and rows of a new member.
//!
//! Invariants:
//! 1. Bytes go from one member in sync to all others that count there, also to those that are being filled, for the rows
//!    that they have already.
//! 2. A member in sync that could not give bytes gets those of another.
//! 3. A region with blocks that no member can give stays marked: the next opening tries again.
//! 4. A mark is cleared only when what all members hold there is durable, also what the copies were made from: after the
//!    death of a process alone that may be in the memory of the machine only.

use crate::core::{Core, INTENT_START};
use crate::intent::Intents;
use crate::superblock::{Health, Slot};
use std::collections::BTreeSet;
use tierstone_base::{Error, Result};
use tierstone_media::{
    BLOCK_BYTES, BlockDevice, DeviceError, DeviceErrorKind, IoBuffer, IoCompletion, IoRequest,
};

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl<D: BlockDevice> Core<D> {
    /// Reads the marks of all members, makes mirrors alike where they name a region, and clears them.
    pub(crate) fn resync_marked(&mut self) -> Result<u64> {
        let mut marked = BTreeSet::new();
        for index in self.written_members() {
            let buffer = IoBuffer::zeroed(2 * BLOCK_BYTES);
            let read = self.members.perform(vec![(index, IoRequest::read(0, INTENT_START, buffer))]).pop();
            let Some(slots) = read.filter(|done| done.result.is_ok()).and_then(|done| done.buffer) else {
                continue;
            };
            if let Some((sequence, slot, regions)) = Intents::decode(self.volume, &slots) {
                self.mark_slots[index] = Slot(slot);
                self.intents.sequence = self.intents.sequence.max(sequence);
                marked.extend(regions);
            }
        }
        for &region in &marked {
            if self.resync_region(region).is_err() {
                self.intents.keep(region);
            }
            self.check_records()?;
        }
        if !marked.is_empty() && !self.flush_alike() {
            marked.iter().for_each(|&region| self.intents.keep(region));
        }
        self.write_marks();
        Ok(marked.len() as u64)
    }

    /// Flushes all members, also those that were copied from; whether what they hold is durable. Those that fail are named
    /// so, if their groups can do without.
    fn flush_alike(&mut self) -> bool {
        if self.mutations.is_on("what mirrors were copied from is flushed") {
            return true;
        }
        let members = self.written_members();
        let flushes = members.iter().map(|&index| (index, IoRequest::flush(0))).collect();
        self.all_or_failed(flushes).is_ok()
    }

    /// Makes all members alike in a region.
    ///
    /// # Errors
    /// When blocks of it cannot be read from any; the others are alike.
    fn resync_region(&mut self, region: u64) -> Result<()> {
        let start = region * self.region_bytes;
        let end = (start + self.region_bytes).min(self.geometry.end());
        let mut result = Ok(());
        for (group, offset, len) in self.layout.spans(start, end.saturating_sub(start)) {
            let at = self.data_start + offset;
            let alike = match self.in_sync(group).get(1..) {
                Some(others) if !others.is_empty() => self.copy(group, others, at, len),
                _ => Ok(()),
            };
            result = result.and(alike);
            for index in self.layout.members(group) {
                let Health::Rebuilding { row } = self.health[index] else { continue };
                // Rows that it does not have yet are filled later.
                let filled = (row * self.layout.chunk_bytes).saturating_sub(offset).min(len);
                if filled > 0 && !self.mutations.is_on("rows that are filled are made alike") {
                    result = result.and(self.copy(group, &[index], at, filled));
                }
            }
        }
        result
    }

    /// Copies bytes of a group from a member in sync to `targets`, durably; targets that fail are named so. No request may
    /// be under way there.
    ///
    /// # Errors
    /// When blocks cannot be read from any member; the others are copied.
    pub(crate) fn copy(&mut self, group: u32, targets: &[usize], offset: u64, len: u64) -> Result<()> {
        let mut result = Ok(());
        let mut written = BTreeSet::new();
        for at in (0..len).step_by(PIECE_BYTES as usize) {
            let take = PIECE_BYTES.min(len - at);
            if let Ok(targets) = self.copy_piece(group, targets, offset + at, take, true) {
                written.extend(targets);
                continue;
            }
            // Block by block: what one member lacks another may have.
            for block in (0..take).step_by(BLOCK_BYTES) {
                let at = offset + at + block;
                match self.copy_piece(group, targets, at, BLOCK_BYTES as u64, false) {
                    Ok(targets) => written.extend(targets),
                    Err(error) => result = result.and(Err(Error::from(error))),
                }
            }
        }
        self.flush_copies(written.into_iter().collect());
        result
    }

    /// Makes durable what was copied to these members; those that cannot have failed.
    pub(crate) fn flush_copies(&mut self, mut targets: Vec<usize>) {
        targets.retain(|&index| self.health[index] != Health::Failed);
        let flushes = targets.iter().map(|&index| (index, IoRequest::flush(0))).collect();
        let results = self.members.perform(flushes);
        self.judge_copies(&targets, results);
    }

    /// Copies a piece from the first member in sync that can give it; those that could not get it too. `is_counted`:
    /// whether their errors count.
    fn copy_piece(
        &mut self,
        group: u32,
        targets: &[usize],
        offset: u64,
        len: u64,
        is_counted: bool,
    ) -> std::result::Result<Vec<usize>, DeviceError> {
        let mut unread = Vec::new();
        let mut last =
            DeviceError::new(DeviceErrorKind::Failed, format!("group {group} has no member to copy from"));
        for source in self.in_sync(group) {
            let buffer = IoBuffer::zeroed(len as usize);
            let read = self.members.perform(vec![(source, IoRequest::read(0, offset, buffer))]).pop();
            match read.map(|done| (done.result, done.buffer)) {
                Some((Ok(()), Some(bytes))) => {
                    let mut targets: Vec<usize> = targets.iter().chain(&unread).copied().collect();
                    targets.retain(|&index| index != source && self.health[index] != Health::Failed);
                    targets.sort_unstable();
                    targets.dedup();
                    self.write_copies(&targets, offset, &bytes);
                    return Ok(targets);
                }
                Some((Err(error), _)) => last = error,
                _ => {}
            }
            if is_counted {
                self.note_read_error(source);
            }
            unread.push(source);
        }
        Err(last)
    }

    fn write_copies(&mut self, targets: &[usize], offset: u64, bytes: &IoBuffer) {
        let write = |&index: &usize| (index, IoRequest::write(0, offset, bytes.clone()));
        let results = self.members.perform(targets.iter().map(write).collect());
        self.judge_copies(targets, results);
    }

    fn judge_copies(&mut self, targets: &[usize], results: Vec<IoCompletion>) {
        for (&index, done) in targets.iter().zip(results) {
            if done.result.is_err() {
                self.fail_member(index);
            }
        }
    }
}
