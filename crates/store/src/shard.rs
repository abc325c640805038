//! One shard: its engine with the databases, locks and watches around it.
//!
//! Owner: the thread that drives the shard. Nothing here is durable but the engine's records; the
//! [`DatabaseMap`] is a copy of the caller's durable one.

use crate::database_map::DatabaseMap;
use crate::key_events::KeyEvents;
use crate::large::{ValueId, ValueIds, chunk_bytes_for};
use crate::ledger::Ledger;
use crate::lock::{LockTable, TaskId};
use crate::overlay::Overlay;
use crate::reclaim::Opening;
use crate::tracking::TrackTable;
use crate::view::{Stop, View, Wanted};
use crate::watch::WatchTable;
use std::sync::Arc;
use tierstone_base::collections::Map;
use tierstone_base::{Error, KeyHasher, KeyspaceId, Now, Position, Result, Seq, ShardId, Token};
use tierstone_engine::{
    BatchTicket, Commit, Durability, Engine, Event, IndexKind, Key, ScanEntry, ScanRequest, ValueKind, Write,
    WriteKind, WriteReceipt,
};
use tierstone_media::IoCompletion;

/// What a shard is told when it is made.
#[derive(Clone, Debug)]
pub struct ShardSettings {
    /// Which shard this is, from zero.
    pub index: ShardId,
    /// How many shards share the positions; at least one.
    pub count: u16,
    /// The store's databases.
    pub map: DatabaseMap,
    /// How their keyspaces find their keys, new ones included.
    pub index_kind: IndexKind,
    /// Turns keys into positions.
    pub hasher: KeyHasher,
    /// When writes may be acknowledged.
    pub durability: Durability,
    /// The longest value that the engine takes in one record, in bytes. Large values are cut into
    /// chunks of up to 64 KiB that fit.
    pub record_bytes_max: u64,
}

/// A read that failed: whoever needs the record gets the error instead of a second try.
#[derive(Clone, Debug)]
pub struct FetchFailure {
    /// The key's keyspace.
    pub keyspace: KeyspaceId,
    /// The key's position.
    pub position: Position,
    /// What the engine said.
    pub error: Error,
}

/// Buffers that one run after the other uses.
#[derive(Debug, Default)]
pub struct Workspace {
    /// The pending writes.
    pub overlay: Overlay,
    /// The keys to be fetched.
    pub wanted: Vec<Wanted>,
}

/// The end of one run of a command.
#[derive(Debug)]
pub enum RunOutcome<R> {
    /// It came to its end and its writes are applied.
    Done {
        /// What it gave.
        value: R,
        /// The sequence that must be durable before its answer is given.
        gate: Seq,
    },
    /// It wants what is in [`Workspace::wanted`]; nothing was applied.
    Suspended,
    /// It failed; nothing was applied.
    Failed(Error),
}

/// What writes are whole with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whole<'a> {
    /// With each other.
    Batch,
    /// With parts at other shards.
    Part(&'a Arc<BatchTicket>),
    /// They take this shard's part of a refused batch back.
    Undo(&'a Arc<BatchTicket>),
}

/// The answer to an applied batch of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The sequence that must be decided before it is acknowledged; 0 in relaxed mode.
    pub gate: Seq,
}

/// What a step found out.
#[derive(Debug)]
pub enum ShardEvent {
    /// A fetch of `task` is done; its record is held until [`Shard::release`].
    Fetched {
        /// Who asked.
        task: TaskId,
        /// Which fetch.
        token: Token,
        /// Why there is no record, if so.
        failure: Option<FetchFailure>,
    },
    /// A page of a walk of `task` is complete.
    Scanned {
        /// Who asked.
        task: TaskId,
        /// As [`Event::Scanned`].
        entries: Vec<ScanEntry>,
        /// As [`Event::Scanned`].
        next: Option<Position>,
        /// As [`Event::Scanned`].
        error: Option<Error>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: TaskId,
    keyspace: KeyspaceId,
    position: Position,
}

/// The task of requests of the shard's own; tasks have ids from 1 on.
const NO_TASK: TaskId = 0;

/// Writes that are applied from a place on the stack.
const STACK_WRITES: usize = 16;

/// One shard's part of the database.
#[derive(Debug)]
pub struct Shard<E> {
    pub(crate) engine: E,
    map: DatabaseMap,
    pub(crate) hasher: KeyHasher,
    index: ShardId,
    index_kind: IndexKind,
    count: u16,
    is_relaxed: bool,
    wall_high_ms: u64,
    stepped_at: Now,
    next_id: u64,
    waiting: Map<Token, Waiting>,
    events: Vec<Event>,
    /// The newest write when keys were evicted last.
    pub(crate) evicted_at: Seq,
    pub(crate) ids: ValueIds,
    pub(crate) ledger: Ledger,
    /// Who waits for whom.
    pub locks: LockTable,
    /// Who watches what.
    pub watches: WatchTable,
    /// What is to be told of keys that go by themselves.
    pub key_events: KeyEvents,
    /// Which clients hold copies of what.
    pub tracking: TrackTable,
}

impl<E: Engine> Shard<E> {
    /// A shard over `engine`, which is put into the durability of `settings`.
    pub fn new(mut engine: E, settings: ShardSettings) -> Self {
        engine.set_durability(Now::default(), settings.durability);
        let has_large =
            |keyspace: &&KeyspaceId| engine.len(keyspace.chunks()) > 0 || engine.len(keyspace.ledger()) > 0;
        let large: Vec<KeyspaceId> = settings.map.keyspaces().iter().filter(has_large).copied().collect();
        let ledger = Ledger::new(Opening::new(large));
        let chunk_bytes = chunk_bytes_for(settings.record_bytes_max);
        let wall_high_ms = engine.past_ms();
        Shard {
            ids: ValueIds::new(engine.applied_seq(), settings.index, chunk_bytes),
            ledger,
            engine,
            map: settings.map,
            hasher: settings.hasher,
            index: settings.index,
            index_kind: settings.index_kind,
            count: settings.count.max(1),
            is_relaxed: settings.durability == Durability::Relaxed,
            wall_high_ms,
            stepped_at: Now::default(),
            next_id: 0,
            waiting: Map::default(),
            events: Vec::new(),
            evicted_at: 0,
            locks: LockTable::default(),
            watches: WatchTable::default(),
            key_events: KeyEvents::default(),
            tracking: TrackTable::default(),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, to be driven: requests out, flushes, settings.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// The databases.
    pub fn map(&self) -> &DatabaseMap {
        &self.map
    }

    /// Which shard this is.
    pub fn index(&self) -> ShardId {
        self.index
    }

    /// How many shards there are.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The position of a key.
    #[inline]
    pub fn position(&self, key: &[u8]) -> Position {
        self.hasher.position(key)
    }

    /// What turns keys into positions.
    pub fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    /// Whether this shard has `position`.
    #[inline]
    pub fn owns(&self, position: Position) -> bool {
        self.count == 1 || position.shard(self.count) == self.index
    }

    /// An id that was never given before by this shard in this process: a task or a token.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// `now` with a wall time that never goes back.
    #[inline]
    pub fn clock(&mut self, now: Now) -> Now {
        self.wall_high_ms = self.wall_high_ms.max(now.wall_ms);
        Now { wall_ms: self.wall_high_ms, ..now }
    }

    /// The sequence to wait for before an answer that has observed `seq` is given.
    #[inline]
    pub fn gate(&self, seq: Seq) -> Seq {
        if self.is_relaxed { 0 } else { seq }
    }

    /// Changes when writes are acknowledged, from now on. Gives the sequence that must be decided before
    /// nothing acknowledged in the old mode can be lost ([`Engine::set_durability`]).
    pub fn set_durability(&mut self, now: Now, durability: Durability) -> Seq {
        self.is_relaxed = durability == Durability::Relaxed;
        let now = self.clock(now);
        self.engine.set_durability(now, durability)
    }

    /// Whether answers are given before what they have observed is durable.
    pub fn is_relaxed(&self) -> bool {
        self.is_relaxed
    }

    /// Takes over a changed map that is durable already: keyspaces that are gone are dropped, and
    /// watchers of what was there are marked. An older map is ignored.
    pub fn apply_map(&mut self, map: &DatabaseMap) {
        if map.version <= self.map.version && *map != self.map {
            return;
        }
        let old = std::mem::replace(&mut self.map, map.clone());
        for (database, keyspace) in old.keyspaces().iter().enumerate() {
            let Some(new) = map.keyspace(database as u32).filter(|new| new != keyspace) else { continue };
            self.tracking.clear();
            if map.keyspaces().contains(keyspace) {
                // After a swap a missing key may stand for one that exists.
                self.watches.touch_keyspace(*keyspace);
            } else {
                self.watches.replace_keyspace(*keyspace, new);
                self.key_events.drop_keyspace(*keyspace);
                keyspace.family().into_iter().for_each(|id| self.engine.drop_keyspace(id));
            }
        }
        self.ledger.follow(map);
        for (_, gone) in old.names().filter(|(_, named)| !map.holds(named.id)) {
            self.engine.drop_keyspace(gone.id);
        }
        let numbered = map.keyspaces().iter().map(|&id| (id, self.index_kind));
        let all = numbered.chain(map.names().map(|(_, named)| (named.id, named.index)));
        for (id, index) in all.filter(|(id, _)| !old.holds(*id)) {
            self.engine.create_keyspace(id, index);
        }
    }

    /// Runs `command` over a view and applies its writes as one batch when it comes to its end.
    pub fn run<R>(
        &mut self,
        now: Now,
        workspace: &mut Workspace,
        failures: &[FetchFailure],
        command: impl FnOnce(&mut View<'_>) -> std::result::Result<R, Stop>,
    ) -> RunOutcome<R> {
        let now = self.clock(now);
        workspace.overlay.clear();
        workspace.wanted.clear();
        let mut view = View {
            records: &mut self.engine,
            map: &self.map,
            hasher: self.hasher,
            expiring: self.key_events.expiring_mut(),
            overlay: &mut workspace.overlay,
            wanted: &mut workspace.wanted,
            failures,
            now,
            is_use: true,
            used: None,
            observed: 0,
            has_missed: false,
            ids: &self.ids,
            held: 0,
            held_max: u64::MAX,
            counts_chunks: true,
        };
        let value = match command(&mut view) {
            Ok(value) => value,
            Err(Stop::Suspend) => return RunOutcome::Suspended,
            Err(Stop::Failed(error)) => return RunOutcome::Failed(error),
        };
        let observed = view.observed();
        let observed = self.gate(observed);
        if workspace.overlay.is_empty() {
            return RunOutcome::Done { value, gate: observed };
        }
        match self.apply(now, &workspace.overlay) {
            Ok(applied) => RunOutcome::Done { value, gate: applied.gate.max(observed) },
            Err(error) => RunOutcome::Failed(error),
        }
    }

    /// Applies the pending writes as one batch.
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub fn apply(&mut self, now: Now, overlay: &Overlay) -> Result<Applied> {
        let mut writes = overlay.iter();
        let Some(first) = writes.next() else { return Ok(Applied { gate: 0 }) };
        if overlay.len() <= STACK_WRITES {
            let mut batch = [first; STACK_WRITES];
            for (slot, write) in batch[1..].iter_mut().zip(writes) {
                *slot = write;
            }
            self.write(now, &batch[..overlay.len()])
        } else {
            let batch: Vec<Write<'_>> = overlay.iter().collect();
            self.write(now, &batch)
        }
    }

    /// Applies one batch.
    ///
    /// # Errors
    /// As [`Engine::write`].
    #[inline]
    pub fn write(&mut self, now: Now, writes: &[Write<'_>]) -> Result<Applied> {
        if self.ledger.concerns(writes) {
            return Ok(self.write_whole(now, writes, Whole::Batch)?.0);
        }
        // Taken apart at once: a copy of the whole would wait for the pieces that were written just now.
        let WriteReceipt { seq, commit, .. } = self.engine.write(now, writes)?;
        Ok(self.written((seq, commit), writes))
    }

    /// Applies one batch, or this shard's part of one over several, and tells which large values have
    /// lost their names.
    ///
    /// # Errors
    /// As [`Engine::write`], [`Engine::write_part`] and [`Engine::undo_part`].
    pub(crate) fn write_whole(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        whole: Whole<'_>,
    ) -> Result<(Applied, Vec<ValueId>)> {
        if !self.ledger.concerns(writes) {
            let receipt = self.write_as(now, writes, whole)?;
            return Ok((self.written((receipt.seq, receipt.commit), writes), Vec::new()));
        }
        let account = self.account(now, writes)?;
        let receipt = if account.extra.is_empty() {
            self.write_as(now, writes, whole)?
        } else {
            let batch: Vec<Write<'_>> = writes.iter().copied().chain(account.extra.iter()).collect();
            self.write_as(now, &batch, whole)?
        };
        if self.ledger.is_order_broken {
            self.write_late_chunks(now)?;
        }
        let died = self.ledger.apply(account);
        Ok((self.written((receipt.seq, receipt.commit), writes), died))
    }

    fn write_as(&mut self, now: Now, writes: &[Write<'_>], whole: Whole<'_>) -> Result<WriteReceipt> {
        match whole {
            Whole::Batch => self.engine.write(now, writes),
            Whole::Part(ticket) => self.engine.write_part(now, writes, ticket),
            Whole::Undo(ticket) => self.engine.undo_part(now, writes, ticket),
        }
    }

    #[inline]
    fn written(&mut self, (seq, commit): (Seq, Commit), writes: &[Write<'_>]) -> Applied {
        if !self.watches.is_empty() {
            for write in writes {
                self.watches.touch(write.key.keyspace, write.key.position);
            }
        }
        if self.tracking.is_on() {
            self.tracking.note_writes(writes);
        }
        if let Some(expiring) = self.key_events.expiring_mut() {
            for write in writes.iter().filter(|write| write.key.keyspace.is_user()) {
                let expiry_ms = match write.kind {
                    WriteKind::Put { expiry_ms, .. } => expiry_ms,
                    WriteKind::Delete => 0,
                };
                expiring.note(write.key.keyspace, write.key.bytes, expiry_ms);
            }
        }
        Applied { gate: if commit == Commit::Relaxed { 0 } else { seq } }
    }

    /// Puts one string without a view: the short way of plain `SET`.
    ///
    /// # Errors
    /// As [`Engine::write`].
    #[inline]
    pub fn put(&mut self, now: Now, key: Key<'_>, value: &[u8], expiry_ms: u64) -> Result<Applied> {
        let kind = WriteKind::Put { value, expiry_ms, kind: ValueKind::STRING };
        self.write(now, &[Write { key, kind }])
    }

    /// Starts the fetches that `task` wants; its tokens are appended to `tokens`.
    pub fn fetch(&mut self, now: Now, task: TaskId, wanted: &[Wanted], tokens: &mut Vec<Token>) {
        let now = self.clock(now);
        let mut keys = Vec::with_capacity(wanted.len());
        for want in wanted {
            let token = self.next_id();
            self.waiting.insert(token, Waiting { task, keyspace: want.keyspace, position: want.position });
            tokens.push(token);
            let key = Key { keyspace: want.keyspace, position: want.position, bytes: &want.bytes };
            keys.push((token, key));
        }
        self.engine.fetch(now, &keys);
    }

    /// Lets the records that `tokens` hold go.
    pub fn release(&mut self, tokens: &mut Vec<Token>) {
        for token in tokens.drain(..) {
            // A fetch may still be on its way when its task is given up.
            self.waiting.remove(&token);
            self.engine.release(token);
        }
    }

    /// Starts a page of a walk for `task`.
    pub fn scan(&mut self, now: Now, task: TaskId, keyspace: KeyspaceId, cursor: Position, count: u32) {
        let now = self.clock(now);
        let token = self.next_id();
        self.waiting.insert(token, Waiting { task, keyspace, position: cursor });
        self.engine.scan(now, ScanRequest { token, keyspace, cursor, count, snapshot: None });
    }

    /// One step of the engine; what it found out is appended to `events`.
    pub fn step(&mut self, now: Now, completions: &mut Vec<IoCompletion>, events: &mut Vec<ShardEvent>) {
        let now = self.clock(now);
        self.stepped_at = now;
        let mut found = std::mem::take(&mut self.events);
        self.engine.step(now, completions, &mut found);
        for event in found.drain(..) {
            match event {
                Event::Fetched { token, result, .. } => {
                    let Some(waiting) = self.waiting.remove(&token) else { continue };
                    let Waiting { task, keyspace, position } = waiting;
                    if task == NO_TASK {
                        self.ledger.note_fetched(token, result.err().as_ref());
                        continue;
                    }
                    let failure = result.err().map(|error| FetchFailure { keyspace, position, error });
                    events.push(ShardEvent::Fetched { task, token, failure });
                }
                Event::Scanned { token, entries, next, error, .. } => {
                    let Some(waiting) = self.waiting.remove(&token) else { continue };
                    if waiting.task == NO_TASK {
                        self.ledger_scanned(entries, next);
                        continue;
                    }
                    events.push(ShardEvent::Scanned { task: waiting.task, entries, next, error });
                }
                // This layer takes no snapshots yet.
                Event::SnapshotRead { .. } => {}
                // No request of this layer asks for one.
                Event::Ranged { .. } => {}
            }
        }
        self.events = found;
        self.reclaim(now);
        self.evict(now);
    }

    /// When a step is wanted even if nothing happens, by the monotonic clock.
    pub fn next_step_at_us(&self) -> Option<u64> {
        let own = self.reclaim_at_us(self.stepped_at);
        [own, self.engine.next_step_at_us()].into_iter().flatten().min()
    }

    /// A token for a request of the shard's own.
    pub(crate) fn own_token(&mut self, keyspace: KeyspaceId, position: Position) -> Token {
        let token = self.next_id();
        self.waiting.insert(token, Waiting { task: NO_TASK, keyspace, position });
        token
    }

    /// Breaks the rule that a map is appended behind its chunks, to see that it is needed: the mutation
    /// `map_before_chunks`. With group commits of its own for each step of a test, a crash between the
    /// two is then found.
    pub fn break_order_of_chunks(&mut self) {
        self.ledger.is_order_broken = true;
    }

    /// The large values of this shard.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Gives ids to new large values.
    pub fn value_ids(&self) -> &ValueIds {
        &self.ids
    }
}

#[cfg(test)]
#[path = "shard_test.rs"]
mod shard_test;
