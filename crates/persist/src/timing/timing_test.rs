//! Levels against an independent graph, worked cases, and what must hold of every trace.

use super::*;
use crate::order::{Conflicts, OrderGraph};
use crate::testing::random_trace;

fn settings(model: Model) -> TimingSettings {
    TimingSettings::of(model)
}

fn path(trace: &Trace, settings: TimingSettings) -> u64 {
    Timing::of(trace, settings).unwrap().critical_path
}

fn graph(trace: &Trace, settings: TimingSettings) -> OrderGraph {
    let conflicts = Conflicts {
        block_bytes: settings.tracking_bytes,
        load_before_store: settings.load_before_store,
        ..settings.model.conflicts()
    };
    OrderGraph::derive_with(trace.events(), settings.model, conflicts).unwrap()
}

/// The longest chain of persists in the graph of the order, edge by edge.
fn longest_chain(trace: &Trace, settings: TimingSettings) -> Vec<u64> {
    let graph = graph(trace, settings);
    let mut levels = Vec::new();
    for (place, event) in trace.events().iter().enumerate() {
        let before = graph.edges_to(place).iter().map(|&earlier| levels[earlier]).max().unwrap_or(0);
        levels.push(before + u64::from(event.is_persist()));
    }
    levels
}

#[test]
fn without_coalescing_every_level_is_the_longest_chain_of_the_graph() {
    for seed in 0..2_000 {
        let trace = random_trace(seed, 60);
        for model in Model::ALL {
            for tracking_bytes in [8, 64] {
                let settings = TimingSettings { coalescing: false, tracking_bytes, ..settings(model) };
                let wanted = longest_chain(&trace, settings);
                let mut timing = Timing::new(settings).unwrap();
                for (event, wanted) in trace.events().iter().zip(wanted) {
                    if let Some(level) = timing.step(event) {
                        assert_eq!(level, wanted, "seed {seed}, {model:?}, tracking {tracking_bytes}");
                    }
                }
                assert_eq!(timing.report().coalesced, 0);
            }
        }
    }
}

#[test]
fn coalescing_shortens_the_path_and_breaks_no_order() {
    for seed in 0..1_000 {
        let trace = random_trace(seed, 60);
        for model in Model::ALL {
            for atomic_bytes in [8, 32, 128] {
                let with = TimingSettings { atomic_bytes, ..settings(model) };
                let without = TimingSettings { coalescing: false, ..with };
                // In larger blocks a persist may join one that is later than it need be.
                let shorter = path(&trace, with) <= path(&trace, without);
                assert!(shorter || atomic_bytes > with.tracking_bytes, "seed {seed}, {model:?}");
                let graph = graph(&trace, with);
                let mut timing = Timing::new(with).unwrap();
                let levels: Vec<Option<u64>> =
                    trace.events().iter().map(|event| timing.step(event)).collect();
                for (second, level) in levels.iter().enumerate() {
                    for first in graph.all_before(second) {
                        let (Some(earlier), Some(later)) = (levels[first], *level) else { continue };
                        let block = |place: usize| trace.events()[place].address / atomic_bytes;
                        let together = earlier == later && block(first) == block(second);
                        assert!(earlier < later || together, "seed {seed}, {model:?}: {first} and {second}");
                    }
                }
            }
        }
    }
}

#[test]
fn strand_is_no_longer_than_epoch_and_that_no_longer_than_strict() {
    for seed in 0..10_000 {
        let trace = random_trace(seed, 60);
        let paths = [Model::Strand, Model::Epoch, Model::Strict].map(|model| path(&trace, settings(model)));
        assert!(paths.is_sorted(), "seed {seed}: {paths:?}");
        assert_eq!(path(&trace, settings(Model::BufferedStrict)), paths[2]);
    }
}

#[test]
fn coarser_tracking_never_shortens_the_path() {
    for seed in 0..10_000 {
        let trace = random_trace(seed, 60);
        for model in [Model::Strand, Model::Epoch, Model::Strict] {
            let paths = [8, 16, 64, 512]
                .map(|tracking_bytes| path(&trace, TimingSettings { tracking_bytes, ..settings(model) }));
            assert!(paths.is_sorted(), "seed {seed}, {model:?}: {paths:?}");
        }
    }
}

#[test]
fn degenerate_traces_cost_the_same_under_both_models() {
    for seed in 0..1_000 {
        let trace = random_trace(seed, 40);
        let stranded = trace.events().iter().copied().filter(|event| event.kind != Kind::Strand).collect();
        assert_eq!(
            path(&stranded, settings(Model::Strand)),
            path(&stranded, settings(Model::Epoch)),
            "seed {seed}"
        );
        let mut dense = Trace::new();
        for event in trace.events().iter().filter(|event| event.is_access()) {
            dense.mark(event.thread, Kind::Barrier);
            dense.push(*event).unwrap();
        }
        assert_eq!(
            path(&dense, settings(Model::Epoch)),
            path(&dense, settings(Model::Strict)),
            "seed {seed}"
        );
    }
}

fn store(trace: &mut Trace, thread: u16, address: u64) {
    trace.access(thread, Kind::Store, Space::Persistent, address, &[1; 8]);
}

#[test]
fn persists_to_one_block_coalesce_unless_one_elsewhere_lies_between() {
    let mut alone = Trace::new();
    (0..5).for_each(|_| store(&mut alone, 0, 0));
    let report = Timing::of(&alone, settings(Model::Strict)).unwrap();
    assert_eq!((report.critical_path, report.persists, report.coalesced), (1, 5, 4));
    let mut between = Trace::new();
    [0, 8, 0].into_iter().for_each(|address| store(&mut between, 0, address));
    assert_eq!(path(&between, settings(Model::Strict)), 3);
    let epoch = Timing::of(&between, settings(Model::Epoch)).unwrap();
    assert_eq!((epoch.critical_path, epoch.coalesced), (1, 1), "one epoch: the two to address 0 become one");
    let larger = TimingSettings { atomic_bytes: 16, ..settings(Model::Strict) };
    assert_eq!(path(&between, larger), 1, "one atomic block");
}

#[test]
fn a_tie_from_another_block_forbids_to_coalesce() {
    // Block 0 and block 8 are both at level 1; a persist to block 0 that depends on both must not join the first.
    let mut trace = Trace::new();
    store(&mut trace, 0, 0);
    store(&mut trace, 0, 8);
    trace.mark(0, Kind::Barrier);
    store(&mut trace, 0, 0);
    let report = Timing::of(&trace, settings(Model::Epoch)).unwrap();
    assert_eq!((report.critical_path, report.coalesced), (2, 0));
}

#[test]
fn coarse_tracking_makes_orders_that_nobody_asked_for() {
    let mut trace = Trace::new();
    store(&mut trace, 0, 0);
    store(&mut trace, 1, 8);
    assert_eq!(path(&trace, settings(Model::Epoch)), 1);
    assert_eq!(path(&trace, TimingSettings { tracking_bytes: 16, ..settings(Model::Epoch) }), 2);
}

#[test]
fn rates_follow_from_path_and_latency() {
    let report = TimingReport { critical_path: 15_000, ..TimingReport::default() };
    let rates = Rates::new(&report, 1_000, 500.0, 4e6);
    assert!((rates.path_per_operation - 15.0).abs() < 1e-9);
    assert!((rates.persist_bound - 1e9 / 7_500.0).abs() < 1e-6);
    assert!((rates.throughput() - rates.persist_bound).abs() < 1e-6);
    let even = break_even_ns(15.0, 4e6);
    assert!(
        (even - 500.0 * rates.normalised()).abs() < 1e-9,
        "the break-even latency is L times the normalised rate"
    );
    let free = Rates::new(&TimingReport::default(), 1_000, 500.0, 4e6);
    assert!((free.throughput() - 4e6).abs() < 1e-6);
}

#[test]
fn blocks_that_cannot_be_are_refused() {
    for bytes in [0, 4, 12] {
        assert!(Timing::new(TimingSettings { atomic_bytes: bytes, ..settings(Model::Epoch) }).is_err());
        assert!(Timing::new(TimingSettings { tracking_bytes: bytes, ..settings(Model::Epoch) }).is_err());
    }
}
