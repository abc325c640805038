//! Making a volume, opening it, and what a crash left to do.
//!
//! Opening reads both superblock slots of every device, believes the highest generation (see [`crate::judge`]),
//! refuses what does not fit (a device in another's place, of another volume, or that missed writes), raises the
//! generation on all, and then repairs what a crash may have left: marked regions are copied from one
//! mirror to the others; journalled rows are written in place again.

use crate::core::{Core, CoreParts, INTENT_START, JOURNAL_START};
use crate::intent::REGIONS_MAX;
use crate::judge::{Said, authority, is_stale};
use crate::layout::{Layout, Level, Redundancy};
use crate::members::Members;
use crate::partial::{MAP_BYTES, MAP_START, Partial};
use crate::records::short_group;
use crate::sleep::{FlashBuffer, Sleep, SleepSettings, Spindle};
use crate::superblock::{Health, Slot, Superblock, is_unmarked, newer, newer_text, refuse_newer, unusable};
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;
use tierstone_media::{BLOCK_BYTES, BlockDevice, Geometry, IoBuffer, IoRequest};

/// How a volume is made. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    /// How data lies on the members.
    pub level: Level,
    /// The volume's identity: any number that no other volume here has. Take it from the system's
    /// randomness.
    pub id: u128,
    /// Bytes of a chunk, whole blocks. Default 64 KiB. Larger chunks give large reads to fewer disks;
    /// parity journals take a slot of a chunk a member.
    pub chunk_bytes: u64,
    /// Bytes at the start of the volume for its user's superblocks, whole blocks.
    pub meta_bytes: u64,
    /// Bytes of a segment of the volume, whole blocks.
    pub segment_bytes: u64,
    /// Bytes of a region whose mark says that mirrors may differ. Default 16 MiB; at most 30,720 regions
    /// fit, so larger volumes need larger ones. Larger regions are marked less often and copied longer
    /// after a crash.
    pub region_bytes: u64,
    /// Slots of the parity journal, an even number; half as many rows are written at once. Each takes a
    /// row's bytes on every member. Default 16.
    pub journal_slots: u32,
    /// Whether the devices read as zeros everywhere. If not, redundancy is there only when
    /// [`crate::Volume::maintain`] has gone over the whole volume. Default: no.
    pub is_zeroed: bool,
    /// Whether devices that hold a volume may be taken. Default: no.
    pub overwrite: bool,
    /// Bytes of each member, rounded up to chunks, kept for hot data of other pairs, so that those may
    /// sleep whole (see [`crate::partial`]). Only for two pairs of mirrors or more. Default 0: none.
    pub spare_bytes: u64,
}

impl VolumeSettings {
    /// The defaults for a volume of `level` named `id`, with segments of `segment_bytes`.
    pub fn new(level: Level, id: u128, segment_bytes: u64) -> Self {
        VolumeSettings {
            level,
            id,
            chunk_bytes: 64 << 10,
            meta_bytes: 1 << 20,
            segment_bytes,
            region_bytes: 16 << 20,
            journal_slots: 16,
            is_zeroed: false,
            overwrite: false,
            spare_bytes: 0,
        }
    }
}

/// How a volume is opened. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSettings {
    /// Whether to go on without members that are missing or missed writes. Default: no. Whoever says yes
    /// says that the missing members were not used by themselves since.
    pub degraded: bool,
    /// Reads that may fail on a member before it is given up. Default 16.
    pub read_error_limit: u32,
    /// Rules that tests switch off.
    pub mutations: Mutations,
}

impl Default for OpenSettings {
    fn default() -> Self {
        OpenSettings { degraded: false, read_error_limit: 16, mutations: Mutations::none() }
    }
}

/// What opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the volume had been closed.
    pub was_clean: bool,
    /// Regions that were copied between mirrors.
    pub regions_copied: u64,
    /// Sleeping disks that were brought up to date.
    pub pairs_flushed: u64,
    /// Journalled rows that were written in place again.
    pub rows_replayed: u64,
}

/// Most bytes of a member that sleeps: a buffer's addresses are numbers of blocks, of 32 bits.
pub const SLEEPING_BYTES_MAX: u64 = u32::MAX as u64 * BLOCK_BYTES as u64;
/// Most bytes of a row of a new volume with parity: its journal has some on each member, and an opening reads them.
const PARITY_ROW_BYTES_MAX: u64 = 8 << 20;

fn refuse<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidInput, what))
}

/// Where data begins on a member, and how many rows it has.
fn data_area(geometry: &[Geometry], journal_bytes: u64, chunk_bytes: u64) -> (u64, u64) {
    let meta = geometry.iter().map(|geometry| geometry.meta_bytes).max().unwrap_or(0);
    let start = (JOURNAL_START + journal_bytes).max(meta).next_multiple_of(chunk_bytes.max(1));
    let end = geometry.iter().map(Geometry::end).min().unwrap_or(0);
    (start, end.saturating_sub(start) / chunk_bytes.max(1))
}

/// Bytes of the journal on each member, or of the map of ranges in its place.
pub(crate) fn journal_bytes(
    redundancy: Redundancy,
    width: u32,
    chunk_bytes: u64,
    slots: u32,
    spare_rows: u32,
) -> u64 {
    match redundancy {
        Redundancy::Parity => {
            let row_bytes = u64::from(width).saturating_mul(chunk_bytes);
            u64::from(slots).saturating_mul(row_bytes.saturating_add(BLOCK_BYTES as u64))
        }
        Redundancy::Mirror if spare_rows > 0 => MAP_BYTES,
        Redundancy::None | Redundancy::Mirror => 0,
    }
}

/// Rows that are kept for hot data of other pairs.
fn spare_rows(settings: &VolumeSettings, redundancy: Redundancy, groups: u32) -> Result<u32> {
    let rows = settings.spare_bytes.div_ceil(settings.chunk_bytes.max(1));
    if rows > 0 && (redundancy != Redundancy::Mirror || groups < 2) {
        return refuse(
            "room for hot data of other pairs (--spare) needs two sets of mirrors at least: one keeps hot data of the other",
        );
    }
    u32::try_from(rows).or_else(|_| {
        refuse(format!(
            "{} bytes of room for hot data of other pairs (--spare) are too many",
            settings.spare_bytes
        ))
    })
}

/// Refuses rows whose journal would be too much to read.
fn check_row(redundancy: Redundancy, width: u32, chunk_bytes: u64) -> Result<()> {
    let row_bytes = u64::from(width).saturating_mul(chunk_bytes);
    if redundancy != Redundancy::Parity || row_bytes <= PARITY_ROW_BYTES_MAX {
        return Ok(());
    }
    refuse(format!(
        "{width} members with chunks of {chunk_bytes} bytes make rows of {row_bytes}: parity allows {PARITY_ROW_BYTES_MAX}, \
         for an opening reads a journal of such rows; use smaller chunks, or more groups"
    ))
}

/// The superblock of a new volume; that of member 0.
fn plan(settings: &VolumeSettings, members: &[Geometry]) -> Result<(Superblock, u64)> {
    let (redundancy, groups, width) = settings.level.shape(members.len())?;
    let block = BLOCK_BYTES as u64;
    let sizes = [settings.meta_bytes, settings.segment_bytes, settings.region_bytes];
    if sizes.iter().any(|bytes| *bytes == 0 || !bytes.is_multiple_of(block)) {
        return refuse(format!(
            "meta, segment and region bytes {sizes:?} must be whole blocks of {block} bytes"
        ));
    }
    check_row(redundancy, width, settings.chunk_bytes)?;
    if settings.journal_slots < 2 || !settings.journal_slots.is_multiple_of(2) {
        return refuse("a journal needs an even number of slots, two at least");
    }
    let spare_rows = spare_rows(settings, redundancy, groups)?;
    let journal = journal_bytes(redundancy, width, settings.chunk_bytes, settings.journal_slots, spare_rows);
    let (data_start, rows) = data_area(members, journal, settings.chunk_bytes);
    let layout = Layout { redundancy, groups, width, chunk_bytes: settings.chunk_bytes, rows };
    layout.check()?;
    let own = Layout { rows: rows.saturating_sub(u64::from(spare_rows)), ..layout };
    let room = own.data_bytes().saturating_sub(settings.meta_bytes) / settings.segment_bytes;
    let geometry = Geometry {
        meta_bytes: settings.meta_bytes,
        segment_bytes: settings.segment_bytes,
        segment_limit: u32::try_from(room).unwrap_or(u32::MAX),
    };
    if geometry.segment_limit == 0 {
        return refuse(format!(
            "{} bytes have no room for {} bytes of superblocks and one segment of {}: give larger members",
            own.data_bytes(),
            settings.meta_bytes,
            settings.segment_bytes
        ));
    }
    if geometry.end().div_ceil(settings.region_bytes) > REGIONS_MAX {
        return refuse(format!(
            "{} bytes are more than {REGIONS_MAX} regions of {}: raise region_bytes",
            geometry.end(),
            settings.region_bytes
        ));
    }
    let resync = |index: usize| {
        let place = index as u32 % width;
        match redundancy {
            _ if settings.is_zeroed => Health::InSync,
            Redundancy::Mirror if place > 0 => Health::Rebuilding { row: 0 },
            Redundancy::Parity if place == width - 1 => Health::Rebuilding { row: 0 },
            _ => Health::InSync,
        }
    };
    let superblock = Superblock {
        volume: settings.id,
        index: 0,
        generation: 1,
        clean: true,
        layout,
        geometry,
        region_bytes: settings.region_bytes,
        journal_slots: settings.journal_slots,
        buffer: 0,
        spare_rows,
        states: (0..members.len()).map(resync).collect(),
    };
    Ok((superblock, data_start))
}

/// Writes a new volume's superblocks to `devices`; [`open`] opens it.
pub(crate) fn create<D: BlockDevice>(devices: Vec<D>, settings: &VolumeSettings) -> Result<Vec<D>> {
    let geometries: Vec<Geometry> = devices.iter().map(BlockDevice::geometry).collect();
    let (superblock, _) = plan(settings, &geometries)?;
    let count = devices.len();
    let mut members = Members::new(devices.into_iter().map(Some).collect());
    if !settings.overwrite
        && let Some(index) =
            read_superblocks(&mut members, count, false)?.superblocks.iter().position(Option::is_some)
    {
        return refuse(format!("device {index} holds a volume already: say overwrite to lose it"));
    }
    let zeros = IoBuffer::zeroed(2 * BLOCK_BYTES);
    let mut requests: Vec<(usize, IoRequest)> = Vec::new();
    for index in 0..count {
        // Both slots of the marks, and the older slot of the superblock, so that nothing old counts.
        let old = Slot(0).next();
        requests.push((index, IoRequest::write_durable(0, INTENT_START, zeros.clone())));
        requests.push((index, IoRequest::write_durable(0, old, IoBuffer::zeroed(BLOCK_BYTES))));
        if superblock.spare_rows > 0 {
            requests.push((index, IoRequest::write_durable(0, MAP_START, Partial::first_map(&superblock))));
        }
    }
    done(members.perform(requests))?;
    let sign = |index: usize| {
        let own = Superblock { index: index as u32, ..superblock.clone() };
        (index, IoRequest::write_durable(0, 0, own.encode()))
    };
    done(members.perform((0..count).map(sign).collect()))?;
    Ok((0..count).filter_map(|index| members.exchange(index, None)).collect())
}

fn done(completions: Vec<tierstone_media::IoCompletion>) -> Result<()> {
    completions.into_iter().try_for_each(|done| done.result.map_err(Error::from))
}

/// What was read at the start of each member.
struct Heads {
    /// The newest whole superblock.
    superblocks: Vec<Option<Superblock>>,
    /// The slot that it lies in.
    slots: Vec<Slot>,
    /// Why there is none, in words that follow the device's name, where something is there.
    whys: Vec<Option<String>>,
    /// Whether programs that know no spare rows would open a member that has some.
    is_unmarked: bool,
}

/// Reads the superblocks of each member. In a degraded opening a member that cannot be read holds none. A superblock of a newer
/// program is refused wherever it lies, so that nothing is written over it.
fn read_superblocks<D: BlockDevice>(members: &mut Members<D>, count: usize, degraded: bool) -> Result<Heads> {
    let present: Vec<usize> = (0..count).filter(|&index| members.device(index).is_some()).collect();
    let read = |&index: &usize| (index, IoRequest::read(0, 0, IoBuffer::zeroed(2 * BLOCK_BYTES)));
    let results = members.perform(present.iter().map(read).collect());
    let (superblocks, slots, whys) = (vec![None; count], vec![Slot::default(); count], vec![None; count]);
    let mut heads = Heads { superblocks, slots, whys, is_unmarked: false };
    for (index, done) in present.into_iter().zip(results) {
        match done.result {
            Err(error) if degraded => {
                heads.whys[index] = Some(format!("cannot be read: {error}"));
                continue;
            }
            result => {
                result.map_err(|error| Error::from(error).context(&format!("reading member {index}")))?;
            }
        }
        let slots = done.buffer.unwrap_or_else(|| IoBuffer::zeroed(BLOCK_BYTES));
        if let Some(version) = newer(&slots) {
            return refuse_newer(format!("device {index} {}", newer_text(version)));
        }
        let whole = slots.chunks(BLOCK_BYTES).enumerate();
        let whole = whole.filter_map(|(slot, block)| Some((slot, Superblock::decode(block)?)));
        match whole.max_by_key(|(_, superblock)| superblock.generation) {
            Some((slot, newest)) => {
                let block = slots.get(slot * BLOCK_BYTES..).unwrap_or_default();
                heads.is_unmarked |= newest.spare_rows > 0 && is_unmarked(block);
                (heads.superblocks[index], heads.slots[index]) = (Some(newest), Slot(slot));
            }
            None => heads.whys[index] = unusable(&slots),
        }
    }
    Ok(heads)
}

/// None of the devices holds a superblock that can be used: of which that is told, and of the others nothing is there.
fn no_superblock<T>(whys: &[Option<String>]) -> Result<T> {
    let told = |(index, why): (usize, &Option<String>)| Some(format!("device {index} {}", why.as_ref()?));
    let told: Vec<String> = whys.iter().enumerate().filter_map(told).collect();
    match told.is_empty() {
        true => refuse("none of the devices holds a volume: create one first"),
        false => refuse(format!(
            "no superblock of the volume can be used: {}; restore these devices from a copy, or use the program that made them",
            told.join("; ")
        )),
    }
}

/// What the members say together.
struct Judgement {
    truth: Superblock,
    /// Members that count and have not its generation yet.
    older: Vec<usize>,
    /// Whether it names members failed that were not before.
    is_named_anew: bool,
}

/// The truth about all members, from what each says; errors name the member and what to do.
fn judge(heads: &Heads, present: &[bool], degraded: bool) -> Result<Judgement> {
    let found = &heads.superblocks[..];
    let mut votes: BTreeMap<u128, usize> = BTreeMap::new();
    for superblock in found.iter().flatten() {
        *votes.entry(superblock.volume).or_default() += 1;
    }
    let Some((&volume, _)) = votes.iter().max_by_key(|(_, count)| **count) else {
        return no_superblock(&heads.whys);
    };
    for (index, superblock) in found.iter().enumerate() {
        match superblock {
            None if present[index] && !degraded => {
                let why = heads.whys[index].as_deref();
                let why = why.unwrap_or("holds no superblock of a volume: it is another device, or damaged");
                return refuse(format!(
                    "device {index} {why}; give the right one, or open degraded and replace it"
                ));
            }
            Some(other) if other.volume != volume => {
                return refuse(format!(
                    "device {index} belongs to volume {:032x}, the others to {volume:032x}: give the right one",
                    other.volume
                ));
            }
            Some(own) if own.index as usize != index => {
                return refuse(format!(
                    "the device in place {index} is member {}: give the devices in their order",
                    own.index
                ));
            }
            _ => {}
        }
    }
    weigh(found, present, degraded)
}

/// The truth about members that stand in their places; those that do not count are named failed in it.
fn weigh(found: &[Option<Superblock>], present: &[bool], degraded: bool) -> Result<Judgement> {
    let said: Vec<Option<Said<'_>>> =
        found.iter().map(|superblock| superblock.as_ref().map(Said::by)).collect();
    let Some((newest_index, newest)) =
        authority(&said).and_then(|index| Some((index, found[index].as_ref()?)))
    else {
        return no_superblock(&[]);
    };
    if newest.states.len() != found.len() {
        return refuse(format!("the volume has {} members, {} were given", newest.states.len(), found.len()));
    }
    if found.iter().flatten().any(|other| other.layout != newest.layout || other.geometry != newest.geometry)
    {
        return Err(Error::new(ErrorKind::Corrupt, "members disagree about the shape of the volume"));
    }
    let mut truth = newest.clone();
    let (mut faults, mut is_named_anew) = (Vec::new(), false);
    for (index, superblock) in found.iter().enumerate() {
        let fault = match superblock {
            Some(own) if newest.states[index] == Health::Failed => {
                if own.states[newest_index] == Health::Failed {
                    return refuse(format!(
                        "members {index} and {newest_index} were each used without the other: give only the one \
                         to keep, open degraded and replace the other"
                    ));
                }
                format!("member {index} missed writes since generation {}", own.generation)
            }
            None if !present[index] => format!("member {index} is not there"),
            None => format!("member {index} holds no superblock"),
            Some(own) if is_stale(&said, newest_index, index) => format!(
                "member {index} is of generation {}, the others of {}: it was away, or another has taken its place since",
                own.generation, newest.generation
            ),
            Some(_) => continue,
        };
        if !degraded {
            return refuse(format!("{fault}: give it, or open degraded and replace it"));
        }
        is_named_anew |= newest.states[index] != Health::Failed;
        truth.states[index] = Health::Failed;
        faults.push(fault);
    }
    enough(&truth).map_err(|error| match faults.is_empty() {
        true => error,
        false => error.context(&faults.join("; ")),
    })?;
    let older = |index: &usize| {
        found[*index].as_ref().is_some_and(|own| own.generation < newest.generation)
            && truth.states[*index] != Health::Failed
    };
    let older = (0..found.len()).filter(older).collect();
    Ok(Judgement { truth, older, is_named_anew })
}

/// Whether every group can serve.
fn enough(superblock: &Superblock) -> Result<()> {
    match short_group(&superblock.layout, &superblock.states) {
        None => Ok(()),
        Some((group, good, needed)) => {
            let message = format!(
                "group {group} has {good} good members and needs {needed}: data is lost without them"
            );
            Err(Error::new(ErrorKind::DeviceFailed, message))
        }
    }
}

/// What a volume needs so that its second disks may sleep.
pub struct SleepSetup<D> {
    /// Where writes go that they miss.
    pub buffer: FlashBuffer<D>,
    /// When they sleep.
    pub settings: SleepSettings,
    /// What stops and starts them.
    pub spindle: Box<dyn Spindle>,
}

/// Members that are behind count by their buffer; without it, in a degraded opening, they are new ones.
fn judge_sleepers<D: BlockDevice>(
    truth: &mut Superblock,
    sleep: Option<&SleepSetup<D>>,
    degraded: bool,
) -> Result<()> {
    let given = sleep.map_or(0, |sleep| sleep.buffer.lock().id());
    if let Err(error) = Core::<D>::check_buffer(truth, given) {
        if !degraded {
            return Err(error);
        }
        for state in truth.states.iter_mut().filter(|state| **state == Health::Behind) {
            *state = Health::Rebuilding { row: 0 };
        }
        enough(truth)?;
    }
    let layout = truth.layout;
    if sleep.is_some() && (layout.redundancy != Redundancy::Mirror || layout.width != 2) {
        return refuse("only pairs of mirrors (RAID 10, or RAID 1 of two) can sleep");
    }
    if sleep.is_some() && layout.rows.saturating_mul(layout.chunk_bytes) > SLEEPING_BYTES_MAX {
        return refuse("members above 16 TiB cannot sleep: the buffer's addresses have 32 bits");
    }
    Ok(())
}

/// Where data begins on the members that count. Of those that have no room for their rows a degraded opening goes on without.
fn judge_sizes(judged: &mut Judgement, geometries: &[Option<Geometry>], degraded: bool) -> Result<u64> {
    let Judgement { truth, older, is_named_anew } = judged;
    let layout = truth.layout;
    let journal = journal_bytes(
        layout.redundancy,
        layout.width,
        layout.chunk_bytes,
        truth.journal_slots,
        truth.spare_rows,
    );
    let counts = |index: usize| truth.states[index] != Health::Failed;
    let counting: Vec<(usize, Geometry)> = geometries
        .iter()
        .enumerate()
        .filter_map(|(index, geometry)| Some((index, (*geometry)?)))
        .filter(|(index, _)| counts(*index))
        .collect();
    let all: Vec<Geometry> = counting.iter().map(|(_, geometry)| *geometry).collect();
    let (data_start, _) = data_area(&all, journal, layout.chunk_bytes);
    let rows = |geometry: &Geometry| geometry.end().saturating_sub(data_start) / layout.chunk_bytes.max(1);
    for (index, geometry) in counting.iter().filter(|(_, geometry)| rows(geometry) < layout.rows) {
        let cut =
            format!("member {index} has room for {} rows, the volume needs {}", rows(geometry), layout.rows);
        if !degraded {
            return refuse(cut);
        }
        truth.states[*index] = Health::Failed;
        *is_named_anew = true;
        older.retain(|at| at != index);
        enough(truth).map_err(|error| error.context(&cut))?;
    }
    Ok(data_start)
}

/// Opens a volume: judges its members, raises the generation, and repairs what a crash left.
pub(crate) fn open<D: BlockDevice>(
    devices: Vec<Option<D>>,
    settings: &OpenSettings,
    sleep: Option<SleepSetup<D>>,
) -> Result<(Core<D>, Recovery)> {
    let count = devices.len();
    let present: Vec<bool> = devices.iter().map(Option::is_some).collect();
    let geometries: Vec<Option<Geometry>> =
        devices.iter().map(|device| device.as_ref().map(BlockDevice::geometry)).collect();
    let mut members = Members::new(devices);
    let heads = read_superblocks(&mut members, count, settings.degraded)?;
    let mut judgement = judge(&heads, &present, settings.degraded)?;
    judge_sleepers(&mut judgement.truth, sleep.as_ref(), settings.degraded)?;
    let data_start = judge_sizes(&mut judgement, &geometries, settings.degraded)?;
    let Judgement { mut truth, older, is_named_anew } = judgement;
    let layout = truth.layout;
    let was_clean = std::mem::replace(&mut truth.clean, false);
    let parts = CoreParts {
        members,
        superblock: truth,
        slots: heads.slots,
        data_start,
        read_error_limit: settings.read_error_limit,
        mutations: settings.mutations.clone(),
    };
    let mut core = Core::new(parts);
    if let Some(SleepSetup { buffer, settings, spindle }) = sleep {
        let number = buffer.lock().register(core.volume, layout.groups)?;
        core.sleep = Some(Box::new(Sleep::new(buffer, number, settings, spindle, layout.groups as usize)));
    }
    core.read_ranges()?;
    core.begin_generation(&older, is_named_anew || heads.is_unmarked)?;
    let mut recovery = Recovery { was_clean, ..Recovery::default() };
    if core.sleep.is_some() {
        recovery.pairs_flushed = core.recover_pairs()?;
    }
    match layout.redundancy {
        Redundancy::Mirror => recovery.regions_copied = core.resync_marked()?,
        Redundancy::Parity => recovery.rows_replayed = core.replay_journal()?,
        Redundancy::None => {}
    }
    core.bring_all_home()?;
    core.check_records()?;
    Ok((core, recovery))
}

impl<D: BlockDevice> Core<D> {
    /// Raises the generation on all members: first those that a crash left behind get that of the others, so that no
    /// further crash leaves them two behind. Twice where members are named failed: what those hold may be of the
    /// generation that is written first; and where programs that know no spare rows would read the slot that is written first.
    fn begin_generation(&mut self, older: &[usize], is_twice: bool) -> Result<()> {
        let counting = self.written_members();
        // A new member of which no row counts needs none, and says what nobody else does yet.
        let counts = |index: &&usize| {
            counting.contains(index) && self.health[**index] != Health::Rebuilding { row: 0 }
        };
        let older: Vec<usize> = older.iter().filter(counts).copied().collect();
        self.catch_up(&older);
        match is_twice {
            true => self.record_failure(),
            false => self.write_superblocks(),
        }
        enough(&self.superblock(0))?;
        self.check_records()
    }
}
