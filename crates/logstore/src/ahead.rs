//! Fetching ahead what searches for many keys will touch: each would wait for two lines of the index, which is larger than the
//! processor's caches, and for those of a frame, one after the other. A look ahead asks for them while earlier keys are worked
//! on, each level some keys before the next.

use crate::format::summary::SummaryEntry;
use crate::location::Target;
use crate::read_path::PREFETCHED_LINES;
use crate::shard::LogShard;
use std::collections::VecDeque;
use tierstone_base::{KeyspaceId, Position};
use tierstone_cache::FrameId;

/// So many keys ahead the region of a key is asked for,
const REGION_AHEAD: usize = 18;
/// ... its bucket,
const BUCKET_AHEAD: usize = 12;
/// ... and its frame in the cache.
const FRAME_AHEAD: usize = 6;

/// Keys that are not searched for, of those that one call looks at.
const PASSED_AT_ONCE: usize = 64;

/// A key that comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming {
    keyspace: KeyspaceId,
    position: Position,
    /// The segment that lists a record of it, the entry, and whether marks are trusted that say that it lives.
    listed: Option<(u32, SummaryEntry, bool)>,
}

impl Coming {
    /// A key that is searched for whatever becomes of it.
    pub fn new(keyspace: KeyspaceId, position: Position) -> Coming {
        Coming { keyspace, position, listed: None }
    }

    /// The key of a record of a segment that lists it in its summary: not searched for where marks of dead records
    /// [tell](LogShard::told_by_marks) of it. `trusts_all`: as there.
    pub fn listed(segment: u32, entry: &SummaryEntry, trusts_all: bool) -> Coming {
        let listed = Some((segment, *entry, trusts_all));
        Coming { keyspace: entry.keyspace, position: entry.position, listed }
    }

    fn is_searched_for(&self, shard: &LogShard) -> bool {
        let told =
            |(segment, entry, trusts_all): &(_, _, _)| shard.told_by_marks(*segment, entry, *trusts_all);
        self.listed.as_ref().and_then(told).is_none()
    }
}

/// Keys that come next.
#[derive(Debug)]
pub(crate) struct Ahead<I> {
    keys: I,
    /// Those that are searched for, the one that it is the turn of first.
    coming: VecDeque<(KeyspaceId, Position)>,
    /// How many keys were taken, and how many had their turn.
    taken: usize,
    done: usize,
    /// Lines of a frame that will be looked at.
    lines: usize,
}

impl<I: Iterator<Item = Coming>> Ahead<I> {
    /// Of keys whose records are read or written.
    pub fn of_records(keys: I) -> Ahead<I> {
        let coming = VecDeque::with_capacity(REGION_AHEAD);
        Ahead { keys, coming, taken: 0, done: 0, lines: PREFETCHED_LINES }
    }

    /// Of keys of which it is looked where their records lie.
    pub fn of_places(keys: I) -> Ahead<I> {
        Ahead { lines: 1, ..Ahead::of_records(keys) }
    }

    /// One key further: called before each that is searched for, in order. The first call asks for all levels of the first keys:
    /// a batch may have no more.
    pub fn advance(&mut self, shard: &LogShard) {
        self.coming.pop_front();
        self.done += 1;
        let is_first = self.coming.is_empty();
        let mut passed = 0;
        while self.coming.len() < REGION_AHEAD && passed < PASSED_AT_ONCE {
            let Some(next) = self.keys.next() else { break };
            self.taken += 1;
            if !next.is_searched_for(shard) {
                passed += 1;
                continue;
            }
            let Coming { keyspace, position, .. } = next;
            shard.index_reachable(keyspace).inspect(|index| index.prefetch_region(position));
            self.coming.push_back((keyspace, position));
        }
        for &(keyspace, position) in self.at(is_first, BUCKET_AHEAD) {
            shard.index_reachable(keyspace).inspect(|index| index.prefetch(position));
        }
        for &(keyspace, position) in self.at(is_first, FRAME_AHEAD) {
            let first = shard.index_reachable(keyspace).and_then(|index| index.first_candidate(position));
            if let Some(Target::Frame(bits)) = first.map(Target::unpack) {
                shard.cache.prefetch(FrameId::from_bits(bits), self.lines);
            }
        }
    }

    /// One key further, which is not searched for.
    pub fn pass(&mut self) {
        self.done += 1;
        if self.taken < self.done {
            self.keys.next();
            self.taken += 1;
        }
    }

    /// The key so far ahead, if there is one; at first all up to it.
    fn at(&self, is_first: bool, ahead: usize) -> impl Iterator<Item = &(KeyspaceId, Position)> {
        let end = self.coming.len().min(ahead + 1);
        let begin = if is_first { 0 } else { end.min(ahead) };
        self.coming.range(begin..end)
    }
}
