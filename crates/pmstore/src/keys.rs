//! From keys to the places of their records, of one keyspace, in memory.
//!
//! An entry is the place of a record: 8 bytes. Keys by position are not kept here: who asks compares the key of the
//! record that a place names. This is the whole interface to the index.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tierstone_base::{Position, Result};
use tierstone_engine::{Direction, IndexKind};

/// The places of one keyspace's records.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    by_position: BTreeSet<(u64, u64)>,
    by_key: Option<BTreeMap<Box<[u8]>, u64>>,
}

impl Keys {
    pub fn new(kind: IndexKind) -> Self {
        Keys { by_position: BTreeSet::new(), by_key: (kind == IndexKind::Ordered).then(BTreeMap::new) }
    }

    pub fn is_ordered(&self) -> bool {
        self.by_key.is_some()
    }

    pub fn len(&self) -> u64 {
        self.by_position.len() as u64
    }

    /// Bytes of memory, about.
    pub fn bytes(&self) -> u64 {
        let ordered: usize = self.by_key.as_ref().map_or(0, |keys| keys.len() * 40);
        self.by_position.len() as u64 * 24 + ordered as u64
    }

    /// The place at `position` whose record `is_it`.
    pub fn get(&self, position: Position, mut is_it: impl FnMut(u64) -> Result<bool>) -> Result<Option<u64>> {
        for &(_, place) in self.by_position.range((position.0, 0)..=(position.0, u64::MAX)) {
            if is_it(place)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Whether `place` is an entry.
    pub fn has(&self, position: Position, place: u64) -> bool {
        self.by_position.contains(&(position.0, place))
    }

    /// Adds a key that is not there.
    pub fn insert(&mut self, position: Position, key: &[u8], place: u64) {
        self.by_position.insert((position.0, place));
        if let Some(keys) = &mut self.by_key {
            keys.insert(key.into(), place);
        }
    }

    /// The record of a key is at `to` now, no more at `from`.
    pub fn replace(&mut self, position: Position, key: &[u8], from: u64, to: u64) {
        self.by_position.remove(&(position.0, from));
        self.by_position.insert((position.0, to));
        if let Some(place) = self.by_key.as_mut().and_then(|keys| keys.get_mut(key)) {
            *place = to;
        }
    }

    pub fn remove(&mut self, position: Position, key: &[u8], place: u64) {
        self.by_position.remove(&(position.0, place));
        if let Some(keys) = &mut self.by_key {
            keys.remove(key);
        }
    }

    /// Shows entries from `from` on by position, until `take` says no.
    pub fn scan(&self, from: Position, mut take: impl FnMut(Position, u64) -> bool) {
        for &(position, place) in self.by_position.range((from.0, 0)..) {
            if !take(Position(position), place) {
                return;
            }
        }
    }

    /// Shows places in the order of keys, until `take` says no.
    pub fn range(
        &self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        mut take: impl FnMut(u64) -> bool,
    ) {
        let Some(keys) = &self.by_key else { return };
        if is_empty(from, to) {
            return;
        }
        let mut range = keys.range::<[u8], _>((from, to)).map(|(_, place)| *place);
        let mut next = || match direction {
            Direction::Forward => range.next(),
            Direction::Backward => range.next_back(),
        };
        while let Some(place) = next() {
            if !take(place) {
                return;
            }
        }
    }
}

/// Whether the bounds leave nothing.
fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}
