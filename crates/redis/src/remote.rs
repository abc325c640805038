//! What executors of several shards do for each other: run a command whose keys another shard has,
//! ask every shard, pass channel messages on. Batches over several shards are in [`crate::coordination`].
//!
//! Invariants:
//! 1. Messages between two executors arrive in order; nothing else is assumed about them.
//! 2. An answer to another shard is sent when what it has observed is durable here, so that the
//!    connection's own shard need not know this one's sequences.

use crate::acl::UsersMessage;
use crate::args::{Args, OwnedArgs};
use crate::backup::BackupMessage;
use crate::bundle::Bundle;
use crate::commands::tracking::Asked;
use crate::control::Output;
use crate::coordination::Coordination;
use crate::everywhere::{self, Merge};
use crate::executor::{Executor, Outcome};
use crate::making::PieceMessage;
use crate::operators::OperatorMessage;
use crate::session::{ChannelKind, ConnectionId, Queued};
use crate::settings::Stamp;
use crate::table::Command;
use crate::task::{Origin, Task, Work};
use crate::tracking::{Tracker, TrackingMessage};
use crate::upload::{Ticket, UploadMessage};
use crate::verify::Verified;
use crate::walk::{Walk, WalkKind, write_walk};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::{Error, Now, Position, Seq, ShardId};
use tierstone_engine::{Engine, Verification};
use tierstone_store::message::ShardMessage;
use tierstone_store::{TaskId, ValueId};
use tierstone_wire::resp::{ReplyWriter, Version};

/// The shard that keeps what there is once in a node: users, slow commands, spikes of latency.
pub(crate) const HOME: ShardId = 0;

/// One message between two executors.
#[derive(Clone, Debug)]
pub enum Message {
    /// A part of a batch over several shards.
    Batch(ShardMessage),
    /// Carry this data command out.
    Run {
        /// The asker's task.
        ticket: TaskId,
        /// The command.
        command: &'static Command,
        /// Its arguments.
        args: OwnedArgs,
        /// The database.
        db: u32,
        /// The protocol of the reply.
        version: Version,
        /// For whom, where the client keeps copies.
        tracker: Option<Tracker>,
    },
    /// Carry these requests out: what [`Message::Run`] asks, many at a time.
    Forwards(Bundle),
    /// The replies to those that were answered at once.
    Answers(Bundle),
    /// A plain request of `Forwards` is answered later, by `Ran` or in parts.
    Waits {
        /// The asker's name for it.
        ticket: TaskId,
        /// Whose it is.
        connection: ConnectionId,
        /// The database.
        db: u32,
        /// The protocol of the reply.
        version: Version,
    },
    /// The reply to a `Run`, or to a `Walk` of one page.
    Ran {
        /// The asker's task.
        ticket: TaskId,
        /// The encoded reply.
        reply: Vec<u8>,
    },
    /// Walk through your keys.
    Walk {
        /// The asker's task.
        ticket: TaskId,
        /// The database.
        db: u32,
        /// The protocol of the reply.
        version: Version,
        /// What to look for.
        walk: Box<Walk>,
    },
    /// The keys that a walk has found.
    Walked {
        /// The asker's task.
        ticket: TaskId,
        /// The keys.
        found: Vec<Vec<u8>>,
    },
    /// How many keys has this database?
    Count {
        /// The asker's task.
        ticket: TaskId,
        /// The database.
        db: u32,
    },
    /// Tell when everything applied is durable.
    AwaitDurable {
        /// The asker's task.
        ticket: TaskId,
    },
    /// Everything that any shard had applied before is durable.
    Saved {
        /// When that was known, in seconds since 1970.
        at_s: u64,
    },
    /// A client of the sender has changed a setting.
    Setting {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// Which of its changes this is.
        stamp: Stamp,
    },
    /// Verify yourself, or tell what you have found.
    Verify {
        /// The asker's task.
        ticket: TaskId,
        /// Whether a verification is to begin.
        begins: bool,
    },
    /// What a verification has found so far, if there was one.
    Verified {
        /// The asker's task.
        ticket: TaskId,
        /// The findings.
        report: Result<Option<Box<Verification>>, Error>,
    },
    /// Watch these keys.
    Watch {
        /// The asker's task.
        ticket: TaskId,
        /// For whom.
        watcher: ConnectionId,
        /// The database.
        db: u32,
        /// `WATCH` and the keys.
        args: OwnedArgs,
    },
    /// Forget what is watched.
    Unwatch {
        /// For whom.
        watcher: ConnectionId,
    },
    /// A part of an answer that is a number (or nothing but done).
    Number {
        /// The asker's task.
        ticket: TaskId,
        /// The number.
        value: u64,
    },
    /// Carry this control command out for your own connections; answered by one reply as `Walked`.
    Control {
        /// The asker's task.
        ticket: TaskId,
        /// The client who asks.
        connection: ConnectionId,
        /// The command.
        command: &'static Command,
        /// Its arguments.
        args: OwnedArgs,
        /// The protocol of the reply.
        version: Version,
    },
    /// About who may do what.
    Users(UsersMessage),
    /// A channel has one listener more among the sender's connections, or one less.
    Listening {
        /// Which kind of channel.
        kind: ChannelKind,
        /// The channel.
        channel: Vec<u8>,
        /// One more, or one less.
        has_joined: bool,
    },
    /// A part of an upload.
    Upload {
        /// The upload, by its name at the shard of its connection.
        ticket: Ticket,
        /// What about it.
        message: UploadMessage,
    },
    /// A piece of a large value is wanted for a making, or has come.
    Piece {
        /// The making, by its name at the shard that coordinates it.
        ticket: Ticket,
        /// What about it.
        message: PieceMessage,
    },
    /// A piece of the reply to a `Run`; the rest follows when it is asked for.
    Part {
        /// The asker's task.
        ticket: TaskId,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// The next piece of a reply is wanted.
    Pull {
        /// The asker's task.
        ticket: TaskId,
    },
    /// A reply of which pieces were sent cannot be continued.
    Broken {
        /// The asker's task.
        ticket: TaskId,
    },
    /// Nothing more of a reply is wanted.
    StopStream {
        /// The asker's task.
        ticket: TaskId,
    },
    /// An uploaded value is not wanted, if no command has put it under a key.
    DropUpload {
        /// Which.
        id: ValueId,
    },
    /// Something about a backup.
    Backup {
        /// The backup, by its coordinator's number.
        ticket: TaskId,
        /// What about it.
        message: BackupMessage,
    },
    /// A message of a channel.
    Publish {
        /// Which kind of channel.
        kind: ChannelKind,
        /// The channel.
        channel: Arc<[u8]>,
        /// The message: one copy for all shards.
        payload: Arc<[u8]>,
    },
    /// Something for those who look into the server.
    Operator(OperatorMessage),
    /// Something about the copies that clients keep.
    Tracking(TrackingMessage),
}

/// A question to every shard.
#[derive(Debug)]
pub(crate) struct FanOut {
    pub(crate) outstanding: usize,
    pub(crate) number: u64,
    found: BTreeMap<ShardId, Vec<Vec<u8>>>,
    pub(crate) ending: Ending,
}

/// What the answers become.
#[derive(Debug)]
pub(crate) enum Ending {
    Sum,
    Reply(Vec<u8>),
    Durable { reply: Vec<u8>, sets_last_save: bool },
    Merge { merge: Merge, own: Vec<u8>, closes: bool, request: OwnedArgs },
    Walk { kind: WalkKind, first: ShardId },
    Verify(Verified),
    Tracking(Box<Asked>),
}

impl<E: Engine> Executor<E> {
    /// Takes a message of another shard's executor.
    pub fn message(&mut self, now: Now, from: ShardId, message: Message) {
        match message {
            Message::Batch(message) => self.batch_message(now, from, message),
            Message::Run { ticket, command, args, db, version, tracker } => {
                self.tracker = tracker;
                self.run_alone(now, (from, ticket), command, &args, (db, version));
            }
            Message::Forwards(bundle) => self.forwarded(now, from, bundle),
            Message::Answers(bundle) => self.answered(now, bundle),
            Message::Waits { ticket, connection, db, version } => {
                self.waits_elsewhere(ticket, connection, (db, version));
            }
            Message::Ran { ticket, reply } => match self.tasks.get_mut(&ticket).map(Box::as_mut) {
                // A part of a `WATCH` over several shards: what is not watched must not be called so.
                Some(Task { work: Work::FanOut(fan_out), .. }) => {
                    if reply.first() == Some(&b'-') {
                        fan_out.ending = Ending::Reply(reply);
                    }
                    self.part(now, from, ticket, 0, Vec::new());
                }
                _ => self.finish(now, ticket, reply, 0, false),
            },
            Message::Walk { ticket, db, version, walk } => {
                let id = self.shard.next_id();
                let task = Task::new(Origin::Shard(from, ticket), db, version, Work::Walk(*walk));
                self.tasks.insert(id, task);
                self.next_page(now, id);
            }
            Message::Walked { ticket, found } => self.part(now, from, ticket, 0, found),
            Message::Count { ticket, db } => self.count_here(from, ticket, db),
            Message::AwaitDurable { ticket } => {
                self.shard.engine_mut().flush(now);
                let gate = self.shard.engine().applied_seq();
                self.send_gated(from, Message::Number { ticket, value: 0 }, gate);
            }
            Message::Saved { at_s } => self.host.note_saved(at_s),
            Message::Verify { ticket, begins } => self.verify_here(from, ticket, begins),
            Message::Verified { ticket, report } => self.verified(now, from, ticket, report),
            Message::Setting { name, value, stamp } => self.setting_elsewhere(now, name, value, stamp),
            Message::Watch { ticket, watcher, db, args } => {
                let id = self.shard.next_id();
                let work = Work::Watch { args, watcher };
                self.watching.insert((watcher, id));
                self.tasks.insert(id, Task::new(Origin::Shard(from, ticket), db, Version::Resp2, work));
                self.run_task(now, id);
            }
            Message::Unwatch { watcher } => self.unwatch_here(now, watcher),
            Message::Number { ticket, value } => self.part(now, from, ticket, value, Vec::new()),
            Message::Control { ticket, connection, command, args, version } => {
                self.control_elsewhere(now, (from, ticket), connection, command, &args, version);
            }
            Message::Users(message) => self.users_message(now, from, message),
            Message::Listening { kind, channel, has_joined } => {
                self.host.channels.note_elsewhere(kind, channel, has_joined);
            }
            Message::Upload { ticket, message } => self.upload_message(now, (from, ticket), message),
            Message::Piece { ticket, message } => self.piece_message(now, (from, ticket), message),
            Message::Part { ticket, bytes } => self.part_came(now, (from, ticket), bytes),
            Message::Pull { ticket } => self.stream_message(now, (from, ticket), true),
            Message::Broken { ticket } => self.finish(now, ticket, b"", 0, true),
            Message::StopStream { ticket } => self.stream_message(now, (from, ticket), false),
            Message::DropUpload { id } => self.shard.drop_upload(id),
            Message::Backup { ticket, message } => self.backup_message(now, (from, ticket), message),
            Message::Publish { kind, channel, payload } => self.deliver_here(kind, &channel, &payload),
            Message::Operator(message) => self.operator_message(now, from, message),
            Message::Tracking(message) => self.tracking_message(now, from, message),
        }
    }

    fn deliver_here(&mut self, kind: ChannelKind, channel: &[u8], payload: &[u8]) {
        self.deliver(kind, channel, payload);
    }

    fn unwatch_here(&mut self, now: Now, watcher: ConnectionId) {
        let late = self.watching.range((watcher, TaskId::MIN)..=(watcher, TaskId::MAX));
        let late: Vec<TaskId> = late.map(|(_, id)| *id).collect();
        for id in late {
            self.finish(now, id, b"+OK\r\n", 0, false);
        }
        self.shard.watches.unwatch(watcher);
    }

    /// Sends a message when everything up to `gate` is durable here.
    pub(crate) fn send_gated(&mut self, to: ShardId, message: Message, gate: Seq) {
        let output = Output::Send { to, message };
        if gate <= self.shard.engine().decided_seq() {
            self.host.outputs.push(output);
        } else {
            let id = self.shard.next_id();
            self.gated.insert((gate, id), output);
        }
    }

    /// Sends the reply of a command that was run for another shard.
    pub(crate) fn answer_shard(&mut self, shard: ShardId, ticket: TaskId, reply: Vec<u8>, gate: Seq) {
        let message = Message::Ran { ticket, reply };
        self.send_gated(shard, message, gate);
    }

    /// Sends the keys that a walk for another shard has found.
    pub(crate) fn answer_walk(&mut self, id: TaskId, found: Vec<Vec<u8>>, gate: Seq) {
        if let Some(task) = self.tasks.remove(&id)
            && let Origin::Shard(shard, ticket) = task.origin
        {
            self.send_gated(shard, Message::Walked { ticket, found }, gate);
        }
    }

    /// Starts a transaction of which other shards have a part.
    pub(crate) fn exec_elsewhere(
        &mut self,
        now: Now,
        connection: ConnectionId,
        commands: Vec<Queued>,
        (db, version): (u32, Version),
    ) -> Outcome {
        let id = self.shard.next_id();
        let session = self.host.sessions.get(&connection);
        let watcher = session.filter(|session| session.is_watching).map(|session| {
            let mut shards = session.watching_shards.clone();
            shards.insert(self.shard.index());
            (connection, shards)
        });
        let work = Coordination::transaction(commands, watcher);
        let work = Work::Coordinated(Box::new(work));
        let task = self.host.task(Origin::Connection(connection), db, version, work);
        let task = task.with_tracker(self.tracker_of(connection));
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.suspend_all(id);
        }
        self.tasks.insert(id, task);
        self.coordinate(now, id);
        self.host.counters.suspended += 1;
        Outcome::Suspended(id)
    }

    pub(crate) fn fan_out(&self, ending: Ending) -> Work {
        Work::FanOut(Box::new(FanOut {
            outstanding: usize::from(self.shard.count()),
            number: 0,
            found: BTreeMap::new(),
            ending,
        }))
    }

    /// A question to every shard but this one.
    pub(crate) fn fan_out_to_others(&self, ending: Ending) -> Work {
        let mut work = self.fan_out(ending);
        if let Work::FanOut(fan_out) = &mut work {
            fan_out.outstanding -= 1;
        }
        work
    }

    /// Sends what `message` makes to every shard, this one included.
    pub(crate) fn send_everywhere(&mut self, message: impl Fn(ShardId) -> Message) {
        for to in 0..self.shard.count() {
            self.host.outputs.push(Output::Send { to, message: message(to) });
        }
    }

    /// A part of the answer to a question to every shard.
    pub(crate) fn part(&mut self, now: Now, from: ShardId, id: TaskId, value: u64, found: Vec<Vec<u8>>) {
        let Some(Task { work: Work::FanOut(fan_out), version, .. }) =
            self.tasks.get_mut(&id).map(Box::as_mut)
        else {
            return;
        };
        fan_out.outstanding -= 1;
        fan_out.number += value;
        fan_out.found.insert(from, found);
        if fan_out.outstanding > 0 {
            return;
        }
        let mut reply = Vec::new();
        let mut closes_after = false;
        match &mut fan_out.ending {
            Ending::Sum => ReplyWriter::new(&mut reply, *version).integer(fan_out.number as i64),
            Ending::Reply(bytes) => reply = std::mem::take(bytes),
            Ending::Durable { reply: bytes, sets_last_save } => {
                let is_save = *sets_last_save;
                reply = std::mem::take(bytes);
                if is_save {
                    self.tell_saved(now);
                }
            }
            Ending::Tracking(_) => return self.tracking_answered(now, id),
            Ending::Verify(verified) => verified.write(&mut ReplyWriter::new(&mut reply, *version)),
            Ending::Merge { merge, own, closes, request } => {
                let others: Vec<&[u8]> = fan_out.found.values().flatten().map(Vec::as_slice).collect();
                reply = everywhere::merge((*merge, request), own, &others, *version);
                closes_after = *closes;
            }
            Ending::Walk { kind, first } => {
                // In the order of the shards, beginning at the one where a random walk began.
                let mut all = fan_out.found.split_off(first);
                all.append(&mut fan_out.found);
                let mut found: Vec<(ShardId, Vec<Vec<u8>>)> = all.into_iter().collect();
                found.sort_by_key(|(shard, _)| (*shard < *first, *shard));
                let found: Vec<Vec<u8>> = found.into_iter().flat_map(|(_, keys)| keys).collect();
                write_walk(kind, &found, None, *version, &mut reply);
            }
        }
        self.finish(now, id, reply, 0, closes_after);
    }

    /// Starts a walk over several shards.
    pub(crate) fn walk_elsewhere(&mut self, connection: ConnectionId, id: TaskId, walk: Walk) -> Outcome {
        let count = self.shard.count();
        let session = self.host.sessions.get(&connection);
        let (db, version) = session.map_or((0, Version::Resp2), |session| (session.db, session.version));
        let first = walk.cursor.shard(count);
        if walk.kind == WalkKind::Scan {
            let outcome = self.suspend(connection, id, Work::Forwarded);
            let message = Message::Walk { ticket: id, db, version, walk: Box::new(walk) };
            self.host.outputs.push(Output::Send { to: first, message });
            return outcome;
        }
        let first = if walk.kind == WalkKind::Keys { 0 } else { first };
        let work = self.fan_out(Ending::Walk { kind: walk.kind.clone(), first });
        let outcome = self.suspend(connection, id, work);
        self.send_everywhere(|to| {
            let mut walk = walk.clone();
            let begin = Position::first_of_shard(to, count);
            walk.cursor = walk.cursor.max(begin);
            if walk.cursor.shard(count) != to {
                walk.cursor = begin;
            }
            if let WalkKind::RandomKey { start, .. } = &mut walk.kind {
                *start = walk.cursor;
            }
            Message::Walk { ticket: id, db, version, walk: Box::new(walk) }
        });
        outcome
    }

    /// Waits until everything that every shard has applied is durable; in the background nobody is answered.
    pub(crate) fn await_durable_everywhere(
        &mut self,
        connection: ConnectionId,
        id: TaskId,
        (reply, sets_last_save): (Vec<u8>, bool),
        is_background: bool,
    ) -> Outcome {
        let work = self.fan_out(Ending::Durable { reply, sets_last_save });
        let outcome = match is_background {
            true => self.run_for_nobody(id, work),
            false => self.suspend(connection, id, work),
        };
        self.send_everywhere(|_| Message::AwaitDurable { ticket: id });
        outcome
    }

    /// Notes that all was durable. The other shards know it when they take what a client asks who was answered.
    fn tell_saved(&mut self, now: Now) {
        let (own, at_s) = (self.shard.index(), now.wall_ms / 1_000);
        self.host.note_saved(at_s);
        for to in (0..self.shard.count()).filter(|to| *to != own) {
            self.host.outputs.push(Output::Send { to, message: Message::Saved { at_s } });
        }
    }

    /// Watches keys of several shards.
    pub(crate) fn watch_elsewhere(&mut self, connection: ConnectionId, args: Args<'_>, db: u32) -> Outcome {
        let count = self.shard.count();
        let mut keys: BTreeMap<ShardId, Vec<&[u8]>> = BTreeMap::new();
        for key in args.from(1) {
            keys.entry(self.shard.position(key).shard(count)).or_insert_with(|| vec![b"watch"]).push(key);
        }
        let id = self.shard.next_id();
        let own = self.shard.index();
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.is_watching = true;
            session.watching_shards.extend(keys.keys().filter(|shard| **shard != own));
        }
        let mut work = self.fan_out(Ending::Reply(b"+OK\r\n".to_vec()));
        if let Work::FanOut(fan_out) = &mut work {
            fan_out.outstanding = keys.len();
        }
        let outcome = self.suspend(connection, id, work);
        for (to, words) in keys {
            let args = words.into_iter().collect();
            let message = Message::Watch { ticket: id, watcher: connection, db, args };
            self.host.outputs.push(Output::Send { to, message });
        }
        outcome
    }
}
