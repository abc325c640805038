//! Writing a checkpoint: a bounded part of the index a step, in pieces, some of them in flight; at the
//! end what commits.
//!
//! Invariant: pieces fill the checkpoint's segments, or its area of the region, in order; the header of a segment
//! goes out with its first piece.

use super::{InForce, Place, Tail};
use crate::format::checkpoint::{
    Commit, ITEM_HEADER_BYTES, ItemKind, PIECE_HEADER_BYTES, SEGMENT_FACT_BYTES, SEGMENTS_MAX, SegmentFact,
    TOUCH_FACT_BYTES, TouchFact, chunk_header, item_header, piece_bytes, piece_place, pieces_a_segment,
    seal_piece,
};
use crate::format::segment::{SegmentHeader, SegmentState, Temperature};
use crate::index::{IndexValue, MapValues, ScanProgress};
use crate::io::IoTag;
use crate::location::{Location, Target, index_settings};
use crate::segments::Role;
use crate::shard::{LogShard, generation, log_id, segment_salt};
use crate::touch::TouchKey;
use tierstone_base::{KeyspaceId, Position, Seq};
use tierstone_cache::{FrameId, RecordCache};
use tierstone_media::{BLOCK_BYTES, IoBuffer, IoCompletion, IoKind};

/// Pieces being written at a time: the device is not to be kept from the log.
const WRITES_MAX: usize = 2;
/// The number of a checkpoint has this bit in the lives of its segments: a log never opens so many.
const LIFE_BIT: u64 = 1 << 63;
/// Free segments that a checkpoint leaves above those at which cleaning begins.
const FREE_LEFT: u32 = 2;
/// Of a checkpoint in a region, bytes besides entries, touches and facts: chunks that do not fill their pieces, and
/// what goes with each.
const BESIDE_BYTES: u64 = 1 << 10;
const BESIDE_PARTS: u64 = 8;

/// Writes the locations of cached records instead of their frames.
struct OnDevice<'a>(&'a RecordCache);

impl MapValues for OnDevice<'_> {
    fn announce(&mut self, value: IndexValue) {
        if let Target::Frame(bits) = Target::unpack(value) {
            self.0.prefetch(FrameId::from_bits(bits), 1);
        }
    }

    fn map(&mut self, value: IndexValue) -> IndexValue {
        match Target::unpack(value) {
            Target::Frame(bits) => {
                let location = self.0.peek(FrameId::from_bits(bits)).location;
                Target::Device(Location::from_raw(location)).pack()
            }
            Target::Device(_) => value,
        }
    }
}

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Chunks of the keyspace of this place in the list, from this position on.
    Dumping(usize, Position),
    /// All is on its way but the commit.
    Waiting,
    /// The commit is on its way.
    Committing,
    /// It came to nothing: writes in flight are waited for.
    GivenUp,
}

/// A piece that takes items.
#[derive(Debug)]
struct OpenPiece {
    buffer: IoBuffer,
    /// Where in the buffer it begins: after the segment's header in the first one.
    start: usize,
    used: usize,
    /// Bytes that it may have.
    room: usize,
}

/// A checkpoint being written.
#[derive(Debug)]
pub(super) struct Writing {
    stage: Stage,
    number: u64,
    generation: u64,
    /// The newest sequence when it began.
    seq: Seq,
    record_bytes: u64,
    /// The newest sequence when the last chunk was made.
    newest: Seq,
    keyspaces: Vec<KeyspaceId>,
    dropped: Vec<KeyspaceId>,
    facts: Vec<u8>,
    dead: Vec<(u32, u64)>,
    place: Place,
    piece_bytes: usize,
    /// How long it is expected to be.
    expected_bytes: u64,
    pieces: u64,
    open: Option<OpenPiece>,
    in_flight: usize,
    spare: Vec<IoBuffer>,
    chunk: Vec<u8>,
    /// The last value of whose touch it has been told.
    touched_to: Option<TouchKey>,
}

impl Writing {
    pub fn dead(&self) -> &[(u32, u64)] {
        &self.dead
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn give_up(&mut self) {
        // A commit on its way cannot be called back: what came of it is made void afterwards.
        self.stage = Stage::GivenUp;
    }

    /// Whether a step would do something before anything completes.
    pub fn wants_step(&self) -> bool {
        match self.stage {
            Stage::Dumping(..) => self.in_flight < WRITES_MAX,
            Stage::GivenUp => self.in_flight == 0,
            Stage::Waiting | Stage::Committing => false,
        }
    }
}

impl LogShard {
    /// Begins a checkpoint if nothing speaks against it.
    pub(super) fn begin_checkpoint(&mut self) -> bool {
        let is_calm = self.cleaner.is_idle()
            && !self.forbids_checkpoints()
            && !self.sweeper.is_walking()
            && self.cold.is_idle()
            && self.refused.is_empty()
            && self.checkpoints.voiding.is_empty()
            && self.keyspaces.dying.is_empty()
            && self.reads.passed.is_empty();
        if !is_calm {
            return false;
        }
        let bytes = self.key_count() * 8 + self.touches.len() * TOUCH_FACT_BYTES as u64;
        let has_segments = self.has_segments_for(bytes);
        if !has_segments && self.checkpoints.free_area(bytes).is_none() {
            return false;
        }
        let (facts, dead) = self.segment_facts();
        let expected_bytes = (bytes + facts.len() as u64) * (BESIDE_PARTS + 1) / BESIDE_PARTS + BESIDE_BYTES;
        let (place, piece_bytes) = match self.checkpoints.free_area(expected_bytes) {
            Some(area) => {
                let piece_bytes = area.piece_bytes();
                (Place::Region(area), piece_bytes)
            }
            None if has_segments => (Place::Flash(Vec::new()), piece_bytes(self.segments.segment_bytes())),
            None => return false,
        };
        let identity = &self.identity;
        self.checkpoints.number += 1;
        let number = self.checkpoints.number;
        let log_id = log_id(identity.open_count, identity.shard, false);
        self.checkpoints.writing = Some(Writing {
            stage: Stage::Dumping(0, Position(0)),
            number,
            generation: generation(log_id, LIFE_BIT | number),
            seq: self.applied,
            record_bytes: self.hot.record_bytes,
            newest: self.applied,
            keyspaces: self.keyspaces.iter().map(|keyspace| keyspace.id).collect(),
            dropped: self.keyspaces.last_dropped().collect(),
            facts,
            dead,
            place,
            piece_bytes,
            expected_bytes,
            pieces: 0,
            open: None,
            in_flight: 0,
            spare: Vec::new(),
            chunk: Vec::new(),
            touched_to: None,
        });
        true
    }

    /// Whether a checkpoint with `bytes` of entries and touches finds free segments.
    fn has_segments_for(&self, bytes: u64) -> bool {
        let segment_bytes = self.segments.segment_bytes();
        let pieces = bytes / piece_bytes(segment_bytes) as u64 + 2;
        let segments = pieces.div_ceil(pieces_a_segment(segment_bytes));
        let free_left = if self.shutting { 0 } else { self.free_wanted() + FREE_LEFT };
        segments <= SEGMENTS_MAX as u64
            && segments + u64::from(free_left) <= u64::from(self.segments.free_count())
    }

    /// What the segments hold, and those in which nothing lives.
    fn segment_facts(&self) -> (Vec<u8>, Vec<(u32, u64)>) {
        let (mut facts, mut dead) = (Vec::new(), Vec::new());
        for (number, segment) in self.segments.iter() {
            if !matches!(segment.role, Role::Open | Role::Sealed | Role::Cleaning) {
                continue;
            }
            if segment.role != Role::Open && segment.live_records == 0 {
                dead.push((number, segment.generation));
                continue;
            }
            let fact = SegmentFact {
                segment: number,
                tombstones: segment.tombstone_records,
                generation: segment.generation,
                live_records: segment.live_records,
                live_bytes: segment.live_bytes,
                tombstone_bytes: segment.tombstone_bytes,
            };
            fact.write(&mut facts);
        }
        (facts, dead)
    }

    /// One step of the checkpoint under way.
    pub(super) fn write_checkpoint(&mut self) {
        let Some(mut writing) = self.checkpoints.writing.take() else { return };
        if !self.reads.passed.is_empty() && writing.stage != Stage::Committing {
            writing.give_up();
        }
        if let Stage::Dumping(place, from) = writing.stage
            && writing.in_flight < WRITES_MAX
            && self.dump_some(&mut writing, place, from).is_none()
        {
            writing.give_up();
        }
        if writing.stage == Stage::Waiting {
            let early = match &writing.place {
                Place::Flash(_) => self.identity.mutations.is_on("checkpoint_before_flush"),
                Place::Region(area) => area.broken.committed_early,
            };
            let durable = writing.in_flight == 0 && self.hot.durable_seq() >= writing.newest;
            if durable || early {
                self.commit_checkpoint(&mut writing);
            }
        }
        if writing.stage == Stage::GivenUp && writing.in_flight == 0 {
            self.checkpoints.not_before_us = self.now.monotonic_us + super::RETRY_US;
            if let Place::Flash(_) = &writing.place {
                self.make_void(&writing.place, true);
            }
            self.checkpoints.ended = self.shutting;
            return;
        }
        match (&writing.place, writing.stage) {
            (Place::Region(_), Stage::Committing) => self.checkpoint_committed(writing),
            _ => self.checkpoints.writing = Some(writing),
        }
    }

    /// Dumps the next chunk; `None` when the checkpoint cannot go on.
    fn dump_some(&mut self, writing: &mut Writing, place: usize, from: Position) -> Option<()> {
        let Some(&id) = writing.keyspaces.get(place) else { return self.dump_touches(writing) };
        let content_max = writing.piece_bytes - PIECE_HEADER_BYTES;
        let step_bytes = self.settings.checkpoint_step_bytes.clamp(1, content_max / 4);
        let mut chunk = std::mem::take(&mut writing.chunk);
        chunk.clear();
        let mut on_device = OnDevice(&self.cache);
        let index = &self.keyspaces.get(id)?.index;
        let progress = index.dump_exactly(from, step_bytes, &mut chunk, &mut on_device)?;
        writing.newest = self.applied;
        self.checkpoints.dumped_bytes += chunk.len() as u64;
        let header = chunk_header(id, from, self.applied);
        self.put_item(writing, ItemKind::Chunk, &[&header, &chunk])?;
        writing.chunk = chunk;
        writing.stage = match progress {
            ScanProgress::Next(next) => Stage::Dumping(place, next),
            ScanProgress::End => Stage::Dumping(place + 1, Position(0)),
        };
        Some(())
    }

    /// Dumps the next touches; at their end, what is left. Those that are written meanwhile are in the log.
    fn dump_touches(&mut self, writing: &mut Writing) -> Option<()> {
        let content_max = writing.piece_bytes - PIECE_HEADER_BYTES;
        let step_bytes = self.settings.checkpoint_step_bytes.clamp(1, content_max / 4);
        // What has put an end to a value since its chunk was made must be there with the checkpoint.
        if !self.identity.mutations.is_on("touches_before_flush") {
            writing.newest = self.applied;
        }
        let page = self.touches.page(writing.touched_to, (step_bytes / TOUCH_FACT_BYTES).max(1));
        let Some(&(last, _)) = page.last() else { return self.finish_pieces(writing) };
        let mut facts = Vec::with_capacity(page.len() * TOUCH_FACT_BYTES);
        for ((keyspace, position, value_seq), touch) in page {
            let Some(place) = touch.place else { continue };
            TouchFact {
                keyspace,
                units: touch.units,
                position,
                value_seq,
                value_place: touch.value.raw(),
                expiry_ms: touch.expiry_ms,
                seq: touch.seq,
                place: place.raw(),
            }
            .write(&mut facts);
        }
        writing.touched_to = Some(last);
        if self.identity.mutations.is_on("checkpoint_without_touches") {
            return Some(());
        }
        self.checkpoints.dumped_bytes += facts.len() as u64;
        self.put_item(writing, ItemKind::Touches, &[&facts])
    }

    /// Adds what is not index, and closes the last piece.
    fn finish_pieces(&mut self, writing: &mut Writing) -> Option<()> {
        // Small parts, so that little of a piece is left over.
        let content_max = (writing.piece_bytes - PIECE_HEADER_BYTES) / 4 - ITEM_HEADER_BYTES;
        let facts = std::mem::take(&mut writing.facts);
        for part in facts.chunks(content_max / SEGMENT_FACT_BYTES * SEGMENT_FACT_BYTES) {
            self.put_item(writing, ItemKind::Segments, &[part])?;
        }
        let bytes = |ids: &[KeyspaceId]| ids.iter().flat_map(|id| id.0.to_le_bytes()).collect::<Vec<u8>>();
        let (keyspaces, dropped) = (bytes(&writing.keyspaces), bytes(&writing.dropped));
        for (kind, ids) in [(ItemKind::Keyspaces, keyspaces), (ItemKind::Dropped, dropped)] {
            for part in ids.chunks(content_max / 4 * 4) {
                self.put_item(writing, kind, &[part])?;
            }
        }
        self.submit_piece(writing);
        writing.stage = Stage::Waiting;
        Some(())
    }

    /// Puts an item into the open piece, or a new one. `None` when there is no room.
    fn put_item(&mut self, writing: &mut Writing, kind: ItemKind, parts: &[&[u8]]) -> Option<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let bytes = ITEM_HEADER_BYTES + length;
        let fits = |open: &OpenPiece| open.used - open.start + bytes <= open.room;
        if !writing.open.as_ref().is_some_and(fits) {
            self.submit_piece(writing);
            self.open_piece(writing, PIECE_HEADER_BYTES + bytes)?;
        }
        let open = writing.open.as_mut()?;
        let header = item_header(kind, length);
        for part in std::iter::once(&header[..]).chain(parts.iter().copied()) {
            open.buffer[open.used..open.used + part.len()].copy_from_slice(part);
            open.used += part.len();
        }
        Some(())
    }

    /// Opens a piece of `least` bytes or more. `None` when there is no room.
    fn open_piece(&mut self, writing: &mut Writing, least: usize) -> Option<()> {
        let (start, room) = match &mut writing.place {
            Place::Region(area) => {
                let room = area.piece_room(writing.pieces);
                if room < least {
                    self.checkpoints.too_long = Some(writing.expected_bytes);
                }
                (0, room)
            }
            Place::Flash(segments) => {
                let (place, offset) = piece_place(writing.pieces, self.segments.segment_bytes());
                if place == segments.len() {
                    let free_left = if self.shutting { 0 } else { self.free_wanted() };
                    if self.segments.free_count() <= free_left || place == SEGMENTS_MAX {
                        return None;
                    }
                    let segment = self.segments.take_free()?;
                    let entry = self.segments.get_mut(segment);
                    entry.role = Role::Checkpoint;
                    entry.generation = writing.generation;
                    segments.push(segment);
                }
                (if offset == BLOCK_BYTES { BLOCK_BYTES } else { 0 }, writing.piece_bytes)
            }
        };
        if room < least {
            return None;
        }
        let capacity = BLOCK_BYTES + writing.piece_bytes;
        let mut buffer = writing.spare.pop().unwrap_or_else(|| IoBuffer::zeroed(capacity));
        buffer.set_len(usize::MAX);
        writing.open = Some(OpenPiece { buffer, start, used: start + PIECE_HEADER_BYTES, room });
        Some(())
    }

    /// Sends the open piece to the device, or stores it in the region, if there is one.
    fn submit_piece(&mut self, writing: &mut Writing) {
        let Some(OpenPiece { mut buffer, start, used, .. }) = writing.open.take() else { return };
        if let Place::Region(area) = &writing.place {
            seal_piece(&mut buffer, writing.pieces, used, area.salt(writing.generation));
            let stored = area.store_piece(writing.pieces, &buffer[..used]);
            self.counts.checkpoint_region_bytes_written += used as u64;
            writing.pieces += 1;
            writing.spare.push(buffer);
            if let Err(error) = stored {
                self.checkpoint_failed(error);
            }
            return;
        }
        let (place, offset) = piece_place(writing.pieces, self.segments.segment_bytes());
        let segment = writing.place.segments()[place];
        let salt = segment_salt(self.identity.store, segment, writing.generation);
        buffer.set_len(used);
        buffer[used..].fill(0);
        seal_piece(&mut buffer[start..], writing.pieces, used - start, salt);
        if start > 0 {
            buffer[..start].fill(0);
            let positions = self.identity.positions();
            SegmentHeader {
                store: self.identity.store,
                segment,
                state: SegmentState::Checkpoint,
                temperature: Temperature::Hot,
                generation: writing.generation,
                log_id: log_id(self.identity.open_count, self.identity.shard, false),
                opened_seq: writing.seq,
                first_group: place as u64,
                durable_groups: 0,
                first_position: positions.0.0,
                last_position: positions.1.0,
            }
            .encode(&mut buffer);
        }
        writing.pieces += 1;
        self.push_checkpoint_write(writing, segment, offset - start, buffer);
    }

    fn push_checkpoint_write(
        &mut self,
        writing: &mut Writing,
        segment: u32,
        offset: usize,
        buffer: IoBuffer,
    ) {
        writing.in_flight += 1;
        self.counts.checkpoint_bytes_written += buffer.len() as u64;
        let offset = self.identity.geometry.segment_offset(segment) + offset as u64;
        self.requests.push(IoTag::Checkpoint { segment }, IoKind::WriteDurable, offset, buffer);
    }

    fn commit_checkpoint(&mut self, writing: &mut Writing) {
        let identity = &self.identity;
        let positions = identity.positions();
        let commit = Commit {
            store: identity.store,
            generation: writing.generation,
            open_count: identity.open_count,
            number: writing.number,
            seq: writing.seq,
            newest: writing.newest,
            pieces: writing.pieces,
            layout: index_settings(identity.geometry.segment_limit).layout,
            shard: identity.shard,
            shard_count: identity.shard_count,
            first_position: positions.0.0,
            last_position: positions.1.0,
            segments: writing.place.segments().to_vec(),
        };
        writing.stage = Stage::Committing;
        let Place::Region(area) = &writing.place else {
            let Some(&first) = commit.segments.first() else { return writing.give_up() };
            let mut block = IoBuffer::zeroed(BLOCK_BYTES);
            commit.encode(&mut block);
            let offset = self.segments.segment_bytes() as usize - BLOCK_BYTES;
            return self.push_checkpoint_write(writing, first, offset, block);
        };
        if let Err(error) = area.commit(&commit) {
            self.checkpoint_failed(error);
        }
    }

    /// A piece or the commit is durable, or the device had no space for it.
    pub(crate) fn checkpoint_written(&mut self, completion: IoCompletion) {
        let Some(writing) = &mut self.checkpoints.writing else { return };
        writing.in_flight -= 1;
        if completion.result.is_err() {
            return writing.give_up();
        }
        let piece_capacity = BLOCK_BYTES + piece_bytes(self.segments.segment_bytes());
        if let Some(buffer) = completion.buffer
            && buffer.capacity() >= piece_capacity
        {
            writing.spare.push(buffer);
        }
        if writing.stage == Stage::Committing
            && writing.in_flight == 0
            && let Some(writing) = self.checkpoints.writing.take()
        {
            self.checkpoint_committed(writing);
        }
    }

    /// It counts, durably: the one before does not any more. On flash that one must be void before anything makes it
    /// wrong if the younger one is in a region, which may be lost.
    fn checkpoint_committed(&mut self, writing: Writing) {
        self.checkpoints.tail =
            Tail { records: 0, bytes: 0, from_seq: writing.seq, from_bytes: writing.record_bytes };
        let (guarded, stays) = match &writing.place {
            Place::Flash(_) => (false, false),
            Place::Region(area) => (true, area.broken.beside_flash),
        };
        // Those are not kept for it.
        self.cleaner.seeks_dead |= !writing.dead.is_empty();
        let younger = InForce { place: writing.place, dead: writing.dead };
        if let Some(older) = self.checkpoints.in_force.replace(younger)
            && !(stays && matches!(older.place, Place::Flash(_)))
        {
            self.make_void(&older.place, guarded);
        }
        // It may have begun before the end did.
        self.checkpoints.ended = self.shutting && !self.is_tail_worth_saving();
    }
}
