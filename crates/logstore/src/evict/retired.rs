//! What is evicted from a retired segment ([`crate::retire`]): all that the index still points to.

use super::{NAMED_KEYS, Named, Stage, Walk};
use crate::format::record::{FLAG_TOMBSTONE, RecordHeader};
use crate::format::summary::SummaryEntry;
use crate::location::{Location, Target};
use crate::shard::LogShard;
use tierstone_cache::FrameId;
use tierstone_engine::ValueKind;

impl LogShard {
    /// When a step would go on evicting, if nothing announces it.
    pub(crate) fn next_eviction_step_us(&self) -> Option<u64> {
        let now_us = self.now.monotonic_us;
        let is_at_rest = self.evictor.walk.is_none() && self.evictor.named.is_empty();
        let look = || self.next_retired_look_us().filter(|_| is_at_rest).map(|at| at.max(now_us));
        self.evictor.next_step_us(now_us).or_else(look)
    }

    /// Whether the retired segment, if there is one, is to be looked through.
    pub(super) fn is_retired_look_due(&self) -> bool {
        let is_due = self.next_retired_look_us().is_some_and(|at| at <= self.now.monotonic_us);
        is_due && self.evictor.named.is_empty()
    }

    /// Keys whose deletions find no room do not keep the retired segment waiting: what is left there needs none, and the room may
    /// be that segment. They are found again.
    pub(super) fn give_way_to_retired(&mut self) {
        let is_due = self.next_retired_look_us().is_some_and(|at| at <= self.now.monotonic_us);
        let may_end = |walk: &Walk| !walk.is_retired && matches!(walk.stage, Stage::Gathering);
        if is_due
            && self.evictor.held_since_us.is_some()
            && self.evictor.walk.as_ref().is_none_or(may_end)
            && !self.identity.mutations.is_on("deletions_before_retired")
        {
            self.evictor.named.clear();
            self.evictor.held_since_us = None;
            if let Some(walk) = self.evictor.walk.take() {
                self.end_eviction_walk(walk.segment);
            }
        }
    }

    pub(super) fn begin_walk_through_retired(&mut self) {
        if let Some(number) = self.retired_segment() {
            self.begin_retired_look();
            self.begin_eviction_walk_in(number, false, true);
        }
    }

    /// Whether it must be learnt first how often keys are asked for, and there are some.
    pub(crate) fn lacks_samples(&self) -> bool {
        self.evictor.uses.wants_samples() && self.evictable_segments().next().is_some()
    }

    /// Bytes of records that were evicted since the shard was opened.
    pub(crate) fn evicted_bytes(&self) -> u64 {
        self.evictor.evicted_bytes
    }

    /// The shard is being closed: what has gone with its segment leaves the index, and nobody is told any more.
    pub(super) fn forget_named_in_retired(&mut self) {
        while let Some(named) = self.evictor.named.pop_front() {
            if self.is_in_retired(&named)
                && let Some(target) = self.target_of_named(&named)
            {
                self.forget_left(&named, target);
            }
        }
    }

    pub(super) fn is_in_retired(&self, named: &Named) -> bool {
        self.retired_segment() == Some(named.location.segment())
    }

    /// Whether the hand, which has come to a record, passes it.
    pub(crate) fn hand_passes(&mut self, entry: &SummaryEntry, target: Target) -> bool {
        self.is_spared(target) || self.evictor.uses.spares_at_hand(entry.keyspace, entry.position)
    }

    /// A large value does not go with the segment of its name, for its chunks lie elsewhere: where it would, the name is moved and
    /// evicted by itself, so that large values go as others do.
    pub(crate) fn name_moved_large(
        &mut self,
        from: u32,
        (entry, found, key): (&SummaryEntry, &RecordHeader, &[u8]),
        (target, moved): (Target, Location),
    ) {
        let is_large = ValueKind(found.kind) == ValueKind::CHUNKED && entry.keyspace.is_user();
        if !is_large || !self.is_left_behind(from) || !self.may_go_with_segment(self.expiry_of_entry(entry)) {
            return;
        }
        if self.evictor.named.len() < NAMED_KEYS && !self.hand_passes(entry, target) {
            let (keyspace, position) = (entry.keyspace, entry.position);
            let named = Named { keyspace, position, key: key.into(), header: *found, location: moved };
            self.evictor.named.push_back(named);
        }
    }

    /// Whether the index points to a record of a retired segment.
    pub(super) fn is_still_there(&mut self, entry: &SummaryEntry, number: u32) -> bool {
        entry.flags & FLAG_TOMBSTONE == 0
            && self.target_of(entry, Location::new(number, entry.unit)).is_some()
    }

    /// A key goes whose record has gone with its segment, without a deletion; `None` where it needs one all the same.
    pub(super) fn evict_left(&mut self, named: &Named, target: Target) -> Option<bool> {
        if self.is_told_of_changes() {
            // One that cannot be told from another waits until nobody needs a deletion.
            return (!self.is_alone(&named.key())).then_some(false);
        }
        self.forget_left(named, target);
        self.note_evicted(named.header.units(), 0);
        Some(true)
    }

    /// The index forgets a key whose record has gone with its segment.
    pub(super) fn forget_left(&mut self, named: &Named, target: Target) {
        self.note_change(&named.key());
        if let Target::Frame(bits) = target {
            self.cache.remove(FrameId::from_bits(bits));
        }
        if let Some(keyspace) = self.keyspaces.reachable_mut(named.keyspace) {
            keyspace.note_gone(&named.key);
            keyspace.index.remove(named.position, target.pack());
        }
        self.kill_found(named.position, named.location, &named.header);
    }
}
