//! The places of tombstones against lists of them.

use super::*;
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;

#[test]
fn places_of_tombstones_are_those_that_were_added_and_not_taken() {
    let mut random = SeededRandom::new(5);
    let mut graves = Graves::new(1 << 20);
    let mut model: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for step in 0..20_000_u64 {
        let grave = random.below(40) * 0x9e37_79b9;
        let known = model.entry(grave).or_default();
        match random.below(8) {
            0..=3 => {
                graves.add_tombstone(grave, step);
                known.push(step);
            }
            4 | 5 => {
                let from = if known.is_empty() {
                    u64::MAX
                } else {
                    known[random.below(known.len() as u64) as usize]
                };
                let to = random.chance(0.5).then_some(step);
                graves.move_tombstone(grave, from, to);
                if !known.is_empty() {
                    known.retain(|&place| place != from);
                    known.extend(to);
                }
            }
            6 if random.chance(0.2) => {
                let mut taken = graves.take_tombstones(grave);
                taken.sort_unstable();
                known.sort_unstable();
                assert_eq!(taken, std::mem::take(known), "step {step}");
            }
            _ => {}
        }
        let mut places = graves.tombstones_of(grave);
        places.sort_unstable();
        known.sort_unstable();
        assert_eq!(&places, known, "step {step}");
        assert_eq!(graves.tombstone_count(), model.values().map(|known| known.len() as u64).sum::<u64>());
    }
    let mut with_some: Vec<u64> = graves.unneeded();
    with_some.sort_unstable();
    let expected: Vec<u64> =
        model.iter().filter(|(_, known)| !known.is_empty()).map(|(grave, _)| *grave).collect();
    assert_eq!(with_some, expected);
}
