//! The observer gives exactly the cuts of the order, and no sync lies.

use super::*;
use crate::testing::random_trace;
use crate::trace::{Space, Trace};
use std::collections::BTreeSet;

const BYTES: usize = 1024;

/// Every subset of persists that is closed downwards, by trying all subsets.
fn by_definition(trace: &Trace, model: Model) -> BTreeSet<Vec<bool>> {
    let graph = OrderGraph::derive(trace.events(), model).unwrap().with_time(trace.events(), model);
    let persists: Vec<usize> =
        (0..trace.events().len()).filter(|&place| trace.events()[place].is_persist()).collect();
    let mut cuts = BTreeSet::new();
    for bits in 0u32..1 << persists.len() {
        let kept = |number: usize| bits & (1 << number) != 0;
        let closed = (0..persists.len()).all(|second| {
            !kept(second)
                || (0..persists.len())
                    .all(|first| kept(first) || !graph.is_before(persists[first], persists[second]))
        });
        if closed {
            cuts.insert((0..persists.len()).map(kept).collect());
        }
    }
    cuts
}

#[test]
fn every_cut_is_given_once_and_samples_are_cuts() {
    for seed in 0..60 {
        let trace = random_trace(seed, 22);
        for model in Model::ALL {
            let observer = Observer::new(&trace, model, Failure::Anywhere, vec![0; BYTES]).unwrap();
            if observer.persists() > 12 {
                continue;
            }
            let wanted = by_definition(&trace, model);
            let mut found = BTreeSet::new();
            let seen = observer
                .enumerate(1 << 20, |state| {
                    assert!(found.insert(state.survived.to_vec()), "seed {seed}, {model:?}: a cut twice");
                    Ok(())
                })
                .unwrap();
            assert!(seen.exhausted && seen.states == found.len() as u64);
            assert_eq!(found, wanted, "seed {seed}, {model:?}");
            let mut others = BTreeSet::new();
            let mut note = |state: &State<'_>| {
                others.insert(state.survived.to_vec());
                Ok(())
            };
            observer.telling(&mut note).unwrap();
            observer.sample(seed, 50, &mut note).unwrap();
            assert!(others.is_subset(&wanted), "seed {seed}, {model:?}");
            let all: BTreeSet<Vec<bool>> = others;
            for number in 0..observer.persists() {
                assert!(all.iter().any(|cut| cut[number]), "each persist survives somewhere");
            }
        }
    }
}

#[test]
fn the_image_is_what_the_surviving_persists_make() {
    for seed in 0..40 {
        let trace = random_trace(seed, 30);
        let observer = Observer::new(&trace, Model::Strand, Failure::Anywhere, vec![0xee; BYTES]).unwrap();
        observer
            .enumerate(2_000, |state| {
                let mut image = vec![0xee; BYTES];
                let persists = trace.events().iter().filter(|event| event.is_persist());
                for (event, _) in persists.zip(state.survived).filter(|(_, survived)| **survived) {
                    let at = event.address as usize;
                    image[at..at + usize::from(event.len)]
                        .copy_from_slice(&event.bytes()[..usize::from(event.len)]);
                }
                assert_eq!(image, state.image, "seed {seed}");
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn strict_leaves_prefixes_and_buffered_strict_leaves_more() {
    let mut trace = Trace::new();
    for thread in 0..2 {
        trace.access(thread, Kind::Store, Space::Persistent, u64::from(thread) * 8, &7u64.to_le_bytes());
    }
    let states = |model, failure| {
        let mut states = Vec::new();
        Observer::new(&trace, model, failure, vec![0; 16])
            .unwrap()
            .enumerate(100, |state| {
                states.push((state.image[0], state.image[8]));
                Ok(())
            })
            .unwrap();
        states.sort_unstable();
        states
    };
    assert_eq!(states(Model::Strict, Failure::Anywhere), [(0, 0), (7, 0), (7, 7)]);
    assert_eq!(states(Model::BufferedStrict, Failure::Anywhere), [(0, 0), (0, 7), (7, 0), (7, 7)]);
    assert_eq!(states(Model::Strict, Failure::AtEnd), [(7, 7)]);
    assert_eq!(states(Model::BufferedStrict, Failure::AtEnd).len(), 4);
}

#[test]
fn what_a_sync_waited_for_is_there_once_it_was_done() {
    for seed in 0..200 {
        let trace = random_trace(seed, 40);
        let events = trace.events();
        for model in Model::ALL {
            let observer = Observer::new(&trace, model, Failure::Anywhere, vec![0; BYTES]).unwrap();
            let persists: Vec<usize> =
                (0..events.len()).filter(|&place| events[place].is_persist()).collect();
            observer
                .sample(seed, 50, |state| {
                    let syncs = (0..state.done).filter(|&place| events[place].kind == Kind::Sync);
                    for sync in syncs {
                        let mine = persists.iter().zip(state.survived);
                        let mut mine = mine.filter(|(place, _)| {
                            **place < sync && events[**place].thread == events[sync].thread
                        });
                        assert!(mine.all(|(_, survived)| *survived), "seed {seed}, {model:?}, sync {sync}");
                    }
                    Ok(())
                })
                .unwrap();
        }
    }
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let mut trace = Trace::new();
    trace.access(0, Kind::Store, Space::Persistent, 16, &[1; 8]);
    assert!(Observer::new(&trace, Model::Epoch, Failure::Anywhere, vec![0; 16]).is_err());
}
