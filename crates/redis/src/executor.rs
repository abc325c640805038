//! One shard's executor: connections' requests in, replies out.
//!
//! Its owner (the server's driver of this shard, or a test) does this in turns:
//! 1. [`Executor::request`] for each request of each connection, in order. A reply that is ready may be
//!    sent when [`Executor::durable_seq`] has reached its gate. For a suspended request the owner keeps
//!    the reply's place. After [`Outcome::Blocked`] it keeps the request and the rest of that
//!    connection's input, and offers it again after [`Output::Resume`].
//! 2. [`Executor::step`] with what the device has completed; then the outputs.
//!
//! Invariants:
//! 1. A request has its effect in one piece, between two others, or not at all.
//! 2. Every suspended request is answered once, unless its connection has gone.
//! 3. A request that is answered at once costs no allocation for plain `GET` and `SET`.

use crate::account::Account;
use crate::acl::Users;
use crate::args::Args;
use crate::backup::Backups;
use crate::bundle::Bundles;
use crate::control::{Counters, EngineFacts, Host, Output, ServerFacts};
use crate::expected::ExpectedReplies;
use crate::latency::Spikes;
use crate::making::{Making, Plan};
use crate::retries::{Retries, Tries};
use crate::session::{ChannelKind, ConnectionId, ConnectionInfo, Session};
use crate::settings::{
    ACL_LOG_MAX, DURABILITY, EVICTION, PASSWORD, SCRUB_RATE, Setting, Settings, format_eviction,
};
use crate::slowlog::SlowLog;
use crate::stream::ReplyPart;
use crate::task::{State, Task, Work};
use crate::tracking::Tracker;
use crate::upload::{Ticket, Uploads};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierstone_base::collections::Map;
use tierstone_base::{CpuClock, KeyspaceId, Now, Position, Seq, ShardId};
use tierstone_engine::{Admission, Engine, Eviction, Health, PREFETCHED_KEYS};
use tierstone_media::{IoCompletion, IoRequest};
use tierstone_store::participant::{Outgoing, Participant};
use tierstone_store::{DatabaseMap, Shard, ShardEvent, ShardSettings, TaskId, Workspace};

/// What an executor is told when it is made.
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// The shard's part.
    pub shard: ShardSettings,
    /// The longest value in bytes; less where the engine's records are so small that a map has no room
    /// for more chunks.
    pub value_size_max_bytes: u64,
    /// Who connects must say this first; empty: nothing.
    pub password: String,
    /// Who may do what; `None`: there is only the user `default`, with this password.
    pub users: Option<Arc<Users>>,
    /// The most bytes that the queued commands of one transaction may take.
    pub transaction_size_max_bytes: usize,
    /// The most bytes that requests of this shard may hold which have not come to their end; and, for each
    /// transaction or command over several shards, the most bytes of values and replies.
    pub held_bytes_max: u64,
    /// What is done when memory or space is used up.
    pub eviction: Eviction,
    /// What is known about the server.
    pub facts: ServerFacts,
    /// First values of settings of the executor's own, checked ([`crate::settings::check_own`]).
    pub values: Vec<(String, String)>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its reply is written (perhaps it has none).
    Ready {
        /// The sequence that must be durable before the reply is sent.
        gate: Seq,
    },
    /// Its reply comes later, as [`Output::Reply`] with this id; its place is here.
    Suspended(TaskId),
    /// The same, and the reply is likely to come within a round of messages; [`Output::Waits`] says if not.
    Forwarded(TaskId),
    /// Nothing has happened: offer it again after [`Output::Resume`].
    Blocked,
    /// Its reply is written, and the connection ends behind it.
    Close {
        /// The sequence that must be durable before the reply is sent.
        gate: Seq,
    },
}

/// One shard with everything that its connections are about.
#[derive(Debug)]
pub struct Executor<E> {
    pub(crate) shard: Shard<E>,
    pub(crate) host: Host,
    pub(crate) tasks: Map<TaskId, Box<Task>>,
    pub(crate) workspace: Workspace,
    pub(crate) scratch: Vec<u8>,
    pub(crate) positions: Vec<Position>,
    /// Tasks that the engine was too busy for.
    pub(crate) retries: Retries,
    /// Walks whose pages were not looked at whole.
    pub(crate) walking: BTreeSet<TaskId>,
    /// Tasks that wait for a sequence to be durable.
    pub(crate) durable_waits: BTreeMap<(Seq, TaskId), ()>,
    /// Tasks that wait for a time.
    pub(crate) timers: BTreeMap<(u64, TaskId), ()>,
    pub(crate) participant: Participant,
    /// What replies that are waited for will take.
    pub(crate) expected: ExpectedReplies,
    pub(crate) backups: Backups,
    /// The tasks of the batches that this shard coordinates, by number.
    pub(crate) batches: BTreeMap<u64, TaskId>,
    /// Those among them that begin anew when this shard has the map of that version.
    pub(crate) awaiting_map: BTreeSet<(u64, TaskId)>,
    pub(crate) outgoing: Outgoing,
    /// Requests for other shards, and answers to theirs.
    pub(crate) bundles: Bundles,
    /// Other answers to other shards that wait for a sequence to be durable.
    pub(crate) gated: BTreeMap<(Seq, u64), Output>,
    pub(crate) transaction_size_max_bytes: usize,
    pub(crate) uploads: Uploads,
    /// The large values of the reply of the last run.
    pub(crate) parts: Vec<ReplyPart>,
    /// What the last run wants made, and what was made for it.
    pub(crate) plan: Plan,
    /// Large values that are being made.
    pub(crate) makings: BTreeMap<Ticket, Making>,
    /// Replies that are sent to other shards piece by piece.
    pub(crate) streams_for: BTreeMap<(ShardId, TaskId), TaskId>,
    /// Replies that come from other shards piece by piece.
    pub(crate) streams_from: BTreeMap<TaskId, ShardId>,
    /// The slow commands of all shards, at the one that keeps them.
    pub(crate) slow_log: SlowLog,
    /// The spikes of all shards, at the same one.
    pub(crate) spikes: Spikes,
    /// The parts of `WATCH` that wait here, by who watches.
    pub(crate) watching: BTreeSet<(ConnectionId, TaskId)>,
    /// For whom the next run is, where its client keeps copies.
    pub(crate) tracker: Option<Tracker>,
    events: Vec<ShardEvent>,
    /// What requests that follow will touch.
    foreseen: Vec<(KeyspaceId, Position)>,
}

impl<E: Engine> Executor<E> {
    /// An executor over `engine`.
    pub fn new(engine: E, settings: ExecutorSettings) -> Self {
        let databases = settings.shard.map.databases();
        let (durability, mut shard) = (settings.shard.durability, Shard::new(engine, settings.shard));
        shard.engine_mut().set_eviction(settings.eviction);
        let longest = tierstone_store::large::value_bytes_max(shard.value_ids().chunk_bytes());
        let mut registry = Settings::new(databases, settings.value_size_max_bytes.min(longest), durability);
        registry.set(PASSWORD, &settings.password);
        let users = settings.users.unwrap_or_else(|| Arc::new(Users::with_password(&settings.password)));
        registry.set(EVICTION, format_eviction(settings.eviction));
        for (name, Setting { value, kind, is_settable }) in &settings.facts.settings {
            registry.add(name, value, kind.clone(), *is_settable);
        }
        settings.values.iter().for_each(|(name, value)| registry.set(name, value));
        let scrub_rate = registry.with_housekeeping(shard.engine_mut()).scrub_rate(shard.count());
        shard.engine_mut().set_scrub_rate(scrub_rate);
        registry.forget_changes();
        let place = (shard.index(), shard.count());
        let mut host = Host::new(settings.facts, registry, users, place);
        (host.held_bytes_max, host.account) =
            (settings.held_bytes_max, Account::new(settings.held_bytes_max));
        host.listening = Account::new(settings.held_bytes_max / 2);
        let mut executor = Executor {
            expected: ExpectedReplies::of(&shard.engine().statistics()),
            shard,
            host,
            tasks: Map::default(),
            workspace: Workspace::default(),
            scratch: Vec::new(),
            positions: Vec::new(),
            retries: Retries::default(),
            walking: BTreeSet::new(),
            durable_waits: BTreeMap::new(),
            timers: BTreeMap::new(),
            participant: Participant::default(),
            backups: Backups::default(),
            batches: BTreeMap::new(),
            awaiting_map: BTreeSet::new(),
            outgoing: Outgoing::new(),
            bundles: Bundles::new(place.1),
            gated: BTreeMap::new(),
            transaction_size_max_bytes: settings.transaction_size_max_bytes,
            uploads: Uploads::default(),
            parts: Vec::new(),
            plan: Plan::default(),
            makings: BTreeMap::new(),
            streams_for: BTreeMap::new(),
            streams_from: BTreeMap::new(),
            slow_log: SlowLog::default(),
            spikes: Spikes::default(),
            watching: BTreeSet::new(),
            tracker: None,
            events: Vec::new(),
            foreseen: Vec::with_capacity(PREFETCHED_KEYS),
        };
        executor.follow_all();
        executor
    }

    /// Follows the first values of the settings.
    fn follow_all(&mut self) {
        self.follow_tracking();
        self.follow_timing();
        self.follow_events();
    }

    /// Gives the clock that commands are timed with; without it they are timed with that of the turns, by which
    /// what is answered at once takes no time.
    pub fn set_clock(&mut self, clock: Box<dyn CpuClock>) {
        self.host.timing.set_clock(clock);
    }

    /// The next request is the first of a pipeline, or follows another one: to be told before each request, or
    /// never.
    #[inline]
    pub fn note_pipelined(&mut self, is_pipelined: bool) {
        self.host.timing.offered(is_pipelined);
    }

    /// The requests of a pipeline of more than one have been made.
    pub fn end_pipeline(&mut self, now: Now) {
        self.host.timing.end_pipeline(now);
    }

    /// A connection has come. Its id must never have been used before (by any shard).
    pub fn connect(&mut self, now: Now, connection: ConnectionId, info: ConnectionInfo) {
        self.host.counters.connections += 1;
        let session = Session::new(connection, info, &self.host.users, now);
        self.host.sessions.insert(connection, session);
    }

    /// A connection has gone. What it has suspended comes to its end; nobody is told.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        let Some(session) = self.host.sessions.remove(&connection) else { return };
        let shard = (self.shard.index(), self.shard.count());
        for (kind, name) in session.channels() {
            self.host.unsubscribe(shard, *kind, name, connection);
        }
        let suspended = session.all_suspended();
        self.host.stop_monitor(connection);
        self.stop_tracking(connection, session.tracking);
        if session.is_watching {
            self.unwatch(connection);
        }
        self.stop_streams(&suspended);
        self.abandon_backup(connection);
        self.abandon_uploads(connection);
        self.uploads.leave_behind(suspended, session.uploads);
    }

    /// Whether a connection has authenticated itself, where that is asked: its parser's limits follow.
    pub fn is_authenticated(&self, connection: ConnectionId) -> bool {
        let users = &self.host.users;
        self.host.sessions.get(&connection).is_some_and(|session| !session.must_authenticate(users))
    }

    /// Requests of `connection` with these first arguments follow, which are keys nearly always: says beside each which
    /// position it has ([`Args::Located`]), and keeps what the next [`Executor::prefetch`] asks for. A hint; beyond
    /// [`PREFETCHED_KEYS`] nothing is kept.
    pub fn foresee<'a>(
        &mut self,
        connection: ConnectionId,
        keys: impl Iterator<Item = (&'a [u8], &'a mut Option<Position>)>,
    ) {
        let Some(session) = self.host.sessions.get(&connection) else { return };
        let Some(keyspace) = self.shard.map().keyspace(session.db) else { return };
        for (bytes, place) in keys {
            let position = self.shard.position(bytes);
            *place = Some(position);
            if self.foreseen.len() < PREFETCHED_KEYS && self.shard.owns(position) {
                self.foreseen.push((keyspace, position));
            }
        }
    }

    /// Has the processor fetch what the requests that were foreseen will touch. One alone finds it as quickly by itself.
    pub fn prefetch(&mut self) {
        if self.foreseen.len() > 1 {
            self.shard.engine_mut().prefetch(&self.foreseen);
        }
        self.foreseen.clear();
    }

    /// One step of the shard: device completions in, what became known out. To be called when there
    /// are completions, messages or requests since the last, and at [`Executor::next_step_at_us`].
    pub fn step(&mut self, now: Now, completions: &mut Vec<IoCompletion>, outputs: &mut Vec<Output>) {
        self.go_on_walking(now);
        let mut events = std::mem::take(&mut self.events);
        self.shard.step(now, completions, &mut events);
        for event in events.drain(..) {
            match event {
                ShardEvent::Fetched { task, failure, .. } => self.fetched(now, task, failure),
                ShardEvent::Scanned { task, entries, next, error } => {
                    self.scanned(now, task, entries, next, error);
                }
            }
        }
        self.events = events;
        self.tell_gone(now);
        self.run_retries(now);
        self.poll_participant(now);
        self.poll_uploads(now);
        self.poll_backup(now);
        self.finish_waits(now);
        self.end_pause(now);
        if self.host.throughput.note(now.monotonic_us, self.host.counters.commands) {
            self.host.note_memory(&self.shard.engine().statistics());
        }
        self.tell_stale();
        self.drain_outputs(outputs);
    }

    /// What came up since the last step (messages of channels, changes of the databases): the same
    /// outputs that a step would give.
    pub fn drain_outputs(&mut self, outputs: &mut Vec<Output>) {
        outputs.append(&mut self.host.outputs);
        self.host.pushes.clear();
        self.send_bundles(outputs);
    }

    /// Tries again what waits for room or for old records. Where the store is cleaned, hundreds of writes may wait.
    fn run_retries(&mut self, now: Now) {
        let mut tries = Tries::default();
        while let Some(task) = self.retries.next(&mut tries) {
            if let Some(state) = self.tasks.get_mut(&task) {
                state.state = State::Events;
                self.run_task(now, task);
                self.retries.note_tried(&mut tries, task);
            }
        }
    }

    /// Ends what waited for durability or for a time.
    fn finish_waits(&mut self, now: Now) {
        let durable = self.shard.engine().decided_seq();
        while let Some(entry) = self.durable_waits.first_entry()
            && entry.key().0 <= durable
        {
            let task = entry.remove_entry().0.1;
            self.finish_durable_wait(now, task);
        }
        while let Some(entry) = self.gated.first_entry()
            && entry.key().0 <= durable
        {
            let output = entry.remove();
            self.host.outputs.push(output);
        }
        self.bundles.release(durable);
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now.monotonic_us
        {
            let task = entry.remove_entry().0.1;
            self.finish(now, task, b"+OK\r\n", 0, false);
        }
    }

    fn finish_durable_wait(&mut self, now: Now, task: TaskId) {
        let Some(state) = self.tasks.get_mut(&task) else { return };
        if let Work::AwaitDurable { reply, sets_last_save, .. } = &mut state.work {
            let reply = std::mem::take(reply);
            if *sets_last_save {
                self.host.note_saved(now.wall_ms / 1_000);
            }
            self.finish(now, task, reply, 0, false);
        }
    }

    fn end_pause(&mut self, now: Now) {
        if self.host.pause.is_some_and(|pause| pause.until_us <= now.monotonic_us) {
            self.host.pause = None;
            self.resume_blocked();
        }
    }

    /// Tells the owner that put-off requests may be offered again.
    pub(crate) fn resume_blocked(&mut self) {
        let mut blocked: Vec<ConnectionId> = self
            .host
            .sessions
            .values()
            .filter(|session| session.is_blocked)
            .map(|session| session.id)
            .collect();
        blocked.sort_unstable();
        for connection in blocked {
            self.resume_session(connection);
        }
    }

    pub(crate) fn resume_session(&mut self, connection: ConnectionId) {
        if let Some(session) = self.host.sessions.get_mut(&connection)
            && std::mem::take(&mut session.is_blocked)
        {
            self.host.outputs.push(Output::Resume { connection });
        }
    }

    /// Appends the engine's device requests.
    pub fn take_requests(&mut self, requests: &mut Vec<IoRequest>) {
        self.shard.engine_mut().take_requests(requests);
    }

    /// When a step is wanted even if nothing happens, by the monotonic clock.
    pub fn next_step_at_us(&self) -> Option<u64> {
        let has_untold = !self.host.outputs.is_empty()
            || self.bundles.has_any_to_send()
            || self.shard.tracking.has_stale();
        let is_retried = !self.retries.is_empty() || self.participant.has_deferred();
        let retry = (is_retried || !self.walking.is_empty() || has_untold).then_some(0);
        let timer = self.timers.first_key_value().map(|((at, _), ())| *at);
        let pause = self.host.pause.map(|pause| pause.until_us);
        let backup = self.backups.next_step_at_us();
        [
            retry,
            timer,
            pause,
            backup,
            self.host.events.due_us(),
            self.upload_step_at_us(),
            self.shard.next_step_at_us(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Every reply whose gate is at most this may be sent: what it observed is durable, batches over
    /// several shards on all of them.
    pub fn durable_seq(&self) -> Seq {
        self.shard.engine().decided_seq()
    }

    /// Whether the engine can still make writes durable. When not, nothing above the durable sequence
    /// is ever answered.
    pub fn health(&self) -> Health {
        self.shard.engine().health()
    }

    /// Whether more requests are wanted before the next step.
    pub fn admission(&self) -> Admission {
        self.shard.engine().admission()
    }

    /// Takes note of the bytes in the buffers of the shard's connections, and of their bound: the engine's
    /// cache makes room for them and for what requests hold.
    pub fn note_connection_bytes(&mut self, bytes: u64, bytes_max: u64) {
        self.host.connection_bytes = (bytes, bytes_max);
        let kept = self.shard.key_events.bytes() + self.shard.tracking.bytes();
        let kept = kept + self.bundles.kept_bytes() as u64;
        let outside = bytes + self.host.account.bytes() + self.host.listening.bytes() + kept;
        self.shard.engine_mut().note_outside_bytes(outside);
    }

    /// Requests that wait now, but for those that are on their way to another shard and are answered there at once.
    pub fn suspended(&self) -> usize {
        self.tasks.len()
    }

    /// Whether batches over several shards are open here. A client may be told that one was refused before all
    /// shards have taken it back, so that they go on when nobody waits any more.
    pub fn has_batches(&self) -> bool {
        !self.batches.is_empty() || !self.awaiting_map.is_empty() || !self.participant.is_empty()
    }

    /// The settings, to which the owner may add its own.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.host.settings
    }

    /// The shard.
    pub fn shard(&self) -> &Shard<E> {
        &self.shard
    }

    /// The shard, for the owner's own work (checkpoints, library calls).
    pub fn shard_mut(&mut self) -> &mut Shard<E> {
        &mut self.shard
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.host.counters
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.host.sessions.len()
    }

    /// Changes a setting here alone, other than the durability: no client has asked for it.
    pub fn apply_setting(&mut self, name: &str, value: &str) {
        if !name.eq_ignore_ascii_case(DURABILITY) {
            self.host.settings.set(name, value);
            self.follow_own(name);
        }
    }

    fn follow_own(&mut self, name: &str) {
        if crate::slowlog::is_about_time(name) {
            self.follow_timing();
        }
        if name.eq_ignore_ascii_case(crate::tracking::KEYS_MAX) {
            self.follow_tracking();
        }
        if name.eq_ignore_ascii_case(crate::events::EVENTS) {
            self.follow_events();
        }
        if name.eq_ignore_ascii_case(ACL_LOG_MAX) {
            self.host.trim_acl_log();
        }
        if name.eq_ignore_ascii_case(EVICTION) {
            let eviction = self.host.settings.eviction();
            self.shard.engine_mut().set_eviction(eviction);
        }
        if name.eq_ignore_ascii_case(SCRUB_RATE) {
            let rate = self.host.settings.scrub_rate(self.shard.count());
            self.shard.engine_mut().set_scrub_rate(rate);
        }
    }

    /// Carries out what a setting means that a client of this shard has changed, and tells the other shards.
    pub(crate) fn follow_setting(&mut self, now: Now, name: &str) {
        self.carry_out_setting(now, name);
        self.tell_setting(name);
    }

    /// Carries out what a changed setting means here.
    pub(crate) fn carry_out_setting(&mut self, now: Now, name: &str) {
        if name.eq_ignore_ascii_case(DURABILITY) {
            let durability = self.host.settings.durability();
            self.shard.set_durability(now, durability);
        }
        self.follow_own(name);
    }

    /// Takes over a changed map that is durable.
    pub fn apply_map(&mut self, map: &DatabaseMap) {
        self.shard.apply_map(map);
    }

    /// The change that `task` asked for ([`Output::ChangeMap`]) is durable and applied by every shard;
    /// or it has failed.
    pub fn map_changed(&mut self, now: Now, task: TaskId, result: tierstone_base::Result<()>) {
        match result {
            Ok(()) => {
                self.tell_all_stale(task);
                self.finish(now, task, b"+OK\r\n", 0, false);
            }
            Err(error) => {
                self.finish(now, task, crate::context::error_line("", &error), 0, false);
            }
        }
    }

    /// Gives a message that was published at another shard to this one's listeners.
    pub fn deliver(&mut self, kind: ChannelKind, channel: &[u8], payload: &[u8]) -> usize {
        crate::commands::pubsub::deliver(&mut self.host, kind, channel, payload, 0)
    }

    /// What the engine says about itself.
    pub fn engine_facts(&self) -> EngineFacts {
        let engine = self.shard.engine();
        EngineFacts {
            statistics: engine.statistics(),
            applied: engine.applied_seq(),
            durable: engine.durable_seq(),
            health: engine.health(),
            keys: self.shard.map().keyspaces().iter().map(|keyspace| engine.len(*keyspace)).collect(),
            shard: (self.shard.index(), self.shard.count()),
            untold_expirations: self.shard.key_events.left_out(),
            tracked: [
                self.shard.tracking.keys(),
                self.shard.tracking.items(),
                self.shard.tracking.prefixes(),
            ],
        }
    }

    /// Collects the positions of a request's keys.
    pub(crate) fn collect_positions(&mut self, command: &crate::table::Command, args: Args<'_>) {
        self.positions.clear();
        for index in command.keys.indexes(args) {
            self.positions.push(self.shard.position(args.at(index)));
        }
    }
}
