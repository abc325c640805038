//! Nodes with persistent memory, seed by seed: a redo log in it, or the whole store. Words of the memory and sectors of
//! the device lose power together, in the middle of a turn too. `TIERSTONE_SIM_SEEDS=N` runs N seeds instead of a few;
//! `SEED=…` repeats one and prints what its clients saw.

use crate::common::{Sums, noticed_in, number, run, run_all, seeds};
use tierstone_crash::Mutations;
use tierstone_sim::{End, Ground, Simulation, SimulationSettings};

/// A device and a redo log.
fn with_redo(seed: u64) -> SimulationSettings {
    SimulationSettings {
        ground: Ground::DeviceWithRedo,
        lives: 4,
        has_flushes: seed % 4 == 1,
        has_touches: seed % 4 == 2,
        has_swaps: seed % 8 == 3,
        has_device_errors: seed.is_multiple_of(4),
        ..SimulationSettings::new(seed)
    }
}

/// A store that lies wholly in memory.
fn in_memory(seed: u64) -> SimulationSettings {
    SimulationSettings {
        ground: Ground::Memory,
        has_device_errors: false,
        has_clock_jumps: seed.is_multiple_of(3),
        ..with_redo(seed)
    }
}

/// A redo log whose memory is lost at half of the ends.
fn losing(seed: u64) -> SimulationSettings {
    SimulationSettings {
        loses_region: true,
        lives: 5,
        has_device_errors: false,
        has_swaps: false,
        has_flushes: false,
        ..with_redo(seed)
    }
}

/// Power was lost where a turn had begun to persist something.
fn assert_cut_in_turns(sums: &Sums, least: u32) {
    assert!(sums.losses_in_turns >= least || number("SEED").is_some(), "few losses in turns: {sums:?}");
}

#[test]
fn what_a_redo_log_has_outlives_every_end_of_a_node() {
    let sums = run_all("what_a_redo_log_has", (20_000, 60), with_redo);
    assert_cut_in_turns(&sums, 20);
    assert!(sums.groups_replayed > 100 || number("SEED").is_some(), "few groups are replayed: {sums:?}");
}

#[test]
fn batches_over_shards_are_whole_after_losses_of_power_with_a_redo_log() {
    let sums = run_all("batches_over_shards", (21_000, 40), |seed| SimulationSettings {
        ends: vec![End::PowerLoss],
        shard_counts: vec![2, 3, 4],
        ..with_redo(seed)
    });
    assert_cut_in_turns(&sums, 20);
}

#[test]
fn without_the_memory_of_its_redo_log_a_node_is_what_the_device_has() {
    let sums = run_all("without_the_memory", (22_000, 40), losing);
    let (lost, refused) = sums.regions_lost;
    assert!(lost > 40 && refused * 3 > lost || number("SEED").is_some(), "{sums:?}");
    assert!(sums.taken.0 > 50 && sums.taken.1 > 10 || number("SEED").is_some(), "{sums:?}");
}

#[test]
fn what_lies_wholly_in_memory_outlives_every_end_of_a_node() {
    let sums = run_all("what_lies_wholly_in_memory", (23_000, 60), in_memory);
    assert_cut_in_turns(&sums, 20);
}

#[test]
fn batches_over_shards_in_memory_are_whole_after_losses_of_power() {
    let sums = run_all("batches_over_shards_in_memory", (24_000, 40), |seed| SimulationSettings {
        ends: vec![End::PowerLoss],
        shard_counts: vec![2, 3, 4],
        ..in_memory(seed)
    });
    assert_cut_in_turns(&sums, 20);
}

/// A store that lies wholly in memory and evicts keys.
fn evicting(seed: u64) -> SimulationSettings {
    SimulationSettings { has_eviction: true, lives: 2, shard_counts: vec![1, 2, 3], ..in_memory(seed) }
}

#[test]
fn keys_that_are_evicted_from_memory_do_not_come_back() {
    let sums = run_all("keys_that_are_evicted_from_memory", (25_000, 60), evicting);
    assert!(sums.evicted_keys > 500 || number("SEED").is_some(), "{sums:?}");
}

#[test]
fn keys_that_are_evicted_from_memory_without_a_tombstone_are_noticed() {
    let caught = (25_000..25_200).find_map(|seed| {
        // What comes back is told from what has taken the place of its long value since, and buried: not here.
        let mutations = Mutations::one("evicted_without_tombstone").and("shared_units_count");
        Simulation::run(SimulationSettings { mutations, ..evicting(seed) }).violation
    });
    // A key that is there again, or one whose long value others have written over.
    let signs = ["no history", "is damaged"];
    let is_seen = caught.as_ref().is_some_and(|violation| signs.iter().any(|sign| violation.contains(sign)));
    assert!(is_seen, "{caught:?}");
}

#[test]
fn one_seed_gives_one_run_with_memory_too() {
    for seed in seeds(0, 6) {
        for make in [with_redo, in_memory, losing, evicting] {
            let first = run(make(seed), "one_seed_gives_one_run_with_memory");
            let second = run(make(seed), "one_seed_gives_one_run_with_memory");
            assert!(first.transcript == second.transcript, "seed {seed}: transcripts differ");
            assert_eq!(first.device_digest, second.device_digest, "seed {seed}: steps of the machine differ");
        }
    }
}

#[test]
fn answers_that_do_not_wait_for_the_fence_of_a_redo_log_are_noticed() {
    noticed_in("redo_answered_before_fence", 100, with_redo);
}

#[test]
fn a_redo_log_that_is_truncated_before_the_device_has_it_is_noticed() {
    noticed_in("redo_truncated_early", 200, with_redo);
}

#[test]
fn answers_that_do_not_wait_for_a_fence_in_memory_are_noticed() {
    noticed_in("answered_before_fence", 100, in_memory);
}

#[test]
fn a_log_in_memory_that_is_truncated_before_its_records_are_durable_is_noticed() {
    noticed_in("truncated_before_write_back", 200, in_memory);
}

#[test]
fn blocks_in_memory_that_are_freed_before_their_copies_are_durable_are_noticed() {
    noticed_in("victim_before_copies", 300, in_memory);
}

#[test]
fn batches_over_shards_in_memory_whose_parts_are_not_counted_are_noticed() {
    noticed_in("parts_not_counted", 200, in_memory);
}

/// Databases that change places while the clock is set back: with this seed a key that nobody had seen expired was there again.
#[test]
fn a_key_that_expired_unseen_may_be_there_again_when_the_clock_is_set_back() {
    let report = Simulation::run(SimulationSettings {
        ends: vec![End::PowerLoss],
        has_device_errors: false,
        ..in_memory(843)
    });
    assert_eq!(report.violation, None);
}

/// One of some 550 seeds loses power while the first superblock is written, in the middle of its words.
#[test]
fn a_store_in_memory_whose_making_was_torn_is_made_anew() {
    let one_life = |seed, mutations| SimulationSettings {
        ends: vec![End::PowerLoss],
        has_device_errors: false,
        lives: 1,
        mutations,
        ..in_memory(seed)
    };
    let refused = (0..5_000).find_map(|seed| {
        let report = Simulation::run(one_life(seed, Mutations::one("torn_making_kept")));
        report.violation.map(|violation| (seed, violation))
    });
    let (seed, violation) = refused.expect("the making of a store is torn with no seed");
    assert!(violation.contains("neither superblock"), "seed {seed}: {violation}");
    assert_eq!(Simulation::run(one_life(seed, Mutations::default())).violation, None, "seed {seed}");
}
