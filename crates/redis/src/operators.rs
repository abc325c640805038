//! What shards tell each other for those who look into the server.

use crate::args::OwnedArgs;
use crate::control::Output;
use crate::executor::Executor;
use crate::remote::Message;
use crate::slowlog::SlowEntry;
use tierstone_base::ShardId;
use tierstone_engine::Engine;
use tierstone_store::TaskId;
use tierstone_wire::resp::Version;

/// One message of this kind.
#[derive(Clone, Debug)]
pub enum OperatorMessage {
    /// A command was slow: one of the client behind a task of the receiver, or one for the receiver's list.
    Slow {
        /// The receiver's task; none for its list.
        ticket: Option<TaskId>,
        /// The command.
        entry: Box<SlowEntry>,
    },
    /// Carry out this `SLOWLOG`.
    SlowLog {
        /// The asker's task.
        ticket: TaskId,
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

impl<E: Engine> Executor<E> {
    /// Takes a message of this kind.
    pub(crate) fn operator_message(&mut self, from: ShardId, message: OperatorMessage) {
        match message {
            OperatorMessage::Slow { ticket, entry } => self.slow_message(ticket, entry),
            OperatorMessage::SlowLog { ticket, args, version } => {
                self.slowlog_for((from, ticket), &args, version);
            }
        }
    }
}
