//! Where a request is carried out; and requests whose keys one other shard has: there in bundles, answered in bundles.
//!
//! Invariants:
//! 1. Of a plain `GET` or `SET` the asker keeps no task, only its session's note that it waits; connection and name go
//!    there and come back with the answer. Where it cannot be answered at once the asker is told first
//!    ([`Message::Waits`]), and keeps a task for what comes later.
//! 2. Bundles leave at the end of a step, behind the other outputs. What they hold was asked by clients who have no answer
//!    yet, so it happens at the same time as everything else that is under way; and who is answered learns nothing
//!    before those who were told of what it did.
//! 3. An answer leaves when what it has observed is durable here.

use crate::args::{Args, OwnedArgs};
use crate::bundle::{ARGUMENTS_BYTES_MAX, ARGUMENTS_MAX, Bundle, Bundled, Cursor, Forward};
use crate::control::Output;
use crate::coordination::Coordination;
use crate::executor::{Executor, Outcome};
use crate::remote::{Ending, Message};
use crate::session::{ConnectionId, Queued};
use crate::table::{self, Action, Command, flag, quick_index};
use crate::task::{Origin, Task, Work};
use std::collections::BTreeSet;
use tierstone_base::{KeyspaceId, Now, Position, Seq, ShardId};
use tierstone_engine::{Engine, Key, Lookup, PREFETCHED_KEYS, ValueKind};
use tierstone_store::TaskId;
use tierstone_wire::resp::{ReplyWriter, Version};

/// Whether these arguments fit into a bundle.
pub(crate) fn fits(args: Args<'_>) -> bool {
    args.len() <= ARGUMENTS_MAX && !args.has_staged() && args.size_bytes() <= ARGUMENTS_BYTES_MAX
}

/// Where a command is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// By this shard.
    Here,
    /// By another.
    There(ShardId),
    /// By several together.
    Across,
    /// By all, each for itself.
    Everywhere,
}

impl<E: Engine> Executor<E> {
    /// Where a data command is carried out. Its positions are collected.
    pub(crate) fn route(&self, command: &Command) -> Route {
        if self.shard.count() == 1 {
            return Route::Here;
        }
        if self.positions.is_empty() {
            let is_count = matches!(command.action, Action::Data(_)) && command.has(flag::READONLY);
            return if is_count { Route::Everywhere } else { Route::Here };
        }
        self.route_of(self.positions.iter().copied())
    }

    fn route_of(&self, mut positions: impl Iterator<Item = Position>) -> Route {
        let count = self.shard.count();
        let Some(first) = positions.next().map(|position| position.shard(count)) else {
            return Route::Here;
        };
        if !positions.all(|position| position.shard(count) == first) {
            Route::Across
        } else if first == self.shard.index() {
            Route::Here
        } else {
            Route::There(first)
        }
    }

    /// Where a transaction is carried out. Its positions are collected.
    pub(crate) fn route_transaction(&self, connection: ConnectionId) -> Route {
        let count = self.shard.count();
        let watching = self.host.sessions.get(&connection).map(|session| &session.watching_shards);
        let mut shards: BTreeSet<ShardId> =
            self.positions.iter().map(|position| position.shard(count)).collect();
        shards.extend(watching.into_iter().flatten());
        let is_here = shards.iter().all(|shard| *shard == self.shard.index());
        if is_here { Route::Here } else { Route::Across }
    }

    /// Starts a data command of which other shards have a part. Its positions are collected.
    pub(crate) fn start_elsewhere(
        &mut self,
        now: Now,
        origin: Origin,
        route: Route,
        command: &'static Command,
        args: Args<'_>,
        (db, version): (u32, Version),
    ) -> TaskId {
        let (id, tracker) = (self.shard.next_id(), self.tracker.take());
        match route {
            Route::There(to) => {
                let task = self.host.task(origin, db, version, Work::Forwarded);
                self.tasks.insert(id, task);
                let position = self.positions.first().copied().unwrap_or(Position(0));
                if crate::forward::fits(args) {
                    let ticket = id;
                    let forward =
                        Forward { ticket, connection: None, command, db, version, tracker, position };
                    self.bundles.forward(to, forward, args);
                } else {
                    let args = args.to_owned();
                    let message = Message::Run { ticket: id, command, args, db, version, tracker };
                    self.host.outputs.push(Output::Send { to, message });
                }
            }
            Route::Everywhere => {
                let fan_out = self.fan_out(Ending::Sum);
                let task = self.host.task(origin, db, version, fan_out);
                self.tasks.insert(id, task);
                let message = |_| Message::Count { ticket: id, db };
                self.send_everywhere(message);
            }
            Route::Across | Route::Here => {
                let queued = Queued { command, index: 0, args: args.to_owned(), refused: None };
                let work = Coordination::command(queued);
                let task = self.host.task(origin, db, version, Work::Coordinated(Box::new(work)));
                self.tasks.insert(id, task.with_tracker(tracker));
                self.coordinate(now, id);
            }
        }
        id
    }

    /// Carries a command out that came by a message of its own.
    pub(crate) fn run_alone(
        &mut self,
        now: Now,
        (from, ticket): (ShardId, TaskId),
        command: &'static Command,
        args: &OwnedArgs,
        setting: (u32, Version),
    ) {
        self.host.timing.offered(false);
        let mut reply = Vec::new();
        if let Some(gate) = self.run_for(now, (from, ticket), command, args.args(), setting, &mut reply) {
            self.answer_shard(from, ticket, reply, gate);
        }
    }

    /// Sends a plain `GET` or `SET` of `connection` to the shard that has its key; `None`: it goes the long way.
    #[inline]
    pub(crate) fn forward_plain(
        &mut self,
        connection: ConnectionId,
        position: Position,
        is_get: bool,
        args: Args<'_>,
    ) -> Option<Outcome> {
        let session = self.host.sessions.get_mut(&connection)?;
        if session.is_untouching || self.host.account.is_full() || !fits(args) {
            return None;
        }
        let (ticket, index) = (self.shard.next_id(), quick_index(is_get));
        let (db, version) = (session.db, session.version);
        let command = table::command(index);
        session.last_command = command.name;
        session.suspend(ticket, &[position]);
        let connection = Some(connection);
        let forward = Forward { ticket, connection, command, db, version, tracker: None, position };
        self.bundles.forward(position.shard(self.shard.count()), forward, args);
        self.host.counters.call(index);
        self.host.counters.suspended += 1;
        // What waits for a device is no matter of a moment.
        let is_soon = is_get || self.shard.is_relaxed();
        Some(if is_soon { Outcome::Forwarded(ticket) } else { Outcome::Suspended(ticket) })
    }

    /// Carries out what another shard's clients ask.
    pub(crate) fn forwarded(&mut self, now: Now, from: ShardId, bundle: Bundle) {
        let (mut answers, mut late) = (self.bundles.spare(), self.bundles.spare());
        let (durable, mut gate) = (self.shard.engine().decided_seq(), 0);
        let (mut cursor, mut count) = (Cursor::default(), 0);
        loop {
            if count % PREFETCHED_KEYS == 0 {
                self.prefetch_forwarded(&bundle, cursor);
            }
            let Some((mut forward, args)) = bundle.request(&mut cursor) else { break };
            self.host.timing.offered(count > 0);
            count += 1;
            let start = answers.begin_answer();
            match self.carry_out_forward(now, from, &mut forward, args, answers.buffer()) {
                None => answers.drop_answer(start),
                Some(seq) => {
                    answers.end_answer(start, &forward);
                    if seq > durable {
                        answers.move_answer(start, &mut late);
                        gate = gate.max(seq);
                    }
                }
            }
            if answers.has_long_answers() {
                let full = std::mem::replace(&mut answers, self.bundles.spare());
                self.bundles.send_answers(from, full, None);
            }
        }
        if count > 1 {
            self.host.timing.end_pipeline(now);
        }
        self.bundles.send_answers(from, answers, None);
        self.bundles.send_answers(from, late, Some(gate));
        self.bundles.recycle(bundle);
    }

    /// Has the processor fetch what the requests from `cursor` on will touch.
    fn prefetch_forwarded(&mut self, bundle: &Bundle, mut cursor: Cursor) {
        let mut wanted = [(KeyspaceId(0), Position(0)); PREFETCHED_KEYS];
        let mut count = 0;
        while count < PREFETCHED_KEYS
            && let Some((forward, args)) = bundle.request(&mut cursor)
        {
            if let Some(key) = self.key_of(&forward, args) {
                wanted[count] = (key.keyspace, key.position);
                count += 1;
            }
        }
        self.shard.engine_mut().prefetch(&wanted[..count]);
    }

    /// The key of a plain `GET` or `SET`.
    fn key_of<'a>(&self, forward: &Forward, args: Bundled<'a>) -> Option<Key<'a>> {
        let keyspace = self.shard.map().keyspace(forward.db)?;
        Some(Key { keyspace, position: forward.position, bytes: args.get(1)? })
    }

    /// Gives the sequence that must be durable before the answer may leave; `None`: it comes later.
    fn carry_out_forward(
        &mut self,
        now: Now,
        from: ShardId,
        forward: &mut Forward,
        args: Bundled<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<Seq> {
        let Forward { ticket, connection, command, db, version, tracker, .. } = *forward;
        if let Some(connection) = connection {
            if let Some(gate) = self.quick_forward(now, (from, connection), forward, args, reply) {
                return Some(gate);
            }
            forward.connection = None;
            let message = Message::Waits { ticket, connection, db, version };
            self.host.outputs.push(Output::Send { to: from, message });
        }
        self.tracker = tracker;
        self.run_for(now, (from, ticket), command, Args::Bundled(args), (db, version), reply)
    }

    /// A plain `GET` or `SET`, if it can be answered at once.
    fn quick_forward(
        &mut self,
        now: Now,
        asker: (ShardId, ConnectionId),
        forward: &Forward,
        args: Bundled<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<Seq> {
        // As for requests of this shard's clients ([`Executor::request`]).
        if self.host.events.is_on() || self.shard.tracking.has_prefixes() {
            return None;
        }
        let began_ns = self.host.timing.begin_quick(now);
        let key = self.key_of(forward, args)?;
        let (place, by) = ((key.keyspace, key.position), (forward.version, true));
        let gate = self.answer_plain(now, place, key.bytes, args.get(2), by, reply)?;
        match began_ns {
            None => self.host.timing.pass(args.len() == 2),
            Some(began_ns) => {
                self.note_forward(now, asker, (forward.command, began_ns), Args::Bundled(args));
            }
        }
        Some(gate)
    }

    /// A plain `GET` of a key of this shard, or a `SET` of `value`; `None` when something stands in the way.
    #[inline]
    pub(crate) fn answer_plain(
        &mut self,
        now: Now,
        (keyspace, position): (KeyspaceId, Position),
        bytes: &[u8],
        value: Option<&[u8]>,
        (version, is_use): (Version, bool),
        reply: &mut Vec<u8>,
    ) -> Option<Seq> {
        let now = self.shard.clock(now);
        // Put together where it is used: a key that was just written to memory is slow to be copied.
        let key = || Key { keyspace, position, bytes };
        let Some(value) = value else {
            if self.shard.locks.blocks_reader(position) {
                return None;
            }
            let mut writer = ReplyWriter::new(reply, version);
            let seq = match self.shard.engine_mut().look(now, key(), is_use) {
                Lookup::Found(record) if record.meta.kind == ValueKind::STRING => {
                    writer.bulk(record.value);
                    self.host.counters.hits += 1;
                    Some(record.meta.seq)
                }
                Lookup::Missing => {
                    writer.null();
                    self.host.counters.misses += 1;
                    None
                }
                _ => return None,
            };
            // That the key has expired may have been noted just now.
            let seq = seq.unwrap_or_else(|| self.shard.engine().applied_seq());
            return Some(self.shard.gate(seq));
        };
        if self.shard.locks.blocks_writer(position)
            || value.len() as u64 > u64::from(self.shard.value_ids().chunk_bytes())
        {
            return None;
        }
        let applied = self.shard.put(now, key(), value, 0).ok()?;
        ReplyWriter::new(reply, version).ok();
        Some(applied.gate)
    }

    /// A forwarded request of `connection` cannot be answered at once: what comes later finds a task.
    pub(crate) fn waits_elsewhere(
        &mut self,
        ticket: TaskId,
        connection: ConnectionId,
        (db, version): (u32, Version),
    ) {
        if self.host.sessions.contains_key(&connection) {
            let origin = Origin::Connection(connection);
            self.tasks.insert(ticket, Task::new(origin, db, version, Work::Forwarded));
            self.host.outputs.push(Output::Waits { connection, task: ticket });
        }
    }

    /// Another shard has answered.
    pub(crate) fn answered(&mut self, now: Now, bundle: Bundle) {
        let mut resumed = Vec::new();
        let mut has_replies = false;
        for (ticket, connection, bytes) in bundle.answers() {
            let Some(connection) = connection else {
                self.finish(now, ticket, bytes, 0, false);
                continue;
            };
            has_replies = true;
            if let Some(session) = self.host.sessions.get_mut(&connection) {
                session.resume(ticket);
                self.host.counters.note_error(bytes);
                if std::mem::take(&mut session.is_blocked) {
                    resumed.push(connection);
                }
            }
        }
        if has_replies {
            self.host.outputs.push(Output::Replies(bundle));
        } else {
            self.bundles.recycle(bundle);
        }
        let resumed = resumed.into_iter().map(|connection| Output::Resume { connection });
        self.host.outputs.extend(resumed);
    }

    /// Takes back what [`Output::Replies`] gave, to be used again.
    pub fn recycle(&mut self, bundle: Bundle) {
        self.bundles.recycle(bundle);
    }

    /// Appends the bundles that are to be sent.
    pub(crate) fn send_bundles(&mut self, outputs: &mut Vec<Output>) {
        outputs.extend(self.bundles.take().map(|(to, bundle)| {
            let message =
                if bundle.forwards() > 0 { Message::Forwards(bundle) } else { Message::Answers(bundle) };
            Output::Send { to, message }
        }));
    }
}
