use super::*;
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;

/// Words are found from where they belong on, and there is room.
fn check(counts: &OldCounts) {
    let mut bytes = size_of_val(&*counts.groups);
    bytes += counts.groups.iter().map(|group| size_of_val(&**group)).sum::<usize>();
    for part in counts.groups.iter().flatten() {
        let words: Vec<u64> = part.lines.iter().flat_map(|line| line.0).collect();
        bytes += words.len() * 8;
        assert_eq!(words.iter().filter(|&&word| word != 0).count(), part.len as usize);
        assert!(part.len as usize * 16 <= words.len() * 13, "{} of {}", part.len, words.len());
        for (at, &word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
            assert_eq!(part.find(word >> COUNT_BITS), (at, word));
        }
    }
    assert_eq!(counts.bytes(), bytes as u64);
}

#[test]
fn counts_are_those_of_a_map() {
    for (seed, space, graves) in [(1, 0, 300), (2, 4 << 20, 20_000), (3, 1 << 20, 40)] {
        let mut random = SeededRandom::new(seed);
        let (mut counts, mut model) = (OldCounts::new(space), BTreeMap::<u64, u32>::new());
        // Grows, stays, shrinks to nothing.
        for (percent, steps) in [(80, 30_000), (50, 30_000), (20, 60_000)] {
            for step in 0..steps {
                // Close to each other, as positions in order are.
                let grave = random.below(graves) << (step % 3 * 20);
                if random.below(100) < percent {
                    counts.add(grave);
                    *model.entry(grave).or_default() += 1;
                    continue;
                }
                let left = model.get(&grave).copied().unwrap_or(0);
                assert_eq!(counts.remove(grave), left == 1, "seed {seed}, step {step}");
                match left {
                    0 | 1 => drop(model.remove(&grave)),
                    left => drop(model.insert(grave, left - 1)),
                }
            }
            check(&counts);
            for (grave, count) in &model {
                assert_eq!(counts.get(*grave), *count, "seed {seed}");
            }
        }
    }
}

#[test]
fn memory_follows_what_is_counted() {
    let mut counts = OldCounts::new(8 << 20);
    let empty = counts.bytes() + (size_of::<Part>() << counts.part_bits) as u64;
    (0..100_000u64).for_each(|grave| counts.add(grave));
    let full = counts.bytes();
    assert!(full <= empty + 100_000 * 14, "{full} bytes for 100,000 positions");
    (0..100_000u64).for_each(|grave| assert!(counts.remove(grave)));
    assert!(counts.bytes() <= empty + (64 << counts.part_bits), "{} bytes for none", counts.bytes());
}

#[test]
fn a_count_that_has_reached_its_most_stays() {
    let mut counts = OldCounts::new(0);
    counts.add(7);
    let (part, tag) = counts.place(7);
    let part = counts.made_part(part);
    let (at, _) = part.find(tag);
    part.set(at, tag << COUNT_BITS | (COUNT_MAX - 1));
    counts.add(7);
    counts.add(7);
    assert_eq!(u64::from(counts.get(7)), COUNT_MAX);
    assert!(!counts.remove(7));
    assert_eq!(u64::from(counts.get(7)), COUNT_MAX);
}

#[test]
fn what_was_never_added_is_not_removed() {
    let mut counts = OldCounts::new(0);
    assert!(!counts.remove(3));
    counts.add(4);
    assert!(!counts.remove(3));
    assert_eq!((counts.get(3), counts.get(4)), (0, 1));
}

#[test]
fn the_counts_of_a_large_empty_store_take_next_to_nothing() {
    let mut counts = OldCounts::new(8 << 40);
    assert!(counts.bytes() <= 2 << 20, "{} bytes", counts.bytes());
    assert_eq!((counts.get(9), counts.remove(9)), (0, false));
    counts.prefetch(9);
    counts.add(9);
    assert_eq!(counts.get(9), 1);
    check(&counts);
}
