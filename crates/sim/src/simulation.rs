//! A run: lives of one node on one medium, with clients, faults and ends that the seed chooses.
//!
//! A tick is: perhaps a fault; each client asks, sends a piece, or waits; the shards that the seed lets
//! run take a turn, in an order of the seed's; clients read. Then time moves on.
//!
//! Invariants:
//! 1. Every choice comes from the seed, in one order.
//! 2. What a client was not answered is in doubt until its node's process has ended, and no longer.

mod beginning;
mod disturbance;
mod ending;

use crate::channels::Channels;
use crate::client::{Client, Heard, Scan};
use crate::history::{EventId, History, Seen};
use crate::lasting::Lasting;
use crate::linearize::{self, Verdict};
use crate::node::Node;
use crate::script::{Asking, Expect, Request, Script, listener_request};
use crate::settings::{End, Outcome, SimulationSettings};
use crate::suffix::{self, Life};
use crate::wall::WallClock;
use disturbance::Pace;
use std::fmt::Write;
use tierstone_base::{Now, SeededRandom};
use tierstone_media::SimMedium;
use tierstone_media::sim::{CutPoints, Latency, PowerCut, WordMachine};

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
    machine: WordMachine,
    /// Its device, which keeps the time.
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
    /// How many shards a store has that keeps their number.
    shards: Option<u16>,
    /// The next opening finds no memory of a redo log, and the store needs it.
    region_is_lost: bool,
    losses_in_turns: u32,
    /// See [`Outcome`].
    regions_lost: (u32, u32),
    groups_replayed: u64,
    evicted_keys: u64,
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
                match linearize::check(&simulation.history.of(object), budget, simulation.settings.evicts()) {
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
        if simulation.settings.may_lose() && !moves && violation.is_none() {
            let findings = suffix::check(&simulation.history, &simulation.lives);
            taken = (findings.lost, findings.outlived);
            violation = findings.violation;
        }
        let answered = |event: &&crate::history::Event| !matches!(event.seen, Seen::Nothing);
        Outcome {
            device_digest: simulation.machine.trace_digest(),
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
            losses_in_turns: simulation.losses_in_turns,
            regions_lost: simulation.regions_lost,
            groups_replayed: simulation.groups_replayed,
            evicted_keys: simulation.evicted_keys,
            duration_us: simulation.medium.now_us(),
            history: simulation.history,
            transcript: simulation.transcript,
        }
    }

    fn now(&self) -> Now {
        self.wall.now(&self.medium)
    }

    fn note(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.transcript, "{:>9} {text}", self.medium.now_us());
    }

    fn live(&mut self) -> Result<(), Broken> {
        for life in 0..self.settings.lives {
            let mut node = self.open()?;
            self.begin_life(&mut node, life)?;
            let ticks = self.settings.ticks / 4 + self.random.below(self.settings.ticks);
            let loss_at = self.choose_loss(ticks);
            for tick in 0..ticks {
                if loss_at == Some(tick) {
                    let last = 1 + self.random.below(300);
                    self.machine.set_power_cut(PowerCut::Within { points: CutPoints::Every, last });
                }
                self.tick(&mut node, true)?;
                if self.machine.power_is_off() {
                    break;
                }
            }
            let was_cut = self.machine.power_is_off();
            self.machine.set_power_cut(PowerCut::Never);
            let is_last = life + 1 == self.settings.lives;
            if is_last && !was_cut && node.failed.is_empty() {
                self.read_everything(&mut node)?;
            }
            let end = if was_cut { End::PowerLoss } else { self.choose_end(&node) };
            self.losses_in_turns += u32::from(was_cut);
            self.end_life(node, end)?;
        }
        Ok(())
    }

    /// The tick after which power is lost at one of the next steps of memory or device, in the middle of a turn.
    fn choose_loss(&mut self, ticks: u64) -> Option<u64> {
        let may_be = self.settings.ground.has_memory() && self.settings.ends.contains(&End::PowerLoss);
        (may_be && self.random.chance(0.6)).then(|| self.random.below(ticks))
    }

    fn choose_end(&mut self, node: &Node) -> End {
        if !node.failed.is_empty() {
            // What a failed flush has left is known for certain only after a loss of power.
            return End::PowerLoss;
        }
        self.settings.ends[self.random.below(self.settings.ends.len() as u64) as usize]
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
        if !self.machine.power_is_off() {
            node.step().map_err(|error| format!("the node: {error}"))?;
        }
        // What was sent before a loss of power still comes.
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
            if self.random.chance(0.85) && !self.machine.power_is_off() {
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
            if !is_open && !self.machine.power_is_off() {
                let ended_well = self.clients[client].has_ended && self.clients[client].is_answered();
                let connection = self.clients[client].connection;
                // A reply whose length was told cannot go on when its database is emptied.
                let breaks_off = self.settings.has_flushes && self.settings.has_large_values;
                if !ended_well && !breaks_off {
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
        // Where databases change places, keys are evicted, or writes may be lost, nobody can say what stays.
        let stays = !self.settings.has_swaps && !self.settings.may_lose() && !self.settings.has_eviction;
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
                || self.settings.has_flushes && error.contains("the database was emptied while")
                // The device of a relaxed run may take seconds for a write.
                // ... and parts of two batches may wait for each other where nearly all space is used.
                || (self.settings.is_relaxed || self.settings.has_eviction)
                    && error.contains("cleaning made no room for this write in time")
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
