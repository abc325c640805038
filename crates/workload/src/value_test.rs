use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{ValueFault, ValueMaker, ValueSettings, check_value};
use crate::key::SizeDistribution;

fn maker(size: u32, zero_share: f64) -> ValueMaker {
    ValueMaker::new(ValueSettings { size: SizeDistribution::Fixed(size), zero_share }, 1)
}

fn value(maker: &ValueMaker, id: u64, version: u64) -> Vec<u8> {
    let mut out = Vec::new();
    maker.append(id, version, &mut out);
    out
}

#[test]
fn eight_byte_windows_do_not_repeat_within_or_between_values() {
    let maker = maker(200_000, 0.0);
    let mut seen = BTreeSet::new();
    for id in 0..2 {
        for window in value(&maker, id, 0)[16..].chunks_exact(8) {
            assert!(seen.insert(window.to_vec()), "repeated {window:?}");
        }
    }
}

#[test]
fn the_share_of_zeros_is_kept() {
    let zeros = value(&maker(10_000, 0.5), 3, 1).iter().filter(|byte| **byte == 0).count();
    assert!((4_980..5_100).contains(&zeros), "{zeros}");
}

#[test]
fn a_value_of_another_key_is_named() {
    let value = value(&maker(100, 0.0), 7, 2);
    assert_eq!(check_value(8, &value), Err(ValueFault::WrongKey { found: 7 }));
    assert_eq!(check_value(7, &value), Ok(Some(2)));
}

proptest! {
    #[test]
    fn values_are_recognised_and_damage_is_seen(
        size in 0u32..3000, id in any::<u64>(), version in any::<u64>(), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let maker = maker(size, 0.25);
        let mut bytes = value(&maker, id, version);
        prop_assert_eq!(bytes.len(), size as usize);
        prop_assert_eq!(check_value(id, &bytes), Ok((size >= 24).then_some(version)));
        if size > 0 {
            let index = at.index(bytes.len());
            bytes[index] ^= 1 << bit;
            prop_assert_eq!(check_value(id, &bytes), Err(ValueFault::Damaged));
        }
    }

    #[test]
    fn any_bytes_can_be_checked(id in any::<u64>(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = check_value(id, &bytes);
        prop_assert!(bytes.len() < 8 || check_value(id, &bytes).is_err());
    }
}
