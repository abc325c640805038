//! What a connection is to the commands: its database, protocol, transaction, channels.
//!
//! Invariants:
//! 1. Replies of one connection come in the order of its requests: the caller keeps a place for each
//!    reply of a suspended request.
//! 2. A request runs beside suspended ones of its connection only if no position is touched by both
//!    with at least one of the two writing. Requests that are not about data wait until nothing of the
//!    connection is suspended, and everything waits for them.

use crate::account::{Account, Held};
use crate::acl::{Refused, User, Users};
use crate::args::OwnedArgs;
use crate::clients::ClientBuffers;
use crate::table::Command;
use crate::tracking::Tracking;
use std::collections::BTreeSet;
use std::sync::Arc;
use tierstone_base::{Now, Position, ShardId};
use tierstone_store::{TaskId, ValueId};
use tierstone_wire::resp::Version;

/// A connection's id, chosen by the caller and never used twice: also its `CLIENT ID`.
pub type ConnectionId = u64;

/// Suspended positions of one connection beyond which it waits.
const PENDING_MAX: usize = 512;

/// What one channel takes beside its name: its places in two ordered sets.
const CHANNEL_BYTES: usize = 64;

/// What the caller knows about a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The peer, `ADDRESS:PORT`.
    pub address: String,
    /// This side, `ADDRESS:PORT`.
    pub local_address: String,
    /// The peer is on another machine.
    pub is_remote: bool,
}

/// A command that waits for `EXEC`.
#[derive(Clone, Debug)]
pub struct Queued {
    /// The command.
    pub command: &'static Command,
    /// Its index in the table of commands.
    pub index: usize,
    /// Its arguments.
    pub args: OwnedArgs,
    /// Why its client may not carry it out any more, if so.
    pub(crate) refused: Option<Refused>,
}

/// A transaction that is being queued.
#[derive(Debug, Default)]
pub struct Transaction {
    /// The commands so far.
    pub commands: Vec<Queued>,
    /// Whether one of them was refused: `EXEC` will fail.
    pub is_broken: bool,
    /// Bytes of arguments so far.
    pub size_bytes: usize,
    /// The same in the shard's account.
    pub held: Held,
}

/// What a watched key takes, in bytes, about: its position in the session, and in its shard the key as it was and who
/// watches it.
pub(crate) const WATCHED_BYTES: usize = 192;

/// Whether replies are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// Yes.
    #[default]
    On,
    /// No.
    Off,
    /// Not the next one.
    SkipNext,
}

/// Which kind of channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelKind {
    /// `SUBSCRIBE`
    Channel,
    /// `PSUBSCRIBE`
    Pattern,
    /// `SSUBSCRIBE`
    Shard,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub id: ConnectionId,
    /// What the caller said about it.
    pub info: ConnectionInfo,
    /// The selected database.
    pub db: u32,
    /// The protocol.
    pub version: Version,
    /// `CLIENT SETNAME`
    pub name: Vec<u8>,
    /// `CLIENT SETINFO LIB-NAME`
    pub library_name: Vec<u8>,
    /// `CLIENT SETINFO LIB-VER`
    pub library_version: Vec<u8>,
    /// Whether it has said who it is, where that is asked.
    pub is_authenticated: bool,
    /// Who it is.
    pub(crate) user: Arc<User>,
    /// Whether no request of it needs to be checked for who it is.
    pub(crate) may_do_all: bool,
    /// The transaction being queued.
    pub transaction: Option<Transaction>,
    /// Whether it watches keys.
    pub is_watching: bool,
    /// The keys that it watches, by their databases and positions.
    pub(crate) watched: BTreeSet<(u32, Position)>,
    /// What these take here and in the shards that watch them, in this shard's account.
    pub(crate) watched_held: Held,
    /// How much its buffers hold, as their owner says.
    pub(crate) buffers: Arc<ClientBuffers>,
    /// The other shards that watch keys for it.
    pub watching_shards: BTreeSet<ShardId>,
    /// What it listens to.
    channels: BTreeSet<(ChannelKind, Vec<u8>)>,
    /// How many there are of each kind.
    channel_counts: [usize; 3],
    /// What they take of memory.
    channel_bytes: usize,
    /// The same of all copies of their names, in the account of the shard's subscriptions.
    listening: Held,
    /// Whether replies are sent.
    pub reply_mode: ReplyMode,
    /// Whether the request that is being carried out is not to be answered.
    pub(crate) is_muted: bool,
    /// `CLIENT TRACKING`
    pub(crate) tracking: Option<Box<Tracking>>,
    /// `CLIENT NO-EVICT`
    pub is_kept: bool,
    /// `MONITOR`
    pub is_monitor: bool,
    /// `CLIENT NO-TOUCH`
    pub is_untouching: bool,
    /// When it came, by the monotonic clock.
    pub created_us: u64,
    /// When it last sent a request.
    pub used_us: u64,
    /// The name of its last command.
    pub last_command: &'static str,
    /// Whether it must not be served any more.
    pub is_closing: bool,
    /// Whether a request was put off: the caller waits for a sign.
    pub is_blocked: bool,
    /// Uploaded arguments of requests that were taken, and their shards.
    pub uploads: Vec<(ShardId, ValueId)>,
    /// The change of users that it has asked for last.
    pub(crate) users_change: Option<TaskId>,
    pending: Vec<(TaskId, Position)>,
    barriers: Vec<TaskId>,
}

impl Session {
    /// `CLIENT REPLY SKIP` holds for one request; `mode` is what held for the one that is here now.
    pub(crate) fn end_skip(&mut self, mode: ReplyMode) {
        if mode == ReplyMode::SkipNext {
            self.reply_mode = ReplyMode::On;
        }
    }

    /// A new connection.
    pub fn new(id: ConnectionId, info: ConnectionInfo, users: &Users, now: Now) -> Self {
        let mut session = Session {
            id,
            info,
            db: 0,
            version: Version::Resp2,
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            is_authenticated: false,
            user: Arc::clone(users.default_user()),
            may_do_all: false,
            transaction: None,
            is_watching: false,
            watched: BTreeSet::new(),
            watched_held: Held::default(),
            buffers: Arc::default(),
            watching_shards: BTreeSet::new(),
            channels: BTreeSet::new(),
            channel_counts: [0; 3],
            channel_bytes: 0,
            listening: Held::default(),
            reply_mode: ReplyMode::On,
            is_muted: false,
            tracking: None,
            is_kept: false,
            is_monitor: false,
            is_untouching: false,
            created_us: now.monotonic_us,
            used_us: now.monotonic_us,
            last_command: "NULL",
            is_closing: false,
            is_blocked: false,
            uploads: Vec::new(),
            users_change: None,
            pending: Vec::new(),
            barriers: Vec::new(),
        };
        session.become_default(users);
        session
    }

    /// Whether nothing stands in the way of a plain data command.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.may_do_all
            && self.transaction.is_none()
            && self.barriers.is_empty()
            && self.reply_mode == ReplyMode::On
            && !self.is_closing
            && self.tracking.is_none()
            && (self.channels.is_empty() || self.version == Version::Resp3)
    }

    /// Whether something of it is suspended.
    #[inline]
    pub fn has_suspended(&self) -> bool {
        !self.pending.is_empty() || !self.barriers.is_empty()
    }

    /// How many of its requests are suspended, about: one with several keys counts for each.
    pub fn suspended(&self) -> usize {
        self.pending.len() + self.barriers.len()
    }

    /// Whether something of it is suspended that everything else waits for.
    pub fn has_barrier(&self) -> bool {
        !self.barriers.is_empty()
    }

    /// Whether it has asked for a change of users, and waits for the answer.
    pub(crate) fn waits_for_users(&self) -> bool {
        self.users_change.is_some_and(|task| self.barriers.contains(&task))
    }

    /// Whether a data command on these positions must wait for suspended ones: two reads of a key as well,
    /// or the later one could see what is older.
    #[inline]
    pub fn conflicts(&self, positions: &[Position]) -> bool {
        if !self.has_suspended() {
            return false;
        }
        // What names no key (`DBSIZE`) is about all of them.
        positions.is_empty()
            || !self.barriers.is_empty()
            || self.pending.len() + positions.len() > PENDING_MAX
            || self.pending.iter().any(|(_, position)| positions.contains(position))
    }

    /// Notes a suspended data command.
    pub fn suspend(&mut self, task: TaskId, positions: &[Position]) {
        if positions.is_empty() {
            self.suspend_all(task);
        }
        self.pending.extend(positions.iter().map(|position| (task, *position)));
    }

    /// Notes a suspended command that everything else waits for.
    pub fn suspend_all(&mut self, task: TaskId) {
        self.barriers.push(task);
    }

    /// Forgets a command that is no longer suspended.
    pub fn resume(&mut self, task: TaskId) {
        // The positions of a command lie side by side, and who asked first is mostly answered first.
        if let Some(first) = self.pending.iter().position(|(other, _)| *other == task) {
            let count = self.pending[first..].iter().take_while(|(other, _)| *other == task).count();
            self.pending.drain(first..first + count);
        }
        self.barriers.retain(|other| *other != task);
    }

    /// Its suspended requests.
    pub(crate) fn all_suspended(&self) -> Vec<TaskId> {
        let all = self.barriers.iter().chain(self.pending.iter().map(|(task, _)| task));
        let mut all: Vec<TaskId> = all.copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// How many channels of the kinds that `UNSUBSCRIBE` counts it listens to. Cost: constant.
    pub fn subscriptions(&self, kind: ChannelKind) -> usize {
        match kind {
            ChannelKind::Shard => self.channels_of(ChannelKind::Shard),
            ChannelKind::Channel | ChannelKind::Pattern => {
                self.channels_of(ChannelKind::Channel) + self.channels_of(ChannelKind::Pattern)
            }
        }
    }

    /// How many channels of one kind it listens to. Cost: constant.
    pub fn channels_of(&self, kind: ChannelKind) -> usize {
        self.channel_counts[kind as usize]
    }

    /// Their names, in order.
    pub(crate) fn names_of(&self, kind: ChannelKind) -> impl Iterator<Item = &[u8]> {
        let from = self.channels.range((kind, Vec::new())..);
        from.take_while(move |(other, _)| *other == kind).map(|(_, name)| name.as_slice())
    }

    /// What it listens to, in order.
    pub fn channels(&self) -> &BTreeSet<(ChannelKind, Vec<u8>)> {
        &self.channels
    }

    /// Listens to one more, whose name lies in `copies` places in all; false: `account` has no room for them.
    pub(crate) fn listen(
        &mut self,
        account: &Account,
        copies: usize,
        kind: ChannelKind,
        name: &[u8],
    ) -> bool {
        let bytes = CHANNEL_BYTES + name.len();
        let is_known = self.channels.contains(&(kind, name.to_vec()));
        if !is_known && !account.has_room(self.channel_bytes, copies * bytes) {
            return false;
        }
        if self.channels.insert((kind, name.to_vec())) {
            self.channel_counts[kind as usize] += 1;
            self.channel_bytes += bytes;
            self.listening.add(account, copies * bytes);
        }
        true
    }

    /// Listens to one less.
    pub(crate) fn leave(&mut self, copies: usize, kind: ChannelKind, name: &[u8]) {
        if self.channels.remove(&(kind, name.to_vec())) {
            let bytes = CHANNEL_BYTES + name.len();
            self.channel_counts[kind as usize] -= 1;
            self.channel_bytes -= bytes;
            self.listening.give_back(copies * bytes);
        }
    }

    /// Bytes of memory of what it listens to, and of the prefixes that it tracks. Cost: constant.
    pub fn channel_bytes(&self) -> usize {
        self.channel_bytes + self.tracking.as_ref().map_or(0, |tracking| tracking.prefixes_held.own_bytes())
    }

    /// Bytes of the names that it has given itself. Cost: constant.
    pub(crate) fn name_bytes(&self) -> usize {
        self.name.capacity() + self.library_name.capacity() + self.library_version.capacity()
    }

    /// Bytes of what it has queued and of the keys that it watches. Cost: constant.
    pub(crate) fn transaction_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |queue| queue.size_bytes);
        queued + self.watched.len() * WATCHED_BYTES
    }

    /// Whether it may only listen: the state of a subscriber of protocol 2.
    pub fn is_listening_only(&self) -> bool {
        self.version == Version::Resp2 && !self.channels.is_empty()
    }
}
