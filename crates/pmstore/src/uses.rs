//! Which keys are used, where a policy of eviction asks for it: how often, or how long ago.
//!
//! A use is a lookup that [is one](tierstone_engine::Engine::peek) and finds its key, and a write of the key. How often also counts lookups of
//! keys that are not there: what is asked for and missing will be written soon. Nothing is counted under other policies.
//!
//! Nothing here is durable: after an opening all keys begin alike, and those written longest ago go first.

use crate::graves::grave_of;
use crate::shard::PmShard;
use tierstone_base::{KeyspaceId, Position};
use tierstone_cache::{FrequencySketch, RecencySketch};
use tierstone_engine::Eviction;

/// The counters take at most one part in so many of what indexes may take.
const INDEX_PARTS: u64 = 8;

/// What is counted.
#[derive(Debug, Default)]
pub(crate) enum Uses {
    #[default]
    Off,
    /// How often.
    Often(FrequencySketch),
    /// How long ago.
    Lately(RecencySketch),
}

impl Uses {
    /// Counts what `policy` asks for, in so many bytes at most; what was counted for the one before it stays if it is the same.
    pub fn switch(&mut self, policy: Eviction, bytes_max: u64) {
        *self = match std::mem::take(self) {
            Uses::Often(sketch) if policy.counts_uses() => Uses::Often(sketch),
            Uses::Lately(sketch) if policy.spares_the_asked_for() => Uses::Lately(sketch),
            _ if policy.counts_uses() => Uses::Often(FrequencySketch::new(bytes_max)),
            _ if policy.spares_the_asked_for() => Uses::Lately(RecencySketch::new(bytes_max)),
            _ => Uses::Off,
        };
    }

    /// Bytes of the counters.
    pub fn bytes(&self) -> u64 {
        match self {
            Uses::Off => 0,
            Uses::Often(sketch) => sketch.bytes(),
            Uses::Lately(sketch) => sketch.bytes(),
        }
    }

    /// A key was asked for, and found or not.
    #[inline]
    pub fn asked(&mut self, keyspace: KeyspaceId, position: Position, is_there: bool) {
        match self {
            Uses::Off => {}
            Uses::Often(sketch) => sketch.add(grave_of(keyspace, position)),
            Uses::Lately(sketch) if is_there => sketch.touch(grave_of(keyspace, position)),
            Uses::Lately(_) => {}
        }
    }

    /// A key was written; whether it was there.
    #[inline]
    pub fn written(&mut self, keyspace: KeyspaceId, position: Position, was_there: bool) {
        match self {
            Uses::Off => {}
            Uses::Often(sketch) if was_there => sketch.add(grave_of(keyspace, position)),
            Uses::Often(sketch) => sketch.add_if_new(grave_of(keyspace, position)),
            Uses::Lately(sketch) => sketch.touch(grave_of(keyspace, position)),
        }
    }

    /// About how often a key was asked for lately; `None` while that is not counted.
    pub fn how_often(&self, keyspace: KeyspaceId, position: Position) -> Option<u8> {
        match self {
            Uses::Often(sketch) => Some(sketch.estimate(grave_of(keyspace, position))),
            Uses::Off | Uses::Lately(_) => None,
        }
    }

    /// What of a key's uses makes it stay: the higher, the longer.
    pub fn worth(&self, keyspace: KeyspaceId, position: Position) -> u8 {
        match self {
            Uses::Off => 0,
            Uses::Often(sketch) => sketch.estimate(grave_of(keyspace, position)),
            Uses::Lately(sketch) => RecencySketch::OLDEST - sketch.age(grave_of(keyspace, position)),
        }
    }
}

impl PmShard {
    /// Bytes that counters of uses may take.
    pub(crate) fn uses_bytes_max(&self) -> u64 {
        self.settings.memory_bytes / INDEX_PARTS
    }

    /// The counters keep up with the number of keys.
    pub(crate) fn fit_uses(&mut self) {
        let keys = self.keyspaces.values().map(crate::keys::Keys::len).sum();
        match &mut self.evictor.uses {
            Uses::Off => {}
            Uses::Often(sketch) => sketch.fit(keys),
            Uses::Lately(sketch) => sketch.fit(keys),
        }
    }
}
