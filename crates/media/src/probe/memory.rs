//! What this machine guarantees of byte-addressable regions: its instructions, its persistence domain, its DAX devices,
//! and what a region at a given place would survive.
//!
//! Regions are made, mapped and removed for this, since only the mapping tells whether the kernel grants MAP_SYNC. A
//! device is never mapped: somebody may use it. The name of the file is `tierstone-probe-region-*`; one that a crash
//! leaves behind can be deleted.

use super::emulator::{EmulatorReport, examine_emulator};
use crate::Guarantee;
use crate::region::{
    DaxDevice, FlushMethod, LINE_BYTES, MappedRegion, PersistenceDomain, RegionDemand, RegionReport,
    RegionSettings, RegionSource,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::Result;

/// Where the kernel lists DAX devices.
const DAX_DEVICES: &str = "/sys/bus/dax/devices";
/// The most DAX devices that are listed.
const DAX_DEVICES_MAX: usize = 64;
/// The size of the region that is made to try a directory, in bytes.
const TRIED_BYTES: u64 = 64 << 10;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// What holds of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryReport {
    /// The instructions that write lines back which the CPU has, best first.
    pub instructions: Vec<String>,
    /// How far a store must come to survive the loss of power, as the kernel says of persistent memory; `None` when
    /// it does not say, or there is none.
    pub persistence_domain: Option<PersistenceDomain>,
    /// The DAX devices.
    pub dax_devices: Vec<DaxReport>,
    /// How exact the emulator of slower memories is here; measured.
    pub emulator: EmulatorReport,
}

/// A DAX device of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DaxReport {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes; `None` when it cannot be told.
    pub bytes: Option<u64>,
    /// What a region on it would survive, or why it cannot be one.
    pub promise: std::result::Result<RegionPromise, String>,
}

/// What is really guaranteed of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionPromise {
    /// Its file system, `device-dax` or `anonymous`.
    pub place: String,
    /// Whether loads and stores reach the medium without a page cache.
    pub map_sync: bool,
    /// How lines are written back.
    pub flush: String,
    /// What durable bytes survive.
    pub guarantee: Guarantee,
    /// Whether durable bytes survive the crash of the process.
    pub survives_process_crash: bool,
    /// Whether they survive the loss of power; `None`: nobody here can know.
    pub survives_power_loss: Option<bool>,
}

impl RegionPromise {
    /// What a region's report amounts to.
    pub fn of(report: &RegionReport) -> RegionPromise {
        RegionPromise {
            place: report.file_system.unwrap_or("anonymous").to_owned(),
            map_sync: report.map_sync,
            flush: report.flush.name().to_owned(),
            guarantee: report.guarantee,
            survives_process_crash: report.guarantee.survives_process_crash(),
            survives_power_loss: report.guarantee.survives_power_loss(),
        }
    }

    /// One line for a person.
    pub fn text(&self) -> String {
        let crash =
            if self.survives_process_crash { "survives a process crash" } else { "lost with the process" };
        let power = match self.survives_power_loss {
            Some(true) => "survives a loss of power as far as the device keeps its word",
            Some(false) => "is lost with power",
            None => "what a loss of power leaves is not known",
        };
        let mapping = match (self.place.as_str(), self.map_sync) {
            ("device-dax", _) => "DAX device",
            (_, true) => "MAP_SYNC",
            (_, false) => "no MAP_SYNC",
        };
        format!("{} on {}, {mapping}: {crash}, {power}", self.flush, self.place)
    }
}

/// What a region at one place survives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionPlaceReport {
    /// The directory, the region's file or the device; of emulated memory its name.
    pub path: PathBuf,
    /// With the best that the CPU has.
    pub by_lines: std::result::Result<RegionPromise, String>,
    /// With `msync`, a system call a fence; `None` where it says nothing new.
    pub by_msync: Option<RegionPromise>,
}

/// Examines the machine. Measures the emulator, which takes up to half a second.
pub fn examine_memory() -> MemoryReport {
    let all = [FlushMethod::Clwb, FlushMethod::ClflushOpt, FlushMethod::Clflush, FlushMethod::DcCvap];
    let has = all.into_iter().filter(|method| method.is_available());
    let domain = PersistenceDomain::of_machine();
    MemoryReport {
        instructions: has.map(|method| method.name().to_owned()).collect(),
        persistence_domain: Some(domain).filter(|domain| *domain != PersistenceDomain::Unknown),
        dax_devices: dax_devices(Path::new(DAX_DEVICES)),
        emulator: examine_emulator(),
    }
}

fn dax_devices(list: &Path) -> Vec<DaxReport> {
    let entries = std::fs::read_dir(list).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names.truncate(DAX_DEVICES_MAX);
    let report = |name: std::ffi::OsString| {
        let path = Path::new("/dev").join(name);
        let device = DaxDevice::of_path(&path);
        DaxReport {
            bytes: device.as_ref().ok().map(|device| device.bytes),
            promise: device.as_ref().map(promise_of).map_err(|error| error.message().to_owned()),
            path,
        }
    };
    names.into_iter().map(report).collect()
}

fn promise_of(device: &DaxDevice) -> RegionPromise {
    let (flush, guarantee) = device.promise();
    RegionPromise {
        place: "device-dax".to_owned(),
        map_sync: true,
        flush: flush.name().to_owned(),
        guarantee,
        survives_process_crash: guarantee.survives_process_crash(),
        survives_power_loss: guarantee.survives_power_loss(),
    }
}

/// What a region at `path` survives: in a directory, in a region's file, on a device.
pub fn examine_region(path: &Path) -> RegionPlaceReport {
    examine_place(path).unwrap_or_else(|error| {
        let by_lines = Err(error.message().to_owned());
        RegionPlaceReport { path: path.to_owned(), by_lines, by_msync: None }
    })
}

/// The same, where a place that is none is an error.
///
/// # Errors
/// As [`MappedRegion::open`] and, in a directory, [`MappedRegion::create`].
pub fn examine_place(path: &Path) -> Result<RegionPlaceReport> {
    if let Ok(device) = DaxDevice::of_path(path) {
        let by_lines = Ok(promise_of(&device));
        return Ok(RegionPlaceReport { path: path.to_owned(), by_lines, by_msync: None });
    }
    let is_directory = path.is_dir();
    let look = |flush: Option<FlushMethod>| -> Result<RegionPromise> {
        let settings = settings(flush);
        let region = match is_directory {
            true => tried(path, &settings)?,
            false => MappedRegion::open(path, &settings)?,
        };
        Ok(RegionPromise::of(region.report()))
    };
    let by_lines = look(None)?;
    let by_msync = look(Some(FlushMethod::Msync)).ok();
    let by_msync = by_msync.filter(|promise| promise.guarantee != by_lines.guarantee);
    Ok(RegionPlaceReport { path: path.to_owned(), by_lines: Ok(by_lines), by_msync })
}

/// What the region that stores and logs would open by this name survives. Emulated memory is not taken for it.
///
/// # Errors
/// As [`MappedRegion::open`]: a directory is no region.
pub fn examine_source(source: &RegionSource) -> Result<RegionPlaceReport> {
    match source {
        RegionSource::Path(path) if path.is_dir() => {
            // Refused with its reason.
            MappedRegion::open(path, &settings(None))?;
            examine_place(path)
        }
        RegionSource::Path(path) => examine_place(path),
        RegionSource::Emulated { .. } => {
            let line = MappedRegion::anonymous(LINE_BYTES, &settings(None))?;
            let by_lines = Ok(RegionPromise::of(line.report()));
            Ok(RegionPlaceReport { path: source.to_string().into(), by_lines, by_msync: None })
        }
    }
}

fn settings(flush: Option<FlushMethod>) -> RegionSettings {
    RegionSettings { demand: RegionDemand::AnyGuarantee, flush, least_bytes: LINE_BYTES }
}

/// A small region in `directory`, whose file is gone already.
fn tried(directory: &Path, settings: &RegionSettings) -> Result<MappedRegion> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("tierstone-probe-region-{}-{number}", std::process::id()));
    let region = MappedRegion::create(&path, TRIED_BYTES, settings)?;
    std::fs::remove_file(&path)?;
    Ok(region)
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod memory_test;
