//! The flash buffer: what sleeping disks miss, in extents, behind a small durable staging log.
//!
//! Volumes share one device. Each appends to a staging log of its own; when a unit's worth of blocks (1
//! MiB by default) has gathered, the unit is written to the volume's current extent with one large write,
//! and the log begins anew. An extent belongs to one volume and is given back when no pair needs anything
//! in it.
//!
//! Source: Snyder et al., *QMD*, DaMoN 2011, sections 3.1 and 3.2. Departures: without persistent memory
//! the staging buffer is a log on the flash itself (each block is written there once more), with it
//! ([`staging`]) only the logs lie there; recovery, which the source does not describe, is by the addresses
//! in logs and units.
//!
//! [`staging`]: super::staging
//!
//! Invariants:
//! 1. A block that [`Buffer::append`] has taken is durable, with its address.
//! 2. The staging log begins anew only when its unit is durable in an extent.
//! 3. An extent changes its owner only by a durable map; its new life makes older units in it void.
//! 4. A pair's blocks are forgotten only by a durable map that names how far the pair is flushed; sequences
//!    never come twice.
//! 5. Every extent is free or has one owner; the live blocks of all extents are those that maps of pairs
//!    name ([`Buffer::check`]).

use super::format::{Batch, BufferMap};
use super::staging::{Staging, log_start};
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoKind, IoRequest, Wait};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;
/// The place that salts records of the staging log; lives of extents begin at 1.
pub(super) const STAGING: u64 = 0;

/// How a buffer is made. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSettings {
    /// Its identity; volumes name it.
    pub id: u128,
    /// How many volumes may share it.
    pub volumes: u32,
    /// Most pairs of a volume.
    pub pairs_a_volume: u32,
    /// Bytes of an extent, whole units. Published 1 GB for 100 GB of flash; many more than volumes.
    pub extent_bytes: u64,
    /// Blocks of a unit, its block of addresses included; 256 (1 MiB) as published, 3 to 503.
    pub unit_blocks: u32,
}

/// A block of a pair.
pub(crate) type BlockOf = (u32, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory and in the staging log: the how-many-th of the unit.
    Staged(usize),
    /// In an extent: its number, and the block within it.
    Extent(u32, u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) sequence: u64,
    pub(super) place: Place,
}

/// What is staged of a volume, and where its next unit goes.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub(super) blocks: Vec<(BlockOf, Vec<u8>)>,
    /// Sequence of the first of them.
    pub(super) first: u64,
    /// Records of the log, and blocks that they take.
    pub(super) records: u32,
    pub(super) used: u64,
    /// The extent that units go to, and how many it has.
    pub(super) extent: Option<(u32, u32)>,
}

/// A buffer on one device.
#[derive(Debug)]
pub(crate) struct Buffer<D> {
    pub(super) device: D,
    /// Where the staging logs lie, if not on `device`.
    pub(super) staging: Option<Staging<D>>,
    pub(super) map: BufferMap,
    /// Which slot holds the map that counts.
    slot: u64,
    pub(super) stages: Vec<Stage>,
    /// For each volume: what its pairs have here.
    pub(super) held: Vec<BTreeMap<BlockOf, Held>>,
    /// Blocks of each extent that some pair needs, and units in it.
    live: Vec<u32>,
    pub(super) units: Vec<u32>,
    /// Why nothing more can be relied on.
    lost: Option<String>,
    pub(super) mutations: Mutations,
}

pub(super) fn refuse<T>(what: String) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidInput, what))
}

impl<D: BlockDevice> Buffer<D> {
    pub(super) fn of(device: D, map: BufferMap, slot: u64) -> Self {
        let volumes = map.volumes.len();
        Buffer {
            device,
            staging: None,
            slot,
            stages: (0..volumes).map(|_| Stage::default()).collect(),
            held: vec![BTreeMap::new(); volumes],
            live: vec![0; map.extents.len()],
            units: vec![0; map.extents.len()],
            lost: None,
            mutations: Mutations::none(),
            map,
        }
    }

    pub(crate) fn id(&self) -> u128 {
        self.map.id
    }

    /// The number of a volume here; a new one gets a free number.
    pub(crate) fn register(&mut self, volume: u128, pairs: u32) -> Result<u32> {
        if pairs > self.map.pairs_a_volume {
            return refuse(format!(
                "the volume has {pairs} pairs, the buffer serves {} a volume",
                self.map.pairs_a_volume
            ));
        }
        if let Some(at) = self.map.volumes.iter().position(|entry| entry.volume == volume) {
            return Ok(at as u32);
        }
        let Some(at) = self.map.volumes.iter().position(|entry| entry.volume == 0) else {
            return refuse(format!("the buffer serves {} volumes already", self.map.volumes.len()));
        };
        self.map.volumes[at].volume = volume;
        self.write_map()?;
        Ok(at as u32)
    }

    // ---- the device ----------------------------------------------------------------------------

    pub(super) fn write(&mut self, offset: u64, bytes: IoBuffer) -> Result<()> {
        if let Some(why) = &self.lost {
            return Err(Error::new(ErrorKind::DeviceFailed, why.clone()));
        }
        let request = IoRequest::write_durable(0, offset, bytes);
        perform(&mut self.device, request)
            .map(drop)
            .inspect_err(|error| self.lost = Some(error.message().to_owned()))
    }

    /// Writes a record of a staging log, durably.
    fn write_log(&mut self, volume: u32, offset: u64, bytes: IoBuffer) -> Result<()> {
        let start = self.staging_start(volume);
        if self.staging.is_none() || self.lost.is_some() {
            return self.write(start + offset, bytes);
        }
        let Some(staging) = &mut self.staging else { return Ok(()) };
        let request = IoRequest::write_durable(0, start + offset, bytes);
        perform(&mut staging.device, request)
            .map(drop)
            .inspect_err(|error| self.lost = Some(error.message().to_owned()))
    }

    /// Reads the whole staging log of a volume.
    pub(super) fn read_log(&mut self, volume: u32) -> Result<IoBuffer> {
        let (start, len) = (self.staging_start(volume), 2 * self.unit_bytes());
        match &mut self.staging {
            Some(staging) => read_of(&mut staging.device, start, len),
            None => self.read_at(start, len),
        }
    }

    pub(super) fn read_at(&mut self, offset: u64, len: u64) -> Result<IoBuffer> {
        read_of(&mut self.device, offset, len)
    }

    pub(super) fn write_map(&mut self) -> Result<()> {
        self.map.sequence += 1;
        let slot = 1 - self.slot;
        self.write(slot * self.map.own_slot_bytes(), self.map.encode())?;
        self.slot = slot;
        Ok(())
    }

    pub(super) fn unit_bytes(&self) -> u64 {
        u64::from(self.map.unit_blocks) * BLOCK
    }

    /// Where the staging log of a volume begins, on whatever holds it.
    fn staging_start(&self, volume: u32) -> u64 {
        match &self.staging {
            Some(_) => log_start(volume, self.map.unit_blocks),
            None => self.flash_log_start(volume),
        }
    }

    fn flash_log_start(&self, volume: u32) -> u64 {
        2 * self.map.own_slot_bytes() + u64::from(volume) * 2 * self.unit_bytes()
    }

    /// The room of the logs on the flash stays, so that a buffer may be opened with and without a memory.
    pub(super) fn extent_start(&self, extent: u32) -> u64 {
        self.flash_log_start(self.map.volumes.len() as u32) + u64::from(extent) * self.map.extent_bytes
    }

    pub(super) fn units_an_extent(&self) -> u32 {
        (self.map.extent_bytes / self.unit_bytes()) as u32
    }

    // ---- appending -----------------------------------------------------------------------------

    /// Takes blocks of a volume's pairs: durable, with their addresses, when it returns.
    ///
    /// # Errors
    /// No space when all extents are in use, with some of the blocks taken or none; failed device.
    pub(crate) fn append(&mut self, volume: u32, blocks: &[(BlockOf, Vec<u8>)]) -> Result<()> {
        let most = self.map.unit_blocks as usize - 1;
        let mut rest = blocks;
        while !rest.is_empty() {
            let stage = &self.stages[volume as usize];
            let log_blocks = 2 * u64::from(self.map.unit_blocks);
            let room = (most - stage.blocks.len()).min((log_blocks - stage.used).saturating_sub(1) as usize);
            if room == 0 {
                self.seal(volume)?;
                continue;
            }
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.stage(volume, now)?;
            rest = later;
        }
        Ok(())
    }

    /// Writes one record of the staging log.
    fn stage(&mut self, volume: u32, blocks: &[(BlockOf, Vec<u8>)]) -> Result<()> {
        let entry = self.map.volumes[volume as usize];
        let id = self.map.id;
        let stage = &mut self.stages[volume as usize];
        let batch = Batch {
            volume,
            unit: entry.unit,
            index: stage.records,
            sequence: entry.sequence + 1,
            addresses: blocks.iter().map(|(address, _)| *address).collect(),
            data_sum: 0,
        };
        let data: Vec<&[u8]> = blocks.iter().map(|(_, bytes)| &bytes[..]).collect();
        let bytes = batch.encode(id, STAGING, &data);
        let (offset, taken) = (stage.used * BLOCK, bytes.len() as u64 / BLOCK);
        self.write_log(volume, offset, bytes)?;
        let stage = &mut self.stages[volume as usize];
        stage.used += taken;
        stage.records += 1;
        if stage.blocks.is_empty() {
            stage.first = entry.sequence + 1;
        }
        for (address, bytes) in blocks {
            let at = self.stages[volume as usize].blocks.len();
            self.stages[volume as usize].blocks.push((*address, bytes.clone()));
            let sequence = self.map.volumes[volume as usize].sequence + 1;
            self.map.volumes[volume as usize].sequence = sequence;
            self.hold(volume, *address, Held { sequence, place: Place::Staged(at) });
        }
        Ok(())
    }

    pub(super) fn hold(&mut self, volume: u32, address: BlockOf, held: Held) {
        if let Place::Extent(extent, _) = held.place {
            self.live[extent as usize] += 1;
        }
        if let Some(old) = self.held[volume as usize].insert(address, held) {
            self.let_go(old);
        }
    }

    fn let_go(&mut self, held: Held) {
        if let Place::Extent(extent, _) = held.place {
            self.live[extent as usize] -= 1;
        }
    }

    /// Writes what is staged as a unit of the current extent; the log begins anew.
    fn seal(&mut self, volume: u32) -> Result<()> {
        let (extent, unit) = self.place_for_unit(volume)?;
        let life = u64::from(self.map.extents[extent as usize].life);
        let entry = self.map.volumes[volume as usize];
        let (start, id, unit_bytes) = (self.extent_start(extent), self.map.id, self.unit_bytes());
        let stage = &mut self.stages[volume as usize];
        let batch = Batch {
            volume,
            unit: entry.unit,
            index: 0,
            sequence: stage.first,
            addresses: stage.blocks.iter().map(|(address, _)| *address).collect(),
            data_sum: 0,
        };
        let data: Vec<&[u8]> = stage.blocks.iter().map(|(_, bytes)| &bytes[..]).collect();
        let bytes = batch.encode(id, life, &data);
        self.write_unit(start + u64::from(unit) * unit_bytes, bytes)?;
        self.units[extent as usize] = unit + 1;
        let stage = &mut self.stages[volume as usize];
        let (blocks, first) = (std::mem::take(&mut stage.blocks), stage.first);
        (stage.records, stage.used, stage.extent) = (0, 0, Some((extent, unit + 1)));
        self.map.volumes[volume as usize].unit += 1;
        for (at, (address, _)) in blocks.into_iter().enumerate() {
            let sequence = first + at as u64;
            if self.held[volume as usize].get(&address).is_some_and(|held| held.sequence == sequence) {
                let block = unit * self.map.unit_blocks + 1 + at as u32;
                self.hold(volume, address, Held { sequence, place: Place::Extent(extent, block) });
            }
        }
        Ok(())
    }

    /// Writes a unit to its extent, durably: what it holds is overwritten in the log from then on.
    fn write_unit(&mut self, offset: u64, bytes: IoBuffer) -> Result<()> {
        if self.mutations.is_on("a unit is durable before its log begins anew") {
            return perform(&mut self.device, IoRequest::write(0, offset, bytes)).map(drop);
        }
        self.write(offset, bytes)
    }

    /// The extent and place of a volume's next unit; takes a free extent when the current one is full.
    fn place_for_unit(&mut self, volume: u32) -> Result<(u32, u32)> {
        if let Some((extent, units)) = self.stages[volume as usize].extent
            && units < self.units_an_extent()
        {
            return Ok((extent, units));
        }
        self.stages[volume as usize].extent = None;
        self.give_back();
        let Some(extent) = self.map.extents.iter().position(|entry| entry.owner == 0) else {
            return Err(Error::new(
                ErrorKind::NoSpace,
                "the flash buffer is full: flush the volumes that use it",
            ));
        };
        let entry = &mut self.map.extents[extent];
        (entry.owner, entry.life) = (volume + 1, entry.life.wrapping_add(1).max(1));
        self.units[extent] = 0;
        self.write_map()?;
        self.stages[volume as usize].extent = Some((extent as u32, 0));
        Ok((extent as u32, 0))
    }

    /// Extents in which nothing is needed become free; the next map says so.
    fn give_back(&mut self) {
        let current: Vec<u32> =
            self.stages.iter().filter_map(|stage| stage.extent).map(|(extent, _)| extent).collect();
        for extent in 0..self.map.extents.len() {
            if self.live[extent] == 0 && !current.contains(&(extent as u32)) {
                self.map.extents[extent].owner = 0;
                self.units[extent] = 0;
            }
        }
    }

    // ---- using ---------------------------------------------------------------------------------

    /// The share of the units that is in use, 0 to 1, what is staged included.
    pub(crate) fn fill(&self) -> f64 {
        let used: u32 = self.units.iter().sum();
        let staged = self.stages.iter().filter(|stage| !stage.blocks.is_empty()).count();
        let all = self.map.extents.len() as f64 * f64::from(self.units_an_extent());
        (f64::from(used) + staged as f64) / all
    }

    /// Why the buffer cannot be relied on, if so.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// The blocks that pair `pair` of a volume has here, with their sequences.
    pub(crate) fn held(&self, volume: u32, pair: u32) -> Vec<(u32, u64)> {
        let range = (pair, 0)..=(pair, u32::MAX);
        self.held[volume as usize].range(range).map(|(&(_, block), held)| (block, held.sequence)).collect()
    }

    /// The sequence of a block that is here.
    pub(crate) fn sequence_of(&self, volume: u32, address: BlockOf) -> Option<u64> {
        self.held[volume as usize].get(&address).map(|held| held.sequence)
    }

    /// The newest content of a block that is here.
    ///
    /// # Errors
    /// When the flash cannot be read.
    pub(crate) fn read(&mut self, volume: u32, address: BlockOf) -> Result<Option<Vec<u8>>> {
        let Some(held) = self.held[volume as usize].get(&address).copied() else { return Ok(None) };
        match held.place {
            Place::Staged(at) => {
                Ok(self.stages[volume as usize].blocks.get(at).map(|(_, bytes)| bytes.clone()))
            }
            Place::Extent(extent, block) => {
                let offset = self.extent_start(extent) + u64::from(block) * BLOCK;
                Ok(Some(self.read_at(offset, BLOCK)?.to_vec()))
            }
        }
    }

    /// Everything of a pair is on both of its disks: forgets it, durably.
    ///
    /// # Errors
    /// When the flash fails; the next opening then hands the same blocks out again.
    pub(crate) fn flushed(&mut self, volume: u32, pair: u32) -> Result<()> {
        let addresses: Vec<BlockOf> =
            self.held(volume, pair).into_iter().map(|(block, _)| (pair, block)).collect();
        for address in addresses {
            if let Some(held) = self.held[volume as usize].remove(&address) {
                self.let_go(held);
            }
        }
        let at = volume * self.map.pairs_a_volume + pair;
        self.map.flushed[at as usize] = self.map.volumes[volume as usize].sequence;
        if self.held[volume as usize].is_empty() {
            // Nothing of the volume is needed: its log begins anew too, as another unit.
            let stage = &mut self.stages[volume as usize];
            *stage = Stage::default();
            self.map.volumes[volume as usize].unit += 1;
        }
        self.give_back();
        self.write_map()
    }

    /// Whether extents and maps agree: every block that is held lies in an extent of its volume, and the
    /// live blocks of each extent are those that are held.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let mut live = vec![0; self.live.len()];
        for (volume, held) in self.held.iter().enumerate() {
            for (address, held) in held {
                let Place::Extent(extent, _) = held.place else { continue };
                live[extent as usize] += 1;
                let owner = self.map.extents[extent as usize].owner;
                if owner != volume as u32 + 1 {
                    return Err(format!(
                        "block {address:?} of volume {volume} lies in an extent of owner {owner}"
                    ));
                }
            }
        }
        if live == self.live { Ok(()) } else { Err(format!("live blocks {live:?}, counted {:?}", self.live)) }
    }
}

pub(super) fn read_of<D: BlockDevice>(device: &mut D, offset: u64, len: u64) -> Result<IoBuffer> {
    let request = IoRequest::read(0, offset, IoBuffer::zeroed(len as usize));
    let buffer = perform(device, request)?;
    buffer.ok_or_else(|| Error::new(ErrorKind::DeviceFailed, "the flash buffer lost a read's bytes"))
}

pub(super) fn perform<D: BlockDevice>(device: &mut D, request: IoRequest) -> Result<Option<IoBuffer>> {
    let is_read = request.kind == IoKind::Read;
    device.submit(&mut vec![request]);
    let mut done = Vec::new();
    device.complete(Wait::All, &mut done);
    match done.pop() {
        Some(done) => {
            done.result.map_err(|error| Error::from(error).context("flash buffer"))?;
            Ok(done.buffer.filter(|_| is_read))
        }
        None => Err(Error::new(ErrorKind::DeviceFailed, "the flash buffer gave no answer")),
    }
}
