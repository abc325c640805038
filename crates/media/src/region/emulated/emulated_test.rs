//! What an emulated memory charges, by a clock that only waiting moves, against plain arithmetic.

use super::profiles::{MEMORY_PROFILES, MemoryProfile};
use super::*;
use crate::region::region_test::behaves_like_bytes;
use crate::region::{LineRegion, MappedRegion, RegionSettings};
use std::sync::Arc;
use tierstone_base::SeededRandom;

/// Two ticks a nanosecond; time passes by waiting alone.
#[derive(Clone, Debug, Default)]
struct ManualClock(Arc<AtomicU64>);

impl TickClock for ManualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn wait_until(&self, deadline: u64) {
        self.0.fetch_max(deadline, Ordering::Relaxed);
    }

    fn ticks_per_ns(&self) -> f64 {
        2.0
    }
}

/// Nanoseconds that `work` took on a region so slow.
fn takes_ns(slowness: Slowness, work: impl Fn(&EmulatedRegion<LineRegion, ManualClock>)) -> f64 {
    takes_with(slowness, Mutations::none(), work)
}

fn takes_with(
    slowness: Slowness,
    mutations: Mutations,
    work: impl Fn(&EmulatedRegion<LineRegion, ManualClock>),
) -> f64 {
    let clock = ManualClock::default();
    let region = EmulatedRegion::with_clock(LineRegion::new(1 << 16), slowness, clock.clone()).unwrap();
    work(&region.with_mutations(mutations));
    clock.now() as f64 / 2.0
}

fn reads(random: f64, sequential: f64) -> Slowness {
    Slowness { random_read_ns: Some(random), sequential_read_ns: Some(sequential), ..Slowness::NONE }
}

#[test]
fn a_load_pays_for_each_line_that_it_touches() {
    let load = |offset: u64, len: usize| {
        takes_ns(reads(300.0, 175.0), |region| region.load(offset, &mut vec![0; len]))
    };
    assert_eq!(load(0, 8), 300.0);
    assert_eq!(load(60, 8), 300.0 + 175.0, "two lines");
    assert_eq!(load(0, 4096), 300.0 + 63.0 * 175.0);
    assert_eq!(load(100, 0), 0.0);
    assert_eq!(takes_ns(reads(300.0, 175.0), |region| assert_eq!(region.load_word(64), 0)), 300.0);
    let exchanged = |region: &EmulatedRegion<LineRegion, ManualClock>| {
        assert_eq!(region.compare_exchange_word(0, 0, 1), Ok(0));
    };
    assert_eq!(takes_ns(reads(300.0, 175.0), exchanged), 300.0);
    let store = |region: &EmulatedRegion<LineRegion, ManualClock>| {
        region.store(0, &[1; 500]);
        region.store_word(512, 1);
    };
    assert_eq!(takes_ns(reads(300.0, 175.0), store), 0.0, "reading and writing are asymmetric");
    let without_sequential = Slowness { sequential_read_ns: None, ..reads(300.0, 0.0) };
    assert_eq!(takes_ns(without_sequential, |region| region.load(0, &mut [0; 128])), 600.0);
}

#[test]
fn cached_lines_are_free_until_others_take_their_places() {
    let slowness = Slowness { cached_lines: 3, ..reads(100.0, 100.0) };
    let word = |line: u64| {
        move |region: &EmulatedRegion<LineRegion, ManualClock>| {
            region.load_word(line * 64);
        }
    };
    let two = |first: u64, second: u64| {
        takes_ns(slowness, |region| {
            word(first)(region);
            word(second)(region);
        })
    };
    assert_eq!(two(5, 5), 100.0);
    assert_eq!(two(5, 6), 200.0);
    let evicted = |region: &EmulatedRegion<LineRegion, ManualClock>| {
        [5, 9, 5].iter().for_each(|&line| word(line)(region))
    };
    assert_eq!(takes_ns(slowness, evicted), 300.0, "four places: 5 and 9 share one");
    let stored = |region: &EmulatedRegion<LineRegion, ManualClock>| {
        region.store(64, &[1; 65]);
        word(1)(region);
        word(2)(region);
        assert_eq!((region.counts().lines_loaded, region.counts().lines_read), (2, 0));
    };
    assert_eq!(takes_ns(slowness, stored), 0.0, "what was stored is cached");
}

/// Bytes at 1 GB/s, so that a byte takes a nanosecond.
fn writes(granule_bytes: u64) -> Slowness {
    Slowness { write_bytes_per_second: Some(1e9), granule_bytes, ..Slowness::NONE }
}

#[test]
fn a_persist_smaller_than_a_granule_takes_the_whole_of_it() {
    let persist = |granule: u64, offset: u64, len: u64| {
        takes_ns(writes(granule), |region| region.write_back(offset, len))
    };
    assert_eq!(persist(64, 0, 8), 64.0);
    assert_eq!(persist(256, 0, 8), 256.0);
    assert_eq!(persist(256, 0, 256), 256.0);
    assert_eq!(persist(256, 250, 8), 512.0, "over the border of two granules");
    assert_eq!(persist(256, 250, 0), 0.0);
    assert_eq!(takes_ns(writes(256), |region| region.store_streaming(0, &[1; 300])), 512.0);
    takes_ns(writes(256), |region| {
        (0..4).for_each(|line| region.write_back(line * 64, 64));
        let counts = region.counts();
        assert_eq!((counts.bytes_persisted, counts.bytes_written), (256, 1024));
        assert_eq!(counts.write_amplification(), 4.0);
    });
}

#[test]
fn a_call_that_follows_no_other_takes_its_first_granule_at_the_random_rate() {
    let slow = Slowness { random_write_bytes_per_second: Some(0.5e9), ..writes(256) };
    let persists = |calls: &[(u64, u64)]| {
        takes_ns(slow, |region| calls.iter().for_each(|&(offset, len)| region.write_back(offset, len)))
    };
    assert_eq!(persists(&[(4096, 8)]), 512.0);
    assert_eq!(persists(&[(4096, 512)]), 512.0 + 256.0, "the second granule follows the first");
    assert_eq!(persists(&[(4096, 256), (4352, 256)]), 512.0 + 256.0);
    assert_eq!(persists(&[(4096, 64), (4160, 64)]), 512.0 + 256.0, "the same granule again");
    assert_eq!(persists(&[(4096, 256), (4608, 256)]), 2.0 * 512.0, "one was left out");
    assert_eq!(persists(&[(4352, 256), (4096, 256)]), 2.0 * 512.0, "backwards is not in order");
    let two_in_order = [(0, 256), (8192, 256), (256, 256), (8448, 256), (512, 256)];
    assert_eq!(persists(&two_in_order), 2.0 * 512.0 + 3.0 * 256.0, "each goes its own way in order");
    // Reading by itself, and without a rate of its own in order.
    let slow =
        Slowness { random_read_bytes_per_second: Some(0.25e9), read_bytes_per_second: Some(1e9), ..slow };
    let reads = |region: &EmulatedRegion<LineRegion, ManualClock>| {
        region.load(0, &mut [0; 64]);
        region.load(64, &mut [0; 320]);
        region.load(32768, &mut [0; 1]);
    };
    assert_eq!(takes_ns(slow, reads), 1024.0 + 2.0 * 256.0 + 1024.0);
    let alone = Slowness { read_bytes_per_second: None, write_bytes_per_second: None, ..slow };
    assert_eq!(takes_ns(alone, reads), 4.0 * 1024.0);
}

#[test]
fn the_dcpmm_preset_writes_and_reads_random_granules_at_the_published_rates() {
    let slowness = MemoryProfile::find("dcpmm").and_then(MemoryProfile::slowness).unwrap();
    let calls = 60u32;
    let rate = |ns: f64| f64::from(calls) * 256.0 / ns;
    let places = |step: u64| (0..u64::from(calls)).map(move |call| call * step % (1 << 16));
    let written =
        |step: u64| takes_ns(slowness, |region| places(step).for_each(|at| region.write_back(at, 256)));
    assert!((rate(written(256)) - 10.0).abs() < 0.3, "GB/s in order: {}", rate(written(256)));
    assert!((rate(written(768)) - 5.3).abs() < 0.1, "GB/s at random places: {}", rate(written(768)));
    // A read is late by its latency, which is longer than its share of the bandwidth.
    let channel_alone = Slowness { random_read_ns: None, sequential_read_ns: None, ..slowness };
    let read = |step: u64| {
        takes_ns(channel_alone, |region| places(step).for_each(|at| region.load(at, &mut [0; 256])))
    };
    assert!((rate(read(768)) - 7.4).abs() < 0.2, "GB/s at random places: {}", rate(read(768)));
    assert!(rate(read(256)) > 35.0, "GB/s in order, of which the first is not: {}", rate(read(256)));
}

#[test]
fn a_fence_takes_a_persist_and_reading_shares_no_bandwidth_with_writing() {
    let slowness = Slowness { persist_ns: Some(500.0), read_bytes_per_second: Some(2e9), ..writes(64) };
    let work = |region: &EmulatedRegion<LineRegion, ManualClock>| {
        region.store_word(0, 1);
        region.write_back(0, 8);
        region.fence().unwrap();
        region.load(0, &mut [0; 64]);
        assert_eq!(region.counts().fences, 1);
    };
    assert_eq!(takes_ns(slowness, work), 64.0 + 500.0 + 32.0);
}

#[test]
fn each_rule_of_the_emulator_is_seen_broken() {
    let slowness = Slowness { persist_ns: Some(500.0), ..writes(256) };
    let work = |region: &EmulatedRegion<LineRegion, ManualClock>| {
        region.write_back(0, 8);
        region.fence().unwrap();
    };
    assert_eq!(takes_ns(slowness, work), 756.0);
    for rule in ["whole granules are written", "a fence waits for the medium"] {
        assert_ne!(takes_with(slowness, Mutations::one(rule), work), 756.0, "'{rule}' was not caught");
    }
}

#[test]
fn an_emulated_region_holds_what_the_one_inside_holds() {
    let slowness = Slowness { cached_lines: 16, persist_ns: Some(1.0), ..writes(256) };
    let inner = MappedRegion::anonymous(8192, &RegionSettings::default()).unwrap();
    behaves_like_bytes(&EmulatedRegion::new(inner, slowness).unwrap(), 11);
    let clock = ManualClock::default();
    let region = EmulatedRegion::with_clock(LineRegion::new(8192), slowness, clock).unwrap();
    behaves_like_bytes(&region, 12);
    assert_eq!((region.bytes(), region.guarantee()), (8192, Guarantee::Emulated));
}

#[test]
fn time_is_a_queue_of_transfers_beside_a_naive_sum() {
    for seed in 0..50 {
        let mut random = SeededRandom::new(seed);
        let work: Vec<(u64, u64)> = (0..200).map(|_| (random.below(60_000), random.below(600))).collect();
        let granule = 64 << random.below(4);
        let naive: u64 = work
            .iter()
            .map(|&(offset, len)| {
                let touched = (offset..offset + len).map(|byte| byte / granule);
                touched.collect::<std::collections::BTreeSet<u64>>().len() as u64 * granule
            })
            .sum();
        let ns = takes_ns(writes(granule), |region| {
            work.iter().for_each(|&(offset, len)| region.write_back(offset, len));
        });
        assert_eq!(ns, naive as f64, "seed {seed}");
    }
}

#[test]
fn slowness_out_of_bounds_is_refused_by_its_field() {
    let refused = |slowness: Slowness, field: &str| {
        let error = slowness.check().expect_err(field);
        assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains(field), "{error}");
    };
    refused(Slowness { random_read_ns: Some(f64::NAN), ..Slowness::NONE }, "random_read_ns");
    refused(Slowness { sequential_read_ns: Some(-1.0), ..Slowness::NONE }, "sequential_read_ns");
    refused(Slowness { persist_ns: Some(2e9), ..Slowness::NONE }, "persist_ns");
    refused(Slowness { read_bytes_per_second: Some(0.0), ..Slowness::NONE }, "read_bytes_per_second");
    refused(
        Slowness { write_bytes_per_second: Some(f64::INFINITY), ..Slowness::NONE },
        "write_bytes_per_second",
    );
    refused(
        Slowness { random_read_bytes_per_second: Some(1.0), ..Slowness::NONE },
        "random_read_bytes_per_second",
    );
    refused(
        Slowness { random_write_bytes_per_second: Some(f64::NAN), ..Slowness::NONE },
        "random_write_bytes_per_second",
    );
    for granule_bytes in [0, 32, 96, 2 << 20] {
        refused(Slowness { granule_bytes, ..Slowness::NONE }, "granule_bytes");
    }
    refused(Slowness { cached_lines: usize::MAX, ..Slowness::NONE }, "cached_lines");
}

#[test]
fn every_profile_can_be_emulated_and_every_figure_has_its_place() {
    for profile in &MEMORY_PROFILES {
        assert!(std::ptr::eq(MemoryProfile::find(profile.name).unwrap(), profile), "names are unique");
        assert!(profile.slowness().is_none_or(|slowness| slowness.check().is_ok()), "{}", profile.name);
        let figures = [
            profile.random_read_ns,
            profile.sequential_read_ns,
            profile.persist_ns,
            profile.read_bytes_per_second,
            profile.write_bytes_per_second,
            profile.random_read_bytes_per_second,
            profile.random_write_bytes_per_second,
            profile.granule_bytes,
            profile.endurance_writes,
        ];
        for figure in figures.into_iter().flatten() {
            assert!(figure.value > 0.0 && figure.place.contains("20"), "{}: {figure:?}", profile.name);
        }
        assert!(profile.endurance_writes.is_some(), "{}", profile.name);
    }
    assert_eq!(MEMORY_PROFILES.len(), 8);
    assert!(MemoryProfile::find("granite").is_none());
}
