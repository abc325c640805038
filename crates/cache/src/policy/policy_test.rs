//! The policies against their contract, against small known cases, and against each other.

use super::*;
use crate::trace::{TraceSettings, ZIPF_THETA, shifting_hot_set, zipf, zipf_with_scans};
use crate::{RecordCache, RecordCacheSettings};
use proptest::prelude::*;
use std::collections::BTreeMap;

const UNIFORM: TraceSettings =
    TraceSettings { requests: 300_000, keys: 20_000, bytes_min: 144, bytes_max: 144, seed: 42 };
const VARIED: TraceSettings = TraceSettings { bytes_min: 48, bytes_max: 1024, ..UNIFORM };

fn tenth(settings: TraceSettings) -> u64 {
    settings.keys_bytes() / 10
}

fn record_cache(capacity_bytes: u64) -> RecordCachePolicy {
    let settings =
        RecordCacheSettings { capacity_bytes, huge_pages: false, ..RecordCacheSettings::default() };
    RecordCachePolicy::new(RecordCache::new(settings).unwrap())
}

fn s3_fifo(capacity_bytes: u64) -> S3Fifo {
    S3Fifo::new(capacity_bytes, S3FifoSettings::default())
}

fn traces(settings: TraceSettings) -> Vec<(&'static str, Vec<Request>)> {
    vec![
        ("zipf", zipf(settings, ZIPF_THETA)),
        ("scans", zipf_with_scans(settings, ZIPF_THETA, 0.3, 1000)),
        ("shifting", shifting_hot_set(settings, settings.keys / 20, 0.9, settings.requests / 10)),
    ]
}

#[test]
fn s3_fifo_beats_lru_on_zipf_and_on_scans_and_nobody_beats_the_optimum() {
    for (name, trace) in traces(UNIFORM) {
        let capacity = tenth(UNIFORM);
        let optimum = optimal_hits(&trace, capacity).hit_rate();
        let lru = replay(&mut Lru::new(capacity), &trace).hit_rate();
        let fifo = replay(&mut s3_fifo(capacity), &trace).hit_rate();
        let record = replay(&mut record_cache(capacity), &trace).hit_rate();
        assert!(lru <= optimum && fifo <= optimum && record <= optimum, "{name}");
        if name != "shifting" {
            assert!(fifo > lru + 0.02, "{name}: S3-FIFO {fifo}, LRU {lru}");
        }
    }
}

#[test]
fn the_record_cache_hits_about_as_often_as_the_pure_policy() {
    for settings in [UNIFORM, VARIED] {
        for (name, trace) in traces(settings) {
            let pure = replay(&mut s3_fifo(tenth(settings)), &trace).hit_rate();
            let record = replay(&mut record_cache(tenth(settings)), &trace).hit_rate();
            assert!((pure - record).abs() < 0.02, "{name} {settings:?}: pure {pure}, record cache {record}");
        }
    }
}

#[test]
fn the_optimum_of_the_textbook_example() {
    // Three frames, the reference string of Belady's anomaly: 7 faults with forced admission, and
    // none fewer with free choice.
    let trace: Vec<Request> =
        [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5].map(|key| Request { key, bytes: 1 }).to_vec();
    assert_eq!(optimal_hits(&trace, 3).hits, 5);
    assert_eq!(replay(&mut Lru::new(3), &trace).hits, 2);
    assert_eq!(optimal_hits(&trace, 0).hits, 0);
    assert_eq!(optimal_hits(&trace, 5).hits, 7);
}

#[test]
fn lru_evicts_in_order_of_last_use() {
    let mut lru = Lru::new(30);
    let mut evicted = Vec::new();
    for key in [1, 2, 3, 1] {
        lru.access(key, 10, &mut evicted);
    }
    lru.access(4, 15, &mut evicted);
    assert_eq!(evicted, [2, 3]);
}

#[test]
fn s3_fifo_gives_a_ghost_a_place_in_the_main_queue() {
    let mut fifo = s3_fifo(1000);
    let mut evicted = Vec::new();
    // Keys that are hit fill the main queue (the first makes room for the small queue's part); then
    // cold ones pass through the small queue.
    for _ in 0..2 {
        for key in 0..10 {
            fifo.access(key, 90, &mut evicted);
        }
    }
    for key in 100..110 {
        fifo.access(key, 90, &mut evicted);
    }
    assert_eq!(evicted, [0, 100, 101, 102, 103, 104, 105, 106, 107]);
    // Remembered: it outlives the next cold ones.
    fifo.access(107, 90, &mut evicted);
    for key in 200..205 {
        fifo.access(key, 90, &mut evicted);
    }
    assert!(fifo.contains(107));
    assert!(!fifo.contains(202));
}

fn obeys_the_contract(policy: &mut impl Policy, steps: &[(u64, u64, bool)]) {
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    for &(key, bytes, is_removal) in steps {
        if is_removal {
            assert_eq!(policy.remove(key), model.remove(&key).is_some());
        } else {
            let mut evicted = Vec::new();
            assert_eq!(policy.access(key, bytes, &mut evicted), model.contains_key(&key));
            model.insert(key, bytes);
            for gone in &evicted {
                assert!(model.remove(gone).is_some(), "{gone} was evicted twice or never there");
            }
            // What is too large is not admitted, and not named either.
            if !policy.contains(key) {
                model.remove(&key);
            }
        }
        assert!(policy.used_bytes() <= policy.capacity_bytes());
        assert!(model.keys().all(|&key| policy.contains(key)));
        assert!(!policy.contains(999));
    }
}

proptest! {
    #[test]
    fn policies_name_every_key_that_goes_and_keep_to_their_bytes(
        steps in prop::collection::vec((0..40u64, 0..130u64, prop::bool::weighted(0.1)), 1..300),
        capacity in 0..2000u64,
    ) {
        obeys_the_contract(&mut Lru::new(capacity), &steps);
        obeys_the_contract(&mut s3_fifo(capacity), &steps);
        obeys_the_contract(&mut record_cache(capacity * 8), &steps);
    }

    #[test]
    fn used_bytes_are_the_sum_of_what_is_there(
        steps in prop::collection::vec((0..20u64, 1..50u64), 1..200),
    ) {
        // With room for all, nothing goes, and sizes follow the last access.
        let (mut lru, mut fifo) = (Lru::new(1000), s3_fifo(1000));
        let mut sizes = BTreeMap::new();
        let mut evicted = Vec::new();
        for (key, bytes) in steps {
            sizes.insert(key, bytes);
            lru.access(key, bytes, &mut evicted);
            fifo.access(key, bytes, &mut evicted);
            let sum: u64 = sizes.values().sum();
            prop_assert_eq!((lru.used_bytes(), fifo.used_bytes()), (sum, sum));
        }
        prop_assert!(evicted.is_empty());
    }
}
