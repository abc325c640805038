//! Keys that have left an order while a snapshot shows them.
//!
//! Invariants:
//! 1. A key that a live snapshot shows is in its keyspace's order or here; at times in both, when it came back.
//! 2. A key here has records in the side table of the snapshots at its position, or left the order past
//!    a record that could not be read; and a snapshot from before it left is alive. What is not so is let go by the purge.
//!
//! What a snapshot shows of a key is not said here: its record is found as for any read at a snapshot
//! ([`crate::snapshot_reads`]). Owned by [`Snapshots`]; in memory only, and gone after a crash with the snapshots.

use crate::shard::LogShard;
use crate::snapshots::Snapshots;
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use tierstone_base::{KeyspaceId, Position, Seq};
use tierstone_engine::{Direction, Key};

/// Memory of a key here besides its bytes: 40 bytes in tree nodes that are about two thirds full, and the allocation.
const GONE_KEY_BYTES: u64 = 80;

/// What is known of a key that left the order.
#[derive(Clone, Copy, Debug)]
struct Gone {
    position: Position,
    /// Snapshots before this write may show the key.
    at: Seq,
    /// A record that could not be read may be the key's.
    is_unsure: bool,
}

/// How far a walk through all of them has come.
pub(crate) type GonePlace = (KeyspaceId, Option<Box<[u8]>>);

/// All such keys of a shard.
#[derive(Debug, Default)]
pub(crate) struct GoneKeys {
    keys: BTreeMap<KeyspaceId, BTreeMap<Box<[u8]>, Gone>>,
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

    fn insert(&mut self, keyspace: KeyspaceId, key: &[u8], gone: Gone) {
        let keys = self.keys.entry(keyspace).or_default();
        if let Some(known) = keys.get_mut(key) {
            known.at = known.at.max(gone.at);
            known.is_unsure |= gone.is_unsure;
            return;
        }
        self.bytes += GONE_KEY_BYTES + key.len() as u64;
        keys.insert(key.into(), gone);
    }

    /// Shows up to `limit` of a keyspace's keys between `from` and `to`.
    pub fn range(
        &self,
        keyspace: KeyspaceId,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        limit: usize,
        direction: Direction,
        visit: impl FnMut(&[u8]),
    ) {
        let Some(keys) = self.keys.get(&keyspace) else { return };
        // The tree does not take ends that have changed places.
        let (Included(lower) | Excluded(lower), Included(upper) | Excluded(upper)) = (from, to) else {
            return show(keys, (from, to), limit, direction, visit);
        };
        let is_empty = lower > upper || (lower == upper && (from, to) != (Included(lower), Included(upper)));
        if !is_empty {
            show(keys, (from, to), limit, direction, visit);
        }
    }

    /// Lets up to `count` keys behind `after` go if they are not `needed`; gives how far it came, `None` at the end.
    pub fn purge(
        &mut self,
        after: Option<GonePlace>,
        count: usize,
        mut needed: impl FnMut(KeyspaceId, Position, Seq, bool) -> bool,
    ) -> Option<GonePlace> {
        let (first, behind) = after.unwrap_or((KeyspaceId(0), None));
        let (&keyspace, keys) = self.keys.range_mut(first..).next()?;
        let from = match &behind {
            Some(key) if keyspace == first => Excluded(&**key),
            _ => Unbounded,
        };
        let looked_at = keys.range::<[u8], _>((from, Unbounded)).take(count);
        let mut last = None;
        let mut unneeded = Vec::new();
        for (number, (key, gone)) in looked_at.enumerate() {
            if number + 1 == count {
                last = Some(key.clone());
            }
            if !needed(keyspace, gone.position, gone.at, gone.is_unsure) {
                unneeded.push(key.clone());
            }
        }
        for key in unneeded {
            keys.remove(&key);
            self.bytes -= GONE_KEY_BYTES + key.len() as u64;
        }
        if keys.is_empty() {
            self.keys.remove(&keyspace);
        }
        match last {
            Some(_) => Some((keyspace, last)),
            None => Some((KeyspaceId(keyspace.0.checked_add(1)?), None)),
        }
    }
}

fn show(
    keys: &BTreeMap<Box<[u8]>, Gone>,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    limit: usize,
    direction: Direction,
    mut visit: impl FnMut(&[u8]),
) {
    let range = keys.range::<[u8], _>(bounds).map(|(key, _)| &**key);
    match direction {
        Direction::Forward => range.take(limit).for_each(&mut visit),
        Direction::Backward => range.rev().take(limit).for_each(&mut visit),
    }
}

impl Snapshots {
    /// Keeps `key`, which has left its order with the write `at`, if a snapshot may show it. Its record, if one was
    /// known, is in the side table already.
    pub fn keep_gone(&mut self, key: &Key<'_>, at: Seq, is_unsure: bool) {
        let is_shown = is_unsure || self.has_kept(key.keyspace, key.position);
        if self.cuts.is_any_before(at) && is_shown {
            self.gone.insert(key.keyspace, key.bytes, Gone { position: key.position, at, is_unsure });
        }
    }
}

impl LogShard {
    /// `key` has left the order of its keyspace with the write `at`: see [`Snapshots::keep_gone`]. `is_unsure`: a
    /// record that cannot be read may be its last one.
    pub(crate) fn keep_gone_key(&mut self, key: &Key<'_>, at: Seq, is_unsure: bool) {
        if self.identity.mutations.is_on("gone_keys_not_kept") {
            return;
        }
        self.snapshots.keep_gone(key, at, is_unsure);
        self.bound_snapshot_table();
    }
}

#[cfg(test)]
#[path = "gone_test.rs"]
mod gone_test;
