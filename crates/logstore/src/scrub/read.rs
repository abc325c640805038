//! What scrubbing reads: a segment part by part, and the superblock.

use super::{Damaged, NUMBERS_A_STEP};
use crate::format::record;
use crate::format::segment::{HeaderFound, SegmentFooter, SegmentHeader, SegmentState};
use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::format::superblock::{META_BYTES, SLOT_BYTES, SlotFound, Superblock};
use crate::io::IoTag;
use crate::location::{Location, UNIT_BYTES};
use crate::segments::Role;
use crate::shard::LogShard;
use crate::summary_load::blocks_of;
use crate::verify::RecordFound;
use tierstone_base::checksum::RunningChecksum;
use tierstone_media::{BLOCK_BYTES, IoBuffer, IoCompletion, IoKind};

/// Bytes that are read at a time, single records that are longer apart.
const READ_BYTES: usize = 128 << 10;
/// Entries of a summary that one step looks at.
const ENTRIES_A_STEP: usize = 500;
/// Bytes of a key that are told.
const KEY_BYTES_TOLD: usize = 32;
/// Looks at the superblock before it is called damaged.
const SUPERBLOCK_LOOKS: u32 = 2;

/// The segment that is being read.
#[derive(Debug)]
pub(super) struct Current {
    segment: u32,
    generation: u64,
    stage: Stage,
    /// Where the summary has been gone through to.
    cursor: SummaryCursor,
    /// A part of the summary, and where it begins.
    window: (usize, Vec<u8>),
    /// Records next to each other that are gathered or read.
    piece: Vec<SummaryEntry>,
}

/// What is read next, or is being read.
#[derive(Debug)]
enum Stage {
    Header,
    Footer,
    /// The summary, for its checksum: so many bytes of it so far.
    Sum(RunningChecksum, usize),
    /// The part of the summary that the cursor has come to.
    Window,
    /// Nothing: the window is being gone through for the next piece.
    Gather,
    Piece,
}

impl Current {
    /// Whether nothing has to be read before the next step.
    pub fn is_gathering(&self) -> bool {
        matches!(self.stage, Stage::Gather)
    }
}

impl LogShard {
    /// Begins the next sealed segment; false when there is none among the numbers that were looked at.
    pub(super) fn begin_scrubbed_segment(&mut self) -> bool {
        for _ in 0..NUMBERS_A_STEP {
            let Some(pass) = self.scrubber.pass.as_mut().filter(|pass| pass.left > 0) else { return false };
            let number = pass.next;
            pass.left -= 1;
            let stays = self.identity.mutations.is_on("scrub_reads_twice") && pass.left % 2 == 0;
            if !stays {
                pass.next = (number + 1) % pass.all;
            }
            let Some(segment) = self.segments.known(number) else { continue };
            if !matches!(segment.role, Role::Sealed | Role::Cleaning) {
                continue;
            }
            self.scrubber.current = Some(Current {
                segment: number,
                generation: segment.generation,
                stage: Stage::Header,
                cursor: SummaryCursor::new(segment.summary.records),
                window: (0, Vec::new()),
                piece: Vec::new(),
            });
            return true;
        }
        false
    }

    /// Sends the read that comes next, if its segment is still there.
    pub(super) fn send_scrub_read(&mut self) {
        if !self.is_scrubbed_there() {
            return self.abandon_scrubbed();
        }
        let Some(current) = &self.scrubber.current else { return };
        let place = self.segments.get(current.segment).summary;
        let block = |start: usize, left: usize| {
            (start as u64, left.clamp(1, READ_BYTES).next_multiple_of(BLOCK_BYTES))
        };
        let (start, len) = match &current.stage {
            Stage::Header => (0, BLOCK_BYTES),
            Stage::Footer => (self.identity.geometry.segment_bytes - BLOCK_BYTES as u64, BLOCK_BYTES),
            Stage::Sum(_, done) => block(place.start as usize + done, place.len as usize - done),
            Stage::Window => {
                let from = window_start(&current.cursor);
                block(place.start as usize + from, place.len as usize - from)
            }
            Stage::Piece => match blocks_of(&current.piece) {
                Some((start, len)) => (start as u64, len),
                None => return,
            },
            Stage::Gather => return,
        };
        let offset = self.identity.geometry.segment_offset(current.segment) + start;
        self.read_for_scrub(offset, len);
    }

    fn read_for_scrub(&mut self, offset: u64, len: usize) {
        let scrubber = &mut self.scrubber;
        (scrubber.is_reading, scrubber.gives_way_since_us) = (true, None);
        scrubber.last_read = (self.now.monotonic_us, len as u64);
        scrubber.counts.bytes += len as u64;
        if let Some(pass) = &mut scrubber.pass {
            pass.bytes += len as u64;
        }
        self.requests.push(IoTag::Scrub, IoKind::Read, offset, IoBuffer::zeroed(len));
    }

    fn is_scrubbed_there(&self) -> bool {
        let Some(current) = &self.scrubber.current else { return false };
        let segment = self.segments.get(current.segment);
        let is_there =
            segment.generation == current.generation && matches!(segment.role, Role::Sealed | Role::Cleaning);
        is_there || self.identity.mutations.is_on("scrub_trusts_freed")
    }

    fn abandon_scrubbed(&mut self) {
        if self.scrubber.current.take().is_some() {
            self.scrubber.counts.abandoned_segments += 1;
        }
    }

    /// What was asked for came.
    pub(crate) fn scrub_read(&mut self, completion: IoCompletion) {
        self.scrubber.is_reading = false;
        if self.scrubber.pass.is_none() {
            return;
        }
        let bytes = completion.buffer.as_deref().filter(|_| completion.result.is_ok());
        if self.scrubber.current.is_none() {
            return self.superblock_read(bytes);
        }
        if !self.is_scrubbed_there() {
            return self.abandon_scrubbed();
        }
        let Some(mut current) = self.scrubber.current.take() else { return };
        let goes_on = match std::mem::replace(&mut current.stage, Stage::Gather) {
            Stage::Header => self.scrubbed_header(&mut current, bytes),
            Stage::Footer => self.scrubbed_footer(&mut current, bytes),
            Stage::Sum(sum, done) => self.scrubbed_sum(&mut current, (sum, done), bytes),
            Stage::Window => match bytes {
                Some(bytes) => {
                    let start = window_start(&current.cursor);
                    let left = self.segments.get(current.segment).summary.len as usize - start;
                    current.window = (start, bytes[..left.min(bytes.len())].to_vec());
                    true
                }
                None => self.scrubbed_structure(current.segment, "the summary cannot be read again"),
            },
            Stage::Piece => {
                let offset = completion.offset - self.identity.geometry.segment_offset(current.segment);
                for entry in std::mem::take(&mut current.piece) {
                    let at = (entry.unit as usize * UNIT_BYTES).saturating_sub(offset as usize);
                    self.scrub_record(
                        current.segment,
                        &entry,
                        bytes.map(|all| all.get(at..).unwrap_or_default()),
                    );
                }
                true
            }
            Stage::Gather => true,
        };
        if goes_on {
            self.scrubber.current = Some(current);
        }
    }

    /// Notes that a part of a segment other than a record is damaged; false, as nothing more of it is read.
    fn scrubbed_structure(&mut self, number: u32, what: &str) -> bool {
        let finding = format!(
            "segment {number}: {what}; its records are served until the store is opened again: run `tierstone check \
             --server`, then restore a backup or save what is whole with `tierstone check --repair`"
        );
        self.scrubber.note(Damaged::Structure, finding);
        false
    }

    fn scrubbed_header(&mut self, current: &mut Current, bytes: Option<&[u8]>) -> bool {
        let number = current.segment;
        let is_whole = match bytes.map(SegmentHeader::decode) {
            Some(HeaderFound::Whole(header)) => {
                (header.store, header.segment, header.generation)
                    == (self.identity.store, number, current.generation)
                    && header.state == SegmentState::Log
            }
            _ => false,
        };
        if !is_whole {
            self.scrubbed_structure(number, "the header is damaged");
        }
        current.stage = Stage::Footer;
        true
    }

    fn scrubbed_footer(&mut self, current: &mut Current, bytes: Option<&[u8]>) -> bool {
        let (number, place) = (current.segment, self.segments.get(current.segment).summary);
        let footer = bytes.and_then(|bytes| SegmentFooter::decode(bytes, current.generation));
        if footer.is_none_or(|footer| footer.summary_checksum != place.checksum) {
            self.scrubbed_structure(number, "the footer is damaged");
        }
        current.stage = Stage::Sum(RunningChecksum::new(current.generation), 0);
        true
    }

    fn scrubbed_sum(
        &mut self,
        current: &mut Current,
        (mut sum, done): (RunningChecksum, usize),
        bytes: Option<&[u8]>,
    ) -> bool {
        let place = self.segments.get(current.segment).summary;
        let Some(bytes) = bytes else {
            return self.scrubbed_structure(current.segment, "the summary cannot be read");
        };
        let part = &bytes[..(place.len as usize - done).min(bytes.len())];
        sum.update(part);
        let done = done + part.len();
        if done < place.len as usize {
            current.stage = Stage::Sum(sum, done);
            return true;
        }
        if sum.value() != place.checksum {
            return self.scrubbed_structure(current.segment, "the summary is damaged");
        }
        current.stage = Stage::Window;
        true
    }

    /// Goes on through the summary, to the next piece, the next part of it or its end.
    pub(super) fn gather_for_scrub(&mut self) {
        let Some(mut current) = self.scrubber.current.take() else { return };
        let (start, window) = (current.window.0, std::mem::take(&mut current.window.1));
        let mut reader = SummaryReader::resume(&window, current.cursor.moved(-(start as isize)));
        for _ in 0..ENTRIES_A_STEP {
            current.cursor = reader.cursor(&window).moved(start as isize);
            let Some(entry) = reader.next() else { break };
            let first = current.piece.first().map_or(entry.unit, |first| first.unit);
            let span = (entry.unit + entry.units).saturating_sub(first) as usize * UNIT_BYTES;
            if span > READ_BYTES && !current.piece.is_empty() {
                break;
            }
            current.piece.push(entry);
            current.cursor = reader.cursor(&window).moved(start as isize);
        }
        current.window.1 = window;
        current.stage = match (current.piece.is_empty(), current.cursor.is_at_end()) {
            (true, true) => return self.scrubbed_segment(),
            (true, false) if window_start(&current.cursor) <= start => {
                // The whole window holds no entry, although the checksum was right a moment ago.
                self.scrubbed_structure(current.segment, "the summary changes from one read to the next");
                return;
            }
            (true, false) => Stage::Window,
            (false, _) => Stage::Piece,
        };
        self.scrubber.current = Some(current);
    }

    /// Everything of the segment was read.
    fn scrubbed_segment(&mut self) {
        if let Some(pass) = &mut self.scrubber.pass {
            pass.segments += 1;
        }
    }

    fn scrub_record(&mut self, number: u32, entry: &SummaryEntry, bytes: Option<&[u8]>) {
        let RecordFound::Damaged { is_live, what, .. } = self.look_at_record(number, entry, bytes) else {
            return;
        };
        let place =
            format!("segment {number}, unit {} (byte {})", entry.unit, entry.unit as usize * UNIT_BYTES);
        // The index keeps a record that could not be read when its key was written again.
        let passed = self.reads.passed.get(&Location::new(number, entry.unit).raw());
        let is_passed = passed.is_some_and(|keys| {
            keys.keys().any(|(keyspace, key)| {
                *keyspace == entry.keyspace && self.identity.hasher.position(key) == entry.position
            })
        });
        let is_live = is_live && !is_passed;
        if !is_live && !self.identity.mutations.is_on("scrub_blames_old_records") {
            let finding = format!("{place}: {what}; it was replaced or deleted since, and no key is lost");
            return self.scrubber.note(Damaged::OldRecord, finding);
        }
        // Its bytes are not to be trusted, but a key with the position that the summary tells is the key.
        let key = bytes.and_then(|bytes| bytes.get(record::decode_header(bytes)?.key_range()));
        let key = key.filter(|key| self.identity.hasher.position(key) == entry.position);
        let key = match key {
            Some(key) => format!("\"{}\"", key[..key.len().min(KEY_BYTES_TOLD)].escape_ascii()),
            None => format!("unknown, with position {:016x}", entry.position.0),
        };
        let finding = format!(
            "{place}: {what}; keyspace {}, key {key}: who reads it gets an error; write the key again, restore a backup, \
             or save what is whole with `tierstone check --repair`",
            entry.keyspace.0
        );
        self.scrubber.note(Damaged::Record, finding);
    }

    /// Reads both slots of the superblock.
    pub(super) fn look_at_superblock(&mut self) {
        self.read_for_scrub(0, META_BYTES as usize);
    }

    fn superblock_read(&mut self, bytes: Option<&[u8]>) {
        let slots = bytes.and_then(|bytes| bytes.split_at_checked(SLOT_BYTES));
        let is_damaged = |slot: &[u8]| matches!(Superblock::decode(slot), SlotFound::Damaged);
        let what = match slots.map(|(first, second)| (is_damaged(first), is_damaged(second))) {
            None => "the superblock cannot be read",
            Some((true, true)) => "both slots of the superblock are damaged",
            Some((true, false) | (false, true)) => {
                "a slot of the superblock is damaged, the other one is whole"
            }
            Some((false, false)) => "",
        };
        let believes = self.identity.mutations.is_on("scrub_believes_one_look");
        let Some(pass) = &mut self.scrubber.pass else { return };
        let looks = pass.superblock_looks.unwrap_or(0) + 1;
        // A slot that is being written may be torn now; not for long.
        let is_sure = looks >= SUPERBLOCK_LOOKS || believes;
        pass.superblock_looks = (!what.is_empty() && !is_sure).then_some(looks);
        if !what.is_empty() && is_sure {
            let finding = format!(
                "{what}; run `tierstone check --server`, take a backup, and restore it into a new store"
            );
            self.scrubber.note(Damaged::Structure, finding);
        }
    }
}

/// Where the blocks of the summary begin that the cursor has come to.
fn window_start(cursor: &SummaryCursor) -> usize {
    cursor.consumed() / BLOCK_BYTES * BLOCK_BYTES
}
