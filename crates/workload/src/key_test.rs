use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{KeyFormat, KeyOrder, SizeDistribution};

#[test]
fn keys_have_a_fixed_width_and_keep_the_order() {
    let format = KeyFormat::default();
    assert_eq!(format.key(42), b"key:000000000042");
    assert!(format.key(9) < format.key(10));
    assert_eq!(format.size_of(42), 16);
}

#[test]
fn padded_and_hashed_keys_stay_distinct() {
    let format = KeyFormat {
        prefix: "u".into(),
        digits: 20,
        order: KeyOrder::Hashed,
        size: Some(SizeDistribution::Uniform { min: 16, max: 40 }),
    };
    format.validate(u64::MAX).unwrap();
    let keys: BTreeSet<Vec<u8>> = (0..10_000).map(|id| format.key(id)).collect();
    assert_eq!(keys.len(), 10_000);
    assert!(keys.iter().all(|key| (21..=40).contains(&key.len())));
    assert_eq!(keys.iter().map(Vec::len).collect::<BTreeSet<_>>().len(), 20);
    assert!((0..100).all(|id| format.key(id).len() == format.size_of(id)));
}

#[test]
fn formats_that_do_not_fit_are_refused() {
    let format = |digits, order| KeyFormat { digits, order, ..KeyFormat::default() };
    assert!(format(3, KeyOrder::Ordered).validate(1000).is_ok());
    assert!(format(3, KeyOrder::Ordered).validate(1001).is_err());
    assert!(format(0, KeyOrder::Ordered).validate(1).is_err());
    assert!(format(21, KeyOrder::Ordered).validate(1).is_err());
    assert!(format(19, KeyOrder::Hashed).validate(1).is_err());
    for size in [
        SizeDistribution::List(vec![]),
        SizeDistribution::Uniform { min: 2, max: 1 },
        SizeDistribution::Fixed(u32::MAX),
    ] {
        assert!(size.validate().is_err(), "{size:?}");
    }
}

proptest! {
    #[test]
    fn sizes_stay_in_their_range(min in 0u32..1000, spread in 0u32..1000, bits in any::<u64>()) {
        let uniform = SizeDistribution::Uniform { min, max: min + spread };
        prop_assert!((min..=min + spread).contains(&uniform.pick(bits)));
        let list = vec![min, spread, 7];
        prop_assert!(list.contains(&SizeDistribution::List(list.clone()).pick(bits)));
    }
}
