//! Every set that is left against a plain definition: with each store what comes before it.

use super::*;
use crate::explore::{ExploreSettings, explore};
use tierstone_base::SeededRandom;

/// A random program of three processors on four words, and of each of its stores what must come before, by a closure
/// over accesses.
fn random_program(random: &mut SeededRandom) -> (StoreOrder, Vec<(u64, BTreeSet<u64>)>) {
    let mut order = StoreOrder::default();
    let mut accesses: Vec<(u32, usize, bool, BTreeSet<u64>)> = Vec::new();
    let mut stores = Vec::new();
    for number in 1..=random.below(9) {
        let (processor, word, is_store) =
            (random.below(3) as u32, random.below(4) as usize, random.chance(0.6));
        let mut before: BTreeSet<u64> = accesses
            .iter()
            .filter(|(by, of, stores, _)| *by == processor || *of == word && (is_store || *stores))
            .flat_map(|(_, _, _, before)| before.iter().copied())
            .collect();
        let last = accesses.iter().enumerate().rev().find(|(_, access)| access.1 == word && access.2);
        let last = last.map(|(place, _)| place as u64 + 1);
        if is_store {
            order.store(processor, number, word, last);
            before.insert(number);
            stores.push((number, before.clone()));
        } else {
            order.load(processor, word, last);
        }
        accesses.push((processor, word, is_store, before));
    }
    (order, stores)
}

#[test]
fn every_set_with_all_that_comes_before_is_left_in_one_way_and_no_other_is() {
    let mut random = SeededRandom::new(11);
    for case in 0..300 {
        let (order, stores) = random_program(&mut random);
        let mut seen = BTreeSet::new();
        let report = explore(ExploreSettings::exhaustive(), |choices| {
            let left = order.cut(|options| choices.choose(options, "left"));
            assert!(seen.insert(left), "case {case}: picked twice");
            Ok(())
        });
        report.assert_exhausted();
        let mut expected = BTreeSet::new();
        for mask in 0..1u32 << stores.len() {
            let chosen = |place: usize| mask & 1 << place != 0;
            let left: BTreeSet<u64> =
                (0..stores.len()).filter(|&place| chosen(place)).map(|place| stores[place].0).collect();
            if (0..stores.len()).filter(|&place| chosen(place)).all(|place| stores[place].1.is_subset(&left))
            {
                expected.insert(left);
            }
        }
        assert_eq!(seen, expected, "case {case}: {order:?}");
    }
}

#[test]
fn what_is_durable_orders_nothing_and_nothing_is_kept_for_it() {
    let mut order = StoreOrder::default();
    order.store(0, 1, 0, None);
    order.load(1, 0, Some(1));
    assert!(order.is_before(1, 0) && order.is_before(1, 1) && !order.is_before(1, 2));
    order.store(1, 2, 1, None);
    order.forget(1);
    assert_eq!(order.cut(|options| options - 1), BTreeSet::from([2]), "the first is durable");
    order.forget(2);
    assert!(order.processors.is_empty() && order.loaded.is_empty());
}
