//! Whether the segments' accounts have all that the index points to: what a segment that nothing lives in is freed by.

use crate::index::ScanProgress;
use crate::location::{Location, Target};
use crate::shard::LogShard;
use std::collections::BTreeMap;
use tierstone_base::Position;
use tierstone_cache::FrameId;

/// Entries that are looked at at a time.
const ENTRIES_A_PAGE: usize = 1_024;

impl LogShard {
    /// Segments that have fewer live records by their accounts than the keyspaces in use point to: none. For tests. Cost: a look at
    /// every entry of the index.
    pub fn undercounted_segments(&self) -> Vec<u32> {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for keyspace in self.keyspaces.iter() {
            let (mut next, mut values) = (Some(Position(0)), Vec::new());
            while let Some(position) = next {
                next = match keyspace.index.scan(position, ENTRIES_A_PAGE, &mut values) {
                    ScanProgress::Next(position) => Some(position),
                    ScanProgress::End => None,
                };
                for value in values.drain(..) {
                    let location = match Target::unpack(value) {
                        Target::Frame(bits) => {
                            Location::from_raw(self.cache.peek(FrameId::from_bits(bits)).location)
                        }
                        Target::Device(location) => location,
                    };
                    *counts.entry(location.segment()).or_default() += 1;
                }
            }
        }
        let is_under = |(segment, count): &(u32, u32)| self.segments.get(*segment).live_records < *count;
        counts.into_iter().filter(is_under).map(|(segment, _)| segment).collect()
    }
}
