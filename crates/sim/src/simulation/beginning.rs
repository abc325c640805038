//! Beginnings: the machine of a run, and lives of nodes on it.

use super::{Broken, Simulation, disturbance};
use crate::channels::Channels;
use crate::client::Client;
use crate::ground::Ground;
use crate::history::History;
use crate::lasting::Lasting;
use crate::model::Evicts;
use crate::node::{Node, NodeSettings};
use crate::script::{Expect, Request, Script};
use crate::settings::{End, SimulationSettings};
use crate::suffix::Life;
use crate::wall::WallClock;
use std::collections::BTreeSet;
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_crash::Choices;
use tierstone_engine::{Durability, Eviction};
use tierstone_logstore::ShardSettings;
use tierstone_logstore::format::superblock::META_BYTES;
use tierstone_media::sim::{CompletionOrder, CutPoints, PowerCut, StaleRange};
use tierstone_media::{Geometry, SimSettings};
use tierstone_server::{Peer, TransportSettings};

/// Segments of the device.
const SEGMENTS: u32 = 48;
/// The same with large values, whose segments are larger.
const LARGE_SEGMENTS: u32 = 64;
/// The same where keys are evicted: so many, and so many for each shard.
const EVICTING_SEGMENTS: (u32, u32) = (3, 11);
/// Policies of lives in which keys are evicted.
const POLICIES: [Eviction; 3] = [Eviction::OldestFirst, Eviction::LeastUsed, Eviction::Random];
/// ... and in which only those are that expire.
const POLICIES_OF_EXPIRING: [Eviction; 4] = [
    Eviction::OldestExpiring,
    Eviction::LeastUsedExpiring,
    Eviction::NearestExpiry,
    Eviction::RandomExpiring,
];

impl Simulation {
    pub(super) fn new(settings: SimulationSettings) -> Self {
        let mut random = SeededRandom::new(settings.seed);
        let (pace, latency) = disturbance::pace_and_latency(&mut random, &settings);
        let shards_most = settings.shard_counts.iter().copied().max().unwrap_or(1);
        let (segments, segment_bytes) = match (settings.has_large_values, settings.has_eviction) {
            (true, _) => (LARGE_SEGMENTS, 512 << 10),
            (_, true) => (EVICTING_SEGMENTS.0 + EVICTING_SEGMENTS.1 * u32::from(shards_most), 64 << 10),
            _ => (SEGMENTS, 64 << 10),
        };
        let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes, segment_limit: segments };
        let device = SimSettings {
            order: CompletionOrder::Timed,
            stale_range: StaleRange::Chosen,
            latency,
            ..SimSettings::new(geometry)
        };
        let choices = Choices::random(random.next_u64());
        let objects = 4 + random.below(14) as u32;
        let script = script(&settings, objects, pace.is_fast());
        let ground = settings.ground;
        let counts = &settings.shard_counts;
        // A store in memory keeps the number of its shards.
        let shards = (ground == Ground::Memory).then(|| counts[random.below(counts.len() as u64) as usize]);
        let shards_max = shards.or(counts.iter().copied().max()).unwrap_or(1);
        let is_tight = ground == Ground::DeviceWithRedo && random.chance(0.5);
        let machine = ground.machine(device, &choices, (shards_max, is_tight, settings.has_eviction));
        Simulation {
            medium: machine.media()[0].clone(),
            machine,
            settings,
            random,
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
            shards,
            region_is_lost: false,
            losses_in_turns: 0,
            regions_lost: (0, 0),
            groups_replayed: 0,
            evicted_keys: 0,
        }
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
        let policies: &[Eviction] = match self.settings.evicts() {
            Evicts::All => &POLICIES,
            Evicts::Expiring => &POLICIES_OF_EXPIRING,
            Evicts::None => &[],
        };
        let chosen = policies.len().checked_sub(1).map(|last| self.random.below(last as u64 + 1) as usize);
        let eviction = chosen.map_or(Eviction::None, |chosen| policies[chosen]);
        let usual = ShardSettings::default();
        let touch_value_bytes_min = if self.settings.has_touches { 0 } else { usual.touch_value_bytes_min };
        let ground = self.settings.ground;
        let shards = self.shards.unwrap_or(shards);
        NodeSettings {
            ground,
            accepts_loss: false,
            shards,
            shard: ShardSettings {
                memory_bytes,
                index_fraction: 0.9,
                // Most reads are to go to the device.
                cache_bytes_max: memory_bytes / 10,
                durability,
                groups_in_flight_min: groups,
                groups_in_flight_max: groups,
                // Groups are to be full at times.
                group_bytes_max: if ground.has_memory() { 8 << 10 } else { usual.group_bytes_max },
                checkpoint_idle_ms: 1,
                checkpoint_tail_records_min: 20,
                touch_value_bytes_min,
                ..usual
            },
            transport: TransportSettings {
                stop_timeout_ms: if self.pace.is_fast() { 600_000 } else { 5_000 },
                ..TransportSettings::default()
            },
            value_bytes_max: if has_large { 16 << 20 } else { 1 << 20 },
            durability,
            eviction,
            seed: self.settings.seed,
            mutations: self.settings.mutations.clone(),
        }
    }

    fn open_once(&mut self, settings: &NodeSettings) -> Result<Node> {
        if self.settings.ends.contains(&End::PowerLoss) && self.random.chance(0.25) {
            // Each step of memory counts.
            let steps = if self.settings.ground.has_memory() { 250 } else { 24 };
            let last = 1 + self.random.below(steps);
            self.machine.set_power_cut(PowerCut::Within { points: CutPoints::Every, last });
        }
        let (medium, wall) = (self.medium.clone(), self.wall);
        Node::open(&self.machine, settings, || wall.now(&medium))
    }

    /// Opens the store, perhaps with losses of power on the way.
    pub(super) fn open(&mut self) -> std::result::Result<Node, Broken> {
        let mut accepts_loss = false;
        loop {
            let settings = NodeSettings { accepts_loss, ..self.node_settings() };
            match self.open_once(&settings) {
                Ok(node) if !self.machine.power_is_off() => {
                    self.machine.set_power_cut(PowerCut::Never);
                    return self.opened(node, &settings);
                }
                Err(error) if self.is_refused(&error, accepts_loss) => {
                    self.machine.set_power_cut(PowerCut::Never);
                    self.note("the store is not opened without its memory; the loss is accepted");
                    self.regions_lost.1 += 1;
                    accepts_loss = true;
                }
                Err(error) if !self.machine.power_is_off() => {
                    return Err(format!("a store does not open: {:?}: {error}", error.kind()));
                }
                // Memory that is off takes no stores: what opening reads again there may be anything.
                Err(error) if error.kind() != ErrorKind::DeviceFailed && !settings.ground.has_memory() => {
                    return Err(format!("without power, opening says {:?}: {error}", error.kind()));
                }
                _ => {
                    self.note("power is lost while the store opens");
                    self.machine.set_power_cut(PowerCut::Never);
                    self.machine.power_on_after_loss();
                }
            }
        }
    }

    /// Whether a store is not opened because the memory that its redo log needs is lost.
    fn is_refused(&self, error: &Error, accepts_loss: bool) -> bool {
        self.region_is_lost
            && !accepts_loss
            && !self.machine.power_is_off()
            && error.kind() == ErrorKind::InvalidInput
    }

    fn opened(&mut self, node: Node, settings: &NodeSettings) -> std::result::Result<Node, Broken> {
        let report = &node.report;
        if report.redo_bytes_wanted > 0 {
            return Err(format!("the redo log would need {} bytes", report.redo_bytes_wanted));
        }
        if self.region_is_lost && !settings.accepts_loss {
            return Err("a store opens without the memory that its redo log needs".to_owned());
        }
        self.groups_replayed += report.redo_groups;
        self.region_is_lost = false;
        self.note(&format!("a node of {} shards serves", settings.shards));
        Ok(node)
    }

    pub(super) fn begin_life(&mut self, node: &mut Node, life: u32) -> std::result::Result<(), Broken> {
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

    pub(super) fn connect(&mut self, node: &mut Node) -> std::result::Result<Client, Broken> {
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
}

/// What may be asked for in a run.
fn script(settings: &SimulationSettings, objects: u32, is_fast: bool) -> Script {
    let mut script = Script::new(objects);
    script.larges = if settings.has_large_values { 2 } else { 0 };
    script.flushes = settings.has_flushes;
    script.touches = settings.has_touches;
    script.swaps = settings.has_swaps;
    script.grows = settings.has_growth || settings.has_eviction;
    script.fills = settings.has_eviction;
    script.fills_for_a_time = settings.spares_lasting;
    script.publishes = settings.has_channels;
    // A batch over shards that was acknowledged may be lost although later writes are not.
    script.spreads = !settings.may_lose();
    script.expiry_unit_ms = if is_fast { 100 } else { 1 };
    script
}
