//! Opening with a redo log: what a region holds goes to flash, before recovery looks there.
//!
//! Crash at any point: until the region is void the same groups are written again, to places that nothing else
//! was written to since; after that they are the device's. A header that is found void is made durable before anything is written.

use super::RedoMemory;
use super::format::{Layout, RegionHeader, SlotHeader};
use super::found::{self, Damage, FoundGroup, FoundShard};
use super::on_flash;
use crate::format::group::{self, GroupHeader};
use crate::format::superblock::Superblock;
use crate::io::StreamId;
use crate::open::{OpenReport, OpenSettings, run_all};
use crate::rules::BrokenRules;
use crate::settings::group_bytes_max;
use crate::shard::segment_salt;
use std::fmt;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;
use tierstone_media::{BLOCK_BYTES, BlockDevice, Geometry, IoBuffer, IoKind, IoRequest};

/// A group as it is written to flash.
struct Group {
    segment: u32,
    offset: u64,
    buffer: IoBuffer,
}

/// Writes what the region holds to the device, durably, and makes the region void. Gives the segments written.
///
/// # Errors
/// `InvalidInput` when the region that the store needs is not there and its loss is not accepted, `Corrupt` when
/// something durable in it is damaged and its loss is not accepted; `Incompatible` when the region is something else's; when device or region fail.
pub(crate) fn replay(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    superblock: &Superblock,
    report: &mut OpenReport,
) -> Result<Vec<u32>> {
    let header = settings.redo.as_ref().map(RedoMemory::header).transpose()?.flatten();
    let own = header.filter(|header| header.store == superblock.store_id);
    if let Some(other) = header.filter(|header| own.is_none() && !header.is_void) {
        return Err(foreign(&other));
    }
    let need = Need::of(superblock, report.damaged_superblock_slot, own.as_ref());
    if need == Need::Missing {
        if !settings.redo_loss_accepted {
            let newest = NewestWrites::of(superblock, report.damaged_superblock_slot);
            return Err(missing(newest, header.as_ref(), settings.redo.is_some(), own));
        }
        report.redo_lost = true;
        return Ok(Vec::new());
    }
    if let (Some(memory), Some(own), Need::There) = (&settings.redo, own.filter(|own| own.is_void), need) {
        // Else it is replayed behind what this opening writes, when power is lost: a process that was killed may have stored it only.
        memory.keep(&own, &settings.mutations)?;
    }
    let is_current = need == Need::There || settings.mutations.is_on("redo_old_replayed");
    let (Some(memory), Some(header)) = (&settings.redo, own.filter(|own| is_current && !own.is_void)) else {
        return Ok(Vec::new());
    };
    let geometry = device.geometry();
    let mut found = find_all(memory, &header, superblock, geometry, &settings.mutations);
    let damage: Vec<Damage> = found.iter_mut().flat_map(|shard| std::mem::take(&mut shard.damage)).collect();
    let has_groups = !damage.is_empty() || found.iter().any(|shard| !shard.groups.is_empty());
    if has_groups
        && is_of_newer_files(superblock, report.damaged_superblock_slot, &header, &settings.mutations)
    {
        if !settings.redo_loss_accepted {
            return Err(older_files(&header, superblock));
        }
        report.redo_lost = true;
        return Ok(Vec::new());
    }
    if !damage.is_empty() && !settings.redo_loss_accepted {
        return Err(damaged(&damage));
    }
    report.redo_damage = damage.iter().map(Damage::to_string).collect();
    report.redo_lost_bytes = found.iter().map(|shard| shard.lost_bytes).sum();
    let mut found: Vec<FoundGroup> = found.into_iter().flat_map(|shard| shard.groups).collect();
    if !damage.is_empty() {
        report.redo_lost_bytes -= on_flash::keep_lacking(device, &mut found)?;
    }
    let groups: Vec<Group> = found.into_iter().map(|group| rebuilt(group, geometry)).collect();
    let segments = groups.iter().map(|group| group.segment).collect();
    report.redo_groups = groups.len() as u64;
    let voids_early = settings.mutations.is_on("redo_voided_early");
    let kind = if voids_early { IoKind::Write } else { IoKind::WriteDurable };
    let writes = groups.into_iter().enumerate().map(|(token, group)| IoRequest {
        token: token as u64,
        kind,
        offset: group.offset,
        buffer: Some(group.buffer),
    });
    run_all(device, writes.collect()).map_err(not_written)?;
    // crash here [replayed-not-void]: the same is written again
    if !settings.mutations.is_on("redo_not_voided") {
        memory.make_void(&header, &settings.mutations)?;
    }
    Ok(segments)
}

/// Where the newest writes of a store lie, as its superblock tells: an opening without the region is refused where they lie, or
/// may lie, in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewestWrites {
    /// On the device, with all else.
    OnDevice,
    /// In the redo log of a region.
    InRegion,
    /// In the redo log of a region, or on the device: a slot of the superblock is damaged, which would say it.
    MayBeInRegion,
}

impl NewestWrites {
    /// Of the store of `superblock`; `is_slot_damaged`: its other slot is, and may have been newer.
    pub fn of(superblock: &Superblock, is_slot_damaged: bool) -> NewestWrites {
        match (superblock.redo_opening, superblock.clean) {
            (0, _) => NewestWrites::OnDevice,
            (_, false) => NewestWrites::InRegion,
            (_, true) if is_slot_damaged => NewestWrites::MayBeInRegion,
            (_, true) => NewestWrites::OnDevice,
        }
    }
}

impl fmt::Display for NewestWrites {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            NewestWrites::OnDevice => "the newest writes of the store lie on its device",
            NewestWrites::InRegion => "the newest writes of the store lie in a redo log in persistent memory",
            NewestWrites::MayBeInRegion => {
                "the newest writes of the store may lie in a redo log in persistent memory (a slot of its superblock is \
                 damaged, which would say it)"
            }
        })
    }
}

/// Whether a store needs what lies in its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// After a clean end, and after an opening without a redo log, what lies in a region is old: its places may have
    /// been written by other lives since.
    Nothing,
    There,
    /// It is needed, or may be, and not there.
    Missing,
}

impl Need {
    /// For the `superblock` that was read; `hides_one`: its other slot is damaged, and may have said that the store was opened
    /// once more. `own`: the header of the store's region, if one is there.
    fn of(superblock: &Superblock, hides_one: bool, own: Option<&RegionHeader>) -> Need {
        // Divided for an opening that the superblock does not know: it was lost with the slot.
        if hides_one && own.is_some_and(|own| !own.is_void && own.opening > superblock.open_count) {
            return Need::There;
        }
        let is_there = own.is_some_and(|own| own.opening >= superblock.redo_opening);
        match NewestWrites::of(superblock, hides_one) {
            NewestWrites::OnDevice => Need::Nothing,
            _ if !is_there => Need::Missing,
            NewestWrites::MayBeInRegion => Need::Nothing,
            NewestWrites::InRegion => Need::There,
        }
    }
}

/// The number of the opening that used the region, if it is the store's; zero when there is none.
///
/// # Errors
/// When the region fails, or holds something else.
pub(crate) fn opening_in_region(settings: &OpenSettings, superblock: &Superblock) -> Result<u64> {
    let header = settings.redo.as_ref().map(RedoMemory::header).transpose()?.flatten();
    let own = header.filter(|header| header.store == superblock.store_id);
    Ok(own.filter(|_| !settings.mutations.is_on("redo_opening_repeats")).map_or(0, |own| own.opening))
}

/// Whether what lies in the store's region was written beside files that are newer than these: the superblock says the
/// number of an opening before its first group. Such a group may belong where an older life of a segment lies.
fn is_of_newer_files(
    superblock: &Superblock,
    hides_one: bool,
    own: &RegionHeader,
    mutations: &Mutations,
) -> bool {
    own.opening > superblock.redo_opening && !hides_one && !mutations.is_on("redo_over_older_files")
}

fn older_files(own: &RegionHeader, superblock: &Superblock) -> Error {
    let message = format!(
        "the redo log in persistent memory is of a later opening ({}) than the store's files ({}): they were put back from \
         an older copy. Bring back the files that belong to it, or open the store as the copy has it by giving up \
         what the redo log holds (--nvm-loss accept)",
        own.opening, superblock.open_count
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// Groups that could not go to the device are still in the region, and go there at the next opening.
fn not_written(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NoSpace => error.context(
            "the device has no space for the newest writes of the store, which stay in its redo log in persistent memory; \
             make room on the device and open the store again",
        ),
        _ => error.context("writing the redo log's groups"),
    }
}

fn foreign(other: &RegionHeader) -> Error {
    let message = format!(
        "the redo region belongs to another store (opening {} of {:016x}): use another region, or remove it",
        other.opening, other.store
    );
    Error::new(ErrorKind::InvalidInput, message)
}

fn missing(
    newest: NewestWrites,
    found: Option<&RegionHeader>,
    is_given: bool,
    own: Option<RegionHeader>,
) -> Error {
    let what = match (is_given, own) {
        (false, _) => "no region was given",
        (true, None) if found.is_some() => "the region given is another store's",
        (true, None) => "the region given is blank",
        (true, Some(_)) => "the region given is an older copy",
    };
    let message = format!(
        "{newest}, and {what}: give the region, or open the store without these writes by accepting their loss \
         (--nvm-loss accept)"
    );
    Error::new(ErrorKind::InvalidInput, message)
}

/// What is said when something that was durable is damaged and its loss is not accepted.
fn damaged(damage: &[Damage]) -> Error {
    let first = damage.first().map(Damage::to_string).unwrap_or_default();
    let others = match damage.len() {
        0 | 1 => String::new(),
        count => format!(" (and {} more places)", count - 1),
    };
    let message = format!(
        "the redo log in persistent memory, which holds the newest writes of the store, is damaged: {first}{others}; open \
         the store without what is damaged by accepting its loss (--nvm-loss accept)"
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// What the region holds of each shard.
fn find_all(
    memory: &RedoMemory,
    header: &RegionHeader,
    superblock: &Superblock,
    geometry: Geometry,
    mutations: &Mutations,
) -> Vec<FoundShard> {
    let salt = |slot: &SlotHeader| {
        let generation = BrokenRules::of(mutations).salt_generation(slot.generation);
        segment_salt(header.store, slot.segment, generation)
    };
    let is_named = header.opening == superblock.redo_opening;
    let find = |shard| found::find(memory, (header, is_named), shard, geometry, &salt);
    (0..header.layout.shards).map(find).collect()
}

/// What [`survey`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Groups that the next opening would write to the device.
    pub groups: u64,
    /// Their records.
    pub records: u64,
    /// What was durable and is damaged.
    pub damage: Vec<Damage>,
    /// Bytes that are lost with it.
    pub lost_bytes: u64,
}

/// Looks for what the store of `superblock` has in a region, and for damage of it, and changes nothing. Nothing is
/// needed of a region after an end in good order. `hides_one`: a slot of the superblock is damaged, and may have been newer.
///
/// # Errors
/// `InvalidInput` when the region is not the one that the store needs; `Incompatible` when it holds something else.
pub fn survey(
    memory: &RedoMemory,
    superblock: &Superblock,
    hides_one: bool,
    geometry: Geometry,
) -> Result<Survey> {
    if !hides_one && (superblock.redo_opening == 0 || superblock.clean) {
        return Ok(Survey::default());
    }
    let found = memory.header()?;
    let own = found.filter(|found| found.store == superblock.store_id);
    let need = Need::of(superblock, hides_one, own.as_ref());
    let header = match (need, own, found) {
        (Need::Nothing, ..) => return Ok(Survey::default()),
        (_, None, Some(other)) => return Err(foreign(&other)),
        (Need::There, Some(own), _) => own,
        (Need::Missing, ..) | (_, None, None) => {
            return Err(missing(NewestWrites::of(superblock, hides_one), found.as_ref(), true, own));
        }
    };
    if header.is_void {
        return Ok(Survey::default());
    }
    let mut survey = Survey::default();
    let is_older = is_of_newer_files(superblock, hides_one, &header, &Mutations::none());
    for shard in find_all(memory, &header, superblock, geometry, &Mutations::none()) {
        survey.groups += shard.groups.len() as u64;
        survey.records += shard.groups.iter().map(|group| u64::from(group.records)).sum::<u64>();
        survey.damage.extend(shard.damage);
        survey.lost_bytes += shard.lost_bytes;
    }
    if is_older && (survey.groups > 0 || !survey.damage.is_empty()) {
        return Err(older_files(&header, superblock));
    }
    Ok(survey)
}

/// The group's bytes as they would have been written.
fn rebuilt(found: FoundGroup, geometry: Geometry) -> Group {
    let FoundGroup { slot, mut image, end, records, salt, .. } = found;
    let first = slot.header as usize;
    let header = GroupHeader {
        log_id: slot.log_id,
        number: slot.group,
        durable_groups: slot.durable_groups,
        first_seq: slot.first_seq,
        len: end - first,
        records,
        batches_resolved: slot.batches_resolved,
        past_ms: slot.past_ms,
    };
    group::encode_header(&mut image[first..], &header, salt, slot.start as usize + first);
    let mut buffer = IoBuffer::zeroed(end.next_multiple_of(BLOCK_BYTES));
    buffer[..end].copy_from_slice(&image[..end]);
    let offset = geometry.segment_offset(slot.segment) + u64::from(slot.start);
    Group { segment: slot.segment, offset, buffer }
}

/// Divides the region for the opening that `superblock` is going to name, and leaves the snapshots of indexes that are
/// committed at one of `kept`. `None` when there is none, or it is too
/// small, which the report says.
///
/// # Errors
/// When the region fails.
pub(crate) fn divide(
    settings: &OpenSettings,
    superblock: &Superblock,
    geometry: Geometry,
    kept: &[u64],
    report: &mut OpenReport,
) -> Result<Option<Layout>> {
    let Some(memory) = &settings.redo else { return Ok(None) };
    let layout = match layout_for(memory, settings, geometry) {
        Ok(layout) => layout,
        Err(least_bytes) => {
            report.redo_bytes_wanted = least_bytes;
            return Ok(None);
        }
    };
    memory.format(superblock.store_id, superblock.open_count, layout, kept, &settings.mutations)?;
    Ok(Some(layout))
}

/// How the region is divided under these settings.
///
/// # Errors
/// The bytes that a region needs at least.
pub(super) fn layout_for(
    memory: &RedoMemory,
    settings: &OpenSettings,
    geometry: Geometry,
) -> std::result::Result<Layout, u64> {
    let group_bytes = group_bytes_max(&settings.shard, geometry, StreamId::Hot);
    Layout::of(memory.bytes(), settings.shard_count, group_bytes as u64)
}
