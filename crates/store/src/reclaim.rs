//! Giving space back: the reading of the ledger at an opening, chunks of dead values deleted step by
//! step, values whose owners have expired.
//!
//! Invariants:
//! 1. An entry leaves the ledger behind the last chunk that it lists.
//! 2. A step deletes at most [`CHUNKS_A_STEP_MAX`] chunks and takes [`EXPIRED_A_STEP`] expired values; what the engine is
//!    too busy for waits. Where records must be read first, those of a step are read together.
//! 3. A value whose time has come loses its owner's record durably before its chunks: a clock that
//!    is set back finds neither.

use crate::dead::Dead;
use crate::large::{LargeMap, LedgerEntry, ValueId, chunk_key, ledger_key, parse_key};
use crate::ledger::{list, unlist};
use crate::overlay::Overlay;
use crate::shard::Shard;
use crate::view_large::Place;
use std::collections::VecDeque;
use tierstone_base::{KeyspaceId, Now, Position, Result};
use tierstone_engine::{Engine, Key, Lookup, ScanEntry, ScanRequest, ValueKind, Write, WriteKind};

/// Chunks that one step deletes of one value.
const CHUNKS_A_STEP: usize = 16;
/// Chunks that one step deletes of all values.
const CHUNKS_A_STEP_MAX: usize = 64;
/// Expired values that one step takes.
const EXPIRED_A_STEP: usize = 64;
/// Entries of one page of the ledger.
const PAGE_ENTRIES: u32 = 64;
/// How long the reclaimer rests when the engine is too busy for it, in microseconds; less where what it has asked for comes
/// earlier.
const REST_US: u64 = 2_000;

/// How far the reading of the ledger has come.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// Keyspaces whose ledgers are still to be read; the first is being read.
    keyspaces: VecDeque<KeyspaceId>,
    cursor: Position,
    is_reading: bool,
    found: VecDeque<(KeyspaceId, Vec<u8>)>,
}

impl Opening {
    pub fn new(keyspaces: impl IntoIterator<Item = KeyspaceId>) -> Self {
        Opening { keyspaces: keyspaces.into_iter().collect(), ..Opening::default() }
    }

    pub fn is_done(&self) -> bool {
        self.keyspaces.is_empty() && self.found.is_empty()
    }

    pub fn retain(&mut self, lives: impl Fn(KeyspaceId) -> bool) {
        self.found.retain(|(keyspace, _)| lives(keyspace.user()));
        // The one that is being read ends by itself: it is empty now.
        let first = self.keyspaces.pop_front();
        self.keyspaces.retain(|keyspace| lives(*keyspace));
        self.keyspaces.extend(first);
        self.keyspaces.rotate_right(usize::from(first.is_some()));
    }
}

impl<E: Engine> Shard<E> {
    /// A bounded piece of the ledger's work.
    pub(crate) fn reclaim(&mut self, now: Now) {
        self.trim_own();
        if !self.ledger.is_active || now.monotonic_us < self.ledger.rest_until_us {
            return;
        }
        // None waits for another: the others' space would not come back while there is always something to be read.
        let done = [self.read_ledger(now), self.expire_owners(now), self.free(now)];
        if done.iter().any(Result::is_err) {
            self.ledger.rest_until_us = now.monotonic_us + REST_US;
        }
    }

    /// When the ledger wants a step, by the monotonic clock.
    pub(crate) fn reclaim_at_us(&self, now: Now) -> Option<u64> {
        if !self.ledger.is_active {
            return None;
        }
        let has_work = self.ledger.has_dead_to_free() || self.ledger.opening.wants_step();
        let work = has_work.then_some(self.ledger.rest_until_us.max(now.monotonic_us));
        let deadline = self.ledger.deadlines.first_key_value().map(|((at_ms, _), _)| {
            // An expiry may lie beyond all times.
            let in_us = at_ms.saturating_sub(now.wall_ms).saturating_mul(1_000).saturating_add(1_000);
            now.monotonic_us.saturating_add(in_us)
        });
        [work, deadline.map(|at| at.max(self.ledger.rest_until_us))].into_iter().flatten().min()
    }

    /// Takes a page of the ledger.
    pub(crate) fn ledger_scanned(&mut self, entries: Vec<ScanEntry>, next: Option<Position>) {
        let opening = &mut self.ledger.opening;
        opening.is_reading = false;
        let Some(keyspace) = opening.keyspaces.front().copied() else { return };
        opening.found.extend(entries.into_iter().map(|entry| (keyspace, entry.key)));
        match next {
            Some(next) => opening.cursor = next,
            None => {
                opening.cursor = Position(0);
                opening.keyspaces.pop_front();
            }
        }
    }

    /// Reads on in the ledger that the last process has left.
    fn read_ledger(&mut self, now: Now) -> Result<()> {
        while let Some((keyspace, bytes)) = self.ledger.opening.found.front().cloned() {
            let place = Place { keyspace, slot: self.position(&bytes).slot() };
            if let Some(entry) = self.ledger_entry(now, place, &bytes)?
                && let Some((id, _)) = parse_key(&bytes)
                && !self.ledger.listed.contains(&id)
            {
                self.ledger.found(place, entry);
            }
            self.ledger.opening.found.pop_front();
        }
        let opening = &mut self.ledger.opening;
        if let Some(keyspace) = opening.keyspaces.front().copied()
            && !opening.is_reading
        {
            opening.is_reading = true;
            let cursor = opening.cursor;
            let token = self.own_token(keyspace, cursor);
            let request = ScanRequest {
                token,
                keyspace: keyspace.ledger(),
                snapshot: None,
                cursor,
                count: PAGE_ENTRIES,
            };
            self.engine.scan(now, request);
        }
        Ok(())
    }

    fn ledger_entry(&mut self, now: Now, place: Place, bytes: &[u8]) -> Result<Option<LedgerEntry>> {
        let key = Key { keyspace: place.keyspace.ledger(), position: self.position(bytes), bytes };
        match self.engine.lookup(now, key) {
            Lookup::Found(record) => Ok(LedgerEntry::decode(record.value).ok()),
            Lookup::Missing => Ok(None),
            Lookup::Fetch => self.fetch_own(now, key).map(|()| None),
        }
    }

    /// Takes values whose owners have expired. One that must be read first does not keep the others from asking for theirs.
    fn expire_owners(&mut self, now: Now) -> Result<()> {
        let due = self.ledger.deadlines.iter().take_while(|((at_ms, _), _)| *at_ms <= now.wall_ms);
        let due: Vec<(ValueId, Place)> =
            due.take(EXPIRED_A_STEP).map(|((_, id), place)| (*id, *place)).collect();
        let mut done = Ok(());
        for (id, place) in due {
            match self.expire_listed(now, place, id) {
                Ok(()) => self.ledger.clear_deadline(id),
                Err(error) => done = done.and(Err(error)),
            }
        }
        done
    }

    fn expire_listed(&mut self, now: Now, place: Place, id: ValueId) -> Result<()> {
        match self.ledger_entry(now, place, &ledger_key(place.slot, id))? {
            Some(LedgerEntry::Expires { map, owner, .. }) => self.expire_owner(now, (place, id), map, &owner),
            _ => Ok(()),
        }
    }

    fn expire_owner(
        &mut self,
        now: Now,
        (place, id): (Place, ValueId),
        map: LargeMap,
        owner: &[u8],
    ) -> Result<()> {
        let key = Key { keyspace: place.keyspace, position: self.position(owner), bytes: owner };
        let mut batch = Overlay::default();
        match self.engine.lookup(now, key) {
            Lookup::Found(record) => {
                let named =
                    LargeMap::decode(record.value).ok().filter(|_| record.meta.kind == ValueKind::CHUNKED);
                if named.is_some_and(|map| map.id == id) {
                    // It lives, whatever the entry says: it is not touched.
                    return Ok(());
                }
            }
            Lookup::Missing => batch.delete(key),
            Lookup::Fetch => self.fetch_own(now, key)?,
        }
        list(&mut batch, self.hasher(), place, id, &LedgerEntry::Dead { map: map.clone() });
        let writes: Vec<Write<'_>> = batch.iter().collect();
        self.engine.write(now, &writes)?;
        self.ledger.bury(Dead::whole(place, map));
        Ok(())
    }

    /// Deletes chunks of dead values that nobody holds, the oldest first; of several where there are several.
    fn free(&mut self, now: Now) -> Result<()> {
        let mut left = CHUNKS_A_STEP_MAX;
        let mut done = Ok(());
        let values: Vec<u64> = self.ledger.dead.free().take(CHUNKS_A_STEP_MAX).collect();
        for number in values {
            if left == 0 {
                break;
            }
            match self.free_one(now, number, &mut left) {
                Ok(()) => {}
                Err(error) => done = done.and(Err(error)),
            }
        }
        done
    }

    fn free_one(&mut self, now: Now, number: u64, left: &mut usize) -> Result<()> {
        let Some(mut dead) = self.ledger.dead.take(number) else { return Ok(()) };
        let id = dead.map.id;
        let result = self.free_chunks(now, &mut dead, left);
        self.ledger.dead.put_back(number, dead);
        if result? {
            self.ledger.dead.remove(id);
        }
        Ok(())
    }

    /// Deletes some chunks, `left` at most; true when none is left and the entry is gone too.
    fn free_chunks(&mut self, now: Now, dead: &mut Dead, left: &mut usize) -> Result<bool> {
        let (chunks, id) = (dead.map.chunks(), dead.map.id);
        let there = |number: &u64| !dead.is_map_whole || dead.map.has(*number);
        let limit = CHUNKS_A_STEP.min(*left);
        let numbers: Vec<u64> = (dead.next..chunks).filter(there).take(limit).collect();
        *left -= numbers.len();
        let mut first_error = None;
        for number in &numbers {
            let bytes = chunk_key(dead.place.slot, id, *number);
            let key = Key {
                keyspace: dead.place.keyspace.chunks(),
                position: self.hasher().position(&bytes),
                bytes: &bytes,
            };
            // Each alone: what is not there costs nothing then. One that must be read first does not
            // keep the others from asking for theirs.
            match self.engine.write(now, &[Write { key, kind: WriteKind::Delete }]) {
                Ok(_) if first_error.is_none() => dead.next = number + 1,
                Ok(_) => {}
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        if numbers.len() == limit {
            return Ok(false);
        }
        let mut batch = Overlay::default();
        unlist(&mut batch, self.hasher(), dead.place, id);
        let writes: Vec<Write<'_>> = batch.iter().collect();
        self.engine.write(now, &writes)?;
        self.ledger.listed.remove(&id);
        Ok(true)
    }
}

impl Opening {
    fn wants_step(&self) -> bool {
        !self.is_done() && !self.is_reading
    }
}
