//! What the order of persists costs an insert: the reference values of the models, and their shapes.

use crate::support::{Work, traced};
use tierstone_crash::Mutations;
use tierstone_persist::order::Model;
use tierstone_persist::queue::Design;
use tierstone_persist::timing::{Timing, TimingSettings};
use tierstone_persist::trace::Trace;

/// Inserts of 100 bytes by `threads` threads, none removed.
fn inserts(design: Design, threads: usize, inserts: u64) -> Trace {
    let work = Work {
        design,
        inserters: threads,
        inserts,
        removes: 0,
        payload_bytes: 100,
        capacity_bytes: 128 * threads as u64 * inserts,
        settles: false,
        one_in: 1,
        rules: Mutations::none(),
    };
    traced(&work, 42).unwrap().trace
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

#[test]
fn eight_threads_have_the_reference_path_per_insert_in_shape() {
    // References, with a simple lock: strict 15, 2.8, 5.0; epoch 0.43, 0.18, 0.65. They depend on who runs when.
    let bounds = [
        (Design::CopyWhileLocked, 14.9..15.1, 0.15..0.7),
        (Design::TwoLock, 1.8..7.0, 0.1..0.4),
        (Design::QueueHoles, 2.5..8.5, 0.25..1.0),
    ];
    for (design, strict, epoch) in bounds {
        let trace = inserts(design, 8, 50);
        let found = [Model::Strict, Model::Epoch, Model::Strand]
            .map(|model| path(&trace, TimingSettings::of(model), 400));
        println!("{}, 8 threads: strict, epoch, strand {found:?}", design.name());
        assert!(strict.contains(&found[0]), "{design:?}: {found:?}");
        assert!(epoch.contains(&found[1]), "{design:?}: {found:?}");
        assert!(found[2] < 0.1, "{design:?}: {found:?}");
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
