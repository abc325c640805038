//! Expired records leave the index by themselves: segments in which enough of them are due are walked by
//! their summaries, no record is read, and what may go without a trace goes.
//!
//! Rules (a mutation breaks the first):
//! 1. A record may go without a trace when no older version of its key can come back, whatever becomes of
//!    its segment: it was written in this opening and its key had no record then (`FLAG_REPLACES`), nor was
//!    there one that could not be read (`FLAG_COLLIDES`). What hid older versions then, a tombstone, is kept
//!    by the rule of tombstones, and does not depend on this record (`expired_without_trace`). What was
//!    written in earlier openings, or replaced something, goes when its segment is cleaned, and counts as a
//!    tombstone there.
//! 2. Not before the record is decided and durable; not while a snapshot shows it.
//! 3. A checkpoint would bring it back: it is made void first, and none is begun meanwhile.
//!
//! What is dropped has been seen as past, as in cleaning ([`LogShard::forget_expired`]).
//!
//! Who owns what: the profile of a segment says what is due ([`profile`]); it is kept for what this opening
//! appends, and found out by a walk for what earlier ones left. Nothing here is durable.
//!
//! Crash: recovery finds the record again, expired, and its segment's profile by a walk.

use crate::format::record::{FLAG_COLLIDES, FLAG_REPLACES, FLAG_TOMBSTONE};
use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::io::IoTag;
use crate::location::Location;
use crate::segments::{Role, Segment};
use crate::shard::LogShard;
use crate::summary_load::SummaryLoad;
use profile::{Due, Trace};
use tierstone_media::{IoBuffer, IoCompletion, IoKind};

pub(crate) mod profile;

/// Entries of a summary that one step reads, and of these expiring ones that it looks up: some 100 µs.
const ENTRIES_A_STEP: usize = 1024;
const LOOKUPS_A_STEP: usize = 128;
/// A segment is walked when one part in so many of what lives in it is due,
const LIVE_PARTS: u32 = 8;
/// ... and one in so many of all entries, unless nothing else lives in it.
const ENTRY_PARTS: u32 = 64;
/// From one look at the profiles to the next, in microseconds: at most, at least, and when new keys are
/// refused for want of memory.
const LOOK_US_MAX: u64 = 1_000_000;
const LOOK_US_MIN: u64 = 50_000;
const LOOK_US_SHORT: u64 = 1_000;
/// From one open segment that is sealed for what has expired in it to the next, in microseconds: a segment costs
/// some blocks and flushes, whatever is in it.
const ROLL_US: u64 = 2_000_000;
/// Beside a checkpoint, which would have to be written again, none is sealed for less than one key in so many.
const CHECKPOINT_PARTS: u64 = 100;
/// What must stay for now is looked at again after this time, in milliseconds.
const AGAIN_MS: u64 = 1_000;
/// Looks without any progress after which nobody is told to wait for one.
const BARREN_LOOKS_MAX: u32 = 8;

/// Drops what has expired.
#[derive(Debug)]
pub(crate) struct Sweeper {
    walk: Option<Walk>,
    /// The next segment to be cleaned because of what has expired in it.
    to_clean: Option<u32>,
    look_at_us: u64,
    /// When the next open segment may be sealed for what has expired in it.
    roll_at_us: u64,
    /// Whether any segment may hold expiring records.
    has_expiring: bool,
    /// Writes were refused for want of memory or space: every record counts.
    is_short: bool,
    /// What there was at the last look: keys dropped, free segments, entries cleaned; and looks since it changed
    /// while writes were refused.
    seen: (u64, u32, u64),
    barren_looks: u32,
    /// Keys whose record was dropped since it had expired, here and by cleaning.
    pub dropped_keys: u64,
    /// Entries that were looked up.
    pub lookups: u64,
}

/// A walk through a segment's summary.
#[derive(Debug)]
struct Walk {
    segment: u32,
    source: Source,
    cursor: SummaryCursor,
}

#[derive(Debug)]
enum Source {
    /// The segment is open: its summary is in memory.
    Open,
    Loading(SummaryLoad),
    Loaded(Vec<u8>),
}

impl Sweeper {
    /// A sweeper that does not know what earlier openings have left.
    pub fn new() -> Self {
        Sweeper {
            walk: None,
            to_clean: None,
            look_at_us: 0,
            roll_at_us: 0,
            has_expiring: true,
            is_short: false,
            seen: (0, 0, 0),
            barren_looks: 0,
            dropped_keys: 0,
            lookups: 0,
        }
    }

    /// An expiring record was appended.
    pub fn note_expiring(&mut self) {
        self.has_expiring = true;
    }

    /// Whether a segment is being walked.
    pub fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Whether `segment` is being walked.
    pub fn is_walking_in(&self, segment: u32) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.segment == segment)
    }

    /// When a step would do something that nothing announces.
    pub fn next_step_us(&self, now_us: u64) -> Option<u64> {
        match &self.walk {
            Some(Walk { source: Source::Loading(_), .. }) => None,
            Some(_) => Some(now_us),
            None if self.to_clean.is_some() => Some(now_us),
            None => self.has_expiring.then(|| self.look_at_us.max(now_us)),
        }
    }
}

/// What becomes of a record with these flags when it has expired.
pub(crate) fn trace_of(segment: &Segment, flags: u8) -> Trace {
    let hides_nothing = segment.is_trusted && flags & (FLAG_REPLACES | FLAG_COLLIDES) == 0;
    if hides_nothing { Trace::None } else { Trace::Tombstone }
}

impl LogShard {
    /// Looks for segments in which much is due, and goes on with the walk under way.
    pub(crate) fn sweep_expired(&mut self) {
        if self.shutting {
            self.end_walk();
            return;
        }
        match self.sweeper.walk.take() {
            Some(walk) => self.walk_on(walk),
            None if self.sweeper.has_expiring && self.now.monotonic_us >= self.sweeper.look_at_us => {
                self.look_for_due();
            }
            None => {}
        }
    }

    /// Whether expired records are being dropped, or could be: then there is memory and space soon. Cost: a
    /// look at every segment.
    pub(crate) fn can_drop_expired(&mut self) -> bool {
        // What must stay, for a snapshot say, may be due for long: who waits must not wait for that.
        if self.shutting || self.sweeper.barren_looks >= BARREN_LOOKS_MAX {
            return false;
        }
        self.sweeper.is_short = true;
        // Somebody waits for the next look, and it comes whatever the last one found: a victim that turned out to be
        // unreadable was none of its segments.
        self.sweeper.has_expiring |= !self.identity.mutations.is_on("unreadable_victim_not_looked_at");
        self.sweeper.look_at_us = self.sweeper.look_at_us.min(self.now.monotonic_us + LOOK_US_SHORT);
        let wall_ms = self.now.wall_ms;
        self.sweeper.is_walking()
            || self.sweeper.to_clean.is_some()
            || self.expired_to_clean().is_some()
            || self.open_has_due()
            || self.segments.iter().any(|(_, segment)| {
                is_walkable(segment)
                    && (segment.is_unprofiled() || due_in(segment, wall_ms).loose.records > 0)
            })
    }

    /// The oldest segment that is worth being cleaned because of what has expired in it: where that counts as
    /// tombstones. The oldest of all needs no room when all that lives in it has expired, as nothing that
    /// is older can come back.
    fn expired_to_clean(&self) -> Option<u32> {
        if self.snapshots.is_any() || self.cleaner.is_stopped() {
            return None;
        }
        let holds = |(_, segment): &(u32, &Segment)| segment.may_hold_records();
        let opened = |(_, segment): &(u32, &Segment)| segment.opened_seq;
        let oldest = self.segments.iter().filter(holds).min_by_key(opened).map(|(number, _)| number);
        let room = !self.is_short();
        let is_worth = |&(number, segment): &(u32, &Segment)| {
            let due = due_in(segment, self.now.wall_ms);
            let live = segment.live_records;
            let all_due = oldest == Some(number) && due.tied.records + due.loose.records >= live;
            let worth = self.sweeper.is_short || due.tied.records.saturating_mul(LIVE_PARTS) >= live;
            due.tied.records > 0 && worth && (room || all_due) && self.may_clean_expired(number)
        };
        self.segments.iter().filter(is_worth).min_by_key(opened).map(|(number, _)| number)
    }

    /// Whether the segment that users write holds what has expired and can go by cleaning only.
    fn open_has_due(&self) -> bool {
        let room = !self.is_short();
        let due = |number| due_in(self.segments.get(number), self.now.wall_ms).tied.records > 0;
        room && self.hot.is_marked() && self.hot.written_segment().is_some_and(due)
    }

    /// Seals an open segment where enough of what lives in it has expired and can go by cleaning only: in a store
    /// that writes little it would be counted, and take memory, until the segment is full.
    fn roll_for_due(&mut self) {
        let (now_us, wall_ms) = (self.now.monotonic_us, self.now.wall_ms);
        let may_be_cleaned = !self.snapshots.is_any() && !self.cleaner.is_stopped() && !self.is_short();
        if now_us < self.sweeper.roll_at_us || !may_be_cleaned {
            return;
        }
        let has_checkpoint = self.checkpoints.are_under_way();
        let due_min = if has_checkpoint { self.key_count() / CHECKPOINT_PARTS } else { 0 };
        for stream in [&mut self.hot, &mut self.cold] {
            let Some(number) = stream.written_segment().filter(|_| stream.is_marked()) else { continue };
            let segment = self.segments.get(number);
            let due = due_in(segment, wall_ms).tied.records;
            let is_worth = due.saturating_mul(LIVE_PARTS) >= segment.live_records;
            if due > 0 && is_worth && u64::from(due) >= due_min {
                stream.roll(&mut self.segments);
                self.sweeper.roll_at_us = now_us + ROLL_US;
            }
        }
    }

    fn may_clean_expired(&self, number: u32) -> bool {
        let segment = self.segments.get(number);
        segment.role == Role::Sealed && segment.snapshot_records == 0 && !self.cleaner.is_unreadable(number)
    }

    /// The segment to be cleaned because of what has expired in it, if that can begin now.
    pub(crate) fn take_expired_to_clean(&mut self) -> Option<u32> {
        let number = self.sweeper.to_clean.take()?;
        // What is not free yet may still hold older versions: tombstones would be written for it.
        let waits = self.cleaner.emptied_segments().next().is_some() || self.segments.is_freeing();
        (!waits && self.may_clean_expired(number)).then_some(number)
    }

    fn look_for_due(&mut self) {
        self.note_progress();
        let (wall_ms, now_us) = (self.now.wall_ms, self.now.monotonic_us);
        let mut next_ms = u64::MAX;
        let mut best: Option<(u32, u32)> = None;
        let mut unknown = None;
        let mut any = false;
        for (number, segment) in self.segments.iter().filter(|(_, segment)| is_walkable(segment)) {
            any |= segment.expiry.is_some() || segment.is_unprofiled();
            if let Some(profile) = &segment.expiry {
                next_ms = next_ms.min(profile.next_ms(wall_ms).unwrap_or(u64::MAX));
            }
            let due = due_in(segment, wall_ms).loose.records;
            let worth = self.is_worth_walking(segment, due);
            if due > 0 && worth && best.is_none_or(|(most, _)| due > most) {
                best = Some((due, number));
            }
            if segment.is_unprofiled() && unknown.is_none() {
                unknown = Some(number);
            }
        }
        let next_us = next_ms.saturating_sub(wall_ms).saturating_mul(1_000);
        let pause_us = next_us.clamp(LOOK_US_MIN, LOOK_US_MAX);
        self.sweeper.to_clean = if best.is_none() { self.expired_to_clean() } else { None };
        let goes_on = best.is_some() || unknown.is_some() || self.sweeper.to_clean.is_some();
        self.sweeper.look_at_us = now_us
            + match (self.sweeper.is_short, goes_on) {
                (true, _) => LOOK_US_SHORT,
                (false, true) => LOOK_US_MIN,
                (false, false) => pause_us,
            };
        self.sweeper.has_expiring = any;
        if std::mem::take(&mut self.sweeper.is_short) && !goes_on && self.open_has_due() {
            self.hot.roll(&mut self.segments);
        }
        if !goes_on {
            self.roll_for_due();
        }
        if let Some(number) = best.map(|(_, number)| number).or(unknown) {
            self.begin_walk(number);
        }
    }

    /// Segments of earlier openings are walked one soon after the other, if there are any whose profile is unknown.
    pub(crate) fn hurry_profiles(&mut self) -> bool {
        let is_any = self.segments.iter().any(|(_, segment)| segment.is_unprofiled());
        if is_any {
            self.sweeper.has_expiring = true;
            self.sweeper.look_at_us = self.sweeper.look_at_us.min(self.now.monotonic_us + LOOK_US_SHORT);
        }
        is_any
    }

    fn note_progress(&mut self) {
        let seen = (self.sweeper.dropped_keys, self.segments.free_count(), self.cleaner.work.entries);
        if seen != std::mem::replace(&mut self.sweeper.seen, seen) {
            self.sweeper.barren_looks = 0;
        } else if self.sweeper.is_short {
            self.sweeper.barren_looks += 1;
        }
    }

    fn is_worth_walking(&self, segment: &Segment, due: u32) -> bool {
        let live = segment.live_records.saturating_sub(segment.tombstone_records);
        let in_memory = segment.role == Role::Open;
        self.sweeper.is_short
            || due >= live
            || due.saturating_mul(LIVE_PARTS) >= live
                && (in_memory || due.saturating_mul(ENTRY_PARTS) >= segment.summary.records)
    }

    fn begin_walk(&mut self, number: u32) {
        // Of a segment of an earlier opening nothing is dropped.
        if self.segments.get(number).is_trusted && !self.make_way(number) {
            return;
        }
        let streams = [&self.hot, &self.cold];
        let open = streams.into_iter().find_map(|stream| stream.open_summary_of(number));
        let (records, end_unit) = match open {
            Some(summary) => (summary.records(), summary.end_unit()),
            None if self.segments.get(number).role == Role::Open => return,
            None => (self.segments.get(number).summary.records, u32::MAX),
        };
        let is_open = open.is_some();
        let segment = self.segments.get_mut(number);
        segment.pins += 1;
        segment.expiry = None;
        segment.unprofiled = (0, end_unit);
        let source = if is_open { Source::Open } else { Source::Loading(SummaryLoad::new(segment)) };
        let cursor = SummaryCursor::new(records);
        let walk = Walk { segment: number, source, cursor };
        self.read_walked(walk, None);
    }

    /// Reads the next part of the walked summary, if it must be read.
    fn read_walked(&mut self, walk: Walk, spare: Option<IoBuffer>) {
        if let Source::Loading(load) = &walk.source {
            let begin = self.identity.geometry.segment_offset(walk.segment);
            let (offset, buffer) = load.next_read(begin, spare);
            self.requests.push(IoTag::SweepSummary { segment: walk.segment }, IoKind::Read, offset, buffer);
        }
        self.sweeper.walk = Some(walk);
    }

    /// A part of the walked summary came; a damaged one is left alone.
    pub(crate) fn walked_summary_read(&mut self, number: u32, completion: IoCompletion) {
        let Some(mut walk) = self.sweeper.walk.take_if(|walk| walk.segment == number) else { return };
        let Source::Loading(mut load) = walk.source else { return };
        let Some(buffer) = completion.buffer.filter(|_| completion.result.is_ok()) else {
            return self.let_walked_go(number, false);
        };
        if !load.take(&buffer) {
            walk.source = Source::Loading(load);
            return self.read_walked(walk, Some(buffer));
        }
        match load.finish() {
            Some(bytes) => {
                walk.source = Source::Loaded(bytes);
                self.sweeper.walk = Some(walk);
            }
            None => self.let_walked_go(number, false),
        }
    }

    fn end_walk(&mut self) {
        self.sweeper.to_clean = None;
        if let Some(walk) = self.sweeper.walk.take() {
            self.let_walked_go(walk.segment, true);
        }
    }

    /// The walk of a segment is over. `again`: what it has not come to is unknown still.
    fn let_walked_go(&mut self, number: u32, again: bool) {
        let segment = self.segments.get_mut(number);
        segment.pins = segment.pins.saturating_sub(1);
        if !again {
            segment.unprofiled = (0, 0);
        }
        self.sweeper.has_expiring = true;
    }

    /// Goes through some of the walked summary.
    fn walk_on(&mut self, mut walk: Walk) {
        let number = walk.segment;
        match std::mem::replace(&mut walk.source, Source::Open) {
            Source::Loading(load) => {
                walk.source = Source::Loading(load);
                self.sweeper.walk = Some(walk);
                return;
            }
            Source::Loaded(bytes) => {
                self.walk_some(&mut walk, &bytes);
                walk.source = Source::Loaded(bytes);
            }
            Source::Open => {
                let cold = self.cold.open_summary_of(number).is_some();
                let stream = if cold { &mut self.cold } else { &mut self.hot };
                let Some(summary) = stream.lend_summary(number) else {
                    // It was left meanwhile: its summary is to be read when it is sealed.
                    return self.let_walked_go(number, true);
                };
                self.walk_some(&mut walk, summary.bytes());
                let stream = if cold { &mut self.cold } else { &mut self.hot };
                stream.give_back_summary(number, summary);
            }
        }
        self.segments.get_mut(number).unprofiled.0 = walk.cursor.end_unit();
        if walk.cursor.is_at_end() {
            self.let_walked_go(number, false);
        } else {
            self.sweeper.walk = Some(walk);
        }
    }

    fn walk_some(&mut self, walk: &mut Walk, bytes: &[u8]) {
        let mut reader = SummaryReader::resume(bytes, walk.cursor);
        let (mut entries, mut lookups) = (0, 0);
        while entries < ENTRIES_A_STEP && lookups < LOOKUPS_A_STEP {
            let Some((entry, key)) = reader.next_keyed() else { break };
            entries += 1;
            if self.expiry_of_entry(&entry) == 0 || entry.flags & FLAG_TOMBSTONE != 0 {
                continue;
            }
            lookups += 1;
            let location = Location::new(walk.segment, entry.unit);
            if self.target_of(&entry, location).is_some() {
                self.judge_expiring(&entry, key, location);
            }
        }
        self.sweeper.lookups += lookups as u64;
        walk.cursor = reader.cursor(bytes);
    }

    /// A record that the index points to and that expires: it goes, or its segment's profile has it again.
    fn judge_expiring(&mut self, entry: &SummaryEntry, key: &[u8], location: Location) {
        if let Some(touch) = self.touch_of(entry.keyspace, entry.position, entry.seq)
            && !self.identity.mutations.is_on("sweep_ignores_touches")
        {
            let expiry_ms = touch.expiry_ms;
            self.segments.note_profiled(location, entry.units, expiry_ms, Trace::Tombstone);
            return;
        }
        let segment = self.segments.get(location.segment());
        let trace = match trace_of(segment, entry.flags) {
            _ if self.identity.mutations.is_on("expired_without_trace") => Trace::None,
            // An older version may be where nothing can be read now.
            _ if self.cleaner.has_unreadable() => Trace::Tombstone,
            trace => trace,
        };
        let mut expiry_ms = entry.expiry_ms;
        if trace == Trace::None && entry.expiry_ms <= self.now.wall_ms {
            let stays =
                self.snapshots.cuts.need(entry.seq, entry.expiry_ms) || entry.seq > self.hot.decided_seq();
            if !stays {
                self.forget_expired(entry, key, location);
                return;
            }
            expiry_ms = self.now.wall_ms + AGAIN_MS;
        }
        self.segments.note_profiled(location, entry.units, expiry_ms, trace);
    }
}

/// Whether a segment's summary can be walked.
fn is_walkable(segment: &Segment) -> bool {
    matches!(segment.role, Role::Open | Role::Sealed)
}

fn due_in(segment: &Segment, wall_ms: u64) -> Due {
    segment.expiry.as_ref().map_or(Due::default(), |profile| profile.due(wall_ms))
}
