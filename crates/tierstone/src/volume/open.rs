//! Opening the members of a description, and the volume on them.

use super::description::{Degraded, Description};
use super::part::{StagingMemory, VolumePart};
use super::stopping::DiskStopping;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_logstore::location::SEGMENT_COUNT_MAX;
use tierstone_media::file::{DirectIo, Discards, SingleFile, SingleFileSettings};
use tierstone_media::{BlockDevice, Geometry};
use tierstone_volume::inspect::{Holds, INSPECTED_BYTES, MemberFacts, inspect, is_any_behind, judged};
use tierstone_volume::{FlashBuffer, Health, OpenSettings, Recovery, SleepSetup, Volume, WholePolicy};

/// A volume that is open, and everything that was found on the way.
pub struct OpenedVolume {
    /// The volume.
    pub volume: Volume<VolumePart>,
    /// The file that describes it.
    pub description: PathBuf,
    /// Bytes a second at which a server fills new members.
    pub fill_bytes_per_second: u64,
    /// Its flash buffer, when it has one that can be used.
    pub buffer: Option<FlashBuffer<VolumePart>>,
    /// Where the buffer stages, and what that survives, in words; empty without a buffer.
    pub staging: String,
    /// What a crash had left.
    pub recovery: Recovery,
    /// What a member says of the volume.
    pub facts: MemberFacts,
    /// The members, in their order.
    pub places: Vec<MemberPlace>,
    /// Whether the disks of members that sleep stop; `None` where none sleeps.
    pub stopping: Option<DiskStopping>,
    /// What is wrong with members or buffer, in words.
    pub faults: Vec<String>,
    /// Descriptors that become readable when members answer.
    pub(super) wakes: Vec<RawFd>,
}

impl OpenedVolume {
    /// The shape of what a store uses of the volume.
    pub(super) fn store_geometry(&self) -> Geometry {
        for_store(self.volume.geometry())
    }
}

/// What lies behind the last segment that a store can name stays empty.
fn for_store(of_volume: Geometry) -> Geometry {
    Geometry { segment_limit: of_volume.segment_limit.min(SEGMENT_COUNT_MAX), ..of_volume }
}

/// Where a member is.
#[derive(Clone, Debug)]
pub struct MemberPlace {
    /// Its path, as the process reaches it.
    pub path: PathBuf,
    /// Whether it is a block device.
    pub is_block_device: bool,
    /// Whether it bypasses the page cache.
    pub is_direct: bool,
}

/// What can be known of one member without opening the volume.
#[derive(Debug)]
pub struct Probed {
    /// Its path, as the process reaches it.
    pub path: PathBuf,
    /// The open file, if it could be opened and read and is long enough.
    pub file: Result<SingleFile>,
    /// What it holds.
    pub holds: Holds,
}

/// Looks at one file or device.
pub fn probe(path: PathBuf, direct_io: DirectIo, discards: Discards) -> Probed {
    let settings = SingleFileSettings { direct_io, discards, ..SingleFileSettings::default() };
    let file = SingleFile::open(&path, &settings);
    let start = file.as_ref().ok().map(|file| file.read_now(0, INSPECTED_BYTES));
    match (file, start) {
        (Ok(file), Some(Ok(start))) => {
            let holds = inspect(&start);
            let file = match &holds {
                Holds::Member(facts) if facts.bytes_needed > file.bytes() => {
                    let (has, needed) = (file.bytes(), facts.bytes_needed);
                    let message = format!("{} was cut: it has {has} bytes of {needed}", path.display());
                    Err(Error::new(ErrorKind::DeviceFailed, message))
                }
                _ => Ok(file),
            };
            Probed { path, file, holds }
        }
        (Ok(_), Some(Err(error))) => Probed { path, file: Err(error), holds: Holds::Nothing },
        (file, _) => Probed { path, file, holds: Holds::Nothing },
    }
}

/// Looks at all members of a description.
///
/// # Errors
/// `Busy` when one is in use: then nothing is known of any.
pub fn probe_members(at: &Path, description: &Description, direct_io: DirectIo) -> Result<Vec<Probed>> {
    let resolve = |path: &PathBuf| probe(Description::resolve(at, path), direct_io, description.discards);
    let probed: Vec<Probed> = description.members.iter().map(resolve).collect();
    match probed.iter().find_map(|member| member.file.as_ref().err().filter(|error| is_busy(error))) {
        Some(error) => Err(error.clone()),
        None => Ok(probed),
    }
}

fn is_busy(error: &Error) -> bool {
    error.kind() == ErrorKind::Busy
}

/// What is true of the volume by what its members say: as an opening judges, also of members that are stale.
///
/// # Errors
/// `DeviceFailed` when no member can be opened, `InvalidInput` when none holds a volume. `Incompatible` when one was written by a newer program, whatever the others say.
pub fn newest(probed: &[Probed]) -> Result<MemberFacts> {
    refuse_newer(probed)?;
    judged(&in_places(&members_of(probed))).ok_or_else(|| {
        let why = |member: &Probed| match (&member.file, &member.holds) {
            (Err(error), _) => Some(format!("; {error}")),
            (Ok(_), Holds::Unusable(why)) => Some(format!("; {} {why}", member.path.display())),
            (Ok(_), _) => None,
        };
        let whys = probed.iter().filter_map(why).collect::<String>();
        let message = match whys.is_empty() {
            true => "none of the members holds a volume".to_owned(),
            false => format!("none of the members holds a volume that can be used{whys}"),
        };
        // They may come yet: disks that appear late, say.
        let are_all_away = !probed.is_empty() && probed.iter().all(|member| member.file.is_err());
        Error::new(if are_all_away { ErrorKind::DeviceFailed } else { ErrorKind::InvalidInput }, message)
    })
}

fn refuse_newer(probed: &[Probed]) -> Result<()> {
    let newer = |member: &Probed| match (&member.file, &member.holds) {
        (Ok(_), Holds::Newer(why)) => Some(format!("{} {why}", member.path.display())),
        _ => None,
    };
    match probed.iter().find_map(newer) {
        Some(why) => Err(Error::new(ErrorKind::Incompatible, why)),
        None => Ok(()),
    }
}

/// What the members say of the volume of most of them.
fn members_of(probed: &[Probed]) -> Vec<MemberFacts> {
    let facts = |member: &Probed| match &member.holds {
        Holds::Member(facts) if member.file.is_ok() => Some(facts.as_ref().clone()),
        _ => None,
    };
    let all: Vec<MemberFacts> = probed.iter().filter_map(facts).collect();
    let count = |volume: u128| all.iter().filter(|facts| facts.volume == volume).count();
    let volume = all.iter().map(|facts| facts.volume).max_by_key(|&volume| count(volume));
    all.into_iter().filter(|facts| Some(facts.volume) == volume).collect()
}

/// By what they say of themselves: a wrong order is another fault.
fn in_places(members: &[MemberFacts]) -> Vec<Option<&MemberFacts>> {
    let mut places: Vec<Option<&MemberFacts>> = Vec::new();
    for facts in members {
        let index = facts.index as usize;
        places.resize(places.len().max(index + 1), None);
        places[index] = Some(facts);
    }
    places
}

/// Opens the volume that the file at `at` describes.
///
/// # Errors
/// `Busy`: it is open. Others: as [`Volume::open`]; `InvalidInput` for a degraded volume whose description
/// refuses that.
pub fn open_volume(at: &Path, direct_io: DirectIo) -> Result<OpenedVolume> {
    let description = Description::read(at)?;
    let probed = probe_members(at, &description, direct_io)?;
    open_probed(at, &description, probed, direct_io)
}

/// Opens the volume as if member `index` were not there, so that another can take its place; whatever the
/// description says of degraded ones.
///
/// # Errors
/// As [`open_volume`].
pub fn open_volume_without(at: &Path, index: usize) -> Result<OpenedVolume> {
    let description = Description { degraded: Degraded::Serve, ..Description::read(at)? };
    let mut probed = probe_members(at, &description, DirectIo::Auto)?;
    if let Some(member) = probed.get_mut(index) {
        member.file = Err(Error::new(ErrorKind::DeviceFailed, "its place is for another"));
    }
    open_probed(at, &description, probed, DirectIo::Auto)
}

fn open_probed(
    at: &Path,
    description: &Description,
    probed: Vec<Probed>,
    direct_io: DirectIo,
) -> Result<OpenedVolume> {
    let facts = newest(&probed)?;
    // Also of a disk that was taken for another now: the buffer holds what it lacks, and the opening may be refused.
    let is_behind = is_any_behind(&in_places(&members_of(&probed)));
    let (mut places, mut faults, mut devices, mut wakes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (index, member) in probed.into_iter().enumerate() {
        let file = member.file.as_ref().ok();
        places.push(MemberPlace {
            path: member.path.clone(),
            is_block_device: file.is_some_and(SingleFile::is_block_device),
            is_direct: file.is_some_and(SingleFile::is_direct),
        });
        devices.push(match member.file {
            Ok(file) => {
                let device = file.device()?;
                wakes.extend(device.wake_descriptor());
                Some(VolumePart::File(device))
            }
            Err(error) => {
                faults.push(format!("member {index}: {error}"));
                None
            }
        });
    }
    let settings =
        OpenSettings { degraded: description.degraded == Degraded::Serve, ..OpenSettings::default() };
    let (buffer, staging) = open_buffer(at, description, direct_io, is_behind, &mut faults)?.unzip();
    let mut stopping = None;
    let (volume, recovery) = match &buffer {
        Some(buffer) => {
            let paths: Vec<PathBuf> = places.iter().map(|place| place.path.clone()).collect();
            let sleeping = description.sleep.unwrap_or_default();
            let settings_of_sleep = sleeping.settings()?;
            let (spindle, found) = DiskStopping::of(&paths, sleeping.stop_disks);
            stopping = Some(found);
            let setup = SleepSetup { buffer: buffer.clone(), settings: settings_of_sleep, spindle };
            Volume::open_sleeping(devices, &settings, setup)?
        }
        None => Volume::open(devices, &settings)?,
    };
    if !volume.partial_pairs().is_empty() {
        volume.set_whole_policy(Some(WholePolicy::cautious()))?;
    }
    let status = volume.status();
    name_failed(&status.members, &places, &mut faults);
    let staging = staging.unwrap_or_default();
    let (description, rate) = (at.to_path_buf(), description.fill_bytes_per_second()?);
    Ok(OpenedVolume {
        volume,
        description,
        fill_bytes_per_second: rate,
        buffer,
        staging,
        recovery,
        facts,
        places,
        stopping,
        faults,
        wakes,
    })
}

/// Members that have failed and of which nothing was said.
fn name_failed(members: &[Health], places: &[MemberPlace], faults: &mut Vec<String>) {
    for (index, (health, place)) in members.iter().zip(places).enumerate() {
        let is_named = faults.iter().any(|fault| fault.starts_with(&format!("member {index}:")));
        if *health == Health::Failed && !is_named {
            let path = place.path.display();
            faults.push(format!("member {index}: {path} has failed, or missed writes, and does not count"));
        }
    }
}

/// The flash buffer, if the description names one, and where it stages. One that cannot be used is a fault, not an error (unless
/// a newer program wrote it): what sleeping disks lack is on those that were awake. Where no disk sleeps (`is_behind` is not),
/// nothing can be lost with what was staged, and the buffer is made anew.
fn open_buffer(
    at: &Path,
    description: &Description,
    direct_io: DirectIo,
    is_behind: bool,
    faults: &mut Vec<String>,
) -> Result<Option<(FlashBuffer<VolumePart>, String)>> {
    let Some(path) = &description.buffer else { return Ok(None) };
    let settings = SingleFileSettings { direct_io, ..SingleFileSettings::default() };
    // By buffer or staging logs: a memory that is no region at all is lost, as any other.
    let mut is_newer = false;
    let opened = StagingMemory::open(at, description).and_then(|staging| {
        let file = SingleFile::open(&Description::resolve(at, path), &settings)?;
        let part = || staging.as_ref().map(StagingMemory::part);
        let opened = match part() {
            Some(memory) => FlashBuffer::open_staged(file.device()?.into(), memory),
            None => FlashBuffer::open(file.device()?.into()),
        };
        is_newer = matches!(&opened, Err(error) if error.kind() == ErrorKind::Incompatible);
        let buffer = match opened {
            Err(error) if !is_behind && !is_newer => {
                let renewed = FlashBuffer::renew(file.device()?.into(), part()).map_err(|_| error.clone())?;
                faults.push(format!("the flash buffer was made anew, no disk lacks anything: {error}"));
                renewed
            }
            opened => opened?,
        };
        let place = staging.map_or_else(|| "the flash of the buffer".to_owned(), |memory| memory.text);
        Ok((buffer, place))
    });
    match opened {
        Ok(opened) => Ok(Some(opened)),
        // A memory that is too weak is no fault of a disk: somebody has to say that it is meant.
        Err(error) if is_newer || is_busy(&error) || error.kind() == ErrorKind::Unsupported => Err(error),
        Err(error) if description.degraded == Degraded::Refuse => Err(error),
        Err(error) => {
            faults.push(format!("the flash buffer cannot be used, so no disk sleeps: {error}"));
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_uses_no_more_segments_of_a_volume_than_it_can_name() {
        let of = |segment_limit| Geometry { meta_bytes: 8192, segment_bytes: 32 << 20, segment_limit };
        assert_eq!(for_store(of(100)), of(100));
        assert_eq!(for_store(of(SEGMENT_COUNT_MAX + 1)), of(SEGMENT_COUNT_MAX));
        assert_eq!(for_store(of(u32::MAX)), of(SEGMENT_COUNT_MAX));
    }
}
