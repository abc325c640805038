//! Servers in one thread: any number of shards, connections and an engine that makes requests wait.

pub mod both;
pub mod fetching_engine;
pub mod large;
pub mod random_requests;
pub mod sequences;
pub mod string_model;

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;
use tierstone_base::{KeyHasher, Now, SeededRandom, Seq};
use tierstone_engine::{Durability, Engine};
use tierstone_redis::{
    Args, ConnectionId, ConnectionInfo, Executor, ExecutorSettings, MapRequest, Message, Outcome, Output,
    OwnedArgs, ServerFacts,
};
use tierstone_store::{DatabaseMap, ShardSettings};
use tierstone_wire::resp::{ReplyLimits, ReplyParser, ReplyProgress, Value};

/// Turns without an answer after which a request counts as lost.
const LOST_TURNS: u32 = 20_000;

enum Slot {
    Ready { bytes: Vec<u8>, gate: Seq },
    Waiting(u64),
}

struct Connection {
    shard: usize,
    requests: VecDeque<OwnedArgs>,
    slots: VecDeque<Slot>,
    received: Vec<u8>,
    is_blocked: bool,
    is_closed: bool,
    ends: bool,
    /// Pieces of replies, and those whose next piece will be asked for.
    parts: BTreeMap<u64, Vec<u8>>,
    pulls: Vec<u64>,
    part_bytes_max: usize,
}

/// Shards and connections, driven by one loop.
pub struct Server<E> {
    pub executors: Vec<Executor<E>>,
    pub now: Now,
    map: DatabaseMap,
    connections: BTreeMap<ConnectionId, Connection>,
    next_connection: ConnectionId,
    pub settings_told: Vec<(String, String)>,
    pub is_shut_down: bool,
    /// What the file of users holds.
    pub users_file: Vec<u8>,
    /// Whether connections take pieces of replies.
    pub is_pulling: bool,
    /// Chooses when messages between shards, and changed maps of databases, arrive; none: at once.
    pub delays: Option<SeededRandom>,
    /// Messages on their way, in the order of each pair of shards.
    mail: BTreeMap<(usize, usize), VecDeque<Message>>,
    /// Maps of databases on their way to each shard.
    maps: Vec<VecDeque<DatabaseMap>>,
    /// Who asked for the map of each version, and how many shards do not have it yet.
    changes: BTreeMap<u64, (usize, u64, usize)>,
}

/// Gives keys their positions.
pub static HASHER: LazyLock<KeyHasher> = LazyLock::new(|| KeyHasher::new([7, 11]));

pub fn settings(index: u16, count: u16) -> ExecutorSettings {
    ExecutorSettings {
        shard: ShardSettings {
            index,
            count,
            map: DatabaseMap::new(16),
            index_kind: Default::default(),
            hasher: *HASHER,
            durability: Durability::Sync,
            record_bytes_max: 1 << 20,
        },
        value_size_max_bytes: 512 << 20,
        password: String::new(),
        users: None,
        transaction_size_max_bytes: 64 << 20,
        held_bytes_max: 64 << 20,
        eviction: Default::default(),
        facts: ServerFacts::default(),
        values: Vec::new(),
    }
}

impl<E: Engine> Server<E> {
    /// A server with one shard an engine.
    pub fn new(engines: impl IntoIterator<Item = E>) -> Self {
        Self::with_records(engines, 1 << 20)
    }

    /// The same with engines whose records take up to `record_bytes_max` bytes.
    pub fn with_records(engines: impl IntoIterator<Item = E>, record_bytes_max: u64) -> Self {
        Self::with_facts(engines, record_bytes_max, ServerFacts::default())
    }

    /// The same with what is known about the server.
    pub fn with_facts(
        engines: impl IntoIterator<Item = E>,
        record_bytes_max: u64,
        facts: ServerFacts,
    ) -> Self {
        let engines: Vec<E> = engines.into_iter().collect();
        let count = engines.len() as u16;
        let executors = engines
            .into_iter()
            .enumerate()
            .map(|(index, engine)| {
                let mut settings = settings(index as u16, count);
                settings.shard.record_bytes_max = record_bytes_max;
                settings.facts = facts.clone();
                Executor::new(engine, settings)
            })
            .collect();
        Server {
            executors,
            now: Now { monotonic_us: 1_000_000, wall_ms: 1_700_000_000_000 },
            map: DatabaseMap::new(16),
            connections: BTreeMap::new(),
            next_connection: 0,
            settings_told: Vec::new(),
            is_shut_down: false,
            users_file: Vec::new(),
            is_pulling: true,
            delays: None,
            mail: BTreeMap::new(),
            maps: (0..count).map(|_| VecDeque::new()).collect(),
            changes: BTreeMap::new(),
        }
    }

    /// A new connection; they go round the shards.
    pub fn connect(&mut self) -> ConnectionId {
        self.next_connection += 1;
        let id = self.next_connection;
        let shard = id as usize % self.executors.len();
        let info = ConnectionInfo {
            address: format!("127.0.0.1:{}", 40_000 + id),
            local_address: "127.0.0.1:6379".into(),
            is_remote: false,
        };
        self.executors[shard].connect(self.now, id, info);
        let connection = Connection {
            shard,
            requests: VecDeque::new(),
            slots: VecDeque::new(),
            received: Vec::new(),
            is_blocked: false,
            is_closed: false,
            ends: false,
            parts: BTreeMap::new(),
            pulls: Vec::new(),
            part_bytes_max: 0,
        };
        self.connections.insert(id, connection);
        id
    }

    /// Ends a connection from outside.
    pub fn disconnect(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(&id) {
            self.executors[connection.shard].disconnect(id);
        }
    }

    pub fn is_closed(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.is_closed)
    }

    /// Puts a request into a connection's input.
    pub fn send(&mut self, id: ConnectionId, words: &[&[u8]]) {
        let connection = self.connections.get_mut(&id).unwrap();
        connection.requests.push_back(words.iter().copied().collect());
    }

    /// The same for arguments of which some were uploaded.
    pub fn send_owned(&mut self, id: ConnectionId, args: OwnedArgs) {
        self.connections.get_mut(&id).unwrap().requests.push_back(args);
    }

    /// The shard that has a connection.
    pub fn shard_of(&self, id: ConnectionId) -> usize {
        self.connections[&id].shard
    }

    /// The longest piece of a reply that a connection has got.
    pub fn part_bytes_max(&self, id: ConnectionId) -> usize {
        self.connections[&id].part_bytes_max
    }

    /// Whether a connection has an answer to all that it has sent.
    pub fn is_idle(&self, id: ConnectionId) -> bool {
        let connection = &self.connections[&id];
        connection.requests.is_empty() && connection.slots.is_empty()
    }

    /// What a connection has received and not taken yet.
    pub fn take_received(&mut self, id: ConnectionId) -> Vec<u8> {
        std::mem::take(&mut self.connections.get_mut(&id).unwrap().received)
    }

    /// Offers what the connections have sent, in order of their ids.
    pub fn offer(&mut self) {
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.offer_one(id);
        }
    }

    /// Offers what one connection has sent.
    pub fn offer_one(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let executor = &mut self.executors[connection.shard];
        while !connection.is_blocked && !connection.is_closed {
            let Some(request) = connection.requests.front() else { break };
            let words: Vec<&[u8]> = request.args().from(0).collect();
            let args = if request.all_staged().is_empty() { Args::Slices(&words) } else { request.args() };
            let mut bytes = Vec::new();
            match executor.request(self.now, id, args, &mut bytes) {
                Outcome::Ready { gate } => connection.slots.push_back(Slot::Ready { bytes, gate }),
                Outcome::Suspended(task) | Outcome::Forwarded(task) => {
                    assert!(bytes.is_empty(), "a suspended request has written a reply");
                    connection.slots.push_back(Slot::Waiting(task));
                }
                Outcome::Blocked => {
                    assert!(bytes.is_empty(), "a blocked request has written a reply");
                    connection.is_blocked = true;
                    break;
                }
                Outcome::Close { gate } => {
                    connection.slots.push_back(Slot::Ready { bytes, gate });
                    connection.is_closed = true;
                }
            }
            connection.requests.pop_front();
        }
    }

    /// One step of every shard.
    pub fn step(&mut self) {
        self.now.monotonic_us += 100;
        for connection in self.connections.values_mut().filter(|_| self.is_pulling) {
            for task in std::mem::take(&mut connection.pulls) {
                self.executors[connection.shard].pull(self.now, task);
            }
        }
        self.deliver();
        self.deliver_maps();
        for index in 0..self.executors.len() {
            let mut outputs = Vec::new();
            self.executors[index].step(self.now, &mut Vec::new(), &mut outputs);
            self.handle(index, outputs);
        }
        self.release();
    }

    /// Gives some of the messages that are on their way to their shards.
    fn deliver(&mut self) {
        let Some(random) = &mut self.delays else { return };
        for ((from, to), messages) in &mut self.mail {
            while !messages.is_empty() && random.chance(0.3) {
                let Some(message) = messages.pop_front() else { break };
                self.executors[*to].message(self.now, *from as u16, message);
            }
        }
    }

    /// Changes the databases: at once, or by maps that are on their way from now on.
    fn change_map(&mut self, from: usize, request: MapRequest) {
        let result = self.map.change(request.change);
        if self.delays.is_some() {
            result.unwrap();
            self.changes.insert(self.map.version, (from, request.task, self.maps.len()));
            self.maps.iter_mut().for_each(|maps| maps.push_back(self.map.clone()));
            return;
        }
        for executor in &mut self.executors {
            executor.apply_map(&self.map);
        }
        self.executors[from].map_changed(self.now, request.task, result);
    }

    /// Gives some of the maps that are on their way to their shards.
    fn deliver_maps(&mut self) {
        let Some(random) = &mut self.delays else { return };
        for (executor, maps) in self.executors.iter_mut().zip(&mut self.maps) {
            // Far slower than messages: batches come between.
            while !maps.is_empty() && random.chance(0.03) {
                let Some(map) = maps.pop_front() else { break };
                executor.apply_map(&map);
                if let Some((_, _, missing)) = self.changes.get_mut(&map.version) {
                    *missing -= 1;
                }
            }
        }
        while let Some(change) = self.changes.first_entry()
            && change.get().2 == 0
        {
            let (from, task, _) = change.remove();
            self.executors[from].map_changed(self.now, task, Ok(()));
        }
    }

    /// The reply of a request that waited.
    fn fill(&mut self, (connection, task): (ConnectionId, u64), bytes: Vec<u8>, gate: u64) {
        let Some(connection) = self.connections.get_mut(&connection) else { return };
        let is_it = |slot: &&mut Slot| matches!(slot, Slot::Waiting(other) if *other == task);
        let slot = connection.slots.iter_mut().find(is_it);
        let slot = slot.unwrap_or_else(|| panic!("task {task} was answered twice or never begun"));
        let mut whole = connection.parts.remove(&task).unwrap_or_default();
        whole.extend(bytes);
        *slot = Slot::Ready { bytes: whole, gate };
    }

    fn handle(&mut self, from: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Reply { connection, task, bytes, gate, closes } => {
                    self.fill((connection, task), bytes, gate);
                    if let Some(connection) = self.connections.get_mut(&connection) {
                        connection.is_closed |= closes;
                    }
                }
                Output::Replies(bundle) => {
                    for (connection, task, bytes) in bundle.replies() {
                        self.fill((connection, task), bytes.to_vec(), 0);
                    }
                    self.executors[from].recycle(bundle);
                }
                Output::Waits { .. } => {}
                Output::Part { connection, task, bytes, .. } => {
                    if let Some(connection) = self.connections.get_mut(&connection) {
                        connection.part_bytes_max = connection.part_bytes_max.max(bytes.len());
                        connection.parts.entry(task).or_default().extend(bytes);
                        connection.pulls.push(task);
                    }
                }
                Output::Push { connection, bytes, gate } => {
                    if let Some(connection) = self.connections.get_mut(&connection) {
                        connection.slots.push_back(Slot::Ready { bytes, gate });
                    }
                }
                Output::Pushes { to, bytes, gate } => {
                    for id in to {
                        if let Some(connection) = self.connections.get_mut(&id) {
                            connection.slots.push_back(Slot::Ready { bytes: bytes.clone(), gate });
                        }
                    }
                }
                Output::Resume { connection } => {
                    if let Some(connection) = self.connections.get_mut(&connection) {
                        connection.is_blocked = false;
                    }
                }
                Output::Close { connection, at_once: true } => self.disconnect(connection),
                Output::Close { connection, .. } => {
                    // It ends when it is answered.
                    if let Some(state) = self.connections.get_mut(&connection) {
                        (state.is_closed, state.ends) = (true, true);
                    }
                }
                Output::ChangeMap(request) => self.change_map(from, request),
                Output::Setting { name, value } => self.settings_told.push((name, value)),
                Output::SettingElsewhere { .. } => {}
                Output::RewriteSettings { .. } => panic!("there is no settings file"),
                Output::ReadUsers { task } => {
                    let file = self.users_file.clone();
                    self.executors[from].users_read(self.now, task, Ok(file));
                }
                Output::WriteUsers { task, bytes } => {
                    self.users_file = bytes;
                    self.executors[from].map_changed(self.now, task, Ok(()));
                }
                Output::Send { to, message } if self.delays.is_some() => {
                    self.mail.entry((from, usize::from(to))).or_default().push_back(message);
                }
                Output::Send { to, message } => {
                    self.executors[usize::from(to)].message(self.now, from as u16, message);
                }
                Output::Shutdown { .. } => self.is_shut_down = true,
            }
        }
    }

    /// Sends the replies whose turn it is and whose gates are open.
    fn release(&mut self) {
        for (id, connection) in &mut self.connections {
            let durable = self.executors[connection.shard].durable_seq();
            while let Some(Slot::Ready { gate, .. }) = connection.slots.front()
                && *gate <= durable
            {
                let Some(Slot::Ready { bytes, .. }) = connection.slots.pop_front() else { break };
                connection.received.extend(bytes);
            }
            if connection.ends && connection.slots.is_empty() {
                connection.ends = false;
                self.executors[connection.shard].disconnect(*id);
            }
        }
    }

    /// Turns until every connection has its answers.
    pub fn settle(&mut self) {
        for _ in 0..LOST_TURNS {
            self.offer();
            self.step();
            let is_idle = |connection: &Connection| {
                (connection.requests.is_empty() || connection.is_closed) && connection.slots.is_empty()
            };
            if self.connections.values().all(is_idle) {
                return;
            }
        }
        panic!("a request was never answered");
    }

    /// Changes a setting at every shard, as the node does when a client has.
    pub fn set(&mut self, name: &str, value: &str) {
        for executor in &mut self.executors {
            executor.apply_setting(name, value);
        }
    }

    /// One request and its raw answer.
    pub fn raw(&mut self, id: ConnectionId, words: &[&[u8]]) -> Vec<u8> {
        self.send(id, words);
        self.settle();
        self.take_received(id)
    }

    /// One request and its answer.
    pub fn call(&mut self, id: ConnectionId, words: &[&[u8]]) -> Value {
        let bytes = self.raw(id, words);
        parse_all(&bytes).pop().unwrap_or(Value::Null)
    }

    /// One request written as a line of words, and its raw answer with spaces for line ends.
    pub fn line(&mut self, id: ConnectionId, line: &str) -> String {
        let words: Vec<&[u8]> = line.split_whitespace().map(unquote).collect();
        let bytes = self.raw(id, &words);
        String::from_utf8_lossy(&bytes).replace("\r\n", " ").trim_end().to_owned()
    }

    /// Checks lines of requests against their answers.
    #[track_caller]
    pub fn check(&mut self, id: ConnectionId, lines: &[(&str, &str)]) {
        for (request, expected) in lines {
            let answer = self.line(id, request);
            assert_eq!(answer, *expected, "{request}");
        }
    }
}

/// `""` is the empty word.
fn unquote(word: &str) -> &[u8] {
    if word == "\"\"" { b"" } else { word.as_bytes() }
}

/// All values of a stream of replies.
pub fn parse_all(bytes: &[u8]) -> Vec<Value> {
    let mut parser = ReplyParser::new(ReplyLimits::default());
    let mut values = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match parser.parse(&bytes[at..]) {
            Ok(ReplyProgress::Complete { consumed, value }) => {
                values.push(value);
                at += consumed;
            }
            Ok(ReplyProgress::Incomplete { consumed, .. }) => {
                assert!(consumed > 0, "a reply was cut off: {:?}", String::from_utf8_lossy(bytes));
                at += consumed;
            }
            Err(error) => panic!("{error:?} in {:?}", String::from_utf8_lossy(bytes)),
        }
    }
    values
}
