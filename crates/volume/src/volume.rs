//! The face of a volume: a block device made of others.

use crate::core::Core;
use crate::layout::Redundancy;
use crate::open::{self, OpenSettings, Recovery, SleepSetup, VolumeSettings};
use crate::partial::{PartialPair, RangeClass, RangeStatus};
use crate::policy::WholePolicy;
use crate::sleep::PairState;
use crate::superblock::Health;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tierstone_base::Result;
use tierstone_media::{BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, Wait};

/// A handle on a volume. Clones are further handles, each with completions of its own; they share the
/// members behind a lock, so that a handle that waits for a member lets the others wait too.
pub struct Volume<D: BlockDevice> {
    shared: Arc<Mutex<Shared<D>>>,
    handle: u32,
}

struct Shared<D> {
    core: Core<D>,
    next_handle: u32,
}

/// What is true of a volume now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Of each member.
    pub members: Vec<Health>,
    /// Of the superblocks.
    pub generation: u64,
    /// Whether some member is failed or not filled yet.
    pub is_degraded: bool,
    /// Reads that failed, a member.
    pub read_errors: Vec<u32>,
}

impl<D: BlockDevice> Volume<D> {
    /// Makes a volume of `devices` and opens it.
    ///
    /// # Errors
    /// When the devices do not fit the settings, hold a volume already, or fail.
    pub fn create(devices: Vec<D>, settings: &VolumeSettings) -> Result<Self> {
        let devices = open::create(devices, settings)?;
        Ok(Self::open(devices.into_iter().map(Some).collect(), &OpenSettings::default())?.0)
    }

    /// Opens the volume of `devices`, given in their order; `None` for one that is not there. Cost after
    /// a crash: copying the marked regions, or reading the parity journals.
    ///
    /// # Errors
    /// Invalid input for devices that are mixed up, missing, foreign or stale (see
    /// [`OpenSettings::degraded`]); failed device when a group has too few members left.
    pub fn open(devices: Vec<Option<D>>, settings: &OpenSettings) -> Result<(Self, Recovery)> {
        Self::open_with(devices, settings, None)
    }

    /// Opens a volume of pairs of mirrors whose second disks may sleep. Disks that slept when it was last
    /// used are woken and brought up to date first.
    ///
    /// # Errors
    /// As [`Volume::open`]; also for another buffer than the one that holds what sleeping disks lack.
    pub fn open_sleeping(
        devices: Vec<Option<D>>,
        settings: &OpenSettings,
        sleep: SleepSetup<D>,
    ) -> Result<(Self, Recovery)> {
        Self::open_with(devices, settings, Some(sleep))
    }

    fn open_with(
        devices: Vec<Option<D>>,
        settings: &OpenSettings,
        sleep: Option<SleepSetup<D>>,
    ) -> Result<(Self, Recovery)> {
        let (core, recovery) = open::open(devices, settings, sleep)?;
        let shared = Arc::new(Mutex::new(Shared { core, next_handle: 1 }));
        Ok((Volume { shared, handle: 0 }, recovery))
    }

    fn lock(&self) -> MutexGuard<'_, Shared<D>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is true now.
    pub fn status(&self) -> Status {
        let core = &self.lock().core;
        Status {
            members: core.health.clone(),
            generation: core.generation,
            is_degraded: core.health.iter().any(|health| !matches!(health, Health::InSync | Health::Behind)),
            read_errors: core.read_errors.clone(),
        }
    }

    /// Names a member failed, as if its device had: before it is pulled. The other disk of its pair, if that sleeps, is brought
    /// up to date first. Waits for the requests under way.
    ///
    /// # Errors
    /// When there is none of that number, its group cannot do without it, or no member takes the record; when neither the flash
    /// buffer nor the member can give what the other disk lacks.
    pub fn fail(&self, index: usize) -> Result<()> {
        let refuse =
            |message| Err(tierstone_base::Error::new(tierstone_base::ErrorKind::InvalidInput, message));
        let core = &mut self.lock().core;
        core.settle();
        let count = core.health.len();
        if index >= count {
            return refuse(format!("the volume has {count} members, from number 0"));
        }
        let pair = core.layout.group_of(index);
        if core.behind(pair).is_some_and(|second| second != index) {
            core.wake(pair);
            core.finish_flush(pair)?;
            core.finish_move(pair)?;
        }
        if !core.has_other(index) {
            return refuse(format!(
                "member {index} cannot be spared: no other member that is whole has what lies there"
            ));
        }
        if core.health[index] == Health::Behind {
            core.lose_second(pair);
        } else {
            core.fail_member(index);
        }
        core.check_records()
    }

    /// Puts `device` in the place of failed member `index`; [`Volume::maintain`] fills it. Returns the
    /// old device, if it is still there.
    ///
    /// # Errors
    /// When the member has not failed, or the device is too small or fails.
    pub fn replace(&self, index: usize, device: D) -> Result<Option<D>> {
        let core = &mut self.lock().core;
        core.settle();
        core.replace(index, device)
    }

    /// Gives the device of failed member `index` back, if it is still there: so that one of the same name can be opened
    /// for [`Volume::replace`]. Waits for the requests under way.
    ///
    /// # Errors
    /// When the member has not failed.
    pub fn release(&self, index: usize) -> Result<Option<D>> {
        let core = &mut self.lock().core;
        core.settle();
        core.release(index)
    }

    /// Does at most `rows` rows of filling new members, and one step of each flush of a waking disk. Returns
    /// whether something is left. Waits for the requests under way.
    ///
    /// # Errors
    /// When the new member fails, or rows cannot be read.
    pub fn maintain(&self, rows: u64) -> Result<bool> {
        let core = &mut self.lock().core;
        let flushes = core.flush_step()?;
        core.discard_later();
        let rebuilds = core.rebuild_step(rows)?;
        Ok(core.move_step(rows)? || rebuilds || flushes)
    }

    /// [`Volume::maintain`] without filling: for who fills more slowly than the members could.
    ///
    /// # Errors
    /// As [`Volume::maintain`].
    pub fn maintain_without_filling(&self, rows: u64) -> Result<bool> {
        let core = &mut self.lock().core;
        let flushes = core.flush_step()?;
        core.discard_later();
        Ok(core.move_step(rows)? || flushes)
    }

    /// Tells the time, so that epochs end and pairs sleep and wake by their policy. At least once an epoch.
    pub fn tick(&self, now_ms: u64) {
        self.lock().core.tick(now_ms);
    }

    /// Sends the second disk of a pair to sleep now, whatever the policy says; whether it did. Waits for
    /// the requests under way.
    pub fn sleep(&self, pair: u32) -> bool {
        let core = &mut self.lock().core;
        pair < core.layout.groups && core.put_to_sleep(pair)
    }

    /// Wakes the second disk of a pair now; [`Volume::maintain`] brings it up to date.
    pub fn wake(&self, pair: u32) {
        let core = &mut self.lock().core;
        if pair < core.layout.groups {
            core.wake(pair);
        }
    }

    /// The state of each pair and how often its two disks have slept; empty unless disks may sleep.
    pub fn pairs(&self) -> Vec<(PairState, [u64; 2])> {
        let core = &self.lock().core;
        let cycles = |group: usize| core.sleep.as_ref().map(|sleep| sleep.pairs[group].cycles);
        (0..core.layout.groups)
            .filter_map(|group| Some((core.pair_state(group), cycles(group as usize)?)))
            .collect()
    }

    /// Declares bytes of the volume hot or cold, durably (see [`crate::partial`]). Everything is hot that
    /// was not declared cold. Cold ranges are rounded inwards to chunks, hot ones outwards; 256 runs of
    /// cold chunks fit. Pairs that sleep whole and are concerned come home first, which may take long: it
    /// waits for all their rows, and for the requests under way.
    ///
    /// # Errors
    /// Invalid input for a range outside the volume, too many ranges, or a volume without
    /// [`VolumeSettings::spare_bytes`]; failed device when rows cannot be read or the map not be written.
    pub fn declare(&self, bytes: Range<u64>, class: RangeClass) -> Result<()> {
        self.lock().core.declare(&bytes, class)
    }

    /// What a range of the volume is now, in runs of one class, rising; what lies behind the end is left
    /// out. Who sees that a part would start a disk may do the rest first.
    pub fn range_status(&self, bytes: Range<u64>) -> Vec<RangeStatus> {
        self.lock().core.range_status(&bytes)
    }

    /// Sends a pair to sleep whole, whatever the policy says: its second disk now; [`Volume::maintain`]
    /// copies its hot rows to a pair that is awake and then stops its first disk. Waits for the requests
    /// under way. [`Volume::wake`] brings it back.
    ///
    /// # Errors
    /// Invalid input when the pair cannot sleep, or no pair that is awake has room.
    pub fn sleep_whole(&self, pair: u32) -> Result<()> {
        self.lock().core.begin_whole(pair)
    }

    /// When [`Volume::tick`] sends pairs to sleep whole; `None`, the default, for never. One pair, the
    /// busiest at the first tick, then stays awake; it takes three pairs and something cold.
    ///
    /// # Errors
    /// Invalid input for a volume without [`VolumeSettings::spare_bytes`].
    pub fn set_whole_policy(&self, policy: Option<WholePolicy>) -> Result<()> {
        self.lock().core.set_whole_policy(policy)
    }

    /// What is true of each pair that may sleep whole; empty without [`VolumeSettings::spare_bytes`].
    pub fn partial_pairs(&self) -> Vec<PartialPair> {
        self.lock().core.partial_pairs()
    }

    /// How many rows a member has: the range of [`Volume::compare`].
    pub fn rows(&self) -> u64 {
        self.lock().core.layout.rows
    }

    /// Reads rows of all members that count and compares them; gives (group, row) of those that differ.
    /// What was prepared or discarded and not written since may differ. Waits for the requests under way.
    ///
    /// # Errors
    /// When a member cannot be read.
    pub fn compare(&self, rows: std::ops::Range<u64>) -> Result<Vec<(u32, u64)>> {
        self.lock().core.compare(rows)
    }

    /// Waits for all requests, flushes, and writes that nothing is left to repair. Other handles must not
    /// be used afterwards.
    ///
    /// # Errors
    /// When a flush or write fails; the next opening then repairs as after a crash.
    pub fn close(mut self) -> Result<()> {
        {
            let core = &mut self.lock().core;
            core.settle();
            for pair in 0..core.layout.groups {
                core.wake(pair);
                core.finish_flush(pair)?;
                core.finish_move(pair)?;
            }
        }
        let mut done = Vec::new();
        self.submit(&mut vec![IoRequest::flush(0)]);
        self.complete(Wait::All, &mut done);
        for done in done {
            done.result?;
        }
        let core = &mut self.lock().core;
        core.mend_torn()?;
        if core.layout.redundancy == Redundancy::Mirror {
            core.intents.forget_all();
            core.write_marks();
        }
        core.check_records()?;
        core.clean = true;
        core.write_superblocks();
        core.check_records()
    }
}

impl<D: BlockDevice> Clone for Volume<D> {
    fn clone(&self) -> Self {
        let handle = {
            let mut shared = self.lock();
            shared.next_handle += 1;
            shared.next_handle
        };
        Volume { shared: Arc::clone(&self.shared), handle }
    }
}

impl<D: BlockDevice> Drop for Volume<D> {
    fn drop(&mut self) {
        let handle = self.handle;
        self.lock().core.forget_handle(handle);
    }
}

impl<D: BlockDevice> fmt::Debug for Volume<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Volume").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl<D: BlockDevice> BlockDevice for Volume<D> {
    fn geometry(&self) -> Geometry {
        self.lock().core.geometry
    }

    fn guarantee(&self) -> Guarantee {
        let core = &self.lock().core;
        let devices = (0..core.health.len()).filter_map(|index| core.members.device(index));
        devices.map(BlockDevice::guarantee).min().unwrap_or(Guarantee::Emulated)
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        // A durable write touches some members and says nothing of the others.
        DurableWriteScope::OwnSectors
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        let handle = self.handle;
        self.lock().core.submit(handle, requests);
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        let handle = self.handle;
        self.lock().core.complete(handle, wait, completions)
    }

    fn in_flight(&self) -> usize {
        self.lock().core.in_flight(self.handle)
    }
}
