use super::*;
use crate::explore::{ExploreSettings, explore};
use crate::lines::LineMemory;
use crate::words::WordMemory;
use std::collections::BTreeSet;

/// The first byte of each word that `words` names, over all states after a loss of power.
fn survivors<const UNIT: usize>(words: &[usize], run: impl Fn(&mut ByteMemory<UNIT>)) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        let mut memory = ByteMemory::<UNIT>::new(256);
        run(&mut memory);
        memory.lose_power(choices, &SurvivorSettings::default());
        seen.insert(words.iter().map(|&word| memory.bytes()[word * 8]).collect());
        assert_eq!((memory.undecided(), memory.bytes()), (0, memory.durable_bytes()));
        Ok(())
    });
    assert_eq!(report.assert_exhausted().distinct_states, seen.len());
    seen
}

fn set(states: &[&[u8]]) -> BTreeSet<Vec<u8>> {
    states.iter().map(|state| state.to_vec()).collect()
}

fn two_words_and_another_line<const UNIT: usize>(memory: &mut ByteMemory<UNIT>) {
    memory.store_u64(0, 1);
    memory.store_u64(8, 2);
    memory.store_u64(64, 3);
}

#[test]
fn stores_to_one_line_survive_as_a_prefix_and_lines_in_any_order() {
    let seen = survivors::<LINE_BYTES>(&[0, 1, 8], two_words_and_another_line);
    let expected: [&[u8]; 6] = [&[0, 0, 0], &[1, 0, 0], &[1, 2, 0], &[0, 0, 3], &[1, 0, 3], &[1, 2, 3]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn stores_to_several_words_survive_in_any_order() {
    let seen = survivors::<WORD_BYTES>(&[0, 1, 8], two_words_and_another_line);
    assert_eq!(seen.len(), 8);
    assert!(seen.contains(&vec![0, 2, 0]), "the second without the first");
}

#[test]
fn a_write_back_without_a_fence_promises_nothing() {
    let stores = |memory: &mut LineMemory| {
        memory.store_u64(0, 1);
        memory.write_back(0, 8);
    };
    assert_eq!(survivors(&[0], stores), set(&[&[0], &[1]]));
    let fenced = |memory: &mut LineMemory| {
        stores(memory);
        memory.fence();
    };
    assert_eq!(survivors(&[0], fenced), set(&[&[1]]));
}

#[test]
fn a_fence_covers_what_was_stored_before_the_write_back_only() {
    let seen = survivors(&[0, 1], |memory: &mut WordMemory| {
        memory.store_u64(0, 1);
        memory.write_back(0, 1);
        memory.store_u64(8, 2);
        memory.store_u64(0, 3);
        memory.fence();
    });
    let expected: [&[u8]; 4] = [&[1, 0], &[3, 0], &[1, 2], &[3, 2]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn a_fence_alone_makes_nothing_durable_except_streaming_stores() {
    let seen = survivors(&[0, 8], |memory: &mut LineMemory| {
        memory.store_u64(0, 1);
        memory.store_streaming(64, &[2; 16]);
        memory.fence();
    });
    let expected: [&[u8]; 2] = [&[0, 2], &[1, 2]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn a_fence_says_nothing_of_what_another_processor_writes_back() {
    let seen = survivors(&[0, 8], |memory: &mut LineMemory| {
        memory.store_u64(0, 1);
        memory.write_back(0, 1);
        memory.set_processor(1);
        assert!(!memory.is_being_written_back());
        memory.store_u64(64, 2);
        memory.write_back(64, 1);
        memory.fence();
    });
    let expected: [&[u8]; 2] = [&[0, 2], &[1, 2]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn two_processors_may_write_back_one_line() {
    let seen = survivors(&[0, 1, 2], |memory: &mut LineMemory| {
        memory.store_u64(0, 1);
        memory.write_back(0, 1);
        memory.set_processor(1);
        // The other's store is older and on the same line: it is written back, too.
        memory.store_u64(8, 2);
        memory.write_back(8, 1);
        memory.fence();
        memory.store_u64(16, 3);
        memory.set_processor(0);
        // What it wrote back is durable already, what came later was not written back.
        assert!(!memory.is_being_written_back());
        memory.fence();
    });
    let expected: [&[u8]; 2] = [&[1, 2, 0], &[1, 2, 3]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn what_ended_threads_wrote_back_is_the_first_processors_to_fence() {
    let seen = survivors(&[0, 8, 16], |memory: &mut LineMemory| {
        for processor in 0..2 {
            memory.set_processor(processor);
            memory.store_u64(processor as usize * 64, 1);
            memory.write_back(processor as usize * 64, 1);
        }
        memory.store_u64(128, 1);
        memory.end_threads();
        memory.fence();
    });
    let expected: [&[u8]; 2] = [&[1, 1, 0], &[1, 1, 1]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn a_long_store_may_tear_at_words_and_a_word_never_tears() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let mut memory = LineMemory::new(64);
        memory.store(4, &[7; 16]);
        memory.lose_power(choices, &SurvivorSettings::default());
        seen.insert(memory.bytes()[..24].iter().filter(|byte| **byte == 7).count());
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, BTreeSet::from([0, 4, 12, 16]));
}

#[test]
fn loads_see_stores_at_once() {
    let mut memory = WordMemory::new(1);
    memory.store_u64(56, 0x0102_0304_0506_0708);
    assert_eq!(memory.load_u64(56), 0x0102_0304_0506_0708);
    assert_eq!((memory.undecided(), memory.survivor_states()), (1, 2));
    memory.persist(56, 8);
    assert_eq!((memory.undecided(), memory.durable_bytes()[56]), (0, 8));
}

/// The states of words 0, 1 and 8 of a line memory under `scope`.
fn scoped(scope: FenceScope, run: impl Fn(&mut WordMemory)) -> BTreeSet<Vec<u8>> {
    survivors(&[0, 1, 8], |memory: &mut WordMemory| {
        memory.set_scope(scope);
        run(memory);
    })
}

/// Processor 0 stores two words, processor 1 one.
fn stored_by_two(memory: &mut WordMemory) {
    memory.store_u64(0, 1);
    memory.store_u64(8, 2);
    memory.set_processor(1);
    memory.store_u64(64, 3);
}

#[test]
fn a_fence_of_any_scope_leaves_the_stores_of_others_to_chance() {
    let fenced = |memory: &mut WordMemory| {
        stored_by_two(memory);
        assert!(memory.scope == FenceScope::WrittenBack || memory.is_being_written_back());
        memory.fence();
        assert!(!memory.is_being_written_back());
    };
    let any: [&[u8]; 4] = [&[0, 0, 3], &[1, 0, 3], &[0, 2, 3], &[1, 2, 3]];
    assert_eq!(scoped(FenceScope::Touched, fenced), set(&any));
    // In order: no second store without the first.
    let prefixes: [&[u8]; 3] = [&[0, 0, 3], &[1, 0, 3], &[1, 2, 3]];
    assert_eq!(scoped(FenceScope::InOrder, fenced), set(&prefixes));
    assert_eq!(scoped(FenceScope::WrittenBack, fenced).len(), 8);
}

#[test]
fn what_a_processor_has_seen_of_another_its_fence_covers() {
    for (scope, states) in [(FenceScope::Touched, 2), (FenceScope::InOrder, 1), (FenceScope::WrittenBack, 4)]
    {
        for by_store in [false, true] {
            let seen = survivors(&[0, 1], |memory: &mut WordMemory| {
                memory.set_scope(scope);
                memory.store_u64(0, 1);
                memory.store_u64(8, 2);
                memory.set_processor(1);
                match by_store {
                    true => memory.store_u64(8, 4),
                    false => memory.observe(12, 1),
                }
                memory.fence();
            });
            // Which comes before by the same word; the first store is before the second only in order.
            let expected = states + if by_store && scope == FenceScope::WrittenBack { 2 } else { 0 };
            assert_eq!(seen.len(), expected, "{scope:?} {by_store}: {seen:?}");
        }
    }
}

#[test]
fn a_later_load_or_write_back_of_one_word_takes_nothing_from_an_earlier_one() {
    let seen = survivors(&[0, 1], |memory: &mut LineMemory| {
        memory.set_scope(FenceScope::Touched);
        memory.store_u64(0, 1);
        memory.store_u64(8, 2);
        // Loads the older word after it stored the newer one.
        memory.observe(0, 8);
        memory.fence();
    });
    assert_eq!(seen, set(&[&[1, 2]]));
}

#[test]
fn each_scope_leaves_only_what_a_weaker_one_leaves() {
    let mut random = tierstone_base::SeededRandom::new(3);
    for case in 0..60 {
        let steps: Vec<(u64, u64, usize)> =
            (0..7).map(|_| (random.below(2), random.below(5), random.below(3) as usize)).collect();
        let run = |memory: &mut LineMemory, scope| {
            memory.set_scope(scope);
            for (number, (processor, what, place)) in (1..).zip(&steps) {
                memory.set_processor(*processor as u32);
                let offset = [0, 8, 64][*place];
                match what {
                    0 | 1 => memory.store_u64(offset, number),
                    2 => memory.observe(offset, 8),
                    3 => memory.write_back(offset, 8),
                    _ => memory.fence(),
                }
            }
        };
        let [in_order, touched, written_back] =
            [FenceScope::InOrder, FenceScope::Touched, FenceScope::WrittenBack]
                .map(|scope| survivors(&[0, 1, 8], |memory: &mut LineMemory| run(memory, scope)));
        assert!(in_order.is_subset(&touched), "case {case}: {steps:?}");
        assert!(touched.is_subset(&written_back), "case {case}: {steps:?}");
    }
}

#[test]
fn ended_threads_of_any_scope_leave_their_stores_to_the_first_processor() {
    for scope in [FenceScope::Touched, FenceScope::InOrder] {
        let seen = scoped(scope, |memory| {
            stored_by_two(memory);
            memory.end_threads();
            memory.fence();
        });
        assert_eq!(seen, set(&[&[1, 2, 3]]), "{scope:?}");
    }
}
