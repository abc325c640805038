//! A run: lives of one node on one medium, with clients, faults and ends that the seed chooses.
//!
//! A tick is: perhaps a fault; each client asks, sends a piece, or waits; the shards that the seed lets
//! run take a turn, in an order of the seed's; clients read. Then time moves on.
//!
//! Invariants:
//! 1. Every choice comes from the seed, in one order.
//! 2. What a client was not answered is in doubt until its node's process has ended, and no longer.

mod disturbance;
mod ending;

use crate::channels::Channels;
use crate::client::{Client, Heard, Scan};
use crate::history::{EventId, History, Seen};
use crate::lasting::Lasting;
use crate::linearize::{self, Verdict};
use crate::node::{Node, NodeSettings};
use crate::script::{Asking, Expect, Request, Script, listener_request};
use crate::settings::{End, Outcome, SimulationSettings};
use crate::suffix::{self, Life};
use crate::wall::WallClock;
use disturbance::Pace;
use std::collections::BTreeSet;
use std::fmt::Write;
use tierstone_base::{ErrorKind, Now, SeededRandom};
use tierstone_crash::Choices;
use tierstone_engine::Durability;
use tierstone_logstore::ShardSettings;
use tierstone_logstore::format::superblock::META_BYTES;
use tierstone_media::sim::{CompletionOrder, CutPoints, Latency, PowerCut, StaleRange};
use tierstone_media::{Geometry, SimDevice, SimMedium, SimSettings};
use tierstone_server::{Peer, TransportSettings};

/// Segments of the device.
const SEGMENTS: u32 = 48;
/// The same with large values, whose segments are larger.
const LARGE_SEGMENTS: u32 = 64;
/// Configurations that the search for an explanation may look at, for each object.
const SEARCH_BUDGET: u64 = 2_000_000;
/// The same where databases are swapped: objects are twice as large.
const SWAP_SEARCH_BUDGET: u64 = 50_000;
/// The same where values are large, and are made anew in each configuration.
const LARGE_SEARCH_BUDGET: u64 = 5_000;

/// A run.
#[derive(Debug)]
pub struct Simulation {
    settings: SimulationSettings,
    random: SeededRandom,
    medium: SimMedium,
    script: Script,
    history: History,
    transcript: String,
    clients: Vec<Client>,
    /// Events in doubt whose connections are gone.
    orphans: Vec<EventId>,
    /// Keys that scans must give.
    lasting: Lasting,
    channels: Channels,
    /// Scans whose connections are gone, with their databases; somebody goes on with them.
    left_scans: Vec<(u32, Scan)>,
    /// Whole scans, and those of them that went on in another process.
    scans: (u64, u64),
    lives: Vec<Life>,
    pace: Pace,
    /// Segments of the device.
    segments: u32,
    wall: WallClock,
    connections: u64,
    errors: u64,
    /// A fault was armed in this life: errors may be given.
    is_faulty: bool,
    /// The device had no space at some time in this life: writes may be refused, if the error says why.
    was_full: bool,
    latency: Latency,
}

/// Why a run ended early.
type Broken = String;

impl Simulation {
    /// Runs to the end and judges what clients saw.
    pub fn run(settings: SimulationSettings) -> Outcome {
        let mut simulation = Simulation::new(settings);
        let mut violation = simulation.live().err();
        let mut unjudged = 0;
        if violation.is_none() {
            let budget = match &simulation.settings {
                settings if settings.has_large_values => LARGE_SEARCH_BUDGET,
                settings if settings.has_swaps => SWAP_SEARCH_BUDGET,
                _ => SEARCH_BUDGET,
            };
            for object in simulation.history.objects() {
                match linearize::check(&simulation.history.of(object), budget) {
                    Verdict::Explained => {}
                    Verdict::TooHard => unjudged += 1,
                    Verdict::Impossible(why) => {
                        violation.get_or_insert(format!("{object:?} has no history: {why}"));
                    }
                }
            }
        }
        let mut taken = (0, 0);
        // Databases that change places or are emptied bring values back and take them without a write of their key.
        let moves = simulation.settings.has_swaps || simulation.settings.has_flushes;
        if simulation.settings.is_relaxed && !moves && violation.is_none() {
            let findings = suffix::check(&simulation.history, &simulation.lives);
            taken = (findings.lost, findings.outlived);
            violation = findings.violation;
        }
        let answered = |event: &&crate::history::Event| !matches!(event.seen, Seen::Nothing);
        Outcome {
            device_digest: simulation.medium.trace_digest(),
            violation,
            events: (
                simulation.history.events.len(),
                simulation.history.events.iter().filter(answered).count(),
            ),
            errors: simulation.errors,
            messages: simulation.channels.heard,
            scans: simulation.scans,
            taken,
            unjudged,
            power_losses: simulation.medium.counters().cuts,
            duration_us: simulation.medium.now_us(),
            history: simulation.history,
            transcript: simulation.transcript,
        }
    }

    fn new(settings: SimulationSettings) -> Self {
        let mut random = SeededRandom::new(settings.seed);
        let (pace, latency) = disturbance::pace_and_latency(&mut random, settings.is_relaxed);
        let (segments, segment_bytes) =
            if settings.has_large_values { (LARGE_SEGMENTS, 512 << 10) } else { (SEGMENTS, 64 << 10) };
        let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes, segment_limit: segments };
        let device = SimSettings {
            order: CompletionOrder::Timed,
            stale_range: StaleRange::Chosen,
            latency,
            cut_limit: u32::MAX,
            ..SimSettings::new(geometry)
        };
        let medium = SimMedium::new(device, &Choices::random(random.next_u64()));
        let objects = 4 + random.below(14) as u32;
        let mut script = Script::new(objects);
        script.larges = if settings.has_large_values { 2 } else { 0 };
        script.flushes = settings.has_flushes;
        script.touches = settings.has_touches;
        script.swaps = settings.has_swaps;
        script.grows = settings.has_growth;
        script.publishes = settings.has_channels;
        // A batch over shards that was acknowledged may be lost although later writes are not.
        script.spreads = !settings.is_relaxed;
        script.expiry_unit_ms = if settings.is_relaxed { 100 } else { 1 };
        Simulation {
            settings,
            random,
            medium,
            script,
            history: History::default(),
            transcript: String::new(),
            clients: Vec::new(),
            orphans: Vec::new(),
            lasting: Lasting::default(),
            channels: Channels::default(),
            left_scans: Vec::new(),
            scans: (0, 0),
            lives: Vec::new(),
            pace,
            segments,
            wall: WallClock::default(),
            connections: 0,
            errors: 0,
            is_faulty: false,
            was_full: false,
            latency,
        }
    }

    fn now(&self) -> Now {
        self.wall.now(&self.medium)
    }

    fn note(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.transcript, "{:>9} {text}", self.medium.now_us());
    }

    fn node_settings(&mut self) -> NodeSettings {
        let groups = 1 + self.random.below(3) as usize;
        let durability =
            if self.random.chance(0.3) { Durability::Group { interval_ms: 1 } } else { Durability::Sync };
        let durability = if self.settings.is_relaxed { Durability::Relaxed } else { durability };
        let counts = &self.settings.shard_counts;
        let shards = counts[self.random.below(counts.len() as u64) as usize];
        let memory_bytes = if self.random.chance(0.5) { 256 << 10 } else { 2 << 20 };
        let has_large = self.settings.has_large_values;
        let memory_bytes = if has_large { memory_bytes * 8 } else { memory_bytes };
        let touch_value_bytes_min =
            if self.settings.has_touches { 0 } else { ShardSettings::default().touch_value_bytes_min };
        NodeSettings {
            shards,
            shard: ShardSettings {
                memory_bytes,
                index_fraction: 0.9,
                // Most reads are to go to the device.
                cache_bytes_max: memory_bytes / 10,
                durability,
                groups_in_flight_min: groups,
                groups_in_flight_max: groups,
                checkpoint_idle_ms: 1,
                checkpoint_tail_records_min: 20,
                touch_value_bytes_min,
                ..ShardSettings::default()
            },
            transport: TransportSettings {
                stop_timeout_ms: if self.settings.is_relaxed { 600_000 } else { 5_000 },
                ..TransportSettings::default()
            },
            value_bytes_max: if has_large { 16 << 20 } else { 1 << 20 },
            durability,
            seed: self.settings.seed,
            mutations: self.settings.mutations.clone(),
        }
    }

    fn live(&mut self) -> Result<(), Broken> {
        let mut device = self.medium.device();
        for life in 0..self.settings.lives {
            let mut node = self.open(device)?;
            self.begin_life(&mut node, life)?;
            let ticks = self.settings.ticks / 4 + self.random.below(self.settings.ticks);
            for _ in 0..ticks {
                self.tick(&mut node, true)?;
            }
            let is_last = life + 1 == self.settings.lives;
            if is_last && node.failed.is_empty() {
                self.read_everything(&mut node)?;
            }
            let end = self.choose_end(&node);
            device = self.end_life(node, end)?;
        }
        Ok(())
    }

    fn choose_end(&mut self, node: &Node) -> End {
        if !node.failed.is_empty() {
            // What a failed flush has left is known for certain only after a loss of power.
            return End::PowerLoss;
        }
        self.settings.ends[self.random.below(self.settings.ends.len() as u64) as usize]
    }

    /// Opens the store, perhaps with losses of power on the way.
    fn open(&mut self, mut device: SimDevice) -> Result<Node, Broken> {
        loop {
            let settings = self.node_settings();
            if self.settings.ends.contains(&End::PowerLoss) && self.random.chance(0.25) {
                let last = 1 + self.random.below(24);
                self.medium.set_power_cut(PowerCut::Within { points: CutPoints::Every, last });
            }
            let (medium, wall) = (self.medium.clone(), self.wall);
            let opened = Node::open(&self.medium, device, &settings, || wall.now(&medium));
            match opened {
                Ok(node) if !self.medium.power_is_off() => {
                    self.medium.set_power_cut(PowerCut::Never);
                    self.note(&format!("a node of {} shards serves", settings.shards));
                    return Ok(node);
                }
                Err(error) if !self.medium.power_is_off() => {
                    return Err(format!("a store does not open: {:?}: {error}", error.kind()));
                }
                Err(error) if error.kind() != ErrorKind::DeviceFailed => {
                    return Err(format!("without power, opening says {:?}: {error}", error.kind()));
                }
                _ => {
                    self.note("power is lost while the store opens");
                    self.medium.set_power_cut(PowerCut::Never);
                    device = self.medium.power_on_after_loss();
                }
            }
        }
    }

    fn begin_life(&mut self, node: &mut Node, life: u32) -> Result<(), Broken> {
        self.is_faulty = false;
        self.was_full = false;
        self.lasting.begin_life(&self.history);
        let began = self.history.moment();
        self.lives.push(Life { began, shards: node.drivers.len() as u16 });
        let count = 2 + self.random.below(self.settings.clients.max(3) - 2);
        for _ in 0..count {
            let client = self.connect(node)?;
            self.clients.push(client);
        }
        if life > 0 {
            self.ask_everything();
        }
        Ok(())
    }

    fn connect(&mut self, node: &mut Node) -> Result<Client, Broken> {
        let shard = self.random.below(node.drivers.len() as u64) as usize;
        let now = self.now();
        let index = node.drivers[shard]
            .connect(now, &Peer::Unix)
            .map_err(|farewell| format!("a client is turned away: {}", String::from_utf8_lossy(&farewell)))?;
        self.connections += 1;
        let listens = self.settings.has_channels && self.random.chance(0.4);
        let database = u64::from(self.random.chance(0.35)) as u32;
        let mut client = Client::new(self.connections, (shard, index), database);
        if listens {
            self.note(&format!("client {} comes to shard {shard} and will listen", self.connections));
            // It asks nothing of any database.
            client.database = u32::MAX;
            client.joined = Some(BTreeSet::new());
            return Ok(client);
        }
        if database > 0 {
            let select = Request { words: vec![b"SELECT".to_vec(), b"1".to_vec()], expect: Expect::Ok };
            client.send(&select);
        }
        self.note(&format!("client {} comes to shard {shard}, database {database}", self.connections));
        Ok(client)
    }

    fn asking(&self, client: usize) -> Asking {
        Asking {
            connection: self.clients[client].connection,
            database: self.clients[client].database,
            wall_ms: self.now().wall_ms,
        }
    }

    fn send(&mut self, client: usize, request: &Request) {
        let text = self.clients[client].send(request);
        let connection = self.clients[client].connection;
        self.note(&format!("c{connection} > {text}"));
    }

    /// The first client of each database reads all objects of it.
    fn ask_everything(&mut self) {
        for database in 0..2 {
            let Some(client) = self.clients.iter().position(|client| client.database == database) else {
                continue;
            };
            for object in self.script.objects_of(database) {
                let asking = self.asking(client);
                let requests = self.script.read_all(&mut self.history, asking, object);
                requests.iter().for_each(|request| self.send(client, request));
            }
        }
    }

    fn tick(&mut self, node: &mut Node, asks: bool) -> Result<(), Broken> {
        self.disturb(asks);
        let mut moved = false;
        for client in 0..self.clients.len() {
            if asks {
                self.ask(node, client);
            }
            moved |= self.deliver(node, client);
        }
        if asks && self.random.below(150) == 0 {
            self.break_connection(node)?;
        }
        moved |= self.turn_shards(node)?;
        node.step().map_err(|error| format!("the node: {error}"))?;
        moved |= self.listen(node)?;
        self.pass_time(node, moved);
        Ok(())
    }

    /// A database is being emptied: nobody can say any more what a scan of it must give.
    fn owe_nothing(&mut self, database: u32, request: &Request) {
        if let Expect::AllOk(ids) = &request.expect {
            self.lasting.emptying(database, ids);
        }
        let scanning = self.clients.iter_mut().filter(|client| client.database == database);
        scanning.filter_map(|client| client.scan.as_mut()).for_each(|scan| scan.owed.clear());
        let left = self.left_scans.iter_mut().filter(|(of, _)| *of == database);
        left.for_each(|(_, scan)| scan.owed.clear());
    }

    fn ask(&mut self, node: &mut Node, client: usize) {
        let now_us = self.now().monotonic_us;
        if self.clients[client].has_ended || now_us < self.clients[client].idle_until_us {
            return;
        }
        if let Some(cursor) = self.clients[client].cursor.take() {
            return self.ask_page(client, cursor);
        }
        if self.clients[client].scan.is_some() || !self.random.chance(0.3) {
            return;
        }
        if !self.clients[client].is_answered() && !self.random.chance(0.2) {
            return;
        }
        if self.clients[client].joined.is_some() {
            return self.ask_to_listen(client);
        }
        match self.random.below(100) {
            0..3 => self.begin_scan(client),
            6..20 if self.settings.has_growth => self.begin_scan(client),
            3..5 => {
                let until_us = now_us + 50 + self.random.below(3_000);
                self.clients[client].stalled_until_us = until_us;
                let (shard, index) = self.clients[client].place;
                node.drivers[shard].set_stalled(index, true);
            }
            5 => self.clients[client].has_ended = true,
            _ => {
                let asking = self.asking(client);
                let (random, history) = (&mut self.random, &mut self.history);
                let requests = self.script.pipeline(random, history, &mut self.channels, asking);
                for request in requests.iter().filter(|request| request.empties()) {
                    self.owe_nothing(asking.database, request);
                }
                requests.iter().for_each(|request| self.send(client, request));
                self.clients[client].idle_until_us = now_us + self.random.below(self.pace.idle_us);
            }
        }
    }

    fn ask_to_listen(&mut self, client: usize) {
        let Client { connection, joined, .. } = &mut self.clients[client];
        let Some(joined) = joined else { return };
        let who = (*connection, joined);
        let request = listener_request(&mut self.random, &mut self.history, &mut self.channels, who);
        self.send(client, &request);
    }

    /// Begins a scan, or goes on with one whose connection is gone.
    fn begin_scan(&mut self, client: usize) {
        let database = self.clients[client].database;
        let left = self.left_scans.iter().position(|(of, _)| *of == database);
        let scan = match left {
            Some(place) => self.left_scans.remove(place).1,
            None => Scan {
                owed: self.lasting.keys(database).clone(),
                at: b"0".to_vec(),
                life: self.lives.len(),
                ..Scan::default()
            },
        };
        let cursor = scan.at.clone();
        self.clients[client].scan = Some(scan);
        self.ask_page(client, cursor);
    }

    /// Others go on with the scan of a client whose connection is gone.
    fn leave_scan(&mut self, client: &mut Client) {
        if let Some(scan) = client.scan.take().filter(|_| self.settings.has_growth) {
            self.left_scans.push((client.database, scan));
        }
    }

    fn ask_page(&mut self, client: usize, cursor: Vec<u8>) {
        let most = if self.settings.has_growth { 40 } else { 8 };
        let count = (1 + self.random.below(most)).to_string().into_bytes();
        let words = vec![b"SCAN".to_vec(), cursor, b"COUNT".to_vec(), count];
        self.send(client, &Request { words, expect: Expect::Page });
    }

    /// A piece of what the client has sent arrives.
    fn deliver(&mut self, node: &mut Node, client: usize) -> bool {
        let now = self.now();
        let Client { place: (shard, index), stalled_until_us, .. } = self.clients[client];
        let driver = &mut node.drivers[shard];
        if stalled_until_us != 0 && now.monotonic_us >= stalled_until_us {
            self.clients[client].stalled_until_us = 0;
            driver.set_stalled(index, false);
        }
        let len = self.clients[client].outgoing.len() as u64;
        if len == 0 {
            if self.clients[client].has_ended {
                driver.end_input(now, index);
            }
            return false;
        }
        if !driver.is_receiving(index) || self.random.chance(0.3) {
            return false;
        }
        let piece = if self.random.chance(0.6) { len } else { 1 + self.random.below(len) };
        let bytes: Vec<u8> = self.clients[client].outgoing.drain(..piece as usize).collect();
        driver.receive(now, index, &bytes);
        true
    }

    fn break_connection(&mut self, node: &mut Node) -> Result<(), Broken> {
        let client = self.random.below(self.clients.len() as u64) as usize;
        let (shard, index) = self.clients[client].place;
        let now = self.now();
        node.drivers[shard].reset(now, index);
        node.drivers[shard].turn(now);
        node.drivers[shard].take_output(index, &mut Vec::new());
        let connection = self.clients[client].connection;
        self.note(&format!("c{connection} breaks"));
        self.replace(node, client)
    }

    /// A new client in the place of one whose connection is gone.
    fn replace(&mut self, node: &mut Node, client: usize) -> Result<(), Broken> {
        let unanswered = self.clients[client].unanswered();
        self.orphans.extend(unanswered);
        let moment = self.history.moment();
        self.channels.gone(self.clients[client].connection, moment);
        let new = self.connect(node)?;
        let mut old = std::mem::replace(&mut self.clients[client], new);
        self.leave_scan(&mut old);
        Ok(())
    }

    fn turn_shards(&mut self, node: &mut Node) -> Result<bool, Broken> {
        let now = self.now();
        let mut order: Vec<usize> = (0..node.drivers.len()).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, self.random.below(place as u64 + 1) as usize);
        }
        let mut has_work = false;
        for shard in order {
            if self.random.chance(0.85) {
                node.drivers[shard].turn(now);
            }
            has_work |= node.drivers[shard].has_work();
        }
        Ok(has_work || node.has_work())
    }

    fn listen(&mut self, node: &mut Node) -> Result<bool, Broken> {
        let mut heard_any = false;
        for client in 0..self.clients.len() {
            let (shard, index) = self.clients[client].place;
            let mut bytes = Vec::new();
            let is_open = node.drivers[shard].take_output(index, &mut bytes);
            if !bytes.is_empty() {
                heard_any = true;
                let wall_ms = self.wall.high_ms(&self.medium);
                let heard = self.clients[client].hear(&bytes, &mut self.history, &mut self.channels, wall_ms);
                self.digest_replies(client, heard)?;
            }
            if !is_open {
                let ended_well = self.clients[client].has_ended && self.clients[client].is_answered();
                let connection = self.clients[client].connection;
                if !ended_well {
                    return Err(format!("the server has closed the connection of client {connection}"));
                }
                self.note(&format!("c{connection} goes"));
                self.replace(node, client)?;
            }
        }
        Ok(heard_any)
    }

    fn digest_replies(&mut self, client: usize, heard: Heard) -> Result<(), Broken> {
        let connection = self.clients[client].connection;
        for line in &heard.lines {
            self.note(&format!("c{connection} < {line}"));
        }
        let database = self.clients[client].database;
        if !heard.grown.is_empty() {
            self.lasting.grown(database, heard.grown);
        }
        if let Some(life) = heard.whole_scan {
            self.scans.0 += 1;
            self.scans.1 += u64::from(life != self.lives.len());
        }
        // Where databases change places, or writes may be lost, nobody can say what stays.
        let stays = !self.settings.has_swaps && !self.settings.is_relaxed;
        for id in heard.acknowledged.iter().filter(|_| stays) {
            self.lasting.acknowledged(*id, &self.history);
        }
        heard.in_doubt.iter().for_each(|id| self.history.detach(*id));
        self.orphans.extend(&heard.in_doubt);
        self.errors += heard.errors.len() as u64;
        let names_space = |error: &String| error.contains("no space left on the device");
        let is_expected = |error: &String| {
            self.is_faulty
                || error.starts_with("OOM")
                || self.was_full && names_space(error)
                // The device of a relaxed run may take seconds for a write.
                || self.settings.is_relaxed && error.contains("cleaning made no room for this write in time")
        };
        if let Some(error) = heard.errors.iter().find(|error| !is_expected(error)) {
            return Err(format!("client {connection} is told {error:?}, and no fault is armed"));
        }
        match heard.violation {
            Some(violation) => Err(format!("client {connection}: {violation}")),
            None => Ok(()),
        }
    }
}
