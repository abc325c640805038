//! What is left of an eviction that found no room.

#![expect(clippy::panic, reason = "test code")]

use super::*;
use crate::settings::Geometry;
use crate::{Keyspace, OpenSettings};
use std::sync::Arc;
use tierstone_engine::Engine;
use tierstone_media::region::{MappedRegion, Region, RegionSettings};

const KEYSPACE: KeyspaceId = KeyspaceId(2);

/// A shard that evicts, more than nine tenths full.
fn full() -> PmShard {
    let region = Arc::new(MappedRegion::anonymous(1 << 20, &RegionSettings::default()).unwrap());
    let settings = OpenSettings {
        geometry: Geometry { segment_bytes: 16 << 10, block_bytes: 4 << 10, log_segments: 4 },
        keyspaces: vec![Keyspace { id: KEYSPACE, index: Default::default() }],
        seed: 7,
        ..OpenSettings::default()
    };
    let mut opened = crate::open(region as Arc<dyn Region + Send + Sync>, &settings).unwrap();
    let (mut shard, _) = opened.plans.pop().unwrap().build().unwrap();
    shard.set_eviction(Eviction::OldestFirst);
    let mut now = Now { monotonic_us: 1_000, wall_ms: 1_700_000_000_000 };
    for number in 0_u64..10_000 {
        let bytes = number.to_le_bytes();
        let key = Key { keyspace: KEYSPACE, position: opened.hasher.position(&bytes), bytes: &bytes };
        let kind = WriteKind::Put { value: &[7; 200], expiry_ms: 0, kind: Default::default() };
        if let Err(error) = shard.write(now, &[Write { key, kind }]) {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        }
        now.monotonic_us += 50;
        shard.step(now, &mut Vec::new(), &mut Vec::new());
        if shard.evictable().is_some() {
            return shard;
        }
    }
    panic!("nothing is to be evicted")
}

#[test]
fn a_deletion_that_found_no_room_is_tried_again_however_long_ago_that_was() {
    let mut shard = full();
    shard.evictor.held_since_us = Some(0);
    shard.evictor.retry_us = 0;
    shard.now.monotonic_us = 10 * STUCK_US;
    let now = shard.now;
    assert!(shard.evictor.is_stuck(now.monotonic_us) && !shard.can_evict_for_space(), "nobody waits for it");
    assert!(shard.eviction_due_at_us().is_some_and(|due| due <= now.monotonic_us), "a step is wanted");
    assert!(shard.evictable().is_some());
    assert!(shard.evict(now).unwrap());
    assert!(shard.can_evict_for_space(), "who finds no room waits again");
}

#[test]
fn nothing_is_held_up_when_nothing_is_wanted() {
    let mut shard = full();
    for _ in 0..1_000 {
        if shard.evictable().is_none() {
            break;
        }
        shard.evict(shard.now).unwrap();
        let now = Now { monotonic_us: shard.now.monotonic_us + 50, ..shard.now };
        shard.step(now, &mut Vec::new(), &mut Vec::new());
    }
    shard.evictor.held_since_us = Some(0);
    shard.now.monotonic_us = 10 * STUCK_US;
    assert!(shard.evictable().is_none());
    assert!(shard.can_evict_for_space(), "who finds no room later waits");
    assert!(shard.evictable().is_some());
}
