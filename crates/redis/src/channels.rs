//! Who listens to which channel, here and at other shards.
//!
//! Invariants:
//! 1. A connection is listed once a channel, and not at all after it has gone.
//! 2. A message costs its channel's listeners and, for plain channels, one match a pattern.
//! 3. Of other shards only numbers are known: each tells the others of every change, in order. Who was
//!    told that he listens is counted by whoever hears of it: a shard takes its messages before its
//!    clients' next requests.

use crate::glob;
use crate::session::{ChannelKind, ConnectionId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The listeners of one executor's connections.
#[derive(Debug, Default)]
pub struct Channels {
    listeners: BTreeMap<(ChannelKind, Vec<u8>), BTreeSet<ConnectionId>>,
    /// How many connections of other shards listen; never zero.
    elsewhere: BTreeMap<(ChannelKind, Vec<u8>), u64>,
    /// How many names there are in both together, of plain channels, patterns and shard channels.
    names: [usize; 3],
}

impl Channels {
    /// Adds a listener; whether it is new.
    pub fn subscribe(&mut self, kind: ChannelKind, name: &[u8], connection: ConnectionId) -> bool {
        match self.listeners.entry((kind, name.to_vec())) {
            Entry::Occupied(mut place) => place.get_mut().insert(connection),
            Entry::Vacant(place) => {
                self.names[kind as usize] += usize::from(!self.elsewhere.contains_key(place.key()));
                place.insert(BTreeSet::from([connection]));
                true
            }
        }
    }

    /// Removes a listener; whether there was one.
    pub fn unsubscribe(&mut self, kind: ChannelKind, name: &[u8], connection: ConnectionId) -> bool {
        let key = (kind, name.to_vec());
        let Some(connections) = self.listeners.get_mut(&key) else { return false };
        let was_listed = connections.remove(&connection);
        if connections.is_empty() {
            self.listeners.remove(&key);
            self.names[kind as usize] -= usize::from(!self.elsewhere.contains_key(&key));
        }
        was_listed
    }

    /// Another shard has one listener more, or one less.
    pub fn note_elsewhere(&mut self, kind: ChannelKind, name: Vec<u8>, has_joined: bool) {
        match self.elsewhere.entry((kind, name)) {
            Entry::Vacant(place) if has_joined => {
                self.names[kind as usize] += usize::from(!self.listeners.contains_key(place.key()));
                place.insert(1);
            }
            Entry::Vacant(_) => {}
            Entry::Occupied(mut place) if has_joined => *place.get_mut() += 1,
            Entry::Occupied(place) if *place.get() == 1 => {
                self.names[kind as usize] -= usize::from(!self.listeners.contains_key(place.key()));
                place.remove();
            }
            Entry::Occupied(mut place) => *place.get_mut() -= 1,
        }
    }

    /// How many listeners of other shards get a message to `name`; adds to `work` what the patterns have cost, in units of
    /// about a nanosecond.
    pub fn receivers_elsewhere(&self, kind: ChannelKind, name: &[u8], work: &mut u64) -> u64 {
        let direct = self.elsewhere.get(&(kind, name.to_vec())).copied().unwrap_or(0);
        let patterns = self
            .elsewhere
            .range((ChannelKind::Pattern, Vec::new())..(ChannelKind::Shard, Vec::new()))
            .filter(|((_, pattern), _)| {
                kind == ChannelKind::Channel && glob::matches_counted(pattern, name, work)
            })
            .map(|(_, count)| count);
        direct + patterns.sum::<u64>()
    }

    /// Who gets a message to `name`: the listeners of the channel itself, then those of each pattern
    /// that matches, with the pattern. A connection may be among several of them. Adds to `work` what the patterns have
    /// cost, in units of about a nanosecond.
    pub fn receivers<'a>(
        &'a self,
        kind: ChannelKind,
        name: &'a [u8],
        work: &'a mut u64,
    ) -> impl Iterator<Item = (Option<&'a [u8]>, &'a BTreeSet<ConnectionId>)> + 'a {
        let direct = self.listeners.get(&(kind, name.to_vec())).into_iter().map(|ids| (None, ids));
        let patterns = self
            .listeners
            .range((ChannelKind::Pattern, Vec::new())..(ChannelKind::Shard, Vec::new()))
            .filter(move |((_, pattern), _)| {
                kind == ChannelKind::Channel && glob::matches_counted(pattern, name, work)
            })
            .map(|((_, pattern), ids)| (Some(pattern.as_slice()), ids));
        direct.chain(patterns)
    }

    /// How many listen to `name`, at all shards.
    pub fn count(&self, kind: ChannelKind, name: &[u8]) -> u64 {
        let key = (kind, name.to_vec());
        let here = self.listeners.get(&key).map_or(0, BTreeSet::len) as u64;
        here + self.elsewhere.get(&key).copied().unwrap_or(0)
    }

    /// How many names of one kind have listeners at any shard. Cost: constant.
    pub fn count_names(&self, kind: ChannelKind) -> usize {
        self.names[kind as usize]
    }

    /// The names of one kind that have listeners at any shard, in order.
    pub fn names(&self, kind: ChannelKind) -> BTreeSet<&[u8]> {
        let from = (kind, Vec::new());
        let here = self.listeners.range(from.clone()..).map(|(key, _)| key);
        let elsewhere = self.elsewhere.range(from..).map(|(key, _)| key);
        let of_kind = |(other, _): &&(ChannelKind, Vec<u8>)| *other == kind;
        let all = here.take_while(of_kind).chain(elsewhere.take_while(of_kind));
        all.map(|(_, name)| name.as_slice()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_base::SeededRandom;

    #[test]
    fn listeners_elsewhere_are_counted_with_their_patterns() {
        let mut channels = Channels::default();
        assert!(channels.subscribe(ChannelKind::Channel, b"news", 1));
        assert!(!channels.subscribe(ChannelKind::Channel, b"news", 1), "listed once");
        channels.note_elsewhere(ChannelKind::Channel, b"news".to_vec(), true);
        channels.note_elsewhere(ChannelKind::Pattern, b"n*".to_vec(), true);
        channels.note_elsewhere(ChannelKind::Shard, b"news".to_vec(), true);
        assert_eq!(channels.receivers_elsewhere(ChannelKind::Channel, b"news", &mut 0), 2);
        assert_eq!(channels.receivers_elsewhere(ChannelKind::Shard, b"news", &mut 0), 1);
        assert_eq!(channels.receivers_elsewhere(ChannelKind::Channel, b"other", &mut 0), 0);
        assert_eq!(channels.count(ChannelKind::Channel, b"news"), 2);
        channels.note_elsewhere(ChannelKind::Channel, b"news".to_vec(), false);
        assert!(channels.unsubscribe(ChannelKind::Channel, b"news", 1));
        assert!(!channels.unsubscribe(ChannelKind::Channel, b"news", 1));
        assert!(channels.names(ChannelKind::Channel).is_empty());
        assert_eq!(channels.names(ChannelKind::Pattern).len(), 1);
    }

    #[test]
    fn names_are_counted_once_wherever_they_are_listened_to() {
        let mut random = SeededRandom::new(3);
        let mut channels = Channels::default();
        let kinds = [ChannelKind::Channel, ChannelKind::Pattern, ChannelKind::Shard];
        for _ in 0..5_000 {
            let kind = kinds[random.below(3) as usize];
            let name = [b'a' + random.below(4) as u8];
            match random.below(4) {
                0 => drop(channels.subscribe(kind, &name, random.below(3))),
                1 => drop(channels.unsubscribe(kind, &name, random.below(3))),
                2 => channels.note_elsewhere(kind, name.to_vec(), true),
                _ => channels.note_elsewhere(kind, name.to_vec(), false),
            }
            for kind in kinds {
                assert_eq!(channels.count_names(kind), channels.names(kind).len(), "{kind:?}");
            }
        }
    }
}
