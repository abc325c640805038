//! Applying writes: find the old records, make room, append, repoint the index.

use crate::format::record::{
    self, FLAG_BATCH_MORE, FLAG_COLLIDES, FLAG_EXPIRY, FLAG_TOMBSTONE, RecordHeader,
};
use crate::location::{Location, Target, UNIT_BYTES};
use crate::read_path::{Found, Search};
use crate::shard::LogShard;
use crate::stream::Stream;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_cache::NewFrame;
use tierstone_engine::{Commit, Durability, Write, WriteKind, WriteReceipt};

/// What a new key may cost the index at worst, in bytes: its share of a page and of a region's split.
const INDEX_BYTES_A_NEW_KEY_MAX: u64 = 512;
/// The index is taken as full this far below its limit, for what splits need at once.
const INDEX_SLACK_BYTES: u64 = 64 << 10;

impl LogShard {
    pub(crate) fn write_inner(&mut self, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        match self.refused_by_split(writes) {
            Some(error) => Err(error),
            None => self.write_unlocked(writes),
        }
    }

    /// The same where a split that refuses writes is what writes.
    pub(crate) fn write_unlocked(&mut self, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        if let Some(error) = self.unwritable() {
            return Err(error);
        }
        if !self.may_write_now() {
            return Err(Error::new(ErrorKind::Retry, "the shard has enough to write"));
        }
        let [write] = writes else { return self.write_batch(writes) };
        let search = self.search(&write.key);
        self.admit(writes, &[search.found])?;
        if let Some((location, len)) = self.apply(write, search, false)? {
            self.cache_written(write, location, len);
        }
        Ok(self.receipt())
    }

    /// Whether the shard is in order and has not too much to write already.
    pub(crate) fn may_write_now(&self) -> bool {
        self.unwritable().is_none() && self.hot.buffered_bytes() <= self.settings.write_buffer_bytes_max
    }

    fn write_batch(&mut self, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        let found: Vec<Found> = writes.iter().map(|write| self.search(&write.key).found).collect();
        self.admit(writes, &found)?;
        self.hot.begin_batch();
        // The cache takes nothing in before the end: making room would push records out that later
        // writes of the batch must find.
        let mut written = Vec::new();
        for (number, write) in writes.iter().enumerate() {
            // Searched again: an earlier write of the batch may have been to the same key.
            let search = self.search(&write.key);
            let more = number + 1 < writes.len();
            if let Some((location, len)) = self.apply(write, search, more)? {
                written.push((number, location, len));
            }
        }
        self.hot.end_batch();
        for (number, location, len) in written {
            self.cache_written(&writes[number], location, len);
        }
        Ok(self.receipt())
    }

    fn receipt(&self) -> WriteReceipt {
        let commit = match self.settings.durability {
            Durability::Sync => Commit::Durable,
            Durability::Group { .. } => Commit::Grouped,
            Durability::Relaxed => Commit::Relaxed,
        };
        WriteReceipt { seq: self.applied, commit }
    }

    /// Refuses, before anything is applied, what could not be applied whole.
    pub(crate) fn admit(&mut self, writes: &[Write<'_>], found: &[Found]) -> Result<()> {
        let longest = Stream::record_bytes_max(self.identity.geometry);
        let mut bytes = 0u64;
        let mut units_max = 1;
        let mut new_keys = 0;
        let mut only_deletes = true;
        let mut unknown = false;
        for (write, found) in writes.iter().zip(found) {
            if *found == Found::Unknown {
                self.start_own_fetch(&write.key);
                unknown = true;
            }
            let header = header_of(write, 0, false, false);
            if write.key.bytes.len() > record::KEY_BYTES_MAX {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "a key of {} bytes is longer than {}",
                        write.key.bytes.len(),
                        record::KEY_BYTES_MAX
                    ),
                ));
            }
            if header.record_len() > longest {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("a record of {} bytes is longer than {longest}", header.record_len()),
                ));
            }
            if matches!(write.kind, WriteKind::Put { .. }) {
                only_deletes = false;
                new_keys += u64::from(*found == Found::Absent);
            }
            bytes += (header.units() * UNIT_BYTES) as u64;
            units_max = units_max.max(header.units());
        }
        if unknown {
            return Err(Error::new(ErrorKind::Retry, "an old record must be read first"));
        }
        self.admit_space(bytes, units_max, only_deletes)?;
        self.admit_memory(new_keys)
    }

    fn admit_space(&mut self, bytes: u64, units_max: usize, only_deletes: bool) -> Result<()> {
        let room = Stream::segment_room(self.segments.segment_bytes(), units_max).max(1);
        // One segment more than whole ones: the open one may not take the first record.
        let needed = if self.hot.room_for(bytes) { 0 } else { bytes.div_ceil(room) as u32 };
        let reserved = self.settings.reserved_segments;
        // The cleaner needs two, the one it is filling included: a crash seals that one.
        let for_cleaner = if self.cold.written_segment().is_some() { 1 } else { 2 };
        let kept = if only_deletes { reserved.clamp(1, for_cleaner) } else { reserved };
        if needed + kept <= self.segments.free_count() || needed == 0 {
            return Ok(());
        }
        let coming = self.hot.is_sealing() || self.cold.is_sealing() || self.segments.is_freeing();
        if self.can_gain() || coming || self.free_snapshot_space() {
            return Err(Error::new(ErrorKind::Retry, "space is being cleaned"));
        }
        if self.is_open_segment_sparse() {
            self.hot.roll(&mut self.segments);
            return Err(Error::new(ErrorKind::Retry, "the open segment is being cleaned"));
        }
        Err(Error::new(
            ErrorKind::NoSpace,
            format!(
                "the store is full: {} of {} segments are free and {kept} of them reserved; delete keys or raise the capacity",
                self.segments.free_count(),
                self.segments.owned_count(),
            ),
        ))
    }

    fn admit_memory(&self, new_keys: u64) -> Result<()> {
        if new_keys == 0 {
            return Ok(());
        }
        let limit = self.settings.index_bytes_max();
        let needed = self.keyspaces.memory_bytes() + new_keys * INDEX_BYTES_A_NEW_KEY_MAX + INDEX_SLACK_BYTES;
        // A small index is let grow: its first keys cost a hundred kilobytes at once.
        if needed <= limit.max(1 << 20) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NoMemory,
            format!(
                "the index has used up its {limit} bytes of memory: new keys are refused; raise --memory or delete keys"
            ),
        ))
    }

    /// Applies one write; gives the place of a new record that the cache does not hold yet.
    pub(crate) fn apply(
        &mut self,
        write: &Write<'_>,
        search: Search,
        more: bool,
    ) -> Result<Option<(Location, usize)>> {
        self.note_change(&write.key);
        let absent = search.found == Found::Absent;
        let damaged = search.damaged && !self.identity.mutations.is_on("deletes_ignore_unreadable");
        if absent && !damaged && matches!(write.kind, WriteKind::Delete) && !self.hot.in_batch() {
            return Ok(None);
        }
        self.applied += 1;
        let collides = search.collides && !self.identity.mutations.is_on("no_collides_flag");
        let header = header_of(write, self.applied, more, collides);
        let value = match write.kind {
            WriteKind::Put { value, .. } => value,
            WriteKind::Delete => &[],
        };
        let key = &write.key;
        let now_us = self.now.monotonic_us;
        let appended = self.hot.append(&header, key.position, key.bytes, value, now_us, &mut self.segments);
        let Some(location) = appended else {
            // Room was made sure of before; going on would break a batch.
            let error = Error::new(ErrorKind::NoSpace, "no free segment where one was reckoned with");
            self.failed = Some(error.clone());
            return Err(error);
        };
        self.counts.user_bytes_written += (key.bytes.len() + value.len()) as u64;
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

    /// The place of the old record, and whether it was a frame of the cache.
    fn old_place(&self, found: Found) -> Option<Location> {
        match found {
            Found::Frame(frame) => Some(Location::from_raw(self.cache.peek(frame).location)),
            Found::Held(location) | Found::Unsubmitted(location) => Some(location),
            Found::Absent | Found::Unknown => None,
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
        if let Some(old) = self.old_place(search.found) {
            self.keep_for_snapshots((key.keyspace, key.position), old, &search.header, header.seq);
            self.segments.kill(old, search.header.units(), false);
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
            }
        }
        false
    }

    /// Takes a record that was just appended into the cache.
    fn cache_written(&mut self, write: &Write<'_>, location: Location, len: usize) {
        let key = &write.key;
        let on_device = Target::Device(location).pack();
        let current = |keyspaces: &crate::keyspaces::Keyspaces| {
            keyspaces
                .get(key.keyspace)
                .is_some_and(|keyspace| keyspace.index.contains(key.position, on_device))
        };
        let Some(bytes) = self.hot.unsubmitted(location).and_then(|bytes| bytes.get(..len)) else { return };
        // A later write of the same batch may have replaced it.
        if !current(&self.keyspaces) {
            return;
        }
        let (position, keyspace) = (key.position, key.keyspace);
        let frame = NewFrame { position, keyspace, location: location.raw(), parts: &[bytes] };
        if let Some(frame) = self.cache.insert(frame, &mut self.keyspaces)
            && let Some(keyspace) = self.keyspaces.get_mut(key.keyspace)
        {
            keyspace.index.replace(position, on_device, Target::Frame(frame.to_bits()).pack());
        }
    }

    fn unpoint(&mut self, write: &Write<'_>, search: Search, tombstone: Location, header: &RecordHeader) {
        let Some(old) = self.old_place(search.found) else {
            // The record only marks the end of a batch: nothing older can exist that it would hide. But a
            // record that cannot be read now may be one.
            if !search.damaged {
                self.segments.kill(tombstone, header.units(), true);
            }
            return;
        };
        let key = &write.key;
        self.keep_for_snapshots((key.keyspace, key.position), old, &search.header, header.seq);
        self.segments.kill(old, search.header.units(), false);
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
        let mut values = Vec::new();
        let progress = keyspace.index.scan(keyspace.swept, count, &mut values);
        for value in values {
            let location = match Target::unpack(value) {
                Target::Frame(bits) => {
                    Location::from_raw(self.cache.peek(tierstone_cache::FrameId::from_bits(bits)).location)
                }
                Target::Device(location) => location,
            };
            self.segments.kill_one_of(location.segment());
        }
        match progress {
            crate::index::ScanProgress::Next(position) => {
                keyspace.swept = position;
                false
            }
            crate::index::ScanProgress::End => true,
        }
    }
}

fn header_of(write: &Write<'_>, seq: u64, more: bool, collides: bool) -> RecordHeader {
    let mut flags = if more { FLAG_BATCH_MORE } else { 0 } | if collides { FLAG_COLLIDES } else { 0 };
    let (value_len, expiry_ms, kind) = match write.kind {
        WriteKind::Put { value, expiry_ms, kind } => (value.len(), expiry_ms, kind.0),
        WriteKind::Delete => (0, 0, 0),
    };
    if matches!(write.kind, WriteKind::Delete) {
        flags |= FLAG_TOMBSTONE;
    }
    if expiry_ms != 0 {
        flags |= FLAG_EXPIRY;
    }
    RecordHeader {
        seq,
        flags,
        kind,
        keyspace: write.key.keyspace,
        expiry_ms,
        key_len: write.key.bytes.len(),
        value_len,
    }
}
