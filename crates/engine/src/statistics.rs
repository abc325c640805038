//! Numbers that an engine gives of itself.

use crate::contract::Cost;
use tierstone_base::histogram::LatencyBuckets;

/// What an engine tells about itself, all since it was opened unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EngineStatistics {
    /// Live keys now.
    pub keys: u64,
    /// Bytes of memory that the engine may take now: its part of a budget that it may share with others.
    pub memory_part_bytes: u64,
    /// Bytes of memory that the index takes now.
    pub index_bytes: u64,
    /// Bytes of memory that cached records take now.
    pub cache_bytes: u64,
    /// Bytes of memory in buffers of reads and writes in flight now, and in those kept for later writes.
    pub buffer_bytes: u64,
    /// Lookups answered from memory.
    pub memory_hits: u64,
    /// Lookups for which a record was read from the device.
    pub device_hits: u64,
    /// Device reads that found another key (tags that agree by chance).
    pub false_reads: u64,
    /// Bytes of keys and values accepted.
    pub user_bytes_written: u64,
    /// Bytes of user records (headers and alignment included) appended.
    pub record_bytes_written: u64,
    /// Bytes of user records that were not written for themselves: newer ones of the same group took their place.
    pub absorbed_bytes: u64,
    /// Bytes of padding and group headers appended.
    pub padding_bytes_written: u64,
    /// Bytes of segment headers, summaries and footers written.
    pub summary_bytes_written: u64,
    /// Bytes of index checkpoints written to the device.
    pub checkpoint_bytes_written: u64,
    /// Bytes of index checkpoints stored in persistent memory instead.
    pub checkpoint_region_bytes_written: u64,
    /// Bytes that cleaning moved.
    pub cleaned_bytes_written: u64,
    /// Bytes of records that were brought together for ranges.
    pub clustered_bytes_written: u64,
    /// Groups committed.
    pub groups: u64,
    /// Bytes stored in a redo log in persistent memory.
    pub redo_bytes_written: u64,
    /// Fences of that log.
    pub redo_fences: u64,
    /// Groups that found no slot there, so that the device had to answer for them.
    pub redo_groups_without_slot: u64,
    /// Groups that may be in flight at a time now.
    pub group_depth: u64,
    /// Everything the device was asked to do, and all processor time that was counted
    /// ([`crate::Engine::set_cpu_clock`]).
    pub device: Cost,
    /// What of that time is no request's: cleaning, groups, checkpoints, in nanoseconds.
    pub background_cpu_ns: u64,
    /// Reads of records, from request to answer.
    pub read_latency: LatencyBuckets,
    /// Durable writes of groups, from request to answer.
    pub commit_latency: LatencyBuckets,
    /// Reads whose checksum was wrong.
    pub corrupt_reads: u64,
    /// Bytes of persistent memory that were durable and damaged, whose loss was accepted when the store was opened.
    pub lost_bytes: u64,
    /// Segments that were missing or damaged when the store was opened, and whose loss was accepted.
    pub lost_segments: u64,
    /// Reads of records that the device refused.
    pub failed_reads: u64,
    /// Bytes of segments that hold data now.
    pub space_used_bytes: u64,
    /// Estimated live bytes in them now.
    pub space_live_bytes: u64,
    /// Bytes that data may take at most; of a store wholly in persistent memory, without its logs.
    pub space_capacity_bytes: u64,
    /// How fast live bytes grow, in bytes a day: the trend of up to the last day and a half; 0 in the first minute.
    pub space_growth_bytes_per_day: i64,
    /// Snapshots alive now.
    pub snapshots: u64,
    /// Snapshots that were given up for want of space or memory.
    pub snapshots_lost: u64,
    /// Bytes of memory that snapshots take now.
    pub snapshot_table_bytes: u64,
    /// Bytes of records that are kept for snapshots only, now.
    pub snapshot_pinned_bytes: u64,
    /// Keys that were dropped because they had expired.
    pub expired_keys: u64,
    /// Keys that were evicted for want of memory or space.
    pub evicted_keys: u64,
    /// What scrubbing does and has found.
    pub scrub: ScrubStatistics,
}

/// What scrubbing does and has found ([`crate::Engine::set_scrub_rate`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScrubStatistics {
    /// Bytes a second that it may read; 0: off.
    pub rate: u64,
    /// Bytes that it has read.
    pub bytes: u64,
    /// Parts of a million of the pass under way that are done; 0 where there is none.
    pub progress_ppm: u64,
    /// Full passes.
    pub passes: u64,
    /// When the last full pass ended, in milliseconds since 1970; 0: there was none.
    pub last_pass_at_ms: u64,
    /// How long it took, in milliseconds.
    pub last_pass_ms: u64,
    /// Bytes that it read.
    pub last_pass_bytes: u64,
    /// Segments that it read whole.
    pub last_pass_segments: u64,
    /// Segments that were freed while they were read.
    pub abandoned_segments: u64,
    /// What was found damaged, by the pass under way or the last one, whichever found more.
    pub damage: ScrubDamage,
}

/// Damaged places, each counted once a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScrubDamage {
    /// Newest records of keys: reading these keys fails.
    pub records: u64,
    /// Records that were replaced or deleted since: no key is lost.
    pub old_records: u64,
    /// Headers, footers and summaries of segments, and superblocks: nothing is lost yet.
    pub structures: u64,
}

/// Of several shards together: passes of shards, the last of their ends, the longest.
impl std::ops::AddAssign for ScrubStatistics {
    fn add_assign(&mut self, other: ScrubStatistics) {
        self.rate += other.rate;
        self.bytes += other.bytes;
        self.progress_ppm = self.progress_ppm.max(other.progress_ppm);
        self.passes += other.passes;
        self.last_pass_at_ms = self.last_pass_at_ms.max(other.last_pass_at_ms);
        self.last_pass_ms = self.last_pass_ms.max(other.last_pass_ms);
        self.last_pass_bytes += other.last_pass_bytes;
        self.last_pass_segments += other.last_pass_segments;
        self.abandoned_segments += other.abandoned_segments;
        self.damage.records += other.damage.records;
        self.damage.old_records += other.damage.old_records;
        self.damage.structures += other.damage.structures;
    }
}

impl ScrubDamage {
    /// The greater of each.
    #[must_use]
    pub fn max(self, other: ScrubDamage) -> ScrubDamage {
        ScrubDamage {
            records: self.records.max(other.records),
            old_records: self.old_records.max(other.old_records),
            structures: self.structures.max(other.structures),
        }
    }
}

/// Live records may take so much of the capacity before writes wait or are refused, in percent.
const SPACE_FULL_PERCENT: u64 = 95;
const DAY_SECONDS: u128 = 86_400;

impl EngineStatistics {
    /// Seconds until space is full if live bytes go on growing as they did; `None` when they do not grow, 0 when it is
    /// full.
    pub fn space_full_in_seconds(&self) -> Option<u64> {
        let growth = u128::try_from(self.space_growth_bytes_per_day).ok().filter(|growth| *growth > 0)?;
        let most = u128::from(self.space_capacity_bytes) * u128::from(SPACE_FULL_PERCENT) / 100;
        let left = most.saturating_sub(u128::from(self.space_live_bytes));
        Some(u64::try_from(left * DAY_SECONDS / growth).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
#[path = "statistics_test.rs"]
mod statistics_test;
