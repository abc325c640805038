//! Watched positions: which transactions must not happen because somebody changed what they saw.
//!
//! Invariants:
//! 1. Every write, expiry and flush of a watched position marks its watchers; cleaning, caching and
//!    recovery never do (there is no version of the record in the rule).
//! 2. Two keys that share a position are watched together: a watcher may be marked without need
//!    (with a chance of about 2^-50), never left unmarked.
//! 3. An empty table costs a write one comparison. Nothing here is durable: watchers are
//!    connections, and a crash ends those.

use tierstone_base::collections::Map;
use tierstone_base::{KeyspaceId, Now, Position};

/// Who watches: a connection's id.
pub type WatcherId = u64;

/// One watched key as it was when the watch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedKey {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// Its position.
    pub position: Position,
    /// When it expires, in milliseconds since 1970; zero: never, or it did not exist.
    pub expiry_ms: u64,
    /// Whether it existed.
    pub existed: bool,
}

#[derive(Debug, Default)]
struct Watcher {
    is_dirty: bool,
    keys: Vec<WatchedKey>,
}

/// The watches of one shard.
#[derive(Debug, Default)]
pub struct WatchTable {
    positions: Map<(KeyspaceId, Position), Vec<WatcherId>>,
    watchers: Map<WatcherId, Watcher>,
}

impl WatchTable {
    /// Whether nothing is watched.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Makes `watcher` watch `key`. A second watch of the same position changes nothing.
    pub fn watch(&mut self, watcher: WatcherId, key: WatchedKey) {
        let watchers = self.positions.entry((key.keyspace, key.position)).or_default();
        if !watchers.contains(&watcher) {
            watchers.push(watcher);
            self.watchers.entry(watcher).or_default().keys.push(key);
        }
    }

    /// Ends all watches of `watcher`.
    pub fn unwatch(&mut self, watcher: WatcherId) {
        let Some(state) = self.watchers.remove(&watcher) else { return };
        for key in state.keys {
            if let Some(watchers) = self.positions.get_mut(&(key.keyspace, key.position)) {
                watchers.retain(|other| *other != watcher);
                if watchers.is_empty() {
                    self.positions.remove(&(key.keyspace, key.position));
                }
            }
        }
    }

    /// The positions that `watcher` watches.
    pub fn positions(&self, watcher: WatcherId) -> impl Iterator<Item = Position> {
        self.watchers.get(&watcher).into_iter().flat_map(|state| state.keys.iter().map(|key| key.position))
    }

    /// Marks the watchers of a position that is being written.
    #[inline]
    pub fn touch(&mut self, keyspace: KeyspaceId, position: Position) {
        if !self.is_empty() {
            self.touch_watched(keyspace, position);
        }
    }

    #[cold]
    fn touch_watched(&mut self, keyspace: KeyspaceId, position: Position) {
        for watcher in self.positions.get(&(keyspace, position)).into_iter().flatten() {
            if let Some(state) = self.watchers.get_mut(watcher) {
                state.is_dirty = true;
            }
        }
    }

    /// Marks the watchers of all keys of `keyspace`.
    pub fn touch_keyspace(&mut self, keyspace: KeyspaceId) {
        for state in self.watchers.values_mut() {
            state.is_dirty |= state.keys.iter().any(|key| key.keyspace == keyspace);
        }
    }

    /// A database was emptied by giving it another keyspace: marks the watchers of keys that existed;
    /// keys that did not exist are watched on in `new`, where the database's next writes will be.
    pub fn replace_keyspace(&mut self, old: KeyspaceId, new: KeyspaceId) {
        for (watcher, state) in &mut self.watchers {
            for key in state.keys.iter_mut().filter(|key| key.keyspace == old) {
                state.is_dirty |= key.existed;
                if let Some(watchers) = self.positions.get_mut(&(old, key.position)) {
                    watchers.retain(|other| other != watcher);
                }
                key.keyspace = new;
                self.positions.entry((new, key.position)).or_default().push(*watcher);
            }
        }
        self.positions.retain(|_, watchers| !watchers.is_empty());
    }

    /// Whether something that `watcher` watches was changed, or has expired by `now`.
    pub fn is_dirty(&self, watcher: WatcherId, now: Now) -> bool {
        self.watchers.get(&watcher).is_some_and(|state| {
            let has_expired = |key: &WatchedKey| key.expiry_ms != 0 && key.expiry_ms <= now.wall_ms;
            state.is_dirty || state.keys.iter().any(has_expired)
        })
    }
}

#[cfg(test)]
#[path = "watch_test.rs"]
mod watch_test;
