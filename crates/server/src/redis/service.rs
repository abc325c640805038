//! One driver thread's Redis service: a parser for each connection, one executor for its shard.
//!
//! Invariants:
//! 1. A connection's replies leave in the order of its requests: a suspended one keeps its place in the
//!    reply queue.
//! 2. A reply carries the sequence that it observed and leaves when that is durable.
//! 3. A throttled engine stops the intake: requests stay unparsed in their connections' input.
//! 4. What a connection has asked is carried out until that was much work ([`TURN_WORK_MAX`]), or there is no more; the rest
//!    waits for the next turn, and others are served before.
//! 5. When the node stops, an engine is shut only after the connections of all shards have ended, since
//!    their last requests may need it; or after half of the time that a stop may take.

mod evict;
mod pipeline;
mod replies;
mod rounds;

use super::ahead::Ahead;
use super::clients::ClientLedger;
use super::incoming::Incoming;
use super::mail::{ToNode, ToShard};
use super::metrics::NewestNumbers;
use crate::connections::Connections;
use crate::gate::{ReplyQueue, SlotId};
use crate::mailbox::{MailReceiver, MailSender};
use crate::service::{ConnectionId, ConnectionMemory, Peer, Received, Service, Want};
use crate::settings::TransportChange;
use crossbeam_channel::Sender;
use evict::Eviction;
pub(super) use rounds::Serving;
use rounds::transport_of;
pub use rounds::{HEARTBEAT_INTERVAL_US, Heartbeat};
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tierstone_base::collections::Map;
use tierstone_base::{Error, Now, Seq, ShardId};
use tierstone_engine::{Admission, Engine, Health};
use tierstone_media::{IoCompletion, IoRequest};
use tierstone_redis::clients::{BufferSizes, CLIENTS_BYTES_MAX, ClientBuffers};
use tierstone_redis::{Args, ConnectionInfo, Executor, Outcome, Output, TURN_WORK_MAX};
use tierstone_store::TaskId;
use tierstone_wire::resp::{Arguments, Progress, ReplyWriter, RequestLimits, RequestParser, Version};

/// What clients of other machines are told while they are kept out.
pub(super) const PROTECTED: &[u8] = b"-DENIED this server is in protected mode: it needs no password, and so it lets in clients of its own machine only. Give it a password (--password, CONFIG SET requirepass or ACL SETUSER default), or, where everybody who reaches it may do everything, say so with --protected-mode no or CONFIG SET protected-mode no\r\n";

/// What commands know of the peer of a connection.
pub(super) fn info_of(peer: &Peer) -> ConnectionInfo {
    match peer {
        Peer::Tcp { address, local } => ConnectionInfo {
            address: address.to_string(),
            local_address: local.to_string(),
            is_remote: !peer.is_local(),
        },
        Peer::Unix => {
            ConnectionInfo { address: "unix:0".into(), local_address: "unix:0".into(), is_remote: false }
        }
    }
}

/// What a service is made of.
#[derive(Debug)]
pub struct ServiceParts<E> {
    /// The shard's executor.
    pub executor: Executor<E>,
    /// Which shard.
    pub shard: ShardId,
    /// Messages for this shard.
    pub mail: MailReceiver<ToShard>,
    /// To each shard's thread, by number.
    pub shards: Vec<MailSender<ToShard>>,
    /// To the node's thread.
    pub node: Sender<ToNode>,
    /// Where the numbers go.
    pub snapshots: NewestNumbers,
    /// Limits of requests.
    pub limits: RequestLimits,
    /// What the connections' buffers may take, as their transport is told
    /// ([`crate::TransportSettings::buffer_bytes_max`]); 0 for no bound.
    pub buffer_bytes_max: usize,
    /// What the clients of all shards take, shared by all.
    pub clients: Arc<ClientLedger>,
    /// How many shards have connections, or are not stopping: shared by all, all of them to begin with.
    pub serving: Arc<AtomicUsize>,
    /// How long a stopping shard waits for connections, its own and the others', in microseconds.
    pub stop_patience_us: u64,
    /// Where the shard's thread shows that it turns; `None`: nobody looks.
    pub heartbeat: Option<Heartbeat>,
}

/// The Redis service of one driver thread.
#[derive(Debug)]
pub struct RedisService<E> {
    pub(super) executor: Executor<E>,
    shard: ShardId,
    mail: MailReceiver<ToShard>,
    shards: Vec<MailSender<ToShard>>,
    node: Sender<ToNode>,
    snapshots: NewestNumbers,
    limits: RequestLimits,
    pub(super) buffer_bytes_max: usize,
    /// Connections by the id that the executor knows them by.
    names: Map<u64, ConnectionId>,
    next_name: u64,
    /// Replies of which a part was given and the next was not asked for yet.
    streams: Vec<(ConnectionId, TaskId)>,
    /// Connections that wait until the engine wants work again, until what is pushed has left the executor, or until others
    /// have had their turn.
    throttled: Vec<ConnectionId>,
    /// Which turn it is.
    turn: u64,
    ahead: Ahead,
    /// What was gathered of inputs that are to be shown.
    coming: Ahead,
    outputs: Vec<Output>,
    incoming: Vec<ToShard>,
    outgoing: Vec<Vec<ToShard>>,
    snapshot_due_us: u64,
    /// Requests carried out when the numbers were told last.
    told_commands: u64,
    told_failure: bool,
    serving: Serving,
    stop_patience_us: u64,
    /// When the engine is shut at the latest, once the shard is stopping.
    stop_by_us: Option<u64>,
    stop_check_due_us: u64,
    shut: bool,
    heartbeat: Option<Heartbeat>,
    heartbeat_due_us: u64,
    /// Changed settings of the transport that the driver was not told yet.
    transport: Vec<TransportChange>,
    /// The same of what encrypted connections are set up from.
    tls: Option<Arc<ServerConfig>>,
    eviction: Eviction,
}

/// What is kept for each connection.
#[derive(Debug)]
pub struct RedisConnection {
    pub(super) name: u64,
    pub(super) parser: RequestParser,
    pub(super) arguments: Arguments,
    authenticated: bool,
    /// Places kept for suspended requests.
    slots: Vec<(TaskId, SlotId)>,
    /// A request of which a large argument is uploaded while it is received.
    pub(super) incoming: Option<Incoming>,
    /// Where commands find how much its buffers hold.
    buffers: Arc<ClientBuffers>,
    /// The longest argument that the parser takes, in bytes.
    argument_bytes_max: u64,
    /// The turn in which it was served last, and its work in that.
    turn: (u64, u64),
}

impl RedisConnection {
    /// Whether its client has authenticated itself, where that is asked.
    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Whether its next input begins with a request, of which nothing has come before.
    pub(super) fn is_between_requests(&self) -> bool {
        self.incoming.is_none() && self.parser.is_between_requests()
    }

    /// Has the next request parsed by limits with this longest argument, if none has begun.
    fn limit_arguments(&mut self, limits: RequestLimits, bytes_max: u64) {
        if self.argument_bytes_max != bytes_max && self.is_between_requests() {
            self.argument_bytes_max = bytes_max;
            self.parser = RequestParser::new(limited(limits, bytes_max));
            self.parser.set_authenticated(self.authenticated);
        }
    }
}

/// Limits with arguments of at most so many bytes.
fn limited(limits: RequestLimits, argument_bytes_max: u64) -> RequestLimits {
    let bytes_max = usize::try_from(argument_bytes_max).unwrap_or(usize::MAX);
    RequestLimits { bulk_size_max_bytes: limits.bulk_size_max_bytes.min(bytes_max), ..limits }
}

impl<E: Engine> RedisService<E> {
    /// The service of one shard's thread.
    pub fn new(parts: ServiceParts<E>) -> Self {
        let outgoing = parts.shards.iter().map(|_| Vec::new()).collect();
        let eviction = Eviction::new(parts.clients, parts.executor.clients_bytes_max());
        RedisService {
            executor: parts.executor,
            shard: parts.shard,
            mail: parts.mail,
            shards: parts.shards,
            node: parts.node,
            snapshots: parts.snapshots,
            limits: parts.limits,
            buffer_bytes_max: parts.buffer_bytes_max,
            names: Map::default(),
            next_name: 0,
            streams: Vec::new(),
            throttled: Vec::new(),
            turn: 0,
            ahead: Ahead::default(),
            coming: Ahead::default(),
            outputs: Vec::new(),
            incoming: Vec::new(),
            outgoing,
            snapshot_due_us: 0,
            told_commands: u64::MAX,
            told_failure: false,
            serving: Serving::new(parts.serving),
            stop_patience_us: parts.stop_patience_us,
            stop_by_us: None,
            stop_check_due_us: 0,
            shut: false,
            heartbeat: parts.heartbeat,
            heartbeat_due_us: 0,
            transport: Vec::new(),
            tls: None,
            eviction,
        }
    }

    /// What carries requests out.
    pub fn executor(&self) -> &Executor<E> {
        &self.executor
    }

    /// One request; gives what the driver should do instead of going on, if anything.
    pub(super) fn request(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: &mut RedisConnection,
        args: Args<'_>,
        output: &mut ReplyQueue,
    ) -> Option<Want> {
        if connection.turn.0 != self.turn {
            connection.turn = (self.turn, 0);
        }
        let has_worked = connection.turn.1 >= TURN_WORK_MAX;
        if has_worked || self.executor.admission() == Admission::Throttled || self.executor.has_much_to_push()
        {
            self.throttled.push(id);
            return Some(Want::Pause);
        }
        self.executor.take_work();
        self.executor.take_messages(connection.name, |gate, message| output.push(gate, message));
        if let Some(error) = connection.incoming.as_mut().and_then(|incoming| incoming.failure.take()) {
            connection.incoming = None;
            output.push_with(0, |reply| self.executor.fail_upload(connection.name, &error, reply));
            return None;
        }
        // Only what was uploaded outlives its input.
        let whole = connection.incoming.as_ref().map(|incoming| {
            let mut whole = incoming.args.clone();
            whole.extend(args.from(0));
            whole
        });
        let args_of_all = whole.as_ref().map_or(args, |whole| whole.args());
        let outcome = output.push_gated(
            |reply| self.executor.request(now, connection.name, args_of_all, reply),
            |outcome| match outcome {
                Outcome::Ready { gate } | Outcome::Close { gate } => Some(*gate),
                Outcome::Suspended(_) | Outcome::Forwarded(_) | Outcome::Blocked => None,
            },
        );
        connection.turn.1 += self.executor.take_work();
        match outcome {
            Outcome::Ready { .. } => {}
            Outcome::Suspended(task) => connection.slots.push((task, output.reserve())),
            Outcome::Forwarded(task) => connection.slots.push((task, output.reserve_soon())),
            Outcome::Blocked => return Some(Want::Pause),
            Outcome::Close { .. } => return Some(Want::Close),
        }
        connection.incoming = None;
        // Of all commands `RESET` alone takes it back.
        if !connection.authenticated || args.get(0).is_some_and(|name| name.eq_ignore_ascii_case(b"reset")) {
            connection.authenticated = self.executor.is_authenticated(connection.name);
            connection.parser.set_authenticated(connection.authenticated);
        }
        None
    }

    fn take_mail(&mut self, now: Now) {
        let mut incoming = std::mem::take(&mut self.incoming);
        self.mail.receive(&mut incoming);
        for message in incoming.drain(..) {
            match message {
                ToShard::Message { from, message } => self.executor.message(now, from, message),
                ToShard::Map(map) => {
                    let version = map.version;
                    self.executor.apply_map(&map);
                    self.tell_node(ToNode::MapApplied { version });
                }
                ToShard::MapChanged { task, result } => self.executor.map_changed(now, task, result),
                ToShard::UsersRead { task, file } => self.executor.users_read(now, task, file),
                ToShard::Tls(config) => self.tls = Some(config),
                ToShard::LookAtClients => self.look_at_clients(),
            }
        }
        self.incoming = incoming;
    }

    fn tell_node(&self, message: ToNode) {
        // Without a listener the process is ending, and nobody waits for an answer.
        let _ = self.node.send(message);
    }

    fn carry_out(&mut self, connections: &mut Connections<RedisConnection>) {
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            match output {
                Output::Reply { .. }
                | Output::Replies(_)
                | Output::Waits { .. }
                | Output::Part { .. }
                | Output::Push { .. }
                | Output::Pushes { .. }
                | Output::Close { .. } => self.reply(output, connections),
                Output::Resume { connection } => {
                    if let Some(&id) = self.names.get(&connection) {
                        connections.resume(id);
                    }
                }
                Output::ChangeMap(request) => self.tell_node(ToNode::ChangeMap {
                    shard: self.shard,
                    task: request.task,
                    change: request.change,
                }),
                Output::RewriteSettings { task, changed } => {
                    self.tell_node(ToNode::RewriteSettings { shard: self.shard, task, changed });
                }
                Output::ReadUsers { task } => self.tell_node(ToNode::ReadUsers { shard: self.shard, task }),
                Output::WriteUsers { task, bytes } => {
                    self.tell_node(ToNode::WriteUsers { shard: self.shard, task, bytes });
                }
                Output::Setting { name, value } => {
                    self.follow_setting(&name, &value);
                    self.tell_node(ToNode::Setting { shard: self.shard, name, value });
                }
                Output::SettingElsewhere { name, value } => self.follow_setting(&name, &value),
                Output::Send { to, message } => {
                    if let Some(batch) = self.outgoing.get_mut(usize::from(to)) {
                        batch.push(ToShard::Message { from: self.shard, message });
                    }
                }
                Output::Shutdown { at_once } => self.tell_node(ToNode::Stop { at_once }),
            }
        }
        self.outputs = outputs;
        for (batch, shard) in self.outgoing.iter_mut().zip(&self.shards) {
            if !batch.is_empty() {
                shard.send(batch);
            }
        }
    }

    /// Notes what a changed setting means for the driver.
    fn follow_setting(&mut self, name: &str, value: &str) {
        self.transport.extend(super::config::transport_change(name, value, self.shards.len()));
        if name.eq_ignore_ascii_case(CLIENTS_BYTES_MAX) {
            self.follow_clients_bytes_max();
        }
    }

    fn resume_throttled(&mut self, connections: &mut Connections<RedisConnection>) {
        if !self.throttled.is_empty() && self.executor.admission() == Admission::Open {
            for id in self.throttled.drain(..) {
                connections.resume(id);
            }
        }
    }

    /// Asks for the next parts of replies whose last ones were taken.
    fn pull(&mut self, now: Now, connections: &mut Connections<RedisConnection>) {
        if self.streams.is_empty() {
            return;
        }
        for (id, task) in std::mem::take(&mut self.streams) {
            let Some((output, state)) = connections.output(id).zip(connections.state(id)) else { continue };
            // Replies that wait behind it are no reason to wait.
            let is_its = |(held, slot): &(TaskId, SlotId)| *held == task && output.wants_part_of(*slot);
            if state.slots.iter().any(is_its) {
                self.executor.pull(now, task);
            } else {
                self.streams.push((id, task));
            }
        }
        let mut outputs = std::mem::take(&mut self.outputs);
        self.executor.drain_outputs(&mut outputs);
        self.outputs = outputs;
        self.carry_out(connections);
    }
}

impl<E: Engine> Service for RedisService<E> {
    type Connection = RedisConnection;

    fn connect(
        &mut self,
        now: Now,
        id: ConnectionId,
        peer: &Peer,
    ) -> std::result::Result<RedisConnection, Vec<u8>> {
        if !peer.is_local() && self.executor.is_protected() {
            return Err(PROTECTED.to_vec());
        }
        // Ids of different shards never meet, and grow in the order of connections.
        let name = self.next_name * self.shards.len() as u64 + u64::from(self.shard) + 1;
        self.next_name += 1;
        self.executor.connect(now, name, info_of(peer));
        self.names.insert(name, id);
        let authenticated = self.executor.is_authenticated(name);
        let buffers = self.executor.client_buffers(name);
        let argument_bytes_max = self.executor.argument_bytes_max();
        let mut parser = RequestParser::new(limited(self.limits, argument_bytes_max));
        parser.set_authenticated(authenticated);
        Ok(RedisConnection {
            name,
            parser,
            arguments: Arguments::new(),
            authenticated,
            slots: Vec::new(),
            incoming: None,
            buffers,
            argument_bytes_max,
            turn: (0, 0),
        })
    }

    fn too_many_connections(&self) -> &[u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn too_much_input(&self) -> &[u8] {
        b"-ERR Protocol error: the request takes too much memory, or too long while others wait for memory\r\n"
    }

    fn receive(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: &mut RedisConnection,
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> Received {
        // What other shards told before this client asked is known when it asks.
        self.take_mail(now);
        connection.buffers.note_input(input.len());
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            connection.limit_arguments(self.limits, self.executor.argument_bytes_max());
            if rest.is_empty() {
                return Received { consumed, want: Want::More { missing: 1 } };
            }
            if output.is_full() {
                return Received { consumed, want: Want::Drain };
            }
            if connection.is_uploading() {
                let (taken, want) = self.take_upload(now, id, connection, rest, output);
                consumed += taken;
                match want {
                    None => continue,
                    Some(want) => return Received { consumed, want },
                }
            }
            if consumed == 0
                && let Some((taken, want)) = self.foreseen(now, id, connection, input, output)
            {
                consumed = taken;
                if let Some(want) = want {
                    return Received { consumed, want };
                }
                continue;
            }
            match connection.parser.parse(rest, &mut connection.arguments) {
                Ok(Progress::Complete { consumed: len }) => {
                    let (taken, want) = self.requests(now, id, connection, (rest, len), output);
                    consumed += taken;
                    if let Some(want) = want {
                        return Received { consumed, want };
                    }
                }
                Ok(Progress::Skipped { consumed: len }) => consumed += len,
                Ok(Progress::Incomplete { needed_hint }) => {
                    match self.begin_upload(now, connection, rest, output) {
                        Some((taken, None)) => consumed += taken,
                        Some((_, Some(want))) => return Received { consumed, want },
                        None => return Received { consumed, want: Want::More { missing: needed_hint } },
                    }
                }
                Err(error) => {
                    output
                        .push_with(0, |bytes| ReplyWriter::new(bytes, Version::Resp2).protocol_error(&error));
                    return Received { consumed, want: Want::Close };
                }
            }
        }
    }

    fn foresee(&mut self, connection: &mut RedisConnection, input: &[u8]) -> bool {
        self.gather_coming(connection, input)
    }

    fn disconnect(&mut self, _id: ConnectionId, connection: RedisConnection) {
        self.names.remove(&connection.name);
        self.executor.disconnect(connection.name);
    }

    fn step(
        &mut self,
        now: Now,
        completions: &mut Vec<IoCompletion>,
        requests: &mut Vec<IoRequest>,
        connections: &mut Connections<RedisConnection>,
    ) {
        self.coming.end_turn();
        self.turn += 1;
        self.take_mail(now);
        self.go_on_stopping(now, connections.is_empty());
        self.executor
            .note_connection_bytes(connections.buffered_bytes() as u64, self.buffer_bytes_max as u64);
        self.executor.note_transport(transport_of(connections.report()));
        let mut outputs = std::mem::take(&mut self.outputs);
        self.executor.step(now, completions, &mut outputs);
        self.outputs = outputs;
        self.carry_out(connections);
        self.pull(now, connections);
        self.executor.take_requests(requests);
        self.resume_throttled(connections);
        self.look_at_all_clients(connections);
        self.tell_closed(now);
        if let Some(config) = self.tls.take() {
            connections.set_tls(config);
        }
        for change in self.transport.drain(..) {
            connections.change_setting(change);
        }
        self.tell_numbers(now, connections);
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.beat();
            self.heartbeat_due_us = now.monotonic_us + HEARTBEAT_INTERVAL_US;
        }
    }

    fn memory(&self, connection: &RedisConnection, sizes: BufferSizes) -> ConnectionMemory {
        connection.buffers.note(sizes);
        self.client_memory(connection)
    }

    fn is_listening(&self, connection: &RedisConnection) -> bool {
        self.executor.is_listening(connection.name)
    }

    /// A stranger who asks and asks, and takes no answer, holds nothing for long.
    fn may_drain(&self, connection: &RedisConnection) -> bool {
        connection.authenticated
    }

    fn evict(&mut self, now: Now, connections: &mut Connections<RedisConnection>) -> Option<ConnectionId> {
        self.client_to_close(now, connections)
    }

    fn durable_seq(&self) -> Seq {
        self.executor.durable_seq()
    }

    fn next_step_at_us(&self) -> Option<u64> {
        let untold = self.told_commands != self.executor.counters().commands;
        let tell = untold.then_some(self.snapshot_due_us);
        let stop = (self.stop_by_us.is_some() && !self.shut).then_some(self.stop_check_due_us);
        let beat = self.heartbeat.is_some().then_some(self.heartbeat_due_us);
        let closed = self.eviction.next_step_at_us();
        [self.executor.next_step_at_us(), tell, stop, beat, closed].into_iter().flatten().min()
    }

    fn stop(&mut self, now: Now, _connections: &mut Connections<RedisConnection>) {
        self.stop_by_us = Some(now.monotonic_us + self.stop_patience_us);
        self.eviction.stop();
    }

    fn is_quiet(&self) -> bool {
        self.shut && self.executor.shard().engine().is_shut()
    }

    fn failure(&self) -> Option<Error> {
        match self.executor.health() {
            Health::Failed(error) => Some(error),
            Health::Good => None,
        }
    }
}

#[cfg(test)]
#[path = "service_test.rs"]
mod service_test;
