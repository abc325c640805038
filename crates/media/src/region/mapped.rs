//! A region that is a mapping: of a file on DAX, of an ordinary file, of a DAX device, of anonymous memory.

use super::header::{Header, REGION_HEADER_BYTES};
use super::instructions::{self, FlushMethod, STREAMS};
use super::mapping::Mapping;
use super::{LINE_BYTES, Region, WORD_BYTES, device, making, place, words};
use crate::Guarantee;
use crate::lock::LockedFile;
use crate::probe::FileSystem;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tierstone_base::{Error, ErrorKind, Result};

/// What the caller wants of the backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionDemand {
    /// Whatever it gives; [`Region::guarantee`] says what that is.
    AnyGuarantee,
    /// Durability through the loss of power, or an error.
    Durable,
}

/// How a region is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSettings {
    /// What is demanded of the backing.
    pub demand: RegionDemand,
    /// How lines are written back; `None`: the best that CPU and memory have. [`FlushMethod::Msync`] makes a
    /// file without DAX as durable as its file system is, at the cost of a system call a fence.
    pub flush: Option<FlushMethod>,
    /// The least size in bytes that is of use to the caller; a smaller region is refused.
    pub least_bytes: u64,
}

impl Default for RegionSettings {
    fn default() -> Self {
        RegionSettings { demand: RegionDemand::AnyGuarantee, flush: None, least_bytes: LINE_BYTES }
    }
}

/// How far a store must come to survive the loss of power, as the kernel tells of the machine's persistent
/// memory (`/sys/bus/nd/devices/region*/persistence_domain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PersistenceDomain {
    /// The kernel does not say, or there is none.
    Unknown,
    /// The memory controller (ADR): lines must leave the caches.
    MemoryController,
    /// The caches (eADR): a fence is enough.
    Caches,
}

impl PersistenceDomain {
    /// Its short name, as reports write it.
    pub fn name(self) -> &'static str {
        match self {
            PersistenceDomain::Unknown => "unknown",
            PersistenceDomain::MemoryController => "memory-controller",
            PersistenceDomain::Caches => "caches",
        }
    }

    /// What it means, for a person.
    pub fn text(self) -> &'static str {
        match self {
            PersistenceDomain::Unknown => "not known",
            PersistenceDomain::MemoryController => "the memory controller (ADR): lines must be written back",
            PersistenceDomain::Caches => "the caches (eADR): a fence is enough",
        }
    }

    /// The weakest of the domains of this machine's persistent memories.
    pub fn of_machine() -> PersistenceDomain {
        Self::of_devices(Path::new("/sys/bus/nd/devices"))
    }

    /// The same of the devices in a directory as the kernel shows it: a region for which it names no domain (memory set
    /// aside at the kernel's start, say) may be the one that is used.
    fn of_devices(devices: &Path) -> PersistenceDomain {
        let Ok(devices) = std::fs::read_dir(devices) else {
            return PersistenceDomain::Unknown;
        };
        let regions =
            devices.flatten().filter(|device| device.file_name().as_encoded_bytes().starts_with(b"region"));
        let domains = regions.map(|region| {
            let text = std::fs::read_to_string(region.path().join("persistence_domain"));
            text.map_or(PersistenceDomain::Unknown, |text| PersistenceDomain::of_text(&text))
        });
        domains.min().unwrap_or(PersistenceDomain::Unknown)
    }

    /// What the kernel's word for it means.
    pub(super) fn of_text(text: &str) -> PersistenceDomain {
        match text.trim() {
            "cpu_cache" => PersistenceDomain::Caches,
            "memory_controller" => PersistenceDomain::MemoryController,
            _ => PersistenceDomain::Unknown,
        }
    }
}

/// What a region was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionReport {
    /// Its size in bytes, the header not counted.
    pub bytes: u64,
    /// The file system of its file, or `device-dax`; `None` for anonymous memory.
    pub file_system: Option<&'static str>,
    /// Whether loads and stores reach the medium without a page cache: the kernel granted MAP_SYNC, or it is a DAX device.
    pub map_sync: bool,
    /// What the kernel says of the machine's persistent memory.
    pub domain: PersistenceDomain,
    /// How lines are written back.
    pub flush: FlushMethod,
    /// What durable bytes survive.
    pub guarantee: Guarantee,
}

impl RegionReport {
    /// One line for a person.
    pub fn text(&self) -> String {
        let place = self.file_system.unwrap_or("anonymous memory");
        let flush = self.flush.name();
        let promise = match self.guarantee {
            Guarantee::Emulated => "emulated: nothing survives the process",
            Guarantee::ProcessCrash => "emulated: survives a process crash, not power",
            guarantee => guarantee.text(),
        };
        let sync = match (self.file_system, self.map_sync) {
            (Some(device::DEVICE_DAX), _) => "no page cache",
            (_, true) => "MAP_SYNC",
            (_, false) => "no MAP_SYNC",
        };
        format!("{} bytes on {place}, {sync}, {flush}: {promise}", self.bytes)
    }
}

/// A mapped region. Loads and stores cost what memory costs; a write-back one instruction a line; a fence one
/// instruction, or a system call with [`FlushMethod::Msync`].
#[derive(Debug)]
pub struct MappedRegion {
    mapping: Mapping,
    /// Words of the file before the region.
    skipped_words: usize,
    report: RegionReport,
    unsynced: Mutex<Option<Range<usize>>>,
    failed: AtomicBool,
    /// Holds the lock of the file.
    _file: Option<LockedFile>,
}

impl MappedRegion {
    /// Makes the file `path` with a region of `bytes` bytes (rounded up to whole lines) of zeros, its space
    /// taken from the file system, and maps it.
    ///
    /// # Errors
    /// `InvalidInput` when the file exists, something else does, or it is smaller than demanded, `NoSpace`, `Unsupported` when durability
    /// is demanded and the file system is not DAX.
    ///
    /// A DAX device is zeroed and taken whole, whatever `bytes` below its size says; its first page must be zeros.
    pub fn create(path: &Path, bytes: u64, settings: &RegionSettings) -> Result<MappedRegion> {
        if device::is_character_device(path) {
            let settings = RegionSettings { least_bytes: settings.least_bytes.max(bytes), ..*settings };
            return Ok(device::map(path, device::Access::Create, &settings)?.0);
        }
        place::refuse_foreign(path)?;
        let region_bytes = bytes.next_multiple_of(LINE_BYTES);
        refuse_small(region_bytes, settings, &path.display().to_string())?;
        let file = making::make(path, region_bytes)?;
        let made = Self::map(path, file, region_bytes, settings);
        if made.is_err() {
            // Nothing was put into it yet: what cannot be used is not left behind.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Maps the region in the file `path`.
    ///
    /// # Errors
    /// `Incompatible` (no region, another version), `Corrupt` (torn header, wrong size), `Busy` (mapped
    /// already), `InvalidInput` (no such file, no file, too small), `Unsupported` (durability demanded, not DAX), `NoSpace` (the file
    /// has holes, and its file system no room to fill them).
    pub fn open(path: &Path, settings: &RegionSettings) -> Result<MappedRegion> {
        let name = path.display().to_string();
        let failed =
            |error: std::io::Error| Error::from(error).context(&format!("cannot open region {name}"));
        if device::is_character_device(path) {
            return Ok(device::map(path, device::Access::Open, settings)?.0);
        }
        place::refuse_foreign(path)?;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let mut file = lock(file, &name)?;
        let file_bytes = file.metadata().map_err(failed)?.len();
        let mut bytes = [0; 32];
        if file_bytes < REGION_HEADER_BYTES {
            let message = format!(
                "{name} has {file_bytes} bytes, too few for the header of a region; name another file"
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        file.read_exact(&mut bytes).map_err(failed)?;
        let header = Header::decode(&bytes, file_bytes, &name)?;
        refuse_small(header.region_bytes, settings, &name)?;
        take_space(&file, file_bytes, &name)?;
        making::tidy(path);
        Self::map(path, file, header.region_bytes, settings)
    }

    /// A region of `bytes` bytes (rounded up to whole lines) of zeros in anonymous memory: for measurements
    /// at the speed of DRAM, and for tests.
    ///
    /// # Errors
    /// `Unsupported` when durability is demanded or the CPU has no such flush, `NoMemory`.
    pub fn anonymous(bytes: u64, settings: &RegionSettings) -> Result<MappedRegion> {
        let bytes = bytes.next_multiple_of(LINE_BYTES);
        refuse_small(bytes, settings, "anonymous memory")?;
        let flush = chosen_flush(settings, FlushMethod::detect())?;
        if settings.demand == RegionDemand::Durable {
            let message = "anonymous memory survives nothing; name a file on DAX";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let flush = if flush == FlushMethod::Msync { FlushMethod::FenceOnly } else { flush };
        let mapping = Mapping::anonymous(bytes as usize).map_err(|error| {
            let size = tierstone_base::units::format_size(bytes);
            Error::from(error).context(&format!("cannot take {size} of memory for an emulated region"))
        })?;
        let report = RegionReport {
            bytes,
            file_system: None,
            map_sync: false,
            domain: PersistenceDomain::Unknown,
            flush,
            guarantee: Guarantee::Emulated,
        };
        Ok(Self::with(mapping, 0, report, None))
    }

    fn map(
        path: &Path,
        file: LockedFile,
        region_bytes: u64,
        settings: &RegionSettings,
    ) -> Result<MappedRegion> {
        let name = path.display();
        let file_system = FileSystem::of(path)?;
        let bytes = (region_bytes + REGION_HEADER_BYTES) as usize;
        let (mapping, map_sync) = match Mapping::of_file(&file, bytes, true) {
            Ok(mapping) => (mapping, true),
            Err(_) => (Mapping::of_file(&file, bytes, false)?, false),
        };
        let domain = PersistenceDomain::of_machine();
        let best = match (map_sync, domain) {
            (true, PersistenceDomain::Caches) => FlushMethod::FenceOnly,
            _ => FlushMethod::detect(),
        };
        let flush = chosen_flush(settings, best)?;
        let guarantee = guarantee_of(map_sync, domain, flush, file_system.guarantee());
        refuse_weak(settings, guarantee, file_system.name, &name.to_string())?;
        if flush == FlushMethod::Msync {
            // What was stored before, by a process that was killed or that wrote back in another way, is seen by whoever reads
            // the region now; fences write only what is stored from now on.
            file.sync_all()
                .map_err(|error| Error::from(error).context(&format!("cannot write region {name} back")))?;
        }
        let report = RegionReport {
            bytes: region_bytes,
            file_system: Some(file_system.name),
            map_sync,
            domain,
            flush,
            guarantee,
        };
        Ok(Self::with(mapping, (REGION_HEADER_BYTES / WORD_BYTES) as usize, report, Some(file)))
    }

    pub(super) fn with(
        mapping: Mapping,
        skipped_words: usize,
        report: RegionReport,
        file: Option<LockedFile>,
    ) -> MappedRegion {
        let (unsynced, failed) = (Mutex::new(None), AtomicBool::new(false));
        MappedRegion { mapping, skipped_words, report, unsynced, failed, _file: file }
    }

    /// What it was found to be.
    pub fn report(&self) -> &RegionReport {
        &self.report
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.mapping.words()[self.skipped_words..]
    }

    #[inline]
    fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD_BYTES), "the word at {offset} is not aligned");
        &self.words()[(offset / WORD_BYTES) as usize]
    }

    /// The words that `offset .. offset + len` touches, for the pages that `msync` will write.
    fn note_unsynced(&self, offset: u64, len: u64) {
        let start = self.skipped_words * WORD_BYTES as usize + offset as usize;
        let mut unsynced = self.unsynced.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let old = unsynced.take().unwrap_or(start..start + len as usize);
        *unsynced = Some(old.start.min(start)..old.end.max(start + len as usize));
    }

    /// Writes the pages noted; all later fences fail once one did, because what is durable is then unknown.
    fn sync(&self) -> Result<()> {
        // The lock is held while the pages are written: what another thread noted is durable when its own
        // fence returns, whichever of the two wrote it.
        let mut unsynced = self.unsynced.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(range) = unsynced.take()
            && self.mapping.msync(range.start, range.len()).is_err()
        {
            self.failed.store(true, Ordering::Release);
        }
        if self.failed.load(Ordering::Acquire) {
            let message =
                "msync failed: what is durable in the region is unknown; stop, check the device, reopen";
            return Err(Error::new(ErrorKind::DeviceFailed, message));
        }
        Ok(())
    }
}

impl Region for MappedRegion {
    #[inline]
    fn bytes(&self) -> u64 {
        self.report.bytes
    }

    fn guarantee(&self) -> Guarantee {
        self.report.guarantee
    }

    #[inline]
    fn load_word(&self, offset: u64) -> u64 {
        u64::from_le(self.word(offset).load(Ordering::Acquire))
    }

    #[inline]
    fn store_word(&self, offset: u64, value: u64) {
        self.word(offset).store(value.to_le(), Ordering::Release);
    }

    #[inline]
    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        let word = self.word(offset);
        let result =
            word.compare_exchange(expected.to_le(), new.to_le(), Ordering::AcqRel, Ordering::Acquire);
        result.map(u64::from_le).map_err(u64::from_le)
    }

    #[inline]
    fn load(&self, offset: u64, into: &mut [u8]) {
        words::load(self.words(), offset as usize, into);
    }

    #[inline]
    unsafe fn in_place(&self, offset: u64, len: usize) -> Option<&[u8]> {
        assert!(offset <= self.report.bytes, "outside the region");
        let start = self.skipped_words * WORD_BYTES as usize + offset as usize;
        // SAFETY: the caller promises that nobody stores there; the mapping checks the range.
        Some(unsafe { self.mapping.bytes(start, len) })
    }

    #[inline]
    fn prefetch(&self, offset: u64, len: u64) {
        let words = self.words();
        for line in (offset / LINE_BYTES..(offset + len).div_ceil(LINE_BYTES)).take(4) {
            if let Some(word) = words.get((line * (LINE_BYTES / WORD_BYTES)) as usize) {
                tierstone_base::prefetch::prefetch_read(word);
            }
        }
    }

    #[inline]
    fn store(&self, offset: u64, bytes: &[u8]) {
        words::store(self.words(), offset as usize, bytes, |word, value| {
            word.store(value, Ordering::Relaxed);
        });
    }

    #[inline]
    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        if !STREAMS || self.report.flush == FlushMethod::Msync {
            self.store(offset, bytes);
            return self.write_back(offset, bytes.len() as u64);
        }
        words::store(self.words(), offset as usize, bytes, instructions::stream_word);
        // Part words at the ends go through the cache.
        let end = offset + bytes.len() as u64;
        if !offset.is_multiple_of(WORD_BYTES) {
            self.write_back(offset, 1);
        }
        if !end.is_multiple_of(WORD_BYTES) {
            self.write_back(end - 1, 1);
        }
    }

    #[inline]
    fn write_back(&self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let touched = (offset / WORD_BYTES) as usize..(offset + len).div_ceil(WORD_BYTES) as usize;
        let words = &self.words()[touched];
        match self.report.flush {
            FlushMethod::Msync => self.note_unsynced(offset, len),
            method => instructions::write_back(method, words),
        }
    }

    #[inline]
    fn fence(&self) -> Result<()> {
        instructions::fence();
        if self.report.flush == FlushMethod::Msync { self.sync() } else { Ok(()) }
    }
}

/// What durable bytes survive. Without MAP_SYNC only `msync` reaches a device; lines that leave the caches
/// reach the page cache.
pub(super) fn guarantee_of(
    map_sync: bool,
    domain: PersistenceDomain,
    flush: FlushMethod,
    by_msync: Guarantee,
) -> Guarantee {
    match (map_sync, flush) {
        (_, FlushMethod::Msync) => by_msync,
        (false, _) => Guarantee::ProcessCrash,
        (true, FlushMethod::FenceOnly) if domain != PersistenceDomain::Caches => Guarantee::ProcessCrash,
        (true, _) if domain == PersistenceDomain::Unknown => Guarantee::Unknown,
        (true, _) => Guarantee::PowerFail,
    }
}

/// Refuses a region that gives less than was demanded.
pub(super) fn refuse_weak(
    settings: &RegionSettings,
    guarantee: Guarantee,
    place: &str,
    name: &str,
) -> Result<()> {
    if settings.demand == RegionDemand::Durable && guarantee != Guarantee::PowerFail {
        let message = format!(
            "{name} lies on {place} and would be {} only, durability through the loss of power was demanded; use a file \
             on a DAX mount, demand less, or choose msync on a disk's file system",
            guarantee.name()
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

pub(super) fn chosen_flush(settings: &RegionSettings, best: FlushMethod) -> Result<FlushMethod> {
    let flush = settings.flush.unwrap_or(best);
    if !flush.is_available() {
        let message =
            format!("this machine has no {}; it has {}", flush.name(), FlushMethod::detect().name());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(flush)
}

pub(super) fn refuse_small(bytes: u64, settings: &RegionSettings, name: &str) -> Result<()> {
    if bytes < settings.least_bytes || bytes == 0 {
        let message = format!(
            "the region in {name} has {bytes} bytes, at least {} are needed; create a larger one",
            settings.least_bytes
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Has the file system give a file of `bytes` bytes all its blocks: stores to a hole for which it has none end the process.
fn take_space(file: &File, bytes: u64, name: &str) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::from(error).context(&format!("region {name} has holes that its file system cannot fill"))
    };
    if file.metadata().map_err(failed)?.blocks() * 512 < bytes {
        fallocate(file, FallocateFlags::empty(), 0, bytes).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

pub(super) fn lock(file: File, name: &str) -> Result<LockedFile> {
    LockedFile::lock(file).map_err(|(_, error)| match error {
        None => Error::new(
            ErrorKind::Busy,
            format!("{name} is mapped already, here or by another process; close that one"),
        ),
        Some(error) => Error::from(error).context(&format!("cannot lock {name}")),
    })
}

#[cfg(test)]
#[path = "mapped_test.rs"]
mod mapped_test;
