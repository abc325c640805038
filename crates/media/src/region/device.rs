//! Regions on `/dev/daxX.Y`: persistent memory as a character device, mapped whole, without a file system.
//!
//! What the kernel says in `/sys/dev/char/MAJOR:MINOR` decides: that it is a DAX device, its size and alignment, and
//! whether persistent memory lies below (a parent with a persistence domain) or memory that forgets, which is mapped
//! the same way and never called durable.
//!
//! Crash: a device is zeroed and fenced before its header is written; one whose creation was cut off has an empty
//! header, is refused at opening, and may be created again.

use super::header::{Header, REGION_HEADER_BYTES};
use super::mapped::{self, MappedRegion, PersistenceDomain, RegionReport, RegionSettings};
use super::mapping::Mapping;
use super::{FlushMethod, WORD_BYTES, instructions, words};
use crate::Guarantee;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::{Error, ErrorKind, Result};

/// The name under which reports show such a region's place.
pub(super) const DEVICE_DAX: &str = "device-dax";
/// Where the kernel tells about devices.
const SYSFS: &str = "/sys";
/// The smallest alignment that is believed, in bytes.
const ALIGN_BYTES_MIN: u64 = 4096;

/// What the kernel says of a DAX device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaxDevice {
    /// Its name: `dax0.0`.
    pub name: String,
    /// Its size in bytes, a multiple of its alignment.
    pub bytes: u64,
    /// What mappings have to be multiples of, in bytes.
    pub align_bytes: u64,
    /// How far a store must come to survive the loss of power; `None` when no persistent memory is below.
    pub domain: Option<PersistenceDomain>,
}

impl DaxDevice {
    /// The device with this number, as the tree below `sysfs` describes it. `path` is for messages.
    ///
    /// # Errors
    /// `InvalidInput` for what is no DAX device; `Incompatible` for one whose size or alignment makes no sense.
    pub fn of_number(sysfs: &Path, number: (u32, u32), path: &Path) -> Result<DaxDevice> {
        let (major, minor) = number;
        let no_dax = |what: &str| {
            let message = format!(
                "{} is a character device, but {what}; name a DAX device (/dev/dax0.0, made by ndctl or daxctl) or a \
                 file",
                path.display()
            );
            Error::new(ErrorKind::InvalidInput, message)
        };
        let place = sysfs.join("dev/char").join(format!("{major}:{minor}"));
        let (Ok(sysfs), Ok(place)) = (sysfs.canonicalize(), place.canonicalize()) else {
            return Err(no_dax("no DAX device: the kernel does not describe it"));
        };
        let kind = place.join("subsystem").canonicalize().ok();
        match kind.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy()) {
            Some(kind) if kind == "dax" => {}
            Some(kind) => {
                return Err(no_dax(&format!("no DAX device: the kernel calls it one of kind '{kind}'")));
            }
            None => return Err(no_dax("no DAX device: the kernel does not say of which kind it is")),
        }
        let number = |names: &[&str]| {
            let text = names.iter().find_map(|name| std::fs::read_to_string(place.join(name)).ok());
            text.and_then(|text| text.trim().parse::<u64>().ok())
        };
        // Older kernels have the alignment of the device's pool only.
        let (bytes, align) = (number(&["size"]), number(&["align", "../dax_region/align"]));
        let (Some(bytes), Some(align_bytes)) = (bytes, align) else {
            return Err(no_dax("its size or alignment cannot be read below /sys"));
        };
        if !align_bytes.is_power_of_two()
            || align_bytes < ALIGN_BYTES_MIN
            || bytes == 0
            || !bytes.is_multiple_of(align_bytes)
        {
            let message = format!(
                "{} has {bytes} bytes aligned to {align_bytes}, which cannot be mapped; configure it anew with daxctl",
                path.display()
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        let domain = place.ancestors().take_while(|above| above.starts_with(&sysfs)).find_map(|above| {
            let text = std::fs::read_to_string(above.join("persistence_domain")).ok()?;
            Some(PersistenceDomain::of_text(&text))
        });
        let name = place.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(DaxDevice { name: name.unwrap_or_default(), bytes, align_bytes, domain })
    }

    /// How lines would be written back on this machine, and what durable bytes would survive.
    pub fn promise(&self) -> (FlushMethod, Guarantee) {
        let best = match self.domain {
            Some(PersistenceDomain::Caches) => FlushMethod::FenceOnly,
            _ => FlushMethod::detect(),
        };
        (best, self.guarantee(best))
    }

    fn guarantee(&self, flush: FlushMethod) -> Guarantee {
        match self.domain {
            // A CPU without an instruction for lines: msync does nothing here.
            Some(domain) if flush != FlushMethod::Msync => {
                mapped::guarantee_of(true, domain, flush, Guarantee::ProcessCrash)
            }
            _ => Guarantee::ProcessCrash,
        }
    }

    /// The device at `path`.
    ///
    /// # Errors
    /// As [`DaxDevice::of_number`].
    pub fn of_path(path: &Path) -> Result<DaxDevice> {
        let found = std::fs::metadata(path)
            .map_err(|error| Error::from(error).context(&format!("cannot look at {}", path.display())))?;
        let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        DaxDevice::of_number(Path::new(SYSFS), number, path)
    }
}

/// Whether `path` is a character device, so that it is for this module.
pub(super) fn is_character_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device())
}

/// What to do with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Map the region that is there.
    Open,
    /// Make one on a device whose first page is zeros.
    Create,
    /// The first where there is one, else the second.
    OpenOrCreate,
}

/// Maps the device at `path`. Says whether the region is new.
///
/// # Errors
/// As [`MappedRegion::open`] and [`MappedRegion::create`]; `InvalidInput` for what is no DAX device.
pub(super) fn map(path: &Path, access: Access, settings: &RegionSettings) -> Result<(MappedRegion, bool)> {
    let device = DaxDevice::of_path(path)?;
    // Only now: opening may do something on other character devices.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| Error::from(error).context(&format!("cannot open region {}", path.display())))?;
    map_file(file, &device, path, access, settings)
}

fn map_file(
    file: File,
    device: &DaxDevice,
    path: &Path,
    access: Access,
    settings: &RegionSettings,
) -> Result<(MappedRegion, bool)> {
    let name = path.display().to_string();
    if settings.flush == Some(FlushMethod::Msync) {
        let message = format!("{name} is a DAX device, which has no msync; choose another way or none");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let file = mapped::lock(file, &name)?;
    let domain = device.domain.unwrap_or(PersistenceDomain::Unknown);
    let flush = mapped::chosen_flush(settings, device.promise().0)?;
    let guarantee = device.guarantee(flush);
    let flush = if flush == FlushMethod::Msync { FlushMethod::FenceOnly } else { flush };
    mapped::refuse_weak(settings, guarantee, DEVICE_DAX, &name)?;
    let region_bytes = device.bytes - REGION_HEADER_BYTES;
    mapped::refuse_small(region_bytes, settings, &name)?;
    let bytes = usize::try_from(device.bytes).map_err(|_| {
        Error::new(ErrorKind::Unsupported, format!("{name} is larger than this machine addresses"))
    })?;
    // The device has no metadata to keep in step: mapped without MAP_SYNC, as by older kernels, it is the same.
    let mapping = Mapping::of_file(&file, bytes, true).or_else(|_| Mapping::of_file(&file, bytes, false))?;
    let is_new = prepare(&mapping, access, device.bytes, flush, &name)?;
    let report = RegionReport {
        bytes: region_bytes,
        file_system: Some(DEVICE_DAX),
        map_sync: true,
        domain,
        flush,
        guarantee,
    };
    let skipped_words = (REGION_HEADER_BYTES / WORD_BYTES) as usize;
    Ok((MappedRegion::with(mapping, skipped_words, report, Some(file)), is_new))
}

/// Checks or makes the header. Returns whether the region is new.
fn prepare(
    mapping: &Mapping,
    access: Access,
    device_bytes: u64,
    flush: FlushMethod,
    name: &str,
) -> Result<bool> {
    let mut page = vec![0; REGION_HEADER_BYTES as usize];
    words::load(mapping.words(), 0, &mut page);
    let is_blank = page.iter().all(|byte| *byte == 0);
    if access == Access::Open || access == Access::OpenOrCreate && !is_blank {
        let mut header = [0; 32];
        words::load(mapping.words(), 0, &mut header);
        Header::decode(&header, device_bytes, name)?;
        return Ok(false);
    }
    if !is_blank {
        let message = format!(
            "{name} holds something: its first page is not zeros; open it, or zero that page if nobody needs it"
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let words = mapping.words();
    words.iter().for_each(|word| instructions::stream_word(word, 0));
    make_durable(words, flush);
    // crash here [device-without-header]: the header is zeros, and opening refuses the device
    let header = Header { region_bytes: device_bytes - REGION_HEADER_BYTES }.encode();
    words::store(words, 0, &header, |word, value| word.store(value, Ordering::Relaxed));
    instructions::write_back(flush, words.get(..header.len() / WORD_BYTES as usize).unwrap_or_default());
    instructions::fence();
    Ok(true)
}

/// Waits until streamed words are durable; where streaming is an ordinary store, writes them back first.
fn make_durable(words: &[AtomicU64], flush: FlushMethod) {
    if !instructions::STREAMS {
        instructions::write_back(flush, words);
    }
    instructions::fence();
}

#[cfg(test)]
#[path = "device_test.rs"]
mod device_test;
