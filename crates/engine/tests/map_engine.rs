//! The oracle itself passes the conformance suite.

use tierstone_base::{KeyHasher, KeyspaceId, SeededRandom};
use tierstone_engine::conformance::{self, ModelSettings};
use tierstone_engine::harness::Harness;
use tierstone_engine::map_engine::MapEngine;
use tierstone_engine::{Engine, IndexKind};
use tierstone_media::{BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, Wait};

/// A device that nothing is ever asked of.
struct NoDevice;

impl BlockDevice for NoDevice {
    fn geometry(&self) -> Geometry {
        Geometry { meta_bytes: 0, segment_bytes: 0, segment_limit: 0 }
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Emulated
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        DurableWriteScope::WholeDevice
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        assert!(requests.is_empty());
    }

    fn complete(&mut self, _wait: Wait, _completions: &mut Vec<IoCompletion>) -> usize {
        0
    }

    fn in_flight(&self) -> usize {
        0
    }
}

fn harness() -> Harness<MapEngine, NoDevice> {
    let mut engine = MapEngine::new(0);
    engine.create_keyspace(KeyspaceId(1), IndexKind::Ordered);
    Harness::new(engine, NoDevice, KeyHasher::new([1, 2]))
}

#[test]
fn the_map_engine_passes_the_model() {
    let mut seeds = SeededRandom::new(1);
    for _ in 0..5 {
        conformance::model(seeds.next_u64(), ModelSettings::default(), harness(), |harness| harness);
    }
}

#[test]
fn the_map_engine_drops_keyspaces() {
    conformance::dropping_a_keyspace_empties_only_it(harness());
}

#[test]
fn the_map_engine_shows_dropped_keyspaces_in_snapshots() {
    conformance::a_snapshot_outlives_the_drop_of_its_keyspaces(harness());
}

#[test]
fn the_map_engine_gates() {
    conformance::writes_are_visible_before_they_are_durable(harness());
}

#[test]
fn the_map_engine_keeps_its_promises_over_switches_of_modes() {
    conformance::a_switch_of_modes_keeps_what_was_promised(harness());
    conformance::a_relaxed_write_is_durable_within_its_bound(harness());
    conformance::a_relaxed_write_waits_for_a_device_that_is_behind(harness());
}

#[test]
fn pages_of_a_range_of_the_map_engine_join() {
    conformance::pages_of_a_range_join(harness());
}

#[test]
fn a_range_of_a_snapshot_of_the_map_engine_shows_the_keys_of_the_cut() {
    conformance::a_range_of_a_snapshot_shows_the_keys_of_the_cut(harness());
}

#[test]
fn the_map_engine_decides_batches_over_several() {
    conformance::a_batch_over_two_engines_is_decided_when_both_parts_are_durable(harness(), harness());
    conformance::a_part_of_a_refused_batch_is_taken_back(harness());
}

#[test]
fn the_map_engine_tells_what_it_costs() {
    conformance::completions_tell_their_cost(harness(), true);
}
