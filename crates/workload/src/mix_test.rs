use tierstone_base::SeededRandom;

use super::{Mix, OperationKind};

#[test]
fn kinds_come_in_their_shares() {
    let mix = Mix { get: 0.5, set: 0.2, insert: 0.1, scan: 0.1, read_modify_write: 0.05, read_through: 0.05 };
    mix.validate().unwrap();
    let mut random = SeededRandom::new(1);
    let mut counts = [0u32; 6];
    for _ in 0..100_000 {
        counts[mix.choose(&mut random) as usize] += 1;
    }
    let chi_square: f64 = counts
        .iter()
        .zip(mix.shares())
        .map(|(count, share)| (f64::from(*count) - share * 1e5).powi(2) / (share * 1e5))
        .sum();
    assert!(chi_square < 20.5, "five degrees of freedom, p = 0.001: {chi_square}");
}

#[test]
fn a_kind_without_a_share_never_comes() {
    let mut random = SeededRandom::new(2);
    assert!((0..10_000).all(|_| Mix::SET.choose(&mut random) == OperationKind::Set));
    assert!((0..10_000).all(|_| Mix::GET.choose(&mut random) == OperationKind::Get));
}

#[test]
fn shares_that_do_not_sum_to_one_are_refused() {
    assert!(Mix::default().validate().is_err());
    assert!(Mix { get: 1.5, set: -0.5, ..Mix::default() }.validate().is_err());
    assert!(Mix { get: f64::NAN, ..Mix::default() }.validate().is_err());
}

#[test]
fn the_put_ratio_sweep_goes_from_reads_to_writes() {
    let sweep = Mix::put_ratio_sweep(4);
    let ratios: Vec<f64> = sweep.iter().map(|(ratio, _)| *ratio).collect();
    assert_eq!(ratios, [0.0, 0.25, 0.5, 0.75, 1.0]);
    assert!(sweep.iter().all(|(ratio, mix)| mix.set == *ratio && mix.validate().is_ok()));
    assert_eq!(Mix::put_ratio_sweep(0), [(0.0, Mix::GET)]);
}
