//! Overwrites within the group that takes records: the newer record takes the older one's place.
//!
//! A group counts as a whole or not at all, so of several versions of a key in one only the newest can ever be seen
//! after a crash. Writing it in the place of the one before spares the log the others: of a counter that many clients
//! raise at once, one record a group is written instead of one a request.
//!
//! Invariants:
//! 1. Only records of the open group are written over, never what is closed, on its way, or kept in a redo log.
//! 2. A record of a batch is written over by a later one of the same batch only, and not by its last, which ends it;
//!    a part of a batch over several shards has no such records. So a batch that is dropped takes nothing with it that
//!    came before, and what came after it does not lie in it.
//! 3. The newer record takes as many units, has the same flags, and the same expiry: accounts of the segment stay as
//!    they are. Only sequences in the summary change; they are put right before anybody reads it
//!    ([`Stream::settle_summary`]).
//!
//! Crash: nothing of it is on the device before the group is written.

use super::Stream;
use crate::format::group;
use crate::format::record::{self, RecordHeader};
use crate::format::summary::{SummaryMark, SummaryReader};
use crate::location::{Location, UNIT_BYTES};
use crate::segments::SegmentTable;

/// Bytes that the summary may grow by for a record that was written over: the differences of its own sequence and of
/// the next record's take one byte each at least, and seven at most.
const SUMMARY_GROWTH_BYTES_MAX: usize = 12;

/// What an open group knows of records that were written over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Absorbing {
    /// Records that begin before this place of the buffer stay as they are.
    pub from: usize,
    /// Where the summary stood before the group's first record.
    pub mark: SummaryMark,
    /// So many were written over since the summary was right, those of one place counted each time.
    unsettled: u32,
}

impl Absorbing {
    /// Bytes that the summary may grow by when it is put right, in a group of `records`.
    fn growth_bytes(&self, records: u32) -> usize {
        self.unsettled.min(records) as usize * SUMMARY_GROWTH_BYTES_MAX
    }
}

impl Stream {
    /// Bytes that the open segment's summary may grow by when it is put right.
    pub(super) fn summary_growth_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.absorbing.growth_bytes(open.records))
    }

    /// Records appended so far stay as they are.
    pub(super) fn fix_records(&mut self) {
        if let Some(open) = self.open.as_mut().filter(|_| !self.settings.broken.absorbed_over_batches) {
            open.absorbing.from = open.used;
        }
    }

    /// Whether the record at `location` lies in the group that takes records.
    #[inline]
    pub fn is_open(&self, location: Location) -> bool {
        let (Some(open), Some(segment)) = (&self.open, &self.segment) else { return false };
        segment.number == location.segment() && location.offset() >= open.start
    }

    /// Writes a record over the one at `location`, whose header is `old`, if that may be done; else nothing is changed.
    pub fn absorb(
        &mut self,
        location: Location,
        (old, header): (&RecordHeader, &RecordHeader),
        key: &[u8],
        value: &[u8],
        segments: &SegmentTable,
    ) -> bool {
        let (Some(open), Some(segment)) = (&self.open, &self.segment) else { return false };
        let Some(start) = location.offset().checked_sub(open.start) else { return false };
        if segment.number != location.segment() || start >= open.used {
            return false;
        }
        let first = (open.header + group::HEADER_BYTES).max(open.absorbing.from);
        let is_alike = old.units() == header.units()
            && old.flags == header.flags
            && old.expiry_ms == header.expiry_ms
            && old.seq < header.seq;
        let is_free = self.kept.log.is_none() && !self.in_part && segment.summary_lent_bytes == 0;
        if start < first || !is_alike || !is_free {
            return false;
        }
        let summary = segment.summary.bytes().len()
            + open.absorbing.growth_bytes(open.records)
            + SUMMARY_GROWTH_BYTES_MAX;
        if !self.holds(segment.end, open.used, summary) {
            return false;
        }
        let salt = segments.get(segment.number).salt;
        let unit = self.settings.broken.salt_unit(location.unit());
        let Some(open) = &mut self.open else { return false };
        let Some(place) = open.buffer.get_mut(start..open.used) else { return false };
        record::encode(place, header, key, value, salt, unit);
        open.last_seq = open.last_seq.max(header.seq);
        open.absorbing.unsettled = open.absorbing.unsettled.saturating_add(1);
        self.appended_seq = self.appended_seq.max(header.seq);
        self.absorbed_bytes += (header.units() * UNIT_BYTES) as u64;
        true
    }

    /// Puts the sequences of records that were written over right in the summary. Cost: nothing if there are none, else
    /// some 30 ns for each record of the group.
    pub(super) fn settle_summary(&mut self) {
        let (Some(open), Some(segment)) = (&mut self.open, &mut self.segment) else { return };
        if open.absorbing.unsettled == 0 || self.settings.broken.summary_not_settled {
            return;
        }
        open.absorbing.unsettled = 0;
        let (taken, cursor) = segment.summary.take_after(open.absorbing.mark);
        let mut entries = SummaryReader::resume(&taken, cursor);
        while let Some((mut entry, key)) = entries.next_keyed() {
            let start = (entry.unit as usize * UNIT_BYTES).checked_sub(open.start);
            let bytes = start.and_then(|start| open.buffer.get(start..open.used));
            let Some(header) = bytes.and_then(record::decode_header) else {
                unreachable!("the summary names a record that is not in its group")
            };
            entry.seq = header.seq;
            segment.summary.push(entry, key);
        }
    }
}
