//! The offline optimum: what a cache could do that knew the future.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer" (1966), with the
//! freedom not to admit: of all entries and the new one, what is used again last goes first.
//!
//! For entries of one size this is the most hits that any policy can have. For entries of varied
//! sizes the optimum is NP-hard; the number is then a heuristic, which a policy that prefers small
//! entries can exceed.

use super::HitCount;
use crate::trace::Request;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::collections::Map;

/// A request that is not followed by another for its key.
const NEVER: u64 = u64::MAX;

/// The hits of the optimum on `trace` with `capacity_bytes` bytes. Cost: O(n log n), and memory for
/// the whole trace.
pub fn optimal_hits(trace: &[Request], capacity_bytes: u64) -> HitCount {
    let next_uses = next_uses(trace);
    let mut count = HitCount::default();
    // What is in the cache, by key, and ordered by next use.
    let mut entries: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut order: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut used_bytes = 0;
    for (request, &next_use) in trace.iter().zip(&next_uses) {
        let found = entries.remove(&request.key);
        count.count(*request, found.is_some());
        if let Some((this_use, bytes)) = found {
            order.remove(&(this_use, request.key));
            used_bytes -= bytes;
        }
        // An entry without a next use is worth nothing.
        if next_use == NEVER {
            continue;
        }
        let bytes = u64::from(request.bytes);
        entries.insert(request.key, (next_use, bytes));
        order.insert((next_use, request.key));
        used_bytes += bytes;
        while used_bytes > capacity_bytes
            && let Some((_, last)) = order.pop_last()
        {
            used_bytes -= entries.remove(&last).map_or(0, |(_, bytes)| bytes);
        }
    }
    count
}

/// For each request, the index of the next one for its key.
fn next_uses(trace: &[Request]) -> Vec<u64> {
    let mut later: Map<u64, u64> = Map::default();
    let mut next_uses = vec![NEVER; trace.len()];
    for (index, request) in trace.iter().enumerate().rev() {
        if let Some(next) = later.insert(request.key, index as u64) {
            next_uses[index] = next;
        }
    }
    next_uses
}
