//! What commands over sessions and settings work with, and what the executor tells its caller.

use crate::account::Account;
use crate::acl::Users;
use crate::acl::log::AclLog;
use crate::args::Args;
use crate::bundle::Bundle;
use crate::channels::Channels;
use crate::commandstats::place_of;
use crate::context::{Halt, ReadCounts, error_text};
pub use crate::counters::{Counters, Throughput, Transport};
use crate::events::Events;
use crate::latency::Latencies;
use crate::map_request::MapRequest;
use crate::monitor::Monitors;
use crate::pushes::Pushes;
use crate::remote::Message;
use crate::session::{ConnectionId, Session};
use crate::settings::{PROTECTED_MODE, Setting, Settings};
use crate::table::Command;
use crate::timing::Timing;
use crate::tracking::Tracking;
use crate::work::Work;
use std::sync::Arc;
use tierstone_base::collections::Map;
use tierstone_base::{Error, Now, Seq, ShardId};
use tierstone_energy::Watch;
use tierstone_engine::{EngineStatistics, Health, OpeningProgress};
use tierstone_store::{Stop, TaskId, View, check_held};
use tierstone_wire::resp::{ReplyWriter, Version};

/// What follows from a control command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Its reply is written.
    Done,
    /// The connection ends when its replies are sent.
    Close,
}

/// A command over sessions and settings.
pub type ControlHandler = fn(&mut Control<'_>) -> Result<Flow, Halt>;

/// What the executor tells its caller.
#[derive(Debug)]
pub enum Output {
    /// The reply of a suspended request. Nothing may follow it in the connection's stream before it.
    Reply {
        /// Whose.
        connection: ConnectionId,
        /// Which request's ([`crate::Outcome::Suspended`]).
        task: TaskId,
        /// The encoded reply; empty when replies are off.
        bytes: Vec<u8>,
        /// Sent when the shard's durable sequence has reached this.
        gate: Seq,
        /// Whether the connection ends behind it: no reply to a later request may follow, also if there is one already.
        closes: bool,
    },
    /// Replies of suspended requests that another shard has carried out ([`Bundle::replies`]): as `Reply` each, with
    /// gate 0, in their order. To be given back by [`crate::Executor::recycle`].
    Replies(Bundle),
    /// The reply of a request that was called [`crate::Outcome::Forwarded`] takes longer.
    Waits {
        /// Whose.
        connection: ConnectionId,
        /// Which request's.
        task: TaskId,
    },
    /// A piece of the reply of a suspended request; the request stays suspended. When the connection
    /// has taken it, [`crate::Executor::pull`] asks for the next.
    Part {
        /// Whose.
        connection: ConnectionId,
        /// Which request's.
        task: TaskId,
        /// The piece.
        bytes: Vec<u8>,
        /// Sent when the shard's durable sequence has reached this.
        gate: Seq,
    },
    /// A message of a channel, sent when all earlier replies of the connection have been.
    Push {
        /// Whose.
        connection: ConnectionId,
        /// The encoded message.
        bytes: Vec<u8>,
        /// Sent when the shard's durable sequence has reached this.
        gate: Seq,
    },
    /// The same for several connections, each of which is given it unless it has gone.
    Pushes {
        /// Whose.
        to: Vec<ConnectionId>,
        /// The encoded message.
        bytes: Vec<u8>,
        /// Sent when the shard's durable sequence has reached this.
        gate: Seq,
    },
    /// The connection's put-off requests may be offered again.
    Resume {
        /// Which.
        connection: ConnectionId,
    },
    /// The connection ends.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Whether what was not sent, and what waits, is lost; otherwise it ends when it has been answered.
        at_once: bool,
    },
    /// The databases change: make the changed map durable, give it to every shard
    /// ([`crate::Executor::apply_map`]), then call [`crate::Executor::map_changed`] here.
    ChangeMap(MapRequest),
    /// A setting was changed; those that the executor does not know about are the caller's to follow.
    Setting {
        /// Its name.
        name: String,
        /// Its new value as text.
        value: String,
    },
    /// A setting was changed by a client of another shard, whose owner was told: what it means for the caller of this
    /// one.
    SettingElsewhere {
        /// Its name.
        name: String,
        /// Its new value as text.
        value: String,
    },
    /// The settings that were changed belong into the caller's settings file; then
    /// [`crate::Executor::map_changed`] is to be called here.
    RewriteSettings {
        /// Who waits for it.
        task: TaskId,
        /// Names and values.
        changed: Vec<(String, String)>,
    },
    /// The file of users is to be read, at most [`crate::USERS_FILE_BYTES_MAX`] bytes of it; then
    /// [`crate::Executor::users_read`] is to be called here.
    ReadUsers {
        /// Who waits for it.
        task: TaskId,
    },
    /// The file of users is to hold this, durably; then [`crate::Executor::map_changed`] is to be called here.
    WriteUsers {
        /// Who waits for it.
        task: TaskId,
        /// The whole file.
        bytes: Vec<u8>,
    },
    /// A message to another shard's executor ([`crate::Executor::message`]), in order.
    Send {
        /// Which shard.
        to: ShardId,
        /// What.
        message: Message,
    },
    /// The server is to stop (when everything applied is durable, unless `at_once`).
    Shutdown {
        /// `SHUTDOWN NOSAVE`: do not wait.
        at_once: bool,
    },
}

impl Output {
    /// Whether it tells of a changed setting.
    pub(crate) fn is_about_setting(&self) -> bool {
        matches!(self, Output::Setting { .. } | Output::Send { message: Message::Setting { .. }, .. })
    }

    /// A message of a transaction leaves when that is durable.
    pub(crate) fn wait_for(&mut self, durable: Seq) {
        if let Output::Push { gate, .. } | Output::Pushes { gate, .. } = self {
            *gate = durable;
        }
    }
}

/// What is known about the server as a whole; the caller fills it in.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// The version of Redis whose behaviour clients may expect.
    pub redis_version: String,
    /// This program's own version.
    pub server_version: String,
    /// 40 hexadecimal digits, chosen at start.
    pub run_id: String,
    /// The port of the Redis protocol.
    pub port: u16,
    /// What the devices really guarantee, all of them together, in words for a person.
    pub durability_guarantee: String,
    /// The redo log in persistent memory.
    pub redo: RedoFacts,
    /// Of a store that lies wholly in persistent memory: what its region is, how it is made durable and what that survives.
    pub nvm_region: Option<String>,
    /// How writes are made durable.
    pub durable_method: String,
    /// What probing found when the store was made; `None`: the method was given, nothing was probed.
    pub durable_probe: Option<DurableProbe>,
    /// Whether the kernel lets the process use io_uring, and why not; empty: not known.
    pub io_uring: String,
    /// The directories of the store.
    pub directories: Vec<DirectoryFacts>,
    /// The file that `CONFIG REWRITE` writes; empty: none.
    pub settings_file: String,
    /// The file of users; empty: none.
    pub users_file: String,
    /// What `ACL GENPASS` makes passwords of; `None`: it makes none.
    pub secret: Option<Secret>,
    /// Settings of the caller's, for `CONFIG`.
    pub settings: Vec<(String, Setting)>,
    /// The memory that the server was given, in bytes; 0: not known.
    pub memory_bytes: u64,
    /// What the process takes now; `None` where the same run must give the same numbers.
    pub process: Option<fn() -> ProcessNumbers>,
    /// Meters and model of joules; `None`: nothing is told of them.
    pub energy: Option<Arc<Watch>>,
    /// What is told of the volume below the store; `None`: it lies on files.
    pub volume: Option<Arc<dyn VolumeFacts>>,
    /// How the databases find their keys: `hash` or `ordered`.
    pub index: String,
    /// How far the opening of the store has come.
    pub opening: OpeningProgress,
    /// When the server started.
    pub started: Now,
}

/// Tells of the volume below a store, at any time.
pub trait VolumeFacts: std::fmt::Debug + Send + Sync {
    /// Names and values for the section `Volume` of `INFO`.
    fn fields(&self) -> Vec<(String, String)>;

    /// Takes an order and returns its number, by which [`VolumeFacts::fields`] tells what becomes of it. Does not wait
    /// for it.
    ///
    /// # Errors
    /// When another order is under way, or the volume is closed.
    fn order(&self, order: VolumeOrder) -> Result<u64, Error>;
}

/// What an operator wants of the volume below a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeOrder {
    /// Take a member out, as if it had failed.
    Fail {
        /// Its number, from 0.
        member: usize,
    },
    /// Put another in the place of one that has failed.
    Replace {
        /// Its number, from 0.
        member: usize,
        /// The file or block device; `None`: that of the old one's name.
        path: Option<String>,
    },
}

/// Random bytes that nobody else knows, and that `Debug` does not show.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret")
    }
}

/// The redo log in persistent memory.
#[derive(Clone, Debug, Default)]
pub struct RedoFacts {
    /// `on`, `off`, or `too-small` when the region cannot be used.
    pub state: String,
    /// What the region was found to be, in words.
    pub region: String,
    /// What its writes survive, by its short name.
    pub guarantee: String,
    /// Groups that opening took from it.
    pub groups_replayed: u64,
    /// The store was opened without the redo log that it had.
    pub lost: bool,
}

/// Why writes are made durable as they are.
#[derive(Clone, Debug)]
pub struct DurableProbe {
    /// The times that were found, in words.
    pub reason: String,
    /// Whether one flush seems to make the writes of all files durable.
    pub flush_looks_device_wide: bool,
}

/// What a process takes of its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessNumbers {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Processor time in user mode since its start, in microseconds.
    pub user_us: u64,
    /// The same in the kernel.
    pub system_us: u64,
}

/// One directory of the store.
#[derive(Clone, Debug)]
pub struct DirectoryFacts {
    /// Where it is.
    pub path: String,
    /// Its file system.
    pub file_system: String,
    /// What durable writes to it survive: a short name.
    pub guarantee: String,
    /// Whether its files bypass the page cache.
    pub direct_io: bool,
}

impl Default for ServerFacts {
    fn default() -> Self {
        ServerFacts {
            redis_version: "8.2.0".into(),
            server_version: env!("CARGO_PKG_VERSION").into(),
            run_id: "0".repeat(40),
            port: 0,
            durability_guarantee: "unknown".into(),
            redo: RedoFacts { state: "off".into(), ..RedoFacts::default() },
            nvm_region: None,
            durable_method: "unknown".into(),
            durable_probe: None,
            io_uring: String::new(),
            directories: Vec::new(),
            settings_file: String::new(),
            users_file: String::new(),
            secret: None,
            settings: Vec::new(),
            memory_bytes: 0,
            process: None,
            energy: None,
            volume: None,
            index: "hash".into(),
            opening: OpeningProgress::default(),
            started: Now::default(),
        }
    }
}

/// What the engine says about itself, taken before a control command runs.
#[derive(Clone, Debug)]
pub struct EngineFacts {
    /// Its counters.
    pub statistics: EngineStatistics,
    /// The newest sequence.
    pub applied: Seq,
    /// The newest durable sequence.
    pub durable: Seq,
    /// Whether it still works.
    pub health: Health,
    /// Live keys of each database.
    pub keys: Vec<u64>,
    /// Which shard this is, and of how many.
    pub shard: (ShardId, u16),
    /// Keys whose expiry will not be told to listeners.
    pub untold_expirations: u64,
    /// Keys of which clients hold copies, these copies, and prefixes that are followed.
    pub tracked: [u64; 3],
}

/// Who holds requests back, and until when (`CLIENT PAUSE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Until then, by the monotonic clock.
    pub until_us: u64,
    /// Whether reads pass.
    pub only_writes: bool,
}

/// Everything of an executor that does not depend on its engine.
#[derive(Debug)]
pub struct Host {
    /// The connections.
    pub sessions: Map<ConnectionId, Session>,
    /// Who may do what.
    pub users: Arc<Users>,
    /// What was refused, at the first shard.
    pub(crate) acl_log: AclLog,
    /// How many passwords `ACL GENPASS` has made here.
    pub(crate) passwords_made: u64,
    /// Who listens to what.
    pub channels: Channels,
    /// The settings.
    pub settings: Settings,
    /// The counters.
    pub counters: Counters,
    /// What the caller says of its connections.
    pub transport: Transport,
    /// What the caller is to be told.
    pub outputs: Vec<Output>,
    /// The messages for connections among them.
    pub(crate) pushes: Pushes,
    /// What is known about the server.
    pub facts: ServerFacts,
    /// How many requests a second.
    pub throughput: Throughput,
    /// Whether requests are held back.
    pub pause: Option<Pause>,
    /// The second since 1970 at which everything applied was last known to be durable.
    pub last_save_s: u64,
    /// The most memory that was seen in use: [`Host::note_memory`].
    pub(crate) memory_peak_bytes: u64,
    /// Bytes of values and replies that one transaction or batch may hold.
    pub held_bytes_max: u64,
    /// Bytes that requests hold which have not come to their end.
    pub account: Account,
    /// Bytes of the names that its connections listen to, with those that other shards hold of them.
    pub(crate) listening: Account,
    /// Bytes in the buffers of connections, and above how many large requests wait, as the caller says.
    pub connection_bytes: (u64, u64),
    /// What happened to keys in the run at hand.
    pub(crate) events: Events,
    /// Connections that track what they read.
    pub(crate) trackers: usize,
    /// Whether any connection has asked not to use what it reads.
    pub(crate) has_untouching: bool,
    /// Whose tracking the run of a transaction at hand has changed, and what it was before.
    pub(crate) tracking_before: Option<(ConnectionId, Option<Box<Tracking>>)>,
    /// Who watches what clients do.
    pub(crate) monitors: Monitors,
    /// The times of commands.
    pub(crate) latencies: Latencies,
    /// Whether the answer at hand is to become one with those of other shards.
    pub(crate) is_partial: bool,
    /// Whether the control command at hand is one of a transaction's, which `EXEC` has taken from the session.
    pub(crate) is_in_exec: bool,
    /// Takes the time of commands.
    pub(crate) timing: Timing,
    /// Counts their work.
    pub(crate) work: Work,
    /// The commands of the transaction at hand that have run, and whether they failed.
    pub(crate) ran: Vec<(&'static Command, bool)>,
    /// What it, or a command over several shards, has read.
    pub(crate) ran_reads: ReadCounts,
}

impl Host {
    /// A host without a connection, of the shard `shard` of so many. Requests may hold nothing yet.
    pub(crate) fn new(
        facts: ServerFacts,
        settings: Settings,
        users: Arc<Users>,
        shard: (ShardId, u16),
    ) -> Host {
        Host {
            sessions: Map::default(),
            users,
            acl_log: AclLog::default(),
            passwords_made: 0,
            channels: Channels::default(),
            settings,
            counters: Counters::default(),
            transport: Transport::default(),
            outputs: Vec::new(),
            pushes: Pushes::default(),
            last_save_s: facts.started.wall_ms / 1_000,
            memory_peak_bytes: 0,
            facts,
            throughput: Throughput::default(),
            pause: None,
            held_bytes_max: 0,
            account: Account::new(0),
            listening: Account::new(0),
            connection_bytes: (0, 0),
            events: Events::default(),
            trackers: 0,
            has_untouching: false,
            tracking_before: None,
            monitors: Monitors::new(shard),
            latencies: Latencies::default(),
            is_partial: false,
            is_in_exec: false,
            timing: Timing::default(),
            work: Work::default(),
            ran: Vec::new(),
            ran_reads: ReadCounts::default(),
        }
    }

    /// Bytes that index, cached records, buffers and requests of the shard take.
    pub(crate) fn memory_bytes(&self, statistics: &EngineStatistics) -> u64 {
        let engine = statistics.index_bytes + statistics.cache_bytes + statistics.buffer_bytes;
        engine + self.connection_bytes.0 + self.account.bytes()
    }

    /// Looks how much memory is in use: once a second, and when somebody asks.
    pub(crate) fn note_memory(&mut self, statistics: &EngineStatistics) {
        self.memory_peak_bytes = self.memory_peak_bytes.max(self.memory_bytes(statistics));
    }

    /// Everything that was applied anywhere before is durable at this time.
    pub(crate) fn note_saved(&mut self, at_s: u64) {
        self.last_save_s = self.last_save_s.max(at_s);
    }

    /// Whether clients of other machines are kept out now: nobody has to say who he is, and nobody has said that this
    /// is meant.
    pub(crate) fn is_protected(&self) -> bool {
        let setting = self.settings.get(PROTECTED_MODE);
        setting.is_some_and(|setting| setting.value == "yes") && self.users.is_open()
    }
}

impl Host {
    /// A run over several commands or shards counts for nothing: it will be made again, or not at all.
    pub(crate) fn forget_run(&mut self) {
        self.ran.clear();
        self.ran_reads = ReadCounts::default();
    }

    /// Counts what a run over several commands or shards has done that has come to its end.
    pub(crate) fn count_run(&mut self) {
        let ReadCounts { hits, misses, .. } = std::mem::take(&mut self.ran_reads);
        self.counters.hits += hits;
        self.counters.misses += misses;
        for (command, has_failed) in self.ran.drain(..) {
            self.counters.call(place_of(command));
            if has_failed {
                self.counters.of_commands.note_failed(command, b"-");
            }
        }
    }

    /// Takes back what a transaction did that has not come to its end.
    pub(crate) fn restore(&mut self, connection: ConnectionId, db: u32, outputs: usize) {
        self.outputs.truncate(outputs);
        self.forget_run();
        self.restore_tracking();
        if let Some(session) = self.sessions.get_mut(&connection) {
            session.db = db;
        }
    }
}

/// What a command of a transaction has answered, from byte `start` of its reply on, gives way to an error where the reply has no
/// room for it: the command cannot be taken back. What is short stays.
pub(crate) fn shorten(view: &View<'_>, version: Version, start: usize, reply: &mut Vec<u8>) {
    const SHORT_BYTES: usize = 128;
    if reply.len() - start > SHORT_BYTES
        && let Err(Stop::Failed(error)) = view.check_held(reply.len() as u64)
    {
        reply.truncate(start);
        ReplyWriter::new(reply, version).error(error_text(&error).as_bytes());
    }
}

/// One run of one control command.
pub struct Control<'c> {
    /// Sessions, channels, settings.
    pub host: &'c mut Host,
    /// What the engine says.
    pub engine: &'c EngineFacts,
    /// The arguments, the command's name first.
    pub args: Args<'c>,
    /// The reply.
    pub reply: ReplyWriter<'c>,
    /// Whose request it is.
    pub connection: ConnectionId,
    /// The time.
    pub now: Now,
}

impl Control<'_> {
    /// The connection's session.
    pub fn session(&mut self) -> &mut Session {
        match self.host.sessions.get_mut(&self.connection) {
            Some(session) => session,
            None => unreachable!("connection {} runs a command without a session", self.connection),
        }
    }

    /// Whether the reply, which began at byte `start`, may be as long as it is.
    pub(crate) fn check_reply(&self, start: usize) -> Result<(), Halt> {
        let bytes = (self.reply.len() - start) as u64;
        Ok(check_held(bytes, self.host.held_bytes_max)?)
    }
}

impl std::fmt::Debug for Control<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Control").field("args", &self.args).finish()
    }
}
