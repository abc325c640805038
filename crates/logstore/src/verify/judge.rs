//! Records that the index leaves out: which of them it may leave out.
//!
//! A record may be left out when the index has another one for its position (an overwritten version), when
//! it has expired, or when a later deletion of its position is in some segment: deletions are kept as long
//! as there is anything older than they are.

use super::{DELETION_WALKS_MAX, ENTRIES_A_STEP, Phase, SUSPECTS_MAX, Verifier};
use crate::format::record::{FLAG_TOMBSTONE, FLAG_VOID};
use crate::format::summary::{SummaryEntry, SummaryReader};
use crate::location::Location;
use crate::segments::Role;
use crate::shard::LogShard;
use std::collections::BTreeMap;
use tierstone_base::collections::Map;
use tierstone_base::{KeyspaceId, Position, Seq};

#[derive(Clone, Copy, Debug)]
struct Suspect {
    keyspace: KeyspaceId,
    seq: Seq,
    expiry_ms: u64,
    location: Location,
    generation: u64,
}

/// Records without an entry in the index, by position.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    all: Map<u64, Vec<Suspect>>,
    count: usize,
}

impl Suspects {
    /// Forgets those at `position`.
    pub fn clear_of(&mut self, position: Position) {
        if let Some(gone) = self.all.remove(&position.0) {
            self.count -= gone.len();
        }
    }

    fn deleted(&mut self, entry: &SummaryEntry) {
        let Some(suspects) = self.all.get_mut(&entry.position.0) else { return };
        let before = suspects.len();
        suspects.retain(|suspect| suspect.keyspace != entry.keyspace || suspect.seq > entry.seq);
        self.count -= before - suspects.len();
        if suspects.is_empty() {
            self.all.remove(&entry.position.0);
        }
    }
}

impl Verifier {
    /// A deletion may be where nothing can be read: nobody can be judged.
    pub(super) fn give_up_judging(&mut self) {
        let suspects = std::mem::take(&mut self.suspects);
        if let Some(report) = &mut self.report {
            report.unjudged_records += suspects.count as u64;
        }
    }
}

impl LogShard {
    /// A whole record that the index does not lead to.
    pub(super) fn suspect(&mut self, entry: &SummaryEntry, location: Location) {
        let Some(keyspace) = self.keyspaces.get(entry.keyspace) else { return };
        let may_be_missing = entry.flags & (FLAG_TOMBSTONE | FLAG_VOID) != 0
            || entry.expiry_ms != 0 && entry.expiry_ms <= self.now.wall_ms
            || keyspace.index.first_candidate(entry.position).is_some();
        if may_be_missing {
            return;
        }
        if self.verifier.suspects.count >= SUSPECTS_MAX {
            if let Some(report) = &mut self.verifier.report {
                report.unjudged_records += 1;
            }
            return;
        }
        let suspect = Suspect {
            keyspace: entry.keyspace,
            seq: entry.seq,
            expiry_ms: entry.expiry_ms,
            location,
            generation: self.segments.get(location.segment()).generation,
        };
        self.verifier.suspects.all.entry(entry.position.0).or_default().push(suspect);
        self.verifier.suspects.count += 1;
    }

    /// All records are read: looks for the deletions of those that the index leaves out.
    pub(super) fn begin_deletions(&mut self) {
        if self.verifier.suspects.count == 0 {
            return self.finish_verify();
        }
        if self.verifier.deletion_walks == DELETION_WALKS_MAX {
            self.verifier.give_up_judging();
            return self.finish_verify();
        }
        self.verifier.deletion_walks += 1;
        self.verifier.has_missed = false;
        self.verifier.waiting = self.all_segments();
        self.verifier.phase = Phase::Deletions;
    }

    pub(super) fn look_for_deletions(&mut self) {
        if let Some(current) = &self.verifier.current {
            if !current.is_reading {
                self.read_deletions();
            }
        } else if !self.begin_segment() && self.verifier.waiting.is_empty() {
            if self.verifier.has_missed { self.begin_deletions() } else { self.judge() }
        }
    }

    fn read_deletions(&mut self) {
        let Some(mut current) = self.verifier.current.take() else { return };
        let len = self.segments.get(current.segment).summary.len as usize;
        let bytes = current.summary.as_deref().and_then(|summary| summary.get(..len)).unwrap_or_default();
        let mut reader = SummaryReader::resume(bytes, current.cursor);
        let mut count = 0;
        for entry in reader.by_ref().take(ENTRIES_A_STEP) {
            count += 1;
            if entry.is_tombstone() {
                self.verifier.suspects.deleted(&entry);
            }
        }
        current.cursor = reader.cursor(bytes);
        self.verifier.current = Some(current);
        if count < ENTRIES_A_STEP {
            self.let_verified_go();
        }
    }

    /// Whoever is left was neither replaced nor deleted.
    fn judge(&mut self) {
        let mut lost: BTreeMap<(u64, KeyspaceId), Suspect> = BTreeMap::new();
        let suspects = std::mem::take(&mut self.verifier.suspects);
        for (position, suspect) in
            suspects.all.iter().flat_map(|(at, all)| all.iter().map(move |one| (*at, *one)))
        {
            let segment = self.segments.get(suspect.location.segment());
            let is_there = segment.generation == suspect.generation
                && matches!(segment.role, Role::Sealed | Role::Cleaning)
                && (suspect.expiry_ms == 0 || suspect.expiry_ms > self.now.wall_ms);
            let keyspace = self.keyspaces.get(suspect.keyspace);
            let is_missing =
                keyspace.is_some_and(|own| own.index.first_candidate(Position(position)).is_none());
            if is_there && is_missing {
                let newest = lost.entry((position, suspect.keyspace)).or_insert(suspect);
                if newest.seq < suspect.seq {
                    *newest = suspect;
                }
            }
        }
        for suspect in lost.into_values() {
            let finding = format!(
                "segment {}, unit {}: the index of keyspace {} leaves out the record of sequence {}, which nothing deleted",
                suspect.location.segment(),
                suspect.location.unit(),
                suspect.keyspace.0,
                suspect.seq
            );
            self.verifier.note("index", 1, finding);
        }
        self.finish_verify();
    }
}
