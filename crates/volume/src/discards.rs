//! Discards (TRIM): space that nobody needs goes back to the members.
//!
//! Members pass discards on only if each of them leaves zeros; otherwise a discard changes nothing, as devices may.
//! So mirrors stay equal, and parity fits: rows of zeros have a parity of zeros.
//!
//! Invariants:
//! 1. Mirrors: the regions are marked first, as for a write; after a crash one mirror is copied to the others.
//! 2. Parity: only whole rows. A record of the journal names them, durably, before the first member is asked; it is
//!    written over when all have flushed. Opening makes them zeros again if it is of the last round.
//! 3. Sleeping mirrors: a pair with a disk that is behind is asked later, when both disks count, for what was not
//!    written since. What waits is remembered in memory: after a crash that space stays taken until it is discarded again.
//! 4. Rows that pairs lend each other ([`crate::partial`]) are in no range of the volume; such volumes discard nothing.

use crate::core::Core;
use crate::journal::Record;
use crate::layout::Redundancy;
use crate::superblock::Health;
use std::ops::Range;
use tierstone_media::{BlockDevice, DeviceError, DeviceErrorKind, IoBuffer, IoKind, IoRequest};

/// Ranges that wait for sleeping disks, at most; further ones are forgotten.
const WAITING_MAX: usize = 1024;

impl<D: BlockDevice> Core<D> {
    /// A discard has come: what becomes of it now. `writing` takes what goes to mirrors with the writes.
    pub(crate) fn start_discard(&mut self, id: u64, writing: &mut Vec<u64>) {
        let (_, offset, len) = self.span(id);
        if !self.can_discard() || len == 0 {
            self.finish(id, None);
        } else if self.layout.redundancy == Redundancy::Parity {
            self.parity_queue.push(id);
        } else if self.sleep.is_some() {
            self.discard_pairs(offset..offset + len);
            self.finish(id, None);
        } else {
            writing.push(id);
        }
    }

    /// Whether all members that count leave zeros where they are asked to discard.
    fn can_discard(&self) -> bool {
        let leaves_zeros = |index: usize| match self.members.device(index) {
            Some(device) => device.discards_to_zeros(),
            None => true,
        };
        self.partial.is_none()
            && (0..self.health.len()).all(|index| self.health[index] == Health::Failed || leaves_zeros(index))
    }

    // ---- parity --------------------------------------------------------------------------------

    /// The rows of a group that a range of the volume covers whole.
    fn whole_rows(&self, group: u32, range: &Range<u64>) -> Range<u64> {
        let (groups, positions) = (u64::from(self.layout.groups), u64::from(self.layout.positions()));
        let chunks = range.start.div_ceil(self.layout.chunk_bytes)..range.end / self.layout.chunk_bytes;
        // Of the group's own chunks, the first at or behind one of the volume's.
        let own = |chunk: u64| chunk.saturating_sub(u64::from(group)).div_ceil(groups);
        own(chunks.start).div_ceil(positions)..own(chunks.end) / positions
    }

    /// Makes all rows that lie in a range zeros.
    pub(crate) fn discard_rows(&mut self, range: &Range<u64>) -> Result<(), DeviceError> {
        let record = |group: u32| {
            let rows = self.whole_rows(group, range);
            let count = rows.end.saturating_sub(rows.start);
            let (sequence, done_through) = (0, 0);
            let whole =
                Record { group, row: rows.start, rows: count, sequence, done_through, pieces: Vec::new() };
            (count > 0).then_some(whole)
        };
        let records: Vec<Record> = (0..self.layout.groups).filter_map(record).collect();
        for round in records.chunks((self.journal_slots as usize / 2).max(1)) {
            self.mend_torn()?;
            if !self.mutations.is_on("discarded rows are journalled before they are zeros") {
                let wanted: Vec<_> = round.iter().cloned().map(Ok).collect();
                self.journal(&wanted).into_iter().collect::<Result<(), DeviceError>>()?;
            }
            for record in round {
                if let Err(error) = self.zero_rows(record) {
                    self.keep_torn(record.clone());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Makes the rows of a record zeros on every member of its group, durably.
    pub(crate) fn zero_rows(&mut self, record: &Record) -> Result<(), DeviceError> {
        let chunk = self.layout.chunk_bytes;
        let (offset, len) = (self.data_start + record.row * chunk, record.rows * chunk);
        let counts =
            |index: &usize| matches!(self.health[*index], Health::InSync | Health::Rebuilding { .. });
        let members: Vec<usize> = self.layout.members(record.group).filter(counts).collect();
        let mut steps: Vec<Vec<(usize, IoRequest)>> = Vec::new();
        if self.can_discard() {
            let kind = IoKind::Discard { len };
            let discard = |&index: &usize| (index, IoRequest { token: 0, kind, offset, buffer: None });
            steps.push(members.iter().map(discard).collect());
            steps.push(members.iter().map(|&index| (index, IoRequest::flush(0))).collect());
        } else {
            // Only in a replay, by members that cannot any more.
            for row in 0..record.rows {
                let zeros = |&index: &usize| {
                    let zeros = IoBuffer::zeroed(chunk as usize);
                    (index, IoRequest::write_durable(0, offset + row * chunk, zeros))
                };
                steps.push(members.iter().map(zeros).collect());
            }
        }
        steps.into_iter().try_for_each(|requests| self.all_or_failed(requests))
    }

    /// Does requests; members that fail are named so, if their groups can do without.
    pub(crate) fn all_or_failed(&mut self, requests: Vec<(usize, IoRequest)>) -> Result<(), DeviceError> {
        let asked = requests.into_iter().filter(|(index, _)| self.health[*index] != Health::Failed);
        let requests: Vec<(usize, IoRequest)> = asked.collect();
        let members: Vec<usize> = requests.iter().map(|(index, _)| *index).collect();
        for (index, done) in members.into_iter().zip(self.members.perform(requests)) {
            let Err(error) = done.result else { continue };
            if self.health[index] == Health::Failed {
                continue;
            }
            if !self.has_other(index) {
                return Err(error);
            }
            self.fail_member(index);
        }
        match self.is_broken {
            true => {
                Err(DeviceError::new(DeviceErrorKind::Failed, "volume: no member takes its records any more"))
            }
            false => Ok(()),
        }
    }

    // ---- sleeping mirrors ----------------------------------------------------------------------

    /// Discards what lies on pairs that are awake, and remembers the rest.
    fn discard_pairs(&mut self, range: Range<u64>) {
        let is_asleep = (0..self.layout.groups).any(|group| self.behind(group).is_some());
        if is_asleep && let Some(sleep) = &mut self.sleep {
            // The whole range again then: what is zeros already stays so.
            sleep.discards.push(range.clone());
            sleep.discards.truncate(WAITING_MAX);
        }
        self.discard_awake(&range);
    }

    fn discard_awake(&mut self, range: &Range<u64>) {
        let regions = range.start / self.region_bytes..=(range.end - 1) / self.region_bytes;
        let is_new = regions.clone().fold(false, |is_new, region| self.intents.begin(region) | is_new);
        if is_new && !self.mutations.is_on("regions are marked before discards of pairs") {
            self.write_marks();
        }
        let mut is_good = true;
        for (group, start, len) in self.layout.spans(range.start, range.end - range.start) {
            if self.behind(group).is_some() {
                continue;
            }
            let counts =
                |index: &usize| matches!(self.health[*index], Health::InSync | Health::Rebuilding { .. });
            let members: Vec<usize> = self.layout.members(group).filter(counts).collect();
            let (kind, offset) = (IoKind::Discard { len }, self.data_start + start);
            let discard = |&index: &usize| (index, IoRequest { token: 0, kind, offset, buffer: None });
            let discards = members.iter().map(discard).collect();
            let flushes = members.iter().map(|&index| (index, IoRequest::flush(0))).collect();
            // A pair that cannot do it keeps what it has; its marks stay.
            is_good &= self.all_or_failed(discards).and_then(|()| self.all_or_failed(flushes)).is_ok();
        }
        regions.for_each(|region| self.intents.end(region, true, is_good));
    }

    /// Something is written: it is not to be discarded any more.
    pub(crate) fn forget_discards(&mut self, offset: u64, len: u64) {
        let Some(sleep) = &mut self.sleep else { return };
        if sleep.discards.is_empty() || self.mutations.is_on("what is written is not discarded later") {
            return;
        }
        let (start, end) = (offset, offset + len);
        let parts = |range: &Range<u64>| [range.start..range.end.min(start), range.start.max(end)..range.end];
        let left = sleep.discards.iter().flat_map(parts).filter(|range| range.start < range.end);
        sleep.discards = left.take(WAITING_MAX).collect();
    }

    /// What waited for disks that slept, when all count again.
    pub(crate) fn discard_later(&mut self) {
        let is_asleep = (0..self.layout.groups).any(|group| self.behind(group).is_some());
        let waiting = match &mut self.sleep {
            Some(sleep) if !is_asleep => std::mem::take(&mut sleep.discards),
            _ => return,
        };
        if waiting.is_empty() || !self.can_discard() {
            return;
        }
        // No write may be under way to what is discarded.
        self.settle();
        waiting.iter().for_each(|range| self.discard_awake(range));
    }
}
