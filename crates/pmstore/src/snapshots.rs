//! Snapshots: a sequence and a time each, and a table of the records that they still need and the index no longer
//! names.
//!
//! A snapshot costs nothing when it is taken. While it lives, each record that is replaced or deleted and that a
//! snapshot shows goes to the table instead of its grave, with the sequences between which it counted. It stays live in
//! its block: cleaning moves it like any other, and the table names the copy.
//!
//! Invariants:
//! 1. At any time, the version of a key that snapshot S shows is in the table (`seq` ≤ S < `replaced_at`) or in the
//!    index (`seq` ≤ S), and in one of them only.
//! 2. A record in the table counts in its block, with its overflow blocks; it is given up when no snapshot shows it
//!    and the write that replaced it is decided, whichever comes later.
//! 3. It is an old record all the same: tombstones stay while it lies somewhere ([`crate::graves`]).
//! 4. When the table, or the bytes that it keeps, pass their bounds, and where the store would be full or without
//!    memory, the oldest snapshot is lost: it answers `SnapshotLost` from then on.
//!
//! All of it is in memory: a crash ends every snapshot, and recovery, which takes the newest record of a key, knows
//! nothing of them.

use crate::format::RecordHead;
use crate::gone::{GoneKey, GoneKeys};
use crate::shard::{Found, PmShard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use tierstone_base::{ErrorKind, KeyspaceId, Now, Position, Result, Seq};
use tierstone_engine::cuts::{Cut, Cuts};
use tierstone_engine::{Key, SnapshotId};

/// A record that the index no longer names.
#[derive(Clone, Copy, Debug)]
struct Kept {
    place: u64,
    len: u32,
    /// With its overflow blocks.
    bytes: u32,
    /// The write that put an end to it; it counts below.
    replaced_at: Seq,
}

impl Kept {
    fn is_overflow(&self) -> bool {
        self.bytes != self.len
    }
}

/// The record's own sequence ends the key: versions of one key follow one another.
type KeptKey = (KeyspaceId, Position, Seq);

fn kept_key(head: &RecordHead) -> KeptKey {
    (KeyspaceId(head.keyspace), Position(head.position), head.seq)
}

/// How far the search for entries that nobody needs has come.
#[derive(Debug, Default)]
struct Purge {
    place: PurgePlace,
    /// A snapshot ended during the search: it must begin anew.
    again: bool,
}

/// Records first: gone keys are needed as long as there are some at their positions.
#[derive(Debug)]
enum PurgePlace {
    Kept(Option<KeptKey>),
    Gone(Option<GoneKey>),
}

impl Default for PurgePlace {
    fn default() -> Self {
        PurgePlace::Kept(None)
    }
}

/// Memory of a record in the table: 48 bytes in tree nodes that are about two thirds full.
const KEPT_BYTES: u64 = 80;
/// Entries that a step looks at.
const PURGED_A_STEP: usize = 2_000;

/// All snapshots of a shard.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pub cuts: Cuts,
    /// What a backup under way shows.
    backup: Option<Cut>,
    kept: BTreeMap<KeptKey, Kept>,
    /// Bytes of the records in the table.
    kept_bytes: u64,
    /// Places of records that left the table before the writes that replaced them were decided.
    orphans: BTreeSet<u64>,
    /// The last decided write of which what it replaced was given up, or left to the table.
    pub buried: Seq,
    /// Keys that have left an order.
    pub gone: GoneKeys,
    purge: Option<Purge>,
}

impl Snapshots {
    fn is_needed(&self, (_, _, seq): KeptKey, kept: &Kept) -> bool {
        self.cuts.is_between(seq, kept.replaced_at)
    }

    /// Whether records at `position` are kept.
    fn has_kept(&self, keyspace: KeyspaceId, position: Position) -> bool {
        self.kept.range((keyspace, position, 0)..=(keyspace, position, Seq::MAX)).next().is_some()
    }

    /// Whether a snapshot, or a backup, older than `than` lives.
    pub fn any_before(&self, than: SnapshotId) -> bool {
        let oldest = self.cuts.oldest();
        oldest.iter().chain(&self.backup).any(|cut| cut.id < than)
    }

    /// The cut of a backup of everything up to the write `seq`.
    pub fn begin_backup(&mut self, seq: Seq, now: Now) -> Cut {
        let cut = self.cuts.mark(seq, now);
        self.backup = Some(cut);
        cut
    }

    /// The backup has read everything, or was given up.
    pub fn end_backup(&mut self) {
        self.backup = None;
    }

    /// Bytes of memory of the table and the gone keys.
    pub fn table_bytes(&self) -> u64 {
        self.kept.len() as u64 * KEPT_BYTES + self.gone.bytes()
    }

    /// Bytes of records that are kept for snapshots only, with their overflow blocks.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Whether a step would do something now.
    pub fn wants_step(&self) -> bool {
        self.purge.is_some()
    }

    /// The places of records that may belong to `position` as `cut` shows it.
    pub fn at(
        &self,
        keyspace: KeyspaceId,
        position: Position,
        cut: &Cut,
    ) -> impl Iterator<Item = u64> + use<'_> {
        let (range, seq) = ((keyspace, position, 0)..=(keyspace, position, cut.seq), cut.seq);
        self.kept.range(range).filter(move |(_, kept)| kept.replaced_at > seq).map(|(_, kept)| kept.place)
    }

    /// Appends the places of records with positions from `from` up to `until` that `cut` shows, about `count` of them;
    /// gives where it stopped, all of a position taken, if before `until`.
    pub fn page(
        &self,
        keyspace: KeyspaceId,
        (from, until): (Position, Option<Position>),
        count: usize,
        cut: &Cut,
        out: &mut Vec<u64>,
    ) -> Option<Position> {
        let end = match until {
            Some(until) if until <= from => return Some(until),
            Some(until) => Excluded((keyspace, until, 0)),
            None => Included((keyspace, Position(u64::MAX), Seq::MAX)),
        };
        let enough = out.len() + count;
        let mut last = None;
        let visits_max = count.saturating_mul(4).saturating_add(PURGED_A_STEP);
        let range = self.kept.range((Included((keyspace, from, 0)), end));
        for (visits, (&(_, position, seq), kept)) in range.enumerate() {
            let stops = out.len() >= enough || visits >= visits_max;
            if stops && last != Some(position) && position > from {
                return Some(position);
            }
            if seq <= cut.seq && kept.replaced_at > cut.seq {
                out.push(kept.place);
                last = Some(position);
            }
        }
        until
    }

    /// Takes `id` out; true when it lived.
    fn end(&mut self, id: SnapshotId) -> bool {
        if !self.cuts.end(id) {
            return false;
        }
        match &mut self.purge {
            Some(purge) => purge.again = true,
            None => self.purge = (!self.keeps_nothing()).then(Purge::default),
        }
        true
    }

    fn keeps_nothing(&self) -> bool {
        self.kept.is_empty() && self.gone.is_empty()
    }

    /// Whether one lives, or records wait in the table for nobody.
    pub fn is_in_use(&self) -> bool {
        self.backup.is_some() || !self.cuts.is_empty() || !self.kept.is_empty() || !self.orphans.is_empty()
    }

    /// Whether the record at `place`, of which `head` is the head, is in the table.
    pub fn holds(&self, head: &RecordHead, place: u64) -> bool {
        !self.kept.is_empty() && self.kept.get(&kept_key(head)).is_some_and(|kept| kept.place == place)
    }

    /// A record has a copy at `to`; whether it is in the table, which names the copy from now on.
    pub fn move_kept(&mut self, head: &RecordHead, from: u64, to: u64) -> bool {
        let is_kept = self.holds(head, from);
        if is_kept && let Some(kept) = self.kept.get_mut(&kept_key(head)) {
            kept.place = to;
        }
        is_kept
    }

    /// The write that replaced a kept record is decided: whether the record has left the table, so that it is to be
    /// given up now.
    pub fn has_left(&mut self, place: u64) -> bool {
        self.orphans.remove(&place)
    }

    /// Takes a part of the table's records out that nobody needs, of the next `count`; gives those to be given up.
    fn take_unneeded(&mut self, count: usize) -> Vec<Kept> {
        let Some(Purge { place: PurgePlace::Kept(after), .. }) = &self.purge else { return Vec::new() };
        let from = after.map_or(Unbounded, Excluded);
        let (mut unneeded, mut last) = (Vec::new(), None);
        for (key, kept) in self.kept.range((from, Unbounded)).take(count) {
            last = Some(*key);
            if !self.is_needed(*key, kept) {
                unneeded.push((*key, *kept));
            }
        }
        for (key, kept) in &unneeded {
            self.kept.remove(key);
            self.kept_bytes -= u64::from(kept.bytes);
        }
        unneeded.retain(|(_, kept)| {
            let is_decided = kept.replaced_at <= self.buried;
            if !is_decided {
                self.orphans.insert(kept.place);
            }
            is_decided
        });
        if let Some(purge) = &mut self.purge {
            purge.place = match last {
                Some(_) => PurgePlace::Kept(last),
                None => PurgePlace::Gone(None),
            };
        }
        unneeded.into_iter().map(|(_, kept)| kept).collect()
    }

    fn purge_gone(&mut self, count: usize) {
        let Some(Purge { place: PurgePlace::Gone(after), again }) = &mut self.purge else { return };
        let (after, again) = (after.take(), *again);
        // Taken out, for what is needed is asked of the rest.
        let mut gone = std::mem::take(&mut self.gone);
        let last = gone.purge(after, count, |keyspace, position, at| {
            self.cuts.is_any_before(at) && self.has_kept(keyspace, position)
        });
        self.gone = gone;
        self.purge = match last {
            Some(_) => Some(Purge { place: PurgePlace::Gone(last), again }),
            None => again.then(Purge::default),
        };
    }
}

impl PmShard {
    pub(crate) fn take_snapshot(&mut self) -> Result<SnapshotId> {
        self.snapshots.cuts.take(self.applied, self.now)
    }

    pub(crate) fn end_snapshot(&mut self, id: SnapshotId) {
        if self.snapshots.end(id) {
            self.sweep_unshown();
        }
    }

    /// The write of which `by` is the head replaces a key's record: whether the record is kept, since a snapshot shows
    /// it. To be called when the index does not name it any more.
    pub(crate) fn keep_for_snapshots(&mut self, key: &Key<'_>, old: &Found, by: &RecordHead) -> bool {
        if self.snapshots.cuts.is_empty() {
            return false;
        }
        let Found { place, head } = old;
        let is_kept =
            self.snapshots.cuts.need(head.seq, head.expiry_ms) && !self.mutations.is_on("replaced_not_kept");
        if is_kept {
            let (place, len, bytes, replaced_at) = (*place, head.len, head.bytes() as u32, by.seq);
            let kept = Kept { place, len, bytes, replaced_at };
            self.snapshots.kept_bytes += u64::from(bytes);
            let twin = self.snapshots.kept.insert(kept_key(head), kept);
            debug_assert!(twin.is_none(), "two records have sequence {}", head.seq);
        }
        if by.is_tombstone() {
            self.keep_gone(key, by.seq);
        }
        if is_kept || by.is_tombstone() {
            self.bound_snapshot_table();
        }
        is_kept
    }

    /// Keeps a key that has left its order with the write `at`, if a snapshot may show it.
    fn keep_gone(&mut self, key: &Key<'_>, at: Seq) {
        let Key { keyspace, position, bytes } = *key;
        let is_ordered = self.keyspaces.get(&keyspace).is_some_and(crate::keys::Keys::is_ordered);
        let is_shown = is_ordered
            && self.snapshots.cuts.is_any_before(at)
            && self.snapshots.has_kept(keyspace, position)
            && !self.mutations.is_on("gone_not_kept");
        if is_shown {
            self.snapshots.gone.insert(keyspace, bytes, position, at);
        }
    }

    /// Far beyond the bound, steps were not quick enough.
    fn bound_snapshot_table(&mut self) {
        if self.snapshots.table_bytes() <= 2 * self.settings.snapshot_table_bytes_max {
            return;
        }
        self.lose_oldest_snapshot();
        self.snapshots.purge = Some(Purge::default());
        while self.snapshots.purge.is_some() {
            // What is damaged is told by reads; a region that fails, by the health.
            if let Err(error) = self.purge_some(usize::MAX)
                && error.kind() == ErrorKind::DeviceFailed
            {
                self.fail(&error);
            }
        }
    }

    /// Looks at up to `count` entries for those that nobody needs any more.
    fn purge_some(&mut self, count: usize) -> Result<()> {
        if matches!(&self.snapshots.purge, Some(Purge { place: PurgePlace::Gone(_), .. })) {
            self.snapshots.purge_gone(count);
            return Ok(());
        }
        let mut result = Ok(());
        for kept in self.snapshots.take_unneeded(count) {
            let given_up = self.give_up(kept.place, kept.len, kept.is_overflow());
            result = result.and(given_up);
        }
        result
    }

    /// Keeps the bounds, and lets go, some at a step, of what nobody needs any more.
    pub(crate) fn snapshot_step(&mut self) -> Result<()> {
        let mut purged = Ok(());
        if self.snapshots.purge.is_some() {
            purged = self.purge_some(PURGED_A_STEP);
        }
        // No snapshot is lost for what another, that has ended, keeps still.
        if self.snapshots.purge.is_some() {
            return purged;
        }
        let kept_max = self.maker.layout.shard_bytes() as f64 * self.settings.snapshot_pinned_fraction_max;
        if self.snapshots.table_bytes() > self.settings.snapshot_table_bytes_max
            || self.snapshots.kept_bytes > kept_max as u64
        {
            self.lose_oldest_snapshot();
        }
        purged
    }

    fn lose_oldest_snapshot(&mut self) {
        let Some(oldest) = self.snapshots.cuts.oldest() else { return };
        self.end_snapshot(oldest.id);
        self.snapshots.cuts.note_lost(oldest.id);
    }

    /// Gives what snapshots keep back to a shard without space or memory; false when they keep nothing.
    pub(crate) fn lose_for_room(&mut self) -> bool {
        if self.snapshots.purge.is_some() || !self.sweeping.is_empty() || self.is_backup_waited_for() {
            return true;
        }
        let keeps_nothing = self.snapshots.keeps_nothing() && self.retained.is_empty();
        if keeps_nothing || self.snapshots.cuts.is_empty() {
            return false;
        }
        self.lose_oldest_snapshot();
        true
    }
}
