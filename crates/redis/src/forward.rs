//! Requests of one key that another shard has: there in bundles, answered in bundles.
//!
//! Invariants:
//! 1. Of a plain `GET` or `SET` the asker keeps no task, only its session's note that it waits; connection and name go
//!    there and come back with the answer. Where it cannot be answered at once the asker is told first
//!    ([`Message::Waits`]), and keeps a task for what comes later.
//! 2. Bundles leave at the end of a step, behind the other outputs. What they hold was asked by clients who have no answer
//!    yet, so it happens at the same time as everything else that is under way; and who is answered learns nothing
//!    before those who were told of what it did.
//! 3. An answer leaves when what it has observed is durable here.

use crate::args::Args;
use crate::bundle::{ARGUMENTS_BYTES_MAX, Bundle, Bundled, Forward};
use crate::control::Output;
use crate::executor::{Executor, Outcome};
use crate::remote::Message;
use crate::session::ConnectionId;
use crate::table::{self, quick_index};
use crate::task::{Origin, Task, Work};
use tierstone_base::{Now, Position, Seq, ShardId};
use tierstone_engine::{Engine, Key, Lookup, PREFETCHED_KEYS, ValueKind};
use tierstone_store::TaskId;
use tierstone_wire::resp::{ReplyWriter, Version};

/// Whether these arguments fit into a bundle.
pub(crate) fn fits(args: Args<'_>) -> bool {
    !args.has_staged() && args.size_bytes() <= ARGUMENTS_BYTES_MAX
}

impl<E: Engine> Executor<E> {
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
        Some(Outcome::Suspended(ticket))
    }

    /// Carries out what another shard's clients ask.
    pub(crate) fn forwarded(&mut self, now: Now, from: ShardId, bundle: Box<Bundle>) {
        let (mut answers, mut late) = (self.bundles.spare(), self.bundles.spare());
        let (durable, mut gate) = (self.shard.engine().decided_seq(), 0);
        for index in 0..bundle.forwards() {
            if index % PREFETCHED_KEYS == 0 {
                self.prefetch_forwarded(&bundle, index);
            }
            let (mut forward, args) = bundle.request(index);
            self.host.timing.offered(index > 0);
            let start = answers.buffer().len();
            match self.carry_out_forward(now, from, &mut forward, args, answers.buffer()) {
                None => answers.buffer().truncate(start),
                Some(seq) if seq <= durable => answers.end_answer(&forward),
                Some(seq) => {
                    answers.move_answer(start, &forward, &mut late);
                    gate = gate.max(seq);
                }
            }
            if answers.has_long_answers() {
                let full = std::mem::replace(&mut answers, self.bundles.spare());
                self.bundles.send_answers(from, full, None);
            }
        }
        self.bundles.send_answers(from, answers, None);
        self.bundles.send_answers(from, late, Some(gate));
        self.bundles.recycle(bundle);
    }

    /// Has the processor fetch what the requests from `first` on will touch.
    fn prefetch_forwarded(&self, bundle: &Bundle, first: usize) {
        let mut wanted = [None; PREFETCHED_KEYS];
        let end = bundle.forwards().min(first + PREFETCHED_KEYS);
        for (place, index) in wanted.iter_mut().zip(first..end) {
            let (forward, args) = bundle.request(index);
            *place = self.key_of(&forward, args);
        }
        let Some(any) = wanted.iter().flatten().next().copied() else { return };
        let keys = wanted.map(|key| key.unwrap_or(any));
        self.shard.engine().prefetch(&keys[..end - first]);
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
        let gate = self.answer_plain(now, key, args.get(2), (forward.version, true), reply)?;
        match began_ns {
            None => self.host.timing.pass(),
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
        key: Key<'_>,
        value: Option<&[u8]>,
        (version, is_use): (Version, bool),
        reply: &mut Vec<u8>,
    ) -> Option<Seq> {
        let now = self.shard.clock(now);
        let Some(value) = value else {
            if self.shard.locks.blocks_reader(key.position) {
                return None;
            }
            let mut writer = ReplyWriter::new(reply, version);
            let seq = match self.shard.engine_mut().look(now, key, is_use) {
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
        if self.shard.locks.blocks_writer(key.position)
            || value.len() as u64 > u64::from(self.shard.value_ids().chunk_bytes())
        {
            return None;
        }
        let applied = self.shard.put(now, key, value, 0).ok()?;
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
        }
    }

    /// Another shard has answered.
    pub(crate) fn answered(&mut self, now: Now, bundle: Box<Bundle>) {
        let mut resumed = Vec::new();
        let mut has_replies = false;
        for (answer, bytes) in bundle.answers() {
            let Some(connection) = answer.connection else {
                self.finish(now, answer.ticket, bytes, 0, false);
                continue;
            };
            has_replies = true;
            if let Some(session) = self.host.sessions.get_mut(&connection) {
                session.resume(answer.ticket);
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
    pub fn recycle(&mut self, bundle: Box<Bundle>) {
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
