//! The commands that the executor itself carries out: transactions, walks, databases, waits.

use crate::acl::UsersChange;
use crate::args::Args;
use crate::context::{Halt, NOT_AN_INTEGER, SYNTAX};
use crate::control::Output;
use crate::executor::{Executor, Outcome};
use crate::forward::Route;
use crate::map_request::MapRequest;
use crate::number;
use crate::remote::Message;
use crate::run::Ran;
use crate::session::{ConnectionId, Queued, ReplyMode, Transaction, WATCHED_BYTES};
use crate::table::{Action, TaskKind};
use crate::task::{Origin, Task, Work};
use std::collections::BTreeSet;
use tierstone_base::{Now, ShardId};
use tierstone_engine::Engine;
use tierstone_store::{MapChange, TaskId};
use tierstone_wire::resp::{ReplyWriter, Version};

/// The longest `DEBUG SLEEP`, in seconds.
const SLEEP_MAX_S: f64 = 3_600.0;

impl<E: Engine> Executor<E> {
    pub(crate) fn task_command(
        &mut self,
        now: Now,
        connection: ConnectionId,
        kind: TaskKind,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let start = reply.len();
        let version = self.version(connection);
        let result = match kind {
            TaskKind::Multi => self.multi(connection, reply),
            TaskKind::Discard => self.discard(connection, reply),
            TaskKind::Exec => self.exec(now, connection, reply),
            TaskKind::Watch => self.watch(now, connection, args, reply),
            TaskKind::Unwatch => {
                self.unwatch(connection);
                ReplyWriter::new(reply, version).ok();
                Ok(Outcome::Ready { gate: 0 })
            }
            TaskKind::Scan | TaskKind::Keys | TaskKind::RandomKey => self.walk(now, connection, kind, args),
            TaskKind::FlushDb | TaskKind::FlushAll | TaskKind::SwapDb => {
                self.change_map(connection, kind, args)
            }
            TaskKind::Save | TaskKind::BackgroundSave => self.save(now, connection, kind, args, reply),
            TaskKind::Wait => self.wait(now, connection, args),
            TaskKind::WaitAof => self.wait_aof(now, connection, args),
            TaskKind::AclSetUser => {
                let rules = args.from(3).map(<[u8]>::to_vec).collect();
                let change = UsersChange::Set { name: args.at(2).to_vec(), rules };
                Ok(self.change_users(connection, change, b"+OK\r\n".to_vec()))
            }
            TaskKind::AclDelUser => {
                let names = args.from(2).map(<[u8]>::to_vec).collect();
                Ok(self.change_users(connection, UsersChange::Delete { names }, Vec::new()))
            }
            TaskKind::AclLoad => {
                self.check_users_file().map(|()| self.change_users(connection, UsersChange::Load, Vec::new()))
            }
            TaskKind::AclSave => self.save_users(connection),
            TaskKind::ConfigRewrite => self.rewrite_settings(connection),
            TaskKind::DebugSleep => self.sleep(now, connection, args),
            TaskKind::DebugBackup => self.debug_backup(now, connection, args),
            TaskKind::DebugVerify => self.debug_verify(connection, args),
            TaskKind::Monitor => Ok(self.monitor(connection, reply)),
            TaskKind::AskHome => crate::slowlog::check(args).map(|()| self.ask_home(connection, args)),
            TaskKind::Tracking => self.tracking(connection, args, reply),
            TaskKind::Shutdown => self.shutdown(args),
            TaskKind::Quit => {
                ReplyWriter::new(reply, version).ok();
                Ok(Outcome::Close { gate: 0 })
            }
            TaskKind::Reset => {
                self.reset(now, connection);
                ReplyWriter::new(reply, Version::Resp2).simple("RESET");
                Ok(Outcome::Ready { gate: 0 })
            }
        };
        match result {
            Ok(outcome) => outcome,
            Err(Halt::Error(text)) => {
                reply.truncate(start);
                ReplyWriter::new(reply, version).error(text.as_bytes());
                Outcome::Ready { gate: 0 }
            }
            Err(Halt::Suspend) => unreachable!("no view is open here"),
        }
    }

    fn version(&self, connection: ConnectionId) -> Version {
        self.host.sessions.get(&connection).map_or(Version::Resp2, |session| session.version)
    }

    /// Adds a task for which everything else of its connection waits.
    pub(crate) fn suspend(&mut self, connection: ConnectionId, id: TaskId, work: Work) -> Outcome {
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.suspend_all(id);
            let (db, version) = (session.db, session.version);
            let task = self.host.task(Origin::Connection(connection), db, version, work);
            self.tasks.insert(id, task);
        }
        self.host.counters.suspended += 1;
        Outcome::Suspended(id)
    }

    fn multi(&mut self, connection: ConnectionId, reply: &mut Vec<u8>) -> Result<Outcome, Halt> {
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.transaction = Some(Transaction::default());
        }
        ReplyWriter::new(reply, Version::Resp2).ok();
        Ok(Outcome::Ready { gate: 0 })
    }

    fn discard(&mut self, connection: ConnectionId, reply: &mut Vec<u8>) -> Result<Outcome, Halt> {
        let transaction =
            self.host.sessions.get_mut(&connection).and_then(|session| session.transaction.take());
        if transaction.is_none() {
            return crate::context::fail("ERR DISCARD without MULTI");
        }
        self.unwatch(connection);
        ReplyWriter::new(reply, Version::Resp2).ok();
        Ok(Outcome::Ready { gate: 0 })
    }

    fn exec(&mut self, now: Now, connection: ConnectionId, reply: &mut Vec<u8>) -> Result<Outcome, Halt> {
        let Some(session) = self.host.sessions.get_mut(&connection) else {
            return Ok(Outcome::Close { gate: 0 });
        };
        let (version, is_watching, db) = (session.version, session.is_watching, session.db);
        let Some(mut transaction) = session.transaction.take() else {
            return crate::context::fail("ERR EXEC without MULTI");
        };
        if transaction.is_broken {
            self.unwatch(connection);
            return crate::context::fail("EXECABORT Transaction discarded because of previous errors.");
        }
        let now = self.shard_now(now);
        if is_watching && self.shard.watches.is_dirty(connection, now) {
            self.unwatch(connection);
            ReplyWriter::new(reply, version).null_array();
            return Ok(Outcome::Ready { gate: 0 });
        }
        self.recheck(now, connection, &mut transaction.commands);
        self.collect_transaction_positions(&transaction.commands);
        let (commands, held) = (transaction.commands, transaction.held);
        if self.route_transaction(connection) != Route::Here {
            let outcome = self.exec_elsewhere(now, connection, commands, (db, version));
            if let Outcome::Suspended(id) = outcome
                && let Some(task) = self.tasks.get_mut(&id)
            {
                task.held = held;
            }
            return Ok(outcome);
        }
        let is_locked = self.positions.iter().any(|position| self.shard.locks.blocks_writer(*position));
        let tracker = self.tracker_of(connection);
        let ran = if is_locked {
            None
        } else {
            self.tracker = tracker;
            let outputs = self.host.outputs.len();
            match self.run_transaction(now, connection, &commands, &[], reply) {
                Ran::Done(gate) => {
                    self.unwatch(connection);
                    self.follow_settings(now, outputs);
                    self.change_users_by(outputs);
                    return Ok(Outcome::Ready { gate });
                }
                ran => Some(ran),
            }
        };
        let id = self.shard.next_id();
        let work = Work::Transaction { commands, is_watching };
        let task = self.host.task(Origin::Connection(connection), db, version, work);
        let mut task = task.with_tracker(tracker);
        task.positions.clone_from(&self.positions);
        task.held = held;
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.suspend_all(id);
        }
        match ran {
            None => self.wait_for_locks(now, id, task),
            Some(ran) => self.park(now, id, task, ran),
        }
        self.host.counters.suspended += 1;
        Ok(Outcome::Suspended(id))
    }

    /// Collects the positions of all keys of a transaction.
    pub(crate) fn collect_transaction_positions(&mut self, commands: &[Queued]) {
        self.positions.clear();
        for queued in commands {
            let args = queued.args.args();
            for index in queued.command.keys.indexes(args) {
                if matches!(queued.command.action, Action::Data(_)) {
                    self.positions.push(self.shard.position(args.at(index)));
                }
            }
        }
        self.positions.sort_unstable();
        self.positions.dedup();
    }

    fn watch(
        &mut self,
        now: Now,
        connection: ConnectionId,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, Halt> {
        let Some(session) = self.host.sessions.get(&connection) else {
            return Ok(Outcome::Close { gate: 0 });
        };
        let (db, version) = (session.db, session.version);
        let positions: BTreeSet<_> = args.from(1).map(|key| (db, self.shard.position(key))).collect();
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            let held = session.watched.len() * WATCHED_BYTES;
            let added = positions.difference(&session.watched).count() * WATCHED_BYTES;
            let has_room = self.host.account.has_room(held, added);
            if held + added > self.transaction_size_max_bytes || !has_room {
                ReplyWriter::new(reply, version).error("ERR the watched keys take too much memory");
                return Ok(Outcome::Ready { gate: 0 });
            }
            session.watched_held.add(&self.host.account, added);
            session.watched.extend(positions);
        }
        if self.shard.count() > 1 {
            return Ok(self.watch_elsewhere(connection, args, db));
        }
        match self.run_watch(now, connection, args, db, &[], reply) {
            Ran::Done(gate) => Ok(Outcome::Ready { gate }),
            ran => {
                let id = self.shard.next_id();
                let work = Work::Watch { args: args.to_owned(), watcher: connection };
                self.watching.insert((connection, id));
                let task = self.host.task(Origin::Connection(connection), db, version, work);
                if let Some(session) = self.host.sessions.get_mut(&connection) {
                    session.suspend_all(id);
                }
                self.park(now, id, task, ran);
                Ok(Outcome::Suspended(id))
            }
        }
    }

    fn change_map(
        &mut self,
        connection: ConnectionId,
        kind: TaskKind,
        args: Args<'_>,
    ) -> Result<Outcome, Halt> {
        let databases = self.shard.map().databases();
        let change = match kind {
            TaskKind::SwapDb => {
                let read = |index: usize, text: &'static str| {
                    let number =
                        number::integer(args.at(index)).and_then(|number| i32::try_from(number).ok());
                    number.map_or_else(|| crate::context::fail(text), Ok)
                };
                let first = read(1, "ERR invalid first DB index")?;
                let second = read(2, "ERR invalid second DB index")?;
                let known = |number: i32| match u32::try_from(number) {
                    Ok(number) if number < databases => Ok(number),
                    _ => crate::context::fail(crate::context::NO_DATABASE),
                };
                MapChange::Swap(known(first)?, known(second)?)
            }
            _ => {
                let is_debug = args.at(0).eq_ignore_ascii_case(b"debug");
                let mode = if is_debug { None } else { args.get(1) };
                let is_mode =
                    |mode: &[u8]| mode.eq_ignore_ascii_case(b"ASYNC") || mode.eq_ignore_ascii_case(b"SYNC");
                if !is_debug && args.len() > 2 || mode.is_some_and(|mode| !is_mode(mode)) {
                    return crate::context::fail(SYNTAX);
                }
                let db = self.host.sessions.get(&connection).map_or(0, |session| session.db);
                if kind == TaskKind::FlushAll { MapChange::FlushAll } else { MapChange::Flush(db) }
            }
        };
        let task = self.shard.next_id();
        let request = MapRequest { task, change };
        self.host.outputs.push(Output::ChangeMap(request));
        Ok(self.suspend(connection, task, Work::ChangeMap))
    }

    fn save(
        &mut self,
        now: Now,
        connection: ConnectionId,
        kind: TaskKind,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, Halt> {
        if kind == TaskKind::BackgroundSave {
            let is_schedule = args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"SCHEDULE"));
            if args.len() > 2 || args.len() == 2 && !is_schedule {
                return crate::context::fail(SYNTAX);
            }
            self.await_durable(now, connection, Vec::new(), true, true);
            ReplyWriter::new(reply, Version::Resp2).simple("Background saving started");
            return Ok(Outcome::Ready { gate: 0 });
        }
        Ok(self.await_durable(now, connection, b"+OK\r\n".to_vec(), true, false))
    }

    fn wait(&mut self, now: Now, connection: ConnectionId, args: Args<'_>) -> Result<Outcome, Halt> {
        check_wait(now, args)?;
        Ok(self.await_durable(now, connection, b":0\r\n".to_vec(), false, false))
    }

    fn wait_aof(&mut self, now: Now, connection: ConnectionId, args: Args<'_>) -> Result<Outcome, Halt> {
        check_wait_aof(now, args)?;
        Ok(self.await_durable(now, connection, b"*2\r\n:1\r\n:0\r\n".to_vec(), false, false))
    }

    /// Lets the caller write the settings that were changed into its file.
    fn rewrite_settings(&mut self, connection: ConnectionId) -> Result<Outcome, Halt> {
        if self.host.facts.settings_file.is_empty() {
            return crate::context::fail("ERR The server is running without a config file");
        }
        let task = self.shard.next_id();
        let changed = self.host.settings.changed();
        self.host.outputs.push(Output::RewriteSettings { task, changed });
        Ok(self.suspend(connection, task, Work::AwaitOwner))
    }

    /// Answers when all that is applied is durable, on every shard.
    pub(crate) fn await_durable(
        &mut self,
        now: Now,
        connection: ConnectionId,
        reply: Vec<u8>,
        sets_last_save: bool,
        is_background: bool,
    ) -> Outcome {
        let id = self.shard.next_id();
        if self.shard.count() > 1 {
            return self.await_durable_everywhere(connection, id, (reply, sets_last_save), is_background);
        }
        self.shard.engine_mut().flush(now);
        let gate = self.shard.engine().applied_seq();
        let work = Work::AwaitDurable { reply, sets_last_save };
        self.durable_waits.insert((gate, id), ());
        if is_background { self.run_for_nobody(id, work) } else { self.suspend(connection, id, work) }
    }

    /// Begins a task that answers nobody: its origin is no connection.
    pub(crate) fn run_for_nobody(&mut self, id: TaskId, work: Work) -> Outcome {
        let task = Task::new(Origin::Connection(ConnectionId::MAX), 0, Version::Resp2, work);
        self.tasks.insert(id, task);
        Outcome::Ready { gate: 0 }
    }

    fn sleep(&mut self, now: Now, connection: ConnectionId, args: Args<'_>) -> Result<Outcome, Halt> {
        let seconds = std::str::from_utf8(args.at(2)).ok().and_then(|text| text.parse::<f64>().ok());
        let Some(seconds) = seconds.filter(|seconds| (0.0..=SLEEP_MAX_S).contains(seconds)) else {
            return crate::context::fail(crate::context::NOT_A_FLOAT);
        };
        let at_us = now.monotonic_us.saturating_add((seconds * 1e6) as u64);
        let id = self.shard.next_id();
        self.timers.insert((at_us, id), ());
        Ok(self.suspend(connection, id, Work::AwaitTime))
    }

    /// Tells other shards that a connection watches nothing any more.
    pub(crate) fn unwatch_elsewhere(&mut self, connection: ConnectionId) {
        if self.shard.count() == 1 {
            return;
        }
        let shards: Vec<ShardId> = match self.host.sessions.get_mut(&connection) {
            Some(session) => std::mem::take(&mut session.watching_shards).into_iter().collect(),
            // It has gone: whoever may watch for it is told, this shard too, to which a part of a
            // `WATCH` may be on its way.
            None => (0..self.shard.count()).collect(),
        };
        for to in shards {
            let message = Message::Unwatch { watcher: connection };
            self.host.outputs.push(Output::Send { to, message });
        }
    }

    fn shutdown(&mut self, args: Args<'_>) -> Result<Outcome, Halt> {
        let (mut saves, mut at_once, mut aborts) = (false, false, false);
        for word in args.from(1) {
            match word.to_ascii_uppercase().as_slice() {
                b"SAVE" => saves = true,
                b"NOSAVE" => at_once = true,
                b"NOW" | b"FORCE" => {}
                b"ABORT" => aborts = true,
                _ => return crate::context::fail(SYNTAX),
            }
        }
        if saves && at_once || aborts && args.len() > 2 {
            return crate::context::fail(SYNTAX);
        }
        if aborts {
            return crate::context::fail("ERR No shutdown in progress.");
        }
        self.host.outputs.push(Output::Shutdown { at_once });
        Ok(Outcome::Close { gate: 0 })
    }

    fn reset(&mut self, now: Now, connection: ConnectionId) {
        self.unwatch(connection);
        let Some(old) = self.host.sessions.remove(&connection) else { return };
        let shard = (self.shard.index(), self.shard.count());
        for (kind, name) in old.channels() {
            self.host.unsubscribe(shard, *kind, name, connection);
        }
        self.host.stop_monitor(connection);
        self.stop_tracking(connection, old.tracking);
        self.drop_all(old.uploads);
        let created_us = old.created_us;
        let mut session = crate::session::Session::new(connection, old.info, &self.host.users, now);
        (session.created_us, session.buffers) = (created_us, old.buffers);
        session.reply_mode = ReplyMode::On;
        session.last_command = "reset";
        self.host.sessions.insert(connection, session);
    }
}

/// Answers a command of the executor's own inside a transaction, where it waits for nothing.
pub(crate) fn answer_queued(
    now: Now,
    kind: TaskKind,
    queued: &Queued,
    version: Version,
    reply: &mut Vec<u8>,
) {
    let mut writer = ReplyWriter::new(reply, version);
    let args = queued.args.args();
    match kind {
        // What the transaction itself makes durable gates its whole reply.
        TaskKind::Wait => match check_wait(now, args) {
            Err(Halt::Error(text)) => writer.error(text.as_bytes()),
            _ => writer.integer(0),
        },
        TaskKind::WaitAof => match check_wait_aof(now, args) {
            Err(Halt::Error(text)) => writer.error(text.as_bytes()),
            _ => {
                writer.array(2);
                writer.integer(1);
                writer.integer(0);
            }
        },
        TaskKind::Unwatch => writer.ok(),
        TaskKind::BackgroundSave => writer.simple("Background saving started"),
        TaskKind::Monitor => writer.error("ERR MONITOR isn't allowed for DENY BLOCKING client"),
        _ => writer.error(format!("ERR '{}' is not available inside a transaction", queued.command.name)),
    }
}

/// Checks the arguments of `WAITAOF`.
fn check_wait_aof(now: Now, args: Args<'_>) -> Result<(), Halt> {
    match number::integer(args.at(1)) {
        None => return crate::context::fail(NOT_AN_INTEGER),
        Some(0 | 1) => {}
        Some(_) => return crate::context::fail("ERR value is out of range, value must between 0 and 1"),
    }
    match number::integer(args.at(2)) {
        Some(0..) => {}
        _ => return crate::context::fail("ERR value is out of range, must be positive"),
    }
    check_timeout(now, args.at(3))
}

/// Of milliseconds from now.
fn check_timeout(now: Now, text: &[u8]) -> Result<(), Halt> {
    let most = i64::try_from(now.wall_ms).map_or(0, |now_ms| i64::MAX - now_ms);
    match number::integer(text) {
        None => crate::context::fail("ERR timeout is not an integer or out of range"),
        Some(..0) => crate::context::fail("ERR timeout is negative"),
        Some(ms) if ms > most => crate::context::fail("ERR timeout is out of range"),
        Some(_) => Ok(()),
    }
}

/// Checks the arguments of `WAIT`.
fn check_wait(now: Now, args: Args<'_>) -> Result<(), Halt> {
    if number::integer(args.at(1)).is_none() {
        return crate::context::fail(NOT_AN_INTEGER);
    }
    check_timeout(now, args.at(2))
}
