//! Changes of expiry that leave the value where it is: a *touch* names a value record by its key and
//! sequence, and says when it expires from now on. The index goes on pointing to the value; beside it a
//! table says what touches say of values.
//!
//! Invariants:
//! 1. A value that the index points to and that was touched has one entry in the table: what its newest touch
//!    says, and where that lies. That touch, and no other, is live in its segment.
//! 2. An entry goes with its value. While a snapshot, or a read under way, may still show the value it stays,
//!    without a place: it is *retired*.
//! 3. While a snapshot lives no touch is written: so no snapshot lies between a value and its touch.
//! 4. Moving a value or a touch changes neither sequence: of a record and its copies either serves, and
//!    what a touch names has one sequence for ever.
//! 5. A touch is written only where its value cannot become void by itself: not of a value in a part of a batch
//!    over several shards of which something remains to be known.
//! 6. A value whose touch says that it has expired goes by a tombstone with a sequence of its own, never
//!    without a trace: without the touch it would come back.
//!
//! Who owns what: the shard owns the table; its bytes are part of the shard's memory and bounded
//! ([`ShardSettings::touch_table_bytes_max`](crate::ShardSettings::touch_table_bytes_max)). Where a touch
//! would not do, the value is written again.
//!
//! Crash: touches are records like any other; recovery applies the newest that names the newest version of
//! its key, and a checkpoint of the index carries the table.
//!
//! A store without touches pays one look whether the table is empty.

use crate::collect::AtPosition;
use crate::expired::profile::Trace;
use crate::expired::trace_of;
use crate::format::record::{
    FLAG_BATCH_MORE, FLAG_EXPIRY, FLAG_PART, FLAG_TOMBSTONE, PartMark, RecordHeader, Touched,
};
use crate::format::summary::SummaryEntry;
use crate::location::{Location, Target};
use crate::read_path::{Found, Search, meta_of};
use crate::shard::LogShard;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result, Seq};
use tierstone_engine::{Key, RecordMeta, Write, WriteKind};

/// A value record: its sequence is its own among all records that ever had its position.
pub(crate) type TouchKey = (KeyspaceId, Position, Seq);

/// What touches say of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    /// When the value expires, in milliseconds since 1970; zero: never.
    pub expiry_ms: u64,
    /// The sequence of the newest touch.
    pub seq: Seq,
    /// Where that lies; `None` when its value is no longer its key's.
    pub place: Option<Location>,
    /// Units that it takes.
    pub units: u32,
    /// Where the value lies.
    pub value: Location,
}

/// Memory of an entry: 72 bytes in tree nodes that are about two thirds full.
const ENTRY_BYTES: u64 = 112;
/// Values shorter than this are written again whatever the settings say, in bytes: a touch is shorter by a
/// unit then, and what is admitted for the value is enough for it.
const VALUE_BYTES_MIN: usize = 96;
/// Retired entries that a step looks at.
const PURGED_A_STEP: usize = 256;

/// The table of a shard.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    all: BTreeMap<TouchKey, Touch>,
    retired: VecDeque<TouchKey>,
}

impl Touches {
    /// What touches say of a value. Cost: one comparison when the table is empty.
    #[inline]
    pub fn of(&self, keyspace: KeyspaceId, position: Position, seq: Seq) -> Option<&Touch> {
        if self.all.is_empty() { None } else { self.all.get(&(keyspace, position, seq)) }
    }

    /// What touches say of the value in a record. Cost: a comparison or two when there are none, or the value
    /// is too short for one.
    #[inline]
    pub fn of_record(&self, position: Position, header: &RecordHeader) -> Option<&Touch> {
        if self.all.is_empty() || header.value_len < VALUE_BYTES_MIN {
            return None;
        }
        self.all.get(&(header.keyspace, position, header.seq))
    }

    /// What the record of a value says to the layers above, touches included.
    #[inline]
    pub fn meta(&self, position: Position, header: &RecordHeader) -> RecordMeta {
        let meta = meta_of(header);
        match self.of_record(position, header) {
            Some(touch) => RecordMeta { seq: touch.seq, expiry_ms: touch.expiry_ms, ..meta },
            None => meta,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Entries, retired ones included.
    pub fn len(&self) -> u64 {
        self.all.len() as u64
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.all.len() + self.retired.len() / 4) as u64 * ENTRY_BYTES
    }

    /// Whether the touch of the value `key` that counts lies at `place`.
    pub fn is_at(&self, key: &TouchKey, place: Location) -> bool {
        self.all.get(key).is_some_and(|touch| touch.place == Some(place))
    }

    /// The touch of `key` that counts was moved.
    fn moved(&mut self, key: &TouchKey, to: Location) {
        if let Some(touch) = self.all.get_mut(key) {
            touch.place = Some(to);
        }
    }

    /// The value was moved.
    pub fn value_moved(&mut self, key: &TouchKey, to: Location) {
        if let Some(touch) = self.all.get_mut(key) {
            touch.value = to;
        }
    }

    /// A touch counts from now on; gives what counted before.
    pub fn put(&mut self, key: TouchKey, touch: Touch) -> Option<Touch> {
        self.all.insert(key, touch)
    }

    /// A value is no longer its key's; gives what counted until now.
    fn retire(&mut self, key: &TouchKey) -> Option<Touch> {
        let touch = self.all.get_mut(key)?;
        let before = *touch;
        if touch.place.take().is_some() {
            self.retired.push_back(*key);
        }
        Some(before)
    }

    /// Up to `count` entries behind `after` that are not retired, in order; none at the end.
    pub fn page(&self, after: Option<TouchKey>, count: usize) -> Vec<(TouchKey, Touch)> {
        let from = after.map_or(Unbounded, Excluded);
        let live = self.all.range((from, Unbounded)).filter(|(_, touch)| touch.place.is_some());
        live.take(count).map(|(key, touch)| (*key, *touch)).collect()
    }

    /// The same, retired ones included.
    pub fn page_of_all(&self, after: Option<TouchKey>, count: usize) -> Vec<(TouchKey, Touch)> {
        let from = after.map_or(Unbounded, Excluded);
        self.all.range((from, Unbounded)).take(count).map(|(key, touch)| (*key, *touch)).collect()
    }

    /// Up to `count` entries of a keyspace that are not retired.
    fn of_keyspace(&self, keyspace: KeyspaceId, count: usize) -> Vec<TouchKey> {
        let range = (keyspace, Position(0), 0)..=(keyspace, Position(u64::MAX), Seq::MAX);
        let live = self.all.range(range).filter(|(_, touch)| touch.place.is_some());
        live.take(count).map(|(key, _)| *key).collect()
    }

    /// Drops some retired entries.
    fn purge(&mut self, count: usize) {
        for _ in 0..count {
            let Some(key) = self.retired.pop_front() else { return };
            self.all.remove(&key);
        }
    }
}

impl LogShard {
    /// What touches say of a value record.
    #[inline]
    pub(crate) fn touch_of(&self, keyspace: KeyspaceId, position: Position, seq: Seq) -> Option<&Touch> {
        self.touches.of(keyspace, position, seq)
    }

    /// When the record of a value expires, touches included.
    #[inline]
    pub(crate) fn expiry_of(&self, position: Position, header: &RecordHeader) -> u64 {
        let touch = self.touches.of_record(position, header);
        touch.map_or(header.expiry_ms, |touch| touch.expiry_ms)
    }

    /// The same of a summary's entry.
    pub(crate) fn expiry_of_entry(&self, entry: &SummaryEntry) -> u64 {
        let touch = self.touch_of(entry.keyspace, entry.position, entry.seq);
        touch.map_or(entry.expiry_ms, |touch| touch.expiry_ms)
    }

    /// What the record of a value says to the layers above, touches included.
    #[inline]
    pub(crate) fn meta_at(&self, position: Position, header: &RecordHeader) -> RecordMeta {
        self.touches.meta(position, header)
    }

    /// As [`LogShard::meta_at`], where the position must be found first.
    pub(crate) fn meta_of_record(&self, header: &RecordHeader, key: &[u8]) -> RecordMeta {
        if self.touches.is_empty() {
            return meta_of(header);
        }
        self.meta_at(self.identity.hasher.position(key), header)
    }

    /// Where the value lies that `write` would write again with another expiry, if a touch will do instead.
    pub(crate) fn touchable(&self, write: &Write<'_>, search: &Search) -> Option<Location> {
        let WriteKind::Put { value, expiry_ms, kind } = write.kind else { return None };
        let header = &search.header;
        let shortest = self.settings.touch_value_bytes_min.max(VALUE_BYTES_MIN);
        if value.len() < shortest || value.len() != header.value_len || kind.0 != header.kind {
            return None;
        }
        let place = self.old_place(search.found).filter(|_| !search.damaged)?;
        let touch = self.touch_of(header.keyspace, write.key.position, header.seq);
        let is_full = self.touches.bytes() + ENTRY_BYTES > self.settings.touch_table_bytes_max();
        if touch.map_or(header.expiry_ms, |touch| touch.expiry_ms) == expiry_ms
            || touch.is_none() && is_full
            || self.may_be_shown_unchanged()
            || self.may_become_void(header.seq)
            || self.may_go_beneath(place)
        {
            return None;
        }
        let old = self.found_bytes(search.found)?.get(header.value_range())?;
        (old == value).then_some(place)
    }

    /// Whether a snapshot, or what reads one, may have to show a value as it is now.
    fn may_be_shown_unchanged(&self) -> bool {
        let is_read = || {
            !self.reads.snapshot_reads.is_empty() || self.reads.scans.values().any(|page| page.cut.is_some())
        };
        (self.snapshots.is_any() || is_read()) && !self.identity.mutations.is_on("snapshot_sees_touch")
    }

    /// Whether the record is in a segment that is being retired: a touch would not keep a key that never expires any more.
    fn may_go_beneath(&self, place: Location) -> bool {
        self.is_retiring(place.segment()) && !self.identity.mutations.is_on("left_touched")
    }

    /// Whether the record of a write may become void in a crash although later writes count: it belongs to a part
    /// of a batch over several shards.
    fn may_become_void(&self, seq: Seq) -> bool {
        let first = self.hot.first_part_seq();
        first.is_some_and(|first| seq >= first) && !self.identity.mutations.is_on("touch_of_undecided")
    }

    /// Applies a write of the value that lies at `value`, which only gets another expiry. `batch`: as of
    /// [`LogShard::apply`].
    pub(crate) fn apply_touch(
        &mut self,
        write: &Write<'_>,
        search: &Search,
        value: Location,
        (more, part): (bool, Option<PartMark>),
    ) -> Result<()> {
        let WriteKind::Put { expiry_ms, .. } = write.kind else {
            unreachable!("only a put of the value that is there is a touch")
        };
        let key = &write.key;
        let of = &search.header;
        self.applied += 1;
        let header = RecordHeader {
            seq: self.applied,
            flags: FLAG_TOMBSTONE
                | FLAG_EXPIRY
                | if more { FLAG_BATCH_MORE } else { 0 }
                | if part.is_some() { FLAG_PART } else { 0 },
            kind: of.kind,
            keyspace: key.keyspace,
            expiry_ms,
            key_len: key.bytes.len(),
            value_len: 0,
            part: part.unwrap_or_default(),
            touched: Touched { seq: of.seq, place: value.raw() },
        };
        let now_us = self.now.monotonic_us;
        let appended = self.hot.append(&header, key.position, key.bytes, &[], now_us, &mut self.segments);
        let Some(place) = appended else {
            let error = Error::new(ErrorKind::NoSpace, "no free segment where one was reckoned with");
            self.failed = Some(error.clone());
            return Err(error);
        };
        self.counts.user_bytes_written += key.bytes.len() as u64;
        if expiry_ms != 0 {
            self.sweeper.note_expiring();
        }
        let units = header.units() as u32;
        let touch = Touch { expiry_ms, seq: header.seq, place: Some(place), units, value };
        let before = self.touches.put((key.keyspace, key.position, of.seq), touch);
        let old = match before {
            Some(touch) => (touch.expiry_ms, Trace::Tombstone),
            None => (of.expiry_ms, trace_of(self.segments.get(value.segment()), of.flags)),
        };
        self.segments.retime(value, of.units() as u32, old, (expiry_ms, Trace::Tombstone));
        self.kill_touch(before);
        if let Found::Frame(frame) = search.found {
            self.cache.touch(frame);
        }
        Ok(())
    }

    fn kill_touch(&mut self, touch: Option<Touch>) {
        if let Some(Touch { place: Some(place), units, .. }) = touch {
            self.segments.kill(place, units as usize, false);
        }
    }

    /// A value is no longer its key's: its touch, if it has one, is dead. Gives what it said last.
    pub(crate) fn end_touch(&mut self, keyspace: KeyspaceId, position: Position, seq: Seq) -> Option<u64> {
        if self.touches.is_empty() {
            return None;
        }
        let touch = self.touches.retire(&(keyspace, position, seq));
        self.kill_touch(touch);
        touch.map(|touch| touch.expiry_ms)
    }

    /// Ends up to `count` touches of a dropped keyspace; false when there are none left.
    pub(crate) fn end_touches_of(&mut self, keyspace: KeyspaceId, count: usize) -> bool {
        let keys = self.touches.of_keyspace(keyspace, count);
        for &(keyspace, position, seq) in &keys {
            self.end_touch(keyspace, position, seq);
        }
        !keys.is_empty()
    }

    /// Recovery has found the touch of a value that counts.
    pub(crate) fn adopt_touch(&mut self, key: TouchKey, touch: Touch) {
        let Some(place) = touch.place else { return };
        self.segments.add_live(place.segment(), touch.units as usize, false);
        self.touches.put(key, touch);
    }

    /// Forgets retired entries when nobody can ask for them.
    pub(crate) fn purge_touches(&mut self) {
        let is_read = !self.reads.scans.is_empty() || !self.reads.snapshot_reads.is_empty();
        if !self.touches.retired.is_empty() && !is_read && self.snapshots.keeps_no_records() {
            self.touches.purge(PURGED_A_STEP);
        }
    }

    /// Whether an entry of a summary, which is a touch at `place`, is the one that counts.
    pub(crate) fn is_touch_needed(&self, entry: &SummaryEntry, place: Location) -> bool {
        let key = (entry.keyspace, entry.position, entry.touched.seq);
        self.touches.is_at(&key, place)
    }

    /// Moves a touch that counts to the cold log. False when there is no room.
    pub(crate) fn move_touch(
        &mut self,
        entry: &SummaryEntry,
        header: &RecordHeader,
        bytes: &[u8],
        from: Location,
    ) -> bool {
        if self.identity.mutations.is_on("touch_dropped_by_cleaner") {
            let key = (entry.keyspace, entry.position, header.touched.seq);
            self.touches.all.entry(key).and_modify(|touch| touch.place = None);
            return true;
        }
        let now_us = self.now.monotonic_us;
        let moved = self.cold.append_encoded(bytes, header, entry.position, now_us, &mut self.segments);
        let Some(moved) = moved else { return false };
        self.segments.kill(from, header.units(), false);
        self.touches.moved(&(entry.keyspace, entry.position, header.touched.seq), moved);
        true
    }

    /// A touched value has been moved: the profile of its segment has it when its touch says.
    pub(crate) fn touched_value_moved(
        &mut self,
        position: Position,
        header: &RecordHeader,
        (from, to): (Location, Location),
    ) {
        let key = (header.keyspace, position, header.seq);
        let Some(expiry_ms) = self.touches.of(key.0, key.1, key.2).map(|touch| touch.expiry_ms) else {
            self.segments.kill_record(from, header.units(), header.expiry_ms, header.flags);
            return;
        };
        let units = header.units() as u32;
        self.segments.kill(from, header.units(), false);
        self.segments.unprofile(from, units, expiry_ms, Trace::Tombstone);
        let old = (header.expiry_ms, trace_of(self.segments.get(to.segment()), header.flags));
        self.segments.retime(to, units, old, (expiry_ms, Trace::Tombstone));
        self.touches.value_moved(&key, to);
    }

    /// Deletes a key whose value, of which the cleaner has the record, has expired as its touch says. False
    /// when there is no room for the tombstone yet, or another key may be meant.
    pub(crate) fn delete_expired(&mut self, key: &Key<'_>, target: Target, header: RecordHeader) -> bool {
        let expiry_ms = self.expiry_of(key.position, &header);
        if !self.delete_in_room(key, target, header) {
            return false;
        }
        self.show_past(expiry_ms);
        self.sweeper.dropped_keys += 1;
        true
    }
}

/// A touch as recovery finds it in a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundTouch {
    /// The keyspace, by its number in the superblock's list.
    pub keyspace: usize,
    pub position: u64,
    /// The sequence that it names.
    pub value_seq: Seq,
    /// Where that lay when the touch was written.
    pub value_place: u64,
    pub seq: Seq,
    pub expiry_ms: u64,
    pub place: Location,
    pub units: u32,
}

impl AtPosition for FoundTouch {
    fn position(&self) -> u64 {
        self.position
    }
}

impl FoundTouch {
    /// The touch of the value at `value`.
    pub fn touch(&self, value: Location) -> Touch {
        let &FoundTouch { expiry_ms, seq, place, units, .. } = self;
        Touch { expiry_ms, seq, place: Some(place), units, value }
    }
}

/// Touches of a range of positions, to be asked for by their values.
#[derive(Debug, Default)]
pub(crate) struct FoundTouches {
    sorted: Vec<FoundTouch>,
    any_version: bool,
    older_first: bool,
    none: bool,
}

impl FoundTouches {
    pub fn new(mut found: Vec<FoundTouch>, mutations: &tierstone_crash::Mutations) -> Self {
        found.sort_unstable_by_key(|touch| (touch.position, touch.keyspace, touch.value_seq, touch.seq));
        FoundTouches {
            sorted: found,
            any_version: mutations.is_on("touch_of_any_version"),
            older_first: mutations.is_on("older_touch_wins"),
            none: mutations.is_on("touch_dropped_by_recovery"),
        }
    }

    /// The newest touch that names the record; of its copies the one with the lowest `age` of its segment.
    pub fn newest<A: Ord>(
        &self,
        (position, keyspace, seq): (u64, usize, Seq),
        age: impl Fn(u32) -> A,
    ) -> Option<&FoundTouch> {
        if self.none {
            return None;
        }
        let from = if self.any_version { 0 } else { seq };
        let first = self.sorted.partition_point(|touch| {
            (touch.position, touch.keyspace, touch.value_seq) < (position, keyspace, from)
        });
        let named = self.sorted[first..].iter().take_while(|touch| {
            (touch.position, touch.keyspace) == (position, keyspace)
                && (touch.value_seq == seq || self.any_version)
        });
        let newest = if self.older_first {
            named.clone().map(|touch| touch.seq).min()?
        } else {
            named.clone().map(|touch| touch.seq).max()?
        };
        named.filter(|touch| touch.seq == newest).min_by_key(|touch| age(touch.place.segment()))
    }
}
