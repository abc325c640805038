use super::*;
use tierstone_base::SeededRandom;

#[test]
fn bounds_are_those_of_redis() {
    let bounds: Vec<u64> = (0..16).map(|power| bound_ns(power) / 1_000).collect();
    let of_redis = [1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1_056, 2_113, 4_227, 8_454, 16_908, 33_816];
    assert_eq!(bounds, of_redis);
    for (power, bound) in (0..POWERS).map(bound_ns).enumerate() {
        let mut histogram = Histogram::default();
        histogram.count(bound);
        histogram.count(bound + 1);
        let rows = histogram.cumulative();
        assert_eq!(rows[0].0, bound / 1_000, "what is at the bound is within it");
        assert!(rows.len() == 2 || power == POWERS - 1, "what is above is not: {rows:?}");
    }
}

#[test]
fn percentiles_are_right_within_a_part_of_a_power() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let mut histogram = Histogram::default();
        let mut times: Vec<u64> = (0..1_000)
            .map(|_| {
                let ceiling = 1 << (10 + random.below(24));
                1_024 + random.below(ceiling)
            })
            .collect();
        times.iter().for_each(|time| histogram.count(*time));
        times.sort_unstable();
        assert_eq!(histogram.calls(), 1_000);
        assert_eq!(histogram.cumulative().last().map(|row| row.1), Some(1_000));
        for percent in [0.1, 50.0, 99.0, 99.9, 100.0] {
            let exact = times[((10.0 * percent) as usize).max(1) - 1];
            let found = histogram.percentile_ns(percent);
            assert!(
                found >= exact && found <= exact + exact / 16,
                "seed {seed}, p{percent}: {found} for {exact}"
            );
        }
        let mut text = String::new();
        histogram.write(&mut text);
        assert_eq!(Histogram::read(&text), Some(histogram.clone()), "seed {seed}");
        let mut twice = histogram.clone();
        twice.add(&histogram);
        assert_eq!(twice.calls(), 2_000);
    }
    for time in [0, 1, u64::MAX] {
        Histogram::default().count(time);
    }
    assert_eq!(Histogram::default().percentile_ns(50.0), 0);
    assert_eq!(Histogram::read("1=x"), None);
    assert_eq!(Histogram::read("99999=1"), None);
}

#[test]
fn spikes_of_a_second_are_one_and_their_number_is_bounded() {
    let mut spikes = Spikes::default();
    for (at_s, took_ms) in [(5, 20), (5, 30), (5, 10), (6, 15)] {
        spikes.note("command", at_s, took_ms);
    }
    assert_eq!(spikes.0["command"].all, [(5, 30), (6, 15)]);
    assert_eq!(spikes.0["command"].worst_ms, 30);
    for at_s in 10..1_000 {
        spikes.note("command", at_s, 11);
    }
    assert_eq!(spikes.0["command"].all.len(), SAMPLES_MAX);
    assert_eq!(spikes.0["command"].worst_ms, 30, "the worst of all is kept");
    spikes.note("fast-command", 1, 1);
    assert_eq!(spikes.reset([&b"nothing"[..]].into_iter()), 0);
    assert_eq!(spikes.reset([&b"command"[..]].into_iter()), 1);
    assert_eq!(spikes.reset(std::iter::empty::<&[u8]>().collect::<Vec<_>>().into_iter()), 1);
}
