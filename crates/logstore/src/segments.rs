//! What a shard knows about the store's segments: which are its own, how much of each is live.
//!
//! Invariants:
//! 1. A free segment of this shard is in no other shard's table as anything but foreign, and not in the
//!    store's pool ([`crate::pool`]).
//! 2. `live_bytes` of a segment counts exactly the records that the index points to, and the
//!    tombstones that may still be needed.
//! 3. A segment with pins is never freed: somebody reads it or holds bytes that lie in it. Nor is one
//!    with records of snapshots.
//! 4. Marks of dead records ([`crate::dead`]) end with the segment's life.

use crate::dead::DeadRecords;
use crate::expired::profile::Trace;
use crate::expired::trace_of;
use crate::location::{Location, UNIT_BYTES};
use crate::pool::SegmentPool;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tierstone_base::Seq;

mod known;

use known::{GONE, KnownSegments};
pub use known::{Role, Segment, SummaryPlace};

/// The segments that a shard knows: its own, and its parts of those that it shares.
#[derive(Debug, Default)]
pub struct SegmentTable {
    known: KnownSegments,
    /// Free segments whose space on the device has been written before: cheap to overwrite.
    ready: Vec<u32>,
    /// Free segments that take no space on the device yet.
    raw: Vec<u32>,
    /// Free segments that any shard may take.
    pool: Arc<SegmentPool>,
    owned: u32,
    /// This shard's parts of those that it shares.
    shared_parts: f64,
    segment_bytes: u64,
    live_bytes: u64,
    tombstone_bytes: u64,
    /// Whether dead records are marked, and the memory of the marks.
    marks: bool,
    mark_bytes: u64,
    /// Segments opened since the shard was.
    opened: u64,
}

impl SegmentTable {
    /// A table for segments of `segment_bytes` of a store whose shards share `pool`.
    pub fn new(segment_bytes: u64, pool: Arc<SegmentPool>) -> Self {
        SegmentTable { segment_bytes, pool, ..SegmentTable::default() }
    }

    /// The same, which marks dead records or does not.
    pub fn marking(mut self, marks: bool) -> Self {
        self.marks = marks;
        self
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Adds a free segment that this shard may use; `ready` when its space has been written before.
    pub fn grant(&mut self, segment: u32, ready: bool) {
        let entry = self.entry(segment);
        *entry = Segment { role: Role::Free, ..Segment::default() };
        if ready {
            self.ready.push(segment);
        } else {
            self.raw.push(segment);
        }
        self.owned += 1;
    }

    /// Makes sure that `count` segments are free and this shard's own, out of the pool if need be; false,
    /// and nothing is changed, when there are not so many.
    pub fn secure(&mut self, count: u32) -> bool {
        self.secure_leaving(count, 0)
    }

    /// The same where so many free segments more must be left for others, in the pool or here.
    pub fn secure_leaving(&mut self, count: u32, left: u32) -> bool {
        let own = self.own_free_count();
        match count.checked_sub(own) {
            None | Some(0) => own - count + self.pool.free_count() >= left,
            Some(missing) => self.claim(missing, false, left),
        }
    }

    fn claim(&mut self, count: u32, raw_first: bool, left: u32) -> bool {
        let pool = Arc::clone(&self.pool);
        // Below what is there already: low numbers are used first.
        pool.claim(left, count, raw_first, |segment, ready| {
            *self.entry(segment) = Segment { role: Role::Free, ..Segment::default() };
            if ready {
                self.ready.insert(0, segment)
            } else {
                self.raw.insert(0, segment)
            }
            self.owned += 1;
        })
    }

    /// Gives the pool what is free beyond `kept`.
    pub fn give_back(&mut self, kept: u32) {
        while self.own_free_count() > kept {
            let (segment, ready) = match (self.raw.is_empty(), self.ready.is_empty()) {
                (false, _) => (self.raw.remove(0), false),
                (true, false) => (self.ready.remove(0), true),
                (true, true) => return,
            };
            self.release(segment, ready);
        }
    }

    fn release(&mut self, segment: u32, ready: bool) {
        self.owned -= 1;
        self.known.forget(segment);
        self.pool.put(segment, ready);
    }

    /// Adds a segment that holds records; shared ones belong to no shard until all but one let go.
    pub fn adopt(&mut self, number: u32, segment: Segment) {
        self.owned += u32::from(segment.shared.is_none());
        self.live_bytes += segment.live_bytes;
        self.tombstone_bytes += segment.tombstone_bytes;
        let part =
            segment.shared.as_ref().map_or(0.0, |shared| 1.0 / shared.load(Ordering::Acquire).max(1) as f32);
        self.shared_parts += f64::from(part);
        let entry = self.entry(number);
        *entry = Segment { part, ..segment };
        if entry.role != Role::Checkpoint {
            entry.unprofiled = (0, u32::MAX);
        }
    }

    fn entry(&mut self, segment: u32) -> &mut Segment {
        self.known.get_mut(segment)
    }

    /// A segment; of one that this shard does not know nothing is told.
    pub fn get(&self, segment: u32) -> &Segment {
        self.known.get(segment)
    }

    /// A segment, if this shard knows it.
    pub fn known(&self, segment: u32) -> Option<&Segment> {
        self.known.find(segment)
    }

    /// A segment, to change it.
    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        self.known.get_mut(segment)
    }

    /// All segments that this shard knows with their numbers, in order of these. Cost: some hundreds of bytes each, and four
    /// for each that others know.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        self.known.iter()
    }

    /// Takes a free segment to be opened.
    pub fn take_free(&mut self) -> Option<u32> {
        if self.own_free_count() == 0 {
            self.claim(1, false, 0);
        }
        self.ready.pop().or_else(|| self.raw.pop())
    }

    /// Takes a free segment without space on the device, to prepare it.
    pub fn take_raw(&mut self) -> Option<u32> {
        if self.pool.is_short() {
            let segment = self.pool.take_withheld()?;
            *self.entry(segment) = Segment { role: Role::Free, ..Segment::default() };
            self.owned += 1;
            return Some(segment);
        }
        if self.raw.is_empty() && self.pool.free_count() > self.pool.ready_count() {
            self.claim(1, true, 0);
        }
        self.raw.pop()
    }

    /// The device gives no space: segments that take none yet are withheld from all shards.
    pub fn withhold(&mut self) {
        self.pool.withhold();
        while let Some(segment) = self.raw.pop() {
            self.release(segment, false);
        }
    }

    /// Takes a free segment with space on the device, to give that back.
    pub fn take_ready(&mut self) -> Option<u32> {
        if self.ready.is_empty() && self.pool.ready_count() > 0 {
            self.claim(1, false, 0);
        }
        (!self.ready.is_empty()).then(|| self.ready.remove(0))
    }

    /// The space of a free segment that was taken to be prepared is taken, and will not be filled for now.
    pub fn becomes_thin(&mut self, segment: u32) {
        self.entry(segment).is_thin = true;
    }

    /// Takes this free segment, to fill its space; false when it is not this shard's own any more, or was used since its space
    /// was taken: what was written there is not overwritten from the front, header first.
    pub fn take_thin(&mut self, segment: u32) -> bool {
        let place = self.ready.iter().position(|ready| *ready == segment);
        let entry = self.known.get_mut(segment);
        let Some(place) = place.filter(|_| entry.is_thin) else { return false };
        entry.is_thin = false;
        self.ready.remove(place);
        true
    }

    /// Puts a segment back that was taken to be prepared or discarded.
    pub fn put_back(&mut self, segment: u32, ready: bool) {
        if ready {
            self.ready.push(segment);
        } else {
            self.raw.push(segment);
        }
    }

    /// How many segments are free for this shard: its own and those of the pool.
    pub fn free_count(&self) -> u32 {
        self.own_free_count() + self.pool.free_count()
    }

    /// How many segments are free and this shard's own.
    pub fn own_free_count(&self) -> u32 {
        (self.ready.len() + self.raw.len()) as u32
    }

    /// How many segments are this shard's own and not free.
    pub fn used_count(&self) -> u32 {
        self.owned.saturating_sub(self.own_free_count())
    }

    /// How many free segments have been written before.
    pub fn ready_count(&self) -> u32 {
        self.ready.len() as u32 + self.pool.ready_count()
    }

    /// How many segments the store has.
    pub fn total_count(&self) -> u32 {
        self.pool.total()
    }

    /// Free segments that any shard may take.
    pub fn pool(&self) -> &SegmentPool {
        &self.pool
    }

    /// How many segments are in the pool.
    pub fn pool_count(&self) -> u32 {
        self.pool.free_count()
    }

    /// Whether a free header is on its way. Cost: a look at every segment.
    pub fn is_freeing(&self) -> bool {
        self.iter().any(|(_, segment)| segment.role == Role::Freeing)
    }

    /// How many segments this shard owns, free ones included, and its parts of those that it shares.
    pub fn held_count(&self) -> u32 {
        self.owned + self.shared_parts.round() as u32
    }

    /// Bytes live in all segments.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes of needed tombstones in all segments.
    pub fn tombstone_bytes(&self) -> u64 {
        self.tombstone_bytes
    }

    /// A record was appended or found live at recovery.
    pub fn add_live(&mut self, segment: u32, units: usize, tombstone: bool) {
        let bytes = (units * UNIT_BYTES) as u64;
        let entry = self.known.get_mut(segment);
        entry.live_records += 1;
        entry.live_bytes += bytes;
        if tombstone {
            entry.tombstone_records += 1;
            entry.tombstone_bytes += bytes;
            self.tombstone_bytes += bytes;
        }
        self.live_bytes += bytes;
    }

    /// The record at `location` is no longer needed.
    pub fn kill(&mut self, location: Location, units: usize, tombstone: bool) {
        let bytes = (units * UNIT_BYTES) as u64;
        let entry = self.known.get_mut(location.segment());
        debug_assert!(
            entry.is_estimated || (entry.live_records > 0 && entry.live_bytes >= bytes),
            "{location:?}: {entry:?}"
        );
        if self.marks {
            let (live_bytes, live_records) = (entry.live_bytes, u64::from(entry.live_records.max(1)));
            let marks = entry.dead.get_or_insert_with(|| {
                let mean_units = live_bytes / live_records / UNIT_BYTES as u64;
                let marks = DeadRecords::new(self.segment_bytes, mean_units);
                self.mark_bytes += marks.bytes();
                Box::new(marks)
            });
            marks.mark(location.unit(), units);
        }
        // Of an estimate no more goes than it has: the sums stay those of the segments.
        let live_bytes = bytes.min(entry.live_bytes);
        entry.live_records = entry.live_records.saturating_sub(1);
        entry.live_bytes -= live_bytes;
        self.live_bytes -= live_bytes;
        if tombstone {
            let tombstone_bytes = bytes.min(entry.tombstone_bytes);
            entry.tombstone_records = entry.tombstone_records.saturating_sub(1);
            entry.tombstone_bytes -= tombstone_bytes;
            self.tombstone_bytes -= tombstone_bytes;
        }
    }

    /// Asks for the memory that [`SegmentTable::kill`] of a record at `location`, which may be any, changes.
    #[inline]
    pub fn prefetch_mark(&self, location: Location) {
        if let Some(marks) = self.known(location.segment()).and_then(|segment| segment.dead.as_ref()) {
            marks.prefetch(location.unit());
        }
    }

    /// Whether the record of `units` at `location` is dead for certain; it may be dead when not. `any_length`: a test's mutation.
    pub fn is_dead(&self, location: Location, units: u32, any_length: bool) -> bool {
        let marks = self.known(location.segment()).and_then(|segment| segment.dead.as_ref());
        marks.is_some_and(|marks| marks.has(location.unit(), units, any_length))
    }

    /// Whether the record of `units` at `location` would be marked if it were dead, as far as is known: its segment was written in
    /// this opening.
    pub fn tells_the_living(&self, location: Location, units: u32) -> bool {
        self.known(location.segment()).is_some_and(|segment| {
            segment.groups.is_some() && segment.dead.as_ref().is_some_and(|marks| marks.takes(units))
        })
    }

    /// Memory of marks of dead records, in bytes.
    pub fn mark_bytes(&self) -> u64 {
        self.mark_bytes
    }

    fn forget_marks(&mut self, segment: u32) {
        let marks = self.entry(segment).dead.take();
        self.mark_bytes -= marks.map_or(0, |marks| marks.bytes());
    }

    /// A record with an expiry was appended.
    pub fn note_expiring(&mut self, location: Location, units: usize, expiry_ms: u64, flags: u8) {
        let trace = trace_of(self.get(location.segment()), flags);
        self.note_profiled(location, units as u32, expiry_ms, trace);
    }

    /// A record with an expiry belongs into its segment's profile.
    pub fn note_profiled(&mut self, location: Location, units: u32, expiry_ms: u64, trace: Trace) {
        let entry = self.known.get_mut(location.segment());
        entry.expiry.get_or_insert_default().add(expiry_ms, trace, units);
    }

    /// The record at `location`, of a key, is no longer needed.
    pub fn kill_record(&mut self, location: Location, units: usize, expiry_ms: u64, flags: u8) {
        self.kill(location, units, false);
        let trace = trace_of(self.get(location.segment()), flags);
        self.unprofile(location, units as u32, expiry_ms, trace);
    }

    /// A record with an expiry, if it has one, does not belong into its segment's profile any more.
    pub fn unprofile(&mut self, location: Location, units: u32, expiry_ms: u64, trace: Trace) {
        let entry = self.known.get_mut(location.segment());
        let (from, to) = entry.unprofiled;
        if expiry_ms != 0
            && !(from..to).contains(&location.unit())
            && let Some(profile) = &mut entry.expiry
        {
            profile.remove(expiry_ms, trace, units);
        }
    }

    /// The record at `location` expires at another time, or never (zero), and goes another way.
    pub fn retime(&mut self, location: Location, units: u32, old: (u64, Trace), new: (u64, Trace)) {
        self.unprofile(location, units, old.0, old.1);
        let (from, to) = self.get(location.segment()).unprofiled;
        if new.0 != 0 && !(from..to).contains(&location.unit()) {
            self.note_profiled(location, units, new.0, new.1);
        }
    }

    /// Segments that were opened since the shard was.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// The number of one that is opened now.
    pub fn next_opened(&mut self) -> u64 {
        self.opened += 1;
        self.opened
    }

    /// Whether records that were written before `opened` segments had been may lie in `segment`: it has been freed and opened again
    /// since if not, or is being.
    pub fn has_been_since(&self, segment: u32, opened: u64) -> bool {
        let entry = self.get(segment);
        matches!(entry.role, Role::Open | Role::Sealed | Role::Cleaning | Role::Retired)
            && entry.opened <= opened
    }

    /// A record of unknown length in `segment`, no tombstone, is no longer needed: the mean of those is taken, for tombstones
    /// are shorter by far. From now on only the summary can tell that nothing in the segment is live.
    pub fn kill_one_of(&mut self, segment: u32) {
        let entry = self.known.get_mut(segment);
        let records = u64::from(entry.live_records.saturating_sub(entry.tombstone_records).max(1));
        let bytes = entry.live_bytes.saturating_sub(entry.tombstone_bytes) / records;
        entry.live_records = entry.live_records.saturating_sub(1);
        entry.live_bytes -= bytes;
        entry.is_estimated = true;
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
    }

    /// A snapshot needs a record of `segment` that the index no longer points to.
    pub fn pin_for_snapshots(&mut self, segment: u32) {
        self.entry(segment).snapshot_records += 1;
    }

    /// No snapshot needs it any more.
    pub fn unpin_for_snapshots(&mut self, segment: u32) {
        let entry = self.known.get_mut(segment);
        debug_assert!(entry.snapshot_records > 0);
        entry.snapshot_records = entry.snapshot_records.saturating_sub(1);
    }

    /// Forgets what is live in a segment all of whose records have been moved.
    pub fn clear_live(&mut self, segment: u32) {
        let entry = self.known.get_mut(segment);
        self.live_bytes = self.live_bytes.saturating_sub(entry.live_bytes);
        self.tombstone_bytes = self.tombstone_bytes.saturating_sub(entry.tombstone_bytes);
        (entry.live_records, entry.live_bytes) = (0, 0);
        (entry.tombstone_records, entry.tombstone_bytes) = (0, 0);
        (entry.expiry, entry.unprofiled) = (None, (0, 0));
    }

    /// Whether the sum of live bytes is that of the segments. Cost: a look at every segment.
    pub fn is_summed(&self) -> bool {
        self.live_bytes == self.iter().map(|(_, segment)| segment.live_bytes).sum::<u64>()
    }

    /// All of a segment's records were moved but for so many, of so many bytes, about: some may be dead already.
    pub fn leave_live(&mut self, segment: u32, records: u32, bytes: u64) {
        let entry = self.known.get_mut(segment);
        (entry.live_records, entry.live_bytes, entry.is_estimated) = (records, bytes, true);
        entry.unprofiled = (0, u32::MAX);
        self.live_bytes += bytes;
    }

    /// Lets go of a shared segment; true when this was the last shard that needed it, which then
    /// owns it and frees it. `forget`: a test's mutation.
    pub fn let_go(&mut self, segment: u32, forget: bool) -> bool {
        self.forget_marks(segment);
        let entry = self.known.get_mut(segment);
        let Some(shared) = entry.shared.clone() else { return true };
        self.shared_parts -= f64::from(std::mem::take(&mut entry.part));
        if shared.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.owned += 1;
            return true;
        }
        // Until it is freed, a crash brings its records back: tombstones must outlive it.
        let (role, opened_seq) = (if forget { Role::Foreign } else { Role::Left }, entry.opened_seq);
        *entry = Segment { role, opened_seq, shared: Some(shared), ..Segment::default() };
        false
    }

    /// A segment whose free header is durable may be opened again.
    pub fn freed(&mut self, segment: u32) {
        self.forget_marks(segment);
        let entry = self.known.get_mut(segment);
        debug_assert_eq!(entry.role, Role::Freeing);
        if let Some(shared) = &entry.shared {
            shared.store(GONE, Ordering::Release);
        }
        // What several shards had to let go, several may be waiting for.
        let is_shared = entry.shared.is_some();
        *entry = Segment { role: Role::Free, ..Segment::default() };
        if is_shared && self.own_free_count() > 0 {
            self.release(segment, true);
        } else {
            self.ready.push(segment);
        }
    }

    /// The oldest opening among segments that hold records, `but` apart; `Seq::MAX` if there is none.
    pub fn oldest_opened_seq(&self, but: u32) -> Seq {
        self.iter()
            .filter(|(number, segment)| *number != but && segment.may_hold_records())
            .map(|(_, segment)| segment.opened_seq)
            .min()
            .unwrap_or(Seq::MAX)
    }
}

#[cfg(test)]
#[path = "segments_test.rs"]
mod segments_test;
