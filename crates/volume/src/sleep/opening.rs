//! Making a flash buffer, opening one, and where its staging logs lie.
//!
//! Nothing is written to a staging memory, nor to the map, before the logs have been read: what cannot be opened stays as
//! it is.

use super::buffer::{BLOCK, Buffer, BufferSettings, read_of, refuse};
use super::format::{BATCH_BLOCKS_MAX, BufferMap, ExtentEntry, VolumeEntry};
use super::staging::{Signature, Staging};
use tierstone_base::Result;
use tierstone_crash::Mutations;
use tierstone_media::{BlockDevice, IoBuffer};

/// Blocks of a slot of the map up to which the second is searched for when the first is torn.
const SLOT_BLOCKS_MAX: u64 = 4096;

impl<D: BlockDevice> Buffer<D> {
    /// Writes an empty buffer to `device`, over whatever was there; its staging logs lie in `staging`, if that is
    /// given: a memory of zeros, or one that buffers of the identities `own` have used.
    pub(crate) fn create(
        device: D,
        staging: Option<D>,
        settings: &BufferSettings,
        own: &[u128],
    ) -> Result<Self> {
        let unit_bytes = u64::from(settings.unit_blocks) * BLOCK;
        if settings.unit_blocks < 3 || settings.unit_blocks as usize > BATCH_BLOCKS_MAX + 1 {
            return refuse(format!(
                "a unit of {} blocks: give 3 to {}",
                settings.unit_blocks,
                BATCH_BLOCKS_MAX + 1
            ));
        }
        if settings.extent_bytes == 0 || !settings.extent_bytes.is_multiple_of(unit_bytes) || settings.id == 0
        {
            return refuse(format!(
                "extents of {} bytes must be whole units of {unit_bytes}, and the id not 0",
                settings.extent_bytes
            ));
        }
        if settings.volumes == 0
            || settings.volumes > 1 << 12
            || u64::from(settings.volumes) * u64::from(settings.pairs_a_volume) > 1 << 20
        {
            return refuse("a buffer serves 1 to 4,096 volumes and a million pairs at most".into());
        }
        let (volumes, pairs) =
            (settings.volumes as usize, (settings.volumes * settings.pairs_a_volume) as usize);
        let room = |extents: u64| {
            2 * BufferMap::slot_bytes(extents as usize, volumes, pairs)
                + u64::from(settings.volumes) * 2 * unit_bytes
                + extents * settings.extent_bytes
        };
        let end = device.geometry().end();
        let mut extents = (end / settings.extent_bytes).min(1 << 20);
        while extents > 0 && room(extents) > end {
            extents -= 1;
        }
        if extents < 2 * u64::from(settings.volumes) {
            return refuse(format!(
                "{end} bytes have room for {extents} extents, two a volume are needed: give smaller extents or more flash"
            ));
        }
        let map = BufferMap {
            id: settings.id,
            sequence: 0,
            extent_bytes: settings.extent_bytes,
            unit_blocks: settings.unit_blocks,
            staging: 0,
            pairs_a_volume: settings.pairs_a_volume,
            extents: vec![ExtentEntry::default(); extents as usize],
            volumes: vec![VolumeEntry::default(); volumes],
            flushed: vec![0; pairs],
        };
        let mut buffer = Self::of(device, map, 1);
        if let Some(staging) = staging {
            buffer.map.staging = 1;
            buffer.staging = Some(Staging::fresh(staging, buffer.signature(), own)?);
        }
        // An old map in the other slot would be newer.
        let blank = IoBuffer::zeroed(buffer.map.own_slot_bytes() as usize);
        buffer.write(buffer.map.own_slot_bytes(), blank)?;
        buffer.write_map()?;
        Ok(buffer)
    }

    /// Reads a buffer: its map, the addresses of all units, the staging logs.
    pub(crate) fn open(mut device: D, staging: Option<D>, mutations: Mutations) -> Result<Self> {
        let (slot, map) = Self::read_map(&mut device)?;
        let mut buffer = Self::of(device, map, slot);
        buffer.mutations = mutations;
        let is_new = buffer.map.staging == 0;
        match staging {
            Some(staging) if !is_new => {
                buffer.staging = Some(Staging::open(staging, buffer.signature())?);
                buffer.recover_all()?;
                buffer.sign()?;
            }
            Some(staging) => {
                buffer.recover_all()?;
                buffer.move_staging(staging)?;
            }
            None if is_new => buffer.recover_all()?,
            None => {
                return refuse("the blocks of the flash buffer are staged in a memory: name that one".into());
            }
        }
        Ok(buffer)
    }

    /// From now on the logs lie in `staging`, which was not used before.
    fn move_staging(&mut self, staging: D) -> Result<()> {
        if self.stages.iter().any(|stage| !stage.blocks.is_empty()) {
            return refuse(
                "blocks are staged on the flash: open and close the volume once without the staging memory"
                    .into(),
            );
        }
        let signature = Signature { epoch: 1, ..self.signature() };
        self.staging = Some(Staging::fresh(staging, signature, &[self.map.id])?);
        self.map.staging = 1;
        self.write_map()
    }

    /// A new epoch: in the memory first, then in the map.
    fn sign(&mut self) -> Result<()> {
        self.map.staging += 1;
        let signature = self.signature();
        let late = self.mutations.is_on("the staging memory is signed before the map");
        if late {
            self.write_map()?;
        }
        if let Some(staging) = &mut self.staging {
            staging.sign(signature)?;
        }
        // crash here [staging-signed]: the memory is an epoch ahead of the map, as it may be
        if late { Ok(()) } else { self.write_map() }
    }

    fn signature(&self) -> Signature {
        Signature {
            buffer: self.map.id,
            epoch: self.map.staging,
            volumes: self.map.volumes.len() as u32,
            unit_blocks: self.map.unit_blocks,
        }
    }

    fn recover_all(&mut self) -> Result<()> {
        (0..self.map.volumes.len() as u32).try_for_each(|volume| self.recover(volume))
    }

    /// An empty buffer of the same shape on the same devices, with another identity: nothing that was in the old
    /// one counts any more.
    pub(crate) fn renew(mut device: D, staging: Option<D>) -> Result<Self> {
        let (_, old) = Self::read_map(&mut device)?;
        let id = old.id.wrapping_add(1).max(1);
        let settings = BufferSettings {
            id,
            volumes: old.volumes.len() as u32,
            pairs_a_volume: old.pairs_a_volume,
            extent_bytes: old.extent_bytes,
            unit_blocks: old.unit_blocks,
        };
        Self::create(device, staging, &settings, &[old.id, id])
    }

    /// The map that counts, and its slot. One of a newer program is refused in either, so that nothing is written over it.
    fn read_map(device: &mut D) -> Result<(u64, BufferMap)> {
        let head = read_of(device, 0, BLOCK)?;
        let first = BufferMap::slot_bytes_in(&head);
        let mut maps: Vec<(u64, BufferMap)> = Vec::new();
        // The second slot begins where the first ends; if the first is torn, try where it may.
        let limit = device.geometry().end();
        let lengths: Vec<u64> = match first {
            Some(len) => vec![len],
            None => (1..=SLOT_BLOCKS_MAX)
                .map(|blocks| blocks * BLOCK)
                .take_while(|len| 2 * len <= limit)
                .collect(),
        };
        for len in lengths {
            let second = BufferMap::slot_bytes_in(&read_of(device, len, BLOCK)?);
            if first.is_none() && second != Some(len) {
                continue;
            }
            for slot in 0..2 {
                let bytes = read_of(device, slot * len, len)?;
                BufferMap::refuse_newer(&bytes)?;
                if let Some(map) = BufferMap::decode(&bytes)
                    && map.own_slot_bytes() == len
                {
                    maps.push((slot, map));
                }
            }
        }
        match maps.into_iter().max_by_key(|(_, map)| map.sequence) {
            Some(newest) => Ok(newest),
            None => refuse("the device holds no flash buffer: it is another one, or damaged".into()),
        }
    }
}

#[cfg(test)]
#[path = "opening_test.rs"]
mod opening_test;
