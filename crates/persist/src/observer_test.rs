//! The observer gives exactly the cuts of the order, and no sync lies.

use super::*;
use crate::testing::random_trace;
use crate::trace::{Space, Trace};
use std::collections::BTreeSet;

const BYTES: usize = 1024;

/// Every subset of persists that is closed downwards, by trying all subsets.
fn by_definition(trace: &Trace, model: Model) -> BTreeSet<Vec<bool>> {
    let graph = OrderGraph::derive_in_time(trace.events(), model).unwrap();
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

/// Of random traces every pair of words and values: exactly what enumerating finds.
#[test]
fn what_may_be_left_is_known_without_trying_all_states() {
    let word = |image: &[u8], address: u64| {
        let at = address as usize;
        u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
    };
    let (mut reached, mut not) = (0, 0);
    for seed in 0..60 {
        let trace = random_trace(seed, 24);
        let persists: Vec<&Event> = trace.events().iter().filter(|event| event.is_persist()).collect();
        let mut values: Vec<(u64, u64)> =
            persists.iter().flat_map(|event| [(event.word(), event.value), (event.word(), 0)]).collect();
        values.sort_unstable();
        values.dedup();
        for (model, failure) in
            Model::ALL.into_iter().flat_map(|model| [(model, Failure::Anywhere), (model, Failure::AtEnd)])
        {
            let observer = Observer::new(&trace, model, failure, vec![0; BYTES]).unwrap();
            if observer.persists() > 12 {
                continue;
            }
            let mut pairs = BTreeSet::new();
            let seen = observer.enumerate(1 << 20, |state| {
                let there: Vec<_> =
                    values.iter().filter(|(at, value)| word(state.image, *at) == *value).collect();
                pairs.extend(there.iter().flat_map(|first| there.iter().map(|second| [**first, **second])));
                Ok(())
            });
            assert!(seen.unwrap().exhausted);
            for pair in values.iter().flat_map(|first| values.iter().map(|second| [*first, *second])) {
                let may = observer.may_leave(&pair, || Ok(())).unwrap();
                assert_eq!(may, pairs.contains(&pair), "seed {seed}, {model:?}, {failure:?}: {pair:x?}");
                reached += u32::from(may);
                not += u32::from(!may);
            }
        }
    }
    assert!(reached > 1_000 && not > 1_000, "{reached} reached, {not} not");
}

/// Parts of words: the value of a word is what all persists to it that survive have made of it.
#[test]
fn what_may_be_left_of_a_word_that_is_stored_to_in_parts() {
    let mut trace = Trace::new();
    trace.access(0, Kind::Store, Space::Persistent, 8, &[1, 0, 0, 0]);
    trace.access(0, Kind::Store, Space::Persistent, 12, &[2, 0, 0, 0]);
    let observer = Observer::new(&trace, Model::Epoch, Failure::Anywhere, vec![0; 16]).unwrap();
    let may = |value: u64| observer.may_leave(&[(8, value)], || Ok(())).unwrap();
    assert_eq!([0, 1, 2 << 32, 2 << 32 | 1].map(may), [true, true, false, true]);
}

/// The limits that the guide names: damage of two persists that survive and two that are lost is in no telling state.
#[test]
fn telling_states_show_damage_of_one_pair_and_not_of_two() {
    let mut trace = Trace::new();
    for word in 0..4 {
        trace.access(0, Kind::Store, Space::Persistent, word * 8, &1u64.to_le_bytes());
    }
    let observer = Observer::new(&trace, Model::Epoch, Failure::Anywhere, vec![0; 32]).unwrap();
    let shows = |damage: &dyn Fn(&[bool]) -> bool| {
        let (mut telling, mut all) = (false, false);
        observer
            .telling(|state| {
                telling |= damage(state.survived);
                Ok(())
            })
            .unwrap();
        observer
            .enumerate(100, |state| {
                all |= damage(state.survived);
                Ok(())
            })
            .unwrap();
        (telling, all)
    };
    assert_eq!(shows(&|survived| survived[3] && !survived[0]), (true, true));
    assert_eq!(shows(&|survived| survived[2] && survived[3] && !survived[0] && !survived[1]), (false, true));
}

/// On whichever strand: what a thread loaded before its sync is there when the sync is done.
#[test]
fn a_sync_waits_for_what_the_thread_loaded_on_an_earlier_strand() {
    for space in [Space::Persistent, Space::Volatile] {
        let mut trace = Trace::new();
        trace.access(0, Kind::Store, Space::Persistent, 0, &[1; 8]);
        if space == Space::Volatile {
            // The word is published through a volatile one.
            trace.mark(0, Kind::Barrier);
            trace.access(0, Kind::Store, space, 64, &[1; 8]);
        }
        trace.access(1, Kind::Load, space, if space == Space::Volatile { 64 } else { 0 }, &[1; 8]);
        trace.mark(1, Kind::Strand);
        trace.mark(1, Kind::Sync);
        for model in [Model::Strict, Model::BufferedStrict, Model::Epoch, Model::Strand] {
            let observer = Observer::new(&trace, model, Failure::AtEnd, vec![0; 8]).unwrap();
            assert!(!observer.may_leave(&[(0, 0)], || Ok(())).unwrap(), "{model:?}, {space:?}");
        }
    }
}

/// Every persist after every other: all pairs of places would take 3.6 GB, and comparing them one by one hours.
#[test]
fn a_trace_as_long_as_may_be_is_observed() {
    let mut trace = Trace::new();
    for number in 0..30_000u64 {
        trace.access(0, Kind::Store, Space::Persistent, number % 8 * 8, &number.to_le_bytes());
    }
    let observer = Observer::new(&trace, Model::Strict, Failure::Anywhere, vec![0; 64]).unwrap();
    let mut states = 0u64;
    let ended = observer.telling(|state| {
        states += 1;
        let survivors = state.survived.iter().filter(|survived| **survived).count() as u64;
        // The least state with a persist has all before it; the greatest without it has those too.
        let wanted = if states.is_multiple_of(2) { states / 2 } else { states.saturating_sub(3) / 2 };
        assert_eq!(survivors, wanted, "state {states}");
        match states {
            2_000 => Err(Error::new(ErrorKind::Retry, "enough of them")),
            _ => Ok(()),
        }
    });
    assert_eq!((ended.unwrap_err().kind(), states), (ErrorKind::Retry, 2_000));
    assert_eq!(observer.sample(1, 20, |_| Ok(())).unwrap().states, 20);
    assert!(observer.may_leave(&[(0, 29_992), (56, 29_999)], || Ok(())).unwrap());
    assert!(!observer.may_leave(&[(0, 0), (56, 29_999)], || Ok(())).unwrap());
}
