//! Whole nodes, seed by seed. `TIERSTONE_SIM_SEEDS=N` runs N seeds instead of a few; `SEED=…` repeats one
//! and prints what its clients saw.

use crate::common::{noticed, noticed_in, number, run, run_all, seeds};
use tierstone_crash::Mutations;
use tierstone_sim::{End, Ground, Simulation, SimulationSettings};

#[test]
fn acknowledged_writes_outlive_every_end_of_a_node() {
    run_all("acknowledged_writes", (0, 160), SimulationSettings::new);
}

#[test]
fn batches_over_shards_are_whole_after_every_loss_of_power() {
    run_all("batches_over_shards", (1_000, 60), |seed| SimulationSettings {
        ends: vec![End::PowerLoss],
        shard_counts: vec![2, 3, 4],
        ..SimulationSettings::new(seed)
    });
}

#[test]
fn databases_are_emptied_as_one_and_scans_give_what_was_written_since() {
    run_all("databases_are_emptied", (2_000, 60), |seed| SimulationSettings {
        has_flushes: true,
        ..SimulationSettings::new(seed)
    });
}

#[test]
fn a_clock_that_is_set_back_and_forth_brings_nothing_back() {
    run_all("a_clock_that_is_set", (3_000, 60), with_clock_jumps);
}

fn with_clock_jumps(seed: u64) -> SimulationSettings {
    SimulationSettings { has_clock_jumps: true, ..SimulationSettings::new(seed) }
}

#[test]
fn seeds_that_have_brought_something_back_are_clean() {
    for seed in [3_147, 3_762] {
        run(with_clock_jumps(seed), "seeds_that_have_brought");
    }
}

fn with_touches(seed: u64) -> SimulationSettings {
    SimulationSettings { has_touches: true, ..SimulationSettings::new(seed) }
}

#[test]
fn changes_of_expiry_are_explained_whatever_happens() {
    run_all("changes_of_expiry", (10_000, 60), |seed| SimulationSettings {
        has_clock_jumps: seed % 2 == 0,
        has_full_device: seed % 3 == 0,
        ..with_touches(seed)
    });
}

#[test]
fn a_segment_that_is_left_while_its_summary_is_walked_keeps_its_records() {
    run(relaxed(9_006), "a_segment_that_is_left");
}

#[test]
fn a_device_without_space_at_times_refuses_and_loses_nothing() {
    run_all("a_device_without_space", (4_000, 60), |seed| SimulationSettings {
        has_full_device: true,
        ..SimulationSettings::new(seed)
    });
}

#[test]
fn databases_change_places_as_one_and_trip_who_watches_them() {
    run_all("databases_change_places", (5_000, 40), |seed| SimulationSettings {
        has_swaps: true,
        has_flushes: seed % 2 == 1,
        clients: 3,
        ticks: 150,
        ..SimulationSettings::new(seed)
    });
}

#[test]
fn listeners_hear_what_is_published_in_order_and_nothing_else() {
    let sums = run_all("listeners_hear", (6_000, 40), |seed| SimulationSettings {
        has_channels: true,
        clients: 7,
        ..SimulationSettings::new(seed)
    });
    assert!(sums.messages > 500 || number("SEED").is_some(), "few messages: {sums:?}");
}

#[test]
fn large_values_are_whole_at_every_time() {
    run_all("large_values_are_whole", (7_000, 40), with_large_values);
}

fn with_large_values(seed: u64) -> SimulationSettings {
    SimulationSettings {
        has_large_values: true,
        has_device_errors: false,
        ticks: 120,
        clients: 3,
        ..SimulationSettings::new(seed)
    }
}

#[test]
fn scans_give_every_key_that_stayed_while_others_come_and_nodes_go() {
    let sums = run_all("scans_give_every_key", (8_000, 25), with_growth);
    assert!(sums.scans.1 >= 10 || number("SEED").is_some(), "few scans outlive their process: {sums:?}");
}

fn with_growth(seed: u64) -> SimulationSettings {
    SimulationSettings { has_growth: true, lives: 5, ..SimulationSettings::new(seed) }
}

#[test]
fn relaxed_nodes_lose_the_end_of_a_log_and_no_more_than_the_bound_says() {
    let sums = run_all("relaxed_nodes_lose", (9_400, 40), relaxed);
    assert!(sums.taken.0 > 100 && sums.taken.1 > 100 || number("SEED").is_some(), "{sums:?}");
}

fn relaxed(seed: u64) -> SimulationSettings {
    SimulationSettings {
        is_relaxed: true,
        has_device_errors: false,
        lives: 4,
        ..SimulationSettings::new(seed)
    }
}

#[test]
fn without_crashes_everything_is_explained() {
    run_all("without_crashes", (0, 50), |seed| SimulationSettings {
        ends: vec![End::Stop],
        has_device_errors: false,
        ..SimulationSettings::new(seed)
    });
}

/// Settings with everything that a node can do in one run. Of a relaxed one a crash takes the end of each shard's log by
/// itself: keys of two shards that are copied to each other, or databases that have changed places, are then as no history explains.
fn with_everything(seed: u64) -> SimulationSettings {
    let is_relaxed = seed % 6 == 3;
    SimulationSettings {
        has_swaps: !is_relaxed,
        has_flushes: !is_relaxed,
        has_channels: true,
        has_large_values: seed.is_multiple_of(2),
        has_device_errors: false,
        is_relaxed,
        ..SimulationSettings::new(seed)
    }
}

#[test]
fn everything_in_one_run_is_explained() {
    // The first two: an upload, and a reply of several pieces, whose databases were emptied meanwhile. Where so much is
    // under way some histories are too tangled to be judged, so these are seen for what is told and for crashes.
    let pinned = [204, 258].into_iter().filter(|_| number("SEED").is_none());
    for seed in pinned.chain(seeds(14_000, 40)) {
        run(with_everything(seed), "everything_in_one_run");
    }
}

#[test]
fn one_seed_gives_one_run() {
    for seed in seeds(0, 12) {
        let settings = || match seed {
            0..6 => SimulationSettings::new(seed),
            6..9 => with_growth(seed),
            _ => with_everything(seed),
        };
        let first = run(settings(), "one_seed");
        let second = run(settings(), "one_seed");
        assert!(first.transcript == second.transcript, "seed {seed}: transcripts differ");
        assert_eq!(first.device_digest, second.device_digest, "seed {seed}: requests to the device differ");
        assert!(first.events.1 > 10, "seed {seed}: too little happens: {:?}", first.events);
    }
}

#[test]
fn replies_that_do_not_wait_for_the_device_are_noticed() {
    noticed("ungated_replies", 40);
}

#[test]
fn a_relaxed_node_without_its_bound_is_noticed() {
    noticed_in("relaxed_unbounded", 200, relaxed);
}

#[test]
fn expiry_that_is_told_before_it_is_durable_is_noticed() {
    noticed_in("past_not_gated", 1_000, with_clock_jumps);
}

#[test]
fn changes_of_expiry_that_get_lost_are_noticed() {
    noticed_in("touch_dropped_by_recovery", 200, with_touches);
}

#[test]
fn batches_of_which_a_part_was_lost_are_noticed() {
    noticed("keep_undecided_batches", 200);
}

fn with_eviction(seed: u64) -> SimulationSettings {
    SimulationSettings { has_eviction: true, shard_counts: vec![1, 2, 3], ..SimulationSettings::new(seed) }
}

#[test]
fn shards_that_run_ahead_of_others_in_what_all_have_to_leave_are_noticed() {
    let caught = (11_030..11_100).find_map(|seed| {
        let mutations = Mutations::one("shards_run_ahead");
        let violation = Simulation::run(SimulationSettings { mutations, ..with_eviction(seed) }).violation?;
        println!("seed {seed}: {}", violation.lines().next().unwrap_or_default());
        Some(violation)
    });
    let violation = caught.expect("nothing was noticed");
    let signs = ["are never answered", "the device is full"];
    assert!(signs.iter().any(|sign| violation.contains(sign)), "{violation}");
}

/// Seed 11005 is never answered where parts of batches wait for room without end.
#[test]
fn keys_that_are_evicted_do_not_come_back() {
    let sums = run_all("keys_that_are_evicted", (11_000, 40), with_eviction);
    assert!(sums.evicted_keys > 500 || number("SEED").is_some(), "{sums:?}");
}

/// The same with as many shards in all lives of a node, so that segments are one shard's and go with their keys.
fn retiring(seed: u64) -> SimulationSettings {
    SimulationSettings { shard_counts: vec![1 + (seed % 3) as u16], ..with_eviction(seed) }
}

#[test]
fn keys_that_go_with_their_segments_do_not_come_back() {
    let sums = run_all("keys_that_go_with_their_segments", (26_000, 60), retiring);
    assert!(sums.evicted_keys > 500 || number("SEED").is_some(), "{sums:?}");
}

#[test]
fn keys_that_go_with_their_segments_beside_a_redo_log_do_not_come_back() {
    let with_redo = |seed| SimulationSettings { ground: Ground::DeviceWithRedo, ..retiring(seed) };
    let sums = run_all("keys_that_go_with_their_segments_beside", (27_000, 60), with_redo);
    assert!(sums.evicted_keys > 500 || number("SEED").is_some(), "{sums:?}");
}

/// Only keys that expire go, and how they do is changed often: of a key that was told to stay nothing is forgiven.
fn sparing_lasting(seed: u64) -> SimulationSettings {
    SimulationSettings { spares_lasting: true, has_touches: true, ..retiring(seed) }
}

#[test]
fn keys_that_never_expire_stay_where_others_are_evicted() {
    let sums = run_all("keys_that_never_expire", (28_000, 60), sparing_lasting);
    assert!(sums.evicted_keys > 500 || number("SEED").is_some(), "{sums:?}");
}

#[test]
fn deletions_that_keep_a_retired_segment_waiting_are_noticed() {
    let caught = (29_900..31_400).find_map(|seed| {
        let mutations = Mutations::one("deletions_before_retired");
        let violation =
            Simulation::run(SimulationSettings { mutations, ..sparing_lasting(seed) }).violation?;
        println!("seed {seed}: {}", violation.lines().next().unwrap_or_default());
        Some(violation)
    });
    let violation = caught.expect("nothing was noticed");
    assert!(violation.contains("are never answered"), "{violation}");
}
