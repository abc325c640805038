//! Scrubbing: everything that is sealed is read again and again, at a rate that the operator gives, so that rot is
//! found before somebody needs the record.
//!
//! A pass goes through the numbers of the segments once round, from one that depends on the opening: a store that is opened
//! often is not scrubbed at its beginning only. Of a sealed segment header, footer, summary (in parts, against the
//! footer's checksum) and then, in pieces, all records that the summary names are read; at the end of the
//! pass the first shard reads the superblock. What a record must be is what a verification says
//! ([`crate::verify`]). It does not hold the index against the segments, nor read checkpoints, without which the
//! summaries give the same index; `check --server` does the first.
//!
//! Invariants:
//! 1. What is read in any time is at most the rate times that time, and one read (`scrub_unpaced`).
//! 2. Nothing is pinned: a segment that was emptied or reused while it was read is abandoned, and what came of it
//!    says nothing (`scrub_trusts_freed`).
//! 3. A pass reads each segment at most once (`scrub_reads_twice`). Open ones are the next pass's.
//! 4. Only what is durable and sealed is judged, so no torn end of a log is; a superblock, which may be written just now,
//!    only when it is damaged twice (`scrub_believes_one_look`).
//! 5. A key counts as lost only by the record that the index leads to (`scrub_blames_old_records`).
//! 6. One read is in flight; it waits while a group is being written or records are read for others, [`GIVES_WAY_US`]
//!    at most.
//! 7. Memory: one part of a summary, one piece, [`FINDINGS_MAX`] findings that nobody has taken.
//!
//! It changes nothing: what is damaged stays as it is, and whoever reads it gets the error. A crash leaves nothing of it.

mod read;

use crate::shard::LogShard;
use read::Current;
use tierstone_base::checksum::salt;
use tierstone_engine::{ScrubDamage, ScrubStatistics};

/// How long after the opening the first pass begins, and how long the one after the other, in microseconds, at
/// least: small stores are not read all the time.
const FIRST_PASS_US: u64 = 60_000_000;
const PASS_EVERY_US: u64 = 86_400_000_000;
/// How long a read gives way to others, in microseconds.
const GIVES_WAY_US: u64 = 10_000;
/// Numbers of segments that one step looks at for one to be read.
const NUMBERS_A_STEP: u32 = 4_096;
/// Findings that wait to be told; more are only counted.
const FINDINGS_MAX: usize = 100;

/// The scrubbing of a shard.
#[derive(Debug, Default)]
pub(crate) struct Scrubber {
    /// Bytes a second; 0: off.
    rate: u64,
    /// When the next pass begins; `None` before the first step.
    due_us: Option<u64>,
    pass: Option<Pass>,
    current: Option<Current>,
    is_reading: bool,
    /// When the last read was sent, and how long it was.
    last_read: (u64, u64),
    gives_way_since_us: Option<u64>,
    counts: ScrubStatistics,
    last_damage: ScrubDamage,
    findings: Vec<String>,
}

/// A pass under way.
#[derive(Debug)]
struct Pass {
    /// The next segment.
    next: u32,
    /// Numbers that are left, and that there were.
    left: u32,
    all: u32,
    began_us: u64,
    bytes: u64,
    segments: u64,
    /// Looks at the superblock so far; `None`: it is done with.
    superblock_looks: Option<u32>,
    damage: ScrubDamage,
}

/// What kind of thing is damaged.
#[derive(Clone, Copy, Debug)]
enum Damaged {
    Record,
    OldRecord,
    Structure,
}

impl Scrubber {
    /// When the next read may be sent.
    fn paced_us(&self) -> u64 {
        let (at_us, bytes) = self.last_read;
        if bytes == 0 {
            return 0;
        }
        let wait_us = u128::from(bytes) * 1_000_000 / u128::from(self.rate.max(1)) + 1;
        at_us.saturating_add(u64::try_from(wait_us).unwrap_or(u64::MAX))
    }

    /// When a step would do something that no completion announces.
    pub fn next_step_us(&self, now_us: u64) -> Option<u64> {
        if self.rate == 0 || self.is_reading {
            return None;
        }
        let at_us = match (&self.pass, &self.current) {
            (None, _) => self.due_us.unwrap_or(now_us),
            (Some(_), Some(current)) if current.is_gathering() => now_us,
            _ => self.paced_us().max(self.gives_way_since_us.map_or(0, |since_us| since_us + GIVES_WAY_US)),
        };
        Some(at_us.max(now_us))
    }

    /// Nothing is read any more.
    pub fn stop(&mut self) {
        self.rate = 0;
        (self.pass, self.current) = (None, None);
    }

    /// What it does and has found.
    pub fn statistics(&self) -> ScrubStatistics {
        let (mut progress_ppm, mut damage) = (0, self.last_damage);
        if let Some(pass) = &self.pass {
            let done = u64::from(pass.all - pass.left);
            progress_ppm = done * 1_000_000 / u64::from(pass.all.max(1));
            damage = damage.max(pass.damage);
        }
        ScrubStatistics { rate: self.rate, progress_ppm, damage, ..self.counts }
    }

    /// What was found since this was asked last.
    pub fn take_findings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.findings)
    }

    fn note(&mut self, damaged: Damaged, finding: String) {
        let Some(pass) = &mut self.pass else { return };
        let count = match damaged {
            Damaged::Record => &mut pass.damage.records,
            Damaged::OldRecord => &mut pass.damage.old_records,
            Damaged::Structure => &mut pass.damage.structures,
        };
        *count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

impl LogShard {
    /// Sets the rate. What had begun goes on; a pass begins at once when none is under way, unless the store is just
    /// being opened.
    pub(crate) fn change_scrub_rate(&mut self, bytes_per_second: u64) {
        if self.shutting || bytes_per_second == self.scrubber.rate {
            return;
        }
        let scrubber = &mut self.scrubber;
        scrubber.rate = bytes_per_second;
        scrubber.due_us = scrubber.due_us.map(|_| 0);
    }

    /// Does a bounded part of the pass: sends a read, or looks for what is to be read.
    pub(crate) fn scrub_step(&mut self) {
        let now_us = self.now.monotonic_us;
        let due_us = *self.scrubber.due_us.get_or_insert(now_us + FIRST_PASS_US);
        let scrubber = &mut self.scrubber;
        if scrubber.rate == 0 || scrubber.is_reading || self.shutting {
            return;
        }
        if scrubber.pass.is_none() {
            if now_us < due_us {
                return;
            }
            self.begin_scrub_pass();
        }
        if self.scrubber.current.as_ref().is_some_and(Current::is_gathering) {
            return self.gather_for_scrub();
        }
        let is_paced = now_us >= self.scrubber.paced_us() || self.identity.mutations.is_on("scrub_unpaced");
        if !is_paced || self.scrub_gives_way() {
            return;
        }
        if self.scrubber.current.is_some() || self.begin_scrubbed_segment() {
            return self.send_scrub_read();
        }
        let Some(pass) = &self.scrubber.pass else { return };
        if pass.left > 0 {
            return;
        }
        match pass.superblock_looks {
            Some(_) => self.look_at_superblock(),
            None => self.end_scrub_pass(),
        }
    }

    fn begin_scrub_pass(&mut self) {
        let all = self.segments.total_count();
        let first = salt(self.identity.store, self.identity.open_count) % u64::from(all.max(1));
        self.scrubber.pass = Some(Pass {
            next: first as u32,
            left: all,
            all,
            began_us: self.now.monotonic_us,
            bytes: 0,
            segments: 0,
            superblock_looks: (self.identity.shard == 0).then_some(0),
            damage: ScrubDamage::default(),
        });
    }

    fn end_scrub_pass(&mut self) {
        let now = self.now;
        let Some(pass) = self.scrubber.pass.take() else { return };
        let counts = &mut self.scrubber.counts;
        counts.passes += 1;
        counts.last_pass_at_ms = now.wall_ms;
        counts.last_pass_ms = now.monotonic_us.saturating_sub(pass.began_us) / 1_000;
        (counts.last_pass_bytes, counts.last_pass_segments) = (pass.bytes, pass.segments);
        self.scrubber.last_damage = pass.damage;
        self.scrubber.due_us = Some(pass.began_us.saturating_add(PASS_EVERY_US).max(now.monotonic_us));
    }

    /// Whether the next read waits for others.
    fn scrub_gives_way(&mut self) -> bool {
        let now_us = self.now.monotonic_us;
        if !self.hot.is_writing() && self.reads.reading.is_empty() {
            self.scrubber.gives_way_since_us = None;
            return false;
        }
        let since_us = *self.scrubber.gives_way_since_us.get_or_insert(now_us);
        now_us.saturating_sub(since_us) < GIVES_WAY_US
    }
}
