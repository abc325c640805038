//! Keys that have left an order while a snapshot shows them.
//!
//! Invariants:
//! 1. A key that a live snapshot shows is in its keyspace's order or here; at times in both, when it came back.
//! 2. A key here has records in the table of kept ones ([`crate::snapshots`]) at its position, and a snapshot from
//!    before it left is alive. What is not so is let go by the purge.
//!
//! Which record a snapshot shows of a key is not said here: it is found as for any read. In memory only.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use tierstone_base::{KeyspaceId, Position, Seq};
use tierstone_engine::Direction;

/// Memory of a key here besides its bytes: 36 bytes in tree nodes that are about two thirds full, and the allocation.
const GONE_KEY_BYTES: u64 = 80;

/// A key, and its keyspace before it.
pub(crate) type GoneKey = (KeyspaceId, Box<[u8]>);

/// What is known of a key that left the order.
#[derive(Clone, Copy, Debug)]
struct Gone {
    position: Position,
    /// Snapshots before this write may show the key.
    at: Seq,
}

/// Keys of a range and their positions, in its order.
pub(crate) type GoneRange<'g> = Peekable<Box<dyn Iterator<Item = (&'g [u8], Position)> + 'g>>;

/// All such keys of a shard.
#[derive(Debug, Default)]
pub(crate) struct GoneKeys {
    keys: BTreeMap<GoneKey, Gone>,
    /// Memory of all of them.
    bytes: u64,
}

impl GoneKeys {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `key` left its order with the write `at`.
    pub fn insert(&mut self, keyspace: KeyspaceId, key: &[u8], position: Position, at: Seq) {
        let gone = self.keys.entry((keyspace, key.into())).or_insert_with(|| {
            self.bytes += GONE_KEY_BYTES + key.len() as u64;
            Gone { position, at }
        });
        gone.at = gone.at.max(at);
    }

    /// A keyspace's keys between `low` and `high`.
    pub fn range(
        &self,
        keyspace: KeyspaceId,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> GoneRange<'_> {
        let own = |bound: Bound<&[u8]>| bound.map(|key| (keyspace, Box::from(key)));
        let low = match own(low) {
            Unbounded => Included((keyspace, Box::default())),
            low => low,
        };
        let high = match (own(high), keyspace.0.checked_add(1)) {
            (Unbounded, Some(next)) => Excluded((KeyspaceId(next), Box::default())),
            (high, _) => high,
        };
        // The tree does not take ends that have changed places.
        let is_empty = match (&low, &high) {
            (Included(low), Included(high)) => low > high,
            (Included(low) | Excluded(low), Included(high) | Excluded(high)) => low >= high,
            _ => false,
        };
        if is_empty {
            return nothing().peekable();
        }
        let found = self.keys.range((low, high)).map(|((_, key), gone)| (&**key, gone.position));
        let found: Box<dyn Iterator<Item = _>> = match direction {
            Direction::Forward => Box::new(found),
            Direction::Backward => Box::new(found.rev()),
        };
        found.peekable()
    }

    /// Lets up to `count` keys behind `after` go if they are not `needed`; gives the last one looked at, `None` at
    /// the end.
    pub fn purge(
        &mut self,
        after: Option<GoneKey>,
        count: usize,
        needed: impl Fn(KeyspaceId, Position, Seq) -> bool,
    ) -> Option<GoneKey> {
        let from = after.map_or(Unbounded, Excluded);
        let (mut last, mut unneeded) = (None, Vec::new());
        for (key, gone) in self.keys.range((from, Unbounded)).take(count) {
            if !needed(key.0, gone.position, gone.at) {
                unneeded.push(key.clone());
            }
            last = Some(key);
        }
        let last = last.cloned();
        for key in unneeded {
            self.keys.remove(&key);
            self.bytes -= GONE_KEY_BYTES + key.1.len() as u64;
        }
        last
    }
}

fn nothing<'g>() -> Box<dyn Iterator<Item = (&'g [u8], Position)> + 'g> {
    Box::new(std::iter::empty())
}

#[cfg(test)]
#[path = "gone_test.rs"]
mod gone_test;
