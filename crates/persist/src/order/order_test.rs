//! The order against the definition, pair by pair, and the inclusions between models.

use super::*;
use crate::testing::random_trace;
use crate::trace::{Event, Kind, Space, Trace};

/// The definition, read literally: rules for pairs, closed by brute force.
fn by_definition(events: &[Event], model: Model) -> Vec<Vec<bool>> {
    let n = events.len();
    let conflicts = model.conflicts();
    let mut before = vec![vec![false; n]; n];
    for second in 0..n {
        for first in 0..second {
            let (a, b) = (&events[first], &events[second]);
            if !a.is_access() || !b.is_access() {
                continue;
            }
            let between: Vec<Kind> = events[first..second]
                .iter()
                .filter(|event| event.thread == a.thread && !event.is_access())
                .map(|event| event.kind)
                .collect();
            let fence = |kinds: &[Kind]| kinds.iter().any(|kind| matches!(kind, Kind::Barrier | Kind::Sync));
            let program = a.thread == b.thread
                && match model {
                    Model::Strict | Model::BufferedStrict => true,
                    Model::Epoch | Model::Bpfs => fence(&between),
                    // A sync covers all strands of its thread, but what comes after the next strand barrier forgets it.
                    Model::Strand => match between.iter().rposition(|kind| *kind == Kind::Strand) {
                        None => fence(&between),
                        Some(at) => between[at..].contains(&Kind::Sync),
                    },
                };
            let block = |event: &Event| (event.space, event.address / conflicts.block_bytes);
            let stores = (a.kind == Kind::Store, b.kind == Kind::Store);
            let conflict = block(a) == block(b)
                && (stores.0 || stores.1 && conflicts.load_before_store)
                && (a.space == Space::Persistent || conflicts.volatile);
            // BPFS knows the last to store to a line only; what lies before it comes by the closure of stores.
            before[first][second] = program || conflict;
        }
    }
    for middle in 0..n {
        for first in 0..n {
            for second in 0..n {
                before[first][second] |= before[first][middle] && before[middle][second];
            }
        }
    }
    before
}

#[test]
fn the_graph_agrees_with_the_definition_on_random_traces() {
    for seed in 0..400 {
        let trace = random_trace(seed, 24);
        let events = trace.events();
        for model in Model::ALL {
            let graph = OrderGraph::derive(events, model).unwrap();
            let wanted = by_definition(events, model);
            for second in 0..events.len() {
                for first in 0..second {
                    if events[first].is_access() && events[second].is_access() {
                        let found = graph.is_before(first, second);
                        assert_eq!(
                            found, wanted[first][second],
                            "seed {seed}, {model:?}, {first} and {second}"
                        );
                    }
                }
            }
        }
    }
}

/// Whether every order of `weaker` is one of `stronger`.
fn is_subset(trace: &Trace, weaker: Model, stronger: Model) -> bool {
    let events = trace.events();
    let (weaker, stronger) =
        (OrderGraph::derive(events, weaker).unwrap(), OrderGraph::derive(events, stronger).unwrap());
    let persists: Vec<usize> = (0..events.len()).filter(|&place| events[place].is_persist()).collect();
    persists.iter().all(|&second| {
        persists.iter().all(|&first| !weaker.is_before(first, second) || stronger.is_before(first, second))
    })
}

#[test]
fn strand_order_is_in_epoch_order_and_that_in_strict_order() {
    for seed in 0..10_000 {
        let trace = random_trace(seed, 40);
        assert!(is_subset(&trace, Model::Strand, Model::Epoch), "seed {seed}");
        assert!(is_subset(&trace, Model::Epoch, Model::Strict), "seed {seed}");
        assert!(is_subset(&trace, Model::Strict, Model::BufferedStrict), "seed {seed}");
    }
}

#[test]
fn strand_without_strand_barriers_is_epoch() {
    for seed in 0..500 {
        let trace: Trace = random_trace(seed, 40)
            .events()
            .iter()
            .copied()
            .filter(|event| event.kind != Kind::Strand)
            .collect();
        assert!(is_subset(&trace, Model::Epoch, Model::Strand), "seed {seed}");
    }
}

#[test]
fn epoch_with_barriers_around_every_access_is_strict() {
    for seed in 0..500 {
        let mut dense = Trace::new();
        for event in random_trace(seed, 30).events().iter().filter(|event| event.is_access()) {
            dense.mark(event.thread, Kind::Barrier);
            dense.push(*event).unwrap();
        }
        assert!(is_subset(&dense, Model::Strict, Model::Epoch), "seed {seed}");
    }
}

#[test]
fn a_race_of_epochs_on_one_line_is_told() {
    let mut trace = Trace::new();
    let store = |trace: &mut Trace, thread, address: u64| {
        trace.access(thread, Kind::Store, Space::Persistent, address, &1u64.to_le_bytes());
    };
    store(&mut trace, 0, 0);
    store(&mut trace, 1, 72);
    assert_eq!(bpfs_deadlock(&trace), None);
    store(&mut trace, 1, 8);
    assert_eq!(bpfs_deadlock(&trace), None, "one direction only");
    store(&mut trace, 0, 64);
    let cycle = bpfs_deadlock(&trace).unwrap();
    assert_eq!(cycle.len(), 2, "{cycle:?}");
    assert!(cycle.contains(&(0, 0)) && cycle.contains(&(1, 0)));
}
