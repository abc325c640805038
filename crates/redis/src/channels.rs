//! Who listens to which channel.
//!
//! Invariants:
//! 1. A connection is listed once a channel, and not at all after it has gone.
//! 2. A message costs its channel's listeners and, for plain channels, one match a pattern.

use crate::glob;
use crate::session::{ChannelKind, ConnectionId};
use std::collections::{BTreeMap, BTreeSet};

/// The listeners of one executor's connections.
#[derive(Debug, Default)]
pub struct Channels {
    listeners: BTreeMap<(ChannelKind, Vec<u8>), BTreeSet<ConnectionId>>,
}

impl Channels {
    /// Adds a listener.
    pub fn subscribe(&mut self, kind: ChannelKind, name: &[u8], connection: ConnectionId) {
        self.listeners.entry((kind, name.to_vec())).or_default().insert(connection);
    }

    /// Removes a listener.
    pub fn unsubscribe(&mut self, kind: ChannelKind, name: &[u8], connection: ConnectionId) {
        let key = (kind, name.to_vec());
        if let Some(connections) = self.listeners.get_mut(&key) {
            connections.remove(&connection);
            if connections.is_empty() {
                self.listeners.remove(&key);
            }
        }
    }

    /// Who gets a message to `name`: the listeners of the channel itself, then those of each pattern
    /// that matches, with the pattern.
    pub fn receivers<'a>(
        &'a self,
        kind: ChannelKind,
        name: &'a [u8],
    ) -> impl Iterator<Item = (ConnectionId, Option<&'a [u8]>)> + 'a {
        let direct = self.listeners.get(&(kind, name.to_vec())).into_iter().flatten().map(|id| (*id, None));
        let patterns = self
            .listeners
            .range((ChannelKind::Pattern, Vec::new())..(ChannelKind::Shard, Vec::new()))
            .filter(move |((_, pattern), _)| kind == ChannelKind::Channel && glob::matches(pattern, name))
            .flat_map(|((_, pattern), ids)| ids.iter().map(move |id| (*id, Some(pattern.as_slice()))));
        direct.chain(patterns)
    }

    /// How many listen to `name`.
    pub fn count(&self, kind: ChannelKind, name: &[u8]) -> usize {
        self.listeners.get(&(kind, name.to_vec())).map_or(0, BTreeSet::len)
    }

    /// The names of one kind that have listeners, in order.
    pub fn names(&self, kind: ChannelKind) -> impl Iterator<Item = &[u8]> {
        self.listeners.keys().filter(move |(other, _)| *other == kind).map(|(_, name)| name.as_slice())
    }
}
