//! Scrubbing: everything that the indexes lead to is read again and again, at a rate that the operator gives, so that rot
//! is found before somebody needs the record. A pass is a walk as of a verification ([`crate::verify`]); it begins a
//! minute after the opening, and each a day after the one before at the earliest.
//!
//! Invariants:
//! 1. What is read in any time is at most the rate times that time, and one step (`scrub_unpaced`).
//! 2. A pass reads each record at most once, but for those that are written during it.
//! 3. Memory: [`FINDINGS_MAX`] findings that nobody has taken.
//!
//! It changes nothing: what is damaged stays as it is, and whoever reads it gets the error. A crash leaves nothing of it.

use crate::shard::PmShard;
use crate::verify::Walk;
use tierstone_engine::{ScrubDamage, ScrubStatistics};

/// How long after the opening the first pass begins, and how long the one after the other, in microseconds, at least.
const FIRST_PASS_US: u64 = 60_000_000;
const PASS_EVERY_US: u64 = 86_400_000_000;
/// Findings that wait to be told; more are only counted.
const FINDINGS_MAX: usize = 100;
/// Parts of a million that a pass has done at most before its end: how much there is, is not known to the byte.
const PROGRESS_MAX_PPM: u64 = 999_999;

/// The scrubbing of a shard.
#[derive(Debug, Default)]
pub(crate) struct Scrubber {
    /// Bytes a second; 0: off.
    rate: u64,
    /// When the next pass begins; `None` before the first step.
    due_us: Option<u64>,
    pass: Option<Pass>,
    /// When the next step of a pass may come.
    paced_us: u64,
    counts: ScrubStatistics,
    last_damage: ScrubDamage,
    findings: Vec<String>,
}

/// A pass under way.
#[derive(Debug)]
struct Pass {
    walk: Walk,
    began_us: u64,
    bytes: u64,
    bytes_total: u64,
    damage: ScrubDamage,
}

impl Scrubber {
    /// When a step would do something.
    pub fn due_at_us(&self) -> Option<u64> {
        if self.rate == 0 {
            return None;
        }
        Some(if self.pass.is_some() { self.paced_us } else { self.due_us.unwrap_or(0) })
    }

    /// What it does and has found.
    pub fn statistics(&self) -> ScrubStatistics {
        let (mut progress_ppm, mut damage) = (0, self.last_damage);
        if let Some(pass) = &self.pass {
            progress_ppm = (pass.bytes * 1_000_000 / pass.bytes_total.max(1)).min(PROGRESS_MAX_PPM);
            damage = damage.max(pass.damage);
        }
        ScrubStatistics { rate: self.rate, progress_ppm, damage, ..self.counts }
    }

    /// What was found since this was asked last.
    pub fn take_findings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.findings)
    }
}

impl PmShard {
    /// Sets the rate. What had begun goes on; a pass begins at once when none is under way, unless the store is just
    /// being opened.
    pub(crate) fn change_scrub_rate(&mut self, bytes_per_second: u64) {
        if self.is_shutting || bytes_per_second == self.scrubber.rate {
            return;
        }
        self.scrubber.rate = bytes_per_second;
        self.scrubber.due_us = self.scrubber.due_us.map(|_| 0);
    }

    /// Reads the next records of a pass, when it is time.
    pub(crate) fn scrub_step(&mut self) {
        let now_us = self.now.monotonic_us;
        let due_us = *self.scrubber.due_us.get_or_insert(now_us + FIRST_PASS_US);
        if self.scrubber.rate == 0 || self.is_shutting {
            return;
        }
        if self.scrubber.pass.is_none() {
            if now_us < due_us {
                return;
            }
            let (walk, bytes_total) = (self.begin_walk(), self.readable_bytes());
            let damage = ScrubDamage::default();
            self.scrubber.pass = Some(Pass { walk, began_us: now_us, bytes: 0, bytes_total, damage });
        }
        if now_us < self.scrubber.paced_us && !self.mutations.is_on("scrub_unpaced") {
            return;
        }
        let Some(mut pass) = self.scrubber.pass.take() else { return };
        let walked = self.walk_some(&mut pass.walk);
        pass.bytes += walked.bytes;
        let scrubber = &mut self.scrubber;
        scrubber.counts.bytes += walked.bytes;
        let wait_us = u128::from(walked.bytes) * 1_000_000 / u128::from(scrubber.rate) + 1;
        scrubber.paced_us = now_us.saturating_add(u64::try_from(wait_us).unwrap_or(u64::MAX));
        for wrong in walked.wrong {
            let damage = &mut pass.damage;
            *(if wrong.lost_keys > 0 { &mut damage.records } else { &mut damage.structures }) += 1;
            if scrubber.findings.len() < FINDINGS_MAX {
                scrubber.findings.push(wrong.finding);
            }
        }
        match walked.is_over {
            true => self.end_scrub_pass(&pass),
            false => scrubber.pass = Some(pass),
        }
    }

    fn end_scrub_pass(&mut self, pass: &Pass) {
        let now = self.now;
        let counts = &mut self.scrubber.counts;
        counts.passes += 1;
        counts.last_pass_at_ms = now.wall_ms;
        counts.last_pass_ms = now.monotonic_us.saturating_sub(pass.began_us) / 1_000;
        counts.last_pass_bytes = pass.bytes;
        self.scrubber.last_damage = pass.damage;
        self.scrubber.due_us = Some(pass.began_us.saturating_add(PASS_EVERY_US).max(now.monotonic_us));
    }
}

#[cfg(test)]
#[path = "scrub_test.rs"]
mod scrub_test;
