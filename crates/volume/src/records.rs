//! What a volume writes about itself: superblocks that name failed members, and marks of regions that
//! may differ.
//!
//! Invariants:
//! 1. [`Core::fail_member`] returns when every other member durably says so, or the volume is broken.
//! 2. A broken volume acknowledges nothing any more.

use crate::core::{Core, INTENT_START};
use crate::layout::Redundancy;
use crate::superblock::Health;
use tierstone_media::{BlockDevice, IoRequest};

impl<D: BlockDevice> Core<D> {
    /// Whether what `index` holds in `row` counts.
    pub(crate) fn is_usable(&self, index: usize, row: u64) -> bool {
        match self.health[index] {
            Health::InSync => true,
            Health::Rebuilding { row: rebuilt } => row < rebuilt,
            Health::Failed | Health::Behind => false,
        }
    }

    pub(crate) fn in_sync(&self, group: u32) -> Vec<usize> {
        self.layout.members(group).filter(|&index| self.health[index] == Health::InSync).collect()
    }

    /// Members that superblocks and marks are written to: all that are awake and not failed.
    pub(crate) fn written_members(&self) -> Vec<usize> {
        let stands = |index: usize| self.sleep.as_ref().is_some_and(|sleep| sleep.stands(index));
        let counts = |index: &usize| {
            matches!(self.health[*index], Health::InSync | Health::Rebuilding { .. }) && !stands(*index)
        };
        (0..self.health.len()).filter(counts).collect()
    }

    /// Names `index` failed, durably on all others, before it returns; more may fail on the way.
    pub(crate) fn fail_member(&mut self, index: usize) {
        if self.health[index] == Health::Failed {
            return;
        }
        self.health[index] = Health::Failed;
        // A failure must be known wherever an opening may look: also on disks that stand.
        self.rouse_all();
        if !self.mutations.is_on("failure is recorded before the acknowledgement") {
            self.write_superblocks();
        }
    }

    /// Writes a new generation of the superblock to all members that count; those that fail are named
    /// in the next generation.
    pub(crate) fn write_superblocks(&mut self) {
        loop {
            self.generation += 1;
            let targets = self.written_members();
            let write = |&index: &usize| {
                let offset = self.superblock_slots[index].next();
                (index, IoRequest::write_durable(0, offset, self.superblock(index).encode()))
            };
            let requests = targets.iter().map(write).collect();
            let results = self.members.perform(requests);
            for (&index, done) in targets.iter().zip(&results) {
                self.superblock_slots[index].taken(done.result.is_ok());
            }
            let failed: Vec<usize> = targets
                .iter()
                .zip(&results)
                .filter(|(_, done)| done.result.is_err())
                .map(|(&index, _)| index)
                .collect();
            // All at once: the power is off, or nothing is left that could tell.
            if targets.is_empty() {
                return;
            }
            if failed.len() == targets.len() {
                self.is_broken = true;
                return;
            }
            if failed.is_empty() {
                return;
            }
            for index in failed {
                self.health[index] = Health::Failed;
            }
            self.rouse_all();
        }
    }

    /// Writes the marks of regions to all members that count, durably.
    pub(crate) fn write_marks(&mut self) {
        if self.mutations.is_on("regions are marked before they are written") {
            return;
        }
        let block = self.intents.encode(self.volume);
        let targets = self.written_members();
        let write = |&index: &usize| {
            let offset = INTENT_START + self.mark_slots[index].next();
            (index, IoRequest::write_durable(0, offset, block.clone()))
        };
        let requests = targets.iter().map(write).collect();
        let results = self.members.perform(requests);
        for (&index, done) in targets.iter().zip(&results) {
            self.mark_slots[index].taken(done.result.is_ok());
        }
        let failed: Vec<bool> = results.iter().map(|done| done.result.is_err()).collect();
        self.recorded(&targets, &failed);
    }

    /// A record was written to `targets`, of which some have `failed`: these do not count any more. If none has
    /// it, nothing can be recorded any more.
    pub(crate) fn recorded(&mut self, targets: &[usize], failed: &[bool]) {
        if failed.iter().all(|&failed| failed) {
            self.is_broken = true;
            return;
        }
        for (&index, &failed) in targets.iter().zip(failed) {
            if failed && self.has_other(index) {
                self.fail_member(index);
            }
        }
    }

    /// Whether the group of `index` can do without it.
    pub(crate) fn has_other(&self, index: usize) -> bool {
        let group = self.layout.group_of(index);
        let others = self.in_sync(group).into_iter().filter(|&other| other != index).count();
        match self.layout.redundancy {
            Redundancy::None => false,
            Redundancy::Mirror => others >= 1,
            Redundancy::Parity => others + 1 >= self.layout.width as usize,
        }
    }
}
