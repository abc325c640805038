//! `CLIENT TRACKING`: clients keep copies of what they read, and are told when a key has changed.
//!
//! Each shard notes who has read its keys ([`tierstone_store::tracking`]) in the turn of the read, and tells the
//! shard of a client's connection which of its copies are stale; that shard tells the client, or the connection
//! that it is redirected to.
//!
//! Invariants:
//! 1. An invalidation leaves when its write is durable: until then nobody is shown the new value either, and a crash
//!    may take it back. It never leaves before the answers to reads of the old value, which wait for no more than
//!    that. Who reads again sees the write, which was applied before the key was found to be stale.
//! 2. The note of a read is made behind the place that its reply has in the connection's queue, so what it leads to
//!    comes behind that reply: a client that is told on the connection that it reads on never keeps what is
//!    stale. Who is redirected has to see to that itself, as with Redis.
//! 3. A batch over several shards notes its reads under its locks, before anybody else can write.
//! 4. When databases are emptied or swapped, all clients are told to forget everything, after all shards use the
//!    new databases; what a shard has noted before is forgotten when it begins to use them.
//! 5. While nobody tracks anything a write costs one comparison, and so does a read.

use crate::args::Args;
use crate::control::{Host, Output};
use crate::executor::Executor;
use crate::remote::Message;
use crate::session::{ConnectionId, Queued, Session};
use crate::settings::Settings;
use crate::table::{Action, Command, flag};
use crate::task::{Origin, Task, Work};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{Now, ShardId};
use tierstone_engine::Engine;
use tierstone_store::message::OwnedKey;
use tierstone_store::{Holder, Stale, TaskId};
use tierstone_wire::resp::{ReplyWriter, Version};

mod prefixes;

pub(crate) use prefixes::PrefixesHeld;

/// The setting that says of how many keys copies are noted, at all shards together.
pub(crate) const KEYS_MAX: &str = "tracking-table-max-keys";

/// Where subscribers of protocol 2 hear what other connections' copies have become.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Which reads of a connection are noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All.
    All,
    /// Those behind `CLIENT CACHING YES`.
    OptIn,
    /// All but those behind `CLIENT CACHING NO`.
    OptOut,
    /// None: it is told of all changes of keys with its prefixes.
    Broadcast,
}

/// What a connection tracks.
#[derive(Clone, Debug)]
pub(crate) struct Tracking {
    pub mode: Mode,
    /// `NOLOOP`
    pub is_deaf: bool,
    /// Who is told instead, and its shard.
    pub redirect: Option<(ConnectionId, ShardId)>,
    /// Whether that connection was found to have gone.
    pub is_broken: bool,
    /// `CLIENT CACHING`
    pub is_caching: bool,
    pub prefixes: BTreeSet<Vec<u8>>,
    pub prefixes_held: PrefixesHeld,
}

impl Tracking {
    /// Whether what is read now is to be noted.
    fn remembers(&self) -> bool {
        match self.mode {
            Mode::All => true,
            Mode::OptIn => self.is_caching,
            Mode::OptOut => !self.is_caching,
            Mode::Broadcast => false,
        }
    }
}

/// For whom a command runs, where its client tracks, or does not use what it reads.
#[derive(Clone, Copy, Debug)]
pub struct Tracker {
    holder: Holder,
    remembers: bool,
    is_deaf: bool,
    is_untouching: bool,
}

/// One message about copies.
#[derive(Clone, Debug)]
pub enum TrackingMessage {
    /// A client of the sender wants to be told of changes of keys with these prefixes, and of no others.
    Follow {
        /// The sender's task, if it waits: the answer is a number, 0, or one more than your own if you have the
        /// connection `redirect`.
        ticket: Option<TaskId>,
        /// The client.
        client: ConnectionId,
        /// The prefixes.
        prefixes: Vec<Vec<u8>>,
        /// The connection that is looked for.
        redirect: Option<ConnectionId>,
    },
    /// A client of the sender has read these keys under locks that are still held.
    Remember {
        /// The client.
        client: ConnectionId,
        /// The keys.
        keys: Vec<Remembered>,
    },
    /// These copies of a client of the receiver are stale.
    Stale(Stale),
    /// All copies of all clients are stale.
    AllStale,
    /// Tell this client of yours which copies of a client of the sender are stale; none: all.
    Redirected {
        /// Who is told.
        to: ConnectionId,
        /// Whose copies.
        of: ConnectionId,
        /// The keys.
        keys: Option<Vec<Vec<u8>>>,
    },
    /// The connection that a client of the receiver is redirected to has gone.
    Broken {
        /// The client.
        client: ConnectionId,
    },
}

/// A key that was read under locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The database.
    pub db: u32,
    /// The key.
    pub key: Vec<u8>,
    /// When what was read expires, in milliseconds since 1970; 0: never, or it was not there.
    pub expiry_ms: u64,
    /// Whether the same batch has written it: its record may expire at another time.
    pub is_written: bool,
}

/// What a batch has read, by shards, and for whom.
pub(crate) type RememberedBy = Option<(ConnectionId, BTreeMap<ShardId, Vec<Remembered>>)>;

impl TrackingMessage {
    fn to(self, to: ShardId) -> Output {
        Output::Send { to, message: Message::Tracking(self) }
    }
}

/// What a transaction has read and written, in the order of its commands.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Databases and keys that were read.
    reads: BTreeSet<(u32, Vec<u8>)>,
    writes: BTreeSet<Vec<u8>>,
    /// Keys that were written after they had been read.
    rewritten: BTreeSet<Vec<u8>>,
}

impl Touched {
    /// By `commands`, which began in database `db` of so many.
    pub fn by(commands: &[Queued], mut db: u32, databases: u32) -> Self {
        let mut touched = Touched::default();
        // Of any database.
        let mut read: BTreeSet<&[u8]> = BTreeSet::new();
        for queued in commands.iter().filter(|queued| queued.refused.is_none()) {
            let (command, args) = (queued.command, queued.args.args());
            if command.name == "select" {
                let number = crate::number::integer(args.at(1)).and_then(|number| u32::try_from(number).ok());
                db = number.filter(|number| *number < databases).unwrap_or(db);
            }
            if !matches!(command.action, Action::Data(_)) {
                continue;
            }
            for key in command.keys.indexes(args).map(|index| args.at(index)) {
                if command.has(flag::READONLY) {
                    touched.reads.insert((db, key.to_vec()));
                    read.insert(key);
                    continue;
                }
                touched.writes.insert(key.to_vec());
                if read.contains(key) {
                    touched.rewritten.insert(key.to_vec());
                }
            }
        }
        touched
    }
}

impl Session {
    /// For whom it has its commands run, if it tracks or does not use what it reads.
    pub(crate) fn tracker(&self, shard: ShardId) -> Option<Tracker> {
        let tracking = self.tracking.as_deref();
        let holder = Holder { client: self.id, shard };
        (tracking.is_some() || self.is_untouching).then(|| Tracker {
            holder,
            remembers: tracking.is_some_and(Tracking::remembers),
            is_deaf: tracking.is_some_and(|tracking| tracking.is_deaf),
            is_untouching: self.is_untouching,
        })
    }

    /// A request was carried out, or refused: `CLIENT CACHING` is about one request, or one transaction.
    #[inline]
    pub(crate) fn end_caching(&mut self, command: Option<&Command>) {
        if let Some(tracking) = &mut self.tracking
            && self.transaction.is_none()
            && !command.is_some_and(|command| command.name.starts_with("client|"))
        {
            tracking.is_caching = false;
        }
    }
}

impl Host {
    /// A connection tracks something else from now on, or nothing.
    pub(crate) fn change_tracking(&mut self, connection: ConnectionId, tracking: Option<Tracking>) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        let tracking = tracking.map(Box::new);
        let is_on = usize::from(tracking.is_some());
        let old = std::mem::replace(&mut session.tracking, tracking);
        self.trackers = self.trackers + is_on - usize::from(old.is_some());
        self.tracking_before.get_or_insert((connection, old));
    }

    /// Takes back what the run of a transaction has changed that did not come to its end.
    pub(crate) fn restore_tracking(&mut self) {
        let Some((connection, old)) = self.tracking_before.take() else { return };
        self.change_tracking(connection, old.map(|old| *old));
        self.tracking_before = None;
    }

    /// Tells `client`, or the connection that it is redirected to, that its copies of these keys are stale; none: all.
    fn tell_stale(&mut self, own: ShardId, client: ConnectionId, keys: Option<Vec<Vec<u8>>>) {
        let Some(tracking) = self.sessions.get(&client).and_then(|session| session.tracking.as_ref()) else {
            return;
        };
        match tracking.redirect {
            None => self.push_stale(client, keys.as_deref(), false),
            Some((to, shard)) if shard != own => {
                self.outputs.push(TrackingMessage::Redirected { to, of: client, keys }.to(shard));
            }
            Some((to, _)) if self.sessions.contains_key(&to) => self.push_stale(to, keys.as_deref(), true),
            Some(_) => self.redirection_broke(client),
        }
    }

    /// Tells a connection of this shard that copies are stale, its own or those of who is redirected to it.
    fn push_stale(&mut self, to: ConnectionId, keys: Option<&[Vec<u8>]>, is_redirected: bool) {
        let Some(session) = self.sessions.get(&to) else { return };
        let mut bytes = Vec::new();
        let mut message = ReplyWriter::new(&mut bytes, session.version);
        match session.version {
            Version::Resp3 => {
                message.push(2);
                message.bulk(b"invalidate");
            }
            Version::Resp2 if is_redirected && !session.channels().is_empty() => {
                message.array(3);
                message.bulk(b"message");
                message.bulk(CHANNEL);
            }
            // Protocol 2 has no words for it.
            Version::Resp2 => return,
        }
        match keys {
            None => message.null(),
            Some(keys) => {
                message.array(keys.len());
                keys.iter().for_each(|key| message.bulk(key));
            }
        }
        self.outputs.push(Output::Push { connection: to, bytes, gate: 0 });
    }

    /// The connection has gone that `client` is redirected to.
    fn redirection_broke(&mut self, client: ConnectionId) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        let Some(tracking) = &mut session.tracking else { return };
        let Some((to, _)) = tracking.redirect else { return };
        tracking.is_broken = true;
        if session.version == Version::Resp3 {
            let mut bytes = Vec::new();
            let mut message = ReplyWriter::new(&mut bytes, session.version);
            message.push(2);
            message.bulk(b"tracking-redir-broken");
            message.integer(to as i64);
            self.outputs.push(Output::Push { connection: client, bytes, gate: 0 });
        }
    }
}

impl<E: Engine> Executor<E> {
    /// For whom `connection` has a command run, if it tracks or does not use what it reads.
    #[inline]
    pub(crate) fn tracker_of(&self, connection: ConnectionId) -> Option<Tracker> {
        if self.host.trackers == 0 && !self.host.has_untouching {
            return None;
        }
        self.host.sessions.get(&connection)?.tracker(self.shard.index())
    }

    /// Whether what a command or transaction over several shards reads counts as used.
    pub(crate) fn uses_what_it_reads(&self, id: TaskId) -> bool {
        let task = self.tasks.get(&id);
        task.is_some_and(|task| match &task.work {
            Work::Coordinated(work) => {
                work.commands.iter().any(|queued| is_use(task.tracker, queued.command))
            }
            _ => true,
        })
    }

    /// A data command has been run for `tracker`'s client just now: notes what it has read.
    pub(crate) fn remember(
        &mut self,
        now: Now,
        tracker: Option<Tracker>,
        db: u32,
        command: &Command,
        args: Args<'_>,
    ) {
        let Some(tracker) = tracker.filter(|tracker| tracker.remembers) else { return };
        let Some(keyspace) = self.shard.map().keyspace(db) else { return };
        if !command.has(flag::READONLY) {
            return;
        }
        for index in command.keys.indexes(args) {
            self.shard.remember(now, (keyspace, args.at(index)), tracker.holder, 0);
        }
    }

    /// The same of a transaction, which `connection` has made in database `db`.
    pub(crate) fn remember_transaction(
        &mut self,
        now: Now,
        tracker: Option<Tracker>,
        (connection, db): (ConnectionId, u32),
        commands: &[Queued],
    ) {
        self.follow_transaction();
        let Some(tracker) = self.tracker_behind(tracker, connection, commands) else { return };
        let touched = Touched::by(commands, db, self.shard.map().databases());
        for (db, key) in &touched.reads {
            if let Some(keyspace) = self.shard.map().keyspace(*db) {
                self.shard.remember(now, (keyspace, key), tracker.holder, 0);
            }
        }
        self.refuse_rewritten(tracker, touched.rewritten);
    }

    /// Has the shards know what a connection follows whose tracking the run of a transaction has changed.
    pub(crate) fn follow_transaction(&mut self) {
        let Some((client, old)) = self.host.tracking_before.take() else { return };
        let now = self.host.sessions.get(&client).and_then(|session| session.tracking.as_deref());
        let follows = |tracking: &Tracking| tracking.mode == Mode::Broadcast;
        let prefixes = now.filter(|now| follows(now)).map(|now| now.prefixes.clone()).unwrap_or_default();
        if !prefixes.is_empty() || old.is_some_and(|old| follows(&old)) {
            let holder = Holder { client, shard: self.shard.index() };
            self.follow_prefixes(holder, prefixes.iter().cloned().collect());
            self.tell_prefixes(None, client, &prefixes, None);
        }
    }

    /// `tracker` if what a transaction has read is to be noted: as it was asked for before, or within it.
    fn tracker_behind(
        &mut self,
        tracker: Option<Tracker>,
        connection: ConnectionId,
        commands: &[Queued],
    ) -> Option<Tracker> {
        let asks = |queued: &Queued| matches!(queued.command.name, "client|caching" | "client|tracking");
        let has_asked = commands.iter().any(asks);
        let after = self.tracker_of(connection).filter(|_| has_asked);
        if has_asked && let Some(session) = self.host.sessions.get_mut(&connection) {
            session.end_caching(None);
        }
        [tracker, after].into_iter().flatten().find(|tracker| tracker.remembers)
    }

    /// A transaction has written keys that it had read: what it gave its client is stale with its reply.
    fn refuse_rewritten(&mut self, tracker: Tracker, keys: BTreeSet<Vec<u8>>) {
        if !tracker.is_deaf {
            keys.iter().for_each(|key| self.shard.tracking.refuse(key, tracker.holder));
        }
    }

    /// A command or transaction over several shards, which began in database `db`, has come to its end: finds what
    /// it has read.
    pub(crate) fn remember_batch(&mut self, task: &mut Task, db: u32) {
        self.follow_transaction();
        if let Work::Coordinated(work) = &task.work {
            let expiry_ms = |key: &OwnedKey| work.gathered.expiry_ms(key);
            let remembered = self.remembered_by(task, (&work.commands, db), expiry_ms);
            if let Work::Coordinated(work) = &mut task.work {
                work.remembered = remembered;
            }
        }
    }

    fn remembered_by(
        &mut self,
        task: &Task,
        (commands, db): (&[Queued], u32),
        expiry_ms: impl Fn(&OwnedKey) -> u64,
    ) -> RememberedBy {
        let tracker = match task.origin {
            Origin::Connection(connection) => self.tracker_behind(task.tracker, connection, commands)?,
            Origin::Shard(..) => task.tracker.filter(|tracker| tracker.remembers)?,
        };
        let touched = Touched::by(commands, db, self.shard.map().databases());
        let mut shards: BTreeMap<ShardId, Vec<Remembered>> = BTreeMap::new();
        for (db, bytes) in touched.reads {
            let Some(keyspace) = self.shard.map().keyspace(db) else { continue };
            let key = OwnedKey { keyspace, position: self.shard.position(&bytes), bytes };
            let shard = key.position.shard(self.shard.count());
            let expiry_ms = expiry_ms(&key);
            let is_written = touched.writes.contains(&key.bytes);
            let remembered = Remembered { db, key: key.bytes, expiry_ms, is_written };
            shards.entry(shard).or_default().push(remembered);
        }
        self.refuse_rewritten(tracker, touched.rewritten);
        Some((tracker.holder.client, shards))
    }

    /// Tells the shards what [`Executor::remember_batch`] has found; the locks are still held.
    pub(crate) fn send_remembered(&mut self, remembered: RememberedBy) {
        let Some((client, shards)) = remembered else { return };
        for (to, keys) in shards {
            self.host.outputs.push(TrackingMessage::Remember { client, keys }.to(to));
        }
    }

    /// Has the clients' shards, this one too, tell which copies have become stale.
    pub(crate) fn tell_stale(&mut self) {
        if !self.shard.tracking.has_stale() {
            return;
        }
        let gate = self.shard.gate(self.shard.engine().applied_seq());
        for stale in self.shard.tracking.take_stale() {
            let to = stale.holder.shard;
            self.send_gated(to, Message::Tracking(TrackingMessage::Stale(stale)), gate);
        }
    }

    /// Copies of a client of this shard are stale. It may have turned to another way of tracking since.
    fn stale_here(&mut self, stale: Stale) {
        let client = stale.holder.client;
        let tracking = self.host.sessions.get(&client).and_then(|session| session.tracking.as_ref());
        if tracking.is_some_and(|tracking| stale.is_broadcast == (tracking.mode == Mode::Broadcast)) {
            self.host.tell_stale(self.shard.index(), client, Some(stale.keys));
        }
    }

    /// What `task` has waited for is done at all shards: if the databases have changed, all copies are stale.
    pub(crate) fn tell_all_stale(&mut self, task: TaskId) {
        if matches!(self.tasks.get(&task).map(|task| &task.work), Some(Work::ChangeMap)) {
            self.send_everywhere(|_| Message::Tracking(TrackingMessage::AllStale));
        }
    }

    /// Takes a message of this kind.
    pub(crate) fn tracking_message(&mut self, now: Now, from: ShardId, message: TrackingMessage) {
        match message {
            TrackingMessage::Follow { ticket, client, prefixes, redirect } => {
                self.follow_prefixes(Holder { client, shard: from }, prefixes);
                if let Some(ticket) = ticket {
                    let is_here = redirect.is_some_and(|id| self.host.sessions.contains_key(&id));
                    let value = if is_here { u64::from(self.shard.index()) + 1 } else { 0 };
                    let message = Message::Number { ticket, value };
                    self.host.outputs.push(Output::Send { to: from, message });
                }
            }
            TrackingMessage::Remember { client, keys } => {
                let holder = Holder { client, shard: from };
                for Remembered { db, key, expiry_ms, is_written } in keys {
                    let Some(keyspace) = self.shard.map().keyspace(db) else { continue };
                    if is_written {
                        self.shard.remember(now, (keyspace, &key), holder, expiry_ms);
                    } else {
                        self.shard.remember_seen((keyspace, &key), holder, expiry_ms);
                    }
                }
            }
            TrackingMessage::Stale(stale) => self.stale_here(stale),
            TrackingMessage::AllStale => {
                let tracks = |session: &&Session| session.tracking.is_some();
                let clients = self.host.sessions.values().filter(tracks).map(|session| session.id);
                let clients: BTreeSet<ConnectionId> = clients.collect();
                let own = self.shard.index();
                clients.into_iter().for_each(|client| self.host.tell_stale(own, client, None));
            }
            TrackingMessage::Redirected { to, of, keys } => {
                if self.host.sessions.contains_key(&to) {
                    self.host.push_stale(to, keys.as_deref(), true);
                } else {
                    self.host.outputs.push(TrackingMessage::Broken { client: of }.to(from));
                }
            }
            TrackingMessage::Broken { client } => self.host.redirection_broke(client),
        }
    }

    /// A client wants to be told of changes of keys with these prefixes, and of no others.
    pub(crate) fn follow_prefixes(&mut self, holder: Holder, prefixes: Vec<Vec<u8>>) {
        let had_any = self.shard.tracking.has_prefixes();
        self.shard.tracking.follow(holder, prefixes);
        if self.shard.tracking.has_prefixes() != had_any {
            self.follow_events();
        }
    }

    /// A connection of this shard tracks nothing any more: takes its tracking.
    pub(crate) fn stop_tracking(&mut self, connection: ConnectionId, tracking: Option<Box<Tracking>>) {
        let Some(tracking) = tracking else { return };
        self.host.trackers -= 1;
        if tracking.mode != Mode::Broadcast {
            return;
        }
        self.follow_prefixes(Holder { client: connection, shard: self.shard.index() }, Vec::new());
        self.tell_prefixes(None, connection, &BTreeSet::new(), None);
    }

    /// Tells the other shards which prefixes a connection of this one follows.
    pub(crate) fn tell_prefixes(
        &mut self,
        ticket: Option<TaskId>,
        client: ConnectionId,
        prefixes: &BTreeSet<Vec<u8>>,
        redirect: Option<ConnectionId>,
    ) {
        let own = self.shard.index();
        for to in (0..self.shard.count()).filter(|shard| *shard != own) {
            let prefixes = prefixes.iter().cloned().collect();
            let message = TrackingMessage::Follow { ticket, client, prefixes, redirect };
            self.host.outputs.push(message.to(to));
        }
    }

    /// How many clients of this shard track what they read; of how many of its keys copies are noted, and how many
    /// copies; how many prefixes are followed.
    pub fn tracked(&self) -> [u64; 4] {
        let table = &self.shard.tracking;
        [self.host.trackers as u64, table.keys(), table.items(), table.prefixes()]
    }

    /// Follows the setting about the table's size.
    pub(crate) fn follow_tracking(&mut self) {
        let all = self.host.settings.integer(KEYS_MAX).unwrap_or(0).unsigned_abs();
        let keys_max = all.div_ceil(u64::from(self.shard.count()));
        let bytes_max = usize::try_from(self.host.held_bytes_max / 2).unwrap_or(usize::MAX);
        self.shard.tracking.set_limits(keys_max, bytes_max);
    }
}

/// Whether what `command` reads counts as used: not what only asks about keys, nor what a client reads that does not touch them.
pub(crate) fn is_use(tracker: Option<Tracker>, command: &Command) -> bool {
    let is_untouching = tracker.is_some_and(|tracker| tracker.is_untouching) && command.name != "touch";
    !is_untouching && !command.has(flag::NO_USE)
}

/// Who is not told of what `tracker`'s client writes.
pub(crate) fn writer_of(tracker: Option<Tracker>) -> Option<ConnectionId> {
    tracker.filter(|tracker| tracker.is_deaf).map(|tracker| tracker.holder.client)
}

/// Adds the setting, with Redis's first value.
pub(crate) fn add_settings(settings: &mut Settings) {
    use crate::settings::SettingKind::Integer;
    settings.add(KEYS_MAX, "1000000", Integer { min: 0, max: i64::MAX }, true);
}
