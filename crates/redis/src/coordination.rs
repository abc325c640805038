//! Commands and transactions over several shards, from the side of the shard that coordinates them.
//!
//! The coordinator locks and gathers shard by shard, runs the commands over what it has gathered,
//! scatters the writes, and answers when all of them are durable ([`tierstone_store::message`] has
//! the messages and what they promise).
//!
//! Invariants:
//! 1. A key that the commands touch without its having been gathered (COPY to another database) is
//!    found out by the run: everything is let go, and the batch begins anew with that key. Chunks of large values, which no word
//!    of a command tells either, are gathered under the locks that are held, which keep their values as they are.
//! 2. A large value that the command must make first ([`crate::making`]) is made under the locks, between
//!    gathering and scattering; the run is then repeated with it.
//! 3. When one participant refuses its writes, the others get the old records back before any lock is
//!    let go: nobody sees a part.
//! 4. What is run was gathered by one map of databases, which this shard has while it runs. Where the databases have changed
//!    for a participant or for this shard, everything is let go, and the batch begins anew by the later map. So each such
//!    beginning wants a change of its own.
//! 5. A batch that did nothing but read and write records, and that a participant refused in favour of another, begins anew. Its
//!    parts are then written one after the other, in the order of the shards: of such batches none waits for
//!    one that waits for it.

use crate::context::error_line;
use crate::control::Output;
use crate::executor::Executor;
use crate::gathered::Gathered;
use crate::making::{Made, Plan, is_about_loss};
use crate::run::{run_handler, run_queued};
use crate::session::{ConnectionId, Queued};
use crate::table::Action;
use crate::task::{Origin, Task, Work};
use crate::tracking::{RememberedBy, writer_of};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{Error, ErrorKind, Now, ShardId};
use tierstone_engine::Engine;
use tierstone_store::message::{BatchId, OwnedKey, OwnedWrite, ShardMessage};
use tierstone_store::{Stop, TaskId, View};
use tierstone_wire::resp::{ReplyWriter, Version};

mod attempts;
mod keys;
mod writes;

use writes::{is_new_chunk, plan_writes};

/// How often a batch may begin anew because of keys that were not foreseen, as long as the databases stay.
const ATTEMPTS_MAX: u32 = 8;

/// How far a batch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The participant with this index is locking and gathering.
    Locking(usize),
    /// A participant gathers chunks of large values.
    Gathering,
    /// All prepare.
    Preparing,
}

/// One command or transaction over several shards.
#[derive(Debug)]
pub(crate) struct Coordination {
    pub(crate) commands: Vec<Queued>,
    pub(crate) is_transaction: bool,
    watcher: Option<(ConnectionId, BTreeSet<ShardId>)>,
    /// Keys that an earlier attempt has shown to be needed.
    extra: BTreeSet<OwnedKey>,
    attempts: u32,
    /// The map that says what keyspaces the databases are; what is gathered was gathered by it.
    map_version: u64,
    batch: BatchId,
    phase: Phase,
    participants: Vec<(ShardId, Vec<OwnedKey>)>,
    /// Chunks that participants are still to be asked for.
    unasked: BTreeMap<ShardId, Vec<OwnedKey>>,
    pub(crate) gathered: Gathered,
    is_dirty: bool,
    error: Option<Error>,
    outstanding: usize,
    refused: BTreeSet<ShardId>,
    /// Whether it has begun anew in favour of others.
    has_yielded: bool,
    /// What participants are still to be sent, when those before have answered.
    unsent: Vec<(ShardId, ShardMessage)>,
    writes: BTreeMap<ShardId, Vec<OwnedWrite>>,
    undo: BTreeMap<ShardId, Vec<OwnedWrite>>,
    reply: Vec<u8>,
    /// What others are told when the batch is decided: messages of channels.
    effects: Vec<Output>,
    /// What it has read, for a client that keeps copies.
    pub(crate) remembered: RememberedBy,
    /// The large value that was made for the command.
    made: Option<Made>,
    makings: u32,
}

impl Coordination {
    pub(crate) fn command(command: Queued) -> Self {
        Self::new(vec![command], false, None)
    }

    pub(crate) fn transaction(
        commands: Vec<Queued>,
        watcher: Option<(ConnectionId, BTreeSet<ShardId>)>,
    ) -> Self {
        Self::new(commands, true, watcher)
    }

    fn new(
        commands: Vec<Queued>,
        is_transaction: bool,
        watcher: Option<(ConnectionId, BTreeSet<ShardId>)>,
    ) -> Self {
        Coordination {
            commands,
            is_transaction,
            watcher,
            extra: BTreeSet::new(),
            attempts: 0,
            map_version: 0,
            batch: BatchId { coordinator: 0, number: 0 },
            phase: Phase::Locking(0),
            participants: Vec::new(),
            unasked: BTreeMap::new(),
            gathered: Gathered::default(),
            is_dirty: false,
            error: None,
            outstanding: 0,
            refused: BTreeSet::new(),
            has_yielded: false,
            unsent: Vec::new(),
            writes: BTreeMap::new(),
            undo: BTreeMap::new(),
            reply: Vec::new(),
            effects: Vec::new(),
            remembered: None,
            made: None,
            makings: 0,
        }
    }
}

impl Coordination {
    /// Whether participants may have writes of it that are not decided.
    pub(crate) fn has_sent_writes(&self) -> bool {
        self.phase == Phase::Preparing
    }

    /// The answer to a batch that is not run, if there is one already.
    fn early_reply(&self, version: Version) -> Option<Vec<u8>> {
        if let Some(error) = &self.error {
            return Some(self.refusal(error));
        }
        let mut reply = Vec::new();
        ReplyWriter::new(&mut reply, version).null_array();
        self.is_dirty.then_some(reply)
    }

    /// Whether it may be taken back and begin anew: it did nothing but read and write records. What was uploaded for it would be
    /// reclaimed when it is taken back.
    fn may_yield(&self) -> bool {
        let is_plain = |queued: &Queued| {
            matches!(queued.command.action, Action::Data(_)) && queued.args.all_staged().is_empty()
        };
        !self.has_yielded && self.watcher.is_none() && self.commands.iter().all(is_plain)
    }

    /// Whether it was refused in favour of another batch, and begins anew.
    fn yields(&mut self) -> bool {
        let is_refused = self.error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Retry);
        if !is_refused || !self.may_yield() {
            return false;
        }
        // These count what was not foreseen.
        (self.attempts, self.makings, self.error) = (0, 0, None);
        self.has_yielded = true;
        true
    }

    /// The answer to a batch that `error` has kept from having any effect.
    fn refusal(&self, error: &Error) -> Vec<u8> {
        let prefix = if self.is_transaction { "EXECABORT Transaction discarded: " } else { "" };
        error_line(prefix, error)
    }
}

impl<E: Engine> Executor<E> {
    fn coordination(&mut self, id: TaskId) -> Option<&mut Coordination> {
        match self.tasks.get_mut(&id).map(Box::as_mut) {
            Some(Task { work: Work::Coordinated(coordination), .. }) => Some(coordination),
            _ => None,
        }
    }

    /// Locks the next participant, or goes on when all are locked.
    fn lock_next(&mut self, now: Now, id: TaskId) {
        let Some(coordination) = self.coordination(id) else { return };
        let Phase::Locking(index) = coordination.phase else { return };
        let Some((shard, keys)) = coordination.participants.get(index).cloned() else {
            self.run_by_its_map(now, id);
            return;
        };
        let (batch, map_version) = (coordination.batch, coordination.map_version);
        let watcher = coordination.watcher.as_ref().map(|watching| watching.0);
        let is_use = self.uses_what_it_reads(id);
        self.send_batch(shard, ShardMessage::Lock { batch, map_version, keys, watcher, is_use });
    }

    /// Takes a message about a batch.
    pub(crate) fn batch_message(&mut self, now: Now, from: ShardId, message: ShardMessage) {
        match message {
            ShardMessage::Locked { batch, records, is_dirty } => {
                let Some(id) = self.batches.get(&batch.number).copied() else { return };
                self.gathered(now, id, from, records, is_dirty);
            }
            ShardMessage::Stale { batch, map_version } => {
                let Some(id) = self.batches.get(&batch.number).copied() else { return };
                self.begin_anew_by(now, id, map_version);
            }
            ShardMessage::Prepared { batch, error } => {
                let Some(id) = self.batches.get(&batch.number).copied() else { return };
                let Some(coordination) = self.coordination(id) else { return };
                if let Some(error) = error {
                    coordination.refused.insert(from);
                    // What a later attempt would meet too counts more.
                    let is_final = |error: &Error| error.kind() != ErrorKind::Retry;
                    if !coordination.error.as_ref().is_some_and(is_final) {
                        coordination.error = Some(error);
                    }
                }
                coordination.outstanding -= 1;
                if coordination.outstanding > 0 {
                    return;
                }
                let is_refused = !coordination.refused.is_empty();
                match coordination.unsent.pop() {
                    Some((to, message)) if !is_refused => {
                        coordination.outstanding = 1;
                        self.send_batch(to, message);
                    }
                    unsent => {
                        // Who was sent nothing has nothing to take back.
                        let never = unsent.into_iter().chain(std::mem::take(&mut coordination.unsent));
                        coordination.refused.extend(never.map(|(shard, _)| shard));
                        self.decide(now, id);
                    }
                }
            }
            message => {
                let mut granted = Vec::new();
                self.participant.receive(now, &mut self.shard, message, &mut self.outgoing, &mut granted);
                self.send_outgoing(now);
                self.run_granted(now, granted);
            }
        }
    }

    /// Sends what this shard says as a participant.
    pub(crate) fn send_outgoing(&mut self, _now: Now) {
        for (to, message) in std::mem::take(&mut self.outgoing) {
            self.send_batch(to, message);
        }
    }

    /// Lets this shard's parts of batches go on, and batches that have waited for this shard's map.
    pub(crate) fn poll_participant(&mut self, now: Now) {
        self.begin_awaited(now);
        if self.participant.is_empty() {
            return;
        }
        let mut granted = Vec::new();
        self.participant.poll(now, &mut self.shard, &mut self.outgoing, &mut granted);
        self.send_outgoing(now);
        self.run_granted(now, granted);
    }

    /// Runs the commands over what was gathered.
    fn run_gathered(&mut self, now: Now, id: TaskId) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let Work::Coordinated(coordination) = &mut task.work else { return };
        coordination.reply.clear();
        // What an earlier attempt would have written is not for this one.
        coordination.writes.clear();
        coordination.undo.clear();
        if let Some(reply) = coordination.early_reply(task.version) {
            coordination.reply = reply;
            self.tasks.insert(id, task);
            self.scatter(now, id);
            return;
        }
        self.workspace.overlay.clear();
        self.workspace.wanted.clear();
        let outputs = self.host.outputs.len();
        let db = self.selected(&task);
        let mark = self.shard.value_ids().mark();
        self.host.events.roll_back(0);
        let ran = self.run_over_gathered(now, &mut task);
        let Work::Coordinated(coordination) = &mut task.work else { return };
        match ran {
            Ok(()) => {
                let ids = self.shard.value_ids();
                let is_new = |key: &OwnedKey| is_new_chunk(key, ids, mark);
                let missing = plan_writes(coordination, &self.workspace.overlay, self.shard.count(), is_new);
                let is_complete = missing.is_empty();
                if is_complete {
                    self.follow_settings(now, outputs);
                    // The reply leaves when all of it is durable, and they with it.
                    self.publish_events(0);
                    coordination.effects = self.host.outputs.split_off(outputs);
                } else {
                    self.take_back(&task, db, outputs);
                }
                if is_complete {
                    self.completed(now, &mut task, db);
                }
                self.tasks.insert(id, task);
                if is_complete { self.scatter(now, id) } else { self.gather_missing(now, id, missing) }
            }
            Err(Stop::Suspend) if self.plan.wanted.is_some() && coordination.makings < ATTEMPTS_MAX => {
                coordination.makings += 1;
                self.take_back(&task, db, outputs);
                self.tasks.insert(id, task);
                if let Some(recipe) = self.plan.wanted.take() {
                    self.begin_making(id, recipe);
                }
            }
            Err(Stop::Suspend) => {
                let missing = self.workspace.wanted.drain(..).map(|wanted| OwnedKey {
                    keyspace: wanted.keyspace,
                    position: wanted.position,
                    bytes: wanted.bytes,
                });
                let missing = missing.collect();
                self.take_back(&task, db, outputs);
                self.tasks.insert(id, task);
                self.gather_missing(now, id, missing);
            }
            Err(Stop::Failed(error)) => {
                coordination.reply = coordination.refusal(&error);
                self.take_back(&task, db, outputs);
                self.tasks.insert(id, task);
                self.scatter(now, id);
            }
        }
    }

    /// The run of a batch that began in database `db` has come to its end.
    fn completed(&mut self, now: Now, task: &mut Task, db: u32) {
        self.note_decided(now, task);
        self.host.count_run();
        self.remember_batch(task, db);
    }

    /// The database that the task's connection has selected.
    fn selected(&self, task: &Task) -> u32 {
        match task.origin {
            Origin::Connection(connection) => {
                self.host.sessions.get(&connection).map_or(task.db, |session| session.db)
            }
            Origin::Shard(..) => task.db,
        }
    }

    /// Takes back what a run did outside its view.
    fn take_back(&mut self, task: &Task, db: u32, outputs: usize) {
        self.host.forget_run();
        if let Origin::Connection(connection) = task.origin {
            self.host.restore(connection, db, outputs);
        }
    }

    fn run_over_gathered(&mut self, now: Now, task: &mut Task) -> Result<(), Stop> {
        let now = self.shard_now(now);
        let facts = self.engine_facts();
        let Work::Coordinated(coordination) = &mut task.work else { return Ok(()) };
        let Coordination { commands, gathered, reply, is_transaction, made, .. } = &mut **coordination;
        let Executor { shard, host, workspace, scratch, plan, .. } = self;
        *plan = Plan::default();
        let buffers = (&mut workspace.overlay, &mut workspace.wanted);
        let gathered_bytes = gathered.value_bytes();
        let mut view =
            View::new(gathered, shard.map(), (shard.hasher(), shard.value_ids()), buffers, &[], now);
        view.limit_held(host.held_bytes_max);
        if *is_transaction {
            view.hold(gathered_bytes)?;
        }
        if let (false, Some(queued)) = (*is_transaction, commands.first())
            && let Action::Data(handler) = queued.command.action
        {
            let mut reads = crate::context::ReadCounts::default();
            plan.made = made.take();
            let mut setting = crate::run::Setting {
                db: task.db,
                version: task.version,
                is_use: false,
                value_size_max_bytes: host.settings.value_size_max_bytes,
                scratch,
                reads: &mut reads,
                events: &mut host.events,
                parts: None,
                plan: Some(plan),
            };
            let ran = run_handler(&mut view, handler, queued.args.args(), &mut setting, reply);
            host.work.add(reads.work);
            (*made, host.ran_reads) = (plan.made.take(), reads);
            return ran;
        }
        let Origin::Connection(connection) = task.origin else { return Ok(()) };
        match commands.iter().all(|queued| matches!(queued.command.action, Action::Data(_))) {
            true => host.work.begin_piece(),
            false => host.work.begin_unbounded_piece(),
        }
        ReplyWriter::new(reply, task.version).array(commands.len());
        let mut is_missing = false;
        for queued in commands.iter() {
            if queued.command.name == "dbsize" {
                let text = "ERR 'dbsize' is not available inside a transaction over several shards";
                ReplyWriter::new(reply, task.version).error(text);
                continue;
            }
            // Where something is missing, the rest runs for its keys alone; SELECT says in which database.
            let is_of_keys =
                matches!(queued.command.action, Action::Data(_)) || queued.command.name == "select";
            if is_missing && !is_of_keys {
                continue;
            }
            match run_queued(&mut view, queued, host, &facts, (now, connection), scratch, reply) {
                Ok(()) => {}
                // What the commands behind it need is found out by the same attempt.
                Err(Stop::Suspend) => is_missing = true,
                // They see what is not there yet: what they fail for is looked at when it is.
                Err(Stop::Failed(_)) if is_missing => break,
                Err(error) => return Err(error),
            }
        }
        if is_missing { Err(Stop::Suspend) } else { Ok(()) }
    }

    /// A command that must make a large value first goes on as a batch, whose locks keep its keys as they
    /// are meanwhile. Nothing of it was applied.
    pub(crate) fn coordinate_command(&mut self, now: Now, id: TaskId, mut task: Box<Task>) {
        self.plan.wanted = None;
        Self::keep_timed(&mut task);
        self.shard.release(&mut task.tokens);
        let Work::Command { command, args } = std::mem::replace(&mut task.work, Work::Forwarded) else {
            unreachable!("only a command makes a large value")
        };
        let queued = Queued { command, index: 0, args, refused: None };
        task.work = Work::Coordinated(Box::new(Coordination::command(queued)));
        task.positions.clear();
        let was_locked = std::mem::take(&mut task.is_in_lock_table);
        self.tasks.insert(id, task);
        if was_locked {
            let mut granted = Vec::new();
            self.shard.locks.leave(id, &mut granted);
            self.run_granted(now, granted);
        }
        self.coordinate(now, id);
    }

    /// The large value that a command wanted was made, or could not be.
    pub(crate) fn made(&mut self, now: Now, id: TaskId, result: Result<Made, Error>) {
        self.drop_made(id);
        let Some(coordination) = self.coordination(id) else { return };
        match result {
            Ok(made) => coordination.made = Some(made),
            // A source or the target's database may have gone: then the keys say so.
            Err(error) if is_about_loss(error.kind()) && coordination.makings == 1 => {
                return self.begin_anew(now, id);
            }
            Err(error) => coordination.error = Some(error),
        }
        self.run_by_its_map(now, id);
    }

    /// Gives up what was made for a batch, if no map names it.
    fn drop_made(&mut self, id: TaskId) {
        let count = self.shard.count();
        let made = self.coordination(id).and_then(|coordination| coordination.made.take());
        if let Some(Made { staged, .. }) = made {
            self.drop_all(vec![(staged.place.shard(count), staged.map.id)]);
        }
    }

    /// Sends each participant its writes.
    pub(crate) fn scatter(&mut self, now: Now, id: TaskId) {
        if self.backups.puts_off(id) {
            return;
        }
        let Some(coordination) = self.coordination(id) else { return };
        coordination.phase = Phase::Preparing;
        coordination.outstanding = coordination.participants.len();
        let (batch, has_yielded) = (coordination.batch, coordination.has_yielded);
        let yields = coordination.may_yield();
        // Where nothing is written, the locks go when all have prepared.
        let remembered = coordination.remembered.take_if(|_| coordination.writes.is_empty());
        let participants: Vec<ShardId> = coordination.writes.keys().copied().collect();
        let mut writes = std::mem::take(&mut coordination.writes);
        let shards: Vec<ShardId> = coordination.participants.iter().map(|(shard, _)| *shard).collect();
        if shards.is_empty() {
            self.decide(now, id);
            return;
        }
        let writer = self.tasks.get(&id).and_then(|task| writer_of(task.tracker));
        self.send_remembered(remembered);
        let ticket = batch.ticket(participants.len());
        let mut messages: Vec<(ShardId, ShardMessage)> = shards
            .into_iter()
            .map(|shard| {
                let writes = writes.remove(&shard).unwrap_or_default();
                let (participants, ticket) = (participants.clone(), ticket.clone());
                (shard, ShardMessage::Prepare { batch, participants, writes, ticket, writer, yields })
            })
            .collect();
        if has_yielded && let Some(coordination) = self.coordination(id) {
            // The first one first.
            coordination.unsent = messages.drain(1..).rev().collect();
            coordination.outstanding = 1;
        }
        messages.into_iter().for_each(|(shard, message)| self.send_batch(shard, message));
    }

    /// All participants have answered: decides, and answers.
    fn decide(&mut self, now: Now, id: TaskId) {
        let Some(coordination) = self.coordination(id) else { return };
        let batch = coordination.batch;
        let begins_anew = coordination.yields();
        let refused = std::mem::take(&mut coordination.refused);
        let mut undo = std::mem::take(&mut coordination.undo);
        let has_writes = !undo.is_empty();
        let shards: Vec<ShardId> = coordination.participants.iter().map(|(shard, _)| *shard).collect();
        let mut reply = std::mem::take(&mut coordination.reply);
        let mut effects = std::mem::take(&mut coordination.effects);
        let remembered = coordination.remembered.take();
        if let (false, Some(error)) = (refused.is_empty(), &coordination.error) {
            reply = coordination.refusal(error);
            // A setting was changed when the commands ran: the others must not keep another one.
            effects.retain(Output::is_about_setting);
        }
        if !begins_anew {
            let outputs = self.host.outputs.len();
            self.host.outputs.append(&mut effects);
            self.change_users_by(outputs);
            self.send_remembered(remembered);
        }
        if has_writes {
            for shard in shards {
                let restores = !refused.is_empty() && !refused.contains(&shard);
                let undo = if restores { undo.remove(&shard).unwrap_or_default() } else { Vec::new() };
                self.send_batch(shard, ShardMessage::Decide { batch, undo });
            }
        }
        self.batches.remove(&batch.number);
        self.drop_made(id);
        if begins_anew {
            self.coordinate(now, id);
            return;
        }
        if let Some(Task { origin: Origin::Connection(connection), work: Work::Coordinated(work), .. }) =
            self.tasks.get(&id).map(Box::as_ref)
            && work.is_transaction
        {
            let connection = *connection;
            self.unwatch(connection);
        }
        self.finish(now, id, reply, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::OwnedArgs;
    use crate::table;
    use crate::upload::Staged;
    use tierstone_base::{KeyspaceId, Position};
    use tierstone_store::{LargeMap, Place};

    #[test]
    fn what_was_uploaded_is_given_a_name_once() {
        let found = table::lookup(b"MSET").expect("a command");
        let mut args: OwnedArgs = [&b"MSET"[..], b"k", b"v", b"large"].into_iter().collect();
        let queued = |args| Queued { command: found.command, index: found.index, args, refused: None };
        assert!(Coordination::command(queued(args.clone())).may_yield());
        let header = [&[1, 16, 0, 0, 0, 0, 0, 0], [7; 16].as_slice(), &100u64.to_be_bytes(), &[1]].concat();
        let map = LargeMap::decode(&header).expect("a map of one chunk");
        args.push_staged(Staged { place: Place { keyspace: KeyspaceId(1), slot: Position(0).slot() }, map });
        assert!(!Coordination::command(queued(args)).may_yield(), "taken back, it would be reclaimed");
    }
}
