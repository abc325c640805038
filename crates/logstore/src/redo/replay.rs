//! Opening with a redo log: what a region holds goes to flash, before recovery looks there.
//!
//! Crash at any point: until the region is void the same groups are written again, to places that nothing else
//! was written to since; after that they are the device's.

use super::format::{Layout, RegionHeader, SLOT_HEADER_BYTES, SLOT_PAST, SLOT_WRITTEN_BYTES, SlotHeader};
use super::slots::BrokenRedo;
use super::{RedoLog, RedoMemory};
use crate::format::group::{self, GroupHeader};
use crate::format::record::{self, Decoded};
use crate::format::segment::{HeaderFound, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::io::StreamId;
use crate::location::UNIT_BYTES;
use crate::open::{OpenReport, OpenSettings, run_all};
use crate::rules::BrokenRules;
use crate::settings::group_bytes_max;
use crate::shard::{log_id, segment_salt};
use tierstone_base::{Error, ErrorKind, Result, ShardId};
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
/// `InvalidInput` when the region that the store needs is not there and its loss is not accepted; `Incompatible`
/// when the region is something else's; when device or region fail.
pub(crate) fn replay(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    superblock: &Superblock,
    report: &mut OpenReport,
) -> Result<Vec<u32>> {
    let header = settings.redo.as_ref().map(RedoMemory::header).transpose()?.flatten();
    let own = header.filter(|header| header.store == superblock.store_id);
    if let Some(other) = header.filter(|header| own.is_none() && !header.is_void) {
        let message = format!(
            "the redo region belongs to another store (opening {} of {:016x}): use another region, or remove it",
            other.opening, other.store
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let is_needed = superblock.redo_opening > 0 && !superblock.clean;
    if is_needed && own.is_none_or(|own| own.opening < superblock.redo_opening) {
        if !settings.redo_loss_accepted {
            return Err(missing(settings.redo.is_some(), own));
        }
        report.redo_lost = true;
        return Ok(Vec::new());
    }
    // After a clean end, and after an opening without a redo log, what lies in a region is old: its places may have
    // been written by other lives since.
    let is_current = is_needed || settings.mutations.is_on("redo_old_replayed");
    let (Some(memory), Some(header)) = (&settings.redo, own.filter(|own| is_current && !own.is_void)) else {
        return Ok(Vec::new());
    };
    let geometry = device.geometry();
    let groups: Vec<Group> = (0..header.layout.shards)
        .flat_map(|shard| groups_of(memory, &header, shard, superblock, geometry, settings))
        .collect();
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
    run_all(device, writes.collect()).map_err(|error| error.context("writing the redo log's groups"))?;
    // crash here [replayed-not-void]: the same is written again
    if !settings.mutations.is_on("redo_not_voided") {
        memory.make_void(&header, &settings.mutations)?;
    }
    Ok(segments)
}

fn missing(is_given: bool, own: Option<RegionHeader>) -> Error {
    let what = match (is_given, own) {
        (false, _) => "no region was given",
        (true, None) => "the region given is blank",
        (true, Some(_)) => "the region given is an older copy",
    };
    let message = format!(
        "the newest writes of the store lie in a redo log in persistent memory, and {what}: give the region, or open \
         the store without these writes by accepting their loss (--nvm-loss accept)"
    );
    Error::new(ErrorKind::InvalidInput, message)
}

/// The groups of a shard that may not be on flash, in order.
fn groups_of(
    memory: &RedoMemory,
    header: &RegionHeader,
    shard: ShardId,
    superblock: &Superblock,
    geometry: Geometry,
    settings: &OpenSettings,
) -> Vec<Group> {
    let log = log_id(header.opening, shard, false);
    let watermark = memory.region.load_word(header.layout.area(shard));
    let mut found: Vec<(u64, Group)> = (0..header.layout.slots)
        .filter_map(|slot| {
            let place = header.layout.slot(shard, slot);
            let mut bytes = [0; SLOT_WRITTEN_BYTES];
            memory.region.load(place, &mut bytes);
            let slot = SlotHeader::decode(&bytes, header.store)?;
            let is_sane = slot.segment < geometry.segment_limit
                && u64::from(slot.start) < geometry.segment_bytes
                && (slot.start as usize).is_multiple_of(BLOCK_BYTES)
                && slot.header as usize == if slot.start == 0 { BLOCK_BYTES } else { 0 };
            if slot.log_id != log || slot.group < watermark || !is_sane {
                return None;
            }
            // A slot may be longer than what is left of the segment; the group is not.
            let left = geometry.segment_bytes - u64::from(slot.start);
            let mut image = vec![0; header.layout.image_bytes().min(left as usize)];
            memory.region.load(place + SLOT_HEADER_BYTES as u64, &mut image);
            let past_ms = slot.past_ms.max(memory.region.load_word(place + SLOT_PAST));
            let broken = BrokenRules::of(&settings.mutations);
            let salt_generation = broken.salt_generation(slot.generation);
            let salt = segment_salt(superblock.store_id, slot.segment, salt_generation);
            let buffer = rebuilt(&mut image, &SlotHeader { past_ms, ..slot }, salt, header.store)?;
            let offset = geometry.segment_offset(slot.segment) + u64::from(slot.start);
            Some((slot.group, Group { segment: slot.segment, offset, buffer }))
        })
        .collect();
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, group)| group).collect()
}

/// The group's bytes as they would have been written, with the records that are whole; `None` where the header
/// of its segment is not.
fn rebuilt(image: &mut [u8], slot: &SlotHeader, salt: u64, store: u64) -> Option<IoBuffer> {
    let first = slot.header as usize;
    if first > 0 {
        let HeaderFound::Whole(found) = SegmentHeader::decode(image.get(..first)?) else { return None };
        let own = (found.store, found.segment, found.log_id, found.generation);
        if own != (store, slot.segment, slot.log_id, slot.generation) {
            return None;
        }
    }
    let mut end = first + group::HEADER_BYTES;
    let mut records = 0;
    while let Some(rest) = image.get(end..) {
        let unit = (slot.start as usize + end) / UNIT_BYTES;
        let Decoded::Whole(found) = record::decode(rest, salt, unit as u32, rest.len()) else { break };
        let next = end + found.units() * UNIT_BYTES;
        if next > image.len() {
            break;
        }
        end = next;
        records += 1;
    }
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
    Some(buffer)
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

/// The redo log of `shard`.
pub(crate) fn log_of(settings: &OpenSettings, layout: Layout, shard: ShardId, store: u64) -> Option<RedoLog> {
    let memory = settings.redo.clone()?;
    Some(RedoLog::new(memory, layout, shard, store, BrokenRedo::of(&settings.mutations)))
}
