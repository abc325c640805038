//! Which versions survive: every combination when there are few, telling patterns when many.
//!
//! A *unit* is what a medium keeps or loses as a whole (a sector, a line, a word). Its versions
//! are numbered from the durable one (zero) to the newest; any of them may survive.

use crate::choices::{Choices, Style};
use std::collections::BTreeSet;
use tierstone_base::SeededRandom;

/// How survivors are chosen. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurvivorSettings {
    /// Up to so many combinations of versions, each unit is decided by itself, so that exhaustive
    /// mode tries all; above, one of eleven patterns is chosen. Default 4,096 (12 sectors).
    pub exhaustive_limit: u64,
    /// Whether a sector may be torn: its head from one version and its tail from the one before,
    /// or the other way round. Off by default, because disks and flash promise whole sectors.
    pub torn_sectors: bool,
}

impl Default for SurvivorSettings {
    fn default() -> Self {
        SurvivorSettings { exhaustive_limit: 4096, torn_sectors: false }
    }
}

/// The versions of one unit whose survivor is open.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Which write made each version, rising; the first entry stands for the durable version.
    pub writes: Vec<u64>,
    /// The versions that differ from each other, the durable one first; two at least.
    pub distinct: Vec<usize>,
}

impl Unit {
    fn newest(&self) -> usize {
        self.writes.len() - 1
    }

    fn newest_write(&self) -> u64 {
        self.writes[self.newest()]
    }

    /// The newest version that no write after `write` made.
    fn up_to(&self, write: u64) -> usize {
        self.writes[1..].iter().take_while(|&&other| other <= write).count()
    }
}

/// How many combinations of versions there are; saturates.
pub(crate) fn combinations(units: &[Unit]) -> u64 {
    units.iter().fold(1u64, |product, unit| product.saturating_mul(unit.distinct.len() as u64))
}

/// The surviving version of each unit. `units` are in the order of their places on the medium.
pub(crate) fn pick(choices: &Choices, units: &[Unit], settings: &SurvivorSettings) -> Vec<usize> {
    if units.is_empty() {
        return Vec::new();
    }
    let few = combinations(units) <= settings.exhaustive_limit;
    // Sampling unit by unit hardly ever meets the extreme patterns of more than a few units, so
    // it tosses a coin between the two ways.
    if few && (choices.style() == Style::Exhaustive || choices.choose(2, "survivors by pattern") == 0) {
        return units
            .iter()
            .map(|unit| unit.distinct[choices.choose(unit.distinct.len() as u64, "survivor") as usize])
            .collect();
    }
    pick_pattern(choices, units)
}

fn pick_pattern(choices: &Choices, units: &[Unit]) -> Vec<usize> {
    let all = |version: fn(&Unit) -> usize| units.iter().map(version).collect::<Vec<_>>();
    let one_unit = |label| choices.choose_position(units.len() as u64, label) as usize;
    match choices.choose(11, "survivor pattern") {
        0 => all(|_| 0),
        1 => all(Unit::newest),
        2 => {
            let last = one_write(choices, units, "last surviving write");
            units.iter().map(|unit| unit.up_to(last)).collect()
        }
        3 => {
            let lost = one_write(choices, units, "last lost write");
            keep_newest(units, |_, unit| unit.newest_write() > lost)
        }
        4 => {
            let last = units.iter().map(Unit::newest_write).max().unwrap_or(0);
            keep_newest(units, |_, unit| unit.newest_write() == last)
        }
        5 => {
            let parity = choices.choose(2, "surviving parity") as usize;
            keep_newest(units, |at, _| at % 2 == parity)
        }
        6 => {
            let mut random = SeededRandom::new(choices.choose_seed("random survivors"));
            let mut any = |unit: &Unit| unit.distinct[random.below(unit.distinct.len() as u64) as usize];
            units.iter().map(&mut any).collect()
        }
        7 => {
            let lost = one_unit("single lost unit");
            keep_newest(units, |at, _| at != lost)
        }
        8 => {
            let kept = one_unit("single kept unit");
            keep_newest(units, |at, _| at == kept)
        }
        9 => {
            let lost = one_write(choices, units, "single lost write");
            keep_newest(units, |_, unit| unit.newest_write() != lost)
        }
        _ => torn_write(choices, units),
    }
}

/// All before one write survives, of that write its first or its last units, nothing after.
fn torn_write(choices: &Choices, units: &[Unit]) -> Vec<usize> {
    let torn = one_write(choices, units, "torn write");
    let members = units.iter().filter(|unit| unit.writes[1..].contains(&torn)).count() as u64;
    let cut = choices.choose_position(members + 1, "torn at unit");
    let head_survives = choices.choose(2, "torn part that is lost") == 0;
    let mut member = 0;
    let survivor = |unit: &Unit| {
        let kept = unit.up_to(torn);
        if unit.writes[kept] != torn || kept == 0 {
            return kept;
        }
        let in_head = member < cut;
        member += 1;
        if in_head == head_survives { kept } else { kept - 1 }
    };
    units.iter().map(survivor).collect()
}

fn keep_newest(units: &[Unit], kept: impl Fn(usize, &Unit) -> bool) -> Vec<usize> {
    let survivor = |(at, unit): (usize, &Unit)| if kept(at, unit) { unit.newest() } else { 0 };
    units.iter().enumerate().map(survivor).collect()
}

fn one_write(choices: &Choices, units: &[Unit], label: &'static str) -> u64 {
    let writes = units.iter().flat_map(|unit| unit.writes[1..].iter().copied()).collect::<BTreeSet<_>>();
    let at = choices.choose_position(writes.len() as u64, label) as usize;
    writes.into_iter().nth(at).unwrap_or(0)
}

#[cfg(test)]
#[path = "survivors_test.rs"]
mod survivors_test;
