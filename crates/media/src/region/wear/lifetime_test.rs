//! Lifetimes against closed forms and against a memory worn out write by write.

use super::super::start_gap::writes_until_worn;
use super::*;
use tierstone_base::SeededRandom;

const SETTINGS: LifetimeSettings =
    LifetimeSettings { endurance_writes: 1e6, line_writes_per_second: 1e6, psi: 100, scatter_seed: 1 };

fn close(found: f64, expected: f64, tolerance: f64) -> bool {
    (found / expected - 1.0).abs() <= tolerance
}

#[test]
fn equal_writes_last_as_long_as_perfect_levelling_less_the_moves_of_the_gap() {
    let found = lifetime(&[7; 1000], &SETTINGS).unwrap();
    let perfect = 1e6 * 1000.0 / 1e6 / YEAR_SECONDS;
    assert!(close(found.years_perfect, perfect, 1e-12) && close(found.years_unlevelled, perfect, 1e-12));
    // One write in a hundred more, one place more.
    assert!(close(found.years_start_gap, perfect * (100.0 / 101.0) * (1001.0 / 1000.0), 1e-3), "{found:?}");
}

#[test]
fn one_hot_line_lasts_as_long_as_its_cell_and_with_levelling_as_long_as_all() {
    let mut writes = vec![0; 1000];
    writes[17] = 5;
    let settings = LifetimeSettings { endurance_writes: 1e8, ..SETTINGS };
    let found = lifetime(&writes, &settings).unwrap();
    assert!(close(found.years_unlevelled, found.years_perfect / 1000.0, 1e-9), "{found:?}");
    assert!(close(found.years_start_gap, found.years_perfect, 0.02), "{found:?}");
    // A cell that does not outlast one visit gains nothing.
    let weak = lifetime(&writes, &LifetimeSettings { endurance_writes: 1e4, ..SETTINGS }).unwrap();
    assert!(close(weak.years_start_gap, weak.years_unlevelled, 0.02), "{weak:?}");
}

#[test]
fn the_published_endurance_follows_from_its_rate() {
    // Pelley 2014, Figure 5.7: 32 GiB, ten years, 1e6 writes a cell allow 104 MiB/s of evenly spread writes.
    let (lines, ten_years) = ((32u64 << 30) as f64 / 64.0, 10.0 * YEAR_SECONDS);
    let rate = 1e6 * lines / ten_years;
    assert!(close(rate * 64.0 / f64::from(1 << 20), 104.0, 0.01), "{rate} lines a second");
    let settings = LifetimeSettings { line_writes_per_second: rate / lines * 10.0, ..SETTINGS };
    assert!(close(lifetime(&[1; 10], &settings).unwrap().years_perfect, 10.0, 1e-9));
}

#[test]
fn a_lifetime_is_that_of_a_memory_worn_out_write_by_write() {
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let lines = 2 + random.below(60);
        let weights: Vec<u64> = (0..lines).map(|_| 1 + random.below(20).pow(3)).collect();
        let psi = 1 + random.below(8);
        // A few cycles, so that the rest of the last one counts.
        let endurance = lines * (psi + 1) * (1 + random.below(4)) + random.below(lines * psi) + 500;
        let total: u64 = weights.iter().sum();
        let mut next = SeededRandom::new(seed + 1_000);
        let served = writes_until_worn(lines, Some(psi), endurance, || {
            let mut at = next.below(total);
            weights
                .iter()
                .position(|&weight| {
                    let found = at < weight;
                    at = at.saturating_sub(weight);
                    found
                })
                .unwrap() as u64
        });
        let told = start_gap_writes(&weights, psi, endurance as f64);
        // Random writes reach the end a little before their mean.
        assert!(close(served as f64, told, 0.15), "seed {seed}: {served} served, {told} told");
    }
}

#[test]
fn what_gives_no_lifetime_is_refused() {
    for (writes, settings) in [
        (&[0, 0][..], SETTINGS),
        (&[], SETTINGS),
        (&[1], LifetimeSettings { psi: 0, ..SETTINGS }),
        (&[1], LifetimeSettings { endurance_writes: f64::NAN, ..SETTINGS }),
        (&[1], LifetimeSettings { line_writes_per_second: 0.0, ..SETTINGS }),
    ] {
        assert_eq!(lifetime(writes, &settings).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(lifetime(&[3], &SETTINGS).is_ok_and(|found| found.years_start_gap > 0.0), "a single line");
}
