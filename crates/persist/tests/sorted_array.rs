//! The example with which persistent memory is explained: an insert into a sorted array over two cache lines (Lersch
//! 2020, Figure 1.1), and what a loss of power may leave of it; and of stores wider than a word.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use tierstone_crash::{Choices, ExploreSettings, Report, SurvivorSettings, Violation, explore};
use tierstone_media::region::Region;
use tierstone_media::sim::SimRegion;
use tierstone_persist::primitives::{persist, publish};

const LINE: usize = 64;
const WORD: usize = 8;
/// The array of five: its size in the first line with three of its values, the others in the second line.
const SIZE: u64 = 32;
const OLD: [u64; 5] = [10, 20, 30, 40, 50];
const NEW: [u64; 6] = [10, 15, 20, 30, 40, 50];

fn value(place: usize) -> u64 {
    SIZE + 8 + 8 * place as u64
}

fn store_array(region: &impl Region, size: u64, values: &[u64]) {
    for (place, stored) in (0..).zip(values) {
        region.store_word(size + 8 + 8 * place, *stored);
    }
    region.store_word(size, values.len() as u64);
}

fn load_array(region: &impl Region, size: u64) -> Vec<u64> {
    (0..region.load_word(size)).map(|place| region.load_word(size + 8 + 8 * place)).collect()
}

/// Shifts what is greater to the right, from the last on, writes 15 and then the size, without a barrier.
fn insert_in_place(region: &impl Region) {
    for place in (1..5).rev() {
        region.store_word(value(place + 1), region.load_word(value(place)));
    }
    region.store_word(value(1), 15);
    region.store_word(SIZE, 6);
}

/// Explores `work` on a region that holds the old array durably and loses power behind it or in it; `look` sees what is
/// left.
fn explored<const UNIT: usize>(
    work: impl Fn(&SimRegion<UNIT>),
    look: impl Fn(&SimRegion<UNIT>) -> Result<(), Violation>,
) -> Report {
    explore(ExploreSettings::exhaustive(), |choices: &Choices| {
        let before = SimRegion::<UNIT>::new(512);
        store_array(&before, SIZE, &OLD);
        persist(&before, SIZE, 48).map_err(|error| Violation::new(error.to_string()))?;
        let region = before.with_cuts(choices, 8);
        work(&region);
        region.lose_power(choices, &SurvivorSettings::default());
        look(&region)
    })
}

/// The words of a line that the array takes, size first: what the published figure tells apart.
type Lines = (Vec<u64>, Vec<u64>);

fn lines(region: &impl Region) -> Lines {
    let words = |from: u64, to: u64| (from..to).step_by(8).map(|at| region.load_word(at)).collect();
    (words(SIZE, 64), words(64, 88))
}

fn outcomes<const UNIT: usize>() -> BTreeSet<Lines> {
    let seen = RefCell::new(BTreeSet::new());
    let look = |region: &SimRegion<UNIT>| {
        seen.borrow_mut().insert(lines(region));
        Ok(())
    };
    explored::<UNIT>(insert_in_place, look).assert_exhausted();
    seen.into_inner()
}

#[test]
fn an_insert_without_order_leaves_each_of_the_four_published_outcomes() {
    let (first, second) = (vec![5, 10, 20, 30], vec![40, 50, 0]);
    let (new_first, new_second) = (vec![6, 10, 15, 20], vec![30, 40, 50]);
    let stale_size = vec![5, 10, 15, 20];
    let published = [
        ("complete", (&new_first, &new_second), true),
        ("the second line only", (&first, &new_second), false),
        ("both lines, the size stale", (&stale_size, &new_second), false),
        ("size and first line, the second stale", (&new_first, &second), false),
    ];
    for (unit, seen) in [("lines", outcomes::<LINE>()), ("words", outcomes::<WORD>())] {
        println!("{unit}: {} different outcomes", seen.len());
        for (name, (first, second), is_right) in published {
            assert!(seen.contains(&(first.clone(), second.clone())), "{unit}: {name} was not seen");
            let region = SimRegion::<WORD>::new(512);
            for (at, word) in (SIZE..).step_by(8).zip(first.iter().chain(second)) {
                region.store_word(at, *word);
            }
            let found = load_array(&region, SIZE);
            assert_eq!(found == OLD || found == NEW, is_right, "{name}: {found:?}");
        }
        assert!(seen.contains(&(first.clone(), second.clone())), "{unit}: nothing of it");
    }
}

/// Two arrays and a word that says which one is in force.
const IN_FORCE: u64 = 0;
const OTHER: u64 = 256 + SIZE;

/// Writes the new array beside the old one, makes it durable if `in_order`, and publishes it; whether it was
/// acknowledged.
fn insert_beside(region: &impl Region, in_order: bool) -> bool {
    store_array(region, OTHER, &NEW);
    (!in_order || persist(region, OTHER, 56).is_ok()) && publish(region, IN_FORCE, OTHER).is_ok()
}

fn published<const UNIT: usize>(in_order: bool) -> (Report, BTreeSet<Vec<u64>>) {
    let (acknowledged, seen) = (Cell::new(false), RefCell::new(BTreeSet::new()));
    let report = explored::<UNIT>(
        |region| acknowledged.set(insert_beside(region, in_order)),
        |region| {
            let in_force = region.load_word(IN_FORCE);
            let found = load_array(region, if in_force == OTHER { OTHER } else { SIZE });
            seen.borrow_mut().insert(found.clone());
            let legal = found == NEW || found == OLD && !acknowledged.get();
            Violation::unless(legal, || format!("{found:?}, acknowledged: {}", acknowledged.get()))
        },
    );
    (report, seen.into_inner())
}

#[test]
fn an_insert_written_back_and_fenced_before_it_is_published_is_old_or_new() {
    for (report, seen) in [published::<LINE>(true), published::<WORD>(true)] {
        report.assert_exhausted();
        assert_eq!(seen, BTreeSet::from([OLD.to_vec(), NEW.to_vec()]));
    }
    for (report, _) in [published::<LINE>(false), published::<WORD>(false)] {
        assert!(report.found.is_some(), "published before it is durable: {report}");
    }
}

/// What is left of one store of `bytes` at `at`, of which byte `n` is `n + 1`.
fn left<const UNIT: usize>(at: u64, bytes: u8) -> BTreeSet<Vec<u8>> {
    let stored: Vec<u8> = (1..=bytes).collect();
    let seen = RefCell::new(BTreeSet::new());
    let look = |region: &SimRegion<UNIT>| {
        let mut found = vec![0; stored.len()];
        region.load(at, &mut found);
        seen.borrow_mut().insert(found);
        Ok(())
    };
    explored::<UNIT>(|region| region.store(at, &stored), look).assert_exhausted();
    seen.into_inner()
}

#[test]
fn a_store_of_more_than_a_word_may_be_torn_and_one_of_a_word_is_not() {
    for word in [left::<LINE>(128, 8), left::<WORD>(128, 8)] {
        assert_eq!(word, BTreeSet::from([vec![0; 8], (1..=8).collect()]));
    }
    let (none, all): (Vec<u8>, Vec<u8>) = (vec![0; 16], (1..=16).collect());
    let (head, tail) = ([&all[..8], &[0; 8]].concat(), [&[0; 8], &all[8..]].concat());
    // In one line the head comes before the tail; over two lines, and where only words keep their order, not.
    assert_eq!(left::<LINE>(128, 16), BTreeSet::from([none.clone(), head.clone(), all.clone()]));
    let torn = BTreeSet::from([none, head, tail, all]);
    assert_eq!(left::<LINE>(184, 16), torn);
    assert_eq!(left::<WORD>(128, 16), torn);
    // A word that is not aligned is two.
    assert_eq!(left::<WORD>(132, 8).len(), 4);
}
