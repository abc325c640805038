//! From keys to the places of their records, of one keyspace: all that the engine asks of the indexes.
//!
//! A place is where a record begins in the store, a multiple of 8. By position there are candidates, which who asks
//! compares with the record ([`HashIndex`]); an ordered keyspace has its keys in order besides ([`OrderedIndex`]).
//!
//! Invariant: every place in an index is that of a record that is there: indexes read positions and keys of records.

use crate::format::{FLAG_KEY_OUT, RECORD_BYTES, RecordHead};
use crate::index::{HashIndex, KeyMode, KeyRange, KeySource, Location, OrderedIndex, PositionSource};
use crate::memory::PmMemory;
use std::borrow::Cow;
use std::ops::Bound;
use tierstone_base::{Position, Result};
use tierstone_engine::{Direction, IndexKind};

/// Where indexes read what they do not hold.
#[derive(Clone, Debug)]
struct Records {
    memory: PmMemory,
}

/// Where a record says its position.
const POSITION_AT: u64 = 32;

fn place_of(location: Location) -> u64 {
    location.units() * 8
}

/// Places are below 2^43, as the layout sees to.
fn location_of(place: u64) -> Location {
    Location::new(place / 8).unwrap_or(Location::MAX)
}

impl PositionSource for Records {
    fn position(&self, location: Location) -> Position {
        Position(self.memory.load_word(place_of(location) + POSITION_AT))
    }

    fn prefetch(&self, location: Location) {
        self.memory.prefetch(place_of(location), RECORD_BYTES as u64);
    }
}

impl KeySource for Records {
    type Key<'a> = Cow<'a, [u8]>;

    /// Not verified: the caller compares with a record that is. What is damaged beyond reading has an empty key.
    fn key(&self, location: Location) -> Cow<'_, [u8]> {
        let place = place_of(location);
        let room = self.memory.len() - place;
        let Some(head) = RecordHead::decode(&self.memory.load::<RECORD_BYTES>(place), room) else {
            return Cow::Borrowed(&[]);
        };
        let cut = |bytes: Cow<'_, [u8]>, from: usize, to: usize| -> Vec<u8> {
            bytes.get(from..to).unwrap_or_default().to_vec()
        };
        let record = self.memory.bytes(place, head.len as usize);
        let key_len = usize::from(head.key_len);
        if head.flags & FLAG_KEY_OUT == 0 {
            let from = head.len_before_key(&record);
            return match record {
                Cow::Borrowed(record) => Cow::Borrowed(record.get(from..from + key_len).unwrap_or_default()),
                owned => Cow::Owned(cut(owned, from, from + key_len)),
            };
        }
        let mut key = Vec::with_capacity(key_len);
        for extent in head.overflow(&record).map_or_else(Vec::new, |overflow| overflow.extents) {
            let len = (extent.len as usize).min(key_len - key.len());
            if extent.offset + len as u64 <= self.memory.len() {
                key.extend_from_slice(&self.memory.bytes(extent.offset, len));
            }
        }
        Cow::Owned(key)
    }

    fn prefetch(&self, location: Location) {
        self.memory.prefetch(place_of(location), 2 * RECORD_BYTES as u64);
    }
}

/// The places of one keyspace's records.
pub(crate) struct Keys {
    records: Records,
    by_position: HashIndex,
    by_key: Option<OrderedIndex>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} keys", self.len())
    }
}

impl Keys {
    pub fn new(memory: PmMemory, kind: IndexKind, mode: KeyMode) -> Self {
        let by_key = (kind == IndexKind::Ordered).then(|| OrderedIndex::new(mode));
        Keys { records: Records { memory }, by_position: HashIndex::new(), by_key }
    }

    pub fn is_ordered(&self) -> bool {
        self.by_key.is_some()
    }

    pub fn len(&self) -> u64 {
        self.by_position.len()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.by_position.memory_bytes() + self.by_key.as_ref().map_or(0, OrderedIndex::memory_bytes)
    }

    /// So many keys will come, in the order of positions, to what is empty yet: makes them cheaper.
    pub fn expect(&mut self, count: u64) {
        self.by_position.expect(count);
    }

    /// Asks for the line that a lookup of `position` reads.
    pub fn prefetch(&self, position: Position) {
        self.by_position.prefetch(position);
    }

    /// Asks for the records that a lookup of `position` compares. It reads the line that [`Keys::prefetch`] asked for.
    /// Their places go to `named`.
    pub fn prefetch_records(&self, position: Position, mut named: impl FnMut(u64)) {
        self.by_position.get(position, |location| {
            // The key too: it is compared.
            KeySource::prefetch(&self.records, location);
            named(place_of(location));
            false
        });
    }

    /// Whether there is a candidate for `position`.
    pub fn has_any(&self, position: Position) -> bool {
        self.by_position.get(position, |_| true).is_some()
    }

    /// The place whose record `is_it`, of the candidates for `position`. An error of `is_it` ends the search.
    pub fn get(&self, position: Position, mut is_it: impl FnMut(u64) -> Result<bool>) -> Result<Option<u64>> {
        let mut failed = Ok(());
        let found = self.by_position.get(position, |location| match is_it(place_of(location)) {
            Ok(is_it) => is_it,
            Err(error) => {
                failed = Err(error);
                true
            }
        });
        failed.map(|()| found.map(place_of))
    }

    /// Whether `place` is an entry.
    pub fn has(&self, position: Position, place: u64) -> bool {
        self.by_position.get(position, |location| place_of(location) == place).is_some()
    }

    /// Adds a key that is not there.
    pub fn insert(&mut self, position: Position, key: &[u8], place: u64) {
        self.by_position.insert(position, location_of(place), &self.records);
        if let Some(keys) = &mut self.by_key {
            keys.insert(key, location_of(place), &self.records);
        }
    }

    /// The record of a key is at `to` now, no more at `from`.
    pub fn replace(&mut self, position: Position, key: &[u8], from: u64, to: u64) {
        self.by_position.replace(position, location_of(from), location_of(to));
        if let Some(keys) = &mut self.by_key {
            keys.replace(key, location_of(from), location_of(to), &self.records);
        }
    }

    pub fn remove(&mut self, position: Position, key: &[u8], place: u64) {
        self.by_position.remove(position, location_of(place));
        if let Some(keys) = &mut self.by_key {
            keys.remove(key, &self.records);
        }
    }

    /// Removes an old record whose key is not known any more; in the order of keys a newer one stands.
    pub fn forget(&mut self, position: Position, place: u64) {
        self.by_position.remove(position, location_of(place));
    }

    /// Removes a record of a keyspace that is given up; where its key cannot be read, it stays in the order, which nobody asks.
    pub fn take_out(&mut self, position: Position, key: Option<&[u8]>, place: u64) {
        match key {
            Some(key) => self.remove(position, key, place),
            None => self.forget(position, place),
        }
    }

    /// Takes a key out of the order only, as nothing may.
    #[cfg(test)]
    pub fn leave_order(&mut self, key: &[u8]) {
        if let Some(keys) = &mut self.by_key {
            keys.remove(key, &self.records);
        }
    }

    /// Shows places from `from` on, in the order of positions but for neighbours, until `count` or more were shown.
    /// Where to go on; `None` at the end. A page may be short, or empty.
    pub fn scan(&self, from: Position, count: usize, mut take: impl FnMut(u64)) -> Option<Position> {
        self.by_position.scan(from, count, |location| take(place_of(location)))
    }

    /// Shows places in the order of keys, until `take` says no.
    pub fn range(
        &self,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        limit: usize,
        mut take: impl FnMut(u64) -> bool,
    ) {
        if let Some(keys) = &self.by_key {
            let range = KeyRange { low, high, direction, limit };
            keys.range(&range, &self.records, |location| take(place_of(location)));
        }
    }
}

/// Most bytes of a store: what places can name.
pub(crate) const STORE_BYTES_MAX: u64 = 1 << 43;
