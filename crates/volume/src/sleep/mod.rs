//! Mirrors whose second disks sleep: writes go to the disk that is awake and to the flash buffer, until
//! the pair wakes and the second disk gets what it missed.
//!
//! Source: Snyder et al., *QMD*, DaMoN 2011. A pair is *awake* (plain mirrors), *asleep* (the second disk
//! is [`Health::Behind`]) or *flushing* (both turn; the second gets what it missed by the [`Elevator`]
//! while writes still go to the first and the buffer, and reads to the first, which has everything).
//! When little is left, or after [`SWEEPS`] sweeps, writers wait until the rest is written: so a flush
//! ends under every load.
//!
//! Invariants:
//! 1. An acknowledged write is on two non-volatile places at every moment, unless a device is lost: both
//!    disks; or the disk that is awake and the buffer; or, from the end of a flush, both disks again.
//! 2. A pair sleeps only when both its disks hold the same and a superblock on both says which is behind.
//! 3. When a flush ends, the buffer forgets the pair durably before a write goes to both disks directly;
//!    so what is in the buffer is never older than what the second disk has.
//! 4. Reads go to the disk that is awake.
//!
//! The buffer's staging logs may lie in persistent memory ([`FlashBuffer::open_staged`]); that is a non-volatile place
//! as far as its region's guarantee goes.
//!
//! What a crash leaves: a second disk that is behind and a buffer that says what it lacks. Opening wakes
//! such pairs and writes it back before anything else; doing so twice does no harm.

pub(crate) mod buffer;
pub mod elevator;
mod format;
mod opening;
mod pairs;
mod recover;
mod staging;

pub use buffer::BufferSettings;
pub use elevator::Elevator;
pub(crate) use format::MAP_MAGIC as BUFFER_MAGIC;

use crate::policy::{PairHistory, SleepPolicy};
use buffer::Buffer;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tierstone_base::Result;
use tierstone_crash::Mutations;
use tierstone_media::BlockDevice;

/// Sweeps over the disk after which a flush ends with writers waiting.
pub const SWEEPS: u32 = 3;

/// A flash buffer that volumes share. Clones are handles on the same buffer.
pub struct FlashBuffer<D> {
    shared: Arc<Mutex<Buffer<D>>>,
}

impl<D: BlockDevice> FlashBuffer<D> {
    /// Makes an empty buffer on `device`; what was there is lost.
    ///
    /// # Errors
    /// When the settings do not fit the device, or it fails.
    pub fn create(device: D, settings: &BufferSettings) -> Result<Self> {
        Ok(Self::of(Buffer::create(device, None, settings, &[])?))
    }

    /// The same with the staging logs on `staging`, a device in persistent memory
    /// ([`tierstone_media::RegionDevice`]) of [`FlashBuffer::staging_bytes`] zeros at least.
    ///
    /// # Errors
    /// Also when `staging` is too small, or holds anything.
    pub fn create_staged(device: D, staging: D, settings: &BufferSettings) -> Result<Self> {
        Ok(Self::of(Buffer::create(device, Some(staging), settings, &[])?))
    }

    /// Opens the buffer on `device`. Cost: reads a block of addresses a unit, and the staging logs.
    ///
    /// # Errors
    /// When the device holds none, or fails; invalid input for a buffer whose blocks are staged elsewhere.
    pub fn open(device: D) -> Result<Self> {
        Ok(Self::of(Buffer::open(device, None, Mutations::none())?))
    }

    /// Opens the buffer on `device` whose staging logs lie on `staging`. A buffer that was made without, and has nothing
    /// staged, stages there from now on.
    ///
    /// # Errors
    /// As [`FlashBuffer::open`]; invalid input, and nothing is written, when `staging` is not what this buffer staged to
    /// last: then what was staged is lost, and disks that sleep have to be copied whole.
    pub fn open_staged(device: D, staging: D) -> Result<Self> {
        Ok(Self::of(Buffer::open(device, Some(staging), Mutations::none())?))
    }

    /// Either of the two with rules broken.
    ///
    /// # Errors
    /// As theirs.
    pub fn open_mutated(device: D, staging: Option<D>, mutations: Mutations) -> Result<Self> {
        Ok(Self::of(Buffer::open(device, staging, mutations)?))
    }

    /// Makes the buffer on `device` anew, of the same shape and with another identity: for one whose staging memory is
    /// lost. What it held does not count any more; volumes whose disks sleep refuse it, unless they are opened degraded
    /// and copy those disks whole.
    ///
    /// # Errors
    /// When `device` holds no buffer, or fails; when `staging` is too small, or holds anything but logs of this buffer.
    pub fn renew(device: D, staging: Option<D>) -> Result<Self> {
        Ok(Self::of(Buffer::renew(device, staging)?))
    }

    /// Bytes that staging logs take in a memory of their own.
    pub fn staging_bytes(settings: &BufferSettings) -> u64 {
        staging::bytes_needed(settings.volumes, settings.unit_blocks)
    }

    fn of(buffer: Buffer<D>) -> Self {
        FlashBuffer { shared: Arc::new(Mutex::new(buffer)) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Buffer<D>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The share of the buffer in use, 0 to 1.
    pub fn fill(&self) -> f64 {
        self.lock().fill()
    }

    /// Why the buffer cannot be used any more, if so.
    pub fn lost(&self) -> Option<String> {
        self.lock().lost().map(str::to_owned)
    }

    /// Whether extents and maps agree; for tests. Cost: looks at every block that is held.
    ///
    /// # Errors
    /// What does not agree.
    pub fn check(&self) -> std::result::Result<(), String> {
        self.lock().check()
    }
}

impl<D> Clone for FlashBuffer<D> {
    fn clone(&self) -> Self {
        FlashBuffer { shared: Arc::clone(&self.shared) }
    }
}

impl<D> fmt::Debug for FlashBuffer<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FlashBuffer")
    }
}

/// What makes disks stop and turn.
pub trait Spindle: Send {
    /// Member `index` may stop turning: nothing will be asked of it until [`Spindle::start`].
    fn stop(&mut self, index: usize);

    /// Member `index` is about to be used. A disk that starts by itself at the next request needs nothing
    /// here; that request then waits for it.
    fn start(&mut self, index: usize);
}

/// Leaves disks turning: for devices that cannot stop, and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeepTurning;

impl Spindle for KeepTurning {
    fn stop(&mut self, _index: usize) {}

    fn start(&mut self, _index: usize) {}
}

/// How pairs sleep. Plain data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SleepSettings {
    /// When pairs sleep and wake.
    pub policy: SleepPolicy,
    /// Milliseconds of an epoch. Published 1,000.
    pub epoch_ms: u64,
    /// Blocks written back in a step of a flush, at most, for each pair: the K of the source. More finish
    /// sooner and hold requests up longer.
    pub write_backs: u32,
    /// Microseconds that a disk takes to reach a place, and to pass a MiB: by these its utilisation is
    /// reckoned. Published 5,500 and 8,738.
    pub position_us: u64,
    /// See `position_us`.
    pub mib_us: u64,
}

impl SleepSettings {
    /// The published values.
    pub fn published() -> Self {
        SleepSettings {
            policy: SleepPolicy::published(0.8),
            epoch_ms: 1000,
            write_backs: 10,
            position_us: 5_500,
            mib_us: 8_738,
        }
    }
}

/// How far a pair is from plain mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairState {
    /// Both disks have everything.
    Awake,
    /// The second disk sleeps.
    Asleep,
    /// The second disk turns and gets what it missed.
    Flushing,
    /// One disk has failed, or is being filled: it cannot sleep.
    Degraded,
}

/// The sleeping side of a volume.
pub(crate) struct Sleep<D> {
    pub buffer: FlashBuffer<D>,
    pub buffer_id: u128,
    pub volume: u32,
    pub settings: SleepSettings,
    pub spindle: Box<dyn Spindle>,
    pub pairs: Vec<Pair>,
    /// What was discarded of the volume while disks slept, and not written since.
    pub discards: Vec<std::ops::Range<u64>>,
    /// Of each member: modelled busy time in this epoch, in microseconds, and where its head is.
    busy: Vec<(u64, u64)>,
    epoch_end_ms: Option<u64>,
    began_ms: u64,
}

/// What is remembered of a pair.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub flush: Option<Elevator<u64>>,
    pub history: PairHistory,
    /// Starts of its two disks.
    pub cycles: [u64; 2],
    /// The first disk, when it stands too: the pair sleeps whole.
    pub standing: Option<usize>,
}

impl<D> fmt::Debug for Sleep<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sleep").field("pairs", &self.pairs).finish_non_exhaustive()
    }
}

impl<D: BlockDevice> Sleep<D> {
    pub(crate) fn new(
        buffer: FlashBuffer<D>,
        volume: u32,
        settings: SleepSettings,
        spindle: Box<dyn Spindle>,
        pairs: usize,
    ) -> Self {
        let buffer_id = buffer.lock().id();
        Sleep {
            buffer,
            buffer_id,
            volume,
            settings,
            spindle,
            pairs: (0..pairs).map(|_| Pair::default()).collect(),
            discards: Vec::new(),
            busy: vec![(0, 0); 2 * pairs],
            epoch_end_ms: None,
            began_ms: 0,
        }
    }

    /// Whether member `index` is the first disk of a pair that sleeps whole.
    pub(crate) fn stands(&self, index: usize) -> bool {
        self.pairs.get(index / 2).is_some_and(|pair| pair.standing == Some(index))
    }

    /// Starts the first disk of a pair that sleeps whole.
    pub(crate) fn rouse(&mut self, group: u32) {
        if let Some(pair) = self.pairs.get_mut(group as usize)
            && let Some(index) = pair.standing.take()
        {
            self.spindle.start(index);
        }
    }

    /// A request goes to member `index`.
    pub(crate) fn note_use(&mut self, index: usize, offset: u64, bytes: u64) {
        self.rouse(index as u32 / 2);
        let settings = self.settings;
        if let Some((busy_us, head)) = self.busy.get_mut(index) {
            let position_us = if offset == *head { 0 } else { settings.position_us };
            *busy_us += position_us + bytes * settings.mib_us / (1 << 20);
            *head = offset + bytes;
        }
        // The pair's flush goes on beside a read or write that moved the head.
        if let Some(flush) = self.pairs.get_mut(index / 2).and_then(|pair| pair.flush.as_mut()) {
            flush.read_at(offset / tierstone_media::BLOCK_BYTES as u64);
        }
    }

    /// Whether an epoch has ended at `now_ms`, and the share of it that each member was busy.
    pub(crate) fn end_of_epoch(&mut self, now_ms: u64) -> Option<(f64, Vec<f64>)> {
        let Some(end_ms) = self.epoch_end_ms else {
            (self.began_ms, self.epoch_end_ms) = (now_ms, Some(now_ms + self.settings.epoch_ms));
            return None;
        };
        if now_ms < end_ms {
            return None;
        }
        let elapsed_us = (now_ms - end_ms + self.settings.epoch_ms) as f64 * 1000.0;
        let shares = self.busy.iter().map(|(busy_us, _)| (*busy_us as f64 / elapsed_us).min(1.0)).collect();
        self.busy.iter_mut().for_each(|(busy_us, _)| *busy_us = 0);
        self.epoch_end_ms = Some(now_ms + self.settings.epoch_ms);
        Some(((now_ms - self.began_ms) as f64 / 3_600_000.0, shares))
    }
}
