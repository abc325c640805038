//! Settings of the engine: plain data with units, ranges and what each choice costs.

use crate::io::StreamId;
use crate::location::SEGMENT_BYTES_MAX;
use serde::{Deserialize, Serialize};
use tierstone_engine::Durability;
use tierstone_media::Geometry;

/// Settings of one shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardSettings {
    /// Memory for index and record cache of this shard, in bytes. More cache, fewer device reads.
    pub memory_bytes: u64,
    /// The most that the index may take of the memory, 0 to 1; the cache gets what the index does not use. New
    /// keys are refused when the index has used its part up.
    pub index_fraction: f64,
    /// The most that the cache takes, in bytes, however little the index uses. Never more than 128 GiB.
    pub cache_bytes_max: u64,
    /// When writes may be acknowledged.
    pub durability: Durability,
    /// A group is closed at this size, in bytes. Larger groups make fewer, larger device writes; a
    /// record larger than this gets a group of its own. Where there is less memory than for eight such groups,
    /// those of writes are closed at an eighth of [`ShardSettings::write_buffer_bytes`], 64 KiB at least.
    pub group_bytes_max: usize,
    /// Groups wait for company while this many are being written, at first and at least. One suits devices
    /// whose flush is device-wide.
    pub groups_in_flight_min: usize,
    /// So many may be in flight where records then wait less, which is tried out: durable writes that
    /// overlap. Each costs an earlier, smaller group, and its buffer. The same as `groups_in_flight_min`, the
    /// default: nothing is tried.
    pub groups_in_flight_max: usize,
    /// Above this many bytes waiting to be written, further groups are submitted in spite of
    /// these numbers: the device is then busy with bytes, not with flushes.
    pub overlap_bytes: usize,
    /// While a load goes on that nobody waits for, groups are written without being made durable one by one; a
    /// flush makes them durable when so many bytes are written, in bytes. 0: each is made durable by itself.
    pub lazy_bytes_max: usize,
    /// The same when the first of them has waited this long, in milliseconds.
    pub lazy_wait_ms: u64,
    /// Above this many bytes waiting or in flight the shard is throttled; see
    /// [`ShardSettings::write_buffer_bytes`].
    pub write_buffer_bytes_max: usize,
    /// Above this many reads in flight the shard is throttled.
    pub reads_in_flight_max: usize,
    /// Cleaning begins when fewer than this part of the store's segments is free, 0 to 1, or some nine segments if
    /// that is more. Higher: longer bursts of writes find free segments, and every freed byte costs more moved ones,
    /// since records have so much less time to die.
    pub clean_below_free_fraction: f64,
    /// What the age of a segment counts when cleaning chooses, 0 to 1, as the exponent of the age: 0 takes the emptiest, 1 is the
    /// benefit over the cost of Rosenblum and Ousterhout (1992). Higher: what dies soon is waited for; and young segments that small
    /// groups have filled with padding, which is dead from the start, are waited for too.
    pub clean_age_exponent: f64,
    /// Whether it is marked which records have died, so that cleaning need not search the index for them: of memory up to two
    /// bits for each record of a segment's mean length that would fit into the segment.
    pub marks_dead_records: bool,
    /// Whether, where space is short and the policy is one of LRU or LFU, the oldest segment goes with its keys, which then need no deletions
    /// (`docs/decisions/048-segments-are-retired.md`).
    pub retires_segments: bool,
    /// Bytes that one step of cleaning may move.
    pub clean_step_bytes: usize,
    /// Segments that only deletes and the cleaner may use, so that a full store can be emptied; fewer than
    /// three count as three (`docs/design/logstore.md`, *Full stores*).
    pub reserved_segments: u32,
    /// Bytes of records that lie scattered and that ranges want together which are brought together a second, at most; 0: none.
    /// Higher: ranges of an ordered keyspace that are walked again and again come sooner to one read for many records, and cost more
    /// writes until then. Where no ranges are walked nothing is moved.
    pub cluster_bytes_per_second: u64,
    /// Memory for the table of replaced records that snapshots still show, in bytes: 80 a record. When
    /// it is full the oldest snapshot is lost. The default is enough for 200,000 replaced records.
    pub snapshot_table_bytes_max: u64,
    /// The part of the shard's capacity that records may take which only snapshots show, 0 to 1; beyond
    /// it the oldest snapshot is lost. Their segments cannot be cleaned: more would leave the cleaner
    /// so little room that every writer pays for it.
    pub snapshot_pinned_fraction_max: f64,
    /// A value of at least so many bytes stays where it is when only its expiry changes; shorter ones are
    /// written again, as nothing is kept in memory for them then. Less than 96 counts as 96.
    pub touch_value_bytes_min: usize,
    /// A checkpoint of the index is written when nothing was written for this long, in milliseconds, and
    /// there is something to save by it. Shorter: a crash soon after a burst of writes is recovered from
    /// quicker, and bursts cost more checkpoints.
    pub checkpoint_idle_ms: u64,
    /// Without a pause, a checkpoint is written when the log has grown by so many bytes for each byte of
    /// the index: its cost is the inverse, a crash costs at most the replay of so much.
    pub checkpoint_tail_per_index: u32,
    /// ... and by this many bytes at least,
    pub checkpoint_tail_bytes_min: u64,
    /// ... and by this many records, of all shards together: those of the default are replayed in some 0.4 s.
    pub checkpoint_tail_records_long: u64,
    /// Fewer records after the last checkpoint are not worth another: a second replays millions.
    pub checkpoint_tail_records_min: u64,
    /// Bytes of the index that one step puts into a checkpoint, or one region of it if that is more.
    pub checkpoint_step_bytes: usize,
}

impl Default for ShardSettings {
    fn default() -> Self {
        ShardSettings {
            memory_bytes: 256 << 20,
            index_fraction: 0.75,
            cache_bytes_max: u64::MAX,
            durability: Durability::Sync,
            group_bytes_max: 1 << 20,
            groups_in_flight_min: 1,
            groups_in_flight_max: 1,
            overlap_bytes: 512 << 10,
            lazy_bytes_max: 32 << 20,
            lazy_wait_ms: 100,
            write_buffer_bytes_max: 8 << 20,
            reads_in_flight_max: 1024,
            clean_below_free_fraction: 0.04,
            clean_age_exponent: 0.5,
            marks_dead_records: true,
            retires_segments: true,
            clean_step_bytes: 256 << 10,
            reserved_segments: 3,
            cluster_bytes_per_second: 64 << 20,
            snapshot_table_bytes_max: 16 << 20,
            snapshot_pinned_fraction_max: 0.25,
            touch_value_bytes_min: 512,
            checkpoint_idle_ms: 1_000,
            checkpoint_tail_per_index: 8,
            checkpoint_tail_bytes_min: 64 << 20,
            checkpoint_tail_records_long: 2_000_000,
            checkpoint_tail_records_min: 10_000,
            checkpoint_step_bytes: 8 << 10,
        }
    }
}

/// Segments of a new store at least, and of a shard's part of it, where its capacity allows: writes then wait
/// for the cleaning of a small part of a segment, never of a whole one.
const SEGMENTS_WANTED: u64 = 128;
const SEGMENTS_WANTED_A_SHARD: u64 = 64;
/// Segments that are made smaller than this hold few records, and no long ones.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// The size of segments, in bytes, for a new store of `capacity_bytes` with so many shards: a power of two
/// from 1 to 32 MiB, so that a shard has 64 segments and the store 128, or more. Larger segments mean fewer
/// files and longer records ([`crate::value_bytes_max`]); with fewer of them cleaning is felt in jolts.
pub fn segment_bytes_for(capacity_bytes: u64, shards: u16) -> u64 {
    let wanted = SEGMENTS_WANTED.max(SEGMENTS_WANTED_A_SHARD * u64::from(shards));
    let bytes = (capacity_bytes / wanted).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    1 << bytes.ilog2()
}

/// Groups wait in so much memory at least, in bytes, however little there is.
const WRITE_BUFFER_BYTES_MIN: usize = 1 << 20;

impl ShardSettings {
    /// Bytes that groups which wait or are being written may take before the shard is throttled: an eighth of
    /// its memory, 1 MiB at least, `write_buffer_bytes_max` at most.
    pub fn write_buffer_bytes(&self) -> usize {
        let part = usize::try_from(self.memory_bytes / 8).unwrap_or(usize::MAX);
        part.max(WRITE_BUFFER_BYTES_MIN).min(self.write_buffer_bytes_max)
    }

    /// Bytes that the summary of a sealed segment may have to be kept for the next one, and the buffer it was written from
    /// as well: a 64th of the memory, a quarter of the write buffer at least.
    pub fn seal_bytes_max(&self) -> usize {
        let part = usize::try_from(self.memory_bytes / 64).unwrap_or(usize::MAX);
        part.max(self.write_buffer_bytes() / 4)
    }

    /// Bytes that the table of values whose expiry was changed may take: 112 a value. When it is full, values
    /// are written again with their new expiry.
    pub fn touch_table_bytes_max(&self) -> u64 {
        self.memory_bytes / 32
    }

    /// Bytes that the index may take.
    pub fn index_bytes_max(&self) -> u64 {
        (self.memory_bytes as f64 * self.index_fraction.clamp(0.01, 0.99)) as u64
    }
}

/// A group of a log is closed at this size, in bytes: in the hot log at an eighth of the write buffers where
/// memory is short. Nobody waits for a cold group, and every group's padding counts there: for the bound on what
/// cleaning gains, which may not change with the memory; in segments of some blocks a cold group may fill its
/// segment.
pub(crate) fn group_bytes_max(settings: &ShardSettings, geometry: Geometry, id: StreamId) -> usize {
    let usual = settings.group_bytes_max.min(geometry.segment_bytes as usize / 4);
    match id {
        StreamId::Hot => usual.min((settings.write_buffer_bytes() / 8).max(HOT_GROUP_BYTES_MIN)),
        StreamId::Cold => usual.max(COLD_GROUP_BYTES.min(geometry.segment_bytes as usize)),
    }
}

/// Hot groups may be so long, in bytes, however little memory there is.
const HOT_GROUP_BYTES_MIN: usize = 64 << 10;
/// Cold groups are closed at this size at the earliest, in bytes.
const COLD_GROUP_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_so_small_that_a_shard_has_many() {
        assert_eq!(segment_bytes_for(512 << 30, 8), 32 << 20);
        assert_eq!(segment_bytes_for(4 << 30, 1), 32 << 20);
        assert_eq!(segment_bytes_for((4 << 30) - 1, 1), 16 << 20);
        assert_eq!(segment_bytes_for(1 << 30, 2), 8 << 20);
        assert_eq!(segment_bytes_for(1 << 30, 8), 2 << 20);
        assert_eq!(segment_bytes_for(0, 1), 1 << 20);
        assert_eq!(segment_bytes_for(u64::MAX, u16::MAX), 32 << 20);
    }

    #[test]
    fn what_seals_a_segment_is_kept_where_there_is_memory_for_it() {
        let with = |memory_bytes| ShardSettings { memory_bytes, ..ShardSettings::default() }.seal_bytes_max();
        assert_eq!(with(1 << 30), 16 << 20);
        assert_eq!(with(64 << 20), 2 << 20, "a quarter of the write buffer");
    }
}
