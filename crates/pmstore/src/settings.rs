//! Settings: plain data with units, ranges and what each choice costs.

use serde::{Deserialize, Serialize};
use tierstone_engine::Durability;

/// The longest value in bytes, where segments are large enough ([`crate::OpenedStore::value_bytes_max`]), for keys up to 1 KiB: what
/// stores on devices take, into which backups are restored. Longer keys take of it. Until 2026-11 values might have 8 MiB.
pub const VALUE_BYTES_MAX: u64 = (8 << 20) - (4 << 10) - 56 - KEY_BYTES_BESIDE;
/// Bytes of a key that values leave room for.
pub(crate) const KEY_BYTES_BESIDE: u64 = 1024;
/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// The longest segment in bytes.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// How a new store divides its region; an existing one keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Bytes of a physical segment: a power of two, 4 KiB to 16 MiB. Larger: fewer words in the allocation table,
    /// more space that a shard holds and does not use.
    pub segment_bytes: u64,
    /// Bytes of a storage block, the unit of cleaning: a power of two, 1 KiB to 128 KiB, at most a segment. Larger:
    /// a step of cleaning takes longer.
    pub block_bytes: u64,
    /// Segments of each shard's log, 3 to 4,096. More: fewer write-backs forced by a full log, longer replay.
    pub log_segments: u16,
}

impl Geometry {
    /// Whether a store can be divided so.
    pub fn is_possible(&self) -> bool {
        let Geometry { segment_bytes, block_bytes, log_segments } = self;
        segment_bytes.is_power_of_two()
            && block_bytes.is_power_of_two()
            && (4 << 10..=SEGMENT_BYTES_MAX).contains(segment_bytes)
            && (1 << 10..=128 << 10).contains(block_bytes)
            && block_bytes <= segment_bytes
            && (3..=4096).contains(log_segments)
    }
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry { segment_bytes: 2 << 20, block_bytes: 64 << 10, log_segments: 8 }
    }
}

/// Settings of one shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardSettings {
    /// When writes may be acknowledged.
    pub durability: Durability,
    /// What indexes, and others as they say ([`tierstone_engine::Engine::note_outside_bytes`]), may take of memory, in
    /// bytes: above it new keys are refused, within some hundred keys, but not before indexes have half of it. The tables of blocks and of old records are not
    /// counted: the space bounds them. Default: no bound.
    pub memory_bytes: u64,
    /// Cleaning begins when fewer blocks than this are free, those of free segments included. More: less usable
    /// space, and less to be moved for each block that cleaning frees.
    pub clean_below_blocks: u32,
    /// Ordered keyspaces hold eight bytes of each key in memory, behind what neighbours share, and read the rest in
    /// place; else whole keys. Less memory, more so for long keys; some more reads of persistent memory.
    pub partial_keys: bool,
    /// Bytes of records that one step writes back from the caches for the log to be truncated.
    pub write_back_step_bytes: u64,
    /// While writes come, the end of the log is noted so often, in microseconds, so that damage of its last frames can be told
    /// from a loss of power. Less often: fewer fences, one each time; more that looks like a tear after a crash.
    pub mark_every_us: u64,
    /// Memory for the table of replaced records that snapshots still show, in bytes: 80 a record, 80 and its bytes a
    /// key that has left an order. Beyond it the oldest snapshot is lost. It counts as memory for indexes too.
    pub snapshot_table_bytes_max: u64,
    /// The part of the shard's share of the capacity that records may take which only snapshots show, 0 to 1; beyond
    /// it the oldest snapshot is lost. More: less space for what is written, and dearer cleaning.
    pub snapshot_pinned_fraction_max: f64,
    /// Checkpoints of the index are made when blocks of so many bytes are in use: a smaller store is read in no time.
    /// `u64::MAX`: none is made; one that is there is taken in.
    pub checkpoint_bytes_min: u64,
    /// After a checkpoint the next one waits so many times as long as that one took of the processor, about, and until a
    /// sixteenth of what counts was written. Less: fewer records to be read at an opening, more work beside the traffic.
    pub checkpoint_rest: u32,
    /// After each step of a checkpoint the next one waits so many times as long as that one took, about. Less: sooner done,
    /// and longer waits of what comes meanwhile.
    pub checkpoint_step_rest: u32,
    /// The part of the shard's share of the capacity, 0 to 1, that records and a checkpoint (16 bytes a key) may take
    /// together for one to be made. More: dearer cleaning.
    pub checkpoint_fill_max: f64,
}

impl Default for ShardSettings {
    fn default() -> Self {
        ShardSettings {
            durability: Durability::Sync,
            memory_bytes: u64::MAX,
            clean_below_blocks: 16,
            partial_keys: false,
            write_back_step_bytes: 64 << 10,
            mark_every_us: 1_000_000,
            snapshot_table_bytes_max: 16 << 20,
            snapshot_pinned_fraction_max: 0.25,
            checkpoint_bytes_min: 64 << 20,
            checkpoint_rest: 32,
            checkpoint_step_rest: 7,
            checkpoint_fill_max: 0.75,
        }
    }
}
