//! One segment: its groups and records as found, beside what its footer and summary say.

use super::versions::Fate;
use super::{Checker, DamageKind};
use crate::batches::{self, LogRecord, LogRecords};
use crate::format::group::{self, GroupHeader};
use crate::format::record::{
    self, Decoded, FLAG_BATCH_MORE, FLAG_KEYED, FLAG_PART, FLAG_TOMBSTONE, FLAG_VOID, PartMark,
};
use crate::format::segment::{SegmentFooter, SegmentHeader};
use crate::format::summary::{SummaryBuilder, SummaryEntry, SummaryReader};
use crate::format::superblock::{IndexKind, KeyspaceEntry};
use crate::location::UNIT_BYTES;
use crate::shard::{is_cold, segment_salt};
use crate::stream::Stream;
use std::collections::BTreeMap;
use std::ops::Range;
use tierstone_base::checksum::checksum;
use tierstone_base::{KeyHasher, Result};
use tierstone_media::{BLOCK_BYTES, Geometry};

const FINGERPRINT_SALT: u64 = 0x6b65_7966_696e_6765;

/// A record whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundRecord {
    segment: u32,
    entry: SummaryEntry,
    fingerprint: u64,
    /// The part of a batch over several shards that it begins.
    part: Option<PartMark>,
}

/// What a summary says of a record.
#[derive(Clone, Copy, Debug)]
struct ListedRecord {
    entry: SummaryEntry,
    /// The fingerprint of the key that the summary has for it, if it has one.
    key_fingerprint: Option<u64>,
}

impl ListedRecord {
    fn new(entry: SummaryEntry, key: &[u8]) -> Self {
        ListedRecord { entry, key_fingerprint: entry.is_keyed().then(|| checksum(FINGERPRINT_SALT, key)) }
    }
}

/// A group whose header is whole.
#[derive(Debug)]
struct FoundGroup {
    header: GroupHeader,
    unit: u32,
    records: Vec<FoundRecord>,
}

impl FoundGroup {
    fn is_whole(&self) -> bool {
        self.records.len() == self.header.records as usize
    }
}

/// Groups that are missing between others.
#[derive(Debug)]
struct Gap {
    unit: u32,
    numbers: Range<u64>,
}

/// A walked segment.
#[derive(Debug, Default)]
struct Walked {
    groups: Vec<FoundGroup>,
    /// Whole records where a group's header is missing.
    strays: Vec<FoundRecord>,
    gaps: Vec<Gap>,
}

impl Walked {
    /// All records by place, but those that recovery has made void; and how many these are.
    fn records(&self) -> (Vec<FoundRecord>, u64) {
        let mut all: Vec<FoundRecord> =
            self.groups.iter().flat_map(|group| &group.records).chain(&self.strays).copied().collect();
        let found = all.len();
        all.retain(|record| record.entry.flags & FLAG_VOID == 0);
        all.sort_unstable_by_key(|record| record.entry.unit);
        let void = (found - all.len()) as u64;
        (all, void)
    }
}

/// A segment without a footer.
#[derive(Debug)]
pub(super) struct OpenSegment {
    number: u32,
    header: SegmentHeader,
    /// It had been sealed: everything in it was durable.
    was_sealed: bool,
    walked: Walked,
}

/// What a walk looks for.
struct Walker<'a> {
    segment: u32,
    bytes: &'a [u8],
    hasher: &'a KeyHasher,
    salt: u64,
    log_id: u64,
    longest: usize,
}

impl Walker<'_> {
    fn header_at(&self, at: usize, expected: u64) -> Option<GroupHeader> {
        group::decode_header(self.bytes.get(at..)?, self.salt, at)
            .filter(|header| header.log_id == self.log_id && header.number >= expected)
    }

    /// Walks the groups from `first_group` on that begin before `data_end`, up to group `end_group`.
    fn walk(&self, first_group: u64, end_group: u64, data_end: usize, keeps_strays: bool) -> Walked {
        let mut walked = Walked::default();
        let mut expected = first_group;
        let mut at = BLOCK_BYTES;
        let unit = |at: usize| (at / UNIT_BYTES) as u32;
        let mut hole = at;
        while at < data_end {
            let Some(header) = self.header_at(at, expected).filter(|header| header.number < end_group) else {
                at += BLOCK_BYTES;
                continue;
            };
            if keeps_strays && hole < at {
                self.records_in(hole + group::HEADER_BYTES..at, None, &mut walked.strays);
            }
            if header.number > expected {
                walked.gaps.push(Gap { unit: unit(hole), numbers: expected..header.number });
            }
            let mut records = Vec::new();
            let end = (at + header.len).min(data_end);
            self.records_in(at + group::HEADER_BYTES..end, Some(header.records), &mut records);
            walked.groups.push(FoundGroup { header, unit: unit(at), records });
            expected = header.number + 1;
            at += header.len.next_multiple_of(BLOCK_BYTES);
            hole = at;
        }
        if keeps_strays && hole < data_end {
            self.records_in(hole + group::HEADER_BYTES..data_end, None, &mut walked.strays);
        }
        if end_group != u64::MAX && expected < end_group {
            walked.gaps.push(Gap { unit: unit(hole.min(data_end)), numbers: expected..end_group });
        }
        walked
    }

    /// Finds the whole records in a range. After a damaged one the next is looked for unit by unit: the
    /// checksums know their place.
    fn records_in(&self, range: Range<usize>, count: Option<u32>, found: &mut Vec<FoundRecord>) {
        let before = found.len();
        let mut at = range.start;
        while at < range.end && count.is_none_or(|count| found.len() - before < count as usize) {
            let unit = (at / UNIT_BYTES) as u32;
            let rest = self.bytes.get(at..).unwrap_or_default();
            let Decoded::Whole(header) = record::decode(rest, self.salt, unit, self.longest) else {
                at += UNIT_BYTES;
                continue;
            };
            let key = &rest[header.key_range()];
            found.push(FoundRecord {
                segment: self.segment,
                entry: SummaryEntry::new(&header, self.hasher.position(key), unit),
                fingerprint: checksum(FINGERPRINT_SALT, key),
                part: (header.flags & FLAG_PART != 0 && !is_cold(self.log_id)).then_some(header.part),
            });
            at += header.units() * UNIT_BYTES;
        }
    }
}

/// Whether the places in a footer lie in the segment, one behind the other.
fn fits(footer: &SegmentFooter, header: &SegmentHeader, geometry: Geometry) -> bool {
    let (data_end, start) = (u64::from(footer.data_end), u64::from(footer.summary_start));
    let summary_end = start + u64::from(footer.summary_len);
    let block = BLOCK_BYTES as u64;
    data_end >= block
        && data_end <= start
        && start.is_multiple_of(block)
        && summary_end <= geometry.segment_bytes - block
        && footer.log_id == header.log_id
        && footer.first_group == header.first_group
        && footer.end_group >= footer.first_group
}

/// Of the whole records of a segment those that it was sealed with: not the end of a batch that was not whole when its log
/// ended, which has the highest sequences.
fn sealed_of<'r>(
    footer: &SegmentFooter,
    records: &'r [FoundRecord],
) -> impl Iterator<Item = &'r FoundRecord> + use<'r> {
    let max_seq = footer.max_seq;
    records.iter().filter(move |record| record.entry.seq <= max_seq)
}

impl Checker<'_> {
    fn walker(&self, segment: u32, generation: u64, log_id: u64) -> Walker<'_> {
        Walker {
            segment,
            bytes: &self.bytes,
            hasher: &self.hasher,
            salt: segment_salt(self.superblock.store_id, segment, generation),
            log_id,
            longest: Stream::record_bytes_max(self.geometry),
        }
    }

    /// Walks and compares a sealed segment.
    pub(super) fn check_sealed(
        &mut self,
        number: u32,
        header: &SegmentHeader,
        footer: &SegmentFooter,
    ) -> Result<()> {
        if !fits(footer, header, self.geometry) {
            let detail = "the footer names places that this segment does not have".to_owned();
            self.note_uncounted(DamageKind::Footer, number, None, footer.records.into(), detail);
            return Ok(());
        }
        let data_end = (footer.data_end as usize).next_multiple_of(BLOCK_BYTES);
        let start = footer.summary_start as usize;
        self.load(number, 0..data_end)?;
        self.load(number, start..self.geometry.segment_bytes as usize)?;
        let walked = self.walker(number, header.generation, header.log_id).walk(
            footer.first_group,
            footer.end_group,
            footer.data_end as usize,
            true,
        );
        for gap in &walked.gaps {
            let detail = format!(
                "the headers of groups {} to {} are damaged; records that the summary names are looked for one by one",
                gap.numbers.start,
                gap.numbers.end - 1
            );
            // Every record of it is looked for by its place.
            self.note(DamageKind::Group, number, Some(gap.unit), 0, detail);
        }
        if self.is_first_pass {
            self.report.groups += walked.groups.len() as u64;
        }
        let (records, void) = walked.records();
        if self.is_first_pass {
            self.report.void_records += void;
        }
        match self.summary(number, footer, &records) {
            Ok(entries) => self.compare(number, footer, &entries, &records),
            Err(finding) => self.lose(sealed_of(footer, &records), finding),
        }
        Ok(())
    }

    /// The summary's entries; where it is damaged, those that the records give, if they are all there.
    /// Otherwise the finding: nothing of the segment is served.
    fn summary(
        &mut self,
        number: u32,
        footer: &SegmentFooter,
        records: &[FoundRecord],
    ) -> std::result::Result<Vec<ListedRecord>, Option<usize>> {
        let start = footer.summary_start as usize;
        let bytes = &self.bytes[start..start + footer.summary_len as usize];
        if checksum(footer.generation, bytes) == footer.summary_checksum {
            let mut reader = SummaryReader::new(bytes, footer.records);
            let listed = std::iter::from_fn(|| reader.next_keyed());
            return Ok(listed.map(|(entry, key)| ListedRecord::new(entry, key)).collect());
        }
        let mut again = SummaryBuilder::default();
        let sealed = &records[..records.len().min(footer.records as usize)];
        sealed.iter().for_each(|record| again.push(record.entry, self.key_of(record)));
        let unit = Some((start / UNIT_BYTES) as u32);
        if checksum(footer.generation, again.bytes()) != footer.summary_checksum {
            let detail = "the summary is damaged, and the records do not give it again".to_owned();
            let lost = footer.records.into();
            return Err(self.note_uncounted(DamageKind::Summary, number, unit, lost, detail));
        }
        if self.report.clean {
            let detail = "the summary is damaged; all records are whole and give it again".to_owned();
            self.note(DamageKind::Summary, number, unit, 0, detail);
        } else if self.is_first_pass {
            self.report.torn_summaries += 1;
        }
        let listed = sealed.iter().map(|record| ListedRecord::new(record.entry, self.key_of(record)));
        Ok(listed.collect())
    }

    /// The key of a record of the segment at hand.
    fn key_of(&self, record: &FoundRecord) -> &[u8] {
        let bytes = self.bytes.get(record.entry.unit as usize * UNIT_BYTES..).unwrap_or_default();
        record::decode_header(bytes).and_then(|header| bytes.get(header.key_range())).unwrap_or_default()
    }

    /// Compares a summary with the records, both ways.
    fn compare(
        &mut self,
        number: u32,
        footer: &SegmentFooter,
        entries: &[ListedRecord],
        records: &[FoundRecord],
    ) {
        if entries.len() != footer.records as usize {
            let lost = u64::from(footer.records) - entries.len() as u64;
            let detail = "the summary ends before its last entry".to_owned();
            self.note_uncounted(DamageKind::Summary, number, None, lost, detail);
        }
        let mut rest = records.iter().peekable();
        let mut unnamed = Vec::new();
        for ListedRecord { entry, key_fingerprint } in entries {
            while let Some(record) = rest.next_if(|record| record.entry.unit < entry.unit) {
                unnamed.push(record);
            }
            let unit = Some(entry.unit);
            match rest.next_if(|record| record.entry.unit == entry.unit) {
                Some(record) if key_fingerprint.is_some_and(|key| key != record.fingerprint) => {
                    let detail = format!("the summary has another key than the record, {:?}", record.entry);
                    let finding = self.note(DamageKind::Mismatch, number, unit, 1, detail);
                    self.versions.push(
                        &record.entry,
                        record.fingerprint,
                        Fate::Lost(finding),
                        Some(record.segment),
                    );
                }
                Some(record) if record.entry == *entry => {
                    self.count(record);
                    self.note_missing_key(number, entry);
                }
                Some(record) => {
                    let detail = format!("the summary says {entry:?}, the record {:?}", record.entry);
                    let finding = self.note(DamageKind::Mismatch, number, unit, 1, detail);
                    self.versions.push(
                        &record.entry,
                        record.fingerprint,
                        Fate::Lost(finding),
                        Some(record.segment),
                    );
                }
                None => {
                    let detail = format!(
                        "the record of sequence {} at position {:016x} is damaged",
                        entry.seq, entry.position.0
                    );
                    let finding = self.note(DamageKind::Record, number, unit, 1, detail);
                    self.versions.push(entry, 0, Fate::Lost(finding), None);
                }
            }
        }
        // The end of a batch that was not whole when its log ended.
        let tail = rest.clone().all(|record| record.entry.flags & FLAG_BATCH_MORE != 0);
        if tail && self.is_first_pass {
            self.report.void_records += rest.clone().count() as u64;
        }
        unnamed.extend(rest.filter(|_| !tail));
        for record in unnamed {
            let detail = format!("the record of sequence {} is not in the summary", record.entry.seq);
            let finding = self.note(DamageKind::Mismatch, number, Some(record.entry.unit), 1, detail);
            self.versions.push(&record.entry, record.fingerprint, Fate::Lost(finding), Some(record.segment));
        }
    }

    /// Notes a value of an ordered keyspace whose key is not in the summary.
    fn note_missing_key(&mut self, number: u32, entry: &SummaryEntry) {
        let is_ordered =
            |keyspace: &KeyspaceEntry| keyspace.id == entry.keyspace && keyspace.index == IndexKind::Ordered;
        if entry.flags & (FLAG_KEYED | FLAG_TOMBSTONE) == 0
            && self.superblock.keyspaces.iter().any(is_ordered)
        {
            let detail =
                format!("the record of sequence {} has no key in the summary: ranges miss it", entry.seq);
            self.note(DamageKind::Mismatch, number, Some(entry.unit), 0, detail);
        }
    }

    fn count(&mut self, record: &FoundRecord) {
        if self.is_first_pass {
            self.report.records += 1;
            self.report.record_bytes += u64::from(record.entry.units) * UNIT_BYTES as u64;
        }
        self.versions.push(&record.entry, record.fingerprint, Fate::Served, Some(record.segment));
    }

    fn lose<'r>(&mut self, records: impl IntoIterator<Item = &'r FoundRecord>, finding: Option<usize>) {
        for record in records {
            self.versions.push(&record.entry, record.fingerprint, Fate::Lost(finding), Some(record.segment));
        }
    }

    /// A segment whose header is damaged: nothing of it is served. Its footer tells what it held, or an earlier life of it
    /// if it `may_be_free`.
    pub(super) fn check_without_header(
        &mut self,
        number: u32,
        footer: Option<&SegmentFooter>,
        may_be_free: bool,
    ) -> Result<()> {
        let Some(footer) = footer else {
            let detail = "the header is damaged, and no footer tells what the segment held".to_owned();
            self.note_uncounted(DamageKind::Header, number, Some(0), 0, detail);
            return Ok(());
        };
        let detail = match may_be_free {
            true => {
                self.versions.doubt(number);
                "the header is damaged: nothing of the segment is served; it may have been free, and what it held deleted"
            }
            false => "the header is damaged: nothing of the segment is served",
        };
        let finding =
            self.note(DamageKind::Header, number, Some(0), footer.records.into(), detail.to_owned());
        let data_end = (footer.data_end as usize).min(self.bytes.len()).next_multiple_of(BLOCK_BYTES);
        self.load(number, 0..data_end)?;
        let walked = self.walker(number, footer.generation, footer.log_id).walk(
            footer.first_group,
            footer.end_group,
            data_end,
            true,
        );
        let (records, _) = walked.records();
        self.lose(sealed_of(footer, &records), finding);
        Ok(())
    }

    /// Walks a segment that has no footer.
    pub(super) fn walk_open(
        &mut self,
        number: u32,
        header: &SegmentHeader,
        is_footer_damaged: bool,
    ) -> Result<OpenSegment> {
        // A store that was closed has sealed every segment.
        let was_sealed = is_footer_damaged || self.report.clean;
        if was_sealed {
            let unit = (self.bytes.len() - BLOCK_BYTES) / UNIT_BYTES;
            let detail = "the footer is damaged; opening the store makes it again from the groups".to_owned();
            self.note(DamageKind::Footer, number, Some(unit as u32), 0, detail);
        }
        let end = self.bytes.len() - BLOCK_BYTES;
        self.load(number, 0..end)?;
        let walker = self.walker(number, header.generation, header.log_id);
        let walked = walker.walk(header.first_group, u64::MAX, end, false);
        Ok(OpenSegment { number, header: *header, was_sealed, walked })
    }

    /// Finds where a log ends, as opening the store does; gives the records before that, those of batches
    /// over several shards included.
    pub(super) fn end_log(
        &mut self,
        log_id: u64,
        mut segments: Vec<OpenSegment>,
    ) -> (LogRecords, Vec<FoundRecord>) {
        segments.sort_by_key(|segment| segment.header.first_group);
        let (sealed_first, sealed_end) = self.sealed_groups.get(&log_id).copied().unwrap_or_default();
        let durable = durable_groups(&segments, sealed_end);
        for segment in &segments {
            self.note_missing(segment, durable);
        }
        let mut end = durable;
        let is_served = |group: &FoundGroup, end: u64| group.is_whole() && group.header.number < end;
        for group in segments.iter().flat_map(|segment| &segment.walked.groups) {
            if group.is_whole() && group.header.number == end {
                end += 1;
            }
        }
        let mut log = LogRecords::default();
        let mut records: Vec<FoundRecord> = Vec::new();
        let mut last = 0;
        for segment in &segments {
            let is_before_sealed = segment.header.first_group < sealed_first;
            let (served, void): (Vec<_>, Vec<_>) =
                segment.walked.groups.iter().partition(|group| is_served(group, end));
            if self.is_first_pass {
                self.report.groups += served.len() as u64;
                self.report.void_groups +=
                    void.iter().filter(|group| group.header.number >= end).count() as u64;
            }
            for group in served {
                let GroupHeader { number, batches_resolved, .. } = group.header;
                last = number + 1;
                log.resolved = log.resolved.max(batches_resolved);
                log.records.extend(group.records.iter().map(|record| LogRecord {
                    group: number,
                    flags: record.entry.flags,
                    part: record.part,
                    is_before_sealed,
                }));
                records.extend(&group.records);
            }
        }
        // Where the log goes on in a sealed segment, the batch ends there.
        let whole = records.iter().rposition(|record| record.entry.flags & FLAG_BATCH_MORE == 0);
        let len = if last == end { whole.map_or(0, |last| last + 1) } else { records.len() };
        if self.is_first_pass {
            self.report.void_records += (records.len() - len) as u64;
        }
        records.truncate(len);
        log.records.truncate(len);
        (log, records)
    }

    /// Counts what the logs hold up to their ends.
    pub(super) fn end_logs(&mut self, open: BTreeMap<u64, Vec<OpenSegment>>) {
        let mut logs = BTreeMap::new();
        let mut records = BTreeMap::new();
        for (log_id, segments) in open {
            let (log, found) = self.end_log(log_id, segments);
            logs.insert(log_id, log);
            records.insert(log_id, found);
        }
        let decisions = batches::decide(&logs, self.superblock.batches_decided, false);
        for (log_id, records) in records {
            let dropped = &decisions.dropped[&log_id];
            if self.is_first_pass {
                self.report.void_records += dropped.len() as u64;
            }
            for (_, record) in (0..).zip(&records).filter(|(place, _)| !dropped.contains(place)) {
                self.count(record);
            }
        }
    }

    /// Notes groups that were durable and are missing or not whole.
    fn note_missing(&mut self, segment: &OpenSegment, durable: u64) {
        for gap in &segment.walked.gaps {
            let numbers = gap.numbers.start..gap.numbers.end.min(durable);
            if !numbers.is_empty() {
                let detail = format!("groups {} to {} are damaged", numbers.start, numbers.end - 1);
                self.note_uncounted(DamageKind::Group, segment.number, Some(gap.unit), 0, detail);
            }
        }
        for group in &segment.walked.groups {
            if group.header.number < durable && !group.is_whole() {
                let detail = format!(
                    "group {}: {} of {} records are whole; none is served",
                    group.header.number,
                    group.records.len(),
                    group.header.records
                );
                let lost = group.header.records.into();
                let (number, unit) = (segment.number, Some(group.unit));
                let finding = self.note_uncounted(DamageKind::Group, number, unit, lost, detail);
                self.lose(&group.records, finding);
            }
        }
    }
}

/// Groups below this number are known to have been durable.
fn durable_groups(segments: &[OpenSegment], sealed_end: u64) -> u64 {
    let mut durable = sealed_end;
    for segment in segments {
        durable = durable.max(segment.header.durable_groups);
        for group in &segment.walked.groups {
            durable = durable.max(group.header.durable_groups);
            if segment.was_sealed {
                durable = durable.max(group.header.number + 1);
            }
        }
    }
    durable
}
