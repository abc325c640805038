//! The ends of logs: walks segments that were open at a crash, finds where each log ends, decides the
//! batches over several shards ([`crate::batches`]), and seals the segments there.

use crate::batches::{self, LogRecord, LogRecords};
use crate::checkpoint::find::FoundCheckpoints;
use crate::format::group::{self, GroupHeader};
use crate::format::record::{self, Decoded, FLAG_BATCH_MORE, FLAG_PART, FLAG_VOID, PartMark, RecordHeader};
use crate::format::segment::{SegmentFooter, SegmentHeader};
use crate::format::summary::{SummaryBuilder, SummaryEntry};
use crate::format::superblock::Superblock;
use crate::io::StreamId;
use crate::location::UNIT_BYTES;
use crate::missing;
use crate::open::{FoundSegment, OpenReport, OpenSettings, read_ranges, run_all};
use crate::rules::BrokenRules;
use crate::seal::footer_block;
use crate::shard::{LOG_ID_OPEN_SHIFT, is_cold, segment_salt};
use crate::stream::{LazySettings, SpareBytes, StreamSettings};
use crate::superblocks::SuperblockWriter;
use std::collections::BTreeMap;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, KeyHasher, Position, Result, Seq};
use tierstone_media::{BLOCK_BYTES, BlockDevice, Geometry, IoBuffer, IoKind, IoRequest};

/// One whole group of a walked segment.
#[derive(Debug)]
struct WalkedGroup {
    header: GroupHeader,
    /// Where it ends, padding included.
    end: usize,
    records: Vec<WalkedRecord>,
}

/// A record of a walked segment.
#[derive(Clone, Debug)]
struct WalkedRecord {
    entry: SummaryEntry,
    /// Its key, if the summary carries it.
    key: Box<[u8]>,
    /// The part of a batch over several shards that it begins.
    part: Option<PartMark>,
}

impl WalkedRecord {
    /// Whether its batch goes on in the next record.
    fn goes_on(&self) -> bool {
        self.entry.flags & FLAG_BATCH_MORE != 0
    }
}

/// A walked segment.
#[derive(Debug)]
struct Walked {
    number: u32,
    header: SegmentHeader,
    groups: Vec<WalkedGroup>,
}

impl Walked {
    fn records(&self) -> impl Iterator<Item = &WalkedRecord> {
        self.groups.iter().flat_map(|group| &group.records)
    }
}

/// Walks and seals every segment in `found` that has no footer; those without any valid group become
/// free and leave `found`. Returns the highest sequence met, also beyond the ends of the logs.
pub(crate) fn seal_open_segments(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    writer: &mut SuperblockWriter,
    hasher: &KeyHasher,
    found: &mut BTreeMap<u32, FoundSegment>,
    checkpoints: &mut FoundCheckpoints,
    report: &mut OpenReport,
) -> Result<Seq> {
    let geometry = device.geometry();
    let store = writer.superblock.store_id;
    let mut logs: BTreeMap<u64, Vec<Walked>> = BTreeMap::new();
    let (mut max_seq, mut past_ms) = (0, writer.superblock.past_ms);
    let open: Vec<(u32, SegmentHeader)> = found
        .iter()
        .filter(|(_, segment)| segment.footer.is_none())
        .map(|(&number, segment)| (number, segment.header))
        .collect();
    for (number, header) in open {
        let SegmentHeader { log_id, first_group, .. } = header;
        let salt = salt_of(settings, store, &header);
        let life = Life { segment: number, salt, log_id, first_group };
        let groups = walk(device, hasher, geometry, life)?;
        for record in groups.iter().flat_map(|group| &group.records) {
            max_seq = max_seq.max(record.entry.seq);
        }
        max_seq = max_seq.max(header.opened_seq);
        logs.entry(header.log_id).or_default().push(Walked { number, header, groups });
        report.walked_segments += 1;
    }
    for (&log_id, segments) in &mut logs {
        segments.sort_by_key(|segment| segment.header.first_group);
        let sealed_end = sealed_groups(found, log_id).map_or(0, |groups| groups.1);
        let end = cut(settings, sealed_end, segments, report);
        drop_partial_batch(settings, end, segments, report);
        let groups = segments.iter().flat_map(|segment| &segment.groups);
        past_ms = groups.map(|group| group.header.past_ms).fold(past_ms, u64::max);
    }
    missing::refuse_loss(settings, report)?;
    decide_batches(device, settings, writer, (found, checkpoints), &mut logs, report)?;
    // A segment without records becomes free: what its groups say of expiry is said elsewhere first.
    let frees = logs.values().flatten().any(|segment| segment.records().next().is_none());
    let is_early = settings.mutations.is_on("past_freed_before_noted");
    if frees && !is_early && past_ms > writer.superblock.past_ms {
        let next = Superblock { past_ms, ..writer.superblock.clone() };
        writer.write(device, next)?;
    }
    for segments in logs.into_values() {
        seal(device, settings, store, geometry, segments, found)?;
    }
    Ok(max_seq)
}

fn salt_of(settings: &OpenSettings, store: u64, header: &SegmentHeader) -> u64 {
    let generation = BrokenRules::of(&settings.mutations).salt_generation(header.generation);
    segment_salt(store, header.segment, generation)
}

/// Of the sealed segments of a log: the highest first group, and the highest end.
fn sealed_groups(found: &BTreeMap<u32, FoundSegment>, log_id: u64) -> Option<(u64, u64)> {
    let footers = found.values().filter_map(|segment| segment.footer);
    footers
        .filter(|footer| footer.log_id == log_id)
        .map(|footer| (footer.first_group, footer.end_group))
        .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
}

/// Drops the records of batches over several shards that are not whole, durably and for ever, before
/// anything is sealed.
fn decide_batches(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    writer: &mut SuperblockWriter,
    (found, checkpoints): (&BTreeMap<u32, FoundSegment>, &mut FoundCheckpoints),
    logs: &mut BTreeMap<u64, Vec<Walked>>,
    report: &mut OpenReport,
) -> Result<()> {
    let mut lists = BTreeMap::new();
    for (&log_id, segments) in logs.iter() {
        let counts_all = settings.mutations.is_on("count_parts_before_seals");
        let sealed = sealed_groups(found, log_id).filter(|_| !counts_all);
        let sealed_first = sealed.map_or(0, |groups| groups.0);
        let mut list = LogRecords::default();
        for segment in segments {
            let is_before_sealed = segment.header.first_group < sealed_first;
            for group in &segment.groups {
                list.resolved = list.resolved.max(group.header.batches_resolved);
                list.records.extend(group.records.iter().map(|record| LogRecord {
                    group: group.header.number,
                    flags: record.entry.flags,
                    part: record.part,
                    is_before_sealed,
                }));
            }
        }
        lists.insert(log_id, list);
    }
    let keep = settings.mutations.is_on("keep_undecided_batches");
    let decisions = batches::decide(&lists, writer.superblock.batches_decided, keep);
    if decisions.dropped.values().any(|dropped| !dropped.is_empty())
        && !settings.mutations.is_on("checkpoint_of_void_records")
    {
        // They may point to records that become void now.
        checkpoints.drop_all(device, writer.superblock.store_id)?;
    }
    for (log_id, dropped) in &decisions.dropped {
        let Some(segments) = logs.get_mut(log_id) else { continue };
        let mut place = 0;
        for segment in segments {
            let salt = salt_of(settings, writer.superblock.store_id, &segment.header);
            for record in segment.records().zip(place..).filter(|(_, at)| dropped.contains(at)) {
                make_void(device, settings, segment.number, salt, &record.0.entry)?;
            }
            for group in &mut segment.groups {
                group.records.retain(|_| {
                    place += 1;
                    !dropped.contains(&(place - 1))
                });
            }
        }
        report.dropped_records += dropped.len() as u64;
    }
    if decisions.any && !settings.mutations.is_on("seal_before_decided") {
        let opening = logs.keys().map(|log_id| log_id >> LOG_ID_OPEN_SHIFT).max().unwrap_or(0);
        let mut next = writer.superblock.clone();
        next.batches_decided = next.open_count.max(opening);
        writer.write(device, next)?;
    }
    Ok(())
}

/// Writes over a record that it is void. Only the sector with its header changes.
fn make_void(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    segment: u32,
    salt: u64,
    entry: &SummaryEntry,
) -> Result<()> {
    if entry.flags & FLAG_VOID != 0 {
        return Ok(());
    }
    let geometry = device.geometry();
    let unit = BrokenRules::of(&settings.mutations).salt_unit(entry.unit);
    let at = entry.unit as usize * UNIT_BYTES;
    let start = at / BLOCK_BYTES * BLOCK_BYTES;
    let end = (at + entry.units as usize * UNIT_BYTES).next_multiple_of(BLOCK_BYTES);
    let offset = geometry.segment_offset(segment) + start as u64;
    let mut blocks = Vec::new();
    read_ranges(device, &[(offset, end - start)], |_, bytes| {
        blocks.extend_from_slice(bytes);
        Ok(())
    })?;
    let record = blocks.get_mut(at - start..).unwrap_or_default();
    let Decoded::Whole(header) = record::decode(record, salt, unit, record.len()) else {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("a record of segment {segment} was whole and is not"),
        ));
    };
    let record = &mut record[..header.record_len()];
    record::set_flags(record, header.flags | FLAG_VOID);
    record::seal(record, salt, unit);
    let block = IoBuffer::from_slice(&blocks[..BLOCK_BYTES]);
    let request = if settings.mutations.is_on("voids_not_durable") {
        IoRequest::write(0, offset, block)
    } else {
        IoRequest::write_durable(0, offset, block)
    };
    run_all(device, vec![request]).map(drop)
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
    // The end of a batch that was not whole is in the groups and not in the summary; nor are void records.
    let records = sealed.flat_map(|group| &group.records);
    let served = records.filter(|record| record.entry.flags & FLAG_VOID == 0);
    for record in served.take(footer.records as usize) {
        summary.push(record.entry, &record.key);
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
        let is_hot = !is_cold(header.log_id);
        let walked = |(offset, record): &(usize, RecordHeader)| {
            let key = &bytes[offset + record.key_range().start..offset + record.key_range().end];
            let entry = SummaryEntry::new(record, hasher.position(key), (offset / UNIT_BYTES) as u32);
            WalkedRecord {
                entry,
                key: if entry.is_keyed() { key.into() } else { Box::default() },
                part: (record.flags & FLAG_PART != 0 && is_hot).then_some(record.part),
            }
        };
        let walked = records.iter().map(walked).collect();
        at += found.len.next_multiple_of(BLOCK_BYTES);
        expected = found.number + 1;
        groups.push(WalkedGroup { header: found, end: at, records: walked });
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
            while group.records.pop_if(|record| record.goes_on()).is_some() {
                report.dropped_records += 1;
            }
            if !group.records.is_empty() {
                return;
            }
        }
    }
}

/// Writes a footer, or a free header where nothing is left, for each walked segment.
fn seal(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    store: u64,
    geometry: Geometry,
    segments: Vec<Walked>,
    found: &mut BTreeMap<u32, FoundSegment>,
) -> Result<()> {
    for segment in segments {
        let start = geometry.segment_offset(segment.number);
        let header = segment.header;
        if segment.records().next().is_none() {
            let mut buffer = IoBuffer::zeroed(BLOCK_BYTES);
            SegmentHeader::free(header.store, header.segment, header.opened_seq).encode(&mut buffer);
            run_all(device, vec![IoRequest::write_durable(0, start, buffer)])?;
            found.remove(&segment.number);
            continue;
        }
        let mut summary = SummaryBuilder::default();
        segment.records().for_each(|record| summary.push(record.entry, &record.key));
        let stream = StreamSettings {
            id: StreamId::Hot,
            store,
            log_id: header.log_id,
            positions: (Position(header.first_position), Position(header.last_position)),
            geometry,
            group_bytes_max: 0,
            spare: SpareBytes::default(),
            groups_in_flight: (1, 1),
            write_kind: IoKind::WriteDurable,
            lazy: LazySettings::NEVER,
            broken: BrokenRules::default(),
        };
        let end_group = segment.groups.last().map_or(header.first_group, |group| group.header.number + 1);
        let groups = (header.first_group, end_group);
        let data_end = segment.groups.last().map_or(0, |group| group.end) as u32;
        let past_ms = segment.groups.iter().map(|group| group.header.past_ms).max().unwrap_or(0);
        let life = (header.generation, None);
        let (buffer, offset, _) =
            footer_block(&stream, life, &summary, segment.number, groups, data_end, past_ms);
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
