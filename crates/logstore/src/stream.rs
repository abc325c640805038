//! One log of a shard: records into groups, groups into segments, segments sealed.
//!
//! Invariants:
//! 1. Groups have consecutive numbers over all segments of the log; `durable_groups` counts the
//!    prefix that is durable ([`flight`]). What lies above it was promised to nobody.
//! 2. Groups are submitted in order; no two share a block; the first group of a segment carries the
//!    segment's header in the same write.
//! 3. A segment is sealed (its summary and footer written) only when all groups up to its last are
//!    durable: so a sealed segment proves that everything before it in the log was durable. Parts of
//!    batches over several shards in it are resolved everywhere by then ([`parts`]).
//!
//! Crash: the log ends before its first missing group. A segment without a valid footer is walked.

use crate::depth::GroupDepth;
use crate::format::group::{self, GroupHeader};
use crate::format::record::{self, RecordHeader};
use crate::format::summary::{self, SummaryBuilder, SummaryEntry};
use crate::io::StreamId;
use crate::location::{Location, UNIT_BYTES};
use crate::rules::BrokenRules;
use crate::segments::{Role, SegmentTable};
use crate::settings::ShardSettings;
use absorb::Absorbing;
pub use flight::LazySettings;
use flight::{Flying, Lazy};
use parts::Parts;
use proof::PastProof;
use sealing::{SealJob, Sealing};
use std::collections::VecDeque;
use tierstone_base::prefetch::prefetch_bytes;
use tierstone_base::{Position, Seq};
use tierstone_media::{BLOCK_BYTES, Geometry, IoBuffer, IoKind};

mod absorb;
mod flight;
mod parts;
mod proof;
mod redo;
mod room;
mod sealing;

/// How much memory a log keeps that it will use again, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpareBytes {
    /// Buffers of written groups.
    pub usual: usize,
    /// The same while much is being written, what is on its way included.
    pub busy: usize,
    /// The summary of a sealed segment, and the buffer that it was written from: each if it has at most so much.
    pub seal: usize,
}

impl SpareBytes {
    /// What a shard's settings allow.
    pub fn of(settings: &ShardSettings) -> Self {
        let busy = settings.write_buffer_bytes();
        SpareBytes { usual: busy / 4, busy, seal: settings.seal_bytes_max() }
    }
}

/// What does not change in the life of a log.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Hot or cold.
    pub id: StreamId,
    /// The store's id.
    pub store: u64,
    /// The log's own id.
    pub log_id: u64,
    /// The range of positions that it takes.
    pub positions: (Position, Position),
    /// Where segments lie.
    pub geometry: Geometry,
    /// A group is closed at this size in bytes.
    pub group_bytes_max: usize,
    /// Memory that is kept for later.
    pub spare: SpareBytes,
    /// Groups in flight: at first, and at most.
    pub groups_in_flight: (usize, usize),
    /// How groups and seals are written: durable writes, but for a test's mutation.
    pub write_kind: IoKind,
    /// When groups that need not be durable by themselves are flushed.
    pub lazy: LazySettings,
    /// Rules that a test breaks on purpose.
    pub broken: BrokenRules,
}

/// A group that takes records.
#[derive(Debug)]
struct OpenGroup {
    buffer: IoBuffer,
    /// Where the buffer begins in the segment.
    start: usize,
    /// Where the group's header is in the buffer: after the segment's header in its first group.
    header: usize,
    used: usize,
    records: u32,
    first_seq: Seq,
    last_seq: Seq,
    opened_us: u64,
    /// Its slot in the redo log, and how much of the buffer is there.
    slot: Option<usize>,
    kept: usize,
    absorbing: Absorbing,
}

#[derive(Debug)]
struct ClosedGroup {
    number: u64,
    segment: u32,
    start: usize,
    len: usize,
    last_seq: Seq,
    opened_us: u64,
    records: u32,
    durable_groups: u64,
    batches_resolved: u64,
    past_ms: u64,
    has_slot: bool,
    buffer: IoBuffer,
}

#[derive(Debug)]
struct OpenSegment {
    number: u32,
    /// Where the next group begins.
    end: usize,
    first_group: u64,
    /// What its newest group says of expiry.
    past_ms: u64,
    summary: SummaryBuilder,
    summary_lent_bytes: usize,
}

/// One log.
#[derive(Debug)]
pub struct Stream {
    settings: StreamSettings,
    segment: Option<OpenSegment>,
    open: Option<OpenGroup>,
    closed: VecDeque<ClosedGroup>,
    flying: VecDeque<Flying>,
    lazy: Lazy,
    sealing: Sealing,
    next_group: u64,
    durable_groups: u64,
    durable_seq: Seq,
    /// Groups below this number are called durable by a group that is itself durable.
    proven_groups: u64,
    /// First groups of the segments that have no durable footer yet.
    unsealed: Vec<u64>,
    closed_bytes: usize,
    flying_bytes: usize,
    /// Bytes of padding and group headers, and of headers, summaries and footers, written so far.
    pub padding_bytes: u64,
    /// Bytes of segment headers, summaries and footers written so far.
    pub summary_bytes: u64,
    /// Bytes of records appended so far.
    pub record_bytes: u64,
    /// Bytes of records written so far in the place of older ones of the same group.
    pub absorbed_bytes: u64,
    spare: Vec<IoBuffer>,
    /// How many groups may be in flight.
    pub depth: GroupDepth,
    segments_opened: u64,
    /// The newest sequence that the shard has given, as far as this log was told.
    newest_seq: Seq,
    in_batch: bool,
    /// Whether that is a part of one over several shards.
    in_part: bool,
    /// The newest sequence appended.
    appended_seq: Seq,
    /// The newest sequence before the batch that was begun last.
    before_batch: Seq,
    parts: Parts,
    past: PastProof,
    kept: redo::Kept,
}

impl Stream {
    /// A log without any group, in which `seq` is durable already.
    pub fn new(settings: StreamSettings, seq: Seq) -> Self {
        Stream {
            parts: Parts::new(settings.broken.marked_early),
            depth: GroupDepth::new(settings.groups_in_flight.0, settings.groups_in_flight.1),
            settings,
            segment: None,
            open: None,
            closed: VecDeque::new(),
            flying: VecDeque::new(),
            lazy: Lazy::default(),
            sealing: Sealing::default(),
            next_group: 0,
            durable_groups: 0,
            durable_seq: seq,
            proven_groups: 0,
            unsealed: Vec::new(),
            closed_bytes: 0,
            flying_bytes: 0,
            padding_bytes: 0,
            summary_bytes: 0,
            record_bytes: 0,
            absorbed_bytes: 0,
            spare: Vec::new(),
            segments_opened: 0,
            newest_seq: 0,
            in_batch: false,
            in_part: false,
            appended_seq: seq,
            before_batch: seq,
            past: PastProof::default(),
            kept: redo::Kept::default(),
        }
    }

    /// Rules that a test breaks on purpose.
    pub fn broken(&self) -> BrokenRules {
        self.settings.broken
    }

    /// Tells the log the sequence that the shard gives next: segments opened from now on say so. What the
    /// cleaner moves has old sequences, but all records of such a segment are live when it is opened: it
    /// holds nothing that was deleted before.
    pub fn set_newest_seq(&mut self, seq: Seq) {
        self.newest_seq = seq;
    }

    /// Records appended until [`Stream::end_batch`] count all or none.
    pub fn begin_batch(&mut self) {
        self.in_batch = true;
        self.fix_records();
        self.before_batch = self.appended_seq;
    }

    /// Whether a batch is being appended.
    pub fn in_batch(&self) -> bool {
        self.in_batch
    }

    /// The batch is complete.
    pub fn end_batch(&mut self) {
        self.in_batch = false;
        self.fix_records();
        let end = self.end_group();
        for job in &mut self.sealing.jobs {
            if job.needs_durable == u64::MAX {
                job.needs_durable = end;
            }
        }
    }

    /// The number after the group that holds what was appended last.
    fn end_group(&self) -> u64 {
        self.next_group + u64::from(self.open.is_some())
    }

    /// Everything up to this sequence is durable in this log.
    pub fn durable_seq(&self) -> Seq {
        self.durable_seq
    }

    /// Segments that were ever opened.
    pub fn segments_opened(&self) -> u64 {
        self.segments_opened
    }

    /// Groups that were ever closed.
    pub fn group_count(&self) -> u64 {
        self.next_group
    }

    /// Groups below this number are durable.
    pub fn durable_groups(&self) -> u64 {
        self.durable_groups
    }

    /// Bytes waiting or being written.
    pub fn buffered_bytes(&self) -> usize {
        self.closed_bytes + self.open.as_ref().map_or(0, |open| open.used) + self.flying_bytes
    }

    /// When the group that takes records was opened; `None` when it has none.
    pub fn opened_us(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.opened_us)
    }

    /// The first sequence of the group that takes records; `None` when there is none.
    pub fn first_open_seq(&self) -> Option<Seq> {
        self.open.as_ref().map(|open| open.first_seq)
    }

    /// Whether nothing waits and nothing flies.
    pub fn is_idle(&self) -> bool {
        self.open.is_none() && self.closed.is_empty() && self.flying.is_empty() && self.sealing.is_empty()
    }

    /// Appends a record and says where it lies. The caller has made sure that a segment is free when
    /// one is needed; `None` when there is none all the same.
    pub fn append(
        &mut self,
        header: &RecordHeader,
        position: Position,
        key: &[u8],
        value: &[u8],
        now_us: u64,
        segments: &mut SegmentTable,
    ) -> Option<Location> {
        let bytes = header.units() * UNIT_BYTES;
        let (location, salt) = self.reserve(bytes, header, now_us, segments)?;
        let unit = self.settings.broken.salt_unit(location.unit());
        let Some(place) = self.place_of(location) else {
            unreachable!("the record was just given room in the open group")
        };
        record::encode(place, header, key, value, salt, unit);
        self.note(header, position, key, location, segments);
        Some(location)
    }

    /// Appends a record that lies encoded in `bytes` (moved by the cleaner), with other flags.
    pub fn append_encoded(
        &mut self,
        bytes: &[u8],
        header: &RecordHeader,
        position: Position,
        now_us: u64,
        segments: &mut SegmentTable,
    ) -> Option<Location> {
        let len = header.record_len();
        let padded = header.units() * UNIT_BYTES;
        let (location, salt) = self.reserve(padded, header, now_us, segments)?;
        let unit = self.settings.broken.salt_unit(location.unit());
        let Some(place) = self.place_of(location) else {
            unreachable!("the record was just given room in the open group")
        };
        place[..len].copy_from_slice(&bytes[..len]);
        place[len..padded].fill(0);
        record::set_flags(&mut place[..len], header.flags);
        record::seal(&mut place[..len], salt, unit);
        self.note(header, position, &bytes[header.key_range()], location, segments);
        Some(location)
    }

    fn note(
        &mut self,
        header: &RecordHeader,
        position: Position,
        key: &[u8],
        location: Location,
        segments: &mut SegmentTable,
    ) {
        if let (Some(segment), Some(open)) = (&mut self.segment, &mut self.open) {
            if open.records == 1 {
                open.absorbing.mark = segment.summary.mark();
            }
            segment.summary.push(SummaryEntry::new(header, position, location.unit()), key);
        }
        self.record_bytes += (header.units() * UNIT_BYTES) as u64;
        segments.add_live(location.segment(), header.units(), header.is_tombstone());
        if header.expiry_ms != 0 && !header.is_touch() {
            segments.note_expiring(location, header.units(), header.expiry_ms, header.flags);
        }
        let entry = segments.get_mut(location.segment());
        entry.longest_units = entry.longest_units.max(header.units() as u32);
    }

    /// Makes room for `bytes` in the open group, closing groups and rolling segments as needed.
    fn reserve(
        &mut self,
        bytes: usize,
        header: &RecordHeader,
        now_us: u64,
        segments: &mut SegmentTable,
    ) -> Option<(Location, u64)> {
        let seq = header.seq;
        if !self.fits_group(bytes) {
            self.close_group(segments);
        }
        if !self.fits_segment(bytes, summary::key_bytes(header)) {
            self.roll(segments);
            self.open_segment(seq, segments)?;
        }
        if self.open.is_none() {
            self.open_group(bytes, seq, now_us);
        }
        let (Some(open), Some(segment)) = (&mut self.open, &self.segment) else { return None };
        let location = Location::new(segment.number, ((open.start + open.used) / UNIT_BYTES) as u32);
        open.used += bytes;
        // The next record is likely to be as long, and no cache of the processor has its place.
        prefetch_bytes(open.buffer.get(open.used..open.used + bytes).unwrap_or_default(), usize::MAX);
        open.records += 1;
        open.last_seq = open.last_seq.max(seq);
        self.appended_seq = self.appended_seq.max(seq);
        Some((location, segments.get(segment.number).salt))
    }

    fn open_segment(&mut self, seq: Seq, segments: &mut SegmentTable) -> Option<()> {
        let number = segments.take_free()?;
        let opened = segments.next_opened();
        let entry = segments.get_mut(number);
        // The free header (or none) that lies there has an older generation than this one.
        self.segments_opened += 1;
        entry.generation = crate::shard::generation(self.settings.log_id, self.segments_opened);
        let salt_generation = self.settings.broken.salt_generation(entry.generation);
        entry.salt = crate::shard::segment_salt(self.settings.store, number, salt_generation);
        (entry.role, entry.opened) = (Role::Open, opened);
        entry.opened_seq = seq.max(self.newest_seq);
        entry.longest_units = 0;
        entry.past_ms = 0;
        entry.cold = self.settings.id == StreamId::Cold;
        entry.is_trusted = self.settings.id == StreamId::Hot;
        self.unsealed.push(self.next_group);
        self.segment = Some(OpenSegment {
            number,
            end: 0,
            first_group: self.next_group,
            past_ms: 0,
            summary: self.sealing.new_summary(),
            summary_lent_bytes: 0,
        });
        Some(())
    }

    fn open_group(&mut self, bytes: usize, seq: Seq, now_us: u64) {
        let Some(segment) = &self.segment else { return };
        let header = if segment.end == 0 { BLOCK_BYTES } else { 0 };
        let used = header + group::HEADER_BYTES;
        let capacity = (used + bytes).max(self.settings.group_bytes_max);
        let buffer = match self.spare.pop() {
            Some(mut buffer) if buffer.capacity() >= capacity => {
                buffer.set_len(usize::MAX);
                buffer
            }
            _ => IoBuffer::zeroed(capacity),
        };
        self.open = Some(OpenGroup {
            buffer,
            start: segment.end,
            header,
            used,
            records: 0,
            first_seq: seq,
            last_seq: 0,
            opened_us: now_us,
            slot: None,
            kept: 0,
            absorbing: Absorbing::default(),
        });
    }

    /// Closes the group that takes records: it will be written as it is.
    pub fn close_group(&mut self, segments: &SegmentTable) {
        self.settle_summary();
        self.keep_closing(segments);
        let (Some(mut open), Some(segment)) = (self.open.take(), &mut self.segment) else { return };
        let table = segments.get(segment.number);
        let len = open.used - open.header;
        let batches_resolved = self.parts.carry();
        let past_ms = self.past.shown_ms;
        segment.past_ms = past_ms;
        let header = GroupHeader {
            log_id: self.settings.log_id,
            number: self.next_group,
            durable_groups: self.durable_groups,
            first_seq: open.first_seq,
            len,
            records: open.records,
            batches_resolved,
            past_ms,
        };
        let offset = open.start + open.header;
        group::encode_header(&mut open.buffer[open.header..], &header, table.salt, offset);
        open.buffer.set_len(open.used);
        let written = open.buffer.len();
        open.buffer[open.used..].fill(0);
        if open.header > 0 {
            open.buffer[..open.header].fill(0);
            redo::segment_header(&self.settings, segment, segments, self.durable_groups)
                .encode(&mut open.buffer);
            self.summary_bytes += open.header as u64;
        }
        self.padding_bytes += (written - open.used + group::HEADER_BYTES) as u64;
        segment.end = open.start + written;
        self.closed_bytes += written;
        self.closed.push_back(ClosedGroup {
            number: self.next_group,
            segment: segment.number,
            start: open.start,
            len: written,
            // Records of a batch are lost with its end: until that is durable, none of them is.
            last_seq: if self.in_batch { open.last_seq.min(self.before_batch) } else { open.last_seq },
            opened_us: open.opened_us,
            records: open.records,
            durable_groups: self.durable_groups,
            batches_resolved,
            past_ms,
            has_slot: open.slot.is_some(),
            buffer: open.buffer,
        });
        self.kept.closed(self.next_group, open.slot);
        self.next_group += 1;
    }

    /// Leaves the open segment; it is sealed when its groups are durable.
    pub fn roll(&mut self, segments: &mut SegmentTable) {
        self.close_group(segments);
        let Some(segment) = self.segment.take() else { return };
        if segment.end == 0 {
            // Opened and never written: its header on the device still says free.
            let entry = segments.get_mut(segment.number);
            entry.role = Role::Freeing;
            segments.freed(segment.number);
            self.sealed(segment.first_group, None);
            return;
        }
        segments.get_mut(segment.number).data_end = segment.end as u32;
        let end_group = self.next_group;
        let in_batch = self.in_batch && !self.settings.broken.batch_sealed_early;
        let needs_durable = if in_batch { u64::MAX } else { end_group };
        let needs_parts = self.parts.next();
        self.sealing.jobs.push(SealJob { segment, end_group, needs_durable, needs_parts });
    }

    /// When the oldest group that is not durable took its first record.
    pub fn undurable_since_us(&self) -> Option<u64> {
        let flying = self.flying.front().map(Flying::opened_us);
        flying.or_else(|| self.closed.front().map(|group| group.opened_us)).or_else(|| self.opened_us())
    }

    /// The bytes of a record that lies in a group not yet submitted.
    pub fn unsubmitted(&self, location: Location) -> Option<&[u8]> {
        let offset = location.offset();
        if let (Some(open), Some(segment)) = (&self.open, &self.segment)
            && segment.number == location.segment()
            && (open.start..open.start + open.used).contains(&offset)
        {
            return open.buffer.get(offset - open.start..open.used);
        }
        let closed = self.closed.iter().find(|closed| {
            closed.segment == location.segment()
                && (closed.start..closed.start + closed.len).contains(&offset)
        })?;
        closed.buffer.get(offset - closed.start..)
    }

    /// Whether the record at `location` lies in a group not yet submitted.
    pub fn is_unsubmitted(&self, location: Location) -> bool {
        self.unsubmitted(location).is_some()
    }

    fn place_of(&mut self, location: Location) -> Option<&mut [u8]> {
        let open = self.open.as_mut()?;
        let start = location.offset().checked_sub(open.start)?;
        let end = open.used;
        open.buffer.get_mut(start..end)
    }
}
