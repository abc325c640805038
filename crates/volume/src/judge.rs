//! Which member tells the truth about all, and which of them are stale.
//!
//! Every member that counts gets every generation of the superblock, one after the other: a round begins when the
//! one before it has ended on all of them. So a member that counts lags by one generation at most, after a crash in
//! the middle of a round. A failure is named in two generations that follow each other ([`crate::core::Core`]'s
//! `fail_member`), so what a lost member holds lags by two at least as soon as anything counts that it has missed; also
//! when another was put in its place, of the same name and number.
//!
//! What need not have every generation:
//! - a disk that is behind: it was told so last, and says so of itself. Before it counts again it is given the generation
//!   of the others (`catch_up`);
//! - the other disk of such a pair, where pairs may sleep whole: it has every generation up to the one that the disk
//!   behind was told;
//! - a new member of which no row counts yet.

use crate::layout::Layout;
use crate::superblock::{Health, Superblock};

/// What a member says that this module needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a> {
    pub generation: u64,
    pub layout: &'a Layout,
    pub states: &'a [Health],
    /// Whether pairs may sleep whole: then a disk that stands is told nothing.
    pub may_stand: bool,
}

impl<'a> Said<'a> {
    pub(crate) fn by(superblock: &'a Superblock) -> Said<'a> {
        Said {
            generation: superblock.generation,
            layout: &superblock.layout,
            states: &superblock.states,
            may_stand: superblock.spare_rows > 0,
        }
    }

    fn calls_failed(&self, index: usize) -> bool {
        self.states.get(index) == Some(&Health::Failed)
    }
}

/// The member whose word counts: one of the highest generation, and of several one that none of these calls failed.
pub(crate) fn authority(said: &[Option<Said<'_>>]) -> Option<usize> {
    let newest = said.iter().flatten().map(|said| said.generation).max()?;
    let tells = |index: &usize| said[*index].is_some_and(|said| said.generation == newest);
    let tellers: Vec<usize> = (0..said.len()).filter(tells).collect();
    let is_accused =
        |index: usize| tellers.iter().filter_map(|&other| said[other]).any(|other| other.calls_failed(index));
    tellers.iter().rev().find(|&&index| !is_accused(index)).or(tellers.last()).copied()
}

/// Whether member `index` has missed generations that it would have, if it were what `newest` speaks of.
pub(crate) fn is_stale(said: &[Option<Said<'_>>], newest: usize, index: usize) -> bool {
    let (Some(Some(truth)), Some(Some(own))) = (said.get(newest), said.get(index)) else { return false };
    match truth.states.get(index) {
        None | Some(Health::Failed | Health::Rebuilding { row: 0 }) => false,
        Some(Health::Behind) => own.states.get(index) != Some(&Health::Behind),
        Some(Health::InSync | Health::Rebuilding { .. }) => {
            let mut others = truth.layout.members(truth.layout.group_of(index));
            let behind = others.find(|&other| truth.states.get(other) == Some(&Health::Behind));
            let needed = match behind {
                // It may have stood since that disk was told to sleep.
                Some(behind) if truth.may_stand => {
                    said.get(behind).copied().flatten().map_or(0, |behind| behind.generation)
                }
                _ => truth.generation,
            };
            own.generation.saturating_add(1) < needed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Redundancy;
    use Health::{Behind, Failed, InSync};

    const PAIRS: Layout =
        Layout { redundancy: Redundancy::Mirror, groups: 2, width: 2, chunk_bytes: 4096, rows: 8 };

    fn said(generation: u64, states: &[Health]) -> Option<Said<'_>> {
        Some(Said { generation, layout: &PAIRS, states, may_stand: false })
    }

    #[test]
    fn of_equal_generations_one_counts_that_none_of_them_calls_failed() {
        let (whole, without_last) = ([InSync; 4], [InSync, InSync, InSync, Failed]);
        let all = [said(7, &without_last), said(7, &without_last), said(6, &whole), said(7, &whole)];
        assert_eq!(authority(&all), Some(1));
        assert_eq!(authority(&[None, said(7, &whole), said(8, &whole)]), Some(2));
        assert_eq!(authority(&[None, None]), None);
    }

    #[test]
    fn a_member_that_lags_by_two_generations_is_stale() {
        let whole = [InSync; 4];
        let all = [said(9, &whole), said(8, &whole), said(7, &whole), None];
        assert_eq!([0, 1, 2, 3].map(|index| is_stale(&all, 0, index)), [false, false, true, false]);
        let filled = [InSync, InSync, Health::Rebuilding { row: 3 }, Health::Rebuilding { row: 0 }];
        let all = [said(9, &filled), said(9, &filled), said(7, &whole), said(2, &whole)];
        assert_eq!([2, 3].map(|index| is_stale(&all, 0, index)), [true, false], "rows that count");
    }

    #[test]
    fn disks_that_sleep_may_lag_and_others_in_their_place_are_stale() {
        let (whole, asleep) = ([InSync; 4], [InSync, Behind, InSync, InSync]);
        let all = [said(90, &asleep), said(40, &asleep), said(90, &asleep), said(89, &asleep)];
        assert!((0..4).all(|index| !is_stale(&all, 0, index)));
        let other = [said(90, &asleep), said(40, &whole), said(90, &asleep), said(90, &asleep)];
        assert!(is_stale(&other, 0, 1), "it was never told to sleep");
        let woken = [said(90, &whole), said(40, &asleep), said(90, &whole), said(90, &whole)];
        assert!(is_stale(&woken, 0, 1), "before it counts it is given what the others have");
        // The first disk of the pair stands.
        let stands = |first: u64| {
            let mut all = [said(first, &whole), said(40, &asleep), said(90, &asleep), said(90, &asleep)];
            all.iter_mut().flatten().for_each(|said| said.may_stand = true);
            is_stale(&all, 2, 0)
        };
        assert_eq!([38, 39, 40, 90].map(stands), [true, false, false, false]);
    }
}
