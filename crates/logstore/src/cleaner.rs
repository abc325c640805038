//! Cleaning: live records of emptying segments move to the cold log, and the segments are freed.
//!
//! A victim goes through: its summary is read; piece by piece its live records are copied to the
//! cold log with their old sequences, and the index is repointed; when the copies are durable and
//! nobody reads the victim any more, its header is overwritten with a free one; when that is durable
//! the segment may be opened again.
//!
//! Rules, each with a mutation that breaks it:
//! 1. The free header is written only when every copy is durable (`free_before_copies_durable`), and
//!    every write that made one of the segment's records dead (`free_before_overwrites_durable`), and
//!    decided: recovery drops parts of batches over several shards that are not
//!    (`free_before_overwrites_decided`).
//! 2. A tombstone is dropped only when every other segment that holds records was opened after the
//!    deletion: only live records are ever copied, so no younger segment can hold an older version
//!    of the key (`drop_tombstones_early`). An expired record counts as a tombstone.
//! 3. A segment is opened again only when its free header is durable: otherwise a crash could bring
//!    back old records whose tombstones are gone.
//!
//! 4. A segment with records that only snapshots show is not chosen; should it get some while it is
//!    being emptied, it is freed when they are not needed any more (`snapshot_pins_ignored`). A record
//!    that has expired but that a snapshot shows is moved like a live one.
//!
//! Crash at any point: the victim is whole until its free header is there; copies have the sequence
//! of their originals, so recovery may take either.

use crate::format::record::{
    self, Decoded, FLAG_BATCH_MORE, FLAG_COLLIDES, FLAG_TOMBSTONE, PartMark, RecordHeader,
};
use crate::format::segment::{SegmentHeader, SegmentState, Temperature};
use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::gain::Streak;
use crate::io::IoTag;
use crate::location::{Location, Target, UNIT_BYTES};
use crate::segments::{Role, Segment};
use crate::shard::LogShard;
use crate::stream::Stream;
use tierstone_base::Seq;
use tierstone_base::checksum::checksum;
use tierstone_cache::FrameId;
use tierstone_media::{BLOCK_BYTES, IoBuffer, IoCompletion, IoKind};

/// What the cleaner is doing.
#[derive(Debug, Default)]
pub struct Cleaner {
    victim: Option<Victim>,
    /// Emptied segments, waiting to be freed.
    emptied: Vec<Emptied>,
    stopped: bool,
    wants_step: bool,
    wants_group_closed: bool,
    /// Segments whose summary or records could not be read: left alone until the store is checked.
    unreadable: Vec<u32>,
    /// The victim waits for room that only a dead segment can give.
    starved: bool,
    /// Free segments that writers leave, as last reckoned.
    pub(crate) kept: u32,
    /// The last sweep of tombstones takes segments opened before this sequence.
    pub(crate) swept_to: Seq,
    /// Bytes of records that had been written when it began.
    pub(crate) swept_at_bytes: u64,
    /// Space is short and no segment is worth cleaning.
    pub(crate) found_none: bool,
    /// What cleaning has come to lately.
    pub(crate) streak: Streak,
}

/// A segment whose records have all been copied or are dead.
#[derive(Clone, Copy, Debug)]
struct Emptied {
    segment: u32,
    /// Cold groups that must be durable first: they hold the copies.
    cold_groups: u64,
    /// The sequence that must be durable first: up to here writes have made records of it dead.
    seq: Seq,
}

#[derive(Debug)]
struct Victim {
    segment: u32,
    summary: Option<IoBuffer>,
    cursor: SummaryCursor,
    /// Every other segment with records was opened at or after this sequence.
    oldest_other: Seq,
    /// Records of the piece that is being read.
    piece: Vec<SummaryEntry>,
    reading: bool,
}

impl Cleaner {
    /// Ends cleaning for good; the victim stays as it is.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.victim = None;
    }

    /// Whether a step would do something now.
    pub fn wants_step(&self) -> bool {
        self.wants_step && !self.stopped
    }

    /// Whether emptied segments wait for the cold group that takes records.
    pub fn wants_group_closed(&self) -> bool {
        self.wants_group_closed
    }

    /// Whether an emptied segment can be freed only when the write with this sequence, or a later one, is
    /// durable: it has made records of the segment dead.
    pub fn waits_for_writes_from(&self, seq: Seq) -> bool {
        self.emptied.iter().any(|emptied| emptied.seq >= seq)
    }

    /// Whether nothing is being moved, and every segment can be read.
    pub fn is_idle(&self) -> bool {
        self.victim.is_none() && self.unreadable.is_empty()
    }

    /// Bytes of the victim that cleaning has passed: it is not free yet, but will be.
    pub(crate) fn passed_bytes(&self) -> u64 {
        let units = self.victim.as_ref().map_or(0, |victim| victim.cursor.end_unit());
        u64::from(units) * UNIT_BYTES as u64
    }

    /// Whether a victim is being moved and has room to move to.
    pub(crate) fn is_moving(&self) -> bool {
        self.victim.is_some() && !self.starved
    }

    /// Whether the victim waits for room that only a dead segment can give.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved
    }

    /// Whether cleaning has ended for good.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether a segment is left alone.
    pub(crate) fn is_unreadable(&self, segment: u32) -> bool {
        self.unreadable.contains(&segment)
    }

    /// Emptied segments that wait to be freed.
    pub(crate) fn emptied_segments(&self) -> impl Iterator<Item = u32> {
        self.emptied.iter().map(|emptied| emptied.segment)
    }

    /// Neither cleans nor frees a segment: what it holds is not all known.
    pub fn leave_alone(&mut self, segment: u32) {
        if !self.unreadable.contains(&segment) {
            self.unreadable.push(segment);
        }
    }
}

impl LogShard {
    pub(crate) fn clean_step(&mut self) {
        self.free_emptied();
        if self.cleaner.stopped {
            return;
        }
        self.note_gain();
        self.cold.set_newest_seq(self.applied + 1);
        if self.cleaner.victim.is_none() {
            self.choose_victim();
        }
        self.advance_victim();
        let idle_victim = self.cleaner.victim.as_ref().is_some_and(|victim| !victim.reading);
        let goes_on = self.cleaner.victim.is_none() && self.compact_wants_step();
        self.cleaner.wants_step = idle_victim || goes_on;
        self.cleaner.wants_group_closed =
            self.cleaner.emptied.iter().any(|emptied| emptied.cold_groups > self.cold.durable_groups());
    }

    /// For a test's mutation.
    pub(crate) fn ignores_snapshot_pins(&self) -> bool {
        self.identity.mutations.is_on("snapshot_pins_ignored")
    }

    /// The victim, and emptied segments that are not freed and that no snapshot keeps.
    pub(crate) fn segments_being_cleaned(&self) -> u32 {
        let kept = |number: u32| self.segments.get(number).snapshot_records > 0;
        let emptied = self.cleaner.emptied.iter().filter(|emptied| !kept(emptied.segment)).count();
        u32::from(self.cleaner.victim.is_some()) + emptied as u32
    }

    pub(crate) fn start_victim(&mut self, number: u32) {
        if !self.make_way(number) {
            return;
        }
        let oldest_other = self.segments.oldest_opened_seq(number);
        let segment = self.segments.get_mut(number);
        segment.role = Role::Cleaning;
        if segment.live_records == 0 && !segment.is_estimated {
            self.cleaner.emptied.push(Emptied { segment: number, cold_groups: 0, seq: self.applied });
            self.free_emptied();
            return;
        }
        let place = segment.summary;
        let len = (place.len as usize).max(1).next_multiple_of(BLOCK_BYTES);
        let offset = self.identity.geometry.segment_offset(number) + u64::from(place.start);
        self.cleaner.victim = Some(Victim {
            segment: number,
            summary: None,
            cursor: SummaryCursor::new(place.records),
            oldest_other,
            piece: Vec::new(),
            reading: true,
        });
        self.requests.push(
            IoTag::CleanSummary { segment: number },
            IoKind::Read,
            offset,
            IoBuffer::zeroed(len),
        );
    }

    pub(crate) fn clean_summary_read(&mut self, number: u32, completion: IoCompletion) {
        if self.cleaner.victim.as_ref().is_none_or(|victim| victim.segment != number) {
            return;
        }
        let segment = self.segments.get(number);
        let place = segment.summary;
        let buffer = completion.buffer.filter(|buffer| {
            completion.result.is_ok()
                && buffer
                    .get(..place.len as usize)
                    .is_some_and(|bytes| checksum(segment.generation, bytes) == place.checksum)
        });
        match buffer {
            Some(buffer) => {
                if let Some(victim) = &mut self.cleaner.victim {
                    victim.summary = Some(buffer);
                    victim.reading = false;
                }
            }
            None => self.abandon_victim(),
        }
    }

    /// The victim cannot be read: it stays as it is, its readable records are served.
    fn abandon_victim(&mut self) {
        self.cleaner.starved = false;
        if let Some(victim) = self.cleaner.victim.take() {
            self.counts.corrupt_reads += 1;
            self.cleaner.leave_alone(victim.segment);
            self.segments.get_mut(victim.segment).role = Role::Sealed;
        }
    }

    /// Goes through the victim's summary up to the next piece that must be read, or to its end.
    fn advance_victim(&mut self) {
        let Some(mut victim) = self.cleaner.victim.take() else { return };
        if victim.reading {
            self.cleaner.victim = Some(victim);
            return;
        }
        let Some(summary) = victim.summary.take() else { return };
        let place = self.segments.get(victim.segment).summary;
        let bytes = &summary[..place.len as usize];
        let start = victim.cursor;
        // When a whole piece has no room, a single record may.
        for span_max in [self.settings.clean_step_bytes, 0] {
            victim.piece.clear();
            let mut reader = SummaryReader::resume(bytes, start);
            self.gather_piece(&mut victim, &mut reader, span_max);
            victim.cursor = reader.cursor(bytes);
            if reader.damaged() {
                self.cleaner.victim = Some(victim);
                self.abandon_victim();
                return;
            }
            if victim.piece.is_empty() {
                self.finish_victim(victim);
                return;
            }
            if self.has_room_for(&victim.piece) {
                self.cleaner.starved = false;
                victim.summary = Some(summary);
                self.read_piece(victim);
                return;
            }
        }
        victim.piece.clear();
        victim.cursor = start;
        victim.summary = Some(summary);
        self.cleaner.victim = Some(victim);
        self.cleaner.starved = self.segments.free_count() == 0;
        self.free_one_dead();
    }

    /// Takes needed records into the victim's piece until they span `span_max` bytes.
    fn gather_piece(&mut self, victim: &mut Victim, reader: &mut SummaryReader<'_>, span_max: usize) {
        let mut first_unit = None;
        while let Some((entry, key)) = reader.next_keyed() {
            if !self.is_needed(victim, &entry, Some(key)) {
                continue;
            }
            let first = *first_unit.get_or_insert(entry.unit);
            victim.piece.push(entry);
            let span = (entry.unit + entry.units - first) as usize * UNIT_BYTES;
            if span >= span_max {
                return;
            }
        }
    }

    /// Whether the cold log has room for copies; the reserve keeps a segment for them.
    fn has_room_for(&mut self, piece: &[SummaryEntry]) -> bool {
        let units: u64 = piece.iter().map(|entry| u64::from(entry.units)).sum();
        let keys: u64 = piece.iter().map(|entry| 3 + u64::from(entry.key_len)).sum();
        self.cold.room_for(units * UNIT_BYTES as u64, keys) || self.segments.secure(self.kept_segments() + 1)
    }

    fn read_piece(&mut self, mut victim: Victim) {
        let (Some(first), Some(last)) = (victim.piece.first(), victim.piece.last()) else { return };
        let start = first.unit as usize * UNIT_BYTES / BLOCK_BYTES * BLOCK_BYTES;
        let end = ((last.unit + last.units) as usize * UNIT_BYTES).next_multiple_of(BLOCK_BYTES);
        let offset = self.identity.geometry.segment_offset(victim.segment) + start as u64;
        let tag = IoTag::CleanPiece { segment: victim.segment };
        self.requests.push(tag, IoKind::Read, offset, IoBuffer::zeroed(end - start));
        victim.reading = true;
        self.cleaner.victim = Some(victim);
    }

    pub(crate) fn clean_piece_read(&mut self, number: u32, completion: IoCompletion) {
        let Some(mut victim) = self.cleaner.victim.take() else { return };
        if victim.segment != number {
            self.cleaner.victim = Some(victim);
            return;
        }
        let buffer = completion.buffer.filter(|_| completion.result.is_ok());
        let segment_offset = self.identity.geometry.segment_offset(number);
        let start = (completion.offset - segment_offset) as usize;
        let piece = std::mem::take(&mut victim.piece);
        let mut whole = buffer.is_some();
        if let Some(buffer) = &buffer {
            for entry in &piece {
                let at = entry.unit as usize * UNIT_BYTES - start;
                let bytes = buffer.get(at..).unwrap_or_default();
                whole &= self.move_record(&victim, entry, bytes);
            }
        }
        victim.reading = false;
        self.cleaner.victim = Some(victim);
        if !whole {
            self.abandon_victim();
        }
    }

    /// Whether a record of the victim must be kept. One that has expired and is not needed any more is
    /// forgotten; `key` is known then, if its keyspace is ordered and the record can be read.
    fn is_needed(&mut self, victim: &Victim, entry: &SummaryEntry, key: Option<&[u8]>) -> bool {
        if entry.flags & FLAG_TOMBSTONE != 0 {
            return self.is_tombstone_needed(victim, entry.seq);
        }
        let location = Location::new(victim.segment, entry.unit);
        if self.target_of(entry, location).is_none() {
            return false;
        }
        if entry.expiry_ms == 0
            || entry.expiry_ms > self.now.wall_ms
            || self.snapshots.need(entry.seq, entry.expiry_ms)
            || self.is_tombstone_needed(victim, entry.seq)
        {
            return true;
        }
        let Some(key) = key else { return true };
        self.forget_expired(entry, key, location);
        false
    }

    fn is_tombstone_needed(&self, victim: &Victim, seq: Seq) -> bool {
        victim.oldest_other <= seq && !self.identity.mutations.is_on("drop_tombstones_early")
    }

    /// The index entry that points to the record at `location`, if there is one.
    pub(crate) fn target_of(&mut self, entry: &SummaryEntry, location: Location) -> Option<Target> {
        let keyspace = self.keyspaces.reachable(entry.keyspace)?;
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        keyspace.index.candidates(entry.position, &mut candidates);
        let found = candidates.iter().map(Target::unpack).find(|target| match target {
            Target::Device(at) => *at == location,
            Target::Frame(bits) => self.cache.peek(FrameId::from_bits(*bits)).location == location.raw(),
        });
        self.candidates = candidates;
        found
    }

    fn forget_expired(&mut self, entry: &SummaryEntry, key: &[u8], location: Location) {
        if !self.identity.mutations.is_on("past_not_noted_by_cleaner") {
            self.show_past(entry.expiry_ms);
        }
        let Some(target) = self.target_of(entry, location) else { return };
        if let Target::Frame(bits) = target {
            self.cache.remove(FrameId::from_bits(bits));
        }
        if let Some(keyspace) = self.keyspaces.reachable_mut(entry.keyspace) {
            keyspace.index.remove(entry.position, target.pack());
            // A key that was written past this record, when it was unreadable, stays.
            let stays = self.identity.mutations.is_on("expiry_leaves_order");
            if entry.is_keyed() && !stays && !self.reads.is_passed(location, entry.keyspace, key) {
                keyspace.note_gone(key);
            }
        }
        self.segments.kill(location, entry.units as usize, false);
    }

    /// Copies one record to the cold log if it is still needed. False when it cannot be read.
    fn move_record(&mut self, victim: &Victim, entry: &SummaryEntry, bytes: &[u8]) -> bool {
        let segment = self.segments.get(victim.segment);
        let longest = Stream::record_bytes_max(self.identity.geometry);
        let unit = self.hot.broken().salt_unit(entry.unit);
        let whole = match record::decode(bytes, segment.salt, unit, longest) {
            Decoded::Whole(found) => bytes.get(found.key_range()).map(|key| (found, key)),
            Decoded::Short { .. } | Decoded::Invalid => None,
        };
        if !self.is_needed(victim, entry, whole.map(|(_, key)| key)) {
            return true;
        }
        let Some((found, key)) = whole else { return false };
        let location = Location::new(victim.segment, entry.unit);
        if self.drop_passed(location, bytes).is_some() {
            return true;
        }
        let now_us = self.now.monotonic_us;
        // What it says of its batch stays, so that it keeps its size; in a cold log it says nothing.
        let header = RecordHeader { flags: found.flags & !FLAG_BATCH_MORE, ..found };
        if found.is_tombstone() {
            let moved = self.cold.append_encoded(bytes, &header, entry.position, now_us, &mut self.segments);
            // The victim's account of it, if there is one (recovery counts fewer tombstones as needed
            // than this rule does), ends with the victim.
            return moved.is_some();
        }
        let Some(target) = self.target_of(entry, location) else { return true };
        let shown = self.snapshots.need(found.seq, found.expiry_ms);
        if found.expiry_ms != 0 && found.expiry_ms <= self.now.wall_ms && !shown {
            return self.bury_expired(entry, &found, key, location);
        }
        self.split_meets_cleaned(victim.segment, entry, &found, bytes);
        let Some(moved) =
            self.cold.append_encoded(bytes, &header, entry.position, now_us, &mut self.segments)
        else {
            return false;
        };
        if self.identity.mutations.is_on("copies_not_repointed") {
            return true;
        }
        self.segments.kill(location, found.units(), false);
        match target {
            Target::Frame(bits) => self.cache.set_location(FrameId::from_bits(bits), moved.raw()),
            Target::Device(_) => {
                if let Some(keyspace) = self.keyspaces.reachable_mut(entry.keyspace) {
                    keyspace.index.replace(entry.position, target.pack(), Target::Device(moved).pack());
                }
            }
        }
        true
    }

    /// An expired record becomes a tombstone where an older version of its key may exist.
    fn bury_expired(
        &mut self,
        entry: &SummaryEntry,
        found: &RecordHeader,
        key: &[u8],
        location: Location,
    ) -> bool {
        let header = RecordHeader {
            flags: FLAG_TOMBSTONE | (found.flags & FLAG_COLLIDES),
            expiry_ms: 0,
            value_len: 0,
            part: PartMark::default(),
            ..*found
        };
        let now_us = self.now.monotonic_us;
        let buried = self.cold.append(&header, entry.position, key, &[], now_us, &mut self.segments);
        if buried.is_some() {
            self.forget_expired(entry, key, location);
        }
        buried.is_some()
    }

    /// All that the victim's summary lists has been moved or is dead.
    fn finish_victim(&mut self, victim: Victim) {
        self.cleaner.starved = false;
        self.segments.clear_live(victim.segment);
        self.cold.close_group(&self.segments);
        let (segment, cold_groups, seq) = (victim.segment, self.cold.group_count(), self.applied);
        self.cleaner.emptied.push(Emptied { segment, cold_groups, seq });
        self.free_emptied();
    }

    /// Frees emptied segments whose copies and the overwrites of whose records are durable, and that
    /// nobody reads.
    fn free_emptied(&mut self) {
        let mutations = &self.identity.mutations;
        let copies_early = mutations.is_on("free_before_copies_durable");
        let overwrites_early = mutations.is_on("free_before_overwrites_durable");
        let undecided_early = mutations.is_on("free_before_overwrites_decided");
        let forget_shared = mutations.is_on("forget_shared_segments");
        let pins_ignored = self.ignores_snapshot_pins();
        let evidence_lost = mutations.is_on("free_what_proves_the_log");
        let mut waiting = std::mem::take(&mut self.cleaner.emptied);
        waiting.retain(|&Emptied { segment: number, cold_groups, seq }| {
            let copied = cold_groups <= self.cold.durable_groups() || copies_early;
            let decided = if undecided_early { self.hot.durable_seq() } else { self.hot.decided_seq() };
            let overwritten = seq <= decided || overwrites_early;
            let segment = self.segments.get(number);
            let shown = segment.snapshot_records > 0 && !pins_ignored;
            if segment.pins > 0 || shown || !copied || !overwritten {
                return true;
            }
            if !self.is_past_kept(number) {
                return true;
            }
            let segment = self.segments.get(number);
            let stream = if segment.cold { &mut self.cold } else { &mut self.hot };
            if !evidence_lost && segment.groups.is_some_and(|groups| !stream.may_forget(groups)) {
                stream.prove(self.now.monotonic_us, &mut self.segments);
                return true;
            }
            self.hot.forget_past(number);
            self.cold.forget_past(number);
            self.reads.forget_segment(number);
            self.split_forgets_segment(number);
            if self.segments.let_go(number, forget_shared) {
                self.write_free_header(number);
            }
            false
        });
        self.cleaner.emptied = waiting;
    }

    pub(crate) fn write_free_header(&mut self, number: u32) {
        let opened_seq = self.applied;
        let segment: &mut Segment = self.segments.get_mut(number);
        segment.role = Role::Freeing;
        if self.identity.mutations.is_on("reuse_before_freed") {
            self.segments.freed(number);
            self.checkpoints.freed(number);
            return;
        }
        let mut buffer = IoBuffer::zeroed(BLOCK_BYTES);
        SegmentHeader {
            store: self.identity.store,
            segment: number,
            state: SegmentState::Free,
            temperature: Temperature::Hot,
            generation: 0,
            log_id: 0,
            opened_seq,
            first_group: 0,
            durable_groups: 0,
            first_position: 0,
            last_position: 0,
        }
        .encode(&mut buffer);
        self.counts.summary_bytes_written += BLOCK_BYTES as u64;
        let offset = self.identity.geometry.segment_offset(number);
        self.requests.push(IoTag::Free { segment: number }, IoKind::WriteDurable, offset, buffer);
    }
}
