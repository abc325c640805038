//! Profiles against a plain list of records.

use super::*;
use proptest::prelude::*;

fn weight(records: &[(u64, bool, u32)], wall_ms: u64, loose: bool) -> Weight {
    let due = records.iter().filter(|(expiry_ms, kind, _)| *expiry_ms <= wall_ms && *kind == loose);
    due.fold(Weight::default(), |mut sum, (_, _, units)| {
        sum.add(Weight { records: 1, units: *units });
        sum
    })
}

fn trace(loose: bool) -> Trace {
    if loose { Trace::None } else { Trace::Tombstone }
}

proptest! {
    /// All records of one length, so that units can be compared too.
    #[test]
    fn what_is_called_due_has_expired_and_nothing_is_forgotten(
        steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 0..60u32, any::<bool>()), 1..300),
        looks in proptest::collection::vec(0..60u32, 8),
    ) {
        let mut profile = ExpiryProfile::default();
        let mut records: Vec<(u64, bool, u32)> = Vec::new();
        // Times from a second to centuries away.
        let time = |bits: u32| (1u64 << (bits % 45)) | (u64::from(bits) * 977);
        for (remove, index, bits, loose) in steps {
            if remove && !records.is_empty() {
                let (expiry_ms, loose, units) = records.swap_remove(index.index(records.len()));
                profile.remove(expiry_ms, trace(loose), units);
            } else {
                profile.add(time(bits), trace(loose), 3);
                records.push((time(bits), loose, 3));
            }
            prop_assert!(profile.buckets.len() <= BUCKETS_MAX);
            prop_assert!(profile.buckets.windows(2).all(|pair| pair[0].until_ms < pair[1].until_ms));
            let all = profile.due(u64::MAX);
            prop_assert_eq!((all.loose, all.tied), (weight(&records, u64::MAX, true), weight(&records, u64::MAX, false)));
            for look in &looks {
                let due = profile.due(time(*look));
                for (due, loose) in [(due.loose, true), (due.tied, false)] {
                    let expired = weight(&records, time(*look), loose);
                    prop_assert!(due.records <= expired.records && due.units <= expired.units);
                }
            }
        }
    }

    #[test]
    fn records_that_expire_together_are_due_at_once(records in 1..5_000u32, at in 1u64..1 << 40) {
        let mut profile = ExpiryProfile::default();
        (0..records).for_each(|_| profile.add(at, Trace::None, 2));
        prop_assert_eq!(profile.due(at - 1).loose.records, 0);
        prop_assert_eq!(profile.due(at + GRAIN_MS).loose, Weight { records, units: 2 * records });
        prop_assert!(profile.next_ms(0).is_some_and(|next| (at..at + GRAIN_MS).contains(&next)));
    }
}

/// An outlier does not make the rest coarse.
#[test]
fn a_far_expiry_leaves_near_ones_apart() {
    let mut profile = ExpiryProfile::default();
    profile.add(1 << 50, Trace::None, 1);
    for second in 1..=100u64 {
        profile.add(second * 1_000, Trace::None, 1);
    }
    let due = profile.due(60_000).loose.records;
    assert!((30..=60).contains(&due), "{due} of 60 are called due");
}
