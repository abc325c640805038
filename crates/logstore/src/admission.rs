//! What is admitted: before a write changes anything it is seen that it can be applied whole, in space
//! and in memory, and that every old record that it needs is known.

use crate::ahead::{Ahead, Coming};
use crate::format::record::{self, FLAG_KEYED, PART_BYTES, RecordHeader};
use crate::format::summary;
use crate::index::ordered;
use crate::location::UNIT_BYTES;
use crate::read_path::{Found, Search};
use crate::reservations::Writer;
use crate::shard::LogShard;
use crate::stream::Stream;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result};
use tierstone_engine::{Write, WriteKind};

/// What a new key may cost the index at worst, in bytes: its share of a page and of a region's split.
const INDEX_BYTES_A_NEW_KEY_MAX: u64 = 512;
/// Units of the longest tombstone.
const TOMBSTONE_UNITS_MAX: usize = (record::PREFIX_BYTES_MAX + record::KEY_BYTES_MAX).div_ceil(UNIT_BYTES);
/// Records that take parts back are taken to be this short, in units, so that their summary is long.
const UNDO_UNITS: usize = 2;
/// The index is taken as full this far below its limit, for what splits need at once.
pub(crate) const INDEX_SLACK_BYTES: u64 = 64 << 10;
/// The index may take so much of the least memory.
const INDEX_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a key's length in a summary at most.
const KEY_LEN_BYTES_MAX: usize = 3;

/// Deletes leave the cleaner one free segment, which is enough for it to go on.
pub(crate) const KEPT_FOR_CLEANER: u32 = 1;

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What users write.
    Write,
    /// The same, as a part of a batch over several shards.
    Part,
    /// A part that was admitted, and nothing has been done here since, but perhaps by other shards: it does not wait for
    /// cleaning, nor for what others have come to need. What it takes was made sure of when it was admitted.
    AdmittedPart,
    /// What takes a part back.
    Undo,
}

impl Purpose {
    fn is_part(self) -> bool {
        matches!(self, Purpose::Part | Purpose::AdmittedPart)
    }
}

/// How much of the reserved segments a write may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    None,
    /// All but what the cleaner needs.
    ForDeletes,
    /// All: segments that the cleaner has emptied may wait for this very write.
    All,
}

/// Refuses what no segment could hold: `record_len` is the record's length in bytes, `longest` the limit.
fn check_lengths(write: &Write<'_>, record_len: usize, longest: usize) -> Result<()> {
    let key_len = write.key.bytes.len();
    let message = if key_len > record::KEY_BYTES_MAX {
        format!("a key of {key_len} bytes is longer than {}", record::KEY_BYTES_MAX)
    } else if record_len > longest {
        format!("a record of {record_len} bytes is longer than {longest}")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// How much of the reserve `writes` may use.
fn reserve_of(writes: &[Write<'_>], purpose: Purpose) -> Reserve {
    match purpose {
        Purpose::Undo => Reserve::All,
        _ if Write::only_free(writes) => Reserve::ForDeletes,
        Purpose::Write | Purpose::Part | Purpose::AdmittedPart => Reserve::None,
    }
}

fn writer_of(writes: &[Write<'_>]) -> Writer {
    Writer::of(writes.iter().map(|write| &write.key))
}

/// What writes take of the log, whatever their old records are.
#[derive(Clone, Copy, Debug)]
struct LogNeed {
    /// Of the records, and of their keys in the summary.
    bytes: u64,
    key_bytes: u64,
    /// Units of the longest record.
    units_max: usize,
    is_admitted: bool,
}

impl LogNeed {
    /// Of no writes. The first record of a part is longer by less than a unit.
    fn new(purpose: Purpose) -> LogNeed {
        let is_admitted = purpose == Purpose::AdmittedPart;
        LogNeed { bytes: (extra_units(purpose) * UNIT_BYTES) as u64, key_bytes: 0, units_max: 1, is_admitted }
    }

    fn add(&mut self, header: &RecordHeader, purpose: Purpose) {
        self.bytes += (header.units() * UNIT_BYTES) as u64;
        self.key_bytes += summary::key_bytes(header) as u64;
        self.units_max = self.units_max.max(header.units() + extra_units(purpose));
    }
}

fn extra_units(purpose: Purpose) -> usize {
    usize::from(purpose.is_part())
}

impl LogShard {
    /// Why nothing can be written, if so.
    pub(crate) fn unwritable(&self) -> Option<Error> {
        if let Some(error) = &self.failed {
            return Some(error.clone());
        }
        if !self.refused.is_empty() {
            let text = format!("the device takes no more of the log: {}", self.segments.pool().refusal());
            return Some(Error::new(ErrorKind::NoSpace, text));
        }
        if self.shutting {
            return Some(Error::new(ErrorKind::Busy, "the store is being closed"));
        }
        None
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if let Some(error) = self.unwritable() {
            return Err(error);
        }
        if self.hot.buffered_bytes() > self.settings.write_buffer_bytes() {
            return Err(Error::new(ErrorKind::Retry, "the shard has enough to write"));
        }
        if self.applied > record::SEQ_WRITABLE {
            let message = "the store has counted as many writes as it can: copy its keys into a new one";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    /// As [`LogShard::admit`], of a batch; gives what was found of each key too.
    pub(crate) fn admit_all(&mut self, writes: &[Write<'_>], purpose: Purpose) -> Result<(u64, Vec<Search>)> {
        self.refuse_early(writes, purpose)?;
        let mut searches = Vec::with_capacity(writes.len());
        let mut ahead =
            Ahead::of_records(writes.iter().map(|write| Coming::new(write.key.keyspace, write.key.position)));
        for write in writes {
            ahead.advance(self);
            searches.push(self.search(&write.key));
        }
        let undo_bytes = self.admit(writes, &searches, purpose)?;
        Ok((undo_bytes, searches))
    }

    /// Refuses a batch that has to wait for reads or for space before its old records are searched for. It comes again
    /// and again meanwhile, and the search is most of what it costs.
    fn refuse_early(&mut self, writes: &[Write<'_>], purpose: Purpose) -> Result<()> {
        if self.has_reservations() && self.is_reservation_coming(writer_of(writes)) {
            return Err(Error::new(ErrorKind::Retry, "old records are being read"));
        }
        let longest = Stream::record_bytes_max(self.identity.geometry);
        let mut need = LogNeed::new(purpose);
        for write in writes {
            let header = self.header_of(write, 0, 0, None);
            check_lengths(write, header.record_len() + extra_units(purpose) * PART_BYTES, longest)?;
            need.add(&header, purpose);
        }
        let found = self.find_space(need, reserve_of(writes, purpose));
        if found.is_err() {
            self.release_records(writes);
        }
        found
    }

    /// Refuses, before anything is applied, what could not be applied whole. `searches`: what was found of
    /// each write's key. Gives the bytes of what would take a part back.
    pub(crate) fn admit(
        &mut self,
        writes: &[Write<'_>],
        searches: &[Search],
        purpose: Purpose,
    ) -> Result<u64> {
        let longest = Stream::record_bytes_max(self.identity.geometry);
        let mut need = LogNeed::new(purpose);
        let (mut undo_bytes, mut index_bytes, mut room) = (0u64, 0, None);
        let reserve = reserve_of(writes, purpose);
        let mut unknown = false;
        for (write, search) in writes.iter().zip(searches) {
            unknown |= search.found == Found::Unknown;
            let header = self.header_of(write, 0, 0, None);
            check_lengths(write, header.record_len() + extra_units(purpose) * PART_BYTES, longest)?;
            let is_put = matches!(write.kind, WriteKind::Put { .. });
            if is_put && search.found == Found::Absent && reserve != Reserve::ForDeletes {
                index_bytes += INDEX_BYTES_A_NEW_KEY_MAX;
                room = Some(write.key.keyspace);
                if header.flags & FLAG_KEYED != 0 {
                    index_bytes += ordered::bytes_of_new_key_max(write.key.bytes.len());
                }
            }
            need.add(&header, purpose);
            if purpose.is_part() {
                // Room for what would take the part back: the old record, or a tombstone.
                let old_units = match search.found {
                    Found::Absent | Found::Unknown => 0,
                    Found::Frame(_) | Found::Held(_) | Found::Unsubmitted(_) => search.header.units(),
                };
                let undo_units = old_units.max(header.units().min(TOMBSTONE_UNITS_MAX));
                undo_bytes += (undo_units * UNIT_BYTES) as u64;
                if self.keyspaces.is_ordered(write.key.keyspace) {
                    undo_bytes += (KEY_LEN_BYTES_MAX + write.key.bytes.len()) as u64;
                }
            }
        }
        need.bytes += undo_bytes;
        let admitted = self.admit_space(need, reserve);
        if let Err(error) = admitted.and_then(|()| self.admit_memory(index_bytes, room)) {
            // The space may have to come from the very segments whose records are held.
            self.release_records(writes);
            return Err(error);
        }
        if unknown {
            let is_unknown = |(_, search): &(_, &Search)| search.found == Found::Unknown;
            let needed = writes.iter().zip(searches).filter(is_unknown);
            self.reserve(writer_of(writes), needed.map(|(write, _)| &write.key));
            return Err(Error::new(ErrorKind::Retry, "an old record must be read first"));
        }
        Ok(undo_bytes)
    }

    /// Whether there is room for a tombstone that the cleaner writes, besides what it needs itself.
    pub(crate) fn has_room_for_tombstone(&mut self, write: &Write<'_>) -> bool {
        let units = self.header_of(write, 0, 0, None).units();
        let bytes = (units * UNIT_BYTES) as u64 + self.hot.kept_bytes();
        self.hot.room_for(bytes, 0)
            || self.secure_for(Reserve::ForDeletes, self.kept_segments() + 1 + KEPT_FOR_CLEANER)
    }

    /// Whether so many segments are free and this shard's own, with what others need before a write is admitted. What
    /// takes a part back leaves nothing: it is what others may wait for.
    pub(crate) fn secure_for(&mut self, reserve: Reserve, count: u32) -> bool {
        let left = if reserve == Reserve::All { 0 } else { self.starving_others() };
        self.segments.secure_leaving(count, left)
    }

    /// Gives back the old records that were reserved for `writes`.
    pub(crate) fn release_records(&mut self, writes: &[Write<'_>]) {
        if self.has_reservations() {
            self.release_reservation(writer_of(writes));
        }
    }

    fn admit_space(&mut self, need: LogNeed, reserve: Reserve) -> Result<()> {
        self.find_space(need, reserve)?;
        self.cleaner.pace.calm();
        self.evictor.is_barren = false;
        self.end_space_wait();
        Ok(())
    }

    /// Sees to it that there is space; what has been asked for because there was none stands until something is admitted.
    ///
    /// Hundreds may wait for space, and each asks at every turn: whoever wants no less than one that was told to wait is told
    /// the same, unless there was a step since, or a write.
    fn find_space(&mut self, need: LogNeed, reserve: Reserve) -> Result<()> {
        let may_be_told_again = reserve == Reserve::None && !need.is_admitted;
        let at = (self.reads.steps, self.applied);
        if may_be_told_again
            && self.cleaner.waited.is_some_and(|(step, seq, bytes)| (step, seq) == at && need.bytes >= bytes)
        {
            return Err(Error::new(ErrorKind::Retry, "others wait for space"));
        }
        let found = self.look_for_space(need, reserve);
        if let Err(error) = &found
            && may_be_told_again
            && error.kind() == ErrorKind::Retry
        {
            self.cleaner.waited = Some((at.0, at.1, need.bytes));
        }
        found
    }

    fn look_for_space(&mut self, need: LogNeed, reserve: Reserve) -> Result<()> {
        let LogNeed { bytes, key_bytes, units_max, is_admitted } = need;
        // Parts that are not decided have their room kept.
        let bytes = if reserve == Reserve::All { bytes } else { bytes + self.hot.kept_bytes() };
        // One segment more than whole ones: the open one may not take the first record.
        let has_room = self.hot.room_for(bytes, key_bytes);
        let needed = if has_room {
            0
        } else {
            let room = Stream::segment_room(self.segments.segment_bytes(), units_max).max(1);
            (bytes + key_bytes).div_ceil(room) as u32
        };
        let kept = match reserve {
            _ if needed == 0 => 0,
            // As it was when it was admitted: what others took since would make it more.
            Reserve::None if is_admitted => self.left_by_writers(),
            Reserve::None => self.kept_from_writers(),
            Reserve::ForDeletes => KEPT_FOR_CLEANER,
            Reserve::All => 0,
        };
        if reserve == Reserve::None && needed > 0 {
            self.cleaner.kept = kept;
        }
        if reserve == Reserve::None && !is_admitted && self.must_pace(bytes) {
            self.cleaner.pace.hurry();
            return Err(Error::new(ErrorKind::Retry, "writes keep pace with cleaning"));
        }
        if reserve == Reserve::None && !is_admitted && self.must_wait_for_eviction() {
            return Err(Error::new(ErrorKind::Retry, "keys are being evicted"));
        }
        let has_segments = match is_admitted {
            true => self.segments.secure(needed + kept),
            false => needed == 0 || self.secure_for(reserve, needed + kept),
        };
        if has_segments {
            return Ok(());
        }
        self.cleaner.pace.hurry();
        if self.checkpoints.takes_space() {
            self.drop_checkpoints();
            return Err(Error::new(ErrorKind::Retry, "the space of a checkpoint is being freed"));
        }
        let coming = self.hot.is_sealing() || self.cold.is_sealing() || self.segments.is_freeing();
        if self.can_gain() || coming || self.can_drop_expired() || self.free_snapshot_space() {
            return Err(Error::new(ErrorKind::Retry, "space is being cleaned"));
        }
        if self.is_open_segment_sparse() && !self.hot.is_marked() {
            // Rolled now, the log would need another segment to say what it knows of batches.
            self.hot.want_mark(self.now.monotonic_us);
            return Err(Error::new(ErrorKind::Retry, "batches over several shards are being decided"));
        }
        if self.is_open_segment_sparse() && self.open_segment_has_records() {
            self.hot.roll(&mut self.segments);
            return Err(Error::new(ErrorKind::Retry, "the open segment is being cleaned"));
        }
        if self.can_evict_for_space() {
            return Err(Error::new(ErrorKind::Retry, "keys are being evicted"));
        }
        if self.may_be_given_space() {
            return Err(Error::new(ErrorKind::Retry, "the device is asked for space"));
        }
        if self.others_may_free() {
            return Err(Error::new(ErrorKind::Retry, "other shards look for space"));
        }
        Err(self.full(kept))
    }

    /// Nothing can be freed: says why.
    fn full(&self, kept: u32) -> Error {
        let (free, owned) = (self.segments.free_count(), self.segments.total_count());
        let text = if self.segments.pool().is_short() {
            // What the device lacks need not be room.
            let words = self.segments.pool().refusal();
            format!(
                "the device gives the store no more than {owned} segments ({words}), {free} of them are free, {kept} reserved, \
                 and cleaning can gain nothing; give it what it lacks, or delete keys"
            )
        } else if self.is_starved() {
            format!(
                "the device is full: none of {owned} segments is free, and cleaning needs one; raise the \
                 capacity, or open the store with fewer shards"
            )
        } else {
            format!(
                "the device is full: {free} of {owned} segments are free, {kept} of them reserved, and cleaning can \
                 gain nothing; delete keys or raise the capacity"
            )
        };
        Error::new(ErrorKind::NoSpace, text)
    }

    /// Free segments that parts may still need, to be taken back or called decided. Cleaning must leave
    /// them: what it empties becomes free only when the parts are decided.
    pub(crate) fn kept_segments(&self) -> u32 {
        let bytes = self.hot.kept_bytes();
        if bytes == 0 || self.hot.room_for(bytes, 0) {
            return 0;
        }
        bytes.div_ceil(Stream::segment_room(self.segments.segment_bytes(), UNDO_UNITS).max(1)) as u32
    }

    /// `wanted`: what new keys may cost the indexes at worst, in bytes; the last of them is in `keyspace`.
    fn admit_memory(&mut self, wanted: u64, keyspace: Option<KeyspaceId>) -> Result<()> {
        let Some(keyspace) = keyspace else { return Ok(()) };
        if self.index_room(keyspace) >= wanted {
            if self.memory.index_wanted > 0 {
                self.end_memory_wait(false);
            }
            return Ok(());
        }
        self.memory.index_wanted = wanted;
        self.share_memory();
        if self.index_room(keyspace) >= wanted {
            return Ok(());
        }
        if self.can_drop_expired() {
            return Err(Error::new(ErrorKind::Retry, "keys that have expired are being dropped"));
        }
        if self.may_gain_memory() {
            return Err(Error::new(ErrorKind::Retry, "memory of another shard is being taken over"));
        }
        if self.can_evict_for_index(keyspace, wanted) {
            return Err(Error::new(ErrorKind::Retry, "keys are being evicted"));
        }
        self.end_memory_wait(true);
        let limit = self.settings.index_bytes_max();
        Err(Error::new(
            ErrorKind::NoMemory,
            format!(
                "the index has used up its {limit} bytes of memory: new keys are refused; raise --memory or delete keys"
            ),
        ))
    }

    /// What the index may take, in bytes. A small one is let grow: its first keys cost a hundred kilobytes at
    /// once.
    pub(crate) fn index_limit(&self) -> u64 {
        self.settings.index_bytes_max().max(INDEX_BYTES_MIN)
    }
}
