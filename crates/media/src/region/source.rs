//! Where a region comes from, as a person writes it: `PATH` or `emulated:SIZE[:PRESET]`.

use super::{
    EmulatedRegion, LINE_BYTES, MEMORY_PROFILES, MappedRegion, MemoryProfile, Region, RegionReport,
    RegionSettings, device, place,
};
use crate::Guarantee;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use tierstone_base::units::parse_size;
use tierstone_base::{Error, ErrorKind, Result};

/// The word before the size of an emulated region.
const EMULATED: &str = "emulated";

/// Where a region comes from.
///
/// As text: `emulated:SIZE` (sizes as elsewhere: `512MiB`, `4GB`) is memory of the process at its own speed,
/// `emulated:SIZE:PRESET` the same as slow as the published memory of that name ([`MEMORY_PROFILES`]); any other
/// text is a path. A file whose name is `emulated` or begins with `emulated:` is written `./emulated…`.
#[derive(Clone, Debug, PartialEq)]
pub enum RegionSource {
    /// A region's file, on DAX or not, or a DAX device.
    Path(PathBuf),
    /// Memory of the process: nothing in it survives the process.
    Emulated {
        /// The size in bytes, at least [`LINE_BYTES`].
        bytes: u64,
        /// The memory that it is as slow as.
        profile: Option<&'static MemoryProfile>,
    },
}

impl RegionSource {
    /// Opens what is there: the region at the path, or a new one of zeros in memory.
    ///
    /// # Errors
    /// As [`MappedRegion::open`] and [`MappedRegion::anonymous`].
    pub fn open(&self, settings: &RegionSettings) -> Result<SourceRegion> {
        match self {
            RegionSource::Path(path) => Ok(SourceRegion::Mapped(MappedRegion::open(path, settings)?)),
            RegionSource::Emulated { bytes, profile } => {
                let memory = MappedRegion::anonymous(*bytes, settings)?;
                Ok(match profile.and_then(MemoryProfile::slowness) {
                    None => SourceRegion::Mapped(memory),
                    Some(slowness) => {
                        SourceRegion::Emulated(Box::new(EmulatedRegion::new(memory, slowness)?))
                    }
                })
            }
        }
    }

    /// The same, but where the path names nothing yet, or a DAX device of zeros, a region of `new_bytes` zeros is made
    /// (of the whole device). Says whether the region is new: in memory it always is.
    ///
    /// # Errors
    /// As [`RegionSource::open`] and [`MappedRegion::create`].
    pub fn open_or_create(&self, new_bytes: u64, settings: &RegionSettings) -> Result<(SourceRegion, bool)> {
        match self {
            RegionSource::Path(path) if device::is_character_device(path) => {
                let settings =
                    RegionSettings { least_bytes: settings.least_bytes.max(new_bytes), ..*settings };
                let (region, is_new) = device::map(path, device::Access::OpenOrCreate, &settings)?;
                Ok((SourceRegion::Mapped(region), is_new))
            }
            RegionSource::Path(path) if place::is_absent(path)? => {
                Ok((SourceRegion::Mapped(MappedRegion::create(path, new_bytes, settings)?), true))
            }
            RegionSource::Path(_) => Ok((self.open(settings)?, false)),
            RegionSource::Emulated { .. } => Ok((self.open(settings)?, true)),
        }
    }
}

impl FromStr for RegionSource {
    type Err = Error;

    fn from_str(text: &str) -> Result<RegionSource> {
        let wrong = |why: &str| {
            let presets = MEMORY_PROFILES.each_ref().map(|profile| profile.name).join(", ");
            let message = format!(
                "region '{text}': {why}; write PATH or {EMULATED}:SIZE[:PRESET], as {EMULATED}:1GiB:dcpmm, with one of \
                 {presets}"
            );
            Error::new(ErrorKind::InvalidInput, message)
        };
        if text.is_empty() || text.contains('\0') {
            return Err(wrong("that is no path"));
        }
        if text == EMULATED {
            return Err(wrong("emulated memory has a size (a file of this name is written ./emulated)"));
        }
        let Some(rest) = text.strip_prefix(EMULATED).and_then(|rest| rest.strip_prefix(':')) else {
            return Ok(RegionSource::Path(PathBuf::from(text)));
        };
        let (size, preset) = rest.split_once(':').map_or((rest, None), |(size, preset)| (size, Some(preset)));
        let bytes = parse_size(size).map_err(|error| wrong(error.message()))?;
        if bytes < LINE_BYTES || usize::try_from(bytes).is_err() {
            return Err(wrong("the size is below a line of 64 bytes, or more than this machine can address"));
        }
        let find = |name| MemoryProfile::find(name).ok_or_else(|| wrong("there is no such preset"));
        Ok(RegionSource::Emulated { bytes, profile: preset.map(find).transpose()? })
    }
}

/// Whether a path so named means emulated memory.
fn is_read_as_emulated(text: &str) -> bool {
    text.strip_prefix(EMULATED).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

impl fmt::Display for RegionSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A name that would be read as something else keeps its meaning.
            RegionSource::Path(path) if is_read_as_emulated(&path.to_string_lossy()) => {
                write!(formatter, "./{}", path.display())
            }
            RegionSource::Path(path) => write!(formatter, "{}", path.display()),
            RegionSource::Emulated { bytes, profile: None } => write!(formatter, "{EMULATED}:{bytes}"),
            RegionSource::Emulated { bytes, profile: Some(profile) } => {
                write!(formatter, "{EMULATED}:{bytes}:{}", profile.name)
            }
        }
    }
}

/// A region from a [`RegionSource`]. What is below is decided once, at opening; who wants no branch on each access
/// matches once and is generic over [`Region`] below.
#[derive(Debug)]
pub enum SourceRegion {
    /// A mapping at the speed of its memory.
    Mapped(MappedRegion),
    /// Memory that is made slower.
    Emulated(Box<EmulatedRegion<MappedRegion>>),
}

impl SourceRegion {
    /// What it was found to be.
    pub fn report(&self) -> &RegionReport {
        match self {
            SourceRegion::Mapped(region) => region.report(),
            SourceRegion::Emulated(region) => region.inner().report(),
        }
    }
}

/// The same call of whatever region it is.
macro_rules! of_each {
    ($region:expr, $inner:ident => $call:expr) => {
        match $region {
            SourceRegion::Mapped($inner) => $call,
            SourceRegion::Emulated($inner) => $call,
        }
    };
}

impl Region for SourceRegion {
    #[inline]
    fn bytes(&self) -> u64 {
        of_each!(self, region => region.bytes())
    }

    fn guarantee(&self) -> Guarantee {
        of_each!(self, region => region.guarantee())
    }

    #[inline]
    fn load_word(&self, offset: u64) -> u64 {
        of_each!(self, region => region.load_word(offset))
    }

    #[inline]
    fn store_word(&self, offset: u64, value: u64) {
        of_each!(self, region => region.store_word(offset, value));
    }

    #[inline]
    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        of_each!(self, region => region.compare_exchange_word(offset, expected, new))
    }

    #[inline]
    fn load(&self, offset: u64, into: &mut [u8]) {
        of_each!(self, region => region.load(offset, into));
    }

    #[inline]
    unsafe fn in_place(&self, offset: u64, len: usize) -> Option<&[u8]> {
        // SAFETY: what the caller promises of this region holds of the one inside.
        of_each!(self, region => unsafe { region.in_place(offset, len) })
    }

    #[inline]
    fn prefetch(&self, offset: u64, len: u64) {
        of_each!(self, region => region.prefetch(offset, len));
    }

    #[inline]
    fn store(&self, offset: u64, bytes: &[u8]) {
        of_each!(self, region => region.store(offset, bytes));
    }

    #[inline]
    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        of_each!(self, region => region.store_streaming(offset, bytes));
    }

    #[inline]
    fn write_back(&self, offset: u64, len: u64) {
        of_each!(self, region => region.write_back(offset, len));
    }

    #[inline]
    fn fence(&self) -> Result<()> {
        of_each!(self, region => region.fence())
    }
}

#[cfg(test)]
#[path = "source_test.rs"]
mod source_test;
