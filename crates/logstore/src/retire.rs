//! Eviction by whole segments: the segment that was opened first is freed with what is left in it, and no key of it
//! needs a deletion in the log.
//!
//! Under the policies of LRU and LFU and the one of what expires next, when space is short, the oldest segment becomes the
//! cleaner's victim. What was asked for lately, or expires late, and what may not go like this, is moved as by cleaning; the rest is *left*. When the copies are durable the free header
//! is written, and the index goes on pointing to what was left: whoever asks for it is served. When the header is durable
//! the segment is [retired](Role::Retired), and the evictor names its keys, which go from the index one by one, without a
//! record. When none is left the segment may be opened again.
//!
//! Rules, with the mutations that break them:
//! 1. A record is left only if every other segment that may hold records was opened after its write: no older version
//!    of its key exists that would be found in its place (`left_beside_older`). The cleaner's rule for
//!    tombstones.
//! 2. Nor may a copy of the record itself be found: of those that a crash has left recovery takes the original and
//!    lets the copy lie, in a segment of the cold log. So what was written before this opening is left only while no other
//!    segment of the cold log is from before it (`left_beside_copies`). In one opening a copy is never left behind
//!    in a segment that was opened after the one with the record that counts.
//! 3. A key goes from the index only when the free header is durable: nobody sees that it has gone before it cannot
//!    come back (`left_forgotten_early`).
//! 4. The segment is opened again only when the index points to nothing in it (`retired_reused_early`).
//! 5. No checkpoint is begun from the choice to the end: the index points to what is about to be gone. (One that names a
//!    segment which is not there counts for nothing anyway, so this saves work only.) One that counts is made void before, as for any
//!    victim.
//! 6. While a snapshot, a backup or a move of keys between shards might miss what goes, it goes by a deletion.
//! 7. A change of expiry of a value in it writes the value anew: a touch would not keep a key that is to stay (`left_touched`).
//! 8. Keys whose deletions find no room do not keep it from being gone through (`deletions_before_retired`).
//!
//! A key that the layer above wants to stay, because a command has locked it, is moved when its segment has been retired:
//! the command may be waiting for space. Should that copy be lost by a crash, the key was evicted then.
//!
//! What cannot be read keeps the segment closed. It is looked at again each second; neither writes nor the closing of the shard
//! wait for it.
//!
//! Crash before the header is durable: all is there, and nobody was told otherwise. After: what was left has gone,
//! as if it had been evicted at the crash, whether or not somebody had been told.
//!
//! Nothing here is durable but the header.

use crate::format::record::{FLAG_TOMBSTONE, RecordHeader};
use crate::format::summary::SummaryEntry;
use crate::location::{Location, Target, UNIT_BYTES};
use crate::segments::{Role, Segment};
use crate::shard::LogShard;
use std::collections::BTreeSet;
use tierstone_base::Seq;
use tierstone_cache::FrameId;
use tierstone_engine::{Eviction, ValueKind};

/// A victim with more live than this part of a segment is worth less than keys: the oldest go instead. Below it a
/// cache keeps fewer keys, above it writes more and finds hardly more (`docs/benchmarks/eviction.md`).
const CLEANED_UP_TO: f64 = 0.75;
/// ... but only where more than this part of what writers may fill lives, packed as cleaning packs it: keys do not go
/// for dead records that cleaning would gain.
const FULL: f64 = 0.85;
/// ... and where that cannot be, one with more than this part is worth less than keys that go one by one.
const DENSE: f64 = 0.9;
/// For each byte that is left so many may be moved because they were asked for, and of segments in which all were
/// so many in a row.
const SPARED_FOR_EACH_LEFT: u64 = 3;
const SPARED_SEGMENTS: u64 = 8;
/// Where those go first that expire next, so much of what expires goes: one part in so many, as the profiles of some
/// segments tell.
const NEAREST_PARTS: u64 = 3;
const PROFILES_LOOKED_AT: usize = 64;
/// Where only keys that expire may go, one part in so many of what lives must expire.
const EXPIRING_PARTS: u64 = 20;
/// A segment of which less than one part in so many was left gave too little: keys are evicted one by one, for as
/// much as a segment.
const LEFT_PARTS: u64 = 4;
/// After a look at what the index still points to has found something that could not go, the next one waits so long.
const LOOK_PAUSE_US: u64 = 500;
/// ... and after one that has met what cannot be read, so long.
const BLOCKED_PAUSE_US: u64 = 1_000_000;

/// The segment that is being retired.
#[derive(Debug, Default)]
pub(crate) struct Retirer {
    /// The newest sequence when the shard was opened.
    opened_at: Seq,
    /// It, from the choice of the victim to its end.
    segment: Option<u32>,
    /// The policy under which it was chosen.
    policy: Eviction,
    /// Its live bytes when it was chosen.
    live_bytes: u64,
    /// What was left of it.
    left_records: u32,
    left_bytes: u64,
    /// Bytes that were spared and that none were left for.
    spared_bytes: u64,
    /// Where those go first that expire next: what expires later than this is moved, in milliseconds since 1970.
    until_ms: u64,
    /// Whether records from before this opening are left too.
    takes_earlier: bool,
    /// Whether the look at what the index still points to has found anything, and when the next one may begin.
    found_any: bool,
    look_from_us: u64,
    /// Whether the look has met what cannot be read, and whether the last one had: then nobody waits for the segment.
    met_unreadable: bool,
    is_blocked: bool,
    /// Whether the last attempt found something to retire, or to wait for; else keys are evicted one by one.
    goes: bool,
    /// Records of the retired segment whose keys are to stay: they are moved after all.
    kept: BTreeSet<Location>,
    /// Retired segments of which nothing is left, while somebody reads them.
    empty: Vec<u32>,
    /// Until so many bytes of records have been evicted, keys are evicted one by one too.
    one_by_one_until: u64,
    /// It is to be learnt first how often keys are asked for.
    pub waits_for_samples: bool,
    /// Segments that were retired since the shard was opened.
    retired: u64,
}

impl Retirer {
    /// Of a shard that was opened when this was the newest sequence.
    pub fn of_shard_opened_at(applied: Seq) -> Self {
        Retirer { opened_at: applied, ..Retirer::default() }
    }
}

impl LogShard {
    /// Segments that have gone with their keys since the shard was opened.
    pub fn retired_segments(&self) -> u64 {
        self.evictor.retirer.retired
    }

    /// Whether a segment is being retired.
    pub fn is_retiring_any(&self) -> bool {
        self.evictor.retirer.segment.is_some()
    }

    /// Whether keys go by whole segments where space is short.
    pub(crate) fn evicts_by_segments(&self) -> bool {
        let policy = self.evictor.policy;
        let is_in_order = policy.spares_the_asked_for() || policy.counts_uses();
        (is_in_order || policy == Eviction::NearestExpiry) && !self.shutting && self.settings.retires_segments
    }

    /// The same, and there is, or may be, a segment to go.
    pub(crate) fn may_retire(&self) -> bool {
        self.evicts_by_segments() && (self.is_retiring_soon() || self.evictor.retirer.goes)
    }

    /// Whether a segment is being retired, and need not wait for the end of a snapshot, nor for a device that reads again.
    fn is_retiring_soon(&self) -> bool {
        let waits = self.evictor.retirer.is_blocked || self.is_told_of_changes();
        let is_soon = |number: u32| !waits || self.segments.get(number).role != Role::Retired;
        self.evictor.retirer.segment.is_some_and(is_soon)
    }

    /// Whether the retired segment stays as it is, for something in it cannot be read.
    pub fn is_retired_blocked(&self) -> bool {
        self.evictor.retirer.is_blocked
    }

    /// Whether keys are evicted one by one where space is short.
    pub(crate) fn evicts_one_by_one(&self) -> bool {
        !self.evicts_by_segments()
            || !self.evictor.retirer.goes
            || self.evicted_bytes() < self.evictor.retirer.one_by_one_until
    }

    /// Whether the segment is being retired under the policy under which that was begun.
    pub(crate) fn goes_on_retiring(&self) -> bool {
        self.evicts_by_segments() && self.evictor.retirer.policy == self.evictor.policy
    }

    /// Whether a snapshot, a backup or a move of keys between shards needs deletions to be told of what goes.
    pub(crate) fn is_told_of_changes(&self) -> bool {
        self.snapshots.is_any() || self.backups.is_under_way() || self.transfers.are_under_way()
    }

    /// Whether this segment is being retired.
    pub(crate) fn is_retiring(&self, segment: u32) -> bool {
        self.evictor.retirer.segment == Some(segment)
    }

    /// The segment whose free header is durable, while the index may point to records of it.
    pub fn retired_segment(&self) -> Option<u32> {
        self.evictor.retirer.segment.filter(|&number| self.segments.get(number).role == Role::Retired)
    }

    /// Whether what a checkpoint would say may be about to change without a record.
    pub(crate) fn forbids_checkpoints(&self) -> bool {
        self.evictor.retirer.segment.is_some()
    }

    /// Where the best victim of cleaning has this part of it live: retires the oldest segment instead, if that is
    /// better; whether nothing else is to be cleaned now.
    pub(crate) fn retires_rather(&mut self, best_live: Option<f64>) -> bool {
        if !self.evicts_by_segments() || best_live.is_some_and(|live| live <= CLEANED_UP_TO) {
            return false;
        }
        if best_live.is_some() && self.packed_fraction() <= FULL {
            return false;
        }
        let goes = match self.evictor.retirer.segment {
            Some(_) => self.is_retiring_soon(),
            None => {
                // What the hand comes to first may be what is asked for most.
                self.evictor.retirer.waits_for_samples = self.lacks_samples();
                self.evictor.retirer.waits_for_samples || self.retire_oldest()
            }
        };
        self.evictor.retirer.goes = goes;
        if !goes && best_live.is_none_or(|live| live > DENSE) {
            self.evict_for_a_segment();
        }
        goes
    }

    /// Begins with the oldest segment, or makes it one that can be retired; false when it cannot be.
    fn retire_oldest(&mut self) -> bool {
        if self.is_told_of_changes() || self.cleaner.has_unreadable() {
            return false;
        }
        if self.evictor.policy.is_of_expiring() && !self.has_enough_expiring() {
            return false;
        }
        let holding = self.segments.iter().filter(|(_, segment)| segment.may_hold_records());
        let Some((number, oldest)) = holding.min_by_key(|(number, segment)| (segment.opened_seq, *number))
        else {
            return false;
        };
        if oldest.shared.is_some() || oldest.snapshot_records > 0 {
            return false;
        }
        let (role, is_ours, is_cold) = (oldest.role, oldest.groups.is_some(), oldest.cold);
        let takes_earlier =
            !self.has_copies_of_earlier(number) || self.identity.mutations.is_on("left_beside_copies");
        match role {
            // It comes to be free by itself.
            Role::Cleaning | Role::Freeing => true,
            Role::Open if Some(number) == self.cold.written_segment() => {
                self.cold.roll(&mut self.segments);
                true
            }
            // Its footer is on its way.
            Role::Open => is_cold,
            Role::Sealed if is_ours || takes_earlier => {
                self.begin_retiring(number, takes_earlier);
                true
            }
            _ => false,
        }
    }

    /// Whether enough of what lives expires, as far as is known: what never does is moved each time that its segment is the oldest.
    fn has_enough_expiring(&self) -> bool {
        let expiring = |segment: &Segment| {
            let due = segment.expiry.as_ref().map(|profile| profile.due(u64::MAX)).unwrap_or_default();
            u64::from(due.loose.units + due.tied.units) * UNIT_BYTES as u64
        };
        let bytes: u64 = self.segments.iter().map(|(_, segment)| expiring(segment)).sum();
        bytes * EXPIRING_PARTS >= self.segments.live_bytes()
    }

    /// When the nearest part of what expires will have done so.
    fn nearest_part_until_ms(&self) -> u64 {
        let profiles = || self.segments.iter().filter_map(|(_, segment)| segment.expiry.as_ref());
        let step = (profiles().count() / PROFILES_LOOKED_AT).max(1);
        let mut all: Vec<(u64, u64)> = profiles().step_by(step).flat_map(|some| some.by_time()).collect();
        all.sort_unstable();
        let wanted = all.iter().map(|(_, units)| units).sum::<u64>() / NEAREST_PARTS;
        let mut sum = 0;
        let is_enough = |(_, units): &&(u64, u64)| {
            sum += units;
            sum > wanted
        };
        all.iter().find(is_enough).map_or(0, |(until_ms, _)| *until_ms)
    }

    /// Whether a key that expires then, or never (zero), may go with its segment.
    pub(crate) fn may_go_with_segment(&self, expiry_ms: u64) -> bool {
        let goes_early = self.evictor.retirer.policy != Eviction::NearestExpiry
            || expiry_ms <= self.evictor.retirer.until_ms;
        goes_early && self.may_go_before_expiry(expiry_ms)
    }

    /// Whether a segment besides this one may hold copies of what was written before this opening.
    fn has_copies_of_earlier(&self, but: u32) -> bool {
        let is_one = |(number, segment): (u32, &Segment)| {
            let is_earlier = segment.groups.is_none() && segment.role != Role::Open;
            number != but && segment.cold && is_earlier && segment.may_hold_records()
        };
        self.segments.iter().any(is_one)
    }

    fn begin_retiring(&mut self, number: u32, takes_earlier: bool) {
        let live_bytes = self.segments.get(number).live_bytes;
        self.start_victim(number);
        if self.cleaner.victim_segment() != Some(number) {
            // A checkpoint is made void first, or nothing lives in it.
            return;
        }
        self.pace_retiring();
        self.evictor.retirer.segment = Some(number);
        self.evictor.retirer.live_bytes = live_bytes;
        self.evictor.retirer.policy = self.evictor.policy;
        if self.evictor.policy == Eviction::NearestExpiry {
            self.evictor.retirer.until_ms = self.nearest_part_until_ms();
        }
        (self.evictor.retirer.left_records, self.evictor.retirer.left_bytes) = (0, 0);
        self.evictor.retirer.takes_earlier = takes_earlier;
    }

    /// Whether this is a victim in which records are left.
    pub(crate) fn is_left_behind(&self, number: u32) -> bool {
        let is_walked = self.is_retiring(number) && self.segments.get(number).role == Role::Cleaning;
        is_walked && self.goes_on_retiring()
    }

    /// Whether a record of the victim is left in it, to go with it. `oldest_other`: when the oldest of the other segments was
    /// opened.
    pub(crate) fn is_left(
        &mut self,
        (number, oldest_other): (u32, Seq),
        (entry, found): (&SummaryEntry, &RecordHeader),
        target: Target,
    ) -> bool {
        if !self.is_left_behind(number) || !self.may_go_with_segment(self.expiry_of_entry(entry)) {
            return false;
        }
        let kind = ValueKind(found.kind);
        let is_plain = entry.flags & FLAG_TOMBSTONE == 0
            && entry.keyspace.is_user()
            && kind != ValueKind::CHUNKED
            && kind != ValueKind::INTERNAL
            && self.keyspaces.get(entry.keyspace).is_some();
        let is_alone = found.seq < oldest_other || self.identity.mutations.is_on("left_beside_older");
        if !is_plain
            || !is_alone
            || !(found.seq > self.evictor.retirer.opened_at || self.evictor.retirer.takes_earlier)
        {
            return false;
        }
        let bytes = (found.units() * UNIT_BYTES) as u64;
        let may_spare = self.evictor.retirer.spared_bytes < SPARED_SEGMENTS * self.segments.segment_bytes();
        if may_spare && self.hand_passes(entry, target) {
            self.evictor.retirer.spared_bytes += bytes;
            return false;
        }
        if self.identity.mutations.is_on("left_forgotten_early") {
            if let Target::Frame(bits) = target {
                self.cache.remove(FrameId::from_bits(bits));
            }
            if let Some(keyspace) = self.keyspaces.get_mut(entry.keyspace) {
                keyspace.index.remove(entry.position, target.pack());
            }
        }
        self.evictor.retirer.left_records += 1;
        self.evictor.retirer.left_bytes += bytes;
        self.evictor.retirer.spared_bytes =
            self.evictor.retirer.spared_bytes.saturating_sub(bytes * SPARED_FOR_EACH_LEFT);
        true
    }

    /// The victim's next record has no room: if it is to be retired, that is given up.
    pub(crate) fn starves_retiring(&mut self, number: u32) -> bool {
        let gives_up = self.is_retiring(number);
        if gives_up {
            self.give_up_retiring(number);
            self.evictor.retirer.goes = false;
        }
        gives_up
    }

    /// All of the victim's summary has been gone through: what was left still counts.
    pub(crate) fn end_retiring_walk(&mut self, number: u32) {
        if !self.is_retiring(number) {
            return;
        }
        let (records, bytes) = (self.evictor.retirer.left_records, self.evictor.retirer.left_bytes);
        self.segments.leave_live(number, records, bytes);
        if bytes * LEFT_PARTS < self.evictor.retirer.live_bytes {
            self.evictor.retirer.one_by_one_until = self.evicted_bytes() + self.segments.segment_bytes();
        }
        if records == 0 {
            self.evictor.retirer.segment = None;
        }
    }

    /// The segment is not retired after all: what was left stays.
    pub(crate) fn give_up_retiring(&mut self, number: u32) {
        if self.is_retiring(number) {
            let segment = self.segments.get_mut(number);
            // Tombstones that were moved are counted still.
            (segment.role, segment.is_estimated) = (Role::Sealed, true);
            self.evictor.retirer.segment = None;
        }
    }

    /// What is left of a segment whose free header is not under way stays.
    pub(crate) fn keep_what_is_left(&mut self) {
        if let Some(number) = self.evictor.retirer.segment
            && self.segments.get(number).role == Role::Cleaning
        {
            if self.cleaner.forget_emptied(number) {
                self.give_up_retiring(number);
            } else if self.shutting {
                // The victim stays as it is.
                self.evictor.retirer.segment = None;
            }
        }
    }

    /// The free header is durable.
    pub(crate) fn note_retired(&mut self, number: u32) {
        self.segments.get_mut(number).role = Role::Retired;
        (self.evictor.retirer.look_from_us, self.evictor.retirer.is_blocked) = (0, false);
        self.evictor.retirer.retired += 1;
        if self.identity.mutations.is_on("retired_reused_early") {
            self.evictor.retirer.segment = None;
            self.free_retired(number);
        }
    }

    /// Whether a look at what the index still points to is to begin, and when.
    pub(crate) fn next_retired_look_us(&self) -> Option<u64> {
        self.retired_segment().map(|_| self.evictor.retirer.look_from_us)
    }

    /// A key of the retired segment is to stay: somebody has locked it, and may be waiting for the very space that would
    /// come when it goes.
    pub(crate) fn keep_of_retired(&mut self, location: Location) {
        self.evictor.retirer.kept.insert(location);
    }

    /// Moves a record of the retired segment whose key is to stay, if there is room now; whether it is one.
    pub(crate) fn move_kept(&mut self, number: u32, entry: &SummaryEntry, bytes: &[u8]) -> bool {
        let is_kept = self.evictor.retirer.kept.contains(&Location::new(number, entry.unit));
        if is_kept && self.has_room_for(std::slice::from_ref(entry)) && !self.move_out(number, entry, bytes) {
            self.note_unreadable_in_retired();
        }
        is_kept
    }

    pub(crate) fn begin_retired_look(&mut self) {
        (self.evictor.retirer.found_any, self.evictor.retirer.met_unreadable) = (false, false);
    }

    /// What is left of the retired segment, or its summary, cannot be read. It stays closed while the index points to it, which
    /// is asked again now and then: a device may recover, and a key be written anew.
    pub(crate) fn note_unreadable_in_retired(&mut self) {
        self.evictor.retirer.met_unreadable = true;
    }

    pub(crate) fn note_found_in_retired(&mut self) {
        self.evictor.retirer.found_any = true;
    }

    /// A look is over: if it found nothing the segment is free, as soon as nobody reads it.
    pub(crate) fn end_retired_look(&mut self, number: u32) {
        let (found_any, is_blocked) = (self.evictor.retirer.found_any, self.evictor.retirer.met_unreadable);
        self.counts.corrupt_reads += u64::from(is_blocked && !self.evictor.retirer.is_blocked);
        self.evictor.retirer.is_blocked = is_blocked;
        let pause_us = if is_blocked { BLOCKED_PAUSE_US } else { LOOK_PAUSE_US };
        self.evictor.retirer.look_from_us = self.now.monotonic_us + pause_us;
        if !found_any && !is_blocked && self.is_retiring(number) {
            self.evictor.retirer.segment = None;
            self.evictor.retirer.kept.clear();
            self.evictor.retirer.empty.push(number);
            self.free_empty_retired();
        }
    }

    /// Frees retired segments to which the index does not point any more, and which nobody reads.
    pub(crate) fn free_empty_retired(&mut self) {
        let mut empty = std::mem::take(&mut self.evictor.retirer.empty);
        empty.retain(|&number| {
            let segment = self.segments.get(number);
            let is_read = segment.pins > 0 || segment.snapshot_records > 0;
            if !is_read {
                self.free_retired(number);
            }
            is_read
        });
        self.evictor.retirer.empty = empty;
    }

    fn free_retired(&mut self, number: u32) {
        debug_assert!(self.segments.is_summed(), "live bytes");
        self.segments.clear_live(number);
        self.reads.forget_segment(number);
        self.segments.get_mut(number).role = Role::Freeing;
        self.segments.freed(number);
        self.cleaner.look_again();
    }
}
