//! What pairs do: sleep, wake, flush; and what they do when a disk or the buffer is lost on the way.

use super::{PairState, SWEEPS, Sleep};
use crate::core::Core;
use crate::policy::Advice;
use crate::sleep::elevator::Elevator;
use crate::superblock::{Health, Superblock};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoRequest};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks that are written back at a time, when all that is left is: 8 MiB.
const BLOCKS_AT_ONCE: usize = 2048;
/// Neighbours go together in pieces of so many bytes.
const RUN_BYTES_MAX: usize = 1 << 20;

/// Blocks for a disk, neighbours together: the first of each run, and its bytes.
#[derive(Default)]
struct Runs(Vec<(u64, Vec<u8>)>);

impl Runs {
    /// Adds a block; those that come in order become runs.
    fn add(&mut self, block: u64, bytes: Vec<u8>) {
        match self.0.last_mut() {
            Some((first, run)) if *first + run.len() as u64 / BLOCK == block && run.len() < RUN_BYTES_MAX => {
                run.extend_from_slice(&bytes);
            }
            _ => self.0.push((block, bytes)),
        }
    }
}

/// A block for a second disk that sleeps: pair, block of the disk's data, bytes.
pub(crate) type Missed = (u32, u64, Vec<u8>);

impl<D: BlockDevice> Core<D> {
    /// The disk of a pair that is behind, if one is.
    pub(crate) fn behind(&self, group: u32) -> Option<usize> {
        self.layout.members(group).find(|&index| self.health[index] == Health::Behind)
    }

    pub(crate) fn pair_state(&self, group: u32) -> PairState {
        let flushing = |sleep: &Sleep<D>| sleep.pairs[group as usize].flush.is_some();
        match self.behind(group) {
            Some(_) if self.sleep.as_deref().is_some_and(flushing) => PairState::Flushing,
            Some(_) => PairState::Asleep,
            None if self.in_sync(group).len() == 2 => PairState::Awake,
            None => PairState::Degraded,
        }
    }

    /// Sends the second disk of an awake pair to sleep; whether it did.
    pub(crate) fn put_to_sleep(&mut self, group: u32) -> bool {
        let can = self.pair_state(group) == PairState::Awake
            && !self.is_needed_awake(group)
            && self.sleep.as_ref().is_some_and(|sleep| sleep.buffer.lost().is_none());
        if !can {
            return false;
        }
        self.settle();
        let Some(sleep) = &self.sleep else { return false };
        let cycles = sleep.pairs[group as usize].cycles;
        let first = self.layout.members(group).start;
        // The one that has started less often.
        let second = first + usize::from(cycles[1] <= cycles[0]);
        if self.pair_state(group) != PairState::Awake {
            return false;
        }
        self.health[second] = Health::Behind;
        // Both must know, should one be lost: the one that sleeps is written to for the last time.
        let offset = self.superblock_slots[second].next();
        let mut own = self.superblock(second);
        own.generation += 1;
        let done = self.members.perform(vec![(second, IoRequest::write_durable(0, offset, own.encode()))]);
        if done.iter().any(|done| done.result.is_err()) {
            self.health[second] = Health::InSync;
            self.fail_member(second);
            return false;
        }
        self.superblock_slots[second].taken(true);
        self.write_superblocks();
        if let Some(sleep) = &mut self.sleep {
            sleep.pairs[group as usize].cycles[second - first] += 1;
            sleep.spindle.stop(second);
        }
        true
    }

    /// Starts the second disk of a sleeping pair; [`Core::flush_step`] then brings it up to date.
    pub(crate) fn wake(&mut self, group: u32) {
        self.call_home(group);
        let Some(second) = self.behind(group) else { return };
        let Some(sleep) = &mut self.sleep else { return };
        sleep.rouse(group);
        if sleep.pairs[group as usize].flush.is_some() {
            return;
        }
        sleep.spindle.start(second);
        let mut flush = Elevator::new();
        for (block, sequence) in sleep.buffer.lock().held(sleep.volume, group) {
            flush.add(u64::from(block), sequence);
        }
        sleep.pairs[group as usize].flush = Some(flush);
    }

    /// One bounded step of every flush; whether any is left.
    ///
    /// # Errors
    /// When neither the buffer nor the other disk can give what a disk lacks.
    pub(crate) fn flush_step(&mut self) -> Result<bool> {
        let Some(sleep) = &self.sleep else { return Ok(false) };
        let most = sleep.settings.write_backs.max(1) as usize;
        for group in 0..self.layout.groups {
            let Some(sleep) = &mut self.sleep else { return Ok(false) };
            let Some(flush) = &mut sleep.pairs[group as usize].flush else { continue };
            if flush.len() <= most || flush.turns() >= SWEEPS {
                self.settle();
                self.finish_flush(group)?;
                continue;
            }
            let batch: Vec<(u64, u64)> = (0..most).map_while(|_| flush.next_entry()).collect();
            let blocks: Vec<u64> = batch.iter().map(|(block, _)| *block).collect();
            if let Err(error) = self.write_back(group, &blocks) {
                self.put_back(group, batch);
                return Err(error);
            }
        }
        Ok(self.sleep.as_ref().is_some_and(|sleep| sleep.pairs.iter().any(|pair| pair.flush.is_some())))
    }

    /// Entries of a flush that were not written back are still to be.
    fn put_back(&mut self, group: u32, batch: Vec<(u64, u64)>) {
        let Some(sleep) = &mut self.sleep else { return };
        if let Some(flush) = &mut sleep.pairs[group as usize].flush {
            batch.into_iter().for_each(|(block, sequence)| flush.put_back(block, sequence));
        }
    }

    /// Writes blocks of the buffer to the disk that is behind; a disk that takes none has failed. When the
    /// buffer cannot be read, the other disk gives the bytes.
    fn write_back(&mut self, group: u32, blocks: &[u64]) -> Result<()> {
        let Some(second) = self.behind(group) else { return Ok(()) };
        let mut runs = Runs::default();
        for &block in blocks {
            if let Some(bytes) = self.newest(group, block)? {
                runs.add(block, bytes);
            }
        }
        if !self.write_runs(second, runs) {
            self.lose_second(group);
        }
        Ok(())
    }

    /// Writes runs to a disk, durably; whether it took them. One flush for all: each durable write would wait for the disk to
    /// come round.
    fn write_runs(&mut self, second: usize, runs: Runs) -> bool {
        let write = |(first, run): (u64, Vec<u8>)| {
            (second, IoRequest::write(0, self.data_start + first * BLOCK, IoBuffer::from_slice(&run)))
        };
        if runs.0.is_empty() {
            return true;
        }
        let writes = runs.0.into_iter().map(write).collect();
        let mut steps = [writes, vec![(second, IoRequest::flush(0))]].into_iter();
        steps.all(|requests| self.members.perform(requests).iter().all(|done| done.result.is_ok()))
    }

    /// What a pair holds in a block that its second disk lacks.
    fn newest(&mut self, group: u32, block: u64) -> Result<Option<Vec<u8>>> {
        let Some(sleep) = &self.sleep else { return Ok(None) };
        let address = (group, u32::try_from(block).unwrap_or(u32::MAX));
        let buffered = sleep.buffer.lock().read(sleep.volume, address);
        let error = match buffered {
            Ok(bytes) => return Ok(bytes),
            Err(error) => error,
        };
        let Some(&first) = self.in_sync(group).first() else { return Err(error) };
        self.drain_parts();
        let read = IoRequest::read(0, self.data_start + block * BLOCK, IoBuffer::zeroed(BLOCK_BYTES));
        let done = self.members.perform(vec![(first, read)]).pop();
        let done = done.filter(|done| done.result.is_ok()).and_then(|done| done.buffer);
        done.map(|bytes| Some(bytes.to_vec())).ok_or(error)
    }

    /// The second disk of a pair is lost: the other goes on alone.
    pub(crate) fn lose_second(&mut self, group: u32) {
        if let Some(second) = self.behind(group) {
            self.fail_member(second);
        }
        self.forget(group);
    }

    /// The buffer needs nothing of a pair any more: what became of its disks is recorded. In a broken volume it is not, so that
    /// the buffer keeps what the next opening looks for.
    fn forget(&mut self, group: u32) {
        if let Some(sleep) = &mut self.sleep {
            sleep.pairs[group as usize].flush = None;
            if self.is_broken {
                return;
            }
            // When the flash fails here, the next opening finds no disk behind and drops what is left.
            let _ = sleep.buffer.lock().flushed(sleep.volume, group);
        }
    }

    /// Writes everything that the second disk of a pair lacks, and makes the pair plain mirrors. No
    /// request may be between the disks and the buffer.
    pub(crate) fn finish_flush(&mut self, group: u32) -> Result<()> {
        let Some(second) = self.behind(group) else { return Ok(()) };
        let Some(sleep) = &self.sleep else { return Ok(()) };
        let held = sleep.buffer.lock().held(sleep.volume, group);
        // What was written back in earlier steps and not again since is there already.
        let pending: Vec<u64> = match &sleep.pairs[group as usize].flush {
            Some(flush) => flush.addresses().collect(),
            None => held.iter().map(|(block, _)| u64::from(*block)).collect(),
        };
        for blocks in pending.chunks(BLOCKS_AT_ONCE) {
            self.write_back(group, blocks)?;
        }
        if self.health[second] == Health::Behind {
            self.tell_woken(group, second);
        }
        if self.health[second] != Health::Behind {
            return Ok(());
        }
        if !self.mutations.is_on("the buffer forgets a pair before it is written directly") {
            let Some(sleep) = &mut self.sleep else { return Ok(()) };
            let volume = sleep.volume;
            let forgotten = sleep.buffer.lock().flushed(volume, group);
            if forgotten.is_err() && sleep.buffer.lost().is_none() {
                return forgotten;
            }
        }
        if let Some(sleep) = &mut self.sleep {
            sleep.pairs[group as usize].flush = None;
        }
        self.health[second] = Health::InSync;
        self.write_superblocks();
        Ok(())
    }

    /// The disk that was behind is given the generation of the others before it counts, so that it is not taken for one
    /// that was away; first the other, which may have stood.
    fn tell_woken(&mut self, group: u32, second: usize) {
        if self.partial.is_some() {
            self.catch_up(&self.in_sync(group));
        }
        self.catch_up(&[second]);
        if self.health[second] == Health::Failed {
            self.forget(group);
        }
    }

    /// The disk of a sleeping pair that was awake is lost: the other wakes, gets what the buffer has for
    /// it, and goes on alone. Whether it can.
    pub(crate) fn promote(&mut self, group: u32) -> bool {
        let Some(second) = self.behind(group) else { return false };
        self.wake(group);
        let held = match &self.sleep {
            Some(sleep) => sleep.buffer.lock().held(sleep.volume, group),
            None => return false,
        };
        for blocks in held.chunks(BLOCKS_AT_ONCE) {
            let mut runs = Runs::default();
            for (block, _) in blocks {
                let Some(sleep) = &self.sleep else { return false };
                let Ok(Some(bytes)) = sleep.buffer.lock().read(sleep.volume, (group, *block)) else {
                    return false;
                };
                runs.add(u64::from(*block), bytes);
            }
            if !self.write_runs(second, runs) {
                return false;
            }
        }
        self.catch_up(&[second]);
        if self.health[second] != Health::Behind {
            return false;
        }
        for index in self.layout.members(group) {
            self.health[index] = if index == second { Health::InSync } else { Health::Failed };
        }
        self.record_failure();
        if self.is_broken {
            return false;
        }
        self.forget(group);
        true
    }

    // ---- writes of sleeping pairs --------------------------------------------------------------

    /// Makes what sleeping disks miss durable a second time: in the buffer, or, when that is full or
    /// lost, on the disks themselves, which then wake. For each block in order: whether it is.
    pub(crate) fn stage_blocks(&mut self, missed: Vec<Missed>) -> bool {
        if self.mutations.is_on("what a sleeping disk misses goes to the buffer") {
            return true;
        }
        let narrow = |(group, block, bytes): &Missed| {
            ((*group, u32::try_from(*block).unwrap_or(u32::MAX)), bytes.clone())
        };
        let blocks: Vec<_> = missed.iter().map(narrow).collect();
        let Some(sleep) = &mut self.sleep else { return false };
        let (volume, buffer) = (sleep.volume, sleep.buffer.clone());
        let staged = buffer.lock().append(volume, &blocks);
        if staged.is_ok() {
            for ((group, block), _) in &blocks {
                let sequence = buffer.lock().sequence_of(volume, (*group, *block)).unwrap_or(0);
                if let Some(flush) = &mut sleep.pairs[*group as usize].flush {
                    flush.add(u64::from(*block), sequence);
                }
            }
            return true;
        }
        // No room, or no flash: the disks have to wake now, and the writers wait for them.
        self.drain_parts();
        for group in 0..self.layout.groups {
            if self.behind(group).is_some() {
                self.wake(group);
                if self.finish_flush(group).is_err() {
                    self.lose_second(group);
                }
            }
        }
        let mut all = true;
        for (group, block, bytes) in missed {
            all &= self.write_directly(group, block, &bytes);
        }
        all
    }

    /// Writes a block to whichever disks of a pair count now.
    fn write_directly(&mut self, group: u32, block: u64, bytes: &[u8]) -> bool {
        let offset = self.data_start + block * BLOCK;
        let members = self.in_sync(group);
        let write =
            |&index: &usize| (index, IoRequest::write_durable(0, offset, IoBuffer::from_slice(bytes)));
        let done = self.members.perform(members.iter().map(write).collect());
        let mut good = false;
        for (index, done) in members.into_iter().zip(done) {
            match done.result {
                Ok(()) => good = true,
                Err(_) if self.has_other(index) => self.fail_member(index),
                Err(_) => {}
            }
        }
        good
    }

    // ---- time ----------------------------------------------------------------------------------

    /// Ends the epoch if its time has come, and sends pairs to sleep or wakes them.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        let Some(sleep) = &mut self.sleep else { return };
        let Some((hours, shares)) = sleep.end_of_epoch(now_ms) else { return };
        let fill = if sleep.buffer.lost().is_some() { 1.0 } else { sleep.buffer.fill() };
        let policy = sleep.settings.policy;
        let keeper = self.keeper(&shares);
        for group in 0..self.layout.groups {
            let (state, behind) = (self.pair_state(group), self.behind(group));
            let members = self.layout.members(group);
            let busiest = members.clone().map(|index| shares[index]).fold(0.0, f64::max);
            let awake: f64 = members.filter(|index| Some(*index) != behind).map(|index| shares[index]).sum();
            let Some(sleep) = &mut self.sleep else { return };
            let history = &mut sleep.pairs[group as usize].history;
            let advice = match state {
                PairState::Asleep if keeper == Some(group) => Advice::Wake,
                _ if keeper == Some(group) => Advice::Stay,
                PairState::Awake => history.awake(&policy, busiest, hours),
                PairState::Asleep => history.asleep(&policy, awake, fill),
                PairState::Flushing | PairState::Degraded => {
                    history.between();
                    Advice::Stay
                }
            };
            match advice {
                Advice::Sleep => _ = self.put_to_sleep(group),
                Advice::Wake => self.wake(group),
                Advice::Stay => {}
            }
        }
        self.tick_whole(hours, &shares, keeper);
    }

    // ---- opening -------------------------------------------------------------------------------

    /// Brings every disk that is behind up to date; drops what the buffer has for others.
    pub(crate) fn recover_pairs(&mut self) -> Result<u64> {
        let mut flushed = 0;
        for group in 0..self.layout.groups {
            if self.behind(group).is_none() {
                self.forget(group);
                continue;
            }
            flushed += 1;
            if self.in_sync(group).is_empty() {
                if !self.promote(group) {
                    let message =
                        format!("pair {group}: the disk that was behind cannot be brought up to date");
                    return Err(Error::new(ErrorKind::DeviceFailed, message));
                }
                continue;
            }
            self.wake(group);
            self.finish_flush(group)?;
        }
        Ok(flushed)
    }

    /// The superblock that a volume with this buffer is opened by names another.
    pub(crate) fn check_buffer(superblock: &Superblock, given: u128) -> Result<()> {
        let is_behind = superblock.states.contains(&Health::Behind);
        if is_behind && superblock.buffer != given {
            let message = format!(
                "disks sleep, and what they lack is in flash buffer {:032x}; given was {given:032x}: give the right one, \
                 or open degraded to copy the disks whole",
                superblock.buffer
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(())
    }
}
