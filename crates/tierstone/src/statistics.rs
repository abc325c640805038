//! Counters of several shards as one.

use tierstone_engine::EngineStatistics;

/// Adds the named fields of one to those of another. It takes the one apart, so that a counter that is added to the
/// engine cannot be forgotten here.
macro_rules! add {
    ($total:ident += $shard:ident { $($field:ident),* $(,)? }) => {
        let EngineStatistics { $($field),* } = $shard;
        $($total.$field += $field;)*
    };
}

/// The sum of all counters and sizes.
pub(crate) fn sum(shards: impl Iterator<Item = EngineStatistics>) -> EngineStatistics {
    shards.fold(EngineStatistics::default(), |mut total, shard| {
        add!(
            total += shard {
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
                absorbed_bytes,
                padding_bytes_written,
                summary_bytes_written,
                checkpoint_bytes_written,
                checkpoint_region_bytes_written,
                cleaned_bytes_written,
                clustered_bytes_written,
                groups,
                redo_bytes_written,
                redo_fences,
                redo_groups_without_slot,
                group_depth,
                device,
                background_cpu_ns,
                read_latency,
                commit_latency,
                corrupt_reads,
                lost_bytes,
                lost_segments,
                failed_reads,
                space_used_bytes,
                space_live_bytes,
                space_capacity_bytes,
                space_growth_bytes_per_day,
                snapshots,
                snapshots_lost,
                snapshot_table_bytes,
                snapshot_pinned_bytes,
                expired_keys,
                evicted_keys,
                scrub,
            }
        );
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
