//! Finding keys: in the index, the cache, held records and groups not yet written; on the device
//! only for those who ask.

use crate::format::record::{self, Decoded, RecordHeader};
use crate::index::HashIndex;
use crate::io::IoTag;
use crate::keyspaces::Keyspaces;
use crate::location::{Location, Target};
use crate::reads::{Held, Reading, Waiter};
use crate::shard::LogShard;
use crate::stream::Stream;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Seq, Token};
use tierstone_cache::{FrameId, NewFrame, RecordCache};
use tierstone_engine::{Cost, Key, RecordMeta, ValueKind};
use tierstone_media::{BLOCK_BYTES, IoCompletion, IoKind};

/// A read fetches at least this much, and whole records up to this length at once: when records of a
/// segment differ much, a longer one takes a second read.
const READ_AHEAD_BYTES_MAX: usize = 16 << 10;

/// Lines of a cached record that are fetched ahead: frame, header, key, and the value of a short one. Of longer
/// ones the processor sees by itself that line follows line.
pub(crate) const PREFETCHED_LINES: usize = 4;

/// Where a key was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It has no record.
    Absent,
    /// Its record is in the cache.
    Frame(FrameId),
    /// Its record is held.
    Held(Location),
    /// Its record is in a group that has not been submitted.
    Unsubmitted(Location),
    /// Some record that may be its own is on the device only.
    Unknown,
}

/// A search's result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    pub found: Found,
    /// The record's header, where it was found.
    pub header: RecordHeader,
    /// Another live key has the very same position.
    pub collides: bool,
    /// A record that cannot be read may be the key's: a lookup must say so, a write goes past it.
    pub damaged: bool,
}

impl Search {
    /// The key has no record.
    pub const ABSENT: Search =
        Search { found: Found::Absent, header: RecordHeader::EMPTY, collides: false, damaged: false };

    /// The result for the only record that may be a key's, which was just read.
    pub fn known(target: Target, header: RecordHeader) -> Search {
        let found = match target {
            Target::Frame(bits) => Found::Frame(FrameId::from_bits(bits)),
            Target::Device(location) => Found::Unsubmitted(location),
        };
        Search { found, header, collides: header.flags & record::FLAG_COLLIDES != 0, damaged: false }
    }
}

impl LogShard {
    fn index_of(&self, keyspace: KeyspaceId) -> Option<&HashIndex> {
        self.keyspaces.get(keyspace).map(|keyspace| &keyspace.index)
    }

    /// The index of a keyspace, or of one that goes and that snapshots still show.
    pub(crate) fn index_reachable(&self, keyspace: KeyspaceId) -> Option<&HashIndex> {
        self.keyspaces.reachable(keyspace).map(|keyspace| &keyspace.index)
    }

    /// Asks for what searches for these positions will touch of the index, each level for all of them before the
    /// next.
    pub(crate) fn prefetch_places(&self, places: impl Iterator<Item = (KeyspaceId, Position)> + Clone) {
        for (keyspace, position) in places.clone() {
            self.index_of(keyspace).inspect(|index| index.prefetch_region(position));
        }
        for (keyspace, position) in places {
            self.index_of(keyspace).inspect(|index| index.prefetch(position));
        }
    }

    /// The same for `keys`.
    pub(crate) fn prefetch_index<'k>(&self, keys: impl Iterator<Item = &'k Key<'k>> + Clone) {
        self.prefetch_places(keys.map(|key| (key.keyspace, key.position)));
    }

    /// Searches memory for `key`.
    pub(crate) fn search(&mut self, key: &Key<'_>) -> Search {
        let absent = Search::ABSENT;
        let Some(keyspace) = self.keyspaces.get(key.keyspace) else { return absent };
        let foreseen = self.foreseen.take(key.position).and_then(|spot| keyspace.index.value_at(spot));
        let Some(first) = foreseen.or_else(|| keyspace.index.first_candidate(key.position)) else {
            return absent;
        };
        if let Target::Frame(bits) = Target::unpack(first) {
            let frame = FrameId::from_bits(bits);
            if let Some(header) = matching(self.cache.peek(frame).bytes, key) {
                // Another key at the very same position is met by the loop below only; a record that
                // is replaced keeps what its predecessor said.
                let collides = header.flags & record::FLAG_COLLIDES != 0;
                return Search { found: Found::Frame(frame), header, collides, damaged: false };
            }
        }
        self.search_all(key, absent)
    }

    fn search_all(&mut self, key: &Key<'_>, absent: Search) -> Search {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        if let Some(keyspace) = self.keyspaces.get(key.keyspace) {
            keyspace.index.candidates(key.position, &mut candidates);
        }
        let mut result = absent;
        let mut unknown = false;
        for value in candidates.iter() {
            let target = Target::unpack(value);
            let found = match target {
                Target::Frame(bits) => Found::Frame(FrameId::from_bits(bits)),
                Target::Device(location) if self.reads.held.contains_key(&location.raw()) => {
                    Found::Held(location)
                }
                Target::Device(location) => Found::Unsubmitted(location),
            };
            let Some(bytes) = self.found_bytes(found) else {
                match target {
                    Target::Device(location) if self.reads.damaged.contains(&location.raw()) => {
                        result.damaged |= !self.reads.is_passed(location, key.keyspace, key.bytes);
                        // For all that is known it may be another key of this very position.
                        result.collides = true;
                    }
                    _ => unknown = true,
                }
                continue;
            };
            match matching(bytes, key) {
                Some(header) => (result.found, result.header) = (found, header),
                None => {
                    result.collides |= self.same_position(bytes, key);
                    // Read for this key, or for another whose tag is equal by chance.
                    self.counts.false_reads += u64::from(matches!(found, Found::Held(_)));
                }
            }
        }
        self.candidates = candidates;
        // With every candidate known, whether another key shares the position is known as well; a
        // write needs that, a lookup does not.
        if result.found == Found::Absent && unknown {
            result.found = Found::Unknown;
        }
        result.collides |= result.header.flags & record::FLAG_COLLIDES != 0;
        result
    }

    fn same_position(&self, bytes: &[u8], key: &Key<'_>) -> bool {
        record::decode_header(bytes).is_some_and(|header| {
            header.keyspace == key.keyspace
                && bytes
                    .get(header.key_range())
                    .is_some_and(|other| self.identity.hasher.position(other) == key.position)
        })
    }

    /// The bytes of a found record; `None` when they are not in memory.
    pub(crate) fn found_bytes(&self, found: Found) -> Option<&[u8]> {
        match found {
            Found::Frame(frame) => Some(self.cache.peek(frame).bytes),
            Found::Held(location) => self.reads.held.get(&location.raw()).map(Held::bytes),
            Found::Unsubmitted(location) => {
                self.hot.unsubmitted(location).or_else(|| self.cold.unsubmitted(location))
            }
            Found::Absent | Found::Unknown => None,
        }
    }

    /// Starts what is needed so that a search for `key` will know.
    pub(crate) fn start_fetch(&mut self, token: Token, key: &Key<'_>) {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        if let Some(keyspace) = self.keyspaces.get(key.keyspace) {
            keyspace.index.candidates(key.position, &mut candidates);
        }
        self.reads.fetches.entry(token).or_default();
        for value in candidates.iter() {
            let Target::Device(location) = Target::unpack(value) else { continue };
            if self.hot.is_unsubmitted(location) || self.cold.is_unsubmitted(location) {
                // In memory; and its group may stay open for long, so nothing must wait for it. Should it
                // be submitted before the search, that asks again.
                continue;
            }
            if let Some(held) = self.reads.held.get_mut(&location.raw()) {
                held.holders += 1;
                self.segments.get_mut(location.segment()).pins += 1;
                if let Some(fetch) = self.reads.fetches.get_mut(&token) {
                    fetch.holds.push(location);
                }
                continue;
            }
            if let Some(fetch) = self.reads.fetches.get_mut(&token) {
                fetch.outstanding += 1;
            }
            self.read_record(location, Waiter::Token(token));
        }
        self.candidates = candidates;
        self.reads.report(token);
    }

    pub(crate) fn release_token(&mut self, token: Token) {
        let Some(fetch) = self.reads.fetches.remove(&token) else { return };
        for location in fetch.holds {
            self.unhold(location);
        }
    }

    fn unhold(&mut self, location: Location) {
        self.unpin(location);
        if let Some(held) = self.reads.held.get_mut(&location.raw()) {
            held.holders -= 1;
            if held.holders == 0
                && let Some(held) = self.reads.held.remove(&location.raw())
            {
                self.buffers.give(held.buffer);
            }
        }
    }

    pub(crate) fn unpin(&mut self, location: Location) {
        let segment = self.segments.get_mut(location.segment());
        debug_assert!(segment.pins > 0);
        segment.pins = segment.pins.saturating_sub(1);
    }

    /// Adds a waiter to the read of `location`, and makes the read if there is none.
    pub(crate) fn read_record(&mut self, location: Location, waiter: Waiter) {
        self.segments.get_mut(location.segment()).pins += 1;
        if let Some(reading) = self.reads.reading.get_mut(&location.raw()) {
            reading.waiters.push(waiter);
            return;
        }
        let longest =
            self.segments.get(location.segment()).longest_units as usize * crate::location::UNIT_BYTES;
        let asked = longest.clamp(record::PREFIX_BYTES_MAX, READ_AHEAD_BYTES_MAX);
        let submitted = self.is_readable(location);
        let reading = Reading { waiters: vec![waiter], asked, submitted, cost: Cost::default() };
        self.reads.reading.insert(location.raw(), reading);
        if !submitted {
            self.reads.deferred.push(location);
        } else if !self.reads.runs.gather(location, asked) {
            self.submit_read(location, asked);
        }
    }

    pub(crate) fn submit_read(&mut self, location: Location, asked: usize) {
        let offset = location.offset();
        let start = offset / BLOCK_BYTES * BLOCK_BYTES;
        let segment_bytes = self.identity.geometry.segment_bytes as usize;
        let end = (offset + asked).next_multiple_of(BLOCK_BYTES).min(segment_bytes);
        let place = self.identity.geometry.segment_offset(location.segment()) + start as u64;
        if let Some(reading) = self.reads.reading.get_mut(&location.raw()) {
            reading.cost += Cost::of_read((end - start) as u64);
        }
        self.requests.push(IoTag::Record { location }, IoKind::Read, place, self.buffers.take(end - start));
    }

    /// Submits reads that waited for their group to become durable.
    pub(crate) fn submit_deferred(&mut self) {
        if self.reads.deferred.is_empty() {
            return;
        }
        let mut still = Vec::new();
        for location in std::mem::take(&mut self.reads.deferred) {
            if self.failed.is_some() {
                let error =
                    Error::new(ErrorKind::DeviceFailed, "the record was never written: the device failed");
                self.finish_read(location, None, Some(error));
            } else if !self.is_readable(location) {
                if !self.answer_from_refused(location) {
                    still.push(location);
                }
            } else if let Some(reading) = self.reads.reading.get_mut(&location.raw()) {
                reading.submitted = true;
                let asked = reading.asked;
                self.submit_read(location, asked);
            }
        }
        self.reads.deferred.append(&mut still);
    }

    /// Whether the device may be asked for the record at `location`. While it refuses writes for want of space, what it
    /// holds behind a refused group is read: the group may wait for ever.
    fn is_readable(&self, location: Location) -> bool {
        if !self.hot.is_volatile(location) && !self.cold.is_volatile(location) {
            return true;
        }
        let flying = self.hot.flying_at(location).or_else(|| self.cold.flying_at(location));
        !self.refused.is_empty() && flying.is_some_and(|flying| flying.is_durable())
    }

    /// Answers a read from the group that the record lies in, if the device has no space for that; returns whether it
    /// did. What the cleaner has moved was durable before, and must be readable as long as the device is full.
    fn answer_from_refused(&mut self, location: Location) -> bool {
        let Some(held) = self.copy_from_refused(location) else { return false };
        self.finish_read(location, Some(held), None);
        true
    }

    fn copy_from_refused(&mut self, location: Location) -> Option<Held> {
        let flying = self.hot.flying_at(location).or_else(|| self.cold.flying_at(location))?;
        let group =
            self.refused.iter().find(|refused| flying.is_meant_by(self.requests.tag(refused.token)))?;
        let bytes = group.buffer.as_ref()?.get(location.offset() - flying.start()..)?;
        let Decoded::Whole(header) = self.decode_at(location, bytes) else { return None };
        let mut buffer = self.buffers.take(header.record_len().next_multiple_of(BLOCK_BYTES));
        buffer[..header.record_len()].copy_from_slice(&bytes[..header.record_len()]);
        Some(Held { buffer, start: 0, header, holders: 0 })
    }

    /// What `bytes` hold, which begin with the record at `location`.
    pub(crate) fn decode_at(&self, location: Location, bytes: &[u8]) -> Decoded {
        let salt = self.segments.get(location.segment()).salt;
        let unit = self.hot.broken().salt_unit(location.unit());
        record::decode(bytes, salt, unit, Stream::record_bytes_max(self.identity.geometry))
    }

    /// A read of a record came back.
    pub(crate) fn record_read(&mut self, location: Location, completion: IoCompletion) {
        let start = location.offset() % BLOCK_BYTES;
        let buffer = match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => buffer,
            (result, _) => {
                self.counts.failed_reads += 1;
                let cause =
                    result.err().map_or_else(|| "no buffer came back".to_owned(), |error| error.detail);
                let error = Error::new(ErrorKind::Corrupt, format!("a record could not be read: {cause}"));
                self.finish_read(location, None, Some(error));
                return;
            }
        };
        match self.decode_at(location, &buffer[start..]) {
            Decoded::Whole(header) => {
                self.finish_read(location, Some(Held { buffer, start, header, holders: 0 }), None);
            }
            Decoded::Short { needed } => {
                self.buffers.give(buffer);
                self.submit_read(location, needed);
            }
            Decoded::Invalid => {
                self.counts.corrupt_reads += 1;
                let error = Error::new(
                    ErrorKind::Corrupt,
                    format!(
                        "the record at unit {} of segment {} is damaged; run `tierstone check`",
                        location.unit(),
                        location.segment()
                    ),
                );
                self.finish_read(location, None, Some(error));
            }
        }
    }

    /// Gives a read's result to all who wait for it.
    fn finish_read(&mut self, location: Location, mut record: Option<Held>, error: Option<Error>) {
        let Some(reading) = self.reads.reading.remove(&location.raw()) else { return };
        if error.is_some() && self.failed.is_none() {
            self.reads.damaged.insert(location.raw());
        } else {
            self.reads.damaged.remove(&location.raw());
        }
        let passed_at = record.as_ref().and_then(|held| self.drop_passed(location, held.bytes()));
        if let Some(held) = &record
            && passed_at.is_none()
        {
            self.cache_read(
                location,
                held.header,
                &held.buffer[held.start..held.start + held.header.record_len()],
            );
        }
        // The first one's who still wants it.
        let mut unpaid = reading.cost;
        for waiter in reading.waiters {
            let cost = &mut unpaid;
            match waiter {
                Waiter::Scan(number) => {
                    let entry =
                        record.as_ref().and_then(|held| self.page_entry(number, held.bytes(), passed_at));
                    if let Some(page) = self.reads.scans.get_mut(&number) {
                        page.outstanding -= 1;
                        page.cost += std::mem::take(cost);
                        page.entries.extend(entry);
                        page.error = page.error.take().or_else(|| error.clone());
                    }
                    self.unpin(location);
                    self.reads.report_scan(number);
                }
                Waiter::Snapshot(number) => {
                    let cost = std::mem::take(cost);
                    match &record {
                        Some(held) => self.snapshot_read_came(number, held.bytes(), passed_at, cost),
                        None => self.snapshot_read_failed(number, location, error.clone(), cost),
                    }
                    self.unpin(location);
                }
                Waiter::Token(token) => self.finish_fetch(token, location, (record.as_mut(), &error), cost),
            }
        }
        match record {
            Some(held) if held.holders > 0 => drop(self.reads.held.insert(location.raw(), held)),
            Some(held) => self.buffers.give(held.buffer),
            None => {}
        }
    }

    /// The same for one fetch that waits: its record, or why there is none.
    fn finish_fetch(
        &mut self,
        token: Token,
        location: Location,
        (record, error): (Option<&mut Held>, &Option<Error>),
        cost: &mut Cost,
    ) {
        let Some(fetch) = self.reads.fetches.get_mut(&token) else {
            self.unpin(location);
            return;
        };
        fetch.outstanding -= 1;
        fetch.has_waited = true;
        fetch.cost += std::mem::take(cost);
        match record {
            Some(held) => {
                held.holders += 1;
                fetch.holds.push(location);
            }
            None => {
                fetch.error = fetch.error.take().or_else(|| error.clone());
                self.unpin(location);
            }
        }
        self.reads.report(token);
    }

    /// Notes that `key` is written or deleted past records that could not be read.
    pub(crate) fn note_passed(&mut self, key: &Key<'_>, seq: Seq) {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        if let Some(keyspace) = self.keyspaces.get(key.keyspace) {
            keyspace.index.candidates(key.position, &mut candidates);
        }
        for value in candidates.iter() {
            if let Target::Device(location) = Target::unpack(value)
                && self.reads.damaged.contains(&location.raw())
            {
                let keys = self.reads.passed.entry(location.raw()).or_default();
                keys.entry((key.keyspace, key.bytes.to_vec())).or_insert(seq);
            }
        }
        self.candidates = candidates;
    }

    /// The record in `bytes` at `location` became readable. Gives the sequence of the write that went
    /// past it if its key was written or deleted while it was not: then it is an old one and leaves the
    /// index.
    pub(crate) fn drop_passed(&mut self, location: Location, bytes: &[u8]) -> Option<Seq> {
        let keys = self.reads.passed.remove(&location.raw())?;
        let header = record::decode_header(bytes)?;
        let key = bytes.get(header.key_range())?;
        let passed_at = keys.get(&(header.keyspace, key.to_vec())).copied()?;
        let position = self.identity.hasher.position(key);
        if let Some(keyspace) = self.keyspaces.get_mut(header.keyspace)
            && keyspace.index.remove(position, Target::Device(location).pack())
        {
            self.keep_for_snapshots((header.keyspace, position), location, &header, passed_at);
            self.kill_found(position, location, &header);
        }
        Some(passed_at)
    }

    /// Takes a record that was read into the cache.
    fn cache_read(&mut self, location: Location, header: RecordHeader, bytes: &[u8]) {
        let Some(key) = bytes.get(header.key_range()) else { return };
        let position = self.identity.hasher.position(key);
        let frame =
            NewFrame { position, keyspace: header.keyspace, location: location.raw(), parts: &[bytes] };
        cache_at(&mut self.cache, &mut self.keyspaces, frame);
    }
}

/// Takes a record into the cache, if the index still points to its place on the device: it may have been
/// replaced while it was read, or by a later write of its batch.
pub(crate) fn cache_at(cache: &mut RecordCache, keyspaces: &mut Keyspaces, record: NewFrame<'_>) {
    let (keyspace, position) = (record.keyspace, record.position);
    let from = Target::Device(Location::from_raw(record.location)).pack();
    let Some(frame) = cache.insert(record, keyspaces) else { return };
    let to = Target::Frame(frame.to_bits()).pack();
    let keyspace = keyspaces.get_mut(keyspace);
    if !keyspace.is_some_and(|keyspace| keyspace.index.replace(position, from, to)) {
        cache.remove(frame);
    }
}

/// The header of the record in `bytes` if it is `key`'s.
#[inline(always)]
pub(crate) fn matching(bytes: &[u8], key: &Key<'_>) -> Option<RecordHeader> {
    let header = record::decode_header(bytes)?;
    let same = header.key_len == key.bytes.len()
        && header.keyspace == key.keyspace
        && bytes.get(header.key_range()) == Some(key.bytes);
    same.then_some(header)
}

/// What a record's header says to the layers above, touches apart.
pub(crate) fn meta_of(header: &RecordHeader) -> RecordMeta {
    RecordMeta { seq: header.seq, expiry_ms: header.expiry_ms, kind: ValueKind(header.kind) }
}
