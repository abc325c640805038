use super::*;
use crate::explore::{ExploreSettings, explore};

/// `count` units, each written once, by write 1, 2, 3 in turn.
fn units(count: usize) -> Vec<Unit> {
    (0..count).map(|at| Unit { writes: vec![0, 1 + (at as u64) % 3], distinct: vec![0, 1] }).collect()
}

fn patterns(units: &[Unit], settings: SurvivorSettings, explore_as: ExploreSettings) -> BTreeSet<Vec<usize>> {
    let mut seen = BTreeSet::new();
    explore(explore_as, |choices| {
        let picked = pick(choices, units, &settings);
        assert!(picked.iter().zip(units).all(|(&version, unit)| version < unit.writes.len()));
        seen.insert(picked);
        Ok(())
    })
    .assert_clean();
    seen
}

#[test]
fn few_units_are_all_combined() {
    let seen = patterns(&units(5), SurvivorSettings::default(), ExploreSettings::exhaustive());
    assert_eq!(seen.len(), 32);
}

#[test]
fn many_units_meet_each_telling_pattern() {
    let (units, none) = (units(12), SurvivorSettings { exhaustive_limit: 0, torn_sectors: false });
    let seen = patterns(&units, none, ExploreSettings::exhaustive());
    let by = |kept: &dyn Fn(usize) -> bool| (0..12).map(|at| usize::from(kept(at))).collect::<Vec<_>>();
    for (name, pattern) in [
        ("none", by(&|_| false)),
        ("all", by(&|_| true)),
        ("prefix of writes", by(&|at| at % 3 < 2)),
        ("suffix of writes", by(&|at| at % 3 > 0)),
        ("last write", by(&|at| at % 3 == 2)),
        ("every other", by(&|at| at % 2 == 1)),
        ("one lost", by(&|at| at != 7)),
        ("one kept", by(&|at| at == 7)),
        ("one write lost", by(&|at| at % 3 != 1)),
        ("second write torn", by(&|at| at % 3 == 0 || (at % 3 == 1 && at < 6))),
    ] {
        assert!(seen.contains(&pattern), "{name}");
    }
    assert!(seen.len() < 200, "{} patterns", seen.len());
}

#[test]
fn sampling_meets_the_extremes_and_the_middle_of_many_units() {
    let sampled = ExploreSettings::random(5, 2000);
    let seen = patterns(&units(200), SurvivorSettings::default(), sampled);
    let kept: BTreeSet<usize> = seen.iter().map(|picked| picked.iter().sum()).collect();
    assert!([0, 1, 199, 200].iter().all(|count| kept.contains(count)));
    assert!(kept.iter().any(|count| (80..120).contains(count)));
}

#[test]
fn sampling_few_units_meets_every_combination() {
    let seen = patterns(&units(4), SurvivorSettings::default(), ExploreSettings::random(9, 600));
    assert_eq!(seen.len(), 16);
}

#[test]
fn a_prefix_keeps_the_newest_version_within_it() {
    let unit = Unit { writes: vec![0, 2, 5, 9], distinct: vec![0, 1, 2, 3] };
    let kept: Vec<usize> = [1, 2, 4, 5, 8, 9, 100].into_iter().map(|write| unit.up_to(write)).collect();
    assert_eq!(kept, [0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(combinations(&[unit.clone(), unit]), 16);
}
