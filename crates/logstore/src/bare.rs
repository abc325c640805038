//! The superblock of a store whose records another engine keeps: the same two slots, and no segments.
//!
//! Crash: as in [`mod@crate::open`]: the number of an opening is durable before anything is written under it.

use crate::format::superblock::{META_BYTES, SLOT_BYTES, SlotFound};
use crate::open::{OpenReport, OpenSettings, run_all};
use crate::superblocks::{SuperblockWriter, read_slots, read_superblock};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::{BlockDevice, IoBuffer, IoRequest};

/// An open superblock.
#[derive(Debug)]
pub struct BareStore {
    /// The superblock, with the number of this opening.
    pub superblock: SuperblockWriter,
    /// What was found of it.
    pub report: OpenReport,
}

/// Opens or makes the superblock at the start of `device`, and notes this opening in it, durably. Of `settings` only
/// what makes a new store counts, and `past_ms`.
///
/// # Errors
/// `InvalidInput`: there is no store and `create` is off, or `device` has less than [`META_BYTES`]. `Incompatible`: a
/// newer format. `Corrupt`: no superblock is readable. `DeviceFailed`: the device gave an error.
pub fn open_bare(device: &mut dyn BlockDevice, settings: &OpenSettings) -> Result<BareStore> {
    if device.geometry().meta_bytes < META_BYTES {
        let message = format!("{META_BYTES} bytes are needed in front of the records");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let mut report = OpenReport::default();
    let mut superblock = read_superblock(device, settings, &mut report)?;
    if !report.created {
        // What was written last may lie in the device's cache only, and nothing may be built on that.
        run_all(device, vec![IoRequest::flush(0)])?;
    }
    let mut next = superblock.superblock.clone();
    // A damaged slot may hide one opening.
    next.open_count += 1 + u64::from(report.damaged_superblock_slot);
    next.clean = false;
    next.past_ms = next.past_ms.max(settings.past_ms);
    superblock.write(device, next)?;
    Ok(BareStore { superblock, report })
}

/// Whether both slots are zeros, and whether one is whole.
///
/// # Errors
/// `DeviceFailed`: the device gave an error.
pub fn look(device: &mut dyn BlockDevice) -> Result<(bool, bool)> {
    let slots = read_slots(device)?;
    let is_whole = slots.iter().any(|slot| matches!(slot, SlotFound::Whole { .. } | SlotFound::Newer(_)));
    Ok((slots.iter().all(|slot| *slot == SlotFound::Blank), is_whole))
}

/// Makes a first slot that is torn blank again, durably, if the second was never written: what remains when power was lost
/// in the making of a store. Whoever calls it knows that nothing was ever stored here.
///
/// # Errors
/// `DeviceFailed`: the device gave an error.
pub fn forget_torn_making(device: &mut dyn BlockDevice) -> Result<()> {
    if read_slots(device)? == [SlotFound::Damaged, SlotFound::Blank] {
        // crash here [torn-making-half-blank]: it is as torn as before, and forgotten by the next opening
        run_all(device, vec![IoRequest::write_durable(0, 0, IoBuffer::zeroed(SLOT_BYTES))])?;
    }
    Ok(())
}
