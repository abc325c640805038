//! Snapshots of one shard: taking them together with other shards, reading and walking them.
//!
//! Invariant: from its part of a cut until the cut is whole, the shard applies nothing: it takes no
//! messages, and events that could lead to a write wait.

use super::super::Inner;
use super::super::answer::Reply;
use super::super::cut::{Share, Taken};
use super::super::gate::Ready;
use super::super::message::OwnedKey;
use super::{Purpose, Service};
use crate::plain::{is_of_snapshot, is_user_value, owned_value};
use crate::scan::{Cursor, Entry, Page};
use std::sync::Weak;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result, Token};
use tierstone_engine::{Engine, Event, OwnedRecord, ScanEntry, ScanRequest, SnapshotId};

/// A read of many keys at a snapshot whose values are not all there.
#[derive(Debug)]
pub(super) struct ManyAt {
    keys: Vec<OwnedKey>,
    values: Vec<Option<Vec<u8>>>,
    missing: usize,
    failure: Option<Error>,
    purpose: Purpose,
}

/// A page of a walk of a snapshot.
#[derive(Debug)]
pub(super) struct WalkAt {
    reply: Reply<Page>,
    snapshot: SnapshotId,
    keyspace: KeyspaceId,
    cursor: Cursor,
}

impl Service {
    /// Takes the shard's part of a cut.
    pub(super) fn take_snapshot(&mut self, share: Share, store: Weak<Inner>, reply: Reply<Taken>) {
        match self.engine.snapshot(self.now) {
            Ok(id) => {
                let taken = Taken::new(id, self.engine.place().0, store);
                self.holding = Some(share.take());
                // Everything that the snapshot shows is durable before anybody hears of it: its reads
                // need not wait.
                let applied = self.engine.applied_seq();
                if !self.relaxed && applied > self.engine.durable_seq() {
                    self.engine.flush(self.now);
                }
                self.answer(applied, Ready::Snapshot(reply, taken));
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Whether the shard waits for a cut to become whole.
    pub fn is_holding(&self) -> bool {
        self.holding.is_some()
    }

    /// Goes on when the cut that the shard waits for is whole; true when it was.
    pub fn end_hold(&mut self) -> bool {
        if self.holding.as_ref().is_none_or(|cut| !cut.is_whole()) {
            return false;
        }
        self.holding = None;
        for event in std::mem::take(&mut self.held_back) {
            self.on_event(event);
        }
        true
    }

    pub(super) fn read_at(&mut self, snapshot: SnapshotId, keys: Vec<OwnedKey>, purpose: Purpose) {
        let number = self.number();
        let count = keys.len();
        let first = self.next_number + 1;
        self.next_number += count as u64;
        let views: Vec<_> = (first..).zip(keys.iter().map(OwnedKey::view)).collect();
        self.engine.read_at(self.now, snapshot, &views);
        self.read_at.extend((first..).zip((0..count).map(|place| (number, place))));
        let many = ManyAt { keys, values: vec![None; count], missing: count, failure: None, purpose };
        if count == 0 {
            self.finish_many_at(many);
        } else {
            self.many_at.insert(number, many);
        }
    }

    pub(super) fn on_snapshot_read(&mut self, token: Token, result: Result<Option<OwnedRecord>>) {
        let Some((number, place)) = self.read_at.remove(&token) else { return };
        let Some(many) = self.many_at.get_mut(&number) else { return };
        many.missing -= 1;
        match result.and_then(owned_value) {
            Ok(value) => many.values[place] = value,
            Err(error) => many.failure = many.failure.take().or(Some(error)),
        }
        if many.missing == 0
            && let Some(many) = self.many_at.remove(&number)
        {
            self.finish_many_at(many);
        }
    }

    /// What a snapshot shows was durable when its number was given: no answer waits.
    fn finish_many_at(&mut self, many: ManyAt) {
        let ManyAt { keys, values, failure, purpose, .. } = many;
        match purpose {
            Purpose::Values(reply) => drop(reply.send(failure.map_or(Ok(values), Err))),
            Purpose::Page { reply, mut page, expiries } => {
                if let Some(error) = failure.as_ref().filter(|error| error.kind() == ErrorKind::SnapshotLost)
                {
                    return drop(reply.send(Err(error.clone())));
                }
                page.damaged = page.damaged.or(failure);
                for ((key, value), expiry_ms) in keys.into_iter().zip(values).zip(expiries) {
                    page.entries.extend(value.map(|value| Entry::new(key.bytes, value, expiry_ms)));
                }
                drop(reply.send(Ok(page)));
            }
        }
    }

    pub(super) fn scan_at(
        &mut self,
        snapshot: SnapshotId,
        keyspace: KeyspaceId,
        (cursor, count): (Cursor, u32),
        reply: Reply<Page>,
    ) {
        let token = self.number();
        self.walks_at.insert(token, WalkAt { reply, snapshot, keyspace, cursor });
        let (cursor, count, snapshot) = (cursor.0, count.max(1), Some(snapshot));
        self.engine.scan(self.now, ScanRequest { token, keyspace, cursor, count, snapshot });
    }

    /// A page came; false when it is not one of a snapshot.
    pub(super) fn on_scanned_at(
        &mut self,
        token: Token,
        entries: &mut Vec<ScanEntry>,
        next: Option<Position>,
        error: &Option<Error>,
    ) -> bool {
        let Some(WalkAt { reply, snapshot, keyspace, cursor }) = self.walks_at.remove(&token) else {
            return false;
        };
        if let Some(error) = error.as_ref().filter(|error| is_of_snapshot(error)) {
            drop(reply.send(Err(error.clone())));
            return true;
        }
        let (shard, shards) = self.engine.place();
        let next = cursor.after(shard, shards, next);
        let hasher = self.engine.hasher();
        let (mut keys, mut expiries) = (Vec::new(), Vec::new());
        for entry in entries.drain(..).filter(|entry| is_user_value(&entry.meta)) {
            expiries.push(entry.meta.expiry_ms);
            keys.push(OwnedKey { keyspace, position: hasher.position(&entry.key), bytes: entry.key });
        }
        let page = Page { entries: Vec::with_capacity(keys.len()), next, damaged: error.clone() };
        self.read_at(snapshot, keys, Purpose::Page { reply, page, expiries });
        true
    }

    /// Answers all with `error` who wait for something of a snapshot.
    pub(super) fn refuse_snapshot_reads(&mut self, error: &Error) {
        self.read_at.clear();
        for many in std::mem::take(&mut self.many_at).into_values() {
            match many.purpose {
                Purpose::Values(reply) => drop(reply.send(Err(error.clone()))),
                Purpose::Page { reply, .. } => drop(reply.send(Err(error.clone()))),
            }
        }
        for walk in std::mem::take(&mut self.walks_at).into_values() {
            drop(walk.reply.send(Err(error.clone())));
        }
    }

    /// Keeps an event that may lead to a write for when the cut is whole; gives the others back.
    pub(super) fn hold_back(&mut self, event: Event) -> Option<Event> {
        if !self.is_holding() || !matches!(event, Event::Fetched { .. }) {
            return Some(event);
        }
        self.held_back.push(event);
        None
    }
}
