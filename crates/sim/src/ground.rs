//! What a node lies on: block devices, those and a redo log in persistent memory, or persistent memory alone.
//!
//! All of it is one [`WordMachine`], whose power is lost in all parts at once; words of memory and sectors of devices
//! survive independently.

use std::sync::Arc;
use tierstone::nvm::{ENGINE_BASE, superblock_geometry};
use tierstone_base::Result;
use tierstone_media::region::{RegionDevice, WordRegion};
use tierstone_media::sim::{SimMachine, SimMachineSettings, WordMachine};
use tierstone_media::{
    BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, SimDevice, SimSettings,
    Wait,
};

/// What the store of a node lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ground {
    /// A block device.
    #[default]
    Device,
    /// A block device, and persistent memory that holds a redo log.
    DeviceWithRedo,
    /// Persistent memory, all of it.
    Memory,
}

/// How a store in memory divides it: so small that logs are truncated and blocks cleaned within a run. Where keys are
/// evicted, so many are written at once that they need a longer log.
pub const fn memory_geometry(evicts: bool) -> tierstone_pmstore::Geometry {
    let (segment_bytes, log_segments) = if evicts { (32 << 10, 4) } else { (8 << 10, 3) };
    tierstone_pmstore::Geometry { segment_bytes, block_bytes: 4 << 10, log_segments }
}

/// Bytes of the engine's part of the memory: for all shards, and for each.
const fn memory_bytes(evicts: bool) -> (u64, u64) {
    if evicts { (64 << 10, 384 << 10) } else { (96 << 10, 64 << 10) }
}

impl Ground {
    /// Whether there is persistent memory.
    pub fn has_memory(self) -> bool {
        self != Ground::Device
    }

    /// A machine for nodes of up to `shards` shards; with little room for a redo log, if `is_tight`, or for nodes that evict keys.
    pub fn machine(
        self,
        device: SimSettings,
        choices: &tierstone_crash::Choices,
        (shards, is_tight, evicts): (u16, bool, bool),
    ) -> WordMachine {
        let region_bytes = match self {
            Ground::Device => 0,
            Ground::DeviceWithRedo if is_tight => u64::from(shards) * (44 << 10),
            Ground::DeviceWithRedo => u64::from(shards) * (256 << 10),
            Ground::Memory => {
                let (for_all, for_each) = memory_bytes(evicts);
                ENGINE_BASE + for_all + u64::from(shards) * for_each
            }
        };
        let settings = SimMachineSettings {
            power_cut: device.power_cut,
            trace_limit_lines: device.trace_limit_lines,
            cut_limit: u32::MAX,
            ..SimMachineSettings::exploring(region_bytes, device.geometry)
        };
        SimMachine::new(&SimMachineSettings { devices: vec![device], ..settings }, choices)
    }

    /// A handle on what holds the superblock, and segments if there are any, of the machine's newest life.
    ///
    /// # Errors
    /// `InvalidInput`: the memory is too small.
    pub fn device(self, machine: &WordMachine) -> Result<NodeDevice> {
        Ok(match self {
            Ground::Device | Ground::DeviceWithRedo => NodeDevice::Blocks(machine.media()[0].device()),
            Ground::Memory => {
                let region = Arc::new(machine.region());
                NodeDevice::Memory(RegionDevice::new(region, 0, superblock_geometry())?)
            }
        })
    }
}

/// A handle on what a node's store lies on.
#[derive(Debug)]
pub enum NodeDevice {
    /// A block device.
    Blocks(SimDevice),
    /// The start of persistent memory.
    Memory(RegionDevice<Arc<WordRegion>>),
}

impl NodeDevice {
    fn inner(&self) -> &dyn BlockDevice {
        match self {
            NodeDevice::Blocks(device) => device,
            NodeDevice::Memory(device) => device,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn BlockDevice {
        match self {
            NodeDevice::Blocks(device) => device,
            NodeDevice::Memory(device) => device,
        }
    }
}

impl BlockDevice for NodeDevice {
    fn geometry(&self) -> Geometry {
        self.inner().geometry()
    }

    fn guarantee(&self) -> Guarantee {
        self.inner().guarantee()
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        self.inner().durable_write_scope()
    }

    fn discards_to_zeros(&self) -> bool {
        self.inner().discards_to_zeros()
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        self.inner_mut().submit(requests);
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        self.inner_mut().complete(wait, completions)
    }

    fn in_flight(&self) -> usize {
        self.inner().in_flight()
    }
}
