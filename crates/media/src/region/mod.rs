//! Byte-addressable regions behind one trait: memory that outlives the process, or the machine.
//!
//! A region is read and written by loads and stores; what was stored is durable when its lines were
//! written back and a fence came after. [`MappedRegion`] maps a file (DAX, ordinary, tmpfs), a DAX device or
//! anonymous memory; [`SimRegion`] loses power and keeps any legal subset of lines and words;
//! [`EmulatedRegion`] makes one slower, [`WornRegion`] counts its writes; [`RegionDevice`] makes a range of one a block
//! device.
//!
//! Invariants:
//! 1. An aligned word of 8 bytes is loaded and stored whole, by several threads too, and survives a
//!    crash whole. Longer ranges are moved word by word and may survive in part.
//! 2. What was written back ([`Region::write_back`], [`Region::store_streaming`]) before a fence is
//!    durable after it to the extent of [`Region::guarantee`]; anything else may or may not be.
//! 3. A region never claims more than its backing gives: a file without DAX is `process-crash`,
//!    whatever instructions are used on it.
//! 4. A file is mapped at most once at a time (file lock).
//!
//! Crash: the header of a file is written and synced before the file is used, and never again; a
//! file whose creation was cut off is refused at opening. The bytes belong to their structures.

mod block_device;
mod device;
pub mod emulated;
mod header;
mod instructions;
mod making;
mod mapped;
mod mapping;
mod place;
mod source;
pub mod wear;
mod words;

pub use crate::sim::{LineRegion, SimPersistency, SimRegion, WordRegion};
pub use block_device::RegionDevice;
pub use device::DaxDevice;
pub use emulated::profiles::{MEMORY_PROFILES, MemoryProfile};
pub use emulated::{EmulatedRegion, EmulationCounts, Slowness};
pub(crate) use header::begins_as_region;
pub use header::{REGION_HEADER_BYTES, REGION_VERSION};
pub use instructions::FlushMethod;
pub use mapped::{MappedRegion, PersistenceDomain, RegionDemand, RegionReport, RegionSettings};
pub use source::{RegionSource, SourceRegion};
pub use wear::{WearCounts, WearDetail, WornRegion};

use crate::Guarantee;
use tierstone_base::Result;

/// Bytes that a write-back covers.
pub const LINE_BYTES: u64 = tierstone_crash::lines::LINE_BYTES as u64;
/// Bytes that are stored whole when aligned.
pub const WORD_BYTES: u64 = tierstone_crash::words::WORD_BYTES as u64;

/// Memory that may outlive a crash. Offsets are bytes from its start.
///
/// Several threads may use one region; what several store to the same bytes without a lock of their
/// own ends as one of the values, word by word.
///
/// # Panics
/// Every method, when a range lies outside the region or a word is not aligned to 8 bytes: a mistake
/// of the caller.
pub trait Region {
    /// Its size in bytes, a multiple of [`LINE_BYTES`].
    fn bytes(&self) -> u64;

    /// What durable bytes survive.
    fn guarantee(&self) -> Guarantee;

    /// The little-endian word at `offset`, with everything that was stored before it (acquire).
    fn load_word(&self, offset: u64) -> u64;

    /// Stores a little-endian word at `offset`, whole, after everything before it (release).
    fn store_word(&self, offset: u64, value: u64);

    /// Stores `new` at `offset` if `expected` is there. Returns what was there: `Ok` when stored.
    ///
    /// # Errors
    /// The word that was there instead.
    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64>;

    /// Fills `into` from `offset`.
    fn load(&self, offset: u64, into: &mut [u8]);

    /// The bytes at `offset` where they lie, without a copy; `None` where the region is no memory of this process:
    /// [`Region::load`] them then. Costs what loading them costs.
    ///
    /// # Safety
    /// Nobody stores to these bytes, by this handle or another, while the slice is used.
    unsafe fn in_place(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let _ = (offset, len);
        None
    }

    /// Asks the processor for the lines that `offset .. offset + len` touches, four at most: they are loaded soon.
    /// A hint that changes nothing; nothing is done where the bytes are no memory of this process.
    fn prefetch(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Stores `bytes` at `offset`.
    fn store(&self, offset: u64, bytes: &[u8]);

    /// Stores `bytes` past the caches where the machine can: durable after the next fence of this thread.
    /// Other threads may rely on seeing them only after that fence. For what is not read again soon.
    fn store_streaming(&self, offset: u64, bytes: &[u8]);

    /// Starts to write back the lines that `offset .. offset + len` touches.
    fn write_back(&self, offset: u64, len: u64);

    /// Waits until everything that this thread began to write back is durable.
    ///
    /// # Errors
    /// `DeviceFailed` when the backing could not make it durable: then what is durable is unknown, and
    /// every later fence fails too. Regions driven by CPU instructions do not fail.
    fn fence(&self) -> Result<()>;
}

#[cfg(test)]
#[path = "region_test.rs"]
mod region_test;
