//! The sequential scan of a split: every segment that held records when it began, by its summary, live
//! records of the range only, in pieces of 64 KiB.
//!
//! Invariants:
//! 1. When the scan is over, each record that was live and in the range when it began has been met while
//!    it was its key's newest, or its key has been written since.
//! 2. One piece is in memory at a time; its segment is pinned while it is read.

use super::{Phase, Split};
use crate::format::record::{self, Decoded, FLAG_TOMBSTONE, RecordHeader};
use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::io::IoTag;
use crate::location::{Location, UNIT_BYTES};
use crate::segments::Role;
use crate::shard::LogShard;
use crate::stream::Stream;
use crate::transfer::{MovedRecord, MovedValue};
use std::collections::BTreeSet;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind};
use tierstone_engine::{Key, ValueKind};
use tierstone_media::{BLOCK_BYTES, IoBuffer, IoCompletion, IoKind};

/// Where a scan stands.
#[derive(Debug)]
pub(super) struct Scan {
    /// Segments that may hold what was not met yet; the current one too.
    unscanned: BTreeSet<u32>,
    total: u32,
    current: Option<Current>,
    /// Whether some segment could be begun.
    startable: bool,
}

#[derive(Debug)]
struct Current {
    segment: u32,
    summary: Option<IoBuffer>,
    cursor: SummaryCursor,
    piece: Vec<SummaryEntry>,
    /// The number of its last read.
    read: u64,
    reading: bool,
    /// The split has failed: the segment is let go when its read comes.
    ended: bool,
}

impl Scan {
    /// Segments of the scan, and those that are left.
    pub fn segments(&self) -> (u32, u32) {
        (self.total, self.unscanned.len() as u32)
    }

    pub fn is_over(&self) -> bool {
        self.unscanned.is_empty() && self.current.is_none()
    }

    pub fn wants_step(&self) -> bool {
        self.current.as_ref().map_or(self.startable, |current| !current.reading)
    }

    /// Nothing more is to be met.
    pub fn end(&mut self) {
        self.unscanned.clear();
        if let Some(current) = &mut self.current {
            current.ended = true;
        }
    }
}

/// Bytes of a piece: some 250 records of 250 bytes, about 200 µs of a step.
const PIECE_BYTES: usize = 64 << 10;
/// Entries of a summary that a step looks at, wanted or not: each costs a look into the index, some 100 ns.
const ENTRIES_A_STEP: usize = 1_000;
/// Segments that a step looks at to find one to scan.
const LOOKS_A_STEP: usize = 64;

impl super::Transfers {
    /// Whether there is a split or a merge.
    pub(crate) fn are_under_way(&self) -> bool {
        self.split.is_some() || self.merge.is_some()
    }
}

impl LogShard {
    /// A scan of everything that is in segments now. Open ones are left, so that they get a summary.
    pub(super) fn new_scan(&mut self) -> Scan {
        self.hot.roll(&mut self.segments);
        self.cold.roll(&mut self.segments);
        let holds = |role| matches!(role, Role::Open | Role::Sealed | Role::Cleaning);
        let unscanned: BTreeSet<u32> = self
            .segments
            .iter()
            .filter(|(_, segment)| holds(segment.role))
            .map(|(number, _)| number)
            .collect();
        Scan { total: unscanned.len() as u32, unscanned, current: None, startable: true }
    }

    /// Lets go of the segment that is being read.
    pub(super) fn end_scan(&mut self, scan: &mut Scan) {
        if let Some(current) = scan.current.take() {
            self.unpin_scanned(current.segment);
        }
    }

    fn unpin_scanned(&mut self, number: u32) {
        let segment = self.segments.get_mut(number);
        segment.pins = segment.pins.saturating_sub(1);
    }

    fn split_mut(&mut self) -> Option<&mut Split> {
        self.transfers.split.as_deref_mut()
    }

    pub(super) fn scan_step(&mut self) {
        let Some(split) = self.split_mut() else { return };
        match &split.scan.current {
            Some(current) if current.reading => {}
            Some(current) if current.ended => {
                let number = current.segment;
                split.scan.current = None;
                self.unpin_scanned(number);
            }
            Some(_) if split.has_room() => self.scan_piece(),
            Some(_) => {}
            None => self.scan_next_segment(),
        }
    }

    /// Begins the next sealed segment; empty ones need no look.
    fn scan_next_segment(&mut self) {
        let Some(split) = self.transfers.split.as_deref_mut() else { return };
        split.scan.startable = false;
        let candidates: Vec<u32> = split.scan.unscanned.iter().copied().collect();
        for (looks, number) in candidates.into_iter().enumerate() {
            if looks >= LOOKS_A_STEP && split.scan.startable {
                return;
            }
            let segment = self.segments.get_mut(number);
            match segment.role {
                // Its footer will bring the step that goes on.
                Role::Open => continue,
                Role::Sealed | Role::Cleaning if segment.live_records > 0 || segment.is_estimated => {}
                _ => {
                    split.scan.unscanned.remove(&number);
                    continue;
                }
            }
            segment.pins += 1;
            self.transfers.reads += 1;
            let read = self.transfers.reads;
            let place = segment.summary;
            let len = (place.len as usize).max(1).next_multiple_of(BLOCK_BYTES);
            let offset = self.identity.geometry.segment_offset(number) + u64::from(place.start);
            split.scan.current = Some(Current {
                segment: number,
                summary: None,
                cursor: SummaryCursor::new(place.records),
                piece: Vec::new(),
                read,
                reading: true,
                ended: false,
            });
            let tag = IoTag::SplitSummary { segment: number, read };
            self.requests.push(tag, IoKind::Read, offset, IoBuffer::zeroed(len));
            return;
        }
    }

    /// The segment that `read` is for; a read of a split that was ended is for none.
    fn scanned(&mut self, read: u64) -> Option<&mut Current> {
        let current = self.split_mut()?.scan.current.as_mut()?;
        (current.read == read && current.reading).then_some(current)
    }

    pub(crate) fn split_summary_read(&mut self, number: u32, read: u64, completion: IoCompletion) {
        let segment = self.segments.get(number);
        let (place, generation) = (segment.summary, segment.generation);
        let Some(current) = self.scanned(read) else { return };
        current.reading = false;
        current.summary = completion.buffer.filter(|buffer| {
            completion.result.is_ok()
                && buffer
                    .get(..place.len as usize)
                    .is_some_and(|bytes| checksum(generation, bytes) == place.checksum)
        });
        if current.summary.is_none() && !current.ended {
            self.fail_split(unreadable(number));
        }
    }

    /// Reads the next piece of the current segment, or ends the segment.
    fn scan_piece(&mut self) {
        let Some(mut current) = self.split_mut().and_then(|split| split.scan.current.take()) else { return };
        let number = current.segment;
        let Some(summary) = current.summary.take() else { return };
        let len = self.segments.get(number).summary.len as usize;
        let bytes = &summary[..len];
        let mut reader = SummaryReader::resume(bytes, current.cursor);
        current.piece.clear();
        let mut first = None;
        let mut looks = 0;
        let mut is_at_end = true;
        for entry in reader.by_ref() {
            looks += 1;
            if !self.is_wanted(&entry, number) {
                if looks >= ENTRIES_A_STEP {
                    is_at_end = false;
                    break;
                }
                continue;
            }
            let first = *first.get_or_insert(entry.unit);
            current.piece.push(entry);
            if (entry.unit + entry.units - first) as usize * UNIT_BYTES
                >= PIECE_BYTES.min(self.settings.clean_step_bytes)
            {
                break;
            }
        }
        current.cursor = reader.cursor(bytes);
        let damaged = reader.damaged();
        let (Some(first), Some(last)) = (current.piece.first(), current.piece.last()) else {
            if !is_at_end {
                // The next step looks on.
                current.summary = Some(summary);
                if let Some(split) = self.split_mut() {
                    split.scan.current = Some(current);
                }
                return;
            }
            self.unpin_scanned(number);
            if damaged {
                return self.fail_split(unreadable(number));
            }
            if let Some(split) = self.split_mut() {
                split.scan.unscanned.remove(&number);
                split.scan.startable = true;
            }
            return;
        };
        let start = first.unit as usize * UNIT_BYTES / BLOCK_BYTES * BLOCK_BYTES;
        let end = ((last.unit + last.units) as usize * UNIT_BYTES).next_multiple_of(BLOCK_BYTES);
        let offset = self.identity.geometry.segment_offset(number) + start as u64;
        self.transfers.reads += 1;
        current.read = self.transfers.reads;
        let tag = IoTag::SplitPiece { segment: number, read: current.read };
        self.requests.push(tag, IoKind::Read, offset, IoBuffer::zeroed(end - start));
        current.summary = Some(summary);
        current.reading = true;
        if let Some(split) = self.split_mut() {
            split.scan.current = Some(current);
        }
    }

    /// Whether the record of an entry is its key's newest, and in the range.
    fn is_wanted(&mut self, entry: &SummaryEntry, segment: u32) -> bool {
        let covered = self.transfers.split.as_ref().is_some_and(|split| split.covers(entry.position));
        covered
            && entry.flags & FLAG_TOMBSTONE == 0
            && self.keyspaces.get(entry.keyspace).is_some()
            && self.target_of(entry, Location::new(segment, entry.unit)).is_some()
    }

    pub(crate) fn split_piece_read(&mut self, number: u32, read: u64, completion: IoCompletion) {
        let segment_offset = self.identity.geometry.segment_offset(number);
        let Some(current) = self.scanned(read) else { return };
        current.reading = false;
        if current.ended {
            return;
        }
        let piece = std::mem::take(&mut current.piece);
        let buffer = completion.buffer.filter(|_| completion.result.is_ok());
        let start = (completion.offset - segment_offset) as usize;
        for entry in &piece {
            let at = entry.unit as usize * UNIT_BYTES - start;
            let bytes = buffer.as_ref().and_then(|buffer| buffer.get(at..)).unwrap_or_default();
            if !self.meet(number, entry, bytes) {
                return self.fail_split(unreadable(number));
            }
        }
    }

    /// Looks at one record of a piece; false when it cannot be read.
    fn meet(&mut self, number: u32, entry: &SummaryEntry, bytes: &[u8]) -> bool {
        // It may have been replaced while the piece was read.
        if !self.is_wanted(entry, number) {
            return true;
        }
        let segment = self.segments.get(number);
        let longest = Stream::record_bytes_max(self.identity.geometry);
        let unit = self.hot.broken().salt_unit(entry.unit);
        let Decoded::Whole(header) = record::decode(bytes, segment.salt, unit, longest) else {
            return false;
        };
        let location = Location::new(number, entry.unit);
        if self.drop_passed(location, bytes).is_some() {
            return true;
        }
        if self.transfers.split.as_ref().is_some_and(|split| split.phase == Phase::Dropping)
            && let Some(target) = self.target_of(entry, location)
            && let Some(key) = bytes.get(header.key_range())
        {
            let key = Key { keyspace: entry.keyspace, position: entry.position, bytes: key };
            if self.delete_known(&key, target, header) {
                return true;
            }
        }
        self.met(entry, &header, bytes);
        true
    }

    /// The cleaner moves a live record out of `number`: the scan will not find it there.
    pub(crate) fn split_meets_cleaned(
        &mut self,
        number: u32,
        entry: &SummaryEntry,
        header: &RecordHeader,
        bytes: &[u8],
    ) {
        let Some(split) = &self.transfers.split else { return };
        let unseen = split.scan.unscanned.contains(&number) && split.covers(entry.position);
        if unseen
            && self.keyspaces.get(entry.keyspace).is_some()
            && !self.identity.mutations.is_on("split_misses_cleaned")
        {
            self.met(entry, header, bytes);
        }
    }

    /// A live record of the range: it is sent, or its key deleted.
    fn met(&mut self, entry: &SummaryEntry, header: &RecordHeader, bytes: &[u8]) {
        let (wall_ms, expiry_ms) = (self.now.wall_ms, self.expiry_of(entry.position, header));
        let Some(split) = self.transfers.split.as_deref_mut() else { return };
        let (Some(key), Some(value)) = (bytes.get(header.key_range()), bytes.get(header.value_range()))
        else {
            return;
        };
        if split.phase == Phase::Dropping {
            split.change(entry.keyspace, entry.position, key);
        } else if expiry_ms == 0 || expiry_ms > wall_ms {
            let put = MovedValue { value: value.to_vec(), expiry_ms, kind: ValueKind(header.kind) };
            split.send(MovedRecord { keyspace: entry.keyspace, key: key.to_vec(), put: Some(put) });
        }
    }

    /// A segment is given up: all that lived in it has moved.
    pub(crate) fn split_forgets_segment(&mut self, number: u32) {
        if let Some(split) = self.split_mut() {
            split.scan.unscanned.remove(&number);
        }
    }
}

fn unreadable(segment: u32) -> Error {
    Error::new(ErrorKind::Corrupt, format!("segment {segment} cannot be read whole; run `tierstone check`"))
}
