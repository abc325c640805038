//! Backup: the records of one cut, read segment by segment beside the traffic.
//!
//! The cut is a sequence and a time. Whatever counted then lies in a segment of then, and stays there until that
//! segment has been read: such a segment is neither emptied nor freed, which is all that a backup holds
//! back. A record that is replaced in it before that leaves a bit; so a scan takes what the index points to
//! and what has a bit, of sequences up to the cut. A segment that has been read is let go at once.
//!
//! Invariants:
//! 1. Every record that counted at the cut is given exactly once, in the segment in which it lay then
//!    (`replaced_not_kept_for_backup`, `snapshot_pins_ignored`).
//! 2. A keyspace that is dropped after the cut keeps its index until everything has been read.
//! 3. What was given is durable here, and decided: only sealed segments are read.
//! 4. Memory: a bit for 32 bytes of segments in which something was replaced and that have not been read, one summary,
//!    one piece of the device, [`READY_BYTES`] that were not taken, and one record.
//! 5. A full store waits for segments that the backup reads next, but no longer than [`PATIENCE_US`] for any: then the
//!    backup is lost and says so. The emptiest segment is read first, as it would be cleaned first.
//!
//!
//! A backup that is made since another one gives what is in segments that the other does not hold, and of the rest names
//! ([`parts`]).
//!
//! All of it is in memory: a crash ends the backup, and nothing is held back after it.

mod parts;
mod scan;

use crate::location::Location;
use crate::segments::Role;
use crate::shard::LogShard;
use crate::verify::{is_set, no_bits, set};
use parts::{Expiries, Plan};
use scan::Current;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tierstone_base::{Error, ErrorKind, Result, Seq};
use tierstone_engine::cuts::Cut;
use tierstone_engine::{BackupCut, BackupPiece, BackupSince, BackupStep};

/// The backup of a shard.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    current: Option<Box<Backup>>,
    /// Reads of backups so far.
    reads: u64,
}

/// A backup under way.
#[derive(Debug)]
struct Backup {
    cut: Cut,
    /// Segments that have not been read whole.
    waiting: BTreeMap<u32, Waiting>,
    /// Of these, those that the base shows as they are: they are only named.
    kept: Vec<u32>,
    /// What touches say of values in segments that the base holds, and how far the walk through the touches has come.
    expiries: Expiries,
    current: Option<Current>,
    /// All that is left waits for its footer.
    waits_for_footers: bool,
    /// Records of the segment that is being read.
    piece: Option<BackupPiece>,
    /// Entries of the table of segments, and when some were given, or the backup began.
    parts: BackupPiece,
    parts_given_us: u64,
    ready: VecDeque<BackupPiece>,
    ready_bytes: usize,
    failed: Option<Error>,
    is_over: bool,
    /// Since when a full store waits for a segment to be read.
    waited_for_since_us: Option<u64>,
    /// Since when the next read gives way to writes.
    gives_way_since_us: Option<u64>,
}

/// A segment that has still to be read.
#[derive(Debug)]
struct Waiting {
    /// In which units records begin that were replaced since the cut.
    replaced: Option<Vec<u64>>,
    /// Its live records at the cut.
    live: u64,
    plan: Plan,
}

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of pieces that were not taken above which nothing more is read.
const READY_BYTES: usize = 1 << 20;
/// Entries of the table are given after so long at least, in microseconds: of segments that are only looked at nothing else
/// comes, and who reads the backup takes silence for its end.
const PARTS_EVERY_US: u64 = 1_000_000;
/// How long a full store waits for a segment to be read, in microseconds.
const PATIENCE_US: u64 = 1_000_000;
/// How long a read gives way to a group that is being written, in microseconds: a device that does both makes
/// the group, and who waits for it, slower.
const GIVES_WAY_US: u64 = 1_000;

impl Backup {
    fn is_at_work(&self) -> bool {
        self.failed.is_none() && !self.is_over
    }

    fn has_room(&self) -> bool {
        let piece = self.piece.as_ref().map_or(0, |piece| piece.bytes.len());
        self.ready_bytes + piece + self.parts.bytes.len() < READY_BYTES
    }

    fn is_replaced(&self, location: Location) -> bool {
        let bits = self.waiting.get(&location.segment()).and_then(|waiting| waiting.replaced.as_ref());
        bits.is_some_and(|bits| is_set(bits, location.unit()))
    }

    fn give_piece(&mut self) {
        if let Some(piece) = self.piece.take().filter(|piece| piece.records > 0) {
            self.give(piece);
        }
    }

    fn give(&mut self, piece: BackupPiece) {
        self.ready_bytes += piece.bytes.len();
        self.ready.push_back(piece);
    }
}

impl Backups {
    /// Whether one has not been ended.
    pub fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    /// Whether a segment has still to be read.
    pub fn waits_for(&self, segment: u32) -> bool {
        self.current.as_ref().is_some_and(|backup| backup.waiting.contains_key(&segment))
    }

    /// When a step would do something that no completion announces.
    pub fn next_step_us(&self, now_us: u64) -> Option<u64> {
        let backup = self.current.as_deref().filter(|backup| backup.is_at_work())?;
        let wants_step = match &backup.current {
            Some(current) => !current.is_reading() && backup.has_room(),
            None if backup.has_names_to_give() => backup.has_room(),
            None => !backup.waits_for_footers,
        };
        wants_step.then(|| backup.gives_way_since_us.map_or(now_us, |since_us| since_us + GIVES_WAY_US))
    }
}

impl LogShard {
    pub(crate) fn start_backup(&mut self, since: Option<BackupSince>) -> Result<BackupCut> {
        if let Some(error) = self.unwritable() {
            return Err(error);
        }
        if self.backups.current.is_some() {
            return Err(Error::new(ErrorKind::Busy, "a backup is under way"));
        }
        self.check_base(since.as_ref())?;
        // Open segments are left, so that they get their summaries.
        self.hot.roll(&mut self.segments);
        self.cold.roll(&mut self.segments);
        self.keep_what_is_left();
        let cut = self.snapshots.begin_backup(self.applied, self.now);
        let emptied: BTreeSet<u32> = self.cleaner.emptied_segments().collect();
        let holds = |role| matches!(role, Role::Open | Role::Sealed | Role::Cleaning);
        let all = self.segments.iter().filter(|(number, segment)| {
            let is_live = segment.live_records > 0 || segment.is_estimated;
            holds(segment.role) && is_live && !emptied.contains(number)
        });
        let waiting = |live| Waiting { replaced: None, live, plan: Plan::Give };
        let mut waiting: BTreeMap<u32, Waiting> =
            all.map(|(number, segment)| (number, waiting(u64::from(segment.live_records)))).collect();
        let (kept, expiries) = self.plan_backup(since, cut, &mut waiting);
        waiting.keys().for_each(|number| self.segments.pin_for_snapshots(*number));
        self.backups.current = Some(Box::new(Backup {
            cut,
            waiting,
            kept,
            expiries,
            current: None,
            waits_for_footers: false,
            piece: None,
            parts: BackupPiece::of_parts(),
            parts_given_us: self.now.monotonic_us,
            ready: VecDeque::new(),
            ready_bytes: 0,
            failed: None,
            is_over: false,
            waited_for_since_us: None,
            gives_way_since_us: None,
        }));
        Ok(BackupCut {
            seq: cut.seq,
            wall_ms: cut.wall_ms,
            past_ms: self.past.shown_ms,
            bytes: self.segments.live_bytes(),
            segment_bytes: self.segments.segment_bytes(),
            store: self.identity.store,
            opening: self.identity.opening_mark,
        })
    }

    pub(crate) fn next_of_backup(&mut self) -> Result<BackupStep> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(backup) = self.backups.current.as_deref_mut() else {
            return Err(Error::new(ErrorKind::InvalidInput, "there is no backup"));
        };
        if let Some(error) = &backup.failed {
            return Err(error.clone());
        }
        Ok(match backup.ready.pop_front() {
            Some(piece) => {
                backup.ready_bytes -= piece.bytes.len();
                BackupStep::Piece(piece)
            }
            None if backup.is_over => BackupStep::End,
            None => BackupStep::Later,
        })
    }

    /// Ends the backup, if there is one, and lets go of all that it holds back.
    pub(crate) fn drop_backup(&mut self) {
        self.release_backup();
        self.backups.current = None;
    }

    /// The shard is being closed.
    pub(crate) fn shut_backup(&mut self) {
        if self.backups.current.as_ref().is_some_and(|backup| backup.is_at_work()) {
            self.fail_backup(Error::new(ErrorKind::Busy, "the store is being closed"));
        }
    }

    fn fail_backup(&mut self, error: Error) {
        self.release_backup();
        if let Some(backup) = self.backups.current.as_deref_mut() {
            backup.failed = Some(error);
            backup.ready.clear();
            (backup.piece, backup.parts, backup.ready_bytes) = (None, BackupPiece::of_parts(), 0);
        }
    }

    /// Nothing more is to be read.
    fn release_backup(&mut self) {
        let Some(backup) = self.backups.current.as_deref_mut() else { return };
        backup.current = None;
        backup.kept.clear();
        backup.expiries = Expiries::default();
        for number in std::mem::take(&mut backup.waiting).into_keys() {
            self.segments.unpin_for_snapshots(number);
        }
        self.snapshots.end_backup();
        self.keyspaces.retain_dropped(&self.snapshots, self.segments.opened());
        self.cleaner.look_again();
    }

    /// Whether the next read waits while a group is being written.
    fn backup_gives_way(&mut self) -> bool {
        let (now_us, is_writing) = (self.now.monotonic_us, self.hot.is_writing());
        let Some(backup) = self.backups.current.as_deref_mut() else { return false };
        if !is_writing || backup.waited_for_since_us.is_some() {
            backup.gives_way_since_us = None;
            return false;
        }
        let since_us = *backup.gives_way_since_us.get_or_insert(now_us);
        now_us.saturating_sub(since_us) < GIVES_WAY_US
    }

    /// The index stops pointing to a record: if the cut shows it and its segment was not read, it leaves a bit.
    pub(crate) fn keep_for_backup(&mut self, location: Location, seq: Seq, replaced_at: Seq) {
        let Some(backup) = self.backups.current.as_deref_mut() else { return };
        if seq > backup.cut.seq
            || replaced_at <= backup.cut.seq
            || self.identity.mutations.is_on("replaced_not_kept_for_backup")
        {
            return;
        }
        if let Some(waiting) = backup.waiting.get_mut(&location.segment()) {
            let segment_bytes = self.segments.segment_bytes();
            set(waiting.replaced.get_or_insert_with(|| no_bits(segment_bytes)), location.unit());
        }
    }

    /// Whether a full store may wait for what the backup lets go next. A backup that keeps it waiting for too long
    /// is lost, which frees what it held.
    pub(crate) fn is_backup_waited_for(&mut self) -> bool {
        let now_us = self.now.monotonic_us;
        let Some(backup) = self.backups.current.as_deref_mut().filter(|backup| backup.is_at_work()) else {
            return false;
        };
        let since_us = *backup.waited_for_since_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) > PATIENCE_US {
            let left = backup.waiting.len();
            let message = format!(
                "the backup was given up: the store is full, and {left} segments that the backup had still to read \
                 kept their space for longer than writers can wait; raise the capacity, take the backup at a time \
                 of fewer writes, or take its pieces more quickly"
            );
            self.fail_backup(Error::new(ErrorKind::SnapshotLost, message));
        }
        true
    }
}
