//! Eviction: where keys may be evicted and indexes or blocks are nearly full, keys are named, and the layer above has
//! them deleted.
//!
//! A hand goes round the indexes in the order of positions, which is no order of keys or of age. Of [`RUN`] neighbours
//! whose keys may go a fifth is named: those that are worth least under the policy ([`crate::uses`]), of equal ones those that
//! were written longest ago. So it is as if each were the worst of five keys sampled at random, as in Redis, and neighbours
//! share the lines of the index. What is in no order goes as it comes.
//!
//! Rules:
//! 1. An evicted key is deleted as by a user: its tombstone is in the log, and stays while an older record of it lies
//!    somewhere ([`crate::graves`]). So no version of it comes back (`evicted_without_tombstone`).
//! 2. A key is deleted only while the index names the very record that was looked at, and that is worth no more since.
//! 3. Where only keys that expire may go, one that does not stays (`evicted_without_expiry`).
//! 4. A call looks at a bounded number of entries.
//! 5. Where keys may be evicted a shard takes no more segments than its share: one with few keys would have none that it
//!    could let go for those that others hold (`shards_run_ahead`).
//! 6. Where keys may be evicted, writers wait while more than 94 % of the space counts (`writes_outrun_eviction`).
//!
//! Who owns what: hand and named keys are the shard's; whether a key may go is the caller's to say: locks, watches and
//! large values are not known here. Nothing is durable. Crash: keys whose tombstones were durable are gone, others are there.

use crate::format::{RECORD_BYTES, RecordHead};
use crate::shard::{Found, PmShard};
use crate::uses::Uses;
use std::collections::VecDeque;
use tierstone_base::{ErrorKind, KeyspaceId, Now, Position, Result};
use tierstone_engine::{Eviction, Key, ValueKind, Write, WriteKind};

mod room;

/// Keys of which some are named.
const RUN: usize = 64;
/// ... one of so many.
const ONE_IN: usize = 5;
/// Entries that one call looks at, each with a look at a record: some 100 µs.
const ENTRIES_A_CALL: usize = 1_024;
/// Entries of the index asked for at once, for their records to be fetched side by side.
const ENTRIES_AT_ONCE: usize = 32;
/// Rounds in which nothing could be evicted, after which nobody is told to wait for a while.
const BARREN_ROUNDS: u32 = 2;
const BARREN_PAUSE_US: u64 = 200_000;
/// How long a deletion that found no room waits for the next try.
const BUSY_PAUSE_US: u64 = 200;
/// When deletions have found no room for so long, nobody is told to wait for them, and they are tried less often.
const STUCK_US: u64 = 1_000_000;
const STUCK_PAUSE_US: u64 = 50_000;

/// Finds what is to be evicted.
#[derive(Debug, Default)]
pub(crate) struct Evictor {
    pub policy: Eviction,
    pub uses: Uses,
    /// Where the hand is.
    hand: (KeyspaceId, Position),
    /// Keys of the run that is being gathered.
    run: Vec<Candidate>,
    named: VecDeque<Named>,
    /// Indexes are short of room.
    is_short_of_memory: bool,
    /// Until so many bytes of records have been evicted, space is short.
    until_bytes: u64,
    evicted_bytes: u64,
    /// Keys evicted when the round began, and rounds since one was.
    round_began_at: u64,
    barren_rounds: u32,
    barren_until_us: u64,
    /// Rounds found nothing, and nothing was evicted since: who finds no space is told so, and not to wait.
    is_barren: bool,
    /// Since when deletions have found no room, and when the next is tried.
    held_since_us: Option<u64>,
    retry_us: u64,
    /// Bytes of records that writes under way have replaced, and of their long values.
    pub dying_bytes: u64,
    pub dying_long_bytes: u64,
    /// Bytes of long values that count no more, and that the log still names.
    pub freeing_bytes: u64,
}

/// A key that may go, and what of it says when.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Least goes first: what the policy says, then age.
    worth: (u64, u64),
    keyspace: KeyspaceId,
    place: u64,
}

/// A key that is to go.
#[derive(Debug)]
struct Named {
    worth: u64,
    keyspace: KeyspaceId,
    position: Position,
    key: Box<[u8]>,
    found: Found,
}

/// Bytes that a record has in overflow blocks.
pub(crate) fn long_bytes(head: &RecordHead) -> u64 {
    if head.is_overflow() { head.payload_len() as u64 } else { 0 }
}

impl Evictor {
    fn is_stuck(&self, now_us: u64) -> bool {
        self.held_since_us.is_some_and(|since_us| now_us > since_us + STUCK_US)
    }
}

impl PmShard {
    /// Changes what is done when memory or space is short.
    pub(crate) fn change_eviction(&mut self, policy: Eviction) {
        let bytes_max = self.uses_bytes_max();
        let evictor = &mut self.evictor;
        if policy != evictor.policy {
            evictor.named.clear();
            evictor.run.clear();
        }
        evictor.policy = policy;
        evictor.uses.switch(policy, bytes_max);
        (evictor.is_barren, evictor.barren_until_us) = (false, 0);
        if policy == Eviction::None {
            evictor.is_short_of_memory = false;
            evictor.until_bytes = 0;
        }
        let is_held = policy != Eviction::None && !self.mutations.is_on("shards_run_ahead");
        self.maker.space.limit(self.maker.shard, is_held);
        self.fit_uses();
    }

    /// The first key that may be evicted now.
    pub(crate) fn first_evictable(&mut self) -> Option<(Key<'_>, ValueKind)> {
        if !self.wants_eviction() {
            return None;
        }
        if self.evictor.held_since_us.is_some() && self.now.monotonic_us < self.evictor.retry_us {
            return None;
        }
        if !self.has_good_name() {
            self.gather_run();
            if !self.has_good_name() {
                return None;
            }
        }
        let named = self.evictor.named.front()?;
        let key = Key { keyspace: named.keyspace, position: named.position, bytes: &named.key };
        Some((key, ValueKind(named.found.head.kind)))
    }

    /// Leaves names out whose record is another now or is worth more; whether one is left.
    fn has_good_name(&mut self) -> bool {
        while let Some(named) = self.evictor.named.pop_front() {
            if self.is_still_named(&named) {
                self.evictor.named.push_front(named);
                return true;
            }
        }
        false
    }

    fn is_still_named(&self, named: &Named) -> bool {
        let Found { place, head } = named.found;
        let keys = self.keyspaces.get(&named.keyspace);
        // Its block may have been used again since, for another record of the key too.
        keys.is_some_and(|keys| keys.has(named.position, place))
            && self.head_at(place).is_some_and(|now| now.seq == head.seq)
            && self.worth_of(&head) <= named.worth
    }

    /// What lies at `place` says of itself, not verified.
    fn head_at(&self, place: u64) -> Option<RecordHead> {
        let memory = &self.maker.memory;
        RecordHead::decode(&memory.load::<RECORD_BYTES>(place), memory.len().saturating_sub(place))
    }

    /// Goes on to the next keys, and names those of a whole run that are worth least.
    fn gather_run(&mut self) {
        let mut left = ENTRIES_A_CALL;
        let mut places = Vec::with_capacity(ENTRIES_AT_ONCE * 2);
        while left > 0 && self.evictor.run.len() < RUN {
            let (from_keyspace, from) = self.evictor.hand;
            let next = self.keyspaces.range(from_keyspace..).find(|(keyspace, _)| keyspace.is_user());
            let Some((&keyspace, keys)) = next else {
                self.end_eviction_round();
                break;
            };
            let from = if keyspace == from_keyspace { from } else { Position(0) };
            places.clear();
            let next = keys.scan(from, ENTRIES_AT_ONCE, |place| places.push(place));
            self.evictor.hand = match (next, keyspace.0.checked_add(1)) {
                (Some(next), _) => (keyspace, next),
                (None, after) => (KeyspaceId(after.unwrap_or(u32::MAX)), Position(0)),
            };
            places.iter().for_each(|&place| self.maker.memory.prefetch(place, RECORD_BYTES as u64));
            let candidates = places.iter().filter_map(|&place| self.candidate(keyspace, place));
            let candidates: Vec<Candidate> = candidates.collect();
            self.evictor.run.extend(candidates);
            left = left.saturating_sub(places.len().max(ENTRIES_AT_ONCE));
        }
        if self.evictor.run.len() >= RUN {
            self.name_worst();
        }
    }

    /// A key whose record is at `place`, if the policy lets it go.
    fn candidate(&self, keyspace: KeyspaceId, place: u64) -> Option<Candidate> {
        let head = self.head_at(place)?;
        let may_go = head.expiry_ms != 0
            || !self.evictor.policy.is_of_expiring()
            || self.mutations.is_on("evicted_without_expiry");
        may_go.then(|| Candidate { worth: (self.worth_of(&head), head.seq), keyspace, place })
    }

    /// What makes a record's key stay: the higher, the longer.
    fn worth_of(&self, head: &RecordHead) -> u64 {
        match self.evictor.policy {
            Eviction::NearestExpiry => head.expiry_ms,
            Eviction::None | Eviction::Random | Eviction::RandomExpiring => 0,
            Eviction::OldestFirst
            | Eviction::OldestExpiring
            | Eviction::LeastUsed
            | Eviction::LeastUsedExpiring => {
                self.evictor.uses.worth(KeyspaceId(head.keyspace), Position(head.position)).into()
            }
        }
    }

    /// Names the keys of the run that are worth least.
    fn name_worst(&mut self) {
        let mut run = std::mem::take(&mut self.evictor.run);
        let is_in_order = !matches!(self.evictor.policy, Eviction::Random | Eviction::RandomExpiring);
        if is_in_order {
            run.sort_unstable_by_key(|candidate| candidate.worth);
            run.truncate(run.len().div_ceil(ONE_IN));
        }
        for candidate in run.drain(..) {
            // A damaged record is left alone: reads tell of it.
            let Ok((head, record)) = self.record(candidate.place) else { continue };
            // Since it was looked at its block may have been cleaned and used again.
            if head.seq != candidate.worth.1 {
                continue;
            }
            let Ok(key) = self.key_of(&head, &record) else { continue };
            let key: Box<[u8]> = key.as_ref().into();
            self.evictor.named.push_back(Named {
                worth: candidate.worth.0,
                keyspace: candidate.keyspace,
                position: Position(head.position),
                key,
                found: Found { place: candidate.place, head },
            });
        }
        self.evictor.run = run;
    }

    /// The hand has gone round.
    fn end_eviction_round(&mut self) {
        // Of fewer keys than make a run some go all the same.
        self.name_worst();
        let evictor = &mut self.evictor;
        evictor.hand = (KeyspaceId(0), Position(0));
        let found_any = self.counts.evicted_keys > evictor.round_began_at || !evictor.named.is_empty();
        evictor.round_began_at = self.counts.evicted_keys;
        evictor.barren_rounds = if found_any { 0 } else { evictor.barren_rounds + 1 };
        if evictor.barren_rounds >= BARREN_ROUNDS {
            evictor.barren_rounds = 0;
            evictor.is_barren = true;
            evictor.barren_until_us = self.now.monotonic_us + BARREN_PAUSE_US;
            evictor.is_short_of_memory = false;
            evictor.until_bytes = 0;
        }
    }

    /// Deletes the first named key, if it still has the record that was named; whether it did.
    pub(crate) fn evict_first(&mut self, now: Now) -> Result<bool> {
        let Some(named) = self.evictor.named.pop_front() else { return Ok(false) };
        if !self.is_still_named(&named) {
            return Ok(false);
        }
        let key = Key { keyspace: named.keyspace, position: named.position, bytes: &named.key };
        if self.mutations.is_on("evicted_without_tombstone") {
            self.forget_named(&named)?;
            self.note_evicted(&named.found.head, 0);
            return Ok(true);
        }
        match self.write_inner(now, &[Write { key, kind: WriteKind::Delete }], None, false) {
            Ok(_) => {
                self.note_evicted(&named.found.head, 0);
                Ok(true)
            }
            // Another record of its position is damaged: whose it is cannot be told, so the key stays.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
            Err(error) => {
                let now_us = self.now.monotonic_us;
                let evictor = &mut self.evictor;
                evictor.held_since_us.get_or_insert(now_us);
                evictor.retry_us =
                    now_us + if evictor.is_stuck(now_us) { STUCK_PAUSE_US } else { BUSY_PAUSE_US };
                evictor.named.push_front(named);
                Err(error)
            }
        }
    }

    /// A key went, and `freed` bytes beside its record and what that has in overflow blocks.
    fn note_evicted(&mut self, head: &RecordHead, freed: u64) {
        self.counts.evicted_keys += 1;
        self.evictor.evicted_bytes += u64::from(head.len) + long_bytes(head) + freed;
        (self.evictor.is_barren, self.evictor.held_since_us) = (false, None);
    }

    /// The first named key was deleted by the caller, which freed so many bytes beside its record, or is to stay.
    pub(crate) fn pass_first(&mut self, freed: Option<u64>) {
        if let Some(named) = self.evictor.named.pop_front()
            && let Some(freed) = freed
        {
            self.note_evicted(&named.found.head, freed);
        }
    }

    /// For a test's mutation: the index forgets the key, and the log knows nothing of it.
    fn forget_named(&mut self, named: &Named) -> Result<()> {
        let Found { place, head } = named.found;
        if let Some(keys) = self.keyspaces.get_mut(&named.keyspace) {
            keys.remove(named.position, &named.key, place);
        }
        self.note_old(crate::graves::grave_of(named.keyspace, named.position), place);
        self.give_up(place, head.len, head.is_overflow())
    }
}

#[cfg(test)]
#[path = "evict_test.rs"]
mod evict_test;
