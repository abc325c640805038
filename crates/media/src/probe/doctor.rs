//! The examination behind `tierstone doctor`: what each directory's device is, what it does in a
//! bounded time, and advice.
//!
//! Only what was measured here stands in the reports; the published numbers are a separate list.

use super::durable::{ProbeReport, durable_method};
use super::filesystem::FileSystem;
use super::load::{Load, Rate, run};
use super::memory::{
    MemoryReport, RegionPlaceReport, examine_memory, examine_place, examine_region, examine_source,
};
use super::profiles::{PublishedProfile, published_profiles};
use super::scratch::{Scratch, one, prepare};
use super::system::DeviceFacts;
use crate::file::{DurableMethod, FileDevice, uring_refusal};
use crate::region::{RegionSource, begins_as_region};
use crate::{BlockDevice, Guarantee, IoKind, IoRequest};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tierstone_base::units::{format_duration_us, format_size};
use tierstone_base::{Clock, Error, ErrorKind, Result, SeededRandom, SystemClock};

/// The size of the segments that are measured, in bytes.
const SEGMENT_BYTES: u64 = 8 << 20;
/// One transfer of the sequential loops, in bytes.
const TRANSFER_BYTES: usize = 1 << 20;

/// What to examine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorSettings {
    /// The directories, each must exist; files of regions and DAX devices, of which only the regions are examined.
    pub directories: Vec<PathBuf>,
    /// Names of regions as stores have them ([`RegionSource`]), of which only the regions are examined.
    pub regions: Vec<String>,
    /// Time for the measurements of one directory in milliseconds, without the second of
    /// [`durable_method`] and without preparing files: 100 or more; 5,000 gives steady numbers.
    pub budget_ms: u64,
    /// The most that is written to a directory at a time in bytes, at least 8 MiB, and never more
    /// than a quarter of what is free. Larger files see past small caches.
    pub file_bytes: u64,
    /// How the measured writes are made durable; `None`: as a new store would, by what probing finds.
    pub durable_method: Option<DurableMethod>,
}

impl DoctorSettings {
    /// Five seconds and 256 MiB for each of `directories`.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        DoctorSettings {
            directories,
            regions: Vec::new(),
            budget_ms: 5_000,
            file_bytes: 256 << 20,
            durable_method: None,
        }
    }

    /// Refuses places that are not there and what should be a region and is none, before anything is measured.
    ///
    /// # Errors
    /// `InvalidInput` for a missing place, and for a file that does not begin as a region does; for others and for devices
    /// as [`crate::region::MappedRegion::open`].
    pub fn check(&self) -> Result<()> {
        for path in &self.directories {
            let found = std::fs::metadata(path).map_err(|error| {
                let message =
                    format!("cannot examine {}: {error}; name a place that is there", path.display());
                Error::new(ErrorKind::InvalidInput, message)
            })?;
            if !found.is_dir() {
                examine_place(path).map_err(|error| of_place(path, error))?;
            }
        }
        for name in &self.regions {
            examine_named(name)?;
        }
        Ok(())
    }
}

fn examine_named(name: &str) -> Result<RegionPlaceReport> {
    let source = name.parse::<RegionSource>()?;
    examine_source(&source).map_err(|error| match &source {
        RegionSource::Path(path) => of_place(path, error),
        RegionSource::Emulated { .. } => error,
    })
}

/// What never was a region is a wrong place, not a damaged one.
fn of_place(path: &Path, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Incompatible if !begins_as_region(path) => {
            Error::new(ErrorKind::InvalidInput, error.message())
        }
        _ => error,
    }
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DoctorReport {
    /// Why io_uring is refused here; `None` when it works.
    pub io_uring_refusal: Option<String>,
    /// One report a directory (not of regions' files), in the order of the settings.
    pub directories: Vec<DirectoryReport>,
    /// What byte-addressable regions survive at each place, directories first, in the order of the settings.
    pub regions: Vec<RegionPlaceReport>,
    /// What holds of byte-addressable regions on this machine.
    pub memory: MemoryReport,
    /// Published numbers of other devices, for comparison: never measured here.
    pub published: Vec<PublishedProfile>,
}

/// What was found out about one directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectoryReport {
    /// The directory.
    pub directory: PathBuf,
    /// Its file system.
    pub file_system: String,
    /// What durable writes survive in it.
    pub guarantee: Guarantee,
    /// What the kernel says about its device.
    pub facts: DeviceFacts,
    /// Bytes free for this user.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Whether files can bypass the page cache.
    pub direct_io: bool,
    /// What was measured; `None` when measuring failed (see `advice`).
    pub measured: Option<Measured>,
    /// What to do, or to know, most important first.
    pub advice: Vec<String>,
}

/// What was measured in one directory, through the store's own device code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// `io-uring` or `threads`.
    pub backend: String,
    /// How much was written and read back at random, in bytes.
    pub file_bytes: u64,
    /// 4 KiB reads at random places, one at a time.
    pub read_alone: Rate,
    /// The same, 32 in flight.
    pub read_parallel: Rate,
    /// Bytes a second, 1 MiB reads in order, 4 in flight.
    pub sequential_read_bytes_per_second: f64,
    /// Bytes a second, 1 MiB writes in order over prepared segments, 4 in flight, with a flush.
    pub sequential_write_bytes_per_second: f64,
    /// 4 KiB durable writes over prepared segments, 1, 4 and 16 in flight.
    pub durable: Vec<Rate>,
    /// How the durable writes above were made durable.
    pub method_used: DurableMethod,
    /// Which durable method a new store would use here, and why.
    pub durable_method: ProbeReport,
}

/// Examines all directories, one after the other. What fails in one becomes advice, so that the
/// others are examined all the same. Leaves nothing behind.
///
/// # Errors
/// As [`DoctorSettings::check`]; then nothing was measured.
pub fn examine(settings: &DoctorSettings) -> Result<DoctorReport> {
    settings.check()?;
    let io_uring_refusal = uring_refusal();
    let directories = settings
        .directories
        .iter()
        .filter(|path| path.is_dir())
        .map(|directory| examine_directory(directory, settings, io_uring_refusal.as_deref()))
        .collect();
    let mut regions: Vec<_> = settings.directories.iter().map(|path| examine_region(path)).collect();
    for name in &settings.regions {
        regions.push(examine_named(name)?);
    }
    let (memory, published) = (examine_memory(), published_profiles().to_vec());
    Ok(DoctorReport { io_uring_refusal, directories, regions, memory, published })
}

fn examine_directory(directory: &Path, settings: &DoctorSettings, uring: Option<&str>) -> DirectoryReport {
    let file_system = FileSystem::of(directory);
    let space = rustix::fs::statvfs(directory);
    let bytes = |blocks: u64| space.as_ref().map_or(0, |space| blocks.saturating_mul(space.f_frsize));
    let mut report = DirectoryReport {
        directory: directory.to_path_buf(),
        file_system: file_system.as_ref().map_or("unknown", |found| found.name).to_string(),
        guarantee: file_system.as_ref().map_or(Guarantee::Unknown, FileSystem::guarantee),
        facts: DeviceFacts::of(directory).unwrap_or_default(),
        free_bytes: bytes(space.as_ref().map_or(0, |space| space.f_bavail)),
        total_bytes: bytes(space.as_ref().map_or(0, |space| space.f_blocks)),
        direct_io: false,
        measured: None,
        advice: Vec::new(),
    };
    match measure(directory, settings, report.free_bytes) {
        Ok((measured, direct_io)) => {
            report.measured = Some(measured);
            report.direct_io = direct_io;
        }
        Err(error) => report.advice.push(format!("measuring failed: {error}")),
    }
    report.advice.extend(file_system.ok().and_then(|found| found.advice()));
    advise(&mut report, uring);
    report
}

fn measure(directory: &Path, settings: &DoctorSettings, free_bytes: u64) -> Result<(Measured, bool)> {
    let durable_method = durable_method(directory)?;
    let file_bytes = settings.file_bytes.min(free_bytes / 4).max(SEGMENT_BYTES);
    let segments = (file_bytes / SEGMENT_BYTES).min(1 << 20) as u32;
    let scratch = Scratch::new(directory, SEGMENT_BYTES, segments)?;
    let direct_io = scratch.store().properties().members.iter().all(|member| member.direct_io);
    let method_used = settings.durable_method.unwrap_or(durable_method.method);
    let mut loops = Loops {
        device: scratch.device(method_used)?,
        clock: SystemClock::new(),
        random: SeededRandom::new(3),
        share_us: settings.budget_ms.max(100) * 1000 / 7,
        written: 0,
    };
    let sequential_write_bytes_per_second = loops.write_in_order(segments)?;
    let mut durable = Vec::new();
    for depth in [1, 4, 16] {
        durable.push(loops.small(IoKind::WriteDurable, depth)?);
    }
    let read_alone = loops.small(IoKind::Read, 1)?;
    let read_parallel = loops.small(IoKind::Read, 32)?;
    let measured = Measured {
        backend: match &loops.device {
            FileDevice::Uring(_) => "io-uring".to_string(),
            FileDevice::Threads(_) => "threads".to_string(),
        },
        file_bytes: loops.written,
        read_alone,
        read_parallel,
        sequential_read_bytes_per_second: loops.read_in_order()?,
        sequential_write_bytes_per_second,
        durable,
        method_used,
        durable_method,
    };
    Ok((measured, direct_io))
}

/// The loops over one scratch store.
struct Loops {
    device: FileDevice,
    clock: SystemClock,
    random: SeededRandom,
    /// Time for one loop, in microseconds.
    share_us: u64,
    /// How much has been written from the first segment on, in bytes.
    written: u64,
}

impl Loops {
    fn load(&mut self, load: Load) -> Result<Rate> {
        Ok(run(&mut self.device, &self.clock, &mut self.random, &load)?)
    }

    /// Fills segment after segment while there is time; only the writing and flushing counts.
    fn write_in_order(&mut self, segments: u32) -> Result<f64> {
        let geometry = self.device.geometry();
        let mut spent_us = 0;
        for segment in 0..segments {
            prepare(&mut self.device, segment)?;
            let begun = self.clock.now().monotonic_us;
            self.load(Load {
                kind: IoKind::Write,
                start: geometry.segment_offset(segment),
                len: SEGMENT_BYTES,
                request_bytes: TRANSFER_BYTES,
                random: false,
                depth: 4,
                budget_us: u64::MAX,
                most_requests: SEGMENT_BYTES / TRANSFER_BYTES as u64,
            })?;
            one(&mut self.device, IoRequest::flush(0))?;
            spent_us += self.clock.now().monotonic_us - begun;
            self.written += SEGMENT_BYTES;
            if spent_us > self.share_us {
                break;
            }
        }
        Ok(self.written as f64 * 1e6 / spent_us.max(1) as f64)
    }

    fn small(&mut self, kind: IoKind, depth: u32) -> Result<Rate> {
        let start = self.device.geometry().segment_offset(0);
        let (len, budget_us) = (self.written, self.share_us);
        let request_bytes = 4096;
        self.load(Load {
            kind,
            start,
            len,
            request_bytes,
            random: true,
            depth,
            budget_us,
            most_requests: u64::MAX,
        })
    }

    fn read_in_order(&mut self) -> Result<f64> {
        let load = Load {
            kind: IoKind::Read,
            start: self.device.geometry().segment_offset(0),
            len: self.written,
            request_bytes: TRANSFER_BYTES,
            random: false,
            depth: 4,
            budget_us: self.share_us,
            most_requests: u64::MAX,
        };
        Ok(self.load(load)?.per_second * TRANSFER_BYTES as f64)
    }
}

/// What follows from the findings.
/// Of what the kernel calls a turning disk, where a read at random took so long. It is not believed against what was measured.
fn of_turning(read_us: Option<u64>) -> String {
    match read_us.filter(|us| *us < TURNING_READ_US_MIN) {
        None => "the kernel calls this a turning disk: expect 5 to 15 ms a random read".to_owned(),
        Some(read_us) => format!(
            "the kernel calls this a turning disk, but a read took {read_us} us here, and no such disk is so quick: disks of \
             virtual machines often say so and do not turn, or a cache in front of it has served these reads"
        ),
    }
}

/// What a disk that turns needs for a read at random at least, in microseconds: half a turn of the quickest ones is 2 ms.
const TURNING_READ_US_MIN: u64 = 1_000;

fn advise(report: &mut DirectoryReport, uring_refusal: Option<&str>) {
    let mut advice = Vec::new();
    if let Some(reason) = uring_refusal {
        advice.push(format!(
            "the kernel refuses io_uring ({reason}): threads do the work and cost more CPU a request; allow it \
             (sysctl kernel.io_uring_disabled, the container's seccomp profile)"
        ));
    }
    if !report.direct_io && report.measured.is_some() {
        advice.push("files cannot bypass the page cache here: memory is used twice".to_string());
    }
    if report.facts.rotational == Some(true) {
        advice.push(of_turning(report.measured.as_ref().map(|found| found.read_alone.p50_us)));
    }
    match report.facts.write_cache.as_deref() {
        Some("write back") => advice.push(
            "the device has a volatile write cache: a durable write waits for it to be emptied; drives with \
             power-loss protection say write through"
                .to_string(),
        ),
        Some("write through") => advice.push(
            "the kernel sees no volatile write cache: it sends no flushes, and durability rests on the device \
             (in a virtual machine: on the host) telling the truth"
                .to_string(),
        ),
        _ => {}
    }
    if report.facts.physical_block_bytes.is_some_and(|bytes| bytes > 4096) {
        advice.push(
            "physical blocks are larger than 4 KiB: small durable writes are read-modify-write".to_string(),
        );
    }
    if report.free_bytes < report.total_bytes / 20 {
        advice.push(format!("only {} are free: a store needs room to clean", format_size(report.free_bytes)));
    }
    if let Some(slow) = report.measured.as_ref().and_then(|found| found.durable.first())
        && slow.p99_us > 10_000
    {
        let p99 = format_duration_us(slow.p99_us as f64);
        advice.push(format!("one durable write in a hundred takes over {p99}: acknowledgements wait for it"));
    }
    if let Some(found) = &report.measured {
        let probed = &found.durable_method;
        advice.push(format!("a new store here uses {}: {}", probed.method.text(), probed.reason));
        if found.method_used != probed.method {
            advice.push(format!("what is measured here uses {}, as asked for", found.method_used.text()));
        }
    }
    report.advice.extend(advice);
}

#[cfg(test)]
#[path = "doctor_test.rs"]
mod doctor_test;
