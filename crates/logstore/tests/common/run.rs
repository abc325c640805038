//! A store that is changed at random in every way that matters to backups, and what it should hold.

use super::{Store, fresh};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_engine::{Engine, IndexKind, SnapshotId, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::sim::SimMedium;

pub type Place = (u32, Vec<u8>);
pub type Stored = (Vec<u8>, u64);
pub type Contents = BTreeMap<Place, Stored>;

/// What a store should hold, and how it came to it.
pub struct Run {
    pub medium: SimMedium,
    pub store: Store,
    pub random: SeededRandom,
    pub model: Contents,
    /// Keyspaces in use; the last one is dropped now and then.
    pub keyspaces: Vec<u32>,
    pub snapshots: Vec<SnapshotId>,
    /// Whether keyspaces are dropped, of which the superblock knows nothing.
    pub drops: bool,
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

impl Run {
    pub fn new(seed: u64, settings: &OpenSettings) -> Run {
        let (medium, store) = fresh(64 << 10, 24, settings);
        let random = SeededRandom::new(seed);
        Run {
            medium,
            store,
            random,
            model: Contents::new(),
            keyspaces: vec![1, 2, 3],
            snapshots: Vec::new(),
            drops: true,
        }
    }

    pub fn put(&mut self, id: u32, bytes: &[u8], value: Vec<u8>, expiry_ms: u64) {
        let kind = WriteKind::Put { value: &value, expiry_ms, kind: Default::default() };
        self.store.write(&[Write { key: self.store.key(KeyspaceId(id), bytes), kind }]).unwrap();
        self.model.insert((id, bytes.to_vec()), (value, expiry_ms));
    }

    /// One random change.
    pub fn change(&mut self) {
        let id = self.keyspaces[self.random.below(3) as usize];
        let bytes = key(self.random.below(150));
        let wall_ms = self.store.now.wall_ms;
        let soon_ms = wall_ms + 1 + self.random.below(400);
        match self.random.below(100) {
            0..60 => {
                let len = self.random.below(900) as usize;
                let value = vec![self.random.below(256) as u8; len];
                let expiry_ms = if self.random.chance(0.3) { soon_ms } else { 0 };
                self.put(id, &bytes, value, expiry_ms);
            }
            60..75 => {
                self.store.delete(KeyspaceId(id), &bytes).unwrap();
                self.model.remove(&(id, bytes));
            }
            // Another expiry, and the same value.
            75..88 => {
                let found = self.model.get(&(id, bytes.clone())).cloned();
                if let Some((value, expiry_ms)) = found.filter(|(_, at_ms)| *at_ms == 0 || *at_ms > wall_ms) {
                    let expiry_ms = if expiry_ms == 0 { soon_ms } else { 0 };
                    self.put(id, &bytes, value, expiry_ms);
                }
            }
            88..92 => self.store.now.wall_ms += self.random.below(200),
            92..96 => self.store.settle(20),
            96..98 => self.snapshot(),
            98 if self.drops => self.drop_last(),
            _ => self.store.sync().unwrap(),
        }
    }

    pub fn snapshot(&mut self) {
        match self.snapshots.pop() {
            Some(id) => self.store.engine.release_snapshot(id),
            None => self.snapshots.push(self.store.engine.snapshot(self.store.now).unwrap()),
        }
    }

    pub fn drop_last(&mut self) {
        let gone = self.keyspaces.pop().unwrap();
        self.store.engine.drop_keyspace(KeyspaceId(gone));
        self.model.retain(|(id, _), _| *id != gone);
        let new = gone + 1;
        let kind = if self.random.chance(0.5) { IndexKind::Ordered } else { IndexKind::Hash };
        self.store.engine.create_keyspace(KeyspaceId(new), kind);
        self.keyspaces.push(new);
    }

    /// What counts now.
    pub fn live(&self) -> Contents {
        let wall_ms = self.store.now.wall_ms;
        let is_live = |(_, value): &(_, &(Vec<u8>, u64))| value.1 == 0 || value.1 > wall_ms;
        self.model.iter().filter(is_live).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

pub fn assert_same(found: &Contents, expected: &Contents, what: &str) {
    let (one, other): (BTreeSet<_>, BTreeSet<_>) = (found.iter().collect(), expected.iter().collect());
    let names = |set: Vec<&(&Place, &Stored)>| -> Vec<String> {
        let name = |((id, key), (value, at)): &(&Place, &Stored)| {
            format!("{id}/{} ({} bytes, {at})", String::from_utf8_lossy(key), value.len())
        };
        set.into_iter().take(5).map(name).collect()
    };
    let wrong = (names(one.difference(&other).collect()), names(other.difference(&one).collect()));
    assert!(one == other, "{what}: too much {:?}, missing {:?}", wrong.0, wrong.1);
}
