//! Which clients hold copies of which keys (Redis's client-side caching), at the shard that has the keys.
//!
//! Somebody reads a key for a client and notes it here ([`TrackTable::remember`]); a write of the key, its expiry
//! and its eviction take the note out and make its clients' copies *stale*, which is for the owner to tell them
//! ([`TrackTable::take_stale`]). Other clients want to be told of every change of keys with a prefix. As in Redis,
//! a key is the same in all databases.
//!
//! Invariants:
//! 1. A note is made in the same turn of the shard's thread as the read, so a later write finds it.
//! 2. A key is stale when its write is applied, never before: who reads again sees the write.
//! 3. What is noted and not taken out takes at most the keys and bytes that were allowed: the oldest note makes
//!    room, and its clients' copies become stale.
//! 4. Two keys that share a position are one here: a copy may become stale without need (with a chance of about
//!    2^-50), never stay.
//! 5. Nothing noted and no prefix wanted: a write pays one comparison.
//!
//! Nothing of it outlives the process, whose clients are connections.

use crate::shard::Shard;
use crate::watch::WatcherId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tierstone_base::collections::Map;
use tierstone_base::{KeyspaceId, Now, Position, ShardId};
use tierstone_engine::{Engine, Key, Lookup, Write};

/// Bytes that a noted key takes beside its own: its place, its age, its expiry, and two allocations.
const KEY_OVERHEAD_BYTES: usize = 208;

/// A client that holds copies, and the shard that has its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The client.
    pub client: WatcherId,
    /// Its shard.
    pub shard: ShardId,
}

/// Copies that a client must not use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Who holds them.
    pub holder: Holder,
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// Whether it is told because of a prefix.
    pub is_broadcast: bool,
}

/// One key of which there are copies.
#[derive(Debug)]
struct Copies {
    key: Box<[u8]>,
    /// In order, each once.
    holders: Vec<Holder>,
    /// When they become stale by themselves, in milliseconds since 1970; 0: never.
    expiry_ms: u64,
    number: u64,
}

impl Copies {
    fn size_bytes(&self) -> usize {
        KEY_OVERHEAD_BYTES + self.key.len() + self.holders.len() * size_of::<Holder>()
    }
}

/// The copies of one shard's keys.
#[derive(Debug, Default)]
pub struct TrackTable {
    keys: Map<Position, Copies>,
    by_time: BTreeSet<(u64, Position)>,
    by_age: BTreeMap<u64, Position>,
    next_number: u64,
    items: u64,
    bytes: usize,
    /// 0: as many as there is room for.
    keys_max: u64,
    bytes_max: usize,
    prefixes: BTreeMap<Vec<u8>, BTreeSet<Holder>>,
    writer: Option<WatcherId>,
    stale: Vec<Stale>,
    /// Changed keys by prefix; who has changed them, if that client does not want to be told.
    changed: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Option<WatcherId>>>,
}

impl TrackTable {
    /// Whether a change of a key may be of interest.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.keys.is_empty() || !self.prefixes.is_empty()
    }

    /// Whether somebody wants to be told of all changes of some keys.
    #[inline]
    pub fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Keys of which there are copies.
    pub fn keys(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Copies: keys, once for each client.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Prefixes that are wanted, each once.
    pub fn prefixes(&self) -> u64 {
        self.prefixes.len() as u64
    }

    /// Bytes that the notes take.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Bounds the notes: so many keys (0: any number) in so many bytes.
    pub fn set_limits(&mut self, keys_max: u64, bytes_max: usize) {
        (self.keys_max, self.bytes_max) = (keys_max, bytes_max);
        self.trim();
    }

    /// Whose command runs, if that client does not want to be told of what it writes itself.
    #[inline]
    pub fn set_writer(&mut self, writer: Option<WatcherId>) {
        self.writer = writer;
    }

    /// `holder` has read `key`, which expires then (0: never, or there is none).
    pub fn remember(&mut self, key: Key<'_>, holder: Holder, expiry_ms: u64) {
        let position = key.position;
        if self.keys.get(&position).is_some_and(|copies| *copies.key != *key.bytes) {
            self.end(position, None);
        }
        let number = self.next_number;
        let copies = self.keys.entry(position).or_insert_with(|| Copies {
            key: key.bytes.into(),
            holders: Vec::new(),
            expiry_ms: 0,
            number,
        });
        if copies.number == number {
            self.next_number += 1;
            self.by_age.insert(number, position);
        } else {
            self.bytes -= copies.size_bytes();
        }
        if let Err(place) = copies.holders.binary_search(&holder) {
            copies.holders.insert(place, holder);
            self.items += 1;
        }
        if expiry_ms != 0 && (copies.expiry_ms == 0 || expiry_ms < copies.expiry_ms) {
            self.by_time.remove(&(copies.expiry_ms, position));
            copies.expiry_ms = expiry_ms;
            self.by_time.insert((expiry_ms, position));
        }
        self.bytes += copies.size_bytes();
        self.trim();
    }

    /// A copy of `key` that nothing is known about: it is stale at once.
    pub fn refuse(&mut self, key: &[u8], holder: Holder) {
        self.stale.push(Stale { holder, keys: vec![key.to_vec()], is_broadcast: false });
    }

    /// `key` has changed.
    pub fn touch(&mut self, position: Position, key: &[u8]) {
        self.end(position, self.writer);
        self.touch_prefixes(key);
    }

    #[cold]
    pub(crate) fn note_writes(&mut self, writes: &[Write<'_>]) {
        for write in writes.iter().filter(|write| write.key.keyspace.is_user()) {
            self.touch(write.key.position, write.key.bytes);
        }
    }

    /// `key` has changed, of whose copies it is known already.
    pub fn touch_prefixes(&mut self, key: &[u8]) {
        let mut bound = key;
        // The greatest prefix that is not above the bound is one of the key, or tells how far a shorter one
        // could agree with it: as many steps as the key has bytes, at most.
        while let Some((prefix, _)) =
            self.prefixes.range::<[u8], _>((Bound::Unbounded, Bound::Included(bound))).next_back()
        {
            let common = prefix.iter().zip(key).take_while(|(left, right)| left == right).count();
            if common < prefix.len() {
                bound = &key[..common];
                continue;
            }
            let writer = self.writer;
            let keys = self.changed.entry(prefix.clone()).or_default();
            // Of two writers neither can be left out.
            keys.entry(key.to_vec())
                .and_modify(|other| *other = other.filter(|other| Some(*other) == writer))
                .or_insert(writer);
            if common == 0 {
                break;
            }
            bound = &key[..common - 1];
        }
    }

    /// The copies of what has expired at `wall_ms` become stale: the last of the times.
    pub fn expire(&mut self, wall_ms: u64) -> Option<u64> {
        let mut last = None;
        while let Some((expiry_ms, position)) = self.by_time.first().copied()
            && expiry_ms <= wall_ms
        {
            self.end(position, None);
            last = Some(expiry_ms);
        }
        last
    }

    /// When the next copies become stale by themselves, in milliseconds since 1970.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.by_time.first().map(|first| first.0)
    }

    /// All copies are forgotten: their clients are told otherwise.
    pub fn clear(&mut self) {
        self.keys = Map::default();
        self.by_time.clear();
        self.by_age.clear();
        (self.items, self.bytes) = (0, 0);
    }

    /// `holder` wants to be told of changes of keys with these prefixes, and of no others from now on.
    pub fn follow(&mut self, holder: Holder, prefixes: Vec<Vec<u8>>) {
        self.prefixes.retain(|_, holders| {
            holders.remove(&holder);
            !holders.is_empty()
        });
        for prefix in prefixes {
            self.prefixes.entry(prefix).or_default().insert(holder);
        }
    }

    /// Whether there is something to tell.
    #[inline]
    pub fn has_stale(&self) -> bool {
        !self.stale.is_empty() || !self.changed.is_empty()
    }

    /// The copies that have become stale since they were taken last, in the order of their changes; then those
    /// of prefixes, once for each client and prefix.
    pub fn take_stale(&mut self) -> Vec<Stale> {
        let mut all = std::mem::take(&mut self.stale);
        for (prefix, keys) in std::mem::take(&mut self.changed) {
            for &holder in self.prefixes.get(&prefix).into_iter().flatten() {
                let wanted = keys.iter().filter(|(_, writer)| **writer != Some(holder.client));
                let keys: Vec<Vec<u8>> = wanted.map(|(key, _)| key.clone()).collect();
                if !keys.is_empty() {
                    all.push(Stale { holder, keys, is_broadcast: true });
                }
            }
        }
        all
    }

    fn trim(&mut self) {
        while (self.keys_max != 0 && self.keys() > self.keys_max || self.bytes > self.bytes_max)
            && let Some((_, position)) = self.by_age.first_key_value()
        {
            self.end(*position, None);
        }
    }

    /// Takes the note of a position out, and its copies become stale, but not those of `spared`.
    fn end(&mut self, position: Position, spared: Option<WatcherId>) {
        let Some(copies) = self.keys.remove(&position) else { return };
        self.bytes -= copies.size_bytes();
        self.items -= copies.holders.len() as u64;
        self.by_age.remove(&copies.number);
        self.by_time.remove(&(copies.expiry_ms, position));
        for holder in copies.holders.into_iter().filter(|holder| Some(holder.client) != spared) {
            self.stale.push(Stale { holder, keys: vec![copies.key.to_vec()], is_broadcast: false });
        }
    }
}

impl<E: Engine> Shard<E> {
    /// Notes that `holder` has just read `bytes` in `keyspace`, in this turn or under locks since. What was read
    /// expires at `seen_ms`, if that is known (0: it is not, or it does not expire). Cost: one lookup.
    pub fn remember(
        &mut self,
        now: Now,
        (keyspace, bytes): (KeyspaceId, &[u8]),
        holder: Holder,
        seen_ms: u64,
    ) {
        let now = self.clock(now);
        let key = Key { keyspace, position: self.position(bytes), bytes };
        let expiry_ms = match self.engine.peek(now, key) {
            Lookup::Found(record) => record.meta.expiry_ms,
            Lookup::Missing => 0,
            // Its expiry cannot be known without reading it again.
            Lookup::Fetch => return self.tracking.refuse(bytes, holder),
        };
        // What was seen may have expired before the record of now does.
        let first_ms = [seen_ms, expiry_ms].into_iter().filter(|&ms| ms != 0).min().unwrap_or(0);
        self.tracking.remember(key, holder, first_ms);
    }

    /// The same of what was read under locks and is as it was: it expires at `expiry_ms` (0: never, or it is not
    /// there).
    pub fn remember_seen(&mut self, (keyspace, bytes): (KeyspaceId, &[u8]), holder: Holder, expiry_ms: u64) {
        let key = Key { keyspace, position: self.position(bytes), bytes };
        self.tracking.remember(key, holder, expiry_ms);
    }
}

#[cfg(test)]
#[path = "tracking_test.rs"]
mod tracking_test;
