//! Ranges of keys in their order, merged over the shards, and the iterator of the local handle.
//!
//! Invariants:
//! 1. Every entry comes in the order of its key, whatever its shard: the merge gives one only when it
//!    knows the next key of every shard.
//! 2. A walk shows a snapshot: each key of the cut that had not expired then is given exactly once, with its
//!    value of then. A live walk of the shared handle, for which one asks, gives a key that exists during the whole
//!    walk exactly once; one that comes or goes during it may be given or not.
//!
//! Shards are asked for few entries at first, then for more and more: a short range reads little more
//! than it gives, a long one asks seldom. Where the walk says how many entries it wants, each shard is asked for its
//! part of them at once.

use crate::local::Store;
use crate::plain::{is_of_snapshot, is_user_value, is_visible, unreadable_kind};
use crate::scan::Entry;
use crate::snapshot::{Shown, Snapshot};
use std::collections::VecDeque;
use std::ops::{Bound, Range as Ends, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Result};
use tierstone_engine::{Direction, RangeEntry, RangeRequest, ValueKind};

/// Entries that all shards together are asked for at first.
const ENTRIES_AT_FIRST: u32 = 32;
/// Entries that one shard is asked for at a time, at most.
const ENTRIES_AT_ONCE: u32 = 256;

/// What may name a range of keys: `"a".."m"`, `key..`, `..=key`, `..`, a pair of bounds, or a
/// [`Prefix`]. Keys are compared as strings of bytes.
pub trait KeyRange {
    /// The lower and the upper end.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

/// All keys that begin with these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<K>(pub K);

fn owned(key: impl AsRef<[u8]>) -> Vec<u8> {
    key.as_ref().to_vec()
}

impl<K: AsRef<[u8]>> KeyRange for Prefix<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let from = owned(self.0);
        let mut to = from.clone();
        // The least string behind all those with the prefix; behind bytes of 255 there is none.
        while let Some(last) = to.pop() {
            if last < u8::MAX {
                to.push(last + 1);
                return (Bound::Included(from), Bound::Excluded(to));
            }
        }
        (Bound::Included(from), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for Ends<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(owned(self.start)), Bound::Excluded(owned(self.end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (start, end) = self.into_inner();
        (Bound::Included(owned(start)), Bound::Included(owned(end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(owned(self.start)), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Excluded(owned(self.end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Included(owned(self.end)))
    }
}

impl KeyRange for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (self.0.map(owned), self.1.map(owned))
    }
}

/// One shard's page of a range.
#[derive(Debug)]
pub(crate) struct RangePage {
    pub entries: Vec<RangeEntry>,
    pub next: Option<Vec<u8>>,
    pub damaged: Option<Error>,
}

impl RangePage {
    /// The page of an answer of the engine; what a walk does not show is left out. `seen_at`: when a live walk
    /// looks at it; a snapshot knows what has expired.
    ///
    /// # Errors
    /// When the answer ends the walk: no order, dropped, snapshot lost.
    pub fn of(
        mut entries: Vec<RangeEntry>,
        next: Option<Vec<u8>>,
        error: Option<Error>,
        seen_at: Option<Now>,
    ) -> Result<RangePage> {
        match error {
            Some(error) if error.kind() == ErrorKind::Unsupported || is_of_snapshot(&error) => Err(error),
            damaged => {
                entries.retain(|RangeEntry { meta, .. }| match seen_at {
                    Some(now) => is_visible(meta, now),
                    None => is_user_value(meta),
                });
                Ok(RangePage { entries, next, damaged })
            }
        }
    }
}

/// What one shard has given and not yet been taken.
#[derive(Debug, Default)]
struct Source {
    entries: VecDeque<RangeEntry>,
    /// Where its next page begins, if it has one.
    rest: Option<RangeRequest>,
}

/// The walk through a range over all shards.
#[derive(Debug)]
pub(crate) struct Merge {
    sources: Vec<Source>,
    /// Records that could not be read.
    damaged: VecDeque<Error>,
    limit: u32,
    /// Entries that may still be given; `None`: all.
    left: Option<u64>,
    direction: Direction,
}

impl Merge {
    pub fn new(keyspace: KeyspaceId, range: impl KeyRange, shards: u16) -> Merge {
        let (from, to) = range.into_bounds();
        let limit = (ENTRIES_AT_FIRST / u32::from(shards.max(1))).max(4);
        let direction = Direction::Forward;
        let request = RangeRequest { token: 0, keyspace, from, to, limit, direction, snapshot: None };
        let source = |_| Source { entries: VecDeque::new(), rest: Some(request.clone()) };
        Merge {
            sources: (0..shards).map(source).collect(),
            damaged: VecDeque::new(),
            limit,
            left: None,
            direction,
        }
    }

    /// Walks the other way; before the first entry was asked for.
    pub fn turn_back(&mut self) {
        self.direction = Direction::Backward;
        for rest in self.sources.iter_mut().filter_map(|source| source.rest.as_mut()) {
            rest.direction = Direction::Backward;
        }
    }

    /// Gives no more than `count` entries; before the first entry was asked for.
    pub fn stop_after(&mut self, count: u64) {
        self.left = Some(self.left.map_or(count, |left| left.min(count)));
    }

    /// How many entries to ask one shard for: keys lie in shards by chance, so that of those that are left each has
    /// its part, give or take some.
    fn page(&self) -> u32 {
        let Some(left) = self.left else { return self.limit };
        let part = 1.0 / self.sources.len().max(1) as f64;
        let mean = left as f64 * part;
        let asked = (mean + 2.0 * (mean * (1.0 - part)).sqrt()).ceil() as u64;
        asked.min(left).clamp(1, u64::from(ENTRIES_AT_ONCE)) as u32
    }

    /// The pages that must be known before the next entry is: of each such shard its number and what to
    /// ask for.
    pub fn wanted(&mut self) -> Vec<(u16, RangeRequest)> {
        let mut wanted = Vec::new();
        let page = self.page();
        for (source, shard) in self.sources.iter_mut().zip(0..) {
            if source.entries.is_empty()
                && let Some(rest) = &mut source.rest
            {
                rest.limit = page;
                wanted.push((shard, rest.clone()));
            }
        }
        if !wanted.is_empty() {
            self.limit = (2 * self.limit).min(ENTRIES_AT_ONCE);
        }
        wanted
    }

    /// Takes what a shard has given.
    pub fn take(&mut self, shard: u16, page: RangePage) {
        let Some(source) = self.sources.get_mut(usize::from(shard)) else { return };
        source.entries.extend(page.entries);
        self.damaged.extend(page.damaged);
        match (page.next, &mut source.rest) {
            (Some(next), Some(rest)) => rest.go_on(next),
            (_, rest) => *rest = None,
        }
    }

    /// Asks nothing any more.
    pub fn end(&mut self) {
        self.sources.clear();
        self.damaged.clear();
    }

    /// Whether an entry, or the end, is known now.
    pub fn is_known(&self) -> bool {
        self.left == Some(0)
            || self.sources.iter().all(|source| !source.entries.is_empty() || source.rest.is_none())
    }

    /// The next entry, when one [is known](Merge::is_known).
    pub fn next(&mut self) -> Option<Result<Entry>> {
        debug_assert!(self.is_known());
        if self.left == Some(0) {
            return None;
        }
        if let Some(error) = self.damaged.pop_front() {
            return Some(Err(error));
        }
        let mut best: Option<(usize, &[u8])> = None;
        for (place, source) in self.sources.iter().enumerate() {
            let Some(entry) = source.entries.front() else { continue };
            let is_nearer = best.is_none_or(|(_, key)| match self.direction {
                Direction::Forward => entry.key.as_slice() < key,
                Direction::Backward => entry.key.as_slice() > key,
            });
            if is_nearer {
                best = Some((place, &entry.key));
            }
        }
        let place = best?.0;
        let RangeEntry { key, meta, value } = self.sources[place].entries.pop_front()?;
        self.left = self.left.map(|left| left - 1);
        if meta.kind != ValueKind::STRING {
            return Some(Err(unreadable_kind(meta.kind)));
        }
        Some(Ok(Entry::new(key, value, meta.expiry_ms)))
    }
}

/// A walk through a range of a local handle, in the order of the keys: from the least up, or
/// [backward](Range::backward). It shows the keys and values as they are when the first entry is asked for (or
/// were when its snapshot was taken). A record that cannot be read gives an error, and the walk goes on; any
/// other error ends it. See [`Store::range`] and [`Snapshot::range`].
#[derive(Debug)]
#[must_use = "nothing is read before the first entry is asked for"]
pub struct Range<'s> {
    store: &'s mut Store,
    shown: Shown<'s>,
    merge: Merge,
}

impl<'s> Range<'s> {
    pub(crate) fn new(store: &'s mut Store, keyspace: KeyspaceId, range: impl KeyRange) -> Self {
        let merge = Merge::new(keyspace, range, store.shards());
        Range { store, shown: Shown::Own(None), merge }
    }

    /// The same of what `snapshot` shows.
    pub(crate) fn at(mut self, snapshot: &'s Snapshot) -> Self {
        self.shown = Shown::Lent(snapshot);
        self
    }

    /// Ends the walk, and its own snapshot with it.
    fn end(&mut self) {
        self.merge.end();
        self.shown = Shown::Own(None);
    }

    /// The same range from its greatest key down. To be called before the first entry is taken.
    pub fn backward(mut self) -> Self {
        self.merge.turn_back();
        self
    }

    /// The first `count` entries only, as with [`Iterator::take`]; the store reads little more than these then. To be
    /// called before the first entry is taken.
    pub fn limit(mut self, count: u64) -> Self {
        self.merge.stop_after(count);
        self
    }
}

impl Iterator for Range<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        while !self.merge.is_known() {
            let Range { store, shown, merge } = self;
            if let Err(error) = shown.in_store(store).and_then(|at| store.fetch_ranges(at, merge)) {
                self.end();
                return Some(Err(error));
            }
        }
        let next = self.merge.next();
        if next.is_none() {
            self.end();
        }
        next
    }
}

#[cfg(test)]
#[path = "range_test.rs"]
mod range_test;
