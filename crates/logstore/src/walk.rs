//! The ends of logs: walks segments that were open at a crash, finds where each log ends, and seals
//! them there.

use crate::format::group::{self, GroupHeader};
use crate::format::record::{FLAG_BATCH_MORE, RecordHeader};
use crate::format::segment::{SegmentFooter, SegmentHeader, SegmentState, Temperature};
use crate::format::summary::{SummaryBuilder, SummaryEntry};
use crate::format::superblock::Superblock;
use crate::io::StreamId;
use crate::location::UNIT_BYTES;
use crate::open::{FoundSegment, OpenReport, OpenSettings, read_ranges, run_all};
use crate::rules::BrokenRules;
use crate::seal::footer_block;
use crate::shard::segment_salt;
use crate::stream::StreamSettings;
use std::collections::BTreeMap;
use tierstone_base::checksum::checksum;
use tierstone_base::{KeyHasher, Position, Result, Seq};
use tierstone_media::{BLOCK_BYTES, BlockDevice, Geometry, IoBuffer, IoKind, IoRequest};

/// One whole group of a walked segment.
#[derive(Debug)]
struct WalkedGroup {
    header: GroupHeader,
    /// Where it ends, padding included.
    end: usize,
    entries: Vec<SummaryEntry>,
    /// For each entry, whether its batch goes on in the next record.
    more: Vec<bool>,
}

/// A walked segment.
#[derive(Debug)]
struct Walked {
    number: u32,
    header: SegmentHeader,
    groups: Vec<WalkedGroup>,
}

/// Walks and seals every segment in `found` that has no footer; those without any valid group become
/// free and leave `found`. Returns the highest sequence met, also beyond the ends of the logs.
pub(crate) fn seal_open_segments(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    superblock: &Superblock,
    hasher: &KeyHasher,
    found: &mut BTreeMap<u32, FoundSegment>,
    report: &mut OpenReport,
) -> Result<Seq> {
    let geometry = device.geometry();
    let mut logs: BTreeMap<u64, Vec<Walked>> = BTreeMap::new();
    let mut max_seq = 0;
    let open: Vec<(u32, SegmentHeader)> = found
        .iter()
        .filter(|(_, segment)| segment.footer.is_none())
        .map(|(&number, segment)| (number, segment.header))
        .collect();
    for (number, header) in open {
        let SegmentHeader { generation, log_id, first_group, .. } = header;
        let generation = BrokenRules::of(&settings.mutations).salt_generation(generation);
        let salt = segment_salt(superblock.store_id, number, generation);
        let life = Life { segment: number, salt, log_id, first_group };
        let groups = walk(device, hasher, geometry, life)?;
        for entry in groups.iter().flat_map(|group| &group.entries) {
            max_seq = max_seq.max(entry.seq);
        }
        max_seq = max_seq.max(header.opened_seq);
        logs.entry(header.log_id).or_default().push(Walked { number, header, groups });
        report.walked_segments += 1;
    }
    for (log_id, mut segments) in logs {
        segments.sort_by_key(|segment| segment.header.first_group);
        let sealed_end = found
            .values()
            .filter_map(|segment| segment.footer.filter(|footer| footer.log_id == log_id))
            .map(|footer| footer.end_group)
            .max()
            .unwrap_or(0);
        let end = cut(settings, sealed_end, &mut segments, report);
        drop_partial_batch(settings, end, &mut segments, report);
        seal(device, settings, superblock, geometry, segments, found)?;
    }
    Ok(max_seq)
}

/// What a walk must know of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub segment: u32,
    pub salt: u64,
    pub log_id: u64,
    pub first_group: u64,
}

/// Makes the summary of a sealed segment again from its groups; `None` when they do not give what the
/// footer says. A seal is one write of many sectors: a crash can leave the footer without the summary.
pub(crate) fn rebuild_summary(
    device: &mut dyn BlockDevice,
    hasher: &KeyHasher,
    geometry: Geometry,
    footer: &SegmentFooter,
    salt: u64,
) -> Result<Option<Vec<u8>>> {
    let &SegmentFooter { segment, generation, log_id, first_group, .. } = footer;
    let groups = walk(device, hasher, geometry, Life { segment, salt, log_id, first_group })?;
    let sealed = groups.iter().filter(|group| group.header.number < footer.end_group);
    let mut summary = SummaryBuilder::default();
    // The end of a batch that was not whole is in the groups and not in the summary.
    for entry in sealed.flat_map(|group| &group.entries).take(footer.records as usize) {
        summary.push(*entry);
    }
    let is_same = checksum(generation, summary.bytes()) == footer.summary_checksum;
    Ok(is_same.then(|| summary.bytes().to_vec()))
}

/// Reads one segment and gives its whole groups, with holes where groups are torn or damaged.
fn walk(
    device: &mut dyn BlockDevice,
    hasher: &KeyHasher,
    geometry: Geometry,
    header: Life,
) -> Result<Vec<WalkedGroup>> {
    let range = (geometry.segment_offset(header.segment), geometry.segment_bytes as usize);
    let mut groups = Vec::new();
    read_ranges(device, &[range], |_, bytes| {
        groups = groups_of(bytes, hasher, header);
        Ok(())
    })?;
    Ok(groups)
}

fn groups_of(bytes: &[u8], hasher: &KeyHasher, header: Life) -> Vec<WalkedGroup> {
    let mut groups = Vec::new();
    let mut at = BLOCK_BYTES;
    let mut expected = header.first_group;
    let mut records: Vec<(usize, RecordHeader)> = Vec::new();
    while at < bytes.len() {
        records.clear();
        let found = group::decode(&bytes[at..], header.salt, at, &mut records);
        let Some(found) = found.filter(|found| found.log_id == header.log_id && found.number >= expected)
        else {
            at += BLOCK_BYTES;
            continue;
        };
        let entries = records
            .iter()
            .map(|(offset, record)| {
                let key = &bytes[offset + record.key_range().start..offset + record.key_range().end];
                SummaryEntry::new(record, hasher.position(key), (offset / UNIT_BYTES) as u32)
            })
            .collect();
        let more = records.iter().map(|(_, record)| record.flags & FLAG_BATCH_MORE != 0).collect();
        at += found.len.next_multiple_of(BLOCK_BYTES);
        expected = found.number + 1;
        groups.push(WalkedGroup { header: found, end: at, entries, more });
    }
    groups
}

/// Keeps of each segment the groups before the first that is missing in the log. Returns where the log
/// ends. A group that is missing although the log says that it was durable does not end it: it is damage.
fn cut(settings: &OpenSettings, sealed_end: u64, segments: &mut [Walked], report: &mut OpenReport) -> u64 {
    // Evidence of durability: a footer is written only after everything before it is durable, and
    // headers carry how far the log was durable when they were made.
    let mut end = sealed_end;
    for segment in segments.iter() {
        end = end.max(segment.header.durable_groups);
        for group in &segment.groups {
            end = end.max(group.header.durable_groups);
        }
    }
    for segment in segments.iter() {
        let mut numbers = segment.groups.iter().map(|group| group.header.number);
        let next_segment = segments.iter().map(|other| other.header.first_group);
        let next = next_segment.filter(|&first| first > segment.header.first_group).min().unwrap_or(u64::MAX);
        let last = segment.groups.last().map_or(0, |group| group.header.number + 1);
        let expected = segment.header.first_group..end.min(next).min(last);
        if !expected.into_iter().all(|number| numbers.next() == Some(number)) {
            report.damaged_segments.push(segment.number);
        }
    }
    for segment in segments.iter() {
        for group in &segment.groups {
            if group.header.number == end {
                end += 1;
            }
        }
    }
    if settings.mutations.is_on("serve_past_gap") {
        return end;
    }
    for segment in segments {
        let before = segment.groups.len();
        segment.groups.retain(|group| group.header.number < end);
        report.fenced_groups += (before - segment.groups.len()) as u64;
    }
    end
}

/// Drops the records at the end of the log (at group `end`) whose batch does not end before the log
/// does. Where a sealed segment follows, the batch ends in that one: segments are sealed in any order.
fn drop_partial_batch(settings: &OpenSettings, end: u64, segments: &mut [Walked], report: &mut OpenReport) {
    if settings.mutations.is_on("keep_partial_batches") {
        return;
    }
    let any_segment = settings.mutations.is_on("drop_batches_in_the_middle");
    let mut next = end;
    for segment in segments.iter_mut().rev() {
        for group in segment.groups.iter_mut().rev() {
            if group.header.number + 1 != next && !any_segment {
                return;
            }
            next = group.header.number;
            while group.more.last() == Some(&true) {
                group.more.pop();
                group.entries.pop();
                report.dropped_records += 1;
            }
            if !group.more.is_empty() {
                return;
            }
        }
    }
}

/// Writes a footer, or a free header where nothing is left, for each walked segment.
fn seal(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    superblock: &Superblock,
    geometry: Geometry,
    segments: Vec<Walked>,
    found: &mut BTreeMap<u32, FoundSegment>,
) -> Result<()> {
    for segment in segments {
        let start = geometry.segment_offset(segment.number);
        let header = segment.header;
        if segment.groups.iter().all(|group| group.entries.is_empty()) {
            let mut buffer = IoBuffer::zeroed(BLOCK_BYTES);
            SegmentHeader {
                state: SegmentState::Free,
                temperature: Temperature::Hot,
                generation: 0,
                log_id: 0,
                ..header
            }
            .encode(&mut buffer);
            run_all(device, vec![IoRequest::write_durable(0, start, buffer)])?;
            found.remove(&segment.number);
            continue;
        }
        let mut summary = SummaryBuilder::default();
        for entry in segment.groups.iter().flat_map(|group| &group.entries) {
            summary.push(*entry);
        }
        let stream = StreamSettings {
            id: StreamId::Hot,
            store: superblock.store_id,
            log_id: header.log_id,
            positions: (Position(header.first_position), Position(header.last_position)),
            geometry,
            group_bytes_max: 0,
            write_kind: IoKind::WriteDurable,
            broken: BrokenRules::default(),
        };
        let end_group = segment.groups.last().map_or(header.first_group, |group| group.header.number + 1);
        let groups = (header.first_group, end_group);
        let data_end = segment.groups.last().map_or(0, |group| group.end) as u32;
        let (buffer, offset, _) =
            footer_block(&stream, header.generation, &summary, segment.number, groups, data_end);
        let block = buffer.len() - BLOCK_BYTES;
        let footer = SegmentFooter::decode(&buffer[block..], header.generation);
        let request = if settings.mutations.is_on("seals_not_durable_at_open") {
            IoRequest::write(0, start + offset, buffer)
        } else {
            IoRequest::write_durable(0, start + offset, buffer)
        };
        run_all(device, vec![request])?;
        if let Some(entry) = found.get_mut(&segment.number) {
            entry.footer = footer;
        }
    }
    Ok(())
}
