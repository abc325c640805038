//! At the opening, where a redo log is damaged and its loss accepted: what the device has whole already.
//!
//! A group may have been written although its slot is not free yet. With what is damaged left out it would lie there again,
//! shorter than it was: what is whole stays.
//!
//! Crash: what reads whole may lie in the device's cache only, from before the process died. It is flushed before the region,
//! which has it too, is made void.

use super::found::FoundGroup;
use crate::format::group;
use crate::format::segment::{HeaderFound, SegmentHeader};
use crate::open::{read_ranges, run_all};
use tierstone_base::Result;
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoRequest};

/// Leaves of `groups` those that the device has not whole; the others are durable there. Gives the bytes that were damaged in
/// these, and are not lost. Cost: each is read; a flush if the device has one.
///
/// # Errors
/// When the device fails.
pub(super) fn keep_lacking(device: &mut dyn BlockDevice, groups: &mut Vec<FoundGroup>) -> Result<u64> {
    let geometry = device.geometry();
    let place = |found: &FoundGroup| {
        let offset = geometry.segment_offset(found.slot.segment) + u64::from(found.slot.start);
        let left = geometry.segment_bytes - u64::from(found.slot.start);
        (offset, found.image.len().next_multiple_of(BLOCK_BYTES).min(left as usize))
    };
    let ranges: Vec<(u64, usize)> = groups.iter().map(place).collect();
    let mut lacks = Vec::with_capacity(groups.len());
    read_ranges(device, &ranges, |number, bytes| {
        lacks.push(!is_whole(&groups[number], bytes));
        Ok(())
    })?;
    let (mut lacks, mut saved) = (lacks.into_iter(), 0);
    let before = groups.len();
    groups.retain(|found| {
        let is_lacking = lacks.next().unwrap_or(true);
        saved += if is_lacking { 0 } else { found.lost };
        is_lacking
    });
    if groups.len() < before {
        run_all(device, vec![IoRequest::flush(0)])?;
    }
    Ok(saved)
}

/// Whether `bytes`, from where the image of the group belongs, hold all of it, and the header of the segment if it is the
/// first.
fn is_whole(found: &FoundGroup, bytes: &[u8]) -> bool {
    let slot = &found.slot;
    let Some((before, bytes)) = bytes.split_at_checked(slot.header as usize) else { return false };
    let is_headed = match SegmentHeader::decode(before) {
        HeaderFound::Whole(header) => {
            (header.log_id, header.segment, header.generation) == (slot.log_id, slot.segment, slot.generation)
        }
        _ => before.is_empty(),
    };
    let offset = (slot.start + slot.header) as usize;
    let header = group::decode(bytes, found.salt, offset, &mut Vec::new());
    is_headed && header.is_some_and(|header| (header.log_id, header.number) == (slot.log_id, slot.group))
}
