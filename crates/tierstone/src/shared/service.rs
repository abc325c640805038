//! The requests of one shard, as a state machine: messages and events in, answers out.
//!
//! Invariants:
//! 1. Every message is answered exactly once, or its other end sees that the shard is gone.
//! 2. No answer shows what a crash could take back: it passes the [`Gate`], reads too. In `relaxed`
//!    the gate is open.
//! 3. After a failed write of the device everything is answered with that failure.
//! 4. Requests that are under way at the same time have no order among each other.

mod backups;
mod loads;
mod many;
mod moves;
mod parts;
mod snapshots;
mod syncs;

use super::answer::Reply;
use super::cut::Cut;
use super::gate::{Gate, Ready};
use super::message::{Message, OwnedKey};
use crate::bulk::{Loads, Stage};
use crate::engine::DatabaseShard;
use crate::lane::{FETCH_ROUNDS, FREEING_PATIENCE_US, never_held};
use crate::named::dropped;
use crate::plain::{is_visible, later, note_expired, value_of, write_plain};
use crate::range::RangePage;
use crate::scan::Page;
use many::{Many, Purpose};
use moves::Moves;
use parts::Parts;
use snapshots::{ManyAt, WalkAt};
use std::collections::VecDeque;
use std::sync::Arc;
use syncs::Unfinished;
use tierstone_base::collections::{Map, Set};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Position, Result, Seq, Token};
use tierstone_engine::{
    Admission, BackupStep, Commit, Engine, Event, Health, Lookup, ScanEntry, ScanRequest, Write, WriteKind,
    WriteReceipt,
};

/// How long a write waits for room, in microseconds.
const ROOM_PATIENCE_US: u64 = 30_000_000;

/// What waits for a record from the device.
#[derive(Debug)]
enum Parked {
    /// A message, to be handled again.
    Message { message: Message, rounds: u32, unfinished: Option<Unfinished> },
    /// One key of a get of many.
    Many { number: u64, place: usize, rounds: u32 },
}

#[derive(Debug)]
struct Walk {
    reply: Reply<Page>,
    keyspace: KeyspaceId,
    cursor: crate::scan::Cursor,
}

/// What is known from earlier attempts at a message.
#[derive(Debug, Default)]
struct Attempt {
    rounds: u32,
    failure: Option<Error>,
    unfinished: Option<Unfinished>,
}

/// The state machine of one shard.
#[derive(Debug)]
pub(super) struct Service {
    pub engine: DatabaseShard,
    now: Now,
    relaxed: bool,
    gate: Gate,
    parked: Map<Token, Parked>,
    many: Map<u64, Many>,
    walks: Map<Token, Walk>,
    /// Pages of ranges, and whether they are of snapshots.
    ranges: Map<Token, (Reply<RangePage>, bool)>,
    /// Keyspaces that were dropped since the store was opened.
    dropped: Set<KeyspaceId>,
    /// Writes that found no room, and since when the first of them waits.
    stalled: VecDeque<(Message, Option<Unfinished>)>,
    stalled_since_us: u64,
    /// What writes hold that come now, and callers that wait for those before, in the order in which they came.
    unfinished: Unfinished,
    syncs: VecDeque<(Unfinished, Reply<()>)>,
    loads: Loads<Reply<Stage>>,
    /// Since when nothing of the loads could be applied.
    loads_wait_since_us: Option<u64>,
    /// Whether the device or the engine has something under way that may make space.
    busy: bool,
    /// Since when no write has found space.
    full_since_us: Option<u64>,
    next_number: u64,
    /// Who closes the store once all is applied that was sent before, and who has closed it.
    ending: Option<(Unfinished, Reply<()>)>,
    closing: Option<Reply<()>>,
    /// The cut that the shard has taken its part of and that is not whole.
    holding: Option<Arc<Cut>>,
    /// Events that wait for that cut.
    held_back: Vec<Event>,
    /// Reads at snapshots: the number of the request, and the key's place in it.
    read_at: Map<Token, (u64, usize)>,
    many_at: Map<u64, ManyAt>,
    walks_at: Map<Token, WalkAt>,
    parts: Parts,
    moves: Moves,
    /// Who waits for the next piece of the backup.
    taker: Option<Reply<BackupStep>>,
    /// Answers that may go out.
    leaving: Vec<Ready>,
    /// Callers that are at the device for this shard.
    pub guests: usize,
}

impl Service {
    pub fn new(engine: DatabaseShard, relaxed: bool, now: Now) -> Self {
        Service {
            now: Now { wall_ms: now.wall_ms.max(engine.past_ms()), ..now },
            engine,
            relaxed,
            gate: Gate::default(),
            parked: Map::default(),
            many: Map::default(),
            walks: Map::default(),
            ranges: Map::default(),
            dropped: Set::default(),
            stalled: VecDeque::new(),
            stalled_since_us: 0,
            unfinished: Unfinished::default(),
            syncs: VecDeque::new(),
            loads: Loads::default(),
            loads_wait_since_us: None,
            busy: false,
            full_since_us: None,
            next_number: 0,
            ending: None,
            closing: None,
            holding: None,
            held_back: Vec::new(),
            read_at: Map::default(),
            many_at: Map::default(),
            walks_at: Map::default(),
            parts: Parts::default(),
            moves: Moves::default(),
            taker: None,
            leaving: Vec::new(),
            guests: 0,
        }
    }

    /// The time of everything that follows.
    pub fn set_now(&mut self, now: Now) -> Now {
        self.now = later(self.now, now);
        self.now
    }

    pub fn now_us(&self) -> u64 {
        self.now.monotonic_us
    }

    /// Whether the device or the engine has something under way, for a caller or not.
    pub fn set_busy(&mut self, busy: bool) {
        self.busy = busy || self.guests > 0;
    }

    /// Whether there is something that only the shard's thread does, beside requests of the device and steps.
    pub fn needs_thread(&self) -> bool {
        self.has_stalled()
            || self.has_part()
            || self.is_holding()
            || self.is_ending()
            || !self.moves.is_empty()
            || self.taker.is_some()
    }

    /// The answers that may go out now.
    pub fn take_leaving(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.leaving)
    }

    /// Whether a write that found no room is to be tried again.
    fn may_find_room(&mut self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Retry => true,
            // A segment that is being freed does not count yet.
            ErrorKind::NoSpace if self.busy => {
                let since_us = *self.full_since_us.get_or_insert(self.now.monotonic_us);
                self.now.monotonic_us - since_us < FREEING_PATIENCE_US
            }
            _ => false,
        }
    }

    /// Whether messages may come.
    pub fn is_open_for_more(&self) -> bool {
        self.engine.admission() == Admission::Open && !self.is_holding() && !self.stands_still()
    }

    /// Whether somebody waits for something that only the passing of time can bring.
    pub fn is_waited_for(&self) -> bool {
        !self.is_holding()
            && (!self.gate.is_empty()
                || self.has_stalled()
                || self.is_ending()
                || self.has_part()
                || !self.moves.is_empty())
    }

    /// Whether writes wait for room, or for old records.
    pub fn has_stalled(&self) -> bool {
        !self.stalled.is_empty() || !self.loads.is_empty()
    }

    /// Takes a message.
    pub fn take(&mut self, message: Message) {
        let is_write = matches!(
            message,
            Message::Put { .. } | Message::Write { .. } | Message::Delete { .. } | Message::Ingest { .. }
        );
        let unfinished =
            (is_write || matches!(message, Message::Part { .. })).then(|| Arc::clone(&self.unfinished));
        self.take_one(message, unfinished);
    }

    /// Takes a message, or one that has waited behind parts.
    fn take_one(&mut self, message: Message, unfinished: Option<Unfinished>) {
        if let Health::Failed(error) = self.engine.health() {
            return message.refuse(failed(error));
        }
        let Some((message, unfinished)) = self.put_behind_parts(message, unfinished) else { return };
        let is_part = matches!(message, Message::Part { .. });
        if unfinished.is_some() && !is_part && !self.stalled.is_empty() {
            self.stalled.push_back((message, unfinished));
            return;
        }
        self.handle(message, Attempt { unfinished, ..Attempt::default() });
    }

    fn handle(&mut self, message: Message, attempt: Attempt) {
        // Its records would be void after the next opening.
        if !self.dropped.is_empty() && message.is_in(&self.dropped) {
            return message.refuse(dropped());
        }
        match message {
            Message::Get { key, reply } => self.get(key, reply, attempt),
            Message::GetMany { keys, reply } => self.get_many(keys, Purpose::Values(reply)),
            Message::Put { .. } => self.put(message, attempt),
            Message::Delete { .. } => self.delete(message, attempt),
            Message::Write { .. } => self.write_batch(message, attempt.unfinished),
            Message::Load { stage, reply } => self.loads.push(stage, reply),
            Message::Part { batch, seat } => self.begin_part(batch, seat, attempt.unfinished),
            Message::Scan { keyspace, cursor, count, reply } => {
                let token = self.number();
                self.walks.insert(token, Walk { reply, keyspace, cursor });
                let count = count.max(1);
                let request = ScanRequest { token, keyspace, cursor: cursor.0, count, snapshot: None };
                self.engine.scan(self.now, request);
            }
            Message::Range { mut request, reply } => {
                request.token = self.number();
                self.ranges.insert(request.token, (reply, request.snapshot.is_some()));
                self.engine.range(self.now, request);
            }
            Message::Snapshot { share, store, reply } => self.take_snapshot(share, store, reply),
            Message::GetAt { snapshot, keys, reply } => {
                self.read_at(snapshot, keys, Purpose::Values(reply));
            }
            Message::ScanAt { snapshot, keyspace, cursor, count, reply } => {
                self.scan_at(snapshot, keyspace, (cursor, count), reply);
            }
            Message::Release { snapshot } => self.engine.release_snapshot(snapshot),
            Message::CreateKeyspace { id, index, reply } => {
                self.engine.create_keyspace(id, index);
                drop(reply.send(Ok(())));
            }
            Message::DropKeyspace { id, reply } => {
                self.dropped.insert(id);
                self.refuse_loads(&dropped(), |stage| stage.keyspace() == id);
                self.engine.drop_keyspace(id);
                drop(reply.send(Ok(())));
            }
            Message::Len { keyspace, reply } => drop(reply.send(Ok(self.engine.len(keyspace)))),
            Message::Statistics { reply } => drop(reply.send(Ok(self.engine.statistics()))),
            Message::Verify { begins, reply } => {
                let begun = if begins { self.engine.begin_verification() } else { Ok(()) };
                drop(reply.send(begun.map(|()| self.engine.verification().cloned())));
            }
            Message::BeginBackup { share, since, reply } => self.begin_backup(share, since, reply),
            Message::TakeBackup { reply } => self.take_backup(reply),
            Message::EndBackup => self.end_backup(),
            Message::Work { ask, reply } => self.work(ask, reply),
            Message::Ingest { records, reply } => self.ingest(records, reply, attempt.unfinished),
            Message::EndWork { work } => self.end_work(work),
            Message::Sync { reply } => self.begin_sync(reply),
            Message::Close { reply } => self.begin_ending(reply),
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn answer(&mut self, observed: Seq, ready: Ready) {
        if self.relaxed || observed <= self.engine.decided_seq() {
            self.leaving.push(ready);
        } else {
            self.gate.hold(observed, ready);
        }
    }

    fn acknowledge(&mut self, receipt: WriteReceipt, ready: Ready) {
        self.full_since_us = None;
        match receipt.commit {
            Commit::Relaxed => self.leaving.push(ready),
            Commit::Durable | Commit::Grouped => self.answer(receipt.seq, ready),
        }
    }

    fn get(&mut self, key: OwnedKey, reply: Reply<Option<Vec<u8>>>, attempt: Attempt) {
        match self.engine.lookup(self.now, key.view()) {
            Lookup::Found(record) => {
                let observed = record.meta.seq;
                let value = value_of(record).map(|value| Some(value.to_vec()));
                self.answer(observed, Ready::Value(reply, value));
            }
            Lookup::Missing => self.answer(self.engine.applied_seq(), Ready::Value(reply, Ok(None))),
            Lookup::Fetch => self.park(Message::Get { key, reply }, attempt),
        }
    }

    /// Handles a message with one key again when the key's record is in memory.
    fn park(&mut self, message: Message, attempt: Attempt) {
        if let Some(error) = attempt.failure {
            return message.refuse(error);
        }
        if attempt.rounds >= FETCH_ROUNDS {
            return message.refuse(never_held());
        }
        let token = self.number();
        let key = match &message {
            Message::Get { key, .. } | Message::Delete { key, .. } => key.view(),
            Message::Put { put, .. } => put.key(),
            other => unreachable!("{other:?} has not one key"),
        };
        self.engine.fetch(self.now, &[(token, key)]);
        let (rounds, unfinished) = (attempt.rounds + 1, attempt.unfinished);
        self.parked.insert(token, Parked::Message { message, rounds, unfinished });
    }

    fn put(&mut self, message: Message, mut attempt: Attempt) {
        let Message::Put { put, reply } = message else { return };
        let write = put.view(self.now);
        match write_plain(&mut self.engine, self.now, &[write]) {
            Ok(receipt) => self.acknowledge(receipt, Ready::Done(reply)),
            Err(error) if self.may_find_room(&error) => {
                let unknown = matches!(self.engine.lookup(self.now, write.key), Lookup::Fetch);
                let message = Message::Put { put, reply };
                let may_park = attempt.rounds < FETCH_ROUNDS && self.engine.admission() == Admission::Open;
                if unknown && may_park {
                    // A write goes past a record that cannot be read.
                    attempt.failure = None;
                    self.park(message, attempt);
                } else {
                    self.stall(message, attempt.unfinished);
                }
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    fn delete(&mut self, message: Message, attempt: Attempt) {
        let Message::Delete { key, reply } = message else { return };
        if let Err(error) = self.engine.check_not_moved(key.position) {
            return drop(reply.send(Err(error)));
        }
        match self.engine.lookup(self.now, key.view()) {
            Lookup::Missing => return self.answer(self.engine.applied_seq(), Ready::Deleted(reply, false)),
            Lookup::Fetch => return self.park(Message::Delete { key, reply }, attempt),
            Lookup::Found(_) => {}
        }
        match write_plain(&mut self.engine, self.now, &[Write { key: key.view(), kind: WriteKind::Delete }]) {
            Ok(receipt) => self.acknowledge(receipt, Ready::Deleted(reply, true)),
            Err(error) if self.may_find_room(&error) => {
                self.stall(Message::Delete { key, reply }, attempt.unfinished)
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    fn write_batch(&mut self, message: Message, unfinished: Option<Unfinished>) {
        let Message::Write { batch, reply } = message else { return };
        match write_plain(&mut self.engine, self.now, &batch.view(self.now)) {
            Ok(receipt) => self.acknowledge(receipt, Ready::Done(reply)),
            // Old records, if that is what it waits for, are on their way now.
            Err(error) if self.may_find_room(&error) => {
                self.stall(Message::Write { batch, reply }, unfinished)
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    fn stall(&mut self, message: Message, unfinished: Option<Unfinished>) {
        if self.stalled.is_empty() {
            self.stalled_since_us = self.now.monotonic_us;
        }
        self.stalled.push_back((message, unfinished));
    }

    /// Tries again what found no room; true when something found it.
    pub fn retry_stalled(&mut self) -> bool {
        let mut some = false;
        if self.is_holding() || self.stands_still() {
            return false;
        }
        let since_us = self.stalled_since_us;
        for _ in 0..self.stalled.len() {
            let Some((message, unfinished)) = self.stalled.pop_front() else { break };
            let others = self.stalled.len();
            self.handle(message, Attempt { unfinished, ..Attempt::default() });
            if self.stalled.len() == others {
                some = true;
                self.stalled_since_us = self.now.monotonic_us;
                continue;
            }
            // It waits on, in its old place.
            let Some((message, unfinished)) = self.stalled.pop_back() else { break };
            self.stalled_since_us = if some { self.now.monotonic_us } else { since_us };
            if self.now.monotonic_us - self.stalled_since_us > ROOM_PATIENCE_US {
                message
                    .refuse(Error::new(ErrorKind::Retry, "the store had no room for the write for too long"));
            } else {
                self.stalled.push_front((message, unfinished));
            }
            break;
        }
        some
    }

    /// Takes what the engine has found out.
    pub fn on_event(&mut self, event: Event) {
        let Some(event) = self.hold_back(event) else { return };
        match event {
            Event::Fetched { token, result, .. } => {
                self.on_fetched(token, result);
                self.engine.release(token);
            }
            Event::Scanned { token, mut entries, next, error, .. } => {
                if !self.on_scanned_at(token, &mut entries, next, &error) {
                    self.on_scanned(token, entries, next, error);
                }
            }
            Event::SnapshotRead { token, result, .. } => self.on_snapshot_read(token, result),
            Event::Ranged { token, entries, next, error, .. } => {
                let Some((reply, is_of_snapshot)) = self.ranges.remove(&token) else { return };
                if is_of_snapshot {
                    // It was durable when the snapshot's number was given.
                    return drop(reply.send(RangePage::of(entries, next, error, None)));
                }
                note_expired(&mut self.engine, entries.iter().map(|entry| &entry.meta), self.now);
                let page = RangePage::of(entries, next, error, Some(self.now));
                // That a key is not in the page was observed as well.
                self.answer(self.engine.applied_seq(), Ready::Range(reply, page));
            }
        }
    }

    fn on_fetched(&mut self, token: Token, result: Result<()>) {
        let failure = result.err();
        match self.parked.remove(&token) {
            Some(Parked::Message { message, rounds, unfinished }) => {
                self.handle(message, Attempt { rounds, failure, unfinished });
            }
            Some(Parked::Many { number, place, rounds }) => {
                let Some(mut many) = self.many.remove(&number) else { return };
                self.find(number, &mut many, place, Attempt { rounds, failure, unfinished: None });
                if many.missing == 0 {
                    self.finish_many(many);
                } else {
                    self.many.insert(number, many);
                }
            }
            None => {}
        }
    }

    fn on_scanned(
        &mut self,
        token: Token,
        entries: Vec<ScanEntry>,
        next: Option<Position>,
        error: Option<Error>,
    ) {
        let Some(Walk { reply, keyspace, cursor }) = self.walks.remove(&token) else { return };
        note_expired(&mut self.engine, entries.iter().map(|entry| &entry.meta), self.now);
        let (shard, shards) = self.engine.place();
        let next = cursor.after(shard, shards, next);
        let hasher = self.engine.hasher();
        let mut expiries = Vec::with_capacity(entries.len());
        let mut keys = Vec::with_capacity(entries.len());
        for entry in entries.into_iter().filter(|entry| is_visible(&entry.meta, self.now)) {
            expiries.push(entry.meta.expiry_ms);
            keys.push(OwnedKey { keyspace, position: hasher.position(&entry.key), bytes: entry.key });
        }
        let page = Page { entries: Vec::with_capacity(keys.len()), next, damaged: error };
        self.get_many(keys, Purpose::Page { reply, page, expiries });
    }

    /// Lets go what has become durable; everything gets the failure when the device has failed.
    pub fn open_gate(&mut self) {
        self.advance_syncs();
        self.gate.open_to(self.engine.decided_seq(), &mut self.leaving);
        if let Health::Failed(error) = self.engine.health() {
            self.refuse_all(&failed(error));
        }
    }

    /// The same, and tells what became of works and backups. True when the shard is shut and its thread may end.
    pub fn settle(&mut self) -> bool {
        self.open_gate();
        self.tell_moves();
        self.tell_backup();
        if self.closing.is_some() && self.guests == 0 && self.engine.is_shut() {
            if let Some(reply) = self.closing.take() {
                drop(reply.send(Ok(())));
            }
            return true;
        }
        false
    }

    /// Answers all with `error` who wait for something to be written.
    pub fn refuse_writers(&mut self, error: &Error) {
        self.gate.refuse_all(error);
        self.stalled.drain(..).for_each(|(message, _)| message.refuse(error.clone()));
        self.refuse_loads(error, |_| true);
        self.refuse_parts(error);
        self.refuse_moves(error);
        self.refuse_taker(error);
        self.refuse_syncs(error);
    }

    /// Answers all who wait with `error`, whatever they wait for.
    pub fn refuse_all(&mut self, error: &Error) {
        self.refuse_writers(error);
        for parked in std::mem::take(&mut self.parked).into_values() {
            if let Parked::Message { message, .. } = parked {
                message.refuse(error.clone());
            }
        }
        for many in std::mem::take(&mut self.many).into_values() {
            match many.purpose {
                Purpose::Values(reply) => drop(reply.send(Err(error.clone()))),
                Purpose::Page { reply, .. } => drop(reply.send(Err(error.clone()))),
            }
        }
        for walk in std::mem::take(&mut self.walks).into_values() {
            drop(walk.reply.send(Err(error.clone())));
        }
        for (reply, _) in std::mem::take(&mut self.ranges).into_values() {
            drop(reply.send(Err(error.clone())));
        }
        self.refuse_snapshot_reads(error);
    }
}

fn failed(error: Error) -> Error {
    error.context("the device has failed and nothing is answered any more")
}

#[cfg(test)]
#[path = "service_test.rs"]
mod service_test;
