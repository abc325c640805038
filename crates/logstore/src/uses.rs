//! How often keys are asked for, where those that are asked for least are evicted first.
//!
//! Counted is each lookup that found its answer and [is a use](tierstone_engine::Engine::peek), absent keys too (what is
//! asked for and not there will be written soon), and each write of a key that is there; a write of a new key counts if nobody asked for it before. What is
//! counted and when it fades says [`FrequencySketch`]; nothing is counted while another policy is chosen.
//!
//! Nothing here is durable: after an opening all keys begin alike.

use crate::shard::LogShard;
use tierstone_base::{KeyspaceId, Position};
use tierstone_cache::{FrequencySketch, LeastUsed};

/// The counters take at most one part in so many of what the index may take.
const INDEX_PARTS: u64 = 8;
/// So many segments are looked at before the first key goes: what the hand comes to first may be what is asked for most.
const SAMPLES: u32 = 16;
/// Shard steps from one look at the number of keys to the next.
const FIT_EVERY: u64 = 64;

/// Counts uses while it is on.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    sketch: FrequencySketch,
    least: LeastUsed,
    /// Segments that were looked at before anything was evicted.
    samples: u32,
}

fn name_of(keyspace: KeyspaceId, position: Position) -> u64 {
    position.0 ^ u64::from(keyspace.0).rotate_left(48)
}

impl Uses {
    /// Begins or ends counting; the counters may take so many bytes.
    pub fn switch(&mut self, on: bool, bytes_max: u64) {
        if on != self.counted.is_some() {
            let begin = || Counted {
                sketch: FrequencySketch::new(bytes_max),
                least: LeastUsed::default(),
                samples: 0,
            };
            self.counted = on.then(begin);
        }
    }

    /// Bytes of the counters.
    pub fn bytes(&self) -> u64 {
        self.counted.as_ref().map_or(0, |counted| counted.sketch.bytes())
    }

    /// A key was asked for.
    #[inline]
    pub fn asked(&mut self, keyspace: KeyspaceId, position: Position) {
        if let Some(counted) = &mut self.counted
            && keyspace.is_user()
        {
            counted.sketch.add(name_of(keyspace, position));
        }
    }

    /// A key was written; whether it was there.
    #[inline]
    pub fn written(&mut self, keyspace: KeyspaceId, position: Position, was_there: bool) {
        if let Some(counted) = &mut self.counted
            && keyspace.is_user()
        {
            let name = name_of(keyspace, position);
            if was_there { counted.sketch.add(name) } else { counted.sketch.add_if_new(name) }
        }
    }

    /// About how often a key was asked for lately; `None` while nothing is counted.
    pub fn of(&self, keyspace: KeyspaceId, position: Position) -> Option<u8> {
        let counted = self.counted.as_ref()?;
        Some(counted.sketch.estimate(name_of(keyspace, position)))
    }

    /// Whether it must be learnt first how often keys are asked for.
    pub fn wants_samples(&self) -> bool {
        self.counted.as_ref().is_some_and(|counted| counted.samples < SAMPLES)
    }

    /// A segment was looked at.
    pub fn note_sampled(&mut self) {
        if let Some(counted) = &mut self.counted {
            counted.samples += 1;
        }
    }

    /// Whether a key that the hand has come to is asked for more than the third that is asked for least; always
    /// false while nothing is counted.
    pub fn spares_at_hand(&mut self, keyspace: KeyspaceId, position: Position) -> bool {
        let Some(counted) = &mut self.counted else { return false };
        !counted.least.look(counted.sketch.estimate(name_of(keyspace, position)))
    }

    /// The same of one that was come to before.
    pub fn spares(&self, keyspace: KeyspaceId, position: Position) -> bool {
        self.counted.as_ref().is_some_and(|counted| {
            !counted.least.is_among(counted.sketch.estimate(name_of(keyspace, position)))
        })
    }
}

impl LogShard {
    /// Bytes that counters of uses may take.
    pub(crate) fn uses_bytes_max(&self) -> u64 {
        self.index_limit() / INDEX_PARTS
    }

    /// The counters keep up with the number of keys.
    pub(crate) fn fit_uses(&mut self) {
        if let Some(counted) = &mut self.evictor.uses.counted
            && self.reads.steps.is_multiple_of(FIT_EVERY)
        {
            let keys = self.keyspaces.iter().map(|keyspace| keyspace.index.len()).sum();
            counted.sketch.fit(keys);
            counted.least.fit(keys);
        }
    }
}
