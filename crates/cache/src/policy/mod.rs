//! Replacement policies counted in bytes, without the data: who stays and who goes.
//!
//! Invariants:
//! 1. A policy is a pure function of the calls it got: no clock, no randomness.
//! 2. `used_bytes() <= capacity_bytes()` after every call.
//! 3. A key is in the cache from the miss that admitted it until it is named as evicted or removed.
//!
//! A policy owns keys and sizes only; whoever uses it owns the data.

mod belady;
mod lru;
mod queue;
mod record_cache;
mod s3_fifo;

pub use belady::optimal_hits;
pub use lru::Lru;
pub use record_cache::RecordCachePolicy;
pub use s3_fifo::{S3Fifo, S3FifoSettings};

use crate::trace::Request;

/// Decides what a cache of a fixed number of bytes keeps.
pub trait Policy {
    /// Uses `key`, whose entry has `bytes` bytes; says whether it was there. A missing key is
    /// admitted, unless it is larger than the policy allows. The keys that went for it are pushed
    /// onto `evicted`; an entry that has outgrown the cache may be among them itself.
    ///
    /// Cost: constant, amortised over evictions.
    fn access(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) -> bool;

    /// Takes `key` out; says whether it was there.
    fn remove(&mut self, key: u64) -> bool;

    /// Whether `key` is there; not a use of it.
    fn contains(&self, key: u64) -> bool;

    /// Bytes of all entries.
    fn used_bytes(&self) -> u64;

    /// The most that `used_bytes` can be.
    fn capacity_bytes(&self) -> u64;
}

/// How often a trace found what it asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCount {
    /// Requests of the trace.
    pub requests: u64,
    /// Requests that were hits.
    pub hits: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes of hits.
    pub hit_bytes: u64,
}

impl HitCount {
    /// Hits a request, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }

    /// Bytes of hits a byte asked for, 0 to 1.
    pub fn byte_hit_rate(&self) -> f64 {
        self.hit_bytes as f64 / self.bytes.max(1) as f64
    }

    fn count(&mut self, request: Request, is_hit: bool) {
        self.requests += 1;
        self.bytes += u64::from(request.bytes);
        if is_hit {
            self.hits += 1;
            self.hit_bytes += u64::from(request.bytes);
        }
    }
}

/// Runs `trace` through `policy`.
pub fn replay(policy: &mut impl Policy, trace: &[Request]) -> HitCount {
    let mut count = HitCount::default();
    let mut evicted = Vec::new();
    for &request in trace {
        evicted.clear();
        count.count(request, policy.access(request.key, u64::from(request.bytes), &mut evicted));
    }
    count
}

#[cfg(test)]
#[path = "policy_test.rs"]
mod policy_test;
