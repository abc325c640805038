//! What a run is made of, and what comes of it: plain data.

use crate::ground::Ground;
use crate::history::History;
use crate::model::Evicts;
use tierstone_crash::Mutations;

/// What a run is made of. Plain data.
#[derive(Clone, Debug)]
pub struct SimulationSettings {
    /// Everything that is not said here follows from it.
    pub seed: u64,
    /// What the store lies on.
    pub ground: Ground,
    /// Whether the redo log's memory is lost at ends of lives, with what only it has.
    pub loses_region: bool,
    /// Lives of the node, the last one included; each ends in one of the ways in `ends`.
    pub lives: u32,
    /// The most ticks of a life.
    pub ticks: u64,
    /// The most clients.
    pub clients: u64,
    /// How lives end.
    pub ends: Vec<End>,
    /// Numbers of shards that a life may have.
    pub shard_counts: Vec<u16>,
    /// Whether clients empty databases.
    pub has_flushes: bool,
    /// Whether the device gives errors at times.
    pub has_device_errors: bool,
    /// Whether the wall clock is set back and forth.
    pub has_clock_jumps: bool,
    /// Whether the device has no space for further segments at times.
    pub has_full_device: bool,
    /// Whether databases change places.
    pub has_swaps: bool,
    /// Whether messages are published and listened to.
    pub has_channels: bool,
    /// Whether values of many chunks are written.
    pub has_large_values: bool,
    /// Whether many keys are added that stay, while scans go on, over ends of the node too.
    pub has_growth: bool,
    /// Whether keys are evicted: the device is small, and keys that nobody asks for again fill it.
    pub has_eviction: bool,
    /// Whether only keys that expire are, with `has_eviction`.
    pub spares_lasting: bool,
    /// Whether writes are acknowledged before they are durable. Time goes faster then, the device slower.
    pub is_relaxed: bool,
    /// Whether the expiry of keys is changed often, which leaves even short values where they are.
    pub has_touches: bool,
    /// Rules broken on purpose.
    pub mutations: Mutations,
}

impl SimulationSettings {
    /// Short lives with everything that can happen.
    pub fn new(seed: u64) -> Self {
        SimulationSettings {
            seed,
            ground: Ground::Device,
            loses_region: false,
            lives: 3,
            ticks: 400,
            clients: 5,
            ends: vec![End::PowerLoss, End::Kill, End::Stop],
            shard_counts: vec![1, 2, 3, 4],
            has_flushes: false,
            has_device_errors: true,
            has_clock_jumps: false,
            has_full_device: false,
            has_swaps: false,
            has_channels: false,
            has_large_values: false,
            has_growth: false,
            has_eviction: false,
            spares_lasting: false,
            is_relaxed: false,
            has_touches: false,
            mutations: Mutations::none(),
        }
    }

    /// Which keys may be evicted.
    pub(crate) fn evicts(&self) -> Evicts {
        match (self.has_eviction, self.spares_lasting) {
            (false, _) => Evicts::None,
            (true, true) => Evicts::Expiring,
            (true, false) => Evicts::All,
        }
    }

    /// Whether a crash may take what was acknowledged.
    pub fn may_lose(&self) -> bool {
        self.is_relaxed || self.loses_region
    }
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The machine loses power.
    PowerLoss,
    /// The process dies.
    Kill,
    /// The node stops in good order.
    Stop,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Everything that clients saw, with times.
    pub transcript: String,
    /// What clients asked and what they saw of each object.
    pub history: History,
    /// A digest of everything that the device was asked and answered.
    pub device_digest: u64,
    /// What should not have happened.
    pub violation: Option<String>,
    /// Events recorded, and those answered.
    pub events: (usize, usize),
    /// Replies that were errors.
    pub errors: u64,
    /// Messages that listeners have heard.
    pub messages: usize,
    /// Whole scans, and those of them that went on in another process than they began in.
    pub scans: (u64, u64),
    /// Acknowledged writes that crashes are known to have taken, and such as are known to have outlived those
    /// crashes; in relaxed mode.
    pub taken: (usize, usize),
    /// Objects whose history was too tangled to be judged.
    pub unjudged: usize,
    /// Losses of power, those inside recovery included.
    pub power_losses: u32,
    /// Those that came in the middle of a turn, at a step of memory or device.
    pub losses_in_turns: u32,
    /// Times that the redo log's memory was lost, and those of them in which the store was not opened without it
    /// until the loss was accepted.
    pub regions_lost: (u32, u32),
    /// Keys that were evicted.
    pub evicted_keys: u64,
    /// Groups that openings took from the redo log.
    pub groups_replayed: u64,
    /// Simulated microseconds.
    pub duration_us: u64,
}
