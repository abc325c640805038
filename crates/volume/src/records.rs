//! What a volume writes about itself: superblocks that name failed members, and marks of regions that
//! may differ.
//!
//! Invariants:
//! 1. [`Core::fail_member`] returns when every other member durably says so, or the volume is broken.
//! 2. A broken volume acknowledges nothing any more, and writes no superblock any more.
//! 3. Every member that counts gets every generation (see [`crate::judge`]).

use crate::core::{Core, INTENT_START};
use crate::layout::{Layout, Redundancy};
use crate::superblock::Health;
use tierstone_base::{Error, ErrorKind, Result};
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
        // A failure must be known wherever an opening may look: also on disks that stand.
        self.rouse_and_tell(&[index]);
        self.health[index] = Health::Failed;
        // On the way others may have failed without which the group cannot be: then nothing of it is recorded.
        self.is_broken |= short_group(&self.layout, &self.health).is_some();
        if !self.mutations.is_on("failure is recorded before the acknowledgement") {
            self.record_failure();
        }
    }

    /// Writes a new generation of the superblock to all members that count; those that fail are named as
    /// [`Core::record_failure`] does.
    pub(crate) fn write_superblocks(&mut self) {
        self.write_generations(1);
    }

    /// Writes two generations: both slots name what has failed, so that one that rots revives nobody, and who missed them
    /// lags by more than a crash explains.
    pub(crate) fn record_failure(&mut self) {
        self.write_generations(2);
    }

    fn write_generations(&mut self, count: u32) {
        let mut left = count;
        while left > 0 && !self.is_broken {
            let targets = self.written_members();
            // The power is off, or nothing is left that could tell.
            if targets.is_empty() {
                return;
            }
            self.generation += 1;
            left -= 1;
            let failed = self.tell(&targets);
            if failed.len() == targets.len() {
                self.is_broken = true;
            } else if !failed.is_empty() {
                self.rouse_and_tell(&failed);
                self.name_failed(&failed);
                left = 2;
            }
        }
    }

    /// Gives members the generation that the others have, before they count by it.
    pub(crate) fn catch_up(&mut self, members: &[usize]) {
        if self.is_broken || members.is_empty() {
            return;
        }
        let failed = self.tell(members);
        if !failed.is_empty() {
            self.name_failed(&failed);
            self.record_failure();
        }
    }

    /// Starts all disks that stand because their pairs sleep whole, and gives this generation to all that have missed some
    /// while they stood, `but` apart: also to those that were started since.
    fn rouse_and_tell(&mut self, but: &[usize]) {
        self.rouse_all();
        let lags = |index: &usize| self.told[*index] < self.generation && !but.contains(index);
        let lagging: Vec<usize> = self.written_members().into_iter().filter(lags).collect();
        if lagging.is_empty() || self.is_broken {
            return;
        }
        let failed = self.tell(&lagging);
        // Who calls writes the next generation.
        self.name_failed(&failed);
    }

    /// Writes the superblock of this generation to `targets`, durably; those that did not take it.
    fn tell(&mut self, targets: &[usize]) -> Vec<usize> {
        let write = |&index: &usize| {
            let offset = self.superblock_slots[index].next();
            (index, IoRequest::write_durable(0, offset, self.superblock(index).encode()))
        };
        let requests = targets.iter().map(write).collect();
        let results = self.members.perform(requests);
        let mut failed = Vec::new();
        for (&index, done) in targets.iter().zip(&results) {
            self.superblock_slots[index].taken(done.result.is_ok());
            match done.result {
                Ok(()) => self.told[index] = self.generation,
                Err(_) => failed.push(index),
            }
        }
        failed
    }

    /// Members that did not take a record do not count any more. If a group cannot do without them all, they keep what is
    /// recorded of them, and nothing is acknowledged any more: recorded, the volume would be lost for good.
    fn name_failed(&mut self, failed: &[usize]) {
        let mut states = self.health.clone();
        failed.iter().for_each(|&index| states[index] = Health::Failed);
        if short_group(&self.layout, &states).is_some() {
            self.is_broken = true;
        } else {
            self.health = states;
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

    /// Refuses when a record could not be written that everything relies on.
    pub(crate) fn check_records(&self) -> Result<()> {
        match self.is_broken {
            true => Err(Error::new(ErrorKind::DeviceFailed, "volume: no member takes its records any more")),
            false => Ok(()),
        }
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

/// The first group that cannot serve from its members in these states: which, how many are good, how many it needs.
pub(crate) fn short_group(layout: &Layout, states: &[Health]) -> Option<(u32, u32, u32)> {
    let needed = match layout.redundancy {
        Redundancy::None | Redundancy::Mirror => 1,
        Redundancy::Parity => layout.width - 1,
    };
    let counts = |index: &usize| matches!(states[*index], Health::InSync | Health::Behind);
    let good = |group: u32| layout.members(group).filter(counts).count() as u32;
    (0..layout.groups).map(|group| (group, good(group), needed)).find(|(_, good, needed)| good < needed)
}
