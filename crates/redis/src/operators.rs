//! For those who look into the server: where commands are noted, and what shards tell each other of it.

use crate::args::{Args, OwnedArgs};
use crate::control::{Host, Output};
use crate::executor::{Executor, Outcome};
use crate::remote::{HOME, Message};
use crate::session::ConnectionId;
use crate::slowlog::{SlowEntry, SlowOf};
use crate::table::{self, Action, Command, TaskKind};
use crate::task::{Origin, Task, Work};
use std::sync::Arc;
use tierstone_base::{Now, ShardId};
use tierstone_engine::Engine;
use tierstone_store::TaskId;
use tierstone_wire::resp::{ReplyWriter, Version};

/// One message of this kind.
#[derive(Clone, Debug)]
pub enum OperatorMessage {
    /// A command was slow: one of a client of the receiver, or one for the receiver's list.
    Slow {
        /// Whose.
        of: SlowOf,
        /// The command.
        entry: Box<SlowEntry>,
    },
    /// One connection more watches with `MONITOR`, or one less.
    Monitor {
        /// One more, or one less.
        has_joined: bool,
    },
    /// What a client has carried out, for those who watch.
    Line {
        /// The encoded line: one copy for all shards.
        bytes: Arc<[u8]>,
    },
    /// A command has taken more than the threshold of spikes.
    Spike {
        /// Which event it counts as.
        event: &'static str,
        /// When, in seconds since 1970.
        at_s: u64,
        /// Milliseconds.
        took_ms: u64,
    },
    /// Answer this request from what you keep for all shards.
    Ask {
        /// The asker's task.
        ticket: TaskId,
        /// The client who asks.
        connection: ConnectionId,
        /// The request.
        args: OwnedArgs,
        /// The protocol of the reply.
        version: Version,
    },
}

impl OperatorMessage {
    /// This message to another shard, or to the shard itself.
    pub(crate) fn to(self, to: ShardId) -> Output {
        Output::Send { to, message: Message::Operator(self) }
    }
}

impl Host {
    /// A queued command has run.
    pub(crate) fn note_queued(
        &mut self,
        now: Now,
        connection: ConnectionId,
        (command, began_ns): (&'static Command, Option<u64>),
        args: Args<'_>,
    ) {
        self.note_request(now, connection, (command, began_ns), args);
        self.show(now, connection, command, args);
    }
}

impl<E: Engine> Executor<E> {
    /// A request is carried out, or waits.
    pub(crate) fn note_carried_out(
        &mut self,
        now: Now,
        connection: ConnectionId,
        (command, began_ns): (&'static Command, Option<u64>),
        args: Args<'_>,
        outcome: Outcome,
    ) {
        self.note_outcome(now, connection, (command, began_ns), args, outcome);
        match outcome {
            Outcome::Blocked => {}
            // It is shown behind its commands.
            Outcome::Suspended(id) if matches!(command.action, Action::Task(TaskKind::Exec)) => {
                match self.tasks.get_mut(&id) {
                    Some(task) => task.shown_at_end = Some(command),
                    None => self.host.show(now, connection, command, args),
                }
            }
            _ => self.host.show(now, connection, command, args),
        }
    }

    /// `task` has come to its end.
    pub(crate) fn note_ended(&mut self, now: Now, task: &mut Task) {
        self.note_finished(now, task);
        if let (Some(command), Origin::Connection(connection)) = (task.shown_at_end, task.origin) {
            self.host.show(now, connection, command, Args::Slices(&[b"EXEC"]));
        }
    }

    /// Asks the shard that keeps once what concerns all: slow commands, spikes, refusals.
    pub(crate) fn ask_home(&mut self, connection: ConnectionId, args: Args<'_>) -> Outcome {
        let id = self.shard.next_id();
        let outcome = self.suspend(connection, id, Work::Forwarded);
        let version = self.host.sessions.get(&connection).map_or(Version::Resp2, |session| session.version);
        let message = OperatorMessage::Ask { ticket: id, connection, args: args.to_owned(), version };
        self.host.outputs.push(message.to(HOME));
        outcome
    }

    /// Answers what [`Executor::ask_home`] has asked.
    fn answer_asker(
        &mut self,
        now: Now,
        (from, ticket): (ShardId, TaskId),
        connection: ConnectionId,
        args: &OwnedArgs,
        version: Version,
    ) {
        let mut reply = Vec::new();
        let args = args.args();
        let Some(found) = table::lookup(args.at(0)) else { return };
        let command = table::subcommand(found.command, args.at(1)).unwrap_or(found.command);
        if let Action::Control(_) = command.action {
            self.control_for(now, connection, command, args, version, &mut reply);
        } else {
            let mut writer = ReplyWriter::new(&mut reply, version);
            match found.command.name {
                "latency" => self.answer_latency(now, args, &mut writer),
                _ => self.answer_slowlog(args, &mut writer),
            }
        }
        self.answer_shard(from, ticket, reply, 0);
    }

    /// Takes a message of this kind.
    pub(crate) fn operator_message(&mut self, now: Now, from: ShardId, message: OperatorMessage) {
        match message {
            OperatorMessage::Slow { of, entry } => self.slow_message(of, entry),
            OperatorMessage::Monitor { has_joined } => self.host.monitors.note_elsewhere(has_joined),
            OperatorMessage::Line { bytes } => self.host.give_line(&bytes),
            OperatorMessage::Spike { event, at_s, took_ms } => self.spikes.note(event, at_s, took_ms),
            OperatorMessage::Ask { ticket, connection, args, version } => {
                self.answer_asker(now, (from, ticket), connection, &args, version);
            }
        }
    }
}
