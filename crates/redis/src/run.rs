//! Running data commands and transactions, at once or after a wait.

use crate::account::Held;
use crate::args::Args;
use crate::context::{Context, Halt, ReadCounts, error_text};
use crate::control::{Control, EngineFacts, Flow, Host, Output, shorten};
use crate::events::Events;
use crate::executor::Executor;
use crate::making::Plan;
use crate::rehearsal::{Rehearsal, rehearse};
use crate::session::{ConnectionId, Queued};
use crate::stream::ReplyPart;
use crate::table::{Action, Command, TaskKind};
use crate::task::{Origin, State, Task, Work};
use crate::tracking::{is_use, writer_of};
use crate::work;
use tierstone_base::{Error, ErrorKind, Now, Seq};
use tierstone_engine::Engine;
use tierstone_store::{FetchFailure, LockMode, RunOutcome, Stop, TaskId, View, WatchedKey};
use tierstone_wire::resp::{ReplyWriter, Version};

/// Runs of one request after which it is given up: the records that it needs never stay in memory
/// together.
pub(crate) const RUNS_MAX: u32 = 1_000;
/// Bytes of the scratch buffer that stay allocated from one command to the next.
const SCRATCH_KEPT_BYTES: usize = 1 << 20;
/// How long a write asks an engine again that is busy making room.
const BUSY_MAX_US: u64 = 2_000_000;

/// The end of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// The reply is written.
    Done(Seq),
    /// Records must be fetched.
    Suspended,
    /// The engine must step first.
    Retry,
}

/// What a run takes from its surroundings.
pub(crate) struct Setting<'a> {
    pub(crate) db: u32,
    pub(crate) version: Version,
    /// Whether what is read counts as used.
    pub(crate) is_use: bool,
    pub(crate) value_size_max_bytes: u64,
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) reads: &'a mut ReadCounts,
    /// Takes what happens to keys.
    pub(crate) events: &'a mut Events,
    /// Takes the large values of the reply; none where it must be whole.
    pub(crate) parts: Option<&'a mut Vec<ReplyPart>>,
    /// Takes what must be made first; none where everything is made at once.
    pub(crate) plan: Option<&'a mut Plan>,
}

/// Runs one data command over a view. An error is its reply, and it then changes nothing.
pub(crate) fn run_handler(
    view: &mut View<'_>,
    handler: fn(&mut Context<'_, '_>) -> crate::context::Run,
    args: Args<'_>,
    setting: &mut Setting<'_>,
    reply: &mut Vec<u8>,
) -> Result<(), Stop> {
    let start = reply.len();
    let (mark, events) = (view.mark(), setting.events.mark());
    view.count_as_use(setting.is_use);
    setting.scratch.clear();
    if setting.scratch.capacity() > SCRATCH_KEPT_BYTES {
        *setting.scratch = Vec::new();
    }
    let mut context = Context {
        view,
        args,
        reply: ReplyWriter::new(reply, setting.version),
        db: setting.db,
        value_size_max_bytes: setting.value_size_max_bytes,
        scratch: setting.scratch,
        reads: setting.reads,
        events: setting.events,
        parts: setting.parts.as_deref_mut(),
        plan: setting.plan.as_deref_mut(),
    };
    let ran = handler(&mut context);
    let bytes = reply.len().saturating_sub(start) + setting.scratch.len();
    setting.reads.work += work::of_args(args) + work::of_bytes(bytes);
    match ran {
        Ok(()) => Ok(()),
        Err(Halt::Suspend) => {
            reply.truncate(start);
            Err(Stop::Suspend)
        }
        Err(Halt::Error(text)) => {
            view.roll_back(mark);
            setting.events.roll_back(events);
            reply.truncate(start);
            if let Some(parts) = &mut setting.parts {
                parts.clear();
            }
            ReplyWriter::new(reply, setting.version).error(text.as_bytes());
            Ok(())
        }
    }
}

/// Runs one control command. An error is its reply.
pub(crate) fn run_control(
    host: &mut Host,
    engine: &EngineFacts,
    (now, connection): (Now, ConnectionId),
    handler: crate::control::ControlHandler,
    args: Args<'_>,
    reply: &mut Vec<u8>,
) -> Flow {
    let version = host.sessions.get(&connection).map_or(Version::Resp2, |session| session.version);
    run_control_as(host, engine, (now, connection), handler, args, version, reply)
}

/// Runs one control command for a client who may be another shard's. An error is its reply.
pub(crate) fn run_control_as(
    host: &mut Host,
    engine: &EngineFacts,
    (now, connection): (Now, ConnectionId),
    handler: crate::control::ControlHandler,
    args: Args<'_>,
    version: Version,
    reply: &mut Vec<u8>,
) -> Flow {
    let start = reply.len();
    let mut control =
        Control { host, engine, args, reply: ReplyWriter::new(reply, version), connection, now };
    match handler(&mut control) {
        Ok(flow) => flow,
        Err(halt) => {
            reply.truncate(start);
            if let Halt::Error(text) = halt {
                ReplyWriter::new(reply, version).error(text.as_bytes());
            }
            Flow::Done
        }
    }
}

impl<E: Engine> Executor<E> {
    /// Runs one data command now.
    pub(crate) fn run_command(
        &mut self,
        now: Now,
        command: &'static Command,
        args: Args<'_>,
        (db, version): (u32, Version),
        failures: &[FetchFailure],
        reply: &mut Vec<u8>,
    ) -> Ran {
        let Action::Data(handler) = command.action else {
            unreachable!("'{}' is no data command", command.name)
        };
        let (start, tracker) = (reply.len(), self.tracker.take());
        let mut reads = ReadCounts::default();
        let Executor { shard, workspace, scratch, host, parts, plan, .. } = self;
        let held_bytes_max = host.held_bytes_max;
        parts.clear();
        host.events.roll_back(0);
        *plan = Plan::default();
        let mut setting = Setting {
            db,
            version,
            is_use: is_use(tracker, command),
            value_size_max_bytes: host.settings.value_size_max_bytes,
            scratch,
            reads: &mut reads,
            events: &mut host.events,
            parts: Some(parts),
            plan: Some(plan),
        };
        shard.tracking.set_writer(writer_of(tracker));
        let outcome = shard.run(now, workspace, failures, |view| {
            view.limit_held(held_bytes_max);
            view.count_chunks(command.is_limited());
            run_handler(view, handler, args, &mut setting, reply)
        });
        shard.tracking.set_writer(None);
        host.work.add(reads.work);
        match outcome {
            RunOutcome::Done { gate, .. } => {
                host.counters.hits += reads.hits;
                host.counters.misses += reads.misses;
                // They count from the reply's start.
                self.parts.iter_mut().for_each(|part| part.at -= start);
                self.remember(now, tracker, db, command, args);
                self.publish_events(gate);
                Ran::Done(gate)
            }
            RunOutcome::Suspended => {
                reply.truncate(start);
                Ran::Suspended
            }
            RunOutcome::Failed(error) => {
                reply.truncate(start);
                if error.kind() == ErrorKind::Retry {
                    return Ran::Retry;
                }
                self.parts.clear();
                ReplyWriter::new(reply, version).error(error_text(&error).as_bytes());
                Ran::Done(0)
            }
        }
    }

    /// Runs the queued commands of a transaction now, as one batch.
    pub(crate) fn run_transaction(
        &mut self,
        now: Now,
        connection: ConnectionId,
        commands: &[Queued],
        failures: &[FetchFailure],
        reply: &mut Vec<u8>,
    ) -> Ran {
        let facts = self.engine_facts();
        let (start, tracker) = (reply.len(), self.tracker.take());
        let outputs = self.host.outputs.len();
        let Some(session) = self.host.sessions.get(&connection) else { return Ran::Done(0) };
        let (db, version) = (session.db, session.version);
        let Executor { shard, workspace, scratch, host, .. } = self;
        let held_bytes_max = host.held_bytes_max;
        host.work.begin_piece();
        // Commands with effects outside the view run once: first it is seen that nothing is missing.
        if commands.iter().any(|queued| !matches!(queued.command.action, Action::Data(_))) {
            let outcome = shard.run(now, workspace, failures, |view| {
                let value_size_max_bytes = host.settings.value_size_max_bytes;
                let mut rehearsal =
                    Rehearsal::new(value_size_max_bytes, (db, version), scratch, &host.events);
                view.limit_held(held_bytes_max);
                let start = view.mark();
                let ran = rehearse(view, commands, &mut rehearsal, &mut Vec::new());
                view.roll_back(start);
                ran
            });
            match outcome {
                RunOutcome::Done { .. } => {}
                RunOutcome::Suspended => return Ran::Suspended,
                // Nothing with effects outside the view was carried out: those could not be taken back.
                RunOutcome::Failed(error) => return discarded(&error, version, reply),
            }
            // All of it was looked at.
            host.work.begin_unbounded_piece();
        }
        host.events.roll_back(0);
        shard.tracking.set_writer(writer_of(tracker));
        let outcome = shard.run(now, workspace, failures, |view| {
            view.limit_held(held_bytes_max);
            ReplyWriter::new(reply, version).array(commands.len());
            for queued in commands {
                run_queued(view, queued, host, &facts, (now, connection), scratch, reply)?;
            }
            Ok(())
        });
        shard.tracking.set_writer(None);
        match outcome {
            RunOutcome::Done { gate, .. } => {
                self.host.count_run();
                self.remember_transaction(now, tracker, (connection, db), commands);
                self.host.outputs[outputs..].iter_mut().for_each(|output| output.wait_for(gate));
                self.publish_events(gate);
                Ran::Done(gate)
            }
            RunOutcome::Suspended => {
                reply.truncate(start);
                host.restore(connection, db, outputs);
                Ran::Suspended
            }
            RunOutcome::Failed(error) => {
                reply.truncate(start);
                host.restore(connection, db, outputs);
                discarded(&error, version, reply)
            }
        }
    }

    /// Looks at the keys of a `WATCH` and begins to watch them.
    pub(crate) fn run_watch(
        &mut self,
        now: Now,
        watcher: ConnectionId,
        args: Args<'_>,
        db: u32,
        failures: &[FetchFailure],
        reply: &mut Vec<u8>,
    ) -> Ran {
        let outcome = self.shard.run(now, &mut self.workspace, failures, |view| {
            view.count_as_use(false);
            view.prefetch(db, args.from(1))?;
            let mut watched = Vec::with_capacity(args.len() - 1);
            for bytes in args.from(1) {
                let key = view.key(db, bytes)?;
                let (keyspace, position) = (key.keyspace, key.position);
                let record = view.get(db, bytes)?;
                watched.push(WatchedKey {
                    keyspace,
                    position,
                    expiry_ms: record.map_or(0, |record| record.meta.expiry_ms),
                    existed: record.is_some(),
                });
            }
            Ok(watched)
        });
        match outcome {
            RunOutcome::Done { value, .. } => {
                for key in value {
                    self.shard.watches.watch(watcher, key);
                }
                match self.host.sessions.get_mut(&watcher) {
                    Some(session) => session.is_watching = true,
                    // It has gone meanwhile, or belongs to another shard that will say so when it goes.
                    None if self.shard.count() == 1 => self.shard.watches.unwatch(watcher),
                    None => {}
                }
                reply.extend_from_slice(b"+OK\r\n");
                Ran::Done(0)
            }
            RunOutcome::Suspended => Ran::Suspended,
            RunOutcome::Failed(error) => {
                ReplyWriter::new(reply, Version::Resp2).error(error_text(&error).as_bytes());
                Ran::Done(0)
            }
        }
    }

    /// Parks `task` after a run that has not come to its end.
    pub(crate) fn park(&mut self, now: Now, id: TaskId, mut task: Box<Task>, ran: Ran) {
        if !task.positions.is_empty() && !task.is_in_lock_table {
            task.is_in_lock_table = true;
            let positions = task.positions.clone();
            // Nobody was in its way when it ran, so these are granted at once.
            self.shard.locks.enter(id, positions, LockMode::Intent);
        }
        match ran {
            Ran::Retry => {
                task.state = State::Retry;
                self.retries.add(id);
            }
            _ => {
                let wanted = std::mem::take(&mut self.workspace.wanted);
                task.outstanding += wanted.len();
                self.shard.fetch(now, id, &wanted, &mut task.tokens);
            }
        }
        self.tasks.insert(id, task);
    }

    /// Puts `task` behind those that hold its positions.
    pub(crate) fn wait_for_locks(&mut self, now: Now, id: TaskId, mut task: Box<Task>) {
        task.is_in_lock_table = true;
        let positions = task.positions.clone();
        let is_granted = self.shard.locks.enter(id, positions, LockMode::Intent);
        self.tasks.insert(id, task);
        if is_granted {
            self.run_task(now, id);
        }
    }

    /// A fetch of `task` is done.
    pub(crate) fn fetched(&mut self, now: Now, id: TaskId, failure: Option<FetchFailure>) {
        if self.participant.owns(id) {
            self.participant.fetched(now, &mut self.shard, id, failure, &mut self.outgoing);
            self.send_outgoing(now);
            return;
        }
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.failures.extend(failure);
        task.outstanding -= 1;
        if task.outstanding == 0 {
            self.run_task(now, id);
        }
    }

    /// Runs a waiting task again.
    pub(crate) fn run_task(&mut self, now: Now, id: TaskId) {
        let now = self.shard_now(now);
        match self.tasks.get(&id).map(|task| &task.work) {
            Some(Work::Stream(_)) => return self.run_stream(now, id),
            Some(Work::Read(_)) => return self.run_reading(now, id),
            _ => {}
        }
        let Some(mut task) = self.tasks.remove(&id) else { return };
        self.parts.clear();
        let mut reply = Vec::new();
        let failures = std::mem::take(&mut task.failures);
        self.tracker = task.tracker;
        let outputs = self.host.outputs.len();
        let ran = match (&task.work, task.origin) {
            (Work::Command { command, args }, _) => {
                self.run_command(now, command, args.args(), (task.db, task.version), &failures, &mut reply)
            }
            (Work::Transaction { commands, is_watching }, Origin::Connection(connection)) => {
                if *is_watching && self.shard.watches.is_dirty(connection, now) {
                    ReplyWriter::new(&mut reply, task.version).null_array();
                    Ran::Done(0)
                } else {
                    self.run_transaction(now, connection, commands, &failures, &mut reply)
                }
            }
            (Work::Watch { args, watcher }, _) => {
                self.run_watch(now, *watcher, args.args(), task.db, &failures, &mut reply)
            }
            (work, origin) => unreachable!("{work:?} of {origin:?} is not run again"),
        };
        task.failures = failures;
        self.tracker = None;
        match ran {
            Ran::Done(gate) if !self.parts.is_empty() => self.begin_stream(now, id, task, reply, gate),
            Ran::Done(gate) => {
                self.follow_settings(now, outputs);
                if let Work::Transaction { .. } = task.work {
                    self.change_users_by(outputs);
                }
                self.finish_task(now, (id, task), reply, gate, false);
            }
            Ran::Retry => {
                let since_us = *task.busy_since_us.get_or_insert(now.monotonic_us);
                if now.monotonic_us < since_us + BUSY_MAX_US {
                    return self.park(now, id, task, ran);
                }
                self.tasks.insert(id, task);
                let text = b"-ERR the device is full: cleaning made no room for this write in time\r\n";
                self.finish(now, id, text, 0, false);
            }
            Ran::Suspended if self.plan.wanted.is_some() => self.coordinate_command(now, id, task),
            Ran::Suspended if task.runs >= RUNS_MAX => {
                self.tasks.insert(id, task);
                let text = b"-ERR the records that the command needs do not stay in memory together\r\n";
                self.finish(now, id, text, 0, false);
            }
            Ran::Suspended => {
                task.runs += 1;
                self.park(now, id, task, ran);
            }
        }
    }

    /// Answers a task and lets everything go that it holds.
    pub(crate) fn finish(
        &mut self,
        now: Now,
        id: TaskId,
        reply: impl Into<Vec<u8>>,
        gate: Seq,
        closes: bool,
    ) {
        if let Some(task) = self.tasks.remove(&id) {
            self.finish_task(now, (id, task), reply.into(), gate, closes);
        }
    }

    /// As [`Executor::finish`], for a task that is taken out already.
    fn finish_task(
        &mut self,
        now: Now,
        (id, mut task): (TaskId, Box<Task>),
        reply: Vec<u8>,
        gate: Seq,
        closes: bool,
    ) {
        self.shard.release(&mut task.tokens);
        if let Some(command) = task.command() {
            self.host.counters.of_commands.note_failed(command, &reply);
        }
        self.note_ended(now, &mut task);
        self.end_stream(id, &task);
        if let Work::Watch { watcher, .. } = task.work {
            self.watching.remove(&(watcher, id));
        }
        match task.origin {
            Origin::Connection(connection) => {
                if let Work::Transaction { is_watching: true, .. } = task.work {
                    self.unwatch(connection);
                }
                if let Some(session) = self.host.sessions.get_mut(&connection) {
                    session.resume(id);
                    self.host.counters.note_error(&reply);
                    self.expected.note(reply.len());
                    let bytes = if task.is_silent { Vec::new() } else { reply };
                    self.host.outputs.push(Output::Reply { connection, task: id, bytes, gate, closes });
                    self.resume_session(connection);
                    self.drop_leftovers(connection);
                }
            }
            Origin::Shard(shard, ticket) => self.answer_shard(shard, ticket, reply, gate),
        }
        if task.is_in_lock_table {
            let mut granted = Vec::new();
            self.shard.locks.leave(id, &mut granted);
            self.run_granted(now, granted);
        }
    }

    /// Runs what holds its locks now.
    pub(crate) fn run_granted(&mut self, now: Now, granted: Vec<TaskId>) {
        for id in granted {
            if self.participant.owns(id) {
                self.participant.granted(now, &mut self.shard, id, &mut self.outgoing);
                self.send_outgoing(now);
            } else {
                self.run_task(now, id);
            }
        }
    }

    /// `now` with the shard's wall time, which never goes back.
    pub(crate) fn shard_now(&mut self, now: Now) -> Now {
        self.shard.clock(now)
    }

    /// Ends the watches of a connection.
    pub(crate) fn unwatch(&mut self, connection: ConnectionId) {
        self.shard.watches.unwatch(connection);
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.is_watching = false;
            session.watched.clear();
            session.watched_held = Held::default();
        }
        self.unwatch_elsewhere(connection);
    }
}

/// What becomes of a transaction that failed as a whole.
fn discarded(error: &Error, version: Version, reply: &mut Vec<u8>) -> Ran {
    if error.kind() == ErrorKind::Retry {
        return Ran::Retry;
    }
    let text = format!("EXECABORT Transaction discarded: {}", error_text(error));
    ReplyWriter::new(reply, version).error(text);
    Ran::Done(0)
}

/// Runs one command of a transaction.
pub(crate) fn run_queued(
    view: &mut View<'_>,
    queued: &Queued,
    host: &mut Host,
    facts: &EngineFacts,
    (now, connection): (Now, ConnectionId),
    scratch: &mut Vec<u8>,
    reply: &mut Vec<u8>,
) -> Result<(), Stop> {
    let args = queued.args.args();
    let Some(session) = host.sessions.get(&connection) else { return Ok(()) };
    let (db, version) = (session.db, session.version);
    let is_use = is_use(session.tracker(facts.shard.0), queued.command);
    let (began_ns, start) = (host.timing.begin(now), reply.len());
    if host.refuses_now(queued, reply) {
        return Ok(());
    }
    match queued.command.action {
        Action::Data(handler) => {
            let mut reads = ReadCounts::default();
            let value_size_max_bytes = host.settings.value_size_max_bytes;
            let events = &mut host.events;
            let mut setting = Setting {
                db,
                version,
                is_use,
                value_size_max_bytes,
                scratch,
                reads: &mut reads,
                events,
                parts: None,
                plan: None,
            };
            let ran = run_handler(view, handler, args, &mut setting, reply);
            host.work.add(reads.work);
            ran?;
            // Before anything is applied: an error of one command only would leave the others' effects.
            view.check_held(reply.len() as u64)?;
            host.ran_reads.hits += reads.hits;
            host.ran_reads.misses += reads.misses;
        }
        Action::Control(handler) => {
            host.is_in_exec = true;
            run_control(host, facts, (now, connection), handler, args, reply);
            host.is_in_exec = false;
            shorten(view, version, start, reply);
        }
        Action::Task(TaskKind::Tracking) => {
            crate::commands::tracking::tracking_queued(host, facts.shard, connection, args, reply);
        }
        Action::Task(kind) => crate::task_command::answer_queued(now, kind, queued, version, reply),
        Action::Container => unreachable!("a container is never queued"),
    }
    host.work.check_piece()?;
    host.counters.note_error(&reply[start..]);
    host.ran.push((queued.command, reply.get(start) == Some(&b'-')));
    host.note_queued(now, connection, (queued.command, began_ns), args);
    Ok(())
}
