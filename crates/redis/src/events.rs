//! Keyspace notifications: what happens to keys, as messages of channels.
//!
//! Commands note events while they run; those of a run that came to its end are published, each with the gate
//! of its command's reply, so that nobody hears of a write that a crash can take back. Messages to other shards
//! leave when the gate is open.
//!
//! Invariants:
//! 1. Names, classes and order of a command's events are Redis's.
//! 2. A run that is thrown away, and a command that answers with an error, leave no event.
//! 3. While nothing is configured nothing is noted, and a command pays one comparison an event.
//! 4. `expired` is told when the shard's time has reached the expiry, and before anything else that a request
//!    sees of the key's absence; of which keys, [`tierstone_store::key_events`] says.

use crate::commands::pubsub::deliver;
use crate::context::{Context, Halt};
use crate::executor::Executor;
use crate::remote::Message;
use crate::session::ChannelKind;
use crate::settings::Settings;
use std::sync::Arc;
use tierstone_base::{KeyspaceId, Now, Seq};
use tierstone_engine::Engine;

/// The setting that says which events are published.
pub(crate) const EVENTS: &str = "notify-keyspace-events";

/// A bit for each letter of the setting.
pub(crate) mod class {
    pub const GENERIC: u32 = 1 << 0;
    pub const STRING: u32 = 1 << 1;
    pub const EXPIRED: u32 = 1 << 6;
    pub const EVICTED: u32 = 1 << 7;
    pub const NEW: u32 = 1 << 10;
    pub const OVERWRITTEN: u32 = 1 << 11;
    pub const MISS: u32 = 1 << 13;
    pub const KEYSPACE: u32 = 1 << 14;
    pub const KEYEVENT: u32 = 1 << 15;
}

/// The letters by their bits, in the order in which Redis shows them. Lists, sets, hashes, sorted sets, streams,
/// modules and changes of type are known and mean nothing here.
const LETTERS: [(char, u32); 16] = [
    ('g', class::GENERIC),
    ('$', class::STRING),
    ('l', 1 << 2),
    ('s', 1 << 3),
    ('h', 1 << 4),
    ('z', 1 << 5),
    ('x', class::EXPIRED),
    ('e', class::EVICTED),
    ('t', 1 << 8),
    ('d', 1 << 9),
    ('n', class::NEW),
    ('o', class::OVERWRITTEN),
    ('c', 1 << 12),
    ('K', class::KEYSPACE),
    ('E', class::KEYEVENT),
    ('m', class::MISS),
];

/// What `A` stands for.
const ALL: u32 = (1 << 10) - 1;

/// Reads a value of the setting.
fn parse(text: &str) -> Option<u32> {
    text.chars().try_fold(0, |bits, letter| match letter {
        'A' => Some(bits | ALL),
        _ => LETTERS.iter().find(|(other, _)| *other == letter).map(|(_, bit)| bits | bit),
    })
}

/// Checks a value of the setting: as it is kept.
///
/// # Errors
/// Redis's words.
pub(crate) fn check(text: &str) -> Result<String, String> {
    let Some(bits) = parse(text) else {
        return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into());
    };
    let has_all = bits & ALL == ALL;
    let shown = |bit: &u32| bits & bit != 0 && !(has_all && ALL & bit != 0);
    let letters = LETTERS.iter().filter(|(_, bit)| shown(bit)).map(|(letter, _)| *letter);
    Ok(has_all.then_some('A').into_iter().chain(letters).collect())
}

/// The events of the run at hand.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Bits of the setting; 0 while nothing can be published.
    wanted: u32,
    list: Vec<Event>,
    /// When the keys that expire are looked at, by the monotonic clock.
    due_us: Option<u64>,
}

#[derive(Debug)]
struct Event {
    name: &'static str,
    db: u32,
    key: Vec<u8>,
}

impl Events {
    /// Whether anything may be published.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.wanted != 0
    }

    /// An empty list of the same events.
    pub fn alike(&self) -> Events {
        Events { wanted: self.wanted, ..Events::default() }
    }

    fn wants(&self, class: u32) -> bool {
        self.wanted & class != 0
    }

    fn follow(&mut self, settings: &Settings) {
        let bits = settings.get(EVENTS).and_then(|setting| parse(&setting.value)).unwrap_or(0);
        let has_channels = bits & (class::KEYSPACE | class::KEYEVENT) != 0;
        self.wanted = if has_channels { bits } else { 0 };
    }

    /// A place to which [`Events::roll_back`] can return.
    #[inline]
    pub fn mark(&self) -> usize {
        self.list.len()
    }

    /// Forgets the events noted since `mark`.
    #[inline]
    pub fn roll_back(&mut self, mark: usize) {
        self.list.truncate(mark);
    }

    #[inline]
    fn note(&mut self, class: u32, name: &'static str, db: u32, key: &[u8]) {
        if self.wants(class) {
            self.list.push(Event { name, db, key: key.to_vec() });
        }
    }

    /// A key that a command reads was not there.
    #[inline]
    pub fn note_miss(&mut self, db: u32, key: &[u8]) {
        self.note(class::MISS, "keymiss", db, key);
    }

    /// When the executor is wanted because of keys that expire.
    pub fn due_us(&self) -> Option<u64> {
        self.due_us
    }
}

/// Whether a key was there before a command: the one that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Existed(pub bool);

impl Context<'_, '_> {
    /// Notes an event of a key of the selected database.
    #[inline]
    pub(crate) fn note(&mut self, class: u32, name: &'static str, key: &[u8]) {
        self.events.note(class, name, self.db, key);
    }

    /// Notes an event of a key of another database.
    pub(crate) fn note_in(&mut self, db: u32, class: u32, name: &'static str, key: &[u8]) {
        self.events.note(class, name, db, key);
    }

    /// A key that a command reads was not there.
    #[inline]
    pub(crate) fn note_miss(&mut self, key: &[u8]) {
        self.events.note_miss(self.db, key);
    }

    /// Whether `key` exists, for a command that writes it without having to know: it is looked up only if an event
    /// depends on it.
    pub(crate) fn existed(&mut self, key: &[u8]) -> Result<Existed, Halt> {
        if !self.events.wants(class::NEW | class::OVERWRITTEN) {
            return Ok(Existed(false));
        }
        Ok(Existed(self.view.get(self.db, key)?.is_some()))
    }

    /// A string was written over whatever there was.
    pub(crate) fn note_set(&mut self, key: &[u8], existed: Existed) {
        match existed {
            Existed(true) => self.note(class::OVERWRITTEN, "overwritten", key),
            Existed(false) => self.note(class::NEW, "new", key),
        }
        self.note(class::STRING, "set", key);
    }

    /// A string was written with an expiry.
    pub(crate) fn note_expiry(&mut self, key: &[u8], expiry_ms: u64) {
        self.note(class::GENERIC, "expire", key);
        if expiry_ms <= self.now_ms() {
            self.note(class::EXPIRED, "expired", key);
        }
    }

    /// A string was changed, or made.
    pub(crate) fn note_change(&mut self, name: &'static str, key: &[u8], existed: bool) {
        if !existed {
            self.note(class::NEW, "new", key);
        }
        self.note(class::STRING, name, key);
    }
}

impl<E: Engine> Executor<E> {
    /// Follows the setting.
    pub(crate) fn follow_events(&mut self) {
        self.host.events.follow(&self.host.settings);
        let bytes_max = usize::try_from(self.host.held_bytes_max / 2).unwrap_or(usize::MAX);
        let events = &mut self.host.events;
        // Those who follow prefixes hear of keys that expire, too.
        let wants_expired = events.wants(class::EXPIRED) || self.shard.tracking.has_prefixes();
        self.shard.key_events.want_expired(wants_expired, bytes_max);
        self.shard.key_events.want_evicted(events.wants(class::EVICTED));
        // The next step finds out when the first key expires.
        events.due_us = wants_expired.then_some(0);
    }

    /// Publishes the events of a run that came to its end, when `gate` is open.
    pub(crate) fn publish_events(&mut self, gate: Seq) {
        if self.host.events.list.is_empty() {
            return;
        }
        let (has_keyspace, has_keyevent) =
            (self.host.events.wants(class::KEYSPACE), self.host.events.wants(class::KEYEVENT));
        for Event { name, db, key } in std::mem::take(&mut self.host.events.list) {
            let name = name.as_bytes();
            for (is_wanted, kind, subject, payload) in
                [(has_keyspace, "keyspace", key.as_slice(), name), (has_keyevent, "keyevent", name, &key)]
            {
                if is_wanted {
                    let mut channel = format!("__{kind}@{db}__:").into_bytes();
                    channel.extend_from_slice(subject);
                    self.publish_at(&channel, payload, gate);
                }
            }
        }
    }

    fn publish_at(&mut self, channel: &[u8], payload: &[u8], gate: Seq) {
        let kind = ChannelKind::Channel;
        deliver(&mut self.host, kind, channel, payload, gate);
        let mut work = 0;
        let elsewhere = self.host.channels.receivers_elsewhere(kind, channel, &mut work);
        self.host.work.add(work);
        if elsewhere == 0 {
            return;
        }
        self.host
            .pushes
            .note(channel.len() + payload.len(), usize::try_from(elsewhere).unwrap_or(usize::MAX));
        let own = self.shard.index();
        let (channel, payload): (Arc<[u8]>, Arc<[u8]>) = (channel.into(), payload.into());
        for to in (0..self.shard.count()).filter(|to| *to != own) {
            let (channel, payload) = (Arc::clone(&channel), Arc::clone(&payload));
            self.send_gated(to, Message::Publish { kind, channel, payload }, gate);
        }
    }

    /// Tells which keys have gone by themselves.
    pub(crate) fn tell_gone(&mut self, now: Now) {
        if !self.host.events.is_on() && !self.shard.tracking.is_on() {
            self.host.events.due_us = None;
            return;
        }
        // What a run has left that was thrown away.
        self.host.events.roll_back(0);
        let wall_ms = self.shard_now(now).wall_ms;
        let mut any = false;
        if let Some(expiry_ms) = self.shard.tracking.expire(wall_ms) {
            self.shard.engine_mut().note_past(expiry_ms);
        }
        while let Some((keyspace, key, expiry_ms)) = self.shard.key_events.take_expired(wall_ms) {
            // From now on it does not come back, whatever the clock is set to.
            self.shard.engine_mut().note_past(expiry_ms);
            self.shard.tracking.touch_prefixes(&key);
            any |= self.note_gone(class::EXPIRED, "expired", keyspace, &key);
        }
        // Of these it will not be known when they expire: nobody is to keep them.
        for key in self.shard.key_events.take_left_out() {
            self.shard.tracking.touch_prefixes(&key);
        }
        for (keyspace, key) in self.shard.key_events.take_evicted() {
            any |= self.note_gone(class::EVICTED, "evicted", keyspace, &key);
        }
        if any {
            let gate = self.shard.gate(self.shard.engine().applied_seq());
            self.publish_events(gate);
        }
        let next = [self.shard.key_events.next_expiry_ms(), self.shard.tracking.next_expiry_ms()];
        let next_ms = next.into_iter().flatten().min();
        let wait_ms = next_ms.map(|next_ms| next_ms.saturating_sub(wall_ms).min(LOOK_MS_MAX));
        self.host.events.due_us = wait_ms.map(|wait_ms| now.monotonic_us + wait_ms * 1_000);
    }

    fn note_gone(&mut self, class: u32, name: &'static str, keyspace: KeyspaceId, key: &[u8]) -> bool {
        let databases = self.shard.map().keyspaces();
        let Some(db) = databases.iter().position(|other| *other == keyspace) else { return false };
        self.host.events.note(class, name, db as u32, key);
        true
    }
}

/// How long keys that expire are not looked at, at most: the wall clock may be set, in milliseconds.
const LOOK_MS_MAX: u64 = 1_000;

#[cfg(test)]
#[path = "events_test.rs"]
mod events_test;
