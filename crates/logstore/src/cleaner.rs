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
//! 2. A tombstone is dropped only when every other segment that holds dead records was opened after the
//!    deletion: only live records are ever copied, so no younger segment can hold an older version
//!    of the key (`drop_tombstones_early`), and where all lives none can (`few_dead_overlooked`). An expired record
//!    counts as a tombstone.
//! 3. A segment is opened again only when its free header is durable: otherwise a crash could bring
//!    back old records whose tombstones are gone.
//!
//! 4. A segment with records that only snapshots show is not chosen; should it get some while it is
//!    being emptied, it is freed when they are not needed any more (`snapshot_pins_ignored`). A record
//!    that has expired but that a snapshot shows is moved like a live one. A segment that a backup has still to read
//!    is not emptied either, even where that had begun.
//!
//! Crash at any point: the victim is whole until its free header is there; copies have the sequence
//! of their originals, so recovery may take either.

use crate::format::segment::{SegmentHeader, SegmentState, Temperature};
use crate::format::summary::SummaryEntry;
use crate::gain::Streak;
use crate::io::IoTag;
use crate::location::{Location, Target, UNIT_BYTES};
use crate::segments::{Role, Segment};
use crate::shard::LogShard;
use crate::tombstones::Sweep;
use moving::Victim;
use pace::Pace;
use std::cell::Cell;
use tierstone_base::Seq;
use tierstone_cache::FrameId;
use tierstone_engine::Key;
use tierstone_media::{BLOCK_BYTES, IoBuffer, IoKind};

mod moving;
mod pace;

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
    /// Others have to leave shared segments before this shard goes on.
    pub(crate) is_held_up: bool,
    /// What an empty segment takes of records, and of which length at most: as last reckoned. Zero bytes: not yet.
    pub(crate) packed: Cell<(u32, u64)>,
    /// Free segments that writers leave, as last reckoned.
    pub(crate) kept: u32,
    /// When a write was told to wait for space last, by shard steps and the newest write, and what it wanted, in bytes.
    pub(crate) waited: Option<(u64, Seq, u64)>,
    /// How far tombstones have been swept.
    pub(crate) sweep: Sweep,
    /// Space is short and no segment is worth cleaning.
    pub(crate) found_none: bool,
    /// The last look at all segments has begun nothing.
    pub(crate) looked_in_vain: bool,
    /// Many segments may be dead at once, of a keyspace that was dropped: they are looked for until none is found, whether
    /// space is short or not and whether anything else happens or not.
    pub(crate) seeks_dead: bool,
    /// Some that the last look has found.
    pub(crate) found_dead: Vec<u32>,
    /// What cleaning has come to lately.
    pub(crate) streak: Streak,
    pub(crate) pace: Pace,
    /// The last piece's buffer, for the next one.
    spare: Option<IoBuffer>,
    pub(crate) work: CleaningWork,
}

/// What cleaning has done since the shard was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CleaningWork {
    /// Entries of summaries whose records were searched for in the index.
    pub entries: u64,
    /// Entries of summaries of which marks of dead records told.
    pub marked: u64,
    /// Records of victims that were looked at in memory, to be moved or left.
    pub records: u64,
    /// Bytes of summaries and of these records.
    pub bytes: u64,
    /// Expiring records that were looked up beside cleaning.
    pub lookups: u64,
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

    /// Whether emptied segments may wait for the cold group that takes records, and nothing more is coming for it.
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
        let units = self.victim.as_ref().map_or(0, Victim::passed_units);
        u64::from(units) * UNIT_BYTES as u64
    }

    /// The segment that is being emptied.
    pub(crate) fn victim_segment(&self) -> Option<u32> {
        self.victim.as_ref().map(|victim| victim.segment)
    }

    /// What kept segments from being cleaned has gone: the next step looks for some.
    pub(crate) fn look_again(&mut self) {
        self.wants_step = true;
    }

    /// Whether cleaning has ended for good.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether a segment is left alone.
    pub(crate) fn is_unreadable(&self, segment: u32) -> bool {
        self.unreadable.contains(&segment)
    }

    /// Whether any segment is left alone.
    pub(crate) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Emptied segments that wait to be freed.
    pub(crate) fn emptied_segments(&self) -> impl Iterator<Item = u32> {
        self.emptied.iter().map(|emptied| emptied.segment)
    }

    /// An emptied segment is not to be freed; whether it was one.
    pub(crate) fn forget_emptied(&mut self, segment: u32) -> bool {
        let before = self.emptied.len();
        self.emptied.retain(|emptied| emptied.segment != segment);
        self.emptied.len() < before
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
        let is_held = self.is_victim_held();
        if !is_held && self.keeps_pace() {
            self.advance_victim();
        }
        let is_idle = self.cleaner.victim.as_ref().is_some_and(|victim| !victim.is_reading());
        let idle_victim = is_idle && !is_held && self.keeps_pace();
        let is_asked = self.is_asked_for_space() && self.segments.pool().must_answer(self.identity.shard);
        let seeks = self.cleaner.seeks_dead || !self.cleaner.found_dead.is_empty();
        let goes_on = self.cleaner.victim.is_none() && (self.compact_wants_step() || is_asked || seeks);
        if self.cleaner.victim.is_none() {
            self.cleaner.spare = None;
        }
        self.cleaner.wants_step = idle_victim || goes_on;
        // A victim's copies fill their group: closed before, it would take room that nobody has reckoned. Only where
        // the victim cannot go on without a segment may that be one that waits for what the group proves.
        let waits = self.cleaner.victim.is_none()
            || self.cleaner.starved
            || self.identity.mutations.is_on("room_for_copies_guessed");
        self.cleaner.wants_group_closed = waits && !self.cleaner.emptied.is_empty();
    }

    /// What cleaning has done since the shard was opened.
    pub fn cleaning_work(&self) -> CleaningWork {
        CleaningWork { lookups: self.sweeper.lookups, ..self.cleaner.work }
    }

    /// Bytes of marks of dead records, which the index's bytes include.
    pub fn mark_bytes(&self) -> u64 {
        self.segments.mark_bytes()
    }

    /// For a test's mutation.
    pub(crate) fn ignores_snapshot_pins(&self) -> bool {
        self.identity.mutations.is_on("snapshot_pins_ignored")
    }

    /// Whether a backup has still to read the victim, so that nothing of it may go.
    fn is_victim_held(&self) -> bool {
        let victim = self.cleaner.victim_segment();
        victim.is_some_and(|number| self.backups.waits_for(number)) && !self.ignores_snapshot_pins()
    }

    /// Whether a victim is being moved and has room to move to.
    pub(crate) fn is_moving(&self) -> bool {
        self.cleaner.victim.is_some() && !self.is_starved() && !self.is_victim_held()
    }

    /// Whether the victim waits for a free segment, and there is none.
    pub(crate) fn is_starved(&self) -> bool {
        self.cleaner.victim.is_some() && self.cleaner.starved && self.segments.free_count() == 0
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
        self.cleaner.looked_in_vain = false;
        let segment = self.segments.get_mut(number);
        segment.role = Role::Cleaning;
        if segment.live_records == 0 && !segment.is_estimated {
            let is_forgotten = self.identity.mutations.is_on("clustered_copies_forgotten");
            let cold_groups = if is_forgotten { 0 } else { self.clusterer.cold_groups };
            self.cleaner.emptied.push(Emptied { segment: number, cold_groups, seq: self.applied });
            self.free_emptied();
            return;
        }
        let victim = self.new_victim(number);
        self.read_summary_part(victim, None);
    }

    /// The victim cannot be read: it stays as it is, its readable records are served.
    fn abandon_victim(&mut self) {
        self.cleaner.starved = false;
        if let Some(victim) = self.cleaner.victim.take() {
            self.counts.corrupt_reads += 1;
            self.cleaner.leave_alone(victim.segment);
            self.segments.get_mut(victim.segment).role = Role::Sealed;
            self.give_up_retiring(victim.segment);
        }
    }

    /// The index entry that points to the record at `location`, if there is one.
    pub(crate) fn target_of(&mut self, entry: &SummaryEntry, location: Location) -> Option<Target> {
        let is_marked = self.is_marked_dead(entry, location);
        if is_marked && !cfg!(debug_assertions) {
            return None;
        }
        let keyspace = self.keyspaces.reachable(entry.keyspace)?;
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        keyspace.index.candidates(entry.position, &mut candidates);
        let found = candidates.iter().map(Target::unpack).find(|target| match target {
            Target::Device(at) => *at == location,
            Target::Frame(bits) => self.cache.peek(FrameId::from_bits(*bits)).location == location.raw(),
        });
        self.candidates = candidates;
        let is_broken = self.identity.mutations.is_on("marks_of_any_length");
        debug_assert!(!is_marked || found.is_none() || is_broken, "{location:?} of {entry:?} is marked dead");
        found.filter(|_| !is_marked)
    }

    /// Whether the record at `location` is known to be dead without a search of the index.
    pub(crate) fn is_marked_dead(&self, entry: &SummaryEntry, location: Location) -> bool {
        let any_length = self.identity.mutations.is_on("marks_of_any_length");
        self.segments.is_dead(location, entry.units, any_length)
    }

    /// The index leaves out a record that has expired and that nobody needs: its key is in `key`, if its
    /// summary entry carries it.
    pub(crate) fn forget_expired(&mut self, entry: &SummaryEntry, key: &[u8], location: Location) {
        if !self.identity.mutations.is_on("past_not_noted_by_cleaner") {
            self.show_past(self.expiry_of_entry(entry));
        }
        let Some(target) = self.target_of(entry, location) else { return };
        self.keep_for_backup(location, entry.seq, Seq::MAX);
        if let Target::Frame(bits) = target {
            self.cache.remove(FrameId::from_bits(bits));
        }
        let mut leaves_order = false;
        if let Some(keyspace) = self.keyspaces.reachable_mut(entry.keyspace) {
            keyspace.index.remove(entry.position, target.pack());
            // A key that was written past this record, when it was unreadable, stays.
            let stays = self.identity.mutations.is_on("expiry_leaves_order");
            if entry.is_keyed() && !stays && !self.reads.is_passed(location, entry.keyspace, key) {
                leaves_order = keyspace.note_gone(key);
            }
        }
        if leaves_order {
            // No snapshot shows this record; an older one may show the record before.
            let key = Key { keyspace: entry.keyspace, position: entry.position, bytes: key };
            self.keep_gone_key(&key, entry.seq, false);
        }
        self.segments.kill_record(location, entry.units as usize, entry.expiry_ms, entry.flags);
        self.end_touch(entry.keyspace, entry.position, entry.seq);
        self.sweeper.dropped_keys += 1;
    }

    /// All that the victim's summary lists has been moved or is dead.
    fn finish_victim(&mut self, victim: Victim) {
        self.cleaner.starved = false;
        let (segment, seq) = (victim.segment, self.applied);
        self.cleaner.sweep.met(self.segments.get(segment).tombstone_bytes);
        self.segments.clear_live(segment);
        self.end_retiring_walk(segment);
        self.cold.close_group(&self.segments);
        let cold_groups = self.cold.group_count();
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
            let is_retiring = self.is_retiring(number);
            if is_retiring && !self.goes_on_retiring() {
                self.give_up_retiring(number);
                return false;
            }
            // What is left of a retiring segment is served until it goes.
            let is_read = segment.pins > 0 && !is_retiring;
            if is_read || shown || !copied || !overwritten {
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
            self.split_forgets_segment(number);
            if is_retiring {
                self.write_free_header(number);
                return false;
            }
            self.reads.forget_segment(number);
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
        self.segments.pool().inventory().freed(number);
        if self.identity.mutations.is_on("reuse_before_freed") && !self.is_retiring(number) {
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
