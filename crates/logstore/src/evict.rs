//! Eviction: where keys may be evicted and the index or the device is nearly full, the oldest records are
//! named, and the layer above has their keys deleted.
//!
//! The age of a record is that of its segment: a hand goes round the sealed segments, the one that was opened
//! first first. Of each the summary is read, and in pieces the records that the index points to. One that
//! the record cache holds and that was asked for lately is spared, once a round.
//!
//! Where those go first that expire next, the segments' profiles ([`crate::expired::profile`]) say which segment
//! comes next and until when its records go. They know times in some buckets a segment only, so the order is that
//! of buckets. Where they go in no order, each round of the hand shuffles the segments, and the records of a
//! segment go together: what they leave needs no cleaning. Nothing is spared in these cases. Where those go first that
//! are asked for least, of what the hand comes to a third goes ([`crate::uses`]), and the rest is spared.
//!
//! Rules:
//! 1. An evicted key is deleted as by a user: its tombstone is in the log before whatever is written to the key
//!    later, and is kept by the rule of tombstones. So no older version of it comes back
//!    (`evicted_without_tombstone`).
//! 2. A key is deleted only while the index points to the very record that was named.
//! 3. Where only keys that expire may go, one that does not, or any more, stays (`evicted_without_expiry`).
//! 4. A step looks at a bounded number of entries; at most one piece of records is in memory.
//! 5. Where keys may be evicted, writers wait while more than 89 % of the space is live: deletions
//!    need room themselves, and a store that is all but full has none to give (`writes_outrun_eviction`).
//!
//! Who owns what: the hand and the named keys are the shard's; whether a key may go is the caller's to say
//! ([`tierstone_engine::Engine::evictable`]): locks, watches and large values are not known here.
//!
//! Nothing here is durable. Crash: the keys whose tombstones were durable are gone, the others are there.

use crate::admission::Purpose;
use crate::format::record::{Decoded, FLAG_COLLIDES, FLAG_TOMBSTONE, RecordHeader};
use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::io::IoTag;
use crate::location::{Location, Target, UNIT_BYTES};
use crate::read_path::{Found, Search};
use crate::retire::Retirer;
use crate::segments::{Role, Segment};
use crate::shard::LogShard;
use crate::summary_load::{SummaryLoad, blocks_of};
use crate::uses::Uses;
use std::collections::VecDeque;
use tierstone_base::{KeyspaceId, Position, Result, SeededRandom, Seq};
use tierstone_cache::FrameId;
use tierstone_engine::{Eviction, Key, ValueKind, Write, WriteKind};
use tierstone_media::{IoBuffer, IoCompletion, IoKind};

mod retired;
mod room;

/// Entries of a summary that one step looks at, each with a search of the index: some 200 µs.
const ENTRIES_A_STEP: usize = 1_024;
/// ... and of one that is only looked at.
const SAMPLED_ENTRIES: usize = 64;
/// Bytes of a piece, by the memory of the shard and within these bounds, and its records.
const PIECE_PARTS: u64 = 128;
const PIECE_BYTES_MIN: u64 = 64 << 10;
const PIECE_BYTES_MAX: u64 = 512 << 10;
const RECORDS_A_PIECE: usize = 512;
/// The next piece is looked for while fewer keys than this are named.
const NAMED_KEYS: usize = 256;
/// How long a deletion that found the shard busy waits for the next try.
const BUSY_PAUSE_US: u64 = 200;
/// When deletions have found no room for so long, nobody is told to wait for them, and they are tried less often.
const STUCK_US: u64 = 1_000_000;
const STUCK_PAUSE_US: u64 = 50_000;

/// Finds what is to be evicted.
#[derive(Debug, Default)]
pub(crate) struct Evictor {
    pub policy: Eviction,
    /// What goes by whole segments.
    pub retirer: Retirer,
    /// How often keys are asked for.
    pub uses: Uses,
    /// The keyspace whose index is short of room, and the bytes that a write wants.
    short_index: Option<(KeyspaceId, u64)>,
    /// Until so many bytes of records have been evicted, space is short.
    until_bytes: u64,
    /// A look found that too much is live.
    is_tight: bool,
    /// The segment that comes first after this one is the next: what orders them, and its number.
    hand: (u64, u32),
    /// Where those go first that expire next: those that expire later than this stay, in milliseconds since 1970.
    until_ms: u64,
    /// Rounds of the hand: each shuffles anew where there is no order.
    rounds: u64,
    /// Keys evicted when the last walk began.
    walk_began_at: u64,
    /// Whether this round takes what was asked for lately too.
    takes_all: bool,
    walk: Option<Walk>,
    named: VecDeque<Named>,
    /// Keys evicted when the round began, and rounds since one was.
    round_began_at: u64,
    barren_rounds: u32,
    barren_until_us: u64,
    /// So many rounds found nothing, and nothing was evicted or admitted since: who finds no space is told so, and not
    /// to wait.
    pub is_barren: bool,
    /// Since when deletions have found no room.
    held_since_us: Option<u64>,
    evicted_bytes: u64,
    /// Keys evicted since the shard was opened.
    pub evicted_keys: u64,
}

/// A walk through a segment.
#[derive(Debug)]
struct Walk {
    segment: u32,
    stage: Stage,
    summary: Vec<u8>,
    cursor: SummaryCursor,
    piece: Vec<SummaryEntry>,
    /// Nothing of it is evicted: it is looked at to learn how often keys are asked for.
    is_sample: bool,
    /// The segment is retired: all that the index points to goes.
    is_retired: bool,
}

#[derive(Debug)]
enum Stage {
    /// A part of the summary is being read.
    Loading(SummaryLoad),
    /// The summary is gone through for the next piece.
    Gathering,
    /// The piece is being read.
    Reading,
}

/// A record whose key may go.
#[derive(Debug)]
struct Named {
    keyspace: KeyspaceId,
    position: Position,
    key: Box<[u8]>,
    header: RecordHeader,
    location: Location,
}

impl Named {
    fn key(&self) -> Key<'_> {
        Key { keyspace: self.keyspace, position: self.position, bytes: &self.key }
    }
}

impl Evictor {
    /// Of a shard that was opened when this was the newest sequence.
    pub fn of_shard_opened_at(applied: Seq) -> Self {
        Evictor { retirer: Retirer::of_shard_opened_at(applied), ..Evictor::default() }
    }

    fn may_evict(&self, now_us: u64) -> bool {
        let is_stuck = self.held_since_us.is_some_and(|since_us| now_us > since_us + STUCK_US);
        self.policy != Eviction::None && now_us >= self.barren_until_us && !is_stuck
    }

    /// When a step would do something that nothing announces.
    pub fn next_step_us(&self, now_us: u64) -> Option<u64> {
        if !self.named.is_empty() {
            return Some(match self.held_since_us {
                None => now_us,
                Some(since_us) if now_us > since_us + STUCK_US => now_us + STUCK_PAUSE_US,
                Some(_) => now_us + BUSY_PAUSE_US,
            });
        }
        let gathers = |walk: &Walk| matches!(walk.stage, Stage::Gathering);
        let is_wanted = self.short_index.is_some() || self.evicted_bytes < self.until_bytes || self.is_tight;
        let begins = || is_wanted && self.may_evict(now_us);
        self.walk.as_ref().map_or_else(begins, gathers).then_some(now_us)
    }
}

impl LogShard {
    /// Changes what is done when memory or space is short.
    pub(crate) fn change_eviction(&mut self, policy: Eviction) {
        if policy != self.evictor.policy {
            self.evictor.named.clear();
            (self.evictor.hand, self.evictor.until_ms) = ((0, 0), 0);
        }
        self.evictor.policy = policy;
        self.evictor.is_barren = false;
        let bytes_max = self.uses_bytes_max();
        self.evictor.uses.switch(policy.counts_uses(), bytes_max);
        self.evictor.barren_until_us = 0;
        if policy == Eviction::None {
            self.evictor.short_index = None;
            self.evictor.until_bytes = 0;
            self.evictor.is_tight = false;
        }
    }

    /// Goes on with the walk under way, or begins the next if something is to be evicted.
    pub(crate) fn evict_step(&mut self) {
        self.fit_uses();
        self.free_empty_retired();
        let has_retired = self.retired_segment().is_some();
        if self.evictor.policy == Eviction::None && self.evictor.walk.is_none() && !has_retired {
            return;
        }
        if self.shutting {
            self.forget_named_in_retired();
            self.evictor.named.clear();
        }
        self.give_way_to_retired();
        match self.evictor.walk.take() {
            Some(walk) if matches!(walk.stage, Stage::Gathering) => self.gather_evictable(walk),
            Some(walk) => self.evictor.walk = Some(walk),
            None if self.is_retired_look_due() => self.begin_walk_through_retired(),
            None if !self.shutting && self.evictor.named.len() < NAMED_KEYS && self.wants_eviction() => {
                self.begin_eviction_walk();
            }
            None => {}
        }
    }

    fn begin_eviction_walk(&mut self) {
        if self.evictor.policy == Eviction::NearestExpiry
            && self.evictor.evicted_keys > self.evictor.walk_began_at
        {
            // What came meanwhile may expire sooner.
            self.evictor.hand = (0, 0);
        }
        self.evictor.walk_began_at = self.evictor.evicted_keys;
        let is_sample = self.evictor.uses.wants_samples();
        let next = match is_sample {
            true => self.segment_to_sample(),
            false => self.evictable_segments().filter(|place| *place > self.evictor.hand).min(),
        };
        let Some((place, number)) = next else { return self.end_eviction_round() };
        if !is_sample {
            self.evictor.hand = (place, number);
            self.evictor.until_ms = place;
        }
        self.begin_eviction_walk_in(number, is_sample, false);
    }

    fn begin_eviction_walk_in(&mut self, number: u32, is_sample: bool, is_retired: bool) {
        let segment = self.segments.get_mut(number);
        segment.pins += 1;
        let walk = Walk {
            segment: number,
            stage: Stage::Loading(SummaryLoad::new(segment)),
            summary: Vec::new(),
            cursor: SummaryCursor::new(segment.summary.records),
            piece: Vec::new(),
            is_sample,
            is_retired,
        };
        self.read_evicted_summary(walk, None);
    }

    /// Segments that may hold what is evicted, each with what orders it.
    fn evictable_segments(&self) -> impl Iterator<Item = (u64, u32)> {
        let holds_keys = |(number, segment): &(u32, &Segment)| {
            segment.role == Role::Sealed
                && segment.live_records > segment.tombstone_records
                && !self.cleaner.is_unreadable(*number)
        };
        let places = self.segments.iter().filter(holds_keys);
        places.filter_map(|(number, segment)| Some((self.eviction_place(segment)?, number)))
    }

    /// Any segment: the oldest ones alone would say nothing of the others.
    fn segment_to_sample(&mut self) -> Option<(u64, u32)> {
        let all: Vec<(u64, u32)> = self.evictable_segments().collect();
        let chosen = SeededRandom::new(self.reads.steps).below((all.len() as u64).max(1));
        all.get(chosen as usize).copied()
    }

    /// What orders a segment among the others; `None` when it has nothing that may go.
    fn eviction_place(&self, segment: &Segment) -> Option<u64> {
        let policy = self.evictor.policy;
        let first_ms = segment.expiry.as_ref().and_then(|profile| profile.first_ms());
        // What an earlier opening has left may expire, until it is known not to.
        if policy.is_of_expiring() && first_ms.is_none() && !segment.is_unprofiled() {
            return None;
        }
        match policy {
            Eviction::NearestExpiry => first_ms,
            Eviction::None
            | Eviction::OldestFirst
            | Eviction::OldestExpiring
            | Eviction::LeastUsed
            | Eviction::LeastUsedExpiring => Some(segment.opened_seq),
            Eviction::Random | Eviction::RandomExpiring => {
                let seed = segment.opened_seq.rotate_left(32) ^ self.evictor.rounds;
                Some(SeededRandom::new(seed).below(u64::MAX - 1) + 1)
            }
        }
    }

    /// Whether a key that expires then, or never (zero), may go to where the hand is.
    fn may_expire_early(&self, expiry_ms: u64) -> bool {
        let is_near = self.evictor.policy != Eviction::NearestExpiry || expiry_ms <= self.evictor.until_ms;
        is_near && self.may_go_before_expiry(expiry_ms)
    }

    /// Whether the policy lets such a key go.
    pub(crate) fn may_go_before_expiry(&self, expiry_ms: u64) -> bool {
        let may_go = expiry_ms != 0 || !self.evictor.policy.is_of_expiring();
        may_go || self.identity.mutations.is_on("evicted_without_expiry")
    }

    fn read_evicted_summary(&mut self, walk: Walk, spare: Option<IoBuffer>) {
        if let Stage::Loading(load) = &walk.stage {
            let begin = self.identity.geometry.segment_offset(walk.segment);
            let (offset, buffer) = load.next_read(begin, spare);
            self.requests.push(IoTag::EvictSummary { segment: walk.segment }, IoKind::Read, offset, buffer);
        }
        self.evictor.walk = Some(walk);
    }

    pub(crate) fn evicted_summary_read(&mut self, number: u32, completion: IoCompletion) {
        let Some(mut walk) = self.evictor.walk.take_if(|walk| walk.segment == number) else { return };
        let (Stage::Loading(mut load), Some(buffer)) =
            (std::mem::replace(&mut walk.stage, Stage::Gathering), completion.buffer)
        else {
            return self.end_unread_walk(&walk);
        };
        if completion.result.is_err() {
            return self.end_unread_walk(&walk);
        }
        if !load.take(&buffer) {
            walk.stage = Stage::Loading(load);
            return self.read_evicted_summary(walk, Some(buffer));
        }
        match load.finish() {
            Some(summary) => {
                walk.summary = summary;
                self.evictor.walk = Some(walk);
            }
            None => self.end_unread_walk(&walk),
        }
    }

    /// The summary cannot be read.
    fn end_unread_walk(&mut self, walk: &Walk) {
        self.end_eviction_walk(walk.segment);
        if walk.is_retired {
            self.note_unreadable_in_retired();
            self.end_retired_look(walk.segment);
        }
    }

    fn end_eviction_walk(&mut self, number: u32) {
        let segment = self.segments.get_mut(number);
        segment.pins = segment.pins.saturating_sub(1);
    }

    /// Goes on through the summary, to the next piece or to its end.
    fn gather_evictable(&mut self, mut walk: Walk) {
        if self.evictor.named.len() >= NAMED_KEYS {
            self.evictor.walk = Some(walk);
            return;
        }
        if !walk.is_retired && (self.shutting || !self.wants_eviction()) {
            return self.end_eviction_walk(walk.segment);
        }
        let summary = std::mem::take(&mut walk.summary);
        let mut reader = SummaryReader::resume(&summary, walk.cursor);
        if walk.is_sample {
            for entry in reader.by_ref().take(SAMPLED_ENTRIES) {
                self.may_go(&entry, walk.segment);
            }
            self.evictor.uses.note_sampled();
            return self.end_eviction_walk(walk.segment);
        }
        let (mut left, mut is_at_end) = (ENTRIES_A_STEP, false);
        let piece_bytes = self.settings.memory_bytes / PIECE_PARTS;
        let piece_bytes = piece_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize;
        walk.piece.clear();
        while left > 0 {
            let Some(entry) = reader.next() else {
                is_at_end = true;
                break;
            };
            left -= 1;
            let goes = match walk.is_retired {
                true => self.is_still_there(&entry, walk.segment),
                false => self.may_go(&entry, walk.segment),
            };
            if !goes {
                continue;
            }
            walk.piece.push(entry);
            let first = walk.piece.first().map_or(entry.unit, |first| first.unit);
            let span = (entry.unit + entry.units - first) as usize * UNIT_BYTES;
            if span >= piece_bytes || walk.piece.len() >= RECORDS_A_PIECE {
                break;
            }
        }
        walk.cursor = reader.cursor(&summary);
        walk.summary = summary;
        if !walk.piece.is_empty() {
            if walk.is_retired {
                self.note_found_in_retired();
            }
            self.read_evicted_piece(walk);
        } else if is_at_end {
            self.end_eviction_walk(walk.segment);
            if walk.is_retired {
                self.end_retired_look(walk.segment);
            }
        } else {
            self.evictor.walk = Some(walk);
        }
    }

    /// Whether the key of a record may go: it is the key's newest, a user's, and was not asked for lately.
    fn may_go(&mut self, entry: &SummaryEntry, segment: u32) -> bool {
        if entry.flags & FLAG_TOMBSTONE != 0 || !entry.keyspace.is_user() {
            return false;
        }
        if self.keyspaces.get(entry.keyspace).is_none() || !self.may_expire_early(self.expiry_of_entry(entry))
        {
            return false;
        }
        self.target_of(entry, Location::new(segment, entry.unit))
            .is_some_and(|target| !self.is_spared(target))
            && !self.evictor.uses.spares_at_hand(entry.keyspace, entry.position)
    }

    fn is_spared(&self, target: Target) -> bool {
        match target {
            Target::Frame(_) if !self.evictor.policy.spares_the_asked_for() => false,
            Target::Frame(bits) => !self.evictor.takes_all && self.cache.is_touched(FrameId::from_bits(bits)),
            Target::Device(_) => false,
        }
    }

    fn read_evicted_piece(&mut self, mut walk: Walk) {
        let Some((start, len)) = blocks_of(&walk.piece) else { return };
        let offset = self.identity.geometry.segment_offset(walk.segment) + start as u64;
        let tag = IoTag::EvictPiece { segment: walk.segment };
        self.requests.push(tag, IoKind::Read, offset, IoBuffer::zeroed(len));
        walk.stage = Stage::Reading;
        self.evictor.walk = Some(walk);
    }

    pub(crate) fn evicted_piece_read(&mut self, number: u32, completion: IoCompletion) {
        let is_due = |walk: &mut Walk| walk.segment == number && matches!(walk.stage, Stage::Reading);
        let Some(mut walk) = self.evictor.walk.take_if(is_due) else { return };
        walk.stage = Stage::Gathering;
        let start = (completion.offset - self.identity.geometry.segment_offset(number)) as usize;
        let piece = std::mem::take(&mut walk.piece);
        let buffer = completion.buffer.filter(|_| completion.result.is_ok());
        if walk.is_retired && buffer.is_none() {
            self.note_unreadable_in_retired();
        }
        if let Some(buffer) = buffer {
            for entry in &piece {
                let at = entry.unit as usize * UNIT_BYTES - start;
                let bytes = buffer.get(at..).unwrap_or_default();
                if !(walk.is_retired && self.move_kept(number, entry, bytes)) {
                    self.name(number, entry, bytes);
                }
            }
        }
        walk.piece = piece;
        self.evictor.walk = Some(walk);
    }

    /// Names the key of a record that was read; a damaged one is left alone.
    fn name(&mut self, number: u32, entry: &SummaryEntry, bytes: &[u8]) {
        let is_retired = self.retired_segment() == Some(number);
        if !is_retired && (self.evictor.policy == Eviction::None || self.shutting) {
            return;
        }
        let location = Location::new(number, entry.unit);
        let Decoded::Whole(header) = self.decode_at(location, bytes) else {
            if is_retired {
                self.note_unreadable_in_retired();
            }
            return;
        };
        let Some(key) = bytes.get(header.key_range()) else { return };
        self.evictor.named.push_back(Named {
            keyspace: entry.keyspace,
            position: entry.position,
            key: key.into(),
            header,
            location,
        });
    }

    /// The index's entry for a named record; `None` when the key has another record now, or none, when the
    /// record was asked for or got another expiry meanwhile, or when it cannot be told from another.
    fn target_of_named(&mut self, named: &Named) -> Option<Target> {
        let entry =
            SummaryEntry { position: named.position, keyspace: named.keyspace, ..SummaryEntry::default() };
        if self.is_in_retired(named) {
            return self.target_of(&entry, named.location);
        }
        if !self.may_expire_early(self.expiry_of(named.position, &named.header)) {
            return None;
        }
        if self.evictor.uses.spares(named.keyspace, named.position) {
            return None;
        }
        let target = self.target_of(&entry, named.location).filter(|target| !self.is_spared(*target))?;
        self.is_alone(&named.key()).then_some(target)
    }

    /// The first key that may be evicted now.
    pub(crate) fn first_evictable(&mut self) -> Option<(Key<'_>, ValueKind)> {
        while let Some(named) = self.evictor.named.pop_front() {
            if self.target_of_named(&named).is_some() {
                self.evictor.named.push_front(named);
                break;
            }
        }
        let named = self.evictor.named.front()?;
        Some((named.key(), ValueKind(named.header.kind)))
    }

    /// Deletes the first named key, if it still has the record that was named; whether it did.
    pub(crate) fn evict_first(&mut self) -> Result<bool> {
        let Some(named) = self.evictor.named.pop_front() else { return Ok(false) };
        let Some(target) = self.target_of_named(&named) else { return Ok(false) };
        if self.is_in_retired(&named)
            && let Some(went) = self.evict_left(&named, target)
        {
            return Ok(went);
        }
        let key = named.key();
        let write = Write { key, kind: WriteKind::Delete };
        if self.refused_by_split(&[write]).is_some() {
            return Ok(false);
        }
        let found = match target {
            Target::Frame(bits) => Found::Frame(FrameId::from_bits(bits)),
            Target::Device(location) => Found::Unsubmitted(location),
        };
        let collides = named.header.flags & FLAG_COLLIDES != 0;
        let search = Search { found, header: named.header, collides, damaged: false };
        let admitted =
            self.check_writable().and_then(|()| self.admit(&[write], &[search], Purpose::Write).map(drop));
        if let Err(error) = admitted {
            self.evictor.held_since_us.get_or_insert(self.now.monotonic_us);
            self.evictor.named.push_front(named);
            return Err(error);
        }
        self.evictor.held_since_us = None;
        if self.identity.mutations.is_on("evicted_without_tombstone") {
            self.forget_left(&named, target);
        } else {
            self.apply(&write, search, (false, None))?;
        }
        self.note_evicted(named.header.units(), 0);
        Ok(true)
    }

    /// A key went, with a record of `units` units, and `freed` bytes beside it.
    fn note_evicted(&mut self, units: usize, freed: u64) {
        (self.evictor.is_barren, self.evictor.barren_until_us) = (false, 0);
        self.evictor.evicted_keys += 1;
        self.evictor.evicted_bytes += (units * UNIT_BYTES) as u64 + freed;
    }

    /// The first named key was deleted by the caller, which freed so many bytes beside its record, or is to stay.
    pub(crate) fn pass_first(&mut self, freed: Option<u64>) {
        let Some(named) = self.evictor.named.pop_front() else { return };
        if let Some(freed) = freed {
            self.note_evicted(named.header.units(), freed);
        } else if self.is_in_retired(&named) {
            self.keep_of_retired(named.location);
        }
    }
}
