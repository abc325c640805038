//! The way of a request from its bytes to what carries it out.

use crate::account::Held;
use crate::acl::{Denied, change_of_settings};
use crate::args::{Args, OwnedArgs};
use crate::commandstats::place_of;
use crate::control::{ControlHandler, Flow, Output};
use crate::executor::{Executor, Outcome};
use crate::forward::Route;
use crate::resolve::{named, resolve};
use crate::run::{Ran, run_control};
use crate::session::{ConnectionId, Queued, ReplyMode, Session, Transaction};
use crate::table::{self, Action, Command, Found, TaskKind, flag, quick_index};
use crate::task::{Origin, Work};
use tierstone_base::Now;
use tierstone_engine::Engine;
use tierstone_wire::resp::{ReplyWriter, Version};

/// The longest key, in bytes.
pub(crate) const KEY_SIZE_MAX_BYTES: usize = 65_535;
const KEY_TOO_LONG: &str = "ERR key is longer than 65535 bytes";

/// Whether a command's answers are messages of channels, which `CLIENT REPLY` does not keep back.
fn is_answered_by_push(command: &Command) -> bool {
    command.group == "pubsub" && command.name.ends_with("subscribe")
}

/// Whether a refusal inside a transaction leaves it whole, as in Redis.
fn is_harmless(text: &str) -> bool {
    text.starts_with("ERR MULTI") || text.starts_with("ERR WATCH")
}

/// Whether a request is a plain `GET`; `None` when it is no plain `SET` either.
#[inline]
fn quick_kind(args: Args<'_>) -> Option<bool> {
    let name = args.at(0);
    match args.len() {
        2 if name.eq_ignore_ascii_case(b"get") => Some(true),
        3 if name.eq_ignore_ascii_case(b"set") => Some(false),
        _ => None,
    }
}

/// What a plain request needs to know of its connection.
#[derive(Clone, Copy)]
struct By {
    connection: ConnectionId,
    db: u32,
    version: Version,
    is_use: bool,
    has_suspended: bool,
}

/// A refusal: its text.
type Refusal = std::borrow::Cow<'static, str>;

impl<E: Engine> Executor<E> {
    /// Carries out one request of a connection: its reply is appended to `reply`, unless it comes later.
    ///
    /// Cost: plain `GET` and `SET` of what is in memory allocate nothing.
    pub fn request(
        &mut self,
        now: Now,
        connection: ConnectionId,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let Some(session) = self.host.sessions.get_mut(&connection) else {
            return Outcome::Close { gate: 0 };
        };
        session.used_us = now.monotonic_us;
        let is_plain = session.is_plain() && !self.host.monitors.is_any() && !self.host.events.is_on();
        // Those who follow prefixes are told of expiries, which only the long way notes.
        let is_plain = is_plain && !self.shard.tracking.has_prefixes();
        let is_quick = is_plain && self.host.pause.is_none() && !args.has_staged() && !self.backups.is_frozen;
        if is_quick && let Some(is_get) = quick_kind(args) {
            session.last_command = if is_get { "get" } else { "set" };
            let by = By {
                connection,
                db: session.db,
                version: session.version,
                is_use: !session.is_untouching,
                has_suspended: session.has_suspended(),
            };
            let began_ns = self.host.timing.begin_quick(now);
            if let Some(outcome) = self.quick(now, by, is_get, args, reply) {
                match outcome {
                    // Timed by the shard that carries it out.
                    Outcome::Suspended(_) | Outcome::Forwarded(_) => {
                        self.host.timing.pass_on(is_get);
                    }
                    _ => self.note_quick(now, connection, began_ns, args),
                }
                return outcome;
            }
        } else {
            self.host.timing.forget();
        }
        self.tell_gone(now);
        let outcome = self.dispatch(now, connection, args, reply);
        if let Args::Owned(owned) = args
            && outcome != Outcome::Blocked
        {
            self.own_uploads(connection, owned);
        }
        self.drop_leftovers(connection);
        outcome
    }

    /// A plain `GET` or `SET`; `None` when something stands in the way.
    #[inline]
    fn quick(
        &mut self,
        now: Now,
        by: By,
        is_get: bool,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<Outcome> {
        let bytes = args.at(1);
        let keyspace = self.shard.map().keyspace(by.db)?;
        let position = args.position().unwrap_or_else(|| self.shard.position(bytes));
        debug_assert_eq!(position, self.shard.position(bytes), "the position is another key's");
        let conflicts = |session: &Session| session.conflicts(&[position]);
        if bytes.len() > KEY_SIZE_MAX_BYTES
            || by.has_suspended && self.host.sessions.get(&by.connection).is_none_or(conflicts)
        {
            return None;
        }
        if !self.shard.owns(position) {
            return self.forward_plain(by.connection, position, is_get, args);
        }
        let (value, by) = ((!is_get).then(|| args.at(2)), (by.version, by.is_use));
        let gate = self.answer_plain(now, (keyspace, position), bytes, value, by, reply)?;
        self.host.counters.call(quick_index(is_get));
        Some(Outcome::Ready { gate })
    }

    /// Any request.
    fn dispatch(
        &mut self,
        now: Now,
        connection: ConnectionId,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let start = reply.len();
        let Some(session) = self.host.sessions.get(&connection) else {
            return Outcome::Close { gate: 0 };
        };
        if session.is_closing {
            return Outcome::Close { gate: 0 };
        }
        let (version, mode) = (session.version, session.reply_mode);
        let mut of = None;
        let outcome = match self.admit(now, session, args) {
            Admitted::Wait => return self.block(connection),
            Admitted::CrossProtocol => return Outcome::Close { gate: 0 },
            Admitted::Denied(_) if session.has_suspended() => return self.block(connection),
            Admitted::Denied(denied) => {
                self.host.counters.of_commands.reject(args);
                self.deny(now, connection, *denied, version, reply)
            }
            Admitted::Refused(text) => {
                // A refused command of a known name waits for its turn like any other.
                if session.has_suspended() {
                    return self.block(connection);
                }
                self.count_refused(args, &text);
                if args.at(0).eq_ignore_ascii_case(b"exec") {
                    self.refuse_exec(connection, &text, version, reply);
                } else {
                    self.refuse(connection, &text, version, reply);
                }
                Outcome::Ready { gate: 0 }
            }
            Admitted::Run(found, command) => {
                of = Some(command);
                if let Some(session) = self.host.sessions.get_mut(&connection) {
                    session.last_command = command.name;
                    session.end_skip(mode);
                    session.is_muted = mode != ReplyMode::On && !is_answered_by_push(command);
                }
                let outcome = self.carry_out(now, connection, found, command, args, reply);
                if let Some(session) = self.host.sessions.get_mut(&connection) {
                    session.is_muted = false;
                }
                outcome
            }
        };
        // A refused request has had its reply skipped, too.
        if of.is_none()
            && let Some(session) = self.host.sessions.get_mut(&connection)
        {
            session.end_skip(mode);
        }
        self.host.counters.note_error(&reply[start..]);
        if !of.is_some_and(is_answered_by_push) {
            self.mute(connection, mode, start, reply);
        }
        if self.host.trackers > 0
            && outcome != Outcome::Blocked
            && let Some(session) = self.host.sessions.get_mut(&connection)
        {
            session.end_caching(of);
        }
        outcome
    }

    /// Takes the reply back where the connection does not want it. What is answered later knows it already
    /// ([`crate::control::Host::task`]).
    fn mute(&self, connection: ConnectionId, mode: ReplyMode, start: usize, reply: &mut Vec<u8>) {
        let is_on_now = |session: &Session| session.reply_mode == ReplyMode::On;
        let is_muted = match mode {
            ReplyMode::On => false,
            ReplyMode::SkipNext => true,
            // `CLIENT REPLY ON` is itself answered.
            ReplyMode::Off => !self.host.sessions.get(&connection).is_some_and(is_on_now),
        };
        if is_muted {
            reply.truncate(start);
        }
    }

    fn block(&mut self, connection: ConnectionId) -> Outcome {
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.is_blocked = true;
        }
        Outcome::Blocked
    }

    /// Whether a request may run, in the order in which Redis looks at it.
    fn admit(&self, now: Now, session: &Session, args: Args<'_>) -> Admitted {
        let (found, command) = match resolve(args) {
            Ok(found) => found,
            Err(refusal) => return refusal,
        };
        if !session.may_do_all
            && let Some(refusal) = self.host.check_user(session, found.index, command, args)
        {
            return refusal;
        }
        if session.transaction.is_some()
            && let Some(text) = refused_inside(command).or_else(|| refused_setting(command, args))
        {
            return Admitted::Refused(text.into());
        }
        if session.is_listening_only() && !may_listen(command) {
            let name = command.name;
            let text = format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            );
            return Admitted::Refused(text.into());
        }
        if command.keys.indexes(args).any(|index| args.at(index).len() > KEY_SIZE_MAX_BYTES) {
            return Admitted::Refused(KEY_TOO_LONG.into());
        }
        let is_data = matches!(command.action, Action::Data(_)) && session.transaction.is_none();
        // Where memory is short, a connection has one request that waits.
        let has_enough = || {
            let all = self.tasks.len();
            self.expected.are_enough(session.suspended(), all, self.host.connection_bytes)
        };
        if session.has_suspended() && (!is_data || self.host.account.is_full() || has_enough()) {
            return Admitted::Wait;
        }
        if let Some(text) = crate::monitor::refused_to(session, command) {
            return Admitted::Refused(text.into());
        }
        if self.backups.is_frozen {
            return Admitted::Wait;
        }
        if let Some(pause) = self.host.pause
            && pause.until_us > now.monotonic_us
            && !command.name.starts_with("client|")
            && (!pause.only_writes || is_held_with_writes(session, command))
        {
            return Admitted::Wait;
        }
        Admitted::Run(found, command)
    }

    /// Counts a request that is refused. In Redis those two are carried out and fail that leave a transaction whole.
    fn count_refused(&mut self, args: Args<'_>, text: &str) {
        match named(args).filter(|_| is_harmless(text)) {
            Some(command) => {
                self.host.counters.call(place_of(command));
                self.host.counters.of_commands.note_failed(command, b"-");
            }
            None => self.host.counters.of_commands.reject(args),
        }
    }

    /// Answers with an error; inside a transaction, breaks it.
    pub(crate) fn refuse(
        &mut self,
        connection: ConnectionId,
        text: &str,
        version: Version,
        reply: &mut Vec<u8>,
    ) {
        ReplyWriter::new(reply, version).error(text);
        if let Some(session) = self.host.sessions.get_mut(&connection)
            && let Some(transaction) = &mut session.transaction
            && !is_harmless(text)
        {
            transaction.is_broken = true;
        }
    }

    fn carry_out(
        &mut self,
        now: Now,
        connection: ConnectionId,
        found: Found,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let is_immediate = matches!(
            command.action,
            Action::Task(
                TaskKind::Exec
                    | TaskKind::Discard
                    | TaskKind::Multi
                    | TaskKind::Watch
                    | TaskKind::Quit
                    | TaskKind::Reset
            )
        );
        if !is_immediate && let Some(outcome) = self.queue(connection, found, command, args, reply) {
            return outcome;
        }
        let (place, start) = (place_of(command), reply.len());
        let began_ns = self.host.timing.begin_request(now, command, args);
        let outcome = match command.action {
            Action::Data(_) => self.data(now, connection, command, args, reply),
            Action::Control(handler) => {
                let version =
                    self.host.sessions.get(&connection).map_or(Version::Resp2, |session| session.version);
                match self.ask_everywhere(now, connection, command, args, version) {
                    Some(outcome) => outcome,
                    None => self.control(now, connection, handler, args, reply),
                }
            }
            Action::Task(kind) => self.task_command(now, connection, kind, args, reply),
            Action::Container => unreachable!("a container is refused"),
        };
        if outcome != Outcome::Blocked {
            self.host.counters.call(place);
            self.host.counters.of_commands.note_failed(command, &reply[start..]);
        }
        self.note_carried_out(now, connection, (command, began_ns), args, outcome);
        outcome
    }

    /// A plain `GET` or `SET` was answered at once.
    #[inline]
    fn note_quick(&mut self, now: Now, connection: ConnectionId, began_ns: Option<u64>, args: Args<'_>) {
        match began_ns {
            None => self.host.timing.pass(args.len() == 2),
            Some(_) => {
                let command = table::command(quick_index(args.len() == 2));
                self.host.note_request(now, connection, (command, began_ns), args);
            }
        }
    }

    /// Carries out the settings that were changed since there were `outputs` outputs. The other shards
    /// learn of them from this one, in order with everything else that it sends them.
    pub(crate) fn follow_settings(&mut self, now: Now, outputs: usize) {
        let changed: Vec<String> = self.host.outputs[outputs..]
            .iter()
            .filter_map(|output| match output {
                Output::Setting { name, .. } => Some(name.clone()),
                _ => None,
            })
            .collect();
        changed.iter().for_each(|name| self.follow_setting(now, name));
    }

    /// Carries a control command of this shard's own out. What leads away from `relaxed` is answered when
    /// nothing can be lost any more that was acknowledged before, on any shard.
    fn control(
        &mut self,
        now: Now,
        connection: ConnectionId,
        handler: ControlHandler,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let facts = self.engine_facts();
        let (outputs, start) = (self.host.outputs.len(), reply.len());
        let was_relaxed = self.shard.is_relaxed();
        let flow = run_control(&mut self.host, &facts, (now, connection), handler, args, reply);
        self.follow_settings(now, outputs);
        let change = change_of_settings(&self.host.outputs[outputs..]);
        if was_relaxed && !self.shard.is_relaxed() {
            change.into_iter().for_each(|change| self.change_users_unasked(change));
            let answer = reply.split_off(start);
            return self.await_durable(now, connection, answer, false, false);
        }
        if let Some(change) = change {
            let answer = reply.split_off(start);
            return self.change_users(connection, change, answer);
        }
        match flow {
            Flow::Done => Outcome::Ready { gate: 0 },
            Flow::Close => Outcome::Close { gate: 0 },
        }
    }

    /// Queues a command of a transaction, if one is being queued.
    fn queue(
        &mut self,
        connection: ConnectionId,
        found: Found,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<Outcome> {
        let session = self.host.sessions.get_mut(&connection)?;
        let version = session.version;
        let Transaction { commands, is_broken, size_bytes, held } = session.transaction.as_mut()?;
        let args = args.to_owned();
        let added_bytes = args.size_bytes() + size_of::<Queued>();
        let has_room = self.host.account.has_room(*size_bytes, added_bytes);
        *size_bytes += added_bytes;
        held.add(&self.host.account, added_bytes);
        if *size_bytes > self.transaction_size_max_bytes || !has_room {
            *is_broken = true;
            commands.clear();
            *held = Held::default();
            ReplyWriter::new(reply, version).error("ERR the transaction takes too much memory");
            return Some(Outcome::Ready { gate: 0 });
        }
        commands.push(Queued { command, index: found.index, args, refused: None });
        ReplyWriter::new(reply, version).simple("QUEUED");
        Some(Outcome::Ready { gate: 0 })
    }

    /// Carries out a data command of a connection.
    fn data(
        &mut self,
        now: Now,
        connection: ConnectionId,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        self.collect_positions(command, args);
        self.tracker = self.tracker_of(connection);
        let Some(session) = self.host.sessions.get(&connection) else {
            return Outcome::Close { gate: 0 };
        };
        if session.conflicts(&self.positions) || command.is_long() && session.has_suspended() {
            return self.block(connection);
        }
        let (db, version) = (session.db, session.version);
        let task = match self.route(command) {
            Route::Here => {
                match self.start(now, Origin::Connection(connection), command, args, (db, version), reply) {
                    Started::Done(gate) => return Outcome::Ready { gate },
                    Started::Suspended(task) => task,
                }
            }
            route => {
                let origin = Origin::Connection(connection);
                self.start_elsewhere(now, origin, route, command, args, (db, version))
            }
        };
        // It may have come to its end at once, with its reply among the outputs.
        if self.tasks.contains_key(&task)
            && let Some(session) = self.host.sessions.get_mut(&connection)
        {
            session.suspend(task, &self.positions);
        }
        self.host.counters.suspended += 1;
        Outcome::Suspended(task)
    }

    /// Runs a data command whose keys this shard has, or lets it wait. Its positions are collected.
    pub(crate) fn start(
        &mut self,
        now: Now,
        origin: Origin,
        command: &'static Command,
        args: Args<'_>,
        (db, version): (u32, Version),
        reply: &mut Vec<u8>,
    ) -> Started {
        let (writes, start, tracker) = (command.has(flag::WRITE), reply.len(), self.tracker);
        let is_locked = !self.shard.locks.is_empty()
            && self.positions.iter().any(|position| match writes {
                true => self.shard.locks.blocks_writer(*position),
                false => self.shard.locks.blocks_reader(*position),
            });
        let ran = match is_locked {
            true => None,
            false => match self.run_command(now, command, args, (db, version), &[], reply) {
                Ran::Done(gate) if !self.parts.is_empty() => {
                    let id = self.shard.next_id();
                    let work = Work::Command { command, args: OwnedArgs::default() };
                    let bytes = reply.split_off(start);
                    let task = self.host.task(origin, db, version, work);
                    self.begin_stream(now, id, task, bytes, gate);
                    return Started::Suspended(id);
                }
                Ran::Done(gate) => return Started::Done(gate),
                ran => Some(ran),
            },
        };
        let id = self.shard.next_id();
        let work = Work::Command { command, args: args.to_owned() };
        let mut task = self.host.task(origin, db, version, work).with_tracker(tracker);
        task.held = self.host.account.hold(args.size_bytes());
        if writes || is_locked {
            task.positions.clone_from(&self.positions);
        }
        match ran {
            None => self.wait_for_locks(now, id, task),
            Some(Ran::Suspended) if self.plan.wanted.is_some() => self.coordinate_command(now, id, task),
            Some(ran) => self.park(now, id, task, ran),
        }
        Started::Suspended(id)
    }
}

/// What became of a data command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Started {
    /// Its reply is written.
    Done(u64),
    /// It waits.
    Suspended(u64),
}

/// Whether a request may run.
pub(crate) enum Admitted {
    Run(Found, &'static Command),
    Wait,
    Refused(Refusal),
    /// Its user may not make it.
    Denied(Box<Denied>),
    /// The bytes are a request of HTTP: a browser was led here. Nothing that follows may be carried out.
    CrossProtocol,
}

/// Why a command may not be part of a transaction, if so.
pub(crate) fn refused_inside(command: &Command) -> Option<&'static str> {
    match command.action {
        Action::Task(TaskKind::Multi) => Some("ERR MULTI calls can not be nested"),
        Action::Task(TaskKind::Watch) => Some("ERR WATCH inside MULTI is not allowed"),
        _ if command.has(flag::NO_MULTI) => Some("ERR Command not allowed inside a transaction"),
        _ => None,
    }
}

/// Why a setting may not be changed in a transaction, if so: what leads away from `relaxed` is answered when all is
/// durable that was answered before, and the answer of a transaction does not wait for that.
fn refused_setting(command: &Command, args: Args<'_>) -> Option<&'static str> {
    let is_named = || (2..args.len()).step_by(2).any(|at| args.at(at).eq_ignore_ascii_case(b"durability"));
    (command.name == "config|set" && is_named())
        .then_some("ERR CONFIG SET durability is not allowed inside a transaction")
}

fn is_exec(command: &Command) -> bool {
    matches!(command.action, Action::Task(TaskKind::Exec))
}

/// Whether it, or what it carries out of a transaction, would go to replicas in Redis.
fn is_held_with_writes(session: &Session, command: &Command) -> bool {
    let is = |command: &Command| command.has(flag::WRITE) || matches!(command.name, "publish" | "spublish");
    let transaction = session.transaction.as_ref().filter(|_| is_exec(command));
    is(command) || transaction.is_some_and(|queue| queue.commands.iter().any(|queued| is(queued.command)))
}

/// Whether a subscriber of protocol 2 may send it.
fn may_listen(command: &Command) -> bool {
    matches!(
        command.name,
        "subscribe"
            | "unsubscribe"
            | "psubscribe"
            | "punsubscribe"
            | "ssubscribe"
            | "sunsubscribe"
            | "ping"
            | "quit"
            | "reset"
    )
}
