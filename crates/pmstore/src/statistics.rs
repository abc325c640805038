//! What the shard tells of itself.

use crate::keys::Keys;
use crate::shard::PmShard;
use tierstone_engine::EngineStatistics;

impl PmShard {
    /// Counters and sizes.
    pub(crate) fn statistics_inner(&self) -> EngineStatistics {
        let layout = &self.maker.layout;
        let live = self.blocks.live_bytes();
        let (snapshots, snapshots_lost) = self.snapshots.cuts.counts();
        EngineStatistics {
            keys: self.keyspaces.values().map(Keys::len).sum(),
            index_bytes: self.index_and_grave_bytes(),
            corrupt_reads: self.corrupt_reads.get(),
            space_used_bytes: (self.blocks.table.len() as u64 + self.checkpoints.block_count())
                * layout.geometry.block_bytes
                + self.overflow.taken_bytes(),
            space_live_bytes: live + self.overflow.taken_bytes() - self.evictor.freeing_bytes,
            space_capacity_bytes: layout.storage_bytes(),
            snapshots,
            snapshots_lost,
            snapshot_table_bytes: self.snapshots.table_bytes(),
            snapshot_pinned_bytes: self.snapshots.kept_bytes(),
            scrub: self.scrubber.statistics(),
            device: tierstone_engine::Cost { cpu_ns: self.meter.total_ns(), ..Default::default() },
            background_cpu_ns: self.meter.background_ns(),
            ..self.counts
        }
    }
}
