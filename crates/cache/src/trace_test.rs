//! The shapes of the traces.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

fn settings() -> TraceSettings {
    TraceSettings { requests: 200_000, keys: 10_000, bytes_min: 64, bytes_max: 256, seed: 3 }
}

#[test]
fn a_seed_gives_one_trace() {
    assert_eq!(zipf(settings(), ZIPF_THETA), zipf(settings(), ZIPF_THETA));
    let other = TraceSettings { seed: 4, ..settings() };
    assert_ne!(zipf(settings(), ZIPF_THETA), zipf(other, ZIPF_THETA));
}

#[test]
fn ranks_follow_the_law_of_zipf() {
    let mut random = SeededRandom::new(5);
    let ranks = Zipf::new(10_000, ZIPF_THETA);
    let mut counts = vec![0u64; 10_000];
    let draws = 1_000_000;
    for _ in 0..draws {
        counts[ranks.rank(&mut random) as usize] += 1;
    }
    let zeta: f64 = (1..=10_000).map(|rank| f64::from(rank).powf(-ZIPF_THETA)).sum();
    for cut in [1, 2, 10, 100, 1000, 10_000] {
        let drawn = counts[..cut].iter().sum::<u64>() as f64 / f64::from(draws);
        let wanted = (1..=cut).map(|rank| (rank as f64).powf(-ZIPF_THETA)).sum::<f64>() / zeta;
        // The method is exact for the first two ranks and approximates the others.
        assert!((drawn - wanted).abs() < 0.02, "first {cut} ranks: {drawn} drawn, {wanted} wanted");
    }
}

#[test]
fn the_smallest_sets_of_ranks_work() {
    let mut random = SeededRandom::new(6);
    for items in 0..5 {
        let ranks = Zipf::new(items, ZIPF_THETA);
        assert!((0..1000).all(|_| ranks.rank(&mut random) < items.max(1)));
    }
}

#[test]
fn a_key_has_one_size_within_bounds_and_sizes_spread() {
    let mut sizes = BTreeMap::new();
    for request in zipf(settings(), ZIPF_THETA) {
        assert!((64..=256).contains(&request.bytes));
        assert_eq!(*sizes.entry(request.key).or_insert(request.bytes), request.bytes);
    }
    let mean = sizes.values().map(|&bytes| f64::from(bytes)).sum::<f64>() / sizes.len() as f64;
    assert!((mean - 160.0).abs() < 5.0, "mean size {mean}");
}

#[test]
fn scans_have_their_share_and_never_come_back() {
    let trace = zipf_with_scans(settings(), ZIPF_THETA, 0.3, 500);
    let keys: BTreeSet<u64> = (0..10_000).map(mix).collect();
    let scanned: Vec<u64> =
        trace.iter().map(|request| request.key).filter(|key| !keys.contains(key)).collect();
    let share = scanned.len() as f64 / trace.len() as f64;
    assert!((share - 0.3).abs() < 0.05, "{share} of the requests are scans");
    assert_eq!(scanned.iter().collect::<BTreeSet<_>>().len(), scanned.len());
}

#[test]
fn the_hot_set_moves() {
    let trace = shifting_hot_set(settings(), 500, 0.9, 50_000);
    let hottest = |part: &[Request]| {
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        for request in part {
            *counts.entry(request.key).or_default() += 1;
        }
        let hot: BTreeSet<u64> =
            counts.iter().filter(|&(_, &count)| count > 40).map(|(&key, _)| key).collect();
        hot
    };
    let (first, second, third) =
        (hottest(&trace[..50_000]), hottest(&trace[50_000..100_000]), hottest(&trace[100_000..150_000]));
    assert_eq!((first.len(), second.len()), (500, 500));
    assert_eq!(first.intersection(&second).count(), 250);
    assert_eq!(first.intersection(&third).count(), 0);
}
