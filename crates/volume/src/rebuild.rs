//! A new member in the place of a failed one, filled while the volume serves.
//!
//! Invariants:
//! 1. A row of a member under rebuilding counts only when it was copied, or computed, and is durable.
//! 2. Writes meanwhile go to it too (mirrors), or are in the parity that its rows are computed from.
//! 3. A crash goes on from the row that the superblock names; rows after it are done again.

use crate::core::{Core, JOURNAL_START};
use crate::layout::Redundancy;
use crate::partial::MAP_BYTES;
use crate::superblock::{Health, Slot};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::{BlockDevice, Geometry, IoBuffer, IoRequest};

/// Rows between two superblocks that name how far rebuilding has come.
const ROWS_A_CHECKPOINT: u64 = 256;

impl<D: BlockDevice> Core<D> {
    /// Refuses what is not a failed member.
    fn check_failed(&self, index: usize) -> Result<()> {
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        match self.health.get(index) {
            None => refuse(format!("the volume has no member {index}")),
            Some(Health::Failed) => Ok(()),
            Some(health) => refuse(format!("member {index} is {health:?}: only a failed one is replaced")),
        }
    }

    /// Takes the device of a failed member out.
    pub(crate) fn release(&mut self, index: usize) -> Result<Option<D>> {
        self.check_failed(index)?;
        Ok(self.members.exchange(index, None))
    }

    /// Puts `device` in the place of member `index`, which must have failed.
    pub(crate) fn replace(&mut self, index: usize, device: D) -> Result<Option<D>> {
        self.check_failed(index)?;
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if self.layout.redundancy == Redundancy::None {
            return refuse("a volume without redundancy has nothing to fill a new member from".into());
        }
        let needed = self.data_start + self.layout.rows * self.layout.chunk_bytes;
        if Geometry::end(&device.geometry()) < needed || device.geometry().meta_bytes > self.data_start {
            return refuse(format!(
                "the new member has {} bytes, {needed} are needed",
                device.geometry().end()
            ));
        }
        let old = self.members.exchange(index, Some(device));
        // What an earlier life left there must not be read as this volume's superblock, marks or journal.
        let journal = match self.layout.redundancy {
            Redundancy::Parity => self.slot_bytes() * u64::from(self.journal_slots),
            _ if self.partial.is_some() => MAP_BYTES,
            _ => 0,
        };
        let zeros = IoBuffer::zeroed((JOURNAL_START + journal) as usize);
        let done = self.members.perform(vec![(index, IoRequest::write_durable(0, 0, zeros))]);
        for done in done {
            done.result.map_err(|error| Error::from(error).context("preparing the new member"))?;
        }
        self.read_errors[index] = 0;
        self.superblock_slots[index] = Slot::default();
        self.told[index] = 0;
        self.mark_slots[index] = Slot::default();
        self.health[index] = Health::Rebuilding { row: 0 };
        self.write_superblocks();
        self.check_records()?;
        // The map must be on both disks of a pair that keeps hot rows of others.
        self.forget_map_slot(index);
        self.publish_ranges();
        Ok(old)
    }

    /// Rebuilds at most `rows` rows. Returns whether rows are left anywhere.
    pub(crate) fn rebuild_step(&mut self, rows: u64) -> Result<bool> {
        let state = |(index, health): (usize, &Health)| match health {
            Health::Rebuilding { row } => Some((index, *row)),
            _ => None,
        };
        let Some((index, from)) = self.health.iter().enumerate().find_map(state) else { return Ok(false) };
        // No write may be half done while its row is copied.
        self.settle();
        let to = (from + rows.max(1)).min(self.layout.rows);
        match self.layout.redundancy {
            Redundancy::Parity => {
                for row in from..to {
                    self.rebuild_row(index, row)?;
                }
                self.flush_copies(vec![index]);
            }
            _ => {
                let group = self.layout.group_of(index);
                let chunk = self.layout.chunk_bytes;
                self.copy(group, &[index], self.data_start + from * chunk, (to - from) * chunk)?;
            }
        }
        if self.health[index] == Health::Failed {
            return Err(Error::new(
                ErrorKind::DeviceFailed,
                format!("the new member {index} failed while it was filled"),
            ));
        }
        if to == self.layout.rows {
            self.health[index] = Health::InSync;
            self.write_superblocks();
            if self.layout.redundancy == Redundancy::Mirror {
                self.write_marks();
            }
        } else {
            self.health[index] = Health::Rebuilding { row: to };
            if from / ROWS_A_CHECKPOINT != to / ROWS_A_CHECKPOINT {
                self.write_superblocks();
            }
        }
        Ok(self.health.iter().any(|health| matches!(health, Health::Rebuilding { .. })))
    }

    fn rebuild_row(&mut self, index: usize, row: u64) -> Result<()> {
        let len = self.layout.chunk_bytes as usize;
        let group = self.layout.group_of(index);
        let bytes = self.reconstruct_member(group, row, index, 0, len, &[]).map_err(Error::from)?;
        let offset = self.data_start + row * self.layout.chunk_bytes;
        for done in self.members.perform(vec![(index, IoRequest::write(0, offset, bytes))]) {
            if done.result.is_err() {
                self.fail_member(index);
            }
        }
        Ok(())
    }

    /// Compares what members of a row hold: mirrors byte by byte, parity by XOR. The rows that differ.
    pub(crate) fn compare(&mut self, rows: std::ops::Range<u64>) -> Result<Vec<(u32, u64)>> {
        self.settle();
        self.rouse_all();
        let mut differing = Vec::new();
        let len = self.layout.chunk_bytes as usize;
        for group in 0..self.layout.groups {
            for row in rows.start..rows.end.min(self.layout.rows) {
                if !self.holds_data(group, row) {
                    continue;
                }
                let members: Vec<usize> =
                    self.layout.members(group).filter(|&at| self.is_usable(at, row)).collect();
                let offset = self.data_start + row * self.layout.chunk_bytes;
                let read = |&index: &usize| (index, IoRequest::read(0, offset, IoBuffer::zeroed(len)));
                let results = self.members.perform(members.iter().map(read).collect());
                let mut held = Vec::new();
                for done in results {
                    done.result.map_err(Error::from)?;
                    held.extend(done.buffer);
                }
                let is_equal = match self.layout.redundancy {
                    Redundancy::None => true,
                    Redundancy::Mirror => held.windows(2).all(|pair| *pair[0] == *pair[1]),
                    Redundancy::Parity if held.len() < self.layout.width as usize => true,
                    Redundancy::Parity => {
                        (0..len).all(|at| held.iter().fold(0, |sum, bytes| sum ^ bytes[at]) == 0)
                    }
                };
                if !is_equal {
                    differing.push((group, row));
                }
            }
        }
        Ok(differing)
    }
}
