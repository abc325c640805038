//! Fetching ahead what searches for many keys will touch: each would wait for two lines of the index, which is larger than the
//! processor's caches, and for those of a frame, one after the other. A look ahead asks for them while earlier keys are worked
//! on, each level some keys before the next.

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

/// Keys that come next.
#[derive(Debug)]
pub(crate) struct Ahead<I> {
    keys: I,
    coming: VecDeque<(KeyspaceId, Position)>,
    /// Lines of a frame that will be looked at.
    lines: usize,
}

impl<I: Iterator<Item = (KeyspaceId, Position)>> Ahead<I> {
    /// Of keys whose records are read or written.
    pub fn of_records(keys: I) -> Ahead<I> {
        Ahead { keys, coming: VecDeque::with_capacity(REGION_AHEAD), lines: PREFETCHED_LINES }
    }

    /// Of keys of which it is looked where their records lie.
    pub fn of_places(keys: I) -> Ahead<I> {
        Ahead { lines: 1, ..Ahead::of_records(keys) }
    }

    /// One key further: called before each, in order. The first call asks for all levels of the first keys: a batch may have no
    /// more.
    pub fn advance(&mut self, shard: &LogShard) {
        let is_first = self.coming.pop_front().is_none();
        while self.coming.len() < REGION_AHEAD {
            let Some((keyspace, position)) = self.keys.next() else { break };
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

    /// The key so far ahead, if there is one; at first all up to it.
    fn at(&self, is_first: bool, ahead: usize) -> impl Iterator<Item = &(KeyspaceId, Position)> {
        let end = self.coming.len().min(ahead + 1);
        let begin = if is_first { 0 } else { end.min(ahead) };
        self.coming.range(begin..end)
    }
}
