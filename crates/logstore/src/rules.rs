//! Rules of the log that tests switch off by name, as plain flags for paths that run once a record.

use tierstone_crash::Mutations;

/// Rules of a log that tests switch off, to see that they are needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct BrokenRules {
    /// Checksums do not depend on the life of the segment.
    pub salt_without_generation: bool,
    /// Checksums of records do not depend on their place.
    pub record_without_place: bool,
    /// A segment is sealed although a batch that begins in it is not whole.
    pub batch_sealed_early: bool,
    /// A segment is sealed although a batch over several shards of which it holds a part is not resolved
    /// everywhere.
    pub part_sealed_early: bool,
    /// Batches are called decided when the log's own part is durable.
    pub marked_early: bool,
    /// A lazy group is called durable when it is written.
    pub lazy_written_is_durable: bool,
    /// Records of the open group are written over by those of later batches.
    pub absorbed_over_batches: bool,
    /// The summary goes on naming the sequences of records that were written over.
    pub summary_not_settled: bool,
    /// A flush is taken to cover what was written while it was on its way.
    pub flush_covers_flying: bool,
}

impl BrokenRules {
    /// The rules of a log among `mutations`.
    pub fn of(mutations: &Mutations) -> Self {
        BrokenRules {
            salt_without_generation: mutations.is_on("salt_without_generation"),
            record_without_place: mutations.is_on("record_without_place"),
            batch_sealed_early: mutations.is_on("batch_sealed_early"),
            part_sealed_early: mutations.is_on("part_sealed_early"),
            marked_early: mutations.is_on("marked_early"),
            lazy_written_is_durable: mutations.is_on("lazy_written_is_durable"),
            absorbed_over_batches: mutations.is_on("absorbed_over_batches"),
            summary_not_settled: mutations.is_on("summary_not_settled"),
            flush_covers_flying: mutations.is_on("flush_covers_flying"),
        }
    }

    /// The life that salts a segment's checksums.
    pub fn salt_generation(self, generation: u64) -> u64 {
        if self.salt_without_generation { 0 } else { generation }
    }

    /// The place that salts a record's checksum.
    pub fn salt_unit(self, unit: u32) -> u32 {
        if self.record_without_place { 0 } else { unit }
    }
}
