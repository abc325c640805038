//! Large values that are read piece by piece after their command has ended, while others write.
//!
//! Invariants:
//! 1. A pinned value is read as it was when it was pinned: a batch that overwrites one of its chunks
//!    also puts a copy of the old one, a shadow, for the pins that have not passed it.
//! 2. Shadows are values of their own, listed in the ledger from the beginning: they die with their
//!    last pin, or with the process.

use crate::dead::Dead;
use crate::large::{LargeMap, LedgerEntry, ValueId, chunk_key, parse_key};
use crate::ledger::list;
use crate::overlay::Overlay;
use crate::shard::{FetchFailure, RunOutcome, Shard, Workspace};
use crate::view_large::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tierstone_base::Now;
use tierstone_base::collections::Map;
use tierstone_engine::{Engine, Key, Lookup, ValueKind, Write};

/// The name of a pin: [`Shard::next_id`] gives it.
pub type PinId = u64;

#[derive(Debug)]
struct Pin {
    place: Place,
    map: LargeMap,
    /// The first chunk that may still be read.
    next: u64,
    shadows: BTreeMap<u64, ValueId>,
}

#[derive(Debug)]
struct Shadow {
    place: Place,
    map: LargeMap,
    users: usize,
}

/// The pins of a shard and their shadows.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    pins: BTreeMap<PinId, Pin>,
    shadows: Map<ValueId, Shadow>,
}

/// A shadow that a batch puts.
#[derive(Debug)]
pub(crate) struct NewShadow {
    place: Place,
    map: LargeMap,
    users: Vec<(PinId, u64)>,
}

impl Pins {
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    /// Takes a shadow that was put; gives its id.
    pub fn add(&mut self, shadow: NewShadow) -> ValueId {
        let id = shadow.map.id;
        for (pin, number) in &shadow.users {
            if let Some(pin) = self.pins.get_mut(pin) {
                pin.shadows.insert(*number, id);
            }
        }
        let (place, map, users) = (shadow.place, shadow.map, shadow.users.len());
        self.shadows.insert(id, Shadow { place, map, users });
        id
    }
}

impl<E: Engine> Shard<E> {
    /// Keeps the value of `map` readable as it is now, until [`Shard::unpin`].
    pub fn pin(&mut self, pin: PinId, place: Place, map: LargeMap) {
        self.ledger.hold(map.id);
        self.ledger.pins.pins.insert(pin, Pin { place, map, next: 0, shadows: BTreeMap::new() });
    }

    /// Ends a pin.
    pub fn unpin(&mut self, pin: PinId) {
        let Some(pin) = self.ledger.pins.pins.remove(&pin) else { return };
        self.ledger.let_go(pin.map.id);
        for id in pin.shadows.into_values() {
            let Some(shadow) = self.ledger.pins.shadows.get_mut(&id) else { continue };
            shadow.users -= 1;
            if shadow.users == 0
                && let Some(Shadow { place, map, .. }) = self.ledger.pins.shadows.remove(&id)
            {
                self.ledger.bury(Dead::whole(place, map));
            }
        }
    }

    /// Appends a part of a pinned value to `out`. Ranges are read in order: what lies before the last
    /// one that was read is not kept.
    pub fn read_pinned(
        &mut self,
        now: Now,
        workspace: &mut Workspace,
        failures: &[FetchFailure],
        (pin, range): (PinId, Range<u64>),
        out: &mut Vec<u8>,
    ) -> RunOutcome<()> {
        let Some(mut pinned) = self.ledger.pins.pins.remove(&pin) else {
            return RunOutcome::Done { value: (), gate: 0 };
        };
        pinned.next = range.start / pinned.map.chunk_bytes();
        let id_of = |number: u64| pinned.shadows.get(&number).copied().unwrap_or(pinned.map.id);
        let outcome = self.run(now, workspace, failures, |view| {
            view.read_large_of(pinned.place, &pinned.map, range, out, id_of)
        });
        self.ledger.pins.pins.insert(pin, pinned);
        outcome
    }

    /// Collects what the pins need of the chunks that `writes` overwrite. True when an old chunk must
    /// be read first.
    pub(crate) fn shade(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        extra: &mut Overlay,
        shadows: &mut Vec<NewShadow>,
    ) -> bool {
        let mut seen = BTreeSet::new();
        let mut new: BTreeMap<ValueId, NewShadow> = BTreeMap::new();
        let mut is_unknown = false;
        for write in writes.iter().filter(|write| write.key.keyspace.is_chunks()) {
            let Some((id, number)) = parse_key(write.key.bytes) else { continue };
            let needs = |pin: &Pin| {
                pin.map.id == id
                    && number >= pin.next
                    && pin.map.has(number)
                    && !pin.shadows.contains_key(&number)
            };
            let pins = self.ledger.pins.pins.iter();
            let users: Vec<(PinId, u64)> =
                pins.filter(|(_, pin)| needs(pin)).map(|(name, _)| (*name, number)).collect();
            if users.is_empty() || !seen.insert((id, number)) {
                continue;
            }
            let place = Place { keyspace: write.key.keyspace.user(), slot: write.key.position.slot() };
            let (ids, hasher) = (&self.ids, self.hasher);
            match self.engine.peek(now, write.key) {
                Lookup::Found(record) => {
                    let shadow = new.entry(id).or_insert_with(|| NewShadow {
                        place,
                        map: ids.new_map(0),
                        users: Vec::new(),
                    });
                    let bytes = chunk_key(place.slot, shadow.map.id, number);
                    let position = hasher.position(&bytes);
                    let key = Key { keyspace: write.key.keyspace, position, bytes: &bytes };
                    extra.put(key, record.value, 0, ValueKind::STRING);
                    shadow.map.grow((number + 1) * shadow.map.chunk_bytes());
                    shadow.map.add(number);
                    shadow.users.extend(users);
                }
                Lookup::Missing => {}
                Lookup::Fetch => is_unknown |= self.fetch_own(now, write.key).is_err(),
            }
        }
        for shadow in new.into_values() {
            let entry = LedgerEntry::Upload { map: shadow.map.clone() };
            list(extra, self.hasher, shadow.place, shadow.map.id, &entry);
            shadows.push(shadow);
        }
        is_unknown
    }
}
