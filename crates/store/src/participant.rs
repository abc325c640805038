//! A shard's part in batches that other shards (or itself) coordinate.
//!
//! Invariants:
//! 1. A batch holds its locks, exclusive ones, from [`ShardMessage::Locked`] to its decision.
//! 2. Records are gathered in one run under the locks; those that must be fetched are waited for
//!    with the locks held. Chunks of the values that were found are gathered in a second run, which is of all records again: no
//!    lock is taken for them, as nobody changes a chunk without the lock of its value's key.
//! 3. What is sent stays correct however long the messages take.
//! 4. Records are gathered by the batch's map of databases: where this shard knows a later one the coordinator is told so,
//!    and an earlier one is waited for, with the locks held.
//! 5. What a part that the engine does not take waits for may wait for it. Another batch's part is sealed, and its space comes
//!    back, when all logs have said that it is decided, and a log says so of its parts in their order: of one behind a part of this
//!    batch never. So where a part of an earlier batch is written here and not decided, or one of a batch that does not yield, a part of a
//!    batch that does waits [`YIELDS_AFTER_US`] and is then refused with `Retry`: its batch is taken back and begins anew, with its parts
//!    one after the other. Then it does not yield: it waits for those only that have their part on a later shard still
//!    before them. So of such batches that wait in a circle one yields, and none does so twice.
//! 6. In any case a part waits no longer than [`PART_WAIT_US`], and the batch ends with it: batches that cannot begin anew
//!    (transactions that watch keys, or do more than read and write records) may wait for each other so long.

use crate::large::ValueId;
use crate::lock::{LockMode, TaskId};
use crate::message::{BatchId, OwnedKey, OwnedRecord, OwnedWrite, ShardMessage};
use crate::shard::{FetchFailure, Shard, Whole};
use crate::view::Wanted;
use crate::watch::WatcherId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Now, Result, Seq, ShardId, Token};
use tierstone_engine::{BatchTicket, Engine, Key, Lookup, Write, WriteKind};

/// How long a part waits for an engine that is busy or has no room, in microseconds.
const PART_WAIT_US: u64 = 2_000_000;
/// The same where it may be another batch that it waits for, and is to yield.
const YIELDS_AFTER_US: u64 = 20_000;

#[derive(Debug)]
struct Batch {
    task: TaskId,
    keys: Vec<OwnedKey>,
    /// The map that gave the keys their keyspaces.
    map_version: u64,
    /// Whether it holds its locks and waits until this shard knows that map.
    awaits_map: bool,
    watcher: Option<WatcherId>,
    is_use: bool,
    outstanding: usize,
    tokens: Vec<Token>,
    failures: Vec<FetchFailure>,
    observed: Seq,
    /// Answered with `Prepared` when this is durable.
    prepared_at: Option<Seq>,
    /// What the engines of the participants share, once the batch is prepared.
    ticket: Option<Arc<BatchTicket>>,
    /// Who is not told of its own writes.
    writer: Option<WatcherId>,
    /// Whether this shard has writes of the batch.
    has_writes: bool,
    is_read_only: bool,
    /// Writes that the engine was too busy to take, to be tried again.
    deferred: Option<Deferred>,
    /// Since when the part waits.
    waits_since_us: Option<u64>,
    /// Whether its writes were applied here, as a part.
    is_written: bool,
    /// Whether it yields to others.
    yields: bool,
    /// Large values that have lost their names and may get them back.
    died: Vec<ValueId>,
}

#[derive(Debug)]
struct Deferred {
    writes: Vec<OwnedWrite>,
    is_undo: bool,
}

/// The batches in which a shard takes part.
#[derive(Debug, Default)]
pub struct Participant {
    batches: BTreeMap<BatchId, Batch>,
    tasks: BTreeMap<TaskId, BatchId>,
}

/// A message and who gets it.
pub type Outgoing = Vec<(ShardId, ShardMessage)>;

impl Participant {
    /// Whether no batch is open here.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether writes are here of a batch that is not decided, or are to be applied.
    pub fn has_writes(&self) -> bool {
        self.batches.values().any(|batch| batch.has_writes || batch.deferred.is_some())
    }

    /// Whether writes wait for the engine: nothing but the next step takes them up again, for two seconds at most. What takes a
    /// part back has room of its own, and waits for writes under way.
    pub fn has_deferred(&self) -> bool {
        self.batches.values().any(|batch| batch.deferred.as_ref().is_some_and(|part| !part.is_undo))
    }

    /// Whether `task` is one of this participant's.
    pub fn owns(&self, task: TaskId) -> bool {
        self.tasks.contains_key(&task)
    }

    /// Takes a message for a participant. Answers are appended to `outgoing`, tasks that may run
    /// because locks were let go to `granted`.
    pub fn receive<E: Engine>(
        &mut self,
        now: Now,
        shard: &mut Shard<E>,
        message: ShardMessage,
        outgoing: &mut Outgoing,
        granted: &mut Vec<TaskId>,
    ) {
        match message {
            ShardMessage::Lock { batch, map_version, keys, watcher, is_use } => {
                let task = shard.next_id();
                // What is watched must stay as it is seen now, like what is read.
                let watched = watcher.into_iter().flat_map(|watcher| shard.watches.positions(watcher));
                let positions = keys.iter().map(|key| key.position).chain(watched).collect();
                let is_granted = shard.locks.enter(task, positions, LockMode::Exclusive);
                self.tasks.insert(task, batch);
                let state = Batch {
                    task,
                    keys,
                    map_version,
                    awaits_map: false,
                    watcher,
                    is_use,
                    outstanding: 0,
                    tokens: Vec::new(),
                    failures: Vec::new(),
                    observed: 0,
                    prepared_at: None,
                    ticket: None,
                    writer: None,
                    has_writes: false,
                    is_read_only: false,
                    deferred: None,
                    waits_since_us: None,
                    is_written: false,
                    yields: true,
                    died: Vec::new(),
                };
                self.batches.insert(batch, state);
                if is_granted {
                    self.gather(now, shard, batch, outgoing);
                }
            }
            ShardMessage::Gather { batch, chunks } => {
                let Some(state) = self.batches.get_mut(&batch) else { return };
                // All of them anew: what has expired meanwhile is gone for the map and for its chunks.
                state.keys.extend(chunks);
                self.gather(now, shard, batch, outgoing);
            }
            ShardMessage::Prepare { batch, participants, writes, ticket, writer, yields } => {
                let Some(state) = self.batches.get_mut(&batch) else { return };
                state.is_read_only = participants.is_empty();
                state.has_writes = !writes.is_empty();
                state.ticket = ticket;
                state.writer = writer;
                state.yields = yields;
                state.deferred = Some(Deferred { writes, is_undo: false });
                self.apply(now, shard, batch, outgoing, granted);
                self.poll(now, shard, outgoing, granted);
            }
            ShardMessage::Decide { batch, undo } => {
                let Some(state) = self.batches.get_mut(&batch) else { return };
                state.deferred = Some(Deferred { writes: undo, is_undo: true });
                self.apply(now, shard, batch, outgoing, granted);
            }
            ShardMessage::Locked { .. } | ShardMessage::Stale { .. } | ShardMessage::Prepared { .. } => {}
        }
    }

    /// The locks of `task` are held now.
    pub fn granted<E: Engine>(
        &mut self,
        now: Now,
        shard: &mut Shard<E>,
        task: TaskId,
        outgoing: &mut Outgoing,
    ) {
        if let Some(batch) = self.tasks.get(&task).copied() {
            self.gather(now, shard, batch, outgoing);
        }
    }

    /// A fetch of `task` is done.
    pub fn fetched<E: Engine>(
        &mut self,
        now: Now,
        shard: &mut Shard<E>,
        task: TaskId,
        failure: Option<FetchFailure>,
        outgoing: &mut Outgoing,
    ) {
        let Some(batch) = self.tasks.get(&task).copied() else { return };
        let Some(state) = self.batches.get_mut(&batch) else { return };
        state.outstanding -= 1;
        state.failures.extend(failure);
        if state.outstanding == 0 {
            self.gather(now, shard, batch, outgoing);
        }
    }

    /// Sends what has become durable and tries again what the engine was too busy for. To be called
    /// after every step of the shard.
    pub fn poll<E: Engine>(
        &mut self,
        now: Now,
        shard: &mut Shard<E>,
        outgoing: &mut Outgoing,
        granted: &mut Vec<TaskId>,
    ) {
        if self.batches.is_empty() {
            return;
        }
        let knows = shard.map().version;
        let awaited = |(_, state): &(&BatchId, &Batch)| state.awaits_map && state.map_version <= knows;
        let awaited: Vec<BatchId> = self.batches.iter().filter(awaited).map(|(id, _)| *id).collect();
        for batch in awaited {
            self.gather(now, shard, batch, outgoing);
        }
        let deferred: Vec<BatchId> =
            self.batches.iter().filter(|(_, state)| state.deferred.is_some()).map(|(id, _)| *id).collect();
        for batch in deferred {
            self.apply(now, shard, batch, outgoing, granted);
        }
        // What was only read must be decided; of what was written that is what the answers are for.
        let (durable, decided) = (shard.engine().durable_seq(), shard.engine().decided_seq());
        let mut finished = Vec::new();
        for (batch, state) in &mut self.batches {
            let reached = if state.has_writes { durable } else { decided };
            if state.prepared_at.is_some_and(|seq| seq <= reached) {
                state.prepared_at = None;
                outgoing.push((batch.coordinator, ShardMessage::Prepared { batch: *batch, error: None }));
                if state.is_read_only {
                    finished.push(*batch);
                }
            }
        }
        for batch in finished {
            self.forget(shard, batch, granted);
        }
    }

    fn gather<E: Engine>(&mut self, now: Now, shard: &mut Shard<E>, batch: BatchId, outgoing: &mut Outgoing) {
        let Some(state) = self.batches.get_mut(&batch) else { return };
        let map_version = shard.map().version;
        // Maps come without anybody's locks.
        state.awaits_map = map_version < state.map_version;
        if state.awaits_map {
            return;
        }
        if map_version > state.map_version {
            shard.release(&mut state.tokens);
            outgoing.push((batch.coordinator, ShardMessage::Stale { batch, map_version }));
            return;
        }
        let now = shard.clock(now);
        let mut records = Vec::with_capacity(state.keys.len());
        let mut wanted = Vec::new();
        let mut error = None;
        for key in &state.keys {
            match shard.engine_mut().look(now, borrowed(key), state.is_use) {
                Lookup::Found(record) => {
                    state.observed = state.observed.max(record.meta.seq);
                    records.push(Some(OwnedRecord { meta: record.meta, value: record.value.to_vec() }));
                }
                Lookup::Missing => {
                    // That it has expired may have been noted just now.
                    state.observed = state.observed.max(shard.engine().applied_seq());
                    records.push(None);
                }
                Lookup::Fetch => {
                    match state.failures.iter().find(|failure| failure.position == key.position) {
                        Some(failure) => error = Some(failure.error.clone()),
                        None => wanted.push(Wanted {
                            keyspace: key.keyspace,
                            position: key.position,
                            bytes: key.bytes.clone(),
                        }),
                    }
                }
            }
        }
        if error.is_none() && !wanted.is_empty() {
            state.outstanding = wanted.len();
            shard.fetch(now, state.task, &wanted, &mut state.tokens);
            return;
        }
        shard.release(&mut state.tokens);
        let is_dirty = state.watcher.is_some_and(|watcher| shard.watches.is_dirty(watcher, now));
        let records = error.map_or(Ok(records), Err);
        outgoing.push((batch.coordinator, ShardMessage::Locked { batch, records, is_dirty }));
    }

    /// Applies what is deferred, if the engine takes it now.
    fn apply<E: Engine>(
        &mut self,
        now: Now,
        shard: &mut Shard<E>,
        batch: BatchId,
        outgoing: &mut Outgoing,
        granted: &mut Vec<TaskId>,
    ) {
        let now = shard.clock(now);
        let Some(state) = self.batches.get_mut(&batch) else { return };
        let Some(deferred) = state.deferred.take() else { return };
        let ticket = state.ticket.clone();
        shard.tracking.set_writer(state.writer);
        let mut result = write_owned(now, shard, &deferred, ticket.as_ref(), &mut state.died);
        shard.tracking.set_writer(None);
        let is_refused = |error: &Error| error.kind() == ErrorKind::Retry && !deferred.is_undo;
        let mut is_given_up = false;
        if result.as_ref().is_err_and(is_refused) {
            let waited_us = now.monotonic_us - *state.waits_since_us.get_or_insert(now.monotonic_us);
            if waited_us >= PART_WAIT_US {
                let text = "the device is full: cleaning made no room for this write in time";
                result = Err(Error::new(ErrorKind::NoSpace, text));
            }
            is_given_up = waited_us >= YIELDS_AFTER_US && self.yields(batch);
        }
        let Some(state) = self.batches.get_mut(&batch) else { return };
        if let Err(error) = &result
            && (error.kind() == ErrorKind::Retry && !is_given_up
                || deferred.is_undo && is_about_room(error.kind()))
        {
            state.deferred = Some(deferred);
            return;
        }
        if deferred.is_undo {
            // A failed undo leaves a device that acknowledges nothing more: nobody sees the rest.
            self.forget(shard, batch, granted);
            return;
        }
        match result {
            Ok(gate) => {
                state.is_written = state.ticket.is_some() && state.has_writes;
                state.prepared_at = Some(gate.max(shard.gate(state.observed)));
            }
            Err(error) => {
                outgoing.push((batch.coordinator, ShardMessage::Prepared { batch, error: Some(error) }));
            }
        }
    }

    /// Whether `batch` may be waiting for another one to which it yields, and which has a part here that is not decided.
    fn yields(&self, batch: BatchId) -> bool {
        let goes_first = |(id, other): (&BatchId, &Batch)| other.is_written && (*id < batch || !other.yields);
        self.batches.get(&batch).is_some_and(|state| state.yields) && self.batches.iter().any(goes_first)
    }

    fn forget<E: Engine>(&mut self, shard: &mut Shard<E>, batch: BatchId, granted: &mut Vec<TaskId>) {
        if let Some(mut state) = self.batches.remove(&batch) {
            self.tasks.remove(&state.task);
            shard.release(&mut state.tokens);
            state.died.into_iter().for_each(|id| shard.ledger.let_go(id));
            shard.locks.leave(state.task, granted);
        }
    }
}

fn borrowed(key: &OwnedKey) -> Key<'_> {
    Key { keyspace: key.keyspace, position: key.position, bytes: &key.bytes }
}

/// Whether there may be room later: an undo waits for it, with the locks held.
fn is_about_room(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoSpace | ErrorKind::NoMemory)
}

/// Applies what is deferred; large values that lose their names are held, and added to `died`.
fn write_owned<E: Engine>(
    now: Now,
    shard: &mut Shard<E>,
    deferred: &Deferred,
    ticket: Option<&Arc<BatchTicket>>,
    died: &mut Vec<ValueId>,
) -> Result<Seq> {
    if deferred.writes.is_empty() {
        return Ok(0);
    }
    let writes = deferred.writes.iter().map(|write| {
        let kind = match &write.value {
            Some((value, expiry_ms, kind)) => WriteKind::Put { value, expiry_ms: *expiry_ms, kind: *kind },
            None => WriteKind::Delete,
        };
        Write { key: borrowed(&write.key), kind }
    });
    let writes: Vec<Write<'_>> = writes.collect();
    let whole = match ticket {
        None => Whole::Batch,
        Some(ticket) if deferred.is_undo => Whole::Undo(ticket),
        Some(ticket) => Whole::Part(ticket),
    };
    let (applied, newly_died) = shard.write_whole(now, &writes, whole)?;
    newly_died.iter().for_each(|id| shard.ledger.hold(*id));
    died.extend(newly_died);
    Ok(applied.gate)
}

#[cfg(test)]
#[path = "participant_test.rs"]
mod participant_test;
