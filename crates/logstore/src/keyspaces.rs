//! The indexes of a shard, one a keyspace, and the keyspaces that are being dropped.

use crate::index::{HashIndex, HashIndexSettings};
use crate::location::{Location, Target};
use tierstone_base::{KeyspaceId, Position};
use tierstone_cache::{FrameId, FrameOwner};

/// One keyspace of the shard.
pub struct Keyspace {
    /// Its id.
    pub id: KeyspaceId,
    /// Its keys.
    pub index: HashIndex,
    /// Once it is dropped: how far its records have been taken off their segments' accounts.
    pub swept: Position,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Keyspace({}, {} keys)", self.id.0, self.index.len())
    }
}

/// All keyspaces of the shard. There are few: a search through them is quicker than a table.
#[derive(Debug, Default)]
pub struct Keyspaces {
    list: Vec<Keyspace>,
    /// Where the last one asked for was found.
    recent: usize,
    /// Dropped ones, whose records still count as live in their segments.
    pub dying: Vec<Keyspace>,
    /// Ids of all that were dropped in this opening.
    pub dropped: Vec<KeyspaceId>,
}

impl Keyspaces {
    /// The keyspace with this id.
    pub fn get(&self, id: KeyspaceId) -> Option<&Keyspace> {
        match self.list.get(self.recent) {
            Some(recent) if recent.id == id => Some(recent),
            _ => self.list.iter().find(|keyspace| keyspace.id == id),
        }
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
            self.recent = self.list.len();
            self.list.push(Keyspace {
                id,
                index: HashIndex::new(HashIndexSettings::default()),
                swept: Position(0),
            });
        }
        &mut self.list[self.recent]
    }

    /// Takes a keyspace out of use.
    pub fn drop_keyspace(&mut self, id: KeyspaceId) {
        if let Some(place) = self.list.iter().position(|keyspace| keyspace.id == id) {
            self.dying.push(self.list.swap_remove(place));
            self.dropped.push(id);
        }
    }

    /// All keyspaces in use.
    pub fn iter(&self) -> impl Iterator<Item = &Keyspace> {
        self.list.iter()
    }

    /// Memory of all indexes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.list.iter().chain(&self.dying).map(|keyspace| keyspace.index.memory_bytes()).sum()
    }

    fn repoint(&mut self, id: KeyspaceId, position: Position, from: Target, to: Target) {
        let dying = self.dying.iter_mut().find(|keyspace| keyspace.id == id);
        let keyspace = match dying {
            Some(keyspace) => Some(keyspace),
            None => self.get_mut(id),
        };
        if let Some(keyspace) = keyspace {
            keyspace.index.replace(position, from.pack(), to.pack());
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
}
