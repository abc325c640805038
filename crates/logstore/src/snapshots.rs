//! Snapshots: a sequence and a time each, and a table of the records that they still need and the
//! index no longer points to.
//!
//! A snapshot costs nothing when it is taken. While it lives, each record that is replaced, deleted or
//! dropped as expired and that a snapshot shows goes to the side table, with the sequences between
//! which it counted; its segment is pinned: neither cleaned nor freed. What the index points to is as
//! good as before: the cleaner's copies keep their sequences. Of ordered keyspaces, the keys that leave the
//! order are kept besides ([`crate::gone`]).
//!
//! Invariants:
//! 1. At any time, the version of a key that snapshot S shows is in the side table (`seq` ≤ S <
//!    `replaced_at`) or in the index (`seq` ≤ S), and in one of them only.
//! 2. A segment that a side entry points into is not freed.
//! 3. A keyspace that was dropped while a snapshot lived keeps its index until no snapshot shows it.
//! 4. Gone keys count in the table's bytes.
//! 5. When the table, or the bytes that it keeps, pass their bounds, and when the store would be full,
//!    the oldest snapshot is lost: it answers `SnapshotLost` from then on.
//!
//! All of it is in memory: a crash ends every snapshot, and nothing is pinned after it.

use crate::gone::{GoneKeys, GonePlace};
use crate::location::{Location, UNIT_BYTES};
use crate::segments::SegmentTable;
use crate::shard::LogShard;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use tierstone_base::{KeyspaceId, Now, Position, Result, Seq};
use tierstone_engine::SnapshotId;
use tierstone_engine::cuts::{Cut, Cuts};

/// A record that the index no longer points to.
#[derive(Clone, Copy, Debug)]
struct SideEntry {
    location: Location,
    units: u32,
    /// The write that put an end to it; it counts below.
    replaced_at: Seq,
}

/// The record's own sequence ends the key: versions of one key follow one another.
type SideKey = (KeyspaceId, Position, Seq);

/// All snapshots of a shard.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pub cuts: Cuts,
    side: BTreeMap<SideKey, SideEntry>,
    /// Bytes of the records in the side table.
    pinned_bytes: u64,
    /// Keys that have left an order.
    pub gone: GoneKeys,
    /// How far the search for entries that nobody needs has come.
    purge: Option<Purge>,
    /// What a backup shows, until it has read everything: it keeps no side entries, see [`crate::backup`].
    backup: Option<Cut>,
}

#[derive(Debug, Default)]
struct Purge {
    place: PurgePlace,
    /// A snapshot ended during the search: it must begin anew.
    again: bool,
}

/// Side entries first: gone keys are needed as long as there are some at their positions.
#[derive(Debug)]
enum PurgePlace {
    Side(Option<SideKey>),
    Gone(Option<GonePlace>),
}

impl Default for PurgePlace {
    fn default() -> Self {
        PurgePlace::Side(None)
    }
}

/// Memory of an entry of the side table: 48 bytes in tree nodes that are about two thirds full.
const SIDE_ENTRY_BYTES: u64 = 80;
/// Side entries that a step looks at: about 200 µs.
const PURGED_A_STEP: usize = 2_000;

impl Snapshots {
    fn is_needed(&self, (_, _, seq): SideKey, entry: &SideEntry) -> bool {
        self.cuts.is_between(seq, entry.replaced_at)
    }

    /// Whether records at `position` are kept.
    pub fn has_kept(&self, keyspace: KeyspaceId, position: Position) -> bool {
        self.side.range((keyspace, position, 0)..=(keyspace, position, Seq::MAX)).next().is_some()
    }

    /// Whether a snapshot, or a backup, older than `than` lives.
    pub fn any_before(&self, than: SnapshotId) -> bool {
        self.cuts.oldest().iter().chain(&self.backup).any(|cut| cut.id < than)
    }

    /// Whether a snapshot lives, or a backup that has still to read.
    pub fn is_any(&self) -> bool {
        !self.cuts.is_empty() || self.backup.is_some()
    }

    /// What a backup shows that begins after the write `seq`.
    pub fn begin_backup(&mut self, seq: Seq, now: Now) -> Cut {
        let cut = self.cuts.mark(seq, now);
        self.backup = Some(cut);
        cut
    }

    /// The backup has read everything, or was given up.
    pub fn end_backup(&mut self) {
        self.backup = None;
    }

    /// Bytes of memory of the side table and the gone keys.
    pub fn table_bytes(&self) -> u64 {
        self.side.len() as u64 * SIDE_ENTRY_BYTES + self.gone.bytes()
    }

    /// Bytes of records that are kept for snapshots only.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// Whether a step would do something now.
    pub fn wants_step(&self) -> bool {
        self.purge.is_some()
    }

    /// Appends the places of records that may belong to `position` as `cut` shows it.
    pub fn at(&self, keyspace: KeyspaceId, position: Position, cut: &Cut, out: &mut Vec<Location>) {
        let range = (keyspace, position, 0)..=(keyspace, position, cut.seq);
        let shown = self.side.range(range).filter(|(_, entry)| entry.replaced_at > cut.seq);
        out.extend(shown.map(|(_, entry)| entry.location));
    }

    /// Appends the places of records with positions from `from` up to `until` that `cut` shows, about
    /// `count` of them; gives where it stopped, all of a position taken, if before `until`.
    pub fn page(
        &self,
        keyspace: KeyspaceId,
        (from, until): (Position, Option<Position>),
        count: usize,
        cut: &Cut,
        out: &mut Vec<Location>,
    ) -> Option<Position> {
        let end = match until {
            Some(until) => Excluded((keyspace, until, 0)),
            None => Included((keyspace, Position(u64::MAX), Seq::MAX)),
        };
        let enough = out.len() + count;
        let mut last = None;
        let visits_max = count.saturating_mul(4).saturating_add(PURGED_A_STEP);
        let range = self.side.range((Included((keyspace, from, 0)), end));
        for (visits, (&(_, position, seq), entry)) in range.enumerate() {
            let stops = out.len() >= enough || visits >= visits_max;
            if stops && last != Some(position) && position > from {
                return Some(position);
            }
            if seq <= cut.seq && entry.replaced_at > cut.seq {
                out.push(entry.location);
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

    /// Whether no record is kept for a snapshot, or a backup.
    pub fn keeps_no_records(&self) -> bool {
        self.side.is_empty() && self.backup.is_none()
    }

    fn keeps_nothing(&self) -> bool {
        self.side.is_empty() && self.gone.is_empty()
    }

    fn keep(&mut self, key: SideKey, entry: SideEntry, segments: &mut SegmentTable) {
        self.pinned_bytes += u64::from(entry.units) * UNIT_BYTES as u64;
        segments.pin_for_snapshots(entry.location.segment());
        // One sequence belongs to one write: nothing can be in the place already.
        if let Some(twin) = self.side.insert(key, entry) {
            debug_assert!(false, "two records have sequence {}", key.2);
            self.let_go(&twin, segments);
        }
    }

    fn let_go(&mut self, entry: &SideEntry, segments: &mut SegmentTable) {
        self.pinned_bytes -= u64::from(entry.units) * UNIT_BYTES as u64;
        segments.unpin_for_snapshots(entry.location.segment());
    }

    /// Looks at up to `count` entries for those that nobody needs any more.
    fn purge_some(&mut self, count: usize, segments: &mut SegmentTable) {
        let place = match &self.purge {
            Some(Purge { place: PurgePlace::Side(after), .. }) => *after,
            Some(Purge { place: PurgePlace::Gone(_), .. }) => return self.purge_gone(count),
            None => return,
        };
        let from = place.map_or(Unbounded, Excluded);
        let mut unneeded = Vec::new();
        let mut last = None;
        for (key, entry) in self.side.range((from, Unbounded)).take(count) {
            last = Some(*key);
            if !self.is_needed(*key, entry) {
                unneeded.push(*key);
            }
        }
        for key in unneeded {
            if let Some(entry) = self.side.remove(&key) {
                self.let_go(&entry, segments);
            }
        }
        if let Some(purge) = &mut self.purge {
            purge.place = match last {
                Some(_) => PurgePlace::Side(last),
                None => PurgePlace::Gone(None),
            };
        }
    }

    fn purge_gone(&mut self, count: usize) {
        let Some(Purge { place: PurgePlace::Gone(after), again }) = &mut self.purge else { return };
        let (after, again) = (after.take(), *again);
        // Taken out, for what is needed is asked of the rest.
        let mut gone = std::mem::take(&mut self.gone);
        let next = gone.purge(after, count, |keyspace, position, at, is_unsure| {
            self.cuts.is_any_before(at) && (is_unsure || self.has_kept(keyspace, position))
        });
        self.gone = gone;
        self.purge = match next {
            Some(_) => Some(Purge { place: PurgePlace::Gone(next), again }),
            None => again.then(Purge::default),
        };
    }
}

impl LogShard {
    pub(crate) fn take_snapshot(&mut self) -> Result<SnapshotId> {
        self.snapshots.cuts.take(self.applied, self.now)
    }

    pub(crate) fn end_snapshot(&mut self, id: SnapshotId) {
        if self.snapshots.end(id) {
            self.keyspaces.retain_dropped(&self.snapshots, self.segments.opened());
        }
    }

    /// The index stops pointing to a record: it is kept if a snapshot shows it. To be called before its
    /// segment's account is.
    pub(crate) fn keep_for_snapshots(
        &mut self,
        (keyspace, position): (KeyspaceId, Position),
        location: Location,
        header: &crate::format::record::RecordHeader,
        replaced_at: Seq,
    ) {
        self.keep_for_backup(location, header.seq, replaced_at);
        if !self.snapshots.cuts.need(header.seq, self.expiry_of(position, header))
            || self.identity.mutations.is_on("replaced_not_kept_for_snapshots")
        {
            return;
        }
        let units = header.units() as u32;
        let entry = SideEntry { location, units, replaced_at };
        self.snapshots.keep((keyspace, position, header.seq), entry, &mut self.segments);
        self.bound_snapshot_table();
    }

    /// Far beyond the bound, steps were not quick enough.
    pub(crate) fn bound_snapshot_table(&mut self) {
        if self.snapshots.table_bytes() > 2 * self.settings.snapshot_table_bytes_max {
            self.lose_oldest_snapshot();
            self.snapshots.purge = Some(Purge::default());
            while self.snapshots.purge.is_some() {
                self.snapshots.purge_some(usize::MAX, &mut self.segments);
            }
        }
    }

    /// Keeps the bounds, and lets go, some at a step, of what nobody needs any more.
    pub(crate) fn snapshot_step(&mut self) {
        if self.snapshots.purge.is_some() {
            self.snapshots.purge_some(PURGED_A_STEP, &mut self.segments);
            return;
        }
        let capacity = u64::from(self.capacity_count()) * self.segments.segment_bytes();
        let pinned_max = (capacity as f64 * self.settings.snapshot_pinned_fraction_max) as u64;
        if self.snapshots.table_bytes() > self.settings.snapshot_table_bytes_max
            || self.snapshots.pinned_bytes > pinned_max
        {
            self.lose_oldest_snapshot();
        }
    }

    fn lose_oldest_snapshot(&mut self) {
        let Some(oldest) = self.snapshots.cuts.oldest() else { return };
        self.end_snapshot(oldest.id);
        self.snapshots.cuts.note_lost(oldest.id);
    }

    /// Gives space that snapshots keep back to a store that is full; false when they keep none.
    pub(crate) fn free_snapshot_space(&mut self) -> bool {
        if self.snapshots.purge.is_some() || self.keyspaces.is_sweeping() {
            return true;
        }
        if self.is_backup_waited_for() {
            return true;
        }
        if self.snapshots.keeps_nothing() && !self.keyspaces.is_retaining() {
            return false;
        }
        self.lose_oldest_snapshot();
        true
    }
}
