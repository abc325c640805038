//! Counters of several shards as one.

use tierstone_engine::EngineStatistics;

/// The sum of all counters and sizes.
pub(crate) fn sum(shards: impl Iterator<Item = EngineStatistics>) -> EngineStatistics {
    shards.fold(EngineStatistics::default(), |mut total, shard| {
        // Taken apart, so that a counter that is added to the engine cannot be forgotten here.
        let EngineStatistics {
            keys,
            memory_part_bytes,
            index_bytes,
            cache_bytes,
            buffer_bytes,
            memory_hits,
            device_hits,
            false_reads,
            user_bytes_written,
            record_bytes_written,
            padding_bytes_written,
            summary_bytes_written,
            checkpoint_bytes_written,
            cleaned_bytes_written,
            groups,
            group_depth,
            device,
            background_cpu_ns,
            read_latency,
            commit_latency,
            corrupt_reads,
            failed_reads,
            space_used_bytes,
            space_live_bytes,
            space_capacity_bytes,
            snapshots,
            snapshots_lost,
            snapshot_table_bytes,
            snapshot_pinned_bytes,
            expired_keys,
            evicted_keys,
        } = shard;
        total.keys += keys;
        total.memory_part_bytes += memory_part_bytes;
        total.index_bytes += index_bytes;
        total.cache_bytes += cache_bytes;
        total.buffer_bytes += buffer_bytes;
        total.memory_hits += memory_hits;
        total.device_hits += device_hits;
        total.false_reads += false_reads;
        total.user_bytes_written += user_bytes_written;
        total.record_bytes_written += record_bytes_written;
        total.padding_bytes_written += padding_bytes_written;
        total.summary_bytes_written += summary_bytes_written;
        total.checkpoint_bytes_written += checkpoint_bytes_written;
        total.cleaned_bytes_written += cleaned_bytes_written;
        total.groups += groups;
        total.group_depth += group_depth;
        total.device += device;
        total.background_cpu_ns += background_cpu_ns;
        total.read_latency += read_latency;
        total.commit_latency += commit_latency;
        total.corrupt_reads += corrupt_reads;
        total.failed_reads += failed_reads;
        total.space_used_bytes += space_used_bytes;
        total.space_live_bytes += space_live_bytes;
        total.space_capacity_bytes += space_capacity_bytes;
        total.snapshots += snapshots;
        total.snapshots_lost += snapshots_lost;
        total.snapshot_table_bytes += snapshot_table_bytes;
        total.snapshot_pinned_bytes += snapshot_pinned_bytes;
        total.expired_keys += expired_keys;
        total.evicted_keys += evicted_keys;
        total
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_shards_are_added() {
        let shard = EngineStatistics { keys: 2, groups: 5, ..EngineStatistics::default() };
        let total = sum([shard; 3].into_iter());
        assert_eq!((total.keys, total.groups), (6, 15));
    }
}
