//! Going through a victim: its summary, piece by piece the records that are needed, their copies.
//!
//! Every step does a bounded part, whatever the size of the segment and of its records: a part of the
//! summary is read and checksummed, or [`ENTRIES_A_STEP`] of its entries are looked at, or
//! [`RECORDS_A_STEP`] records of a piece that was read are moved, four times as many while writes wait. A record that is longer than a piece is a
//! step of its own.

use crate::ahead::{Ahead, Coming};
use crate::format::record::{
    self, Decoded, FLAG_BATCH_MORE, FLAG_COLLIDES, FLAG_TOMBSTONE, PartMark, RecordHeader,
};
use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::io::IoTag;
use crate::location::{Location, Target, UNIT_BYTES};
use crate::segments::Segment;
use crate::shard::LogShard;
use crate::stream::Stream;
use crate::summary_load::{SummaryLoad, blocks_of};
use tierstone_base::{Position, Seq};
use tierstone_cache::FrameId;
use tierstone_engine::Key;
use tierstone_media::{IoBuffer, IoCompletion, IoKind};

/// Entries of the summary that one step looks at, each with a search of the index: about 100 µs.
const ENTRIES_A_STEP: usize = 256;
/// Entries of records of which marks tell cost a step one entry for so many.
const MARKED_A_SEARCH: u64 = 8;
/// Records that one step moves, each with searches of the index, two checksums and a copy: about 100 µs.
const RECORDS_A_STEP: usize = 128;
/// Records of a piece at most: their list is memory.
const RECORDS_A_PIECE: usize = 1024;

/// The segment that is being emptied.
#[derive(Debug)]
pub(super) struct Victim {
    pub segment: u32,
    stage: Stage,
    summary: Vec<u8>,
    cursor: SummaryCursor,
    /// Where the cursor stood before the first record of the piece.
    piece_start: SummaryCursor,
    /// Every other segment with records was opened at or after this sequence.
    oldest_other: Seq,
    /// ... and those that hold any dead record.
    oldest_dead: Seq,
    /// Needed records, next to each other, that are gathered, read or moved.
    piece: Vec<SummaryEntry>,
    /// Bytes that are passed for each that is gained, where it is gone through at the pace of writes.
    pub cost: Option<f64>,
}

/// What is done with a victim.
#[derive(Debug)]
enum Stage {
    /// A part of its summary is being read.
    Loading(SummaryLoad),
    /// Its summary is being gone through for the next piece.
    Gathering,
    /// The piece is being read.
    Reading,
    /// The piece is being moved.
    Moving(Piece),
}

/// A piece that was read.
#[derive(Debug)]
struct Piece {
    buffer: IoBuffer,
    /// Where in the segment the buffer begins, in bytes.
    start: usize,
    /// Records that have been moved, or were not needed any more.
    moved: usize,
}

/// What a part of the summary has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gathered {
    /// The piece is whole, or the summary at its end.
    Piece,
    /// The step's entries have been looked at.
    Part,
    /// The summary makes no sense.
    Damaged,
}

impl Victim {
    /// A victim of which nothing has been read.
    fn new(number: u32, segment: &Segment, (oldest_other, oldest_dead): (Seq, Seq)) -> Self {
        let cursor = SummaryCursor::new(segment.summary.records);
        Victim {
            segment: number,
            stage: Stage::Loading(SummaryLoad::new(segment)),
            summary: Vec::new(),
            cursor,
            piece_start: cursor,
            oldest_other,
            oldest_dead,
            piece: Vec::new(),
            cost: None,
        }
    }

    /// Whether nothing can be done before a read is done.
    pub fn is_reading(&self) -> bool {
        matches!(self.stage, Stage::Loading(_) | Stage::Reading)
    }

    /// Whether the next piece is to be gathered.
    pub fn is_between_pieces(&self) -> bool {
        matches!(self.stage, Stage::Gathering)
    }

    /// How far it has been gone through, in units from its start.
    pub fn passed_units(&self) -> u32 {
        self.cursor.end_unit()
    }
}

impl LogShard {
    /// Reads the next part of a victim's summary, into `spare` if it has room.
    pub(super) fn read_summary_part(&mut self, victim: Victim, spare: Option<IoBuffer>) {
        if let Stage::Loading(load) = &victim.stage {
            let begin = self.identity.geometry.segment_offset(victim.segment);
            let (offset, buffer) = load.next_read(begin, spare);
            let tag = IoTag::CleanSummary { segment: victim.segment };
            self.requests.push(tag, IoKind::Read, offset, buffer);
        }
        self.cleaner.victim = Some(victim);
    }

    pub(crate) fn clean_summary_read(&mut self, number: u32, completion: IoCompletion) {
        let Some(mut victim) = self.cleaner.victim.take() else { return };
        let Stage::Loading(mut load) = std::mem::replace(&mut victim.stage, Stage::Gathering) else {
            self.cleaner.victim = Some(victim);
            return;
        };
        if victim.segment != number {
            victim.stage = Stage::Loading(load);
            self.cleaner.victim = Some(victim);
            return;
        }
        let Some(buffer) = completion.buffer.filter(|_| completion.result.is_ok()) else {
            self.cleaner.victim = Some(victim);
            return self.abandon_victim();
        };
        self.cleaner.work.bytes += buffer.len() as u64;
        if !load.take(&buffer) {
            victim.stage = Stage::Loading(load);
            return self.read_summary_part(victim, Some(buffer));
        }
        match load.finish() {
            Some(summary) => {
                victim.summary = summary;
                self.cleaner.victim = Some(victim);
            }
            None => {
                self.cleaner.victim = Some(victim);
                self.abandon_victim();
            }
        }
    }

    /// Does a bounded part of what is to be done with the victim.
    pub(super) fn advance_victim(&mut self) {
        let Some(mut victim) = self.cleaner.victim.take() else { return };
        match std::mem::replace(&mut victim.stage, Stage::Gathering) {
            Stage::Gathering => {
                let before = victim.passed_units();
                self.gather(victim);
                let after = self.cleaner.victim.as_ref().map_or(before, Victim::passed_units);
                self.charge_pace(after.saturating_sub(before));
            }
            Stage::Moving(piece) => self.move_some(victim, piece),
            waiting => {
                victim.stage = waiting;
                self.cleaner.victim = Some(victim);
            }
        }
    }

    /// Goes on through the victim's summary, to the next piece that must be read or to its end.
    fn gather(&mut self, mut victim: Victim) {
        let summary = std::mem::take(&mut victim.summary);
        let mut left = self.work_a_step(ENTRIES_A_STEP);
        // When a whole piece has no room, a single record may.
        for span_max in [self.settings.clean_step_bytes, 0] {
            let gathered = self.gather_piece(&mut victim, &summary, span_max, &mut left);
            if gathered == Gathered::Damaged {
                self.cleaner.victim = Some(victim);
                return self.abandon_victim();
            }
            if gathered == Gathered::Part {
                victim.summary = summary;
                self.cleaner.victim = Some(victim);
                return;
            }
            if victim.piece.is_empty() {
                return self.finish_victim(victim);
            }
            if self.has_room_for(&victim.piece) {
                self.cleaner.starved = false;
                victim.summary = summary;
                return self.read_piece(victim);
            }
            victim.piece.clear();
            victim.cursor = victim.piece_start;
        }
        victim.summary = summary;
        self.cleaner.victim = Some(victim);
        self.starve();
    }

    /// The victim's next record has no room.
    fn starve(&mut self) {
        self.cleaner.starved = self.segments.free_count() == 0;
        self.free_one_dead();
        if self.cleaner.starved
            && let Some(number) = self.cleaner.victim_segment()
            && self.starves_retiring(number)
        {
            (self.cleaner.victim, self.cleaner.starved) = (None, false);
        }
    }

    /// Takes needed records into the victim's piece until they span `span_max` bytes. `left`: entries that
    /// this step may look at; one is looked at in any case.
    fn gather_piece(
        &mut self,
        victim: &mut Victim,
        summary: &[u8],
        span_max: usize,
        left: &mut usize,
    ) -> Gathered {
        let mut reader = SummaryReader::resume(summary, victim.cursor);
        let (coming, number) = (SummaryReader::resume(summary, victim.cursor), victim.segment);
        // A single record is to be moved where there is no room for more: none that is dead after all may wait for that.
        let trusts_all = span_max > 0;
        let coming = coming.map(|entry| Coming::listed(number, &entry, trusts_all));
        let mut ahead = Ahead::of_places(coming);
        loop {
            let before = reader.cursor(summary);
            let Some((entry, key)) = reader.next_keyed() else { break };
            let told = self.told_by_marks(number, &entry, trusts_all);
            if told.is_some() {
                ahead.pass();
                self.cleaner.work.marked += 1;
                let counts = self.cleaner.work.marked.is_multiple_of(MARKED_A_SEARCH);
                *left = left.saturating_sub(usize::from(counts));
            } else {
                ahead.advance(self);
                self.cleaner.work.entries += 1;
                *left = left.saturating_sub(1);
            }
            if told.unwrap_or_else(|| self.is_needed(victim, &entry, Some(key))) {
                if victim.piece.is_empty() {
                    victim.piece_start = before;
                }
                victim.piece.push(entry);
                let first = victim.piece.first().map_or(entry.unit, |first| first.unit);
                let span = (entry.unit + entry.units - first) as usize * UNIT_BYTES;
                if span >= span_max || victim.piece.len() >= RECORDS_A_PIECE {
                    break;
                }
            }
            if *left == 0 {
                victim.cursor = reader.cursor(summary);
                return Gathered::Part;
            }
        }
        victim.cursor = reader.cursor(summary);
        if reader.damaged() { Gathered::Damaged } else { Gathered::Piece }
    }

    /// Whether the cold log has room for copies; the reserve keeps a segment for them. The open segment is left
    /// only where the copies do not fit: a victim surely fits into a whole one, and there may be one only.
    pub(crate) fn has_room_for(&mut self, piece: &[SummaryEntry]) -> bool {
        let needed = if self.identity.mutations.is_on("room_for_copies_guessed") {
            let units: u64 = piece.iter().map(|entry| u64::from(entry.units)).sum();
            let keys: u64 = piece.iter().map(|entry| entry.key_bytes() as u64).sum();
            u32::from(!self.cold.room_for(units * UNIT_BYTES as u64, keys))
        } else {
            self.cold.segments_for(piece)
        };
        needed == 0 || self.segments.secure(self.kept_segments() + needed)
    }

    /// How many records of a piece, from its first on, are moved in this step; the log may have been written to
    /// since the piece was asked for.
    fn count_to_move(&mut self, victim: &Victim, entries: &[SummaryEntry]) -> usize {
        let most = self.work_a_step(RECORDS_A_STEP);
        let some = entries.get(..most).unwrap_or(entries);
        let Some(first) = some.first() else { return 0 };
        if self.has_room_for(some) {
            return some.len();
        }
        let moves = !self.is_needed(victim, first, None) || self.has_room_for(&some[..1]);
        usize::from(moves)
    }

    fn read_piece(&mut self, mut victim: Victim) {
        let Some((start, len)) = blocks_of(&victim.piece) else { return };
        let offset = self.identity.geometry.segment_offset(victim.segment) + start as u64;
        let tag = IoTag::CleanPiece { segment: victim.segment };
        let spare = self.cleaner.spare.take().filter(|spare| spare.capacity() >= len);
        let mut buffer = spare.unwrap_or_else(|| IoBuffer::zeroed(len));
        buffer.set_len(len);
        self.requests.push(tag, IoKind::Read, offset, buffer);
        victim.stage = Stage::Reading;
        self.cleaner.victim = Some(victim);
    }

    pub(crate) fn clean_piece_read(&mut self, number: u32, completion: IoCompletion) {
        let Some(victim) = &mut self.cleaner.victim else { return };
        if victim.segment != number || !matches!(victim.stage, Stage::Reading) {
            return;
        }
        let start = (completion.offset - self.identity.geometry.segment_offset(number)) as usize;
        match completion.buffer.filter(|_| completion.result.is_ok()) {
            Some(buffer) => victim.stage = Stage::Moving(Piece { buffer, start, moved: 0 }),
            None => self.abandon_victim(),
        }
    }

    /// Moves some records of a piece that was read.
    fn move_some(&mut self, mut victim: Victim, mut piece: Piece) {
        let entries = std::mem::take(&mut victim.piece);
        let mut whole = true;
        let count = self.count_to_move(&victim, &entries[piece.moved..]);
        if count == 0 {
            victim.piece = entries;
            victim.stage = Stage::Moving(piece);
            self.cleaner.victim = Some(victim);
            return self.starve();
        }
        self.cleaner.starved = false;
        let coming = &entries[piece.moved..];
        let mut ahead =
            Ahead::of_places(coming.iter().map(|entry| Coming::new(entry.keyspace, entry.position)));
        for entry in coming.iter().take(count) {
            ahead.advance(self);
            let at = entry.unit as usize * UNIT_BYTES - piece.start;
            let bytes = piece.buffer.get(at..).unwrap_or_default();
            whole &= self.move_record(&victim, entry, bytes);
            piece.moved += 1;
            self.cleaner.work.records += 1;
            self.cleaner.work.bytes += u64::from(entry.units) * UNIT_BYTES as u64;
        }
        if piece.moved < entries.len() {
            victim.piece = entries;
            victim.stage = Stage::Moving(piece);
        } else {
            self.cleaner.spare = Some(piece.buffer);
        }
        self.cleaner.victim = Some(victim);
        if !whole {
            self.abandon_victim();
        }
    }

    /// Whether a record of a segment lives, where marks of dead records tell without a search of the index. That it is dead is
    /// certain. That it lives, which they tell of records written in this opening that do not expire, may be wrong and is looked
    /// into when it is moved; not told without `trusts_all`.
    pub(crate) fn told_by_marks(&self, number: u32, entry: &SummaryEntry, trusts_all: bool) -> Option<bool> {
        let location = Location::new(number, entry.unit);
        if entry.is_tombstone() || entry.is_touch() {
            return None;
        }
        if self.is_marked_dead(entry, location) {
            return Some(false);
        }
        let lives = trusts_all
            && self.segments.tells_the_living(location, entry.units)
            && self.expiry_of_entry(entry) == 0
            && self.keyspaces.reachable(entry.keyspace).is_some();
        lives.then_some(true)
    }

    fn is_needed(&mut self, victim: &Victim, entry: &SummaryEntry, key: Option<&[u8]>) -> bool {
        self.need_of(victim, entry, key).is_some()
    }

    /// Whether a record of the victim must be kept, and what of the index points to it, which of values something does. One that
    /// has expired and is not needed any more is forgotten; `key` is known then, if its keyspace is ordered and the record can be
    /// read.
    fn need_of(
        &mut self,
        victim: &Victim,
        entry: &SummaryEntry,
        key: Option<&[u8]>,
    ) -> Option<Option<Target>> {
        if entry.is_tombstone() {
            let is_needed = self.is_own(entry.position) && self.is_tombstone_needed(victim, entry.seq);
            return is_needed.then_some(None);
        }
        let location = Location::new(victim.segment, entry.unit);
        if entry.is_touch() {
            return self.is_touch_needed(entry, location).then_some(None);
        }
        let target = self.target_of(entry, location)?;
        let expiry_ms = self.expiry_of_entry(entry);
        if expiry_ms == 0
            || expiry_ms > self.now.wall_ms
            || self.snapshots.cuts.need(entry.seq, expiry_ms)
            || self.is_tombstone_needed(victim, entry.seq)
            || self.goes_by_tombstone(entry)
        {
            return Some(Some(target));
        }
        let Some(key) = key else { return Some(Some(target)) };
        self.forget_expired(entry, key, location);
        None
    }

    /// Whether a record is this shard's: a segment of an earlier opening may hold others', which their shards move. A log
    /// holds nothing but what is its shard's, for an opening looks for a key in the logs only whose part of the positions
    /// it lies in.
    fn is_own(&self, position: Position) -> bool {
        position.shard(self.identity.shard_count) == self.identity.shard
            || self.identity.mutations.is_on("tombstones_of_others_moved")
    }

    fn is_tombstone_needed(&self, victim: &Victim, seq: Seq) -> bool {
        victim.oldest_dead <= seq && !self.identity.mutations.is_on("drop_tombstones_early")
    }

    /// Of which nothing has been read.
    pub(super) fn new_victim(&self, number: u32) -> Victim {
        let oldest = (self.segments.oldest_opened_seq(number), self.oldest_with_dead(number));
        Victim::new(number, self.segments.get(number), oldest)
    }

    /// Copies one record of a segment that is no victim any more. The cold log has room for it. False when it
    /// cannot be read.
    pub(crate) fn move_out(&mut self, number: u32, entry: &SummaryEntry, bytes: &[u8]) -> bool {
        let victim = self.new_victim(number);
        self.move_record(&victim, entry, bytes)
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
        let Some(target) = self.need_of(victim, entry, whole.map(|(_, key)| key)) else { return true };
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
            self.cleaner.sweep.moved((found.units() * UNIT_BYTES) as u64);
            return moved.is_some();
        }
        if found.is_touch() {
            return self.move_touch(entry, &header, bytes, location);
        }
        let Some(target) = target else { return true };
        let expiry_ms = self.expiry_of(entry.position, &found);
        let shown = self.snapshots.cuts.need(found.seq, expiry_ms);
        if expiry_ms != 0 && expiry_ms <= self.now.wall_ms && !shown {
            if !self.goes_by_tombstone(entry) {
                return self.bury_expired(entry, &found, key, location);
            }
            let key = Key { keyspace: entry.keyspace, position: entry.position, bytes: key };
            if self.delete_expired(&key, target, found) {
                return true;
            }
        }
        if self.is_left((victim.segment, victim.oldest_other), (entry, &found), target) {
            return true;
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
        if expiry_ms != 0 {
            // A look while nothing else expired saw none: what is being cleaned is not looked at.
            self.sweeper.note_expiring();
        }
        self.touched_value_moved(entry.position, &found, (location, moved));
        self.name_moved_large(victim.segment, (entry, &found, key), (target, moved));
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

    /// Whether an expired record goes by a tombstone of its own: its touch has made it expire.
    fn goes_by_tombstone(&self, entry: &SummaryEntry) -> bool {
        self.touch_of(entry.keyspace, entry.position, entry.seq).is_some()
            && !self.identity.mutations.is_on("touched_goes_without_trace")
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
}
