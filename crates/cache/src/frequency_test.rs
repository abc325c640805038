//! Estimates against exact counts.

use super::*;
use crate::trace::{TraceSettings, ZIPF_THETA, zipf};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;

fn of(keys: u64, bytes_max: u64) -> FrequencySketch {
    let mut sketch = FrequencySketch::new(bytes_max);
    sketch.fit(keys);
    sketch
}

proptest! {
    #[test]
    fn an_estimate_is_never_too_low_before_a_block_fades(uses in prop::collection::vec(0_u64..300, 0..800), grows in any::<bool>()) {
        // Far more keys than uses: nothing fades.
        let mut sketch = of(0, 1 << 20);
        sketch.uses_a_block = u64::MAX;
        let mut counts = BTreeMap::new();
        for (number, key) in uses.iter().enumerate() {
            if grows && number == uses.len() / 2 {
                sketch.fit(100_000);
                sketch.uses_a_block = u64::MAX;
            }
            sketch.add(*key);
            *counts.entry(*key).or_insert(0_u64) += 1;
        }
        for (key, count) in counts {
            prop_assert!(u64::from(sketch.estimate(key)) >= count.min(15), "key {key}: {count}");
        }
    }

    #[test]
    fn the_least_used_are_a_third_of_what_was_looked_at(estimates in prop::collection::vec(0_u8..=15, 1..400)) {
        let mut least = LeastUsed::default();
        for estimate in &estimates {
            least.look(*estimate);
        }
        let taken: Vec<u8> = estimates.iter().copied().filter(|estimate| least.is_among(*estimate)).collect();
        prop_assert!(taken.len() * 3 >= estimates.len(), "{} of {}", taken.len(), estimates.len());
        // Without those of the highest estimate taken they are less than a third.
        let highest = taken.iter().max().unwrap();
        let below = taken.iter().filter(|estimate| *estimate < highest).count();
        prop_assert!(below * 3 < estimates.len());
        prop_assert!((0..16).all(|estimate| least.is_among(estimate) == (estimate <= *highest) || !estimates.contains(&estimate)));
    }
}

#[test]
fn keys_in_heavy_use_are_told_from_the_others() {
    let settings = TraceSettings { requests: 400_000, keys: 20_000, bytes_min: 1, bytes_max: 1, seed: 7 };
    let trace = zipf(settings, ZIPF_THETA);
    let mut sketch = of(settings.keys, 2 * settings.keys);
    let mut counts = BTreeMap::new();
    for request in &trace {
        sketch.add(request.key);
        *counts.entry(request.key).or_insert(0_u64) += 1;
    }
    let mut ranked: Vec<u64> = counts.keys().copied().collect();
    ranked.sort_by_key(|key| std::cmp::Reverse(counts[key]));
    let mean = |keys: &[u64]| {
        keys.iter().map(|key| f64::from(sketch.estimate(*key))).sum::<f64>() / keys.len() as f64
    };
    let (head, tail) = (mean(&ranked[..200]), mean(&ranked[10_000..]));
    assert!(head > 12.0, "asked for most: {head}");
    assert!(tail < 4.0, "asked for least: {tail}");
}

#[test]
fn what_was_popular_once_fades() {
    let mut sketch = of(1_000, 1 << 20);
    (0..15).for_each(|_| sketch.add(u64::MAX));
    assert_eq!(sketch.estimate(u64::MAX), FrequencySketch::MOST);
    let mut random = SeededRandom::new(3);
    (0..8 * 1_000 * 4).for_each(|_| sketch.add(random.below(1_000)));
    // Four times halved; what shares its counters is in heavy use, so that an exact figure cannot be asked for.
    let mut quiet = of(1_000, 1 << 20);
    (0..15).for_each(|_| quiet.add(u64::MAX));
    (0..quiet.blocks.len() * 4).for_each(|_| quiet.fade());
    assert_eq!(quiet.estimate(u64::MAX), 0);
    let others = (0..1_000).map(|key| f64::from(sketch.estimate(key))).sum::<f64>() / 1_000.0;
    assert!(f64::from(sketch.estimate(u64::MAX)) < others, "{others}");
}

#[test]
fn a_write_of_what_was_asked_for_counts_nothing() {
    let mut sketch = of(100, 1 << 20);
    sketch.add_if_new(5);
    sketch.add_if_new(5);
    assert_eq!(sketch.estimate(5), 1);
    sketch.add(5);
    sketch.add_if_new(5);
    assert_eq!(sketch.estimate(5), 2);
}

#[test]
fn a_sketch_keeps_to_its_bytes() {
    assert_eq!(of(1_000_000, 1 << 20).bytes(), 1 << 20);
    assert_eq!(of(1_000_000, (1 << 20) + 12345).bytes(), 1 << 20);
    assert_eq!(of(100_000, 1 << 20).bytes(), 1 << 18, "no more than keys need");
    assert_eq!(of(0, 0).bytes(), BYTES_MIN);
    assert_eq!(of(u64::MAX, 1 << 16).bytes(), 1 << 16);
}
