//! The segments of one class of units: which units are taken, and which segments may have room.
//!
//! A segment stands in a list by an upper bound of its longest free run, so that a search looks at none that is known to be too
//! full. Freeing raises the bound to what the run is part of; a search that fails lowers it to what it has seen: each taking
//! makes one search fail at most.
//!
//! Invariants:
//! 1. No free run of a segment is longer than its `longest` says.
//! 2. A segment is in the list of `min(longest, RUNS_TOLD)`, and in no other.

use super::{NO_RUN, UNNAMED};
use std::collections::{BTreeMap, BTreeSet};

/// Longer runs are not told apart: no value has more units where a segment of values has 32.
const RUNS_TOLD: u64 = 32;

/// A segment of units.
#[derive(Debug)]
pub(super) struct Units {
    /// A bit for every unit that is taken.
    bits: Vec<u64>,
    /// How many are.
    pub taken: u64,
    /// No free run is longer.
    longest: u64,
    /// Of every unit at which a run begins, the block of the record that names it.
    pub named_by: Vec<u32>,
}

impl Units {
    fn new(units: u64) -> Self {
        let bits = vec![0; units.div_ceil(64) as usize];
        Units { bits, taken: 0, longest: units, named_by: vec![NO_RUN; units as usize] }
    }

    pub fn is_taken(&self, at: u64) -> bool {
        self.bits.get((at / 64) as usize).is_some_and(|word| word & 1 << (at % 64) != 0)
    }

    fn set(&mut self, at: u64, is_taken: bool) -> bool {
        let Some(word) = self.bits.get_mut((at / 64) as usize) else { return false };
        let (mask, before) = (1 << (at % 64), *word);
        *word = if is_taken { before | mask } else { before & !mask };
        *word != before
    }

    /// Takes or frees a run of a segment of `units`.
    fn set_run(&mut self, first: u64, count: u64, is_taken: bool, units: u64) {
        let changed = (first..first + count).filter(|&at| self.set(at, is_taken)).count() as u64;
        self.taken = if is_taken { self.taken + changed } else { self.taken - changed };
        self.name(first, if is_taken { UNNAMED } else { NO_RUN });
        let free = units - self.taken;
        if !is_taken {
            let run = self.run_around(first, count, units);
            self.longest = if run < RUNS_TOLD { self.longest.max(run) } else { free };
        }
        self.longest = self.longest.min(free);
    }

    /// How long the free run is of which these units are part, or [`RUNS_TOLD`] if it may be longer.
    fn run_around(&self, first: u64, count: u64, units: u64) -> u64 {
        let from = first.saturating_sub(RUNS_TOLD);
        let before = (from..first).rev().take_while(|&at| !self.is_taken(at)).count() as u64;
        let end = self.next(first + count, units, true);
        (before + (end - first)).min(RUNS_TOLD)
    }

    pub fn name(&mut self, first: u64, by: u32) {
        if let Some(named_by) = self.named_by.get_mut(first as usize) {
            *named_by = by;
        }
    }

    /// The first unit from `at` on that is taken, or free; `units` if there is none.
    fn next(&self, mut at: u64, units: u64, is_taken: bool) -> u64 {
        while at < units {
            let word = self.bits.get((at / 64) as usize).copied().unwrap_or(u64::MAX);
            let rest = if is_taken { word } else { !word } >> (at % 64);
            if rest != 0 {
                return units.min(at + u64::from(rest.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        units
    }

    /// Where the first run of `wanted` free units begins; `Err`: how long the longest one is.
    fn run(&self, units: u64, wanted: u64) -> Result<u64, u64> {
        let (mut at, mut longest) = (0, 0);
        while at < units {
            let first = self.next(at, units, false);
            at = self.next(first, units, true);
            if first < units && at - first >= wanted {
                return Ok(first);
            }
            longest = longest.max(at - first);
        }
        Err(longest)
    }
}

/// All segments of a class.
#[derive(Debug)]
pub(super) struct Class {
    /// Units of a segment.
    units: u64,
    segments: BTreeMap<u32, Units>,
    /// By the longest run that they may have.
    by_room: Vec<BTreeSet<u32>>,
}

fn list_of(longest: u64) -> usize {
    longest.min(RUNS_TOLD) as usize
}

impl Class {
    pub fn new(units: u64) -> Self {
        let by_room = vec![BTreeSet::new(); list_of(units) + 1];
        Class { units, segments: BTreeMap::new(), by_room }
    }

    pub fn len(&self) -> usize {
        self.segments.len()
    }

    pub fn has(&self, segment: u32) -> bool {
        self.segments.contains_key(&segment)
    }

    pub fn get(&self, segment: u32) -> Option<&Units> {
        self.segments.get(&segment)
    }

    /// The segments by their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Units)> {
        self.segments.iter().map(|(segment, own)| (*segment, own))
    }

    /// Takes in a segment of which no unit is taken.
    pub fn insert(&mut self, segment: u32) {
        self.remove(segment);
        self.segments.insert(segment, Units::new(self.units));
        self.by_room[list_of(self.units)].insert(segment);
    }

    pub fn remove(&mut self, segment: u32) {
        if let Some(own) = self.segments.remove(&segment) {
            self.by_room[list_of(own.longest)].remove(&segment);
        }
    }

    /// No unit of any is taken any more.
    pub fn clear(&mut self) {
        let segments: Vec<u32> = self.segments.keys().copied().collect();
        segments.into_iter().for_each(|segment| self.insert(segment));
    }

    /// A record of block `by` names the run at `first`.
    pub fn name(&mut self, segment: u32, first: u64, by: u32) {
        if let Some(own) = self.segments.get_mut(&segment) {
            own.name(first, by);
        }
    }

    /// Takes or frees a run; how many units are taken then, if there is such a segment.
    pub fn set_run(&mut self, segment: u32, first: u64, count: u64, is_taken: bool) -> Option<u64> {
        let units = self.units;
        self.change(segment, |own| {
            own.set_run(first, count, is_taken, units);
            own.taken
        })
    }

    /// Changes a segment, which comes to stand where it belongs.
    fn change<T>(&mut self, segment: u32, change: impl FnOnce(&mut Units) -> T) -> Option<T> {
        let own = self.segments.get_mut(&segment)?;
        let before = list_of(own.longest);
        let changed = change(own);
        let after = list_of(own.longest);
        if after != before {
            self.by_room[before].remove(&segment);
            self.by_room[after].insert(segment);
        }
        Some(changed)
    }

    /// The first run of `wanted` free units in the segments from `from` on, `left_out` not looked at. Cost: a look at each
    /// list, and at the segment found; at others whose bound was too high, which is right then.
    pub fn room(&mut self, wanted: u64, mut from: u32, left_out: Option<u32>) -> Option<(u32, u64)> {
        loop {
            let segment = self.candidate(wanted, from, left_out)?;
            let own = self.segments.get(&segment)?;
            if own.longest >= wanted {
                match own.run(self.units, wanted) {
                    Ok(first) => return Some((segment, first)),
                    Err(longest) => self.change(segment, |own| own.longest = longest)?,
                }
            }
            from = segment.checked_add(1)?;
        }
    }

    /// The first segment from `from` on that may have such a run.
    fn candidate(&self, wanted: u64, from: u32, left_out: Option<u32>) -> Option<u32> {
        let lists = self.by_room.get(list_of(wanted)..)?;
        let first_of =
            |list: &BTreeSet<u32>| list.range(from..).copied().find(|segment| Some(*segment) != left_out);
        lists.iter().filter_map(first_of).min()
    }
}

#[cfg(test)]
#[path = "class_test.rs"]
mod class_test;
