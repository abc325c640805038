//! What the order of persists costs an insert: the reference values of the models, and their shapes.

use crate::support::{Work, traced};
use crate::swap_locks::Locks;
use std::ops::RangeInclusive;
use tierstone_crash::Mutations;
use tierstone_persist::order::Model;
use tierstone_persist::queue::Design;
use tierstone_persist::timing::{Timing, TimingSettings};
use tierstone_persist::trace::{Kind, Space, Trace};

/// Inserts of 100 bytes by `threads` threads, none removed.
fn inserts(design: Design, threads: usize, inserts: u64) -> Trace {
    seeded(design, threads, inserts, 42)
}

fn seeded(design: Design, threads: usize, inserts: u64, seed: u64) -> Trace {
    traced(&work(design, threads, inserts), seed).unwrap().trace
}

fn work(design: Design, threads: usize, inserts: u64) -> Work {
    Work {
        design,
        inserters: threads,
        inserts,
        removes: 0,
        payload_bytes: 100,
        capacity_bytes: 128 * threads as u64 * inserts,
        settles: false,
        one_in: 1,
        locks: Locks::Queue,
        rules: Mutations::none(),
    }
}

fn path(trace: &Trace, settings: TimingSettings, inserts: u64) -> f64 {
    Timing::of(trace, settings).unwrap().critical_path as f64 / inserts as f64
}

#[track_caller]
fn near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= 0.02 * wanted + 0.02, "{found}, {wanted} was expected");
}

#[test]
fn one_thread_has_the_reference_path_per_insert() {
    for (design, strict, epoch) in
        [(Design::CopyWhileLocked, 15.0, 1.0), (Design::TwoLock, 15.0, 1.0), (Design::QueueHoles, 17.0, 2.0)]
    {
        let trace = inserts(design, 1, 500);
        let found = [Model::Strict, Model::Epoch, Model::Strand]
            .map(|model| path(&trace, TimingSettings::of(model), 500));
        println!("{}: strict, epoch, strand {found:?}", design.name());
        near(found[0], strict);
        near(found[1], epoch);
        near(found[2], 0.0);
    }
}

/// Its critical paths: strict, epoch, strand.
fn paths(trace: &Trace) -> [u64; 3] {
    [Model::Strict, Model::Epoch, Model::Strand]
        .map(|model| Timing::of(trace, TimingSettings::of(model)).unwrap().critical_path)
}

/// The paths of one seed after the other lie within `bounds`: strict, epoch, strand.
fn eight_within(locks: Locks, bounds: [(Design, [RangeInclusive<u64>; 3]); 3]) {
    for (design, bounds) in bounds {
        for seed in (0..4).chain([42]) {
            let found = paths(&traced(&Work { locks, ..work(design, 8, 50) }, seed).unwrap().trace);
            println!("{}, 8 threads, {locks:?}, seed {seed}: strict, epoch, strand {found:?}", design.name());
            let within = bounds.iter().zip(&found).all(|(bounds, found)| bounds.contains(found));
            assert!(within, "{design:?}, {locks:?}, seed {seed}: {found:?} of 400 inserts");
        }
    }
}

/// References of a prototype with a simple lock, without a tolerance: strict 15, 2.8, 5.0 an insert; epoch 0.43, 0.18,
/// 0.65. They depend on who gets the lock next, as the controls behind this test show. The queue lock here hands over in
/// the order of arrival: strict 15, 2.6, 3.0; epoch 0.23, 0.13, 0.35.
#[test]
fn eight_threads_have_the_path_of_a_lock_in_the_order_of_arrival() {
    let bounds = [
        (Design::CopyWhileLocked, [6_000..=6_000, 89..=91, 2..=2]),
        (Design::TwoLock, [1_030..=1_080, 51..=53, 2..=2]),
        (Design::QueueHoles, [1_212..=1_224, 136..=141, 4..=4]),
    ];
    eight_within(Locks::Queue, bounds);
}

/// The control: with a lock that anyone takes, who finds it taken trying in each turn, the same turns come to strict 15,
/// 5.0, 5.2 and epoch 0.45, 0.19, 0.54: near the references of the prototype but for Two-Lock Concurrent under strict
/// persistency (2.8), which the lock in the order of arrival gives.
#[test]
fn eight_threads_come_near_the_references_with_a_lock_that_anyone_takes_spinning() {
    let bounds = [
        (Design::CopyWhileLocked, [6_000..=6_000, 176..=184, 2..=2]),
        (Design::TwoLock, [1_940..=2_060, 72..=78, 2..=2]),
        (Design::QueueHoles, [2_030..=2_170, 208..=226, 4..=4]),
    ];
    eight_within(Locks::SwappedSpinning, bounds);
}

/// Where waiting takes no turns: strict 15, 5.4, 5.9; epoch 0.68, 0.21, 0.63.
#[test]
fn eight_threads_have_longer_paths_with_a_lock_that_anyone_takes_when_it_is_given_back() {
    let bounds = [
        (Design::CopyWhileLocked, [6_000..=6_000, 264..=280, 2..=2]),
        (Design::TwoLock, [2_070..=2_190, 79..=92, 2..=2]),
        (Design::QueueHoles, [2_290..=2_405, 245..=258, 4..=4]),
    ];
    eight_within(Locks::Swapped, bounds);
}

#[test]
fn one_seed_gives_one_path_of_eight_threads() {
    for (design, path) in [
        (Design::CopyWhileLocked, [6_000, 90, 2]),
        (Design::TwoLock, [1_048, 52, 2]),
        (Design::QueueHoles, [1_222, 140, 4]),
    ] {
        assert_eq!(paths(&seeded(design, 8, 50, 42)), path, "{design:?}, seed 42");
    }
}

/// The trace with barriers before and after every acquire and release of the lock over Copy While Locked: the published
/// recipe against races of epochs.
fn without_races(trace: &Trace, threads: usize) -> Trace {
    // The word of the lock, and the nodes of its queue behind the 8 of the list of inserts.
    let nodes = 512 + 8 * 64..512 + (8 + threads as u64) * 64;
    let mut in_lock = vec![false; threads];
    let mut with = Trace::default();
    for event in trace.events() {
        let is_lock = event.is_access()
            && event.space == Space::Volatile
            && (event.address == 0 || nodes.contains(&event.address));
        let was_lock = std::mem::replace(&mut in_lock[usize::from(event.thread)], is_lock);
        if is_lock != was_lock {
            with.mark(event.thread, Kind::Barrier);
        }
        with.push(*event).unwrap();
    }
    with
}

#[test]
fn barriers_around_the_lock_make_the_path_of_epochs_exactly_two() {
    for (threads, each) in [(1, 500), (8, 50)] {
        for seed in 0..4 {
            let trace = seeded(Design::CopyWhileLocked, threads, each, seed);
            let found =
                Timing::of(&without_races(&trace, threads), TimingSettings::of(Model::Epoch)).unwrap();
            assert_eq!(found.critical_path, 2 * each * threads as u64, "{threads} threads, seed {seed}");
        }
    }
}

const SIZES: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];

#[test]
fn larger_atomic_blocks_bring_strict_to_epoch() {
    let strict = [
        (Design::CopyWhileLocked, [15.0, 8.0, 5.0, 3.0, 2.0, 2.0, 2.0], 1.0),
        (Design::QueueHoles, [17.0, 11.0, 7.0, 5.0, 3.0, 2.5, 2.25], 2.0),
    ];
    for (design, wanted, epoch) in strict {
        let trace = inserts(design, 1, 500);
        let of = |model, atomic_bytes| {
            path(&trace, TimingSettings { atomic_bytes, ..TimingSettings::of(model) }, 500)
        };
        let found = SIZES.map(|size| of(Model::Strict, size));
        println!("{}: strict by atomic size {found:?}", design.name());
        println!("{}: epoch by atomic size {:?}", design.name(), SIZES.map(|size| of(Model::Epoch, size)));
        for (size, (found, wanted)) in SIZES.into_iter().zip(found.into_iter().zip(wanted)) {
            near(found, wanted);
            near(of(Model::Epoch, size), epoch);
        }
    }
}

#[test]
fn coarser_tracking_brings_epoch_to_strict() {
    let epoch = [
        (Design::CopyWhileLocked, [1.0, 2.0, 4.0, 8.0, 14.0, 14.0, 14.0], 15.0),
        (Design::QueueHoles, [2.0, 3.0, 5.0, 8.0, 15.0, 15.5, 15.75], 17.0),
    ];
    for (design, wanted, strict) in epoch {
        let trace = inserts(design, 1, 500);
        let of = |model, tracking_bytes| {
            path(&trace, TimingSettings { tracking_bytes, ..TimingSettings::of(model) }, 500)
        };
        let found = SIZES.map(|size| of(Model::Epoch, size));
        println!("{}: epoch by tracking size {found:?}", design.name());
        for (size, (found, wanted)) in SIZES.into_iter().zip(found.into_iter().zip(wanted)) {
            near(found, wanted);
            near(of(Model::Strict, size), strict);
        }
    }
}
