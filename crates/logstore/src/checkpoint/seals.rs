//! Summaries that an opening with a checkpoint does not read may be torn: a segment's seal is one write, and power may
//! leave its footer without its summary. Cleaning and backups need the summary, so it is made again at the opening.
//!
//! Invariant: only the last segment of a log that the checkpoint tells all of may be torn. When the checkpoint began, no
//! footer was on its way (`checkpoint_beside_seals`); so all segments before that one were sealed durably, and of those
//! after it the summaries are read. A segment without records is none of them: its summary is empty, which nothing tears, and
//! it says of no sequence that it is younger, however late it was sealed (`last_seal_without_records`).

use crate::format::segment::SegmentFooter;
use crate::open::read_ranges;
use crate::recovery::{BuildReport, ShardPlan};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::checksum::checksum;
use tierstone_base::{Result, Seq};
use tierstone_media::BlockDevice;

impl ShardPlan {
    /// The last segment of each log that has records, and none younger than `seq`.
    fn last_segments(&self, seq: Seq) -> BTreeSet<u32> {
        let takes_empty = self.identity.mutations.is_on("last_seal_without_records");
        let is_told = |footer: &&SegmentFooter| footer.max_seq <= seq && (footer.records > 0 || takes_empty);
        let mut last: BTreeMap<u64, &SegmentFooter> = BTreeMap::new();
        for footer in self.footers.values().filter(is_told) {
            let place = last.entry(footer.log_id).or_insert(footer);
            if footer.first_group > place.first_group {
                *place = footer;
            }
        }
        last.into_values().map(|footer| footer.segment).collect()
    }

    /// Makes the summaries again that were torn when a checkpoint had begun at `seq`. `None`: one cannot be. Cost: of each
    /// log one summary is read.
    pub(super) fn mend_last_seals(
        &self,
        device: &mut dyn BlockDevice,
        seq: Seq,
        report: &mut BuildReport,
    ) -> Result<Option<()>> {
        // Both rules are broken by leaving what is torn as it is: here, and where keys are put in order.
        let mutations = &self.identity.mutations;
        if mutations.is_on("last_seals_unread") || mutations.is_on("torn_summary_leaves_order") {
            return Ok(Some(()));
        }
        let last = self.last_segments(seq);
        let found = self.segments.iter().filter(|(number, _)| last.contains(number));
        let suspects: Vec<_> = found.cloned().collect();
        let mut torn = Vec::new();
        read_ranges(device, &self.summary_ranges(suspects.iter()), |place, bytes| {
            let (number, segment) = &suspects[place];
            let summary = bytes.get(..segment.summary.len as usize).unwrap_or_default();
            if checksum(segment.generation, summary) != segment.summary.checksum {
                torn.push(*number);
            }
            Ok(())
        })?;
        for number in torn {
            if self.repair_summary(device, number)?.is_none() {
                return Ok(None);
            }
            report.rebuilt_summaries += 1;
        }
        Ok(Some(()))
    }
}
