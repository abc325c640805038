//! Settings of the record cache, and what it counts.

use super::FrameId;
use super::frame::{HEADER_BYTES, UNIT_BYTES};
use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result};

/// The small ring is at least this many of the largest frames long; otherwise one record would
/// push out all that is on trial.
const FRAMES_MAX_IN_RING: usize = 8;
/// Ghost slots a byte of capacity: one for 128 bytes, so that the ghost of a cache of small
/// records (frames of 128 bytes) still remembers as many records as the cache holds.
const CAPACITY_BYTES_A_GHOST_SLOT: usize = 128;

/// How large a record cache is and whom it admits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordCacheSettings {
    /// Bytes of frames, headers included, 0 (no cache) to 128 GiB. Default 64 MiB. Besides, the
    /// ghost takes 1.6 % of `capacity_max_bytes`, touched only where used.
    pub capacity_bytes: u64,
    /// The most that `resize` may set later; raised to `capacity_bytes` when below it. Only address
    /// space is reserved for the difference. Default 0: the capacity can only shrink and grow back.
    pub capacity_max_bytes: u64,
    /// The small ring's part of the capacity in percent, 1 to 50. Default 10: more gives new
    /// records a longer trial, less protects the main ring's records better.
    pub small_percent: u8,
    /// Hits that a record needs in the small ring to be moved to the main ring, 1 to 3. Default 1:
    /// more admits fewer records, which pays only when scans come back to each record once.
    pub promotion_hits: u8,
    /// Longer records are not cached, in bytes. Default 1 MiB. A frame never takes more than an
    /// eighth of the small ring either.
    pub record_max_bytes: u32,
    /// Asks the kernel for huge pages: fewer misses of the page table, memory that becomes
    /// resident in steps of 2 MiB. Default on.
    pub huge_pages: bool,
}

impl Default for RecordCacheSettings {
    fn default() -> Self {
        RecordCacheSettings {
            capacity_bytes: 64 << 20,
            capacity_max_bytes: 0,
            small_percent: 10,
            promotion_hits: 1,
            record_max_bytes: 1 << 20,
            huge_pages: true,
        }
    }
}

/// Bytes of the parts of a cache of some capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub small_bytes: usize,
    pub main_bytes: usize,
    pub frame_max_bytes: usize,
    pub ghost_slots: usize,
}

impl RecordCacheSettings {
    /// The largest capacity, in bytes: that of the largest arena whose frames have ids of [`FrameId::BITS`](super::FrameId::BITS).
    pub const CAPACITY_BYTES_MAX: u64 = (UNIT_BYTES as u64) << FrameId::BITS;

    /// # Errors
    /// `InvalidInput` that names the setting and its range.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
        let capacity = self.capacity_bytes.max(self.capacity_max_bytes);
        if capacity > Self::CAPACITY_BYTES_MAX || usize::try_from(capacity).is_err() {
            return invalid(format!("a record cache of {capacity} bytes is larger than 128 GiB"));
        }
        if !(1..=50).contains(&self.small_percent) {
            return invalid(format!("small_percent is {}, not 1 to 50", self.small_percent));
        }
        if !(1..=3).contains(&self.promotion_hits) {
            return invalid(format!("promotion_hits is {}, not 1 to 3", self.promotion_hits));
        }
        Ok(())
    }

    pub(super) fn layout(&self, capacity_bytes: u64) -> Layout {
        let units = capacity_bytes as usize / UNIT_BYTES;
        let small_units = units * usize::from(self.small_percent) / 100;
        let small_bytes = small_units * UNIT_BYTES;
        let record_max = (self.record_max_bytes as usize + HEADER_BYTES).next_multiple_of(UNIT_BYTES);
        Layout {
            small_bytes,
            main_bytes: (units - small_units) * UNIT_BYTES,
            frame_max_bytes: record_max.min(small_bytes / FRAMES_MAX_IN_RING),
            ghost_slots: capacity_bytes as usize / CAPACITY_BYTES_A_GHOST_SLOT,
        }
    }
}

/// What a record cache holds now and did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordCacheStatistics {
    /// Bytes of frames and gaps that the rings may hold now.
    pub capacity_bytes: u64,
    /// Bytes of frames that the owner's index points to, headers and padding included.
    pub live_bytes: u64,
    /// Bytes of removed frames and of gaps, free again when the tail passes them.
    pub dead_bytes: u64,
    /// Bytes of pinned frames.
    pub pinned_bytes: u64,
    /// Bytes of the ghost's memory, besides the capacity.
    pub ghost_bytes: u64,
    /// Live frames.
    pub frames: u64,
    /// Live frames in the main ring.
    pub main_frames: u64,
    /// Records that were taken in.
    pub inserts: u64,
    /// Records that were too large, or found everything pinned.
    pub refusals: u64,
    /// Live frames dropped from the small ring.
    pub small_evictions: u64,
    /// Live frames dropped from the main ring.
    pub main_evictions: u64,
    /// Frames moved from the small ring to the main ring.
    pub promotions: u64,
    /// Frames that got another turn of their ring.
    pub reinsertions: u64,
    /// Records taken straight into the main ring, because they were dropped from the small ring
    /// not long ago.
    pub ghost_hits: u64,
    /// Frames removed by the owner.
    pub removals: u64,
}
