//! Verifies a shard that serves: every record's checksum, and whether records and index lead to each other.
//!
//! Segment by segment the summary is read, then the records that it names, in pieces. A window of some
//! segments is then held against the index: each entry that leads into one of them must lead to a whole
//! record. Of records that the index leaves out, without having another for their position, a later walk
//! through all summaries looks for the deletion. One piece, one bounded number of entries, or one bounded
//! part of the index a step.
//!
//! Invariants:
//! 1. A finding is no effect of what happens meanwhile: a segment that was emptied or reused since is left
//!    out, a record that was replaced is judged by what the index says then, and a position that is written
//!    during the pass is not judged at all.
//! 2. Only the segment that is read now is pinned, so that cleaning goes on.
//! 3. Memory: a bit for 32 bytes of a window of segments, bounded by [`WINDOW_BYTES`], [`SUSPECTS_MAX`] records that
//!    wait for their deletion, one summary, one piece.
//!
//! It changes nothing; a crash leaves nothing of it. Records in segments that were open when it began are
//! read too: those segments are left, so that they get their summaries.

mod judge;
mod read;

pub(crate) use read::RecordFound;

use crate::format::summary::{SummaryCursor, SummaryEntry};
use crate::location::{Location, SEGMENT_BYTES_MAX, Target, UNIT_BYTES};
use crate::segments::Role;
use crate::shard::LogShard;
use judge::Suspects;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result};
use tierstone_engine::Verification;
use tierstone_media::IoBuffer;

/// What part of a shard's memory the window takes: the larger it is, the fewer walks through the index a pass takes.
const WINDOW_PART: u64 = 64;
/// And how many bytes at least and at most: 16 segments of the largest kind, and 128.
const WINDOW_BYTES: RangeInclusive<u64> = 2 << 20..=16 << 20;
/// Entries of summaries, and of the index, that one step looks at: about 100 µs.
const ENTRIES_A_STEP: usize = 500;
/// Bytes of records that one step reads and checks at most, single records that are longer apart.
const PIECE_BYTES: usize = 128 << 10;
/// Walks for deletions at most: cleaning may move what is looked for.
const DELETION_WALKS_MAX: u32 = 16;
/// Records that may wait for their deletion at a time.
const SUSPECTS_MAX: usize = 1 << 17;

/// What a pass is doing.
#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    /// Reading the segments of a window.
    Records,
    /// Walking the index for the window: keyspaces left, and where in the first.
    Index { keyspaces: VecDeque<KeyspaceId>, cursor: Position },
    /// Looking for deletions.
    Deletions,
}

/// The segment that is being read.
#[derive(Debug)]
struct Current {
    segment: u32,
    summary: Option<IoBuffer>,
    cursor: SummaryCursor,
    piece: Vec<SummaryEntry>,
    is_reading: bool,
    /// Where records begin, a bit a unit; damaged ones too, which are findings of their own.
    begins: Vec<u64>,
    is_ended: bool,
}

/// A segment that was read.
#[derive(Debug)]
struct Seen {
    generation: u64,
    begins: Vec<u64>,
}

/// A verification under way, and what the last one has found.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    phase: Phase,
    /// Segments that are left, with their generations.
    waiting: VecDeque<(u32, u64)>,
    current: Option<Current>,
    /// By their numbers.
    window: BTreeMap<u32, Seen>,
    suspects: Suspects,
    report: Option<Verification>,
    /// All that is left waits for its footer.
    is_waiting: bool,
    /// Walks for deletions so far, and whether a segment was cleaned before the last one came to it: its
    /// deletions are elsewhere then.
    deletion_walks: u32,
    has_missed: bool,
}

impl Verifier {
    /// Whether a verification is under way.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.phase, Phase::Idle)
    }

    /// What was found so far.
    pub fn report(&self) -> Option<&Verification> {
        self.report.as_ref()
    }

    /// Whether a step would do something now.
    pub fn wants_step(&self) -> bool {
        match (&self.phase, &self.current) {
            (Phase::Idle, _) => false,
            (_, Some(current)) => !current.is_reading,
            (_, None) => !self.is_waiting,
        }
    }

    /// A key at `position` is written: what is known of older records says nothing any more.
    #[inline]
    pub fn note_change(&mut self, position: Position) {
        if !matches!(self.phase, Phase::Idle) {
            self.suspects.clear_of(position);
        }
    }

    fn note(&mut self, kind: &str, lost_keys: u64, finding: String) {
        if let Some(report) = &mut self.report {
            report.note(kind, lost_keys, finding);
        }
    }
}

impl LogShard {
    pub(crate) fn begin_verify(&mut self) -> Result<()> {
        if let Some(error) = self.unwritable() {
            return Err(error);
        }
        if !matches!(self.verifier.phase, Phase::Idle) {
            return Err(Error::new(ErrorKind::Busy, "a verification is under way"));
        }
        let waiting = self.all_segments();
        let bytes_total =
            waiting.iter().map(|(number, _)| u64::from(self.segments.get(*number).data_end)).sum();
        self.verifier = Verifier {
            phase: Phase::Records,
            waiting,
            report: Some(Verification { is_running: true, bytes_total, ..Verification::default() }),
            ..Verifier::default()
        };
        Ok(())
    }

    /// Segments with records; open ones are left, so that they get a summary.
    fn all_segments(&mut self) -> VecDeque<(u32, u64)> {
        self.hot.roll(&mut self.segments);
        self.cold.roll(&mut self.segments);
        let holds = |role| matches!(role, Role::Open | Role::Sealed | Role::Cleaning);
        let all = self.segments.iter().filter(|(_, segment)| holds(segment.role));
        all.map(|(number, segment)| (number, segment.generation)).collect()
    }

    /// Gives the pass up; what is being read is let go when it comes.
    pub(crate) fn end_verify(&mut self) {
        let verifier = &mut self.verifier;
        verifier.waiting.clear();
        verifier.window.clear();
        match &mut verifier.current {
            Some(current) if current.is_reading => current.is_ended = true,
            Some(_) => self.let_verified_go(),
            None => {}
        }
        self.finish_verify();
    }

    fn finish_verify(&mut self) {
        self.verifier.phase = Phase::Idle;
        self.verifier.suspects = Suspects::default();
        if let Some(report) = &mut self.verifier.report {
            report.is_running = false;
        }
    }

    /// Does a bounded part of the pass.
    pub(crate) fn verify_step(&mut self) {
        match &mut self.verifier.phase {
            Phase::Idle => {}
            Phase::Records => self.verify_records(),
            Phase::Index { keyspaces, cursor } => {
                let Some(&keyspace) = keyspaces.front() else { return self.end_window() };
                let cursor = *cursor;
                self.verify_index(keyspace, cursor);
            }
            Phase::Deletions => self.look_for_deletions(),
        }
    }

    fn verify_records(&mut self) {
        if let Some(current) = &self.verifier.current {
            if !current.is_reading {
                self.verify_piece();
            }
        } else if self.verifier.window.len() as u64 >= self.window_segments() {
            self.begin_index_walk();
        } else if !self.begin_segment() && self.verifier.waiting.is_empty() {
            if self.verifier.window.is_empty() {
                self.begin_deletions();
            } else {
                self.begin_index_walk();
            }
        }
    }

    /// Begins the next segment that can be read now; false when there is none.
    fn begin_segment(&mut self) -> bool {
        for _ in 0..self.verifier.waiting.len() {
            let Some((number, generation)) = self.verifier.waiting.pop_front() else { break };
            let segment = self.segments.get(number);
            match segment.role {
                Role::Open if segment.generation == generation => {
                    self.verifier.waiting.push_back((number, generation));
                }
                Role::Sealed | Role::Cleaning if segment.generation == generation => {
                    self.verifier.is_waiting = false;
                    self.read_verified_summary(number);
                    return true;
                }
                _ if matches!(self.verifier.phase, Phase::Deletions) => self.verifier.has_missed = true,
                _ => {
                    if let Some(report) = &mut self.verifier.report {
                        report.moved_segments += 1;
                    }
                }
            }
        }
        self.verifier.is_waiting = !self.verifier.waiting.is_empty();
        false
    }

    fn begin_index_walk(&mut self) {
        let keyspaces = self.keyspaces.iter().map(|keyspace| keyspace.id).collect();
        self.verifier.phase = Phase::Index { keyspaces, cursor: Position(0) };
    }

    /// Holds some entries of the index against the window.
    fn verify_index(&mut self, keyspace: KeyspaceId, cursor: Position) {
        let mut found = Vec::new();
        let next = match self.keyspaces.get(keyspace) {
            None => crate::index::ScanProgress::End,
            Some(keyspace) => keyspace.index.scan(cursor, ENTRIES_A_STEP, &mut found),
        };
        for value in found {
            let location = match Target::unpack(value) {
                Target::Device(location) => location,
                Target::Frame(bits) => {
                    Location::from_raw(self.cache.peek(tierstone_cache::FrameId::from_bits(bits)).location)
                }
            };
            self.verify_entry(keyspace, location);
        }
        let Phase::Index { keyspaces, cursor } = &mut self.verifier.phase else { return };
        match next {
            crate::index::ScanProgress::Next(at) => *cursor = at,
            crate::index::ScanProgress::End => {
                keyspaces.pop_front();
                *cursor = Position(0);
            }
        }
    }

    fn verify_entry(&mut self, keyspace: KeyspaceId, location: Location) {
        let Some(seen) = self.verifier.window.get(&location.segment()) else { return };
        let segment = self.segments.get(location.segment());
        let is_same =
            segment.generation == seen.generation && matches!(segment.role, Role::Sealed | Role::Cleaning);
        if !is_same {
            return;
        }
        let begins_here = is_set(&seen.begins, location.unit());
        if let Some(report) = &mut self.verifier.report {
            report.index_entries += 1;
        }
        if !begins_here {
            let (segment, unit) = (location.segment(), location.unit());
            let finding = format!(
                "segment {segment}, unit {unit}: the index of keyspace {} leads to a place where no record begins",
                keyspace.0
            );
            self.verifier.note("index", 1, finding);
        }
    }

    /// Segments whose records are held against the index at a time.
    fn window_segments(&self) -> u64 {
        let bytes = self.settings.memory_bytes / WINDOW_PART;
        let of_one = self.segments.segment_bytes().div_ceil(UNIT_BYTES as u64 * 8);
        bytes.clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end()) / of_one.max(1)
    }

    fn end_window(&mut self) {
        self.verifier.window.clear();
        self.verifier.phase = Phase::Records;
    }
}

/// Bits for every unit of a segment.
pub(crate) fn no_bits(segment_bytes: u64) -> Vec<u64> {
    vec![0; (segment_bytes.min(SEGMENT_BYTES_MAX) as usize / UNIT_BYTES).div_ceil(64)]
}

/// Whether a unit's bit is set.
pub(crate) fn is_set(bits: &[u64], unit: u32) -> bool {
    bits.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
}

/// Sets a unit's bit.
pub(crate) fn set(bits: &mut [u64], unit: u32) {
    if let Some(word) = bits.get_mut(unit as usize / 64) {
        *word |= 1 << (unit % 64);
    }
}

#[cfg(test)]
#[path = "verify_test.rs"]
mod verify_test;
