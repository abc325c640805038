//! Ages against exact ones.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;

proptest! {
    #[test]
    fn no_key_is_older_than_it_is_and_all_ages_are_bounded(
        uses in prop::collection::vec(0_u64..200, 0..6_000),
        keys in 1_u64..400,
        grows in any::<bool>(),
    ) {
        let mut sketch = RecencySketch::new(1 << 20);
        sketch.fit(keys);
        let mut last = BTreeMap::new();
        for (number, key) in uses.iter().enumerate() {
            if grows && number == uses.len() / 2 {
                sketch.fit(10 * keys + 5_000);
            }
            sketch.touch(*key);
            last.insert(*key, number);
        }
        // At most one tick a use, whatever the pace.
        for (key, number) in last {
            let uses_since = uses.len() - number;
            prop_assert!(usize::from(sketch.age(key)) <= uses_since, "key {key}: {} after {uses_since}", sketch.age(key));
        }
        prop_assert!((0..300).all(|key| sketch.age(key) <= RecencySketch::OLDEST));
    }
}

#[test]
fn what_was_asked_for_lately_is_told_from_what_was_not() {
    let keys = 20_000;
    let mut sketch = RecencySketch::new(u64::MAX);
    sketch.fit(keys);
    assert!((0..keys).all(|key| sketch.age(key) == RecencySketch::OLDEST), "nothing was asked for");
    // All once, then three rounds of the first half.
    (0..keys).for_each(|key| sketch.touch(key));
    (0..3).for_each(|_| (0..keys / 2).for_each(|key| sketch.touch(key)));
    let lately = (0..keys / 2).filter(|&key| sketch.age(key) <= 9).count() as u64;
    assert_eq!(lately, keys / 2, "half a round of uses is eight ticks");
    // Of the others those are too young that share a place with one of the first half.
    let old = (keys / 2..keys).filter(|&key| sketch.age(key) >= 22).count() as u64;
    assert!(old > keys / 2 * 7 / 10, "{old} of {} are old", keys / 2);
    assert_eq!(sketch.bytes(), 64 << 10, "two bytes a key, to the next power of two");
}

/// For as many uses as bring the clock round several times.
#[test]
fn what_nobody_asks_for_stays_old_for_ever() {
    let mut random = SeededRandom::new(3);
    for keys in [10, 1_000, 200_000] {
        let mut sketch = RecencySketch::new(1 << 20);
        sketch.fit(keys);
        sketch.touch(u64::MAX);
        let (line, at) = sketch.place(u64::MAX);
        for use_number in 0..80 * keys {
            let key = random.below(keys);
            if sketch.place(key) != (line, at) {
                sketch.touch(key);
            }
            if use_number > 20 * keys && use_number % (keys / 10) == 0 {
                assert_eq!(sketch.age(u64::MAX), RecencySketch::OLDEST, "{keys} keys, use {use_number}");
            }
        }
    }
}

#[test]
fn it_takes_no_more_bytes_than_it_may() {
    for (bytes_max, taken) in [(0, 4 << 10), (10_000, 8 << 10), (1 << 20, 1 << 20)] {
        let mut sketch = RecencySketch::new(bytes_max);
        sketch.fit(u64::MAX);
        assert_eq!(sketch.bytes(), taken);
        (0..10_000).for_each(|key| sketch.touch(key));
    }
}
