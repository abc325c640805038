//! Applying writes: find the old records, make room, append, repoint the index.

use crate::admission::Purpose;
use crate::expired::profile::Trace;
use crate::format::record::{
    self, FLAG_BATCH_MORE, FLAG_COLLIDES, FLAG_EXPIRY, FLAG_KEYED, FLAG_PART, FLAG_REPLACES, FLAG_TOMBSTONE,
    PartMark, RecordHeader,
};
use crate::location::{Location, Target};
use crate::read_path::{Found, Search, cache_at};
use crate::shard::LogShard;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Position, Result};
use tierstone_cache::NewFrame;
use tierstone_engine::{BatchTicket, Commit, Cost, Durability, Write, WriteKind, WriteReceipt};

/// New records of one batch go into the cache up to so many bytes together.
const BATCH_CACHED_BYTES_MAX: usize = 256 << 10;
/// Keys of an order that a leaf has, about: what is a step's work is counted in keys.
const KEYS_A_LEAF: usize = 20;
/// So many writes ahead in a batch the mark of an old record is asked for: no cache of the processor holds it.
const MARKS_AHEAD: usize = 4;

/// Positions seen before, or perhaps others: one bit each, an eighth of them set at the end.
struct PositionFilter {
    bits: Vec<u64>,
}

impl PositionFilter {
    fn new(positions: usize) -> Self {
        PositionFilter { bits: vec![0; (positions / 8 + 1).next_power_of_two()] }
    }

    /// Whether `position`, or one that cannot be told from it here, was inserted before.
    fn insert(&mut self, position: Position) -> bool {
        let mixed = position.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (mixed >> 32) as usize & (self.bits.len() - 1);
        let bit = 1 << (mixed >> 58);
        let is_known = self.bits[word] & bit != 0;
        self.bits[word] |= bit;
        is_known
    }
}

impl LogShard {
    pub(crate) fn write_inner(&mut self, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        match self.refused_by_split(writes) {
            Some(error) => Err(error),
            None => self.write_unlocked(writes),
        }
    }

    /// The same where a split that refuses writes is what writes.
    pub(crate) fn write_unlocked(&mut self, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        self.check_writable()?;
        let [write] = writes else {
            let (_, searches) = self.admit_all(writes, Purpose::Write)?;
            return self.write_batch(writes, searches, None);
        };
        let search = self.search(&write.key);
        self.prefetch_coming_mark();
        self.admit(writes, &[search], Purpose::Write)?;
        if let Some((location, _)) = self.apply(write, search, (false, None))? {
            self.cache_written(write, location);
        }
        self.release_records(writes);
        self.note_awaited();
        Ok(self.receipt())
    }

    /// Whether `writes` would be taken, as a part too: gives the bytes of what would take the part back, and what was
    /// found of each key.
    pub(crate) fn admit_part(
        &mut self,
        writes: &[Write<'_>],
        purpose: Purpose,
    ) -> Result<(u64, Vec<Search>)> {
        if let Some(error) = self.refused_by_split(writes) {
            return Err(error);
        }
        self.check_writable()?;
        self.admit_all(writes, purpose)
    }

    /// Applies this shard's part of a batch over several.
    pub(crate) fn write_part_inner(
        &mut self,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        let is_admitted = self.admitted_at.take() == Some((self.reads.steps, self.applied));
        let found =
            self.admit_part(writes, if is_admitted { Purpose::AdmittedPart } else { Purpose::Part })?;
        self.write_admitted_part(writes, found, batch)
    }

    /// The same of one that was admitted just now: `found` is what that gave, and nothing has been done since.
    pub(crate) fn write_admitted_part(
        &mut self,
        writes: &[Write<'_>],
        (undo_bytes, searches): (u64, Vec<Search>),
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        if writes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "a part of a batch has at least one write"));
        }
        self.write_batch(writes, searches, Some((batch, undo_bytes)))
    }

    /// Takes this shard's part of a refused batch back. What restores the old state may use the reserve:
    /// nothing on this shard is acknowledged before it is there.
    pub(crate) fn undo_part_inner(
        &mut self,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        self.check_writable()?;
        if self.hot.delays_undo() && !self.identity.mutations.is_on("redo_undo_not_delayed") {
            return Err(Error::new(ErrorKind::Retry, "batches over several shards are being written"));
        }
        let (_, searches) = self.admit_all(writes, Purpose::Undo)?;
        let receipt = self.write_batch(writes, searches, None)?;
        self.hot.undo_part(batch);
        Ok(receipt)
    }

    /// Applies what was admitted, of which the `searches` have come just now. `part`: the batch over several shards, and the bytes of what would take
    /// the part back.
    fn write_batch(
        &mut self,
        writes: &[Write<'_>],
        searches: Vec<Search>,
        part: Option<(&Arc<BatchTicket>, u64)>,
    ) -> Result<WriteReceipt> {
        let mut begins = match part {
            Some((batch, undo_bytes)) => {
                let number = self.hot.begin_part(batch, self.applied + 1, undo_bytes);
                Some(PartMark { batch: batch.id(), number, parts: batch.parts() })
            }
            None => {
                self.hot.begin_batch();
                None
            }
        };
        // The cache takes nothing in before the end: making room would push records out that later
        // writes of the batch must find.
        let (mut written, mut bytes) = (Vec::with_capacity(writes.len()), 0);
        let mut before = PositionFilter::new(writes.len());
        searches.iter().take(MARKS_AHEAD).for_each(|search| self.prefetch_mark_of(search.found));
        for (number, (write, &search)) in writes.iter().zip(&searches).enumerate() {
            if let Some(coming) = searches.get(number + MARKS_AHEAD) {
                self.prefetch_mark_of(coming.found);
            }
            // An earlier write of the batch may have been to the same key.
            let search = if before.insert(write.key.position) { self.search(&write.key) } else { search };
            let more = number + 1 < writes.len();
            if let Some((location, len)) = self.apply(write, search, (more, begins.take()))? {
                written.push((number, location));
                bytes += len;
            }
        }
        match part {
            Some(_) => self.hot.end_part(),
            None => self.hot.end_batch(),
        }
        // Who loads a store would push out of the cache what others read.
        if bytes <= BATCH_CACHED_BYTES_MAX {
            for (number, location) in written {
                self.cache_written(&writes[number], location);
            }
        }
        self.release_records(writes);
        self.note_awaited();
        Ok(self.receipt())
    }

    fn receipt(&self) -> WriteReceipt {
        let commit = match self.settings.durability {
            Durability::Sync => Commit::Durable,
            Durability::Group { .. } => Commit::Grouped,
            // The bound is kept by a device that falls behind too: who writes waits for it then.
            Durability::Relaxed if self.is_beyond_relaxed_bound() => Commit::Durable,
            Durability::Relaxed => Commit::Relaxed,
        };
        WriteReceipt { seq: self.applied, commit, cost: Cost::default() }
    }

    /// Whether the writes that a crash would lose span more time than `relaxed` states.
    fn is_beyond_relaxed_bound(&self) -> bool {
        let bound_us = Durability::RELAXED_BOUND_MS * 1_000;
        let since_us = self.hot.undurable_since_us();
        let unbounded = self.identity.mutations.is_on("relaxed_unbounded");
        !unbounded && since_us.is_some_and(|since_us| self.now.monotonic_us > since_us + bound_us)
    }

    /// Applies one write; gives the place of a new record that the cache does not hold yet. `batch`:
    /// whether it goes on in the next record, and the part that this record begins.
    pub(crate) fn apply(
        &mut self,
        write: &Write<'_>,
        search: Search,
        batch: (bool, Option<PartMark>),
    ) -> Result<Option<(Location, usize)>> {
        self.note_change(&write.key);
        let absent = search.found == Found::Absent;
        let damaged = search.damaged && !self.identity.mutations.is_on("deletes_ignore_unreadable");
        if absent && !damaged && matches!(write.kind, WriteKind::Delete) && !self.hot.in_batch() {
            return Ok(None);
        }
        if let WriteKind::Put { .. } = write.kind {
            self.evictor.uses.written(write.key.keyspace, write.key.position, !absent);
        }
        if let Some(value) = self.touchable(write, &search) {
            return self.apply_touch(write, &search, value, batch).map(|()| None);
        }
        self.applied += 1;
        let collides = search.collides && !self.identity.mutations.is_on("no_collides_flag");
        let (more, part) = batch;
        let flags = if more { FLAG_BATCH_MORE } else { 0 }
            | if collides { FLAG_COLLIDES } else { 0 }
            | if absent { 0 } else { FLAG_REPLACES };
        let mut header = self.header_of(write, self.applied, flags, part);
        let value = match write.kind {
            WriteKind::Put { value, .. } => value,
            WriteKind::Delete => &[],
        };
        let key = &write.key;
        let now_us = self.now.monotonic_us;
        let absorbed = self.absorb(write, &search, &mut header);
        let placed = absorbed
            .or_else(|| self.hot.append(&header, key.position, key.bytes, value, now_us, &mut self.segments));
        let Some(location) = placed else {
            // Room was made sure of before; going on would break a batch.
            let error = Error::new(ErrorKind::NoSpace, "no free segment where one was reckoned with");
            self.failed = Some(error.clone());
            return Err(error);
        };
        self.counts.user_bytes_written += (key.bytes.len() + value.len()) as u64;
        if header.expiry_ms != 0 {
            self.sweeper.note_expiring();
        }
        if search.damaged {
            self.note_passed(key, header.seq);
        }
        match write.kind {
            WriteKind::Put { .. } => {
                let cached = self.point_to(write, search, location, &header);
                Ok((!cached).then(|| (location, header.record_len())))
            }
            WriteKind::Delete => {
                self.unpoint(write, search, location, &header);
                Ok(None)
            }
        }
    }

    /// Writes the new record over the old one where both lie in one group that is not closed, if nothing needs the old
    /// one ([`crate::stream`]); gives the place of both. `header` gets what the old one said of its predecessor.
    fn absorb(&mut self, write: &Write<'_>, search: &Search, header: &mut RecordHeader) -> Option<Location> {
        let WriteKind::Put { value, .. } = write.kind else { return None };
        let location = self.old_place(search.found)?;
        if !self.hot.is_open(location) || search.damaged || header.part != PartMark::default() {
            return None;
        }
        let old = &search.header;
        let is_needed = self.snapshots.is_any()
            && !self.identity.mutations.is_on("absorbed_beside_snapshots")
            || self.checkpoints.is_writing()
            || self.transfers.are_under_way()
            || self.sweeper.is_walking_in(location.segment())
            || self.touches.of_record(write.key.position, old).is_some();
        if is_needed {
            return None;
        }
        let mut newer = *header;
        newer.flags = header.flags & !FLAG_REPLACES | old.flags & FLAG_REPLACES;
        if !self.hot.absorb(location, (old, &newer), write.key.bytes, value, &self.segments) {
            return None;
        }
        *header = newer;
        Some(location)
    }

    /// The place of the old record, and whether it was a frame of the cache.
    pub(crate) fn old_place(&self, found: Found) -> Option<Location> {
        match found {
            Found::Frame(frame) => Some(Location::from_raw(self.cache.peek(frame).location)),
            Found::Held(location) | Found::Unsubmitted(location) => Some(location),
            Found::Absent | Found::Unknown => None,
        }
    }

    /// The record at `location`, of a key with `position`, is not its key's any more, and its touch is dead.
    pub(crate) fn kill_found(&mut self, position: Position, location: Location, header: &RecordHeader) {
        match self.end_touch(header.keyspace, position, header.seq) {
            None => self.segments.kill_record(location, header.units(), header.expiry_ms, header.flags),
            Some(expiry_ms) => {
                self.segments.kill(location, header.units(), false);
                self.segments.unprofile(location, header.units() as u32, expiry_ms, Trace::Tombstone);
            }
        }
    }

    /// Repoints the index; true when the cache holds the new record in the old one's frame.
    fn point_to(
        &mut self,
        write: &Write<'_>,
        search: Search,
        location: Location,
        header: &RecordHeader,
    ) -> bool {
        let key = &write.key;
        // One that was written over is nowhere any more.
        if let Some(old) = self.old_place(search.found).filter(|&old| old != location) {
            self.keep_for_snapshots((key.keyspace, key.position), old, &search.header, header.seq);
            self.kill_found(key.position, old, &search.header);
        }
        let Some(bytes) = self.hot.unsubmitted(location) else {
            unreachable!("the record was appended in this very call")
        };
        let bytes = &bytes[..header.record_len()];
        if let Found::Frame(frame) = search.found
            && self.cache.replace(frame, &[bytes], location.raw())
        {
            self.cache.touch(frame);
            return true;
        }
        let old_value = match search.found {
            Found::Frame(frame) => {
                self.cache.remove(frame);
                Some(Target::Frame(frame.to_bits()).pack())
            }
            _ => self.old_place(search.found).map(|old| Target::Device(old).pack()),
        };
        let on_device = Target::Device(location).pack();
        let keyspace = self.keyspaces.get_or_create(key.keyspace);
        match old_value {
            Some(old_value) => {
                let replaced = keyspace.index.replace(key.position, old_value, on_device);
                debug_assert!(replaced, "the search found an entry that is not there");
            }
            None => {
                if keyspace.index.insert(key.position, on_device).is_err() {
                    unreachable!("the index has no limit of its own");
                }
                if !self.identity.mutations.is_on("order_misses_new_keys") {
                    keyspace.note_live(key.bytes);
                }
            }
        }
        false
    }

    /// Takes a record that was just appended into the cache.
    fn cache_written(&mut self, write: &Write<'_>, location: Location) {
        let key = &write.key;
        // A later write of the batch may have taken its place, and be longer or shorter.
        let written = self.hot.unsubmitted(location);
        let len = written.and_then(record::decode_header).map(|header| header.record_len());
        let Some(bytes) = written.zip(len).and_then(|(bytes, len)| bytes.get(..len)) else { return };
        let (position, keyspace) = (key.position, key.keyspace);
        let frame = NewFrame { position, keyspace, location: location.raw(), parts: &[bytes] };
        cache_at(&mut self.cache, &mut self.keyspaces, frame);
    }

    fn unpoint(&mut self, write: &Write<'_>, search: Search, tombstone: Location, header: &RecordHeader) {
        // A record that cannot be read may be the key's: the order knows better than the search.
        let leaves_order = !self.identity.mutations.is_on("deletes_stay_in_order")
            && self
                .keyspaces
                .get_mut(write.key.keyspace)
                .is_some_and(|keyspace| keyspace.note_gone(write.key.bytes));
        let Some(old) = self.old_place(search.found) else {
            if leaves_order {
                self.keep_gone_key(&write.key, header.seq, search.damaged);
            }
            // The record only marks the end of a batch: nothing older can exist that it would hide. But a
            // record that cannot be read now may be one.
            if !search.damaged {
                self.segments.kill(tombstone, header.units(), true);
            }
            return;
        };
        let key = &write.key;
        self.keep_for_snapshots((key.keyspace, key.position), old, &search.header, header.seq);
        if leaves_order {
            self.keep_gone_key(key, header.seq, search.damaged);
        }
        self.kill_found(key.position, old, &search.header);
        let value = match search.found {
            Found::Frame(frame) => {
                self.cache.remove(frame);
                Target::Frame(frame.to_bits()).pack()
            }
            _ => Target::Device(old).pack(),
        };
        if let Some(keyspace) = self.keyspaces.get_mut(write.key.keyspace) {
            let removed = keyspace.index.remove(write.key.position, value);
            debug_assert!(removed, "the search found an entry that is not there");
        }
    }

    /// Takes up to `count` records of a dropped keyspace off their segments' accounts; true at its end.
    pub(crate) fn sweep_some(&mut self, keyspace: &mut crate::keyspaces::Keyspace, count: usize) -> bool {
        if let Some(order) = &mut keyspace.order {
            if order.discard(count / KEYS_A_LEAF) {
                keyspace.order = None;
            }
            return false;
        }
        if self.end_touches_of(keyspace.id, count) {
            return false;
        }
        let mut values = Vec::new();
        let progress = keyspace.index.scan(keyspace.swept, count, &mut values);
        let counts_any_life = self.identity.mutations.is_on("swept_in_another_life");
        for value in values {
            let location = match Target::unpack(value) {
                Target::Frame(bits) => {
                    Location::from_raw(self.cache.peek(tierstone_cache::FrameId::from_bits(bits)).location)
                }
                Target::Device(location) => location,
            };
            let segment = location.segment();
            if self.segments.has_been_since(segment, keyspace.left_at) || counts_any_life {
                self.segments.kill_one_of(segment);
            }
        }
        match progress {
            crate::index::ScanProgress::Next(position) => {
                keyspace.swept = position;
                false
            }
            crate::index::ScanProgress::End => true,
        }
    }

    fn summaries_without_keys(&self) -> bool {
        self.identity.mutations.is_on("summaries_without_keys")
    }

    /// The header of the record that `write` will be.
    pub(crate) fn header_of(
        &self,
        write: &Write<'_>,
        seq: u64,
        mut flags: u8,
        part: Option<PartMark>,
    ) -> RecordHeader {
        let (value_len, expiry_ms, kind) = match write.kind {
            WriteKind::Put { value, expiry_ms, kind } => (value.len(), expiry_ms, kind.0),
            WriteKind::Delete => (0, 0, 0),
        };
        if matches!(write.kind, WriteKind::Delete) {
            flags |= FLAG_TOMBSTONE;
        } else if self.keyspaces.is_ordered(write.key.keyspace) && !self.summaries_without_keys() {
            flags |= FLAG_KEYED;
        }
        if expiry_ms != 0 {
            flags |= FLAG_EXPIRY;
        }
        if part.is_some() {
            flags |= FLAG_PART;
        }
        RecordHeader {
            seq,
            flags,
            kind,
            keyspace: write.key.keyspace,
            expiry_ms,
            key_len: write.key.bytes.len(),
            value_len,
            part: part.unwrap_or_default(),
            touched: Default::default(),
        }
    }
}
