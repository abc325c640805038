//! Backup: the records of one cut, read beside the traffic in the order of the positions of their keys.
//!
//! The cut is a sequence and a time. A walk goes through the indexes of the keyspaces of then and gives each record that
//! the cut shows. What is replaced or deleted where the walk has not been yet is given at once, as it was; the walk
//! then finds what replaced it, which the cut does not show. So a backup keeps no record from being cleaned, and
//! holds nothing back but dropped keyspaces.
//!
//! Invariants:
//! 1. Every record that counted at the cut is given exactly once (`replaced_not_kept_for_backup`,
//!    `backup_gives_again`).
//! 2. A keyspace that is dropped after the cut keeps its indexes until the walk is through.
//! 3. Nothing is given before everything up to the cut is durable, and decided (`backup_given_undecided`).
//! 4. Memory: [`READY_BYTES`] that were not taken, [`REPLACED_BYTES`] that were replaced meanwhile, and what one step adds.
//!    Beyond it writes wait, until somebody takes a piece; for [`PATIENCE_US`] at most: then the backup is lost and says so.
//!
//! A part of the backup ([`tierstone_engine::backup`]) is a piece here: blocks are cleaned and their records move, so that
//! nothing could be named later. So there are whole backups only.
//!
//! All of it is in memory: a crash ends the backup, and nothing is held back after it.

use crate::format::RecordHead;
use crate::read::meta_of;
use crate::shard::PmShard;
use std::collections::VecDeque;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Position, Result, Seq};
use tierstone_engine::backup::place_digest;
use tierstone_engine::cuts::Cut;
use tierstone_engine::{
    BackupCut, BackupPiece, BackupRecord, BackupSince, BackupStep, HeldPart, Key, PartEntry, PartName,
    PartState,
};
use tierstone_media::BLOCK_BYTES;

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of pieces that were not taken above which the walk waits.
const READY_BYTES: usize = 1 << 20;
/// Bytes of pieces that were not taken above which writes wait.
const REPLACED_BYTES: usize = 16 << 20;
/// How long writes wait, in microseconds.
const PATIENCE_US: u64 = 1_000_000;
/// Places that a step looks at.
const PLACES_A_STEP: usize = 16;
/// The smallest segments of a store on devices that is of use, in bytes, and what a record may take more there.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const RECORD_OVERHEAD_BYTES: u64 = 128;
/// The largest segments there: they take the longest record that is written here.
const SEGMENT_BYTES_MOST: u64 = 32 << 20;

/// The backup of a shard.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    current: Option<Box<Backup>>,
}

/// A backup under way.
#[derive(Debug)]
struct Backup {
    cut: Cut,
    /// Keyspaces of the cut that the walk has not left, in the order in which it comes to them.
    left: VecDeque<KeyspaceId>,
    /// Where it is in the first of them: what lies before has been given.
    from: Position,
    /// Records that gather.
    piece: Option<OpenPiece>,
    /// The life of all its parts, and how many there were.
    life: u64,
    pieces: u32,
    parts: BackupPiece,
    ready: VecDeque<BackupPiece>,
    ready_bytes: usize,
    failed: Option<Error>,
    is_over: bool,
    /// Since when writes wait for somebody to take a piece, and since when a full store waits for the end.
    waited_for_since_us: Option<u64>,
    full_since_us: Option<u64>,
}

#[derive(Debug)]
struct OpenPiece {
    piece: BackupPiece,
    digest: u64,
}

impl Backup {
    fn is_at_work(&self) -> bool {
        self.failed.is_none() && !self.is_over
    }

    fn bytes(&self) -> usize {
        self.ready_bytes
            + self.parts.bytes.len()
            + self.piece.as_ref().map_or(0, |open| open.piece.bytes.len())
    }

    /// Whether the walk has still to come to a key.
    fn is_ahead(&self, keyspace: KeyspaceId, position: Position) -> bool {
        match self.left.front() {
            Some(first) if *first == keyspace => position >= self.from,
            Some(_) => self.left.contains(&keyspace),
            None => false,
        }
    }

    fn shows(&self, head: &RecordHead) -> bool {
        head.seq <= self.cut.seq && self.cut.is_unexpired(head.expiry_ms)
    }

    fn push(&mut self, head: &RecordHead, key: &[u8], value: &[u8]) {
        let (life, number) = (self.life, self.pieces);
        let open = self
            .piece
            .get_or_insert_with(|| OpenPiece { piece: BackupPiece::of_part(number, life), digest: 0 });
        let place = open.piece.records as u32;
        let meta = meta_of(head);
        open.piece.push(&BackupRecord {
            place,
            keyspace: KeyspaceId(head.keyspace),
            kind: meta.kind,
            expiry_ms: meta.expiry_ms,
            key,
            value,
        });
        open.digest = open.digest.wrapping_add(place_digest(place));
        if open.piece.bytes.len() >= PIECE_BYTES {
            self.close_piece();
        }
    }

    /// Gives the records that have gathered, and writes their part into the table.
    fn close_piece(&mut self) {
        let Some(OpenPiece { piece, digest }) = self.piece.take() else { return };
        let part = self.pieces;
        self.pieces += 1;
        let name = PartName { part, life: self.life, checksum: checksum(self.life, &piece.bytes) };
        let held = HeldPart { name, live: piece.records, digest };
        self.give(piece);
        self.parts.push_part(&PartEntry { held, state: PartState::Given, expiries: Vec::new() });
        if self.parts.bytes.len() >= PIECE_BYTES {
            self.close_parts();
        }
    }

    fn close_parts(&mut self) {
        let parts = std::mem::replace(&mut self.parts, BackupPiece::of_parts());
        if parts.records > 0 {
            self.give(parts);
        }
    }

    fn give(&mut self, piece: BackupPiece) {
        self.ready_bytes += piece.bytes.len();
        self.ready.push_back(piece);
    }

    /// The walk has come to `next` in its keyspace, or to the end of it.
    fn go_on(&mut self, next: Option<Position>) {
        match next {
            Some(next) => self.from = next,
            None => {
                self.left.pop_front();
                self.from = Position(0);
            }
        }
        if self.left.is_empty() {
            self.close_piece();
            self.close_parts();
            self.is_over = true;
        }
    }

    fn fail(&mut self, error: Error) {
        self.left.clear();
        self.ready.clear();
        (self.piece, self.parts, self.ready_bytes) = (None, BackupPiece::of_parts(), 0);
        self.failed = Some(error);
    }
}

/// The size of segments with which a store on devices takes records of up to so many bytes; 0: with any.
fn segment_bytes_for(record_bytes: u64) -> u64 {
    // A record takes a quarter of a segment at most, without the blocks of its header, footer and padding.
    let wanted = (record_bytes + RECORD_OVERHEAD_BYTES) * 4 + 4 * BLOCK_BYTES as u64;
    if wanted <= SEGMENT_BYTES_MIN { 0 } else { wanted.next_power_of_two().min(SEGMENT_BYTES_MOST) }
}

impl Backups {
    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |backup| backup.bytes() as u64)
    }
}

impl PmShard {
    /// See [`tierstone_engine::Engine::begin_backup`].
    pub(crate) fn start_backup(&mut self, now: Now, since: Option<&BackupSince>) -> Result<BackupCut> {
        self.see(now);
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.is_shutting {
            return Err(Error::new(ErrorKind::Busy, "the store is being closed"));
        }
        if self.backups.current.is_some() {
            return Err(Error::new(ErrorKind::Busy, "a backup is under way"));
        }
        if since.is_some() {
            let message = "a store that lies wholly in persistent memory makes whole backups only: its records move, so \
                           that none made since another one could name them; leave the base out";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let cut = self.snapshots.begin_backup(self.applied, self.now);
        let mut backup = Box::new(Backup {
            cut,
            left: self.keyspaces.keys().copied().collect(),
            from: Position(0),
            piece: None,
            life: self.blocks.new_life(),
            pieces: 0,
            parts: BackupPiece::of_parts(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            failed: None,
            is_over: false,
            waited_for_since_us: None,
            full_since_us: None,
        });
        if backup.left.is_empty() {
            backup.is_over = true;
            self.snapshots.end_backup();
        }
        self.backups.current = Some(backup);
        Ok(BackupCut {
            seq: cut.seq,
            wall_ms: cut.wall_ms,
            past_ms: self.past.shown_ms,
            bytes: self.readable_bytes(),
            segment_bytes: segment_bytes_for(self.longest_bytes),
            store: self.maker.store,
            opening: self.maker.opening,
        })
    }

    /// See [`tierstone_engine::Engine::take_backup`].
    pub(crate) fn next_of_backup(&mut self) -> Result<BackupStep> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let decided = self.decided_for_backup();
        let Some(backup) = self.backups.current.as_deref_mut() else {
            return Err(Error::new(ErrorKind::InvalidInput, "there is no backup"));
        };
        if let Some(error) = &backup.failed {
            return Err(error.clone());
        }
        if decided < backup.cut.seq {
            return Ok(BackupStep::Later);
        }
        Ok(match backup.ready.pop_front() {
            Some(piece) => {
                backup.ready_bytes -= piece.bytes.len();
                backup.waited_for_since_us = None;
                BackupStep::Piece(piece)
            }
            None if backup.is_over => BackupStep::End,
            None => BackupStep::Later,
        })
    }

    /// Ends the backup, if there is one, and lets go of what it holds back.
    pub(crate) fn drop_backup(&mut self) {
        self.release_backup();
        self.backups.current = None;
    }

    fn decided_for_backup(&self) -> Seq {
        if self.mutations.is_on("backup_given_undecided") { Seq::MAX } else { self.decided() }
    }

    /// Whether a step would read on.
    pub(crate) fn backup_wants_step(&self) -> bool {
        let wants = |backup: &Backup| {
            backup.is_at_work() && backup.bytes() < READY_BYTES && self.decided_for_backup() >= backup.cut.seq
        };
        self.backups.current.as_deref().is_some_and(wants)
    }

    /// The walk goes on, some records at a step.
    pub(crate) fn backup_step(&mut self) {
        if self.is_shutting && self.backups.current.as_ref().is_some_and(|backup| backup.is_at_work()) {
            self.fail_backup(Error::new(ErrorKind::Busy, "the store is being closed"));
        }
        if !self.backup_wants_step() {
            return;
        }
        let Some(mut backup) = self.backups.current.take() else { return };
        let result = self.read_some(&mut backup);
        let is_over = backup.is_over;
        self.backups.current = Some(backup);
        match result {
            Err(error) => self.fail_backup(error),
            Ok(()) if is_over => self.release_backup(),
            Ok(()) => {}
        }
    }

    /// Gives the next records of the walk: all of the positions that it passes.
    fn read_some(&self, backup: &mut Backup) -> Result<()> {
        let (Some(keyspace), from) = (backup.left.front().copied(), backup.from) else { return Ok(()) };
        let Some(keys) = self.keys_at(keyspace, &backup.cut) else {
            backup.go_on(None);
            return Ok(());
        };
        let mut places = Vec::new();
        let next = keys.scan(from, PLACES_A_STEP, |place| places.push(place));
        let mut found = Vec::new();
        for place in places {
            let (head, record) = self.record(place)?;
            let position = Position(head.position);
            if position >= from && next.is_none_or(|next| position < next) {
                found.push((position, head, record));
            }
        }
        // So that the walk may stop at any position.
        found.sort_by_key(|(position, ..)| *position);
        let (began, mut last) = (backup.bytes(), None);
        for (position, head, record) in &found {
            let is_new = last.is_some_and(|last| last != *position);
            if is_new && backup.bytes() >= began + PIECE_BYTES {
                backup.go_on(Some(*position));
                return Ok(());
            }
            last = Some(*position);
            if backup.shows(head) {
                backup.push(head, &self.key_of(head, record)?, &self.value_of(head, record)?);
            }
        }
        backup.go_on(next);
        Ok(())
    }

    /// The record at `place` is replaced: if the cut shows it and the walk has not come to it, it is given now.
    pub(crate) fn give_replaced(&mut self, key: &Key<'_>, place: u64, seq: Seq) {
        let Some(backup) = self.backups.current.as_deref().filter(|backup| backup.is_at_work()) else {
            return;
        };
        let is_ahead = backup.is_ahead(key.keyspace, key.position)
            || self.mutations.is_on("backup_gives_again") && !backup.left.is_empty();
        if !is_ahead || seq > backup.cut.seq || self.mutations.is_on("replaced_not_kept_for_backup") {
            return;
        }
        let Some(mut backup) = self.backups.current.take() else { return };
        let given = self.record(place).and_then(|(head, record)| {
            if backup.shows(&head) {
                backup.push(&head, &self.key_of(&head, &record)?, &self.value_of(&head, &record)?);
            }
            Ok(())
        });
        self.backups.current = Some(backup);
        if let Err(error) = given {
            self.fail_backup(error);
        }
    }

    /// Whether writes wait for somebody to take a piece.
    pub(crate) fn is_backup_behind(&self) -> bool {
        let is_behind = |backup: &Backup| backup.is_at_work() && backup.ready_bytes >= REPLACED_BYTES;
        self.backups.current.as_deref().is_some_and(is_behind)
    }

    /// Refuses a write for now while very much that was replaced has not been taken. When nobody takes any, the backup is
    /// lost.
    pub(crate) fn wait_for_backup(&mut self) -> Result<()> {
        let now_us = self.now.monotonic_us;
        if !self.is_backup_behind() {
            return Ok(());
        }
        let Some(backup) = self.backups.current.as_deref_mut() else { return Ok(()) };
        let since_us = *backup.waited_for_since_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) <= PATIENCE_US {
            return Err(Error::new(ErrorKind::Retry, "a backup takes what is replaced: step the engine"));
        }
        let message = format!(
            "the backup was given up: more was replaced than it was asked for, and writers waited for {} ms; take its \
             pieces more quickly, or take the backup at a time of fewer writes",
            PATIENCE_US / 1_000
        );
        self.fail_backup(Error::new(ErrorKind::SnapshotLost, message));
        Ok(())
    }

    /// Whether a full shard may wait for the end of the backup, which keeps dropped keyspaces; after a while it is
    /// lost, which gives them back.
    pub(crate) fn is_backup_waited_for(&mut self) -> bool {
        let now_us = self.now.monotonic_us;
        let Some(backup) = self.backups.current.as_deref_mut().filter(|backup| backup.is_at_work()) else {
            return false;
        };
        if self.retained.is_empty() {
            return false;
        }
        let since_us = *backup.full_since_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) > PATIENCE_US {
            let message = "the backup was given up: the store is full, and keyspaces that were dropped since it began kept \
                           their space for longer than writers can wait; take it at another time";
            self.fail_backup(Error::new(ErrorKind::SnapshotLost, message));
        }
        true
    }

    fn fail_backup(&mut self, error: Error) {
        if let Some(backup) = self.backups.current.as_deref_mut() {
            backup.fail(error);
        }
        self.release_backup();
    }

    /// Nothing more is to be read.
    fn release_backup(&mut self) {
        self.snapshots.end_backup();
        self.sweep_unshown();
    }
}
