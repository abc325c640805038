//! The indexes of a shard, one a keyspace, and the keyspaces that are being dropped.
//!
//! Invariant: an ordered keyspace's order holds exactly the keys that have a record in its hash index,
//! but for keys that were deleted past a record that cannot be read: those are out of the order at once.

use crate::index::{HashIndex, HashIndexSettings, OrderedIndex};
use crate::location::{Location, Target};
use crate::snapshots::Snapshots;
use std::collections::{BTreeMap, VecDeque};
use tierstone_base::{KeyspaceId, Position, Result};
use tierstone_cache::{FrameId, FrameOwner};
use tierstone_engine::cuts::Cut;
use tierstone_engine::{IndexKind, RangeRequest, SnapshotId};

/// So many dropped keyspaces are remembered: a batch that knows one of them as one in use is done long before as many more
/// are dropped, and so is the change of the superblock that takes one out of its list.
const LAST_DROPPED_MAX: usize = 4_096;

/// One keyspace of the shard.
pub struct Keyspace {
    /// Its id.
    pub id: KeyspaceId,
    /// Places of records by the positions of their keys.
    pub index: HashIndex,
    /// The keys in their order, if the keyspace is ordered.
    pub order: Option<OrderedIndex>,
    /// Once it is dropped: how far its records have been taken off their segments' accounts.
    pub swept: Position,
    /// Once it is dropped: snapshots before this one show it.
    pub dropped_before: SnapshotId,
    /// Whether such a snapshot lives: then its records are as live as any.
    pub is_retained: bool,
    /// Once nobody keeps its records: how many segments had been opened by then. In younger ones it has none, whatever its index
    /// says: those that it points to are freed without looking at it.
    pub left_at: u64,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Keyspace({}, {} keys)", self.id.0, self.index.len())
    }
}

impl Keyspace {
    /// `key` has a record from now on.
    pub fn note_live(&mut self, key: &[u8]) {
        if let Some(order) = &mut self.order
            && order.insert(key).is_err()
        {
            unreachable!("the order has no limit of its own");
        }
    }

    /// `key` has no record any more; true when it was in the order.
    pub fn note_gone(&mut self, key: &[u8]) -> bool {
        self.order.as_mut().is_some_and(|order| order.remove(key))
    }

    /// Memory of its indexes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes() + self.order.as_ref().map_or(0, OrderedIndex::memory_bytes)
    }
}

/// All keyspaces of the shard. There are few: a search through them is quicker than a table.
#[derive(Debug, Default)]
pub struct Keyspaces {
    /// Of their indexes.
    settings: HashIndexSettings,
    list: Vec<Keyspace>,
    /// Where the last one asked for was found.
    recent: usize,
    /// Those with an order, whether they have keys or not.
    ordered: Vec<KeyspaceId>,
    /// Dropped ones, whose records still count as live in their segments.
    pub dying: Vec<Keyspace>,
    /// Ids that were dropped last, with keys or without.
    last_dropped: VecDeque<KeyspaceId>,
    /// Dropped ones that were written to afterwards.
    reborn: Vec<KeyspaceId>,
    /// Those that had an order, keys or not, and the first snapshot that does not show them: the last that were dropped, and
    /// all that a snapshot may show.
    ordered_before: BTreeMap<KeyspaceId, SnapshotId>,
}

impl Keyspaces {
    /// None yet; their indexes will have these settings.
    pub fn new(settings: HashIndexSettings) -> Self {
        Keyspaces { settings, ..Keyspaces::default() }
    }

    /// The keyspace with this id.
    pub fn get(&self, id: KeyspaceId) -> Option<&Keyspace> {
        match self.list.get(self.recent) {
            Some(recent) if recent.id == id => Some(recent),
            _ => self.list.iter().find(|keyspace| keyspace.id == id),
        }
    }

    /// Says how a keyspace without keys finds them.
    pub fn define(&mut self, id: KeyspaceId, kind: IndexKind) {
        debug_assert!(self.get(id).is_none_or(|keyspace| keyspace.index.is_empty()));
        if kind == IndexKind::Ordered && !self.is_ordered(id) {
            self.ordered.push(id);
            if let Some(keyspace) = self.get_mut(id) {
                keyspace.order = Some(OrderedIndex::new(u64::MAX));
            }
        }
    }

    /// Whether the keyspace has an order.
    pub fn is_ordered(&self, id: KeyspaceId) -> bool {
        self.ordered.contains(&id)
    }

    /// Whether any keyspace has.
    pub fn has_ordered(&self) -> bool {
        !self.ordered.is_empty()
    }

    /// The keyspace with this id, to change it.
    pub fn get_mut(&mut self, id: KeyspaceId) -> Option<&mut Keyspace> {
        if self.list.get(self.recent).is_none_or(|recent| recent.id != id) {
            self.recent = self.list.iter().position(|keyspace| keyspace.id == id)?;
        }
        self.list.get_mut(self.recent)
    }

    /// The keyspace with this id; made if it does not exist.
    pub fn get_or_create(&mut self, id: KeyspaceId) -> &mut Keyspace {
        if self.get_mut(id).is_none() {
            if self.last_dropped.contains(&id) {
                self.reborn.push(id);
            }
            self.recent = self.list.len();
            self.list.push(Keyspace {
                id,
                index: HashIndex::new(self.settings),
                order: self.is_ordered(id).then(|| OrderedIndex::new(u64::MAX)),
                swept: Position(0),
                dropped_before: SnapshotId(0),
                is_retained: false,
                left_at: 0,
            });
        }
        &mut self.list[self.recent]
    }

    /// Takes a keyspace out of use when so many segments have been opened. Snapshots that live go on showing it.
    pub fn drop_keyspace(&mut self, id: KeyspaceId, snapshots: &Snapshots, opened: u64) {
        if self.last_dropped.len() == LAST_DROPPED_MAX {
            self.last_dropped.pop_front();
        }
        self.last_dropped.push_back(id);
        if self.is_ordered(id) {
            self.ordered.retain(|other| *other != id);
            self.ordered_before.insert(id, snapshots.cuts.next_id());
            self.forget_ordered(snapshots);
        }
        if let Some(place) = self.list.iter().position(|keyspace| keyspace.id == id) {
            let mut keyspace = self.list.swap_remove(place);
            keyspace.dropped_before = snapshots.cuts.next_id();
            keyspace.is_retained = snapshots.any_before(keyspace.dropped_before);
            keyspace.left_at = opened;
            self.dying.push(keyspace);
        }
    }

    /// Forgets what was dropped long ago: a range of it gets another error then. Ids are given in order.
    fn forget_ordered(&mut self, snapshots: &Snapshots) {
        while self.ordered_before.len() > LAST_DROPPED_MAX
            && let Some(oldest) = self.ordered_before.first_entry()
            && !snapshots.any_before(*oldest.get())
        {
            oldest.remove();
        }
    }

    /// Ids of keyspaces that were dropped last: of those that the newest slots of the superblock may still list, all.
    pub fn last_dropped(&self) -> impl Iterator<Item = KeyspaceId> {
        self.last_dropped.iter().copied()
    }

    /// Takes dropped keyspaces out of use that were written to since: by the part of a batch over several shards of which
    /// another shard heard later that the keyspace is gone. No snapshot shows what was written there. Whether there were some.
    pub fn drop_reborn(&mut self, opened: u64) -> bool {
        let reborn = std::mem::take(&mut self.reborn);
        for id in &reborn {
            if let Some(place) = self.list.iter().position(|keyspace| keyspace.id == *id) {
                let mut keyspace = self.list.swap_remove(place);
                (keyspace.dropped_before, keyspace.is_retained) = (SnapshotId(0), false);
                keyspace.left_at = opened;
                self.dying.push(keyspace);
            }
        }
        !reborn.is_empty()
    }

    /// The keyspace with this id as a snapshot shows it.
    pub fn at(&self, id: KeyspaceId, cut: &Cut) -> Option<&Keyspace> {
        let dropped = |keyspace: &&Keyspace| keyspace.id == id && cut.id < keyspace.dropped_before;
        self.dying.iter().find(dropped).or_else(|| self.get(id))
    }

    /// The order that a range shows, of `cut` or as it is; `None` while it has no keys.
    ///
    /// # Errors
    /// When the keyspace has no order, or was dropped.
    pub fn order_of(&self, request: &RangeRequest, cut: Option<&Cut>) -> Result<Option<&OrderedIndex>> {
        let id = request.keyspace;
        let dropped = self.ordered_before.get(&id);
        let keyspace = match (cut, dropped) {
            (Some(cut), Some(before)) if cut.id < *before => self.at(id, cut),
            (_, Some(_)) => return Err(request.dropped()),
            (_, None) if !self.is_ordered(id) => return Err(request.no_order()),
            (_, None) => self.get(id),
        };
        Ok(keyspace.and_then(|keyspace| keyspace.order.as_ref()))
    }

    /// The keyspace with this id whose records must be kept: in use, or shown by a snapshot.
    pub fn reachable(&self, id: KeyspaceId) -> Option<&Keyspace> {
        let retained = |keyspace: &&Keyspace| keyspace.id == id && keyspace.is_retained;
        self.get(id).or_else(|| self.dying.iter().find(retained))
    }

    /// The same, to change it.
    pub fn reachable_mut(&mut self, id: KeyspaceId) -> Option<&mut Keyspace> {
        if self.get(id).is_some() {
            return self.get_mut(id);
        }
        self.dying.iter_mut().find(|keyspace| keyspace.id == id && keyspace.is_retained)
    }

    /// A snapshot has ended: finds the dropped keyspaces that none shows any more.
    pub fn retain_dropped(&mut self, snapshots: &Snapshots, opened: u64) {
        for keyspace in self.dying.iter_mut().filter(|keyspace| keyspace.is_retained) {
            keyspace.is_retained = snapshots.any_before(keyspace.dropped_before);
            keyspace.left_at = opened;
        }
    }

    /// Whether a dropped keyspace is kept for a snapshot.
    pub fn is_retaining(&self) -> bool {
        self.dying.iter().any(|keyspace| keyspace.is_retained)
    }

    /// Whether a dropped keyspace is being taken off its segments' accounts.
    pub fn is_sweeping(&self) -> bool {
        !self.reborn.is_empty() || self.dying.iter().any(|keyspace| !keyspace.is_retained)
    }

    /// Takes out a dropped keyspace that no snapshot shows.
    pub fn take_sweepable(&mut self) -> Option<Keyspace> {
        let place = self.dying.iter().rposition(|keyspace| !keyspace.is_retained)?;
        Some(self.dying.swap_remove(place))
    }

    /// All keyspaces in use.
    pub fn iter(&self) -> impl Iterator<Item = &Keyspace> {
        self.list.iter()
    }

    /// Memory of all indexes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.list.iter().chain(&self.dying).map(Keyspace::memory_bytes).sum()
    }

    fn repoint(&mut self, id: KeyspaceId, position: Position, from: Target, to: Target) {
        // One that was dropped may have been written to since, and dropped again: the frame is one of theirs.
        let (from, to) = (from.pack(), to.pack());
        let mut dying = self.dying.iter_mut().filter(|keyspace| keyspace.id == id);
        if !dying.any(|keyspace| keyspace.index.replace(position, from, to))
            && let Some(keyspace) = self.get_mut(id)
        {
            keyspace.index.replace(position, from, to);
        }
    }
}

impl FrameOwner for Keyspaces {
    fn evicted(&mut self, keyspace: KeyspaceId, position: Position, frame: FrameId, location: u64) {
        let target = Target::Device(Location::from_raw(location));
        self.repoint(keyspace, position, Target::Frame(frame.to_bits()), target);
    }

    fn moved(&mut self, keyspace: KeyspaceId, position: Position, from: FrameId, to: FrameId) {
        let target = Target::Frame(to.to_bits());
        self.repoint(keyspace, position, Target::Frame(from.to_bits()), target);
    }

    fn announced(&self, keyspace: KeyspaceId, position: Position) {
        if let Some(keyspace) = self.get(keyspace) {
            keyspace.index.prefetch(position);
        }
    }
}
