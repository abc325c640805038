use proptest::prelude::*;
use tierstone_base::SeededRandom;

use super::{Distribution, KeyChooser, fnv1a};

const DRAWS: u64 = 400_000;

/// Counts of `draws` choices among `records`.
fn counts(distribution: Distribution, records: u64, seed: u64) -> Vec<u64> {
    let mut chooser = KeyChooser::new(distribution, records).unwrap();
    let mut random = SeededRandom::new(seed);
    let mut counts = vec![0; records as usize];
    for _ in 0..DRAWS {
        counts[chooser.choose(&mut random, records) as usize] += 1;
    }
    counts
}

/// Pearson's chi-square as distance from its mean in standard deviations; cells with an expectation
/// below 10 are joined with their neighbours.
fn deviation(counts: &[u64], shares: &[f64]) -> f64 {
    let draws = counts.iter().sum::<u64>() as f64;
    let total: f64 = shares.iter().sum();
    let (mut statistic, mut cells) = (0.0, 0.0);
    let (mut observed, mut expected) = (0.0, 0.0);
    for (count, share) in counts.iter().zip(shares) {
        observed += *count as f64;
        expected += draws * share / total;
        if expected >= 10.0 {
            statistic += (observed - expected) * (observed - expected) / expected;
            cells += 1.0;
            (observed, expected) = (0.0, 0.0);
        }
    }
    let degrees: f64 = cells - 1.0;
    (statistic - degrees) / (2.0 * degrees).sqrt()
}

fn zipf_shares(records: u64, theta: f64) -> Vec<f64> {
    (1..=records).map(|rank| (rank as f64).powf(-theta)).collect()
}

#[test]
fn uniform_choices_fit_a_uniform_distribution() {
    let distance = deviation(&counts(Distribution::Uniform, 1000, 1), &vec![1.0; 1000]);
    assert!(distance.abs() < 4.0, "{distance}");
}

#[test]
fn the_test_of_fit_refuses_another_distribution() {
    let counts = counts(Distribution::Zipf { theta: 1.0 }, 1000, 1);
    assert!(deviation(&counts, &zipf_shares(1000, 1.02)) > 10.0);
    assert!(deviation(&counts, &vec![1.0; 1000]) > 100.0);
}

#[test]
fn skews_from_one_on_are_exact() {
    for theta in [1.0, 1.2, 2.0] {
        let counts = counts(Distribution::Zipf { theta }, 1000, 2);
        let distance = deviation(&counts, &zipf_shares(1000, theta));
        assert!(distance.abs() < 4.0, "theta {theta}: {distance}");
    }
}

#[test]
fn latest_is_zipf_counted_from_the_newest_and_follows_growth() {
    for theta in [0.5, 0.99, 1.1] {
        let mut from_newest = counts(Distribution::Latest { theta }, 1000, 3);
        from_newest.reverse();
        let distance = deviation(&from_newest, &zipf_shares(1000, theta));
        assert!(distance.abs() < 4.0, "theta {theta}: {distance}");
    }
    let mut chooser = KeyChooser::new(Distribution::LATEST, 10).unwrap();
    let mut random = SeededRandom::new(4);
    let newest = (0..1000).filter(|_| chooser.choose(&mut random, 1_000_000) == 999_999).count();
    assert!(newest > 40, "{newest} of 1000");
}

#[test]
fn zipf_below_one_fits_the_formula_of_gray_exactly_and_zipf_closely() {
    let (records, theta) = (1000u64, 0.99);
    let counts = counts(Distribution::Zipf { theta }, records, 5);
    let zipf = zipf_shares(records, theta);
    let total: f64 = zipf.iter().sum();
    let eta = (1.0 - (2.0 / records as f64).powf(1.0 - theta)) / (1.0 - (zipf[0] + zipf[1]) / total);
    let cumulative = |rank: u64| match rank {
        0 => 0.0,
        1 => zipf[0] / total,
        2 => (zipf[0] + zipf[1]) / total,
        _ => ((rank as f64 / records as f64).powf(1.0 - theta) - 1.0 + eta) / eta,
    };
    let shares: Vec<f64> = (0..records).map(|rank| cumulative(rank + 1) - cumulative(rank)).collect();
    assert!(deviation(&counts, &shares).abs() < 4.0);
    // The approximation itself: the first hundred ranks have Zipf's share within 3 %.
    let near: f64 = zipf[..100].iter().sum::<f64>() / total;
    let got = counts[..100].iter().sum::<u64>() as f64 / DRAWS as f64;
    assert!((got / near - 1.0).abs() < 0.03, "{got} for {near}");
}

#[test]
fn scrambled_zipf_scatters_the_ranks_by_the_published_hash() {
    let records = 1000;
    let counts = counts(Distribution::SCRAMBLED_ZIPF, records, 6);
    // The most frequent ranks stand out; the rest of ten billion is spread evenly.
    let zeta = 26.469_028_201_783_02;
    let mut shares = vec![0.0; records as usize];
    let known = 200_000u64;
    let mut known_share = 0.0;
    for rank in 0..known {
        let share = ((rank + 1) as f64).powf(-0.99) / zeta;
        shares[(fnv1a(rank) % records) as usize] += share;
        known_share += share;
    }
    shares.iter_mut().for_each(|share| *share += (1.0 - known_share) / records as f64);
    assert!(deviation(&counts, &shares).abs() < 4.0);
    // FNV-1a of eight zero bytes, from the hash's definition.
    assert_eq!(fnv1a(0), 0xa8c7_f832_281a_39c5);
}

#[test]
fn self_similar_choices_repeat_the_rule_in_every_part() {
    let counts = counts(Distribution::SelfSimilar { skew: 0.2 }, 1000, 7);
    let exponent = 0.8f64.ln() / 0.2f64.ln();
    let cumulative = |rank: u64| (rank as f64 / 1000.0).powf(exponent);
    let shares: Vec<f64> = (0..1000).map(|rank| cumulative(rank + 1) - cumulative(rank)).collect();
    assert!(deviation(&counts, &shares).abs() < 4.0);
    let share = |records: usize| counts[..records].iter().sum::<u64>() as f64 / DRAWS as f64;
    assert!((share(200) - 0.8).abs() < 0.005, "{}", share(200));
    assert!((share(40) - 0.64).abs() < 0.005, "{}", share(40));
}

#[test]
fn a_hotspot_gets_its_share_and_both_parts_are_uniform() {
    let counts = counts(Distribution::Hotspot { key_share: 0.1, access_share: 0.7 }, 1000, 8);
    let shares: Vec<f64> = (0..1000).map(|index| if index < 100 { 0.007 } else { 0.3 / 900.0 }).collect();
    assert!(deviation(&counts, &shares).abs() < 4.0);
}

#[test]
fn a_sequential_walk_visits_all_and_begins_apart() {
    let mut chooser = KeyChooser::new(Distribution::Sequential, 10).unwrap();
    let mut random = SeededRandom::new(1);
    let walk: Vec<u64> = (0..12).map(|_| chooser.choose(&mut random, 10)).collect();
    assert_eq!(walk, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
    chooser.start_apart(1, 2);
    assert_eq!(chooser.choose(&mut random, 10), 5);
}

#[test]
fn one_seed_gives_one_sequence() {
    for text in ["uniform", "zipf", "zipf:1.3", "scrambled-zipf", "latest", "self-similar", "hotspot"] {
        let distribution: Distribution = text.parse().unwrap();
        let draw = |seed| {
            let mut chooser = KeyChooser::new(distribution, 100_000).unwrap();
            let mut random = SeededRandom::new(seed);
            (0..100).map(|_| chooser.choose(&mut random, 100_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(9), draw(9), "{text}");
        assert_ne!(draw(9), draw(10), "{text}");
    }
}

#[test]
fn texts_are_read_back_and_wrong_ones_refused() {
    for text in
        ["uniform", "zipf:0.5", "scrambled-zipf:1.5", "latest:0.99", "self-similar:0.1", "hotspot:0.1:0.9"]
    {
        assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
    }
    for text in
        ["", "zip", "zipf:0", "zipf:-1", "zipf:NaN", "zipf:21", "zipf:1:2", "self-similar:0.6", "hotspot:1"]
    {
        assert!(text.parse::<Distribution>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn every_choice_is_a_record(
        theta in 0.01f64..20.0, skew in 0.001f64..0.5, records in 1u64..2000, grown in 0u64..50, seed in any::<u64>(),
    ) {
        for distribution in [
            Distribution::Uniform,
            Distribution::Zipf { theta },
            Distribution::ScrambledZipf { theta },
            Distribution::Latest { theta },
            Distribution::SelfSimilar { skew },
            Distribution::Hotspot { key_share: skew, access_share: skew },
            Distribution::Sequential,
        ] {
            let mut chooser = KeyChooser::new(distribution, records).unwrap();
            let mut random = SeededRandom::new(seed);
            for _ in 0..20 {
                prop_assert!(chooser.choose(&mut random, records + grown) < records + grown);
            }
        }
    }
}
