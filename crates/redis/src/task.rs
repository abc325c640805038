//! Requests that wait: for the device, a lock, another shard, durability, a time.

use crate::account::Held;
use crate::args::OwnedArgs;
use crate::control::Host;
use crate::coordination::Coordination;
use crate::making::Reading;
use crate::remote::FanOut;
use crate::session::{ConnectionId, Queued};
use crate::slowlog::Timed;
use crate::stream::Stream;
use crate::table::Command;
use crate::tracking::Tracker;
use crate::walk::Walk;
use tierstone_base::{Position, ShardId, Token};
use tierstone_store::{FetchFailure, TaskId};
use tierstone_wire::resp::Version;

/// Who gets the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A connection of this executor.
    Connection(ConnectionId),
    /// A task of another shard's executor.
    Shard(ShardId, TaskId),
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Work {
    /// One data command.
    Command { command: &'static Command, args: OwnedArgs },
    /// The queued commands of a transaction.
    Transaction { commands: Vec<Queued>, is_watching: bool },
    /// `WATCH`.
    Watch { args: OwnedArgs, watcher: ConnectionId },
    /// A walk through the keys.
    Walk(Walk),
    /// A change of the databases.
    ChangeMap,
    /// Something else that the executor's owner does.
    AwaitOwner,
    /// An answer that is ready when everything up to a sequence is durable.
    AwaitDurable { reply: Vec<u8>, sets_last_save: bool },
    /// An answer that is ready at a time.
    AwaitTime,
    /// A command carried out by another shard.
    Forwarded,
    /// A command or transaction over several shards, of which this one coordinates the batch.
    Coordinated(Box<Coordination>),
    /// A question to every shard.
    FanOut(Box<FanOut>),
    /// A reply that is sent piece by piece.
    Stream(Box<Stream>),
    /// A piece of a large value, for another shard.
    Read(Box<Reading>),
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Locks, or records of which some are on their way, or other shards' messages.
    Events,
    /// The engine to take writes again.
    Retry,
}

/// One suspended request. Boxed where it is kept: it goes in and out of the table of tasks with every run.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) origin: Origin,
    pub(crate) db: u32,
    pub(crate) version: Version,
    /// Whether the connection does not want the reply.
    pub(crate) is_silent: bool,
    pub(crate) work: Work,
    pub(crate) state: State,
    /// Fetches that are on their way.
    pub(crate) outstanding: usize,
    /// Fetches whose records are held.
    pub(crate) tokens: Vec<Token>,
    pub(crate) failures: Vec<FetchFailure>,
    /// Positions that its locks cover.
    pub(crate) positions: Vec<Position>,
    pub(crate) is_in_lock_table: bool,
    /// How often it was run and then wanted records.
    pub(crate) runs: u32,
    /// Since when the engine has been too busy for it.
    pub(crate) busy_since_us: Option<u64>,
    /// What its arguments take.
    pub(crate) held: Held,
    /// For whom it runs, where its client keeps copies.
    pub(crate) tracker: Option<Tracker>,
    /// Its command, where that is timed.
    pub(crate) timed: Option<Timed>,
    /// Its command, where that is shown to watchers when it has come to its end.
    pub(crate) shown_at_end: Option<&'static Command>,
}

impl Host {
    /// A task for the request that is being carried out, which may come to its end, or begin to be answered,
    /// before that has: whether it is answered is known from its beginning.
    pub(crate) fn task(&self, origin: Origin, db: u32, version: Version, work: Work) -> Box<Task> {
        let mut task = Task::new(origin, db, version, work);
        let session = task.connection().and_then(|connection| self.sessions.get(&connection));
        task.is_silent = session.is_some_and(|session| session.is_muted);
        task
    }
}

impl Task {
    pub(crate) fn new(origin: Origin, db: u32, version: Version, work: Work) -> Box<Task> {
        Box::new(Task {
            origin,
            db,
            version,
            is_silent: false,
            work,
            state: State::Events,
            outstanding: 0,
            tokens: Vec::new(),
            failures: Vec::new(),
            positions: Vec::new(),
            is_in_lock_table: false,
            runs: 0,
            busy_since_us: None,
            held: Held::default(),
            tracker: None,
            timed: None,
            shown_at_end: None,
        })
    }

    /// The same for `tracker`'s client.
    pub(crate) fn with_tracker(mut self: Box<Task>, tracker: Option<Tracker>) -> Box<Task> {
        self.tracker = tracker;
        self
    }

    /// The command that it carries out here, where that is one.
    pub(crate) fn command(&self) -> Option<&'static Command> {
        match &self.work {
            Work::Command { command, .. } => Some(command),
            Work::Coordinated(work) if !work.is_transaction => Some(work.commands.first()?.command),
            // Counted by the shard that carries it out, if another has a name for it.
            _ => Some(self.timed.as_ref()?.command),
        }
    }

    /// The connection of this executor that it answers.
    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        match self.origin {
            Origin::Connection(connection) => Some(connection),
            Origin::Shard(..) => None,
        }
    }
}
