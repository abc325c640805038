//! Reading segments for a backup: the summary, then in pieces the records that counted at the cut.
//!
//! Every step does a bounded part: a part of a summary is read and checksummed, [`ENTRIES_A_STEP`] of its entries are
//! looked at, or the records of one piece are copied. A record that is longer than a piece is a step of
//! its own.

use super::parts::Plan;
use super::{Backup, PARTS_EVERY_US, PIECE_BYTES};
use crate::format::record::{self, Decoded, FLAG_TOMBSTONE};
use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::io::IoTag;
use crate::location::{Location, Target, UNIT_BYTES};
use crate::segments::Role;
use crate::shard::LogShard;
use crate::stream::Stream;
use crate::summary_load::{SummaryLoad, blocks_of};
use tierstone_base::{Error, ErrorKind};
use tierstone_cache::FrameId;
use tierstone_engine::backup::place_digest;
use tierstone_engine::cuts::Cut;
use tierstone_engine::{BackupPiece, BackupRecord, HeldPart, PartState, ValueKind};
use tierstone_media::{IoBuffer, IoCompletion, IoKind};

/// Entries of a summary that one step looks at, each with a search of the index: about 100 µs.
const ENTRIES_A_STEP: usize = 1_000;
/// Bytes of the device that are read, checked and copied at a time: about 100 µs.
const READ_BYTES: usize = 128 << 10;

/// The segment that is being read.
#[derive(Debug)]
pub(super) struct Current {
    segment: u32,
    stage: Stage,
    summary: Vec<u8>,
    cursor: SummaryCursor,
    /// Records next to each other that are gathered or read.
    piece: Vec<SummaryEntry>,
    /// The number of its last read.
    read: u64,
    plan: Plan,
    /// Of the places of what the cut shows, as far as it has come.
    digest: u64,
    /// Places of records that the cut does not show, where they are told.
    gone: Vec<u32>,
}

#[derive(Debug)]
enum Stage {
    /// A part of the summary is being read.
    Loading(SummaryLoad),
    /// The summary is being gone through for the next piece.
    Gathering,
    /// The piece is being read.
    Reading,
}

impl Current {
    /// Whether nothing can be done before a read is done.
    pub fn is_reading(&self) -> bool {
        !matches!(self.stage, Stage::Gathering)
    }
}

/// What a part of a summary has come to.
enum Gathered {
    /// There are records to be read.
    Piece,
    /// The step's entries have been looked at.
    Part,
    /// There is nothing more in the segment.
    End,
    /// The summary makes no sense.
    Damaged,
}

impl LogShard {
    fn backup_mut(&mut self) -> Option<&mut Backup> {
        self.backups.current.as_deref_mut().filter(|backup| backup.is_at_work())
    }

    /// Does a bounded part of the backup.
    pub(crate) fn backup_step(&mut self) {
        let Some(backup) = self.backup_mut() else { return };
        if backup.current.is_none() && backup.has_names_to_give() {
            if backup.has_room() {
                self.name_for_backup();
            }
            return;
        }
        let has_begun = match &backup.current {
            Some(current) if current.is_reading() || !backup.has_room() => return,
            None if backup.waiting.is_empty() => return self.finish_backup(),
            current => current.is_some(),
        };
        if self.backup_gives_way() {
            return;
        }
        if has_begun { self.gather_for_backup() } else { self.begin_backup_segment() }
    }

    /// Everything has been read.
    fn finish_backup(&mut self) {
        self.release_backup();
        if let Some(backup) = self.backups.current.as_deref_mut() {
            backup.give_parts();
            backup.is_over = true;
        }
    }

    /// Begins the segment that would be cleaned next: the victim of the cleaner, then the emptiest.
    fn begin_backup_segment(&mut self) {
        let victim = self.cleaner.victim_segment();
        let Some(backup) = self.backups.current.as_deref_mut() else { return };
        let readable = backup.waiting.keys().copied().filter_map(|number| {
            let segment = self.segments.get(number);
            let is_sealed = matches!(segment.role, Role::Sealed | Role::Cleaning);
            is_sealed.then_some((Some(number) != victim, segment.live_bytes, number))
        });
        let first = readable.min();
        // A footer that is written brings the step that goes on.
        backup.waits_for_footers = first.is_none();
        let Some((_, _, number)) = first else { return };
        let plan = backup.waiting.get(&number).map_or(Plan::Give, |waiting| waiting.plan);
        let segment = self.segments.get(number);
        let current = Current {
            segment: number,
            stage: Stage::Gathering,
            summary: Vec::new(),
            cursor: SummaryCursor::new(segment.summary.records),
            piece: Vec::new(),
            read: 0,
            plan,
            digest: 0,
            gone: Vec::new(),
        };
        let load = SummaryLoad::new(segment);
        self.read_backup_summary(current, load, None);
    }

    fn read_backup_summary(&mut self, mut current: Current, load: SummaryLoad, spare: Option<IoBuffer>) {
        let begin = self.identity.geometry.segment_offset(current.segment);
        let (offset, buffer) = load.next_read(begin, spare);
        current.stage = Stage::Loading(load);
        self.read_for_backup(current, offset, buffer);
    }

    fn read_for_backup(&mut self, mut current: Current, offset: u64, buffer: IoBuffer) {
        self.backups.reads += 1;
        current.read = self.backups.reads;
        let tag = IoTag::Backup { segment: current.segment, read: current.read };
        self.requests.push(tag, IoKind::Read, offset, buffer);
        if let Some(backup) = self.backup_mut() {
            (backup.current, backup.gives_way_since_us) = (Some(current), None);
        }
    }

    /// A part of a summary, or a piece, came.
    pub(crate) fn backup_read(&mut self, number: u32, read: u64, completion: IoCompletion) {
        let Some(backup) = self.backup_mut() else { return };
        // A read of a backup that was given up is for none.
        let Some(mut current) = backup.current.take_if(|current| current.read == read) else { return };
        let offset = completion.offset;
        let Some(buffer) = completion.buffer.filter(|_| completion.result.is_ok()) else {
            return self.fail_backup(unreadable(number));
        };
        match std::mem::replace(&mut current.stage, Stage::Gathering) {
            Stage::Loading(mut load) => {
                if !load.take(&buffer) {
                    return self.read_backup_summary(current, load, Some(buffer));
                }
                match load.finish() {
                    Some(summary) => current.summary = summary,
                    None => return self.fail_backup(unreadable(number)),
                }
            }
            Stage::Reading => {
                let start = (offset - self.identity.geometry.segment_offset(number)) as usize;
                for entry in std::mem::take(&mut current.piece) {
                    let at = (entry.unit as usize * UNIT_BYTES).saturating_sub(start);
                    let bytes = buffer.get(at..).unwrap_or_default();
                    match self.back_up(number, &entry, bytes) {
                        Some(true) => current.digest = current.digest.wrapping_add(place_digest(entry.unit)),
                        Some(false) => {}
                        None => return self.fail_backup(unreadable(number)),
                    }
                }
            }
            Stage::Gathering => {}
        }
        if let Some(backup) = self.backup_mut() {
            backup.current = Some(current);
        }
    }

    /// Goes on through the summary, to the next piece that must be read or to its end.
    fn gather_for_backup(&mut self) {
        let Some(backup) = self.backup_mut() else { return };
        let cut = backup.cut;
        let Some(mut current) = backup.current.take() else { return };
        let summary = std::mem::take(&mut current.summary);
        let gathered = self.gather_backup_piece(&mut current, &summary, &cut);
        current.summary = summary;
        let number = current.segment;
        match gathered {
            Gathered::Damaged => self.fail_backup(unreadable(number)),
            Gathered::Piece => {
                let Some((start, len)) = blocks_of(&current.piece) else { return };
                let offset = self.identity.geometry.segment_offset(number) + start as u64;
                current.stage = Stage::Reading;
                self.read_for_backup(current, offset, IoBuffer::zeroed(len));
            }
            Gathered::Part => {
                if let Some(backup) = self.backup_mut() {
                    backup.current = Some(current);
                }
            }
            Gathered::End => self.end_backup_segment(current),
        }
    }

    /// The summary has been gone through.
    fn end_backup_segment(&mut self, mut current: Current) {
        let number = current.segment;
        if let Plan::Compare(held) = current.plan
            && held.digest != current.digest
        {
            // Another opening has changed it: it is gone through again, for its records.
            current.cursor = SummaryCursor::new(self.segments.get(number).summary.records);
            (current.plan, current.digest) = (Plan::Give, 0);
            if let Some(backup) = self.backup_mut() {
                backup.current = Some(current);
            }
            return;
        }
        let (name, now_us) = (self.part_name(number), self.now.monotonic_us);
        let state = match current.plan {
            Plan::Give => PartState::Given,
            Plan::Keep(_) | Plan::Compare(_) => PartState::Kept,
            Plan::Tell(_) => PartState::Changed(std::mem::take(&mut current.gone)),
        };
        if let Some(backup) = self.backup_mut() {
            backup.give_piece();
            let live = backup.waiting.get(&number).map_or(0, |waiting| waiting.live);
            backup.name_part(HeldPart { name, live, digest: current.digest }, state);
            if now_us >= backup.parts_given_us + PARTS_EVERY_US {
                backup.give_parts();
                backup.parts_given_us = now_us;
            }
        }
        self.segments.unpin_for_snapshots(number);
        self.cleaner.look_again();
    }

    fn gather_backup_piece(&mut self, current: &mut Current, summary: &[u8], cut: &Cut) -> Gathered {
        let mut reader = SummaryReader::resume(summary, current.cursor);
        for _ in 0..ENTRIES_A_STEP {
            current.cursor = reader.cursor(summary);
            let Some(entry) = reader.next() else {
                let gathered = match (reader.damaged(), current.piece.is_empty()) {
                    (true, _) => Gathered::Damaged,
                    (false, true) => Gathered::End,
                    (false, false) => Gathered::Piece,
                };
                return gathered;
            };
            let is_in = self.is_in_backup(&entry, current.segment, cut);
            if current.plan != Plan::Give {
                if is_in && self.is_shown_unread(&entry, current.segment, cut) {
                    current.digest = current.digest.wrapping_add(place_digest(entry.unit));
                } else if entry.flags & FLAG_TOMBSTONE == 0 && matches!(current.plan, Plan::Tell(_)) {
                    current.gone.push(entry.unit);
                }
                continue;
            }
            if !is_in {
                continue;
            }
            let first = current.piece.first().map_or(entry.unit, |first| first.unit);
            let span = (entry.unit + entry.units).saturating_sub(first) as usize * UNIT_BYTES;
            if span > READ_BYTES && !current.piece.is_empty() {
                return Gathered::Piece;
            }
            current.piece.push(entry);
        }
        current.cursor = reader.cursor(summary);
        if current.piece.is_empty() { Gathered::Part } else { Gathered::Piece }
    }

    /// Whether a record of a segment that has not been read counted at the cut.
    fn is_in_backup(&mut self, entry: &SummaryEntry, segment: u32, cut: &Cut) -> bool {
        if entry.flags & FLAG_TOMBSTONE != 0 || entry.seq > cut.seq {
            return false;
        }
        let location = Location::new(segment, entry.unit);
        if self.backup_mut().is_some_and(|backup| backup.is_replaced(location)) {
            return true;
        }
        let Some(keyspace) = self.keyspaces.at(entry.keyspace, cut) else { return false };
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        keyspace.index.candidates(entry.position, &mut candidates);
        let found = candidates.iter().map(Target::unpack).any(|target| match target {
            Target::Device(at) => at == location,
            Target::Frame(bits) => self.cache.peek(FrameId::from_bits(bits)).location == location.raw(),
        });
        self.candidates = candidates;
        found
    }

    /// Whether a record that counted at the cut, and is not read, is shown by it.
    fn is_shown_unread(&self, entry: &SummaryEntry, segment: u32, cut: &Cut) -> bool {
        let expiry_ms = self.expiry_of_entry(entry);
        let has_expired = expiry_ms != 0 && expiry_ms <= cut.wall_ms;
        !has_expired && !self.is_passed_before(Location::new(segment, entry.unit), cut.seq)
    }

    /// Takes one record of a piece into the backup, if the cut shows it; `None` when it cannot be read.
    fn back_up(&mut self, number: u32, entry: &SummaryEntry, bytes: &[u8]) -> Option<bool> {
        let salt = self.segments.get(number).salt;
        let longest = Stream::record_bytes_max(self.identity.geometry);
        let unit = self.hot.broken().salt_unit(entry.unit);
        let Decoded::Whole(header) = record::decode(bytes, salt, unit, longest) else { return None };
        let (Some(key), Some(value)) = (bytes.get(header.key_range()), bytes.get(header.value_range()))
        else {
            return None;
        };
        let passed_at = self.drop_passed(Location::new(number, entry.unit), bytes);
        let expiry_ms = self.expiry_of(entry.position, &header);
        let life = self.segments.get(number).generation;
        let Some(backup) = self.backup_mut() else { return Some(false) };
        let cut = backup.cut;
        // Its key was written, or deleted, past it when it could not be read.
        let is_old = passed_at.is_some_and(|at| at <= cut.seq);
        if is_old || expiry_ms != 0 && expiry_ms <= cut.wall_ms {
            return Some(false);
        }
        let (place, keyspace, kind) = (entry.unit, entry.keyspace, ValueKind(header.kind));
        let piece = backup.piece.get_or_insert_with(|| BackupPiece::of_part(number, life));
        piece.push(&BackupRecord { place, keyspace, kind, expiry_ms, key, value });
        if piece.bytes.len() >= PIECE_BYTES {
            backup.give_piece();
        }
        Some(true)
    }
}

fn unreadable(segment: u32) -> Error {
    let message =
        format!("segment {segment} cannot be read whole, and no backup made; run `tierstone check`");
    Error::new(ErrorKind::Corrupt, message)
}
