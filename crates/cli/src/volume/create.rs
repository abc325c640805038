//! `tierstone volume create`.

use super::{Outcome, open, progress, repair};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use tierstone::volume::{
    Degraded, Description, MemberTerms, NewMember, Sleeping, StagingMemory, UNIT_BLOCKS, VolumePart,
    take_member,
};
use tierstone_base::units::{format_size, parse_size};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_logstore::format::superblock::META_BYTES;
use tierstone_logstore::location::{SEGMENT_BYTES_MAX, SEGMENT_COUNT_MAX};
use tierstone_logstore::settings::segment_bytes_for;
use tierstone_media::file::Discards;
use tierstone_media::file::single::SingleFileDevice;
use tierstone_media::region::RegionSource;
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoRequest, Wait};
use tierstone_volume::{BufferSettings, FlashBuffer, Level, SLEEPING_BYTES_MAX, Volume, VolumeSettings};

/// Blocks of segments that are zeroed at a time.
const ZEROS_AT_ONCE: usize = 64;
/// Extents of a flash buffer, if it is long enough.
const EXTENTS_WANTED: u64 = 64;

const AFTER: &str = "A member that does not exist is made as a file of --size bytes, its space taken at once. One that \
exists is taken as it is, and refused when its first or last MiB holds anything but zeros, unless --force is given. \
Redundancy of members that are not known to be zeros is there when they have been filled; this command does that, \
or `fill`, or the server.";

#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct CreateArgs {
    /// The description that is written; it must not exist
    #[arg(value_name = "FILE.toml")]
    description: PathBuf,
    /// Files or block devices, in their order; of level 10, mirrors stand beside each other
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,
    /// 0 (no redundancy), 1 (all mirrors), 10 (pairs of mirrors), 5 (parity) or 50 (groups with parity)
    #[arg(long, value_name = "LEVEL", value_parser = ["0", "1", "10", "5", "50"])]
    level: String,
    /// Groups of level 50 [default: 2]
    #[arg(long, value_name = "N")]
    groups: Option<u32>,
    /// Size of member files that do not exist yet
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// Bytes that lie together on a member
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    chunk: String,
    /// Size of the store's segments [default: by the volume's size, 1MiB to 32MiB]
    #[arg(long, value_name = "SIZE")]
    segment_size: Option<String>,
    /// Flash that holds what sleeping disks miss: a file or block device. Levels 1 (of two) and 10 only
    #[arg(long, value_name = "FILE")]
    buffer: Option<PathBuf>,
    /// Size of the buffer's file when it does not exist yet
    #[arg(long, value_name = "SIZE", requires = "buffer")]
    buffer_size: Option<String>,
    /// Persistent memory in which the buffer stages: the path of a region's file on a DAX mount (made if it is not
    /// there), of a DAX device, or emulated:SIZE; without it the buffer stages on its flash, which takes every block twice
    #[arg(long, value_name = "SOURCE", requires = "buffer")]
    staging: Option<String>,
    /// Take staging memory that does not survive the loss of power
    #[arg(long, requires = "staging")]
    staging_any_guarantee: bool,
    /// Room on each pair for the hot data of a pair that sleeps whole (`declare` says what is cold); takes as much from
    /// the volume
    #[arg(long, value_name = "SIZE", requires = "buffer")]
    spare: Option<String>,
    /// Do not open the volume without members that are missing
    #[arg(long)]
    refuse_degraded: bool,
    /// Take members, and a buffer, that hold something; it is lost
    #[arg(long)]
    force: bool,
    /// Leave filling to the server or to `fill`
    #[arg(long)]
    no_fill: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn wrong<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidInput, what))
}

pub fn run(args: &CreateArgs) -> Result<()> {
    let level = match args.level.as_str() {
        "0" => Level::Raid0,
        "1" => Level::Raid1,
        "10" => Level::Raid10,
        "5" => Level::Raid5,
        _ => Level::Raid50 { groups: args.groups.unwrap_or(2) },
    };
    if args.groups.is_some() && args.level != "50" {
        return wrong("--groups is for --level 50");
    }
    // Before anything is made.
    let (_, pairs, width) = level.shape(args.members.len())?;
    let is_pairs = matches!(level, Level::Raid1 | Level::Raid10) && width == 2;
    if args.buffer.is_some() && !is_pairs {
        return wrong("--buffer: only pairs of mirrors sleep, that is level 10, or level 1 of two members");
    }
    let chunk_bytes = parse_size(&args.chunk)?;
    let description = describe(args)?;
    let mut made = Made::default();
    create(args, &description, (level, chunk_bytes, pairs), &mut made)?;
    made.keep();
    let mut opened = open(&args.description)?;
    if !args.no_fill {
        repair::fill_up(&opened)?;
    }
    opened.faults.clear();
    let outcome = Outcome::of(&opened);
    opened.volume.close()?;
    let (path, members) = (args.description.display(), args.members.len());
    let done = format!("{path}: {} of {members} members, {}", outcome.level, format_size(outcome.bytes));
    match args.no_fill && outcome.is_degraded {
        // It is as it was asked for.
        true => outcome.show(args.json, &format!("{done}; not filled yet")),
        false => outcome.tell(args.json, &done),
    }
}

/// The description, its paths as they are reached from its own directory.
fn describe(args: &CreateArgs) -> Result<Description> {
    if args.description.extension().is_none_or(|extension| extension != "toml") {
        return wrong(format!("{}: a description's name ends in .toml", args.description.display()));
    }
    if args.description.exists() {
        return wrong(format!("{} exists already", args.description.display()));
    }
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(Error::from);
    let description = Description {
        members: args.members.iter().map(absolute).collect::<Result<_>>()?,
        buffer: args.buffer.as_ref().map(absolute).transpose()?,
        staging: args.staging.as_deref().map(absolute_source).transpose()?,
        staging_any_guarantee: args.staging_any_guarantee,
        degraded: if args.refuse_degraded { Degraded::Refuse } else { Degraded::Serve },
        discards: Discards::default(),
        fill_rate: None,
        sleep: args.buffer.is_some().then(Sleeping::default),
    };
    // By the same rules as it will be read.
    Description::parse(&description.text()?)
}

/// A region's source whose path does not depend on where this program runs.
fn absolute_source(text: &str) -> Result<String> {
    Ok(match text.parse()? {
        RegionSource::Path(path) => RegionSource::Path(std::path::absolute(path)?).to_string(),
        emulated => emulated.to_string(),
    })
}

/// Files that this command has made: removed again unless everything succeeds.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            // It was made a moment ago and holds nothing; what stays is refused with a reason next time.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn create(
    args: &CreateArgs,
    description: &Description,
    (level, chunk_bytes, pairs): (Level, u64, u32),
    made: &mut Made,
) -> Result<()> {
    let size = args.size.as_deref().map(parse_size).transpose()?;
    let mut is_zeroed = true;
    let mut devices = Vec::new();
    for path in &description.members {
        let (device, is_new) = take(path, size, ("--size", args.force), None, made)?;
        is_zeroed &= is_new;
        devices.push(VolumePart::File(device));
    }
    let bytes = devices.iter().map(|device| device.geometry().end()).min().unwrap_or(0);
    if args.buffer.is_some() && bytes > SLEEPING_BYTES_MAX {
        return wrong("--buffer: members above 16 TiB cannot sleep: use partitions of them, or no buffer");
    }
    let (redundancy, groups, width) = level.shape(devices.len())?;
    let lost = match redundancy {
        tierstone_volume::Redundancy::None => 0,
        tierstone_volume::Redundancy::Mirror => width - 1,
        tierstone_volume::Redundancy::Parity => 1,
    };
    let capacity = bytes * u64::from(groups) * u64::from(width - lost);
    let segment_bytes = segment_bytes(args, capacity)?;
    let usual = VolumeSettings::new(level, identity()?, segment_bytes);
    let settings = VolumeSettings {
        chunk_bytes,
        meta_bytes: META_BYTES,
        // As many regions as fit, with room to spare.
        region_bytes: usual.region_bytes.max((capacity / 16_384).next_multiple_of(BLOCK_BYTES as u64)),
        is_zeroed,
        spare_bytes: args.spare.as_deref().map(parse_size).transpose()?.unwrap_or(0),
        overwrite: args.force,
        ..usual
    };
    let mut volume = Volume::create(devices, &settings)?;
    if !is_zeroed {
        blank(&mut volume)?;
    }
    volume.close()?;
    if let Some(path) = &description.buffer {
        let size = args.buffer_size.as_deref().map(parse_size).transpose()?;
        let (device, _) = take(path, size, ("--buffer-size", args.force), None, made)?;
        let unit_bytes = u64::from(UNIT_BLOCKS) * BLOCK_BYTES as u64;
        let extent_bytes =
            (device.geometry().end() / EXTENTS_WANTED / unit_bytes).clamp(1, 1024) * unit_bytes;
        let settings = BufferSettings {
            id: identity()?,
            volumes: 1,
            pairs_a_volume: pairs,
            extent_bytes,
            unit_blocks: UNIT_BLOCKS,
        };
        if let Some(RegionSource::Path(path)) = description.staging.as_deref().map(str::parse).transpose()?
            && !path.exists()
        {
            made.extend([path]);
        }
        match StagingMemory::open(&args.description, description)? {
            Some(memory) => FlashBuffer::create_staged(device.into(), memory.part(), &settings)?,
            None => FlashBuffer::create(VolumePart::File(device), &settings)?,
        };
    }
    write_description(&args.description, &description.text()?)
}

/// The size of segments on a volume of `capacity` bytes. Refuses those so small that a store could not use all of it; says
/// what it leaves of one that is too large.
fn segment_bytes(args: &CreateArgs, capacity: u64) -> Result<u64> {
    let segment_bytes = match &args.segment_size {
        Some(size) => parse_size(size)?,
        None => segment_bytes_for(capacity, 1),
    };
    if !(128 << 10..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
        return wrong(format!("--segment-size: {segment_bytes} bytes; 128KiB to 32MiB are possible"));
    }
    let usable = u64::from(SEGMENT_COUNT_MAX) * segment_bytes;
    if capacity <= usable {
        return Ok(segment_bytes);
    }
    let (capacity, usable) = (format_size(capacity), format_size(usable));
    if segment_bytes < SEGMENT_BYTES_MAX {
        return wrong(format!(
            "--segment-size: a store has at most {SEGMENT_COUNT_MAX} segments, of {} that is {usable} of the volume's \
             {capacity}: give larger ones",
            format_size(segment_bytes)
        ));
    }
    tell!("a store has at most {SEGMENT_COUNT_MAX} segments: it uses {usable} of the volume's {capacity}");
    Ok(segment_bytes)
}

/// A number that no other volume has.
fn identity() -> Result<u128> {
    let (high, low) = (SeededRandom::system_seed()?, SeededRandom::system_seed()?);
    Ok((u128::from(high) << 64 | u128::from(low)).max(1))
}

/// Opens what is to be a member, or makes it; whether it is new and so all zeros. What is the member `own` of that volume
/// may be taken as it is.
pub(super) fn take(
    path: &Path,
    size: Option<u64>,
    (flag, force): (&str, bool),
    own: Option<(u128, u32)>,
    made: &mut impl Extend<PathBuf>,
) -> Result<(SingleFileDevice, bool)> {
    let existed = path.exists();
    let taken = take_member(path, MemberTerms { bytes: size, flag, force, discards: Discards::Never, own });
    if !existed && path.exists() {
        made.extend([path.to_path_buf()]);
    }
    taken.map(|NewMember { device, is_new }| (device, is_new))
}

impl Extend<PathBuf> for Made {
    fn extend<I: IntoIterator<Item = PathBuf>>(&mut self, paths: I) {
        self.0.extend(paths);
    }
}

/// Zeros what a store looks at first: its superblock, and the first and last block of each segment that it may use.
fn blank(volume: &mut Volume<VolumePart>) -> Result<()> {
    let geometry = volume.geometry();
    let segments = geometry.segment_limit.min(SEGMENT_COUNT_MAX);
    let bar = progress("clearing", u64::from(segments));
    let zeros = |offset: u64, len: usize| IoRequest::write(0, offset, IoBuffer::zeroed(len));
    let mut requests = vec![zeros(0, geometry.meta_bytes as usize)];
    for segment in 0..segments {
        let start = geometry.segment_offset(segment);
        requests.push(zeros(start, BLOCK_BYTES));
        requests.push(zeros(start + geometry.segment_bytes - BLOCK_BYTES as u64, BLOCK_BYTES));
        if requests.len() >= ZEROS_AT_ONCE || segment + 1 == segments {
            perform(volume, &mut requests)?;
            bar.set_position(u64::from(segment));
        }
    }
    bar.finish_and_clear();
    perform(volume, &mut vec![IoRequest::flush(0)])
}

fn perform(volume: &mut Volume<VolumePart>, requests: &mut Vec<IoRequest>) -> Result<()> {
    let mut done = Vec::new();
    volume.submit(requests);
    volume.complete(Wait::All, &mut done);
    done.into_iter().try_for_each(|done| done.result.map_err(Error::from))
}

/// Writes a new description, durably.
fn write_description(path: &Path, text: &str) -> Result<()> {
    let at = |error: std::io::Error| Error::from(error).context(&format!("cannot write {}", path.display()));
    let mut file = std::fs::File::create_new(path).map_err(at)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(at)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(at)
}
