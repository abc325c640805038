//! A shard's index, rebuilt from the summaries of the segments that may hold its keys.
//!
//! Entries of all summaries are collected (24 bytes each) into ranges of positions that fit a
//! processor's cache, sorted there, and of each key's versions the newest wins; the index is made
//! region by region in that order. Where the memory does not allow all at once, the shard's positions are
//! done in several passes, each reading all summaries again and taking as many positions as fit.
//!
//! Keys of ordered keyspaces come from the summaries too, in a pass of their own when it is known which
//! records are live: so the keys of dead versions cost no memory.
//!
//! Two records with one position have one key, unless one of them carries `FLAG_COLLIDES`: then their
//! keys are read and compared.

mod entries;

use crate::checkpoint::find::FoundCheckpoint;
use crate::checkpoint::replay::Restored;
use crate::checkpoint::{Tail, replay};
use crate::collect::{Buckets, Collected};
use crate::format::record::{self, Decoded, FLAG_COLLIDES, FLAG_TOMBSTONE};
use crate::format::segment::SegmentFooter;
use crate::format::summary::{SummaryEntry, SummaryReader};
use crate::format::superblock::KeyspaceEntry;
use crate::index::SortedBuilder;
use crate::location::{Location, Target, UNIT_BYTES, index_settings};
use crate::memory_ledger::{MemoryLedger, Waker};
use crate::missing;
use crate::open::{read_ranges, run_all};
use crate::pool::SegmentPool;
use crate::redo::snapshots::Area;
use crate::segments::{Role, Segment, SegmentTable};
use crate::settings::ShardSettings;
use crate::shard::{LOG_ID_OPEN_SHIFT, LogShard, ShardIdentity, is_cold};
use crate::stream::Stream;
use crate::touch::{FoundTouch, FoundTouches};
use crate::walk;
pub(crate) use entries::Packed;
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Position, Result, Seq};
use tierstone_engine::{IndexKind, OpeningPart};
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoRequest};

/// Everything that one shard needs to be built, on its own thread.
#[derive(Debug)]
pub struct ShardPlan {
    pub(crate) settings: ShardSettings,
    pub(crate) identity: ShardIdentity,
    pub(crate) keyspaces: Vec<KeyspaceEntry>,
    pub(crate) applied: Seq,
    /// The highest expiry that was shown as past in earlier openings, in milliseconds since 1970.
    pub(crate) past_ms: u64,
    pub(crate) segments: Vec<(u32, Segment)>,
    pub(crate) footers: BTreeMap<u32, SegmentFooter>,
    /// Free segments, and whether their space has been written before.
    pub(crate) free: Vec<(u32, bool)>,
    /// Free segments of all shards.
    pub(crate) pool: Arc<SegmentPool>,
    /// The memory of all shards.
    pub(crate) memory: Arc<MemoryLedger>,
    /// The checkpoint of the shard's index, if there is one.
    pub(crate) checkpoint: Option<FoundCheckpoint>,
    /// The shard's part of the redo log, if there is one.
    pub(crate) redo: Option<crate::redo::RedoLog>,
    /// Areas of the region for the shard's checkpoints.
    pub(crate) areas: Vec<Area>,
    /// Whether the device makes each durable write durable with a flush of its own.
    pub(crate) durable_writes_flush: bool,
    /// Records that cannot be read any more do not refuse the store.
    pub(crate) loss_accepted: bool,
    /// Segments that the opening has found missing or damaged, which the first shard counts.
    pub(crate) lost_segments: u64,
    /// Where it is told how far this shard has come.
    pub(crate) opening: OpeningPart,
}

/// What building a shard found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildReport {
    /// Whether the index comes from a checkpoint, and only what came after it from summaries.
    pub from_checkpoint: bool,
    /// Records listed in summaries that were read.
    pub records: u64,
    /// Live records.
    pub live: u64,
    /// Passes over the summaries.
    pub passes: u32,
    /// Summaries that a crash had torn, or that were damaged, made again from the records.
    pub rebuilt_summaries: u32,
    /// Segments whose summary could not be read: their records are not served.
    pub damaged_segments: Vec<u32>,
    /// Segments with a record that cannot be read, of whose key, or of one with its position, there is a newer one: the rest of
    /// them is served.
    pub unreadable_in: Vec<u32>,
    /// Records that are damaged and not served, where they are counted one by one: in persistent memory.
    pub damaged_records: u64,
    /// Bytes that were durable in persistent memory and are damaged, whose loss was accepted.
    pub lost_bytes: u64,
}

/// Entries of summaries that a pass collects.
pub(crate) type Entries = Buckets<Packed, FoundTouch>;

/// The indexes being made.
struct Builders {
    /// One for each keyspace of the superblock's list that has keys.
    indexes: Vec<Option<SortedBuilder>>,
    /// Touches of the positions at hand.
    touches: FoundTouches,
}

/// Memory for collected entries is at least this, in bytes.
const COLLECT_BYTES_MIN: u64 = 64 << 20;

impl ShardPlan {
    /// Which shard it is for.
    pub fn shard(&self) -> tierstone_base::ShardId {
        self.identity.shard
    }

    /// Says that the device follows each durable write with a flush: the shard's accounts count it.
    pub fn durable_writes_flush(&mut self) {
        self.durable_writes_flush = true;
    }

    /// Lets other shards wake the thread that drives this one, when they need memory or space that it could spare.
    /// Without this they wait for its next step.
    pub fn wake_for_others(&self, wake: Waker) {
        self.memory.set_waker(self.identity.shard, wake);
    }

    /// Rebuilds the shard. `device` must have nothing else in flight.
    ///
    /// # Errors
    /// `DeviceFailed` when the device gives an error. `Corrupt`: summaries are damaged and cannot be made again, and that is
    /// not accepted; else they are reported.
    pub fn build(mut self, device: &mut dyn BlockDevice) -> Result<(LogShard, BuildReport)> {
        let (flushes, redo) = (self.durable_writes_flush, self.redo.take());
        let (areas, loss_accepted) = (std::mem::take(&mut self.areas), self.loss_accepted);
        let lost_before = self.lost_segments;
        let (mut shard, report) = self.build_as_found(device)?;
        if !loss_accepted {
            missing::refuse(&[], &report.damaged_segments)?;
        }
        shard.counts.lost_segments = lost_before + report.damaged_segments.len() as u64;
        shard.requests.durable_writes_flush = flushes;
        shard.checkpoints.set_areas(areas);
        if let Some(redo) = redo {
            shard.hot.set_redo(redo);
        }
        Ok((shard, report))
    }

    fn build_as_found(mut self, device: &mut dyn BlockDevice) -> Result<(LogShard, BuildReport)> {
        if let Some(checkpoint) = self.checkpoint.take() {
            if let Some(restored) = replay::restore(&self, device, &checkpoint) {
                return self.build_restored(device, restored);
            }
            checkpoint.make_void(device, self.identity.store)?;
            self.free.extend(checkpoint.place.segments().iter().map(|&segment| (segment, true)));
        }
        self.build_from_summaries(device)
    }

    /// The shard as a checkpoint and the log after it give it.
    fn build_restored(
        self,
        device: &mut dyn BlockDevice,
        restored: Restored,
    ) -> Result<(LogShard, BuildReport)> {
        let mut table = self.table(&restored.segments);
        for &segment in restored.in_force.place.segments() {
            table.adopt(segment, Segment { role: Role::Checkpoint, ..Segment::default() });
        }
        let mut shard = self.empty_shard(table)?;
        self.keyspaces.iter().for_each(|keyspace| shard.keyspaces.define(keyspace.id, keyspace.index));
        for (id, index) in restored.indexes {
            shard.keyspaces.get_or_create(id).index = index;
        }
        for (key, touch) in restored.touches {
            shard.adopt_touch(key, touch);
        }
        shard.checkpoints.recovered(Some(restored.in_force), restored.tail);
        let mut report = restored.report;
        if shard.keyspaces.has_ordered() {
            self.order_keys(device, &mut shard, &mut report)?;
        }
        Ok((shard, report))
    }

    fn empty_shard(&self, table: SegmentTable) -> Result<LogShard> {
        let known = (self.applied, self.past_ms);
        LogShard::new(self.settings.clone(), self.identity.clone(), table, known, Arc::clone(&self.memory))
    }

    fn table(&self, segments: &[(u32, Segment)]) -> SegmentTable {
        let mut table = SegmentTable::new(self.identity.geometry.segment_bytes, Arc::clone(&self.pool))
            .marking(self.settings.marks_dead_records);
        for &(segment, ready) in &self.free {
            table.grant(segment, ready);
        }
        for (number, segment) in segments {
            table.adopt(*number, segment.clone());
        }
        table
    }

    /// What building has to read and to sort, about, in bytes: a checkpoint and what came after it, or all summaries.
    pub(crate) fn bytes_to_read(&self) -> u64 {
        let is_ordered = self.keyspaces.iter().any(|keyspace| keyspace.index == IndexKind::Ordered);
        let keys = if is_ordered { self.bytes_of_summaries(0).0 } else { 0 };
        let (from, checkpoint) = match &self.checkpoint {
            Some(found) => (found.commit.seq, found.bytes(self.identity.geometry.segment_bytes)),
            None => (0, 0),
        };
        let (summaries, entries) = self.bytes_of_summaries(from);
        keys + checkpoint + summaries + entries
    }

    /// Bytes of the summaries with sequences above `after`, and of their entries when they are collected.
    fn bytes_of_summaries(&self, after: Seq) -> (u64, u64) {
        let is_wanted = |number: &u32| self.footers.get(number).is_none_or(|footer| footer.max_seq > after);
        let wanted = self.segments.iter().filter(|(number, _)| is_wanted(number));
        wanted.fold((0, 0), |(bytes, entries), (_, segment)| {
            let place = &segment.summary;
            let len = u64::from(place.len.max(1)).next_multiple_of(BLOCK_BYTES as u64);
            (bytes + len, entries + u64::from(place.records) * size_of::<Packed>() as u64)
        })
    }

    /// Memory for collected entries, in bytes.
    pub(crate) fn collect_bytes_max(&self) -> u64 {
        (self.settings.memory_bytes / 2).max(COLLECT_BYTES_MIN)
    }

    fn build_from_summaries(mut self, device: &mut dyn BlockDevice) -> Result<(LogShard, BuildReport)> {
        let table = self.table(&self.segments);
        let mut report = BuildReport::default();
        let mut shard = self.empty_shard(table)?;
        self.keyspaces.iter().for_each(|keyspace| shard.keyspaces.define(keyspace.id, keyspace.index));
        let indexes = self.keyspaces.iter().map(|_| None).collect();
        let mut builders = Builders { indexes, touches: FoundTouches::default() };
        let (first, last) = self.identity.positions();
        let (once, entries) = self.bytes_of_summaries(0);
        let mut from = first.0;
        for pass in 1.. {
            self.opening.at_least_left(once + if pass == 1 { entries } else { 0 });
            let to = self.build_pass(device, (from, last.0), &mut shard, &mut builders, &mut report)?;
            report.passes = pass;
            if to == last.0 {
                break;
            }
            from = to + 1;
        }
        for (keyspace, builder) in self.keyspaces.iter().zip(builders.indexes) {
            let Some(builder) = builder else { continue };
            match builder.finish() {
                Ok(index) => shard.keyspaces.get_or_create(keyspace.id).index = index,
                Err(_) => unreachable!("the index has no limit of its own"),
            }
        }
        if shard.keyspaces.has_ordered() {
            self.order_keys(device, &mut shard, &mut report)?;
        }
        report.damaged_segments.sort_unstable();
        report.damaged_segments.dedup();
        // Nothing of theirs is in the index, so they look empty; they may still be worth repairing.
        let worth = report.damaged_segments.iter().chain(&report.unreadable_in);
        worth.for_each(|&number| shard.cleaner.leave_alone(number));
        let bytes = self.segments.iter().map(|(_, segment)| u64::from(segment.data_end)).sum();
        let tail = Tail { records: report.records, bytes, from_seq: self.applied, from_bytes: 0 };
        shard.checkpoints.recovered(None, tail);
        self.segments.clear();
        Ok((shard, report))
    }

    /// Puts the keys with positions in `from..=to` into the index, as many as their memory allows; gives the last position
    /// that is done.
    fn build_pass(
        &self,
        device: &mut dyn BlockDevice,
        (from, to): (u64, u64),
        shard: &mut LogShard,
        builders: &mut Builders,
        report: &mut BuildReport,
    ) -> Result<u64> {
        let buckets = Buckets::new((from, to), self.collect_bytes_max());
        let buckets = self.collect(device, buckets, 0, report)?;
        let to = buckets.to();
        for Collected { mut records, touches } in buckets.into_lists() {
            builders.touches = FoundTouches::new(touches, &self.identity.mutations);
            records.sort_unstable();
            self.install(device, &records, shard, builders, report)?;
            self.opening.advance(size_of_val(records.as_slice()) as u64);
        }
        Ok(to)
    }

    /// Reads the summaries and keeps the entries that `buckets` are for, with sequences above `after`.
    pub(crate) fn collect(
        &self,
        device: &mut dyn BlockDevice,
        mut buckets: Entries,
        after: Seq,
        report: &mut BuildReport,
    ) -> Result<Entries> {
        let numbers: BTreeMap<u32, u64> =
            self.keyspaces.iter().zip(0..).map(|(keyspace, number)| (keyspace.id.0, number)).collect();
        let is_wanted = |number: &u32| {
            after == 0 || self.footers.get(number).is_some_and(|footer| footer.max_seq > after)
        };
        let segments: Vec<&(u32, Segment)> =
            self.segments.iter().filter(|(number, _)| is_wanted(number)).collect();
        let ranges = self.summary_ranges(segments.iter().copied());
        let mut take = |number: u32, entry: SummaryEntry| {
            if entry.seq > after
                && let Some(&keyspace) = numbers.get(&entry.keyspace.0)
            {
                let location = Location::new(number, entry.unit);
                if entry.is_touch() {
                    buckets.push_touch(FoundTouch {
                        keyspace: keyspace as usize,
                        position: entry.position.0,
                        value_seq: entry.touched.seq,
                        value_place: entry.touched.place,
                        seq: entry.seq,
                        expiry_ms: entry.expiry_ms,
                        place: location,
                        units: entry.units,
                    });
                    return;
                }
                buckets.push(Packed {
                    position: entry.position.0,
                    order: (keyspace << 48) | record::SEQ_MAX.saturating_sub(entry.seq),
                    place: Packed::pack(location, entry.units, entry.flags),
                });
            }
        };
        let mut torn = Vec::new();
        read_ranges(device, &ranges, |place, bytes| {
            self.opening.advance(bytes.len() as u64);
            let (number, segment) = segments[place];
            let summary = bytes.get(..segment.summary.len as usize).unwrap_or_default();
            if checksum(segment.generation, summary) != segment.summary.checksum {
                torn.push(*number);
                return Ok(());
            }
            let reader = SummaryReader::new(summary, segment.summary.records);
            reader.for_each(|entry| take(*number, entry));
            Ok(())
        })?;
        for number in torn {
            match self.repair_summary(device, number)? {
                Some((summary, records)) => {
                    let reader = SummaryReader::new(&summary, records);
                    reader.for_each(|entry| take(number, entry));
                    report.rebuilt_summaries += 1;
                }
                None if !report.damaged_segments.contains(&number) => report.damaged_segments.push(number),
                None => {}
            }
        }
        report.records += buckets.count();
        Ok(buckets)
    }

    /// Where the summaries lie, whole blocks each.
    pub(crate) fn summary_ranges<'s>(
        &self,
        segments: impl Iterator<Item = &'s (u32, Segment)>,
    ) -> Vec<(u64, usize)> {
        let of = |(number, segment): &(u32, Segment)| {
            let place = segment.summary;
            let len = (place.len as usize).max(1).next_multiple_of(BLOCK_BYTES);
            (self.identity.geometry.segment_offset(*number) + u64::from(place.start), len)
        };
        segments.map(of).collect()
    }

    /// Puts the keys of ordered keyspaces in order: reads the summaries once more and takes the keys of
    /// the records that the index points to. No record is read, and no key is kept but the live ones. A summary that is
    /// damaged may not have been needed before, where the index comes from a checkpoint: it is made again here.
    fn order_keys(
        &self,
        device: &mut dyn BlockDevice,
        shard: &mut LogShard,
        report: &mut BuildReport,
    ) -> Result<()> {
        let mut torn = Vec::new();
        read_ranges(device, &self.summary_ranges(self.segments.iter()), |place, bytes| {
            self.opening.advance(bytes.len() as u64);
            let (number, segment) = &self.segments[place];
            let summary = bytes.get(..segment.summary.len as usize).unwrap_or_default();
            match checksum(segment.generation, summary) == segment.summary.checksum {
                true => order_keys_of(*number, (summary, segment.summary.records), shard, report),
                false => torn.push(*number),
            }
            Ok(())
        })?;
        for number in torn {
            // One that was found damaged before is left alone, and nothing of it is in the index.
            let is_left = self.identity.mutations.is_on("torn_summary_leaves_order");
            let is_damaged = is_left || report.damaged_segments.contains(&number);
            let again = if is_damaged { None } else { self.repair_summary(device, number)? };
            match again {
                Some((summary, records)) => {
                    order_keys_of(number, (&summary, records), shard, report);
                    report.rebuilt_summaries += 1;
                }
                None => report.damaged_segments.push(number),
            }
        }
        Ok(())
    }

    /// Makes a summary that is torn or damaged again and writes it to its place, for the cleaner. Shards
    /// that share the segment may do so side by side: they write the same bytes.
    pub(crate) fn repair_summary(
        &self,
        device: &mut dyn BlockDevice,
        number: u32,
    ) -> Result<Option<(Vec<u8>, u32)>> {
        let Some(footer) = self.footers.get(&number) else { return Ok(None) };
        let identity = &self.identity;
        if identity.mutations.is_on("torn_seal_not_repaired") {
            return Ok(None);
        }
        let found = self.segments.iter().find(|(other, _)| *other == number);
        let Some(salt) = found.map(|(_, segment)| segment.salt) else { return Ok(None) };
        let Some(summary) = walk::rebuild_summary(device, &identity.hasher, identity.geometry, footer, salt)?
        else {
            return Ok(None);
        };
        let offset = identity.geometry.segment_offset(number) + u64::from(footer.summary_start);
        let request = IoRequest::write_durable(0, offset, IoBuffer::from_slice(&summary));
        run_all(device, vec![request])?;
        Ok(Some((summary, footer.records)))
    }

    /// Puts the newest version of each key into the index.
    fn install(
        &self,
        device: &mut dyn BlockDevice,
        entries: &[Packed],
        shard: &mut LogShard,
        builders: &mut Builders,
        report: &mut BuildReport,
    ) -> Result<()> {
        for versions in entries.chunk_by(Packed::is_same_key) {
            if versions.iter().all(|version| version.flags() & FLAG_COLLIDES == 0) {
                self.install_key(versions, shard, builders, report);
                continue;
            }
            let mut keys: BTreeMap<Vec<u8>, Vec<Packed>> = BTreeMap::new();
            for version in versions {
                match self.read_key(device, version.location(), version.units())? {
                    Some(key) => keys.entry(key).or_default().push(*version),
                    None => report.unreadable_in.push(version.location().segment()),
                }
            }
            for versions in keys.values() {
                self.install_key(versions, shard, builders, report);
            }
        }
        Ok(())
    }

    /// The newest of a key's versions. Of a record and its copies (their sequence is the same) it is the
    /// original: so what a crash left of a cleaning that had not freed its victim is dead, and its
    /// segment becomes free again without space to clean it.
    fn newest<'v>(&self, versions: &'v [Packed]) -> Option<&'v Packed> {
        let first = versions.first()?;
        let twins = versions.iter().take_while(|version| version.order == first.order);
        match versions.get(1).is_some_and(|second| second.order == first.order) {
            true => twins.min_by_key(|version| self.age_of(version.location().segment())),
            false => Some(first),
        }
    }

    /// Orders segments so that originals come before their copies: a copy lies in a cold log of the
    /// same opening or of a later one, or further behind in the same log.
    fn age_of(&self, segment: u32) -> (u64, bool, u64) {
        self.footers.get(&segment).map_or((0, false, 0), |footer| {
            (footer.log_id >> LOG_ID_OPEN_SHIFT, is_cold(footer.log_id), footer.first_group)
        })
    }

    fn install_key(
        &self,
        versions: &[Packed],
        shard: &mut LogShard,
        builders: &mut Builders,
        report: &mut BuildReport,
    ) {
        let Some(newest) = self.newest(versions) else { return };
        let location = newest.location();
        if newest.flags() & FLAG_TOMBSTONE != 0 {
            // It is needed for as long as an older version may be found again.
            if versions.iter().any(|version| version.order != newest.order) {
                shard.segments.add_live(location.segment(), newest.units(), true);
            }
            return;
        }
        shard.segments.add_live(location.segment(), newest.units(), false);
        report.live += 1;
        let named = (newest.position, newest.keyspace(), newest.seq());
        if let Some(found) = builders.touches.newest(named, |segment| self.age_of(segment)) {
            let key = (self.keyspaces[newest.keyspace()].id, Position(newest.position), newest.seq());
            shard.adopt_touch(key, found.touch(location));
        }
        let builder = builders.indexes[newest.keyspace()]
            .get_or_insert_with(|| SortedBuilder::new(index_settings(self.identity.geometry.segment_limit)));
        if builder.push(Position(newest.position), Target::Device(location).pack()).is_err() {
            unreachable!("the index has no limit of its own");
        }
    }

    /// The key of the record at `location`, which has `units` units at most; `None` when it is damaged.
    pub(crate) fn read_key(
        &self,
        device: &mut dyn BlockDevice,
        location: Location,
        units: usize,
    ) -> Result<Option<Vec<u8>>> {
        let Some((_, segment)) = self.segments.iter().find(|(number, _)| *number == location.segment())
        else {
            return Err(Error::new(ErrorKind::Corrupt, "a summary names a segment that was not dealt"));
        };
        let offset = location.offset();
        let start = offset / BLOCK_BYTES * BLOCK_BYTES;
        let segment_bytes = self.identity.geometry.segment_bytes as usize;
        let end = (offset + units * UNIT_BYTES).next_multiple_of(BLOCK_BYTES).min(segment_bytes);
        let place = self.identity.geometry.segment_offset(location.segment()) + start as u64;
        let longest = Stream::record_bytes_max(self.identity.geometry);
        let mut key = None;
        read_ranges(device, &[(place, end - start)], |_, bytes| {
            let bytes = bytes.get(offset - start..).unwrap_or_default();
            if let Decoded::Whole(header) = record::decode(bytes, segment.salt, location.unit(), longest) {
                key = bytes.get(header.key_range()).map(<[u8]>::to_vec);
            }
            Ok(())
        })?;
        Ok(key)
    }
}

/// Puts the keys of those records of a summary in order that the index points to.
fn order_keys_of(
    number: u32,
    (summary, records): (&[u8], u32),
    shard: &mut LogShard,
    report: &mut BuildReport,
) {
    let mut reader = SummaryReader::new(summary, records);
    while let Some((entry, key)) = reader.next_keyed() {
        let target = Target::Device(Location::new(number, entry.unit)).pack();
        let Some(keyspace) = shard.keyspaces.get_mut(entry.keyspace) else { continue };
        if keyspace.order.is_none() || !keyspace.index.contains(entry.position, target) {
            continue;
        }
        if entry.is_keyed() {
            keyspace.note_live(key);
        } else {
            report.damaged_segments.push(number);
        }
    }
}
