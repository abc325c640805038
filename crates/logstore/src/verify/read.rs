//! Reading a segment for a verification: its summary, then its records in pieces.

use super::{Current, ENTRIES_A_STEP, PIECE_BYTES, Phase, Seen, no_bits, set};
use crate::format::record::{self, Decoded};
use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::io::IoTag;
use crate::location::{Location, UNIT_BYTES};
use crate::shard::LogShard;
use crate::stream::Stream;
use tierstone_base::checksum::checksum;
use tierstone_media::{BLOCK_BYTES, IoBuffer, IoCompletion, IoKind};

/// What a record turned out to be.
#[derive(Debug)]
pub(crate) enum RecordFound {
    /// Another shard's, in a segment of an earlier opening.
    OfOthers,
    /// As it was written.
    Whole {
        /// The index leads to it.
        is_live: bool,
    },
    /// It is not.
    Damaged {
        /// The index leads to it.
        is_live: bool,
        /// The kind of damage.
        kind: &'static str,
        /// In words.
        what: String,
    },
}

impl LogShard {
    pub(super) fn read_verified_summary(&mut self, number: u32) {
        let segment = self.segments.get_mut(number);
        segment.pins += 1;
        let place = segment.summary;
        let len = (place.len as usize).max(1).next_multiple_of(BLOCK_BYTES);
        let offset = self.identity.geometry.segment_offset(number) + u64::from(place.start);
        self.verifier.current = Some(Current {
            segment: number,
            summary: None,
            cursor: SummaryCursor::new(place.records),
            piece: Vec::new(),
            is_reading: true,
            begins: no_bits(self.identity.geometry.segment_bytes),
            is_ended: false,
        });
        self.requests.push(IoTag::Verify { segment: number }, IoKind::Read, offset, IoBuffer::zeroed(len));
    }

    pub(super) fn let_verified_go(&mut self) {
        if let Some(current) = self.verifier.current.take() {
            let segment = self.segments.get_mut(current.segment);
            segment.pins = segment.pins.saturating_sub(1);
        }
    }

    /// Summary or piece came.
    pub(crate) fn verify_read(&mut self, number: u32, completion: IoCompletion) {
        let Some(mut current) = self.verifier.current.take_if(|current| current.segment == number) else {
            return;
        };
        current.is_reading = false;
        let is_ended = current.is_ended;
        if current.summary.is_some() {
            if !is_ended {
                self.verify_pieces_records(&mut current, &completion);
            }
            self.verifier.current = Some(current);
        } else {
            let segment = self.segments.get(number);
            let (place, generation) = (segment.summary, segment.generation);
            current.summary = completion.buffer.filter(|buffer| {
                completion.result.is_ok()
                    && buffer
                        .get(..place.len as usize)
                        .is_some_and(|bytes| checksum(generation, bytes) == place.checksum)
            });
            let is_damaged = current.summary.is_none();
            self.verifier.current = Some(current);
            if is_damaged && !is_ended {
                self.verifier_misses_summary(number);
            }
        }
        if is_ended {
            self.let_verified_go();
        }
    }

    fn verifier_misses_summary(&mut self, number: u32) {
        self.let_verified_go();
        if matches!(self.verifier.phase, Phase::Deletions) {
            return self.verifier.give_up_judging();
        }
        let finding = format!(
            "segment {number}: the summary is damaged; its records are served until the store is opened again"
        );
        self.verifier.note("summary", 0, finding);
    }

    /// Reads the next records of the current segment, or ends it.
    pub(super) fn verify_piece(&mut self) {
        let Some(mut current) = self.verifier.current.take() else { return };
        let number = current.segment;
        let segment = self.segments.get(number);
        let (len, generation) = (segment.summary.len as usize, segment.generation);
        let bytes = current.summary.as_deref().and_then(|summary| summary.get(..len)).unwrap_or_default();
        let mut reader = SummaryReader::resume(bytes, current.cursor);
        current.piece.clear();
        for entry in reader.by_ref().take(ENTRIES_A_STEP) {
            current.piece.push(entry);
            let first = current.piece.first().map_or(entry.unit, |first| first.unit);
            if (entry.unit + entry.units).saturating_sub(first) as usize * UNIT_BYTES >= PIECE_BYTES {
                break;
            }
        }
        current.cursor = reader.cursor(bytes);
        let (Some(first), Some(last)) = (current.piece.first(), current.piece.last()) else {
            let seen = Seen { generation, begins: std::mem::take(&mut current.begins) };
            self.verifier.window.insert(number, seen);
            if let Some(report) = &mut self.verifier.report {
                report.segments += 1;
            }
            self.verifier.current = Some(current);
            return self.let_verified_go();
        };
        let start = first.unit as usize * UNIT_BYTES / BLOCK_BYTES * BLOCK_BYTES;
        let end = ((last.unit + last.units) as usize * UNIT_BYTES).next_multiple_of(BLOCK_BYTES);
        let end = end.min(self.identity.geometry.segment_bytes as usize).max(start + BLOCK_BYTES);
        let offset = self.identity.geometry.segment_offset(number) + start as u64;
        current.is_reading = true;
        self.verifier.current = Some(current);
        let tag = IoTag::Verify { segment: number };
        self.requests.push(tag, IoKind::Read, offset, IoBuffer::zeroed(end - start));
    }

    fn verify_pieces_records(&mut self, current: &mut Current, completion: &IoCompletion) {
        let buffer = completion.buffer.as_ref().filter(|_| completion.result.is_ok());
        let start = (completion.offset - self.identity.geometry.segment_offset(current.segment)) as usize;
        for entry in std::mem::take(&mut current.piece) {
            set(&mut current.begins, entry.unit);
            let at = (entry.unit as usize * UNIT_BYTES).saturating_sub(start);
            let bytes = buffer.map(|buffer| buffer.get(at..).unwrap_or_default());
            self.verify_record(current.segment, &entry, bytes);
        }
    }

    /// One record: whole, as its summary says, and reached by the index if it must be. `bytes`: `None` where
    /// the device could not read them.
    fn verify_record(&mut self, number: u32, entry: &SummaryEntry, bytes: Option<&[u8]>) {
        match self.look_at_record(number, entry, bytes) {
            RecordFound::OfOthers => {}
            RecordFound::Whole { is_live } => {
                self.verified(entry, Location::new(number, entry.unit), is_live);
            }
            RecordFound::Damaged { is_live, kind, what } => {
                let finding = format!("segment {number}, unit {}: {what}", entry.unit);
                self.verifier.note(kind, u64::from(is_live), finding);
            }
        }
    }

    /// Holds the bytes of a record against its checksum and its summary's entry, and asks whether the index leads
    /// to it. `bytes`: `None` where the device could not read them.
    pub(crate) fn look_at_record(
        &mut self,
        number: u32,
        entry: &SummaryEntry,
        bytes: Option<&[u8]>,
    ) -> RecordFound {
        let (first, last) = self.identity.positions();
        if !(first..=last).contains(&entry.position) {
            return RecordFound::OfOthers;
        }
        let location = Location::new(number, entry.unit);
        let is_live =
            self.keyspaces.get(entry.keyspace).is_some() && self.target_of(entry, location).is_some();
        let salt = self.segments.get(number).salt;
        let unit = self.hot.broken().salt_unit(entry.unit);
        let longest = Stream::record_bytes_max(self.identity.geometry);
        let (kind, what) = match bytes.map(|bytes| (bytes, record::decode(bytes, salt, unit, longest))) {
            Some((bytes, Decoded::Whole(header))) => {
                let key = bytes.get(header.key_range()).unwrap_or_default();
                let found = SummaryEntry::new(&header, self.identity.hasher.position(key), entry.unit);
                if found == *entry {
                    return RecordFound::Whole { is_live };
                }
                ("mismatch", format!("the summary says {entry:?}, the record {found:?}"))
            }
            Some(_) => ("record", format!("the record of sequence {} is damaged", entry.seq)),
            None => ("unreadable", format!("the record of sequence {} cannot be read", entry.seq)),
        };
        RecordFound::Damaged { is_live, kind, what }
    }

    fn verified(&mut self, entry: &SummaryEntry, location: Location, is_live: bool) {
        if let Some(report) = &mut self.verifier.report {
            report.records += 1;
            report.live_records += u64::from(is_live);
            report.bytes += u64::from(entry.units) * UNIT_BYTES as u64;
        }
        if !is_live {
            self.suspect(entry, location);
        }
    }
}
