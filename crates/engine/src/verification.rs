//! What the verification of an engine that serves has found.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Findings that are told one by one; more are only counted.
pub const FINDINGS_MAX: usize = 200;

/// How far a verification is and what it has found, of one engine or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// It has not come to its end.
    pub is_running: bool,
    /// Bytes of records looked at.
    pub bytes: u64,
    /// About how many there were when it began.
    pub bytes_total: u64,
    /// Segments (or what the engine has in their place) that were read.
    pub segments: u64,
    /// Of those there were at the beginning, the ones whose records moved away meanwhile.
    pub moved_segments: u64,
    /// Records that are whole and agree with their summary, old versions and tombstones included.
    pub records: u64,
    /// Of these, the ones that the index leads to.
    pub live_records: u64,
    /// Entries of the index that lead to records that were read.
    pub index_entries: u64,
    /// Records that the index leaves out, of which it was not found out whether it may.
    pub unjudged_records: u64,
    /// Keys whose newest record is damaged or cannot be reached.
    pub lost_keys: u64,
    /// How much damage there is of each kind.
    pub damage: BTreeMap<String, u64>,
    /// The first findings, in words.
    pub findings: Vec<String>,
}

impl Verification {
    /// Whether anything is damaged.
    pub fn is_damaged(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Notes damage of a kind that costs so many keys.
    pub fn note(&mut self, kind: &str, lost_keys: u64, finding: String) {
        *self.damage.entry(kind.to_owned()).or_insert(0) += 1;
        self.lost_keys += lost_keys;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Takes in what another engine of the same store has found.
    pub fn add(&mut self, other: &Verification) {
        self.is_running |= other.is_running;
        self.bytes += other.bytes;
        self.bytes_total += other.bytes_total;
        self.segments += other.segments;
        self.moved_segments += other.moved_segments;
        self.records += other.records;
        self.live_records += other.live_records;
        self.index_entries += other.index_entries;
        self.unjudged_records += other.unjudged_records;
        self.lost_keys += other.lost_keys;
        for (kind, count) in &other.damage {
            *self.damage.entry(kind.clone()).or_insert(0) += count;
        }
        let room = FINDINGS_MAX.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.iter().take(room).cloned());
    }
}
