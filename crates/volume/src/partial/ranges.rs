//! Which chunks of a volume are cold, and which rows of a pair are hot by that. Pure.

/// Most runs of cold chunks of a volume: they fit a slot of the map.
pub(crate) const COLD_MAX: usize = 256;

/// Runs of numbers, rising, none empty, none touching the next: (first, one past the last).
pub(crate) type Runs = Vec<(u64, u64)>;

/// `runs` with `first .. end` added, or without it.
pub(crate) fn changed(runs: &Runs, first: u64, end: u64, is_added: bool) -> Runs {
    if first >= end {
        return runs.clone();
    }
    let mut pieces: Runs = Vec::new();
    for &(from, to) in runs {
        pieces
            .extend([(from, to.min(first)), (from.max(end), to)].into_iter().filter(|(from, to)| from < to));
    }
    if is_added {
        pieces.push((first, end));
    }
    pieces.sort_unstable();
    let mut joined: Runs = Vec::new();
    for (from, to) in pieces {
        match joined.last_mut() {
            Some((_, last)) if *last == from => *last = to,
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// What of `0 .. end` is not in `runs`.
pub(crate) fn complement(runs: &Runs, end: u64) -> Runs {
    runs.iter().fold(vec![(0, end)], |rest, &(first, last)| changed(&rest, first, last, false))
}

/// The rows of pair `pair` of `pairs` on which chunks of `chunks` lie, chunks going round the pairs.
pub(crate) fn rows_of(chunks: &Runs, pair: u64, pairs: u64) -> Runs {
    let row = |chunk: u64| chunk.saturating_sub(pair).div_ceil(pairs);
    let rows = chunks.iter().map(|&(first, end)| (row(first), row(end)));
    rows.filter(|(first, end)| first < end)
        .fold(Vec::new(), |all, (first, end)| changed(&all, first, end, true))
}

/// How many numbers runs hold.
pub(crate) fn count(runs: &Runs) -> u64 {
    runs.iter().map(|(first, end)| end - first).sum()
}

/// The how-many-th of all numbers in `runs` this one is.
pub(crate) fn rank(runs: &Runs, number: u64) -> Option<u64> {
    let mut before = 0;
    for &(first, end) in runs {
        if (first..end).contains(&number) {
            return Some(before + number - first);
        }
        before += end - first;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_hold_what_a_set_of_numbers_would(
            steps in prop::collection::vec((0u64..60, 0u64..20, any::<bool>()), 0..30),
            pairs in 1u64..5,
        ) {
            let (mut runs, mut model) = (Runs::new(), std::collections::BTreeSet::new());
            for (first, len, is_added) in steps {
                runs = changed(&runs, first, first + len, is_added);
                for number in first..first + len {
                    if is_added { model.insert(number); } else { model.remove(&number); }
                }
            }
            prop_assert!(runs.windows(2).all(|two| two[0].1 < two[1].0) && runs.iter().all(|run| run.0 < run.1));
            let held: Vec<u64> = runs.iter().flat_map(|&(first, end)| first..end).collect();
            prop_assert_eq!(&held, &model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(count(&runs), held.len() as u64);
            for (place, number) in held.iter().enumerate() {
                prop_assert_eq!(rank(&runs, *number), Some(place as u64));
            }
            let rest = complement(&runs, 90);
            prop_assert!((0..90).all(|number| rank(&rest, number).is_some() != model.contains(&number)));
            for pair in 0..pairs {
                let rows = rows_of(&runs, pair, pairs);
                prop_assert!((0..90).all(|row| rank(&rows, row).is_some() == model.contains(&(row * pairs + pair))));
            }
        }
    }
}
