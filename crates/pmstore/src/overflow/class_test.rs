use super::*;
use tierstone_base::SeededRandom;

/// The first run by a look at every unit of every segment.
fn naive(class: &Class, wanted: u64, from: u32, left_out: Option<u32>) -> Option<(u32, u64)> {
    let segments = class.iter().filter(|(segment, _)| *segment >= from && Some(*segment) != left_out);
    segments.filter_map(|(segment, own)| Some((segment, naive_run(own, class.units, wanted)?))).next()
}

fn naive_run(own: &Units, units: u64, wanted: u64) -> Option<u64> {
    let is_free = |first: u64| (first..first + wanted).all(|at| at < units && !own.is_taken(at));
    (0..units).find(|&first| is_free(first))
}

fn assert_sound(class: &Class) {
    for (segment, own) in class.iter() {
        let longest = (1..=class.units).rev().find(|&wanted| naive_run(own, class.units, wanted).is_some());
        assert!(longest.unwrap_or(0) <= own.longest, "segment {segment}");
        for (at, list) in class.by_room.iter().enumerate() {
            assert_eq!(list.contains(&segment), at == list_of(own.longest), "segment {segment}, list {at}");
        }
    }
    assert_eq!(class.by_room.iter().map(BTreeSet::len).sum::<usize>(), class.len());
}

#[test]
fn room_is_found_where_a_look_at_everything_finds_it() {
    for (seed, units) in [1, 4, 32, 100, 256].into_iter().enumerate() {
        let mut random = SeededRandom::new(seed as u64);
        let (mut class, mut runs) = (Class::new(units), Vec::new());
        for step in 0..3_000 {
            let most = if random.chance(0.1) { units } else { units.min(8) };
            let wanted = 1 + random.below(most);
            let from = if random.chance(0.2) { random.below(12) as u32 } else { 0 };
            let left_out = random.chance(0.2).then(|| random.below(12) as u32);
            let expected = naive(&class, wanted, from, left_out);
            assert_eq!(class.room(wanted, from, left_out), expected, "{units} units, step {step}");
            match (expected, random.below(10)) {
                (Some((segment, first)), 0..6) => {
                    class.set_run(segment, first, wanted, true);
                    runs.push((segment, first, wanted));
                }
                (None, 0..6) if class.len() < 12 => class.insert(random.below(12) as u32),
                (_, 6..8) if !runs.is_empty() => {
                    let (segment, first, count) = runs.swap_remove(random.below(runs.len() as u64) as usize);
                    class.set_run(segment, first, count, false);
                }
                _ => {}
            }
            // What a segment is taken in for anew, or loses, goes with its runs.
            if random.chance(0.005) {
                let segment = random.below(12) as u32;
                class.remove(segment);
            }
            runs.retain(|(segment, first, _)| class.get(*segment).is_some_and(|own| own.is_taken(*first)));
            if step % 10 == 0 {
                assert_sound(&class);
            }
        }
        class.clear();
        assert!(class.iter().all(|(_, own)| own.taken == 0));
        assert_sound(&class);
    }
}

#[test]
fn segments_that_are_full_are_not_looked_at_again() {
    let mut class = Class::new(64);
    (0..100).for_each(|segment| class.insert(segment));
    // Every second unit is taken: there are units, and no two together.
    for (segment, at) in (0..100).flat_map(|segment| (0..64).step_by(2).map(move |at| (segment, at))) {
        class.set_run(segment, at, 1, true);
    }
    assert_eq!(class.room(2, 0, None), None);
    assert!(class.iter().all(|(_, own)| own.longest == 1));
    assert_eq!(class.candidate(2, 0, None), None);
    class.set_run(70, 10, 1, false);
    assert_eq!((class.candidate(2, 0, None), class.room(3, 0, None)), (Some(70), Some((70, 9))));
    assert_eq!(class.room(1, 0, None), Some((0, 1)));
}
