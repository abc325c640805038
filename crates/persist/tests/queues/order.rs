//! The queues under the recovery observer: every cut of the persist order recovers, and each rule is needed.

use crate::support::{Work, check, traced};
use crate::swap_locks::Locks;
use tierstone_crash::Mutations;
use tierstone_persist::observer::{Failure, Observer, State};
use tierstone_persist::order::Model;
use tierstone_persist::queue::Design;
use tierstone_persist::trace::Kind;

const MODELS: [Model; 4] = [Model::Strict, Model::BufferedStrict, Model::Epoch, Model::Strand];

fn small(design: Design) -> Work {
    Work {
        design,
        inserters: 2,
        inserts: 2,
        removes: 1,
        payload_bytes: 8,
        capacity_bytes: 256,
        settles: false,
        one_in: 1,
        locks: Locks::Queue,
        rules: Mutations::none(),
    }
}

/// Inserts that wrap around a small buffer, with removes beside them.
fn wrapping(design: Design) -> Work {
    Work { inserters: 3, inserts: 4, removes: 9, payload_bytes: 24, settles: true, ..small(design) }
}

#[test]
fn every_cut_of_small_traces_recovers() {
    for design in Design::ALL {
        let (mut states, mut exhausted) = (0, 0);
        for seed in 0..12 {
            let work = Work { settles: seed % 2 == 0, ..small(design) };
            let traced = traced(&work, seed).unwrap();
            for model in MODELS {
                for failure in [Failure::Anywhere, Failure::AtEnd] {
                    let observer =
                        Observer::new(&traced.trace, model, failure, traced.initial.clone()).unwrap();
                    let seen = observer
                        .enumerate(30_000, |state| check(&work, &traced, state))
                        .unwrap_or_else(|error| panic!("{design:?}, seed {seed}, {model:?}: {error}"));
                    states += seen.states;
                    exhausted += u32::from(seen.exhausted);
                }
            }
        }
        println!("{}: {states} states, {exhausted} of 96 enumerations exhausted", design.name());
        assert!(exhausted >= 60, "{design:?}: only {exhausted} enumerations came to their end");
    }
}

/// The first violation in traces of `work`, with where it was found.
fn violation(work: &Work, seeds: std::ops::Range<u64>, models: &[Model]) -> Option<String> {
    for seed in seeds {
        // Whether inserts wait for their persists, and how long one thread runs, changes what may race.
        let one_in = [1, 4, 16, 40][seed as usize / 2 % 4];
        let work = &Work { settles: seed % 2 == 0, one_in, ..work.clone() };
        let traced = match traced(work, seed) {
            Ok(traced) => traced,
            Err(error) => return Some(format!("seed {seed}: {error}")),
        };
        for &model in models {
            for failure in [Failure::Anywhere, Failure::AtEnd] {
                let observer = Observer::new(&traced.trace, model, failure, traced.initial.clone()).unwrap();
                let mut visit = |state: &State<'_>| check(work, &traced, state);
                let result =
                    observer.telling(&mut visit).and_then(|_| observer.sample(seed, 300, &mut visit));
                if let Err(error) = result {
                    return Some(format!("seed {seed}, {}, {failure:?}: {error}", model.name()));
                }
            }
        }
    }
    None
}

#[test]
fn wrapping_queues_recover_from_telling_and_random_cuts() {
    for design in Design::ALL {
        assert_eq!(violation(&wrapping(design), 0..16, &MODELS), None, "{design:?}");
    }
}

#[test]
fn breaking_any_rule_of_any_design_is_caught() {
    let common =
        ["the head before the tail", "the tail before its room is used again", "a sync before the answer"];
    let of_design: [(Design, &[&'static str]); 3] = [
        (Design::CopyWhileLocked, &["the entry before the head"]),
        (
            Design::TwoLock,
            &[
                "the entry before its insert is done",
                "the inserts done before the head",
                "the copy goes to its own room",
                "the head moves under the list's lock",
                "an insert waits for its head",
            ],
        ),
        (
            Design::QueueHoles,
            &["length and end bit before the head", "the entry before its end bit", "the end bit is cleared"],
        ),
    ];
    let mut caught = 0;
    for (design, rules) in of_design {
        for &rule in common.iter().chain(rules) {
            let work = Work { rules: Mutations::one(rule), ..wrapping(design) };
            let found = violation(&work, 0..200, &[Model::Epoch, Model::Strand]);
            let found = found.unwrap_or_else(|| panic!("{design:?} without '{rule}' was not caught"));
            println!("| {} | {rule} | caught: yes | {found} |", design.name());
            caught += 1;
        }
    }
    println!("{caught} mutations, all caught");
}

#[test]
fn two_lock_concurrent_as_printed_is_caught() {
    // All that the printed pseudo-code does otherwise at once, and each alone in the test above.
    let printed = Mutations::one("the entry before its insert is done")
        .and("the copy goes to its own room")
        .and("the head moves under the list's lock");
    let work = Work { rules: printed, ..wrapping(Design::TwoLock) };
    let found = violation(&work, 0..5, &[Model::Epoch, Model::Strand]);
    println!("as printed: {}", found.expect("the printed queue loses entries"));
    // Under strict persistency the missing barrier does no harm.
    let barrier = Mutations::one("the entry before its insert is done");
    let work = Work { rules: barrier, ..wrapping(Design::TwoLock) };
    assert_eq!(violation(&work, 0..10, &[Model::Strict, Model::BufferedStrict]), None);
}

#[test]
fn one_seed_gives_one_trace_of_a_queue() {
    for design in Design::ALL {
        let events = |seed| traced(&wrapping(design), seed).unwrap().trace;
        assert_eq!(events(3), events(3));
        assert_ne!(events(3), events(4));
        let barriers = events(3).events().iter().filter(|event| event.kind == Kind::Barrier).count();
        assert!(barriers >= 12, "{design:?}: every insert has a barrier");
    }
}
