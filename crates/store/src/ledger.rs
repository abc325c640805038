//! The ledger of large values: which chunks nobody names any more, and who gives their space back.
//!
//! Every batch that takes the last name from a large value puts an entry of the ledger in the same
//! batch; so does the beginning of an upload, before its first chunk. What is listed and not being
//! uploaded is reclaimed: chunks are deleted in bounded steps, the entry behind them. Owners that
//! expire have an entry with their time, which follows every change of their map.
//!
//! Invariants:
//! 1. Chunks that are on the device are named by a map, or their value is listed: in one batch, or by
//!    the order of the log, which recovery keeps. So a crash at any point loses no space.
//! 2. A map is put only when all its chunks have been appended to the same log before it, or in the
//!    same batch ([`BrokenOrder`] is the mutation). So no map that is found names a chunk that is not.
//! 3. A value whose name may come back (a batch over several shards that is not decided) or that is
//!    being read piece by piece is held, and is not reclaimed before it is let go.
//! 4. A shard without large values pays one comparison a write.
//!
//! A crash leaves the ledger; the next opening reads it and reclaims what it lists.

use crate::database_map::DatabaseMap;
use crate::dead::{Dead, DeadValues};
use crate::large::{LargeMap, LedgerEntry, ValueId, is_map, ledger_key};
use crate::overlay::Overlay;
use crate::pin::{NewShadow, Pins};
use crate::shard::Shard;
use crate::view_large::Place;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tierstone_base::collections::{Map, Set};
use tierstone_base::{Error, ErrorKind, KeyHasher, KeyspaceId, Now, Position, Result, Token};
use tierstone_engine::{Engine, Key, Lookup, ValueKind, Write, WriteKind};

/// Steps for which what the ledger has fetched stays in memory from its arrival on: the write that needs it
/// comes again.
const OWN_FETCH_STEPS: u64 = 64;

/// An upload in progress.
#[derive(Debug)]
pub(crate) struct Upload {
    pub place: Place,
    pub map: LargeMap,
    /// Bytes taken so far.
    pub taken: u64,
    /// The chunk that is being filled.
    pub buffer: Vec<u8>,
}

/// What is known about the large values of one shard.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Whether there may be any large value.
    pub(crate) is_active: bool,
    pub(crate) uploads: Map<ValueId, Upload>,
    /// Values with an entry in the ledger.
    pub(crate) listed: Set<ValueId>,
    pub(crate) dead: DeadValues,
    /// Values that must not be reclaimed yet, and how many want that.
    held: Map<ValueId, u32>,
    pub(crate) deadlines: BTreeMap<(u64, ValueId), Place>,
    pub(crate) expiry_of: Map<ValueId, u64>,
    pub(crate) opening: crate::reclaim::Opening,
    /// No work before this time, by the monotonic clock.
    pub(crate) rest_until_us: u64,
    steps: u64,
    /// What was fetched, and until which step it is held.
    fetched: VecDeque<(Token, u64)>,
    on_their_way: Map<Token, (KeyspaceId, Position)>,
    /// The places of these.
    wanted: Set<(KeyspaceId, Position)>,
    /// Records that could not be read: writes go past them.
    unreadable: Set<(KeyspaceId, Position)>,
    pub(crate) pins: Pins,
    /// Breaks invariant 2, for a test: chunks of uploads are appended behind their map.
    pub(crate) is_order_broken: bool,
}

/// What becomes of the ledger when a batch is applied.
#[derive(Debug)]
enum Effect {
    /// A map names it.
    Named(ValueId),
    /// No map names it any more.
    Died(Place, LargeMap),
    /// Its owner expires.
    Expires(Place, ValueId, u64),
    /// A pin needs what it overwrites.
    Shades(NewShadow),
}

/// The ledger's part of a batch.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub extra: Overlay,
    effects: Vec<Effect>,
}

/// A map that a batch removes or puts.
#[derive(Debug)]
struct Named<'a> {
    place: Place,
    map: LargeMap,
    expiry_ms: u64,
    owner: &'a [u8],
}

impl Ledger {
    /// A ledger that `opening` will read.
    pub(crate) fn new(opening: crate::reclaim::Opening) -> Self {
        Ledger { is_active: !opening.is_done(), opening, ..Ledger::default() }
    }

    /// Whether a batch must be accounted for.
    #[inline]
    pub(crate) fn concerns(&self, writes: &[Write<'_>]) -> bool {
        let puts_map = |write: &Write<'_>| matches!(write.kind, WriteKind::Put { kind, .. } if is_map(write.key.keyspace, kind));
        self.is_active || writes.iter().any(puts_map)
    }

    /// Whether chunks of a dead value that nobody holds are still to be deleted.
    pub(crate) fn has_dead_to_free(&self) -> bool {
        self.dead.free().len() > 0
    }

    /// Whether something is left to be reclaimed or looked at.
    pub fn is_idle(&self) -> bool {
        self.dead.is_empty() && self.uploads.is_empty() && self.opening.is_done()
    }

    /// Forgets the large values of keyspaces that are gone from `map`.
    pub(crate) fn follow(&mut self, map: &DatabaseMap) {
        let living: BTreeSet<KeyspaceId> = map.keyspaces().iter().copied().collect();
        let lives = |place: &Place| living.contains(&place.keyspace);
        self.dead.retain(lives);
        self.uploads.retain(|_, upload| lives(&upload.place));
        self.deadlines.retain(|_, place| lives(place));
        let deadlines = &self.deadlines;
        self.expiry_of.retain(|id, at_ms| deadlines.contains_key(&(*at_ms, *id)));
        self.opening.retain(|keyspace| living.contains(&keyspace));
    }

    /// A fetch of the ledger's own is done.
    pub(crate) fn note_fetched(&mut self, token: Token, failure: Option<&Error>) {
        let Some(place) = self.on_their_way.remove(&token) else { return };
        self.wanted.remove(&place);
        if self.on_their_way.is_empty() {
            // It was these that were waited for.
            self.rest_until_us = 0;
        }
        // Counted from its arrival: a slow device must not use the time up.
        self.fetched.push_back((token, self.steps + OWN_FETCH_STEPS));
        if failure.is_some() {
            self.unreadable.insert(place);
        }
    }

    /// Lets `id` be reclaimed.
    pub(crate) fn let_go(&mut self, id: ValueId) {
        if let Some(count) = self.held.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&id);
                self.dead.note_held(id, false);
            }
        }
    }

    pub(crate) fn hold(&mut self, id: ValueId) {
        *self.held.entry(id).or_default() += 1;
        self.dead.note_held(id, true);
    }

    /// Takes a value that no map names any more, to be reclaimed when nobody holds it.
    pub(crate) fn bury(&mut self, dead: Dead) {
        let is_held = self.held.contains_key(&dead.map.id);
        self.dead.push(dead, is_held);
    }

    fn set_deadline(&mut self, place: Place, id: ValueId, at_ms: u64) {
        self.clear_deadline(id);
        self.deadlines.insert((at_ms, id), place);
        self.expiry_of.insert(id, at_ms);
    }

    pub(crate) fn clear_deadline(&mut self, id: ValueId) {
        if let Some(at_ms) = self.expiry_of.remove(&id) {
            self.deadlines.remove(&(at_ms, id));
        }
    }

    /// Takes an entry that the opening has found.
    pub(crate) fn found(&mut self, place: Place, entry: LedgerEntry) {
        let id = entry.map().id;
        self.listed.insert(id);
        match entry {
            LedgerEntry::Upload { map } => {
                self.bury(Dead { is_map_whole: false, ..Dead::whole(place, map) });
            }
            LedgerEntry::Dead { map } => {
                self.bury(Dead::whole(place, map));
            }
            LedgerEntry::Expires { at_ms, .. } => self.set_deadline(place, id, at_ms),
        }
    }

    /// Follows a batch that was applied; gives the values that died.
    pub(crate) fn apply(&mut self, account: Account) -> Vec<ValueId> {
        let mut died = Vec::new();
        self.is_active = true;
        for effect in account.effects {
            match effect {
                Effect::Named(id) => {
                    self.uploads.remove(&id);
                    self.listed.remove(&id);
                    self.dead.remove(id);
                    self.clear_deadline(id);
                }
                Effect::Expires(place, id, at_ms) => {
                    self.listed.insert(id);
                    self.set_deadline(place, id, at_ms);
                }
                Effect::Shades(shadow) => {
                    let id = self.pins.add(shadow);
                    self.listed.insert(id);
                }
                Effect::Died(place, map) => {
                    let id = map.id;
                    died.push(id);
                    self.uploads.remove(&id);
                    self.clear_deadline(id);
                    self.listed.insert(id);
                    self.bury(Dead::whole(place, map));
                }
            }
        }
        died
    }
}

impl<E: Engine> Shard<E> {
    /// Finds out what `writes` do to large values, and what must be written with them.
    ///
    /// # Errors
    /// `Retry` when an old record must be read first. `Unsupported`: a map names an upload that has
    /// been given up.
    pub(crate) fn account(&mut self, now: Now, writes: &[Write<'_>]) -> Result<Account> {
        let mut seen: BTreeSet<(KeyspaceId, Position, &[u8])> = BTreeSet::new();
        let mut old: BTreeMap<ValueId, Named<'_>> = BTreeMap::new();
        let mut new: BTreeMap<ValueId, Named<'_>> = BTreeMap::new();
        let mut is_unknown = false;
        // The last write of a key is what it is afterwards.
        for write in writes.iter().rev().filter(|write| write.key.keyspace.is_user()) {
            let key = write.key;
            let is_last = writes.len() == 1 || seen.insert((key.keyspace, key.position, key.bytes));
            let place = Place { keyspace: key.keyspace, slot: key.position.slot() };
            if let WriteKind::Put { value, expiry_ms, kind: ValueKind::CHUNKED } = write.kind {
                let map = LargeMap::decode(value)?;
                let named = Named { place, map, expiry_ms, owner: key.bytes };
                // What the batch itself names and then does not any more dies with it.
                if is_last { &mut new } else { &mut old }.insert(named.map.id, named);
            }
            if !is_last {
                continue;
            }
            match self.old_map(now, key) {
                Ok(Some((map, expiry_ms))) => {
                    old.entry(map.id).or_insert(Named { place, map, expiry_ms, owner: key.bytes });
                }
                Ok(None) => {}
                Err(_) => is_unknown = true,
            }
        }
        let mut account = Account::default();
        if !self.ledger.pins.is_empty() {
            let mut shadows = Vec::new();
            is_unknown |= self.shade(now, writes, &mut account.extra, &mut shadows);
            account.effects.extend(shadows.into_iter().map(Effect::Shades));
        }
        if is_unknown {
            return Err(Error::new(ErrorKind::Retry, "an old record must be read first"));
        }
        for (id, named) in &new {
            let is_new = !old.contains_key(id);
            let is_gone = self.ledger.dead.contains(*id) && !self.ledger.held.contains_key(id);
            if is_new && is_gone {
                return Err(Error::new(ErrorKind::Unsupported, "the uploaded value has been given up"));
            }
            account.effects.push(Effect::Named(*id));
            if named.expiry_ms != 0 {
                let (map, owner) = (named.map.clone(), named.owner.to_vec());
                let entry = LedgerEntry::Expires { at_ms: named.expiry_ms, map, owner };
                list(&mut account.extra, self.hasher, named.place, *id, &entry);
                account.effects.push(Effect::Expires(named.place, *id, named.expiry_ms));
            } else if self.ledger.listed.contains(id) || old.get(id).is_some_and(|old| old.expiry_ms != 0) {
                unlist(&mut account.extra, self.hasher, named.place, *id);
            }
        }
        for (id, named) in old {
            if !new.contains_key(&id) {
                let entry = LedgerEntry::Dead { map: named.map.clone() };
                list(&mut account.extra, self.hasher, named.place, id, &entry);
                account.effects.push(Effect::Died(named.place, named.map));
            }
        }
        Ok(account)
    }

    /// The large value that `key` names, with its expiry. An error when it must be fetched.
    fn old_map(&mut self, now: Now, key: Key<'_>) -> Result<Option<(LargeMap, u64)>> {
        match self.engine.lookup(now, key) {
            Lookup::Found(record) if record.meta.kind == ValueKind::CHUNKED => {
                // What is no map names nothing.
                Ok(LargeMap::decode(record.value).ok().map(|map| (map, record.meta.expiry_ms)))
            }
            Lookup::Found(_) | Lookup::Missing => Ok(None),
            Lookup::Fetch => self.fetch_own(now, key).map(|()| None),
        }
    }

    /// Fetches a record for the ledger; `Ok` when that was tried in vain before.
    ///
    /// # Errors
    /// `Retry`: it is on its way.
    pub(crate) fn fetch_own(&mut self, now: Now, key: Key<'_>) -> Result<()> {
        let place = (key.keyspace, key.position);
        if self.ledger.unreadable.contains(&place) {
            return Ok(());
        }
        if self.ledger.wanted.insert(place) {
            let token = self.own_token(key.keyspace, key.position);
            self.ledger.on_their_way.insert(token, place);
            self.engine.fetch(now, &[(token, key)]);
        }
        Err(Error::new(ErrorKind::Retry, "a record must be read first"))
    }

    /// Lets old fetches of the ledger's go.
    pub(crate) fn trim_own(&mut self) {
        self.ledger.steps += 1;
        while let Some(&(token, until)) = self.ledger.fetched.front() {
            if until > self.ledger.steps {
                return;
            }
            self.ledger.fetched.pop_front();
            self.engine.release(token);
        }
    }
}

fn with_key<R>(hasher: KeyHasher, place: Place, id: ValueId, then: impl FnOnce(Key<'_>) -> R) -> R {
    let bytes = ledger_key(place.slot, id);
    let position = hasher.position(&bytes);
    then(Key { keyspace: place.keyspace.ledger(), position, bytes: &bytes })
}

/// Collects an entry.
pub(crate) fn list(extra: &mut Overlay, hasher: KeyHasher, place: Place, id: ValueId, entry: &LedgerEntry) {
    with_key(hasher, place, id, |key| extra.put(key, &entry.encode(), 0, ValueKind::INTERNAL));
}

/// Collects the end of an entry.
pub(crate) fn unlist(extra: &mut Overlay, hasher: KeyHasher, place: Place, id: ValueId) {
    with_key(hasher, place, id, |key| extra.delete(key));
}

#[cfg(test)]
#[path = "ledger_test.rs"]
mod ledger_test;
